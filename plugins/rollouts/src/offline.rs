//! Groups that are played once and given back at every update.
//!
//! In its first update the strategy `of` plays; the same groups come again in every later one of the phase, from the first to the
//! last. With the policy held (`train = ["SOME_CRITIC"]`) this fits a critic to a set of episodes, as regression does; with it
//! trained, it is offline reinforcement learning.
//!
//! Source: batch (offline) reinforcement learning, Ernst et al. 2005, JMLR 6; Levine et al. 2020, arXiv 2005.01643.
//!
//! Reductions: its first update is that of `of`; so is a phase of one update.
//!
//! Edge cases: a group keeps the log-probabilities that it was sampled with, so ratios see its age, as with `replay`. Groups all of
//! whose paths failed, and groups with numbers that are not finite, are given once and then no more; where none is left the run
//! stops. A curriculum sees the same outcomes again. Asked twice in one update (`dynamic-sampling`), it has nothing more to give.
//!
//! Cost: tokens and environment steps of the first update alone; memory and checkpoints hold the groups.

use ascribe_core::log::GroupLog;
use ascribe_core::play::Decode;
use ascribe_core::rollout::{Acting, RolloutError};
use ascribe_core::{BuildContext, BuildError, Need, Provide, RolloutConfig, RolloutStrategy, Slot, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stored::{self, Stored};

/// `[rollout.offline]`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Offline {
    /// The strategy that plays, once.
    pub of: Slot<dyn RolloutConfig>,
}

plugin! {
    Rollout "offline" {
        summary: "Plays its groups once and gives the same ones at every update.",
        source: "Levine et al. 2020, Offline Reinforcement Learning, arXiv 2005.01643",
        when: "To fit critics to a fixed set of episodes, or to compare estimators and objectives on the very same ones. A policy that trains on them for long leaves what they say of it.",
        example: "of.independent = { groups = 8, group_size = 8 }",
        module: "offline.rs",
    }
    impl RolloutConfig for Offline {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            Ok(Box::new(Played { of: self.of.build(context)?, groups: None, given_in: None }))
        }
        fn needs(&self) -> Vec<Need> {
            self.of.needs()
        }
        fn provides(&self) -> Vec<Provide> {
            self.of.provides()
        }
        fn whole_episodes(&self) -> bool {
            self.of.whole_episodes()
        }
        fn agent(&self) -> &str {
            self.of.agent()
        }
        fn decode(&self) -> Decode {
            self.of.decode()
        }
    }
}

struct Played {
    of: Box<dyn RolloutStrategy>,
    /// What was played, once it was.
    groups: Option<Vec<Stored>>,
    /// The update in which they were given last.
    given_in: Option<u32>,
}

impl RolloutStrategy for Played {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let update = acting.now.update;
        if self.given_in.replace(update) == Some(update) {
            return Ok(Vec::new());
        }
        let Some(stored) = &self.groups else {
            let groups = self.of.collect(acting)?;
            let again = groups.iter().filter(|group| stored::is_finite(group) && stored::trains(group));
            self.groups = Some(again.map(|group| Stored { update, group: group.clone() }).collect());
            return Ok(groups);
        };
        if stored.is_empty() {
            let text = "`offline` has no group to give again: in its first update `of` gave none, or every episode broke; give it another \
                        strategy or easier tasks";
            return Err(RolloutError::NoTasks(text.into()));
        }
        Ok(stored.iter().map(|stored| stored.again(update)).collect())
    }

    fn save(&self) -> Vec<u8> {
        match &self.groups {
            Some(groups) => stored::save(groups, self.of.save()),
            None => Vec::new(),
        }
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (groups, of) = stored::load(bytes)?;
        self.of.load(&of)?;
        self.groups = Some(groups);
        Ok(())
    }
}
