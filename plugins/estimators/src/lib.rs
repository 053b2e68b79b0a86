//! Advantage estimators, one file per method.

#[cfg(test)]
mod fixture;
mod gae;
mod gigpo;
mod grpo;
mod grpo_passk;
mod hgpo;
mod n_step;
mod opo;
mod outcome;
mod return_to_go;
mod rloo;
mod steps;
mod td;
mod values;

pub use gae::Gae;
pub use gigpo::{Gigpo, Threshold};
pub use grpo::Grpo;
pub use grpo_passk::GrpoPassK;
pub use hgpo::Hgpo;
pub use n_step::NStep;
pub use opo::Opo;
pub use outcome::{Mode, Over};
pub use return_to_go::ReturnToGo;
pub use rloo::Rloo;
pub use steps::Steps;
pub use td::Td;
