//! Advantage estimators, one file per method.

mod bilevel_gae;
#[cfg(test)]
mod fixture;
mod gae;
mod grpo;
mod grpo_passk;
mod n_step;
mod opo;
mod optimal_token_baseline;
mod outcome;
mod remax;
mod return_to_go;
mod rloo;
mod td;
mod values;

pub use bilevel_gae::BilevelGae;
pub use gae::{Gae, StepPo, TurnPpo};
pub use grpo::{DrGrpo, Gpg, Grpo, ReinforcePlusPlusBaseline};
pub use grpo_passk::GrpoPassK;
pub use n_step::NStep;
pub use opo::Opo;
pub use optimal_token_baseline::{OptimalTokenBaseline, Path, Place, squared_gradient_norm};
pub use outcome::Mode;
pub use remax::Remax;
pub use return_to_go::{ReinforcePlusPlus, ReturnToGo};
pub use rloo::Rloo;
pub use td::Td;
pub use values::Step;
