//! Vector arithmetic of the host engine.
//!
//! Everything here is plain safe Rust over fixed-size lanes, written so that the compiler turns it into vector code; the
//! functions are `inline(always)` and take their instruction set from the caller (see [`dispatch`](super::dispatch)).
//! Each output element is one chain of multiply-adds in a fixed order, whatever the number of rows that are computed
//! together, so results do not depend on how work is cut into blocks.

/// Width of a panel: one AVX-512 register of `f32`.
pub(crate) const LANES: usize = 16;

/// One panel row.
pub(crate) type Lane = [f32; LANES];

/// An instruction set, as far as the source has to know it.
pub(crate) trait Isa {
    /// Whether multiply-add is one instruction.
    const FMA: bool;
    /// Most rows whose sums fit into the registers.
    const HEIGHT: usize;
}

/// 512-bit vectors, 32 registers.
#[derive(Debug)]
pub(crate) struct Avx512;
impl Isa for Avx512 {
    const FMA: bool = true;
    const HEIGHT: usize = 8;
}

/// 256-bit vectors, 16 registers.
#[derive(Debug)]
pub(crate) struct Avx2;
impl Isa for Avx2 {
    const FMA: bool = true;
    const HEIGHT: usize = 6;
}

/// Whatever the target always has.
#[derive(Debug)]
pub(crate) struct Portable;
impl Isa for Portable {
    const FMA: bool = cfg!(target_arch = "aarch64");
    const HEIGHT: usize = if cfg!(target_arch = "aarch64") { 6 } else { 2 };
}

/// `a · b + c`, fused where the target has it in hardware.
#[inline(always)]
fn mul_add<I: Isa>(a: f32, b: f32, c: f32) -> f32 {
    if I::FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `acc += a · w`, lane by lane.
#[inline(always)]
fn lane_mul_add<I: Isa>(acc: &mut Lane, a: f32, w: &Lane) {
    for l in 0..LANES {
        acc[l] = mul_add::<I>(a, w[l], acc[l]);
    }
}

/// Sums of `MR` rows against `NP` panels.
pub(crate) type Sums<const MR: usize, const NP: usize> = [[Lane; MR]; NP];

/// Accumulates `MR` rows against `NP` panels: `sums[p][r] += Σ_k rows[k][r] · panels[p][k]`, in order of `k`.
#[inline(always)]
pub(crate) fn accumulate<I: Isa, const MR: usize, const NP: usize>(
    rows: &[[f32; MR]],
    panels: [&[Lane]; NP],
    sums: &mut Sums<MR, NP>,
) {
    const { assert!(MR <= 8 && NP <= 4) };
    let panels = panels.map(|panel| &panel[..rows.len()]);
    let mut acc = *sums;
    for (k, row) in rows.iter().enumerate() {
        // Constant indices keep the sums in registers; loops over them are not always unrolled.
        macro_rules! rows {
            ($p:literal: $($r:literal)*) => {
                if $p < NP {
                    let w = &panels[$p % NP][k];
                    $(if $r < MR { lane_mul_add::<I>(&mut acc[$p % NP][$r % MR], row[$r % MR], w); })*
                }
            };
        }
        rows!(0: 0 1 2 3 4 5 6 7);
        rows!(1: 0 1 2 3 4 5 6 7);
        rows!(2: 0 1 2 3 4 5 6 7);
        rows!(3: 0 1 2 3 4 5 6 7);
    }
    *sums = acc;
}

/// `exp(x)` to about one unit in the last place; inputs below −87 give a number near the smallest normal one.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer kept in the low bits
    let x = x.clamp(-87.0, 88.0);
    let shifted = mul_add::<I>(x, std::f32::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = mul_add::<I>(n, -0.693_359_4, x);
    let r = mul_add::<I>(n, 2.121_944_4e-4, r);
    let p = 1.987_569_1e-4;
    let p = mul_add::<I>(p, r, 1.398_199_9e-3);
    let p = mul_add::<I>(p, r, 8.333_452e-3);
    let p = mul_add::<I>(p, r, 4.166_579_6e-2);
    let p = mul_add::<I>(p, r, 1.666_666_5e-1);
    let p = mul_add::<I>(p, r, 0.5);
    let y = mul_add::<I>(p, r * r, r) + 1.0;
    let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    y * scale
}

/// Sum of a lane's elements, in a fixed tree order.
#[inline(always)]
pub(crate) fn horizontal_sum(x: &Lane) -> f32 {
    let mut x = *x;
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            x[l] += x[l + width];
        }
        width /= 2;
    }
    x[0]
}

/// Largest of a lane's elements.
#[inline(always)]
fn horizontal_max(x: &Lane) -> f32 {
    let mut max = f32::NEG_INFINITY;
    for &v in x {
        max = if v > max { v } else { max };
    }
    max
}

/// Root-mean-square normalisation of one row: `out = x / sqrt(mean(x²) + ε) · gain`.
#[inline(always)]
pub(crate) fn rms_norm<I: Isa>(x: &[f32], gain: &[f32], epsilon: f32, out: &mut [f32]) {
    let (body, tail) = x.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in body {
        for l in 0..LANES {
            sums[l] = mul_add::<I>(chunk[l], chunk[l], sums[l]);
        }
    }
    let mut sum = horizontal_sum(&sums);
    for &v in tail {
        sum = mul_add::<I>(v, v, sum);
    }
    let scale = 1.0 / (sum / x.len() as f32 + epsilon).sqrt();
    for ((o, &v), &g) in out.iter_mut().zip(x).zip(gain) {
        *o = v * scale * g;
    }
}

/// `out = silu(gate) · up`, for one row that holds `gate` and then `up`.
#[inline(always)]
pub(crate) fn gated<I: Isa>(gate_up: &[f32], out: &mut [f32]) {
    let (gate, up) = gate_up.split_at(out.len());
    for ((o, &g), &u) in out.iter_mut().zip(gate).zip(up) {
        *o = g / (1.0 + exp::<I>(-g)) * u;
    }
}

/// Rotates one head in place, in the rotate-half convention; `cos` and `sin` are half a head long.
#[inline(always)]
pub(crate) fn rotate<I: Isa>(head: &mut [f32], cos: &[f32], sin: &[f32], scale: f32) {
    let (first, second) = head.split_at_mut(cos.len());
    for (((a, b), &c), &s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
        let (x, y) = (*a, *b);
        *a = mul_add::<I>(x, c, -(y * s)) * scale;
        *b = mul_add::<I>(y, c, x * s) * scale;
    }
}

/// Turns the first `n` scores into `exp(score − max)` and the rest into 0; returns their sum.
#[inline(always)]
pub(crate) fn exp_shifted<I: Isa>(scores: &mut [Lane], n: usize) -> f32 {
    let (whole, rest) = (n / LANES, n % LANES);
    if rest > 0 {
        scores[whole][rest..].fill(f32::NEG_INFINITY);
    }
    let used = whole + usize::from(rest > 0);
    let mut max = [f32::NEG_INFINITY; LANES];
    for chunk in &scores[..used] {
        for l in 0..LANES {
            max[l] = if chunk[l] > max[l] { chunk[l] } else { max[l] };
        }
    }
    let max = horizontal_max(&max);
    let mut sums = [0.0; LANES];
    for (b, chunk) in scores[..used].iter_mut().enumerate() {
        for score in chunk.iter_mut() {
            *score = exp::<I>(*score - max);
        }
        if b == whole {
            chunk[rest..].fill(0.0);
        }
        for l in 0..LANES {
            sums[l] += chunk[l];
        }
    }
    for chunk in &mut scores[used..] {
        *chunk = [0.0; LANES];
    }
    horizontal_sum(&sums)
}
