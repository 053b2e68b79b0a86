//! The calculator: arithmetic on decimal numbers, exactly.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = factor (("*" | "/") factor)*
//! factor  = "-" factor | "(" sum ")" | number
//! number  = digit+ ("." digit+)?
//! ```
//!
//! White space is left out first, so a number may be written as a word per digit: `6 3 7 1` is 6371. That makes nothing
//! ambiguous: two numbers never stand side by side.

use std::fmt;

/// Deepest nesting of parentheses and signs.
pub const MAX_DEPTH: usize = 32;
/// Digits that a number may have before the point.
pub const WHOLE_DIGITS: u32 = 15;
/// Digits behind the point that are shown.
pub const SHOWN_DIGITS: u32 = 6;

/// Bound of numerator and denominator: remainders times 10^[`SHOWN_DIGITS`] still fit.
const LARGEST: i128 = 10i128.pow(30);
const LARGEST_WHOLE: i128 = 10i128.pow(WHOLE_DIGITS);

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The text is no expression.
    Syntax,
    /// It is nested deeper than [`MAX_DEPTH`].
    Depth,
    /// Something is divided by 0.
    ZeroDivision,
    /// A number on the way has more than [`WHOLE_DIGITS`] digits before the point, or is too long a fraction.
    Overflow,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Syntax => "no expression",
            Fault::Depth => "too deep",
            Fault::ZeroDivision => "division by zero",
            Fault::Overflow => "overflow",
        })
    }
}

/// A rational number in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    above: i128,
    /// Positive.
    below: i128,
}

/// Their greatest common divisor; `b` is positive.
fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Number {
    /// `above / below`; `below` is positive.
    fn fraction(above: i128, below: i128) -> Result<Self, Fault> {
        if above == i128::MIN {
            return Err(Fault::Overflow);
        }
        let shared = gcd(above, below);
        let (above, below) = (above / shared, below / shared);
        let small = above.abs() <= LARGEST && below <= LARGEST && above.abs() / below < LARGEST_WHOLE;
        if small { Ok(Self { above, below }) } else { Err(Fault::Overflow) }
    }

    fn plus(self, other: Self) -> Result<Self, Fault> {
        let shared = gcd(self.below, other.below);
        let term = |x: Self, y: Self| x.above.checked_mul(y.below / shared);
        let above = term(self, other).zip(term(other, self)).and_then(|(x, y)| x.checked_add(y));
        let below = self.below.checked_mul(other.below / shared);
        above.zip(below).map_or(Err(Fault::Overflow), |(above, below)| Self::fraction(above, below))
    }

    /// The difference.
    ///
    /// # Errors
    /// If it is out of range.
    pub fn minus(self, other: Self) -> Result<Self, Fault> {
        self.plus(other.negative())
    }

    fn negative(self) -> Self {
        Self { above: -self.above, ..self }
    }

    fn times(self, other: Self) -> Result<Self, Fault> {
        // Cancelled crosswise first, the product is in lowest terms.
        let (left, right) = (gcd(self.above, other.below), gcd(other.above, self.below));
        let above = (self.above / left).checked_mul(other.above / right);
        let below = (self.below / right).checked_mul(other.below / left);
        above.zip(below).map_or(Err(Fault::Overflow), |(above, below)| Self::fraction(above, below))
    }

    fn divided_by(self, other: Self) -> Result<Self, Fault> {
        if other.above == 0 {
            return Err(Fault::ZeroDivision);
        }
        let sign = other.above.signum();
        self.times(Self { above: other.below * sign, below: other.above.abs() })
    }

    /// Whether it is above 0.
    pub fn is_positive(self) -> bool {
        self.above > 0
    }

    /// The nearest whole number; a half goes away from 0.
    pub fn rounded(self) -> i128 {
        let doubled = 2 * self.above.abs() + self.below;
        doubled / (2 * self.below) * self.above.signum()
    }

    /// As a decimal number with at most [`SHOWN_DIGITS`] digits behind the point, the last one rounded, a half away from 0.
    pub fn decimal(self) -> String {
        let scale = 10i128.pow(SHOWN_DIGITS);
        let (whole, rest) = (self.above.abs() / self.below, self.above.abs() % self.below);
        let behind = (2 * rest * scale + self.below) / (2 * self.below);
        let (whole, behind) = (whole + behind / scale, behind % scale);
        let sign = if self.above < 0 && (whole, behind) != (0, 0) { "-" } else { "" };
        let digits = format!("{behind:0width$}", width = SHOWN_DIGITS as usize);
        match digits.trim_end_matches('0') {
            "" => format!("{sign}{whole}"),
            digits => format!("{sign}{whole}.{digits}"),
        }
    }
}

/// The value of an expression.
///
/// # Errors
/// If it is no expression or has no value that can be held; see [`Fault`].
pub fn evaluate(text: &str) -> Result<Number, Fault> {
    let mut parser = Parser { rest: &symbols(text), depth: 0 };
    let value = parser.sum()?;
    if parser.rest.is_empty() { Ok(value) } else { Err(Fault::Syntax) }
}

/// The value of a text that is one number, with a sign or without.
pub fn literal(text: &str) -> Option<Number> {
    let symbols = symbols(text);
    let (negative, digits) = symbols.strip_prefix(b"-").map_or((false, &symbols[..]), |digits| (true, digits));
    let mut parser = Parser { rest: digits, depth: 0 };
    let value = parser.number().ok().filter(|_| parser.rest.is_empty())?;
    Some(if negative { value.negative() } else { value })
}

/// A number with a word per digit, as observations and actions have it: `3 . 1 4`.
pub fn spelled(decimal: &str) -> String {
    decimal.chars().map(String::from).collect::<Vec<_>>().join(" ")
}

fn symbols(text: &str) -> Vec<u8> {
    text.split_whitespace().flat_map(str::bytes).collect()
}

struct Parser<'a> {
    rest: &'a [u8],
    depth: usize,
}

impl<'a> Parser<'a> {
    /// Goes past the next symbol if it is this one.
    fn skip(&mut self, symbol: u8) -> bool {
        let rest = self.rest.strip_prefix(&[symbol]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn sum(&mut self) -> Result<Number, Fault> {
        let mut value = self.product()?;
        loop {
            if self.skip(b'+') {
                value = value.plus(self.product()?)?;
            } else if self.skip(b'-') {
                value = value.minus(self.product()?)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<Number, Fault> {
        let mut value = self.factor()?;
        loop {
            if self.skip(b'*') {
                value = value.times(self.factor()?)?;
            } else if self.skip(b'/') {
                value = value.divided_by(self.factor()?)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self) -> Result<Number, Fault> {
        let nested = match self.rest.first() {
            Some(b'-' | b'(') => self.depth + 1,
            _ => return self.number(),
        };
        if nested > MAX_DEPTH {
            return Err(Fault::Depth);
        }
        self.depth = nested;
        let value = if self.skip(b'-') {
            self.factor()?.negative()
        } else {
            self.skip(b'(');
            let value = self.sum()?;
            if !self.skip(b')') {
                return Err(Fault::Syntax);
            }
            value
        };
        self.depth -= 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<Number, Fault> {
        let whole = self.digits()?;
        let behind = if self.skip(b'.') { self.digits()? } else { &[] };
        let overflow = Fault::Overflow;
        let above = whole.iter().chain(behind).try_fold(0i128, |sum, digit| {
            let digit = i128::from(digit - b'0');
            sum.checked_mul(10).and_then(|sum| sum.checked_add(digit)).ok_or(overflow)
        })?;
        let places = u32::try_from(behind.len()).map_err(|_| overflow)?;
        Number::fraction(above, 10i128.checked_pow(places).ok_or(overflow)?)
    }

    fn digits(&mut self) -> Result<&'a [u8], Fault> {
        let n = self.rest.iter().take_while(|symbol| symbol.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(n);
        self.rest = rest;
        if digits.is_empty() { Err(Fault::Syntax) } else { Ok(digits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, want: &str) {
        let shown = evaluate(text).map_or_else(|fault| fault.to_string(), Number::decimal);
        assert_eq!(shown, want, "{text}");
    }

    #[test]
    fn by_hand() {
        check("2 * 3.14159 * 6371", "40030.13978");
        check("2 * 3 * 6371", "38226");
        check("2 * 3 . 1 4 1 5 9 * 6 3 7 1", "40030.13978");
        check("1 + 2 * 3", "7");
        check("( 1 + 2 ) * 3", "9");
        check("8 - 3 - 2", "3");
        check("16 / 4 / 2", "2");
        check("2 - -3", "5");
        check("--2", "2");
        check("-(1 + 2) * -2", "6");
        check("-2 * 3 + 1", "-5");
        check("0.1 + 0.2", "0.3");
        check("1 / 3", "0.333333");
        check("2 / 3", "0.666667");
        check("-2 / 3", "-0.666667");
        check("1 / 3 * 3", "1");
        check("0.0000005", "0.000001");
        check("0.9999995", "1");
        check("-1 / 10000000", "0");
        check("007", "7");
        check("5 - 5", "0");
    }

    #[test]
    fn what_has_no_value_says_why() {
        for text in
            ["", "( )", "1 +", "* 2", "( 1", "1 )", "1 . ", ". 5", "1 . 2 . 3", "2 x", "1 , 5", "2 ** 3", "+ 1", "π", "(1)(2)"]
        {
            check(text, "no expression");
        }
        check("1 / 0", "division by zero");
        check("1 / ( 2 - 2 )", "division by zero");
        check("0 / 0", "division by zero");
        check("999999999999999", "999999999999999");
        check("1000000000000000", "overflow");
        check("999999999999999 + 1", "overflow");
        check("-999999999999999 - 1", "overflow");
        check("100000000 * 10000000", "overflow");
        check(&"9".repeat(500), "overflow");
        check(&format!("0.{}", "1".repeat(500)), "overflow");
        // 1 / 10^30 is held, 1 / 10^31 is not.
        let tiny = |n: usize| format!("1{}", " / 10".repeat(n));
        check(&tiny(30), "0");
        check(&tiny(31), "overflow");
    }

    #[test]
    fn depth_has_a_limit() {
        let nested = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
        check(&nested(MAX_DEPTH), "1");
        check(&nested(MAX_DEPTH + 1), "too deep");
        check(&format!("{}1", "-".repeat(MAX_DEPTH)), "1");
        check(&"-".repeat(1_000_000), "too deep");
        check(&"(".repeat(1_000_000), "too deep");
        // Side by side is not deep, and neither is a long sum.
        check(&vec![nested(MAX_DEPTH); 100].join(" + "), "100");
    }

    #[test]
    fn a_half_is_rounded_away_from_zero() {
        let rounded = |text: &str| evaluate(text).unwrap().rounded();
        let all = ["2.5", "-2.5", "2.4", "-2.4", "2.6", "0", "1 / 3", "40030.13978"].map(rounded);
        assert_eq!(all, [3, -3, 2, -2, 3, 0, 0, 40030]);
    }

    #[test]
    fn a_literal_is_one_number() {
        let decimal = |text: &str| literal(text).map(Number::decimal);
        assert_eq!(decimal("- 3 2 . 5").unwrap(), "-32.5");
        assert_eq!(decimal("40030").unwrap(), "40030");
        for text in ["", "-", "- - 1", "1 + 1", "( 1 )", "unknown", "1 ."] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    /// An expression as a tree.
    #[derive(Clone, Debug)]
    enum Tree {
        Leaf(u32, u32),
        Negative(Box<Tree>),
        Binary(char, Box<Tree>, Box<Tree>),
    }
    impl Tree {
        /// Its text; everything nested stands in parentheses where `all`, else only what has to.
        fn text(&self, all: bool) -> String {
            let wrap = |text: String, needed: bool| if all || needed { format!("( {text} )") } else { text };
            let loose = |tree: &Tree| matches!(tree, Tree::Binary('+' | '-', ..));
            let binary = |tree: &Tree| matches!(tree, Tree::Binary(..));
            match self {
                Tree::Leaf(whole, behind) => format!("{whole}.{behind:02}"),
                Tree::Negative(x) => format!("- {}", wrap(x.text(all), binary(x))),
                Tree::Binary(op @ ('*' | '/'), x, y) => {
                    format!("{} {op} {}", wrap(x.text(all), loose(x)), wrap(y.text(all), binary(y)))
                }
                Tree::Binary(op, x, y) => format!("{} {op} {}", wrap(x.text(all), false), wrap(y.text(all), loose(y))),
            }
        }
        /// Its value as a fraction that is not reduced; `None` for a division by 0.
        fn value(&self) -> Option<(i128, i128)> {
            Some(match self {
                Tree::Leaf(whole, behind) => (i128::from(whole * 100 + behind), 100),
                Tree::Negative(x) => x.value().map(|(a, b)| (-a, b))?,
                Tree::Binary(op, x, y) => {
                    let ((a, b), (c, d)) = (x.value()?, y.value()?);
                    match op {
                        '+' => (a * d + c * b, b * d),
                        '-' => (a * d - c * b, b * d),
                        '*' => (a * c, b * d),
                        _ if c == 0 => return None,
                        _ => (a * d, b * c),
                    }
                }
            })
        }
    }

    fn trees() -> impl Strategy<Value = Tree> {
        // Three levels: at most eight leaves of at most four digits, so that fractions fit without being reduced.
        let leaf = (0u32..40, prop_oneof![Just(0), 0u32..100]).prop_map(|(whole, behind)| Tree::Leaf(whole, behind));
        leaf.prop_recursive(3, 8, 2, |inner| {
            prop_oneof![
                inner.clone().prop_map(|x| Tree::Negative(Box::new(x))),
                (prop::sample::select(vec!['+', '-', '*', '/']), inner.clone(), inner).prop_map(|(op, x, y)| Tree::Binary(
                    op,
                    Box::new(x),
                    Box::new(y)
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_value_is_that_of_the_tree(tree in trees(), all in any::<bool>(), spell in any::<bool>()) {
            let text = tree.text(all);
            let text = if spell { spelled(&text) } else { text };
            match (evaluate(&text), tree.value()) {
                (Ok(value), Some((a, b))) => {
                    prop_assert_eq!(value, Number::fraction(a * b.signum(), b.abs()).unwrap(), "{}", text);
                    let want = a as f64 / b as f64;
                    let shown: f64 = value.decimal().parse().unwrap();
                    prop_assert!((shown - want).abs() <= 0.5e-6 + 1e-12 * want.abs(), "{} shows {}", text, shown);
                    prop_assert!((value.rounded() as f64 - want).abs() <= 0.5 + 1e-12 * want.abs());
                }
                (fault, value) => prop_assert_eq!((fault, value), (Err(Fault::ZeroDivision), None), "{}", text),
            }
        }

        #[test]
        fn any_text_has_a_value_or_a_fault(text in "[-+*/(). 0-9a]{0,60}|\\PC{0,40}") {
            if let Ok(value) = evaluate(&text) {
                // What is shown is itself a number, and shown as it is.
                let shown = value.decimal();
                prop_assert_eq!(literal(&shown).map(Number::decimal), Some(shown.clone()));
                prop_assert_eq!(literal(&spelled(&shown)), literal(&shown));
            }
            let _ = literal(&text);
        }
    }
}
