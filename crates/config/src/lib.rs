//! Layered TOML to a checked experiment, or every problem at once.
//!
//! [`load`] gathers the layers of an experiment (defaults < files < environment < command line), puts them on top of each
//! other, and checks the result: first its shape against the types, then whether its plugins fit together. The answer
//! is a [`Loaded`] experiment or a [`Report`] that shows every mistake with its place and what to do.
//!
//! * A string in a slot is that plugin with all its defaults. The same plugin in a higher layer merges its keys; another
//!   plugin replaces the slot ([`Loaded::replaced`]); two plugins within one layer are a mistake.
//! * Lists and single values are replaced whole; `transform.1.clip.max = 3` and `phase.NAME.updates = 8` change items.
//! * A table where a number goes is a schedule; it is lifted out of the tree.
//! * A phase is one more layer, on top of all others.

mod assign;
mod check;
mod explain;
mod files;
mod grid;
mod judge;
mod knobs;
mod layers;
mod load;
mod path;
mod phases;
mod report;
mod schema;
mod source;
mod write;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use ascribe_core::registry::Plugin;
use ascribe_core::{AdvantageEstimator, Slot};
use serde::de::DeserializeOwned;

pub use explain::{Explained, Key, Setting, plugin_keys};
pub use grid::Grid;
pub use layers::Replaced;
pub use load::{Change, Loaded};
pub use report::{Mark, Problem, Report, nearest};
pub use schema::json_schema;
pub use source::{Place, SourceKind};

/// What to load.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Files; later ones lie on top of earlier ones.
    pub files: Vec<PathBuf>,
    /// Environment variables; those that begin with `ASCRIBE__` are settings.
    pub environment: BTreeMap<OsString, OsString>,
    /// An arm of the `[grid]`, whose table is one more layer, on top of files and environment and below the command line.
    pub arm: Option<String>,
    /// Settings `KEY=VALUE` of the command line, in order.
    pub assignments: Vec<String>,
}

impl Request {
    /// One file.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { files: vec![file.into()], ..Self::default() }
    }

    /// With environment variables, e.g. [`std::env::vars_os`].
    #[must_use]
    pub fn environment<K: Into<OsString>, V: Into<OsString>>(mut self, variables: impl IntoIterator<Item = (K, V)>) -> Self {
        self.environment.extend(variables.into_iter().map(|(k, v)| (k.into(), v.into())));
        self
    }

    /// As an arm of the grid.
    #[must_use]
    pub fn arm(mut self, name: impl Into<String>) -> Self {
        self.arm = Some(name.into());
        self
    }

    /// With settings of the command line.
    #[must_use]
    pub fn assignments<S: Into<String>>(mut self, assignments: impl IntoIterator<Item = S>) -> Self {
        self.assignments.extend(assignments.into_iter().map(Into::into));
        self
    }
}

/// Loads an experiment.
///
/// # Errors
/// With every problem that was found.
pub fn load(request: &Request) -> Result<Loaded, Report> {
    load::load(request).map_err(Report::new)
}

/// What an experiment's `[grid]` says, without a check of the experiment itself: it may be complete only with an arm.
///
/// # Errors
/// With every problem of the files and settings, and if there is no grid.
pub fn grid(request: &Request) -> Result<Grid, Report> {
    load::grid(request).map_err(Report::new)
}

/// Whether a plugin's own example is one of it: what is wrong with it otherwise.
///
/// # Errors
/// With every problem that was found.
pub fn check_example(row: &Plugin) -> Result<(), Report> {
    check::check_example(row).map_err(Report::new)
}

/// A plugin as in its example, with settings `KEY=VALUE` of the command line on top; their keys are the plugin's own.
///
/// `T` is the slot of its kind, for example `Slot<dyn AdvantageEstimator>`.
///
/// # Errors
/// With every problem that was found.
pub fn from_example<T: DeserializeOwned>(row: &Plugin, settings: &[String]) -> Result<T, Report> {
    check::from_example(row, settings).map_err(Report::new)
}

/// The estimator that `estimator = VALUE` means in an experiment: a name, or an inline table such as
/// `{ gae = { lambda = 0.9 } }`.
///
/// # Errors
/// With every problem that was found.
pub fn estimator(value: &str) -> Result<Slot<dyn AdvantageEstimator>, Report> {
    check::estimator(value).map_err(Report::new)
}
