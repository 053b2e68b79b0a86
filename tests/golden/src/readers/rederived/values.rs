//! Advantages from values, on turns and tokens, and a baseline.

use ascribe_core::{AdvantageEstimator, Now, Scope};
use ascribe_estimators::{BilevelGae, Opo};
use ascribe_math::{gae, length_weighted_mean};
use serde_json::{Map, Value, json};

use crate::records::{add_signal, batch, config, group, turn};

/// Keys `step_gae`, `turn_ppo_gae`, `bilevel_gae`, `opo`.
pub fn values() -> Map<String, Value> {
    let over_turns = |gamma: f64, lambda: f64| {
        let mut out = [0.0; 3];
        gae(&[0.0, 0.0, 1.0], &[0.3, 0.4, 0.7], 0.0, gamma, lambda, &mut out);
        out.to_vec()
    };
    let outcomes = [1.0, 0.0, 1.0, 0.0];
    let lengths = [10, 20, 30, 40];
    let mut centred = outcomes;
    config::<Opo>(json!({})).advantages(&mut centred, &lengths);
    let given = json!({
        "step_gae(gamma .99,lam .95)": over_turns(0.99, 0.95),
        "turn_ppo_gae(gamma .99,lam .9)": over_turns(0.99, 0.9),
        "bilevel_gae": bilevel(),
        "opo": { "baseline": length_weighted_mean(&outcomes, &lengths), "adv": centred },
    });
    match given {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Two turns of five tokens that earned 1 each; values 0.1, 0.2, … 1.
fn bilevel() -> Vec<f64> {
    let mut batch = batch(vec![group(vec![turn(None, 5, 1.0), turn(Some(0), 5, 1.0)], vec![1])]);
    add_signal(&mut batch, "value", Scope::State, vec![9.0; 3]);
    add_signal(&mut batch, "token_value", Scope::Token, (1..=10).map(|i| i as f32 / 10.0).collect());
    let plugin: BilevelGae = config(json!({ "gamma": 1.0, "turn_gamma": 0.95, "lambda": 1.0 }));
    let credit = plugin.estimate(batch.group(0), &Now::default()).expect("pure");
    credit.tokens.iter().map(|a| f64::from(a.expect("trained"))).collect()
}
