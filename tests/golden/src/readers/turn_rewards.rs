//! Rewards per turn: IGPO and SPA-RL, in the layouts of their authors.

use ascribe_core::log::TurnLog;
use ascribe_core::range::{Count, Finite};
use ascribe_core::schedule::Ramp;
use ascribe_core::{AdvantageEstimator, Column, Now, Schedule, Scope, Signal};
use ascribe_estimators::{Earned, Igpo, SpaRl};
use ascribe_math::{AnswerScale, Deviation, answer_value, centre_columns, leave_one_out, moments, resetting_returns, returns};
use serde_json::{Value, json};

use crate::Case;
use crate::records::{batch, config, flag, group, matrix, number, per_token, rows_by, texts, turn, vector};

/// A token at which something was earned, and what.
type Boundary = (usize, Earned);

/// What a padded row earned, in order of tokens. The outcome lies on the token that the mask's sum points at: the last one
/// of a mask without gaps, another one or none otherwise.
fn boundaries(rewards: &[f64], mask: &[f64]) -> Vec<Boundary> {
    let last = mask.iter().filter(|m| **m == 1.0).count().checked_sub(1);
    let earned = |c: &usize| match rewards[*c] {
        r if Some(*c) == last => Some((*c, Earned::Outcome(r))),
        r if r != 0.0 => Some((*c, Earned::Gain(r))),
        _ => None,
    };
    (0..mask.len()).filter(|c| mask[*c] == 1.0).filter_map(|c| earned(&c)).collect()
}

fn amount(earned: &Earned) -> f64 {
    match earned {
        Earned::Gain(x) | Earned::Outcome(x) => *x,
        Earned::Nothing => 0.0,
    }
}

/// Sums over what a row earned, on the tokens of the mask up to each boundary.
fn on_tokens(boundaries: &[Boundary], mask: &[f64], gamma: f64) -> Vec<f64> {
    let rewards: Vec<f64> = boundaries.iter().map(|(_, earned)| amount(earned)).collect();
    let mut sums = vec![0.0; rewards.len()];
    returns(&rewards, 0.0, gamma, &mut sums);
    let mut out = vec![0.0; mask.len()];
    let mut from = 0;
    for ((at, _), sum) in boundaries.iter().zip(sums) {
        (from..=*at).filter(|c| mask[*c] == 1.0).for_each(|c| out[c] = sum);
        from = at + 1;
    }
    out
}

/// The plugin on records, a turn per boundary, must say the same as `advantages`, where every row of the group is tokens
/// without gaps.
fn check_on_records(case: Case<'_>, igpo: &Igpo, rows: &[Vec<Boundary>], masks: &[&[f64]], advantages: &[&[f64]]) {
    let has_gaps = |mask: &&[f64]| mask[0] != 1.0 || mask.windows(2).any(|w| w[0] < w[1]);
    if masks.iter().any(has_gaps) {
        return;
    }
    let (mut turns, mut leaves, mut gains) = (Vec::new(), Vec::new(), Column::default());
    for boundaries in rows {
        let mut from = 0;
        for (i, (at, earned)) in boundaries.iter().enumerate() {
            let parent = (i > 0).then(|| turns.len() - 1);
            let gain = matches!(earned, Earned::Gain(_)).then(|| amount(earned) as f32);
            let reward = if gain.is_some() { 0.0 } else { amount(earned) };
            // Nothing is read between actions: these rows hold the policy's tokens alone.
            turns.push(TurnLog { read: Vec::new(), ..turn(parent, at + 1 - from, reward) });
            gains.push(gain);
            from = at + 1;
        }
        leaves.push(turns.len() - 1);
    }
    let mut batch = batch(vec![group(turns, leaves)]);
    let signal = Signal { scope: Scope::Turn, provider: "golden".into(), column: gains };
    batch.add_signal("info_gain", signal).unwrap_or_else(|e| panic!("{e}"));
    let credit = igpo.estimate(batch.group(0), &Now::default()).expect("pure");
    let sampled = masks.iter().zip(advantages).flat_map(|(mask, a)| a.iter().zip(*mask).filter(|(_, m)| **m == 1.0));
    for (got, (want, _)) in per_token(&batch, 0, &credit).into_iter().zip(sampled) {
        assert!((got - want).abs() <= 2e-5 * (1.0 + want.abs()), "{}: on records {got}, on slices {want}", case.name);
    }
}

/// IGPO `compute_grpo_outcome_advantage` and `_compute_turn_level_advantage`.
pub fn igpo(case: Case<'_>) -> Value {
    let params = case.params;
    let igpo: Igpo = config(json!({
        "gamma": number(params, "gamma"),
        "norm": params["info_gain_norm_mode"],
        "std": flag(params, "norm_adv_by_std_in_grpo"),
        "epsilon": number(params, "epsilon"),
        "outcome_weight": number(params, "curriculum_f1_weight"),
        "info_gain_weight": number(params, "curriculum_ig_weight"),
    }));
    let (rewards, mask) = (matrix(&case.inputs["token_level_rewards"]), matrix(&case.inputs["response_mask"]));
    let mut out = vec![Vec::new(); mask.len()];
    for (_, rows) in rows_by(&texts(&case.inputs["index"])) {
        let raw: Vec<Vec<Boundary>> = rows.iter().map(|r| boundaries(&rewards[*r], &mask[*r])).collect();
        let mut earned: Vec<Earned> = raw.iter().flatten().map(|(_, earned)| *earned).collect();
        igpo.weigh(&mut earned);
        igpo.normalise(&mut earned);
        let mut earned = earned.into_iter();
        for (row, raw) in rows.iter().zip(&raw) {
            let normalised: Vec<Boundary> = raw.iter().zip(&mut earned).map(|((at, _), earned)| (*at, earned)).collect();
            out[*row] = on_tokens(&normalised, &mask[*row], *igpo.gamma);
        }
        let masks: Vec<&[f64]> = rows.iter().map(|r| &mask[*r][..]).collect();
        let advantages: Vec<&[f64]> = rows.iter().map(|r| &out[*r][..]).collect();
        check_on_records(case, &igpo, &raw, &masks, &advantages);
    }
    json!({ "advantages": out })
}

/// The first release of IGPO: its outcome function, and the discounted one that it never called.
pub fn igpo_first_release(case: Case<'_>) -> Value {
    let (rewards, mask) = (matrix(&case.inputs["token_level_rewards"]), matrix(&case.inputs["response_mask"]));
    let gamma = number(case.params, "gamma");
    let igpo: Igpo = config(json!({ "gamma": 1.0, "norm": "column-mean" }));
    let all: Vec<Vec<f64>> = rewards.iter().zip(&mask).map(|(r, m)| resetting_returns(r, m, gamma)).collect();
    let mut advantages = vec![Vec::new(); all.len()];
    for (_, rows) in rows_by(&texts(&case.inputs["index"])) {
        let mut of_group: Vec<Vec<f64>> = rows.iter().map(|r| all[*r].clone()).collect();
        match case.params["epsilon"].as_f64() {
            None => centre_columns(&mut of_group),
            Some(epsilon) => {
                // Compared with the group's returns in the first column; a group of one has a deviation of 1.
                let first: Vec<f64> = of_group.iter().map(|row| row[0]).collect();
                let start = moments(&first);
                let deviation = if first.len() == 1 { 1.0 } else { start.deviation(Deviation::Sample) };
                of_group.iter_mut().flatten().for_each(|g| *g = (*g - start.mean) / (deviation + epsilon));
            }
        }
        for (row, numbers) in rows.iter().zip(of_group) {
            advantages[*row] = numbers.iter().zip(&mask[*row]).map(|(a, m)| a * m).collect();
        }
        if case.params.get("epsilon").is_none() {
            let raw: Vec<Vec<Boundary>> = rows.iter().map(|r| boundaries(&rewards[*r], &mask[*r])).collect();
            let masks: Vec<&[f64]> = rows.iter().map(|r| &mask[*r][..]).collect();
            let wanted: Vec<&[f64]> = rows.iter().map(|r| &advantages[*r][..]).collect();
            check_on_records(case, &igpo, &raw, &masks, &wanted);
        }
    }
    json!({ "advantages": advantages, "returns": all })
}

/// SPA-RL `prm/rl_data_org.py`: rewards of the rollouts that its filters keep.
pub fn spa_rl_data(case: Case<'_>) -> Value {
    let spa: SpaRl =
        config(json!({ "alpha": 1.0, "beta": number(case.params, "grounding_ok"), "gamma": 1.0, "mode": "official" }));
    assert_eq!(number(case.params, "grounding_bad"), 0.0);
    let rollouts = case.inputs["annotations"].as_array().expect("a list");
    let ids: Vec<&str> = rollouts.iter().map(|r| r["id"].as_str().expect("a text")).collect();
    let mut outcome = vec![0.0; rollouts.len()];
    for (_, rows) in rows_by(&ids) {
        let mut numbers: Vec<f64> = rows.iter().map(|r| number(&rollouts[*r], "agent_final_reward")).collect();
        leave_one_out(&mut numbers);
        rows.iter().zip(numbers).for_each(|(r, x)| outcome[*r] = x);
    }
    let rewards: Vec<Vec<f64>> = rollouts
        .iter()
        .zip(outcome)
        .filter_map(|(rollout, outcome)| {
            let said = |who: &str| -> Vec<&str> {
                let all = rollout["conversations"].as_array().expect("a list").iter();
                all.filter(|c| c["from"] == who).map(|c| c["value"].as_str().expect("a text")).collect()
            };
            let (heard, n_turns) = (said("human"), said("gpt").len());
            // The script drops rollouts that do not fit their annotation and long ones; outcomes were compared before.
            if n_turns != vector(&rollout["turn_values"]).len() || n_turns >= 35 {
                return None;
            }
            let grounded = |t: usize| heard.get(t + 1).is_none_or(|next| !next.contains("Nothing happens"));
            Some((0..n_turns).map(|t| spa.fused(outcome, f64::from(u8::from(grounded(t))))).collect())
        })
        .collect();
    json!({ "n_kept": rewards.len(), "reward": rewards })
}

/// SPA-RL `ppo/step_ppotrainer.py` and what TRL 0.10.1 makes of its rewards: every column is a step, masked ones are worth 0.
pub fn spa_rl_ppo(case: Case<'_>) -> Value {
    let read = |key: &str| matrix(&case.inputs[key]);
    let (scores, logprob, reference, mask, values) =
        (read("scores"), read("logprobs"), read("ref_logprobs"), read("mask"), read("values"));
    let (gamma, lambda) = (number(case.params, "gamma"), number(case.params, "lam"));
    let product = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a * b).collect() };
    let kl: Vec<Vec<f64>> = logprob.iter().zip(&reference).map(|(p, q)| p.iter().zip(q).map(|(p, q)| p - q).collect()).collect();
    let non_score: Vec<Vec<f64>> =
        kl.iter().map(|row| row.iter().map(|kl| -number(case.params, "kl_coef") * kl).collect()).collect();
    let mut rewards = non_score.clone();
    for (row, scores) in scores.iter().enumerate() {
        let steps = ends(&mask[row]);
        for (at, reward) in steps.iter().zip(SpaRl::step_rewards(scores, steps.len())) {
            rewards[row][*at] += reward;
        }
    }
    let masked: Vec<Vec<f64>> = values.iter().zip(&mask).map(|(v, m)| product(v, m)).collect();
    let advantages: Vec<Vec<f64>> = (0..mask.len())
        .map(|row| {
            let mut advantage = vec![0.0; mask[row].len()];
            ascribe_math::gae(&product(&rewards[row], &mask[row]), &masked[row], 0.0, gamma, lambda, &mut advantage);
            advantage
        })
        .collect();
    let returns: Vec<Vec<f64>> =
        advantages.iter().zip(&masked).map(|(a, v)| a.iter().zip(v).map(|(a, v)| a + v).collect()).collect();
    let sampled: Vec<f64> =
        advantages.iter().flatten().zip(mask.iter().flatten()).filter(|(_, m)| **m == 1.0).map(|(a, _)| *a).collect();
    let all = moments(&sampled);
    let divisor = (all.variance(Deviation::Sample) + 1e-8).sqrt();
    let whitened: Vec<Vec<f64>> = advantages.iter().map(|row| row.iter().map(|a| (a - all.mean) / divisor).collect()).collect();
    json!({
        "kl": kl,
        "non_score_reward": non_score,
        "rewards": rewards,
        "values_masked": masked,
        "advantages": whitened,
        "returns": returns,
    })
}

/// Last columns of the runs of the mask.
pub fn ends(mask: &[f64]) -> Vec<usize> {
    (0..mask.len()).filter(|c| mask[*c] == 1.0 && mask.get(c + 1) != Some(&1.0)).collect()
}

/// Values of the states that the policy is asked in, and their differences, as the critic `info-gain` takes them; and the
/// curriculum's weights, which are schedules of the estimator `igpo`.
pub fn igpo_info_gain(case: Case<'_>) -> Value {
    if case.params.get("f1_init").is_some() {
        let ramp = |from: &str, to: &str| Ramp {
            from: Finite::try_from(number(case.params, from)).expect("finite"),
            to: Finite::try_from(number(case.params, to)).expect("finite"),
            updates: Count(number(case.inputs, "total_steps") as u64),
            after: Count(0),
        };
        let (outcome, gain) = (ramp("f1_init", "f1_final"), ramp("ig_init", "ig_final"));
        let at = |schedule: &Ramp| -> Vec<f64> {
            let steps = vector(&case.inputs["global_step"]);
            steps.iter().map(|s| schedule.at(&Now { phase_update: *s as u32, ..Now::default() }, &mut Vec::new())).collect()
        };
        return json!({ "f1_weight": at(&outcome), "ig_weight": at(&gain) });
    }
    let scale = match case.params["info_gain_type"].as_str().expect("a difference") {
        "prob_diff" => AnswerScale::Probability,
        "log_prob_diff" => AnswerScale::LogProbability,
        other => panic!("difference `{other}`"),
    };
    let states = matrix(&case.inputs["answer_token_logprobs"]);
    let values: Vec<f64> = states.iter().map(|logprobs| answer_value(logprobs, scale)).collect();
    let gains: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    json!({ "values": values, "info_gain": gains })
}
