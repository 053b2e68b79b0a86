//! One sampling and one training step of a small transformer on `cuda:0`, for the stand-in driver of this folder, which
//! keeps every kernel that is generated and runs none. Numbers mean nothing here and are not looked at.
//!
//! Whatever is read from the device is the driver's one finite number, which gets past the checks for numbers that are
//! not finite; and the coefficients below depend on no column, as those of an objective would.

use ascribe_nn::{AdamW, Columns, HeadSpec, Model, ModelConfig, NnError, Request, RowBounds, Rows, ScoreRequest, open_device};
use std::sync::Arc;

fn main() -> Result<(), NnError> {
    let device = open_device("cuda".parse()?)?;
    for tied in [true, false] {
        let config = ModelConfig {
            vocab: 300,
            d_model: 64,
            n_layers: 2,
            n_heads: 4,
            n_kv_heads: 2,
            head_dim: 16,
            d_ff: 172,
            rope_theta: 10_000.0,
            norm_eps: 1e-5,
            tied,
            max_positions: 256,
        };
        let mut model = Model::new(config, 1, &device)?;
        model.add_head(HeadSpec { name: "value".into(), detach_trunk: false, zero_init: false })?;
        sample(&model)?;
        train(&mut model)?;
        println!("sampled and trained, {}", if tied { "head tied to the embedding" } else { "head of its own" });
    }
    Ok(())
}

/// A prompt shared by two sessions, then a few tokens of each; the last step outgrows the cache, so that it is made anew.
/// Tokens are drawn from the logits on the host, so which they are changes no kernel.
fn sample(model: &Model) -> Result<(), NnError> {
    let mut decoder = model.decoder();
    let first = decoder.open();
    decoder.step(&[(first, &(1..20).collect::<Vec<u32>>())])?;
    let second = decoder.fork(first)?;
    for token in 20..23 {
        decoder.step(&[(first, &[token]), (second, &[token, 2])])?;
    }
    decoder.step(&[(first, &[7; 60]), (second, &[8])])?;
    decoder.close(second);
    Ok(())
}

/// All that an objective can ask for: several micro-batches, temperatures, restricted supports, entropy and a value head.
/// A second step, because the first has no moments to go on from.
fn train(model: &mut Model) -> Result<(), NnError> {
    let tokens: Vec<u32> = (0..60).map(|i| i * 7 % 300).collect();
    let bounds = [0..12, 12..50, 50..60].map(|tokens| RowBounds { sampled: tokens.start / 2..tokens.end / 2, tokens });
    let at: Vec<usize> = bounds.iter().flat_map(|row| (0..row.tokens.len()).filter(|at| at % 2 == 1)).collect();
    let temperature: Vec<f32> = (0..at.len()).map(|i| [1.0, 0.7][i % 2]).collect();
    let supports: [Arc<[u32]>; 1] = [(0..300).step_by(7).collect()];
    let support: Vec<u32> = tokens.iter().skip(1).step_by(2).map(|token| u32::from(token % 7 == 0)).collect();
    let rows =
        Rows { tokens: &tokens, bounds: &bounds, at: &at, temperature: &temperature, support: &support, supports: &supports };

    let request = Request { entropy: true, heads: vec!["value".into()] };
    model.score(&rows, &ScoreRequest { columns: request.clone(), ends: vec!["value".into()], hidden: true })?;
    let coefficients = |_: usize, columns: &Columns| Columns {
        logprob: vec![-0.1; columns.logprob.len()],
        entropy: Some(vec![-0.01; columns.logprob.len()]),
        heads: vec![vec![0.1; columns.logprob.len()]],
    };
    let adamw = AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01, clip_norm: Some(1e-3) };
    for _ in 0..2 {
        model.forward_backward(&rows, &[vec![0, 2], vec![1]], &request, 2, &coefficients)?;
        // Without this the step's kernels would be missing from what is assembled.
        assert!(!model.optim_step(&adamw).skipped, "the stand-in driver gave a gradient that is not finite");
    }
    model.save();
    Ok(())
}
