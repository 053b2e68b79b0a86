//! Critics: what judges states, turns or tokens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::batch::Batch;
use crate::build::{BuildContext, BuildError};
use crate::credit::{Credit, Target};
use crate::need::{Need, Provide};
use crate::objective::Objective;
use crate::policy::{HeadSpec, PolicyError};
use crate::registry::slot_schema;
use crate::rollout::Acting;
use crate::rows::RowSet;
use crate::signal::{Scope, Signal};

/// What a critic wants trained: rows through a policy node, with its own objective. The loop merges them with the
/// actor's: one step per node.
pub struct Lesson {
    /// The policy node.
    pub node: String,
    /// The rows.
    pub rows: LessonRows,
    /// What to descend.
    pub objective: Arc<dyn Objective>,
    /// Factor on its coefficients.
    pub scale: f64,
}

/// What a lesson is read from.
pub enum LessonRows {
    /// Rows of its own: a forward and a backward pass for them.
    Own(Arc<RowSet>),
    /// The rows that the node's own actions give, with these targets by name, one per group: the actor and all who share its
    /// rows have one forward and one backward pass. Tokens that the actor does not train on are not in them.
    Acted(BTreeMap<String, Vec<Target>>),
}

impl LessonRows {
    /// Its own rows, if it has them.
    pub fn own(&self) -> Option<&Arc<RowSet>> {
        match self {
            LessonRows::Own(rows) => Some(rows),
            LessonRows::Acted(_) => None,
        }
    }
}

/// A critic and its name in TOML.
pub struct NamedCritic {
    /// Its name.
    pub name: String,
    /// The critic.
    pub critic: Box<dyn Critic>,
}

/// Why a critic failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("critic `{name}` failed: {reason}")]
pub struct CriticError {
    /// Its name in TOML.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl NamedCritic {
    /// Attaches the columns that it computes; only those that it declared.
    ///
    /// # Errors
    /// If it fails, computes what it did not declare, or what the batch refuses.
    pub fn judge(&mut self, batch: &mut Batch, acting: &mut Acting<'_>) -> Result<(), CriticError> {
        let failed = |reason: String| CriticError { name: self.name.clone(), reason };
        let declared = self.critic.provides();
        for (name, signal) in self.critic.judge(batch, acting).map_err(|e| failed(e.to_string()))? {
            if !declared.contains(&(name.clone(), signal.scope)) {
                return Err(failed(format!("it computed `{name}`, which it did not declare")));
            }
            batch.add_signal(&name, signal).map_err(failed)?;
        }
        Ok(())
    }
}

/// What judges. What there is to tell of its work it puts into [`Acting::metrics`], under `critic/NAME/`.
pub trait Critic: Send {
    /// Columns it computes.
    fn provides(&self) -> Vec<(String, Scope)>;

    /// Heads it wants on policy nodes, as (node, head).
    fn heads(&self) -> Vec<(String, HeadSpec)> {
        Vec::new()
    }

    /// Reads a batch and returns columns, which the caller attaches: a critic cannot write what it did not declare.
    ///
    /// # Errors
    /// If a policy fails.
    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError>;

    /// Rows to train on, made from the batch and its credit; or trains itself and returns none.
    ///
    /// # Errors
    /// If a policy fails.
    fn learn(&mut self, _batch: &Batch, _credit: &[Credit], _acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        Ok(Vec::new())
    }

    /// Its state.
    ///
    /// # Errors
    /// If it cannot be written.
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(Vec::new())
    }

    /// Takes up a saved state.
    ///
    /// # Errors
    /// If the bytes are not its own.
    fn load(&mut self, _bytes: &[u8]) -> Result<(), PolicyError> {
        Ok(())
    }
}

/// `[critic.NAME.PLUGIN]`: what TOML says about a critic.
#[typetag::serde]
pub trait CriticConfig: fmt::Debug + Send + Sync {
    /// Builds it.
    ///
    /// # Errors
    /// If its configuration or files cannot be had.
    fn build(&self, name: &str, context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError>;

    /// What it needs.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// What it provides.
    fn provides(&self) -> Vec<Provide>;

    /// Words that it reads or writes and that no environment knows: policies with a vocabulary of words learn them too.
    fn words(&self) -> Vec<String> {
        Vec::new()
    }
}
slot_schema!(CriticConfig => "critic");
