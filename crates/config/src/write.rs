//! What is written back: the resolved experiment, its identity, and how it was given.

use std::sync::Arc;

use toml::{Table, Value};

use crate::assign::Applied;
use crate::source::{Source, SourceKind};

/// The experiment as TOML: what all phases share once, then what differs.
pub(crate) fn resolved(phases: &[(&str, &Table)], has_phases: bool) -> String {
    let (_, first) = phases[0];
    let shared = |key: &str| phases.iter().all(|(_, table)| table.get(key) == first.get(key));
    let mut top: Table = first.iter().filter(|(key, _)| shared(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
    if has_phases {
        let own = phases.iter().map(|(name, table)| {
            let differs = table.iter().filter(|(key, _)| !shared(key)).map(|(key, value)| (key.clone(), value.clone()));
            Value::Table(std::iter::once(("name".to_string(), Value::from(*name))).chain(differs).collect())
        });
        top.insert("phase".into(), Value::Array(own.collect()));
    }
    text(&top)
}

/// Two runs of one identity differ at most in length, threads, folders and words.
pub(crate) fn identity(phases: &[(&str, &Table)]) -> String {
    let last = phases.len() - 1;
    let all = phases.iter().enumerate().map(|(i, (name, table))| {
        let kept = table.iter().filter(|(key, _)| match key.as_str() {
            "run" | "budget" | "checkpoint" | "question" | "name" => false,
            "updates" => i != last,
            _ => true,
        });
        let kept = kept.map(|(key, value)| (key.clone(), value.clone()));
        Value::Table(std::iter::once(("name".to_string(), Value::from(*name))).chain(kept).collect())
    });
    text(&Table::from_iter([("phase".to_string(), Value::Array(all.collect()))]))
}

fn text(table: &Table) -> String {
    toml::to_string(table).expect("a TOML tree can be written as TOML")
}

/// The experiment as it was given: the file itself, or all that went into it.
pub(crate) fn given(files: &[Arc<Source>], applied: &[Applied]) -> String {
    if let ([file], []) = (files, applied) {
        return file.text.clone();
    }
    let mut out = String::new();
    for file in files {
        out += &format!("# file: {}\n{}\n", file.name, file.text.trim_end());
    }
    for setting in applied {
        let source = &setting.place.source;
        let kind = if source.kind == SourceKind::Environment { "environment" } else { "command line" };
        out += &format!("# {kind}: {}\n", source.text.escape_debug());
    }
    out
}
