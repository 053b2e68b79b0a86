//! Is an arm better than the baseline?

use std::collections::BTreeMap;
use std::fmt;

use ascribe_math::Deviation;
use ascribe_math::moments;

use crate::bootstrap::{Bootstrap, Estimate, Interval, Level};
use crate::error::StudyError;
use crate::improvement::improvement;
use crate::paired::{paired_t, sign_flip, signed_rank};
use crate::power::{Power, Replication};
use crate::table::{ArmScores, Table};

/// The test whose p-value decides, after correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Paired t: sees the most with few seeds, and takes differences for normal.
    T,
    /// Random signs of the differences. Takes nothing for granted, and cannot find anything at α = 0.05 with 5 seeds.
    SignFlip,
    /// Wilcoxon's signed ranks: as the signs, and not moved by one large difference.
    SignedRank,
}

/// How arms are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparing {
    /// What it takes for a discovery; intervals of differences are at `1 − alpha`.
    pub power: Power,
    /// The test that decides.
    pub test: Test,
    /// How the interval of the probability of improvement is made; its seeds also key random signs.
    pub bootstrap: Bootstrap,
}

impl Comparing {
    /// α = 0.05, power 0.8, the paired t test.
    ///
    /// * `bootstrap`: [`Bootstrap::of_curves`] as the field does.
    pub fn new(bootstrap: Bootstrap) -> Comparing {
        Comparing { power: Power::default(), test: Test::T, bootstrap }
    }
}

/// P-values of the paired tests, two-sided, before correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tests {
    /// Paired t; `None` where all differences are equal: there is no spread to compare them with.
    pub t: Option<f64>,
    /// Random signs of the differences.
    pub sign_flip: f64,
    /// Wilcoxon's signed ranks.
    pub signed_rank: f64,
}

impl Tests {
    /// The p-value that decides. Without spread there is no t, and random signs stand in.
    fn deciding(&self, test: Test) -> f64 {
        match test {
            Test::T => self.t.unwrap_or(self.sign_flip),
            Test::SignFlip => self.sign_flip,
            Test::SignedRank => self.signed_rank,
        }
    }
}

/// What a comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The arm scores higher.
    Better,
    /// It scores lower.
    Worse,
    /// It cannot be told from the baseline with these seeds; which is not to say that they are equal.
    Undecided(Reason),
}

/// Why a comparison is undecided: the first that holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// Fewer than [`Replication::LEAST`] pairs.
    TooFewSeeds {
        /// How many there are.
        pairs: usize,
    },
    /// Every difference is 0.
    Same,
    /// The interval of the difference holds 0.
    IntervalHoldsZero(Interval),
    /// The difference is smaller than what so many seeds find reliably: another set of seeds may well not show it.
    BelowDetectable {
        /// Size of the difference.
        difference: f64,
        /// The smallest detectable one.
        smallest: f64,
    },
    /// The p-value, corrected for the number of arms, is not below α.
    NotSignificant {
        /// The corrected p-value.
        corrected: f64,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Better => f.write_str("better"),
            Verdict::Worse => f.write_str("worse"),
            Verdict::Undecided(reason) => write!(f, "undecided: {reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::TooFewSeeds { pairs } => {
                write!(f, "{pairs} pairs of runs with the same seed, where {} are needed", Replication::LEAST)
            }
            Reason::Same => f.write_str("both scored the same with every seed"),
            Reason::IntervalHoldsZero(Interval { low, high }) => {
                write!(f, "the difference may be anything from {low:.3} to {high:.3}")
            }
            Reason::BelowDetectable { difference, smallest } => {
                write!(
                    f,
                    "the difference of {difference:.3} is below {smallest:.3}, the smallest that so many seeds find reliably"
                )
            }
            Reason::NotSignificant { corrected } => write!(f, "p = {corrected:.3} after correction for the number of arms"),
        }
    }
}

/// An arm against the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The arm.
    pub arm: String,
    /// What it is compared with.
    pub baseline: String,
    /// Seeds that finished in both, ascending: the pairs.
    pub seeds: Vec<u64>,
    /// Seeds that finished in one of the two only, ascending. They are in no paired number.
    pub unpaired: Vec<u64>,
    /// Mean over seeds of the arm's score minus the baseline's, each the mean over tasks, with its t interval: none below
    /// [`Replication::LEAST`] pairs, nor where all differences are equal. `None` without pairs.
    pub difference: Option<Estimate>,
    /// Sample standard deviation of the differences by seed; `None` below two pairs.
    pub spread: Option<f64>,
    /// P-values; `None` below [`Replication::LEAST`] pairs.
    pub tests: Option<Tests>,
    /// The deciding p-value after Holm's correction over all arms that were tested.
    pub corrected: Option<f64>,
    /// The smallest difference that a test of these pairs finds with the stated power, from the spread observed; `None` where
    /// there is no interval.
    pub smallest_detectable: Option<f64>,
    /// [`probability_of_improvement`](crate::probability_of_improvement) over the baseline, from all runs that finished; `None`
    /// if an arm has none.
    pub improvement: Option<Estimate>,
    /// What it comes to.
    pub verdict: Verdict,
}

/// Every other arm against the baseline, paired by seed, in the table's order: [`compare_pairs`] of these pairs.
///
/// # Errors
/// If there is no arm `baseline`, or no other.
pub fn compare(table: &Table, baseline: &str, how: &Comparing) -> Result<Vec<Comparison>, StudyError> {
    let baseline = &table.arm(baseline)?.name;
    let others = table.arms().iter().map(|arm| &arm.name).filter(|name| *name != baseline);
    let pairs: Vec<(&str, &str)> = others.map(|arm| (arm.as_str(), baseline.as_str())).collect();
    if pairs.is_empty() {
        return Err(StudyError::Empty { what: format!("arms to compare with `{baseline}`") });
    }
    compare_pairs(table, &pairs, how)
}

/// Each arm against the baseline beside it, paired by seed, in the order of `pairs`: one family of tests. Higher scores are
/// better.
///
/// An arm is better or worse only if there are enough pairs, the interval of the difference excludes 0, the difference is at
/// least the smallest detectable one, and the p-value holds after Holm's correction over all pairs. Everything else is undecided.
/// Where all differences are equal there is nothing to measure them with, and the p-value of random signs decides.
///
/// Henderson et al. 2018, arXiv 1709.06560; Colas et al. 2018, arXiv 1806.08295.
///
/// # Errors
/// If there is no arm of one of the names.
pub fn compare_pairs(table: &Table, pairs: &[(&str, &str)], how: &Comparing) -> Result<Vec<Comparison>, StudyError> {
    let one = |(arm, baseline): &(&str, &str)| Ok(compare_one(table, table.arm(arm)?, table.arm(baseline)?, how));
    let mut found: Vec<Comparison> = pairs.iter().map(one).collect::<Result<_, StudyError>>()?;
    let tested = |c: &Comparison| c.tests.as_ref().map(|tests| tests.deciding(how.test));
    let mut corrected = holm(&found.iter().filter_map(tested).collect::<Vec<_>>()).into_iter();
    for comparison in found.iter_mut().filter(|c| c.tests.is_some()) {
        comparison.corrected = corrected.next();
    }
    for comparison in &mut found {
        comparison.verdict = verdict(comparison, how.power.alpha);
    }
    Ok(found)
}

/// All but what depends on the other arms.
fn compare_one(table: &Table, arm: &ArmScores, baseline: &ArmScores, how: &Comparing) -> Comparison {
    let (of_arm, of_baseline): (BTreeMap<u64, f64>, BTreeMap<u64, f64>) =
        (arm.run_means().collect(), baseline.run_means().collect());
    let pairs: Vec<(u64, f64, f64)> =
        of_arm.iter().filter_map(|(seed, x)| of_baseline.get(seed).map(|y| (*seed, *x, *y))).collect();
    let alone = |one: &BTreeMap<u64, f64>, other: &BTreeMap<u64, f64>| {
        one.keys().filter(|seed| !other.contains_key(seed)).copied().collect::<Vec<_>>()
    };
    let mut unpaired = [alone(&of_arm, &of_baseline), alone(&of_baseline, &of_arm)].concat();
    unpaired.sort_unstable();

    let differences = differences(&pairs);
    let all = moments(&differences);
    let enough = all.n >= Replication::LEAST;
    let spread = (all.n > 1).then(|| all.deviation(Deviation::Sample));
    let measured = spread.filter(|spread| enough && *spread > 0.0);
    let (t, interval) = measured.map(|_| paired_t(&all, how.power.alpha.complement())).unzip();
    let tests = enough.then(|| Tests {
        t,
        sign_flip: sign_flip(&differences, how.bootstrap.seeds),
        signed_rank: signed_rank(&differences),
    });
    let improvement = match (&arm.scores, &baseline.scores) {
        (Some(x), Some(y)) => Some(improvement(x, y, table.training(), &how.bootstrap)),
        _ => None,
    };
    Comparison {
        arm: arm.name.clone(),
        baseline: baseline.name.clone(),
        seeds: pairs.iter().map(|(seed, ..)| *seed).collect(),
        unpaired,
        difference: (all.n > 0).then_some(Estimate { point: all.mean, interval }),
        spread,
        tests,
        corrected: None,
        smallest_detectable: measured.and_then(|spread| how.power.smallest_detectable(spread, all.n)),
        improvement,
        verdict: Verdict::Undecided(Reason::TooFewSeeds { pairs: all.n }),
    }
}

/// Arm minus baseline by seed.
///
/// What is 0, or equal, but for rounding becomes so: the spread would be the noise of the last digit, and a t statistic of it
/// beyond all bounds; and noise has a sign.
fn differences(pairs: &[(u64, f64, f64)]) -> Vec<f64> {
    const ROUNDING: f64 = 1e-12;
    let scale = pairs.iter().map(|(_, x, y)| x.abs().max(y.abs())).fold(0.0, f64::max);
    let same = |x: f64, y: f64| (x - y).abs() <= ROUNDING * scale;
    let differences: Vec<f64> = pairs.iter().map(|(_, x, y)| if same(*x, *y) { 0.0 } else { x - y }).collect();
    match differences.first() {
        Some(first) if differences.iter().all(|d| same(*d, *first)) => vec![*first; differences.len()],
        _ => differences,
    }
}

fn verdict(c: &Comparison, alpha: Level) -> Verdict {
    Verdict::Undecided(match (c.difference, c.corrected) {
        (None, _) | (_, None) => Reason::TooFewSeeds { pairs: c.seeds.len() },
        (Some(Estimate { point: 0.0, interval: None }), _) => Reason::Same,
        (Some(Estimate { point, interval }), Some(corrected)) => {
            if let Some(interval) = interval.filter(|interval| interval.contains(0.0)) {
                Reason::IntervalHoldsZero(interval)
            } else if let Some(smallest) = c.smallest_detectable.filter(|smallest| point.abs() < *smallest) {
                Reason::BelowDetectable { difference: point.abs(), smallest }
            } else if corrected >= alpha.get() {
                Reason::NotSignificant { corrected }
            } else {
                return if point > 0.0 { Verdict::Better } else { Verdict::Worse };
            }
        }
    })
}

/// Holm's correction: p-values such that rejecting those below α gives, with probability of at most α, any false discovery at
/// all.
///
/// * `p`: `[tests]`, in any order.
///
/// Returns `[tests]`: the k-th smallest of m is multiplied by m − k + 1, is no smaller than the one before, and at most 1. Holm
/// 1979.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|i, j| p[*i].total_cmp(&p[*j]));
    let mut corrected = vec![0.0; p.len()];
    let mut least = 0.0f64;
    for (k, i) in order.into_iter().enumerate() {
        least = least.max(p[i] * (p.len() - k) as f64).min(1.0);
        corrected[i] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Arm, Range, Run, Training};
    use ascribe_core::seed::Seeds;
    use proptest::prelude::*;

    fn how() -> Comparing {
        Comparing::new(Bootstrap { repetitions: 200, ..Bootstrap::of_curves(Seeds(0)) })
    }

    fn arm(name: &str, scores: &[f64]) -> Arm<Vec<f64>> {
        let run = |(seed, score): (usize, &f64)| Run { seed: seed as u64, result: Ok(vec![*score]) };
        Arm { name: name.into(), runs: scores.iter().enumerate().map(run).collect() }
    }

    fn table(arms: Vec<Arm<Vec<f64>>>) -> Table {
        Table::new(vec!["test".into()], Range::new(-10.0, 10.0).unwrap(), Training::ForAllTasks, arms).unwrap()
    }

    fn against_baseline(baseline: &[f64], other: &[f64]) -> Comparison {
        compare(&table(vec![arm("base", baseline), arm("other", other)]), "base", &how()).unwrap().remove(0)
    }

    #[test]
    fn a_difference_by_hand() {
        // differences 1, 2, 3: mean 2, deviation 1; t = 2√3 = 3.4641 with 2 degrees of freedom: p = 0.0742;
        // interval 2 ± 4.3027/√3 = 2.4842
        let c = against_baseline(&[0.0, 1.0, 2.0], &[1.0, 3.0, 5.0]);
        let difference = c.difference.unwrap();
        let interval = difference.interval.unwrap();
        assert_eq!((difference.point, c.spread), (2.0, Some(1.0)));
        assert!((interval.low + 0.4842).abs() < 1e-3 && (interval.high - 4.4842).abs() < 1e-3, "{interval:?}");
        let tests = c.tests.unwrap();
        assert!((tests.t.unwrap() - 0.0742).abs() < 1e-4, "{tests:?}");
        assert_eq!((tests.sign_flip, tests.signed_rank), (0.25, 0.25));
        assert!((c.smallest_detectable.unwrap() - 3.264).abs() < 1e-3);
        assert!(matches!(c.verdict, Verdict::Undecided(Reason::IntervalHoldsZero(_))), "{}", c.verdict);
    }

    #[test]
    fn a_clear_difference_is_better_one_way_and_worse_the_other() {
        let (low, high) = ([0.10, 0.12, 0.09, 0.11, 0.10], [0.50, 0.51, 0.52, 0.49, 0.53]);
        assert_eq!(against_baseline(&low, &high).verdict, Verdict::Better);
        assert_eq!(against_baseline(&high, &low).verdict, Verdict::Worse);
    }

    #[test]
    fn identical_arms_are_undecided() {
        let scores = [0.3, 0.5, 0.2, 0.4, 0.6];
        let c = against_baseline(&scores, &scores);
        assert_eq!(c.difference.unwrap().point, 0.0);
        assert_eq!(c.improvement.unwrap().point, 0.5);
        assert_eq!(c.verdict, Verdict::Undecided(Reason::Same));
        assert_eq!(c.verdict.to_string(), "undecided: both scored the same with every seed");
    }

    #[test]
    fn arms_that_differ_by_rounding_are_the_same() {
        // 0.1 + 0.2 is not 0.3 to the last digit, and always to the same side
        let c = against_baseline(&[0.3; 8], &[0.1 + 0.2; 8]);
        assert_eq!((c.difference.unwrap().point, c.verdict), (0.0, Verdict::Undecided(Reason::Same)));
    }

    #[test]
    fn a_difference_that_other_seeds_may_not_show_is_undecided() {
        // differences of mean 1.5 and deviation 1: above the interval's 2.776/√5 = 1.242 and below the detectable 1.682
        let d = [0.2, 1.0, 1.5, 2.0, 2.8];
        let c = against_baseline(&[0.0; 5], &d);
        let smallest = c.smallest_detectable.unwrap();
        assert_eq!(c.verdict, Verdict::Undecided(Reason::BelowDetectable { difference: 1.5, smallest }), "{c:?}");
        assert!(c.verdict.to_string().contains("the difference of 1.500 is below"), "{}", c.verdict);
    }

    #[test]
    fn equal_differences_are_judged_by_their_signs() {
        // 0.3 − 0.2, 0.4 − 0.3, … differ in their last digit only: a t statistic of that would be beyond 10¹⁵
        let (low, high) = ([0.2, 0.3, 0.4, 0.5, 0.6], [0.3, 0.4, 0.5, 0.6, 0.7]);
        let five = against_baseline(&low, &high);
        assert_eq!((five.tests.unwrap().t, five.spread), (None, Some(0.0)));
        assert_eq!((five.difference.unwrap().interval, five.smallest_detectable), (None, None));
        // five signs can do no better than 2/32
        assert_eq!(five.verdict, Verdict::Undecided(Reason::NotSignificant { corrected: 0.0625 }));
        let six = against_baseline(&[0.0; 6], &[1.0; 6]);
        assert_eq!(six.verdict, Verdict::Better);
    }

    #[test]
    fn two_pairs_are_refused() {
        let c = against_baseline(&[0.0, 0.1], &[5.0, 6.0]);
        assert_eq!(c.verdict, Verdict::Undecided(Reason::TooFewSeeds { pairs: 2 }));
        assert_eq!((c.tests, c.corrected, c.smallest_detectable), (None, None, None));
        assert_eq!(c.difference.unwrap().interval, None);
        assert_eq!(c.improvement.unwrap().interval, None);
    }

    #[test]
    fn seeds_are_paired_and_failures_are_not_forgotten() {
        let run = |seed, result: Result<f64, &str>| Run { seed, result: result.map(|x| vec![x]).map_err(String::from) };
        let base = Arm { name: "base".into(), runs: vec![run(3, Ok(0.3)), run(1, Ok(0.1)), run(2, Ok(0.2)), run(9, Ok(0.9))] };
        let broken = Err("non-finite loss at update 7");
        let other = Arm { name: "other".into(), runs: vec![run(2, Ok(0.4)), run(3, Ok(0.5)), run(1, Ok(0.3)), run(9, broken)] };
        let table = table(vec![base, other]);
        let c = compare(&table, "base", &how()).unwrap().remove(0);
        assert_eq!((c.seeds.clone(), c.unpaired.clone()), (vec![1, 2, 3], vec![9]));
        assert!((c.difference.unwrap().point - 0.2).abs() < 1e-12);
        assert_eq!(table.arms()[1].failures[0].reason, "non-finite loss at update 7");
        // counted as 0, the failure takes 0.9 from the fourth pair: (0.2·3 − 0.9)/4
        let counted = table.counting_failures_as(0.0).unwrap();
        let c = compare(&counted, "base", &how()).unwrap().remove(0);
        assert!((c.difference.unwrap().point + 0.075).abs() < 1e-12);
    }

    #[test]
    fn many_arms_must_show_more() {
        // alone p = 0.03 to 0.05 would do; among eleven it does not
        let base = [0.0; 8];
        let some = [0.2, 1.5, -0.3, 1.1, 0.4, 2.0, 0.1, 1.2];
        let mut arms = vec![arm("base", &base), arm("some", &some)];
        let how = Comparing { power: Power { power: Level::new(0.5).unwrap(), ..Power::default() }, ..how() };
        assert_eq!(compare(&table(arms.clone()), "base", &how).unwrap()[0].verdict, Verdict::Better);
        arms.extend((0..10).map(|i| arm(&format!("null {i}"), &[1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0])));
        let among = compare(&table(arms), "base", &how).unwrap();
        assert!(matches!(among[0].verdict, Verdict::Undecided(Reason::NotSignificant { .. })), "{}", among[0].verdict);
        assert_eq!(among[0].corrected, among[0].tests.unwrap().t.map(|p| p * 11.0));
    }

    #[test]
    fn pairs_of_ones_own_are_one_family() {
        let arms = [("a", 0.1), ("a control", 0.3), ("b", 0.7), ("c", 0.9)].map(|(name, by)| {
            let scores: Vec<f64> = (0..8).map(|i| by * f64::from(i % 3)).collect();
            arm(name, &scores)
        });
        let table = table(arms.into());
        let own = compare_pairs(&table, &[("a", "a control"), ("b", "c")], &how()).unwrap();
        let names: Vec<(&str, &str)> = own.iter().map(|c| (c.arm.as_str(), c.baseline.as_str())).collect();
        assert_eq!(names, [("a", "a control"), ("b", "c")]);
        let alone = compare_pairs(&table, &[("a", "a control")], &how()).unwrap();
        // The other pair is as clear as this one: with it the p-value is doubled, and nothing else is another.
        assert_eq!(own[0].corrected, alone[0].corrected.map(|p| 2.0 * p));
        assert_eq!((own[0].difference, own[0].tests), (alone[0].difference, alone[0].tests));
        assert!(compare_pairs(&table, &[("a", "d")], &how()).is_err());
    }

    #[test]
    fn questions_without_an_answer_are_refused() {
        let one = table(vec![arm("base", &[0.1, 0.2, 0.3])]);
        let none = compare(&one, "base", &how()).unwrap_err().to_string();
        assert_eq!(none, "arms to compare with `base`: at least one is needed");
        let unknown = compare(&one, "bsae", &how()).unwrap_err().to_string();
        assert_eq!(unknown, "there is no arm `bsae`; there are: base");
    }

    #[test]
    fn holm_by_hand() {
        // 0.01·4, 0.02·3 = 0.06, 0.03·2 = 0.06, 0.5·1
        let corrected = holm(&[0.02, 0.5, 0.01, 0.03]);
        let want = [0.06, 0.5, 0.04, 0.06];
        assert!(corrected.iter().zip(want).all(|(c, w)| (c - w).abs() < 1e-12), "{corrected:?}");
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.7, 0.9]), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn holm_keeps_the_order_and_lies_between_nothing_and_bonferroni(p in prop::collection::vec(0.0..1.0f64, 1..9)) {
            let corrected = holm(&p);
            for (i, c) in corrected.iter().enumerate() {
                // Bonferroni's would be m times the value, or 1
                prop_assert!(p[i] <= *c && *c <= (p[i] * p.len() as f64).min(1.0));
                for (j, d) in corrected.iter().enumerate() {
                    prop_assert!(p[i] > p[j] || c <= d);
                }
            }
            let least = p.iter().copied().fold(1.0, f64::min) * p.len() as f64;
            prop_assert!((corrected.iter().copied().fold(1.0, f64::min) - least.min(1.0)).abs() < 1e-12);
        }

        #[test]
        fn the_other_arm_as_baseline_turns_the_verdict_around(
            x in prop::collection::vec(0.0..1.0f64, 5),
            y in prop::collection::vec(0.0..1.0f64, 5),
        ) {
            let (there, back) = (against_baseline(&x, &y), against_baseline(&y, &x));
            prop_assert!((there.difference.unwrap().point + back.difference.unwrap().point).abs() < 1e-12);
            let turned = match back.verdict {
                Verdict::Better => Verdict::Worse,
                Verdict::Worse => Verdict::Better,
                undecided => undecided,
            };
            prop_assert_eq!(std::mem::discriminant(&there.verdict), std::mem::discriminant(&turned));
        }
    }
}
