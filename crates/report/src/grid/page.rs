//! The page as a whole.

use ascribe_study::Axis;
use ascribe_study::grid::State;
use maud::{Markup, html};

use super::figure::Legend;
use super::prediction::PredictionFile;
use super::{GridReport, charts};
use crate::page::Page;

/// What a grid's page adds to the stylesheet of all.
const STYLE: &str = include_str!("grid.css");

/// A part of the page.
pub(super) struct Section {
    /// Its anchor.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What stands below it.
    pub body: Markup,
}

impl GridReport<'_> {
    /// The page: one file that opens from disk.
    ///
    /// * `first`: the budget whose curve and table are shown first.
    pub fn page(&self, first: Axis) -> String {
        let legend = Legend::new(self.plan.arms.iter().map(|arm| arm.name.clone()).collect(), &self.plan.baseline().name);
        let mut sections = vec![
            Section { id: "question", title: "Question and prediction", body: self.question() },
            Section { id: "verdicts", title: "What so many seeds can say", body: self.verdicts() },
            Section { id: "scores", title: "Scores", body: self.scores(&legend) },
            Section { id: "curves", title: "Curves", body: self.curves_section(&legend, first) },
            Section { id: "equal-budget", title: "At equal budget", body: self.equal_budget_section(first) },
            Section { id: "profiles", title: "Performance profiles", body: self.profiles_section(&legend) },
            Section { id: "tasks", title: "Task by task", body: self.tasks() },
            Section { id: "arms", title: "Arms and how they differ", body: self.arms() },
            Section { id: "tuning", title: "Tuning", body: self.tuning_section() },
            Section { id: "ledger", title: "What was spent", body: self.ledger() },
            Section { id: "alarms", title: "Alarms", body: self.alarms() },
            Section { id: "cells", title: "Failed and missing cells", body: self.failed_and_missing() },
            Section { id: "checklist", title: "Checklist of the survey", body: self.checklist() },
            Section { id: "files", title: "Files", body: self.files() },
        ];
        // The one section that no other run of this grid repeats. Who asks for seconds reads it in the place of the curves.
        let clock = Section { id: "clock", title: "Clock and machine", body: self.clock(&legend) };
        let place = if first == Axis::Seconds { "curves" } else { "files" };
        let at = sections.iter().position(|section| section.id == place).unwrap_or(sections.len());
        sections.insert(at, clock);
        let body = html! {
            a.skip href="#main" { "Skip to the report" }
            header {
                h1 { (self.plan.name) }
                p.question { @if self.plan.question.is_empty() { span.blank { "no question was written down" } } @else { (self.plan.question) } }
                (self.notices())
            }
            nav aria-label="Sections" {
                ul { @for section in &sections { li { a href={ "#" (section.id) } { (section.title) } } } }
            }
            main id="main" tabindex="-1" {
                @for Section { id, title, body } in &sections {
                    section id=(id) aria-labelledby={ (id) "-title" } {
                        h2 id={ (id) "-title" } { (title) }
                        (body)
                    }
                }
            }
            footer { p.dim { "Written by Ascribe " (env!("CARGO_PKG_VERSION")) "." } }
        };
        Page::new(format!("{}: report", self.plan.name), body).style(STYLE).style(&charts::style()).render()
    }

    /// What must be known before anything else is read.
    fn notices(&self) -> Markup {
        let reported = || self.cells.iter().filter(|(cell, _)| cell.tries.is_none());
        let failed = reported().filter(|(_, state)| matches!(state, State::Failed(_))).count();
        let cells = reported().count();
        let missing = self.results.missing;
        let late = self.prediction.as_ref().filter(|predicted| predicted.recorded.cells_done > 0);
        let changed = self.prediction.as_ref().filter(|predicted| !matches!(predicted.now, PredictionFile::Unchanged(_)));
        let notices: Vec<Markup> = [
            (missing > 0).then(|| html! { strong { (missing) " of " (cells) " cells are not done" } " and in no number: " a href="#cells" { "which" } "." }),
            (failed > 0).then(|| html! { strong { (failed) " of " (cells) " cells failed" } " and are in no number: " a href="#cells" { "why" } "." }),
            (self.unplanned > 0).then(|| html! {
                strong { "The experiment was changed since its cells were planned" } ": " (self.unplanned)
                " of the cells that it asks for now are unknown to this folder. What is described here need not be what was run; run the grid again."
            }),
            late.map(|_| html! { strong { "The prediction was recorded late" } " and is none: " a href="#question" { "how late" } "." }),
            changed.map(|_| html! { strong { "The prediction's file is not what was recorded" } ": " a href="#question" { "what is known" } "." }),
            self.prediction.is_none().then(|| html! { "No prediction was recorded: whatever stands here was not foreseen." }),
        ]
        .into_iter()
        .flatten()
        .collect();
        html! {
            @if !notices.is_empty() {
                ul.notices aria-label="Mind" { @for notice in notices { li { (notice) } } }
            }
        }
    }

    fn files(&self) -> Markup {
        html! {
            p { "They lie beside this page. Numbers in CSV have all their digits." }
            ul {
                @for sheet in self.sheets() {
                    li {
                        (sheet.name) ": "
                        @for (i, (ending, _)) in sheet.files().iter().enumerate() {
                            @if i > 0 { ", " }
                            a href={ (sheet.name) "." (ending) } { (ending) }
                        }
                    }
                }
                li { a href="scores.npz" { "scores.npz" } ": arrays of runs by tasks, which rliable reads" }
            }
        }
    }
}
