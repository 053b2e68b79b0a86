//! Plays a fixed plan: the same actions in every episode, whatever it reads. A baseline for environments: what a
//! sequence without eyes can earn.
//!
//! Its tokens are given, not drawn: they have no behaviour log-probability. It cannot be trained.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascribe_core::log::Action;
use ascribe_core::objective::{DiffColumn, Sums};
use ascribe_core::policy::{Continuation, HeadSpec, OptimStep, Part, PolicyError, ScoreRequest, Scored, Session, StepReport};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{BuildContext, BuildError, Now, Policy, PolicyConfig, RowSet, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[policy.NAME.scripted]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scripted {
    /// Actions in order, without the stop word; the last one is repeated.
    pub plan: Vec<String>,
}

plugin! {
    Policy "scripted" {
        summary: "Plays a fixed plan, whatever it reads.",
        source: "",
        when: "To measure what an environment gives to a fixed sequence of actions.",
        example: "plan = [\"look\"]",
        module: "scripted.rs",
    }
    impl PolicyConfig for Scripted {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Policy>, BuildError> {
            if self.plan.is_empty() {
                return Err(BuildError::Config("`plan` needs at least one action".into()));
            }
            crate::on_the_cpu("a scripted policy", context)?;
            let about = context.environment();
            let tokenizer = WordTokenizer::new(about.vocabulary.iter().chain([&about.stop]).chain(&self.plan));
            Ok(Box::new(Script { plan: self.plan.clone(), tokenizer: Arc::new(tokenizer), next: 0, turns: BTreeMap::new() }))
        }
        fn columns(&self) -> Vec<DiffColumn> {
            Vec::new()
        }
    }
}

/// A live script: how many actions each session has taken.
#[derive(Clone)]
struct Script {
    plan: Vec<String>,
    tokenizer: Arc<WordTokenizer>,
    next: u64,
    turns: BTreeMap<Session, usize>,
}

impl Script {
    fn untrained<T>(&self) -> Result<T, PolicyError> {
        Err(PolicyError::Unsupported("a scripted policy cannot be trained or scored".into()))
    }
    fn turn(&mut self, session: Session) -> Result<&mut usize, PolicyError> {
        self.turns.get_mut(&session).ok_or_else(|| PolicyError::Unsupported(format!("session {} is not open", session.0)))
    }
}

impl Policy for Script {
    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.tokenizer.clone()
    }
    fn version(&self) -> u64 {
        0
    }
    fn max_tokens(&self) -> usize {
        usize::MAX / 2
    }
    fn n_parameters(&self) -> usize {
        0
    }
    fn columns(&self) -> Vec<DiffColumn> {
        Vec::new()
    }
    fn add_head(&mut self, _spec: HeadSpec) -> Result<(), PolicyError> {
        self.untrained()
    }
    fn open(&mut self) -> Result<Session, PolicyError> {
        let session = Session(self.next);
        self.next += 1;
        self.turns.insert(session, 0);
        Ok(session)
    }
    fn prefill(&mut self, work: &[(Session, &[u32])]) -> Result<(), PolicyError> {
        work.iter().try_for_each(|(session, _)| self.turn(*session).map(|_| ()))
    }
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
        let turns = *self.turn(session)?;
        let fork = self.open()?;
        self.turns.insert(fork, turns);
        Ok(fork)
    }
    fn close(&mut self, session: Session) {
        self.turns.remove(&session);
    }
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        work.iter()
            .map(|w| {
                let turn = self.turn(w.session)?;
                let i = *turn;
                *turn += 1;
                let mut tokens = self.tokenizer.encode(&self.plan[i.min(self.plan.len() - 1)]);
                tokens.push(w.stop);
                let stop =
                    if tokens.len() > w.max_tokens { ascribe_core::log::Stop::Length } else { ascribe_core::log::Stop::Complete };
                tokens.truncate(w.max_tokens);
                Ok(Action { stop, ..Action::given(tokens) })
            })
            .collect()
    }
    fn score(&mut self, _rows: &RowSet, _request: &ScoreRequest) -> Result<Scored, PolicyError> {
        self.untrained()
    }
    fn forward_backward(&mut self, _parts: &[Part<'_>], _micro: usize, _now: &Now) -> Result<Vec<Sums>, PolicyError> {
        self.untrained()
    }
    fn optim_step(&mut self, _step: &OptimStep) -> Result<StepReport, PolicyError> {
        self.untrained()
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        Ok(Box::new(self.clone()))
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(Vec::new())
    }
    fn load(&mut self, _bytes: &[u8]) -> Result<(), PolicyError> {
        Ok(())
    }
}
