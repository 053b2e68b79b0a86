//! Importance-weighted policy gradient, without a clip.
//!
//! `ρ = exp(log π − log π_old)`, `L = −Σ w · ρ A`, aggregated.
//!
//! Schulman et al. 2017, arXiv 1707.06347, eq. 6, after Kakade and Langford 2002; the `importance_sampling` loss of
//! Tinker. Log-ratios are clamped to ±20, beyond which the gradient is 0.
//! Reductions: at `π = π_old` the gradient is REINFORCE's; it is PPO-clip where nothing is clipped.
//! Edge cases: nothing holds the policy near the old one, and the ratio of a single token may be large.

use ascribe_core::objective::{Aggregation, Columns, Sums};
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ratio::{ratio, tokens};

/// `[objective.importance-sampling]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportanceSampling {
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

plugin! {
    Objective "importance-sampling" {
        summary: "Advantages weighted by the importance ratio, without a clip.",
        source: "Kakade and Langford 2002; Schulman et al. 2017, arXiv 1707.06347, eq. 6",
        when: "To correct for a sampler that differs a little from the trainer, one or few steps per batch. For more, ppo-clip.",
        example: "",
        module: "importance_sampling.rs",
    }
    impl Objective for ImportanceSampling {
        fn needs(&self) -> Vec<Need> {
            vec![Need::BehaviorLogprob]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let tokens = tokens(rows, out, totals, self.aggregation);
            tokens.iter().map(|t| -t.scale * t.advantage * ratio(t.difference()).value).sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let (mut loss, mut kl, mut n) = (0.0, 0.0, 0.0);
            for t in tokens(rows, out, totals, self.aggregation) {
                let ratio = ratio(t.difference());
                grad.logprob_mut()[t.at] -= (t.scale * t.advantage * ratio.slope) as f32;
                loss -= t.weight * t.advantage * ratio.value;
                kl -= t.difference();
                n += 1.0;
            }
            let mut sums = Sums::default();
            sums.add("actor/pg_loss", loss, n);
            sums.add("actor/ppo_kl", kl, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, check_gradient, check_loss, gradient};
    use proptest::prelude::*;

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            check_gradient(&ImportanceSampling { aggregation });
        }
    }

    #[test]
    fn hand_worked() {
        let (half, is) = (0.5f32.ln(), ImportanceSampling { aggregation: Aggregation::TokenMean });
        // −(2·1 + ½·(−1))/2
        check_loss(&is, &[&[(0.0, half, 1.0), (half, 0.0, -1.0)]], -0.75);
    }

    #[test]
    fn an_extreme_ratio_stays_finite() {
        let is = ImportanceSampling { aggregation: Aggregation::TokenMean };
        assert_eq!(gradient(&is, &[&[(0.0, -500.0, -1.0), (-500.0, 0.0, 1.0)]]), [0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn on_policy_it_is_reinforce(tokens in prop::collection::vec((-5f32..0.0, -3f32..3.0), 1..20)) {
            let row: Vec<_> = tokens.iter().map(|(l, a)| (*l, *l, *a)).collect();
            let aggregation = Aggregation::TokenMean;
            let reinforce = gradient(&crate::Reinforce { aggregation }, &[&row]);
            prop_assert_eq!(gradient(&ImportanceSampling { aggregation }, &[&row]), reinforce);
        }
    }
}
