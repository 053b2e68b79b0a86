//! Macro steps: what is stored, restored, verified and resumed.
#![allow(clippy::unwrap_used)]

mod toy;

use std::collections::BTreeMap;

use ascribe_core::environment::SnapshotKind;
use ascribe_core::log::{GroupLog, Limit, Origin, TurnLog};
use ascribe_core::{BuildContext, End, Slot, TaskSetConfig};
use ascribe_environments as _;
use serde_json::Value;
use toy::{Nature, World};

/// Every kind of environment that a macro step meets.
fn natures() -> impl Iterator<Item = Nature> {
    [SnapshotKind::Exact, SnapshotKind::Replay]
        .into_iter()
        .flat_map(|snapshot| [0, 2].into_iter().map(move |restarts| Nature { snapshot, restarts, turns: 5, draws: true }))
}

/// Turns of a path, from the group's start on.
fn path(group: &GroupLog, leaf: usize) -> Vec<&TurnLog> {
    let mut turns = Vec::new();
    let mut at = group.leaves[leaf].turn;
    while let Some(t) = at {
        turns.push(&group.turns[t]);
        at = group.turns[t].parent;
    }
    turns.reverse();
    turns
}

fn without_end(n: usize) -> Vec<&'static str> {
    ["a", "b", "c", "a b", "b c"].into_iter().cycle().take(n).collect()
}

#[test]
fn with_enough_turns_it_is_independent_record_for_record() {
    for nature in natures() {
        let (mut macro_steps, mut independent) = (World::new(nature), World::new(nature));
        let mut walking = macro_steps.strategy("macro-step", "turns = 5\nstarts = 3\nbranches = 4");
        let mut whole = independent.strategy("independent", "groups = 3\ngroup_size = 4");
        for _ in 0..4 {
            assert_eq!(macro_steps.collect(&mut *walking), independent.collect(&mut *whole), "{nature:?}");
            assert_eq!(macro_steps.metrics.get("td/store_size"), Some(0.0));
        }
        assert_eq!(macro_steps.ledger, independent.ledger);
    }
}

#[test]
fn later_updates_go_on_where_earlier_ones_stopped() {
    for nature in natures() {
        let mut world = World::new(nature);
        let mut walking = world.strategy("macro-step", "turns = 2\nstarts = 6\nbranches = 3\nfresh_share = 0.5");
        // Where paths stopped that can go on: the state's key, and all that was read and said before it.
        let mut stopped: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        let (mut restored, mut limits) = (0, 0);
        for update in 0..12 {
            let groups = world.collect(&mut *walking);
            assert_eq!(groups.len(), 6);
            for group in &groups {
                match group.origin {
                    Origin::Root => assert_eq!(group.before, 0),
                    Origin::Restored { age } => {
                        assert!(age >= 1 && age <= update && group.before > 0 && group.before % 2 == 0, "{:?}", group.origin);
                        let first = &group.turns[0];
                        assert_eq!(stopped.get(&first.state), Some(&group.history.tokens), "{nature:?}");
                        assert_eq!(group.history.turns.len(), group.before);
                        restored += 1;
                    }
                    Origin::Replayed { .. } => panic!("nothing is played again"),
                }
                for (leaf, of) in group.leaves.iter().enumerate() {
                    let turns = path(group, leaf);
                    let last = turns[turns.len() - 1];
                    match &of.end {
                        End::MacroBoundary => {
                            assert_eq!(turns.len(), 2);
                            assert!(group.before + 2 < 5);
                            // What the state shows is there for critics.
                            assert!(last.shown_after.is_some());
                            let mut history = group.history.clone();
                            turns.iter().for_each(|turn| history.push(turn));
                            stopped.insert(last.state_after.clone(), history.tokens);
                        }
                        End::Truncated(Limit::Turns) => {
                            assert_eq!(group.before + turns.len(), 5);
                            limits += 1;
                        }
                        End::Terminated { .. } => assert!(last.action_text.contains('d')),
                        other => panic!("{other:?}"),
                    }
                }
            }
            let get = |name: &str| world.metrics.get(&format!("td/{name}")).unwrap();
            assert!(get("store_size") <= 256.0 && get("restore_failures") == 0.0);
            let boundaries = groups.iter().flat_map(|group| &group.leaves).filter(|leaf| leaf.end == End::MacroBoundary).count();
            assert_eq!(get("new_endpoints"), boundaries as f64);
            assert!(get("fresh_states") >= 3.0, "half of them, or more where the store has too few");
        }
        assert!(restored > 20 && limits > 10, "{restored} {limits}");
    }
}

#[test]
fn members_of_a_restored_start_meet_chance_of_their_own() {
    let mut world = World::scripted(Nature { turns: 9, ..Nature::default() }, without_end(9));
    let mut walking = world.strategy("macro-step", "turns = 4\nstarts = 1\nbranches = 6\nfresh_share = 0.0");
    world.collect(&mut *walking);
    let group = world.collect(&mut *walking).remove(0);
    assert_eq!(group.before, 4);
    let paid: Vec<f32> = (0..6).map(|leaf| path(&group, leaf)[0].reward).collect();
    assert!(paid.iter().any(|reward| *reward != paid[0]), "{paid:?}");
}

#[test]
fn new_tasks_never_dry_up_and_officially_do() {
    let fresh = |body: &str, updates: usize| -> Vec<f64> {
        let mut world = World::scripted(Nature { turns: 50, ..Nature::default() }, without_end(50));
        let mut walking = world.strategy("macro-step", &format!("turns = 5\nstarts = 4\nbranches = 4\ncapacity = 32\n{body}"));
        (0..updates)
            .map(|_| {
                world.collect(&mut *walking);
                world.metrics.get("td/fresh_states").unwrap()
            })
            .collect()
    };
    // The store is empty at first; then a quarter of four is one.
    assert_eq!(fresh("", 5), [4.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(fresh("mode = \"official\"", 5), [4.0, 0.0, 0.0, 0.0, 0.0]);
    // A share that is no whole number of starts is right in the long run.
    let tenth = fresh("fresh_share = 0.1", 41);
    assert_eq!(tenth[1..].iter().sum::<f64>(), 16.0, "{tenth:?}");
    assert_eq!(fresh("fresh_share = 1.0", 3), [4.0; 3]);
    // Explicit settings hold in both modes.
    assert_eq!(fresh("mode = \"official\"\nfresh_share = 0.5", 3), [4.0, 2.0, 2.0]);
}

#[test]
fn starts_are_distributed_as_boundaries_at_one_over_the_number_of_macro_steps() {
    // Every episode has five macro steps.
    let depths = |share: f64| -> Vec<f64> {
        let mut world = World::scripted(Nature { turns: 10, ..Nature::default() }, without_end(10));
        let body = format!("turns = 2\nstarts = 10\nbranches = 4\ncapacity = 64\nfresh_share = {share}");
        let mut walking = world.strategy("macro-step", &body);
        let mut counts = vec![0.0; 5];
        for update in 0..600 {
            for group in world.collect(&mut *walking) {
                if update >= 100 {
                    counts[group.before / 2] += 1.0 / 5000.0;
                }
            }
        }
        counts
    };
    let even = depths(0.2);
    // Each is a fifth; 5,000 draws that depend on each other.
    assert!(even.iter().all(|share| (share - 0.2).abs() < 0.03), "{even:?}");
    // Fewer new tasks go deeper, more stay near the beginning.
    let (deep, shallow) = (depths(0.05), depths(0.5));
    assert!(deep[4] > 0.4 && deep.is_sorted(), "{deep:?}");
    assert!(shallow[4] < 0.1 && shallow.iter().rev().is_sorted(), "{shallow:?}");
}

#[test]
fn states_leave_when_used_or_stay_until_they_are_evicted() {
    let sizes = |body: &str| -> Vec<(f64, f64, f64)> {
        let mut world = World::scripted(Nature { turns: 100, ..Nature::default() }, without_end(100));
        let mut walking =
            world.strategy("macro-step", &format!("turns = 1\nstarts = 2\nbranches = 3\nfresh_share = 0.0\n{body}"));
        let mut sizes = Vec::new();
        for _ in 0..5 {
            world.collect(&mut *walking);
            let get = |name: &str| world.metrics.get(&format!("td/{name}")).unwrap();
            sizes.push((get("store_size"), get("evicted"), get("evicted_unused")));
        }
        sizes
    };
    let of = |all: Vec<(f64, f64, f64)>| all.into_iter().map(|(size, evicted, _)| (size, evicted)).collect::<Vec<_>>();
    assert_eq!(of(sizes("capacity = 8")), [(6.0, 0.0), (8.0, 2.0), (8.0, 4.0), (8.0, 4.0), (8.0, 4.0)]);
    assert_eq!(of(sizes("capacity = 8\nremove = false")), [(6.0, 0.0), (8.0, 4.0), (8.0, 6.0), (8.0, 6.0), (8.0, 6.0)]);
    // A store that is smaller than the batch: new tasks fill it up.
    let mut world = World::scripted(Nature { turns: 100, ..Nature::default() }, without_end(100));
    let mut walking = world.strategy("macro-step", "turns = 1\nstarts = 4\nbranches = 2\nfresh_share = 0.0\ncapacity = 3");
    for fresh in [4.0, 1.0, 1.0] {
        assert_eq!(world.collect(&mut *walking).len(), 4);
        assert_eq!(world.metrics.get("td/fresh_states"), Some(fresh));
    }
}

#[test]
fn it_goes_on_from_its_bytes() {
    const BODY: &str = "turns = 2\nstarts = 4\nbranches = 3\ncapacity = 9\nfresh_share = 0.3";
    for nature in natures() {
        for remove in ["true", "false"] {
            let body = format!("{BODY}\nremove = {remove}");
            let mut world = World::new(nature);
            let mut whole = world.strategy("macro-step", &body);
            let all: Vec<Vec<GroupLog>> = (0..6).map(|_| world.collect(&mut *whole)).collect();
            for stop in 0..6 {
                let mut world = World::new(nature);
                let mut first = world.strategy("macro-step", &body);
                (0..stop).for_each(|_| drop(world.collect(&mut *first)));
                let mut second = world.strategy("macro-step", &body);
                second.load(&first.save()).unwrap();
                let rest: Vec<Vec<GroupLog>> = (stop..6).map(|_| world.collect(&mut *second)).collect();
                assert_eq!(rest, all[stop..], "{nature:?}, stopped after {stop}");
            }
        }
    }
}

/// Changes the one state of a strategy's store.
fn tamper(walking: &mut dyn ascribe_core::RolloutStrategy, change: impl FnOnce(&mut Value)) {
    let mut saved: Value = serde_json::from_slice(&walking.save()).unwrap();
    assert_eq!(saved["states"].as_array().unwrap().len(), 1);
    change(&mut saved["states"][0]);
    walking.load(&serde_json::to_vec(&saved).unwrap()).unwrap();
}

/// What became of a start whose stored state was changed in this way: the reason of its failure.
fn lost(nature: Nature, change: impl FnOnce(&mut Value)) -> String {
    lost_in(World::scripted(Nature { turns: 50, ..nature }, without_end(50)), change)
}

fn lost_in(mut world: World, change: impl FnOnce(&mut Value)) -> String {
    let mut walking = world.strategy("macro-step", "turns = 3\nstarts = 1\nbranches = 2\nfresh_share = 0.0\ncapacity = 1");
    world.collect(&mut *walking);
    tamper(&mut *walking, change);
    let groups = world.collect(&mut *walking);
    // The group is there, and trains nothing; another task was played in its place.
    assert_eq!(groups.len(), 2);
    assert!(groups[0].turns.is_empty() && groups[0].leaves.iter().all(|leaf| !leaf.end.trains()), "{:?}", groups[0].leaves);
    assert!(groups[1].origin == Origin::Root && groups[1].leaves.iter().all(|leaf| leaf.end == End::MacroBoundary));
    let get = |name: &str| world.metrics.get(&format!("td/{name}"));
    assert_eq!((get("restore_failures"), get("fresh_states"), get("macro_index_mean")), (Some(1.0), Some(1.0), Some(0.0)));
    // It is gone from the store: what is there was reached from the new task.
    let later = world.collect(&mut *walking).remove(0);
    assert_eq!((later.before, later.task.clone()), (3, groups[1].task.clone()));
    assert!(later.leaves.iter().all(|leaf| leaf.end.trains()));
    let End::Failed(reason) = groups[0].leaves[0].end.clone() else { panic!("{:?}", groups[0].leaves[0]) };
    reason
}

#[test]
fn what_does_not_come_back_is_dropped_counted_and_never_trained_on() {
    let exact = Nature::default();
    let replay = Nature { snapshot: SnapshotKind::Replay, ..exact };
    // Bytes that are no state.
    let reason = lost(exact, |state| state["state"]["back"]["snapshot"]["bytes"] = serde_json::json!([1, 2, 3]));
    assert!(reason.contains("a state was not restored: the snapshot is damaged"), "{reason}");
    // Bytes of another state, which the environment takes: it shows something else.
    let other = |state: &mut Value| {
        let bytes: Vec<u8> = serde_json::from_value(state["state"]["back"]["snapshot"]["bytes"].clone()).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let mut at: Value = serde_json::from_str(&text).unwrap();
        at["coin"] = serde_json::json!((at["coin"].as_u64().unwrap() + 1) % 4);
        state["state"]["back"]["snapshot"]["bytes"] = serde_json::to_vec(&at).unwrap().into();
    };
    // "coin 2" and "coin 3" differ in their sixth byte.
    let reason = lost(exact, other);
    assert!(reason.contains("the observation differs from the saved one at byte 5"), "{reason}");
    // A deed that comes to something else.
    let reason = lost(replay, |state| state["state"]["back"]["deeds"][1]["reward"] = serde_json::json!(17.0));
    assert!(reason.contains("replaying deed 1, `b`: it paid 17 and now pays"), "{reason}");
    let reason = lost(replay, |state| state["state"]["back"]["deeds"][2]["state_after"][0] = serde_json::json!(0));
    assert!(reason.contains("replaying deed 2, `c`: the state after it is another one, from byte 0"), "{reason}");
    let reason = lost(replay, |state| state["state"]["back"]["shown"] = serde_json::json!("coin"));
    assert!(reason.contains("the observation differs from the saved one at byte 4"), "{reason}");
}

#[test]
fn a_state_of_another_environment_or_version_is_refused_by_name() {
    let knights = || {
        let config: Slot<dyn TaskSetConfig> = toml::from_str("knights = { max_probes = 12 }").unwrap();
        let context = BuildContext {
            seeds: toy::SEEDS,
            device: "cpu",
            threads: 1,
            environment: None,
            nodes: std::collections::BTreeSet::new(),
            base: std::path::PathBuf::new(),
        };
        World::of(config.build(&context).unwrap(), without_end(12), 10_000)
    };
    let reason = lost_in(knights(), |state| state["state"]["back"]["snapshot"]["fingerprint"] = "knights/0/older".into());
    assert!(reason.contains("the snapshot belongs to `knights/0/older`, this is `knights/1/"), "{reason}");
    let reason = lost_in(knights(), |state| state["state"]["back"]["snapshot"]["version"] = 99.into());
    assert!(reason.contains("the snapshot has format 99, this version reads 1"), "{reason}");
    let reason = lost_in(knights(), |state| state["state"]["back"]["snapshot"]["bytes"][0] = 255.into());
    assert!(reason.contains("a state was not restored: the snapshot is damaged"), "{reason}");
}

#[test]
fn a_way_there_that_is_longer_than_the_context_is_a_failed_start() {
    let reason = lost(Nature::default(), |state| {
        let long: Vec<u32> = vec![3; 20_000];
        state["state"]["history"]["tokens"] = serde_json::json!(long);
    });
    assert!(reason.contains("its first prompt has") && reason.contains("does not fit the policy's 10000"), "{reason}");
}

#[test]
fn a_boundary_whose_next_prompt_does_not_fit_is_cut_by_the_context_and_officially_a_boundary() {
    // "walk task N", then three times an action of two or three tokens and "coin N"; an action has four tokens at most.
    for (mode, want) in [("paper", End::Truncated(Limit::Context)), ("official", End::MacroBoundary)] {
        let mut world = World::limited(Nature { turns: 9, ..Nature::default() }, without_end(9), 16);
        let mut walking = world.strategy("macro-step", &format!("turns = 3\nstarts = 1\nbranches = 2\nmode = \"{mode}\""));
        let group = world.collect(&mut *walking).remove(0);
        for leaf in 0..2 {
            assert_eq!((path(&group, leaf).len(), &group.leaves[leaf].end), (3, &want), "{mode}");
        }
        // Nobody could go on from there.
        assert_eq!(world.metrics.get("td/store_size"), Some(0.0));
        // Before the boundary, the context cuts in both modes.
        let mut short = World::limited(Nature { turns: 9, ..Nature::default() }, without_end(9), 12);
        let mut walking = short.strategy("macro-step", &format!("turns = 3\nstarts = 1\nbranches = 2\nmode = \"{mode}\""));
        let group = short.collect(&mut *walking).remove(0);
        assert!(group.leaves.iter().all(|leaf| leaf.end == End::Truncated(Limit::Context)), "{:?}", group.leaves);
    }
}

#[test]
fn what_cannot_be_played_is_refused() {
    let world = World::new(Nature::default());
    let told = toy::build(&*world.tasks, "macro-step", "turns = 2\nstarts = 1048576\nbranches = 2").err().unwrap();
    assert!(told.contains("at most 1048576 fit"), "{told}");
    for body in ["turns = 0\nstarts = 1\nbranches = 1", "turns = 1\nstarts = 1\nbranches = 1\ncapacity = 0"] {
        assert!(toy::build(&*world.tasks, "macro-step", body).is_err(), "{body}");
    }
    let mut walking = world.strategy("macro-step", "turns = 2\nstarts = 1\nbranches = 2");
    assert!(walking.load(b"[]").unwrap_err().contains("the stored states are damaged"));
}
