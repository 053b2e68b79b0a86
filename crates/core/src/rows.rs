//! Rows: what an update consumes. One append-only token sequence each, with its trained tokens and their columns.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Span};
use crate::credit::{Credit, spread};
use crate::key::{KeyId, Keys};
use crate::log::Context;
use crate::signal::{Column, Scope};

/// Names of the columns every row set has.
pub mod column {
    /// Log-probability under the distribution the token was drawn from.
    pub const BEHAVIOR_LOGPROB: &str = "behavior_logprob";
    /// The denominator of the importance ratio: behaviour, or recomputed at the start of the update.
    pub const OLD_LOGPROB: &str = "old_logprob";
    /// Advantage.
    pub const ADVANTAGE: &str = "advantage";
    /// Loss weight.
    pub const WEIGHT: &str = "weight";
}

/// The part of a row that one turn sampled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowTurn {
    /// Row of the turn in the batch it came from.
    pub turn: u32,
    /// Its trained tokens, a range of the set's columns.
    pub trained: Range<usize>,
    /// Offset within the row at which its action begins.
    pub action_start: usize,
    /// Interned state before it, see [`RowSet::state_bytes`].
    pub state: KeyId,
    /// Temperature it was drawn at (1 where it was given).
    pub temperature: f32,
}

/// One sequence.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowBounds {
    /// Its tokens, a range of [`RowSet::tokens`].
    pub tokens: Range<usize>,
    /// Its trained tokens, a range of the set's columns.
    pub trained: Range<usize>,
    /// Its turns, a range of [`RowSet::turns`].
    pub turns: Range<usize>,
    /// Group it came from.
    pub group: u32,
    /// Trajectory within the group.
    pub trajectory: u32,
    /// Rows with the same key share a minibatch and a micro-batch; the first of a preference pair is the chosen one.
    pub bundle: Option<u32>,
}

/// Sequences to train on. Immutable once built, so that several objectives share one forward pass over it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RowSet {
    /// All tokens of all rows.
    pub tokens: Vec<u32>,
    /// The rows.
    pub rows: Vec<RowBounds>,
    /// The turns that trained.
    pub turns: Vec<RowTurn>,
    /// Offset within its row of each trained token.
    pub at: Vec<usize>,
    /// Allowed support of each trained token, an index into `supports` plus 1; 0 where all were allowed.
    pub support: Vec<u32>,
    /// Allowed token ids, ascending.
    pub supports: Vec<Arc<[u32]>>,
    /// Named columns, `[trained tokens]`.
    pub columns: BTreeMap<String, Column>,
    /// Most trained tokens in one row: the horizon of `seq-mean-token-sum-norm` where none is set.
    pub horizon: usize,
    states: Keys,
}

impl RowSet {
    /// Rows of every trajectory that trains.
    ///
    /// A `Restart` begins another row. A turn that several trajectories share trains in the first of them and is
    /// context in the others. Tokens whose credit is `None` are context; a row without trained tokens is left out.
    /// `agent` limits training to the turns of one policy node. Columns: behaviour log-probability, advantage, weight,
    /// `target/NAME` for every target, and `signal/NAME` for every signal of the batch, on turns, tokens, or states (a
    /// turn's is that of the state before it). The chosen trajectory of a bundle comes before the rejected one.
    pub fn from_credit(batch: &Batch, credit: &[Credit], agent: Option<&str>) -> Self {
        let mut set = RowSet { supports: batch.supports.iter().cloned().collect(), ..RowSet::default() };
        let names: Vec<String> = {
            let mut names: Vec<String> = credit.iter().flat_map(|c| c.targets.keys().cloned()).collect();
            names.sort();
            names.dedup();
            names
        };
        let agent = agent.map(|name| batch.agents.get_index_of(name));
        let mut behavior = Column::default();
        let (mut advantage, mut weight) = (Vec::new(), Vec::new());
        let mut targets: Vec<Column> = names.iter().map(|_| Column::default()).collect();
        let mut signals: Vec<Column> = batch.signals.keys().map(|_| Column::default()).collect();
        let mut n_bundles = 0;
        for (group, credit) in batch.groups().zip(credit) {
            let tokens = spread(group, credit);
            let mut seen = vec![false; group.n_turns()];
            let bundles: BTreeMap<usize, u32> = (n_bundles..)
                .zip(&credit.bundles)
                .flat_map(|(key, bundle)| [(bundle.chosen, key), (bundle.rejected, key)])
                .collect();
            n_bundles += credit.bundles.len() as u32;
            // A trajectory is in one bundle at most, so each swap is between places that are still its own.
            let mut paths: Vec<_> = group.trajectories().enumerate().collect();
            for bundle in credit.bundles.iter().filter(|b| b.rejected < b.chosen) {
                paths.swap(bundle.chosen, bundle.rejected);
            }
            for (trajectory, path) in paths {
                let mut row = OpenRow::new(&set, &group.about().history.tokens);
                for t in path.turns() {
                    let r = group.rows().start + t;
                    if batch.turns.context[r] == Context::Restart {
                        row.close(&mut set, group.index(), trajectory, bundles.get(&trajectory).copied());
                        row = OpenRow::new(&set, &[]);
                    }
                    let start = row.tokens.len();
                    row.tokens.extend_from_slice(&batch.tokens[batch.turns.tokens[r].range()]);
                    let shared = std::mem::replace(&mut seen[t], true);
                    if shared || agent.is_some_and(|a| a != Some(batch.turns.agent[r] as usize)) {
                        continue;
                    }
                    let first = set.at.len();
                    let state = group.parent(t).map_or(0, |p| p + 1);
                    for i in group.sampled_of(t) {
                        let Some(a) = tokens.advantage.get(i) else { continue };
                        let s = group.sampled().start + i;
                        set.at.push(start + batch.sampled.at[s] as usize);
                        set.support.push(batch.sampled.support[s]);
                        behavior.push(batch.sampled.logprob.get(s));
                        advantage.push(a);
                        weight.push(tokens.weight[i]);
                        for (name, column) in names.iter().zip(&mut targets) {
                            column.push(credit.targets.get(name).and_then(|target| match target.scope {
                                Scope::Token => target.column.get(i),
                                Scope::Turn => target.column.get(t),
                                Scope::State => target.column.get(state),
                            }));
                        }
                        for (signal, column) in batch.signals.values().zip(&mut signals) {
                            column.push(match signal.scope {
                                Scope::Token => signal.column.get(s),
                                Scope::Turn => signal.column.get(r),
                                Scope::State => signal.column.get(group.rows().start + group.index() + state),
                            });
                        }
                    }
                    if set.at.len() > first {
                        set.turns.push(RowTurn {
                            turn: r as u32,
                            trained: first..set.at.len(),
                            action_start: start + batch.turns.action_start[r] as usize,
                            state: set.states.id(batch.keys.bytes(batch.turns.state[r])),
                            temperature: batch.turns.temperature[r],
                        });
                    }
                }
                row.close(&mut set, group.index(), trajectory, bundles.get(&trajectory).copied());
            }
        }
        set.columns.insert(column::BEHAVIOR_LOGPROB.into(), behavior);
        set.columns.insert(column::ADVANTAGE.into(), Column::full(advantage));
        set.columns.insert(column::WEIGHT.into(), Column::full(weight));
        for (name, target) in names.into_iter().zip(targets) {
            set.columns.insert(format!("target/{name}"), target);
        }
        for (name, signal) in batch.signals.keys().zip(signals) {
            set.columns.insert(format!("signal/{name}"), signal);
        }
        set.horizon = set.rows.iter().map(|row| row.trained.len()).max().unwrap_or(0);
        set
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is nothing to train on.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of trained tokens.
    pub fn n_trained(&self) -> usize {
        self.at.len()
    }

    /// Tokens of row `r`.
    pub fn tokens_of(&self, r: usize) -> &[u32] {
        &self.tokens[self.rows[r].tokens.clone()]
    }

    /// The token that trained column `i` of row `r` stands for.
    pub fn token(&self, r: usize, i: usize) -> u32 {
        self.tokens_of(r)[self.at[i]]
    }

    /// Allowed token ids of trained token `i`, ascending; `None` where all were.
    pub fn support_of(&self, i: usize) -> Option<&[u32]> {
        match self.support[i] {
            0 => None,
            s => Some(&self.supports[s as usize - 1]),
        }
    }

    /// Bytes of the state key before a turn.
    pub fn state_bytes(&self, turn: &RowTurn) -> &[u8] {
        self.states.bytes(turn.state)
    }

    /// Interns a state, for sets that are not built from credit.
    pub fn intern_state(&mut self, bytes: &[u8]) -> KeyId {
        self.states.id(bytes)
    }

    /// Rows that belong together, in order: single rows, and bundles at the place of their first row.
    pub fn units(&self) -> Vec<Vec<u32>> {
        let mut place: BTreeMap<u32, usize> = BTreeMap::new();
        let mut units: Vec<Vec<u32>> = Vec::new();
        for (r, row) in (0u32..).zip(&self.rows) {
            match row.bundle.and_then(|key| place.get(&key).copied()) {
                Some(u) => units[u].push(r),
                None => {
                    if let Some(key) = row.bundle {
                        place.insert(key, units.len());
                    }
                    units.push(vec![r]);
                }
            }
        }
        units
    }

    /// A set of some of its rows, in the order given; every column keeps its numbers for them.
    pub fn subset(&self, rows: &[u32]) -> Self {
        let mut set = RowSet { supports: self.supports.clone(), horizon: self.horizon, ..RowSet::default() };
        for r in rows {
            let row = &self.rows[*r as usize];
            let (token, trained, turn) = (set.tokens.len(), set.at.len(), set.turns.len());
            set.tokens.extend_from_slice(&self.tokens[row.tokens.clone()]);
            set.at.extend_from_slice(&self.at[row.trained.clone()]);
            set.support.extend_from_slice(&self.support[row.trained.clone()]);
            for own in &self.turns[row.turns.clone()] {
                let start = trained + own.trained.start - row.trained.start;
                let state = set.states.id(self.state_bytes(own));
                set.turns.push(RowTurn { trained: start..start + own.trained.len(), state, ..own.clone() });
            }
            set.rows.push(RowBounds {
                tokens: token..set.tokens.len(),
                trained: trained..set.at.len(),
                turns: turn..set.turns.len(),
                ..row.clone()
            });
        }
        for (name, column) in &self.columns {
            let picked = rows.iter().flat_map(|r| self.rows[*r as usize].trained.clone());
            set.columns.insert(name.clone(), picked.map(|i| column.get(i)).collect());
        }
        set
    }

    /// Cuts `rows` into micro-batches of at most `max_tokens` tokens. Rows and bundles are never split: one that is
    /// longer gets a micro-batch of its own. `rows` must hold whole bundles, as [`RowSet::units`] gives them.
    pub fn micro_batches(&self, rows: &[u32], max_tokens: usize) -> Vec<Vec<u32>> {
        let mut out: Vec<Vec<u32>> = Vec::new();
        let mut used = 0;
        let bundle = |r: u32| self.rows[r as usize].bundle;
        for unit in rows.chunk_by(|a, b| bundle(*a).is_some() && bundle(*a) == bundle(*b)) {
            let n: usize = unit.iter().map(|r| self.rows[*r as usize].tokens.len()).sum();
            match out.last_mut() {
                Some(last) if used + n <= max_tokens => last.extend_from_slice(unit),
                _ => {
                    out.push(unit.to_vec());
                    used = 0;
                }
            }
            used += n;
        }
        out
    }

    /// Denominators of a minibatch, counted from the rows alone.
    pub fn totals(&self, rows: &[u32]) -> Totals {
        let mut totals = Totals { horizon: self.horizon as u64, ..Totals::default() };
        for r in rows {
            let row = &self.rows[*r as usize];
            totals.rows += 1;
            totals.tokens += row.trained.len() as u64;
            totals.turns += row.turns.len() as u64;
        }
        let bundles: BTreeSet<u32> = rows.iter().filter_map(|r| self.rows[*r as usize].bundle).collect();
        totals.bundles = bundles.len() as u64;
        totals
    }
}

/// Denominators of a minibatch, known before the first forward: this is why micro-batches do not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows with at least one trained token.
    pub rows: u64,
    /// Trained tokens.
    pub tokens: u64,
    /// Turns with at least one trained token.
    pub turns: u64,
    /// Most trained tokens in one row of the whole update.
    pub horizon: u64,
    /// Bundles.
    pub bundles: u64,
}

/// A row being written.
struct OpenRow {
    tokens: Vec<u32>,
    first_trained: usize,
    first_turn: usize,
}
impl OpenRow {
    fn new(set: &RowSet, history: &[u32]) -> Self {
        Self { tokens: history.to_vec(), first_trained: set.at.len(), first_turn: set.turns.len() }
    }
    fn close(self, set: &mut RowSet, group: usize, trajectory: usize, bundle: Option<u32>) {
        let trained = self.first_trained..set.at.len();
        let Some(last) = set.at[trained.clone()].last() else { return };
        // What comes after the last trained token is never predicted: leave it out of the forward pass.
        let tokens = &self.tokens[..=*last];
        let start = set.tokens.len();
        set.tokens.extend_from_slice(tokens);
        set.rows.push(RowBounds {
            tokens: start..set.tokens.len(),
            trained,
            turns: self.first_turn..set.turns.len(),
            group: group as u32,
            trajectory: trajectory as u32,
            bundle,
        });
    }
}

/// Some rows of a set, as an objective sees them: its columns are packed over their trained tokens, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    set: &'a RowSet,
    picked: &'a [u32],
}

impl<'a> Rows<'a> {
    /// The rows `picked` of `set`.
    pub fn new(set: &'a RowSet, picked: &'a [u32]) -> Self {
        Self { set, picked }
    }
    /// The set.
    pub fn set(self) -> &'a RowSet {
        self.set
    }
    /// The picked rows.
    pub fn picked(self) -> &'a [u32] {
        self.picked
    }
    /// Trained tokens of all picked rows.
    pub fn n_trained(self) -> usize {
        self.picked.iter().map(|r| self.set.rows[*r as usize].trained.len()).sum()
    }
    /// The rows, with their places in the packed columns.
    pub fn iter(self) -> impl Iterator<Item = Row<'a>> {
        self.picked.iter().scan(0, move |next, r| {
            let bounds = &self.set.rows[*r as usize];
            let packed = *next..*next + bounds.trained.len();
            *next = packed.end;
            Some(Row { set: self.set, bounds, id: *r, packed })
        })
    }
    /// Gathers a column of the set into packed order; `None` if the column is missing or has a gap in these rows.
    pub fn gather(self, name: &str) -> Option<Vec<f32>> {
        let column = self.set.columns.get(name)?;
        let mut out = Vec::with_capacity(self.n_trained());
        for r in self.picked {
            out.extend_from_slice(column.slice(self.set.rows[*r as usize].trained.clone())?);
        }
        Some(out)
    }
}

/// One row in a micro-batch.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    set: &'a RowSet,
    bounds: &'a RowBounds,
    /// Index of the row in its set.
    pub id: u32,
    /// Its trained tokens in the packed columns.
    pub packed: Range<usize>,
}

impl<'a> Row<'a> {
    /// A column over its trained tokens; `None` if it is missing or has a gap here.
    pub fn column(&self, name: &str) -> Option<&'a [f32]> {
        self.set.columns.get(name)?.slice(self.bounds.trained.clone())
    }
    /// Advantages of its trained tokens.
    pub fn advantage(&self) -> &'a [f32] {
        self.column(column::ADVANTAGE).expect("every row set has advantages")
    }
    /// Loss weights of its trained tokens.
    pub fn weight(&self) -> &'a [f32] {
        self.column(column::WEIGHT).expect("every row set has weights")
    }
    /// Old log-probabilities, the denominator of importance ratios.
    ///
    /// # Panics
    /// If the objective did not declare that it needs them: the update then fills the column or refuses the rows.
    pub fn old_logprob(&self) -> &'a [f32] {
        self.column(column::OLD_LOGPROB).expect("an objective that declares old log-probabilities gets them")
    }
    /// Its turns, as ranges of the packed columns.
    pub fn turns(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let shift = self.bounds.trained.start;
        self.set.turns[self.bounds.turns.clone()]
            .iter()
            .map(move |turn| turn.trained.start - shift + self.packed.start..turn.trained.end - shift + self.packed.start)
    }
    /// Bundle key, if it belongs to one.
    pub fn bundle(&self) -> Option<u32> {
        self.bounds.bundle
    }
}

/// A token span within a column, as a range.
impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.range()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::NonFinite;
    use crate::batch::tests::{LOST, WON, group, turn};
    use crate::credit::Bundle;
    use crate::signal::Signal;

    fn batch() -> Batch {
        // a tree: root (2 tokens) with two children (1 and 3 tokens); then a chain with a restart
        let tree = vec![turn(None, 0.0, 0, 2), turn(Some(0), 1.0, 1, 1), turn(Some(0), 0.0, 1, 3)];
        let mut chain = vec![turn(None, 0.0, 0, 1), turn(Some(0), 1.0, 1, 2)];
        chain[1].context = Context::Restart;
        Batch::from_groups(vec![group(tree, &[(1, WON), (2, LOST)]), group(chain, &[(1, WON)])], NonFinite::Refuse).unwrap()
    }
    fn credit(batch: &Batch) -> Vec<Credit> {
        batch.groups().map(|g| Credit::per_turn((0..g.n_turns()).map(|t| t as f64))).collect()
    }

    #[test]
    fn a_shared_turn_trains_once_and_a_restart_begins_a_row() {
        let batch = batch();
        let set = RowSet::from_credit(&batch, &credit(&batch), None);
        // read token 1, action tokens 5
        let rows: Vec<_> = (0..set.len()).map(|r| set.tokens_of(r).to_vec()).collect();
        assert_eq!(rows, [vec![1, 5, 5, 1, 5], vec![1, 5, 5, 1, 5, 5, 5], vec![1, 5], vec![1, 5, 5]]);
        assert_eq!(set.at, [1, 2, 4, 4, 5, 6, 1, 1, 2]);
        assert_eq!(set.columns[column::ADVANTAGE].all().unwrap(), [0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 0.0, 1.0, 1.0]);
        assert_eq!(set.n_trained(), batch.sampled.at.len());
        assert_eq!(set.totals(&[0, 1, 2, 3]), Totals { rows: 4, tokens: 9, turns: 5, horizon: 3, bundles: 0 });
    }

    #[test]
    fn untrained_is_in_no_denominator() {
        let batch = batch();
        let mut credit = credit(&batch);
        credit[0].turns[2] = None;
        let set = RowSet::from_credit(&batch, &credit, None);
        // the second branch trains nothing, so it is no row
        assert_eq!(set.len(), 3);
        assert_eq!(set.totals(&[0, 1, 2]).tokens, 6);
        assert!(RowSet::from_credit(&batch, &credit, Some("nobody")).is_empty());
    }

    #[test]
    fn a_subset_keeps_what_belongs_to_its_rows() {
        let batch = batch();
        let set = RowSet::from_credit(&batch, &credit(&batch), None);
        let all: Vec<u32> = (0..set.len() as u32).collect();
        let some = set.subset(&[3, 1]);
        assert_eq!((some.tokens_of(0), some.tokens_of(1)), (set.tokens_of(3), set.tokens_of(1)));
        assert_eq!(some.columns[column::ADVANTAGE].all().unwrap(), [1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(some.state_bytes(&some.turns[0]), set.state_bytes(&set.turns[set.rows[3].turns.start]));
        assert_eq!(some.turns.iter().map(|t| t.trained.clone()).collect::<Vec<_>>(), [0..2, 2..5]);
        assert_eq!(set.subset(&all).totals(&all), set.totals(&all));
    }

    #[test]
    fn rows_and_bundles_are_never_split() {
        let batch = batch();
        let mut credit = credit(&batch);
        credit[0].bundles = vec![Bundle { chosen: 0, rejected: 1 }];
        let set = RowSet::from_credit(&batch, &credit, None);
        let rows: Vec<u32> = set.units().concat();
        for max in [1, 5, 12, 13, 1000] {
            let micro = set.micro_batches(&rows, max);
            assert_eq!(micro.concat(), rows);
            assert!(micro.iter().any(|m| m.contains(&0) && m.contains(&1)), "{max}: {micro:?}");
        }
        assert_eq!(set.micro_batches(&rows, 1).len(), 3);
        assert_eq!(set.totals(&rows).bundles, 1);
    }

    #[test]
    fn the_chosen_of_a_bundle_comes_first() {
        let batch = batch();
        let mut credit = credit(&batch);
        credit[0].bundles = vec![Bundle { chosen: 1, rejected: 0 }];
        let set = RowSet::from_credit(&batch, &credit, None);
        let rows: Vec<_> = set.rows.iter().map(|row| (row.group, row.trajectory, row.bundle)).collect();
        assert_eq!(rows, [(0, 1, Some(0)), (0, 0, Some(0)), (1, 0, None), (1, 0, None)]);
    }

    #[test]
    fn signals_lie_on_the_tokens_of_their_turn() {
        let mut batch = batch();
        for (name, scope) in [("state", Scope::State), ("turn", Scope::Turn), ("token", Scope::Token)] {
            let column: Column = (0..batch.scope_len(scope)).map(|i| (i != 0).then_some(i as f32)).collect();
            batch.add_signal(name, Signal { scope, provider: "test".into(), column }).unwrap();
        }
        let set = RowSet::from_credit(&batch, &credit(&batch), None);
        let of = |name: &str| (0..9).map(|i| set.columns[name].get(i)).collect::<Vec<_>>();
        // states: start 0, after turns 1, 2, 3; then start 4, after turns 5, 6
        let state = [None, None, Some(1.0), Some(1.0), Some(1.0), Some(1.0), Some(4.0), Some(5.0), Some(5.0)];
        assert_eq!(of("signal/state"), state);
        let turn = [None, None, Some(1.0), Some(2.0), Some(2.0), Some(2.0), Some(3.0), Some(4.0), Some(4.0)];
        assert_eq!(of("signal/turn"), turn);
        assert_eq!(of("signal/token"), (0..9).map(|i| (i != 0).then_some(i as f32)).collect::<Vec<_>>());
    }
}
