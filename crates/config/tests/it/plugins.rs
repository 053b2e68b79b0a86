//! Small plugins of every kind, so that these tests need no other crate.

use ascribe_core::build::{BuildContext, BuildError};
use ascribe_core::credit::Credit;
use ascribe_core::critic::{Critic, CriticConfig};
use ascribe_core::environment::{TaskSet, TaskSetConfig};
use ascribe_core::objective::{Aggregation, Columns, DiffColumn, Objective, Sums};
use ascribe_core::policy::{Policy, PolicyConfig};
use ascribe_core::range::{AtLeast, Count, Positive, Unit};
use ascribe_core::rollout::{RolloutConfig, RolloutStrategy};
use ascribe_core::{
    AdvantageEstimator, Batch, CreditTransform, EstimateError, Group, Metrics, Need, Now, Provide, Rows, Scope, Seeds, Slot,
    Totals, plugin,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

fn not_here<T>() -> Result<T, BuildError> {
    Err(BuildError::Config("nothing is built in these tests".into()))
}

/// A maze.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Maze {
    /// Width in fields, at least 2.
    #[serde(default = "eight")]
    width: AtLeast<2>,
    /// Where its levels lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    levels: Option<String>,
}
fn eight() -> AtLeast<2> {
    AtLeast::try_from(8).expect("8 is at least 2")
}
plugin! {
    Environment "maze" {
        summary: "A maze.",
        source: "",
        when: "In tests.",
        example: "width = 8",
    }
    impl TaskSetConfig for Maze {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> { not_here() }
        fn provides(&self) -> Vec<Provide> { vec![Need::Expert, Need::Signal("progress".into(), Scope::Turn)] }
    }
}

/// A table.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tabular {
    /// Initial logit.
    #[serde(default)]
    initial: f64,
    /// Largest number of states.
    #[serde(default = "states")]
    states: u32,
}
fn states() -> u32 {
    1000
}
plugin! {
    Policy "tabular" {
        summary: "A table of logits.",
        source: "",
        when: "In tests.",
        example: "states = 100",
    }
    impl PolicyConfig for Tabular {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn Policy>, BuildError> { not_here() }
        fn columns(&self) -> Vec<DiffColumn> { vec![DiffColumn::Logprob] }
    }
}

/// A judge of states.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Generative {
    /// Policy node that judges.
    node: String,
    /// Whether it may read privileged text.
    #[serde(default)]
    privileged: bool,
}
plugin! {
    Critic "generative" {
        summary: "Asks a policy node for a value.",
        source: "",
        when: "In tests.",
        example: "node = \"actor\"",
    }
    impl CriticConfig for Generative {
        fn build(&self, _: &str, _: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> { not_here() }
        fn needs(&self) -> Vec<Need> { vec![Need::Node(self.node.clone())] }
        fn provides(&self) -> Vec<Provide> { vec![Need::Signal("value".into(), Scope::State)] }
    }
}

/// Monte-Carlo values.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MonteCarlo {
    /// Episodes per state, at least 1.
    episodes: AtLeast<1>,
}
plugin! {
    Critic "monte-carlo" {
        summary: "Plays on from each state.",
        source: "",
        when: "In tests.",
        example: "episodes = 4",
    }
    impl CriticConfig for MonteCarlo {
        fn build(&self, _: &str, _: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> { not_here() }
        fn needs(&self) -> Vec<Need> { vec![Need::ExactSnapshot] }
        fn provides(&self) -> Vec<Provide> { vec![Need::Signal("value".into(), Scope::State)] }
    }
}

/// Independent episodes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Independent {
    /// Tasks per update.
    tasks: Count,
    /// Episodes per task, at least 1.
    group_size: AtLeast<1>,
    /// The policy node that acts.
    #[serde(default = "actor")]
    agent: String,
}
fn actor() -> String {
    "actor".into()
}
plugin! {
    Rollout "independent" {
        summary: "Plays each task several times.",
        source: "",
        when: "In tests.",
        example: "tasks = 8\ngroup_size = 8",
    }
    impl RolloutConfig for Independent {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> { not_here() }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::GroupOfAtLeast(*self.group_size), Need::Chains, Need::BehaviorLogprob]
        }
        fn agent(&self) -> &str { &self.agent }
    }
}

/// The expert's episodes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expert {
    /// Tasks per update.
    #[serde(default = "one")]
    tasks: Count,
}
fn one() -> Count {
    Count(1)
}
plugin! {
    Rollout "expert" {
        summary: "Lets the expert play.",
        source: "",
        when: "In tests.",
        example: "tasks = 8",
    }
    impl RolloutConfig for Expert {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> { not_here() }
        fn needs(&self) -> Vec<Need> { vec![Need::Expert] }
        fn provides(&self) -> Vec<Provide> { vec![Need::GroupOfAtLeast(1), Need::Chains] }
        fn agent(&self) -> &str { "actor" }
    }
}

fn no_credit() -> Result<Credit, EstimateError> {
    Err(EstimateError("nothing is estimated in these tests".into()))
}

/// Generalised advantage estimation.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gae {
    /// Discount, in 0..=1.
    gamma: Unit,
    /// Trace decay, in 0..=1.
    lambda: Unit,
}
plugin! {
    Estimator "gae" {
        summary: "Generalised advantage estimation.",
        source: "",
        when: "In tests.",
        example: "gamma = 1.0\nlambda = 0.95",
    }
    impl AdvantageEstimator for Gae {
        fn needs(&self) -> Vec<Need> { vec![Need::Signal("value".into(), Scope::State)] }
        fn estimate(&self, _: Group<'_>, _: &Now) -> Result<Credit, EstimateError> { no_credit() }
    }
}

/// Group-relative credit.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grpo {
    /// Added to the spread, positive.
    #[serde(default = "tiny")]
    epsilon: Positive,
    /// Anchor steps looked back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<u32>,
}
fn tiny() -> Positive {
    Positive::try_from(1e-6).expect("positive")
}
plugin! {
    Estimator "grpo" {
        summary: "Group-relative credit.",
        source: "",
        when: "In tests.",
        example: "epsilon = 1e-6",
    }
    impl AdvantageEstimator for Grpo {
        fn needs(&self) -> Vec<Need> { vec![Need::GroupOfAtLeast(2)] }
        fn estimate(&self, _: Group<'_>, _: &Now) -> Result<Credit, EstimateError> { no_credit() }
    }
}

/// A mixture of two estimators.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blend {
    /// Weight of the first, in 0..=1.
    weight: Unit,
    /// The first.
    a: Slot<dyn AdvantageEstimator>,
    /// The second.
    b: Slot<dyn AdvantageEstimator>,
}
plugin! {
    Estimator "blend" {
        summary: "A mixture of two estimators.",
        source: "",
        when: "In tests.",
        example: "weight = 0.5\na.grpo = {}\nb.gae = { gamma = 1.0, lambda = 0.95 }",
    }
    impl AdvantageEstimator for Blend {
        fn needs(&self) -> Vec<Need> { [self.a.needs(), self.b.needs()].concat() }
        fn estimate(&self, _: Group<'_>, _: &Now) -> Result<Credit, EstimateError> { no_credit() }
    }
}

/// Two numbers that are checked against each other.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, try_from = "Bounds")]
pub struct Band {
    min: f64,
    max: f64,
}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bounds {
    /// Smallest advantage.
    min: f64,
    /// Largest advantage.
    max: f64,
}
impl TryFrom<Bounds> for Band {
    type Error = String;
    fn try_from(Bounds { min, max }: Bounds) -> Result<Self, String> {
        if min <= max { Ok(Self { min, max }) } else { Err(format!("`min` is {min} and must not be above `max`, {max}")) }
    }
}
plugin! {
    Transform "band" {
        summary: "Clips advantages to a band.",
        source: "",
        when: "In tests.",
        example: "min = -1.0\nmax = 1.0",
    }
    impl CreditTransform for Band {
        fn apply(&self, _: &Batch, _: &mut [Credit], _: &Now, _: Seeds) -> Metrics { Metrics::default() }
    }
}

/// Whitens.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Whiten {}
plugin! {
    Transform "whiten" {
        summary: "Whitens.",
        source: "",
        when: "In tests.",
        example: "",
    }
    impl CreditTransform for Whiten {
        fn apply(&self, _: &Batch, _: &mut [Credit], _: &Now, _: Seeds) -> Metrics { Metrics::default() }
    }
}

/// Clips.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clip {
    /// Largest magnitude, positive.
    max: Positive,
}
plugin! {
    Transform "clip" {
        summary: "Clips.",
        source: "",
        when: "In tests.",
        example: "max = 5.0",
    }
    impl CreditTransform for Clip {
        fn apply(&self, _: &Batch, _: &mut [Credit], _: &Now, _: Seeds) -> Metrics { Metrics::default() }
    }
}

/// Clones.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nll {}
plugin! {
    Objective "nll" {
        summary: "Clones.",
        source: "",
        when: "In tests.",
        example: "",
    }
    impl Objective for Nll {
        fn loss(&self, _: &Rows<'_>, _: &Columns, _: &Totals, _: &Now) -> f64 { 0.0 }
        fn gradients(&self, _: &Rows<'_>, _: &Columns, _: &Totals, _: &Now, _: &mut Columns) -> Sums { Sums::default() }
    }
}

/// Clipped ratios.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PpoClip {
    /// Clip range, positive.
    clip: Positive,
    /// How losses become one number.
    #[serde(default)]
    aggregation: Aggregation,
}
plugin! {
    Objective "ppo-clip" {
        summary: "Clipped ratios.",
        source: "",
        when: "In tests.",
        example: "clip = 0.2",
    }
    impl Objective for PpoClip {
        fn needs(&self) -> Vec<Need> { vec![Need::BehaviorLogprob] }
        fn loss(&self, _: &Rows<'_>, _: &Columns, _: &Totals, _: &Now) -> f64 { 0.0 }
        fn gradients(&self, _: &Rows<'_>, _: &Columns, _: &Totals, _: &Now, _: &mut Columns) -> Sums { Sums::default() }
    }
}
