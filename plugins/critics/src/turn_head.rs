//! A head that judges turns: read after the last token of the action, when it has seen the state and the whole action.
//!
//! A head is read at the position that predicts a token, and a token without an alternative is fed, not sampled: where the
//! last choice of an action comes before its end, no sampled token's position knows it. The rows here therefore hold one
//! trained token per turn of their own, the token that follows the action (the next that was read, or at the end of a
//! sequence the action's last once more): the position that predicts it is the action's last token. Its log-probability
//! means nothing, and no objective of a head reads it. A sequence that fills the policy's context window to the last token has no
//! room for that one more: its last turn is read one token earlier.

use std::sync::Arc;

use ascribe_core::critic::{Lesson, LessonRows};
use ascribe_core::log::Context;
use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{HeadSpec, PolicyError, ScoreRequest};
use ascribe_core::rollout::Acting;
use ascribe_core::rows::{RowBounds, RowTurn, column};
use ascribe_core::{Batch, Column, End, Group, Need, Objective, RowSet, Scope, Trajectory};

use crate::scored;

/// A head, and whose turns it judges.
#[derive(Clone, Debug)]
pub(crate) struct TurnHead {
    /// Its name, the critic's.
    pub name: String,
    /// Policy node whose turns it judges.
    pub agent: String,
    /// Policy node on which it sits.
    pub node: String,
    /// Whether its gradient stops at the head.
    pub detach_trunk: bool,
}

/// In how many rows a turn stands that several paths share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// In the first of them.
    Once,
    /// In each of them: what is learned is a path's.
    EachPath,
}

impl TurnHead {
    /// What a critic with this head needs.
    pub fn needs(agent: &str, node: &str) -> Vec<Need> {
        let mut needs = vec![Need::Node(agent.into()), Need::Node(node.into())];
        needs.dedup();
        needs
    }

    /// What the critic asks of the policy.
    pub fn heads(&self) -> Vec<(String, HeadSpec)> {
        let spec = HeadSpec { name: self.name.clone(), detach_trunk: self.detach_trunk, zero_init: true };
        vec![(self.node.clone(), spec)]
    }

    /// Rows with one trained token per turn that is `wanted` (by its row in the batch): trained token `i` is turn `i` of the set.
    ///
    /// # Errors
    /// If the policy node is not there.
    pub fn rows(
        &self,
        batch: &Batch,
        acting: &mut Acting<'_>,
        shared: Shared,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<RowSet, PolicyError> {
        let limit = acting.node(&self.node)?.max_tokens();
        let agent = batch.agents.get_index_of(&self.agent);
        let mut set = RowSet::default();
        for group in batch.groups() {
            let mut seen = vec![false; group.n_turns()];
            for (trajectory, path) in group.trajectories().enumerate() {
                let mut row = OpenRow { tokens: group.about().history.tokens.clone(), first: set.turns.len() };
                for t in path.turns() {
                    let r = group.rows().start + t;
                    if batch.turns.context[r] == Context::Restart {
                        row.close(&mut set, (group, trajectory), limit);
                        row = OpenRow { tokens: Vec::new(), first: set.turns.len() };
                    }
                    let start = row.tokens.len();
                    row.tokens.extend_from_slice(&batch.tokens[batch.turns.tokens[r].range()]);
                    let judged = shared == Shared::EachPath || !std::mem::replace(&mut seen[t], true);
                    // A head is read after a token: where there is none, it cannot be read.
                    if !judged || agent != Some(batch.turns.agent[r] as usize) || !wanted(r) || row.tokens.is_empty() {
                        continue;
                    }
                    let state = set.intern_state(batch.keys.bytes(batch.turns.state[r]));
                    set.turns.push(RowTurn {
                        turn: r as u32,
                        trained: set.at.len()..set.at.len() + 1,
                        action_start: start + batch.turns.action_start[r] as usize,
                        state,
                        temperature: 1.0,
                    });
                    set.at.push(row.tokens.len());
                    set.support.push(0);
                }
                row.close(&mut set, (group, trajectory), limit);
            }
        }
        set.horizon = set.rows.iter().map(|row| row.trained.len()).max().unwrap_or(0);
        let n = set.at.len();
        set.columns.insert(column::ADVANTAGE.into(), Column::full(vec![0.0; n]));
        set.columns.insert(column::WEIGHT.into(), Column::full(vec![1.0; n]));
        Ok(set)
    }

    /// Gives rows the targets of the head, by trained token.
    pub fn set_targets(&self, rows: &mut RowSet, target: impl Fn(usize) -> Option<f32>) {
        let column: Column = (0..rows.n_trained()).map(target).collect();
        rows.columns.insert(format!("target/{}", self.name), column);
    }

    /// A lesson on the turns that have a label, `labels` being by row of the batch; none where no turn has.
    ///
    /// # Errors
    /// If the policy node is not there.
    pub fn lesson(
        &self,
        batch: &Batch,
        acting: &mut Acting<'_>,
        labels: &[Option<f64>],
        objective: &Arc<dyn Objective>,
        scale: f64,
    ) -> Result<Vec<Lesson>, PolicyError> {
        let mut rows = self.rows(batch, acting, Shared::Once, |r| labels[r].is_some())?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let of_token: Vec<Option<f32>> = rows.turns.iter().map(|turn| labels[turn.turn as usize].map(|y| y as f32)).collect();
        self.set_targets(&mut rows, |i| of_token[i]);
        Ok(vec![Lesson { node: self.node.clone(), rows: LessonRows::Own(Arc::new(rows)), objective: objective.clone(), scale }])
    }

    /// What the head says after each turn of the batch that its agent made; other turns have no number. The tokens fed are
    /// counted as the critic's.
    ///
    /// # Errors
    /// If the policy fails.
    pub fn read(&self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Column, PolicyError> {
        let rows = self.rows(batch, acting, Shared::Once, |_| true)?;
        let mut column = Column::absent(batch.scope_len(Scope::Turn));
        if rows.is_empty() {
            return Ok(column);
        }
        let request = ScoreRequest { columns: vec![DiffColumn::Head(self.name.clone())], ..ScoreRequest::default() };
        let read = acting.node(&self.node)?.score(&rows, &request)?.columns.pop().unwrap_or_default();
        acting.ledger.critic_tokens += scored::n_tokens(&rows);
        rows.turns.iter().zip(read).for_each(|(turn, x)| column.set(turn.turn as usize, x));
        Ok(column)
    }
}

/// A row being written: its tokens, and the first of its turns in the set.
struct OpenRow {
    tokens: Vec<u32>,
    first: usize,
}

impl OpenRow {
    fn close(mut self, set: &mut RowSet, (group, trajectory): (Group<'_>, usize), limit: usize) {
        let turns = self.first..set.turns.len();
        let Some(last) = set.turns[turns.clone()].last().map(|turn| turn.trained.start) else { return };
        if set.at[last] >= limit && set.at[last] > 1 {
            set.at[last] -= 1;
        }
        let end = set.at[last];
        if end == self.tokens.len() {
            self.tokens.extend(self.tokens.last().copied());
        }
        let start = set.tokens.len();
        set.tokens.extend_from_slice(&self.tokens[..=end]);
        set.rows.push(RowBounds {
            tokens: start..set.tokens.len(),
            trained: set.turns[turns.start].trained.start..last + 1,
            turns,
            group: group.index() as u32,
            trajectory: trajectory as u32,
            bundle: None,
        });
    }
}

/// What the environment paid on each path, `[trajectories]`; `None` where the path ends in what was not tried.
pub(crate) fn paid(group: Group<'_>) -> Vec<Option<f64>> {
    let reward = &group.batch().turns.env_reward[group.rows()];
    let of_path = |path: Trajectory<'_>| {
        let tried = path.leaf().end != End::Untried;
        tried.then(|| path.turns_up().map(|t| f64::from(reward[t])).sum())
    };
    group.trajectories().map(of_path).collect()
}

/// The logistic function, finite everywhere.
pub(crate) fn sigmoid(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) }
}
