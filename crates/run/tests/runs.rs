//! Whole runs: what they write, and that nothing that happens to them changes it.
#![allow(clippy::unwrap_used)]

mod toy;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ascribe_core::experiment::Plan;
use ascribe_core::{AdvantageEstimator, Now, Slot};
use ascribe_run::checkpoint;
use ascribe_run::disk::{Disk, Gate, Operation, Pass};
use ascribe_run::evaluate::Mode;
use ascribe_run::folder::{self, RunFolder, name};
use ascribe_run::records::{EvaluationLine, MetricsLine, TimingLine, read_lines};
use ascribe_run::{
    Ended, Event, MeasureOptions, Options, Progress, Report, RunError, measure, run, save_measured, tensorboard, trajectories,
};
use toy::plan;

/// Watches a run: keeps its warnings, and may stop it after an update.
#[derive(Default)]
struct Watch {
    warnings: Vec<String>,
    resumed: Option<u32>,
    updates: Vec<u32>,
    evaluated: usize,
    stop_after: Option<u32>,
    stop_in_evaluation: bool,
    stop: Arc<AtomicBool>,
}
impl Progress for Watch {
    fn on(&mut self, event: Event<'_>) {
        match event {
            Event::Warning(text) => self.warnings.push(text.into()),
            Event::Started { resumed, .. } => self.resumed = resumed,
            Event::Update { update, .. } => {
                self.updates.push(update);
                if self.stop_after == Some(update) {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
            Event::Evaluating { .. } if self.stop_in_evaluation => self.stop.store(true, Ordering::Relaxed),
            Event::Evaluated(_) => self.evaluated += 1,
            _ => {}
        }
    }
}

struct Place {
    _all: tempfile::TempDir,
    run: PathBuf,
}
fn place() -> Place {
    let all = tempfile::tempdir().unwrap();
    let run = all.path().join("runs/doors/main/seed-0");
    Place { _all: all, run }
}

fn options(place: &Place, watch: &Watch) -> Options {
    // What is forced to the disk is of no interest here, and slow.
    let disk = Disk::gated(Arc::new(Power::new(usize::MAX, false)));
    Options { folder: Some(place.run.clone()), stop: watch.stop.clone(), disk, ..Options::default() }
}

fn go(plan: &Plan, place: &Place, watch: &mut Watch) -> Result<Report, RunError> {
    let options = options(place, watch);
    run(plan, &options, watch)
}

fn whole(text: &str) -> (Place, Report) {
    let place = place();
    let report = go(&plan(text), &place, &mut Watch::default()).unwrap();
    assert_eq!(report.ended, Ended::Finished);
    (place, report)
}

/// The events of TensorBoard's file, without their wall time.
fn events(place: &Place) -> Vec<u8> {
    let bytes = fs::read(place.run.join(name::TENSORBOARD).join(tensorboard::FILE)).unwrap();
    let mut rest = &bytes[..];
    let mut events = Vec::new();
    while !rest.is_empty() {
        let n = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        // length and its checksum, then the event, which begins with the wall time: a key and 8 bytes
        events.extend_from_slice(&rest[12 + 9..12 + n]);
        rest = &rest[16 + n..];
    }
    events
}

/// Everything that must not depend on how a run came about: metrics, evaluations, batches, weights.
fn fruits(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for file in [name::METRICS, name::EVALUATIONS] {
        files.insert(file.to_string(), fs::read(place.run.join(file)).unwrap());
    }
    files.insert("events".into(), events(place));
    let timing: Vec<TimingLine> = read_lines(&place.run.join(name::TIMING)).unwrap();
    files.insert("timed".into(), timing.iter().flat_map(|t| t.update.to_le_bytes()).collect());
    for entry in fs::read_dir(place.run.join(name::TRAJECTORIES)).unwrap() {
        let entry = entry.unwrap();
        files.insert(entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    }
    let (newest, damaged) =
        checkpoint::newest(&place.run, &place.run.join(name::CHECKPOINTS), &[name::METRICS, name::EVALUATIONS]);
    assert!(damaged.is_empty(), "{damaged:?}");
    let newest = newest.unwrap();
    files.insert("update".into(), newest.update.to_le_bytes().to_vec());
    files.extend(newest.files.into_iter().filter(|(name, _)| name != "state.json"));
    files
}

fn same(a: &Place, b: &Place) {
    let (a, b) = (fruits(a), fruits(b));
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in &a {
        assert!(*bytes == b[name], "{name}:\n{}\n{}", String::from_utf8_lossy(bytes), String::from_utf8_lossy(&b[name]));
    }
}

/// Two phases, a critic with state and a head, schedules with memory, minibatches, evaluations in between.
const RICH: &str = "
    evaluate = { every = 3, samples = 2 }
    critic.judge.counting = { scale = 0.5 }
    update = { learning_rate = 0.5, epochs = 2, minibatches = 3 }
    transform = [{ times = { factor = 1.0 } }]
    [knob.\"transform.0.times.factor\".feedback]
    metric = \"actor/entropy\"
    target = 1.0
    initial = 1.0
    gain = 0.5
    min = 0.1
    max = 10.0
    [knob.\"rollout.together.temperature\".ramp]
    from = 1.0
    to = 0.8
    updates = 4
    [[phase]]
    name = \"clone\"
    updates = 4
    rollout.together = { expert = true, temperature = 1.0 }
    objective.gradient = { clone = true }
    train = [\"actor\"]
    [[phase]]
    name = \"rl\"
    updates = 6
    rollout.together = { temperature = 1.0 }
    objective.ratio = {}
    estimator.centred = { bundles = true }
";

#[test]
fn a_run_learns_and_writes_what_it_should() {
    let (place, report) = whole(
        "evaluate = { samples = 4 }
        update = { learning_rate = 2.0 }
        [[phase]]
        name = \"clone\"
        updates = 10
        rollout.together = { expert = true }
        objective.gradient = { clone = true }
        [[phase]]
        name = \"rl\"
        updates = 30
        ",
    );
    let success: Vec<f64> = report.result.evaluations.iter().map(|e| e.results[1].summary.success).collect();
    assert!(success[0] > 0.1 && success[0] < 0.9 && success[1] > success[0], "{success:?}");
    let last = report.result.evaluations.last().unwrap();
    assert_eq!(
        last.results.iter().map(|r| (r.split.as_str(), r.mode)).collect::<Vec<_>>(),
        [("test", Mode::Greedy), ("test", Mode::Sampled)]
    );
    assert!(last.results[0].summary.success > 0.9, "{last:?}");
    assert_eq!(last.results[1].summary.episodes, 16);
    assert!(last.phase_end);

    let lines = folder::metrics(&place.run).unwrap();
    assert_eq!(lines.iter().map(|l| l.update).collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
    let first_rl = &lines[10].metrics;
    for name in [
        "critic/rewards/mean",
        "critic/score/max",
        "critic/returns/min",
        "critic/advantages/mean",
        "actor/entropy",
        "actor/pg_loss",
        "actor/grad_norm",
        "actor/lr",
        "response_length/mean",
        "prompt_length/mean",
        "actor/degenerate_group_rate",
        "credit/within_trajectory_std",
        "rollout/success_rate",
        "rollout/turns/mean",
        "rollout/truncated_rate",
        "rollout/malformed_rate",
        "rollout/failed_rate",
        "rollout/logprob_mismatch/p95",
        "env/exploit/mean",
        "cost/tokens",
    ] {
        assert!(first_rl.get(name).is_some_and(f64::is_finite), "{name}");
    }
    // The sampler and the trainer of a table agree to rounding.
    assert!(first_rl.get("rollout/logprob_mismatch/max").unwrap() < 1e-6);
    assert_eq!(lines[0].metrics.get("actor/entropy"), None, "an expert has none");
    assert!(lines[39].metrics.get("eval/test/greedy/success").unwrap() > 0.9);
    assert!(lines[39].metrics.get("eval/test/sampled/exploit").is_some());
    assert!(lines[38].metrics.get("eval/test/greedy/success").is_none());
    // What evaluations cost is no training.
    let cost = |l: &MetricsLine, name: &str| l.metrics.get(name).unwrap();
    assert_eq!(cost(&lines[8], "cost/eval_tokens"), 0.0);
    assert_eq!(cost(&lines[38], "cost/eval_tokens"), cost(&lines[9], "cost/eval_tokens"));
    assert_eq!(cost(&lines[39], "cost/eval_episodes"), 40.0);
    assert_eq!(cost(&lines[39], "cost/episodes"), (20 * 16 + 20 * 20) as f64);

    assert_eq!(read_lines::<TimingLine>(&place.run.join(name::TIMING)).unwrap().len(), 40);
    let by_task: Vec<EvaluationLine> = read_lines(&place.run.join(name::EVALUATIONS)).unwrap();
    assert_eq!(by_task.len(), 16);
    assert_eq!((by_task[0].name.as_str(), by_task[0].category.as_deref()), ("test/0", Some("even")));
    let batch = trajectories::read(&trajectories::path(&place.run.join(name::TRAJECTORIES), 40)).unwrap();
    assert_eq!(batch.len(), 5);
    // Without transforms, what is estimated again is what trained.
    let restored = trajectories::restore(&batch).unwrap();
    let estimator: Slot<dyn AdvantageEstimator> = toml::from_str("centred = {}").unwrap();
    let now = Now { update: 39, ..Now::default() };
    let again: Vec<_> = restored.batch.groups().map(|group| estimator.estimate(group, &now).unwrap()).collect();
    assert_eq!(again, restored.credit);
    for file in [name::EXPERIMENT, name::RESOLVED, name::PROVENANCE, name::RESULT, name::LOG] {
        assert!(place.run.join(file).is_file(), "{file}");
    }
    let provenance = folder::provenance(&place.run).unwrap();
    assert_eq!((provenance.environment.as_str(), provenance.starts.len()), ("doors-0", 1));
    assert!(provenance.starts[0].rustc.starts_with("rustc "), "{provenance:?}");
}

#[test]
fn the_same_experiment_gives_the_same_bytes_with_any_number_of_threads() {
    let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
    let first = pool(1).install(|| whole(RICH).0);
    for n in [2, 5] {
        same(&first, &pool(n).install(|| whole(RICH).0));
    }
    let other = whole(&format!("seed = 1\n{RICH}")).0;
    assert_ne!(fruits(&first)[name::METRICS], fruits(&other)[name::METRICS]);
}

#[test]
fn metrics_hold_no_clock() {
    let (place, _) = whole(RICH);
    for line in folder::metrics(&place.run).unwrap() {
        for name in line.metrics.0.keys() {
            assert!(!name.contains("second") && !name.contains("wall"), "{name}");
        }
    }
}

#[test]
fn stopped_and_resumed_is_as_if_never_stopped() {
    let (reference, _) = whole(RICH);
    for stop_after in 1..=10 {
        let place = place();
        let mut watch = Watch { stop_after: Some(stop_after), ..Watch::default() };
        let report = go(&plan(RICH), &place, &mut watch).unwrap();
        // After the last update there is nothing left to stop.
        assert_eq!(report.ended, Ended::Stopped, "{stop_after}");
        let mut watch = Watch::default();
        assert_eq!(go(&plan(RICH), &place, &mut watch).unwrap().ended, Ended::Finished);
        assert_eq!(watch.resumed, Some(stop_after));
        assert_eq!(watch.updates, (stop_after + 1..=10).collect::<Vec<_>>());
        assert!(watch.warnings.is_empty(), "{:?}", watch.warnings);
        same(&reference, &place);
        assert_eq!(folder::provenance(&place.run).unwrap().starts[1].update, stop_after);
    }
}

/// Critics and rollouts that come, go, change and come back.
const PATCHY: &str = "
    [[phase]]
    name = \"a\"
    updates = 1
    [[phase]]
    name = \"b\"
    updates = 2
    critic.judge.counting = {}
    [[phase]]
    name = \"c\"
    updates = 1
    rollout.together = { tasks = 2 }
    [[phase]]
    name = \"d\"
    updates = 2
    critic.judge.counting = { scale = 2.0 }
    critic.other.quiet = {}
";

#[test]
fn what_comes_back_in_a_later_phase_remembers() {
    let (reference, _) = whole(PATCHY);
    let value = |l: &MetricsLine| l.metrics.get("signal/value/mean");
    let lines = folder::metrics(&reference.run).unwrap();
    assert_eq!(lines.iter().map(value).collect::<Vec<_>>(), [None, Some(1.0), Some(2.0), None, Some(3.0), Some(4.0)]);
    for stop_after in 1..=6 {
        let place = place();
        go(&plan(PATCHY), &place, &mut Watch { stop_after: Some(stop_after), ..Watch::default() }).unwrap();
        go(&plan(PATCHY), &place, &mut Watch::default()).unwrap();
        same(&reference, &place);
    }
}

#[test]
fn stopping_in_an_evaluation_loses_nothing() {
    let (reference, _) = whole(RICH);
    let place = place();
    let mut updates = Vec::new();
    for _ in 0..20 {
        let mut watch = Watch { stop_in_evaluation: true, ..Watch::default() };
        assert_eq!(go(&plan(RICH), &place, &mut watch).unwrap().ended, Ended::Stopped);
        updates.extend(watch.updates);
        let mut watch = Watch { stop_after: Some(updates.last().unwrap() + 1), ..Watch::default() };
        if go(&plan(RICH), &place, &mut watch).unwrap().ended == Ended::Finished {
            break;
        }
        updates.extend(watch.updates);
    }
    assert_eq!(updates, (1..=10).collect::<Vec<_>>());
    same(&reference, &place);
}

#[test]
fn a_finished_run_shows_its_result_and_more_updates_go_on() {
    let short = RICH.replace("updates = 6", "updates = 3");
    let (place, report) = whole(&short);
    let mut watch = Watch::default();
    let again = go(&plan(&short), &place, &mut watch).unwrap();
    assert_eq!((again.ended, again.result.clone()), (Ended::AlreadyFinished, report.result));
    assert!(watch.updates.is_empty());
    // other folders, threads and a budget are no other experiment either
    let mut watch = Watch::default();
    let other = plan(&format!("run = {{ threads = 7 }}\nbudget = {{ tokens = \"1G\" }}\n{short}"));
    assert_eq!(go(&other, &place, &mut watch).unwrap().ended, Ended::AlreadyFinished);

    // made longer, it continues as if it had never ended: the evaluation at its end was not due in the long run
    let mut watch = Watch::default();
    assert_eq!(go(&plan(RICH), &place, &mut watch).unwrap().ended, Ended::Finished);
    assert_eq!(watch.updates, [8, 9, 10]);
    same(&whole(RICH).0, &place);
}

#[test]
fn another_experiment_is_refused_with_the_difference() {
    let (place, _) = whole("updates = 2\n");
    let e = go(&plan("updates = 2\nupdate = { learning_rate = 0.25 }\nseed = 3\n"), &place, &mut Watch::default()).unwrap_err();
    let text = e.to_string();
    assert!(text.contains("main.update.learning_rate: 0.5 there, 0.25 asked for"), "{text}");
    assert!(text.contains("main.seed: (not set) there, 3 asked for"), "{text}");
    assert!(text.contains("--fresh"), "{text}");
    assert_eq!(e.exit_code(), 2);

    let mut watch = Watch::default();
    let fresh = Options { fresh: true, ..options(&place, &watch) };
    assert_eq!(run(&plan("updates = 2\nseed = 3\n"), &fresh, &mut watch).unwrap().ended, Ended::Finished);
    assert!(place.run.with_file_name("seed-0.old-1").join(name::METRICS).exists());
    assert!(watch.warnings[0].contains("seed-0.old-1"), "{:?}", watch.warnings);
    assert_eq!(watch.resumed, None);
}

#[test]
fn a_damaged_checkpoint_gives_way_to_the_one_before() {
    let (reference, _) = whole(RICH);
    for (file, harm) in [("node-actor.bin", "flip"), ("state.json", "cut"), ("manifest.json", "remove"), ("tasks.bin", "remove")]
    {
        let place = place();
        let mut watch = Watch { stop_after: Some(7), ..Watch::default() };
        go(&plan(RICH), &place, &mut watch).unwrap();
        let path = place.run.join(name::CHECKPOINTS).join("000007").join(file);
        let mut bytes = fs::read(&path).unwrap();
        match harm {
            "flip" => {
                bytes[10] ^= 4;
                fs::write(&path, bytes).unwrap();
            }
            "cut" => fs::write(&path, &bytes[..20]).unwrap(),
            _ => fs::remove_file(&path).unwrap(),
        }
        let mut watch = Watch::default();
        go(&plan(RICH), &place, &mut watch).unwrap();
        assert_eq!(watch.resumed, Some(6), "{file}");
        assert!(watch.warnings[0].contains(file) && watch.warnings[0].contains("cannot be used"), "{:?}", watch.warnings);
        assert!(watch.warnings[1].contains("update 6"), "{:?}", watch.warnings);
        same(&reference, &place);
        assert!(place.run.join(name::CHECKPOINTS).join("unusable-000007").exists());
    }
}

/// All files of a run, but the record of attempts and the lock.
fn everything(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![place.run.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with(name::LOCK) {
                files.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

#[test]
fn without_any_usable_checkpoint_it_changes_nothing_and_says_so() {
    let place = place();
    go(&plan(RICH), &place, &mut Watch { stop_after: Some(5), ..Watch::default() }).unwrap();
    for (_, path) in checkpoint::list(&place.run.join(name::CHECKPOINTS)) {
        fs::write(path.join("state.json"), "{}").unwrap();
    }
    let before = everything(&place);
    let e = go(&plan(RICH), &place, &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains("has no usable checkpoint") && e.to_string().contains("--fresh"), "{e}");
    assert_eq!(e.exit_code(), 1);
    assert!(everything(&place) == before);
}

/// Curves and clocks are no results: a run whose TensorBoard events were cleared away goes on, and can be measured.
#[test]
fn what_only_shows_how_it_went_is_not_needed_to_go_on() {
    let (reference, _) = whole(RICH);
    let place = place();
    go(&plan(RICH), &place, &mut Watch { stop_after: Some(5), ..Watch::default() }).unwrap();
    fs::remove_dir_all(place.run.join(name::TENSORBOARD)).unwrap();
    fs::write(place.run.join(name::TIMING), "").unwrap();
    let mut watch = Watch::default();
    measure(&plan(RICH), &place.run, &MeasureOptions::default(), &mut watch).unwrap();
    go(&plan(RICH), &place, &mut watch).unwrap();
    assert!(watch.resumed.is_some());
    assert_eq!(watch.warnings.iter().filter(|w| w.contains("it begins anew; no result depends on it")).count(), 2);
    let results = |place: &Place| [name::METRICS, name::EVALUATIONS].map(|file| fs::read(place.run.join(file)).unwrap());
    assert_eq!(results(&place), results(&reference));
    assert!(!events(&place).is_empty());

    // Results are needed.
    fs::write(place.run.join(name::METRICS), "").unwrap();
    let e = go(&plan(&RICH.replace("updates = 6", "updates = 7")), &place, &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains("metrics.jsonl` has 0 bytes"), "{e}");
    measure(&plan(RICH), &place.run, &MeasureOptions::default(), &mut ()).unwrap();
}

#[test]
fn a_run_that_cannot_begin_leaves_the_old_one_where_it_is() {
    let (place, _) = whole("updates = 2\n");
    let before = everything(&place);
    let fresh = |text: &str| {
        let options = Options { fresh: true, ..options(&place, &Watch::default()) };
        run(&plan(text), &options, &mut ()).unwrap_err().to_string()
    };
    assert!(fresh("evaluate = { splits = [\"tset\"] }\n").contains("no split `tset`"));
    assert!(everything(&place) == before);
    let own = format!("updates = 3\nstart_from = \"{}\"\n", place.run.display());
    assert!(fresh(&own).contains("has no usable checkpoint"));
    assert!(everything(&place) == before);
}

/// Cuts the power at the n-th operation.
struct Power {
    left: AtomicUsize,
    torn: bool,
}
impl Power {
    fn new(n: usize, torn: bool) -> Self {
        Self { left: AtomicUsize::new(n), torn }
    }
}
impl Gate for Power {
    fn pass(&self, _: Operation, _: &Path) -> Pass {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Pass::Nothing;
        }
        self.left.store(left - 1, Ordering::Relaxed);
        if left == 1 && self.torn { Pass::Torn } else { Pass::Whole }
    }
}

#[test]
fn power_may_fail_before_any_operation() {
    let text = RICH.replace("updates = 4", "updates = 2").replace("updates = 6", "updates = 3").replace("every = 3", "every = 2");
    let (reference, _) = whole(&text);
    let mut cuts = 0;
    for n in 1.. {
        let place = place();
        let watch = Watch::default();
        let disk = Disk::gated(Arc::new(Power::new(n, n % 2 == 0)));
        let cut = run(&plan(&text), &Options { disk, ..options(&place, &watch) }, &mut ());
        if cut.is_ok() {
            break;
        }
        cuts += 1;
        assert!(matches!(cut, Err(RunError::Disk(_))), "operation {n}: {cut:?}");
        let mut watch = Watch::default();
        let report = go(&plan(&text), &place, &mut watch).unwrap_or_else(|e| panic!("after operation {n}: {e}"));
        assert!(matches!(report.ended, Ended::Finished | Ended::AlreadyFinished), "{n}");
        assert!(!watch.warnings.iter().any(|w| w.contains("cannot be used")), "{n}: {:?}", watch.warnings);
        same(&reference, &place);
    }
    assert!(cuts > 150, "{cuts}");
}

#[test]
fn power_may_fail_again_and_again() {
    let (reference, _) = whole(RICH);
    let place = place();
    let mut attempts = 0;
    // Few operations each time: just enough to come a checkpoint further now and then.
    for n in (60..).step_by(7) {
        attempts += 1;
        let disk = Disk::gated(Arc::new(Power::new(n, true)));
        let ended = run(&plan(RICH), &Options { disk, ..options(&place, &Watch::default()) }, &mut ());
        if ended.is_ok() {
            break;
        }
    }
    assert!(attempts > 3, "{attempts}");
    same(&reference, &place);
}

#[test]
fn the_same_crash_twice_is_reported() {
    let place = place();
    let text = "updates = 9\nrollout.together = { fail_at = 6 }\ncheckpoint = { every = 4 }\n";
    let mut warnings = Vec::new();
    for _ in 0..3 {
        let mut watch = Watch::default();
        let e = go(&plan(text), &place, &mut watch).unwrap_err();
        assert_eq!(e.to_string(), "update 6 failed: the rollout failed: out of memory");
        assert_eq!(e.exit_code(), 1);
        warnings.push(watch.warnings.into_iter().filter(|w| w.contains("no progress")).collect::<Vec<_>>());
    }
    assert!(warnings[0].is_empty() && warnings[1].is_empty(), "{warnings:?}");
    let text = warnings[2].join("\n");
    assert!(text.contains("no progress since checkpoint 4: the run has ended 2 times"), "{text}");
    assert!(text.contains("last after update 5") && text.contains("`checkpoint.every` (now 4)"), "{text}");
}

#[test]
fn phases_share_one_world() {
    let with =
        |second: &str| plan(&format!("[[phase]]\nname = \"a\"\nupdates = 1\n[[phase]]\nname = \"b\"\nupdates = 1\n{second}\n"));
    for (second, says) in [
        ("environment.doors = { edition = 2 }", "phase `b` changes `environment`"),
        ("policy.other.table = {}", "phase `b` changes `policy`"),
        ("rollout.together = { tasks = 0 }", "phase `b`, `rollout`: `tasks` must be at least 1"),
        ("evaluate = { splits = [\"tset\"] }", "phase `b`: `evaluate.splits`: there is no split `tset`; there are: train, test"),
    ] {
        let place = place();
        let e = go(&with(second), &place, &mut Watch::default()).unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
        assert_eq!(e.exit_code(), 2, "{e}");
        assert!(!place.run.exists(), "nothing is left of a run that could not begin");
    }
    let place = place();
    let e = go(&plan("device = \"cuda\"\n"), &place, &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains("phase `main`, `policy.actor`: a table has no use for `cuda`") && e.exit_code() == 2, "{e}");
    let e = go(&plan("[knob.\"policy.actor.table.x\".constant]\nvalue = 1\n"), &place, &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains("scheduled"), "{e}");
}

/// Two runs that begin where another one ended: they share its weights and optimiser, and nothing else of it.
#[test]
fn a_run_begins_with_the_weights_of_another() {
    let (source, first) = whole(RICH);
    let from = |path: &Path| format!("start_from = \"{}\"\nupdates = 4\n", path.display());
    let (fresh, _) = whole("updates = 4\n");
    let (a, report) = whole(&from(&source.run));
    let (b, _) = whole(&from(&source.run.join("checkpoints/000010")));
    // The path is another one, what lies there is the same.
    same(&a, &b);
    assert_ne!(fruits(&fresh)[name::METRICS], fruits(&a)[name::METRICS]);
    assert!(report.result.ledger.tokens() < first.result.ledger.tokens(), "what the other run cost is that run's");
    let provenance = folder::provenance(&a.run).unwrap();
    let start = provenance.start_from.unwrap();
    assert!(start.checkpoint.ends_with("checkpoints/000010"), "{start:?}");
    let weights = checkpoint::read(&start.checkpoint).unwrap().files["node-actor.bin"].clone();
    assert_eq!(start.nodes, BTreeMap::from([("actor".to_string(), checkpoint::sha256(&weights))]));
    // A policy that does not learn stays what it was given.
    let (still, _) = whole(&format!("{}update = {{ learning_rate = 1e-300 }}\n", from(&source.run.join("checkpoints/000004"))));
    let of_clone = checkpoint::read(&source.run.join("checkpoints/000004")).unwrap();
    let kept = |files: &BTreeMap<String, Vec<u8>>| String::from_utf8_lossy(&files["node-actor.bin"]).into_owned();
    assert!(weights_of(&kept(&fruits(&still))) == weights_of(&kept(&of_clone.files)));

    // Stopped and resumed without the run it began with, it goes on; the same again is the same run.
    let stopped = place();
    let text = from(&source.run);
    go(&plan(&text), &stopped, &mut Watch { stop_after: Some(2), ..Watch::default() }).unwrap();
    drop(source);
    go(&plan(&text), &stopped, &mut Watch::default()).unwrap();
    same(&stopped, &a);
}

/// The numbers of a saved table that are not what an unseen place has, without its count of steps.
fn weights_of(saved: &str) -> Vec<String> {
    let table: serde_json::Value = serde_json::from_str(saved).unwrap();
    let learned = |entry: &&serde_json::Value| entry[1].as_array().unwrap().iter().any(|x| x.as_f64() != Some(0.0));
    let weights: Vec<String> = table[0]["logits"].as_array().unwrap().iter().filter(learned).map(ToString::to_string).collect();
    assert!(!weights.is_empty());
    weights
}

#[test]
fn a_start_that_cannot_be_had_is_refused() {
    let (source, _) = whole("updates = 2\n");
    let says = |text: &str, path: &Path| {
        let place = place();
        let text = format!("{text}start_from = \"{}\"\n", path.display());
        let e = go(&plan(&text), &place, &mut Watch::default()).unwrap_err();
        assert_eq!(e.exit_code(), 2, "{e}");
        assert!(!place.run.exists(), "nothing is left of a run that could not begin");
        e.to_string()
    };
    let empty = tempfile::tempdir().unwrap();
    let e = says("", empty.path());
    assert!(e.contains("`start_from = ") && e.contains("has no usable checkpoint"), "{e}");
    assert!(says("", Path::new("absent")).contains("there is no such folder"));
    assert!(says("", Path::new("")).contains("there is no such folder"));
    let e = says("", &source.run.join("checkpoints/000009"));
    assert!(e.contains("has no usable checkpoint of update 9") && e.contains("there are: 2"), "{e}");
    let e = says("", &source.run.join("checkpoints/newest"));
    assert!(e.contains("is not the folder of a checkpoint"), "{e}");
    let e = says("policy = { other = { table = {} } }\n", &source.run);
    assert!(e.contains("none of the policy nodes of this one (other): its own are actor."), "{e}");
    let e = says("environment.doors = { edition = 1 }\n", &source.run);
    assert!(e.contains("its checkpoint of update 2 does not fit this experiment") && e.contains("leave `start_from` out"), "{e}");
    assert!(e.contains(&source.run.join(name::RESOLVED).display().to_string()), "{e}");

    // Killed before its first checkpoint, a run begins again with the same weights or not at all.
    let place = place();
    let text = format!("start_from = \"{}\"\nupdates = 4\ncheckpoint = {{ every = 4 }}\n", source.run.display());
    go(&plan(&text), &place, &mut Watch::default()).unwrap();
    let reference = fruits(&place);
    let killed = || {
        fs::remove_dir_all(place.run.join(name::CHECKPOINTS)).unwrap();
        fs::remove_file(place.run.join(name::RESULT)).unwrap();
    };
    killed();
    // The run it began with has gone on; the checkpoint it began with is still there.
    go(&plan("updates = 3\n"), &source, &mut Watch::default()).unwrap();
    go(&plan(&text), &place, &mut Watch::default()).unwrap();
    assert!(fruits(&place) == reference);
    killed();
    fs::remove_dir_all(source.run.join("checkpoints/000002")).unwrap();
    let e = go(&plan(&text), &place, &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains("they have changed since"), "{e}");
}

#[test]
fn other_tasks_under_the_same_experiment_are_refused() {
    let place = place();
    go(&plan("updates = 4\n"), &place, &mut Watch { stop_after: Some(2), ..Watch::default() }).unwrap();
    let path = place.run.join(name::PROVENANCE);
    let text = fs::read_to_string(&path).unwrap().replace("doors-0", "doors-7");
    fs::write(&path, text).unwrap();
    let e = go(&plan("updates = 4\n"), &place, &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains("the environment's fingerprint was `doors-7` and is `doors-0`"), "{e}");
    let e = measure(&plan("updates = 4\n"), &place.run, &MeasureOptions::default(), &mut ()).unwrap_err();
    assert!(e.to_string().contains("was begun with other tasks"), "{e}");
}

#[test]
fn what_is_not_finite_is_an_error_that_names_the_task() {
    let text = "estimator.centred = { poison = 2 }\nupdates = 3\n";
    let e = go(&plan(text), &place(), &mut Watch::default()).unwrap_err();
    let text = e.to_string();
    assert!(text.starts_with("update 2 failed: the estimator failed on task `train/"), "{text}");
    assert!(text.ends_with("the advantage of turn 0 is NaN"), "{text}");
    let e = go(&plan("environment.doors = { nan = true }\n"), &place(), &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains("task `train/0`, turn 1: a reward or signal is NaN"), "{e}");
    // excluded, every path fails and nothing is left to train on
    let (place, _) = whole(
        "environment.doors = { nan = true }\nnon_finite = \"exclude\"\nupdates = 1\nalarm.all-failed = { action = \"warn\" }\n",
    );
    let line = &folder::metrics(&place.run).unwrap()[0];
    assert_eq!(line.metrics.get("rollout/failed_rate"), Some(1.0));
    assert_eq!(line.metrics.get("actor/empty_update"), Some(1.0));
    assert_eq!(line.metrics.get("alarm/failed"), Some(1.0));
}

#[test]
fn nothing_to_train_on_is_a_logged_no_op() {
    let (place, _) = whole("updates = 2\nestimator.centred = { untrained = true }\n");
    for line in folder::metrics(&place.run).unwrap() {
        assert_eq!(line.metrics.get("actor/empty_update"), Some(1.0));
        assert_eq!(line.metrics.get("actor/steps"), Some(0.0));
        assert_eq!(line.metrics.get("credit/trained_rate"), Some(0.0));
    }
}

#[test]
fn a_broken_task_fails_alone() {
    let (place, mut watch) = (place(), Watch::default());
    go(&plan("updates = 3\nenvironment.doors = { broken = 1 }\n"), &place, &mut watch).unwrap();
    assert_eq!(
        watch.warnings.iter().filter(|w| w.contains("an episode broke, the first on task")).count(),
        1,
        "{:?}",
        watch.warnings
    );
    let lines = folder::metrics(&place.run).unwrap();
    assert!(lines.iter().any(|l| l.metrics.get("group/excluded") == Some(1.0)));
}

#[test]
fn a_step_that_hangs_costs_its_episode_alone() {
    let (place, mut watch) = (place(), Watch::default());
    // Task 1 exists in training and among what is measured.
    go(&plan("updates = 2\nrun.patience = 0.05\nenvironment.doors = { hangs = 1 }\n"), &place, &mut watch).unwrap();
    assert!(watch.warnings.iter().any(|w| w.contains("a step took longer than 0.05 s")), "{:?}", watch.warnings);
    let lines = folder::metrics(&place.run).unwrap();
    let failed = lines[0].metrics.get("rollout/failed_rate").unwrap();
    assert!(failed > 0.0 && failed < 1.0, "{failed}");
    let measured = folder::evaluations(&place.run).unwrap();
    let broke = |line: &&EvaluationLine| line.episodes.iter().all(|episode| episode.end == "failed");
    let tasks: BTreeSet<u32> = measured.iter().filter(broke).map(|line| line.task).collect();
    assert_eq!(tasks, BTreeSet::from([1]));
}

#[test]
fn an_experts_actions_have_no_ratios_unless_recomputed() {
    let text = "updates = 1\nrollout.together = { expert = true }\nobjective.ratio = {}\n";
    let e = go(&plan(text), &place(), &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains("have none (an expert's actions have no behaviour log-probability)"), "{e}");
    let (place, _) = whole(&format!("{text}update = {{ learning_rate = 0.5, old = \"recomputed\" }}\n"));
    let line = &folder::metrics(&place.run).unwrap()[0];
    assert_eq!(line.metrics.get("actor/ratio"), Some(1.0));
    assert_eq!(line.metrics.get("rollout/given_rate"), Some(1.0));
    assert_eq!(line.metrics.get("rollout/logprob_mismatch/mean"), None);
}

#[test]
fn recomputed_ratios_start_at_one_and_stay_fixed_within_the_update() {
    let (place, _) = whole(
        "updates = 1\nobjective.ratio = {}\nupdate = { learning_rate = 0.5, old = \"recomputed\", epochs = 3, minibatches = 2 }\n",
    );
    let line = &folder::metrics(&place.run).unwrap()[0];
    assert_eq!(line.metrics.get("actor/steps"), Some(6.0));
    // the first step sees 1, the later ones do not
    assert!(line.metrics.get("actor/ratio").unwrap() != 1.0);
    assert!(line.metrics.get("rollout/logprob_mismatch/mean").is_some());
}

#[test]
fn a_budget_ends_the_run_and_more_of_it_goes_on() {
    let place = place();
    let budget = |n: u64| plan(&format!("updates = 8\nbudget = {{ env_steps = {n} }}\n"));
    // 4 tasks of 4 members, 2 turns each: 32, then 40 steps
    assert_eq!(go(&budget(70), &place, &mut Watch::default()).unwrap().result.update, 2);
    assert_eq!(go(&budget(70), &place, &mut Watch::default()).unwrap().ended, Ended::AlreadyFinished);
    assert_eq!(go(&budget(73), &place, &mut Watch::default()).unwrap().result.update, 3);
    assert_eq!(go(&plan("updates = 8\n"), &place, &mut Watch::default()).unwrap().result.update, 8);
    same(&whole("updates = 8\n").0, &place);
}

#[test]
fn a_run_whose_episodes_all_break_does_not_end_well() {
    let place = place();
    let e =
        go(&plan("environment.doors = { nan = true }\nnon_finite = \"exclude\"\n"), &place, &mut Watch::default()).unwrap_err();
    assert_eq!(e.exit_code(), 1);
    let text = e.to_string();
    assert!(text.starts_with("alarm `all-failed` after update 1: 100 % of the episodes broke"), "{text}");
    assert!(text.contains("; the first on task `") && text.contains("Try: mend what the reason names"), "{text}");
    assert_eq!(folder::metrics(&place.run).unwrap().len(), 1);
}

#[test]
fn a_split_is_measured_once() {
    let e =
        go(&plan("updates = 1\nevaluate = { splits = [\"test\", \"test\"] }\n"), &place(), &mut Watch::default()).unwrap_err();
    assert_eq!(e.exit_code(), 2, "{e}");
    assert!(e.to_string().contains("`evaluate.splits` names `test` twice: a split is measured once"), "{e}");
}

#[test]
fn an_alarm_may_stop_the_run_after_a_checkpoint() {
    let place = place();
    let stop = "updates = 9\ncheckpoint = { every = 5 }\nalarm.malformed = { at = 0.0, action = \"stop\" }\n";
    let mut watch = Watch::default();
    let e = go(&plan(stop), &place, &mut watch).unwrap_err();
    assert!(e.to_string().starts_with("alarm `malformed` after update 1: "), "{e}");
    assert!(e.to_string().contains("Try: clone an expert for longer"), "{e}");
    assert_eq!(folder::metrics(&place.run).unwrap()[0].metrics.get("alarm/malformed"), Some(1.0));
    let (newest, _) = checkpoint::newest(&place.run, &place.run.join(name::CHECKPOINTS), &[name::METRICS, name::EVALUATIONS]);
    assert_eq!(newest.unwrap().update, 1);
    // alarms are said once a phase
    let warn = "updates = 3\nalarm.malformed = { at = 0.0 }\n";
    let mut watch = Watch::default();
    go(&plan(warn), &self::place(), &mut watch).unwrap();
    assert_eq!(watch.warnings.iter().filter(|w| w.starts_with("malformed")).count(), 1);
}

#[test]
fn two_processes_do_not_share_a_folder() {
    let place = place();
    let held = RunFolder::open(&Disk::default(), &place.run).unwrap();
    let e = go(&plan(""), &place, &mut Watch::default()).unwrap_err();
    assert!(e.to_string().contains(&format!("in use by process {}", std::process::id())), "{e}");
    assert_eq!(e.exit_code(), 1);
    drop(held);
}

#[test]
fn a_run_that_is_not_there_cannot_be_resumed() {
    let place = place();
    let watch = Watch::default();
    let options = Options { resume: true, ..options(&place, &watch) };
    let e = run(&plan(""), &options, &mut ()).unwrap_err();
    assert!(e.to_string().contains("is not a run's folder"), "{e}");
    assert!(!place.run.exists());
}

#[test]
fn measuring_again_gives_the_same_and_touches_nothing() {
    let (place, report) = whole("updates = 6\nevaluate = { samples = 3 }\n");
    let before = fruits(&place);
    let plan = plan("updates = 6\nevaluate = { samples = 3 }\n");
    let (evaluation, lines) = measure(&plan, &place.run, &MeasureOptions::default(), &mut ()).unwrap().unwrap();
    assert_eq!(evaluation.results, report.result.evaluations[0].results);
    let recorded: Vec<EvaluationLine> = read_lines(&place.run.join(name::EVALUATIONS)).unwrap();
    assert_eq!(lines, recorded);
    let path = save_measured(&Disk::default(), &place.run, &evaluation, &lines).unwrap();
    assert!(path.ends_with("eval/000006-test.jsonl"));
    assert_eq!(read_lines::<EvaluationLine>(&path).unwrap(), lines);
    assert_eq!(fruits(&place), before);

    let of = |options: MeasureOptions| measure(&plan, &place.run, &options, &mut ()).unwrap().unwrap().0;
    let train = of(MeasureOptions { splits: vec!["train".into()], update: Some(4), ..MeasureOptions::default() });
    assert_eq!((train.update, train.results[0].summary.tasks), (4, 6));
    let some = of(MeasureOptions {
        tasks: Some(ascribe_core::range::Count(2)),
        samples: Some(ascribe_core::range::Between::try_from(0).unwrap()),
        ..MeasureOptions::default()
    });
    assert_eq!((some.results.len(), some.results[0].summary.tasks), (1, 2));
    let options = MeasureOptions { update: Some(5), ..MeasureOptions::default() };
    let e = measure(&plan, &place.run, &options, &mut ()).unwrap_err();
    assert!(e.to_string().contains("has no usable checkpoint of update 5"), "{e}");
    assert!(e.to_string().contains("there are: 6, 4"), "{e}");
}

#[test]
fn a_run_without_updates_measures_its_policy() {
    let (place, report) = whole("updates = 0\n");
    assert_eq!(report.result.evaluations.len(), 1);
    assert_eq!(go(&plan("updates = 0\n"), &place, &mut Watch::default()).unwrap().ended, Ended::AlreadyFinished);
    assert_eq!(go(&plan("updates = 1\n"), &place, &mut Watch::default()).unwrap().result.update, 1);
}

/// Not a test of its own: the process that `a_full_disk_ends_the_run_and_a_little_space_goes_on` limits.
#[test]
fn child_on_a_full_disk() {
    let Some(folder) = std::env::var_os("ASCRIBE_TEST_FOLDER") else { return };
    let options = Options { folder: Some(folder.into()), ..Options::default() };
    match run(&plan(FULL), &options, &mut ()) {
        Ok(_) => std::process::exit(0),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(e.exit_code().into());
        }
    }
}

const FULL: &str = "updates = 30\nrun = { trajectories = 0 }\nevaluate = { samples = 0 }\n";

#[cfg(unix)]
#[test]
fn a_full_disk_ends_the_run_and_a_little_space_goes_on() {
    let reference = whole(FULL).0;
    let place = place();
    let child = |limit: &str| {
        // No file may grow beyond the limit; with its signal ignored the write fails as on a full disk.
        let script = format!("trap '' XFSZ; {limit} exec \"$0\" --exact child_on_a_full_disk --nocapture");
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).env("ASCRIBE_TEST_FOLDER", &place.run);
        command.output().unwrap()
    };
    let full = child("ulimit -f 40;");
    let said = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.contains("File too large") && said.contains("free some space"), "{said}");
    let (newest, damaged) =
        checkpoint::newest(&place.run, &place.run.join(name::CHECKPOINTS), &[name::METRICS, name::EVALUATIONS]);
    assert!(damaged.is_empty() && newest.is_some_and(|c| c.update > 0));
    let done = child("");
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    same(&reference, &place);
}
