//! The loop: tasks become groups, groups become credit, credit becomes rows, rows become an update.
//!
//! It never asks which plugin it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ascribe_core::batch::RecordError;
use ascribe_core::critic::{CriticError, Lesson, LessonRows};
use ascribe_core::rollout::RolloutError;
use ascribe_core::{Batch, Credit, Experiment, Group, Metrics, NamedCritic, Now, RowSet, graph};
use rayon::prelude::*;

use crate::evaluate::declared_signals;
use crate::live::{Live, Stage};
use crate::metrics;
use crate::update::{self, Ask, UpdateError, update};

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
    #[error("{0}")]
    Critic(#[from] CriticError),
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
    let mut metrics = Metrics::default();
    let mut stage = Stage { now, keep: graph::keep(experiment), critics, metrics: &mut metrics };
    let mut clock = Laps::start();

    let groups = rollout.collect(&mut world.acting(&mut stage))?;
    let mut batch = Batch::from_groups(groups, experiment.non_finite.into())?;
    clock.lap();

    stage.each_critic(world, |critic, acting| critic.judge(&mut batch, acting))?;
    let weights = experiment.reward_weights();
    batch.combine_rewards(&weights).map_err(TrainError::Reward)?;
    clock.lap();

    stage.metrics.extend(metrics::of_rollout(&batch, &weights, &declared_signals(&*world.tasks)));
    let mut credit = estimate(&batch, experiment, now)?;
    for (i, transform) in experiment.transform.iter().enumerate() {
        stage.metrics.extend(transform.apply(&batch, &mut credit, now, world.seeds));
        check(&batch, &credit, &format!("transform {i}"))?;
    }
    stage.metrics.extend(metrics::of_credit(&batch, &credit));
    stage.metrics.extend(metrics::of_macro_steps(&batch, &credit));
    if let Some(anchor) = experiment.estimator.anchor() {
        stage.metrics.extend(metrics::of_anchors(&batch, anchor));
    }
    clock.lap();

    let mut lessons = Vec::new();
    stage.each_critic(world, |NamedCritic { name, critic }, acting| {
        if trains(experiment, name) {
            let learned = critic.learn(&batch, &credit, acting);
            lessons.extend(learned.map_err(|e| CriticError { name: name.clone(), reason: e.to_string() })?);
        }
        Ok(())
    })?;
    for (node, asks) in by_policy_node(&batch, &credit, &lessons, experiment)? {
        let failed = |source| TrainError::Update { node: node.into(), source };
        let policy = world.nodes.get_mut(node).ok_or_else(|| failed(UpdateError::NoNode))?;
        let trained = update::Node { name: node, policy: &mut **policy, acted: batch.agents.contains(node) };
        let updated = update(trained, asks, &experiment.update, now, world.seeds, &mut world.ledger);
        metrics.extend(updated.map_err(failed)?);
    }
    world.tasks.learn(&metrics::outcomes(&batch));
    clock.lap();
    Ok(Trained { batch, credit, metrics, seconds: clock.laps() })
}

/// Whether a node or critic trains in this phase.
fn trains(experiment: &Experiment, name: &str) -> bool {
    experiment.train.is_empty() || experiment.train.iter().any(|t| t == name)
}

/// What is asked of each policy node: the rows of those that acted, and the critics' lessons.
fn by_policy_node<'a>(
    batch: &'a Batch,
    credit: &[Credit],
    lessons: &'a [Lesson],
    experiment: &'a Experiment,
) -> Result<BTreeMap<&'a str, Vec<Ask<'a>>>, TrainError> {
    let mut asks: BTreeMap<&str, Vec<Ask<'_>>> = BTreeMap::new();
    let agents: BTreeSet<&str> = batch.agents.iter().map(String::as_str).chain([experiment.rollout.agent()]).collect();
    let sharing: BTreeSet<&str> =
        lessons.iter().filter(|l| matches!(l.rows, LessonRows::Acted(_))).map(|l| l.node.as_str()).collect();
    let mut acted: BTreeMap<&str, Arc<RowSet>> = BTreeMap::new();
    for node in agents.into_iter().filter(|node| trains(experiment, node) || sharing.contains(node)) {
        let with_targets = with_targets(batch, credit, lessons, node)?;
        let rows = Arc::new(RowSet::from_credit(batch, with_targets.as_deref().unwrap_or(credit), Some(node)));
        acted.insert(node, rows.clone());
        if trains(experiment, node) {
            asks.entry(node).or_default().push(Ask { rows, objective: &*experiment.objective.0, scale: 1.0 });
        }
    }
    for lesson in lessons {
        let rows = match &lesson.rows {
            LessonRows::Own(rows) => rows.clone(),
            // A node that did not act has no such rows.
            LessonRows::Acted(_) => match acted.get(lesson.node.as_str()) {
                Some(rows) => rows.clone(),
                None => continue,
            },
        };
        asks.entry(&lesson.node).or_default().push(Ask { rows, objective: &*lesson.objective, scale: lesson.scale });
    }
    Ok(asks)
}

/// Credit with the targets of the lessons that share a node's rows; `None` if there are none.
fn with_targets(batch: &Batch, credit: &[Credit], lessons: &[Lesson], node: &str) -> Result<Option<Vec<Credit>>, TrainError> {
    let mut out: Option<Vec<Credit>> = None;
    for lesson in lessons.iter().filter(|lesson| lesson.node == node) {
        let LessonRows::Acted(targets) = &lesson.rows else { continue };
        let credit = out.get_or_insert_with(|| credit.to_vec());
        for (name, of_groups) in targets {
            credit.iter_mut().zip(of_groups).for_each(|(credit, target)| {
                credit.targets.insert(name.clone(), target.clone());
            });
        }
    }
    if let Some(credit) = &out {
        check(batch, credit, "a critic's lesson")?;
    }
    Ok(out)
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
