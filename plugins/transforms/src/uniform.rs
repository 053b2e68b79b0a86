//! A control: each trajectory's credit, spread evenly over its turns.
//!
//! `A_t ← mean over the trajectory's trained turns`; a shared turn gets the mean over its trajectories. What an
//! estimator says about *which* turn is gone, what it says about the trajectory stays.
//!
//! Credit finer than a turn is first averaged over the turn's trained tokens. Reductions: credit that is the same for
//! every turn of a trajectory (GRPO) is unchanged.

use ascribe_core::{Batch, Credit, CreditTransform, Metrics, Now, Seeds, plugin};
use ascribe_math::moments;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{replace_turns, turn_means};

/// `[[transform]] uniform = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Uniform {}

plugin! {
    Transform "uniform" {
        summary: "A control: each trajectory's credit, spread evenly over its turns.",
        source: "",
        when: "To see whether an estimator's choice of turns matters, or only its choice of trajectories.",
        example: "",
        module: "uniform.rs",
    }
    impl CreditTransform for Uniform {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            for (group, credit) in batch.groups().zip(credit) {
                let per_turn = turn_means(group, credit);
                let per_path: Vec<Option<f64>> = group
                    .trajectories()
                    .map(|path| {
                        let trained: Vec<f64> = path.turns().into_iter().filter_map(|t| per_turn[t]).collect();
                        (!trained.is_empty()).then(|| moments(&trained).mean)
                    })
                    .collect();
                let even = group.mean_over_some_leaves(&per_path);
                replace_turns(group, credit, even.into_iter().zip(per_turn).map(|(even, own)| own.and(even.map(f64::from))));
            }
            Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{batch, turns};

    fn check(groups: &[&[&[(usize, f32)]]], want: &[f32]) {
        let (batch, mut credit) = batch(groups);
        Uniform {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(turns(&credit), want);
    }

    #[test]
    fn a_trajectorys_credit_is_spread_evenly() {
        check(&[&[&[(1, 3.0), (5, 0.0), (1, 0.0)], &[(1, -1.0)]]], &[1.0, 1.0, 1.0, -1.0]);
    }

    #[test]
    fn what_is_even_already_stays_to_the_bit() {
        check(&[&[&[(1, 0.1), (2, 0.1), (3, 0.1)]]], &[0.1, 0.1, 0.1]);
    }

    #[test]
    fn untrained_stays_untrained() {
        let (batch, mut credit) = batch(&[&[&[(1, 2.0), (1, 4.0), (1, 9.0)]]]);
        credit[0].turns[2] = None;
        Uniform {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(credit[0].turns, [Some(3.0), Some(3.0), None]);
    }
}
