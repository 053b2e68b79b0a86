//! What the cells of a grid measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ascribe_run::RunError;
use ascribe_run::evaluate::Mode;
use ascribe_run::folder::{self, RunResult};
use ascribe_run::records::{EpisodeResult, EvaluationLine, MetricsLine};

use super::GridError;
use super::drift::cells_of;
use super::folder::{GridFolder, State, run_again};
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

/// A run that is done, as its records say.
struct Finished {
    result: RunResult,
    lines: Vec<MetricsLine>,
    measured: Measured,
}

/// Why a run that is done cannot be used.
struct Unusable {
    why: String,
    /// Whether its records are damaged or were cleared away, so that it has to be run again.
    damaged: bool,
}

/// Reads a run that is done.
///
/// # Errors
/// If its records are damaged or were cleared away, which would show as a run that spent less or ended earlier; or if it has no score.
fn finished(run: &Path, score: &Score) -> Result<Finished, Unusable> {
    let again = |why: &str| Unusable { why: run_again(run, why), damaged: true };
    let unreadable = |e: RunError| again(&e.to_string());
    let result = folder::result(run).map_err(unreadable)?.ok_or_else(|| again("it is not done"))?;
    let lines = folder::metrics(run).map_err(unreadable)?;
    let whole = (1..=result.update).zip(&lines).take_while(|(update, line)| line.update == *update).count();
    if whole != lines.len() || whole != result.update as usize {
        let why = format!("its metrics end at update {whole}, and it at {}: they were cleared away or damaged", result.update);
        return Err(again(&why));
    }
    let evaluations = folder::evaluations(run).map_err(unreadable)?;
    let (said, there) = (evaluated(&result), lines_of(&evaluations));
    if let Some((update, phase, split, mode)) = said.keys().chain(there.keys()).find(|of| said.get(of) != there.get(of)) {
        let count = |of: &Counts| of.get(&(*update, phase, split, *mode)).map_or((0, 0), |count| *count);
        let ((tasks, episodes), (tasks_there, episodes_there)) = (count(&said), count(&there));
        let why = format!(
            "of its {} evaluation on `{split}` after update {update} there are {tasks_there} tasks with {episodes_there} episodes, and it \
             measured {tasks} with {episodes}: its evaluations were cleared away or damaged",
            mode.as_str()
        );
        return Err(again(&why));
    }
    let measured = measured(&evaluations, score).map_err(|why| Unusable { why, damaged: false })?;
    Ok(Finished { measured, result, lines })
}

impl Finished {
    /// Scores after its last evaluation.
    fn last(&self) -> &[f64] {
        self.measured.points.last().map_or(&[], |(_, scores)| scores)
    }

    /// Scores of every evaluation, by what was spent until then.
    fn curve(&self) -> Vec<Point> {
        let point =
            |(update, scores): &(u32, Vec<f64>)| Point { spent: spent_until(&self.lines, *update), scores: scores.clone() };
        self.measured.points.iter().map(point).collect()
    }
}

/// Tasks and episodes of evaluations, by update, phase, split and way of acting: a phase without updates is measured at the update at which
/// the phase before it ended.
type Counts<'a> = BTreeMap<(u32, &'a str, &'a str, Mode), (usize, usize)>;

/// As a run's result says.
fn evaluated(result: &RunResult) -> Counts<'_> {
    let mut counts = Counts::new();
    for evaluation in &result.evaluations {
        for result in &evaluation.results {
            let of = (evaluation.update, evaluation.phase.as_str(), result.split.as_str(), result.mode);
            counts.insert(of, (result.summary.tasks, result.summary.episodes));
        }
    }
    counts
}

/// As the lines are.
fn lines_of(lines: &[EvaluationLine]) -> Counts<'_> {
    let mut counts = Counts::new();
    for line in lines {
        let of = (line.update, line.phase.as_str(), line.split.as_str(), line.mode);
        let count = counts.entry(of).or_default();
        *count = (count.0 + 1, count.1 + line.episodes.len());
    }
    counts
}

/// Tokens that a run spent so far, finished or not.
fn tokens(run: &Path) -> u64 {
    if let Ok(Some(result)) = folder::result(run) {
        return result.ledger.tokens();
    }
    let lines = folder::metrics(run).unwrap_or_default();
    lines.last().and_then(|line| line.metrics.get("cost/tokens")).map_or(0, |tokens| tokens as u64)
}

/// What counts of a run's evaluations.
fn measured(lines: &[EvaluationLine], score: &Score) -> Result<Measured, String> {
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
    /// Gathers what the cells that are done measured. A cell that failed, or whose records do not fit together, is listed as one that
    /// failed; others are counted as missing. Cells that are not of the experiment as it is now are left out.
    ///
    /// # Errors
    /// If an arm cannot be run with what it chose, or no run has a result.
    pub fn read(plan: &Plan, folder: &GridFolder, cells: &[Cell]) -> Result<Results, GridError> {
        let own: BTreeSet<String> = cells_of(plan, folder)?.0.into_iter().map(|cell| cell.id).collect();
        let mut tasks: Option<Vec<String>> = None;
        let mut of_split = None;
        let mut missing = 0;
        let (mut scores, mut curves) = (Vec::new(), Vec::new());
        let mut spent = Vec::new();
        for arm in &plan.arms {
            let (mut last, mut all) = (Vec::new(), Vec::new());
            let mut ledger = Spent::default();
            for cell in cells.iter().filter(|cell| cell.arm == arm.name && own.contains(&cell.id)) {
                let state = folder.state(cell)?;
                let run = folder.run(cell);
                if cell.tries.is_some() {
                    ledger.tuning_tokens += tokens(&run);
                    continue;
                }
                let result = match state {
                    State::Done => finished(&run, &plan.spec.score).map_err(|of| of.why),
                    State::Failed(failure) => Err(failure.reason),
                    State::Waiting | State::Running { .. } | State::Stopped { .. } => {
                        missing += 1;
                        continue;
                    }
                };
                let result = result.and_then(|finished| {
                    let measured = &finished.measured;
                    let known = tasks.get_or_insert_with(|| measured.tasks.clone());
                    of_split.get_or_insert((measured.split.clone(), measured.mode));
                    if *known == measured.tasks {
                        Ok(finished)
                    } else {
                        Err("it measured other tasks than the runs before it".into())
                    }
                });
                if let Ok(finished) = &result {
                    ledger.add(finished);
                }
                all.push(Run { seed: cell.seed, result: result.as_ref().map(Finished::curve).map_err(String::clone) });
                last.push(Run { seed: cell.seed, result: result.map(|finished| finished.last().to_vec()) });
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
    fn add(&mut self, Finished { result, lines, .. }: &Finished) {
        self.runs += 1;
        self.eval_tokens += result.eval_tokens as f64;
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
    /// Tuning runs that are done and have no score. They are in no mean, as those that failed.
    pub unread: Vec<Unread>,
}

/// A tuning run that is done and has no score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The settings that it tried.
    pub tries: Vec<String>,
    /// Its seed.
    pub seed: u64,
    /// Why, and what to do.
    pub why: String,
    /// Whether its records are damaged or were cleared away: nothing is chosen until it was run again, or given up.
    pub damaged: bool,
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
    let mut unread: BTreeMap<&str, Vec<Unread>> = BTreeMap::new();
    for cell in tuning {
        let tries = cell.tries.clone().unwrap_or_default();
        let of_arm = by_arm.entry(cell.arm.clone()).or_default();
        if of_arm.iter().all(|(known, _)| *known != tries) {
            of_arm.push((tries.clone(), Vec::new()));
        }
        let scores = &mut of_arm.iter_mut().find(|(known, _)| *known == tries).expect("pushed above").1;
        match folder.state(cell)? {
            State::Done => match finished(&folder.run(cell), &plan.spec.score) {
                Ok(finished) => scores.push(finished.last().iter().sum::<f64>() / finished.last().len().max(1) as f64),
                Err(Unusable { why, damaged }) => {
                    unread.entry(&cell.arm).or_default().push(Unread { tries, seed: cell.seed, why, damaged });
                }
            },
            State::Failed(failure) if folder::result(&folder.run(cell)).is_err() => {
                let damaged = Unread { tries, seed: cell.seed, why: failure.reason, damaged: true };
                unread.entry(&cell.arm).or_default().push(damaged);
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
        let unread = unread.remove(arm.as_str()).unwrap_or_default();
        all.insert(arm, Chosen { tried, best: best.unwrap_or(0), unread });
    }
    Ok(Some(all))
}
