//! The view of trajectories: `ascribe view RUN`.
//!
//! One page with all turns of the saved batches, and beside the credit that trained that of any other estimators, computed
//! again on the batch as it was.
//!
//! **Colour.** A lane is the credit of one estimator; its scale `s` is the largest absolute credit on the page. A credit `c` is
//! drawn in the colour `zero + |c / s| · (end − zero)`, channel by channel and rounded to whole levels, where `end` is blue for
//! `c > 0` and orange for `c < 0`. Each end differs from zero by at least 128 levels in one channel, so that `c / s` can be read
//! back to 1/256. The colours stand in `view.js`. What has no credit has no colour: it is hatched, which 0 is not.

mod data;
mod error;
mod source;

use ascribe_core::{AdvantageEstimator, Slot};
use maud::html;

use crate::Page;
use data::Data;

pub use error::ViewError;
pub use source::{Saved, Source, Updates};

/// An estimator whose credit is shown beside that which trained.
#[derive(Debug)]
pub struct Lane {
    /// What it is called.
    pub name: String,
    /// The estimator.
    pub estimator: Slot<dyn AdvantageEstimator>,
}

/// A page of trajectories.
#[derive(Clone, Debug)]
pub struct View {
    /// The file.
    pub html: String,
    /// Updates shown.
    pub updates: Vec<u32>,
    /// Trajectories shown.
    pub trajectories: usize,
    /// Trajectories beyond the limit.
    pub left_out: usize,
}

/// Makes the page of some batches. Groups are shown whole, from the first on, as long as there are at most `limit` trajectories.
///
/// # Errors
/// If a batch cannot be restored, or an estimator cannot run on it.
pub fn view(title: &str, saved: Vec<Saved>, lanes: &[Lane], limit: usize) -> Result<View, ViewError> {
    let (mut trajectories, mut left_out) = (0, 0);
    let mut full = false;
    let mut kept = Vec::new();
    for mut batch in saved {
        batch.groups.retain(|group| {
            // What is left out is what comes after, not whatever happens to be large.
            full |= trajectories > 0 && trajectories + group.leaves.len() > limit;
            *if full { &mut left_out } else { &mut trajectories } += group.leaves.len();
            !full
        });
        if !batch.groups.is_empty() {
            kept.push(batch);
        }
    }
    let mut data = Data::new(title, left_out, lanes);
    for batch in &kept {
        data.add(batch, lanes)?;
    }
    let (table, tokens) = data.finish();
    let mut page = Page::new(format!("Trajectories of {title}"), body()).style(include_str!("view.css"));
    page = page.data("data", &table);
    for (i, chunk) in tokens.iter().enumerate() {
        page = page.data(&format!("tokens-{i}"), chunk);
    }
    Ok(View {
        html: page.script(include_str!("view.js")).render(),
        updates: kept.iter().map(|batch| batch.update).collect(),
        trajectories,
        left_out,
    })
}

/// What the script fills. Nothing here comes from a run.
fn body() -> maud::Markup {
    let keys = [
        ("j, k", "next and previous trajectory; arrows too, in the list"),
        ("n, p", "next and previous turn"),
        ("g", "only this trajectory's group, and back"),
        ("t", "tokens"),
        ("/", "search"),
        ("Esc", "leave the search; close this"),
        ("?", "this"),
    ];
    html! {
        header id="top" {
            h1 { "Trajectories" }
            p id="about" class="dim" {}
            form id="filters" role="search" {
                label { "search " input id="search" type="search" autocomplete="off" spellcheck="false" placeholder="task, observation, action"; }
                label { "outcome " select id="outcome" {} }
                label { "update " select id="update" {} }
                label { "group " input id="group" type="text" autocomplete="off" size="12" placeholder="update:group"; }
                label { "alarm " select id="alarm" {} }
                label { input id="disagree" type="checkbox"; " lanes disagree in sign" }
                label { "sort " select id="sort" {} }
                button type="reset" { "clear" }
                button type="button" id="help-button" aria-haspopup="dialog" { "keys" }
            }
            div id="legend" role="group" aria-label="colours" {}
        }
        main id="view" {
            section id="side" aria-label="trajectories" {
                p id="count" role="status" aria-live="polite" {}
                div id="list" role="listbox" tabindex="0" aria-label="trajectories" { div id="rows" {} }
            }
            article id="detail" aria-label="the selected trajectory" tabindex="-1" {}
        }
        dialog id="help" aria-label="keys" {
            h2 { "Keys" }
            dl { @for (key, what) in keys { dt { kbd { (key) } } dd { (what) } } }
            form method="dialog" { button { "close" } }
        }
        noscript { p { "This page needs its script: allow scripts for this file." } }
    }
}
