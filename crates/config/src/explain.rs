//! What keys mean, for `explain`.

use ascribe_core::registry::Kind;
use toml::{Table, Value};

use crate::grid::Grid;
use crate::layers::child;
use crate::load::Loaded;
use crate::path::{self, Path, get, show};
use crate::report::{Problem, list, nearest};
use crate::schema::{Node, schema, slot_schema};
use crate::source::Place;

/// A key: what it means and what it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its name; dotted where it stands in a table of its own.
    pub name: String,
    /// What is wanted: type and range.
    pub wanted: String,
    /// Words that it may be, with what each means.
    pub words: Vec<(String, String)>,
    /// Its value where nothing is said.
    pub default: Option<Value>,
    /// Whether it must be said.
    pub required: bool,
    /// What it means.
    pub doc: String,
}

/// A key of an experiment: what it means, its value in each phase, and where that came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The key.
    pub key: Key,
    /// The kind of plugin that goes there, if it is a slot.
    pub slot: Option<Kind>,
    /// Values, each with the phases that have it; names are empty where there are no phases.
    pub values: Vec<Setting>,
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The phases that have it.
    pub phases: Vec<String>,
    /// The value; `None` where the key has none.
    pub value: Option<Value>,
    /// Where it was said; `None` for a default.
    pub place: Option<Place>,
}

/// The keys of a plugin.
pub fn plugin_keys(kind: Kind, name: &str) -> Vec<Key> {
    let mut keys = Vec::new();
    if let Some(node) = slot_schema(kind).child(name) {
        collect(node, &[], &mut keys);
    }
    keys
}

fn collect(node: Node<'_>, prefix: &[String], out: &mut Vec<Key>) {
    let required = node.required();
    for name in node.keys() {
        let Some(inner) = node.child(name) else { continue };
        let path = child(prefix, name);
        out.push(key(inner, &path, required.contains(&name)));
        if inner.is_table() && prefix.len() < 3 {
            collect(inner, &path, out);
        }
    }
}

/// What the schema says about a key.
fn key(node: Node<'_>, path: &[String], required: bool) -> Key {
    Key {
        name: show(path),
        wanted: node.wanted(),
        words: node.word_docs().into_iter().map(|(word, doc)| (word.to_string(), doc.to_string())).collect(),
        default: node.default(),
        required,
        doc: node.doc().unwrap_or_default().to_string(),
    }
}

/// Whether there is a key at a path, or what to say of it.
///
/// * `root`: what the path is seen from, which lies at `above`.
/// * `trees`: what was said there.
fn known(root: Node<'_>, trees: &[&Table], above: &[String], path: &[String]) -> Result<(), Problem> {
    let shown = |path: &[String]| show(&[above, path].concat());
    for n in 1..=path.len() {
        let (parent, last) = (&path[..n - 1], &path[n - 1]);
        let around = root.get(parent);
        let there = |tree: &&&Table| get(&Value::Table((**tree).clone()), &path[..n]).is_some();
        let known = around.is_some_and(|node| node.keys().contains(&last.as_str()));
        let is_slot = around.is_some_and(|node| node.slot().is_some());
        if known && n == path.len() && !is_slot || trees.iter().any(|tree| there(&tree)) {
            continue;
        }
        if known {
            let message = format!("`{}` is not part of this experiment", shown(&path[..n]));
            return Err(Problem::new(message).help("a slot's keys are those of the plugin in it"));
        }
        let message = match shown(parent) {
            parent if parent.is_empty() => format!("there is no key `{last}`"),
            parent => format!("`{parent}` has no key `{last}`"),
        };
        let mut keys = around.map(|node| node.keys()).unwrap_or_default();
        let there: Vec<String> = trees.iter().filter_map(|tree| keys_at(tree, parent)).flatten().collect();
        if is_slot || keys.is_empty() {
            keys = there.iter().map(String::as_str).collect();
        }
        // `gamma` for `estimator.gae.gamma`
        let mut below: Vec<Path> = Vec::new();
        if parent.is_empty() {
            trees.iter().for_each(|tree| find(tree, last, &mut Vec::new(), &mut below));
        }
        let below: Vec<String> = below.iter().map(|path| shown(path)).collect();
        let near = match &below[..] {
            [] => nearest(last, keys.iter().copied()).map(|near| format!("did you mean `{near}`?")),
            found => Some(format!("did you mean {}?", list(found, "or"))),
        };
        return Err(Problem::new(message).help(near.unwrap_or_else(|| format!("its keys are {}", list(&keys, "and")))));
    }
    Ok(())
}

fn parsed(key: &str) -> Result<Path, Problem> {
    let parts = path::parse(key);
    let wrong = |message| Problem::new(format!("`{key}` is no key: {message}")).help("for example update.learning_rate");
    parts.map(|parts| parts.into_iter().map(|(key, _)| key).collect()).map_err(|(message, _)| wrong(message))
}

/// Whether the last key of a path must be said.
fn must_be_said(root: Node<'_>, path: &[String]) -> bool {
    let Some((last, parent)) = path.split_last() else { return false };
    root.get(parent).is_some_and(|node| node.required().contains(&last.as_str()))
}

impl Grid {
    /// What a key of it means, its value, and where that came from.
    ///
    /// * `schema`: its own, which whoever runs grids knows.
    /// * `key`: as seen from the experiment, for example `grid.seeds`.
    ///
    /// # Errors
    /// If there is no such key.
    pub fn explain(&self, schema: &serde_json::Value, key: &str) -> Result<Explained, Problem> {
        let whole = parsed(key)?;
        let root = Node::of(schema);
        let (above, path) = whole.split_at(1);
        known(root, &[&self.table], above, path)?;
        let help = "what stands below it are keys of the experiment, or values: ask for those of the experiment without `grid`";
        let node = root.get(path).ok_or_else(|| Problem::new(format!("`{key}` is no key of a grid")).help(help))?;
        let value = get(&Value::Table(self.table.clone()), path).cloned();
        let place = match path {
            [] => self.place.clone(),
            path => self.at.get(path).map(|origin| origin.value_place()),
        };
        let setting = Setting { phases: Vec::new(), place: place.filter(|_| value.is_some()), value };
        Ok(Explained { key: self::key(node, &whole, must_be_said(root, path)), slot: None, values: vec![setting] })
    }
}

impl Loaded {
    /// What a key means, its value in each phase, and where that came from. `phase.NAME.KEY` asks for one phase.
    ///
    /// # Errors
    /// If there is no such key.
    pub fn explain(&self, key_text: &str) -> Result<Explained, Problem> {
        let fail = |message: String, help: String| Problem::new(message).help(help);
        let mut path = parsed(key_text)?;
        let mut asked: Vec<usize> = (0..self.phases.len()).collect();
        if path[0] == "phase" && path.len() > 2 {
            let names: Vec<&str> = self.plan.phases.iter().map(|phase| phase.name.as_str()).collect();
            let Some(i) = names.iter().position(|name| *name == path[1]).or(path[1].parse().ok().filter(|i| *i < names.len()))
            else {
                let near = nearest(&path[1], names.iter().copied()).map(|near| format!("did you mean `{near}`?"));
                let help = near.unwrap_or_else(|| format!("phases: {}", names.join(", ")));
                return Err(fail(format!("there is no phase `{}`", path[1]), help));
            };
            asked = vec![i];
            path.drain(..2);
        }
        let trees: Vec<&Table> = asked.iter().map(|i| &self.phases[*i].0).collect();
        known(schema(), &trees, &[], &path)?;
        let node = schema().get(&path).ok_or_else(|| fail(format!("there is no key `{key_text}`"), String::new()))?;
        let required = must_be_said(schema(), &path);
        let mut values: Vec<Setting> = Vec::new();
        for i in asked {
            let (tree, at) = &self.phases[i];
            let value = get(&Value::Table(tree.clone()), &path).cloned();
            let place = at.get(&path).map(|origin| origin.value_place()).filter(|_| value.is_some());
            let phases = if self.has_phases { vec![self.plan.phases[i].name.clone()] } else { Vec::new() };
            match values.iter_mut().find(|s| s.value == value && s.place == place) {
                Some(same) => same.phases.extend(phases),
                None => values.push(Setting { phases, value, place }),
            }
        }
        Ok(Explained { key: key(node, &path, required), slot: node.slot(), values })
    }
}

fn keys_at(tree: &Table, path: &[String]) -> Option<Vec<String>> {
    let value = Value::Table(tree.clone());
    Some(get(&value, path)?.as_table()?.keys().cloned().collect())
}

/// Collects the paths of keys of that name.
fn find(table: &Table, name: &str, path: &mut Path, out: &mut Vec<Path>) {
    for (key, value) in table {
        path.push(key.clone());
        if key == name && !out.contains(path) {
            out.push(path.clone());
        }
        let items: Vec<(String, &Table)> = match value {
            Value::Table(inner) => vec![(String::new(), inner)],
            Value::Array(items) => items.iter().enumerate().filter_map(|(i, v)| Some((i.to_string(), v.as_table()?))).collect(),
            _ => Vec::new(),
        };
        for (index, inner) in items {
            let depth = path.len();
            path.extend(Some(index).filter(|index| !index.is_empty()));
            find(inner, name, path, out);
            path.truncate(depth);
        }
        path.pop();
    }
}
