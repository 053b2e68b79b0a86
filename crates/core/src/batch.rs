//! The batch: one arena of columns per update, and `Copy` views of it.
//!
//! Turns are rows addressed by `u32`; a group's rows are contiguous, parents before children. What failed lies behind
//! the group's rows, out of reach of its view: no filter that an estimator's author could forget.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexSet;

use crate::environment::{Snapshot, TaskId};
use crate::key::{KeyId, Keys};
use crate::log::{Context, End, GroupLog, History, LeafLog, NamedSpan, Origin, Shown, Stop, TurnLog, Validity};
use crate::signal::{Column, Scope, Signal};

/// Absent parent or leaf.
pub const ROOT: u32 = u32::MAX;

/// A half-open range of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First row.
    pub start: u32,
    /// One past the last row.
    pub end: u32,
}
impl Span {
    /// As indices.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
    /// Number of rows.
    pub fn len(self) -> usize {
        self.range().len()
    }
    /// Whether it has no rows.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Why records were refused. Every message names task and turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task `{task}`{}: {what}", turn.map(|t| format!(", turn {t}")).unwrap_or_default())]
pub struct RecordError {
    /// The task's name.
    pub task: String,
    /// The turn within the group.
    pub turn: Option<usize>,
    /// What is wrong, and what to do.
    pub what: String,
}

/// What to do with a reward or log-probability that is not a finite number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// Refuse the batch, naming task and turn.
    #[default]
    Refuse,
    /// Fail the paths that run through it; the others' baseline is theirs alone.
    Exclude,
}

/// Columns, one row per turn.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// Row of the turn it continues, or [`ROOT`].
    pub parent: Vec<u32>,
    /// Policy node that acted, an index into [`Batch::agents`].
    pub agent: Vec<u32>,
    /// How the context joins the sequence.
    pub context: Vec<Context>,
    /// Its tokens in [`Batch::tokens`]: context, then action.
    pub tokens: Vec<Span>,
    /// Offset within its tokens at which the action begins.
    pub action_start: Vec<u32>,
    /// Its sampled tokens in [`Batch::sampled`].
    pub sampled: Vec<Span>,
    /// Temperature it was drawn at.
    pub temperature: Vec<f32>,
    /// Why sampling stopped.
    pub stop: Vec<Stop>,
    /// The environment's reward.
    pub env_reward: Vec<f32>,
    /// What estimators call reward: the weighted sum of reward columns; see [`Batch::combine_rewards`].
    pub reward: Vec<f32>,
    /// What the environment made of the action.
    pub validity: Vec<Validity>,
    /// Interned key of what it saw before acting.
    pub observation: Vec<KeyId>,
    /// Interned exact key of the state before acting.
    pub state: Vec<KeyId>,
    /// Interned exact key of the state after acting.
    pub state_after: Vec<KeyId>,
    /// Interned key of the action.
    pub action_key: Vec<KeyId>,
    /// Version of the policy that acted.
    pub policy_version: Vec<u64>,
}

/// Columns, one row per sampled token. What was fed is not here, so no mask is needed.
#[derive(Clone, Debug, Default)]
pub struct SampledTokens {
    /// Offset within its turn's tokens.
    pub at: Vec<u32>,
    /// Log-probability under the distribution drawn from; absent for given tokens.
    pub logprob: Column,
    /// Entropy in nats of that distribution; absent for given tokens.
    pub entropy: Column,
    /// Allowed token ids, an index into [`Batch::supports`] plus 1; 0 where all were allowed.
    pub support: Vec<u32>,
    /// The part of its turn's [`Turns::env_reward`] that the environment gave to this token.
    pub env_reward: Vec<f32>,
    /// The part of its turn's [`Turns::reward`] that lies on this token; see [`Group::token_rewards`].
    pub reward: Vec<f32>,
}

/// What is kept of a turn for people, parsers and critics.
#[derive(Clone, Debug, Default)]
pub struct TurnNotes {
    /// What it read.
    pub observation: String,
    /// What it did.
    pub action: String,
    /// Named parts of the action.
    pub spans: Vec<NamedSpan>,
    /// The state after acting.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Privileged text about the state before acting.
    pub privileged: Option<String>,
    /// What the state after acting shows, where a path was cut there.
    pub shown_after: Option<Box<Shown>>,
}

/// The end of a path.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Its last turn, or [`ROOT`] if it failed before its first.
    pub turn: u32,
    /// How it ended.
    pub end: End,
    /// Seed of the episode.
    pub seed: u64,
}

/// A group's place in the arena.
#[derive(Clone, Debug)]
pub struct GroupRow {
    /// The task.
    pub task: TaskId,
    /// What the task is called.
    pub task_name: String,
    /// Seed of the start.
    pub seed: u64,
    /// Where the start came from.
    pub origin: Origin,
    /// Environment fingerprint.
    pub fingerprint: String,
    /// Number of turns between the task's beginning and the start.
    pub before: usize,
    /// Turns before the start.
    pub history: History,
    /// The start, where it was kept.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Turns on paths that train.
    pub rows: Span,
    /// Leaves that train.
    pub leaves: Span,
    /// Turns only on failed paths.
    pub aside_rows: Span,
    /// Leaves that failed.
    pub aside_leaves: Span,
}

/// All groups of an update.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Names of policy nodes that acted.
    pub agents: IndexSet<String>,
    /// Columns per turn.
    pub turns: Turns,
    /// Every token, fed and sampled.
    pub tokens: Vec<u32>,
    /// Columns per sampled token.
    pub sampled: SampledTokens,
    /// Interned allowed supports.
    pub supports: IndexSet<Arc<[u32]>>,
    /// Interned observations, states and actions.
    pub keys: Keys,
    /// Texts and snapshots per turn.
    pub notes: Vec<TurnNotes>,
    /// Ends of paths.
    pub leaves: Vec<Leaf>,
    /// Places of the groups.
    pub groups: Vec<GroupRow>,
    /// Named columns.
    pub signals: BTreeMap<String, Signal>,
    children: Vec<u32>,
    end_of: Vec<u32>,
}

impl Batch {
    /// Builds the arena and checks what every view relies on.
    ///
    /// # Errors
    /// A turn whose parent does not come before it, two leaves on one turn, a leaf without a turn that did not fail, a
    /// member with another start or environment than its siblings, token columns of different lengths, a reward on a
    /// token that was not sampled, and (unless excluded) numbers that are not finite.
    pub fn from_groups(groups: Vec<GroupLog>, non_finite: NonFinite) -> Result<Self, RecordError> {
        let mut batch = Batch::default();
        for group in groups {
            batch.push_group(group, non_finite)?;
        }
        batch.turns.reward.clone_from(&batch.turns.env_reward);
        batch.sampled.reward.clone_from(&batch.sampled.env_reward);
        Ok(batch)
    }

    fn push_group(&mut self, mut group: GroupLog, non_finite: NonFinite) -> Result<(), RecordError> {
        check_shape(&group)?;
        fail_what_cannot_train(&mut group, non_finite)?;

        let n = group.turns.len();
        let mut trains = vec![false; n];
        for leaf in group.leaves.iter().filter(|leaf| leaf.end.trains()) {
            let mut at = leaf.turn;
            while let Some(t) = at.filter(|t| !trains[*t]) {
                trains[t] = true;
                at = group.turns[t].parent;
            }
        }
        // Rows that train come first; both parts keep their order, so parents stay before children.
        let first = self.turns.parent.len();
        let order: Vec<usize> = (0..n).filter(|t| trains[*t]).chain((0..n).filter(|t| !trains[*t])).collect();
        let mut place = vec![0; n];
        for (i, t) in order.iter().enumerate() {
            place[*t] = first + i;
        }
        let n_training = trains.iter().filter(|t| **t).count();

        let mut turns: Vec<Option<TurnLog>> = group.turns.into_iter().map(Some).collect();
        for t in order {
            let turn = turns[t].take().expect("every turn is placed once");
            let parent = turn.parent.map_or(ROOT, |p| index(place[p]));
            if parent != ROOT {
                // Only children that train: they share the parent's future.
                self.children[parent as usize] += u32::from(trains[t]);
            }
            self.push_turn(turn, parent);
        }

        let first_leaf = self.leaves.len();
        let (kept, failed): (Vec<LeafLog>, Vec<LeafLog>) = group.leaves.into_iter().partition(|leaf| leaf.end.trains());
        let n_kept = kept.len();
        for leaf in kept.into_iter().chain(failed) {
            let turn = leaf.turn.map_or(ROOT, |t| index(place[t]));
            if turn != ROOT {
                self.end_of[turn as usize] = index(self.leaves.len());
            }
            self.leaves.push(Leaf { turn, end: leaf.end, seed: leaf.seed });
        }
        self.groups.push(GroupRow {
            task: group.task,
            task_name: group.task_name,
            seed: group.seed,
            origin: group.origin,
            fingerprint: group.fingerprint,
            before: group.before,
            history: group.history,
            snapshot: group.snapshot,
            rows: span(first, first + n_training),
            aside_rows: span(first + n_training, first + n),
            leaves: span(first_leaf, first_leaf + n_kept),
            aside_leaves: span(first_leaf + n_kept, self.leaves.len()),
        });
        Ok(())
    }

    fn push_turn(&mut self, turn: TurnLog, parent: u32) {
        let row = self.turns.parent.len();
        let start = self.tokens.len();
        self.tokens.extend_from_slice(&turn.read);
        self.tokens.extend_from_slice(&turn.action.tokens);
        let first = self.sampled.at.len();
        for (i, at) in turn.action.at.iter().enumerate() {
            self.sampled.at.push(index(turn.read.len()) + at);
            self.sampled.logprob.push(turn.action.logprob.as_ref().map(|x| x[i]));
            self.sampled.entropy.push(turn.action.entropy.as_ref().map(|x| x[i]));
            let support = turn.action.support[i].as_ref().map_or(0, |allowed| match self.supports.get_index_of(allowed) {
                Some(known) => index(known) + 1,
                None => index(self.supports.insert_full(allowed.clone()).0) + 1,
            });
            self.sampled.support.push(support);
            self.sampled.env_reward.push(0.0);
        }
        for (at, reward) in &turn.token_rewards {
            let i = turn.action.at.binary_search(at).expect("checked: a reward lies on a sampled token");
            self.sampled.env_reward[first + i] += reward;
        }
        let agent = self.agents.get_index_of(&*turn.agent).unwrap_or_else(|| self.agents.insert_full(turn.agent.to_string()).0);
        let token_reward: f64 = turn.token_rewards.iter().map(|(_, r)| f64::from(*r)).sum();

        let columns = &mut self.turns;
        columns.parent.push(parent);
        columns.agent.push(index(agent));
        columns.context.push(turn.context);
        columns.tokens.push(span(start, self.tokens.len()));
        columns.action_start.push(index(turn.read.len()));
        columns.sampled.push(span(first, self.sampled.at.len()));
        columns.temperature.push(turn.action.temperature);
        columns.stop.push(turn.action.stop);
        columns.env_reward.push((f64::from(turn.reward) + token_reward) as f32);
        columns.validity.push(turn.validity);
        columns.observation.push(self.keys.id(&turn.observation));
        columns.state.push(self.keys.id(&turn.state));
        columns.state_after.push(self.keys.id(&turn.state_after));
        columns.action_key.push(self.keys.id(&turn.action_key));
        columns.policy_version.push(turn.policy_version);
        for (name, value) in turn.signals {
            let signal = self.signals.entry(name).or_insert_with(|| Signal {
                scope: Scope::Turn,
                provider: "environment".into(),
                column: Column::default(),
            });
            while signal.column.len() < row {
                signal.column.push(None);
            }
            if signal.column.len() == row {
                signal.column.push(Some(value));
            } else {
                signal.column.set(row, value);
            }
        }
        for signal in self.signals.values_mut() {
            if signal.column.len() == row {
                signal.column.push(None);
            }
        }
        self.notes.push(TurnNotes {
            observation: turn.observation_text,
            action: turn.action_text,
            spans: turn.spans,
            snapshot: turn.snapshot,
            privileged: turn.privileged,
            shown_after: turn.shown_after,
        });
        self.children.push(0);
        self.end_of.push(ROOT);
    }

    /// Rows a column of that scope has in this batch.
    pub fn scope_len(&self, scope: Scope) -> usize {
        match scope {
            Scope::State => self.turns.parent.len() + self.groups.len(),
            Scope::Turn => self.turns.parent.len(),
            Scope::Token => self.sampled.at.len(),
        }
    }

    /// Adds a named column.
    ///
    /// # Errors
    /// If the name is taken or the length does not fit the scope.
    pub fn add_signal(&mut self, name: &str, signal: Signal) -> Result<(), String> {
        let want = self.scope_len(signal.scope);
        if signal.column.len() != want {
            return Err(format!(
                "signal `{name}` of `{}` has {} numbers, the batch has {want} of that scope",
                signal.provider,
                signal.column.len()
            ));
        }
        if let Some(x) = signal.column.iter_present().find(|x| !x.is_finite()) {
            return Err(format!(
                "signal `{name}` of `{}` holds {x}: a critic must leave out what it cannot compute",
                signal.provider
            ));
        }
        if let Some(taken) = self.signals.get(name) {
            return Err(format!(
                "signal `{name}` of `{}` is already given by `{}`: a column has one provider",
                signal.provider, taken.provider
            ));
        }
        self.signals.insert(name.into(), signal);
        Ok(())
    }

    /// Computes what estimators call reward: `Σ weight · column`. The column `env` is the environment's reward; a turn
    /// column counts as it stands, a token column by its sum over the turn. Absent numbers add nothing.
    ///
    /// # Errors
    /// If a column does not exist or lies on states.
    pub fn combine_rewards(&mut self, weights: &BTreeMap<String, f64>) -> Result<(), String> {
        let mut total = vec![0.0f64; self.turns.parent.len()];
        let mut on_tokens = vec![0.0f64; self.sampled.at.len()];
        for (name, weight) in weights {
            total.iter_mut().zip(self.reward_column(name)?).for_each(|(sum, r)| *sum += weight * r);
            let of_token = |i: usize| match self.signals.get(name) {
                _ if name == "env" => self.sampled.env_reward.get(i).copied(),
                Some(signal) if signal.scope == Scope::Token => signal.column.get(i),
                _ => None,
            };
            for (i, sum) in on_tokens.iter_mut().enumerate() {
                *sum += weight * f64::from(of_token(i).unwrap_or(0.0));
            }
        }
        let trains = self.groups.iter().flat_map(|group| group.rows.range());
        if let Some(t) = trains.into_iter().find(|t| !(total[*t] as f32).is_finite()) {
            let weights: Vec<String> = weights.iter().map(|(name, weight)| format!("`reward.{name}` = {weight:?}")).collect();
            return Err(format!(
                "the reward of a turn comes to {:?}, which no 32-bit number holds; use smaller weights: {}",
                total[t],
                weights.join(", ")
            ));
        }
        self.turns.reward = total.into_iter().map(|x| x as f32).collect();
        self.sampled.reward = on_tokens.into_iter().map(|x| x as f32).collect();
        Ok(())
    }

    /// The numbers of a reward column on turns: `env`, or a signal on turns or on tokens, whose numbers are then summed over
    /// the turn. Where there is none it is 0. `[rows]`.
    ///
    /// # Errors
    /// If there is no such column, or it lies on states.
    pub fn reward_column(&self, name: &str) -> Result<Vec<f64>, String> {
        if name == "env" {
            return Ok(self.turns.env_reward.iter().map(|r| f64::from(*r)).collect());
        }
        let signal = self.signals.get(name).ok_or_else(|| {
            let known: Vec<_> = std::iter::once("env").chain(self.signals.keys().map(String::as_str)).collect();
            format!("`reward.{name}`: no such column; there are: {}", known.join(", "))
        })?;
        let number = |row: usize| f64::from(signal.column.get(row).unwrap_or(0.0));
        match signal.scope {
            Scope::Turn => Ok((0..self.turns.parent.len()).map(number).collect()),
            Scope::Token => Ok(self.turns.sampled.iter().map(|of_turn| of_turn.range().map(number).sum()).collect()),
            Scope::State => Err(format!("`reward.{name}`: the column lies on states, a reward lies on turns or tokens")),
        }
    }

    /// View of group `i`.
    pub fn group(&self, i: usize) -> Group<'_> {
        Group { batch: self, row: &self.groups[i], index: i }
    }

    /// All groups, in order.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = Group<'_>> {
        (0..self.groups.len()).map(|i| self.group(i))
    }
}

/// Four sums side by side: an addition waits for the one before it.
fn sum(x: &[f32]) -> f64 {
    let (blocks, rest) = x.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for block in blocks {
        sums.iter_mut().zip(block).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    sums.into_iter().chain(rest.iter().map(|x| f64::from(*x))).sum()
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("an update holds fewer than 2^32 rows")
}
fn span(start: usize, end: usize) -> Span {
    Span { start: index(start), end: index(end) }
}

/// Checks that the forest is one, and that its columns have one length.
fn check_shape(group: &GroupLog) -> Result<(), RecordError> {
    let refuse = |turn: Option<usize>, what: String| Err(RecordError { task: group.task_name.clone(), turn, what });
    for (t, turn) in group.turns.iter().enumerate() {
        let action = &turn.action;
        let n = action.at.len();
        if turn.parent.is_some_and(|p| p >= t) {
            return refuse(Some(t), format!("its parent {} does not come before it", turn.parent.unwrap_or_default()));
        }
        if action.support.len() != n || [&action.logprob, &action.entropy].into_iter().flatten().any(|c| c.len() != n) {
            return refuse(Some(t), format!("{n} sampled tokens, but columns of another length"));
        }
        if action.at.windows(2).any(|w| w[0] >= w[1]) || action.at.last().is_some_and(|a| *a as usize >= action.tokens.len()) {
            return refuse(Some(t), "sampled tokens must be ascending offsets into the action".into());
        }
        for (i, at) in action.at.iter().enumerate() {
            let token = action.tokens[*at as usize];
            if action.support[i].as_ref().is_some_and(|allowed| allowed.binary_search(&token).is_err()) {
                return refuse(Some(t), format!("token {token} was sampled but is not in its allowed support"));
            }
        }
        for (at, _) in &turn.token_rewards {
            if action.at.binary_search(at).is_err() {
                return refuse(
                    Some(t),
                    format!(
                        "a reward lies on token {at} of the action, which was not sampled; put it on the last sampled token or give it to the turn"
                    ),
                );
            }
        }
        if let Some(s) = turn.spans.iter().find(|s| s.start > s.end || s.end as usize > action.tokens.len()) {
            return refuse(
                Some(t),
                format!("span `{}` {}..{} leaves the action's {} tokens", s.name, s.start, s.end, action.tokens.len()),
            );
        }
    }
    let mut ends = vec![false; group.turns.len()];
    for leaf in &group.leaves {
        match leaf.turn {
            Some(t) if t >= ends.len() => return refuse(Some(t), "a leaf names a turn that does not exist".into()),
            Some(t) if std::mem::replace(&mut ends[t], true) => return refuse(Some(t), "two leaves on one turn".into()),
            None if leaf.end.trains() => return refuse(None, "a leaf without turns must have failed".into()),
            _ => {}
        }
    }
    let mut roots = group.turns.iter().enumerate().filter(|(_, turn)| turn.parent.is_none());
    if let Some((_, first)) = roots.next()
        && let Some((t, _)) = roots.find(|(_, turn)| (&turn.observation, &turn.state) != (&first.observation, &first.state))
    {
        return refuse(Some(t), "starts from another observation or state than its siblings: a group shares one start".into());
    }
    Ok(())
}

/// Turns what cannot train into failed leaves: non-finite numbers (where excluded) and paths without sampled tokens,
/// which would otherwise drag the baseline of their siblings.
fn fail_what_cannot_train(group: &mut GroupLog, non_finite: NonFinite) -> Result<(), RecordError> {
    let bad: Vec<Option<String>> = group
        .turns
        .iter()
        .map(|turn| {
            let logprobs = turn.action.logprob.iter().flatten().chain(turn.action.entropy.iter().flatten());
            let rewards = std::iter::once(&turn.reward)
                .chain(turn.token_rewards.iter().map(|(_, r)| r))
                .chain(turn.signals.iter().map(|(_, x)| x));
            rewards
                .map(|x| ("reward or signal", x))
                .chain(logprobs.map(|x| ("log-probability or entropy", x)))
                .find(|(_, x)| !x.is_finite())
                .map(|(what, x)| format!("a {what} is {x}"))
        })
        .collect();
    if non_finite == NonFinite::Refuse
        && let Some((t, Some(what))) = bad.iter().enumerate().find(|(_, b)| b.is_some())
    {
        let what = format!("{what}, which is not a finite number");
        return Err(RecordError { task: group.task_name.clone(), turn: Some(t), what });
    }
    for leaf in group.leaves.iter_mut().filter(|leaf| leaf.end.trains()) {
        let mut at = leaf.turn;
        let mut sampled = 0;
        let mut failure = None;
        while let Some(t) = at {
            sampled += group.turns[t].action.at.len();
            failure = failure.or_else(|| bad[t].clone());
            at = group.turns[t].parent;
        }
        if sampled == 0 {
            failure = failure.or(Some("no sampled token on the path".into()));
        }
        if let Some(why) = failure {
            leaf.end = End::Failed(why);
        }
    }
    // A number that is not finite must not stay in a column of a turn that only failed paths share.
    for (turn, bad) in group.turns.iter_mut().zip(&bad) {
        if bad.is_some() {
            for x in std::iter::once(&mut turn.reward).chain(turn.token_rewards.iter_mut().map(|(_, r)| r)) {
                if !x.is_finite() {
                    *x = 0.0;
                }
            }
            turn.signals.retain(|(_, x)| x.is_finite());
            for column in [&mut turn.action.logprob, &mut turn.action.entropy] {
                if column.as_ref().is_some_and(|c| c.iter().any(|x| !x.is_finite())) {
                    *column = None;
                }
            }
        }
    }
    Ok(())
}

/// A forest of turns that share a task and a start. Slices are `[turns of this group]`, in row order; turns are named by
/// their index within the group.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    batch: &'a Batch,
    row: &'a GroupRow,
    index: usize,
}

impl<'a> Group<'a> {
    /// Index of the group in its batch.
    pub fn index(self) -> usize {
        self.index
    }
    /// The batch it lies in.
    pub fn batch(self) -> &'a Batch {
        self.batch
    }
    /// Task, seed, origin, history.
    pub fn about(self) -> &'a GroupRow {
        self.row
    }
    /// Its rows in the arena.
    pub fn rows(self) -> Range<usize> {
        self.row.rows.range()
    }
    /// Number of turns on paths that train.
    pub fn n_turns(self) -> usize {
        self.row.rows.len()
    }
    /// Number of paths that train.
    pub fn n_trajectories(self) -> usize {
        self.row.leaves.len()
    }
    /// Why paths failed.
    pub fn failures(self) -> impl Iterator<Item = &'a str> {
        self.batch.leaves[self.row.aside_leaves.range()].iter().filter_map(|leaf| match &leaf.end {
            End::Failed(reason) => Some(reason.as_str()),
            _ => None,
        })
    }
    /// Number of paths that failed.
    pub fn n_failed(self) -> usize {
        self.row.aside_leaves.len()
    }
    /// Reward of each turn: the weighted sum of reward columns.
    pub fn rewards(self) -> &'a [f32] {
        &self.batch.turns.reward[self.rows()]
    }
    /// Reward of each sampled token: what lies on it, and on a turn's last one what is left of the turn's reward. Over a
    /// turn they sum to [`Group::rewards`]; the reward of a turn without sampled tokens has no token to lie on.
    /// `[sampled tokens]`.
    pub fn token_rewards(self) -> Vec<f32> {
        let mut out = self.batch.sampled.reward[self.sampled()].to_vec();
        for (t, reward) in self.rewards().iter().enumerate() {
            let tokens = &mut out[self.sampled_of(t)];
            let on_tokens = sum(tokens);
            if let Some(last) = tokens.last_mut() {
                *last = (f64::from(*last) + f64::from(*reward) - on_tokens) as f32;
            }
        }
        out
    }
    /// Interned observation before each turn.
    pub fn observations(self) -> &'a [KeyId] {
        &self.batch.turns.observation[self.rows()]
    }
    /// Interned state before each turn.
    pub fn states(self) -> &'a [KeyId] {
        &self.batch.turns.state[self.rows()]
    }
    /// Interned action of each turn.
    pub fn actions(self) -> &'a [KeyId] {
        &self.batch.turns.action_key[self.rows()]
    }
    /// The turn that turn `t` continues.
    pub fn parent(self, t: usize) -> Option<usize> {
        match self.batch.turns.parent[self.rows().start + t] {
            ROOT => None,
            p => Some(p as usize - self.rows().start),
        }
    }
    /// Number of training turns that continue turn `t`.
    pub fn n_children(self, t: usize) -> usize {
        self.batch.children[self.rows().start + t] as usize
    }
    /// How the path ended, if one ended after turn `t`.
    pub fn end(self, t: usize) -> Option<&'a End> {
        match self.batch.end_of[self.rows().start + t] {
            ROOT => None,
            leaf => Some(&self.batch.leaves[leaf as usize].end),
        }
    }
    /// Its sampled tokens, as rows of the token columns.
    pub fn sampled(self) -> Range<usize> {
        let rows = self.rows();
        if rows.is_empty() {
            return 0..0;
        }
        self.batch.turns.sampled[rows.start].start as usize..self.batch.turns.sampled[rows.end - 1].end as usize
    }
    /// Sampled tokens of turn `t`, counted from the group's first.
    pub fn sampled_of(self, t: usize) -> Range<usize> {
        let offset = self.sampled().start;
        let range = self.batch.turns.sampled[self.rows().start + t].range();
        range.start - offset..range.end - offset
    }
    /// The paths that train.
    pub fn trajectories(self) -> impl ExactSizeIterator<Item = Trajectory<'a>> {
        self.row.leaves.range().map(move |leaf| Trajectory { group: self, leaf })
    }
    /// A column on states.
    ///
    /// # Panics
    /// If the plugin's `needs()` did not declare it: the checked graph provides what is declared.
    pub fn state_signal(self, name: &str) -> States<'a> {
        let signal = self.declared(name, Scope::State);
        let rows = self.rows();
        let values = signal
            .column
            .slice(rows.start + self.index..rows.end + self.index + 1)
            .unwrap_or_else(|| panic!("signal `{name}` has gaps in group {}: a provider fills the groups it judges", self.index));
        States { values, parent: &self.batch.turns.parent[rows.clone()], first: index(rows.start) }
    }
    /// A column on turns; `None` where it was not computed.
    ///
    /// # Panics
    /// If `needs()` did not declare it.
    pub fn turn_signal(self, name: &str) -> impl ExactSizeIterator<Item = Option<f32>> + use<'a> {
        let column = &self.declared(name, Scope::Turn).column;
        self.rows().map(move |i| column.get(i))
    }
    /// A column on this group's sampled tokens; `None` where it was not computed.
    ///
    /// # Panics
    /// If `needs()` did not declare it.
    pub fn token_signal(self, name: &str) -> impl ExactSizeIterator<Item = Option<f32>> + use<'a> {
        let column = &self.declared(name, Scope::Token).column;
        self.sampled().map(move |i| column.get(i))
    }
    fn declared(self, name: &str, scope: Scope) -> &'a Signal {
        self.batch
            .signals
            .get(name)
            .filter(|s| s.scope == scope)
            .unwrap_or_else(|| panic!("signal `{name}` ({scope:?}) is present when needs() declares it"))
    }

    /// Whether a turn was carried out: all were but those at which an [`End::Untried`] path ends. `[turns]`.
    pub fn tried(self) -> Vec<bool> {
        let mut tried = vec![true; self.n_turns()];
        self.untried().for_each(|t| tried[t] = false);
        tried
    }

    /// Turns that were not carried out.
    fn untried(self) -> impl Iterator<Item = usize> {
        let untried = self.batch.leaves[self.row.leaves.range()].iter().filter(|leaf| leaf.end == End::Untried);
        let first = self.rows().start;
        untried.map(move |leaf| leaf.turn as usize - first).filter(move |t| self.n_children(*t) == 0)
    }

    /// Backward over the forest: mean over the children that were tried, then `step`.
    ///
    /// `leaf(end)` says what the future is worth where a path ends; `step(t, future)` turns the mean over a turn's
    /// futures into the turn's own number. On a chain it is the textbook recursion. A path that ends at a turn with
    /// children adds no future of its own: the children are the future. A turn that was not tried has no return: it
    /// moves no mean, and its own number means nothing. Returns `[turns]`.
    pub fn fold_up(self, leaf: impl Fn(&End) -> f64, mut step: impl FnMut(usize, f64) -> f64) -> Vec<f64> {
        let (rows, first) = (self.rows(), self.rows().start);
        let (parent, end_of) = (&self.batch.turns.parent[rows.clone()], &self.batch.end_of[rows.clone()]);
        let children = &self.batch.children[rows];
        let mut n_tried = children.to_vec();
        self.untried().filter_map(|t| self.parent(t)).for_each(|p| n_tried[p] -= 1);
        let mut out = vec![0.0; parent.len()];
        // On a path each turn waits for the one after it: what it waits for is handed on without a way through memory.
        let mut handed = None;
        for t in (0..out.len()).rev() {
            let (future, tried) = match end_of[t] {
                end if end != ROOT && children[t] == 0 => {
                    let end = &self.batch.leaves[end as usize].end;
                    (leaf(end), *end != End::Untried)
                }
                _ => (handed.take().unwrap_or(out[t]), true),
            };
            let mine = step(t, future);
            out[t] = mine;
            // The parent's slot holds the running mean of its children until its own turn comes.
            if parent[t] != ROOT && tried {
                let p = parent[t] as usize - first;
                match n_tried[p] {
                    1 if p + 1 == t => handed = Some(mine),
                    // A division is long.
                    1 => out[p] += mine,
                    n => out[p] += mine / f64::from(n),
                }
            }
        }
        out
    }

    /// Mean over the leaves below each turn of a number per leaf (in order of [`Group::trajectories`]).
    ///
    /// The one helper that gives a shared turn its share of per-path numbers. Returns `[turns]`.
    pub fn mean_over_leaves(self, per_leaf: &[f64]) -> Vec<f64> {
        let some: Vec<Option<f64>> = per_leaf.iter().copied().map(Some).collect();
        self.mean_over_some_leaves(&some).into_iter().map(|x| x.map_or(0.0, f64::from)).collect()
    }

    /// The same where some paths have no number: the mean is over those that have, `None` where none has.
    pub fn mean_over_some_leaves(self, per_leaf: &[Option<f64>]) -> Vec<Option<f32>> {
        let mut sum = vec![0.0; self.n_turns()];
        let mut count = vec![0u32; self.n_turns()];
        for (trajectory, x) in self.trajectories().zip(per_leaf) {
            let Some(x) = x else { continue };
            for t in trajectory.turns_up() {
                sum[t] += x;
                count[t] += 1;
            }
        }
        sum.iter().zip(&count).map(|(s, n)| (*n > 0).then(|| (s / f64::from(*n)) as f32)).collect()
    }

    /// Outcome of each path: the sum of its rewards. `[trajectories]`.
    pub fn outcomes(self) -> Vec<f64> {
        let reward = self.rewards();
        self.trajectories().map(|trajectory| trajectory.turns_up().map(|t| f64::from(reward[t])).sum()).collect()
    }
}

/// A column on the states of one group: `before(t)` is the parent's `after`, or the start.
#[derive(Clone, Copy, Debug)]
pub struct States<'a> {
    values: &'a [f32],
    parent: &'a [u32],
    first: u32,
}
impl States<'_> {
    /// The state before the first turn.
    pub fn start(self) -> f64 {
        f64::from(self.values[0])
    }
    /// The state after turn `t`.
    pub fn after(self, t: usize) -> f64 {
        f64::from(self.values[t + 1])
    }
    /// The state before turn `t`.
    pub fn before(self, t: usize) -> f64 {
        match self.parent[t] {
            ROOT => self.start(),
            p => self.after((p - self.first) as usize),
        }
    }
}

/// A root-to-leaf path.
#[derive(Clone, Copy, Debug)]
pub struct Trajectory<'a> {
    group: Group<'a>,
    leaf: usize,
}
impl<'a> Trajectory<'a> {
    /// Its end.
    pub fn leaf(self) -> &'a Leaf {
        &self.group.batch.leaves[self.leaf]
    }
    /// Its turns from the leaf to the root, without allocation.
    pub fn turns_up(self) -> impl Iterator<Item = usize> + use<'a> {
        let first = self.group.rows().start;
        let parent = &self.group.batch.turns.parent[self.group.rows()];
        let place = move |row: u32| (row != ROOT).then(|| row as usize - first);
        std::iter::successors(place(self.leaf().turn), move |t| place(parent[*t]))
    }
    /// Its turns from the root to the leaf.
    pub fn turns(self) -> Vec<usize> {
        let mut turns: Vec<usize> = self.turns_up().collect();
        turns.reverse();
        turns
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::log::{Action, Limit};

    pub(crate) const WON: End = End::Terminated { success: true };
    pub(crate) const LOST: End = End::Terminated { success: false };

    /// A turn of `n` sampled tokens.
    pub(crate) fn turn(parent: Option<usize>, reward: f32, state: u8, n: usize) -> TurnLog {
        TurnLog {
            parent,
            agent: "actor".into(),
            read: vec![1],
            action: Action { logprob: Some(vec![-1.0; n]), entropy: Some(vec![0.5; n]), ..Action::given(vec![5; n]) },
            reward,
            observation: vec![state],
            state: vec![state],
            ..TurnLog::default()
        }
    }
    /// A group of turns and (turn, end) leaves.
    pub(crate) fn group(turns: Vec<TurnLog>, leaves: &[(usize, End)]) -> GroupLog {
        let leaves = leaves.iter().map(|(t, end)| LeafLog { turn: Some(*t), end: end.clone(), seed: 0 }).collect();
        GroupLog { task_name: "task".into(), turns, leaves, ..GroupLog::default() }
    }
    fn build(groups: Vec<GroupLog>) -> Result<Batch, RecordError> {
        Batch::from_groups(groups, NonFinite::Refuse)
    }

    #[test]
    fn a_failed_path_is_out_of_reach_of_the_view() {
        let turns = vec![turn(None, 9.0, 0, 1), turn(None, 1.0, 0, 1), turn(Some(1), 1.0, 1, 1)];
        let batch = build(vec![group(turns, &[(0, End::Failed("crashed".into())), (2, WON)])]).unwrap();
        let g = batch.group(0);
        assert_eq!((g.n_turns(), g.n_trajectories(), g.n_failed()), (2, 1, 1));
        assert_eq!(g.failures().count(), 1);
        assert_eq!(g.rewards(), [1.0, 1.0]);
        assert_eq!(g.outcomes(), [2.0]);
        assert_eq!(batch.turns.reward, [1.0, 1.0, 9.0]);
    }

    #[test]
    fn a_path_without_sampled_tokens_never_moves_the_baseline() {
        let turns = vec![turn(None, 100.0, 0, 0), turn(None, 1.0, 0, 1), turn(None, 0.0, 0, 1)];
        let batch = build(vec![group(turns, &[(0, WON), (1, WON), (2, LOST)])]).unwrap();
        assert_eq!(batch.group(0).outcomes(), [1.0, 0.0]);
        assert_eq!(batch.group(0).n_failed(), 1);
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused_or_excluded() {
        let turns = || vec![turn(None, 1.0, 0, 1), turn(None, f32::NAN, 0, 1), turn(None, 0.0, 0, 1), turn(None, 0.0, 0, 1)];
        let leaves = [(0, WON), (1, LOST), (2, LOST), (3, LOST)];
        let error = build(vec![group(turns(), &leaves)]).unwrap_err();
        assert_eq!(error.to_string(), "task `task`, turn 1: a reward or signal is NaN, which is not a finite number");
        let batch = Batch::from_groups(vec![group(turns(), &leaves)], NonFinite::Exclude).unwrap();
        assert_eq!(batch.group(0).outcomes(), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_reward_on_a_fed_token_is_refused() {
        let mut t = turn(None, 0.0, 0, 2);
        t.action.at = vec![0];
        t.action.support = vec![None];
        t.action.logprob = Some(vec![-1.0]);
        t.action.entropy = None;
        t.token_rewards = vec![(1, 1.0)];
        let error = build(vec![group(vec![t.clone()], &[(0, WON)])]).unwrap_err();
        assert!(error.to_string().contains("turn 0: a reward lies on token 1 of the action, which was not sampled"), "{error}");
        t.token_rewards = vec![(0, 1.0)];
        let batch = build(vec![group(vec![t.clone()], &[(0, WON)])]).unwrap();
        assert_eq!((batch.group(0).outcomes(), batch.group(0).token_rewards()), (vec![1.0], vec![1.0]));
        (t.reward, t.action) = (0.5, Action::given(vec![5, 5]));
        let batch = build(vec![group(vec![t], &[(0, WON)])]).unwrap();
        assert_eq!((batch.group(0).outcomes(), batch.group(0).token_rewards()), (vec![1.5], vec![1.0, 0.5]));
    }

    #[test]
    fn a_group_of_different_starts_is_refused() {
        let turns = vec![turn(None, 0.0, 0, 1), turn(None, 0.0, 7, 1)];
        assert!(
            build(vec![group(turns, &[(0, WON), (1, WON)])]).unwrap_err().to_string().contains("another observation or state")
        );
    }

    #[test]
    fn malformed_forests_are_refused() {
        let chain = || vec![turn(None, 0.0, 0, 1), turn(Some(0), 0.0, 1, 1)];
        let mut backward = chain();
        backward[0].parent = Some(1);
        assert!(build(vec![group(backward, &[(1, WON)])]).is_err());
        assert!(build(vec![group(chain(), &[(1, WON), (1, LOST)])]).is_err());
        assert!(build(vec![group(chain(), &[(5, WON)])]).is_err());
    }

    #[test]
    fn fold_is_the_textbook_recursion_and_averages_children() {
        // chain: G = r + γ G', γ = 0.5: [1 + .5·2, 2]
        let chain = build(vec![group(vec![turn(None, 1.0, 0, 1), turn(Some(0), 2.0, 1, 1)], &[(1, WON)])]).unwrap();
        let g = chain.group(0);
        assert_eq!(g.fold_up(|_| 0.0, |t, f| f64::from(g.rewards()[t]) + 0.5 * f), [2.0, 2.0]);
        // truncated leaf worth 4: [1 + .5·(2 + .5·4), 2 + .5·4]
        let cut = build(vec![group(vec![turn(None, 1.0, 0, 1), turn(Some(0), 2.0, 1, 1)], &[(1, End::Truncated(Limit::Turns))])])
            .unwrap();
        let g = cut.group(0);
        assert_eq!(g.fold_up(|e| if e.bootstraps() { 4.0 } else { 0.0 }, |t, f| f64::from(g.rewards()[t]) + 0.5 * f), [3.0, 4.0]);
        // branch: siblings never see each other's reward
        let tree = vec![turn(None, 0.0, 0, 1), turn(Some(0), 1.0, 1, 1), turn(Some(0), 0.0, 1, 1)];
        let tree = build(vec![group(tree, &[(1, WON), (2, LOST)])]).unwrap();
        let g = tree.group(0);
        assert_eq!(g.fold_up(|_| 0.0, |t, f| f64::from(g.rewards()[t]) + f), [0.5, 1.0, 0.0]);
        assert_eq!(g.mean_over_leaves(&g.outcomes()), [0.5, 1.0, 0.0]);
        assert_eq!(g.trajectories().map(Trajectory::turns).collect::<Vec<_>>(), [vec![0, 1], vec![0, 2]]);
    }

    #[test]
    fn state_signals_are_shared_by_siblings() {
        let tree = vec![turn(None, 0.0, 0, 1), turn(Some(0), 1.0, 1, 1), turn(Some(0), 0.0, 1, 1)];
        let mut batch = build(vec![group(tree.clone(), &[(1, WON), (2, LOST)]), group(tree, &[(1, WON), (2, LOST)])]).unwrap();
        let column = Column::full((0..8).map(|x| x as f32).collect());
        let signal = Signal { scope: Scope::State, provider: "test".into(), column };
        batch.add_signal("value", signal.clone()).unwrap();
        let v = batch.group(1).state_signal("value");
        assert_eq!((v.start(), v.before(0), v.after(0), v.before(1), v.before(2), v.after(2)), (4.0, 4.0, 5.0, 5.0, 5.0, 7.0));
        assert!(batch.add_signal("value", signal).unwrap_err().contains("already given by `test`"));
    }

    #[test]
    fn rewards_are_a_weighted_sum_of_columns() {
        let mut t = turn(None, 2.0, 0, 2);
        t.signals = vec![("progress".into(), 1.0)];
        let mut batch = build(vec![group(vec![t, turn(Some(0), 0.0, 1, 1)], &[(1, WON)])]).unwrap();
        let kl = Signal { scope: Scope::Token, provider: "reference".into(), column: Column::full(vec![0.5, 0.25, 1.0]) };
        batch.add_signal("kl", kl).unwrap();
        let weights = |w: &[(&str, f64)]| w.iter().map(|(n, x)| (n.to_string(), *x)).collect::<BTreeMap<_, _>>();
        batch.combine_rewards(&weights(&[("env", 1.0), ("progress", 0.5), ("kl", -1.0)])).unwrap();
        assert_eq!(batch.turns.reward, [1.75, -1.0]);
        // 2 + ½ on the last token, −kl on each
        assert_eq!(batch.group(0).token_rewards(), [-0.5, 2.25, -1.0]);
        let error = batch.combine_rewards(&weights(&[("progres", 1.0)])).unwrap_err();
        assert_eq!(error, "`reward.progres`: no such column; there are: env, kl, progress");
        let error = batch.combine_rewards(&weights(&[("env", 3e38), ("progress", 1.0)])).unwrap_err();
        let want = "the reward of a turn comes to 6e38, which no 32-bit number holds; use smaller weights: `reward.env` = 3e38, `reward.progress` = 1.0";
        assert_eq!(error, want);
        assert_eq!(batch.reward_column("kl"), Ok(vec![0.75, 1.0]));
    }
}
