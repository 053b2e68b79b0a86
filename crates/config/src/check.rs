//! Whether a phase is what its types say, and whether its plugins fit together.

use ascribe_core::experiment::{Experiment, Phase};
use ascribe_core::registry::{Kind, Plugin};
use ascribe_core::{
    AdvantageEstimator, CreditTransform, CriticConfig, Objective, PolicyConfig, RolloutConfig, Schedule, Slot, TaskSetConfig,
    graph,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::assign::command_line;
use crate::judge::{Context, describe_all, judge};
use crate::knobs::{at_bounds, lift};
use crate::layers::{Replaced, Stack};
use crate::path::{Path, set, show};
use crate::report::Problem;
use crate::schema::{schema, slot_schema};
use crate::source::Origins;

/// A phase that passed every check.
pub(crate) struct Checked {
    pub phase: Phase,
    /// The whole experiment as it is in this phase, with its schedules.
    pub resolved: Table,
}

/// Checks one phase: its shape, then whether its plugins fit together.
pub(crate) fn check(name: &str, stack: &Stack, replaced: &[Replaced]) -> Result<Checked, Vec<Problem>> {
    let tree = Value::Table(stack.tree.clone());
    let context = Context { schema: stack.schema, tree: &tree, at: &stack.at, replaced, fallback: None };
    let mut value = tree.clone();
    let (knobs, mut findings) = lift(&mut value, stack.schema);
    let standing = value.clone();
    let (experiment, more) = judge::<Experiment>(&mut value, stack.schema);
    findings.extend(more);
    let at_bounds = match findings.is_empty() {
        true => at_bounds(&standing, &knobs).unwrap_or_else(|more| {
            findings = more;
            Vec::new()
        }),
        false => Vec::new(),
    };
    let (Some(experiment), true) = (experiment, findings.is_empty()) else {
        return Err(describe_all(&findings, &context));
    };

    let mut problems = Vec::new();
    if !device_is_known(&experiment.device) {
        let found = Value::from(experiment.device.as_str());
        let problem = Problem::new(format!("`device` must be `cpu`, `cuda` or `cuda:N`, found {found}"));
        problems.push(problem.at(context.place(&["device".into()], false)));
    }
    let unmet = graph::check(&experiment, &stack.tree);
    for bound in at_bounds {
        let more = graph::check(&bound.experiment, &stack.tree).into_iter().filter(|u| !unmet.contains(u));
        for further in more {
            let when = format!("when the schedule of `{}` reaches {}", show(&bound.path), bound.number);
            let problem = Problem::new(format!("{}, {when}", further.message)).at(context.place(&bound.path, true));
            problems.push(problem.help(further.help));
        }
    }
    for unmet in unmet {
        problems.push(Problem::new(unmet.message).at(context.place(&unmet.path, true)).help(unmet.help));
    }
    if !problems.is_empty() {
        return Err(problems);
    }

    let written = written(&experiment).and_then(|phase_tree| {
        let mut resolved = Value::Table(phase_tree.clone());
        for knob in &knobs {
            set(&mut resolved, &knob.path, Value::try_from(&knob.schedule).map_err(|e| e.to_string())?);
        }
        match resolved {
            Value::Table(resolved) => Ok((phase_tree, resolved)),
            _ => Err("not a table".into()),
        }
    });
    match written {
        Ok((phase_tree, resolved)) => Ok(Checked { phase: Phase { name: name.into(), tree: phase_tree, knobs }, resolved }),
        Err(why) => Err(vec![
            Problem::new(format!("a plugin does not read what it writes: {why}"))
                .help("this is a mistake in the plugin, not in the file"),
        ]),
    }
}

/// An experiment as a tree, with every default filled in; read again, it is the same.
fn written(experiment: &Experiment) -> Result<Table, String> {
    let tree = Table::try_from(experiment).map_err(|e| e.to_string())?;
    let again = Experiment::deserialize(Value::Table(tree.clone())).map_err(|e| e.message().to_string())?;
    let twice = Table::try_from(&again).map_err(|e| e.to_string())?;
    if tree == twice { Ok(tree) } else { Err("its values change".into()) }
}

fn device_is_known(device: &str) -> bool {
    let number = |n: &str| !n.is_empty() && n.len() < 4 && n.bytes().all(|b| b.is_ascii_digit());
    matches!(device, "cpu" | "cuda") || device.strip_prefix("cuda:").is_some_and(number)
}

/// Whether a plugin's example is one of it.
pub(crate) fn check_example(row: &Plugin) -> Result<(), Vec<Problem>> {
    match row.kind {
        Kind::Environment => from_example::<Slot<dyn TaskSetConfig>>(row, &[]).map(drop),
        Kind::Policy => from_example::<Slot<dyn PolicyConfig>>(row, &[]).map(drop),
        Kind::Critic => from_example::<Slot<dyn CriticConfig>>(row, &[]).map(drop),
        Kind::Rollout => from_example::<Slot<dyn RolloutConfig>>(row, &[]).map(drop),
        Kind::Estimator => from_example::<Slot<dyn AdvantageEstimator>>(row, &[]).map(drop),
        Kind::Transform => from_example::<Slot<dyn CreditTransform>>(row, &[]).map(drop),
        Kind::Objective => from_example::<Slot<dyn Objective>>(row, &[]).map(drop),
        Kind::Schedule => from_example::<Slot<dyn Schedule>>(row, &[]).map(drop),
    }
}

/// A plugin as in its example, with settings `KEY=VALUE` on top whose keys are the plugin's own.
pub(crate) fn from_example<T: DeserializeOwned>(row: &Plugin, settings: &[String]) -> Result<T, Vec<Problem>> {
    let slot = slot_schema(row.kind);
    let (Ok(tree), Some(schema)) = (toml::from_str(row.example), slot.child(row.name)) else {
        return Err(vec![Problem::new(format!("the example of {} `{}` is not TOML", row.kind, row.name))]);
    };
    let mut stack = Stack { tree, ..Stack::new(schema) };
    command_line(&mut stack, settings, 0, 0);
    let below = |path: Path| [vec![row.name.to_string()], path].concat();
    let at: Origins = stack.at.into_iter().map(|(path, origin)| (below(path), origin)).collect();
    let tree = Value::Table(Table::from_iter([(row.name.to_string(), Value::Table(stack.tree))]));
    let (plugin, findings) = judge::<T>(&mut tree.clone(), slot);
    let mut problems = stack.problems;
    problems.extend(describe_all(&findings, &Context { schema: slot, tree: &tree, at: &at, replaced: &[], fallback: None }));
    match plugin {
        Some(plugin) if problems.is_empty() => Ok(plugin),
        _ => Err(problems),
    }
}

/// What `estimator = VALUE` means.
pub(crate) fn estimator(value: &str) -> Result<Slot<dyn AdvantageEstimator>, Vec<Problem>> {
    let slot = slot_schema(Kind::Estimator);
    let mut stack = Stack::new(schema());
    command_line(&mut stack, &[format!("{}={value}", Kind::Estimator)], 0, 0);
    let Some(tree) = stack.tree.remove(Kind::Estimator.as_str()) else { return Err(stack.problems) };
    let at: Origins = stack.at.into_iter().map(|(path, origin)| (path[1..].to_vec(), origin)).collect();
    let (estimator, findings) = judge(&mut tree.clone(), slot);
    let mut problems = stack.problems;
    problems.extend(describe_all(&findings, &Context { schema: slot, tree: &tree, at: &at, replaced: &[], fallback: None }));
    match estimator {
        Some(estimator) if problems.is_empty() => Ok(estimator),
        _ => Err(problems),
    }
}
