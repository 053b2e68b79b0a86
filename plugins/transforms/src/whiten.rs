//! Whitens the advantages of a batch over its trained tokens.
//!
//! `A ← (A − mean) / √(var + ε)`, mean and sample variance over all trained tokens of the batch.
//!
//! verl `masked_whiten` (`var·n/(n − 1)`, ε = 1e-8), as used after GAE and REINFORCE++ (arXiv 2501.03262).
//! Edge cases: equal advantages, and a single trained token, become 0 (verl refuses the latter). Untrained stays
//! untrained.

use ascribe_core::credit::spread;
use ascribe_core::{Batch, Credit, CreditTransform, Metrics, Now, Seeds, plugin};
use ascribe_math::{Deviation, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::advantages_mut;

/// `[[transform]] whiten = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Whiten {}

/// Added to the variance, as in verl.
const EPSILON: f64 = 1e-8;

plugin! {
    Transform "whiten" {
        summary: "Centres and scales a batch's advantages over its trained tokens.",
        source: "verl masked_whiten; Hu et al. 2025, REINFORCE++, arXiv 2501.03262",
        when: "After an estimator without its own scale (return-to-go, GAE). After GRPO it changes little.",
        example: "",
    }
    impl CreditTransform for Whiten {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let tokens: Vec<f32> =
                batch.groups().zip(credit.iter()).flat_map(|(group, credit)| spread(group, credit).advantage).flatten().collect();
            let m = moments(&tokens);
            let scale = if m.squares == 0.0 { 0.0 } else { 1.0 / (m.variance(Deviation::Sample) + EPSILON).sqrt() };
            for a in credit.iter_mut().flat_map(advantages_mut) {
                *a = ((f64::from(*a) - m.mean) * scale) as f32;
            }
            Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{batch, turns};

    fn check(groups: &[&[&[(usize, f32)]]], want: &[f32]) {
        let (batch, mut credit) = batch(groups);
        Whiten {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        for (got, want) in turns(&credit).iter().zip(want) {
            assert!((got - want).abs() < 1e-5, "{credit:?}, not {want:?}");
        }
    }

    #[test]
    fn tokens_are_the_weights() {
        // tokens 1, 1, −2 (twice one, once the other): mean 0, sample variance 3
        check(&[&[&[(2, 1.0)], &[(1, -2.0)]]], &[0.57735, -1.1547]);
        // the same over two groups
        check(&[&[&[(2, 1.0)]], &[&[(1, -2.0)]]], &[0.57735, -1.1547]);
    }

    #[test]
    fn equal_advantages_become_zero() {
        check(&[&[&[(3, 0.1), (2, 0.1)]]], &[0.0, 0.0]);
        check(&[&[&[(1, 5.0)]]], &[0.0]);
    }

    #[test]
    fn untrained_stays_untrained() {
        let (batch, mut credit) = batch(&[&[&[(1, 1.0), (1, 3.0), (1, 9.0)]]]);
        credit[0].turns[2] = None;
        Whiten {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(credit[0].turns[2], None);
        assert!((credit[0].turns[0].unwrap() + std::f32::consts::FRAC_1_SQRT_2).abs() < 1e-5);
    }
}
