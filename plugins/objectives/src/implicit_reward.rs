//! Cross-entropy of an implicit reward with the outcome: how much likelier than a reference a policy finds a path says
//! whether the path succeeded.
//!
//! `L = −1/rows · Σ_rows w (y log σ(x) + (1 − y) log(1 − σ(x)))`, `x = β Σ_k (log π(a_k) − log π_ref(a_k))` over a row's
//! trained tokens; `y` in 0..=1 is the target at the row's last trained token, whose weight is the row's.
//!
//! Yuan et al. 2024, "Free Process Rewards without Process Labels", arXiv 2412.01981; Cui et al. 2025, "PRIME", arXiv
//! 2502.01456, `training/verl/workers/actor/dp_prime.py` (loss `ce`, β = 0.05).
//! Reductions: at the reference every loss is log 2, and the slope is `β (½ − y)` on each token.
//! Edge cases: a row without a target is not read, but counts in the denominator. A row is a whole path only where contexts
//! extend and nothing branches. Advantages are not read.

use ascribe_core::objective::{Columns, Sums};
use ascribe_core::range::Positive;
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::head::targets;
use crate::logistic::{log_one_plus_exp, sigmoid};
use crate::reference;

/// `[objective.implicit-reward]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImplicitReward {
    /// How much a log-ratio counts, above 0.
    pub beta: Positive,
    /// Name of the signal whose targets it learns: outcomes in 0..=1.
    pub target: String,
}

/// A row's implicit reward and what it should say.
struct Total {
    packed: std::ops::Range<usize>,
    /// `β Σ_k (log π − log π_ref)`.
    reward: f64,
    weight: f64,
    target: f64,
}

impl ImplicitReward {
    fn totals(&self, rows: &Rows<'_>, logprob: &[f32]) -> Vec<Total> {
        let targets = targets(rows, &self.target);
        let total = |row: ascribe_core::rows::Row<'_>| {
            let last = rows.set().rows[row.id as usize].trained.end - 1;
            let target = f64::from(targets.get(last)?);
            let weight = row.weight().last().map_or(1.0, |w| f64::from(*w));
            let ratios = logprob[row.packed.clone()].iter().zip(reference::logprob(&row));
            let sum: f64 = ratios.map(|(now, reference)| f64::from(*now) - f64::from(*reference)).sum();
            Some(Total { packed: row.packed, reward: *self.beta * sum, weight, target })
        };
        rows.iter().filter_map(total).collect()
    }
}

impl Total {
    fn loss(&self) -> f64 {
        log_one_plus_exp(self.reward) - self.target * self.reward
    }
}

plugin! {
    Objective "implicit-reward" {
        summary: "Cross-entropy of a path's log-ratio to a reference with the outcome.",
        source: "Cui et al. 2025, PRIME, arXiv 2502.01456",
        when: "For a policy node that is trained to score, by the critic `implicit`.",
        example: "beta = 0.05\ntarget = \"outcome\"",
        module: "implicit_reward.rs",
    }
    impl Objective for ImplicitReward {
        fn needs(&self) -> Vec<Need> {
            vec![reference::need()]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let losses: f64 = self.totals(rows, out.logprob()).iter().map(|row| row.weight * row.loss()).sum();
            losses / totals.rows.max(1) as f64
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let (mut loss, mut right, mut n) = (0.0, 0.0, 0.0);
            for row in self.totals(rows, out.logprob()) {
                let slope = row.weight * *self.beta * (sigmoid(row.reward) - row.target) / totals.rows.max(1) as f64;
                grad.logprob_mut()[row.packed.clone()].iter_mut().for_each(|g| *g += slope as f32);
                loss += row.weight * row.loss();
                right += f64::from(u8::from((row.reward > 0.0) == (row.target > 0.5)));
                n += 1.0;
            }
            let mut sums = Sums::default();
            sums.add(format!("critic/{}/implicit_loss", self.target), loss, n);
            sums.add(format!("critic/{}/implicit_accuracy", self.target), right, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Case, check_gradient};

    fn implicit(beta: f64) -> ImplicitReward {
        ImplicitReward { beta: Positive::try_from(beta).unwrap(), target: "value".into() }
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        check_gradient(&implicit(0.7));
    }

    #[test]
    fn hand_worked() {
        let rows: [&[(f32, f32, f32)]; 3] = [&[(-1.0, 0.0, 0.0), (-1.0, 0.0, 0.0)], &[(-2.0, 0.0, 0.0)], &[(-2.0, 0.0, 0.0)]];
        // log-ratios 1 + 1 and −1; the third row has no target
        let case = Case::new(&rows)
            .column("signal/reference_logprob", [-2.0, -2.0, -1.0, -9.0].map(Some))
            .column("target/value", [Some(0.0), Some(1.0), Some(0.25), None]);
        let loss = |x: f64, y: f64| x.exp().ln_1p() - y * x;
        case.check_loss(&implicit(0.5), (loss(1.0, 1.0) + loss(-0.5, 0.25)) / 3.0);
        let s = |x: f32| 1.0 / (1.0 + (-x).exp());
        let slopes = [(s(1.0) - 1.0) / 6.0, (s(1.0) - 1.0) / 6.0, (s(-0.5) - 0.25) / 6.0, 0.0];
        let (grad, _) = case.gradients(&implicit(0.5));
        assert!(grad.logprob().iter().zip(slopes).all(|(g, w)| (g - w).abs() < 1e-7), "{:?}", grad.logprob());
        assert_eq!(case.statistic(&implicit(0.5), "critic/value/implicit_accuracy"), 1.0);
    }

    #[test]
    fn at_the_reference_every_loss_is_log_two_and_an_extreme_ratio_stays_finite() {
        let at = |l: f32, reference: f32| {
            Case::new(&[&[(l, 0.0, 0.0)]])
                .column("signal/reference_logprob", [Some(reference)])
                .column("target/value", [Some(1.0)])
        };
        at(-3.0, -3.0).check_loss(&implicit(2.0), 2f64.ln());
        assert!(at(-1e30, 0.0).loss(&implicit(1.0)).is_finite());
    }
}
