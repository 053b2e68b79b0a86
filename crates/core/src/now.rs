//! Where a run stands. Every stage gets it, and it is recorded with the batch.

use crate::metrics::Metrics;

/// Where a run stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Now {
    /// Updates done in the run.
    pub update: u32,
    /// Name of the phase.
    pub phase: String,
    /// Updates done in the phase.
    pub phase_update: u32,
    /// Updates the phase will have.
    pub phase_updates: u32,
    /// Metrics of the last update.
    pub metrics: Metrics,
}

impl Now {
    /// Share of the phase that is done, in 0..=1.
    pub fn progress(&self) -> f64 {
        f64::from(self.phase_update) / f64::from(self.phase_updates.max(1))
    }
}
