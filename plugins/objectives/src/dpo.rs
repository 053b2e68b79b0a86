//! Direct preference optimisation: of two trajectories that share a task, the chosen one becomes likelier than the
//! rejected.
//!
//! `L = −mean log σ(β m)` over pairs, `m = Σ_chosen (log π − log π_ref) − Σ_rejected (log π − log π_ref)` over trained
//! tokens.
//!
//! Rafailov et al. 2023, DPO, arXiv 2305.18290, eq. 7; per turn and with means in place of sums: SWEET-RL, arXiv
//! 2503.15478 (β 0.1); online for agents: AgentPRM, arXiv 2502.10325 (β 0.03). Reductions: at `π = π_ref` every loss is
//! log 2, and the gradient raises the chosen and lowers the rejected by β/2.
//! Edge cases: what both trajectories share cancels in `m`, but trains in one row alone: its credit should be `None`. A
//! bundle of which one side trains nothing is left out, but counts in the denominator; a row without a bundle is not
//! read. Advantages and loss weights are not read.

use std::collections::BTreeMap;

use ascribe_core::objective::{Columns, Sums};
use ascribe_core::range::Positive;
use ascribe_core::rows::Row;
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::logistic::{log_one_plus_exp, sigmoid};
use crate::reference;

/// `[objective.dpo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dpo {
    /// How much a log-ratio counts, above 0: large holds the policy near the reference.
    pub beta: Positive,
    /// What becomes of a trajectory's length.
    #[serde(default)]
    pub length: Length,
}

/// How a trajectory's log-ratios are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// Summed over tokens (DPO).
    #[default]
    Sum,
    /// Averaged over tokens (SWEET-RL).
    Mean,
}

/// Places in the packed columns with their coefficients in `m`, and `m`.
struct Pair {
    tokens: Vec<(usize, f64)>,
    margin: f64,
}

impl Dpo {
    /// The pairs of some rows, in order of their keys.
    fn pairs(&self, rows: &Rows<'_>, out: &Columns) -> Vec<Pair> {
        let mut bundles: BTreeMap<u32, Vec<Row<'_>>> = BTreeMap::new();
        for row in rows.iter() {
            if let Some(key) = row.bundle() {
                bundles.entry(key).or_default().push(row);
            }
        }
        let trajectory = |row: &Row<'_>| rows.set().rows[row.id as usize].trajectory;
        bundles
            .into_values()
            .filter_map(|rows| {
                // A trajectory may have several rows; those of the chosen one come first.
                let chosen = trajectory(&rows[0]);
                let (chosen, rejected): (Vec<Row<'_>>, Vec<Row<'_>>) =
                    rows.into_iter().partition(|row| trajectory(row) == chosen);
                if rejected.is_empty() {
                    return None;
                }
                let mut pair = Pair { tokens: Vec::new(), margin: 0.0 };
                for (side, sign) in [(chosen, 1.0), (rejected, -1.0)] {
                    let n: usize = side.iter().map(|row| row.packed.len()).sum();
                    let coefficient = match self.length {
                        Length::Sum => sign,
                        Length::Mean => sign / n as f64,
                    };
                    for row in side {
                        for (at, reference) in row.packed.clone().zip(reference::logprob(&row)) {
                            pair.margin += coefficient * (f64::from(out.logprob()[at]) - f64::from(*reference));
                            pair.tokens.push((at, coefficient));
                        }
                    }
                }
                Some(pair)
            })
            .collect()
    }
}

plugin! {
    Objective "dpo" {
        summary: "Direct preference optimisation over pairs of trajectories.",
        source: "Rafailov et al. 2023, DPO, arXiv 2305.18290, eq. 7",
        when: "With an estimator that makes preference pairs, and a reference policy.",
        example: "beta = 0.1",
        module: "dpo.rs",
    }
    impl Objective for Dpo {
        fn needs(&self) -> Vec<Need> {
            vec![reference::need()]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let losses = self.pairs(rows, out).into_iter().map(|pair| log_one_plus_exp(-*self.beta * pair.margin));
            losses.sum::<f64>() / totals.bundles.max(1) as f64
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let (mut loss, mut right, mut margin, mut n) = (0.0, 0.0, 0.0, 0.0);
            for pair in self.pairs(rows, out) {
                let x = *self.beta * pair.margin;
                let slope = -*self.beta * sigmoid(-x) / totals.bundles.max(1) as f64;
                for (at, coefficient) in pair.tokens {
                    grad.logprob_mut()[at] += (slope * coefficient) as f32;
                }
                loss += log_one_plus_exp(-x);
                right += f64::from(u8::from(x > 0.0));
                margin += x;
                n += 1.0;
            }
            let mut sums = Sums::default();
            sums.add("actor/dpo_loss", loss, n);
            sums.add("actor/dpo_accuracy", right, n);
            sums.add("actor/dpo_margin", margin, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Case, check_gradient};
    use proptest::prelude::*;

    fn dpo(beta: f64, length: Length) -> Dpo {
        Dpo { beta: Positive::try_from(beta).unwrap(), length }
    }

    /// Pairs of rows of these log-probabilities, with those of the reference.
    fn case(rows: &[&[f32]], reference: &[f32]) -> Case {
        let rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|l| (*l, 0.0, 0.0)).collect()).collect();
        let rows: Vec<&[_]> = rows.iter().map(Vec::as_slice).collect();
        Case::new(&rows).pairs().column("signal/reference_logprob", reference.iter().copied().map(Some))
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        check_gradient(&dpo(0.7, Length::Sum));
        check_gradient(&dpo(0.7, Length::Mean));
    }

    #[test]
    fn hand_worked() {
        // chosen gained 1 + 1 on the reference, rejected lost 1: m = 3, with means 2; a fifth row has no partner
        let case = case(&[&[-1.0, -1.0], &[-2.0], &[-1.0]], &[-2.0, -2.0, -1.0, -9.0]);
        case.check_loss(&dpo(0.5, Length::Sum), (-1.5f64).exp().ln_1p());
        case.check_loss(&dpo(0.5, Length::Mean), (-1f64).exp().ln_1p());
        // −½ σ(−1.5) on the chosen, the same upwards on the rejected
        let slope = 0.5 / (1.0 + 1.5f32.exp());
        let (grad, _) = case.gradients(&dpo(0.5, Length::Sum));
        for (got, want) in grad.logprob().iter().zip([-slope, -slope, slope, 0.0]) {
            assert!((got - want).abs() < 1e-7, "{:?}", grad.logprob());
        }
        assert_eq!(case.statistic(&dpo(0.5, Length::Sum), "actor/dpo_margin"), 1.5);
    }

    #[test]
    fn a_bundle_of_one_side_is_no_pair() {
        let token: &[(f32, f32, f32)] = &[(-1.0, 0.0, 0.0)];
        let case = Case::new(&[token]).column("signal/reference_logprob", [Some(-2.0)]);
        let (grad, sums) = case.gradients(&dpo(1.0, Length::Sum));
        assert_eq!((grad.logprob(), sums.0[0].count), (&[0.0][..], 0.0));
    }

    #[test]
    fn an_extreme_margin_stays_finite() {
        let case = case(&[&[-1e30], &[0.0]], &[0.0, -1e30]);
        assert!(case.loss(&dpo(1.0, Length::Sum)).is_finite());
        assert_eq!(case.gradients(&dpo(1.0, Length::Sum)).0.logprob(), [-1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn at_the_reference_every_loss_is_log_two(l in prop::collection::vec(-5f32..0.0, 2..12), beta in 0.01..2.0f64) {
            let (chosen, rejected) = l.split_at(1);
            let case = case(&[chosen, rejected], &l);
            prop_assert!((case.loss(&dpo(beta, Length::Sum)) - 2f64.ln()).abs() < 1e-12);
            let (grad, _) = case.gradients(&dpo(beta, Length::Sum));
            prop_assert!((f64::from(grad.logprob()[0]) + beta / 2.0).abs() < 1e-6);
        }
    }
}
