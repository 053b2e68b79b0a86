//! Worked numbers of the texts that the methods are taught from.

use ascribe_estimators::{Grpo, Rloo};
use ascribe_math::{
    Deviation, Singleton, Standardise, explained_variance, is_constant, no_spread_probability, returns, standardise,
};
use serde_json::{Value, json};

use crate::Case;
use crate::records::{config, matrix, number, vector};

fn discounted(rewards: &[f64], gamma: f64) -> Vec<f64> {
    let mut out = vec![0.0; rewards.len()];
    returns(rewards, 0.0, gamma, &mut out);
    out
}

fn of_outcomes(mut outcomes: Vec<f64>, std: bool) -> Vec<f64> {
    config::<Grpo>(json!({ "std": std, "epsilon": 1e-6 })).advantages(&mut outcomes);
    outcomes
}

/// The table of group baselines, difficulty bias, whitening, λ powers and explained variance.
pub fn group_book(case: Case<'_>) -> Value {
    if let Some(rewards) = case.inputs.get("rewards") {
        return baselines(&vector(rewards), number(case.params, "group_size") as usize);
    }
    if let Some(successes) = case.inputs.get("successes_per_group") {
        return batch_against_group(&vector(successes), number(case.params, "group_size"));
    }
    if let Some(p) = case.inputs.get("p") {
        return difficulty_bias(&vector(p), number(case.params, "G") as usize);
    }
    if let Some(lambdas) = case.inputs.get("lam") {
        let lengths = vector(&case.inputs["L"]);
        let weights = vector(lambdas).into_iter().map(|l| lengths.iter().map(|n| l.powf(*n)).collect::<Vec<_>>());
        return json!({ "weights": weights.collect::<Vec<_>>(), "0.95^50": 0.95f64.powi(50) });
    }
    let [predicted, target, mask] = ["pred", "target", "mask"].map(|key| matrix(&case.inputs[key]));
    let kept = |x: &[Vec<f64>]| -> Vec<f64> {
        x.iter().zip(&mask).flat_map(|(x, m)| x.iter().zip(m).filter(|(_, m)| **m == 1.0).map(|(x, _)| *x)).collect()
    };
    json!({ "value": explained_variance(&kept(&predicted), &kept(&target)) })
}

fn baselines(rewards: &[f64], n: usize) -> Value {
    let groups: Vec<&[f64]> = rewards.chunks(n).collect();
    let rloo: Rloo = config(json!({}));
    let by = |of: &dyn Fn(Vec<f64>) -> Vec<f64>| -> Vec<f64> { groups.iter().flat_map(|g| of(g.to_vec())).collect() };
    let leave_one_out = |mut group: Vec<f64>| {
        rloo.advantages(&mut group);
        group
    };
    let degenerate = groups.iter().filter(|g| is_constant(g)).count();
    json!({
        "group_mean": by(&|group| of_outcomes(group, false)),
        "mean_std": by(&|group| of_outcomes(group, true)),
        "rloo": by(&leave_one_out),
        "zero_variance_fraction": degenerate as f64 / groups.len() as f64,
    })
}

/// A failure where all fail, and a success where more succeed than on average: standardised over the batch, and centred
/// on its group.
fn batch_against_group(successes: &[f64], n: f64) -> Value {
    let group = |k: &f64| (0..n as usize).map(|i| f64::from(u8::from((i as f64) < *k))).collect::<Vec<f64>>();
    let groups: Vec<Vec<f64>> = successes.iter().map(group).collect();
    let all: Vec<f64> = groups.concat();
    let mut batch = all.clone();
    standardise(&mut batch, Standardise { scale: Some((Deviation::Sample, 0.0)), singleton: Singleton::Zero });
    let centred: Vec<f64> = groups.iter().flat_map(|g| of_outcomes(g.clone(), false)).collect();
    let degenerate = groups.iter().filter(|g| is_constant(g)).count() as f64;
    let successes_of = |i: usize| successes[i / n as usize];
    let rate = all.iter().sum::<f64>() / all.len() as f64;
    let hard = (0..all.len()).find(|i| successes_of(*i) == 0.0).expect("a group that fails");
    let easy: Vec<usize> = (0..all.len()).filter(|i| all[*i] == 1.0 && successes_of(*i) / n > rate).collect();
    let mean = |x: &[f64]| easy.iter().map(|i| x[*i]).sum::<f64>() / easy.len() as f64;
    json!({
        "zero_variance_fraction": degenerate / groups.len() as f64,
        "all_fail": successes.iter().filter(|k| **k == 0.0).count(),
        "all_pass": successes.iter().filter(|k| **k == n).count(),
        "zero_adv_episodes": centred.iter().filter(|a| **a == 0.0).count() as f64 / all.len() as f64,
        "fail_hard_batch": batch[hard],
        "fail_hard_group": centred[hard],
        "succ_easy_batch": mean(&batch),
        "succ_easy_group": mean(&centred),
    })
}

/// Expected sum of |A| over a group of `n` at success rate p: dividing by the deviation favours the easy and the hard.
fn difficulty_bias(rates: &[f64], n: usize) -> Value {
    let choose = |k: usize| (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product::<f64>();
    let rows = rates.iter().map(|p| {
        let chance = |k: usize| choose(k) * p.powi(k as i32) * (1.0 - p).powi((n - k) as i32);
        let size = |k: usize, std: bool| {
            let outcomes = (0..n).map(|i| f64::from(u8::from(i < k))).collect();
            of_outcomes(outcomes, std).iter().map(|a| a.abs()).sum::<f64>()
        };
        let expected = |std: bool| (0..=n).map(|k| chance(k) * size(k, std)).sum::<f64>();
        let (mean_only, mean_std) = (expected(false), expected(true));
        json!({
            "p": p,
            "p_zero_var": no_spread_probability(*p, n),
            "mean_only": mean_only,
            "mean_std": mean_std,
            "ratio": mean_std / mean_only,
        })
    });
    json!({ "rows": rows.collect::<Vec<_>>() })
}

/// The discount ladder, outcome and process rewards, and small examples of the methods.
pub fn seed004(case: Case<'_>) -> Value {
    if let Some(rewards) = case.inputs.get("turn_rewards") {
        return json!({ "returns": discounted(&vector(rewards), number(case.params, "gamma")) });
    }
    if let Some(of_one_state) = case.inputs.get("returns") {
        let of_one_state = vector(of_one_state);
        let mean = of_one_state.iter().sum::<f64>() / of_one_state.len() as f64;
        return json!({
            "mean": mean,
            "advantages": of_outcomes(of_one_state.clone(), false),
            "advantages_std_ddof1": of_outcomes(of_one_state, true),
        });
    }
    if let Some(progress) = case.inputs.get("progress") {
        return json!({ "sum": vector(progress).iter().sum::<f64>() });
    }
    if case.params.get("K").is_some() {
        return hgpo_weights(number(case.params, "alpha"), number(case.params, "K") as usize);
    }
    let gamma = number(case.params, "gamma");
    // Rewards of the text: the outcome on the last turn; or 1 and −0.5 for the answer and 0.3, −0.3 for a tool call.
    let outcome = |success: f64, turns: usize| discounted(&[vec![0.0; turns - 1], vec![success]].concat(), gamma);
    let process = |ok: &[f64]| {
        let (answer, tools) = ok.split_last().expect("an answer");
        let of_tools = tools.iter().map(|ok| if *ok == 1.0 { 0.3 } else { -0.3 });
        discounted(&of_tools.chain([if *answer == 1.0 { 1.0 } else { -0.5 }]).collect::<Vec<_>>(), gamma)
    };
    let (good, bad) = (vector(&case.inputs["good_success"]), vector(&case.inputs["bad_success"]));
    json!({
        "orm_good": outcome(1.0, good.len()),
        "orm_bad": outcome(0.0, bad.len()),
        "orm_negative_bad": outcome(-1.0, bad.len()),
        "prm_good": process(&good),
        "prm_bad": process(&bad),
    })
}

/// Weights of levels 0..=K as the paper has them, and as its code has them where every level counts.
fn hgpo_weights(alpha: f64, levels: usize) -> Value {
    let share = |weights: Vec<f64>| {
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|w| w / total).collect::<Vec<_>>()
    };
    json!({
        "paper_w": share((0..=levels).map(|k| ((k + 1) as f64).powf(alpha)).collect()),
        "official_code_w_all_levels_valid": share((1..=levels + 1).map(|k| ((k + 1) as f64).powf(alpha)).collect()),
    })
}
