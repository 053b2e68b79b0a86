//! Environments: live episodes, and the sets of tasks they are opened from.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::build::{BuildContext, BuildError};
use crate::log::{Context, End, Validity};
use crate::mdp::{ActionTable, FiniteMdp};
use crate::need::Provide;
use crate::registry::slot_schema;
use crate::seed::{Draw, Rng, Seeds};

/// A task: which split, which one of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskId {
    /// The split it belongs to.
    pub split: String,
    /// Index within the split.
    pub index: u32,
}
impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.split, self.index)
    }
}

/// The split that training draws from.
pub const TRAIN: &str = "train";

/// What went wrong in an environment. The episode fails; the run goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EnvironmentError(pub String);

/// What the agent reads before it acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The text.
    pub text: String,
    /// How it joins what the agent has read.
    pub context: Context,
    /// What makes two observations the same one (without history, counters or prompt text): grouping reads it. Where it is
    /// no text, see [`KeyPart`](crate::key::KeyPart).
    pub key: Vec<u8>,
}

/// What an action did.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Reward of this turn.
    pub reward: f32,
    /// How the episode ended, if it did. Where the environment ends and a limit is reached at once, the environment
    /// has the last word.
    pub end: Option<End>,
    /// What became of the action.
    pub validity: Validity,
    /// Named numbers about this turn, e.g. `exploit`.
    pub signals: Vec<(String, f32)>,
}

/// An action as text: what the agent said, without the stop token.
#[derive(Clone, Copy, Debug)]
pub struct ActionText<'a> {
    /// The text.
    pub text: &'a str,
    /// Whether it came to its stop token; false where the token limit cut it.
    pub complete: bool,
}

/// A saved state: versioned bytes with the environment's randomness, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Fingerprint of the environment and task that wrote it.
    pub fingerprint: String,
    /// Version of the bytes' format.
    pub version: u32,
    /// The state.
    pub bytes: Vec<u8>,
    /// The observation at that state; `restore` verifies it.
    pub observation: String,
}

/// Why a snapshot was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It belongs to another environment or task.
    #[error("the snapshot belongs to `{found}`, this is `{expected}`")]
    Foreign {
        /// Whose it is.
        found: String,
        /// Who reads it.
        expected: String,
    },
    /// The format is another one.
    #[error("the snapshot has format {found}, this version reads {expected}")]
    Version {
        /// Its format.
        found: u32,
        /// The format read here.
        expected: u32,
    },
    /// The bytes are damaged.
    #[error("the snapshot is damaged: {0}")]
    Damaged(String),
    /// The state came back, but it shows something else.
    #[error("after restoring, the observation differs from the saved one at byte {at}")]
    Diverged {
        /// First byte that differs.
        at: usize,
    },
    /// The environment has no snapshots.
    #[error("this environment has no snapshots")]
    Unsupported,
}

/// A live episode.
pub trait Environment: Send + Sync {
    /// What the agent reads next. Calling it twice gives the same.
    fn observe(&self) -> Observation;

    /// Carries out an action.
    ///
    /// # Errors
    /// Only where the environment itself broke: an action that cannot be understood is a [`Step`].
    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError>;

    /// Exact key of the state: equal keys mean equal futures.
    fn state_key(&self) -> Vec<u8>;

    /// Saves the state.
    ///
    /// # Errors
    /// Where the environment has no snapshots.
    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        Err(RestoreError::Unsupported)
    }

    /// Goes back to a saved state, and verifies that it shows the saved observation byte for byte. After an error the
    /// episode is as it was.
    ///
    /// # Errors
    /// If the snapshot is foreign, damaged or of another format, or if it shows something else.
    fn restore(&mut self, _snapshot: &Snapshot) -> Result<(), RestoreError> {
        Err(RestoreError::Unsupported)
    }

    /// Gives the rest of the episode other random numbers: continuations of one snapshot then meet chance of their own. The
    /// state stays as it is. An environment that draws nothing after its start has nothing to do.
    fn reseed(&mut self, _seed: u64) {}

    /// Actions that are possible, as text without the stop token, sorted; `None` where it does not say.
    fn admissible(&self) -> Option<Vec<String>> {
        None
    }

    /// What a scripted expert does here, without the stop token. It looks only where the agent could.
    fn expert(&mut self, _rng: &mut Rng) -> Option<String> {
        None
    }

    /// Text about the state that only critics may read.
    fn privileged(&self) -> Option<String> {
        None
    }

    /// The answer that a reward model may compare with.
    fn ground_truth(&self) -> Option<String> {
        None
    }

    /// Sub-goal stage reached, for curves and stage-wise metrics.
    fn stage(&self) -> Option<u32> {
        None
    }
}

/// Compares a restored observation with the saved one.
///
/// # Errors
/// [`RestoreError::Diverged`] at the first byte that differs.
pub fn verify_restored(saved: &str, now: &str) -> Result<(), RestoreError> {
    if saved == now {
        return Ok(());
    }
    let at = saved.bytes().zip(now.bytes()).position(|(a, b)| a != b).unwrap_or(saved.len().min(now.len()));
    Err(RestoreError::Diverged { at })
}

/// How well an environment can go back to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotKind {
    /// Not at all.
    None,
    /// By replaying the actions from the start.
    Replay,
    /// Exactly, from bytes.
    Exact,
}

/// What a set of tasks can do and how an agent talks to it.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// How it goes back to a state.
    pub snapshot: SnapshotKind,
    /// Whether equal state keys mean equal futures.
    pub exact_state_key: bool,
    /// Largest possible return.
    pub r_max: f64,
    /// Turns after which an episode is truncated.
    pub max_turns: usize,
    /// Tokens an action may have, the stop token included.
    pub max_action_tokens: usize,
    /// The word that ends an action.
    pub stop: String,
    /// Words of observations and actions, for word-level tokenizers.
    pub vocabulary: Vec<String>,
    /// What else it provides: admissible actions, an expert, privileged text, ground truth, signals.
    pub provides: Vec<Provide>,
}

/// How often a task was solved in an update.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The task.
    pub task: TaskId,
    /// Outcome of each member that trained.
    pub returns: Vec<f64>,
    /// Members that solved it.
    pub solved: usize,
}

/// Where an episode of an enumerated task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Turns that were made, in `0..=horizon`.
    pub turn: usize,
    /// Index of the state.
    pub state: usize,
}

/// A task small enough to be enumerated: its numbers, and the way from what a record holds to their indices.
///
/// A record of a turn holds the key of the state it was made in and the action's text; [`Oracle::place`] and
/// [`Oracle::action`] turn them into indices of the tables that [`crate::mdp::solve`] gives:
///
/// ```ignore
/// let exact = mdp::solve(oracle.process(), &oracle.policy(&probability));
/// let (place, action) = (oracle.place(state_key)?, oracle.action(place.state, text)?);
/// let advantage = exact.advantages[place.turn][place.state][action];
/// ```
///
/// A key after the last turn has its place too: there the value is 0.
///
/// Only the listed actions are enumerated: exact answers are those of policies that choose among them.
pub trait Oracle: Send + Sync {
    /// The task as a decision process.
    fn process(&self) -> &FiniteMdp;

    /// Texts of a state's actions by their index, without the stop token, sorted; empty at an end.
    fn actions(&self, state: usize) -> &[String];

    /// The exact key that [`Environment::state_key`] gives there.
    fn state_key(&self, place: Place) -> Vec<u8>;

    /// The place that a state key names; `None` for a key of another task.
    fn place(&self, state_key: &[u8]) -> Option<Place>;

    /// Index of an action by its text; `None` for what is none of the state's actions.
    fn action(&self, state: usize, text: &str) -> Option<usize> {
        self.actions(state).iter().position(|action| action == text.trim())
    }

    /// The table of a policy that gives the probability of an action's text at a state key.
    fn policy(&self, probability: &dyn Fn(&[u8], &str) -> f64) -> ActionTable {
        let row = |turn, state| {
            let key = self.state_key(Place { turn, state });
            self.actions(state).iter().map(|action| probability(&key, action)).collect()
        };
        let n_states = self.process().transitions.len();
        (0..self.process().horizon).map(|turn| (0..n_states).map(|state| row(turn, state)).collect()).collect()
    }
}

/// A set of tasks.
pub trait TaskSet: Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// Names of the splits, [`TRAIN`] first.
    fn splits(&self) -> Vec<String>;

    /// Number of tasks in a split; 0 for a split that does not exist.
    fn len(&self, split: &str) -> usize;

    /// Whether a split has no tasks.
    fn is_empty(&self, split: &str) -> bool {
        self.len(split) == 0
    }

    /// What a task is called.
    fn name(&self, task: &TaskId) -> String {
        task.to_string()
    }

    /// The kind of task, for tables by kind.
    fn category(&self, _task: &TaskId) -> Option<String> {
        None
    }

    /// Identity of the tasks and their rules: runs and snapshots of another fingerprint do not fit.
    fn fingerprint(&self) -> String;

    /// The next `n` training tasks, from the `drawn`-th on. The default goes through seeded epochs: every task once,
    /// in an order that depends on seed and epoch alone.
    fn draw(&mut self, n: usize, drawn: u64, seeds: Seeds) -> Vec<TaskId> {
        let len = self.len(TRAIN) as u64;
        let mut orders: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        (drawn..drawn + n as u64)
            .filter(|_| len > 0)
            .map(|i| {
                let order = orders.entry(i / len).or_insert_with(|| {
                    let mut order: Vec<u32> = (0..len as u32).collect();
                    seeds.rng("draw", Draw { update: (i / len) as u32, ..Draw::default() }).shuffle(&mut order);
                    order
                });
                TaskId { split: TRAIN.into(), index: order[(i % len) as usize] }
            })
            .collect()
    }

    /// Opens an episode of a task.
    ///
    /// # Errors
    /// If the task does not exist or cannot be read; the message names it.
    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError>;

    /// Is told what became of the tasks it gave out.
    fn learn(&mut self, _outcomes: &[Outcome]) {}

    /// Exact answers about a task, where it has them.
    fn oracle(&self, _task: &TaskId) -> Option<&dyn Oracle> {
        None
    }

    /// Its state, where it has one (a curriculum).
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes up a saved state.
    ///
    /// # Errors
    /// If the bytes are not its own.
    fn load(&mut self, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// `[environment.NAME]`: what TOML says about a set of tasks.
#[typetag::serde]
pub trait TaskSetConfig: fmt::Debug + Send + Sync {
    /// Opens the set.
    ///
    /// # Errors
    /// If its data cannot be had; the message says what gets them.
    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError>;

    /// What it provides, known before its data are opened.
    fn provides(&self) -> Vec<Provide>;
}
slot_schema!(TaskSetConfig => "environment");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_byte_is_named() {
        assert_eq!(verify_restored("abc", "abc"), Ok(()));
        assert_eq!(verify_restored("abc", "abd"), Err(RestoreError::Diverged { at: 2 }));
        assert_eq!(verify_restored("abc", "ab"), Err(RestoreError::Diverged { at: 2 }));
    }
}
