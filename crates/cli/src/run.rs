//! `run`, `resume` and `eval`.

mod progress;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ascribe_config::Loaded;
use ascribe_core::experiment::KnobMemory;
use ascribe_core::range::{Between, Count};
use ascribe_core::{Experiment, Now};
use ascribe_run::evaluate::{Evaluation, SplitResult};
use ascribe_run::folder::{self, RunResult, name};
use ascribe_run::live::LiveError;
use ascribe_run::{Ended, MeasureOptions, Options, Report, RunError, measure, save_measured};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::{EvalArgs, ResumeArgs, RunArgs};
use crate::load;
use crate::output::{colours, complain, say, table};
use progress::{Bars, Lines, Watcher};

/// Runs an experiment, or goes on with it.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    let file = &args.experiment.file;
    let loaded = match load::experiment(file, &args.settings()) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    if loaded.grid.is_some() {
        complain(&format!("error: `{}` holds a [grid] of experiments; `ascribe grid run` runs it", file.display()));
        return ExitCode::from(crate::REJECTED);
    }
    let base = base_of(file);
    let options = Options { base, fresh: args.fresh, ..Options::default() };
    drive(&loaded, options, Some(args))
}

/// Goes on with a run.
pub(crate) fn resume(args: &ResumeArgs) -> ExitCode {
    let begun = match folder::provenance(&args.run) {
        Ok(begun) => begun,
        Err(e) => return failed(&e, None),
    };
    let loaded = match load::experiment(&args.run.join(name::RESOLVED), &args.settings) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let options = Options { folder: Some(args.run.clone()), base: begun.base, resume: true, ..Options::default() };
    drive(&loaded, options, None)
}

/// Measures what a run has learned.
pub(crate) fn eval(args: &EvalArgs) -> ExitCode {
    if let Err(e) = folder::provenance(&args.run) {
        return failed(&e, None);
    }
    let loaded = match load::experiment(&args.run.join(name::RESOLVED), &[]) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let options = MeasureOptions {
        update: args.checkpoint,
        splits: args.split.iter().cloned().collect(),
        tasks: args.tasks.map(Count),
        samples: args.samples.map(|n| Between::try_from(n).expect("the argument has the same range")),
        stop: stop_signal(),
        ..MeasureOptions::default()
    };
    if let Err(code) = threads(&loaded) {
        return code;
    }
    let mut watcher = watcher();
    match measure(&loaded.plan, &args.run, &options, &mut *watcher) {
        Ok(Some((evaluation, lines))) => {
            watcher.finish();
            say(&format!("update {}, phase `{}`\n\n{}", evaluation.update, evaluation.phase, results(&[&evaluation])));
            match save_measured(&options_disk(), &args.run, &evaluation, &lines) {
                Ok(path) => {
                    say(&format!("\nby task: {}", path.display()));
                    ExitCode::SUCCESS
                }
                Err(e) => failed(&e, None),
            }
        }
        Ok(None) => {
            watcher.finish();
            complain("stopped before the measurement was complete; nothing is recorded");
            ExitCode::SUCCESS
        }
        Err(e) => {
            watcher.finish();
            failed(&e, Some(&loaded))
        }
    }
}

/// The command line. A path need not be UTF-8.
pub(crate) fn words() -> impl Iterator<Item = String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned())
}

fn options_disk() -> ascribe_run::disk::Disk {
    Options::default().disk
}

fn drive(loaded: &Loaded, options: Options, asked: Option<&RunArgs>) -> ExitCode {
    if let Err(code) = threads(loaded) {
        return code;
    }
    log();
    for change in loaded.changes.iter().filter(|change| change.phases.is_empty()) {
        complain(&format!("warning: `{}` ({}) has no effect: every phase says otherwise", change.key, change.place));
    }
    let options = Options { command: words().collect(), stop: stop_signal(), ..options };
    let mut watcher = watcher();
    let report = ascribe_run::run(&loaded.plan, &options, &mut *watcher);
    watcher.finish();
    match report {
        Ok(report) => {
            say(&summary(loaded, &report, asked));
            ExitCode::SUCCESS
        }
        Err(e) => failed(&e, Some(loaded)),
    }
}

/// Prints why a run failed, with the place in the experiment where that is known.
pub(crate) fn failed(error: &RunError, loaded: Option<&Loaded>) -> ExitCode {
    let placed = match (error, loaded) {
        (RunError::Live(LiveError::Build { phase, path, source }), Some(loaded)) => {
            let index = loaded.plan.phases.iter().position(|p| p.name == *phase);
            index.map(|index| loaded.report(index, path, source.to_string()).render(colours()))
        }
        _ => None,
    };
    complain(&placed.unwrap_or_else(|| format!("error: {error}")));
    ExitCode::from(error.exit_code())
}

/// More threads than any machine has cores only wait for each other.
const MOST_THREADS: usize = 1024;

/// The folder against which relative paths in an experiment are read.
pub(crate) fn base_of(file: &Path) -> PathBuf {
    file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
}

/// Builds the pool that environments, estimators and policies share. Its size never changes a result.
pub(crate) fn threads(loaded: &Loaded) -> Result<(), ExitCode> {
    let experiment = first(loaded).map_err(|message| {
        complain(&format!("error: {message}"));
        ExitCode::from(crate::REJECTED)
    })?;
    let n = usize::try_from(experiment.run.threads.0).unwrap_or(usize::MAX);
    if n > MOST_THREADS {
        complain(&format!("error: `run.threads` must be at most {MOST_THREADS}, got {n}; 0 is one per core"));
        return Err(ExitCode::from(crate::REJECTED));
    }
    rayon::ThreadPoolBuilder::new().num_threads(n).build_global().map_err(|e| {
        complain(&format!("error: cannot start {n} threads: {e}"));
        ExitCode::FAILURE
    })
}

fn first(loaded: &Loaded) -> Result<Experiment, String> {
    let phase = loaded.plan.phases.first().ok_or("the experiment has no phases")?;
    phase.at(&Now::default(), &mut KnobMemory::default()).map(|(experiment, _)| experiment)
}

/// Set by SIGINT or SIGTERM: the run saves and stops. A second signal ends it at once.
pub(crate) fn stop_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let hooked = flag::register_conditional_shutdown(signal, 128 + signal, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()));
        if let Err(e) = hooked {
            complain(&format!("warning: signal {signal} cannot be caught ({e}): it ends the run without a checkpoint"));
        }
    }
    stop
}

/// Set by SIGINT or SIGTERM, however often: a scheduler repeats itself, and means no more by it.
pub(crate) fn patient_stop_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(e) = flag::register(signal, stop.clone()) {
            complain(&format!("warning: signal {signal} cannot be caught ({e}): it ends the run without a checkpoint"));
        }
    }
    stop
}

/// Sends what is logged to the run's `log.txt`. `ASCRIBE_LOG` says how much, e.g. `debug` or `ascribe_run=trace`.
pub(crate) fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ASCRIBE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,ascribe=info,ascribe_run=info,ascribe_policies=info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(ascribe_run::log::writer);
    // A program that embeds the command line may have its own.
    let _ = subscriber.try_init();
}

/// Bars where somebody watches, lines where a file does.
pub(crate) fn watcher() -> Box<dyn Watcher> {
    if std::io::stderr().is_terminal() { Box::new(Bars::default()) } else { Box::new(Lines::default()) }
}

/// What a run ends with: its results, where it lies, what to try next.
fn summary(loaded: &Loaded, report: &Report, asked: Option<&RunArgs>) -> String {
    let ended = match report.ended {
        Ended::Finished => format!("finished after {} updates", report.result.update),
        Ended::AlreadyFinished => format!("already finished, after {} updates; this is its result", report.result.update),
        Ended::Stopped => format!("stopped after update {}, as asked", report.result.update),
    };
    let all = &report.result.evaluations;
    let mut shown: Vec<&Evaluation> = all.iter().filter(|e| e.phase_end).collect();
    shown.extend(all.last().filter(|e| !e.phase_end));
    let mut out = format!("{}: {ended}\n", loaded.plan.name);
    if shown.is_empty() {
        let why = if report.ended == Ended::Stopped {
            "no phase has ended yet"
        } else {
            "the environment has no split but `train`, and an evaluation uses that only where `evaluate.splits` names it"
        };
        out += &format!("\nnothing was measured: {why}\n");
    } else {
        out += &format!("\n{}\n", results(&shown));
    }
    out += &format!("\n{}\nthe run lies in {}\n\nnext:\n", cost(&report.result), report.folder.display());
    let next = next(loaded, report, asked);
    let wide = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    let lines = next.iter().map(|(command, why)| format!("  {command:wide$}  # {why}"));
    out + &lines.collect::<Vec<_>>().join("\n")
}

/// One row per phase, split and way of acting.
fn results(evaluations: &[&Evaluation]) -> String {
    let all: Vec<(&Evaluation, &SplitResult)> =
        evaluations.iter().flat_map(|e| e.results.iter().map(move |result| (*e, result))).collect();
    let signals: BTreeSet<&String> = all.iter().flat_map(|(_, r)| r.summary.signals.keys()).collect();
    let failed = all.iter().any(|(_, r)| r.summary.failed > 0);
    let mut header = vec!["after", "split", "actions", "success", "return", "turns"];
    header.extend(signals.iter().map(|name| name.as_str()));
    header.extend(failed.then_some("failed"));
    let rows = all.iter().map(|(evaluation, SplitResult { split, mode, summary })| {
        let mut row = vec![
            format!("{} ({})", evaluation.phase, evaluation.update),
            split.clone(),
            mode.as_str().into(),
            format!("{:.3}", summary.success),
            format!("{:.3}", summary.outcome),
            format!("{:.2}", summary.turns),
        ];
        row.extend(signals.iter().map(|name| summary.signals.get(*name).map_or_else(String::new, |x| format!("{x:.3}"))));
        row.extend(failed.then(|| format!("{} of {}", summary.failed, summary.episodes)));
        row
    });
    table(&header, rows.collect())
}

fn cost(result: &RunResult) -> String {
    let seconds: Vec<String> = result.seconds.iter().map(|(phase, s)| format!("{phase} {s:.1} s")).collect();
    format!(
        "cost: {} tokens and {} environment steps of training, {} tokens of measuring; {}",
        result.ledger.tokens(),
        result.ledger.env_steps,
        result.eval_tokens,
        seconds.join(", ")
    )
}

/// Commands worth trying, and why.
fn next(loaded: &Loaded, report: &Report, asked: Option<&RunArgs>) -> Vec<(String, &'static str)> {
    let program = quoted(&words().next().unwrap_or_else(|| "ascribe".into()));
    let run = quoted(&report.folder.display().to_string());
    let curves = (format!("tensorboard --logdir {run}/{}", name::TENSORBOARD), "curves");
    let settings = loaded.plan.phases.last().and_then(|p| p.at(&Now::default(), &mut KnobMemory::default()).ok());
    let samples = settings.map_or(0, |(experiment, _)| *experiment.evaluate.samples);
    let measured = report.ended == Ended::Stopped || !report.result.evaluations.is_empty();
    let split = if measured { "" } else { " --split train" };
    let more = samples.saturating_mul(4).clamp(8, 1000);
    let again = (format!("{program} eval {run}{split} --samples {more}"), "measure it with more episodes");
    let saved = ascribe_run::trajectories::saved(&report.folder.join(name::TRAJECTORIES)).is_ok_and(|all| !all.is_empty());
    let view = saved.then(|| (format!("{program} view {run}"), "its trajectories, turn by turn with their credit"));
    if report.ended == Ended::Stopped {
        return [(format!("{program} resume {run}"), "go on"), again].into_iter().chain(view).chain([curves]).collect();
    }
    let other = match asked {
        Some(args) => {
            let mut words = vec![program, "run".into(), quoted(&args.experiment.file.display().to_string())];
            words.extend(args.experiment.settings.iter().filter(|s| !s.starts_with("seed=")).map(|s| quoted(s)));
            words.push(format!("--seed {}", seed_of(&report.folder) + 1));
            (words.join(" "), "another seed: one run is no evidence")
        }
        None => (format!("{program} explain {run}/{} update.learning_rate", name::RESOLVED), "what a setting means"),
    };
    [again, other].into_iter().chain(view).chain([curves]).collect()
}

/// The seed that a run's folder is named after.
fn seed_of(folder: &Path) -> u64 {
    folder.file_name().and_then(|n| n.to_str()?.strip_prefix("seed-")?.parse().ok()).unwrap_or(0)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("update.learning_rate=1e-3"), "update.learning_rate=1e-3");
        assert_eq!(quoted("runs/a b/it's"), r"'runs/a b/it'\''s'");
        assert_eq!(quoted("transform=[{whiten={}}]"), "'transform=[{whiten={}}]'");
    }

    #[test]
    fn a_folder_names_its_seed() {
        assert_eq!((seed_of(Path::new("runs/x/main/seed-7")), seed_of(Path::new("elsewhere"))), (7, 0));
    }
}
