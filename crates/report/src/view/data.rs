//! The page's data: columns with numbers into one table of texts, so that ten thousand trajectories stay small.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ascribe_core::credit::spread;
use ascribe_core::log::{Limit, Origin, Stop, Validity};
use ascribe_core::need::Need;
use ascribe_core::{Batch, Credit, End, Group, Now, Scope};
use ascribe_run::trajectories::{GroupRecord, TurnRecord, restore};
use ascribe_study::hidden_class;
use serde::Serialize;

use super::source::Trained;
use super::{Damaged, Lane, Saved, ViewError};

/// Groups whose tokens share an element of the page. The page reads an element when one of its groups is asked for.
const GROUPS_PER_CHUNK: usize = 64;

/// A column of numbers of which some may be absent.
type Numbers = Vec<Option<f32>>;

/// Different texts, each once.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
struct Texts {
    all: Vec<String>,
    #[serde(skip)]
    place: HashMap<String, usize>,
}

impl Texts {
    fn id(&mut self, text: &str) -> usize {
        if let Some(id) = self.place.get(text) {
            return *id;
        }
        let id = self.all.len();
        self.all.push(text.into());
        self.place.insert(text.into(), id);
        id
    }
}

/// Credit of one estimator.
#[derive(Clone, Debug, Serialize)]
struct LaneColumn {
    /// What it is called.
    name: String,
    /// Where it comes from.
    about: String,
    /// Largest absolute credit, of turns and tokens.
    scale: f32,
    /// Whether some of it is finer than a turn.
    finer: bool,
    /// By turn. Of a turn whose credit is finer, the mean over its tokens that have one.
    credit: Numbers,
}

#[derive(Clone, Debug, Serialize)]
struct UpdateRow {
    update: u32,
    phase: String,
    alarms: Vec<String>,
}

/// Groups by column. `turn` and `path` say where the group's own begin; at the end stands where the last ones end.
#[derive(Clone, Debug, Default, Serialize)]
struct Groups {
    /// Place in `updates`.
    update: Vec<usize>,
    /// Place in the batch.
    number: Vec<usize>,
    /// The task's name and id, texts.
    name: Vec<usize>,
    task: Vec<usize>,
    /// The start: seed, origin and fingerprint, texts, and the number of turns before it.
    seed: Vec<usize>,
    origin: Vec<usize>,
    fingerprint: Vec<usize>,
    before: Vec<usize>,
    turn: Vec<usize>,
    path: Vec<usize>,
}

/// Turns by column, those of a group together.
#[derive(Clone, Debug, Default, Serialize)]
struct Turns {
    /// Place within the group; -1 for none.
    parent: Vec<i64>,
    /// Texts.
    agent: Vec<usize>,
    observation: Vec<usize>,
    action: Vec<usize>,
    spans: Vec<usize>,
    /// Equal numbers are equal keys, over all groups.
    seen: Vec<usize>,
    state: Vec<usize>,
    /// What estimators called reward, and what the environment paid.
    reward: Vec<f32>,
    env_reward: Vec<f32>,
    validity: Vec<&'static str>,
    /// Whether the token limit cut it.
    cut: Vec<u8>,
    temperature: Vec<f32>,
    version: Vec<u64>,
    /// Number of tokens: read, acted with, sampled of those.
    read: Vec<usize>,
    acted: Vec<usize>,
    sampled: Vec<usize>,
    /// Mean log-probability and entropy of the sampled ones.
    logprob: Numbers,
    entropy: Numbers,
}

/// Trajectories: a group's ends, in their order.
#[derive(Clone, Debug, Default, Serialize)]
struct Paths {
    group: Vec<usize>,
    /// Last turn, within the group; -1 for none.
    turn: Vec<i64>,
    /// One of `success`, `failure`, `truncated`, `boundary`, `untried`, `failed`.
    outcome: Vec<&'static str>,
    /// How it ended, in words: a text.
    end: Vec<usize>,
}

/// All but the tokens.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Table {
    title: String,
    left_out: usize,
    /// Characters that are shown by name: a class of a regular expression.
    hidden: String,
    lanes: Vec<LaneColumn>,
    updates: Vec<UpdateRow>,
    texts: Texts,
    groups: Groups,
    turns: Turns,
    paths: Paths,
    /// Columns on turns.
    signals: BTreeMap<String, Numbers>,
    /// Columns on states: of each group its start, then one after each turn.
    states: BTreeMap<String, Numbers>,
    groups_per_chunk: usize,
}

/// Tokens of a group, by turn.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tokens {
    /// Tokens it acted with.
    ids: Vec<Vec<u32>>,
    /// Which of them were sampled; `null` where all were.
    at: Vec<Option<Vec<u32>>>,
    /// Of the sampled ones; log-probabilities and entropies to four decimals.
    logprob: Vec<Option<Vec<f64>>>,
    entropy: Vec<Option<Vec<f64>>>,
    /// How many tokens were allowed, 0 for all; `null` where all were everywhere.
    allowed: Vec<Option<Vec<usize>>>,
    /// Columns on tokens.
    columns: BTreeMap<String, Vec<Numbers>>,
    /// Credit by lane, where it is finer than a turn.
    credit: BTreeMap<usize, Vec<Numbers>>,
}

/// Gathers the page's data.
pub(crate) struct Data {
    table: Table,
    keys: HashMap<Vec<u8>, usize>,
    tokens: Vec<Tokens>,
}

impl Data {
    /// * `trained`: what trained, by phase.
    pub(crate) fn new(title: &str, trained: &BTreeMap<String, Trained>, lanes: &[Lane]) -> Self {
        let lane = |name: &str, about: &str| LaneColumn {
            name: name.into(),
            about: about.into(),
            scale: 0.0,
            finer: false,
            credit: Vec::new(),
        };
        let names: BTreeSet<&str> = trained.values().map(|of| of.name.as_str()).collect();
        let about = match trained.len() {
            0 => "; which estimator gave it is not known: the run's resolved.toml is not there".into(),
            _ => trained.iter().map(|(phase, of)| format!("\nphase {phase}: {}", of.settings)).collect::<String>(),
        };
        let trained = lane(
            &match names.len() {
                0 => "trained on".into(),
                _ => format!("trained on: {}", names.into_iter().collect::<Vec<_>>().join(" / ")),
            },
            &format!("the credit that the update trained on, after all transforms{about}"),
        );
        let again = |it: &Lane| {
            // Every key with its value, those left out too.
            let settings = serde_json::to_string(&it.estimator).unwrap_or_default();
            lane(&it.name, &format!("computed again on the batch as it was, without transforms: {settings}"))
        };
        let table = Table {
            title: title.into(),
            left_out: 0,
            hidden: hidden_class(),
            lanes: [trained].into_iter().chain(lanes.iter().map(again)).collect(),
            updates: Vec::new(),
            texts: Texts::default(),
            groups: Groups::default(),
            turns: Turns::default(),
            paths: Paths::default(),
            signals: BTreeMap::new(),
            states: BTreeMap::new(),
            groups_per_chunk: GROUPS_PER_CHUNK,
        };
        let mut data = Self { table, keys: HashMap::new(), tokens: Vec::new() };
        // The empty text is number 0: what has none is seen at once.
        data.table.texts.id("");
        data
    }

    /// Adds the batch of an update, or says why it cannot be.
    pub(crate) fn add(&mut self, saved: &Saved, lanes: &[Lane]) -> Result<Option<Damaged>, ViewError> {
        let update = saved.update;
        let restored = match restore(&saved.groups) {
            Ok(restored) => restored,
            Err(e) => return Ok(Some(Damaged::batch(update, format!("its parts do not fit together: {e}")))),
        };
        for lane in lanes {
            covered(lane, &restored.batch, update)?;
        }
        let phase = saved.groups.first().map(|group| group.phase.clone()).unwrap_or_default();
        let now = Now { update: update.saturating_sub(1), phase: phase.clone(), ..Now::default() };
        let of_update = self.table.updates.len();
        self.table.updates.push(UpdateRow { update, phase, alarms: saved.alarms.clone() });
        for ((record, group), trained) in saved.groups.iter().zip(restored.batch.groups()).zip(&restored.credit) {
            let mut tokens = self.turns(record, group);
            self.lane(0, record, group, trained, &mut tokens);
            for (i, lane) in lanes.iter().enumerate() {
                let credit = estimate(lane, group, &now, update)?;
                self.lane(i + 1, record, group, &credit, &mut tokens);
            }
            self.group(of_update, record);
            self.tokens.push(tokens);
        }
        Ok(None)
    }

    /// The table, and the tokens of each chunk of groups.
    ///
    /// * `left_out`: trajectories beyond the limit.
    pub(crate) fn finish(mut self, left_out: usize) -> (Table, Vec<Vec<Tokens>>) {
        self.table.left_out = left_out;
        self.table.groups.turn.push(self.table.turns.parent.len());
        self.table.groups.path.push(self.table.paths.group.len());
        let chunks = self.tokens.chunks(GROUPS_PER_CHUNK).map(<[Tokens]>::to_vec).collect();
        (self.table, chunks)
    }

    /// Adds a group whose turns are there already.
    fn group(&mut self, update: usize, record: &GroupRecord) {
        let Table { groups, paths, texts, turns, .. } = &mut self.table;
        let origin = match &record.origin {
            Origin::Root => "start of the task".into(),
            Origin::Restored { age } => format!("a stored state, {age} updates old"),
            Origin::Replayed { age } => format!("played again, {age} updates old"),
        };
        let number = groups.update.len();
        groups.update.push(update);
        groups.number.push(record.group);
        groups.name.push(texts.id(&record.name));
        groups.task.push(texts.id(&record.task.to_string()));
        groups.seed.push(texts.id(&record.seed.to_string()));
        groups.origin.push(texts.id(&origin));
        groups.fingerprint.push(texts.id(&record.fingerprint));
        groups.before.push(record.before);
        groups.turn.push(turns.parent.len() - record.turns.len());
        groups.path.push(paths.group.len());
        for leaf in &record.leaves {
            let (outcome, end) = words(&leaf.end);
            paths.group.push(number);
            paths.turn.push(place(leaf.turn));
            paths.outcome.push(outcome);
            paths.end.push(texts.id(&end));
        }
    }

    /// Adds a group's turns, with its columns.
    fn turns(&mut self, record: &GroupRecord, group: Group<'_>) -> Tokens {
        let first = self.table.turns.parent.len();
        let state = first + self.table.groups.update.len();
        let mut tokens = Tokens::default();
        for turn in &record.turns {
            self.turn(turn);
            let n = turn.tokens.len();
            let all = turn.at.len() == n && turn.at.iter().copied().eq(0..n as u32);
            let allowed = |s: &usize| s.checked_sub(1).and_then(|s| record.supports.get(s)).map_or(0, |s| s.len());
            tokens.ids.push(turn.tokens.clone());
            tokens.at.push((!all).then(|| turn.at.clone()));
            tokens.logprob.push(turn.logprob.as_deref().map(rounded));
            tokens.entropy.push(turn.entropy.as_deref().map(rounded));
            tokens.allowed.push((!turn.support.is_empty()).then(|| turn.support.iter().map(allowed).collect()));
            for (name, x) in &turn.signals {
                let row = self.table.turns.parent.len() - 1;
                let column = self.table.signals.entry(name.clone()).or_default();
                column.resize(row, None);
                column.push(Some(*x));
            }
        }
        for (name, numbers) in &record.states {
            let column = self.table.states.entry(name.clone()).or_default();
            column.resize(state, None);
            column.extend_from_slice(numbers);
        }
        for (name, numbers) in &record.tokens {
            let of_turns = (0..group.n_turns()).map(|t| numbers[group.sampled_of(t)].to_vec());
            tokens.columns.insert(name.clone(), of_turns.collect());
        }
        tokens
    }

    fn turn(&mut self, turn: &TurnRecord) {
        let Table { turns, texts, .. } = &mut self.table;
        let n = self.keys.len();
        turns.seen.push(*self.keys.entry(turn.observation.0.clone()).or_insert(n));
        let n = self.keys.len();
        turns.state.push(*self.keys.entry(turn.state.0.clone()).or_insert(n));
        turns.parent.push(place(turn.parent));
        turns.agent.push(texts.id(&turn.agent));
        turns.observation.push(texts.id(&turn.observation_text));
        turns.action.push(texts.id(&turn.action_text));
        let spans = turn.spans.iter().map(|span| format!("{} {}..{}", span.name, span.start, span.end));
        turns.spans.push(texts.id(&spans.collect::<Vec<_>>().join(", ")));
        turns.reward.push(turn.reward);
        turns.env_reward.push(turn.env_reward);
        turns.validity.push(match turn.validity {
            Validity::Valid => "valid",
            Validity::Refused => "refused",
            Validity::Malformed => "malformed",
            Validity::Cut => "cut",
        });
        turns.cut.push(u8::from(turn.stop == Stop::Length));
        turns.temperature.push(turn.temperature);
        turns.version.push(turn.policy_version);
        turns.read.push(turn.read.len());
        turns.acted.push(turn.tokens.len());
        turns.sampled.push(turn.at.len());
        turns.logprob.push(turn.logprob.as_deref().and_then(mean));
        turns.entropy.push(turn.entropy.as_deref().and_then(mean));
    }

    /// Adds a group's credit to a lane.
    fn lane(&mut self, lane: usize, record: &GroupRecord, group: Group<'_>, credit: &Credit, tokens: &mut Tokens) {
        let column = &mut self.table.lanes[lane];
        let n = group.n_turns();
        if credit.spans.is_empty() && credit.tokens.is_empty() {
            column.credit.extend_from_slice(&credit.turns);
        } else {
            let finest: Numbers = spread(group, credit).advantage.iter().collect();
            let of_turns: Vec<Numbers> = (0..n).map(|t| finest[group.sampled_of(t)].to_vec()).collect();
            column.credit.extend(of_turns.iter().zip(&credit.turns).map(|(of_turn, turn)| {
                let scored: Vec<f32> = of_turn.iter().copied().flatten().collect();
                if of_turn.is_empty() { *turn } else { mean(&scored) }
            }));
            column.scale = finest.iter().flatten().fold(column.scale, |most, x| most.max(x.abs()));
            column.finer = true;
            tokens.credit.insert(lane, of_turns);
        }
        // Turns of failed paths alone are trained by nobody.
        column.credit.resize(column.credit.len() + record.turns.len() - n, None);
        let added = &column.credit[column.credit.len() - record.turns.len()..];
        column.scale = added.iter().flatten().fold(column.scale, |most, x| most.max(x.abs()));
    }
}

/// A place within a group; -1 for none.
fn place(of: Option<usize>) -> i64 {
    of.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1)
}

fn mean(numbers: &[f32]) -> Option<f32> {
    let sum: f64 = numbers.iter().map(|x| f64::from(*x)).sum();
    (!numbers.is_empty()).then(|| (sum / numbers.len() as f64) as f32)
}

fn rounded(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|x| (f64::from(*x) * 1e4).round() / 1e4).collect()
}

/// What became of a path, and how it ended.
fn words(end: &End) -> (&'static str, String) {
    match end {
        End::Terminated { success: true } => ("success", "over, solved".into()),
        End::Terminated { success: false } => ("failure", "over, not solved".into()),
        End::Truncated(limit) => {
            let limit = match limit {
                Limit::Turns => "turns of the episode",
                Limit::Tokens => "tokens of the episode",
                Limit::Context => "context window",
                Limit::Time => "time of a step",
            };
            ("truncated", format!("cut by a limit: {limit}"))
        }
        End::MacroBoundary => ("boundary", "end of a macro step; it can be continued".into()),
        End::Untried => ("untried", "sampled, not carried out".into()),
        End::Failed(why) => ("failed", format!("broke: {why}")),
    }
}

/// Credit of a group, checked.
fn estimate(lane: &Lane, group: Group<'_>, now: &Now, update: u32) -> Result<Credit, ViewError> {
    let failed = |reason| ViewError::Estimate { lane: lane.name.clone(), task: group.about().task_name.clone(), update, reason };
    let credit = lane.estimator.estimate(group, now).map_err(|e| failed(e.0))?;
    credit.check(group).map_err(failed)?;
    Ok(credit)
}

/// Whether a batch has what an estimator reads.
fn covered(lane: &Lane, batch: &Batch, update: u32) -> Result<(), ViewError> {
    const CRITIC: &str = "a run has it whose critic computes it";
    for need in lane.estimator.needs() {
        let has = |scope| {
            let names: Vec<String> =
                batch.signals.iter().filter(|(_, s)| s.scope == scope).map(|(name, _)| format!("`{name}`")).collect();
            if names.is_empty() { "it has no such columns".into() } else { format!("it has {}", names.join(", ")) }
        };
        let column = |name: &str, scope| batch.signals.get(name).filter(|s| s.scope == scope).map(|s| &s.column);
        let sampled = |column: &ascribe_core::Column| batch.groups().all(|g| column.slice(g.sampled()).is_some());
        let lacks = match &need {
            Need::Signal(name, Scope::State) => {
                let whole = |c: &ascribe_core::Column| {
                    batch.groups().all(|g| c.slice(g.rows().start + g.index()..g.rows().end + g.index() + 1).is_some())
                };
                match column(name, Scope::State) {
                    None => Some((has(Scope::State), CRITIC)),
                    Some(c) if !whole(c) => Some(("its column has gaps".into(), CRITIC)),
                    Some(_) => None,
                }
            }
            Need::SomeStates(name) => column(name, Scope::State).is_none().then(|| (has(Scope::State), CRITIC)),
            Need::Signal(name, scope) => column(name, *scope).is_none().then(|| (has(*scope), CRITIC)),
            Need::BehaviorLogprob => {
                let remedy = "an update has them whose actions were sampled";
                (!sampled(&batch.sampled.logprob)).then(|| ("its actions were given".into(), remedy))
            }
            Need::Entropy => {
                let remedy = "an update has them whose actions were sampled";
                (!sampled(&batch.sampled.entropy)).then(|| ("its actions were given".into(), remedy))
            }
            Need::Chains => {
                let branches =
                    |g: Group<'_>| (0..g.n_turns()).any(|t| g.n_children(t) > 1 || g.n_children(t) == 1 && g.end(t).is_some());
                let remedy = "a run of independent rollouts has them";
                batch.groups().any(branches).then(|| ("its paths share turns".into(), remedy))
            }
            _ => None,
        };
        if let Some((has, remedy)) = lacks {
            return Err(ViewError::Lacks { lane: lane.name.clone(), need: need.to_string(), update, has, remedy });
        }
    }
    Ok(())
}
