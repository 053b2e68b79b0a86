//! Critics: what judges states, turns and tokens.
//!
//! A critic reads the batch of an update and returns columns; those that train ask for rows through a policy node, which
//! the loop merges with the actor's into one step. What they report stands under `critic/NAME/`.

mod implicit;
mod lesson;
mod oracle;
mod pair;
mod process_model;
mod process_rules;
mod q_model;
mod scored;
mod spa_progress;
mod states;
mod targets;
#[cfg(test)]
mod testing;
mod turn_head;

pub use implicit::Implicit;
pub use oracle::Oracle;
pub use pair::Pair;
pub use process_model::ProcessModel;
pub use process_rules::ProcessRules;
pub use q_model::QModel;
pub use spa_progress::SpaProgress;

/// The column of rewards per turn that say how good a step is.
const PROCESS_REWARD: &str = "process_reward";

fn one() -> ascribe_core::range::NonNegative {
    ascribe_core::range::NonNegative::try_from(1.0).expect("in range")
}
fn actor() -> String {
    "actor".into()
}
