//! The progress estimator of SPA-RL, its language model replaced by given logits.

use ascribe_core::objective::{Columns, DiffColumn, Objective};
use ascribe_core::{Column, Credit, Now, RowSet, Rows};
use ascribe_objectives::SumMse;
use serde_json::{Value, json};

use super::turn_rewards::ends;
use crate::Case;
use crate::records::{batch, config, group, matrix, turn, vector};

const HEAD: &str = "progress";
/// Stands on tokens at which the head is not read.
const UNREAD: f32 = 1e6;

/// `prm/train_our_progress_model.py`: a linear map of the logits at the last token of each answer, whose sum is the prediction.
pub fn spa_progress_estimator(case: Case<'_>) -> Value {
    let weight = vector(&case.inputs["weight"][0]);
    let bias = vector(&case.inputs["bias"])[0];
    let labels = vector(&case.inputs["labels"]);
    let logits: Vec<Vec<Vec<f64>>> = case.inputs["logits"].as_array().expect("a list").iter().map(matrix).collect();
    let masks: Vec<Vec<f64>> = matrix(&case.inputs["gpt_unmask"])
        .into_iter()
        .map(|row| row.into_iter().map(|label| f64::from(u8::from(label != -100.0))).collect())
        .collect();
    let map = |x: &[f64]| bias + x.iter().zip(&weight).map(|(x, w)| x * w).sum::<f64>();
    let values: Vec<Vec<f64>> =
        masks.iter().zip(&logits).map(|(mask, logits)| ends(mask).into_iter().map(|at| map(&logits[at])).collect()).collect();

    // A path per sample, a turn per answer, as many tokens as it has. A sample without an answer is no row, but counts.
    let (mut turns, mut leaves, mut head, mut targets, mut alone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0.0);
    for ((mask, values), label) in masks.iter().zip(&values).zip(&labels) {
        if values.is_empty() {
            alone += label * label;
            continue;
        }
        let mut from = 0;
        for (i, (at, value)) in ends(mask).into_iter().zip(values).enumerate() {
            let n = (from..=at).filter(|c| mask[*c] == 1.0).count();
            turns.push(turn((i > 0).then(|| turns.len() - 1), n, 0.0));
            head.extend(std::iter::repeat_n(UNREAD, n - 1));
            head.push(*value as f32);
            targets.extend(std::iter::repeat_n(Some(*label as f32), n));
            from = at + 1;
        }
        leaves.push(turns.len() - 1);
    }
    let n_turns = turns.len();
    let batch = batch(vec![group(turns, leaves)]);
    let mut rows = RowSet::from_credit(&batch, &[Credit::per_turn(vec![0.0; n_turns])], None);
    rows.columns.insert(format!("target/{HEAD}"), targets.into_iter().collect::<Column>());
    let picked: Vec<u32> = (0..rows.len() as u32).collect();
    let mut totals = rows.totals(&picked);
    totals.rows = labels.len() as u64;
    let out = Columns::new([(DiffColumn::Head(HEAD.into()), head)]);
    let objective: SumMse = config(json!({ "head": HEAD }));
    let loss = objective.loss(&Rows::new(&rows, &picked), &out, &totals, &Now::default());
    json!({
        "turn_values": values,
        "predictions": values.iter().map(|turns| turns.iter().sum::<f64>()).collect::<Vec<f64>>(),
        "loss": loss + alone / labels.len() as f64,
    })
}
