//! `grid`: several experiments side by side.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ascribe_report::grid::{GridReport, NamedSheet};
use ascribe_run::RunError;
use ascribe_run::{Ended, Options};
use ascribe_study::grid::{
    ArmPlan, BUSY, Cell, Drift, Event, GridError, GridFolder, JobKind, Outcome, Plan, Results, Slurm, State, Submitted, Unread,
    Work, chosen, load_cell, queued, requeue, work,
};
use ascribe_study::{Axis, Power, Replication};

use crate::args::{
    CellArgs, FolderArgs, GridArgs, GridCellsArgs, GridCommand, GridReportArgs, GridResumeArgs, GridRunArgs, Launcher, Workers,
};
use crate::load::request;
use crate::output::{colours, complain, say, table};
use crate::run::{base_of, patient_stop_signal, stop_signal};

/// `grid`
pub(crate) fn command(args: &GridArgs) -> ExitCode {
    let done = match &args.command {
        GridCommand::Plan(args) => plan(args).map(|text| say(&text)),
        GridCommand::Run(args) => return exit(run(args)),
        GridCommand::Resume(args) => return exit(resume(args)),
        GridCommand::Status(args) => status(args).map(|text| say(&text)),
        GridCommand::Report(args) => report(args).map(|text| say(&text)),
        GridCommand::Cell(args) => return cell(args),
    };
    exit(done.map(|()| ExitCode::SUCCESS))
}

fn exit(done: Result<ExitCode, GridError>) -> ExitCode {
    done.unwrap_or_else(|e| refused(&e))
}

/// Prints why, and gives the exit code.
pub(crate) fn refused(e: &GridError) -> ExitCode {
    let (text, code) = match e {
        GridError::Rejected(report) => (report.render(colours()), crate::REJECTED),
        GridError::Arm { arm, report } => (format!("in arm `{arm}`:\n{}", report.render(colours())), crate::REJECTED),
        other => (format!("error: {other}"), crate::FAILED),
    };
    complain(&text);
    ExitCode::from(code)
}

fn plan_of(file: &Path, settings: &[String]) -> Result<Plan, GridError> {
    Plan::read(request(file, settings))
}

/// A grid whose runs measure what counts, as far as that can be known before they run.
pub(crate) fn checked_plan(file: &Path, settings: &[String]) -> Result<Plan, GridError> {
    let plan = plan_of(file, settings)?;
    plan.check_score(&base_of(file))?;
    Ok(plan)
}

/// The grid of a folder, as it was asked for last.
fn plan_in(folder: &GridFolder) -> Result<Plan, GridError> {
    let manifest = folder.manifest()?;
    plan_of(&manifest.file, &manifest.settings)
}

fn run(args: &GridRunArgs) -> Result<ExitCode, GridError> {
    let settings = args.cells.settings()?;
    let file = &args.cells.experiment.file;
    let plan = checked_plan(file, &settings)?;
    let folder = GridFolder::at(&plan.folder);
    let measured = folder.measured();
    let prediction = plan.spec.prediction.as_ref().map(|path| base_of(file).join(path));
    folder.record(file, &settings, prediction.as_deref(), measured)?;
    drive(&plan, &folder, &args.workers, false)
}

fn plan(args: &GridCellsArgs) -> Result<String, GridError> {
    let file = &args.experiment.file;
    plan_text(&checked_plan(file, &args.settings()?)?, &base_of(file))
}

impl GridCellsArgs {
    /// Settings, axes among them.
    fn settings(&self) -> Result<Vec<String>, GridError> {
        let axes = self.axes.iter().map(|axis| axis_setting(axis)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.experiment.settings.iter().cloned().chain(axes).collect())
    }
}

/// `KEY=A,B` as a setting of the grid.
fn axis_setting(axis: &str) -> Result<String, GridError> {
    let wrong = || {
        GridError::Changed(format!(
            "`{axis}` is no axis: write -m KEY=VALUE,VALUE without empty values, for example -m estimator.gae.lambda=0.9,0.95"
        ))
    };
    let (key, values) = axis.split_once('=').ok_or_else(wrong)?;
    // TOML lets a list end with a comma; here a value was forgotten.
    if key.trim().is_empty() || values.trim_end().ends_with(',') {
        return Err(wrong());
    }
    // Values in TOML may hold commas themselves; words need no quotes.
    if let Ok(toml::Value::Array(list)) = format!("[{values}]").parse::<toml::Value>()
        && !list.is_empty()
    {
        return Ok(format!("grid.axis.{}=[{values}]", toml::Value::from(key.trim())));
    }
    let quoted = |value: &str| match toml::de::DeValue::parse(value) {
        Ok(_) => value.to_string(),
        Err(_) => toml::Value::from(value).to_string(),
    };
    let values: Vec<&str> = values.split(',').map(str::trim).collect();
    if values.contains(&"") {
        return Err(wrong());
    }
    let values: Vec<String> = values.into_iter().map(quoted).collect();
    Ok(format!("grid.axis.{}=[{}]", toml::Value::from(key.trim()), values.join(", ")))
}

fn resume(args: &GridResumeArgs) -> Result<ExitCode, GridError> {
    let folder = GridFolder::at(&args.folder);
    let plan = plan_in(&folder)?;
    same_grid(&plan, &folder)?;
    drive(&plan, &folder, &args.workers, args.after_tuning)
}

/// Refuses an experiment of which nothing was planned or run in a folder.
fn same_grid(plan: &Plan, folder: &GridFolder) -> Result<(), GridError> {
    let drift = Drift::read(plan, folder)?;
    if !drift.another {
        return Ok(());
    }
    let file = folder.manifest()?.file;
    Err(GridError::Changed(format!(
        "`{}` is another experiment by now: nothing that was planned or run in `{}` is of it. The file, its settings or the environment's were \
         changed. Bring it back as it was, or give `ascribe grid run {}` for what it is now: the {} runs that are finished stay where they are, \
         and will be in no number",
        file.display(),
        folder.path().display(),
        file.display(),
        drift.beside.len()
    )))
}

/// Finished runs that are in no number because the experiment was changed since.
fn beside_text(drift: &Drift, folder: &GridFolder) -> Option<String> {
    const SHOWN: usize = 3;
    let n = drift.beside.len();
    let mut shown: Vec<String> = drift.beside.iter().take(SHOWN).map(|run| run.display().to_string()).collect();
    shown.extend((n > SHOWN).then(|| format!("{} more", n - SHOWN)));
    let why = if drift.tuned {
        "an earlier version of the experiment (its file, settings or the environment's were changed since), or of another choice of tuning"
    } else {
        "an earlier version of the experiment, unless tuning, which is not over, shows that they are of this one"
    };
    (n > 0).then(|| {
        format!("{n} finished runs in `{}` are in no number: they are of {why}: {}", folder.path().display(), shown.join(", "))
    })
}

/// The reported cells that are known, with their states; none while tuning is not over.
fn reported(plan: &Plan, folder: &GridFolder) -> Result<Vec<(Cell, State)>, GridError> {
    let Some(choice) = chosen(plan, folder, &plan.tuning()?)? else { return Ok(Vec::new()) };
    let choice = choice.into_iter().map(|(arm, of)| (arm, of.settings().to_vec())).collect();
    let cells = plan.reported(&choice)?;
    cells.into_iter().map(|cell| folder.state(&cell).map(|state| (cell, state))).collect()
}

fn drive(plan: &Plan, folder: &GridFolder, workers: &Workers, after_tuning: bool) -> Result<ExitCode, GridError> {
    if let Some(beside) = beside_text(&Drift::read(plan, folder)?, folder) {
        complain(&format!("warning: {beside}"));
    }
    let program = std::env::current_exe().map_err(|e| GridError::Changed(format!("this program cannot be found: {e}")))?;
    if let Some(Launcher::Slurm) = workers.launcher {
        return submit(plan, folder, workers, program, after_tuning);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = workers.jobs.map_or(cores, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let how = Work { program, jobs, cores, retry: workers.retry, stop: stop_signal() };
    match work(plan, folder, &how, &mut |event| complain(&told(&event)))? {
        Outcome::Stopped { killed } => {
            let shown = folder.path().display();
            let saved = match killed {
                0 => "runs were saved".to_string(),
                n => format!("but {n} runs were ended before they had saved, and go on from what they had saved before"),
            };
            complain(&format!("stopped, as asked; {saved}. Go on with: ascribe grid resume {shown}"));
            Ok(if killed > 0 { ExitCode::from(crate::FAILED) } else { ExitCode::SUCCESS })
        }
        Outcome::Finished { failed, killed: 0 } => finished(plan, folder, failed),
        Outcome::Finished { killed, .. } => {
            complain(&format!(
                "the processes of {killed} cells were killed; what they saved is good. Go on with: ascribe grid resume {}",
                folder.path().display()
            ));
            Ok(ExitCode::from(crate::FAILED))
        }
    }
}

/// Every cell is done or has failed.
fn finished(plan: &Plan, folder: &GridFolder, failed: usize) -> Result<ExitCode, GridError> {
    let (text, unread) = write_report(plan, folder, Axis::AllTokens)?;
    say(&text);
    if failed > 0 {
        let shown = folder.path().display();
        complain(&format!(
            "{failed} cells failed; `ascribe grid status {shown}` says why. --retry tries those again that failed while they ran; of one whose \
             records are damaged, remove the folder first"
        ));
    }
    if unread > 0 {
        complain(&format!("{unread} cells are done and have no result; why, and what to do, stands above"));
    }
    Ok(if failed + unread > 0 { ExitCode::from(crate::FAILED) } else { ExitCode::SUCCESS })
}

/// Has Slurm run what is missing.
fn submit(
    plan: &Plan,
    folder: &GridFolder,
    workers: &Workers,
    program: PathBuf,
    after_tuning: bool,
) -> Result<ExitCode, GridError> {
    let base = std::env::current_dir().map_err(|e| GridError::Changed(format!("the current folder cannot be found: {e}")))?;
    let how = Slurm { program, base, jobs: workers.jobs, retry: workers.retry, options: workers.slurm.clone(), after_tuning };
    // The job after tuning is in the queue itself.
    let queued = if after_tuning { Vec::new() } else { queued(folder)? };
    if !queued.is_empty() {
        let ids: Vec<&str> = queued.iter().map(|job| job.id.as_str()).collect();
        complain(&format!(
            "warning: jobs {} of this grid are still queued or run; no cell is run twice, but tasks may find theirs done",
            ids.join(", ")
        ));
    }
    let mut on = |event: Event<'_>| match event {
        Event::Submitted(_) => say(&told(&event)),
        _ => complain(&told(&event)),
    };
    let shown = folder.path().display();
    match ascribe_study::grid::submit(plan, folder, &how, &mut on)? {
        Submitted::Jobs => say(&format!(
            "next:\n  ascribe grid status {shown}  # how far it is\n  ascribe grid resume {shown} --launcher slurm  # once the jobs have \
             ended, if something is missing"
        )),
        Submitted::Elsewhere { cells } => {
            complain(&format!(
                "nothing to submit: other processes run the {cells} cells that are missing; see `ascribe grid status {shown}`"
            ));
        }
        Submitted::Finished { failed } => return finished(plan, folder, failed),
    }
    Ok(ExitCode::SUCCESS)
}

fn told(event: &Event<'_>) -> String {
    let name = |cell: &Cell| match &cell.tries {
        Some(tries) => format!("{}, tuning {}, seed {}", cell.arm, tries.join(" "), cell.seed),
        None => format!("{}, seed {}", cell.arm, cell.seed),
    };
    match event {
        Event::Planned { tuning, cells, done } => {
            let what = if *tuning { "tuning runs" } else { "cells" };
            format!("{cells} {what}, {done} of them done")
        }
        Event::Begun(cell) => format!("begins: {}", name(cell)),
        Event::Done { cell, seconds, done, cells } => format!("done {done}/{cells}: {}; {seconds:.1} s", name(cell)),
        Event::Killed { cell, how } => format!("killed: {}: {how}", name(cell)),
        Event::Failed { cell, reason } => format!("failed: {}: {reason}", name(cell)),
        Event::Submitted(job) => {
            let what = match job.kind {
                JobKind::Tuning => format!("{} tuning runs", job.cells),
                JobKind::Next => "goes on after them".into(),
                JobKind::Cells => format!("{} cells", job.cells),
                JobKind::Report => "writes the report after them".into(),
            };
            format!("job {}: {what}; its script: {}", job.id, job.script.display())
        }
    }
}

/// Runs one cell, in this process.
fn cell(args: &CellArgs) -> ExitCode {
    let stop = if args.requeue { patient_stop_signal() } else { stop_signal() };
    if args.until_eof {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
    }
    let begun = || -> Result<_, GridError> {
        let lost = |e| GridError::Changed(format!("the folder `{}` cannot be found: {e}", args.folder.display()));
        let folder = GridFolder::at(std::path::absolute(&args.folder).map_err(lost)?);
        // What a run sees from where its command is given, as `start_from`, is what the grid's command saw.
        std::env::set_current_dir(folder.given_in()?).map_err(lost)?;
        let manifest = folder.manifest()?;
        let of = folder.cells()?.into_iter().find(|cell| cell.id == args.cell);
        let cell = of.ok_or_else(|| GridError::Changed(format!("the grid has no cell `{}`", args.cell)))?;
        let mut settings = manifest.settings.clone();
        settings.push(format!("run.threads={}", args.threads));
        Ok((load_cell(&request(&manifest.file, &settings), &cell), base_of(&manifest.file), cell, folder))
    };
    let (loaded, base, cell, folder) = match begun() {
        Ok(begun) => begun,
        Err(e) => return exit(Err(e)),
    };
    // Another task may have had the cell; it is tried again when somebody says so.
    match folder.state(&cell) {
        Ok(State::Failed(failure)) => {
            complain(&format!("it failed before, and is not tried again: {}", failure.reason));
            return ExitCode::from(crate::FAILED);
        }
        Ok(_) => {}
        Err(e) => return exit(Err(e)),
    }
    let failed = |reason: String| {
        complain(&reason);
        if let Err(e) = folder.failed(&cell, &reason) {
            complain(&format!("error: {e}"));
        }
        ExitCode::from(crate::FAILED)
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(e) => return failed(e.to_string()),
    };
    if let Err(code) = crate::run::threads(&loaded) {
        return code;
    }
    crate::run::log();
    let options = Options {
        folder: Some(folder.run(&cell)),
        base,
        command: crate::run::words().collect(),
        stop: stop.clone(),
        ..Options::default()
    };
    let mut watcher = crate::run::watcher();
    let mut report = ascribe_run::run(&loaded.plan, &options, &mut *watcher);
    // A task that was requeued may come while its node still ends the process before it.
    for _ in 0..LOOKS {
        if !args.requeue || stop.load(Ordering::Relaxed) || !matches!(report, Err(RunError::Locked { .. })) {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
        report = ascribe_run::run(&loaded.plan, &options, &mut *watcher);
    }
    watcher.finish();
    match report {
        Ok(report) => match report.ended {
            Ended::Finished | Ended::AlreadyFinished => {
                complain("finished");
                ExitCode::SUCCESS
            }
            Ended::Stopped => {
                complain("stopped, as asked");
                if args.requeue { exit(requeued()) } else { ExitCode::SUCCESS }
            }
        },
        // Whoever runs it sees to it; to wait would be to hold a place in the cluster for nothing.
        Err(RunError::Locked { pid, .. }) if args.requeue => {
            complain(&format!("another process runs it (its number there: {pid}): it is left to that one"));
            ExitCode::SUCCESS
        }
        Err(RunError::Locked { .. }) => ExitCode::from(u8::try_from(BUSY).expect("an exit code")),
        Err(e) => failed(e.to_string()),
    }
}

/// How often a task looks again at a cell that another process runs.
const LOOKS: u32 = 6;
/// How long it waits in between.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// Puts the task that this process is back into the queue.
fn requeued() -> Result<ExitCode, GridError> {
    let requeued = requeue()?;
    complain(if requeued { "its task is in the queue again" } else { "Slurm is ending its job: it is not requeued from here" });
    Ok(ExitCode::SUCCESS)
}

/// What a grid would run, and what it could show.
fn plan_text(plan: &Plan, base: &Path) -> Result<String, GridError> {
    let (tuning, reported) = plan.n_cells();
    let seeds = plan.spec.seeds.all();
    let cells = match tuning {
        0 => format!("{reported} cells"),
        n => format!("{} cells: {n} to tune, {reported} to report", n + reported),
    };
    let mut out = format!("{}: {}\n{cells} in `{}`\n", plan.name, plan.question, plan.folder.display());
    if let Some(prediction) = &plan.spec.prediction
        && !base.join(prediction).is_file()
    {
        out += &format!("warning: the prediction `{}` is not there: write it before the first run\n", prediction.display());
    }
    let seldom = plan.arms.iter().filter(|arm| arm.measured_seldom).count();
    if seldom > 0 {
        out += "warning: runs are measured at the ends of their phases alone: set `evaluate.every`, or tables at equal budget along other axes than that of the budget stay empty\n";
    }
    let first = plan.baseline();
    let slots = ["environment", "rollout", "estimator", "objective"];
    let mut header = vec!["arm"];
    header.extend(slots);
    header.extend(["updates", "tokens"]);
    let row = |arm: &ArmPlan| {
        let mut row = vec![arm.name.clone()];
        row.extend(slots.map(|slot| arm.plugin(slot).to_string()));
        row.push(arm.updates.to_string());
        row.push(arm.budget.tokens.as_ref().map_or_else(|| "-".into(), |n| n.0.to_string()));
        row
    };
    out += &format!("\n{}\n", table(&header, plan.arms.iter().map(row).collect()));
    if let Some(left_out) = &plan.baseline_left_out {
        out += &format!("\nwarning: `{left_out}` is excluded, so that the others are compared with `{}`\n", first.name);
    }
    out += &format!("\nwhat differs from `{}`\n", first.name);
    for arm in plan.arms.iter().filter(|arm| arm.name != first.name) {
        let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
        let keys = plan
            .differs(arm, first)
            .into_iter()
            .map(|(key, there, here)| format!("{key}: {} instead of {}", side(&here), side(&there)));
        out += &format!("  {}\n    {}\n", arm.name, keys.collect::<Vec<_>>().join("\n    "));
        let confounds = plan.confounds(arm, first);
        if !confounds.is_empty() {
            out += &format!("    warning: it also differs in {}: a difference in scores may be theirs\n", confounds.join(", "));
        }
    }
    out += &format!("\n{} seeds of each arm, the same for all", seeds.len());
    if let Some(advice) = Replication::of(seeds.len()).advice() {
        out += &format!("\n  warning: {advice}");
    }
    let power = Power::default();
    let detects = |n: usize| power.smallest_detectable(1.0, n).unwrap_or(f64::INFINITY);
    out += &match Replication::of(seeds.len()) {
        Replication::TooFew(_) => format!(
            "\n  they show nothing of use, whatever comes out; a difference that is found in four of five cases takes {} seeds where it is {:.2} \
             times the spread of differences between seeds, and 10 where it is {:.2} times that",
            Replication::ADVISED,
            detects(Replication::ADVISED),
            detects(10)
        ),
        Replication::Few(n) | Replication::Enough(n) => format!(
            "\n  the smallest difference that they find in four of five cases: {:.2} times the spread of differences between seeds; {:.3} \
             where that is 0.05",
            detects(n),
            detects(n) * 0.05
        ),
    };
    out += &cost_text(plan, reported + tuning)?;
    Ok(out)
}

/// What is known of the cost: a budget, or what was spent so far.
fn cost_text(plan: &Plan, cells: usize) -> Result<String, GridError> {
    let folder = GridFolder::at(&plan.folder);
    let mut seconds = Vec::new();
    for (cell, state) in reported(plan, &folder)? {
        if state == State::Done {
            let result = ascribe_run::folder::result(&folder.run(&cell))?;
            seconds.extend(result.map(|result| result.seconds.iter().map(|(_, s)| s).sum::<f64>()));
        }
    }
    let tokens: Vec<u64> = plan.arms.iter().filter_map(|arm| arm.budget.tokens.as_ref().map(|n| n.0)).collect();
    let mut out = String::new();
    if tokens.len() == plan.arms.len() {
        let each = tokens.iter().sum::<u64>() / tokens.len() as u64;
        out += &format!("\ncost: at most {} tokens, {each} for a run", each * cells as u64);
    } else {
        out += "\nwarning: not every arm has a budget of tokens (`budget.tokens`): what methods cost is then read from the table, not made equal";
    }
    if !seconds.is_empty() {
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        out += &format!(
            "\n{} cells are done and took {mean:.0} s each: {:.1} hours of one process for all",
            seconds.len(),
            mean * cells as f64 / 3600.0
        );
    }
    Ok(out)
}

fn status(args: &FolderArgs) -> Result<String, GridError> {
    let folder = GridFolder::at(&args.folder);
    let mut rows = Vec::new();
    let mut reasons = Vec::new();
    for cell in folder.cells()? {
        let state = folder.state(&cell)?;
        let (word, updates) = match &state {
            State::Waiting => ("waiting", String::new()),
            State::Running { update } => ("running", update.to_string()),
            State::Stopped { update } => ("stopped", update.to_string()),
            State::Done => ("done", String::new()),
            State::Failed(failure) => {
                reasons.push(format!("{} ({}, seed {}): {}", cell.id, cell.arm, cell.seed, failure.reason));
                ("failed", String::new())
            }
        };
        let tries = cell.tries.as_ref().map_or_else(String::new, |tries| tries.join(" "));
        let run = cell.run().display().to_string();
        rows.push(vec![cell.id.clone(), cell.arm.clone(), tries, cell.seed.to_string(), word.into(), updates, run]);
    }
    let mut out = table(&["cell", "arm", "tunes", "seed", "state", "updates", "folder"], rows);
    if !reasons.is_empty() {
        out += &format!("\n\nfailed\n  {}", reasons.join("\n  "));
    }
    // Whoever sees the folder from elsewhere need not have the file.
    match plan_in(&folder).and_then(|plan| Drift::read(&plan, &folder)) {
        Ok(drift) => out += &drift_text(&drift, &folder),
        Err(e) => {
            let said = e.to_string();
            let why = said.lines().next().unwrap_or_default();
            out += &format!("\n\nwhether these are the cells of the experiment as it is now is not known: {why}");
        }
    }
    Ok(out)
}

/// What the experiment as it is now and the cells that were planned do not have in common.
fn drift_text(drift: &Drift, folder: &GridFolder) -> String {
    let mut lines = Vec::new();
    if !drift.foreign.is_empty() {
        let arms: BTreeSet<&str> = drift.foreign.iter().map(|cell| cell.arm.as_str()).collect();
        lines.push(format!(
            "{} of the planned cells are not of the experiment as it is now, and in no number: those of {}",
            drift.foreign.len(),
            arms.into_iter().map(|arm| format!("`{arm}`")).collect::<Vec<_>>().join(", ")
        ));
    }
    if drift.unplanned > 0 {
        lines.push(format!(
            "{} cells that it asks for now were not planned here: `ascribe grid run` plans and runs them",
            drift.unplanned
        ));
    }
    lines.extend(beside_text(drift, folder));
    lines.iter().map(|line| format!("\n\n{line}")).collect()
}

fn report(args: &GridReportArgs) -> Result<String, GridError> {
    let folder = GridFolder::at(&args.folder);
    let plan = plan_in(&folder)?;
    same_grid(&plan, &folder)?;
    write_report(&plan, &folder, args.axis).map(|(text, _)| text)
}

/// Writes the report of what is done, and says what is in it and how many cells that are done have no result.
fn write_report(plan: &Plan, folder: &GridFolder, first: Axis) -> Result<(String, usize), GridError> {
    let report = GridReport::read(plan, folder)?;
    let page = report.write(folder, first)?;
    let (split, mode) = &report.results.measured;
    let mut out = format!("{}: {} on `{split}`, {} actions", plan.name, plan.question, mode.as_str());
    if report.results.missing > 0 {
        out += &format!("\n{} cells are not done and in no number", report.results.missing);
    }
    out += &drift_text(&Drift::read(plan, folder)?, folder);
    let sheets = report.sheets();
    let tables =
        sheets.iter().filter(|of| ["summary", "comparisons", "controls"].contains(&of.name.as_str())).map(NamedSheet::markdown);
    out += &format!("\n\n{}", tables.collect::<Vec<_>>().join("\n"));
    // The baseline against its own control is told as the control's verdict.
    let controls = report.controls.iter().filter(|comparison| comparison.arm != plan.baseline().name);
    for comparison in report.comparisons.iter().chain(controls) {
        out += &format!("\n{} against {}: {}", comparison.arm, comparison.baseline, comparison.verdict);
    }
    out += &format!("\n\nspent, mean over runs\n{}", spent_text(&report.results));
    let unread = unread(&report);
    if !unread.is_empty() {
        out += &format!("\n\ndone, and without a result\n  {}", unread.join("\n  "));
    }
    out += &format!("\n\nreport: {} (tables beside it)", page.display());
    Ok((out, unread.len()))
}

/// Cells that are done and have no result, and why.
fn unread(report: &GridReport<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for (arm, chosen) in &report.tuning {
        let of = |run: &Unread| format!("{arm}, tuning {}, seed {}: {}", run.tries.join(" "), run.seed, run.why);
        all.extend(chosen.unread.iter().map(of));
    }
    for arm in report.results.table.arms() {
        let done = |seed: u64| {
            let same = |cell: &Cell| cell.tries.is_none() && cell.arm == arm.name && cell.seed == seed;
            report.cells.iter().any(|(cell, state)| *state == State::Done && same(cell))
        };
        let unread = arm.failures.iter().filter(|failure| done(failure.seed));
        all.extend(unread.map(|failure| format!("{}, seed {}: {}", arm.name, failure.seed, failure.reason)));
    }
    all
}

fn spent_text(results: &Results) -> String {
    let columns = ["actor_tokens", "fed_tokens", "critic_tokens", "branch_tokens", "expert_tokens", "tokens", "env_steps"];
    let mut header = vec!["arm", "runs", "updates"];
    header.extend(columns);
    header.extend(["tuning tokens", "gradient norm"]);
    let row = |(arm, spent): &(String, ascribe_study::grid::Spent)| {
        let mut row = vec![arm.clone(), spent.runs.to_string(), format!("{:.0}", spent.updates)];
        row.extend(columns.map(|name| spent.mean.get(name).map_or_else(|| "-".into(), |x| format!("{x:.0}"))));
        row.push(spent.tuning_tokens.to_string());
        row.push(spent.gradient_norm.map_or_else(|| "-".into(), |x| format!("{x:.3}")));
        row
    };
    table(&header, results.spent.iter().map(row).collect())
}
