//! A clipped surrogate with one importance ratio per sequence, or per turn.
//!
//! `s = exp(mean_k (log π_k − log π_old,k))` over the unit's trained tokens,
//! `L = Σ w · max(−sA, −clip(s, 1 − low, 1 + high)·A)`, aggregated; with dual clip, for `A < 0`, `min(that, −c·A)`.
//!
//! Zheng et al. 2025, GSPO, arXiv 2507.18071, eqs. 5 to 7 (a sequence; clip 3e-4 and 4e-4; mean over tokens, then over
//! sequences). A ratio per turn: AT2PO (`ATPO`, clip 3e-3 and 4e-3) and StepPO, arXiv 2604.18401 (dual clip 10). verl
//! `compute_policy_loss_gspo` gives the same numbers where a sequence has one advantage, but clamps `log s` at 10, this
//! at ±20.
//! Reductions: with one token per unit it is PPO-clip; at `π = π_old` with one advantage per unit it is REINFORCE.
//! Edge cases: advantages that differ within a unit share its ratio, so that each token's coefficient is their mean.
//! GSPO-token (eq. 13) keeps them apart by stopping the gradient, which is the derivative of no loss; give credit per
//! turn to `scope = "turn"` instead.

use ascribe_core::objective::{Aggregation, Columns, Sums};
use ascribe_core::range::Unit;
use ascribe_core::{Need, Now, Objective, Rows, Totals, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ratio::{AboveOne, Clip, Surrogate, Tally, Token, ratio, surrogate, tokens};

/// `[objective.gspo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gspo {
    /// What has one ratio.
    #[serde(default)]
    pub scope: RatioScope,
    /// Clip range below 1, in 0..=1. GSPO: 3e-4; AT2PO: 3e-3.
    #[serde(default = "paper_low")]
    pub clip_low: Unit,
    /// Clip range above 1, in 0..=1. GSPO: 4e-4; AT2PO: 4e-3.
    #[serde(default = "paper_high")]
    pub clip_high: Unit,
    /// Bound `c` on the ratio where the advantage is negative, above 1; left out, there is none. StepPO: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dual_clip: Option<AboveOne>,
    /// How token losses become one number. GSPO: `seq-mean-token-mean`.
    #[serde(default = "paper_aggregation")]
    pub aggregation: Aggregation,
}

/// What has one importance ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RatioScope {
    /// A row: all its trained tokens.
    #[default]
    Sequence,
    /// A turn's trained tokens.
    Turn,
}

fn paper_low() -> Unit {
    Unit::try_from(3e-4).expect("in range")
}
fn paper_high() -> Unit {
    Unit::try_from(4e-4).expect("in range")
}
fn paper_aggregation() -> Aggregation {
    Aggregation::SeqMeanTokenMean
}

/// The length-normalised importance ratio `exp(mean_k (log π_k − log π_old,k))` of a sequence or turn.
///
/// * `logprob`, `old`: `[tokens]`, at least one
///
/// The mean is clamped to ±20. Zheng et al. 2025, arXiv 2507.18071, eq. 7.
pub fn sequence_ratio(logprob: &[f32], old: &[f32]) -> f64 {
    assert_eq!(logprob.len(), old.len(), "one old log-probability per token");
    let sum: f64 = logprob.iter().zip(old).map(|(new, old)| f64::from(*new) - f64::from(*old)).sum();
    ratio(sum / logprob.len() as f64).value
}

impl Gspo {
    /// The trained tokens of each unit.
    fn units(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals) -> Vec<Vec<Token>> {
        let tokens = tokens(rows, out, totals, self.aggregation);
        rows.iter()
            .flat_map(|row| match self.scope {
                RatioScope::Sequence => vec![row.packed.clone()],
                RatioScope::Turn => row.turns().collect(),
            })
            .map(|unit| tokens[unit].to_vec())
            .collect()
    }

    /// What becomes of the tokens of a unit, which share the ratio.
    fn unit(&self, unit: &[Token]) -> Vec<Surrogate> {
        let clip = Clip { low: *self.clip_low, high: *self.clip_high, dual: self.dual_clip };
        let mean = unit.iter().map(Token::difference).sum::<f64>() / unit.len() as f64;
        unit.iter().map(|t| surrogate(mean, t.advantage, clip)).collect()
    }
}

plugin! {
    Objective "gspo" {
        summary: "A clipped surrogate with one length-normalised ratio per sequence, or per turn.",
        source: "Zheng et al. 2025, GSPO, arXiv 2507.18071; per turn: StepPO, arXiv 2604.18401",
        when: "Where credit is per trajectory (`sequence`) or per turn (`turn`): token ratios then add noise and no information.",
        example: "",
        module: "gspo.rs",
    }
    impl Objective for Gspo {
        fn needs(&self) -> Vec<Need> {
            vec![Need::BehaviorLogprob]
        }

        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now) -> f64 {
            let units = self.units(rows, out, totals);
            units.iter().flat_map(|unit| unit.iter().zip(self.unit(unit))).map(|(t, s)| t.scale * s.loss).sum()
        }

        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _now: &Now, grad: &mut Columns) -> Sums {
            let mut tally = Tally::default();
            for unit in self.units(rows, out, totals) {
                let surrogates = self.unit(&unit);
                let slope: f64 = unit.iter().zip(&surrogates).map(|(t, s)| t.scale * s.slope).sum();
                for (t, s) in unit.iter().zip(&surrogates) {
                    grad.logprob_mut()[t.at] += (slope / unit.len() as f64) as f32;
                    tally.add(t.weight, *s, t.difference());
                }
            }
            tally.sums()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{AGGREGATIONS, check_gradient, check_loss, gradient};
    use proptest::prelude::*;

    fn gspo(scope: RatioScope, clip: f64) -> Gspo {
        let clip = Unit::try_from(clip).unwrap();
        Gspo { scope, clip_low: clip, clip_high: clip, dual_clip: None, aggregation: paper_aggregation() }
    }

    #[test]
    fn coefficients_are_the_gradient_of_the_loss() {
        for aggregation in AGGREGATIONS {
            for scope in [RatioScope::Sequence, RatioScope::Turn] {
                check_gradient(&Gspo { aggregation, ..gspo(scope, 0.3) });
                let dual_clip = Some(AboveOne::try_from(1.2).unwrap());
                check_gradient(&Gspo { aggregation, dual_clip, ..gspo(scope, 0.9) });
            }
        }
    }

    #[test]
    fn a_ratio_is_the_geometric_mean() {
        // √(4 · 1) and one of ½
        let two = 2f32.ln();
        assert!((sequence_ratio(&[2.0 * two, 0.0], &[0.0, 0.0]) - 2.0).abs() < 1e-6);
        assert!((sequence_ratio(&[-two], &[0.0]) - 0.5).abs() < 1e-6);
        assert!(sequence_ratio(&[f32::NEG_INFINITY], &[0.0]).is_finite());
    }

    #[test]
    fn hand_worked() {
        let two = 2f32.ln();
        // turns of ratios 4 and 1, the row's 2; A = 1, clipped at 1.5, or for the second turn not at all
        let row: &[(f32, f32, f32)] = &[(2.0 * two, 0.0, 1.0), (0.0, 0.0, 1.0)];
        check_loss(&gspo(RatioScope::Sequence, 0.5), &[row], -1.5);
        check_loss(&gspo(RatioScope::Turn, 0.5), &[row], -(1.5 + 1.0) / 2.0);
        // A = −1 is not clipped above
        let row: &[(f32, f32, f32)] = &[(2.0 * two, 0.0, -1.0), (0.0, 0.0, -1.0)];
        check_loss(&gspo(RatioScope::Sequence, 0.5), &[row], 2.0);
    }

    #[test]
    fn an_extreme_ratio_stays_finite() {
        let rows: &[&[(f32, f32, f32)]] = &[&[(0.0, -500.0, -1.0), (-500.0, 0.0, 1.0)], &[(0.0, -500.0, -1.0)]];
        assert!(gradient(&gspo(RatioScope::Sequence, 0.5), rows).iter().all(|g| g.is_finite()));
    }

    proptest! {
        #[test]
        fn with_one_token_per_row_it_is_ppo(tokens in prop::collection::vec((-3f32..0.0, -3f32..0.0, -3f32..3.0), 1..10)) {
            let rows: Vec<Vec<_>> = tokens.iter().map(|t| vec![*t]).collect();
            let rows: Vec<&[_]> = rows.iter().map(Vec::as_slice).collect();
            let clip = Unit::try_from(0.2).unwrap();
            let ppo = crate::PpoClip { clip_low: clip, clip_high: clip, dual_clip: None, aggregation: paper_aggregation() };
            prop_assert_eq!(gradient(&gspo(RatioScope::Sequence, 0.2), &rows), gradient(&ppo, &rows));
        }

        #[test]
        fn on_policy_it_is_reinforce_with_the_units_mean(l in prop::collection::vec(-5f32..0.0, 1..20), a in -3f32..3.0) {
            let row: Vec<_> = l.iter().map(|l| (*l, *l, a)).collect();
            let reinforce = gradient(&crate::Reinforce { aggregation: paper_aggregation() }, &[&row]);
            for (x, y) in gradient(&gspo(RatioScope::Turn, 0.2), &[&row]).iter().zip(reinforce) {
                prop_assert!((x - y).abs() < 1e-6);
            }
        }
    }
}
