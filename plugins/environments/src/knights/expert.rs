//! The scripted expert: somebody who knows that some distance between two stones is not allowed, but not which.
//!
//! It looks only at what the agent was shown: the board, and what became of each probe. A distance is how far two squares
//! are apart along rows and columns, whichever is which. Stones that stand together show that their distances are allowed;
//! a probe that was rejected shows that one of its distances is not, and which one where all others are known to be
//! allowed. A square is out of the question once it was rejected, and once it has a distance known not to be allowed. Of the
//! others it takes those with the fewest distances that it knows nothing about, and of these one that leaves most squares
//! open.

use std::collections::BTreeSet;

use ascribe_core::Rng;

use super::board::{Board, Squares, members};

/// A probe and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Where a stone was to be placed.
    pub square: usize,
    /// Whether it stands there now.
    pub accepted: bool,
}

/// Distances along rows and columns, the smaller first.
type Offsets = BTreeSet<(usize, usize)>;

/// What the probes have shown.
struct Beliefs<'a> {
    board: &'a Board,
    /// The stones as they stand.
    stones: Squares,
    allowed: Offsets,
    forbidden: Offsets,
    /// Squares that were rejected, the occupied ones left out.
    rejected: Squares,
}

impl<'a> Beliefs<'a> {
    fn new(board: &'a Board, given: Squares, probes: &[Probe]) -> Self {
        let stones = probes.iter().filter(|probe| probe.accepted).fold(given, |set, probe| set | 1 << probe.square);
        let allowed = members(stones).flat_map(|a| members(stones & !(1 << a)).map(move |b| board.offset(a, b))).collect();
        let mut beliefs = Self { board, stones, allowed, forbidden: Offsets::new(), rejected: 0 };
        let mut stood = given;
        for probe in probes {
            if probe.accepted {
                stood |= 1 << probe.square;
            } else if stood >> probe.square & 1 == 0 {
                beliefs.rejected |= 1 << probe.square;
                let mut suspects = beliefs.offsets(probe.square, stood);
                suspects.retain(|offset| !beliefs.allowed.contains(offset));
                if suspects.len() == 1 {
                    beliefs.forbidden.extend(suspects);
                }
            }
        }
        beliefs
    }

    fn offsets(&self, square: usize, stones: Squares) -> Offsets {
        members(stones).map(|stone| self.board.offset(square, stone)).collect()
    }

    /// Distances from a square to the stones that nothing is known about.
    fn doubts(&self, square: usize) -> usize {
        self.offsets(square, self.stones).difference(&self.allowed).count()
    }

    /// Squares that stay open once there is a stone on `square`, of `open`.
    fn room(&self, square: usize, open: &[usize]) -> usize {
        open.iter().filter(|other| **other != square && !self.forbidden.contains(&self.board.offset(square, **other))).count()
    }
}

/// Where the expert probes next.
///
/// * `noise`: probability of a square at random, in 0..=1
///
/// # Panics
/// If all squares are occupied.
pub fn decide(board: &Board, given: Squares, probes: &[Probe], noise: f64, rng: &mut Rng) -> usize {
    let beliefs = Beliefs::new(board, given, probes);
    let empty: Vec<usize> = (0..board.len()).filter(|square| beliefs.stones >> square & 1 == 0).collect();
    // Both are drawn whether they apply or not: noise shifts no other choice.
    let (astray, guess) = (rng.unit() < noise, empty[rng.below(empty.len())]);
    let is_open = |square: &usize| {
        beliefs.rejected >> square & 1 == 0 && beliefs.offsets(*square, beliefs.stones).is_disjoint(&beliefs.forbidden)
    };
    let open: Vec<usize> = empty.iter().copied().filter(is_open).collect();
    let merit = |square: &usize| (std::cmp::Reverse(beliefs.doubts(*square)), beliefs.room(*square, &open));
    let best = open.iter().map(merit).max();
    let choice: Vec<usize> = open.iter().copied().filter(|square| Some(merit(square)) == best).collect();
    match rng.choose(&choice) {
        Some(square) if !astray => *square,
        _ => guess,
    }
}
