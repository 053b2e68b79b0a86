//! `eval`: measuring what a run has learned, without touching the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ascribe_core::environment::TRAIN;
use ascribe_core::experiment::{MOST_SAMPLES, Plan};
use ascribe_core::range::{Between, Count, Positive};

use crate::checkpoint::file_name;
use crate::disk::Disk;
use crate::error::RunError;
use crate::evaluate::{Evaluation, Measure};
use crate::folder;
use crate::progress::{Event, Progress};
use crate::records::{EvaluationLine, line};
use crate::session::{known_splits, measure_node, restore, settings};

/// Writes an evaluation's results by task into the run's folder, as `eval/UPDATE-SPLITS.jsonl`.
///
/// # Errors
/// If they cannot be written.
pub fn save_measured(disk: &Disk, run: &Path, evaluation: &Evaluation, lines: &[EvaluationLine]) -> Result<PathBuf, RunError> {
    let mut splits: Vec<&str> = evaluation.results.iter().map(|r| r.split.as_str()).collect();
    splits.dedup();
    let folder = run.join("eval");
    let path = folder.join(format!("{:06}-{}.jsonl", evaluation.update, file_name(&splits.join("_"))));
    disk.create_dir(&folder)?;
    disk.write(&path, &lines.iter().flat_map(line).collect::<Vec<u8>>())?;
    Ok(path)
}

/// What to measure; what is left out is as in the experiment.
#[derive(Clone, Debug, Default)]
pub struct MeasureOptions {
    /// Folder against which relative paths in the experiment are read; `None` is the one that the run was begun with.
    pub base: Option<PathBuf>,
    /// Update whose checkpoint is measured; the newest by default.
    pub update: Option<u32>,
    /// Splits.
    pub splits: Vec<String>,
    /// Most tasks of a split; 0 is all.
    pub tasks: Option<Count>,
    /// Sampled episodes per task; 0 is none.
    pub samples: Option<Between<0, MOST_SAMPLES>>,
    /// Temperature of the sampled episodes.
    pub temperature: Option<Positive>,
    /// Set by whoever wants it to stop.
    pub stop: Arc<AtomicBool>,
}

/// Measures a run's policy as its checkpoint left it. `None` if it was asked to stop.
///
/// # Errors
/// If there is no run, no usable checkpoint, or the policy fails.
pub fn measure(
    plan: &Plan,
    run: &Path,
    options: &MeasureOptions,
    progress: &mut dyn Progress,
) -> Result<Option<(Evaluation, Vec<EvaluationLine>)>, RunError> {
    let begun = folder::provenance(run)?;
    let base = options.base.clone().unwrap_or(begun.base);
    let (mut live, phase, update) = restore(plan, run, base, options.update, progress)?;
    let experiment = settings(plan, phase)?;
    let mut evaluate = experiment.evaluate.clone();
    if !options.splits.is_empty() {
        evaluate.splits.clone_from(&options.splits);
    }
    evaluate.tasks = options.tasks.unwrap_or(evaluate.tasks);
    evaluate.samples = options.samples.unwrap_or(evaluate.samples);
    evaluate.temperature = options.temperature.unwrap_or(evaluate.temperature);
    known_splits(&evaluate, &live).map_err(RunError::Config)?;
    if evaluate.splits.is_empty() && live.world.tasks.splits().iter().all(|split| split == TRAIN) {
        let text = "the environment has no split but `train`: to measure on it, say so with `--split train`";
        return Err(RunError::Config(text.into()));
    }
    let name = plan.phases.get(phase).map_or_else(String::new, |p| p.name.clone());
    let measure = Measure {
        agent: experiment.rollout.agent(),
        decode: experiment.rollout.decode(),
        settings: &evaluate,
        seeds: live.world.seeds,
        patience: live.world.patience,
        update,
        phase: &name,
    };
    let measured = measure_node(&mut live, &measure, &mut |split, done, of| {
        progress.on(Event::Evaluating { split, done, of });
        !options.stop.load(Ordering::Relaxed)
    })?;
    Ok(measured.map(|m| {
        let evaluation = Evaluation { update, phase: name.clone(), phase_end: false, results: m.results };
        progress.on(Event::Evaluated(&evaluation));
        (evaluation, m.lines)
    }))
}
