//! Weights without a gradient: what samples and scores.

use crate::{
    config::ModelConfig,
    decode::Decoder,
    error::NnError,
    host::{HostLayer, HostWeights, Packed},
    net::{Transformer, floats},
    params::{self, ParamInfo},
    random::normal,
    rope::RopeTable,
    rows::{Rows, ScoreRequest, Scores},
    score,
};
use burn::{
    module::{Param, ParamId},
    nn::Linear,
    tensor::Device,
};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};

/// A scalar head on the trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadSpec {
    /// Its name.
    pub name: String,
    /// Whether its gradient stops at the head.
    pub detach_trunk: bool,
    /// Whether it starts at 0.
    pub zero_init: bool,
}

/// Weights that are read, not trained: a reference, a behaviour copy, what a [`Model`](crate::Model) trains.
#[derive(Clone, Debug)]
pub struct Frozen {
    pub(crate) config: ModelConfig,
    pub(crate) device: Device,
    pub(crate) net: Transformer,
    pub(crate) heads: Vec<HeadSpec>,
    pub(crate) rope: Arc<RopeTable>,
    seed: u64,
    /// The weights as the host engine reads them, made when they are first needed.
    packed: OnceLock<Arc<HostWeights>>,
}

/// Where special parameters lie in parameter order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The LM head, or the embedding it is tied to.
    pub lm_head: usize,
    /// Weight of the first scalar head; its bias and the other heads follow.
    pub first_head: usize,
}

impl Frozen {
    /// Weights drawn from a seed: the same seed gives the same bits on every device.
    ///
    /// # Errors
    /// [`NnError::Config`] if the configuration is out of range.
    pub fn new(config: ModelConfig, seed: u64, device: &Device) -> Result<Self, NnError> {
        config.validate()?;
        let device = device.clone().without_autodiff();
        let net = Transformer::new(&config, seed, &device);
        let rope = Arc::new(RopeTable::new(config.max_positions, config.head_dim, config.rope_theta));
        Ok(Self { config, device, net, heads: Vec::new(), rope, seed, packed: OnceLock::new() })
    }

    /// Shape of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Where the weights lie.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Scalar heads, in the order they were added.
    pub fn heads(&self) -> &[HeadSpec] {
        &self.heads
    }

    /// Number of trainable numbers.
    pub fn n_parameters(&self) -> usize {
        self.parameters().iter().map(ParamInfo::len).sum()
    }

    /// Adds a scalar head: `hidden · w + b` on the trunk's last norm.
    ///
    /// # Errors
    /// [`NnError::DuplicateHead`] if the name is taken.
    pub fn add_head(&mut self, spec: HeadSpec) -> Result<(), NnError> {
        if self.heads.iter().any(|head| head.name == spec.name) {
            return Err(NnError::DuplicateHead(spec.name));
        }
        let d_model = self.config.d_model;
        let std = if spec.zero_init { 0.0 } else { 1.0 / (d_model as f64).sqrt() };
        let weight = normal(self.seed, &format!("head.{}", spec.name), d_model, std);
        self.net.heads.push(Linear {
            weight: Param::initialized(ParamId::new(), floats(weight, [d_model, 1], &self.device)).set_require_grad(true),
            bias: Some(Param::initialized(ParamId::new(), floats(vec![0.0], [1], &self.device)).set_require_grad(true)),
        });
        self.heads.push(spec);
        // What was packed before lacks it.
        self.packed = OnceLock::new();
        Ok(())
    }

    /// Starts decoding with these weights as they are: a decoder keeps them, whatever becomes of the model.
    pub fn decoder(&self) -> Decoder {
        Decoder::new(self)
    }

    /// Scores rows under teacher forcing, without gradient.
    ///
    /// # Errors
    /// If rows do not fit the model, or a head is unknown.
    pub fn score(&self, rows: &Rows<'_>, request: &ScoreRequest) -> Result<Scores, NnError> {
        rows.validate(&self.config)?;
        let heads = self.head_indices(&request.columns.heads)?;
        let ends = self.head_indices(&request.ends)?;
        Ok(if self.on_host() {
            score::on_host(self, rows, request, &heads, &ends)
        } else {
            score::on_device(self, rows, request, &heads, &ends)
        })
    }

    /// Moves these weights towards others: `w ← (1 − τ) · w + τ · other` (Polyak averaging; `τ = 1` copies).
    ///
    /// # Errors
    /// [`NnError::Request`] if the models differ in shape or heads.
    pub fn track(&mut self, other: &Frozen, tau: f64) -> Result<(), NnError> {
        if self.parameters() != other.parameters() {
            return Err(NnError::Request("a model can only track one of the same shape and heads".into()));
        }
        let mut others = params::flat(&other.net).into_iter();
        self.replace(|_, value| {
            let other = others.next().expect("as many parameters");
            if tau == 1.0 { other } else { value.mul_scalar(1.0 - tau) + other.mul_scalar(tau) }
        });
        Ok(())
    }

    /// Whether the host engine decodes and scores.
    pub(crate) fn on_host(&self) -> bool {
        self.device == Device::flex()
    }

    /// Names and shapes of all parameters; a head's carry its name.
    pub(crate) fn parameters(&self) -> Vec<ParamInfo> {
        let mut parameters = params::describe(&self.net);
        let first = parameters.len() - 2 * self.heads.len();
        for (pair, head) in parameters[first..].chunks_exact_mut(2).zip(&self.heads) {
            pair[0].name = format!("head.{}.weight", head.name);
            pair[1].name = format!("head.{}.bias", head.name);
        }
        parameters
    }

    pub(crate) fn layout(&self) -> Layout {
        let trunk = 2 + 9 * self.config.n_layers;
        if self.config.tied { Layout { lm_head: 0, first_head: trunk } } else { Layout { lm_head: trunk, first_head: trunk + 1 } }
    }

    /// Replaces every parameter, in parameter order.
    pub(crate) fn replace(&mut self, change: impl FnMut(usize, burn::tensor::Tensor<1>) -> burn::tensor::Tensor<1>) {
        self.net = params::map(self.net.clone(), change);
        self.packed = OnceLock::new();
    }

    /// Indices of named heads.
    pub(crate) fn head_indices(&self, names: &[String]) -> Result<Vec<usize>, NnError> {
        let find = |name: &String| {
            self.heads.iter().position(|head| &head.name == name).ok_or_else(|| NnError::UnknownHead {
                name: name.clone(),
                known: self.heads.iter().map(|head| head.name.as_str()).collect::<Vec<_>>().join(", "),
            })
        };
        names.iter().map(find).collect()
    }

    /// The weights as the host engine reads them.
    pub(crate) fn packed(&self) -> &Arc<HostWeights> {
        self.packed.get_or_init(|| Arc::new(self.pack()))
    }

    fn pack(&self) -> HostWeights {
        let ModelConfig { vocab, d_model, n_heads, n_kv_heads, head_dim, d_ff, .. } = self.config;
        let mut values = params::values(&self.net).into_iter();
        let mut next = || values.next().expect("parameters come in the order of the module's fields");
        let embedding = next();
        let layers = (0..self.config.n_layers)
            .map(|_| {
                let [q, k, v, o, gate, up, down, input_norm, post_norm] = std::array::from_fn(|_| next());
                HostLayer {
                    input_norm,
                    query_key_value: Packed::side_by_side(
                        d_model,
                        &[(&q, n_heads * head_dim), (&k, n_kv_heads * head_dim), (&v, n_kv_heads * head_dim)],
                    ),
                    output: Packed::side_by_side(n_heads * head_dim, &[(&o, d_model)]),
                    post_norm,
                    gate_up: Packed::side_by_side(d_model, &[(&gate, d_ff), (&up, d_ff)]),
                    down: Packed::side_by_side(d_ff, &[(&down, d_model)]),
                }
            })
            .collect();
        let norm = next();
        let head = if self.config.tied {
            Packed::transposed(d_model, vocab, &embedding)
        } else {
            Packed::side_by_side(d_model, &[(&next(), vocab)])
        };
        let heads = self.heads.iter().map(|_| (next(), next()[0])).collect();
        HostWeights { config: self.config.clone(), rope: self.rope.clone(), embedding, layers, norm, head, heads }
    }
}
