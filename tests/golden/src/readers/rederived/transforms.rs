//! Transforms of credit, which read a group of turns with entropies, and the ratio of an objective.

use ascribe_core::credit::spread;
use ascribe_core::log::GroupLog;
use ascribe_core::{Batch, Credit, CreditTransform, Now, Seeds};
use ascribe_objectives::sequence_ratio;
use ascribe_transforms::{Aem, Empg, Gtpo};
use serde_json::{Map, Value, json};

use crate::records::{batch, config, group, turn};

/// Keys `aem`, `aem_degenerate`, `empg`, `gtpo`, `gspo_turn_ratio`.
pub fn keys() -> Map<String, Value> {
    let (advantages, entropies): (&[f64], &[&[f64]]) = (&[0.866, -0.866], &[&[0.2, 0.6], &[1.0, 0.4]]);
    [
        ("aem".to_string(), aem(advantages, entropies)),
        ("aem_degenerate".to_string(), aem(&[1.0], &[&[0.30, 0.35]])),
        ("empg".to_string(), empg(advantages, entropies)),
        ("gtpo".to_string(), gtpo(&[1.0, 0.0], &[&[0.5, 1.5], &[0.2, 0.8]])),
        ("gspo_turn_ratio".to_string(), turn_ratios(&[-1.0, -0.5, -0.2, -2.0], &[-1.1, -0.6, -0.2, -1.8], 2)),
    ]
    .into_iter()
    .collect()
}

/// A group of chains whose turns have one token of that entropy each.
fn chains(entropies: &[&[f64]]) -> GroupLog {
    let (mut turns, mut leaves) = (Vec::new(), Vec::new());
    for path in entropies {
        for (t, entropy) in path.iter().enumerate() {
            let mut turn = turn((t > 0).then(|| turns.len() - 1), 1, 0.0);
            turn.action.entropy = Some(vec![*entropy as f32]);
            turns.push(turn);
        }
        leaves.push(turns.len() - 1);
    }
    group(turns, leaves)
}

/// What a transform makes of one advantage per trajectory, in the shape of `entropies`.
fn transformed(transform: &dyn CreditTransform, batch: &Batch, advantages: &[f64], entropies: &[&[f64]]) -> Vec<Vec<f64>> {
    let per_turn = advantages.iter().zip(entropies).flat_map(|(a, path)| std::iter::repeat_n(*a, path.len()));
    let mut credit = vec![Credit::per_turn(per_turn)];
    transform.apply(batch, &mut credit, &Now::default(), Seeds(0));
    let tokens = spread(batch.group(0), &credit[0]).advantage;
    in_shape(entropies, tokens.iter().map(|a| f64::from(a.expect("trained"))))
}

fn in_shape(shape: &[&[f64]], numbers: impl IntoIterator<Item = f64>) -> Vec<Vec<f64>> {
    let mut numbers = numbers.into_iter();
    shape.iter().map(|path| numbers.by_ref().take(path.len()).collect()).collect()
}

fn aem(advantages: &[f64], entropies: &[&[f64]]) -> Value {
    let aem: Aem = config(json!({}));
    let flat = entropies.concat();
    let alpha = aem.factors(&flat).unwrap_or_else(|| vec![1.0; flat.len()]);
    json!({
        "alpha": in_shape(entropies, alpha),
        "adv": transformed(&aem, &batch(vec![chains(entropies)]), advantages, entropies),
    })
}

fn empg(advantages: &[f64], entropies: &[&[f64]]) -> Value {
    let empg: Empg = config(json!({}));
    let (gain, clarity) = empg.gains(&entropies.concat());
    let (gain, clarity) = (in_shape(entropies, gain), in_shape(entropies, clarity));
    let raw: Vec<Vec<f64>> = advantages
        .iter()
        .zip(gain.iter().zip(&clarity))
        .map(|(a, (gain, clarity))| {
            let next = clarity.iter().skip(1).copied().chain([0.0]);
            gain.iter().zip(next).map(|(gain, next)| a * gain + *empg.zeta * next).collect()
        })
        .collect();
    json!({ "raw": raw, "centred": transformed(&empg, &batch(vec![chains(entropies)]), advantages, entropies) })
}

fn gtpo(outcomes: &[f64], entropies: &[&[f64]]) -> Value {
    let gtpo: Gtpo = config(json!({ "normalise": "off" }));
    let mut log = chains(entropies);
    for (leaf, outcome) in log.leaves.iter().zip(outcomes) {
        log.turns[leaf.turn.expect("a chain has turns")].reward = *outcome as f32;
    }
    json!(transformed(&gtpo, &batch(vec![log]), outcomes, entropies))
}

/// Ratios of turns of `n` tokens each.
fn turn_ratios(logprob: &[f32], old: &[f32], n: usize) -> Value {
    json!(logprob.chunks(n).zip(old.chunks(n)).map(|(logprob, old)| sequence_ratio(logprob, old)).collect::<Vec<_>>())
}
