//! Group-in-group advantage: a trajectory's outcome against its siblings', plus each turn's return against those of other
//! turns that began from the same observation.
//!
//! `A_t = A_E + ω A_S`, `A_E = (R_i − mean_g R) / (std_g R + ε)`, `A_S = (G_t − mean_c G) / (std_c G + ε)`, where
//! `G_t = r_t + γ G_{t+1}` over turns and c is the cluster of the group's turns with t's observation (the anchor), other
//! visits on the same trajectory included. At a branch `G` is the mean over the children; a shared turn counts once.
//!
//! Feng et al. 2025, "Group-in-Group Policy Optimization", arXiv 2505.10978, eq. 3–8; official numbers from verl-agent
//! (`gigpo/core_gigpo.py`: sample standard deviation, ε = 1e-6). Reductions: `step_weight = 0` is `grpo`; where every anchor
//! is seen once, too.
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
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Need, Now, plugin};
use ascribe_math::{Deviation, Measure, Singleton, Standardise, clusters, moments_by, similar_clusters};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grpo::Grpo;
use crate::outcome::{Mode, Over, nothing, one, verl_epsilon, yes};
use crate::steps::Steps;

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
        source: "Feng et al. 2025, Group-in-Group Policy Optimization, arXiv 2505.10978, eq. 3-8; verl-agent gigpo/core_gigpo.py",
        when: "Long episodes whose trajectories meet in the same observations: it says which turn was better, without a critic.",
        example: "gamma = 0.95",
    }
    impl AdvantageEstimator for Gigpo {
        fn needs(&self) -> Vec<Need> {
            self.mode.needs()
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
