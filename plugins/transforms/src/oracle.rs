//! A control: the true advantage in place of the estimated one.
//!
//! `A_t ← advantage_true_t` for every turn that trains. No estimator can do better with this objective; what is left is
//! the update's own noise.
//!
//! Edge cases: a turn without a true advantage is taken out of training, and counted: an estimate must not pass for the
//! truth. Credit finer than a turn is dropped; untrained tokens stay so; loss weights and targets are kept.

use ascribe_core::{Batch, Credit, CreditTransform, Metrics, Need, Now, Scope, Seeds, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{replace_turns, turn_means};

/// `[[transform]] oracle = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Oracle {}

/// The turn column that holds the truth.
const SIGNAL: &str = "advantage_true";

plugin! {
    Transform "oracle" {
        summary: "A control: the exact advantage of each turn in place of credit.",
        source: "",
        when: "Where an environment or critic knows the truth: the ceiling that an estimator is measured against.",
        example: "",
        module: "oracle.rs",
    }
    impl CreditTransform for Oracle {
        fn needs(&self) -> Vec<Need> {
            vec![Need::Signal(SIGNAL.into(), Scope::Turn)]
        }

        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let mut unknown = 0;
            for (group, credit) in batch.groups().zip(credit) {
                let trained = turn_means(group, credit);
                let truth: Vec<Option<f32>> = group.turn_signal(SIGNAL).collect();
                unknown += trained.iter().zip(&truth).filter(|(a, truth)| a.is_some() && truth.is_none()).count();
                replace_turns(group, credit, trained.iter().zip(truth).map(|(a, truth)| a.and(truth.map(f64::from))));
            }
            let mut metrics = Metrics::default();
            metrics.set("credit/oracle/unknown_turns", unknown as f64);
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::batch;
    use ascribe_core::credit::spread;
    use ascribe_core::{Column, Signal};

    #[test]
    fn the_truth_replaces_what_trains() {
        let (mut batch, mut credit) = batch(&[&[&[(2, 1.0), (1, 1.0), (1, 1.0)]]]);
        let column: Column = [Some(0.25), Some(-3.0), None].into_iter().collect();
        batch.add_signal(SIGNAL, Signal { scope: Scope::Turn, provider: "test".into(), column }).unwrap();
        credit[0].turns[1] = None;
        credit[0].tokens = vec![None, Some(9.0), None, None].into();
        let metrics = Oracle {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(credit[0], Credit { turns: vec![Some(0.25), None, None], ..Credit::default() });
        assert_eq!(metrics.get("credit/oracle/unknown_turns"), Some(1.0));
    }

    #[test]
    fn of_a_turn_that_trains_in_part_the_rest_stays_out() {
        let (mut batch, mut credit) = batch(&[&[&[(3, 1.0)]]]);
        let signal = Signal { scope: Scope::Turn, provider: "test".into(), column: Column::full(vec![0.5]) };
        batch.add_signal(SIGNAL, signal).unwrap();
        credit[0].turns[0] = None;
        credit[0].tokens = vec![None, Some(9.0), Some(7.0)].into();
        Oracle {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(spread(batch.group(0), &credit[0]).advantage, [None, Some(0.5), Some(0.5)]);
    }
}
