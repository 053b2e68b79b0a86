//! Numbers that official code produced, against ours. `tests/golden/*.json` say which code, at which commit.

use std::collections::BTreeMap;
use std::path::Path;

use ascribe_core::batch::NonFinite;
use ascribe_core::credit::spread;
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::signal::{Column, Scope, Signal};
use ascribe_core::{AdvantageEstimator, Batch, Credit, CreditTransform, End, Now, Seeds, Slot};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

// Every plugin crate is linked by the binary's library.
use ascribe as _;

fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let golden: Value = serde_json::from_str(&text).expect("golden files are JSON");
    golden["cases"].as_array().expect("a list of cases").clone()
}
fn matrix(value: &Value) -> Vec<Vec<f64>> {
    let row = |row: &Value| row.as_array().expect("a row").iter().map(|x| x.as_f64().expect("a number")).collect();
    value.as_array().expect("a matrix").iter().map(row).collect()
}
fn plugin<T: ?Sized>(kind: Kind, name: &str, toml: &str) -> Slot<T>
where
    Slot<T>: DeserializeOwned,
{
    assert!(plugins(kind).iter().any(|row| row.name == name));
    let body: toml::Table = toml::from_str(toml).expect("TOML");
    let slot = toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))]);
    Slot::deserialize(toml::Value::Table(slot)).unwrap_or_else(|e| panic!("{name}: {e}"))
}
fn close(got: f64, want: f64, what: &str) {
    assert!((got - want).abs() <= 2e-5 * (1.0 + want.abs()), "{what}: {got}, official code gives {want}");
}

/// A turn of `n` sampled tokens that earned `reward`.
fn turn(parent: Option<usize>, n: usize, reward: f64) -> TurnLog {
    TurnLog {
        parent,
        agent: "actor".into(),
        read: vec![0],
        action: Action::given(vec![1; n]),
        reward: reward as f32,
        ..TurnLog::default()
    }
}
fn group(turns: Vec<TurnLog>, leaves: Vec<usize>) -> GroupLog {
    let end = End::Terminated { success: true };
    let leaves = leaves.into_iter().map(|t| LeafLog { turn: Some(t), end: end.clone(), seed: 0 }).collect();
    GroupLog { task_name: "golden".into(), turns, leaves, ..GroupLog::default() }
}

/// Compares an estimator of outcomes with a file of verl's layout: rows of token rewards, masks, a group per row.
/// `settings` makes the plugin's TOML of a case's parameters. Returns the number of advantages compared.
fn outcomes_equal_verl(file: &str, name: &str, settings: impl Fn(&Value) -> String) -> usize {
    let mut compared = 0;
    for case in cases(file) {
        let of = format!("{file}, {}", case["name"].as_str().expect("a name"));
        // Official code raises an error for some groups; ours says what they are worth, which has tests of its own.
        let Some(expected) = case.get("expected_f64").unwrap_or(&case["expected"]).get("advantages") else { continue };
        let expected = matrix(expected);
        let estimator: Slot<dyn AdvantageEstimator> = plugin(Kind::Estimator, name, &settings(&case["params"]));
        let (rewards, mask) = (matrix(&case["inputs"]["token_level_rewards"]), matrix(&case["inputs"]["response_mask"]));
        let noise = case.get("tolerance_abs").is_some();
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (row, id) in case["inputs"]["index"].as_array().expect("ids").iter().enumerate() {
            groups.entry(id.as_str().expect("an id")).or_default().push(row);
        }
        for rows in groups.values() {
            // verl lets a fully masked row move its group's mean; here a path without sampled tokens is no member.
            if rows.iter().any(|r| mask[*r].iter().all(|m| *m == 0.0)) {
                continue;
            }
            let n_tokens = |r: usize| mask[r].iter().filter(|m| **m == 1.0).count();
            let turns = rows.iter().map(|r| turn(None, n_tokens(*r), rewards[*r].iter().sum())).collect();
            let batch =
                Batch::from_groups(vec![group(turns, (0..rows.len()).collect())], NonFinite::Refuse).expect("well formed");
            let credit = estimator.estimate(batch.group(0), &Now::default()).expect("pure");
            for (i, row) in rows.iter().enumerate() {
                let got = f64::from(credit.turns[i].expect("trained"));
                let want = mask[*row].iter().zip(&expected[*row]).find(|(m, _)| **m == 1.0).expect("a token").1;
                if noise {
                    // Equal rewards: official code divides the rounding noise of its f32 mean by ε, ours is exactly 0.
                    assert_eq!(got, 0.0, "{of}");
                } else {
                    close(got, *want, &of);
                }
                compared += 1;
            }
        }
    }
    println!("{name}: {compared} advantages of {file} compared");
    compared
}

#[test]
fn outcome_estimators_equal_verl() {
    let std = |params: &Value| {
        let epsilon = params["epsilon"].as_f64().expect("a number");
        format!("std = {}\nepsilon = {epsilon:e}\n", params["norm_adv_by_std_in_grpo"].as_bool().expect("a flag"))
    };
    let official = |_: &Value| "mode = \"official\"".to_string();
    assert!(outcomes_equal_verl("grpo_verl.json", "grpo", |params| std(params) + "mode = \"official\"") > 100);
    assert!(outcomes_equal_verl("grpo_passk_verl.json", "grpo-passk", std) > 100);
    assert!(outcomes_equal_verl("rloo_verl.json", "rloo", official) > 100);
    // verl's vectorised form gives a group of one 0.
    assert!(outcomes_equal_verl("rloo_vectorized_verl.json", "rloo", |_| "mode = \"paper\"".into()) > 100);
    assert!(outcomes_equal_verl("opo_verl.json", "opo", official) > 100);
}

/// Compares an estimator with a critic: each policy token is a turn of its own, the state before it has its value.
fn values_equal_the_reference(file: &str, name: &str, wanted: &str, settings: impl Fn(&Value) -> String) -> usize {
    let mut compared = 0;
    for case in cases(file) {
        let of = format!("{file}, {}", case["name"].as_str().expect("a name"));
        // One case shows what comes out if the mask is forgotten.
        let Some(expected) = case["expected"].get(wanted).map(matrix) else { continue };
        let estimator: Slot<dyn AdvantageEstimator> = plugin(Kind::Estimator, name, &settings(&case["params"]));
        let [rewards, values, mask] = ["rewards", "values", "mask"].map(|key| matrix(&case["inputs"][key]));
        for (row, expected) in expected.iter().enumerate() {
            let at: Vec<usize> = (0..mask[row].len()).filter(|i| mask[row][*i] == 1.0).collect();
            if at.is_empty() {
                continue;
            }
            let turns = at.iter().enumerate().map(|(t, i)| turn(t.checked_sub(1), 1, rewards[row][*i])).collect();
            let mut batch = Batch::from_groups(vec![group(turns, vec![at.len() - 1])], NonFinite::Refuse).expect("well formed");
            // The value after the true end is never read.
            let column = at.iter().map(|i| values[row][*i] as f32).chain([1e9]).collect();
            let signal = Signal { scope: Scope::State, provider: "golden".into(), column: Column::full(column) };
            batch.add_signal("value", signal).expect("it fits");
            let credit = estimator.estimate(batch.group(0), &Now::default()).expect("pure");
            for (t, i) in at.iter().enumerate() {
                close(credit.turns[t].expect("trained").into(), expected[*i], &of);
                compared += 1;
            }
        }
    }
    println!("{name}: {compared} advantages of {file} compared");
    compared
}

#[test]
fn estimators_with_a_critic_equal_the_reference() {
    let number = |params: &Value, key: &str| params[key].as_f64().expect("a number");
    let gamma = |params: &Value| format!("gamma = {}", number(params, "gamma"));
    let gae = |params: &Value| format!("{}\nlambda = {}", gamma(params), number(params, "lam"));
    let n_step = |params: &Value| format!("{}\nn = {}", gamma(params), number(params, "n"));
    assert!(values_equal_the_reference("gae_token.json", "gae", "advantages", gae) > 100);
    assert!(values_equal_the_reference("nstep_td.json", "n-step", "advantages", n_step) > 50);
    assert!(values_equal_the_reference("nstep_td.json", "td", "td_errors", gamma) > 50);
}

#[test]
fn return_to_go_equals_the_reference() {
    let mut compared = 0;
    for case in cases("returns_to_go.json") {
        let name = case["name"].as_str().expect("a name");
        let gamma = case["params"]["gamma"].as_f64().expect("a number");
        let estimator: Slot<dyn AdvantageEstimator> = plugin(Kind::Estimator, "return-to-go", &format!("gamma = {gamma}"));
        let (rewards, mask) = (matrix(&case["inputs"]["rewards"]), matrix(&case["inputs"]["mask"]));
        for ((rewards, mask), expected) in rewards.iter().zip(&mask).zip(&matrix(&case["expected"]["returns"])) {
            // Time advances on policy tokens: each is a turn of its own here.
            let at: Vec<usize> = (0..mask.len()).filter(|i| mask[*i] == 1.0).collect();
            if at.is_empty() {
                continue;
            }
            let turns = at.iter().enumerate().map(|(t, i)| turn(t.checked_sub(1), 1, rewards[*i])).collect();
            let batch = Batch::from_groups(vec![group(turns, vec![at.len() - 1])], NonFinite::Refuse).expect("well formed");
            let credit = estimator.estimate(batch.group(0), &Now::default()).expect("pure");
            for (t, i) in at.iter().enumerate() {
                close(credit.turns[t].expect("trained").into(), expected[*i], name);
                compared += 1;
            }
        }
    }
    println!("return-to-go: {compared} returns compared");
    assert!(compared > 100, "{compared}");
}

#[test]
fn whiten_equals_verl() {
    let whiten: Slot<dyn CreditTransform> = plugin(Kind::Transform, "whiten", "");
    let mut compared = 0;
    for case in cases("masked_whiten_verl.json") {
        // Without the shift official code adds the mean back, which no estimator asks for.
        if case["params"]["shift_mean"] != true {
            continue;
        }
        let name = case["name"].as_str().expect("a name");
        let (values, mask) = (matrix(&case["inputs"]["values"]), matrix(&case["inputs"]["mask"]));
        let expected = matrix(&case["expected_f64"]["whitened"]);
        let turns: Vec<TurnLog> = mask.iter().map(|m| turn(None, m.iter().filter(|x| **x == 1.0).count(), 0.0)).collect();
        let leaves = (0..turns.len()).collect();
        let batch = Batch::from_groups(vec![group(turns, leaves)], NonFinite::Refuse).expect("well formed");
        let on_mask = |x: &[Vec<f64>]| -> Vec<f64> {
            x.iter().zip(&mask).flat_map(|(x, m)| x.iter().zip(m).filter(|(_, m)| **m == 1.0).map(|(x, _)| *x)).collect()
        };
        let mut credit = [Credit::per_token(values.len(), on_mask(&values))];
        whiten.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        for (got, want) in spread(batch.group(0), &credit[0]).advantage.iter().zip(on_mask(&expected)) {
            close(got.expect("trained").into(), want, name);
            compared += 1;
        }
    }
    println!("whiten: {compared} advantages compared");
    assert!(compared > 10, "{compared}");
}
