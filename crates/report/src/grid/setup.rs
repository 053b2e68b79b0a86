//! Sections about what was asked: prediction, arms, tuning.

use ascribe_study::Replication;
use ascribe_study::grid::ArmPlan;
use maud::{Markup, html};

use super::GridReport;
use super::figure::{self, plain, score};
use super::prediction::{Predicted, PredictionFile};

/// Bytes of a prediction that is shown at once.
const SHORT: usize = 4000;

impl GridReport<'_> {
    /// The question and the prediction.
    pub(super) fn question(&self) -> Markup {
        html! {
            p { @if self.plan.question.is_empty() { span.blank { "no question was written down" } } @else { (self.plan.question) } }
            @match (&self.prediction, &self.plan.spec.prediction) {
                (Some(predicted), _) => (prediction(predicted)),
                (None, Some(file)) => p { span.blank { "The experiment names a prediction, " (file.display()) ", that was not recorded in this folder; grid run records it." } },
                (None, None) => p { span.blank { "no prediction was recorded" } },
            }
        }
    }

    /// What arms are, and in what they differ from the baseline.
    pub(super) fn arms(&self) -> Markup {
        let baseline = self.plan.baseline();
        let slots = ["environment", "rollout", "estimator", "objective"];
        let row = |arm: &ArmPlan| {
            let mut row = vec![html! { (arm.name) @if arm.name == baseline.name { " (baseline)" } }];
            row.extend(slots.map(|slot| html! { (arm.plugin(slot)) }));
            row.push(html! { (plain(arm.updates as f64)) });
            row.push(match &arm.budget.tokens {
                Some(tokens) => html! { (plain(tokens.0 as f64)) },
                None => html! { span.blank { "none" } },
            });
            row
        };
        let rows: Vec<Vec<Markup>> = self.plan.arms.iter().map(row).collect();
        let header = ["arm", "environment", "rollout", "estimator", "objective", "updates at most", "tokens at most"];
        let seeds = self.plan.spec.seeds.all().len();
        html! {
            (figure::table("Arms", &header, &rows))
            @if let Some(advice) = Replication::of(seeds).advice() { p.warn { "Planned with " (advice) "." } }
            @if self.plan.arms.iter().any(|arm| arm.budget.tokens.is_none()) {
                p.warn { "Not every arm has a budget of tokens (" code { "budget.tokens" } "): what methods cost is read from the tables, not made equal." }
            }
            @for arm in self.plan.arms.iter().filter(|arm| arm.name != baseline.name) {
                h3 { (arm.name) }
                (self.differs(arm, baseline))
            }
        }
    }

    fn differs(&self, arm: &ArmPlan, baseline: &ArmPlan) -> Markup {
        let side = |value: Option<String>| match value {
            Some(value) => html! { code { (value) } },
            None => html! { "—" },
        };
        // A control is told from its arm by what it destroys.
        let of = arm.chosen_by.as_ref().and_then(|by| self.plan.arms.iter().find(|arm| arm.name == *by));
        let from = of.unwrap_or(baseline);
        let differs = self.plan.differs(arm, from);
        let rows: Vec<Vec<Markup>> =
            differs.into_iter().map(|(key, there, here)| vec![html! { code { (key) } }, side(there), side(here)]).collect();
        let confounds = self.plan.confounds(arm, baseline);
        html! {
            @if let Some(by) = &arm.chosen_by { p { "A control of " (by) ", with what that arm chose." } }
            (figure::table(&format!("How {} differs from {}", arm.name, from.name), &["key", &from.name, &arm.name], &rows))
            @if !confounds.is_empty() {
                p.warn { strong { "Mind" } ": it also differs in " (confounds.join(", ")) ". A difference in scores may be theirs." }
            }
        }
    }

    /// What arms tried, and what they took.
    pub(super) fn tuning_section(&self) -> Markup {
        let tuned = self.plan.spec.tuned();
        if tuned.is_empty() {
            return html! { p { "Nothing was tuned: every arm has the settings of its file." } };
        }
        if self.tuning.is_empty() {
            let why =
                if self.plan.n_cells().0 == 0 { "there is one setting to choose from" } else { "its runs are not all done" };
            return html! { p { "Nothing was chosen: " (why) "." } };
        }
        let mut rows = Vec::new();
        for (arm, choice) in &self.tuning {
            for (i, (settings, mean)) in choice.tried.iter().enumerate() {
                rows.push(vec![
                    html! { (arm) },
                    html! { code { (settings.join(" ")) } },
                    match mean {
                        Some(mean) => html! { (score(*mean)) },
                        None => html! { "every run failed" },
                    },
                    html! { @if i == choice.best { strong { "chosen" } } },
                ]);
            }
        }
        let cost = |arm: &str| self.results.spent.iter().find(|(of, _)| of == arm).map_or(0, |(_, spent)| spent.tuning_tokens);
        html! {
            p {
                "Every arm that is no control chose for itself, by the mean score over " (self.plan.spec.tune_seeds)
                " seeds of its own that no reported run has. The cost is in no run's ledger:"
            }
            ul { @for arm in self.tuning.keys() { li { (arm) ": " (plain(cost(arm) as f64)) " tokens" } } }
            (figure::table("What was tried", &["arm", "settings", "mean score", "choice"], &rows))
        }
    }
}

/// What was predicted, when, and whether it still stands there.
fn prediction(of: &Predicted) -> Markup {
    let recorded = &of.recorded;
    html! {
        dl.facts {
            dt { "prediction" } dd { (recorded.file.display()) }
            // Dates are of a clock: `time` elements are left out where pages are compared.
            dt { "recorded" } dd { time datetime=(recorded.date) { (recorded.date) } }
            dt { "cells measured by then" } dd { (recorded.cells_done) }
            dt { "SHA-256" } dd.mono { (recorded.sha256) }
        }
        @if recorded.cells_done > 0 {
            p.bad { strong { "This is no prediction" } ": " (recorded.cells_done) " of the reported cells had been measured when it was recorded." }
        } @else {
            p { "It was recorded before any reported cell was done." }
        }
        @match &of.now {
            PredictionFile::Unchanged(text) => {
                p { "The file is the one that was recorded." }
                details open[text.len() <= SHORT] { summary { "Its text" } pre { (text) } }
            }
            PredictionFile::Changed(hash) => {
                p.bad { strong { "The file was changed since" } ": its SHA-256 is now " span.mono { (hash) } ", and its text is not shown. What was predicted is what the recorded hash is of." }
            }
            PredictionFile::Unreadable(why) => {
                p.bad { strong { "The file cannot be read now" } ": " (why) ". Whether it says what was predicted is not known." }
            }
        }
    }
}
