//! `methods_rederived.json`: numbers of an independent derivation of the methods' formulas. Its inputs are in the script
//! beside it; a part gives some of its keys.

mod transforms;

use serde_json::{Map, Value};

use crate::Case;

/// Everything that the parts give.
pub fn all(_: Case<'_>) -> Value {
    let parts: [fn() -> Map<String, Value>; 1] = [transforms::keys];
    Value::Object(parts.into_iter().flat_map(|part| part()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Precision, compare};

    #[test]
    fn what_the_parts_give_is_equal() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/methods_rederived.json");
        let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("the file")).expect("JSON");
        let ours = all(Case { name: "all", params: &Value::Null, inputs: &Value::Null });
        for (key, ours) in ours.as_object().expect("a map") {
            let (compared, differences) = compare(&golden[key], ours, Precision::F32, &|_| false);
            assert!(differences.is_empty() && compared > 0, "{key}: {differences:?}");
        }
    }
}
