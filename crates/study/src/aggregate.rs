//! One number for an arm, and how sure it is.

use crate::bootstrap::{Bootstrap, Estimate};
use crate::scores::{Scores, mean};
use crate::table::{ArmScores, Table, Training};

/// How scores become one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Mean over runs and tasks. One run far off moves it.
    Mean,
    /// Median over tasks of the mean over runs. Half of the tasks may be 0 without a trace in it; with one task it is the mean.
    Median,
    /// Interquartile mean: of all scores together, the mean of the middle half. A quarter of the scores, rounded down, is left
    /// out at either end (`scipy.stats.trim_mean`).
    Iqm,
    /// How far scores fall short of `target` on average; what lies beyond it does not make up for it. Lower is better.
    OptimalityGap {
        /// The score that is good enough, 1 for success rates.
        target: f64,
    },
}

impl Metric {
    /// All of them, in the order of the paper's figures.
    ///
    /// * `target`: that of the optimality gap.
    pub fn all(target: f64) -> [Metric; 4] {
        [Metric::Median, Metric::Iqm, Metric::Mean, Metric::OptimalityGap { target }]
    }

    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Mean => "mean",
            Metric::Median => "median",
            Metric::Iqm => "IQM",
            Metric::OptimalityGap { .. } => "optimality gap",
        }
    }

    /// The number for these scores.
    ///
    /// Agarwal et al. 2021, arXiv 2108.13264, §4.3, as rliable 1.2.0 computes it.
    pub fn of(self, scores: &Scores) -> f64 {
        let values = scores.values();
        match self {
            Metric::Mean => mean(values.iter().copied()),
            Metric::Median => {
                let n = scores.n_runs() as f64;
                median((0..scores.n_tasks()).map(|task| scores.task(task).sum::<f64>() / n).collect())
            }
            Metric::Iqm => interquartile_mean(values.to_vec()),
            Metric::OptimalityGap { target } => target - mean(values.iter().map(|score| score.min(target))),
        }
    }
}

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_unstable_by(f64::total_cmp);
    let half = x.len() / 2;
    if x.len() % 2 == 1 { x[half] } else { (x[half - 1] + x[half]) / 2.0 }
}

fn interquartile_mean(mut x: Vec<f64>) -> f64 {
    // Sorted throughout, not only around the quartiles: the sum then has one order, whatever the order of runs.
    x.sort_unstable_by(f64::total_cmp);
    let cut = x.len() / 4;
    let middle = &x[cut..x.len() - cut];
    mean(middle.iter().copied())
}

/// What [`summarise`] says of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The arm.
    pub arm: String,
    /// Runs that finished: what the numbers are of.
    pub n_runs: usize,
    /// Runs that failed, and are in no number.
    pub n_failed: usize,
    /// Each metric with its number, in the order in which they were asked for; `None` if no run finished.
    pub estimates: Vec<(Metric, Option<Estimate>)>,
}

/// Each arm in numbers, with intervals over its runs.
///
/// * `metrics`: which numbers.
/// * `bootstrap`: how intervals are made, [`Bootstrap::of_tables`] as the field does. Below
///   [`Replication::LEAST`](crate::Replication::LEAST) runs there is none.
pub fn summarise(table: &Table, metrics: &[Metric], bootstrap: &Bootstrap) -> Vec<Summary> {
    let of_arm = |arm: &ArmScores| {
        let estimates = match &arm.scores {
            None => vec![None; metrics.len()],
            Some(scores) => estimates(scores, table.training(), metrics, bootstrap).into_iter().map(Some).collect(),
        };
        Summary {
            arm: arm.name.clone(),
            n_runs: arm.seeds.len(),
            n_failed: arm.failures.len(),
            estimates: metrics.iter().copied().zip(estimates).collect(),
        }
    };
    table.arms().iter().map(of_arm).collect()
}

fn estimates(scores: &Scores, training: Training, metrics: &[Metric], bootstrap: &Bootstrap) -> Vec<Estimate> {
    bootstrap.estimates(training, &[std::slice::from_ref(scores)], metrics.len(), |drawn, out| {
        out.iter_mut().zip(metrics).for_each(|(out, metric)| *out = metric.of(&drawn[0][0]));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(metric: Metric, runs: &[&[f64]], want: f64) {
        let got = metric.of(&Scores::of_rows(runs));
        assert!((got - want).abs() < 1e-12, "{metric:?} {runs:?}: {got}, not {want}");
    }

    #[test]
    fn numbers_by_hand() {
        // tasks' means 1, 2, 6: their median is 2, their mean 3
        let runs: [&[f64]; 2] = [&[0.0, 1.0, 4.0], &[2.0, 3.0, 8.0]];
        check(Metric::Median, &runs, 2.0);
        check(Metric::Mean, &runs, 3.0);
        // of 0 1 2 3 4 8 one is left out at either end: (1 + 2 + 3 + 4)/4
        check(Metric::Iqm, &runs, 2.5);
        // short of 3 by 3, 2, 0, 1, 0, 0
        check(Metric::OptimalityGap { target: 3.0 }, &runs, 1.0);
        // an even number of tasks: between the middle two, 2 and 4
        check(Metric::Median, &[&[1.0, 2.0, 4.0, 9.0]], 3.0);
    }

    #[test]
    fn an_outlier_moves_the_mean_and_not_the_interquartile_mean() {
        let runs = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 5.0].map(|score| [score]);
        let scores = Scores::of_rows(&runs);
        assert!((Metric::Iqm.of(&scores) - 0.45).abs() < 1e-12 && (Metric::Mean.of(&scores) - 0.975).abs() < 1e-12);
    }

    #[test]
    fn three_scores_have_no_quarter_to_leave_out() {
        check(Metric::Iqm, &[&[0.0], &[0.0], &[3.0]], 1.0);
        check(Metric::Iqm, &[&[0.0], &[0.0], &[3.0], &[9.0]], 1.5);
    }

    fn scores() -> impl Strategy<Value = Vec<Vec<f64>>> {
        (1usize..9, 1usize..6)
            .prop_flat_map(|(runs, tasks)| prop::collection::vec(prop::collection::vec(-9.0..9.0f64, tasks), runs))
    }

    proptest! {
        #[test]
        fn every_metric_lies_between_the_least_and_the_greatest(rows in scores()) {
            let s = Scores::of_rows(&rows);
            let low = s.values().iter().copied().fold(f64::INFINITY, f64::min);
            let high = s.values().iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for metric in [Metric::Mean, Metric::Median, Metric::Iqm] {
                let got = metric.of(&s);
                prop_assert!((low - 1e-12..=high + 1e-12).contains(&got), "{metric:?} {got}");
            }
            let gap = Metric::OptimalityGap { target: 2.0 }.of(&s);
            prop_assert!(gap >= -1e-12);
        }

        #[test]
        fn the_order_of_seeds_does_not_matter(rows in scores(), turn in 0usize..9) {
            let mut turned = rows.clone();
            turned.rotate_left(turn % rows.len());
            turned.reverse();
            let (one, other) = (Scores::of_rows(&rows), Scores::of_rows(&turned));
            for metric in Metric::all(1.0) {
                prop_assert!((metric.of(&one) - metric.of(&other)).abs() < 1e-12, "{metric:?}");
            }
            prop_assert_eq!(Metric::Iqm.of(&one).to_bits(), Metric::Iqm.of(&other).to_bits());
        }

        #[test]
        fn scores_moved_and_stretched_move_and_stretch_the_numbers(rows in scores(), by in -3.0..3.0f64, scale in 0.1..4.0f64) {
            let moved: Vec<Vec<f64>> = rows.iter().map(|run| run.iter().map(|x| scale * x + by).collect()).collect();
            for metric in [Metric::Mean, Metric::Median, Metric::Iqm] {
                let want = scale * metric.of(&Scores::of_rows(&rows)) + by;
                prop_assert!((metric.of(&Scores::of_rows(&moved)) - want).abs() < 1e-10, "{metric:?}");
            }
        }

        #[test]
        fn without_scores_beyond_the_target_the_gap_is_the_rest_of_the_mean(rows in scores()) {
            let s = Scores::of_rows(&rows);
            let gap = Metric::OptimalityGap { target: 9.0 }.of(&s);
            prop_assert!((gap - (9.0 - Metric::Mean.of(&s))).abs() < 1e-12);
        }
    }
}
