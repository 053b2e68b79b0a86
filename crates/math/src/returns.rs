//! Returns and advantages along one path, backward in time.
//!
//! Only the policy's own tokens (or turns) are steps: time does not pass, and nothing is discounted, where somebody else
//! speaks. A path may come in pieces, the last one first: each function takes what the future is worth and gives what it
//! is worth from its own start on, so that a tree or a list of turns is folded piece by piece.

use crate::Float;

/// Discounted returns `G_t = r_t + γ G_{t+1}`.
///
/// * `rewards`, `out`: `[steps]`
/// * `future`: the return after the last step; 0 at a true end
///
/// Returns `G_0`, or `future` for no steps. Sutton and Barto 2018, eq. 3.9.
pub fn returns<T: Float>(rewards: &[T], future: f64, gamma: f64, out: &mut [T]) -> f64 {
    assert_eq!(rewards.len(), out.len(), "one return per reward");
    let mut g = future;
    for (r, out) in rewards.iter().zip(out).rev() {
        g = (*r).as_() + gamma * g;
        *out = T::of(g);
    }
    g
}

/// Generalised advantage estimates `A_t = δ_t + γλ A_{t+1}` with `δ_t = r_t + γ V_{t+1} − V_t`.
///
/// * `rewards`, `values`, `out`: `[steps]`
/// * `future`: `V + λA` of the step after the last one: 0 at a true end, the value of the last state where a limit cut the
///   path, or what this function gave for the piece that follows
/// * `λ = 0` gives the TD errors, `λ = 1` the returns minus the values
///
/// Returns `V_0 + λ A_0`, or `future` for no steps. Schulman et al. 2016, arXiv 1506.02438, eq. 16.
pub fn gae<T: Float>(rewards: &[T], values: &[T], future: f64, gamma: f64, lambda: f64, out: &mut [T]) -> f64 {
    assert_eq!(rewards.len(), out.len(), "one advantage per reward");
    assert_eq!(values.len(), out.len(), "one value per reward");
    let Some(last) = out.len().checked_sub(1) else { return future };
    // γ (V_{t+1} + λ A_{t+1}) holds both the bootstrap and the decayed advantage.
    let mut value: f64 = values[last].as_();
    let mut advantage = rewards[last].as_() + gamma * future - value;
    out[last] = T::of(advantage);

    // Four steps at a time, first as if nothing followed: only `(γλ)⁴ A` has to wait for the block before. This is near what
    // memory gives: eight steps at a time and wider registers gained nothing.
    let d1 = gamma * lambda;
    let (d2, d3, d4) = (d1 * d1, d1 * d1 * d1, d1 * d1 * d1 * d1);
    let (first_rewards, rewards) = rewards[..last].as_rchunks::<4>();
    let (first_values, values) = values[..last].as_rchunks::<4>();
    let (first_out, out) = out[..last].as_rchunks_mut::<4>();
    for ((r, v), out) in rewards.iter().zip(values).zip(out).rev() {
        let (r, v): ([f64; 4], [f64; 4]) = (r.map(T::as_), v.map(T::as_));
        let a3 = r[3] + gamma * value - v[3];
        let a2 = r[2] + gamma * v[3] - v[2] + d1 * a3;
        let a1 = r[1] + gamma * v[2] - v[1] + d1 * a2;
        let a0 = r[0] + gamma * v[1] - v[0] + d1 * a1;
        let block = [a0 + d4 * advantage, a1 + d3 * advantage, a2 + d2 * advantage, a3 + d1 * advantage];
        *out = block.map(T::of);
        (value, advantage) = (v[0], block[0]);
    }
    for ((r, v), out) in first_rewards.iter().zip(first_values).zip(first_out).rev() {
        let v: f64 = (*v).as_();
        advantage = (*r).as_() + gamma * value - v + d1 * advantage;
        *out = T::of(advantage);
        value = v;
    }
    value + lambda * advantage
}

/// n-step advantages `A_t = Σ_{k<n} γ^k r_{t+k} + γ^n V_{t+n} − V_t`; beyond the end, rewards are 0.
///
/// * `rewards`, `values`, `out`: `[steps]`
/// * `last`: value of the state after the last step; 0 at a true end
/// * `n`: at least 1. `n = 1` gives the TD errors, `n ≥ steps` the returns minus the values
///
/// Sutton and Barto 2018, eq. 7.1.
pub fn n_step<T: Float>(rewards: &[T], values: &[T], last: f64, gamma: f64, n: usize, out: &mut [T]) {
    assert!(n > 0, "no step is no return");
    assert_eq!(rewards.len(), out.len(), "one advantage per reward");
    assert_eq!(values.len(), out.len(), "one value per reward");
    // Σ_{k<n} γ^k δ_{t+k} is the same number; it is summed anew for each t, so that nothing cancels.
    let mut td = vec![0.0; rewards.len()];
    let mut next = last;
    for t in (0..td.len()).rev() {
        td[t] = rewards[t].as_() + gamma * next - values[t].as_();
        next = values[t].as_();
    }
    for (t, out) in out.iter_mut().enumerate() {
        let window = &td[t..td.len().min(t.saturating_add(n))];
        *out = T::of(window.iter().rev().fold(0.0, |sum, delta| delta + gamma * sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hand_worked() {
        let mut g = [0.0; 3];
        // 1 + .5·(2 + .5·(4 + .5·8)) = 4; 2 + .5·8 = 6; 4 + .5·8 = 8
        assert_eq!(returns(&[1.0, 2.0, 4.0], 8.0, 0.5, &mut g), 4.0);
        assert_eq!(g, [4.0, 6.0, 8.0]);
        let mut a = [0.0; 2];
        // δ = (1 + .5·4 − 2, 2 + .5·6 − 4) = (1, 1); A = (1 + .25·1, 1); V_0 + λ A_0 = 2 + .5·1.25
        assert_eq!(gae(&[1.0, 2.0], &[2.0, 4.0], 6.0, 0.5, 0.5, &mut a), 2.625);
        assert_eq!(a, [1.25, 1.0]);
        n_step(&[1.0, 2.0], &[2.0, 4.0], 6.0, 0.5, 2, &mut a);
        assert_eq!(a, [1.5, 1.0]);
    }

    #[test]
    fn no_steps_hand_the_future_on() {
        assert_eq!(returns::<f32>(&[], 3.0, 0.5, &mut []), 3.0);
        assert_eq!(gae::<f32>(&[], &[], 3.0, 0.5, 0.9, &mut []), 3.0);
        n_step::<f64>(&[], &[], 3.0, 0.5, 4, &mut []);
    }

    fn path() -> impl Strategy<Value = (Vec<(f64, f64)>, f64, f64, f64)> {
        (prop::collection::vec((-4.0..4.0f64, -4.0..4.0f64), 1..30), -4.0..4.0f64, 0.0..=1.0f64, 0.0..=1.0f64)
    }
    fn near(a: &[f64], b: &[f64]) -> bool {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9 * (1.0 + b.abs()))
    }

    proptest! {
        #[test]
        fn the_ends_of_lambda_and_n_are_td_and_return((steps, last, gamma, _) in path()) {
            let (r, v): (Vec<f64>, Vec<f64>) = steps.into_iter().unzip();
            let n = r.len();
            let [mut td, mut full, mut one, mut all, mut g] = std::array::from_fn(|_| vec![0.0; n]);
            gae(&r, &v, last, gamma, 0.0, &mut td);
            n_step(&r, &v, last, gamma, 1, &mut one);
            gae(&r, &v, last, gamma, 1.0, &mut full);
            n_step(&r, &v, last, gamma, n + 3, &mut all);
            returns(&r, last, gamma, &mut g);
            g.iter_mut().zip(&v).for_each(|(g, v)| *g -= v);
            prop_assert!(near(&td, &one) && near(&full, &g) && near(&all, &g));
        }

        #[test]
        fn pieces_make_the_whole((steps, last, gamma, lambda) in path(), cut in 0usize..30) {
            let (r, v): (Vec<f64>, Vec<f64>) = steps.into_iter().unzip();
            let cut = cut.min(r.len());
            let [mut whole, mut pieces] = std::array::from_fn(|_| vec![0.0; r.len()]);
            let value = gae(&r, &v, last, gamma, lambda, &mut whole);
            let (head, tail) = pieces.split_at_mut(cut);
            let between = gae(&r[cut..], &v[cut..], last, gamma, lambda, tail);
            let start = gae(&r[..cut], &v[..cut], between, gamma, lambda, head);
            prop_assert!((start - value).abs() < 1e-9 * (1.0 + value.abs()));
            prop_assert!(near(&pieces, &whole), "{pieces:?} {whole:?}");
        }

        #[test]
        fn lambda_mixes_n_step_advantages((steps, last, gamma, lambda) in path()) {
            // (1 − λ) Σ_{n<N} λ^{n−1} A^(n) + λ^{N−1} A^(N), eq. 12.3
            let (r, v): (Vec<f64>, Vec<f64>) = steps.into_iter().unzip();
            let mut want = vec![0.0; r.len()];
            let mut a = vec![0.0; r.len()];
            let big = r.len();
            for n in 1..=big {
                n_step(&r, &v, last, gamma, n, &mut a);
                let weight = lambda.powi(n as i32 - 1) * if n < big { 1.0 - lambda } else { 1.0 };
                want.iter_mut().zip(&a).for_each(|(w, a)| *w += weight * a);
            }
            gae(&r, &v, last, gamma, lambda, &mut a);
            prop_assert!(near(&a, &want), "{:?} {:?}", a, want);
        }
    }
}
