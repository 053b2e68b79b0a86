//! Squared error of a head's sum over a trajectory's turns against one number: what each turn contributed is what adds
//! up.
//!
//! `L = 1/rows · Σ_rows w (Σ_t h_t − y)²`, `h_t` being read at the last trained token of turn `t`.
//!
//! Wang et al. 2025, SPA-RL, arXiv 2505.20732 (stepwise progress attribution): the head's sum predicts the outcome, and
//! its parts become step rewards. As in the authors' code there is no ½. Reductions: with one turn it is twice `mse`.
//! Edge cases: a row is a whole trajectory only where contexts extend and nothing branches; a row that begins anew, or
//! whose first turns train elsewhere, is compared with the whole number all the same. A row without a target at its
//! last trained token, whose weight is the row's, is not read, but counts in the denominator. Advantages are not read.

use ascribe_core::objective::{Columns, DiffColumn, Sums};
use ascribe_core::rows::Row;
use ascribe_core::{Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::head::targets;

/// `[objective.sum-mse]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SumMse {
    /// Name of the head, and of the signal whose targets its sum learns.
    pub head: String,
}

/// A row's readings and what they should add up to.
struct Total {
    /// Places in the packed columns.
    at: Vec<usize>,
    weight: f64,
    target: f64,
}
impl Total {
    fn error(&self, head: &[f32]) -> f64 {
        self.at.iter().map(|i| f64::from(head[*i])).sum::<f64>() - self.target
    }
}

impl SumMse {
    fn column(&self) -> DiffColumn {
        DiffColumn::Head(self.head.clone())
    }
    fn totals(&self, rows: &Rows<'_>) -> Vec<Total> {
        let targets = targets(rows, &self.head);
        let total = |row: Row<'_>| {
            let last = rows.set().rows[row.id as usize].trained.end - 1;
            let target = f64::from(targets.get(last)?);
            let weight = row.weight().last().map_or(1.0, |w| f64::from(*w));
            Some(Total { at: row.turns().map(|turn| turn.end - 1).collect(), weight, target })
        };
        rows.iter().filter_map(total).collect()
    }
}

plugin! {
    Objective "sum-mse" {
        summary: "Squared error of a head's sum over a trajectory's turns against one number, such as the outcome.",
        source: "Wang et al. 2025, SPA-RL, arXiv 2505.20732",
        when: "For a head that divides an outcome among turns. It must see whole trajectories: no memory windows, no branches.",
        example: "head = \"progress\"",
        module: "sum_mse.rs",
    }
    impl Objective for SumMse {
        fn columns(&self) -> Vec<DiffColumn> {
            vec![self.column()]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let head = out.get(&self.column());
            let squares: f64 = self.totals(rows).iter().map(|row| row.weight * row.error(head).powi(2)).sum();
            squares / totals.rows.max(1) as f64
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let head = out.get(&self.column());
            let grad = grad.get_mut(&self.column());
            let (mut loss, mut distance, mut n) = (0.0, 0.0, 0.0);
            for row in self.totals(rows) {
                let error = row.error(head);
                let slope = 2.0 * row.weight * error / totals.rows.max(1) as f64;
                row.at.iter().for_each(|i| grad[*i] += slope as f32);
                loss += row.weight * error * error;
                distance += error.abs();
                n += 1.0;
            }
            let mut sums = Sums::default();
            sums.add(format!("critic/{}/sum_loss", self.head), loss, n);
            sums.add(format!("critic/{}/abs_error", self.head), distance, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Case, check_gradient};

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        check_gradient(&SumMse { head: "value".into() });
    }

    #[test]
    fn hand_worked() {
        let (progress, token) = (SumMse { head: "progress".into() }, (0.0, 0.0, 0.0));
        // rows of turns 2 + 1 and 1 tokens: sums 2 + 3 and 4; errors 4 and 2; a third row has no target
        let case = Case::new(&[&[token; 3], &[token], &[token]])
            .out(DiffColumn::Head("progress".into()), vec![9.0, 2.0, 3.0, 4.0, 7.0])
            .column("target/progress", [None, None, Some(1.0), Some(2.0), None]);
        case.check_loss(&progress, (16.0 + 4.0) / 3.0);
        let (grad, _) = case.gradients(&progress);
        assert_eq!(grad.get(&DiffColumn::Head("progress".into())), [0.0, 8.0 / 3.0, 8.0 / 3.0, 4.0 / 3.0, 0.0]);
        assert_eq!(case.statistic(&progress, "critic/progress/abs_error"), 3.0);
    }
}
