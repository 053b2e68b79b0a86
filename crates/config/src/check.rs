//! Whether a phase is what its types say, and whether its plugins fit together.

use ascribe_core::experiment::{Experiment, Phase};
use ascribe_core::registry::{Kind, Plugin};
use ascribe_core::{
    AdvantageEstimator, CreditTransform, CriticConfig, Objective, PolicyConfig, RolloutConfig, Schedule, Slot, TaskSetConfig,
    graph,
};
use serde::Deserialize;
use toml::{Table, Value};

use crate::judge::{Context, describe_all, judge};
use crate::knobs::{at_bounds, lift};
use crate::layers::{Replaced, Stack};
use crate::path::{set, show};
use crate::report::Problem;
use crate::schema::{example, slot_schema};
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
    let Some(mut value) = example(row) else {
        return Err(vec![Problem::new(format!("the example of {} `{}` is not TOML", row.kind, row.name))]);
    };
    let tree = value.clone();
    let node = slot_schema(row.kind);
    let findings = match row.kind {
        Kind::Environment => judge::<Slot<dyn TaskSetConfig>>(&mut value, node).1,
        Kind::Policy => judge::<Slot<dyn PolicyConfig>>(&mut value, node).1,
        Kind::Critic => judge::<Slot<dyn CriticConfig>>(&mut value, node).1,
        Kind::Rollout => judge::<Slot<dyn RolloutConfig>>(&mut value, node).1,
        Kind::Estimator => judge::<Slot<dyn AdvantageEstimator>>(&mut value, node).1,
        Kind::Transform => judge::<Slot<dyn CreditTransform>>(&mut value, node).1,
        Kind::Objective => judge::<Slot<dyn Objective>>(&mut value, node).1,
        Kind::Schedule => judge::<Slot<dyn Schedule>>(&mut value, node).1,
    };
    let context = Context { schema: node, tree: &tree, at: &Origins::new(), replaced: &[], fallback: None };
    let problems = describe_all(&findings, &context);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
