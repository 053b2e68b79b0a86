//! Columns on states: per group its start, then the state after each of its turns.

use ascribe_core::key::KeyId;
use ascribe_core::{Batch, Column, End, Group};

/// The column that estimators with a critic read.
pub(crate) const VALUE: &str = "value";

/// A column of states from a number per state of each group: `None` is the group's start, `Some(t)` the state after its turn
/// `t`. The state after a turn that was not tried was not reached, and the start of a group without turns was left by nobody:
/// 0 stands there, which nobody reads. States on failed paths, which no view reaches, have none.
pub(crate) fn column(batch: &Batch, mut number: impl FnMut(Group<'_>, Option<usize>) -> Option<f32>) -> Column {
    let n = batch.turns.parent.len() + batch.groups.len();
    let mut numbers: Vec<Option<f32>> = vec![None; n];
    for group in batch.groups() {
        let first = group.rows().start + group.index();
        numbers[first] = if group.n_turns() > 0 { number(group, None) } else { Some(0.0) };
        for (t, tried) in group.tried().into_iter().enumerate() {
            numbers[first + t + 1] = if tried { number(group, Some(t)) } else { Some(0.0) };
        }
    }
    numbers.into_iter().collect()
}

/// Exact key of a state, named as in [`column`]; `None` is the start of a group without turns.
pub(crate) fn key(group: Group<'_>, after: Option<usize>) -> Option<KeyId> {
    match after {
        Some(t) => Some(group.batch().turns.state_after[group.rows().start + t]),
        None => group.states().first().copied(),
    }
}

/// Whether the task was over in a state, named as in [`column`]: its future is worth 0.
pub(crate) fn is_over(group: Group<'_>, after: Option<usize>) -> bool {
    after.is_some_and(|t| matches!(group.end(t), Some(End::Terminated { .. })))
}
