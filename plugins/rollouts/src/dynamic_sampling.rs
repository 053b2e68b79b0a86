//! Groups whose outcomes are all equal are dropped, and others are played in their place.
//!
//! The strategy `of` is asked for groups until `groups` of them have outcomes that differ, or it was asked `max_rounds` times. A
//! group-relative estimator learns nothing from the others, and averages over them dilute what it learns.
//!
//! Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", arXiv 2503.14476, section 3.2;
//! volcengine/verl, `recipe/dapo/dapo_ray_trainer.py`.
//!
//! An outcome is the sum of what the environment paid on a path, before any weighting. Paths that failed or were not tried have
//! none.
//!
//! Reductions: with `max_rounds = 1` the strategy is asked once and groups are only dropped, as transform `drop-degenerate` does
//! with credit. Where no group has equal outcomes and `of` gives `groups` groups, it is `of`.
//!
//! Edge cases: what is short after `max_rounds` is reported (`rollout/refill/short`), and the update goes on with what there is, be
//! it nothing. Groups above the number are dropped, or kept for the next update (`surplus = "keep"`), one update older than
//! the policy then. A group with a path that stopped at the end of a macro step is kept: what that is worth is not known yet. Every round
//! draws new tasks. Dropped groups count in `cost/dropped_groups`, and all that was spent on
//! them in the other counts.
//!
//! Where the authors' code differs: it stops the run where `max_num_gen_batches` is not enough; and `seq_reward` may be another
//! metric.
//!
//! Cost: up to `max_rounds` times that of `of`, dropped groups included; with `surplus = "keep"` checkpoints hold the groups that are kept.

use ascribe_core::log::{End, GroupLog};
use ascribe_core::play::Decode;
use ascribe_core::range::Between;
use ascribe_core::rollout::{Acting, RolloutError};
use ascribe_core::{BuildContext, BuildError, Need, Provide, RolloutConfig, RolloutStrategy, Slot, plugin};
use ascribe_math::is_constant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stored::{self, Stored};

/// `[rollout.dynamic-sampling]`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DynamicSampling {
    /// The strategy that plays.
    pub of: Slot<dyn RolloutConfig>,
    /// Groups of an update, in 1..=65536.
    pub groups: Between<1, 65_536>,
    /// How often `of` is asked in an update, in 1..=1000. 10 in the authors' script.
    pub max_rounds: Between<1, 1000>,
    /// What becomes of groups above the number.
    #[serde(default)]
    pub surplus: Surplus,
}

/// What becomes of groups above the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Surplus {
    /// They are dropped (DAPO).
    #[default]
    Drop,
    /// The next update begins with them.
    Keep,
}

plugin! {
    Rollout "dynamic-sampling" {
        summary: "Drops groups whose outcomes are all equal, and plays others until the number is full.",
        source: "Yu et al. 2025, DAPO, arXiv 2503.14476; volcengine/verl",
        when: "With group-relative estimators, where many tasks are always or never solved. Costs every round's episodes; `drop-degenerate` drops without playing more.",
        example: "groups = 8\nmax_rounds = 10\nof.independent = { groups = 8, group_size = 8 }",
        module: "dynamic_sampling.rs",
    }
    impl RolloutConfig for DynamicSampling {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            let of = self.of.build(context)?;
            Ok(Box::new(Refill {
                of,
                groups: self.groups.get(),
                max_rounds: self.max_rounds.get(),
                surplus: self.surplus,
                kept: Vec::new(),
            }))
        }
        fn needs(&self) -> Vec<Need> {
            // The outcomes of a single path are always equal.
            [vec![Need::GroupOfAtLeast(2)], self.of.needs()].concat()
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

struct Refill {
    of: Box<dyn RolloutStrategy>,
    groups: usize,
    max_rounds: usize,
    surplus: Surplus,
    /// Groups above the number, for the next update.
    kept: Vec<Stored>,
}

/// Whether outcomes of paths that were tried differ. What a path is worth that stopped at the end of a macro step is not known yet: its group may.
fn differs(group: &GroupLog) -> bool {
    if group.leaves.iter().any(|leaf| leaf.end == End::MacroBoundary) {
        return true;
    }
    let outcome = |mut at: Option<usize>| {
        let mut sum = 0.0;
        while let Some(t) = at {
            let turn = &group.turns[t];
            let on_tokens: f64 = turn.token_rewards.iter().map(|(_, x)| f64::from(*x)).sum();
            sum += f64::from(turn.reward) + on_tokens;
            at = turn.parent;
        }
        sum
    };
    let tried = group.leaves.iter().filter(|leaf| leaf.end.trains() && leaf.end != End::Untried);
    !is_constant(&tried.map(|leaf| outcome(leaf.turn)).collect::<Vec<f64>>())
}

impl RolloutStrategy for Refill {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let update = acting.now.update;
        let mut groups: Vec<GroupLog> = self.kept.drain(..).map(|stored| stored.again(update)).collect();
        let (mut rounds, mut dropped) = (0, 0);
        while groups.len() < self.groups && rounds < self.max_rounds {
            if rounds > 0 {
                // Rounds count on through the whole update, so that strategies may stand in each other.
                acting.round += 1;
            }
            let (differing, equal): (Vec<GroupLog>, Vec<GroupLog>) = self.of.collect(acting)?.into_iter().partition(differs);
            groups.extend(differing);
            dropped += equal.len();
            rounds += 1;
        }
        let surplus = groups.split_off(self.groups.min(groups.len()));
        let n_surplus = surplus.len();
        match self.surplus {
            Surplus::Drop => dropped += n_surplus,
            Surplus::Keep => {
                let (kept, lost): (Vec<GroupLog>, Vec<GroupLog>) = surplus.into_iter().partition(stored::is_finite);
                dropped += lost.len();
                self.kept = kept.into_iter().map(|group| Stored { update, group }).collect();
            }
        }
        acting.ledger.dropped_groups += dropped as u64;
        acting.metrics.set("rollout/refill/rounds", rounds as f64);
        acting.metrics.set("rollout/refill/dropped", dropped as f64);
        acting.metrics.set("rollout/refill/surplus", n_surplus as f64);
        acting.metrics.set("rollout/refill/short", (self.groups - groups.len()) as f64);
        Ok(groups)
    }

    fn save(&self) -> Vec<u8> {
        stored::save(&self.kept, self.of.save())
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (kept, of) = stored::load(bytes)?;
        self.of.load(&of)?;
        self.kept = kept;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::log::{LeafLog, TurnLog};

    fn group(outcomes: &[(f32, End)]) -> GroupLog {
        let turns = outcomes.iter().map(|(reward, _)| TurnLog { reward: *reward, ..TurnLog::default() }).collect();
        let leaf = |(t, (_, end)): (usize, &(f32, End))| LeafLog { turn: Some(t), end: end.clone(), seed: 0 };
        GroupLog { turns, leaves: outcomes.iter().enumerate().map(leaf).collect(), ..GroupLog::default() }
    }

    #[test]
    fn outcomes_are_those_of_tried_paths_that_did_not_fail() {
        const WON: End = End::Terminated { success: true };
        assert!(differs(&group(&[(0.0, WON), (1.0, WON)])));
        assert!(!differs(&group(&[(1.0, WON), (1.0, WON)])));
        assert!(!differs(&group(&[(1.0, WON), (0.0, End::Failed("broken".into()))])));
        assert!(!differs(&group(&[(1.0, WON), (0.0, End::Untried)])));
        assert!(!differs(&group(&[(1.0, WON)])) && !differs(&group(&[])));
        assert!(differs(&group(&[(0.0, WON), (0.0, End::MacroBoundary)])), "a critic may tell them apart");
        // Rewards before a fork count on both sides, rewards on tokens too.
        let mut forked = group(&[(1.0, WON), (0.5, WON), (0.0, WON)]);
        forked.leaves.remove(0);
        forked.turns[1].parent = Some(0);
        forked.turns[2].parent = Some(0);
        assert!(differs(&forked));
        forked.turns[2].token_rewards = vec![(0, 0.25), (1, 0.25)];
        assert!(!differs(&forked));
    }
}
