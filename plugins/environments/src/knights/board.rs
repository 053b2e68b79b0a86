//! The board: which squares a knight attacks, and exactly how many ways there are to go on.

/// Squares as a set: bit `i` is square `i`.
pub type Squares = u64;

/// A rectangular board. Square `column · rows + row` is called by its column's letter and its row's number, from `a1` on; the
/// order of squares is that of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    rows: usize,
    columns: usize,
    /// Squares that a knight attacks, by its square.
    attacks: Vec<Squares>,
    /// Squares whose row and column add up to an odd number: knights attack from them to the others, and back.
    dark: Squares,
}

impl Board {
    /// An empty board.
    ///
    /// # Panics
    /// With more than 9 rows, 26 columns or 64 squares: they have no names or no bits.
    pub fn new(rows: usize, columns: usize) -> Self {
        assert!(rows <= 9 && columns <= 26 && rows * columns <= 64, "a board of {rows} by {columns} squares is too large");
        let mut board = Self { rows, columns, attacks: Vec::new(), dark: 0 };
        let n = board.len();
        let attacks = |from: usize| (0..n).filter(|to| board.offset(from, *to) == (1, 2)).fold(0, |set, to| set | 1 << to);
        let is_dark = |square: &usize| (square / rows + square % rows) % 2 == 1;
        let (attacks, dark) = ((0..n).map(attacks).collect(), (0..n).filter(is_dark).fold(0, |set, square| set | 1 << square));
        board.attacks = attacks;
        board.dark = dark;
        board
    }

    /// Number of squares.
    pub fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether there are no squares.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a square is called.
    pub fn name(&self, square: usize) -> String {
        format!("{}{}", char::from(b'a' + (square / self.rows) as u8), square % self.rows + 1)
    }

    /// The square of a name.
    pub fn named(&self, name: &str) -> Option<usize> {
        (0..self.len()).find(|square| self.name(*square) == name)
    }

    /// Names of a set of squares, in order, with single spaces.
    pub fn names(&self, squares: Squares) -> String {
        members(squares).map(|square| self.name(square)).collect::<Vec<_>>().join(" ")
    }

    /// Distances between two squares along rows and columns, the smaller first.
    pub fn offset(&self, a: usize, b: usize) -> (usize, usize) {
        let (column, row) = ((a / self.rows).abs_diff(b / self.rows), (a % self.rows).abs_diff(b % self.rows));
        (column.min(row), column.max(row))
    }

    /// Whether a square is free for a knight that attacks none of `knights`.
    pub fn accepts(&self, knights: Squares, square: usize) -> bool {
        knights & (self.attacks[square] | 1 << square) == 0
    }

    /// Whether all of a set of squares have one colour.
    pub fn one_colour(&self, squares: Squares) -> bool {
        let dark = squares & self.dark;
        dark == 0 || dark == squares
    }

    /// In how many ways `0, 1, …, most` knights can be added to `knights`, order aside, so that none of them attacks another
    /// one or one of `knights`.
    ///
    /// Exact: knights attack from one colour to the other only. Whatever is chosen on the dark squares, those on the light
    /// ones are any of the squares that are left to choose from.
    pub fn ways(&self, knights: Squares, most: usize) -> Vec<u64> {
        let free = (0..self.len()).filter(|square| self.accepts(knights, *square)).fold(0, |set, square| set | 1 << square);
        let dark: Vec<usize> = members(free & self.dark).collect();
        let mut ways = vec![0; most + 1];
        self.add_ways(&dark, 0, free & !self.dark, &mut ways);
        ways
    }

    /// Adds the ways that have `chosen` knights on dark squares, on which `light` is left, and those that have more among
    /// `dark`.
    fn add_ways(&self, dark: &[usize], chosen: usize, light: Squares, ways: &mut [u64]) {
        for (n, ways) in ways[chosen..].iter_mut().enumerate() {
            *ways += binomial(light.count_ones() as usize, n);
        }
        if chosen + 1 < ways.len() {
            for (i, square) in dark.iter().enumerate() {
                self.add_ways(&dark[i + 1..], chosen + 1, light & !self.attacks[*square], ways);
            }
        }
    }

    /// The first in the order of squares of the ways to add `n` knights.
    pub fn first_way(&self, knights: Squares, n: usize) -> Option<Squares> {
        let mut added = 0;
        for left in (0..n).rev() {
            let fits = |square: &usize| {
                self.accepts(knights | added, *square) && self.ways(knights | added | 1 << square, left)[left] > 0
            };
            added |= 1 << (0..self.len()).find(fits)?;
        }
        Some(added)
    }

    /// A set of squares as it lies after each reflection and rotation of the board, itself included.
    pub fn symmetric(&self, squares: Squares) -> Vec<Squares> {
        let flip = |turned: bool, flips: usize| {
            let image = |square: usize| {
                let (column, row) = (square / self.rows, square % self.rows);
                let (column, row) = if turned { (row, column) } else { (column, row) };
                let column = if flips & 1 == 1 { self.columns - 1 - column } else { column };
                let row = if flips & 2 == 2 { self.rows - 1 - row } else { row };
                column * self.rows + row
            };
            members(squares).fold(0, |set, square| set | 1 << image(square))
        };
        let turns = if self.rows == self.columns { &[false, true][..] } else { &[false] };
        turns.iter().flat_map(|turned| (0..4).map(|flips| flip(*turned, flips))).collect()
    }
}

/// The squares of a set, in order.
pub fn members(mut squares: Squares) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let square = squares.trailing_zeros() as usize;
        squares &= squares.wrapping_sub(1);
        (square < 64).then_some(square)
    })
}

/// Number of ways to choose `k` of `n`.
fn binomial(n: usize, k: usize) -> u64 {
    (0..k.min(n + 1)).fold(1, |ways, i| ways * (n - i) as u64 / (i as u64 + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(board: &Board, names: &str) -> Squares {
        names.split_whitespace().fold(0, |set, name| set | 1 << board.named(name).unwrap())
    }

    /// The definition: all sets of squares, one by one.
    fn by_listing(board: &Board, knights: Squares, most: usize) -> Vec<u64> {
        let mut ways = vec![0; most + 1];
        for added in 0..1u64 << board.len() {
            let all = knights | added;
            let peaceful = |a: usize| members(all).all(|b| board.offset(a, b) != (1, 2));
            let n = added.count_ones() as usize;
            if n <= most && added & knights == 0 && members(added).all(peaceful) {
                ways[n] += 1;
            }
        }
        ways
    }

    #[test]
    fn squares_have_names_in_order() {
        let board = Board::new(4, 5);
        let names: Vec<String> = (0..board.len()).map(|square| board.name(square)).collect();
        assert!(names.is_sorted());
        assert_eq!((board.len(), &*names[0], &*names[4], &*names[19]), (20, "a1", "b1", "e4"));
        assert_eq!((board.named("c3"), board.named("a5"), board.named("f1"), board.named("")), (Some(10), None, None, None));
    }

    #[test]
    fn knights_attack_as_they_do() {
        let board = Board::new(5, 5);
        let attacks = |name: &str| board.names(board.attacks[board.named(name).unwrap()]);
        assert_eq!(attacks("a1"), "b3 c2");
        assert_eq!(attacks("c3"), "a2 a4 b1 b5 d1 d5 e2 e4");
        assert!(!board.accepts(set(&board, "a1"), board.named("b3").unwrap()));
        assert!(!board.accepts(set(&board, "a1"), board.named("a1").unwrap()));
        assert!(board.accepts(set(&board, "a1"), board.named("b2").unwrap()));
        assert!(board.one_colour(set(&board, "a1 b2 c3")) && !board.one_colour(set(&board, "a1 b1")));
    }

    #[test]
    fn ways_by_hand() {
        // 3 by 3: from a side's middle a knight attacks the two far corners, from a corner the two far sides' middles; all
        // eight squares of the rim are one cycle, and the centre is attacked by none.
        let board = Board::new(3, 3);
        // A cycle of 8 has 8/(8−k) · C(8−k, k) sets of k that are no neighbours: 1, 8, 20, 16, 2; with the centre or without:
        assert_eq!(board.ways(0, 6), [1, 9, 28, 36, 18, 2, 0]);
        // a1 takes itself, b3 and c2: the centre and a path of 5 with 1, 5, 6, 1.
        assert_eq!(board.ways(set(&board, "a1"), 4), [1, 6, 11, 7, 1]);
        assert_eq!(board.first_way(set(&board, "a1"), 4).map(|way| board.names(way)).as_deref(), Some("a3 b2 c1 c3"));
        assert_eq!(board.first_way(set(&board, "a1"), 5), None);
        assert_eq!(board.first_way(set(&board, "a1"), 0), Some(0));
    }

    #[test]
    fn symmetric_sets_by_hand() {
        let board = Board::new(3, 4);
        let images: Vec<String> = board.symmetric(set(&board, "a1 b1")).into_iter().map(|image| board.names(image)).collect();
        assert_eq!(images, ["a1 b1", "c1 d1", "a3 b3", "c3 d3"]);
        let square = Board::new(3, 3);
        assert_eq!(square.symmetric(set(&square, "a2")).len(), 8);
        assert!(square.symmetric(set(&square, "a2")).contains(&set(&square, "b3")));
    }

    proptest! {
        #[test]
        fn ways_are_those_that_can_be_listed(rows in 1usize..5, columns in 1usize..5, tries in any::<u64>(), most in 0usize..9) {
            let board = Board::new(rows, columns);
            let knights = members(tries & ((1 << board.len()) - 1))
                .take(3)
                .fold(0, |set, square| if board.accepts(set, square) { set | 1 << square } else { set });
            let ways = board.ways(knights, most);
            prop_assert_eq!(&ways, &by_listing(&board, knights, most));
            for image in board.symmetric(knights) {
                prop_assert_eq!(&board.ways(image, most), &ways);
            }
            for (n, ways) in ways.iter().enumerate() {
                let first = board.first_way(knights, n);
                prop_assert_eq!(first.is_some(), *ways > 0);
                if let Some(first) = first {
                    prop_assert_eq!((first.count_ones() as usize, first & knights), (n, 0));
                    prop_assert!(members(first).all(|square| board.accepts((knights | first) & !(1 << square), square)));
                }
            }
        }
    }
}
