//! Every plugin in the registry keeps the promises of its kind.

use std::collections::BTreeSet;

use ascribe_core::environment::{ActionText, RestoreError, SnapshotKind, TRAIN, TaskId};
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::{
    AdvantageEstimator, BuildContext, BuildError, CreditTransform, CriticConfig, Draw, Need, Now, Objective, PolicyConfig, Rng,
    RolloutConfig, Schedule, Scope, Seeds, Slot, TaskSet, TaskSetConfig,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

// Every plugin crate is linked by the binary's library.
use ascribe as _;

/// A plugin built from its own example.
fn example<T: DeserializeOwned>(name: &str, body: &str) -> T {
    let body: toml::Table = toml::from_str(body).unwrap_or_else(|e| panic!("`{name}`: its example is no TOML: {e}"));
    let slot = toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))]);
    T::deserialize(toml::Value::Table(slot)).unwrap_or_else(|e| panic!("`{name}`: its example is refused: {e}"))
}

fn all<T: ?Sized>(kind: Kind) -> Vec<(&'static str, Slot<T>)>
where
    Slot<T>: DeserializeOwned,
{
    plugins(kind).into_iter().map(|row| (row.name, example(row.name, row.example))).collect()
}

fn context() -> BuildContext<'static> {
    BuildContext { seeds: Seeds(0), device: "cpu", threads: 1, environment: None, nodes: BTreeSet::new(), base: ".".into() }
}

/// Environments that can be opened here. One whose data are absent is skipped, and says so.
fn environments() -> Vec<(&'static str, Box<dyn TaskSet>)> {
    let mut out = Vec::new();
    for (name, config) in all::<dyn TaskSetConfig>(Kind::Environment) {
        match config.build(&context()) {
            Ok(tasks) => out.push((name, tasks)),
            Err(BuildError::Data(why)) => println!("skipped `{name}`: {why}"),
            Err(e) => panic!("`{name}`: {e}"),
        }
    }
    out
}

#[test]
fn rows_are_complete_and_named_alike() {
    for kind in Kind::ALL {
        let rows = plugins(kind);
        let names: Vec<&str> = rows.iter().map(|r| r.name).collect();
        assert!(names.windows(2).all(|w| w[0] != w[1]), "{kind}: two plugins of one name: {names:?}");
        for row in rows {
            let kebab = row.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            assert!(kebab, "{kind} `{}` is not in kebab case", row.name);
            assert!(row.summary.ends_with('.') && !row.when.is_empty(), "{kind} `{}` wants a summary and a when", row.name);
        }
    }
    assert!(plugins(Kind::Estimator).len() >= 2 && plugins(Kind::Environment).len() >= 2, "the plugin crates are linked");
}

/// typetag lists the tags it knows when asked for one that does not exist: none may lack a row.
#[test]
fn every_tag_has_a_row() {
    fn tags<T: ?Sized>(kind: Kind)
    where
        Slot<T>: DeserializeOwned,
    {
        let unknown: toml::Table = toml::from_str("no-such-plugin = {}").expect("TOML");
        let message = match Slot::<T>::deserialize(toml::Value::Table(unknown)) {
            Ok(_) => panic!("a plugin called no-such-plugin"),
            Err(e) => e.message().to_string(),
        };
        let listed = message.split("expected").nth(1).unwrap_or_default();
        let listed: BTreeSet<&str> = listed.split('`').skip(1).step_by(2).collect();
        let rows: BTreeSet<&str> = plugins(kind).iter().map(|r| r.name).collect();
        let lacking: Vec<_> = listed.difference(&rows).collect();
        assert!(lacking.is_empty(), "{kind}: tags without a row: {lacking:?}");
        assert!(kind == Kind::Critic || !rows.is_empty(), "{kind}: no plugin is linked");
    }
    tags::<dyn TaskSetConfig>(Kind::Environment);
    tags::<dyn PolicyConfig>(Kind::Policy);
    tags::<dyn RolloutConfig>(Kind::Rollout);
    tags::<dyn CriticConfig>(Kind::Critic);
    tags::<dyn AdvantageEstimator>(Kind::Estimator);
    tags::<dyn CreditTransform>(Kind::Transform);
    tags::<dyn Objective>(Kind::Objective);
    tags::<dyn Schedule>(Kind::Schedule);
}

#[test]
fn schedules_stay_in_their_bounds() {
    for (name, schedule) in all::<dyn Schedule>(Kind::Schedule) {
        let (low, high) = schedule.bounds();
        assert!(low <= high && low.is_finite() && high.is_finite(), "`{name}`");
        let mut memory = Vec::new();
        let mut rng = Seeds(0).rng("schedule", Draw::default());
        for update in 0..300 {
            let mut now = Now { update, phase_update: update, phase_updates: 300, ..Now::default() };
            now.metrics.set("actor/entropy", 3.0 * rng.normal());
            let x = schedule.at(&now, &mut memory);
            assert!((low..=high).contains(&x), "`{name}` gave {x}, outside {low}..={high}");
        }
    }
}

/// An action that is possible, or else some words.
fn some_action(environment: &dyn ascribe_core::Environment, rng: &mut Rng) -> String {
    match environment.admissible() {
        Some(actions) if !actions.is_empty() && rng.below(8) > 0 => rng.choose(&actions).expect("not empty").clone(),
        _ => ["", "look", "\u{1F34E} ???", "go to nowhere 99"][rng.below(4)].to_string(),
    }
}

#[test]
fn environments_are_deterministic_and_restore_exactly() {
    for (name, tasks) in environments() {
        let about = tasks.capabilities();
        assert_eq!(tasks.splits().first().map(String::as_str), Some(TRAIN), "`{name}`: training comes first");
        assert!(tasks.len(TRAIN) > 0 && tasks.len("no such split") == 0);
        assert!(tasks.open(&TaskId { split: "no such split".into(), index: 0 }, 0).is_err(), "`{name}`");
        assert!(tasks.open(&TaskId { split: TRAIN.into(), index: u32::MAX }, 0).is_err(), "`{name}`");
        for index in 0..tasks.len(TRAIN).min(5) as u32 {
            let task = TaskId { split: TRAIN.into(), index };
            let mut rng = Seeds(index.into()).rng("conformance", Draw::default());
            let (mut a, mut b) = (tasks.open(&task, 1).expect("opens"), tasks.open(&task, 1).expect("opens"));
            let mut saved = Vec::new();
            for turn in 0..about.max_turns + 2 {
                assert_eq!(a.observe(), a.observe(), "`{name}`: looking changes nothing");
                assert_eq!((a.observe(), a.state_key()), (b.observe(), b.state_key()), "`{name}`: two episodes of one seed");
                if let Some(actions) = a.admissible() {
                    assert!(actions.is_sorted(), "`{name}`: admissible actions are sorted");
                }
                if about.snapshot == SnapshotKind::Exact {
                    saved.push((a.snapshot().expect("exact snapshots"), a.state_key(), a.observe()));
                }
                let action = some_action(&*a, &mut rng);
                let act = ActionText { text: &action, complete: true };
                let (x, y) = (a.step(act).expect("no environment breaks"), b.step(act).expect("no environment breaks"));
                assert_eq!((x.reward, &x.end), (y.reward, &y.end));
                assert!(x.reward.is_finite() && f64::from(x.reward) <= about.r_max);
                if x.end.is_some() || turn > about.max_turns {
                    break;
                }
            }
            let end = (a.state_key(), a.observe());
            for (snapshot, key, seen) in &saved {
                b.restore(snapshot).unwrap_or_else(|e| panic!("`{name}`: {e}"));
                assert_eq!((&b.state_key(), &b.observe()), (key, seen), "`{name}`: restored exactly");
                // What happens after restoring does not reach the other episode, nor the snapshot.
                let action = some_action(&*b, &mut rng);
                b.step(ActionText { text: &action, complete: true }).expect("steps");
                assert_eq!((a.state_key(), a.observe()), end, "`{name}`: episodes share nothing");
                b.restore(snapshot).expect("a snapshot can be restored again");
                assert_eq!((&b.state_key(), &b.observe()), (key, seen));
            }
            if let Some((snapshot, ..)) = saved.first() {
                let mut foreign = snapshot.clone();
                foreign.fingerprint.push('x');
                let before = b.state_key();
                assert!(matches!(b.restore(&foreign), Err(RestoreError::Foreign { .. })), "`{name}`: a foreign snapshot");
                let mut cut = snapshot.clone();
                cut.bytes.truncate(cut.bytes.len() / 2);
                assert!(b.restore(&cut).is_err(), "`{name}`: a damaged snapshot");
                let mut other = snapshot.clone();
                other.observation.push('x');
                assert!(matches!(b.restore(&other), Err(RestoreError::Diverged { .. })), "`{name}`: another observation");
                assert_eq!(b.state_key(), before, "`{name}`: after an error the episode is as it was");
            }
        }
    }
}

#[test]
fn what_an_environment_says_it_provides_is_there() {
    for (name, tasks) in environments() {
        let task = TaskId { split: TRAIN.into(), index: 0 };
        let mut episode = tasks.open(&task, 0).expect("opens");
        let mut rng = Seeds(0).rng("provides", Draw::default());
        for need in &tasks.capabilities().provides {
            let there = match need {
                Need::Expert => episode.expert(&mut rng).is_some(),
                Need::Admissible => episode.admissible().is_some_and(|a| !a.is_empty()),
                Need::Privileged => episode.privileged().is_some(),
                Need::GroundTruth => episode.ground_truth().is_some(),
                Need::ExactSnapshot => episode.snapshot().is_ok(),
                Need::ExactStateKey => !episode.state_key().is_empty(),
                Need::Oracle => tasks.oracle(&task).is_some(),
                Need::Signal(_, scope) => *scope == Scope::Turn,
                other => panic!("`{name}` says it provides {other}"),
            };
            assert!(there, "`{name}` says it provides {need}");
        }
    }
}
