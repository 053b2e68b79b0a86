//! `check`: an experiment's graph, without running it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use ascribe_config::Loaded;
use ascribe_core::experiment::{KnobMemory, Phase};
use ascribe_core::{BuildContext, Experiment, Now, graph};
use ascribe_study::grid::Plan;
use toml::{Table, Value};

use crate::args::CheckArgs;
use crate::output::{complain, indent, say, table};
use crate::{grid, load, run};

/// Checks an experiment and shows its graph.
pub(crate) fn command(args: &CheckArgs) -> ExitCode {
    let (file, settings) = (&args.experiment.file, &args.experiment.settings);
    let mut request = load::request(file, settings);
    // A grid's experiment may be complete with an arm only; what is wrong elsewhere is told below.
    let plan = match ascribe_config::grid(&request).is_ok().then(|| grid::checked_plan(file, settings)).transpose() {
        Ok(plan) => plan,
        Err(e) => return grid::refused(&e),
    };
    request.arm = plan.as_ref().filter(|plan| !plan.spec.arm.is_empty()).map(|plan| plan.spec.baseline());
    let loaded = match load::requested(&request) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    let base = run::base_of(file);
    if let Err(e) = ascribe_run::live::rehearse(&loaded.plan, base.clone()) {
        return run::failed(&e.into(), Some(&loaded));
    }
    match describe(&loaded, plan.as_ref(), &base) {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(message) => {
            complain(&format!("error: {message}"));
            ExitCode::from(crate::REJECTED)
        }
    }
}

/// The experiment in words.
fn describe(loaded: &Loaded, plan: Option<&Plan>, base: &Path) -> Result<String, String> {
    let mut out = format!("experiment `{}`", loaded.plan.name);
    for (i, phase) in loaded.plan.phases.iter().enumerate() {
        let (experiment, _) = phase.at(&Now::default(), &mut KnobMemory::default())?;
        if i == 0
            && let Some(question) = &experiment.question
        {
            out += &format!(": {question}");
        }
        out += &format!("\n\n{}", heading(loaded.has_phases, phase, &experiment));
        out += &format!("\n{}", indent(&graph_of(phase, &experiment), 2));
        out += &format!("\n\n{}", indent(&needs_of(phase, &experiment), 2));
        for warning in horizon_of(&experiment, base).into_iter().chain(graph::doubt(&experiment)) {
            out += &format!("\n\n  warning: {warning}");
        }
    }
    if !loaded.replaced.is_empty() {
        out += "\n\nreplaced";
        loaded.replaced.iter().for_each(|replaced| out += &format!("\n  {replaced}"));
    }
    if !loaded.changes.is_empty() {
        out += &format!("\n\nchanged\n{}", indent(&changes_of(loaded), 2));
    }
    if let Some(plan) = plan {
        let (tuning, reported) = plan.n_cells();
        let tunes = if tuning > 0 { format!(" and {tuning} tuning runs before them") } else { String::new() };
        out += &format!("\n\ngrid: {reported} cells{tunes}; `ascribe grid plan` says which");
        if !plan.spec.arm.is_empty() {
            out += &format!(". Shown above is the arm `{}`", plan.spec.baseline());
        }
    }
    Ok(out + "\n\naccepted; nothing was run. Whether device, data and the run of `start_from` are there shows when it runs")
}

fn heading(has_phases: bool, phase: &Phase, experiment: &Experiment) -> String {
    let updates = match *experiment.updates {
        1 => "1 update".to_string(),
        n => format!("{n} updates"),
    };
    if has_phases { format!("phase `{}`: {updates}", phase.name) } else { updates }
}

/// Stages in the order in which they act.
fn graph_of(phase: &Phase, experiment: &Experiment) -> String {
    let tree = &phase.tree;
    let nodes: Vec<String> = named(tree.get("policy")).map(|(name, plugin)| format!("{name}: {plugin}")).collect();
    let mut critics: BTreeMap<&str, String> = named(tree.get("critic")).collect();
    let order = graph::critic_order(&experiment.critic).unwrap_or_default();
    let critics: Vec<String> =
        order.iter().filter_map(|name| Some(format!("{name}: {}", critics.remove(name.as_str())?))).collect();
    let transforms: Vec<String> = tree.get("transform").and_then(Value::as_array).into_iter().flatten().map(plugin).collect();
    let reward: Vec<String> = experiment
        .reward
        .iter()
        .map(|(name, weight)| if **weight == 1.0 { name.clone() } else { format!("{} × {name}", **weight) })
        .collect();
    let everyone = std::iter::once(experiment.rollout.agent().to_string()).chain(order.iter().cloned()).collect();
    let trained = if experiment.train.is_empty() { everyone } else { experiment.train.clone() };
    let slot = |key: &str| tree.get(key).map_or_else(String::new, plugin);
    let mut rows = vec![
        ("environment", slot("environment")),
        ("policy", nodes.join(", ")),
        ("rollout", format!("{} ({} acts)", slot("rollout"), experiment.rollout.agent())),
        ("critics", join(&critics, " → ")),
        ("reward", join(&reward, " + ")),
        ("estimator", slot("estimator")),
        ("transforms", join(&transforms, " → ")),
        ("objective", slot("objective")),
        ("trained", join(&trained, ", ")),
    ];
    for knob in &phase.knobs {
        let (min, max) = knob.schedule.bounds();
        rows.push(("scheduled", format!("{} between {min} and {max}", knob.path.join("."))));
    }
    let rows = rows.into_iter().map(|(stage, what)| format!("{stage:<12}{what}").trim_end().to_string());
    rows.collect::<Vec<_>>().join("\n")
}

/// What plugins need, and who covers it.
fn needs_of(phase: &Phase, experiment: &Experiment) -> String {
    let rows: Vec<Vec<String>> = graph::required(experiment, &phase.tree)
        .into_iter()
        .map(|required| {
            let by = graph::covered_by(&required, experiment, &phase.tree);
            let by: Vec<String> = by.iter().map(|path| path.join(".")).collect();
            vec![required.path.join("."), required.need.to_string(), by.join(", ")]
        })
        .collect();
    table(&["who", "needs", "covered by"], rows)
}

/// Whether next to nothing of an outcome reaches the first turns of the longest episodes. Only an environment that is here
/// says how long they are; whether it is shows when the experiment runs.
fn horizon_of(experiment: &Experiment, base: &Path) -> Option<String> {
    let decay = experiment.estimator.decay()?;
    let context = BuildContext::without_run(experiment, base);
    let tasks = experiment.environment.build(&context).ok()?;
    let about = tasks.capabilities();
    decay.warning(about.max_turns, about.max_action_tokens)
}

fn changes_of(loaded: &Loaded) -> String {
    let value = |v: &Option<Value>| v.as_ref().map_or("(not set)".into(), Value::to_string);
    let rows = loaded.changes.iter().map(|change| {
        let effect = match (&change.phases[..], loaded.has_phases) {
            ([], _) => "no effect: something above it says otherwise".into(),
            (_, false) => String::new(),
            (phases, true) if phases.len() == loaded.plan.phases.len() => "in all phases".into(),
            (phases, true) => format!("in phase {}", phases.join(", ")),
        };
        let new = if change.phases.is_empty() { "(unchanged)".into() } else { value(&change.new) };
        vec![change.key.clone(), value(&change.old), new, change.place.to_string(), effect]
    });
    table(&["key", "before", "now", "by", ""], rows.collect())
}

/// Names and plugins of a table of slots.
fn named(slots: Option<&Value>) -> impl Iterator<Item = (&str, String)> {
    slots.and_then(Value::as_table).into_iter().flat_map(Table::iter).map(|(name, slot)| (name.as_str(), plugin(slot)))
}

/// The plugin in a slot.
fn plugin(slot: &Value) -> String {
    slot.as_table().and_then(|table| table.keys().next().cloned()).unwrap_or_default()
}

fn join(words: &[String], with: &str) -> String {
    if words.is_empty() { "none".into() } else { words.join(with) }
}
