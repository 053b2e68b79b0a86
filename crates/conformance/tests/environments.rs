//! Every environment of the catalogue, from its own example; and an environment for each way of going wrong, with the check
//! that says so.

#![allow(clippy::unwrap_used)]

mod example;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ascribe_conformance::{Finding, Outcome, Report, environment};
use ascribe_core::environment::{
    ActionText, Capabilities, EnvironmentError, Observation, RestoreError, Snapshot, SnapshotKind, Step, TRAIN, TaskId,
    verify_restored,
};
use ascribe_core::log::{Context, Limit, Validity};
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::{BuildContext, BuildError, Draw, End, Environment, Need, Rng, Seeds, Slot, TaskSet, TaskSetConfig};

use example::plugin;

// The plugin crates are linked.
use {ascribe_alfworld as _, ascribe_environments as _};

fn context() -> BuildContext<'static> {
    BuildContext { seeds: Seeds(0), device: "cpu", threads: 1, environment: None, nodes: Default::default(), base: ".".into() }
}

fn built(name: &str, keys: &str) -> Result<Box<dyn TaskSet>, BuildError> {
    plugin::<Slot<dyn TaskSetConfig>>(name, keys).build(&context())
}

fn broken(report: &Report) -> Vec<String> {
    report.broken().map(|(what, finding)| format!("{what}: {finding}")).collect()
}

#[test]
fn environments_keep_what_all_must_and_what_they_claim() {
    let mut out = Vec::new();
    let mut checked = Vec::new();
    for row in plugins(Kind::Environment) {
        match built(row.name, row.example) {
            Ok(tasks) => {
                let report = environment(&*tasks);
                out.extend(broken(&report).into_iter().map(|why| format!("`{}`: {why}", row.name)));
                checked.push(row.name);
            }
            // Its data are elsewhere.
            Err(BuildError::Data(why)) => println!("skipped `{}`: {why}", row.name),
            Err(e) => panic!("`{}`: {e}", row.name),
        }
    }
    assert!(out.is_empty(), "{}", out.join("\n"));
    for embedded in ["alfworld", "bugfix", "curriculum", "knights", "mini-tool", "repair-mdp", "sokoban", "token-tree"] {
        assert!(checked.contains(&embedded), "`{embedded}` is checked");
    }
}

/// Settings that examples leave alone.
#[test]
fn so_do_their_other_settings() {
    let settings = [
        ("alfworld", "games = \"mini\"\nmemory = { last = 2 }\nrepeat_task = true\nexpert_noise = 0.3"),
        ("alfworld", "games = \"mini\"\nvariant = \"v211\"\nlist_commands = false\nhide_help = false\nmax_turns = 3"),
        ("bugfix", "train_tasks = 3\nheld_out_tasks = 1\nmax_calls = 4\ncall_cost = 0.1\npartial_score = 0.5"),
        ("curriculum", "of.sokoban = { train_tasks = 3, test_tasks = 1 }\nfavour = { band = [0.2, 0.8] }\nfloor = 0.0"),
        ("knights", "rows = 3\ncolumns = 5\nmax_probes = 6\ncompletions = true"),
        ("knights", "rows = 6\ncolumns = 6\nmax_probes = 36\nheld_out_share = 0.9\nexpert_noise = 0.5"),
        ("mini-tool", "train_tasks = 3\nheld_out_tasks = 1\nmax_calls = 4\nfailure_cost = 1.0\nprocess = \"useful\""),
        ("mini-tool", "max_calls = 16\nverification = \"required\"\nself_report = false\nexpert_noise = 1.0"),
        ("repair-mdp", "horizon = 1"),
        ("repair-mdp", "horizon = 300\nstep_cost = 1.0"),
        ("sokoban", "train_tasks = 5\ntest_tasks = 2\nobservation = \"text\"\nmalformed_cost = 0.5\nmax_turns = 40"),
        ("sokoban", "min_moves = 1\nmax_moves = 5\nmin_pushes = 1\nmax_turns = 5\nexpert_noise = 0.5"),
        ("token-tree", "tasks = 4\ndepth = 4\nbranches = 2\nrewards = \"dense\"\nstates = \"sums\""),
        ("token-tree", "tasks = 2\ndepth = 1\nbranches = 8\nrewards = \"stop-or-continue\"\nstates = \"prefixes\""),
    ];
    for (name, keys) in settings {
        let report = environment(&*built(name, keys).expect("it is built"));
        assert!(report.broken().next().is_none(), "`{name}` with {keys}: {}", broken(&report).join("\n"));
    }
}

const STOP: &str = "<end>";
const ACTIONS: [&str; 5] = ["give", "left", "right", "take", "toss"];
const LAST: u64 = 4;
const TURNS: u64 = 12;
const SECRET: &str = "the treasure lies below the oak";

/// A way of going wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// None.
    Sound,
    /// None, and none of snapshots and `reseed`.
    WithoutSnapshots,
    OpensTheAbsent,
    LosesItsFingerprint,
    EmptySplit,
    SplitsOutOfOrder,
    ClaimsAnExpert,
    ClaimsDisagree,
    PanicsOnOddText,
    PanicsWhenListing,
    ErrsOnOddText,
    FailsOnOddText,
    EndsAsARollout,
    GlobalCounter,
    ObservingCounts,
    ExpertActs,
    SharesState,
    ForgetsState,
    KeepsState,
    SavesOtherBytes,
    RefusesItsOwn,
    GivesNoSnapshot,
    CopiesShare,
    ChanceOutside,
    ReseedActs,
    ReseedKeepsDrawing,
    ReseedIsNotSaved,
    ReseedSpoilsSaved,
    ReseedDoesNothing,
    TakesForeign,
    TakesOtherFormats,
    TakesDamaged,
    PanicsOnDamaged,
    TakesOtherObservations,
    NamesTheWrongByte,
    ChangesWhenRefusing,
    Unsorted,
    ListedTwice,
    NotUnderstood,
    ListsNothing,
    UnknownWord,
    UnknownAction,
    ActionTooLong,
    StopInAction,
    LostWhenSaid,
    GoesOnForEver,
    ReturnsTooMuch,
    PaysNan,
    SecretSignal,
    GoesOnAfterItsEnd,
    PanicsAfterItsEnd,
    ChangesAfterItsEnd,
    CoarseKey,
    TellsSecrets,
}

/// A row of places, a coin that leads to any of them, and two apples to take and to give away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    turn: u64,
    at: u64,
    bag: u64,
    over: bool,
    seed: u64,
}

/// What the episodes of a set can get at.
#[derive(Debug, Default)]
struct Shared {
    counter: AtomicU64,
    /// Who opened or acted last.
    last: AtomicU64,
    /// Live states by the address of the snapshot that they came from.
    live: Mutex<BTreeMap<usize, Weak<Mutex<State>>>>,
}

struct Faulty {
    fault: Fault,
    shared: Arc<Shared>,
    about: Capabilities,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        let mut words = ["place", "apples", "of", "fly", "go", ","].map(String::from).to_vec();
        words.extend(SECRET.split(' ').chain(ACTIONS).map(String::from).chain((0..=TURNS).map(|n| n.to_string())));
        let mut provides = vec![Need::Admissible, Need::ExactStateKey, Need::Privileged];
        if fault != Fault::WithoutSnapshots && fault != Fault::ClaimsDisagree {
            provides.push(Need::ExactSnapshot);
        }
        if fault == Fault::ClaimsAnExpert || fault == Fault::ExpertActs {
            provides.push(Need::Expert);
        }
        let snapshot = if fault == Fault::WithoutSnapshots { SnapshotKind::None } else { SnapshotKind::Exact };
        let about = Capabilities {
            snapshot,
            exact_state_key: true,
            r_max: 1.0,
            max_turns: TURNS as usize,
            max_action_tokens: 3,
            stop: STOP.into(),
            vocabulary: words,
            provides,
        };
        Self { fault, shared: Arc::default(), about }
    }
}

impl TaskSet for Faulty {
    fn capabilities(&self) -> &Capabilities {
        &self.about
    }
    fn splits(&self) -> Vec<String> {
        let mut splits = vec![TRAIN.to_string(), "test".to_string()];
        match self.fault {
            Fault::EmptySplit => splits.push("more".into()),
            Fault::SplitsOutOfOrder => splits.reverse(),
            _ => {}
        }
        splits
    }
    fn len(&self, split: &str) -> usize {
        match split {
            TRAIN => 2,
            "test" => 1,
            _ => 0,
        }
    }
    fn fingerprint(&self) -> String {
        let n = if self.fault == Fault::LosesItsFingerprint { self.shared.counter.fetch_add(1, Ordering::Relaxed) } else { 0 };
        format!("faulty/{n}")
    }
    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        if task.index as usize >= self.len(&task.split) && self.fault != Fault::OpensTheAbsent {
            return Err(EnvironmentError(format!("there is no task {task}")));
        }
        let serial = self.shared.counter.fetch_add(1, Ordering::Relaxed);
        self.shared.last.store(serial, Ordering::Relaxed);
        let state = State { turn: 0, at: u64::from(task.index), bag: 0, over: false, seed };
        Ok(Box::new(Episode {
            fault: self.fault,
            shared: Arc::clone(&self.shared),
            fingerprint: format!("faulty/{task}"),
            state: Arc::new(Mutex::new(state)),
            serial,
            asked: AtomicU64::new(0),
            restored: 0,
            acted: 0,
            beside: None,
        }))
    }
}

struct Episode {
    fault: Fault,
    shared: Arc<Shared>,
    fingerprint: String,
    state: Arc<Mutex<State>>,
    serial: u64,
    asked: AtomicU64,
    restored: u64,
    acted: u64,
    /// Chance that snapshots do not know of.
    beside: Option<u64>,
}

impl Episode {
    fn state(&self) -> State {
        *self.state.lock().unwrap()
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    fn text(&self, state: State) -> String {
        let State { at, bag, turn, .. } = state;
        let text = format!("place {at} of {LAST} apples {bag}");
        match self.fault {
            Fault::UnknownWord if bag == 1 => text + " xyzzy",
            Fault::TellsSecrets if bag == 2 => format!("{text} {SECRET}"),
            Fault::ObservingCounts => format!("{text} {}", self.asked.fetch_add(1, Ordering::Relaxed) % TURNS),
            _ => format!("{text} {turn}"),
        }
    }

    fn play(&self, act: &str) -> Step {
        let State { at, bag, turn, seed, .. } = self.state();
        let mut step = Step::default();
        match act {
            "left" => self.set(|s| s.at = at.saturating_sub(1)),
            "right" => self.set(|s| s.at = (at + 1).min(LAST)),
            "take" if bag < 2 => self.set(|s| s.bag += 1),
            "toss" => {
                let chance = self.beside.unwrap_or(seed);
                let mut rng = Seeds(chance).rng("toss", Draw { turn: turn as u32, ..Draw::default() });
                self.set(|s| s.at = rng.below(LAST as usize + 1) as u64);
            }
            "give" if bag == 2 => {
                step.reward = if self.fault == Fault::ReturnsTooMuch { 1.5 } else { 1.0 };
                step.end = Some(if self.fault == Fault::EndsAsARollout {
                    End::MacroBoundary
                } else {
                    End::Terminated { success: true }
                });
            }
            "take" | "give" => step.validity = Validity::Refused,
            _ => step.validity = Validity::Malformed,
        }
        step
    }

    fn bytes(&self, state: State) -> Vec<u8> {
        let State { turn, at, bag, over, seed } = state;
        let bag = if self.fault == Fault::ForgetsState { 0 } else { bag };
        let seed = if self.fault == Fault::ChanceOutside { 0 } else { seed };
        let marks = if self.fault == Fault::SavesOtherBytes { self.restored } else { 0 };
        let mut bytes = format!("{turn} {at} {bag} {} {seed} {marks}", u8::from(over)).into_bytes();
        let sum = checksum(&bytes);
        bytes.extend(sum);
        bytes
    }

    fn read(&self, bytes: &[u8]) -> Option<State> {
        let bytes = if self.fault == Fault::PanicsOnDamaged {
            &bytes[..bytes.len() - 8]
        } else {
            bytes.get(..bytes.len().checked_sub(8)?)?
        };
        let text = String::from_utf8_lossy(bytes);
        let numbers: Vec<u64> = text.split(' ').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let [turn, at, bag, over, seed, _] = numbers[..] else { return None };
        Some(State { turn, at, bag, over: over == 1, seed })
    }
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> [u8; 8] {
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    sum.to_le_bytes()
}

impl Environment for Episode {
    fn observe(&self) -> Observation {
        let State { at, bag, .. } = self.state();
        Observation { text: self.text(self.state()), context: Context::Extend, key: format!("{at} {bag}").into_bytes() }
    }

    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        let before = self.state();
        if before.over {
            match self.fault {
                Fault::GoesOnAfterItsEnd => return Ok(Step::default()),
                Fault::PanicsAfterItsEnd => panic!("nobody should come here"),
                Fault::ChangesAfterItsEnd => self.set(|s| s.bag = 0),
                _ => {}
            }
            return Err(EnvironmentError("it is over".into()));
        }
        let odd = !action.text.is_ascii();
        match self.fault {
            Fault::PanicsOnOddText if odd => panic!("what is that?"),
            Fault::ErrsOnOddText if odd => return Err(EnvironmentError("what is that?".into())),
            Fault::FailsOnOddText if odd => return Ok(Step { end: Some(End::Failed("odd".into())), ..Step::default() }),
            Fault::SharesState if self.shared.last.swap(self.serial, Ordering::Relaxed) != self.serial => {
                self.set(|s| s.at = 0);
            }
            _ => {}
        }
        let mut act = action.text.trim();
        if matches!((self.fault, act), (Fault::UnknownAction, "dig") | (Fault::LostWhenSaid, "go,")) {
            act = "right";
        }
        if matches!((self.fault, act), (Fault::ActionTooLong, "take 1 of 2") | (Fault::StopInAction, "take <end>")) {
            act = "take";
        }
        let mut step = if action.complete { self.play(act) } else { Step { validity: Validity::Cut, ..Step::default() } };
        self.set(|s| s.turn += 1);
        self.acted += 1;
        if step.end.is_none() && self.state().turn >= TURNS && self.fault != Fault::GoesOnForEver {
            step.end = Some(End::Truncated(Limit::Turns));
        }
        match self.fault {
            Fault::GlobalCounter => step.reward = 1e-3 * self.shared.counter.fetch_add(1, Ordering::Relaxed) as f32,
            Fault::PaysNan if before.bag == 2 => step.reward = f32::NAN,
            Fault::SecretSignal => step.signals.push(("luck".into(), 1.0)),
            _ => {}
        }
        let over = step.end.is_some();
        self.set(|s| s.over = over);
        Ok(step)
    }

    fn state_key(&self) -> Vec<u8> {
        let State { turn, at, bag, over, .. } = self.state();
        let bag = if self.fault == Fault::CoarseKey { 0 } else { bag };
        format!("{turn} {at} {bag} {over}").into_bytes()
    }

    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        if matches!(self.fault, Fault::WithoutSnapshots | Fault::GivesNoSnapshot) {
            return Err(RestoreError::Unsupported);
        }
        let (fingerprint, bytes, observation) = (self.fingerprint.clone(), self.bytes(self.state()), self.observe().text);
        Ok(Snapshot { fingerprint, version: 1, bytes, observation })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        let Snapshot { fingerprint, version, bytes, observation } = snapshot;
        if self.fault == Fault::WithoutSnapshots {
            return Err(RestoreError::Unsupported);
        }
        if *fingerprint != self.fingerprint && self.fault != Fault::TakesForeign {
            return Err(RestoreError::Foreign { found: fingerprint.clone(), expected: self.fingerprint.clone() });
        }
        if *version != 1 && self.fault != Fault::TakesOtherFormats {
            return Err(RestoreError::Version { found: *version, expected: 1 });
        }
        let damaged = || RestoreError::Damaged("its bytes are none of mine".into());
        let mut state = self.read(bytes).ok_or_else(damaged)?;
        if checksum(&bytes[..bytes.len() - 8]) != bytes[bytes.len() - 8..] && self.fault != Fault::TakesDamaged {
            return Err(damaged());
        }
        match self.fault {
            Fault::RefusesItsOwn if state.bag == 2 => return Err(damaged()),
            Fault::KeepsState => state.bag = self.state().bag.min(state.bag),
            Fault::ChanceOutside => state.seed = self.state().seed,
            Fault::ChangesWhenRefusing => self.set(|s| *s = state),
            _ => {}
        }
        let verified = match self.fault {
            // These never show again what was saved: that is not what they are here for.
            Fault::ObservingCounts | Fault::ForgetsState | Fault::KeepsState | Fault::TakesOtherObservations => Ok(()),
            _ => verify_restored(observation, &self.text(state)),
        };
        verified.map_err(|e| match (self.fault, e) {
            (Fault::NamesTheWrongByte, RestoreError::Diverged { at }) => RestoreError::Diverged { at: at + 1 },
            (_, e) => e,
        })?;
        if self.fault == Fault::CopiesShare {
            let mut live = self.shared.live.lock().unwrap();
            let address = bytes.as_ptr() as usize;
            self.state = live.get(&address).and_then(Weak::upgrade).unwrap_or_else(|| Arc::new(Mutex::new(state)));
            live.insert(address, Arc::downgrade(&self.state));
        } else {
            self.set(|s| *s = state);
        }
        self.restored += 1;
        if self.fault != Fault::ReseedSpoilsSaved {
            self.beside = None;
        }
        Ok(())
    }

    fn reseed(&mut self, seed: u64) {
        match self.fault {
            Fault::WithoutSnapshots | Fault::ReseedDoesNothing => {}
            Fault::ReseedActs => self.set(|s| (s.seed, s.at) = (seed, 0)),
            Fault::ReseedKeepsDrawing => self.set(|s| s.seed = seed + self.acted),
            Fault::ReseedIsNotSaved => self.beside = Some(seed),
            Fault::ReseedSpoilsSaved => {
                self.beside = Some(seed);
                self.set(|s| s.seed = seed);
            }
            _ => self.set(|s| s.seed = seed),
        }
    }

    fn admissible(&self) -> Option<Vec<String>> {
        let State { over, bag, .. } = self.state();
        let mut actions = ACTIONS.map(String::from).to_vec();
        match self.fault {
            _ if over => actions.clear(),
            Fault::PanicsWhenListing => assert!(bag < 2, "my bag is full"),
            Fault::Unsorted if bag == 1 => actions.reverse(),
            Fault::ListedTwice if bag == 1 => actions.insert(0, "give".into()),
            Fault::NotUnderstood if bag == 1 => actions.insert(0, "fly".into()),
            Fault::ListsNothing if bag == 2 => actions.clear(),
            Fault::UnknownAction => actions.insert(0, "dig".into()),
            Fault::ActionTooLong => actions.insert(4, "take 1 of 2".into()),
            Fault::StopInAction => actions.insert(4, "take <end>".into()),
            Fault::LostWhenSaid => actions.insert(1, "go,".into()),
            _ => {}
        }
        Some(actions)
    }

    fn expert(&mut self, _rng: &mut Rng) -> Option<String> {
        if self.fault == Fault::ExpertActs {
            self.set(|s| s.bag = 0);
            return Some("take".into());
        }
        None
    }

    fn privileged(&self) -> Option<String> {
        Some(SECRET.into())
    }
}

const TASKS: &str = "its tasks are there, those that are not are refused, and its claims fit";
const ANYTHING: &str = "whatever is said is a turn, not an error";
const SAME: &str = "the same seed and actions give the same episode";
const ASKING: &str = "asking changes nothing";
const APART: &str = "episodes of one set do not touch each other";
const RESTORED: &str = "a restored state is the saved one, and goes on like it";
const COPIES: &str = "copies restored from one snapshot do not touch each other";
const CHANCE: &str = "chance is part of the snapshot";
const RESEED: &str = "`reseed` decides what follows, and leaves the state as it is";
const OWN_CHANCE: &str = "`reseed` gives what follows chance of its own";
const REFUSED: &str = "what is no snapshot of the task is refused, and changes nothing";
const LISTED: &str = "admissible actions are sorted, different, and understood";
const WORDS: &str = "what is read and said is made of the vocabulary's words";
const ENDS: &str = "it ends when it says, once, and pays within its bounds";
const KEYS: &str = "equal state keys have equal futures";
const SECRETS: &str = "what is privileged is not read by the agent";

/// Each fault, the first check that it breaks, and what is said of it.
const FAULTS: [(Fault, &str, &str); 52] = [
    (Fault::OpensTheAbsent, TASKS, "the task train/2 does not exist, and opens"),
    (Fault::LosesItsFingerprint, TASKS, "fingerprint, first at byte 7"),
    (Fault::EmptySplit, TASKS, "its split `more` has no tasks"),
    (Fault::SplitsOutOfOrder, TASKS, "its splits are [\"test\", \"train\"]"),
    (Fault::ClaimsAnExpert, TASKS, "it claims a scripted expert, and has none"),
    (Fault::ClaimsDisagree, TASKS, "`provides` and `snapshot` do not agree on exact snapshots"),
    (Fault::PanicsOnOddText, ANYTHING, "`step`: it panics: what is that?"),
    (Fault::PanicsWhenListing, ANYTHING, "`admissible`: it panics: my bag is full"),
    (Fault::ErrsOnOddText, ANYTHING, "the last action is an error: what is that?"),
    (Fault::FailsOnOddText, ANYTHING, "the episode fails: odd"),
    (Fault::EndsAsARollout, ANYTHING, "it ends with MacroBoundary"),
    (Fault::GlobalCounter, SAME, "reward, first at byte"),
    (Fault::ObservingCounts, ASKING, "asked twice, it says two things"),
    (Fault::ExpertActs, ASKING, "observation, first at byte 20"),
    (Fault::SharesState, APART, "an episode goes on otherwise beside others"),
    (Fault::ForgetsState, RESTORED, "observation of the snapshot, first at byte 20"),
    (Fault::KeepsState, RESTORED, "observation of the snapshot, first at byte 20"),
    (Fault::SavesOtherBytes, RESTORED, "bytes of the snapshot, first at byte"),
    (Fault::RefusesItsOwn, RESTORED, "its own snapshot is refused: the snapshot is damaged"),
    (Fault::GivesNoSnapshot, RESTORED, "it gives no snapshot"),
    (Fault::CopiesShare, COPIES, "one copy goes on, and the other is another one"),
    (Fault::ChanceOutside, CHANCE, "what follows a restored state is not what followed the saved one"),
    (Fault::ReseedActs, RESEED, "`reseed` changes what it shows"),
    (Fault::ReseedKeepsDrawing, RESEED, "reseeded alike, one state goes on in two ways"),
    (Fault::ReseedIsNotSaved, RESEED, "a snapshot taken after `reseed` does not go on with that chance"),
    (Fault::ReseedSpoilsSaved, RESEED, "a snapshot taken before `reseed` does not go on with the chance it was taken with"),
    (Fault::ReseedDoesNothing, OWN_CHANCE, "none of 256 seeds of `reseed` changes anything"),
    (Fault::TakesForeign, REFUSED, "another environment's snapshot is taken; it must be refused with Foreign"),
    (Fault::TakesOtherFormats, REFUSED, "a snapshot of another format is taken; it must be refused with Version"),
    (Fault::TakesDamaged, REFUSED, "one bit flipped is taken, and gives another state"),
    (Fault::PanicsOnDamaged, REFUSED, "`restore`: it panics: "),
    (Fault::TakesOtherObservations, REFUSED, "a snapshot that shows something else is taken; it must be refused with Diverged("),
    (Fault::NamesTheWrongByte, REFUSED, "is refused with Diverged { at: "),
    (Fault::ChangesWhenRefusing, REFUSED, "is refused, but the episode is another one than before"),
    (Fault::Unsorted, LISTED, "\"toss\" stands before a smaller one in the admissible actions"),
    (Fault::ListedTwice, LISTED, "\"give\" stands twice in the admissible actions"),
    (Fault::NotUnderstood, LISTED, "an admissible action is Malformed"),
    (Fault::ListsNothing, LISTED, "it goes on, and no action is admissible"),
    (Fault::UnknownWord, WORDS, "an observation has the word \"xyzzy\", which is not in the vocabulary, at byte 22"),
    (Fault::UnknownAction, WORDS, "an admissible action has the word \"dig\""),
    (Fault::ActionTooLong, WORDS, "has 5 tokens with its stop word, of 3"),
    (Fault::StopInAction, WORDS, "the action \"take <end>\" contains the stop word"),
    (Fault::LostWhenSaid, WORDS, "the action \"go,\" does something else as a policy says it"),
    (Fault::GoesOnForEver, ENDS, "`max_turns` is 12, and the episode goes on after them"),
    (Fault::ReturnsTooMuch, ENDS, "it returned 1.5, and `r_max` is 1"),
    (Fault::PaysNan, ENDS, "`reward` is NaN"),
    (Fault::SecretSignal, ENDS, "a signal `luck` that it does not claim"),
    (Fault::GoesOnAfterItsEnd, ENDS, "it is over, and goes on when told to"),
    (Fault::PanicsAfterItsEnd, ENDS, "`step`: it panics: nobody should come here"),
    (Fault::ChangesAfterItsEnd, ENDS, "a step after the end, which is refused, changes it"),
    (Fault::CoarseKey, KEYS, "two states have one key"),
    (Fault::TellsSecrets, SECRETS, "the privileged \"the treasure lies below the oak\" stands in the observation"),
];

/// Panics are told by the findings.
fn silently<T>(run: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let out = run();
    std::panic::set_hook(hook);
    out
}

#[test]
fn every_fault_is_caught_by_the_check_that_is_there_for_it() {
    let mut wrong = Vec::new();
    for (fault, check, words) in FAULTS {
        let report = silently(|| environment(&Faulty::new(fault)));
        let found: Vec<(&str, &Finding)> = report.broken().collect();
        match found.first() {
            Some((what, finding)) if *what == check && finding.to_string().contains(words) && !finding.remedy.is_empty() => {}
            first => wrong.push(format!(
                "{fault:?}: {} instead of {check}: …{words}…",
                first.map_or_else(|| "nothing".into(), |(what, finding)| format!("{what}: {finding}"))
            )),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Faults that show in one way are found by one check: the others do not break beside it.
#[test]
fn a_fault_breaks_no_check_that_it_does_not_concern() {
    let alone = [LISTED, WORDS, ENDS, KEYS, SECRETS, RESEED, TASKS];
    for (fault, check, _) in FAULTS.into_iter().filter(|(_, check, _)| alone.contains(check)) {
        let report = silently(|| environment(&Faulty::new(fault)));
        let found: Vec<&str> = report.broken().map(|(what, _)| what).collect();
        assert_eq!(found, [check], "{fault:?}: {}", broken(&report).join("\n"));
    }
}

#[test]
fn without_a_fault_every_check_holds() {
    let report = environment(&Faulty::new(Fault::Sound));
    assert!(report.broken().next().is_none(), "{}", broken(&report).join("\n"));
    assert!(report.0.iter().all(|check| matches!(check.outcome, Outcome::Held(n) if n > 0)));
    let order: Vec<&str> = report.0.iter().map(|check| check.what).collect();
    let all = [
        TASKS, ANYTHING, SAME, ASKING, APART, RESTORED, COPIES, CHANCE, RESEED, OWN_CHANCE, REFUSED, LISTED, WORDS, ENDS, KEYS,
        SECRETS,
    ];
    assert_eq!(order, all);
}

/// What is not claimed is not asked; all else is.
#[test]
fn an_environment_without_snapshots_is_held_to_what_it_claims() {
    let report = environment(&Faulty::new(Fault::WithoutSnapshots));
    assert!(report.broken().next().is_none(), "{}", broken(&report).join("\n"));
    let not_asked: Vec<&str> =
        report.0.iter().filter(|check| matches!(check.outcome, Outcome::NotAsked(_))).map(|check| check.what).collect();
    assert_eq!(not_asked, [RESTORED, COPIES, CHANCE, RESEED, OWN_CHANCE, REFUSED]);
}

/// A finding can be played again: it names task, seed, what was said, the byte, and what mends it.
#[test]
fn a_finding_tells_where_and_what() {
    let report = environment(&Faulty::new(Fault::ForgetsState));
    let (_, finding) = report.broken().next().expect("it is broken");
    let place = finding.place.as_ref().expect("it is in an episode");
    let mut live = Faulty::new(Fault::Sound).open(&place.task, place.seed).expect("the task is there");
    for said in &place.actions {
        live.step(ActionText { text: &said.text, complete: said.complete }).expect("a turn");
    }
    let difference = finding.difference.as_ref().expect("two differ");
    assert_eq!(difference.expected.1, format!("\"{}\"", live.observe().text));
    assert_eq!((difference.of.as_str(), difference.at), ("observation of the snapshot", "place 0 of 4 apples ".len()));
    assert!(finding.remedy.starts_with("`snapshot` saves all that changes"));
}
