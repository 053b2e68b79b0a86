//! The score-function gradient: each token's log-probability, weighted by its advantage.
//!
//! `L = −Σ w · A · log π(a)`, aggregated.
//!
//! Williams 1992. Reductions: on the policy that sampled the batch, the gradient of importance sampling and of
//! PPO-clip is this one.
//! Edge cases: it does not correct for the policy having moved, so it is for one step per batch.

use ascribe_core::objective::{Aggregation, Columns, Sums};
use ascribe_core::{Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[objective.reinforce]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reinforce {
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

plugin! {
    Objective "reinforce" {
        summary: "Log-probabilities weighted by advantages: the score-function gradient.",
        source: "Williams 1992, Simple statistical gradient-following algorithms for connectionist reinforcement learning",
        when: "With one optimiser step per batch; for several, use ppo-clip.",
        example: "",
        module: "reinforce.rs",
    }
    impl Objective for Reinforce {
        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            rows.iter()
                .map(|row| {
                    let logprob = &out.logprob()[row.packed.clone()];
                    let weighted = row.advantage().iter().zip(row.weight()).map(|(a, w)| f64::from(*a) * f64::from(*w));
                    let sum: f64 = logprob.iter().zip(weighted).map(|(l, a)| -a * f64::from(*l)).sum();
                    sum * self.aggregation.factor(row.packed.len(), totals)
                })
                .sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let (mut loss, mut n) = (0.0, 0.0);
            for row in rows.iter() {
                let factor = self.aggregation.factor(row.packed.len(), totals);
                for ((i, a), w) in row.packed.clone().zip(row.advantage()).zip(row.weight()) {
                    let weighted = f64::from(*a) * f64::from(*w);
                    grad.logprob_mut()[i] -= (factor * weighted) as f32;
                    loss -= weighted * f64::from(out.logprob()[i]);
                    n += 1.0;
                }
            }
            let mut sums = Sums::default();
            sums.add("actor/pg_loss", loss, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, check_gradient, check_loss};

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            check_gradient(&Reinforce { aggregation });
        }
    }

    #[test]
    fn log_probability_and_advantage_of_one_token_meet() {
        // −((−1)·1 + (−2)·2 + (−3)·3)/3 = 14/3
        let row: &[(f32, f32, f32)] = &[(-1.0, 0.0, 1.0), (-2.0, 0.0, 2.0), (-3.0, 0.0, 3.0)];
        check_loss(&Reinforce { aggregation: Aggregation::TokenMean }, &[row], 14.0 / 3.0);
    }
}
