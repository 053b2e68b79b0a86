//! Values by playing on: the mean return of continuations that the policy plays from a state.
//!
//! `V(s) = (1/K) Σ_k Σ_j γ^j r_{k,j}` over `K` continuations of `s`, played to their end by the policy as it is now. Judged are the
//! start of each path and the state after every turn. Given are `mc_value`, and the same numbers as `value` (`as_value`).
//!
//! Kazemnejad et al. 2024, "VinePPO", arXiv 2410.01679; McGill-NLP/VinePPO `math_episode_generator_with_mc_advantages.py` (`K = 9`,
//! undiscounted; equal prefixes once; states behind the 20th or 25th filled from below: `states_per_path`). With the estimator
//! `vine` it is their method; `samples = 1`, `temperature = 0.0` and `states_per_path = 1` give the estimator `remax` its greedy baseline
//! (Li et al. 2023, arXiv 2310.10505).
//!
//! * **Equal states** of a task are estimated once, from where they were met first. What is equal is the state of the
//!   environment; a policy that reads its whole sequence goes on from each way there differently: `equal = "sequences"`.
//! * **Ends.** A state in which the task is over is worth 0, without a probe. Where a segment
//!   ended before the episode did, its last state is probed within the turns that the task has left. Where a limit of turns, tokens,
//!   context or time cut the episode, it is worth 0: what the task still pays.
//! * **When enough is enough.** Each state gets `samples` probes. With `max_samples` and `tight`, states whose mean is not known within
//!   ±`tight` get as many again, round after round, up to `max_samples`. The bound is that of a 95 % interval, `1.96 s/√n` with the sample
//!   deviation `s`: probes that all agree count as certain, so `samples` should not be small. Stopping by what was seen pulls the
//!   mean towards what looks certain early.
//! * **Way back.** `restore = "snapshot"` restores bytes; `"replay"` says again what was said, and verifies every reward and state
//!   key. Both meet the same chance: random numbers are keyed by the state's place in the update and by `k`. Where there is
//!   chance, a branch, and a member of a group that begins in a stored state, met other chance than its group's start and cannot be
//!   replayed.
//! * **Failures.** A probe that breaks, or takes longer than `patience` for a step, is left out of the mean, counted in
//!   `critic/NAME/failed_probes`, and told with the first reason. A state of which no probe came to an end stops the run, or (`failed = "fill"`)
//!   gets what lies below it: `V(s) = mean over the turns that continue it of r + γ V(next)`, 0 where nothing does.
//! * **How probes act**: freely, or among the environment's admissible actions, as the records were made.
//! * **What is paid** to probes is the environment's reward. Reward columns of critics and weights in `[reward]` are not in it.
//! * **What is attainable.** `critic/NAME/explained_variance` compares the values with the returns that the batch's own episodes had
//!   from there on, which are independent of the probes. A mean over `K` probes is off by its own noise: exact values would explain
//!   `1 − (1 − x) K/(K + 1)` where these explain `x`.
//! * Cost: `samples` episodes from every judged state to the end. Tokens that probes sample and read are `branch_tokens` of the ledger; their steps and restores count as such.

use std::collections::BTreeMap;

use ascribe_core::environment::TaskId;
use ascribe_core::key::KeyId;
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Context, GroupLog, History, Origin, Stop};
use ascribe_core::play::{Back, Decode, Deed, Keep, Play, Start, State};
use ascribe_core::policy::PolicyError;
use ascribe_core::range::{AtLeast, Between, NonNegative, Positive, Seconds, Unit};
use ascribe_core::rollout::{Acting, RolloutError, node};
use ascribe_core::{Batch, BuildContext, BuildError, Critic, CriticConfig, End, Group, Need, Provide, Scope, Signal, plugin};
use ascribe_math::{Deviation, explained_variance, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::states::{self, VALUE};
use crate::targets::MC_VALUE;

/// How a probe comes back to its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Restore {
    /// From the last snapshot on the way.
    #[default]
    Snapshot,
    /// By what was done since the task's beginning.
    Replay,
}

/// Which states are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Equal {
    /// Those with the same exact key.
    #[default]
    States,
    /// Those with the same key in which the policy has read and said the same.
    Sequences,
}

/// What becomes of a state of which every probe failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Failed {
    /// The run stops.
    #[default]
    Stop,
    /// It gets what lies below it.
    Fill,
}

/// `[critic.NAME.monte-carlo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MonteCarlo {
    /// Probes of each state, in 1..=65536; VinePPO takes 9.
    #[serde(default = "nine")]
    pub samples: Between<1, 65_536>,
    /// Most probes of a state, where `tight` asks for more; above `samples`, at most 65536.
    #[serde(default)]
    pub max_samples: Option<Between<1, 65_536>>,
    /// Half-width of a 95 % interval at which a state needs no more probes, in units of reward.
    #[serde(default)]
    pub tight: Option<Positive>,
    /// Most states of a path that are probed, from its start on; those behind get what lies below them. Without it, all.
    #[serde(default)]
    pub states_per_path: Option<AtLeast<1>>,
    /// How a probe comes back to its state.
    #[serde(default)]
    pub restore: Restore,
    /// Which states are estimated once.
    #[serde(default)]
    pub equal: Equal,
    /// Sampling temperature of probes; 0 is greedy.
    #[serde(default = "one")]
    pub temperature: NonNegative,
    /// Discount per turn, in 0..=1.
    #[serde(default = "undiscounted")]
    pub gamma: Unit,
    /// Longest time of an environment's step, in seconds; without it, that of `run.patience`.
    #[serde(default)]
    pub patience: Option<Seconds>,
    /// What becomes of a state of which every probe failed.
    #[serde(default)]
    pub failed: Failed,
    /// Probes that run side by side, in 1..=65536. Another number gives them other random numbers.
    #[serde(default = "side_by_side")]
    pub at_once: Between<1, 65_536>,
    /// Whether the column `value` is given too; not where another critic gives it.
    #[serde(default = "yes")]
    pub as_value: bool,
    /// Policy node that plays.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

fn nine() -> Between<1, 65_536> {
    Between::try_from(9).expect("in range")
}
fn side_by_side() -> Between<1, 65_536> {
    Between::try_from(512).expect("in range")
}
fn one() -> NonNegative {
    NonNegative::try_from(1.0).expect("in range")
}
fn undiscounted() -> Unit {
    Unit::try_from(1.0).expect("in range")
}
fn yes() -> bool {
    true
}

plugin! {
    Critic "monte-carlo" {
        summary: "Values by playing on from every state, several times.",
        source: "Kazemnejad et al. 2024, VinePPO, arXiv 2410.01679; McGill-NLP/VinePPO",
        when: "Where states can be restored and steps are cheap: values without a trained critic, for `vine`, `gae`, `td` and, played greedily, \
               `remax`. A path of T turns costs T·K continuations.",
        example: "samples = 9\nrestore = \"snapshot\"",
        module: "monte_carlo.rs",
    }
    impl CriticConfig for MonteCarlo {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            let max_samples = match (self.max_samples, self.tight) {
                (None, None) => self.samples.get(),
                (Some(max), Some(_)) if max > self.samples => max.get(),
                (Some(max), Some(_)) => {
                    let (max, samples) = (*max, *self.samples);
                    return Err(BuildError::Config(format!("`max_samples` is {max} and must be above `samples`, {samples}")));
                }
                (Some(_), None) => {
                    return Err(BuildError::Config("`max_samples` needs `tight`: when a state has enough probes".into()));
                }
                (None, Some(_)) => {
                    return Err(BuildError::Config("`tight` needs `max_samples`: how many probes a state may get".into()));
                }
            };
            Ok(Box::new(Prober { name: name.into(), config: self.clone(), max_samples, asked: (0, 0) }))
        }
        fn needs(&self) -> Vec<Need> {
            let mut needs = vec![Need::ExactStateKey, Need::Node(self.agent.clone())];
            needs.push(match self.restore {
                Restore::Snapshot => Need::ExactSnapshot,
                // What was done before a group's start is not in its records.
                Restore::Replay => Need::WholeEpisodes,
            });
            needs
        }
        fn provides(&self) -> Vec<Provide> {
            columns(self).map(|name| Need::Signal(name.into(), Scope::State)).collect()
        }
    }
}

fn columns(config: &MonteCarlo) -> impl Iterator<Item = &'static str> + use<> {
    std::iter::once(MC_VALUE).chain(config.as_value.then_some(VALUE))
}

struct Prober {
    name: String,
    config: MonteCarlo,
    max_samples: usize,
    /// An update, and how often it was asked in it: rollouts may ask several times, for other random numbers each time.
    asked: (u32, u32),
}

/// What a state's value is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Worth {
    /// Nothing can be paid any more.
    Nothing,
    /// The probes of a state, by its place among those that are probed.
    Probes(usize),
    /// What lies below.
    Below,
}

/// A state that is probed, and what its probes were paid.
struct Probed {
    start: Start,
    tried: usize,
    returns: Vec<f64>,
    failure: Option<String>,
}

impl Probed {
    /// Half of a 95 % interval of the mean; infinite while nothing is known of the spread.
    fn half_width(&self) -> f64 {
        let moments = moments(&self.returns);
        if moments.n < 2 { f64::INFINITY } else { 1.96 * moments.deviation(Deviation::Sample) / (moments.n as f64).sqrt() }
    }

    fn value(&self) -> Option<f64> {
        (!self.returns.is_empty()).then(|| moments(&self.returns).mean)
    }
}

impl Critic for Prober {
    fn provides(&self) -> Vec<(String, Scope)> {
        columns(&self.config).map(|name| (name.into(), Scope::State)).collect()
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let decode = self.decode(batch, acting.tasks.capabilities().provides.contains(&Need::Admissible))?;
        let max_turns = acting.tasks.capabilities().max_turns;
        let (worth, mut states) = self.survey(batch, max_turns)?;
        let stream = self.stream(acting);
        self.probe(&mut states, decode, &stream, acting)?;
        self.report(&states, acting)?;

        let values: Vec<Option<f64>> = states.iter().map(Probed::value).collect();
        let of_group: Vec<Vec<f64>> = batch.groups().map(|group| self.values(group, &worth[group.index()], &values)).collect();
        if let Some(explained) = self.explained(batch, &worth, &values, &of_group) {
            acting.metrics.set(format!("critic/{}/explained_variance", self.name), explained);
        }
        let column = states::column(batch, |group, after| Some(of_group[group.index()][after.map_or(0, |t| t + 1)] as f32));
        let signal =
            |name: &str| (name.into(), Signal { scope: Scope::State, provider: self.name.clone(), column: column.clone() });
        Ok(columns(&self.config).map(signal).collect())
    }
}

impl Prober {
    /// How the records were made, which is how probes act.
    ///
    /// * `lists`: whether the environment lists admissible actions
    fn decode(&self, batch: &Batch, lists: bool) -> Result<Decode, PolicyError> {
        let Some(agent) = batch.agents.get_index_of(&self.config.agent) else { return Ok(Decode::Free) };
        let rows = (0..batch.turns.parent.len()).filter(|row| batch.turns.agent[*row] as usize == agent);
        let (mut free, mut admissible) = (false, false);
        for i in rows.flat_map(|row| batch.turns.sampled[row].range()) {
            *(if batch.sampled.support[i] == 0 { &mut free } else { &mut admissible }) = true;
        }
        match (free, admissible) {
            (true, false) => Ok(Decode::Free),
            (false, true) => Ok(Decode::Admissible),
            // Nothing had an alternative: where there is a list, it had one action.
            (false, false) => Ok(if lists { Decode::Admissible } else { Decode::Free }),
            (true, true) => Err(PolicyError::Unsupported(format!(
                "some actions of `{}` were chosen among admissible ones and some were not: its probes can only act in one way",
                self.config.agent
            ))),
        }
    }

    /// The stream of random numbers of this question.
    fn stream(&mut self, acting: &Acting<'_>) -> String {
        let update = acting.now.update;
        self.asked = if self.asked.0 == update { (update, self.asked.1 + 1) } else { (update, 1) };
        let stream = acting.stream(&format!("critic/{}", self.name));
        if self.asked.1 == 1 { stream } else { format!("{stream}/asked-{}", self.asked.1) }
    }

    /// What every state of every group is worth, `[groups][turns + 1]`, and the states to probe.
    fn survey(&self, batch: &Batch, max_turns: usize) -> Result<(Vec<Vec<Worth>>, Vec<Probed>), PolicyError> {
        let mut known: BTreeMap<(&TaskId, KeyId, Vec<u32>), usize> = BTreeMap::new();
        let mut states: Vec<Probed> = Vec::new();
        let mut worth = Vec::with_capacity(batch.groups.len());
        for group in batch.groups() {
            // The turns before each state, and whether it was reached.
            let mut depth = vec![0; group.n_turns() + 1];
            let tried = group.tried();
            let mut of_group = Vec::with_capacity(group.n_turns() + 1);
            for after in std::iter::once(None).chain((0..group.n_turns()).map(Some)) {
                if let Some(t) = after {
                    depth[t + 1] = depth[group.parent(t).map_or(0, |p| p + 1)] + 1;
                }
                let turns = depth[after.map_or(0, |t| t + 1)];
                let reached = after.is_none_or(|t| tried[t]);
                let end = after.and_then(|t| group.end(t).filter(|_| group.n_children(t) == 0));
                let out_of_turns = group.about().before + turns >= max_turns;
                let nothing = match end {
                    Some(End::Terminated { .. } | End::Untried | End::Failed(_)) => true,
                    Some(End::MacroBoundary) => out_of_turns,
                    Some(End::Truncated(_)) => true,
                    None => false,
                };
                let Some(key) = states::key(group, after).filter(|_| reached && !nothing) else {
                    of_group.push(Worth::Nothing);
                    continue;
                };
                if self.config.states_per_path.is_some_and(|most| turns >= most.get()) {
                    of_group.push(Worth::Below);
                    continue;
                }
                let path = path(group, after);
                let tokens = history(group, &path);
                let read = if self.config.equal == Equal::Sequences { tokens.clone() } else { Vec::new() };
                let place = match known.entry((&group.about().task, key, read)) {
                    std::collections::btree_map::Entry::Occupied(known) => *known.get(),
                    std::collections::btree_map::Entry::Vacant(new) => {
                        let state = State {
                            seed: group.about().seed,
                            back: self.back(group, &path)?,
                            turns: group.about().before + turns,
                            history: History { tokens, ..History::default() },
                            origin: Origin::default(),
                        };
                        let start = Start { task: group.about().task.clone(), state: Some(state) };
                        states.push(Probed { start, tried: 0, returns: Vec::new(), failure: None });
                        *new.insert(states.len() - 1)
                    }
                };
                of_group.push(Worth::Probes(place));
            }
            worth.push(of_group);
        }
        Ok((worth, states))
    }

    /// The way back to the state at the end of a path.
    fn back(&self, group: Group<'_>, path: &[usize]) -> Result<Back, PolicyError> {
        let (batch, about, first) = (group.batch(), group.about(), group.rows().start);
        let saved = |t: &usize| batch.notes[first + t].snapshot.as_ref();
        let last = path.iter().rposition(|t| saved(t).is_some()).filter(|_| self.config.restore == Restore::Snapshot);
        let from_start = self.config.restore == Restore::Snapshot || about.before > 0;
        let snapshot = match last {
            Some(last) => saved(&path[last]).cloned(),
            None => about.snapshot.clone().filter(|_| from_start),
        };
        if snapshot.is_none() && about.before > 0 {
            return Err(PolicyError::Unsupported(format!(
                "a group of task `{}` begins in a stored state, to which no deeds lead back: set `critic.{}.monte-carlo.restore = \"snapshot\"`",
                about.task_name, self.name
            )));
        }
        let deed = |t: &usize| {
            let row = first + t;
            Deed {
                text: batch.notes[row].action.clone(),
                complete: batch.turns.stop[row] == Stop::Complete,
                reward: batch.turns.env_reward[row],
                state_after: batch.keys.bytes(batch.turns.state_after[row]).to_vec(),
                // Records do not hold which chance a branch met: where there is any, its replay fails and says so.
                reseed: None,
            }
        };
        Ok(Back { snapshot, deeds: path[last.map_or(0, |last| last + 1)..].iter().map(deed).collect(), shown: None })
    }

    /// Probes the states in rounds, until each has enough.
    fn probe(&self, states: &mut [Probed], decode: Decode, stream: &str, acting: &mut Acting<'_>) -> Result<(), PolicyError> {
        let mut spent = Ledger::default();
        let mut done = 0;
        while done < self.max_samples {
            let members = self.config.samples.get().min(self.max_samples - done);
            let enough = |state: &Probed| self.config.tight.is_some_and(|tight| state.half_width() <= *tight);
            let open: Vec<usize> = (0..states.len()).filter(|s| done == 0 || !enough(&states[*s])).collect();
            let side_by_side = (self.config.at_once.get() / members).max(1);
            for (i, some) in open.chunks(side_by_side).enumerate() {
                let starts: Vec<Start> = some.iter().map(|s| states[*s].start.clone()).collect();
                let stream = format!("{stream}/probe-{done}-{}", i * side_by_side);
                let play = Play {
                    temperature: *self.config.temperature as f32,
                    decode,
                    keep: Keep::default(),
                    patience: self.config.patience.map(Seconds::duration).or(acting.patience),
                    ..acting.play(&self.config.agent, &starts, members, &stream)
                };
                let Acting { nodes, tasks, .. } = &mut *acting;
                let played = play.sample(&mut **node(nodes, &self.config.agent)?, &**tasks, &mut spent).map_err(unplayed)?;
                for (s, probes) in some.iter().zip(&played) {
                    states[*s].take(probes, *self.config.gamma);
                }
            }
            done += members;
        }
        acting.ledger.branch_tokens += spent.actor_tokens + spent.fed_tokens;
        acting.ledger.env_steps += spent.env_steps;
        acting.ledger.restores += spent.restores;
        Ok(())
    }

    /// Tells what was done, and refuses states that nothing is known of.
    fn report(&self, states: &[Probed], acting: &mut Acting<'_>) -> Result<(), PolicyError> {
        let tried: usize = states.iter().map(|state| state.tried).sum();
        let failed = tried - states.iter().map(|state| state.returns.len()).sum::<usize>();
        let widths: Vec<f64> = states.iter().map(Probed::half_width).filter(|width| width.is_finite()).collect();
        acting.metrics.add(format!("critic/{}/probed_states", self.name), states.len() as f64);
        acting.metrics.add(format!("critic/{}/probes", self.name), tried as f64);
        acting.metrics.add(format!("critic/{}/failed_probes", self.name), failed as f64);
        if !widths.is_empty() {
            acting.metrics.set(format!("critic/{}/half_width", self.name), moments(&widths).mean);
        }
        let reason = states.iter().find_map(|state| state.failure.as_deref()).unwrap_or_default();
        if failed > 0 {
            tracing::warn!("critic `{}`: {failed} of {tried} probes failed and are left out; the first: {reason}", self.name);
        }
        match states.iter().find(|state| state.tried > 0 && state.returns.is_empty()) {
            Some(state) if self.config.failed == Failed::Stop => {
                let why = state.failure.as_deref().unwrap_or_default();
                Err(PolicyError::Unsupported(format!(
                    "all {} probes of a state of task `{}` failed: {why}; `critic.{}.monte-carlo.failed = \"fill\"` goes on with what lies \
                     below it",
                    state.tried,
                    acting.tasks.name(&state.start.task),
                    self.name
                )))
            }
            _ => Ok(()),
        }
    }

    /// How much of the returns that the episodes themselves had the values of probed states explain; a path that was cut is worth
    /// what its last state is. Values that were filled from below are those returns, and explain nothing.
    fn explained(&self, batch: &Batch, worth: &[Vec<Worth>], probed: &[Option<f64>], values: &[Vec<f64>]) -> Option<f64> {
        let (mut of_state, mut had) = (Vec::new(), Vec::new());
        for ((group, values), worth) in batch.groups().zip(values).zip(worth) {
            let paid = &batch.turns.env_reward[group.rows()];
            let returns = group.fold_up(
                |_| 0.0,
                |t, future| {
                    let follows = if group.n_children(t) == 0 { values[t + 1] } else { future };
                    f64::from(paid[t]) + *self.config.gamma * follows
                },
            );
            let tried = group.tried();
            for t in (0..group.n_turns()).filter(|t| tried[*t]) {
                let before = group.parent(t).map_or(0, |p| p + 1);
                if matches!(worth[before], Worth::Probes(place) if probed[place].is_some()) {
                    of_state.push(values[before]);
                    had.push(returns[t]);
                }
            }
        }
        explained_variance(&of_state, &had)
    }

    /// Values of a group's states, `[turns + 1]`; `None` among the `probed` is not known.
    fn values(&self, group: Group<'_>, worth: &[Worth], probed: &[Option<f64>]) -> Vec<f64> {
        let (n, tried, gamma) = (group.n_turns(), group.tried(), *self.config.gamma);
        let paid = &group.batch().turns.env_reward[group.rows()];
        let mut values = vec![0.0; n + 1];
        // Sum and number of what the turns that continue a state made of it.
        let mut below = vec![(0.0, 0u32); n + 1];
        for s in (0..=n).rev() {
            let (sum, turns) = below[s];
            let from_below = if turns > 0 { sum / f64::from(turns) } else { 0.0 };
            values[s] = match worth[s] {
                Worth::Nothing => 0.0,
                Worth::Probes(place) => probed[place].unwrap_or(from_below),
                Worth::Below => from_below,
            };
            if let Some(t) = s.checked_sub(1).filter(|t| tried[*t]) {
                let (sum, turns) = &mut below[group.parent(t).map_or(0, |p| p + 1)];
                *sum += f64::from(paid[t]) + gamma * values[s];
                *turns += 1;
            }
        }
        values
    }
}

impl Probed {
    /// Takes over what came of a round of probes.
    fn take(&mut self, probes: &GroupLog, gamma: f64) {
        for leaf in &probes.leaves {
            self.tried += 1;
            if let End::Failed(why) = &leaf.end {
                self.failure.get_or_insert_with(|| why.clone());
                continue;
            }
            let up = std::iter::successors(leaf.turn, |t| probes.turns[*t].parent);
            let paid = |t: usize| f64::from(probes.turns[t].reward);
            self.returns.push(up.fold(0.0, |future, t| paid(t) + gamma * future));
        }
    }
}

fn unplayed(e: RolloutError) -> PolicyError {
    match e {
        RolloutError::Policy(e) => e,
        other => PolicyError::Unsupported(other.to_string()),
    }
}

/// The turns that lead to a state, from the group's start on.
fn path(group: Group<'_>, after: Option<usize>) -> Vec<usize> {
    let mut path: Vec<usize> = std::iter::successors(after, |t| group.parent(*t)).collect();
    path.reverse();
    path
}

/// What the policy has read and said before a state, since its sequence last began anew.
fn history(group: Group<'_>, path: &[usize]) -> Vec<u32> {
    let (batch, first) = (group.batch(), group.rows().start);
    let anew = path.iter().rposition(|t| batch.turns.context[first + t] == Context::Restart);
    let mut tokens = if anew.is_none() { group.about().history.tokens.clone() } else { Vec::new() };
    for t in &path[anew.unwrap_or(0)..] {
        tokens.extend(&batch.tokens[batch.turns.tokens[first + t].range()]);
    }
    tokens
}

#[cfg(test)]
mod tests;
