//! What tests of grids share: an experiment, and folders in which the real binary runs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Two arms of tabular runs and a control; `updates` says how long they take.
pub fn experiment(updates: u32, more: &str) -> String {
    format!(
        r#"
        question = "Which estimator repairs more?"
        environment.repair-mdp = {{ horizon = 8, step_cost = 0.05 }}
        objective = "reinforce"
        estimator = "grpo"
        updates = {updates}
        policy.actor.tabular = {{}}
        rollout.independent = {{ groups = 16, group_size = 8, decode = "admissible" }}
        update.learning_rate = 0.05
        evaluate = {{ splits = ["train"], samples = 20, every = 50 }}
        checkpoint.every = 10
        [grid]
        seeds = 3
        baseline = "grpo"
        controls.random = ["grpo"]
        [grid.arm.grpo]
        [grid.arm.rloo]
        estimator = "rloo"
        {more}
        "#
    )
}

/// A folder with an experiment.
pub struct Place {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Place {
    /// One with this experiment.
    pub fn new(text: &str) -> Self {
        Self::named("place", text)
    }
    /// One whose folder has this name.
    pub fn named(name: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("study.toml"), text).unwrap();
        Self { path, _folder: folder }
    }
    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// A command of the binary in it, not started.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(crate::binary());
        command.args(words).current_dir(&self.path).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command
    }
    /// Runs a command to its end.
    pub fn ascribe(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }
    /// The folder of its grid.
    pub fn grid(&self) -> PathBuf {
        self.path.join("runs/study")
    }
    /// Every file of runs and report that is a result, by its path; of the report's page what no clock says.
    pub fn results(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let keep = ["metrics.jsonl", "evaluations.jsonl"];
        walk(&self.grid(), &mut |path| {
            let relative = path.strip_prefix(self.grid()).unwrap().to_path_buf();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let of_report = relative.starts_with("report") && !name.contains("seconds");
            if keep.contains(&name.as_str()) || of_report || name == "cells.json" {
                let bytes = std::fs::read(path).unwrap();
                files.insert(relative, if name == "index.html" { without_clock(bytes) } else { bytes });
            }
        });
        files
    }
    /// Files that say which process runs a cell, of cells that are not over.
    pub fn locks(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        walk(&self.grid().join("cells"), &mut |path| {
            if path.ends_with("lock") && !path.with_file_name("result.json").exists() {
                all.push(path.to_path_buf());
            }
        });
        all
    }
    /// How often each cell was begun or taken up again.
    pub fn starts(&self) -> Vec<usize> {
        let mut all = Vec::new();
        walk(&self.grid(), &mut |path| {
            if path.ends_with("provenance.json") {
                let provenance: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
                all.push(provenance["starts"].as_array().unwrap().len());
            }
        });
        all
    }
}

fn walk(folder: &Path, on: &mut dyn FnMut(&Path)) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { walk(&path, on) } else { on(&path) }
    }
}

/// A report's page without the section and the dates that a clock gave it.
fn without_clock(page: Vec<u8>) -> Vec<u8> {
    let mut page = String::from_utf8(page).unwrap();
    let clocks = [("<section id=\"clock\"", "</section>"), ("<time", "</time>")];
    for (begins, ends) in clocks {
        while let Some(from) = page.find(begins) {
            let to = from + page[from..].find(ends).unwrap() + ends.len();
            page.replace_range(from..to, "");
        }
    }
    page.into_bytes()
}

/// Waits until something holds, long enough for a busy machine.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(600), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many runs of the grid are in the middle: they have some updates, and are not over.
pub fn in_the_middle(place: &Place) -> usize {
    let mut runs = 0;
    walk(&place.grid().join("cells"), &mut |path| {
        let begun = path.ends_with("metrics.jsonl") && std::fs::metadata(path).is_ok_and(|of| of.len() > 0);
        runs += usize::from(begun && !path.with_file_name("result.json").exists());
    });
    runs
}
