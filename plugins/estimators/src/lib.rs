//! Advantage estimators, one file per method.

#[cfg(test)]
mod fixture;
mod gae;
mod grpo;
mod grpo_passk;
mod n_step;
mod opo;
mod outcome;
mod return_to_go;
mod rloo;
mod td;
mod values;

pub use gae::{Gae, StepPo, TurnPpo};
pub use grpo::{DrGrpo, Gpg, Grpo, ReinforcePlusPlusBaseline};
pub use grpo_passk::GrpoPassK;
pub use n_step::NStep;
pub use opo::Opo;
pub use outcome::Mode;
pub use return_to_go::ReturnToGo;
pub use rloo::Rloo;
pub use td::Td;
pub use values::Step;
