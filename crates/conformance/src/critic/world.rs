//! What a critic acts in while it is checked: an environment, policy nodes and a ledger, all of which count what is asked of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{
    ActionText, Capabilities, EnvironmentError, Observation, Oracle, RestoreError, Snapshot, Step, TaskId,
};
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Action, GroupLog};
use ascribe_core::objective::{DiffColumn, Sums};
use ascribe_core::play::{Branch, Crowd, Decode, Keep, Play, Start};
use ascribe_core::policy::{Continuation, HeadSpec, OptimStep, Part, PolicyError, ScoreRequest, Scored, Session, StepReport};
use ascribe_core::rollout::{Acting, Nodes};
use ascribe_core::tokenizer::Tokenizer;
use ascribe_core::{Batch, Environment, Metrics, Need, Now, Policy, Rng, RowSet, Seeds, TaskSet};

use super::Subject;
use crate::Finding;
use crate::groups;

/// Longest episode, in turns.
const TURNS: usize = 24;
/// Groups per update.
const GROUPS: usize = 3;
/// Of a column that may have gaps, one state in so many has none.
const GAP: usize = 5;
/// The seed of all that is random.
pub(super) const SEEDS: Seeds = Seeds(11);

/// What was asked of policies and environments.
#[derive(Debug, Default)]
pub(super) struct Spent {
    /// Steps of environments.
    pub steps: AtomicU64,
    /// Tokens that a policy sampled, was fed, or scored.
    pub tokens: AtomicU64,
    /// Sessions that are open.
    pub sessions: AtomicI64,
    /// Whether environments break at the next step.
    breaks: AtomicBool,
    /// Whether experts say what means nothing.
    mumbles: AtomicBool,
}

impl Spent {
    fn tokens(&self, n: usize) {
        self.tokens.fetch_add(n as u64, Ordering::Relaxed);
    }
}

/// One world of a check.
pub(super) struct World<'a> {
    subject: &'a Subject<'a>,
    pub nodes: Nodes,
    tasks: Tasks<'a>,
    pub spent: Arc<Spent>,
    pub ledger: Ledger,
    pub metrics: Metrics,
    pub now: Now,
    drawn: u64,
}

impl<'a> World<'a> {
    /// Nodes as they are built, without heads.
    pub fn new(subject: &'a Subject<'a>) -> Result<Self, Finding> {
        let spent = Arc::new(Spent::default());
        let mut nodes = Nodes::new();
        for name in &subject.nodes {
            let policy = subject.policy(name)?;
            nodes.insert(name.clone(), Box::new(Counted { inner: policy, spent: spent.clone() }));
        }
        let mut about = subject.about.clone();
        about.max_turns = about.max_turns.min(TURNS);
        let tasks = Tasks { inner: subject.world.tasks, about, spent: spent.clone() };
        let (ledger, metrics, now) = (Ledger::default(), Metrics::default(), Now { phase_updates: 8, ..Now::default() });
        Ok(Self { subject, nodes, tasks, spent, ledger, metrics, now, drawn: 0 })
    }

    /// What an acting stage sees, without critics.
    pub fn act<T>(&mut self, f: impl FnOnce(&mut Acting<'_>) -> T) -> T {
        let keep = self.keep();
        f(&mut Acting {
            nodes: &mut self.nodes,
            critics: &mut Vec::new(),
            tasks: &mut self.tasks,
            drawn: &mut self.drawn,
            seeds: SEEDS,
            round: 0,
            keep,
            patience: None,
            ledger: &mut self.ledger,
            metrics: &mut self.metrics,
            now: &self.now,
        })
    }

    /// What the critic says that it needs kept, and nothing else.
    fn keep(&self) -> Keep {
        let needs = |need| self.subject.needs.contains(&need);
        Keep { privileged: needs(Need::Privileged), snapshots: needs(Need::ExactSnapshot) }
    }

    /// The groups of an update: independent episodes.
    pub fn play(&mut self) -> Result<Vec<GroupLog>, Finding> {
        let starts = self.starts()?;
        self.play_from(&starts)
    }

    /// The beginnings of the next tasks.
    pub fn starts(&mut self) -> Result<Vec<Start>, Finding> {
        self.act(|acting| acting.draw(GROUPS)).map_err(|e| e.to_string().into())
    }

    /// Groups of independent episodes from these beginnings.
    pub fn play_from(&mut self, starts: &[Start]) -> Result<Vec<GroupLog>, Finding> {
        self.with_play(starts, |play, policy, tasks, ledger| play.sample(policy, tasks, ledger).map_err(|e| e.to_string()))
    }

    /// Groups whose episodes fork after their first turn.
    pub fn play_forks(&mut self) -> Result<Vec<GroupLog>, Finding> {
        let starts = self.starts()?;
        self.with_play(&starts, |play, policy, tasks, ledger| {
            let forked = (|| {
                let mut crowd = Crowd::open(play, policy, tasks, ledger)?;
                crowd.step(policy, ledger)?;
                let forks: Vec<Branch> = (0..crowd.len())
                    .filter(|episode| crowd.is_live(*episode))
                    .map(|episode| Branch { episode, turns: 1 })
                    .collect();
                crowd.branch(&forks, policy, ledger)?;
                while crowd.step(policy, ledger)? {}
                Ok(crowd.finish(policy, ledger))
            })();
            forked.map_err(|e: ascribe_core::rollout::RolloutError| e.to_string())
        })
    }

    /// Groups of which nothing that is said means anything.
    pub fn play_nonsense(&mut self) -> Result<Vec<GroupLog>, Finding> {
        let starts = self.starts()?;
        self.spent.mumbles.store(true, Ordering::Relaxed);
        let played = self.with_play(&starts, |play, policy, tasks, ledger| {
            let play = Play { decode: Decode::Free, ..play.clone() };
            play.expert(&*policy.tokenizer(), policy.max_tokens(), tasks, ledger).map_err(|e| e.to_string())
        });
        self.spent.mumbles.store(false, Ordering::Relaxed);
        let mut groups = played?;
        for turn in groups.iter_mut().flat_map(|group| &mut group.turns) {
            let n = turn.action.at.len();
            turn.action.logprob.get_or_insert_with(|| vec![-2.0; n]);
            turn.action.entropy.get_or_insert_with(|| vec![1.0; n]);
        }
        Ok(groups)
    }

    fn with_play<T>(
        &mut self,
        starts: &[Start],
        run: impl FnOnce(&Play<'_>, &mut dyn Policy, &Tasks<'_>, &mut Ledger) -> Result<T, String>,
    ) -> Result<T, Finding> {
        let agent = self.subject.agent.as_str();
        let admissible = self.subject.about.provides.contains(&Need::Admissible);
        let play = Play {
            agent,
            starts,
            members: self.subject.members,
            temperature: 1.0,
            decode: if admissible { Decode::Admissible } else { Decode::Free },
            keep: self.keep(),
            patience: None,
            stream: "rollout",
            update: self.now.update,
            seeds: SEEDS,
        };
        let policy = self.nodes.get_mut(agent).ok_or_else(|| format!("there is no node `{agent}`"))?;
        run(&play, &mut **policy, &self.tasks, &mut self.ledger).map_err(|e| format!("episodes cannot be played: {e}").into())
    }

    /// Records as a batch, with the columns that the critic needs from others.
    pub fn batch(&self, logs: Vec<GroupLog>) -> Result<Batch, Finding> {
        let mut batch = Batch::from_groups(logs, NonFinite::Refuse).map_err(|e| e.to_string())?;
        for need in &self.subject.needs {
            let Some((name, scope)) = need.column().filter(|(name, _)| !batch.signals.contains_key(*name)) else { continue };
            groups::add(&mut batch, name, scope, 1.0)?;
            // Who asks for some states alone has to bear that others have none.
            if let (Need::SomeStates(_), Some(signal)) = (need, batch.signals.get_mut(name)) {
                (0..signal.column.len()).step_by(GAP).for_each(|state| signal.column.set(state, None));
            }
        }
        Ok(batch)
    }

    /// From now on every step of an environment is an error.
    pub fn break_environments(&self) {
        self.spent.breaks.store(true, Ordering::Relaxed);
    }

    /// The weights of every node.
    pub fn weights(&self) -> Result<Vec<(String, Vec<u8>)>, Finding> {
        let mut all = Vec::new();
        for (name, node) in &self.nodes {
            all.push((name.clone(), node.save().map_err(|e| e.to_string())?));
        }
        Ok(all)
    }
}

/// Tasks whose episodes count their steps.
struct Tasks<'a> {
    inner: &'a dyn TaskSet,
    about: Capabilities,
    spent: Arc<Spent>,
}

impl TaskSet for Tasks<'_> {
    fn capabilities(&self) -> &Capabilities {
        &self.about
    }
    fn splits(&self) -> Vec<String> {
        self.inner.splits()
    }
    fn len(&self, split: &str) -> usize {
        self.inner.len(split)
    }
    fn name(&self, task: &TaskId) -> String {
        self.inner.name(task)
    }
    fn category(&self, task: &TaskId) -> Option<String> {
        self.inner.category(task)
    }
    fn fingerprint(&self) -> String {
        self.inner.fingerprint()
    }
    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(Episode { inner: self.inner.open(task, seed)?, spent: self.spent.clone() }))
    }
    fn oracle(&self, task: &TaskId) -> Option<&dyn Oracle> {
        self.inner.oracle(task)
    }
}

/// What means nothing to any environment: nothing, blanks, what opens and does not close, what breaks out of quotes.
const NONSENSE: [&str; 6] =
    ["", "<unk>", "{\"score\": ", "\u{1F34E} 去 e\u{301}", "\"}], \\ ' ` $(:) -1e999 NaN", "1 2 3 . . , ("];

/// An episode that counts its steps.
struct Episode {
    inner: Box<dyn Environment>,
    spent: Arc<Spent>,
}

impl Environment for Episode {
    fn observe(&self) -> Observation {
        self.inner.observe()
    }
    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        self.spent.steps.fetch_add(1, Ordering::Relaxed);
        if self.spent.breaks.load(Ordering::Relaxed) {
            return Err(EnvironmentError("made to break".into()));
        }
        self.inner.step(action)
    }
    fn state_key(&self) -> Vec<u8> {
        self.inner.state_key()
    }
    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        self.inner.snapshot()
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.inner.restore(snapshot)
    }
    fn reseed(&mut self, seed: u64) {
        self.inner.reseed(seed);
    }
    fn admissible(&self) -> Option<Vec<String>> {
        self.inner.admissible()
    }
    fn expert(&mut self, rng: &mut Rng) -> Option<String> {
        if self.spent.mumbles.load(Ordering::Relaxed) {
            return Some(NONSENSE[rng.below(NONSENSE.len())].into());
        }
        self.inner.expert(rng)
    }
    fn privileged(&self) -> Option<String> {
        self.inner.privileged()
    }
    fn ground_truth(&self) -> Option<String> {
        self.inner.ground_truth()
    }
    fn stage(&self) -> Option<u32> {
        self.inner.stage()
    }
}

/// A policy that counts what is asked of it, copies included.
struct Counted {
    inner: Box<dyn Policy>,
    spent: Arc<Spent>,
}

impl Counted {
    fn opened(&self, session: Result<Session, PolicyError>) -> Result<Session, PolicyError> {
        self.spent.sessions.fetch_add(i64::from(session.is_ok()), Ordering::Relaxed);
        session
    }
}

impl Policy for Counted {
    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.inner.tokenizer()
    }
    fn version(&self) -> u64 {
        self.inner.version()
    }
    fn max_tokens(&self) -> usize {
        self.inner.max_tokens()
    }
    fn n_parameters(&self) -> usize {
        self.inner.n_parameters()
    }
    fn columns(&self) -> Vec<DiffColumn> {
        self.inner.columns()
    }
    fn add_head(&mut self, spec: HeadSpec) -> Result<(), PolicyError> {
        self.inner.add_head(spec)
    }
    fn open(&mut self) -> Result<Session, PolicyError> {
        let session = self.inner.open();
        self.opened(session)
    }
    fn prefill(&mut self, work: &[(Session, &[u32])]) -> Result<(), PolicyError> {
        self.spent.tokens(work.iter().map(|(_, tokens)| tokens.len()).sum());
        self.inner.prefill(work)
    }
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
        let session = self.inner.fork(session);
        self.opened(session)
    }
    fn close(&mut self, session: Session) {
        self.spent.sessions.fetch_sub(1, Ordering::Relaxed);
        self.inner.close(session);
    }
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        let actions = self.inner.sample(work)?;
        let fed: usize = work.iter().map(|w| w.feed.len()).sum();
        self.spent.tokens(fed + actions.iter().map(|action| action.tokens.len()).sum::<usize>());
        Ok(actions)
    }
    fn score(&mut self, rows: &RowSet, request: &ScoreRequest) -> Result<Scored, PolicyError> {
        self.spent.tokens(rows.rows.iter().map(|row| row.tokens.len()).sum());
        self.inner.score(rows, request)
    }
    fn forward_backward(&mut self, parts: &[Part<'_>], micro_batch_tokens: usize, now: &Now) -> Result<Vec<Sums>, PolicyError> {
        self.inner.forward_backward(parts, micro_batch_tokens, now)
    }
    fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError> {
        self.inner.optim_step(step)
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        Ok(Box::new(Self { inner: self.inner.copy()?, spent: self.spent.clone() }))
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        self.inner.save()
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        self.inner.load(bytes)
    }
}
