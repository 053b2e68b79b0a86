//! A run's folder: what lies where, who may write, and what it was begun with.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use ascribe_core::experiment::Plan;
use ascribe_core::ledger::Ledger;
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskError};
use crate::error::{Difference, RunError, differences};
use crate::evaluate::Evaluation;
use crate::records::{EvaluationLine, MetricsLine, TimingLine, read_lines};

/// Names of what lies in a run's folder.
pub mod name {
    /// The experiment as given.
    pub const EXPERIMENT: &str = "experiment.toml";
    /// The experiment with all layers merged.
    pub const RESOLVED: &str = "resolved.toml";
    /// What it was begun with.
    pub const PROVENANCE: &str = "provenance.json";
    /// One line per update.
    pub const METRICS: &str = "metrics.jsonl";
    /// One line per update: where its time went.
    pub const TIMING: &str = "timing.jsonl";
    /// One line per task and evaluation.
    pub const EVALUATIONS: &str = "evaluations.jsonl";
    /// TensorBoard's folder.
    pub const TENSORBOARD: &str = "tb";
    /// Saved batches.
    pub const TRAJECTORIES: &str = "trajectories";
    /// Checkpoints.
    pub const CHECKPOINTS: &str = "checkpoints";
    /// What was logged.
    pub const LOG: &str = "log.txt";
    /// Held by the process that writes.
    pub const LOCK: &str = "lock";
    /// Where the run began last, and whether it ended well.
    pub const ATTEMPT: &str = "attempt.json";
    /// What came of it, once it is finished.
    pub const RESULT: &str = "result.json";
}

/// What a run was begun with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// What makes it this experiment and no other.
    pub identity: String,
    /// Folder against which relative paths in the experiment are read.
    pub base: PathBuf,
    /// Fingerprint of the tasks.
    pub environment: String,
    /// Whose policy nodes it began with, where it did not begin with new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_from: Option<StartFrom>,
    /// Each time it was begun or taken up again.
    pub starts: Vec<Start>,
}

/// A checkpoint whose policy nodes another run began with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFrom {
    /// Its folder.
    pub checkpoint: PathBuf,
    /// SHA-256 of each node that was taken, by the node's name.
    pub nodes: BTreeMap<String, String>,
}

/// One time that a run was begun or taken up again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// When, in seconds since 1970.
    pub time: u64,
    /// When, as a date (UTC).
    pub date: String,
    /// Updates done before.
    pub update: u32,
    /// Version of Ascribe.
    pub version: String,
    /// Compiler that built it.
    pub rustc: String,
    /// Commit of the repository that the experiment lies in, with `+` where files differ from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The machine.
    pub host: String,
    /// Threads.
    pub threads: usize,
    /// Device.
    pub device: String,
    /// The command line.
    pub command: Vec<String>,
}

impl Start {
    /// This process.
    pub(crate) fn of_this_process(base: &Path, device: &str, command: &[String]) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Self {
            time,
            date: date(time),
            update: 0,
            version: env!("CARGO_PKG_VERSION").into(),
            rustc: env!("ASCRIBE_RUSTC").into(),
            commit: commit(base),
            host: fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "unknown".into(), |s| s.trim().into()),
            threads: rayon::current_num_threads(),
            device: device.into(),
            command: command.to_vec(),
        }
    }
}

/// Where a run began last. A second crash on the same stretch is no accident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Updates done when it began.
    pub from: u32,
    /// Last update that the crash before this attempt had recorded.
    pub reached: Option<u32>,
    /// Crashes in a row on this stretch.
    pub crashes: u32,
    /// Whether it ended by itself: finished, or stopped when asked.
    pub ended: bool,
}

/// What came of a finished run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Updates done.
    pub update: u32,
    /// Updates done in the last phase.
    pub last_phase_updates: u32,
    /// What was spent on training.
    pub ledger: Ledger,
    /// What evaluations cost, in tokens.
    pub eval_tokens: u64,
    /// Seconds per phase, evaluations included.
    pub seconds: Vec<(String, f64)>,
    /// Every evaluation.
    pub evaluations: Vec<Evaluation>,
}

/// An open run folder: nobody else writes to it until it is dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    disk: Disk,
    lock: Option<File>,
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Closing alone does not free it while a child process that is just being started holds a copy.
        if let Some(lock) = &self.lock {
            let _ = lock.unlock();
        }
    }
}

impl RunFolder {
    /// Opens a folder, making it if it is not there.
    ///
    /// # Errors
    /// If it cannot be made, or another process holds it.
    pub fn open(disk: &Disk, path: &Path) -> Result<Self, RunError> {
        disk.create_dir(path)?;
        if !path.is_dir() {
            let source = std::io::Error::from(std::io::ErrorKind::NotADirectory);
            return Err(DiskError { path: path.into(), doing: "use as a folder", source }.into());
        }
        let lock = lock(path)?;
        Ok(Self { path: path.into(), disk: disk.clone(), lock })
    }

    /// Moves a folder aside, as `NAME.old-1`, `NAME.old-2`, …
    ///
    /// # Errors
    /// If another process holds it, or it cannot be renamed.
    pub fn move_aside(disk: &Disk, path: &Path) -> Result<PathBuf, RunError> {
        let folder = Self::open(disk, path)?;
        let aside = (1u32..)
            .map(|i| {
                let mut name = path.file_name().unwrap_or_default().to_os_string();
                name.push(format!(".old-{i}"));
                path.with_file_name(name)
            })
            .find(|place| !place.exists())
            .expect("some number is free");
        disk.rename(&folder.path, &aside)?;
        disk.sync_dir(aside.parent().unwrap_or(Path::new(".")))?;
        Ok(aside)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What a run was begun with, if one was begun here.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn provenance(&self) -> Result<Option<Provenance>, RunError> {
        read_json(&self.path, name::PROVENANCE)
    }

    /// Writes one of its small files.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.write(&self.at(name), bytes)
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), DiskError> {
        let mut bytes = serde_json::to_vec_pretty(value).expect("plain data serialises");
        bytes.push(b'\n');
        self.write(name, &bytes)
    }

    /// Takes back a folder that nothing was written to but the lock, with the empty folders above it.
    pub(crate) fn take_back(self) {
        let path = self.path.clone();
        drop(self);
        let _ = fs::remove_file(path.join(name::LOCK));
        let mut at = Some(path.as_path());
        while let Some(folder) = at.filter(|folder| fs::remove_dir(folder).is_ok()) {
            at = folder.parent();
        }
    }

    /// Refuses another experiment than the one that was begun here.
    pub(crate) fn check_same(&self, begun: &Provenance, plan: &Plan) -> Result<(), RunError> {
        if begun.identity == plan.identity {
            return Ok(());
        }
        Err(RunError::Differs(Difference { folder: self.path.clone(), keys: differences(&begun.identity, &plan.identity) }))
    }
}

/// `<run.dir>/<name>/<cell>/seed-<n>`.
pub fn default_path(dir: &str, name: &str, cell: &str, seed: u64) -> PathBuf {
    let safe = |part: &str| {
        // A name is one folder: it neither leaves `run.dir` nor opens another level.
        let part: String = part.chars().map(|c| if c == '/' || c == '\\' || c.is_control() { '_' } else { c }).collect();
        if part.is_empty() || part.starts_with('.') { format!("_{part}") } else { part }
    };
    Path::new(dir).join(safe(name)).join(safe(cell)).join(format!("seed-{seed}"))
}

/// What a run was begun with.
///
/// # Errors
/// If there is no run in the folder.
pub fn provenance(path: &Path) -> Result<Provenance, RunError> {
    read_json(path, name::PROVENANCE)?.ok_or_else(|| RunError::NoRun {
        folder: path.into(),
        reason: format!("is not a run's folder: it has no `{}`", name::PROVENANCE),
    })
}

/// What came of a finished run; `None` for one that is not finished.
///
/// # Errors
/// If the record cannot be read.
pub fn result(path: &Path) -> Result<Option<RunResult>, RunError> {
    read_json(path, name::RESULT)
}

/// A run's metrics, update by update.
///
/// # Errors
/// If they cannot be read.
pub fn metrics(path: &Path) -> Result<Vec<MetricsLine>, RunError> {
    read_lines(&path.join(name::METRICS)).map_err(|e| no_run(path, name::METRICS, &e))
}

/// What every evaluation measured, task by task.
///
/// # Errors
/// If it cannot be read.
pub fn evaluations(path: &Path) -> Result<Vec<EvaluationLine>, RunError> {
    read_lines(&path.join(name::EVALUATIONS)).map_err(|e| no_run(path, name::EVALUATIONS, &e))
}

/// Where the time of every update went.
///
/// # Errors
/// If it cannot be read.
pub fn timing(path: &Path) -> Result<Vec<TimingLine>, RunError> {
    read_lines(&path.join(name::TIMING)).map_err(|e| no_run(path, name::TIMING, &e))
}

/// Whether a process holds the run now.
pub fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path.join(name::LOCK)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

pub(crate) fn read_json<T: serde::de::DeserializeOwned>(folder: &Path, file: &str) -> Result<Option<T>, RunError> {
    match fs::read(folder.join(file)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| no_run(folder, file, &e)),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(no_run(folder, file, &e)),
    }
}

fn no_run(folder: &Path, file: &str, e: &dyn std::fmt::Display) -> RunError {
    RunError::NoRun { folder: folder.into(), reason: format!("cannot be used: `{file}` cannot be read: {e}") }
}

/// Takes the folder's lock and writes this process down. The system frees it when the process ends, however it ends.
fn lock(folder: &Path) -> Result<Option<File>, RunError> {
    let path = folder.join(name::LOCK);
    let failed = |source| DiskError { path: path.clone(), doing: "lock", source };
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let pid = if pid.trim().is_empty() { "unknown".into() } else { pid.trim().to_string() };
            return Err(RunError::Locked { folder: folder.into(), pid });
        }
        Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => {
            tracing::warn!("`{}` lies where files cannot be locked: start no second process on it", folder.display());
            return Ok(None);
        }
        Err(TryLockError::Error(e)) => return Err(failed(e).into()),
    }
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
    written.map_err(failed)?;
    Ok(Some(file))
}

/// Commit of the repository that holds `folder`, if there is one and git is at hand.
fn commit(folder: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let out = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    Some(if changed { commit + "+" } else { commit })
}

/// A date and time in UTC (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": `civil_from_days`).
pub fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // date -u -d @N +%FT%TZ
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), want);
        }
    }

    #[test]
    fn a_name_is_one_folder() {
        assert_eq!(default_path("runs", "a b/ü", "main", 3), Path::new("runs/a b_ü/main/seed-3"));
        assert_eq!(default_path("runs", "..", "", 0), Path::new("runs/_../_/seed-0"));
    }

    #[test]
    fn a_folder_serves_one_process_at_a_time() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("x/main/seed-0");
        let disk = Disk::default();
        let held = RunFolder::open(&disk, &path).unwrap();
        let second = RunFolder::open(&disk, &path).unwrap_err();
        assert!(second.to_string().contains(&format!("in use by process {}", std::process::id())), "{second}");
        assert!(RunFolder::move_aside(&disk, &path).is_err());
        drop(held);
        assert!(RunFolder::move_aside(&disk, &path).unwrap().ends_with("seed-0.old-1"));
        RunFolder::open(&disk, &path).unwrap();
        assert!(RunFolder::move_aside(&disk, &path).unwrap().ends_with("seed-0.old-2"));
        RunFolder::open(&disk, &path).unwrap().take_back();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let all = tempfile::tempdir().unwrap();
        fs::write(all.path().join("runs"), "").unwrap();
        let e = RunFolder::open(&Disk::default(), &all.path().join("runs/x/seed-0")).unwrap_err();
        let text = e.to_string();
        assert!(text.contains("runs`") && text.contains("a file stands where a folder has to be"), "{text}");
        assert_eq!(e.exit_code(), 1);
        fs::create_dir(all.path().join("y")).unwrap();
        fs::write(all.path().join("y/seed-0"), "").unwrap();
        assert!(RunFolder::open(&Disk::default(), &all.path().join("y/seed-0")).unwrap_err().to_string().contains("seed-0"));
    }
}
