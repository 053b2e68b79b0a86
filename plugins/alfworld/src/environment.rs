//! `[environment.alfworld]`: the games as tasks of a run.
//!
//! A turn is one command. The reward comes with the command that wins; a limit of turns cuts the episode off. What the
//! agent reads is the game's text, with the admissible commands if they are to be listed; it either grows with every
//! turn or begins anew with the last few.
//!
//! The state key is the game's dynamic state and nothing else: not how often the agent moved, not what it read. Two
//! keys are equal exactly where the games will go on alike; the limit of turns, which bootstraps, stands outside.
//!
//! Shridhar et al. 2021, "ALFWorld", arXiv 2010.03768. Six kinds of task; games of `train`, `valid_seen` and `valid_unseen`. A command that
//! is not admissible is answered `Nothing happens.`, changes nothing, and counts as a turn.
//!
//! Cost: data that is downloaded once, a game compiled once when it is first opened; a command takes well under a microsecond to carry out, so
//! what an episode costs is the policy's tokens. `list_commands` and `memory` decide how many those are.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ascribe_core::environment::{
    ActionText, Capabilities, Environment, EnvironmentError, Observation, RestoreError, Snapshot, SnapshotKind, Step, TRAIN,
    TaskId, verify_restored,
};
use ascribe_core::log::{Context, End, Limit, Validity};
use ascribe_core::range::{AtLeast, Between, Positive, Unit};
use ascribe_core::{BuildContext, BuildError, Need, Provide, Rng, TaskSet, TaskSetConfig, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::data::{DataError, Library, LoadedGame, Source, Split};
use crate::engine::{MAX_TURNS, NOTHING_HAPPENS};
use crate::expert::Expert;
use crate::game::{Game, TaskType};
use crate::grammar::{TASK_PREFIX, Variant};
use crate::state::State;
use crate::vocabulary;

/// Stands before the admissible commands in what the agent reads.
const COMMANDS: &str = "Commands:";
/// Ends what the agent reads.
const PROMPT: &str = ">";

/// Where the games come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Games {
    /// From where `ASCRIBE_ALFWORLD_GAMES` or `ALFWORLD_DATA` says, or where they are by default.
    #[default]
    Found,
    /// From a folder, packed or as downloaded. A relative path counts from the experiment's folder.
    Folder(PathBuf),
    /// The six small games that come with the program; they have a training split only.
    Mini,
}

/// How much of the past the agent reads before each turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// All of it: each observation is appended to what was read before.
    #[default]
    All,
    /// The first observation and the last so many turns: what is read begins anew at each turn.
    Last(u32),
}

/// `[environment.alfworld]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Alfworld {
    /// Where the games come from: `"found"`, `"mini"`, or `{ folder = "PATH" }`.
    pub games: Games,
    /// The text of the games, `"v042"` or `"v211"`. By default the one a game is written in, else `v042`.
    pub variant: Option<Variant>,
    /// The splits to open, among `"train"`, `"valid_seen"` and `"valid_unseen"`.
    pub splits: Vec<Split>,
    /// The kinds of task to keep; empty keeps all six.
    pub task_types: Vec<TaskType>,
    /// Games of the training split, spread evenly over all there are, at least 1; all by default.
    pub train_games: Option<AtLeast<1>>,
    /// Games of each other split, spread evenly, at least 1; all by default.
    pub valid_games: Option<AtLeast<1>>,
    /// How much of the past is read before each turn: `"all"`, or `{ last = 2 }`.
    pub memory: Memory,
    /// Whether the admissible commands stand in what is read.
    pub list_commands: bool,
    /// Whether the task sentence is read again after each observation, as in verl-agent's prompts. A small policy finds
    /// it where it needs it; otherwise it stands hundreds of words back.
    pub repeat_task: bool,
    /// Whether `help` is left out of the admissible commands, as verl-agent does. It can be typed all the same.
    pub hide_help: bool,
    /// Turns after which an episode is cut off, at least 1. The literature's limit is 50.
    pub max_turns: Between<1, 1_000_000>,
    /// Reward of the turn that wins, positive. verl-agent pays 10.
    pub success_reward: Positive,
    /// Tokens a command may have, the stop word included, at least 2. In words the longest has 7.
    pub max_action_tokens: Between<2, 1_000_000>,
    /// Probability that the scripted expert, at a turn, takes any admissible command instead of its own, in 0..=1. It
    /// finds its way back; a clone of it then has seen the states off the shortest path. The tasks stay the same.
    pub expert_noise: Unit,
    /// The word that ends a command; a tokenizer must have it as one token.
    pub stop: String,
}

impl Default for Alfworld {
    fn default() -> Self {
        Self {
            games: Games::default(),
            variant: None,
            splits: Split::ALL.to_vec(),
            task_types: Vec::new(),
            train_games: None,
            valid_games: None,
            memory: Memory::default(),
            list_commands: true,
            repeat_task: false,
            hide_help: true,
            max_turns: Between::try_from(MAX_TURNS as u64).expect("in range"),
            success_reward: Positive::try_from(1.0).expect("1 is positive"),
            max_action_tokens: Between::try_from(8).expect("in range"),
            expert_noise: Unit::try_from(0.0).expect("0 is in 0..=1"),
            stop: "</command>".into(),
        }
    }
}

plugin! {
    Environment "alfworld" {
        summary: "Household tasks in text: find things, clean, heat or cool them, and put them where they belong.",
        source: "Shridhar et al. 2021, ALFWorld: Aligning Text and Embodied Environments for Interactive Learning, \
                 arXiv 2010.03768, github.com/alfworld/alfworld",
        when: "To compare methods on the agent benchmark of the literature: up to 50 turns and one reward. The games are \
               data of their own, got with `alfworld-download`; six small ones are built in.",
        example: "games = \"mini\"\nmax_turns = 50",
        module: "environment.rs",
    }
    impl TaskSetConfig for Alfworld {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            let source = self.source(&context.base).map_err(|error| BuildError::Data(error.to_string()))?;
            let library = Library::open(&source).map_err(|error| BuildError::Data(error.to_string()))?;
            for fault in library.faults().iter().take(10) {
                tracing::warn!("a game is left out: {fault}");
            }
            Ok(Box::new(self.tasks(library).map_err(BuildError::Config)?))
        }
        fn provides(&self) -> Vec<Provide> {
            provides()
        }
    }
}

fn provides() -> Vec<Provide> {
    vec![Need::Expert, Need::Admissible, Need::ExactSnapshot, Need::ExactStateKey, Need::Privileged]
}

/// Format of snapshots.
const VERSION: u32 = 1;

/// What holds for all episodes of a set of tasks.
#[derive(Clone, Debug)]
struct Rules {
    variant: Option<Variant>,
    memory: Memory,
    list_commands: bool,
    repeat_task: bool,
    hide_help: bool,
    max_turns: usize,
    success_reward: f32,
}

impl Alfworld {
    fn source(&self, base: &std::path::Path) -> Result<Source, DataError> {
        match &self.games {
            Games::Mini => Ok(Source::Mini),
            Games::Found => Source::discover(),
            Games::Folder(folder) => {
                let folder = base.join(folder);
                Source::at(&folder).ok_or_else(|| DataError::Absent(vec![format!("there are none in `{}`", folder.display())]))
            }
        }
    }

    /// The tasks of a library that this configuration asks for.
    ///
    /// # Errors
    /// If no game is left.
    pub fn tasks(&self, library: Library) -> Result<AlfworldTasks, String> {
        let wanted = |idx: &usize| {
            let entry = &library.entries()[*idx];
            self.task_types.is_empty() || self.task_types.contains(&entry.task_type)
        };
        let splits = Split::ALL.map(|split| {
            let all: Vec<usize> = (0..library.entries().len())
                .filter(|idx| library.entries()[*idx].split == split && self.splits.contains(&split))
                .filter(wanted)
                .collect();
            let limit = if split == Split::Train { self.train_games } else { self.valid_games };
            spread(&all, limit.map_or(all.len(), AtLeast::get))
        });
        if splits.iter().all(Vec::is_empty) {
            return Err(format!("no game of {} is in `splits` and of `task_types`", library.source()));
        }
        let rules = Rules {
            variant: self.variant,
            memory: self.memory,
            list_commands: self.list_commands,
            repeat_task: self.repeat_task,
            hide_help: self.hide_help,
            max_turns: self.max_turns.get(),
            success_reward: *self.success_reward as f32,
        };
        let mut hash = Sha256::new();
        hash.update(format!("{rules:?}"));
        for &idx in splits.iter().flatten() {
            let entry = &library.entries()[idx];
            hash.update(format!("\n{} {} {:?}", entry.id, entry.fingerprint, entry.variant));
        }
        let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let mut words: BTreeSet<&str> = vocabulary::fixed();
        words.extend(library.words().iter().map(String::as_str));
        words.extend(vocabulary::tokens(COMMANDS).chain([PROMPT]));
        let capabilities = Capabilities {
            snapshot: SnapshotKind::Exact,
            exact_state_key: true,
            r_max: *self.success_reward,
            max_turns: rules.max_turns,
            max_action_tokens: self.max_action_tokens.get(),
            stop: self.stop.clone(),
            vocabulary: words.into_iter().map(str::to_owned).collect(),
            provides: provides(),
        };
        let opened = (0..library.entries().len()).map(|_| OnceLock::new()).collect();
        Ok(AlfworldTasks {
            library,
            splits,
            opened,
            rules: Arc::new(rules),
            expert_noise: *self.expert_noise,
            fingerprint: format!("alfworld/{VERSION}/{hash}"),
            capabilities,
        })
    }
}

/// `n` of the items, evenly spaced.
fn spread(items: &[usize], n: usize) -> Vec<usize> {
    let n = n.min(items.len());
    (0..n).map(|i| items[i * items.len() / n]).collect()
}

/// The tasks of `[environment.alfworld]`.
#[derive(Debug)]
pub struct AlfworldTasks {
    library: Library,
    /// The games of each split, in the order of [`Split::ALL`].
    splits: [Vec<usize>; 3],
    /// Games that were compiled.
    opened: Vec<OnceLock<Arc<LoadedGame>>>,
    rules: Arc<Rules>,
    expert_noise: f64,
    fingerprint: String,
    capabilities: Capabilities,
}

impl AlfworldTasks {
    /// The games behind the tasks.
    pub fn library(&self) -> &Library {
        &self.library
    }

    fn games(&self, split: &str) -> &[usize] {
        let known = Split::ALL.iter().position(|known| known.name() == split);
        known.map_or(&[], |idx| &self.splits[idx])
    }

    fn game(&self, task: &TaskId) -> Option<usize> {
        self.games(&task.split).get(task.index as usize).copied()
    }

    fn loaded(&self, idx: usize) -> Result<Arc<LoadedGame>, DataError> {
        if let Some(loaded) = self.opened[idx].get() {
            return Ok(Arc::clone(loaded));
        }
        let loaded = self.library.load(idx, self.rules.variant)?;
        Ok(Arc::clone(self.opened[idx].get_or_init(|| Arc::new(loaded))))
    }
}

impl TaskSet for AlfworldTasks {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn splits(&self) -> Vec<String> {
        let others = Split::ALL.iter().skip(1).filter(|split| !self.games(split.name()).is_empty());
        [TRAIN.to_owned()].into_iter().chain(others.map(ToString::to_string)).collect()
    }

    fn len(&self, split: &str) -> usize {
        self.games(split).len()
    }

    fn name(&self, task: &TaskId) -> String {
        self.game(task).map_or_else(|| task.to_string(), |idx| self.library.entries()[idx].id.clone())
    }

    fn category(&self, task: &TaskId) -> Option<String> {
        self.game(task).map(|idx| self.library.entries()[idx].task_type.to_string())
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// Nothing in an episode is random, so the seed is not read.
    fn open(&self, task: &TaskId, _seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        let idx = self.game(task).ok_or_else(|| {
            let sizes = self.splits().iter().map(|split| format!("{split} has {}", self.len(split))).collect::<Vec<_>>();
            EnvironmentError(format!("alfworld has no task `{task}`: {}", sizes.join(", ")))
        })?;
        let loaded = self.loaded(idx).map_err(|error| EnvironmentError(error.to_string()))?;
        let fingerprint = format!("{}/{task}", self.fingerprint).into();
        Ok(Box::new(Episode::new(loaded, Arc::clone(&self.rules), self.expert_noise, fingerprint)))
    }
}

/// A turn that was played.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    command: String,
    /// Whether the command came to its end; one that was cut is not carried out.
    complete: bool,
    observation: String,
}

/// What the expert has taken in so far.
#[derive(Clone, Debug)]
struct Follower {
    expert: Expert,
    state: State,
    /// Turns taken in.
    n_turns: usize,
}

/// A live episode.
#[derive(Clone, Debug)]
struct Episode {
    loaded: Arc<LoadedGame>,
    rules: Arc<Rules>,
    expert_noise: f64,
    /// Of the set and the task.
    fingerprint: Arc<str>,
    intro: Arc<str>,
    state: State,
    turns: Vec<Turn>,
    /// The last turn won.
    won: bool,
    follower: Option<Follower>,
}

impl Episode {
    fn new(loaded: Arc<LoadedGame>, rules: Arc<Rules>, expert_noise: f64, fingerprint: Arc<str>) -> Self {
        let intro = loaded.game.intro().into();
        let state = loaded.game.start().clone();
        Self { loaded, rules, expert_noise, fingerprint, intro, state, turns: Vec::new(), won: false, follower: None }
    }

    fn game(&self) -> &Game {
        &self.loaded.game
    }

    fn over(&self) -> bool {
        self.won || self.turns.len() >= self.rules.max_turns
    }

    /// Types a command; what became of it.
    fn play(&mut self, command: &str, complete: bool) -> Validity {
        let game = &self.loaded.game;
        let mut observation = String::new();
        let validity = if !complete {
            observation.push_str(NOTHING_HAPPENS);
            Validity::Cut
        } else if game.step(&mut self.state, command, &mut observation).is_some() {
            Validity::Valid
        } else if game.command(command).is_some() {
            Validity::Refused
        } else {
            Validity::Malformed
        };
        self.won = game.won(&self.state);
        self.turns.push(Turn { command: command.trim().to_owned(), complete, observation });
        validity
    }

    fn last_observation(&self) -> &str {
        self.turns.last().map_or(&self.intro, |turn| &turn.observation)
    }

    fn commands(&self) -> Vec<String> {
        let mut commands = self.game().admissible(&self.state);
        if self.rules.hide_help {
            commands.retain(|command| command != "help");
        }
        commands
    }

    /// What the agent reads.
    fn text(&self) -> String {
        let mut text = String::with_capacity(1024);
        let mut line = |parts: &[&str]| {
            parts.iter().for_each(|part| text.push_str(part));
            text.push('\n');
        };
        if let Memory::Last(n) = self.rules.memory
            && !self.turns.is_empty()
        {
            line(&[&self.intro]);
            let first = self.turns.len().saturating_sub(n as usize);
            for (idx, turn) in self.turns.iter().enumerate().skip(first) {
                // What was seen before the command; before the first it was the intro, which stands above.
                if idx > 0 {
                    line(&[&self.turns[idx - 1].observation]);
                }
                line(&[PROMPT, " ", &turn.command]);
            }
        }
        line(&[self.last_observation()]);
        // The first observation ends with it.
        if self.rules.repeat_task && !self.turns.is_empty() {
            line(&[self.intro.find(TASK_PREFIX).map_or("", |at| &self.intro[at..])]);
        }
        if self.rules.list_commands {
            line(&[COMMANDS, " ", &self.commands().join(", ")]);
        }
        text.push_str(PROMPT);
        text
    }

    /// The engine's snapshot behind its length, then every command behind its length and whether it was complete.
    fn bytes(&self) -> Vec<u8> {
        let state = self.game().snapshot(&self.state);
        let mut bytes = (state.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&state);
        for turn in &self.turns {
            bytes.extend_from_slice(&(turn.command.len() as u32).to_le_bytes());
            bytes.push(u8::from(turn.complete));
            bytes.extend_from_slice(turn.command.as_bytes());
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The episode that wrote these bytes: its commands are played again, and must lead to the saved state.
    fn reopened(&self, bytes: &[u8]) -> Result<Self, RestoreError> {
        let damaged = |what: &str| RestoreError::Damaged(what.to_owned());
        let (mut rest, checksum) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged("it is too short"))?;
        if crc32c::crc32c(rest).to_le_bytes() != *checksum {
            return Err(damaged("its checksum does not fit"));
        }
        let (len, behind) = rest.split_first_chunk::<4>().ok_or_else(|| damaged("it has no state"))?;
        let (state, behind) =
            behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(|| damaged("its state is cut off"))?;
        rest = behind;
        let state = self.game().restore(state).map_err(|error| RestoreError::Damaged(error.to_string()))?;
        let (loaded, rules) = (Arc::clone(&self.loaded), Arc::clone(&self.rules));
        let mut episode = Self::new(loaded, rules, self.expert_noise, Arc::clone(&self.fingerprint));
        while !rest.is_empty() {
            if episode.over() {
                return Err(damaged("it goes on after its end"));
            }
            let (len, behind) = rest.split_first_chunk::<4>().ok_or_else(|| damaged("a length is cut off"))?;
            let (complete, behind) = behind.split_first().ok_or_else(|| damaged("a command is cut off"))?;
            let (command, behind) =
                behind.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(|| damaged("a command is cut off"))?;
            rest = behind;
            let command = std::str::from_utf8(command).map_err(|_| damaged("a command is not text"))?;
            episode.play(command, *complete == 1);
        }
        if episode.state != state {
            return Err(damaged("its commands do not lead to its state"));
        }
        Ok(episode)
    }

    /// Lets the expert take in the turns it has not seen.
    fn follow(&mut self) -> Follower {
        let game = &self.loaded.game;
        let mut follower = self.follower.take().unwrap_or_else(|| Follower {
            expert: Expert::new(&self.intro),
            state: game.start().clone(),
            n_turns: 0,
        });
        for turn in &self.turns[follower.n_turns..] {
            if turn.complete {
                game.step(&mut follower.state, &turn.command, &mut String::new());
            }
            follower.expert.observe(&turn.observation, &game.admissible(&follower.state));
        }
        follower.n_turns = self.turns.len();
        follower
    }
}

impl Environment for Episode {
    fn observe(&self) -> Observation {
        let context = match self.rules.memory {
            Memory::All => Context::Extend,
            Memory::Last(_) => Context::Restart,
        };
        Observation { text: self.text(), context, key: Game::observation_key(self.last_observation()).to_vec() }
    }

    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        if self.over() {
            return Err(EnvironmentError("the episode is over: no command is possible after it".into()));
        }
        let validity = self.play(action.text, action.complete);
        let mut step = Step { validity, ..Step::default() };
        if self.won {
            step.reward = self.rules.success_reward;
            step.end = Some(End::Terminated { success: true });
        } else if self.over() {
            step.end = Some(End::Truncated(Limit::Turns));
        }
        Ok(step)
    }

    fn state_key(&self) -> Vec<u8> {
        self.game().state_key(&self.state)
    }

    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        let fingerprint = self.fingerprint.to_string();
        Ok(Snapshot { fingerprint, version: VERSION, bytes: self.bytes(), observation: self.text() })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        if *snapshot.fingerprint != *self.fingerprint {
            let (expected, found) = (self.fingerprint.to_string(), snapshot.fingerprint.clone());
            return Err(RestoreError::Foreign { found, expected });
        }
        if snapshot.version != VERSION {
            return Err(RestoreError::Version { found: snapshot.version, expected: VERSION });
        }
        let episode = self.reopened(&snapshot.bytes)?;
        verify_restored(&snapshot.observation, &episode.text())?;
        *self = episode;
        Ok(())
    }

    fn admissible(&self) -> Option<Vec<String>> {
        Some(if self.over() { Vec::new() } else { self.commands() })
    }

    fn expert(&mut self, rng: &mut Rng) -> Option<String> {
        if self.over() {
            return None;
        }
        let follower = self.follow();
        let mut commands = self.commands();
        let command = follower.expert.act(&commands);
        self.follower = Some(follower);
        if rng.unit() < self.expert_noise && !commands.is_empty() {
            return Some(commands.swap_remove(rng.below(commands.len())));
        }
        command
    }

    /// A way to win from the start. It knows where hidden objects are.
    fn privileged(&self) -> Option<String> {
        (!self.loaded.walkthrough.is_empty()).then(|| self.loaded.privileged())
    }

    /// See [`TaskType::stages`].
    fn stage(&self) -> Option<u32> {
        u32::try_from(self.game().stage(&self.state).index).ok()
    }
}
