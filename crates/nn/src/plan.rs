//! How rows are laid out for one forward pass of the tensor engine.

use crate::rows::Rows;
use std::ops::Range;

/// Rows whose attention is computed together, padded to the longest of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Where its tokens lie in the packed stream.
    pub tokens: Range<usize>,
    /// Lengths of its rows.
    pub lengths: Vec<usize>,
    /// Longest of them.
    pub width: usize,
}

impl Tile {
    /// Whether no row needs padding.
    pub fn is_even(&self) -> bool {
        self.lengths.iter().all(|&len| len == self.width)
    }

    /// `[rows × width]`: packed index of each cell; padding points at the row's last token, which nothing reads.
    pub fn cells(&self) -> Vec<i64> {
        let mut start = self.tokens.start;
        let mut cells = Vec::with_capacity(self.lengths.len() * self.width);
        for &len in &self.lengths {
            cells.extend((0..self.width).map(|i| (start + i.min(len - 1)) as i64));
            start += len;
        }
        cells
    }
}

/// Packed token stream of some rows: no padding, except inside attention.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Tokens, longest row first.
    pub tokens: Vec<i64>,
    /// Position of each token in its row.
    pub positions: Vec<usize>,
    /// Attention tiles, in packed order.
    pub tiles: Vec<Tile>,
    /// Packed index of the token that predicts each sampled token, in the order of the rows asked for.
    pub predictors: Vec<i64>,
    /// Packed index of each row's last token, in the order of the rows asked for.
    pub ends: Vec<i64>,
}

/// A row joins a tile if it fills this much of its width …
const LEAST_FILL: f64 = 0.8;
/// … or falls short by so few tokens that another tile would cost more.
const LEAST_GAP: usize = 16;

impl Plan {
    /// Packs the rows with the given indices.
    pub fn new(rows: &Rows<'_>, picked: &[u32]) -> Self {
        let len = |slot: usize| rows.tokens_of(picked[slot] as usize).len();
        let mut order: Vec<usize> = (0..picked.len()).collect();
        order.sort_by_key(|&slot| std::cmp::Reverse(len(slot)));
        let mut plan = Self::default();
        let mut starts = vec![0; picked.len()];
        for slot in order {
            let tokens = rows.tokens_of(picked[slot] as usize);
            let start = plan.tokens.len();
            starts[slot] = start;
            plan.tokens.extend(tokens.iter().map(|&token| i64::from(token)));
            plan.positions.extend(0..tokens.len());
            match plan.tiles.last_mut() {
                Some(tile) if tokens.len() as f64 >= LEAST_FILL * tile.width as f64 || tile.width - tokens.len() <= LEAST_GAP => {
                    tile.tokens.end += tokens.len();
                    tile.lengths.push(tokens.len());
                }
                _ => plan.tiles.push(Tile {
                    tokens: start..start + tokens.len(),
                    lengths: vec![tokens.len()],
                    width: tokens.len(),
                }),
            }
        }
        for (slot, &row) in picked.iter().enumerate() {
            let bounds = &rows.bounds[row as usize];
            let at = &rows.at[bounds.sampled.clone()];
            plan.predictors.extend(at.iter().map(|&at| (starts[slot] + at - 1) as i64));
            plan.ends.push((starts[slot] + bounds.tokens.len() - 1) as i64);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::RowBounds;

    #[test]
    fn rows_are_packed_by_length_and_found_again() {
        let tokens: Vec<u32> = (0..66).collect();
        let bounds = [
            RowBounds { tokens: 0..4, sampled: 0..2 },
            RowBounds { tokens: 4..64, sampled: 2..3 },
            RowBounds { tokens: 64..66, sampled: 3..3 },
        ];
        let rows = Rows { tokens: &tokens, bounds: &bounds, at: &[1, 3, 59], temperature: &[], support: &[], supports: &[] };
        let plan = Plan::new(&rows, &[2, 0, 1]);
        // row 1 (60 tokens) lies first, then row 0 (4), then row 2 (2)
        assert_eq!(plan.predictors, [60, 62, 58]);
        assert_eq!(plan.ends, [65, 63, 59]);
        assert_eq!(plan.tiles.len(), 2);
        assert_eq!(plan.tiles[1], Tile { tokens: 60..66, lengths: vec![4, 2], width: 4 });
        assert_eq!(plan.tiles[1].cells(), [60, 61, 62, 63, 64, 65, 65, 65]);
        assert_eq!(plan.tokens[60..], [0, 1, 2, 3, 64, 65]);
    }
}
