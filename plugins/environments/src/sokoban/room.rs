//! The floor of a room, the rules of moving in it, and how far every state is from solved.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Cells on a side of a room, the outer wall included.
pub const SIDE: usize = 6;
/// Cells of a room.
pub const CELLS: usize = SIDE * SIDE;

/// A cell: row times [`SIDE`], plus column; both count from 0 at the top left.
pub type Cell = u8;

/// A step of the player, which pushes the box if it stands in the way and the cell behind it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// To the next row.
    Down,
    /// To the previous column.
    Left,
    /// To the next column.
    Right,
    /// To the previous row.
    Up,
}

impl Move {
    /// All moves, sorted by their text.
    pub const ALL: [Move; 4] = [Move::Down, Move::Left, Move::Right, Move::Up];

    /// Its text, without the stop word.
    pub const fn name(self) -> &'static str {
        match self {
            Move::Down => "down",
            Move::Left => "left",
            Move::Right => "right",
            Move::Up => "up",
        }
    }

    /// The move that a text is, if it is one.
    pub fn named(text: &str) -> Option<Move> {
        Move::ALL.into_iter().find(|go| go.name() == text.trim())
    }

    /// How much further the cell is in a room's list.
    const fn offset(self) -> isize {
        match self {
            Move::Down => SIDE as isize,
            Move::Left => -1,
            Move::Right => 1,
            Move::Up => -(SIDE as isize),
        }
    }
}

/// Where player and box stand; never in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Cell of the player.
    pub player: Cell,
    /// Cell of the box.
    pub box_at: Cell,
}

/// How far a state is from solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Plan {
    /// Moves of the shortest solutions.
    pub moves: usize,
    /// The fewest pushes among those solutions.
    pub pushes: usize,
}

/// What never changes in a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout {
    /// Whether a cell is floor; the outer cells never are.
    pub floor: [bool; CELLS],
    /// Where the box belongs, a cell of the floor.
    pub target: Cell,
}

impl Layout {
    fn is_floor(&self, cell: isize) -> bool {
        usize::try_from(cell).is_ok_and(|cell| self.floor.get(cell).copied().unwrap_or(false))
    }

    /// Cells of the floor, in order.
    pub fn floor_cells(&self) -> impl Iterator<Item = Cell> + '_ {
        (0..CELLS).filter(|cell| self.floor[*cell]).map(|cell| cell as Cell)
    }

    /// Whether the box is where it belongs.
    pub fn solved(&self, at: State) -> bool {
        at.box_at == self.target
    }

    /// The state after a move; `None` where a wall, or the box before a wall, is in the way.
    pub fn after(&self, at: State, go: Move) -> Option<State> {
        let player = isize::from(at.player) + go.offset();
        let box_at = if player == isize::from(at.box_at) { player + go.offset() } else { isize::from(at.box_at) };
        (self.is_floor(player) && self.is_floor(box_at)).then_some(State { player: player as Cell, box_at: box_at as Cell })
    }

    /// States from which one move leads here, and whether that move pushes: the player steps back, with or without the box.
    fn before(&self, at: State) -> Vec<(State, bool)> {
        let step_back = |go: Move| {
            let from = isize::from(at.player) - go.offset();
            let free = self.is_floor(from) && from != isize::from(at.box_at);
            let walked = State { player: from as Cell, box_at: at.box_at };
            let pulls = isize::from(at.player) + go.offset() == isize::from(at.box_at);
            let pulled = State { player: from as Cell, box_at: at.player };
            [(walked, false), (pulled, true)].into_iter().filter(move |(_, pull)| free && (pulls || !pull))
        };
        Move::ALL.into_iter().flat_map(step_back).filter(|(from, _)| !self.solved(*from)).collect()
    }

    /// The plans of all states that can be solved, by playing in reverse, breadth first, from all that are. A state that is
    /// not listed is a deadlock.
    pub fn plans(&self) -> BTreeMap<State, Plan> {
        let solved = self.floor_cells().filter(|player| *player != self.target);
        let mut layer: BTreeMap<State, usize> = solved.map(|player| (State { player, box_at: self.target }, 0)).collect();
        let mut plans = BTreeMap::new();
        for moves in 0.. {
            if layer.is_empty() {
                break;
            }
            plans.extend(layer.iter().map(|(at, pushes)| (*at, Plan { moves, pushes: *pushes })));
            let mut next: BTreeMap<State, usize> = BTreeMap::new();
            for (at, pushes) in &layer {
                for (from, pushed) in self.before(*at) {
                    if !plans.contains_key(&from) {
                        let pushes = pushes + usize::from(pushed);
                        next.entry(from).and_modify(|fewest| *fewest = pushes.min(*fewest)).or_insert(pushes);
                    }
                }
            }
            layer = next;
        }
        plans
    }

    /// States that can be reached from one, itself included, sorted. A solved state leads nowhere.
    pub fn reachable(&self, start: State) -> Vec<State> {
        let mut seen = BTreeSet::from([start]);
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            if self.solved(at) {
                continue;
            }
            for next in Move::ALL.into_iter().filter_map(|go| self.after(at, go)) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen.into_iter().collect()
    }
}

/// A layout, and where an episode begins in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Room {
    /// Walls, floor and target.
    pub layout: Layout,
    /// The first state.
    pub start: State,
}

impl Room {
    /// The same room for all eight ways to turn and mirror it.
    pub fn canonical(&self) -> Room {
        (0..8).map(|way| self.turned(way)).min().unwrap_or(*self)
    }

    /// The room mirrored at the diagonal if bit 0 of `way` is set, upside down for bit 1, and left to right for bit 2.
    fn turned(&self, way: u8) -> Room {
        let turn = |cell: Cell| {
            let (mut row, mut column) = (usize::from(cell) / SIDE, usize::from(cell) % SIDE);
            if way & 1 != 0 {
                (row, column) = (column, row);
            }
            if way & 2 != 0 {
                row = SIDE - 1 - row;
            }
            if way & 4 != 0 {
                column = SIDE - 1 - column;
            }
            (row * SIDE + column) as Cell
        };
        let mut floor = [false; CELLS];
        self.layout.floor_cells().for_each(|cell| floor[usize::from(turn(cell))] = true);
        Room {
            layout: Layout { floor, target: turn(self.layout.target) },
            start: State { player: turn(self.start.player), box_at: turn(self.start.box_at) },
        }
    }
}
