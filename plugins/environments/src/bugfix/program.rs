//! The functions that are repaired: short pipelines from a list of whole numbers `xs` to one number.
//!
//! A function is four to seven steps, each a line `label step`:
//!
//! ```text
//! big > 2       elements above 2            (or `small < 2`)
//! size abs      their absolute values       (or `item id`: as they are)
//! top max       the largest of them         (or `low min`, `total sum`)
//! end last      beside it, xs's last one    (or `start first`)
//! over sub      the one less the other      (or `under rsub`: the other less the one)
//! more +1       one more                    (or `same +0`, `less -1`)
//! loss neg      its negative, the result    (or `gain id`)
//! ```
//!
//! Labels say what is meant, steps what happens: a function is right where every step does what its label says. The
//! first two steps may be absent, and so may the fourth together with the fifth. The largest, smallest, first and last
//! of no elements is 0, so evaluation never fails.

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
    /// `sub` for `rsub` and back: `a - b` for `b - a`.
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

/// An element of the list as it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The first.
    First,
    /// The last.
    Last,
}

/// A difference of the folded number and an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The element.
    pub pick: Pick,
    /// Whether the folded number comes first: `fold - element`, not `element - fold`.
    pub fold_first: bool,
}

/// Largest absolute value of the constant that is added; an edit beyond it changes nothing.
pub const MAX_SHIFT: i64 = 9;

/// What a function does: one choice per step.
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
            let element = match difference.pick {
                Pick::First => xs.first(),
                Pick::Last => xs.last(),
            };
            let element = element.copied().unwrap_or(0);
            if difference.fold_first { folded - element } else { element - folded }
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
                difference.pick = match difference.pick {
                    Pick::First => Pick::Last,
                    Pick::Last => Pick::First,
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

    /// Edits that turn this body into `intended`, in the order of its steps; empty if they are equal.
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
            if now.pick != then.pick {
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

    /// Whether edits can turn one into the other: the same steps with the same bound.
    pub fn same_shape(&self, other: &Self) -> bool {
        self.keep.map(|k| k.bound) == other.keep.map(|k| k.bound)
            && self.map.is_some() == other.map.is_some()
            && (self.fold == Fold::Sum) == (other.fold == Fold::Sum)
            && self.difference.is_some() == other.difference.is_some()
            && self.shift.abs() <= MAX_SHIFT
            && other.shift.abs() <= MAX_SHIFT
    }
}

/// A function as it is written: labels from what is meant, steps from what is done. The two have the same shape.
pub fn write(intended: &Body, body: &Body) -> String {
    let mut lines = Vec::new();
    if let (Some(meant), Some(done)) = (intended.keep, body.keep) {
        let (label, step) = (if meant.above { "big" } else { "small" }, if done.above { ">" } else { "<" });
        lines.push(format!("{label} {step} {}", done.bound));
    }
    if let (Some(meant), Some(done)) = (intended.map, body.map) {
        let (label, step) = (if meant == Map::Abs { "size" } else { "item" }, if done == Map::Abs { "abs" } else { "id" });
        lines.push(format!("{label} {step}"));
    }
    lines.push(format!("{} {}", FOLD_LABELS[intended.fold as usize], FOLD_STEPS[body.fold as usize]));
    if let (Some(meant), Some(done)) = (intended.difference, body.difference) {
        let label = if meant.pick == Pick::First { "start" } else { "end" };
        lines.push(format!("{label} {}", if done.pick == Pick::First { "first" } else { "last" }));
        let label = if meant.fold_first { "over" } else { "under" };
        lines.push(format!("{label} {}", if done.fold_first { "sub" } else { "rsub" }));
    }
    let label = match intended.shift.signum() {
        1 => "more",
        0 => "same",
        _ => "less",
    };
    lines.push(format!("{label} {:+}", body.shift));
    let (label, step) = (if intended.negated { "loss" } else { "gain" }, if body.negated { "neg" } else { "id" });
    lines.push(format!("{label} {step}"));
    lines.join("\n")
}

const FOLDS: [Fold; 3] = [Fold::Max, Fold::Min, Fold::Sum];
const FOLD_LABELS: [&str; 3] = ["top", "low", "total"];
const FOLD_STEPS: [&str; 3] = ["max", "min", "sum"];

/// Reads a function back from its text: what is meant, and what is done. `None` if it is no such text.
///
/// It reads words, as the agent does, and so does not need the lines.
pub fn read(text: &str) -> Option<(Body, Body)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut words = &words[..];
    let keep = take_step(&mut words, &["big", "small"], &[">", "<"]);
    let bound = if keep.is_some() { take(&mut words)?.parse().ok()? } else { 0 };
    let map = take_step(&mut words, &["size", "item"], &["abs", "id"]);
    let fold = take_step(&mut words, &FOLD_LABELS, &FOLD_STEPS)?;
    let pick = take_step(&mut words, &["start", "end"], &["first", "last"]);
    let order = match pick {
        Some(_) => Some(take_step(&mut words, &["over", "under"], &["sub", "rsub"])?),
        None => None,
    };
    let shift = 1 - ["more", "same", "less"].iter().position(|l| words.first() == Some(l))? as i64;
    take(&mut words)?;
    let by: i64 = take(&mut words)?.parse().ok()?;
    let sign = take_step(&mut words, &["gain", "loss"], &["id", "neg"])?;
    let body = |of: fn((usize, usize)) -> usize, shift| Body {
        keep: keep.map(|step| Keep { above: of(step) == 0, bound }),
        map: map.map(|step| if of(step) == 0 { Map::Abs } else { Map::Plain }),
        fold: FOLDS[of(fold)],
        difference: pick.zip(order).map(|(pick, order)| Difference {
            pick: if of(pick) == 0 { Pick::First } else { Pick::Last },
            fold_first: of(order) == 0,
        }),
        shift,
        negated: of(sign) == 1,
    };
    let (meant, done) = (body(|(label, _)| label, shift), body(|(_, step)| step, by));
    (words.is_empty() && meant.same_shape(&done)).then_some((meant, done))
}

/// Takes the first word.
fn take<'a>(words: &mut &[&'a str]) -> Option<&'a str> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    Some(first)
}

/// Takes a step: which of `labels` and which of `steps` it has. Takes nothing where the next two words are no such step.
fn take_step(words: &mut &[&str], labels: &[&str], steps: &[&str]) -> Option<(usize, usize)> {
    let [label, step, rest @ ..] = *words else { return None };
    let found = (labels.iter().position(|l| l == label)?, steps.iter().position(|s| s == step)?);
    *words = rest;
    Some(found)
}

/// Words that functions are written in, those with digits left out.
pub const WORDS: &[&str] = &[
    "big", "small", ">", "<", "size", "item", "abs", "id", "top", "low", "total", "max", "min", "sum", "start", "end", "first",
    "last", "over", "under", "sub", "rsub", "more", "same", "less", "gain", "loss", "neg",
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
            difference: Some(Difference { pick: Pick::Last, fold_first: true }),
            shift: 1,
            negated: true,
        }
    }

    /// A function of three steps.
    fn plain(fold: Fold) -> Body {
        Body { keep: None, map: None, fold, difference: None, shift: 0, negated: false }
    }

    fn check(body: &Body, xs: &[i64], want: i64) {
        assert_eq!(body.evaluate(xs), want, "{} on {xs:?}", write(body, body));
    }

    #[test]
    fn steps_do_what_they_say() {
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
        let with = |pick, fold_first| Body { difference: Some(Difference { pick, fold_first }), ..plain(Fold::Min) };
        // −5 − 4, 4 − (−5), −5 − (−1)
        check(&with(Pick::First, true), &xs, -9);
        check(&with(Pick::First, false), &xs, 9);
        check(&with(Pick::Last, true), &xs, -4);
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
        // Absent steps cannot be edited, a sum has no opposite.
        for op in [Op::FlipCompare, Op::AddAbs, Op::DropAbs, Op::SwapArgs, Op::SwapEnds, Op::SwapMinmax] {
            assert_eq!(plain(Fold::Sum).edited(op), None, "{op:?}");
        }
        assert_eq!(Body { shift: MAX_SHIFT, ..plain(Fold::Max) }.edited(Op::PlusOne), None);
        assert_eq!(Body { shift: -MAX_SHIFT, ..plain(Fold::Max) }.edited(Op::MinusOne), None);
    }

    #[test]
    fn functions_are_written_step_by_step() {
        assert_eq!(write(&full(), &full()), "big > 2\nsize abs\ntop max\nend last\nover sub\nmore +1\nloss neg");
        let wrong = Body {
            keep: Some(Keep { above: false, bound: 2 }),
            map: Some(Map::Plain),
            fold: Fold::Min,
            difference: Some(Difference { pick: Pick::First, fold_first: false }),
            shift: -3,
            negated: false,
        };
        assert_eq!(write(&full(), &wrong), "big < 2\nsize id\ntop min\nend first\nover rsub\nmore -3\nloss id");
        assert_eq!(write(&plain(Fold::Sum), &plain(Fold::Sum)), "total sum\nsame +0\ngain id");
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
        let pick = prop::sample::select(vec![Pick::First, Pick::Last]);
        let difference = prop::option::of((pick, any::<bool>()).prop_map(|(pick, fold_first)| Difference { pick, fold_first }));
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
