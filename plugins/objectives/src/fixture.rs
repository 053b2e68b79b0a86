//! Row sets for tests, and the finite-difference check that every objective has to pass.

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::objective::{Aggregation, Columns, DiffColumn};
use ascribe_core::rows::column;
use ascribe_core::{Batch, Credit, Draw, End, Now, Objective, RowSet, Rows, Seeds};

pub(crate) const AGGREGATIONS: [Aggregation; 4] =
    [Aggregation::TokenMean, Aggregation::SeqMeanTokenSum, Aggregation::SeqMeanTokenMean, Aggregation::SeqMeanTokenSumNorm];

/// Rows of tokens (log-probability, old log-probability, advantage); two turns per row where it has more than one token.
fn set(rows: &[&[(f32, f32, f32)]], weight: impl Fn(usize) -> f32) -> (RowSet, Vec<f32>) {
    let mut log = GroupLog { task_name: "task".into(), ..GroupLog::default() };
    let mut credit = Credit::default();
    for row in rows {
        let cut = row.len().div_ceil(2);
        for (t, part) in [&row[..cut], &row[cut..]].into_iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            let parent = (t > 0).then(|| log.turns.len() - 1);
            let action = Action { logprob: Some(part.iter().map(|x| x.1).collect()), ..Action::given(vec![0; part.len()]) };
            credit.weight.push(weight(credit.weight.len()));
            credit.turns.push(Some(0.0));
            credit.tokens.extend(part.iter().map(|x| Some(x.2)));
            log.turns.push(TurnLog { parent, agent: "actor".into(), read: vec![1], action, ..TurnLog::default() });
        }
        log.leaves.push(LeafLog { turn: Some(log.turns.len() - 1), end: End::Terminated { success: true }, seed: 0 });
    }
    let batch = Batch::from_groups(vec![log], NonFinite::Refuse).unwrap();
    let mut set = RowSet::from_credit(&batch, &[credit], None);
    let old = set.columns[column::BEHAVIOR_LOGPROB].clone();
    set.columns.insert(column::OLD_LOGPROB.into(), old);
    (set, rows.iter().flat_map(|r| r.iter().map(|x| x.0)).collect())
}

fn columns(objective: &dyn Objective, logprob: &[f32]) -> Columns {
    assert_eq!(objective.columns(), [DiffColumn::Logprob], "another column needs its numbers here");
    Columns::new([(DiffColumn::Logprob, logprob.to_vec())])
}

fn coefficients(objective: &dyn Objective, set: &RowSet, logprob: &[f32]) -> Vec<f32> {
    let picked: Vec<u32> = (0..set.len() as u32).collect();
    let out = columns(objective, logprob);
    let mut grad = out.zeros_like();
    objective.gradients(&Rows::new(set, &picked), &out, &set.totals(&picked), &Now::default(), &mut grad);
    grad.logprob().to_vec()
}

/// Coefficients on log-probabilities.
pub(crate) fn gradient(objective: &dyn Objective, rows: &[&[(f32, f32, f32)]]) -> Vec<f32> {
    let (set, logprob) = set(rows, |_| 1.0);
    coefficients(objective, &set, &logprob)
}

/// The loss of some rows.
pub(crate) fn check_loss(objective: &dyn Objective, rows: &[&[(f32, f32, f32)]], want: f64) {
    let (set, logprob) = set(rows, |_| 1.0);
    let picked: Vec<u32> = (0..set.len() as u32).collect();
    let got = objective.loss(&Rows::new(&set, &picked), &columns(objective, &logprob), &set.totals(&picked), &Now::default());
    assert!((got - want).abs() < 1e-6, "{objective:?}: {got}, not {want}");
}

/// Coefficients are the derivative of the documented loss: central differences at random rows of uneven length, with
/// uneven weights, ratios within and beyond the clip range, and advantages of both signs.
pub(crate) fn check_gradient(objective: &dyn Objective) {
    let mut rng = Seeds(11).rng("finite-difference", Draw::default());
    let rows: Vec<Vec<(f32, f32, f32)>> = [1, 4, 2, 7, 3]
        .into_iter()
        .map(|n| {
            (0..n)
                .map(|_| {
                    let logprob = -(rng.unit() as f32) * 3.0;
                    (logprob, logprob + rng.normal() as f32, rng.normal() as f32)
                })
                .collect()
        })
        .collect();
    let rows: Vec<&[(f32, f32, f32)]> = rows.iter().map(Vec::as_slice).collect();
    let (set, logprob) = set(&rows, |t| 0.5 + (t % 3) as f32);
    let picked: Vec<u32> = (0..set.len() as u32).collect();
    let view = Rows::new(&set, &picked);
    let got = coefficients(objective, &set, &logprob);
    assert!(got.iter().any(|g| *g != 0.0));
    for i in 0..logprob.len() {
        // 2^-9 is exact in f32, so the step taken is the step divided by.
        let h = 2f32.powi(-9);
        let at = |x: f32| {
            let mut moved = logprob.clone();
            moved[i] += x;
            (objective.loss(&view, &columns(objective, &moved), &set.totals(&picked), &Now::default()), f64::from(moved[i]))
        };
        let ((up, x1), (down, x0)) = (at(h), at(-h));
        let numeric = (up - down) / (x1 - x0);
        // central differences of a function with |f'''| ≲ 20: error h²·20/6 ≈ 1e-5, plus f32 rounding of the coefficient
        assert!(
            (numeric - f64::from(got[i])).abs() < 1e-4 * (1.0 + numeric.abs()),
            "{objective:?}, token {i}: {} is not {numeric}",
            got[i]
        );
    }
}
