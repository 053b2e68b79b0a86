//! The README's first command, measured: what cloning gives, what reinforcement learning makes of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace").to_path_buf()
}

/// What a run measured, by phase.
#[derive(Debug)]
struct Measured {
    greedy: f64,
    sampled: f64,
    /// Share of greedy episodes that submit the exploit.
    exploit: f64,
    /// Share of tasks whose eight sampled episodes all came out alike.
    degenerate: f64,
}

/// Runs the quickstart and reads what it measured after cloning and after reinforcement learning.
fn quickstart(seed: u64, settings: &[&str]) -> [Measured; 2] {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = Command::new(ascribe_tests::binary())
        .args(["run", root().join("experiments/quickstart.toml").to_str().expect("UTF-8"), "--seed", &seed.to_string()])
        .args(settings)
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{text}");
    for said in ["greedy", "sampled", "exploit", "the run lies in", "next:"] {
        assert!(text.contains(said), "the summary lacks `{said}`:\n{text}");
    }
    let run = folder.path().join(format!("runs/quickstart/main/seed-{seed}"));
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let evaluations = fs::read_to_string(run.join("evaluations.jsonl")).expect("evaluations");
    let lines = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    };
    let evaluated: Vec<serde_json::Value> =
        lines(&metrics).into_iter().filter(|m| m.get("eval/held_out/greedy/success").is_some()).collect();
    assert_eq!(evaluated.len(), 2, "one evaluation after each phase");
    let by_task = lines(&evaluations);
    [0, 1].map(|phase| {
        let number = |name: &str| evaluated[phase][name].as_f64().unwrap_or_else(|| panic!("no `{name}`"));
        let update = &evaluated[phase]["update"];
        let groups: Vec<Vec<bool>> = by_task
            .iter()
            .filter(|line| &line["update"] == update && line["mode"] == "sampled")
            .map(|line| {
                let episodes = line["episodes"].as_array().expect("episodes of a task");
                episodes.iter().map(|e| e["success"].as_bool().expect("solved or not")).collect()
            })
            .collect();
        assert!(groups.len() == 40 && groups.iter().all(|g| g.len() == 8));
        let alike = groups.iter().filter(|g| g.iter().all(|s| *s == g[0])).count();
        Measured {
            greedy: number("eval/held_out/greedy/success"),
            sampled: number("eval/held_out/sampled/success"),
            exploit: number("eval/held_out/greedy/exploit"),
            degenerate: alike as f64 / groups.len() as f64,
        }
    })
}

fn check_clone(clone: &Measured) {
    assert!((0.10..=0.30).contains(&clone.sampled), "{clone:?}");
    assert!(clone.greedy <= 0.40, "{clone:?}");
    assert!(clone.degenerate <= 0.45, "{clone:?}");
}

#[test]
fn seed_zero() {
    let [clone, trained] = quickstart(0, &[]);
    println!("after cloning {clone:?}\nafter GRPO    {trained:?}");
    check_clone(&clone);
    assert!(trained.greedy >= 0.6 && trained.exploit <= clone.exploit, "{clone:?} {trained:?}");
}

/// Ten runs of about a minute. `.ci/run` calls it by name.
#[test]
#[ignore = "ten runs of about a minute: cargo test --release -p ascribe-tests --test quickstart -- --ignored"]
fn five_seeds_and_the_random_control() {
    let (mut trained_greedy, mut control_gain) = (Vec::new(), Vec::new());
    for seed in 0..5 {
        let [clone, trained] = quickstart(seed, &[]);
        println!("seed {seed}: after cloning {clone:?}, after GRPO {trained:?}");
        check_clone(&clone);
        assert!(trained.greedy >= 0.6, "seed {seed}: {trained:?}");
        trained_greedy.push(trained.greedy);
        let [before, control] = quickstart(seed, &["transform=[\"random\"]"]);
        println!("seed {seed}: with the random control {control:?}");
        assert_eq!(before.greedy, clone.greedy, "the control begins from the same clone");
        control_gain.push(control.greedy - before.greedy);
    }
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    println!("mean greedy success {:.3}, mean gain of the control {:.3}", mean(&trained_greedy), mean(&control_gain));
    assert!(mean(&trained_greedy) >= 0.8);
    assert!(mean(&control_gain) < 0.10);
}
