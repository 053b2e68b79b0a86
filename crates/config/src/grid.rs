//! `[grid]`: what a grid of experiments varies, and where it says so.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::layers::{Layer, Stack};
use crate::path::Path;
use crate::report::{Problem, Report, list, nearest};
use crate::source::{Origins, Place, SourceKind, below};

const GRID: &str = "grid";
const ARM: &str = "arm";

/// The `[grid]` of an experiment.
#[derive(Clone, Debug)]
pub struct Grid {
    /// What the experiment is called.
    pub name: String,
    /// The table.
    pub table: Table,
    /// Where its keys were said, seen from it.
    pub(crate) at: Origins,
    pub(crate) place: Option<Place>,
}

impl Grid {
    /// Reads it as a type.
    ///
    /// # Errors
    /// What does not fit, with its place.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Report> {
        serde_path_to_error::deserialize(Value::Table(self.table.clone())).map_err(|e| {
            let path: Path = e.path().iter().map(|part| part.to_string()).filter(|part| part != "?").collect();
            let message = e.inner().to_string();
            self.report(&path, message.lines().next().unwrap_or_default())
        })
    }

    /// Where a key was said, or the nearest key around it.
    fn place_of(&self, path: &[String]) -> Option<Place> {
        let said = (1..=path.len()).rev().find_map(|n| self.at.get(&path[..n]));
        said.map(|origin| origin.key_place()).or_else(|| self.place.clone())
    }

    /// A report in which a setting that the grid makes, as those of an axis, is shown where the grid says it.
    ///
    /// * `said`: the path of such a setting `KEY=VALUE`, seen from the grid; `None` for one of the command line.
    #[must_use]
    pub fn placed(&self, mut report: Report, said: impl Fn(&str) -> Option<Vec<String>>) -> Report {
        for mark in report.problems.iter_mut().flat_map(|problem| &mut problem.marks) {
            let source = &mark.place.source;
            let path = Some(source).filter(|source| source.kind == SourceKind::CommandLine).and_then(|source| said(&source.text));
            if let Some(place) = path.and_then(|path| self.place_of(&path)) {
                mark.place = place;
            }
        }
        report
    }

    /// A problem with one of its keys, as a report with its place, or that of the nearest key around it.
    pub fn report<S: AsRef<str>>(&self, path: &[S], message: impl Into<String>) -> Report {
        let path: Path = path.iter().map(|key| key.as_ref().to_string()).collect();
        let place = self.place_of(&path);
        let key = [&[GRID.to_string()], &path[..]].concat();
        Report::new(vec![Problem::new(format!("`{}`: {}", crate::path::show(&key), message.into())).at(place)])
    }
}

/// Takes the grid off, where there is one.
pub(crate) fn take(stack: &mut Stack, fallback: Option<&Place>) -> Option<Grid> {
    let at = below(&stack.at, &[GRID.to_string()], 0);
    let (value, place) = stack.take(GRID)?;
    match value {
        Value::Table(table) => Some(Grid { name: String::new(), table, at, place: place.or_else(|| fallback.cloned()) }),
        _ => {
            stack.problems.push(Problem::new("`grid` must be a table").at(place));
            None
        }
    }
}

/// Puts an arm's table on top, as layer `layer`.
pub(crate) fn push_arm(stack: &mut Stack, name: &str, layer: usize, fallback: Option<&Place>) {
    let arms = stack.tree.get(GRID).and_then(|grid| grid.get(ARM)).and_then(Value::as_table);
    match arms.and_then(|arms| arms.get(name)) {
        Some(Value::Table(tree)) => {
            let prefix = [GRID.to_string(), ARM.to_string(), name.to_string()];
            let layer = Layer { tree: tree.clone(), at: below(&stack.at, &prefix, layer) };
            stack.push(layer);
        }
        // That it is no table is said where the grid is read.
        Some(_) => {}
        None => {
            let known: Vec<&str> = arms.map(|arms| arms.keys().map(String::as_str).collect()).unwrap_or_default();
            let mut problem = Problem::new(format!("the grid has no arm `{name}`")).at(fallback.cloned());
            if let Some(near) = nearest(name, known.iter().copied()) {
                problem = problem.help(format!("did you mean `{near}`?"));
            } else if !known.is_empty() {
                problem = problem.help(format!("its arms: {}", list(&known, "and")));
            }
            stack.problems.push(problem);
        }
    }
}
