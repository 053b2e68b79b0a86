//! How likely a run of one arm beats a run of another.

use crate::bootstrap::{Bootstrap, Estimate};
use crate::scores::{Scores, mean};
use crate::table::Training;

/// Probability that a run of `x` scores higher than a run of `y` on a task drawn at random; a tie counts one half.
///
/// `mean over tasks of (#{x_i > y_j} + ½ #{x_i = y_j}) / (n_x · n_y)`, the statistic of Mann and Whitney 1947 over its maximum.
///
/// * `x`, `y`: `[runs × tasks]` with the same tasks; numbers of runs may differ. Seeds are not paired.
///
/// Returns 0 to 1; ½ is no improvement. Says how often, not by how much. Agarwal et al. 2021, arXiv 2108.13264, §4.3.
///
/// # Panics
/// If the numbers of tasks differ.
pub fn probability_of_improvement(x: &Scores, y: &Scores) -> f64 {
    assert_eq!(x.n_tasks(), y.n_tasks(), "both arms have the same tasks");
    let pairs = (x.n_runs() * y.n_runs()) as f64;
    let on_task = |task| {
        let wins = |x: f64| y.task(task).map(|y| wins_of(x, y)).sum::<f64>();
        x.task(task).map(wins).sum::<f64>() / pairs
    };
    mean((0..x.n_tasks()).map(on_task))
}

fn wins_of(x: f64, y: f64) -> f64 {
    if x > y {
        1.0
    } else if x == y {
        0.5
    } else {
        0.0
    }
}

/// [`probability_of_improvement`] with its interval; runs of both arms are drawn independently.
///
/// * `bootstrap`: [`Bootstrap::of_curves`] as the field does.
///
/// # Panics
/// If the numbers of tasks differ.
pub fn improvement(x: &Scores, y: &Scores, training: Training, bootstrap: &Bootstrap) -> Estimate {
    let arms = [std::slice::from_ref(x), std::slice::from_ref(y)];
    bootstrap.estimates(training, &arms, 1, |drawn, out| out[0] = probability_of_improvement(&drawn[0][0], &drawn[1][0]))[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::seed::Seeds;
    use proptest::prelude::*;

    #[test]
    fn wins_and_ties_by_hand() {
        // task 1: 2 beats 1, ties with 2; 0 loses twice: 1½ of 4. task 2: both beat both: 4 of 4
        let x = Scores::of_rows(&[[2.0, 9.0], [0.0, 8.0]]);
        let y = Scores::of_rows(&[[1.0, 1.0], [2.0, 2.0]]);
        assert_eq!(probability_of_improvement(&x, &y), (1.5 / 4.0 + 1.0) / 2.0);
        // numbers of runs may differ: 5 beats two of three
        let (one, three) = (Scores::of_rows(&[[5.0]]), Scores::of_rows(&[[1.0], [4.0], [6.0]]));
        assert_eq!(probability_of_improvement(&one, &three), 2.0 / 3.0);
    }

    #[test]
    fn arms_that_are_equal_improve_half_of_the_time() {
        let x = Scores::of_rows(&[[0.1], [0.2], [0.3], [0.4], [0.5]]);
        let got = improvement(&x, &x, Training::ForAllTasks, &Bootstrap::of_curves(Seeds(0)));
        assert_eq!(got.point, 0.5);
        let interval = got.interval.unwrap();
        // Drawn with the same runs, both arms would always tie.
        assert!(interval.low < 0.3 && interval.high > 0.7, "{interval:?}");
    }

    fn rows(n_tasks: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
        // few values, so that ties are common
        prop::collection::vec(prop::collection::vec((0u8..4).prop_map(f64::from), n_tasks), 1..6)
    }

    proptest! {
        #[test]
        fn one_direction_and_the_other_are_all((x, y) in (1usize..4).prop_flat_map(|tasks| (rows(tasks), rows(tasks)))) {
            let (x, y) = (Scores::of_rows(&x), Scores::of_rows(&y));
            let (there, back) = (probability_of_improvement(&x, &y), probability_of_improvement(&y, &x));
            prop_assert!((there + back - 1.0).abs() < 1e-12 && (0.0..=1.0).contains(&there), "{there} {back}");
        }

        #[test]
        fn only_the_order_of_scores_counts((x, y) in (1usize..4).prop_flat_map(|tasks| (rows(tasks), rows(tasks)))) {
            let bent = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
                rows.iter().map(|run| run.iter().map(|v| v.exp()).collect()).collect()
            };
            let straight = probability_of_improvement(&Scores::of_rows(&x), &Scores::of_rows(&y));
            let curved = probability_of_improvement(&Scores::of_rows(&bent(&x)), &Scores::of_rows(&bent(&y)));
            prop_assert_eq!(straight, curved);
        }
    }
}
