//! Small batches for tests.

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::signal::{Column, Scope, Signal};
use ascribe_core::{AdvantageEstimator, Batch, End, Now};

pub(crate) const WON: End = End::Terminated { success: true };
pub(crate) const LOST: End = End::Terminated { success: false };

/// A turn of one sampled token.
pub(crate) fn turn(parent: Option<usize>, reward: f32) -> TurnLog {
    TurnLog { parent, agent: "actor".into(), action: Action::given(vec![0]), reward, ..TurnLog::default() }
}

/// One group.
pub(crate) fn batch(turns: Vec<TurnLog>, leaves: &[(usize, End)]) -> Batch {
    let leaves = leaves.iter().map(|(t, end)| LeafLog { turn: Some(*t), end: end.clone(), seed: 0 }).collect();
    let group = GroupLog { task_name: "task".into(), turns, leaves, ..GroupLog::default() };
    Batch::from_groups(vec![group], NonFinite::Refuse).unwrap()
}

/// One group of independent paths, given by their rewards and ends.
pub(crate) fn chains(paths: &[(&[f32], End)]) -> Batch {
    let mut turns = Vec::new();
    let mut leaves = Vec::new();
    for (rewards, end) in paths {
        for (t, reward) in rewards.iter().enumerate() {
            let parent = (t > 0).then(|| turns.len() - 1);
            turns.push(turn(parent, *reward));
        }
        leaves.push((turns.len() - 1, end.clone()));
    }
    batch(turns, &leaves)
}

/// One path that was won.
pub(crate) fn chain(rewards: &[f32]) -> Batch {
    chains(&[(rewards, WON)])
}

/// Advantages per turn of the only group, all trained.
pub(crate) fn credit(estimator: &dyn AdvantageEstimator, batch: &Batch) -> Vec<f32> {
    let credit = estimator.estimate(batch.group(0), &Now::default()).unwrap();
    credit.check(batch.group(0)).unwrap();
    credit.turns.into_iter().map(|a| a.unwrap()).collect()
}

/// The batch with values of its states: of the start, then after each turn.
pub(crate) fn valued(batch: Batch, values: &[f32]) -> Batch {
    signalled(batch, "value", Scope::State, values)
}

/// The batch with one more column.
pub(crate) fn signalled(mut batch: Batch, name: &str, scope: Scope, numbers: &[f32]) -> Batch {
    let signal = Signal { scope, provider: "test".into(), column: Column::full(numbers.to_vec()) };
    batch.add_signal(name, signal).unwrap();
    batch
}
