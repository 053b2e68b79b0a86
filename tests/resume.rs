//! Runs of the real binary, killed: what is resumed equals what was never interrupted, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ascribe_core::{Draw, Seeds};
use ascribe_tests::{binary, said};
use tempfile::TempDir;

/// A few seconds of training on the tabular policy.
const TABULAR: &str = r#"
updates = 10
environment = "bugfix"
estimator = "grpo"
objective = "ppo-clip"
policy.actor = "tabular"
rollout.independent = { groups = 12, group_size = 8 }
update = { learning_rate = 0.1, epochs = 2, minibatches = 2 }
evaluate = { every = 4, tasks = 10 }
checkpoint = { every = 2, keep = 3 }
"#;

/// Groups are drawn and thrown away again in several rounds of each update; what is too many waits for the next one.
const REFILLED: &str = r#"
updates = 10
environment.repair-mdp = { horizon = 8, step_cost = 0.05 }
estimator = "grpo"
objective = "reinforce"
policy.actor = "tabular"
update.learning_rate = 0.1
checkpoint = { every = 2, keep = 3 }
[rollout.dynamic-sampling]
groups = 400
max_rounds = 12
surplus = "keep"
of.independent = { groups = 120, group_size = 2, decode = "admissible" }
"#;

/// Macro steps from a store of states, judged in words by the policy itself, with corrected prefixes.
const MACRO_STEPS: &str = r#"
updates = 10
environment.knights = {}
estimator = "tempo"
objective = "importance-sampling"
policy.actor = "tabular"
update.learning_rate = 0.1
checkpoint = { every = 2, keep = 3 }
transform = [{ weigh = { by = "prefix_ratio" } }]
critic.ratio.prefix-ratio = {}
critic.judge.generative = { r_max = 6.0, values = "ends", target = "estimator", missing = "zero", max_tokens = 8 }
rollout.macro-step = { turns = 3, starts = 60, branches = 4, capacity = 300, decode = "admissible" }
"#;

/// The same on a small transformer, with a phase of cloning first.
const TRANSFORMER: &str = r#"
updates = 6
environment = "bugfix"
estimator = "grpo"
objective = "ppo-clip"
policy.actor.transformer = { d_model = 32, layers = 2, heads = 2, max_tokens = 256 }
rollout.independent = { groups = 6, group_size = 4 }
update = { learning_rate = 1e-3, minibatches = 2, micro_batch_tokens = 512 }
evaluate = { tasks = 4 }
checkpoint = { every = 1 }

[[phase]]
name = "clone"
updates = 4
objective = "nll"
rollout.expert = { groups = 4, group_size = 2 }

[[phase]]
name = "grpo"
"#;

/// A folder with an experiment in it.
struct Place {
    folder: TempDir,
}
impl Place {
    fn new(experiment: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("test.toml"), experiment).expect("written");
        Self { folder }
    }
    fn run(&self) -> PathBuf {
        self.folder.path().join("runs/test/main/seed-0")
    }
    fn command(&self, threads: usize, more: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(["run", "test.toml", "--threads", &threads.to_string()]).args(more);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }
    fn finish(&self, threads: usize, more: &[&str]) -> Output {
        let out = self.command(threads, more).output().expect("the binary runs");
        assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        out
    }
    fn start(&self, threads: usize) -> Child {
        self.command(threads, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts")
    }
    fn metrics(&self) -> String {
        fs::read_to_string(self.run().join("metrics.jsonl")).unwrap_or_default()
    }
}

/// Each update stands there once, in order.
fn check_lines(metrics: &str, updates: usize) {
    let lines: Vec<serde_json::Value> = metrics.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect();
    let seen: Vec<u64> = lines.iter().map(|l| l["update"].as_u64().expect("an update")).collect();
    assert_eq!(seen, (1..=updates as u64).collect::<Vec<_>>());
}

#[test]
fn tabular_runs_killed_at_random_instants() {
    killed_at_random_instants(TABULAR);
}

#[test]
fn runs_killed_in_the_middle_of_a_refill() {
    let rounds = killed_at_random_instants(REFILLED);
    let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["rollout/refill/rounds"].as_f64();
    assert!(rounds.lines().all(|line| of(line).is_some_and(|n| n >= 2.0)), "{rounds}");
}

#[test]
fn runs_killed_with_states_in_the_store() {
    let lines = killed_at_random_instants(MACRO_STEPS);
    let of = |line: &str, name: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")[name].as_f64();
    assert!(lines.lines().all(|line| of(line, "td/store_size").is_some_and(|n| n >= 100.0)), "{lines}");
    // From the second update on most groups begin in stored states, and the store forgets.
    assert!(lines.lines().skip(1).all(|line| of(line, "td/macro_index_mean").is_some_and(|n| n > 0.5)), "{lines}");
    assert!(lines.lines().any(|line| of(line, "td/evicted").is_some_and(|n| n > 0.0)), "{lines}");
}

/// Metrics of a run that was never interrupted, to which all that were killed came too.
fn killed_at_random_instants(experiment: &str) -> String {
    let whole = Place::new(experiment);
    let began = Instant::now();
    whole.finish(1, &[]);
    let length = began.elapsed();
    let expected = whole.metrics();
    check_lines(&expected, 10);

    let mut rng = Seeds(fs::metadata(binary()).map_or(0, |m| m.len())).rng("kills", Draw::default());
    let mut killed = 0;
    for round in 0..12 {
        let place = Place::new(experiment);
        // Killed up to three times, then finished with the other number of threads.
        for attempt in 0..1 + round % 3 {
            let mut child = place.start(1 + (round + attempt) % 2);
            sleep(length.mul_f64(rng.unit()));
            killed += usize::from(matches!(child.try_wait(), Ok(None)));
            child.kill().expect("SIGKILL");
            child.wait().expect("it ends");
        }
        place.finish(1 + (round + 1) % 2, &[]);
        assert_eq!(place.metrics(), expected, "round {round}");
    }
    assert!(killed >= 6, "only {killed} runs were killed while they ran");
    expected
}

#[test]
fn a_transformer_run_killed_in_the_sixth_update() {
    let whole = Place::new(TRANSFORMER);
    whole.finish(2, &[]);
    let expected = whole.metrics();
    check_lines(&expected, 10);

    let place = Place::new(TRANSFORMER);
    let mut child = place.start(1);
    let deadline = Instant::now() + Duration::from_secs(300);
    while place.metrics().lines().count() < 5 {
        assert!(Instant::now() < deadline && matches!(child.try_wait(), Ok(None)), "it ended before its sixth update");
        sleep(Duration::from_millis(2));
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it ends");
    place.finish(2, &[]);
    assert_eq!(place.metrics(), expected);
}

#[test]
fn more_updates_and_other_threads_are_no_other_experiment() {
    let whole = Place::new(TABULAR);
    whole.finish(2, &[]);
    let place = Place::new(TABULAR);
    place.finish(1, &["updates=5"]);
    check_lines(&place.metrics(), 5);
    let out = place.finish(2, &[]);
    check_lines(&place.metrics(), 10);
    assert_eq!(place.metrics(), whole.metrics(), "{}", said(&out));
    // Finished: the same command shows the result and changes nothing.
    let again = place.finish(2, &[]);
    assert!(said(&again).contains("greedy"), "{}", said(&again));
    assert_eq!(place.metrics(), whole.metrics());
    // Another experiment is refused, with the difference.
    let other = place.command(1, &["update.learning_rate=0.2"]).output().expect("runs");
    assert_eq!(other.status.code(), Some(2), "{}", said(&other));
    assert!(said(&other).contains("learning_rate") && said(&other).contains("--fresh"), "{}", said(&other));
    place.finish(1, &["update.learning_rate=0.2", "updates=2", "--fresh"]);
    check_lines(&place.metrics(), 2);
}

/// Folders of the checkpoints, oldest first.
fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(run.join("checkpoints"))
        .expect("a folder of checkpoints")
        .map(|e| e.expect("readable").path())
        .filter(|p| p.is_dir())
        .collect();
    all.sort();
    all
}

/// The largest file below a folder.
fn largest(folder: &Path) -> PathBuf {
    let mut files = Vec::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(folder) = left.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|e| e.expect("readable").path()) {
            if path.is_dir() { left.push(path) } else { files.push(path) }
        }
    }
    files.into_iter().max_by_key(|f| fs::metadata(f).map_or(0, |m| m.len())).expect("a checkpoint has files")
}

#[test]
fn a_damaged_checkpoint_is_noticed_and_the_one_before_it_used() {
    let whole = Place::new(TABULAR);
    whole.finish(1, &[]);
    type Damage = fn(&mut Vec<u8>);
    let flip: Damage = |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    let cut: Damage = |bytes| bytes.truncate(bytes.len() / 2);
    for damage in [flip, cut] {
        let place = Place::new(TABULAR);
        place.finish(1, &["updates=6"]);
        let all = checkpoints(&place.run());
        assert!(all.len() >= 2, "{all:?}");
        let file = largest(all.last().expect("not empty"));
        let mut bytes = fs::read(&file).expect("read");
        damage(&mut bytes);
        fs::write(&file, bytes).expect("written");
        let out = place.finish(1, &[]);
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(said(&out).contains("warning") && said(&out).contains(&name), "{}", said(&out));
        assert!(said(&out).contains("hash differs") || said(&out).contains("bytes"), "{}", said(&out));
        assert_eq!(place.metrics(), whole.metrics());
    }
}

/// A limit on the size of files, with its signal ignored, looks like a full disk: writes come up short.
#[test]
fn a_full_disk_ends_the_run_and_loses_nothing() {
    let whole = Place::new(TABULAR);
    whole.finish(1, &[]);
    let place = Place::new(TABULAR);
    place.finish(1, &["updates=4"]);
    let before = checkpoints(&place.run());
    let largest = fs::metadata(largest(before.last().expect("a checkpoint"))).expect("its size").len();
    let limit = largest / 1024;
    let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" run test.toml --threads 1");
    let out = Command::new("bash")
        .args(["-c", &script, binary().to_str().expect("a path in UTF-8")])
        .current_dir(place.folder.path())
        .output()
        .expect("bash runs");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("File too large") && said(&out).contains("runs/test/main/seed-0"), "{}", said(&out));
    assert!(!said(&out).contains("panicked"), "{}", said(&out));
    place.finish(1, &[]);
    assert_eq!(place.metrics(), whole.metrics());
}

#[test]
fn a_folder_that_cannot_be_made_is_said_clearly() {
    let place = Place::new(TABULAR);
    fs::write(place.folder.path().join("runs"), "in the way").expect("written");
    let out = place.command(1, &[]).output().expect("runs");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("runs") && said(&out).contains("run.dir"), "{}", said(&out));
    assert_eq!(fs::read_to_string(place.folder.path().join("runs")).expect("still there"), "in the way");
}

#[test]
fn two_processes_do_not_share_a_folder() {
    let place = Place::new(TABULAR);
    let mut first = place.start(1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !place.run().join("lock").exists() && Instant::now() < deadline {
        sleep(Duration::from_millis(1));
    }
    let second = place.command(1, &[]).output().expect("runs");
    let still_running = matches!(first.try_wait(), Ok(None));
    first.kill().expect("SIGKILL");
    first.wait().expect("it ends");
    if still_running {
        assert_eq!(second.status.code(), Some(1), "{}", said(&second));
        assert!(said(&second).contains(&first.id().to_string()), "{}", said(&second));
    }
    place.finish(1, &["updates=2"]);
}

#[test]
fn a_signal_saves_and_stops() {
    let whole = Place::new(TABULAR);
    whole.finish(1, &[]);
    let place = Place::new(TABULAR);
    let mut child = place.start(1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while place.metrics().lines().count() < 2 && Instant::now() < deadline {
        sleep(Duration::from_millis(1));
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
    child.wait().expect("it ends");
    let stopped = place.metrics().lines().count();
    let resumed = place.finish(2, &[]);
    assert_eq!(place.metrics(), whole.metrics(), "stopped at {stopped}: {}", said(&resumed));
}
