//! What lies in a grid's folder, held against what the experiment asks for now.
//!
//! A file can be edited between two commands. What was run before stays where it is, is no cell of the experiment as it is now, and
//! must neither be shown as one nor drop out without a word.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::GridError;
use super::folder::{GridFolder, State};
use super::plan::{Cell, Plan};
use super::results::chosen;

/// How a grid's folder and the experiment, as it is now, go together.
#[derive(Clone, Debug)]
pub struct Drift {
    /// Whether tuning is over. Before that nobody knows which runs will be reported.
    pub tuned: bool,
    /// Cells that were planned here and are not the experiment's.
    pub foreign: Vec<Cell>,
    /// How many of its cells were not planned here.
    pub unplanned: usize,
    /// Finished runs that are none of its cells: their folders, seen from the grid's.
    pub beside: Vec<PathBuf>,
    /// Whether it is another experiment altogether: something was planned or run here, and nothing of it is this one's.
    pub another: bool,
}

impl Drift {
    /// Holds a folder against a plan.
    ///
    /// # Errors
    /// If an arm cannot be run with what it chose, or records cannot be read.
    pub fn read(plan: &Plan, folder: &GridFolder) -> Result<Drift, GridError> {
        let (own, tuned) = cells_of(plan, folder)?;
        let ids: BTreeSet<&str> = own.iter().map(|cell| cell.id.as_str()).collect();
        // A list that is gone or damaged is written anew; the runs are there.
        let planned = folder.cells().unwrap_or_default();
        let known: BTreeSet<&str> = planned.iter().map(|cell| cell.id.as_str()).collect();
        let runs: BTreeSet<PathBuf> = own.iter().map(Cell::run).collect();
        let beside: Vec<PathBuf> = folder.finished().into_iter().filter(|run| !runs.contains(run)).collect();
        let mut another = !planned.is_empty() || !beside.is_empty();
        for cell in &own {
            another = another && !known.contains(cell.id.as_str()) && folder.state(cell)? == State::Waiting;
        }
        let unplanned = own.iter().filter(|cell| !known.contains(cell.id.as_str())).count();
        let judged = |cell: &&Cell| tuned || cell.tries.is_some();
        let foreign = planned.iter().filter(judged).filter(|cell| !ids.contains(cell.id.as_str())).cloned().collect();
        Ok(Drift { tuned, foreign, unplanned, beside, another })
    }
}

/// The cells of the experiment as it is now, and whether tuning is over: before that its tuning runs alone are known.
pub(super) fn cells_of(plan: &Plan, folder: &GridFolder) -> Result<(Vec<Cell>, bool), GridError> {
    let mut cells = plan.tuning()?;
    let Some(choice) = chosen(plan, folder, &cells)? else { return Ok((cells, false)) };
    let choice = choice.into_iter().map(|(arm, of)| (arm, of.settings().to_vec())).collect();
    cells.extend(plan.reported(&choice)?);
    Ok((cells, true))
}
