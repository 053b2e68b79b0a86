//! Named columns of numbers, of which some may be absent. Absent is not zero and not NaN.

/// What a column has one number for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// States: per group its start, then the state after each of its turns (`[turns + 1]`; siblings share).
    State,
    /// Turns.
    Turn,
    /// Sampled tokens.
    Token,
}

/// A column of numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    values: Vec<f32>,
    /// Empty where all are present.
    present: Vec<bool>,
}

impl Column {
    /// A column without gaps.
    pub fn full(values: Vec<f32>) -> Self {
        Self { values, present: Vec::new() }
    }

    /// `n` absent numbers.
    pub fn absent(n: usize) -> Self {
        Self { values: vec![0.0; n], present: vec![false; n] }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The number in row `i`, if it was computed.
    pub fn get(&self, i: usize) -> Option<f32> {
        (self.present.is_empty() || self.present[i]).then(|| self.values[i])
    }

    /// All numbers, if none is absent.
    pub fn all(&self) -> Option<&[f32]> {
        self.present.iter().all(|p| *p).then_some(&self.values[..])
    }

    /// The numbers in `range`, if none of them is absent.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Option<&[f32]> {
        let gaps = !self.present.is_empty() && self.present[range.clone()].contains(&false);
        (!gaps).then(|| &self.values[range])
    }

    /// Appends a number or a gap.
    pub fn push(&mut self, value: Option<f32>) {
        if value.is_none() && self.present.is_empty() {
            self.present = vec![true; self.values.len()];
        }
        if value.is_none() || !self.present.is_empty() {
            self.present.push(value.is_some());
        }
        self.values.push(value.unwrap_or(0.0));
    }

    /// Puts a number into row `i`.
    pub fn set(&mut self, i: usize, value: f32) {
        self.values[i] = value;
        if !self.present.is_empty() {
            self.present[i] = true;
        }
    }

    /// The numbers that are present, in order.
    pub fn iter_present(&self) -> impl Iterator<Item = f32> + '_ {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}
impl FromIterator<Option<f32>> for Column {
    fn from_iter<I: IntoIterator<Item = Option<f32>>>(iter: I) -> Self {
        let mut column = Self::default();
        iter.into_iter().for_each(|x| column.push(x));
        column
    }
}

/// A named column of a batch: who computed it, for what.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// What it has a number for.
    pub scope: Scope,
    /// The critic or environment that computed it.
    pub provider: String,
    /// The numbers, over the whole batch.
    pub column: Column,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_is_neither_zero_nor_nan() {
        let column: Column = [Some(0.0), None, Some(2.0)].into_iter().collect();
        assert_eq!((column.get(0), column.get(1), column.get(2)), (Some(0.0), None, Some(2.0)));
        assert_eq!(column.all(), None);
        assert_eq!(column.slice(0..1), Some(&[0.0][..]));
        assert_eq!(column.slice(0..2), None);
        assert_eq!(column.iter_present().collect::<Vec<_>>(), [0.0, 2.0]);
    }
}
