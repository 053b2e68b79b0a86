//! A run from its first update to its last, over as many processes as it takes.
//!
//! After an update its metrics are *pending*: the checkpoint is written first, then the evaluation is made where one is
//! due, then the line. So a run that is killed while it evaluates loses nothing, and a finished run whose last phase is
//! made longer goes on as if it had never ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ascribe_core::experiment::{Budget, Evaluate, KnobMemory, Plan};
use ascribe_core::ledger::Ledger;
use ascribe_core::{Experiment, Metrics, Now, graph};
use serde::{Deserialize, Serialize};

use crate::alarms;
use crate::checkpoint::{self, Checkpoint};
use crate::disk::{Append, Disk};
use crate::error::RunError;
use crate::evaluate::{Evaluation, Measure, Measured};
use crate::folder::{self, Attempt, Provenance, RunFolder, RunResult, Start, StartFrom, name};
use crate::live::{Live, Saved, node_file, node_of_file};
use crate::log::Log;
use crate::progress::{Event, Progress};
use crate::records::{MetricsLine, TimingLine, line, read_lines};
use crate::tensorboard;
use crate::train::{Trained, train};
use crate::trajectories;

const STATE: &str = "state.json";

/// The growing files that a run's results are: without them it cannot go on. The others only show how it went.
const RESULTS: [&str; 2] = [name::METRICS, name::EVALUATIONS];

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The run's folder; `None` is `<run.dir>/<name>/<cell>/seed-<n>`.
    pub folder: Option<PathBuf>,
    /// Cell of a grid.
    pub cell: String,
    /// Folder against which relative paths in the experiment are read.
    pub base: PathBuf,
    /// Moves an old run aside instead of going on with it.
    pub fresh: bool,
    /// Refuses to begin a run where there is none.
    pub resume: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
    /// Set by whoever wants the run to stop: it saves and ends after the current update.
    pub stop: Arc<AtomicBool>,
    /// What writes.
    pub disk: Disk,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folder: None,
            cell: "main".into(),
            base: PathBuf::from("."),
            fresh: false,
            resume: false,
            command: Vec::new(),
            stop: Arc::default(),
            disk: Disk::default(),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All phases are done.
    Finished,
    /// They were done before.
    AlreadyFinished,
    /// It was asked to stop, and can be resumed.
    Stopped,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its folder.
    pub folder: PathBuf,
    /// How it ended.
    pub ended: Ended,
    /// Numbers so far.
    pub result: RunResult,
}

/// Runs an experiment, or goes on with it where its folder holds a part of it.
///
/// # Errors
/// If it cannot begin or go on. The last checkpoint is then as it was.
pub fn run(plan: &Plan, options: &Options, progress: &mut dyn Progress) -> Result<Report, RunError> {
    let first = settings(plan, 0)?;
    let path =
        options.folder.clone().unwrap_or_else(|| folder::default_path(&first.run.dir, &plan.name, &options.cell, first.seed));
    if options.fresh && path.exists() {
        // Whether the new one can begin is asked before the old one is moved.
        check_splits(plan, &Live::build(plan, options.base.clone())?)?;
        let aside = RunFolder::move_aside(&options.disk, &path)?;
        progress.on(Event::Warning(&format!("the old run lies in `{}` from here on", aside.display())));
        let begun = run(plan, &Options { fresh: false, ..options.clone() }, progress);
        if begun.is_err() && !path.exists() {
            options.disk.rename(&aside, &path)?;
            progress.on(Event::Warning(&format!("the old run is back in `{}`", path.display())));
        }
        return begun;
    }
    if options.resume {
        folder::provenance(&path)?;
    }
    // Whether a run may begin here is asked before anything expensive is built.
    let known = path.exists();
    let opened = known.then(|| RunFolder::open(&options.disk, &path)).transpose()?;
    let begun = opened.as_ref().map(|folder| begun(folder, plan)).transpose()?.flatten();
    if let (Some(folder), Some(_)) = (&opened, &begun)
        && let Some(result) = folder::result(folder.path())?
        && finished(&result, &settings(plan, plan.phases.len() - 1)?)
    {
        return Ok(Report { folder: path, ended: Ended::AlreadyFinished, result });
    }
    let live = Live::build(plan, options.base.clone())?;
    check_splits(plan, &live)?;
    let (folder, begun) = match opened {
        Some(folder) => (folder, begun),
        // Another process may have begun there in the meantime.
        None => {
            let folder = RunFolder::open(&options.disk, &path)?;
            let begun = self::begun(&folder, plan)?;
            (folder, begun)
        }
    };
    let begins = Session::start(plan, options, progress, &folder, begun, live);
    let mut session = match begins {
        Ok(session) => session,
        Err(e) => {
            if !known {
                folder.take_back();
            }
            return Err(e);
        }
    };
    let ended = session.drive().inspect_err(|e| tracing::error!("{e}"))?;
    Ok(Report { folder: path, ended, result: session.result() })
}

/// Everything that a run needs to go on exactly as it would have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct State {
    phase: usize,
    phase_update: u32,
    update: u32,
    /// Metrics of the last update whose line is written.
    metrics: Metrics,
    /// The last update, if its line is not written yet.
    pending: Option<Pending>,
    /// Memory of schedules, as bits: any number survives.
    knobs: BTreeMap<String, Vec<u64>>,
    /// What evaluations cost.
    eval_ledger: Ledger,
    evaluations: Vec<Evaluation>,
    seconds: Vec<(String, f64)>,
    live: Saved,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Pending {
    metrics: Metrics,
    timing: TimingLine,
}

/// Files that only grow.
struct Logs {
    metrics: Append,
    timing: Append,
    evaluations: Append,
    tensorboard: Append,
}

struct Session<'a> {
    plan: &'a Plan,
    options: &'a Options,
    progress: &'a mut dyn Progress,
    folder: &'a RunFolder,
    log: Log,
    logs: Logs,
    live: Live,
    state: State,
    knobs: KnobMemory,
    now: Now,
    /// The phase with its schedules at their start: what does not change within it.
    settings: Experiment,
    /// Phase and update of the newest checkpoint.
    saved: Option<(usize, u32)>,
    /// Saved batches that may not have reached the disk.
    unsynced: Vec<PathBuf>,
    /// Alarms, and whatever else is said once in a phase, that were said in this one.
    said: BTreeSet<&'static str>,
}

impl<'a> Session<'a> {
    fn start(
        plan: &'a Plan,
        options: &'a Options,
        progress: &'a mut dyn Progress,
        folder: &'a RunFolder,
        begun: Option<Provenance>,
        mut live: Live,
    ) -> Result<Self, RunError> {
        let (log, logs, state, saved, files) = open(plan, options, progress, folder, begun, &mut live)?;
        let settings = settings(plan, state.phase)?;
        let knobs = state.knobs.iter().map(|(k, bits)| (k.clone(), bits.iter().copied().map(f64::from_bits).collect()));
        let mut session = Self {
            plan,
            options,
            progress,
            folder,
            log,
            logs,
            live,
            knobs: knobs.collect(),
            now: Now::default(),
            settings,
            saved,
            unsynced: Vec::new(),
            said: BTreeSet::new(),
            state,
        };
        if saved.is_some() {
            let kept = std::mem::take(&mut session.state.live);
            session.live.load(kept, &files)?;
        }
        let parameters = session.live.world.nodes.iter().map(|(name, node)| (name.clone(), node.n_parameters())).collect();
        let resumed = saved.map(|(_, update)| update);
        session.progress.on(Event::Started { folder: session.folder.path(), resumed, parameters });
        tracing::info!("{} in `{}`", plan.name, session.folder.path().display());
        Ok(session)
    }

    /// All phases, one after the other.
    fn drive(&mut self) -> Result<Ended, RunError> {
        while self.state.phase < self.plan.phases.len() {
            self.enter_phase()?;
            loop {
                let done = self.phase_done();
                if !self.settle(done)? {
                    return self.stop();
                }
                if done {
                    break;
                }
                if self.options.stop.load(Ordering::Relaxed) {
                    return self.stop();
                }
                self.update()?;
            }
            self.state.phase += 1;
            self.state.phase_update = 0;
            self.knobs.clear();
        }
        self.sync()?;
        self.folder.write_json(name::RESULT, &self.result())?;
        self.end_attempt()?;
        tracing::info!("finished after {} updates", self.state.update);
        Ok(Ended::Finished)
    }

    fn enter_phase(&mut self) -> Result<(), RunError> {
        let phase = &self.plan.phases[self.state.phase];
        self.settings = settings(self.plan, self.state.phase)?;
        self.said.clear();
        self.now = Now {
            update: self.state.update,
            phase: phase.name.clone(),
            phase_update: self.state.phase_update,
            phase_updates: updates(&self.settings),
            metrics: self.state.metrics.clone(),
        };
        if self.state.seconds.len() <= self.state.phase {
            self.state.seconds.push((phase.name.clone(), 0.0));
        }
        self.progress.on(Event::Phase {
            name: &phase.name,
            index: self.state.phase,
            phases: self.plan.phases.len(),
            done: self.state.phase_update,
            updates: self.now.phase_updates,
        });
        tracing::info!("phase `{}`, {} of {} updates done", phase.name, self.state.phase_update, self.now.phase_updates);
        let about = self.live.world.tasks.capabilities();
        let fades = self.settings.estimator.decay();
        if let Some(warning) = fades.and_then(|decay| decay.warning(about.max_turns, about.max_action_tokens)) {
            warn(self.progress, &format!("phase `{}`: {warning}", phase.name));
        }
        if let Some(doubt) = graph::doubt(&self.settings) {
            warn(self.progress, &format!("phase `{}`: {doubt}", phase.name));
        }
        // Its line in the results would read like one of a phase that ran.
        if self.state.phase_update == 0 && self.now.phase_updates > 0 && spent(&self.settings.budget, &self.live.world.ledger) {
            let text =
                format!("phase `{}` runs no update: the phases before it have spent the budget; raise `budget`", phase.name);
            warn(self.progress, &text);
        }
        Ok(())
    }

    fn phase_done(&self) -> bool {
        self.state.phase_update >= self.now.phase_updates || spent(&self.settings.budget, &self.live.world.ledger)
    }

    fn update(&mut self) -> Result<(), RunError> {
        let phase = &self.plan.phases[self.state.phase];
        let (experiment, numbers) = phase.at(&self.now, &mut self.knobs).map_err(RunError::Config)?;
        self.live.fit(&experiment, phase, &numbers)?;
        let tokens = self.live.world.ledger.tokens();
        let trained = train(&mut self.live, &experiment, &self.now)
            .map_err(|e| RunError::Train { update: self.state.update + 1, source: Box::new(e) })?;
        self.state.update += 1;
        self.state.phase_update += 1;

        let Trained { batch, credit, mut metrics, seconds } = trained;
        let broken = batch.groups().find_map(|g| {
            let reason = g.failures().next()?;
            Some(format!("the first on task `{}`: {reason}", g.about().task_name))
        });
        let every = self.settings.run.trajectories.0;
        if every > 0 && u64::from(self.state.update).is_multiple_of(every) {
            let all = self.folder.at(name::TRAJECTORIES);
            trajectories::write(&self.options.disk, &all, self.state.update, &phase.name, &batch, &credit)?;
            self.unsynced.push(trajectories::path(&all, self.state.update));
        }
        numbers.into_iter().for_each(|(path, x)| metrics.set(format!("knob/{path}"), x));
        metrics.extend(self.live.world.ledger.metrics());
        let rung = alarms::ring(&metrics, self.state.phase_update, &experiment.alarm, broken.as_deref());
        rung.iter().for_each(|alarm| metrics.set(format!("alarm/{}", alarm.name), 1.0));

        let total: f64 = seconds.iter().sum();
        let tokens_per_second = (self.live.world.ledger.tokens() - tokens) as f64 / total.max(1e-9);
        self.progress.on(Event::Update {
            update: self.state.update,
            phase_update: self.state.phase_update,
            phase_updates: self.now.phase_updates,
            metrics: &metrics,
            tokens_per_second,
        });
        if let Some(reason) = broken
            && self.said.insert("broken")
        {
            warn(self.progress, &format!("update {}: an episode broke, {reason}", self.state.update));
        }
        for alarm in rung.iter().filter(|alarm| self.said.insert(alarm.name)) {
            warn(self.progress, &format!("{}, update {}: {}", alarm.name, self.state.update, alarm.text));
        }
        self.state.seconds[self.state.phase].1 += total;
        let [rollout, judge, credit, train] = seconds;
        let timing = TimingLine {
            update: self.state.update,
            phase: phase.name.clone(),
            seconds: total,
            rollout,
            judge,
            credit,
            train,
            evaluate: 0.0,
            tokens_per_second,
        };
        self.state.pending = Some(Pending { metrics, timing });
        let stop = rung.into_iter().find(|alarm| alarm.stops);
        if stop.is_some() || self.phase_done() || u64::from(self.state.update).is_multiple_of(*self.settings.checkpoint.every) {
            self.save()?;
        }
        self.log.check()?;
        let Some(alarm) = stop else { return Ok(()) };
        self.record(None)?;
        self.sync()?;
        self.end_attempt()?;
        Err(RunError::Alarm { name: alarm.name, update: self.state.update, text: alarm.text })
    }

    /// Finishes the last update: evaluates where that is due, then writes its line. False if it was asked to stop.
    fn settle(&mut self, phase_done: bool) -> Result<bool, RunError> {
        let every = self.settings.evaluate.every.0;
        let due = match self.state.pending {
            Some(_) => phase_done || every > 0 && u64::from(self.state.update).is_multiple_of(every),
            // A phase without updates is measured as it is.
            None => phase_done && self.state.phase_update == 0,
        };
        let started = Instant::now();
        let mut measured = None;
        if due {
            let Some(m) = self.evaluate()? else { return Ok(false) };
            let evaluation = Evaluation {
                update: self.state.update,
                phase: self.now.phase.clone(),
                phase_end: phase_done,
                results: m.results.clone(),
            };
            measured = Some((evaluation, m, started.elapsed().as_secs_f64()));
        }
        self.record(measured)?;
        Ok(true)
    }

    /// Writes the lines of the last update and of its evaluation.
    fn record(&mut self, measured: Option<(Evaluation, Measured, f64)>) -> Result<(), RunError> {
        let mut of_evaluation = Metrics::default();
        let mut evaluate = 0.0;
        if let Some((evaluation, measured, seconds)) = measured.filter(|(e, ..)| !e.results.is_empty()) {
            evaluate = seconds;
            self.state.seconds[self.state.phase].1 += seconds;
            of_evaluation = evaluation.metrics();
            add(&mut self.state.eval_ledger, &measured.ledger);
            let lines: Vec<u8> = measured.lines.iter().flat_map(line).collect();
            self.logs.evaluations.write(&lines)?;
            self.progress.on(Event::Evaluated(&evaluation));
            for r in &evaluation.results {
                let (split, mode, s) = (&r.split, r.mode.as_str(), &r.summary);
                tracing::info!("update {}, {split} {mode}: success {:.3}, return {:.3}", self.state.update, s.success, s.outcome);
            }
            self.state.evaluations.push(evaluation);
        }
        let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        if let Some(Pending { mut metrics, mut timing }) = self.state.pending.take() {
            metrics.extend(of_evaluation);
            metrics.set("cost/eval_tokens", self.state.eval_ledger.tokens() as f64);
            metrics.set("cost/eval_episodes", self.state.eval_ledger.episodes as f64);
            timing.evaluate = evaluate;
            let written = MetricsLine { update: self.state.update, phase: self.now.phase.clone(), metrics };
            self.logs.metrics.write(&line(&written))?;
            self.logs.timing.write(&line(&timing))?;
            self.logs.tensorboard.write(&tensorboard::scalars(wall_time, u64::from(self.state.update), &written.metrics))?;
            self.state.metrics = written.metrics;
        } else if !of_evaluation.0.is_empty() {
            let event = tensorboard::scalars(wall_time, u64::from(self.state.update), &of_evaluation);
            self.logs.tensorboard.write(&event)?;
            self.state.metrics.extend(of_evaluation);
        }
        self.now.update = self.state.update;
        self.now.phase_update = self.state.phase_update;
        self.now.metrics = self.state.metrics.clone();
        Ok(())
    }

    fn evaluate(&mut self) -> Result<Option<Measured>, RunError> {
        let measure = Measure {
            agent: self.settings.rollout.agent(),
            decode: self.settings.rollout.decode(),
            settings: &self.settings.evaluate,
            seeds: self.live.world.seeds,
            patience: self.live.world.patience,
            update: self.state.update,
            phase: &self.now.phase,
        };
        let (stop, progress) = (&self.options.stop, &mut self.progress);
        measure_node(&mut self.live, &measure, &mut |split, done, of| {
            progress.on(Event::Evaluating { split, done, of });
            !stop.load(Ordering::Relaxed)
        })
    }

    /// Writes a checkpoint of where the run stands.
    fn save(&mut self) -> Result<(), RunError> {
        // What the manifest says about the logs must be on the disk before it is.
        self.sync()?;
        let mut files = BTreeMap::new();
        let mut state = self.state.clone();
        state.knobs = self.knobs.iter().map(|(k, numbers)| (k.clone(), numbers.iter().map(|x| x.to_bits()).collect())).collect();
        state.live = self.live.save(&mut files)?;
        files.insert(STATE.into(), serde_json::to_vec(&state).expect("plain data serialises"));
        let lengths = [
            (name::METRICS.into(), self.logs.metrics.length()),
            (name::TIMING.into(), self.logs.timing.length()),
            (name::EVALUATIONS.into(), self.logs.evaluations.length()),
            (tensorboard_file(), self.logs.tensorboard.length()),
        ];
        let all = self.folder.at(name::CHECKPOINTS);
        let checkpoint = Checkpoint {
            update: self.state.update,
            phase: self.now.phase.clone(),
            phase_end: self.phase_done(),
            files,
            lengths: lengths.into(),
        };
        checkpoint::write(&self.options.disk, &all, &checkpoint)?;
        checkpoint::prune(&self.options.disk, &all, self.settings.checkpoint.keep.get())?;
        self.saved = Some((self.state.phase, self.state.update));
        self.progress.on(Event::Saved { update: self.state.update });
        tracing::info!("checkpoint of update {}", self.state.update);
        Ok(())
    }

    /// Forces everything to the disk that was only appended or renamed so far.
    fn sync(&mut self) -> Result<(), RunError> {
        for batch in self.unsynced.drain(..) {
            self.options.disk.sync_file(&batch)?;
        }
        self.options.disk.sync_dir(&self.folder.at(name::TRAJECTORIES))?;
        for log in [&self.logs.metrics, &self.logs.timing, &self.logs.evaluations, &self.logs.tensorboard] {
            log.sync()?;
        }
        Ok(())
    }

    /// Saves, and ends for now.
    fn stop(&mut self) -> Result<Ended, RunError> {
        // A checkpoint of this update leads to the same continuation, whether or not its line was pending.
        if self.saved.is_none_or(|(_, update)| update != self.state.update) {
            self.save()?;
        }
        self.sync()?;
        self.end_attempt()?;
        tracing::info!("stopped after update {}, as asked", self.state.update);
        Ok(Ended::Stopped)
    }

    fn end_attempt(&self) -> Result<(), RunError> {
        let from = self.state.update;
        Ok(self.folder.write_json(name::ATTEMPT, &Attempt { from, ended: true, ..Attempt::default() })?)
    }

    fn result(&self) -> RunResult {
        RunResult {
            update: self.state.update,
            last_phase_updates: self.now.phase_update,
            ledger: self.live.world.ledger,
            eval_tokens: self.state.eval_ledger.tokens(),
            seconds: self.state.seconds.clone(),
            evaluations: self.state.evaluations.clone(),
        }
    }
}

type Opened = (Log, Logs, State, Option<(usize, u32)>, BTreeMap<String, Vec<u8>>);

/// Makes the folder what it has to be before the loop: a new run's, or one that is exactly as its checkpoint left it.
fn open(
    plan: &Plan,
    options: &Options,
    progress: &mut dyn Progress,
    folder: &RunFolder,
    begun: Option<Provenance>,
    live: &mut Live,
) -> Result<Opened, RunError> {
    let disk = &options.disk;
    let fingerprint = live.world.tasks.fingerprint();
    if let Some(begun) = &begun {
        same_tasks(folder.path(), begun, live)?;
    }
    let all = folder.at(name::CHECKPOINTS);
    let (found, damaged) = checkpoint::newest(folder.path(), &all, &RESULTS);
    for damage in &damaged {
        warn(progress, &format!("{damage}: this checkpoint cannot be used"));
    }
    if let (None, Some(damage)) = (&found, damaged.first()) {
        return Err(RunError::NoRun {
            folder: folder.path().into(),
            reason: format!(
                "has no usable checkpoint ({damage}). Nothing was changed: bring back what is missing, or begin anew with `ascribe run FILE --fresh`, which moves this run aside"
            ),
        });
    }
    let (mut checkpoint, mut state) = (Checkpoint::default(), State::default());
    if let Some(found) = &found {
        state = state_of(folder.path(), found)?;
        if !damaged.is_empty() {
            warn(progress, &format!("going on from the checkpoint of update {}", found.update));
        }
        checkpoint.clone_from(found);
    }
    let mut start = begun.as_ref().and_then(|begun| begun.start_from.clone());
    if let (None, Some(from)) = (&found, &settings(plan, 0)?.start_from) {
        start = Some(start_from(live, Path::new(from), start.as_ref(), progress)?);
    }

    checkpoint::set_aside(disk, &all, found.as_ref().map(|c| c.update))?;

    let mut provenance = begun.clone().unwrap_or_default();
    provenance.identity.clone_from(&plan.identity);
    provenance.base = std::path::absolute(&options.base).unwrap_or_else(|_| options.base.clone());
    provenance.environment = fingerprint;
    provenance.start_from = start;
    let device = settings(plan, 0)?.device;
    let start = Start::of_this_process(&options.base, &device, &options.command);
    provenance.starts.push(Start { update: state.update, ..start });
    // A run that is resumed from its folder was given its resolved form; what it was begun with stays.
    if !options.resume {
        folder.write(name::EXPERIMENT, plan.given.as_bytes())?;
    }
    folder.write(name::RESOLVED, plan.resolved.as_bytes())?;
    folder.write_json(name::PROVENANCE, &provenance)?;
    disk.remove_file(&folder.at(name::RESULT))?;
    for name in [name::CHECKPOINTS, name::TRAJECTORIES, name::TENSORBOARD] {
        disk.create_dir(&folder.at(name))?;
    }
    let log = Log::open(disk, &folder.at(name::LOG))?;

    attempt(options, progress, folder, found.as_ref().map(|c| c.update), begun.is_some(), plan)?;
    let mut append = |name: &str| {
        let recorded = checkpoint.lengths.get(name).copied().unwrap_or(0);
        let path = folder.at(name);
        let there = path.metadata().map_or(0, |m| m.len());
        if there >= recorded {
            return disk.append(&path, recorded);
        }
        warn(progress, &format!("`{}` has lost what it held: it begins anew; no result depends on it", path.display()));
        disk.append(&path, 0)
    };
    let mut logs = Logs {
        metrics: append(name::METRICS)?,
        timing: append(name::TIMING)?,
        evaluations: append(name::EVALUATIONS)?,
        tensorboard: append(&tensorboard_file())?,
    };
    if logs.tensorboard.length() == 0 {
        let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        logs.tensorboard.write(&tensorboard::header(wall_time))?;
    }
    trajectories::cut(disk, &folder.at(name::TRAJECTORIES), state.update)?;
    let saved = found.map(|c| (state.phase, c.update));
    Ok((log, logs, state, saved, checkpoint.files))
}

/// Refuses other tasks than those that a run was begun with.
fn same_tasks(run: &Path, begun: &Provenance, live: &Live) -> Result<(), RunError> {
    let fingerprint = live.world.tasks.fingerprint();
    if begun.environment == fingerprint {
        return Ok(());
    }
    Err(RunError::NoRun {
        folder: run.into(),
        reason: format!(
            "was begun with other tasks: the environment's fingerprint was `{}` and is `{fingerprint}`; bring back the old data, or begin anew with `ascribe run FILE --fresh`",
            begun.environment
        ),
    })
}

/// Writes down that an attempt begins, and says so if those before it came no further.
fn attempt(
    options: &Options,
    progress: &mut dyn Progress,
    folder: &RunFolder,
    checkpoint: Option<u32>,
    begun: bool,
    plan: &Plan,
) -> Result<(), RunError> {
    let from = checkpoint.unwrap_or(0);
    let lines: Vec<MetricsLine> = read_lines(&folder.at(name::METRICS)).unwrap_or_default();
    let reached = lines.last().map_or(0, |line| line.update);
    // A record of an attempt that cannot be read is no reason not to go on.
    let before: Option<Attempt> = folder::read_json(folder.path(), name::ATTEMPT).unwrap_or_default();
    let crashed = before.filter(|a| begun && !a.ended);
    let crashes = crashed.map_or(0, |a| if a.from == from { a.crashes + 1 } else { 1 });
    if checkpoint.is_none() && reached > 0 {
        warn(progress, &format!("there is no checkpoint to go on from: {reached} updates are lost, and the run begins anew"));
    }
    if crashes >= 2 {
        let every = plan.phases[0].tree.get("checkpoint").and_then(|c| c.get("every")).map(ToString::to_string);
        let every = every.map_or(String::new(), |n| format!(" (now {n})"));
        let what = format!(
            "no progress since checkpoint {from}: the run has ended {crashes} times before it came to the next one, last after update {}. The end of `{}` may say why; a smaller `checkpoint.every`{every} loses less",
            reached.max(from),
            folder.at(name::LOG).display()
        );
        warn(progress, &what);
    }
    let attempt = Attempt { from, reached: crashed.map(|_| reached), crashes, ended: false };
    let mut bytes = serde_json::to_vec_pretty(&attempt).expect("plain data serialises");
    bytes.push(b'\n');
    options.disk.write(&folder.at(name::ATTEMPT), &bytes)?;
    Ok(())
}

/// The run that was begun in a folder, if one was; refused if it is another experiment's.
fn begun(folder: &RunFolder, plan: &Plan) -> Result<Option<Provenance>, RunError> {
    let begun = folder.provenance()?;
    match &begun {
        Some(begun) => folder.check_same(begun, plan)?,
        None if folder.at(name::METRICS).exists() || folder.at(name::CHECKPOINTS).exists() => {
            return Err(RunError::NoRun {
                folder: folder.path().into(),
                reason: format!(
                    "holds a run whose `{}` is gone: move it aside with `ascribe run FILE --fresh`",
                    name::PROVENANCE
                ),
            });
        }
        None => {}
    }
    Ok(begun)
}

/// A phase with its schedules at their start.
pub(crate) fn settings(plan: &Plan, phase: usize) -> Result<Experiment, RunError> {
    let phase = plan.phases.get(phase.min(plan.phases.len().saturating_sub(1)));
    let phase = phase.ok_or_else(|| RunError::Config("the experiment has no phases".into()))?;
    let (experiment, _) = phase
        .at(&Now::default(), &mut KnobMemory::default())
        .map_err(|e| RunError::Config(format!("phase `{}`: {e}", phase.name)))?;
    Ok(experiment)
}

/// Splits that an evaluation names exist, and are named once.
fn check_splits(plan: &Plan, live: &Live) -> Result<(), RunError> {
    for (i, phase) in plan.phases.iter().enumerate() {
        let evaluate: Evaluate = settings(plan, i)?.evaluate;
        known_splits(&evaluate, live).map_err(|e| RunError::Config(format!("phase `{}`: {e}", phase.name)))?;
    }
    Ok(())
}

pub(crate) fn known_splits(evaluate: &Evaluate, live: &Live) -> Result<(), String> {
    let known = live.world.tasks.splits();
    let twice = evaluate.splits.iter().enumerate().find(|(i, split)| evaluate.splits[..*i].contains(split));
    if let Some((_, split)) = twice {
        return Err(format!("`evaluate.splits` names `{split}` twice: a split is measured once"));
    }
    match evaluate.splits.iter().find(|split| !known.contains(split)) {
        Some(split) => Err(format!("`evaluate.splits`: there is no split `{split}`; there are: {}", known.join(", "))),
        None => Ok(()),
    }
}

pub(crate) fn measure_node(
    live: &mut Live,
    measure: &Measure<'_>,
    watch: &mut dyn FnMut(&str, usize, usize) -> bool,
) -> Result<Option<Measured>, RunError> {
    let world = &mut live.world;
    let no_node = || RunError::Config(format!("there is no policy node `{}`", measure.agent));
    let policy = world.nodes.get_mut(measure.agent).ok_or_else(no_node)?;
    Ok(measure.play(&mut **policy, &*world.tasks, watch)?)
}

fn updates(experiment: &Experiment) -> u32 {
    u32::try_from(*experiment.updates).expect("its range ends below")
}

fn spent(budget: &Budget, ledger: &Ledger) -> bool {
    budget.tokens.is_some_and(|n| ledger.tokens() >= n.0) || budget.env_steps.is_some_and(|n| ledger.env_steps >= n.0)
}

/// Whether a finished run is finished for this plan too: its last phase may have been made longer, its budget larger.
fn finished(result: &RunResult, last: &Experiment) -> bool {
    result.last_phase_updates >= updates(last) || spent(&last.budget, &result.ledger)
}

fn add(to: &mut Ledger, more: &Ledger) {
    to.actor_tokens += more.actor_tokens;
    to.fed_tokens += more.fed_tokens;
    to.env_steps += more.env_steps;
    to.episodes += more.episodes;
}

fn tensorboard_file() -> String {
    format!("{}/{}", name::TENSORBOARD, tensorboard::FILE)
}

fn warn(progress: &mut dyn Progress, what: &str) {
    tracing::warn!("{what}");
    progress.on(Event::Warning(what));
}

/// Gives the policy nodes the state that another run's have, and says which one that was. A run that begins a second
/// time, because it was killed before its first checkpoint, must find what it found the first time.
fn start_from(
    live: &mut Live,
    given: &Path,
    before: Option<&StartFrom>,
    progress: &mut dyn Progress,
) -> Result<StartFrom, RunError> {
    let failed = |reason: String| RunError::Config(format!("`start_from = \"{}\"`: {reason}", given.display()));
    // The first attempt wrote down where exactly it found them: the run may have gone on since, or lie elsewhere from here.
    let recorded = before.map(|before| before.checkpoint.as_path()).filter(|checkpoint| checkpoint.is_dir());
    let given = recorded.unwrap_or(given);
    // `RUN/checkpoints/000200` names one checkpoint, `RUN` the newest.
    let of_checkpoint = given.parent().filter(|all| all.file_name().is_some_and(|n| n == name::CHECKPOINTS));
    let (run, update) = match of_checkpoint.and_then(Path::parent) {
        Some(run) => {
            let update = given.file_name().and_then(|n| n.to_str()?.parse().ok());
            (run, Some(update.ok_or_else(|| failed("is not the folder of a checkpoint".into()))?))
        }
        None => (given, None),
    };
    if !run.is_dir() {
        return Err(failed(
            "there is no such folder, seen from where the command runs; it must be a run's, or that of one of its checkpoints"
                .into(),
        ));
    }
    let (checkpoint, state) = saved_state(run, update, progress).map_err(|e| failed(e.to_string()))?;
    let taken = live.load_nodes(&state.live, &checkpoint.files).map_err(|e| {
        failed(format!(
            "its checkpoint of update {} does not fit this experiment: {e}. Node by node, plugin, sizes and the environment's words must be \
             those of that run (`policy` and `environment` in `{}`); or leave `start_from` out",
            checkpoint.update,
            run.join(name::RESOLVED).display()
        ))
    })?;
    if taken.is_empty() {
        let names: Vec<&str> = live.world.nodes.keys().map(String::as_str).collect();
        let theirs: Vec<&str> = checkpoint.files.keys().filter_map(|file| node_of_file(file)).collect();
        return Err(failed(format!(
            "that run has none of the policy nodes of this one ({}): its own are {}. Name the node that is to begin with one of them \
             alike, [policy.NAME.PLUGIN]",
            names.join(", "),
            theirs.join(", ")
        )));
    }
    let folder = run.join(name::CHECKPOINTS).join(checkpoint::folder_name(checkpoint.update));
    let nodes = taken.into_iter().map(|name| {
        let hash = checkpoint::sha256(&checkpoint.files[&node_file(&name)]);
        (name, hash)
    });
    let start = StartFrom { checkpoint: std::path::absolute(&folder).unwrap_or_else(|_| folder.clone()), nodes: nodes.collect() };
    if let Some(before) = before.filter(|before| before.nodes != start.nodes) {
        return Err(failed(format!(
            "this run was begun with other weights, those of `{}`; they have changed since: bring them back, or begin anew with `ascribe run FILE --fresh`",
            before.checkpoint.display()
        )));
    }
    if update.is_none() && folder::result(run)?.is_none() {
        warn(progress, &format!("`{}` is not finished: this run begins with what it had learned so far", run.display()));
    }
    let nodes: Vec<&str> = start.nodes.keys().map(String::as_str).collect();
    let text = format!("begins with {} of `{}`", nodes.join(", "), folder.display());
    tracing::info!("{text}");
    progress.on(Event::Note(&text));
    Ok(start)
}

/// A folder's newest usable checkpoint, or that of a given update.
fn saved_state(path: &Path, update: Option<u32>, progress: &mut dyn Progress) -> Result<(Checkpoint, State), RunError> {
    let all = path.join(name::CHECKPOINTS);
    let no_run = |reason: String| RunError::NoRun { folder: path.into(), reason };
    let found = match update {
        Some(update) => {
            let at = all.join(checkpoint::folder_name(update));
            Some(checkpoint::read(&at).map_err(|damage| {
                let known: Vec<String> = checkpoint::list(&all).iter().map(|(u, _)| u.to_string()).collect();
                no_run(format!("has no usable checkpoint of update {update} ({damage}); there are: {}", known.join(", ")))
            })?)
        }
        None => {
            let (found, damaged) = checkpoint::newest(path, &all, &[]);
            damaged.iter().for_each(|damage| warn(progress, &format!("{damage}: this checkpoint cannot be used")));
            found
        }
    };
    let checkpoint = found.ok_or_else(|| no_run("has no usable checkpoint".into()))?;
    let state = state_of(path, &checkpoint)?;
    Ok((checkpoint, state))
}

fn state_of(run: &Path, checkpoint: &Checkpoint) -> Result<State, RunError> {
    let bytes = checkpoint.files.get(STATE).map_or(&b""[..], |bytes| bytes);
    serde_json::from_slice(bytes).map_err(|e| RunError::NoRun {
        folder: run.into(),
        reason: format!("was written by another version: the state of update {} cannot be read: {e}", checkpoint.update),
    })
}

/// Restores live objects from a folder's newest usable checkpoint, or from that of a given update.
pub(crate) fn restore(
    plan: &Plan,
    path: &Path,
    base: PathBuf,
    update: Option<u32>,
    progress: &mut dyn Progress,
) -> Result<(Live, usize, u32), RunError> {
    let begun = folder::provenance(path)?;
    let (checkpoint, state) = saved_state(path, update, progress)?;
    let mut live = Live::build(plan, base)?;
    same_tasks(path, &begun, &live)?;
    live.load(state.live, &checkpoint.files)?;
    Ok((live, state.phase, checkpoint.update))
}
