//! What strategies that branch inside an episode share.

use ascribe_core::log::TurnLog;
use ascribe_core::metrics::Metrics;
use ascribe_core::play::Decode;
use ascribe_core::{Need, Provide};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a branch comes back to the state that it leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Restore {
    /// From a snapshot, which only environments with exact ones have.
    #[default]
    Snapshot,
    /// What was done is done again from the start, each turn verified: as many environment steps as turns lie before the
    /// branch. A snapshot is taken only of where an episode stands, and only if the environment has exact ones.
    Replay,
}

/// What a strategy needs whose branches come back in this way.
pub(crate) fn needs(restore: Restore, decode: Decode) -> Vec<Need> {
    let snapshot = (restore == Restore::Snapshot).then_some(Need::ExactSnapshot);
    snapshot.into_iter().chain(crate::needs_of(decode)).collect()
}

/// What groups with so many leaves provide: chains only if nothing branches.
pub(crate) fn provides(leaves: u64, branches: bool) -> Vec<Provide> {
    let chains = (!branches).then_some(Need::Chains);
    [Need::GroupOfAtLeast(leaves), Need::BehaviorLogprob, Need::Entropy].into_iter().chain(chains).collect()
}

/// Mean entropy of the first `most` sampled tokens of a turn, in nats; 0 where none had an alternative.
pub(crate) fn entropy(turn: &TurnLog, most: usize) -> f64 {
    mean(turn.action.entropy.iter().flatten().take(most).copied())
}

/// Mean of `−log π` over a turn's sampled tokens, in nats; 0 where none had an alternative.
pub(crate) fn negative_log_likelihood(turn: &TurnLog) -> f64 {
    mean(turn.action.logprob.iter().flatten().map(|x| -x))
}

fn mean(x: impl Iterator<Item = f32>) -> f64 {
    let (n, sum) = x.fold((0u32, 0.0), |(n, sum), x| (n + 1, sum + f64::from(x)));
    if n == 0 { 0.0 } else { sum / f64::from(n) }
}

/// Reports how leaves came about: those that branched, and those that began anew because nothing could branch. Rounds of one
/// update add up.
pub(crate) fn report(metrics: &mut Metrics, branches: usize, fresh: usize) {
    let before = |metrics: &Metrics, name: &str| metrics.get(name).unwrap_or(0.0);
    metrics.set("rollout/branch/branches", before(metrics, "rollout/branch/branches") + branches as f64);
    metrics.set("rollout/branch/fresh", before(metrics, "rollout/branch/fresh") + fresh as f64);
}
