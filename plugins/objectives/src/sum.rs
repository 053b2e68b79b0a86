//! Several objectives at once, each with a weight.
//!
//! `L = Σ_i weight_i · L_i`.
//!
//! Reductions: one term of weight 1 is that objective.
//! Edge cases: a term of weight 0 is computed, for its statistics; statistics of one name are merged. Where one term
//! looks at the whole minibatch, all are computed then.

use ascribe_core::objective::{Columns, DiffColumn, Reach, Sums};
use ascribe_core::range::Finite;
use ascribe_core::{Need, Now, Objective, Rows, Slot, Totals, plugin};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// `[objective.sum]`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// The terms, at least one.
    #[serde(deserialize_with = "some_terms")]
    #[schemars(length(min = 1))]
    pub of: Vec<Term>,
}

fn some_terms<'de, D: Deserializer<'de>>(of: D) -> Result<Vec<Term>, D::Error> {
    let of: Vec<Term> = Vec::deserialize(of)?;
    if of.is_empty() {
        return Err(D::Error::custom(
            "must hold at least one objective, as in [{ weight = 1.0, objective = { ppo-clip = {} } }]",
        ));
    }
    Ok(of)
}

/// A weighted objective.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// Factor on the objective's loss, any finite number.
    pub weight: Finite,
    /// The objective.
    pub objective: Slot<dyn Objective>,
}

plugin! {
    Objective "sum" {
        summary: "A weighted sum of objectives.",
        source: "",
        when: "For a policy gradient with an entropy bonus or a KL penalty.",
        example: "of = [{ weight = 1.0, objective = { ppo-clip = {} } }, { weight = 0.001, objective = { entropy = {} } }]",
        module: "sum.rs",
    }
    impl Objective for Sum {
        fn columns(&self) -> Vec<DiffColumn> {
            let mut columns: Vec<DiffColumn> = self.of.iter().flat_map(|term| term.objective.columns()).collect();
            columns.sort();
            columns.dedup();
            columns
        }

        fn reach(&self) -> Reach {
            self.of.iter().map(|term| term.objective.reach()).max().unwrap_or_default()
        }

        fn needs(&self) -> Vec<Need> {
            self.of.iter().flat_map(|term| term.objective.needs()).collect()
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, now: &Now) -> f64 {
            self.of.iter().map(|term| *term.weight * term.objective.loss(rows, out, totals, now)).sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, now: &Now, grad: &mut Columns) -> Sums {
            let mut sums = Sums::default();
            for term in &self.of {
                let mut own = grad.zeros_like();
                sums.merge(term.objective.gradients(rows, out, totals, now, &mut own));
                grad.add_scaled(&own, *term.weight);
            }
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Case, check_gradient};
    use ascribe_core::objective::Aggregation;

    fn term(weight: f64, objective: impl Objective + 'static) -> Term {
        Term { weight: Finite::try_from(weight).unwrap(), objective: Slot(Box::new(objective)) }
    }
    fn several() -> Sum {
        let aggregation = Aggregation::TokenMean;
        Sum {
            of: vec![
                term(1.0, crate::Reinforce { aggregation }),
                term(0.25, crate::Entropy { aggregation }),
                term(0.5, crate::Kl { estimator: crate::Estimator::K3, aggregation }),
            ],
        }
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        check_gradient(&several());
    }

    #[test]
    fn terms_are_weighted_and_added() {
        let case = Case::new(&[&[(-1.0, -1.0, 2.0)]])
            .out(DiffColumn::Entropy, vec![0.5])
            .column("signal/reference_logprob", [Some(-1.0)]);
        // 2 − ¼·½ + ½·0
        case.check_loss(&several(), 2.0 - 0.125);
        let (grad, sums) = case.gradients(&several());
        assert_eq!((grad.logprob(), grad.get(&DiffColumn::Entropy)), (&[-2.0][..], &[-0.25][..]));
        let names: Vec<&str> = sums.0.iter().map(|s| &s.name[..]).collect();
        assert_eq!(names, ["actor/pg_loss", "actor/entropy_loss", "actor/kl_loss"]);
    }

    #[test]
    fn a_sum_of_nothing_is_refused() {
        let refused = serde_json::from_value::<Sum>(serde_json::json!({ "of": [] })).unwrap_err().to_string();
        assert!(refused.starts_with("must hold at least one objective"), "{refused}");
        assert!(
            serde_json::from_value::<Sum>(serde_json::json!({ "of": [{ "weight": 1.0, "objective": { "nll": {} } }] })).is_ok()
        );
        let huge = serde_json::json!({ "of": [{ "weight": 1e300, "objective": { "nll": {} } }] });
        let refused = serde_json::from_value::<Sum>(huge).unwrap_err().to_string();
        assert!(refused.contains("at most 3.4e38, got 1e300"), "{refused}");
    }

    #[test]
    fn it_needs_and_reaches_what_its_terms_do() {
        let clip_cov = serde_json::from_value(serde_json::json!({ "clip-cov": {} })).unwrap();
        let sum = Sum { of: vec![Term { weight: Finite::try_from(1.0).unwrap(), objective: clip_cov }] };
        assert_eq!((sum.reach(), sum.needs()), (Reach::Minibatch, vec![Need::BehaviorLogprob]));
        assert_eq!(several().columns(), [DiffColumn::Logprob, DiffColumn::Entropy]);
    }
}
