//! Every golden file, every number in it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ascribe_golden::Case;
use ascribe_golden::compare::{Precision, compare, numbers};
use ascribe_golden::files::{FILES, NOT_ALL_F64, UNMATCHED};
use serde_json::Value;

/// `$ASCRIBE_GOLDEN`, or the copies beside this test.
fn folder() -> PathBuf {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data"));
    std::env::var_os("ASCRIBE_GOLDEN").map_or_else(beside, PathBuf::from)
}

fn cases(file: &str) -> Vec<Value> {
    let path = folder().join(format!("{file}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let golden: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    match golden.get("cases").and_then(Value::as_array) {
        Some(cases) => cases.clone(),
        // A file with inputs of its own is one case.
        None => vec![serde_json::json!({ "name": "all", "expected": golden })],
    }
}

/// A case with what ours gives for it.
struct Read {
    name: String,
    case: Value,
    ours: Value,
    precision: Precision,
    file: &'static str,
}

impl Read {
    /// Official code's own rounding noise, where it divides by a spread that is exactly 0.
    fn is_noise(&self, pointer: &str) -> bool {
        let rows = self.case.get("float_noise_rows").and_then(Value::as_array);
        let row = pointer.split('/').nth(2).and_then(|row| row.parse::<u64>().ok());
        let listed = rows.is_some_and(|rows| rows.iter().any(|r| r.as_u64() == row));
        // Keys that hold advantages; the others carry no division.
        self.case.get("tolerance_abs").is_some() || (listed && pointer.split('/').nth(1).is_some_and(|key| key.contains("adv")))
    }

    fn is_unmatched(&self, pointer: &str) -> bool {
        let case = self.case["name"].as_str().unwrap_or_default();
        UNMATCHED.iter().any(|(file, name, at, _)| *file == self.file && case.starts_with(name) && pointer.starts_with(at))
    }

    fn against(&self, expected: &Value) -> (usize, Vec<String>) {
        compare(expected, &self.ours, self.precision, &|at| self.is_noise(at) || self.is_unmatched(at))
    }

    fn exact_precision(&self) -> Precision {
        if NOT_ALL_F64.iter().any(|(file, _)| *file == self.file) { Precision::F32 } else { Precision::F64 }
    }

    /// What official code gives in `f64`, or an exact reference of it.
    fn exact(&self) -> Option<Value> {
        let mut exact = self.case.get("expected_f64").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        if let Some(row) = self.case.get("reference_exact_row") {
            exact["advantages_row"] = row.clone();
        }
        exact.as_object().is_some_and(|map| !map.is_empty()).then_some(exact)
    }
}

/// Official code raises an error; what ours does there has tests of its own.
fn is_error(case: &Value) -> bool {
    case["expected"].get("error").is_some()
}

fn read(file: &'static str, precision: Precision, reader: ascribe_golden::Reader) -> Vec<Read> {
    cases(file)
        .into_iter()
        .filter(|case| !is_error(case))
        .map(|case| {
            let name = format!("{file}.json, {}", case["name"].as_str().unwrap_or_default());
            let ours = reader(Case { name: &name, params: &case["params"], inputs: &case["inputs"] });
            Read { name, case, ours, precision, file }
        })
        .collect()
}

#[test]
fn golden_numbers_are_equal() {
    let (mut compared, mut total, mut noise) = (0, 0, 0);
    let mut wrong = Vec::new();
    for (file, precision, reader) in FILES {
        let (precision, reader) = (*precision, *reader);
        let (mut here, mut of) = (0, 0);
        for case in read(file, precision, reader) {
            let expected = &case.case["expected"];
            let apart = |at: &str| case.is_noise(at);
            let leaves = numbers(expected);
            let (n, differences) = case.against(expected);
            of += leaves.iter().filter(|at| !apart(at)).count();
            noise += leaves.iter().filter(|at| apart(at)).count();
            here += n;
            wrong.extend(differences.iter().map(|d| format!("{}: {d}", case.name)));
            if let Some(exact) = case.exact() {
                let (_, differences) = compare(&exact, &case.ours, case.exact_precision(), &|at| case.is_unmatched(at));
                wrong.extend(differences.iter().map(|d| format!("{}, in f64: {d}", case.name)));
            }
        }
        let errors = match cases(file).iter().filter(|case| is_error(case)).count() {
            0 => String::new(),
            n => format!("; in {n} cases official code raises an error"),
        };
        println!("{file}: compared {here} of {of}{errors}");
        compared += here;
        total += of;
    }
    for (file, case, at, why) in UNMATCHED {
        println!("not matched: {file}, {case}, {at}: {why}");
    }
    println!("compared {compared} of {total}; {noise} more are the rounding noise of official code, listed in its files");
    let n = wrong.len();
    wrong.truncate(30);
    assert!(wrong.is_empty(), "{n} differences:\n{}", wrong.join("\n"));
    let unmatched_allowed = UNMATCHED.is_empty();
    assert!(!unmatched_allowed || compared == total, "compared {compared} of {total}");
}

#[test]
fn golden_files_are_all_known() {
    let known: BTreeSet<String> = FILES.iter().map(|(file, ..)| format!("{file}.json")).collect();
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .expect("the folder of golden files")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".json"))
        .collect();
    assert_eq!(found.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new(), "golden files that no reader knows");
    assert_eq!(known.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new(), "golden files that are not there");
}

#[test]
fn a_golden_number_that_is_off_is_seen() {
    for (file, precision, reader) in FILES {
        let mut seen = 0;
        for case in read(file, *precision, *reader) {
            let expected = &case.case["expected"];
            let before = case.against(expected).1.len();
            for at in numbers(expected).into_iter().filter(|at| !case.is_noise(at) && !case.is_unmatched(at)) {
                let mut off = expected.clone();
                let leaf = off.pointer_mut(&at).expect("a pointer to a number");
                let x = leaf.as_f64().expect("a number");
                *leaf = (x + 1e-3 * (1.0 + x.abs())).into();
                assert!(case.against(&off).1.len() > before, "{}: {at} off by a thousandth is not seen", case.name);
                seen += 1;
            }
        }
        println!("{file}: {seen} numbers off, {seen} seen");
    }
}
