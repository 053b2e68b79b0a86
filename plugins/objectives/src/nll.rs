//! Negative log-likelihood: behaviour cloning.
//!
//! `L = −Σ w · log π(a)`, aggregated; advantages are not read.
//!
//! Pomerleau 1991, "Efficient training of artificial neural networks for autonomous navigation".
//! Edge cases: an expert's tokens have no behaviour log-probability, and none is needed here.

use ascribe_core::objective::{Aggregation, Columns, Sums};
use ascribe_core::{Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[objective.nll]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nll {
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

plugin! {
    Objective "nll" {
        summary: "Negative log-likelihood of the actions: behaviour cloning.",
        source: "Pomerleau 1991, Efficient training of artificial neural networks for autonomous navigation",
        when: "With rollout `expert`, before reinforcement learning begins.",
        example: "",
        module: "nll.rs",
    }
    impl Objective for Nll {
        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            rows.iter()
                .map(|row| {
                    let logprob = &out.logprob()[row.packed.clone()];
                    let sum: f64 = logprob.iter().zip(row.weight()).map(|(l, w)| -f64::from(*w) * f64::from(*l)).sum();
                    sum * self.aggregation.factor(row.packed.len(), totals)
                })
                .sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let (mut nll, mut n) = (0.0, 0.0);
            for row in rows.iter() {
                let factor = self.aggregation.factor(row.packed.len(), totals);
                for (i, w) in row.packed.clone().zip(row.weight()) {
                    grad.logprob_mut()[i] -= (factor * f64::from(*w)) as f32;
                    nll -= f64::from(out.logprob()[i]);
                    n += 1.0;
                }
            }
            let mut sums = Sums::default();
            sums.add("actor/nll_loss", nll, n);
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
            check_gradient(&Nll { aggregation });
        }
    }

    #[test]
    fn hand_worked() {
        // −(−1 − 2 − 3)/3
        check_loss(&Nll { aggregation: Aggregation::TokenMean }, &[&[(-1.0, 0.0, 9.0), (-2.0, 0.0, 9.0), (-3.0, 0.0, 9.0)]], 2.0);
    }
}
