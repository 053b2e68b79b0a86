//! Squared error of a head, with PPO's value clip on request.
//!
//! `L = Σ w · ½ (v − y)²`, aggregated over tokens, or the mean over turns; with a clip around the old value `v₀`,
//! `½ max((v − y)², (clip(v, v₀ − c, v₀ + c) − y)²)`.
//!
//! Value clipping: Schulman et al. 2017, `baselines` PPO2; numbers as verl `compute_value_loss`, which has the ½ too.
//! Reductions: a clip wider than every move is none.
//! Edge cases: where a target is missing nothing is read, but the denominator counts the token: leave it untrained
//! instead. Where both squares are equal the unclipped one is differentiated. Advantages are not read.

use ascribe_core::objective::{Aggregation, Columns, DiffColumn, Sums};
use ascribe_core::range::Positive;
use ascribe_core::{Need, Now, Objective, Rows, Scope, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::head::{Over, Reading, readings};

/// `[objective.mse]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mse {
    /// Name of the head, and of the signal whose targets it learns.
    pub head: String,
    /// Where the head is read.
    #[serde(default)]
    pub over: Over,
    /// Bound on the head's move from its old value; left out, there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<ValueClip>,
    /// How token losses become one number; over turns, it is their mean.
    #[serde(default)]
    pub aggregation: Aggregation,
}

/// A bound on a head's move.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueClip {
    /// Largest move, above 0, in the head's unit. verl: 0.5.
    pub range: Positive,
    /// Signal that holds the head's old value.
    pub signal: String,
}

/// What became of one reading.
struct Error {
    loss: f64,
    /// `∂loss/∂v`.
    slope: f64,
    clipped: bool,
}

impl Mse {
    fn error(&self, value: f64, target: f64, old: Option<f64>) -> Error {
        let free = value - target;
        let plain = Error { loss: 0.5 * free * free, slope: free, clipped: false };
        let (Some(clip), Some(old)) = (&self.clip, old) else { return plain };
        let bound = value.clamp(old - *clip.range, old + *clip.range) - target;
        let loss = 0.5 * bound * bound;
        if loss > plain.loss { Error { loss, slope: 0.0, clipped: true } } else { plain }
    }
    /// Every reading with what it is off by.
    fn errors(&self, rows: &Rows<'_>, value: &[f32], totals: &Totals) -> Vec<(Reading, Error)> {
        let old = self.clip.as_ref().map(|clip| {
            let column = rows.set().columns.get(&format!("signal/{}", clip.signal));
            column.expect("a declared signal is present")
        });
        readings(rows, &self.head, self.over, self.aggregation, totals)
            .into_iter()
            .map(|r| {
                let old = old.map(|column| f64::from(column.get(r.token).expect("it has a number where a target is")));
                (r, self.error(f64::from(value[r.at]), r.target, old))
            })
            .collect()
    }
    fn column(&self) -> DiffColumn {
        DiffColumn::Head(self.head.clone())
    }
}

plugin! {
    Objective "mse" {
        summary: "Squared error of a head against its targets; value clipping on request.",
        source: "Schulman et al. 2017, arXiv 1707.06347; verl compute_value_loss",
        when: "For a value head. `over = \"turns\"` where values are of states between turns.",
        example: "head = \"value\"",
        module: "mse.rs",
    }
    impl Objective for Mse {
        fn columns(&self) -> Vec<DiffColumn> {
            vec![self.column()]
        }

        fn needs(&self) -> Vec<Need> {
            let scope = match self.over {
                Over::Tokens => Scope::Token,
                Over::Turns => Scope::State,
            };
            self.clip.iter().map(|clip| Need::Signal(clip.signal.clone(), scope)).collect()
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let errors = self.errors(rows, out.get(&self.column()), totals);
            errors.iter().map(|(r, error)| r.scale * error.loss).sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let value = out.get(&self.column());
            let grad = grad.get_mut(&self.column());
            let (mut loss, mut clipped, mut predicted, mut n) = (0.0, 0.0, 0.0, 0.0);
            for (r, error) in self.errors(rows, value, totals) {
                grad[r.at] += (r.scale * error.slope) as f32;
                loss += r.weight * error.loss;
                clipped += f64::from(u8::from(error.clipped));
                predicted += f64::from(value[r.at]);
                n += 1.0;
            }
            let mut sums = Sums::default();
            sums.add(format!("critic/{}/vf_loss", self.head), loss, n);
            sums.add(format!("critic/{}/vf_clipfrac", self.head), clipped, n);
            sums.add(format!("critic/{}/vpred_mean", self.head), predicted, n);
            sums
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, Case, check_gradient};

    fn mse(over: Over, clip: Option<f64>) -> Mse {
        let clip = clip.map(|range| ValueClip { range: Positive::try_from(range).unwrap(), signal: "value".into() });
        Mse { head: "value".into(), over, clip, aggregation: Aggregation::TokenMean }
    }

    /// Two rows, of tokens 2 + 1 and 1, so three turns.
    fn case(value: [f32; 4], target: [Option<f32>; 4]) -> Case {
        let token = (0.0, 0.0, 0.0);
        Case::new(&[&[token; 3], &[token]]).out(DiffColumn::Head("value".into()), value.into()).column("target/value", target)
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            for over in [Over::Tokens, Over::Turns] {
                for clip in [None, Some(0.3)] {
                    check_gradient(&Mse { aggregation, ..mse(over, clip) });
                }
            }
        }
    }

    #[test]
    fn hand_worked() {
        // errors 1, 2, 3, 4: half the mean of squares over tokens; over turns tokens 0, 2, 3
        let case = case([1.0, 2.0, 3.0, 4.0], [Some(0.0); 4]);
        case.check_loss(&mse(Over::Tokens, None), 0.5 * 30.0 / 4.0);
        case.check_loss(&mse(Over::Turns, None), 0.5 * 26.0 / 3.0);
        assert_eq!(case.statistic(&mse(Over::Turns, None), "critic/value/vpred_mean"), 8.0 / 3.0);
    }

    #[test]
    fn a_move_beyond_the_clip_has_no_slope() {
        // from 0 to 2 with clip 0.5: towards 3 the clipped error 2.5 is the larger, towards −1 it is not
        let case = case([2.0; 4], [Some(3.0), Some(-1.0), None, None]).column("signal/value", [Some(0.0); 4]);
        case.check_loss(&mse(Over::Tokens, Some(0.5)), 0.5 * (2.5 * 2.5 + 9.0) / 4.0);
        let (grad, _) = case.gradients(&mse(Over::Tokens, Some(0.5)));
        assert_eq!(grad.get(&DiffColumn::Head("value".into())), [0.0, 3.0 / 4.0, 0.0, 0.0]);
        assert_eq!(case.statistic(&mse(Over::Tokens, Some(0.5)), "critic/value/vf_clipfrac"), 0.5);
    }
}
