//! Policy gradient whose importance weight is clipped, and not differentiated: no token loses its gradient.
//!
//! `∂L/∂log π = −w · clip(ρ, 1 − low, 1 + high) · A`, `ρ = exp(log π − log π_old)`, aggregated.
//!
//! MiniMax-M1, CISPO, arXiv 2506.13585, eqs. 4 and 5; there `low` is so large that it does nothing. verl
//! `compute_policy_loss_cispo`. Authors write `L = −sg(clip(ρ)) A log π`; the loss here is the function that has this
//! gradient, `−A F(log ρ)` with `F′ = clip(exp)`: it is `−ρA` within the range and goes on as a straight line. The
//! statistic `actor/pg_loss` is the authors'.
//! Reductions: at `π = π_old` it is REINFORCE; without clip, importance sampling.
//! Edge cases: the upper bound is e^20 at most.

use ascribe_core::objective::{Aggregation, Columns, Sums};
use ascribe_core::range::{NonNegative, Unit};
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ratio::{ratio, tokens};

/// `[objective.cispo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cispo {
    /// Clip range of the weight below 1, in 0..=1. Paper: none, which is 1.
    #[serde(default = "paper_low")]
    pub clip_low: Unit,
    /// Clip range of the weight above 1, 0 or more. The paper tunes it and names no value.
    pub clip_high: NonNegative,
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

fn paper_low() -> Unit {
    Unit::try_from(1.0).expect("in range")
}

impl Cispo {
    /// `clip(exp(x))`, and the antiderivative of it that is `exp(x)` within the range.
    fn weight(&self, difference: f64) -> (f64, f64) {
        let weight = ratio(difference).value.max(1.0 - *self.clip_low).min(1.0 + *self.clip_high);
        // Within the range the difference is the weight's logarithm.
        (weight, weight * (1.0 + difference - weight.ln()))
    }
}

plugin! {
    Objective "cispo" {
        summary: "Policy gradient with a clipped importance weight that is not differentiated.",
        source: "MiniMax 2025, MiniMax-M1, CISPO, arXiv 2506.13585, eqs. 4, 5",
        when: "Where rare, telling tokens would be clipped out of PPO's gradient: long reasoning, many steps per batch.",
        example: "clip_high = 4.0",
        module: "cispo.rs",
    }
    impl Objective for Cispo {
        fn needs(&self) -> Vec<Need> {
            vec![Need::BehaviorLogprob]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let tokens = tokens(rows, out, totals, self.aggregation);
            tokens.iter().map(|t| -t.scale * t.advantage * self.weight(t.difference()).1).sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let (mut loss, mut clipped, mut kl, mut n) = (0.0, 0.0, 0.0, 0.0);
            for t in tokens(rows, out, totals, self.aggregation) {
                let weight = self.weight(t.difference()).0;
                grad.logprob_mut()[t.at] -= (t.scale * t.advantage * weight) as f32;
                loss -= t.weight * t.advantage * weight * t.logprob;
                clipped += f64::from(u8::from(weight != ratio(t.difference()).value));
                kl -= t.difference();
                n += 1.0;
            }
            let mut sums = Sums::default();
            sums.add("actor/pg_loss", loss, n);
            sums.add("actor/pg_clipfrac", clipped, n);
            sums.add("actor/ppo_kl", kl, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, check_gradient, check_loss, gradient};
    use proptest::prelude::*;

    fn cispo(low: f64, high: f64) -> Cispo {
        Cispo {
            clip_low: Unit::try_from(low).unwrap(),
            clip_high: NonNegative::try_from(high).unwrap(),
            aggregation: Aggregation::TokenMean,
        }
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            for (low, high) in [(1.0, 0.5), (0.2, 0.28), (1.0, 1e30)] {
                check_gradient(&Cispo { aggregation, ..cispo(low, high) });
            }
        }
    }

    #[test]
    fn hand_worked() {
        let two = 2f32.ln();
        // ρ = 2 weighs 1.5, ρ = ½ weighs 0.8, ρ = 1 weighs 1
        let row: &[(f32, f32, f32)] = &[(0.0, -two, 3.0), (-two, 0.0, -3.0), (-1.0, -1.0, 3.0)];
        let got = gradient(&cispo(0.2, 0.5), &[row]);
        let want = [-1.5, 0.8, -1.0];
        assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-6), "{got:?}");
        // within the range the loss is −ρA; beyond it goes on from there: 1.5·(1 + ln 2 − ln 1.5)
        check_loss(&cispo(1.0, 4.0), &[&[(0.0, -two, 3.0)]], -6.0);
        check_loss(&cispo(1.0, 0.5), &[&[(0.0, -two, 1.0)]], -1.5 * (1.0 + (2.0f64 / 1.5).ln()));
    }

    #[test]
    fn an_extreme_ratio_stays_finite() {
        let rows: &[&[(f32, f32, f32)]] = &[&[(0.0, -500.0, -1.0), (-500.0, 0.0, 1.0)]];
        for (low, high) in [(1.0, 0.5), (0.2, 1e30)] {
            assert!(gradient(&cispo(low, high), rows).iter().all(|g| g.is_finite()));
        }
    }

    proptest! {
        #[test]
        fn on_policy_it_is_reinforce(tokens in prop::collection::vec((-5f32..0.0, -3f32..3.0), 1..20)) {
            let row: Vec<_> = tokens.iter().map(|(l, a)| (*l, *l, *a)).collect();
            let reinforce = crate::Reinforce { aggregation: Aggregation::TokenMean };
            prop_assert_eq!(gradient(&cispo(0.2, 0.2), &[&row]), gradient(&reinforce, &[&row]));
        }
    }
}
