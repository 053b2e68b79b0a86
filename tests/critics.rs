//! Critics on a transformer, in runs of the real binary.
#![allow(clippy::unwrap_used)]

use std::process::Command;

/// Metrics of the first update of a run with this critic, in micro-batches of 200 tokens.
fn first_update(critic: &str) -> serde_json::Value {
    let place = tempfile::tempdir().unwrap();
    let text = format!(
        "environment.bugfix = {{ call_cost = 0.01 }}
        objective = \"ppo-clip\"
        estimator.return-to-go.gamma = 1.0
        updates = 1
        policy.actor.transformer = {{ d_model = 16, layers = 1, heads = 2, max_tokens = 256 }}
        rollout.independent = {{ groups = 4, group_size = 2 }}
        update.learning_rate = 1e-3
        update.micro_batch_tokens = 200
        {critic}"
    );
    let file = place.path().join("experiment.toml");
    std::fs::write(&file, text).unwrap();
    let ran = Command::new(ascribe_tests::binary()).arg("run").arg(&file).current_dir(place.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let metrics = std::fs::read_to_string(place.path().join("runs/experiment/main/seed-0/metrics.jsonl")).unwrap();
    serde_json::from_str(metrics.lines().next().unwrap()).unwrap()
}

#[test]
fn actor_and_value_head_share_the_backward_pass_of_each_micro_batch() {
    let passes = |critic: &str| {
        let metrics = first_update(critic);
        let of = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("{name} in {metrics}"));
        of("actor/backward_passes")
    };
    let alone = passes("");
    assert!(alone > 1.0, "{alone}");
    assert_eq!(passes("critic.judge.value-head = {}"), alone);
    assert_eq!(passes("critic.judge.value-head = { own_rows = true }"), 2.0 * alone);
}
