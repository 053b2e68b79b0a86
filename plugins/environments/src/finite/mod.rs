//! Episodes and oracle of a task that is given as a table: what the enumerable environments share.
//!
//! What is none of the actions changes nothing, but the turn counts. Chance is the episode's own and counter-based: turn `t`
//! of an episode opened with seed `s` draws the number keyed by `(s, t)`, whatever was drawn before. Snapshots hold both.
//! Episodes of one seed, and continuations of one snapshot, therefore meet the same chance where they do the same: noise that
//! they share, on which no choice of theirs depends. `reseed` gives what follows chance of its own.
//!
//! The horizon makes values depend on the turn, so a state key holds the turn: a table of logits by state key is one by turn
//! and state. Observations show the state alone.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ascribe_core::environment::{
    ActionText, Capabilities, EnvironmentError, Observation, Oracle, Place, RestoreError, Snapshot, SnapshotKind, Step, TRAIN,
    TaskId, verify_restored,
};
use ascribe_core::log::{Context, Limit, Validity};
use ascribe_core::{Draw, End, Environment, FiniteMdp, Need, Provide, Seeds, TaskSet, mdp};
use serde::{Deserialize, Serialize};

use crate::sealed::{identity, seal, unseal};

/// Format of snapshots and state keys.
const VERSION: u32 = 1;

/// What a task is, as a table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The decision process. Every state that is no end has all `actions`.
    pub process: FiniteMdp,
    /// Texts of the actions, one word each, sorted.
    pub actions: Vec<String>,
    /// Texts of the observations, `[states]`, all different.
    pub shows: Vec<String>,
    /// Whether an episode that ends by this action has solved the task, `[states][actions]`.
    pub solves: Vec<Vec<bool>>,
    /// Reward of a turn in which nothing was understood.
    pub unknown_pays: f64,
}

/// A table with the identity that keys and snapshots carry.
#[derive(Debug)]
struct Task {
    table: Table,
    /// Of the set and the task.
    fingerprint: String,
}

impl Task {
    fn is_end(&self, state: usize) -> bool {
        self.table.process.transitions[state].is_empty()
    }
}

impl Oracle for Task {
    fn process(&self) -> &FiniteMdp {
        &self.table.process
    }

    fn actions(&self, state: usize) -> &[String] {
        if self.is_end(state) { &[] } else { &self.table.actions }
    }

    fn state_key(&self, place: Place) -> Vec<u8> {
        format!("{}\n{} {}", self.fingerprint, place.turn, place.state).into_bytes()
    }

    fn place(&self, state_key: &[u8]) -> Option<Place> {
        let (fingerprint, place) = std::str::from_utf8(state_key).ok()?.split_once('\n')?;
        let (turn, state) = place.split_once(' ')?;
        let place = Place { turn: turn.parse().ok()?, state: state.parse().ok()? };
        let exists = place.turn <= self.table.process.horizon && place.state < self.table.shows.len();
        (fingerprint == self.fingerprint && exists).then_some(place)
    }
}

/// A live episode.
#[derive(Clone, Debug)]
struct Episode {
    task: Arc<Task>,
    at: At,
}

/// All that changes, and the seed that decides how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    seed: u64,
    turn: usize,
    state: usize,
}

impl Episode {
    fn new(task: Arc<Task>, seed: u64) -> Self {
        let begin = task.table.process.start.iter().copied().enumerate();
        let state = drawn(begin, Seeds(seed).rng("finite/start", Draw::default()).unit());
        Self { task, at: At { seed, turn: 0, state } }
    }

    fn is_over(&self) -> bool {
        self.task.is_end(self.at.state) || self.at.turn >= self.task.table.process.horizon
    }

    fn text(&self) -> &str {
        &self.task.table.shows[self.at.state]
    }

    /// Carries out an action that was understood.
    fn act(&mut self, action: usize) -> Step {
        let Table { process, solves, .. } = &self.task.table;
        let At { seed, turn, state } = self.at;
        let chance = Seeds(seed).rng("finite/turn", Draw { turn: turn as u32, ..Draw::default() }).unit();
        self.at.state = drawn(process.transitions[state][action].iter().copied(), chance);
        let end = self.task.is_end(self.at.state).then_some(End::Terminated { success: solves[state][action] });
        Step { reward: process.rewards[state][action] as f32, end, ..Step::default() }
    }
}

/// The outcome whose share of `0..1` holds `chance`. Rounding may leave `chance` beyond the last share: then it is the last
/// outcome that can be.
fn drawn(outcomes: impl Iterator<Item = (usize, f64)>, chance: f64) -> usize {
    let mut below = 0.0;
    let mut last = 0;
    for (outcome, p) in outcomes.filter(|(_, p)| *p > 0.0) {
        below += p;
        last = outcome;
        if chance < below {
            break;
        }
    }
    last
}

impl Environment for Episode {
    fn observe(&self) -> Observation {
        let text = self.text().to_string();
        Observation { key: text.clone().into_bytes(), text, context: Context::Extend }
    }

    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        if self.is_over() {
            return Err(EnvironmentError("the episode is over: no action is possible after it".into()));
        }
        let known = if action.complete { self.task.action(self.at.state, action.text) } else { None };
        let mut step = match known {
            Some(action) => self.act(action),
            None => {
                let validity = if action.complete { Validity::Malformed } else { Validity::Cut };
                Step { reward: self.task.table.unknown_pays as f32, validity, ..Step::default() }
            }
        };
        self.at.turn += 1;
        if step.end.is_none() && self.is_over() {
            step.end = Some(End::Truncated(Limit::Turns));
        }
        Ok(step)
    }

    /// State and turns made: they decide how likely every future is. The seed is left out, or no two episodes would meet.
    fn state_key(&self) -> Vec<u8> {
        self.task.state_key(Place { turn: self.at.turn, state: self.at.state })
    }

    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        seal(&self.task.fingerprint, VERSION, &self.at, self.text().into())
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        let at: At = unseal(snapshot, &self.task.fingerprint, VERSION)?;
        let shown = self.task.table.shows.get(at.state).filter(|_| at.turn <= self.task.table.process.horizon);
        let shown = shown.ok_or_else(|| RestoreError::Damaged("this task has no such state".into()))?;
        verify_restored(&snapshot.observation, shown)?;
        self.at = at;
        Ok(())
    }

    fn reseed(&mut self, seed: u64) {
        self.at.seed = seed;
    }

    fn admissible(&self) -> Option<Vec<String>> {
        Some(if self.is_over() { Vec::new() } else { self.task.table.actions.clone() })
    }
}

/// What a set of such tasks provides.
pub fn provides() -> Vec<Provide> {
    vec![Need::Admissible, Need::ExactSnapshot, Need::ExactStateKey, Need::Oracle]
}

/// A set of such tasks. All are training tasks: there is nothing to carry over from one to another.
#[derive(Debug)]
pub struct FiniteTasks {
    name: &'static str,
    tasks: Vec<Arc<Task>>,
    fingerprint: String,
    capabilities: Capabilities,
}

impl FiniteTasks {
    /// Puts tables into a set of tasks, in their order.
    ///
    /// * `name`: of the environment, for messages and fingerprints
    /// * `tables`: at least one
    /// * `stop`: the word that ends an action
    /// * `r_max`: largest possible return
    ///
    /// # Panics
    /// If a table holds no decision process.
    pub fn new(name: &'static str, tables: Vec<Table>, stop: &str, r_max: f64) -> Self {
        for table in &tables {
            mdp::check(&table.process).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let fingerprint = format!("{name}/{VERSION}/{}", identity(&tables));
        let texts = tables.iter().flat_map(|table| table.shows.iter().chain(&table.actions)).map(String::as_str);
        let words = texts.flat_map(str::split_whitespace).chain([stop]);
        let mut vocabulary: Vec<String> = words.map(String::from).collect();
        vocabulary.sort_unstable();
        vocabulary.dedup();
        let capabilities = Capabilities {
            snapshot: SnapshotKind::Exact,
            exact_state_key: true,
            r_max,
            max_turns: tables.iter().map(|table| table.process.horizon).max().unwrap_or(0),
            max_action_tokens: 2,
            stop: stop.into(),
            vocabulary,
            provides: provides(),
        };
        let task = |(index, table): (u32, Table)| {
            let id = TaskId { split: TRAIN.into(), index };
            Arc::new(Task { table, fingerprint: format!("{fingerprint}/{id}") })
        };
        let tasks = (0..).zip(tables).map(task).collect();
        Self { name, tasks, fingerprint, capabilities }
    }

    fn task(&self, id: &TaskId) -> Option<&Arc<Task>> {
        self.tasks.get(id.index as usize).filter(|_| id.split == TRAIN)
    }
}

impl TaskSet for FiniteTasks {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn splits(&self) -> Vec<String> {
        vec![TRAIN.into()]
    }

    fn len(&self, split: &str) -> usize {
        if split == TRAIN { self.tasks.len() } else { 0 }
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        let found = self.task(task).ok_or_else(|| {
            EnvironmentError(format!("{} has no task `{task}`: split {TRAIN} has {}", self.name, self.tasks.len()))
        })?;
        Ok(Box::new(Episode::new(Arc::clone(found), seed)))
    }

    fn oracle(&self, task: &TaskId) -> Option<&dyn Oracle> {
        self.task(task).map(|task| &**task as &dyn Oracle)
    }
}
