//! Stored groups beside fresh ones.
//!
//! Each update the strategy `of` plays, and for `n` fresh groups `round(n · share/(1 − share))` stored ones come with them, so that about
//! `share` of the batch is stored. They are drawn without replacement among those that are at most `max_age` updates old; then the fresh
//! ones are stored, and the oldest above `capacity` forgotten.
//!
//! Experience replay: Lin 1992, "Self-Improving Reactive Agents Based on Reinforcement Learning, Planning and Teaching",
//! Machine Learning 8. Groups are replayed whole, so that baselines of a group stay those of the policy that played it.
//!
//! Reductions: with `share = 0` it is `of`; so is its first update.
//!
//! Edge cases: with fewer stored groups than asked for, all of them come (`rollout/replay/groups` says how many). A group keeps the
//! log-probabilities that it was sampled with: with `update.old = "behavior"` ratios correct for its age as far as they are not
//! clipped; `"recomputed"` takes it for fresh, and the comparison of both (`rollout/logprob_mismatch`) shows the age. Groups with
//! numbers that are not finite, and groups all of whose paths failed, are not stored. A curriculum sees outcomes of stored
//! groups again.
//!
//! Cost: no tokens and no environment steps; memory and checkpoints hold `capacity` groups.

use ascribe_core::log::GroupLog;
use ascribe_core::play::Decode;
use ascribe_core::range::{Between, Unit};
use ascribe_core::rollout::{Acting, RolloutError};
use ascribe_core::{BuildContext, BuildError, Draw, Need, Provide, RolloutConfig, RolloutStrategy, Slot, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stored::{self, Stored};

/// `[rollout.replay]`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The strategy that plays.
    pub of: Slot<dyn RolloutConfig>,
    /// Groups that are stored at most, in 1..=65536.
    pub capacity: Between<1, 65_536>,
    /// Share of an update's groups that are stored ones, in 0..=0.99.
    pub share: Unit,
    /// Updates after which a group is too old, in 1..=1000000.
    pub max_age: Between<1, 1_000_000>,
}

/// The largest share: 99 stored groups for a fresh one.
const MOST: f64 = 0.99;

plugin! {
    Rollout "replay" {
        summary: "Gives groups of earlier updates back beside fresh ones.",
        source: "Lin 1992, Machine Learning 8",
        when: "Where episodes are dear, with an objective that forms ratios (`ppo-clip`, `cispo`, `gspo`) and `update.old = \"behavior\"`. Old groups pull towards the policy that played them: keep `max_age` small.",
        example: "capacity = 64\nshare = 0.25\nmax_age = 8\nof.independent = { groups = 8, group_size = 8 }",
        module: "replay.rs",
    }
    impl RolloutConfig for Replay {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            if *self.share > MOST {
                return Err(BuildError::Config(format!("`share` must be in 0..={MOST}, got {}: fresh groups are needed", *self.share)));
            }
            let of = self.of.build(context)?;
            let (capacity, share, max_age) = (self.capacity.get(), *self.share, *self.max_age);
            Ok(Box::new(Replaying { of, capacity, share, max_age, groups: Vec::new() }))
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

struct Replaying {
    of: Box<dyn RolloutStrategy>,
    capacity: usize,
    share: f64,
    max_age: u64,
    /// Oldest first.
    groups: Vec<Stored>,
}

impl RolloutStrategy for Replaying {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let update = acting.now.update;
        let stream = acting.stream("replay");
        let mut groups = self.of.collect(acting)?;
        self.groups.retain(|stored| stored.age(update) <= self.max_age);
        let wanted = (groups.len() as f64 * self.share / (1.0 - self.share)).round() as usize;
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        acting.seeds.rng(&stream, Draw { update, ..Draw::default() }).shuffle(&mut order);
        order.truncate(wanted);
        order.sort_unstable();
        acting.metrics.set("rollout/replay/groups", order.len() as f64);
        acting.metrics.summarise("rollout/replay/age", order.iter().map(|i| self.groups[*i].age(update) as f64));

        let fresh = groups.iter().filter(|group| stored::is_finite(group) && stored::trains(group));
        let fresh: Vec<Stored> = fresh.map(|group| Stored { update, group: group.clone() }).collect();
        groups.extend(order.into_iter().map(|i| self.groups[i].again(update)));
        self.groups.extend(fresh);
        self.groups.drain(..self.groups.len().saturating_sub(self.capacity));
        acting.metrics.set("rollout/replay/stored", self.groups.len() as f64);
        Ok(groups)
    }

    fn save(&self) -> Vec<u8> {
        stored::save(&self.groups, self.of.save())
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (groups, of) = stored::load(bytes)?;
        self.of.load(&of)?;
        self.groups = groups;
        self.groups.drain(..self.groups.len().saturating_sub(self.capacity));
        Ok(())
    }
}
