//! Forward, coefficients, backward: data-parallel over micro-batches, added up in their order.

use crate::{
    error::NnError,
    frozen::Frozen,
    head::{Targets, differentiate, evaluate},
    net::Transformer,
    params::take_gradients,
    plan::Plan,
    rows::{Columns, Request, Rows},
};
use burn::{module::Module, tensor::Tensor};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Gradients of all parameters, flat, in parameter order; `None` where nothing arrived.
pub(crate) type FlatGradients = Vec<Option<Tensor<1>>>;

/// `into += from`.
pub(crate) fn add_gradients(into: &mut FlatGradients, from: FlatGradients) {
    if into.is_empty() {
        *into = from;
        return;
    }
    for (sum, part) in into.iter_mut().zip(from) {
        *sum = match (sum.take(), part) {
            (Some(sum), Some(part)) => Some(sum + part),
            (sum, part) => sum.or(part),
        };
    }
}

/// Called with the index of a micro-batch and its columns, returns `∂L/∂column`.
pub type Coefficients<'a> = dyn Fn(usize, &Columns) -> Columns + Sync + 'a;

/// Adds up results in the order of their indices, whatever order they arrive in.
#[derive(Default)]
struct InOrder {
    next: usize,
    waiting: BTreeMap<usize, FlatGradients>,
    added: Added,
}

/// What a job found.
#[derive(Default)]
pub(crate) struct Added {
    /// The sum over micro-batches.
    pub sum: FlatGradients,
    /// Backward passes: one for each micro-batch that a coefficient weighs.
    pub passes: u64,
}

impl InOrder {
    fn add(&mut self, index: usize, gradients: FlatGradients) {
        self.waiting.insert(index, gradients);
        while let Some(gradients) = self.waiting.remove(&self.next) {
            self.next += 1;
            if !gradients.is_empty() {
                add_gradients(&mut self.added.sum, gradients);
                self.added.passes += 1;
            }
        }
    }
}

/// What every worker shares.
pub(crate) struct Job<'a> {
    /// The weights.
    pub frozen: &'a Frozen,
    /// All rows.
    pub rows: &'a Rows<'a>,
    /// Row indices of each micro-batch.
    pub micro_batches: &'a [Vec<u32>],
    /// Whether entropies are asked for.
    pub request: &'a Request,
    /// Indices of the heads asked for.
    pub heads: Vec<usize>,
    /// The objective.
    pub coefficients: &'a Coefficients<'a>,
}

impl Job<'_> {
    /// Runs all micro-batches on `workers` threads and returns the sum of their gradients.
    pub fn run(&self, workers: usize) -> Result<Added, NnError> {
        let queue = AtomicUsize::new(0);
        let result = Mutex::new(Ok(InOrder::default()));
        let work = || {
            // A worker trains on parameter leaves of its own: concurrent backward passes over shared leaves hang.
            let net = self.frozen.net.clone().train().fork(&self.frozen.device.clone().autodiff());
            loop {
                let index = queue.fetch_add(1, Ordering::Relaxed);
                if index >= self.micro_batches.len() {
                    return;
                }
                let gradients = self.micro_batch(&net, index);
                let mut result = result.lock().expect("a worker panicked");
                match (&mut *result, gradients) {
                    (Ok(sum), Ok(gradients)) => sum.add(index, gradients),
                    (Ok(_), Err(error)) => *result = Err(error),
                    (Err(_), _) => return,
                }
            }
        };
        let workers = workers.clamp(1, self.micro_batches.len().max(1));
        if workers == 1 {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..workers {
                    scope.spawn(work);
                }
            });
        }
        result.into_inner().expect("a worker panicked").map(|in_order| in_order.added)
    }

    fn micro_batch(&self, net: &Transformer, index: usize) -> Result<FlatGradients, NnError> {
        let picked = &self.micro_batches[index];
        let config = &self.frozen.config;
        let plan = Plan::new(self.rows, picked);
        if plan.predictors.is_empty() {
            return Ok(Vec::new());
        }
        let targets = Targets::new(self.rows, picked, config.vocab);
        let hidden = net.hidden(config, &self.frozen.rope, &plan, plan.predictors.clone());
        let plain = hidden.clone().without_autodiff();
        let evaluated = evaluate(net, &plain, &targets, self.request.entropy, &self.heads);
        let coefficients = (self.coefficients)(index, &evaluated.columns);
        if !coefficients.same_shape(&evaluated.columns) {
            return Err(NnError::Request(format!(
                "the coefficients of micro-batch {index} do not have the columns they were computed from"
            )));
        }
        if coefficients.all_zero() {
            return Ok(Vec::new());
        }
        let detached: Vec<bool> = self.heads.iter().map(|&head| self.frozen.heads[head].detach_trunk).collect();
        let gradient = differentiate(net, &plain, &targets, evaluated, &coefficients, &self.heads, &detached);
        // ⟨h, ∂L/∂h⟩ with ∂L/∂h held constant has the gradient of L in everything below h.
        let surrogate = (hidden * gradient.hidden).sum();
        let mut sums = take_gradients(net, &mut surrogate.backward());
        let layout = self.frozen.layout();
        let mut add = |index: usize, part: Tensor<1>| {
            sums[index] = Some(match sums[index].take() {
                Some(sum) => sum + part,
                None => part,
            });
        };
        add(layout.lm_head, gradient.lm_head);
        for (&head, (weight, bias)) in self.heads.iter().zip(gradient.heads) {
            add(layout.first_head + 2 * head, weight);
            add(layout.first_head + 2 * head + 1, bias);
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Model, ScoreRequest,
        net::{MASKED, floats, host, ints},
        testing::{OwnedRows, numbers, tiny_model},
    };
    use burn::tensor::{Device, activation::log_softmax};

    const LENGTHS: [usize; 6] = [9, 40, 2, 41, 230, 17];

    fn request() -> Request {
        Request { entropy: true, heads: vec!["value".into(), "probe".into()] }
    }

    /// Coefficients that depend on the token alone, so that any cut into micro-batches gives the same loss.
    fn coefficients(rows: &OwnedRows, picked: &[u32]) -> Columns {
        let sampled: Vec<usize> = picked.iter().flat_map(|&r| rows.bounds[r as usize].sampled.clone()).collect();
        let draw = |salt: u64| sampled.iter().map(|&i| numbers(i as u64 + 1000 * salt)(2001) as f32 / 1000.0 - 1.0).collect();
        Columns { logprob: draw(1), entropy: Some(draw(2)), heads: vec![draw(3), draw(4)] }
    }

    fn gradients(model: &Model, rows: &OwnedRows, micro_batches: &[Vec<u32>], workers: usize) -> Vec<Vec<f32>> {
        let mut model = model.clone();
        let objective = |index: usize, _: &Columns| coefficients(rows, &micro_batches[index]);
        model.forward_backward(&rows.view(), micro_batches, &request(), workers, &objective).expect("valid");
        model.gradients()
    }

    /// The loss `Σ c · column` written out with full logits, differentiated by burn.
    fn by_autodiff(model: &Model, rows: &OwnedRows) -> Vec<Vec<f32>> {
        let picked: Vec<u32> = (0..rows.bounds.len() as u32).collect();
        let view = rows.view();
        let config = model.config();
        let device = Device::flex().autodiff();
        let net = model.net.clone().train().fork(&device);
        let plan = Plan::new(&view, &picked);
        let h = net.hidden(config, &model.rope, &plan, plan.predictors.clone());
        let n = plan.predictors.len();
        let weight = match &net.lm_head {
            Some(head) => head.weight.val(),
            None => net.embed_tokens.weight.val().transpose(),
        };
        let (mut inverse, mut mask, mut tokens) = (vec![], vec![], vec![]);
        for row in 0..rows.bounds.len() {
            for i in rows.bounds[row].sampled.clone() {
                inverse.push(1.0 / view.temperature_of(i));
                tokens.push(i64::from(view.token_of(row, i)));
                mask.extend((0..config.vocab as u32).map(|t| match view.support_of(i) {
                    Some(support) if !support.contains(&t) => MASKED,
                    _ => 0.0,
                }));
            }
        }
        let logits = h.clone().matmul(weight) * floats(inverse, [n, 1], &device) + floats(mask, [n, config.vocab], &device);
        let log_p = log_softmax(logits, 1);
        let logprob = log_p.clone().gather(1, ints(tokens, &device).reshape([n, 1]));
        let entropy = (log_p.clone().exp() * log_p).sum_dim(1).neg();
        let head = |index: usize, h: Tensor<2>| {
            let head = &net.heads[index];
            h.matmul(head.weight.val()) + head.bias.as_ref().expect("bias").val().unsqueeze()
        };
        let (value, probe) = (head(0, h.clone()), head(1, h.detach()));
        let c = coefficients(rows, &picked);
        let on = |column: Tensor<2>, c: &[f32]| (column * floats(c.to_vec(), [n, 1], &device)).sum();
        let loss = on(logprob, &c.logprob)
            + on(entropy, c.entropy.as_ref().expect("asked for"))
            + on(value, &c.heads[0])
            + on(probe, &c.heads[1]);
        take_gradients(&net, &mut loss.backward()).into_iter().map(|g| g.map_or_else(Vec::new, host)).collect()
    }

    fn distance(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
        assert_eq!(a.iter().map(Vec::len).collect::<Vec<_>>(), b.iter().map(Vec::len).collect::<Vec<_>>());
        let squares = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>();
        let (a, b) = (a.iter().flatten(), b.iter().flatten());
        let norm = squares(&mut a.clone().map(|&x| f64::from(x)));
        (squares(&mut a.zip(b).map(|(&x, &y)| f64::from(x) - f64::from(y))) / norm).sqrt()
    }

    fn all(rows: &OwnedRows) -> Vec<u32> {
        (0..rows.bounds.len() as u32).collect()
    }

    #[test]
    fn the_closed_form_is_the_gradient_autodiff_finds() {
        for tied in [true, false] {
            let model = tiny_model(tied);
            let rows = OwnedRows::random(5, model.config().vocab, &LENGTHS);
            let got = gradients(&model, &rows, &[all(&rows)], 1);
            let expected = by_autodiff(&model, &rows);
            let error = distance(&expected, &got);
            assert!(error < 1e-5, "tied {tied}: {error:e}");
        }
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_scored_loss() {
        // Central difference along the gradient with the host engine, which shares no code with the training path.
        // f32 losses of size 100 resolve 1e-5; the step moves the loss by about 1, so 1e-3 leaves a margin.
        let model = tiny_model(true);
        let rows = OwnedRows::random(8, model.config().vocab, &LENGTHS);
        let picked = all(&rows);
        let gradient = gradients(&model, &rows, std::slice::from_ref(&picked), 1);
        let norm = gradient.iter().flatten().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        let c = coefficients(&rows, &picked);
        let loss_at = |step: f64| {
            let mut moved = model.frozen.clone();
            let device = moved.device.clone();
            moved.replace(|i, value| {
                let direction = gradient[i].iter().map(|&g| (f64::from(g) / norm * step) as f32).collect::<Vec<_>>();
                value + floats(direction, [gradient[i].len()], &device)
            });
            let request = ScoreRequest { columns: request(), ..ScoreRequest::default() };
            let out = moved.score(&rows.view(), &request).expect("valid").columns;
            let dot = |x: &[f32], c: &[f32]| x.iter().zip(c).map(|(&x, &c)| f64::from(x) * f64::from(c)).sum::<f64>();
            // The detached head's gradient does not reach the trunk, so its loss is left out of this check.
            dot(&out.logprob, &c.logprob)
                + dot(out.entropy.as_ref().expect("asked for"), c.entropy.as_ref().expect("given"))
                + dot(&out.heads[0], &c.heads[0])
        };
        let probe: f64 = {
            let layout = model.layout();
            gradient[layout.first_head + 2..].iter().flatten().map(|&g| f64::from(g).powi(2)).sum()
        };
        let step = 0.5 / norm;
        let slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        let expected = (norm * norm - probe) / norm;
        assert!((slope - expected).abs() < 2e-3 * expected, "{slope} {expected}");
    }

    #[test]
    fn micro_batches_change_rounding_and_workers_no_bit() {
        let model = tiny_model(true);
        let rows = OwnedRows::random(6, model.config().vocab, &LENGTHS);
        let whole = gradients(&model, &rows, &[all(&rows)], 1);
        for cut in [1, 2, 4] {
            let micro: Vec<Vec<u32>> = all(&rows).chunks(cut).map(<[u32]>::to_vec).collect();
            let one = gradients(&model, &rows, &micro, 1);
            let error = distance(&whole, &one);
            assert!(error < 1e-6, "micro-batches of {cut}: {error:e}");
            for workers in [2, 3] {
                assert_eq!(one, gradients(&model, &rows, &micro, workers), "micro-batches of {cut}, {workers} workers");
            }
        }
    }

    #[test]
    fn threads_of_the_tensor_library_change_no_bit() {
        let model = tiny_model(false);
        let rows = OwnedRows::random(7, model.config().vocab, &LENGTHS);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| gradients(&model, &rows, &[all(&rows)], 1))
        };
        let one = run(1);
        assert_eq!(one, run(1));
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
    }

    #[test]
    fn coefficients_of_another_shape_are_refused() {
        let mut model = tiny_model(true);
        let rows = OwnedRows::random(1, model.config().vocab, &[5, 5]);
        let wrong = |_: usize, columns: &Columns| Columns { entropy: None, ..columns.clone() };
        let error = model.forward_backward(&rows.view(), &[vec![0], vec![1]], &request(), 2, &wrong).expect_err("shape");
        assert!(error.to_string().contains("coefficients of micro-batch"), "{error}");
        assert!(model.gradients().is_empty());
    }

    #[test]
    fn rows_that_sample_nothing_or_weigh_nothing_give_no_gradient() {
        let mut model = tiny_model(true);
        let mut rows = OwnedRows::random(1, model.config().vocab, &[5, 5]);
        rows.bounds[0].sampled = 0..0;
        let zero = |_: usize, columns: &Columns| columns.zeros_like();
        model.forward_backward(&rows.view(), &[vec![0], vec![1]], &request(), 1, &zero).expect("valid");
        assert!(model.gradients().is_empty());
    }
}
