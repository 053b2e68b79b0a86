//! Advantage estimators, one file per method.

mod blend;
#[cfg(test)]
mod fixture;
mod forest;
mod gae;
mod grpo;
mod grpo_passk;
mod n_step;
mod opo;
mod outcome;
mod pairs;
mod return_to_go;
mod rloo;
mod td;
mod tempo;
mod tempo_p2t;
mod tree_value;
mod value_difference;
mod values;

pub use blend::{Blend, Part};
pub use gae::Gae;
pub use grpo::Grpo;
pub use grpo_passk::GrpoPassK;
pub use n_step::NStep;
pub use opo::Opo;
pub use outcome::Mode;
pub use pairs::{Of, Pairs, Which};
pub use return_to_go::ReturnToGo;
pub use rloo::Rloo;
pub use td::Td;
pub use tempo::{ActorSignals, CriticSignals, Tempo, TempoMode, actor_signals, critic_signals};
pub use tempo_p2t::{Advantages, Prefix, TempoP2t};
pub use tree_value::{Against, LeafValue, NodeValue, Spread, TreeValue, Values};
pub use value_difference::ValueDifference;
