//! The comparison of one case.

use serde_json::Value;

/// How equal two numbers must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Official code ran in `f32`: `2e-5·(1 + |x|)`.
    F32,
    /// It ran in `f64`: `1e-10·(1 + |x|)`.
    F64,
}

impl Precision {
    fn tolerance(self, want: f64) -> f64 {
        let relative = match self {
            Precision::F32 => 2e-5,
            Precision::F64 => 1e-10,
        };
        relative * (1.0 + want.abs())
    }
}

/// Where a leaf lies: keys and indices from the root of `expected`, as a JSON pointer.
pub type Pointer = String;

/// Pointers to the numbers under `value`, in order.
pub fn numbers(value: &Value) -> Vec<Pointer> {
    fn walk(value: &Value, at: &str, out: &mut Vec<Pointer>) {
        match value {
            Value::Number(_) => out.push(at.to_string()),
            Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| walk(v, &format!("{at}/{i}"), out)),
            Value::Object(map) => {
                map.iter().for_each(|(k, v)| walk(v, &format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")), out))
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    let mut out = Vec::new();
    walk(value, "", &mut out);
    out
}

/// Compares what ours gives with what is expected. Returns the number of leaves compared and what differs.
///
/// * `apart(pointer)` names leaves that are listed as not comparable.
///
/// A number, flag, text or null that is expected and not given is a difference; what is given beyond that is not.
pub fn compare(expected: &Value, ours: &Value, precision: Precision, apart: &dyn Fn(&str) -> bool) -> (usize, Vec<String>) {
    let mut compared = 0;
    let mut differences = Vec::new();
    walk(expected, Some(ours), "", precision, apart, &mut compared, &mut differences);
    (compared, differences)
}

fn walk(
    expected: &Value,
    ours: Option<&Value>,
    at: &str,
    precision: Precision,
    apart: &dyn Fn(&str) -> bool,
    compared: &mut usize,
    differences: &mut Vec<String>,
) {
    match expected {
        Value::Object(map) => {
            for (key, want) in map {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                walk(want, ours.and_then(|o| o.get(key)), &at, precision, apart, compared, differences);
            }
        }
        Value::Array(items) => {
            if let Some(Value::Array(ours)) = ours
                && ours.len() > items.len()
                && !apart(at)
            {
                differences.push(format!("{at}: {} given, {} expected", ours.len(), items.len()));
            }
            for (i, want) in items.iter().enumerate() {
                walk(want, ours.and_then(|o| o.get(i)), &format!("{at}/{i}"), precision, apart, compared, differences);
            }
        }
        _ if apart(at) => {}
        Value::Number(want) => {
            let want = want.as_f64().expect("a number of JSON is a number");
            match ours.and_then(Value::as_f64) {
                Some(got) => {
                    *compared += 1;
                    let close = (got - want).abs() <= precision.tolerance(want);
                    if !close {
                        differences.push(format!("{at}: {got}, official code gives {want}"));
                    }
                }
                None => differences.push(format!("{at}: {}, official code gives {want}", ours.unwrap_or(&Value::Null))),
            }
        }
        leaf => {
            if ours != Some(leaf) {
                differences.push(format!("{at}: {}, official code gives {leaf}", ours.unwrap_or(&Value::Null)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_expected_must_be_given_and_equal() {
        let expected = json!({"a": [1.0, [2.0, true]], "b": "NaN"});
        let all = |_: &str| false;
        let against = |ours: Value| compare(&expected, &ours, Precision::F32, &all).1;
        assert_eq!(against(expected.clone()), Vec::<String>::new());
        assert_eq!(against(json!({"a": [1.00001, [2.0, true]], "b": "NaN", "c": 9})), Vec::<String>::new());
        assert_eq!(against(json!({"a": [1.0001, [2.0, true]], "b": "NaN"})), ["/a/0: 1.0001, official code gives 1"]);
        assert_eq!(against(json!({"a": [1.0, [2.0]], "b": "NaN"})), ["/a/1/1: null, official code gives true"]);
        assert_eq!(against(json!({"a": [1.0, [2.0, true]]})), ["/b: null, official code gives \"NaN\""]);
        assert_eq!(against(json!({"a": [1.0, [2.0, true], 3.0], "b": "NaN"})), ["/a: 3 given, 2 expected"]);
        assert_eq!(numbers(&expected), ["/a/0", "/a/1/0"]);
        let apart = |at: &str| at.starts_with("/a/1");
        let (compared, differences) = compare(&expected, &json!({"a": [1.0], "b": "NaN"}), Precision::F64, &apart);
        assert_eq!((compared, differences), (1, vec![]));
    }
}
