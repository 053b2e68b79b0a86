//! Over which scores the runs of an arm lie.

use crate::bootstrap::{Bootstrap, Estimate};
use crate::scores::Scores;
use crate::table::{ArmScores, Table};

/// Share of an arm's runs above each threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The arm.
    pub arm: String,
    /// Runs that finished: what the shares are of.
    pub n_runs: usize,
    /// Runs that failed, and are in no share.
    pub n_failed: usize,
    /// Thresholds as they were given.
    pub thresholds: Vec<f64>,
    /// Share of runs above each, with its interval; empty if no run finished.
    pub shares: Vec<Estimate>,
}

/// Share of scores strictly above the threshold: the run-score distribution of Agarwal et al. 2021, arXiv 2108.13264, §4.2.
///
/// Returns 0 to 1.
pub fn fraction_above(scores: &Scores, threshold: f64) -> f64 {
    let above = scores.values().iter().filter(|score| **score > threshold).count();
    above as f64 / scores.values().len() as f64
}

/// Performance profile of each arm: the whole distribution of scores, where an aggregate is one number. An arm whose profile lies
/// above another's everywhere is better whatever the aggregate; where profiles cross, the aggregate chooses the winner.
///
/// * `thresholds`: scores, in any order.
/// * `bootstrap`: [`Bootstrap::of_curves`] as the field does. Bands hold for each threshold by itself, not for all at once.
pub fn profile(table: &Table, thresholds: &[f64], bootstrap: &Bootstrap) -> Vec<Profile> {
    let of_arm = |arm: &ArmScores| {
        let shares = arm.scores.iter().flat_map(|scores| {
            bootstrap.estimates(table.training(), &[std::slice::from_ref(scores)], thresholds.len(), |drawn, out| {
                out.iter_mut().zip(thresholds).for_each(|(out, t)| *out = fraction_above(&drawn[0][0], *t));
            })
        });
        Profile {
            arm: arm.name.clone(),
            n_runs: arm.seeds.len(),
            n_failed: arm.failures.len(),
            thresholds: thresholds.to_vec(),
            shares: shares.collect(),
        }
    };
    table.arms().iter().map(of_arm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_score_at_the_threshold_is_not_above_it() {
        let scores = Scores::of_rows(&[[0.0, 0.5], [0.5, 1.0]]);
        assert_eq!([-1.0, 0.0, 0.5, 1.0].map(|t| fraction_above(&scores, t)), [1.0, 0.75, 0.25, 0.0]);
    }

    fn rows() -> impl Strategy<Value = Vec<Vec<f64>>> {
        prop::collection::vec(prop::collection::vec(0.0..1.0f64, 2), 1..6)
    }

    proptest! {
        #[test]
        fn profiles_fall(rows in rows(), low in 0.0..1.0f64, more in 0.0..1.0f64) {
            let scores = Scores::of_rows(&rows);
            prop_assert!(fraction_above(&scores, low) >= fraction_above(&scores, low + more));
        }

        #[test]
        fn the_area_under_a_profile_is_the_mean(rows in rows()) {
            // ∫₀¹ P(score > τ) dτ = E[score]; a sum over 1,000 steps is off by at most one step
            let scores = Scores::of_rows(&rows);
            let area = (0..1000).map(|i| fraction_above(&scores, f64::from(i) / 1000.0)).sum::<f64>() / 1000.0;
            let mean = crate::Metric::Mean.of(&scores);
            prop_assert!((area - mean).abs() <= 1e-3 + 1e-12, "{area} {mean}");
        }
    }
}
