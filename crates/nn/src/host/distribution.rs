//! One next-token distribution: log-probabilities and entropy.

use super::{
    dispatch,
    kernel::{Isa, LANES, exp, horizontal_sum},
};

/// The softmax of some logits. Reused, it keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct Distribution {
    /// Tempered logits minus their maximum.
    shifted: Vec<f32>,
    /// Their exponentials.
    weights: Vec<f32>,
    /// Logarithm of the sum of weights.
    log_sum: f32,
    entropy: f32,
}

impl Distribution {
    /// Becomes `softmax(logits / temperature)`, restricted to the allowed tokens, in their order.
    pub fn set(&mut self, logits: &[f32], allowed: Option<&[u32]>, temperature: f32) {
        let inverse = 1.0 / temperature;
        self.shifted.clear();
        match allowed {
            Some(allowed) => self.shifted.extend(allowed.iter().map(|&token| logits[token as usize] * inverse)),
            None => self.shifted.extend(logits.iter().map(|z| z * inverse)),
        }
        self.weights.clear();
        self.weights.resize(self.shifted.len(), 0.0);
        let totals = dispatch::softmax(&mut self.shifted, &mut self.weights);
        self.log_sum = totals.sum.ln();
        self.entropy = self.log_sum - totals.moment / totals.sum;
    }

    /// Log-probability of the element at `index`.
    pub fn logprob(&self, index: usize) -> f32 {
        self.shifted[index] - self.log_sum
    }

    /// Entropy in nats.
    pub fn entropy(&self) -> f32 {
        self.entropy
    }
}

/// `Σ eᶻ` and `Σ z eᶻ`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    sum: f32,
    moment: f32,
}

/// Subtracts the maximum from `shifted` and writes the exponentials to `weights`.
#[inline(always)]
pub(super) fn softmax<I: Isa>(shifted: &mut [f32], weights: &mut [f32]) -> Totals {
    let max = shifted.iter().fold(f32::NEG_INFINITY, |max, &z| if z > max { z } else { max });
    let (bodies, tail) = shifted.as_chunks_mut::<LANES>();
    let (out, out_tail) = weights.as_chunks_mut::<LANES>();
    let (mut sums, mut moments) = ([0.0; LANES], [0.0; LANES]);
    for (z, w) in bodies.iter_mut().zip(out) {
        for l in 0..LANES {
            z[l] -= max;
            w[l] = exp::<I>(z[l]);
            sums[l] += w[l];
            moments[l] += w[l] * z[l];
        }
    }
    let (mut sum, mut moment) = (horizontal_sum(&sums), horizontal_sum(&moments));
    for (z, w) in tail.iter_mut().zip(out_tail) {
        *z -= max;
        *w = exp::<I>(*z);
        sum += *w;
        moment += *w * *z;
    }
    Totals { sum, moment }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperature_and_support_are_honoured() {
        // Temperature 2 on logits 0, 2 ln 3 of three tokens: weights 1, 3.
        let mut d = Distribution::default();
        d.set(&[0.0, 9.0, 2.0 * 3f32.ln()], Some(&[0, 2]), 2.0);
        assert!((d.logprob(1) - 0.75f32.ln()).abs() < 1e-6);
        // H = −(0.25 ln 0.25 + 0.75 ln 0.75) = 0.562335
        assert!((d.entropy() - 0.562_335).abs() < 1e-6);
    }

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let mut d = Distribution::default();
        let logits: Vec<f32> = (0..37).map(|i| (i * 17 % 37) as f32 / 9.0).collect();
        d.set(&logits, None, 1.0);
        let weight = |z: &f32| f64::from(*z).exp();
        let sum: f64 = logits.iter().map(weight).sum();
        let p: Vec<f64> = logits.iter().map(|z| weight(z) / sum).collect();
        assert!(p.iter().enumerate().all(|(i, p)| (p.ln() - f64::from(d.logprob(i))).abs() < 1e-6));
        assert!((p.iter().map(|p| -p * p.ln()).sum::<f64>() - f64::from(d.entropy())).abs() < 1e-5);
    }

    #[test]
    fn a_sharp_distribution_has_exact_zeros_of_entropy() {
        let mut d = Distribution::default();
        d.set(&[0.0, 200.0, -50.0], None, 1.0);
        assert_eq!(d.logprob(1), 0.0);
        assert!(d.entropy().abs() < 1e-30);
    }
}
