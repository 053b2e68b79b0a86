//! Methods of verl-agent, as it lays them out: a row is one turn of a trajectory, with a group's and a trajectory's name;
//! rows of a trajectory are in time order, but need not be neighbours.

use std::collections::{BTreeMap, BTreeSet};

use ascribe_core::log::Validity;
use ascribe_core::{AdvantageEstimator, Now};
use ascribe_estimators::{Gigpo, Grpo, Hgpo, Rloo, Steps};
use ascribe_math::{clusters, returns, similar_clusters, similarity};
use serde_json::{Value, json};

use crate::Case;
use crate::records::{batch, config, flag, group, matrix, number, on_mask, per_token, rows_by, texts, turn, vector};

/// The rows of a case.
struct Rows<'a> {
    groups: Vec<(&'a str, Vec<usize>)>,
    anchors: Vec<&'a str>,
    rewards: Vec<f64>,
    valid: Vec<bool>,
    mask: Vec<Vec<f64>>,
    /// The row of the same trajectory before each.
    parents: Vec<Option<usize>>,
    gamma: f64,
    /// Discounted returns.
    returns: Vec<f64>,
    /// The same, as official code keeps them: it discounts in `f32`.
    kept: Vec<f32>,
    /// Outcome of the trajectory, before any penalty.
    scores: Vec<f64>,
    /// What is taken from a row of an action that is not valid.
    penalty: f64,
}

impl<'a> Rows<'a> {
    fn of(case: Case<'a>) -> Self {
        let (inputs, gamma) = (case.inputs, number(case.params, "gamma"));
        let rewards = vector(&inputs["rewards"]);
        let mut parents = vec![None; rewards.len()];
        let (mut discounted, mut kept) = (vec![0.0; rewards.len()], vec![0.0; rewards.len()]);
        for (_, path) in rows_by(&texts(&inputs["traj_uid"])) {
            let own: Vec<f64> = path.iter().map(|row| rewards[*row]).collect();
            let mut out = vec![0.0; path.len()];
            returns(&own, 0.0, gamma, &mut out);
            path.windows(2).for_each(|pair| parents[pair[1]] = Some(pair[0]));
            path.iter().zip(out).for_each(|(row, g)| discounted[*row] = g);
            path.iter().rev().fold(0.0, |future, row| {
                kept[*row] = rewards[*row] as f32 + gamma as f32 * future;
                kept[*row]
            });
        }
        Self {
            groups: rows_by(&texts(&inputs["index"])),
            anchors: texts(&inputs["anchor_obs"]),
            valid: vector(&inputs["is_action_valid"]).iter().map(|valid| *valid == 1.0).collect(),
            mask: matrix(&inputs["response_mask"]),
            scores: matrix(&inputs["token_level_scores"]).iter().map(|row| row.iter().sum()).collect(),
            penalty: case.params.get("invalid_action_penalty_coef").and_then(Value::as_f64).unwrap_or(0.0),
            gamma,
            returns: discounted,
            kept,
            parents,
            rewards,
        }
    }

    fn penalty(&self, row: usize) -> f64 {
        if self.valid[row] { 0.0 } else { self.penalty }
    }

    /// The rows of one group as steps; anchors by `threshold`, or where equal. Returns and scores are the `f32` numbers that
    /// official code begins with, so that what it makes of them can be compared in `f64`.
    fn steps(&self, rows: &[usize], threshold: Option<f64>) -> Steps {
        let place: BTreeMap<usize, u32> = rows.iter().copied().zip(0..).collect();
        let seen: Vec<&str> = rows.iter().map(|row| self.anchors[*row]).collect();
        let less_penalty = |x: f32, row: usize| f64::from(x - self.penalty(row) as f32);
        let scores: Vec<f64> = rows.iter().map(|row| less_penalty(self.scores[*row] as f32, *row)).collect();
        Steps {
            turns: (0..rows.len()).collect(),
            parents: rows.iter().map(|row| self.parents[*row].map(|parent| place[&parent])).collect(),
            anchors: threshold.map_or_else(|| numbered(&seen), |threshold| similar_clusters(&seen, threshold)),
            returns: rows.iter().map(|row| less_penalty(self.kept[*row], *row)).collect(),
            paths: rows.iter().zip(&scores).filter(|(row, _)| self.parents[**row].is_none()).map(|(_, score)| *score).collect(),
            scores,
        }
    }

    /// Records must give the same steps, and the plugin on them the same advantages; groups whose members start differently
    /// are no records.
    fn check(&self, name: &str, rows: &[usize], plugin: &dyn AdvantageEstimator, on_steps: &[f64]) {
        let starts = rows.iter().filter(|row| self.parents[**row].is_none());
        let starts: Vec<&str> = starts.map(|row| self.anchors[*row]).collect();
        if starts.iter().any(|start| *start != starts[0]) {
            return;
        }
        let mut last = BTreeSet::new();
        let mut turns = Vec::new();
        for (place, row) in rows.iter().enumerate() {
            let parent = self.parents[*row].map(|parent| rows.binary_search(&parent).expect("in the same group, before"));
            if let Some(parent) = parent {
                last.remove(&parent);
            }
            last.insert(place);
            let mut turn = turn(parent, 1, self.rewards[*row]);
            turn.validity = if self.valid[*row] { Validity::Valid } else { Validity::Malformed };
            turn.observation = self.anchors[*row].into();
            turn.observation_text = self.anchors[*row].into();
            turns.push(turn);
        }
        let batch = batch(vec![group(turns, last.into_iter().collect())]);
        let equal = |what: &str, got: &[f64], want: &[f64]| {
            assert_eq!(got.len(), want.len(), "{name}: {what}");
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() <= 2e-5 * (1.0 + want.abs()), "{name}: {what} {got} on records, {want} on steps");
            }
        };
        let (got, want) = (Steps::of(batch.group(0), self.gamma, self.penalty), self.steps(rows, None));
        equal("returns", &got.returns, &want.returns);
        equal("scores", &got.scores, &want.scores);
        let anchors = clusters(got.anchors.iter().map(|anchor| u64::from(*anchor)));
        assert_eq!((got.parents, anchors), (want.parents, want.anchors), "{name}");
        let credit = plugin.estimate(batch.group(0), &Now::default()).expect("pure");
        equal("advantages", &per_token(&batch, 0, &credit), on_steps);
    }

    /// One number per row, from those of each group's steps.
    fn per_row<T: Clone + Default>(&self, of_group: impl Fn(&[usize]) -> Vec<T>) -> Vec<T> {
        let mut out = vec![T::default(); self.rewards.len()];
        for (_, rows) in &self.groups {
            of_group(rows).into_iter().zip(rows).for_each(|(x, row)| out[*row] = x);
        }
        out
    }

    fn on_tokens(&self, rows: &[f64]) -> Vec<Vec<f64>> {
        self.mask.iter().zip(rows).map(|(mask, x)| on_mask(mask, std::iter::repeat(*x))).collect()
    }

    /// What all methods here begin with.
    fn penalised(&self) -> Value {
        let scores = self.mask.iter().enumerate().map(|(row, mask)| {
            let last = mask.iter().rposition(|m| *m == 1.0).expect("a row has a token");
            (0..mask.len()).map(|at| if at == last { self.scores[row] - self.penalty(row) } else { 0.0 }).collect::<Vec<_>>()
        });
        let returns: Vec<f64> = (0..).zip(&self.returns).map(|(row, g)| g - self.penalty(row)).collect();
        json!({
            "step_returns": self.returns,
            "step_rewards_after_penalty": returns,
            "token_level_scores_after_penalty": scores.collect::<Vec<_>>(),
        })
    }
}

/// Labels as numbers, in order of first appearance.
fn numbered(labels: &[&str]) -> Vec<u32> {
    let mut out = vec![0; labels.len()];
    for (number, (_, rows)) in (0..).zip(rows_by(labels)) {
        rows.iter().for_each(|row| out[*row] = number);
    }
    out
}

/// Settings that all share.
fn settings(params: &Value) -> Value {
    let std = match params["mode"].as_str() {
        Some("mean_std_norm") => true,
        Some("mean_norm") => false,
        other => panic!("`mode` is {other:?}"),
    };
    json!({
        "gamma": number(params, "gamma"),
        "std": std,
        "epsilon": number(params, "epsilon"),
        "invalid_penalty": params.get("invalid_action_penalty_coef").and_then(Value::as_f64).unwrap_or(0.0),
        "mode": "official",
    })
}

fn over(params: &Value) -> &'static str {
    match params.get("compute_mean_std_cross_steps").and_then(Value::as_bool) {
        Some(false) => "trajectories",
        Some(true) | None => "turns",
    }
}

/// verl-agent `gigpo/core_gigpo.py`, and its comparison of texts.
pub fn gigpo(case: Case<'_>) -> Value {
    if let Some(pairs) = case.inputs.get("pairs") {
        return ratios(pairs);
    }
    let mut settings = settings(case.params);
    settings["step_weight"] = case.params["step_advantage_w"].clone();
    settings["over"] = over(case.params).into();
    let threshold = flag(case.params, "enable_similarity").then(|| number(case.params, "similarity_thresh"));
    settings["similarity"] = threshold.into();
    let gigpo: Gigpo = config(settings);
    let rows = Rows::of(case);
    let of = |number: &dyn Fn(&Steps) -> Vec<f64>| rows.per_row(|group| number(&rows.steps(group, threshold)));
    let advantages = of(&|steps| gigpo.advantages(steps));
    for (_, group) in &rows.groups {
        rows.check(case.name, group, &gigpo, &gigpo.advantages(&rows.steps(group, threshold)));
    }
    // Clusters of different groups are different.
    let mut cluster = vec![String::new(); rows.rewards.len()];
    for (name, group) in &rows.groups {
        let anchors = rows.steps(group, threshold).anchors;
        group.iter().zip(anchors).for_each(|(row, anchor)| cluster[*row] = format!("{name} {anchor}"));
    }
    let cluster: Vec<&str> = cluster.iter().map(String::as_str).collect();
    let mut out = rows.penalised();
    out["step_group"] = json!(numbered(&cluster));
    out["episode_adv_row"] = json!(of(&|steps| gigpo.episode(steps)));
    out["step_adv_row"] = json!(of(&|steps| gigpo.step(steps)));
    out["advantages"] = json!(rows.on_tokens(&advantages));
    out["advantages_row"] = json!(advantages);
    out
}

/// CPython `difflib`.
fn ratios(pairs: &Value) -> Value {
    let pairs = pairs.as_array().expect("a list of pairs").iter().map(texts);
    let ratio: Vec<f64> = pairs.map(|pair| similarity::ratio(pair[0], pair[1])).collect();
    let alike = |threshold: f64| ratio.iter().map(|ratio| *ratio >= threshold).collect::<Vec<_>>();
    json!({ "ratio": ratio, "are_similar_0.95": alike(0.95), "are_similar_0.9": alike(0.9) })
}

fn hierarchy(case: Case<'_>, keep_zeros: bool) -> Value {
    let mut settings = settings(case.params);
    settings["levels"] = case.params["history_length"].clone();
    settings["alpha"] = case.params["length_weight_alpha"].clone();
    settings["base_group"] = case.params["base_group"].clone();
    settings["keep_zeros"] = keep_zeros.into();
    let hgpo: Hgpo = config(settings);
    let rows = Rows::of(case);
    let advantages = rows.per_row(|group| {
        let advantages = hgpo.advantages(&rows.steps(group, None));
        rows.check(case.name, group, &hgpo, &advantages);
        advantages
    });
    let mut out = rows.penalised();
    out["advantages"] = json!(rows.on_tokens(&advantages));
    out["advantages_row"] = json!(advantages);
    out
}

/// verl-agent `recipe/hgpo/core_hgpo.py`.
pub fn hgpo(case: Case<'_>) -> Value {
    hierarchy(case, false)
}

/// A fork of it that keeps levels of advantage 0.
pub fn hgpo_keep_zeros(case: Case<'_>) -> Value {
    hierarchy(case, true)
}

/// verl-agent's `compute_grpo_outcome_advantage` and `compute_rloo_outcome_advantage`: rows carry their trajectory's score.
pub fn grpo_rloo(case: Case<'_>) -> Value {
    let scores: Vec<f64> = matrix(&case.inputs["token_level_rewards"]).iter().map(|row| row.iter().sum()).collect();
    let paths = rows_by(&texts(&case.inputs["traj_uid"]));
    let over = over(case.params);
    let measure = |entries: &[f64]| match case.params["estimator"].as_str() {
        Some("grpo") => {
            let std = flag(case.params, "norm_adv_by_std_in_grpo");
            let epsilon = number(case.params, "epsilon");
            config::<Grpo>(json!({ "std": std, "epsilon": epsilon, "mode": "official", "over": over })).measure(entries)
        }
        Some("rloo") => config::<Rloo>(json!({ "mode": "official", "over": over })).measure(entries),
        other => panic!("no estimator {other:?}"),
    };
    let mut out = vec![0.0; scores.len()];
    for (_, rows) in rows_by(&texts(&case.inputs["index"])) {
        let is_entry = |row: &usize| over == "turns" || paths.iter().any(|(_, path)| path[0] == *row);
        let entries: Vec<f64> = rows.iter().filter(|row| is_entry(row)).map(|row| scores[*row]).collect();
        let measure = measure(&entries);
        rows.iter().for_each(|row| out[*row] = measure.of(scores[*row]));
    }
    json!({ "advantages_row": out })
}
