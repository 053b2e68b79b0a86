//! Estimators of outcomes alone, as verl lays them out: rows of token rewards and masks, a group's name per row.

use ascribe_core::{AdvantageEstimator, Now};
use ascribe_estimators::{Grpo, GrpoPassK, Opo, Rloo};
use serde_json::{Value, json};

use crate::Case;
use crate::records::{batch, config, flag, group, matrix, number, on_mask, per_token, rows_by, texts, turn};

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
