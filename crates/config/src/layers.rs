//! Layers: what each text says, and how one goes on top of another.
//!
//! A slot holds one plugin, so a layer that names another one first evicts what lies below; then the `config` crate
//! merges. Its own TOML source drops places and turns dates into text, and it parses keys as paths, so layers bring
//! their trees themselves, below one key.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ascribe_core::registry::{self, Kind};
use toml::de::{DeArray, DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::path::{Path, Placed, show};
use crate::report::{Problem, list, nearest};
use crate::schema::Node;
use crate::source::{Origin, Origins, Place, Source, forget};

/// What a text says, and where it says it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    pub tree: Table,
    pub at: Origins,
}

/// A plugin that a higher layer replaced by another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The slot's key.
    pub slot: String,
    /// The phase in which it was replaced; `None` if everywhere.
    pub phase: Option<String>,
    /// The plugin that was there, and where it was named.
    pub old: (String, Place),
    /// The plugin that is there instead, and where it is named.
    pub new: (String, Place),
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((old, old_place), (new, new_place)) = (&self.old, &self.new);
        write!(f, "`{}`: `{new}` ({new_place}) replaces `{old}` ({old_place})", self.slot)?;
        match &self.phase {
            Some(phase) => write!(f, " in phase `{phase}`"),
            None => Ok(()),
        }
    }
}

/// Reads a TOML document. Returns what it says, and numbers that are out of reach.
///
/// # Errors
/// If it is no TOML.
pub(crate) fn parse(source: &Arc<Source>, layer: usize) -> Result<(Layer, Vec<Problem>), Problem> {
    let document = DeTable::parse(&source.text).map_err(|e| {
        let place = Place { source: source.clone(), span: Some(clamp(e.span().unwrap_or(0..0), &source.text)) };
        Problem::new(format!("this is not TOML: {}", e.message().lines().next().unwrap_or_default())).at(Some(place))
    })?;
    let mut reader = Reader { source, layer, shift: 0, out: Layer::default(), problems: Vec::new() };
    let tree = reader.table(document.get_ref(), &mut Vec::new());
    reader.out.tree = tree;
    Ok((reader.out, reader.problems))
}

/// Reads one TOML value that begins at byte `shift` of the source and stands at `path`.
///
/// # Errors
/// If it is no TOML: the message, and where.
pub(crate) fn parse_value(
    source: &Arc<Source>,
    layer: usize,
    text: &str,
    shift: usize,
    path: &Path,
) -> Result<(Value, Origins, Vec<Problem>), Placed> {
    let value = DeValue::parse(text).map_err(|e| {
        let span = clamp(e.span().unwrap_or(0..0), text);
        (e.message().lines().next().unwrap_or_default().to_string(), span.start + shift..span.end + shift)
    })?;
    let mut reader = Reader { source, layer, shift, out: Layer::default(), problems: Vec::new() };
    let value = reader.value(&value, &mut path.clone());
    Ok((value, reader.out.at, reader.problems))
}

/// A span that can be shown: within the text, on character boundaries.
fn clamp(span: Range<usize>, text: &str) -> Range<usize> {
    let floor = |mut i: usize| {
        i = i.min(text.len());
        while !text.is_char_boundary(i) {
            i -= 1;
        }
        i
    };
    let (start, end) = (floor(span.start), floor(span.end));
    start..end.max(start)
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    layer: usize,
    shift: usize,
    out: Layer,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn note(&mut self, path: &Path, key: Range<usize>, value: Range<usize>) {
        let moved = |span: Range<usize>| span.start + self.shift..span.end + self.shift;
        let origin = Origin { source: self.source.clone(), layer: self.layer, key: moved(key), value: moved(value) };
        self.out.at.insert(path.clone(), origin);
    }

    fn table(&mut self, table: &DeTable<'_>, path: &mut Path) -> Table {
        let mut out = Table::new();
        for (key, value) in table.iter() {
            path.push(key.get_ref().to_string());
            self.note(path, key.span(), value.span());
            let value = self.value(value, path);
            out.insert(key.get_ref().to_string(), value);
            path.pop();
        }
        out
    }

    fn array(&mut self, array: &DeArray<'_>, path: &mut Path) -> Value {
        let mut out = Vec::new();
        for (i, value) in array.iter().enumerate() {
            path.push(i.to_string());
            self.note(path, value.span(), value.span());
            out.push(self.value(value, path));
            path.pop();
        }
        Value::Array(out)
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, path: &mut Path) -> Value {
        match value.get_ref() {
            DeValue::String(s) => Value::String(s.to_string()),
            DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
                Ok(i) => Value::Integer(i),
                Err(_) => self.out_of_reach(value.span(), path, format!("whole numbers go up to {}", i64::MAX)),
            },
            DeValue::Float(x) => match x.as_str().parse::<f64>() {
                Ok(parsed) if !parsed.is_infinite() || x.as_str().contains("inf") => Value::Float(parsed),
                _ => self.out_of_reach(value.span(), path, format!("numbers go up to {:e}", f64::MAX)),
            },
            DeValue::Boolean(b) => Value::Boolean(*b),
            DeValue::Datetime(date) => Value::Datetime(*date),
            DeValue::Array(array) => self.array(array, path),
            DeValue::Table(table) => Value::Table(self.table(table, path)),
        }
    }

    fn out_of_reach(&mut self, span: Range<usize>, path: &Path, help: String) -> Value {
        let place = Place { source: self.source.clone(), span: Some(span.start + self.shift..span.end + self.shift) };
        self.problems.push(Problem::new(format!("`{}` is too large", show(path))).at(Some(place)).help(help));
        Value::Integer(i64::MAX)
    }
}

/// Layers on top of each other.
pub(crate) struct Stack {
    pub schema: Node<'static>,
    pub tree: Table,
    pub at: Origins,
    pub replaced: Vec<Replaced>,
    pub problems: Vec<Problem>,
    /// The phase that is being stacked on the experiment.
    pub phase: Option<String>,
}

impl Stack {
    /// Nothing yet.
    pub fn new(schema: Node<'static>) -> Self {
        let (replaced, problems) = (Vec::new(), Vec::new());
        Self { schema, tree: Table::new(), at: Origins::new(), replaced, problems, phase: None }
    }

    /// Puts a layer on top.
    pub fn push(&mut self, mut layer: Layer) {
        let mut over = std::mem::take(&mut layer.tree);
        self.canonical_table(&mut over, Some(self.schema), &mut Vec::new(), &mut layer.at);
        let mut below = std::mem::take(&mut self.tree);
        self.settle(&mut below, &mut over, Some(self.schema), &mut Vec::new(), &mut layer.at);
        self.tree = merge(below, over);
        self.at.extend(layer.at);
    }

    /// Takes a top-level key off, with its place.
    pub fn take(&mut self, key: &str) -> Option<(Value, Option<Place>)> {
        let value = self.tree.remove(key)?;
        let path = [key.to_string()];
        let place = self.at.get(&path[..]).map(Origin::key_place);
        forget(&mut self.at, &path);
        Some((value, place))
    }

    /// `estimator = "gae"` means `[estimator.gae]`: said once per layer, before anything merges, so that both spellings
    /// merge, evict and report alike. Two plugins in one slot of one layer are refused here.
    fn canonical_table(&mut self, table: &mut Table, node: Option<Node<'_>>, path: &mut Path, at: &mut Origins) {
        if let Some(kind) = node.and_then(Node::slot_of_table) {
            self.refuse_two(table, kind, path, at);
        }
        for (key, value) in table.iter_mut() {
            path.push(key.clone());
            self.canonical_value(value, node.and_then(|n| n.child(key)), path, at);
            path.pop();
        }
    }

    fn canonical_value(&mut self, value: &mut Value, node: Option<Node<'_>>, path: &mut Path, at: &mut Origins) {
        match value {
            Value::String(name) if node.is_some_and(|n| n.slot().is_some()) => {
                let name = std::mem::take(name);
                if let Some(origin) = at.get(path) {
                    let named = Origin { key: origin.value.clone(), ..origin.clone() };
                    at.insert([path.as_slice(), std::slice::from_ref(&name)].concat(), named);
                }
                *value = Value::Table(Table::from_iter([(name, Value::Table(Table::new()))]));
            }
            Value::Table(table) => self.canonical_table(table, node, path, at),
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    path.push(i.to_string());
                    self.canonical_value(item, node.and_then(|n| n.child(&path[path.len() - 1])), path, at);
                    path.pop();
                }
            }
            _ => {}
        }
    }

    /// A slot's table must name exactly one plugin. Keeps the first that exists.
    fn refuse_two(&mut self, table: &mut Table, kind: Kind, path: &Path, at: &mut Origins) {
        if table.len() < 2 {
            return;
        }
        let names: Vec<String> = table.keys().cloned().collect();
        let known: Vec<&String> = names.iter().filter(|name| registry::plugin(kind, name).is_some()).collect();
        let keep = known.first().copied().unwrap_or(&names[0]).clone();
        // Keys of a plugin that was not named: one problem, about the first of them, follows when it is read.
        if !known.is_empty() {
            let mut problem = two_plugins(kind, path, &names);
            for name in &names {
                let place = at.get(&child(path, name)).map(Origin::key_place);
                problem = problem.mark(place, if *name == names[0] { "one" } else { "another" });
            }
            let stray = names.iter().find(|name| registry::plugin(kind, name).is_none());
            if let Some(stray) = stray {
                problem.help.clear();
                problem = problem.help(match nearest_plugin(kind, stray) {
                    _ if !table[stray.as_str()].is_table() => {
                        format!(
                            "`{stray}` is no {kind}; keys of `{keep}` are written `{}`",
                            show(&child(&child(path, &keep), stray))
                        )
                    }
                    Some(name) => format!("there is no {kind} `{stray}`; did you mean `{name}`?"),
                    None => format!("there is no {kind} `{stray}`"),
                });
            }
            self.problems.push(problem);
        }
        for name in names.iter().filter(|name| **name != keep) {
            table.remove(name);
            forget(at, &child(path, name));
        }
    }

    /// Makes room in `below` for what `over` says: evicts plugins that it replaces, forgets what it replaces whole, and
    /// spells out changes to items of lists.
    fn settle(&mut self, below: &mut Table, over: &mut Table, node: Option<Node<'_>>, path: &mut Path, at: &mut Origins) {
        if let Some(kind) = node.and_then(Node::slot_of_table)
            && let (Some(old), Some(new)) = (below.keys().next().cloned(), over.keys().next().cloned())
            && old != new
        {
            return self.evict(below, over, kind, (&old, &new), path, at);
        }
        for (key, value) in over.iter_mut() {
            let Some(lower) = below.get_mut(key) else { continue };
            let inner = node.and_then(|n| n.child(key));
            path.push(key.clone());
            match (lower, value) {
                (Value::Table(lower), Value::Table(value)) => self.settle(lower, value, inner, path, at),
                (Value::Array(items), value @ Value::Table(_)) if inner.is_none_or(Node::is_list) => {
                    let Value::Table(edits) = std::mem::replace(value, Value::Boolean(false)) else { unreachable!("matched") };
                    let mut items = std::mem::take(items);
                    self.edit(&mut items, edits, inner, path, at);
                    *value = Value::Array(items);
                }
                // Lists and single values are replaced whole.
                _ => {
                    below.remove(key);
                    forget(&mut self.at, path);
                }
            }
            path.pop();
        }
    }

    fn evict(
        &mut self,
        below: &mut Table,
        over: &mut Table,
        kind: Kind,
        (old, new): (&String, &String),
        path: &Path,
        at: &mut Origins,
    ) {
        let (old_path, new_path) = (child(path, old), child(path, new));
        let (old_origin, new_origin) = (self.at.get(&old_path).cloned(), at.get(&new_path).cloned());
        let new_place = new_origin.as_ref().map(Origin::key_place);
        let old_place = old_origin.as_ref().map(Origin::key_place);
        let same_layer = old_origin.zip(new_origin).is_some_and(|(old, new)| old.layer == new.layer);
        let mistaken = registry::plugin(kind, new).is_none() && registry::plugin(kind, old).is_some();
        if mistaken {
            let mut problem = Problem::new(format!("there is no {kind} `{new}`")).at(new_place);
            let keys = self.schema.get(&old_path).map(Node::keys).unwrap_or_default();
            problem = problem.help(if keys.contains(&new.as_str()) {
                format!("to change the `{new}` of `{old}`, write `{}`", show(&child(&old_path, new)))
            } else {
                plugin_help(kind, new)
            });
            self.problems.push(problem);
        } else if same_layer {
            let problem = two_plugins(kind, path, &[old, new]).mark(new_place, "another").mark(old_place, "one");
            self.problems.push(problem);
        } else {
            if let Some((old_place, new_place)) = old_place.zip(new_place) {
                let (old, new) = ((old.clone(), old_place), (new.clone(), new_place));
                self.replaced.push(Replaced { slot: show(path), phase: self.phase.clone(), old, new });
            }
            below.clear();
            forget(&mut self.at, &old_path);
            return;
        }
        over.clear();
        forget(at, &new_path);
    }

    /// Changes items of a list one by one: `transform.1.clip.max = 3`, `phase.warmup.updates = 8`.
    fn edit(&mut self, items: &mut [Value], edits: Table, node: Option<Node<'_>>, path: &mut Path, at: &mut Origins) {
        for (key, mut new) in edits {
            let named = child(path, &key);
            let Some(i) = item(path, items, &key) else {
                let place = at.get(&named).map(Origin::key_place);
                self.problems.push(no_item(path, items, &key).at(place));
                forget(at, &named);
                continue;
            };
            path.push(i.to_string());
            rename(at, &named, path);
            let inner = node.and_then(|n| n.child(&i.to_string()));
            match (&mut items[i], &mut new) {
                (Value::Table(old), Value::Table(new)) => {
                    self.settle(old, new, inner, path, at);
                    *old = merge(std::mem::take(old), std::mem::take(new));
                }
                (old, new) => {
                    forget(&mut self.at, path);
                    *old = std::mem::replace(new, Value::Boolean(false));
                }
            }
            path.pop();
        }
    }
}

/// The item of a list that a key names: an index, or a phase's name.
pub(crate) fn item(path: &[String], items: &[Value], key: &str) -> Option<usize> {
    let by_name = || (path == ["phase"]).then(|| items.iter().position(|phase| phase_name(phase) == Some(key))).flatten();
    by_name().or_else(|| key.parse::<usize>().ok().filter(|i| *i < items.len()))
}

/// The name that a phase gives itself.
pub(crate) fn phase_name(phase: &Value) -> Option<&str> {
    phase.get("name").and_then(Value::as_str)
}

fn no_item(path: &[String], items: &[Value], key: &str) -> Problem {
    if path == ["phase"] {
        let names: Vec<&str> = items.iter().filter_map(phase_name).collect();
        let help = match nearest(key, names.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("phases: {}", names.join(", ")),
        };
        return Problem::new(format!("there is no phase `{key}`")).help(help);
    }
    let whole = format!("or write the whole list: {}=[…]", show(path));
    match items.len() {
        0 => Problem::new(format!("`{}` has no item `{key}`: the list is empty", show(path))).help(whole),
        n => {
            let problem = Problem::new(format!("`{}` has no item `{key}`", show(path)));
            problem.help(format!("its items are {}; {whole}", if n == 1 { "0".into() } else { format!("0 to {}", n - 1) }))
        }
    }
}

fn two_plugins<S: AsRef<str>>(kind: Kind, path: &[String], names: &[S]) -> Problem {
    Problem::new(format!("`{}` takes exactly one {kind}, here are {}", show(path), list(names, "and")))
        .help("only a higher layer (a file that extends this one, the environment, the command line, a phase) replaces a plugin")
}

/// What to write instead of a plugin's name that does not exist.
pub(crate) fn plugin_help(kind: Kind, name: &str) -> String {
    let names: Vec<&str> = registry::plugins(kind).iter().map(|row| row.name).collect();
    if let Some(near) = nearest(name, names.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    let other = Kind::ALL.into_iter().find(|other| registry::plugin(*other, name).is_some());
    if let Some(other) = other {
        return format!("`{name}` is a plugin of another kind: {other}");
    }
    if names.is_empty() {
        return format!("this binary links no plugin of kind {kind}");
    }
    format!("plugins of kind {kind}: {}", names.join(", "))
}

fn nearest_plugin(kind: Kind, name: &str) -> Option<&'static str> {
    nearest(name, registry::plugins(kind).iter().map(|row| row.name))
}

/// A path one key further.
pub(crate) fn child(path: &[String], key: &str) -> Path {
    let mut path = path.to_vec();
    path.push(key.to_string());
    path
}

/// Moves what was said at `from` and below to `to`.
fn rename(at: &mut Origins, from: &[String], to: &[String]) {
    if from == to {
        return;
    }
    let moved: Vec<Path> = at.keys().filter(|p| p.starts_with(from)).cloned().collect();
    for path in moved {
        if let Some(origin) = at.remove(&path) {
            at.insert([to, &path[from.len()..]].concat(), origin);
        }
    }
}

/// The key below which layers are handed to `config`, which would read their own keys as paths.
const ROOT: &str = "experiment";
/// Marks text that is a date: `config` has none.
const DATE: &str = "date";

#[derive(Clone, Debug)]
struct Tree(Table);

impl config::Source for Tree {
    fn clone_into_box(&self) -> Box<dyn config::Source + Send + Sync> {
        Box::new(self.clone())
    }
    fn collect(&self) -> Result<config::Map<String, config::Value>, config::ConfigError> {
        Ok(std::iter::once((ROOT.to_string(), up(&Value::Table(self.0.clone())))).collect())
    }
}

fn up(value: &Value) -> config::Value {
    let date = DATE.to_string();
    match value {
        Value::String(s) => config::Value::new(None, s.clone()),
        Value::Integer(i) => config::Value::new(None, *i),
        Value::Float(x) => config::Value::new(None, *x),
        Value::Boolean(b) => config::Value::new(None, *b),
        Value::Datetime(d) => config::Value::new(Some(&date), d.to_string()),
        Value::Array(items) => config::Value::new(None, config::ValueKind::Array(items.iter().map(up).collect())),
        Value::Table(table) => {
            let table = table.iter().map(|(key, value)| (key.clone(), up(value))).collect();
            config::Value::new(None, config::ValueKind::Table(table))
        }
    }
}

fn down(value: config::Value) -> Value {
    let is_date = value.origin() == Some(DATE);
    match value.kind {
        config::ValueKind::Boolean(b) => b.into(),
        config::ValueKind::I64(i) => i.into(),
        config::ValueKind::Float(x) => x.into(),
        config::ValueKind::String(s) if is_date => s.parse().map_or_else(|_| Value::String(s), Value::Datetime),
        config::ValueKind::String(s) => s.into(),
        config::ValueKind::Array(items) => Value::Array(items.into_iter().map(down).collect()),
        config::ValueKind::Table(table) => table.into_iter().map(|(key, value)| (key, down(value))).collect::<Table>().into(),
        other => unreachable!("layers hold TOML values only, got {other:?}"),
    }
}

/// One table deeply over another.
fn merge(below: Table, over: Table) -> Table {
    let merged = config::Config::builder().add_source(Tree(below)).add_source(Tree(over)).build();
    let merged = merged.expect("gathering a tree that is at hand cannot fail");
    match down(merged.cache) {
        Value::Table(mut root) => match root.remove(ROOT) {
            Some(Value::Table(table)) => table,
            _ => Table::new(),
        },
        _ => Table::new(),
    }
}
