//! Phases: each is one more layer, on top of all others.

use ascribe_core::experiment::RUN_WIDE;
use toml::Value;

use crate::layers::{Layer, Stack, child, phase_name};
use crate::path::{Path, show};
use crate::report::{Problem, list};
use crate::source::{Origins, Place, SourceKind, below};

/// Where phases put their layer: above all others.
const PHASE_LAYER: usize = usize::MAX;

/// A phase as the experiment gives it.
pub(crate) struct Given {
    pub name: String,
    /// Where it begins.
    pub header: Option<Place>,
    /// What differs in it.
    pub layer: Layer,
}

/// A phase on top of its experiment; without phases, the experiment.
pub(crate) struct Stacked {
    pub name: String,
    /// Where it begins.
    pub header: Option<Place>,
    pub stack: Stack,
}

/// Takes the phases off the experiment.
pub(crate) fn take(stack: &mut Stack) -> Vec<Given> {
    let key = ["phase".to_string()];
    let at: Origins = stack.at.iter().filter(|(p, _)| p.starts_with(&key)).map(|(p, o)| (p.clone(), o.clone())).collect();
    let Some((value, place)) = stack.take("phase") else { return Vec::new() };
    let Value::Array(items) = value else {
        let in_file = place.as_ref().is_none_or(|place| place.kind() == SourceKind::File);
        let name = value.as_table().and_then(|table| table.keys().next()).filter(|_| !in_file);
        let message = name.map(|name| format!("there is no phase `{name}`: the experiment has no phases"));
        let problem = Problem::new(message.unwrap_or_else(|| "`phase` must be a list of tables".into())).at(place);
        stack.problems.push(problem.help("write [[phase]] and below it name = \"…\", once for each phase"));
        return Vec::new();
    };
    let mut phases: Vec<Given> = Vec::new();
    for (i, item) in items.into_iter().enumerate() {
        let prefix = [key[0].clone(), i.to_string()];
        let place = |path: &[String]| at.get(path).map(|origin| origin.key_place());
        let header = place(&prefix);
        let name = phase_name(&item).map(String::from);
        let Value::Table(mut tree) = item else {
            stack.problems.push(Problem::new(format!("`{}` must be a table", show(&prefix))).at(header));
            continue;
        };
        let name = match (name, tree.remove("name")) {
            (Some(name), _) if !name.trim().is_empty() => name,
            (_, None) => {
                let problem = Problem::new(format!("phase {} has no name", i + 1)).at(header.clone());
                stack.problems.push(problem.help("give it one: name = \"…\""));
                format!("phase {}", i + 1)
            }
            (_, Some(_)) => {
                let place = at.get(&child(&prefix, "name")).map(|origin| origin.value_place());
                stack.problems.push(Problem::new("the name of a phase must be a text that is not empty").at(place));
                format!("phase {}", i + 1)
            }
        };
        if let Some(first) = phases.iter().find(|other| other.name == name) {
            let problem = Problem::new(format!("two phases have the name `{name}`"));
            stack.problems.push(problem.mark(header.clone(), "the second").mark(first.header.clone(), "the first"));
        }
        for own in RUN_WIDE.into_iter().chain(["phase", "extends", "grid"]) {
            if tree.remove(own).is_some() {
                let problem = Problem::new(format!("a phase has no `{own}` of its own: it holds for the whole run"));
                let problem = problem.at(place(&child(&prefix, own)));
                stack.problems.push(problem.help("write it above the first [[phase]]"));
            }
        }
        let mut at = below(&at, &prefix, PHASE_LAYER);
        let gone = |p: &Path| p[0] == "name" || RUN_WIDE.contains(&p[0].as_str()) || !tree.contains_key(&p[0]);
        at.retain(|p, _| !gone(p));
        phases.push(Given { name, header, layer: Layer { tree, at } });
    }
    phases
}

/// Every phase on top of the experiment.
pub(crate) fn stack(experiment: Stack, phases: Vec<Given>) -> Vec<Stacked> {
    if phases.is_empty() {
        return vec![Stacked { name: "main".into(), header: None, stack: experiment }];
    }
    let on_top = |phase: Given| {
        let Given { name, header, layer } = phase;
        let (tree, at) = (experiment.tree.clone(), experiment.at.clone());
        let mut stack = Stack { tree, at, phase: Some(name.clone()), ..Stack::new(experiment.schema) };
        stack.push(layer);
        Stacked { name, header, stack }
    };
    phases.into_iter().map(on_top).collect()
}

/// Problems of all phases. What is wrong in every phase is one problem; what is wrong in some names them.
pub(crate) fn gather(per_phase: Vec<Vec<Problem>>, phases: &[Stacked], fallback: Option<&Place>) -> Vec<Problem> {
    let n_phases = per_phase.len();
    let mut grouped: Vec<(Problem, Vec<usize>)> = Vec::new();
    for (i, problems) in per_phase.into_iter().enumerate() {
        for problem in problems {
            match grouped.iter_mut().find(|(known, _)| *known == problem) {
                Some((_, phases)) if phases.contains(&i) => {}
                Some((_, phases)) => phases.push(i),
                None => grouped.push((problem, vec![i])),
            }
        }
    }
    let name = |(mut problem, which): (Problem, Vec<usize>)| {
        let everywhere = which.len() == n_phases;
        if problem.marks.is_empty() {
            let headers = which.iter().filter_map(|i| phases[*i].header.clone());
            let places: Vec<Place> = if everywhere { fallback.cloned().into_iter().collect() } else { headers.collect() };
            problem = places.into_iter().fold(problem, |problem, place| problem.at(Some(place)));
        }
        if !everywhere {
            let names: Vec<&str> = which.iter().map(|i| phases[*i].name.as_str()).collect();
            let phase = if names.len() == 1 { "phase" } else { "phases" };
            problem.message = format!("{phase} {}: {}", list(&names, "and"), problem.message);
        }
        problem
    };
    grouped.into_iter().map(name).collect()
}
