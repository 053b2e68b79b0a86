//! Grids of experiments: from one TOML to the runs behind a table.
//!
//! * [`Plan::read`] reads `[grid]`, builds every arm and checks it; nothing is run.
//! * [`work`] runs the cells that are missing, each in a process of its own. Any number of processes may work on one grid: a run's
//!   folder is locked by whoever runs it, and the lock falls with its process.
//! * [`submit`] has Slurm run them, each as a task of a job array.
//! * [`Results::read`] gathers what the finished cells measured.
//! * [`Drift::read`] says what lies in the folder that is not of the experiment as it is now.
//! * [`Clock::read`] gathers what is not the same twice: seconds, machines, dates.
//!
//! A grid's folder is `<run.dir>/<name>`:
//!
//! | what | where |
//! |---|---|
//! | what was asked, and the hash of the prediction | `grid.json` |
//! | the cells planned so far | `cells.json` |
//! | runs | `cells/<arm>-<hash>/seed-<n>` |
//! | what the processes of runs said | `logs/<cell>.txt` |
//! | why cells failed | `failures/<cell>.json` |
//! | tables | `report/` |
//! | scripts of jobs, what Slurm said, and `jobs.json`, the jobs that were submitted | `slurm/` |
//!
//! A cell is named by a hash of its resolved configuration. Where a configuration changes, its cells are new ones and the old runs
//! stay beside them; where it does not, what is done stays done.

mod clock;
mod drift;
mod folder;
mod plan;
mod results;
mod slurm;
mod spec;
mod work;

use std::path::PathBuf;

use ascribe_config::Report;
use ascribe_run::RunError;
use ascribe_run::disk::DiskError;

use crate::StudyError;

pub use clock::{ArmClock, Clock, Machine};
pub use drift::Drift;
pub use folder::{Failure, GridFolder, Manifest, Prediction, State};
pub use plan::{ArmPlan, Cell, Plan, load_cell};
pub use results::{Chosen, Results, Spent, Unread, chosen};
pub use slurm::{Job, JobKind, Slurm, Submitted, check_option, queued, requeue, submit};
pub use spec::{Choice, FIRST_TUNING_SEED, MOST_CELLS, Score, ScoreOf, SeedsOf, Spec};
pub use work::{BUSY, Event, Outcome, Work, work};

/// Why a grid cannot be planned, run or read.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// `[grid]`, or an experiment without an arm, is refused.
    #[error("{0}")]
    Rejected(#[from] Report),
    /// An arm's experiment is refused.
    #[error("arm `{arm}`: {report}")]
    Arm {
        /// The arm.
        arm: String,
        /// Why.
        report: Report,
    },
    /// Something is not what it was.
    #[error("{0}")]
    Changed(String),
    /// There is no grid in a folder.
    #[error("`{folder}` is not a grid's folder: {reason}")]
    NoGrid {
        /// The folder.
        folder: PathBuf,
        /// What is missing or damaged.
        reason: String,
    },
    /// Slurm, or one of its commands, does not do what it is asked.
    #[error("{0}")]
    Slurm(String),
    /// A file cannot be written.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// A run cannot be read.
    #[error("{0}")]
    Run(#[from] RunError),
    /// Results do not make a table.
    #[error("{0}")]
    Study(#[from] StudyError),
}
