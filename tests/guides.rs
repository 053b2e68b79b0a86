//! What the guides show is run as it stands: each piece of TOML on top of a small experiment.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use ascribe_tests::{ascribe, said};

/// What a piece is shown without. It may say everything anew.
const BASE: &str = r#"
question = "Does what the guides show run?"
environment = "bugfix"
estimator = "grpo"
objective = "ppo-clip"

[policy.actor.transformer]
d_model = 16
layers = 1
heads = 2
max_tokens = 512

[rollout.independent]
groups = 2
group_size = 2

[update]
learning_rate = 1e-3
"#;

fn guide(name: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = std::fs::read_to_string(root.join("docs/guide").join(name)).unwrap();
    text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_string()).collect()
}

/// Every phase for two updates, whatever the guide says.
fn short(piece: &str) -> String {
    let line = |line: &str| if line.starts_with("updates = ") { "updates = 2\n".to_string() } else { format!("{line}\n") };
    format!("extends = \"base.toml\"\nupdates = 2\n{}", piece.lines().map(line).collect::<String>())
}

fn failures(name: &str, args: &[&str]) -> Vec<String> {
    let pieces = guide(name);
    assert!(!pieces.is_empty(), "{name} shows something");
    let of = |(i, piece): (usize, &String)| {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("base.toml"), BASE).unwrap();
        std::fs::write(place.path().join("README.md"), "It will.").unwrap();
        std::fs::write(place.path().join("shown.toml"), short(piece)).unwrap();
        let out = ascribe(place.path(), args);
        (!out.status.success()).then(|| format!("{name}, piece {}:\n{piece}{}", i + 1, said(&out)))
    };
    pieces.iter().enumerate().filter_map(of).collect()
}

#[test]
fn what_the_guides_show_runs() {
    let run = ["critics.md", "estimators.md", "rollouts.md"].map(|name| failures(name, &["run", "shown.toml"]));
    let planned = ["grids.md"].map(|name| failures(name, &["grid", "plan", "shown.toml"]));
    let all: Vec<String> = run.into_iter().chain(planned).flatten().collect();
    assert!(all.is_empty(), "{}", all.join("\n\n"));
}
