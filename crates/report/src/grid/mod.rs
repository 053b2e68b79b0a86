//! The report of a grid: what a reader needs to believe its result, or not to.
//!
//! [`GridReport::read`] gathers it, [`GridReport::write`] writes it into `report/` of the grid's folder:
//!
//! | what | where |
//! |---|---|
//! | the page | `index.html` |
//! | scores, aggregates, comparisons, costs, tables at equal budget | `scores`, `summary`, `comparisons`, `controls`, `ledger`, `equal-budget`: `.csv`, `.md`, `.tex` |
//! | curves along each budget, performance profiles | `curves-<axis>.csv`, `profiles.csv` |
//! | what rliable reads | `scores.npz` |
//! | what a clock says | `curves-seconds.csv`, `equal-budget-seconds.csv` |
//!
//! A grid that was killed and resumed comes to the same bytes, but for what clocks and machines say. That is in the last row's files; in
//! the page it is the section `clock` and the elements `<time>`, and nothing else.

mod charts;
mod checklist;
mod cost;
mod figure;
mod page;
mod prediction;
mod results;
mod setup;
mod sheets;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ascribe_core::Seeds;
use ascribe_study::grid::{Cell, Chosen, Clock, GridError, GridFolder, Plan, Results, State, chosen};
use ascribe_study::{
    Axis, Bootstrap, Comparing, Comparison, Curves, EfficiencyCurve, Metric, Positions, Profile, StudyError, Summary, Table,
    compare, compare_pairs, profile, sample_efficiency, summarise, write_npz,
};

pub use prediction::{Predicted, PredictionFile};
pub use sheets::{Forms, NamedSheet};

/// Folder of the report, seen from the grid's.
const FOLDER: &str = "report";
/// Positions of a curve, at most: a figure shows no more.
const MOST_POSITIONS: usize = 60;
/// Thresholds of profiles.
const THRESHOLDS: usize = 51;
/// Share of a position by which a measurement may lie behind it and still be read there: runs overshoot their budget by an update.
const SLACK: f64 = 0.02;
/// Share of a position at which a measurement is too old to stand for it.
const FRESH: f64 = 0.8;
/// What the draws of all intervals are keyed by.
const SEEDS: Seeds = Seeds(0);

/// The report of a grid.
#[derive(Clone, Debug)]
pub struct GridReport<'a> {
    /// What was asked.
    pub plan: &'a Plan,
    /// The prediction that was recorded.
    pub prediction: Option<Predicted>,
    /// Every planned cell, and how far it is.
    pub cells: Vec<(Cell, State)>,
    /// What the experiment's file and the environment ask for now and no cell was planned for.
    pub unplanned: usize,
    /// What the cells measured.
    pub results: Results,
    /// Each arm in numbers.
    pub summaries: Vec<Summary>,
    /// Each other arm against the baseline; none where there is nothing to compare.
    pub comparisons: Vec<Comparison>,
    /// Each arm that has controls against each of them: what it claims beyond them.
    pub controls: Vec<Comparison>,
    /// Curves along each axis that knows no clock.
    pub curves: Vec<(Axis, Vec<EfficiencyCurve>)>,
    /// All arms at equal budget, along the same axes.
    pub equal_budget: Vec<EqualBudget>,
    /// Over which scores the runs of each arm lie.
    pub profiles: Vec<Profile>,
    /// What each arm chose that chooses for itself.
    pub tuning: BTreeMap<String, Chosen>,
    /// What clocks and machines say.
    pub clock: Clock,
    /// Curves along seconds.
    pub seconds: Vec<EfficiencyCurve>,
    /// All arms at equal seconds.
    pub equal_seconds: EqualBudget,
}

/// All arms at one position of a budget.
#[derive(Clone, Debug)]
pub struct EqualBudget {
    /// The budget.
    pub axis: Axis,
    /// The largest position that every run reached; `None` where there is none.
    pub position: Option<f64>,
    /// Where the oldest measurement lies that was read for it. Where that is far before, there are no summaries and no comparisons: they
    /// would be those of another position.
    pub oldest: Option<f64>,
    /// Each arm there: mean and IQM.
    pub summaries: Vec<Summary>,
    /// Each other arm against the baseline there.
    pub comparisons: Vec<Comparison>,
}

impl<'a> GridReport<'a> {
    /// Gathers the report of what is done.
    ///
    /// # Errors
    /// If records are damaged, runs measured different tasks, or no run has a result.
    pub fn read(plan: &'a Plan, folder: &GridFolder) -> Result<GridReport<'a>, GridError> {
        let planned = folder.cells()?;
        let results = Results::read(plan, folder, &planned)?;
        let clock = Clock::read(plan, folder, &planned, &results)?;
        let tuning = chosen(plan, folder, &plan.tuning()?)?.unwrap_or_default();
        let unplanned = unplanned(plan, &tuning, &planned)?;
        let cells = planned.into_iter().map(|cell| folder.state(&cell).map(|state| (cell, state)));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        let baseline = &plan.baseline().name;
        let bootstrap = Bootstrap::of_curves(SEEDS);
        let mut curves = Vec::new();
        let mut equal_budget = Vec::new();
        for axis in Axis::ALL.into_iter().filter(|axis| *axis != Axis::Seconds) {
            curves.push((axis, curves_along(&results.curves, axis)?));
            equal_budget.push(EqualBudget::read(&results.curves, axis, baseline)?);
        }
        Ok(GridReport {
            plan,
            prediction: folder.manifest()?.prediction.map(Predicted::read),
            cells,
            unplanned,
            summaries: summarise(&results.table, &metrics(&results.table), &Bootstrap::of_tables(SEEDS)),
            comparisons: compared(&results.table, baseline)?,
            controls: compared_with_controls(plan, &results.table)?,
            curves,
            equal_budget,
            profiles: profile(&results.table, &thresholds(&results.table), &bootstrap),
            tuning,
            seconds: curves_along(&clock.curves, Axis::Seconds)?,
            equal_seconds: EqualBudget::read(&clock.curves, Axis::Seconds, baseline)?,
            clock,
            results,
        })
    }

    /// What is compared with the baseline, be there runs or not.
    fn against_baseline(&self) -> Vec<Pair<'_>> {
        let baseline = self.plan.baseline().name.as_str();
        self.plan.arms.iter().map(|arm| (arm.name.as_str(), baseline)).filter(|(arm, baseline)| arm != baseline).collect()
    }

    /// What is compared with its own controls, be there runs or not.
    fn against_controls(&self) -> Vec<Pair<'_>> {
        controls(self.plan).collect()
    }

    /// Writes the page and its tables, and gives the page's path.
    ///
    /// * `first`: the budget whose curve and table are shown first.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &GridFolder, first: Axis) -> Result<PathBuf, GridError> {
        for sheet in self.sheets() {
            for (ending, text) in sheet.files() {
                folder.write(&Path::new(FOLDER).join(format!("{}.{ending}", sheet.name)), text.as_bytes())?;
            }
        }
        let mut npz = std::io::Cursor::new(Vec::new());
        write_npz(&self.results.table, &mut npz)?;
        folder.write(&Path::new(FOLDER).join("scores.npz"), npz.get_ref())?;
        folder.write(&Path::new(FOLDER).join("index.html"), self.page(first).as_bytes())
    }
}

impl EqualBudget {
    /// All arms at the largest position that every run reached.
    fn read(curves: &Curves, axis: Axis, baseline: &str) -> Result<EqualBudget, StudyError> {
        let position = curves.shared_span(axis)?.map(|(_, to)| to);
        let read = position.map(|position| curves.near(axis, position, SLACK)).transpose()?;
        let oldest = read.as_ref().and_then(|(_, oldest)| *oldest);
        let fresh = position.zip(oldest).is_some_and(|(position, oldest)| oldest >= FRESH * position);
        let table = read.map(|(table, _)| table).filter(|_| fresh);
        let bootstrap = Bootstrap::of_curves(SEEDS);
        let summaries = table.as_ref().map(|table| summarise(table, &[Metric::Mean, Metric::Iqm], &bootstrap));
        let comparisons = table.as_ref().map(|table| compared(table, baseline)).transpose()?;
        Ok(EqualBudget {
            axis,
            position,
            oldest,
            summaries: summaries.unwrap_or_default(),
            comparisons: comparisons.unwrap_or_default(),
        })
    }

    /// The comparison of an arm.
    fn comparison(&self, arm: &str) -> Option<&Comparison> {
        self.comparisons.iter().find(|comparison| comparison.arm == arm)
    }
}

/// Numbers of an arm. Where scores have no upper end there is no gap to it.
fn metrics(table: &Table) -> Vec<Metric> {
    let high = table.range().high();
    Metric::all(high).into_iter().filter(|metric| high.is_finite() || !matches!(metric, Metric::OptimalityGap { .. })).collect()
}

fn compared(table: &Table, baseline: &str) -> Result<Vec<Comparison>, StudyError> {
    if table.arms().len() < 2 || table.arm(baseline).is_err() {
        return Ok(Vec::new());
    }
    compare(table, baseline, &Comparing::new(Bootstrap::of_curves(SEEDS)))
}

/// An arm, and what it is compared with.
type Pair<'a> = (&'a str, &'a str);

/// Each arm with each of its controls.
fn controls(plan: &Plan) -> impl Iterator<Item = Pair<'_>> {
    plan.arms.iter().filter_map(|control| Some((control.chosen_by.as_deref()?, control.name.as_str())))
}

/// Each arm against its controls, where both have runs.
fn compared_with_controls(plan: &Plan, table: &Table) -> Result<Vec<Comparison>, StudyError> {
    let has_runs = |name: &str| table.arm(name).is_ok();
    let pairs: Vec<Pair<'_>> = controls(plan).filter(|(arm, control)| has_runs(arm) && has_runs(control)).collect();
    compare_pairs(table, &pairs, &Comparing::new(Bootstrap::of_curves(SEEDS)))
}

fn curves_along(curves: &Curves, axis: Axis) -> Result<Vec<EfficiencyCurve>, StudyError> {
    let positions = Positions::MeasuredAtMost(MOST_POSITIONS);
    sample_efficiency(curves, axis, &positions, Metric::Mean, &Bootstrap::of_curves(SEEDS))
}

/// Thresholds from the lowest to the highest score that is possible, or that there is.
fn thresholds(table: &Table) -> Vec<f64> {
    let scores = || table.arms().iter().filter_map(|arm| arm.scores.as_ref()).flat_map(|scores| scores.values().iter().copied());
    let bounded = |end: f64, of_scores: f64| if end.is_finite() { end } else { of_scores };
    let low = bounded(table.range().low(), scores().fold(f64::INFINITY, f64::min));
    let high = bounded(table.range().high(), scores().fold(f64::NEG_INFINITY, f64::max));
    let at = |i: usize| {
        let share = i as f64 / (THRESHOLDS - 1) as f64;
        // Not low + share · (high − low): that is beyond all numbers where the two are far apart.
        low * (1.0 - share) + high * share
    };
    let mut all: Vec<f64> = (0..THRESHOLDS).map(at).collect();
    all.dedup();
    all
}

/// Cells that the plan has now and that were never planned in this folder: its file was changed since.
fn unplanned(plan: &Plan, tuning: &BTreeMap<String, Chosen>, planned: &[Cell]) -> Result<usize, GridError> {
    let choice = tuning.iter().map(|(arm, of)| (arm.clone(), of.settings().to_vec())).collect();
    let known: BTreeSet<&str> = planned.iter().map(|cell| cell.id.as_str()).collect();
    let tunes = plan.n_cells().0 > 0;
    if tunes && tuning.is_empty() {
        return Ok(plan.tuning()?.iter().filter(|cell| !known.contains(cell.id.as_str())).count());
    }
    Ok(plan.reported(&choice)?.iter().filter(|cell| !known.contains(cell.id.as_str())).count())
}
