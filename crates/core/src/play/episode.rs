//! One live episode.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::environment::{ActionText, Environment, EnvironmentError, Observation, Snapshot, Step};
use crate::log::{Action, Context, End, Limit, Shown, Stop, TurnLog, Validity};
use crate::play::Play;
use crate::policy::Session;
use crate::tokenizer::Tokenizer;

/// An episode being played.
pub(super) struct Episode {
    pub group: usize,
    pub member: usize,
    /// Seed that its environment was opened with.
    pub seed: u64,
    /// The episode it left, and the number of turns that both share, counted from the group's start.
    pub from: Option<(usize, usize)>,
    /// Seed of the chance that its own turns meet, where it is not that of what came before ([`Environment::reseed`]).
    pub chance: Option<u64>,
    /// Turns before the group's start.
    pub before: usize,
    pub environment: Option<Box<dyn Environment>>,
    /// The state at the group's start, where it is kept.
    pub begun: Option<Arc<Snapshot>>,
    pub session: Option<Session>,
    /// Session and its length before each of its own turns, after it read, where they are kept.
    pub kept: Vec<(Session, usize)>,
    /// Tokens of what the agent read last.
    pub read: Vec<u32>,
    /// What its session was not fed yet.
    pub feed: Vec<u32>,
    /// Tokens in its session.
    pub length: usize,
    pub seen: Observation,
    /// Its own turns, after those it shares.
    pub turns: Vec<TurnLog>,
    /// Actions that were sampled and not carried out, with the number of own turns before each.
    pub untried: Vec<(usize, TurnLog)>,
    pub end: Option<End>,
}

impl Episode {
    pub fn new(group: usize, member: usize, seed: u64) -> Self {
        Self {
            group,
            member,
            seed,
            from: None,
            chance: None,
            before: 0,
            environment: None,
            begun: None,
            session: None,
            kept: Vec::new(),
            read: Vec::new(),
            feed: Vec::new(),
            length: 0,
            seen: Observation::default(),
            turns: Vec::new(),
            untried: Vec::new(),
            end: None,
        }
    }

    pub fn is_live(&self) -> bool {
        self.end.is_none()
    }

    /// Turns from the group's start on.
    pub fn depth(&self) -> usize {
        self.from.map_or(0, |(_, shared)| shared) + self.turns.len()
    }

    /// Turns from the task's beginning on: what limits and random numbers count.
    pub fn turn(&self) -> usize {
        self.before + self.depth()
    }

    pub fn environment(&self) -> &dyn Environment {
        &**self.environment.as_ref().expect("a live episode has an environment")
    }

    pub fn environment_mut(&mut self) -> &mut dyn Environment {
        &mut **self.environment.as_mut().expect("a live episode has an environment")
    }

    /// Reads what the environment shows.
    pub fn read(&mut self, tokenizer: &dyn Tokenizer) {
        self.seen = self.environment().observe();
        self.read = tokenizer.encode(&self.seen.text);
        self.feed.clone_from(&self.read);
        if self.seen.context == Context::Restart {
            self.length = 0;
        }
    }

    /// Reads on after a turn, if it is not over and what comes still fits the policy.
    pub fn go_on(&mut self, tokenizer: &dyn Tokenizer, max_turns: usize, longest_action: usize, limit: usize) {
        if self.is_live() && self.turn() >= max_turns {
            self.end = Some(End::Truncated(Limit::Turns));
        }
        if self.is_live() {
            self.read(tokenizer);
            if self.length + self.feed.len() + longest_action > limit {
                self.end = Some(End::Truncated(Limit::Context));
            }
        }
    }

    /// What is recorded of an action, before it is carried out.
    pub fn record(&self, play: &Play<'_>, action: Action, state: Vec<u8>, version: u64, said: &Said) -> TurnLog {
        TurnLog {
            agent: play.agent.into(),
            context: self.seen.context,
            read: self.read.clone(),
            validity: if said.complete { Validity::Valid } else { Validity::Cut },
            observation: self.seen.key.clone(),
            state,
            action_key: said.text.clone().into_bytes(),
            observation_text: self.seen.text.clone(),
            action_text: said.text.clone(),
            privileged: if play.keep.privileged { self.environment().privileged() } else { None },
            policy_version: version,
            action,
            ..TurnLog::default()
        }
    }

    /// Carries out an action and writes the turn down.
    pub fn act(&mut self, play: &Play<'_>, mut turn: TurnLog, said: &Said) {
        let step = self.step(said, play.patience);
        let broken = matches!(step.end, Some(End::Failed(_)));
        if !broken {
            // What broke cannot be asked what state it is in.
            let environment = self.environment();
            turn.state_after = environment.state_key();
            turn.snapshot = play.keep.snapshots.then(|| environment.snapshot().ok().map(Arc::new)).flatten();
        }
        self.length += self.feed.len() + turn.action.tokens.len();
        turn.reward = step.reward;
        turn.signals = step.signals;
        if said.complete {
            turn.validity = step.validity;
        }
        self.turns.push(turn);
        self.end = step.end;
    }

    /// Notes what the state shows in which its path was cut: nobody acts in it any more, but a critic may be asked what it is
    /// worth.
    pub fn show_end(&mut self, privileged: bool) {
        let cut = self.end.as_ref().is_none_or(End::bootstraps);
        let (Some(turn), Some(environment)) = (self.turns.last_mut().filter(|_| cut), &self.environment) else { return };
        let Observation { text: observation, context, .. } = environment.observe();
        let privileged = privileged.then(|| environment.privileged()).flatten();
        turn.shown_after = Some(Box::new(Shown { observation, context, privileged }));
    }

    /// A step of the environment. One that breaks or takes too long ends the episode.
    fn step(&mut self, said: &Said, patience: Option<Duration>) -> Step {
        let failed = |e: EnvironmentError| Step { end: Some(End::Failed(e.0)), ..Step::default() };
        let Some(patience) = patience else {
            let environment = self.environment_mut();
            return guarded(|| environment.step(said.as_action())).unwrap_or_else(failed);
        };
        // What hangs cannot be stopped from outside; it keeps its thread and loses its episode.
        let mut environment = self.environment.take().expect("a live episode has an environment");
        let (send, receive) = mpsc::channel();
        let theirs = said.clone();
        std::thread::spawn(move || {
            let step = guarded(|| environment.step(theirs.as_action()));
            // Nobody listens any more where it took too long.
            let _ = send.send((environment, step));
        });
        match receive.recv_timeout(patience) {
            Ok((environment, step)) => {
                self.environment = Some(environment);
                step.unwrap_or_else(failed)
            }
            Err(_) => failed(EnvironmentError(format!("a step took longer than {} s", patience.as_secs_f64()))),
        }
    }
}

/// What the agent said, as text without the stop token.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub text: String,
    pub complete: bool,
}

impl Said {
    pub fn of(action: &Action, tokenizer: &dyn Tokenizer, stop: u32) -> Self {
        let said = action.tokens.strip_suffix(&[stop]).unwrap_or(&action.tokens);
        Self { text: tokenizer.decode(said), complete: action.stop == Stop::Complete }
    }

    fn as_action(&self) -> ActionText<'_> {
        ActionText { text: &self.text, complete: self.complete }
    }
}

/// Runs environment code; what panics is an error like any other, and ends one episode.
pub(super) fn guarded<T>(f: impl FnOnce() -> Result<T, EnvironmentError>) -> Result<T, EnvironmentError> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().map(|s| (*s).to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
        Err(EnvironmentError(format!("the environment panicked: {}", what.unwrap_or_else(|| "no message".into()))))
    })
}
