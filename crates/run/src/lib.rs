//! The training loop and what it persists.
//!
//! * [`train`](train::train) is the loop: one screen, and it never asks which plugin it has.
//! * [`run`] takes an experiment from its first update to its last, over as many processes as it takes.
//! * [`measure`] measures what a run has learned.
//!
//! A run's folder is described in [`folder`]; what a checkpoint is, in [`checkpoint`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod alarms;
pub mod checkpoint;
pub mod disk;
mod error;
pub mod evaluate;
pub mod folder;
pub mod live;
pub mod log;
mod measure;
mod metrics;
pub mod progress;
pub mod records;
mod session;
pub mod tensorboard;
pub mod train;
pub mod trajectories;
pub mod update;

pub use error::{Difference, Differing, RunError, differences};
pub use measure::{MeasureOptions, measure, save_measured};
pub use progress::{Event, Progress};
pub use session::{Ended, Options, Report, run};
