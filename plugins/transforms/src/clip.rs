//! Clips advantages to a band.
//!
//! `A ← min(max(A, min), max)`
//!
//! RAGEN (Wang et al. 2025, arXiv 2504.20073) clips group-normalised rewards to −1..=3 (`asym_clip`). Reductions: a
//! band that holds every advantage changes nothing.
//! Edge cases: a batch without trained tokens clips a share of 0. Untrained stays untrained.

use ascribe_core::range::Finite;
use ascribe_core::{Batch, Credit, CreditTransform, Metrics, Now, Seeds, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::update_advantages;

/// `[[transform]] clip = { min = -1.0, max = 3.0 }`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, try_from = "Band")]
pub struct Clip {
    min: f64,
    max: f64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Band {
    /// Smallest advantage, any finite number.
    min: Finite,
    /// Largest advantage, not below `min`.
    max: Finite,
}
impl TryFrom<Band> for Clip {
    type Error = String;
    fn try_from(band: Band) -> Result<Self, String> {
        let (min, max) = (*band.min, *band.max);
        if min <= max { Ok(Self { min, max }) } else { Err(format!("`min` is {min} and must not be above `max`, {max}")) }
    }
}

plugin! {
    Transform "clip" {
        summary: "Clips advantages to a band.",
        source: "RAGEN, Wang et al. 2025, arXiv 2504.20073, asym_clip",
        when: "Where single outcomes of rare size pull the update; it biases what it clips.",
        example: "min = -1.0\nmax = 3.0",
        module: "clip.rs",
    }
    impl CreditTransform for Clip {
        fn apply(&self, _batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let (mut clipped, mut n) = (0.0, 0.0);
            let mut bound = |a: &mut f32| {
                let bounded = f64::from(*a).clamp(self.min, self.max) as f32;
                clipped += f64::from(u8::from(bounded != *a));
                n += 1.0;
                *a = bounded;
            };
            credit.iter_mut().for_each(|credit| update_advantages(credit, &mut bound));
            let mut metrics = Metrics::default();
            metrics.set("credit/clipped_rate", if n == 0.0 { 0.0 } else { clipped / n });
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::batch;

    #[test]
    fn what_leaves_the_band_is_clipped_and_counted() {
        let (batch, mut credit) = batch(&[&[&[(1, -2.0), (1, 0.5), (1, 9.0)], &[(1, 4.0)]]]);
        credit[0].turns[2] = None;
        let metrics = Clip { min: -1.0, max: 3.0 }.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(credit[0].turns, [Some(-1.0), Some(0.5), None, Some(3.0)]);
        assert_eq!(metrics.get("credit/clipped_rate"), Some(2.0 / 3.0));
    }

    #[test]
    fn nothing_to_clip_is_no_share() {
        let (batch, _) = batch(&[]);
        let metrics = Clip { min: 0.0, max: 0.0 }.apply(&batch, &mut [], &Now::default(), Seeds(0));
        assert_eq!(metrics.get("credit/clipped_rate"), Some(0.0));
    }

    #[test]
    fn a_band_has_an_inside() {
        let band = |min, max| Clip::try_from(Band { min: Finite::try_from(min).unwrap(), max: Finite::try_from(max).unwrap() });
        assert!(band(1.0, 1.0).is_ok());
        assert_eq!(band(2.0, 1.0).unwrap_err(), "`min` is 2 and must not be above `max`, 1");
    }
}
