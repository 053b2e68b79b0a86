//! Entropy-modulated policy gradients: confident turns get larger advantages, and a bonus goes to turns that lead to
//! confident ones.
//!
//! `A_t ← g_t A_t + ζ f_{t+1} − mean`, `g_t = exp(−k H̃_t) / mean exp(−k H̃)`, `f_t = exp(−k′ H̃_t)`,
//! `H̃_t = (H_t − min H) / (max H − min H + 1e-8)`; `H_t` is the mean entropy of a turn's sampled tokens; `min`, `max`
//! and the means are over the trained turns of the whole batch.
//!
//! Wang et al. 2025, EMPG, arXiv 2509.09265 (`k = k′ = 1`, `ζ = 0.1`). Reductions: with `k = ζ = 0` it centres the
//! batch over turns.
//! Edge cases: the last turn of a trajectory has no bonus; where a path forks the bonus is the mean over the
//! continuations; a turn whose tokens have no entropy (given, not sampled) has `g = 1`, gives no bonus, and counts in
//! the last mean alone. Credit finer than a turn is changed as its turn is. The batch is centred, so whitening after it
//! only scales.

use ascribe_core::range::NonNegative;
use ascribe_core::{Batch, Credit, CreditTransform, Metrics, Need, Now, Seeds, plugin};
use ascribe_math::{exponential_weights, min_max, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{map_advantages, turn_entropies, turn_means};

/// `[[transform]] empg = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Empg {
    /// How fast the factor falls with a turn's entropy, 0 or more. Paper: 1.
    #[serde(default = "paper_rate")]
    pub k: NonNegative,
    /// How fast the bonus falls with the next turn's entropy, 0 or more. Paper: 1.
    #[serde(default = "paper_rate")]
    pub k_future: NonNegative,
    /// Size of the bonus, in units of advantage, 0 or more. Paper: 0.1.
    #[serde(default = "paper_zeta")]
    pub zeta: NonNegative,
}

fn paper_rate() -> NonNegative {
    NonNegative::try_from(1.0).expect("not negative")
}
fn paper_zeta() -> NonNegative {
    NonNegative::try_from(0.1).expect("not negative")
}

/// Added to the range of entropies, as the authors do.
const EPSILON: f64 = 1e-8;

impl Empg {
    /// The factor `g` and the clarity `f` of each turn of a batch.
    ///
    /// * `entropies`: `[turns]`, in nats
    ///
    /// Returns two lists of `[turns]`: factors of mean 1, clarities in 0..=1.
    pub fn gains(&self, entropies: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut unit = entropies.to_vec();
        min_max(&mut unit, EPSILON);
        let clarity = unit.iter().map(|h| (-*self.k_future * h).exp()).collect();
        exponential_weights(&mut unit, *self.k);
        (unit, clarity)
    }
}

plugin! {
    Transform "empg" {
        summary: "Scales each turn's advantage by its confidence within the batch, and rewards turns that lead to confident ones.",
        source: "Wang et al. 2025, EMPG, arXiv 2509.09265",
        when: "After a group-relative estimator over long trajectories, with a policy that reports entropies. `aem` does it within groups, without the bonus.",
        example: "",
        module: "empg.rs",
    }
    impl CreditTransform for Empg {
        fn needs(&self) -> Vec<Need> {
            vec![Need::Entropy]
        }

        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let entropies: Vec<Vec<Option<f64>>> =
                batch.groups().zip(credit.iter()).map(|(group, credit)| turn_entropies(group, credit)).collect();
            let known: Vec<f64> = entropies.iter().flatten().flatten().copied().collect();
            let (gain, clarity) = self.gains(&known);
            let mut gains = gain.into_iter().zip(clarity);
            for ((group, credit), entropies) in batch.groups().zip(credit.iter_mut()).zip(&entropies) {
                let gains: Vec<Option<(f64, f64)>> = entropies.iter().map(|h| h.and_then(|_| gains.next())).collect();
                let mut next = vec![Vec::new(); group.n_turns()];
                for (t, gain) in gains.iter().enumerate() {
                    if let (Some(parent), Some((_, clarity))) = (group.parent(t), gain) {
                        next[parent].push(*clarity);
                    }
                }
                let bonus: Vec<f64> = next.iter().map(|clarity| *self.zeta * moments(clarity).mean).collect();
                map_advantages(group, credit, |t, a| gains[t].map_or(1.0, |(gain, _)| gain) * a + bonus[t]);
            }
            let modulated: Vec<f64> =
                batch.groups().zip(credit.iter()).flat_map(|(group, credit)| turn_means(group, credit)).flatten().collect();
            let mean = moments(&modulated).mean;
            for (group, credit) in batch.groups().zip(credit) {
                map_advantages(group, credit, |_, a| a - mean);
            }
            let mut metrics = Metrics::default();
            metrics.set("credit/empg/turns_without_entropy", (modulated.len() - known.len()) as f64);
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{build, near, turns, with_entropies};
    use proptest::prelude::*;

    fn empg() -> Empg {
        Empg { k: paper_rate(), k_future: paper_rate(), zeta: paper_zeta() }
    }

    fn check(groups: &[&[&[(f32, f32)]]], want: &[f32]) {
        let (logs, mut credit) = with_entropies(groups);
        empg().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
        near(&turns(&credit), want);
    }

    #[test]
    fn hand_worked() {
        // H̃ = 0, 1: g = 1.46212, 0.53788; bonus of the first 0.1/e = 0.03679; raw 1.49891, 0.53788, mean 1.01839
        check(&[&[&[(0.2, 1.0), (1.2, 1.0)]]], &[0.48051, -0.48051]);
        // the range is the batch's: two groups are as one
        check(&[&[&[(0.2, 1.0)]], &[&[(1.2, 1.0)]]], &[0.46212, -0.46212]);
    }

    #[test]
    fn equal_entropies_leave_the_bonus() {
        // g = f = 1: raw 1.1, 1.0
        check(&[&[&[(0.5, 1.0), (0.5, 1.0)]]], &[0.05, -0.05]);
    }

    #[test]
    fn what_is_not_trained_stays_so_and_gives_no_bonus() {
        let (mut logs, mut credit) = with_entropies(&[&[&[(0.2, 1.0), (1.2, 1.0), (0.2, 5.0), (0.7, 0.0)]]]);
        credit[0].turns[2] = None;
        logs[0].turns[3].action.entropy = None;
        let metrics = empg().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
        assert_eq!(credit[0].turns[2], None);
        // raw 1.49891, 0.53788, 0: mean 0.67893
        near(&[0, 1, 3].map(|t| credit[0].turns[t].unwrap()), &[0.81998, -0.14105, -0.67893]);
        assert_eq!(metrics.get("credit/empg/turns_without_entropy"), Some(1.0));
    }

    #[test]
    fn a_fork_takes_the_mean_of_its_continuations() {
        let (mut logs, mut credit) = with_entropies(&[&[&[(0.2, 0.0), (1.2, 0.0)], &[(0.2, 0.0)]]]);
        logs[0].turns[2].parent = Some(0);
        empg().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
        // bonus of the first 0.1·(1/e + 1)/2 = 0.06839, less the mean of three, 0.02280
        near(&turns(&credit), &[0.04560, -0.02280, -0.02280]);
    }

    #[test]
    fn nothing_trained_is_nothing_done() {
        let (logs, mut credit) = with_entropies(&[&[&[(0.2, 1.0)]]]);
        credit[0].turns[0] = None;
        empg().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
        assert_eq!(credit[0].turns, [None]);
    }

    proptest! {
        #[test]
        fn the_batch_is_centred(path in prop::collection::vec((0.0..3.0f32, -2.0..2.0f32), 1..20)) {
            let (logs, mut credit) = with_entropies(&[&[&path]]);
            empg().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
            // n numbers of size below 5, each rounded to f32
            prop_assert!(turns(&credit).iter().map(|a| f64::from(*a)).sum::<f64>().abs() < 1e-5);
        }
    }
}
