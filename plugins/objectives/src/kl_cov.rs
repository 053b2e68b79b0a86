//! Policy gradient that holds back the tokens that lower the policy's entropy most.
//!
//! `cov = (A − mean A)(log π − mean log π)` per token of the minibatch. `L = Σ w · (−ρA + β |log π − log π_old|)` for
//! the `max(1, ⌊ratio · tokens⌋)` tokens of largest `cov`, `−ρA` for the others, aggregated.
//!
//! Cui et al. 2025, "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models", arXiv 2505.22617;
//! numbers as verl `compute_policy_loss_kl_cov` (ratio 2e-4, β = 1). Reductions: `β = 0` is importance sampling.
//! Edge cases: of equal covariances the earlier token is taken; at `π = π_old` the penalty has slope 0. It needs the
//! whole minibatch, which costs a scoring pass.

use ascribe_core::objective::{Aggregation, Columns, Reach, Sums};
use ascribe_core::range::{NonNegative, Unit};
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::covariance::{covariances, share_of};
use crate::ratio::{Token, ratio, tokens};

/// `[objective.kl-cov]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KlCov {
    /// Share of the minibatch's tokens that are held back, in 0..=1, at least one. Paper: 2e-4.
    #[serde(default = "paper_ratio")]
    pub ratio: Unit,
    /// Weight of their penalty, 0 or more. Paper: 1.
    #[serde(default = "paper_beta")]
    pub beta: NonNegative,
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

fn paper_ratio() -> Unit {
    Unit::try_from(2e-4).expect("in range")
}
fn paper_beta() -> NonNegative {
    NonNegative::try_from(1.0).expect("not negative")
}

impl KlCov {
    /// The weight of each token's penalty: 0 for most.
    fn penalties(&self, tokens: &[Token]) -> Vec<f64> {
        let covariances = covariances(tokens);
        let mut order: Vec<usize> = (0..tokens.len()).collect();
        order.sort_by(|a, b| covariances[*b].total_cmp(&covariances[*a]));
        let mut penalties = vec![0.0; tokens.len()];
        for i in order.into_iter().take(share_of(*self.ratio, tokens.len())) {
            penalties[i] = *self.beta;
        }
        penalties
    }
}

/// Sign of a number; 0 at 0.
fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

plugin! {
    Objective "kl-cov" {
        summary: "Policy gradient with a penalty on the few tokens of largest covariance of advantage and log-probability.",
        source: "Cui et al. 2025, The Entropy Mechanism of RL for Reasoning Language Models, arXiv 2505.22617",
        when: "Against entropy collapse in long runs, without an entropy bonus and without PPO's clip.",
        example: "",
        module: "kl_cov.rs",
    }
    impl Objective for KlCov {
        fn needs(&self) -> Vec<Need> {
            vec![Need::BehaviorLogprob]
        }

        fn reach(&self) -> Reach {
            Reach::Minibatch
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let tokens = tokens(rows, out, totals, self.aggregation);
            let loss = |(t, beta): (&Token, f64)| {
                t.scale * (-t.advantage * ratio(t.difference()).value + beta * t.difference().abs())
            };
            tokens.iter().zip(self.penalties(&tokens)).map(loss).sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let tokens = tokens(rows, out, totals, self.aggregation);
            let (mut loss, mut kl, mut distance) = (0.0, 0.0, 0.0);
            for (t, beta) in tokens.iter().zip(self.penalties(&tokens)) {
                let ratio = ratio(t.difference());
                let slope = -t.advantage * ratio.slope + beta * sign(t.difference());
                grad.logprob_mut()[t.at] += (t.scale * slope) as f32;
                loss += t.weight * (-t.advantage * ratio.value + beta * t.difference().abs());
                kl -= t.difference();
                distance += t.difference().abs();
            }
            let n = tokens.len() as f64;
            let mut sums = Sums::default();
            sums.add("actor/pg_loss", loss, n);
            sums.add("actor/ppo_kl", kl, n);
            sums.add("actor/ppo_kl_abs", distance, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, check_gradient, check_loss, gradient};

    fn kl_cov(ratio: f64, beta: f64) -> KlCov {
        KlCov {
            ratio: Unit::try_from(ratio).unwrap(),
            beta: NonNegative::try_from(beta).unwrap(),
            aggregation: Aggregation::TokenMean,
        }
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            check_gradient(&KlCov { aggregation, ..kl_cov(0.3, 0.7) });
        }
    }

    #[test]
    fn hand_worked() {
        let two = 2f32.ln();
        // means A = 0, log π = −1: covariances 1, 1, 0; the first is held back
        let row: &[(f32, f32, f32)] = &[(0.0, -two, 1.0), (-2.0, -2.0, -1.0), (-1.0, -1.0, 0.0)];
        check_loss(&kl_cov(0.0, 2.0), &[row], (-2.0 + 2.0 * 2f64.ln() + 1.0) / 3.0);
        let got = gradient(&kl_cov(0.0, 2.0), &[row]);
        let want = [(-2.0 + 2.0) / 3.0, 1.0 / 3.0, 0.0];
        assert!(got.iter().zip(want).all(|(g, w): (&f32, f32)| (g - w).abs() < 1e-6), "{got:?}");
    }

    #[test]
    fn without_a_penalty_it_is_importance_sampling() {
        let is = crate::ImportanceSampling { aggregation: Aggregation::TokenMean };
        let rows: &[&[(f32, f32, f32)]] = &[&[(-0.1, -0.5, 1.0), (-2.0, -1.0, -1.0)], &[(0.0, -500.0, 2.0)]];
        assert_eq!(gradient(&kl_cov(1.0, 0.0), rows), gradient(&is, rows));
        assert!(gradient(&kl_cov(1.0, 1.0), rows).iter().all(|g| g.is_finite()));
        assert!(gradient(&kl_cov(1.0, 1.0), &[]).is_empty());
    }
}
