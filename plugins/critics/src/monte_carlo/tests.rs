//! Probes against exact values, and what becomes of them where environments break.

use std::time::Duration;

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{ActionText, Capabilities, EnvironmentError, Observation, RestoreError, Snapshot, Step, TRAIN};
use ascribe_core::log::{Action, LeafLog, TurnLog};
use ascribe_core::{Environment, Limit, NamedCritic, Oracle, Seeds, TaskSet};
use ascribe_math::moments;

use super::*;
use crate::testing::World;

const ROLLOUT: &str = "groups = 4\ngroup_size = 3\ndecode = \"admissible\"";
const REPAIR: (&str, &str) = ("repair-mdp", "horizon = 5\nstep_cost = 0.05");

fn prober(body: &str) -> Prober {
    let config: MonteCarlo = toml::from_str(body).unwrap();
    let max_samples = config.max_samples.unwrap_or(config.samples).get();
    Prober { name: "mc".into(), config, max_samples, asked: (0, 0) }
}

fn judge(world: &mut World, batch: &mut Batch, body: &str) -> Result<Vec<f32>, String> {
    world.metrics = ascribe_core::Metrics::default();
    batch.signals.clear();
    let mut critic = NamedCritic { name: "mc".into(), critic: world.critic("mc", "monte-carlo", body) };
    world.judge(&mut critic, batch).map_err(|e| e.to_string())?;
    Ok(batch.signals[MC_VALUE].column.all().unwrap().to_vec())
}

fn metric(world: &World, name: &str) -> f64 {
    world.metrics.get(&format!("critic/mc/{name}")).unwrap()
}

#[test]
fn means_of_probes_are_the_exact_values_of_the_policy_that_acts() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    world.improve(10);
    let mut batch = world.batch("independent", ROLLOUT);
    let mut exact = NamedCritic { name: "exact".into(), critic: world.critic("exact", "oracle", "") };
    world.judge(&mut exact, &mut batch).unwrap();
    let truth = batch.signals[VALUE].column.all().unwrap().to_vec();
    for restore in ["snapshot", "replay"] {
        let body = format!("samples = 500\nrestore = \"{restore}\"");
        let prober = prober(&body);
        let (worth, mut states) = prober.survey(&batch, 5).unwrap();
        world.act(|acting| prober.probe(&mut states, Decode::Admissible, restore, acting)).unwrap();
        let (mut squares, mut n) = (0.0, 0.0);
        for group in batch.groups() {
            for (s, worth) in worth[group.index()].iter().enumerate() {
                let truth = f64::from(truth[group.rows().start + group.index() + s]);
                let Worth::Probes(place) = worth else {
                    assert_eq!(truth, 0.0);
                    continue;
                };
                let found = moments(&states[*place].returns);
                assert_eq!(found.n, 500);
                let error = found.deviation(Deviation::Sample) / 500f64.sqrt();
                assert!((found.mean - truth).abs() < 5.0 * error + 1e-6, "{} {truth} {error}", found.mean);
                if error > 0.0 {
                    squares += ((found.mean - truth) / error).powi(2);
                    n += 1.0;
                }
            }
        }
        // Equal states are counted as often as they occur: the statistic is wider than χ² by at most their number.
        assert!(n > 10.0 && squares / n < 3.0, "{squares} over {n}");
    }
}

#[test]
fn both_ways_back_give_the_same_numbers() {
    // An environment with chance, and one without.
    for environment in [REPAIR, ("bugfix", "")] {
        let mut world = World::new(environment, &["actor"], Vec::new());
        let mut batch = world.batch("independent", ROLLOUT);
        let snapshot = judge(&mut world, &mut batch, "samples = 4").unwrap();
        let replayed = judge(&mut world, &mut batch, "samples = 4\nrestore = \"replay\"").unwrap();
        assert_eq!(snapshot, replayed);
        assert!(batch.notes.iter().all(|note| note.snapshot.is_some()), "there was something to restore");
        // Without snapshots in the records there is nothing else to come back by.
        batch.notes.iter_mut().for_each(|note| note.snapshot = None);
        batch.groups.iter_mut().for_each(|group| group.snapshot = None);
        assert_eq!(judge(&mut world, &mut batch, "samples = 4\nrestore = \"replay\"").unwrap(), snapshot);
        if environment == REPAIR {
            let distinct: std::collections::BTreeSet<u32> = snapshot.iter().map(|v| v.to_bits()).collect();
            assert!(distinct.len() > 3, "{snapshot:?}");
        }
    }
}

#[test]
fn continuations_of_one_state_meet_chance_of_their_own() {
    // The policy is greedy, so what differs between probes is the environment's chance.
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    world.improve(30);
    let batch = world.batch("independent", ROLLOUT);
    let prober = prober("samples = 40\ntemperature = 0.0");
    let (_, mut states) = prober.survey(&batch, 5).unwrap();
    world.act(|acting| prober.probe(&mut states, Decode::Admissible, "s", acting)).unwrap();
    assert!(states.iter().any(|state| moments(&state.returns).squares > 0.0));
}

#[test]
fn equal_states_are_estimated_once_and_ends_not_at_all() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let mut batch = world.batch("independent", ROLLOUT);
    let mut open = std::collections::BTreeSet::new();
    let mut sequences = std::collections::BTreeSet::new();
    let mut ends = 0;
    let values = judge(&mut world, &mut batch, "samples = 2").unwrap();
    for group in batch.groups() {
        for (s, after) in std::iter::once(None).chain((0..group.n_turns()).map(Some)).enumerate() {
            let value = values[group.rows().start + group.index() + s];
            if after.is_some_and(|t| group.end(t).is_some()) {
                // Terminated, or cut at the horizon: nothing is paid any more.
                assert_eq!(value, 0.0);
                ends += 1;
            } else {
                let key = states::key(group, after).unwrap();
                open.insert(key);
                sequences.insert((key, history(group, &path(group, after))));
            }
        }
    }
    assert!(ends == 12 && sequences.len() > open.len());
    assert_eq!(metric(&world, "probed_states"), open.len() as f64);
    assert_eq!(metric(&world, "probes"), 2.0 * open.len() as f64);
    judge(&mut world, &mut batch, "samples = 2\nequal = \"sequences\"").unwrap();
    assert_eq!(metric(&world, "probed_states"), sequences.len() as f64);
    // The start is shared by all groups of the one task.
    let starts: Vec<f32> = batch.groups().map(|g| values[g.rows().start + g.index()]).collect();
    assert!(starts.iter().all(|v| *v == starts[0]));
}

#[test]
fn probes_are_counted_as_branches() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let mut batch = world.batch("independent", ROLLOUT);
    let before = world.ledger;
    judge(&mut world, &mut batch, "samples = 3").unwrap();
    let after = world.ledger;
    assert_eq!((after.actor_tokens, after.fed_tokens), (before.actor_tokens, before.fed_tokens));
    assert_eq!((after.critic_tokens, after.episodes), (before.critic_tokens, before.episodes));
    assert!(after.branch_tokens > before.branch_tokens);
    assert_eq!(after.restores - before.restores, metric(&world, "probes") as u64);
    let steps = after.env_steps - before.env_steps;
    assert!(steps >= metric(&world, "probes") as u64);
    // A replay makes the steps on the way again.
    judge(&mut world, &mut batch, "samples = 3\nrestore = \"replay\"").unwrap();
    assert!(world.ledger.env_steps - after.env_steps > steps);
}

#[test]
fn a_state_that_is_not_known_well_enough_gets_more() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let mut batch = world.batch("independent", ROLLOUT);
    let first = judge(&mut world, &mut batch, "samples = 4").unwrap();
    let (states, least) = (metric(&world, "probed_states"), metric(&world, "probes"));
    let wide = judge(&mut world, &mut batch, "samples = 4\nmax_samples = 64\ntight = 100.0").unwrap();
    assert_eq!((wide, metric(&world, "probes")), (first.clone(), least));
    let some = judge(&mut world, &mut batch, "samples = 4\nmax_samples = 62\ntight = 0.2").unwrap();
    let probes = metric(&world, "probes");
    assert!(probes > least && probes < 62.0 * states, "{probes} of {states}");
    assert!(metric(&world, "half_width") <= 0.2);
    assert_ne!(some, first);
    let all = prober("samples = 4\nmax_samples = 10\ntight = 1e-9");
    let (_, mut probed) = all.survey(&batch, 5).unwrap();
    world.act(|acting| all.probe(&mut probed, Decode::Admissible, "s", acting)).unwrap();
    for state in &probed {
        // 4, then 4, then the 2 that are left; those that all agree are certain after the first round.
        let certain = moments(&state.returns[..4]).squares == 0.0;
        assert_eq!(state.returns.len(), if certain { 4 } else { state.returns.len().max(8) });
        assert!(state.returns.len() <= 10);
    }
    assert!(probed.iter().any(|state| state.returns.len() == 10));
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let world = World::new(REPAIR, &["actor"], Vec::new());
    let refused = |body: &str| {
        let config: MonteCarlo = toml::from_str(body).unwrap();
        let context = BuildContext {
            seeds: Seeds(0),
            device: "cpu",
            threads: 1,
            environment: Some(world.tasks.capabilities()),
            nodes: std::collections::BTreeSet::new(),
            base: std::path::PathBuf::new(),
        };
        config.build("mc", &context).err().unwrap().to_string()
    };
    assert!(refused("samples = 4\nmax_samples = 4\ntight = 0.1").contains("above `samples`, 4"));
    assert!(refused("max_samples = 40").contains("needs `tight`"));
    assert!(refused("tight = 0.1").contains("needs `max_samples`"));
    for (body, says) in [
        ("samples = 0", "in 1..=65536"),
        ("temperature = -1.0", "0 or more"),
        ("patience = 1e30", "at most 1e9"),
        ("greedy = true", "unknown field"),
    ] {
        let error = toml::from_str::<MonteCarlo>(body).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn probes_act_as_the_records_were_made() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let prober = prober("");
    let admissible = world.batch("independent", ROLLOUT);
    assert_eq!(prober.decode(&admissible, true).unwrap(), Decode::Admissible);
    let mut free = world.batch("independent", "groups = 2\ngroup_size = 2");
    assert_eq!(prober.decode(&free, true).unwrap(), Decode::Free);
    judge(&mut world, &mut free, "samples = 2").unwrap();
    // A list of one action leaves nothing to sample.
    let mut forced = admissible.clone();
    forced.turns.sampled.iter_mut().for_each(|span| span.end = span.start);
    assert_eq!(prober.decode(&forced, true).unwrap(), Decode::Admissible);
    assert_eq!(prober.decode(&forced, false).unwrap(), Decode::Free);
    // In a batch of both kinds no way of acting is right for all.
    let mut logs = world.groups("independent", ROLLOUT);
    logs.extend(world.groups("independent", "groups = 2\ngroup_size = 2"));
    let mut both = Batch::from_groups(logs, NonFinite::Refuse).unwrap();
    assert!(judge(&mut world, &mut both, "samples = 2").unwrap_err().contains("can only act in one way"));
}

#[test]
fn greedy_from_the_start_it_is_the_baseline_of_remax() {
    let tree = "seed = 1\ntasks = 3\ndepth = 3\nbranches = 3\nrewards = \"dense\"\nstates = \"prefixes\"";
    let mut world = World::new(("token-tree", tree), &["actor"], Vec::new());
    world.improve(5);
    let mut batch = world.batch("independent", ROLLOUT);
    let values = judge(&mut world, &mut batch, "samples = 1\ntemperature = 0.0\nstates_per_path = 1").unwrap();
    assert_eq!(metric(&world, "probed_states"), 3.0);
    assert_eq!(batch.signals[VALUE].column, batch.signals[MC_VALUE].column);
    for group in batch.groups() {
        let about = group.about();
        let start = Start::of(about.task.clone());
        let play = Play {
            agent: "actor",
            starts: &[start],
            members: 1,
            temperature: 0.0,
            decode: Decode::Admissible,
            keep: Keep::default(),
            patience: None,
            stream: "greedy",
            update: 0,
            seeds: Seeds(5),
        };
        let policy = &mut **world.nodes.get_mut("actor").unwrap();
        let greedy = play.sample(policy, &*world.tasks, &mut Ledger::default()).unwrap();
        let paid: f32 = greedy[0].turns.iter().map(|turn| turn.reward).sum();
        let first = group.rows().start + group.index();
        assert!((values[first] - paid).abs() < 1e-6, "{} {paid}", values[first]);
        // What lies behind the start is filled from below: along a path, the reward that is left.
        for path in group.trajectories() {
            path.turns_up().fold(0.0, |future, t| {
                assert!((values[first + t + 1] - future).abs() < 1e-6);
                future + group.rewards()[t]
            });
        }
    }
    let estimator: ascribe_core::Slot<dyn ascribe_core::AdvantageEstimator> = crate::testing::plugin("remax", "");
    for group in batch.groups() {
        estimator.estimate(group, &ascribe_core::Now::default()).unwrap().check(group).unwrap();
    }
}

#[test]
fn estimators_with_a_critic_read_its_values() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let mut batch = world.batch("independent", ROLLOUT);
    judge(&mut world, &mut batch, "samples = 3").unwrap();
    for (name, body) in
        [("vine", ""), ("td", "gamma = 1.0"), ("gae", "gamma = 1.0\nlambda = 0.5"), ("n-step", "gamma = 1.0\nn = 2")]
    {
        let estimator: ascribe_core::Slot<dyn ascribe_core::AdvantageEstimator> = crate::testing::plugin(name, body);
        for group in batch.groups() {
            let credit = estimator.estimate(group, &ascribe_core::Now::default()).unwrap();
            assert!(credit.turns.iter().all(Option::is_some), "{name}");
        }
    }
    judge(&mut world, &mut batch, "samples = 3\nas_value = false").unwrap();
    assert!(!batch.signals.contains_key(VALUE));
}

#[test]
fn asked_twice_in_an_update_it_plays_anew() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let mut batch = world.batch("independent", ROLLOUT);
    let mut critic = NamedCritic { name: "mc".into(), critic: world.critic("mc", "monte-carlo", "samples = 5") };
    let mut ask = |world: &mut World| {
        batch.signals.clear();
        world.judge(&mut critic, &mut batch).unwrap();
        batch.signals[MC_VALUE].column.all().unwrap().to_vec()
    };
    let (first, second) = (ask(&mut world), ask(&mut world));
    assert_ne!(first, second);
    world.now.update += 1;
    assert_ne!(ask(&mut world), first);
    world.now.update -= 1;
    assert_eq!(ask(&mut world), first);
}

/// What goes wrong with an episode that goes on from a state.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Error,
    Panic,
    Hang,
    /// An error, in every second episode.
    Sometimes,
    /// An error, from the state after the first turn on.
    Later,
}

/// Tasks whose episodes break once they were given other chance.
struct Fragile {
    inner: Box<dyn TaskSet>,
    fault: Fault,
}
impl TaskSet for Fragile {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn splits(&self) -> Vec<String> {
        self.inner.splits()
    }
    fn len(&self, split: &str) -> usize {
        self.inner.len(split)
    }
    fn fingerprint(&self) -> String {
        self.inner.fingerprint()
    }
    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(Glass { inner: self.inner.open(task, seed)?, fault: self.fault, broken: false, steps: 0 }))
    }
    fn oracle(&self, task: &TaskId) -> Option<&dyn Oracle> {
        self.inner.oracle(task)
    }
}
struct Glass {
    inner: Box<dyn Environment>,
    fault: Fault,
    broken: bool,
    /// Steps that were replayed before it got other chance.
    steps: usize,
}
impl Environment for Glass {
    fn observe(&self) -> Observation {
        self.inner.observe()
    }
    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        self.steps += 1;
        match self.fault {
            _ if !self.broken => self.inner.step(action),
            Fault::Panic => panic!("it splinters"),
            Fault::Hang => {
                std::thread::sleep(Duration::from_millis(300));
                self.inner.step(action)
            }
            Fault::Error | Fault::Sometimes | Fault::Later => Err(EnvironmentError("it is broken".into())),
        }
    }
    fn state_key(&self) -> Vec<u8> {
        self.inner.state_key()
    }
    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        self.inner.snapshot()
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.inner.restore(snapshot)
    }
    fn reseed(&mut self, seed: u64) {
        self.broken = match self.fault {
            Fault::Sometimes => seed.is_multiple_of(2),
            Fault::Later => self.steps > 0,
            Fault::Error | Fault::Panic | Fault::Hang => true,
        };
        self.inner.reseed(seed);
    }
    fn admissible(&self) -> Option<Vec<String>> {
        self.inner.admissible()
    }
}

fn fragile(fault: Fault) -> World {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let inner = std::mem::replace(&mut world.tasks, World::new(REPAIR, &[], Vec::new()).tasks);
    world.tasks = Box::new(Fragile { inner, fault });
    world
}

#[test]
fn a_probe_that_breaks_is_left_out_and_told() {
    let mut world = fragile(Fault::Sometimes);
    let mut batch = world.batch("independent", ROLLOUT);
    judge(&mut world, &mut batch, "samples = 30").unwrap();
    let (failed, probes) = (metric(&world, "failed_probes"), metric(&world, "probes"));
    assert!(failed > 0.3 * probes && failed < 0.7 * probes, "{failed} of {probes}");
}

#[test]
fn a_state_without_any_probe_stops_the_run_or_is_filled() {
    for (fault, says) in
        [(Fault::Error, "it is broken"), (Fault::Panic, "it splinters"), (Fault::Hang, "took longer than 0.02 s")]
    {
        let mut world = fragile(fault);
        let mut batch = world.batch("independent", "groups = 1\ngroup_size = 1\ndecode = \"admissible\"");
        let patience = if fault == Fault::Hang { "patience = 0.02" } else { "" };
        let error = judge(&mut world, &mut batch, &format!("samples = 2\n{patience}")).unwrap_err();
        assert!(error.contains("all 2 probes of a state of task `train/0` failed"), "{error}");
        assert!(error.contains(says) && error.contains("critic.mc.monte-carlo.failed = \"fill\""), "{error}");
    }
    // With the values after the first turn unknown, they are the rewards that are left; the start has its probes.
    let mut world = fragile(Fault::Later);
    let mut batch = world.batch("independent", "groups = 1\ngroup_size = 1\ndecode = \"admissible\"");
    let values = judge(&mut world, &mut batch, "samples = 8\nfailed = \"fill\"\nrestore = \"replay\"\ngamma = 0.5").unwrap();
    let group = batch.group(0);
    let mut future = 0.0;
    for t in (0..group.n_turns()).rev() {
        assert!((values[t + 1] - future).abs() < 1e-6, "{values:?}");
        future = group.rewards()[t] + 0.5 * future;
    }
    assert_eq!(metric(&world, "failed_probes"), metric(&world, "probes") - 8.0);
}

#[test]
fn a_group_that_begins_in_a_stored_state_is_gone_back_to() {
    for environment in [REPAIR, ("bugfix", "")] {
        let mut world = World::new(environment, &["actor"], Vec::new());
        let max_turns = world.tasks.capabilities().max_turns;
        let first = world.groups("independent", "groups = 20\ngroup_size = 1\ndecode = \"admissible\"");
        let long = first.iter().find(|group| group.turns.len() > 2).unwrap();
        let tokens: Vec<u32> = long.turns[..2].iter().flat_map(|t| t.read.iter().chain(&t.action.tokens)).copied().collect();
        let state = State {
            seed: long.seed,
            back: Back { snapshot: long.turns[1].snapshot.clone(), ..Back::default() },
            turns: 2,
            history: History { tokens: tokens.clone(), ..History::default() },
            origin: Origin::Restored { age: 1 },
        };
        let starts = [Start { task: long.task.clone(), state: Some(state) }];
        let play = Play {
            agent: "actor",
            starts: &starts,
            members: 3,
            temperature: 1.0,
            decode: Decode::Admissible,
            keep: world.keep,
            patience: None,
            stream: "again",
            update: 1,
            seeds: Seeds(3),
        };
        let policy = &mut **world.nodes.get_mut("actor").unwrap();
        let groups = play.sample(policy, &*world.tasks, &mut Ledger::default()).unwrap();
        let mut batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
        assert_eq!(batch.groups[0].before, 2);
        let restored = judge(&mut world, &mut batch, "samples = 2");
        assert!(restored.is_ok() && metric(&world, "failed_probes") == 0.0, "{restored:?}");
        let (_, states) = prober("").survey(&batch, max_turns).unwrap();
        let start = states[0].start.state.as_ref().unwrap();
        assert_eq!((start.turns, &start.history.tokens), (2, &tokens));
        // What the limit of turns leaves counts from the task's beginning.
        assert!(states.iter().all(|state| state.start.state.as_ref().unwrap().turns < max_turns));
        let replayed = judge(&mut world, &mut batch, "samples = 2\nrestore = \"replay\"");
        if environment == REPAIR {
            // Members met chance of their own from the start on.
            assert!(replayed.unwrap_err().contains("the state after it is another one"));
        } else {
            assert_eq!(restored, replayed);
        }
        batch.groups[0].snapshot = None;
        let error = judge(&mut world, &mut batch, "samples = 2\nrestore = \"replay\"").unwrap_err();
        assert!(error.contains("restore = \"snapshot\""), "{error}");
    }
}

fn turn(parent: Option<usize>, state: u8, context: Context, read: &[u32], said: &[u32]) -> TurnLog {
    let action = Action::given(said.to_vec());
    let state_after = vec![state + 1];
    TurnLog { parent, state: vec![state], state_after, context, read: read.to_vec(), action, ..TurnLog::default() }
}

fn batch(turns: Vec<TurnLog>, ends: &[(usize, End)]) -> Batch {
    let leaves = ends.iter().map(|(t, end)| LeafLog { turn: Some(*t), end: end.clone(), seed: 0 }).collect();
    let history = History { tokens: vec![90, 91], ..History::default() };
    let task = TaskId { split: TRAIN.into(), index: 0 };
    Batch::from_groups(vec![GroupLog { task, turns, leaves, history, ..GroupLog::default() }], NonFinite::Refuse).unwrap()
}

#[test]
fn what_was_read_and_said_since_the_sequence_began_leads_on() {
    let (extend, restart) = (Context::Extend, Context::Restart);
    let turns = vec![
        turn(None, 0, extend, &[1, 2], &[3]),
        turn(Some(0), 1, extend, &[4], &[5, 6]),
        turn(Some(1), 2, restart, &[7], &[8]),
    ];
    let batch = batch(turns, &[(2, End::Terminated { success: true })]);
    let group = batch.group(0);
    let of = |after| history(group, &path(group, after));
    assert_eq!(of(None), [90, 91]);
    assert_eq!(of(Some(0)), [90, 91, 1, 2, 3]);
    assert_eq!(of(Some(1)), [90, 91, 1, 2, 3, 4, 5, 6]);
    assert_eq!(of(Some(2)), [7, 8]);
}

#[test]
fn which_states_are_probed() {
    let turns =
        |n: u8| (0..n).map(|t| turn(t.checked_sub(1).map(usize::from), t, Context::Extend, &[1], &[2])).collect::<Vec<_>>();
    let last = |end: End, max_turns| {
        let batch = batch(turns(2), &[(1, end)]);
        let (worth, states) = prober("restore = \"replay\"").survey(&batch, max_turns).unwrap();
        assert_eq!(worth[0][..2], [Worth::Probes(0), Worth::Probes(1)]);
        assert_eq!(states[1].start.state.as_ref().unwrap().back.deeds.len(), 1);
        worth[0][2]
    };
    assert_eq!(last(End::Terminated { success: false }, 9), Worth::Nothing);
    assert_eq!(last(End::MacroBoundary, 9), Worth::Probes(2));
    assert_eq!(last(End::MacroBoundary, 2), Worth::Nothing);
    // An environment may cut before its last turn: then no turn is possible any more.
    assert_eq!(last(End::Truncated(Limit::Turns), 9), Worth::Nothing);
    assert_eq!(last(End::Truncated(Limit::Context), 9), Worth::Nothing);
    // A candidate that was not tried has no next state.
    let mut two = turns(2);
    two.push(TurnLog { state_after: Vec::new(), ..turn(Some(0), 1, Context::Extend, &[1], &[3]) });
    let forked = batch(two, &[(1, End::MacroBoundary), (2, End::Untried)]);
    let (worth, _) = prober("restore = \"replay\"").survey(&forked, 9).unwrap();
    assert_eq!(worth[0], [Worth::Probes(0), Worth::Probes(1), Worth::Probes(2), Worth::Nothing]);
}
