//! A live episode: a board with two knights on it, and the probes that were made.

use std::sync::Arc;

use ascribe_core::Rng;
use ascribe_core::environment::{
    ActionText, Environment, EnvironmentError, Observation, RestoreError, Snapshot, Step, verify_restored,
};
use ascribe_core::key::KeyPart;
use ascribe_core::log::{Context, End, Validity};

use super::board::{Board, Squares, members};
use super::expert::{Probe, decide};
use crate::sealed::{seal, unseal};

/// Format of snapshots and state keys.
pub const VERSION: u32 = 1;
/// Knights that the agent has to place.
pub const TO_PLACE: usize = 6;
/// The word before a square in an action.
const PLACE: &str = "place";

/// What holds for all episodes of a set of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Game {
    /// The empty board.
    pub board: Board,
    /// Probes after which an episode is over.
    pub max_probes: usize,
    /// Whether privileged text says what can still be reached.
    pub completions: bool,
    /// Probability that the expert probes at random.
    pub expert_noise: f64,
}

/// A live episode.
#[derive(Clone, Debug)]
pub struct Episode {
    game: Arc<Game>,
    /// Of the set and the task.
    fingerprint: Arc<str>,
    given: Squares,
    /// The probes; `None` where nothing was understood. All else follows from them.
    probes: Vec<Option<Probe>>,
    /// The knights as they stand, the given ones included.
    knights: Squares,
}

/// What can still be reached from a state, by an agent that knows the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospects {
    /// Ways to place all knights that are missing, order aside; 0 where the probes do not suffice.
    pub completions: u64,
    /// The best score.
    pub best: usize,
}

/// The action that places a knight on a square, without the stop word.
pub fn action(board: &Board, square: usize) -> String {
    format!("{PLACE} {}", board.name(square))
}

fn parse(board: &Board, text: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    let square = if words.next()? == PLACE { board.named(words.next()?)? } else { return None };
    words.next().is_none().then_some(square)
}

/// A number as privileged text says it: a word per digit, so that few words say any number.
fn digits(n: u64) -> String {
    n.to_string().chars().map(String::from).collect::<Vec<_>>().join(" ")
}

/// The rule, as privileged text says it.
const RULE: &str =
    "hidden rule: a knight is refused if another one is two squares away in one direction and one square in the other";

/// Words of observations, actions and privileged texts, those of squares left out.
pub fn words() -> Vec<String> {
    let texts = ["place six more stones from to board accepted rejected unknown score", RULE, "completions left: best total:"];
    let digits = (0..10).map(|digit| digit.to_string());
    texts.iter().flat_map(|text| text.split_whitespace()).map(String::from).chain(digits).collect()
}

impl Episode {
    /// Opens a task, which is where the first knights stand.
    pub fn new(game: Arc<Game>, given: Squares, fingerprint: Arc<str>) -> Self {
        Self { game, fingerprint, given, probes: Vec::new(), knights: given }
    }

    fn placed(&self) -> usize {
        (self.knights & !self.given).count_ones() as usize
    }

    fn is_over(&self) -> bool {
        self.placed() >= TO_PLACE || self.probes.len() >= self.game.max_probes
    }

    /// Makes a probe; `None` is one that was not understood.
    fn probe(&mut self, square: Option<usize>) {
        let made = square.map(|square| Probe { square, accepted: self.game.board.accepts(self.knights, square) });
        if let Some(Probe { square, accepted: true }) = made {
            self.knights |= 1 << square;
        }
        self.probes.push(made);
    }

    fn text(&self) -> String {
        let board = &self.game.board;
        let head = match self.probes.last() {
            None => {
                format!("place six more stones from {} to {}", board.name(0), board.name(board.len() - 1))
            }
            Some(None) => "unknown".into(),
            Some(Some(probe)) => if probe.accepted { "accepted" } else { "rejected" }.into(),
        };
        let tail = if self.is_over() { format!("\nscore {}", self.placed()) } else { String::new() };
        format!("{head}\nboard {}{tail}", board.names(self.knights))
    }

    /// What can still be reached, exactly.
    pub fn prospects(&self) -> Prospects {
        let (placed, probes_left) = (self.placed(), self.game.max_probes - self.probes.len());
        let missing = TO_PLACE - placed;
        let ways = self.game.board.ways(self.knights, missing);
        let possible = |n: &usize| *n <= probes_left && ways[*n] > 0;
        Prospects {
            completions: if missing <= probes_left { ways[missing] } else { 0 },
            best: placed + (0..=missing).rev().find(possible).unwrap_or(0),
        }
    }
}

impl Environment for Episode {
    /// The key is the board, and whether the game is over: what the last probe was belongs to the history.
    fn observe(&self) -> Observation {
        let squares = members(self.knights).map(|square| KeyPart::Text(self.game.board.name(square))).collect();
        let key = KeyPart::List(vec![KeyPart::List(squares), KeyPart::Bool(self.is_over())]).bytes();
        Observation { text: self.text(), context: Context::Extend, key }
    }

    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        if self.is_over() {
            return Err(EnvironmentError("the episode is over: no probe is possible after it".into()));
        }
        let square = if action.complete { parse(&self.game.board, action.text) } else { None };
        self.probe(square);
        let validity = match self.probes.last() {
            Some(Some(Probe { accepted: true, .. })) => Validity::Valid,
            Some(Some(_)) => Validity::Refused,
            _ if action.complete => Validity::Malformed,
            _ => Validity::Cut,
        };
        let placed = self.placed();
        let end = self.is_over().then_some(End::Terminated { success: placed == TO_PLACE });
        Ok(Step { reward: if end.is_some() { placed as f32 } else { 0.0 }, end, validity, ..Step::default() })
    }

    /// The board and the number of probes made. Which probes were rejected is left out: it decides no reward and no later
    /// answer.
    fn state_key(&self) -> Vec<u8> {
        format!("{}\n{} {}", self.fingerprint, self.probes.len(), self.game.board.names(self.knights)).into_bytes()
    }

    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        let squares: Vec<Option<usize>> = self.probes.iter().map(|probe| probe.map(|probe| probe.square)).collect();
        seal(&self.fingerprint, VERSION, &squares, self.text())
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        let squares: Vec<Option<usize>> = unseal(snapshot, &self.fingerprint, VERSION)?;
        let mut restored = Self::new(Arc::clone(&self.game), self.given, Arc::clone(&self.fingerprint));
        for square in squares {
            if restored.is_over() || square.is_some_and(|square| square >= self.game.board.len()) {
                return Err(RestoreError::Damaged("no episode of this task comes to such a state".into()));
            }
            restored.probe(square);
        }
        verify_restored(&snapshot.observation, &restored.text())?;
        *self = restored;
        Ok(())
    }

    /// A knight on any empty square: whether it will be accepted is not said.
    fn admissible(&self) -> Option<Vec<String>> {
        let board = &self.game.board;
        let empty = (0..board.len()).filter(|square| !self.is_over() && self.knights >> square & 1 == 0);
        Some(empty.map(|square| action(board, square)).collect())
    }

    fn expert(&mut self, rng: &mut Rng) -> Option<String> {
        let board = &self.game.board;
        let probes: Vec<Probe> = self.probes.iter().copied().flatten().collect();
        (!self.is_over()).then(|| action(board, decide(board, self.given, &probes, self.game.expert_noise, rng)))
    }

    fn privileged(&self) -> Option<String> {
        if !self.game.completions {
            return Some(RULE.into());
        }
        let Prospects { completions, best } = self.prospects();
        Some(format!("{RULE}\ncompletions left: {}\nbest total: {best}", digits(completions)))
    }

    /// The first of the ways to place all knights, in the order of squares: `a3 b1 …`.
    fn ground_truth(&self) -> Option<String> {
        self.game.board.first_way(self.given, TO_PLACE).map(|way| self.game.board.names(way))
    }

    /// Knights that were placed.
    fn stage(&self) -> Option<u32> {
        Some(self.placed() as u32)
    }
}
