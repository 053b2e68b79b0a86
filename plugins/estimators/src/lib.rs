//! Advantage estimators, one file per method.

#[cfg(test)]
mod fixture;
mod gae;
mod grpo;
mod grpo_passk;
mod igpo;
mod n_step;
mod opo;
mod outcome;
mod paths;
mod return_to_go;
mod rloo;
mod td;
mod values;

pub use gae::Gae;
pub use grpo::Grpo;
pub use grpo_passk::GrpoPassK;
pub use igpo::{Earned, Igpo, Norm};
pub use n_step::NStep;
pub use opo::Opo;
pub use outcome::Mode;
pub use return_to_go::ReturnToGo;
pub use rloo::Rloo;
pub use td::Td;
