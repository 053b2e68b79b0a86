//! Rollout strategies: how tasks become groups of turns.
//!
//! * Without branches: [`Independent`], and [`Expert`] for episodes to clone.
//! * With branches inside an episode: [`EntropyBranch`] while it goes on, [`Tree`] once it is over.
//! * With a choice in each turn: [`BestOfN`], which a critic makes.
//! * In pieces, from states that earlier ones ended in: [`MacroStep`].
//! * Around another one: [`DynamicSampling`] drops groups that teach nothing, [`Replay`] gives stored groups back, [`Offline`]
//!   always the same ones.
//!
//! Without branches all are [`Independent`], record for record: a branch, a second candidate or another round draws from
//! streams of its own. What is shared is sampled once, fed once and trained once.

mod best_of_n;
mod branch;
mod dynamic_sampling;
mod entropy_branch;
mod expert;
mod independent;
mod macro_step;
mod offline;
mod replay;
mod stored;
mod tree;

pub use best_of_n::BestOfN;
pub use branch::Restore;
pub use dynamic_sampling::{DynamicSampling, Surplus};
pub use entropy_branch::EntropyBranch;
pub use expert::Expert;
pub use independent::Independent;
pub use macro_step::{Evicted, MacroStep, MacroStepMode, StateStore, StoredState};
pub use offline::Offline;
pub use replay::Replay;
pub use tree::{Per, Select, Tree};

use ascribe_core::play::Decode;
use ascribe_core::range::{Between, Positive};
use ascribe_core::{BuildError, Need};

/// Most episodes of an update: a batch lies in memory as a whole.
pub const MOST_EPISODES: u64 = 1 << 20;

/// A number of episodes, or of tasks, of an update.
pub type Episodes = Between<1, MOST_EPISODES>;

/// Refuses more episodes than a batch may have: groups times members, each by the name of its key.
fn check_size((groups, n): (&str, Episodes), (members, m): (&str, Episodes)) -> Result<(), BuildError> {
    let episodes = *n * *m;
    if episodes <= MOST_EPISODES {
        return Ok(());
    }
    Err(BuildError::Config(format!(
        "`{groups}` = {} times `{members}` = {} is {episodes} episodes per update, and at most {MOST_EPISODES} fit",
        *n, *m
    )))
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::registry::{Kind, plugins};

    /// `explain` shows what stands at the head of a plugin's module.
    #[test]
    fn every_rollout_says_what_it_does_and_costs() {
        for row in plugins(Kind::Rollout).into_iter().filter(|row| row.krate == env!("CARGO_PKG_NAME")) {
            assert!(row.doc.contains("Cost:"), "`{}`: no line `module:`, or a module without its cost", row.name);
        }
    }

    #[test]
    fn what_does_not_fit_an_update_is_refused() {
        let size = |toml: &str| toml::from_str::<Independent>(toml).map_err(|e| e.message().to_string());
        let refused = Err("must be in 1..=1048576, got 9000000000000000000".to_string());
        assert_eq!(size("groups = 9_000_000_000_000_000_000\ngroup_size = 8").map(drop), refused);
        assert_eq!(size("groups = 8\ngroup_size = 9_000_000_000_000_000_000").map(drop), refused);
        let check = |toml: &str| {
            size(toml).map(|c| check_size(("groups", c.groups), ("group_size", c.group_size)).map_err(|e| e.to_string()))
        };
        assert_eq!(check("groups = 1024\ngroup_size = 1024"), Ok(Ok(())));
        let told = check("groups = 1025\ngroup_size = 1024").unwrap().unwrap_err();
        let want = "`groups` = 1025 times `group_size` = 1024 is 1049600 episodes per update, and at most 1048576 fit";
        assert!(told.contains(want), "{told}");
    }
}
