//! Every critic of the catalogue, from its own example; and a critic for each way of going wrong, with the check that says so.

#![allow(clippy::unwrap_used)]

mod example;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ascribe_conformance::{Among, Outcome, Report, critic, lacks};
use ascribe_core::critic::{Lesson, LessonRows};
use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{OptimStep, Part, PolicyError, ScoreRequest};
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::rollout::Acting;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, Need, Objective, Policy, PolicyConfig, RowSet, Scope,
    Seeds, Signal, Slot, TaskSet, TaskSetConfig,
};
use serde::{Deserialize, Serialize};

use example::plugin;

// The plugin crates are linked.
use {ascribe_critics as _, ascribe_environments as _, ascribe_objectives as _, ascribe_policies as _};

fn tasks(name: &str, keys: &str) -> Result<Box<dyn TaskSet>, BuildError> {
    let context = BuildContext {
        seeds: Seeds(0),
        device: "cpu",
        threads: 1,
        environment: None,
        nodes: Default::default(),
        base: ".".into(),
    };
    plugin::<Slot<dyn TaskSetConfig>>(name, keys).build(&context)
}

/// A table, or where hidden vectors are asked for a policy that has them, if one is linked.
fn acting(needs: &[Need]) -> Slot<dyn PolicyConfig> {
    let linked = plugins(Kind::Policy).into_iter().map(|row| plugin::<Slot<dyn PolicyConfig>>(row.name, row.example));
    let seeing = needs.contains(&Need::Hidden).then(|| { linked }.find(|policy| policy.hidden())).flatten();
    seeing.unwrap_or_else(|| plugin("tabular", ""))
}

/// Holds a critic to its contract in an environment.
fn checked(config: &dyn CriticConfig, tasks: &dyn TaskSet) -> Report {
    let policy = acting(&config.needs());
    let objective: Slot<dyn Objective> = plugin("nll", "");
    critic(config, Among { tasks, policy: &*policy, objective: &*objective })
}

/// An environment that gives what a critic needs: `bugfix` where it does, for its episodes have text and fail in many ways.
fn fitting(config: &dyn CriticConfig) -> Option<Box<dyn TaskSet>> {
    let needs = config.needs();
    let mut rows = plugins(Kind::Environment);
    rows.sort_by_key(|row| row.name != "bugfix");
    let mut all = rows.into_iter().filter_map(|row| tasks(row.name, row.example).ok());
    // A policy of tables acts by state keys.
    let gives = |provided: &[Need]| provided.contains(&Need::ExactStateKey) && lacks(&needs, provided).is_none();
    all.find(|tasks| gives(&tasks.capabilities().provides))
}

#[test]
fn critics_keep_what_all_must() {
    let mut out = Vec::new();
    let rows = plugins(Kind::Critic);
    assert!(rows.len() > 3, "the catalogue is linked");
    for row in rows {
        let config: Slot<dyn CriticConfig> = plugin(row.name, row.example);
        let tasks = fitting(&*config).unwrap_or_else(|| panic!("no environment gives what `{}` needs", row.name));
        let report = checked(&*config, &*tasks);
        out.extend(report.broken().map(|(what, finding)| format!("`{}`: {what}: {finding}", row.name)));
        let held = report.0.iter().filter(|check| matches!(check.outcome, Outcome::Held(n) if n > 0)).count();
        println!("{}: {held} of {} checks asked and held", row.name, report.0.len());
        // Without its feature, the policies that see are not linked.
        let may_be_blind = config.needs().contains(&Need::Hidden) && !acting(&config.needs()).hidden();
        let unasked = report.0.iter().filter_map(|check| match &check.outcome {
            Outcome::NotAsked(why) if !["it has no state", "it gives no lessons"].contains(&why.as_str()) => {
                Some((check.what, why))
            }
            _ => None,
        });
        let unasked = unasked.filter(|_| !may_be_blind);
        out.extend(unasked.map(|(what, why)| format!("`{}`: {what}: not asked, because {why}", row.name)));
    }
    assert!(out.is_empty(), "{}", out.join("\n"));
}

/// A way of going wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Fault {
    /// None.
    Sound,
    NeedsTheImpossible,
    TableDisagrees,
    WritesUndeclared,
    LeavesOutAColumn,
    WrongScope,
    WrongLength,
    NotFinite,
    OtherProvider,
    Gaps,
    PanicsOnEmptyGroups,
    PanicsWithoutGroups,
    GapsInEmptyGroups,
    ReadsFailedPaths,
    FailsOnForks,
    FailsOnNonsense,
    PanicsWhenItBreaks,
    KeepsCount,
    Threads,
    ForgetsState,
    RefusesItsState,
    TakesDamaged,
    PanicsOnDamaged,
    TrainsInJudge,
    LeavesSessionsOpen,
    DoesNotCountTokens,
    DoesNotCountSteps,
    ReportsElsewhere,
    ReportsNan,
    LessonForNobody,
    LessonWithoutRows,
    LessonForOthersColumn,
    LessonForTooFewGroups,
    LessonNotFinite,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Faulty {
    fault: Fault,
}

/// Lives through every critic that is built.
static COUNT: AtomicU32 = AtomicU32::new(0);

#[typetag::serde(name = "faulty-critic")]
impl CriticConfig for Faulty {
    fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
        Ok(Box::new(Live { name: name.into(), fault: self.fault, judged: 0 }))
    }
    fn needs(&self) -> Vec<Need> {
        let more = if self.fault == Fault::NeedsTheImpossible { Some(Need::Oracle) } else { None };
        [Need::Node("actor".into()), Need::GroundTruth].into_iter().chain(more).collect()
    }
    fn provides(&self) -> Vec<Need> {
        let value = Need::Signal("value".into(), Scope::State);
        let mark = Need::Signal("mark".into(), Scope::Turn);
        if self.fault == Fault::TableDisagrees { vec![value] } else { vec![value, mark] }
    }
}

/// Values are the number of batches that it has judged; marks are log-probabilities of the turns' first tokens.
struct Live {
    name: String,
    fault: Fault,
    judged: u32,
}

impl Live {
    fn rows(batch: &Batch, group: usize) -> RowSet {
        let credit: Vec<Credit> = batch
            .groups()
            .map(|g| if g.index() < group { Credit::per_turn(vec![0.0; g.n_turns()]) } else { untrained(g.n_turns()) })
            .collect();
        RowSet::from_credit(batch, &credit, Some("actor"))
    }
}

fn untrained(turns: usize) -> Credit {
    Credit { turns: vec![None; turns], ..Credit::default() }
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![("value".into(), Scope::State), ("mark".into(), Scope::Turn)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let fault = self.fault;
        let unsupported = |e: String| PolicyError::Unsupported(e);
        assert!(fault != Fault::PanicsWithoutGroups || !batch.groups.is_empty(), "I am idle");
        assert!(fault != Fault::PanicsOnEmptyGroups || batch.groups().all(|g| g.n_turns() > 0), "an empty group");
        let forks = batch.groups().any(|g| (0..g.n_turns()).any(|t| g.n_children(t) > 1));
        if fault == Fault::FailsOnForks && forks {
            return Err(unsupported("it forks".into()));
        }
        if fault == Fault::FailsOnNonsense && batch.notes.iter().any(|note| note.action.contains('{') || note.action.is_empty()) {
            return Err(unsupported("an action is no JSON".into()));
        }

        let rows = Self::rows(batch, usize::MAX);
        let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
        let policy = acting.node("actor")?;
        let logprob = policy.score(&rows, &request)?.columns.pop().unwrap();
        if fault == Fault::LeavesSessionsOpen {
            policy.open()?;
        }
        if fault == Fault::TrainsInJudge {
            step(&mut **policy, &rows)?;
        }
        if fault != Fault::DoesNotCountTokens {
            acting.ledger.critic_tokens += rows.rows.iter().map(|row| row.tokens.len() as u64).sum::<u64>();
        }
        if let Some(group) = batch.groups.first() {
            let mut episode = acting.tasks.open(&group.task, group.seed).map_err(|e| unsupported(e.to_string()))?;
            let said = ascribe_core::environment::ActionText { text: "read", complete: true };
            let stepped = episode.step(said);
            assert!(fault != Fault::PanicsWhenItBreaks || stepped.is_ok(), "it broke");
            acting.ledger.env_steps += u64::from(fault != Fault::DoesNotCountSteps);
        }
        let reports =
            if fault == Fault::ReportsElsewhere { "critic/judged".into() } else { format!("critic/{}/judged", self.name) };
        acting.metrics.set(reports, if fault == Fault::ReportsNan { f64::NAN } else { f64::from(self.judged) });

        let number = match fault {
            Fault::KeepsCount => COUNT.fetch_add(1, Ordering::Relaxed),
            Fault::Threads => rayon::current_num_threads() as u32,
            _ => self.judged,
        };
        self.judged += 1;
        let mut value = Column::absent(batch.scope_len(Scope::State));
        for group in batch.groups() {
            let first = group.rows().start + group.index();
            if fault == Fault::ReadsFailedPaths && !group.about().aside_rows.is_empty() {
                value = Column::full(vec![
                    f32::from(u8::from(group.trajectories().nth(3).unwrap().leaf().end.success()));
                    value.len()
                ]);
            }
            if fault == Fault::GapsInEmptyGroups && group.n_turns() == 0 {
                continue;
            }
            let skip = usize::from(fault == Fault::Gaps);
            (first + skip..=first + group.n_turns()).for_each(|state| value.set(state, number as f32));
        }
        let mut mark = Column::absent(batch.scope_len(Scope::Turn));
        for turn in &rows.turns {
            let x = logprob[turn.trained.start];
            mark.set(turn.turn as usize, if fault == Fault::NotFinite { f32::INFINITY } else { x });
        }
        if fault == Fault::WrongLength {
            mark.push(None);
        }
        let provider = if fault == Fault::OtherProvider { "critic".into() } else { self.name.clone() };
        let signal = |scope, column| Signal { scope, provider: provider.clone(), column };
        let of_marks = if fault == Fault::WrongScope { Scope::Token } else { Scope::Turn };
        let mut out = vec![("value".into(), signal(Scope::State, value)), ("mark".into(), signal(of_marks, mark.clone()))];
        match fault {
            Fault::WritesUndeclared => out.push(("more".into(), signal(Scope::Turn, mark))),
            Fault::LeavesOutAColumn => drop(out.pop()),
            _ => {}
        }
        Ok(out)
    }

    fn learn(&mut self, batch: &Batch, _credit: &[Credit], _acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let own = |n| LessonRows::Own(Arc::new(Self::rows(batch, n)));
        let target = |g: ascribe_core::Group<'_>| ascribe_core::credit::Target {
            scope: Scope::State,
            column: Column::full(vec![1.0; g.n_turns() + 1]),
        };
        let acted =
            |name: &str, n| LessonRows::Acted(BTreeMap::from([(name.into(), batch.groups().take(n).map(target).collect())]));
        let (node, rows, scale) = match self.fault {
            Fault::LessonForNobody => ("nobody", own(usize::MAX), 1.0),
            Fault::LessonWithoutRows => ("actor", own(0), 1.0),
            Fault::LessonForOthersColumn => ("actor", acted("others", usize::MAX), 1.0),
            Fault::LessonForTooFewGroups => ("actor", acted("value", 1), 1.0),
            Fault::LessonNotFinite => ("actor", own(usize::MAX), f64::NAN),
            _ if self.judged.is_multiple_of(2) => ("actor", own(usize::MAX), 0.5),
            _ => ("actor", acted("value", usize::MAX), 0.5),
        };
        let objective: Slot<dyn Objective> = plugin("nll", "");
        Ok(vec![Lesson { node: node.into(), rows, objective: Arc::from(objective.0), scale }])
    }

    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        let said = self.judged.to_le_bytes();
        Ok(if self.fault == Fault::ForgetsState { vec![0; 4] } else { said.to_vec() })
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        let wrong = || PolicyError::Load("it has another length".into());
        let said: [u8; 4] = match self.fault {
            Fault::RefusesItsState => return Err(wrong()),
            Fault::TakesDamaged => bytes.get(..4).unwrap_or(&[0; 4]).try_into().unwrap(),
            Fault::PanicsOnDamaged => bytes.try_into().unwrap(),
            _ => bytes.try_into().map_err(|_| wrong())?,
        };
        self.judged = u32::from_le_bytes(said) & 0xff;
        Ok(())
    }
}

fn step(policy: &mut dyn Policy, rows: &RowSet) -> Result<(), PolicyError> {
    let objective: Slot<dyn Objective> = plugin("nll", "");
    let picked: Vec<u32> = (0..rows.len() as u32).collect();
    let totals = rows.totals(&picked);
    let part = Part { rows: Arc::new(rows.clone()), picked: &picked, totals, objective: &*objective, scale: 1.0 };
    policy.forward_backward(&[part], usize::MAX, &ascribe_core::Now::default())?;
    let step = OptimStep { learning_rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };
    policy.optim_step(&step).map(drop)
}

#[test]
fn every_fault_is_caught() {
    const BUILT: &str = "it is built, and its columns are those that its table promises";
    const COLUMNS: &str = "it writes the columns it declares, whole and finite";
    const ODD: &str = "failed paths, empty groups, forks and cuts do no harm";
    const SAME: &str = "the same seeds give the same columns, on any number of threads";
    const RESUMED: &str = "a resumed critic goes on like it";
    const DAMAGED: &str = "a damaged state is refused";
    const POLICIES: &str = "it leaves the policies as they are";
    const COUNTED: &str = "what it spends is counted";
    const REPORTS: &str = "it reports under its own name";
    const LESSONS: &str = "its lessons fit, and train";
    let all = [
        (Fault::Sound, "nothing", ""),
        (Fault::NeedsTheImpossible, BUILT, "an exact oracle"),
        (Fault::TableDisagrees, BUILT, "`mark`"),
        (Fault::WritesUndeclared, COLUMNS, "`more`"),
        (Fault::LeavesOutAColumn, COLUMNS, "does not write it"),
        (Fault::WrongScope, COLUMNS, "on tokens"),
        (Fault::WrongLength, COLUMNS, "numbers, the batch has"),
        (Fault::NotFinite, COLUMNS, "inf"),
        (Fault::OtherProvider, COLUMNS, "is said to be by"),
        (Fault::Gaps, COLUMNS, "no number for the start of group 0"),
        (Fault::PanicsOnEmptyGroups, ODD, "a group that failed beside others: it panics"),
        (Fault::PanicsWithoutGroups, ODD, "a batch without groups: it panics"),
        (Fault::GapsInEmptyGroups, ODD, "a group that failed beside others: `value` has no number for the start of group"),
        (Fault::ReadsFailedPaths, ODD, "failed paths beside others: it panics"),
        (Fault::FailsOnForks, ODD, "paths that fork: `judge` is an error: it forks"),
        (Fault::FailsOnNonsense, "what cannot be parsed does no harm", "no JSON"),
        (Fault::PanicsWhenItBreaks, "an environment that breaks is no panic", "it panics: it broke"),
        (Fault::KeepsCount, SAME, "the second time"),
        (Fault::Threads, SAME, "with a pool of size"),
        (Fault::ForgetsState, RESUMED, "does something else"),
        (Fault::RefusesItsState, RESUMED, "its own state is refused"),
        (Fault::TakesDamaged, DAMAGED, "is taken up"),
        (Fault::PanicsOnDamaged, DAMAGED, "it panics"),
        (Fault::TrainsInJudge, POLICIES, "changes the weights of node `actor`"),
        (Fault::LeavesSessionsOpen, POLICIES, "sessions of policies open"),
        (Fault::DoesNotCountTokens, COUNTED, "tokens for it"),
        (Fault::DoesNotCountSteps, COUNTED, "steps for it"),
        (Fault::ReportsElsewhere, REPORTS, "`critic/judged`"),
        (Fault::ReportsNan, REPORTS, "NaN"),
        (Fault::LessonForNobody, LESSONS, "node `nobody`"),
        (Fault::LessonWithoutRows, LESSONS, "has no rows"),
        (Fault::LessonForOthersColumn, LESSONS, "`others`"),
        (Fault::LessonForTooFewGroups, LESSONS, "1 of 3 groups"),
        (Fault::LessonNotFinite, LESSONS, "NaN"),
    ];
    let tasks = tasks("bugfix", "").unwrap();
    let mut out = Vec::new();
    for (fault, check, words) in all {
        let report = checked(&Faulty { fault }, &*tasks);
        let broken: Vec<_> = report.broken().map(|(what, why)| (what, why.to_string())).collect();
        // One fault may break several checks: the one that is about it says what is wrong.
        let caught = match check {
            "nothing" => broken.is_empty(),
            check => broken.iter().any(|(what, why)| *what == check && why.contains(words)),
        };
        if !caught {
            out.push(format!("{fault:?}: not {check} ({words}), but {broken:#?}"));
        }
    }
    assert!(out.is_empty(), "{}", out.join("\n"));
}
