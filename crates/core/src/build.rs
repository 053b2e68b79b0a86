//! What a plugin that owns files, weights or devices is built from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::Experiment;
use crate::environment::Capabilities;
use crate::seed::Seeds;

/// What is known when live objects are built, in the order environment, policies, critics, rollout.
#[derive(Clone, Debug)]
pub struct BuildContext<'a> {
    /// The run's seed.
    pub seeds: Seeds,
    /// Device, as given: `cpu`, `cuda`, `cuda:1`.
    pub device: &'a str,
    /// Threads it may use. Never changes a result.
    pub threads: usize,
    /// What the environment can do; `None` while the environment itself is built.
    pub environment: Option<&'a Capabilities>,
    /// Names of the policy nodes.
    pub nodes: BTreeSet<String>,
    /// Folder against which relative paths in the experiment are read.
    pub base: PathBuf,
}

/// Why a plugin could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The configuration asks for what cannot be: the command ends with exit code 2.
    #[error("{0}")]
    Config(String),
    /// Data are absent or cannot be read.
    #[error("{0}")]
    Data(String),
    /// The device cannot be had.
    #[error("{0}")]
    Device(String),
}

impl<'a> BuildContext<'a> {
    /// For an experiment's environment that is looked at without a run.
    pub fn without_run(experiment: &'a Experiment, base: &Path) -> Self {
        Self {
            seeds: Seeds(experiment.seed),
            device: &experiment.device,
            threads: 1,
            environment: None,
            nodes: experiment.policy.keys().cloned().collect(),
            base: base.to_path_buf(),
        }
    }

    /// What the environment can do.
    ///
    /// # Panics
    /// While the environment itself is built: it does not ask what it can do.
    pub fn environment(&self) -> &Capabilities {
        self.environment.expect("policies, critics and rollouts are built after the environment")
    }
}
