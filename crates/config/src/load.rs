//! From layers to a loaded experiment.

use std::sync::Arc;

use ascribe_core::experiment::Plan;
use ascribe_core::registry::{self, Kind};
use toml::{Table, Value};

use crate::Request;
use crate::assign::{self, Applied};
use crate::check::{Checked, check};
use crate::files::Files;
use crate::grid::{self, Grid};
use crate::layers::{Replaced, Stack};
use crate::path::{Path, get, show};
use crate::phases::{self, Stacked};
use crate::report::{Problem, Report, nearest};
use crate::schema::schema;
use crate::source::{Origins, Place, Source};
use crate::write::{given, identity, resolved};

/// A loaded experiment.
#[derive(Debug)]
pub struct Loaded {
    /// The checked experiment.
    pub plan: Plan,
    /// Plugins that a higher layer replaced by another one.
    pub replaced: Vec<Replaced>,
    /// What the environment and the command line changed.
    pub changes: Vec<Change>,
    /// The `[grid]`, if there is one.
    pub grid: Option<Grid>,
    /// Whether the experiment names its phases.
    pub has_phases: bool,
    /// Per phase: its resolved tree with its schedules, and where it was said.
    pub(crate) phases: Vec<(Table, Origins)>,
    fallback: Option<Place>,
}

/// A setting of the environment or the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its value before: the files', or its default.
    pub old: Option<Value>,
    /// Its value now.
    pub new: Option<Value>,
    /// Where it was set.
    pub place: Place,
    /// Phases in which it is in effect. None: something above it says otherwise everywhere.
    pub phases: Vec<String>,
}

impl Loaded {
    /// Where a key of a phase was said last, or the nearest key around it.
    pub fn place(&self, phase: usize, path: &[String]) -> Option<Place> {
        let at = &self.phases.get(phase)?.1;
        let said = (1..=path.len()).rev().find_map(|n| at.get(&path[..n]));
        said.map(|origin| origin.key_place()).or_else(|| self.fallback.clone())
    }

    /// A problem that shows only when the experiment is built, as a report with its place.
    pub fn report(&self, phase: usize, path: &[String], message: impl Into<String>) -> Report {
        Report::new(vec![Problem::new(message).at(self.place(phase, path))])
    }
}

/// All layers on top of each other.
struct Gathered {
    stack: Stack,
    sources: Vec<Arc<Source>>,
    said_by_files: Value,
    applied: Vec<Applied>,
    grid: Option<Grid>,
    fallback: Option<Place>,
}

/// Reads the files and puts environment, arm and command line on top.
fn gather(request: &Request) -> Result<Gathered, Vec<Problem>> {
    let mut files = Files::default();
    for file in &request.files {
        files.read(file, None);
    }
    if request.files.is_empty() {
        files.problems.push(Problem::new("there is no file to load"));
    }
    if !files.problems.is_empty() {
        return Err(files.problems);
    }

    let fallback = files.sources.last().map(|source| Place { source: source.clone(), span: None });
    let mut stack = Stack::new(schema());
    let layers = files.layers.len();
    files.layers.into_iter().for_each(|layer| stack.push(layer));
    let said_by_files = Value::Table(stack.tree.clone());
    let rank = files.ranks + 1;
    let mut applied = assign::environment(&mut stack, &request.environment, layers, rank);
    // What the command line says of an arm is part of the arm, which lies below all else that it says.
    let (of_grid, others): (Vec<String>, Vec<String>) =
        request.assignments.iter().cloned().partition(|text| text.trim_start().starts_with("grid."));
    let ranks = rank + 1 + of_grid.len();
    applied.extend(assign::command_line(&mut stack, &of_grid, layers + 1, rank + 1));
    if let Some(arm) = &request.arm {
        grid::push_arm(&mut stack, arm, layers + 1, fallback.as_ref());
    }
    applied.extend(assign::command_line(&mut stack, &others, layers + 2, ranks));
    let grid = grid::take(&mut stack, fallback.as_ref());
    Ok(Gathered { stack, sources: files.sources, said_by_files, applied, grid, fallback })
}

pub(crate) fn grid(request: &Request) -> Result<Grid, Vec<Problem>> {
    let Gathered { mut stack, grid, fallback, .. } = gather(request)?;
    let name = name(&mut stack, request);
    if !stack.problems.is_empty() {
        return Err(stack.problems);
    }
    let none = || vec![Problem::new("the experiment has no [grid]").at(fallback).help("for example [grid]\nseeds = 5")];
    grid.map(|grid| Grid { name, ..grid }).ok_or_else(none)
}

pub(crate) fn load(request: &Request) -> Result<Loaded, Vec<Problem>> {
    let Gathered { mut stack, sources, said_by_files, applied, grid, fallback } = gather(request)?;
    let name = name(&mut stack, request);
    check_uses(&mut stack);
    let phases = phases::take(&mut stack);
    let has_phases = !phases.is_empty();
    let mut replaced = std::mem::take(&mut stack.replaced);
    let mut problems = std::mem::take(&mut stack.problems);

    // Every phase is checked as a whole: what the experiment does not say, each phase may.
    let mut stacked = phases::stack(stack, phases);
    let mut per_phase: Vec<Vec<Problem>> = Vec::new();
    let mut checked = Vec::new();
    for phase in &mut stacked {
        let seen: Vec<Replaced> = replaced.iter().chain(&phase.stack.replaced).cloned().collect();
        let mut found = std::mem::take(&mut phase.stack.problems);
        match check(&phase.name, &phase.stack, &seen) {
            Ok(phase) => checked.push(phase),
            Err(more) => found.extend(more),
        }
        per_phase.push(found);
    }
    problems.extend(phases::gather(per_phase, &stacked, fallback.as_ref()));
    if !problems.is_empty() {
        return Err(problems);
    }

    for phase in &mut stacked {
        replaced.append(&mut phase.stack.replaced);
    }
    let changes = changes(&applied, &said_by_files, &stacked, &checked, has_phases);
    let tables: Vec<(&str, &Table)> = checked.iter().map(|c| (c.phase.name.as_str(), &c.resolved)).collect();
    let (resolved, identity) = (resolved(&tables, has_phases), identity(&tables));
    let given = given(&sources, &applied);
    let mut parts = Vec::new();
    let mut phases = Vec::new();
    for (checked, Stacked { stack, .. }) in checked.into_iter().zip(stacked) {
        phases.push(checked.phase);
        parts.push((checked.resolved, stack.at));
    }
    let grid = grid.map(|grid| Grid { name: name.clone(), ..grid });
    let plan = Plan { name, given, resolved, identity, phases };
    Ok(Loaded { plan, replaced, changes, grid, has_phases, phases: parts, fallback })
}

/// The experiment's name: what it says, else the file's.
fn name(stack: &mut Stack, request: &Request) -> String {
    let stem = request.files.last().and_then(|file| file.file_stem()).map(|stem| stem.to_string_lossy().into_owned());
    let stem = stem.unwrap_or_else(|| "experiment".into());
    match stack.tree.get("name") {
        None => {
            stack.tree.insert("name".into(), stem.as_str().into());
            stem
        }
        Some(Value::String(name)) => {
            let name = name.clone();
            let bad =
                name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) || name.chars().any(char::is_control);
            if bad {
                let place = stack.at.get(&["name".to_string()][..]).map(|origin| origin.value_place());
                let problem =
                    Problem::new(format!("`name` must be usable as the name of a folder, found {}", Value::from(name.as_str())));
                stack.problems.push(problem.at(place).help("without `/`, `\\`, control characters, or a dot at its beginning"));
            }
            name
        }
        // A wrong type is reported with everything else.
        Some(_) => stem,
    }
}

/// Crates that an experiment needs must be linked.
fn check_uses(stack: &mut Stack) {
    let plain = |name: &str| name.replace('-', "_");
    let mut linked: Vec<&str> = Kind::ALL.into_iter().flat_map(registry::plugins).map(|row| row.krate).collect();
    linked.sort_unstable();
    linked.dedup();
    let Some(Value::Array(uses)) = stack.tree.get("uses") else { return };
    for (i, krate) in uses.iter().enumerate() {
        let Some(krate) = krate.as_str() else { continue };
        if linked.iter().any(|name| plain(name) == plain(krate)) {
            continue;
        }
        let place = stack.at.get(&["uses".to_string(), i.to_string()][..]).map(|origin| origin.value_place());
        let mut problem = Problem::new(format!("this binary does not link the plugin crate `{krate}`")).at(place);
        if let Some(near) = nearest(krate, linked.iter().copied()) {
            problem = problem.help(format!("did you mean `{near}`?"));
        }
        let valid = !krate.is_empty() && krate.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        let shown = if valid { plain(krate) } else { "my_plugin".into() };
        stack.problems.push(problem.help(format!(
            "a crate of your own that depends on `ascribe` and `{}` links it, with this as its src/main.rs:\n\
             \n    use {shown} as _;\n\n    fn main() -> std::process::ExitCode {{\n        ascribe::main()\n    }}",
            if valid { krate } else { "my-plugin" }
        )));
    }
}

/// What the environment and the command line changed.
fn changes(all: &[Applied], files: &Value, stacked: &[Stacked], checked: &[Checked], has_phases: bool) -> Vec<Change> {
    let change = |applied: &Applied| {
        let own = match &applied.path[..] {
            [phase, i, _, ..] if has_phases && phase == "phase" => i.parse::<usize>().ok().filter(|i| *i < stacked.len()),
            _ => None,
        };
        // A phase's own key, seen from the phase; `phase.0` is shown by its name.
        let (asked, path, shown): (Vec<usize>, &[String], Path) = match own {
            Some(i) => {
                let inner = &applied.path[2..];
                (vec![i], inner, [&["phase".to_string(), stacked[i].name.clone()], inner].concat())
            }
            None => ((0..stacked.len()).collect(), &applied.path, applied.path.clone()),
        };
        let from = |i: usize, path: &[String], by: &Applied| {
            stacked[i].stack.at.get(path).is_some_and(|origin| origin.source == by.place.source)
        };
        // What goes on below it says the same: `estimator=gigpo`, then `estimator.gigpo.gamma=0.9`.
        let below = |i: usize| {
            all.iter().any(|b| b.path.len() > applied.path.len() && b.path.starts_with(&applied.path) && from(i, &b.path, b))
        };
        let says_so = |i: &usize| from(*i, path, applied) || below(*i);
        let in_effect: Vec<usize> = asked.into_iter().filter(says_so).collect();
        let before = get(files, &applied.path).or_else(|| get(files, path)).cloned();
        Change {
            key: show(&shown),
            old: before.or_else(|| schema().get(path).and_then(|node| node.default())),
            new: in_effect.first().and_then(|i| get(&Value::Table(checked[*i].resolved.clone()), path).cloned()),
            place: applied.place.clone(),
            phases: in_effect.into_iter().map(|i| stacked[i].name.clone()).collect(),
        }
    };
    all.iter().filter(|a| a.path[0] != "grid").map(change).collect()
}
