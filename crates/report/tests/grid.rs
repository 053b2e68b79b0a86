//! The report of a grid: from cells that were run, failed or never begun to a page that says so.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ascribe_config::Request;
use ascribe_report::grid::{GridReport, PredictionFile};
use ascribe_run::{Event, Options, Progress, run};
use ascribe_study::grid::{Cell, GridFolder, Plan, chosen, load_cell};
use ascribe_study::{Axis, Verdict};

// A crate that is linked but never named is dropped by the linker.
use {
    ascribe_critics as _, ascribe_environments as _, ascribe_estimators as _, ascribe_objectives as _, ascribe_policies as _,
    ascribe_rollouts as _, ascribe_transforms as _,
};

const BASE: &str = r#"
question = "Which estimator <repairs> more?"
environment.repair-mdp = { horizon = 6, step_cost = 0.05 }
objective = "reinforce"
estimator = "grpo"
updates = 3
policy.actor.tabular = {}
rollout.independent = { groups = 4, group_size = 4, decode = "admissible" }
update.learning_rate = 0.1
evaluate = { splits = ["train"], samples = 2, every = 1 }
"#;

const ARMS: &str = r#"
[grid]
seeds = 3
baseline = "grpo"
controls = { shuffle = ["rloo"] }
[grid.arm.grpo]
[grid.arm.rloo]
estimator = "rloo"
[grid.arm."g&ae"]
estimator.gae = { gamma = 1.0, lambda = 0.9 }
critic.value.tabular = {}
update.learning_rate = 0.2
"#;

struct Place {
    folder: tempfile::TempDir,
    plan: Plan,
    grid: GridFolder,
    cells: Vec<Cell>,
    file: PathBuf,
}

struct Quiet;
impl Progress for Quiet {
    fn on(&mut self, _: Event<'_>) {}
}

impl Place {
    /// A grid whose cells are planned, tuning runs done.
    fn new(grid: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("study.toml");
        let runs = folder.path().join("runs");
        std::fs::write(&file, format!("{BASE}\nrun.dir = {:?}\n{grid}", runs.to_str().unwrap())).unwrap();
        let plan = Plan::read(Request::new(&file)).unwrap();
        let grid = GridFolder::at(&plan.folder);
        let mut place = Self { folder, plan, grid, cells: Vec::new(), file };
        let tuning = place.plan.tuning().unwrap();
        tuning.iter().for_each(|cell| place.play(cell));
        let choice = chosen(&place.plan, &place.grid, &tuning).unwrap().unwrap();
        let choice = choice.into_iter().map(|(arm, of)| (arm, of.settings().to_vec())).collect();
        place.cells = place.plan.reported(&choice).unwrap();
        place.grid.plan(&[tuning, place.cells.clone()].concat()).unwrap();
        place.record(None, 0);
        place
    }
    /// The same, with every cell done.
    fn done(grid: &str) -> Self {
        let place = Self::new(grid);
        place.cells.iter().for_each(|cell| place.play(cell));
        place
    }
    fn record(&self, prediction: Option<&Path>, cells_done: usize) {
        self.grid.record(&self.file, &[], prediction, cells_done).unwrap();
    }
    /// Runs a cell as its process would.
    fn play(&self, cell: &Cell) {
        let loaded = load_cell(&Request::new(&self.file), cell).unwrap();
        let options = Options { folder: Some(self.grid.run(cell)), ..Options::default() };
        run(&loaded.plan, &options, &mut Quiet).unwrap();
    }
    fn report(&self) -> GridReport<'_> {
        GridReport::read(&self.plan, &self.grid).unwrap()
    }
    fn page(&self) -> String {
        let page = self.report().page(Axis::AllTokens);
        check(&page);
        page
    }
}

/// The text of a section.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let from = page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no section `{id}`"));
    &page[from..from + page[from..].find("</section>").unwrap()]
}

/// The page without what a clock says.
fn without_clock(page: &str) -> String {
    let clock = section(page, "clock");
    let mut rest = page.replace(clock, "");
    while let Some(from) = rest.find("<time") {
        let to = from + rest[from..].find("</time>").unwrap();
        rest.replace_range(from..to, "");
    }
    rest
}

/// What holds for every page: elements are closed in order, names are given once and links lead to them, every picture and table has a
/// name, nothing is loaded from elsewhere, and no script runs.
fn check(page: &str) {
    const VOID: [&str; 3] = ["meta", "br", "hr"];
    let mut open: Vec<&str> = Vec::new();
    let (mut ids, mut links) = (Vec::new(), BTreeSet::new());
    let body = &page[page.find("<body>").unwrap()..];
    let mut at = page.find("<html").unwrap();
    while let Some(from) = page[at..].find('<').map(|i| at + i) {
        let to = from + page[from..].find('>').unwrap();
        let tag = &page[from + 1..to];
        at = to + 1;
        let name = tag.split([' ', '\n']).next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "…{}", &page[from.saturating_sub(200)..to + 1]);
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
            if name == "style" {
                at = from + page[from..].find("</style>").unwrap();
            }
        }
        let value = |of: &str| tag.split(&format!(" {of}=\"")).nth(1).map(|rest| rest.split('"').next().unwrap());
        ids.extend(value("id"));
        links.extend(value("href").and_then(|href| href.strip_prefix('#')));
        assert!(value("src").is_none() && value("onclick").is_none(), "{tag}");
        if name == "svg" {
            assert!(tag.contains("aria-hidden") || tag.contains("role=\"img\" aria-label=\""), "{tag}");
        }
        if name == "table" {
            assert!(page[at..].starts_with("<caption>"), "a table without a caption: …{}", &page[from..from + 200]);
        }
        if name == "th" {
            assert!(tag.contains("scope="), "{tag}");
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    assert!(links.iter().all(|link| unique.contains(link)), "{links:?} in {ids:?}");
    assert_eq!(page.matches("<h1").count(), 1);
    assert!(!page.contains("<script") && !body.replace("http://www.w3.org/2000/svg", "").contains("://"));
    assert!(!body.contains("NaN"), "a number that is none is shown");
}

#[test]
fn a_page_holds_every_arm_and_says_what_went_wrong() {
    let place = Place::new(ARMS);
    let (waiting, rest) = place.cells.split_last().unwrap();
    let (failed, done) = rest.split_last().unwrap();
    done.iter().for_each(|cell| place.play(cell));
    place.grid.failed(failed, "<script>alert(1)</script> & \"more\"").unwrap();
    let page = place.page();
    assert!(page.contains("Which estimator &lt;repairs&gt; more?"));
    for arm in &place.plan.arms {
        let name = arm.name.replace('&', "&amp;");
        for id in ["scores", "curves", "equal-budget", "profiles", "tasks", "arms", "ledger", "checklist", "clock"] {
            assert!(section(&page, id).contains(&name), "`{name}` in {id}");
        }
    }
    assert!(page.contains("1 of 12 cells failed") && page.contains("1 of 12 cells are not done"));
    let cells = section(&page, "cells");
    assert!(cells.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;more&quot;"), "{cells}");
    assert!(cells.contains(&waiting.arm.replace('&', "&amp;")) && cells.contains("waiting"));
    // Arms with two seeds have no band and no test, and are told how many they need.
    let verdicts = section(&page, "verdicts");
    assert!(verdicts.contains("better 5 or more"), "{verdicts}");
    assert!(section(&page, "curves").contains("No band: "));
    // The arm with another learning rate is marked as such, and the others are not.
    let arms = section(&page, "arms");
    assert_eq!(arms.matches("it also differs in update.learning_rate").count(), 1, "{arms}");
    assert!(arms.contains("<code>estimator.rloo"), "{arms}");
    // A control differs from its arm in the transform, and in nothing else.
    let control = &arms[arms.find("How rloo + shuffle differs from rloo").unwrap()..];
    let control = &control[..control.find("</table>").unwrap()];
    assert!(control.contains("transform.0") && control.contains("shuffle = {}") && !control.contains("estimator."), "{control}");
    assert!(section(&page, "checklist").contains("of rloo"));
}

#[test]
fn arms_that_fail_are_not_corrected_for_and_it_is_said() {
    let place = Place::new(ARMS);
    let of = |arm: &str| place.cells.iter().filter(|cell| cell.arm == arm).collect::<Vec<_>>();
    let broken = of("g&ae");
    place.cells.iter().filter(|cell| !broken.contains(cell)).for_each(|cell| place.play(cell));
    for cell in &broken[1..] {
        place.grid.failed(cell, "broken").unwrap();
    }
    let told = "Holm's, for 2 of 3 comparisons that were planned; not among them, and p-values would be larger with them: \
                g&amp;ae against grpo, for want of 3 pairs of seeds that finished in both";
    let page = place.page();
    for id in ["verdicts", "scores", "checklist"] {
        assert!(section(&page, id).contains(told), "{id}: {}", section(&page, id));
    }
    // Beside the table, with its p-values.
    let scores = section(&page, "scores");
    assert!(scores.find("p (Holm)").unwrap() < scores.find("Corrected p-values: Holm's, for 2 of 3").unwrap());
    let sheets = place.report().sheets();
    let markdown = sheets.iter().find(|of| of.name == "comparisons").unwrap().markdown();
    assert!(markdown.contains("Holm's, for 2 of 3 comparisons") && markdown.contains("g&amp;ae against grpo"), "{markdown}");
    // Its own control is a family of one, whatever becomes of the others.
    assert!(section(&page, "verdicts").contains("A family of its own: Holm's, for the 1 comparison."));
    // Words and numbers of intervals.
    let checklist = section(&page, "checklist");
    assert!(checklist.contains("percentiles of 50,000 draws") && checklist.contains("of 2,000 for probabilities of improvement"));
    assert!(scores.contains("P(improvement) with a bootstrap interval of 2,000 draws"), "{scores}");

    let page = Place::done(ARMS).page();
    assert!(section(&page, "scores").contains("Corrected p-values: Holm's, for all 3 comparisons."));
}

#[test]
fn nothing_is_hidden_in_a_report() {
    let text = "[grid]\nseeds = 3\n[grid.arm.\"a\u{202e}b\"]\n[grid.arm.\"../../x\"]\nestimator = \"rloo\"";
    let mut place = Place::new(text);
    let hostile = std::fs::read_to_string(&place.file).unwrap().replace("Which", "Which\u{2066}\\u001b[2J\\u0000");
    std::fs::write(&place.file, hostile).unwrap();
    place.plan = Plan::read(Request::new(&place.file)).unwrap();
    let (last, rest) = place.cells.split_last().unwrap();
    rest.iter().for_each(|cell| place.play(cell));
    place.grid.failed(last, "\u{7}broke\u{202e}\r\u{9b}2J").unwrap();
    let prediction = place.folder.path().join("prediction.md");
    std::fs::write(&prediction, "one\r\n\ttwo\u{202d}\n").unwrap();
    place.record(Some(&prediction), 0);
    let path = place.report().write(&place.grid, Axis::AllTokens).unwrap();
    let page = std::fs::read_to_string(&path).unwrap();
    check(&page);
    for seen in [
        "Which[U+2066][U+001B][2J[U+0000]",
        "a[U+202E]b",
        "[U+0007]broke[U+202E][U+000D][U+009B]2J",
        "<pre>one\n\ttwo[U+202D]\n</pre>",
    ] {
        assert!(page.contains(seen), "{seen}");
    }
    for file in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let file = file.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        if file.ends_with("scores.npz") {
            let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
            assert!(has(b"%2E.%2F..%2Fx.npy") && has(b"a%E2%80%AEb.npy") && !has(b"../"));
            continue;
        }
        let text = String::from_utf8(bytes).unwrap();
        let hidden = |c: char| c.is_control() && !['\n', '\t'].contains(&c) || ('\u{202a}'..='\u{2069}').contains(&c);
        // RFC 4180 ends lines with both.
        let text = text.replace("\r\n", "\n");
        assert!(!text.contains(hidden), "{}: {:?}", file.display(), text.matches(hidden).collect::<Vec<_>>());
    }
}

#[test]
fn a_grid_without_a_result_has_no_report() {
    let place = Place::new(ARMS);
    let told = || GridReport::read(&place.plan, &place.grid).unwrap_err().to_string();
    assert!(told().contains("no run is done yet"), "{}", told());
    place.cells.iter().for_each(|cell| place.grid.failed(cell, "broken").unwrap());
    assert!(told().contains("no run has a result; the first: broken"), "{}", told());
    assert!(!place.grid.path().join("report").exists());
}

#[test]
fn one_arm_and_one_seed_are_no_comparison() {
    let place = Place::done("[grid]\nseeds = 1");
    let page = place.page();
    assert!(section(&page, "verdicts").contains("There is nothing to compare: one arm has runs."));
    assert!(section(&page, "curves").contains("No band: main, fewer than 3 seeds."));
    assert!(!section(&page, "curves").contains("<polygon"), "a band of one seed");
    let checklist = section(&page, "checklist");
    assert!(checklist.contains("what each cell said begins with them: logs/"), "{checklist}");
    for blank in ["none: fewer than 3 seeds", "one arm: nothing to match", "no prediction was recorded", "not recorded"] {
        assert!(checklist.contains(&format!("<span class=\"blank\">{blank}</span>")), "{blank} in {checklist}");
    }
    let counted: usize = checklist.matches("<td><span class=\"blank\">").count();
    assert!(checklist.contains(&format!("<strong>{counted} are blank</strong>")), "{counted} in {checklist}");
}

#[test]
fn what_says_nothing_of_a_clock_is_the_same_for_the_same_grid() {
    let places = [Place::done(ARMS), Place::done(ARMS)];
    let [one, other] = places.each_ref().map(|place| {
        let report = place.report();
        let path = report.write(&place.grid, Axis::Updates).unwrap();
        assert_eq!(path, place.grid.path().join("report/index.html"));
        let files = std::fs::read_dir(path.parent().unwrap()).unwrap();
        let mut files: BTreeMap<String, Vec<u8>> = files
            .map(|file| file.unwrap().path())
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
            .collect();
        let page = String::from_utf8(files.remove("index.html").unwrap()).unwrap();
        check(&page);
        (page, files)
    });
    assert_eq!(without_clock(&one.0), without_clock(&other.0));
    assert_ne!(section(&one.0, "clock"), section(&other.0, "clock"));
    assert_eq!(one.1.keys().collect::<Vec<_>>(), other.1.keys().collect::<Vec<_>>());
    for (name, bytes) in &one.1 {
        assert!(name.contains("seconds") || bytes == &other.1[name], "{name} differs");
    }
    for name in ["scores.npz", "ledger.tex", "equal-budget.md", "curves-tokens.csv", "curves-seconds.csv", "profiles.csv"] {
        assert!(one.1.contains_key(name), "{name} in {:?}", one.1.keys());
        assert!(section(&one.0, "files").contains(&format!("href=\"{name}\"")), "{name} is not linked");
    }
    // A row for every evaluation.
    let curve = String::from_utf8(one.1["curves-updates.csv"].clone()).unwrap();
    let of_grpo: Vec<&str> = curve.lines().filter(|line| line.starts_with("grpo,")).collect();
    assert_eq!(of_grpo.len(), 3, "{curve}");
    assert!(of_grpo[0].starts_with("grpo,1,") && of_grpo[2].starts_with("grpo,3,"), "{curve}");
}

#[test]
fn the_chosen_budget_comes_first() {
    let place = Place::done("[grid]\nseeds = 3\n[grid.arm.grpo]\n[grid.arm.rloo]\nestimator = \"rloo\"");
    let report = place.report();
    for axis in Axis::ALL {
        let page = report.page(axis);
        check(&page);
        // Each axis has its figure and its table, once.
        for of in Axis::ALL {
            assert_eq!(page.matches(&format!("<strong>Scores along {}</strong>", of.name())).count(), 1, "{axis:?} {of:?}");
        }
        let shown = if axis == Axis::Seconds { Axis::AllTokens } else { axis };
        let curves = section(&page, "curves");
        let first = curves.find("<figure>").unwrap();
        assert!(
            curves[first..].find(&format!("Scores along {}", shown.name())).unwrap()
                < curves[first..].find("<details class=\"budget\"><summary>Along").unwrap()
        );
        let place_of = |id: &str| page.find(&format!("<section id=\"{id}\"")).unwrap();
        assert_eq!(place_of("clock") < place_of("curves"), axis == Axis::Seconds);
    }
}

#[test]
fn a_prediction_is_shown_with_what_became_of_it() {
    let place = Place::done("[grid]\nseeds = 1");
    assert!(place.page().contains("No prediction was recorded"));
    let file = place.folder.path().join("prediction.md");
    let text = "rloo wins by </pre><b>0.1";
    std::fs::write(&file, text).unwrap();
    place.record(Some(&file), 0);
    let question = |page: &str| section(page, "question").to_string();
    let hash = ascribe_run::checkpoint::sha256(text.as_bytes());
    let page = question(&place.page());
    assert!(
        page.contains("rloo wins by &lt;/pre&gt;&lt;b&gt;0.1") && page.contains(&hash) && page.contains("<time datetime="),
        "{page}"
    );
    assert!(page.contains("before any reported cell was done"));

    std::fs::write(&file, "grpo wins").unwrap();
    let now = ascribe_run::checkpoint::sha256(b"grpo wins");
    assert_eq!(place.report().prediction.unwrap().now, PredictionFile::Changed(now.clone()));
    let page = place.page();
    assert!(page.contains("The prediction's file is not what was recorded"));
    let page = question(&page);
    assert!(page.contains(&hash) && page.contains(&now) && !page.contains("grpo wins"), "{page}");

    std::fs::remove_file(&file).unwrap();
    assert!(question(&place.page()).contains("The file cannot be read now"));

    // Written down after the run was done, in a folder that had recorded none.
    std::fs::write(&file, text).unwrap();
    place.record(None, 0);
    place.record(Some(&file), 1);
    let page = place.page();
    assert!(page.contains("The prediction was recorded late"));
    assert!(question(&page).contains("This is no prediction</strong>: 1 of the reported cells"), "{}", question(&page));
    assert!(section(&page, "checklist").contains("recorded after runs were done"));
}

#[test]
fn equal_scores_are_drawn_and_undecided() {
    let place = Place::done("[grid]\nseeds = 3\n[grid.arm.grpo]\n[grid.arm.rloo]\nestimator = \"rloo\"");
    for cell in &place.cells {
        let path = place.grid.run(cell).join("evaluations.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"success\":false", "\"success\":true")).unwrap();
    }
    let page = place.page();
    assert!(section(&page, "verdicts").contains("both scored the same with every seed"), "{}", section(&page, "verdicts"));
    assert!(section(&page, "curves").contains("<polyline") && !section(&page, "curves").contains("no chart"));
}

#[test]
fn costs_that_are_not_matched_are_called_so() {
    let place = Place::done("[grid]\nseeds = 1\n[grid.arm.grpo]\n[grid.arm.rloo]\nestimator = \"rloo\"");
    let mut report = place.report();
    let tokens = report.results.spent[0].1.mean["tokens"];
    report.results.spent[1].1.mean.insert("tokens".into(), tokens);
    let page = report.page(Axis::AllTokens);
    assert!(section(&page, "checklist").contains("within 5 %: "), "{}", section(&page, "checklist"));
    report.results.spent[1].1.mean.insert("tokens".into(), tokens * 3.0);
    report.results.spent[1].1.alarms.insert("no-<signal>".into(), 2);
    let page = report.page(Axis::AllTokens);
    check(&page);
    assert!(section(&page, "checklist").contains("<strong>not matched</strong>") && page.contains("3.000 times as many"));
    let alarms = section(&page, "alarms");
    assert!(alarms.contains("no-&lt;signal&gt;") && alarms.contains("<td>2</td>"), "{alarms}");
    // A budget that all share is named, and its absence is a blank.
    assert!(section(&page, "checklist").contains("no budget of tokens that all arms share"));
    let place = Place::done("budget.tokens = \"1M\"\n[grid]\nseeds = 1");
    assert!(section(&place.page(), "checklist").contains("every run ends at 1,000,000 tokens at the latest"));
}

#[test]
fn an_arm_is_held_against_its_own_controls() {
    let place = Place::done(ARMS);
    let report = place.report();
    let pairs: Vec<(&str, &str)> = report.controls.iter().map(|c| (c.arm.as_str(), c.baseline.as_str())).collect();
    assert_eq!(pairs, [("rloo", "rloo + shuffle")]);
    let page = place.page();
    assert!(section(&page, "verdicts").contains("rloo against rloo + shuffle"));
    assert!(report.sheets().iter().any(|of| of.name == "controls" && of.sheet.rows.len() == 1));
    let without = Place::done("[grid]\nseeds = 1");
    assert!(without.report().controls.is_empty() && !section(&without.page(), "verdicts").contains("own controls"));
}

#[test]
fn what_was_tuned_is_listed_with_its_cost() {
    let grid = r#"
        [grid]
        seeds = 1
        tune = { "update.learning_rate" = [1e-9, 0.5] }
        tune_seeds = 1
        controls = { random = ["grpo"] }
        [grid.arm.grpo]
        [grid.arm.rloo]
        estimator = "rloo"
    "#;
    let place = Place::done(grid);
    let report = place.report();
    let page = place.page();
    let tuning = section(&page, "tuning");
    assert_eq!(tuning.matches("<strong>chosen</strong>").count(), 2, "{tuning}");
    assert_eq!(tuning.matches("update.learning_rate=0.5").count(), 2, "{tuning}");
    let spent = report.results.spent.iter().find(|(arm, _)| arm == "grpo").unwrap().1.tuning_tokens;
    assert!(spent > 0 && tuning.replace(',', "").contains(&format!("grpo: {spent} tokens")), "{spent} in {tuning}");
    assert!(section(&page, "checklist").contains("equally many: 2"));
    assert!(section(&page, "arms").contains("A control of grpo"));
}

#[test]
fn an_experiment_that_changed_since_is_noticed() {
    let mut place = Place::done("[grid]\nseeds = 1\n[grid.arm.a]\n[grid.arm.b]\nupdate.learning_rate = 0.2");
    assert_eq!(place.report().unplanned, 0);
    let text = std::fs::read_to_string(&place.file).unwrap().replace("learning_rate = 0.2", "learning_rate = 0.3");
    std::fs::write(&place.file, text).unwrap();
    place.plan = Plan::read(Request::new(&place.file)).unwrap();
    let report = place.report();
    assert_eq!(report.unplanned, 1);
    // What was run before the change is no run of the arm as it is now.
    assert!(report.results.table.arms().iter().all(|arm| arm.name == "a"));
    assert!(place.page().contains("The experiment was changed since its cells were planned"));
}

#[test]
fn verdicts_are_words() {
    let place = Place::done("[grid]\nseeds = 3\n[grid.arm.grpo]\n[grid.arm.rloo]\nestimator = \"rloo\"");
    let mut report = place.report();
    for (verdict, word) in [(Verdict::Better, "good\">better"), (Verdict::Worse, "bad\">worse")] {
        report.comparisons[0].verdict = verdict;
        let page = report.page(Axis::AllTokens);
        assert!(section(&page, "verdicts").contains(word), "{word}");
    }
}
