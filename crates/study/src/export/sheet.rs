//! Results as a table of cells.

use crate::aggregate::Summary;
use crate::bootstrap::Estimate;
use crate::compare::Comparison;
use crate::curves::EfficiencyCurve;
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
        Sheet { columns, rows }
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
        Sheet { columns, rows: summaries.iter().map(row).collect() }
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
        Sheet { columns, rows: comparisons.iter().map(row).collect() }
    }

    /// A row for each arm and threshold.
    pub fn of_profiles(profiles: &[Profile]) -> Sheet {
        let columns = columns(&[("arm", Kind::Text), ("threshold", Kind::Number), ("share above", Kind::Estimate)]);
        let rows = |profile: &Profile| along(&profile.arm, &profile.thresholds, &profile.shares);
        Sheet { columns, rows: profiles.iter().flat_map(rows).collect() }
    }

    /// A row for each arm and position.
    ///
    /// * `curves`: of one call of [`sample_efficiency`](crate::sample_efficiency), so that all have the same axis.
    /// * `metric`: what the numbers are.
    pub fn of_curves(curves: &[EfficiencyCurve], metric: &str) -> Sheet {
        let axis = curves.first().map_or("position", |curve| curve.axis.name());
        let columns = columns(&[("arm", Kind::Text), (axis, Kind::Number), (metric, Kind::Estimate)]);
        let rows = |curve: &EfficiencyCurve| along(&curve.arm, &curve.positions, &curve.estimates);
        Sheet { columns, rows: curves.iter().flat_map(rows).collect() }
    }
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
