//! Shape of a model.

use crate::error::NnError;
use serde::{Deserialize, Serialize};

/// Shape of a decoder-only transformer of the Llama family: RMS norms, rotary positions, grouped queries, gated SiLU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Number of token ids, at least 2.
    pub vocab: usize,
    /// Width of the residual stream, at least 1.
    pub d_model: usize,
    /// Number of decoder layers, at least 1.
    pub n_layers: usize,
    /// Number of query heads, a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// Number of key/value heads, at least 1.
    pub n_kv_heads: usize,
    /// Width of one head, even and at least 2.
    pub head_dim: usize,
    /// Width of the feed-forward part, at least 1.
    pub d_ff: usize,
    /// Base of the rotary angles, positive; 10000 in Llama.
    pub rope_theta: f64,
    /// ε inside the norms' square root, positive.
    pub norm_eps: f32,
    /// Whether the LM head is the embedding itself.
    pub tied: bool,
    /// Longest sequence, at least 1; costs `head_dim` numbers per position.
    pub max_positions: usize,
}

impl ModelConfig {
    /// Checks the ranges given at the fields.
    ///
    /// # Errors
    /// [`NnError::Config`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), NnError> {
        let fail = |key, problem: String| Err(NnError::Config { key, problem });
        for (key, value, least) in [
            ("vocab", self.vocab, 2),
            ("d_model", self.d_model, 1),
            ("n_layers", self.n_layers, 1),
            ("n_heads", self.n_heads, 1),
            ("n_kv_heads", self.n_kv_heads, 1),
            ("head_dim", self.head_dim, 2),
            ("d_ff", self.d_ff, 1),
            ("max_positions", self.max_positions, 1),
        ] {
            if value < least {
                return fail(key, format!("must be at least {least}, got {value}"));
            }
            if value > 1 << 28 {
                return fail(key, format!("must be at most {}, got {value}", 1 << 28));
            }
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            return fail("n_kv_heads", format!("must divide n_heads = {}, got {}", self.n_heads, self.n_kv_heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return fail("head_dim", format!("must be even, got {}", self.head_dim));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 0.0) {
            return fail("rope_theta", format!("must be positive, got {}", self.rope_theta));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            return fail("norm_eps", format!("must be positive, got {}", self.norm_eps));
        }
        Ok(())
    }

    /// Width of queries, keys and values side by side.
    pub(crate) fn qkv_width(&self) -> usize {
        (self.n_heads + 2 * self.n_kv_heads) * self.head_dim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut ModelConfig), message: &str) {
        let mut config = crate::testing::tiny_config();
        change(&mut config);
        let error = config.validate().expect_err(message);
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn out_of_range_fields_are_named() {
        check(|c| c.vocab = 1, "`vocab` must be at least 2, got 1");
        check(|c| c.n_kv_heads = 3, "`n_kv_heads` must divide n_heads = 4, got 3");
        check(|c| c.head_dim = 7, "`head_dim` must be even, got 7");
        check(|c| c.rope_theta = f64::NAN, "`rope_theta` must be positive, got NaN");
        check(|c| c.norm_eps = 0.0, "`norm_eps` must be positive, got 0");
    }
}
