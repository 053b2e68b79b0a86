//! What TRL and OpenRLHF compute inside their trainers.

use ascribe_math::{Deviation, Singleton, Standardise, gae, leave_one_out, moments, returns, standardise};
use serde_json::{Value, json};

use crate::Case;
use crate::records::{flag, matrix, number, vector};

/// A row of rewards per function; `None` where one could not be scored.
fn rewards_per_function(case: Case<'_>) -> Vec<Vec<Option<f64>>> {
    let rows = case.inputs["rewards_per_func"].as_array().expect("rows");
    rows.iter().map(|row| row.as_array().expect("a row").iter().map(Value::as_f64).collect()).collect()
}

/// Applies a function to those members of each consecutive group that have a number; the others get 0.
fn by_group(x: &[Option<f64>], n: usize, mut on: impl FnMut(&mut [f64])) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    for first in (0..x.len()).step_by(n) {
        let scored: Vec<usize> = (first..first + n).filter(|i| x[*i].is_some()).collect();
        let mut numbers: Vec<f64> = scored.iter().filter_map(|i| x[*i]).collect();
        on(&mut numbers);
        scored.iter().zip(numbers).for_each(|(i, number)| out[*i] = number);
    }
    out
}

/// What TRL adds to a standard deviation.
const TRL: Standardise = Standardise { scale: Some((Deviation::Sample, 1e-4)), singleton: Singleton::Zero };
const CENTRE: Standardise = Standardise { scale: None, singleton: Singleton::Zero };

/// The weighted sum of a row's rewards, of those that could be scored; `None` where none could.
fn weighted(row: &[Option<f64>], weights: &[f64]) -> Option<f64> {
    let scored = row.iter().zip(weights).filter_map(|(r, w)| r.map(|r| r * w));
    row.iter().any(Option::is_some).then(|| scored.sum())
}

/// TRL `GRPOTrainer`: `scale_rewards` over the group, the batch or not at all; rewards summed before or after.
pub fn trl_grpo(case: Case<'_>) -> Value {
    let n = number(case.params, "num_generations") as usize;
    let (rows, weights) = (rewards_per_function(case), vector(&case.inputs["reward_weights"]));
    let sums: Vec<Option<f64>> = rows.iter().map(|row| weighted(row, &weights)).collect();
    let scored = |x: Vec<f64>| -> Vec<Option<f64>> { x.iter().zip(&sums).map(|(x, s)| s.map(|_| *x)).collect() };
    let how = |name: &str| case.params[name].as_str().expect("a word");
    let advantages = match (how("multi_objective_aggregation"), how("scale_rewards")) {
        ("sum_then_normalize", "group") => by_group(&sums, n, |x| standardise(x, TRL)),
        ("sum_then_normalize", "none") => by_group(&sums, n, |x| standardise(x, CENTRE)),
        ("sum_then_normalize", "batch") => {
            let over_batch = moments(&sums.iter().flatten().copied().collect::<Vec<f64>>()).deviation(Deviation::Sample) + 1e-4;
            by_group(&sums, n, |x| standardise(x, CENTRE)).into_iter().map(|a| a / over_batch).collect()
        }
        ("normalize_then_sum", "group") => {
            let mut total = vec![0.0; rows.len()];
            for (function, weight) in weights.iter().enumerate() {
                let column: Vec<Option<f64>> = rows.iter().map(|row| row[function]).collect();
                let standard = by_group(&column, n, |x| standardise(x, TRL));
                total.iter_mut().zip(standard).for_each(|(t, a)| *t += weight * a);
            }
            let total = scored(total);
            by_group(&total, total.len(), |x| standardise(x, TRL))
        }
        other => panic!("{}: {other:?} is not known", case.name),
    };
    json!({ "advantages": advantages })
}

/// TRL `RLOOTrainer`: leave-one-out, standardised over the batch if asked.
pub fn trl_rloo(case: Case<'_>) -> Value {
    let n = number(case.params, "num_generations") as usize;
    let (rows, weights) = (rewards_per_function(case), vector(&case.inputs["reward_weights"]));
    let sums: Vec<Option<f64>> = rows.iter().map(|row| weighted(row, &weights)).collect();
    let advantages = by_group(&sums, n, |x| match x {
        [alone] => *alone = 0.0,
        group => leave_one_out(group),
    });
    if !flag(case.params, "normalize_advantages") {
        return json!({ "advantages": advantages });
    }
    // One that alone could be scored in its group has nobody to be compared with: it does not count here either.
    let alone = |i: usize| sums[i / n * n..][..n].iter().flatten().count() < 2;
    let scored: Vec<Option<f64>> =
        advantages.iter().enumerate().map(|(i, a)| sums[i].filter(|_| !alone(i)).map(|_| *a)).collect();
    json!({ "advantages": by_group(&scored, scored.len(), |x| standardise(x, TRL)) })
}

/// OpenRLHF `experience_maker`: outcomes shaped by group, a KL penalty on every token, then returns or GAE over every
/// column with what the mask drops set to 0, then whitening with the population's variance.
pub fn openrlhf(case: Case<'_>) -> Value {
    let n = number(case.params, "n_samples_per_prompt") as usize;
    let estimator = case.params["estimator"].as_str().expect("a word");
    let [kl, masks, values] = ["kl", "action_mask", "values"].map(|key| matrix(&case.inputs[key]));
    let outcomes: Vec<Option<f64>> = vector(&case.inputs["rewards"]).into_iter().map(Some).collect();
    let shaped = match estimator {
        "rloo" => by_group(&outcomes, n, leave_one_out),
        "reinforce_baseline" | "dr_grpo" => by_group(&outcomes, n, |x| standardise(x, CENTRE)),
        "group_norm" => {
            let how = Standardise { scale: Some((Deviation::Sample, 1e-9)), singleton: Singleton::Zero };
            by_group(&outcomes, n, |x| standardise(x, how))
        }
        _ => outcomes.into_iter().flatten().collect(),
    };
    let of_group = !["gae", "reinforce"].contains(&estimator);
    let gamma = if of_group { 1.0 } else { number(case.params, "gamma") };
    let (mut advantages, mut all) = (Vec::new(), Vec::new());
    for (row, mask) in masks.iter().enumerate() {
        let last = mask.iter().rposition(|m| *m == 1.0).unwrap_or(mask.len() - 1);
        let reward = |i: usize| {
            let outcome = if i == last { shaped[row] } else { 0.0 };
            (outcome - number(case.params, "kl_coef") * kl[row][i]) * mask[i]
        };
        let rewards: Vec<f64> = (0..mask.len()).map(reward).collect();
        let mut out = vec![0.0; mask.len()];
        if estimator == "gae" {
            let values: Vec<f64> = values[row].iter().zip(mask).map(|(v, m)| v * m).collect();
            gae(&rewards, &values, 0.0, gamma, number(case.params, "lambd"), &mut out);
            all.push(out.iter().zip(&values).map(|(a, v)| a + v).collect::<Vec<f64>>());
        } else {
            returns(&rewards, 0.0, gamma, &mut out);
            all.push(out.clone());
        }
        advantages.push(out);
    }
    if ["gae", "reinforce", "reinforce_baseline"].contains(&estimator) {
        let kept = advantages.iter().zip(&masks).flat_map(|(row, mask)| row.iter().zip(mask).filter(|(_, m)| **m == 1.0));
        let of_tokens = moments(&kept.map(|(a, _)| *a).collect::<Vec<f64>>());
        let scale =
            if flag(case.params, "no_std_norm") { 1.0 } else { of_tokens.variance(Deviation::Population).max(1e-8).sqrt() };
        advantages.iter_mut().flatten().for_each(|a| *a = (*a - of_tokens.mean) / scale);
    }
    json!({ "advantages": advantages, "returns": all })
}
