//! Returns, TD errors and GAE over rows with masks: time advances on policy tokens.

use ascribe_core::Scope;
use ascribe_core::{AdvantageEstimator, Now};
use ascribe_estimators::{Gae, NStep, ReturnToGo, Td};
use ascribe_math::{gae, n_step, returns, whiten};
use serde_json::{Value, json};

use crate::Case;
use crate::records::{add_signal, batch, config, group, matrix, number, on_mask, per_token, turn, vector};

/// The places where a mask is 1.
fn at(mask: &[f64]) -> Vec<usize> {
    (0..mask.len()).filter(|i| mask[*i] == 1.0).collect()
}
fn pick(x: &[f64], at: &[usize]) -> Vec<f64> {
    at.iter().map(|i| x[*i]).collect()
}

/// Holds the plugin on records to the function on slices: each policy token is a turn of its own.
fn on_records(case: Case<'_>, plugin: &dyn AdvantageEstimator, rewards: &[f64], values: Option<&[f64]>, want: &[f64]) {
    if rewards.is_empty() {
        return;
    }
    let turns = rewards.iter().enumerate().map(|(t, r)| turn(t.checked_sub(1), 1, *r)).collect();
    let mut batch = batch(vec![group(turns, vec![rewards.len() - 1])]);
    if let Some(values) = values {
        // The value after the true end is never read.
        let column = values.iter().map(|v| *v as f32).chain([1e9]).collect();
        add_signal(&mut batch, "value", Scope::State, column);
    }
    let credit = plugin.estimate(batch.group(0), &Now::default()).expect("pure");
    for (got, want) in per_token(&batch, 0, &credit).into_iter().zip(want) {
        assert!((got - want).abs() <= 2e-5 * (1.0 + want.abs()), "{}: on records {got}, on slices {want}", case.name);
    }
}

/// Rewards discounted backwards.
pub fn returns_to_go(case: Case<'_>) -> Value {
    let gamma = number(case.params, "gamma");
    let plugin: ReturnToGo = config(json!({ "gamma": gamma }));
    let rows = matrix(&case.inputs["rewards"]).into_iter().zip(matrix(&case.inputs["mask"])).map(|(rewards, mask)| {
        let rewards = pick(&rewards, &at(&mask));
        let mut out = vec![0.0; rewards.len()];
        returns(&rewards, 0.0, gamma, &mut out);
        on_records(case, &plugin, &rewards, None, &out);
        on_mask(&mask, out)
    });
    json!({ "returns": rows.collect::<Vec<_>>() })
}

/// The outcome on the last policy token.
pub fn outcome_rewards(case: Case<'_>) -> Value {
    let rows = vector(&case.inputs["rewards"]).into_iter().zip(matrix(&case.inputs["mask"])).map(|(reward, mask)| {
        let sampled = at(&mask).len();
        if sampled == 0 {
            return vec![0.0; mask.len()];
        }
        let batch = batch(vec![group(vec![turn(None, sampled, reward)], vec![0])]);
        on_mask(&mask, batch.group(0).token_rewards().into_iter().map(f64::from))
    });
    json!({ "out": rows.collect::<Vec<_>>() })
}

/// GAE over the policy tokens of one row.
fn gae_row(case: Case<'_>, rewards: &[f64], values: &[f64], mask: &[f64]) -> Vec<f64> {
    let (gamma, lambda) = (number(case.params, "gamma"), number(case.params, "lam"));
    let at = at(mask);
    let (rewards, values) = (pick(rewards, &at), pick(values, &at));
    let mut out = vec![0.0; at.len()];
    gae(&rewards, &values, 0.0, gamma, lambda, &mut out);
    let plugin: Gae = config(json!({ "gamma": gamma, "lambda": lambda }));
    on_records(case, &plugin, &rewards, Some(&values), &out);
    out
}

/// GAE over tokens, 0 where the mask is 0.
pub fn gae_token(case: Case<'_>) -> Value {
    let [rewards, values, masks] = ["rewards", "values", "mask"].map(|key| matrix(&case.inputs[key]));
    let mut advantages = Vec::new();
    let mut with_values = Vec::new();
    for ((rewards, values), mask) in rewards.iter().zip(&values).zip(&masks) {
        let row = gae_row(case, rewards, values, mask);
        with_values.push(on_mask(mask, row.iter().zip(pick(values, &at(mask))).map(|(a, v)| a + v)));
        advantages.push(on_mask(mask, row));
    }
    // One case shows what comes out if the mask is forgotten: every position counts, some are shown.
    if let Some(shown) = case.inputs.get("display_mask") {
        let shown = advantages.iter().zip(matrix(shown)).map(|(a, m)| a.iter().zip(m).map(|(a, m)| a * m).collect::<Vec<_>>());
        return json!({ "advantages_times_display_mask": shown.collect::<Vec<_>>() });
    }
    json!({ "advantages": advantages, "returns": with_values })
}

/// GAE over calls. The book finds a call's first token where its mask rises from 0 to 1, so that a call that follows
/// another without a gap has no slot, and one of two spans has its values summed and its advantage doubled; its slots are
/// laid out here, the arithmetic on them is ours.
pub fn gae_turn(case: Case<'_>) -> Value {
    let (gamma, lambda) = (number(case.params, "gamma"), number(case.params, "lam"));
    let [rewards, values, masks, calls] = ["rewards", "values", "mask", "turn_ids"].map(|key| matrix(&case.inputs[key]));
    let rows = (0..masks.len()).map(|row| {
        let mask = &masks[row];
        let call: Vec<usize> = calls[row].iter().map(|c| c.max(0.0) as usize).collect();
        let n = call.iter().max().map_or(0, |c| c + 1);
        let (mut reward, mut value, mut first) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        for i in 0..mask.len() {
            reward[call[i]] += rewards[row][i] * mask[i];
            if mask[i] == 1.0 && (i == 0 || mask[i - 1] == 0.0) {
                value[call[i]] += values[row][i];
                first[call[i]] += 1.0;
            }
        }
        let slots: Vec<usize> = (0..n).filter(|c| first[*c] > 0.0).collect();
        let mut on_slots = vec![0.0; slots.len()];
        gae(&pick(&reward, &slots), &pick(&value, &slots), 0.0, gamma, lambda, &mut on_slots);
        let mut advantage = vec![0.0; n];
        slots.iter().zip(on_slots).for_each(|(slot, a)| advantage[*slot] = a * first[*slot]);
        call.iter().zip(mask).map(|(c, m)| advantage[*c] * m).collect::<Vec<_>>()
    });
    json!({ "advantages": rows.collect::<Vec<_>>() })
}

/// verl `compute_gae_advantage_return`: where the mask is 0 it carries the next policy token's advantage, and whitens that
/// too.
pub fn gae_verl(case: Case<'_>) -> Value {
    let [rewards, values, masks] = ["token_level_rewards", "values", "response_mask"].map(|key| matrix(&case.inputs[key]));
    let mut raw = Vec::new();
    let mut kept = Vec::new();
    for ((rewards, values), mask) in rewards.iter().zip(&values).zip(&masks) {
        let row = gae_row(case, rewards, values, mask);
        kept.extend(row.iter().copied());
        raw.push(carried(mask, &row));
    }
    let mut rest = kept.clone();
    let (mean, variance) = whiten(&mut rest, 1e-8);
    let scale = 1.0 / (variance + 1e-8).sqrt();
    let mut rest = rest.into_iter();
    let whitened = raw.iter().zip(&masks).map(|(row, mask)| {
        let on = |(a, m): (&f64, &f64)| if *m == 1.0 { rest.next().expect("one per policy token") } else { (a - mean) * scale };
        row.iter().zip(mask).map(on).collect::<Vec<_>>()
    });
    let whitened: Vec<_> = whitened.collect();
    let returns: Vec<Vec<f64>> = raw.iter().zip(&values).map(|(a, v)| a.iter().zip(v).map(|(a, v)| a + v).collect()).collect();
    json!({ "advantages_raw": raw, "advantages": whitened, "returns": returns })
}

/// Numbers of the policy tokens; elsewhere the next policy token's, 0 after the last.
fn carried(mask: &[f64], numbers: &[f64]) -> Vec<f64> {
    let mut left = numbers.iter().rev();
    let mut next = 0.0;
    let mut out: Vec<f64> = mask
        .iter()
        .rev()
        .map(|m| {
            if *m == 1.0 {
                next = *left.next().expect("one per policy token");
            }
            next
        })
        .collect();
    out.reverse();
    out
}

/// n-step returns and TD errors.
pub fn nstep_td(case: Case<'_>) -> Value {
    let (gamma, n) = (number(case.params, "gamma"), number(case.params, "n") as usize);
    let (td, n_step_plugin): (Td, NStep) = (config(json!({ "gamma": gamma })), config(json!({ "gamma": gamma, "n": n })));
    let [rewards, values, masks] = ["rewards", "values", "mask"].map(|key| matrix(&case.inputs[key]));
    let (mut advantages, mut with_values, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for ((rewards, values), mask) in rewards.iter().zip(&values).zip(&masks) {
        let at = at(mask);
        let (rewards, values) = (pick(rewards, &at), pick(values, &at));
        let steps = |n: usize, plugin: &dyn AdvantageEstimator| {
            let mut out = vec![0.0; at.len()];
            n_step(&rewards, &values, 0.0, gamma, n, &mut out);
            on_records(case, plugin, &rewards, Some(&values), &out);
            out
        };
        let row = steps(n, &n_step_plugin);
        with_values.push(on_mask(mask, row.iter().zip(&values).map(|(a, v)| a + v)));
        advantages.push(on_mask(mask, row));
        errors.push(on_mask(mask, steps(1, &td)));
    }
    json!({ "advantages": advantages, "returns": with_values, "td_errors": errors })
}

/// verl `masked_whiten`: without the shift it adds the mean back.
pub fn masked_whiten(case: Case<'_>) -> Value {
    let (values, masks) = (matrix(&case.inputs["values"]), matrix(&case.inputs["mask"]));
    let mut kept: Vec<f64> = values.iter().zip(&masks).flat_map(|(v, m)| pick(v, &at(m))).collect();
    let (mean, var) = whiten(&mut kept, 1e-8);
    let back = if case.params["shift_mean"] == true { 0.0 } else { mean };
    let scale = 1.0 / (var + 1e-8).sqrt();
    let mut kept = kept.into_iter();
    let rows = values.iter().zip(&masks).map(|(values, mask)| {
        let on =
            |(v, m): (&f64, &f64)| back + if *m == 1.0 { kept.next().expect("one per policy token") } else { (v - mean) * scale };
        values.iter().zip(mask).map(on).collect::<Vec<_>>()
    });
    let whitened: Vec<_> = rows.collect();
    json!({ "whitened": whitened, "mean": mean, "var": var })
}
