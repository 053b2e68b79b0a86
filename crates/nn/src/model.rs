//! A model that trains.

use crate::{
    config::ModelConfig,
    error::NnError,
    frozen::{Frozen, HeadSpec},
    optimizer::{AdamW, OptimizerState, StepReport, global_norm},
    rows::{Request, Rows},
    saved,
    train::{Coefficients, FlatGradients, Job, add_gradients},
};
use burn::tensor::Device;
use std::ops::Deref;

/// Weights with gradients and optimiser state. Everything a [`Frozen`] can do, it can do too.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) frozen: Frozen,
    pub(crate) optimizer: OptimizerState,
    gradients: FlatGradients,
    /// Backward passes that they are the sum of.
    passes: u64,
}

impl Deref for Model {
    type Target = Frozen;

    fn deref(&self) -> &Frozen {
        &self.frozen
    }
}

impl From<Frozen> for Model {
    /// Starts to train frozen weights, with a fresh optimiser.
    fn from(frozen: Frozen) -> Self {
        Self { frozen, optimizer: Vec::new(), gradients: Vec::new(), passes: 0 }
    }
}

impl Model {
    /// A model with seeded weights: the same seed gives the same bits.
    ///
    /// # Errors
    /// [`NnError::Config`] if the configuration is out of range.
    pub fn new(config: ModelConfig, seed: u64, device: &Device) -> Result<Self, NnError> {
        Frozen::new(config, seed, device).map(Self::from)
    }

    /// The same weights, frozen.
    pub fn copy(&self) -> Frozen {
        self.frozen.clone()
    }

    /// Adds a scalar head: `hidden · w + b` on the trunk's last norm. Gradients accumulated so far are kept.
    ///
    /// # Errors
    /// [`NnError::DuplicateHead`] if the name is taken.
    pub fn add_head(&mut self, spec: HeadSpec) -> Result<(), NnError> {
        self.frozen.add_head(spec)?;
        let n = self.parameters().len();
        if !self.gradients.is_empty() {
            self.gradients.resize(n, None);
        }
        Ok(())
    }

    /// Adds `Σ coefficient · ∂column` over all micro-batches to the gradient.
    ///
    /// Each micro-batch, a list of row indices, is run forward once; `coefficients` gets its index and columns and
    /// returns `∂L/∂column` of the loss that is minimised, in columns of the same shape. It is called from several
    /// threads, in any order. How rows are cut into micro-batches changes the gradient by rounding, the number of
    /// workers by no bit.
    ///
    /// # Errors
    /// If rows do not fit the model, a head is unknown or coefficients have another shape. The gradient is as it was.
    pub fn forward_backward(
        &mut self,
        rows: &Rows<'_>,
        micro_batches: &[Vec<u32>],
        request: &Request,
        workers: usize,
        coefficients: &Coefficients<'_>,
    ) -> Result<(), NnError> {
        rows.validate(&self.config)?;
        if let Some(&row) = micro_batches.iter().flatten().find(|&&row| row as usize >= rows.len()) {
            return Err(NnError::Request(format!("a micro-batch names row {row}, but there are {}", rows.len())));
        }
        let heads = self.head_indices(&request.heads)?;
        let job = Job { frozen: &self.frozen, rows, micro_batches, request, heads, coefficients };
        let added = job.run(workers)?;
        if !added.sum.is_empty() {
            add_gradients(&mut self.gradients, added.sum);
        }
        self.passes += added.passes;
        Ok(())
    }

    /// One optimiser step with the accumulated gradient, which is cleared. A gradient that is not finite changes
    /// nothing and is reported. Without any gradient (every coefficient was 0) nothing changes either.
    pub fn optim_step(&mut self, step: &AdamW) -> StepReport {
        let gradients = std::mem::take(&mut self.gradients);
        let passes = std::mem::take(&mut self.passes);
        let norm = global_norm(&gradients);
        if !norm.is_finite() {
            return StepReport { gradient_norm: norm, skipped: true, passes };
        }
        if gradients.is_empty() {
            return StepReport { gradient_norm: 0.0, skipped: false, passes };
        }
        let scale = step.clip_scale(norm);
        let parameters = self.parameters();
        self.optimizer.resize(parameters.len(), None);
        let mut gradients = gradients.into_iter();
        let optimizer = &mut self.optimizer;
        self.frozen.replace(|index, value| match gradients.next().flatten() {
            Some(gradient) => {
                let gradient = if scale == 1.0 { gradient } else { gradient.mul_scalar(scale) };
                // A head's weight is a vector in effect, but decays like the matrix it is stored as.
                let decays = parameters[index].shape.len() > 1;
                step.update(value, gradient, decays, &mut optimizer[index])
            }
            None => value,
        });
        StepReport { gradient_norm: norm, skipped: false, passes }
    }

    /// Forgets the accumulated gradient.
    pub fn clear_gradients(&mut self) {
        self.gradients.clear();
        self.passes = 0;
    }

    /// Weights and optimiser state; accumulated gradients are not part of it. A model that loads them continues to the
    /// bit.
    pub fn save(&self) -> Vec<u8> {
        saved::write(&self.frozen, &self.optimizer)
    }

    /// Takes up what [`Model::save`] or [`Frozen::save`] wrote. Heads of the file that this model lacks are added; heads
    /// that the file lacks keep their weights. Accumulated gradients are cleared. After an error the model is as it was.
    ///
    /// # Errors
    /// [`NnError::Saved`] if the bytes are damaged or belong to another configuration.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), NnError> {
        let (frozen, optimizer) = saved::read(&self.frozen, bytes)?;
        *self = Self { frozen, optimizer, gradients: Vec::new(), passes: 0 };
        Ok(())
    }

    /// Accumulated gradients on the host, in parameter order; empty where none arrived.
    #[cfg(test)]
    pub(crate) fn gradients(&self) -> Vec<Vec<f32>> {
        self.gradients.iter().map(|g| g.clone().map_or_else(Vec::new, crate::net::host)).collect()
    }
}

impl Frozen {
    /// The weights; see [`Model::save`].
    pub fn save(&self) -> Vec<u8> {
        saved::write(self, &Vec::new())
    }

    /// Takes up the weights that [`Model::save`] or [`Frozen::save`] wrote; see [`Model::load`].
    ///
    /// # Errors
    /// [`NnError::Saved`] if the bytes are damaged or belong to another configuration.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), NnError> {
        let (frozen, _) = saved::read(self, bytes)?;
        *self = frozen;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Columns, RowBounds, ScoreRequest,
        testing::{OwnedRows, tiny_config, tiny_model},
    };

    fn step() -> AdamW {
        AdamW { learning_rate: 3e-3, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01, clip_norm: Some(1.0) }
    }

    fn rows(seed: u64) -> OwnedRows {
        OwnedRows::random(seed, tiny_config().vocab, &[12, 30, 7])
    }

    /// Descends the negative log-likelihood of all sampled tokens, and the value head towards 1.
    fn train_with(model: &mut Model, rows: &OwnedRows, micro_batches: &[Vec<u32>], step: &AdamW) -> StepReport {
        let request = Request { entropy: false, heads: vec!["value".into()] };
        let n = rows.at.len() as f32;
        let nll = |_: usize, columns: &Columns| Columns {
            logprob: vec![-1.0 / n; columns.logprob.len()],
            entropy: None,
            heads: vec![columns.heads[0].iter().map(|v| (v - 1.0) / n).collect()],
        };
        model.forward_backward(&rows.view(), micro_batches, &request, 2, &nll).expect("valid");
        model.optim_step(step)
    }

    fn train(model: &mut Model, rows: &OwnedRows) -> StepReport {
        train_with(model, rows, &[vec![0, 2], vec![1]], &step())
    }

    fn weights(model: &Frozen) -> Vec<Vec<f32>> {
        crate::params::values(&model.net)
    }

    #[test]
    fn a_head_that_is_added_after_a_score_is_scored_too() {
        let mut model = Model::new(tiny_config(), 1, &Device::flex()).expect("valid");
        let rows = rows(4);
        model.score(&rows.view(), &ScoreRequest::default()).expect("valid");
        model.add_head(HeadSpec { name: "late".into(), detach_trunk: false, zero_init: true }).expect("new");
        let request = ScoreRequest {
            columns: Request { entropy: false, heads: vec!["late".into()] },
            ends: vec!["late".into()],
            ..Default::default()
        };
        let scores = model.score(&rows.view(), &request).expect("valid");
        assert_eq!(scores.columns.heads, [vec![0.0; rows.at.len()]]);
        assert_eq!(scores.ends, [vec![0.0; 3]]);
    }

    #[test]
    fn a_tiny_model_learns_four_sequences_by_heart() {
        let device = Device::flex();
        let mut model = Model::new(tiny_config(), 1, &device).expect("valid");
        model.add_head(HeadSpec { name: "value".into(), detach_trunk: false, zero_init: true }).expect("new");
        let mut rows = OwnedRows::default();
        let texts = [[1, 5, 9, 2, 8, 8, 3], [1, 6, 2, 7, 7, 1, 4], [2, 5, 9, 4, 4, 4, 4], [3, 1, 2, 3, 1, 2, 6]];
        for (i, text) in texts.iter().enumerate() {
            rows.tokens.extend(text);
            rows.at.extend(2..7);
            rows.bounds.push(RowBounds { tokens: 7 * i..7 * i + 7, sampled: 5 * i..5 * i + 5 });
        }
        let request = ScoreRequest { columns: Request { entropy: false, heads: vec!["value".into()] }, ..Default::default() };
        let nll = |model: &Model| {
            let logprob = model.score(&rows.view(), &request).expect("valid").columns.logprob;
            -logprob.iter().sum::<f32>() / logprob.len() as f32
        };
        let before = nll(&model);
        assert!((before - (37f32).ln()).abs() < 0.2, "a fresh model is close to uniform: {before}");
        for _ in 0..150 {
            let step = AdamW { learning_rate: 1e-2, ..step() };
            assert!(!train_with(&mut model, &rows, &[vec![0, 1, 2, 3]], &step).skipped);
        }
        let after = nll(&model);
        assert!(after < 0.05, "{before} → {after}");
        let values = &model.score(&rows.view(), &request).expect("valid").columns.heads[0];
        assert!(values.iter().all(|v| (v - 1.0).abs() < 0.2), "{values:?}");
    }

    #[test]
    fn a_saved_model_continues_to_the_bit() {
        for tied in [true, false] {
            let mut model = tiny_model(tied);
            for seed in 0..3 {
                train(&mut model, &rows(seed));
            }
            let bytes = model.save();
            // Loaded into a model that differs in every weight and lacks the heads.
            let mut other = Model::new(model.config().clone(), 99, model.device()).expect("valid");
            other.load(&bytes).expect("intact");
            assert_eq!(other.heads(), model.heads());
            assert_eq!(other.save(), bytes);
            for seed in 3..6 {
                assert_eq!(train(&mut model, &rows(seed)), train(&mut other, &rows(seed)));
                assert_eq!(weights(&model), weights(&other));
            }
            assert_eq!(model.save(), other.save());
        }
    }

    #[test]
    fn runs_repeat_to_the_bit_whatever_the_threads() {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let mut model = tiny_model(true);
                (0..3).for_each(|seed| assert!(!train(&mut model, &rows(seed)).skipped));
                weights(&model)
            })
        };
        let one = run(1);
        assert_eq!(one, run(1));
        assert_eq!(one, run(3));
    }

    #[test]
    fn heads_of_a_file_are_added_and_heads_it_lacks_are_kept() {
        let trunk = Model::new(tiny_config(), 4, &Device::flex()).expect("valid");
        let mut model = tiny_model(true);
        train(&mut model, &rows(0));
        let heads = weights(&model)[20..].to_vec();
        model.load(&trunk.save()).expect("the same trunk");
        assert_eq!(weights(&model)[..20], weights(&trunk)[..]);
        assert_eq!(weights(&model)[20..], heads);
        let mut clash = Model::new(tiny_config(), 4, &Device::flex()).expect("valid");
        clash.add_head(HeadSpec { name: "value".into(), detach_trunk: true, zero_init: false }).expect("new");
        let error = clash.load(&tiny_model(true).save()).expect_err("detached");
        assert_eq!(error.to_string(), "saved weights: their head `value` is configured differently");
    }

    #[test]
    fn damaged_bytes_are_refused_and_change_nothing() {
        let mut model = tiny_model(true);
        let bytes = model.save();
        let before = weights(&model);
        let mut refuse = |bytes: &[u8], message: &str| {
            let error = model.load(bytes).expect_err(message);
            assert!(error.to_string().contains(message), "{error}");
            assert_eq!(weights(&model), before);
        };
        refuse(b"", "they end inside the signature");
        refuse(b"not saved weights", "do not begin like saved weights");
        for len in (1..bytes.len()).step_by(997).chain([9, 19, 21, bytes.len() - 1]) {
            let error = model_error(&bytes[..len]);
            assert!(error.contains("truncated"), "{len}: {error}");
        }
        for at in [8, 13, 40, bytes.len() / 2, bytes.len() - 5] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let error = model_error(&damaged);
            assert!(error.contains("damaged") || error.contains("version"), "{at}: {error}");
        }
        refuse(
            &Model::new(ModelConfig { d_ff: 45, ..tiny_config() }, 1, &Device::flex()).expect("valid").save(),
            "they belong to another model",
        );

        fn model_error(bytes: &[u8]) -> String {
            tiny_model(true).load(bytes).expect_err("damaged").to_string()
        }
    }

    #[test]
    fn a_gradient_that_is_not_finite_is_skipped_and_reported() {
        let mut model = tiny_model(true);
        train(&mut model, &rows(0));
        let before = model.save();
        let poison = |_: usize, columns: &Columns| {
            let mut c = columns.zeros_like();
            c.logprob[0] = f32::NAN;
            c
        };
        model.forward_backward(&rows(1).view(), &[vec![0, 1, 2]], &Request::default(), 1, &poison).expect("valid");
        let report = model.optim_step(&step());
        assert!(report.skipped && !report.gradient_norm.is_finite());
        assert_eq!(model.save(), before);
        // The bad gradient is gone.
        assert!(!train(&mut model, &rows(1)).skipped);
    }

    #[test]
    fn a_step_without_gradient_changes_nothing() {
        let mut model = tiny_model(true);
        let before = model.save();
        assert_eq!(model.optim_step(&step()), StepReport { gradient_norm: 0.0, skipped: false, passes: 0 });
        assert_eq!(model.save(), before);
    }

    #[test]
    fn a_copy_stays_and_can_track() {
        let mut model = tiny_model(true);
        let mut copy = model.copy();
        let before = weights(&copy);
        train(&mut model, &rows(0));
        assert_eq!(weights(&copy), before);
        assert_ne!(weights(&model), before);
        copy.track(&model, 0.25).expect("same shape");
        let (new, old, got) = (&weights(&model)[3][7], &before[3][7], &weights(&copy)[3][7]);
        assert!((old * 0.75 + new * 0.25 - got).abs() < 1e-6);
        copy.track(&model, 1.0).expect("same shape");
        assert_eq!(weights(&copy), weights(&model));
    }
}
