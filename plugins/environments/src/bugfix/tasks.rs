//! The seeded generator of tasks: a function, a bug in it, a visible test and hidden ones.
//!
//! What a function is meant to do is drawn first; the bug is the inverse of the edit that repairs it. The tests are
//! drawn until running the functions on them shows that
//!
//! * the broken function fails the visible test,
//! * it fails a hidden test, and so it does after any one edit but the right one,
//! * the visible test's answer fails a hidden test.
//!
//! The right edit is thus the only single edit that solves a task. Where that cannot be had (what is `big > 2` has no sign
//! that `size abs` could take away), another function is drawn.

use std::collections::BTreeSet;

use ascribe_core::{Draw, Rng, Seeds};
use serde::{Deserialize, Serialize};

use super::program::{Body, Difference, Fold, Keep, Map, Op, Pick, write};

/// Elements are in −`MAX_ELEMENT`..=`MAX_ELEMENT`.
pub const MAX_ELEMENT: i64 = 5;
/// Elements of a test's list.
pub const LIST_LEN: usize = 3;
/// Hidden tests of a task.
pub const HIDDEN_TESTS: usize = 8;

/// Bounds of the step that filters are in −`MAX_BOUND`..=`MAX_BOUND`.
const MAX_BOUND: i64 = 3;
/// How much more frequent `>`, `max`, `last`, `sub` and a sign that is kept are meant than their opposites. Without such a
/// habit the right edit would be a parity of label and step, which a small model is slow to find.
const COMMON: usize = 3;
/// Lists of tests drawn for a function before another one is drawn.
const TEST_DRAWS: usize = 8;
/// Functions drawn for a task before the generator gives up.
const FUNCTION_DRAWS: usize = 2_000;

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What the function is meant to do.
    pub intended: Body,
    /// What it does.
    pub broken: Body,
    /// The one edit that repairs it.
    pub fix: Op,
    /// Input of the visible test.
    pub visible: Vec<i64>,
    /// Inputs of the hidden tests.
    pub hidden: Vec<Vec<i64>>,
}

impl Task {
    /// Whether `body` passes all hidden tests.
    pub fn solved_by(&self, body: &Body) -> bool {
        self.hidden.iter().all(|xs| body.evaluate(xs) == self.intended.evaluate(xs))
    }

    /// What the visible test wants.
    pub fn wanted(&self) -> i64 {
        self.intended.evaluate(&self.visible)
    }

    /// The broken function's text.
    pub fn text(&self) -> String {
        write(&self.intended, &self.broken)
    }
}

/// The tasks of both splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// Tasks to train on; no two have the same function and bug.
    pub train: Vec<Task>,
    /// Tasks to measure on; no two have the same function, and none has one of `train`.
    pub held_out: Vec<Task>,
}

/// Draws the tasks. The kinds of bug take turns, so each has its share. Held-out tasks do not depend on the number of
/// training tasks.
///
/// # Errors
/// If there are not that many different tasks.
pub fn generate(seed: u64, n_train: usize, n_held_out: usize) -> Result<Tasks, String> {
    let mut measured = BTreeSet::new();
    let held_out = draw_split(seed, "held_out", n_held_out, |task| measured.insert(task.intended.clone()))?;
    let mut trained = BTreeSet::new();
    let train = draw_split(seed, "train", n_train, |task| {
        !measured.contains(&task.intended) && trained.insert((task.intended.clone(), task.fix))
    })?;
    Ok(Tasks { train, held_out })
}

/// Draws `n` tasks that are `fresh`.
fn draw_split(seed: u64, name: &str, n: usize, mut fresh: impl FnMut(&Task) -> bool) -> Result<Vec<Task>, String> {
    let draw_fresh = |i: usize| {
        let mut rng = Seeds(seed).rng(&format!("bugfix/{name}"), Draw { group: i as u32, ..Draw::default() });
        let fix = Op::REPAIRS[i % Op::REPAIRS.len()];
        (0..FUNCTION_DRAWS)
            .filter_map(|_| draw(fix, &mut rng))
            .find(|task| fresh(task))
            .ok_or_else(|| format!("there are only {i} different tasks of split `{name}`, {n} are asked for"))
    };
    (0..n).map(draw_fresh).collect()
}

/// A task that `fix` solves, or `None` if the function drawn does not make one.
fn draw(fix: Op, rng: &mut Rng) -> Option<Task> {
    let intended = draw_intended(fix, rng);
    let broken = intended.edited(fix.inverse()?)?;
    (0..TEST_DRAWS).find_map(|_| {
        let visible = draw_list(rng);
        let mut hidden: Vec<Vec<i64>> = Vec::new();
        while hidden.len() < HIDDEN_TESTS {
            let xs = draw_list(rng);
            if xs != visible && !hidden.contains(&xs) {
                hidden.push(xs);
            }
        }
        let task = Task { intended: intended.clone(), broken: broken.clone(), fix, visible, hidden };
        let wrong = |op: &Op| *op != fix && broken.edited(*op).is_some_and(|body| task.solved_by(&body));
        let decided = broken.evaluate(&task.visible) != task.wanted()
            && task.hidden.iter().any(|xs| intended.evaluate(xs) != task.wanted())
            && !task.solved_by(&broken)
            && !Op::REPAIRS.iter().any(wrong);
        decided.then_some(task)
    })
}

/// An intended function with the step that `fix` repairs; each other optional step is there in one of two.
fn draw_intended(fix: Op, rng: &mut Rng) -> Body {
    let coin = |rng: &mut Rng| rng.below(2) == 0;
    let common = |rng: &mut Rng| rng.below(COMMON + 1) > 0;
    let between = |low: i64, high: i64, rng: &mut Rng| low + rng.below((high - low + 1) as usize) as i64;
    let keep =
        (coin(rng) || fix == Op::FlipCompare).then(|| Keep { above: common(rng), bound: between(-MAX_BOUND, MAX_BOUND, rng) });
    let map = match fix {
        Op::AddAbs => Some(Map::Abs),
        Op::DropAbs => Some(Map::Plain),
        _ => coin(rng).then(|| if coin(rng) { Map::Abs } else { Map::Plain }),
    };
    let fold = match rng.below(4) {
        0 if fix != Op::SwapMinmax => Fold::Sum,
        _ if common(rng) => Fold::Max,
        _ => Fold::Min,
    };
    let difference = (coin(rng) || matches!(fix, Op::SwapArgs | Op::SwapEnds))
        .then(|| Difference { pick: if common(rng) { Pick::Last } else { Pick::First }, fold_first: common(rng) });
    Body { keep, map, fold, difference, shift: between(-1, 1, rng), negated: !common(rng) }
}

fn draw_list(rng: &mut Rng) -> Vec<i64> {
    (0..LIST_LEN).map(|_| rng.below(2 * MAX_ELEMENT as usize + 1) as i64 - MAX_ELEMENT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_edit_is_the_only_one_that_solves() {
        let tasks = generate(3, 200, 40).unwrap();
        for task in tasks.train.iter().chain(&tasks.held_out) {
            assert_ne!(task.broken.evaluate(&task.visible), task.wanted());
            assert_eq!(task.broken.repairs(&task.intended), [task.fix], "{task:?}");
            let solving: Vec<Op> =
                Op::REPAIRS.into_iter().filter(|op| task.broken.edited(*op).is_some_and(|body| task.solved_by(&body))).collect();
            assert_eq!(solving, [task.fix]);
            assert!(!task.solved_by(&task.broken) && task.solved_by(&task.intended));
            assert!(!task.hidden.contains(&task.visible));
        }
    }

    #[test]
    fn held_out_functions_do_not_occur_in_training() {
        let tasks = generate(0, 4_000, 200).unwrap();
        let trained: BTreeSet<&Body> = tasks.train.iter().map(|t| &t.intended).collect();
        let texts: BTreeSet<String> = tasks.train.iter().map(Task::text).collect();
        let words = |texts: &mut dyn Iterator<Item = String>| -> BTreeSet<String> {
            texts.flat_map(|t| t.split_whitespace().map(String::from).collect::<Vec<_>>()).collect()
        };
        for task in &tasks.held_out {
            assert!(!trained.contains(&task.intended) && !texts.contains(&task.text()), "{task:?}");
        }
        let known = words(&mut tasks.train.iter().map(Task::text));
        assert!(words(&mut tasks.held_out.iter().map(Task::text)).is_subset(&known), "held-out functions use known words");
        let different: BTreeSet<&Body> = tasks.held_out.iter().map(|t| &t.intended).collect();
        assert_eq!(different.len(), tasks.held_out.len());
        assert_eq!(texts.len(), tasks.train.len(), "no task is there twice");
        println!("{} training tasks have {} functions", tasks.train.len(), trained.len());
    }

    #[test]
    fn kinds_have_their_share() {
        let tasks = generate(0, 90, 40).unwrap();
        for (i, op) in Op::REPAIRS.into_iter().enumerate() {
            assert_eq!(tasks.train.iter().filter(|t| t.fix == op).count(), 10);
            // 40 = 9 · 4 + 4: the first four have one more
            assert_eq!(tasks.held_out.iter().filter(|t| t.fix == op).count(), if i < 4 { 5 } else { 4 });
        }
    }

    #[test]
    fn held_out_tasks_do_not_depend_on_the_number_of_others() {
        let few = generate(5, 1, 8).unwrap();
        let many = generate(5, 300, 40).unwrap();
        assert_eq!(few.held_out, many.held_out[..8]);
        assert_ne!(many.held_out, generate(6, 1, 40).unwrap().held_out);
        assert_eq!(generate(5, 20, 40).unwrap().train, many.train[..20]);
    }

    #[test]
    fn asking_for_more_tasks_than_there_are_is_an_error() {
        let e = generate(0, 1, 100_000).unwrap_err();
        assert!(e.contains("of split `held_out`, 100000 are asked for"), "{e}");
    }
}
