//! A penalty for leaving a reference policy, from log-probabilities alone.
//!
//! With `x = log π − log π_ref` of the sampled token, `L = Σ w · k(x)`, aggregated: `k1 = x`, `k2 = ½ x²`,
//! `k3 = e^−x − 1 + x`.
//!
//! Schulman 2020, "Approximating KL divergence", <http://joschu.net/blog/kl-approx.html>; `k3` as in GRPO, arXiv
//! 2402.03300, eq. 4. Names as in verl `kl_penalty`: `kl`, `mse`, `low_var_kl`; verl also clamps `k3` to ±10, this
//! clamps `x` in `e^−x` to ±20.
//! Reductions: at `π = π_ref` all are 0, and so are the slopes of `k2` and `k3`.
//! Edge cases: as numbers `k1` and `k3` estimate the divergence, but as losses only `k2` has its gradient: that of `k1`
//! is 0 on average, that of `k3` is the gradient of `KL(π_ref ‖ π)`. Where the policy can, `exact-kl` has no such
//! question.

use ascribe_core::objective::{Aggregation, Columns, Sums};
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ratio::ratio;
use crate::reference;

/// `[objective.kl]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kl {
    /// Which function of the log-ratio.
    pub estimator: Estimator,
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

/// An estimator of the KL divergence from one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Estimator {
    /// `x`: unbiased, of large variance.
    K1,
    /// `½ x²`: biased, of small variance; its gradient is unbiased.
    K2,
    /// `e^−x − 1 + x`: unbiased, of small variance, never negative.
    K3,
}

impl Estimator {
    /// The estimate and its derivative.
    fn of(self, x: f64) -> (f64, f64) {
        match self {
            Estimator::K1 => (x, 1.0),
            Estimator::K2 => (0.5 * x * x, x),
            Estimator::K3 => {
                let r = ratio(-x);
                (r.value - 1.0 + x, 1.0 - r.slope)
            }
        }
    }
}

plugin! {
    Objective "kl" {
        summary: "An estimate of the KL divergence from a reference policy, as a penalty.",
        source: "Schulman 2020, Approximating KL divergence; GRPO, arXiv 2402.03300, eq. 4",
        when: "Within `sum`, beside a policy-gradient objective, where the policy must stay near a reference.",
        example: "estimator = \"k3\"",
        module: "kl.rs",
    }
    impl Objective for Kl {
        fn needs(&self) -> Vec<Need> {
            vec![reference::need()]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            rows.iter()
                .map(|row| {
                    let logprob = &out.logprob()[row.packed.clone()];
                    let difference = logprob.iter().zip(reference::logprob(&row)).map(|(l, r)| f64::from(*l) - f64::from(*r));
                    let sum: f64 = difference.zip(row.weight()).map(|(x, w)| f64::from(*w) * self.estimator.of(x).0).sum();
                    sum * self.aggregation.factor(row.packed.len(), totals)
                })
                .sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let (mut loss, mut n) = (0.0, 0.0);
            for row in rows.iter() {
                let factor = self.aggregation.factor(row.packed.len(), totals);
                for ((i, reference), w) in row.packed.clone().zip(reference::logprob(&row)).zip(row.weight()) {
                    let (kl, slope) = self.estimator.of(f64::from(out.logprob()[i]) - f64::from(*reference));
                    grad.logprob_mut()[i] += (factor * f64::from(*w) * slope) as f32;
                    loss += f64::from(*w) * kl;
                    n += 1.0;
                }
            }
            let mut sums = Sums::default();
            sums.add("actor/kl_loss", loss, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, Case, check_gradient};
    use proptest::prelude::*;

    const ALL: [Estimator; 3] = [Estimator::K1, Estimator::K2, Estimator::K3];

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            for estimator in ALL {
                check_gradient(&Kl { estimator, aggregation });
            }
        }
    }

    #[test]
    fn hand_worked() {
        // x = ln 2 and 0: k1 the mean of them, k2 of ½ ln² 2 and 0, k3 of ½ − 1 + ln 2 and 0
        let two = 2f32.ln();
        let case =
            Case::new(&[&[(0.0, 0.0, 0.0), (-1.0, 0.0, 0.0)]]).column("signal/reference_logprob", [Some(-two), Some(-1.0)]);
        let two = 2f64.ln();
        for (estimator, want) in ALL.into_iter().zip([two / 2.0, two * two / 4.0, (two - 0.5) / 2.0]) {
            let kl = Kl { estimator, aggregation: Aggregation::TokenMean };
            case.check_loss(&kl, want);
            assert!((case.statistic(&kl, "actor/kl_loss") - want).abs() < 1e-6);
        }
    }

    proptest! {
        #[test]
        fn k2_and_k3_are_least_at_the_reference(x in -500.0..500.0f64) {
            for estimator in [Estimator::K2, Estimator::K3] {
                let (kl, slope) = estimator.of(x);
                prop_assert!(kl.is_finite() && slope.is_finite());
                // beyond ±20 e^−x stands still
                prop_assert!(x < -20.0 || (kl >= 0.0 && slope * x >= 0.0));
                prop_assert_eq!(estimator.of(0.0), (0.0, 0.0));
            }
        }

        #[test]
        fn the_mean_of_k1_and_k3_is_the_divergence(p in 0.01..0.99f64, q in 0.01..0.99f64) {
            // a coin: Σ π k(log π − log π_ref) = Σ π log(π/π_ref)
            let kl = p * (p / q).ln() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).ln();
            for estimator in [Estimator::K1, Estimator::K3] {
                let mean = p * estimator.of((p / q).ln()).0 + (1.0 - p) * estimator.of(((1.0 - p) / (1.0 - q)).ln()).0;
                prop_assert!((mean - kl).abs() < 1e-9);
            }
        }
    }
}
