//! Critics: what judges states, turns or tokens.

use std::fmt;
use std::sync::Arc;

use crate::batch::Batch;
use crate::build::{BuildContext, BuildError};
use crate::credit::Credit;
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
    pub rows: Arc<RowSet>,
    /// What to descend.
    pub objective: Box<dyn Objective>,
    /// Factor on its coefficients.
    pub scale: f64,
}

/// What judges.
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
}
slot_schema!(CriticConfig => "critic");
