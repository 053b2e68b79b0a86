//! Readers, by family of methods.

pub mod outcomes;
pub mod rederived;
pub mod turn_rewards;
