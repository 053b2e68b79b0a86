//! Figures and tables of a report.

use ascribe_core::Seeds;
use ascribe_study::{Bootstrap, Cell, EfficiencyCurve, Estimate, Interval, Kind, Profile, Replication, Sheet};
use maud::{Markup, PreEscaped, html};

use super::{SEEDS, charts};

/// Digits of scores.
pub(super) const DIGITS: usize = 3;

/// Which arm is which in figures: the same everywhere on a page.
#[derive(Clone, Debug)]
pub(super) struct Legend {
    arms: Vec<String>,
    baseline: usize,
}

impl Legend {
    /// * `arms`: all that a figure may show, in order.
    pub(super) fn new(arms: Vec<String>, baseline: &str) -> Self {
        let baseline = arms.iter().position(|arm| arm == baseline).unwrap_or(0);
        Self { arms, baseline }
    }

    /// Place of an arm in the palette: 0 is the baseline's, the others take turns.
    pub(super) fn place(&self, arm: &str) -> usize {
        match self.arms.iter().position(|of| of == arm).unwrap_or(0) {
            i if i == self.baseline => 0,
            i => 1 + (i - usize::from(i > self.baseline)) % (charts::MOST_LINES - 1),
        }
    }

    /// Letters of an arm: `A`, `B`, …, `Z`, `AA`, …
    pub(super) fn key(&self, arm: &str) -> String {
        let mut i = self.arms.iter().position(|of| of == arm).unwrap_or(0);
        let mut letters = Vec::new();
        loop {
            letters.push(char::from(b'A' + u8::try_from(i % 26).unwrap_or(0)));
            if i < 26 {
                return letters.into_iter().rev().collect();
            }
            i = i / 26 - 1;
        }
    }

    /// Arms figure by figure: no more than can be told apart, and the baseline in each.
    fn figures(&self) -> Vec<Vec<&str>> {
        let baseline = self.arms[self.baseline].as_str();
        let others: Vec<&str> = self.arms.iter().map(String::as_str).filter(|arm| *arm != baseline).collect();
        if others.is_empty() {
            return vec![vec![baseline]];
        }
        others.chunks(charts::MOST_LINES - 1).map(|chunk| [&[baseline], chunk].concat()).collect()
    }
}

/// An arm's numbers along a line.
struct Along<'a> {
    arm: &'a str,
    n_runs: usize,
    n_failed: usize,
    points: Vec<(f64, Estimate)>,
}

/// What a figure of lines is about.
pub(super) struct About<'a> {
    /// What stands below it, first.
    pub title: &'a str,
    /// The horizontal axis.
    pub x: &'a str,
    /// The vertical axis.
    pub y: &'a str,
    /// Where the vertical axis ends.
    pub bounds: (f64, f64),
    /// Whether a number holds until the next position.
    pub steps: bool,
}

/// Curves along a budget.
pub(super) fn curves(about: &About<'_>, legend: &Legend, curves: &[EfficiencyCurve]) -> Markup {
    let along = |curve: &'_ EfficiencyCurve| (curve.positions.iter().copied().zip(curve.estimates.iter().copied())).collect();
    let all: Vec<Along<'_>> = curves
        .iter()
        .map(|curve| Along { arm: &curve.arm, n_runs: curve.n_runs, n_failed: curve.n_failed, points: along(curve) })
        .collect();
    figures(about, legend, &all)
}

/// Performance profiles.
pub(super) fn profiles(about: &About<'_>, legend: &Legend, profiles: &[Profile]) -> Markup {
    let along = |profile: &'_ Profile| (profile.thresholds.iter().copied().zip(profile.shares.iter().copied())).collect();
    let all: Vec<Along<'_>> = profiles
        .iter()
        .map(|profile| Along { arm: &profile.arm, n_runs: profile.n_runs, n_failed: profile.n_failed, points: along(profile) })
        .collect();
    figures(about, legend, &all)
}

fn figures(about: &About<'_>, legend: &Legend, all: &[Along<'_>]) -> Markup {
    html! {
        @for arms in legend.figures() {
            (figure(about, legend, &all.iter().filter(|along| arms.contains(&along.arm)).collect::<Vec<_>>()))
        }
    }
}

fn figure(about: &About<'_>, legend: &Legend, arms: &[&Along<'_>]) -> Markup {
    let line = |along: &&Along<'_>| charts::Line {
        place: legend.place(along.arm),
        key: legend.key(along.arm),
        points: along.points.clone(),
    };
    let drawn: Vec<charts::Line> = arms.iter().filter(|along| !along.points.is_empty()).map(line).collect();
    let axes = charts::Axes { x: about.x, y: about.y, bounds: about.bounds, steps: about.steps };
    let svg = charts::lines(&axes, &drawn);
    let seeds = |along: &Along<'_>| {
        let failed = if along.n_failed > 0 { format!(", {} failed", along.n_failed) } else { String::new() };
        let empty = if along.points.is_empty() && along.n_runs > 0 { ", no position that all its runs reached" } else { "" };
        format!("{} seed{}{failed}{empty}", along.n_runs, if along.n_runs == 1 { "" } else { "s" })
    };
    let without: Vec<&str> = arms.iter().filter(|along| along.n_runs < Replication::LEAST).map(|along| along.arm).collect();
    html! {
        figure {
            div.lines { (chart(svg, &format!("{}: {} against {}, {} arms; the numbers are in the table below", about.title, about.y, about.x, arms.len()))) }
            figcaption {
                strong { (about.title) } ". Line: " (about.y) ". Band: 95 % bootstrap interval over seeds, at each position by itself."
                @if !without.is_empty() {
                    " No band: " (without.join("; ")) ", fewer than " (Replication::LEAST) " seeds."
                }
                ul.legend {
                    @for along in arms {
                        @let place = legend.place(along.arm);
                        li {
                            (swatch(place))
                            " " span.mono { (legend.key(along.arm)) } " " (along.arm) " " span.dim { "(" (seeds(along)) ")" }
                        }
                    }
                }
            }
            details {
                summary { "Numbers: " (about.title) }
                (points(about, arms))
            }
        }
    }
}

/// A piece of an arm's line.
fn swatch(place: usize) -> Markup {
    let colour = charts::colour(place);
    html! {
        svg.key width="38" height="10" viewBox="0 0 38 10" aria-hidden="true" {
            polyline points="1,5 37,5" fill="none" stroke=(colour) stroke-width="2.5" {}
        }
    }
}

fn points(about: &About<'_>, arms: &[&Along<'_>]) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label={ "Numbers: " (about.title) } {
            table {
                caption { (about.title) }
                thead { tr { th scope="col" { "arm" } th.number scope="col" { (about.x) } th.number scope="col" { (about.y) } th.number scope="col" { "95 % interval" } } }
                tbody {
                    @for along in arms {
                        @for (at, estimate) in &along.points {
                            tr {
                                th scope="row" { (along.arm) }
                                td.number { (plain(*at)) }
                                td.number { (score(estimate.point)) }
                                td.number { (interval(estimate.interval)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A chart with its name, or why there is none.
pub(super) fn chart(svg: Result<String, String>, label: &str) -> Markup {
    match svg {
        Ok(svg) => {
            let label = html! { (label) }.into_string();
            PreEscaped(svg.replacen("<svg ", &format!("<svg class=\"chart\" role=\"img\" aria-label=\"{label}\" "), 1))
        }
        Err(why) => html! { p.blank { (why) } },
    }
}

/// A sheet as a table; the first column names its rows.
pub(super) fn sheet(sheet: &Sheet, caption: &str) -> Markup {
    let number = |kind: Kind| kind != Kind::Text;
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr {
                    @for column in &sheet.columns { th.number[number(column.kind)] scope="col" { (column.name) } }
                } }
                tbody {
                    @for row in &sheet.rows {
                        tr {
                            @for (i, (cell, column)) in row.iter().zip(&sheet.columns).enumerate() {
                                @if i == 0 { th scope="row" { (read(cell)) } }
                                @else { td.number[number(column.kind)] { (read(cell)) } }
                            }
                        }
                    }
                }
            }
        }
        @if !sheet.notes.is_empty() {
            ul.notes { @for note in &sheet.notes { li { (note) } } }
        }
    }
}

/// A sheet without some of its columns.
pub(super) fn without(sheet: &Sheet, drop: impl Fn(usize, &str) -> bool) -> Sheet {
    let keep: Vec<bool> = sheet.columns.iter().enumerate().map(|(i, column)| !drop(i, &column.name)).collect();
    let kept = |row: &Vec<Cell>| row.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(cell, _)| cell.clone()).collect();
    Sheet {
        columns: sheet.columns.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(column, _)| column.clone()).collect(),
        rows: sheet.rows.iter().map(kept).collect(),
        notes: sheet.notes.clone(),
    }
}

fn read(cell: &Cell) -> String {
    match cell {
        Cell::Count(n) => whole(*n as f64),
        Cell::Number(x) => plain(*x),
        other => other.read(DIGITS, "—"),
    }
}

/// A table of words.
pub(super) fn table(caption: &str, header: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for name in header { th scope="col" { (name) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (i, cell) in row.iter().enumerate() {
                                @if i == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A score as it is read.
pub(super) fn score(x: f64) -> String {
    Cell::Number(x).read(DIGITS, "")
}

/// How often runs are drawn anew for an interval, as it is read.
pub(super) fn draws(bootstrap: impl Fn(Seeds) -> Bootstrap) -> String {
    whole(f64::from(bootstrap(SEEDS).repetitions))
}

/// A p-value as it is read.
pub(super) fn p_value(p: f64) -> String {
    if p < 1e-3 { "p < 0.001".into() } else { format!("p = {}", score(p)) }
}

/// An interval as it is read.
pub(super) fn interval(interval: Option<Interval>) -> String {
    interval.map_or_else(|| "none".into(), |Interval { low, high }| format!("{} to {}", score(low), score(high)))
}

/// An estimate with its interval, as it is read.
pub(super) fn estimate(estimate: Option<Estimate>) -> String {
    estimate.map_or(Cell::Missing, Cell::Estimate).read(DIGITS, "—")
}

/// A number that may be an amount: whole ones with thousands set apart, others rounded.
pub(super) fn plain(x: f64) -> String {
    if x.fract() == 0.0 && x.abs() < 1e15 {
        whole(x)
    } else if x.abs() >= 1e3 && x.abs() < 1e15 {
        whole(x.round())
    } else if x.abs() >= 1e15 || (x != 0.0 && x.abs() < 1e-3) {
        format!("{x:.2e}")
    } else {
        score(x)
    }
}

/// A whole number with its thousands set apart.
fn whole(x: f64) -> String {
    let digits = format!("{:.0}", x.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if x < 0.0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amounts_are_read_by_thousands() {
        let shown = [0.0, 12.0, 1234.0, -1_234_567.0, 12_345.6, 0.25, 1e-5, 1e20].map(plain);
        assert_eq!(shown, ["0", "12", "1,234", "-1,234,567", "12,346", "0.250", "1.00e-5", "1.00e20"]);
    }

    proptest! {
        #[test]
        fn arms_of_a_figure_are_told_apart(n in 1usize..60, at in 0usize..60) {
            let arms: Vec<String> = (0..n).map(|i| format!("arm {i}")).collect();
            let baseline = arms[at % n].clone();
            let legend = Legend::new(arms.clone(), &baseline);
            let keys: std::collections::BTreeSet<String> = arms.iter().map(|arm| legend.key(arm)).collect();
            prop_assert_eq!(keys.len(), n);
            let mut shown = std::collections::BTreeSet::new();
            for figure in legend.figures() {
                let places: std::collections::BTreeSet<usize> = figure.iter().map(|arm| legend.place(arm)).collect();
                prop_assert_eq!(places.len(), figure.len());
                prop_assert!(figure.contains(&baseline.as_str()));
                shown.extend(figure);
            }
            prop_assert_eq!(shown.len(), n);
        }
    }
}
