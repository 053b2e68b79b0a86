//! Settings from the environment and the command line: one key and its value each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;

use toml::{Table, Value};

use crate::layers::{Layer, Stack, item, parse_value};
use crate::path::{self, Path, show};
use crate::report::Problem;
use crate::schema::Node;
use crate::source::{Origin, Place, Source, SourceKind};

/// Deeper keys than this are a mistake, and could exhaust the stack.
const DEEPEST: usize = 64;

/// A setting as it was applied.
pub(crate) struct Applied {
    pub path: Path,
    pub place: Place,
}

/// Puts the variables `ASCRIBE__A__B=VALUE` on top, as layer `layer`.
pub(crate) fn environment(
    stack: &mut Stack,
    variables: &BTreeMap<OsString, OsString>,
    layer: usize,
    rank: usize,
) -> Vec<Applied> {
    let mut applied: Vec<Applied> = Vec::new();
    for (name, value) in variables {
        let shown = name.to_string_lossy();
        let Some(key) = shown.get(..PREFIX.len()).filter(|p| p.eq_ignore_ascii_case(PREFIX)).map(|_| &shown[PREFIX.len()..])
        else {
            continue;
        };
        let text = format!("{shown}={}", value.to_string_lossy());
        let source = Arc::new(Source { kind: SourceKind::Environment, name: shown.to_string(), text, rank });
        let (keys, values) = (0..shown.len(), shown.len() + 1..source.text.len());
        let place = Place { source: source.clone(), span: Some(keys.clone()) };
        if name.to_str().is_none() || value.to_str().is_none() {
            stack.problems.push(Problem::new(format!("`{shown}` is not UTF-8")).at(Some(place)));
            continue;
        }
        if key.is_empty() {
            let problem = Problem::new(format!("`{shown}` names no key")).at(Some(place));
            stack.problems.push(problem.help("for example ASCRIBE__UPDATE__LEARNING_RATE=0.001"));
            continue;
        }
        let path = known_path(stack, key);
        if let Some(twin) = applied.iter().find(|a| a.path == path) {
            let problem = Problem::new(format!("`{}` is set twice in the environment", show(&path)));
            stack.problems.push(problem.mark(Some(place), "").mark(Some(twin.place.clone()), ""));
            continue;
        }
        let path: Vec<(String, Range<usize>)> = path.into_iter().map(|key| (key, keys.clone())).collect();
        applied.extend(assign(stack, &source, layer, path, values));
    }
    applied
}

const PREFIX: &str = "ASCRIBE__";

/// Names of variables have neither case nor hyphens: each part is held against the keys that are known there.
fn known_path(stack: &Stack, key: &str) -> Path {
    let plain = |s: &str| s.to_lowercase().replace('-', "_");
    let (mut node, mut at) = (Some(stack.schema), Some(Value::Table(stack.tree.clone())));
    let mut path = Path::new();
    for part in key.split("__") {
        let part = plain(part);
        let there: Vec<String> = match &at {
            Some(Value::Table(table)) => table.keys().cloned().collect(),
            Some(Value::Array(items)) => items.iter().filter_map(|item| Some(item.get("name")?.as_str()?.to_string())).collect(),
            _ => Vec::new(),
        };
        let known = node.map(Node::keys).unwrap_or_default().into_iter().map(String::from);
        let key = there.into_iter().chain(known).find(|key| plain(key) == part).unwrap_or(part);
        node = node.and_then(|node| node.child(&key));
        at = at.as_ref().and_then(|at| match at {
            Value::Array(items) => items.get(item(&path, items, &key)?).cloned(),
            other => other.get(&key).cloned(),
        });
        path.push(key);
    }
    path
}

/// Puts the arguments `KEY=VALUE` on top, as layer `layer`.
pub(crate) fn command_line(stack: &mut Stack, arguments: &[String], layer: usize, rank: usize) -> Vec<Applied> {
    let mut applied = Vec::new();
    for (i, text) in arguments.iter().enumerate() {
        let (name, text) = (text.clone(), text.clone());
        let source = Arc::new(Source { kind: SourceKind::CommandLine, name, text, rank: rank + i });
        let text = source.text.as_str();
        let whole = |span: Range<usize>| Some(Place { source: source.clone(), span: Some(span) });
        if let Some(sign) = text.chars().next().filter(|c| matches!(c, '+' | '~')) {
            let rest = text.trim_start_matches(sign);
            let help = match sign {
                '+' => {
                    format!("every key that exists can be set, whether or not a file says it, and no other can: write `{rest}`")
                }
                _ => format!("a key cannot be taken away; say what should be there instead: `{}=…`", rest.trim_end_matches('=')),
            };
            let place = whole(0..text.len() - rest.len());
            stack.problems.push(Problem::new(format!("a setting does not begin with `{sign}`")).at(place).help(help));
            continue;
        }
        let Some(equals) = path::equals_sign(text) else {
            let problem = Problem::new(format!("`{text}` is no setting")).at(whole(0..text.len()));
            stack.problems.push(problem.help("settings are KEY=VALUE, for example update.learning_rate=0.001"));
            continue;
        };
        let key = text[..equals].trim_end();
        let lead = key.len() - key.trim_start().len();
        let parts = match path::parse(&key[lead..]) {
            Ok(parts) if parts.len() <= DEEPEST => parts,
            Ok(_) => {
                stack.problems.push(Problem::new("there is no key so deep").at(whole(0..equals)));
                continue;
            }
            Err((message, span)) => {
                let place = whole(span.start + lead..span.end + lead);
                stack.problems.push(Problem::new(format!("`{key}` is no key: {message}")).at(place));
                continue;
            }
        };
        let mut parts: Vec<_> = parts.into_iter().map(|(key, s)| (key, s.start + lead..s.end + lead)).collect();
        // A phase goes by its name here and by its index in the tree.
        if let [(first, _), (name, _), ..] = &mut parts[..]
            && first == "phase"
            && let Some(Value::Array(phases)) = stack.tree.get("phase")
            && let Some(i) = item(&["phase".into()], phases, name)
        {
            *name = i.to_string();
        }
        applied.extend(assign(stack, &source, layer, parts, equals + 1..text.len()));
    }
    applied
}

/// Puts one setting on top. Its value stands at `span` of the source.
fn assign(
    stack: &mut Stack,
    source: &Arc<Source>,
    layer: usize,
    parts: Vec<(String, Range<usize>)>,
    span: Range<usize>,
) -> Option<Applied> {
    let raw = &source.text[span.clone()];
    let shift = span.start + raw.len() - raw.trim_start().len();
    let raw = raw.trim();
    let path: Path = parts.iter().map(|(key, _)| key.clone()).collect();
    let value_span = shift..shift + raw.len();
    let node = stack.schema.get(&path);
    let quoted = raw.starts_with(['"', '\'', '[', '{']);
    let text_is_wanted = node.is_some_and(Node::is_text) && !quoted;
    let parsed = if text_is_wanted { None } else { Some(parse_value(source, layer, raw, shift, &path)) };
    let (value, mut at) = match parsed {
        Some(Ok((value, at, problems))) => {
            stack.problems.extend(problems);
            (value, at)
        }
        // A bare word is text; what was meant as TOML is not.
        Some(Err((message, span))) if quoted => {
            let place = Place { source: source.clone(), span: Some(span) };
            stack.problems.push(Problem::new(format!("the value of `{}` is not TOML: {message}", show(&path))).at(Some(place)));
            return None;
        }
        _ => (Value::String(raw.to_string()), Default::default()),
    };
    for (n, (_, key)) in parts.iter().enumerate() {
        let origin = Origin { source: source.clone(), layer, key: key.clone(), value: value_span.clone() };
        at.insert(path[..=n].to_vec(), origin);
    }
    let place = at.get(&path).map(Origin::value_place)?;
    let tree = path.iter().rev().fold(value, |value, key| Value::Table(Table::from_iter([(key.clone(), value)])));
    if let Value::Table(tree) = tree {
        stack.push(Layer { tree, at });
    }
    Some(Applied { path, place })
}
