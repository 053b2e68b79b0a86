//! Half of a trajectory's outcome for each of its turns.
//!
//! `A_t = share · Σ_k r_k`; a shared turn gets the mean over its leaves.
//!
//! An example of a plugin outside the repository. Edge cases: it has no baseline, so equal outcomes still train.

use ascribe_core::range::Unit;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Now, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[estimator.half-outcome]`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HalfOutcome {
    /// Share of the outcome, in 0..=1.
    pub share: Unit,
}

plugin! {
    Estimator "half-outcome" {
        summary: "A share of the outcome for every turn.",
        source: "",
        when: "As an example.",
        example: "share = 0.5",
    }
    impl AdvantageEstimator for HalfOutcome {
        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let per_leaf: Vec<f64> = group.outcomes().iter().map(|outcome| *self.share * outcome).collect();
            Ok(Credit::per_turn(group.mean_over_leaves(&per_leaf)))
        }
    }
}
