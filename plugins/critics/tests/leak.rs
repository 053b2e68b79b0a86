//! Privileged text reaches no actor: not what it reads, not what it is trained on, whatever critics do with it.
//!
//! Every critic runs in whole experiments whose privileged text and whose true answer are words that nothing else says, and
//! policy nodes write down all that comes to them. Every embedded environment is played, and what is read is compared with what
//! is kept.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ascribe_config::{Request, load};
use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{
    ActionText, Capabilities, EnvironmentError, Observation, Oracle, RestoreError, Snapshot, Step, TRAIN, TaskId,
};
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Action, Context};
use ascribe_core::need::covers;
use ascribe_core::objective::{DiffColumn, Sums};
use ascribe_core::play::{Decode, Keep, Play, Start};
use ascribe_core::policy::{
    Allowed, Continuation, HeadSpec, OptimStep, Part, PolicyError, ScoreRequest, Scored, Session, StepReport,
};
use ascribe_core::registry::{Kind, Plugin, plugins};
use ascribe_core::tokenizer::Tokenizer;
use ascribe_core::{
    Batch, BuildContext, BuildError, CriticConfig, Environment, Need, Now, Policy, PolicyConfig, Provide, Rng, RowSet, Scope,
    Seeds, Slot, TaskSet, TaskSetConfig, plugin,
};
use ascribe_run::{Ended, Event, Options, Progress, folder, run};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

// A crate that is linked but never named is dropped by the linker.
use {
    ascribe_critics as _, ascribe_environments as _, ascribe_estimators as _, ascribe_objectives as _, ascribe_policies as _,
    ascribe_rollouts as _,
};

/// What only critics may know. Three words: a table that says anything at random does not come upon them in a row.
const SECRET: [&str; 3] = ["canary-alpha", "canary-beta", "canary-gamma"];
/// The true answer, which only who asks for the ground truth may know.
const TRUTH: [&str; 3] = ["finch-alpha", "finch-beta", "finch-gamma"];
/// How a judge's own prompts begin, and nothing that an actor reads.
const JUDGE: &str = "You judge an episode from its last state on .";

/// `[environment.aviary]`: another environment's tasks, whose privileged text and true answer are canaries.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aviary {
    of: Slot<dyn TaskSetConfig>,
    /// Columns of turns that it gives.
    #[serde(default)]
    columns: Vec<String>,
    /// Whether each observation begins the sequence anew.
    #[serde(default)]
    anew: bool,
    /// Whether it blurts out what is privileged: to see that this is noticed.
    #[serde(default)]
    tells: bool,
}
plugin! {
    Environment "aviary" {
        summary: "Canaries.", source: "", when: "In tests.", example: "of = \"repair-mdp\"",
    }
    impl TaskSetConfig for Aviary {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            let of = self.of.build(context)?;
            let mut about = of.capabilities().clone();
            about.vocabulary.extend(SECRET.iter().chain(&TRUTH).map(|word| (*word).to_string()));
            about.provides = self.provides();
            Ok(Box::new(Cages { of, about, columns: self.columns.clone(), anew: self.anew, tells: self.tells }))
        }
        fn provides(&self) -> Vec<Provide> {
            let columns = self.columns.iter().map(|name| Need::Signal(name.clone(), Scope::Turn));
            self.of.provides().into_iter().chain([Need::Privileged, Need::GroundTruth]).chain(columns).collect()
        }
    }
}

struct Cages {
    of: Box<dyn TaskSet>,
    about: Capabilities,
    columns: Vec<String>,
    anew: bool,
    tells: bool,
}
impl TaskSet for Cages {
    fn capabilities(&self) -> &Capabilities {
        &self.about
    }
    fn splits(&self) -> Vec<String> {
        self.of.splits()
    }
    fn len(&self, split: &str) -> usize {
        self.of.len(split)
    }
    fn fingerprint(&self) -> String {
        self.of.fingerprint()
    }
    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        let (columns, anew, tells) = (self.columns.clone(), self.anew, self.tells);
        Ok(Box::new(Cage { of: self.of.open(task, seed)?, columns, anew, tells }))
    }
    fn oracle(&self, task: &TaskId) -> Option<&dyn Oracle> {
        self.of.oracle(task)
    }
}

struct Cage {
    of: Box<dyn Environment>,
    columns: Vec<String>,
    anew: bool,
    tells: bool,
}
impl Environment for Cage {
    fn observe(&self) -> Observation {
        let seen = self.of.observe();
        let text = if self.tells { format!("{}\n{}", seen.text, SECRET.join(" ")) } else { seen.text };
        Observation { text, context: if self.anew { Context::Restart } else { Context::Extend }, key: seen.key }
    }
    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        let mut step = self.of.step(action)?;
        // Both numbers occur, and hang on nothing but the state: probes that come back see them again.
        let odd = self.of.state_key().iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) % 2;
        step.signals.extend(self.columns.iter().map(|name| (name.clone(), f32::from(odd))));
        Ok(step)
    }
    fn state_key(&self) -> Vec<u8> {
        self.of.state_key()
    }
    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        self.of.snapshot()
    }
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.of.restore(snapshot)
    }
    fn reseed(&mut self, seed: u64) {
        self.of.reseed(seed);
    }
    fn admissible(&self) -> Option<Vec<String>> {
        self.of.admissible()
    }
    fn expert(&mut self, rng: &mut Rng) -> Option<String> {
        self.of.expert(rng)
    }
    fn privileged(&self) -> Option<String> {
        Some(SECRET.join(" "))
    }
    fn ground_truth(&self) -> Option<String> {
        Some(TRUTH.join(" "))
    }
    fn stage(&self) -> Option<u32> {
        self.of.stage()
    }
}

/// `[policy.NAME.spy]`: a table that writes down all that comes to it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spy {
    /// Where it is written down: tests run side by side, and in one process.
    notes: String,
}
plugin! {
    Policy "spy" {
        summary: "A table that writes down what comes to it.", source: "", when: "In tests.", example: "notes = \"example\"",
    }
    impl PolicyConfig for Spy {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Policy>, BuildError> {
            Ok(Box::new(Spying { inner: table().build(context)?, notes: self.notes.clone(), sessions: BTreeMap::new() }))
        }
        fn columns(&self) -> Vec<DiffColumn> {
            table().columns()
        }
        fn hidden(&self) -> bool {
            true
        }
        fn needs(&self) -> Vec<Need> {
            table().needs()
        }
    }
}
fn table() -> Slot<dyn PolicyConfig> {
    slot("tabular", "")
}

/// How tokens came to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Fed and sampled, by who acts or answers.
    Played,
    Scored,
    Trained,
}

/// One sequence, as somebody was given it.
#[derive(Clone, Debug)]
struct Heard {
    way: Way,
    /// Its words, one per token, and whether it may have been said by chance: any word was allowed there.
    words: Vec<(String, bool)>,
    /// Keys of the states that it was acted in, which a table reads.
    states: Vec<u8>,
}

impl Heard {
    /// Whether a canary is in it: one of its words that was no chance, or all of them in a row.
    fn holds(&self, canary: &[&str; 3]) -> bool {
        let is = |word: &str| canary.contains(&word);
        let in_state = |word: &&str| self.states.windows(word.len()).any(|bytes| bytes == word.as_bytes());
        self.words.iter().any(|(word, chance)| !chance && is(word))
            || self.words.windows(canary.len()).any(|run| run.iter().all(|(word, _)| is(word)))
            || canary.iter().any(in_state)
    }

    fn is_judgement(&self) -> bool {
        JUDGE.split(' ').zip(&self.words).all(|(word, (heard, _))| word == heard) && self.words.len() > 9
    }
}

/// What each node heard, by its notes.
static HEARD: Mutex<BTreeMap<String, Vec<Heard>>> = Mutex::new(BTreeMap::new());

struct Spying {
    inner: Box<dyn Policy>,
    notes: String,
    /// What open sessions have read and said, and what of it was free.
    sessions: BTreeMap<Session, Vec<(u32, bool)>>,
}

impl Spying {
    fn note(&self, way: Way, tokens: &[(u32, bool)], states: Vec<u8>) {
        let tokenizer = self.inner.tokenizer();
        let words = tokens.iter().map(|(token, free)| (tokenizer.decode(&[*token]), *free)).collect();
        HEARD.lock().unwrap().entry(self.notes.clone()).or_default().push(Heard { way, words, states });
    }

    fn note_rows(&self, way: Way, rows: &RowSet) {
        for (r, row) in rows.rows.iter().enumerate() {
            let free: BTreeSet<usize> =
                row.trained.clone().filter(|i| rows.support_of(*i).is_none()).map(|i| rows.at[i]).collect();
            let tokens: Vec<(u32, bool)> = (0..).zip(rows.tokens_of(r)).map(|(at, token)| (*token, free.contains(&at))).collect();
            let states = rows.turns[row.turns.clone()].iter().flat_map(|turn| rows.state_bytes(turn).to_vec()).collect();
            self.note(way, &tokens, states);
        }
    }

    fn read(&mut self, session: Session, tokens: &[u32]) {
        self.sessions.entry(session).or_default().extend(tokens.iter().map(|token| (*token, false)));
    }
}

impl Policy for Spying {
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
        for (session, tokens) in work {
            self.read(*session, tokens);
            self.note(Way::Played, &self.sessions[session], Vec::new());
        }
        self.inner.prefill(work)
    }
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
        let fork = self.inner.fork(session)?;
        let past = self.sessions.get(&session).cloned().unwrap_or_default();
        self.sessions.insert(fork, past);
        Ok(fork)
    }
    fn close(&mut self, session: Session) {
        self.sessions.remove(&session);
        self.inner.close(session);
    }
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        let actions = self.inner.sample(work)?;
        for (w, action) in work.iter().zip(&actions) {
            self.read(w.session, w.feed);
            let free = |at: u32| matches!(w.allowed, Allowed::Free) && action.at.contains(&at);
            let said = (0..).zip(&action.tokens).map(|(at, token)| (*token, free(at)));
            self.sessions.entry(w.session).or_default().extend(said);
            self.note(Way::Played, &self.sessions[&w.session], w.state_key.to_vec());
        }
        Ok(actions)
    }
    fn score(&mut self, rows: &RowSet, request: &ScoreRequest) -> Result<Scored, PolicyError> {
        self.note_rows(Way::Scored, rows);
        let mut scored = self.inner.score(rows, &ScoreRequest { hidden: false, ..request.clone() })?;
        if request.hidden {
            // A table has no hidden vectors: the last token that was read, and a number that is always the same.
            for (r, row) in rows.rows.iter().enumerate() {
                let before = |i: usize| rows.at[i].checked_sub(1).map_or(0.0, |at| rows.tokens_of(r)[at] as f32);
                scored.hidden.extend(row.trained.clone().flat_map(|i| [before(i), 7.0]));
            }
        }
        Ok(scored)
    }
    fn forward_backward(&mut self, parts: &[Part<'_>], micro: usize, now: &Now) -> Result<Vec<Sums>, PolicyError> {
        parts.iter().for_each(|part| self.note_rows(Way::Trained, &part.rows));
        self.inner.forward_backward(parts, micro, now)
    }
    fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError> {
        self.inner.optim_step(step)
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        Ok(Box::new(Self { inner: self.inner.copy()?, notes: self.notes.clone(), sessions: self.sessions.clone() }))
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        self.inner.save()
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        self.inner.load(bytes)
    }
}

fn slot<T: ?Sized>(name: &str, body: &str) -> Slot<T>
where
    Slot<T>: DeserializeOwned,
{
    let body: toml::Table = toml::from_str(body).expect("TOML");
    Slot::deserialize(toml::Value::Table(toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))])))
        .expect("a plugin")
}

struct Quiet;
impl Progress for Quiet {
    fn on(&mut self, _: Event<'_>) {}
}

/// A critic's table in an aviary.
struct Case<'a> {
    critic: &'a str,
    body: &'a str,
    anew: bool,
    tells: bool,
}

impl Case<'_> {
    fn needs(&self) -> Vec<Need> {
        slot::<dyn CriticConfig>(self.critic, self.body).needs()
    }

    /// A whole experiment with it, and what each policy node heard. Whatever the critic asks for, a second one has privileged
    /// text kept, and reads it on the node `control`.
    fn heard(&self) -> BTreeMap<String, Vec<Heard>> {
        let Self { critic, body, anew, tells } = self;
        let mut nodes: BTreeSet<String> = ["actor", "control"].map(String::from).into();
        let (mut columns, mut others) = (Vec::new(), String::new());
        for need in self.needs() {
            match need {
                Need::Node(name) => drop(nodes.insert(name)),
                // An environment can give any column of turns; the others come from the critics that give them.
                Need::Signal(name, Scope::Turn) => columns.push(name),
                Need::Signal(..) | Need::SomeStates(_) => {
                    let gives = |row: &&&Plugin| {
                        let config = slot::<dyn CriticConfig>(row.name, row.example);
                        covers(&config.provides(), &need) && !config.needs().contains(&Need::Privileged)
                    };
                    let all = plugins(Kind::Critic);
                    let row = all.iter().find(gives).unwrap_or_else(|| panic!("`{critic}`: nobody gives {need}"));
                    others.push_str(&format!("[critic.other-{}.{0}]\n{}\n", row.name, row.example));
                }
                _ => {}
            }
        }
        let notes = |node: &str| format!("{critic} {body} {anew} {tells} {node}");
        let policies: String =
            nodes.iter().map(|node| format!("[policy.{node}.spy]\nnotes = {}\n", toml::Value::String(notes(node)))).collect();
        let text = format!(
            "objective = \"reinforce\"
            updates = 3
            estimator.return-to-go.gamma = 1.0
            update.learning_rate = 0.1
            rollout.independent = {{ groups = 2, group_size = 2, decode = \"admissible\" }}
            [environment.aviary]
            of = {{ repair-mdp = {{ horizon = 4 }} }}
            columns = {columns:?}
            anew = {anew}
            tells = {tells}
            [critic.control.generative]
            agent = \"control\"
            column = \"control\"
            privileged = true
            values = \"ends\"
            max_tokens = 4
            {others}
            [critic.subject.{critic}]
            {body}
            {policies}"
        );
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("experiment.toml");
        std::fs::write(&file, &text).unwrap();
        let loaded = load(&Request::new(file)).unwrap_or_else(|report| panic!("no world for `{critic}`: {report}\n{text}"));
        let options = Options { folder: Some(place.path().join("run")), ..Options::default() };
        let report = run(&loaded.plan, &options, &mut Quiet).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(report.ended, Ended::Finished);
        // It came to judge: what it gives is there.
        let metrics: Vec<_> =
            folder::metrics(&place.path().join("run")).unwrap().into_iter().map(|line| line.metrics.0).collect();
        for given in slot::<dyn CriticConfig>(critic, body).provides() {
            let column = format!("signal/{}/", given.column().expect("critics give columns").0);
            let there = metrics.iter().flat_map(|m| m.keys()).any(|name| name.starts_with(&column));
            assert!(there, "`{critic}` gave nothing as {column}");
        }
        let mut all = HEARD.lock().unwrap();
        nodes.into_iter().map(|node| (node.clone(), all.remove(&notes(&node)).unwrap_or_default())).collect()
    }
}

/// The ways in which a canary came to a node, where it stands in what was no judge's own prompt.
fn leaks(heard: &[Heard], canary: &[&str; 3]) -> BTreeSet<Way> {
    heard.iter().filter(|h| h.holds(canary) && !h.is_judgement()).map(|h| h.way).collect()
}
fn told(heard: &[Heard], canary: &[&str; 3]) -> bool {
    heard.iter().any(|h| h.holds(canary))
}

#[test]
fn no_critic_lets_privileged_text_reach_who_acts() {
    let mut readers = Vec::new();
    for row in plugins(Kind::Critic) {
        for anew in [false, true] {
            let case = Case { critic: row.name, body: row.example, anew, tells: false };
            let (needs, heard) = (case.needs(), case.heard());
            let asks = needs.contains(&Need::Privileged);
            for (node, heard) in &heard {
                let at = format!("`{}` on `{node}`, anew {anew}", row.name);
                assert_eq!(leaks(heard, &SECRET), BTreeSet::new(), "{at}");
                // Even in prompts of its own it is read by none but who asks for it.
                assert_eq!(told(heard, &SECRET), node == "control" || asks && needs.contains(&Need::Node(node.clone())), "{at}");
                // The true answer is scored by who asks for it; nobody is fed it, and nobody is trained to say it.
                let scored = needs.contains(&Need::GroundTruth) && needs.contains(&Need::Node(node.clone()));
                let ways: BTreeSet<Way> = scored.then_some(Way::Scored).into_iter().collect();
                assert_eq!(leaks(heard, &TRUTH), ways, "{at}");
                assert!(ways.len() == usize::from(told(heard, &TRUTH)), "{at}");
            }
            // The actor played and was trained, else nothing is shown.
            for way in [Way::Played, Way::Trained] {
                assert!(heard["actor"].iter().any(|h| h.way == way && !h.is_judgement()), "`{}`: {way:?}", row.name);
            }
            assert!(heard["control"].iter().any(|h| h.way == Way::Trained && h.holds(&SECRET)), "`{}`", row.name);
            readers.extend((asks && !anew).then_some(row.name));
        }
    }
    assert!(readers.contains(&"generative"), "{readers:?}");
}

#[test]
fn a_judge_reads_privileged_text_on_its_own_node_and_only_when_it_asks() {
    for (privileged, anew) in [(true, false), (true, true), (false, false), (false, true)] {
        let body = format!("agent = \"judge\"\nprivileged = {privileged}\nvalues = \"all\"\nmax_tokens = 4");
        let heard = Case { critic: "generative", body: &body, anew, tells: false }.heard();
        assert_eq!(told(&heard["judge"], &SECRET), privileged);
        assert!(heard["judge"].iter().all(Heard::is_judgement) && !heard["judge"].is_empty());
        assert!(!told(&heard["actor"], &SECRET) && !heard["actor"].iter().any(Heard::is_judgement));
    }
}

/// Else the tests above would show nothing.
#[test]
fn a_canary_that_is_told_is_noticed() {
    let heard = Case { critic: "reference", body: "of = \"actor\"", anew: true, tells: true }.heard();
    assert_eq!(leaks(&heard["actor"], &SECRET), [Way::Played, Way::Scored, Way::Trained].into());
    let tasks = tasks("aviary", "of = \"repair-mdp\"\ntells = true");
    assert_eq!(Told::by(&*tasks).observed, [SECRET.join(" ")].into());
    assert_eq!(Told::by(&*tasks).read, [SECRET.join(" ")].into());
}

fn context(environment: Option<&Capabilities>) -> BuildContext<'_> {
    BuildContext { seeds: Seeds(0), device: "cpu", threads: 1, environment, nodes: BTreeSet::new(), base: ".".into() }
}
fn tasks(name: &str, body: &str) -> Box<dyn TaskSet> {
    slot::<dyn TaskSetConfig>(name, body).build(&context(None)).expect("embedded environments have no data that could be absent")
}

/// Lines of privileged text of an environment's episodes, and which of them were shown. Shorter lines than three words may be
/// shown by chance: `solved`.
#[derive(Default)]
struct Told {
    kept: usize,
    lines: BTreeSet<String>,
    /// Stand in the text of an observation.
    observed: BTreeSet<String>,
    /// Stand in the tokens that were fed to who acts.
    read: BTreeSet<String>,
}

impl Told {
    /// Looks for each line in all states, not only where it is privileged: what it tells is no better told earlier or later.
    fn by(tasks: &dyn TaskSet) -> Self {
        // Who cannot spell a word reads `<unk>`, in which nothing would be found: the table knows every word of the lines.
        let mut about = tasks.capabilities().clone();
        let (batch, tokenizer, mut told) = loop {
            let (batch, tokenizer) = played(tasks, &about);
            let told = Self::kept(&batch);
            let known: BTreeSet<String> = about.vocabulary.iter().cloned().collect();
            let all = told.lines.iter().flat_map(|line| words(line)).map(String::from);
            let new: BTreeSet<String> = all.filter(|word| !known.contains(word)).collect();
            if new.is_empty() {
                break (batch, tokenizer, told);
            }
            about.vocabulary.extend(new);
        };
        for line in &told.lines {
            let (spelled, in_words) = (tokenizer.encode(line), words(line));
            for (t, note) in batch.notes.iter().enumerate() {
                let shown = note.shown_after.iter().map(|shown| &shown.observation).chain([&note.observation]);
                if shown.into_iter().any(|text| holds(&words(text), &in_words)) {
                    told.observed.insert(line.clone());
                }
                // What it was fed; a random policy may say anything itself.
                let tokens = &batch.tokens[batch.turns.tokens[t].range()];
                if holds(&tokens[..batch.turns.action_start[t] as usize], &spelled) {
                    told.read.insert(line.clone());
                }
            }
        }
        told
    }

    /// The privileged text that a batch keeps.
    fn kept(batch: &Batch) -> Self {
        let mut told = Self::default();
        for note in &batch.notes {
            let after = note.shown_after.as_ref().and_then(|shown| shown.privileged.as_ref());
            for text in note.privileged.iter().chain(after) {
                told.kept += 1;
                told.lines.extend(text.lines().map(|line| line.trim().to_string()).filter(|line| words(line).len() >= 3));
            }
        }
        told
    }
}

/// Plays every way there is, with privileged text kept.
fn played(tasks: &dyn TaskSet, about: &Capabilities) -> (Batch, Arc<dyn Tokenizer>) {
    let mut policy = table().build(&context(Some(about))).expect("a table");
    let tokenizer = policy.tokenizer();
    let starts: Vec<Start> =
        (0..tasks.len(TRAIN).min(4) as u32).map(|index| Start::of(TaskId { split: TRAIN.into(), index })).collect();
    let mut groups = Vec::new();
    for decode in [Decode::Free, Decode::Admissible] {
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
        groups.extend(play.sample(&mut *policy, tasks, &mut Ledger::default()).expect("played"));
        if about.provides.contains(&Need::Expert) && decode == Decode::Free {
            groups.extend(play.expert(&*tokenizer, policy.max_tokens(), tasks, &mut Ledger::default()).expect("played"));
        }
    }
    (Batch::from_groups(groups, NonFinite::Refuse).expect("well formed"), tokenizer)
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}
fn holds<T: PartialEq>(all: &[T], run: &[T]) -> bool {
    all.windows(run.len()).any(|window| window == run)
}

#[test]
fn no_line_of_privileged_text_is_shown_by_an_embedded_environment() {
    let mut checked = BTreeSet::new();
    let rows = plugins(Kind::Environment);
    let examples = rows.iter().filter(|row| row.name != "aviary").map(|row| (row.name, row.example));
    let others = [
        ("curriculum", "of = \"sokoban\""),
        ("knights", "completions = true"),
        ("sokoban", "observation = \"text\""),
        ("token-tree", "tasks = 2\ndepth = 3\nbranches = 2\nrewards = \"dense\"\nstates = \"sums\""),
    ];
    for (name, body) in examples.chain(others) {
        let tasks = tasks(name, body);
        let told = Told::by(&*tasks);
        assert!(told.observed.is_empty(), "`{name}` shows {:?}", told.observed);
        assert!(told.read.is_empty(), "`{name}` feeds {:?}", told.read);
        // Who says that it has privileged text has some to be looked for, and nobody else has.
        let says = tasks.capabilities().provides.contains(&Need::Privileged);
        assert_eq!((told.kept > 0, !told.lines.is_empty()), (says, says), "`{name}`");
        checked.insert(name);
    }
    let embedded = ["bugfix", "curriculum", "knights", "mini-tool", "repair-mdp", "sokoban", "token-tree"];
    assert_eq!(checked, embedded.into(), "an environment that is not listed here, or is not linked");
}
