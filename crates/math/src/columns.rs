//! Arithmetic on the columns of padded rows, as official code lays them out: time is a column, and a mask says whose it is.

/// Returns `G_c = (r_c + γ G_{c+1}) m_c` over the columns of a row: a column off the mask ends what came before it.
///
/// * `rewards`, `mask`: `[columns]`; the mask is 0 or 1
///
/// Returns `[columns]`. Where a tool's answer lies off the mask, everything before it loses the reward that follows; this
/// is the returns of the first release of IGPO and of verl's REINFORCE++, not the return of the policy.
pub fn resetting_returns(rewards: &[f64], mask: &[f64], gamma: f64) -> Vec<f64> {
    assert_eq!(rewards.len(), mask.len(), "one mask per reward");
    let mut out = vec![0.0; rewards.len()];
    let mut g = 0.0;
    for c in (0..out.len()).rev() {
        g = if mask[c] == 1.0 { rewards[c] + gamma * g } else { 0.0 };
        out[c] = g;
    }
    out
}

/// Subtracts from every column its mean over the rows; a row that has ended counts 0.
///
/// * `rows`: `[rows][columns]`, of any lengths; each becomes as long as it was
///
/// A column of equal numbers becomes exactly 0. A column of one row among ended ones is compared with zeros: the baseline
/// depends on how long the others are, which is why no method should want it.
pub fn centre_columns(rows: &mut [Vec<f64>]) {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let first: Vec<f64> = (0..width).map(|c| rows[0].get(c).copied().unwrap_or(0.0)).collect();
    // Means of distances from the first row: equal numbers have distance exactly 0.
    let mut mean = vec![0.0; width];
    for row in rows.iter() {
        for (c, mean) in mean.iter_mut().enumerate() {
            *mean += row.get(c).copied().unwrap_or(0.0) - first[c];
        }
    }
    let n = rows.len() as f64;
    for row in rows {
        for (c, x) in row.iter_mut().enumerate() {
            *x = (*x - first[c]) - mean[c] / n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_worked() {
        assert_eq!(resetting_returns(&[1.0, 2.0, 9.0, 4.0], &[1.0, 1.0, 0.0, 1.0], 0.5), [2.0, 2.0, 0.0, 4.0]);
        // column 0: mean 2; column 1: (4 + 0)/2
        let mut rows = [vec![1.0, 4.0], vec![3.0]];
        centre_columns(&mut rows);
        assert_eq!(rows, [vec![-1.0, 2.0], vec![1.0]]);
    }

    #[test]
    fn equal_columns_and_no_rows_are_harmless() {
        let mut rows = vec![vec![0.1, 0.3]; 7];
        centre_columns(&mut rows);
        assert_eq!(rows, vec![vec![0.0, 0.0]; 7]);
        centre_columns(&mut []);
        assert_eq!(resetting_returns(&[], &[], 1.0), Vec::<f64>::new());
    }
}
