//! A penalty for leaving another policy node: the exact divergence at every trained token.
//!
//! `L = Σ w · KL(π(·) ‖ π_node(·))`, aggregated.
//!
//! Kullback and Leibler 1951; as a penalty in policy optimisation, Schulman et al. 2017, arXiv 1707.06347, eq. 8.
//! Reductions: its value is the mean of `kl`'s `k1` and `k3` over the policy's own samples.
//! Edge cases: only a policy that holds both distributions can differentiate it. Advantages are not read.

use ascribe_core::objective::{Aggregation, Columns, DiffColumn, Sums};
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::column::{column_gradients, column_loss};

/// `[objective.exact-kl]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExactKl {
    /// The policy node to stay near.
    pub node: String,
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

plugin! {
    Objective "exact-kl" {
        summary: "The exact KL divergence from another policy node, as a penalty.",
        source: "Schulman et al. 2017, arXiv 1707.06347, eq. 8",
        when: "Within `sum`, with a policy that differentiates it. From sampled log-probabilities alone, `kl`.",
        example: "node = \"reference\"",
        module: "exact_kl.rs",
    }
    impl Objective for ExactKl {
        fn columns(&self) -> Vec<DiffColumn> {
            vec![DiffColumn::Kl(self.node.clone())]
        }

        fn needs(&self) -> Vec<Need> {
            vec![Need::Node(self.node.clone())]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            column_loss(rows, out.get(&DiffColumn::Kl(self.node.clone())), 1.0, self.aggregation, totals)
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let column = DiffColumn::Kl(self.node.clone());
            let kl = column_gradients(rows, out.get(&column), 1.0, self.aggregation, totals, grad.get_mut(&column));
            let mut sums = Sums::default();
            sums.add("actor/kl_loss", kl, rows.n_trained() as f64);
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
            check_gradient(&ExactKl { node: "reference".into(), aggregation });
        }
    }

    #[test]
    fn hand_worked() {
        let column = DiffColumn::Kl("reference".into());
        let case = Case::new(&[&[(0.0, 0.0, 9.0), (0.0, 0.0, 9.0)]]).out(column.clone(), vec![0.5, 1.0]);
        let kl = ExactKl { node: "reference".into(), aggregation: Aggregation::TokenMean };
        case.check_loss(&kl, 0.75);
        assert_eq!(case.gradients(&kl).0.get(&column), [0.5, 0.5]);
        assert_eq!(case.statistic(&kl, "actor/kl_loss"), 0.75);
    }
}
