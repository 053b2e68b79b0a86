//! Tokens per second of decoding, scoring and training for two small models.
//!
//! `cargo run --release -p ascribe-nn --example throughput`, with parts of the printed names to measure only those; set
//! `RAYON_NUM_THREADS` to limit the threads.

use ascribe_nn::{
    AdamW, Columns, DeviceChoice, Model, ModelConfig, Request, RowBounds, Rows, ScoreRequest, SessionId, open_device,
    tune_allocator,
};
use std::time::{Duration, Instant};

fn config(d_model: usize, n_layers: usize) -> ModelConfig {
    ModelConfig {
        vocab: 512,
        d_model,
        n_layers,
        n_heads: d_model / 32,
        n_kv_heads: d_model / 64,
        head_dim: 32,
        d_ff: d_model * 43 / 16,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        tied: true,
        max_positions: 2048,
    }
}

/// Processor time of this process so far, in seconds, where the system tells; wall time is misleading on a shared machine.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / 100.0)
}

/// Best wall time and mean processor time of about a second of runs.
fn measure(mut run: impl FnMut() -> Duration) -> (f64, f64) {
    run();
    let (start, cpu) = (Instant::now(), processor_seconds());
    let (mut best, mut total) = (Duration::MAX, Duration::ZERO);
    while start.elapsed() < Duration::from_secs(1) {
        let elapsed = run();
        best = best.min(elapsed);
        total += elapsed;
    }
    let cpu = cpu.and_then(|cpu| Some(processor_seconds()? - cpu)).unwrap_or(f64::NAN);
    // Share of the processor time that belongs to what was timed.
    let share = total.as_secs_f64() / start.elapsed().as_secs_f64();
    (best.as_secs_f64(), cpu * share * best.as_secs_f64() / total.as_secs_f64())
}

/// Measures one line, unless arguments were given and none of them occurs in its name.
fn report(what: &str, tokens: usize, run: impl FnMut() -> Duration) {
    let mut filters = std::env::args().skip(1).peekable();
    if filters.peek().is_some() && !filters.any(|filter| what.contains(&filter)) {
        return;
    }
    let (wall, cpu) = measure(run);
    let n = tokens as f64;
    println!("  {what:<52} {:>8.0} tokens/s, {:>7.1} µs of processor per token", n / wall, cpu / n * 1e6);
}

fn token(i: usize) -> u32 {
    (i * 7919 % 509) as u32
}

fn decode(name: &str, model: &Model, sessions: usize, prompt: usize, steps: usize) {
    let prompt: Vec<u32> = (0..prompt).map(token).collect();
    let prefill = || {
        let mut decoder = model.decoder();
        let start = Instant::now();
        let root = decoder.open();
        decoder.step(&[(root, &prompt)]).expect("fits");
        (decoder, root, start.elapsed())
    };
    report(&format!("{name} prefill of {} tokens", prompt.len()), prompt.len(), || prefill().2);
    let what = format!("{name} decode, {sessions} sessions at {}..{}", prompt.len(), prompt.len() + steps);
    report(&what, sessions * steps, || {
        let (mut decoder, root, _) = prefill();
        let ids: Vec<SessionId> = (0..sessions).map(|_| decoder.fork(root).expect("open")).collect();
        let start = Instant::now();
        for t in 0..steps {
            let tokens: Vec<[u32; 1]> = (0..sessions).map(|s| [token(s + 31 * t)]).collect();
            let feeds: Vec<(SessionId, &[u32])> = ids.iter().zip(&tokens).map(|(&id, feed)| (id, &feed[..])).collect();
            decoder.step(&feeds).expect("fits");
        }
        start.elapsed()
    });
}

fn train(name: &str, model: &mut Model, n_rows: usize, len: usize, workers: usize) {
    let tokens: Vec<u32> = (0..n_rows * len).map(token).collect();
    // The last fifth of every 50 tokens is sampled, as in an episode of turns.
    let at: Vec<usize> = (0..n_rows).flat_map(|_| (1..len).filter(|i| i % 50 >= 40)).collect();
    let per_row = at.len() / n_rows;
    let bounds: Vec<RowBounds> =
        (0..n_rows).map(|r| RowBounds { tokens: r * len..(r + 1) * len, sampled: r * per_row..(r + 1) * per_row }).collect();
    let rows = Rows { tokens: &tokens, bounds: &bounds, at: &at, temperature: &[], support: &[], supports: &[] };
    let request = Request { entropy: true, heads: vec![] };
    let micro: Vec<Vec<u32>> = (0..n_rows as u32).collect::<Vec<_>>().chunks((2048 / len).max(1)).map(<[u32]>::to_vec).collect();
    let objective = |_: usize, columns: &Columns| Columns {
        logprob: vec![1e-4; columns.logprob.len()],
        entropy: Some(vec![1e-6; columns.logprob.len()]),
        heads: vec![],
    };
    let score = ScoreRequest { columns: request.clone(), ..ScoreRequest::default() };
    report(&format!("{name} score, {n_rows} rows of {len}"), tokens.len(), || {
        let start = Instant::now();
        model.score(&rows, &score).expect("fits");
        start.elapsed()
    });
    let step = AdamW { learning_rate: 1e-5, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, clip_norm: Some(1.0) };
    report(&format!("{name} train, {n_rows} rows of {len}, {workers} worker(s)"), tokens.len(), || {
        let start = Instant::now();
        model.forward_backward(&rows, &micro, &request, workers, &objective).expect("fits");
        model.optim_step(&step);
        start.elapsed()
    });
}

fn main() {
    tune_allocator();
    let device = open_device(DeviceChoice::Cpu).expect("the CPU is there");
    for (d_model, n_layers) in [(128, 4), (64, 2)] {
        let mut model = Model::new(config(d_model, n_layers), 1, &device).expect("valid");
        println!("d{d_model}, {n_layers} layers, vocab 512: {} parameters", model.n_parameters());
        let name = format!("d{d_model}");
        for (sessions, prompt) in [(1, 100), (8, 100), (32, 100), (128, 100), (32, 1000)] {
            decode(&name, &model, sessions, prompt, 64);
        }
        for (n_rows, len, workers) in [(32, 256, 1), (32, 256, 2), (8, 1024, 1)] {
            train(&name, &mut model, n_rows, len, workers);
        }
    }
}
