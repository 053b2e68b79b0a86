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
mod mt_grpo;
mod n_step;
mod opo;
mod outcome;
mod paths;
mod pure;
mod return_to_go;
mod rloo;
mod salt;
mod spa_rl;
mod td;
mod values;

pub use g2po::{G2po, Over};
pub use gae::Gae;
pub use graph_gpo::GraphGpo;
pub use grpo::Grpo;
pub use grpo_passk::GrpoPassK;
pub use igpo::{Earned, Igpo, Norm};
pub use mt_grpo::{FirstResult, Form, MtGrpo};
pub use n_step::NStep;
pub use opo::Opo;
pub use outcome::Mode;
pub use pure::{Baseline, Process, Pure};
pub use return_to_go::ReturnToGo;
pub use rloo::Rloo;
pub use salt::{Base, EdgeKey, Salt};
pub use spa_rl::{Shares, SpaRl};
pub use td::Td;
