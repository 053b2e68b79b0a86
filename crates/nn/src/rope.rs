//! Rotary position angles in the rotate-half convention of HF Llama.

/// Cosines and sines of `position · θ^(−2i / head_dim)`, computed in `f64`.
#[derive(Debug)]
pub(crate) struct RopeTable {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RopeTable {
    /// Angles of `max_positions` positions.
    pub fn new(max_positions: usize, head_dim: usize, theta: f64) -> Self {
        let half = head_dim / 2;
        let angles = (0..max_positions * half).map(|i| {
            let (position, channel) = (i / half, i % half);
            position as f64 * theta.powf(-2.0 * channel as f64 / head_dim as f64)
        });
        let (cos, sin) = angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
        Self { half, cos, sin }
    }

    /// Cosines and sines at one position, each `[head_dim / 2]`.
    pub fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let range = position * self.half..(position + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}
