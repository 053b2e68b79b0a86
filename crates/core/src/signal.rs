//! Named columns of numbers, of which some may be absent. Absent is not zero and not NaN.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

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

/// A column of numbers. Where none is absent, a number takes four bytes. It is written as a list with `null` where there is none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Option<f32>>", into = "Vec<Option<f32>>")]
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

    /// Each number or gap, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<f32>> + Clone + '_ {
        (0..self.len()).map(|i| self.get(i))
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

    /// Appends `n` times the same number, or gaps.
    pub fn push_n(&mut self, value: Option<f32>, n: usize) {
        let len = self.len() + n;
        if n > 0 && (value.is_none() || !self.present.is_empty()) {
            self.present.resize(self.values.len(), true);
            self.present.resize(len, value.is_some());
        }
        self.values.resize(len, value.unwrap_or(0.0));
    }

    /// Puts a number or a gap into row `i`.
    pub fn set(&mut self, i: usize, value: impl Into<Option<f32>>) {
        let value = value.into();
        if value.is_none() && self.present.is_empty() {
            self.present = vec![true; self.len()];
        }
        if !self.present.is_empty() {
            self.present[i] = value.is_some();
        }
        self.values[i] = value.unwrap_or(0.0);
    }

    /// Changes each number of `range` that is present.
    pub fn update(&mut self, range: std::ops::Range<usize>, mut change: impl FnMut(&mut f32)) {
        if self.present.is_empty() {
            self.values[range].iter_mut().for_each(change);
        } else {
            let numbers = self.values[range.clone()].iter_mut().zip(&self.present[range]);
            numbers.filter(|(_, present)| **present).for_each(|(value, _)| change(value));
        }
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.values.clear();
        self.present.clear();
    }

    /// The numbers that are present, in order; not copied where none is absent.
    pub fn present(&self) -> Cow<'_, [f32]> {
        self.all().map_or_else(|| self.iter_present().collect(), Cow::Borrowed)
    }

    /// The numbers that are present, in order.
    pub fn iter_present(&self) -> impl Iterator<Item = f32> + '_ {
        self.iter().flatten()
    }
}
impl Extend<Option<f32>> for Column {
    fn extend<I: IntoIterator<Item = Option<f32>>>(&mut self, iter: I) {
        iter.into_iter().for_each(|x| self.push(x));
    }
}
impl FromIterator<Option<f32>> for Column {
    fn from_iter<I: IntoIterator<Item = Option<f32>>>(iter: I) -> Self {
        let mut column = Self::default();
        column.extend(iter);
        column
    }
}
impl From<Vec<Option<f32>>> for Column {
    fn from(rows: Vec<Option<f32>>) -> Self {
        rows.into_iter().collect()
    }
}
impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
impl From<Column> for Vec<Option<f32>> {
    fn from(column: Column) -> Self {
        column.iter().collect()
    }
}
impl<T: AsRef<[Option<f32>]>> PartialEq<T> for Column {
    fn eq(&self, other: &T) -> bool {
        self.iter().eq(other.as_ref().iter().copied())
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

    #[test]
    fn rows_change_in_place() {
        let mut column = Column::full(vec![1.0, 2.0]);
        column.push_n(Some(3.0), 2);
        assert_eq!(column.all(), Some(&[1.0, 2.0, 3.0, 3.0][..]));
        column.push_n(None, 0);
        column.push_n(None, 2);
        column.push_n(Some(4.0), 1);
        assert_eq!(column, [Some(1.0), Some(2.0), Some(3.0), Some(3.0), None, None, Some(4.0)]);
        column.set(4, 5.0);
        column.set(0, None);
        column.update(0..5, |x| *x *= 2.0);
        assert_eq!(column, [None, Some(4.0), Some(6.0), Some(6.0), Some(10.0), None, Some(4.0)]);
        assert_eq!(*column.present(), [4.0, 6.0, 6.0, 10.0, 4.0]);
        // What is equal does not depend on how it came about.
        column.set(0, 0.0);
        column.set(5, 0.0);
        assert_eq!(column, Column::full(vec![0.0, 4.0, 6.0, 6.0, 10.0, 0.0, 4.0]));
        assert_ne!(column, [Some(0.0)]);
    }
}
