//! Objectives: rows to coefficients on what a policy differentiates.
//!
//! On log-probabilities: cloning, policy gradients, preferences, a penalty for leaving a reference. On entropies: a
//! bonus. On heads: regression and classification. They compose with `sum`.

mod bce;
mod cispo;
mod clip_cov;
mod column;
mod covariance;
mod dpo;
mod entropy;
mod exact_kl;
#[cfg(test)]
mod fixture;
mod gspo;
mod head;
mod implicit_reward;
mod importance_sampling;
mod kl;
mod kl_cov;
mod logistic;
mod mse;
mod nll;
mod ppo_clip;
mod ratio;
mod reference;
mod reinforce;
mod sum;
mod sum_mse;

pub use bce::Bce;
pub use cispo::Cispo;
pub use clip_cov::ClipCov;
pub use dpo::{Dpo, Length};
pub use entropy::Entropy;
pub use exact_kl::ExactKl;
pub use gspo::{Gspo, RatioScope, sequence_ratio};
pub use head::Over;
pub use implicit_reward::ImplicitReward;
pub use importance_sampling::ImportanceSampling;
pub use kl::{Estimator, Kl};
pub use kl_cov::KlCov;
pub use mse::{Mse, ValueClip};
pub use nll::Nll;
pub use ppo_clip::PpoClip;
pub use ratio::AboveOne;
pub use reinforce::Reinforce;
pub use sum::{Sum, Term};
pub use sum_mse::SumMse;
