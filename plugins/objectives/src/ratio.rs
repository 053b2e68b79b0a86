//! The importance ratio and the clipped surrogate, which several objectives share.

use ascribe_core::objective::{Aggregation, Columns, Sums};
use ascribe_core::{Rows, Totals};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest `|log π − log π_old|` that is told apart, as in verl: beyond e^20 a ratio says nothing, and overflows.
const MAX_DIFFERENCE: f64 = 20.0;

/// An importance ratio `exp(x)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    /// `exp(x)`, `x` clamped to ±20.
    pub value: f64,
    /// Its derivative in `x`: 0 where `x` was clamped.
    pub slope: f64,
}

/// The ratio of a difference of log-probabilities.
pub(crate) fn ratio(difference: f64) -> Ratio {
    let bounded = difference.clamp(-MAX_DIFFERENCE, MAX_DIFFERENCE);
    let value = bounded.exp();
    Ratio { value, slope: if bounded == difference { value } else { 0.0 } }
}

/// A finite number above 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(extend("exclusiveMinimum" = 1))]
pub struct AboveOne(f64);
impl TryFrom<f64> for AboveOne {
    type Error = String;
    fn try_from(x: f64) -> Result<Self, String> {
        if x > 1.0 && x <= f64::from(f32::MAX) {
            Ok(Self(x))
        } else {
            Err(format!("must be above 1 and at most 3.4e38, got {x:?}"))
        }
    }
}
impl From<AboveOne> for f64 {
    fn from(x: AboveOne) -> f64 {
        x.0
    }
}

/// Where the surrogate is clipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clip {
    /// Range below 1.
    pub low: f64,
    /// Range above 1.
    pub high: f64,
    /// Bound on the ratio where the advantage is negative.
    pub dual: Option<AboveOne>,
}

/// What became of one ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surrogate {
    /// `max(−ρA, −clip(ρ)·A)`, with dual clip `min(that, −c·A)` for `A < 0`.
    pub loss: f64,
    /// `∂loss/∂x`, where `ρ = exp(x)`.
    pub slope: f64,
    /// Whether the clipped term is the larger.
    pub clipped: bool,
    /// Whether the dual clip bounds the loss.
    pub dual_clipped: bool,
}

/// PPO's clipped surrogate of a difference of log-probabilities.
pub(crate) fn surrogate(difference: f64, advantage: f64, clip: Clip) -> Surrogate {
    let ratio = ratio(difference);
    let free = -advantage * ratio.value;
    let bound = -advantage * ratio.value.clamp(1.0 - clip.low, 1.0 + clip.high);
    let clipped = bound > free;
    let slope = if clipped { 0.0 } else { -advantage * ratio.slope };
    let surrogate = Surrogate { loss: free.max(bound), slope, clipped, dual_clipped: false };
    match clip.dual.filter(|_| advantage < 0.0).map(|c| -advantage * c.0) {
        Some(ceiling) if ceiling < surrogate.loss => Surrogate { loss: ceiling, slope: 0.0, dual_clipped: true, ..surrogate },
        _ => surrogate,
    }
}

/// One trained token as objectives on the policy read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// Its place in the packed columns.
    pub at: usize,
    /// Loss weight.
    pub weight: f64,
    /// Loss weight times the aggregation's factor: what its loss is multiplied by.
    pub scale: f64,
    /// Advantage.
    pub advantage: f64,
    /// Current log-probability.
    pub logprob: f64,
    /// Log-probability it is compared with.
    pub old: f64,
}
impl Token {
    /// `log π − log π_old`.
    pub fn difference(&self) -> f64 {
        self.logprob - self.old
    }
}

/// The trained tokens of some rows, in packed order, against the old log-probabilities.
pub(crate) fn tokens(rows: &Rows<'_>, out: &Columns, totals: &Totals, aggregation: Aggregation) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(rows.n_trained());
    for row in rows.iter() {
        let factor = aggregation.factor(row.packed.len(), totals);
        let (old, advantage, weight) = (row.old_logprob(), row.advantage(), row.weight());
        tokens.extend(row.packed.clone().enumerate().map(|(k, at)| Token {
            at,
            weight: f64::from(weight[k]),
            scale: factor * f64::from(weight[k]),
            advantage: f64::from(advantage[k]),
            logprob: f64::from(out.logprob()[at]),
            old: f64::from(old[k]),
        }));
    }
    tokens
}

/// What clipped surrogates say of a batch, by verl's names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    loss: f64,
    clipped: f64,
    dual_clipped: f64,
    kl: f64,
    n: f64,
}
impl Tally {
    /// Counts a token.
    ///
    /// * `weight`: its loss weight
    /// * `difference`: `log π − log π_old`
    pub fn add(&mut self, weight: f64, surrogate: Surrogate, difference: f64) {
        self.loss += weight * surrogate.loss;
        self.clipped += f64::from(u8::from(surrogate.clipped));
        self.dual_clipped += f64::from(u8::from(surrogate.dual_clipped));
        self.kl -= difference;
        self.n += 1.0;
    }

    /// The statistics.
    pub fn sums(self) -> Sums {
        let mut sums = Sums::default();
        sums.add("actor/pg_loss", self.loss, self.n);
        sums.add("actor/pg_clipfrac", self.clipped, self.n);
        sums.add("actor/pg_clipfrac_lower", self.dual_clipped, self.n);
        sums.add("actor/ppo_kl", self.kl, self.n);
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: Clip = Clip { low: 0.2, high: 0.28, dual: Some(AboveOne(3.0)) };

    #[test]
    fn a_ratio_too_large_to_mean_anything_stands_still() {
        assert_eq!(ratio(0.0).slope, 1.0);
        for difference in [-1e9, f64::NEG_INFINITY, 1e9, f64::INFINITY] {
            let r = ratio(difference);
            assert!(r.value.is_finite() && r.slope == 0.0, "{r:?}");
        }
    }

    #[test]
    fn the_surrogate_is_the_worse_of_two() {
        let of = |ratio: f64, advantage| surrogate(ratio.ln(), advantage, CLIP);
        assert!(of(2.0, 1.0).clipped && (of(2.0, 1.0).loss + 1.28).abs() < 1e-12 && of(2.0, 1.0).slope == 0.0);
        assert!(!of(0.5, 1.0).clipped && (of(0.5, 1.0).slope + 0.5).abs() < 1e-12);
        assert!(of(4.0, -1.0).dual_clipped && of(4.0, -1.0).loss == 3.0 && of(4.0, -1.0).slope == 0.0);
        assert!(!of(2.0, -1.0).dual_clipped && (of(2.0, -1.0).slope - 2.0).abs() < 1e-12);
    }

    #[test]
    fn above_one_is_above_one() {
        assert!(AboveOne::try_from(1.0).is_err() && AboveOne::try_from(f64::INFINITY).is_err());
        assert_eq!(f64::from(AboveOne::try_from(1.5).unwrap()), 1.5);
    }
}
