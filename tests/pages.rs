//! Pages: what commands that make them say, and what a browser sees in them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Output;

use ascribe_core::End;
use ascribe_core::environment::TaskId;
use ascribe_core::log::{Context, LeafLog, Limit, Origin, Stop, Validity};
use ascribe_run::disk::Disk;
use ascribe_run::trajectories::{self, GroupRecord, Key, TurnRecord};
use ascribe_tests::browser::{Browser, Tab};
use ascribe_tests::grids::{Place, experiment};
use ascribe_tests::{ascribe, said};

const WON: End = End::Terminated { success: true };
const LOST: End = End::Terminated { success: false };

fn turn(parent: Option<usize>, observation: &str, action: &str, advantage: Option<f32>) -> TurnRecord {
    TurnRecord {
        parent,
        agent: "actor".into(),
        context: Context::Extend,
        read: vec![1, 2, 3],
        tokens: vec![7, 8, 9],
        // The last one had no alternative.
        at: vec![0, 1],
        logprob: Some(vec![-0.25, -0.5]),
        entropy: Some(vec![0.5, 0.75]),
        support: Vec::new(),
        temperature: 1.0,
        stop: Stop::Complete,
        env_reward: 0.0,
        reward: 0.0,
        validity: Validity::Valid,
        observation: Key(observation.into()),
        state: Key(observation.into()),
        state_after: Key(Vec::new()),
        action_key: Key(action.into()),
        observation_text: observation.into(),
        action_text: action.into(),
        spans: Vec::new(),
        signals: BTreeMap::new(),
        policy_version: 1,
        advantage,
    }
}

fn leaf(turn: usize, end: End) -> LeafLog {
    LeafLog { turn: Some(turn), end, seed: 0 }
}

fn group(number: usize, name: &str, turns: Vec<TurnRecord>, leaves: Vec<LeafLog>) -> GroupRecord {
    GroupRecord {
        update: 1,
        phase: "rl".into(),
        group: number,
        task: TaskId { split: "train".into(), index: number as u32 },
        name: name.into(),
        seed: 5,
        origin: Origin::Root,
        fingerprint: "test-1".into(),
        before: 0,
        history: None,
        supports: Vec::new(),
        turns,
        leaves,
        states: BTreeMap::new(),
        tokens: BTreeMap::new(),
        token_rewards: Vec::new(),
        token_credit: Vec::new(),
    }
}

/// A run's folder with saved batches.
struct Run {
    folder: tempfile::TempDir,
}

impl Run {
    fn new(batches: &[(u32, Vec<GroupRecord>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path().join("run/trajectories");
        std::fs::create_dir_all(&all).unwrap();
        for (update, groups) in batches {
            let groups: Vec<GroupRecord> = groups.iter().map(|g| GroupRecord { update: *update, ..g.clone() }).collect();
            trajectories::write_records(&Disk::default(), &trajectories::path(&all, *update), &groups).unwrap();
        }
        Self { folder }
    }

    fn metrics(&self, lines: &str) {
        std::fs::write(self.folder.path().join("run/metrics.jsonl"), lines).unwrap();
    }

    fn view(&self, words: &[&str]) -> Output {
        ascribe(self.folder.path(), &[&["view", "run"], words].concat())
    }

    /// The page, made.
    fn page(&self, words: &[&str]) -> PathBuf {
        let out = self.view(words);
        assert!(out.status.success(), "{}", said(&out));
        self.folder.path().join("run/view.html")
    }
}

/// Two groups: one of chains that ends in all ways, one that branches.
fn some() -> Vec<GroupRecord> {
    let chains = vec![
        turn(None, "a closed door", "open it", Some(1.0)),
        turn(Some(0), "an open door", "go through", Some(-2.0)),
        turn(None, "a closed door", "knock", Some(0.0)),
        turn(Some(2), "an open door", "wait", Some(0.5)),
        turn(None, "a closed door", "shout", None),
        turn(None, "a closed door", "kick it", None),
    ];
    let leaves =
        vec![leaf(1, WON), leaf(3, LOST), leaf(4, End::Truncated(Limit::Turns)), leaf(5, End::Failed("the hinge broke".into()))];
    let tree = vec![
        turn(None, "a river", "swim", Some(0.25)),
        turn(Some(0), "the middle of the river", "swim on", Some(1.5)),
        turn(Some(0), "the middle of the river", "turn back", Some(-1.0)),
    ];
    let mut doors = group(0, "doors", chains, leaves);
    doors.turns[1].reward = 1.0;
    doors.turns[1].env_reward = 2.0;
    doors.states.insert("value".into(), vec![Some(0.5), Some(0.75), None, Some(0.25), None, None]);
    doors.turns[0].signals.insert("progress".into(), 0.125);
    vec![doors, group(1, "river", tree, vec![leaf(1, WON), leaf(2, LOST)])]
}

// ---- What the command says -----------------------------------------------------------------------------------------

#[test]
fn the_page_is_written_and_named() {
    let run = Run::new(&[(1, some()), (2, some()), (5, some())]);
    let out = run.view(&[]);
    assert_eq!(said(&out), "run/view.html: 6 trajectories of update 5\n");
    let out = run.view(&["--update", "1..2", "--update", "last", "-o", "all.html"]);
    assert_eq!(said(&out), "all.html: 18 trajectories of 3 updates\n");
    let out = run.view(&["--update", "all", "--limit", "7"]);
    assert_eq!(said(&out), "run/view.html: 6 trajectories of update 1; 12 more were left out: --limit 18 shows them\n");
    let out = ascribe(run.folder.path(), &["view", "run/trajectories/000002.jsonl.zst"]);
    assert_eq!(said(&out), "run/trajectories/000002.html: 6 trajectories of update 2\n");
    // The same batch gives the same page.
    let first = std::fs::read(run.page(&[])).unwrap();
    assert_eq!(first, std::fs::read(run.page(&[])).unwrap());
}

#[test]
fn mistakes_name_the_place_and_the_remedy() {
    let run = Run::new(&[(1, some()), (2, some()), (5, some())]);
    let told = |words: &[&str], code: i32, part: &str| {
        let out = ascribe(run.folder.path(), words);
        assert_eq!(out.status.code(), Some(code), "{words:?}: {}", said(&out));
        assert!(said(&out).contains(part), "{words:?}: {part:?} in\n{}", said(&out));
    };
    told(&["view", "elsewhere"], 1, "`elsewhere` is neither a run's folder nor a file of saved trajectories");
    told(&["view", "run", "--update", "3"], 2, "update 3 is not saved; saved are 1, 2, 5");
    told(&["view", "run", "--update", "7..9"], 2, "an update from 7 to 9 is not saved; saved are 1, 2, 5");
    told(&["view", "run", "--update", "first"], 2, "`first` is no update: write N, N..M (both included)");
    told(&["view", "run", "-e", "gigp"], 2, "did you mean `gigpo`");
    told(&["view", "run", "-e", "{ gae = { gamma = 1.0, lambda = 2.0 } }"], 2, "lambda");
    told(&["view", "run/trajectories/000005.jsonl.zst", "--update", "5"], 2, "is one saved batch: leave `--update` out");
    // Columns that are not there, and one with gaps.
    let told_column = "needs state values in a column `value`, which the batch of update 5 does not have";
    told(&["view", "run", "-e", "gae"], 2, told_column);
    told(&["view", "run", "-e", "gae"], 2, "its column has gaps");
    told(&["view", "run", "-e", "igpo"], 2, "needs a column `info_gain` on turns");
    assert!(!run.folder.path().join("run/view.html").exists());

    let all = run.folder.path().join("run/trajectories");
    let damaged = "{\"update\": 5}\n";
    std::fs::write(trajectories::path(&all, 5), damaged).unwrap();
    told(&["view", "run"], 1, "run/trajectories/000005.jsonl.zst: it cannot be unpacked");
    told(&["view", "run"], 1, "nothing is left to show: put the file back from a copy, or run the experiment anew");
    told(&["view", "run"], 1, "saved too are 1, 2: `--update` shows them");
    assert!(!run.folder.path().join("run/view.html").exists());
    std::fs::remove_dir_all(&all).unwrap();
    std::fs::write(run.folder.path().join("run/provenance.json"), "{}").unwrap();
    told(
        &["view", "run"],
        1,
        "`run` holds no saved trajectories: its first update is not over, or it was run with `run.trajectories = 0`",
    );
}

#[test]
fn a_page_takes_no_other_files_place() {
    let run = Run::new(&[(1, some())]);
    let at = |name: &str| run.folder.path().join(name);
    let result = "{\"update\": 5}";
    std::fs::write(at("run/result.json"), result).unwrap();
    std::fs::create_dir(at("pages")).unwrap();
    std::fs::write(at("mine.html"), "<!DOCTYPE html><p>mine").unwrap();
    for taken in ["run/result.json", "run/trajectories/000001.jsonl.zst", "mine.html", "pages"] {
        let before = at(taken).is_file().then(|| std::fs::read(at(taken)).unwrap());
        let out = run.view(&["-o", taken]);
        assert_eq!(out.status.code(), Some(2), "{}", said(&out));
        let told = format!(
            "error: `{taken}` is no page of Ascribe and is left as it is: name another file with `-o`, or move it away\n"
        );
        assert_eq!(said(&out), told);
        assert_eq!(at(taken).is_file().then(|| std::fs::read(at(taken)).unwrap()), before);
    }
    // Nor where the name is not given.
    std::fs::write(at("run/view.html"), "mine").unwrap();
    assert_eq!(run.view(&[]).status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(at("run/view.html")).unwrap(), "mine");
    // Folders are made, and a page takes a page's place.
    for _ in 0..2 {
        let out = run.view(&["-o", "new/folder/x.html"]);
        assert_eq!(said(&out), "new/folder/x.html: 6 trajectories of update 1\n");
    }
    let out = run.view(&["-o", "mine.html/x.html"]);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("`mine.html") && said(&out).contains("name another file with `-o`"), "{}", said(&out));
    assert!(!said(&out).contains("checkpoint"), "{}", said(&out));
}

#[test]
fn what_is_whole_is_shown_beside_what_is_damaged() {
    let mut odd = some();
    // Read well, and no batch: a turn before itself.
    odd[0].turns[1].parent = Some(7);
    let run = Run::new(&[(1, some()), (2, some()), (3, odd), (4, some())]);
    let file = trajectories::path(&run.folder.path().join("run/trajectories"), 2);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    run.metrics("no line of metrics\n");
    let out = run.view(&["--update", "all"]);
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "run/view.html: 12 trajectories of 2 updates\n");
    let page = std::fs::read_to_string(run.folder.path().join("run/view.html")).unwrap();
    let (left_out, _) = page.split_once("<main").unwrap();
    let warned = String::from_utf8_lossy(&out.stderr).into_owned();
    for (what, why) in [
        ("the record of alarms", "run/metrics.jsonl:1: "),
        ("the batch of update 2", "run/trajectories/000002.jsonl.zst: it cannot be unpacked"),
        ("the batch of update 3", "its parts do not fit together: "),
    ] {
        assert!(warned.contains(&format!("{what} cannot be read: {why}")), "{what} in\n{warned}");
        assert!(
            left_out.contains(&format!("<strong>{what}</strong> cannot be read and is left out: {why}")),
            "{what} in\n{left_out}"
        );
    }
    assert!(warned.starts_with("warning: ") && warned.contains("\n  put the file back from a copy"), "{warned}");
    for alone in ["2", "3"] {
        let out = run.view(&["--update", alone, "-o", "alone.html"]);
        assert_eq!(out.status.code(), Some(1), "{}", said(&out));
        assert!(
            said(&out).contains("nothing is left to show") && !run.folder.path().join("alone.html").exists(),
            "{}",
            said(&out)
        );
    }
}

#[test]
fn a_terminal_obeys_no_name() {
    let experiment = experiment(1, "[grid.arm.\"turn\u{202e}ed\"]\nestimator.command = { run = [\"false\"] }");
    let place = Place::new(&experiment.replace("Which estimator", "Which\\u001b[2J\\u0007 estimator"));
    for words in [
        ["grid", "plan", "study.toml"],
        ["grid", "run", "study.toml"],
        ["grid", "status", "runs/study"],
        ["grid", "report", "runs/study"],
    ] {
        let said = said(&place.ascribe(&words));
        assert!(said.contains("turn[U+202E]ed"), "{words:?}: {said}");
        assert_eq!(said.contains("Which[U+001B][2J[U+0007] estimator"), words[1] != "status", "{words:?}: {said}");
        assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{words:?}: {said}");
    }
}

// ---- What a browser sees --------------------------------------------------------------------------------------------

/// The colours of the viewer, by theme: zero, and the ends for credit above and below it.
const COLOURS: [[[f64; 3]; 3]; 2] = [
    [[240.0, 240.0, 240.0], [5.0, 80.0, 174.0], [154.0, 62.0, 0.0]],
    [[48.0, 54.0, 61.0], [121.0, 192.0, 255.0], [255.0, 166.0, 87.0]],
];

/// What share of the scale a computed colour stands for; `None` where there is no colour.
fn share(computed: &str, dark: bool) -> Option<f64> {
    let inner = computed.split_once('(').unwrap().1.trim_end_matches(')');
    let levels: Vec<f64> = inner.split(',').map(|level| level.trim().parse().unwrap()).collect();
    if levels.get(3) == Some(&0.0) {
        return None;
    }
    let [zero, more, less] = COLOURS[usize::from(dark)];
    // Towards the end that the colour lies on the way to, read from the channel that changes most.
    let fits = |end: [f64; 3]| {
        let widest = (0..3).max_by(|a, b| (end[*a] - zero[*a]).abs().total_cmp(&(end[*b] - zero[*b]).abs())).unwrap();
        let at = (levels[widest] - zero[widest]) / (end[widest] - zero[widest]);
        let miss: f64 = (0..3).map(|i| (zero[i] + at * (end[i] - zero[i]) - levels[i]).abs()).sum();
        (at, miss)
    };
    let ((up, miss_up), (down, miss_down)) = (fits(more), fits(less));
    let (at, miss) = if miss_up <= miss_down { (up, miss_up) } else { (-down, miss_down) };
    assert!(miss < 3.0, "{computed} is no colour of the scale");
    Some(at)
}

const CELLS: &str = "[...document.querySelectorAll('.turn .lanes .credit')]";

/// Computed colours of the cells of the selected trajectory, turn by turn and lane by lane.
fn cells(tab: &mut Tab<'_>) -> Vec<String> {
    let all = tab.evaluate(&format!("{CELLS}.map((cell) => getComputedStyle(cell).backgroundColor)"));
    all.as_array().unwrap().iter().map(|x| x.as_str().unwrap().to_string()).collect()
}

fn n_turns(tab: &mut Tab<'_>) -> usize {
    tab.number("document.querySelectorAll('section.turn').length") as usize
}

fn go(tab: &mut Tab<'_>, address: &str) {
    tab.evaluate(&format!("location.hash = '{address}'; new Promise((done) => setTimeout(done, 30))"));
}

#[test]
#[ignore = "needs Chromium"]
fn a_page_with_problems_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("bad.html");
    let text =
        "<!DOCTYPE html><img src=\"http://example.invalid/x.png\"><script>console.error('one'); throw new Error('two')</script>";
    std::fs::write(&page, text).unwrap();
    let mut browser = Browser::start();
    let problems = browser.open(&page).problems();
    for part in ["request: http://example.invalid/x.png", "one", "two"] {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part} in {problems:?}");
    }
    std::fs::write(&page, "<!DOCTYPE html><title>good</title><p>good</p>").unwrap();
    assert_eq!(browser.open(&page).problems(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium"]
fn colours_give_the_credit_back() {
    let run = Run::new(&[(1, some())]);
    let page = run.page(&[]);
    let mut browser = Browser::start();
    let mut tab = browser.open(&page);
    // The scale is the largest absolute credit of the page: 2.
    let wanted: [(&str, Vec<Option<f64>>); 4] = [
        ("1:0:0", vec![Some(0.5), Some(-1.0)]),
        ("1:0:1", vec![Some(0.0), Some(0.25)]),
        ("1:0:2", vec![None]),
        ("1:1:1", vec![Some(0.125), Some(-0.5)]),
    ];
    for dark in [false, true] {
        tab.media(dark, false);
        for (address, shares) in &wanted {
            go(&mut tab, address);
            let seen = cells(&mut tab);
            assert_eq!((seen.len(), n_turns(&mut tab)), (shares.len(), shares.len()), "one cell per turn");
            for (computed, want) in seen.iter().zip(shares) {
                let got = share(computed, dark);
                let close = match (got, want) {
                    (Some(got), Some(want)) => (got - want).abs() <= 1.0 / 128.0,
                    (got, want) => got == *want,
                };
                assert!(close, "{address}, dark {dark}: {computed} is {got:?}, not {want:?}");
            }
            // What is written on it can be read.
            let contrast = tab.number(&format!(
                "Math.min(...{CELLS}.filter((cell) => cell.textContent).map((cell) => {{
                    const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255)
                        .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
                        .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0.05);
                    const style = getComputedStyle(cell);
                    const [a, b] = [light(style.color), light(style.backgroundColor)];
                    return Math.max(a, b) / Math.min(a, b);
                }}), 21)"
            ));
            assert!(contrast >= 4.5, "{address}, dark {dark}: contrast {contrast}");
        }
    }
    // On paper it is light, whatever the screen.
    tab.media(true, true);
    go(&mut tab, "1:0:0");
    assert_eq!(share(&cells(&mut tab)[1], false), Some(-1.0));
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium"]
fn credit_of_tokens_stands_on_them() {
    let mut finer = group(0, "doors", vec![turn(None, "a door", "open it", None)], vec![leaf(0, WON)]);
    finer.token_credit = vec![Some(1.0), Some(-0.5)];
    let run = Run::new(&[(1, vec![finer])]);
    let page = run.page(&[]);
    let mut browser = Browser::start();
    let mut tab = browser.open(&page);
    tab.press("t");
    let tokens = tab.evaluate(
        "[...document.querySelectorAll('.token')].map((token) => getComputedStyle(token).backgroundColor + ' ' + token.title)",
    );
    let tokens: Vec<&str> = tokens.as_array().unwrap().iter().map(|x| x.as_str().unwrap()).collect();
    let shares: Vec<Option<f64>> = tokens.iter().map(|token| share(token.split_once(") ").unwrap().0, false)).collect();
    let close = |got: Option<f64>, want: f64| got.is_some_and(|got| (got - want).abs() <= 1.0 / 128.0);
    assert!(close(shares[0], 1.0) && close(shares[1], -0.5) && shares[2].is_none(), "{tokens:?}");
    assert!(tokens[1].contains("log-probability \u{2212}0.5") && tokens[2].contains("forced, masked"), "{tokens:?}");
    // The turn's cell shows their mean.
    assert!(close(share(&cells(&mut tab)[0], false), 0.25));
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium"]
fn zero_no_credit_and_all_zero_look_different() {
    let looks = |records: Vec<GroupRecord>| {
        let run = Run::new(&[(1, records)]);
        let page = run.page(&[]);
        let mut browser = Browser::start();
        let mut tab = browser.open(&page);
        go(&mut tab, "1:0:1");
        let legend = tab.text("document.getElementById('legend').textContent");
        let style = format!(
            "(() => {{ const s = getComputedStyle({CELLS}[0]);
                return [s.backgroundColor, s.backgroundImage, s.borderStyle, {CELLS}[0].textContent].join('|') }})()"
        );
        let zero = tab.text(&style);
        go(&mut tab, "1:0:2");
        let none = tab.text(&style);
        assert_eq!(tab.problems(), [""; 0]);
        (legend, zero, none)
    };
    let (legend, zero, none) = looks(some());
    let mut flat = some();
    flat.iter_mut().flat_map(|g| &mut g.turns).for_each(|t| t.advantage = t.advantage.map(|_| 0.0));
    let (flat_legend, flat_zero, flat_none) = looks(flat);
    assert!(!legend.contains("all credit is zero") && flat_legend.contains("all credit is zero"), "{legend}\n{flat_legend}");
    assert_eq!(zero, "rgb(240, 240, 240)|none|solid|0");
    assert!(none.starts_with("rgba(0, 0, 0, 0)|repeating-linear-gradient(") && none.ends_with("|dashed|"), "{none}");
    assert_eq!((flat_zero.as_str(), flat_none), ("rgb(240, 240, 240)|none|double|0", none));
}

#[test]
#[ignore = "needs Chromium"]
fn hostile_text_runs_nothing_and_is_shown() {
    const HOSTILE: [&str; 12] = [
        "<script>window.__hit = 1</script>",
        "</script><script>window.__hit = 2</script>",
        "<img src=x onerror=\"window.__hit = 3\">",
        "<a href=\"javascript:window.__hit = 4\">here</a>",
        "\"}]}; window.__hit = 5; //",
        "\\u003c/script>\\\"' \u{2028}window.__hit = 6\u{2029}",
        "<!--<script>-->",
        "]]><svg onload=window.__hit=7>",
        "${window.__hit = 8} {{constructor.constructor('window.__hit=9')()}}",
        "\u{0}\u{1b}[31mred\u{1b}[0m\u{7} \u{202e}turned\u{202c} \u{9b}1m \u{e0041}",
        "</style><style>* { display: none }</style>",
        "expression(window.__hit=10); background: url(https://example.invalid/x)",
    ];
    let mut records = Vec::new();
    for (i, text) in HOSTILE.iter().enumerate() {
        let mut one = turn(None, text, text, Some(1.0));
        one.agent = text.to_string();
        one.signals.insert(text.to_string(), 1.0);
        one.spans = vec![ascribe_core::log::NamedSpan { name: text.to_string(), start: 0, end: 1 }];
        let failed = turn(None, text, text, None);
        let leaves = vec![leaf(0, WON), leaf(1, End::Failed(text.to_string()))];
        let mut of = group(i, text, vec![one, failed], leaves);
        of.phase = text.to_string();
        of.fingerprint = text.to_string();
        of.task.split = text.to_string();
        of.states.insert(format!("states {text}"), vec![Some(1.0), Some(2.0)]);
        of.tokens.insert(format!("tokens {text}"), vec![Some(1.0), Some(2.0)]);
        records.push(of);
    }
    let run = Run::new(&[(1, records)]);
    run.metrics("{\"update\":1,\"phase\":\"rl\",\"alarm/<img src=x onerror=window.__hit=11>\":1.0}\n");
    let page = run.page(&[]);
    let mut browser = Browser::start();
    let mut tab = browser.open(&page);
    tab.press("t");
    for (i, text) in HOSTILE.iter().enumerate() {
        for path in 0..2 {
            go(&mut tab, &format!("1:{i}:{path}"));
            let seen = tab.text("document.querySelector('.turn pre.acted').textContent");
            let controls = ['\u{0}', '\u{7}', '\u{1b}', '\u{e0041}', '\u{202e}', '\u{202c}', '\u{9b}', '\u{2028}', '\u{2029}'];
            let want = text.chars().map(|c| match c {
                c if controls.contains(&c) => format!("U+{:04X}", c as u32),
                c => c.to_string(),
            });
            assert_eq!(seen, want.collect::<String>());
        }
    }
    // A pointer over everything, a click on everything.
    tab.evaluate("document.querySelectorAll('*').forEach((node) => node.dispatchEvent(new MouseEvent('mouseover')))");
    tab.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true })");
    let elements = "document.querySelectorAll('img, a, iframe, object, embed, link, base, body svg script').length";
    assert_eq!(tab.number(elements), 0.0);
    assert_eq!(tab.text("typeof window.__hit"), "undefined");
    assert_eq!(tab.problems(), [""; 0]);
}

/// Number of trajectories that the page says it lists.
fn counted(tab: &mut Tab<'_>) -> usize {
    let text = tab.text("document.getElementById('count').textContent");
    text.split(' ').next().unwrap().parse().unwrap()
}

fn choose(tab: &mut Tab<'_>, control: &str, value: &str) {
    tab.evaluate(&format!(
        "(() => {{ const it = document.getElementById('{control}'); it.value = {};
            it.dispatchEvent(new Event('input', {{ bubbles: true }})) }})()",
        serde_json::Value::from(value)
    ));
}

#[test]
#[ignore = "needs Chromium"]
fn what_an_expert_played_is_not_the_actors() {
    let mut given = turn(None, "a door", "open it", Some(1.0));
    (given.logprob, given.entropy) = (None, None);
    let own = turn(None, "a door", "knock", Some(1.0));
    let forced = TurnRecord { parent: Some(1), at: Vec::new(), ..given.clone() };
    let run = Run::new(&[(1, vec![group(0, "doors", vec![given, own, forced], vec![leaf(0, WON), leaf(2, WON)])])]);
    let mut browser = Browser::start();
    let page = run.page(&[]);
    let mut tab = browser.open(&page);
    tab.press("t");
    for (address, turn, who, token) in [
        ("1:0:0", 0, "given, not sampled: an expert's, for actor", "token 7: given"),
        ("1:0:1", 0, "actor", "token 7: sampled"),
        // Without a choice nothing says who made it.
        ("1:0:1", 1, "actor", "token 7: forced, masked"),
    ] {
        go(&mut tab, address);
        assert_eq!(tab.text(&format!("document.querySelector('#turn-{turn} .facts span').textContent")), who);
        let title = tab.text(&format!("document.querySelector('#turn-{turn} .token').title"));
        assert!(title.starts_with(token), "{title}");
    }
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium"]
fn search_and_filters_show_what_the_data_say() {
    let run = Run::new(&[(1, some()), (2, some())]);
    run.metrics("{\"update\":1,\"phase\":\"rl\",\"x\":1.0}\n{\"update\":2,\"phase\":\"rl\",\"alarm/malformed\":1.0}\n");
    // What trained was made up: the outcome against its group's mean disagrees with it in places.
    let page = run.page(&["--update", "all", "-e", "{ grpo = { std = false } }"]);
    let mut browser = Browser::start();
    let mut tab = browser.open(&page);
    assert_eq!(counted(&mut tab), 12);
    for (search, want) in [("go through", 2), ("OPEN DOOR", 4), ("river", 4), ("hinge", 2), ("train/1", 4), ("<b>", 0), ("", 12)]
    {
        choose(&mut tab, "search", search);
        assert_eq!(counted(&mut tab), want, "{search}");
        let rows = tab.number("document.querySelectorAll('#rows .row').length") as usize;
        assert_eq!(rows, want, "{search}");
    }
    for (control, values) in [
        ("outcome", vec![("success", 4), ("failure", 4), ("truncated", 2), ("failed", 2), ("", 12)]),
        ("alarm", vec![("*", 6), ("=malformed", 6), ("-", 6), ("", 12)]),
        ("group", vec![("2:1", 2), ("2:7", 0), ("1:0", 4), ("", 12)]),
        ("update", vec![("0", 6), ("", 12)]),
    ] {
        for (value, want) in values {
            choose(&mut tab, control, value);
            assert_eq!(counted(&mut tab), want, "{control} {value}");
        }
    }
    // Outcomes 1, 0, 0 of the doors: +2/3, −1/3, −1/3. The first path's second turn trained on −2, the second path's on +½.
    tab.evaluate("document.getElementById('disagree').click()");
    assert_eq!(counted(&mut tab), 4);
    tab.evaluate("document.getElementById('disagree').click()");
    choose(&mut tab, "sort", "opposed");
    let first = tab.text("document.querySelector('#rows .row .small').textContent");
    assert_eq!(first, "1:0:0");
    tab.evaluate("document.querySelector('#filters [type=reset]').click(); new Promise((done) => setTimeout(done, 50))");
    assert_eq!(counted(&mut tab), 12);
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium"]
fn keys_anchors_and_the_tree_lead_through_a_group() {
    let run = Run::new(&[(1, some())]);
    let page = run.page(&["-e", "rloo"]);
    let mut browser = Browser::start();
    let mut tab = browser.open(&page);
    let selected = "document.querySelector('.row[aria-selected=true] .line .small').textContent";
    assert_eq!(tab.text(selected), "1:0:0");
    for (key, want) in
        [("j", "1:0:1"), ("j", "1:0:2"), ("k", "1:0:1"), ("ArrowDown", "1:0:2"), ("End", "1:1:1"), ("Home", "1:0:0")]
    {
        tab.press(key);
        assert_eq!(tab.text(selected), want, "{key}");
    }
    assert_eq!(tab.text("location.hash"), "#1:0:0");
    tab.press("n");
    tab.press("n");
    assert_eq!(tab.text("document.activeElement.id"), "turn-1");
    // Two lanes: two cells per turn, and everything that is known of it.
    assert_eq!((cells(&mut tab).len(), n_turns(&mut tab)), (4, 2));
    let facts = tab.text("document.getElementById('turn-1').textContent");
    for part in ["reward1", "environment's reward2", "value0.75 \u{2192} none", "mean log-probability\u{2212}0.375", "valid"] {
        assert!(facts.contains(part), "{part:?} in {facts}");
    }
    // Which tokens trained.
    tab.press("t");
    let tokens = tab.text("[...document.querySelectorAll('#turn-1 .token')].map((token) => token.className).join('|')");
    assert_eq!(tokens, "token sampled|token sampled|token fed");
    let (turn, token) =
        (cells(&mut tab)[2].clone(), "getComputedStyle(document.querySelector('#turn-1 .token')).backgroundColor");
    assert_eq!(tab.text(token), turn);
    // Who else was here: the second path has seen the open door too.
    let summary = tab.text("document.querySelector('#turn-1 .here summary').textContent");
    assert_eq!(summary, "who else was here: 1 in this group, 0 elsewhere in this task");
    tab.evaluate("document.querySelector('#turn-1 .here').open = true; new Promise((done) => setTimeout(done, 50))");
    assert_eq!(tab.number("document.querySelectorAll('#turn-1 .others .chip').length"), 2.0);
    tab.evaluate("document.querySelector('#turn-1 .others button').click()");
    assert_eq!(tab.text(selected), "1:0:1");
    assert_eq!(tab.text("document.activeElement.id"), "turn-1");
    // The tree holds each turn once, the shared one too; a click leads to its path.
    go(&mut tab, "1:1:0");
    assert_eq!(tab.number("document.querySelectorAll('.tree rect').length"), 3.0);
    assert!(tab.text("document.getElementById('turn-0').textContent").contains("shared by 2 trajectories"));
    let fill = "getComputedStyle(document.querySelectorAll('.tree rect')[2]).fill";
    assert_eq!(share(&tab.text(fill), false).map(|x| (x * 128.0).round() / 128.0), Some(-0.5));
    tab.evaluate("document.querySelectorAll('.tree rect')[2].dispatchEvent(new MouseEvent('click'))");
    assert_eq!(tab.text(selected), "1:1:1");
    // Only its group, and back.
    tab.press("g");
    assert_eq!(counted(&mut tab), 2);
    tab.press("g");
    assert_eq!(counted(&mut tab), 6);
    // Search by key; keys are letters there.
    tab.press("/");
    tab.write("kick");
    assert_eq!(counted(&mut tab), 1);
    tab.press("Escape");
    tab.press("?");
    assert_eq!(tab.evaluate("document.getElementById('help').open"), true);
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium"]
fn a_real_run_is_shown_with_other_estimators() {
    const EXPERIMENT: &str = r#"
        question = "Which turns repaired it?"
        environment.repair-mdp = { horizon = 8, step_cost = 0.05 }
        objective = "reinforce"
        estimator = "grpo"
        updates = 6
        policy.actor.tabular = {}
        rollout.independent = { groups = 6, group_size = 4, decode = "admissible" }
        update.learning_rate = 0.05
        evaluate = { splits = ["train"], samples = 1 }
    "#;
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("study.toml"), EXPERIMENT).unwrap();
    let out = ascribe(place.path(), &["run", "study.toml"]);
    assert!(out.status.success(), "{}", said(&out));
    let run = "runs/study/main/seed-0";
    let out = ascribe(place.path(), &["view", run, "--update", "5..6", "-e", "grpo", "-e", "gigpo"]);
    assert_eq!(said(&out), format!("{run}/view.html: 48 trajectories of 2 updates\n"));
    let mut browser = Browser::start();
    let mut tab = browser.open(&place.path().join(run).join("view.html"));
    assert_eq!(counted(&mut tab), 48);
    let mut apart = 0;
    for _ in 0..12 {
        let (seen, turns) = (cells(&mut tab), n_turns(&mut tab));
        assert_eq!(seen.len(), 3 * turns);
        // Estimated again it is what trained, number for number; the other estimator says something else.
        let said = tab.evaluate(&format!("{CELLS}.map((cell) => cell.textContent)"));
        let said: Vec<&str> = said.as_array().unwrap().iter().map(|x| x.as_str().unwrap()).collect();
        for (lanes, colours) in said.chunks(3).zip(seen.chunks(3)) {
            assert_eq!((lanes[0], &colours[0]), (lanes[1], &colours[1]));
            apart += usize::from(lanes[0] != lanes[2]);
        }
        tab.press("j");
    }
    assert!(apart > 0);
    // The first lane says whose credit it is.
    assert_eq!(tab.text("document.querySelector('#legend .name').textContent"), "trained on: grpo");
    let about = tab.text("document.querySelector('#legend .name').title");
    assert!(about.contains("phase main: estimator = { grpo = {") && about.contains("objective = { reinforce ="), "{about}");
    assert!(!tab.text("document.querySelector('.turn .facts').textContent").contains("given"));
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium"]
fn ten_thousand_trajectories_open() {
    const GROUPS: usize = 1250;
    const MEMBERS: usize = 8;
    const TURNS: usize = 5;
    let records = (0..GROUPS).map(|g| {
        let mut turns = Vec::new();
        let mut leaves = Vec::new();
        for member in 0..MEMBERS {
            for t in 0..TURNS {
                let before = (t > 0).then(|| turns.len() - 1);
                let observation = format!(
                    "step {t} of task {}: the shelf holds {} jars, and the door is shut.\n{}",
                    g % 100,
                    (g + t * member) % 7,
                    "· ".repeat(60)
                );
                let action = format!("take jar {} from shelf {}", (g * 7 + member * 3 + t) % 11, t);
                let observation = if t == 0 { format!("task {}: put the jars away", g % 100) } else { observation };
                turns.push(turn(before, &observation, &action, Some(((g * 31 + member * 17 + t * 5) % 101) as f32 / 50.0 - 1.0)));
            }
            leaves.push(leaf(turns.len() - 1, if (g + member) % 3 == 0 { WON } else { LOST }));
            turns.last_mut().unwrap().reward = f32::from(u8::from((g + member) % 3 == 0));
        }
        group(g, &format!("jars {}", g % 100), turns, leaves)
    });
    let run = Run::new(&[(1, records.collect())]);
    let since = std::time::Instant::now();
    let page = run.page(&["-e", "grpo", "-e", "gigpo"]);
    let made = since.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(&page).unwrap().len();
    let mut browser = Browser::start();
    let mut tab = browser.open(&page);
    assert_eq!(counted(&mut tab), GROUPS * MEMBERS);
    let rows = "document.querySelectorAll('#rows .row').length";
    let seconds = tab.number("performance.getEntriesByName('rows')[0].startTime") / 1e3;
    let search =
        "(() => { const since = performance.now(); const it = document.getElementById('search'); it.value = 'jar 7 from';
        it.dispatchEvent(new Event('input', { bubbles: true })); return (performance.now() - since) / 1e3 })()";
    let in_sight = tab.number(rows);
    assert!((5.0..60.0).contains(&in_sight), "{in_sight} rows are in the page");
    tab.evaluate("document.getElementById('list').scrollTop = 300000; new Promise((done) => setTimeout(done, 200))");
    let middle = tab.text("document.querySelector('#rows .row').getAttribute('aria-posinset')");
    assert!(middle.parse::<usize>().unwrap() > 1000 && tab.number(rows) < 60.0, "{middle}");
    tab.press("End");
    assert_eq!(tab.text("document.querySelector('.row[aria-selected=true]').getAttribute('aria-posinset')"), "10000");
    assert_eq!((cells(&mut tab).len(), n_turns(&mut tab)), (3 * TURNS, TURNS));
    let searched = tab.number(search);
    assert!(counted(&mut tab) < GROUPS * MEMBERS && tab.number(rows) < 60.0);
    println!(
        "10,000 trajectories, {} turns, 3 lanes: {:.1} MB, made in {made:.1} s; rows after {seconds:.2} s, a search in {searched:.2} s",
        GROUPS * MEMBERS * TURNS,
        bytes as f64 / 1e6
    );
    assert_eq!(tab.problems(), [""; 0]);
}

#[test]
#[ignore = "needs Chromium"]
fn the_report_of_a_grid_opens_without_a_request() {
    let place = Place::new(&experiment(40, "[grid.arm.broken]\nestimator.command = { run = [\"false\"] }"));
    place.ascribe(&["grid", "run", "study.toml"]);
    let mut browser = Browser::start();
    let mut tab = browser.open(&place.grid().join("report/index.html"));
    for (dark, print) in [(false, false), (true, false), (false, true)] {
        tab.media(dark, print);
        assert_eq!(tab.problems(), Vec::<String>::new());
        // Paper and ink are told apart, and what is drawn takes part in it.
        assert_ne!(
            tab.text("getComputedStyle(document.body).color"),
            tab.text("getComputedStyle(document.body).backgroundColor")
        );
        let drawn = tab.number("[...document.querySelectorAll('figure svg text')].filter(t => getComputedStyle(t).fill === getComputedStyle(document.body).backgroundColor).length");
        assert_eq!(drawn, 0.0, "text of figures in the colour of the paper");
    }
    assert!(tab.number("document.querySelectorAll('figure svg').length") >= 3.0);
    assert_eq!(tab.number("document.querySelectorAll('h1').length"), 1.0);
    assert_eq!(
        tab.number("[...document.querySelectorAll('nav a')].filter(a => !document.querySelector(a.getAttribute('href'))).length"),
        0.0
    );
    assert_eq!(tab.number("[...document.querySelectorAll('figure svg')].filter(s => s.getAttribute('aria-hidden') !== 'true' && !s.getAttribute('aria-label')).length"), 0.0);
    // Arms are named, the one that failed too.
    for arm in ["grpo", "grpo + random", "rloo", "broken"] {
        assert!(tab.text("document.body.innerText").contains(arm), "{arm}");
    }
    // Paper has no keys.
    tab.media(false, false);
    tab.press("Tab");
    assert_eq!(tab.text("document.activeElement.textContent"), "Skip to the report");
}
