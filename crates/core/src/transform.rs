//! Transforms: what happens to a batch's credit before it trains.

use std::fmt;

use crate::batch::Batch;
use crate::credit::Credit;
use crate::metrics::Metrics;
use crate::need::Need;
use crate::now::Now;
use crate::registry::slot_schema;
use crate::seed::Seeds;

/// A batch of credit becomes a batch of credit: whiten, modulate, clip, drop, controls.
#[typetag::serde]
pub trait CreditTransform: fmt::Debug + Send + Sync {
    /// What it needs.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// Changes the credit of the batch's groups in place, `[groups]`. What it counts, it returns as metrics.
    /// Its random numbers come from `seeds`, keyed by update and group.
    fn apply(&self, batch: &Batch, credit: &mut [Credit], now: &Now, seeds: Seeds) -> Metrics;
}
slot_schema!(CreditTransform => "transform");
