//! The environment's scripted expert plays: episodes to clone.
//!
//! An expert's tokens have no behaviour log-probability: absent, not 0, so objectives that form ratios refuse them.
//!
//! Per update `groups` tasks are drawn, and each is played `group_size` times by the expert. What it says becomes tokens of the policy node
//! `agent`, which reads nothing and samples nothing.
//!
//! Source: behaviour cloning, Pomerleau 1989, "ALVINN", NIPS 1; as the phase before reinforcement learning it is the usual supervised fine-tuning.
//!
//! Reductions: with an expert without chance of its own, the members of a group are equal.
//!
//! Edge cases: with `decode = "admissible"` a token without an alternative is fed, not learned. An expert that does not know what
//! to do, or says what is not admissible, breaks its episode, as an environment's error does.
//!
//! Cost: one environment step per turn and no tokens of a policy; what was read and said counts as `expert_tokens`.

use ascribe_core::log::GroupLog;
use ascribe_core::play::{Decode, Play};
use ascribe_core::rollout::{Acting, RolloutError};
use ascribe_core::{BuildContext, BuildError, Need, Provide, RolloutConfig, RolloutStrategy, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Episodes;

/// `[rollout.expert]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expert {
    /// Tasks per update, at least 1; times `group_size` at most 2^20.
    pub groups: Episodes,
    /// Episodes per task, at least 1: a noisy expert differs between them.
    pub group_size: Episodes,
    /// What the policy's actions may be made of: with `admissible`, a token without an alternative is fed, not learned.
    #[serde(default)]
    pub decode: Decode,
    /// Policy node whose tokens it speaks and that learns from it.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

plugin! {
    Rollout "expert" {
        summary: "The environment's scripted expert plays: episodes to clone with objective `nll`.",
        source: "",
        when: "In a phase before reinforcement learning.",
        example: "groups = 16\ngroup_size = 1",
        module: "expert.rs",
    }
    impl RolloutConfig for Expert {
        fn build(&self, _context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            crate::check_size(("groups", self.groups), ("group_size", self.group_size))?;
            Ok(Box::new(self.clone()))
        }
        fn needs(&self) -> Vec<Need> {
            [vec![Need::Expert], crate::needs_of(self.decode)].concat()
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::GroupOfAtLeast(*self.group_size), Need::Chains]
        }
        fn agent(&self) -> &str {
            &self.agent
        }
        fn decode(&self) -> Decode {
            self.decode
        }
    }
}

impl RolloutStrategy for Expert {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let starts = acting.draw(self.groups.get())?;
        let stream = acting.stream("expert");
        let play = Play { decode: self.decode, ..acting.play(&self.agent, &starts, self.group_size.get(), &stream) };
        let policy = acting.node(&self.agent)?;
        let (tokenizer, limit) = (policy.tokenizer(), policy.max_tokens());
        play.expert(&*tokenizer, limit, &*acting.tasks, acting.ledger)
    }
}
