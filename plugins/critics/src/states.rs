//! Columns on states: per group its start, then the state after each of its turns.

use ascribe_core::{Batch, Column, Group};

/// A column of states from a number per state of each group: `None` is the group's start, `Some(t)` the state after its turn
/// `t`. States on failed paths, which no view reaches, have none.
pub(crate) fn column(batch: &Batch, mut number: impl FnMut(Group<'_>, Option<usize>) -> Option<f32>) -> Column {
    let n = batch.turns.parent.len() + batch.groups.len();
    let mut numbers: Vec<Option<f32>> = vec![None; n];
    for group in batch.groups() {
        let first = group.rows().start + group.index();
        numbers[first] = number(group, None);
        for t in 0..group.n_turns() {
            numbers[first + t + 1] = number(group, Some(t));
        }
    }
    numbers.into_iter().collect()
}
