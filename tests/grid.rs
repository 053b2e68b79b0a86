//! Grids in runs of the real binary: processes that are killed, that share a folder, and cells that fail.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;

use ascribe_tests::grids::{Place, experiment, in_the_middle, wait_until};
use ascribe_tests::said;

#[test]
fn a_grid_is_planned_run_and_reported() {
    let place = Place::new(&experiment(60, ""));
    let plan = said(&place.ascribe(&["grid", "plan", "study.toml"]));
    for part in [
        "9 cells in",
        "what differs from `grpo`",
        "estimator.rloo",
        "grpo + random",
        "the smallest difference",
        "warning: not every arm has a budget",
    ] {
        assert!(plan.contains(part), "{part:?} in\n{plan}");
    }
    let out = place.ascribe(&["grid", "run", "study.toml", "--jobs", "2"]);
    assert!(out.status.success(), "{}", said(&out));
    let text = said(&out);
    for part in ["9 cells, 0 of them done", "done 9/9", "rloo against grpo: ", "spent, mean over runs", "3 seeds"] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let results = place.results();
    let files = [
        "index.html",
        "scores.csv",
        "summary.csv",
        "summary.md",
        "summary.tex",
        "comparisons.csv",
        "controls.csv",
        "curves-tokens.csv",
        "scores.npz",
    ];
    for name in files {
        assert!(results.contains_key(&Path::new("report").join(name)), "{name} in {:?}", results.keys());
    }
    let page = std::fs::read_to_string(place.grid().join("report/index.html")).unwrap();
    for part in [
        "Which estimator repairs more?",
        "grpo + random",
        "Scores along all tokens",
        "<section id=\"clock\"",
        "no prediction was recorded",
    ] {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
    assert!(text.contains("report: runs/study/report/index.html"), "{text}");
    // Another budget first: the same tables, another page.
    let tables = |mut files: BTreeMap<PathBuf, Vec<u8>>| files.remove(Path::new("report/index.html")).map(|page| (page, files));
    let by_updates = place.ascribe(&["grid", "report", "runs/study", "--axis", "updates"]);
    assert!(by_updates.status.success(), "{}", said(&by_updates));
    let (other_page, other) = tables(place.results()).unwrap();
    let (first_page, first) = tables(results.clone()).unwrap();
    assert!(other == first && other_page != first_page);
    assert!(
        said(&place.ascribe(&["grid", "report", "runs/study", "--axis", "years"]))
            .contains("[possible values: updates, env-steps")
    );
    // What is done stays done.
    let again = place.ascribe(&["grid", "run", "study.toml"]);
    assert!(said(&again).contains("9 cells, 9 of them done"), "{}", said(&again));
    assert_eq!(place.results(), results);
    assert!(place.starts().iter().all(|n| *n == 1));
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    assert_eq!(status.matches(" done").count(), 9, "{status}");
    // More seeds are new cells beside the old ones.
    let more = place.ascribe(&["grid", "run", "study.toml", "grid.seeds=4"]);
    assert!(said(&more).contains("12 cells, 9 of them done"), "{}", said(&more));
}

#[test]
fn killed_anywhere_and_resumed_it_comes_to_the_same_bytes() {
    let text = experiment(400, "");
    let whole = Place::new(&text);
    assert!(whole.ascribe(&["grid", "run", "study.toml", "--jobs", "1"]).status.success());
    let killed = Place::new(&text);
    let mut first: Child = killed.command(&["grid", "run", "study.toml", "--jobs", "2"]).spawn().unwrap();
    wait_until("a run in the middle", || in_the_middle(&killed) > 0);
    first.kill().unwrap();
    first.wait().unwrap();
    // Its runs lose their parent, save and end; or hold their folders for a while, which a resumed grid waits for.
    let resumed = killed.ascribe(&["grid", "resume", "runs/study"]);
    assert!(resumed.status.success(), "{}", said(&resumed));
    assert_eq!(killed.results().keys().collect::<Vec<_>>(), whole.results().keys().collect::<Vec<_>>());
    for (path, bytes) in whole.results() {
        assert!(killed.results()[&path] == bytes, "{} differs", path.display());
    }
}

#[test]
fn two_processes_on_one_grid_run_no_cell_twice() {
    let place = Place::new(&experiment(200, ""));
    let both: Vec<Child> =
        (0..2).map(|_| place.command(&["grid", "run", "study.toml", "--jobs", "2"]).spawn().unwrap()).collect();
    for child in both {
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", said(&out));
    }
    let starts = place.starts();
    assert_eq!((starts.len(), starts.iter().sum::<usize>()), (9, 9), "{starts:?}");
}

#[test]
fn processes_that_join_a_tuned_grid_lose_none_of_its_cells() {
    let tune = "[grid.tune]\n\"update.learning_rate\" = [0.05, 0.1]";
    let place = Place::new(&experiment(60, tune).replace("seeds = 3", "seeds = 3\ntune_seeds = 1"));
    let mut all = vec![place.command(&["grid", "run", "study.toml", "--jobs", "2"]).spawn().unwrap()];
    wait_until("the end of tuning", || place.starts().len() > 4);
    // Each begins with a look at tuning, while cells of the others begin.
    for _ in 0..6 {
        all.push(place.command(&["grid", "resume", "runs/study", "--jobs", "1"]).spawn().unwrap());
    }
    for child in all {
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", said(&out));
    }
    let starts = place.starts();
    assert_eq!((starts.len(), starts.iter().sum::<usize>()), (13, 13), "{starts:?}");
    assert!(!place.grid().join("failures").exists());
}

#[test]
fn a_cell_whose_process_is_killed_is_taken_over() {
    let place = Place::new(&experiment(400, ""));
    let mut first = place.command(&["grid", "run", "study.toml", "--jobs", "1"]).spawn().unwrap();
    wait_until("a run in the middle", || in_the_middle(&place) > 0);
    let second = place.command(&["grid", "run", "study.toml", "--jobs", "1"]).spawn().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let out = second.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    let starts = place.starts();
    assert!(starts.len() == 9 && starts.iter().all(|n| (1..=2).contains(n)), "{starts:?}");
    let whole = Place::new(&experiment(400, ""));
    assert!(whole.ascribe(&["grid", "run", "study.toml"]).status.success());
    assert_eq!(place.results(), whole.results());
}

#[test]
fn a_killed_cell_has_not_failed_and_goes_on() {
    let text = experiment(150, "");
    let whole = Place::new(&text);
    assert!(whole.ascribe(&["grid", "run", "study.toml"]).status.success());
    let place = Place::new(&text);
    let mut driver = place.command(&["grid", "run", "study.toml", "--jobs", "1"]).spawn().unwrap();
    wait_until("a run in the middle", || in_the_middle(&place) > 0);
    // Its lock names the process.
    let locks = place.locks();
    let pid = locks.iter().find_map(|lock| std::fs::read_to_string(lock).ok()?.trim().parse::<u32>().ok()).unwrap();
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    assert_eq!(driver.wait().unwrap().code(), Some(1));
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    assert!(status.contains(" stopped") && !status.contains("failed"), "{status}");
    let resumed = place.ascribe(&["grid", "resume", "runs/study"]);
    assert!(resumed.status.success(), "{}", said(&resumed));
    let (of_whole, of_killed) = (whole.results(), place.results());
    assert_eq!(of_whole.keys().collect::<Vec<_>>(), of_killed.keys().collect::<Vec<_>>());
    for (path, bytes) in of_whole {
        assert!(of_killed[&path] == bytes, "{} differs", path.display());
    }
}

#[test]
fn a_cell_that_fails_is_recorded_and_the_others_go_on() {
    let broken = "[grid.arm.broken]\nestimator.command = { run = [\"false\"] }";
    let place = Place::new(&experiment(20, broken));
    let out = place.ascribe(&["grid", "run", "study.toml"]);
    let text = said(&out);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("failed: broken, seed 0: ") && text.contains("3 cells failed"), "{text}");
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    let cells = |word: &str| {
        let of_cell = |line: &&str| line.contains(" cells/") && line.split_whitespace().any(|of| of == word);
        status.lines().filter(of_cell).count()
    };
    assert_eq!((cells("done"), cells("failed")), (9, 3), "{status}");
    let scores = String::from_utf8(place.results()[Path::new("report/scores.csv")].clone()).unwrap();
    assert_eq!(scores.lines().filter(|line| line.starts_with("broken,")).count(), 3, "{scores}");
    let page = String::from_utf8(place.results()[Path::new("report/index.html")].clone()).unwrap();
    assert!(page.contains("3 of 12 cells failed"), "the page does not count failures");
    // It is tried again when asked, and only then.
    let again = said(&place.ascribe(&["grid", "resume", "runs/study"]));
    assert!(!again.contains("begins: "), "{again}");
    let again = said(&place.ascribe(&["grid", "resume", "runs/study", "--retry"]));
    assert_eq!(again.matches("begins: broken").count(), 3, "{again}");
}

/// Seen from another folder a grid is the same one, also where another experiment of that name lies there.
#[test]
fn a_grid_is_the_same_from_every_folder() {
    let text = experiment(20, "");
    let (plain, grid) = text.split_once("[grid]").unwrap();
    let grid = grid.replace("seeds = 3", "seeds = 2\nprediction = \"README.md\"");
    let text = format!("start_from = \"runs/first/main/seed-0\"\n{plain}[grid]{grid}");
    let place = Place::new(&text);
    std::fs::write(place.path().join("README.md"), "rloo wins").unwrap();
    std::fs::write(place.path().join("first.toml"), plain).unwrap();
    assert!(place.ascribe(&["run", "first.toml"]).status.success());
    let out = place.ascribe(&["grid", "run", "study.toml"]);
    assert!(out.status.success(), "{}", said(&out));
    let whole = place.results();
    let manifest = std::fs::read_to_string(place.grid().join("grid.json")).unwrap();
    assert!(manifest.contains("\"given_in\": \"../..\"") && manifest.contains("\"file\": \"study.toml\""), "{manifest}");

    let runs = place.path().join("runs");
    std::fs::write(runs.join("study.toml"), text.replace("step_cost = 0.05", "step_cost = 0.5")).unwrap();
    let cell = std::fs::read_dir(place.grid().join("cells")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_dir_all(&cell).unwrap();
    let there = |words: &[&str]| place.command(words).current_dir(&runs).output().unwrap();
    let out = there(&["grid", "resume", "study"]);
    assert!(out.status.success() && said(&out).contains("6 cells, 5 of them done"), "{}", said(&out));
    let page = std::fs::read_to_string(place.grid().join("report/index.html")).unwrap();
    assert!(page.contains("The file is the one that was recorded."), "the prediction was not found");
    let without_page = |mut files: BTreeMap<PathBuf, Vec<u8>>| {
        files.remove(Path::new("report/index.html"));
        files
    };
    assert!(without_page(place.results()) == without_page(whole.clone()));
    for command in ["report", "status"] {
        let out = there(&["grid", command, "study"]);
        assert!(out.status.success(), "{}", said(&out));
    }
    // Where folder and experiment are moved together nothing changes.
    let moved = place.path().with_file_name("moved");
    std::fs::rename(place.path(), &moved).unwrap();
    let from =
        |words: &[&str]| std::process::Command::new(ascribe_tests::binary()).args(words).current_dir(&moved).output().unwrap();
    let out = from(&["grid", "resume", "runs/study"]);
    assert!(out.status.success() && said(&out).contains("6 cells, 6 of them done"), "{}", said(&out));
    // What is gone is named, and what was recorded without its folder is not guessed.
    std::fs::rename(moved.join("study.toml"), moved.join("other.toml")).unwrap();
    let told = said(&from(&["grid", "resume", "runs/study"]));
    for part in [&moved.canonicalize().unwrap().join("study.toml").display().to_string(), "runs/study", "bring it back"] {
        assert!(told.contains(part), "{part:?} in {told}");
    }
    std::fs::rename(moved.join("other.toml"), moved.join("study.toml")).unwrap();
    let manifest = manifest.replace("\"format\": 2", "\"format\": 1").replace("  \"given_in\": \"../..\",\n", "");
    std::fs::write(moved.join("runs/study/grid.json"), &manifest).unwrap();
    let told = said(&from(&["grid", "report", "runs/study"]));
    assert!(told.contains("an older version") && told.contains("give `ascribe grid run study.toml` there once"), "{told}");
    let out = from(&["grid", "run", "study.toml"]);
    assert!(out.status.success() && said(&out).contains("6 cells, 6 of them done"), "{}", said(&out));
    let page = std::fs::read_to_string(moved.join("runs/study/report/index.html")).unwrap();
    assert!(page.contains("The file is the one that was recorded.") && !page.contains("This is no prediction"));
}

/// What was run before the file was edited is shown as nothing that it was not.
#[test]
fn an_experiment_that_was_edited_is_told() {
    let place = Place::new(&experiment(20, ""));
    assert!(place.ascribe(&["grid", "run", "study.toml"]).status.success());
    let (file, text) = (place.path().join("study.toml"), experiment(20, ""));
    let scores = || std::fs::read_to_string(place.grid().join("report/scores.csv")).unwrap();
    let before = scores();
    // One arm is another one: its runs are in no number, and are said to lie there.
    std::fs::write(&file, text.replace("[grid.arm.rloo]", "[grid.arm.rloo]\nupdate.learning_rate = 0.5")).unwrap();
    let report = said(&place.ascribe(&["grid", "report", "runs/study"]));
    for part in [
        "3 of the planned cells are not of the experiment as it is now, and in no number: those of `rloo`",
        "3 cells that it asks for now",
        "3 finished runs in `runs/study` are in no number: they are of an earlier version",
        "cells/rloo-",
    ] {
        assert!(report.contains(part), "{part:?} in\n{report}");
    }
    assert!(scores().lines().count() > 1 && !scores().contains("\nrloo,"), "{}", scores());
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    assert!(status.contains("3 of the planned cells are not of the experiment"), "{status}");
    let out = place.ascribe(&["grid", "resume", "runs/study"]);
    assert!(out.status.success() && said(&out).contains("9 cells, 6 of them done"), "{}", said(&out));
    assert!(said(&out).contains("warning: 3 finished runs in `runs/study` are in no number"), "{}", said(&out));
    assert!(scores().contains("\nrloo,") && scores() != before);
    // Nothing is what it was: whatever is asked of the folder, it is not this experiment.
    std::fs::write(&file, text.replace("step_cost = 0.05", "step_cost = 0.5")).unwrap();
    for command in ["report", "resume"] {
        let out = place.ascribe(&["grid", command, "runs/study"]);
        assert_eq!(out.status.code(), Some(1), "{}", said(&out));
        for part in
            ["`study.toml` is another experiment by now", "give `ascribe grid run study.toml`", "the 12 runs that are finished"]
        {
            assert!(said(&out).contains(part), "{part:?} in\n{}", said(&out));
        }
    }
    // Brought back as it was, it is what it was.
    std::fs::write(&file, &text).unwrap();
    let out = place.ascribe(&["grid", "run", "study.toml"]);
    assert!(said(&out).contains("9 cells, 9 of them done"), "{}", said(&out));
    assert_eq!(scores(), before);
}

/// It is measured where the phase before it ended, which is no sign of damage.
#[test]
fn a_phase_that_the_budget_leaves_no_update_has_a_result() {
    let phases = "[[phase]]\nname = \"first\"\n[[phase]]\nname = \"second\"\n[budget]\ntokens = 20_000";
    let place = Place::new(&experiment(1000, phases).replace("controls.random = [\"grpo\"]", ""));
    let out = place.ascribe(&["grid", "run", "study.toml"]);
    assert!(out.status.success() && !said(&out).contains("without a result"), "{}", said(&out));
    let measured = |(path, bytes): (PathBuf, Vec<u8>)| {
        path.ends_with("evaluations.jsonl") && String::from_utf8_lossy(&bytes).contains("\"phase\":\"second\"")
    };
    assert_eq!(place.results().into_iter().map(measured).filter(|of| *of).count(), 6);
}

/// What is damaged costs its own cell, and never shows as an earlier score.
#[test]
fn damaged_records_are_failed_cells() {
    let tune = "[grid.tune]\n\"update.learning_rate\" = [0.05, 0.1]";
    let place = Place::new(&experiment(60, tune).replace("seeds = 3", "seeds = 3\ntune_seeds = 2"));
    assert!(place.ascribe(&["grid", "run", "study.toml"]).status.success());
    let cells: serde_json::Value = serde_json::from_slice(&std::fs::read(place.grid().join("cells.json")).unwrap()).unwrap();
    let run_of = |arm: &str, seed: u64| {
        let of = |cell: &&serde_json::Value| cell["arm"] == arm && cell["seed"] == seed;
        let id = cells.as_array().unwrap().iter().find(of).unwrap()["id"].as_str().unwrap()[..8].to_string();
        place.grid().join(format!("cells/{arm}-{id}/seed-{seed}"))
    };
    let cut = |run: &Path| {
        let path = run.join("evaluations.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let last = text.lines().count() - 1;
        std::fs::write(&path, text.split_inclusive('\n').take(last).collect::<String>()).unwrap();
    };
    cut(&run_of("grpo", 0));
    std::fs::write(run_of("grpo", 1).join("result.json"), "{").unwrap();
    std::fs::write(run_of("rloo", 0).join("metrics.jsonl"), b"\xff\n").unwrap();
    std::fs::remove_file(run_of("rloo", 1).join("evaluations.jsonl")).unwrap();
    cut(&run_of("rloo", 1_000_000));
    std::fs::write(run_of("rloo", 1_000_001).join("result.json"), "").unwrap();
    let report = said(&place.ascribe(&["grid", "report", "runs/study"]));
    for part in [
        "grpo, seed 0: of its sampled evaluation on `train` after update 60 there are ",
        "rloo, seed 0: `runs/study/cells/rloo-",
        "rloo, seed 1: `runs/study/cells/rloo-",
        "rloo, tuning update.learning_rate=0.05, seed 1000000: of its sampled evaluation",
        "; remove `runs/study/cells/grpo-",
        "` and run the grid again",
    ] {
        assert!(report.contains(part), "{part:?} in\n{report}");
    }
    let scores = std::fs::read_to_string(place.grid().join("report/scores.csv")).unwrap();
    for (arm, failed) in [("grpo", 2), ("rloo", 2)] {
        let of = scores.lines().filter(|line| line.starts_with(&format!("{arm},")) && line.contains("and run the grid again"));
        assert_eq!(of.count(), failed, "{scores}");
    }
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    assert_eq!(status.lines().filter(|line| line.contains(" failed ")).count(), 2, "{status}");
    // A damaged tuning run changes no choice, and so runs nothing anew.
    let out = place.ascribe(&["grid", "resume", "runs/study"]);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("Until then nothing is chosen") && !said(&out).contains("begins:"), "{}", said(&out));
    // The remedy is one.
    for (arm, seed) in [("grpo", 0), ("grpo", 1), ("rloo", 0), ("rloo", 1), ("rloo", 1_000_000), ("rloo", 1_000_001)] {
        std::fs::remove_dir_all(run_of(arm, seed)).unwrap();
    }
    // So it is for the list of cells.
    std::fs::write(place.grid().join("cells.json"), "[").unwrap();
    for command in ["status", "report"] {
        let told = said(&place.ascribe(&["grid", command, "runs/study"]));
        assert!(
            told.contains("cells.json` is damaged") && told.contains("`ascribe grid resume runs/study` writes it anew"),
            "{told}"
        );
    }
    let out = place.ascribe(&["grid", "resume", "runs/study"]);
    assert!(out.status.success() && !said(&out).contains("without a result"), "{}", said(&out));
    // What cannot be written is named.
    std::fs::remove_file(place.grid().join("lock")).unwrap();
    std::fs::create_dir(place.grid().join("lock")).unwrap();
    let told = said(&place.ascribe(&["grid", "report", "runs/study"]));
    assert!(told.contains("cannot write `runs/study/lock`") && !told.contains("is not a grid's folder"), "{told}");
}

#[test]
#[cfg(unix)]
fn names_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new(&experiment(20, ""));
    let odd = std::ffi::OsStr::from_bytes(b"stu\xffdy.toml");
    std::fs::copy(place.path().join("study.toml"), place.path().join(odd)).unwrap();
    let out = place.command(&["grid", "run"]).arg(odd).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("is not UTF-8") && !said(&out).contains("panicked"), "{}", said(&out));
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    let place = Place::new(&experiment(20, "[grid.arm.twin]\nestimator = \"rloo\""));
    let out = place.ascribe(&["grid", "run", "study.toml"]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert!(said(&out).contains("`rloo` and `twin` are the same experiment"), "{}", said(&out));
    assert!(!place.grid().exists());
    let out = place.ascribe(&["grid", "resume", "elsewhere"]);
    assert!(said(&out).contains("`elsewhere` is not a grid's folder"), "{}", said(&out));
    let out = place.ascribe(&["grid", "run", "study.toml", "-m", "estimator.gae.lambda"]);
    assert!(said(&out).contains("is no axis: write -m KEY=VALUE,VALUE"), "{}", said(&out));
    for axis in ["update.epochs=1,,2", "update.epochs=1,2,", "update.epochs=", "estimator=,grpo"] {
        let out = place.ascribe(&["grid", "plan", "study.toml", "-m", axis]);
        assert!(said(&out).contains("is no axis: write -m KEY=VALUE,VALUE without empty values"), "{}", said(&out));
    }
}

#[test]
fn a_plan_says_what_cannot_be_shown_and_what_moves() {
    let more = "exclude = [{ arm = \"grpo\", \"update.epochs\" = 1 }]\naxis = { \"update.epochs\" = [1, 2] }";
    let place = Place::new(&experiment(20, "").replace("seeds = 3", &format!("seeds = 2\n{more}")));
    let plan = said(&place.ascribe(&["grid", "plan", "study.toml"]));
    for part in [
        "they show nothing of use, whatever comes out",
        "takes 5 seeds where it is 1.68 times the spread",
        "warning: `grpo, update.epochs=1` is excluded, so that the others are compared with `grpo, update.epochs=2`",
    ] {
        assert!(plan.contains(part), "{part:?} in\n{plan}");
    }
    assert!(!plan.contains("11.55"), "{plan}");
}

/// Whoever is asked twice to stop does not save, and nobody says that it did.
#[test]
fn a_cell_that_is_asked_twice_to_stop_is_not_called_saved() {
    // An update takes a while: the second signal comes before its end.
    let slow = experiment(200, "").replace("groups = 16", "groups = 8000");
    for driver_too in [true, false] {
        let place = Place::new(&slow);
        let driver = place.command(&["grid", "run", "study.toml", "--jobs", "1"]).spawn().unwrap();
        wait_until("a run in the middle", || in_the_middle(&place) > 0);
        let lock = place.locks().into_iter().find_map(|lock| std::fs::read_to_string(lock).ok()?.trim().parse::<i32>().ok());
        let signal =
            |pid: i32| assert!(std::process::Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
        if driver_too {
            // Its end of the pipe falls, which is the first time that the cell is asked.
            signal(i32::try_from(driver.id()).unwrap());
        } else {
            signal(lock.unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        signal(lock.unwrap());
        if !driver_too {
            wait_until("the second cell", || place.locks().len() > 1);
            signal(i32::try_from(driver.id()).unwrap());
        }
        let out = driver.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1), "{}", said(&out));
        assert!(
            said(&out).contains("but 1 runs were ended before they had saved") && said(&out).contains("killed: grpo, seed 0"),
            "{}",
            said(&out)
        );
        assert!(!place.grid().join("failures").exists());
    }
}
