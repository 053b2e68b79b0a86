//! Mean and standard deviation, with every convention explicit.
//!
//! Implementations differ in the standard deviation (sample or population), in ε and in what happens to a group of one;
//! each method passes its own.

use crate::Float;

/// Which standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// Divides the sum of squares by n − 1 (`torch.std`).
    Sample,
    /// Divides it by n (`numpy.std`).
    Population,
}

/// What a group of one becomes: it has no spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Singleton {
    /// 0: without siblings there is nothing to compare with.
    Zero,
    /// Mean 0 and standard deviation 1: the raw value, divided by 1 + ε where there is a division (verl).
    Raw,
}

/// How to standardise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standardise {
    /// Standard deviation to divide by, and the ε added to it; `None` only centres.
    pub scale: Option<(Deviation, f64)>,
    /// What a group of one becomes.
    pub singleton: Singleton,
}

/// Where zero lies and how long one is: a group's numbers, and others beside them, are told in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// What becomes 0.
    pub origin: f64,
    /// What a distance is divided by; infinite where there is nothing to measure with.
    pub unit: f64,
}

impl Measure {
    /// `(x − origin) / unit`.
    pub fn of(self, x: f64) -> f64 {
        (x - self.origin) / self.unit
    }

    /// Tells each number in this measure, in place.
    pub fn apply<T: Float>(self, x: &mut [T]) {
        // A division takes several times as long as a multiplication.
        let scale = 1.0 / self.unit;
        x.iter_mut().for_each(|v| *v = T::of(((*v).as_() - self.origin) * scale));
    }
}

impl Standardise {
    /// `(x − mean) / (std + ε)` as a measure, or `x − mean` without a scale.
    ///
    /// A group without spread has no unit: with a scale, everything becomes 0.
    #[inline]
    pub fn measure(self, group: &Moments) -> Measure {
        let (origin, unit) = match (self.singleton, self.scale) {
            (Singleton::Zero, _) if group.n == 1 => (group.mean, f64::INFINITY),
            (Singleton::Raw, scale) if group.n == 1 => (0.0, scale.map_or(1.0, |(_, epsilon)| 1.0 + epsilon)),
            (_, Some(_)) if group.squares == 0.0 => (group.mean, f64::INFINITY),
            (_, Some((deviation, epsilon))) => (group.mean, group.deviation(deviation) + epsilon),
            (_, None) => (group.mean, 1.0),
        };
        Measure { origin, unit }
    }
}

/// Number, mean and sum of squared distances from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// How many.
    pub n: usize,
    /// Their mean; 0 for none.
    pub mean: f64,
    /// Sum of squared distances from the mean; exactly 0 for equal values.
    pub squares: f64,
}

impl Moments {
    /// Variance; 0 where it has no degree of freedom.
    pub fn variance(&self, deviation: Deviation) -> f64 {
        let freedom = match deviation {
            Deviation::Sample => self.n.saturating_sub(1),
            Deviation::Population => self.n,
        };
        if freedom == 0 { 0.0 } else { self.squares / freedom as f64 }
    }

    /// Standard deviation; 0 where it has no degree of freedom.
    pub fn deviation(&self, deviation: Deviation) -> f64 {
        self.variance(deviation).sqrt()
    }
}

/// Whether all values are exactly equal; true for none and for one.
pub fn is_constant<T: Float>(x: &[T]) -> bool {
    x.windows(2).all(|w| w[0] == w[1])
}

/// Sum of `of` each member, as eight sums side by side: an addition waits for the one before it.
fn sum_of<X: Copy>(x: &[X], of: impl Fn(X) -> f64) -> f64 {
    let (blocks, rest) = x.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for block in blocks {
        sums.iter_mut().zip(block).for_each(|(sum, v)| *sum += of(*v));
    }
    sums.into_iter().chain(rest.iter().map(|v| of(*v))).sum()
}

/// Moments in two passes, the mean first, so that nothing cancels.
pub fn moments<T: Float>(x: &[T]) -> Moments {
    /// So many are still in the nearest cache when the second pass comes: memory is read once.
    const BLOCK: usize = 4096;
    if x.len() <= BLOCK {
        return moments_of_block(x);
    }
    pooled(&x.chunks(BLOCK).map(moments_of_block).collect::<Vec<_>>())
}

fn moments_of_block<T: Float>(x: &[T]) -> Moments {
    let n = x.len();
    if n == 0 {
        return Moments { n, mean: 0.0, squares: 0.0 };
    }
    if is_constant(x) {
        return Moments { n, mean: x[0].as_(), squares: 0.0 };
    }
    let mean = sum_of(x, T::as_) / n as f64;
    Moments { n, mean, squares: sum_of(x, |v| (v.as_() - mean).powi(2)) }
}

/// Moments of all members of these groups together; equal values still have exactly no squares.
pub fn pooled(groups: &[Moments]) -> Moments {
    let n: usize = groups.iter().map(|group| group.n).sum();
    let Some(first) = groups.iter().find(|group| group.n > 0) else {
        return Moments { n, mean: 0.0, squares: 0.0 };
    };
    // A sum of equal means is rounded; one of distances from the first is exactly 0.
    let distances: f64 = groups.iter().map(|group| group.n as f64 * (group.mean - first.mean)).sum();
    let mean = first.mean + distances / n as f64;
    let squares = groups.iter().map(|group| group.squares + group.n as f64 * (group.mean - mean).powi(2)).sum();
    Moments { n, mean, squares }
}

/// `x ← (x − mean) / (std + ε)` in place, or `x − mean` without a scale.
///
/// * `x`: `[group]`. Equal values become exactly 0.
///
/// Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300, §4.1.2 (with `Sample`, ε = 1e-6 as in verl).
pub fn standardise<T: Float>(x: &mut [T], how: Standardise) {
    let measure = how.measure(&moments(x));
    x.iter_mut().for_each(|v| *v = T::of(measure.of((*v).as_())));
}

/// `x ← (x − mean) / √(var + ε)` in place, `[n]`; equal values, and a single one, become exactly 0.
///
/// Returns the mean and the variance, see [`whitening`].
pub fn whiten<T: Float>(x: &mut [T], epsilon: f64) -> (f64, f64) {
    let all = moments(x);
    whitening(&all, epsilon).apply(x);
    masked_mean_and_variance(&all)
}

/// What whitening tells numbers with these moments in: their mean, and `√(var + ε)`, infinite where they are equal.
///
/// verl's `masked_whiten` on the values that its mask keeps: sums are divided by `n + 1e-8`, then the variance is made
/// unbiased by `n/(n − 1)`; its ε is 1e-8.
pub fn whitening(all: &Moments, epsilon: f64) -> Measure {
    let (origin, variance) = masked_mean_and_variance(all);
    Measure { origin, unit: if all.squares == 0.0 { f64::INFINITY } else { (variance + epsilon).sqrt() } }
}

fn masked_mean_and_variance(all: &Moments) -> (f64, f64) {
    const COUNT_EPSILON: f64 = 1e-8;
    if all.squares == 0.0 {
        return (all.mean, 0.0);
    }
    let n = all.n as f64;
    let mean = all.mean * (n / (n + COUNT_EPSILON));
    let squares = all.squares + n * (all.mean - mean).powi(2);
    (mean, squares / (n + COUNT_EPSILON) * (n / (n - 1.0)))
}

/// `1 − Var(target − predicted) / Var(target)` with sample variances: 1 is perfect, 0 no better than the mean, below 0
/// worse. `None` where the targets do not vary.
///
/// * `predicted`, `target`: `[n]`.
///
/// # Panics
/// If the lengths differ.
pub fn explained_variance<T: Float>(predicted: &[T], target: &[T]) -> Option<f64> {
    assert_eq!(predicted.len(), target.len(), "one prediction per target");
    let (of_targets, of_predicted) = (moments(target), moments(predicted));
    // Centred first: beside a prediction that is far too large the target would vanish, and a constant would seem to explain it all.
    let error = |(p, t): (&T, &T)| ((*t).as_() - of_targets.mean) - ((*p).as_() - of_predicted.mean);
    let error: Vec<f64> = predicted.iter().zip(target).map(error).collect();
    let explained = || 1.0 - moments(&error).squares / of_targets.squares;
    // A constant explains nothing, to the last digit.
    (of_targets.squares > 0.0).then(|| if of_predicted.squares == 0.0 { 0.0 } else { explained() })
}

/// Pearson's correlation of two columns, in −1..=1; `None` where one of them does not vary.
///
/// * `x`, `y`: `[n]`.
///
/// # Panics
/// If the lengths differ.
pub fn correlation<T: Float>(x: &[T], y: &[T]) -> Option<f64> {
    assert_eq!(x.len(), y.len(), "the columns are of one length");
    let (of_x, of_y) = (moments(x), moments(y));
    let products: f64 = x.iter().zip(y).map(|(x, y)| ((*x).as_() - of_x.mean) * ((*y).as_() - of_y.mean)).sum();
    let varies = of_x.squares > 0.0 && of_y.squares > 0.0;
    varies.then(|| (products / (of_x.squares.sqrt() * of_y.squares.sqrt())).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VERL: Standardise = Standardise { scale: Some((Deviation::Sample, 1e-6)), singleton: Singleton::Raw };

    fn check(how: Standardise, x: &[f64], want: &[f64], tolerance: f64) {
        let mut got = x.to_vec();
        standardise(&mut got, how);
        for (g, w) in got.iter().zip(want) {
            assert!((g - w).abs() <= tolerance, "{how:?} {x:?}: {got:?}, not {want:?}");
        }
    }
    fn of(deviation: Deviation, epsilon: f64) -> Standardise {
        Standardise { scale: Some((deviation, epsilon)), singleton: Singleton::Zero }
    }

    #[test]
    fn conventions_differ_as_stated() {
        // one success in eight: sample std √(1/8), population √(7/64)
        let one_in_eight = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let half = std::f64::consts::FRAC_1_SQRT_2;
        check(of(Deviation::Sample, 1e-6), &one_in_eight[..2], &[half, -half], 1e-5);
        let mut sample = one_in_eight;
        standardise(&mut sample, of(Deviation::Sample, 1e-6));
        assert!((sample[0] - 2.4749).abs() < 1e-4 && (sample[1] + 0.3536).abs() < 1e-4, "{sample:?}");
        let mut population = one_in_eight;
        standardise(&mut population, of(Deviation::Population, 1e-6));
        assert!((population[0] - 2.6458).abs() < 1e-4 && (population[1] + 0.378).abs() < 1e-4, "{population:?}");
        // ε against a tiny spread of 1e-5
        check(of(Deviation::Sample, 1e-6), &[1.0, 1.00001], &[-0.6195, 0.6195], 1e-4);
        check(of(Deviation::Sample, 1e-4), &[1.0, 1.00001], &[-0.0467, 0.0467], 1e-4);
    }

    #[test]
    fn singletons_follow_their_rule() {
        check(VERL, &[2.0], &[1.999_998_000_002], 1e-12);
        check(of(Deviation::Sample, 1e-6), &[2.0], &[0.0], 0.0);
        check(Standardise { scale: None, singleton: Singleton::Raw }, &[2.0], &[2.0], 0.0);
    }

    #[test]
    fn a_number_beside_the_group_is_told_in_its_measure() {
        let (how, pair) = (of(Deviation::Population, 0.0), moments(&[1.0, 3.0]));
        // mean 2, population deviation 1
        assert_eq!(how.measure(&pair).of(4.5), 2.5);
        assert_eq!(Standardise { scale: None, ..how }.measure(&pair).of(4.5), 2.5);
        // without spread there is no unit, but a distance
        let same = moments(&[3.0, 3.0]);
        assert_eq!(how.measure(&same).of(4.5), 0.0);
        assert_eq!(Standardise { scale: None, ..how }.measure(&same).of(4.5), 1.5);
        assert_eq!(VERL.measure(&moments(&[7.0])).of(2.0), 2.0 / (1.0 + 1e-6));
    }

    #[test]
    fn nearly_equal_values_do_not_cancel() {
        let mut x = [0.0f32, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95];
        standardise(&mut x, VERL);
        assert!(x.iter().all(|v| v.abs() < 10.0), "{x:?}");
    }

    proptest! {
        #[test]
        fn equal_values_have_exactly_zero_spread(v in -1e6f32..1e6, n in 1usize..40) {
            let mut x = vec![v; n];
            standardise(&mut x, of(Deviation::Sample, 1e-6));
            prop_assert!(x.iter().all(|v| *v == 0.0));
        }

        #[test]
        fn pooled_moments_are_those_of_all(groups in prop::collection::vec(prop::collection::vec(-9.0..9.0f64, 0..9), 0..6)) {
            let each: Vec<Moments> = groups.iter().map(|x| moments(x)).collect();
            let (got, want) = (pooled(&each), moments(&groups.concat()));
            prop_assert_eq!(got.n, want.n);
            prop_assert!((got.mean - want.mean).abs() < 1e-12 && (got.squares - want.squares).abs() < 1e-9, "{got:?} {want:?}");
        }

        #[test]
        fn many_have_the_moments_of_all_in_two_passes(seed in 0u32..100, n in 4090usize..12_300) {
            // Far from 0, so that a sum of squares would cancel.
            let x: Vec<f64> = (0..n as u32).map(|i| 1e6 + f64::from(i.wrapping_mul(2_654_435_761 + seed) >> 16) / 65_536.0).collect();
            let mean = x.iter().map(|x| x - 1e6).sum::<f64>() / n as f64 + 1e6;
            let squares: f64 = x.iter().map(|x| (x - mean).powi(2)).sum();
            let got = moments(&x);
            prop_assert!(got.n == n && (got.mean - mean).abs() < 1e-8 && (got.squares - squares).abs() < 1e-6 * squares, "{got:?}");
            prop_assert_eq!(moments(&vec![0.1f32; n]), Moments { n, mean: f64::from(0.1f32), squares: 0.0 });
        }

        #[test]
        fn equal_groups_pool_to_no_spread(v in -1e6..1e6f64, sizes in prop::collection::vec(0usize..9, 1..9)) {
            let each: Vec<Moments> = sizes.iter().map(|n| moments(&vec![v; *n])).collect();
            prop_assert_eq!(pooled(&each).squares, 0.0);
        }

        #[test]
        fn standardised_values_have_mean_zero_and_deviation_one(x in prop::collection::vec(-100f64..100.0, 2..40)) {
            let mut y = x.clone();
            standardise(&mut y, of(Deviation::Sample, 0.0));
            let m = moments(&y);
            prop_assert!(m.mean.abs() < 1e-9);
            prop_assert!(is_constant(&x) || (m.deviation(Deviation::Sample) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn whitening_and_explained_variance_by_hand() {
        // 1, 1, −2: mean 0, sample variance 3
        let mut x = [1.0f64, 1.0, -2.0];
        let (mean, variance) = whiten(&mut x, 1e-8);
        assert!(mean.abs() < 1e-7 && (variance - 3.0).abs() < 1e-7 && (x[2] + 2.0 / 3f64.sqrt()).abs() < 1e-7, "{x:?}");
        let mut same = [0.1f32; 7];
        whiten(&mut same, 1e-8);
        assert_eq!(same, [0.0; 7]);
        assert_eq!(explained_variance(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), Some(1.0));
        assert_eq!(explained_variance(&[2.0, 2.0, 2.0], &[1.0, 2.0, 3.0]), Some(0.0));
        assert_eq!(explained_variance(&[1.0, 2.0], &[0.5, 0.5]), None);
        assert_eq!(explained_variance(&[1e30f32; 3], &[1.0, 2.0, 3.0]), Some(0.0));
    }

    #[test]
    fn correlation_by_hand() {
        // deviations −1, 0, 1 and −1, 1, 0: ½
        assert!((correlation(&[1.0, 2.0, 3.0], &[0.0, 2.0, 1.0]).unwrap() - 0.5).abs() < 1e-12);
        assert!((correlation(&[1.0, 2.0], &[-3.0, -5.0]).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[1.0, 1.0], &[0.0, 2.0]), None);
        assert_eq!(correlation::<f64>(&[], &[]), None);
    }
}
