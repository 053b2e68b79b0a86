//! Counter-based random numbers for initialisation.

use sha2::{Digest, Sha256};

/// Mixes a counter into 64 uniform bits (SplitMix64's finaliser).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform in (0, 1], from the upper 53 bits.
fn uniform(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// `n` normal numbers with the given standard deviation; they depend on the seed, the name and their index only.
pub(crate) fn normal(seed: u64, name: &str, n: usize, std: f64) -> Vec<f32> {
    let digest = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(name).finalize();
    let key = u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes"));
    let draw = |counter: u64| mix(key.wrapping_add(counter.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    (0..n as u64)
        .map(|i| {
            // Box–Muller; only the cosine half, so that number i depends on counters 2i and 2i + 1 alone.
            let radius = (-2.0 * uniform(draw(2 * i)).ln()).sqrt();
            let angle = std::f64::consts::TAU * uniform(draw(2 * i + 1));
            (std * radius * angle.cos()) as f32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_has_the_moments_of_a_normal() {
        // n = 100 000: the mean's standard error is 0.0032, the variance's 0.0045; bounds are 4 standard errors.
        let x = normal(7, "w", 100_000, 1.0);
        let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / 1e5;
        let variance = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.0127, "{mean}");
        assert!((variance - 1.0).abs() < 0.018, "{variance}");
    }

    #[test]
    fn streams_differ_by_seed_and_name() {
        assert_eq!(normal(1, "a", 4, 1.0), normal(1, "a", 9, 1.0)[..4]);
        assert_ne!(normal(1, "a", 4, 1.0), normal(1, "b", 4, 1.0));
        assert_ne!(normal(1, "a", 4, 1.0), normal(2, "a", 4, 1.0));
    }
}
