//! The discounted return from each turn or token on, without a baseline.
//!
//! `A_t = r_t + γ A_{t+1}`, one step per turn, or per sampled token; at a branch, the mean over the children.
//!
//! Williams 1992, "Simple statistical gradient-following algorithms" (REINFORCE). Reductions: `γ = 1` with a reward at
//! the end alone gives every turn the outcome; `γ = 0` gives the turn's own reward. Preset: `reinforce-plus-plus` (arXiv
//! 2501.03262), whose numbers are those of verl's `compute_reinforce_plus_plus_outcome_advantage` before it whitens; tokens
//! that were not sampled are stepped over there as here.
//! Edge cases: the future after any end is worth 0: this estimator knows no values, so a truncated path does not
//! bootstrap. A turn that was not tried has no return: it is not trained and moves no mean.

use ascribe_core::range::Unit;
use ascribe_core::{AdvantageEstimator, Credit, Decay, EstimateError, Group, Law, Now, Step, plugin, preset};
use ascribe_math::returns;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{credit_of_tried, fold_tokens};

/// `[estimator.return-to-go]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnToGo {
    /// Discount per step, in 0..=1.
    pub gamma: Unit,
    /// What one step is.
    #[serde(default)]
    pub unit: Step,
}

plugin! {
    Estimator "return-to-go" {
        summary: "The discounted return from each turn or token on, without a baseline.",
        source: "Williams 1992, Simple statistical gradient-following algorithms for connectionist reinforcement learning",
        when: "As the unbiased, noisy yardstick beside an estimator with a baseline; with dense rewards.",
        example: "gamma = 1.0",
        module: "return_to_go.rs",
    }
    impl AdvantageEstimator for ReturnToGo {
        fn laws(&self) -> Vec<Law> {
            vec![Law::Scale, Law::Ascent]
        }

        fn decay(&self) -> Option<Decay> {
            Some(Decay { per_step: *self.gamma, step: self.unit, symbol: "γ" })
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            if self.unit == Step::Token {
                let of_turn = |_, rewards: &[f32], future, out: &mut [f32]| returns(rewards, future, *self.gamma, out);
                return Ok(Credit::of_tokens(group.n_turns(), fold_tokens(group, |_, _| 0.0, of_turn)));
            }
            let reward = group.rewards();
            let returns = group.fold_up(|_| 0.0, |t, future| f64::from(reward[t]) + *self.gamma * future);
            Ok(credit_of_tried(returns.into_iter().zip(group.tried()).map(|(g, tried)| tried.then_some(g))))
        }
    }
}

preset! {
    Estimator "reinforce-plus-plus" is "return-to-go", ReturnToGo as ReinforcePlusPlus { gamma: 1.0, unit: "token" }
    summary: "REINFORCE++: the return from each sampled token on; `whiten` after it scales it over the batch.",
    source: "Hu et al. 2025, REINFORCE++, arXiv 2501.03262; verl compute_reinforce_plus_plus_outcome_advantage",
    when: "Without a critic and without groups, with `transform = [\"whiten\"]`, which is its second half, and the KL penalty as a reward column (the critic `kl-reward`).",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{WON, batch, chain, chains, credit, turn};
    use ascribe_core::{End, Limit};
    use proptest::prelude::*;

    fn check(gamma: f64, rewards: &[f32], want: &[f32]) {
        let estimator = ReturnToGo { gamma: Unit::try_from(gamma).unwrap(), unit: Step::Turn };
        assert_eq!(credit(&estimator, &chain(rewards)), want);
    }

    #[test]
    fn hand_worked() {
        check(1.0, &[0.0, 0.0, 1.0], &[1.0, 1.0, 1.0]);
        // 1 + .5·(2 + .5·4) = 3; 2 + .5·4 = 4
        check(0.5, &[1.0, 2.0, 4.0], &[3.0, 4.0, 4.0]);
        check(0.0, &[1.0, 2.0, 4.0], &[1.0, 2.0, 4.0]);
    }

    #[test]
    fn a_truncated_path_is_worth_what_it_earned() {
        let estimator = ReturnToGo { gamma: Unit::try_from(1.0).unwrap(), unit: Step::Turn };
        let cut = chains(&[(&[1.0, 2.0], End::Truncated(Limit::Turns))]);
        assert_eq!(credit(&estimator, &cut), [3.0, 2.0]);
    }

    #[test]
    fn what_was_not_tried_has_no_return() {
        let tree = batch(vec![turn(None, 1.0), turn(Some(0), 4.0), turn(Some(0), 9.0)], &[(1, WON), (2, End::Untried)]);
        let estimator = ReturnToGo { gamma: Unit::try_from(0.5).unwrap(), unit: Step::Turn };
        let credit = estimator.estimate(tree.group(0), &Now::default()).unwrap();
        assert_eq!(credit.turns, [Some(3.0), Some(4.0), None]);
    }

    proptest! {
        #[test]
        fn undiscounted_it_is_the_suffix_sum(r in prop::collection::vec(-8i8..8, 1..20)) {
            let rewards: Vec<f32> = r.iter().map(|x| f32::from(*x)).collect();
            let want: Vec<f32> = (0..rewards.len()).map(|t| rewards[t..].iter().sum()).collect();
            let estimator = ReturnToGo { gamma: Unit::try_from(1.0).unwrap(), unit: Step::Turn };
            prop_assert_eq!(credit(&estimator, &chain(&rewards)), want);
        }
    }
}
