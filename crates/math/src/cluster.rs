//! Members of a group by an equal key: each is compared with its own cluster.

use crate::spread::Moments;

/// Names clusters of equal keys by numbers from 0, in order of first appearance.
///
/// * `keys`: `[members]`
///
/// Returns `[members]`.
///
/// # Panics
/// With more than `u32::MAX` members.
pub fn clusters(keys: impl ExactSizeIterator<Item = u64> + Clone) -> Vec<u32> {
    /// A table of this many slots per member is cleared faster than keys are hashed.
    const SLOTS: u64 = 16;
    let (low, high) = keys.clone().fold((u64::MAX, 0), |(low, high), key| (low.min(key), high.max(key)));
    match high.saturating_sub(low) {
        width if width < SLOTS * keys.len() as u64 => clusters_by_table(keys.map(|key| (key - low) as usize), width as usize + 1),
        _ => clusters_by_hash(keys),
    }
}

/// Keys below `bound`: each has a slot of its own.
fn clusters_by_table(keys: impl Iterator<Item = usize>, bound: usize) -> Vec<u32> {
    // A slot holds a number plus 1, so that one of zeros is empty.
    let mut table = vec![0; bound];
    let mut n_clusters = 0;
    let cluster_of = |key: usize| {
        let slot = &mut table[key];
        if *slot == 0 {
            n_clusters += 1;
            *slot = n_clusters;
        }
        *slot - 1
    };
    keys.map(cluster_of).collect()
}

/// Any keys: open addressing in a table at most half full. Numbers follow the members, so where a key lies cannot leak.
fn clusters_by_hash(keys: impl ExactSizeIterator<Item = u64>) -> Vec<u32> {
    const EMPTY: (u64, u32) = (0, u32::MAX);
    let bits = (2 * keys.len()).next_power_of_two().trailing_zeros().max(1);
    let mut table = vec![EMPTY; 1 << bits];
    let mask = table.len() - 1;
    let mut n_clusters = 0;
    let cluster_of = |key: u64| {
        // Fibonacci hashing: the high bits of a product with 2^64 over the golden ratio.
        let mut slot = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize;
        loop {
            match table[slot] {
                EMPTY => {
                    assert!(n_clusters < u32::MAX, "clusters are numbered in 32 bits");
                    table[slot] = (key, n_clusters);
                    n_clusters += 1;
                    return n_clusters - 1;
                }
                (known, cluster) if known == key => return cluster,
                _ => slot = (slot + 1) & mask,
            }
        }
    };
    keys.map(cluster_of).collect()
}

/// Moments of each cluster, in two passes: the mean first, so that nothing cancels.
///
/// * `cluster`: number of each member's cluster, `[members]`
/// * `x`: `[members]`
///
/// Returns `[clusters]`. Equal values have that value as their mean and exactly no squares.
pub fn moments_by(cluster: &[u32], x: &[f64]) -> Vec<Moments> {
    assert_eq!(cluster.len(), x.len(), "one number per member");
    let n_clusters = cluster.iter().max().map_or(0, |last| *last as usize + 1);
    let mut moments = vec![Moments { n: 0, mean: 0.0, squares: 0.0 }; n_clusters];
    // A sum of equal values is rounded, so what is summed is the distance from the first one, which is exactly 0 there: at
    // first `mean` holds a cluster's first value, written last, and `squares` that sum. No branch asks who is first: which
    // keys are new cannot be foreseen.
    for (c, x) in cluster.iter().zip(x).rev() {
        moments[*c as usize].mean = *x;
    }
    for (c, x) in cluster.iter().zip(x) {
        let m = &mut moments[*c as usize];
        m.n += 1;
        m.squares += x - m.mean;
    }
    for m in &mut moments {
        m.mean += m.squares / m.n as f64;
        m.squares = 0.0;
    }
    for (c, x) in cluster.iter().zip(x) {
        let m = &mut moments[*c as usize];
        m.squares += (x - m.mean).powi(2);
    }
    moments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments;
    use proptest::prelude::*;

    #[test]
    fn clusters_are_numbered_by_first_appearance() {
        assert_eq!(clusters([7, 3, 7, 9, 3].into_iter()), [0, 1, 0, 2, 1]);
        assert_eq!(clusters([0, u64::MAX, 0, 1 << 32].into_iter()), [0, 1, 0, 2]);
        assert_eq!(clusters([].into_iter()), Vec::<u32>::new());
    }

    #[test]
    fn equal_values_have_exactly_no_spread() {
        for n in 1..20 {
            let m = moments_by(&vec![0; n], &vec![0.1; n]);
            assert_eq!(m, [Moments { n, mean: 0.1, squares: 0.0 }]);
        }
    }

    proptest! {
        #[test]
        fn equal_keys_share_a_cluster(keys in prop::collection::vec(0u64..6, 0..40), apart in 1u64..1000) {
            let keys: Vec<u64> = keys.iter().map(|key| 7 + key * apart).collect();
            let cluster = clusters(keys.iter().copied());
            for (i, a) in keys.iter().enumerate() {
                let seen = cluster[..i].iter().max().map_or(0, |last| last + 1);
                prop_assert!(cluster[i] <= seen);
                for (j, b) in keys.iter().enumerate() {
                    prop_assert_eq!(cluster[i] == cluster[j], a == b);
                }
            }
        }

        #[test]
        fn each_cluster_has_the_moments_of_its_members(members in prop::collection::vec((0u64..6, -9.0..9.0f64), 0..40)) {
            let (keys, x): (Vec<u64>, Vec<f64>) = members.into_iter().unzip();
            let cluster = clusters(keys.iter().copied());
            for (c, got) in moments_by(&cluster, &x).iter().enumerate() {
                let own: Vec<f64> = cluster.iter().zip(&x).filter(|(k, _)| **k as usize == c).map(|(_, x)| *x).collect();
                let want = moments(&own);
                prop_assert_eq!(got.n, want.n);
                prop_assert!((got.mean - want.mean).abs() < 1e-12 && (got.squares - want.squares).abs() < 1e-10);
            }
        }
    }
}
