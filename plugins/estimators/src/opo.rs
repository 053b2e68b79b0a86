//! On-policy optimal baseline: a trajectory's outcome against the length-weighted mean of its group.
//!
//! `A_i = R_i − Σ_j l_j R_j / Σ_j l_j`, `l_j` the number of sampled tokens of trajectory j; the same for each of its turns,
//! a shared turn gets the mean over its leaves.
//!
//! Hao et al. 2025, "On-Policy RL with Optimal Reward Baseline", arXiv 2505.23585, eq. 6: the baseline of least variance
//! where the gradients of tokens are orthogonal and of one size. Official numbers from verl
//! (`compute_opo_outcome_advantage`). Reductions: with equal lengths it is GRPO without its division.
//! Edge cases: equal outcomes give exactly 0. A group of one gives 0. A group without a sampled token gives 0. Untried paths
//! are not trained and move no baseline.
//! Where official code differs: verl keeps the raw outcome of a group of one (`mode = "official"`).

use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::length_weighted_mean;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{Mode, from_outcomes};

/// `[estimator.opo]`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Opo {
    /// Where paper and verl differ: a group of one.
    #[serde(default)]
    pub mode: Mode,
}

plugin! {
    Estimator "opo" {
        summary: "A trajectory's outcome against the length-weighted mean of its group.",
        source: "Hao et al. 2025, OPO, arXiv 2505.23585, eq. 6; verl compute_opo_outcome_advantage",
        when: "With groups whose members differ much in length, strictly on policy: one step per batch.",
        example: "",
        module: "opo.rs",
    }
    impl AdvantageEstimator for Opo {
        fn needs(&self) -> Vec<Need> {
            self.mode.needs()
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Shift, Law::Scale, Law::NoSpreadNoCredit, Law::Ascent]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(from_outcomes(group, |outcomes, lengths| self.advantages(outcomes, lengths)))
        }
    }
}

impl Opo {
    /// Outcomes of one group become advantages in place.
    ///
    /// * `outcomes`, `lengths`: `[paths]`; lengths in sampled tokens.
    pub fn advantages(&self, outcomes: &mut [f64], lengths: &[usize]) {
        let alone = outcomes.len() == 1 && self.mode == Mode::Official;
        let baseline = if alone { Some(0.0) } else { length_weighted_mean(outcomes, lengths) };
        outcomes.iter_mut().for_each(|r| *r = baseline.map_or(0.0, |b| *r - b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, chains, credit};

    const PAPER: Opo = Opo { mode: Mode::Paper };

    #[test]
    fn longer_trajectories_weigh_more() {
        // lengths 3 and 1: the baseline is (3·1 + 1·0) / 4
        let two = chains(&[(&[0.0, 0.0, 1.0], WON), (&[0.0], LOST)]);
        assert_eq!(credit(&PAPER, &two), [0.25, 0.25, 0.25, -0.75]);
    }

    #[test]
    fn equal_outcomes_and_a_group_of_one() {
        let same = chains(&[(&[0.1], LOST), (&[0.0, 0.1], LOST), (&[0.1], LOST)]);
        assert_eq!(credit(&PAPER, &same), [0.0; 4]);
        assert_eq!(credit(&PAPER, &chains(&[(&[2.0], WON)])), [0.0]);
        assert_eq!(credit(&Opo { mode: Mode::Official }, &chains(&[(&[2.0], WON)])), [2.0]);
    }
}
