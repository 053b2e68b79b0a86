//! What an experiment's TOML says, once all layers are merged.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::batch::NonFinite;
use crate::critic::CriticConfig;
use crate::environment::TaskSetConfig;
use crate::estimator::AdvantageEstimator;
use crate::now::Now;
use crate::objective::Objective;
use crate::policy::{OptimStep, PolicyConfig};
use crate::range::{AtLeast, Between, Count, Finite, NonNegative, Positive, Seconds, Unit};
use crate::rollout::RolloutConfig;
use crate::schedule::Schedule;
use crate::slot::Slot;
use crate::transform::CreditTransform;

/// Most updates of a phase: those of all phases are counted in 32 bits.
pub const MOST_UPDATES: u64 = 2_000_000_000;

/// Most passes over a batch, and most parts that a pass is cut into.
pub const MOST_STEPS: u64 = 1_000_000;

/// Most sampled episodes of a task in an evaluation.
pub const MOST_SAMPLES: u64 = 1_000_000;

/// One phase of an experiment: everything that the loop reads.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The question that the experiment answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Name of the run's folder; by default the file's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seed of everything random.
    #[serde(default)]
    pub seed: u64,
    /// Folder of a run, or of one of its checkpoints, whose policy nodes this run begins with: weights and optimiser, by
    /// the node's name, from the newest checkpoint. Like `run.dir` it is seen from where the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_from: Option<String>,
    /// Plugin crates outside this repository that the experiment needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
    /// `cpu`, `cuda` or `cuda:N`.
    #[serde(default = "cpu")]
    pub device: String,
    /// Number of updates of the phase, at most 2e9.
    pub updates: Between<0, MOST_UPDATES>,
    /// The tasks.
    pub environment: Slot<dyn TaskSetConfig>,
    /// Policy nodes, `[policy.NAME.PLUGIN]`; the one that acts is `actor` unless the rollout says otherwise.
    pub policy: BTreeMap<String, Slot<dyn PolicyConfig>>,
    /// Critics, `[critic.NAME.PLUGIN]`.
    #[serde(default)]
    pub critic: BTreeMap<String, Slot<dyn CriticConfig>>,
    /// How tasks become groups.
    pub rollout: Slot<dyn RolloutConfig>,
    /// What estimators call reward: weights of reward columns.
    #[serde(default = "env_reward")]
    pub reward: BTreeMap<String, Finite>,
    /// How groups become credit.
    pub estimator: Slot<dyn AdvantageEstimator>,
    /// What happens to credit before it trains, in order.
    #[serde(default)]
    pub transform: Vec<Slot<dyn CreditTransform>>,
    /// How rows become coefficients.
    pub objective: Slot<dyn Objective>,
    /// How weights follow.
    pub update: Update,
    /// Names of those that train in this phase: `actor`, critics; empty is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub train: Vec<String>,
    /// What to do with rewards and log-probabilities that are not finite.
    #[serde(default)]
    pub non_finite: OnNonFinite,
    /// When to stop before all updates are done.
    #[serde(default)]
    pub budget: Budget,
    /// When and how to measure the policy.
    #[serde(default)]
    pub evaluate: Evaluate,
    /// When to save.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// Where a run lies and what it keeps.
    #[serde(default)]
    pub run: RunSettings,
    /// Alarms whose default does not fit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "alarm_schema")]
    pub alarm: BTreeMap<AlarmName, AlarmSetting>,
}

impl Experiment {
    /// Weights of reward columns.
    pub fn reward_weights(&self) -> BTreeMap<String, f64> {
        self.reward.iter().map(|(name, weight)| (name.clone(), **weight)).collect()
    }
}

fn cpu() -> String {
    "cpu".into()
}
/// schemars leaves out which keys a map with an enum for keys has.
fn alarm_schema(generator: &mut SchemaGenerator) -> Schema {
    let (names, setting) = (generator.subschema_for::<AlarmName>(), generator.subschema_for::<AlarmSetting>());
    json_schema!({ "type": "object", "propertyNames": names, "additionalProperties": setting })
}
fn env_reward() -> BTreeMap<String, Finite> {
    BTreeMap::from([("env".into(), Finite::try_from(1.0).expect("in range"))])
}

/// What to do with numbers that are not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnNonFinite {
    /// Stop, naming task and turn.
    #[default]
    Refuse,
    /// Fail the paths that run through them.
    Exclude,
}
impl From<OnNonFinite> for NonFinite {
    fn from(x: OnNonFinite) -> Self {
        match x {
            OnNonFinite::Refuse => NonFinite::Refuse,
            OnNonFinite::Exclude => NonFinite::Exclude,
        }
    }
}

/// `[update]`: AdamW, and how a batch is cut.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// Learning rate, positive.
    pub learning_rate: Positive,
    /// Passes over the batch, at least 1 and at most 1e6.
    #[serde(default = "one_step")]
    pub epochs: Between<1, MOST_STEPS>,
    /// Optimiser steps per pass, at least 1 and at most 1e6.
    #[serde(default = "one_step")]
    pub minibatches: Between<1, MOST_STEPS>,
    /// Most tokens of a forward pass, at least 1; a longer row has one of its own. Changes results by rounding only.
    #[serde(default = "micro_batch_tokens")]
    pub micro_batch_tokens: AtLeast<1>,
    /// Denominator of importance ratios.
    #[serde(default)]
    pub old: Old,
    /// Largest global gradient norm, positive; leave out for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<Positive>,
    /// First-moment decay of Adam, in 0..=1.
    #[serde(default = "beta1")]
    pub beta1: Unit,
    /// Second-moment decay of Adam, in 0..=1.
    #[serde(default = "beta2")]
    pub beta2: Unit,
    /// Added to the root of Adam's second moment, positive.
    #[serde(default = "epsilon")]
    pub epsilon: Positive,
    /// Decoupled weight decay, 0 or more.
    #[serde(default = "no_decay")]
    pub weight_decay: NonNegative,
}
fn one_step() -> Between<1, MOST_STEPS> {
    Between::try_from(1).expect("in range")
}
fn micro_batch_tokens() -> AtLeast<1> {
    AtLeast::try_from(2048).expect("2048 is at least 1")
}
fn beta1() -> Unit {
    Unit::try_from(0.9).expect("in range")
}
fn beta2() -> Unit {
    Unit::try_from(0.999).expect("in range")
}
fn epsilon() -> Positive {
    Positive::try_from(1e-8).expect("in range")
}
fn no_decay() -> NonNegative {
    NonNegative::try_from(0.0).expect("in range")
}
impl Update {
    /// The optimiser step it describes.
    pub fn step(&self) -> OptimStep {
        OptimStep {
            learning_rate: *self.learning_rate,
            beta1: *self.beta1,
            beta2: *self.beta2,
            epsilon: *self.epsilon,
            weight_decay: *self.weight_decay,
            clip_norm: self.clip_norm.map(|x| *x),
        }
    }
}

/// Denominator of importance ratios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Old {
    /// The log-probability that the sampler recorded.
    #[default]
    Behavior,
    /// The policy's own, recomputed before the first step of the update.
    Recomputed,
}

/// `[budget]`: the run stops at whichever comes first, after a whole update.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Tokens that models processed to act or to judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Count>,
    /// Environment steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_steps: Option<Count>,
}

/// `[evaluate]`: always at the end of a phase, with the same tasks and seeds each time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Evaluate {
    /// Updates between two measurements; 0 measures at the end of each phase only.
    pub every: Count,
    /// Splits; empty is all but `train`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<String>,
    /// Most tasks of a split; 0 is all.
    pub tasks: Count,
    /// Sampled episodes per task, beside one greedy one, at most 1e6; 0 is none.
    pub samples: Between<0, MOST_SAMPLES>,
    /// Temperature of the sampled episodes.
    pub temperature: Positive,
}
impl Default for Evaluate {
    fn default() -> Self {
        Self {
            every: Count(0),
            splits: Vec::new(),
            tasks: Count(0),
            samples: Between::try_from(1).expect("in range"),
            temperature: Positive::try_from(1.0).expect("in range"),
        }
    }
}

/// `[checkpoint]`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    /// Updates between two checkpoints, at least 1. There is always one at the end of a phase.
    pub every: AtLeast<1>,
    /// Checkpoints kept, at least 2: if the newest is damaged, the one before it serves.
    pub keep: AtLeast<2>,
}
impl Default for Checkpoint {
    fn default() -> Self {
        Self { every: AtLeast::try_from(5).expect("in range"), keep: AtLeast::try_from(2).expect("in range") }
    }
}

/// `[run]`: what never changes a result, as long as nothing hangs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunSettings {
    /// Folder of all runs.
    pub dir: String,
    /// Threads; 0 is one per core.
    pub threads: Count,
    /// Updates between two saved batches of trajectories; 0 saves none.
    pub trajectories: Count,
    /// Longest time of an environment's step, in seconds; without it, no limit. An episode whose step takes longer has failed, and
    /// the others go on: for environments that may hang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Seconds>,
}
impl Default for RunSettings {
    fn default() -> Self {
        Self { dir: "runs".into(), threads: Count(0), trajectories: Count(1), patience: None }
    }
}

/// What an alarm watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AlarmName {
    /// Share of groups whose members all have the same outcome.
    DegenerateGroups,
    /// Every advantage of an update is 0.
    NoSignal,
    /// Share of actions that were not understood.
    Malformed,
    /// Share of episodes that a limit cut.
    Truncated,
    /// Share of episodes that broke.
    Failed,
    /// Mean distance between the sampler's and the trainer's log-probabilities.
    LogprobMismatch,
    /// Entropy per sampled token, in nats.
    EntropyCollapse,
    /// A gradient that was not finite; its step was skipped.
    NonFinite,
    /// A reward column that the environment fills and no weight reads.
    UnusedReward,
    /// Every episode of an update broke.
    AllFailed,
    /// Share of groups whose members differ in parts of the reward that cancel in its sum.
    RewardsCancel,
    /// Share of turns that an estimator with anchors can compare with others.
    AnchorMisses,
    /// Variance that a critic's values explain: exactly 0 where it says one number.
    ConstantCritic,
    /// Nothing was left to train a policy node on.
    EmptyUpdate,
}

/// `[alarm.NAME]`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlarmSetting {
    /// Threshold; the alarm's own if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<NonNegative>,
    /// What it does; the alarm's own if left out: all warn, but `all-failed`, which stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<AlarmAction>,
}

/// What an alarm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AlarmAction {
    /// Nothing.
    Off,
    /// Says what to change.
    Warn,
    /// Ends the run, after a checkpoint.
    Stop,
}

/// A checked experiment: its phases in order, and what the run folder says about it.
#[derive(Debug)]
pub struct Plan {
    /// Name of the run's folder.
    pub name: String,
    /// The experiment as given: the files, in order.
    pub given: String,
    /// The merged experiment as TOML: read again, it gives this plan.
    pub resolved: String,
    /// What makes two runs the same experiment: the resolved TOML without what never changes a result (threads,
    /// folders) and without what only makes it longer (updates of the last phase, budget).
    pub identity: String,
    /// The phases.
    pub phases: Vec<Phase>,
}

/// A phase: the merged tree with every scheduled number taken out.
#[derive(Debug)]
pub struct Phase {
    /// Its name; `main` where the experiment has no phases.
    pub name: String,
    /// Strict tree of an [`Experiment`]; scheduled numbers hold a valid stand-in.
    pub tree: toml::Table,
    /// Scheduled numbers: where they stand, and their schedule.
    pub knobs: Vec<Knob>,
}

/// Top-level keys below which numbers may be scheduled: what is read anew or rebuilt when it changes. Everything else is
/// built or read once, so a schedule there would be without effect, and `config` refuses it.
pub const SCHEDULABLE: [&str; 7] = ["rollout", "critic", "reward", "estimator", "transform", "objective", "update"];

/// Top-level keys that hold for a whole run: a phase cannot have its own.
pub const RUN_WIDE: [&str; 8] = ["question", "seed", "start_from", "uses", "device", "environment", "policy", "run"];

/// A scheduled number.
#[derive(Debug)]
pub struct Knob {
    /// Where it stands.
    pub path: Vec<String>,
    /// Whether whole numbers are wanted there.
    pub integer: bool,
    /// How it changes.
    pub schedule: Slot<dyn Schedule>,
}

/// Memory of schedules, by path; saved with the run.
pub type KnobMemory = BTreeMap<String, Vec<f64>>;

impl Phase {
    /// The experiment with its scheduled numbers as they are `now`, and those numbers by path.
    ///
    /// # Errors
    /// If a number leaves the range that its place allows: a schedule's bounds are checked, so only a plugin that
    /// checks numbers against each other can refuse here.
    pub fn at(&self, now: &Now, memory: &mut KnobMemory) -> Result<(Experiment, BTreeMap<String, f64>), String> {
        let mut tree = toml::Value::Table(self.tree.clone());
        let mut numbers = BTreeMap::new();
        for knob in &self.knobs {
            let path = knob.path.join(".");
            let x = knob.schedule.at(now, memory.entry(path.clone()).or_default());
            let value = if knob.integer { toml::Value::Integer(x.round() as i64) } else { toml::Value::Float(x) };
            if !set(&mut tree, &knob.path, value) {
                return Err(format!("`{path}` is scheduled but not there"));
            }
            numbers.insert(path, x);
        }
        let experiment = Experiment::deserialize(tree).map_err(|e| e.message().to_string())?;
        Ok((experiment, numbers))
    }
}

/// Replaces the value at `path`; false if there is none.
fn set(tree: &mut toml::Value, path: &[String], new: toml::Value) -> bool {
    let place = path.iter().try_fold(tree, |at, key| match at {
        toml::Value::Table(table) => table.get_mut(key),
        toml::Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
        _ => None,
    });
    match place {
        Some(place) => {
            *place = new;
            true
        }
        None => false,
    }
}
