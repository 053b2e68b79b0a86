//! Estimators of outcomes alone, as verl lays them out: rows of token rewards and masks, a group's name per row.

use ascribe_core::log::TurnLog;
use ascribe_core::{AdvantageEstimator, Now, Scope};
use ascribe_estimators::{
    Gpg, Grpo, GrpoPassK, Opo, OptimalTokenBaseline, Path, Place, ReinforcePlusPlus, ReinforcePlusPlusBaseline, Remax, Rloo,
    squared_gradient_norm,
};
use ascribe_math::{returns, whiten};
use serde_json::{Value, json};

use crate::Case;
use crate::records::{add_signal, batch, config, flag, group, matrix, number, on_mask, per_token, rows_by, texts, turn, vector};

/// Advantages per token of a function of a group's outcomes and lengths; rows without sampled tokens take part, as in verl.
///
/// Where every row of a group has sampled tokens, the plugin on records must say the same.
fn verl(case: Case<'_>, plugin: &dyn AdvantageEstimator, advantages: impl Fn(&mut [f64], &[usize])) -> Value {
    let (rewards, mask) = (matrix(&case.inputs["token_level_rewards"]), matrix(&case.inputs["response_mask"]));
    let mut out = vec![Vec::new(); mask.len()];
    for (name, rows) in rows_by(&texts(&case.inputs["index"])) {
        let lengths: Vec<usize> = rows.iter().map(|r| mask[*r].iter().filter(|m| **m == 1.0).count()).collect();
        let mut numbers: Vec<f64> = rows.iter().map(|r| rewards[*r].iter().sum()).collect();
        let turns = rows.iter().zip(&lengths).map(|(r, n)| turn(None, *n, rewards[*r].iter().sum())).collect();
        advantages(&mut numbers, &lengths);
        if !lengths.contains(&0) {
            let batch = batch(vec![group(turns, (0..rows.len()).collect())]);
            let credit = plugin.estimate(batch.group(0), &Now::default()).expect("pure");
            let wanted = numbers.iter().zip(&lengths).flat_map(|(x, n)| std::iter::repeat_n(*x, *n));
            for (got, want) in per_token(&batch, 0, &credit).into_iter().zip(wanted) {
                assert!(
                    (got - want).abs() <= 2e-5 * (1.0 + want.abs()),
                    "{}, {name}: on records {got}, on slices {want}",
                    case.name
                );
            }
        }
        for (row, number) in rows.iter().zip(numbers) {
            out[*row] = on_mask(&mask[*row], std::iter::repeat(number));
        }
    }
    json!({ "advantages": out })
}

fn std(params: &Value) -> Value {
    json!({ "std": flag(params, "norm_adv_by_std_in_grpo"), "epsilon": number(params, "epsilon") })
}

/// verl `compute_grpo_outcome_advantage`.
pub fn grpo(case: Case<'_>) -> Value {
    let mut settings = std(case.params);
    settings["mode"] = "official".into();
    let grpo: Grpo = config(settings);
    verl(case, &grpo, |outcomes, _| grpo.advantages(outcomes))
}

/// verl `compute_grpo_passk_outcome_advantage`.
pub fn grpo_passk(case: Case<'_>) -> Value {
    let passk: GrpoPassK = config(std(case.params));
    verl(case, &passk, |outcomes, _| passk.advantages(outcomes))
}

/// verl `compute_rloo_outcome_advantage`.
pub fn rloo(case: Case<'_>) -> Value {
    let rloo: Rloo = config(json!({ "mode": "official" }));
    verl(case, &rloo, |outcomes, _| rloo.advantages(outcomes))
}

/// verl `compute_rloo_vectorized_outcome_advantage`: a group of one gives 0.
pub fn rloo_vectorized(case: Case<'_>) -> Value {
    let rloo: Rloo = config(json!({ "mode": "paper" }));
    verl(case, &rloo, |outcomes, _| rloo.advantages(outcomes))
}

/// verl `compute_opo_outcome_advantage`.
pub fn opo(case: Case<'_>) -> Value {
    let opo: Opo = config(json!({ "mode": "official" }));
    verl(case, &opo, |outcomes, lengths| opo.advantages(outcomes, lengths))
}

/// verl `compute_grpo_vectorized_outcome_advantage`: as the other form, in `f32`.
pub fn grpo_vectorized(case: Case<'_>) -> Value {
    grpo(case)
}

/// verl `compute_gpg_outcome_advantage`: centred outcomes times rows per row with an outcome.
pub fn gpg(case: Case<'_>) -> Value {
    let gpg: Gpg = config(json!({}));
    let mut out = verl(case, &gpg, |outcomes, _| gpg.0.advantages(outcomes));
    let outcomes: Vec<f64> = matrix(&case.inputs["token_level_rewards"]).iter().map(|r| r.iter().sum()).collect();
    let scale = ascribe_transforms::gpg_scale(&outcomes);
    for x in out["advantages"].as_array_mut().expect("rows").iter_mut().flat_map(|row| row.as_array_mut().expect("a row")) {
        *x = (x.as_f64().expect("a number") * scale).into();
    }
    out
}

/// verl `compute_reinforce_plus_plus_baseline_outcome_advantage`: centred outcomes, whitened over tokens, times the mask.
pub fn reinforce_plus_plus_baseline(case: Case<'_>) -> Value {
    let plugin: ReinforcePlusPlusBaseline = config(json!({}));
    let centred = verl(case, &plugin, |outcomes, _| plugin.0.advantages(outcomes));
    whitened(&matrix(&centred["advantages"]), &matrix(&case.inputs["response_mask"]))
}

fn whitened(rows: &[Vec<f64>], masks: &[Vec<f64>]) -> Value {
    let kept = |(row, mask): (&Vec<f64>, &Vec<f64>)| {
        row.iter().zip(mask).filter(|(_, m)| **m == 1.0).map(|(x, _)| *x).collect::<Vec<_>>()
    };
    let mut kept: Vec<f64> = rows.iter().zip(masks).flat_map(kept).collect();
    whiten(&mut kept, 1e-8);
    let mut kept = kept.into_iter();
    let out: Vec<Vec<f64>> =
        masks.iter().map(|mask| on_mask(mask, kept.by_ref().take(mask.iter().filter(|m| **m == 1.0).count()))).collect();
    json!({ "advantages": out })
}

/// verl `compute_reinforce_plus_plus_outcome_advantage`: returns over sampled tokens, whitened.
pub fn reinforce_plus_plus(case: Case<'_>) -> Value {
    let gamma = number(case.params, "gamma");
    let (rewards, masks) = (matrix(&case.inputs["token_level_rewards"]), matrix(&case.inputs["response_mask"]));
    let plugin: ReinforcePlusPlus = config(json!({ "gamma": gamma }));
    let on_row = |(rewards, mask): (&Vec<f64>, &Vec<f64>)| {
        let kept: Vec<f64> = rewards.iter().zip(mask).filter(|(_, m)| **m == 1.0).map(|(r, _)| *r).collect();
        let mut out = vec![0.0; kept.len()];
        returns(&kept, 0.0, gamma, &mut out);
        let out = on_mask(mask, out);
        on_records(case, &plugin, mask, rewards, None, &out);
        out
    };
    let returns: Vec<Vec<f64>> = rewards.iter().zip(&masks).map(on_row).collect();
    let mut out = whitened(&returns, &masks);
    out["returns"] = json!(returns);
    out
}

/// Half-open ranges in which a mask is 1.
fn runs(mask: &[f64]) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for i in (0..mask.len()).filter(|i| mask[*i] == 1.0) {
        match out.last_mut().filter(|run| run.1 == i) {
            Some(run) => run.1 = i + 1,
            None => out.push((i, i + 1)),
        }
    }
    out
}

/// Runs of sampled tokens as turns that have read something.
fn turns_of(runs: &[(usize, usize)], rewards: &[f64]) -> Vec<TurnLog> {
    let turn = |(t, (from, to)): (usize, &(usize, usize))| {
        let on_tokens = (*from..*to).map(|i| (u32::try_from(i - from).expect("short"), rewards[i] as f32));
        TurnLog { token_rewards: on_tokens.collect(), ..turn(t.checked_sub(1), to - from, 0.0) }
    };
    runs.iter().enumerate().map(turn).collect()
}

/// Holds a plugin on records to numbers on a row; `start` is the value of the start, where it needs one.
fn on_records(case: Case<'_>, plugin: &dyn AdvantageEstimator, mask: &[f64], rewards: &[f64], start: Option<f64>, want: &[f64]) {
    let runs = runs(mask);
    if runs.is_empty() {
        return;
    }
    let mut batch = batch(vec![group(turns_of(&runs, rewards), vec![runs.len() - 1])]);
    if let Some(start) = start {
        let values = std::iter::once(start as f32).chain(std::iter::repeat_n(9.0, runs.len())).collect();
        add_signal(&mut batch, "value", Scope::State, values);
    }
    let credit = plugin.estimate(batch.group(0), &Now::default()).expect("pure");
    let wanted = runs.iter().flat_map(|(from, to)| &want[*from..*to]);
    for (got, want) in per_token(&batch, 0, &credit).into_iter().zip(wanted) {
        assert!((got - want).abs() <= 2e-5 * (1.0 + want.abs()), "{}: on records {got}, on the row {want}", case.name);
    }
}

/// verl `compute_remax_outcome_advantage`: off the mask it carries the return, less the baseline times the mask.
pub fn remax(case: Case<'_>) -> Value {
    let (rewards, masks) = (matrix(&case.inputs["token_level_rewards"]), matrix(&case.inputs["response_mask"]));
    let baselines = vector(&case.inputs["reward_baselines"]);
    let plugin: Remax = config(json!({ "unit": "token" }));
    let (mut advantages, mut all) = (Vec::new(), Vec::new());
    for ((rewards, mask), baseline) in rewards.iter().zip(&masks).zip(baselines) {
        let masked: Vec<f64> = rewards.iter().zip(mask).map(|(r, m)| r * m).collect();
        let mut row = vec![0.0; mask.len()];
        returns(&masked, 0.0, 1.0, &mut row);
        let less: Vec<f64> = row.iter().zip(mask).map(|(g, m)| g - baseline * m).collect();
        on_records(case, &plugin, mask, rewards, Some(baseline), &less);
        advantages.push(less);
        all.push(row);
    }
    json!({ "advantages": advantages, "returns": all })
}

/// verl `compute_optimal_token_baseline_advantage`: places are columns.
pub fn optimal_token_baseline(case: Case<'_>) -> Value {
    token_baseline(case, Place::Sequence)
}

/// verl `compute_multi_turn_optimal_token_baseline_advantage`: places are sampled tokens.
pub fn tir_optimal_token_baseline(case: Case<'_>) -> Value {
    token_baseline(case, Place::Sampled)
}

fn token_baseline(case: Case<'_>, place: Place) -> Value {
    let [rewards, masks, logprobs, squares] =
        ["token_level_rewards", "response_mask", "old_log_probs", "sum_pi_squared"].map(|key| matrix(&case.inputs[key]));
    let importance = (!case.inputs["rollout_is_weights"].is_null()).then(|| matrix(&case.inputs["rollout_is_weights"]));
    let plugin: OptimalTokenBaseline = config(json!({ "mode": "official" }));
    let mut advantages = vec![Vec::new(); masks.len()];
    for (_, rows) in rows_by(&texts(&case.inputs["index"])) {
        let paths: Vec<Path> = rows
            .iter()
            .map(|r| {
                let at: Vec<usize> = (0..masks[*r].len()).filter(|i| masks[*r][*i] == 1.0).collect();
                // Sampled from another policy, a path counts by the square of its importance weight.
                let weight = |i: &usize| {
                    let importance = importance.as_ref().map_or(1.0, |w| w[*r][*i]);
                    squared_gradient_norm(logprobs[*r][*i], squares[*r][*i]) * importance * importance
                };
                Path {
                    rewards: at.iter().map(|i| rewards[*r][*i]).collect(),
                    weights: at.iter().map(weight).collect(),
                    places: if place == Place::Sequence { at } else { (0..at.len()).collect() },
                }
            })
            .collect();
        for (row, numbers) in rows.iter().zip(plugin.advantages(&paths)) {
            advantages[*row] = on_mask(&masks[*row], numbers);
        }
    }
    let all = rewards.iter().zip(&masks).map(|(rewards, mask)| {
        let masked: Vec<f64> = rewards.iter().zip(mask).map(|(r, m)| r * m).collect();
        let mut out = vec![0.0; mask.len()];
        returns(&masked, 0.0, 1.0, &mut out);
        out
    });
    json!({ "advantages": advantages, "returns": all.collect::<Vec<_>>() })
}
