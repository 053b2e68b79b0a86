//! Rollout strategies: how tasks become groups of turns.

use std::collections::BTreeMap;
use std::fmt;

use crate::build::{BuildContext, BuildError};
use crate::environment::{EnvironmentError, TaskSet};
use crate::ledger::Ledger;
use crate::log::GroupLog;
use crate::need::{Need, Provide};
use crate::now::Now;
use crate::play::Decode;
use crate::policy::{Policy, PolicyError};
use crate::registry::slot_schema;
use crate::seed::Seeds;

/// Policy nodes by name.
pub type Nodes = BTreeMap<String, Box<dyn Policy>>;

/// What acting stages (rollouts, critics) share.
pub struct Acting<'a> {
    /// Policy nodes.
    pub nodes: &'a mut Nodes,
    /// The tasks.
    pub tasks: &'a mut dyn TaskSet,
    /// Training tasks drawn so far; a strategy that draws moves it on.
    pub drawn: &'a mut u64,
    /// The run's seed.
    pub seeds: Seeds,
    /// What was spent.
    pub ledger: &'a mut Ledger,
    /// Where the run stands.
    pub now: &'a Now,
}

impl Acting<'_> {
    /// The policy node of that name.
    ///
    /// # Errors
    /// If there is none: `check` refuses such an experiment.
    pub fn node(&mut self, name: &str) -> Result<&mut Box<dyn Policy>, PolicyError> {
        node(self.nodes, name)
    }
}

/// The policy node of that name, for who needs the other parts of [`Acting`] at the same time.
///
/// # Errors
/// If there is none: `check` refuses such an experiment.
pub fn node<'a>(nodes: &'a mut Nodes, name: &str) -> Result<&'a mut Box<dyn Policy>, PolicyError> {
    nodes.get_mut(name).ok_or_else(|| PolicyError::Unsupported(format!("there is no policy node `{name}`")))
}

/// Why a rollout failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutError {
    /// The policy failed.
    #[error("the policy failed: {0}")]
    Policy(#[from] PolicyError),
    /// No episode could be opened.
    #[error("the environment failed: {0}")]
    Environment(#[from] EnvironmentError),
    /// There are no tasks to draw.
    #[error("{0}")]
    NoTasks(String),
}

/// How tasks become groups.
pub trait RolloutStrategy: Send {
    /// The groups of one update.
    ///
    /// # Errors
    /// If the policy or every episode failed. A single episode that breaks is a failed leaf.
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError>;

    /// Its state.
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

/// `[rollout.PLUGIN]`: what TOML says about a rollout strategy.
#[typetag::serde]
pub trait RolloutConfig: fmt::Debug + Send + Sync {
    /// Builds it.
    ///
    /// # Errors
    /// If its configuration cannot work with this environment.
    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError>;

    /// What it needs.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// What its groups provide: their size, chains, log-probabilities, entropies.
    fn provides(&self) -> Vec<Provide>;

    /// The policy node that acts.
    fn agent(&self) -> &str;

    /// What its actions are made of. An evaluation plays the same way.
    fn decode(&self) -> Decode {
        Decode::Free
    }
}
slot_schema!(RolloutConfig => "rollout");
