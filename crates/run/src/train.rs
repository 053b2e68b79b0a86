//! The loop: tasks become groups, groups become credit, credit becomes rows, rows become an update.
//!
//! It never asks which plugin it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ascribe_core::batch::RecordError;
use ascribe_core::critic::Lesson;
use ascribe_core::rollout::RolloutError;
use ascribe_core::{Batch, Credit, Experiment, Group, Metrics, Now, RowSet};
use rayon::prelude::*;

use crate::evaluate::declared_signals;
use crate::live::{Live, NamedCritic, World};
use crate::metrics;
use crate::update::{Ask, UpdateError, update};

/// Why an update failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// No groups.
    #[error("the rollout failed: {0}")]
    Rollout(#[from] RolloutError),
    /// Groups that are not what they should be.
    #[error("the rollout's records were refused: {0}")]
    Record(#[from] RecordError),
    /// A critic failed.
    #[error("critic `{name}` failed: {reason}")]
    Critic {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Rewards could not be added up.
    #[error("{0}")]
    Reward(String),
    /// An estimator failed, or gave what is no credit.
    #[error("{stage} failed on task `{task}`: {reason}")]
    Credit {
        /// `the estimator`, `transform 2`.
        stage: String,
        /// The task of the group.
        task: String,
        /// Why.
        reason: String,
    },
    /// A policy node could not be trained.
    #[error("the update of policy node `{node}` failed: {source}")]
    Update {
        /// The node.
        node: String,
        /// Why.
        source: UpdateError,
    },
}

/// What an update leaves behind.
pub struct Trained {
    /// The batch it was made from.
    pub batch: Batch,
    /// Its credit.
    pub credit: Vec<Credit>,
    /// Its metrics.
    pub metrics: Metrics,
    /// Seconds of rollout, judgement, credit and training.
    pub seconds: [f64; 4],
}

/// One update.
///
/// # Errors
/// Whatever a stage could not do; the message names the stage.
pub fn train(live: &mut Live, experiment: &Experiment, now: &Now) -> Result<Trained, TrainError> {
    let (rollout, critics, world) = live.parts();
    let mut clock = Laps::start();

    let groups = rollout.collect(&mut world.acting(now))?;
    let mut batch = Batch::from_groups(groups, experiment.non_finite.into())?;
    clock.lap();

    for critic in critics.iter_mut() {
        judge(critic, &mut batch, world, now)?;
    }
    let weights = experiment.reward_weights();
    batch.combine_rewards(&weights).map_err(TrainError::Reward)?;
    clock.lap();

    let mut metrics = metrics::of_rollout(&batch, &weights, &declared_signals(&*world.tasks));
    let mut credit = estimate(&batch, experiment, now)?;
    for (i, transform) in experiment.transform.iter().enumerate() {
        metrics.extend(transform.apply(&batch, &mut credit, now, world.seeds));
        check(&batch, &credit, &format!("transform {i}"))?;
    }
    metrics.extend(metrics::of_credit(&batch, &credit));
    if let Some(anchor) = experiment.estimator.anchor() {
        metrics.extend(metrics::of_anchors(&batch, anchor));
    }
    clock.lap();

    let lessons = learn(critics, &batch, &credit, experiment, world, now)?;
    for (node, asks) in by_policy_node(&batch, &credit, &lessons, experiment) {
        let failed = |source| TrainError::Update { node: node.into(), source };
        let policy = world.nodes.get_mut(node).ok_or_else(|| failed(UpdateError::NoNode))?;
        let updated = update(node, &mut **policy, asks, &experiment.update, now, world.seeds, &mut world.ledger);
        metrics.extend(updated.map_err(failed)?);
    }
    world.tasks.learn(&metrics::outcomes(&batch));
    clock.lap();
    Ok(Trained { batch, credit, metrics, seconds: clock.laps() })
}

/// Attaches the columns a critic computes; only those that it declared.
fn judge(critic: &mut NamedCritic, batch: &mut Batch, world: &mut World, now: &Now) -> Result<(), TrainError> {
    let failed = |reason: String| TrainError::Critic { name: critic.name.clone(), reason };
    let declared = critic.critic.provides();
    let columns = critic.critic.judge(batch, &mut world.acting(now)).map_err(|e| failed(e.to_string()))?;
    for (name, signal) in columns {
        if !declared.contains(&(name.clone(), signal.scope)) {
            return Err(failed(format!("it computed `{name}`, which it did not declare")));
        }
        batch.add_signal(&name, signal).map_err(failed)?;
    }
    Ok(())
}

/// Whether a node or critic trains in this phase.
fn trains(experiment: &Experiment, name: &str) -> bool {
    experiment.train.is_empty() || experiment.train.iter().any(|t| t == name)
}

/// What the critics want trained.
fn learn(
    critics: &mut [NamedCritic],
    batch: &Batch,
    credit: &[Credit],
    experiment: &Experiment,
    world: &mut World,
    now: &Now,
) -> Result<Vec<Lesson>, TrainError> {
    let mut lessons = Vec::new();
    for NamedCritic { name, critic } in critics.iter_mut().filter(|c| trains(experiment, &c.name)) {
        let learned = critic.learn(batch, credit, &mut world.acting(now));
        lessons.extend(learned.map_err(|e| TrainError::Critic { name: name.clone(), reason: e.to_string() })?);
    }
    Ok(lessons)
}

/// What is asked of each policy node: the rows of those that acted, and the critics' lessons.
fn by_policy_node<'a>(
    batch: &'a Batch,
    credit: &[Credit],
    lessons: &'a [Lesson],
    experiment: &'a Experiment,
) -> BTreeMap<&'a str, Vec<Ask<'a>>> {
    let mut asks: BTreeMap<&str, Vec<Ask<'_>>> = BTreeMap::new();
    let agents: BTreeSet<&str> = batch.agents.iter().map(String::as_str).chain([experiment.rollout.agent()]).collect();
    for node in agents.into_iter().filter(|node| trains(experiment, node)) {
        let rows = Arc::new(RowSet::from_credit(batch, credit, Some(node)));
        asks.entry(node).or_default().push(Ask { rows, objective: &*experiment.objective.0, scale: 1.0 });
    }
    for lesson in lessons {
        let ask = Ask { rows: lesson.rows.clone(), objective: &*lesson.objective, scale: lesson.scale };
        asks.entry(&lesson.node).or_default().push(ask);
    }
    asks
}

/// Credit of every group, in their order whatever the number of threads.
fn estimate(batch: &Batch, experiment: &Experiment, now: &Now) -> Result<Vec<Credit>, TrainError> {
    let groups: Vec<Group<'_>> = batch.groups().collect();
    let estimated: Vec<_> = groups.par_iter().map(|group| experiment.estimator.estimate(*group, now)).collect();
    let credit = groups
        .iter()
        .zip(estimated)
        .map(|(group, credit)| credit.map_err(|e| bad_credit("the estimator", *group, e.0)))
        .collect::<Result<Vec<_>, _>>()?;
    check(batch, &credit, "the estimator")?;
    Ok(credit)
}

/// Every group has its credit, and every number is finite.
fn check(batch: &Batch, credit: &[Credit], stage: &str) -> Result<(), TrainError> {
    batch
        .groups()
        .zip(credit)
        .try_for_each(|(group, credit)| credit.check(group).map_err(|reason| bad_credit(stage, group, reason)))
}

fn bad_credit(stage: &str, group: Group<'_>, reason: String) -> TrainError {
    TrainError::Credit { stage: stage.into(), task: group.about().task_name.clone(), reason }
}

/// Seconds between stages. They go to `timing.jsonl` and to whoever watches, never into a result.
struct Laps {
    last: Instant,
    laps: Vec<f64>,
}
impl Laps {
    fn start() -> Self {
        Self { last: Instant::now(), laps: Vec::new() }
    }
    fn lap(&mut self) {
        let now = Instant::now();
        self.laps.push((now - self.last).as_secs_f64());
        self.last = now;
    }
    fn laps(&self) -> [f64; 4] {
        std::array::from_fn(|i| self.laps.get(i).copied().unwrap_or(0.0))
    }
}
