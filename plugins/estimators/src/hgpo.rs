//! Hierarchy-of-groups advantage: each turn's return against those of turns with the same last observation, the same last
//! two, and so on; longer agreement weighs more.
//!
//! `A_t = Σ_k w_k A_k / (Σ_k w_k + ε)`, `w_k = (k + 1)^α`, `A_k = (G_t − mean_k G) / (std_k G + ε)`, where
//! `G_t = r_t + γ G_{t+1}` over turns and level k = 1..=K+1 compares the group's turns that saw the same k observations in a
//! row, t's own the last. Level 0, with `base_group`, compares outcomes as `gigpo` does over turns. At a branch `G` is the
//! mean over the children; a shared turn counts once, and its past is its own path's.
//!
//! He et al. 2026, "Hierarchy-of-Groups Policy Optimization", arXiv 2602.22817; official numbers from verl-agent
//! (`recipe/hgpo/core_hgpo.py`: population standard deviation for levels, sample for outcomes, ε = 1e-6). Reductions:
//! `levels = 0` is the step part of `gigpo` with the population deviation, shrunk by `2^α/(2^α + ε)`.
//! Edge cases: a level that has a turn alone, or that begins before the start, is left out; no level gives 0. Equal values
//! give exactly 0. A cut path's future is worth 0. Untried paths are not trained and move no baseline.
//! Where the authors' code differs from their paper: the sum leaves out levels whose advantage is exactly 0 and divides by
//! the weights of the others, so the advantage grows where a level is silent; `keep_zeros` keeps the weight of such a level.
//! The paper's weights `(k + 1)^α` begin at the outcomes with 1, the code's too, but only with `base_group`.

use ascribe_core::range::{AtLeast, NonNegative, Unit};
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Need, Now, plugin};
use ascribe_math::{Deviation, Measure, Singleton, Standardise, clusters, moments_by};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grpo::Grpo;
use crate::outcome::{Mode, Over, nothing, one, verl_epsilon, yes};
use crate::steps::Steps;

/// `[estimator.hgpo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hgpo {
    /// Discount per turn, in 0..=1. Authors' scripts: 0.95.
    pub gamma: Unit,
    /// K, 0 or more: how many observations before a turn's own the longest key holds. Authors' scripts: 2 or 4.
    pub levels: AtLeast<0>,
    /// Exponent α of a level's weight, 0 or more: 0 weighs all alike. Official: 1.
    #[serde(default = "one")]
    pub alpha: NonNegative,
    /// Whether to divide by standard deviations; the authors do not for WebShop.
    #[serde(default = "yes")]
    pub std: bool,
    /// Added to a standard deviation and to the sum of weights, 0 or more. Official: 1e-6.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
    /// Taken from return and outcome of a turn whose action was malformed or cut, 0 or more. Authors' scripts: 0.1.
    #[serde(default = "nothing")]
    pub invalid_penalty: NonNegative,
    /// Whether the comparison of outcomes is a level too. Official: no.
    #[serde(default)]
    pub base_group: bool,
    /// Whether a level whose advantage is exactly 0 keeps its weight. Official: no.
    #[serde(default)]
    pub keep_zeros: bool,
    /// Where paper and official code differ: the outcome of a group of one, with `base_group`.
    #[serde(default)]
    pub mode: Mode,
}

plugin! {
    Estimator "hgpo" {
        summary: "Each turn's return against turns with the same recent observations, longer agreement weighing more.",
        source: "He et al. 2026, Hierarchy-of-Groups Policy Optimization, arXiv 2602.22817; verl-agent recipe/hgpo/core_hgpo.py",
        when: "As gigpo, where one observation does not tell the state: turns are compared whose recent past is equal too.",
        example: "gamma = 0.95\nlevels = 2",
    }
    impl AdvantageEstimator for Hgpo {
        fn needs(&self) -> Vec<Need> {
            self.mode.needs()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let steps = Steps::of(group, *self.gamma, *self.invalid_penalty);
            Ok(steps.credit(group.n_turns(), &self.advantages(&steps)))
        }
    }
}

impl Hgpo {
    /// Advantage of each step, `[steps]`.
    pub fn advantages(&self, steps: &Steps) -> Vec<f64> {
        let n = steps.turns.len();
        let (mut sum, mut weights) = (vec![0.0; n], vec![0.0; n]);
        let mut add = |step: usize, weight: f64, advantage: f64| {
            if self.keep_zeros || advantage != 0.0 {
                sum[step] += weight * advantage;
                weights[step] += weight;
            }
        };
        if self.base_group {
            let grpo = Grpo { std: self.std, epsilon: self.epsilon, mode: self.mode, over: Over::Turns };
            let measure = grpo.measure(&steps.scores);
            steps.scores.iter().enumerate().for_each(|(step, score)| add(step, 1.0, measure.of(*score)));
        }
        let how = Standardise { scale: self.std.then_some((Deviation::Population, *self.epsilon)), singleton: Singleton::Zero };
        // Two steps agree on the last k observations if they agree on their own and, a step before, on k − 1: if they lie in
        // one cluster of the level below. On no observation all agree.
        let mut before = vec![Some(0); n];
        for level in 1..=self.levels.get().saturating_add(1) {
            let key = |step: usize| match before[step] {
                Some(cluster) => pair(cluster, steps.anchors[step]),
                // Too close to the start to have k observations: alone, under a number that no cluster has.
                None => pair(u32::MAX, step as u32),
            };
            let cluster = clusters((0..n).map(key));
            let moments = moments_by(&cluster, &steps.returns);
            let measures: Vec<Measure> = moments.iter().map(|group| how.measure(group)).collect();
            let weight = (level as f64 + 1.0).powf(*self.alpha);
            for (step, c) in cluster.iter().enumerate() {
                if moments[*c as usize].n > 1 {
                    add(step, weight, measures[*c as usize].of(steps.returns[step]));
                }
            }
            let below = |parent: &Option<u32>| parent.and_then(|p| before[p as usize].map(|_| cluster[p as usize]));
            before = steps.parents.iter().map(below).collect();
            if before.iter().all(Option::is_none) {
                break;
            }
        }
        let mean = |(sum, weights): (f64, f64)| if weights > 0.0 { sum / (weights + *self.epsilon) } else { 0.0 };
        sum.into_iter().zip(weights).map(mean).collect()
    }
}

/// Two numbers as one key.
fn pair(a: u32, b: u32) -> u64 {
    (u64::from(a) << 32) | u64::from(b)
}
