//! Group-in-group advantage: a trajectory's outcome against its siblings', plus each turn's return against those of other
//! turns that began from the same observation.
//!
//! `A_t = A_E + ω A_S`, `A_E = (R_i − mean_g R) / (std_g R + ε)`, `A_S = (G_t − mean_c G) / (std_c G + ε)`, where
//! `G_t = r_t + γ G_{t+1}` over turns and c is the cluster of the group's turns with t's observation (the anchor), other
//! visits on the same trajectory included. At a branch `G` is the mean over the children; a shared turn counts once.
//!
//! Feng et al. 2025, "Group-in-Group Policy Optimization", arXiv 2505.10978 (eq. 3 for outcomes); official numbers from
//! verl-agent (`gigpo/core_gigpo.py`: sample standard deviation, ε = 1e-6). Reductions: `step_weight = 0` is `grpo`; where
//! every anchor is seen once, too.
//! Edge cases: equal values give exactly 0 (official code divides the rounding noise of its `f32` mean by ε); so does an
//! anchor seen once. A cut path's future is worth 0. Untried paths are not trained and move no baseline.
//! Where the authors' code differs from their paper: it takes the statistics of outcomes over turns (`over = "turns"`), it
//! keeps the raw outcome of a group of one (`mode = "official"`), and it takes a penalty for invalid actions from return and
//! outcome of that turn alone (`invalid_penalty`). It also copies random rows into the statistics to fill its last
//! minibatch; that is not followed. Defaults are the paper's; the authors' scripts say `over = "turns"`,
//! `mode = "official"`, `invalid_penalty = 0.1`, `gamma = 0.95`, and `std = false` for WebShop.
//! With `similarity`, clusters depend on the order of turns: being alike is not transitive. Keep observations free of step
//! counters instead, where you can.

use ascribe_core::range::{NonNegative, Unit};
use ascribe_core::{AdvantageEstimator, Anchor, Credit, Decay, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::{Deviation, Measure, Singleton, Standardise, clusters, moments_by, similar_clusters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grpo::Grpo;
use crate::outcome::{Mode, Over, nothing, one, verl_epsilon, yes};
use crate::steps::{self, Steps};

/// A ratio strictly between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
pub struct Threshold(f64);

impl TryFrom<f64> for Threshold {
    type Error = String;
    fn try_from(x: f64) -> Result<Self, String> {
        if x > 0.0 && x < 1.0 { Ok(Self(x)) } else { Err(format!("must be between 0 and 1 and neither of them, got {x}")) }
    }
}
impl From<Threshold> for f64 {
    fn from(x: Threshold) -> f64 {
        x.0
    }
}

/// `[estimator.gigpo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gigpo {
    /// Discount per turn, in 0..=1. Authors' scripts: 0.95.
    pub gamma: Unit,
    /// Weight ω of the step advantage, 0 or more. The paper's is 1.
    #[serde(default = "one")]
    pub step_weight: NonNegative,
    /// Whether to divide by standard deviations, of outcomes and of returns; the authors do not for WebShop.
    #[serde(default = "yes")]
    pub std: bool,
    /// Added to a standard deviation, 0 or more. Official: 1e-6.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
    /// Taken from return and outcome of a turn whose action was malformed or cut, 0 or more. Authors' scripts: 0.1.
    #[serde(default = "nothing")]
    pub invalid_penalty: NonNegative,
    /// Where set, texts of observations share an anchor from this ratio of equal characters on (Python's difflib), between
    /// 0 and 1. Unset, equal observations do.
    #[serde(default)]
    pub similarity: Option<Threshold>,
    /// What the statistics of outcomes are over: `trajectories`, or `turns` as in official code.
    #[serde(default)]
    pub over: Over,
    /// Where paper and official code differ: a group of one.
    #[serde(default)]
    pub mode: Mode,
}

plugin! {
    Estimator "gigpo" {
        summary: "GRPO plus each turn's return against other turns from the same observation.",
        source: "Feng et al. 2025, Group-in-Group Policy Optimization, arXiv 2505.10978; verl-agent gigpo/core_gigpo.py",
        when: "Long episodes whose trajectories meet in the same observations: it says which turn was better, without a critic.",
        example: "gamma = 0.95",
        module: "gigpo.rs",
    }
    impl AdvantageEstimator for Gigpo {
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
            // Alike is more than equal: how often turns meet then, equal observations do not tell.
            self.similarity.is_none().then_some(Anchor::Observation)
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let steps = self.steps(group);
            Ok(steps.credit(group.n_turns(), &self.advantages(&steps)))
        }
    }
}

impl Gigpo {
    /// What is compared.
    pub fn steps(&self, group: Group<'_>) -> Steps {
        let mut steps = Steps::of(group, *self.gamma, *self.invalid_penalty);
        if let Some(Threshold(threshold)) = self.similarity {
            let notes = &group.batch().notes[group.rows()];
            let texts: Vec<&str> = steps.turns.iter().map(|t| notes[*t].observation.as_str()).collect();
            steps.anchors = similar_clusters(&texts, threshold);
        }
        steps
    }

    /// Advantage of each step, `[steps]`.
    pub fn advantages(&self, steps: &Steps) -> Vec<f64> {
        let (episode, step) = (self.episode(steps), self.step(steps));
        episode.iter().zip(step).map(|(episode, step)| episode + *self.step_weight * step).collect()
    }

    /// The part from outcomes, `[steps]`: that of `grpo`.
    pub fn episode(&self, steps: &Steps) -> Vec<f64> {
        let grpo = Grpo { std: self.std, epsilon: self.epsilon, mode: self.mode, over: self.over };
        let measure = grpo.measure(match self.over {
            Over::Trajectories => &steps.paths,
            Over::Turns => &steps.scores,
        });
        steps.scores.iter().map(|score| measure.of(*score)).collect()
    }

    /// The part from returns since equal anchors, `[steps]`.
    pub fn step(&self, steps: &Steps) -> Vec<f64> {
        let how = Standardise { scale: self.std.then_some((Deviation::Sample, *self.epsilon)), singleton: Singleton::Zero };
        let cluster = clusters(steps.anchors.iter().map(|anchor| u64::from(*anchor)));
        let measures: Vec<Measure> = moments_by(&cluster, &steps.returns).iter().map(|group| how.measure(group)).collect();
        steps.returns.iter().zip(cluster).map(|(x, c)| measures[c as usize].of(*x)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, credit, turn};
    use crate::steps::tests::{any_walks, at, walks};
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{GroupLog, LeafLog, TurnLog};
    use ascribe_core::{Batch, End};
    use proptest::prelude::*;

    /// γ, without division.
    fn centred(gamma: f64) -> Gigpo {
        serde_json::from_value(serde_json::json!({ "gamma": gamma, "std": false })).unwrap()
    }
    fn over_turns(gigpo: Gigpo) -> Gigpo {
        Gigpo { over: Over::Turns, ..gigpo }
    }
    fn near(got: &[f32], want: &[f64]) -> bool {
        got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-6)
    }

    #[test]
    fn three_shops_from_one_page() {
        // mean of 1.00, 0.73, 0.00 is 0.577
        let shops = walks(&[vec![(0, 1.0)], vec![(0, 0.73)], vec![(0, 0.0)]]);
        let gigpo = centred(0.95);
        let step: Vec<String> = gigpo.step(&gigpo.steps(shops.group(0))).iter().map(|a| format!("{a:+.2}")).collect();
        assert_eq!(step, ["+0.42", "+0.15", "-0.58"]);
    }

    #[test]
    fn visits_of_one_trajectory_count_too() {
        // γ = ½: returns of the first ¼, ½, 1, of the second 0; those from observation 0 are ¼, 1, 0, mean 5/12
        let two = walks(&[vec![(0, 0.0), (1, 0.0), (0, 1.0)], vec![(0, 0.0)]]);
        let third = 1.0 / 3.0;
        assert!(near(&credit(&centred(0.5), &two), &[third, 0.5, 0.75 + third, -0.75 - third / 2.0]));
        // outcomes over turns: 1, 1, 1, 0, mean ¾
        let pooled = credit(&over_turns(centred(0.5)), &two);
        assert!(near(&pooled, &[0.25 - 1.0 / 6.0, 0.25, 0.5 + third, -1.0 - 1.0 / 6.0]), "{pooled:?}");
        // half the weight of the step part
        let half = Gigpo { step_weight: NonNegative::try_from(0.5).unwrap(), ..centred(0.5) };
        assert!(near(&credit(&half, &two), &[0.5 - 1.0 / 12.0, 0.5, 0.5 + 7.0 / 24.0, -0.5 - 5.0 / 24.0]));
    }

    #[test]
    fn divided_by_sample_deviations() {
        // outcomes and returns 1, 0: ±½ over √½, twice
        let gigpo = Gigpo { std: true, ..centred(1.0) };
        let two = 2f64.sqrt() * 0.5 / (0.5 + 1e-6 / 2f64.sqrt());
        assert!(near(&credit(&gigpo, &walks(&[vec![(0, 1.0)], vec![(0, 0.0)]])), &[two, -two]));
    }

    #[test]
    fn equal_values_give_exactly_zero() {
        for reward in [0.1, 0.3, 0.7, 10.0] {
            for n in 2..16 {
                let same = walks(&vec![vec![(0, 0.0), (1, reward)]; n]);
                let gigpo = Gigpo { std: true, ..centred(0.95) };
                assert_eq!(credit(&gigpo, &same), vec![0.0; 2 * n]);
                assert_eq!(credit(&over_turns(gigpo), &same), vec![0.0; 2 * n]);
            }
        }
    }

    #[test]
    fn a_group_of_one_is_zero_or_raw() {
        let one = walks(&[vec![(0, 2.0)]]);
        for over in [Over::Trajectories, Over::Turns] {
            assert_eq!(credit(&Gigpo { over, ..centred(1.0) }, &one), [0.0]);
            assert_eq!(credit(&Gigpo { over, mode: Mode::Official, ..centred(1.0) }, &one), [2.0]);
        }
        assert!(over_turns(Gigpo { mode: Mode::Official, ..centred(1.0) }).needs().is_empty());
        assert_eq!(centred(1.0).needs(), [Need::GroupOfAtLeast(2)]);
    }

    #[test]
    fn a_penalised_turn_is_told_in_a_unit_that_exists() {
        // Equal outcomes have no spread: without a unit, nothing is divided by ε alone.
        let cut = TurnLog { validity: ascribe_core::log::Validity::Cut, ..at(Some(0), 1, 1.0) };
        let turns = vec![at(None, 0, 0.0), cut, at(None, 0, 0.0), at(Some(2), 2, 1.0)];
        let gigpo = Gigpo { std: true, invalid_penalty: NonNegative::try_from(0.1).unwrap(), ..centred(1.0) };
        assert_eq!(credit(&gigpo, &batch(turns, &[(1, WON), (3, WON)])), [0.0; 4]);
    }

    #[test]
    fn a_shared_turn_counts_once() {
        // returns ½, 1, 0; the siblings share an anchor: ±½ beside outcomes of ±½
        let tree = batch(vec![at(None, 0, 0.0), at(Some(0), 1, 1.0), at(Some(0), 1, 0.0)], &[(1, WON), (2, LOST)]);
        assert_eq!(credit(&centred(1.0), &tree), [0.0, 1.0, -1.0]);
        assert_eq!(credit(&over_turns(centred(1.0)), &tree), [0.0, 1.0, -1.0]);
    }

    #[test]
    fn what_was_not_tried_moves_no_baseline() {
        let turns = vec![at(None, 0, 1.0), at(None, 0, 0.0), at(None, 0, 9.0)];
        let untried = batch(turns, &[(0, WON), (1, LOST), (2, End::Untried)]);
        for gigpo in [centred(1.0), over_turns(centred(1.0))] {
            let credit = gigpo.estimate(untried.group(0), &Now::default()).unwrap();
            assert_eq!(credit.turns, [Some(1.0), Some(-1.0), None]);
        }
    }

    #[test]
    fn anchors_are_exact_bytes() {
        // "é" composed and decomposed look alike and are not equal.
        let seen = |parent, text: &str, reward| TurnLog { observation: text.into(), ..turn(Some(parent), reward) };
        let turns = vec![at(None, 0, 0.0), seen(0, "\u{e9}", 1.0), at(None, 0, 0.0), seen(2, "e\u{301}", 0.0)];
        let gigpo = centred(1.0);
        let steps = gigpo.steps(batch(turns, &[(1, WON), (3, LOST)]).group(0));
        assert_eq!(gigpo.step(&steps), [0.5, 0.0, -0.5, 0.0]);
    }

    #[test]
    fn tasks_with_one_text_are_never_one_group() {
        let log = |rewards: [f32; 2]| GroupLog {
            task_name: "task".into(),
            turns: rewards.map(|r| at(None, 0, r)).into(),
            leaves: (0..2).map(|t| LeafLog { turn: Some(t), end: WON, seed: 0 }).collect(),
            ..GroupLog::default()
        };
        let two = Batch::from_groups(vec![log([1.0, 0.0]), log([8.0, 4.0])], NonFinite::Refuse).unwrap();
        let of = |g| centred(1.0).estimate(two.group(g), &Now::default()).unwrap().turns;
        assert_eq!((of(0), of(1)), (vec![Some(1.0), Some(-1.0)], vec![Some(4.0), Some(-4.0)]));
    }

    #[test]
    fn turns_may_be_recorded_in_any_order() {
        let apart = vec![at(None, 0, 0.0), at(Some(0), 1, 1.0), at(None, 0, 0.0), at(Some(2), 1, 4.0)];
        let mixed = vec![at(None, 0, 0.0), at(None, 0, 0.0), at(Some(1), 1, 4.0), at(Some(0), 1, 1.0)];
        let [a, b, c, d] = credit(&centred(0.5), &batch(apart, &[(1, WON), (3, WON)]))[..] else { panic!("four turns") };
        assert_eq!(credit(&centred(0.5), &batch(mixed, &[(2, WON), (3, WON)])), [a, c, d, b]);
    }

    #[test]
    fn texts_that_are_alike_share_an_anchor() {
        let seen = |parent, text: &str, reward| TurnLog {
            observation: text.into(),
            observation_text: text.into(),
            ..turn(Some(parent), reward)
        };
        let turns = vec![
            at(None, 0, 0.0),
            seen(0, "Page 1 of 5, red running shoes", 1.0),
            at(None, 0, 0.0),
            seen(2, "Page 2 of 5, red running shoes", 0.0),
        ];
        let pages = batch(turns, &[(1, WON), (3, LOST)]);
        let step = |gigpo: Gigpo| gigpo.step(&gigpo.steps(pages.group(0)));
        assert_eq!(step(centred(1.0)), [0.5, 0.0, -0.5, 0.0]);
        assert_eq!(step(Gigpo { similarity: Some(Threshold(0.95)), ..centred(1.0) }), [0.5, 0.5, -0.5, -0.5]);
    }

    #[test]
    fn a_threshold_lies_between_0_and_1() {
        for x in [0.0, 1.0, f64::NAN, -0.5, 1.5] {
            assert!(Threshold::try_from(x).is_err(), "{x}");
        }
        let refused = serde_json::from_str::<Gigpo>(r#"{ "gamma": 1.0, "similarity": 1.0 }"#).unwrap_err();
        assert!(refused.to_string().starts_with("must be between 0 and 1 and neither of them, got 1"), "{refused}");
        let schema = serde_json::to_value(schemars::schema_for!(Threshold)).unwrap();
        assert_eq!((&schema["exclusiveMinimum"], &schema["exclusiveMaximum"]), (&0.into(), &1.into()));
    }

    proptest! {
        #[test]
        fn without_the_step_part_it_is_grpo(paths in any_walks(), std: bool, turns: bool, official: bool) {
            let over = if turns { Over::Turns } else { Over::Trajectories };
            let mode = if official { Mode::Official } else { Mode::Paper };
            let gigpo = Gigpo { step_weight: nothing(), std, over, mode, ..centred(0.9) };
            let grpo = Grpo { std, over, mode, epsilon: verl_epsilon() };
            let walks = walks(&paths);
            let (got, want) = (credit(&gigpo, &walks), credit(&grpo, &walks));
            prop_assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-5), "{got:?} {want:?}");
        }

        #[test]
        fn permuting_trajectories_permutes_credit(paths in any_walks(), turn_by in 0usize..7, turns: bool) {
            let gigpo = Gigpo { std: true, ..centred(0.9) };
            let gigpo = if turns { over_turns(gigpo) } else { gigpo };
            let turn_by = turn_by % paths.len();
            let mut permuted = paths.clone();
            permuted.rotate_left(turn_by);
            let first: usize = paths[..turn_by].iter().map(Vec::len).sum();
            let mut want = credit(&gigpo, &walks(&paths));
            want.rotate_left(first);
            let got = credit(&gigpo, &walks(&permuted));
            prop_assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-5), "{got:?} {want:?}");
        }

        #[test]
        fn each_part_of_a_cluster_sums_to_zero(paths in any_walks()) {
            let gigpo = over_turns(centred(0.9));
            let batch = walks(&paths);
            let steps = gigpo.steps(batch.group(0));
            prop_assert!(gigpo.episode(&steps).iter().sum::<f64>().abs() < 1e-9);
            for anchor in 0..steps.anchors.len() {
                let own = steps.anchors.iter().zip(gigpo.step(&steps)).filter(|(a, _)| **a == steps.anchors[anchor]);
                prop_assert!(own.map(|(_, a)| a).sum::<f64>().abs() < 1e-9);
            }
        }
    }
}
