//! How much each token moves the policy's entropy: the covariance of advantage and log-probability, token by token.

use crate::ratio::Token;

/// `(A − mean A)(log π − mean log π)` of each token, the means over all of them. `[tokens]`.
///
/// Their mean is the covariance, to which the change of entropy is proportional. Cui et al. 2025, arXiv 2505.22617.
pub(crate) fn covariances(tokens: &[Token]) -> Vec<f64> {
    let n = tokens.len() as f64;
    let advantage = tokens.iter().map(|t| t.advantage).sum::<f64>() / n;
    let logprob = tokens.iter().map(|t| t.logprob).sum::<f64>() / n;
    tokens.iter().map(|t| (t.advantage - advantage) * (t.logprob - logprob)).collect()
}

/// How many of `n` tokens a share takes: `max(1, ⌊share · n⌋)`.
pub(crate) fn share_of(share: f64, n: usize) -> usize {
    ((share * n as f64).floor() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_worked() {
        let token = |advantage, logprob| Token { at: 0, weight: 1.0, scale: 1.0, advantage, logprob, old: 0.0 };
        // means 1 and −2: (1·1, −1·−1)
        assert_eq!(covariances(&[token(2.0, -1.0), token(0.0, -3.0)]), [1.0, 1.0]);
        assert!(covariances(&[]).is_empty());
        assert_eq!((share_of(0.5, 5), share_of(0.0002, 100)), (2, 1));
    }
}
