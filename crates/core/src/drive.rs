//! How a policy drives objectives: micro-batches of whole rows, parts over the same rows fused, what is not finite
//! caught with the row it arose in.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::now::Now;
use crate::objective::{Columns, DiffColumn, Reach, Sums};
use crate::policy::{Part, PolicyError};
use crate::rows::{RowSet, Rows};

/// Whole rows that go through one forward and one backward pass.
#[derive(Clone, Debug)]
pub struct MicroBatch {
    /// The rows' set.
    pub rows: Arc<RowSet>,
    /// The rows.
    pub picked: Vec<u32>,
    /// Parts that want something from them.
    parts: Vec<usize>,
}

impl MicroBatch {
    /// The rows as an objective sees them.
    pub fn view(&self) -> Rows<'_> {
        Rows::new(&self.rows, &self.picked)
    }
}

/// Coefficients and statistics of a part that needs its whole minibatch at once.
struct Whole {
    /// Coefficients by row of the set, each over the row's trained tokens.
    by_row: BTreeMap<u32, Columns>,
    sums: Sums,
}

/// A plan of forward and backward passes for some parts.
pub struct Drive<'a> {
    parts: &'a [Part<'a>],
    now: &'a Now,
    micro: Vec<MicroBatch>,
    whole: BTreeMap<usize, Whole>,
}

impl<'a> Drive<'a> {
    /// Cuts the parts into micro-batches of at most `max_tokens` tokens. Parts over the same rows (the same `Arc` and
    /// the same rows of it) are fused. `score` computes columns without gradient; it is called only for parts that
    /// need their whole minibatch at once.
    ///
    /// # Errors
    /// If scoring fails, or what such a part gives is not finite.
    pub fn new(
        parts: &'a [Part<'a>],
        max_tokens: usize,
        now: &'a Now,
        mut score: impl FnMut(&MicroBatch, &[DiffColumn]) -> Result<Columns, PolicyError>,
    ) -> Result<Self, PolicyError> {
        let mut micro: Vec<MicroBatch> = Vec::new();
        let mut fused = vec![false; parts.len()];
        for i in 0..parts.len() {
            if fused[i] {
                continue;
            }
            let same: Vec<usize> = (i..parts.len())
                .filter(|j| Arc::ptr_eq(&parts[*j].rows, &parts[i].rows) && parts[*j].picked == parts[i].picked)
                .collect();
            same.iter().for_each(|j| fused[*j] = true);
            for picked in parts[i].rows.micro_batches(parts[i].picked, max_tokens) {
                micro.push(MicroBatch { rows: parts[i].rows.clone(), picked, parts: same.clone() });
            }
        }
        let mut drive = Self { parts, now, micro, whole: BTreeMap::new() };
        for (p, part) in parts.iter().enumerate().filter(|(_, part)| part.objective.reach() == Reach::Minibatch) {
            let wanted = part.objective.columns();
            let mut all: Vec<(DiffColumn, Vec<f32>)> = wanted.iter().map(|c| (c.clone(), Vec::new())).collect();
            let mut order: Vec<u32> = Vec::new();
            for micro in drive.micro.iter().filter(|m| m.parts.contains(&p)) {
                let scored = score(micro, &wanted)?;
                for (name, column) in &mut all {
                    column.extend_from_slice(scored.get(name));
                }
                order.extend_from_slice(&micro.picked);
            }
            let rows = Rows::new(&part.rows, &order);
            let out = Columns::new(all);
            let mut grad = out.zeros_like();
            let sums = part.objective.gradients(&rows, &out, &part.totals, now, &mut grad);
            let by_row = rows
                .iter()
                .map(|row| {
                    let own = grad.iter().map(|(name, x)| (name.clone(), x[row.packed.clone()].to_vec()));
                    (row.id, Columns::new(own))
                })
                .collect();
            drive.whole.insert(p, Whole { by_row, sums });
        }
        Ok(drive)
    }

    /// The micro-batches, in the order in which their results are merged.
    pub fn micro(&self) -> &[MicroBatch] {
        &self.micro
    }

    /// Columns that the forward pass of a micro-batch has to give.
    pub fn columns(&self, micro: usize) -> Vec<DiffColumn> {
        let mut columns: Vec<DiffColumn> =
            self.micro[micro].parts.iter().flat_map(|p| self.parts[*p].objective.columns()).collect();
        columns.sort();
        columns.dedup();
        columns
    }

    /// Coefficients for a micro-batch's backward pass, and each part's statistics.
    ///
    /// * `out`: the columns of [`Drive::columns`], `[trained tokens of the micro-batch]`.
    ///
    /// # Errors
    /// If a column or coefficient is not finite; the message names the row's group and trajectory.
    pub fn coefficients(&self, micro: usize, out: &Columns) -> Result<(Columns, Vec<(usize, Sums)>), PolicyError> {
        let batch = &self.micro[micro];
        check_finite(batch, out, "column")?;
        let mut grad = out.zeros_like();
        let mut sums = Vec::new();
        for p in &batch.parts {
            let part = &self.parts[*p];
            match self.whole.get(p) {
                None => {
                    let mut own = out.zeros_like();
                    sums.push((*p, part.objective.gradients(&batch.view(), out, &part.totals, self.now, &mut own)));
                    grad.add_scaled(&own, part.scale);
                }
                Some(whole) => {
                    for row in batch.view().iter() {
                        for (name, x) in whole.by_row[&row.id].iter() {
                            for (into, from) in grad.get_mut(name)[row.packed.clone()].iter_mut().zip(x) {
                                *into += (part.scale * f64::from(*from)) as f32;
                            }
                        }
                    }
                    // The statistics of a whole minibatch are counted once, with its first micro-batch.
                    if self.micro.iter().position(|m| m.parts.contains(p)) == Some(micro) {
                        sums.push((*p, whole.sums.clone()));
                    }
                }
            }
        }
        check_finite(batch, &grad, "coefficient")?;
        Ok((grad, sums))
    }

    /// Adds up the statistics of all micro-batches, in their order; one entry per part.
    pub fn merge(&self, of_micro: impl IntoIterator<Item = Vec<(usize, Sums)>>) -> Vec<Sums> {
        let mut merged = vec![Sums::default(); self.parts.len()];
        for (part, sums) in of_micro.into_iter().flatten() {
            merged[part].merge(sums);
        }
        merged
    }
}

fn check_finite(batch: &MicroBatch, columns: &Columns, what: &str) -> Result<(), PolicyError> {
    for (name, x) in columns.iter() {
        let Some(i) = x.iter().position(|v| !v.is_finite()) else { continue };
        let place = batch.view().iter().find(|row| row.packed.contains(&i)).map(|row| {
            let bounds = &batch.rows.rows[row.id as usize];
            format!("group {}, trajectory {}, trained token {} of the row", bounds.group, bounds.trajectory, i - row.packed.start)
        });
        return Err(PolicyError::NonFinite(format!("a {what} on {name} is {} at {}", x[i], place.unwrap_or_default())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::{LOST, WON, group, turn};
    use crate::batch::{Batch, NonFinite};
    use crate::credit::Credit;
    use crate::objective::Objective;
    use crate::rows::Totals;
    use serde::{Deserialize, Serialize};

    /// `L = Σ (logprob − mean logprob of the minibatch)² / 2n`, or with a fixed mean of 0 per row.
    #[derive(Debug, Serialize, Deserialize)]
    struct Pull {
        reach: bool,
        break_at: Option<usize>,
    }
    #[typetag::serde(name = "drive-test-pull")]
    impl Objective for Pull {
        fn reach(&self) -> Reach {
            if self.reach { Reach::Minibatch } else { Reach::Row }
        }
        fn loss(&self, _: &Rows<'_>, _: &Columns, _: &Totals, _: &Now) -> f64 {
            0.0
        }
        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _: &Now, grad: &mut Columns) -> Sums {
            let x = out.logprob();
            let mean = if self.reach { x.iter().sum::<f32>() / x.len() as f32 } else { 0.0 };
            for (i, (into, x)) in grad.logprob_mut().iter_mut().zip(x).enumerate() {
                *into += if Some(i) == self.break_at { f32::NAN } else { (x - mean) / totals.tokens as f32 };
            }
            let mut sums = Sums::default();
            sums.add("seen", rows.n_trained() as f64, 1.0);
            sums
        }
    }

    fn rows() -> Arc<RowSet> {
        let chains: Vec<_> =
            (0..4).map(|i| group(vec![turn(None, 1.0, 0, i + 1), turn(None, 0.0, 0, 2)], &[(0, WON), (1, LOST)])).collect();
        let batch = Batch::from_groups(chains, NonFinite::Refuse).unwrap();
        let credit: Vec<Credit> = batch.groups().map(|g| Credit::per_turn(vec![1.0; g.n_turns()])).collect();
        Arc::new(RowSet::from_credit(&batch, &credit, None))
    }

    /// The gradient by trained token of the set, and the merged statistics.
    fn run(objectives: &[&dyn Objective], max_tokens: usize) -> Result<(Vec<f32>, Vec<Sums>), PolicyError> {
        let rows = rows();
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let now = Now::default();
        let parts: Vec<Part<'_>> = objectives
            .iter()
            .map(|objective| Part {
                rows: rows.clone(),
                picked: &picked,
                totals: rows.totals(&picked),
                objective: *objective,
                scale: 1.0,
            })
            .collect();
        let logprob = |m: &MicroBatch| {
            let at = m.picked.iter().flat_map(|r| rows.rows[*r as usize].trained.clone());
            Columns::new([(DiffColumn::Logprob, at.map(|i| -(i as f32)).collect())])
        };
        let drive = Drive::new(&parts, max_tokens, &now, |m, _| Ok(logprob(m)))?;
        let mut grad = vec![0.0; rows.n_trained()];
        let mut sums = Vec::new();
        for (m, micro) in drive.micro().iter().enumerate() {
            let (g, s) = drive.coefficients(m, &logprob(micro))?;
            let at = micro.picked.iter().flat_map(|r| rows.rows[*r as usize].trained.clone());
            at.zip(g.logprob()).for_each(|(i, x)| grad[i] += x);
            sums.push(s);
        }
        Ok((grad, drive.merge(sums)))
    }

    #[test]
    fn micro_batches_change_neither_coefficients_nor_statistics() {
        for reach in [false, true] {
            let pull = Pull { reach, break_at: None };
            let whole = run(&[&pull], usize::MAX).unwrap();
            assert_eq!(whole.1[0].0[0].sum, whole.0.len() as f64);
            for max in [1, 5, 9] {
                let cut = run(&[&pull], max).unwrap();
                assert_eq!(cut.0, whole.0, "reach {reach}, {max}");
                assert_eq!(cut.1[0].0[0].sum, whole.1[0].0[0].sum);
            }
        }
    }

    #[test]
    fn parts_over_the_same_rows_are_fused_and_added() {
        let (row, whole) = (Pull { reach: false, break_at: None }, Pull { reach: true, break_at: None });
        let both = run(&[&row, &whole], 5).unwrap();
        let (a, b) = (run(&[&row], 5).unwrap(), run(&[&whole], 5).unwrap());
        for ((x, y), z) in a.0.iter().zip(&b.0).zip(&both.0) {
            assert!((x + y - z).abs() < 1e-6);
        }
        assert_eq!(both.1.len(), 2);
    }

    #[test]
    fn what_is_not_finite_is_caught_with_its_row() {
        let error = run(&[&Pull { reach: false, break_at: Some(1) }], usize::MAX).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a coefficient on log-probabilities is NaN at group 0, trajectory 1, trained token 0 of the row"
        );
    }
}
