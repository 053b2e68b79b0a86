//! Credit for the best of a group alone, by how much it beats the second best.
//!
//! `A_best = (R_(1) − R_(2)) [/ (std_g R + ε)]` for every turn of the best trajectory, 0 for all others; a shared turn gets
//! the mean over its leaves.
//!
//! Walder and Karkhanis 2025, "Pass@K Policy Optimization", arXiv 2505.15201, in the form of verl
//! (`compute_grpo_passk_outcome_advantage`: sample standard deviation, ε = 1e-6), whose numbers it gives.
//! Reductions: where outcomes are 0 or 1, one success among n earns `√n` (1 without `std`), and nobody anything where several succeed or
//! none does. In a group of two the better one earns `√2`, or `R_(1) − R_(2)` without `std`. (ε left aside.)
//! Edge cases: where the two best are equal every advantage is 0. Untried paths are not trained and move nothing. A group
//! of one has no second best: `check` asks for groups of two; one that failed down to a single path gives 0.
//! Where official code differs: verl raises an error at a group of one.

use ascribe_core::range::NonNegative;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::{Deviation, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{from_outcomes, verl_epsilon, yes};

/// `[estimator.grpo-passk]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrpoPassK {
    /// Whether to divide by the group's standard deviation.
    #[serde(default = "yes")]
    pub std: bool,
    /// Added to the standard deviation, 0 or more. verl: 1e-6.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
}

plugin! {
    Estimator "grpo-passk" {
        summary: "Credit for the best of a group alone, by how much it beats the second best.",
        source: "Walder and Karkhanis 2025, Pass@K Policy Optimization, arXiv 2505.15201; verl compute_grpo_passk_outcome_advantage",
        when: "To raise the best of k rather than the mean. With 0/1 outcomes it speaks only where exactly one of the group wins.",
        example: "",
        module: "grpo_passk.rs",
    }
    impl AdvantageEstimator for GrpoPassK {
        fn needs(&self) -> Vec<Need> {
            vec![Need::GroupOfAtLeast(2)]
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Shift, if self.std { Law::ScaleFree } else { Law::Scale }, Law::NoSpreadNoCredit]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(from_outcomes(group, |outcomes, _| self.advantages(outcomes)))
        }
    }
}

impl GrpoPassK {
    /// Outcomes of one group become advantages in place, `[paths]`.
    pub fn advantages(&self, outcomes: &mut [f64]) {
        let best = (0..outcomes.len()).max_by(|a, b| outcomes[*a].total_cmp(&outcomes[*b]).then(b.cmp(a)));
        let others = (0..outcomes.len()).filter(|i| Some(*i) != best).map(|i| outcomes[i]);
        let (Some(best), Some(second)) = (best, others.max_by(f64::total_cmp)) else {
            outcomes.fill(0.0);
            return;
        };
        let divisor = if self.std { moments(outcomes).deviation(Deviation::Sample) + *self.epsilon } else { 1.0 };
        let lead = outcomes[best] - second;
        outcomes.fill(0.0);
        if lead > 0.0 {
            outcomes[best] = lead / divisor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, chains, credit};

    fn passk(std: bool) -> GrpoPassK {
        GrpoPassK { std, epsilon: verl_epsilon() }
    }

    #[test]
    fn only_the_best_is_credited() {
        let three = chains(&[(&[0.25], LOST), (&[0.0, 1.0], WON), (&[0.0], LOST)]);
        assert_eq!(credit(&passk(false), &three), [0.0, 0.75, 0.75, 0.0]);
        // std of (0, 1) is 1/√2
        let two = chains(&[(&[0.0], LOST), (&[1.0], WON)]);
        let got = credit(&passk(true), &two);
        assert!(got[0] == 0.0 && (f64::from(got[1]) - std::f64::consts::SQRT_2).abs() < 1e-5, "{got:?}");
        // One success among four: √4.
        let four = chains(&[(&[0.0], LOST), (&[1.0], WON), (&[0.0], LOST), (&[0.0], LOST)]);
        assert!((credit(&passk(true), &four)[1] - 2.0).abs() < 1e-4);
    }

    #[test]
    fn a_tie_or_a_group_of_one_teaches_nothing() {
        let tie = chains(&[(&[1.0], WON), (&[1.0], WON), (&[0.0], LOST)]);
        assert_eq!(credit(&passk(true), &tie), [0.0; 3]);
        assert_eq!(credit(&passk(true), &chains(&[(&[1.0], WON)])), [0.0]);
    }
}
