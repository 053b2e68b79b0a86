//! Macro steps: a few turns from a task's beginning or from a state that an earlier macro step ended in.
//!
//! Each update plays `starts` groups of `branches` members, each for `turns` turns at most. Who is still there then stops at a macro
//! boundary ([`End::MacroBoundary`]): an estimator continues its return with a critic's value, and its state goes to the store, with the
//! way back, the tokens that were read and said, and their log-probabilities of then. Later updates begin there: a task is walked
//! through in pieces, over many updates, each paying for `turns` turns. An end that is one, or a limit, is stored by nobody.
//!
//! Of the starts, `fresh_share` are new tasks in the long run, more where the store has too few states; the others are drawn uniformly from
//! the store, none twice in an update. With `remove` a state is begun in once. Above `capacity` the oldest states make room.
//!
//! A restored state is compared with the stored one byte for byte. Where it differs, is refused, or no longer fits the policy's context,
//! its group fails before its first turn, with the first difference as the reason: it trains nothing, its state is dropped and counted
//! (`td/restore_failures`), and a new task is played in its place.
//!
//! Dots team 2026, "TEMPO: Test-Time-Scaled Value Estimation with Macro-Step Policy Optimization" (blog; no paper and no code of the
//! authors); the reproduction KMnO4-zx/agentic-rl-lab `09-tempo/states.py`, `rollout.py`, `train.py`.
//! Reductions: with `turns` at least the limit of turns it is `independent` with `groups = starts`, record for record; with `fresh_share = 1` it is
//! that with episodes cut after `turns` turns.
//!
//! Edge cases: a limit of turns that comes with the boundary is the limit. A boundary whose next prompt would not fit the context is
//! cut by the context. Members of a group meet chance of their own from a restored state on, and that of their task from its beginning.
//! Where the reproduction differs (`mode = "official"`): new tasks are drawn only while the store has too few states, so that none
//! ever come again once it is full; states stay in the store until they are evicted; and a boundary comes before the context's limit.
//! An explicit `fresh_share` or `remove` holds in both modes.
//!
//! Cost: the tokens of a start's history, fed once per group; per turn of a member as `independent`; one restore per member. Without exact
//! snapshots all turns before a start are played again for each member, as environment steps. Checkpoints hold the store.

mod store;

use ascribe_core::environment::TaskId;
use ascribe_core::log::{End, GroupLog, Limit};
use ascribe_core::play::{Crowd, Decode, Play, Start, State};
use ascribe_core::range::{AtLeast, Between, Positive, Unit};
use ascribe_core::rollout::{Acting, RolloutError, node};
use ascribe_core::{BuildContext, BuildError, Draw, Metrics, Need, Provide, RolloutConfig, RolloutStrategy, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use store::{Evicted, StateStore, StoredState};

use crate::Episodes;

/// `[rollout.macro-step]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MacroStep {
    /// Turns of a macro step, at least 1.
    pub turns: AtLeast<1>,
    /// Starts per update, at least 1; times `branches` at most 2^20.
    pub starts: Episodes,
    /// Members per start, at least 1; group-relative estimators need 2.
    pub branches: Episodes,
    /// States that are stored at most, in 1..=65536.
    #[serde(default = "two_hundred_fifty_six")]
    pub capacity: Between<1, 65_536>,
    /// Share of the starts that are new tasks, in 0..=1. By default a quarter; none in the official mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_share: Option<Unit>,
    /// Whether a state leaves the store when a group begins in it. By default it does; in the official mode it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove: Option<bool>,
    /// Sampling temperature, positive.
    #[serde(default = "crate::one")]
    pub temperature: Positive,
    /// What actions may be made of.
    #[serde(default)]
    pub decode: Decode,
    /// Policy node that acts.
    #[serde(default = "crate::actor")]
    pub agent: String,
    /// Where description and reproduction differ: new tasks, states that were used, and a boundary at the context's limit.
    #[serde(default)]
    pub mode: MacroStepMode,
}

/// Where description and reproduction of macro steps differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MacroStepMode {
    /// New tasks never dry up, and a state is begun in once.
    #[default]
    Paper,
    /// New tasks come while the store has too few states; states stay until they are evicted.
    Official,
}

fn two_hundred_fifty_six() -> Between<1, 65_536> {
    Between::try_from(256).expect("in range")
}

plugin! {
    Rollout "macro-step" {
        summary: "A few turns from a new task or a stored state; where they stop is stored for later updates.",
        source: "Dots team 2026, TEMPO: Test-Time-Scaled Value Estimation with Macro-Step Policy Optimization (blog); KMnO4-zx/agentic-rl-lab 09-tempo",
        when: "Episodes too long to be played out for each update, with an estimator that continues returns (`tempo`, `gae`, `n-step`) and a critic for where they stop. Where episodes can be played out, `independent` needs no critic.",
        example: "turns = 10\nstarts = 4\nbranches = 4",
        module: "mod.rs",
    }
    impl RolloutConfig for MacroStep {
        fn build(&self, _context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            crate::check_size(("starts", self.starts), ("branches", self.branches))?;
            Ok(Box::new(Walking { store: StateStore::new(self.capacity.get()), config: self.clone() }))
        }
        fn needs(&self) -> Vec<Need> {
            crate::needs_of(self.decode)
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::GroupOfAtLeast(*self.branches), Need::Chains, Need::BehaviorLogprob, Need::Entropy]
        }
        fn whole_episodes(&self) -> bool {
            false
        }
        fn agent(&self) -> &str {
            &self.agent
        }
        fn decode(&self) -> Decode {
            self.decode
        }
    }
}

impl MacroStep {
    /// Starts of an update that are new tasks whatever the store holds: over many updates their share is exact.
    fn fresh(&self, update: u32) -> usize {
        let share = self.fresh_share.map_or(if self.mode == MacroStepMode::Official { 0.0 } else { 0.25 }, |share| *share);
        let until = |update: f64| (update * *self.starts as f64 * share).round();
        (until(f64::from(update) + 1.0) - until(f64::from(update))) as usize
    }

    fn removes(&self) -> bool {
        self.remove.unwrap_or(self.mode == MacroStepMode::Paper)
    }

    /// How a path of so many turns ended that stopped in this way: officially a boundary comes before the context's limit.
    pub fn end(&self, turns: usize, end: End) -> End {
        let at_boundary = turns == self.turns.get() && end == End::Truncated(Limit::Context);
        if at_boundary && self.mode == MacroStepMode::Official { End::MacroBoundary } else { end }
    }
}

struct Walking {
    config: MacroStep,
    store: StateStore,
}

/// What came of a macro step.
#[derive(Default)]
struct Played {
    groups: Vec<GroupLog>,
    /// Task, state, and group of every boundary that can be continued.
    boundaries: Vec<(TaskId, State, usize)>,
    /// Groups that did not come back to their start.
    lost: Vec<usize>,
}

impl Walking {
    /// Plays a macro step from each start.
    fn play(&self, starts: &[Start], stream: &str, acting: &mut Acting<'_>) -> Result<Played, RolloutError> {
        if starts.is_empty() {
            return Ok(Played::default());
        }
        let config = &self.config;
        let play = Play {
            temperature: *config.temperature as f32,
            decode: config.decode,
            ..acting.play(&config.agent, starts, config.branches.get(), stream)
        };
        let Acting { nodes, tasks, ledger, .. } = acting;
        let policy = &mut **node(nodes, &config.agent)?;
        let mut crowd = Crowd::open(&play, policy, &**tasks, ledger)?;
        let mut lost: Vec<usize> = (0..crowd.len())
            .filter(|e| starts[crowd.group(*e)].state.is_some() && !crowd.is_live(*e))
            .map(|e| crowd.group(e))
            .collect();
        lost.dedup();
        for e in 0..crowd.len() {
            if lost.contains(&crowd.group(e)) {
                crowd.end_at(e, End::Failed("another member did not come back to this start".into()));
            }
        }
        for _ in 0..config.turns.get() {
            if !crowd.step(policy, ledger)? {
                break;
            }
        }
        let mut boundaries = Vec::new();
        for e in 0..crowd.len() {
            if crowd.is_live(e) {
                let group = crowd.group(e);
                let end = match crowd.state(e) {
                    Ok(state) => {
                        boundaries.push((starts[group].task.clone(), state, group));
                        End::MacroBoundary
                    }
                    Err(e) => End::Failed(e.0),
                };
                crowd.end_at(e, end);
            }
        }
        let mut groups = crowd.finish(policy, ledger);
        for group in &mut groups {
            let depth = depths(group);
            for (leaf, turns) in group.leaves.iter_mut().zip(depth) {
                leaf.end = config.end(turns, std::mem::replace(&mut leaf.end, End::Untried));
            }
        }
        Ok(Played { groups, boundaries, lost })
    }
}

/// Turns of each path from the group's start on.
fn depths(group: &GroupLog) -> Vec<usize> {
    let mut of_turn: Vec<usize> = Vec::with_capacity(group.turns.len());
    for turn in &group.turns {
        of_turn.push(turn.parent.map_or(0, |parent| of_turn[parent]) + 1);
    }
    group.leaves.iter().map(|leaf| leaf.turn.map_or(0, |turn| of_turn[turn])).collect()
}

/// Reports a count; rounds of one update add up.
fn count(metrics: &mut Metrics, name: &str, n: usize) {
    metrics.set(name, metrics.get(name).unwrap_or(0.0) + n as f64);
}

impl RolloutStrategy for Walking {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let update = acting.now.update;
        let n = self.config.starts.get();
        let stored = n.saturating_sub(self.config.fresh(update));
        let mut rng = acting.seeds.rng(&acting.stream("store"), Draw { update, ..Draw::default() });
        let drawn = self.store.sample(stored, self.config.removes(), &mut rng);
        let n_fresh = n - drawn.len();
        let mut starts = if n_fresh > 0 { acting.draw(n_fresh)? } else { Vec::new() };
        starts.extend(drawn.iter().map(|state| state.start(update)));
        let mut played = self.play(&starts, &acting.stream("rollout"), acting)?;

        // Macro steps before each group's start: the new tasks come first.
        let mut before: Vec<u32> = vec![0; n_fresh];
        before.extend(drawn.iter().map(|state| state.macro_index));
        let n_lost = played.lost.len();
        if n_lost > 0 {
            played.lost.iter().for_each(|group| self.store.drop_state(drawn[group - n_fresh].number));
            let instead = acting.draw(n_lost)?;
            let stream = acting.stream("rollout/instead");
            let more = self.play(&instead, &stream, acting)?;
            let first = played.groups.len();
            played.groups.extend(more.groups);
            played.boundaries.extend(more.boundaries.into_iter().map(|(task, state, group)| (task, state, first + group)));
            before.resize(first + n_lost, 0);
        }
        let metrics = &mut *acting.metrics;
        count(metrics, "td/fresh_states", n_fresh + n_lost);
        count(metrics, "td/restore_failures", n_lost);
        let begun = (0..before.len()).filter(|group| !played.lost.contains(group));
        let indices: Vec<f64> = begun.map(|group| f64::from(before[group])).collect();
        metrics.set("td/macro_index_mean", indices.iter().sum::<f64>() / indices.len().max(1) as f64);
        metrics.summarise("td/start_age", drawn.iter().map(|state| state.age(update) as f64));
        count(metrics, "td/new_endpoints", played.boundaries.len());
        let new = played.boundaries.into_iter().map(|(task, state, group)| (task, state, before[group] + 1));
        let evicted = self.store.add(update, new);
        count(metrics, "td/evicted", evicted.states);
        count(metrics, "td/evicted_unused", evicted.unused);
        metrics.set("td/store_size", self.store.states().len() as f64);
        metrics.set("td/store_tasks", self.store.n_tasks() as f64);
        metrics.summarise("td/store_age", self.store.states().map(|state| state.age(update) as f64));
        Ok(played.groups)
    }

    fn save(&self) -> Vec<u8> {
        self.store.save()
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.store.load(bytes)
    }
}
