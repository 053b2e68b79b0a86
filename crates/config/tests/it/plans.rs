//! What a good experiment becomes.

use ascribe_config::{SourceKind, json_schema, plugin_keys};
use ascribe_core::experiment::KnobMemory;
use ascribe_core::registry::Kind;
use ascribe_core::{Experiment, Now};
use serde::Deserialize;

use crate::{BASE, Given, with};

fn loaded(text: &str) -> ascribe_config::Loaded {
    Given { files: &[("exp.toml", text)], ..Given::default() }.loaded()
}
fn with_arguments(text: &str, arguments: &[&str]) -> ascribe_config::Loaded {
    Given { files: &[("exp.toml", text)], arguments, ..Given::default() }.loaded()
}

const PHASES: &str = r#"
[[phase]]
name = "clone"
updates = 3
rollout = "expert"
estimator = "grpo"
transform = []

[[phase]]
name = "learn"
objective.ppo-clip.clip = 0.2
update.learning_rate.ramp = { from = 1e-3, to = 1e-4, updates = 10 }
"#;

fn phased() -> String {
    // the cloning phase has groups of one, so it takes an estimator that does without: `grpo` needs two
    with(&format!("{BASE}{PHASES}"), "rollout = \"expert\"\nestimator = \"grpo\"\n", "rollout.independent.group_size = 2\n")
}

#[test]
fn resolved() {
    insta::assert_snapshot!("plain", loaded(BASE).plan.resolved);
    insta::assert_snapshot!("phased", loaded(&phased()).plan.resolved);
    insta::assert_snapshot!("identity", loaded(&phased()).plan.identity);
}

#[test]
fn resolved_read_again_gives_the_same_plan() {
    for text in [BASE.to_string(), phased(), format!("name = \"x\"\nquestion = \"why?\"\nuses = [\"ascribe-core\"]\n{BASE}")] {
        let first = loaded(&text).plan;
        let files = &[("resolved.toml", first.resolved.as_str())];
        let again = Given { files, ..Given::default() }.loaded().plan;
        assert_eq!((&again.name, &again.resolved, &again.identity), (&first.name, &first.resolved, &first.identity));
        assert_eq!(format!("{:?}", again.phases), format!("{:?}", first.phases));
    }
}

#[test]
fn names() {
    assert_eq!(loaded(BASE).plan.name, "exp");
    assert_eq!(loaded(&format!("name = \"1e5\"\n{BASE}")).plan.name, "1e5");
    // what looks like a number is still a name
    for name in ["1e5", "nan", "2026-01-01", "true", "run 1", "größe"] {
        assert_eq!(with_arguments(BASE, &[&format!("name={name}")]).plan.name, name);
    }
    assert_eq!(with_arguments(BASE, &["name=\"quoted\""]).plan.name, "quoted");
}

#[test]
fn phases_say_only_what_differs() {
    let loaded = loaded(&phased());
    let [clone, learn] = &loaded.plan.phases[..] else { panic!("two phases") };
    assert_eq!((clone.name.as_str(), learn.name.as_str()), ("clone", "learn"));
    let experiment = |phase: &ascribe_core::experiment::Phase| Experiment::deserialize(phase.tree.clone()).unwrap();
    assert_eq!((*experiment(clone).updates, *experiment(learn).updates), (3, 10));
    assert_eq!((experiment(clone).transform.len(), experiment(learn).transform.len()), (0, 2));
    assert!(clone.tree["objective"].get("nll").is_some() && learn.tree["objective"].get("ppo-clip").is_some());
    assert_eq!(clone.tree["rollout"]["independent"]["group_size"].as_integer(), Some(2));
    assert_eq!(clone.tree["rollout"]["independent"]["tasks"].as_integer(), Some(4));
    assert_eq!((clone.knobs.len(), learn.knobs.len()), (0, 1));
}

#[test]
fn every_phase_may_say_what_the_experiment_does_not() {
    let text = with(&phased(), "updates = 10\n", "").replace("name = \"learn\"", "name = \"learn\"\nupdates = 7");
    let plan = loaded(&text).plan;
    assert_eq!(plan.phases[1].tree["updates"].as_integer(), Some(7));
}

#[test]
fn phases_are_changed_by_name_and_by_index() {
    for argument in ["phase.learn.updates=8", "phase.1.updates=8"] {
        let plan = with_arguments(&phased(), &[argument]).plan;
        assert_eq!(
            (plan.phases[0].tree["updates"].as_integer(), plan.phases[1].tree["updates"].as_integer()),
            (Some(3), Some(8))
        );
    }
    let files = &[("base.toml", phased()), ("exp.toml", "extends = \"base.toml\"\n[phase.learn]\nupdates = 8\n".into())];
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (*n, t.as_str())).collect();
    let plan = Given { files: &files, ..Given::default() }.loaded().plan;
    assert_eq!((plan.phases.len(), plan.phases[1].tree["updates"].as_integer()), (2, Some(8)));
    let variables = &[("ASCRIBE__PHASE__LEARN__UPDATES", "8")];
    let plan = Given { files: &[("exp.toml", &phased())], environment: variables, ..Given::default() }.loaded().plan;
    assert_eq!(plan.phases[1].tree["updates"].as_integer(), Some(8));
}

#[test]
fn files_go_left_to_right_and_count_once() {
    let files = &[
        ("base.toml", BASE),
        ("left.toml", "extends = \"base.toml\"\nseed = 1\n[update]\nepochs = 2\n"),
        ("right.toml", "extends = \"base.toml\"\nseed = 2\n"),
        ("exp.toml", "extends = [\"left.toml\", \"right.toml\"]\n"),
    ];
    let plan = Given { files, ..Given::default() }.loaded().plan;
    let tree = &plan.phases[0].tree;
    assert_eq!((tree["seed"].as_integer(), tree["update"]["epochs"].as_integer()), (Some(2), Some(2)));
    assert!(plan.given.contains("left.toml") && plan.given.contains("epochs = 2"), "{}", plan.given);
}

#[test]
fn layers_win_from_below_to_above() {
    let files = &[("base.toml", BASE), ("exp.toml", "extends = \"base.toml\"\nseed = 1\n")];
    let environment = &[("ASCRIBE__SEED", "2"), ("ASCRIBE__UPDATE__BETA1", "0.5"), ("HOME", "/")];
    let loaded = Given { files, environment, arguments: &["seed=3"] }.loaded();
    let tree = &loaded.plan.phases[0].tree;
    assert_eq!((tree["seed"].as_integer(), tree["update"]["beta1"].as_float()), (Some(3), Some(0.5)));
    let changes: Vec<_> = loaded.changes.iter().map(|c| (c.key.as_str(), c.place.kind(), c.phases.len())).collect();
    assert_eq!(
        changes,
        [
            ("seed", SourceKind::Environment, 0),
            ("update.beta1", SourceKind::Environment, 1),
            ("seed", SourceKind::CommandLine, 1)
        ]
    );
    assert_eq!((&loaded.changes[1].old, &loaded.changes[1].new), (&Some(0.9.into()), &Some(0.5.into())));
}

#[test]
fn a_change_that_every_phase_overrides_has_no_effect() {
    let text = phased();
    let loaded = with_arguments(&text, &["objective.ppo-clip.clip=0.1", "update.learning_rate=0.5"]);
    let effects: Vec<_> = loaded.changes.iter().map(|c| c.phases.clone()).collect();
    assert_eq!(effects, [vec!["clone".to_string()], vec!["clone".to_string()]]);
}

#[test]
fn names_of_variables_have_neither_case_nor_hyphens() {
    let text = with(BASE, "[policy.actor.tabular]", "[policy.My-Node.tabular]\nstates = 5\n[policy.actor.tabular]");
    let environment = &[
        ("ASCRIBE__POLICY__MY_NODE__TABULAR__STATES", "7"),
        ("ASCRIBE__OBJECTIVE", "ppo-clip"),
        ("ASCRIBE__OBJECTIVE__PPO_CLIP__CLIP", "0.3"),
        ("ASCRIBE__ALARM__NO_SIGNAL__ACTION", "off"),
        ("ASCRIBE__TRANSFORM__1__CLIP__MAX", "4"),
    ];
    let tree = Given { files: &[("exp.toml", &text)], environment, ..Given::default() }.loaded().plan.phases.remove(0).tree;
    assert_eq!(tree["policy"]["My-Node"]["tabular"]["states"].as_integer(), Some(7));
    assert_eq!(tree["objective"]["ppo-clip"]["clip"].as_float(), Some(0.3));
    assert_eq!(tree["alarm"]["no-signal"]["action"].as_str(), Some("off"));
    assert_eq!(tree["transform"][1]["clip"]["max"].as_float(), Some(4.0));
}

#[test]
fn values_of_the_command_line() {
    let tree = |arguments: &[&str]| with_arguments(BASE, arguments).plan.phases.remove(0).tree;
    assert_eq!(tree(&["transform.1.clip.max=3"])["transform"][1]["clip"]["max"].as_float(), Some(3.0));
    assert_eq!(tree(&["transform=[\"whiten\"]"])["transform"].as_array().unwrap().len(), 1);
    // an item of the list that an argument before gave
    assert_eq!(tree(&["transform=[\"clip\"]", "transform.0.clip.max=2"])["transform"][0]["clip"]["max"].as_float(), Some(2.0));
    assert_eq!(tree(&["updates=2e3"])["updates"].as_integer(), Some(2000));
    assert_eq!(tree(&["updates=2k"])["updates"].as_integer(), Some(2000));
    assert_eq!(tree(&["updates=8.0"])["updates"].as_integer(), Some(8));
    assert_eq!(tree(&[" update.beta1 = 1 "])["update"]["beta1"].as_float(), Some(1.0));
    assert_eq!(tree(&["train=[\"actor\"]"])["train"][0].as_str(), Some("actor"));
    assert_eq!(tree(&["policy.\"my.node\".tabular.states=5"])["policy"]["my.node"]["tabular"]["states"].as_integer(), Some(5));
    assert_eq!(tree(&["seed=1", "seed=2"])["seed"].as_integer(), Some(2));
    assert_eq!(tree(&["evaluate.splits=[\"a\"]"])["evaluate"]["samples"].as_integer(), Some(1));
}

#[test]
fn identity_forgets_what_changes_no_result() {
    let base = loaded(&phased()).plan.identity;
    let same = [
        "run.threads=7",
        "run.dir=elsewhere",
        "checkpoint.every=1",
        "budget.tokens=5",
        "phase.learn.updates=99",
        "question=why",
        "name=other",
    ];
    let other = ["seed=7", "phase.clone.updates=99", "evaluate.every=3", "device=cuda", "phase.clone.update.beta1=0.5"];
    for argument in same {
        assert_eq!(with_arguments(&phased(), &[argument]).plan.identity, base, "{argument}");
    }
    for argument in other {
        assert_ne!(with_arguments(&phased(), &[argument]).plan.identity, base, "{argument}");
    }
    // however it is written
    let respelled = with(&phased(), "environment = \"maze\"", "environment.maze.width = 8");
    assert_eq!(loaded(&respelled).plan.identity, base);
}

#[test]
fn schedules_are_lifted_and_filled_in_again() {
    let text = with(BASE, "weight = 0.5", "weight.ramp = { from = 0, to = 1, updates = 4 }");
    let text = with(&text, "a = \"grpo\"", "a.grpo.window.cut-off = { value = 5, updates = 2, then = 1 }");
    let text = format!("{text}[reward]\nenv = 1\nprogress.ramp = {{ from = 0.5, to = 0, updates = 2 }}\n");
    let phase = loaded(&text).plan.phases.remove(0);
    let mut knobs: Vec<(String, bool)> = phase.knobs.iter().map(|k| (k.path.join("."), k.integer)).collect();
    knobs.sort();
    assert_eq!(
        knobs,
        [
            ("estimator.blend.a.grpo.window".into(), true),
            ("estimator.blend.weight".into(), false),
            ("reward.progress".into(), false)
        ]
    );
    let mut memory = KnobMemory::new();
    let mut at = |phase_update| {
        let now = Now { phase_update, ..Now::default() };
        let (experiment, numbers) = phase.at(&now, &mut memory).unwrap();
        (numbers["estimator.blend.weight"], *experiment.reward["progress"], numbers["estimator.blend.a.grpo.window"])
    };
    assert_eq!((at(0), at(1), at(4)), ((0.0, 0.5, 5.0), (0.25, 0.25, 5.0), (1.0, 0.0, 1.0)));
}

#[test]
fn a_grid_is_taken_off() {
    let loaded = with_arguments(&format!("{BASE}[grid]\nseeds = [0, 1]\n"), &["grid.estimator=[\"grpo\"]"]);
    assert_eq!(loaded.grid.unwrap().table.keys().collect::<Vec<_>>(), ["seeds", "estimator"]);
    assert!(!loaded.plan.resolved.contains("grid"));
    assert!(super::plans::loaded(BASE).grid.is_none());
}

#[test]
fn keys_are_explained() {
    let files = &[
        ("base.toml", BASE),
        (
            "exp.toml",
            "extends = \"base.toml\"\nupdate.beta1 = 0.5\n[[phase]]\nname = \"a\"\n[[phase]]\nname = \"b\"\nseed_ = 1\n",
        ),
    ];
    let files = &[files[0], ("exp.toml", files[1].1.split("seed_").next().unwrap())];
    let loaded =
        Given { files, arguments: &["phase.b.update.beta1=0.25"], environment: &[("ASCRIBE__UPDATE__EPOCHS", "3")] }.loaded();
    let explain = |key: &str| {
        let explained = loaded.explain(key).unwrap();
        let values = explained.values.iter().map(|s| {
            let place = s.place.as_ref().map_or("default".into(), |p| p.to_string());
            let place = place.rsplit('/').next().unwrap().to_string();
            format!("{:?} {} {place}", s.phases, s.value.as_ref().map_or("-".into(), |v| v.to_string()))
        });
        (explained.key.wanted, values.collect::<Vec<_>>())
    };
    assert_eq!(
        explain("update.beta1"),
        (
            "a number in 0..=1".into(),
            vec!["[\"a\"] 0.5 exp.toml:2:16".into(), "[\"b\"] 0.25 command line `phase.b.update.beta1=0.25`".into()]
        )
    );
    assert_eq!(explain("phase.b.update.beta1").1.len(), 1);
    assert_eq!(explain("update.epochs").1, ["[\"a\", \"b\"] 3 environment `ASCRIBE__UPDATE__EPOCHS`"]);
    assert_eq!(explain("update.beta2").1, ["[\"a\", \"b\"] 0.999 default"]);
    assert_eq!(explain("update.clip_norm").1, ["[\"a\", \"b\"] - default"]);
    assert_eq!(explain("transform.1.clip.max"), ("a number above 0".into(), vec!["[\"a\", \"b\"] 5.0 base.toml:21:12".into()]));
    assert_eq!(explain("estimator").0, "exactly one estimator");
    for (key, says) in [
        ("update.beta3", "did you mean"),
        ("updat", "did you mean `update`"),
        ("estimator.gae", "not part of this experiment"),
        ("estimator.blend.wieght", "did you mean `weight`"),
        ("phase.c.seed", "there is no phase"),
        ("transform.7", "`transform` has no key `7`"),
        ("weight", "did you mean `estimator.blend.weight`?"),
        ("max", "did you mean `transform.1.clip.max`?"),
        ("a..b", "is no key"),
        ("", "is no key"),
    ] {
        let report = loaded.explain(key).unwrap_err().to_string();
        assert!(report.contains(says), "{key}: {report}");
    }
}

#[test]
fn plugins_have_keys() {
    let keys = plugin_keys(Kind::Estimator, "blend");
    let shown: Vec<_> = keys.iter().map(|k| (k.name.as_str(), k.wanted.as_str(), k.required, k.doc.as_str())).collect();
    assert_eq!(
        shown,
        [
            ("weight", "a number in 0..=1", true, "Weight of the first, in 0..=1."),
            ("a", "exactly one estimator", true, "The first."),
            ("b", "exactly one estimator", true, "The second."),
        ]
    );
    assert!(plugin_keys(Kind::Estimator, "absent").is_empty());
}

#[test]
fn the_schema_for_editors() {
    let schema = json_schema(serde_json::json!({ "type": "object" }));
    for key in ["extends", "grid", "phase", "estimator"] {
        assert!(schema["properties"].get(key).is_some(), "{key}");
    }
    let slot = &schema["$defs"]["slot-estimator"];
    assert_eq!(slot["oneOf"][0]["enum"], serde_json::json!(["blend", "gae", "grpo"]));
    // numbers that may be scheduled say so, others do not
    assert!(schema["$defs"]["estimator-gae"]["properties"]["gamma"]["anyOf"].is_array());
    assert!(schema["$defs"]["Update"]["properties"]["clip_norm"]["anyOf"].is_array());
    assert!(schema["properties"]["reward"]["additionalProperties"]["anyOf"].is_array());
    assert!(schema["$defs"]["policy-tabular"]["properties"]["states"]["anyOf"].is_null());
    assert!(schema["properties"]["seed"]["anyOf"].is_null());
    // every reference leads somewhere
    fn references(value: &serde_json::Value, out: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                out.extend(map.get("$ref").and_then(|r| r.as_str()).map(String::from));
                map.values().for_each(|v| references(v, out));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|v| references(v, out)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(&schema, &mut found);
    for reference in found {
        assert!(schema.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}
