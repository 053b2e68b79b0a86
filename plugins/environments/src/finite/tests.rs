//! Both enumerable environments against brute force, against each other's laws, and against their own live episodes.

use std::collections::{BTreeMap, BTreeSet};

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::mdp::{ActionTable, Path, Solution, over_turns, paths, softmax, solve};
use ascribe_core::range::{Between, Unit};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{Batch, Rng};
use proptest::prelude::*;

use super::*;
use crate::repair_mdp::RepairMdp;
use crate::token_tree::{Rewards, States, TokenTree};

/// Sums of some thousand numbers of order 1 agree to rounding.
const EXACT: f64 = 1e-12;

fn between<const MIN: u64, const MAX: u64>(n: u64) -> Between<MIN, MAX> {
    Between::try_from(n).unwrap()
}

fn repair(horizon: u64, step_cost: f64) -> FiniteTasks {
    RepairMdp { horizon: between(horizon), step_cost: Unit::try_from(step_cost).unwrap() }.open()
}

fn tree(depth: u64, branches: u64, rewards: Rewards, states: States) -> FiniteTasks {
    let (depth, branches) = (between(depth), between(branches));
    TokenTree { seed: 5, tasks: between(2), depth, branches, rewards, states }.open().unwrap()
}

fn trees() -> Vec<FiniteTasks> {
    let rewards = [Rewards::Sparse, Rewards::Dense, Rewards::StopOrContinue];
    rewards.into_iter().flat_map(|r| [tree(4, 3, r, States::Prefixes), tree(4, 3, r, States::Sums)]).collect()
}

/// Sets whose trajectories can be listed.
fn small() -> Vec<FiniteTasks> {
    trees().into_iter().chain([repair(4, 0.05)]).collect()
}

fn first() -> TaskId {
    TaskId { split: TRAIN.into(), index: 0 }
}

fn oracle(set: &FiniteTasks) -> &dyn Oracle {
    set.oracle(&first()).unwrap()
}

/// Logits drawn from a standard normal distribution.
fn logits(process: &FiniteMdp, seed: u64) -> ActionTable {
    let mut rng = Seeds(seed).rng("logits", Draw::default());
    let mut row = |rewards: &Vec<f64>| rewards.iter().map(|_| rng.normal()).collect();
    (0..process.horizon).map(|_| process.rewards.iter().map(&mut row).collect()).collect()
}

/// One of the actions, by their probabilities.
fn choose(policy: &[f64], rng: &mut Rng) -> usize {
    drawn(policy.iter().copied().enumerate(), rng.unit())
}

fn say(episode: &mut dyn Environment, text: &str) -> Step {
    episode.step(ActionText { text, complete: true }).unwrap()
}

/// What can be told about a state.
fn looks(episode: &dyn Environment) -> (Vec<u8>, Observation, Option<Vec<String>>, Snapshot) {
    (episode.state_key(), episode.observe(), episode.admissible(), episode.snapshot().unwrap())
}

fn zeros(policy: &ActionTable) -> ActionTable {
    policy.iter().map(|states| states.iter().map(|row| vec![0.0; row.len()]).collect()).collect()
}

fn assert_near(what: &str, x: f64, y: f64) {
    assert!((x - y).abs() < EXACT, "{what}: {x} is not {y}");
}

#[test]
fn listing_every_trajectory_gives_what_dynamic_programming_gives() {
    for set in small() {
        let process = oracle(&set).process();
        let policy = softmax(&logits(process, 1));
        let exact = solve(process, &policy);
        let (mut expected, mut turns) = (0.0, 0.0);
        // Probability of, and expected reward from there on after, every visit and every action; and the score function's
        // gradient, which knows no values.
        let mut visited: BTreeMap<(usize, usize), (f64, f64)> = BTreeMap::new();
        let mut acted: BTreeMap<(usize, usize, usize), (f64, f64)> = BTreeMap::new();
        let mut gradient = zeros(&policy);
        let all = paths(process, &policy);
        for Path { probability: p, turns: path, total } in &all {
            expected += p * total;
            turns += p * path.len() as f64;
            let mut to_go = *total;
            for (t, (s, a)) in path.iter().enumerate() {
                let visit = visited.entry((t, *s)).or_default();
                *visit = (visit.0 + p, visit.1 + p * to_go);
                let act = acted.entry((t, *s, *a)).or_default();
                *act = (act.0 + p, act.1 + p * to_go);
                to_go -= process.rewards[*s][*a];
                for (b, g) in gradient[t][*s].iter_mut().enumerate() {
                    *g += p * total * (f64::from(u8::from(b == *a)) - policy[t][*s][b]);
                }
            }
        }
        assert!(all.len() >= 30 && visited.len() >= 9);
        assert_near("mass", all.iter().map(|path| path.probability).sum(), 1.0);
        assert_near("J", exact.expected_return, expected);
        assert_near("turns", exact.expected_turns, turns);
        for ((t, s), (mass, sum)) in visited {
            assert_near("d", exact.visits[t][s], mass);
            assert_near("V", exact.values[t][s], sum / mass);
        }
        for ((t, s, a), (mass, sum)) in acted {
            assert_near("Q", exact.action_values[t][s][a], sum / mass);
            assert_near("A", exact.advantages[t][s][a], sum / mass - exact.values[t][s]);
        }
        for (g, h) in exact.gradient.iter().flatten().flatten().zip(gradient.iter().flatten().flatten()) {
            assert_near("gradient", *g, *h);
        }
    }
}

#[test]
fn the_gradient_is_that_of_the_return() {
    // Central differences err by h²/6 · J''' ≈ 2e-9 · J''' and by rounding, 1e-16/h.
    let h = 1e-4;
    let sets = [repair(4, 0.05), tree(3, 2, Rewards::Dense, States::Prefixes), tree(3, 3, Rewards::Sparse, States::Sums)];
    for set in sets {
        let process = oracle(&set).process();
        let logits = logits(process, 2);
        let exact = solve(process, &softmax(&logits));
        let shared = over_turns(&exact.gradient);
        let slope = |change: &dyn Fn(&mut ActionTable, f64)| {
            let at = |x: f64| {
                let mut moved = logits.clone();
                change(&mut moved, x);
                solve(process, &softmax(&moved)).expected_return
            };
            (at(h) - at(-h)) / (2.0 * h)
        };
        for s in 0..process.rewards.len() {
            for a in 0..process.rewards[s].len() {
                for t in 0..process.horizon {
                    assert!((slope(&|moved, x| moved[t][s][a] += x) - exact.gradient[t][s][a]).abs() < 1e-6);
                }
                let every = slope(&|moved, x| moved.iter_mut().for_each(|states| states[s][a] += x));
                assert!((every - shared[s][a]).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn live_trees_do_what_the_table_says() {
    for set in trees() {
        for index in 0..2 {
            let task = TaskId { split: TRAIN.into(), index };
            let oracle = set.oracle(&task).unwrap();
            let process = oracle.process();
            let uniform = softmax(&zeros(&logits(process, 0)));
            for Path { turns, total, .. } in paths(process, &uniform) {
                let mut episode = set.open(&task, 3).unwrap();
                let mut sum = 0.0;
                for (turn, (state, action)) in turns.iter().enumerate() {
                    assert_eq!(oracle.place(&episode.state_key()), Some(Place { turn, state: *state }));
                    let step = say(&mut *episode, &oracle.actions(*state)[*action]);
                    sum += step.reward;
                    assert_eq!(matches!(step.end, Some(End::Terminated { .. })), turn + 1 == turns.len());
                }
                // Sixty-fourths and quarters: sums are exact.
                assert_eq!(f64::from(sum), total);
                assert!(total <= set.capabilities().r_max);
            }
        }
    }
}

/// Plays from where an episode stands; returns what it is paid and the turns it makes.
fn play_on(episode: &mut dyn Environment, oracle: &dyn Oracle, policy: &ActionTable, rng: &mut Rng) -> (f64, usize) {
    let (mut total, mut turns) = (0.0, 0);
    loop {
        let place = oracle.place(&episode.state_key()).unwrap();
        let action = choose(&policy[place.turn][place.state], rng);
        let step = say(episode, &oracle.actions(place.state)[action]);
        total += f64::from(step.reward);
        turns += 1;
        if step.end.is_some() {
            return (total, turns);
        }
    }
}

/// Asserts that a mean is within four standard errors of what is expected.
fn assert_mean(what: &str, x: &[f64], expected: f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let error = (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
    println!("{what}: {mean:.4} ± {error:.4}, exactly {expected:.4}");
    assert!((mean - expected).abs() < 4.0 * error, "{what}: {mean} ± {error} is not {expected}");
}

#[test]
fn the_mean_of_live_episodes_is_the_value() {
    let set = repair(40, 0.05);
    let oracle = oracle(&set);
    let process = oracle.process();
    // One policy for all turns, which submits seldom enough to see every state.
    let mut row = logits(process, 4).remove(0);
    row.iter_mut().filter(|row| !row.is_empty()).for_each(|row| row[2] -= 1.0);
    let policy = softmax(&vec![row; process.horizon]);
    let exact = solve(process, &policy);
    let mut values: BTreeMap<Place, Vec<f64>> = BTreeMap::new();
    let mut turns = Vec::new();
    for seed in 0..20_000 {
        let mut rng = Seeds(seed).rng("policy", Draw::default());
        let mut episode = set.open(&first(), seed).unwrap();
        let (total, made) = play_on(&mut *episode, oracle, &policy, &mut rng);
        values.entry(Place { turn: 0, state: 0 }).or_default().push(total);
        turns.push(made as f64);
        // Two turns of another episode, then a restored one from there on: it is worth what its state is worth.
        let mut episode = set.open(&first(), seed).unwrap();
        for _ in 0..2 {
            let place = oracle.place(&episode.state_key()).unwrap();
            if !oracle.actions(place.state).is_empty() {
                say(&mut *episode, &oracle.actions(place.state)[choose(&policy[place.turn][place.state], &mut rng)]);
            }
        }
        let place = oracle.place(&episode.state_key()).unwrap();
        if !oracle.actions(place.state).is_empty() {
            let mut restored = set.open(&first(), seed + 1).unwrap();
            restored.restore(&episode.snapshot().unwrap()).unwrap();
            values.entry(place).or_default().push(play_on(&mut *restored, oracle, &policy, &mut rng).0);
        }
    }
    assert_mean("turns", &turns, exact.expected_turns);
    let values: Vec<_> = values.into_iter().filter(|(_, totals)| totals.len() > 200).collect();
    assert!(values.len() >= 6, "{} places were seen often enough", values.len());
    for (place, totals) in values {
        assert_mean(&format!("V at {place:?}"), &totals, exact.values[place.turn][place.state]);
    }
}

/// A group of episodes, as a rollout writes it down.
fn group(set: &FiniteTasks, seeds: std::ops::Range<u64>, policy: &ActionTable) -> GroupLog {
    let oracle = oracle(set);
    let mut log = GroupLog::default();
    for seed in seeds {
        let mut rng = Seeds(seed).rng("policy", Draw::default());
        let mut episode = set.open(&first(), seed).unwrap();
        let mut parent = None;
        let end = loop {
            let (state, observation) = (episode.state_key(), episode.observe().key);
            let place = oracle.place(&state).unwrap();
            let action_text = oracle.actions(place.state)[choose(&policy[place.turn][place.state], &mut rng)].clone();
            let Step { reward, end, .. } = say(&mut *episode, &action_text);
            // Any token: a turn without a sampled one could not train.
            let action = Action::given(vec![0]);
            log.turns.push(TurnLog { parent, state, observation, action, action_text, reward, ..TurnLog::default() });
            parent = Some(log.turns.len() - 1);
            if let Some(end) = end {
                break end;
            }
        };
        log.leaves.push(LeafLog { turn: parent, end, seed });
    }
    log
}

#[test]
fn the_mean_update_of_recorded_episodes_is_the_gradient() {
    const EPISODES: u64 = 20_000;
    let set = repair(8, 0.05);
    let oracle = oracle(&set);
    // Even odds but for `submit`: every state is met often enough for its standard error to be one.
    let policy = oracle.policy(&|_, text| if text == "submit" { 0.1 } else { 0.3 });
    let exact = solve(oracle.process(), &policy);
    let batch = Batch::from_groups(vec![group(&set, 0..EPISODES, &policy)], NonFinite::Refuse).unwrap();
    let view = batch.group(0);
    let returns = view.fold_up(|_| 0.0, |t, future| f64::from(view.rewards()[t]) + future);
    // Σ_t (G_t − V_t(s_t)) ∂ log π(a_t | s_t)/∂θ of every episode, for logits that all turns share, `[episodes]`.
    let mut updates: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for (e, trajectory) in view.trajectories().enumerate() {
        for t in trajectory.turns() {
            let place = oracle.place(batch.keys.bytes(batch.turns.state[t])).unwrap();
            let action = oracle.action(place.state, &batch.notes[t].action).unwrap();
            let advantage = returns[t] - exact.values[place.turn][place.state];
            for (b, pi) in policy[place.turn][place.state].iter().enumerate() {
                let update = updates.entry((place.state, b)).or_insert_with(|| vec![0.0; EPISODES as usize]);
                update[e] += advantage * (f64::from(u8::from(b == action)) - pi);
            }
        }
    }
    assert_eq!(updates.len(), 24, "every state was met");
    let gradient = over_turns(&exact.gradient);
    for ((state, action), updates) in updates {
        assert_mean(&format!("∂J/∂θ({state}, {action})"), &updates, gradient[state][action]);
    }
}

#[test]
fn live_transitions_are_as_frequent_as_the_table_says() {
    let set = repair(40, 0.0);
    let task = &set.tasks[0];
    let n = 4_000;
    for (state, actions) in oracle(&set).process().transitions.iter().enumerate() {
        for (action, outcomes) in actions.iter().enumerate() {
            let mut seen = vec![0.0; task.table.shows.len()];
            for seed in 0..n {
                let mut episode = Episode { task: Arc::clone(task), at: At { seed, turn: 7, state } };
                episode.act(action);
                seen[episode.at.state] += 1.0;
            }
            for (next, count) in seen.iter().enumerate() {
                let p: f64 = outcomes.iter().filter(|(s, _)| *s == next).map(|(_, p)| p).sum();
                // A count's standard error is √(n p (1 − p)): what is certain or impossible has none.
                let error = (n as f64 * p * (1.0 - p)).sqrt();
                assert!((count - n as f64 * p).abs() <= 4.0 * error, "{state} {action} → {next}: {count} of {n} for {p}");
            }
        }
    }
}

#[test]
fn other_seeds_bring_other_chance_after_the_same_snapshot() {
    let set = repair(12, 0.0);
    let mut episode = set.open(&first(), 3).unwrap();
    say(&mut *episode, "read");
    let saved = episode.snapshot().unwrap();
    let mut after = |seed: Option<u64>| {
        episode.restore(&saved).unwrap();
        if let Some(seed) = seed {
            let before = (episode.state_key(), episode.observe());
            episode.reseed(seed);
            assert_eq!((episode.state_key(), episode.observe()), before);
        }
        say(&mut *episode, "edit");
        episode.observe().text
    };
    assert_eq!(after(None), after(None));
    let right = (0..400).filter(|seed| after(Some(*seed)) == "right").count();
    // p = 0.5: five standard deviations are 50
    assert!((150..250).contains(&right), "{right}");
    assert_eq!(after(Some(7)), after(Some(7)));
}

#[test]
fn what_is_done_stays_done() {
    let set = repair(40, 0.05);
    let mut episode = set.open(&first(), 0).unwrap();
    let step = say(&mut *episode, "submit");
    assert_eq!((step.reward, step.end), (-0.05, Some(End::Terminated { success: false })));
    assert_eq!((episode.observe().text.as_str(), episode.admissible()), ("done", Some(Vec::new())));
    let over = episode.step(ActionText { text: "read", complete: true });
    assert_eq!(over.unwrap_err().0, "the episode is over: no action is possible after it");
    let process = oracle(&set).process();
    let exact = solve(process, &softmax(&logits(process, 3)));
    let done = process.transitions.len() - 1;
    assert!(process.transitions[done].is_empty() && exact.values.iter().all(|values| values[done] == 0.0));
    assert!(exact.visits.windows(2).all(|pair| pair[1][done] >= pair[0][done]));
}

#[test]
fn an_episode_by_hand() {
    let set = repair(5, 0.25);
    let mut episode = set.open(&first(), 0).unwrap();
    assert_eq!(episode.admissible().unwrap(), ["edit", "read", "submit", "test"]);
    let mut turn = |text: &str, complete: bool| {
        let step = episode.step(ActionText { text, complete }).unwrap();
        (episode.observe().text, step.validity, step.reward, step.end)
    };
    assert_eq!(turn("test", true), ("unread".into(), Validity::Valid, -0.25, None));
    assert_eq!(turn("read", true), ("read".into(), Validity::Valid, -0.25, None));
    assert_eq!(turn("read the code", true), ("read".into(), Validity::Malformed, -0.25, None));
    assert_eq!(turn("test", false), ("read".into(), Validity::Cut, -0.25, None));
    assert_eq!(turn("test", true), ("failed".into(), Validity::Valid, -0.25, Some(End::Truncated(Limit::Turns))));
    assert_eq!(episode.admissible(), Some(Vec::new()));

    // A seed whose repair is right: the environment has the last word at the last turn.
    let played = |seed| {
        let mut episode = set.open(&first(), seed).unwrap();
        for action in ["read", "read", "test", "edit"] {
            assert_eq!(say(&mut *episode, action).end, None);
        }
        episode
    };
    let mut episode = (0..).map(played).find(|episode| episode.observe().text == "right").unwrap();
    let step = say(&mut *episode, "submit");
    assert_eq!((step.reward, step.end), (0.75, Some(End::Terminated { success: true })));
}

#[test]
fn snapshots_are_refused_where_they_do_not_fit() {
    let set = tree(4, 3, Rewards::Dense, States::Prefixes);
    let other = TaskId { index: 1, ..first() };
    let mut episode = set.open(&first(), 0).unwrap();
    say(&mut *episode, "b");
    let before = looks(&*episode);
    let good = before.3.clone();
    let mut refused = |snapshot: &Snapshot| {
        let error = episode.restore(snapshot).unwrap_err();
        assert_eq!(looks(&*episode), before);
        error
    };
    let foreign = set.open(&other, 0).unwrap().snapshot().unwrap();
    assert!(matches!(refused(&foreign), RestoreError::Foreign { .. }));
    assert_eq!(refused(&Snapshot { version: 2, ..good.clone() }), RestoreError::Version { found: 2, expected: 1 });
    let shows = Snapshot { observation: format!("{} b", good.observation), ..good.clone() };
    assert_eq!(refused(&shows), RestoreError::Diverged { at: good.observation.len() });
    let nowhere = seal(&good.fingerprint, 1, &At { seed: 0, turn: 1, state: 10_000 }, good.observation.clone()).unwrap();
    assert_eq!(refused(&nowhere), RestoreError::Damaged("this task has no such state".into()));
    for at in 0..good.bytes.len() {
        let cut = Snapshot { bytes: good.bytes[..at].to_vec(), ..good.clone() };
        assert!(matches!(refused(&cut), RestoreError::Damaged(_)));
        let mut flipped = good.clone();
        flipped.bytes[at] ^= 1;
        assert!(matches!(refused(&flipped), RestoreError::Damaged(_)));
    }
}

#[test]
fn records_lead_to_indices() {
    for set in small() {
        let oracle = oracle(&set);
        let process = oracle.process();
        for state in 0..process.transitions.len() {
            for turn in 0..=process.horizon {
                let place = Place { turn, state };
                assert_eq!(oracle.place(&oracle.state_key(place)), Some(place));
            }
            assert_eq!(oracle.actions(state).len(), process.rewards[state].len());
            assert!(oracle.actions(state).is_sorted());
            for (action, text) in oracle.actions(state).iter().enumerate() {
                assert_eq!(oracle.action(state, text), Some(action));
            }
            assert_eq!(oracle.action(state, "nothing of the kind"), None);
        }
        let key = |turn, state| oracle.state_key(Place { turn, state });
        assert_eq!(oracle.place(&key(process.horizon + 1, 0)), None);
        assert_eq!(oracle.place(&key(0, process.transitions.len())), None);
        assert_eq!(oracle.place(b"of another task\n0 0"), None);
        assert_eq!(oracle.place(&[0xff]), None);
        // A policy given by keys and texts is the same table.
        let policy = softmax(&logits(process, 6));
        let by_key = |key: &[u8], text: &str| {
            let place = oracle.place(key).unwrap();
            policy[place.turn][place.state][oracle.action(place.state, text).unwrap()]
        };
        assert_eq!(oracle.policy(&by_key), policy);
    }
}

#[test]
fn every_word_is_known_and_every_action_one_token() {
    for set in small() {
        let about = set.capabilities();
        let tokenizer = WordTokenizer::new(&about.vocabulary);
        assert!(tokenizer.token(&about.stop).is_some());
        for task in &set.tasks {
            for text in &task.table.shows {
                assert_eq!(tokenizer.decode(&tokenizer.encode(text)), *text);
            }
            let tokens: BTreeSet<Vec<u32>> = task.table.actions.iter().map(|text| tokenizer.encode(text)).collect();
            assert!(tokens.len() == task.table.actions.len() && tokens.iter().all(|t| t.len() == 1 && t[0] > 1));
            let different: BTreeSet<&String> = task.table.shows.iter().collect();
            assert_eq!(different.len(), task.table.shows.len(), "an observation shows its state");
        }
    }
}

#[test]
fn the_set_and_its_tasks() {
    let set = tree(2, 2, Rewards::Sparse, States::Sums);
    assert_eq!((set.splits(), set.len(TRAIN), set.len("test")), (vec![TRAIN.to_string()], 2, 0));
    let error = set.open(&TaskId { index: 2, ..first() }, 0).err().unwrap();
    assert_eq!(error.0, "token-tree has no task `train/2`: split train has 2");
    assert!(set.oracle(&TaskId { split: "test".into(), index: 0 }).is_none());
    let [one, other] = [0, 1].map(|index| set.oracle(&TaskId { index, ..first() }).unwrap());
    assert_ne!(one.process().rewards, other.process().rewards);
    assert_eq!(one.place(&other.state_key(Place { turn: 0, state: 0 })), None);
}

/// What a state is worth when an episode begins in it.
fn begun(process: &FiniteMdp, state: usize, policy: &ActionTable) -> Solution {
    let start = (0..process.start.len()).map(|s| f64::from(u8::from(s == state))).collect();
    solve(&FiniteMdp { start, ..process.clone() }, policy)
}

proptest! {
    #[test]
    fn a_step_cost_lowers_values_by_what_the_turns_cost(seed in any::<u64>(), cost in 0.0..=1.0f64, horizon in 1u64..12) {
        let (free, paid) = (repair(horizon, 0.0), repair(horizon, cost));
        let (free, paid) = (oracle(&free).process(), oracle(&paid).process());
        let policy = softmax(&logits(free, seed));
        for state in 0..free.start.len() {
            let (free, paid) = (begun(free, state, &policy), begun(paid, state, &policy));
            let want = free.values[0][state] - cost * free.expected_turns;
            prop_assert!((paid.values[0][state] - want).abs() < EXACT);
            prop_assert_eq!(&paid.visits, &free.visits);
        }
    }

    #[test]
    fn a_snapshot_brings_back_state_and_chance(
        (seed, other) in (any::<u64>(), any::<u64>()),
        words in prop::collection::vec(prop::sample::select(vec!["edit", "read", "test", "fix it"]), 2..20),
        saved_at in 0usize..20,
    ) {
        let set = repair(40, 0.05);
        let mut episode = set.open(&first(), seed).unwrap();
        let (before, after) = words.split_at(saved_at.min(words.len()));
        before.iter().for_each(|word| { say(&mut *episode, word); });
        let snapshot = episode.snapshot().unwrap();
        let here = looks(&*episode);
        let future = |episode: &mut dyn Environment| -> Vec<_> {
            after.iter().map(|word| (say(episode, word).reward, looks(episode))).collect()
        };
        let once = future(&mut *episode);
        // Another episode, with a seed and a past of its own.
        let mut restored = set.open(&first(), other).unwrap();
        say(&mut *restored, "edit");
        for _ in 0..2 {
            restored.restore(&snapshot).unwrap();
            prop_assert_eq!(looks(&*restored), here.clone());
            prop_assert_eq!(restored.snapshot().unwrap(), snapshot.clone());
            prop_assert_eq!(future(&mut *restored), once.clone());
        }
    }

    #[test]
    fn garbage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "\\PC{0,30}") {
        let set = repair(4, 0.0);
        let mut episode = set.open(&first(), 0).unwrap();
        let before = looks(&*episode);
        let damaged = episode.restore(&Snapshot { bytes, ..before.3.clone() });
        prop_assert!(matches!(damaged, Err(RestoreError::Damaged(_))));
        prop_assert_eq!(looks(&*episode), before);
        prop_assert_eq!(say(&mut *episode, &format!("{text}?")).validity, Validity::Malformed);
    }
}
