//! A live episode: one question, and what the calls brought to light.

use std::collections::BTreeSet;
use std::sync::Arc;

use ascribe_core::Rng;
use ascribe_core::environment::{
    ActionText, Environment, EnvironmentError, Observation, RestoreError, Snapshot, Step, verify_restored,
};
use ascribe_core::log::{Context, End, Limit, Validity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::expression::{evaluate, literal, spelled};
use super::knowledge::{FACTS, find};
use super::tasks::Task;
use crate::sealed::{seal, unseal};

/// Format of snapshots and state keys.
const VERSION: u32 = 1;

/// Process reward of a call to a tool that succeeds.
const TOOL_SUCCEEDS: f32 = 0.3;
/// Process reward of a call to a tool that fails.
const TOOL_FAILS: f32 = -0.3;
/// Process reward of the right answer.
const ANSWER_RIGHT: f32 = 1.0;
/// Process reward of a wrong answer.
const ANSWER_WRONG: f32 = -0.5;

/// Column of the process reward.
pub const PROCESS: &str = "process_reward";
/// Column that says whether a report agrees with the outcome.
pub const AGREES: &str = "self_report_match";
/// Column that says whether a wrong answer is reported as right.
pub const OVERCONFIDENT: &str = "overconfident";
/// Column that says whether the right answer is reported as wrong.
pub const UNDERCONFIDENT: &str = "underconfident";
/// The column of what was reported.
pub const REPORT: &str = "self_report";

/// Which call to a tool the process reward takes for a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Process {
    /// One that the tool carried out: a search that found something, an expression that has a value, a true statement.
    /// So the text's code has it.
    Carried,
    /// One that brought the task a step further: it found a fact that is needed, calculated the right number, or verified a
    /// fact that is needed, and this for the first time. So the text's prose has it.
    Useful,
}

/// Whether an answer has to be backed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verification {
    /// The number alone decides, as in the text.
    Optional,
    /// The right number counts only once a fact that is needed was verified.
    Required,
}

/// What holds for all episodes of a set of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// Calls after which an episode is cut off; the report is not one of them.
    pub max_calls: usize,
    /// What a wrong answer costs.
    pub failure_cost: f64,
    /// Which calls the process reward takes for a success.
    pub process: Process,
    /// Whether an answer has to be backed.
    pub verification: Verification,
    /// Whether a report follows the answer.
    pub self_report: bool,
}

/// A live episode.
#[derive(Clone, Debug)]
pub struct Episode {
    task: Arc<Task>,
    rules: Rules,
    /// Probability that the expert strays, at every turn.
    noise: f64,
    /// Of the set and the task.
    fingerprint: Arc<str>,
    state: State,
}

/// All that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// Facts that were found, as indices into [`FACTS`].
    found: BTreeSet<usize>,
    /// What calculations came to, as decimal numbers.
    results: BTreeSet<String>,
    /// Whether one of them was right.
    computed: bool,
    /// Whether a fact that is needed was verified.
    verified: bool,
    /// Calls that were made, the report left out.
    calls: usize,
    /// Whether the answer was right, once it is given.
    answered: Option<bool>,
    /// Whether no call is possible any more.
    over: bool,
    /// What the last call gave.
    shows: Shows,
}

/// What an observation tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shows {
    Question,
    Fact(usize),
    Nothing,
    Result(String),
    Fault(String),
    Verified,
    Unverified,
    Verdict,
    NoAnswer,
    Reported,
    NoReport,
    Unknown,
}

/// Words of observations, actions and privileged text, those of the knowledge base and of questions left out.
pub const WORDS: &[&str] = &[
    "search",
    "calculate",
    "verify",
    "answer",
    "report",
    "is",
    "right",
    "wrong",
    "unknown",
    "found",
    "nothing",
    "result",
    "error",
    "no",
    "expression",
    "too",
    "deep",
    "division",
    "by",
    "zero",
    "overflow",
    "verified",
    "not",
    "the",
    "given",
    "call",
    "reported",
    "yet",
    "plan",
    ":",
    ";",
    "left",
];

/// What came of a call to a tool.
struct Outcome {
    shows: Shows,
    /// Whether the tool carried it out.
    carried: bool,
    /// Whether it brought the task a step further.
    useful: bool,
    validity: Validity,
}

impl Episode {
    /// Opens a task. The expert strays with probability `noise` at every turn.
    pub fn new(task: Arc<Task>, rules: Rules, noise: f64, fingerprint: Arc<str>) -> Self {
        let state = State {
            found: BTreeSet::new(),
            results: BTreeSet::new(),
            computed: false,
            verified: false,
            calls: 0,
            answered: None,
            over: false,
            shows: Shows::Question,
        };
        Self { task, rules, noise, fingerprint, state }
    }

    fn text(&self) -> String {
        match &self.state.shows {
            Shows::Question => self.task.question(),
            Shows::Fact(i) => format!("found {} {}", FACTS[*i].name(), FACTS[*i].spelled()),
            Shows::Nothing => "found nothing".into(),
            Shows::Result(decimal) => format!("result {}", spelled(decimal)),
            Shows::Fault(why) => format!("error {why}"),
            Shows::Verified => "verified".into(),
            Shows::Unverified => "not verified".into(),
            Shows::Verdict => match self.state.answered {
                Some(true) => "the answer is right".into(),
                _ => "the answer is wrong".into(),
            },
            Shows::NoAnswer => "no answer given yet".into(),
            Shows::Reported => "reported".into(),
            Shows::NoReport => "no report".into(),
            Shows::Unknown => "unknown call".into(),
        }
    }

    fn all_found(&self) -> bool {
        self.task.needed.iter().all(|i| self.state.found.contains(i))
    }

    fn search(&mut self, query: &str) -> Outcome {
        let words: Vec<&str> = query.split_whitespace().collect();
        match find(&words) {
            Some(i) => {
                let fresh = self.state.found.insert(i);
                let useful = fresh && self.task.needed.contains(&i);
                Outcome { shows: Shows::Fact(i), carried: true, useful, validity: Validity::Valid }
            }
            None => Outcome { shows: Shows::Nothing, carried: false, useful: false, validity: Validity::Valid },
        }
    }

    fn calculate(&mut self, expression: &str) -> Outcome {
        match evaluate(expression) {
            Ok(value) => {
                let useful = !self.state.computed && self.task.is_answer(value);
                self.state.computed |= useful;
                let decimal = value.decimal();
                self.state.results.insert(decimal.clone());
                Outcome { shows: Shows::Result(decimal), carried: true, useful, validity: Validity::Valid }
            }
            Err(fault) => {
                let shows = Shows::Fault(fault.to_string());
                Outcome { shows, carried: false, useful: false, validity: Validity::Refused }
            }
        }
    }

    /// Checks `ENTITY ATTRIBUTE is NUMBER`.
    fn verify(&mut self, statement: &str) -> Outcome {
        let fact = statement.split_once(" is ").and_then(|(name, number)| {
            let words: Vec<&str> = name.split_whitespace().collect();
            find(&words).filter(|i| literal(number) == Some(FACTS[*i].value()))
        });
        let useful = !self.state.verified && fact.is_some_and(|i| self.task.needed.contains(&i));
        self.state.verified |= useful;
        let shows = if fact.is_some() { Shows::Verified } else { Shows::Unverified };
        Outcome { shows, carried: fact.is_some(), useful, validity: Validity::Valid }
    }

    /// A step that answers: the outcome decides its reward.
    fn answer(&mut self, number: &str) -> Step {
        let backed = self.rules.verification == Verification::Optional || self.state.verified;
        let right = backed && literal(number).is_some_and(|number| self.task.is_answer(number));
        self.state.answered = Some(right);
        self.state.shows = Shows::Verdict;
        Step {
            // Taken from 0, so that no cost is 0 and not −0.
            reward: if right { 1.0 } else { 0.0 - self.rules.failure_cost as f32 },
            end: (!self.rules.self_report).then_some(End::Terminated { success: right }),
            signals: self.signals(if right { ANSWER_RIGHT } else { ANSWER_WRONG }, None),
            ..Step::default()
        }
    }

    /// The step after the answer: whatever is said, it is the last one.
    fn report(&mut self, call: Option<Call>, right: bool) -> Step {
        let (report, validity) = match call {
            Some(Call::Report(report)) => (Some(report), Validity::Valid),
            Some(_) => (None, Validity::Refused),
            None => (None, Validity::Malformed),
        };
        self.state.shows = if report.is_some() { Shows::Reported } else { Shows::NoReport };
        let signals = self.signals(0.0, report.map(|report| (report, right)));
        Step { end: Some(End::Terminated { success: right }), validity, signals, ..Step::default() }
    }

    /// A step that calls a tool, or nothing that there is.
    fn tool(&mut self, call: Option<Call>) -> Step {
        let failed = |shows, validity| Outcome { shows, carried: false, useful: false, validity };
        let outcome = match call {
            Some(Call::Search(query)) => self.search(&query),
            Some(Call::Calculate(expression)) => self.calculate(&expression),
            Some(Call::Verify(statement)) => self.verify(&statement),
            Some(Call::Answer(number)) => return self.answer(&number),
            Some(Call::Report(_)) => failed(Shows::NoAnswer, Validity::Refused),
            None => failed(Shows::Unknown, Validity::Malformed),
        };
        self.state.shows = outcome.shows;
        let succeeds = match self.rules.process {
            Process::Carried => outcome.carried,
            Process::Useful => outcome.useful,
        };
        let signals = self.signals(if succeeds { TOOL_SUCCEEDS } else { TOOL_FAILS }, None);
        Step { validity: outcome.validity, signals, ..Step::default() }
    }

    /// The columns of a turn; those about the report are 0 where nothing was reported.
    fn signals(&self, process: f32, reported: Option<(bool, bool)>) -> Vec<(String, f32)> {
        let mut signals = vec![(PROCESS.into(), process)];
        if self.rules.self_report {
            let is = |says: bool, was: bool| f32::from(u8::from(reported == Some((says, was))));
            signals.push((AGREES.into(), is(true, true) + is(false, false)));
            signals.push((OVERCONFIDENT.into(), is(true, false)));
            signals.push((UNDERCONFIDENT.into(), is(false, true)));
            signals.extend(reported.map(|(says, _)| (REPORT.into(), f32::from(u8::from(says)))));
        }
        signals
    }

    /// What is left to do: the first of it needs only what was shown.
    fn plan(&self) -> Vec<String> {
        if self.state.over {
            return Vec::new();
        }
        if let Some(right) = self.state.answered {
            return vec![format!("report {}", if right { "right" } else { "wrong" })];
        }
        let missing = self.task.needed.iter().filter(|i| !self.state.found.contains(i));
        let mut plan: Vec<String> = missing.map(|i| format!("search {}", FACTS[*i].name())).collect();
        if !self.state.computed {
            plan.push(format!("calculate {}", self.task.solution()));
        }
        if !self.state.verified {
            plan.push(statement(self.task.needed[0], self.task.needed[0]));
        }
        plan.push(format!("answer {}", spelled(&self.task.answer().to_string())));
        plan
    }

    /// The actions that are listed: about the facts within reach, with the numbers that were shown.
    fn listed(&self) -> BTreeSet<String> {
        if self.state.over {
            return BTreeSet::new();
        }
        if self.state.answered.is_some() {
            return ["report right".into(), "report wrong".into()].into();
        }
        let found: Vec<usize> = self.task.reach().filter(|i| self.state.found.contains(i)).collect();
        let entity = FACTS[self.task.needed[0]].entity;
        let searches = self.task.reach().map(|i| format!("search {}", FACTS[i].name()));
        let in_vain = format!("search {entity} {}", self.task.missing);
        let calculations = self.task.expressions(&found).into_iter().map(|text| format!("calculate {text}"));
        let statements = found.iter().flat_map(|about| found.iter().map(|number| statement(*about, *number)));
        let results = self.state.results.iter().filter_map(|decimal| literal(decimal)).map(|x| x.rounded().to_string());
        let numbers = found.iter().map(|i| FACTS[*i].number.to_string());
        let answers = results.chain(numbers).map(|decimal| format!("answer {}", spelled(&decimal)));
        searches.chain([in_vain, "answer unknown".into()]).chain(calculations).chain(statements).chain(answers).collect()
    }

    /// Whether a state can be one of this episode's.
    fn possible(&self, state: &State) -> bool {
        let shown = |decimal: &String| literal(decimal).is_some_and(|x| x.decimal() == *decimal);
        let fact = |i: &usize| *i < FACTS.len();
        let answers = matches!(state.shows, Shows::Verdict | Shows::Reported | Shows::NoReport);
        state.found.iter().all(fact)
            && state.results.iter().all(shown)
            && match &state.shows {
                Shows::Fact(i) => state.found.contains(i),
                Shows::Result(decimal) => state.results.contains(decimal),
                _ => true,
            }
            && state.found.len() + state.results.len() <= state.calls
            && state.calls <= self.rules.max_calls
            && answers == state.answered.is_some()
            && (state.over || state.answered.is_some() || state.calls < self.rules.max_calls)
    }
}

/// The statement that a fact has the number of a fact.
fn statement(about: usize, number: usize) -> String {
    format!("verify {} is {}", FACTS[about].name(), FACTS[number].spelled())
}

impl Environment for Episode {
    fn observe(&self) -> Observation {
        let text = self.text();
        Observation { key: text.clone().into_bytes(), text, context: Context::Extend }
    }

    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        if self.state.over {
            return Err(EnvironmentError("the episode is over: no call is possible after it".into()));
        }
        let call = if action.complete { Call::parse(action.text) } else { None };
        let mut step = match self.state.answered {
            Some(right) => self.report(call, right),
            None => {
                self.state.calls += 1;
                self.tool(call)
            }
        };
        if !action.complete {
            step.validity = Validity::Cut;
        }
        if self.state.answered.is_none() && self.state.calls >= self.rules.max_calls {
            step.end = Some(End::Truncated(Limit::Turns));
        }
        self.state.over = step.end.is_some();
        Ok(step)
    }

    /// All that later rewards, observations and listed actions depend on: everything but what was shown last.
    fn state_key(&self) -> Vec<u8> {
        let State { found, results, computed, verified, calls, answered, over, .. } = &self.state;
        let changing = serde_json::to_vec(&(VERSION, found, results, computed, verified, calls, answered, over))
            .expect("a state is plain data");
        [self.fingerprint.as_bytes(), b"\n", &changing].concat()
    }

    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        seal(&self.fingerprint, VERSION, &self.state, self.text())
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        let state: State = unseal(snapshot, &self.fingerprint, VERSION)?;
        if !self.possible(&state) {
            return Err(RestoreError::Damaged("no episode of this task comes to such a state".into()));
        }
        let before = std::mem::replace(&mut self.state, state);
        verify_restored(&snapshot.observation, &self.text()).inspect_err(|_| self.state = before)
    }

    fn admissible(&self) -> Option<Vec<String>> {
        Some(self.listed().into_iter().collect())
    }

    fn expert(&mut self, rng: &mut Rng) -> Option<String> {
        let next = self.plan().into_iter().next()?;
        // Both draws are made, whether it strays or not.
        let strays = rng.unit() < self.noise;
        let listed: Vec<String> = self.listed().into_iter().collect();
        let somewhere = rng.choose(&listed).cloned();
        somewhere.filter(|_| strays).or(Some(next))
    }

    /// What is left to do.
    fn privileged(&self) -> Option<String> {
        let plan = self.plan();
        Some(if plan.is_empty() { "plan : nothing left".into() } else { format!("plan : {}", plan.join(" ; ")) })
    }

    /// The right answer, a word per digit.
    fn ground_truth(&self) -> Option<String> {
        Some(spelled(&self.task.answer().to_string()))
    }

    /// 0 at the start, 1 once all facts are found that are needed, 2 once the right number is calculated from them, 3 once one
    /// of them is verified, 4 once the right answer is given.
    fn stage(&self) -> Option<u32> {
        let State { computed, verified, answered, .. } = &self.state;
        Some(match (*answered, self.all_found(), *computed, *verified) {
            (Some(true), ..) => 4,
            (_, false, ..) => 0,
            (_, _, false, _) => 1,
            (_, _, _, false) => 2,
            _ => 3,
        })
    }
}
