//! ReMax: the return from each turn or token on, against the return of a greedy rollout from the same start.
//!
//! `A_t = Σ_{u ≥ t} r_u − b`, `b` the return of one greedy episode of the group's task.
//!
//! Li et al. 2023, "ReMax", arXiv 2310.10505, alg. 1; verl `compute_remax_outcome_advantage`. The baseline is the column
//! `value` at the start, which a critic fills: the return of one greedy continuation from the
//! start is ReMax's own. verl subtracts it from returns over tokens (`unit = "token"`), with the same numbers.
//! Reductions: with rewards at the end alone, every turn gets the outcome minus the baseline; with the mean of the others as
//! baseline that is `rloo`. Edge cases: the future after any end is worth 0; a turn that was not tried is not trained.

use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, Step, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{credit_of_tried, fold_tokens, needs};

/// `[estimator.remax]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remax {
    /// What one step is: where rewards come before the end, each step counts those from it on.
    #[serde(default)]
    pub unit: Step,
}

plugin! {
    Estimator "remax" {
        summary: "The return from each step on, against the return of a greedy rollout from the same start.",
        source: "Li et al. 2023, ReMax, arXiv 2310.10505; verl compute_remax_outcome_advantage",
        when: "Where groups cannot be had: one sampled and one greedy episode per task instead of many.",
        example: "",
        module: "remax.rs",
    }
    impl AdvantageEstimator for Remax {
        fn needs(&self) -> Vec<Need> {
            needs()
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Scale, Law::Ascent]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let baseline = group.state_signal("value").start();
            if self.unit == Step::Token {
                let against = |_, rewards: &[f32], future: f64, out: &mut [f32]| {
                    rewards.iter().zip(out).rev().fold(future, |future, (reward, out)| {
                        let to_go = f64::from(*reward) + future;
                        *out = (to_go - baseline) as f32;
                        to_go
                    })
                };
                return Ok(Credit::of_tokens(group.n_turns(), fold_tokens(group, |_, _| 0.0, against)));
            }
            let reward = group.rewards();
            let returns = group.fold_up(|_| 0.0, |t, future| f64::from(reward[t]) + future);
            Ok(credit_of_tried(returns.into_iter().zip(group.tried()).map(|(g, tried)| tried.then_some(g - baseline))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{WON, chains, credit, valued};

    #[test]
    fn hand_worked() {
        let path = valued(chains(&[(&[1.0, 0.0, 2.0], WON)]), &[0.5, 9.0, 9.0, 9.0]);
        assert_eq!(credit(&Remax { unit: Step::Turn }, &path), [2.5, 1.5, 1.5]);
        let tokens = Remax { unit: Step::Token }.estimate(path.group(0), &Now::default()).unwrap().tokens;
        assert_eq!(tokens, [Some(2.5), Some(1.5), Some(1.5)]);
    }
}
