//! What the cells of a grid measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ascribe_run::evaluate::Mode;
use ascribe_run::folder;
use ascribe_run::records::{EpisodeResult, EvaluationLine, MetricsLine};

use super::GridError;
use super::folder::{GridFolder, State};
use super::plan::{Cell, Plan};
use super::spec::{Score, ScoreOf};
use crate::curves::{Axis, Curves, Point};
use crate::table::{Arm, Range, Run, Table, Training};

/// What the cells of a grid measured.
#[derive(Clone, Debug)]
pub struct Results {
    /// Scores after the last evaluation of each run.
    pub table: Table,
    /// Scores of every evaluation, by what was spent until then.
    pub curves: Curves,
    /// What each arm spent, in their order.
    pub spent: Vec<(String, Spent)>,
    /// Cells that are not done: how many are in no number.
    pub missing: usize,
    /// The split and the way of acting that were read.
    pub measured: (String, Mode),
}

/// What the finished runs of an arm spent: means over runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spent {
    /// Runs that finished.
    pub runs: usize,
    /// Optimiser steps, environment steps, tokens and the like, by the names that `cost/` has.
    pub mean: BTreeMap<String, f64>,
    /// Updates of a run.
    pub updates: f64,
    /// Mean over a run's updates of the norm of the actor's gradient, mean over runs.
    pub gradient_norm: Option<f64>,
    /// What evaluations cost, in tokens.
    pub eval_tokens: f64,
    /// What tuning spent, all its runs together, in tokens.
    pub tuning_tokens: u64,
    /// Updates of reported runs in which an alarm was raised, by alarm.
    pub alarms: BTreeMap<String, u64>,
}

/// The axes of curves: what does not depend on a clock.
const AXES: [Axis; 4] = [Axis::Updates, Axis::EnvSteps, Axis::ActorTokens, Axis::AllTokens];

/// The evaluations of a run that count.
struct Measured {
    tasks: Vec<String>,
    split: String,
    mode: Mode,
    /// Update and scores, `[tasks]`.
    points: Vec<(u32, Vec<f64>)>,
}

/// Reads what counts of a run's evaluations.
fn measured(run: &Path, score: &Score) -> Result<Measured, String> {
    let lines = folder::evaluations(run).map_err(|e| e.to_string())?;
    let splits: BTreeSet<&str> = lines.iter().map(|line| line.split.as_str()).collect();
    let split = match (&score.split, splits.len()) {
        (Some(split), _) if splits.contains(split.as_str()) => split.clone(),
        (Some(split), _) => return Err(format!("nothing was measured on the split `{split}`")),
        (None, 1) => splits.into_iter().next().unwrap_or_default().to_string(),
        (None, 0) => {
            return Err("nothing was measured: the environment has no split but `train`, or `evaluate` asks for none".into());
        }
        (None, _) => {
            let names = splits.into_iter().collect::<Vec<_>>().join("`, `");
            return Err(format!("several splits were measured, `{names}`: set `grid.score.split`"));
        }
    };
    let of_split = |line: &&EvaluationLine| line.split == split;
    let sampled = lines.iter().filter(of_split).any(|line| line.mode == Mode::Sampled);
    let mode = score.mode.unwrap_or(if sampled { Mode::Sampled } else { Mode::Greedy });
    let number = |episode: &EpisodeResult| match score.of {
        ScoreOf::Success => f64::from(u8::from(episode.success)),
        ScoreOf::Return => episode.outcome,
    };
    let mut points: BTreeMap<u32, BTreeMap<u32, (String, f64)>> = BTreeMap::new();
    for line in lines.iter().filter(of_split).filter(|line| line.mode == mode) {
        let mean = line.episodes.iter().map(number).sum::<f64>() / line.episodes.len().max(1) as f64;
        points.entry(line.update).or_default().insert(line.task, (line.name.clone(), mean));
    }
    let Some(last) = points.values().next_back() else {
        return Err(format!("nothing was measured with {} actions on `{split}`", mode.as_str()));
    };
    let tasks: Vec<u32> = last.keys().copied().collect();
    let mut names: Vec<String> = last.values().map(|(name, _)| name.clone()).collect();
    for i in 0..names.len() {
        if names.iter().filter(|name| **name == names[i]).count() > 1 {
            names[i] = format!("{} #{}", names[i], tasks[i]);
        }
    }
    // An evaluation that was cut, or measured other tasks, is no point of the curve.
    let whole = points.into_iter().filter(|(_, of)| of.keys().copied().eq(tasks.iter().copied()));
    let points: Vec<(u32, Vec<f64>)> =
        whole.map(|(update, of)| (update, of.into_values().map(|(_, score)| score).collect())).collect();
    for (update, scores) in &points {
        if let Some((name, score)) = names.iter().zip(scores).find(|(_, score)| !score.is_finite()) {
            return Err(format!("its score on task `{name}` after update {update} is {score}"));
        }
    }
    Ok(Measured { tasks: names, split, mode, points })
}

/// What was spent until an update, in the order of [`AXES`].
fn spent_until(lines: &[MetricsLine], update: u32) -> Vec<f64> {
    let line = lines.iter().rev().find(|line| line.update <= update);
    let of = |name: &str| line.and_then(|line| line.metrics.get(name)).unwrap_or(0.0);
    vec![f64::from(update), of("cost/env_steps"), of("cost/actor_tokens"), of("cost/tokens")]
}

impl Results {
    /// Gathers what the cells that are done measured. A cell that failed is listed as one; others are counted as missing.
    ///
    /// # Errors
    /// If records are damaged, runs measured different tasks, or no run is done.
    pub fn read(plan: &Plan, folder: &GridFolder, cells: &[Cell]) -> Result<Results, GridError> {
        let mut tasks: Option<Vec<String>> = None;
        let mut of_split = None;
        let mut missing = 0;
        let (mut scores, mut curves) = (Vec::new(), Vec::new());
        let mut spent = Vec::new();
        for arm in &plan.arms {
            let (mut last, mut all) = (Vec::new(), Vec::new());
            let mut ledger = Spent::default();
            for cell in cells.iter().filter(|cell| cell.arm == arm.name) {
                let state = folder.state(cell)?;
                let run = folder.run(cell);
                if cell.tries.is_some() {
                    ledger.tuning_tokens += folder::result(&run)?.map_or(0, |result| result.ledger.tokens());
                    continue;
                }
                let result = match state {
                    State::Done => measured(&run, &plan.spec.score),
                    State::Failed(failure) => Err(failure.reason),
                    State::Waiting | State::Running { .. } | State::Stopped { .. } => {
                        missing += 1;
                        continue;
                    }
                };
                let result = result.and_then(|measured| {
                    let known = tasks.get_or_insert_with(|| measured.tasks.clone());
                    of_split.get_or_insert((measured.split.clone(), measured.mode));
                    if *known == measured.tasks {
                        Ok(measured)
                    } else {
                        Err("it measured other tasks than the runs before it".into())
                    }
                });
                let lines = if result.is_ok() { folder::metrics(&run)? } else { Vec::new() };
                // What was cleared away would count as nothing spent.
                let updates = folder::result(&run)?.map_or(0, |result| result.update);
                let recorded = lines.last().map_or(0, |line| line.update);
                let result = result.and_then(|measured| {
                    if recorded == updates {
                        return Ok(measured);
                    }
                    Err(format!("its metrics end at update {recorded}, and it at {updates}: they were cleared away or damaged; remove `{}` and run the grid again", run.display()))
                });
                if result.is_ok() {
                    ledger.add(&lines);
                    ledger.eval_tokens += folder::result(&run)?.map_or(0.0, |result| result.eval_tokens as f64);
                }
                let point =
                    |(update, scores): &(u32, Vec<f64>)| Point { spent: spent_until(&lines, *update), scores: scores.clone() };
                let points = result.as_ref().map(|measured| measured.points.iter().map(point).collect()).map_err(String::clone);
                all.push(Run { seed: cell.seed, result: points });
                let final_scores = result.map(|mut measured| measured.points.pop().map_or_else(Vec::new, |(_, scores)| scores));
                last.push(Run { seed: cell.seed, result: final_scores });
            }
            spent.push((arm.name.clone(), ledger.mean()));
            if !last.is_empty() {
                scores.push(Arm { name: arm.name.clone(), runs: last });
                curves.push(Arm { name: arm.name.clone(), runs: all });
            }
        }
        let (Some(tasks), Some(measured)) = (tasks, of_split) else {
            let why = scores.iter().flat_map(|arm| &arm.runs).find_map(|run| run.result.as_ref().err());
            let why =
                why.map_or_else(|| "no run is done yet".to_string(), |why| format!("no run has a result; the first: {why}"));
            return Err(GridError::Changed(why));
        };
        let range = match plan.spec.score.of {
            ScoreOf::Success => Range::UNIT,
            ScoreOf::Return => Range::new(f64::NEG_INFINITY, f64::INFINITY)?,
        };
        let table = Table::new(tasks.clone(), range, Training::ForAllTasks, scores)?;
        let curves = Curves::new(tasks, AXES.to_vec(), range, Training::ForAllTasks, curves)?;
        Ok(Results { table, curves, spent, missing, measured })
    }
}

impl Spent {
    /// Adds a finished run.
    fn add(&mut self, lines: &[MetricsLine]) {
        self.runs += 1;
        if let Some(last) = lines.last() {
            self.updates += f64::from(last.update);
            for (name, x) in &last.metrics.0 {
                if let Some(name) = name.strip_prefix("cost/") {
                    *self.mean.entry(name.to_string()).or_default() += x;
                }
            }
        }
        let norms: Vec<f64> =
            lines.iter().filter_map(|line| line.metrics.get("actor/grad_norm")).filter(|x| x.is_finite()).collect();
        if !norms.is_empty() {
            *self.gradient_norm.get_or_insert(0.0) += norms.iter().sum::<f64>() / norms.len() as f64;
        }
        let alarms = lines.iter().flat_map(|line| line.metrics.0.keys().filter_map(|name| name.strip_prefix("alarm/")));
        alarms.for_each(|alarm| *self.alarms.entry(alarm.to_string()).or_default() += 1);
    }

    fn mean(mut self) -> Self {
        let n = self.runs.max(1) as f64;
        self.updates /= n;
        self.eval_tokens /= n;
        self.mean.values_mut().for_each(|x| *x /= n);
        self.gradient_norm = self.gradient_norm.map(|x| x / n);
        self
    }
}

/// What an arm chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Each setting with its mean score over the tuning seeds that finished, in the order in which they were tried; `None` where
    /// none finished.
    pub tried: Vec<(Vec<String>, Option<f64>)>,
    /// Place of the best; the first of equals, and the first of all where none finished.
    pub best: usize,
}

impl Chosen {
    /// The settings.
    pub fn settings(&self) -> &[String] {
        &self.tried[self.best].0
    }
}

/// A setting, and the scores of its tuning runs.
type Tried = (Vec<String>, Vec<f64>);

/// What every arm chooses, once all its tuning runs are done or have failed; `None` before.
///
/// # Errors
/// If records are damaged.
pub fn chosen(plan: &Plan, folder: &GridFolder, tuning: &[Cell]) -> Result<Option<BTreeMap<String, Chosen>>, GridError> {
    let mut by_arm: BTreeMap<String, Vec<Tried>> = BTreeMap::new();
    for cell in tuning {
        let tries = cell.tries.clone().unwrap_or_default();
        let of_arm = by_arm.entry(cell.arm.clone()).or_default();
        if of_arm.iter().all(|(known, _)| *known != tries) {
            of_arm.push((tries.clone(), Vec::new()));
        }
        let scores = &mut of_arm.iter_mut().find(|(known, _)| *known == tries).expect("pushed above").1;
        match folder.state(cell)? {
            State::Done => {
                // A run without a score is out of the choice, as one that failed is.
                if let Some((_, last)) = measured(&folder.run(cell), &plan.spec.score).ok().and_then(|mut of| of.points.pop()) {
                    scores.push(last.iter().sum::<f64>() / last.len().max(1) as f64);
                }
            }
            State::Failed(_) => {}
            State::Waiting | State::Running { .. } | State::Stopped { .. } => return Ok(None),
        }
    }
    let mut all = BTreeMap::new();
    for (arm, tried) in by_arm {
        let mean = |scores: &Vec<f64>| (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64);
        let tried: Vec<(Vec<String>, Option<f64>)> = tried.into_iter().map(|(tries, scores)| (tries, mean(&scores))).collect();
        let best = (0..tried.len()).filter(|i| tried[*i].1.is_some()).reduce(|a, b| if tried[b].1 > tried[a].1 { b } else { a });
        // What failed with every setting is run with the first, and recorded: the other arms go on.
        all.insert(arm, Chosen { tried, best: best.unwrap_or(0) });
    }
    Ok(Some(all))
}
