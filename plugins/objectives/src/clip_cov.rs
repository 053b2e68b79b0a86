//! PPO-clip that takes the gradient off a few of the tokens that lower the policy's entropy most.
//!
//! `cov = (A − mean A)(log π − mean log π)` per token of the minibatch. Of the tokens with `cov_low < cov < cov_high`
//! that PPO does not clip, `max(1, ⌊ratio · tokens⌋)` are drawn at random; their loss is 0. The others have PPO-clip's.
//!
//! Cui et al. 2025, "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models", arXiv 2505.22617;
//! numbers as verl `compute_policy_loss_clip_cov` (ratio 2e-4, range 1..5). Reductions: without a token in the range it
//! is PPO-clip.
//! Edge cases: an objective has no seed of its own, so the draw is keyed by the update and the minibatch's tokens
//! alone, and is the same in every run that comes to the same numbers. It needs the whole minibatch, which costs a
//! scoring pass.

use ascribe_core::objective::{Aggregation, Columns, Reach, Sums};
use ascribe_core::range::{Finite, Unit};
use ascribe_core::{Draw, Need, Now, Objective, Rows, Seeds, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::covariance::{covariances, share_of};
use crate::ratio::{Clip, Surrogate, Token, surrogate, tokens};

/// `[objective.clip-cov]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClipCov {
    /// Share of the minibatch's tokens that lose their gradient, in 0..=1, at least one. Paper: 2e-4.
    #[serde(default = "paper_ratio")]
    pub ratio: Unit,
    /// Covariance above which a token may lose it. Paper: 1.
    #[serde(default = "paper_cov_low")]
    pub cov_low: Finite,
    /// Covariance below which a token may lose it. Paper: 5.
    #[serde(default = "paper_cov_high")]
    pub cov_high: Finite,
    /// PPO's clip range below 1, in 0..=1. Paper: 0.2.
    #[serde(default = "paper_clip")]
    pub clip_low: Unit,
    /// PPO's clip range above 1, in 0..=1. Paper: 0.2.
    #[serde(default = "paper_clip")]
    pub clip_high: Unit,
    /// How token losses become one number.
    #[serde(default)]
    pub aggregation: Aggregation,
}

fn paper_ratio() -> Unit {
    Unit::try_from(2e-4).expect("in range")
}
fn paper_cov_low() -> Finite {
    Finite::try_from(1.0).expect("finite")
}
fn paper_cov_high() -> Finite {
    Finite::try_from(5.0).expect("finite")
}
fn paper_clip() -> Unit {
    Unit::try_from(0.2).expect("in range")
}

impl ClipCov {
    /// What becomes of each token; `None` for those that lose their gradient.
    fn token_losses(&self, tokens: &[Token], now: &Now) -> Vec<Option<Surrogate>> {
        let clip = Clip { low: *self.clip_low, high: *self.clip_high, dual: None };
        let mut losses: Vec<Option<Surrogate>> =
            tokens.iter().map(|t| Some(surrogate(t.difference(), t.advantage, clip))).collect();
        let in_range = |cov: f64| *self.cov_low < cov && cov < *self.cov_high;
        let covariances = covariances(tokens);
        let mut candidates: Vec<usize> =
            (0..tokens.len()).filter(|i| in_range(covariances[*i]) && losses[*i].is_some_and(|s| !s.clipped)).collect();
        Seeds(0).rng("objective/clip-cov", Draw { update: now.update, ..Draw::default() }).shuffle(&mut candidates);
        for i in candidates.into_iter().take(share_of(*self.ratio, tokens.len())) {
            losses[i] = None;
        }
        losses
    }
}

plugin! {
    Objective "clip-cov" {
        summary: "PPO-clip that takes the gradient off a few tokens of large covariance of advantage and log-probability.",
        source: "Cui et al. 2025, The Entropy Mechanism of RL for Reasoning Language Models, arXiv 2505.22617",
        when: "Against entropy collapse in long runs, without an entropy bonus. `kl-cov` holds such tokens back instead.",
        example: "",
        module: "clip_cov.rs",
    }
    impl Objective for ClipCov {
        fn needs(&self) -> Vec<Need> {
            vec![Need::BehaviorLogprob]
        }

        fn reach(&self) -> Reach {
            Reach::Minibatch
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, now: &Now) -> f64 {
            let tokens = tokens(rows, out, totals, self.aggregation);
            let losses = self.token_losses(&tokens, now);
            tokens.iter().zip(losses).filter_map(|(t, s)| Some(t.scale * s?.loss)).sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, now: &Now, grad: &mut Columns) -> Sums {
            let tokens = tokens(rows, out, totals, self.aggregation);
            let (mut loss, mut clipped, mut kl) = (0.0, 0.0, 0.0);
            for (t, s) in tokens.iter().zip(self.token_losses(&tokens, now)) {
                kl -= t.difference();
                match s {
                    Some(s) => {
                        grad.logprob_mut()[t.at] += (t.scale * s.slope) as f32;
                        loss += t.weight * s.loss;
                    }
                    None => clipped += 1.0,
                }
            }
            let n = tokens.len() as f64;
            let mut sums = Sums::default();
            sums.add("actor/pg_loss", loss, n);
            // As in verl: only what the covariance took out.
            sums.add("actor/pg_clipfrac", clipped, n);
            sums.add("actor/ppo_kl", kl, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, Case, check_gradient, gradient};

    fn clip_cov(ratio: f64, low: f64, high: f64) -> ClipCov {
        ClipCov {
            ratio: Unit::try_from(ratio).unwrap(),
            cov_low: Finite::try_from(low).unwrap(),
            cov_high: Finite::try_from(high).unwrap(),
            clip_low: paper_clip(),
            clip_high: paper_clip(),
            aggregation: Aggregation::TokenMean,
        }
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            check_gradient(&ClipCov { aggregation, ..clip_cov(0.2, 0.1, 5.0) });
        }
    }

    /// Covariances: means −2 and 0, so 2·2, 1·1, 0, −1·−1, −2·−2.
    const ROW: &[(f32, f32, f32)] =
        &[(0.0, 0.0, 2.0), (-1.0, -1.0, 1.0), (-2.0, -2.0, 0.5), (-3.0, -3.0, -1.0), (-4.0, -4.0, -2.5)];

    #[test]
    fn of_those_in_the_range_some_lose_their_gradient() {
        let lost = |objective: &ClipCov| gradient(objective, &[ROW]).iter().filter(|g| **g == 0.0).count();
        assert_eq!(lost(&clip_cov(0.0, 9.0, 99.0)), 0);
        assert_eq!(lost(&clip_cov(0.0, 0.5, 99.0)), 1);
        assert_eq!(lost(&clip_cov(0.4, 0.5, 99.0)), 2);
        assert_eq!(lost(&clip_cov(1.0, 0.5, 99.0)), 4);
        // only the two in the middle
        let both = gradient(&clip_cov(1.0, 0.5, 2.0), &[ROW]);
        assert!(both[1] == 0.0 && both[3] == 0.0 && both[0] != 0.0 && both[4] != 0.0, "{both:?}");
        assert_eq!(Case::new(&[ROW]).statistic(&clip_cov(0.4, 0.5, 99.0), "actor/pg_clipfrac"), 0.4);
    }

    #[test]
    fn without_a_candidate_it_is_ppo() {
        let ppo = crate::PpoClip {
            clip_low: paper_clip(),
            clip_high: paper_clip(),
            dual_clip: None,
            aggregation: Aggregation::TokenMean,
        };
        let rows: &[&[(f32, f32, f32)]] = &[&[(-0.1, -0.5, 1.0), (-2.0, -1.0, -1.0)], &[(0.0, -500.0, 2.0)]];
        assert_eq!(gradient(&clip_cov(1.0, 98.0, 99.0), rows), gradient(&ppo, rows));
        assert!(gradient(&clip_cov(1.0, 98.0, 99.0), &[]).is_empty());
    }
}
