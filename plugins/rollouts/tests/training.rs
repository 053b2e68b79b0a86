//! Whole runs: every strategy trains on an embedded environment with its estimator, and goes on after a stop as if there had been none.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use ascribe_config::Request;
use ascribe_run::folder::name;
use ascribe_run::records::{MetricsLine, read_lines};
use ascribe_run::{Ended, Event, Options, Progress, run};

// A crate that is linked but never named is dropped by the linker.
use ascribe_critics as _;
use ascribe_environments as _;
use ascribe_estimators as _;
use ascribe_objectives as _;
use ascribe_policies as _;
use ascribe_rollouts as _;
use ascribe_transforms as _;

struct Silent;

impl Progress for Silent {
    fn on(&mut self, _: Event<'_>) {}
}

const BASE: &str = r#"
environment.token-tree = { tasks = 4, depth = 4, branches = 3, rewards = "dense", states = "sums" }
policy.actor = "tabular"
objective = "reinforce"
update = { learning_rate = 0.1 }
checkpoint = { every = 1 }
"#;

/// Trains in `folder` up to so many updates, and returns the lines of its metrics.
fn train(folder: &Path, tables: &str, updates: u32) -> Vec<MetricsLine> {
    let file = folder.join("test.toml");
    // What the tables say themselves does not stand twice.
    let own = |line: &&str| !tables.lines().any(|table| table.trim().split(['.', ' ']).next() == line.split(['.', ' ']).next());
    let base: Vec<&str> = BASE.lines().filter(|line| line.is_empty() || own(line)).collect();
    std::fs::write(&file, format!("{}\n{tables}", base.join("\n"))).unwrap();
    let request = Request::new(&file).assignments([format!("updates={updates}")]);
    let loaded = ascribe_config::load(&request).unwrap_or_else(|report| panic!("{tables}\n{report}"));
    let run_folder = folder.join("run");
    let options = Options { folder: Some(run_folder.clone()), ..Options::default() };
    let report = run(&loaded.plan, &options, &mut Silent).unwrap_or_else(|e| panic!("{tables}\n{e}"));
    assert_eq!(report.ended, Ended::Finished);
    read_lines(&run_folder.join(name::METRICS)).unwrap()
}

/// Trains, checks that a stop after half of the updates changes nothing, and returns the metrics.
fn trains(tables: &str) -> Vec<MetricsLine> {
    let (whole, stopped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lines = train(whole.path(), tables, 6);
    train(stopped.path(), tables, 3);
    let again = train(stopped.path(), tables, 6);
    let text = |lines: &[MetricsLine]| serde_json::to_string(lines).unwrap();
    assert_eq!(text(&lines), text(&again), "{tables}");
    assert_eq!(lines.len(), 6);
    for line in &lines {
        assert!(line.metrics.get("actor/grad_norm").is_some_and(|norm| norm > 0.0), "{tables}\n{:?}", line.metrics);
    }
    lines
}

const ARPO: &str = r#"
rollout.entropy-branch = { groups = 4, leaves = 8, initial = 4, decode = "admissible" }
"#;

#[test]
fn arpo_trains() {
    trains(&format!("{ARPO}\nestimator = \"grpo\""));
}

#[test]
fn trees_train_with_the_estimators_of_their_authors() {
    let tree = |keys: &str| format!("rollout.tree = {{ groups = 4, decode = \"admissible\", {keys} }}");
    let at2po = tree("roots = 4, rounds = 2, expansions = 3, select = \"nll\", sibling_penalty = 0.05, last_turns = false");
    let tree_rl = tree("roots = 3, rounds = 1, expansions = 2, continuations = 2, per = \"tree\", select = \"nll\"");
    let tree_grpo = tree("roots = 2, rounds = 1, expansions = 2, per = \"tree\", select = \"random\", restore = \"replay\"");
    let carl = tree("roots = 2, rounds = 6, expansions = 1, select = \"nll-per-child\", keep_sessions = false");
    for (rollout, estimator) in
        [(&at2po, "at2po"), (&tree_rl, "tree-rl"), (&tree_grpo, "tree-grpo"), (&carl, "carl"), (&at2po, "tree-po")]
    {
        // The authors of AT2PO clip ratios of whole turns.
        let objective =
            if estimator == "at2po" { "objective.gspo = { scope = \"turn\", clip_low = 0.003, clip_high = 0.004 }" } else { "" };
        trains(&format!("{rollout}\nestimator = \"{estimator}\"\n{objective}"));
    }
}

#[test]
fn candidates_train_by_preference() {
    let lines = trains(
        r#"
        environment.repair-mdp = { horizon = 6, step_cost = 0.05 }
        rollout.best-of-n = { groups = 4, group_size = 2, candidates = 4, column = "advantage_true", decode = "admissible" }
        critic.exact.oracle = {}
        critic.before.reference = {}
        estimator.pairs = { of = "siblings", pairs = "matched", minimum_gap = 0.0, column = "advantage_true" }
        objective.dpo = { beta = 0.5 }
        "#
        .replace("        ", "")
        .as_str(),
    );
    assert!(lines[0].metrics.get("rollout/best_of/gap/mean").is_some_and(|gap| gap > 0.0));
    // The reference is the policy as it was first: every pair is then as likely as the other way round, and later the chosen one
    // becomes likelier.
    let losses: Vec<f64> = lines.iter().map(|line| line.metrics.get("actor/dpo_loss").unwrap()).collect();
    assert!((losses[0] - 2f64.ln()).abs() < 1e-6, "{losses:?}");
    assert!(losses[1..].iter().all(|loss| *loss < losses[0] - 1e-3), "{losses:?}");
}

#[test]
fn refilled_and_replayed_groups_train() {
    let of = "of.independent = { groups = 4, group_size = 3, decode = \"admissible\" }";
    let lines = trains(&format!(
        "estimator = \"grpo\"\n[rollout.dynamic-sampling]\ngroups = 5\nmax_rounds = 4\nsurplus = \"keep\"\n{of}"
    ));
    assert!(lines.iter().all(|line| line.metrics.get("rollout/groups") == Some(5.0)));
    let replay = format!(
        "estimator = \"grpo\"\nobjective.ppo-clip = {{}}\n[rollout.replay]\ncapacity = 12\nshare = 0.5\nmax_age = 3\n{of}"
    );
    let lines = trains(&replay);
    assert_eq!(lines[5].metrics.get("rollout/groups"), Some(8.0));
    assert!(lines[5].metrics.get("rollout/replay/age/mean").is_some_and(|age| (1.0..=3.0).contains(&age)));
}

#[test]
fn an_update_without_a_group_left_goes_on() {
    // Every trajectory comes to the same: nothing is ever left.
    let tables = "environment.token-tree = { tasks = 4, depth = 2, branches = 2, rewards = \"stop-or-continue\", states = \"sums\" }\n\
                  estimator = \"grpo\"\n[rollout.dynamic-sampling]\ngroups = 2\nmax_rounds = 3\n\
                  of.independent = { groups = 2, group_size = 2, decode = \"admissible\" }";
    let folder = tempfile::tempdir().unwrap();
    for line in train(folder.path(), tables, 2) {
        assert_eq!(line.metrics.get("rollout/refill/short"), Some(2.0));
        assert_eq!(line.metrics.get("rollout/refill/dropped"), Some(6.0));
        assert_eq!(line.metrics.get("actor/empty_update"), Some(1.0));
    }
}

#[test]
fn tempo_trains_actor_and_critic_in_one_step() {
    // A small policy that has never answered yet: what has no value is worth 0, so that something is learned from the first update on.
    let tables = |critic: &str| {
        format!(
            r#"
environment.token-tree = {{ tasks = 4, depth = 6, branches = 2, rewards = "dense", states = "prefixes" }}
estimator = "tempo"
objective = "importance-sampling"
transform = [{{ weigh = {{ by = "prefix_ratio", times = 3.0 }} }}]
critic.ratio.prefix-ratio = {{ max = 5.0 }}
critic.judge.generative = {{ r_max = 6.0, values = "ends", target = "estimator", missing = "zero", max_tokens = 6, steps = 6{critic} }}
rollout.macro-step = {{ turns = 2, starts = 6, branches = 4, fresh_share = 0.3, decode = "admissible" }}
"#
        )
    };
    for line in trains(&tables("")) {
        let get = |name: &str| line.metrics.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", line.metrics));
        // One step of one set of weights, with rows of both.
        assert_eq!((get("actor/steps"), get("critic/judge/learned_states")), (1.0, 6.0));
        assert!(get("actor/macro_boundary_rate") > 0.0 && get("td/store_size") > 0.0);
        if line.update > 1 {
            assert!(get("td/macro_index_mean") > 0.0 && get("td/prefix_ratio/mean") > 0.0);
        }
    }
    // Separate weights are an arm: the critic's own node takes its own steps.
    let apart = format!("policy.actor = \"tabular\"\npolicy.critic = \"tabular\"\n{}", tables(", agent = \"critic\""));
    for line in trains(&apart) {
        assert_eq!((line.metrics.get("actor/steps"), line.metrics.get("critic/steps")), (Some(1.0), Some(1.0)));
    }
}

#[test]
fn a_critic_that_never_answers_leaves_branches_without_a_return() {
    let tables = |mode: &str| {
        format!(
            r#"
environment.token-tree = {{ tasks = 4, depth = 6, branches = 2, rewards = "sparse", states = "prefixes" }}
estimator.tempo = {{ mode = "{mode}" }}
policy.actor = "tabular"
policy.mute.scripted = {{ plan = ["nothing"] }}
critic.judge.generative = {{ agent = "mute", mode = "{critic}", values = "ends", target = "estimator", max_tokens = 6 }}
train = ["actor"]
rollout.macro-step = {{ turns = 2, starts = 6, branches = 4, fresh_share = 0.0, decode = "admissible" }}
"#,
            critic = if mode == "official" { "official" } else { "strict" },
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let lines = train(folder.path(), &tables("paper"), 4);
    for line in &lines {
        let get = |name: &str| line.metrics.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", line.metrics));
        assert_eq!(get("critic/judge/parse_failure_rate"), 1.0);
        // What stopped at a boundary is not trained; what truly ended is.
        assert!((get("credit/trained_rate") < 1.0) == (get("actor/macro_boundary_rate") > 0.0), "{:?}", line.metrics);
    }
    assert_eq!(lines[0].metrics.get("actor/empty_update"), Some(1.0), "all branches of the first update stop at the boundary");
    assert!(lines[2].metrics.get("credit/trained_rate").unwrap() > 0.0, "the ends come with the third macro step");
    let folder = tempfile::tempdir().unwrap();
    for line in train(folder.path(), &tables("official"), 4) {
        // Officially it is worth 0, and equal returns have no advantage that is trained.
        assert_eq!(line.metrics.get("critic/judge/value_mean"), None);
        assert!(line.metrics.get("actor/value_target_mean").is_some());
    }
}
