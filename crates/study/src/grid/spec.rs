//! What `[grid]` says.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use ascribe_config::{Grid, Report};
use ascribe_core::environment::TRAIN;
use ascribe_core::experiment::Evaluate;
use ascribe_core::registry::{self, Kind, plugin};
use ascribe_run::evaluate::Mode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

/// Most cells of a grid: each has a folder.
pub const MOST_CELLS: usize = 100_000;
/// Seeds of tuning runs begin here, so that none of them is a seed that is reported.
pub const FIRST_TUNING_SEED: u64 = 1_000_000;

/// `[grid]`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Seeds of every arm: how many, from 0 on, or which.
    #[schemars(schema_with = "number_or_list")]
    pub seeds: SeedsOf,
    /// The arm that the others are compared with; the first where it is left out.
    #[serde(default)]
    pub baseline: Option<String>,
    /// The arms: what each changes in the experiment. Without any there is one, `main`, which changes nothing.
    #[serde(default)]
    #[schemars(schema_with = "arms")]
    pub arm: Table,
    /// Settings that every arm is run with each of, by key.
    #[serde(default)]
    #[schemars(schema_with = "values_by_key")]
    pub axis: Table,
    /// Arms that are run once more with a transform at the end that destroys what they claim, by transform.
    #[serde(default)]
    #[schemars(schema_with = "arms_by_transform")]
    pub controls: Table,
    /// What is left out: an arm (`arm`), a value of an axis, or both together.
    #[serde(default)]
    #[schemars(schema_with = "combinations_left_out")]
    pub exclude: Vec<Table>,
    /// Settings that each arm chooses from, by key, on seeds of their own.
    #[serde(default)]
    #[schemars(schema_with = "values_by_key")]
    pub tune: Table,
    /// Seeds per setting while tuning, at least 1 and at most 1000.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 1000))]
    pub tune_seeds: u64,
    /// File with the prediction, seen from the experiment's folder; it is hashed into the grid before the first cell.
    #[serde(default)]
    pub prediction: Option<PathBuf>,
    /// What counts as an arm's score.
    #[serde(default)]
    pub score: Score,
}

fn two() -> u64 {
    2
}

// What tables hold whose keys are names or other keys; the fields say what for.
fn number_or_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "array"], "minimum": 1, "items": { "type": "integer", "minimum": 0 } })
}
fn arms(_: &mut SchemaGenerator) -> Schema {
    let arm = "What the arm changes: keys of the experiment, as `ascribe explain FILE KEY` explains them.";
    json_schema!({ "type": "object", "additionalProperties": { "type": "object", "description": arm } })
}
fn values_by_key(_: &mut SchemaGenerator) -> Schema {
    let values = "Values of that key of the experiment, one after the other.";
    json_schema!({ "type": "object", "additionalProperties": { "type": "array", "description": values, "minItems": 1 } })
}
fn arms_by_transform(_: &mut SchemaGenerator) -> Schema {
    let arms = "Arms that are run once more with that transform.";
    let list = json_schema!({ "type": "array", "description": arms, "items": { "type": "string" }, "minItems": 1 });
    json_schema!({ "type": "object", "additionalProperties": list })
}
fn combinations_left_out(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "object", "minProperties": 1 } })
}
fn modes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "oneOf": [
        { "const": Mode::Greedy.as_str(), "description": "The most probable token, once per task." },
        { "const": Mode::Sampled.as_str(), "description": "Sampled, as often per task as `evaluate.samples` says." },
    ] })
}

/// How many seeds, or which.
#[derive(Clone, Debug)]
pub enum SeedsOf {
    /// So many, from 0 on.
    First(u64),
    /// These.
    These(Vec<u64>),
}

impl<'de> Deserialize<'de> for SeedsOf {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(SeedsVisitor)
    }
}

struct SeedsVisitor;

impl<'de> Visitor<'de> for SeedsVisitor {
    type Value = SeedsOf;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of seeds, or a list of seeds")
    }
    fn visit_u64<E: de::Error>(self, n: u64) -> Result<SeedsOf, E> {
        Ok(SeedsOf::First(n))
    }
    fn visit_i64<E: de::Error>(self, n: i64) -> Result<SeedsOf, E> {
        u64::try_from(n).map(SeedsOf::First).map_err(|_| E::custom(format!("must not be negative, got {n}")))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seeds: A) -> Result<SeedsOf, A::Error> {
        let mut all = Vec::new();
        while let Some(seed) = seeds.next_element()? {
            all.push(seed);
        }
        Ok(SeedsOf::These(all))
    }
}

impl SeedsOf {
    /// The seeds.
    pub fn all(&self) -> Vec<u64> {
        match self {
            SeedsOf::First(n) => (0..*n).collect(),
            SeedsOf::These(seeds) => seeds.clone(),
        }
    }
}

/// What counts as an arm's score: the mean of a number over a task's episodes in a run's last evaluation.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub struct Score {
    /// The split; the only one that was measured where it is left out.
    pub split: Option<String>,
    /// `greedy` or `sampled` actions; sampled, where there are any, if it is left out.
    #[schemars(schema_with = "modes")]
    pub mode: Option<Mode>,
    /// The number.
    pub of: ScoreOf,
}

impl Score {
    /// Whether runs measure it after their last update: the key of it that they do not measure, and why.
    ///
    /// * `evaluations`: of each phase.
    /// * `known`: splits of the environment that have tasks, where that is known.
    pub(super) fn measured_by(&self, evaluations: &[Evaluate], known: Option<&[String]>) -> Result<(), (&'static str, String)> {
        let Some(last) = evaluations.last() else { return Ok(()) };
        let shown = |splits: &[String]| splits.iter().map(|split| format!("`{split}`")).collect::<Vec<_>>().join(", ");
        let unknown =
            |evaluate: &Evaluate| evaluate.splits.iter().find(|split| known.is_some_and(|known| !known.contains(split))).cloned();
        if let Some(split) = evaluations.iter().find_map(unknown) {
            let known = shown(known.unwrap_or_default());
            return Err((
                "split",
                format!("`evaluate.splits` names `{split}`, which the environment has no tasks of; it has {known}"),
            ));
        }
        let of = |evaluate: &Evaluate| match &evaluate.splits[..] {
            [] => known.map(|known| known.iter().filter(|split| *split != TRAIN).cloned().collect::<Vec<_>>()),
            named => Some(named.to_vec()),
        };
        if let Some(splits) = of(last) {
            if splits.is_empty() {
                return Err(("split", "nothing is measured: the environment has no split but `train`; `evaluate.splits = [\"train\"]` measures that".into()));
            }
            if let Some(split) = self.split.as_ref().filter(|split| !splits.contains(split)) {
                return Err((
                    "split",
                    format!("nothing is measured on `{split}`, but on {}; see `evaluate.splits`", shown(&splits)),
                ));
            }
            let all: BTreeSet<String> = evaluations.iter().filter_map(of).flatten().collect();
            if self.split.is_none() && all.len() > 1 {
                let all: Vec<String> = all.into_iter().collect();
                return Err(("split", format!("several splits are measured, {}: say which one counts", shown(&all))));
            }
        }
        let samples = |evaluate: &Evaluate| evaluate.samples.get() > 0;
        let sampled = self.mode.map_or_else(|| evaluations.iter().any(samples), |mode| mode == Mode::Sampled);
        if sampled && !samples(last) {
            return Err(("mode", "no actions are sampled: `evaluate.samples` is 0; mode = \"greedy\" reads the others".into()));
        }
        Ok(())
    }
}

/// A number of an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ScoreOf {
    /// Whether it solved its task.
    #[default]
    Success,
    /// The sum of the environment's rewards.
    Return,
}

/// A setting that takes several values.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The key, as on the command line.
    pub key: String,
    /// The values.
    pub values: Vec<Value>,
}

impl Spec {
    /// The schema of `[grid]`.
    pub fn schema() -> serde_json::Value {
        let mut schema = registry::schema::<Spec>();
        if let Some(of) = schema.as_object_mut() {
            // It stands within that of an experiment, which has them.
            ["$schema", "$defs", "title"].iter().for_each(|key| drop(of.remove(*key)));
        }
        schema
    }

    /// Reads and checks a grid.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn read(grid: &Grid) -> Result<Spec, Report> {
        let spec: Spec = grid.read()?;
        spec.check_seeds(grid)?;
        spec.check_arms(grid)?;
        spec.check_controls(grid)?;
        for (table, of) in [("axis", &spec.axis), ("tune", &spec.tune)] {
            for (key, values) in of {
                if values.as_array().is_none_or(Vec::is_empty) {
                    let text = "a list of values is needed; quote a key with dots: \"update.learning_rate\" = [1e-3, 3e-4]";
                    return Err(grid.report(&[table, key], text));
                }
            }
        }
        let within = |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('.'));
        for key in spec.tune.keys() {
            if let Some(axis) = spec.axis.keys().find(|axis| within(axis, key) || within(key, axis)) {
                let text = format!("the axis `{axis}` sets what is tuned here: leave one of them out");
                return Err(grid.report(&["tune", key], text));
            }
        }
        spec.check_excluded(grid)?;
        Ok(spec)
    }

    fn check_seeds(&self, grid: &Grid) -> Result<(), Report> {
        let refuse = |key, text: String| Err(grid.report(&[key], text));
        if let SeedsOf::First(n) = self.seeds
            && n > MOST_CELLS as u64
        {
            return refuse("seeds", format!("{n} seeds, and at most {MOST_CELLS} cells fit a grid"));
        }
        let seeds = self.seeds.all();
        if seeds.is_empty() {
            return refuse("seeds", "at least one seed is needed".into());
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = seeds.iter().find(|seed| !seen.insert(**seed)) {
            return refuse("seeds", format!("seed {twice} stands there twice: runs of one seed are one run"));
        }
        if let Some(seed) = seeds.iter().find(|seed| **seed >= FIRST_TUNING_SEED) {
            return refuse("seeds", format!("must be below {FIRST_TUNING_SEED}, where tuning runs have theirs; got {seed}"));
        }
        if !(1..=1000).contains(&self.tune_seeds) {
            return refuse("tune_seeds", format!("must be in 1..=1000, got {}", self.tune_seeds));
        }
        Ok(())
    }

    fn check_arms(&self, grid: &Grid) -> Result<(), Report> {
        for (name, arm) in &self.arm {
            if name.trim().is_empty() || name.chars().any(char::is_control) {
                return Err(
                    grid.report(&["arm", name], "an arm needs a name that can be read: no empty one, no control characters")
                );
            }
            let Some(table) = arm.as_table() else {
                return Err(grid.report(&["arm", name], "an arm is a table of what it changes, for example estimator = \"rloo\""));
            };
            if table.contains_key("grid") || table.contains_key("extends") {
                return Err(grid.report(&["arm", name], "an arm changes the experiment: it has no `grid` and no `extends`"));
            }
        }
        let arms = self.arms();
        match &self.baseline {
            Some(name) if !arms.contains(name) => {
                Err(grid.report(&["baseline"], format!("there is no arm `{name}`; arms here: {}", arms.join(", "))))
            }
            _ => Ok(()),
        }
    }

    fn check_controls(&self, grid: &Grid) -> Result<(), Report> {
        let arms = self.arms();
        for (transform, of) in &self.controls {
            let refuse = |text: String| Err(grid.report(&["controls", transform], text));
            if plugin(Kind::Transform, transform).is_none() {
                return refuse("there is no transform of that name; controls are `shuffle`, `random` and `uniform`".into());
            }
            let names: Option<Vec<&str>> = of.as_array().and_then(|names| names.iter().map(Value::as_str).collect());
            let Some(names) = names.filter(|names| !names.is_empty()) else {
                return refuse("a list of arms is needed".into());
            };
            if let Some(unknown) = names.iter().find(|name| !arms.iter().any(|arm| arm == *name)) {
                return refuse(format!("there is no arm `{unknown}`; arms here: {}", arms.join(", ")));
            }
        }
        Ok(())
    }

    fn check_excluded(&self, grid: &Grid) -> Result<(), Report> {
        let arms = self.arms();
        for (i, exclude) in self.exclude.iter().enumerate() {
            if exclude.is_empty() {
                let text = "an empty table excludes nothing: name an arm, a value of an axis, or both";
                return Err(grid.report(&["exclude", &i.to_string()], text));
            }
            for (key, value) in exclude {
                let known = match key.as_str() {
                    "arm" => value.as_str().is_some_and(|name| arms.iter().any(|arm| arm == name)),
                    axis => self.axis.get(axis).and_then(Value::as_array).is_some_and(|values| values.contains(value)),
                };
                if !known {
                    let text = format!("`{key} = {value}` is no arm and no value of an axis: it excludes nothing");
                    return Err(grid.report(&["exclude", &i.to_string(), key], text));
                }
            }
        }
        Ok(())
    }

    /// Names of the arms, without controls.
    pub fn arms(&self) -> Vec<String> {
        if self.arm.is_empty() { vec!["main".into()] } else { self.arm.keys().cloned().collect() }
    }

    /// The axes.
    pub fn axes(&self) -> Vec<Choice> {
        choices(&self.axis)
    }

    /// What is tuned.
    pub fn tuned(&self) -> Vec<Choice> {
        choices(&self.tune)
    }

    /// Where a setting that an axis or tuning makes was said, seen from the grid.
    pub(super) fn said(&self, text: &str) -> Option<Vec<String>> {
        [("axis", &self.axis), ("tune", &self.tune)].into_iter().find_map(|(table, of)| {
            let (key, values) =
                of.iter().find(|(key, _)| text.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with('=')))?;
            let i = values.as_array()?.iter().position(|value| setting(key, value) == text)?;
            Some(vec![table.to_string(), key.clone(), i.to_string()])
        })
    }

    /// The arm that the others are compared with.
    pub fn baseline(&self) -> String {
        self.baseline.clone().unwrap_or_else(|| self.arms().swap_remove(0))
    }

    /// Whether a combination is left out.
    pub fn excludes(&self, arm: &str, axes: &[(String, Value)]) -> bool {
        let holds = |key: &str, value: &Value| match key {
            "arm" => value.as_str() == Some(arm),
            axis => axes.iter().any(|(key, of)| key == axis && of == value),
        };
        self.exclude.iter().any(|exclude| exclude.iter().all(|(key, value)| holds(key, value)))
    }
}

fn choices(table: &Table) -> Vec<Choice> {
    let of =
        |(key, values): (&String, &Value)| Choice { key: key.clone(), values: values.as_array().cloned().unwrap_or_default() };
    table.iter().map(of).collect()
}

/// A key's value, as on the command line.
pub(super) fn setting(key: &str, value: &Value) -> String {
    format!("{key}={value}")
}

/// All combinations of values, the first key changing slowest.
pub(crate) fn combinations(choices: &[Choice]) -> Vec<Vec<(String, Value)>> {
    let mut all = vec![Vec::new()];
    for choice in choices {
        all = all
            .into_iter()
            .flat_map(|before: Vec<(String, Value)>| {
                choice.values.iter().map(move |value| [&before[..], &[(choice.key.clone(), value.clone())]].concat())
            })
            .collect();
    }
    all
}
