//! Whole experiments with critics: checked as `check` does it, and run.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use ascribe_config::{Loaded, Request, load};
use ascribe_core::registry::{Kind, plugin};
use ascribe_run::{Ended, Event, Options, Progress, folder, run};

// A crate that is linked but never named is dropped by the linker.
use {
    ascribe_critics as _, ascribe_environments as _, ascribe_estimators as _, ascribe_objectives as _, ascribe_policies as _,
    ascribe_rollouts as _,
};

struct Quiet;
impl Progress for Quiet {
    fn on(&mut self, _: Event<'_>) {}
}

/// λ follows how much of the returns the critic explains: the more, the more it is trusted.
const FEEDBACK: &str = "
    environment.repair-mdp = { horizon = 12, step_cost = 0.05 }
    objective = \"reinforce\"
    updates = 40
    policy.actor.tabular = {}
    rollout.independent = { groups = 32, group_size = 2, decode = \"admissible\" }
    update.learning_rate = 0.02
    critic.judge.tabular = { step_size = 0.3, target = \"return\" }
    [estimator.gae]
    gamma = 1.0
    [estimator.gae.lambda.feedback]
    metric = \"critic/judge/explained_variance\"
    target = 0.1
    initial = 1.0
    gain = -0.5
    min = 0.5
    max = 1.0
";

fn checked(folder: &Path, text: &str) -> Loaded {
    let file = folder.join("experiment.toml");
    std::fs::write(&file, text).unwrap();
    load(&Request::new(file)).unwrap_or_else(|report| panic!("{report}\n{text}"))
}

/// Metrics of every update.
fn played(text: &str) -> Vec<BTreeMap<String, f64>> {
    let place = tempfile::tempdir().unwrap();
    let options = Options { folder: Some(place.path().join("run")), ..Options::default() };
    let report = run(&checked(place.path(), text).plan, &options, &mut Quiet).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(report.ended, Ended::Finished);
    folder::metrics(&place.path().join("run")).unwrap().into_iter().map(|line| line.metrics.0).collect()
}

#[test]
fn lambda_follows_the_explained_variance_of_a_critic() {
    let metrics = played(FEEDBACK);
    let of = |name: &str| metrics.iter().map(|m| m.get(name).copied()).collect::<Vec<_>>();
    let (explained, lambda) = (of("critic/judge/explained_variance"), of("knob/estimator.gae.lambda"));
    let mut expected = 1.0f64;
    for (update, now) in lambda.iter().enumerate() {
        let error = update.checked_sub(1).and_then(|last| explained[last]).map_or(0.0, |x| x - 0.1);
        expected = (expected * (-0.5 * error).exp()).clamp(0.5, 1.0);
        let now = now.unwrap();
        assert!((now - expected).abs() < 1e-9, "update {update}: λ is {now}, not {expected}");
    }
    // It has something to follow: the table begins with nothing and comes to explain something.
    assert!(explained[0].unwrap() <= 0.0 && explained.iter().flatten().any(|x| *x > 0.2), "{explained:?}");
    assert!(lambda.last().unwrap().unwrap() < 0.95, "{lambda:?}");
}

#[test]
fn a_schedule_on_a_critic_that_is_resumed_goes_on() {
    let whole = played(FEEDBACK);
    let place = tempfile::tempdir().unwrap();
    let options = Options { folder: Some(place.path().join("run")), ..Options::default() };
    for updates in ["updates = 15", "updates = 40"] {
        run(&checked(place.path(), &FEEDBACK.replace("updates = 40", updates)).plan, &options, &mut Quiet).unwrap();
    }
    let resumed = folder::metrics(&place.path().join("run")).unwrap();
    let resumed: Vec<BTreeMap<String, f64>> = resumed.into_iter().map(|line| line.metrics.0).collect();
    assert_eq!(resumed, whole);
}

#[test]
fn every_critic_of_values_runs_as_its_example_says() {
    for (name, decode) in [("oracle", "admissible"), ("tabular", "free"), ("monte-carlo", "free"), ("monte-carlo", "admissible")]
    {
        let example = plugin(Kind::Critic, name).unwrap().example;
        for estimator in ["gae = { gamma = 1.0, lambda = 0.95 }", "vine = {}", "td = { gamma = 1.0 }", "remax = {}"] {
            let text = format!(
                "environment.repair-mdp = {{ horizon = 4, step_cost = 0.05 }}
                objective = \"reinforce\"
                updates = 3
                policy.actor.tabular = {{}}
                update.learning_rate = 0.1
                rollout.independent = {{ groups = 2, group_size = 2, decode = \"{decode}\" }}
                estimator.{estimator}
                [critic.judge.{name}]
                {example}"
            );
            let metrics = played(&text);
            assert!(metrics[2].contains_key("signal/value/mean"), "{name}: {:?}", metrics[2]);
            assert!(name == "oracle" || metrics[2].keys().any(|m| m.starts_with("critic/judge/")), "{name}");
        }
    }
}

#[test]
fn a_value_table_learns_from_continuations() {
    let text = FEEDBACK.replace("target = \"return\" }", "target = \"monte-carlo\" }").replace("updates = 40", "updates = 5");
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("x.toml"), &text).unwrap();
    let report = load(&Request::new(place.path().join("x.toml"))).unwrap_err().to_string();
    assert!(report.contains("`mc_value`") && report.contains("[critic.NAME.monte-carlo]"), "{report}");
    let both = format!("{text}\n[critic.probes.monte-carlo]\nsamples = 3\nas_value = false");
    let metrics = played(&both);
    assert!(metrics[4]["critic/judge/explained_variance"].is_finite());
    assert!(metrics[4]["cost/branch_tokens"] > 0.0 && metrics[4]["critic/probes/probes"] > 0.0);
}

#[test]
fn probes_and_self_reports_on_an_environment_that_cuts_before_its_last_turn() {
    for decode in ["free", "admissible"] {
        let text = format!(
            "environment.mini-tool = {{ max_calls = 4 }}
            objective = \"reinforce\"
            estimator = \"vine\"
            updates = 3
            policy.actor.tabular = {{}}
            update.learning_rate = 0.1
            rollout.independent = {{ groups = 2, group_size = 2, decode = \"{decode}\" }}
            critic.probes.monte-carlo = {{ samples = 2 }}
            critic.honest.calibration = {{}}
            reward = {{ env = 1.0, calibration = 1.0 }}"
        );
        let metrics = played(&text);
        assert!(metrics.iter().all(|m| m["critic/probes/failed_probes"] == 0.0 && m.contains_key("critic/honest/report_rate")));
    }
}

#[test]
fn targets_that_no_estimator_gives_are_told_before_the_run() {
    let place = tempfile::tempdir().unwrap();
    let ask = |estimator: &str| {
        let text = FEEDBACK.replace("target = \"return\" }", "target = \"estimator\" }");
        let text = format!("{}\n{estimator}", text.split("[estimator.gae]").next().unwrap());
        std::fs::write(place.path().join("x.toml"), text).unwrap();
        load(&Request::new(place.path().join("x.toml"))).map(drop).map_err(|report| report.to_string())
    };
    let report = ask("[estimator.gae]\ngamma = 1.0\nlambda = 1.0").unwrap_err();
    assert!(report.contains("needs an estimator that gives targets for the column `value`"), "{report}");
    assert!(report.contains("another `target`, or one of: estimator `tempo`"), "{report}");
    ask("[estimator.tempo]").unwrap();
}

#[test]
fn a_column_that_two_critics_give_is_told_before_the_run() {
    let place = tempfile::tempdir().unwrap();
    let text = format!("{FEEDBACK}\n[critic.probes.monte-carlo]\nsamples = 3");
    std::fs::write(place.path().join("x.toml"), text).unwrap();
    let report = load(&Request::new(place.path().join("x.toml"))).unwrap_err().to_string();
    assert!(
        report.contains("`critic.probes.monte-carlo` gives the column `value`, which `critic.judge.tabular` gives too"),
        "{report}"
    );
}

/// Backward passes of the first update of 8 episodes, which all are paid something, in micro-batches of 60 tokens.
fn passes(critic: &str) -> f64 {
    let text = format!(
        "environment.repair-mdp = {{ horizon = 12, step_cost = 0.05 }}
        objective = \"reinforce\"
        estimator.return-to-go.gamma = 1.0
        updates = 1
        policy.actor.tabular = {{}}
        rollout.independent = {{ groups = 4, group_size = 2, decode = \"admissible\" }}
        update.learning_rate = 0.02
        update.micro_batch_tokens = 60
        {critic}"
    );
    played(&text)[0]["actor/backward_passes"]
}

#[test]
fn a_shared_trunk_has_one_backward_pass_per_micro_batch() {
    let alone = passes("");
    assert!(alone > 1.0, "{alone}");
    assert_eq!(passes("critic.judge.value-head = {}"), alone);
    assert_eq!(passes("critic.judge.value-head = { own_rows = true }"), 2.0 * alone);
}
