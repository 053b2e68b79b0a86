//! GPG's scale: makes up for paths without an outcome, which give no gradient.
//!
//! `A ← α A`, `α = paths / paths with an outcome other than 0`, over the batch.
//!
//! Chu et al. 2025, "GPG: Group Policy Gradient", arXiv 2504.02546; verl `compute_gpg_outcome_advantage`, which does this and
//! the centring in one function. Edge cases: where every outcome is 0, α is the number of paths, and the advantages are 0.
//! Untried paths do not count.

use ascribe_core::{Batch, Credit, CreditTransform, End, Metrics, Now, Seeds, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::update_advantages;

/// `[[transform]] gpg = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gpg {}

/// α of these outcomes, `[paths of the batch]`.
pub fn gpg_scale(outcomes: &[f64]) -> f64 {
    let with_outcome = outcomes.iter().filter(|r| **r != 0.0).count();
    outcomes.len() as f64 / with_outcome.max(1) as f64
}

plugin! {
    Transform "gpg" {
        summary: "Scales a batch's advantages by paths per path with an outcome.",
        source: "Chu et al. 2025, GPG, arXiv 2504.02546; verl compute_gpg_outcome_advantage",
        when: "After the estimator `gpg`, whose second half it is.",
        example: "",
        module: "gpg.rs",
    }
    impl CreditTransform for Gpg {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let tried = |group: ascribe_core::Group<'_>| {
                let tried: Vec<bool> = group.trajectories().map(|path| path.leaf().end != End::Untried).collect();
                group.outcomes().into_iter().zip(tried).filter_map(|(r, tried)| tried.then_some(r)).collect::<Vec<_>>()
            };
            let scale = gpg_scale(&batch.groups().flat_map(tried).collect::<Vec<f64>>());
            credit.iter_mut().for_each(|credit| update_advantages(credit, |a| *a = (f64::from(*a) * scale) as f32));
            Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{batch, turns};

    #[test]
    fn paths_without_an_outcome_are_made_up_for() {
        assert_eq!(gpg_scale(&[1.0, 0.0, 0.0, 1.0]), 2.0);
        assert_eq!(gpg_scale(&[0.0, 0.0]), 2.0);
        assert_eq!(gpg_scale(&[-1.0, 0.5]), 1.0);
        let (batch, mut credit) = batch(&[&[&[(1, 0.5)], &[(1, -0.5)]]]);
        // the fixture's paths earn nothing
        Gpg {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(turns(&credit), [1.0, -1.0]);
    }
}
