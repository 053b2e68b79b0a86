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

    /// Credit of one group.
    ///
    /// # Errors
    /// Only one that calls an external command can fail.
    fn estimate(&self, group: Group<'_>, now: &Now) -> Result<Credit, EstimateError>;
}
slot_schema!(AdvantageEstimator => "estimator");
