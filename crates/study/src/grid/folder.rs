//! A grid's folder.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ascribe_run::checkpoint::sha256;
use ascribe_run::disk::{Disk, DiskError};
use ascribe_run::folder::{self, date, name};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::GridError;
use super::plan::Cell;
use super::slurm::Job;
use super::spec::FIRST_TUNING_SEED;

const MANIFEST: &str = "grid.json";
const CELLS: &str = "cells.json";
/// Runs. [`Cell::run`] names them.
pub(super) const RUNS: &str = "cells";
const FAILURES: &str = "failures";
const LOGS: &str = "logs";
/// What Slurm is given and says.
pub(super) const SLURM: &str = "slurm";
const JOBS: &str = "slurm/jobs.json";
const LOCK: &str = "lock";
/// The first did not say from where its paths are seen.
const FORMAT: u32 = 2;

/// What was asked of a grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: u32,
    /// The folder in which it was asked, seen from the grid's where it lies above it: then both may be moved together.
    #[serde(default)]
    given_in: PathBuf,
    /// The experiment's file. On the disk this path and the prediction's are seen from `given_in`.
    pub file: PathBuf,
    /// Settings of the command line.
    pub settings: Vec<String>,
    /// The prediction, as it was when it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
}

/// A prediction that was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// The file.
    pub file: PathBuf,
    /// Hash of its bytes.
    pub sha256: String,
    /// When it was recorded (UTC).
    pub date: String,
    /// Reported cells of which something had been measured by then; a prediction is one where there was none.
    pub cells_done: usize,
}

/// Why a cell failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// What was said.
    pub reason: String,
}

/// How far a cell is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing was done.
    Waiting,
    /// A process runs it.
    Running {
        /// Updates done.
        update: u32,
    },
    /// It was begun and is run by nobody.
    Stopped {
        /// Updates done.
        update: u32,
    },
    /// It is finished.
    Done,
    /// It failed.
    Failed(Failure),
}

/// A grid's folder.
#[derive(Clone, Debug)]
pub struct GridFolder {
    path: PathBuf,
    disk: Disk,
}

impl GridFolder {
    /// The folder at a path, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), disk: Disk::default() }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Folder of a cell's run.
    pub fn run(&self, cell: &Cell) -> PathBuf {
        self.path.join(cell.run())
    }

    /// Where a cell's process writes what it says.
    pub fn log(&self, cell: &Cell) -> PathBuf {
        self.logs().join(format!("{}.txt", cell.id))
    }

    /// Folder of what cells' processes say.
    pub(super) fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }

    /// The jobs that were submitted to Slurm, the last one at the end.
    ///
    /// # Errors
    /// If their list is damaged.
    pub fn jobs(&self) -> Result<Vec<Job>, GridError> {
        Ok(self.read(JOBS, "remove it; which jobs were submitted is then asked of Slurm alone")?.unwrap_or_default())
    }

    /// Records one more job.
    pub(super) fn submitted(&self, job: &Job) -> Result<(), GridError> {
        let _held = self.lock()?;
        let mut jobs = self.jobs()?;
        jobs.push(job.clone());
        self.put(Path::new(JOBS), &self.json(JOBS, &jobs)?).map(drop)
    }

    /// Writes a file into the folder, making folders on the way.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &Path, bytes: &[u8]) -> Result<PathBuf, GridError> {
        let _held = self.lock()?;
        self.put(name, bytes)
    }

    /// Writes a file; the folder is held.
    fn put(&self, name: &Path, bytes: &[u8]) -> Result<PathBuf, GridError> {
        let path = self.path.join(name);
        if let Some(folder) = path.parent() {
            self.disk.create_dir(folder)?;
        }
        self.disk.write(&path, bytes)?;
        Ok(path)
    }

    /// What was asked. Its paths are seen from the current folder.
    ///
    /// # Errors
    /// If there is no grid, its record is damaged or of another version, or the experiment is gone.
    pub fn manifest(&self) -> Result<Manifest, GridError> {
        let (mut manifest, given_in) = self.found()?;
        let current = current_folder()?;
        let seen = |path: &Path| {
            let path = given_in.join(path);
            path.strip_prefix(&current).map(Path::to_path_buf).unwrap_or(path)
        };
        let file = given_in.join(&manifest.file);
        manifest.file = seen(&manifest.file);
        if !file.is_file() {
            return Err(GridError::Changed(format!(
                "the experiment `{}` of the grid in `{}` is not there: bring it back, or, where it was moved, give `ascribe grid run FILE` \
                 once in the folder that `run.dir` is seen from now; what is done stays done",
                file.display(),
                self.path.display()
            )));
        }
        if let Some(prediction) = &mut manifest.prediction {
            prediction.file = seen(&prediction.file);
        }
        Ok(manifest)
    }

    /// The folder in which it was asked: what `run.dir` and `start_from` are seen from.
    ///
    /// # Errors
    /// As for [`GridFolder::manifest`].
    pub fn given_in(&self) -> Result<PathBuf, GridError> {
        self.found().map(|(_, given_in)| given_in)
    }

    /// What was asked, as it stands on the disk, and the folder in which that was.
    fn found(&self) -> Result<(Manifest, PathBuf), GridError> {
        let manifest = self.recorded()?.ok_or_else(|| {
            self.no_grid(format!(
                "it has no `{MANIFEST}`; where one was lost, `ascribe grid run FILE` with its experiment writes it anew"
            ))
        })?;
        let again = format!("give `ascribe grid run {}` there once; what is done stays done", manifest.file.display());
        if manifest.format < FORMAT {
            return Err(GridError::Changed(format!(
                "the grid in `{}` was recorded by an older version, which did not say in which folder the command was given, and so not \
                 which file `{}` is: {again}",
                self.path.display(),
                manifest.file.display()
            )));
        }
        let given_in = self.canonical()?.join(&manifest.given_in);
        let given_in = given_in.canonicalize().map_err(|e| {
            GridError::Changed(format!(
                "the folder `{}`, in which the grid in `{}` was run, cannot be read: {e}; bring it back, or, where it was moved, {again}",
                given_in.display(),
                self.path.display()
            ))
        })?;
        Ok((manifest, given_in))
    }

    fn canonical(&self) -> Result<PathBuf, GridError> {
        self.path.canonicalize().map_err(|e| self.no_grid(format!("it cannot be read: {e}")))
    }

    /// What lies on the disk.
    fn recorded(&self) -> Result<Option<Manifest>, GridError> {
        #[derive(Deserialize)]
        struct Versioned {
            format: u32,
        }
        // A newer version may have other keys.
        const REMEDY: &str = "bring it back, or remove it and give `ascribe grid run FILE`: what is done stays done, and the prediction is \
             recorded anew";
        if let Some(Versioned { format }) = self.read(MANIFEST, REMEDY)?
            && format > FORMAT
        {
            return Err(GridError::Changed(format!(
                "`{}` was written by a newer version (its format is {format}, this version reads {FORMAT}): use that one",
                self.path.join(MANIFEST).display()
            )));
        }
        self.read(MANIFEST, REMEDY)
    }

    /// Records what is asked now, in the current folder. The prediction's hash stays the one that was recorded before the first reported
    /// cell was done.
    ///
    /// # Errors
    /// If the prediction cannot be read, or the record not be written.
    pub fn record(
        &self,
        file: &Path,
        settings: &[String],
        prediction: Option<&Path>,
        cells_done: usize,
    ) -> Result<Manifest, GridError> {
        let before = self.recorded()?.and_then(|before| before.prediction);
        let now = prediction.map(|path| -> Result<Prediction, GridError> {
            let bytes = fs::read(path).map_err(|e| {
                GridError::Changed(format!(
                    "the prediction `{}` cannot be read: {e}; write it down before the first run",
                    path.display()
                ))
            })?;
            let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
            Ok(Prediction { file: path.into(), sha256: sha256(&bytes), date: date(time), cells_done })
        });
        let now = now.transpose()?;
        let keeps = |before: &Prediction| cells_done > 0 || now.as_ref().is_some_and(|now| now.sha256 == before.sha256);
        let prediction = before.filter(keeps).or(now);
        let current = current_folder()?;
        if current.join(file).to_str().is_none() {
            let shown = current.join(file);
            return Err(GridError::Changed(format!(
                "`{}` is not UTF-8, and the records of runs could not name it: give the file or folder another name",
                shown.display()
            )));
        }
        self.disk.create_dir(&self.path)?;
        let given_in = match self.canonical()?.strip_prefix(&current) {
            Ok(below) => below.components().map(|_| "..").collect(),
            Err(_) => current,
        };
        let manifest = Manifest { format: FORMAT, given_in, file: file.into(), settings: settings.to_vec(), prediction };
        self.write_json(MANIFEST, &manifest)?;
        Ok(manifest)
    }

    /// The cells that were planned.
    ///
    /// # Errors
    /// If their list is damaged or not there.
    pub fn cells(&self) -> Result<Vec<Cell>, GridError> {
        let remedy = format!("`ascribe grid resume {}` writes it anew", self.path.display());
        match self.read(CELLS, &remedy)? {
            Some(cells) => Ok(cells),
            None if self.path.join(MANIFEST).exists() => {
                Err(GridError::Changed(format!("`{}` is not there: {remedy}", self.path.join(CELLS).display())))
            }
            None => Err(self.no_grid(format!(
                "it has no `{MANIFEST}`; where one was lost, `ascribe grid run FILE` with its experiment writes it anew"
            ))),
        }
    }

    /// Writes the list of cells.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn plan(&self, cells: &[Cell]) -> Result<(), GridError> {
        self.write_json(CELLS, &cells)
    }

    /// Writes tuning cells in front of those that are there: another process may be at work on cells that come after tuning.
    ///
    /// # Errors
    /// If the list cannot be written.
    pub fn plan_tuning(&self, tuning: &[Cell]) -> Result<(), GridError> {
        // A damaged list is written anew, when tuning is over.
        let known = self.cells().unwrap_or_default();
        let others = known.into_iter().filter(|cell| tuning.iter().all(|other| other.id != cell.id));
        self.plan(&tuning.iter().cloned().chain(others).collect::<Vec<_>>())
    }

    /// Reported runs of which something was measured, of any experiment that this folder was ever used for. What is damaged was measured
    /// too.
    pub fn measured(&self) -> usize {
        let measured = |run: &Path| {
            let run = self.path.join(run);
            let size = run.join(name::EVALUATIONS).metadata().map_or(0, |of| of.len());
            size > 0 || run.join(name::RESULT).exists()
        };
        self.runs().iter().filter(|(run, seed)| *seed < FIRST_TUNING_SEED && measured(run)).count()
    }

    /// Folders of finished runs, seen from this one, of any experiment that it was ever used for.
    pub(super) fn finished(&self) -> Vec<PathBuf> {
        let done = |run: &PathBuf| self.path.join(run).join(name::RESULT).exists();
        self.runs().into_iter().map(|(run, _)| run).filter(done).collect()
    }

    /// Folders of all runs, seen from this one, with their seeds.
    fn runs(&self) -> Vec<(PathBuf, u64)> {
        let mut runs = Vec::new();
        for arm in fs::read_dir(self.path.join(RUNS)).into_iter().flatten().flatten() {
            for run in fs::read_dir(arm.path()).into_iter().flatten().flatten() {
                let name = run.file_name();
                let seed = name.to_str().and_then(|name| name.strip_prefix("seed-")?.parse::<u64>().ok());
                runs.extend(seed.map(|seed| (Path::new(RUNS).join(arm.file_name()).join(&name), seed)));
            }
        }
        runs.sort();
        runs
    }

    /// How far a cell is. One whose record of its end is damaged has failed: the others go on.
    ///
    /// # Errors
    /// If the grid's folder cannot be read.
    pub fn state(&self, cell: &Cell) -> Result<State, GridError> {
        let run = self.run(cell);
        match folder::result(&run) {
            Ok(Some(_)) => return Ok(State::Done),
            Ok(None) => {}
            Err(e) => return Ok(State::Failed(Failure { reason: run_again(&run, &e.to_string()) })),
        }
        let update = || folder::metrics(&run).ok().and_then(|lines| lines.last().map(|line| line.update)).unwrap_or(0);
        if folder::is_held(&run) {
            return Ok(State::Running { update: update() });
        }
        match self.read(&failure(cell), "try the cell again with --retry") {
            Ok(Some(failure)) => return Ok(State::Failed(failure)),
            Ok(None) => {}
            Err(e) => return Ok(State::Failed(Failure { reason: e.to_string() })),
        }
        Ok(if run.exists() { State::Stopped { update: update() } } else { State::Waiting })
    }

    /// Records that a cell failed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn failed(&self, cell: &Cell, reason: &str) -> Result<(), GridError> {
        self.write_json(&failure(cell), &Failure { reason: reason.into() })
    }

    /// Forgets that a cell failed.
    ///
    /// # Errors
    /// If the record cannot be taken away.
    pub fn forgive(&self, cell: &Cell) -> Result<(), GridError> {
        let path = self.path.join(failure(cell));
        if path.exists() {
            self.disk.remove_file(&path)?;
        }
        Ok(())
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), GridError> {
        let _held = self.lock()?;
        let bytes = self.json(name, value)?;
        // Who watches the folder sees no change where there is none.
        if fs::read(self.path.join(name)).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        self.put(Path::new(name), &bytes).map(drop)
    }

    /// Two processes that write the same small file take turns. Where files cannot be locked they hope.
    fn lock(&self) -> Result<Option<File>, GridError> {
        self.disk.create_dir(&self.path)?;
        let path = self.path.join(LOCK);
        let file = File::create(&path).map_err(|source| DiskError { path, doing: "write", source })?;
        Ok(file.lock().is_ok().then_some(file))
    }

    /// Reads a record, where there is one.
    ///
    /// * `remedy`: what to do where it is damaged.
    fn read<T: DeserializeOwned>(&self, name: &str, remedy: &str) -> Result<Option<T>, GridError> {
        let path = self.path.join(name);
        let unusable = |e: &dyn std::fmt::Display| GridError::Changed(format!("`{}` is damaged: {e}; {remedy}", path.display()));
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| unusable(&e)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(GridError::Changed(format!("`{}` cannot be read: {e}", path.display()))),
        }
    }

    /// Records are JSON, and that is Unicode; paths need not be.
    fn json(&self, name: &str, value: &impl Serialize) -> Result<Vec<u8>, GridError> {
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| {
            GridError::Changed(format!(
                "`{}` cannot be written: {e}; files and folders of a grid need names in UTF-8",
                self.path.join(name).display()
            ))
        })?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    fn no_grid(&self, reason: String) -> GridError {
        GridError::NoGrid { folder: self.path.clone(), reason }
    }
}

fn current_folder() -> Result<PathBuf, GridError> {
    let current = std::env::current_dir().and_then(|folder| folder.canonicalize());
    current.map_err(|e| GridError::Changed(format!("the current folder cannot be found: {e}")))
}

/// What is wrong with a run's records, and the remedy.
pub(super) fn run_again(run: &Path, why: &str) -> String {
    format!("{why}; remove `{}` and run the grid again", run.display())
}

fn failure(cell: &Cell) -> String {
    format!("{FAILURES}/{}.json", cell.id)
}
