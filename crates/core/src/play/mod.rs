//! Playing episodes: the one place where policies and environments meet.
//!
//! Episodes run in lock-step: one policy batch per turn over all that are live, environments in parallel. Every random
//! number is keyed by (update, group, member, turn), so results depend neither on threads nor on who ends first.
//!
//! [`Play`] says what to play. [`Play::sample`] plays it to the end; who wants to branch, to choose among candidates or to
//! stop on the way drives a [`Crowd`] turn by turn; who lets critics judge in between, a [`Resting`] one.

mod crowd;
mod episode;
mod expert;
mod start;

use std::sync::Arc;
use std::time::Duration;

use crate::environment::{Environment, EnvironmentError, TaskSet};
use crate::ledger::Ledger;
use crate::log::GroupLog;
use crate::policy::Policy;
use crate::rollout::RolloutError;
use crate::seed::{Draw, Seeds};
use crate::tokenizer::Tokenizer;
use crate::trie::Trie;

pub use crowd::{Branch, Candidates, Crowd, Resting};
pub use start::{Back, Deed, Start, State};

/// What actions may be made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decode {
    /// Any tokens.
    #[default]
    Free,
    /// One of the environment's admissible actions. The support is recorded with every token.
    Admissible,
}

/// What is kept of every turn beside what training needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Privileged text before each turn.
    pub privileged: bool,
    /// A snapshot of each group's start and after each turn, where the environment has snapshots.
    pub snapshots: bool,
}

/// What to play.
#[derive(Clone, Debug)]
pub struct Play<'a> {
    /// Name of the policy node that acts.
    pub agent: &'a str,
    /// Where to begin, one group each.
    pub starts: &'a [Start],
    /// Episodes per start, at least 1.
    pub members: usize,
    /// Temperature; 0 is greedy.
    pub temperature: f32,
    /// What actions may be made of.
    pub decode: Decode,
    /// What is kept.
    pub keep: Keep,
    /// Longest time that a step of an environment may take; `None` is no limit. What takes longer fails.
    pub patience: Option<Duration>,
    /// Stream of random numbers, e.g. `rollout` or `evaluate`.
    pub stream: &'a str,
    /// Update that the random numbers are keyed by.
    pub update: u32,
    /// The run's seed.
    pub seeds: Seeds,
}

impl Play<'_> {
    /// Plays every episode to its end.
    ///
    /// # Errors
    /// If the policy fails. An episode that breaks is a failed leaf of its group.
    pub fn sample(
        &self,
        policy: &mut dyn Policy,
        tasks: &dyn TaskSet,
        ledger: &mut Ledger,
    ) -> Result<Vec<GroupLog>, RolloutError> {
        let mut crowd = Crowd::open(self, policy, tasks, ledger)?;
        while crowd.step(policy, ledger)? {}
        Ok(crowd.finish(policy, ledger))
    }

    fn draw(&self, group: usize, member: usize, turn: usize) -> Draw {
        Draw { update: self.update, group: group as u32, member: member as u32, turn: turn as u32 }
    }

    /// The admissible actions as sequences of tokens, where these are all that may be said.
    fn trie(
        &self,
        environment: &dyn Environment,
        tokenizer: &dyn Tokenizer,
        stop: u32,
    ) -> Result<Option<Arc<Trie>>, EnvironmentError> {
        if self.decode == Decode::Free {
            return Ok(None);
        }
        let actions = environment.admissible().filter(|actions| !actions.is_empty()).ok_or_else(|| {
            EnvironmentError("`decode = \"admissible\"` needs an environment that lists admissible actions".into())
        })?;
        Ok(Some(Arc::new(Trie::new(actions.iter().map(|action| {
            let mut tokens = tokenizer.encode(action);
            tokens.push(stop);
            tokens
        })))))
    }
}

fn stop_token(tokenizer: &dyn Tokenizer, stop: &str) -> Result<u32, EnvironmentError> {
    tokenizer
        .token(stop)
        .ok_or_else(|| EnvironmentError(format!("the tokenizer has no token for the environment's stop word `{stop}`")))
}
