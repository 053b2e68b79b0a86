//! PPO's clipped surrogate, with clip-higher and dual clip.
//!
//! `ρ = exp(log π − log π_old)`, `L = Σ w · max(−ρA, −clip(ρ, 1 − low, 1 + high)·A)`, aggregated; with dual clip, for
//! `A < 0`, `min(that, −c·A)`.
//!
//! Schulman et al. 2017, arXiv 1707.06347, eq. 7; clip-higher: Yu et al. 2025, DAPO, arXiv 2503.14476, eq. 10; dual
//! clip: Ye et al. 2020, arXiv 1912.09729, eq. 5. Numbers follow verl `compute_policy_loss_vanilla`, which also clamps
//! `log π − log π_old` to ±20. Reductions: at `π = π_old` the gradient is REINFORCE's.
//! Edge cases: where the clipped and the unclipped term are equal the unclipped one is differentiated.

use ascribe_core::objective::{Aggregation, Columns, Sums};
use ascribe_core::range::Unit;
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ratio::{AboveOne, Clip, Surrogate, Tally, surrogate};

/// `[objective.ppo-clip]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PpoClip {
    /// Clip range below 1, in 0..=1. PPO: 0.2.
    #[serde(default = "paper_clip")]
    pub clip_low: Unit,
    /// Clip range above 1, in 0..=1. PPO: 0.2; DAPO's clip-higher: 0.28.
    #[serde(default = "paper_clip")]
    pub clip_high: Unit,
    /// Bound `c` on the ratio of tokens with a negative advantage, above 1; left out, there is none. verl: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dual_clip: Option<AboveOne>,
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

fn paper_clip() -> Unit {
    Unit::try_from(0.2).expect("in range")
}

impl PpoClip {
    fn token(&self, logprob: f32, old: f32, advantage: f64) -> Surrogate {
        let clip = Clip { low: *self.clip_low, high: *self.clip_high, dual: self.dual_clip };
        surrogate(f64::from(logprob) - f64::from(old), advantage, clip)
    }
}

plugin! {
    Objective "ppo-clip" {
        summary: "PPO's clipped surrogate with a token ratio; clip-higher and dual clip on request.",
        source: "Schulman et al. 2017, arXiv 1707.06347, eq. 7; DAPO, arXiv 2503.14476; dual clip, arXiv 1912.09729",
        when: "The default of the field: several optimiser steps per batch.",
        example: "",
        module: "ppo_clip.rs",
    }
    impl Objective for PpoClip {
        fn needs(&self) -> Vec<Need> {
            vec![Need::BehaviorLogprob]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            rows.iter()
                .map(|row| {
                    let (old, advantage, weight) = (row.old_logprob(), row.advantage(), row.weight());
                    let logprob = &out.logprob()[row.packed.clone()];
                    let token = |i: usize| f64::from(weight[i]) * self.token(logprob[i], old[i], f64::from(advantage[i])).loss;
                    (0..logprob.len()).map(token).sum::<f64>() * self.aggregation.factor(logprob.len(), totals)
                })
                .sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let mut tally = Tally::default();
            for row in rows.iter() {
                let factor = self.aggregation.factor(row.packed.len(), totals);
                let (old, advantage, weight) = (row.old_logprob(), row.advantage(), row.weight());
                for (k, i) in row.packed.clone().enumerate() {
                    let token = self.token(out.logprob()[i], old[k], f64::from(advantage[k]));
                    let w = f64::from(weight[k]);
                    grad.logprob_mut()[i] += (factor * w * token.slope) as f32;
                    tally.add(w, token, f64::from(out.logprob()[i]) - f64::from(old[k]));
                }
            }
            tally.sums()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, check_gradient, check_loss, gradient};
    use proptest::prelude::*;

    fn ppo(dual_clip: Option<f64>) -> PpoClip {
        PpoClip {
            clip_low: paper_clip(),
            clip_high: Unit::try_from(0.28).unwrap(),
            dual_clip: dual_clip.map(|c| AboveOne::try_from(c).unwrap()),
            aggregation: Aggregation::TokenMean,
        }
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            for dual in [None, Some(3.0), Some(1.5)] {
                check_gradient(&PpoClip { aggregation, ..ppo(dual) });
            }
        }
    }

    #[test]
    fn hand_worked() {
        let half = 0.5f32.ln();
        // ratio 2, A = 1: clipped at 1.28. ratio ½, A = −1: clipped at 0.8
        check_loss(&ppo(None), &[&[(0.0, half, 1.0)]], -1.28);
        check_loss(&ppo(None), &[&[(half, 0.0, -1.0)]], 0.8);
        // ratio 2, A = −1: not clipped, 2; with c = 1.5 it is
        check_loss(&ppo(None), &[&[(0.0, half, -1.0)]], 2.0);
        check_loss(&ppo(Some(1.5)), &[&[(0.0, half, -1.0)]], 1.5);
        // the mean over tokens of two rows: (−1 − 1 + 1)/3
        check_loss(&ppo(None), &[&[(0.0, 0.0, 1.0), (0.0, 0.0, 1.0)], &[(0.0, 0.0, -1.0)]], -1.0 / 3.0);
    }

    #[test]
    fn an_extreme_ratio_stays_finite() {
        let rows: &[&[(f32, f32, f32)]] = &[&[(0.0, -500.0, -1.0), (-500.0, 0.0, 1.0)]];
        assert!(gradient(&ppo(None), rows).iter().all(|g| g.is_finite()));
    }

    proptest! {
        #[test]
        fn on_policy_it_is_reinforce(tokens in prop::collection::vec((-5f32..0.0, -3f32..3.0), 1..20)) {
            let row: Vec<_> = tokens.iter().map(|(l, a)| (*l, *l, *a)).collect();
            let reinforce = crate::Reinforce { aggregation: Aggregation::TokenMean };
            prop_assert_eq!(gradient(&ppo(Some(3.0)), &[&row]), gradient(&reinforce, &[&row]));
        }
    }
}
