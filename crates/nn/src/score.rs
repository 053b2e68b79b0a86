//! Teacher forcing without gradient.

use crate::{
    frozen::Frozen,
    head::{Targets, evaluate, head_values},
    host::{self, Cache, Distribution, Feed, Scratch},
    net::host as read,
    plan::Plan,
    rows::{Columns, Rows, ScoreRequest, Scores},
};
use rayon::prelude::*;

/// Tokens that one task of the host engine takes.
const TASK_TOKENS: usize = 512;
/// Tokens of one forward pass of the tensor engine.
const BATCH_TOKENS: usize = 16_384;

/// Cuts `rows` in order into runs of at most `max_tokens` tokens, a longer row alone.
fn runs(rows: &Rows<'_>, max_tokens: usize) -> Vec<Vec<u32>> {
    let mut runs: Vec<Vec<u32>> = Vec::new();
    let mut used = 0;
    for row in 0..rows.len() {
        let n = rows.bounds[row].tokens.len();
        if runs.is_empty() || used + n > max_tokens {
            runs.push(Vec::new());
            used = 0;
        }
        runs.last_mut().expect("just pushed").push(row as u32);
        used += n;
    }
    runs
}

/// Appends what one run gave.
fn append(all: &mut Scores, part: Scores) {
    all.columns.logprob.extend(part.columns.logprob);
    if let (Some(all), Some(part)) = (&mut all.columns.entropy, part.columns.entropy) {
        all.extend(part);
    }
    all.columns.heads.iter_mut().zip(part.columns.heads).for_each(|(all, part)| all.extend(part));
    all.ends.iter_mut().zip(part.ends).for_each(|(all, part)| all.extend(part));
    all.hidden.extend(part.hidden);
}

fn empty(request: &ScoreRequest) -> Scores {
    Scores {
        columns: Columns {
            logprob: Vec::new(),
            entropy: request.columns.entropy.then(Vec::new),
            heads: vec![Vec::new(); request.columns.heads.len()],
        },
        ends: vec![Vec::new(); request.ends.len()],
        hidden: Vec::new(),
    }
}

fn collect(request: &ScoreRequest, parts: Vec<Scores>) -> Scores {
    parts.into_iter().fold(empty(request), |mut all, part| {
        append(&mut all, part);
        all
    })
}

/// With the host engine: rows are spread over threads, each scored exactly as a decoder would have scored it.
pub(crate) fn on_host(frozen: &Frozen, rows: &Rows<'_>, request: &ScoreRequest, heads: &[usize], ends: &[usize]) -> Scores {
    let weights = frozen.packed();
    let d_model = frozen.config.d_model;
    let score_run = |scratch: &mut Scratch, run: &Vec<u32>| {
        let mut caches = vec![Cache::default(); run.len()];
        let wanted: Vec<Vec<usize>> = run
            .iter()
            .map(|&row| {
                let bounds = &rows.bounds[row as usize];
                let mut wanted: Vec<usize> = rows.at[bounds.sampled.clone()].iter().map(|at| at - 1).collect();
                if !ends.is_empty() {
                    wanted.push(bounds.tokens.len() - 1);
                }
                wanted
            })
            .collect();
        let mut feeds: Vec<_> = run
            .iter()
            .zip(&mut caches)
            .zip(&wanted)
            .map(|((&row, cache), wanted)| {
                // Nothing is read after the last wanted token.
                let n = wanted.last().map_or(0, |last| last + 1);
                Feed { cache, tokens: &rows.tokens_of(row as usize)[..n], wanted }
            })
            .collect();
        let mut hidden = Vec::new();
        host::hidden(weights, &mut feeds, &mut hidden, scratch);
        let mut vectors = hidden.chunks_exact(d_model);
        let mut scores = empty(request);
        let mut at_sampled = Vec::new();
        for &row in run {
            let n = rows.bounds[row as usize].sampled.len();
            for h in vectors.by_ref().take(n) {
                at_sampled.extend_from_slice(h);
                scores.columns.heads.iter_mut().zip(heads).for_each(|(out, &head)| out.push(weights.head_value(head, h)));
            }
            if !ends.is_empty() {
                let h = vectors.next().expect("the last token was wanted");
                scores.ends.iter_mut().zip(ends).for_each(|(out, &head)| out.push(weights.head_value(head, h)));
            }
        }
        let sampled = run.iter().flat_map(|&row| rows.bounds[row as usize].sampled.clone().map(move |i| (row as usize, i)));
        let mut distribution = Distribution::default();
        let logits = host::logits(weights, &at_sampled, scratch);
        for ((row, i), logits) in sampled.zip(logits.chunks_exact(frozen.config.vocab)) {
            let (token, support) = (rows.token_of(row, i), rows.support_of(i));
            distribution.set(logits, support, rows.temperature_of(i));
            let chosen = match support {
                Some(support) => support.iter().position(|&t| t == token).expect("validated"),
                None => token as usize,
            };
            scores.columns.logprob.push(distribution.logprob(chosen));
            if let Some(entropy) = &mut scores.columns.entropy {
                entropy.push(distribution.entropy());
            }
        }
        if request.hidden {
            scores.hidden = at_sampled;
        }
        scores
    };
    collect(request, runs(rows, TASK_TOKENS).par_iter().map_init(Scratch::default, score_run).collect())
}

/// With the tensor engine, in batches of packed rows.
pub(crate) fn on_device(frozen: &Frozen, rows: &Rows<'_>, request: &ScoreRequest, heads: &[usize], ends: &[usize]) -> Scores {
    let d_model = frozen.config.d_model;
    let score_run = |run: Vec<u32>| {
        let plan = Plan::new(rows, &run);
        let targets = Targets::new(rows, &run, frozen.config.vocab);
        let n = targets.len();
        let mut wanted = plan.predictors.clone();
        if !ends.is_empty() {
            wanted.extend(&plan.ends);
        }
        if wanted.is_empty() {
            return empty(request);
        }
        let all = frozen.net.hidden(&frozen.config, &frozen.rope, &plan, wanted);
        let mut scores = empty(request);
        if n > 0 {
            let hidden = all.clone().narrow(0, 0, n);
            scores.columns = evaluate(&frozen.net, &hidden, &targets, request.columns.entropy, heads).columns;
            if request.hidden {
                scores.hidden = read(hidden);
            }
        }
        if !ends.is_empty() {
            let [rows, _] = all.dims();
            let last = all.narrow(0, n, rows - n);
            scores.ends = ends.iter().map(|&head| head_values(&frozen.net, head, last.clone())).collect();
        }
        debug_assert_eq!(scores.hidden.len(), if request.hidden { n * d_model } else { 0 });
        scores
    };
    collect(request, runs(rows, BATCH_TOKENS).into_iter().map(score_run).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        NnError, Request,
        testing::{OwnedRows, tiny_model},
    };

    const LENGTHS: [usize; 7] = [9, 40, 2, 41, 230, 17, 1];

    fn request() -> ScoreRequest {
        ScoreRequest {
            columns: Request { entropy: true, heads: vec!["probe".into(), "value".into()] },
            ends: vec!["value".into()],
            hidden: true,
        }
    }

    fn assert_close(a: &[f32], b: &[f32], tolerance: f32) {
        assert_eq!(a.len(), b.len());
        let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= tolerance, "{worst}");
    }

    #[test]
    fn both_engines_agree() {
        for tied in [true, false] {
            let model = tiny_model(tied);
            let rows = OwnedRows::random(2, model.config().vocab, &LENGTHS);
            let (heads, ends) = ([1, 0], [0]);
            let a = on_host(&model, &rows.view(), &request(), &heads, &ends);
            let b = on_device(&model, &rows.view(), &request(), &heads, &ends);
            assert_eq!(a, model.score(&rows.view(), &request()).expect("valid"));
            assert_close(&a.columns.logprob, &b.columns.logprob, 1e-4);
            assert_close(a.columns.entropy.as_ref().expect("asked"), b.columns.entropy.as_ref().expect("asked"), 1e-4);
            for (a, b) in a.columns.heads.iter().chain(&a.ends).zip(b.columns.heads.iter().chain(&b.ends)) {
                assert_close(a, b, 1e-4);
            }
            assert_close(&a.hidden, &b.hidden, 1e-4);
            assert_eq!(a.hidden.len(), rows.at.len() * model.config().d_model);
            assert_eq!(a.ends[0].len(), rows.bounds.len());
        }
    }

    #[test]
    fn scores_are_those_of_decoding_to_the_bit() {
        let model = tiny_model(true);
        let rows = OwnedRows::random(4, model.config().vocab, &[60]);
        let view = rows.view();
        let mut decoder = model.decoder();
        let session = decoder.open();
        let (mut logprob, mut entropy, mut fed) = (Vec::new(), Vec::new(), 0);
        let mut distribution = Distribution::default();
        for (i, &at) in rows.at.iter().enumerate() {
            let logits = decoder.step(&[(session, &rows.tokens[fed..at])]).expect("valid");
            fed = at;
            distribution.set(&logits[0], view.support_of(i), rows.temperature[i]);
            let token = rows.tokens[at];
            let chosen = view.support_of(i).map_or(Some(token as usize), |s| s.iter().position(|&t| t == token));
            logprob.push(distribution.logprob(chosen.expect("what was sampled was allowed")));
            entropy.push(distribution.entropy());
        }
        let scores = model.score(&view, &request()).expect("valid");
        assert_eq!(scores.columns.logprob, logprob);
        assert_eq!(scores.columns.entropy, Some(entropy));
    }

    #[test]
    fn a_support_of_one_token_is_certain() {
        let model = tiny_model(true);
        let mut rows = OwnedRows::random(9, model.config().vocab, &[3]);
        rows.at = vec![1];
        rows.bounds[0].sampled = 0..1;
        rows.temperature = vec![0.5];
        rows.supports = vec![vec![rows.tokens[1]].into()];
        rows.support = vec![1];
        let a = on_host(&model, &rows.view(), &request(), &[], &[]);
        let b = on_device(&model, &rows.view(), &request(), &[], &[]);
        for scores in [a, b] {
            assert_eq!(scores.columns.logprob, [0.0]);
            assert_eq!(scores.columns.entropy, Some(vec![0.0]));
        }
    }

    #[test]
    fn rows_that_contradict_themselves_are_refused() {
        let model = tiny_model(true);
        let refuse = |change: &dyn Fn(&mut OwnedRows), message: &str| {
            let mut rows = OwnedRows::random(3, model.config().vocab, &[6, 7]);
            change(&mut rows);
            let error = model.score(&rows.view(), &request()).expect_err(message);
            assert!(error.to_string().contains(message), "{error}");
        };
        refuse(&|r| r.tokens[8] = 99, "token 99 is not in the vocabulary of 37");
        refuse(&|r| r.at[0] = 0, "row 0: its first token is marked as sampled");
        refuse(&|r| r.bounds[1].tokens = 6..600, "row 1: its tokens 6..600 lie outside");
        refuse(&|r| r.bounds[1].tokens = 6..6, "row 1: it has no tokens");
        refuse(&|r| *r.at.last_mut().expect("some") = 7, "row 1: offsets of sampled tokens must ascend and stay below 7");
        refuse(&|r| r.temperature[0] = 0.0, "row 0: temperature must be positive, got 0");
        refuse(&|r| r.temperature.truncate(1), "`temperature` has 1 entries for");
        refuse(&|r| r.support[0] = 1000, "support 1000 is not among");
        refuse(
            &|r| {
                r.supports = vec![vec![(r.tokens[r.at[0]] + 1) % 37].into()];
                r.support.fill(0);
                r.support[0] = 1;
            },
            "was sampled but is not in its allowed support",
        );
        let unknown = ScoreRequest { ends: vec!["critic".into()], ..request() };
        let rows = OwnedRows::random(3, model.config().vocab, &[6]);
        assert_eq!(
            model.score(&rows.view(), &unknown),
            Err(NnError::UnknownHead { name: "critic".into(), known: "value, probe".into() })
        );
    }
}
