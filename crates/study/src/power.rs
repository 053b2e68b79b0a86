//! What so many seeds can show.

use statrs::distribution::{Continuous, ContinuousCDF, Gamma, Normal, StudentsT};

use crate::bootstrap::Level;

/// Whether there are enough seeds to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// Fewer than [`Replication::LEAST`]: numbers stand without intervals.
    TooFew(usize),
    /// Fewer than [`Replication::ADVISED`]: intervals are given, and are too narrow.
    Few(usize),
    /// Enough.
    Enough(usize),
}

impl Replication {
    /// Seeds below which no interval is given. One seed has no spread. Two can be drawn anew in three ways, and the t interval
    /// from them is 12.7 standard errors to either side.
    pub const LEAST: usize = 3;
    /// Seeds below which intervals come with a warning.
    pub const ADVISED: usize = 5;

    /// What this many seeds are.
    pub fn of(n_seeds: usize) -> Replication {
        match n_seeds {
            n if n < Self::LEAST => Replication::TooFew(n),
            n if n < Self::ADVISED => Replication::Few(n),
            n => Replication::Enough(n),
        }
    }

    /// What to say and do about it; `None` if there are enough.
    pub fn advice(self) -> Option<String> {
        let seeds = |n: usize| format!("{n} seed{}", if n == 1 { "" } else { "s" });
        match self {
            Replication::TooFew(n) => Some(format!(
                "{}: no interval and no test, because the spread between seeds cannot be told from so few; run at least {} \
                 seeds, better {} or more",
                seeds(n),
                Self::LEAST,
                Self::ADVISED
            )),
            Replication::Few(n) => Some(format!(
                "{}: the bootstrap's 95 % interval of so few holds the truth in 75 to 80 % of cases only; run {} seeds or more",
                seeds(n),
                Self::ADVISED
            )),
            Replication::Enough(_) => None,
        }
    }
}

/// How sure a test is to be: what it takes for a discovery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// Probability of a discovery where there is none, both directions together. Divide it by the number of comparisons to plan
    /// for Holm's correction.
    pub alpha: Level,
    /// Probability of a discovery where there is one.
    pub power: Level,
}

impl Default for Power {
    /// The field's custom: α = 0.05 and a power of 0.8.
    fn default() -> Power {
        Power { alpha: Level::P05, power: Level::P80 }
    }
}

impl Power {
    /// The smallest true difference that a paired t test of this many seeds finds with this power.
    ///
    /// * `spread`: sample standard deviation of the differences by seed, 0 or more, in units of the score.
    /// * `n_seeds`: number of pairs.
    ///
    /// Exact for normal differences, by the noncentral t distribution; with 5 seeds and the defaults 1.68 deviations, with 10
    /// seeds 1.0. `None` for fewer than two pairs. Colas et al. 2018, arXiv 1806.08295, §4.
    pub fn smallest_detectable(self, spread: f64, n_seeds: usize) -> Option<f64> {
        (n_seeds >= 2).then(|| self.effect(n_seeds) * spread)
    }

    /// The fewest seeds with which a true difference is found with this power; at least [`Replication::LEAST`].
    ///
    /// * `spread`: as in [`Power::smallest_detectable`], from a pilot.
    /// * `difference`: positive, in units of the score.
    ///
    /// `None` if a million do not suffice.
    pub fn seeds_needed(self, spread: f64, difference: f64) -> Option<usize> {
        const MOST: usize = 1_000_000;
        let shows = |n: usize| self.effect(n) * spread <= difference;
        let (mut below, mut enough) = (Replication::LEAST - 1, Replication::LEAST);
        while !shows(enough) {
            (below, enough) = (enough, enough * 2);
            if below >= MOST {
                return None;
            }
        }
        while enough - below > 1 {
            let middle = below + (enough - below) / 2;
            if shows(middle) { enough = middle } else { below = middle }
        }
        Some(enough)
    }

    /// Smallest detectable difference in standard deviations of the differences.
    fn effect(self, n_seeds: usize) -> f64 {
        let freedom = (n_seeds - 1) as f64;
        let critical = t_quantile(1.0 - self.alpha.get() / 2.0, freedom);
        let finds = |shift: f64| misses_of_t(shift, critical, freedom) <= 1.0 - self.power.get();
        let mut high = 1.0;
        while !finds(high) {
            high *= 2.0;
        }
        bisect(0.0, high, finds) / (n_seeds as f64).sqrt()
    }
}

/// Quantile of Student's t distribution.
pub(crate) fn t_quantile(p: f64, freedom: f64) -> f64 {
    student(freedom).inverse_cdf(p)
}

/// Two-sided p-value of a t statistic.
pub(crate) fn t_two_sided(t: f64, freedom: f64) -> f64 {
    (2.0 * student(freedom).cdf(-t.abs())).min(1.0)
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are positive")
}

/// Probability that |T| stays below the critical value, for T noncentral t: `(Z + shift) / √(χ²/freedom)`.
///
/// Integrates over the deviation in the denominator, given which T is normal.
fn misses_of_t(shift: f64, critical: f64, freedom: f64) -> f64 {
    let normal = Normal::standard();
    // The square of the deviation s: χ²/freedom.
    let square = Gamma::new(freedom / 2.0, freedom / 2.0).expect("degrees of freedom are positive");
    // s lies this near 1: its own deviation is below 1/√(2·freedom).
    let reach = 10.0 / freedom.sqrt();
    let (low, high) = ((1.0 - reach).max(0.0), 1.0 + reach);
    // Simpson's rule: many steps within the 1/critical in which a miss turns into a find.
    let steps = 2 * (5.0 * critical * (high - low)).clamp(1e3, 1e5) as usize;
    let step = (high - low) / steps as f64;
    let density = |s: f64| if s > 0.0 { 2.0 * s * square.pdf(s * s) } else { density_at_zero(freedom) };
    let missed = |s: f64| normal.cdf(critical * s - shift) - normal.cdf(-critical * s - shift);
    let weight = |i: usize| match i {
        i if i == 0 || i == steps => 1.0,
        i if i % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let at = |i: usize| low + step * i as f64;
    (0..=steps).map(|i| weight(i) * density(at(i)) * missed(at(i))).sum::<f64>() * step / 3.0
}

/// Density of `√(χ²/freedom)` at 0: half of a normal's for one degree of freedom, and none for more.
fn density_at_zero(freedom: f64) -> f64 {
    if freedom == 1.0 { std::f64::consts::FRAC_2_PI.sqrt() } else { 0.0 }
}

/// Where a condition begins to hold between `low`, where it does not, and `high`, where it does.
fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    // Until neighbouring numbers are reached, or as good as.
    for _ in 0..60 {
        let middle = low + (high - low) / 2.0;
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn students_t_is_that_of_the_tables() {
        // scipy 1.17.1
        let quantiles = [
            (0.975, 1.0, 12.706_204_736_174_694),
            (0.975, 4.0, 2.776_445_105_197_793_4),
            (0.995, 9.0, 3.249_835_541_592_126),
            (0.8, 30.0, 0.853_767_261_471_297_9),
            (0.975, 1000.0, 1.962_339_080_826_407_9),
        ];
        for (p, freedom, want) in quantiles {
            let got = t_quantile(p, freedom);
            assert!((got / want - 1.0).abs() < 1e-9, "{p} {freedom}: {got}, not {want}");
        }
        let tails = [
            (2.0, 4.0, 0.116_116_523_516_815_56),
            (-0.5, 1.0, 0.704_832_764_699_133_5),
            (12.0, 9.0, 7.699_886_222_985_653e-7),
            (40.0, 19.0, 8.307_757_199_338_434e-20),
        ];
        for (t, freedom, want) in tails {
            let got = t_two_sided(t, freedom);
            assert!((got / want - 1.0).abs() < 1e-9, "{t} {freedom}: {got}, not {want}");
        }
    }

    #[test]
    fn detectable_differences_are_those_of_the_noncentral_t() {
        // scipy 1.17.1: the shift at which nct.sf(c) + nct.cdf(−c) is 0.8, over √n
        let effects = [
            (2, 11.549_888_435_882_353),
            (3, 3.264_043_549_699_571_7),
            (5, 1.681_996_965_955_548_7),
            (6, 1.434_544_782_040_401),
            (10, 0.996_001_371_455_436_1),
            (20, 0.660_441_654_623_010_2),
            (100, 0.282_912_632_781_384_1),
        ];
        for (n, want) in effects {
            let got = Power::default().smallest_detectable(1.0, n).unwrap();
            assert!((got / want - 1.0).abs() < 1e-6, "{n}: {got}, not {want}");
        }
        // scipy again, at the strictest: n = 3, α = 0.000001, power 0.999999
        let strict = Power { alpha: Level::new(1e-6).unwrap(), power: Level::new(0.999_999).unwrap() };
        let got = strict.smallest_detectable(1.0, 3).unwrap();
        assert!((got / 2_145.966_485_113_661_7 - 1.0).abs() < 1e-4, "{got}");
        assert_eq!(Power::default().smallest_detectable(1.0, 1), None);
        assert_eq!(Power::default().smallest_detectable(0.0, 5), Some(0.0));
    }

    #[test]
    fn planned_seeds_are_the_fewest_that_suffice() {
        let power = Power::default();
        // from the list above: 1.682 deviations need 5 seeds, a hair less needs 6
        assert_eq!(power.seeds_needed(1.0, 1.682), Some(5));
        assert_eq!(power.seeds_needed(1.0, 1.681), Some(6));
        assert_eq!(power.seeds_needed(1.0, 100.0), Some(3));
        assert_eq!(power.seeds_needed(0.0, 0.1), Some(3));
        assert_eq!(power.seeds_needed(1.0, 0.0), None);
    }

    #[test]
    fn too_few_seeds_are_refused_with_advice() {
        assert_eq!(Replication::of(2), Replication::TooFew(2));
        assert_eq!(Replication::of(4), Replication::Few(4));
        assert_eq!(Replication::of(5).advice(), None);
        let advice = Replication::of(1).advice().unwrap();
        assert!(advice.starts_with("1 seed: no interval") && advice.contains("at least 3 seeds"), "{advice}");
        assert!(Replication::of(3).advice().unwrap().contains("run 5 seeds or more"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn more_seeds_and_less_spread_show_smaller_differences(spread in 0.01..2.0f64, n in 2usize..40) {
            let at = |spread, n| Power::default().smallest_detectable(spread, n).unwrap();
            prop_assert!(at(spread, n + 1) < at(spread, n));
            prop_assert!(at(spread / 2.0, n) < at(spread, n));
        }
    }
}
