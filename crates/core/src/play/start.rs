//! Where episodes begin: at a task's beginning, or in a state that was met before.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::environment::{ActionText, Environment, EnvironmentError, Snapshot, TaskId, TaskSet, verify_restored};
use crate::log::{History, Origin, Stop, TurnLog};
use crate::play::episode::guarded;

/// Where a group of episodes begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// The task.
    pub task: TaskId,
    /// A state of it; `None` is its beginning.
    pub state: Option<State>,
}

impl Start {
    /// The beginning of a task.
    pub fn of(task: TaskId) -> Self {
        Self { task, state: None }
    }
}

/// A state that episodes go on from. They all meet chance of their own ([`Environment::reseed`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Seed that the environment was opened with.
    pub seed: u64,
    /// The way back there.
    pub back: Back,
    /// Turns that were made before it.
    pub turns: usize,
    /// What the policy read and said before it, since its sequence began anew for the last time.
    pub history: History,
    /// Where the state comes from.
    pub origin: Origin,
}

/// The way back to a state: a snapshot, then what was done since; without a snapshot, what was done since the task's
/// beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Back {
    /// The bytes of a state on the way, which the environment verifies.
    pub snapshot: Option<Arc<Snapshot>>,
    /// What was done from there on, each deed verified.
    pub deeds: Vec<Deed>,
    /// What the state showed, byte for byte, where that is known: it is verified last.
    pub shown: Option<String>,
}

/// One deed of a replay, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deed {
    /// Seed of the chance that it and what follows met, where that changed before it ([`Environment::reseed`]).
    pub reseed: Option<u64>,
    /// What was said, without the stop token.
    pub text: String,
    /// Whether it came to its stop token.
    pub complete: bool,
    /// What the environment paid.
    pub reward: f32,
    /// Exact key of the state after it.
    pub state_after: Vec<u8>,
}

impl Back {
    /// Opens an episode and brings it back.
    ///
    /// # Errors
    /// If the episode cannot be opened, the snapshot is refused, a deed gives something else than it did, or the state shows
    /// something else; the message names the first that does.
    pub fn open(&self, tasks: &dyn TaskSet, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        let mut environment = guarded(|| tasks.open(task, seed))?;
        if let Some(snapshot) = &self.snapshot {
            guarded(|| environment.restore(snapshot).map_err(|e| EnvironmentError(format!("a state was not restored: {e}"))))?;
        }
        for (i, deed) in self.deeds.iter().enumerate() {
            if let Some(seed) = deed.reseed {
                environment.reseed(seed);
            }
            let said = ActionText { text: &deed.text, complete: deed.complete };
            let step = guarded(|| environment.step(said))?;
            let diverged = |what: String| EnvironmentError(format!("replaying deed {i}, `{}`: {what}", deed.text));
            if step.reward.to_bits() != deed.reward.to_bits() {
                return Err(diverged(format!("it paid {} and now pays {}", deed.reward, step.reward)));
            }
            let now = guarded(|| Ok(environment.state_key()))?;
            if now != deed.state_after {
                let at = now.iter().zip(&deed.state_after).position(|(a, b)| a != b);
                let at = at.unwrap_or(now.len().min(deed.state_after.len()));
                return Err(diverged(format!("the state after it is another one, from byte {at} of its key on")));
            }
        }
        if let Some(shown) = &self.shown {
            let now = guarded(|| Ok(environment.observe().text))?;
            verify_restored(shown, &now).map_err(|e| EnvironmentError(format!("a state was not restored: {e}")))?;
        }
        Ok(environment)
    }
}

impl Deed {
    /// The deed of a recorded turn, which met the chance of the turns before it.
    pub fn of(turn: &TurnLog) -> Self {
        Self {
            reseed: None,
            text: turn.action_text.clone(),
            complete: turn.action.stop == Stop::Complete,
            reward: turn.reward,
            state_after: turn.state_after.clone(),
        }
    }
}
