//! Scores along a budget.
//!
//! Runs are measured at positions of their own: after so many updates, which one arm reaches with more tokens than another. At a
//! common position a run counts with the last score that was measured at or before it. Between measurements nothing is drawn, and
//! nothing at all before the first or after the last: a run that ended at 1 M tokens says nothing about 2 M.

use rayon::prelude::*;

use crate::aggregate::Metric;
use crate::bootstrap::{Bootstrap, Estimate};
use crate::error::StudyError;
use crate::scores::Scores;
use crate::table::{Arm, Range, Run, Table, Training, check_arms, check_names, check_number, check_scores};

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// Updates of the policy.
    Updates,
    /// Steps of environments, those done again to restore a state too.
    EnvSteps,
    /// Tokens that the actor sampled.
    ActorTokens,
    /// Tokens that anything sampled or read for it: actor, critics, branches.
    AllTokens,
    /// Seconds of wall clock.
    Seconds,
}

impl Axis {
    /// All of them.
    pub const ALL: [Axis; 5] = [Axis::Updates, Axis::EnvSteps, Axis::ActorTokens, Axis::AllTokens, Axis::Seconds];

    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Updates => "updates",
            Axis::EnvSteps => "env steps",
            Axis::ActorTokens => "actor tokens",
            Axis::AllTokens => "all tokens",
            Axis::Seconds => "seconds",
        }
    }

    /// What options and files call it.
    pub fn key(self) -> &'static str {
        match self {
            Axis::Updates => "updates",
            Axis::EnvSteps => "env-steps",
            Axis::ActorTokens => "actor-tokens",
            Axis::AllTokens => "tokens",
            Axis::Seconds => "seconds",
        }
    }
}

/// A run measured once.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// What was spent by then, `[axes]` in the order of the curves' axes, each 0 or more.
    pub spent: Vec<f64>,
    /// Scores then, `[tasks]`.
    pub scores: Vec<f64>,
}

/// An arm of [`Curves`].
#[derive(Clone, Debug, PartialEq)]
struct ArmCurves {
    name: String,
    /// By seed: the points, or why there are none.
    runs: Vec<Run<Vec<Point>>>,
}

impl ArmCurves {
    /// Seed and points of each run that finished.
    fn finished(&self) -> impl Iterator<Item = (u64, &[Point])> {
        self.runs.iter().filter_map(|run| run.result.as_ref().ok().map(|points| (run.seed, points.as_slice())))
    }
}

/// Scores of arms on the same tasks along the same budget axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    tasks: Vec<String>,
    axes: Vec<Axis>,
    range: Range,
    training: Training,
    arms: Vec<ArmCurves>,
}

impl Curves {
    /// Curves of results.
    ///
    /// * `tasks`: names, `[tasks]`.
    /// * `axes`: what is counted, each once.
    /// * `arms`: each run with its points in order, at least one, or the reason why it failed.
    ///
    /// # Errors
    /// As for [`Table::new`]; an axis that is given twice; a run without points; a position that is not finite, is below 0, or
    /// falls.
    pub fn new(
        tasks: Vec<String>,
        axes: Vec<Axis>,
        range: Range,
        training: Training,
        arms: Vec<Arm<Vec<Point>>>,
    ) -> Result<Curves, StudyError> {
        check_names("task", tasks.iter())?;
        if axes.is_empty() {
            return Err(StudyError::Empty { what: "budget axes".into() });
        }
        if let Some((_, twice)) = axes.iter().enumerate().find(|(i, axis)| axes[..*i].contains(axis)) {
            return Err(StudyError::Twice { what: format!("axis `{}`", twice.name()) });
        }
        check_arms(&arms)?;
        let of_arm = |Arm { name, mut runs }: Arm<Vec<Point>>| {
            runs.sort_by_key(|run| run.seed);
            for run in &runs {
                if let Ok(points) = &run.result {
                    check_points(points, &tasks, &axes, range, &name, run.seed)?;
                }
            }
            Ok(ArmCurves { name, runs })
        };
        let arms = arms.into_iter().map(of_arm).collect::<Result<_, StudyError>>()?;
        Ok(Curves { tasks, axes, range, training, arms })
    }

    /// Names of the arms, in the order in which they were given.
    pub fn arms(&self) -> impl Iterator<Item = &str> {
        self.arms.iter().map(|arm| arm.name.as_str())
    }

    /// The same scores along another axis.
    ///
    /// * `positions`: of an arm's seed and its points, the position of each, `[points]`, 0 or more; or why there are none, and the
    ///   run is one that failed on this axis.
    ///
    /// # Errors
    /// As for [`Curves::new`].
    pub fn along<F>(&self, axis: Axis, mut positions: F) -> Result<Curves, StudyError>
    where
        F: FnMut(&str, u64, &[Point]) -> Result<Vec<f64>, String>,
    {
        let mut of_run = |arm: &str, run: &Run<Vec<Point>>| {
            let moved = |points: &Vec<Point>| {
                let at = positions(arm, run.seed, points)?;
                Ok(points.iter().zip(at).map(|(point, at)| Point { spent: vec![at], scores: point.scores.clone() }).collect())
            };
            Run { seed: run.seed, result: run.result.as_ref().map_err(String::clone).and_then(moved) }
        };
        let of_arm =
            |arm: &ArmCurves| Arm { name: arm.name.clone(), runs: arm.runs.iter().map(|run| of_run(&arm.name, run)).collect() };
        let arms = self.arms.iter().map(of_arm).collect();
        Curves::new(self.tasks.clone(), vec![axis], self.range, self.training, arms)
    }

    /// First and last position on the axis at which every run of every arm can be read; `None` if there is none, or no run
    /// finished.
    ///
    /// # Errors
    /// If nothing was counted on this axis.
    pub fn shared_span(&self, axis: Axis) -> Result<Option<(f64, f64)>, StudyError> {
        let axis = self.axis(axis)?;
        Ok(span(self.arms.iter().flat_map(ArmCurves::finished).map(|(_, points)| points), axis))
    }

    /// All arms at one position of an axis: a table at equal budget. Runs that failed have failed there too.
    ///
    /// # Errors
    /// If nothing was counted on this axis, or a run was not measured that early or late.
    pub fn at(&self, axis: Axis, position: f64) -> Result<Table, StudyError> {
        Ok(self.near(axis, position, 0.0)?.0)
    }

    /// All arms near one position of an axis, and where the oldest measurement lies that was read; `None` where no run finished.
    ///
    /// * `slack`: share of the position by which a measurement may lie behind it, 0 or more. A run that ends with its budget is
    ///   measured up to an update behind it.
    ///
    /// # Errors
    /// As [`Curves::at`].
    pub fn near(&self, axis: Axis, position: f64, slack: f64) -> Result<(Table, Option<f64>), StudyError> {
        let place = self.axis(axis)?;
        let mut oldest: Option<f64> = None;
        let mut of_run = |arm: &ArmCurves, run: &Run<Vec<Point>>| {
            let result = match &run.result {
                Err(reason) => Err(reason.clone()),
                Ok(points) => {
                    let point = read(points, place, position, slack).ok_or_else(|| StudyError::NotMeasured {
                        arm: arm.name.clone(),
                        seed: run.seed,
                        axis: axis.name(),
                        from: points[0].spent[place],
                        to: points[points.len() - 1].spent[place],
                        position,
                    })?;
                    oldest = Some(oldest.map_or(point.spent[place], |x| x.min(point.spent[place])));
                    Ok(point.scores.clone())
                }
            };
            Ok(Run { seed: run.seed, result })
        };
        let of_arm = |arm: &ArmCurves| {
            let runs = arm.runs.iter().map(|run| of_run(arm, run)).collect::<Result<_, StudyError>>()?;
            Ok(Arm { name: arm.name.clone(), runs })
        };
        let arms = self.arms.iter().map(of_arm).collect::<Result<_, StudyError>>()?;
        Ok((Table::new(self.tasks.clone(), self.range, self.training, arms)?, oldest))
    }

    /// Place of the axis among those counted.
    fn axis(&self, axis: Axis) -> Result<usize, StudyError> {
        self.axes.iter().position(|a| *a == axis).ok_or_else(|| StudyError::Unknown {
            what: "axis",
            name: axis.name().to_string(),
            known: self.axes.iter().map(|axis| axis.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

/// Where curves are read.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// Wherever a run of the arm was measured.
    Measured,
    /// Wherever a run of the arm was measured, where that is at no more than so many positions; else at so many of them, the first
    /// and the last among them.
    MeasuredAtMost(usize),
    /// At so many positions, evenly from the first to the last that all runs of the arm reach.
    Even(usize),
    /// At these, as far as all runs of the arm reach them.
    Given(Vec<f64>),
}

/// One arm along one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct EfficiencyCurve {
    /// The arm.
    pub arm: String,
    /// The axis.
    pub axis: Axis,
    /// Runs that finished: what the numbers are of.
    pub n_runs: usize,
    /// Runs that failed, and are in no number.
    pub n_failed: usize,
    /// Positions, ascending; none if no run finished, or no position was reached by all.
    pub positions: Vec<f64>,
    /// The metric at each, `[positions]`, with its interval.
    pub estimates: Vec<Estimate>,
}

/// Sample-efficiency curve of each arm: a metric of its runs at common positions of an axis.
///
/// * `positions`: where; each arm is read from the latest of its runs' first positions to the earliest of their last.
/// * `bootstrap`: [`Bootstrap::of_curves`] as the field does. Runs are drawn as whole curves; bands hold for each position by
///   itself.
///
/// # Errors
/// If nothing was counted on this axis.
pub fn sample_efficiency(
    curves: &Curves,
    axis: Axis,
    positions: &Positions,
    metric: Metric,
    bootstrap: &Bootstrap,
) -> Result<Vec<EfficiencyCurve>, StudyError> {
    let place = curves.axis(axis)?;
    let of_arm = |arm: &ArmCurves| {
        let runs: Vec<&[Point]> = arm.finished().map(|(_, points)| points).collect();
        let positions = common_positions(&runs, place, positions);
        let at = |position: &f64| {
            let scores_of = |points| &read(points, place, *position, 0.0).expect("the position lies within every run").scores;
            let scores: Vec<&[f64]> = runs.iter().map(|points| scores_of(points).as_slice()).collect();
            Scores::of_rows(&scores)
        };
        let scores: Vec<Scores> = positions.par_iter().map(at).collect();
        let estimates = if scores.is_empty() {
            Vec::new()
        } else {
            bootstrap.estimates(curves.training, &[&scores], scores.len(), |drawn, out| {
                out.iter_mut().zip(&drawn[0]).for_each(|(out, scores)| *out = metric.of(scores));
            })
        };
        let n_failed = arm.runs.len() - runs.len();
        EfficiencyCurve { arm: arm.name.clone(), axis, n_runs: runs.len(), n_failed, positions, estimates }
    };
    Ok(curves.arms.iter().map(of_arm).collect())
}

/// The last measurement at or before the position, or behind it within a share `slack` of it; `None` before the first and after the
/// last.
fn read(points: &[Point], axis: usize, position: f64, slack: f64) -> Option<&Point> {
    let last = points.last()?;
    let reached = points.partition_point(|point| point.spent[axis] <= position * (1.0 + slack));
    let measured = reached > 0 && position <= last.spent[axis];
    measured.then(|| &points[reached - 1])
}

/// First and last position that all of these runs reach.
fn span<'a>(runs: impl Iterator<Item = &'a [Point]>, axis: usize) -> Option<(f64, f64)> {
    let ends = runs.map(|points| (points[0].spent[axis], points[points.len() - 1].spent[axis]));
    let (from, to) = ends.reduce(|(from, to), (first, last)| (from.max(first), to.min(last)))?;
    (from <= to).then_some((from, to))
}

fn common_positions(runs: &[&[Point]], axis: usize, positions: &Positions) -> Vec<f64> {
    let Some((from, to)) = span(runs.iter().copied(), axis) else { return Vec::new() };
    let mut out = match positions {
        Positions::Measured | Positions::MeasuredAtMost(_) => {
            runs.iter().flat_map(|points| points.iter().map(|point| point.spent[axis])).collect()
        }
        Positions::Given(given) => given.clone(),
        Positions::Even(0) => Vec::new(),
        Positions::Even(1) => vec![to],
        Positions::Even(n) => {
            let step = |i: usize| from + (to - from) * i as f64 / (n - 1) as f64;
            // The last by itself: rounding must not carry it beyond the end.
            (0..n - 1).map(step).chain([to]).collect::<Vec<f64>>()
        }
    };
    out.retain(|position| (from..=to).contains(position));
    out.sort_unstable_by(f64::total_cmp);
    out.dedup();
    match positions {
        Positions::MeasuredAtMost(most) if out.len() > *most => thinned(&out, *most),
        _ => out,
    }
}

/// So many of the positions, as evenly as they go; fewer than there are.
fn thinned(positions: &[f64], n: usize) -> Vec<f64> {
    let last = positions.len() - 1;
    match n {
        0 => Vec::new(),
        1 => vec![positions[last]],
        n => (0..n).map(|i| positions[i * last / (n - 1)]).collect(),
    }
}

fn check_points(points: &[Point], tasks: &[String], axes: &[Axis], range: Range, arm: &str, seed: u64) -> Result<(), StudyError> {
    if points.is_empty() {
        return Err(StudyError::Empty { what: format!("arm `{arm}`, seed {seed}: points") });
    }
    let mut before: Option<&Point> = None;
    for (i, point) in points.iter().enumerate() {
        if point.spent.len() != axes.len() {
            let (got, want) = (point.spent.len(), axes.len());
            return Err(StudyError::Ragged { arm: arm.to_string(), seed, what: "positions", got, want, of: "axes" });
        }
        for (at, axis) in axes.iter().enumerate() {
            let spent = point.spent[at];
            check_number(Range::FROM_ZERO, spent, arm, seed, || format!("`{}` of point {}", axis.name(), i + 1))?;
            if let Some(before) = before.map(|point| point.spent[at]).filter(|before| spent < *before) {
                let (axis, point, after) = (axis.name(), i + 1, spent);
                return Err(StudyError::Backwards { arm: arm.to_string(), seed, axis, point, before, after });
            }
        }
        check_scores(&point.scores, tasks, range, arm, seed)?;
        before = Some(point);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::seed::Seeds;
    use proptest::prelude::*;

    /// A run with (updates, tokens, score) of each point.
    fn run(seed: u64, points: &[(f64, f64, f64)]) -> Run<Vec<Point>> {
        let point = |(updates, tokens, score): &(f64, f64, f64)| Point { spent: vec![*updates, *tokens], scores: vec![*score] };
        Run { seed, result: Ok(points.iter().map(point).collect()) }
    }

    fn curves(arms: Vec<(&str, Vec<Run<Vec<Point>>>)>) -> Result<Curves, StudyError> {
        let arms = arms.into_iter().map(|(name, runs)| Arm { name: name.into(), runs }).collect();
        Curves::new(vec!["test".into()], vec![Axis::Updates, Axis::ActorTokens], Range::UNIT, Training::ForAllTasks, arms)
    }

    fn two_runs() -> Vec<Run<Vec<Point>>> {
        vec![
            run(1, &[(0.0, 0.0, 0.1), (10.0, 100.0, 0.3), (20.0, 250.0, 0.5)]),
            run(2, &[(0.0, 50.0, 0.2), (10.0, 90.0, 0.4), (20.0, 200.0, 0.6)]),
        ]
    }

    fn bootstrap() -> Bootstrap {
        Bootstrap { repetitions: 100, ..Bootstrap::of_curves(Seeds(0)) }
    }

    fn means(curves: &Curves, axis: Axis, positions: Positions) -> Vec<(f64, f64)> {
        let curve = sample_efficiency(curves, axis, &positions, Metric::Mean, &bootstrap()).unwrap().remove(0);
        curve.positions.iter().copied().zip(curve.estimates.iter().map(|e| (e.point * 1e9).round() / 1e9)).collect()
    }

    #[test]
    fn runs_meet_at_common_positions_by_hand() {
        let curves = curves(vec![("a", two_runs())]).unwrap();
        assert_eq!(means(&curves, Axis::Updates, Positions::Measured), [(0.0, 0.15), (10.0, 0.35), (20.0, 0.55)]);
        // tokens: both can be read from 50 to 200. At 50 run 1 still has 0.1; at 90 run 2 moves to 0.4; at 100 run 1 to 0.3; at
        // 200 run 2 to 0.6
        let want = [(50.0, 0.15), (90.0, 0.25), (100.0, 0.35), (200.0, 0.45)];
        assert_eq!(means(&curves, Axis::ActorTokens, Positions::Measured), want);
        assert_eq!(means(&curves, Axis::ActorTokens, Positions::Even(3)), [(50.0, 0.15), (125.0, 0.35), (200.0, 0.45)]);
        assert_eq!(means(&curves, Axis::ActorTokens, Positions::Even(1)), [(200.0, 0.45)]);
    }

    #[test]
    fn many_positions_are_thinned_and_keep_their_ends() {
        let points: Vec<(f64, f64, f64)> = (0..100).map(|i| (f64::from(i), f64::from(i * i), 0.5)).collect();
        let curves = curves(vec![("a", vec![run(1, &points)])]).unwrap();
        let at = |positions| means(&curves, Axis::ActorTokens, positions).into_iter().map(|(at, _)| at).collect::<Vec<f64>>();
        assert_eq!(at(Positions::MeasuredAtMost(100)), at(Positions::Measured));
        assert_eq!(at(Positions::MeasuredAtMost(4)), [0.0, 33.0 * 33.0, 66.0 * 66.0, 99.0 * 99.0]);
        assert_eq!(at(Positions::MeasuredAtMost(1)), [99.0 * 99.0]);
        assert!(at(Positions::MeasuredAtMost(0)).is_empty());
    }

    #[test]
    fn scores_are_laid_along_another_axis() {
        let curves = curves(vec![("a", two_runs())]).unwrap();
        let clock = |_: &str, seed: u64, points: &[Point]| match seed {
            1 => Ok(points.iter().map(|point| point.spent[0] * 2.0).collect()),
            _ => Err("no clock".to_string()),
        };
        let along = curves.along(Axis::Seconds, clock).unwrap();
        assert_eq!(means(&along, Axis::Seconds, Positions::Measured), [(0.0, 0.1), (20.0, 0.3), (40.0, 0.5)]);
        assert_eq!(along.at(Axis::Seconds, 20.0).unwrap().arms()[0].failures[0].reason, "no clock");
        let backwards = curves.along(Axis::Seconds, |_, _, points| Ok(points.iter().map(|p| -p.spent[0]).collect()));
        assert!(backwards.is_err());
    }

    #[test]
    fn a_measurement_just_behind_the_position_counts_with_slack() {
        // The first run ends at 100 tokens, the second is measured at 90 and at 103.
        let first = run(1, &[(0.0, 0.0, 0.1), (10.0, 100.0, 0.3)]);
        let second = run(2, &[(0.0, 0.0, 0.2), (9.0, 90.0, 0.4), (10.0, 103.0, 0.9)]);
        let curves = curves(vec![("a", vec![first, second])]).unwrap();
        let mean = |slack| {
            let (table, oldest) = curves.near(Axis::ActorTokens, 100.0, slack).unwrap();
            (table.arm("a").unwrap().run_means().map(|(_, x)| x).collect::<Vec<f64>>(), oldest)
        };
        assert_eq!(mean(0.0), (vec![0.3, 0.4], Some(90.0)));
        assert_eq!(mean(0.02), (vec![0.3, 0.4], Some(90.0)));
        assert_eq!(mean(0.03), (vec![0.3, 0.9], Some(100.0)));
        assert!(curves.near(Axis::ActorTokens, 101.0, 0.5).is_err(), "slack extrapolates nothing");
    }

    #[test]
    fn nothing_is_extrapolated() {
        let curves = curves(vec![("a", two_runs())]).unwrap();
        let given = Positions::Given(vec![300.0, 49.0, 200.0, 50.0, 201.0]);
        assert_eq!(means(&curves, Axis::ActorTokens, given), [(50.0, 0.15), (200.0, 0.45)]);
        let late = curves.at(Axis::ActorTokens, 250.0).unwrap_err().to_string();
        assert!(late.starts_with("arm `a`, seed 2 was measured from 50 to 200 actor tokens, not at 250"), "{late}");
        assert!(curves.at(Axis::ActorTokens, 49.0).is_err());
    }

    #[test]
    fn arms_are_read_at_equal_budget() {
        let dear = vec![run(1, &[(0.0, 0.0, 0.1), (10.0, 400.0, 0.9)]), run(2, &[(0.0, 0.0, 0.1), (10.0, 400.0, 0.9)])];
        let curves = curves(vec![("cheap", two_runs()), ("dear", dear)]).unwrap();
        assert_eq!(curves.shared_span(Axis::ActorTokens), Ok(Some((50.0, 200.0))));
        let mean = |table: &Table, arm: &str| Metric::Mean.of(table.arm(arm).unwrap().scores.as_ref().unwrap());
        // after 10 updates the dear arm leads; for 200 tokens it has nothing to show
        let by_updates = curves.at(Axis::Updates, 10.0).unwrap();
        assert!((mean(&by_updates, "cheap") - 0.35).abs() < 1e-12 && mean(&by_updates, "dear") == 0.9);
        let by_tokens = curves.at(Axis::ActorTokens, 200.0).unwrap();
        assert!((mean(&by_tokens, "cheap") - 0.45).abs() < 1e-12 && mean(&by_tokens, "dear") == 0.1);
    }

    #[test]
    fn at_a_position_that_stood_still_the_last_score_counts() {
        // two phases that spend no actor tokens
        let still = vec![run(1, &[(0.0, 0.0, 0.1), (1.0, 0.0, 0.2), (2.0, 5.0, 0.3)])];
        assert_eq!(means(&curves(vec![("a", still)]).unwrap(), Axis::ActorTokens, Positions::Measured), [(0.0, 0.2), (5.0, 0.3)]);
    }

    #[test]
    fn runs_that_never_meet_have_no_curve() {
        let apart = vec![run(1, &[(0.0, 0.0, 0.1)]), run(2, &[(1.0, 1.0, 0.1)])];
        let broken = vec![Run { seed: 1, result: Err("out of memory".into()) }];
        let curves = curves(vec![("apart", apart), ("broken", broken)]).unwrap();
        let found = sample_efficiency(&curves, Axis::Updates, &Positions::Measured, Metric::Iqm, &bootstrap()).unwrap();
        assert_eq!(
            found.iter().map(|c| (c.n_runs, c.n_failed, c.positions.len(), c.estimates.len())).collect::<Vec<_>>(),
            [(2, 0, 0, 0), (0, 1, 0, 0)]
        );
        assert_eq!(curves.shared_span(Axis::Updates), Ok(None));
    }

    #[test]
    fn odd_curves_are_refused_with_their_place() {
        let refused = |runs| curves(vec![("a", runs)]).unwrap_err().to_string();
        assert_eq!(refused(vec![run(4, &[])]), "arm `a`, seed 4: points: at least one is needed");
        assert_eq!(
            refused(vec![run(4, &[(1.0, 9.0, 0.1), (2.0, 8.0, 0.1)])]),
            "arm `a`, seed 4: actor tokens fall from 9 to 8 at point 2"
        );
        assert!(
            refused(vec![run(4, &[(-1.0, 0.0, 0.1)])]).starts_with("arm `a`, seed 4: `updates` of point 1 is -1, and must be")
        );
        assert!(refused(vec![run(4, &[(0.0, f64::INFINITY, 0.1)])]).contains("`actor tokens` of point 1 is inf"));
        assert!(refused(vec![run(4, &[(0.0, 0.0, f64::NAN)])]).contains("the score on task `test` is NaN, and must be in 0..=1"));
        let short = Run { seed: 4, result: Ok(vec![Point { spent: vec![1.0], scores: vec![0.5] }]) };
        assert_eq!(refused(vec![short]), "arm `a`, seed 4: 1 positions where there are 2 axes");
        let curves = curves(vec![("a", two_runs())]).unwrap();
        assert_eq!(
            curves.at(Axis::Seconds, 1.0).unwrap_err().to_string(),
            "there is no axis `seconds`; there are: updates, actor tokens"
        );
        let twice = Curves::new(vec!["t".into()], vec![Axis::Updates; 2], Range::UNIT, Training::PerTask, vec![]);
        assert_eq!(twice.unwrap_err().to_string(), "axis `updates` is given twice: one of the two would be counted as the other");
    }

    proptest! {
        #[test]
        fn a_curve_at_a_position_is_the_table_at_that_position(
            runs in prop::collection::vec(prop::collection::vec((0.0..5.0f64, 0.0..1.0f64), 1..6), 3..6),
            at in 0.0..20.0f64,
        ) {
            let of_run = |(seed, steps): (usize, &Vec<(f64, f64)>)| {
                let mut spent = 0.0;
                let mut point = |(step, score): &(f64, f64)| { spent += step; (spent, spent * 2.0, *score) };
                run(seed as u64, &steps.iter().map(&mut point).collect::<Vec<_>>())
            };
            let curves = curves(vec![("a", runs.iter().enumerate().map(of_run).collect())]).unwrap();
            let given = Positions::Given(vec![at]);
            let curve = sample_efficiency(&curves, Axis::Updates, &given, Metric::Iqm, &bootstrap()).unwrap().remove(0);
            match curves.at(Axis::Updates, at) {
                Ok(table) => {
                    let summary = crate::summarise(&table, &[Metric::Iqm], &bootstrap()).remove(0);
                    prop_assert_eq!(Some(curve.estimates[0]), summary.estimates[0].1);
                }
                Err(_) => prop_assert!(curve.positions.is_empty()),
            }
        }
    }
}
