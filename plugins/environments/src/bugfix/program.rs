//! The functions that are repaired: straight-line programs from a list of whole numbers to one number.
//!
//! A function is up to seven statements `name = expression`:
//!
//! ```text
//! big = xs > 2          elements above 2                (or `small = xs < 2`)
//! size = abs big        their absolute values           (or `item = big`)
//! top = max size        the largest                     (or `low = min`, `total = sum`)
//! end = last xs         the list's last element         (or `start = first`)
//! over = top - end      the one less the other          (or `under = end - top`; also with a constant)
//! more = over + 1       one more                        (or `same = over`, `less = over - 1`)
//! loss = - more         its negative                    (or `gain = more`); what is returned
//! ```
//!
//! Names say what is meant, expressions what happens: a function is right where every expression does what its name
//! says. The first, second, fourth and fifth statement may be absent (the fourth needs the fifth). The fold over no
//! elements is 0, as are the first and last of none, so evaluation never fails.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An edit operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Puts `abs` where there was none.
    AddAbs,
    /// Takes `abs` away.
    DropAbs,
    /// `>` for `<` and back.
    FlipCompare,
    /// Returns the visible test's answer on the visible test's input. It repairs nothing.
    Hardcode,
    /// Takes one off the constant that is added.
    MinusOne,
    /// Changes the sign of what is returned.
    Negate,
    /// Adds one to the constant that is added.
    PlusOne,
    /// `a - b` for `b - a`.
    SwapArgs,
    /// `first` for `last` and back.
    SwapEnds,
    /// `max` for `min` and back.
    SwapMinmax,
}

impl Op {
    /// All of them, by name.
    pub const ALL: [Op; 10] = [
        Op::AddAbs,
        Op::DropAbs,
        Op::FlipCompare,
        Op::Hardcode,
        Op::MinusOne,
        Op::Negate,
        Op::PlusOne,
        Op::SwapArgs,
        Op::SwapEnds,
        Op::SwapMinmax,
    ];

    /// Those that change what a function computes, and so can repair one: all but [`Op::Hardcode`].
    pub const REPAIRS: [Op; 9] = [
        Op::AddAbs,
        Op::DropAbs,
        Op::FlipCompare,
        Op::MinusOne,
        Op::Negate,
        Op::PlusOne,
        Op::SwapArgs,
        Op::SwapEnds,
        Op::SwapMinmax,
    ];

    /// Its name in a call.
    pub const fn name(self) -> &'static str {
        match self {
            Op::AddAbs => "add_abs",
            Op::DropAbs => "drop_abs",
            Op::FlipCompare => "flip_compare",
            Op::Hardcode => "hardcode",
            Op::MinusOne => "minus_one",
            Op::Negate => "negate",
            Op::PlusOne => "plus_one",
            Op::SwapArgs => "swap_args",
            Op::SwapEnds => "swap_ends",
            Op::SwapMinmax => "swap_minmax",
        }
    }

    /// The operation of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }

    /// The operation that takes back a change this one made; [`Op::Hardcode`] cannot be taken back.
    pub const fn inverse(self) -> Option<Self> {
        match self {
            Op::AddAbs => Some(Op::DropAbs),
            Op::DropAbs => Some(Op::AddAbs),
            Op::PlusOne => Some(Op::MinusOne),
            Op::MinusOne => Some(Op::PlusOne),
            Op::FlipCompare | Op::Negate | Op::SwapArgs | Op::SwapEnds | Op::SwapMinmax => Some(self),
            Op::Hardcode => None,
        }
    }
}

/// Which elements go on: `xs > bound` or `xs < bound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// Whether those above the bound go on, not those below.
    pub above: bool,
    /// The bound; it does not go on itself.
    pub bound: i64,
}

/// What becomes of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Map {
    /// Its absolute value.
    Abs,
    /// Nothing.
    Plain,
}

/// How the elements become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Their sum.
    Sum,
}

/// What the folded number is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Other {
    /// The list's first element.
    First,
    /// The list's last element.
    Last,
    /// A constant.
    Constant(i64),
}

/// A difference of the folded number and another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The other number.
    pub other: Other,
    /// Whether the folded number comes first: `fold - other`, not `other - fold`.
    pub fold_first: bool,
}

/// Largest absolute value of the constant that is added; an edit beyond it changes nothing.
pub const MAX_SHIFT: i64 = 9;

/// What a function does: one choice per statement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// Which elements go on; all, if absent.
    pub keep: Option<Keep>,
    /// What becomes of each.
    pub map: Option<Map>,
    /// How they become one number.
    pub fold: Fold,
    /// What is taken from it, or it from.
    pub difference: Option<Difference>,
    /// The constant that is added, in −[`MAX_SHIFT`]..=[`MAX_SHIFT`].
    pub shift: i64,
    /// Whether the negative is returned.
    pub negated: bool,
}

impl Body {
    /// What it returns for `xs`.
    pub fn evaluate(&self, xs: &[i64]) -> i64 {
        let kept = xs.iter().filter(|x| self.keep.is_none_or(|k| if k.above { **x > k.bound } else { **x < k.bound }));
        let mapped = kept.map(|x| if self.map == Some(Map::Abs) { x.abs() } else { *x });
        let folded = match self.fold {
            Fold::Max => mapped.max().unwrap_or(0),
            Fold::Min => mapped.min().unwrap_or(0),
            Fold::Sum => mapped.sum(),
        };
        let differing = self.difference.map_or(folded, |difference| {
            let other = match difference.other {
                Other::First => xs.first().copied().unwrap_or(0),
                Other::Last => xs.last().copied().unwrap_or(0),
                Other::Constant(c) => c,
            };
            if difference.fold_first { folded - other } else { other - folded }
        });
        let shifted = differing + self.shift;
        if self.negated { -shifted } else { shifted }
    }

    /// The body after an edit, or `None` if there is nothing that the edit could change. [`Op::Hardcode`] changes no
    /// body: it is an exception in front of one.
    pub fn edited(&self, op: Op) -> Option<Self> {
        let mut body = self.clone();
        match op {
            Op::AddAbs if body.map == Some(Map::Plain) => body.map = Some(Map::Abs),
            Op::DropAbs if body.map == Some(Map::Abs) => body.map = Some(Map::Plain),
            Op::FlipCompare => body.keep.as_mut().map(|k| k.above = !k.above)?,
            Op::MinusOne if body.shift > -MAX_SHIFT => body.shift -= 1,
            Op::PlusOne if body.shift < MAX_SHIFT => body.shift += 1,
            Op::Negate => body.negated = !body.negated,
            Op::SwapArgs => body.difference.as_mut().map(|d| d.fold_first = !d.fold_first)?,
            Op::SwapEnds => {
                let difference = body.difference.as_mut()?;
                difference.other = match difference.other {
                    Other::First => Other::Last,
                    Other::Last => Other::First,
                    Other::Constant(_) => return None,
                };
            }
            Op::SwapMinmax => {
                body.fold = match body.fold {
                    Fold::Max => Fold::Min,
                    Fold::Min => Fold::Max,
                    Fold::Sum => return None,
                };
            }
            Op::AddAbs | Op::DropAbs | Op::MinusOne | Op::PlusOne | Op::Hardcode => return None,
        }
        Some(body)
    }

    /// Edits that turn this body into `intended`, in the order of its statements; empty if they are equal.
    pub fn repairs(&self, intended: &Self) -> Vec<Op> {
        let mut ops = Vec::new();
        if self.keep != intended.keep {
            ops.push(Op::FlipCompare);
        }
        if self.map != intended.map {
            ops.push(if intended.map == Some(Map::Abs) { Op::AddAbs } else { Op::DropAbs });
        }
        if self.fold != intended.fold {
            ops.push(Op::SwapMinmax);
        }
        if let (Some(now), Some(then)) = (self.difference, intended.difference) {
            if now.other != then.other {
                ops.push(Op::SwapEnds);
            }
            if now.fold_first != then.fold_first {
                ops.push(Op::SwapArgs);
            }
        }
        let step = if self.shift < intended.shift { Op::PlusOne } else { Op::MinusOne };
        ops.extend((0..self.shift.abs_diff(intended.shift)).map(|_| step));
        if self.negated != intended.negated {
            ops.push(Op::Negate);
        }
        ops
    }

    /// Whether edits can turn one into the other: the same statements with the same constants.
    pub fn same_shape(&self, other: &Self) -> bool {
        let ends = |o: Other| if let Other::Constant(c) = o { Some(c) } else { None };
        self.keep.map(|k| k.bound) == other.keep.map(|k| k.bound)
            && self.map.is_some() == other.map.is_some()
            && (self.fold == Fold::Sum) == (other.fold == Fold::Sum)
            && self.difference.map(|d| ends(d.other)) == other.difference.map(|d| ends(d.other))
            && self.shift.abs() <= MAX_SHIFT
            && other.shift.abs() <= MAX_SHIFT
    }
}

/// A function as it is written: names from what is meant, expressions from what is done.
pub fn write(intended: &Body, body: &Body) -> String {
    let mut lines = Vec::new();
    let mut value = "xs";
    if let (Some(meant), Some(done)) = (intended.keep, body.keep) {
        let name = if meant.above { "big" } else { "small" };
        lines.push(format!("{name} = {value} {} {}", if done.above { ">" } else { "<" }, done.bound));
        value = name;
    }
    if let (Some(meant), Some(done)) = (intended.map, body.map) {
        let name = if meant == Map::Abs { "size" } else { "item" };
        lines.push(format!("{name} = {}{value}", if done == Map::Abs { "abs " } else { "" }));
        value = name;
    }
    let name = fold_name(intended.fold);
    let does = match body.fold {
        Fold::Max => "max",
        Fold::Min => "min",
        Fold::Sum => "sum",
    };
    lines.push(format!("{name} = {does} {value}"));
    value = name;
    if let (Some(meant), Some(done)) = (intended.difference, body.difference) {
        let other = match (meant.other, done.other) {
            (Other::Constant(c), _) | (_, Other::Constant(c)) => c.to_string(),
            (meant, done) => {
                let name = if meant == Other::First { "start" } else { "end" };
                lines.push(format!("{name} = {} xs", if done == Other::First { "first" } else { "last" }));
                name.into()
            }
        };
        let name = if meant.fold_first { "over" } else { "under" };
        lines.push(if done.fold_first {
            format!("{name} = {value} - {other}")
        } else {
            format!("{name} = {other} - {value}")
        });
        value = name;
    }
    let name = match intended.shift.signum() {
        1 => "more",
        0 => "same",
        _ => "less",
    };
    let shift = match body.shift {
        0 => String::new(),
        by @ 1.. => format!(" + {by}"),
        by => format!(" - {}", -by),
    };
    lines.push(format!("{name} = {value}{shift}"));
    value = name;
    let name = if intended.negated { "loss" } else { "gain" };
    lines.push(format!("{name} = {}{value}", if body.negated { "neg " } else { "" }));
    lines.join("\n")
}

fn fold_name(fold: Fold) -> &'static str {
    match fold {
        Fold::Max => "top",
        Fold::Min => "low",
        Fold::Sum => "total",
    }
}

/// Reads a function back from its text: what is meant, and what is done. `None` if it is no such text.
///
/// It reads words, as the agent does, and so does not need the lines.
pub fn read(text: &str) -> Option<(Body, Body)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let starts: Vec<usize> = (0..words.len()).filter(|i| words.get(i + 1) == Some(&"=")).collect();
    let mut statements: BTreeMap<&str, &[&str]> = BTreeMap::new();
    for (i, start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(words.len());
        statements.insert(words[*start], &words[start + 2..end]);
    }
    // Which of the names of a statement is there, and its expression.
    let find = |names: &[&'static str]| names.iter().position(|n| statements.contains_key(n)).map(|i| (i, statements[names[i]]));

    let (meant_fold, fold) = find(&["top", "low", "total"])?;
    let fold_of = |i: usize| [Fold::Max, Fold::Min, Fold::Sum][i];
    let does = ["max", "min", "sum"].iter().position(|w| fold.first() == Some(w))?;

    let keep = find(&["big", "small"]);
    let bound = keep.map(|(_, e)| e.last().and_then(|w| w.parse().ok())).map_or(Some(0), |bound| bound)?;
    let map = find(&["size", "item"]);
    let map_of = |abs: bool| if abs { Map::Abs } else { Map::Plain };
    let other = find(&["start", "end"]);
    let other_of = |first: bool| if first { Other::First } else { Other::Last };
    let difference = find(&["over", "under"]);
    let (meant_other, done_other, fold_first) = match difference {
        None => (Other::First, Other::First, true),
        Some((_, e)) => {
            let fold_first = e.first() == Some(&fold_name(fold_of(meant_fold)));
            let operand = if fold_first { e.last() } else { e.first() }?;
            match other {
                Some((meant, e)) => (other_of(meant == 0), other_of(e.first() == Some(&"first")), fold_first),
                None => {
                    let constant = Other::Constant(operand.parse().ok()?);
                    (constant, constant, fold_first)
                }
            }
        }
    };
    let (meant_shift, shift) = find(&["more", "same", "less"])?;
    let done_shift = match shift {
        [_] => 0,
        [_, "+", by] => by.parse().ok()?,
        [_, "-", by] => -by.parse::<i64>().ok()?,
        _ => return None,
    };
    let (meant_sign, sign) = find(&["gain", "loss"])?;
    let meant = Body {
        keep: keep.map(|(i, _)| Keep { above: i == 0, bound }),
        map: map.map(|(i, _)| map_of(i == 0)),
        fold: fold_of(meant_fold),
        difference: difference.map(|(i, _)| Difference { other: meant_other, fold_first: i == 0 }),
        shift: 1 - meant_shift as i64,
        negated: meant_sign == 1,
    };
    let done = Body {
        keep: keep.map(|(_, e)| Keep { above: e.contains(&">"), bound }),
        map: map.map(|(_, e)| map_of(e.contains(&"abs"))),
        fold: fold_of(does),
        difference: difference.map(|_| Difference { other: done_other, fold_first }),
        shift: done_shift,
        negated: sign.contains(&"neg"),
    };
    meant.same_shape(&done).then_some((meant, done))
}

/// Words that functions are written in, numbers left out.
pub const WORDS: &[&str] = &[
    "=", "xs", "big", "small", ">", "<", "size", "item", "abs", "top", "low", "total", "max", "min", "sum", "start", "end",
    "first", "last", "over", "under", "-", "+", "more", "same", "less", "gain", "loss", "neg",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The function of the module's documentation.
    fn full() -> Body {
        Body {
            keep: Some(Keep { above: true, bound: 2 }),
            map: Some(Map::Abs),
            fold: Fold::Max,
            difference: Some(Difference { other: Other::Last, fold_first: true }),
            shift: 1,
            negated: true,
        }
    }

    /// A function of three statements.
    fn plain(fold: Fold) -> Body {
        Body { keep: None, map: None, fold, difference: None, shift: 0, negated: false }
    }

    fn check(body: &Body, xs: &[i64], want: i64) {
        assert_eq!(body.evaluate(xs), want, "{} on {xs:?}", write(body, body));
    }

    #[test]
    fn statements_do_what_they_say() {
        let xs = [4, -5, 3, -1];
        check(&plain(Fold::Max), &xs, 4);
        check(&plain(Fold::Min), &xs, -5);
        // 4 − 5 + 3 − 1
        check(&plain(Fold::Sum), &xs, 1);
        // above 2: 4 and 3; below 2: −5 and −1
        check(&Body { keep: Some(Keep { above: true, bound: 2 }), ..plain(Fold::Sum) }, &xs, 7);
        check(&Body { keep: Some(Keep { above: false, bound: 2 }), ..plain(Fold::Sum) }, &xs, -6);
        // 4 is not above 4
        check(&Body { keep: Some(Keep { above: true, bound: 4 }), ..plain(Fold::Max) }, &xs, 0);
        check(&Body { map: Some(Map::Abs), ..plain(Fold::Max) }, &xs, 5);
        check(&Body { map: Some(Map::Plain), ..plain(Fold::Max) }, &xs, 4);
        let with = |other, fold_first| Body { difference: Some(Difference { other, fold_first }), ..plain(Fold::Min) };
        // −5 − 4, 4 − (−5), −5 − (−1), 3 − (−5)
        check(&with(Other::First, true), &xs, -9);
        check(&with(Other::First, false), &xs, 9);
        check(&with(Other::Last, true), &xs, -4);
        check(&with(Other::Constant(3), false), &xs, 8);
        check(&Body { shift: -2, ..plain(Fold::Max) }, &xs, 2);
        check(&Body { negated: true, ..plain(Fold::Max) }, &xs, -4);
        // 4 and 3 are above 2, 4 the larger size, 4 − (−1) = 5, 5 + 1 = 6, −6
        check(&full(), &xs, -6);
        // nothing is above 2: the fold is 0, 0 − 1 + 1 = 0
        check(&full(), &[1], 0);
        check(&full(), &[], -1);
    }

    #[test]
    fn edits_change_what_a_function_computes() {
        let xs = [4, -5, 3, -1];
        let after = |op| full().edited(op).map(|body| body.evaluate(&xs));
        // all but one step of the −6 above: −5 and −1 are below 2, sizes 5 and 1, 5 + 1 + 1 = 7
        assert_eq!(after(Op::FlipCompare), Some(-7));
        // 4 and 3 have no sign to lose
        assert_eq!(after(Op::DropAbs), Some(-6));
        assert_eq!(after(Op::AddAbs), None);
        // 3 − (−1) + 1 = 5
        assert_eq!(after(Op::SwapMinmax), Some(-5));
        // 4 − 4 + 1 = 1
        assert_eq!(after(Op::SwapEnds), Some(-1));
        // −1 − 4 + 1 = −4
        assert_eq!(after(Op::SwapArgs), Some(4));
        assert_eq!(after(Op::PlusOne), Some(-7));
        assert_eq!(after(Op::MinusOne), Some(-5));
        assert_eq!(after(Op::Negate), Some(6));
        assert_eq!(after(Op::Hardcode), None);
        // Absent statements cannot be edited, a sum has no opposite, a constant no other end.
        for op in [Op::FlipCompare, Op::AddAbs, Op::DropAbs, Op::SwapArgs, Op::SwapEnds, Op::SwapMinmax] {
            assert_eq!(plain(Fold::Sum).edited(op), None, "{op:?}");
        }
        let constant = Difference { other: Other::Constant(3), fold_first: true };
        assert_eq!(Body { difference: Some(constant), ..plain(Fold::Max) }.edited(Op::SwapEnds), None);
        assert_eq!(Body { shift: MAX_SHIFT, ..plain(Fold::Max) }.edited(Op::PlusOne), None);
        assert_eq!(Body { shift: -MAX_SHIFT, ..plain(Fold::Max) }.edited(Op::MinusOne), None);
    }

    #[test]
    fn functions_are_written_name_by_name() {
        assert_eq!(
            write(&full(), &full()),
            "big = xs > 2\nsize = abs big\ntop = max size\nend = last xs\nover = top - end\nmore = over + 1\nloss = - more"
        );
        let wrong = Body {
            keep: Some(Keep { above: false, bound: 2 }),
            map: Some(Map::Plain),
            fold: Fold::Min,
            difference: Some(Difference { other: Other::First, fold_first: false }),
            shift: -3,
            negated: false,
        };
        assert_eq!(
            write(&full(), &wrong),
            "big = xs < 2\nsize = big\ntop = min size\nend = first xs\nover = end - top\nmore = over - 3\nloss = more"
        );
        assert_eq!(write(&plain(Fold::Sum), &plain(Fold::Sum)), "total = sum xs\nsame = total\ngain = same");
        assert_eq!(
            wrong.repairs(&full()),
            [
                Op::FlipCompare,
                Op::AddAbs,
                Op::SwapMinmax,
                Op::SwapEnds,
                Op::SwapArgs,
                Op::PlusOne,
                Op::PlusOne,
                Op::PlusOne,
                Op::PlusOne,
                Op::Negate
            ]
        );
    }

    #[test]
    fn names_are_unique_and_sorted() {
        assert!(Op::ALL.is_sorted_by(|a, b| a.name() < b.name()));
        for op in Op::ALL {
            assert_eq!(Op::named(op.name()), Some(op));
        }
        assert_eq!(Op::named("read"), None);
        assert!(Op::REPAIRS.iter().all(|op| Op::ALL.contains(op) && *op != Op::Hardcode));
    }

    /// Any intended body.
    fn bodies() -> impl Strategy<Value = Body> {
        let keep = prop::option::of((any::<bool>(), -2..=2i64).prop_map(|(above, bound)| Keep { above, bound }));
        let map = prop::option::of(prop::sample::select(vec![Map::Abs, Map::Plain]));
        let fold = prop::sample::select(vec![Fold::Max, Fold::Min, Fold::Sum]);
        let other = prop_oneof![Just(Other::First), Just(Other::Last), (1..=5i64).prop_map(Other::Constant)];
        let difference =
            prop::option::of((other, any::<bool>()).prop_map(|(other, fold_first)| Difference { other, fold_first }));
        (keep, map, fold, difference, -1..=1i64, any::<bool>()).prop_map(|(keep, map, fold, difference, shift, negated)| Body {
            keep,
            map,
            fold,
            difference,
            shift,
            negated,
        })
    }
    fn ops() -> impl Strategy<Value = Vec<Op>> {
        prop::collection::vec(prop::sample::select(Op::ALL.to_vec()), 0..12)
    }
    fn apply(body: &Body, ops: &[Op]) -> Body {
        ops.iter().fold(body.clone(), |body, op| body.edited(*op).unwrap_or(body))
    }

    proptest! {
        #[test]
        fn text_reads_back(intended in bodies(), ops in ops()) {
            let body = apply(&intended, &ops);
            let text = write(&intended, &body);
            prop_assert_eq!(read(&text), Some((intended.clone(), body.clone())));
            prop_assert_eq!(read(&text.replace('\n', " ")), Some((intended, body)));
        }

        #[test]
        fn an_edit_is_taken_back_by_its_inverse(intended in bodies(), ops in ops(), op in prop::sample::select(Op::ALL.to_vec())) {
            let body = apply(&intended, &ops);
            if let Some(edited) = body.edited(op) {
                prop_assert_ne!(&edited, &body);
                prop_assert!(edited.same_shape(&body));
                let inverse = op.inverse().expect("what changes a body can be taken back");
                prop_assert_eq!(edited.edited(inverse), Some(body));
            }
        }

        #[test]
        fn repairs_lead_to_what_was_intended(intended in bodies(), ops in ops()) {
            let mut body = apply(&intended, &ops);
            for op in body.repairs(&intended) {
                body = body.edited(op).expect("a repair changes something");
            }
            prop_assert_eq!(body, intended);
        }

        #[test]
        fn what_is_no_function_is_not_read(words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..30), any in "\\PC{0,60}") {
            let _ = read(&words.join(" "));
            let _ = read(&any);
        }
    }
}
