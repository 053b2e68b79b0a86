//! Strict tree → typed value, or every problem.
//!
//! serde is the only judge. It stops at the first mistake; so what it refuses is noted, replaced by something known to
//! be good (the plugin's own example), and serde is asked again.

use ascribe_core::registry::{self, Kind};
use serde::de::DeserializeOwned;
use toml::Value;

use crate::layers::{Replaced, child, plugin_help};
use crate::path::{Path, get, get_mut, remove, set, show};
use crate::report::{Problem, list, nearest};
use crate::schema::{Node, example};
use crate::source::{Origins, Place};

/// Something that is wrong at a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub path: Path,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// A key that does not exist.
    UnknownKey,
    /// A plugin that does not exist.
    UnknownPlugin(Kind),
    /// A key that must be there.
    Missing,
    /// A value that is refused: serde's words, and the value.
    Refused(String, Option<Value>),
}

/// Mistakes beyond this are not looked for.
const MOST: usize = 100;

/// Asks serde for a `T`, mending `value` until it is one. Returns what was wrong.
pub(crate) fn judge<T: DeserializeOwned>(value: &mut Value, schema: Node<'_>) -> (Option<T>, Vec<Finding>) {
    let mut findings = sift(value, Some(schema), &mut Vec::new());
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(value.clone()) {
            Ok(typed) => return (Some(typed), findings),
            Err(error) => error,
        };
        let lost = |path: &[String]| {
            let mut keys = get(value, path).filter(|_| schema.get(path).is_some_and(Node::names_its_keys))?.as_table()?.keys();
            // Of its entries, the one that is refused in these words where it stands alone.
            let refused_alone = |key: &&String| {
                let mut alone = value.clone();
                if let Some(Value::Table(table)) = get_mut(&mut alone, path) {
                    table.retain(|other, _| other == *key);
                }
                let refused = serde_path_to_error::deserialize::<_, T>(alone);
                refused.is_err_and(|e| e.inner().message() == error.inner().message())
            };
            keys.find(refused_alone).cloned()
        };
        let finding = classify(&error, value, schema, &lost);
        let again = findings.iter().any(|f| f.path == finding.path);
        if again || findings.len() >= MOST {
            return (None, findings);
        }
        let mended = mend(value, schema, &finding);
        findings.push(finding);
        if !mended {
            return (None, findings);
        }
    }
}

/// Takes out what no key wants and serde would let pass or describe badly: dates, and numbers that are none.
fn sift(value: &mut Value, node: Option<Node<'_>>, path: &mut Path) -> Vec<Finding> {
    let refused = match value {
        Value::Datetime(_) => "dates are not used here; put it in quotes if it is text",
        Value::Float(x) if !x.is_finite() && node.is_some_and(Node::is_number) => "must be finite",
        Value::Table(table) => {
            let each = table.iter_mut().flat_map(|(key, value)| {
                path.push(key.clone());
                let found = sift(value, node.and_then(|n| n.child(key)), path);
                path.pop();
                found
            });
            return each.collect();
        }
        Value::Array(items) => {
            let each = items.iter_mut().enumerate().flat_map(|(i, value)| {
                path.push(i.to_string());
                let found = sift(value, node.and_then(|n| n.child(&i.to_string())), path);
                path.pop();
                found
            });
            return each.collect();
        }
        _ => return Vec::new(),
    };
    let found = std::mem::replace(value, node.and_then(Node::sample).unwrap_or(Value::Boolean(false)));
    vec![Finding { path: path.clone(), what: What::Refused(refused.into(), Some(found)) }]
}

/// What serde's error means.
///
/// * `lost`: the key in a table at a path that the error does not name, because it was read as one of the names of a type.
fn classify(
    error: &serde_path_to_error::Error<toml::de::Error>,
    value: &Value,
    schema: Node<'_>,
    lost: &dyn Fn(&[String]) -> Option<String>,
) -> Finding {
    use serde_path_to_error::Segment;
    let mut path: Path = Vec::new();
    for segment in error.path() {
        match segment {
            Segment::Seq { index } => path.push(index.to_string()),
            Segment::Map { key } | Segment::Enum { variant: key } => path.push(key.clone()),
            Segment::Unknown => path.extend(lost(&path)),
        }
    }
    // Erased deserialisers append "in `key`" lines; the path says it already.
    let message = error.inner().message().lines().next().unwrap_or_default().trim().to_string();
    let ticked = || message.split('`').nth(1).unwrap_or_default().to_string();
    let is_table = |path: &[String]| get(value, path).is_some_and(Value::is_table);
    if message.starts_with("missing field") {
        path.push(ticked());
        return Finding { path, what: What::Missing };
    }
    if message.starts_with("unknown field") {
        // The key is the path's last part, except where a value was read in one piece.
        if is_table(&path) && get(value, &child(&path, &ticked())).is_some() {
            path.push(ticked());
        }
        return Finding { path, what: What::UnknownKey };
    }
    if message.starts_with("unknown variant") {
        if let Some((last, slot)) = path.split_last()
            && *last == ticked()
            && let Some(kind) = schema.get(slot).and_then(Node::slot_of_table)
        {
            return Finding { path, what: What::UnknownPlugin(kind) };
        }
        // A map's key that is none of the names it may have.
        if let Some((last, map)) = path.split_last()
            && *last == ticked()
            && schema.get(map).is_some_and(Node::names_its_keys)
        {
            return Finding { path, what: What::UnknownKey };
        }
        if is_table(&path) && get(value, &child(&path, &ticked())).is_some() {
            return Finding { path: child(&path, &ticked()), what: What::UnknownKey };
        }
    }
    let found = get(value, &path).cloned();
    Finding { path, what: What::Refused(message, found) }
}

/// Makes one place good, so that the next mistake can be seen. False if there is no way.
fn mend(value: &mut Value, schema: Node<'_>, finding: &Finding) -> bool {
    let path = &finding.path;
    let parent = &path[..path.len().saturating_sub(1)];
    match &finding.what {
        What::UnknownKey => return remove(value, path),
        What::UnknownPlugin(kind) => {
            return registry::plugins(*kind).first().and_then(|row| example(row)).is_some_and(|good| set(value, parent, good));
        }
        What::Missing | What::Refused(..) => {}
    }
    // From the example of the nearest plugin around it.
    for n in (1..=path.len()).rev() {
        let Some(kind) = schema.get(&path[..n - 1]).and_then(Node::slot) else { continue };
        let Some(good) = registry::plugin(kind, &path[n - 1]).and_then(example) else { break };
        if let Some(good) = get(&good, &path[n - 1..]) {
            return set(value, path, good.clone());
        }
        break;
    }
    let node = schema.get(path);
    let required = schema.get(parent).is_some_and(|n| path.last().is_some_and(|key| n.required().contains(&key.as_str())));
    let good = node.and_then(Node::sample);
    match good {
        Some(good) if required || get(value, path).is_none() || path.is_empty() => set(value, path, good),
        // Not in the example and not required: it can be left out.
        good => remove(value, path) || good.is_some_and(|good| set(value, path, good)),
    }
}

/// What is known when a finding is put into words.
pub(crate) struct Context<'a> {
    pub schema: Node<'static>,
    /// The tree that was judged, as it came.
    pub tree: &'a Value,
    pub at: &'a Origins,
    pub replaced: &'a [Replaced],
    /// Where to point if nothing else can be pointed at.
    pub fallback: Option<Place>,
}

/// Findings as problems. A key that is unknown and one that is missing may be one mistake: then only the typo is shown.
pub(crate) fn describe_all(findings: &[Finding], context: &Context<'_>) -> Vec<Problem> {
    let meant: Vec<Path> = findings.iter().filter_map(|f| meant(f, context)).collect();
    let shown = findings.iter().filter(|f| f.what != What::Missing || !meant.contains(&f.path));
    shown.map(|f| describe(f, context)).collect()
}

/// The key that a mistyped one stands for.
fn meant(finding: &Finding, context: &Context<'_>) -> Option<Path> {
    let (word, parent) = finding.path.split_last()?;
    let keys = match finding.what {
        What::UnknownKey => context.schema.get(parent)?.keys(),
        _ => return None,
    };
    nearest(word, keys).map(|near| child(parent, near))
}

fn describe(finding: &Finding, context: &Context<'_>) -> Problem {
    let path = &finding.path;
    let (last, parent) = match path.split_last() {
        Some((last, parent)) => (last.as_str(), parent),
        None => ("", &[][..]),
    };
    let node = context.schema.get(path);
    let around = context.schema.get(parent);
    match &finding.what {
        What::UnknownKey => unknown_key(last, parent, around, context).at(context.place(path, true)),
        What::UnknownPlugin(kind) => {
            let problem = Problem::new(format!("there is no {kind} `{last}`")).at(context.place(path, true));
            // `[estimator] gamma = 1`: a key where a plugin's name should be
            if get(context.tree, path).is_some_and(|v| !v.is_table()) {
                let names: Vec<&str> = registry::plugins(*kind).iter().map(|row| row.name).collect();
                return problem.help(format!(
                    "name the plugin first: [{}.NAME], and below it `{last} = …`; plugins of kind {kind}: {}",
                    show(parent),
                    names.join(", ")
                ));
            }
            problem.help(plugin_help(*kind, last))
        }
        What::Missing => missing(path, node, context),
        What::Refused(message, found) => refused(path, node, message, found.as_ref(), context),
    }
}

fn unknown_key(key: &str, parent: &[String], around: Option<Node<'_>>, context: &Context<'_>) -> Problem {
    let problem = match parent {
        [] => Problem::new(format!("there is no key `{key}`")),
        parent => Problem::new(format!("`{}` has no key `{key}`", show(parent))),
    };
    let keys = around.map(Node::keys).unwrap_or_default();
    if let Some(near) = nearest(key, keys.iter().copied()) {
        return problem.help(format!("did you mean `{near}`?"));
    }
    if let Some(home) = home(key, context) {
        return problem.help(format!("`{key}` belongs in `{}`", show(&home)));
    }
    if keys.is_empty() {
        return problem.help(format!("`{}` has no keys at all", show(parent)));
    }
    problem.help(format!("its keys are {}", list(&keys, "and")))
}

/// The table that has a key of that name, if it is one of the experiment's own or of a plugin in use.
fn home(key: &str, context: &Context<'_>) -> Option<Path> {
    fn search(value: &Value, node: Node<'_>, key: &str, path: &mut Path) -> Option<Path> {
        if !path.is_empty() && node.is_table() && node.keys().contains(&key) {
            return Some(path.clone());
        }
        let below: Vec<(&str, &Value)> = match value {
            Value::Table(table) => table.iter().map(|(key, value)| (key.as_str(), value)).collect(),
            _ => return None,
        };
        below.into_iter().find_map(|(k, v)| {
            path.push(k.to_string());
            let found = node.child(k).and_then(|node| search(v, node, key, path));
            path.pop();
            found
        })
    }
    let own = context.schema.keys().into_iter().find(|table| {
        let node = context.schema.child(table);
        node.is_some_and(|n| n.is_table() && n.keys().contains(&key))
    });
    own.map(|table| vec![table.to_string()]).or_else(|| search(context.tree, context.schema, key, &mut Vec::new()))
}

fn missing(path: &[String], node: Option<Node<'_>>, context: &Context<'_>) -> Problem {
    let (last, parent) = path.split_last().expect("a missing key has a name");
    let mut problem = match parent {
        [] => Problem::new(format!("the experiment needs the key `{last}`")),
        parent => Problem::new(format!("`{}` needs the key `{last}`", show(parent))),
    };
    problem = problem.at(context.place(parent, true));
    let Some(node) = node else { return problem };
    if let Some(kind) = node.slot() {
        let names: Vec<&str> = registry::plugins(kind).iter().map(|row| row.name).collect();
        problem = problem.help(match names[..] {
            [] => format!("this binary links no plugin of kind {kind}"),
            _ => format!("plugins of kind {kind}: {}", names.join(", ")),
        });
    } else {
        let doc = node.doc().map_or(String::new(), |doc| format!(": {}", doc.replace('\n', " ")));
        problem = problem.help(format!("`{last}` is {}{doc}", node.wanted()));
    }
    // What was there went with the plugin that was replaced.
    if let Some(replaced) = context.replaced.iter().rev().find(|r| show(path).starts_with(&format!("{}.", r.slot))) {
        let ((old, place), (new, _)) = (&replaced.old, &replaced.new);
        problem = problem.mark(Some(place.clone()), format!("`{new}` replaces this `{old}` and all its keys"));
    }
    problem
}

fn refused(path: &[String], node: Option<Node<'_>>, message: &str, found: Option<&Value>, context: &Context<'_>) -> Problem {
    let name = if path.is_empty() { "the experiment".into() } else { format!("`{}`", show(path)) };
    let place = context.place(path, false);
    let is = found.map_or("nothing".into(), describe_value);
    // The tree has a schedule there, whose number was refused.
    if get(context.tree, path).is_some_and(Value::is_table)
        && let (Some(node), Some(x)) = (node.filter(|n| n.is_number()), found.filter(|x| !x.is_table()))
    {
        let rule = message.split(", got ").next().unwrap_or_default();
        let text = match rule {
            _ if rule.starts_with("must") => format!("{name} {rule}, and its schedule reaches {x}"),
            _ if rule.starts_with("invalid") => format!("{name} must be {}, and its schedule reaches {x}", node.wanted()),
            _ => format!("the schedule of {name} reaches {x}, and there {message}"),
        };
        return Problem::new(text).at(context.place(path, true));
    }
    if let Some(kind) = node.and_then(Node::slot_of_table).filter(|_| message.contains("externally tagged")) {
        let problem = Problem::new(format!("{name} names no {kind}")).at(context.place(path, true));
        let names: Vec<&str> = registry::plugins(kind).iter().map(|row| row.name).collect();
        return problem.help(format!("plugins of kind {kind}: {}", names.join(", ")));
    }
    let wants = message.strip_prefix("invalid type").or_else(|| message.strip_prefix("unknown variant"));
    if let Some(rest) = wants {
        let serde_wants = || rest.split_once(", expected ").map_or("something else", |(_, wanted)| wanted).to_string();
        let wanted = node.map_or_else(serde_wants, Node::wanted);
        let mut problem = Problem::new(format!("{name} must be {wanted}, found {is}")).at(place);
        if let Some(help) = node.and_then(|node| value_help(path, node, found)) {
            problem = problem.help(help);
        }
        return problem;
    }
    if let Some((_, wanted)) = message.strip_prefix("invalid value").and_then(|rest| rest.split_once(", expected ")) {
        let wanted = match (whole_type(wanted), node, found) {
            (Some((min, max)), _, Some(Value::Integer(x))) if *x > max || *x < min => {
                if *x > max {
                    format!("at most {max}")
                } else {
                    format!("at least {min}")
                }
            }
            (Some(_), Some(node), _) => node.wanted(),
            _ => wanted.to_string(),
        };
        return Problem::new(format!("{name} must be {wanted}, found {is}")).at(place);
    }
    if message.starts_with("must ") || message.starts_with("cannot ") {
        let says = message.contains(", got ") || message.starts_with("cannot ");
        let found = if says { String::new() } else { format!(", found {is}") };
        return Problem::new(format!("{name} {message}{found}")).at(place);
    }
    Problem::new(format!("{name}: {message}")).at(place)
}

/// Smallest and largest number of one of Rust's types for whole numbers, as far as TOML reaches.
fn whole_type(name: &str) -> Option<(i64, i64)> {
    Some(match name {
        "u8" => (0, i64::from(u8::MAX)),
        "u16" => (0, i64::from(u16::MAX)),
        "u32" => (0, i64::from(u32::MAX)),
        "u64" | "usize" => (0, i64::MAX),
        "i8" => (i64::from(i8::MIN), i64::from(i8::MAX)),
        "i16" => (i64::from(i16::MIN), i64::from(i16::MAX)),
        "i32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
        "i64" | "isize" => (i64::MIN, i64::MAX),
        _ => return None,
    })
}

/// How to write what was meant.
fn value_help(path: &[String], node: Node<'_>, found: Option<&Value>) -> Option<String> {
    let key = path.last()?;
    match found? {
        Value::String(text) if node.is_number() => {
            let number: f64 = text.replace('_', "").parse().ok().filter(|x: &f64| x.is_finite())?;
            Some(format!("write it as a TOML number: {key} = {}", Value::Float(number)))
        }
        Value::String(text) => {
            if let Some(near) = nearest(text, node.words()) {
                return Some(format!("did you mean `{near}`?"));
            }
            node.is_list().then(|| format!("a list of one: {key} = [{}]", Value::from(text.as_str())))
        }
        Value::Float(x) if node.is_whole() && x.fract() == 0.0 => Some(format!("write it without a point: {key} = {x:.0}")),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) if node.is_text() && node.words().is_empty() => {
            match node.slot() {
                Some(kind) => {
                    let names: Vec<&str> = registry::plugins(kind).iter().map(|row| row.name).collect();
                    Some(format!("plugins of kind {kind}: {}", names.join(", ")))
                }
                None => Some("text stands in quotes".into()),
            }
        }
        Value::Table(_) if node.is_list() => Some(format!("items of a list stand under double brackets: [[{}]]", show(path))),
        _ if node.is_table() && !node.keys().is_empty() => Some(format!("its keys are {}", list(&node.keys(), "and"))),
        _ => None,
    }
}

/// A value as it stands in a sentence.
fn describe_value(value: &Value) -> String {
    match value {
        Value::String(s) if s.is_empty() => "an empty text".into(),
        Value::String(s) if s.chars().count() > 60 => "a long text".into(),
        Value::String(_) => format!("the text {value}"),
        Value::Integer(_) | Value::Float(_) => format!("the number {value}"),
        Value::Boolean(b) => format!("`{b}`"),
        Value::Datetime(_) => format!("the date {value}"),
        Value::Array(_) => "a list".into(),
        Value::Table(_) => "a table".into(),
    }
}

impl Context<'_> {
    /// Where a path was said last, else where the nearest key around it was; `key` asks for the key, not its value.
    pub fn place(&self, path: &[String], key: bool) -> Option<Place> {
        for n in (1..=path.len()).rev() {
            if let Some(origin) = self.at.get(&path[..n]) {
                let value = !key && n == path.len() && !get(self.tree, path).is_some_and(Value::is_table);
                return Some(if value { origin.value_place() } else { origin.key_place() });
            }
        }
        self.fallback.clone()
    }
}
