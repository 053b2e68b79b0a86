//! Readers, by family of methods.

pub mod anchors;
pub mod libraries;
pub mod macro_step;
pub mod outcomes;
pub mod progress;
pub mod rederived;
pub mod returns;
pub mod tempo;
pub mod turn_rewards;
pub mod worked;
