//! Independent episodes: each task is played by a group of members that share nothing but their start.
//!
//! Lock-step over all live episodes: one policy batch per turn, environments in parallel.
//!
//! Per update `groups` tasks are drawn, and each is played `group_size` times from one start: a group has `group_size` paths, of a turn after
//! another until the environment says that it is over or a limit cuts it. Actions are sampled at `temperature`, freely or among those that the
//! environment lists (`decode = "admissible"`).
//!
//! Source: groups of samples per prompt as in Shao et al. 2024, DeepSeekMath (GRPO), arXiv 2402.03300, with episodes in their place.
//!
//! Reductions: with `group_size = 1` there is no group to compare with, as for REINFORCE and PPO with a critic.
//!
//! Edge cases: members of a group share the environment's chance, not that of the policy. An episode that breaks is a failed leaf of its group,
//! trains nothing and moves no baseline. An action that the limit of tokens cuts is handed to the environment as it stands.
//!
//! Cost: per turn of an episode, the tokens that were read since the last one and those of the action, each fed once; one environment step.

use ascribe_core::log::GroupLog;
use ascribe_core::play::{Decode, Play};
use ascribe_core::range::Positive;
use ascribe_core::rollout::{Acting, RolloutError, node};
use ascribe_core::{BuildContext, BuildError, Need, Provide, RolloutConfig, RolloutStrategy, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Episodes;

/// `[rollout.independent]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Independent {
    /// Tasks per update, at least 1; times `group_size` at most 2^20.
    pub groups: Episodes,
    /// Episodes per task, at least 1; group-relative estimators need 2.
    pub group_size: Episodes,
    /// Sampling temperature, positive.
    #[serde(default = "crate::one")]
    pub temperature: Positive,
    /// What actions may be made of.
    #[serde(default)]
    pub decode: Decode,
    /// Policy node that acts.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

plugin! {
    Rollout "independent" {
        summary: "Groups of independent episodes, one group per task.",
        source: "",
        when: "The default of the field. For branches inside an episode, use a strategy that re-enters states.",
        example: "groups = 8\ngroup_size = 8",
        module: "independent.rs",
    }
    impl RolloutConfig for Independent {
        fn build(&self, _context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            crate::check_size(("groups", self.groups), ("group_size", self.group_size))?;
            Ok(Box::new(self.clone()))
        }
        fn needs(&self) -> Vec<Need> {
            crate::needs_of(self.decode)
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::GroupOfAtLeast(*self.group_size), Need::Chains, Need::BehaviorLogprob, Need::Entropy]
        }
        fn agent(&self) -> &str {
            &self.agent
        }
        fn decode(&self) -> Decode {
            self.decode
        }
    }
}

impl RolloutStrategy for Independent {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let starts = acting.draw(self.groups.get())?;
        let stream = acting.stream("rollout");
        let play = Play {
            temperature: *self.temperature as f32,
            decode: self.decode,
            ..acting.play(&self.agent, &starts, self.group_size.get(), &stream)
        };
        let Acting { nodes, tasks, ledger, .. } = acting;
        play.sample(&mut **node(nodes, &self.agent)?, &**tasks, ledger)
    }
}
