//! The schema of an experiment, and walks along it. Layers, suggestions, repair, environment names and editors all walk
//! this one schema.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use ascribe_core::Experiment;
use ascribe_core::experiment::{RUN_WIDE, SCHEDULABLE};
use ascribe_core::registry::{self, Kind};
use serde_json::{Map, Value, json};

use crate::report::list;

/// The schema of a file: an experiment, its phases, and what `config` takes off.
fn file_schema() -> Value {
    let mut schema = registry::schema::<Experiment>();
    let experiment = schema["properties"].as_object().cloned().unwrap_or_default();
    let mut phase = Map::new();
    phase.insert("name".into(), json!({ "type": "string", "description": "Name of the phase." }));
    phase.extend(experiment.into_iter().filter(|(key, _)| key != "name" && !RUN_WIDE.contains(&key.as_str())));
    schema["$defs"]["phase"] = json!({
        "type": "object",
        "description": "A phase: what differs in it from the experiment.",
        "additionalProperties": false,
        "properties": phase,
        "required": ["name"],
    });
    schema["properties"]["phase"] = json!({
        "type": "array",
        "items": { "$ref": "#/$defs/phase" },
        "description": "Phases, in order; each says only what differs.",
    });
    schema
}

/// The schema that `config` walks.
pub(crate) fn schema() -> Node<'static> {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    Node::of(SCHEMA.get_or_init(file_schema))
}

/// The JSON schema of an experiment file, for editors: what [`crate::load`] accepts.
///
/// * `grid`: of `[grid]`, which whoever runs grids knows.
pub fn json_schema(grid: Value) -> Value {
    let mut schema = file_schema();
    schema["title"] = "Ascribe experiment".into();
    // With phases or files below it, a file need not say everything.
    let required = schema["required"].take();
    schema.as_object_mut().expect("a schema is an object").remove("required");
    schema["anyOf"] = json!([{ "required": ["extends"] }, { "required": ["phase"] }, { "required": required }]);
    schema["properties"]["extends"] = json!({
        "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
        "description": "Files that this one builds on, left to right, seen from this file.",
    });
    schema["properties"]["grid"] = grid;
    let defs = schema["$defs"].as_object_mut().expect("definitions are an object");
    for kind in Kind::ALL {
        let names: Vec<&str> = registry::plugins(kind).iter().map(|row| row.name).collect();
        if let Some(forms) = defs.get_mut(&format!("slot-{kind}")).and_then(|slot| slot.get_mut("oneOf")?.as_array_mut()) {
            forms.insert(0, json!({ "type": "string", "enum": names }));
        }
    }
    numbers_or_schedules(&mut schema);
    schema
}

/// Lets schedules stand below the keys whose numbers may be scheduled, of the experiment and of its phases.
fn numbers_or_schedules(schema: &mut Value) {
    for def in scheduled_definitions(schema) {
        number_or_schedule(&mut schema["$defs"][&def]);
    }
    for table in ["", "/$defs/phase"] {
        for key in SCHEDULABLE {
            schema.pointer_mut(&format!("{table}/properties/{key}")).into_iter().for_each(number_or_schedule);
        }
    }
}

/// Definitions that stand below a key whose numbers may be scheduled, however deep: in a plugin, in the items of a list, in
/// a plugin within a plugin.
fn scheduled_definitions(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Value> = SCHEDULABLE.iter().map(|key| &schema["properties"][key]).collect();
    while let Some(at) = open.pop() {
        match at {
            Value::Object(map) => {
                let def = map.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix("#/$defs/"));
                if let Some(def) = def
                    && found.insert(def.to_string())
                {
                    open.push(&schema["$defs"][def]);
                }
                open.extend(map.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    found
}

/// Lets a schedule stand wherever a number may.
fn number_or_schedule(schema: &mut Value) {
    match schema {
        Value::Object(map) if map.get("type").is_some_and(is_number) => {
            let description = map.remove("description");
            let default = map.remove("default");
            let number = Value::Object(std::mem::take(map));
            map.insert("anyOf".into(), json!([number, { "$ref": "#/$defs/slot-schedule" }]));
            map.extend(description.map(|d| ("description".to_string(), d)));
            map.extend(default.map(|d| ("default".to_string(), d)));
        }
        Value::Object(map) => {
            for key in ["properties", "additionalProperties", "items", "oneOf", "anyOf"] {
                match (key, map.get_mut(key)) {
                    ("properties", Some(Value::Object(properties))) => properties.values_mut().for_each(number_or_schedule),
                    (_, Some(below)) => number_or_schedule(below),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(number_or_schedule),
        _ => {}
    }
}

fn is_number(types: &Value) -> bool {
    let number = |t: &Value| t == "number" || t == "integer";
    number(types) || types.as_array().is_some_and(|types| types.iter().any(number))
}

/// A place in the schema.
#[derive(Clone, Copy)]
pub(crate) struct Node<'s> {
    root: &'s Value,
    /// As the parent says it: with description and default.
    said: &'s Value,
    /// What it stands for.
    at: &'s Value,
}

impl<'s> Node<'s> {
    /// The root of a schema.
    pub fn of(root: &'s Value) -> Self {
        Self { root, said: root, at: root }
    }

    fn new(root: &'s Value, said: &'s Value) -> Self {
        let mut at = said;
        // References in circles do not occur; the bound is a seat belt.
        for _ in 0..32 {
            if let Some(target) = at["$ref"].as_str().and_then(|r| root.pointer(r.trim_start_matches('#'))) {
                at = target;
            } else if let Some(forms) = at["anyOf"].as_array() {
                let Some(form) = forms.iter().find(|form| form["type"] != "null") else { break };
                at = form;
            } else {
                break;
            }
        }
        Self { root, said, at }
    }

    /// The kind of plugin that goes here.
    pub fn slot(self) -> Option<Kind> {
        let kind = self.at["x-slot"].as_str()?;
        Kind::ALL.into_iter().find(|k| k.as_str() == kind)
    }

    /// The kind of plugin that a table here is: where a number stands, a table is a schedule.
    pub fn slot_of_table(self) -> Option<Kind> {
        self.slot().or_else(|| self.is_number().then_some(Kind::Schedule))
    }

    /// The key below it, or the items of a list.
    pub fn child(self, key: &str) -> Option<Node<'s>> {
        if self.is_number() {
            return schema_of(self.root, Kind::Schedule).child(key);
        }
        let forms = self.at["oneOf"].as_array().into_iter().flatten();
        let of_form = forms.filter_map(|form| form["properties"].get(key)).next();
        let said = of_form
            .or_else(|| self.at["properties"].get(key))
            .or_else(|| self.at.get("additionalProperties").filter(|schema| schema.is_object()))
            .or_else(|| self.at.get("items"))?;
        Some(Node::new(self.root, said))
    }

    /// The place at a path below it.
    pub fn get(self, path: &[String]) -> Option<Node<'s>> {
        path.iter().try_fold(self, |at, key| at.child(key))
    }

    /// Keys that it names: of a table, of a map with known names; the plugins of a slot.
    pub fn keys(self) -> Vec<&'s str> {
        if let Some(kind) = self.slot_of_table() {
            return registry::plugins(kind).iter().map(|row| row.name).collect();
        }
        if let Some(properties) = self.at["properties"].as_object() {
            return properties.keys().map(String::as_str).collect();
        }
        match self.at.get("propertyNames") {
            Some(names) => Node::new(self.root, names).words(),
            None => Vec::new(),
        }
    }

    /// Whether it is a map whose keys are names of a type.
    pub fn names_its_keys(self) -> bool {
        self.at.get("propertyNames").is_some()
    }

    /// Keys that must be there.
    pub fn required(self) -> Vec<&'s str> {
        self.at["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Words that it is one of.
    pub fn words(self) -> Vec<&'s str> {
        let listed = self.at["enum"].as_array().into_iter().flatten();
        let described = self.at["oneOf"].as_array().into_iter().flatten().filter_map(|form| form.get("const"));
        listed.chain(described).filter_map(Value::as_str).collect()
    }

    /// Its words with what each means.
    pub fn word_docs(self) -> Vec<(&'s str, &'s str)> {
        let forms = self.at["oneOf"].as_array().into_iter().flatten();
        forms.filter_map(|form| Some((form["const"].as_str()?, form["description"].as_str()?))).collect()
    }

    fn has_type(self, name: &str) -> bool {
        let types = &self.at["type"];
        types == name || types.as_array().is_some_and(|types| types.iter().any(|t| t == name))
    }
    /// Whether a number goes here.
    pub fn is_number(self) -> bool {
        is_number(&self.at["type"])
    }
    /// Whether a whole number goes here.
    pub fn is_whole(self) -> bool {
        self.has_type("integer")
    }
    /// Whether nothing but text goes here: a word that looks like a number is still a word.
    pub fn is_text(self) -> bool {
        self.slot().is_some() || !self.words().is_empty() || self.has_type("string") && !self.is_number()
    }
    /// Whether a list goes here.
    pub fn is_list(self) -> bool {
        self.has_type("array")
    }
    /// Whether a table of keys goes here.
    pub fn is_table(self) -> bool {
        self.has_type("object") && self.slot().is_none()
    }

    /// What is wanted here, as it stands in a sentence.
    pub fn wanted(self) -> String {
        if let Some(kind) = self.slot() {
            return format!("exactly one {kind}");
        }
        let words = self.words();
        if !words.is_empty() {
            return list(&words, "or");
        }
        if self.is_whole() && self.has_type("string") && self.at["minimum"] == 0 && self.at["maximum"].is_null() {
            return "a count such as 20000000, 2e7 or \"20M\"".into();
        }
        if self.is_number() {
            let number = if self.is_whole() { "a whole number" } else { "a number" };
            return match self.range() {
                Some(range) => format!("{number} {range}"),
                None => number.into(),
            };
        }
        for (kind, name) in [("string", "text"), ("boolean", "true or false"), ("array", "a list"), ("object", "a table")] {
            if self.has_type(kind) {
                return name.into();
            }
        }
        "something else".into()
    }

    /// The range of a number: `in 0..=1`, `above 0`.
    fn range(self) -> Option<String> {
        let bound = |key: &str| self.at.get(key).and_then(Value::as_f64);
        Some(match (bound("minimum"), bound("exclusiveMinimum"), bound("maximum")) {
            (Some(min), _, Some(max)) => format!("in {min}..={max}"),
            (_, Some(min), Some(max)) => format!("above {min}, at most {max}"),
            (Some(min), _, None) => format!("of at least {min}"),
            (_, Some(min), None) => format!("above {min}"),
            (None, None, Some(max)) => format!("of at most {max}"),
            (None, None, None) => return None,
        })
    }

    /// What the key means.
    pub fn doc(self) -> Option<&'s str> {
        self.said["description"].as_str().or_else(|| self.at["description"].as_str())
    }

    /// Its value where nothing is said.
    pub fn default(self) -> Option<toml::Value> {
        self.said.get("default").and_then(from_json)
    }

    /// Some value that fits here, to mend a file with while looking for the next mistake.
    pub fn sample(self) -> Option<toml::Value> {
        self.sample_within(16)
    }

    fn sample_within(self, depth: usize) -> Option<toml::Value> {
        if let Some(default) = self.default() {
            return Some(default);
        }
        if depth == 0 {
            return None;
        }
        if let Some(kind) = self.slot() {
            return example(*registry::plugins(kind).first()?);
        }
        if let Some(word) = self.words().first() {
            return Some((*word).into());
        }
        if self.is_number() {
            let min = self.at["minimum"].as_f64().or(self.at["exclusiveMinimum"].as_f64().map(|x| x + 1.0));
            let x = min.unwrap_or(1.0).max(1.0).min(self.at["maximum"].as_f64().unwrap_or(f64::MAX));
            return Some(if self.is_whole() { toml::Value::Integer(x as i64) } else { toml::Value::Float(x) });
        }
        if self.has_type("object") {
            let body = self.required().into_iter().map(|key| Some((key.to_string(), self.child(key)?.sample_within(depth - 1)?)));
            return body.collect::<Option<toml::Table>>().map(toml::Value::Table);
        }
        if self.is_list() {
            return Some(toml::Value::Array(Vec::new()));
        }
        if self.has_type("boolean") {
            return Some(false.into());
        }
        self.has_type("string").then(|| "x".into())
    }
}

/// The slot of a kind.
pub(crate) fn schema_of(root: &Value, kind: Kind) -> Node<'_> {
    let slot = &root["$defs"][format!("slot-{kind}")];
    Node { root, said: slot, at: slot }
}

/// The slot of a kind, in the schema of experiments.
pub(crate) fn slot_schema(kind: Kind) -> Node<'static> {
    schema_of(schema().root, kind)
}

/// A plugin as a slot's table, from its example.
pub(crate) fn example(row: &registry::Plugin) -> Option<toml::Value> {
    let body: toml::Table = toml::from_str(row.example).ok()?;
    Some(toml::Value::Table(toml::Table::from_iter([(row.name.to_string(), toml::Value::Table(body))])))
}

/// A default of the schema as TOML, which has no null.
fn from_json(json: &Value) -> Option<toml::Value> {
    Some(match json {
        Value::Null => return None,
        Value::Bool(b) => (*b).into(),
        Value::Number(n) => n.as_i64().map(toml::Value::Integer).or(n.as_f64().map(toml::Value::Float))?,
        Value::String(s) => s.as_str().into(),
        Value::Array(items) => toml::Value::Array(items.iter().filter_map(from_json).collect()),
        Value::Object(map) => toml::Value::Table(map.iter().filter_map(|(k, v)| Some((k.clone(), from_json(v)?))).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_may_stand_in_items_of_lists_and_in_phases() {
        let term = json!({ "type": "object", "properties": { "weight": { "type": "number", "description": "Factor." } } });
        let sum = json!({ "properties": { "of": { "type": "array", "items": { "$ref": "#/$defs/Term" } } } });
        let slot = json!({ "oneOf": [{ "properties": { "sum": { "$ref": "#/$defs/objective-sum" } } }] });
        let reward = json!({ "type": "object", "additionalProperties": { "type": "number" } });
        let properties =
            json!({ "objective": { "$ref": "#/$defs/slot-objective" }, "reward": reward, "seed": { "type": "integer" } });
        let mut schema = json!({
            "properties": properties,
            "$defs": {
                "Term": term, "objective-sum": sum, "slot-objective": slot, "phase": { "properties": properties },
                "Evaluate": { "properties": { "every": { "type": "integer" } } },
            },
        });
        numbers_or_schedules(&mut schema);
        let number = json!([{ "type": "number" }, { "$ref": "#/$defs/slot-schedule" }]);
        assert_eq!(schema["$defs"]["Term"]["properties"]["weight"], json!({ "anyOf": number, "description": "Factor." }));
        for table in [&schema, &schema["$defs"]["phase"]] {
            assert_eq!(table["properties"]["reward"]["additionalProperties"], json!({ "anyOf": number }));
            assert_eq!(table["properties"]["seed"], json!({ "type": "integer" }));
        }
        assert_eq!(schema["$defs"]["Evaluate"]["properties"]["every"], json!({ "type": "integer" }));
    }
}
