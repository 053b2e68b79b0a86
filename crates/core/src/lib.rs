//! The vocabulary of Ascribe: records, traits, registry. What a plugin's author imports.
//!
//! No tensors, no files, no clock.
//!
//! * Records: a rollout writes [`log`]s, which become a [`Batch`] of columns; estimators read its [`Group`]s and return
//!   [`Credit`]; credit becomes [`rows::RowSet`]s, which an update consumes.
//! * Traits: [`Environment`] and [`TaskSet`], [`Policy`], [`Critic`], [`RolloutStrategy`], [`AdvantageEstimator`],
//!   [`CreditTransform`], [`Objective`], [`Schedule`].
//! * Registry: [`plugin!`] gives a plugin its name; [`registry`] lists what is linked.
//! * Experiments: [`Experiment`] is what TOML says, [`graph`] whether its plugins fit together.

pub mod batch;
pub mod build;
pub mod credit;
pub mod critic;
pub mod drive;
pub mod environment;
pub mod estimator;
pub mod experiment;
pub mod graph;
pub mod key;
pub mod ledger;
pub mod log;
pub mod mdp;
pub mod metrics;
pub mod need;
pub mod now;
pub mod objective;
pub mod play;
pub mod policy;
pub mod preset;
pub mod range;
pub mod registry;
pub mod rollout;
pub mod rows;
pub mod schedule;
pub mod seed;
pub mod signal;
pub mod slot;
pub mod tokenizer;
pub mod transform;
pub mod trie;

#[doc(hidden)]
pub use inventory;
#[doc(hidden)]
pub use schemars;
#[doc(hidden)]
pub use serde_json;

pub use batch::{Batch, Group, States, Trajectory};
pub use build::{BuildContext, BuildError};
pub use credit::Credit;
pub use critic::{Critic, CriticConfig, NamedCritic};
pub use environment::{Environment, Oracle, TaskSet, TaskSetConfig};
pub use estimator::{AdvantageEstimator, Anchor, Decay, EstimateError, Law, Step};
pub use experiment::Experiment;
pub use log::{End, Limit};
pub use mdp::FiniteMdp;
pub use metrics::Metrics;
pub use need::{Need, Provide};
pub use now::Now;
pub use objective::{Columns, Objective};
pub use policy::{Policy, PolicyConfig};
pub use rollout::{RolloutConfig, RolloutStrategy};
pub use rows::{RowSet, Rows, Totals};
pub use schedule::Schedule;
pub use seed::{Draw, Rng, Seeds};
pub use signal::{Column, Scope, Signal};
pub use slot::Slot;
pub use transform::CreditTransform;
