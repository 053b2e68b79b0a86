//! Columns that a policy computes under teacher forcing.

use ascribe_core::{Batch, Column, Credit, RowSet};

/// Rows of every token that a node sampled.
pub(crate) fn rows(batch: &Batch, agent: &str) -> RowSet {
    let credit: Vec<Credit> = batch.groups().map(|group| Credit::per_turn(vec![0.0; group.n_turns()])).collect();
    RowSet::from_credit(batch, &credit, Some(agent))
}

/// A column over the batch's sampled tokens from one over the trained tokens of [`rows`]; other tokens have none.
pub(crate) fn onto_tokens(batch: &Batch, rows: &RowSet, of_rows: &[f32]) -> Column {
    let mut column = Column::absent(batch.sampled.at.len());
    for turn in &rows.turns {
        // Every sampled token of the turn is in the rows, in order.
        let sampled = batch.turns.sampled[turn.turn as usize].range();
        sampled.zip(&of_rows[turn.trained.clone()]).for_each(|(i, x)| column.set(i, *x));
    }
    column
}

/// Tokens that scoring these rows feeds.
pub(crate) fn n_tokens(rows: &RowSet) -> u64 {
    rows.rows.iter().map(|row| row.tokens.len() as u64).sum()
}
