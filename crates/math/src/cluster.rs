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
pub fn clusters<K: Ord + Copy>(keys: &[K]) -> Vec<u32> {
    let mut sorted: Vec<(K, u32)> = keys.iter().copied().zip(0..).collect();
    assert_eq!(sorted.len(), keys.len(), "members are numbered in 32 bits");
    sorted.sort_unstable();
    // The first member of each cluster stands for it, until clusters get their numbers in the order of members.
    let mut out = vec![0; keys.len()];
    let mut first = 0;
    for (i, (key, member)) in sorted.iter().enumerate() {
        if i == 0 || sorted[i - 1].0 != *key {
            first = *member;
        }
        out[*member as usize] = first;
    }
    let mut n_clusters = 0;
    for member in 0..out.len() {
        let first = out[member] as usize;
        if first == member {
            out[member] = n_clusters;
            n_clusters += 1;
        } else {
            out[member] = out[first];
        }
    }
    out
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
    // The mean of equal values is rounded, so sums are of distances from the first value, which are exactly 0 there.
    let mut first = vec![0.0; n_clusters];
    for (c, x) in cluster.iter().zip(x) {
        let c = *c as usize;
        if moments[c].n == 0 {
            first[c] = *x;
        }
        moments[c].n += 1;
        moments[c].mean += x - first[c];
    }
    for (m, first) in moments.iter_mut().zip(&first) {
        m.mean = first + m.mean / m.n as f64;
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
        assert_eq!(clusters(&[7, 3, 7, 9, 3]), [0, 1, 0, 2, 1]);
        assert_eq!(clusters(&[(1, 2), (0, 5), (1, 2)]), [0, 1, 0]);
        assert_eq!(clusters::<u32>(&[]), Vec::<u32>::new());
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
        fn equal_keys_share_a_cluster(keys in prop::collection::vec(0u8..6, 0..40)) {
            let cluster = clusters(&keys);
            for (i, a) in keys.iter().enumerate() {
                let seen = cluster[..i].iter().max().map_or(0, |last| last + 1);
                prop_assert!(cluster[i] <= seen);
                for (j, b) in keys.iter().enumerate() {
                    prop_assert_eq!(cluster[i] == cluster[j], a == b);
                }
            }
        }

        #[test]
        fn each_cluster_has_the_moments_of_its_members(members in prop::collection::vec((0u8..6, -9.0..9.0f64), 0..40)) {
            let (keys, x): (Vec<u8>, Vec<f64>) = members.into_iter().unzip();
            let cluster = clusters(&keys);
            for (c, got) in moments_by(&cluster, &x).iter().enumerate() {
                let own: Vec<f64> = cluster.iter().zip(&x).filter(|(k, _)| **k as usize == c).map(|(_, x)| *x).collect();
                let want = moments(&own);
                prop_assert_eq!(got.n, want.n);
                prop_assert!((got.mean - want.mean).abs() < 1e-12 && (got.squares - want.squares).abs() < 1e-10);
            }
        }
    }
}
