//! Advantage estimators, one file per method.

mod bilevel_gae;
mod blend;
mod command;
#[cfg(test)]
mod fixture;
mod forest;
mod gae;
mod grpo;
mod grpo_passk;
mod hae;
mod n_step;
mod opo;
mod optimal_token_baseline;
mod outcome;
mod pairs;
mod program;
mod remax;
mod return_to_go;
mod rloo;
mod td;
mod tempo;
mod tempo_p2t;
mod tree_value;
mod value_difference;
mod values;

pub use bilevel_gae::BilevelGae;
pub use blend::{Blend, Part};
pub use command::{Command, On, Wanted};
pub use gae::{Gae, StepPo, TurnPpo};
pub use grpo::{DrGrpo, Gpg, Grpo, ReinforcePlusPlusBaseline};
pub use grpo_passk::GrpoPassK;
pub use hae::{Cut, Hae};
pub use n_step::NStep;
pub use opo::Opo;
pub use optimal_token_baseline::{OptimalTokenBaseline, Path, Place, squared_gradient_norm};
pub use outcome::Mode;
pub use pairs::{Of, Pairs, Which};
pub use remax::Remax;
pub use return_to_go::{ReinforcePlusPlus, ReturnToGo};
pub use rloo::Rloo;
pub use td::Td;
pub use tempo::{ActorSignals, CriticSignals, Tempo, TempoMode, actor_signals, critic_signals};
pub use tempo_p2t::{Advantages, Prefix, TempoP2t};
pub use tree_value::{Against, At2po, Carl, LeafValue, NodeValue, Spread, TreeGrpo, TreePo, TreeRl, TreeValue, Values};
pub use value_difference::{ValueDifference, Vine};
pub use values::Step;
