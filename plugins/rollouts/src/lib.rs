//! Rollout strategies: how tasks become groups of turns.

mod expert;
mod independent;

pub use expert::Expert;
pub use independent::Independent;

fn actor() -> String {
    "actor".into()
}
