//! What methods with anchors compare: turns as steps, each with its own return and score.

use ascribe_core::batch::Trajectory;
use ascribe_core::log::Validity;
use ascribe_core::{Credit, End, Group};

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
        let penalty = |t: usize| match validity[t] {
            Validity::Malformed | Validity::Cut => penalty,
            Validity::Valid | Validity::Refused => 0.0,
        };
        // Rounded to the precision of records: numbers that are averages of equal ones stay equal to them.
        let rounded = |x: f64| f64::from(x as f32);
        let outcome = |(path, x): (Trajectory<'_>, f64)| (path.leaf().end != End::Untried).then(|| rounded(x));
        let outcomes: Vec<Option<f64>> = group.trajectories().zip(group.outcomes()).map(outcome).collect();
        let scores = group.mean_over_some_leaves(&outcomes);
        let reward = group.rewards();
        let returns = group.fold_up(|_| 0.0, |t, future| f64::from(reward[t]) + gamma * future);
        let first = |path: Trajectory<'_>| path.turns_up().last().expect("a path that trains has a turn");

        let n = group.n_turns();
        let mut steps = Self {
            turns: Vec::with_capacity(n),
            parents: Vec::with_capacity(n),
            anchors: Vec::with_capacity(n),
            returns: Vec::with_capacity(n),
            scores: Vec::with_capacity(n),
            paths: group.trajectories().zip(&outcomes).filter_map(|(path, x)| x.map(|x| x - penalty(first(path)))).collect(),
        };
        let mut step_of = vec![0; n];
        for (t, (score, anchor)) in scores.iter().zip(group.observations()).enumerate() {
            let Some(score) = score else { continue };
            step_of[t] = u32::try_from(steps.turns.len()).expect("an update holds fewer than 2^32 rows");
            steps.turns.push(t);
            // A parent has at least the outcomes of its children, so it is a step.
            steps.parents.push(group.parent(t).map(|p| step_of[p]));
            steps.anchors.push(*anchor);
            steps.returns.push(rounded(returns[t]) - penalty(t));
            steps.scores.push(f64::from(*score) - penalty(t));
        }
        steps
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
