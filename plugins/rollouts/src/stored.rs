//! Groups that a strategy keeps from one update to another, and their bytes.

use ascribe_core::log::{Action, GroupLog, Origin};
use serde::{Deserialize, Serialize};

/// A group, and when it was stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// Updates that were done when it was stored.
    pub update: u32,
    pub group: GroupLog,
}

impl Stored {
    /// Updates since it was played: those before it came here count too.
    pub fn age(&self, update: u32) -> u64 {
        let before = match self.group.origin {
            Origin::Replayed { age } => age,
            Origin::Root | Origin::Restored { .. } => 0,
        };
        before + u64::from(update.saturating_sub(self.update))
    }

    /// The group as it is given back: it says how old it is.
    pub fn again(&self, update: u32) -> GroupLog {
        GroupLog { origin: Origin::Replayed { age: self.age(update) }, ..self.group.clone() }
    }
}

/// Whether every number of a group is finite. Others are refused where they are used, and no text holds them.
pub(crate) fn is_finite(group: &GroupLog) -> bool {
    let of_action = |action: &Action| action.logprob.iter().chain(&action.entropy).flatten().all(|x| x.is_finite());
    group.history.turns.iter().all(|turn| of_action(&turn.action))
        && group.turns.iter().all(|turn| {
            let rewards = std::iter::once(&turn.reward).chain(turn.token_rewards.iter().map(|(_, x)| x));
            let signals = turn.signals.iter().map(|(_, x)| x);
            of_action(&turn.action) && rewards.chain(signals).all(|x| x.is_finite())
        })
}

/// Whether a path of the group can train.
pub(crate) fn trains(group: &GroupLog) -> bool {
    group.leaves.iter().any(|leaf| leaf.end.trains())
}

/// What a strategy that keeps groups saves, with the state of the strategy inside it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<G> {
    format: u32,
    groups: G,
    of: Vec<u8>,
}

const FORMAT: u32 = 1;

/// The bytes of kept groups, whose numbers are all finite, and of the strategy inside.
pub(crate) fn save(groups: &[Stored], of: Vec<u8>) -> Vec<u8> {
    serde_json::to_vec(&Saved { format: FORMAT, groups, of }).expect("finite numbers and text have a form")
}

/// Kept groups and the inner state from their bytes.
///
/// # Errors
/// If the bytes are damaged or of another format.
pub(crate) fn load(bytes: &[u8]) -> Result<(Vec<Stored>, Vec<u8>), String> {
    let saved: Saved<Vec<Stored>> = serde_json::from_slice(bytes).map_err(|e| format!("the stored groups are damaged: {e}"))?;
    if saved.format != FORMAT {
        return Err(format!("the stored groups have format {}, this version reads {FORMAT}", saved.format));
    }
    Ok((saved.groups, saved.of))
}
