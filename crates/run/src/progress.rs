//! What a run tells whoever watches it.

use std::path::Path;

use ascribe_core::Metrics;

use crate::evaluate::Evaluation;

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run begins or goes on.
    Started {
        /// Its folder.
        folder: &'a Path,
        /// Updates that a checkpoint brought along; `None` for a run that begins.
        resumed: Option<u32>,
        /// Trainable numbers of each policy node.
        parameters: Vec<(String, usize)>,
    },
    /// A phase begins or goes on.
    Phase {
        /// Its name.
        name: &'a str,
        /// Its place among the phases, from 0.
        index: usize,
        /// Number of phases.
        phases: usize,
        /// Its updates that are done.
        done: u32,
        /// Its updates.
        updates: u32,
    },
    /// An update is done.
    Update {
        /// Updates done in the run.
        update: u32,
        /// Updates done in the phase.
        phase_update: u32,
        /// Updates of the phase.
        phase_updates: u32,
        /// Its metrics.
        metrics: &'a Metrics,
        /// Tokens that models processed per second of the update.
        tokens_per_second: f64,
    },
    /// An evaluation goes on.
    Evaluating {
        /// The split.
        split: &'a str,
        /// Episodes done.
        done: usize,
        /// Episodes of the evaluation of this split.
        of: usize,
    },
    /// An evaluation is done.
    Evaluated(&'a Evaluation),
    /// A checkpoint is written.
    Saved {
        /// Updates done.
        update: u32,
    },
    /// Something that deserves attention, and what to do about it.
    Warning(&'a str),
    /// Something worth knowing.
    Note(&'a str),
}

/// Watches a run.
pub trait Progress {
    /// Is told what happened.
    fn on(&mut self, event: Event<'_>);
}

/// Does not watch.
impl Progress for () {
    fn on(&mut self, _: Event<'_>) {}
}
