//! Running the cells that are missing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::GridError;
use super::folder::{Failure, GridFolder, State};
use super::plan::{Cell, Plan};
use super::results::chosen;
use super::slurm::Job;

/// Exit code of a cell's process that found its run in the hands of another one.
pub const BUSY: i32 = 75;

// By POSIX, on every system that has them.
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a cell that another process runs is left alone before it is looked at again.
const ELSEWHERE: Duration = Duration::from_secs(1);

/// How to work.
#[derive(Clone, Debug)]
pub struct Work {
    /// The program whose command `grid cell FOLDER CELL --until-eof` runs a cell until its standard input is closed.
    pub program: PathBuf,
    /// Cells at a time, at least 1.
    pub jobs: usize,
    /// Processor cores to share among them, at least 1.
    pub cores: usize,
    /// Whether cells that failed are tried again.
    pub retry: bool,
    /// Set by whoever wants the work to stop: runs save and end after their current update.
    pub stop: Arc<AtomicBool>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// So many cells are planned at this stage, of which so many are done.
    Planned {
        /// Whether they tune.
        tuning: bool,
        /// Cells.
        cells: usize,
        /// Done before.
        done: usize,
    },
    /// A cell begins, or goes on.
    Begun(&'a Cell),
    /// A cell is done.
    Done {
        /// The cell.
        cell: &'a Cell,
        /// Seconds that its process took.
        seconds: f64,
        /// Cells done at this stage.
        done: usize,
        /// Cells of this stage.
        cells: usize,
    },
    /// A cell's process was killed; the others go on, and it goes on when the grid is resumed.
    Killed {
        /// The cell.
        cell: &'a Cell,
        /// By what.
        how: &'a str,
    },
    /// A cell failed; the others go on.
    Failed {
        /// The cell.
        cell: &'a Cell,
        /// What it said.
        reason: &'a str,
    },
    /// A job waits in Slurm's queue.
    Submitted(&'a Job),
}

/// How the work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every cell is done or has failed.
    Finished {
        /// Cells that failed.
        failed: usize,
        /// Cells whose process was killed: they are saved, and go on when the grid is resumed.
        killed: usize,
    },
    /// It was asked to stop.
    Stopped {
        /// Cells whose process ended before it had saved: they go on from what they had saved before.
        killed: usize,
    },
}

/// Runs what is missing of a grid: tuning runs first, then the runs that are reported.
///
/// # Errors
/// If the folder cannot be read or written, or a process cannot be started.
pub fn work(plan: &Plan, folder: &GridFolder, how: &Work, on: &mut dyn FnMut(Event<'_>)) -> Result<Outcome, GridError> {
    let tuning = plan.tuning()?;
    if !tuning.is_empty() {
        folder.plan_tuning(&tuning)?;
        match stage(folder, how, &tuning, true, on)? {
            Staged { stopped: true, killed } => return Ok(Outcome::Stopped { killed }),
            Staged { killed: 0, .. } => {}
            // Nothing can be chosen yet.
            Staged { killed, .. } => return Ok(Outcome::Finished { failed: failures(folder, tuning.iter())?, killed }),
        }
    }
    let reported = reported(plan, folder, &tuning, how.retry)?;
    let Staged { stopped, killed } = stage(folder, how, &reported, false, on)?;
    if stopped {
        return Ok(Outcome::Stopped { killed });
    }
    Ok(Outcome::Finished { failed: failures(folder, tuning.iter().chain(&reported))?, killed })
}

/// The runs that are reported, with what their arms chose. They are recorded in the folder.
///
/// * `without`: choose without tuning runs whose records are damaged.
pub(super) fn reported(plan: &Plan, folder: &GridFolder, tuning: &[Cell], without: bool) -> Result<Vec<Cell>, GridError> {
    let chosen = chosen(plan, folder, tuning)?.unwrap_or_default();
    let damaged = chosen.iter().find_map(|(arm, choice)| Some((arm, choice.unread.iter().find(|run| run.damaged)?)));
    if let Some((arm, run)) = damaged.filter(|_| !without) {
        return Err(GridError::Changed(format!(
            "arm `{arm}`, tuning {}, seed {}: {}. Until then nothing is chosen: another choice would run the arm anew, what is done of it \
             included; --retry chooses without that run",
            run.tries.join(" "),
            run.seed,
            run.why
        )));
    }
    let chosen: BTreeMap<String, Vec<String>> =
        chosen.into_iter().map(|(arm, choice)| (arm, choice.settings().to_vec())).collect();
    let reported = plan.reported(&chosen)?;
    folder.plan(&[tuning, &reported].concat())?;
    Ok(reported)
}

/// How many cells failed.
pub(super) fn failures<'a>(folder: &GridFolder, cells: impl Iterator<Item = &'a Cell>) -> Result<usize, GridError> {
    let mut failed = 0;
    for cell in cells {
        failed += usize::from(matches!(folder.state(cell)?, State::Failed(_)));
    }
    Ok(failed)
}

/// The cells that are neither done nor failed, and how many are done.
///
/// * `retry`: forget that cells failed.
pub(super) fn missing<'a>(folder: &GridFolder, cells: &'a [Cell], retry: bool) -> Result<(Vec<&'a Cell>, usize), GridError> {
    let (mut missing, mut done) = (Vec::new(), 0);
    for cell in cells {
        match folder.state(cell)? {
            State::Done => done += 1,
            State::Failed(_) if !retry => {}
            State::Failed(_) => {
                folder.forgive(cell)?;
                missing.push(cell);
            }
            State::Waiting | State::Running { .. } | State::Stopped { .. } => missing.push(cell),
        }
    }
    Ok((missing, done))
}

/// A cell's process.
struct Running<'a> {
    cell: &'a Cell,
    child: Child,
    since: Instant,
}

/// How a stage ended.
struct Staged {
    /// Whether it was asked to stop.
    stopped: bool,
    /// Cells whose process was killed.
    killed: usize,
}

/// Whether a process was killed: by a signal, or by itself at the second one that asked it to stop.
fn was_killed(status: ExitStatus) -> bool {
    status.signal().is_some() || [SIGINT, SIGTERM].iter().any(|signal| status.code() == Some(128 + signal))
}

/// Runs what is missing of some cells.
fn stage(
    folder: &GridFolder,
    how: &Work,
    cells: &[Cell],
    tuning: bool,
    on: &mut dyn FnMut(Event<'_>),
) -> Result<Staged, GridError> {
    let (missing, mut done) = missing(folder, cells, how.retry)?;
    // Those that are neither done, nor failed, nor run by us; and when each is to be looked at next.
    let mut waiting: Vec<(&Cell, Instant)> = missing.into_iter().map(|cell| (cell, Instant::now())).collect();
    on(Event::Planned { tuning, cells: cells.len(), done });
    let mut running: Vec<Running<'_>> = Vec::new();
    let (mut stopping, mut killed) = (false, 0);
    loop {
        let mut i = 0;
        while i < running.len() {
            let Some(status) = running[i].child.try_wait().map_err(|e| unstarted(&how.program, &e))? else {
                i += 1;
                continue;
            };
            let Running { cell, since, .. } = running.swap_remove(i);
            match folder.state(cell)? {
                State::Done => {
                    done += 1;
                    on(Event::Done { cell, seconds: since.elapsed().as_secs_f64(), done, cells: cells.len() });
                }
                State::Failed(Failure { reason }) => on(Event::Failed { cell, reason: &reason }),
                _ if status.code() == Some(BUSY) => waiting.push((cell, Instant::now() + ELSEWHERE)),
                // Not its fault, as far as is known: out of memory, an impatient administrator. What it saved is good.
                _ if was_killed(status) => {
                    killed += 1;
                    on(Event::Killed { cell, how: &status.to_string() });
                }
                _ if how.stop.load(Ordering::Relaxed) => {}
                // It stopped when somebody asked it to: it goes on.
                _ if status.success() => waiting.push((cell, Instant::now() + ELSEWHERE)),
                _ => {
                    let reason =
                        format!("its process ended ({status}) without a word; the end of its log: {}", end_of(folder, cell));
                    folder.failed(cell, &reason)?;
                    on(Event::Failed { cell, reason: &reason });
                }
            }
        }
        if how.stop.load(Ordering::Relaxed) {
            if !stopping {
                running.iter_mut().for_each(|run| run.child.stdin = None);
                stopping = true;
            }
            if running.is_empty() {
                return Ok(Staged { stopped: true, killed });
            }
        } else {
            while running.len() < how.jobs.max(1) {
                let Some(next) = waiting.iter().position(|(_, at)| *at <= Instant::now()) else { break };
                let (cell, _) = waiting.remove(next);
                match folder.state(cell)? {
                    State::Done => {
                        done += 1;
                        on(Event::Done { cell, seconds: 0.0, done, cells: cells.len() });
                    }
                    State::Failed(Failure { reason }) => on(Event::Failed { cell, reason: &reason }),
                    State::Running { .. } => waiting.push((cell, Instant::now() + ELSEWHERE)),
                    State::Waiting | State::Stopped { .. } => {
                        // The last cells share what the others leave.
                        let side_by_side = (running.len() + 1 + waiting.len()).min(how.jobs.max(1));
                        let child = start(folder, how, cell, (how.cores / side_by_side).max(1))?;
                        on(Event::Begun(cell));
                        running.push(Running { cell, child, since: Instant::now() });
                    }
                }
            }
            if running.is_empty() && waiting.is_empty() {
                return Ok(Staged { stopped: false, killed });
            }
        }
        sleep(LOOK);
    }
}

fn start(folder: &GridFolder, how: &Work, cell: &Cell, threads: usize) -> Result<Child, GridError> {
    let log = folder.log(cell);
    if let Some(logs) = log.parent() {
        fs::create_dir_all(logs).map_err(|e| unstarted(logs, &e))?;
    }
    let open = || File::options().append(true).create(true).open(&log).map_err(|e| unstarted(&log, &e));
    let (out, err) = (open()?, open()?);
    Command::new(&how.program)
        .args(["grid", "cell"])
        .arg(folder.path())
        .arg(&cell.id)
        .args(["--threads", &threads.to_string(), "--until-eof"])
        // It saves and ends when this end of the pipe is closed, and so it does when this process is killed.
        .stdin(Stdio::piped())
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|e| unstarted(&how.program, &e))
}

fn unstarted(what: &std::path::Path, e: &std::io::Error) -> GridError {
    GridError::Changed(format!("`{}` cannot be used for a cell: {e}", what.display()))
}

/// The last lines of what a cell's process said.
fn end_of(folder: &GridFolder, cell: &Cell) -> String {
    const LINES: usize = 3;
    let mut text = Vec::new();
    let _ = File::open(folder.log(cell)).and_then(|mut file| file.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() { "empty".into() } else { lines[lines.len().saturating_sub(LINES)..].join(" / ") }
}
