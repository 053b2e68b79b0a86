//! Adaptive entropy modulation: confident turns get larger advantages, uncertain ones smaller, whatever their sign.
//!
//! `A_t ← α_t A_t`, `α_t = exp(−λ H̃_t) / mean exp(−λ H̃)`, `H̃_t = (H_t − min H) / (max H − min H)`; `H_t` is the mean
//! entropy of a turn's sampled tokens, `min`, `max` and `mean` are over the trained turns of the group.
//!
//! AEM, arXiv 2605.00425 (`λ = 1`). It adds no entropy bonus. Reductions: `λ = 0`, and a range of entropies below
//! `min_range`, give `α = 1`.
//! Edge cases: a group of one turn has no range; 0 stays 0; a shared turn counts once; a turn whose tokens have no
//! entropy (given, not sampled) keeps its advantage and is in no statistic. Credit finer than a turn is multiplied by
//! its turn's α. It belongs after the group's normalisation.

use ascribe_core::range::{Finite, NonNegative};
use ascribe_core::{Batch, Credit, CreditTransform, Metrics, Need, Now, Seeds, plugin};
use ascribe_math::{exponential_weights, min_max};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{map_advantages, turn_entropies};

/// `[[transform]] aem = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aem {
    /// How fast the factor falls with the entropy. Paper: 1; negative reverses the direction.
    #[serde(default = "paper_lambda")]
    pub lambda: Finite,
    /// Range of entropies in nats below which a group is left as it is, 0 or more. Paper: 0.1.
    #[serde(default = "paper_min_range")]
    pub min_range: NonNegative,
}

fn paper_lambda() -> Finite {
    Finite::try_from(1.0).expect("finite")
}
fn paper_min_range() -> NonNegative {
    NonNegative::try_from(0.1).expect("not negative")
}

impl Aem {
    /// The factors of a group's turns.
    ///
    /// * `entropies`: `[turns]`, in nats
    ///
    /// Returns `[turns]`, of mean 1; `None` where the range of entropies is below `min_range`.
    pub fn factors(&self, entropies: &[f64]) -> Option<Vec<f64>> {
        let high = entropies.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = entropies.iter().copied().fold(f64::INFINITY, f64::min);
        if entropies.is_empty() || high - low < *self.min_range {
            return None;
        }
        let mut factors = entropies.to_vec();
        min_max(&mut factors, 0.0);
        exponential_weights(&mut factors, *self.lambda);
        Some(factors)
    }
}

plugin! {
    Transform "aem" {
        summary: "Multiplies each turn's advantage by a factor that falls with the turn's entropy within its group.",
        source: "AEM, arXiv 2605.00425",
        when: "After a group-relative estimator, with a policy that reports entropies; before whitening.",
        example: "",
        module: "aem.rs",
    }
    impl CreditTransform for Aem {
        fn needs(&self) -> Vec<Need> {
            vec![Need::Entropy]
        }

        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let mut level = 0;
            for (group, credit) in batch.groups().zip(credit) {
                let entropies = turn_entropies(group, credit);
                let known: Vec<f64> = entropies.iter().flatten().copied().collect();
                let Some(factors) = self.factors(&known) else {
                    level += 1;
                    continue;
                };
                let mut factors = factors.into_iter();
                let of_turn: Vec<f64> =
                    entropies.iter().map(|h| h.and_then(|_| factors.next()).unwrap_or(1.0)).collect();
                map_advantages(group, credit, |t, a| of_turn[t] * a);
            }
            let mut metrics = Metrics::default();
            metrics.set("credit/aem/level_groups", f64::from(level));
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{build, near, turns, with_entropies};
    use proptest::prelude::*;

    fn aem() -> Aem {
        Aem { lambda: paper_lambda(), min_range: paper_min_range() }
    }

    fn check(groups: &[&[&[(f32, f32)]]], want: &[f32], level: f64) {
        let (logs, mut credit) = with_entropies(groups);
        let metrics = aem().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
        near(&turns(&credit), want);
        assert_eq!(metrics.get("credit/aem/level_groups"), Some(level));
    }

    #[test]
    fn hand_worked() {
        // H̃ = 0, 1: weights 1, 1/e; mean (1 + 1/e)/2 = 0.68394; α = 1.46212, 0.53788
        check(&[&[&[(0.2, 1.0), (1.2, 1.0)]]], &[1.46212, 0.53788], 0.0);
        check(&[&[&[(0.2, -1.0)], &[(1.2, -2.0)]]], &[-1.46212, -1.07577], 0.0);
        // each group has its own range
        check(&[&[&[(0.2, 1.0), (1.2, 1.0)]], &[&[(5.0, 1.0), (9.0, 0.0)]]], &[1.46212, 0.53788, 1.46212, 0.0], 0.0);
    }

    #[test]
    fn a_group_without_range_is_left_alone_and_counted() {
        check(&[&[&[(0.30, 1.0), (0.35, 1.0)]], &[&[(7.0, 2.0)]]], &[1.0, 1.0, 2.0], 2.0);
    }

    #[test]
    fn what_is_not_trained_or_has_no_entropy_is_in_no_statistic() {
        let (mut logs, mut credit) = with_entropies(&[&[&[(0.2, 1.0), (1.2, 1.0), (99.0, 1.0), (50.0, 3.0)]]]);
        credit[0].turns[2] = None;
        logs[0].turns[3].action.entropy = None;
        aem().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
        assert_eq!((credit[0].turns[2], credit[0].turns[3]), (None, Some(3.0)));
        near(&[credit[0].turns[0].unwrap(), credit[0].turns[1].unwrap()], &[1.46212, 0.53788]);
    }

    #[test]
    fn a_shared_turn_counts_once_and_tokens_follow_their_turn() {
        let (mut logs, mut credit) = with_entropies(&[&[&[(0.2, 1.0), (1.2, 1.0)], &[(0.2, 1.0)]]]);
        logs[0].turns[2].parent = Some(0);
        credit[0].tokens = vec![Some(2.0), None, None].into();
        aem().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
        // weights 1, 1/e, 1: mean 0.78929
        near(&turns(&credit), &[1.26696, 0.46609, 1.26696]);
        near(&[credit[0].tokens.get(0).unwrap()], &[2.53391]);
    }

    proptest! {
        #[test]
        fn factors_have_mean_one_and_fall(h in prop::collection::vec(0.0..4.0f64, 2..20)) {
            if let Some(f) = aem().factors(&h) {
                prop_assert!((f.iter().sum::<f64>() / f.len() as f64 - 1.0).abs() < 1e-12);
                for (i, j) in (0..h.len()).flat_map(|i| (0..i).map(move |j| (i, j))) {
                    prop_assert!(h[i] >= h[j] || f[i] >= f[j]);
                }
            }
        }
    }
}
