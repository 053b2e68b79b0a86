//! The LM head in closed form, and the scalar heads: columns on the way up, `Σ c · column` on the way down.
//!
//! With `z` the logits divided by the temperature and restricted to the support, `p = softmax(z)` and
//! `H = −Σ p log p`: `∂ log p_a / ∂z = 1_a − p` and `∂H / ∂z = −p (log p + H)`. The logits of one chunk of tokens exist
//! at a time, so memory does not grow with tokens × vocabulary, and the graph never holds them.

use crate::{
    net::{MASKED, Transformer, floats, host, ints},
    rows::{Columns, Rows},
};
use burn::tensor::{Device, IndexingUpdateOp, Tensor, activation::log_softmax};
use std::ops::Range;

/// Logits that may exist at a time.
const CHUNK_NUMBERS: usize = 1 << 22;

/// What the heads predict at each hidden vector.
#[derive(Debug)]
pub(crate) struct Targets<'a> {
    tokens: Vec<i64>,
    temperature: Vec<f32>,
    supports: Vec<Option<&'a [u32]>>,
    vocab: usize,
}

impl<'a> Targets<'a> {
    /// Targets of the sampled tokens of some rows, in that order.
    pub fn new(rows: &Rows<'a>, picked: &[u32], vocab: usize) -> Self {
        let mut targets = Self { tokens: Vec::new(), temperature: Vec::new(), supports: Vec::new(), vocab };
        for &row in picked {
            for sampled in rows.bounds[row as usize].sampled.clone() {
                targets.tokens.push(i64::from(rows.token_of(row as usize, sampled)));
                targets.temperature.push(rows.temperature_of(sampled));
                targets.supports.push(rows.support_of(sampled));
            }
        }
        targets
    }

    /// Number of sampled tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    fn chunks(&self) -> impl Iterator<Item = Range<usize>> {
        let n = (CHUNK_NUMBERS / self.vocab).max(1);
        let len = self.len();
        (0..len).step_by(n).map(move |start| start..len.min(start + n))
    }

    fn column(&self, values: &[f32], chunk: &Range<usize>, device: &Device) -> Tensor<2> {
        floats(values[chunk.clone()].to_vec(), [chunk.len(), 1], device)
    }

    /// `1 / temperature` of a chunk; `None` if it is 1 throughout.
    fn inverse_temperature(&self, chunk: &Range<usize>, device: &Device) -> Option<Tensor<2>> {
        let temperature = &self.temperature[chunk.clone()];
        let inverse = || temperature.iter().map(|t| 1.0 / t).collect();
        temperature.iter().any(|&t| t != 1.0).then(|| floats(inverse(), [chunk.len(), 1], device))
    }

    /// Zero on the support and [`MASKED`] off it; `None` if every token of the chunk was unrestricted.
    fn mask(&self, chunk: &Range<usize>, device: &Device) -> Option<Tensor<2>> {
        let supports = &self.supports[chunk.clone()];
        supports.iter().any(Option::is_some).then(|| {
            let mut mask = vec![0.0; chunk.len() * self.vocab];
            for (row, support) in mask.chunks_exact_mut(self.vocab).zip(supports) {
                if let Some(support) = support {
                    row.fill(MASKED);
                    support.iter().for_each(|&token| row[token as usize] = 0.0);
                }
            }
            floats(mask, [chunk.len(), self.vocab], device)
        })
    }
}

/// Heads evaluated on hidden vectors, without gradient.
#[derive(Debug)]
pub(crate) struct Evaluated {
    /// The columns asked for.
    pub columns: Columns,
    /// Log-probabilities of all tokens, kept for the way down if they fit one chunk.
    kept: Option<Tensor<2>>,
}

/// `∂L/∂` everything the heads touch.
#[derive(Debug)]
pub(crate) struct HeadGradient {
    /// With respect to the hidden vectors.
    pub hidden: Tensor<2>,
    /// With respect to the LM head, flat, in the layout of its parameter.
    pub lm_head: Tensor<1>,
    /// Per head asked for: with respect to its weight and bias.
    pub heads: Vec<(Tensor<1>, Tensor<1>)>,
}

fn log_probabilities(net: &Transformer, hidden: &Tensor<2>, targets: &Targets<'_>, chunk: &Range<usize>) -> Tensor<2> {
    let device = hidden.device();
    let mut logits = net.logits(hidden.clone().narrow(0, chunk.start, chunk.len()));
    if let Some(inverse) = targets.inverse_temperature(chunk, &device) {
        logits = logits * inverse;
    }
    if let Some(mask) = targets.mask(chunk, &device) {
        logits = logits + mask;
    }
    log_softmax(logits, 1)
}

/// Values of one scalar head.
pub(crate) fn head_values(net: &Transformer, head: usize, hidden: Tensor<2>) -> Vec<f32> {
    let head = &net.heads[head];
    let bias = head.bias.as_ref().expect("scalar heads have a bias").val().without_autodiff();
    host(hidden.matmul(head.weight.val().without_autodiff()) + bias.unsqueeze())
}

/// Computes the columns at `hidden`, `[sampled, d_model]`.
pub(crate) fn evaluate(
    net: &Transformer,
    hidden: &Tensor<2>,
    targets: &Targets<'_>,
    entropy: bool,
    heads: &[usize],
) -> Evaluated {
    let device = hidden.device();
    let mut columns = Columns { entropy: entropy.then(Vec::new), ..Columns::default() };
    let mut kept = None;
    for chunk in targets.chunks() {
        let log_p = log_probabilities(net, hidden, targets, &chunk);
        let chosen = ints(targets.tokens[chunk.clone()].to_vec(), &device).reshape([chunk.len(), 1]);
        columns.logprob.extend(host(log_p.clone().gather(1, chosen)));
        if let Some(entropy) = &mut columns.entropy {
            entropy.extend(host((log_p.clone().exp() * log_p.clone()).sum_dim(1).neg()));
        }
        kept = (chunk.len() == targets.len()).then_some(log_p);
    }
    columns.heads = heads.iter().map(|&head| head_values(net, head, hidden.clone())).collect();
    Evaluated { columns, kept }
}

/// Carries coefficients `∂L/∂column` down to the hidden vectors and the heads' weights.
///
/// * `detached`: per head asked for, whether its gradient stops at the head.
pub(crate) fn differentiate(
    net: &Transformer,
    hidden: &Tensor<2>,
    targets: &Targets<'_>,
    evaluated: Evaluated,
    coefficients: &Columns,
    heads: &[usize],
    detached: &[bool],
) -> HeadGradient {
    let device = hidden.device();
    let tied = net.lm_head.is_none();
    let weight = match &net.lm_head {
        Some(head) => head.weight.val().without_autodiff().transpose(),
        None => net.embed_tokens.weight.val().without_autodiff(),
    };
    let mut kept = evaluated.kept;
    let mut hidden_parts = Vec::new();
    let mut lm_head: Option<Tensor<2>> = None;
    for chunk in targets.chunks() {
        let log_p = kept.take().unwrap_or_else(|| log_probabilities(net, hidden, targets, &chunk));
        let p = log_p.clone().exp();
        let on_logprob = targets.column(&coefficients.logprob, &chunk, &device);
        let chosen = ints(targets.tokens[chunk.clone()].to_vec(), &device).reshape([chunk.len(), 1]);
        let mut from_p = on_logprob.clone().neg().expand([chunk.len(), targets.vocab]);
        if let Some(coefficient) = &coefficients.entropy {
            let entropy = (p.clone() * log_p.clone()).sum_dim(1).neg();
            from_p = from_p - (log_p + entropy) * targets.column(coefficient, &chunk, &device);
        }
        let mut dz = (p * from_p).scatter(1, chosen, on_logprob, IndexingUpdateOp::Add);
        if let Some(inverse) = targets.inverse_temperature(&chunk, &device) {
            dz = dz * inverse;
        }
        let inputs = hidden.clone().narrow(0, chunk.start, chunk.len());
        hidden_parts.push(dz.clone().matmul(weight.clone()));
        let part = if tied { dz.transpose().matmul(inputs) } else { inputs.transpose().matmul(dz) };
        lm_head = Some(match lm_head {
            Some(sum) => sum + part,
            None => part,
        });
    }
    let mut d_hidden = if hidden_parts.len() == 1 { hidden_parts.remove(0) } else { Tensor::cat(hidden_parts, 0) };
    let everything = 0..targets.len();
    let mut on_heads = Vec::new();
    for ((&head, &detached), coefficients) in heads.iter().zip(detached).zip(&coefficients.heads) {
        let c = targets.column(coefficients, &everything, &device);
        let on_weight = hidden.clone().transpose().matmul(c.clone()).reshape([-1]);
        on_heads.push((on_weight, c.clone().sum_dim(0).reshape([-1])));
        if !detached {
            d_hidden = d_hidden + c.matmul(net.heads[head].weight.val().without_autodiff().transpose());
        }
    }
    HeadGradient {
        hidden: d_hidden,
        lm_head: lm_head.expect("there is at least one sampled token").reshape([-1]),
        heads: on_heads,
    }
}
