//! AdamW on flat parameter vectors.

use crate::train::FlatGradients;
use burn::tensor::Tensor;

/// One AdamW step (Loshchilov & Hutter, arXiv 1711.05101), in PyTorch's order of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate, at least 0.
    pub learning_rate: f64,
    /// Decay of the first moment, in 0..1.
    pub beta1: f64,
    /// Decay of the second moment, in 0..1.
    pub beta2: f64,
    /// Added to the root of the second moment, positive.
    pub epsilon: f64,
    /// Decoupled decay, at least 0. Applies to matrices, not to norms and biases.
    pub weight_decay: f64,
    /// Largest global gradient norm; `None` does not clip.
    pub clip_norm: Option<f64>,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Whether the step was left out because the gradient was not finite.
    pub skipped: bool,
    /// Backward passes that the gradient is the sum of: one for each micro-batch that a coefficient weighs.
    pub passes: u64,
}

/// Moments of one parameter.
#[derive(Clone, Debug)]
pub(crate) struct Moments {
    /// Steps this parameter took part in.
    pub steps: u64,
    /// Running mean of gradients.
    pub first: Tensor<1>,
    /// Running mean of squared gradients.
    pub second: Tensor<1>,
}

/// Moments of all parameters, in parameter order; `None` before a parameter's first gradient.
pub(crate) type OptimizerState = Vec<Option<Moments>>;

/// Sum of squares, row by row on the device and in `f64` on the host: the order does not depend on threads.
fn squared_norm(gradient: &Tensor<1>) -> f64 {
    const ROW: usize = 1024;
    let [n] = gradient.dims();
    let whole = n - n % ROW;
    let mut sum = 0.0;
    let mut add = |part: Tensor<2>| {
        for v in crate::net::host((part.clone() * part).sum_dim(1)) {
            sum += f64::from(v);
        }
    };
    if whole > 0 {
        add(gradient.clone().narrow(0, 0, whole).reshape([whole / ROW, ROW]));
    }
    if whole < n {
        add(gradient.clone().narrow(0, whole, n - whole).reshape([1, n - whole]));
    }
    sum
}

/// Global norm of gradients.
pub(crate) fn global_norm(gradients: &FlatGradients) -> f64 {
    gradients.iter().flatten().map(squared_norm).sum::<f64>().sqrt()
}

impl AdamW {
    /// Factor that brings a gradient of the given norm to at most `clip_norm`.
    pub(crate) fn clip_scale(&self, norm: f64) -> f64 {
        match self.clip_norm {
            Some(clip) if norm > clip => clip / norm,
            _ => 1.0,
        }
    }

    /// Updates one parameter and its moments.
    pub(crate) fn update(&self, value: Tensor<1>, gradient: Tensor<1>, decays: bool, moments: &mut Option<Moments>) -> Tensor<1> {
        let Moments { steps, first, second } =
            moments.take().unwrap_or_else(|| Moments { steps: 0, first: gradient.zeros_like(), second: gradient.zeros_like() });
        let steps = steps + 1;
        let first = first.mul_scalar(self.beta1) + gradient.clone().mul_scalar(1.0 - self.beta1);
        let second = second.mul_scalar(self.beta2) + (gradient.clone() * gradient).mul_scalar(1.0 - self.beta2);
        let correct = |beta: f64| 1.0 - beta.powf(steps as f64);
        let root = second.clone().sqrt().mul_scalar(1.0 / correct(self.beta2).sqrt()).add_scalar(self.epsilon);
        let step = first.clone().mul_scalar(self.learning_rate / correct(self.beta1)) / root;
        let decay = if decays { 1.0 - self.learning_rate * self.weight_decay } else { 1.0 };
        let value = value.mul_scalar(decay) - step;
        *moments = Some(Moments { steps, first, second });
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{floats, host};
    use burn::tensor::Device;

    const STEP: AdamW =
        AdamW { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.5, clip_norm: Some(1.0) };

    fn vector(values: &[f32]) -> Tensor<1> {
        floats(values.to_vec(), [values.len()], &Device::flex())
    }

    #[test]
    fn two_steps_by_hand() {
        // First step: m/(1−β₁) = g, √(v/(1−β₂)) = |g|, so w = w (1 − 0.1·0.5) − 0.1 sign(g): 2 → 1.9 − 0.1 = 1.8.
        let mut moments = None;
        let w = STEP.update(vector(&[2.0, -1.0]), vector(&[0.5, -3.0]), true, &mut moments);
        let got = host(w.clone());
        assert!((got[0] - 1.8).abs() < 1e-6 && (got[1] + 0.85).abs() < 1e-6, "{got:?}");
        // Second step, gradient 0, no decay: m = 0.9·0.05 = 0.045, v = 0.99·0.0025 = 0.002475;
        // m̂ = 0.045/0.19 = 0.2368421, v̂ = 0.002475/0.0199 = 0.1243719; w = 1.8 − 0.1·0.2368421/0.3526640 = 1.7328420.
        let got = host(STEP.update(w, vector(&[0.0, 0.0]), false, &mut moments));
        assert!((got[0] - 1.732_842).abs() < 1e-6, "{got:?}");
        assert_eq!(moments.expect("kept").steps, 2);
    }

    #[test]
    fn the_norm_is_global_and_clips() {
        // √(3² + 4² + 12²) = 13
        let gradients = vec![Some(vector(&[3.0, 4.0])), None, Some(vector(&[12.0]))];
        assert_eq!(global_norm(&gradients), 13.0);
        assert_eq!(STEP.clip_scale(13.0), 1.0 / 13.0);
        assert_eq!(STEP.clip_scale(0.5), 1.0);
        assert_eq!(AdamW { clip_norm: None, ..STEP }.clip_scale(13.0), 1.0);
        let long = vec![Some(vector(&vec![0.5; 3000]))];
        assert!((global_norm(&long) - 750f64.sqrt()).abs() < 1e-9);
    }
}
