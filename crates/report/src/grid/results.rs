//! Sections about what came out.

use ascribe_study::{Axis, Bootstrap, Cell, Comparison, Estimate, Interval, Power, Reason, Replication, Sheet, Summary, Verdict};
use maud::{Markup, html};

use super::figure::{self, About, Legend, draws, estimate, p_value, plain, score};
use super::sheets::family;
use super::{EqualBudget, GridReport, charts, sheets};

impl GridReport<'_> {
    /// Each arm against the baseline, in words.
    pub(super) fn verdicts(&self) -> Markup {
        let baseline = &self.plan.baseline().name;
        let absent = self.plan.arms.iter().filter(|arm| self.results.table.arm(&arm.name).is_err());
        html! {
            @if self.comparisons.is_empty() {
                p { "There is nothing to compare: " @if self.results.table.arms().len() < 2 { "one arm has runs." } @else { "the baseline " (baseline) " has no run." } }
            } @else {
                p {
                    "Against " strong { (baseline) } ", paired by seed. An arm is called better or worse only if the interval of the difference leaves out 0, the "
                    "difference is at least the smallest that so many seeds find reliably, and the p-value holds after correction. "
                    "Undecided is not equal. Correction: " (family(&self.comparisons, &self.against_baseline())) "."
                }
                ul.verdicts { @for comparison in &self.comparisons { li { (verdict(comparison, &comparison.arm)) } } }
            }
            @if !self.controls.is_empty() {
                h3 { "Against its own controls" }
                p {
                    "A control keeps an arm's numbers and destroys what it claims with them. An arm that is not better than its control has not shown "
                    "that its gain comes from there. A family of its own: " (family(&self.controls, &self.against_controls())) "."
                }
                ul.verdicts {
                    @for comparison in &self.controls {
                        li { (verdict(comparison, &format!("{} against {}", comparison.arm, comparison.baseline))) }
                    }
                }
            }
            @for arm in absent {
                p { strong { (arm.name) } ": no run is done, nothing can be said." }
            }
        }
    }

    /// Aggregates and their intervals.
    pub(super) fn scores(&self, legend: &Legend) -> Markup {
        let (split, mode) = &self.results.measured;
        let tasks = self.results.table.tasks().len();
        let of = |summary: &Summary, name: &str| {
            summary.estimates.iter().find(|(metric, _)| metric.name() == name).and_then(|(_, estimate)| *estimate)
        };
        let rows: Vec<charts::Row> = self
            .summaries
            .iter()
            .map(|summary| charts::Row {
                label: summary.arm.clone(),
                place: legend.place(&summary.arm),
                estimates: ["mean", "IQM"].into_iter().filter_map(|name| of(summary, name)).collect(),
            })
            .collect();
        let baseline = self.summaries.iter().find(|summary| summary.arm == self.plan.baseline().name);
        let reference = baseline.and_then(|summary| of(summary, "mean")).map(|estimate| estimate.point);
        let differences: Vec<charts::Row> = self
            .comparisons
            .iter()
            .filter_map(|c| {
                let estimates = vec![c.difference?];
                Some(charts::Row { label: c.arm.clone(), place: legend.place(&c.arm), estimates })
            })
            .collect();
        let few: Vec<&str> = self.summaries.iter().filter(|s| s.n_runs < Replication::LEAST).map(|s| s.arm.as_str()).collect();
        html! {
            p {
                "Score: mean " (self.score_name()) " on the split " code { (split) } " with " (mode.as_str()) " actions, " (tasks) " task" @if tasks != 1 { "s" }
                ", last evaluation of each run. Higher is better."
            }
            figure {
                (figure::chart(charts::intervals(&self.score_name(), reference, &rows), "Mean and interquartile mean of each arm with intervals; the numbers are in the table below"))
                figcaption {
                    strong { "Scores of arms" } ". Full circle: mean; hollow circle below it: interquartile mean (IQM). Bars: 95 % bootstrap intervals over seeds, "
                    (draws(Bootstrap::of_tables)) " draws. Vertical line: mean of the baseline. Seeds: "
                    @for (i, summary) in self.summaries.iter().enumerate() { @if i > 0 { ", " } (summary.arm) " " (summary.n_runs) }
                    "."
                    @if !few.is_empty() { " No bar: " (few.join("; ")) ", fewer than " (Replication::LEAST) " seeds." }
                }
            }
            (figure::sheet(&Sheet::of_summaries(&self.summaries), "Scores of arms, with 95 % bootstrap intervals over seeds"))
            @if !self.comparisons.is_empty() {
                @if !differences.is_empty() {
                    figure {
                        (figure::chart(charts::intervals("difference from the baseline", Some(0.0), &differences), "Difference of each arm from the baseline with its interval; the numbers are in the table below"))
                        figcaption {
                            strong { "Differences from " (self.plan.baseline().name) } ", paired by seed. Bars: 95 % t intervals. Seeds in pairs: "
                            @for (i, c) in self.comparisons.iter().enumerate() { @if i > 0 { ", " } (c.arm) " " (c.seeds.len()) }
                            ". No bar: fewer than " (Replication::LEAST) " pairs, or all differences are the same."
                        }
                    }
                }
                (figure::sheet(
                    &figure::without(&sheets::comparisons(&self.comparisons, &self.against_baseline()), |_, name| ["baseline", "verdict"].contains(&name)),
                    &format!("Differences from the baseline, paired by seed, with t intervals; P(improvement) with a bootstrap interval of {} draws; verdicts stand above", draws(Bootstrap::of_curves)),
                ))
            }
            @if !self.controls.is_empty() {
                (figure::sheet(
                    &figure::without(&sheets::comparisons(&self.controls, &self.against_controls()), |_, name| name == "verdict"),
                    "Differences of arms from their own controls, paired by seed; verdicts stand above",
                ))
            }
        }
    }

    /// What a score is.
    fn score_name(&self) -> String {
        match self.plan.spec.score.of {
            ascribe_study::grid::ScoreOf::Success => "success rate".into(),
            ascribe_study::grid::ScoreOf::Return => "return".into(),
        }
    }

    /// A figure for every budget.
    pub(super) fn curves_section(&self, legend: &Legend, first: Axis) -> Markup {
        let shown = if first == Axis::Seconds { Axis::AllTokens } else { first };
        let of = |axis: Axis| self.curves.iter().filter(move |(of, _)| (*of == axis) == (axis == shown));
        html! {
            p {
                "Mean score over the runs of an arm. Between measurements a run counts with its last one; nothing is drawn before the first "
                "measurement or after the last of an arm's shortest run. Along seconds: " a href="#clock" { "Clock and machine" } "."
            }
            @for (axis, curves) in of(shown).filter(|(axis, _)| *axis == shown) { (self.curve(legend, *axis, curves)) }
            @for (axis, curves) in self.curves.iter().filter(|(axis, _)| *axis != shown) {
                details.budget { summary { "Along " (axis.name()) } (self.curve(legend, *axis, curves)) }
            }
        }
    }

    /// A figure of curves.
    pub(super) fn curve(&self, legend: &Legend, axis: Axis, curves: &[ascribe_study::EfficiencyCurve]) -> Markup {
        let range = self.results.table.range();
        let y = format!("mean {}", self.score_name());
        let title = format!("Scores along {}", axis.name());
        let about = About { title: &title, x: axis.name(), y: &y, bounds: (range.low(), range.high()), steps: true };
        figure::curves(&about, legend, curves)
    }

    /// A table for every budget.
    pub(super) fn equal_budget_section(&self, first: Axis) -> Markup {
        let shown = if first == Axis::Seconds { Axis::AllTokens } else { first };
        html! {
            p {
                "Equally many updates are not equally dear. Here every arm is read at the largest budget that all runs reached, with what was "
                "measured last by then, or within 2 % behind it. At equal seconds: " a href="#clock" { "Clock and machine" } "."
            }
            @for budget in self.equal_budget.iter().filter(|budget| budget.axis == shown) { (self.at_equal(budget)) }
            @for budget in self.equal_budget.iter().filter(|budget| budget.axis != shown) {
                details.budget { summary { "At equal " (budget.axis.name()) } (self.at_equal(budget)) }
            }
        }
    }

    /// All arms at one position.
    pub(super) fn at_equal(&self, budget: &EqualBudget) -> Markup {
        let Some(position) = budget.position else {
            return html! { p.blank { "No position along " (budget.axis.name()) " was reached by all runs: there is no table." } };
        };
        if budget.summaries.is_empty() {
            return html! {
                p.blank {
                    "All runs reached " (plain(position)) " " (budget.axis.name()) ", but the oldest of their measurements by then lies at "
                    (budget.oldest.map_or_else(|| "none".into(), plain)) ": they were measured too seldom to be compared there. "
                    "Set " code { "evaluate.every" } "."
                }
            };
        }
        let rows: Vec<Vec<Markup>> = budget
            .summaries
            .iter()
            .map(|summary| {
                let against = budget.comparison(&summary.arm);
                let mut row = vec![html! { (summary.arm) }, html! { (summary.n_runs) }];
                row.extend(summary.estimates.iter().map(|(_, of)| html! { (estimate(*of)) }));
                row.push(html! { (estimate(against.and_then(|c| c.difference))) });
                row.push(match against {
                    Some(comparison) => html! { (comparison.verdict) },
                    None if summary.arm == self.plan.baseline().name => html! { "baseline" },
                    None => html! { "—" },
                });
                row
            })
            .collect();
        let caption = format!("After {} {}", plain(position), budget.axis.name());
        html! {
            (figure::table(&caption, &["arm", "runs", "mean", "IQM", "difference from the baseline", "verdict"], &rows))
            p.dim {
                "95 % intervals over seeds, bootstrap with " (draws(Bootstrap::of_curves)) " draws; those of differences are t intervals. "
                @if !budget.comparisons.is_empty() { "Verdicts allow for several comparisons: " (family(&budget.comparisons, &self.against_baseline())) "." }
            }
        }
    }

    /// Over which scores runs lie.
    pub(super) fn profiles_section(&self, legend: &Legend) -> Markup {
        let x = format!("{} of a run on a task", self.score_name());
        let about = About {
            title: "Performance profiles",
            x: &x,
            y: "share of runs and tasks above it",
            bounds: (0.0, 1.0),
            steps: false,
        };
        html! {
            p { "The whole distribution of scores. An arm whose line lies above another's everywhere is better whatever the aggregate; where lines cross, the aggregate chooses." }
            (figure::profiles(&about, legend, &self.profiles))
        }
    }

    /// Scores of every task.
    pub(super) fn tasks(&self) -> Markup {
        let table = &self.results.table;
        let mut header = vec!["task"];
        header.extend(table.arms().iter().map(|arm| arm.name.as_str()));
        let row = |(i, task): (usize, &String)| {
            let mut row = vec![html! { (task) }];
            row.extend(table.arms().iter().map(|arm| match &arm.scores {
                Some(scores) => html! { (score(scores.task(i).sum::<f64>() / scores.n_runs() as f64)) },
                None => html! { "—" },
            }));
            row
        };
        let rows: Vec<Vec<Markup>> = table.tasks().iter().enumerate().map(row).collect();
        html! {
            details { summary { "Scores of " (rows.len()) " task" @if rows.len() != 1 { "s" } }
                (figure::table("Mean score over seeds, task by task", &header, &rows))
            }
        }
    }

    /// What arms spent.
    pub(super) fn ledger(&self) -> Markup {
        let sheet = sheets::ledger(&self.results.spent);
        let nothing = |cell: &Cell| matches!(cell, Cell::Missing | Cell::Count(0) | Cell::Number(0.0));
        let shown = figure::without(&sheet, |i, _| sheet.rows.iter().all(|row| nothing(&row[i])));
        html! {
            (figure::sheet(&shown, "Spent by a run: means over the runs that finished"))
            p {
                code { "tokens" } " is what models processed to act or to judge: sampled, fed, by critics, in branches, by experts. Evaluations and tuning are apart. "
                "What no arm spent has no column here, and has one in " a href="ledger.csv" { "ledger.csv" } ". The gradient norm is before clipping: arms whose norms differ take steps of different sizes at the same learning rate."
            }
        }
    }
}

/// A comparison in words, about `whom`.
fn verdict(c: &Comparison, whom: &str) -> Markup {
    let word = match c.verdict {
        Verdict::Better => html! { span.verdict.good { "better" } },
        Verdict::Worse => html! { span.verdict.bad { "worse" } },
        Verdict::Undecided(_) => html! { span.verdict.warn { "undecided" } },
    };
    let reason = match c.verdict {
        Verdict::Undecided(reason) => Some(reason),
        Verdict::Better | Verdict::Worse => None,
    };
    html! {
        strong { (whom) } ": " (word)
        @if let Some(reason) = reason { ", " (reason) }
        "."
        @if let Some(Estimate { point, interval }) = c.difference.filter(|difference| score(difference.point) != score(0.0)) {
            " It scores " (score(point.abs()))
            @if point < 0.0 { " less" } @else { " more" } " in " (c.seeds.len()) " pair" @if c.seeds.len() != 1 { "s" }
            @if let Some(Interval { low, high }) = interval { ", 95 % interval " (score(low)) " to " (score(high)) }
            @if let Some(corrected) = c.corrected { ", " (p_value(corrected)) " after correction" }
            "."
        }
        @if !c.unpaired.is_empty() {
            " " (c.unpaired.len()) " seed" @if c.unpaired.len() != 1 { "s" } " finished in one of the two only and " @if c.unpaired.len() != 1 { "are" } @else { "is" } " in no pair."
        }
        @if let Some(smallest) = c.smallest_detectable {
            " The smallest difference that these seeds find in four of five cases, with the spread measured: " (score(smallest)) "."
        }
        @if let Some(advice) = advice(c) { " " (advice) }
    }
}

/// How many seeds would do.
fn advice(c: &Comparison) -> Option<String> {
    if let Some(advice) = Replication::of(c.seeds.len()).advice() {
        return Some(format!("Advice: {advice}."));
    }
    let Verdict::Undecided(Reason::IntervalHoldsZero(_) | Reason::BelowDetectable { .. } | Reason::NotSignificant { .. }) =
        c.verdict
    else {
        return None;
    };
    let (spread, difference) = (c.spread?, c.difference?.point.abs());
    let needed = Power::default().seeds_needed(spread, difference);
    Some(match needed {
        Some(n) if n <= 1000 => format!("Advice: if the true difference is the one measured, {n} seeds find it in four of five cases."),
        _ => "Advice: a difference as small as the one measured is not found with a thousand seeds; decide which difference would matter.".into(),
    })
}
