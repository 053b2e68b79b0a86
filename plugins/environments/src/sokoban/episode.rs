//! A live episode, and the exact answers about its room.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ascribe_core::environment::{
    ActionText, Environment, EnvironmentError, Observation, Oracle, Place, RestoreError, Snapshot, Step, verify_restored,
};
use ascribe_core::log::{Context, End, Limit, Validity};
use ascribe_core::{FiniteMdp, Rng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::room::{CELLS, Cell, Move, Plan, Room, SIDE, State};
use crate::sealed::{seal, unseal};

/// Format of snapshots and state keys.
const VERSION: u32 = 1;

/// Words of observations and of privileged text, numbers left out.
pub const WORDS: &[&str] = &[
    "#", "_", "O", "√", "X", "P", "S", "player", "at", "box", "target", "walls", "and", "no", "needs", "moves", "of", "turns",
    "cannot", "be", "solved", "in",
];

/// What an observation looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shows {
    /// The grid, a symbol per cell.
    Symbols,
    /// A sentence with coordinates.
    Text,
}

/// What holds for all episodes of a set of tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Moves after which an episode is cut off.
    pub max_turns: usize,
    /// What every turn costs.
    pub step_cost: f64,
    /// What a turn costs besides in which nothing was understood.
    pub malformed_cost: f64,
    /// Reward of the push that brings the box to its target.
    pub solved_reward: f64,
    /// What an observation looks like.
    pub shows: Shows,
    /// Probability that the expert makes any move.
    pub noise: f64,
}

/// A room with its rules, all that follows from them, and its identity.
#[derive(Debug)]
pub struct Task {
    room: Room,
    rules: Rules,
    /// Of the set and the task.
    fingerprint: String,
    /// How far the states that can be solved are from it.
    plans: BTreeMap<State, Plan>,
    /// States that an episode can come to, sorted: their order numbers them.
    states: Vec<State>,
    /// Texts of the moves, sorted.
    moves: Vec<String>,
    /// Enumerated when it is first asked for.
    process: OnceLock<FiniteMdp>,
}

impl Task {
    /// Works out what follows from a room and its rules.
    pub fn new(room: Room, rules: Rules, fingerprint: String) -> Self {
        Self {
            plans: room.layout.plans(),
            states: room.layout.reachable(room.start),
            moves: Move::ALL.map(|go| go.name().to_string()).to_vec(),
            process: OnceLock::new(),
            room,
            rules,
            fingerprint,
        }
    }

    /// The room.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// How far a state is from solved; `None` for a deadlock.
    pub fn plan(&self, at: State) -> Option<Plan> {
        self.plans.get(&at).copied()
    }

    /// How far the first state is from solved: every room can be solved.
    pub fn length(&self) -> Plan {
        self.plan(self.room.start).unwrap_or(Plan { moves: 0, pushes: 0 })
    }

    /// The moves that begin a shortest solution, in order; none at a deadlock and where it is solved.
    pub fn best(&self, at: State) -> Vec<Move> {
        let Some(plan) = self.plan(at).filter(|plan| plan.moves > 0) else { return Vec::new() };
        let nearer = |go: &Move| {
            let after = self.room.layout.after(at, *go).and_then(|next| self.plan(next));
            after.is_some_and(|after| after.moves + 1 == plan.moves)
        };
        Move::ALL.into_iter().filter(nearer).collect()
    }

    /// The largest return that can be had from a state on, not discounted. Solving pays more than it costs, and more the
    /// sooner, so it is a shortest solution where the turns that are left suffice; else all of them cost and nothing pays.
    pub fn optimal_return(&self, at: State, turns_left: usize) -> f64 {
        let Rules { step_cost, solved_reward, .. } = self.rules;
        if self.room.layout.solved(at) {
            return 0.0;
        }
        match self.moves_within(at, turns_left) {
            Some(moves) => solved_reward - step_cost * moves as f64,
            None => -step_cost * turns_left as f64,
        }
    }

    fn moves_within(&self, at: State, turns_left: usize) -> Option<usize> {
        self.plan(at).map(|plan| plan.moves).filter(|moves| *moves <= turns_left)
    }

    /// A shortest solution from the start; of several the first in the order of the moves' names.
    fn solution(&self) -> Vec<&'static str> {
        let mut at = self.room.start;
        let mut solution = Vec::new();
        while let Some(go) = self.best(at).first() {
            solution.push(go.name());
            at = self.room.layout.after(at, *go).unwrap_or(at);
        }
        solution
    }

    fn text(&self, at: State) -> String {
        match self.rules.shows {
            Shows::Symbols => symbols(&Room { start: at, ..self.room }),
            Shows::Text => self.sentence(at),
        }
    }

    fn sentence(&self, at: State) -> String {
        let place = |cell: Cell| format!("{} {}", usize::from(cell) / SIDE, usize::from(cell) % SIDE);
        let inner = |cell: &usize| (1..SIDE - 1).contains(&(cell / SIDE)) && (1..SIDE - 1).contains(&(cell % SIDE));
        let walls = (0..CELLS).filter(inner).filter(|cell| !self.room.layout.floor[*cell]);
        let walls: Vec<String> = walls.map(|cell| place(cell as Cell)).collect();
        let walls = if walls.is_empty() { "no walls".into() } else { format!("walls at {}", walls.join(" and ")) };
        let [player, box_at, target] = [at.player, at.box_at, self.room.layout.target].map(place);
        format!("player at {player} box at {box_at} target at {target} {walls}")
    }

    /// What a move does and pays; one that is blocked changes nothing.
    fn outcome(&self, at: State, go: Move) -> (State, f64) {
        let next = self.room.layout.after(at, go).unwrap_or(at);
        let pays = if self.room.layout.solved(next) { self.rules.solved_reward } else { 0.0 };
        (next, pays - self.rules.step_cost)
    }

    fn enumerate(&self) -> FiniteMdp {
        let index = |at: &State| self.states.binary_search(at).expect("the states are closed under moves");
        let outcomes = |at: &State| {
            let moves: &[Move] = if self.room.layout.solved(*at) { &[] } else { &Move::ALL };
            moves.iter().map(|go| self.outcome(*at, *go)).collect::<Vec<_>>()
        };
        let all: Vec<Vec<(State, f64)>> = self.states.iter().map(outcomes).collect();
        FiniteMdp {
            transitions: all.iter().map(|moves| moves.iter().map(|(next, _)| vec![(index(next), 1.0)]).collect()).collect(),
            rewards: all.iter().map(|moves| moves.iter().map(|(_, pays)| *pays).collect()).collect(),
            start: self.states.iter().map(|at| f64::from(u8::from(*at == self.room.start))).collect(),
            horizon: self.rules.max_turns,
        }
    }
}

/// The grid of a room as it stands at its start: a row per line, its cells apart.
pub fn symbols(room: &Room) -> String {
    let symbol = |cell: usize| {
        let is = |other: Cell| usize::from(other) == cell;
        match (is(room.layout.target), is(room.start.box_at), is(room.start.player)) {
            (true, true, _) => "√",
            (true, _, true) => "S",
            (true, ..) => "O",
            (_, true, _) => "X",
            (.., true) => "P",
            _ if room.layout.floor[cell] => "_",
            _ => "#",
        }
    };
    let row = |row: usize| (0..SIDE).map(|column| symbol(row * SIDE + column)).collect::<Vec<_>>().join(" ");
    (0..SIDE).map(row).collect::<Vec<_>>().join("\n")
}

impl Oracle for Task {
    fn process(&self) -> &FiniteMdp {
        self.process.get_or_init(|| self.enumerate())
    }

    fn actions(&self, state: usize) -> &[String] {
        if self.room.layout.solved(self.states[state]) { &[] } else { &self.moves }
    }

    fn state_key(&self, place: Place) -> Vec<u8> {
        format!("{}\n{} {}", self.fingerprint, place.turn, place.state).into_bytes()
    }

    fn place(&self, state_key: &[u8]) -> Option<Place> {
        let (fingerprint, place) = std::str::from_utf8(state_key).ok()?.split_once('\n')?;
        let (turn, state) = place.split_once(' ')?;
        let place = Place { turn: turn.parse().ok()?, state: state.parse().ok()? };
        let exists = place.turn <= self.rules.max_turns && place.state < self.states.len();
        (fingerprint == self.fingerprint && exists).then_some(place)
    }
}

/// A live episode.
#[derive(Clone, Debug)]
pub struct Episode {
    task: Arc<Task>,
    at: At,
}

/// All that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    turn: usize,
    state: State,
}

impl Episode {
    /// Opens a task.
    pub fn new(task: Arc<Task>) -> Self {
        let state = task.room.start;
        Self { task, at: At { turn: 0, state } }
    }

    /// The largest return that can still be had, not discounted.
    pub fn optimal_return(&self) -> f64 {
        self.task.optimal_return(self.at.state, self.turns_left())
    }

    fn turns_left(&self) -> usize {
        self.task.rules.max_turns - self.at.turn
    }

    fn is_solved(&self) -> bool {
        self.task.room.layout.solved(self.at.state)
    }

    fn is_over(&self) -> bool {
        self.is_solved() || self.turns_left() == 0
    }

    /// Carries out a move that was understood.
    fn go(&mut self, go: Move) -> Step {
        let (next, pays) = self.task.outcome(self.at.state, go);
        let validity = if next == self.at.state { Validity::Refused } else { Validity::Valid };
        self.at.state = next;
        let end = self.is_solved().then_some(End::Terminated { success: true });
        Step { reward: pays as f32, end, validity, ..Step::default() }
    }
}

impl Environment for Episode {
    fn observe(&self) -> Observation {
        let text = self.task.text(self.at.state);
        Observation { key: text.clone().into_bytes(), text, context: Context::Extend }
    }

    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        if self.is_over() {
            return Err(EnvironmentError("the episode is over: no move is possible after it".into()));
        }
        let go = if action.complete { Move::named(action.text) } else { None };
        let mut step = match go {
            Some(go) => self.go(go),
            None => {
                let validity = if action.complete { Validity::Malformed } else { Validity::Cut };
                let costs = self.task.rules.step_cost + self.task.rules.malformed_cost;
                Step { reward: -costs as f32, validity, ..Step::default() }
            }
        };
        self.at.turn += 1;
        if step.end.is_none() && self.is_over() {
            step.end = Some(End::Truncated(Limit::Turns));
        }
        Ok(step)
    }

    /// Where player and box stand, and the turns made: they decide every future.
    fn state_key(&self) -> Vec<u8> {
        let state = self.task.states.binary_search(&self.at.state).expect("an episode stays where it can come to");
        Oracle::state_key(&*self.task, Place { turn: self.at.turn, state })
    }

    fn snapshot(&self) -> Result<Snapshot, RestoreError> {
        seal(&self.task.fingerprint, VERSION, &self.at, self.task.text(self.at.state))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        let at: At = unseal(snapshot, &self.task.fingerprint, VERSION)?;
        if at.turn > self.task.rules.max_turns || self.task.states.binary_search(&at.state).is_err() {
            return Err(RestoreError::Damaged("no episode of this task comes to such a state".into()));
        }
        verify_restored(&snapshot.observation, &self.task.text(at.state))?;
        self.at = at;
        Ok(())
    }

    fn admissible(&self) -> Option<Vec<String>> {
        Some(if self.is_over() { Vec::new() } else { self.task.moves.clone() })
    }

    /// A move of a shortest solution, of several one at random; at a deadlock any move.
    fn expert(&mut self, rng: &mut Rng) -> Option<String> {
        if self.is_over() {
            return None;
        }
        let astray = rng.unit() < self.task.rules.noise;
        let best = if astray { Vec::new() } else { self.task.best(self.at.state) };
        rng.choose(&best).or(rng.choose(&Move::ALL)).map(|go| go.name().into())
    }

    /// How many moves it takes of the turns that are left, or that they do not suffice.
    fn privileged(&self) -> Option<String> {
        let left = self.turns_left();
        Some(match self.task.moves_within(self.at.state, left) {
            Some(0) => "solved".into(),
            Some(moves) => format!("needs {moves} moves of {left} turns"),
            None => format!("cannot be solved in {left} turns"),
        })
    }

    /// A shortest solution from the start.
    fn ground_truth(&self) -> Option<String> {
        Some(self.task.solution().join(" "))
    }

    /// 0 at first and in a deadlock, 1 once fewer pushes are left than at the start, 2 before the last push, 3 when solved.
    fn stage(&self) -> Option<u32> {
        let nearer = self.task.plan(self.at.state).filter(|plan| plan.pushes < self.task.length().pushes);
        Some(nearer.map_or(0, |plan| match plan.pushes {
            0 => 3,
            1 => 2,
            _ => 1,
        }))
    }
}
