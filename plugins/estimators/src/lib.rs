//! Advantage estimators, one file per method.

#[cfg(test)]
mod fixture;
mod g2po;
mod gae;
mod graph;
mod graph_gpo;
mod grpo;
mod grpo_passk;
mod igpo;
mod n_step;
mod opo;
mod outcome;
mod paths;
mod return_to_go;
mod rloo;
mod salt;
mod td;
mod values;

pub use g2po::{G2po, Over};
pub use gae::Gae;
pub use graph_gpo::GraphGpo;
pub use grpo::Grpo;
pub use grpo_passk::GrpoPassK;
pub use igpo::{Earned, Igpo, Norm};
pub use n_step::NStep;
pub use opo::Opo;
pub use outcome::Mode;
pub use return_to_go::ReturnToGo;
pub use rloo::Rloo;
pub use salt::{Base, EdgeKey, Salt};
pub use td::Td;
