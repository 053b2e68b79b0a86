//! Baselines within a group: what a member is compared with.

use crate::{Float, Measure, Moments, is_constant};

/// Sum over the group without the member, divided by the number of the others: `x_i ← x_i − Σ_{j≠i} x_j / (n − 1)`.
///
/// * `x`: `[group]`. Equal values become exactly 0; a group of one is left as it is.
///
/// It is `n/(n − 1)` times `x_i − mean`. Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free"; Ahmadian et
/// al. 2024, RLOO, arXiv 2402.14740, eq. 7.
pub fn leave_one_out<T: Float>(x: &mut [T]) {
    let n = x.len();
    if n < 2 {
        return;
    }
    if is_constant(x) {
        x.fill(T::zero());
        return;
    }
    let sum: f64 = x.iter().map(|v| (*v).as_()).sum();
    for v in x {
        let own: f64 = (*v).as_();
        *v = T::of(own - (sum - own) / (n - 1) as f64);
    }
}

/// `n/(n − 1) · (x − mean)` as a measure: a member's is what [`leave_one_out`] gives, also of a group of one.
pub fn leave_one_out_measure(group: &Moments) -> Measure {
    let n = group.n as f64;
    if group.n < 2 { Measure { origin: 0.0, unit: 1.0 } } else { Measure { origin: group.mean, unit: (n - 1.0) / n } }
}

/// The length-weighted mean `Σ l_i x_i / Σ l_i`; `None` where no member has a length.
///
/// * `x`, `lengths`: `[group]`
///
/// It is the baseline of least variance where the score function's norm grows with the length. Hao et al. 2025, OPO,
/// arXiv 2505.23585, eq. 6.
pub fn length_weighted_mean<T: Float>(x: &[T], lengths: &[usize]) -> Option<f64> {
    assert_eq!(x.len(), lengths.len(), "one length per member");
    let total: usize = lengths.iter().sum();
    if total == 0 {
        return None;
    }
    if is_constant(x) {
        return Some(x[0].as_());
    }
    Some(x.iter().zip(lengths).map(|(x, l)| (*x).as_() * *l as f64).sum::<f64>() / total as f64)
}

/// Probability that a group of `n` teaches a group-relative estimator nothing: all succeed or all fail, `p^n + (1 − p)^n`.
///
/// * `p`: success rate of the task, in 0..=1.
pub fn no_spread_probability(p: f64, n: usize) -> f64 {
    p.powf(n as f64) + (1.0 - p).powf(n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments;
    use proptest::prelude::*;

    #[test]
    fn hand_worked() {
        let mut x = [1.0, 0.0, 0.0, 0.0];
        leave_one_out(&mut x);
        assert_eq!(x, [1.0, -1.0 / 3.0, -1.0 / 3.0, -1.0 / 3.0]);
        // (2·1 + 1·0 + 1·4) / 4
        assert_eq!(length_weighted_mean(&[1.0f32, 0.0, 4.0], &[2, 1, 1]), Some(1.5));
        assert_eq!(length_weighted_mean(&[1.0f32], &[0]), None);
    }

    #[test]
    fn equal_and_alone() {
        let mut x = [0.1f32; 7];
        leave_one_out(&mut x);
        assert_eq!(x, [0.0; 7]);
        let mut one = [0.7];
        leave_one_out(&mut one);
        assert_eq!(one, [0.7]);
        assert_eq!(leave_one_out_measure(&moments(&one)).of(0.7), 0.7);
        assert_eq!(length_weighted_mean(&[0.1f64; 3], &[3, 1, 7]), Some(0.1));
    }

    proptest! {
        #[test]
        fn leave_one_out_is_the_centred_value_stretched(x in prop::collection::vec(-9.0..9.0f64, 2..20)) {
            let n = x.len() as f64;
            let mean = x.iter().sum::<f64>() / n;
            let mut y = x.clone();
            leave_one_out(&mut y);
            prop_assert!(y.iter().zip(&x).all(|(y, x)| (y - n / (n - 1.0) * (x - mean)).abs() < 1e-9));
            let measure = leave_one_out_measure(&moments(&x));
            prop_assert!(y.iter().zip(&x).all(|(y, x)| (y - measure.of(*x)).abs() < 1e-9));
        }

        #[test]
        fn equal_lengths_weigh_equally(x in prop::collection::vec(-9.0..9.0f64, 1..20), l in 1usize..9) {
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let weighted = length_weighted_mean(&x, &vec![l; x.len()]).unwrap();
            prop_assert!((weighted - mean).abs() < 1e-9);
        }
    }

    #[test]
    fn hard_tasks_need_large_groups() {
        // At a success rate of 0.1 fewer than a quarter of the groups are lost from 14 members on.
        let smallest = (1..).find(|n| no_spread_probability(0.1, *n) < 0.25);
        assert_eq!(smallest, Some(14));
        assert!((no_spread_probability(0.5, 8) - 2.0 / 256.0).abs() < 1e-15);
        assert_eq!((no_spread_probability(0.0, 4), no_spread_probability(0.3, 1)), (1.0, 1.0));
    }
}
