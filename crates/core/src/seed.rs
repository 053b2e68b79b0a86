//! Counter-based randomness: a number depends on *which* draw it is, never on who drew before it.
//!
//! Every draw of a run is keyed by (seed, stream, update, group, member, turn). Two threads, another order of work or
//! a resumed run therefore give the same numbers, and a new stream never shifts an old one.
//!
//! The generator is ChaCha with 8 rounds (D. J. Bernstein 2008), whose 256-bit key holds the six counters verbatim:
//! distinct counters are distinct keys, so streams cannot collide.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};
use serde::{Deserialize, Serialize};

/// The seed of a run, from which every stream of numbers is keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeds(pub u64);

/// Which draw of a stream: counters that are not used stay 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Update of the run.
    pub update: u32,
    /// Group within the update.
    pub group: u32,
    /// Member within the group.
    pub member: u32,
    /// Turn within the episode.
    pub turn: u32,
}

/// The key of one stream of numbers, small enough to be handed around by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RngKey([u8; 32]);

impl RngKey {
    /// Starts the stream.
    pub fn rng(self) -> Rng {
        Rng(ChaCha8Rng::from_seed(self.0))
    }
}

impl Seeds {
    /// Key of draw `draw` of the stream called `stream`.
    pub fn key(self, stream: &str, draw: Draw) -> RngKey {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.0.to_le_bytes());
        key[8..16].copy_from_slice(&stream_id(stream).to_le_bytes());
        for (i, counter) in [draw.update, draw.group, draw.member, draw.turn].into_iter().enumerate() {
            key[16 + 4 * i..20 + 4 * i].copy_from_slice(&counter.to_le_bytes());
        }
        RngKey(key)
    }

    /// The stream itself.
    pub fn rng(self, stream: &str, draw: Draw) -> Rng {
        self.key(stream, draw).rng()
    }

    /// A derived 64-bit seed, for what wants to be seeded by a number (an environment).
    pub fn derive(self, stream: &str, draw: Draw) -> u64 {
        self.rng(stream, draw).next_u64()
    }
}

/// FNV-1a of the name (Fowler, Noll, Vo): stable across builds and machines, unlike the standard library's hashers.
fn stream_id(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `[0, 1)`, a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// An index in `0..n`, without modulo bias (Lemire 2019, arXiv 1805.10941).
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "an index below 0 does not exist");
        let n = n as u64;
        let threshold = n.wrapping_neg() % n;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(n);
            if wide as u64 >= threshold {
                return (wide >> 64) as usize;
            }
        }
    }

    /// A standard normal number (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Shuffles in place (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// One of the items, or `None` if there are none.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { Some(&items[self.below(items.len())]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_in_every_counter() {
        let base = Draw { update: 1, group: 2, member: 3, turn: 4 };
        let first = |seed, stream, draw| Seeds(seed).rng(stream, draw).next_u64();
        let mut seen = vec![first(7, "a", base), first(8, "a", base), first(7, "b", base)];
        seen.push(first(7, "a", Draw { update: 9, ..base }));
        seen.push(first(7, "a", Draw { group: 9, ..base }));
        seen.push(first(7, "a", Draw { member: 9, ..base }));
        seen.push(first(7, "a", Draw { turn: 9, ..base }));
        assert_eq!(first(7, "a", base), seen[0]);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 7);
    }

    #[test]
    fn numbers_are_pinned() {
        // A change here changes every result ever recorded.
        let mut rng = Seeds(0).rng("pin", Draw::default());
        let pinned: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(pinned, PINNED);
    }
    const PINNED: [u64; 3] = [15_490_735_135_198_359_321, 3_272_732_425_573_064_471, 3_202_495_979_214_904_396];

    #[test]
    fn below_is_uniform() {
        // χ² with 6 degrees of freedom over 70,000 draws: the 99.9 % point is 22.5.
        let mut rng = Seeds(1).rng("uniform", Draw::default());
        let mut count = [0f64; 7];
        for _ in 0..70_000 {
            count[rng.below(7)] += 1.0;
        }
        let chi2: f64 = count.iter().map(|c| (c - 1e4).powi(2) / 1e4).sum();
        assert!(chi2 < 22.5, "{chi2}");
    }

    #[test]
    fn normal_has_mean_zero_and_variance_one() {
        let mut rng = Seeds(2).rng("normal", Draw::default());
        let x: Vec<f64> = (0..20_000).map(|_| rng.normal()).collect();
        let mean = x.iter().sum::<f64>() / 2e4;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 2e4;
        // standard errors: 1/√n = 0.0071 and √(2/n) = 0.01; four of each
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
    }
}
