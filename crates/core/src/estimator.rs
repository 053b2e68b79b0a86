//! Advantage estimators: a group becomes credit.

use std::fmt;

use crate::batch::Group;
use crate::credit::Credit;
use crate::need::Need;
use crate::now::Now;
use crate::registry::slot_schema;

/// Why an estimator failed. Only one that calls an external command can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EstimateError(pub String);

/// What an estimator claims of its credit beyond what all must keep. `ascribe verify` and the conformance tests hold it to
/// that, on independent rollouts that truly ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// The same amount more for every outcome changes nothing.
    Shift,
    /// Rewards and values times a positive number give advantages times that number.
    Scale,
    /// Rewards and values times a positive number change nothing, but for what an ε does.
    ScaleFree,
    /// Equal outcomes give exactly 0.
    NoSpreadNoCredit,
    /// Each path's advantage counted once, a group's sum to 0.
    SumToZero,
    /// Along a path, advantages sum to its outcome minus the value of its start.
    Telescoping,
    /// A path that a limit cut gets other credit than one that truly ended.
    Bootstraps,
    /// In expectation its policy gradient points uphill.
    Ascent,
}

/// A group becomes credit. Pure: the same group gives the same credit.
#[typetag::serde]
pub trait AdvantageEstimator: fmt::Debug + Send + Sync {
    /// What it needs, nested estimators and its own configuration considered.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// Signals that it gives targets for.
    fn targets(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it claims, its own configuration considered.
    fn laws(&self) -> Vec<Law> {
        Vec::new()
    }

    /// Credit of one group.
    ///
    /// # Errors
    /// Only one that calls an external command can fail.
    fn estimate(&self, group: Group<'_>, now: &Now) -> Result<Credit, EstimateError>;
}
slot_schema!(AdvantageEstimator => "estimator");
