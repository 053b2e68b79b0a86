//! Weights in the layout the kernels read.

use super::kernel::{LANES, Lane};
use crate::{config::ModelConfig, rope::RopeTable};
use std::sync::Arc;

/// A matrix `[depth, width]` cut into panels of [`LANES`] output columns, padded with zeros.
#[derive(Debug)]
pub(crate) struct Packed {
    /// Length of the rows that are multiplied with it.
    pub depth: usize,
    /// Number of output columns.
    pub width: usize,
    /// `[ceil(width / LANES)][depth]`.
    pub panels: Vec<Lane>,
}

impl Packed {
    /// Packs matrices that share their input side by side; `parts` are row-major `[depth, width]` with their widths.
    pub fn side_by_side(depth: usize, parts: &[(&[f32], usize)]) -> Self {
        let width = parts.iter().map(|&(_, width)| width).sum();
        let mut panels = vec![[0.0; LANES]; depth * usize::div_ceil(width, LANES)];
        let mut column = 0;
        for &(values, part_width) in parts {
            for j in 0..part_width {
                let (panel, lane) = ((column + j) / LANES, (column + j) % LANES);
                for k in 0..depth {
                    panels[panel * depth + k][lane] = values[k * part_width + j];
                }
            }
            column += part_width;
        }
        Self { depth, width, panels }
    }

    /// Packs the transpose of a row-major `[width, depth]` matrix.
    pub fn transposed(depth: usize, width: usize, values: &[f32]) -> Self {
        let mut panels = vec![[0.0; LANES]; depth * usize::div_ceil(width, LANES)];
        for (j, row) in values.chunks_exact(depth).enumerate() {
            for (k, &value) in row.iter().enumerate() {
                panels[(j / LANES) * depth + k][j % LANES] = value;
            }
        }
        Self { depth, width, panels }
    }
}

/// One decoder layer.
#[derive(Debug)]
pub(crate) struct HostLayer {
    /// Gain of the norm before attention.
    pub input_norm: Vec<f32>,
    /// Queries, keys and values side by side.
    pub query_key_value: Packed,
    /// Output projection of attention.
    pub output: Packed,
    /// Gain of the norm before the feed-forward part.
    pub post_norm: Vec<f32>,
    /// Gate and up projections side by side.
    pub gate_up: Packed,
    /// Down projection.
    pub down: Packed,
}

/// All weights that decoding and scoring read.
#[derive(Debug)]
pub(crate) struct HostWeights {
    /// Shape of the model.
    pub config: ModelConfig,
    /// Rotary angles.
    pub rope: Arc<RopeTable>,
    /// `[vocab, d_model]`.
    pub embedding: Vec<f32>,
    /// Decoder layers, bottom up.
    pub layers: Vec<HostLayer>,
    /// Gain of the last norm.
    pub norm: Vec<f32>,
    /// LM head.
    pub head: Packed,
    /// Weight and bias of each scalar head.
    pub heads: Vec<(Vec<f32>, f32)>,
}

impl HostWeights {
    /// Value of a scalar head at one hidden vector.
    pub fn head_value(&self, head: usize, hidden: &[f32]) -> f32 {
        let (weight, bias) = &self.heads[head];
        weight.iter().zip(hidden).map(|(w, h)| w * h).sum::<f32>() + bias
    }
}
