//! Groups that are made up, and columns for them.
//!
//! Every number is a function of a turn's label and never of its place, so that a group can be rearranged, or stand among
//! others, and keep its numbers.

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{Action, Context, GroupLog, History, LeafLog, NamedSpan, TurnLog, Validity};
use ascribe_core::{Batch, Column, Draw, End, Limit, Need, Rng, Scope, Seeds, Signal};

/// A group and what it is, for messages.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub name: String,
    pub log: GroupLog,
}

/// A number of `[0, 1)` on a grid that `f32` holds exactly, for a label and a column.
fn number(label: &str, column: &str) -> f32 {
    // FNV-1a: any mixing of the letters will do.
    let hash = label
        .bytes()
        .chain([0])
        .chain(column.bytes())
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    ((hash >> 20) % 64) as f32 / 64.0
}

pub(crate) const WON: End = End::Terminated { success: true };
pub(crate) const LOST: End = End::Terminated { success: false };

/// A turn with its label, so many sampled tokens and a reward. States repeat, so that groups of them can form.
pub(crate) fn turn(label: &str, parent: Option<usize>, tokens: usize, reward: f32) -> TurnLog {
    let state = |of: &str| format!("state {}", (number(of, "state") * 4.0) as u8).into_bytes();
    let start = b"start".to_vec();
    let before = if parent.is_none() { start } else { state(label) };
    let columns = |name: &str| (0..tokens).map(|i| number(label, &format!("{name} {i}"))).collect::<Vec<f32>>();
    TurnLog {
        parent,
        agent: "actor".into(),
        // Tokens that no action has: what was fed is told from what was sampled.
        read: vec![1001, 1002],
        action: Action {
            logprob: Some(columns("logprob").into_iter().map(|x| -x - 0.125).collect()),
            entropy: Some(columns("entropy")),
            ..Action::given((0..tokens).map(|i| (number(label, &format!("token {i}")) * 4.0) as u32).collect())
        },
        reward,
        validity: if number(label, "validity") < 0.25 { Validity::Refused } else { Validity::Valid },
        observation_text: String::from_utf8_lossy(&before).into_owned(),
        observation: before.clone(),
        state: before,
        state_after: state(&format!("{label} after")),
        action_key: vec![(number(label, "action") * 3.0) as u8],
        action_text: format!("action of {label}"),
        spans: if tokens > 1 { vec![NamedSpan { name: "plan".into(), start: 0, end: 1 }] } else { Vec::new() },
        // The label travels here: only critics may read it.
        privileged: Some(label.to_string()),
        ..TurnLog::default()
    }
}

/// A group of independent paths: per path its turns' (tokens, reward) and its end.
pub(crate) fn chains(paths: &[(Vec<(usize, f32)>, End)]) -> GroupLog {
    let mut log = GroupLog { task_name: "made up".into(), ..GroupLog::default() };
    for (p, (turns, end)) in paths.iter().enumerate() {
        push_path(&mut log, &p.to_string(), turns, end.clone());
    }
    log
}

/// Appends one path; its label names its turns.
pub(crate) fn push_path(log: &mut GroupLog, label: &str, turns: &[(usize, f32)], end: End) {
    let mut parent = None;
    for (t, (tokens, reward)) in turns.iter().enumerate() {
        log.turns.push(turn(&format!("{label}.{t}"), parent, *tokens, *reward));
        parent = Some(log.turns.len() - 1);
    }
    log.leaves.push(LeafLog { turn: parent, end, seed: 0 });
}

fn reward(rng: &mut Rng) -> f32 {
    rng.below(9) as f32 / 8.0
}

/// Random independent paths that truly ended; at least two, with different outcomes.
pub(crate) fn random_chains(seed: u64) -> GroupLog {
    let mut rng = Seeds(seed).rng("conformance/chains", Draw::default());
    let paths: Vec<_> = (0..2 + rng.below(6))
        .map(|p| {
            let n = 1 + rng.below(5);
            let mut turns: Vec<(usize, f32)> = (0..n).map(|_| (1 + rng.below(3), reward(&mut rng))).collect();
            // No two outcomes are equal, so that no tie has to be broken.
            turns[n - 1].1 += p as f32 / 128.0;
            (turns, if rng.below(2) == 0 { WON } else { LOST })
        })
        .collect();
    chains(&paths)
}

/// A random forest: paths that fork, and ends of every kind.
pub(crate) fn random_forest(seed: u64) -> GroupLog {
    let mut rng = Seeds(seed).rng("conformance/forest", Draw::default());
    let mut log = GroupLog { task_name: "made up".into(), ..GroupLog::default() };
    let n = 2 + rng.below(12);
    for t in 0..n {
        let parent = if t == 0 || rng.below(3) == 0 { None } else { Some(rng.below(t)) };
        let (tokens, paid) = (rng.below(4), reward(&mut rng));
        log.turns.push(turn(&format!("tree.{t}"), parent, tokens, paid));
    }
    let parents: Vec<Option<usize>> = log.turns.iter().map(|t| t.parent).collect();
    for t in (0..n).filter(|t| !parents.contains(&Some(*t))) {
        let end = match rng.below(8) {
            0 => End::Truncated(Limit::Turns),
            1 => End::MacroBoundary,
            2 => End::Failed("made up".into()),
            3 => End::Untried,
            k => End::Terminated { success: k < 6 },
        };
        log.leaves.push(LeafLog { turn: Some(t), end, seed: 0 });
    }
    log
}

/// The odd ones.
pub(crate) fn odd() -> Vec<Case> {
    let case = |name: &str, log: GroupLog| Case { name: name.into(), log };
    let path = |rewards: &[f32]| rewards.iter().map(|r| (1, *r)).collect::<Vec<_>>();
    let of = |paths: &[(&[f32], End)]| chains(&paths.iter().map(|(r, end)| (path(r), end.clone())).collect::<Vec<_>>());
    let cut = End::Truncated(Limit::Turns);
    let mut restart = of(&[(&[0.0, 0.5, 1.0], WON), (&[0.0, 0.0], LOST)]);
    restart.turns[1].context = Context::Restart;
    restart.turns[2].context = Context::Restart;
    let mut shared = GroupLog { task_name: "made up".into(), ..GroupLog::default() };
    for (t, parent) in [None, Some(0), Some(1), Some(1), Some(0)].into_iter().enumerate() {
        shared.turns.push(turn(&format!("shared.{t}"), parent, 2, t as f32 / 8.0));
    }
    for (t, end) in [(2, WON), (3, LOST), (4, cut.clone())] {
        shared.leaves.push(LeafLog { turn: Some(t), end, seed: 0 });
    }
    let mut ends_above = shared.clone();
    ends_above.leaves.push(LeafLog { turn: Some(1), end: cut.clone(), seed: 0 });
    let mut fed = chains(&[(vec![(2, 0.0), (3, 1.0)], WON), (vec![(2, 0.25), (1, 0.0)], LOST)]);
    for turn in &mut fed.turns {
        // A fed token before each that was sampled.
        turn.action.tokens = turn.action.tokens.iter().flat_map(|token| [1003, *token]).collect();
        turn.action.at.iter_mut().for_each(|at| *at = 2 * *at + 1);
        turn.spans.iter_mut().for_each(|span| span.end *= 2);
    }
    let failed = || End::Failed("made up".into());
    vec![
        case("a group of one", of(&[(&[0.0, 1.0], WON)])),
        case("equal outcomes", of(&[(&[0.0, 1.0], WON), (&[1.0], WON), (&[0.5, 0.5], WON)])),
        case("everyone lost", of(&[(&[0.0], LOST), (&[0.0, 0.0], LOST), (&[0.0, 0.0, 0.0], LOST)])),
        case("ties", of(&[(&[1.0], WON), (&[1.0], WON), (&[0.0], LOST), (&[0.0], LOST)])),
        case("all failed", of(&[(&[1.0], failed()), (&[0.0], failed())])),
        case("one did not fail", of(&[(&[1.0], WON), (&[0.0], failed())])),
        case("nothing was tried", of(&[(&[0.0], End::Untried), (&[0.0], End::Untried)])),
        case("one was tried", of(&[(&[1.0], WON), (&[0.0], End::Untried)])),
        case("untried at the end of a path", of(&[(&[1.0, 0.0], End::Untried), (&[0.5], LOST)])),
        case("cut by a limit", of(&[(&[0.5, 0.0], cut.clone()), (&[0.0], cut)])),
        case("the ends of macro steps", of(&[(&[0.5], End::MacroBoundary), (&[0.0], End::MacroBoundary), (&[1.0], WON)])),
        case("contexts that restart", restart),
        case("shared turns", shared),
        case("fed tokens between sampled ones", fed),
        case("a path that ends where others go on", ends_above),
        case(
            "a turn without tokens, in the middle and at the end",
            chains(&[(vec![(1, 0.0), (0, 0.5), (2, 1.0), (0, 0.25)], WON), (vec![(0, 0.0), (1, 0.0)], LOST)]),
        ),
        case("a thousand turns", chains(&[(vec![(1, 0.0); 1000], LOST), (path(&[0.0, 1.0]), WON)])),
        case("tiny and huge rewards", of(&[(&[1e-30], WON), (&[1e30], WON), (&[-1e30, 0.0], LOST)])),
    ]
}

/// Gives a group a history of frozen turns.
pub(crate) fn with_history(mut log: GroupLog) -> GroupLog {
    log.history = History { tokens: vec![3, 4, 5, 6], ..History::default() };
    log
}

/// A batch of these groups, with every column that `needs` names.
///
/// * `scale`: what values are multiplied with: columns whose name says `value`.
pub(crate) fn batch(logs: Vec<GroupLog>, needs: &[Need], scale: f32) -> Result<Batch, String> {
    let mut batch = Batch::from_groups(logs, NonFinite::Refuse).map_err(|e| e.to_string())?;
    for need in needs {
        if let Some((name, scope)) = need.column() {
            add(&mut batch, name, scope, scale)?;
        }
    }
    Ok(batch)
}

/// Adds a column of made-up numbers.
pub(crate) fn add(batch: &mut Batch, name: &str, scope: Scope, scale: f32) -> Result<(), String> {
    let label = |batch: &Batch, row: usize| batch.notes[row].privileged.clone().unwrap_or_default();
    let rows = batch.turns.parent.len();
    let scale = if name.contains("value") { scale } else { 1.0 };
    let values: Vec<f32> = match scope {
        Scope::Turn => (0..rows).map(|row| number(&label(batch, row), name)).collect(),
        Scope::Token => (0..rows)
            .flat_map(|row| {
                let label = label(batch, row);
                (0..batch.turns.sampled[row].len()).map(move |i| scale * number(&label, &format!("{name} {i}")))
            })
            .collect(),
        Scope::State => {
            let mut values = Vec::new();
            for group in &batch.groups {
                values.push(scale * number("start", name));
                let rows = group.rows.range().chain(group.aside_rows.range());
                values.extend(rows.map(|row| scale * number(&label(batch, row), name)));
            }
            values
        }
    };
    batch.add_signal(name, Signal { scope, provider: "conformance".into(), column: Column::full(values) })
}
