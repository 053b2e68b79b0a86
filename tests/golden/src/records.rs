//! Golden inputs as records.

use std::collections::BTreeMap;

use ascribe_core::batch::NonFinite;
use ascribe_core::credit::spread;
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::signal::{Column, Scope, Signal};
use ascribe_core::{Batch, Credit, End};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A matrix of numbers.
pub fn matrix(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().expect("a matrix").iter().map(vector).collect()
}

/// A list of numbers; flags count 0 and 1.
pub fn vector(value: &Value) -> Vec<f64> {
    let number = |x: &Value| x.as_f64().or_else(|| x.as_bool().map(|b| f64::from(u8::from(b)))).expect("a number");
    value.as_array().expect("a list").iter().map(number).collect()
}

/// A list of texts.
pub fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|x| x.as_str().expect("a text")).collect()
}

/// A parameter that is a number.
pub fn number(params: &Value, key: &str) -> f64 {
    params[key].as_f64().unwrap_or_else(|| panic!("`{key}` is no number: {}", params[key]))
}

/// A parameter that is a flag.
pub fn flag(params: &Value, key: &str) -> bool {
    params[key].as_bool().unwrap_or_else(|| panic!("`{key}` is no flag: {}", params[key]))
}

/// A plugin's configuration.
pub fn config<T: DeserializeOwned>(settings: Value) -> T {
    serde_json::from_value(settings.clone()).unwrap_or_else(|e| panic!("{settings}: {e}"))
}

/// Rows of equal labels, in order of first appearance.
pub fn rows_by<'a>(labels: &[&'a str]) -> Vec<(&'a str, Vec<usize>)> {
    let mut place: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out: Vec<(&str, Vec<usize>)> = Vec::new();
    for (row, label) in labels.iter().enumerate() {
        let at = *place.entry(label).or_insert(out.len());
        if at == out.len() {
            out.push((label, Vec::new()));
        }
        out[at].1.push(row);
    }
    out
}

/// A turn of `n` sampled tokens that earned `reward`.
pub fn turn(parent: Option<usize>, n: usize, reward: f64) -> TurnLog {
    TurnLog {
        parent,
        agent: "actor".into(),
        read: vec![0],
        action: Action::given(vec![1; n]),
        reward: reward as f32,
        ..TurnLog::default()
    }
}

/// A group whose paths end at these turns, all truly.
pub fn group(turns: Vec<TurnLog>, leaves: Vec<usize>) -> GroupLog {
    let end = End::Terminated { success: true };
    let leaves = leaves.into_iter().map(|t| LeafLog { turn: Some(t), end: end.clone(), seed: 0 }).collect();
    GroupLog { task_name: "golden".into(), turns, leaves, ..GroupLog::default() }
}

/// A batch of these groups.
pub fn batch(groups: Vec<GroupLog>) -> Batch {
    Batch::from_groups(groups, NonFinite::Refuse).unwrap_or_else(|e| panic!("{e}"))
}

/// Adds a column without gaps.
pub fn add_signal(batch: &mut Batch, name: &str, scope: Scope, column: Vec<f32>) {
    let signal = Signal { scope, provider: "golden".into(), column: Column::full(column) };
    batch.add_signal(name, signal).unwrap_or_else(|e| panic!("{e}"));
}

/// Numbers at the places where the mask is 1, in order, 0 elsewhere.
pub fn on_mask(mask: &[f64], numbers: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut numbers = numbers.into_iter();
    mask.iter().map(|m| if *m == 1.0 { numbers.next().expect("one number per sampled token") } else { 0.0 }).collect()
}

/// What a credit says about each sampled token of group `g`, `[sampled tokens]`.
pub fn per_token(batch: &Batch, g: usize, credit: &Credit) -> Vec<f64> {
    credit.check(batch.group(g)).unwrap_or_else(|e| panic!("{e}"));
    spread(batch.group(g), credit).advantage.iter().map(|a| f64::from(a.expect("trained"))).collect()
}
