//! Rollout strategies: how tasks become groups of turns.
//!
//! * Without branches: [`Independent`], and [`Expert`] for episodes to clone.
//! * With branches inside an episode: [`EntropyBranch`] while it goes on, [`Tree`] once it is over.
//! * With a choice in each turn: [`BestOfN`], which a critic makes.
//! * Around another one: [`DynamicSampling`] drops groups that teach nothing, [`Replay`] gives stored groups back.
//!
//! Without branches all are [`Independent`], record for record: a branch, a second candidate or another round draws from
//! streams of its own. What is shared is sampled once, fed once and trained once.

mod best_of_n;
mod branch;
mod dynamic_sampling;
mod entropy_branch;
mod expert;
mod independent;
mod replay;
mod stored;
mod tree;

pub use best_of_n::BestOfN;
pub use branch::Restore;
pub use dynamic_sampling::{DynamicSampling, Surplus};
pub use entropy_branch::EntropyBranch;
pub use expert::Expert;
pub use independent::Independent;
pub use replay::Replay;
pub use tree::{Per, Select, Tree};

use ascribe_core::Need;
use ascribe_core::play::Decode;
use ascribe_core::range::Positive;

fn actor() -> String {
    "actor".into()
}

fn one() -> Positive {
    Positive::try_from(1.0).expect("in range")
}

/// What actions of that kind need of the environment.
fn needs_of(decode: Decode) -> Vec<Need> {
    if decode == Decode::Admissible { vec![Need::Admissible] } else { Vec::new() }
}
