//! A policy node judges in words: its own weights under a critic's prompt, asked what reward is still to come.
//!
//! `V̂(s) = mean_e V̂_e(s)` over `value_samples` answers, each the number in the last `<value>…</value>` of what the node said.
//! It learns from its error: of `samples` answers about a state whose target is `G`, answer k earns `−|V̂_k − G| / R_max`, less the
//! mean over the answers, and goes through `objective` like an action of the actor; on one node, actor and critic share each
//! step. An answer without a number earns −1, the worst. With `teach = "format"` the node is shown what a right answer looks
//! like instead: the target itself, to the nearest of `steps + 1` numbers, by negative log-likelihood.
//!
//! The prompt is what the actor has read and done, condensed to `history` turns, and with `privileged = true` what the
//! environment tells critics alone. No actor reads that: it is in the critic's rows, and in no other. Policies whose vocabulary
//! is made of words learn the prompt's own words, the tags, and the `steps + 1` numbers.
//!
//! Dots team 2026, "TEMPO: Test-Time-Scaled Value Estimation with Macro-Step Policy Optimization" (blog); numbers and
//! details from the reproduction KMnO4-zx/agentic-rl-lab `09-tempo/critic.py`, `tempo.py`.
//! Reductions: with one sample there is nothing to compare, and no advantage; with `values = "ends"` and the estimator `tempo` it is the
//! critic of that method, whose target (`target = "estimator"`) is the mean return of the branches of a start.
//!
//! Edge cases: what is read as a number, and what is not, is counted by reason and never guessed (`ascribe explain
//! critic/NAME/parse_failure_rate`). A cut answer is no parse failure; strictly it has no value either. A prompt that leaves no room for an
//! answer is not asked. A state without any value stays without one (`missing`); estimators that need a value everywhere
//! are refused unless it says what stands there. An episode that is over is worth 0 without being asked.
//! Where the reproduction differs (`mode = "official"`): numbers beyond the range are clamped, `1.`, `+0.5` and `1e-1` are none, a
//! cut answer is read; a state without a value is worth 0; limits of turns and tokens are ends, so that `values = "ends"` asks about
//! macro boundaries alone; states whose answers are all equally good, and single answers without an advantage, are not
//! trained; without `target = "estimator"` nothing is learned about a group's start, unless `starts` says so.
//!
//! Cost: a prompt per state that is asked about, fed once for all its answers, and their tokens: the critic's. Learning takes a forward and
//! backward pass over `samples` prompts with answers per learned state.

pub(crate) mod prompt;
mod tally;
mod verdict;

use std::sync::Arc;

use ascribe_core::batch::NonFinite;
use ascribe_core::critic::{Lesson, LessonRows};
use ascribe_core::log::{Action, Context, End, GroupLog, LeafLog, Stop, TurnLog};
use ascribe_core::policy::{Allowed, Continuation, Policy, PolicyError, Session};
use ascribe_core::range::{AtLeast, Between, NonNegative, Positive, Unit};
use ascribe_core::rollout::{Acting, node};
use ascribe_core::tokenizer::WordTokenizer;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, Draw, Group, Need, Objective, Provide, RowSet, Scope,
    Signal, Slot, plugin,
};
use ascribe_math::{critic_signals, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use prompt::{Condense, Happened, condensed};
pub use verdict::{Mode, Rules, Unread, read};

use crate::targets::{Recipe, Target};
use crate::{lesson, states};
use prompt::Reader;
use tally::Tally;

/// Which states are given a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// All.
    #[default]
    All,
    /// Those in which a path was cut, by a limit or at the end of a macro step.
    Ends,
    /// None: it learns, and is asked nothing.
    None,
}

/// What stands for a state without a value: none of its answers had a number, or its prompt was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// Nothing.
    Absent,
    /// 0.
    Zero,
    /// The mean of its group's values; 0 where there is none.
    Mean,
}

/// What it is taught.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Teach {
    /// To err less, from its own answers.
    #[default]
    Error,
    /// To answer in the right form, from right answers.
    Format,
}

/// A number of answers, tokens or states: each costs work.
type Many = Between<1, 65_536>;

/// `[critic.NAME.generative]`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Generative {
    /// Policy node that judges, and is trained by it.
    #[serde(default = "crate::actor")]
    pub agent: String,
    /// The column of states that it gives.
    #[serde(default = "value_column")]
    pub column: String,
    /// Whether it reads privileged text.
    #[serde(default)]
    pub privileged: bool,
    /// How answers are read, and what else the reproduction does its own way.
    #[serde(default)]
    pub mode: Mode,
    /// Largest return, which is the environment's: values are read in 0..=r_max.
    #[serde(default = "one")]
    pub r_max: Positive,
    /// Whether `50%` is read, as half of the largest return. Strict reading only.
    #[serde(default)]
    pub percent: bool,
    /// Whether `7/10` is read, as that share of the largest return. Strict reading only.
    #[serde(default)]
    pub fraction: bool,
    /// Which states are given a value.
    #[serde(default)]
    pub values: Values,
    /// Answers per state that is given a value; it is their mean.
    #[serde(default = "two")]
    pub value_samples: Many,
    /// What stands for a state without a value. By default nothing; 0 in the official mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
    /// Most tokens of an answer, its reasoning and the stop word included.
    #[serde(default = "short")]
    pub max_tokens: AtLeast<1>,
    /// Temperature of its answers; 0 is greedy.
    #[serde(default = "warm")]
    pub temperature: NonNegative,
    /// The word that ends an answer; the environment's, where it is absent. It may be `</value>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Most recent turns that its prompt shows after the initial situation; all, where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<AtLeast<1>>,
    /// Later observations end where this text begins (a list of actions, say).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<String>,
    /// What it is taught.
    #[serde(default)]
    pub teach: Teach,
    /// What its answers should have been.
    #[serde(default)]
    pub target: Target,
    /// A control: what answers should have been is dealt to states at random, and taught like that. How good the critic is, `skill` and its kin,
    /// is still measured against the right ones.
    #[serde(default)]
    pub shuffle_targets: bool,
    /// Discount per turn of the targets `return` and `lambda`.
    #[serde(default = "whole")]
    pub gamma: Unit,
    /// Decay of the target `lambda`.
    #[serde(default = "whole")]
    pub lambda: Unit,
    /// Answers per state that is learned from error.
    #[serde(default = "four")]
    pub samples: Many,
    /// Most states per update that are learned from, drawn among those with a target.
    #[serde(default = "thirty_two")]
    pub states: Many,
    /// Only states so many turns apart are learned from, counted from a group's start.
    #[serde(default = "every_one")]
    pub every: Many,
    /// Whether the state that a group starts in is learned from. By default it is; in the official mode only with `target = "estimator"`. The
    /// estimator `tempo` gives a target for no other state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<bool>,
    /// What is descended on its answers; `importance-sampling`, where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Slot<dyn Objective>>,
    /// Factor on its loss beside the actor's.
    #[serde(default = "one")]
    pub scale: Positive,
    /// Numbers of a right answer, and of a vocabulary of words: 0 to the largest return in so many equal steps.
    #[serde(default = "twenty")]
    pub steps: Between<1, 10_000>,
}

fn value_column() -> String {
    "value".into()
}
fn one() -> Positive {
    Positive::try_from(1.0).expect("positive")
}
fn warm() -> NonNegative {
    NonNegative::try_from(1.0).expect("not negative")
}
fn whole() -> Unit {
    Unit::try_from(1.0).expect("in 0..=1")
}
fn many(n: u64) -> Many {
    Many::try_from(n).expect("in range")
}
fn every_one() -> Many {
    many(1)
}
fn two() -> Many {
    many(2)
}
fn four() -> Many {
    many(4)
}
fn thirty_two() -> Many {
    many(32)
}
fn short() -> AtLeast<1> {
    AtLeast::try_from(32).expect("at least 1")
}
fn twenty() -> Between<1, 10_000> {
    Between::try_from(20).expect("in range")
}

plugin! {
    Critic "generative" {
        summary: "A policy node judges states in words, and learns from its error.",
        source: "Dots team 2026, TEMPO: Test-Time-Scaled Value Estimation with Macro-Step Policy Optimization (blog); KMnO4-zx/agentic-rl-lab 09-tempo",
        when: "Where a text says more than a number can be fitted to, privileged text above all. A small policy wants a phase with `teach = \"format\"` first. Each value costs a prompt: for values of all states of long episodes `value-head` is far cheaper.",
        example: "privileged = true\nvalues = \"ends\"\nmax_tokens = 32",
        module: "mod.rs",
    }
    impl CriticConfig for Generative {
        fn build(&self, name: &str, context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            let wrong = |what: String| BuildError::Config(format!("critic `{name}`: {what}"));
            let about = context.environment();
            if (about.r_max - *self.r_max).abs() > 1e-9 * about.r_max.abs().max(1.0) {
                return Err(wrong(format!("the environment's largest return is {}: set `r_max = {0}`", about.r_max)));
            }
            crate::knows(about, &self.words()).map_err(&wrong)?;
            if let Some(objective) = &self.objective
                && let Some(need) = objective.needs().into_iter().find(|need| *need != Need::BehaviorLogprob)
            {
                return Err(wrong(format!("its `objective` needs {need}, which answers do not have")));
            }
            // A copy of its own, by way of what it is written as: plugins in slots have no other.
            let own: Generative = serde_json::to_value(self)
                .and_then(serde_json::from_value)
                .map_err(|e| wrong(format!("its settings cannot be copied: {e}")))?;
            let empty = || serde_json::Value::Object(serde_json::Map::new());
            let (objective, config) = match own.objective {
                Some(slot) => (Arc::from(slot.0), Generative { objective: None, ..own }),
                None => (lesson::objective("importance-sampling", empty())?, own),
            };
            Ok(Box::new(Judge {
                name: name.into(),
                stop: self.stop.clone().unwrap_or_else(|| about.stop.clone()),
                objective,
                imitation: lesson::objective("nll", empty())?,
                config,
                asked: Asked::default(),
            }))
        }
        fn needs(&self) -> Vec<Need> {
            let mut needs = vec![Need::Node(self.agent.clone())];
            if self.privileged {
                needs.push(Need::Privileged);
            }
            needs.extend(self.target.needs(&self.column));
            needs.extend(self.objective.iter().flat_map(|o| o.columns()).map(Need::Differentiable));
            needs
        }
        fn provides(&self) -> Vec<Provide> {
            match self.values {
                Values::None => Vec::new(),
                Values::All if self.missing() != Missing::Absent => vec![Need::Signal(self.column.clone(), Scope::State)],
                Values::All | Values::Ends => vec![Need::SomeStates(self.column.clone())],
            }
        }
        fn words(&self) -> Vec<String> {
            let texts = [prompt::fixed(&self.number(self.steps.get())), "<value> </value>".into()];
            let numbers = (0..=self.steps.get()).map(|i| self.number(i));
            crate::words(texts.into_iter().chain(numbers).chain(self.stop.clone()))
        }
    }
}

impl Generative {
    fn missing(&self) -> Missing {
        self.missing.unwrap_or(match self.mode {
            Mode::Strict => Missing::Absent,
            Mode::Official => Missing::Zero,
        })
    }

    fn starts(&self) -> bool {
        self.starts.unwrap_or(self.mode == Mode::Strict || self.target == Target::Estimator)
    }

    fn rules(&self) -> Rules {
        Rules { mode: self.mode, r_max: *self.r_max, percent: self.percent, fraction: self.fraction }
    }

    /// The `i`-th number of a right answer, as it is written: no more than four decimals.
    fn number(&self, i: usize) -> String {
        let x = *self.r_max * i as f64 / self.steps.get() as f64;
        format!("{}", (x * 1e4).round() / 1e4)
    }

    /// The number that is written for a value.
    fn nearest(&self, value: f64) -> String {
        let share = (value / *self.r_max).clamp(0.0, 1.0);
        self.number((share * self.steps.get() as f64).round() as usize)
    }
}

/// Continuations that are sampled at once, at least one state's: their caches are held side by side.
const AT_ONCE: usize = 64;

/// A state's value by its answers: the mean of those that could be read, if any could.
pub fn mean_of_read(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let read: Vec<f64> = values.into_iter().flatten().collect();
    (!read.is_empty()).then(|| moments(&read).mean)
}

/// What was asked in an update so far.
#[derive(Default)]
struct Asked {
    update: Option<u32>,
    /// Times that it was asked: each has random numbers of its own.
    calls: u32,
    tally: Tally,
}

struct Judge {
    name: String,
    stop: String,
    config: Generative,
    objective: Arc<dyn Objective>,
    imitation: Arc<dyn Objective>,
    asked: Asked,
}

/// A prompt about a state.
struct Question {
    group: usize,
    state: usize,
    /// What a policy that reads the state alone knows it by: not the actor's states.
    key: Vec<u8>,
    tokens: Vec<u32>,
}

/// What was said, and what it means.
struct Answer {
    action: Action,
    value: Result<f64, Unread>,
}

impl Critic for Judge {
    fn provides(&self) -> Vec<(String, Scope)> {
        match self.config.values {
            Values::None => Vec::new(),
            Values::All | Values::Ends => vec![(self.config.column.clone(), Scope::State)],
        }
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        if self.config.values == Values::None {
            return Ok(Vec::new());
        }
        let known: Vec<Vec<Known>> = batch.groups().map(|group| self.known(group)).collect();
        let wanted = (0..).zip(&known).flat_map(|(g, states)| {
            states.iter().enumerate().filter(|(_, known)| **known == Known::Not).map(move |(s, _)| (g, s))
        });
        let wanted: Vec<(usize, usize)> = wanted.collect();
        let questions = self.questions(batch, &wanted, acting)?;
        let answers = self.ask(&questions, self.config.value_samples.get(), "judge", acting)?;

        let mut values: Vec<Vec<Option<f64>>> = batch.groups().map(|group| vec![None; group.n_turns() + 1]).collect();
        for (question, answers) in questions.iter().zip(answers) {
            let value = mean_of_read(answers.iter().flatten().map(|answer| answer.value.ok()));
            self.asked.tally.value(value);
            values[question.group][question.state] = value;
        }
        self.asked.tally.report(&self.name, acting.metrics);

        for (values, known) in values.iter_mut().zip(&known) {
            let said: Vec<f64> = values.iter().copied().flatten().collect();
            let instead = match self.config.missing() {
                Missing::Absent => None,
                Missing::Zero => Some(0.0),
                Missing::Mean => Some(moments(&said).mean),
            };
            for (value, known) in values.iter_mut().zip(known) {
                *value = match known {
                    Known::Zero => Some(0.0),
                    Known::Not => value.or(instead),
                    Known::NotAsked => None,
                };
            }
        }
        let column: Column =
            states::column(batch, |group, after| values[group.index()][after.map_or(0, |t| t + 1)].map(|value| value as f32));
        let signal = Signal { scope: Scope::State, provider: self.name.clone(), column };
        Ok(vec![(self.config.column.clone(), signal)])
    }

    fn learn(&mut self, batch: &Batch, credit: &[Credit], acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let (states, targets): (Vec<(usize, usize)>, Vec<f64>) = self.pick(batch, credit, acting).into_iter().unzip();
        let questions = self.questions(batch, &states, acting)?;
        let mut taught = targets.clone();
        if self.config.shuffle_targets {
            let draw = Draw { update: acting.now.update, ..Draw::default() };
            acting.seeds.rng(&format!("critic/{}/shuffle", self.name), draw).shuffle(&mut taught);
        }
        let (logs, credit, objective) = match self.config.teach {
            Teach::Error => self.own_answers(questions, &targets, &taught, acting)?,
            Teach::Format => self.right_answers(questions, &taught, acting)?,
        };
        self.asked.tally.report(&self.name, acting.metrics);
        if logs.is_empty() {
            return Ok(Vec::new());
        }
        let batch = Batch::from_groups(logs, NonFinite::Refuse).map_err(|e| PolicyError::Unsupported(e.to_string()))?;
        let rows = Arc::new(RowSet::from_credit(&batch, &credit, None));
        Ok(vec![Lesson { node: self.config.agent.clone(), rows: LessonRows::Own(rows), objective, scale: *self.config.scale }])
    }
}

/// What is known of a state without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It is worth 0: the task is over, officially at a limit too; or nobody was there, and nobody reads it.
    Zero,
    /// Nothing: it is asked about.
    Not,
    /// Nothing, and it is none of those that are given a value.
    NotAsked,
}

/// Records to be trained on, their credit, and what is descended.
type Taught = (Vec<GroupLog>, Vec<Credit>, Arc<dyn Objective>);

impl Judge {
    /// What is known of each state of a group without asking, `[turns + 1]`.
    fn known(&self, group: Group<'_>) -> Vec<Known> {
        let (ends, tried) = (self.config.values == Values::Ends, group.tried());
        let start = match group.n_turns() {
            0 => Known::Zero,
            _ if ends => Known::NotAsked,
            _ => Known::Not,
        };
        let after = |t: usize| match group.end(t).filter(|_| ends || group.n_children(t) == 0) {
            _ if !tried[t] => Known::Zero,
            Some(End::Terminated { .. }) => Known::Zero,
            Some(End::Truncated(_)) if self.config.mode == Mode::Official => Known::Zero,
            Some(end) if end.bootstraps() => Known::Not,
            None if !ends => Known::Not,
            Some(_) | None => Known::NotAsked,
        };
        std::iter::once(start).chain((0..group.n_turns()).map(after)).collect()
    }

    /// States to learn from, in order, each with what its value should have been.
    fn pick(&self, batch: &Batch, credit: &[Credit], acting: &Acting<'_>) -> Vec<((usize, usize), f64)> {
        let config = &self.config;
        let recipe = Recipe { target: config.target, gamma: *config.gamma, lambda: *config.lambda };
        let mut all: Vec<((usize, usize), f64)> = Vec::new();
        for (group, credit) in batch.groups().zip(credit) {
            let reader = Reader::new(group);
            let mut seen = vec![false; group.n_turns() + 1];
            for (t, target) in recipe.before_turns(&config.column, group, credit).into_iter().enumerate() {
                let state = group.parent(t).map_or(0, |p| p + 1);
                // Siblings start in the same state, and have the same target.
                if let Some(target) = target
                    && !std::mem::replace(&mut seen[state], true)
                    && reader.depth(state).is_multiple_of(config.every.get())
                    && (state > 0 || config.starts())
                {
                    all.push(((group.index(), state), f64::from(target)));
                }
            }
        }
        if all.len() > config.states.get() {
            let draw = Draw { update: acting.now.update, ..Draw::default() };
            let mut order: Vec<usize> = (0..all.len()).collect();
            acting.seeds.rng(&format!("critic/{}/states", self.name), draw).shuffle(&mut order);
            order.truncate(config.states.get());
            order.sort_unstable();
            all = order.into_iter().map(|i| all[i]).collect();
        }
        all
    }

    /// Prompts about states of a batch, each as (group, state): 0 is the start, `t + 1` the state after turn `t`.
    fn questions(&self, batch: &Batch, wanted: &[(usize, usize)], acting: &mut Acting<'_>) -> Result<Vec<Question>, PolicyError> {
        let config = &self.config;
        let tokenizer = node(acting.nodes, &config.agent)?.tokenizer();
        let how = Condense { turns: config.history.map(AtLeast::get), cut_at: config.cut_at.clone() };
        let largest = config.number(config.steps.get());
        let mut questions = Vec::with_capacity(wanted.len());
        for of_group in wanted.chunk_by(|a, b| a.0 == b.0) {
            let group = of_group[0].0;
            let reader = Reader::new(batch.group(group));
            for (_, state) in of_group {
                let text = reader.prompt(*state, config.privileged, &how, &largest, &*tokenizer);
                let key = [b"critic\0", self.name.as_bytes(), b"\0", reader.key(*state)].concat();
                questions.push(Question { group, state: *state, key, tokens: tokenizer.encode(&text) });
            }
        }
        Ok(questions)
    }

    /// Has `n` answers sampled to each question; none where its prompt leaves no room for one.
    fn ask(
        &mut self,
        questions: &[Question],
        n: usize,
        what: &str,
        acting: &mut Acting<'_>,
    ) -> Result<Vec<Option<Vec<Answer>>>, PolicyError> {
        self.begin(acting.now.update);
        let stream = format!("{}/call-{}", acting.stream(&format!("critic/{}/{what}", self.name)), self.asked.calls);
        self.asked.calls += 1;
        let policy = &mut **node(acting.nodes, &self.config.agent)?;
        let room = policy.max_tokens().saturating_sub(self.config.max_tokens.get());
        let unknown = policy.tokenizer().token(WordTokenizer::UNKNOWN);
        let fits = |question: &Question| question.tokens.len() <= room;
        for question in questions {
            self.asked.tally.prompt(&question.tokens, unknown, fits(question));
        }
        let mut answers: Vec<Option<Vec<Answer>>> = questions.iter().map(|_| None).collect();
        let asked: Vec<usize> = (0..questions.len()).filter(|q| fits(&questions[*q])).collect();
        for some in asked.chunks((AT_ONCE / n).max(1)) {
            let some: Vec<(usize, &Question)> = some.iter().map(|q| (*q, &questions[*q])).collect();
            let mut open: Vec<Session> = Vec::new();
            let said = self.sample(&some, n, &stream, policy, &mut open, (acting.now.update, acting.seeds));
            open.into_iter().for_each(|session| policy.close(session));
            let mut said = said?.into_iter();
            for (q, question) in some {
                let of_question: Vec<Answer> = said.by_ref().take(n).collect();
                let sampled: usize = of_question.iter().map(|answer| answer.action.tokens.len()).sum();
                // The prompt is fed once.
                acting.ledger.critic_tokens += (question.tokens.len() + sampled) as u64;
                of_question.iter().for_each(|answer| self.asked.tally.answer(answer.value));
                answers[q] = Some(of_question);
            }
        }
        Ok(answers)
    }

    /// Samples `n` answers to each question, in order. `open` takes the sessions that are to be closed, whatever happens.
    fn sample(
        &self,
        questions: &[(usize, &Question)],
        n: usize,
        stream: &str,
        policy: &mut dyn Policy,
        open: &mut Vec<Session>,
        (update, seeds): (u32, ascribe_core::Seeds),
    ) -> Result<Vec<Answer>, PolicyError> {
        let tokenizer = policy.tokenizer();
        let stop = self.stop_token(policy)?;
        let mut sessions = Vec::with_capacity(questions.len());
        for _ in questions {
            let session = policy.open()?;
            open.push(session);
            sessions.push(session);
        }
        let prompts: Vec<(Session, &[u32])> =
            sessions.iter().zip(questions).map(|(session, (_, question))| (*session, &question.tokens[..])).collect();
        policy.prefill(&prompts)?;
        let mut work = Vec::with_capacity(questions.len() * n);
        for (own, (_, question)) in sessions.into_iter().zip(questions) {
            for k in 0..n {
                let session = if k + 1 == n { own } else { policy.fork(own)? };
                if session != own {
                    open.push(session);
                }
                let draw = Draw { update, group: question.group as u32, member: question.state as u32, turn: k as u32 };
                work.push(Continuation {
                    session,
                    feed: &[],
                    state_key: &question.key,
                    stop,
                    max_tokens: self.config.max_tokens.get(),
                    allowed: Allowed::Free,
                    temperature: *self.config.temperature as f32,
                    key: seeds.key(stream, draw),
                });
            }
        }
        let rules = self.config.rules();
        let read = |action: Action| {
            // The tag may itself be the stop word: then it belongs to what was said.
            let ends = action.tokens.strip_suffix(&[stop]).filter(|_| !self.stop.eq_ignore_ascii_case("</value>"));
            let text = tokenizer.decode(ends.unwrap_or(&action.tokens));
            Answer { value: read(&text, action.stop == Stop::Length, &rules), action }
        };
        Ok(policy.sample(&work)?.into_iter().map(read).collect())
    }

    fn stop_token(&self, policy: &dyn Policy) -> Result<u32, PolicyError> {
        policy.tokenizer().token(&self.stop).ok_or_else(|| {
            PolicyError::Unsupported(format!(
                "node `{}` has no token for the stop word `{}` of its answers",
                self.config.agent, self.stop
            ))
        })
    }

    /// Counts begin anew with each update.
    fn begin(&mut self, update: u32) {
        if self.asked.update != Some(update) {
            self.asked = Asked { update: Some(update), ..Asked::default() };
        }
    }

    /// Answers of its own, each with the advantage that its distance from what is `taught` gives it. Its error is that from the target.
    fn own_answers(
        &mut self,
        questions: Vec<Question>,
        targets: &[f64],
        taught: &[f64],
        acting: &mut Acting<'_>,
    ) -> Result<Taught, PolicyError> {
        let official = self.config.mode == Mode::Official;
        let answers = self.ask(&questions, self.config.samples.get(), "learn", acting)?;
        let version = node(acting.nodes, &self.config.agent)?.version();
        let (mut logs, mut credit) = (Vec::new(), Vec::new());
        let r_max = *self.config.r_max;
        for ((question, answers), (target, taught)) in questions.into_iter().zip(answers).zip(targets.iter().zip(taught)) {
            let Some(answers) = answers else { continue };
            let values: Vec<Option<f64>> = answers.iter().map(|answer| answer.value.ok()).collect();
            self.asked.tally.learned(&critic_signals(&values, *target, r_max), *target, r_max);
            let signals = critic_signals(&values, *taught, r_max);
            if official && signals.degenerate {
                continue;
            }
            let trained = |a: f64| (!official || a.abs() > ascribe_math::estimates::NOTHING).then_some(a as f32);
            credit.push(Credit { turns: signals.advantages.into_iter().map(trained).collect(), ..Credit::default() });
            let said = answers.into_iter().map(|answer| answer.action);
            logs.push(self.record(question, said, version));
        }
        Ok((logs, credit, self.objective.clone()))
    }

    /// Right answers, written down.
    fn right_answers(
        &mut self,
        questions: Vec<Question>,
        targets: &[f64],
        acting: &mut Acting<'_>,
    ) -> Result<Taught, PolicyError> {
        self.begin(acting.now.update);
        let policy = &mut **node(acting.nodes, &self.config.agent)?;
        let (tokenizer, stop) = (policy.tokenizer(), self.stop_token(policy)?);
        let (limit, version, unknown) = (policy.max_tokens(), policy.version(), tokenizer.token(WordTokenizer::UNKNOWN));
        let (mut logs, mut credit) = (Vec::new(), Vec::new());
        for (question, target) in questions.into_iter().zip(targets) {
            let mut right = tokenizer.encode(&format!("<value> {} </value>", self.config.nearest(*target)));
            if right.last() != Some(&stop) {
                right.push(stop);
            }
            let tokens = question.tokens.len() + right.len();
            self.asked.tally.prompt(&question.tokens, unknown, tokens <= limit);
            if tokens > limit {
                continue;
            }
            self.asked.tally.taught();
            acting.ledger.critic_tokens += tokens as u64;
            logs.push(self.record(question, std::iter::once(Action::given(right)), version));
            credit.push(Credit::per_turn([1.0]));
        }
        Ok((logs, credit, self.imitation.clone()))
    }

    /// Answers to one question as a group of single turns.
    fn record(&self, question: Question, answers: impl Iterator<Item = Action>, version: u64) -> GroupLog {
        let mut group = GroupLog { task_name: format!("critic {}", self.name), ..GroupLog::default() };
        for action in answers {
            group.leaves.push(LeafLog { turn: Some(group.turns.len()), end: End::Terminated { success: false }, seed: 0 });
            group.turns.push(TurnLog {
                agent: self.config.agent.as_str().into(),
                context: Context::Restart,
                read: question.tokens.clone(),
                action,
                state: question.key.clone(),
                policy_version: version,
                ..TurnLog::default()
            });
        }
        group
    }
}

#[cfg(test)]
mod tests;
