//! A control: noise in place of credit, with the same moments.
//!
//! Every turn's advantage is drawn anew from a normal distribution with mean and standard deviation of the batch's
//! advantages over turns. A method that does not beat it has learned nothing from its credit.
//!
//! Random numbers are keyed by (update, group, turn). Credit finer than a turn is first averaged over the turn's trained
//! tokens: the turn's number stands for all of them. Untrained stays untrained; loss weights and targets are kept.

use ascribe_core::{Batch, Credit, CreditTransform, Draw, Metrics, Now, Seeds, plugin};
use ascribe_math::{Deviation, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{replace_turns, turn_means};

/// `[[transform]] random = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Random {}

plugin! {
    Transform "random" {
        summary: "A control: normal noise with the batch's own mean and standard deviation in place of credit.",
        source: "",
        when: "In every comparison: what an estimator gains must be more than what noise of the same size gains.",
        example: "",
        module: "random.rs",
    }
    impl CreditTransform for Random {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], now: &Now, seeds: Seeds) -> Metrics {
            let means: Vec<Vec<Option<f64>>> = batch.groups().zip(credit.iter()).map(|(g, c)| turn_means(g, c)).collect();
            let turns: Vec<f32> = means.iter().flatten().flatten().map(|a| *a as f32).collect();
            let m = moments(&turns);
            let deviation = m.deviation(Deviation::Population);
            for ((group, credit), means) in batch.groups().zip(credit).zip(&means) {
                let noise = |(t, mean): (usize, &Option<f64>)| {
                    let draw = Draw { update: now.update, group: group.index() as u32, member: 0, turn: t as u32 };
                    mean.map(|_| m.mean + deviation * seeds.rng("transform/random", draw).normal())
                };
                replace_turns(group, credit, means.iter().enumerate().map(noise));
            }
            Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{batch, turns};

    #[test]
    fn noise_has_the_moments_and_none_of_the_credit() {
        let path: Vec<(usize, f32)> = (0..2000).map(|t| (1, if t % 2 == 0 { 3.0 } else { 1.0 })).collect();
        let (batch, mut credit) = batch(&[&[&path]]);
        let before = turns(&credit);
        Random {}.apply(&batch, &mut credit, &Now::default(), Seeds(1));
        let after = turns(&credit);
        let m = moments(&after);
        // mean 2, deviation 1: standard errors 1/√2000 = 0.022 and 0.016; four of each
        assert!((m.mean - 2.0).abs() < 0.09 && (m.deviation(Deviation::Population) - 1.0).abs() < 0.064, "{m:?}");
        let covariance: f64 =
            before.iter().zip(&after).map(|(b, a)| (f64::from(*b) - 2.0) * (f64::from(*a) - m.mean)).sum::<f64>() / 2000.0;
        assert!(covariance.abs() < 0.09, "{covariance}");
    }

    #[test]
    fn another_update_draws_other_noise_and_the_same_one_the_same() {
        let (batch, credit) = batch(&[&[&[(1, 1.0), (1, -1.0)]]]);
        let noise = |update| {
            let mut credit = credit.clone();
            Random {}.apply(&batch, &mut credit, &Now { update, ..Now::default() }, Seeds(1));
            turns(&credit)
        };
        assert_eq!(noise(3), noise(3));
        assert_ne!(noise(3), noise(4));
    }
}
