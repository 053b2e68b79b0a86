//! Losses that are a column as it stands, up to sign.

use ascribe_core::objective::Aggregation;
use ascribe_core::{Rows, Totals};

/// `sign · Σ w · column`, aggregated. `column`: `[trained tokens]`.
pub(crate) fn column_loss(rows: &Rows<'_>, column: &[f32], sign: f64, aggregation: Aggregation, totals: &Totals) -> f64 {
    rows.iter()
        .map(|row| {
            let weighted = column[row.packed.clone()].iter().zip(row.weight()).map(|(x, w)| f64::from(*x) * f64::from(*w));
            sign * aggregation.factor(row.packed.len(), totals) * weighted.sum::<f64>()
        })
        .sum()
}

/// Adds its gradient to `grad`, `[trained tokens]`. Returns `sign · Σ w · column`, not aggregated.
pub(crate) fn column_gradients(
    rows: &Rows<'_>,
    column: &[f32],
    sign: f64,
    aggregation: Aggregation,
    totals: &Totals,
    grad: &mut [f32],
) -> f64 {
    let mut sum = 0.0;
    for row in rows.iter() {
        let factor = aggregation.factor(row.packed.len(), totals);
        for (i, w) in row.packed.clone().zip(row.weight()) {
            grad[i] += (sign * factor * f64::from(*w)) as f32;
            sum += sign * f64::from(*w) * f64::from(column[i]);
        }
    }
    sum
}
