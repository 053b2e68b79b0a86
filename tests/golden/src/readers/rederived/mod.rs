//! `methods_rederived.json`: numbers of an independent derivation of the methods' formulas. Its inputs are in the script
//! beside it; a part gives some of its keys.

mod graphs;
mod scores;
mod transforms;
mod trees;
mod values;

use serde_json::{Map, Value};

use crate::Case;

/// Everything that the parts give.
pub fn all(_: Case<'_>) -> Value {
    let parts: &[fn() -> Map<String, Value>] = &[graphs::part, scores::part, transforms::keys, trees::keys, values::values];
    Value::Object(parts.iter().flat_map(|part| part()).collect())
}
