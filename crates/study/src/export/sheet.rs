//! Results as a table of cells.

use crate::aggregate::Summary;
use crate::bootstrap::Estimate;
use crate::compare::Comparison;
use crate::curves::EfficiencyCurve;
use crate::power::Replication;
use crate::profile::Profile;
use crate::table::Table;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// One number.
    Number,
    /// A number and its interval: one cell to read, three in CSV.
    Estimate,
}

/// A column of a [`Sheet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
}

/// A cell of a [`Sheet`].
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A number and its interval.
    Estimate(Estimate),
    /// There is none: not 0, and not `NaN`.
    Missing,
}

/// A table of cells, to be written as CSV, Markdown or LaTeX.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// The columns.
    pub columns: Vec<Column>,
    /// Rows, each of one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// What a reader must know beside the numbers: too few seeds, runs that failed. Written below the table; CSV has none.
    pub notes: Vec<String>,
}

impl Sheet {
    /// Every score: a row for each arm, seed and task, and one for each run that failed.
    pub fn of_scores(table: &Table) -> Sheet {
        let columns = columns(&[
            ("arm", Kind::Text),
            ("seed", Kind::Number),
            ("task", Kind::Text),
            ("score", Kind::Number),
            ("failure", Kind::Text),
        ]);
        let mut rows = Vec::new();
        for arm in table.arms() {
            let finished = arm.finished().flat_map(|(seed, scores)| {
                table.tasks().iter().zip(scores).map(move |(task, score)| {
                    vec![text(&arm.name), Cell::Count(seed), text(task), Cell::Number(*score), Cell::Missing]
                })
            });
            rows.extend(finished);
            let failed = |failure: &crate::Failure| {
                vec![text(&arm.name), Cell::Count(failure.seed), Cell::Missing, Cell::Missing, text(&failure.reason)]
            };
            rows.extend(arm.failures.iter().map(failed));
        }
        Sheet { columns, rows, notes: Vec::new() }
    }

    /// A row for each arm: runs, failures, and each metric.
    ///
    /// * `summaries`: of one call of [`summarise`](crate::summarise), so that all have the same metrics.
    pub fn of_summaries(summaries: &[Summary]) -> Sheet {
        let metrics = summaries.first().map_or(&[][..], |summary| &summary.estimates);
        let mut columns = columns(&[("arm", Kind::Text), ("runs", Kind::Number), ("failed", Kind::Number)]);
        columns.extend(metrics.iter().map(|(metric, _)| Column { name: metric.name().into(), kind: Kind::Estimate }));
        let row = |summary: &Summary| {
            let mut row = vec![text(&summary.arm), count(summary.n_runs), count(summary.n_failed)];
            row.extend(summary.estimates.iter().map(|(_, estimate)| estimate_or_missing(*estimate)));
            row
        };
        let notes = summaries.iter().flat_map(|s| notes(&s.arm, s.n_runs, s.n_failed)).collect();
        Sheet { columns, rows: summaries.iter().map(row).collect(), notes }
    }

    /// A row for each arm against the baseline.
    pub fn of_comparisons(comparisons: &[Comparison]) -> Sheet {
        let columns = columns(&[
            ("arm", Kind::Text),
            ("baseline", Kind::Text),
            ("pairs", Kind::Number),
            ("unpaired", Kind::Number),
            ("difference", Kind::Estimate),
            ("smallest detectable", Kind::Number),
            ("p (t)", Kind::Number),
            ("p (signs)", Kind::Number),
            ("p (ranks)", Kind::Number),
            ("p (Holm)", Kind::Number),
            ("P(improvement)", Kind::Estimate),
            ("verdict", Kind::Text),
        ]);
        let row = |c: &Comparison| {
            vec![
                text(&c.arm),
                text(&c.baseline),
                count(c.seeds.len()),
                count(c.unpaired.len()),
                estimate_or_missing(c.difference),
                number_or_missing(c.smallest_detectable),
                number_or_missing(c.tests.and_then(|tests| tests.t)),
                number_or_missing(c.tests.map(|tests| tests.sign_flip)),
                number_or_missing(c.tests.map(|tests| tests.signed_rank)),
                number_or_missing(c.corrected),
                estimate_or_missing(c.improvement),
                text(&c.verdict.to_string()),
            ]
        };
        let notes = comparisons.iter().flat_map(|c| notes(&c.arm, c.seeds.len(), 0)).collect();
        Sheet { columns, rows: comparisons.iter().map(row).collect(), notes }
    }

    /// A row for each arm and threshold.
    pub fn of_profiles(profiles: &[Profile]) -> Sheet {
        let columns = columns(&[("arm", Kind::Text), ("threshold", Kind::Number), ("share above", Kind::Estimate)]);
        let rows = |profile: &Profile| along(&profile.arm, &profile.thresholds, &profile.shares);
        let notes = profiles.iter().flat_map(|p| notes(&p.arm, p.n_runs, p.n_failed)).collect();
        Sheet { columns, rows: profiles.iter().flat_map(rows).collect(), notes }
    }

    /// A row for each arm and position.
    ///
    /// * `curves`: of one call of [`sample_efficiency`](crate::sample_efficiency), so that all have the same axis.
    /// * `metric`: what the numbers are.
    pub fn of_curves(curves: &[EfficiencyCurve], metric: &str) -> Sheet {
        let axis = curves.first().map_or("position", |curve| curve.axis.name());
        let columns = columns(&[("arm", Kind::Text), (axis, Kind::Number), (metric, Kind::Estimate)]);
        let rows = |curve: &EfficiencyCurve| along(&curve.arm, &curve.positions, &curve.estimates);
        let notes = curves.iter().flat_map(|c| notes(&c.arm, c.n_runs, c.n_failed)).collect();
        Sheet { columns, rows: curves.iter().flat_map(rows).collect(), notes }
    }
}

/// What must be said of an arm's numbers.
fn notes(arm: &str, n_runs: usize, n_failed: usize) -> Vec<String> {
    let failed = (n_failed > 0).then(|| format!("{n_failed} of {} runs failed and are in no number", n_runs + n_failed));
    Replication::of(n_runs).advice().into_iter().chain(failed).map(|note| format!("{arm}: {note}")).collect()
}

/// Rows of one arm: where, and the number there.
fn along(arm: &str, at: &[f64], estimates: &[Estimate]) -> Vec<Vec<Cell>> {
    at.iter().zip(estimates).map(|(at, estimate)| vec![text(arm), Cell::Number(*at), Cell::Estimate(*estimate)]).collect()
}

fn columns(of: &[(&str, Kind)]) -> Vec<Column> {
    of.iter().map(|(name, kind)| Column { name: name.to_string(), kind: *kind }).collect()
}

fn text(x: &str) -> Cell {
    Cell::Text(x.to_string())
}

fn count(x: usize) -> Cell {
    Cell::Count(x as u64)
}

fn number_or_missing(x: Option<f64>) -> Cell {
    x.map_or(Cell::Missing, Cell::Number)
}

fn estimate_or_missing(x: Option<Estimate>) -> Cell {
    x.map_or(Cell::Missing, Cell::Estimate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Arm, Range, Run, Training};
    use crate::{Axis, Bootstrap, Comparing, Curves, Metric, Point, Positions, compare, profile, sample_efficiency, summarise};
    use ascribe_core::seed::Seeds;

    fn bootstrap() -> Bootstrap {
        Bootstrap { repetitions: 100, ..Bootstrap::of_curves(Seeds(0)) }
    }

    fn arm<T: Clone>(name: &str, results: &[Result<T, &str>]) -> Arm<T> {
        let run =
            |(seed, result): (usize, &Result<T, &str>)| Run { seed: seed as u64, result: result.clone().map_err(String::from) };
        Arm { name: name.into(), runs: results.iter().enumerate().map(run).collect() }
    }

    fn table() -> Table {
        let full = [0.5, 0.5, 0.5, 0.5, 0.5].map(|x| Ok(vec![x]));
        let arms = vec![arm("grpo", &full), arm("gigpo", &[Ok(vec![0.25]), Err("killed, by \"us\""), Ok(vec![0.25])])];
        Table::new(vec!["test".into()], Range::UNIT, Training::ForAllTasks, arms).unwrap()
    }

    #[test]
    fn failures_and_few_seeds_are_written_with_the_numbers() {
        let csv = Sheet::of_scores(&table()).to_csv();
        assert!(csv.starts_with("arm,seed,task,score,failure\r\ngrpo,0,test,0.5,\r\n"), "{csv}");
        assert!(csv.ends_with("gigpo,2,test,0.25,\r\ngigpo,1,,,\"killed, by \"\"us\"\"\"\r\n"), "{csv}");

        let summary = Sheet::of_summaries(&summarise(&table(), &[Metric::Iqm, Metric::Mean], &bootstrap()));
        let markdown = summary.to_markdown(2);
        let want = "| arm | runs | failed | IQM | mean |\n\
                    | --- | ---: | ---: | ---: | ---: |\n\
                    | grpo | 5 | 0 | 0.50 [0.50, 0.50] | 0.50 [0.50, 0.50] |\n\
                    | gigpo | 2 | 1 | 0.25 | 0.25 |\n\
                    \n\
                    * gigpo: 2 seeds: no interval and no test";
        assert!(markdown.starts_with(want), "{markdown}");
        assert!(markdown.ends_with("\n* gigpo: 1 of 3 runs failed and are in no number\n"), "{markdown}");
        let latex = summary.to_latex(2);
        assert!(latex.ends_with("{\\footnotesize gigpo: 1 of 3 runs failed and are in no number\\par}\n"), "{latex}");
        assert_eq!(Sheet::of_profiles(&profile(&table(), &[0.3], &bootstrap())).notes, summary.notes);
    }

    #[test]
    fn comparisons_say_what_they_could_not_test() {
        let found = compare(&table(), "grpo", &Comparing::new(bootstrap())).unwrap();
        let sheet = Sheet::of_comparisons(&found);
        let csv = sheet.to_csv();
        let row = csv.lines().nth(1).unwrap();
        // no interval, no p, no smallest difference; the probability of improvement has a point
        let want = "gigpo,grpo,2,3,-0.25,,,,,,,,0,,,\"undecided: 2 pairs of runs with the same seed, where 3 are needed\"";
        assert_eq!(row, want);
        assert_eq!(csv.lines().next().unwrap().split(',').count(), 16);
        assert!(sheet.notes[0].starts_with("gigpo: 2 seeds: no interval"), "{:?}", sheet.notes);
    }

    #[test]
    fn profiles_and_curves_are_long_tables() {
        let profiles = Sheet::of_profiles(&profile(&table(), &[0.3, 0.6], &bootstrap())).to_csv();
        let want = "arm,threshold,share above,share above low,share above high\r\n\
                    grpo,0.3,1,1,1\r\ngrpo,0.6,0,0,0\r\ngigpo,0.3,0,,\r\ngigpo,0.6,0,,\r\n";
        assert_eq!(profiles, want);
        let points = [0.0, 8.0].map(|tokens| Point { spent: vec![tokens], scores: vec![tokens / 10.0] }).to_vec();
        let arms = vec![arm("x", &[Ok(points.clone()), Ok(points)])];
        let axes = vec![Axis::AllTokens];
        let curves = Curves::new(vec!["test".into()], axes, Range::UNIT, Training::ForAllTasks, arms).unwrap();
        let found = sample_efficiency(&curves, Axis::AllTokens, &Positions::Measured, Metric::Mean, &bootstrap()).unwrap();
        let sheet = Sheet::of_curves(&found, "mean");
        assert_eq!(sheet.to_csv(), "arm,all tokens,mean,mean low,mean high\r\nx,0,0,,\r\nx,8,0.8,,\r\n");
    }
}
