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

use std::path::Path;

use ascribe_core::{AdvantageEstimator, Slot};
use ascribe_run::disk::{Disk, DiskError};
use maud::html;

use crate::Page;
use data::Data;

pub use error::ViewError;
pub use source::{Contents, Damaged, Saved, Source, Trained, Updates};

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
    /// What could not be read and is left out.
    pub damaged: Vec<Damaged>,
}

impl View {
    /// Writes the file, and makes the folders above it.
    ///
    /// # Errors
    /// If something else is there than a page, or it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ViewError> {
        let may_go = Page::may_go(path).map_err(|source| DiskError { path: path.into(), doing: "look at", source })?;
        if !may_go {
            return Err(ViewError::Taken(path.into()));
        }
        let disk = Disk::default();
        disk.create_dir(path.parent().unwrap_or(Path::new("")))?;
        Ok(disk.write(path, self.html.as_bytes())?)
    }
}

/// Makes the page of some batches. Groups are shown whole, from the first on, as long as there are at most `limit` trajectories. What is
/// damaged is left out, and the page says so.
///
/// # Errors
/// If nothing can be shown, or an estimator cannot run on a batch.
pub fn view(title: &str, contents: Contents, lanes: &[Lane], limit: usize) -> Result<View, ViewError> {
    let Contents { saved, mut damaged, trained, others } = contents;
    let mut data = Data::new(title, &trained, lanes);
    let (mut trajectories, mut left_out) = (0, 0);
    let mut full = false;
    let mut updates = Vec::new();
    for mut batch in saved {
        let (mut shown, mut beyond) = (0, 0);
        batch.groups.retain(|group| {
            // What is left out is what comes after, not whatever happens to be large.
            full |= trajectories + shown > 0 && trajectories + shown + group.leaves.len() > limit;
            *if full { &mut beyond } else { &mut shown } += group.leaves.len();
            !full
        });
        left_out += beyond;
        if batch.groups.is_empty() {
            continue;
        }
        match data.add(&batch, lanes)? {
            Some(broken) => damaged.push(broken),
            None => {
                trajectories += shown;
                updates.push(batch.update);
            }
        }
    }
    if updates.is_empty() {
        return Err(ViewError::Damaged { damaged, others });
    }
    let (table, tokens) = data.finish(left_out);
    let mut page = Page::new(format!("Trajectories of {title}"), body(&damaged)).style(include_str!("view.css"));
    page = page.data("data", &table);
    for (i, chunk) in tokens.iter().enumerate() {
        page = page.data(&format!("tokens-{i}"), chunk);
    }
    Ok(View { html: page.script(include_str!("view.js")).render(), updates, trajectories, left_out, damaged })
}

/// What the script fills, and what it could not be given.
fn body(damaged: &[Damaged]) -> maud::Markup {
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
            @if !damaged.is_empty() {
                ul.notices aria-label="Left out" { @for of in damaged { li { strong { (of.what) } " cannot be read and is left out: " (of.why) } } }
            }
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
