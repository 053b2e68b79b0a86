//! The forward pass over ragged rows with a block-wise key/value cache.

use super::kernel::{Isa, LANES, Lane, accumulate, exp_shifted, gated, rms_norm, rotate};
use super::weights::{HostLayer, HostWeights, Packed};
use crate::config::ModelConfig;
use std::{ops::Range, sync::Arc};

/// Rows that pass through a layer together: enough for the weights to be read rarely, few enough to stay in cache.
const CHUNK: usize = 96;

/// Where one head's keys and values lie inside a block.
///
/// A block holds [`LANES`] positions of every layer. Keys are stored with positions in lanes, `[head_dim]` lanes;
/// values with channels in lanes, `[ceil(head_dim / LANES)][LANES positions]` lanes.
#[derive(Clone, Copy, Debug)]
struct BlockLayout {
    head_dim: usize,
    value_panels: usize,
    n_kv_heads: usize,
    n_layers: usize,
}

impl BlockLayout {
    fn of(config: &ModelConfig) -> Self {
        Self {
            head_dim: config.head_dim,
            value_panels: config.head_dim.div_ceil(LANES),
            n_kv_heads: config.n_kv_heads,
            n_layers: config.n_layers,
        }
    }

    fn head_len(&self) -> usize {
        self.head_dim + self.value_panels * LANES
    }

    fn len(&self) -> usize {
        self.head_len() * self.n_kv_heads * self.n_layers
    }

    fn keys(&self, layer: usize, head: usize) -> Range<usize> {
        let start = (layer * self.n_kv_heads + head) * self.head_len();
        start..start + self.head_dim
    }

    /// `n` panels of values from panel `first`.
    fn values(&self, layer: usize, head: usize, first: usize, n: usize) -> Range<usize> {
        let start = self.keys(layer, head).end + first * LANES;
        start..start + n * LANES
    }
}

/// Keys and values of one sequence. Blocks are shared between forks and copied when one of them is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    len: usize,
    blocks: Vec<Arc<Vec<Lane>>>,
}

impl Cache {
    /// Makes room for `n` tokens in blocks that nobody else reads.
    fn reserve(&mut self, n: usize, layout: BlockLayout) {
        let first = self.len / LANES;
        for block in self.blocks.iter_mut().skip(first) {
            Arc::make_mut(block);
        }
        let needed = (self.len + n).div_ceil(LANES);
        while self.blocks.len() < needed {
            self.blocks.push(Arc::new(vec![[0.0; LANES]; layout.len()]));
        }
    }
}

/// Tokens to feed to one cache, and the positions among them whose hidden vectors are wanted.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    /// The sequence so far.
    pub cache: &'a mut Cache,
    /// The tokens that follow.
    pub tokens: &'a [u32],
    /// Indices into `tokens`, ascending.
    pub wanted: &'a [usize],
}

/// Buffers that are reused between calls.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    rows: Vec<Row>,
    residual: Vec<f32>,
    normed: Vec<f32>,
    query_key_value: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    gated: Vec<f32>,
    interleaved: Vec<f32>,
    attention: AttendScratch,
}

/// One token on its way through the layers.
#[derive(Clone, Copy, Debug)]
struct Row {
    feed: usize,
    position: usize,
    token: u32,
    wanted: bool,
}

/// Copies up to `MR` rows into one, element by element: `out[k][r] = rows[r][k]`; missing rows are zero.
#[inline(always)]
fn interleave<'a, const MR: usize>(
    rows: impl Iterator<Item = &'a [f32]>,
    depth: usize,
    buffer: &'a mut Vec<f32>,
) -> &'a [[f32; MR]] {
    buffer.clear();
    buffer.resize(depth * MR, 0.0);
    let out = buffer.as_chunks_mut::<MR>().0;
    for (r, row) in rows.enumerate() {
        for (o, &v) in out.iter_mut().zip(row) {
            o[r % MR] = v;
        }
    }
    out
}

/// Runs `$body` with the block height `$MR` that holds `$n` rows and the number of panels `$NP` that go with it: enough
/// independent sums to hide the latency of an addition, not more than there are registers.
macro_rules! with_block {
    ($n:expr, $MR:ident, $NP:ident => $body:expr) => {{
        macro_rules! block {
            ($mr:literal, $np:literal) => {{
                const $MR: usize = $mr;
                const $NP: usize = $np;
                $body
            }};
        }
        match $n {
            0..=1 if I::HEIGHT > 2 => block!(1, 4),
            0..=1 => block!(1, 2),
            2 if I::HEIGHT > 6 => block!(2, 4),
            2 if I::HEIGHT > 2 => block!(2, 2),
            2 => block!(2, 1),
            3..=4 if I::HEIGHT > 6 => block!(4, 4),
            3..=4 => block!(4, 1),
            _ if I::HEIGHT > 6 => block!(8, 2),
            _ => block!(6, 1),
        }
    }};
}

/// `out = x · w` for whole rows, or `out += x · w`.
#[inline(always)]
fn matmul<I: Isa, const ADD: bool>(x: &[f32], w: &Packed, out: &mut [f32], buffer: &mut Vec<f32>) {
    for (x, out) in x.chunks(I::HEIGHT * w.depth).zip(out.chunks_mut(I::HEIGHT * w.width)) {
        with_block!(x.len() / w.depth, MR, NP => matmul_block::<I, ADD, MR, NP>(x, w, out, buffer));
    }
}

#[inline(always)]
fn matmul_block<I: Isa, const ADD: bool, const MR: usize, const NP: usize>(
    x: &[f32],
    w: &Packed,
    out: &mut [f32],
    buffer: &mut Vec<f32>,
) {
    let rows = interleave::<MR>(x.chunks_exact(w.depth), w.depth, buffer);
    let groups = w.panels.chunks_exact(NP * w.depth);
    let rest = groups.remainder();
    let mut start = 0;
    for group in groups {
        let mut sums = [[[0.0; LANES]; MR]; NP];
        accumulate::<I, MR, NP>(rows, std::array::from_fn(|p| &group[p * w.depth..]), &mut sums);
        for sums in &sums {
            write_lanes::<ADD>(sums, out, w.width, start);
            start += LANES;
        }
    }
    for panel in rest.chunks_exact(w.depth) {
        let mut sums = [[[0.0; LANES]; MR]; 1];
        accumulate::<I, MR, 1>(rows, [panel], &mut sums);
        write_lanes::<ADD>(&sums[0], out, w.width, start);
        start += LANES;
    }
}

/// Writes sums of several rows to the columns from `start`, or adds them there; lanes beyond `width` are padding.
#[inline(always)]
fn write_lanes<const ADD: bool>(sums: &[Lane], out: &mut [f32], width: usize, start: usize) {
    for (row, sums) in out.chunks_exact_mut(width).zip(sums) {
        let row = &mut row[start..];
        if let Some(row) = row.first_chunk_mut::<LANES>() {
            for l in 0..LANES {
                row[l] = if ADD { row[l] + sums[l] } else { sums[l] };
            }
        } else {
            for (o, &s) in row.iter_mut().zip(sums) {
                *o = if ADD { *o + s } else { s };
            }
        }
    }
}

/// One key/value head of one layer, as [`attend`] sees it.
#[derive(Clone, Copy, Debug)]
struct Head<'a> {
    config: &'a ModelConfig,
    layout: BlockLayout,
    layer: usize,
    index: usize,
    /// The sequence that is attended to.
    cache: &'a Cache,
    /// Rows that attend, positions ascending.
    rows: &'a [Row],
    /// Their projections.
    query_key_value: &'a [f32],
}

impl Head<'_> {
    /// Query heads that share this head.
    fn group(&self) -> usize {
        self.config.n_heads / self.config.n_kv_heads
    }

    /// Row of a pair (row, query head), and the first column of its query.
    fn place(&self, pair: usize) -> (usize, usize) {
        (pair / self.group(), (self.index * self.group() + pair % self.group()) * self.config.head_dim)
    }
}

/// Buffers of [`attend`].
#[derive(Debug, Default)]
struct AttendScratch {
    queries: Vec<f32>,
    scores: Vec<Lane>,
    weights: Vec<f32>,
}

/// Scores of interleaved queries against `NP` blocks of keys from block `b`.
#[inline(always)]
fn score_blocks<I: Isa, const MR: usize, const NP: usize>(
    queries: &[[f32; MR]],
    blocks: &[Arc<Vec<Lane>>; NP],
    keys: &Range<usize>,
    b: usize,
    n_blocks: usize,
    scores: &mut [Lane],
) {
    let mut sums = [[[0.0; LANES]; MR]; NP];
    accumulate::<I, MR, NP>(queries, std::array::from_fn(|p| &blocks[p][keys.clone()]), &mut sums);
    for (p, sums) in sums.iter().enumerate() {
        for (r, sums) in sums.iter().enumerate() {
            scores[r * n_blocks + b + p] = *sums;
        }
    }
}

/// Weighted sums of `NP` panels of values from panel `first`, written to `attended`.
#[inline(always)]
fn weigh_panels<I: Isa, const MR: usize, const NP: usize>(
    head: &Head<'_>,
    pairs: Range<usize>,
    weights: &[[f32; MR]],
    totals: &[f32; MR],
    first: usize,
    attended: &mut [f32],
) {
    let mut sums = [[[0.0; LANES]; MR]; NP];
    for (block, weights) in head.cache.blocks.iter().zip(weights.chunks_exact(LANES)) {
        let values = &block[head.layout.values(head.layer, head.index, first, NP)];
        accumulate::<I, MR, NP>(weights, std::array::from_fn(|p| &values[p * LANES..]), &mut sums);
    }
    let out_width = head.config.n_heads * head.config.head_dim;
    for (p, sums) in sums.iter().enumerate() {
        let start = (first + p) * LANES;
        let width = usize::min(LANES, head.config.head_dim - start);
        for ((pair, sums), total) in pairs.clone().zip(sums).zip(totals) {
            let (row, column) = head.place(pair);
            let out = &mut attended[row * out_width + column + start..][..width];
            for (o, s) in out.iter_mut().zip(sums) {
                *o = s / total;
            }
        }
    }
}

/// Attention of one key/value head for up to `MR` pairs of (row, query head), taken in order.
#[inline(always)]
fn attend<I: Isa, const MR: usize, const NP: usize>(
    head: &Head<'_>,
    pairs: Range<usize>,
    attended: &mut [f32],
    scratch: &mut AttendScratch,
) {
    let (head_dim, width) = (head.config.head_dim, head.config.qkv_width());
    let AttendScratch { queries, scores, weights } = scratch;
    let queries = interleave::<MR>(
        pairs.clone().map(|pair| {
            let (row, column) = head.place(pair);
            &head.query_key_value[row * width + column..][..head_dim]
        }),
        head_dim,
        queries,
    );
    // Positions ascend, so the last pair sees most.
    let n_blocks = head.rows[head.place(pairs.end - 1).0].position / LANES + 1;
    scores.resize(MR * n_blocks, [0.0; LANES]);
    let keys = head.layout.keys(head.layer, head.index);
    let (groups, rest) = head.cache.blocks[..n_blocks].as_chunks::<NP>();
    for (g, blocks) in groups.iter().enumerate() {
        score_blocks::<I, MR, NP>(queries, blocks, &keys, g * NP, n_blocks, scores);
    }
    for (i, block) in rest.as_chunks::<1>().0.iter().enumerate() {
        score_blocks::<I, MR, 1>(queries, block, &keys, groups.len() * NP + i, n_blocks, scores);
    }
    let mut totals = [1.0; MR];
    for ((pair, scores), total) in pairs.clone().zip(scores.chunks_exact_mut(n_blocks)).zip(&mut totals) {
        *total = exp_shifted::<I>(scores, head.rows[head.place(pair).0].position + 1);
    }
    let weights = interleave::<MR>(
        scores.chunks_exact(n_blocks).take(pairs.len()).map(|row| row.as_flattened()),
        n_blocks * LANES,
        weights,
    );
    let mut panel = 0;
    while panel < head.layout.value_panels {
        let left = head.layout.value_panels - panel;
        if NP >= 4 && left >= 4 {
            weigh_panels::<I, MR, 4>(head, pairs.clone(), weights, &totals, panel, attended);
            panel += 4;
        } else if NP >= 2 && left >= 2 {
            weigh_panels::<I, MR, 2>(head, pairs.clone(), weights, &totals, panel, attended);
            panel += 2;
        } else {
            weigh_panels::<I, MR, 1>(head, pairs.clone(), weights, &totals, panel, attended);
            panel += 1;
        }
    }
}

/// Writes the keys and values of one row into its cache.
#[inline(always)]
fn store(config: &ModelConfig, layer: usize, cache: &mut Cache, position: usize, query_key_value: &[f32]) {
    let layout = BlockLayout::of(config);
    let head_dim = config.head_dim;
    let (_, key_value) = query_key_value.split_at(config.n_heads * head_dim);
    let (keys, values) = key_value.split_at(config.n_kv_heads * head_dim);
    let lane = position % LANES;
    let block = Arc::get_mut(&mut cache.blocks[position / LANES]).expect("`reserve` made the block unique");
    for head in 0..config.n_kv_heads {
        let key = &keys[head * head_dim..][..head_dim];
        for (slot, &k) in block[layout.keys(layer, head)].iter_mut().zip(key) {
            slot[lane] = k;
        }
        let value = &values[head * head_dim..][..head_dim];
        for (panel, value) in value.chunks(LANES).enumerate() {
            let slot = &mut block[layout.values(layer, head, panel, 1)][lane];
            slot[..value.len()].copy_from_slice(value);
        }
    }
}

/// Projects, rotates and stores queries, keys and values of all rows.
#[inline(always)]
fn project<I: Isa>(weights: &HostWeights, index: usize, layer: &HostLayer, feeds: &mut [Feed<'_>], scratch: &mut Scratch) {
    let config = &weights.config;
    let (d_model, head_dim, width) = (config.d_model, config.head_dim, config.qkv_width());
    let n = scratch.rows.len();
    scratch.normed.resize(n * d_model, 0.0);
    for (x, out) in scratch.residual.chunks_exact(d_model).zip(scratch.normed.chunks_exact_mut(d_model)) {
        rms_norm::<I>(x, &layer.input_norm, config.norm_eps, out);
    }
    scratch.query_key_value.resize(n * width, 0.0);
    matmul::<I, false>(&scratch.normed, &layer.query_key_value, &mut scratch.query_key_value, &mut scratch.interleaved);
    let query_scale = 1.0 / (head_dim as f32).sqrt();
    for (row, qkv) in scratch.rows.iter().zip(scratch.query_key_value.chunks_exact_mut(width)) {
        let (cos, sin) = weights.rope.at(row.position);
        for (head, values) in qkv.chunks_exact_mut(head_dim).take(config.n_heads + config.n_kv_heads).enumerate() {
            let scale = if head < config.n_heads { query_scale } else { 1.0 };
            rotate::<I>(values, cos, sin, scale);
        }
        store(config, index, feeds[row.feed].cache, row.position, qkv);
    }
}

/// Attention of all rows, each over its own sequence.
#[inline(always)]
fn attend_all<I: Isa>(weights: &HostWeights, index: usize, feeds: &[Feed<'_>], scratch: &mut Scratch) {
    let config = &weights.config;
    let (in_width, out_width) = (config.qkv_width(), config.n_heads * config.head_dim);
    let Scratch { rows, query_key_value, attended, attention, .. } = scratch;
    attended.resize(rows.len() * out_width, 0.0);
    let mut first = 0;
    for rows in rows.chunk_by(|a, b| a.feed == b.feed) {
        let out = &mut attended[first * out_width..][..rows.len() * out_width];
        for kv_head in 0..config.n_kv_heads {
            let head = Head {
                config,
                layout: BlockLayout::of(config),
                layer: index,
                index: kv_head,
                cache: feeds[rows[0].feed].cache,
                rows,
                query_key_value: &query_key_value[first * in_width..][..rows.len() * in_width],
            };
            let n_pairs = rows.len() * head.group();
            for start in (0..n_pairs).step_by(I::HEIGHT) {
                let pairs = start..usize::min(start + I::HEIGHT, n_pairs);
                with_block!(pairs.len(), MR, NP => attend::<I, MR, NP>(&head, pairs, out, attention));
            }
        }
        first += rows.len();
    }
}

/// Adds attention output and feed-forward part to the residual stream.
#[inline(always)]
fn finish_layer<I: Isa>(weights: &HostWeights, layer: &HostLayer, scratch: &mut Scratch) {
    let (d_model, d_ff) = (weights.config.d_model, weights.config.d_ff);
    let n = scratch.rows.len();
    matmul::<I, true>(&scratch.attended, &layer.output, &mut scratch.residual, &mut scratch.interleaved);
    scratch.normed.resize(n * d_model, 0.0);
    for (x, out) in scratch.residual.chunks_exact(d_model).zip(scratch.normed.chunks_exact_mut(d_model)) {
        rms_norm::<I>(x, &layer.post_norm, weights.config.norm_eps, out);
    }
    scratch.gate_up.resize(n * 2 * d_ff, 0.0);
    matmul::<I, false>(&scratch.normed, &layer.gate_up, &mut scratch.gate_up, &mut scratch.interleaved);
    scratch.gated.resize(n * d_ff, 0.0);
    for (gate_up, out) in scratch.gate_up.chunks_exact(2 * d_ff).zip(scratch.gated.chunks_exact_mut(d_ff)) {
        gated::<I>(gate_up, out);
    }
    matmul::<I, true>(&scratch.gated, &layer.down, &mut scratch.residual, &mut scratch.interleaved);
}

/// Drops the rows whose hidden vectors nobody wants; their keys and values are already stored.
#[inline(always)]
fn keep_wanted(config: &ModelConfig, scratch: &mut Scratch) {
    let (d_model, width) = (config.d_model, config.qkv_width());
    let mut kept = 0;
    for i in 0..scratch.rows.len() {
        if scratch.rows[i].wanted {
            scratch.rows[kept] = scratch.rows[i];
            scratch.residual.copy_within(i * d_model..(i + 1) * d_model, kept * d_model);
            scratch.query_key_value.copy_within(i * width..(i + 1) * width, kept * width);
            kept += 1;
        }
    }
    scratch.rows.truncate(kept);
    scratch.residual.truncate(kept * d_model);
    scratch.query_key_value.truncate(kept * width);
}

/// Feeds tokens to their caches and appends the wanted hidden vectors, after the last norm, to `out`.
#[inline(always)]
pub(super) fn hidden<I: Isa>(weights: &HostWeights, feeds: &mut [Feed<'_>], out: &mut Vec<f32>, scratch: &mut Scratch) {
    let config = &weights.config;
    let d_model = config.d_model;
    let layout = BlockLayout::of(config);
    let mut rows = Vec::new();
    for (feed, f) in feeds.iter_mut().enumerate() {
        f.cache.reserve(f.tokens.len(), layout);
        let mut wanted = f.wanted.iter().peekable();
        for (i, &token) in f.tokens.iter().enumerate() {
            let wanted = wanted.next_if(|&&w| w == i).is_some();
            rows.push(Row { feed, position: f.cache.len + i, token, wanted });
        }
    }
    for chunk in rows.chunks(CHUNK) {
        scratch.rows.clear();
        scratch.rows.extend_from_slice(chunk);
        scratch.residual.clear();
        for row in chunk {
            scratch.residual.extend_from_slice(&weights.embedding[row.token as usize * d_model..][..d_model]);
        }
        for (index, layer) in weights.layers.iter().enumerate() {
            project::<I>(weights, index, layer, feeds, scratch);
            if index + 1 == weights.layers.len() {
                keep_wanted(config, scratch);
            }
            attend_all::<I>(weights, index, feeds, scratch);
            finish_layer::<I>(weights, layer, scratch);
        }
        for x in scratch.residual.chunks_exact(d_model) {
            let start = out.len();
            out.resize(start + d_model, 0.0);
            rms_norm::<I>(x, &weights.norm, config.norm_eps, &mut out[start..]);
        }
    }
    for f in feeds {
        f.cache.len += f.tokens.len();
    }
}

/// Logits of hidden vectors: `[n, vocab]`.
#[inline(always)]
pub(super) fn logits<I: Isa>(weights: &HostWeights, hidden: &[f32], scratch: &mut Scratch) -> Vec<f32> {
    let n = hidden.len() / weights.config.d_model;
    let mut out = vec![0.0; n * weights.config.vocab];
    matmul::<I, false>(hidden, &weights.head, &mut out, &mut scratch.interleaved);
    out
}
