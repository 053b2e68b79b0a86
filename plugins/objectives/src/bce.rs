//! Binary cross-entropy of a head, whose number is a logit.
//!
//! `L = −Σ w · (y log σ(h) + (1 − y) log(1 − σ(h)))`, aggregated over tokens, or the mean over turns; `y` in 0..=1.
//!
//! A soft label is a probability (Math-Shepherd, arXiv 2312.08935; AgentPRM, arXiv 2502.10325). Computed as
//! `max(h, 0) − yh + log(1 + exp(−|h|))`, which is finite for every logit. Reductions: the least loss is at `σ(h) = y`.
//! Edge cases: where a target is missing nothing is read, but the denominator counts the token: leave it untrained
//! instead. Advantages are not read.

use ascribe_core::objective::{Aggregation, Columns, DiffColumn, Sums};
use ascribe_core::{Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::head::{Over, Reading, readings};
use crate::logistic::{log_one_plus_exp, sigmoid};

/// `[objective.bce]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bce {
    /// Name of the head, and of the signal whose targets it learns.
    pub head: String,
    /// Where the head is read.
    #[serde(default)]
    pub over: Over,
    /// How token losses become one number; over turns, it is their mean.
    #[serde(default)]
    pub aggregation: Aggregation,
}

impl Bce {
    fn column(&self) -> DiffColumn {
        DiffColumn::Head(self.head.clone())
    }
    fn readings(&self, rows: &Rows<'_>, totals: &Totals) -> Vec<Reading> {
        readings(rows, &self.head, self.over, self.aggregation, totals)
    }
}

fn cross_entropy(logit: f64, target: f64) -> f64 {
    log_one_plus_exp(logit) - target * logit
}

plugin! {
    Objective "bce" {
        summary: "Binary cross-entropy of a head, a logit, against hard or soft labels.",
        source: "Math-Shepherd, arXiv 2312.08935; AgentPRM, arXiv 2502.10325",
        when: "For a head that says how likely success is. For values that are no probabilities, mse.",
        example: "head = \"success\"",
        module: "bce.rs",
    }
    impl Objective for Bce {
        fn columns(&self) -> Vec<DiffColumn> {
            vec![self.column()]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let logit = out.get(&self.column());
            self.readings(rows, totals).iter().map(|r| r.scale * cross_entropy(f64::from(logit[r.at]), r.target)).sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let logit = out.get(&self.column());
            let grad = grad.get_mut(&self.column());
            let (mut loss, mut right, mut n) = (0.0, 0.0, 0.0);
            for r in self.readings(rows, totals) {
                let h = f64::from(logit[r.at]);
                grad[r.at] += (r.scale * (sigmoid(h) - r.target)) as f32;
                loss += r.weight * cross_entropy(h, r.target);
                right += f64::from(u8::from((h > 0.0) == (r.target > 0.5)));
                n += 1.0;
            }
            let mut sums = Sums::default();
            sums.add(format!("critic/{}/bce_loss", self.head), loss, n);
            sums.add(format!("critic/{}/accuracy", self.head), right, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, Case, check_gradient};
    use proptest::prelude::*;

    fn bce(head: &str, over: Over) -> Bce {
        Bce { head: head.into(), over, aggregation: Aggregation::TokenMean }
    }
    fn case(logit: &[f32], target: &[f32]) -> Case {
        let row = vec![(0.0, 0.0, 0.0); logit.len()];
        Case::new(&[&row])
            .out(DiffColumn::Head("success".into()), logit.to_vec())
            .column("target/success", target.iter().copied().map(Some))
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            for over in [Over::Tokens, Over::Turns] {
                check_gradient(&Bce { aggregation, ..bce("value", over) });
            }
        }
    }

    #[test]
    fn hand_worked() {
        // σ(ln 3) = ¾: −log ¾ for the label 1, −log ¼ for 0, their mean for ½
        let log3 = 3f32.ln();
        let case = case(&[log3, log3, log3], &[1.0, 0.0, 0.5]);
        let (three, one) = (-(0.75f64.ln()), -(0.25f64.ln()));
        case.check_loss(&bce("success", Over::Tokens), (three + one + (three + one) / 2.0) / 3.0);
        // a label of ½ counts as no
        assert_eq!(case.statistic(&bce("success", Over::Tokens), "critic/success/accuracy"), 1.0 / 3.0);
    }

    #[test]
    fn an_extreme_logit_stays_finite() {
        let case = case(&[1e30, -1e30], &[0.0, 1.0]);
        assert!(case.loss(&bce("success", Over::Tokens)).is_finite());
        let (grad, _) = case.gradients(&bce("success", Over::Tokens));
        assert_eq!(grad.get(&DiffColumn::Head("success".into())), [0.5, -0.5]);
    }

    proptest! {
        #[test]
        fn the_least_loss_is_at_the_label(y in 0.01..0.99f32, h in -5f32..5.0) {
            let at = |logit: f32| case(&[logit], &[y]).loss(&bce("success", Over::Tokens));
            prop_assert!(at((y / (1.0 - y)).ln()) <= at(h) + 1e-6);
        }
    }
}
