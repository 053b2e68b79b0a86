//! Grids: what is planned, what is refused, and what results are read from the runs of their cells.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ascribe_config::Request;
use ascribe_run::{Event, Options, Progress, run};
use ascribe_study::Axis;
use ascribe_study::grid::{Cell, Clock, GridError, GridFolder, Plan, Results, State, chosen, load_cell};

// A crate that is linked but never named is dropped by the linker.
use {
    ascribe_critics as _, ascribe_environments as _, ascribe_estimators as _, ascribe_objectives as _, ascribe_policies as _,
    ascribe_rollouts as _, ascribe_transforms as _,
};

const BASE: &str = r#"
question = "Which estimator repairs more?"
environment.repair-mdp = { horizon = 6, step_cost = 0.05 }
objective = "reinforce"
estimator = "grpo"
updates = 3
policy.actor.tabular = {}
rollout.independent = { groups = 4, group_size = 4, decode = "admissible" }
update.learning_rate = 0.1
evaluate = { splits = ["train"], samples = 2, every = 1 }
budget.tokens = 1_000_000
"#;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }
    fn file(&self, grid: &str) -> PathBuf {
        let file = self.folder.path().join("study.toml");
        let runs = self.folder.path().join("runs");
        std::fs::write(&file, format!("{BASE}\nrun.dir = {:?}\n{grid}", runs.to_str().unwrap())).unwrap();
        file
    }
    fn plan(&self, grid: &str) -> Result<Plan, GridError> {
        Plan::read(Request::new(self.file(grid)))
    }
    fn refused(&self, grid: &str) -> String {
        match self.plan(grid).unwrap_err() {
            GridError::Rejected(report) | GridError::Arm { report, .. } => report.to_string(),
            other => other.to_string(),
        }
    }
}

struct Quiet;
impl Progress for Quiet {
    fn on(&mut self, _: Event<'_>) {}
}

/// Runs a cell as its process would.
fn play(file: &Path, folder: &GridFolder, cell: &Cell) {
    let loaded = load_cell(&Request::new(file), cell).unwrap();
    let options = Options { folder: Some(folder.run(cell)), ..Options::default() };
    run(&loaded.plan, &options, &mut Quiet).unwrap();
}

const ARMS: &str = r#"
[grid]
seeds = 2
baseline = "grpo"
controls = { shuffle = ["rloo"] }
[grid.arm.grpo]
[grid.arm.rloo]
estimator = "rloo"
[grid.arm.gae]
estimator.gae = { gamma = 1.0, lambda = 0.9 }
critic.value.tabular = {}
"#;

#[test]
fn arms_controls_and_seeds_are_crossed() {
    let place = Place::new();
    let plan = place.plan(ARMS).unwrap();
    let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["grpo", "rloo", "rloo + shuffle", "gae"]);
    assert_eq!(plan.n_cells(), (0, 8));
    assert_eq!(plan.arms.iter().map(|arm| arm.plugin("estimator")).collect::<Vec<_>>(), ["grpo", "rloo", "rloo", "gae"]);
    let cells = plan.reported(&BTreeMap::new()).unwrap();
    let pairs: BTreeSet<(&str, u64)> = cells.iter().map(|cell| (cell.arm.as_str(), cell.seed)).collect();
    assert_eq!((cells.len(), pairs.len()), (8, 8));
    let folders: BTreeSet<PathBuf> = cells.iter().map(Cell::run).collect();
    let ids: BTreeSet<&str> = cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!((folders.len(), ids.len()), (8, 8));
    // The same words give the same cells, and another setting gives others.
    assert_eq!(place.plan(ARMS).unwrap().reported(&BTreeMap::new()).unwrap(), cells);
    let request = Request::new(place.file(ARMS)).assignments(["update.learning_rate=0.2"]);
    let others = Plan::read(request).unwrap().reported(&BTreeMap::new()).unwrap();
    assert!(others.iter().zip(&cells).all(|(a, b)| a.id != b.id && a.arm == b.arm));
    let longer = Request::new(place.file(ARMS)).assignments(["budget.tokens=2M"]);
    assert!(Plan::read(longer).unwrap().reported(&BTreeMap::new()).unwrap().iter().all(|cell| !ids.contains(cell.id.as_str())));
    // What never changes a result changes no cell.
    let threads = Request::new(place.file(ARMS)).assignments(["run.threads=2"]);
    assert_eq!(Plan::read(threads).unwrap().reported(&BTreeMap::new()).unwrap(), cells);
    // The control has the transform at its end, and is otherwise the arm.
    let differs = plan.differs(&plan.arms[2], &plan.arms[1]);
    assert!(differs.iter().all(|(key, ..)| key.starts_with("transform")), "{differs:?}");
}

#[test]
fn axes_multiply_and_excluded_pairs_are_left_out() {
    let place = Place::new();
    let grid = r#"
        [grid]
        seeds = [3, 5]
        exclude = [{ arm = "b", "update.learning_rate" = 0.01 }]
        [grid.arm]
        a = {}
        b = { estimator = "rloo" }
        [grid.axis]
        "update.learning_rate" = [0.1, 0.01]
        "rollout.independent.groups" = [2, 3]
    "#;
    let plan = place.plan(grid).unwrap();
    assert_eq!(plan.n_cells(), (0, 12));
    let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names[0], "a, update.learning_rate=0.1, rollout.independent.groups=2");
    assert!(!names.iter().any(|name| name.starts_with("b, update.learning_rate=0.01")));
    assert_eq!(plan.baseline().name, names[0]);
    let seeds: BTreeSet<u64> = plan.reported(&BTreeMap::new()).unwrap().iter().map(|cell| cell.seed).collect();
    assert_eq!(seeds, BTreeSet::from([3, 5]));
    // Without arms there is one.
    assert_eq!(place.plan("[grid]\nseeds = 1").unwrap().arms[0].name, "main");
    // What an axis sets is what is compared.
    assert!(plan.arms.iter().all(|arm| plan.confounds(arm, plan.baseline()).is_empty()));
}

#[test]
fn a_baseline_that_is_partly_excluded_moves_and_says_so() {
    let place = Place::new();
    let grid = "[grid]\nseeds = 1\nexclude = [{ arm = \"a\", \"update.learning_rate\" = 0.1 }]\n[grid.arm]\na = {}\n\
        b = { estimator = \"rloo\" }\n[grid.axis]\n\"update.learning_rate\" = [0.1, 0.01]";
    let plan = place.plan(grid).unwrap();
    assert_eq!(plan.baseline_left_out.as_deref(), Some("a, update.learning_rate=0.1"));
    assert_eq!(plan.baseline().name, "a, update.learning_rate=0.01");
    assert_eq!(place.plan(&grid.replace("arm = \"a\"", "arm = \"b\"")).unwrap().baseline_left_out, None);
}

#[test]
fn arms_are_changed_and_added_on_the_command_line() {
    let place = Place::new();
    let with = |settings: &[&str]| Plan::read(Request::new(place.file(ARMS)).assignments(settings.iter().copied()));
    let plan = with(&["grid.arm.new.estimator=opo", "grid.arm.rloo.update.learning_rate=0.3", "update.epochs=2"]).unwrap();
    let arm = |name: &str| plan.arms.iter().find(|arm| arm.name == name).unwrap();
    assert_eq!(arm("new").plugin("estimator"), "opo");
    let rate = plan.differs(arm("rloo"), plan.baseline()).into_iter().find(|(key, ..)| key.ends_with("learning_rate"));
    let (_, before, now) = rate.unwrap();
    assert_eq!((before.as_deref(), now.as_deref()), (Some("0.1"), Some("0.3")));
    // A cell of it is what its process loads.
    let request = Request::new(place.file(ARMS)).assignments(["grid.arm.new.estimator=opo"]);
    let cells = Plan::read(request.clone()).unwrap().reported(&BTreeMap::new()).unwrap();
    load_cell(&request, cells.iter().find(|cell| cell.arm == "new").unwrap()).unwrap();
    match with(&["grid.arm.new.estimator=nobody"]).unwrap_err() {
        GridError::Arm { arm, report } => {
            assert!(
                arm == "new" && report.to_string().contains("command line") && report.to_string().contains("nobody"),
                "{report}"
            );
        }
        other => panic!("{other}"),
    }
}

/// What the grid sets and an arm refuses is shown where the grid says it, under the arm's whole name.
#[test]
fn values_that_an_arm_refuses_are_shown_in_the_grid() {
    let place = Place::new();
    for (grid, name) in [
        ("[grid]\nseeds = 1\n[grid.axis]\n\"update.learning_rate\" = [0.1, -1.0]", "main, update.learning_rate=-1.0"),
        ("[grid]\nseeds = 1\n[grid.tune]\n\"update.learning_rate\" = [0.1, -1.0]", "main, update.learning_rate=-1.0"),
        ("[grid]\nseeds = 1\ncontrols.clip = [\"main\"]", "main + clip"),
    ] {
        match place.plan(grid).unwrap_err() {
            GridError::Arm { arm, report } => {
                let text = report.to_string();
                assert_eq!(arm, name, "{text}");
                assert!(text.contains("study.toml:") && !text.contains("command line"), "{text}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn an_axis_sweeps_the_arms_that_have_its_plugin() {
    let place = Place::new();
    let plan = place.plan(&format!("{ARMS}\n[grid.axis]\n\"estimator.gae.lambda\" = [0.5, 0.9]")).unwrap();
    let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["grpo", "rloo", "rloo + shuffle", "gae, estimator.gae.lambda=0.5", "gae, estimator.gae.lambda=0.9"]);
    assert_eq!(plan.baseline().name, "grpo");
}

#[test]
fn what_differs_beside_the_method_is_told() {
    let place = Place::new();
    let grid = r#"
        [grid]
        seeds = 1
        controls = { shuffle = ["rloo"] }
        tune = { "update.learning_rate" = [0.1, 0.2] }
        [grid.arm]
        grpo = {}
        rloo = { estimator = "rloo" }
        critic = { estimator.gae = { gamma = 1.0, lambda = 0.9 }, critic.value.tabular = {} }
        more = { estimator = "rloo", rollout.independent.group_size = 9, transform = ["whiten"], reward.env = 3.0 }
    "#;
    let plan = place.plan(grid).unwrap();
    let of = |name: &str| {
        let arm = plan.arms.iter().find(|arm| arm.name == name).unwrap();
        plan.confounds(arm, plan.baseline())
    };
    for method in ["rloo", "rloo + shuffle", "critic"] {
        assert_eq!(of(method), Vec::<String>::new(), "{method}");
    }
    let more = of("more").join(" ");
    for key in ["rollout.independent.group_size", "transform", "reward"] {
        assert!(more.contains(key), "{key} in {more}");
    }
}

#[test]
fn cells_that_another_process_works_on_stay_in_the_list() {
    let place = Place::new();
    let plan = place.plan(&format!("{ARMS}\n[grid.tune]\n\"update.learning_rate\" = [0.1, 0.2]")).unwrap();
    let folder = GridFolder::at(&plan.folder);
    let (tuning, reported) = (plan.tuning().unwrap(), plan.reported(&BTreeMap::new()).unwrap());
    folder.plan(&[tuning.clone(), reported.clone()].concat()).unwrap();
    // Another process begins with tuning, which is over.
    folder.plan_tuning(&tuning).unwrap();
    let listed: BTreeSet<String> = folder.cells().unwrap().into_iter().map(|cell| cell.id).collect();
    assert!(tuning.iter().chain(&reported).all(|cell| listed.contains(&cell.id)));
    assert_eq!(listed.len(), tuning.len() + reported.len());
}

#[test]
fn runs_of_an_older_experiment_count_as_seen() {
    let place = Place::new();
    let plan = place.plan(ARMS).unwrap();
    let folder = GridFolder::at(&plan.folder);
    assert_eq!(folder.measured(), 0);
    let cells = plan.reported(&BTreeMap::new()).unwrap();
    play(&place.file(ARMS), &folder, &cells[0]);
    // The cells of today are others; what was measured was measured.
    folder.plan(&cells[1..]).unwrap();
    assert_eq!(folder.measured(), 1);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let place = Place::new();
    let wrong = [
        ("[grid]\nseeds = 0", "at least one seed"),
        ("[grid]\nseeds = [1, 1]", "seed 1 stands there twice"),
        ("[grid]\nseeds = \"many\"", "expected a number of seeds, or a list of seeds"),
        ("[grid]\nseeds = -1", "must not be negative, got -1"),
        ("[grid]\nseeds = 1\nrepeats = 2", "unknown field `repeats`"),
        ("[grid]\nseeds = 1\nbaseline = \"x\"", "there is no arm `x`; arms here: main"),
        ("[grid]\nseeds = 1\narm.a = 3", "an arm is a table"),
        ("[grid]\nseeds = 1\narm.a.estimator = \"nobody\"", "nobody"),
        ("[grid]\nseeds = 1\ncontrols.shuffle = [\"x\"]", "there is no arm `x`"),
        ("[grid]\nseeds = 1\ncontrols.nobody = [\"main\"]", "there is no transform of that name"),
        ("[grid]\nseeds = 1\naxis = { \"update.learning_rate\" = 3 }", "a list of values is needed"),
        ("[grid]\nseeds = 1\naxis = { update.learning_rate = [1.0] }", "quote a key with dots"),
        ("[grid]\nseeds = 1\naxis = { \"estimator.gae.lambda\" = [0.9] }", "no arm has `estimator.gae`"),
        (
            "[grid]\nseeds = 1\naxis = { \"update.learning_rate\" = [0.1, 0.3] }\ntune = { \"update.learning_rate\" = [0.1, 0.2] }",
            "sets what is tuned",
        ),
        ("[grid]\nseeds = 1\n[grid.arm.\"\"]\nestimator = \"rloo\"", "needs a name"),
        (
            "[grid]\nseeds = 1\ncontrols.random = [\"a\"]\n[grid.arm.a]\n[grid.arm.\"a + random\"]\nestimator = \"rloo\"",
            "two arms are called",
        ),
        ("[grid]\nseeds = 1\ntune = { \"update.learning_rate\" = [0.1, 0.1] }", "are the same experiment for arm `main`"),
        ("[grid]\nseeds = 1\naxis = { \"rollout.independent.grups\" = [2] }", "grups"),
        ("[grid]\nseeds = 1\nexclude = [{ arm = \"x\" }]", "excludes nothing"),
        ("[grid]\nseeds = 1\nexclude = [{ arm = \"main\" }]", "every arm is excluded"),
        ("[grid]\nseeds = 1\nexclude = [{}]", "an empty table excludes nothing"),
        (
            "[grid]\nseeds = 1\nexclude = [{ arm = \"a\" }]\n[grid.arm]\na = {}\nb = { estimator = \"rloo\" }",
            "nothing is left of `a`, which the others are compared with",
        ),
        ("[grid]\nseeds = 9_000_000_000_000_000_000", "at most 100000 cells fit a grid"),
        ("[grid]\nseeds = 60_000\n[grid.arm]\na = {}\nb = { estimator = \"rloo\" }", "at most 100000 fit"),
        ("[grid]\nseeds = 1\n[grid.arm]\na = {}\nb = {}", "`a` and `b` are the same experiment"),
    ];
    for (grid, says) in wrong {
        let told = place.refused(grid);
        assert!(told.contains(says), "{grid}\n{told}");
        assert!(told.contains("study.toml:") || told.contains("command line"), "{grid}\n{told}");
    }
    assert!(place.refused("").contains("the experiment has no [grid]"));
}

#[test]
fn a_score_that_nothing_measures_is_told_before_anything_runs() {
    let place = Place::new();
    let told = |grid: &str| match place.plan(grid).unwrap().check_score(place.folder.path()) {
        Ok(()) => String::new(),
        Err(GridError::Rejected(report)) => report.to_string(),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(told(ARMS), "");
    for (grid, says) in [
        ("[grid]\nseeds = 1\nscore.split = \"held_out\"", "nothing is measured on `held_out`, but on `train`"),
        ("[grid]\nseeds = 1\nscore.mode = \"sampled\"\n[grid.arm.a]\nevaluate.samples = 0", "no actions are sampled"),
        (
            "[grid]\nseeds = 1\n[grid.arm.a]\n[grid.arm.b]\nevaluate.splits = [\"tran\"]",
            "arm `b` does not measure its score: `evaluate.splits` names `tran`",
        ),
        (
            "[grid]\nseeds = 1\n[grid.arm.a]\nevaluate.splits = []",
            "nothing is measured: the environment has no split but `train`",
        ),
        (
            "[grid]\nseeds = 1\n[grid.arm.a]\nenvironment = \"bugfix\"\nrollout.independent.decode = \"free\"\nevaluate.splits = [\"train\", \"held_out\"]",
            "several splits are measured",
        ),
    ] {
        let text = told(grid);
        assert!(text.contains(says) && text.contains("study.toml:"), "{grid}\n{text}");
    }
}

#[test]
fn names_of_arms_are_safe_as_folders() {
    let place = Place::new();
    let grid = "[grid]\nseeds = 1\n[grid.arm.\"a/b ü\"]\n[grid.arm.\"a_b ü\"]\nestimator = \"rloo\"\n[grid.arm.\"..\"]\nestimator = \"opo\"";
    let cells = place.plan(grid).unwrap().reported(&BTreeMap::new()).unwrap();
    for cell in &cells {
        let run = cell.run();
        let parts: Vec<_> = run.components().collect();
        assert!(parts.len() == 3 && parts.iter().all(|part| matches!(part, std::path::Component::Normal(_))), "{run:?}");
    }
    assert_eq!(cells.iter().map(Cell::run).collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn results_are_read_from_the_runs_of_cells() {
    let place = Place::new();
    let plan = place.plan(ARMS).unwrap();
    let folder = GridFolder::at(&plan.folder);
    let cells = plan.reported(&BTreeMap::new()).unwrap();
    let file = place.file(ARMS);
    assert!(Results::read(&plan, &folder, &cells).unwrap_err().to_string().contains("no run is done yet"));
    let (last, done) = cells.split_last().unwrap();
    done.iter().for_each(|cell| play(&file, &folder, cell));
    let results = Results::read(&plan, &folder, &cells).unwrap();
    assert_eq!((results.missing, results.measured.0.as_str()), (1, "train"));
    folder.failed(last, "it was made to").unwrap();
    assert_eq!(folder.state(last).unwrap(), State::Failed(ascribe_study::grid::Failure { reason: "it was made to".into() }));
    let results = Results::read(&plan, &folder, &cells).unwrap();
    assert_eq!(results.missing, 0);
    let arm = results.table.arm(&last.arm).unwrap();
    assert_eq!((arm.failures.len(), arm.failures[0].reason.as_str(), arm.seeds.len()), (1, "it was made to", 1));
    assert_eq!(
        results.table.arms().iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>(),
        ["grpo", "rloo", "rloo + shuffle", "gae"]
    );
    assert!(results.spent.iter().all(|(_, spent)| spent.runs > 0 && spent.mean["tokens"] > 0.0 && spent.updates == 3.0));
    // By hand: the last evaluation's sampled success, mean over tasks and seeds.
    let mean = |cell: &Cell| {
        let lines = ascribe_run::folder::evaluations(&folder.run(cell)).unwrap();
        let update = lines.iter().map(|line| line.update).max().unwrap();
        let of: Vec<f64> = lines
            .iter()
            .filter(|line| line.update == update && line.mode == ascribe_run::evaluate::Mode::Sampled)
            .map(|line| line.episodes.iter().filter(|e| e.success).count() as f64 / line.episodes.len() as f64)
            .collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    for cell in done {
        let arm = results.table.arm(&cell.arm).unwrap();
        let row = arm.seeds.iter().position(|seed| *seed == cell.seed).unwrap();
        let scores = arm.scores.as_ref().unwrap().runs().nth(row).unwrap().to_vec();
        assert!((scores.iter().sum::<f64>() / scores.len() as f64 - mean(cell)).abs() < 1e-12);
    }
    // A run whose ledger was cleared away is not one that spent nothing.
    std::fs::write(folder.run(&done[0]).join("metrics.jsonl"), "").unwrap();
    let results = Results::read(&plan, &folder, &cells).unwrap();
    let failures = &results.table.arm(&done[0].arm).unwrap().failures;
    assert!(failures[0].reason.contains("end at update 0, and it at 3"), "{}", failures[0].reason);
}

#[test]
fn clocks_are_read_apart_from_results() {
    let place = Place::new();
    let plan = place.plan(ARMS).unwrap();
    let folder = GridFolder::at(&plan.folder);
    let cells = plan.reported(&BTreeMap::new()).unwrap();
    let file = place.file(ARMS);
    cells.iter().for_each(|cell| play(&file, &folder, cell));
    let results = Results::read(&plan, &folder, &cells).unwrap();
    let clock = Clock::read(&plan, &folder, &cells, &results).unwrap();
    assert!(clock.arms.iter().all(|(_, arm)| arm.runs == 2 && arm.seconds > 0.0 && arm.tuning_seconds == 0.0));
    assert_eq!(clock.machines.iter().map(|machine| machine.starts).sum::<usize>(), 8);
    assert!(clock.machines.iter().all(|machine| machine.first <= machine.last && machine.last.ends_with('Z')));
    assert!(clock.gaps.is_empty(), "{:?}", clock.gaps);
    // By hand: a clock in which every update took its number of seconds, so that the last of three ends at 6.
    for cell in &cells {
        let path = folder.run(cell).join("timing.jsonl");
        let mut lines = ascribe_run::folder::timing(&folder.run(cell)).unwrap();
        lines.iter_mut().for_each(|line| line.seconds = f64::from(line.update));
        let text: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
        std::fs::write(path, text.concat()).unwrap();
    }
    let clock = Clock::read(&plan, &folder, &cells, &results).unwrap();
    let (_, updates) = results.curves.shared_span(Axis::Updates).unwrap().unwrap();
    let (_, to) = clock.curves.shared_span(Axis::Seconds).unwrap().unwrap();
    assert_eq!((updates, to), (3.0, 6.0));
    assert_eq!(clock.curves.at(Axis::Seconds, 5.9).unwrap(), results.curves.at(Axis::Updates, 2.0).unwrap());
    // A clock with a gap is said to have one, and results do not ask it.
    std::fs::write(folder.run(&cells[0]).join("timing.jsonl"), "").unwrap();
    let again = Results::read(&plan, &folder, &cells).unwrap();
    assert_eq!(again.table, results.table);
    let clock = Clock::read(&plan, &folder, &cells, &again).unwrap();
    let table = clock.curves.at(Axis::Seconds, 6.0).unwrap();
    let failures = &table.arm(&cells[0].arm).unwrap().failures;
    assert_eq!((failures.len(), failures[0].seed), (1, cells[0].seed));
    assert!(failures[0].reason.contains("its clock ends before update"), "{}", failures[0].reason);
    assert_eq!(clock.gaps.iter().map(|(arm, seed, _)| (arm, *seed)).collect::<Vec<_>>(), [(&cells[0].arm, cells[0].seed)]);
}

#[test]
fn a_run_whose_score_is_no_number_has_failed() {
    let place = Place::new();
    let grid = ARMS.replace("seeds = 2", "seeds = 2\nscore.of = \"return\"");
    let plan = place.plan(&grid).unwrap();
    let folder = GridFolder::at(&plan.folder);
    let cells = plan.reported(&BTreeMap::new()).unwrap();
    let file = place.file(&grid);
    cells.iter().for_each(|cell| play(&file, &folder, cell));
    let evaluations = folder.run(&cells[0]).join("evaluations.jsonl");
    let text = std::fs::read_to_string(&evaluations).unwrap();
    // Finite numbers whose mean is beyond what can be written, and a number that is none.
    for broken in ["1.7e308", "null"] {
        let mut parts = text.split("\"return\":");
        let mut lines = parts.next().unwrap().to_string();
        for part in parts {
            lines += &format!("\"return\":{broken}{}", &part[part.find([',', '}']).unwrap()..]);
        }
        std::fs::write(&evaluations, lines).unwrap();
        let results = Results::read(&plan, &folder, &cells).unwrap();
        let arm = results.table.arm(&cells[0].arm).unwrap();
        assert_eq!((arm.failures.len(), arm.failures[0].seed, arm.seeds.len()), (1, cells[0].seed, 1), "{broken}");
        assert_eq!(results.spent[0].1.runs, 1);
    }
}

#[test]
fn an_arm_chooses_by_its_tuning_runs_and_its_control_takes_the_choice_over() {
    let place = Place::new();
    let grid = r#"
        [grid]
        seeds = 1
        tune = { "update.learning_rate" = [1e-9, 0.5] }
        tune_seeds = 2
        controls = { random = ["grpo"] }
        [grid.arm.grpo]
        [grid.arm.rloo]
        estimator = "rloo"
    "#;
    let plan = place.plan(grid).unwrap();
    assert_eq!(plan.n_cells(), (8, 3));
    let folder = GridFolder::at(&plan.folder);
    let tuning = plan.tuning().unwrap();
    assert!(tuning.iter().all(|cell| cell.seed >= 1_000_000 && cell.tries.is_some()));
    assert_eq!(chosen(&plan, &folder, &tuning).unwrap(), None);
    let file = place.file(grid);
    tuning.iter().for_each(|cell| play(&file, &folder, cell));
    let choice = chosen(&plan, &folder, &tuning).unwrap().unwrap();
    for (arm, of) in &choice {
        assert_eq!(of.tried.len(), 2, "{arm}");
        let best = of.tried[of.best].1;
        assert!(of.tried.iter().all(|(_, score)| *score <= best));
    }
    let settings: BTreeMap<String, Vec<String>> = choice.iter().map(|(arm, of)| (arm.clone(), of.settings().to_vec())).collect();
    let cells = plan.reported(&settings).unwrap();
    assert_eq!(cells.len(), 3);
    for cell in &cells {
        let by = cell.arm.strip_suffix(" + random").unwrap_or(&cell.arm);
        assert!(settings[by].iter().all(|setting| cell.settings.contains(setting)), "{cell:?}");
    }
    // What a run spent before it failed was spent.
    let (failed, tokens) =
        (&tuning[0], |run: &Path| ascribe_run::folder::metrics(run).unwrap().last().unwrap().metrics.get("cost/tokens"));
    cells.iter().for_each(|cell| play(&file, &folder, cell));
    let all: f64 = tuning.iter().filter(|cell| cell.arm == "grpo").map(|cell| tokens(&folder.run(cell)).unwrap()).sum();
    std::fs::remove_file(folder.run(failed).join("result.json")).unwrap();
    folder.failed(failed, "broken").unwrap();
    let results = Results::read(&plan, &folder, &[tuning.clone(), cells.clone()].concat()).unwrap();
    assert!(all > 0.0 && results.spent[0].1.tuning_tokens as f64 == all, "{all}, not {}", results.spent[0].1.tuning_tokens);
    // A tuning run that failed is out of the choice; with none left the first setting is taken, and the grid goes on.
    let again = Place::new();
    let plan = again.plan(grid).unwrap();
    let folder = GridFolder::at(&plan.folder);
    tuning.iter().for_each(|cell| folder.failed(cell, "broken").unwrap());
    let choice = chosen(&plan, &folder, &plan.tuning().unwrap()).unwrap().unwrap();
    assert!(choice.values().all(|of| of.best == 0 && of.tried.iter().all(|(_, score)| score.is_none())), "{choice:?}");
}

#[test]
fn a_prediction_is_recorded_before_the_first_cell_and_stays() {
    let place = Place::new();
    let plan = place.plan(ARMS).unwrap();
    let folder = GridFolder::at(&plan.folder);
    let prediction = place.folder.path().join("README.md");
    let file = place.file(ARMS);
    assert!(
        folder.record(&file, &[], Some(&prediction), 0).unwrap_err().to_string().contains("write it down before the first run")
    );
    std::fs::write(&prediction, "rloo wins").unwrap();
    let first = folder.record(&file, &[], Some(&prediction), 0).unwrap().prediction.unwrap();
    std::fs::write(&prediction, "grpo wins").unwrap();
    // Nothing was run yet: the prediction may be changed.
    let second = folder.record(&file, &[], Some(&prediction), 0).unwrap().prediction.unwrap();
    assert_ne!(first.sha256, second.sha256);
    std::fs::write(&prediction, "as it turned out, grpo wins").unwrap();
    let third = folder.record(&file, &[], Some(&prediction), 3).unwrap().prediction.unwrap();
    assert_eq!((third.sha256, third.cells_done), (second.sha256, 0));
}

#[test]
fn a_cell_whose_experiment_changed_is_refused() {
    let place = Place::new();
    let cells = place.plan(ARMS).unwrap().reported(&BTreeMap::new()).unwrap();
    let file = place.file(ARMS);
    load_cell(&Request::new(&file), &cells[0]).unwrap();
    let changed = std::fs::read_to_string(&file).unwrap().replace("learning_rate = 0.1", "learning_rate = 0.3");
    std::fs::write(&file, changed).unwrap();
    assert!(load_cell(&Request::new(&file), &cells[0]).unwrap_err().to_string().contains("another experiment by now"));
}
