//! The commands that run nothing, with the real binary.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

const GOOD: &str = r#"question = "Does it load?"
updates = 3
environment = "bugfix"
objective = "reinforce"

[policy.actor.tabular]

[rollout.independent]
groups = 2
group_size = 4

[estimator.grpo]

[update]
learning_rate = 0.5

[[phase]]
name = "first"

[[phase]]
name = "second"
transform = ["whiten"]
"#;

fn ascribe(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ascribe")).args(words).current_dir(folder).output().unwrap()
}

/// Exit code, standard output, standard error.
fn seen(text: &str, words: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("exp.toml"), text).unwrap();
    let out = ascribe(folder.path(), words);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_good_experiment_is_shown() {
    let (code, out, err) = seen(GOOD, &["check", "exp.toml", "phase.second.estimator.grpo.std=false"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for part in [
        "experiment `exp`: Does it load?",
        "phase `second`: 3 updates",
        "environment bugfix",
        "policy      actor: tabular",
        "transforms  whiten",
        "groups of at least 2",
        "phase.second.estimator.grpo.std",
        "in phase second",
        "nothing was run",
    ] {
        assert!(out.contains(part), "{part:?} in\n{out}");
    }
}

/// Every experiment that this repository shows or holds is accepted.
#[test]
fn what_the_documents_show_is_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let shown: Vec<&str> = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(shown.len(), 1);
    for text in shown {
        let (code, _, err) = seen(text, &["check", "exp.toml", "estimator.grpo.std=false"]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(seen(text, &["check", "exp.toml", "estimator=rloo"]).0, 0);
    }
    let mut files = Vec::new();
    experiments(&root.join("experiments"), &mut files);
    assert!(files.len() >= 10, "{files:?}");
    for file in files {
        let out = ascribe(&root, &["check", file.to_str().unwrap()]);
        assert!(out.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&out.stderr));
    }
}

/// Every experiment below a folder, without those that others extend and that say so.
fn experiments(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            experiments(&path, files);
        } else if path.extension().is_some_and(|of| of == "toml") {
            let shared =
                std::fs::read_to_string(&path).unwrap().lines().next().is_some_and(|line| line.contains("not a run by itself"));
            files.extend((!shared).then_some(path));
        }
    }
}

/// A setting that every phase overrides is not lost in silence.
#[test]
fn a_setting_without_effect_is_said() {
    let text = GOOD
        .replace("name = \"first\"", "name = \"first\"\nupdates = 0")
        .replace("name = \"second\"", "name = \"second\"\nupdates = 0");
    let (code, _, err) = seen(&text, &["run", "exp.toml", "updates=9"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("warning: `updates` (command line `updates=9`) has no effect"), "{err}");
}

#[test]
fn a_horizon_that_vanishes_is_said() {
    let weak = ["check", "exp.toml", "estimator.return-to-go.gamma=0.5", "estimator.return-to-go.unit=token"];
    let (code, out, _) = seen(GOOD, &weak);
    assert_eq!(code, 0);
    // bugfix: episodes of 5 turns of 8 tokens at most
    let warning = "warning: at γ = 0.5 the outcome reaches a turn 39 tokens earlier with weight 1.8e-12";
    assert_eq!(out.matches(warning).count(), 2, "one for each phase in\n{out}");
    let (_, out, _) = seen(GOOD, &["check", "exp.toml", "estimator=reinforce-plus-plus"]);
    assert!(!out.contains("warning"), "{out}");
}

/// An outcome that has not come yet is no loss; and what lies before a group's start is not in its records.
#[test]
fn episodes_in_pieces_are_not_taken_for_whole_ones() {
    let pieces = "rollout.macro-step={turns=2,starts=2,branches=4}";
    let check = |more: &[&str]| seen(GOOD, &[&["check", "exp.toml", pieces], more].concat());
    let warning =
        "warning: the rollout stops episodes before their end, and the estimator has no value for what is still to come";
    let (code, out, err) = check(&[]);
    assert_eq!((code, out.matches(warning).count()), (0, 2), "one for each phase in\n{out}\n{err}");
    let (code, out, err) = check(&["estimator.td.gamma=1.0", "critic.judge=value-head"]);
    assert!(code == 0 && !out.contains("warning"), "{out}{err}");
    // Those that play another rollout are what it is.
    for wrapper in ["dynamic-sampling={groups=2,max_rounds=2,OF}", "offline={OF}", "replay={OF,capacity=4,share=0.5,max_age=8}"] {
        let wrapped = format!("rollout.{}", wrapper.replace("OF", "of={macro-step={turns=2,starts=2,branches=4}}"));
        let (code, out, err) = seen(GOOD, &["check", "exp.toml", &wrapped]);
        assert_eq!((code, out.matches(warning).count()), (0, 2), "{wrapped}: {out}\n{err}");
    }
    let (_, _, err) = seen(GOOD, &["run", "exp.toml", pieces, "updates=1"]);
    assert!(err.contains(&warning.replace("warning: ", "warning: phase `first`: ")), "{err}");

    let replay = "critic.mc.monte-carlo.restore=replay";
    assert_eq!(seen(GOOD, &["check", "exp.toml", replay]).0, 0);
    let (code, _, err) = check(&[replay]);
    assert_eq!(code, 2);
    assert!(err.contains("critic `monte-carlo` needs episodes from their task's beginning"), "{err}");
    assert!(err.contains("rollout `independent`") && !err.contains("rollout `macro-step`"), "{err}");
}

#[test]
fn a_bad_experiment_is_rejected_with_its_place() {
    let (code, out, err) = seen(&GOOD.replace("learning_rate", "lerning_rate"), &["check", "exp.toml"]);
    assert_eq!((code, out.as_str()), (2, ""));
    for part in ["--> exp.toml:15:1", "^^^^^^^^^^^^", "did you mean `learning_rate`?", "1 problem"] {
        assert!(err.contains(part), "{part:?} in\n{err}");
    }
    assert!(!err.contains('\u{1b}'), "no colours where nobody sees them");
    for words in [&["check", "absent.toml"][..], &["check"], &["chekc"], &["run", "absent.toml"], &["explain", "exp.toml", "sed"]]
    {
        assert_eq!(seen(GOOD, words).0, 2, "{words:?}");
    }
}

/// What a plugin refuses when it is built is told before anything is run, at its place.
#[test]
fn what_cannot_be_built_is_rejected() {
    for (setting, says) in [
        ("critic.mc.monte-carlo={max_samples=40}", "`max_samples` needs `tight`"),
        ("critic.v.value-head={node=\"judge\"}", "trunk"),
        ("rollout.entropy-branch={groups=2,leaves=2,initial=4}", "initial"),
    ] {
        let (code, out, err) = seen(GOOD, &["check", "exp.toml", setting]);
        assert_eq!((code, out.as_str()), (2, ""), "{setting}: {err}");
        assert!(err.contains(says) && err.contains("command line"), "{setting}: {err}");
    }
}

#[test]
fn things_are_explained() {
    for (words, parts) in [
        (&["explain", "grpo"][..], &["estimator `grpo`", "groups of at least 2", "ascribe-estimators", "\n  `A_i = (R_i"][..]),
        (&["explain", "dr-grpo"], &["preset of `grpo` with std = false", "`grpo` in full", "DeepSeekMath"]),
        (&["explain", "reinforce-plus-plus"], &["preset of `return-to-go` with gamma = 1.0, unit = \"token\""]),
        (&["explain", "schedule.ramp"], &["schedule `ramp`", "from = 0.0"]),
        (&["explain", "actor/entropy"], &["nats"]),
        (&["explain", "exp.toml", "update.learning_rate"], &["above 0", "in phase first, second: 0.5, from exp.toml:15:17"]),
        (&["explain", "exp.toml", "seed", "seed=3"], &["here in phase first, second: 3, from command line `seed=3`"]),
        (&["plugins", "schedule"], &["ramp", "feedback"]),
    ] {
        let (code, out, err) = seen(GOOD, words);
        assert_eq!(code, 0, "{words:?}: {err}");
        for part in parts {
            assert!(out.contains(part), "{words:?}: {part:?} in\n{out}");
        }
    }
    let (_, out, _) = seen(GOOD, &["plugins", "estimator"]);
    assert!(out.contains("grpo") && out.contains("(preset of grpo)") && !out.contains("ramp"), "{out}");
    let (_, json, _) = seen(GOOD, &["plugins", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = |name: &str| json.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row("dr-grpo")["preset"], serde_json::json!({ "plugin": "grpo", "keys": { "std": false } }));
    assert!(row("grpo")["preset"].is_null() && row("grpo")["doc"].as_str().unwrap().starts_with("Group-relative"));
}

/// The experiment as a grid; what an arm brings, the experiment alone does not have.
const GRID: &str = "objective = \"reinforce\"\nupdates = 3\nenvironment = \"bugfix\"\npolicy.actor.tabular = {}\n\
    rollout.independent = { groups = 2, group_size = 4 }\nupdate.learning_rate = 0.5\n[grid]\nseeds = 4\nscore.of = \"return\"\n\
    [grid.arm.grpo]\nestimator = \"grpo\"\n[grid.arm.rloo]\nestimator = \"rloo\"\n";

#[test]
fn a_grid_is_checked_with_its_arms() {
    let (code, out, err) = seen(GRID, &["check", "exp.toml"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for part in ["estimator   grpo", "grid: 8 cells; `ascribe grid plan` says which. Shown above is the arm `grpo`", "accepted"] {
        assert!(out.contains(part), "{part:?} in\n{out}");
    }
    // What `grid plan` refuses, `check` refuses in the same words.
    for (bad, says) in [
        (GRID.replace("seeds = 4", "seeds = 0"), "at least one seed is needed"),
        (GRID.replace("estimator = \"rloo\"", "estimator = \"grpo\""), "`grpo` and `rloo` are the same experiment"),
        (GRID.replace("estimator = \"rloo\"", "estimator = \"nobody\""), "there is no estimator `nobody`"),
        (GRID.replace("score.of = \"return\"", "score.split = \"test\""), "nothing is measured on `test`, but on `held_out`"),
    ] {
        let (code, out, told) = seen(&bad, &["check", "exp.toml"]);
        assert_eq!((code, out.as_str()), (2, ""), "{told}");
        assert!(told.contains(says), "{told}");
        assert_eq!(seen(&bad, &["grid", "plan", "exp.toml"]), (2, String::new(), told));
    }
}

#[test]
fn keys_of_a_grid_are_explained() {
    for (key, parts) in [
        (
            "grid.seeds",
            &["grid.seeds: a whole number", "how many, from 0 on", "none, it must be said", "here: 4, from exp.toml:8:9"][..],
        ),
        ("grid.tune_seeds", &["in 1..=1000", "default: 2", "(not set), by default"]),
        ("grid.score", &["What counts as an arm's score"]),
        ("grid.score.mode", &["`greedy` or `sampled`", "greedy: The most probable"]),
        ("grid.score.of", &["`success` or `return`", "here: \"return\""]),
        ("grid.arm.rloo", &["a table", "What the arm changes"]),
        ("grid", &["`[grid]`"]),
    ] {
        let (code, out, err) = seen(GRID, &["explain", "exp.toml", key]);
        assert_eq!(code, 0, "{key}: {err}");
        for part in parts {
            assert!(out.contains(part), "{key}: {part:?} in\n{out}");
        }
    }
    for (key, says) in [
        ("grid.sedes", "did you mean `seeds`?"),
        ("grid.arm.x", "`grid.arm` has no key `x`"),
        ("grid.arm.rloo.estimator", "without `grid`"),
    ] {
        let (code, _, err) = seen(GRID, &["explain", "exp.toml", key]);
        assert!(code == 2 && err.contains(says), "{key}: {err}");
    }
    assert!(seen(GOOD, &["explain", "exp.toml", "grid.seeds"]).2.contains("the experiment has no [grid]"));
    let (_, schema, _) = seen(GRID, &["schema"]);
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema["properties"]["grid"]["properties"]["tune_seeds"]["maximum"], 1000);
}

#[test]
fn the_schema_is_written() {
    let (code, out, _) = seen(GOOD, &["schema"]);
    let printed: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, printed["title"].as_str()), (0, Some("Ascribe experiment")));
    let folder = tempfile::tempdir().unwrap();
    assert!(ascribe(folder.path(), &["schema", "--out", "schema.json"]).status.success());
    let written = std::fs::read_to_string(folder.path().join("schema.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), printed);
    assert_eq!(ascribe(folder.path(), &["schema", "--out", "absent/schema.json"]).status.code(), Some(1));
}

#[test]
fn plugins_are_verified() {
    let (code, out, err) = seen(GOOD, &["verify", "estimator", "grpo", "std=false"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for part in ["estimator `grpo`", "check", "groups", "holds", "not claimed", "it keeps what it must and what it claims"] {
        assert!(out.contains(part), "{part:?} in\n{out}");
    }
    for kind in ["estimator", "transform", "env", "critic"] {
        let (code, out, err) = seen(GOOD, &["verify", kind]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert!(out.contains("nothing is broken"), "{out}");
    }
}

#[test]
fn environments_are_verified() {
    let (code, out, err) = seen(GOOD, &["verify", "env", "repair-mdp", "horizon=12"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    insta::assert_snapshot!(out, @r"
    environment `repair-mdp`

      check                                                                    result     cases  why
      its tasks are there, those that are not are refused, and its claims fit  holds      1
      whatever is said is a turn, not an error                                 holds      6
      the same seed and actions give the same episode                          holds      6
      asking changes nothing                                                   holds      6
      episodes of one set do not touch each other                              holds      2
      a restored state is the saved one, and goes on like it                   holds      6
      copies restored from one snapshot do not touch each other                holds      6
      chance is part of the snapshot                                           holds      6
      `reseed` decides what follows, and leaves the state as it is             holds      6
      `reseed` gives what follows chance of its own                            holds      1
      what is no snapshot of the task is refused, and changes nothing          holds      6
      admissible actions are sorted, different, and understood                 holds      6
      what is read and said is made of the vocabulary's words                  holds      4
      it ends when it says, once, and pays within its bounds                   holds      6
      equal state keys have equal futures                                      holds      1
      what is privileged is not read by the agent                              not asked         it has no privileged text

    it keeps what it must and what it claims
    ");
    // It draws nothing, and has no privileged text.
    let (code, out, _) = seen(GOOD, &["verify", "environment", "token-tree"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("not asked         it has no privileged text"), "{out}");
}

#[test]
fn what_cannot_be_verified_is_said() {
    for (words, parts) in [
        (&["verify", "estimator", "grop"][..], &["there is no estimator `grop`", "did you mean `grpo`?"][..]),
        (&["verify", "estimator", "gae", "lambda=1.5"], &["`gae.lambda`", "command line", "^^^"]),
        (&["verify", "estimator", "gae", "lamda=0.5"], &["`gae` has no key `lamda`", "did you mean `lambda`?"]),
        (&["verify", "env", "bugfx"], &["there is no environment `bugfx`", "did you mean `bugfix`?"]),
        (&["verify", "env", "repair-mdp", "horizon=0"], &["`repair-mdp.horizon`", "1..=1000"]),
        (
            &["verify", "env", "alfworld", "games={folder=\"no-games\"}"],
            &["environment `alfworld` was not checked", "there are none in `./no-games`"],
        ),
        (&["verify", "critic", "orcale"], &["there is no critic `orcale`", "did you mean `oracle`?"]),
        (&["verify", "objective"], &["estimator, transform, env, critic"]),
    ] {
        let (code, out, err) = seen(GOOD, words);
        assert_eq!((code, out.as_str()), (2, ""), "{words:?}");
        for part in parts {
            assert!(err.contains(part), "{words:?}: {part:?} in\n{err}");
        }
        assert!(!err.contains("experiment"), "{err}");
    }
}

/// Its example runs a shell: where there is none, that is no fault of the plugin. A program that the user names is.
#[test]
fn an_estimator_whose_example_does_not_run_is_told_so() {
    let verify = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ascribe"));
        let out = command.args(["verify", "estimator", "command"]).args(words).env("PATH", "/nowhere").output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, out, err) = verify(&[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    for part in ["`command` was not checked: it needs `run`", "cannot be started", "ascribe verify estimator command run=…"] {
        assert!(err.contains(part), "{part:?} in\n{err}");
    }
    let (code, out, err) = verify(&["run=[\"no-such-program\"]"]);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    assert!(out.contains("it runs") && out.contains("`no-such-program`") && out.contains("broken: 1 of 1"), "{out}");
}
