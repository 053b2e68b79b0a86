//! Outcome and process rewards on `mini-tool`: the credits of the text's good and bad plan, and what a true report earns.

mod example;

use std::collections::{BTreeMap, BTreeSet};

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{ActionText, TaskId};
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::{AdvantageEstimator, Batch, BuildContext, Now, Seeds, Slot, TaskSet, TaskSetConfig};

use example::plugin;

// The plugin crates are linked.
use {ascribe_environments as _, ascribe_estimators as _};

const GOOD: [&str; 4] = ["search earth_radius", "calculate 2 * 3.14159 * 6371", "verify earth_radius is 6371", "answer 40030"];
/// As good, but π is taken for 3.
const BAD: [&str; 4] = ["search earth_radius", "calculate 2 * 3 * 6371", "verify earth_radius is 6371", "answer 38226"];

fn tasks(keys: &str) -> Box<dyn TaskSet> {
    let config: Slot<dyn TaskSetConfig> = plugin("mini-tool", keys);
    let nodes = BTreeSet::new();
    let context = BuildContext { seeds: Seeds(0), device: "cpu", threads: 1, environment: None, nodes, base: ".".into() };
    config.build(&context).unwrap_or_else(|e| panic!("{e}"))
}

/// A group that says what each plan says, about the circumference of the earth.
fn played(keys: &str, plans: &[&[&str]]) -> Batch {
    let tasks = tasks(keys);
    let splits = tasks.splits();
    let mut ids =
        splits.iter().flat_map(|split| (0..tasks.len(split) as u32).map(move |index| TaskId { split: split.clone(), index }));
    let task = ids.find(|id| tasks.name(id) == "circumference-earth-radius").expect("the text's question");
    let mut log = GroupLog { task_name: tasks.name(&task), fingerprint: tasks.fingerprint(), ..GroupLog::default() };
    for plan in plans {
        let mut episode = tasks.open(&task, 0).expect("a task");
        let mut parent = None;
        for (t, text) in plan.iter().enumerate() {
            let state = episode.state_key();
            let step = episode.step(ActionText { text, complete: true }).expect("a step");
            log.turns.push(TurnLog {
                parent,
                agent: "actor".into(),
                read: vec![0],
                action: Action::given(vec![1]),
                reward: step.reward,
                state,
                state_after: episode.state_key(),
                signals: step.signals,
                ..TurnLog::default()
            });
            parent = Some(log.turns.len() - 1);
            assert_eq!(step.end.is_some(), t + 1 == plan.len(), "{text}");
            if let Some(end) = step.end {
                log.leaves.push(LeafLog { turn: parent, end, seed: 0 });
            }
        }
    }
    Batch::from_groups(vec![log], NonFinite::Refuse).expect("well formed")
}

/// Discounted returns of what these columns sum to, turn by turn.
fn credit(mut batch: Batch, reward: &[(&str, f64)], gamma: f64) -> Vec<f32> {
    let weights: BTreeMap<String, f64> = reward.iter().map(|(name, weight)| ((*name).into(), *weight)).collect();
    batch.combine_rewards(&weights).expect("the columns are there");
    let estimator: Slot<dyn AdvantageEstimator> = plugin("return-to-go", &format!("gamma = {gamma:?}"));
    let credit = estimator.estimate(batch.group(0), &Now::default()).expect("credit");
    credit.turns.into_iter().map(|a| a.expect("every turn was tried")).collect()
}

fn check(keys: &str, plan: &[&str], reward: &str, want: &[f32]) {
    // The report earns nothing, so it moves no credit of the turns before it.
    let told = plan.iter().copied().chain(["report wrong"]).collect::<Vec<_>>();
    for (keys, plan) in [(format!("{keys}\nself_report = false"), plan), (keys.to_string(), &told[..])] {
        let got = credit(played(&keys, &[plan]), &[(reward, 1.0)], 0.95);
        // f32: the returns are below 2.
        let close = got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close && got.iter().skip(want.len()).all(|a| *a == 0.0), "{keys} {plan:?}: {got:?}, not {want:?}");
    }
}

#[test]
fn outcome_rewards_credit_a_plan_as_in_the_text() {
    // 0.95³, 0.95², 0.95, 1
    check("", &GOOD, "env", &[0.857_375, 0.902_5, 0.95, 1.0]);
    check("", &BAD, "env", &[0.0; 4]);
    // With −1 for a failure the right search is punished.
    check("failure_cost = 1.0", &BAD, "env", &[-0.857_375, -0.902_5, -0.95, -1.0]);
    check("failure_cost = 1.0", &GOOD, "env", &[0.857_375, 0.902_5, 0.95, 1.0]);
}

#[test]
fn process_rewards_credit_a_plan_as_the_texts_code_does() {
    // 0.3 + 0.95 · 1 = 1.25; 0.3 + 0.95 · 1.25 = 1.4875; 0.3 + 0.95 · 1.4875 = 1.713125
    check("", &GOOD, "process_reward", &[1.713_125, 1.487_5, 1.25, 1.0]);
    // 0.3 − 0.95 · 0.5 = −0.175; 0.3 − 0.95 · 0.175 = 0.13375; 0.3 + 0.95 · 0.13375 = 0.4270625. The numbers printed beside
    // the code, 0.656, 0.376 and 0.170, do not follow from it.
    check("", &BAD, "process_reward", &[0.427_062_5, 0.133_75, -0.175, -0.5]);
}

#[test]
fn process_rewards_for_what_is_useful_find_the_wrong_step() {
    check("process = \"useful\"", &GOOD, "process_reward", &[1.713_125, 1.487_5, 1.25, 1.0]);
    // −0.3 − 0.95 · 0.175 = −0.46625; 0.3 − 0.95 · 0.46625 = −0.1429375
    check("process = \"useful\"", &BAD, "process_reward", &[-0.142_937_5, -0.466_25, -0.175, -0.5]);
}

#[test]
fn a_true_report_earns_a_bonus_whatever_the_outcome() {
    // RefGRPO: R + 0.1 where report and outcome agree.
    let plans: [&[&str]; 5] = [
        &["answer 40030", "report right"],
        &["answer 40030", "report wrong"],
        &["answer 38226", "report wrong"],
        &["answer 38226", "report right"],
        &["answer 38226", "report perhaps"],
    ];
    let returns = credit(played("", &plans), &[("env", 1.0), ("self_report_match", 0.1)], 1.0);
    let of_paths: Vec<f32> = returns.iter().step_by(2).copied().collect();
    assert_eq!(of_paths, [1.1, 1.0, 0.1, 0.0, 0.0]);
}
