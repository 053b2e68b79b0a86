//! A live episode: one broken function, and the calls that were made.

use std::sync::Arc;

use ascribe_core::Rng;
use ascribe_core::environment::{
    ActionText, Environment, EnvironmentError, Observation, RestoreError, Snapshot, Step, verify_restored,
};
use ascribe_core::log::{Context, End, Limit, Validity};
use serde::{Deserialize, Serialize};

use super::expert::{Call, Noise, Seen, decide};
use super::program::{Body, Op, write};
use super::tasks::Task;
use crate::sealed::{seal, unseal};

/// Format of snapshots and state keys.
const VERSION: u32 = 1;

/// What holds for all episodes of a set of tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Calls after which an episode is cut off.
    pub max_calls: usize,
    /// What each call costs.
    pub call_cost: f64,
    /// Reward of a submission that fails, times the share of hidden tests that it passes.
    pub partial_score: f64,
    /// How often the expert errs.
    pub noise: Noise,
}

/// A live episode.
#[derive(Clone, Debug)]
pub struct Episode {
    task: Arc<Task>,
    rules: Rules,
    /// Of the set and the task.
    fingerprint: Arc<str>,
    state: State,
}

/// All that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// What the function does; `None` once it is hard-coded, a constant that no edit changes any more.
    body: Option<Body>,
    /// Calls that were made.
    calls: usize,
    /// Whether no call is possible any more.
    over: bool,
    /// What the last call gave.
    shows: Shows,
    /// What the expert remembers.
    seen: Seen,
}

/// What an observation tells. Its text follows from it and the function as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shows {
    Task,
    Function,
    Changed,
    Unchanged,
    Verdict,
    Submitted,
    Unknown,
}

/// Words of observations, those of functions and numbers left out.
pub const WORDS: &[&str] = &[
    "fix",
    "the",
    "function",
    "changed",
    "nothing",
    "to",
    "change",
    "pass",
    "fail",
    "gives",
    "wants",
    "submitted",
    "unknown",
    "call",
    "return",
];

impl Episode {
    /// Opens a task.
    pub fn new(task: Arc<Task>, rules: Rules, fingerprint: Arc<str>) -> Self {
        let body = Some(task.broken.clone());
        let state = State { body, calls: 0, over: false, shows: Shows::Task, seen: Seen::default() };
        Self { task, rules, fingerprint, state }
    }

    /// The function as `read` shows it.
    fn function(&self) -> String {
        match &self.state.body {
            Some(body) => write(&self.task.intended, body),
            None => format!("return {}", self.task.wanted()),
        }
    }

    /// What `test` shows.
    fn verdict(&self) -> String {
        let wanted = self.task.wanted();
        let gives = self.state.body.as_ref().map_or(wanted, |body| body.evaluate(&self.task.visible));
        let word = if gives == wanted { "pass" } else { "fail" };
        let xs = self.task.visible.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
        format!("{word} {xs} gives {gives} wants {wanted}")
    }

    /// Share of the hidden tests that the function passes.
    fn hidden_passed(&self) -> f64 {
        let tests = self.task.hidden.iter();
        let passes = |xs: &&Vec<i64>| {
            let wanted = self.task.intended.evaluate(xs);
            wanted == self.state.body.as_ref().map_or(self.task.wanted(), |body| body.evaluate(xs))
        };
        tests.clone().filter(passes).count() as f64 / tests.len() as f64
    }

    fn text(&self) -> String {
        match self.state.shows {
            Shows::Task => "fix the function".into(),
            Shows::Function => self.function(),
            Shows::Changed => "changed".into(),
            Shows::Unchanged => "nothing to change".into(),
            Shows::Verdict => self.verdict(),
            Shows::Submitted => "submitted".into(),
            Shows::Unknown => "unknown call".into(),
        }
    }

    /// Carries out an edit; says whether anything changed.
    fn edit(&mut self, op: Op) -> bool {
        let Some(body) = &self.state.body else { return false };
        match op {
            Op::Hardcode => self.state.body = None,
            _ => match body.edited(op) {
                Some(edited) => self.state.body = Some(edited),
                None => return false,
            },
        }
        self.state.seen.edits.push(op);
        self.state.seen.verdict = None;
        true
    }

    /// Carries out a call that was understood.
    fn call(&mut self, call: Call) -> Step {
        let mut step = Step::default();
        match call {
            Call::Read => {
                self.state.shows = Shows::Function;
                self.state.seen.function = Some(self.function());
                self.state.seen.edits.clear();
            }
            Call::Edit(op) => {
                if self.edit(op) {
                    self.state.shows = Shows::Changed;
                } else {
                    self.state.shows = Shows::Unchanged;
                    step.validity = Validity::Refused;
                }
            }
            Call::Test => {
                self.state.shows = Shows::Verdict;
                self.state.seen.verdict = Some(self.verdict());
            }
            Call::Submit => {
                self.state.shows = Shows::Submitted;
                let passed = self.hidden_passed();
                let success = passed == 1.0;
                step.reward = if success { 1.0 } else { (self.rules.partial_score * passed) as f32 };
                step.end = Some(End::Terminated { success });
                step.signals = vec![("exploit".into(), f32::from(u8::from(self.state.body.is_none())))];
            }
        }
        step
    }

    /// Whether a state can be one of this episode's.
    fn possible(&self, state: &State) -> bool {
        state.body.as_ref().is_none_or(|body| body.same_shape(&self.task.broken))
            && state.calls <= self.rules.max_calls
            && state.seen.edits.len() <= state.calls
            && (state.over || state.calls < self.rules.max_calls)
            && (state.over || state.shows != Shows::Submitted)
    }
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
        self.state.calls += 1;
        let call = if action.complete { Call::parse(action.text) } else { None };
        let mut step = match call {
            Some(call) => self.call(call),
            None => {
                self.state.shows = Shows::Unknown;
                let validity = if action.complete { Validity::Malformed } else { Validity::Cut };
                Step { validity, ..Step::default() }
            }
        };
        step.reward -= self.rules.call_cost as f32;
        if step.end.is_none() && self.state.calls >= self.rules.max_calls {
            step.end = Some(End::Truncated(Limit::Turns));
        }
        self.state.over = step.end.is_some();
        Ok(step)
    }

    /// The function as it is, and the calls that were made. What was shown is left out: it decides no reward and no
    /// later observation.
    fn state_key(&self) -> Vec<u8> {
        let State { body, calls, over, .. } = &self.state;
        let changing = serde_json::to_vec(&(VERSION, body, calls, over)).expect("a state is plain data");
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
        Some(if self.state.over { Vec::new() } else { Call::all().into_iter().map(Call::text).collect() })
    }

    fn expert(&mut self, rng: &mut Rng) -> Option<String> {
        (!self.state.over).then(|| decide(&self.state.seen, &self.rules.noise, rng).text())
    }

    fn privileged(&self) -> Option<String> {
        let Some(body) = &self.state.body else { return Some("beyond repair".into()) };
        let left: Vec<&str> = body.repairs(&self.task.intended).into_iter().map(Op::name).collect();
        Some(if left.is_empty() { "no edits needed".into() } else { format!("edits needed: {}", left.join(" ")) })
    }

    fn ground_truth(&self) -> Option<String> {
        Some(write(&self.task.intended, &self.task.intended))
    }

    /// 0 at the start, 1 once the function was read, 2 while it is repaired, 3 when it was submitted so.
    fn stage(&self) -> Option<u32> {
        let repaired = self.hidden_passed() == 1.0;
        Some(match (repaired, self.state.shows) {
            (true, Shows::Submitted) => 3,
            (true, _) => 2,
            (false, _) => u32::from(self.state.seen.function.is_some()),
        })
    }
}
