//! Branches where the policy has become less sure than it was (ARPO's adaptive rollout).
//!
//! Per task, `initial` episodes start. After each turn that an episode goes on from, up to `most_per_turn` branches leave it,
//! each with probability
//!
//! `P = clip(p₀ + w ΔH, 0, 1)`, `ΔH = H − H₀`,
//!
//! where `H` is the mean entropy of the first `first_tokens` sampled tokens of that turn, over `ln |V|`, and `H₀` the same of the
//! first turn of its path. Where the episodes of a task have all ended and leaves are left, one episode starts anew, and may
//! branch itself. A group has exactly `leaves` leaves.
//!
//! Dong et al. 2025, "Agentic Reinforced Policy Optimization" (ARPO), arXiv 2507.19849; RUC-NLPIR/ARPO, `vllm_rollout_with_tools.py`,
//! from which the defaults and the rule of fresh episodes are. The estimator stays `grpo`: a shared turn trains once, with the
//! mean of the advantages of the paths below it (the paper's *hard* form).
//!
//! Reductions: with `most_per_turn = 0`, or `branch_probability = 0` and `entropy_weight = 0`, it is `independent` with
//! `group_size = leaves`. With `entropy_weight = 0` it branches at random.
//!
//! Edge cases: after the first turn `ΔH = 0`. A turn whose tokens had no alternative has entropy 0; a turn shorter than
//! `first_tokens` counts as it is. Where more branches are wanted than leaves are left, chance decides among them. A branch
//! that does not come back is a failed leaf of the budget. Environments that draw give each branch chance of its own.
//!
//! Where the authors' code differs: it takes the ten likeliest tokens' part of the entropy, sums over tokens, and keeps `H₀`
//! of the first batch that a worker ever saw; where leaves are left over it copies the last one. It favours episodes that come
//! early in the batch.
//!
//! Cost: a branch samples only what follows the turn that it leaves; with `restore = "replay"` the environment takes the steps before
//! it again. In tokens a group costs at most what `leaves` independent episodes do.

use std::collections::BTreeMap;

use ascribe_core::log::GroupLog;
use ascribe_core::play::{Branch, Crowd, Decode, Play};
use ascribe_core::range::{Between, NonNegative, Positive, Unit};
use ascribe_core::rollout::{Acting, RolloutError, node};
use ascribe_core::{BuildContext, BuildError, Draw, Need, Provide, RolloutConfig, RolloutStrategy, plugin};
use ascribe_math::branch_probability;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::branch::{self, Restore};

/// `[rollout.entropy-branch]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntropyBranch {
    /// Tasks per update, in 1..=65536.
    pub groups: Between<1, 65_536>,
    /// Leaves per task, in 1..=1024: M. 16 in the authors' script.
    pub leaves: Between<1, 1024>,
    /// Episodes that a task starts with, in 1..=1024, at most `leaves`: N. 8 in the authors' script.
    pub initial: Between<1, 1024>,
    /// Probability of a branch where the entropy is that of the first turn: p₀.
    #[serde(default = "half")]
    pub branch_probability: Unit,
    /// How much a rise of the entropy, in units of `ln |V|`, adds to it, 0 or more: w.
    #[serde(default = "a_fifth")]
    pub entropy_weight: NonNegative,
    /// Most branches that leave one episode after one turn, in 0..=64: the authors' beam size minus one.
    #[serde(default = "single")]
    pub most_per_turn: Between<0, 64>,
    /// Sampled tokens of a turn whose entropy counts, in 1..=100000: the first ones.
    #[serde(default = "twenty")]
    pub first_tokens: Between<1, 100_000>,
    /// How a branch comes back to its state: `snapshot` or `replay`.
    #[serde(default)]
    pub restore: Restore,
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

fn half() -> Unit {
    Unit::try_from(0.5).expect("in range")
}
fn a_fifth() -> NonNegative {
    NonNegative::try_from(0.2).expect("in range")
}
fn single() -> Between<0, 64> {
    Between::try_from(1).expect("in range")
}
fn twenty() -> Between<1, 100_000> {
    Between::try_from(20).expect("in range")
}

plugin! {
    Rollout "entropy-branch" {
        summary: "Episodes that branch where the policy has become less sure than in its first turn.",
        source: "Dong et al. 2025, ARPO, arXiv 2507.19849; RUC-NLPIR/ARPO",
        when: "With `grpo`, as in ARPO: more leaves per sampled token where answers of the environment surprise. With an estimator on trees it tells turns apart.",
        example: "groups = 8\nleaves = 16\ninitial = 8",
        module: "entropy_branch.rs",
    }
    impl RolloutConfig for EntropyBranch {
        fn build(&self, _context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            if self.initial.get() > self.leaves.get() {
                return Err(BuildError::Config(format!(
                    "`initial` is {}, more than the {} `leaves` of a task: start with fewer, or allow more",
                    *self.initial, *self.leaves
                )));
            }
            Ok(Box::new(self.clone()))
        }
        fn needs(&self) -> Vec<Need> {
            branch::needs(self.restore, self.decode)
        }
        fn provides(&self) -> Vec<Provide> {
            branch::provides(*self.leaves, self.may_branch())
        }
        fn agent(&self) -> &str {
            &self.agent
        }
        fn decode(&self) -> Decode {
            self.decode
        }
    }
}

/// A branch that is wanted.
struct Wish {
    at: Branch,
    /// Its draw over its probability, in 0..1: those with the smallest come first.
    rank: f64,
}

impl EntropyBranch {
    fn may_branch(&self) -> bool {
        *self.most_per_turn > 0 && self.initial < self.leaves && (*self.branch_probability > 0.0 || *self.entropy_weight > 0.0)
    }
}

impl RolloutStrategy for EntropyBranch {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let starts = acting.draw(self.groups.get())?;
        let stream = acting.stream("rollout");
        let play = Play {
            temperature: *self.temperature as f32,
            decode: self.decode,
            ..acting.play(&self.agent, &starts, self.initial.get(), &stream)
        };
        let Acting { nodes, tasks, ledger, metrics, .. } = acting;
        let policy = &mut **node(nodes, &self.agent)?;
        let nats = (policy.tokenizer().vocab_size().max(2) as f64).ln();
        let chance = format!("{stream}/branch");

        let mut crowd = Crowd::open(&play, policy, &**tasks, ledger)?;
        if self.initial < self.leaves {
            crowd.keep_prompts(policy)?;
        }
        // Episodes of each group; an episode's place among them is its member.
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); starts.len()];
        (0..crowd.len()).for_each(|e| members[crowd.group(e)].push(e));
        let mut first: BTreeMap<usize, f64> = BTreeMap::new();
        let (mut branches, mut fresh) = (0, 0);
        let (mut rises, mut probabilities) = (Vec::new(), Vec::new());
        loop {
            let acts: Vec<bool> = (0..crowd.len()).map(|e| crowd.is_live(e)).collect();
            crowd.step(policy, ledger)?;
            let mut wanted: Vec<Branch> = Vec::new();
            for (group, of_group) in members.iter().enumerate() {
                let room = self.leaves.get().saturating_sub(of_group.len());
                let mut wishes: Vec<Wish> = Vec::new();
                for (member, e) in of_group.iter().enumerate().filter(|(_, e)| room > 0 && acts[**e] && crowd.is_live(**e)) {
                    let path = crowd.path(*e);
                    let entropy = |turn| branch::entropy(turn, self.first_tokens.get()) / nats;
                    let h0 = *first.entry(*e).or_insert_with(|| entropy(path[0]));
                    let rise = entropy(path[path.len() - 1]) - h0;
                    let p = branch_probability(rise, *self.branch_probability, *self.entropy_weight);
                    rises.push(rise);
                    probabilities.push(p);
                    let draw = Draw { update: play.update, group: group as u32, member: member as u32, turn: path.len() as u32 };
                    let mut rng = play.seeds.rng(&chance, draw);
                    for _ in 0..self.most_per_turn.get() {
                        let u = rng.unit();
                        if u < p {
                            wishes.push(Wish { at: Branch { episode: *e, turns: path.len() }, rank: u / p });
                        }
                    }
                }
                // Given that it is below its probability, a draw over it is uniform: nobody comes first.
                wishes.sort_by(|a, b| a.rank.total_cmp(&b.rank));
                wishes.truncate(room);
                wishes.sort_by_key(|wish| wish.at);
                wanted.extend(wishes.into_iter().map(|wish| wish.at));
            }
            branches += wanted.len();
            crowd.branch(&wanted, policy, ledger)?.for_each(|e| members[crowd.group(e)].push(e));
            let idle = |of_group: &Vec<usize>| of_group.len() < self.leaves.get() && !of_group.iter().any(|e| crowd.is_live(*e));
            let groups: Vec<usize> = (0..members.len()).filter(|group| idle(&members[*group])).collect();
            fresh += groups.len();
            crowd.add(&groups, policy, ledger)?.for_each(|e| members[crowd.group(e)].push(e));
            let full = members.iter().all(|of_group| of_group.len() == self.leaves.get());
            if full && !(0..crowd.len()).any(|e| crowd.is_live(e)) {
                break;
            }
        }
        branch::report(metrics, branches, fresh);
        metrics.summarise("rollout/branch/entropy_rise", rises);
        metrics.summarise("rollout/branch/probability", probabilities);
        Ok(crowd.finish(policy, ledger))
    }
}
