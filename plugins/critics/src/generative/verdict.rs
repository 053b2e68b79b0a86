//! What a critic said, as a number: read, or refused with a reason. Nothing is guessed.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const OPEN: &str = "<value>";
const CLOSE: &str = "</value>";
/// Longest number that is read strictly, in bytes: no value needs more, and a flood of digits ends here.
const LONGEST: usize = 64;

/// How answers are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// What stands in the last `<value>` is a decimal number of the range, or nothing. What was cut is not read.
    #[default]
    Strict,
    /// As KMnO4-zx/agentic-rl-lab `09-tempo/critic.py` reads: the last tag that holds plain digits counts, whatever follows, and
    /// what lies beyond the range is its end. What was cut is read.
    Official,
}

/// What is read as a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// How.
    pub mode: Mode,
    /// The largest value; the smallest is 0.
    pub r_max: f64,
    /// Whether `50%` is half of the largest value. Strict reading only.
    pub percent: bool,
    /// Whether `7/10` is that share of the largest value. Strict reading only.
    pub fraction: bool,
}

/// Why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    /// There is no `<value>`.
    Missing,
    /// The last `<value>` is not closed.
    Unclosed,
    /// What stands there is no number.
    NotANumber,
    /// It is a number beyond the range.
    OutOfRange,
    /// The limit of tokens came first. Not a mistake in what was said.
    Truncated,
}

impl Unread {
    /// All reasons.
    pub const ALL: [Unread; 5] = [Unread::Missing, Unread::Unclosed, Unread::NotANumber, Unread::OutOfRange, Unread::Truncated];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Unread::Missing => "missing",
            Unread::Unclosed => "unclosed",
            Unread::NotANumber => "not_a_number",
            Unread::OutOfRange => "out_of_range",
            Unread::Truncated => "truncated",
        }
    }
}
impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The value that an answer gives, in `0..=r_max`.
///
/// * `cut`: whether the limit of tokens ended the answer
///
/// Tags are found in any case of letters. Strict reading takes what stands between the last `<value>` and the `</value>` after it,
/// less white space and asterisks around it: an optional sign, digits with at most one point among or beside them, an
/// optional exponent; ASCII only, so that full-width digits are no number, as are `nan`, `inf`, `0,5` and whatever has words in it.
/// It takes time in the length of the text.
///
/// # Errors
/// Why there is none. A number beyond the range is refused strictly, and never brought into it.
pub fn read(text: &str, cut: bool, rules: &Rules) -> Result<f64, Unread> {
    match rules.mode {
        Mode::Official => official(text, rules.r_max),
        Mode::Strict if cut => Err(Unread::Truncated),
        Mode::Strict => strict(text, rules),
    }
}

fn strict(text: &str, rules: &Rules) -> Result<f64, Unread> {
    // ASCII letters alone change, so places are the same in both.
    let lower = text.to_ascii_lowercase();
    let from = lower.rfind(OPEN).ok_or(Unread::Missing)? + OPEN.len();
    let length = lower[from..].find(CLOSE).ok_or(Unread::Unclosed)?;
    let said = text[from..from + length].trim().trim_matches('*').trim();
    if said.len() > LONGEST {
        return Err(if said.bytes().all(|b| b.is_ascii_digit()) { Unread::OutOfRange } else { Unread::NotANumber });
    }
    let value = if let Some(share) = said.strip_suffix('%').filter(|_| rules.percent) {
        decimal(share.trim_end()).map(|x| x / 100.0 * rules.r_max)
    } else if let Some((over, under)) = said.split_once('/').filter(|_| rules.fraction) {
        let share = |over: f64, under: f64| (under != 0.0).then(|| over / under * rules.r_max);
        decimal(over.trim()).zip(decimal(under.trim())).and_then(|(over, under)| share(over, under))
    } else {
        decimal(said)
    };
    let value = value.ok_or(Unread::NotANumber)?;
    // −0 is 0.
    if (0.0..=rules.r_max).contains(&value) { Ok(value.abs()) } else { Err(Unread::OutOfRange) }
}

/// A decimal number in ASCII; what is too large for an `f64` is infinite.
fn decimal(said: &str) -> Option<f64> {
    let unsigned = said.strip_prefix(['+', '-']).unwrap_or(said);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let is_number = digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty());
    let has_power = exponent.is_none_or(|e| !e.is_empty() && digits(e));
    (is_number && has_power).then(|| said.parse().ok()).flatten()
}

/// The last match of `<value>\s*([0-9]*\.?[0-9]+)\s*</value>` in any case of letters, clamped.
fn official(text: &str, r_max: f64) -> Result<f64, Unread> {
    let lower = text.to_ascii_lowercase();
    let mut reason = Unread::Missing;
    for (at, _) in lower.rmatch_indices(OPEN) {
        let rest = &lower[at + OPEN.len()..];
        if let Some(number) = plain(rest) {
            // What is too large for an `f64` is no number there.
            let value = number.parse().ok().filter(|x: &f64| x.is_finite()).ok_or(Unread::OutOfRange)?;
            return Ok(value.min(r_max));
        }
        if reason == Unread::Missing {
            reason = if rest.contains(CLOSE) { Unread::NotANumber } else { Unread::Unclosed };
        }
    }
    Err(reason)
}

/// The number of `\s*([0-9]*\.?[0-9]+)\s*</value>` at the beginning of a text.
fn plain(text: &str) -> Option<&str> {
    let text = text.trim_start_matches(is_space);
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let part = text[whole..].strip_prefix('.').map_or(0, digits);
    let end = if part > 0 { whole + 1 + part } else { whole };
    (end > 0 && text[end..].trim_start_matches(is_space).starts_with(CLOSE)).then(|| &text[..end])
}

/// White space as Python's `\s` has it: the separators of ASCII belong to it too.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Reading = Result<f64, Unread>;

    const STRICT: Rules = Rules { mode: Mode::Strict, r_max: 1.0, percent: false, fraction: false };
    const OFFICIAL: Rules = Rules { mode: Mode::Official, ..STRICT };

    #[test]
    fn traps_by_hand_in_both_modes() {
        use Unread::{Missing, NotANumber, OutOfRange, Unclosed};
        let digits = "9".repeat(400);
        let small = format!("0.{}1", "0".repeat(400));
        // what is said, read strictly, read as official code does
        let table: &[(&str, Reading, Reading)] = &[
            ("<value>0.42</value>", Ok(0.42), Ok(0.42)),
            ("so <VALUE>\n .25\t</Value> it is", Ok(0.25), Ok(0.25)),
            ("<value>0.5/1</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>7/10</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>50%</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>0,42</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>1.</value>", Ok(1.0), Err(NotANumber)),
            ("<value>.5</value>", Ok(0.5), Ok(0.5)),
            ("<value>+0.5</value>", Ok(0.5), Err(NotANumber)),
            ("<value>-0.2</value>", Err(OutOfRange), Err(NotANumber)),
            ("<value>-0</value>", Ok(0.0), Err(NotANumber)),
            ("<value>1e-1</value>", Ok(0.1), Err(NotANumber)),
            ("<value>1e400</value>", Err(OutOfRange), Err(NotANumber)),
            ("<value>1e</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>nan</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>inf</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>-infinity</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>１．０</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>0.５</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>٣</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>7</value>", Err(OutOfRange), Ok(1.0)),
            ("<value>1.5</value>", Err(OutOfRange), Ok(1.0)),
            ("<value>**0.5**</value>", Ok(0.5), Err(NotANumber)),
            ("<value>0.5 of 1</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>0 . 5</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>1_0</value>", Err(NotANumber), Err(NotANumber)),
            ("<value>.</value>", Err(NotANumber), Err(NotANumber)),
            ("<value></value>", Err(NotANumber), Err(NotANumber)),
            ("<value>0.1</value> no, <value>0.9</value>", Ok(0.9), Ok(0.9)),
            ("<value>0.2</value> or <value>bad</value>", Err(NotANumber), Ok(0.2)),
            ("<value>0.2</value> or <value>0.5", Err(Unclosed), Ok(0.2)),
            ("<value><value>0.5</value></value>", Ok(0.5), Ok(0.5)),
            ("<value>0.3<value>0.5</value></value>", Ok(0.5), Ok(0.5)),
            ("<value>0.5<value></value></value>", Err(NotANumber), Err(NotANumber)),
            ("I say 0.5", Err(Missing), Err(Missing)),
            ("0.5 <value></value> 0.5", Err(NotANumber), Err(NotANumber)),
            ("<value>0.5", Err(Unclosed), Err(Unclosed)),
            ("<value>0.5</value", Err(Unclosed), Err(Unclosed)),
            ("</value>0.5<value>", Err(Unclosed), Err(Unclosed)),
            ("", Err(Missing), Err(Missing)),
            (&format!("<value>{digits}</value>"), Err(OutOfRange), Err(OutOfRange)),
            (&format!("<value>{small}</value>"), Err(NotANumber), Ok(0.0)),
        ];
        for (text, want, of_official) in table {
            assert_eq!(read(text, false, &STRICT), *want, "strict: {text}");
            assert_eq!(read(text, false, &OFFICIAL), *of_official, "official: {text}");
        }
    }

    #[test]
    fn a_range_of_its_own() {
        let six = Rules { r_max: 6.0, ..STRICT };
        assert_eq!(read("<value>5.5</value>", false, &six), Ok(5.5));
        assert_eq!(read("<value>6.1</value>", false, &six), Err(Unread::OutOfRange));
        assert_eq!(read("<value>7</value>", false, &Rules { r_max: 6.0, ..OFFICIAL }), Ok(6.0));
    }

    #[test]
    fn percent_and_fractions_on_request() {
        let rules = Rules { percent: true, fraction: true, r_max: 2.0, ..STRICT };
        assert_eq!(read("<value>50 %</value>", false, &rules), Ok(1.0));
        assert_eq!(read("<value> 7 / 10 </value>", false, &rules), Ok(1.4));
        assert_eq!(read("<value>150%</value>", false, &rules), Err(Unread::OutOfRange));
        for no in ["1/0", "1/2/3", "%", "/", "50%%", "0/0"] {
            assert_eq!(read(&format!("<value>{no}</value>"), false, &rules), Err(Unread::NotANumber), "{no}");
        }
        // They are no part of the official reading.
        assert_eq!(read("<value>50%</value>", false, &Rules { mode: Mode::Official, ..rules }), Err(Unread::NotANumber));
    }

    #[test]
    fn what_was_cut_is_read_officially_alone() {
        let text = "<value>0.5</value> and then";
        assert_eq!(read(text, true, &STRICT), Err(Unread::Truncated));
        assert_eq!(read(text, true, &OFFICIAL), Ok(0.5));
    }

    #[test]
    fn a_flood_fails_fast() {
        let floods = [
            format!("<value>{}</value>", "7".repeat(1 << 20)),
            format!("<value>{}", "7".repeat(1 << 20)),
            "<value>".repeat(1 << 17),
            format!("{}</value>", "<value> 1".repeat(1 << 17)),
        ];
        let start = std::time::Instant::now();
        for flood in &floods {
            for rules in [STRICT, OFFICIAL] {
                let got = read(flood, false, &rules);
                assert!(got.is_err() || flood.ends_with("<value> 1</value>"), "{got:?}");
            }
        }
        assert!(start.elapsed().as_secs_f64() < 5.0, "{:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn whatever_is_said_is_in_range_or_refused(
            text in "(<value>|</value>|<VALUE>|[0-9+./%*e-]|nan|\\PC| ){0,24}", cut: bool, percent: bool, fraction: bool, r_max in 0.1..9.0f64,
        ) {
            for mode in [Mode::Strict, Mode::Official] {
                if let Ok(value) = read(&text, cut, &Rules { mode, r_max, percent, fraction }) {
                    prop_assert!((0.0..=r_max).contains(&value) && value.is_sign_positive(), "{} {}", text, value);
                }
            }
        }

        #[test]
        fn a_number_of_the_range_is_read_as_it_stands(x in 0.0..=1.0f64, before in "[a-z ]{0,9}", after in "[a-z ]{0,9}") {
            let text = format!("{before}<value>{x}</value>{after}");
            prop_assert_eq!(read(&text, false, &STRICT), Ok(x));
        }
    }
}
