//! Rollout strategies: how tasks become groups of turns.

mod expert;
mod independent;

pub use expert::Expert;
pub use independent::Independent;

use ascribe_core::BuildError;
use ascribe_core::range::Between;

/// Most episodes of an update: a batch lies in memory as a whole.
pub const MOST_EPISODES: u64 = 1 << 20;

/// A number of episodes, or of tasks, of an update.
pub type Episodes = Between<1, MOST_EPISODES>;

/// Refuses more episodes than a batch may have.
fn check_size(groups: Episodes, group_size: Episodes) -> Result<(), BuildError> {
    let episodes = *groups * *group_size;
    if episodes <= MOST_EPISODES {
        return Ok(());
    }
    Err(BuildError::Config(format!(
        "`groups` = {} times `group_size` = {} is {episodes} episodes per update, and at most {MOST_EPISODES} fit",
        *groups, *group_size
    )))
}

fn actor() -> String {
    "actor".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_an_update_is_refused() {
        let size = |toml: &str| toml::from_str::<Independent>(toml).map_err(|e| e.message().to_string());
        let refused = Err("must be in 1..=1048576, got 9000000000000000000".to_string());
        assert_eq!(size("groups = 9_000_000_000_000_000_000\ngroup_size = 8").map(drop), refused);
        assert_eq!(size("groups = 8\ngroup_size = 9_000_000_000_000_000_000").map(drop), refused);
        let check = |toml: &str| size(toml).map(|c| check_size(c.groups, c.group_size).map_err(|e| e.to_string()));
        assert_eq!(check("groups = 1024\ngroup_size = 1024"), Ok(Ok(())));
        let told = check("groups = 1025\ngroup_size = 1024").unwrap().unwrap_err();
        let want = "`groups` = 1025 times `group_size` = 1024 is 1049600 episodes per update, and at most 1048576 fit";
        assert!(told.contains(want), "{told}");
    }
}
