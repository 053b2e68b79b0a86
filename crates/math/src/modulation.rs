//! Numbers as weights: brought to 0..=1, turned into weights of mean 1, or into shares of a sum.

use crate::{Float, is_constant};

/// `x ← (x − min) / (max − min + ε)` in place.
///
/// * `x`: `[n]`, finite. Equal values become exactly 0.
/// * `epsilon`: 0 or more
pub fn min_max<T: Float>(x: &mut [T], epsilon: f64) {
    if is_constant(x) {
        x.fill(T::zero());
        return;
    }
    let (low, high) =
        x.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min((*v).as_()), high.max((*v).as_())));
    x.iter_mut().for_each(|v| *v = T::of(((*v).as_() - low) / (high - low + epsilon)));
}

/// `x ← exp(−rate · x) / mean(exp(−rate · x))` in place: positive weights of mean 1, the larger the smaller `x`.
///
/// * `x`: `[n]`, finite, of moderate size: see [`min_max`]. Equal values become exactly 1.
/// * `rate`: how fast they fall; negative, they rise
///
/// The self-calibration of AEM (arXiv 2605.00425) and EMPG (arXiv 2509.09265).
pub fn exponential_weights<T: Float>(x: &mut [T], rate: f64) {
    if is_constant(x) {
        x.fill(T::one());
        return;
    }
    let weights: Vec<f64> = x.iter().map(|v| (-rate * (*v).as_()).exp()).collect();
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    x.iter_mut().zip(weights).for_each(|(v, w)| *v = T::of(w / mean));
}

/// `x ← n · x / (Σ x + ε)` in place: each one's share of the sum, scaled so that equal values share 1 each.
///
/// * `x`: `[n]`, not negative. Where all are 0, so are the shares.
/// * `epsilon`: above 0
///
/// The entropy weights of GTPO (arXiv 2508.04349, eq. 3), in which `n` sequences still run.
pub fn shares<T: Float>(x: &mut [T], epsilon: f64) {
    let n = x.len() as f64;
    let sum: f64 = x.iter().map(|v| (*v).as_()).sum::<f64>() + epsilon;
    x.iter_mut().for_each(|v| *v = T::of(n * (*v).as_() / sum));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hand_worked() {
        let mut x = [1.0, 3.0, 2.0];
        min_max(&mut x, 0.0);
        assert_eq!(x, [0.0, 1.0, 0.5]);
        // e^0 = 1 and e^−ln 3 = 1/3: mean 2/3
        let mut x = [0.0f64, 3f64.ln()];
        exponential_weights(&mut x, 1.0);
        assert!((x[0] - 1.5).abs() < 1e-12 && (x[1] - 0.5).abs() < 1e-12, "{x:?}");
        // 2 · (3, 1)/4
        let mut x = [3.0f64, 1.0];
        shares(&mut x, 1e-12);
        assert!((x[0] - 1.5).abs() < 1e-9 && (x[1] - 0.5).abs() < 1e-9, "{x:?}");
    }

    #[test]
    fn equal_none_and_zero() {
        let mut x = [0.1f32; 7];
        min_max(&mut x, 0.0);
        assert_eq!(x, [0.0; 7]);
        exponential_weights(&mut x, 2.0);
        assert_eq!(x, [1.0; 7]);
        let mut zero = [0.0f32; 3];
        shares(&mut zero, 1e-8);
        assert_eq!(zero, [0.0; 3]);
        min_max::<f32>(&mut [], 0.0);
        exponential_weights::<f32>(&mut [], 1.0);
        shares::<f32>(&mut [], 1e-8);
    }

    proptest! {
        #[test]
        fn weights_have_mean_one_and_keep_the_order(x in prop::collection::vec(-9.0..9.0f64, 1..20), rate in 0.01..3.0f64) {
            let mut unit = x.clone();
            min_max(&mut unit, 1e-8);
            prop_assert!(unit.iter().all(|v| (0.0..=1.0).contains(v)));
            let mut w = unit.clone();
            exponential_weights(&mut w, rate);
            let mean = w.iter().sum::<f64>() / w.len() as f64;
            prop_assert!((mean - 1.0).abs() < 1e-12);
            for (i, j) in (0..x.len()).flat_map(|i| (0..i).map(move |j| (i, j))) {
                prop_assert!(unit[i] >= unit[j] || w[i] >= w[j]);
            }
        }

        #[test]
        fn shares_sum_to_their_number(x in prop::collection::vec(0.01..9.0f64, 1..20)) {
            let mut s = x.clone();
            shares(&mut s, 1e-12);
            prop_assert!((s.iter().sum::<f64>() - x.len() as f64).abs() < 1e-8);
        }
    }
}
