//! A policy that remembers every token it was fed, and an environment that draws: what strategies must not mix up.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ascribe_core::environment::{
    ActionText, Capabilities, EnvironmentError, Observation, RestoreError, Snapshot, SnapshotKind, Step, TRAIN, TaskId,
};
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Action, Context, GroupLog, Stop, TurnLog, Validity};
use ascribe_core::objective::{DiffColumn, Sums};
use ascribe_core::play::{Decode, Keep, Play, Start};
use ascribe_core::policy::{Continuation, HeadSpec, OptimStep, Part, PolicyError, ScoreRequest, Scored, Session, StepReport};
use ascribe_core::rollout::{Acting, Nodes};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{
    BuildContext, Draw, End, Environment, Metrics, NamedCritic, Now, Policy, RolloutConfig, RolloutStrategy, RowSet, Seeds, Slot,
    TaskSet,
};

// A crate that is linked but never named is dropped by the linker.
use ascribe_rollouts as _;

const STOP: &str = ".";
const LETTERS: [&str; 4] = ["a", "b", "c", "d"];

/// What an environment is like.
#[derive(Clone, Copy, Debug)]
pub struct Nature {
    pub snapshot: SnapshotKind,
    /// Turns of an episode; it ends before, where the policy says `d`.
    pub turns: usize,
    /// Every so many turns the sequence begins anew; 0 is never.
    pub restarts: usize,
    /// Whether what is paid is drawn.
    pub draws: bool,
}

impl Default for Nature {
    fn default() -> Self {
        Self { snapshot: SnapshotKind::Exact, turns: 5, restarts: 0, draws: true }
    }
}

pub struct Walks {
    nature: Nature,
    about: Capabilities,
}

impl Walks {
    pub fn new(nature: Nature) -> Self {
        let words = ["walk", "task", "coin", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let about = Capabilities {
            snapshot: nature.snapshot,
            exact_state_key: true,
            r_max: 8.0,
            max_turns: nature.turns,
            max_action_tokens: 4,
            stop: STOP.into(),
            vocabulary: words.iter().chain(&LETTERS).map(|w| (*w).to_string()).collect(),
            provides: Vec::new(),
        };
        Self { nature, about }
    }
}

impl TaskSet for Walks {
    fn capabilities(&self) -> &Capabilities {
        &self.about
    }
    fn splits(&self) -> Vec<String> {
        vec![TRAIN.into()]
    }
    fn len(&self, split: &str) -> usize {
        if split == TRAIN { 7 } else { 0 }
    }
    fn fingerprint(&self) -> String {
        "walks".into()
    }
    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(Walk { nature: self.nature, at: At { task: task.index, seed, turn: 0, coin: 0, said: Vec::new() } }))
    }
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct At {
    task: u32,
    seed: u64,
    turn: usize,
    coin: u64,
    said: Vec<String>,
}

struct Walk {
    nature: Nature,
    at: At,
}

impl Environment for Walk {
    fn observe(&self) -> Observation {
        let At { task, turn, coin, .. } = &self.at;
        let restarts = self.nature.restarts > 0 && *turn > 0 && turn.is_multiple_of(self.nature.restarts);
        let context = if restarts { Context::Restart } else { Context::Extend };
        let text = if *turn == 0 { format!("walk task {task}") } else { format!("coin {coin}") };
        Observation { key: text.clone().into_bytes(), text, context }
    }
    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        let chance = Seeds(self.at.seed).rng("walk", Draw { turn: self.at.turn as u32, ..Draw::default() }).next_u64();
        self.at.coin = if self.nature.draws { chance % 4 } else { 0 };
        self.at.turn += 1;
        self.at.said.push(action.text.into());
        let reward = (self.at.coin as usize + action.text.len() % 3) as f32 * 0.25;
        let end = action.text.contains('d').then_some(End::Terminated { success: true });
        Ok(Step { reward, end, validity: Validity::Valid, signals: Vec::new() })
    }
    fn state_key(&self) -> Vec<u8> {
        let At { task, turn, coin, said, .. } = &self.at;
        format!("{task}/{turn}/{coin}/{}", said.join("|")).into_bytes()
    }
    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        if self.nature.snapshot != SnapshotKind::Exact {
            return Err(RestoreError::Unsupported);
        }
        let bytes = serde_json::to_vec(&self.at).unwrap();
        Ok(Snapshot { fingerprint: "walks".into(), version: 1, bytes, observation: self.observe().text })
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.at = serde_json::from_slice(&snapshot.bytes).map_err(|e| RestoreError::Damaged(e.to_string()))?;
        Ok(())
    }
    fn reseed(&mut self, seed: u64) {
        self.at.seed = seed;
    }
}

/// What a reader did, for tests to look at.
#[derive(Default)]
pub struct Deeds {
    /// Every token of each open session.
    pub sessions: BTreeMap<Session, Vec<u32>>,
    /// Tokens fed, by hand and with continuations.
    pub fed: u64,
    /// Tokens sampled.
    pub sampled: u64,
    next: u64,
}

/// A policy whose log-probabilities are a fingerprint of all it has read and said.
pub struct Reader {
    tokenizer: Arc<WordTokenizer>,
    pub deeds: Arc<Mutex<Deeds>>,
    /// What it says at each turn, if not random letters.
    pub script: Vec<&'static str>,
    /// Most tokens of a sequence.
    pub limit: usize,
}

impl Reader {
    pub fn new(tasks: &dyn TaskSet) -> Self {
        let about = tasks.capabilities();
        let tokenizer = Arc::new(WordTokenizer::new(about.vocabulary.iter().chain([&about.stop])));
        Self { tokenizer, deeds: Arc::default(), script: Vec::new(), limit: 10_000 }
    }
}

/// A number in (0, 1) that depends on every token.
pub fn fingerprint(tokens: &[u32]) -> f32 {
    let hash = tokens.iter().fold(17u64, |hash, t| (hash ^ u64::from(*t)).wrapping_mul(0x0100_0000_01b3).rotate_left(7));
    (1 + hash % 997) as f32 / 1000.0
}

fn unsupported<T>() -> Result<T, PolicyError> {
    Err(PolicyError::Unsupported("a reader does not learn".into()))
}

impl Policy for Reader {
    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.tokenizer.clone()
    }
    fn version(&self) -> u64 {
        3
    }
    fn max_tokens(&self) -> usize {
        self.limit
    }
    fn n_parameters(&self) -> usize {
        0
    }
    fn columns(&self) -> Vec<DiffColumn> {
        Vec::new()
    }
    fn add_head(&mut self, _: HeadSpec) -> Result<(), PolicyError> {
        unsupported()
    }
    fn open(&mut self) -> Result<Session, PolicyError> {
        let mut deeds = self.deeds.lock().unwrap();
        deeds.next += 1;
        let session = Session(deeds.next);
        deeds.sessions.insert(session, Vec::new());
        Ok(session)
    }
    fn prefill(&mut self, work: &[(Session, &[u32])]) -> Result<(), PolicyError> {
        let mut deeds = self.deeds.lock().unwrap();
        for (session, feed) in work {
            deeds.fed += feed.len() as u64;
            deeds.sessions.get_mut(session).expect("open").extend_from_slice(feed);
        }
        Ok(())
    }
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
        let fork = self.open()?;
        let mut deeds = self.deeds.lock().unwrap();
        let past = deeds.sessions[&session].clone();
        deeds.sessions.insert(fork, past);
        Ok(fork)
    }
    fn close(&mut self, session: Session) {
        self.deeds.lock().unwrap().sessions.remove(&session).expect("no session is closed twice");
    }
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        let mut deeds = self.deeds.lock().unwrap();
        // One borrow of what is behind the lock, whose fields are then apart.
        let deeds = &mut *deeds;
        let said = |w: &Continuation<'_>| {
            let mut rng = w.key.rng();
            deeds.fed += w.feed.len() as u64;
            let past = deeds.sessions.get_mut(&w.session).expect("open");
            past.extend_from_slice(w.feed);
            let mut action = Action { temperature: w.temperature, stop: Stop::Complete, ..Action::default() };
            let turn = past.iter().filter(|t| **t == w.stop).count();
            let text = match self.script.get(turn) {
                Some(text) => (*text).to_string(),
                None => (0..=rng.below(2)).map(|_| *rng.choose(&LETTERS[..]).unwrap()).collect::<Vec<_>>().join(" "),
            };
            let (mut logprobs, mut entropies) = (Vec::new(), Vec::new());
            for token in self.tokenizer.encode(&text).into_iter().chain([w.stop]) {
                logprobs.push(-fingerprint(past));
                entropies.push(2.0 * fingerprint(past));
                action.at.push(action.tokens.len() as u32);
                action.support.push(None);
                action.tokens.push(token);
                past.push(token);
                deeds.sampled += 1;
            }
            action.logprob = Some(logprobs);
            action.entropy = Some(entropies);
            action
        };
        Ok(work.iter().map(said).collect())
    }
    fn score(&mut self, _: &RowSet, _: &ScoreRequest) -> Result<Scored, PolicyError> {
        unsupported()
    }
    fn forward_backward(&mut self, _: &[Part<'_>], _: usize, _: &Now) -> Result<Vec<Sums>, PolicyError> {
        unsupported()
    }
    fn optim_step(&mut self, _: &OptimStep) -> Result<StepReport, PolicyError> {
        unsupported()
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        unsupported()
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(Vec::new())
    }
    fn load(&mut self, _: &[u8]) -> Result<(), PolicyError> {
        Ok(())
    }
}

/// An environment and a reader.
pub struct World {
    pub tasks: Box<dyn TaskSet>,
    pub nodes: Nodes,
    pub critics: Vec<NamedCritic>,
    pub deeds: Arc<Mutex<Deeds>>,
    pub ledger: Ledger,
    pub metrics: Metrics,
    pub keep: Keep,
    pub now: Now,
    pub drawn: u64,
}

pub const SEEDS: Seeds = Seeds(5);

impl World {
    pub fn new(nature: Nature) -> Self {
        Self::scripted(nature, Vec::new())
    }

    pub fn scripted(nature: Nature, script: Vec<&'static str>) -> Self {
        Self::limited(nature, script, 10_000)
    }

    /// A world whose policy reads so many tokens at most.
    pub fn limited(nature: Nature, script: Vec<&'static str>, limit: usize) -> Self {
        Self::of(Box::new(Walks::new(nature)), script, limit)
    }

    /// These tasks, and a reader who may understand nothing of them.
    pub fn of(tasks: Box<dyn TaskSet>, script: Vec<&'static str>, limit: usize) -> Self {
        let snapshots = tasks.capabilities().snapshot == SnapshotKind::Exact;
        let reader = Reader { script, limit, ..Reader::new(&*tasks) };
        let deeds = reader.deeds.clone();
        Self {
            tasks,
            nodes: Nodes::from([("actor".to_string(), Box::new(reader) as Box<dyn Policy>)]),
            critics: Vec::new(),
            deeds,
            ledger: Ledger::default(),
            metrics: Metrics::default(),
            keep: Keep { privileged: false, snapshots },
            now: Now::default(),
            drawn: 0,
        }
    }

    /// A strategy from its table.
    pub fn strategy(&self, name: &str, body: &str) -> Box<dyn RolloutStrategy> {
        build(&*self.tasks, name, body).unwrap()
    }

    /// The groups of the next update, whose records are checked against what the policy read.
    pub fn collect(&mut self, strategy: &mut dyn RolloutStrategy) -> Vec<GroupLog> {
        self.metrics = Metrics::default();
        let groups = strategy
            .collect(&mut Acting {
                nodes: &mut self.nodes,
                critics: &mut self.critics,
                tasks: &mut *self.tasks,
                drawn: &mut self.drawn,
                seeds: SEEDS,
                round: 0,
                keep: self.keep,
                patience: None,
                ledger: &mut self.ledger,
                metrics: &mut self.metrics,
                now: &self.now,
            })
            .unwrap();
        self.now.update += 1;
        self.check(&groups);
        groups
    }

    /// One update of a new strategy.
    pub fn once(&mut self, name: &str, body: &str) -> Vec<GroupLog> {
        let mut strategy = self.strategy(name, body);
        self.collect(&mut *strategy)
    }

    /// Every log-probability is that of the tokens before it on its path, no session is left open, and the ledger holds what
    /// the policy was fed and sampled.
    pub fn check(&self, groups: &[GroupLog]) {
        for group in groups {
            for t in 0..group.turns.len() {
                let mut past = before(group, t);
                let action = &group.turns[t].action;
                for (token, logprob) in action.tokens.iter().zip(action.logprob.as_ref().unwrap()) {
                    assert_eq!(-fingerprint(&past), *logprob, "turn {t} was said after something else");
                    past.push(*token);
                }
            }
        }
        let deeds = self.deeds.lock().unwrap();
        assert!(deeds.sessions.is_empty(), "{} sessions are left open", deeds.sessions.len());
        assert_eq!(self.ledger.fed_tokens, deeds.fed);
        assert_eq!(self.ledger.actor_tokens + self.ledger.branch_tokens, deeds.sampled);
    }
}

/// A strategy from its table.
pub fn build(tasks: &dyn TaskSet, name: &str, body: &str) -> Result<Box<dyn RolloutStrategy>, String> {
    let body: toml::Table = toml::from_str(body).map_err(|e| e.to_string())?;
    let table = toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))]);
    let config: Slot<dyn RolloutConfig> = toml::Value::Table(table).try_into().map_err(|e| e.to_string())?;
    let context = BuildContext {
        seeds: SEEDS,
        device: "cpu",
        threads: 1,
        environment: Some(tasks.capabilities()),
        nodes: std::collections::BTreeSet::from(["actor".to_string()]),
        base: std::path::PathBuf::new(),
    };
    config.build(&context).map_err(|e| e.to_string())
}

/// What was read and said before turn `t` acts, since its sequence began anew.
pub fn before(group: &GroupLog, t: usize) -> Vec<u32> {
    let turn: &TurnLog = &group.turns[t];
    let mut past = match turn.parent {
        _ if turn.context == Context::Restart => Vec::new(),
        None => group.history.tokens.clone(),
        Some(parent) => [before(group, parent), group.turns[parent].action.tokens.clone()].concat(),
    };
    past.extend(&turn.read);
    past
}

/// What to play on the first tasks.
pub fn play(starts: &[Start], members: usize, keep: Keep) -> Play<'_> {
    Play {
        agent: "actor",
        starts,
        members,
        temperature: 1.0,
        decode: Decode::Free,
        keep,
        patience: None,
        stream: "test",
        update: 0,
        seeds: SEEDS,
    }
}

/// The beginnings of the first `n` tasks.
pub fn starts(n: u32) -> Vec<Start> {
    (0..n).map(|index| Start::of(TaskId { split: TRAIN.into(), index })).collect()
}
