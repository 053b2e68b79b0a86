//! Small models and rows for tests.

use crate::{Frozen, HeadSpec, Model, ModelConfig, RowBounds, Rows};
use std::sync::Arc;

/// A model small enough for exhaustive tests, with uneven sizes.
pub(crate) fn tiny_config() -> ModelConfig {
    ModelConfig {
        vocab: 37,
        d_model: 24,
        n_layers: 2,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 10,
        d_ff: 44,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: true,
        max_positions: 400,
    }
}

/// A model whose norms matter: matrices start at unit scale, norm gains a little above 1.
pub(crate) fn tiny_model(tied: bool) -> Model {
    let device = burn::tensor::Device::flex();
    let mut frozen = Frozen::new(ModelConfig { tied, ..tiny_config() }, 3, &device).expect("valid");
    frozen.replace(|_, value| {
        let [n] = value.dims();
        if n == 24 { value.mul_scalar(1.1) } else { value }
    });
    for (name, detach_trunk) in [("value", false), ("probe", true)] {
        frozen.add_head(HeadSpec { name: name.into(), detach_trunk, zero_init: false }).expect("new name");
    }
    frozen.into()
}

/// A repeatable stream of small numbers.
pub(crate) fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// Owned rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedRows {
    pub tokens: Vec<u32>,
    pub bounds: Vec<RowBounds>,
    pub at: Vec<usize>,
    pub temperature: Vec<f32>,
    pub support: Vec<u32>,
    pub supports: Vec<Arc<[u32]>>,
}

impl OwnedRows {
    /// Rows of the given lengths; about every third token is sampled, some at other temperatures or on small supports.
    pub fn random(seed: u64, vocab: usize, lengths: &[usize]) -> Self {
        let mut next = numbers(seed);
        let mut rows = Self::default();
        for &len in lengths {
            let (start, first) = (rows.tokens.len(), rows.at.len());
            rows.tokens.extend((0..len).map(|_| next(vocab) as u32));
            for at in 1..len {
                if next(3) == 0 || at == len - 1 {
                    let token = rows.tokens[start + at];
                    rows.at.push(at);
                    rows.temperature.push([1.0, 0.7, 1.6][next(3)]);
                    rows.support.push(match next(3) {
                        0 => {
                            let mut support: Vec<u32> = (0..5).map(|_| next(vocab) as u32).chain([token]).collect();
                            support.sort_unstable();
                            support.dedup();
                            rows.supports.push(support.into());
                            rows.supports.len() as u32
                        }
                        _ => 0,
                    });
                }
            }
            rows.bounds.push(RowBounds { tokens: start..rows.tokens.len(), sampled: first..rows.at.len() });
        }
        rows
    }

    pub fn view(&self) -> Rows<'_> {
        Rows {
            tokens: &self.tokens,
            bounds: &self.bounds,
            at: &self.at,
            temperature: &self.temperature,
            support: &self.support,
            supports: &self.supports,
        }
    }
}
