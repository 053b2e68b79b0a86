//! The transformer as burn modules. Field names follow HF Llama, so that its checkpoints can be read.

use crate::{
    config::ModelConfig,
    plan::{Plan, Tile},
    random::normal,
    rope::RopeTable,
};
use burn::{
    module::{Module, Param},
    nn::{Embedding, Linear, RmsNorm},
    tensor::{Device, Int, Tensor, TensorData, activation::silu},
};

/// Queries whose attention is computed together; the keys they cannot see are not multiplied.
const QUERY_BLOCK: usize = 128;

/// Score of a key that must not be seen: its weight becomes exactly zero, and no infinity arises on the way.
pub(crate) const MASKED: f32 = -1e30;

/// Grouped-query attention.
#[derive(Module, Debug)]
pub(crate) struct Attention {
    pub q_proj: Linear,
    pub k_proj: Linear,
    pub v_proj: Linear,
    pub o_proj: Linear,
}

/// Gated feed-forward part.
#[derive(Module, Debug)]
pub(crate) struct Mlp {
    pub gate_proj: Linear,
    pub up_proj: Linear,
    pub down_proj: Linear,
}

/// One decoder layer.
#[derive(Module, Debug)]
pub(crate) struct DecoderLayer {
    pub self_attn: Attention,
    pub mlp: Mlp,
    pub input_layernorm: RmsNorm,
    pub post_attention_layernorm: RmsNorm,
}

/// Trunk, LM head and scalar heads.
#[derive(Module, Debug)]
pub(crate) struct Transformer {
    pub embed_tokens: Embedding,
    pub layers: Vec<DecoderLayer>,
    pub norm: RmsNorm,
    pub lm_head: Option<Linear>,
    pub heads: Vec<Linear>,
}

/// A float tensor from host numbers.
pub(crate) fn floats<const D: usize>(values: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// A row of indices.
pub(crate) fn ints(values: Vec<i64>, device: &Device) -> Tensor<1, Int> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), device)
}

/// Numbers of a tensor, in row-major order.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().expect("float tensors of this crate are f32")
}

/// `x · W` on rows.
pub(crate) fn project(linear: &Linear, x: Tensor<2>) -> Tensor<2> {
    x.matmul(linear.weight.val())
}

/// Root-mean-square normalisation of rows.
pub(crate) fn normalize(norm: &RmsNorm, x: Tensor<2>) -> Tensor<2> {
    let scale = (x.clone() * x.clone()).mean_dim(1).add_scalar(norm.epsilon).sqrt().recip();
    x * scale * norm.gamma.val().unsqueeze()
}

/// Cosines and sines for packed rows, repeated for every head, and the rotation that pairs channels.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    query: (Tensor<2>, Tensor<2>),
    key: (Tensor<2>, Tensor<2>),
    pairing: Tensor<2>,
    head_dim: usize,
}

impl Rotary {
    /// For tokens at the given positions. Queries are scaled by `1 / √head_dim` on the way.
    pub fn new(config: &ModelConfig, table: &RopeTable, positions: &[usize], device: &Device) -> Self {
        let head_dim = config.head_dim;
        let half = head_dim / 2;
        let scale = 1.0 / (head_dim as f32).sqrt();
        // A head's two halves turn by the same angles.
        let spread = |rows: Vec<&[f32]>, n_heads: usize, scale: f32| {
            let values = rows.into_iter().flat_map(|row| (0..2 * n_heads).flat_map(move |_| row.iter().map(move |v| v * scale)));
            floats(values.collect(), [positions.len(), n_heads * head_dim], device)
        };
        let (cos, sin): (Vec<_>, Vec<_>) = positions.iter().map(|&position| table.at(position)).unzip();
        let both = |n_heads, scale| (spread(cos.clone(), n_heads, scale), spread(sin.clone(), n_heads, scale));
        // rotate-half as a matrix: out[i] = −x[i + half], out[i + half] = x[i]
        let mut pairing = vec![0.0; head_dim * head_dim];
        for i in 0..half {
            pairing[(i + half) * head_dim + i] = -1.0;
            pairing[i * head_dim + i + half] = 1.0;
        }
        Self {
            query: both(config.n_heads, scale),
            key: both(config.n_kv_heads, 1.0),
            pairing: floats(pairing, [head_dim, head_dim], device),
            head_dim,
        }
    }

    fn rotate(&self, x: Tensor<2>, (cos, sin): &(Tensor<2>, Tensor<2>)) -> Tensor<2> {
        let [n, width] = x.dims();
        let paired =
            x.clone().reshape([n * width / self.head_dim, self.head_dim]).matmul(self.pairing.clone()).reshape([n, width]);
        x * cos.clone() + paired * sin.clone()
    }

    /// Rotates and scales queries, `[n, n_heads × head_dim]`.
    pub fn queries(&self, x: Tensor<2>) -> Tensor<2> {
        self.rotate(x, &self.query)
    }

    /// Rotates keys, `[n, n_kv_heads × head_dim]`.
    pub fn keys(&self, x: Tensor<2>) -> Tensor<2> {
        self.rotate(x, &self.key)
    }
}

/// `softmax(q · kᵀ + mask) · v`, with the division after the product: `q` is `[b, m, d]`, `k` and `v` are `[b, n, d]`.
pub(crate) fn weigh(q: Tensor<3>, k: Tensor<3>, v: Tensor<3>, mask: Tensor<3>) -> Tensor<3> {
    let scores = q.matmul(k.swap_dims(1, 2)) + mask;
    let max = scores.clone().detach().max_dim(2);
    let weights = (scores - max).exp();
    let sum = weights.clone().sum_dim(2);
    weights.matmul(v) / sum
}

/// `[block × group, keys]` mask of a block of queries that starts at `start`, query heads of a group side by side.
fn causal_mask(start: usize, n_queries: usize, group: usize, device: &Device) -> Tensor<3> {
    let n_keys = start + n_queries;
    let mut mask = vec![0.0; n_queries * group * n_keys];
    for (row, cells) in mask.chunks_exact_mut(n_keys).enumerate() {
        cells[start + row / group + 1..].fill(MASKED);
    }
    floats(mask, [1, n_queries * group, n_keys], device)
}

impl Tile {
    /// Causal attention of the tile's rows: packed queries, keys and values in, packed output of its cells out.
    fn attend(&self, config: &ModelConfig, qkv: [Tensor<2>; 3]) -> Tensor<2> {
        let device = qkv[0].device().without_autodiff();
        let (rows, width) = (self.lengths.len(), self.width);
        let (kv_heads, head_dim) = (config.n_kv_heads, config.head_dim);
        let group = config.n_heads / kv_heads;
        let cells = (!self.is_even()).then(|| ints(self.cells(), &device));
        let [q, k, v] = qkv.map(|x| match &cells {
            Some(cells) => x.select(0, cells.clone()),
            None => x.narrow(0, self.tokens.start, self.tokens.len()),
        });
        // [rows, width, kv, per] → [rows · kv, width, per]; a group's query heads become further queries
        let split = |x: Tensor<2>, per: usize| {
            x.reshape([rows, width, kv_heads, per]).swap_dims(1, 2).reshape([rows * kv_heads, width, per])
        };
        let q = split(q, group * head_dim).reshape([rows * kv_heads, width * group, head_dim]);
        let (k, v) = (split(k, head_dim), split(v, head_dim));
        let mut blocks = Vec::new();
        for start in (0..width).step_by(QUERY_BLOCK) {
            let n = QUERY_BLOCK.min(width - start);
            let see = |x: &Tensor<3>| x.clone().narrow(1, 0, start + n);
            let block = q.clone().narrow(1, start * group, n * group);
            blocks.push(weigh(block, see(&k), see(&v), causal_mask(start, n, group, &device)));
        }
        let out = if blocks.len() == 1 { blocks.remove(0) } else { Tensor::cat(blocks, 1) };
        out.reshape([rows, kv_heads, width, group * head_dim]).swap_dims(1, 2).reshape([rows * width, config.n_heads * head_dim])
    }
}

/// Attention of all tiles, `[n, n_heads × head_dim]` in packed order.
fn attend(config: &ModelConfig, plan: &Plan, qkv: [Tensor<2>; 3]) -> Tensor<2> {
    let device = qkv[0].device().without_autodiff();
    let parts: Vec<_> = plan.tiles.iter().map(|tile| tile.attend(config, qkv.clone())).collect();
    let even = plan.tiles.iter().all(Tile::is_even);
    let all = if parts.len() == 1 { parts.into_iter().next().expect("one part") } else { Tensor::cat(parts, 0) };
    if even {
        return all;
    }
    let mut packed = Vec::with_capacity(plan.tokens.len());
    let mut start = 0;
    for tile in &plan.tiles {
        for &len in &tile.lengths {
            packed.extend((start..start + len).map(|i| i as i64));
            start += tile.width;
        }
    }
    all.select(0, ints(packed, &device))
}

impl DecoderLayer {
    /// Queries, keys and values of rows, rotated.
    pub fn project(&self, x: &Tensor<2>, rotary: &Rotary) -> [Tensor<2>; 3] {
        let h = normalize(&self.input_layernorm, x.clone());
        let attention = &self.self_attn;
        [
            rotary.queries(project(&attention.q_proj, h.clone())),
            rotary.keys(project(&attention.k_proj, h.clone())),
            project(&attention.v_proj, h),
        ]
    }

    /// The residual stream after attention output and feed-forward part.
    pub fn finish(&self, x: Tensor<2>, attended: Tensor<2>) -> Tensor<2> {
        let x = x + project(&self.self_attn.o_proj, attended);
        let h = normalize(&self.post_attention_layernorm, x.clone());
        let gate = silu(project(&self.mlp.gate_proj, h.clone()));
        x + project(&self.mlp.down_proj, gate * project(&self.mlp.up_proj, h))
    }
}

impl Transformer {
    /// A transformer with seeded weights.
    ///
    /// Matrices are normal with standard deviation `1/√inputs` (LeCun et al. 1998), so that small models start with signals
    /// of unit size: Llama's 0.02 is that of a width of 2500, and a model of width 64 leaves it slowly. Those that write
    /// into the residual stream are divided by `√(2 · n_layers)`, as in GPT-2.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Self {
        let ModelConfig { vocab, d_model, n_heads, n_kv_heads, head_dim, d_ff, .. } = *config;
        let unit = |inputs: usize| 1.0 / (inputs as f64).sqrt();
        let std = unit(d_model);
        let residual = 1.0 / (2.0 * config.n_layers as f64).sqrt();
        let param = |name: &str, shape: [usize; 2], std: f64| {
            Param::from_data(TensorData::new(normal(seed, name, shape[0] * shape[1], std), shape), device)
        };
        let linear = |name: &str, shape, std| Linear { weight: param(name, shape, std), bias: None };
        let norm = || RmsNorm {
            gamma: Param::from_data(TensorData::new(vec![1f32; d_model], [d_model]), device),
            epsilon: f64::from(config.norm_eps),
        };
        let layers = (0..config.n_layers)
            .map(|i| {
                let linear = |name: &str, shape, std| linear(&format!("layers.{i}.{name}"), shape, std);
                DecoderLayer {
                    self_attn: Attention {
                        q_proj: linear("self_attn.q_proj", [d_model, n_heads * head_dim], std),
                        k_proj: linear("self_attn.k_proj", [d_model, n_kv_heads * head_dim], std),
                        v_proj: linear("self_attn.v_proj", [d_model, n_kv_heads * head_dim], std),
                        o_proj: linear("self_attn.o_proj", [n_heads * head_dim, d_model], unit(n_heads * head_dim) * residual),
                    },
                    mlp: Mlp {
                        gate_proj: linear("mlp.gate_proj", [d_model, d_ff], std),
                        up_proj: linear("mlp.up_proj", [d_model, d_ff], std),
                        down_proj: linear("mlp.down_proj", [d_ff, d_model], unit(d_ff) * residual),
                    },
                    input_layernorm: norm(),
                    post_attention_layernorm: norm(),
                }
            })
            .collect();
        Self {
            embed_tokens: Embedding { weight: param("embed_tokens", [vocab, d_model], std) },
            layers,
            norm: norm(),
            lm_head: (!config.tied).then(|| linear("lm_head", [d_model, vocab], std)),
            heads: Vec::new(),
        }
    }

    /// Hidden vectors, after the last norm, at the wanted packed indices: `[wanted, d_model]`.
    pub fn hidden(&self, config: &ModelConfig, table: &RopeTable, plan: &Plan, wanted: Vec<i64>) -> Tensor<2> {
        let embedding = self.embed_tokens.weight.val();
        let device = embedding.device().without_autodiff();
        let rotary = Rotary::new(config, table, &plan.positions, &device);
        let wanted = ints(wanted, &device);
        let mut x = embedding.select(0, ints(plan.tokens.clone(), &device));
        for (index, layer) in self.layers.iter().enumerate() {
            let mut attended = attend(config, plan, layer.project(&x, &rotary));
            if index + 1 == self.layers.len() {
                // Only keys and values of the other rows matter from here on.
                x = x.select(0, wanted.clone());
                attended = attended.select(0, wanted.clone());
            }
            x = layer.finish(x, attended);
        }
        normalize(&self.norm, x)
    }

    /// `hidden · head`, without gradient.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.lm_head {
            Some(head) => hidden.matmul(head.weight.val().without_autodiff()),
            None => hidden.matmul(self.embed_tokens.weight.val().without_autodiff().transpose()),
        }
    }
}
