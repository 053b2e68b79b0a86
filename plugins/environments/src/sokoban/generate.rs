//! The seeded generator of rooms.
//!
//! It goes the way of Racanière and others (2017, appendix), as gym-sokoban does: a random walk carves the floor, a cell of it
//! becomes the target, and reverse play, in which the player pulls, leads away from the solved room. gym-sokoban keeps the
//! state of the highest score that a depth-first search of limited depth finds. One box leaves so few states that all of them
//! are searched here: the number of moves is drawn evenly among those that occur within the bounds, then a state that takes so
//! many, so rooms of all lengths have their share and every room can be solved.

use std::collections::BTreeSet;

use ascribe_core::{Draw, Rng, Seeds};

use super::room::{CELLS, Cell, Layout, Room, SIDE, State};

/// Steps of the walk that carves the floor: `1.7 · (6 + 6)` in gym-sokoban.
const WALK: usize = 20;
/// Probability that the walk changes its direction at a step, as in gym-sokoban.
const TURNS: f64 = 0.35;
/// What a step of the walk carves, as rows and columns from where it stands; one of them is drawn.
const SHAPES: [&[(isize, isize)]; 5] = [
    &[(0, -1), (0, 0), (0, 1)],
    &[(-1, 0), (0, 0), (1, 0)],
    &[(0, -1), (0, 0), (1, 0)],
    &[(0, -1), (0, 0), (1, -1), (1, 0)],
    &[(0, 0), (0, 1), (1, 0)],
];
/// Layouts drawn for a room before the generator gives up.
const LAYOUT_DRAWS: usize = 2_000;

/// What rooms are kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Fewest moves of a shortest solution, at least 1: a room is not solved from the start.
    pub min_moves: usize,
    /// Most moves of a shortest solution.
    pub max_moves: usize,
    /// Fewest pushes of a shortest solution.
    pub min_pushes: usize,
}

/// The rooms of both splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rooms {
    /// Rooms to train on. No two are the same, turned or mirrored.
    pub train: Vec<Room>,
    /// Rooms to measure on. No two are the same, and none has walls and target of one of `train`, turned or mirrored.
    pub test: Vec<Room>,
}

/// Draws the rooms. Those of `test` do not depend on the number of training rooms.
///
/// # Errors
/// If there are not that many different ones within the bounds.
pub fn generate(seed: u64, n_train: usize, n_test: usize, bounds: Bounds) -> Result<Rooms, String> {
    let mut taken = BTreeSet::new();
    let test = draw_split(seed, "test", n_test, bounds, |room| taken.insert(room.canonical()))?;
    let measured: BTreeSet<Layout> = test.iter().map(alike).collect();
    let mut taken = BTreeSet::new();
    let train =
        draw_split(seed, "train", n_train, bounds, |room| !measured.contains(&alike(room)) && taken.insert(room.canonical()))?;
    Ok(Rooms { train, test })
}

/// The same layout for all rooms whose walls and target are the same, turned or mirrored.
pub fn alike(room: &Room) -> Layout {
    // With player and box on the target they say nothing.
    let target = room.layout.target;
    Room { start: State { player: target, box_at: target }, ..*room }.canonical().layout
}

/// Draws `n` rooms that are `fresh`.
fn draw_split(
    seed: u64,
    name: &str,
    n: usize,
    bounds: Bounds,
    mut fresh: impl FnMut(&Room) -> bool,
) -> Result<Vec<Room>, String> {
    let draw_fresh = |i: usize| {
        let mut rng = Seeds(seed).rng(&format!("sokoban/{name}"), Draw { group: i as u32, ..Draw::default() });
        (0..LAYOUT_DRAWS).filter_map(|_| draw(bounds, &mut rng)).find(|room| fresh(room)).ok_or_else(|| {
            let Bounds { min_moves, max_moves, min_pushes } = bounds;
            format!(
                "no {}th room of split `{name}` in {LAYOUT_DRAWS} draws, {n} are asked for: lower `{name}_tasks`, or widen \
                 `min_moves` {min_moves}, `max_moves` {max_moves} and `min_pushes` {min_pushes}",
                i + 1
            )
        })
    };
    (0..n).map(draw_fresh).collect()
}

/// A room, or `None` if the layout drawn has none within the bounds.
fn draw(bounds: Bounds, rng: &mut Rng) -> Option<Room> {
    let carved = carve(rng);
    let cells: Vec<Cell> = (0..CELLS).filter(|cell| carved[*cell]).map(|cell| cell as Cell).collect();
    let target = *rng.choose(&cells)?;
    let layout = Layout { floor: connected(&carved, target), target };
    let plans = layout.plans();
    let kept = || {
        plans
            .iter()
            .filter(|(_, plan)| (bounds.min_moves..=bounds.max_moves).contains(&plan.moves) && plan.pushes >= bounds.min_pushes)
    };
    let lengths: Vec<usize> = kept().map(|(_, plan)| plan.moves).collect::<BTreeSet<_>>().into_iter().collect();
    let moves = *rng.choose(&lengths)?;
    let starts: Vec<State> = kept().filter(|(_, plan)| plan.moves == moves).map(|(at, _)| *at).collect();
    Some(Room { layout, start: *rng.choose(&starts)? })
}

/// Floor along a random walk within the outer wall.
fn carve(rng: &mut Rng) -> [bool; CELLS] {
    const DIRECTIONS: [(isize, isize); 4] = [(1, 0), (0, 1), (-1, 0), (0, -1)];
    let last = SIDE as isize - 2;
    let mut floor = [false; CELLS];
    let (mut row, mut column) = (1 + rng.below(SIDE - 2) as isize, 1 + rng.below(SIDE - 2) as isize);
    let mut direction = DIRECTIONS[rng.below(4)];
    for _ in 0..WALK {
        if rng.unit() < TURNS {
            direction = DIRECTIONS[rng.below(4)];
        }
        (row, column) = ((row + direction.0).clamp(1, last), (column + direction.1).clamp(1, last));
        for (down, right) in SHAPES[rng.below(SHAPES.len())] {
            let (r, c) = (row + down, column + right);
            if (1..=last).contains(&r) && (1..=last).contains(&c) {
                floor[(r * SIDE as isize + c) as usize] = true;
            }
        }
    }
    floor
}

/// The part of the floor that hangs together with a cell of it; the rest becomes wall.
fn connected(floor: &[bool; CELLS], cell: Cell) -> [bool; CELLS] {
    let mut part = [false; CELLS];
    let mut open = vec![usize::from(cell)];
    while let Some(cell) = open.pop() {
        if floor[cell] && !part[cell] {
            part[cell] = true;
            // The outer cells are walls, so the floor has four neighbours.
            open.extend([cell - SIDE, cell - 1, cell + 1, cell + SIDE]);
        }
    }
    part
}
