//! `explain`: a plugin, a metric, an alarm, or a key of an experiment.

use std::path::Path;
use std::process::ExitCode;

use ascribe_config::{Explained, Key, plugin_keys};
use ascribe_core::need::{Need, Provide};
use ascribe_core::preset::PresetOf;
use ascribe_core::registry::{Kind, Plugin, plugin, plugins};
use ascribe_core::{
    AdvantageEstimator, CreditTransform, CriticConfig, Objective, PolicyConfig, RolloutConfig, Slot, TaskSetConfig,
};
use ascribe_study::grid::Spec;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::args::ExplainArgs;
use crate::output::{colours, complain, indent, say, table};
use crate::{REJECTED, load, metrics};

/// Explains what was asked for.
pub(crate) fn command(args: &ExplainArgs) -> ExitCode {
    match &args.key {
        Some(key) => of_key(&args.what, key, &args.settings),
        None => of_name(&args.what),
    }
}

fn of_name(name: &str) -> ExitCode {
    // `estimator.grpo` is one plugin, `grpo` may be several.
    let (kind, plain) = match name.split_once('.') {
        Some((kind, plain)) if Kind::ALL.iter().any(|k| k.as_str() == kind) => (Some(kind), plain),
        _ => (None, name),
    };
    let all = || Kind::ALL.into_iter().flat_map(plugins);
    let found: Vec<&Plugin> = all().filter(|p| p.name == plain && kind.is_none_or(|k| k == p.kind.as_str())).collect();
    if !found.is_empty() {
        say(&found.into_iter().map(plugin_page).collect::<Vec<_>>().join("\n\n"));
        return ExitCode::SUCCESS;
    }
    if let Some(page) = metrics::page(name).or_else(|| metrics::alarm_page(name)) {
        say(&page);
        return ExitCode::SUCCESS;
    }
    if Path::new(name).extension().is_some_and(|e| e == "toml") || Path::new(name).is_file() {
        complain(&format!("error: say which key of `{name}`, for example `ascribe explain {name} update.learning_rate`"));
        return ExitCode::from(REJECTED);
    }
    let names: Vec<&str> = all().map(|p| p.name).chain(metrics::names()).chain(metrics::alarm_names()).collect();
    complain(&format!("error: there is no plugin, no metric and no alarm `{name}`{}", near(name, &names)));
    ExitCode::from(REJECTED)
}

/// A hint at the name that was meant.
pub(crate) fn near(name: &str, names: &[&str]) -> String {
    match ascribe_config::nearest(name, names.iter().copied()) {
        Some(near) => format!("\nhelp: did you mean `{near}`?"),
        None => "\nhelp: `ascribe plugins` lists the plugins".into(),
    }
}

fn of_key(file: &str, key: &str, settings: &[String]) -> ExitCode {
    let explained = if key == "grid" || key.starts_with("grid.") {
        // Without its arms the experiment need not be complete.
        match ascribe_config::grid(&load::request(Path::new(file), settings)) {
            Ok(grid) => grid.explain(&Spec::schema(), key),
            Err(report) => {
                complain(&report.render(colours()));
                return ExitCode::from(REJECTED);
            }
        }
    } else {
        match load::experiment(Path::new(file), settings) {
            Ok(loaded) => loaded.explain(key),
            Err(code) => return code,
        }
    };
    match explained {
        Ok(explained) => {
            say(&key_page(&explained));
            ExitCode::SUCCESS
        }
        Err(problem) => {
            complain(&problem.render(colours()));
            ExitCode::from(REJECTED)
        }
    }
}

/// A key of an experiment.
fn key_page(explained: &Explained) -> String {
    let key = &explained.key;
    let mut out = format!("{}: {}", key.name, key.wanted);
    if !key.doc.is_empty() {
        out += &format!("\n\n{}", indent(&key.doc, 2));
    }
    for (word, doc) in &key.words {
        out += &format!("\n  {word}: {doc}");
    }
    if let Some(kind) = explained.slot {
        let names: Vec<&str> = plugins(kind).iter().map(|p| p.name).collect();
        out += &format!("\n\n  plugins that fit: {}", names.join(", "));
    }
    out += &format!("\n\n  default: {}", default(key));
    for setting in &explained.values {
        let value = setting.value.as_ref().map_or("(not set)".into(), Value::to_string);
        let phases = if setting.phases.is_empty() { String::new() } else { format!(" in phase {}", setting.phases.join(", ")) };
        let place = setting.place.as_ref().map_or("by default".into(), |place| format!("from {place}"));
        out += &format!("\n  here{phases}: {value}, {place}");
    }
    out
}

fn default(key: &Key) -> String {
    match &key.default {
        Some(default) => default.to_string(),
        None if key.required => "none, it must be said".into(),
        None => "not set".into(),
    }
}

/// A plugin.
fn plugin_page(row: &Plugin) -> String {
    let mut out = format!("{} `{}`, from the crate {}\n\n{}", row.kind, row.name, row.krate, indent(row.summary, 2));
    let documented = match &row.preset {
        Some(of) => {
            out += &format!("\n\npreset of `{}`{}", of.plugin, with_keys(of));
            plugin(row.kind, of.plugin)
        }
        None => Some(row),
    };
    if let Some(of) = documented.filter(|of| !of.doc.is_empty()) {
        out += &format!("\n\n`{}` in full\n{}", of.name, indent(&prose(of.doc), 2));
    }
    for (title, text) in [("source", row.source), ("when", row.when)] {
        if !text.is_empty() {
            out += &format!("\n\n{title}\n{}", indent(text, 2));
        }
    }
    let keys = plugin_keys(row.kind, row.name);
    if keys.is_empty() {
        out += "\n\nkeys\n  none";
    } else {
        let rows = keys.iter().map(|key| {
            let words = key.words.iter().map(|(word, doc)| format!("\n{word}: {doc}"));
            let doc = std::iter::once(key.doc.replace('\n', " ")).chain(words).collect();
            vec![key.name.clone(), key.wanted.clone(), default(key), doc]
        });
        out += &format!("\n\nkeys\n{}", indent(&table(&["key", "what it takes", "default", "meaning"], rows.collect()), 2));
    }
    let (needs, provides) = graph_of(row);
    for (title, list) in [("needs, as in the example", needs), ("provides, as in the example", provides)] {
        if !list.is_empty() {
            let lines: Vec<String> = list.iter().map(Need::to_string).collect();
            out += &format!("\n\n{title}\n{}", indent(&lines.join("\n"), 2));
        }
    }
    out + &format!("\n\nexample\n{}", indent(&example(row), 2))
}

/// The keys to which a preset gives other defaults, as they stand in TOML.
fn with_keys(of: &PresetOf) -> String {
    let keys = Table::try_from((of.keys)()).unwrap_or_default();
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    if keys.is_empty() { String::new() } else { format!(" with {}", keys.join(", ")) }
}

/// A module's documentation without what marks it in the source.
pub(crate) fn prose(doc: &str) -> String {
    let plain = |line: &str| line.strip_prefix("//!").map_or(line, |rest| rest.strip_prefix(' ').unwrap_or(rest)).to_string();
    // Links between items mean nothing outside the generated documentation.
    doc.lines().map(plain).collect::<Vec<_>>().join("\n").replace("[`", "`").replace("`]", "`")
}

/// The example as it stands in a file.
fn example(row: &Plugin) -> String {
    let header = match row.kind {
        Kind::Policy => format!("[policy.actor.{}]", row.name),
        Kind::Critic => format!("[critic.judge.{}]", row.name),
        Kind::Transform => format!("[[transform]]\n[transform.{}]", row.name),
        Kind::Schedule => format!("[update.learning_rate.{}]", row.name),
        kind => format!("[{kind}.{}]", row.name),
    };
    format!("{header}\n{}", row.example)
}

/// What a plugin needs and provides where it is configured as in its example.
fn graph_of(row: &Plugin) -> (Vec<Need>, Vec<Provide>) {
    fn built<T: DeserializeOwned>(row: &Plugin) -> Option<T> {
        let body: Table = toml::from_str(row.example).ok()?;
        T::deserialize(Value::Table(Table::from_iter([(row.name.to_string(), Value::Table(body))]))).ok()
    }
    let nothing = (Vec::new(), Vec::new());
    match row.kind {
        Kind::Environment => built::<Slot<dyn TaskSetConfig>>(row).map_or(nothing, |p| (Vec::new(), p.provides())),
        Kind::Policy => built::<Slot<dyn PolicyConfig>>(row)
            .map_or(nothing, |p| (p.needs(), p.columns().into_iter().map(Need::Differentiable).collect())),
        Kind::Rollout => built::<Slot<dyn RolloutConfig>>(row).map_or(nothing, |p| (p.needs(), p.provides())),
        Kind::Critic => built::<Slot<dyn CriticConfig>>(row).map_or(nothing, |p| (p.needs(), p.provides())),
        Kind::Estimator => built::<Slot<dyn AdvantageEstimator>>(row).map_or(nothing, |p| (p.needs(), Vec::new())),
        Kind::Transform => built::<Slot<dyn CreditTransform>>(row).map_or(nothing, |p| (p.needs(), Vec::new())),
        Kind::Objective => built::<Slot<dyn Objective>>(row).map_or(nothing, |p| {
            (p.needs().into_iter().chain(p.columns().into_iter().map(Need::Differentiable)).collect(), Vec::new())
        }),
        Kind::Schedule => nothing,
    }
}
