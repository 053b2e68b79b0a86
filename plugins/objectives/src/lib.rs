//! Objectives: rows to coefficients on log-probabilities.

#[cfg(test)]
mod fixture;
mod nll;
mod ppo_clip;
mod reinforce;

pub use nll::Nll;
pub use ppo_clip::PpoClip;
pub use reinforce::Reinforce;
