//! A bonus for the policy's entropy.
//!
//! `L = −Σ w · H(π(·))` in nats, aggregated; its weight is that of the term in `sum`.
//!
//! Williams and Peng 1991, "Function optimization using connectionist reinforcement learning algorithms"; Mnih et al.
//! 2016, arXiv 1602.01783. Reductions: a negative weight makes the policy more certain.
//! Edge cases: the entropy is that of the distribution on its allowed support, at the temperature it was drawn at. The
//! statistic is the entropy itself, as in verl. Advantages are not read.

use ascribe_core::objective::{Aggregation, Columns, DiffColumn, Sums};
use ascribe_core::{Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::column::{column_gradients, column_loss};

/// `[objective.entropy]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entropy {
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

plugin! {
    Objective "entropy" {
        summary: "A bonus for the policy's entropy.",
        source: "Williams and Peng 1991; Mnih et al. 2016, arXiv 1602.01783",
        when: "Within `sum`, with a small weight, where the policy becomes certain too soon.",
        example: "",
        module: "entropy.rs",
    }
    impl Objective for Entropy {
        fn columns(&self) -> Vec<DiffColumn> {
            vec![DiffColumn::Entropy]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            column_loss(rows, out.get(&DiffColumn::Entropy), -1.0, self.aggregation, totals)
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let (column, grad) = (out.get(&DiffColumn::Entropy), grad.get_mut(&DiffColumn::Entropy));
            let loss = column_gradients(rows, column, -1.0, self.aggregation, totals, grad);
            let mut sums = Sums::default();
            sums.add("actor/entropy_loss", -loss, rows.n_trained() as f64);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, Case, check_gradient};

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            check_gradient(&Entropy { aggregation });
        }
    }

    #[test]
    fn hand_worked() {
        let case = Case::new(&[&[(0.0, 0.0, 9.0), (0.0, 0.0, 9.0)]]).out(DiffColumn::Entropy, vec![0.5, 1.0]);
        let entropy = Entropy { aggregation: Aggregation::TokenMean };
        case.check_loss(&entropy, -0.75);
        assert_eq!(case.gradients(&entropy).0.get(&DiffColumn::Entropy), [-0.5, -0.5]);
        assert_eq!(case.statistic(&entropy, "actor/entropy_loss"), 0.75);
    }
}
