//! Objectives: rows to coefficients on differentiable columns. Tensor-free: the policy runs forward, hands over plain
//! numbers, and back-propagates `Σ coefficient · column`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::need::Need;
use crate::now::Now;
use crate::registry::slot_schema;
use crate::rows::{Rows, Totals};

/// A column that a policy can differentiate, `[trained tokens]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiffColumn {
    /// Log-probability of the token, tempered, on its allowed support.
    Logprob,
    /// Entropy in nats of the distribution at the token.
    Entropy,
    /// Exact KL divergence from the policy node of that name.
    Kl(String),
    /// A scalar head, read at the position that predicts the token.
    Head(String),
}
impl fmt::Display for DiffColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiffColumn::Logprob => f.write_str("log-probabilities"),
            DiffColumn::Entropy => f.write_str("entropies"),
            DiffColumn::Kl(node) => write!(f, "the exact KL from `{node}`"),
            DiffColumn::Head(name) => write!(f, "a head `{name}`"),
        }
    }
}

/// Named numbers per trained token of a micro-batch: what the forward pass gave, or `∂L/∂column`. Owned, so that
/// objectives compose by adding into the same columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns(Vec<(DiffColumn, Vec<f32>)>);

impl Columns {
    /// Columns with their numbers.
    pub fn new(columns: impl IntoIterator<Item = (DiffColumn, Vec<f32>)>) -> Self {
        Self(columns.into_iter().collect())
    }
    /// The same columns, all 0.
    pub fn zeros_like(&self) -> Self {
        Self(self.0.iter().map(|(name, x)| (name.clone(), vec![0.0; x.len()])).collect())
    }
    /// The column of that name, if it is there.
    pub fn find(&self, name: &DiffColumn) -> Option<&[f32]> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, x)| &x[..])
    }
    /// A column that the objective declared.
    ///
    /// # Panics
    /// If it did not.
    pub fn get(&self, name: &DiffColumn) -> &[f32] {
        self.find(name).expect("a column that columns() declares is there")
    }
    /// A column that the objective declared, to add to.
    ///
    /// # Panics
    /// If it did not.
    pub fn get_mut(&mut self, name: &DiffColumn) -> &mut [f32] {
        &mut self.0.iter_mut().find(|(n, _)| n == name).expect("a column that columns() declares is there").1
    }
    /// Log-probabilities.
    pub fn logprob(&self) -> &[f32] {
        self.get(&DiffColumn::Logprob)
    }
    /// Coefficients on log-probabilities.
    pub fn logprob_mut(&mut self) -> &mut [f32] {
        self.get_mut(&DiffColumn::Logprob)
    }
    /// All columns, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&DiffColumn, &[f32])> {
        self.0.iter().map(|(name, x)| (name, &x[..]))
    }
    /// `self += scale · other`, column by column.
    ///
    /// # Panics
    /// If the columns differ.
    pub fn add_scaled(&mut self, other: &Columns, scale: f64) {
        for ((name, into), (other_name, from)) in self.0.iter_mut().zip(&other.0) {
            assert_eq!(name, other_name, "columns are added to their like");
            into.iter_mut().zip(from).for_each(|(a, b)| *a += (scale * f64::from(*b)) as f32);
        }
    }
}

/// Additive statistics: sums with counts, never means. Merged in micro-batch order, in f64.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums(pub Vec<Sum>);

/// One statistic: its mean is `sum / count`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// Its name, which carries the head's where there can be several.
    pub name: String,
    /// Sum over what was counted.
    pub sum: f64,
    /// How many were counted.
    pub count: f64,
}

impl Sums {
    /// Adds to a statistic.
    pub fn add(&mut self, name: impl Into<String>, sum: f64, count: f64) {
        let name = name.into();
        match self.0.iter_mut().find(|s| s.name == name) {
            Some(s) => {
                s.sum += sum;
                s.count += count;
            }
            None => self.0.push(Sum { name, sum, count }),
        }
    }
    /// Adds the statistics of another micro-batch.
    pub fn merge(&mut self, other: Sums) {
        other.0.into_iter().for_each(|s| self.add(s.name, s.sum, s.count));
    }
}

/// How far an objective looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Each row (or bundle) alone decides its coefficients, given the totals: one forward pass.
    #[default]
    Row,
    /// It needs all rows of the minibatch at once: the policy runs a scoring pass first.
    Minibatch,
}

/// How per-token losses become one number. A sequence is a row. Names and meaning are verl's (`agg_loss`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// Mean over all trained tokens of the minibatch.
    #[default]
    TokenMean,
    /// Sum over a row's tokens, mean over rows.
    SeqMeanTokenSum,
    /// Mean over a row's tokens, mean over rows.
    SeqMeanTokenMean,
    /// Sum over a row's tokens divided by the horizon, mean over rows (Dr. GRPO, arXiv 2503.20783).
    SeqMeanTokenSumNorm,
}

impl Aggregation {
    /// The factor on each token's loss in a row of `row_tokens` trained tokens, so that the factors times the losses
    /// sum to the aggregated loss. 0 for an empty minibatch.
    pub fn factor(self, row_tokens: usize, totals: &Totals) -> f64 {
        let per = |n: u64| if n == 0 { 0.0 } else { 1.0 / n as f64 };
        match self {
            Aggregation::TokenMean => per(totals.tokens),
            Aggregation::SeqMeanTokenSum => per(totals.rows),
            Aggregation::SeqMeanTokenMean => per(totals.rows) * per(row_tokens as u64),
            Aggregation::SeqMeanTokenSumNorm => per(totals.rows) * per(totals.horizon),
        }
    }
}

/// Rows to coefficients. Pure; called from several workers at once.
///
/// Coefficients are `∂L/∂column` of a loss `L` that is *minimised*, and are *added*, so that objectives compose by
/// being called in turn.
#[typetag::serde]
pub trait Objective: fmt::Debug + Send + Sync {
    /// Columns it differentiates.
    fn columns(&self) -> Vec<DiffColumn> {
        vec![DiffColumn::Logprob]
    }

    /// How far it looks.
    fn reach(&self) -> Reach {
        Reach::Row
    }

    /// What else it needs. One that forms importance ratios declares [`Need::BehaviorLogprob`].
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// The loss of these rows within their minibatch: the sum over tokens of factor times token loss. What
    /// [`Objective::gradients`] gives is its derivative; a test holds every objective to it.
    fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, now: &Now) -> f64;

    /// Adds `∂L/∂column` for whole rows, and returns statistics. Cannot fail: what is not finite is caught by the
    /// caller, by row.
    fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, now: &Now, grad: &mut Columns) -> Sums;
}
slot_schema!(Objective => "objective");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregation_gives_the_four_numbers_whatever_the_split() {
        // rows of token losses [4] and [1, 1, 1]: TRAPS of this field count 1.75, 3.5, 2.5
        let rows: [&[f64]; 2] = [&[4.0], &[1.0, 1.0, 1.0]];
        let totals = Totals { rows: 2, tokens: 4, turns: 2, horizon: 3, bundles: 0 };
        let loss = |a: Aggregation| rows.iter().map(|r| r.iter().sum::<f64>() * a.factor(r.len(), &totals)).sum::<f64>();
        assert_eq!(loss(Aggregation::TokenMean), 1.75);
        assert_eq!(loss(Aggregation::SeqMeanTokenMean), 2.5);
        assert_eq!(loss(Aggregation::SeqMeanTokenSum), 3.5);
        assert!((loss(Aggregation::SeqMeanTokenSumNorm) - 3.5 / 3.0).abs() < 1e-12);
        assert_eq!(Aggregation::TokenMean.factor(0, &Totals::default()), 0.0);
    }
}
