//! Privileged text never reaches an actor: not its prompts, not what it is trained on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{ActionText, Capabilities, EnvironmentError, Observation, SnapshotKind, Step, TRAIN, TaskId};
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Action, Context, End};
use ascribe_core::objective::{DiffColumn, Sums};
use ascribe_core::play::{Decode, Keep, Play, Start};
use ascribe_core::policy::{Continuation, HeadSpec, OptimStep, Part, PolicyError, ScoreRequest, Scored, Session, StepReport};
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::rollout::{Acting, Nodes};
use ascribe_core::tokenizer::Tokenizer;
use ascribe_core::{
    Batch, BuildContext, BuildError, Credit, CriticConfig, Environment, Metrics, NamedCritic, Need, Now, Policy, PolicyConfig,
    Rng, RowSet, Seeds, Slot, TaskSet, TaskSetConfig,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

// Every plugin crate is linked by the binary's library.
use ascribe as _;

const CANARY: [&str; 2] = ["canary-alpha", "canary-beta"];

/// An environment whose privileged text is a canary, in a vocabulary that could spell it.
struct Aviary {
    about: Capabilities,
}
struct Cage {
    turns: usize,
    context: Context,
}
impl TaskSet for Aviary {
    fn capabilities(&self) -> &Capabilities {
        &self.about
    }
    fn splits(&self) -> Vec<String> {
        vec![TRAIN.into()]
    }
    fn len(&self, split: &str) -> usize {
        2 * usize::from(split == TRAIN)
    }
    fn fingerprint(&self) -> String {
        "aviary".into()
    }
    fn open(&self, task: &TaskId, _seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        let context = if task.index == 0 { Context::Extend } else { Context::Restart };
        Ok(Box::new(Cage { turns: 0, context }))
    }
}
impl Environment for Cage {
    fn observe(&self) -> Observation {
        Observation { text: format!("you see a cage {}", self.turns), context: self.context, key: b"cage".to_vec() }
    }
    fn step(&mut self, _action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        self.turns += 1;
        Ok(Step { end: (self.turns == 3).then_some(End::Terminated { success: true }), ..Step::default() })
    }
    fn state_key(&self) -> Vec<u8> {
        vec![self.turns as u8]
    }
    fn admissible(&self) -> Option<Vec<String>> {
        Some(vec!["open".into(), "see".into()])
    }
    fn expert(&mut self, _rng: &mut Rng) -> Option<String> {
        Some("open".into())
    }
    fn privileged(&self) -> Option<String> {
        Some(CANARY.join(" "))
    }
}

/// A policy that notes every token it is fed.
struct Spy {
    inner: Box<dyn Policy>,
    fed: Arc<Mutex<BTreeSet<u32>>>,
}
impl Spy {
    fn note(&self, tokens: &[u32]) {
        self.fed.lock().expect("no test thread panics").extend(tokens);
    }
}
impl Policy for Spy {
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
        self.inner.open()
    }
    fn prefill(&mut self, work: &[(Session, &[u32])]) -> Result<(), PolicyError> {
        work.iter().for_each(|(_, feed)| self.note(feed));
        self.inner.prefill(work)
    }
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
        self.inner.fork(session)
    }
    fn close(&mut self, session: Session) {
        self.inner.close(session);
    }
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        work.iter().for_each(|w| self.note(w.feed));
        self.inner.sample(work)
    }
    fn score(&mut self, rows: &RowSet, request: &ScoreRequest) -> Result<Scored, PolicyError> {
        self.note(&context_of(rows));
        self.inner.score(rows, request)
    }
    fn forward_backward(&mut self, parts: &[Part<'_>], micro: usize, now: &Now) -> Result<Vec<Sums>, PolicyError> {
        self.inner.forward_backward(parts, micro, now)
    }
    fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError> {
        self.inner.optim_step(step)
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        self.inner.copy()
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        self.inner.save()
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        self.inner.load(bytes)
    }
}

/// Tokens of rows that nobody is trained to say.
fn context_of(rows: &RowSet) -> Vec<u32> {
    let of_row = |r: usize| {
        let trained: BTreeSet<usize> = rows.rows[r].trained.clone().map(|i| rows.at[i]).collect();
        let all = rows.tokens_of(r).iter().enumerate();
        all.filter(|(i, _)| !trained.contains(i)).map(|(_, token)| *token).collect::<Vec<u32>>()
    };
    (0..rows.len()).flat_map(of_row).collect()
}

fn slot<T: ?Sized>(name: &str, body: &str) -> Slot<T>
where
    Slot<T>: DeserializeOwned,
{
    let body: toml::Table = toml::from_str(body).expect("TOML");
    Slot::deserialize(toml::Value::Table(toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))])))
        .expect("a plugin")
}
fn context(environment: Option<&Capabilities>) -> BuildContext<'_> {
    BuildContext { seeds: Seeds(0), device: "cpu", threads: 1, environment, nodes: BTreeSet::new(), base: ".".into() }
}
fn policy(about: &Capabilities) -> Box<dyn Policy> {
    let config: Slot<dyn PolicyConfig> = slot("transformer", "d_model = 16\nlayers = 1\nheads = 2\nmax_tokens = 4096");
    config.build(&context(Some(about))).expect("a small transformer")
}

/// Plays every way there is, with privileged text kept, and gives the batches.
fn batches(tasks: &dyn TaskSet, policy: &mut dyn Policy) -> Vec<Batch> {
    let task = |index| TaskId { split: TRAIN.into(), index };
    let starts: Vec<Start> = (0..tasks.len(TRAIN).min(2) as u32).map(task).map(Start::of).collect();
    let provides = &tasks.capabilities().provides;
    let mut out = Vec::new();
    for decode in [Decode::Free, Decode::Admissible] {
        if decode == Decode::Admissible && !provides.contains(&Need::Admissible) {
            continue;
        }
        let play = Play {
            agent: "actor",
            starts: &starts,
            members: 2,
            temperature: 1.0,
            decode,
            keep: Keep { privileged: true, snapshots: false },
            patience: None,
            stream: "leak",
            update: 0,
            seeds: Seeds(0),
        };
        out.push(play.sample(policy, tasks, &mut Ledger::default()).expect("played"));
        if !provides.contains(&Need::Expert) {
            continue;
        }
        let tokenizer = policy.tokenizer();
        out.push(play.expert(&*tokenizer, policy.max_tokens(), tasks, &mut Ledger::default()).expect("played"));
    }
    out.into_iter().map(|groups| Batch::from_groups(groups, NonFinite::Refuse).expect("well formed")).collect()
}

/// Plays with privileged text kept: words of which all stand in every such text are in nothing that an actor reads.
fn reaches_no_actor(tasks: &dyn TaskSet, words: &[&str]) {
    let fed = Arc::default();
    let mut spy = Spy { inner: policy(tasks.capabilities()), fed: Arc::clone(&fed) };
    let tokenizer = spy.tokenizer();
    let secret: Vec<u32> = words.iter().map(|w| tokenizer.token(w).expect("the secret could be spelled")).collect();
    for batch in batches(tasks, &mut spy) {
        for note in &batch.notes {
            let kept = tokenizer.encode(note.privileged.as_deref().expect("privileged text was kept for critics"));
            assert!(secret.iter().all(|token| kept.contains(token)), "{:?}", note.privileged);
        }
        // What was read, sampled or given; a random policy may say the secret's words itself, so its own are left out.
        let (turns, sampled) = (&batch.turns, &batch.sampled);
        for t in 0..turns.parent.len() {
            let tokens = &batch.tokens[turns.tokens[t].range()];
            let own: BTreeSet<usize> = turns.sampled[t].range().map(|i| sampled.at[i] as usize).collect();
            let read = tokens.iter().enumerate().filter(|(i, _)| !own.contains(i));
            assert!(read.into_iter().all(|(_, token)| !secret.contains(token)), "turn {t}");
        }
        let credit: Vec<Credit> = batch.groups().map(|g| Credit::per_turn(vec![1.0; g.n_turns()])).collect();
        let rows = RowSet::from_credit(&batch, &credit, None);
        assert!(context_of(&rows).iter().all(|token| !secret.contains(token)));
    }
    let fed = fed.lock().expect("no test thread panics");
    assert!(fed.len() >= 5 && secret.iter().all(|token| !fed.contains(token)), "{fed:?}");
}

fn aviary() -> Aviary {
    let words = ["you", "see", "a", "cage", "open", "0", "1", "2", "3"];
    Aviary {
        about: Capabilities {
            snapshot: SnapshotKind::None,
            exact_state_key: true,
            r_max: 1.0,
            max_turns: 5,
            max_action_tokens: 3,
            stop: "end".into(),
            vocabulary: words.iter().chain(&CANARY).map(|w| (*w).to_string()).collect(),
            provides: vec![Need::Admissible, Need::Expert, Need::Privileged],
        },
    }
}

#[test]
fn a_canary_in_privileged_text_reaches_no_actor() {
    reaches_no_actor(&aviary(), &CANARY);
}

/// What a critic feeds to a node or has it trained on holds privileged text if, and only if, it says that it needs it.
#[test]
fn critics_read_privileged_text_only_where_they_ask_for_it() {
    let mut seen = Vec::new();
    for row in plugins(Kind::Critic) {
        let config: Slot<dyn CriticConfig> = slot(row.name, row.example);
        let needs = config.needs();
        // An aviary has neither columns nor tables nor snapshots.
        if needs.iter().any(|need| !matches!(need, Need::Node(_) | Need::Privileged | Need::ExactStateKey)) {
            continue;
        }
        let mut tasks = aviary();
        tasks.about.vocabulary.extend(config.words());
        let fed: Arc<Mutex<BTreeSet<u32>>> = Arc::default();
        let mut nodes = Nodes::new();
        let named = needs.iter().filter_map(|need| match need {
            Need::Node(name) => Some(name.clone()),
            _ => None,
        });
        for name in named.chain(["actor".to_string()]) {
            nodes.insert(name, Box::new(Spy { inner: policy(&tasks.about), fed: Arc::clone(&fed) }));
        }
        let mut build = context(Some(&tasks.about));
        build.nodes = nodes.keys().cloned().collect();
        let critic = config.build("critic", &build).expect("built from its example");
        for (node, head) in critic.heads() {
            nodes.get_mut(&node).expect("it says which node it needs").add_head(head).expect("a transformer has heads");
        }
        let mut critic = NamedCritic { name: "critic".into(), critic };

        // What actors say is chosen among the listed actions: none of them says the canary by chance.
        let keep = Keep { privileged: true, snapshots: false };
        let starts: Vec<Start> = (0..2).map(|index| Start::of(TaskId { split: TRAIN.into(), index })).collect();
        let play = Play {
            agent: "actor",
            starts: &starts,
            members: 2,
            temperature: 1.0,
            decode: Decode::Admissible,
            keep,
            patience: None,
            stream: "leak",
            update: 0,
            seeds: Seeds(0),
        };
        let actor = &mut **nodes.get_mut("actor").expect("just added");
        let secret: Vec<u32> = CANARY.iter().map(|word| actor.tokenizer().token(word).expect("known")).collect();
        let groups = play.sample(actor, &tasks, &mut Ledger::default()).expect("played");
        let mut batch = Batch::from_groups(groups, NonFinite::Refuse).expect("well formed");
        fed.lock().expect("no test thread panics").clear();

        let (mut drawn, mut ledger, mut metrics) = (0, Ledger::default(), Metrics::default());
        let mut acting = Acting {
            nodes: &mut nodes,
            critics: &mut Vec::new(),
            tasks: &mut tasks,
            drawn: &mut drawn,
            seeds: Seeds(0),
            round: 0,
            keep,
            ledger: &mut ledger,
            metrics: &mut metrics,
            now: &Now::default(),
        };
        critic.judge(&mut batch, &mut acting).expect("judged");
        let credit: Vec<Credit> = batch.groups().map(|g| Credit::per_turn(vec![1.0; g.n_turns()])).collect();
        let lessons = critic.critic.learn(&batch, &credit, &mut acting).expect("learned");
        let mut fed = fed.lock().expect("no test thread panics").clone();
        fed.extend(lessons.iter().filter_map(|lesson| lesson.rows.own()).flat_map(|rows| context_of(rows)));
        let read = secret.iter().any(|token| fed.contains(token));
        assert_eq!(read, needs.contains(&Need::Privileged), "`{}`", row.name);
        // Whatever the critic did, the actor's rows are what they were.
        let rows = RowSet::from_credit(&batch, &credit, Some("actor"));
        assert!(context_of(&rows).iter().all(|token| !secret.contains(token)), "`{}`", row.name);
        seen.push(row.name);
    }
    assert!(seen.contains(&"generative") && seen.contains(&"checklist"), "{seen:?}");
}

#[test]
fn a_hidden_rule_and_what_it_leaves_reach_no_actor() {
    let config: Slot<dyn TaskSetConfig> = slot("knights", "completions = true");
    let tasks = config.build(&context(None)).expect("it has no data that could be absent");
    reaches_no_actor(&*tasks, &["hidden", "rule", "knight", "refused", "squares", "direction", "completions", "left", "best"]);
}

#[test]
fn privileged_text_of_real_environments_is_not_observed() {
    let mut told = BTreeSet::new();
    for row in plugins(Kind::Environment) {
        let config: Slot<dyn TaskSetConfig> = slot(row.name, row.example);
        let tasks = match config.build(&context(None)) {
            Ok(tasks) => tasks,
            Err(BuildError::Data(why)) => {
                println!("skipped `{}`: {why}", row.name);
                continue;
            }
            Err(e) => panic!("`{}`: {e}", row.name),
        };
        let mut policy = policy(tasks.capabilities());
        for batch in batches(&*tasks, &mut *policy) {
            assert!(!batch.notes.is_empty());
            for note in &batch.notes {
                let Some(privileged) = &note.privileged else { continue };
                told.insert(row.name);
                assert!(!note.observation.contains(privileged.trim()), "`{}` shows its privileged text: {privileged}", row.name);
            }
        }
    }
    assert!(["bugfix", "curriculum", "sokoban"].iter().all(|name| told.contains(name)), "{told:?}");
}
