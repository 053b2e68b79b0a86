//! One row per plugin. `ascribe plugins`, `explain`, the JSON schema, the documentation and the conformance tests read
//! the rows; nothing else knows which plugins there are.

use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::preset::PresetOf;

/// What a plugin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A set of tasks and their live episodes.
    Environment,
    /// Something that samples actions and can be trained.
    Policy,
    /// Something that judges states, turns or tokens.
    Critic,
    /// How tasks become groups of turns.
    Rollout,
    /// How a group becomes credit.
    Estimator,
    /// What happens to a batch's credit before it trains.
    Transform,
    /// How rows become coefficients on differentiable columns.
    Objective,
    /// How a number changes over updates.
    Schedule,
}

impl Kind {
    /// All kinds, in the order of the training loop.
    pub const ALL: [Kind; 8] = [
        Kind::Environment,
        Kind::Policy,
        Kind::Rollout,
        Kind::Critic,
        Kind::Estimator,
        Kind::Transform,
        Kind::Objective,
        Kind::Schedule,
    ];

    /// The kind's name, as it stands in TOML.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Environment => "environment",
            Kind::Policy => "policy",
            Kind::Critic => "critic",
            Kind::Rollout => "rollout",
            Kind::Estimator => "estimator",
            Kind::Transform => "transform",
            Kind::Objective => "objective",
            Kind::Schedule => "schedule",
        }
    }
}
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A plugin, described.
#[derive(Debug)]
pub struct Plugin {
    /// What it is.
    pub kind: Kind,
    /// Its name in TOML.
    pub name: &'static str,
    /// One sentence: what it does.
    pub summary: &'static str,
    /// Authors, year, title, arXiv id or repository; empty where there is none.
    pub source: &'static str,
    /// When to use it, and when not.
    pub when: &'static str,
    /// The body of its table in TOML: documentation, and the good values that a broken file is repaired with to find
    /// the next mistake.
    pub example: &'static str,
    /// Formula, citation, reductions, edge cases: the documentation of the module it stands in; may be empty.
    pub doc: &'static str,
    /// What it is a preset of, if it is one.
    pub preset: Option<PresetOf>,
    /// The crate that brings it.
    pub krate: &'static str,
    /// Its configuration's schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}
inventory::collect!(Plugin);

/// The documentation at the head of a module's text: its leading lines that begin with `//!`, as they stand.
pub const fn module_doc(text: &str) -> &str {
    let bytes = text.as_bytes();
    let mut line = 0;
    while line + 3 <= bytes.len() && bytes[line] == b'/' && bytes[line + 1] == b'/' && bytes[line + 2] == b'!' {
        while line < bytes.len() && bytes[line] != b'\n' {
            line += 1;
        }
        if line < bytes.len() {
            line += 1;
        }
    }
    text.split_at(line).0
}

/// All plugins of a kind, by name.
pub fn plugins(kind: Kind) -> Vec<&'static Plugin> {
    let mut rows: Vec<_> = inventory::iter::<Plugin>.into_iter().filter(|row| row.kind == kind).collect();
    rows.sort_by_key(|row| row.name);
    rows
}

/// The plugin of that kind and name.
pub fn plugin(kind: Kind, name: &str) -> Option<&'static Plugin> {
    inventory::iter::<Plugin>.into_iter().find(|row| row.kind == kind && row.name == name)
}

/// Declares a plugin: its row in the registry, and its trait implementation under the same name.
///
/// The crate that calls it depends on `typetag`, `serde` and `schemars` beside `ascribe-core`.
///
/// ```ignore
/// plugin! {
///     Estimator "half" {
///         summary: "Half of the outcome for every turn.",
///         source: "",
///         when: "In an example.",
///         example: "",
///         module: "half.rs", // this file, whose documentation `explain` shows; may be left out
///     }
///     impl AdvantageEstimator for Half { /* … */ }
/// }
/// ```
#[macro_export]
macro_rules! plugin {
    (
        $kind:ident $name:literal {
            summary: $summary:literal,
            source: $source:literal,
            when: $when:literal,
            example: $example:literal
            $(, module: $module:literal)? $(,)?
        }
        impl $trait:ident for $type:ident { $($body:tt)* }
    ) => {
        $crate::inventory::submit! {
            $crate::registry::Plugin {
                kind: $crate::registry::Kind::$kind,
                name: $name,
                summary: $summary,
                source: $source,
                when: $when,
                example: $example,
                doc: $crate::registry::module_doc(concat!("", $(include_str!($module))?)),
                preset: None,
                krate: ::std::env!("CARGO_PKG_NAME"),
                schema: |generator| <$type as $crate::schemars::JsonSchema>::json_schema(generator),
            }
        }
        #[typetag::serde(name = $name)]
        impl $trait for $type { $($body)* }
    };
}

/// Gives `dyn Trait` the schema of a slot: a reference that [`schema`] fills from the registry.
macro_rules! slot_schema {
    ($($trait:ident => $kind:literal),+ $(,)?) => {$(
        impl ::schemars::JsonSchema for dyn $trait {
            fn schema_name() -> ::std::borrow::Cow<'static, str> { concat!("slot-", $kind).into() }
            fn inline_schema() -> bool { true }
            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "$ref": concat!("#/$defs/slot-", $kind) })
            }
        }
    )+};
}
pub(crate) use slot_schema;

/// The JSON schema of `T` with every slot filled from the registry.
///
/// `$defs/slot-KIND` is a one-of over the plugins of that kind and carries `x-slot = KIND`; `$defs/KIND-NAME` is a
/// plugin's own table. Where no plugin of a kind is linked, nothing fits its slot: a one-of over nothing is no schema.
/// Whoever walks an experiment (layers, suggestions, repair, editors) walks this one schema.
pub fn schema<T: JsonSchema>() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut root = generator.root_schema_for::<T>().to_value();
    let mut defs = match root.get_mut("$defs").map(Value::take) {
        Some(Value::Object(defs)) => defs,
        _ => Map::new(),
    };
    for kind in Kind::ALL {
        let one_of: Vec<Value> = plugins(kind)
            .into_iter()
            .map(|row| {
                let def = format!("{kind}-{}", row.name);
                let mut table = (row.schema)(&mut generator).to_value();
                table["description"] = row.summary.into();
                defs.insert(def.clone(), table);
                json!({
                    "type": "object",
                    "required": [row.name],
                    "additionalProperties": false,
                    "properties": { row.name: { "$ref": format!("#/$defs/{def}") } },
                })
            })
            .collect();
        defs.insert(format!("slot-{kind}"), slot_of(kind, one_of));
    }
    for (name, def) in generator.take_definitions(true) {
        defs.entry(name).or_insert(def);
    }
    root["$defs"] = Value::Object(defs);
    root
}

/// The slot of a kind with one form per plugin.
fn slot_of(kind: Kind, forms: Vec<Value>) -> Value {
    if forms.is_empty() {
        let why = format!("No plugin of kind {kind} is linked into this binary: nothing fits here.");
        return json!({ "x-slot": kind.as_str(), "description": why, "not": {} });
    }
    json!({ "x-slot": kind.as_str(), "oneOf": forms })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of keywords that must hold a list with something in it, and do not.
    fn empty_lists(schema: &Value, path: &str, found: &mut Vec<String>) {
        match schema {
            Value::Object(map) => {
                for (key, value) in map {
                    let path = format!("{path}/{key}");
                    let lists = ["oneOf", "anyOf", "allOf", "enum"].contains(&key.as_str());
                    if lists && value.as_array().is_none_or(Vec::is_empty) {
                        found.push(path.clone());
                    }
                    empty_lists(value, &path, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| empty_lists(item, path, found)),
            _ => {}
        }
    }

    #[test]
    fn a_kind_without_plugins_has_a_valid_slot_that_nothing_fits() {
        // This crate brings schedules alone.
        let schema = schema::<crate::Experiment>();
        let mut empty = Vec::new();
        empty_lists(&schema, "", &mut empty);
        assert_eq!(empty, Vec::<String>::new());
        let slots = &schema["$defs"];
        assert_eq!((&slots["slot-critic"]["not"], &slots["slot-critic"]["x-slot"]), (&json!({}), &json!("critic")));
        assert_eq!(slots["slot-schedule"]["oneOf"].as_array().map(Vec::len), Some(plugins(Kind::Schedule).len()));
    }
}
