//! A report's tables as files.

use ascribe_study::grid::Spent;
use ascribe_study::{Cell, Column, Comparison, EfficiencyCurve, Kind, Replication, Sheet};

use super::{EqualBudget, GridReport, Pair};

/// Digits after the decimal point, where numbers are rounded to be read.
const DIGITS: usize = 3;

/// Costs in the ledger, as `cost/` names them.
pub(super) const COSTS: [&str; 8] =
    ["actor_tokens", "fed_tokens", "critic_tokens", "branch_tokens", "expert_tokens", "tokens", "env_steps", "restores"];

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// CSV, Markdown, LaTeX.
    All,
    /// CSV alone: it has too many rows to be read.
    Csv,
}

/// A table with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSheet {
    /// Name of its files, without their endings.
    pub name: String,
    /// The table.
    pub sheet: Sheet,
    /// How it is written.
    pub forms: Forms,
}

impl NamedSheet {
    fn new(name: impl Into<String>, sheet: Sheet, forms: Forms) -> Self {
        Self { name: name.into(), sheet, forms }
    }

    /// Endings and texts of its files.
    pub(super) fn files(&self) -> Vec<(&'static str, String)> {
        let mut files = vec![("csv", self.sheet.to_csv())];
        if self.forms == Forms::All {
            files.push(("md", self.markdown()));
            files.push(("tex", self.sheet.to_latex(DIGITS)));
        }
        files
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        self.sheet.to_markdown(DIGITS)
    }
}

impl GridReport<'_> {
    /// The tables. Those with `seconds` in their names are of a clock; no other depends on one.
    pub fn sheets(&self) -> Vec<NamedSheet> {
        let mut all = vec![
            NamedSheet::new("scores", Sheet::of_scores(&self.results.table), Forms::All),
            NamedSheet::new("summary", Sheet::of_summaries(&self.summaries), Forms::All),
        ];
        if !self.comparisons.is_empty() {
            all.push(NamedSheet::new("comparisons", comparisons(&self.comparisons, &self.against_baseline()), Forms::All));
        }
        if !self.controls.is_empty() {
            all.push(NamedSheet::new("controls", comparisons(&self.controls, &self.against_controls()), Forms::All));
        }
        all.push(NamedSheet::new("ledger", ledger(&self.results.spent), Forms::All));
        all.push(NamedSheet::new("equal-budget", equal_budgets(&self.equal_budget), Forms::All));
        all.push(NamedSheet::new("equal-budget-seconds", equal_budgets(std::slice::from_ref(&self.equal_seconds)), Forms::All));
        let curves = |curves: &[EfficiencyCurve]| Sheet::of_curves(curves, "mean");
        for (axis, along) in &self.curves {
            all.push(NamedSheet::new(format!("curves-{}", axis.key()), curves(along), Forms::Csv));
        }
        all.push(NamedSheet::new("curves-seconds", curves(&self.seconds), Forms::Csv));
        all.push(NamedSheet::new("profiles", Sheet::of_profiles(&self.profiles), Forms::Csv));
        all
    }
}

/// Comparisons, with what their correction allows for.
///
/// * `planned`: all that are asked for, those without a run too.
pub(super) fn comparisons(comparisons: &[Comparison], planned: &[Pair<'_>]) -> Sheet {
    let mut sheet = Sheet::of_comparisons(comparisons);
    sheet.notes.push(format!("Corrected p-values: {}.", family(comparisons, planned)));
    sheet
}

/// What the correction of some comparisons allows for, and what not: an arm that fails makes the family of the others smaller, and
/// their p-values with it.
///
/// * `planned`: all that are asked for, those without a run too.
pub(super) fn family(comparisons: &[Comparison], planned: &[Pair<'_>]) -> String {
    let is_tested =
        |(arm, baseline): &Pair<'_>| comparisons.iter().any(|c| c.tests.is_some() && c.arm == *arm && c.baseline == *baseline);
    let (tested, untested): (Vec<&Pair<'_>>, Vec<&Pair<'_>>) = planned.iter().partition(|pair| is_tested(pair));
    let untested: Vec<String> = untested.iter().map(|(arm, baseline)| format!("{arm} against {baseline}")).collect();
    let least = Replication::LEAST;
    let missing = format!("{}, for want of {least} pairs of seeds that finished in both", untested.join("; "));
    match (tested.len(), untested.is_empty()) {
        (0, true) => "there is nothing to compare".into(),
        (0, false) => format!("none, nothing was tested: {missing}"),
        (1, true) => "Holm's, for the 1 comparison".into(),
        (n, true) => format!("Holm's, for all {n} comparisons"),
        (n, false) => format!(
            "Holm's, for {n} of {} comparisons that were planned; not among them, and p-values would be larger with them: {missing}",
            planned.len()
        ),
    }
}

fn columns(of: &[(&str, Kind)]) -> Vec<Column> {
    of.iter().map(|(name, kind)| Column { name: name.to_string(), kind: *kind }).collect()
}

/// What arms spent: means over runs that finished.
pub(super) fn ledger(spent: &[(String, Spent)]) -> Sheet {
    let mut header = columns(&[("arm", Kind::Text), ("runs", Kind::Number), ("updates", Kind::Number)]);
    let number = |name: &str| Column { name: name.replace('_', " "), kind: Kind::Number };
    header.extend(COSTS.map(number));
    header.extend(["tokens of evaluations", "tokens of tuning, all runs", "gradient norm"].map(number));
    let row = |(arm, spent): &(String, Spent)| {
        // Nothing was spent where no run finished: that is no 0.
        let of_runs = |x: f64| if spent.runs > 0 { Cell::Number(x) } else { Cell::Missing };
        let mut row = vec![Cell::Text(arm.clone()), Cell::Count(spent.runs as u64), of_runs(spent.updates)];
        row.extend(COSTS.map(|name| spent.mean.get(name).map_or(Cell::Missing, |x| Cell::Number(*x))));
        row.push(of_runs(spent.eval_tokens));
        row.push(Cell::Count(spent.tuning_tokens));
        row.push(spent.gradient_norm.map_or(Cell::Missing, Cell::Number));
        row
    };
    let notes = vec!["Means over the runs that finished.".to_string()];
    Sheet { columns: header, rows: spent.iter().map(row).collect(), notes }
}

fn equal_budgets(budgets: &[EqualBudget]) -> Sheet {
    let columns = columns(&[
        ("budget", Kind::Text),
        ("position", Kind::Number),
        ("arm", Kind::Text),
        ("runs", Kind::Number),
        ("failed", Kind::Number),
        ("mean", Kind::Estimate),
        ("IQM", Kind::Estimate),
        ("difference", Kind::Estimate),
        ("p (Holm)", Kind::Number),
        ("verdict", Kind::Text),
    ]);
    let mut rows = Vec::new();
    for budget in budgets {
        for summary in &budget.summaries {
            let against = budget.comparison(&summary.arm);
            let mut row = vec![
                Cell::Text(budget.axis.name().into()),
                budget.position.map_or(Cell::Missing, Cell::Number),
                Cell::Text(summary.arm.clone()),
                Cell::Count(summary.n_runs as u64),
                Cell::Count(summary.n_failed as u64),
            ];
            row.extend(summary.estimates.iter().map(|(_, estimate)| estimate.map_or(Cell::Missing, Cell::Estimate)));
            row.push(against.and_then(|c| c.difference).map_or(Cell::Missing, Cell::Estimate));
            row.push(against.and_then(|c| c.corrected).map_or(Cell::Missing, Cell::Number));
            row.push(against.map_or(Cell::Missing, |c| Cell::Text(c.verdict.to_string())));
            rows.push(row);
        }
    }
    let mut notes = vec!["Every arm is read at the largest position that all runs reached, or within 2 % behind it.".to_string()];
    for budget in budgets.iter().filter(|budget| budget.summaries.is_empty()) {
        notes.push(format!("Nothing along {}: runs were measured too seldom (`evaluate.every`).", budget.axis.name()));
    }
    Sheet { columns, rows, notes }
}
