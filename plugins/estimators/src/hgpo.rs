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
//! The paper weighs the level of k observations by `k^α`, the code by `(k + 1)^α`, as here.

use ascribe_core::range::{AtLeast, NonNegative, Unit};
use ascribe_core::{AdvantageEstimator, Anchor, Credit, Decay, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::{Deviation, Measure, Moments, Singleton, Standardise, clusters, moments_by};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grpo::Grpo;
use crate::outcome::{Mode, Over, nothing, one, verl_epsilon, yes};
use crate::steps::{self, Steps};

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
        module: "hgpo.rs",
    }
    impl AdvantageEstimator for Hgpo {
        fn needs(&self) -> Vec<Need> {
            self.mode.needs()
        }

        fn laws(&self) -> Vec<Law> {
            steps::laws(self.std, self.invalid_penalty)
        }

        fn decay(&self) -> Option<Decay> {
            steps::decay(self.gamma)
        }

        fn anchor(&self) -> Option<Anchor> {
            Some(Anchor::Observation)
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
            // A choice of a number, not of a way: which steps are silent cannot be foreseen.
            let weight = if self.keep_zeros || advantage != 0.0 { weight } else { 0.0 };
            sum[step] += weight * advantage;
            weights[step] += weight;
        };
        if self.base_group {
            let grpo = Grpo { std: self.std, epsilon: self.epsilon, mode: self.mode, over: Over::Turns };
            let measure = grpo.measure(&steps.scores);
            steps.scores.iter().enumerate().for_each(|(step, score)| add(step, 1.0, measure.of(*score)));
        }
        let how = Standardise { scale: self.std.then_some((Deviation::Population, *self.epsilon)), singleton: Singleton::Zero };
        // Two steps agree on the last k observations if they agree on their own and, a step before, on k − 1: if they lie in
        // one cluster of the level below. On no observation all agree.
        let anchors = clusters(steps.anchors.iter().map(|anchor| u64::from(*anchor)));
        let n_of = |cluster: &[u32]| cluster.iter().max().map_or(0, |last| u64::from(*last) + 1);
        let n_anchors = n_of(&anchors);
        let (mut before, mut n_before) = (vec![Some(0); n], 1);
        for level in 1..=self.levels.get().saturating_add(1) {
            let key = |step: usize| match before[step] {
                Some(cluster) => u64::from(cluster) * n_anchors + u64::from(anchors[step]),
                // Too close to the start to have k observations: alone, under a number that no pair has.
                None => n_before * n_anchors + step as u64,
            };
            let cluster = clusters((0..n).map(key));
            let weight = (level as f64 + 1.0).powf(*self.alpha);
            // A step alone is left out.
            let of_cluster = |group: &Moments| (if group.n > 1 { weight } else { 0.0 }, how.measure(group));
            let told_in: Vec<(f64, Measure)> = moments_by(&cluster, &steps.returns).iter().map(of_cluster).collect();
            for (step, c) in cluster.iter().enumerate() {
                let (weight, measure) = told_in[*c as usize];
                add(step, weight, measure.of(steps.returns[step]));
            }
            n_before = n_of(&cluster);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, credit};
    use crate::gigpo::Gigpo;
    use crate::steps::tests::{any_walks, at, walks};
    use ascribe_core::End;
    use proptest::prelude::*;

    /// γ and levels, without division and ε.
    fn centred(gamma: f64, levels: u64) -> Hgpo {
        let settings = serde_json::json!({ "gamma": gamma, "levels": levels, "std": false, "epsilon": 0.0 });
        serde_json::from_value(settings).unwrap()
    }
    fn near(got: &[f32], want: &[f64]) -> bool {
        got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-6)
    }
    fn three() -> ascribe_core::Batch {
        walks(&[vec![(0, 0.0), (1, 4.0)], vec![(0, 0.0), (1, 0.0)], vec![(0, 0.0), (2, 0.0), (1, 8.0)]])
    }

    #[test]
    fn longer_agreement_weighs_more() {
        // γ = 1. Level 1: from 0 the returns are 4, 0, 8, and from 1 as well: 0, −4, 4; from 2 there is one alone.
        // Level 2: from 0 to 1 they are 4, 0: 2, −2. Weights 2 and 3: (2·−4 + 3·−2)/5 = −2.8; a 0 is left out.
        assert!(near(&credit(&centred(1.0, 1), &three()), &[0.0, 2.0, -4.0, -2.8, 4.0, 0.0, 4.0]));
        // The 0 keeps its weight: (2·0 + 3·2)/5.
        let kept = Hgpo { keep_zeros: true, ..centred(1.0, 1) };
        assert!(near(&credit(&kept, &three()), &[0.0, 1.2, -4.0, -2.8, 4.0, 0.0, 4.0]));
        // α = 0: (−4 − 2)/2
        let alike = Hgpo { alpha: nothing(), ..centred(1.0, 1) };
        assert!(near(&credit(&alike, &three()), &[0.0, 2.0, -4.0, -3.0, 4.0, 0.0, 4.0]));
        // No path is longer than three turns.
        assert_eq!(credit(&centred(1.0, u64::MAX), &three()), credit(&centred(1.0, 2), &three()));
    }

    #[test]
    fn levels_divide_by_population_deviations() {
        // 1, 0: ±½ over ½, then the weights' ε: 2/(2 + ε)
        let epsilon = NonNegative::try_from(0.5).unwrap();
        let hgpo = Hgpo { std: true, epsilon, ..centred(1.0, 0) };
        assert!(near(&credit(&hgpo, &walks(&[vec![(0, 1.0)], vec![(0, 0.0)]])), &[0.5 * 2.0 / 2.5, -0.5 * 2.0 / 2.5]));
    }

    #[test]
    fn outcomes_can_be_the_level_below() {
        // γ = ½: returns ½, 1, 0, 0. Level 0 over turns ±½, level 1 at the start ±¼: (1·½ + 2·¼)/3
        let two = walks(&[vec![(0, 0.0), (1, 1.0)], vec![(0, 0.0), (2, 0.0)]]);
        let based = Hgpo { base_group: true, ..centred(0.5, 0) };
        assert!(near(&credit(&based, &two), &[1.0 / 3.0, 0.5, -1.0 / 3.0, -0.5]));
        let one = walks(&[vec![(0, 2.0)]]);
        assert_eq!(credit(&based, &one), [0.0]);
        assert_eq!(credit(&Hgpo { mode: Mode::Official, ..based }, &one), [2.0]);
    }

    #[test]
    fn equal_values_give_exactly_zero() {
        for n in 2..16 {
            let same = walks(&vec![vec![(0, 0.0), (1, 0.3), (2, 0.7)]; n]);
            let hgpo = Hgpo { std: true, base_group: true, epsilon: verl_epsilon(), ..centred(0.95, 2) };
            assert_eq!(credit(&hgpo, &same), vec![0.0; 3 * n]);
        }
    }

    #[test]
    fn siblings_share_their_past() {
        // Returns ½, 1, 0 and 3, 3. From 0: ½, 3; from 1: 1, 0, 3, mean 4/3; from 0 to 1 the same, as both are reached there.
        let turns = vec![at(None, 0, 0.0), at(Some(0), 1, 1.0), at(Some(0), 1, 0.0), at(None, 0, 0.0), at(Some(3), 1, 3.0)];
        let tree = batch(turns, &[(1, WON), (2, LOST), (4, WON)]);
        let third = 1.0 / 3.0;
        assert!(near(&credit(&centred(1.0, 1), &tree), &[-1.25, -third, -4.0 * third, 1.25, 5.0 * third]));
    }

    #[test]
    fn what_was_not_tried_moves_no_baseline() {
        let turns = vec![at(None, 0, 1.0), at(None, 0, 0.0), at(None, 0, 9.0)];
        let untried = batch(turns, &[(0, WON), (1, LOST), (2, End::Untried)]);
        let credit = centred(1.0, 2).estimate(untried.group(0), &Now::default()).unwrap();
        assert_eq!(credit.turns, [Some(0.5), Some(-0.5), None]);
    }

    proptest! {
        #[test]
        fn the_first_level_alone_is_the_step_part_of_gigpo(paths in any_walks()) {
            let batch = walks(&paths);
            let gigpo: Gigpo = serde_json::from_value(serde_json::json!({ "gamma": 0.5, "std": false })).unwrap();
            let steps = gigpo.steps(batch.group(0));
            let got = centred(0.5, 0).advantages(&steps);
            prop_assert!(got.iter().zip(gigpo.step(&steps)).all(|(g, w)| (g - w).abs() < 1e-12));
        }

        #[test]
        fn every_level_is_the_plain_comparison(paths in any_walks(), levels in 0u64..4, keep_zeros: bool) {
            let batch = walks(&paths);
            let hgpo = Hgpo { keep_zeros, ..centred(0.5, levels) };
            let steps = Steps::of(batch.group(0), 0.5, 0.0);
            // The last k observations, oldest last; none where the path is shorter.
            let past = |step: usize, k: usize| {
                let path = std::iter::successors(Some(step), |s| steps.parents[*s].map(|p| p as usize));
                let seen: Vec<u32> = path.take(k).map(|s| steps.anchors[s]).collect();
                (seen.len() == k).then_some(seen)
            };
            for (step, got) in hgpo.advantages(&steps).into_iter().enumerate() {
                let (mut sum, mut weights) = (0.0, 0.0);
                for k in 1..=levels as usize + 1 {
                    let Some(own) = past(step, k) else { continue };
                    let alike = (0..steps.turns.len()).filter(|other| past(*other, k).as_ref() == Some(&own));
                    let same: Vec<f64> = alike.map(|other| steps.returns[other]).collect();
                    let advantage = steps.returns[step] - same.iter().sum::<f64>() / same.len() as f64;
                    if same.len() > 1 && (keep_zeros || advantage.abs() > 1e-12) {
                        sum += (k as f64 + 1.0) * advantage;
                        weights += k as f64 + 1.0;
                    }
                }
                let want = if weights > 0.0 { sum / weights } else { 0.0 };
                prop_assert!((got - want).abs() < 1e-9, "{step}: {got}, not {want}");
            }
        }

        #[test]
        fn permuting_trajectories_permutes_credit(paths in any_walks(), turn_by in 0usize..7) {
            // γ = ½ and small numbers: what is exactly 0 is so in every order.
            let hgpo = Hgpo { base_group: true, ..centred(0.5, 2) };
            let turn_by = turn_by % paths.len();
            let mut permuted = paths.clone();
            permuted.rotate_left(turn_by);
            let mut want = credit(&hgpo, &walks(&paths));
            want.rotate_left(paths[..turn_by].iter().map(Vec::len).sum());
            let got = credit(&hgpo, &walks(&permuted));
            prop_assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-5), "{got:?} {want:?}");
        }
    }
}
