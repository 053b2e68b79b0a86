//! Credit from outcomes alone: one number per trajectory, the same for each of its turns.

use ascribe_core::range::NonNegative;
use ascribe_core::{Credit, End, Group, Need};
use ascribe_math::Measure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::paths::{advantages_of_tried, outcomes_of_tried};

/// What a group of one gives, where paper and official code differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// 0: without siblings there is nothing to compare with.
    #[default]
    Paper,
    /// Its raw outcome (verl: the baseline of a group of one is 0).
    Official,
}

impl Mode {
    /// What an estimator of this mode needs: only official code has a word for a group of one.
    pub(crate) fn needs(self) -> Vec<Need> {
        match self {
            Mode::Paper => vec![Need::GroupOfAtLeast(2)],
            Mode::Official => Vec::new(),
        }
    }
}

/// What the statistics of a group are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// One entry per trajectory.
    #[default]
    Trajectories,
    /// One entry per turn, so that long trajectories weigh more (verl-agent).
    Turns,
}

/// Default of a key that is on.
pub(crate) fn yes() -> bool {
    true
}

/// What verl adds to a standard deviation.
pub(crate) fn verl_epsilon() -> NonNegative {
    NonNegative::try_from(1e-6).expect("1e-6 is at least 0")
}

/// Default of a weight that changes nothing.
pub(crate) fn one() -> NonNegative {
    NonNegative::try_from(1.0).expect("1 is at least 0")
}

/// Default of what is not subtracted.
pub(crate) fn nothing() -> NonNegative {
    NonNegative::try_from(0.0).expect("0 is at least 0")
}

/// Turns the outcomes of the paths that were tried into advantages; a shared turn gets the mean over its leaves.
///
/// * `advantage(outcomes, lengths)` gets outcome and number of sampled tokens per path and makes the outcomes advantages.
///
/// Untried paths have no return: they are not trained and move no baseline.
pub(crate) fn from_outcomes(group: Group<'_>, advantage: impl FnOnce(&mut [f64], &[usize])) -> Credit {
    let sampled = |path: ascribe_core::batch::Trajectory<'_>| path.turns_up().map(|t| group.sampled_of(t).len()).sum::<usize>();
    let tried = group.trajectories().filter(|path| path.leaf().end != End::Untried);
    let lengths: Vec<usize> = tried.map(sampled).collect();
    let per_leaf = advantages_of_tried(group, |outcomes| advantage(outcomes, &lengths));
    Credit { turns: group.mean_over_some_leaves(&per_leaf), ..Credit::default() }
}

/// The same where each turn is an entry of its own: it has the outcome of its path, a shared turn once the mean over its
/// leaves.
///
/// * `measure(entries)` says what outcomes are told in.
pub(crate) fn from_outcomes_of_turns(group: Group<'_>, measure: impl FnOnce(&[f64]) -> Measure) -> Credit {
    let mut turns = group.mean_over_some_leaves(&outcomes_of_tried(group));
    let entries: Vec<f64> = turns.iter().flatten().map(|x| f64::from(*x)).collect();
    let measure = measure(&entries);
    turns.iter_mut().flatten().for_each(|x| *x = measure.of(f64::from(*x)) as f32);
    Credit { turns, ..Credit::default() }
}
