//! `plugins`: what this binary links.

use std::process::ExitCode;

use ascribe_core::registry::{Kind, Plugin, plugins};
use serde_json::{Value, json};

use crate::args::PluginsArgs;
use crate::explain;
use crate::output::{say, table};

/// Lists plugins.
pub(crate) fn command(args: &PluginsArgs) -> ExitCode {
    let wanted = |kind: &Kind| args.kind.as_deref().is_none_or(|name| name == kind.as_str());
    let rows: Vec<&Plugin> = Kind::ALL.into_iter().filter(wanted).flat_map(plugins).collect();
    if args.json {
        say(&format!("{:#}", Value::Array(rows.into_iter().map(as_json).collect())));
        return ExitCode::SUCCESS;
    }
    if rows.is_empty() {
        say("this binary links no such plugin");
        return ExitCode::SUCCESS;
    }
    let row = |p: &&Plugin| vec![p.kind.to_string(), p.name.into(), what_it_does(p), p.krate.into()];
    say(&table(&["kind", "name", "what it does", "crate"], rows.iter().map(row).collect()));
    ExitCode::SUCCESS
}

fn what_it_does(row: &Plugin) -> String {
    match &row.preset {
        Some(of) => format!("{} (preset of {})", row.summary, of.plugin),
        None => row.summary.into(),
    }
}

fn as_json(row: &Plugin) -> Value {
    json!({
        "kind": row.kind,
        "name": row.name,
        "summary": row.summary,
        "source": row.source,
        "when": row.when,
        "example": row.example,
        "doc": explain::prose(row.doc),
        "preset": row.preset.map(|of| json!({ "plugin": of.plugin, "keys": (of.keys)() })),
        "crate": row.krate,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ascribe_core::registry::plugin;
    use std::path::Path;

    /// Plugins that a source declares outside its tests, as kind and name.
    fn declared(text: &str) -> Vec<(String, String)> {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let bodies = code.split("plugin! {").skip(1);
        let heads = bodies.filter_map(|body| body.trim_start().split_once(" {"));
        heads
            .filter_map(|(head, _)| {
                let (kind, name) = head.split_once(' ')?;
                Some((kind.to_lowercase(), name.trim_matches('"').to_string()))
            })
            .collect()
    }

    #[test]
    fn every_plugin_of_this_repository_is_linked() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
        let mut folders: Vec<_> = std::fs::read_dir(root).unwrap().map(|e| e.unwrap().path().join("src")).collect();
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "rs") {
                    for (kind, name) in declared(&std::fs::read_to_string(&path).unwrap()) {
                        let linked = Kind::ALL.into_iter().flat_map(plugins).any(|p| p.kind.as_str() == kind && p.name == name);
                        assert!(linked, "{kind} `{name}` of {} is not linked", path.display());
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 0, "the plugins are where this test looks for them");
    }

    #[test]
    fn every_example_is_one_of_its_plugin() {
        for row in Kind::ALL.into_iter().flat_map(plugins) {
            ascribe_config::check_example(row).unwrap_or_else(|report| panic!("{} `{}`:\n{report}", row.kind, row.name));
        }
    }

    #[test]
    fn methods_are_documented_and_presets_have_their_plugin() {
        for row in [Kind::Estimator, Kind::Transform, Kind::Objective].into_iter().flat_map(plugins) {
            let documented = match &row.preset {
                Some(of) => plugin(row.kind, of.plugin).unwrap_or_else(|| panic!("`{}` is a preset of nothing", row.name)),
                None => row,
            };
            assert!(documented.doc.starts_with("//! "), "{} `{}` gives no `module`", row.kind, documented.name);
        }
    }

    #[test]
    fn no_two_plugins_of_a_kind_have_one_name() {
        for kind in Kind::ALL {
            let mut names: Vec<&str> = plugins(kind).iter().map(|p| p.name).collect();
            let n = names.len();
            names.dedup();
            assert_eq!(names.len(), n, "{kind}: {names:?}");
        }
    }
}
