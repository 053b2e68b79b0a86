//! Tests of whether paired differences lie around 0. All are two-sided.

use ascribe_core::seed::{Draw, Seeds};
use ascribe_math::Deviation;
use ascribe_math::spread::Moments;

use crate::bootstrap::{Interval, Level};
use crate::power::{t_quantile, t_two_sided};

/// What differs by less than this share is equal on paper.
const ROUNDING: f64 = 1e-12;

/// Paired t test: p-value, and the interval of the mean difference.
///
/// * `differences`: number, mean and squares of the differences by seed.
///
/// Exact for normal differences, and good from about 5 seeds on for others that are not far from it. Student 1908.
///
/// # Panics
/// If all differences are equal: there is nothing to measure their mean with.
pub fn paired_t(differences: &Moments, confidence: Level) -> (f64, Interval) {
    assert!(differences.squares > 0.0, "a t test needs differences that differ");
    let freedom = (differences.n - 1) as f64;
    let error = differences.deviation(Deviation::Sample) / (differences.n as f64).sqrt();
    let reach = error * t_quantile(0.5 + confidence.get() / 2.0, freedom);
    let interval = Interval { low: differences.mean - reach, high: differences.mean + reach };
    (t_two_sided(differences.mean / error, freedom), interval)
}

/// Sign-flip permutation test of the mean: how often random signs of the differences give a sum at least as far from 0.
///
/// * `differences`: `[seeds]`.
/// * `seeds`: keys the signs where there are too many to try all.
///
/// Exact up to 20 seeds: all `2^n` signs are tried, so the smallest possible value is `2^(1−n)`, 0.0625 for 5 seeds and 0.031 for
/// 6. Beyond, 100,000 random ones and those observed are counted (Phipson and Smyth 2010). 1 without differences. Fisher 1935.
pub fn sign_flip(differences: &[f64], seeds: Seeds) -> f64 {
    const ALL_UP_TO: usize = 20;
    const RANDOM: u32 = 100_000;
    let total: f64 = differences.iter().map(|d| d.abs()).sum();
    // Sums with other signs are rounded otherwise.
    let as_far = differences.iter().sum::<f64>().abs() - ROUNDING * total;
    if differences.len() <= ALL_UP_TO {
        let signs = 1u32 << differences.len();
        let sum = |signs: u32| signed_sum(differences, |i| signs >> i & 1 == 1);
        let count = (0..signs).filter(|signs| sum(*signs).abs() >= as_far).count();
        return count as f64 / f64::from(signs);
    }
    let far = |repetition: u32| {
        let mut rng = seeds.rng("study/sign-flip", Draw { update: repetition, ..Draw::default() });
        signed_sum(differences, |_| rng.below(2) == 1).abs() >= as_far
    };
    let count = (0..RANDOM).filter(|repetition| far(*repetition)).count();
    (count + 1) as f64 / f64::from(RANDOM + 1)
}

fn signed_sum(x: &[f64], mut negative: impl FnMut(usize) -> bool) -> f64 {
    x.iter().enumerate().map(|(i, x)| if negative(i) { -x } else { *x }).sum()
}

/// Wilcoxon's signed-rank test, exact for any number of seeds.
///
/// * `differences`: `[seeds]`. Those that are 0 are left out, as Wilcoxon 1945 did; equal magnitudes share their mean rank, and
///   the distribution is that of the ranks as shared.
///
/// 1 without differences other than 0. Takes time in the cube of the number of seeds.
pub fn signed_rank(differences: &[f64]) -> f64 {
    let mut nonzero: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    nonzero.sort_unstable_by(|x, y| x.abs().total_cmp(&y.abs()));
    // Rates of so many episodes differ by whole steps, but for rounding.
    let rounding = ROUNDING * nonzero.last().map_or(0.0, |d| d.abs());
    let ranks: Vec<usize> = nonzero.chunk_by(|x, y| y.abs() - x.abs() <= rounding).scan(0, doubled_ranks).flatten().collect();
    let positive: usize = ranks.iter().zip(&nonzero).filter(|(_, d)| **d > 0.0).map(|(rank, _)| rank).sum();
    // Probability of each sum of the positive ranks under random signs.
    let total: usize = ranks.iter().sum();
    let mut of_sum = vec![0.0; total + 1];
    of_sum[0] = 1.0;
    for rank in ranks {
        for sum in (0..=total).rev() {
            let with = if sum >= rank { of_sum[sum - rank] } else { 0.0 };
            of_sum[sum] = 0.5 * (of_sum[sum] + with);
        }
    }
    let least = positive.min(total - positive);
    let tail: f64 = of_sum[..=least].iter().sum();
    (2.0 * tail).min(1.0)
}

/// Twice the mean rank of equal magnitudes, once for each; ranks are whole numbers then.
fn doubled_ranks(before: &mut usize, equal: &[f64]) -> Option<Vec<usize>> {
    let n = equal.len();
    let doubled = 2 * *before + n + 1;
    *before += n;
    Some(vec![doubled; n])
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_math::moments;
    use proptest::prelude::*;

    const SOME: [f64; 8] = [0.05, 0.11, -0.02, 0.08, 0.03, 0.14, 0.0, 0.05];

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-9, "{got}, not {want}");
    }

    #[test]
    fn the_t_test_is_that_of_scipy() {
        // scipy.stats.ttest_1samp 1.17.1
        let (p, interval) = paired_t(&moments(&SOME), Level::P95);
        close(p, 0.023_121_319_783_315_174);
        close(interval.low, 0.010_089_921_868_674_467);
        close(interval.high, 0.099_910_078_131_325_55);
    }

    #[test]
    fn exact_tests_are_those_of_scipy() {
        // scipy.stats.permutation_test and wilcoxon 1.17.1, over all signs
        close(sign_flip(&SOME, Seeds(0)), 0.031_25);
        close(signed_rank(&SOME), 0.031_25);
        let more = [1.0, 2.0, 3.0, -4.0, 5.0, 6.0];
        close(sign_flip(&more, Seeds(0)), 0.218_75);
        close(signed_rank(&more), 0.218_75);
    }

    #[test]
    fn signs_and_ranks_by_hand() {
        // signs of 1, 2: sums 3, 1, −1, −3; two of four are as far as 3
        close(sign_flip(&[1.0, 2.0], Seeds(0)), 0.5);
        // as far as 1: all
        close(sign_flip(&[-1.0, 2.0], Seeds(0)), 1.0);
        // ranks 1, 2, 3, all positive: one of eight at either end
        close(signed_rank(&[0.1, 0.2, 0.3]), 0.25);
        // ranks 1½, 1½: sums 0, 1½, 1½, 3; the positive sum is 1½
        close(signed_rank(&[1.0, -1.0]), 1.0);
        // five seeds cannot do better than 2/32
        close(sign_flip(&[1.0, 2.0, 3.0, 4.0, 5.0], Seeds(0)), 0.0625);
        close(signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]), 0.0625);
    }

    #[test]
    fn without_differences_nothing_is_found() {
        for none in [&[][..], &[0.0; 4]] {
            assert_eq!((sign_flip(none, Seeds(0)), signed_rank(none)), (1.0, 1.0));
        }
    }

    #[test]
    fn sums_that_are_equal_on_paper_count_as_equal() {
        // 0.1 + 0.2 is not 0.3: without care the signs −, −, + of (0.1, 0.2, 0.3) would seem nearer to 0 than +, +, −
        close(sign_flip(&[0.1, 0.2, -0.3], Seeds(0)), 1.0);
        close(sign_flip(&[0.3, 0.3, 0.3, 0.1, 0.1, 0.1], Seeds(0)), 2.0 / 64.0);
        // magnitudes 0.1, 0.1, 0.2 but for rounding: ranks 1½, 1½, 3. The positive sum is 4½: one of eight has more, two as much
        close(signed_rank(&[0.3 - 0.2, 0.1 - 0.2, 0.6 - 0.4]), 0.75);
    }

    #[test]
    fn many_seeds_are_tested_by_random_signs() {
        // 21 seeds, 15 of them +1: P(|S| ≥ 9) = 2·P(B(21, ½) ≥ 15) = 2·82160/2²¹ = 0.07835; standard error of 100,000 draws
        // 0.00085, and the bound is four of them
        let d: Vec<f64> = (0..21).map(|i| if i < 15 { 1.0 } else { -1.0 }).collect();
        let got = sign_flip(&d, Seeds(1));
        assert!((got - 0.078_35).abs() < 0.0034, "{got}");
        assert_eq!(got.to_bits(), sign_flip(&d, Seeds(1)).to_bits());
    }

    #[test]
    fn false_discoveries_are_as_rare_as_they_should_be() {
        // 2,000 tables of 8 normal differences around 0, at α = 0.05: standard error 0.5 %, bound four of them. Exact tests
        // cannot exceed α; the values they can take leave them a little below.
        let seeds = Seeds(2);
        let mut found = [0.0; 3];
        for case in 0..2_000 {
            let mut rng = seeds.rng("null", Draw { update: case, ..Draw::default() });
            let d: Vec<f64> = (0..8).map(|_| rng.normal()).collect();
            let p = [paired_t(&moments(&d), Level::P95).0, sign_flip(&d, seeds), signed_rank(&d)];
            found.iter_mut().zip(p).for_each(|(found, p)| *found += f64::from(u8::from(p <= 0.05)) / 2_000.0);
        }
        assert!(found.iter().all(|share| (0.02..=0.07).contains(share)), "{found:?}");
    }

    proptest! {
        #[test]
        fn tests_do_not_care_which_arm_is_named_first(d in prop::collection::vec(-1.0..1.0f64, 2..9)) {
            let back: Vec<f64> = d.iter().map(|d| -d).collect();
            prop_assert_eq!(sign_flip(&d, Seeds(0)), sign_flip(&back, Seeds(0)));
            prop_assert!((signed_rank(&d) - signed_rank(&back)).abs() < 1e-12);
            let (there, back) = (paired_t(&moments(&d), Level::P95), paired_t(&moments(&back), Level::P95));
            prop_assert!((there.0 - back.0).abs() < 1e-12 && (there.1.low + back.1.high).abs() < 1e-12);
        }

        #[test]
        fn p_values_are_probabilities_of_at_least_two_signs_in_all(d in prop::collection::vec(-1.0..1.0f64, 1..11)) {
            let least = 2.0 / f64::from(1u32 << d.len());
            for p in [sign_flip(&d, Seeds(0)), signed_rank(&d)] {
                prop_assert!((least - 1e-12..=1.0).contains(&p), "{p}");
            }
        }

        #[test]
        fn the_t_interval_holds_zero_exactly_where_the_test_finds_nothing(d in prop::collection::vec(-1.0..2.0f64, 3..9)) {
            let (p, interval) = paired_t(&moments(&d), Level::P95);
            prop_assume!((p - 0.05).abs() > 1e-9);
            prop_assert_eq!(interval.contains(0.0), p > 0.05);
        }
    }
}
