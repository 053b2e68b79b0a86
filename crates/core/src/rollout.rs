//! Rollout strategies: how tasks become groups of turns.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::batch::{Batch, NonFinite, RecordError};
use crate::build::{BuildContext, BuildError};
use crate::critic::{CriticError, NamedCritic};
use crate::environment::{EnvironmentError, TaskSet};
use crate::ledger::Ledger;
use crate::log::GroupLog;
use crate::metrics::Metrics;
use crate::need::{Need, Provide};
use crate::now::Now;
use crate::play::{Decode, Keep, Play, Start};
use crate::policy::{Policy, PolicyError};
use crate::registry::slot_schema;
use crate::seed::Seeds;

/// Policy nodes by name.
pub type Nodes = BTreeMap<String, Box<dyn Policy>>;

/// What acting stages (rollouts, critics) share.
pub struct Acting<'a> {
    /// Policy nodes.
    pub nodes: &'a mut Nodes,
    /// Critics, in the order in which they judge, for rollouts that ask them on the way ([`Acting::judge`]); none while a
    /// critic acts.
    pub critics: &'a mut Vec<NamedCritic>,
    /// The tasks.
    pub tasks: &'a mut dyn TaskSet,
    /// Training tasks drawn so far; a strategy that draws moves it on.
    pub drawn: &'a mut u64,
    /// The run's seed.
    pub seeds: Seeds,
    /// How often a wrapper has asked for groups in this update: part of the names of streams ([`Acting::stream`]).
    pub round: u32,
    /// What the phase's plugins want kept of every turn.
    pub keep: Keep,
    /// Longest time that a step of an environment may take; `None` is no limit.
    pub patience: Option<Duration>,
    /// What was spent.
    pub ledger: &'a mut Ledger,
    /// What there is to report of this update.
    pub metrics: &'a mut Metrics,
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

    /// Episodes of this update, freely said at temperature 1.
    ///
    /// * `members`: episodes per start, at least 1.
    /// * `stream`: of random numbers, as [`Acting::stream`] gives it.
    pub fn play<'p>(&self, agent: &'p str, starts: &'p [Start], members: usize, stream: &'p str) -> Play<'p> {
        Play {
            agent,
            starts,
            members,
            temperature: 1.0,
            decode: Decode::Free,
            keep: self.keep,
            patience: self.patience,
            stream,
            update: self.now.update,
            seeds: self.seeds,
        }
    }

    /// A stream of random numbers that no other round of this update uses.
    pub fn stream(&self, name: &str) -> String {
        if self.round == 0 { name.into() } else { format!("{name}/round-{}", self.round) }
    }

    /// The beginnings of the next `n` tasks; the count of drawn ones moves on.
    ///
    /// # Errors
    /// If there are no training tasks.
    pub fn draw(&mut self, n: usize) -> Result<Vec<Start>, RolloutError> {
        let tasks = self.tasks.draw(n, *self.drawn, self.seeds);
        if tasks.is_empty() {
            return Err(RolloutError::NoTasks("the environment has no training tasks".into()));
        }
        *self.drawn += tasks.len() as u64;
        Ok(tasks.into_iter().map(Start::of).collect())
    }

    /// Has groups judged by the critic that provides `column`, after those before it in order, whose columns it may need.
    ///
    /// # Errors
    /// If the records are refused, a critic fails, or none provides the column.
    pub fn judge(&mut self, groups: Vec<GroupLog>, column: &str) -> Result<Batch, RolloutError> {
        let mut batch = Batch::from_groups(groups, NonFinite::Refuse)?;
        // Critics do not see each other at work.
        let mut critics = std::mem::take(self.critics);
        let mut judged = Ok(());
        for critic in &mut critics {
            judged = critic.judge(&mut batch, self);
            if judged.is_err() || batch.signals.contains_key(column) {
                break;
            }
        }
        *self.critics = critics;
        judged?;
        if batch.signals.contains_key(column) {
            return Ok(batch);
        }
        Err(RolloutError::NoCritic { column: column.into() })
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
    /// Records that were to be judged are not what they should be.
    #[error("the records to be judged were refused: {0}")]
    Record(#[from] RecordError),
    /// A critic that was asked on the way failed.
    #[error("{0}")]
    Critic(#[from] CriticError),
    /// No critic provides a column that is needed on the way.
    #[error("no critic provides the column `{column}`")]
    NoCritic {
        /// The column.
        column: String,
    },
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

    /// Whether its groups begin where their task does, and its paths go on until the episode is over or a limit is met. Where they stop
    /// before, an estimator has to say by a value what is still to come.
    fn whole_episodes(&self) -> bool {
        true
    }

    /// The policy node that acts.
    fn agent(&self) -> &str;

    /// What its actions are made of. An evaluation plays the same way.
    fn decode(&self) -> Decode {
        Decode::Free
    }
}
slot_schema!(RolloutConfig => "rollout");
