//! A task that goes on as a golden case says, and a policy that says one word.

use std::sync::Arc;

use ascribe_core::environment::{
    ActionText, Capabilities, EnvironmentError, Observation, RestoreError, Snapshot, SnapshotKind, Step, TRAIN, TaskId,
};
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Action, Context, GroupLog, History, Origin};
use ascribe_core::objective::{DiffColumn, Sums};
use ascribe_core::play::{Back, Keep, State};
use ascribe_core::policy::{Continuation, HeadSpec, OptimStep, Part, PolicyError, ScoreRequest, Scored, Session, StepReport};
use ascribe_core::rollout::{Acting, Nodes};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{BuildContext, End, Environment, Metrics, Now, Policy, RolloutConfig, RowSet, Seeds, TaskSet};
use ascribe_rollouts::{MacroStep, StateStore, StoredState};

/// The word that is said, which ends each action.
const STOP: &str = ".";

/// A task of so many turns, whose every prompt begins a sequence of its own.
#[derive(Clone)]
pub struct Track {
    /// Turns after which the environment is done, and whether it is won then.
    pub done: Option<(usize, bool)>,
    /// Limit of turns.
    pub max_turns: usize,
    /// Most tokens of a prompt with its action.
    pub max_tokens: usize,
    /// Tokens of the prompt after so many turns.
    pub prompt: Arc<dyn Fn(usize) -> usize + Send + Sync>,
}

/// What came of a path.
pub struct Walked {
    /// Its turns.
    pub turns: usize,
    /// How it ended.
    pub end: End,
    /// What the store holds after it.
    pub stored: Vec<StoredState>,
}

impl Track {
    /// One macro step of `config` from the state after `turns` turns, `macro_index` macro steps after the task's beginning.
    pub fn walk(&self, config: &MacroStep, turns: usize, macro_index: u32) -> Walked {
        let seed = 7;
        let at = Course { track: self.clone(), turns, about: about(self) };
        let snapshot =
            Snapshot { fingerprint: String::new(), version: 1, bytes: vec![turns as u8], observation: at.observe().text };
        let back = Back { snapshot: Some(Arc::new(snapshot)), ..Back::default() };
        let state = State { seed, back, turns, history: History::default(), origin: Origin::default() };
        let mut store = StateStore::new(1);
        store.add(0, [(TaskId { split: TRAIN.into(), index: 0 }, state, macro_index)]);

        let tokenizer = Arc::new(WordTokenizer::new([STOP]));
        let policy: Box<dyn Policy> = Box::new(Word { tokenizer, max_tokens: self.max_tokens });
        let mut nodes = Nodes::from([("actor".to_string(), policy)]);
        let mut tasks = Course { turns: 0, ..at };
        let context = BuildContext {
            seeds: Seeds(0),
            device: "cpu",
            threads: 1,
            environment: None,
            nodes: ["actor".to_string()].into(),
            base: std::path::PathBuf::new(),
        };
        let mut walking = config.build(&context).expect("it is built");
        walking.load(&store.save()).expect("its own bytes");
        let groups: Vec<GroupLog> = walking
            .collect(&mut Acting {
                nodes: &mut nodes,
                critics: &mut Vec::new(),
                tasks: &mut tasks,
                drawn: &mut 0,
                seeds: Seeds(0),
                round: 0,
                keep: Keep::default(),
                patience: None,
                ledger: &mut Ledger::default(),
                metrics: &mut Metrics::default(),
                now: &Now::default(),
            })
            .expect("it is played");
        store.load(&walking.save()).expect("its own bytes");
        let group = &groups[0];
        assert_eq!((groups.len(), group.before), (1, turns), "it begins where it was stored");
        let stored = store.states().filter(|state| state.number > 0).cloned().collect();
        Walked { turns: group.turns.len(), end: group.leaves[0].end.clone(), stored }
    }

    /// Every state at a boundary of a whole path, walked macro step by macro step.
    pub fn boundaries(&self, config: &MacroStep) -> Vec<StoredState> {
        let mut all: Vec<StoredState> = Vec::new();
        loop {
            let (turns, macro_index) = all.last().map_or((0, 0), |state| (state.state.turns, state.macro_index));
            match self.walk(config, turns, macro_index).stored.pop() {
                Some(state) => all.push(state),
                None => return all,
            }
        }
    }
}

fn about(track: &Track) -> Capabilities {
    Capabilities {
        snapshot: SnapshotKind::Exact,
        exact_state_key: true,
        r_max: 1.0,
        max_turns: track.max_turns,
        max_action_tokens: 1,
        stop: STOP.into(),
        vocabulary: Vec::new(),
        provides: Vec::new(),
    }
}

/// An episode, and the set of the one task that it is an episode of.
struct Course {
    track: Track,
    turns: usize,
    about: Capabilities,
}

impl Environment for Course {
    fn observe(&self) -> Observation {
        let words = (self.track.prompt)(self.turns);
        let shown = format!("obs{}", self.turns as i64 - 1);
        let text = std::iter::once(shown.as_str()).chain(std::iter::repeat_n("and", words - 1)).collect::<Vec<_>>().join(" ");
        Observation { key: text.clone().into_bytes(), text, context: Context::Restart }
    }
    fn step(&mut self, _: ActionText<'_>) -> Result<Step, EnvironmentError> {
        self.turns += 1;
        let end = self.track.done.filter(|(turns, _)| *turns == self.turns).map(|(_, success)| End::Terminated { success });
        Ok(Step { end, ..Step::default() })
    }
    fn state_key(&self) -> Vec<u8> {
        vec![self.turns as u8]
    }
    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        let observation = self.observe().text;
        Ok(Snapshot { fingerprint: String::new(), version: 1, bytes: self.state_key(), observation })
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.turns = usize::from(snapshot.bytes[0]);
        Ok(())
    }
}

impl TaskSet for Course {
    fn capabilities(&self) -> &Capabilities {
        &self.about
    }
    fn splits(&self) -> Vec<String> {
        vec![TRAIN.into()]
    }
    fn len(&self, _: &str) -> usize {
        1
    }
    fn fingerprint(&self) -> String {
        String::new()
    }
    fn open(&self, _: &TaskId, _: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(Course { track: self.track.clone(), turns: 0, about: self.about.clone() }))
    }
}

/// A policy that says the stop word, and learns nothing.
struct Word {
    tokenizer: Arc<WordTokenizer>,
    max_tokens: usize,
}

fn unsupported<T>() -> Result<T, PolicyError> {
    Err(PolicyError::Unsupported("it says one word".into()))
}

impl Policy for Word {
    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.tokenizer.clone()
    }
    fn version(&self) -> u64 {
        0
    }
    fn max_tokens(&self) -> usize {
        self.max_tokens
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
        Ok(Session(0))
    }
    fn prefill(&mut self, _: &[(Session, &[u32])]) -> Result<(), PolicyError> {
        Ok(())
    }
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
        Ok(session)
    }
    fn close(&mut self, _: Session) {}
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        let word =
            |w: &Continuation<'_>| Action { logprob: Some(vec![0.0]), entropy: Some(vec![0.0]), ..Action::given(vec![w.stop]) };
        Ok(work.iter().map(word).collect())
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
        unsupported()
    }
    fn load(&mut self, _: &[u8]) -> Result<(), PolicyError> {
        unsupported()
    }
}
