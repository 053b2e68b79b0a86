//! Every estimator, transform and rollout whose needs an embedded environment meets trains a few updates, stops, and goes on as if it
//! had not stopped.

use std::fs;
use std::process::{Command, Output};

use ascribe_tests::{binary, said};
use tempfile::TempDir;

const EXPERIMENT: &str = r#"
objective = "reinforce"
policy.actor = "tabular"
update = { learning_rate = 0.1 }
checkpoint = { every = 1 }
"#;

const TREE: &str = "environment.token-tree = { tasks = 4, depth = 3, branches = 3, rewards = \"dense\", states = \"sums\" }\n";
/// Wrong answers cost something, so that outcomes of an untrained policy differ.
const TOOL: &str = "environment.mini-tool = { max_calls = 4, failure_cost = 1.0 }\n";

/// Worlds in which an estimator's needs may be met: the plain one, with values, and with what critics say of turns.
const WORLDS: [(&str, &str); 6] = [
    (TREE, ""),
    (TREE, "critic.judge.value-head = { unit = \"token\" }\n"),
    (TOOL, ""),
    (TOOL, "critic.gain.info-gain = {}\n"),
    (TOOL, "critic.progress.spa-progress = {}\n"),
    (TOOL, "critic.steps.process-model = { labels = \"validity\", column = \"turn_reward\" }\n"),
];

fn ascribe(folder: &TempDir, args: &[&str]) -> Output {
    Command::new(binary()).args(args).current_dir(folder.path()).output().expect("the binary runs")
}

const INDEPENDENT: &str = "rollout.independent = { groups = 4, group_size = 4, decode = \"admissible\" }\n";

/// Names and examples of all plugins of a kind.
fn plugins(kind: &str) -> Vec<(String, String)> {
    let out = ascribe(&tempfile::tempdir().expect("a folder"), &["plugins", kind, "--json"]);
    let rows: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&out)));
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().expect("a text").to_string();
    rows.as_array().expect("a list").iter().map(|row| (text(row, "name"), text(row, "example"))).collect()
}

/// Trains with these tables beside the experiment; whether its needs are met.
fn trains(name: &str, tables: &str) -> bool {
    let metrics = |folder: &TempDir| fs::read_to_string(folder.path().join("runs/test/main/seed-0/metrics.jsonl"));
    let place = || {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("test.toml"), format!("{EXPERIMENT}\n{tables}")).expect("written");
        folder
    };
    let (whole, stopped) = (place(), place());
    let check = ascribe(&whole, &["check", "test.toml", "updates=4"]);
    if !check.status.success() {
        let unmet = said(&check).lines().filter(|l| l.starts_with("error: ")).collect::<Vec<_>>().join("; ");
        assert!(unmet.contains("needs"), "`{name}`: {}", said(&check));
        println!("`{name}` is not asked: {unmet}");
        return false;
    }
    let run = |folder: &TempDir, updates: &str| {
        let out = ascribe(folder, &["run", "test.toml", updates]);
        assert!(out.status.success(), "`{name}`: {}", said(&out));
    };
    run(&whole, "updates=4");
    run(&stopped, "updates=2");
    run(&stopped, "updates=4");
    let (a, b) = (metrics(&whole).expect("metrics"), metrics(&stopped).expect("metrics"));
    assert_eq!(a.lines().count(), 4, "`{name}`");
    // Episodes earn something, and not all the same: there was something to learn from.
    let first: serde_json::Value = serde_json::from_str(a.lines().next().unwrap_or_default()).expect("a line of JSON");
    let score = |end: &str| first[format!("critic/score/{end}")].as_f64().expect("a number");
    assert!(score("max") > score("min"), "`{name}`: {first}");
    assert_eq!(a, b, "`{name}`: resumed, it goes another way");
    true
}

#[test]
fn every_estimator_whose_needs_are_met_trains_and_resumes() {
    let all = plugins("estimator");
    let somewhere = |(name, example): &&(String, String)| {
        let in_world = |(environment, critics): &(&str, &str)| {
            trains(name, &format!("{environment}{critics}{INDEPENDENT}[estimator.{name}]\n{example}\n"))
        };
        let trained = WORLDS.iter().any(in_world);
        if !trained {
            println!("`{name}` trains nowhere");
        }
        trained
    };
    // Whether `command` trains is up to the machine: its example runs a program.
    let asked = all.iter().filter(|(name, _)| name != "command");
    let nowhere: Vec<&str> = asked.filter(|row| !somewhere(row)).map(|(name, _)| name.as_str()).collect();
    println!("{} of {} estimators trained and resumed", all.len() - nowhere.len(), all.len());
    // They read columns that no environment or critic of this repository gives.
    assert_eq!(nowhere, ["hae", "optimal-token-baseline"], "of {}", all.len());
}

#[test]
fn every_transform_whose_needs_are_met_trains_and_resumes() {
    let all = plugins("transform");
    let with = |name: &str, example: &str| {
        format!("{TREE}{INDEPENDENT}[estimator.grpo]\n[[transform]]\n[transform.{name}]\n{example}\n")
    };
    let trained = all.iter().filter(|(name, example)| trains(name, &with(name, example))).count();
    println!("{trained} of {} transforms trained and resumed", all.len());
    assert!(trained >= 13, "only {trained} of {}", all.len());
}

#[test]
fn every_rollout_whose_needs_are_met_trains_and_resumes() {
    let all = plugins("rollout");
    // The example of a wrapper holds another rollout, whose keys these are.
    let with = |name: &str, example: &str| {
        let decode = "decode = \"admissible\"";
        let example = match example.contains("of.") {
            true => example.replace(" }", &format!(", {decode} }}")),
            false => format!("{example}\n{decode}"),
        };
        // Who judges candidates. It judges by the policy as it is, so it refuses episodes of an earlier one.
        let critic = if example.contains("column") { "critic.exact.oracle = {}" } else { "" };
        format!("{TREE}{critic}\nestimator = \"grpo\"\n[rollout.{name}]\n{example}\n")
    };
    let trained = all.iter().filter(|(name, example)| trains(name, &with(name, example))).count();
    println!("{trained} of {} rollouts trained and resumed", all.len());
    assert!(trained >= 6, "only {trained} of {}", all.len());
}
