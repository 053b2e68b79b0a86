//! What methods with anchors compare: turns as steps, each with its own return and score.

use ascribe_core::batch::Trajectory;
use ascribe_core::log::Validity;
use ascribe_core::range::{NonNegative, Unit};
use ascribe_core::{Credit, Decay, End, Group, Law, Step};

/// What a method on steps claims: a penalty in units of reward is not scaled with the rewards.
pub(crate) fn laws(std: bool, invalid_penalty: NonNegative) -> Vec<Law> {
    let scale = if std { Law::ScaleFree } else { Law::Scale };
    let scales = (*invalid_penalty == 0.0).then_some(scale);
    scales.into_iter().chain([Law::Ascent]).collect()
}

/// How the outcome fades in discounted returns over turns.
pub(crate) fn decay(gamma: Unit) -> Option<Decay> {
    Some(Decay { per_step: *gamma, step: Step::Turn, symbol: "γ" })
}

/// The turns of one group that have an outcome, as columns. Turns whose every path is untried have none and are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// Which turn of the group each is, `[steps]`.
    pub turns: Vec<usize>,
    /// The step it continues; `None` at a start. `[steps]`
    pub parents: Vec<Option<u32>>,
    /// What was seen before acting; equal numbers are one anchor. `[steps]`
    pub anchors: Vec<u32>,
    /// Discounted return from the step on, less its own penalty, in units of reward. `[steps]`
    pub returns: Vec<f64>,
    /// Outcome of its path, less its own penalty; of a shared step, the mean over its paths. `[steps]`
    pub scores: Vec<f64>,
    /// Outcome of each path that was tried, less the penalty of its first step. `[paths]`
    pub paths: Vec<f64>,
}

impl Steps {
    /// The steps of a group; anchors are its observation keys.
    ///
    /// * `penalty`: taken from return and score of a step whose action was malformed or cut. Nothing is discounted through
    ///   it: the penalty stays with its step.
    pub fn of(group: Group<'_>, gamma: f64, penalty: f64) -> Self {
        let validity = &group.batch().turns.validity[group.rows()];
        let penalty_of = |t: usize| match validity[t] {
            Validity::Malformed | Validity::Cut => penalty,
            Validity::Valid | Validity::Refused => 0.0,
        };
        // All are rounded to the precision of records: averages of equal numbers stay equal to them, and sums in `f64` are
        // exact, so that a number that is its cluster's mean is found to be.
        let rounded = |x: f64| f64::from(x as f32);
        let outcome = |(path, x): (Trajectory<'_>, f64)| (path.leaf().end != End::Untried).then(|| rounded(x));
        let outcomes: Vec<Option<f64>> = group.trajectories().zip(group.outcomes()).map(outcome).collect();
        let scores = group.mean_over_some_leaves(&outcomes);
        let reward = group.rewards();
        let returns = group.fold_up(|_| 0.0, |t, future| f64::from(reward[t]) + gamma * future);
        let first = |path: Trajectory<'_>| path.turns_up().last().expect("a path that trains has a turn");
        // Without a penalty no path is walked once more for its first step.
        let penalty_of_path = |path| if penalty == 0.0 { 0.0 } else { penalty_of(first(path)) };

        let mut turns = Vec::with_capacity(group.n_turns());
        turns.extend((0..group.n_turns()).filter(|t| scores[*t].is_some()));
        let mut step_of = vec![0; group.n_turns()];
        (0u32..).zip(&turns).for_each(|(step, t)| step_of[*t] = step);
        let observations = group.observations();
        let score = |t: usize| f64::from(scores[t].expect("a step has a score"));
        Self {
            // A parent has at least the outcomes of its children, so it is a step.
            parents: turns.iter().map(|t| group.parent(*t).map(|p| step_of[p])).collect(),
            anchors: turns.iter().map(|t| observations[*t]).collect(),
            returns: turns.iter().map(|t| rounded(returns[*t] - penalty_of(*t))).collect(),
            scores: turns.iter().map(|t| rounded(score(*t) - penalty_of(*t))).collect(),
            paths: group
                .trajectories()
                .zip(&outcomes)
                .filter_map(|(path, x)| x.map(|x| rounded(x - penalty_of_path(path))))
                .collect(),
            turns,
        }
    }

    /// Credit of a group of `n_turns` from advantages of its steps, `[steps]`; other turns are not trained.
    pub(crate) fn credit(&self, n_turns: usize, advantages: &[f64]) -> Credit {
        let mut turns = vec![None; n_turns];
        for (t, a) in self.turns.iter().zip(advantages) {
            turns[*t] = Some(*a as f32);
        }
        Credit { turns, ..Credit::default() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, turn};
    use ascribe_core::Batch;
    use ascribe_core::log::TurnLog;
    use proptest::prelude::*;

    /// A turn that began from an observation.
    pub(crate) fn at(parent: Option<usize>, observation: u8, reward: f32) -> TurnLog {
        TurnLog { observation: vec![observation], ..turn(parent, reward) }
    }

    /// One group of independent paths, given by observation and reward of each turn; all begin from one observation.
    pub(crate) fn walks(paths: &[Vec<(u8, f32)>]) -> Batch {
        let (mut turns, mut leaves): (Vec<TurnLog>, Vec<(usize, End)>) = Default::default();
        for path in paths {
            for (t, (observation, reward)) in path.iter().enumerate() {
                turns.push(at((t > 0).then(|| turns.len() - 1), if t == 0 { 0 } else { *observation }, *reward));
            }
            leaves.push((turns.len() - 1, WON));
        }
        batch(turns, &leaves)
    }

    /// Paths through few observations, with small rewards.
    pub(crate) fn any_walks() -> impl Strategy<Value = Vec<Vec<(u8, f32)>>> {
        let turn = (0u8..3, (-2i8..3).prop_map(f32::from));
        prop::collection::vec(prop::collection::vec(turn, 1..7), 1..7)
    }

    #[test]
    fn a_penalty_stays_with_its_step() {
        // γ = ½: returns ½·2 = 1 and 2; a malformed first turn costs ¼
        let malformed = TurnLog { validity: Validity::Malformed, ..at(None, 0, 0.0) };
        let refused = TurnLog { validity: Validity::Refused, ..at(Some(0), 1, 2.0) };
        let cut = TurnLog { validity: Validity::Cut, ..at(None, 0, 1.0) };
        let steps = Steps::of(batch(vec![malformed, refused, cut], &[(1, WON), (2, LOST)]).group(0), 0.5, 0.25);
        assert_eq!(steps.returns, [0.75, 2.0, 0.75]);
        assert_eq!(steps.scores, [1.75, 2.0, 0.75]);
        assert_eq!(steps.paths, [1.75, 0.75]);
        assert_eq!(steps.parents, [None, Some(0), None]);
    }

    #[test]
    fn what_was_not_tried_is_no_step() {
        let turns = vec![at(None, 0, 1.0), at(None, 0, 9.0), at(Some(1), 1, 9.0), at(Some(0), 1, 3.0), at(Some(0), 1, 9.0)];
        let steps = Steps::of(batch(turns, &[(2, End::Untried), (3, WON), (4, End::Untried)]).group(0), 1.0, 0.0);
        assert_eq!((steps.turns, steps.parents), (vec![0, 3], vec![None, Some(0)]));
        assert_eq!((steps.returns, steps.scores, steps.paths), (vec![4.0, 3.0], vec![4.0, 4.0], vec![4.0]));
    }

    #[test]
    fn averages_of_equal_numbers_are_equal_to_them() {
        for n in 1..30 {
            let mut turns = vec![at(None, 0, 0.0), at(None, 0, 0.1)];
            turns.extend((0..n).map(|_| at(Some(0), 1, 0.1)));
            let leaves: Vec<(usize, End)> = (1..n + 2).map(|t| (t, WON)).collect();
            let steps = Steps::of(batch(turns, &leaves).group(0), 1.0, 0.0);
            assert!(steps.returns.iter().chain(&steps.scores).all(|x| *x == f64::from(0.1f32)), "{n}: {steps:?}");
        }
    }
}
