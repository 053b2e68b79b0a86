//! Trees: episodes are played to their end, then some of their turns are sampled anew, and played on to the end.
//!
//! Per task, `roots` episodes; then `rounds` times `expansions` turns are picked, and from the state before each, `continuations`
//! episodes go on: siblings of the turn. A group has `roots + rounds · expansions · continuations` leaves, with `per = "tree"`
//! `roots · (1 + rounds · expansions · continuations)`. What is picked, of the turns (or states) of the group or tree:
//!
//! | `select` | picks | |
//! |---|---|---|
//! | `nll` | the turns with the largest `NLL − sibling_penalty · siblings` | AT2PO, TreeRL |
//! | `entropy` | the same with the mean entropy in place of the NLL | |
//! | `nll-per-child` | one after the other, the state with the largest `H(s)/n(s)` | CARL |
//! | `random` | any turn, with replacement | Tree-GRPO |
//!
//! `NLL = −mean_k log π(token_k)` over a turn's sampled tokens; `siblings` are the other turns from the same state of the tree;
//! `H(s)` is the mean NLL of the turns from a state, `n(s)` their number, those already picked included.
//!
//! | authors | keys |
//! |---|---|
//! | AT2PO, arXiv 2601.04767, zzfoutofspace/ATPO | `roots = 10`, `rounds = 2`, `expansions = 6`, `select = "nll"`, `sibling_penalty = 0.05`, `last_turns = false`: 22 leaves |
//! | TreeRL, arXiv 2506.11902, THUDM/TreeRL | `roots = 6`, `rounds = 1`, `expansions = 2`, `continuations = 2`, `per = "tree"`, `select = "nll"`: 30 leaves |
//! | Tree-GRPO, AMAP-ML/Tree-GRPO | `roots = 2`, `rounds = 1`, `expansions = 2`, `per = "tree"`, `select = "random"`: 6 leaves |
//! | CARL, arXiv 2512.04949 | `roots = 8`, `rounds = 16`, `expansions = 1`, `select = "nll-per-child"`: 24 leaves |
//!
//! Estimators under these names read the groups: `at2po`, `tree-rl`, `tree-grpo`, `carl`; also `tree-po`, and all that need no
//! chains.
//!
//! Reductions: with `rounds = 0` or `expansions = 0` it is `independent` with `group_size = roots`. On episodes of one turn
//! it is `independent` with chance of its own for each expansion.
//!
//! Edge cases: equal scores are picked in the order in which the turns were sampled. Where there are fewer turns than expansions, they are picked again, the
//! best first; where there is none (all episodes failed, or had one turn and `last_turns = false`), episodes start anew: the
//! number of leaves is exact. Turns of episodes that failed are not picked. A branch that does not come back is a failed leaf
//! of the budget. A first turn that is sampled anew begins a tree of its own for estimators; here it counts to the tree whose
//! first turn it was.
//!
//! Where the authors' code differs: TreeRL forks at tokens, this at turns, and draws 16 of its 30 leaves for training. Tree-GRPO
//! keeps three leaves per tree. AT2PO copies leaves where some are missing.
//!
//! Cost: a continuation samples only what follows the turn that it samples anew; with `restore = "replay"` the environment takes the steps
//! before it again.

use std::collections::BTreeMap;

use ascribe_core::log::{End, GroupLog};
use ascribe_core::play::{Branch, Crowd, Decode, Play};
use ascribe_core::range::{Between, NonNegative, Positive};
use ascribe_core::rollout::{Acting, RolloutError, node};
use ascribe_core::{BuildContext, BuildError, Draw, Need, Provide, Rng, RolloutConfig, RolloutStrategy, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::branch::{self, Restore};

/// `[rollout.tree]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// Tasks per update, in 1..=65536.
    pub groups: Between<1, 65_536>,
    /// Episodes that a task starts with, in 1..=1024.
    pub roots: Between<1, 1024>,
    /// How often turns are picked, in 0..=1024; what was sampled before can be picked.
    pub rounds: Between<0, 1024>,
    /// Turns that are picked in a round, in 0..=1024.
    pub expansions: Between<0, 1024>,
    /// Episodes that go on from the state before a picked turn, in 1..=1024.
    #[serde(default = "single")]
    pub continuations: Between<1, 1024>,
    /// Whether `expansions` is a number per group or per tree.
    #[serde(default)]
    pub per: Per,
    /// What is picked.
    pub select: Select,
    /// With `nll` and `entropy`: what each sibling of a turn takes from its score, in nats, 0 or more. 0.05 in AT2PO.
    #[serde(default = "nothing")]
    pub sibling_penalty: NonNegative,
    /// Whether the last turn of an episode can be picked. Not in AT2PO.
    #[serde(default = "yes")]
    pub last_turns: bool,
    /// How a branch comes back to its state: `snapshot` or `replay`.
    #[serde(default)]
    pub restore: Restore,
    /// Whether the policy keeps what it has read before every turn until the rollout is over. `false` saves that memory, and
    /// feeds each branch again what it shares.
    #[serde(default = "yes")]
    pub keep_sessions: bool,
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

/// What a number of expansions is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// All episodes of a task.
    #[default]
    Group,
    /// Each of the episodes that a task started with, and what branched from it.
    Tree,
}

/// What is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// Turns that were least likely per token (AT2PO, TreeRL).
    Nll,
    /// Turns whose tokens were drawn from the widest distributions.
    Entropy,
    /// States whose turns are least likely and few (CARL).
    NllPerChild,
    /// Any turn, with replacement (Tree-GRPO).
    Random,
}

fn single() -> Between<1, 1024> {
    Between::try_from(1).expect("in range")
}
fn nothing() -> NonNegative {
    NonNegative::try_from(0.0).expect("in range")
}
fn yes() -> bool {
    true
}

/// Most leaves of a task.
const MOST_LEAVES: u64 = 65_536;

plugin! {
    Rollout "tree" {
        summary: "Episodes whose turns are sampled anew once they are over: a tree per task.",
        source: "2026, AT2PO, arXiv 2601.04767; Hou et al. 2025, TreeRL, arXiv 2506.11902; 2025, CARL, arXiv 2512.04949v3; AMAP-ML/Tree-GRPO",
        when: "With estimators on trees (`at2po`, `tree-rl`, `carl`, `tree-grpo`, `tree-po`, `tree-value`). Costs the turns after each branch alone. For branches while episodes go on, `entropy-branch`.",
        example: "groups = 8\nroots = 10\nrounds = 2\nexpansions = 6\nselect = \"nll\"\nsibling_penalty = 0.05\nlast_turns = false",
        module: "tree.rs",
    }
    impl RolloutConfig for Tree {
        fn build(&self, _context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            if self.leaves() > MOST_LEAVES {
                return Err(BuildError::Config(format!(
                    "`roots`, `rounds`, `expansions` and `continuations` make {} leaves per task; at most {MOST_LEAVES} are allowed",
                    self.leaves()
                )));
            }
            let scored = matches!(self.select, Select::Nll | Select::Entropy);
            if *self.sibling_penalty > 0.0 && !scored {
                return Err(BuildError::Config(
                    "`sibling_penalty` is for `select = \"nll\"` and `select = \"entropy\"`: leave it out here".into(),
                ));
            }
            Ok(Box::new(self.clone()))
        }
        fn needs(&self) -> Vec<Need> {
            branch::needs(self.restore, self.decode)
        }
        fn provides(&self) -> Vec<Provide> {
            branch::provides(self.leaves(), self.branches() > 0)
        }
        fn agent(&self) -> &str {
            &self.agent
        }
        fn decode(&self) -> Decode {
            self.decode
        }
    }
}

/// A turn of the tree.
struct Node {
    /// The tree it counts to.
    tree: usize,
    /// Where a sibling leaves.
    at: Branch,
    /// The turn it continues, as its episode and number on the path; `None` is the start.
    parent: Option<(usize, usize)>,
    /// Whether an episode ended with it.
    last: bool,
    nll: f64,
    entropy: f64,
}

impl Tree {
    /// Branches per group.
    fn branches(&self) -> u64 {
        let trees = if self.per == Per::Tree { *self.roots } else { 1 };
        // At most 2^40: every factor is at most 2^10.
        *self.rounds * *self.expansions * *self.continuations * trees
    }

    fn leaves(&self) -> u64 {
        *self.roots + self.branches()
    }

    /// The states that `nodes` are sampled anew from, `expansions` of them; none if there is nothing to choose from.
    fn pick(&self, nodes: &[&Node], rng: &mut Rng) -> Vec<Branch> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let n = self.expansions.get();
        let mut by_state: BTreeMap<Option<(usize, usize)>, Vec<&Node>> = BTreeMap::new();
        nodes.iter().for_each(|node| by_state.entry(node.parent).or_default().push(node));
        match self.select {
            Select::Random => (0..n).filter_map(|_| rng.choose(nodes)).map(|node| node.at).collect(),
            Select::Nll | Select::Entropy => {
                let score = |node: &Node| {
                    let siblings = by_state[&node.parent].len() - 1;
                    let unsure = if self.select == Select::Nll { node.nll } else { node.entropy };
                    unsure - *self.sibling_penalty * siblings as f64
                };
                let mut ranked: Vec<(f64, Branch)> = nodes.iter().map(|node| (score(node), node.at)).collect();
                ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
                ranked.iter().map(|(_, at)| *at).cycle().take(n).collect()
            }
            Select::NllPerChild => {
                let mut states: Vec<(Branch, f64, usize)> = by_state
                    .values()
                    .map(|turns| (turns[0].at, turns.iter().map(|node| node.nll).sum::<f64>() / turns.len() as f64, turns.len()))
                    .collect();
                states.sort_by_key(|(at, ..)| *at);
                (0..n)
                    .filter_map(|_| {
                        let score = |(_, h, n): &(Branch, f64, usize)| h / *n as f64;
                        let best = states.iter().map(score).fold(f64::NEG_INFINITY, f64::max);
                        let state = states.iter_mut().find(|state| score(state) == best)?;
                        state.2 += self.continuations.get();
                        Some(state.0)
                    })
                    .collect()
            }
        }
    }
}

/// The turns of each group that can be sampled anew, in the order of their episodes.
fn nodes(crowd: &Crowd<'_>, trees: &[usize], groups: usize) -> Vec<Vec<Node>> {
    let mut nodes: Vec<Vec<Node>> = (0..groups).map(|_| Vec::new()).collect();
    for episode in (0..crowd.len()).filter(|e| !matches!(crowd.end(*e), Some(End::Failed(_)))) {
        let path = crowd.path(episode);
        let left = crowd.branched_from(episode);
        let shared = left.map_or(0, |branch| branch.turns);
        for (turns, turn) in path.iter().enumerate().skip(shared) {
            let parent = match left {
                _ if turns == 0 => None,
                Some(branch) if turns == shared => Some(maker(crowd, branch)),
                _ => Some((episode, turns)),
            };
            nodes[crowd.group(episode)].push(Node {
                tree: trees[episode],
                at: Branch { episode, turns },
                parent,
                last: turns + 1 == path.len(),
                nll: branch::negative_log_likelihood(turn),
                entropy: branch::entropy(turn, usize::MAX),
            });
        }
    }
    nodes
}

/// The episode that made the last turn before a branch, and how many turns it had then.
fn maker(crowd: &Crowd<'_>, mut branch: Branch) -> (usize, usize) {
    let turns = branch.turns;
    while let Some(from) = crowd.branched_from(branch.episode).filter(|from| from.turns >= turns) {
        branch = from;
    }
    (branch.episode, turns)
}

impl RolloutStrategy for Tree {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let starts = acting.draw(self.groups.get())?;
        let stream = acting.stream("rollout");
        let play = Play {
            temperature: *self.temperature as f32,
            decode: self.decode,
            ..acting.play(&self.agent, &starts, self.roots.get(), &stream)
        };
        let Acting { nodes: policies, tasks, ledger, metrics, .. } = acting;
        let policy = &mut **node(policies, &self.agent)?;
        let chance = format!("{stream}/select");

        let mut crowd = Crowd::open(&play, policy, &**tasks, ledger)?;
        if self.branches() > 0 {
            crowd.keep_prompts(policy)?;
            if self.keep_sessions {
                crowd.keep_sessions();
            }
        }
        while crowd.step(policy, ledger)? {}
        let mut trees: Vec<usize> = (0..crowd.len()).collect();
        let mut n_fresh = 0;
        let mut depths: Vec<f64> = Vec::new();
        for round in (0..self.rounds.get()).take_while(|_| self.branches() > 0) {
            let mut branches: Vec<Branch> = Vec::new();
            // A group and the tree that an episode counts to, where there is nothing to branch from.
            let mut fresh: Vec<(usize, usize)> = Vec::new();
            for (group, of_group) in nodes(&crowd, &trees, starts.len()).iter().enumerate() {
                let roots = group * play.members..(group + 1) * play.members;
                let own: Vec<&Node> = of_group.iter().filter(|node| self.last_turns || !node.last).collect();
                let scopes: Vec<(usize, Vec<&Node>)> = match self.per {
                    Per::Group => vec![(roots.start, own)],
                    Per::Tree => {
                        roots.map(|root| (root, own.iter().filter(|node| node.tree == root).copied().collect())).collect()
                    }
                };
                for (root, own) in scopes {
                    let draw = Draw {
                        update: play.update,
                        group: group as u32,
                        member: (root % play.members) as u32,
                        turn: round as u32,
                    };
                    let picked = self.pick(&own, &mut play.seeds.rng(&chance, draw));
                    let again = picked.iter().flat_map(|at| std::iter::repeat_n(*at, self.continuations.get()));
                    branches.extend(again);
                    if picked.is_empty() {
                        fresh.extend(std::iter::repeat_n((group, root), self.expansions.get() * self.continuations.get()));
                    }
                }
            }
            trees.extend(branches.iter().map(|branch| trees[branch.episode]).collect::<Vec<_>>());
            trees.extend(fresh.iter().map(|(_, tree)| *tree));
            depths.extend(branches.iter().map(|branch| branch.turns as f64));
            n_fresh += fresh.len();
            crowd.branch(&branches, policy, ledger)?;
            crowd.add(&fresh.into_iter().map(|(group, _)| group).collect::<Vec<_>>(), policy, ledger)?;
            while crowd.step(policy, ledger)? {}
        }
        branch::report(metrics, depths.len(), n_fresh);
        metrics.summarise("rollout/branch/shared_turns", depths);
        Ok(crowd.finish(policy, ledger))
    }
}
