//! Statistics of comparisons between arms.
//!
//! An *arm* is one way to train, a *run* is one seed of it, and a *task* is what every run is measured on. Seeds are the unit of
//! replication: more episodes per run sharpen a run's score and say nothing about the next run.
//!
//! | question | answer |
//! |---|---|
//! | how good is an arm? | [`summarise`]: mean, median, IQM, optimality gap, each with an interval |
//! | over which scores do its runs lie? | [`profile()`] |
//! | how good at which budget? | [`Curves`], [`sample_efficiency`], and [`Curves::at`] for a table at equal budget |
//! | is an arm better than the baseline? | [`compare`]: paired by seed, corrected for the number of arms, with a [`Verdict`] |
//! | is it better than its own controls? | [`compare_pairs`]: the same for pairs of one's own |
//! | what can so many seeds show? | [`Power::smallest_detectable`], [`Power::seeds_needed`], [`Replication`] |
//!
//! Results go out as a [`Sheet`] (CSV, Markdown, LaTeX) or as the arrays that rliable reads ([`write_npz`]). What people read has passed
//! through [`visible()`] or [`visible_lines`].
//!
//! Nothing here reads files or clocks. Resamples are keyed by seed and repetition, so results do not depend on the number of
//! threads, nor an arm's on which other arms there are.
//!
//! Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice", arXiv 2108.13264;
//! Henderson et al. 2018, "Deep reinforcement learning that matters", arXiv 1709.06560;
//! Colas et al. 2018, "How many random seeds?", arXiv 1806.08295.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aggregate;
mod bootstrap;
mod compare;
mod curves;
mod error;
mod export;
pub mod grid;
mod improvement;
mod paired;
mod power;
mod profile;
mod scores;
mod table;

pub use aggregate::{Metric, Summary, summarise};
pub use bootstrap::{Bootstrap, Estimate, Interval, Level};
pub use compare::{Comparing, Comparison, Reason, Test, Tests, Verdict, compare, compare_pairs, holm};
pub use curves::{Axis, Curves, EfficiencyCurve, Point, Positions, sample_efficiency};
pub use error::StudyError;
pub use export::{Cell, Column, Kind, Sheet, hidden_class, visible, visible_lines, write_npz};
pub use improvement::{improvement, probability_of_improvement};
pub use paired::{paired_t, sign_flip, signed_rank};
pub use power::{Power, Replication};
pub use profile::{Profile, fraction_above, profile};
pub use scores::Scores;
pub use table::{Arm, ArmScores, Failure, Range, Run, Table, Training};
