//! Key/value caches as tensors, for devices that are not the host.
//!
//! Per layer one arena `[slots · capacity, kv_heads · head_dim]` for keys and one for values; a session owns a slot, and
//! position `p` of slot `s` is row `s · capacity + p`. New rows are added onto zeros in place, which every backend can
//! do; the rows a step attends to are gathered by index.

use crate::{
    config::ModelConfig,
    decode::SessionId,
    frozen::Frozen,
    net::{MASKED, Rotary, Transformer, floats, host, ints, normalize, weigh},
    rope::RopeTable,
};
use burn::tensor::{Device, IndexingUpdateOp, Tensor};
use std::{collections::BTreeMap, sync::Arc};

/// Slots and positions the arena starts with; both double when they run out.
const FIRST_SLOTS: usize = 8;
const FIRST_CAPACITY: usize = 64;

/// All sessions of a decoder.
#[derive(Debug)]
pub(crate) struct TensorCaches {
    config: ModelConfig,
    rope: Arc<RopeTable>,
    net: Transformer,
    device: Device,
    /// Keys and values per layer. Taken out while they are written, so that the write is in place.
    arenas: Vec<[Option<Tensor<2>>; 2]>,
    n_slots: usize,
    capacity: usize,
    slots: BTreeMap<SessionId, usize>,
    free: Vec<usize>,
}

impl TensorCaches {
    pub fn new(frozen: &Frozen) -> Self {
        let mut caches = Self {
            config: frozen.config.clone(),
            rope: frozen.rope.clone(),
            net: frozen.net.clone(),
            device: frozen.device.clone(),
            arenas: Vec::new(),
            n_slots: FIRST_SLOTS,
            capacity: FIRST_CAPACITY.min(frozen.config.max_positions),
            slots: BTreeMap::new(),
            free: (0..FIRST_SLOTS).rev().collect(),
        };
        let fresh = || Some(caches.zeros(caches.n_slots * caches.capacity));
        caches.arenas = (0..caches.config.n_layers).map(|_| [fresh(), fresh()]).collect();
        caches
    }

    fn zeros(&self, rows: usize) -> Tensor<2> {
        Tensor::zeros([rows, self.config.n_kv_heads * self.config.head_dim], &self.device)
    }

    /// Replaces every arena.
    fn each(&mut self, change: impl Fn(Tensor<2>) -> Tensor<2>) {
        for arena in self.arenas.iter_mut().flatten() {
            *arena = arena.take().map(&change);
        }
    }

    /// Row indices of the first `len` positions of a slot.
    fn rows(&self, slot: usize, len: usize) -> impl Iterator<Item = i64> {
        let start = slot * self.capacity;
        (start..start + len).map(|row| row as i64)
    }

    /// Gives a session an empty slot.
    pub fn open(&mut self, id: SessionId) {
        if self.free.is_empty() {
            let more = self.zeros(self.n_slots * self.capacity);
            self.each(|arena| Tensor::cat(vec![arena, more.clone()], 0));
            self.free.extend((self.n_slots..2 * self.n_slots).rev());
            self.n_slots *= 2;
        }
        let slot = self.free.pop().expect("slots were just added");
        self.slots.insert(id, slot);
    }

    /// Frees a session's slot and clears it for the next one.
    pub fn close(&mut self, id: SessionId) {
        if let Some(slot) = self.slots.remove(&id) {
            let range = slot * self.capacity..(slot + 1) * self.capacity;
            self.each(|arena| arena.slice_fill(range.clone(), 0.0));
            self.free.push(slot);
        }
    }

    /// Copies the first `len` positions of one session into another, which is empty.
    pub fn copy(&mut self, from: SessionId, to: SessionId, len: usize) {
        let (from, to) = (self.slots[&from] * self.capacity, self.slots[&to] * self.capacity);
        self.each(|arena| {
            let past = arena.clone().slice(from..from + len);
            arena.slice_assign(to..to + len, past)
        });
    }

    fn grow(&mut self, needed: usize) {
        if needed <= self.capacity {
            return;
        }
        let capacity = needed.max(2 * self.capacity).min(self.config.max_positions);
        let (n_slots, old) = (self.n_slots, self.capacity);
        let more = self.zeros(n_slots * (capacity - old));
        self.each(|arena| {
            let [_, width] = arena.dims();
            let arena = arena.reshape([n_slots, old, width]);
            let more = more.clone().reshape([n_slots, capacity - old, width]);
            Tensor::cat(vec![arena, more], 1).reshape([n_slots * capacity, width])
        });
        self.capacity = capacity;
    }

    /// Feeds tokens and returns, per session, its last hidden vector; `None` where nothing was fed.
    ///
    /// * `starts`: per session, the number of tokens it holds already.
    pub fn feed(&mut self, feeds: &[(SessionId, &[u32])], starts: &[usize]) -> Vec<Option<Vec<f32>>> {
        let active: Vec<usize> = (0..feeds.len()).filter(|&i| !feeds[i].1.is_empty()).collect();
        if active.is_empty() {
            return vec![None; feeds.len()];
        }
        let len = |i: usize| starts[i] + feeds[i].1.len();
        self.grow(active.iter().map(|&i| len(i)).max().expect("not empty"));
        let slot = |i: usize| self.slots[&feeds[i].0];
        // Real tokens, packed; padded cells point at the session's last token.
        let (mut tokens, mut positions, mut rows, mut last) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let width = active.iter().map(|&i| feeds[i].1.len()).max().expect("not empty");
        let keys = active.iter().map(|&i| len(i)).max().expect("not empty");
        let mut cells = Vec::with_capacity(active.len() * width);
        let mut seen = Vec::with_capacity(active.len() * keys);
        for &i in &active {
            let fed = feeds[i].1;
            let first = tokens.len();
            tokens.extend(fed.iter().map(|&token| i64::from(token)));
            positions.extend(starts[i]..len(i));
            rows.extend(self.rows(slot(i), len(i)).skip(starts[i]));
            cells.extend((0..width).map(|c| (first + c.min(fed.len() - 1)) as i64));
            last.push((tokens.len() - 1) as i64);
            seen.extend(self.rows(slot(i), keys));
        }
        let group = self.config.n_heads / self.config.n_kv_heads;
        let mut mask = vec![0.0; active.len() * width * group * keys];
        for (row, cells) in mask.chunks_exact_mut(keys).enumerate() {
            let (i, column) = (active[row / (width * group)], row / group % width);
            cells[(starts[i] + column + 1).min(len(i))..].fill(MASKED);
        }
        let mask = floats(mask, [active.len(), width * group, keys], &self.device);
        // One mask per key/value head.
        let kv_heads = self.config.n_kv_heads;
        let mask = mask.unsqueeze_dim::<4>(1).expand([active.len(), kv_heads, width * group, keys]).reshape([
            active.len() * kv_heads,
            width * group,
            keys,
        ]);
        let packed: Vec<i64> =
            active.iter().enumerate().flat_map(|(b, &i)| (0..feeds[i].1.len()).map(move |c| (b * width + c) as i64)).collect();
        let index = |values: Vec<i64>| ints(values, &self.device);
        let (cells, seen, rows, packed) = (index(cells), index(seen), index(rows), index(packed));
        let rotary = Rotary::new(&self.config, &self.rope, &positions, &self.device);
        let mut x = self.net.embed_tokens.weight.val().select(0, index(tokens));
        let head_dim = self.config.head_dim;
        let split = |x: Tensor<2>, len: usize, per: usize| {
            x.reshape([active.len(), len, kv_heads, per]).swap_dims(1, 2).reshape([active.len() * kv_heads, len, per])
        };
        for (layer, arenas) in self.net.layers.iter().zip(&mut self.arenas) {
            let [q, k, v] = layer.project(&x, &rotary);
            let mut past = Vec::with_capacity(2);
            for (arena, new) in arenas.iter_mut().zip([k, v]) {
                let full = arena.take().expect("put back after each write");
                let full = full.select_assign(0, rows.clone(), new, IndexingUpdateOp::Add);
                past.push(split(full.clone().select(0, seen.clone()), keys, head_dim));
                *arena = Some(full);
            }
            let [k, v] = <[Tensor<3>; 2]>::try_from(past).expect("keys and values");
            let q = split(q.select(0, cells.clone()), width, group * head_dim).reshape([
                active.len() * kv_heads,
                width * group,
                head_dim,
            ]);
            let attended = weigh(q, k, v, mask.clone())
                .reshape([active.len(), kv_heads, width, group * head_dim])
                .swap_dims(1, 2)
                .reshape([active.len() * width, self.config.n_heads * head_dim])
                .select(0, packed.clone());
            x = layer.finish(x, attended);
        }
        let hidden = host(normalize(&self.net.norm, x.select(0, index(last))));
        let mut out = vec![None; feeds.len()];
        for (&i, hidden) in active.iter().zip(hidden.chunks_exact(self.config.d_model)) {
            out[i] = Some(hidden.to_vec());
        }
        out
    }

    /// Logits of hidden vectors: `[n, vocab]`.
    pub fn logits<'a>(&self, hidden: impl ExactSizeIterator<Item = &'a [f32]>) -> Vec<f32> {
        let n = hidden.len();
        if n == 0 {
            return Vec::new();
        }
        let hidden = floats(hidden.flatten().copied().collect(), [n, self.config.d_model], &self.device);
        host(self.net.logits(hidden))
    }
}
