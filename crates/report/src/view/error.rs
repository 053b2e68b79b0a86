//! Why there is no view.

use std::io;
use std::path::PathBuf;

use ascribe_run::disk::DiskError;

use super::Damaged;

/// Why trajectories cannot be shown. Every message names the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// There is nothing at that path.
    #[error("`{}` is neither a run's folder nor a file of saved trajectories", .0.display())]
    NoRun(PathBuf),
    /// Updates were asked of a file.
    #[error("`{}` is one saved batch: leave `--update` out, or give the run's folder", .0.display())]
    OneBatch(PathBuf),
    /// A run without saved batches.
    #[error(
        "`{}` holds no saved trajectories: its first update is not over, or it was run with `run.trajectories = 0`; \
         `run.trajectories = 1` saves those of every update",
        .0.display()
    )]
    NothingSaved(PathBuf),
    /// Updates that were asked for and are not there.
    #[error("{asked} is not saved; saved are {saved}")]
    NotSaved {
        /// What was asked for.
        asked: String,
        /// What there is.
        saved: String,
    },
    /// A file that cannot be read; the message names it.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// Nothing is left once what is damaged is left out.
    #[error("{}\n  nothing is left to show: {REMEDY}{}", listed(.damaged), too(.others))]
    Damaged {
        /// What is damaged.
        damaged: Vec<Damaged>,
        /// Other updates that are saved, in words; empty if there are none.
        others: String,
    },
    /// The page would take the place of something else.
    #[error("`{}` is no page of Ascribe and is left as it is: name another file with `-o`, or move it away", .0.display())]
    Taken(PathBuf),
    /// The page cannot be written.
    #[error("cannot {} `{}`: {}\n  name another file with `-o`", .0.doing, .0.path.display(), .0.source)]
    Write(#[from] DiskError),
    /// An estimator that needs what the batch does not have.
    #[error("`{lane}` needs {need}, which the batch of update {update} does not have ({has}); {remedy}")]
    Lacks {
        /// The estimator, as it was asked for.
        lane: String,
        /// What it needs.
        need: String,
        /// The update.
        update: u32,
        /// What there is of that kind.
        has: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An estimator that failed.
    #[error("`{lane}` failed on task `{task}` of update {update}: {reason}")]
    Estimate {
        /// The estimator, as it was asked for.
        lane: String,
        /// The task.
        task: String,
        /// The update.
        update: u32,
        /// Why.
        reason: String,
    },
}

/// What to do about a damaged batch.
pub(super) const REMEDY: &str = "put the file back from a copy, or run the experiment anew, which saves the same batch";

fn listed(damaged: &[Damaged]) -> String {
    damaged.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn too(saved: &str) -> String {
    if saved.is_empty() { String::new() } else { format!("; saved too are {saved}: `--update` shows them") }
}
