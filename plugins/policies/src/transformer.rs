//! A decoder-only transformer, trained from scratch: the policy for embedded environments and text games on a CPU.
//!
//! RMS norm, rotary positions (rotate-half), grouped-query attention, SwiGLU, tied or untied head; word-level tokens
//! over the environment's vocabulary. Touvron et al. 2023, "LLaMA", arXiv 2302.13971.
//!
//! Sessions keep each episode's keys and values, so a turn feeds only its new tokens, and members of a group share
//! their prompt's. Weights that moved start new sessions: one that is open across an update is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ascribe_core::drive::{Drive, MicroBatch};
use ascribe_core::log::Action;
use ascribe_core::objective::{Columns, DiffColumn, Sums};
use ascribe_core::policy::{Continuation, HeadSpec, OptimStep, Part, PolicyError, ScoreRequest, Scored, Session, StepReport};
use ascribe_core::range::{Between, Positive};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{BuildContext, BuildError, Draw, Now, Policy, PolicyConfig, RowSet, plugin};
use ascribe_nn::{
    AdamW, Decoder, DeviceChoice, Model, ModelConfig, NnError, Request, RowBounds, SessionId, open_device, tune_allocator,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sampling::Sampler;

/// `[policy.NAME.transformer]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transformer {
    /// Width of the residual stream, at least 1 and at most 65536.
    pub d_model: Between<1, 65_536>,
    /// Number of layers, at least 1 and at most 1024.
    pub layers: Between<1, 1024>,
    /// Number of query heads, at least 1; divides `d_model`.
    pub heads: Between<1, 65_536>,
    /// Number of key and value heads, at least 1; divides `heads`. Left out: as many as `heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<Between<1, 65_536>>,
    /// Width of the feed-forward part, at least 1. Left out: 8/3 of `d_model`, rounded up to a multiple of 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<Between<1, 1_048_576>>,
    /// Longest sequence in tokens, at least 1 and at most 2^24.
    pub max_tokens: Between<1, 16_777_216>,
    /// Base of the rotary angles, positive. LLaMA: 10000.
    #[serde(default = "llama_theta")]
    pub rope_theta: Positive,
    /// Whether the output head is the embedding.
    #[serde(default = "yes")]
    pub tied: bool,
}

fn llama_theta() -> Positive {
    Positive::try_from(10_000.0).expect("in range")
}
fn yes() -> bool {
    true
}

plugin! {
    Policy "transformer" {
        summary: "A decoder-only transformer over the environment's words, trained from scratch.",
        source: "Touvron et al. 2023, LLaMA, arXiv 2302.13971",
        when: "Embedded environments and text games, on a CPU or a GPU.",
        example: "d_model = 64\nlayers = 2\nheads = 4\nmax_tokens = 256",
        module: "transformer.rs",
    }
    impl PolicyConfig for Transformer {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Policy>, BuildError> {
            let about = context.environment();
            let tokenizer = WordTokenizer::new(about.vocabulary.iter().chain([&about.stop]));
            let choice: DeviceChoice = context.device.parse().map_err(|e: NnError| BuildError::Device(e.to_string()))?;
            tune_allocator();
            let device = open_device(choice).map_err(|e| BuildError::Device(e.to_string()))?;
            let (d_model, heads) = (self.d_model.get(), self.heads.get());
            if !d_model.is_multiple_of(heads) {
                return Err(BuildError::Config(format!("`heads` must divide `d_model` = {d_model}, got {heads}")));
            }
            let config = ModelConfig {
                vocab: tokenizer.vocab_size(),
                d_model,
                n_layers: self.layers.get(),
                n_heads: heads,
                n_kv_heads: self.kv_heads.map_or(heads, Between::get),
                head_dim: d_model / heads,
                d_ff: self.d_ff.map_or_else(|| (8 * d_model).div_ceil(3).next_multiple_of(8), Between::get),
                rope_theta: *self.rope_theta,
                norm_eps: 1e-5,
                tied: self.tied,
                max_positions: self.max_tokens.get(),
            };
            let seed = context.seeds.derive("policy/init", Draw::default());
            let model = Model::new(config, seed, &device).map_err(|e| BuildError::Config(e.to_string()))?;
            Ok(Box::new(Live::new(model, Arc::new(tokenizer), context.threads)))
        }
        fn columns(&self) -> Vec<DiffColumn> {
            vec![DiffColumn::Logprob, DiffColumn::Entropy]
        }
        fn hidden(&self) -> bool {
            true
        }
    }
}

/// A live transformer.
struct Live {
    model: Model,
    tokenizer: Arc<WordTokenizer>,
    version: u64,
    /// Workers of a training step; changes no bit.
    workers: usize,
    /// Decodes with the weights as they are; dropped when they move.
    decoder: Option<Decoder>,
    /// Open sessions of that decoder. Numbers are never given twice, so a session of older weights is unknown.
    sessions: BTreeMap<Session, SessionId>,
    next: u64,
    /// Tokens of a session that its cache has not been fed yet: the end of its last action.
    pending: BTreeMap<Session, Vec<u32>>,
}

fn error(e: NnError) -> PolicyError {
    match e {
        NnError::TooLong { wanted, max } => PolicyError::TooLong { tokens: wanted, limit: max },
        NnError::Saved(what) => PolicyError::Load(what),
        other => PolicyError::Unsupported(other.to_string()),
    }
}

impl Live {
    fn new(model: Model, tokenizer: Arc<WordTokenizer>, threads: usize) -> Self {
        Self {
            model,
            tokenizer,
            version: 0,
            workers: threads.max(1),
            decoder: None,
            sessions: BTreeMap::new(),
            next: 0,
            pending: BTreeMap::new(),
        }
    }

    fn decoder(&mut self) -> &mut Decoder {
        self.decoder.get_or_insert_with(|| self.model.decoder())
    }

    fn known(&self, session: Session) -> Result<SessionId, PolicyError> {
        let unknown =
            || PolicyError::Unsupported(format!("session {} is not open (the weights may have moved since)", session.0));
        self.sessions.get(&session).copied().ok_or_else(unknown)
    }

    fn register(&mut self, id: SessionId) -> Session {
        let session = Session(self.next);
        self.next += 1;
        self.sessions.insert(session, id);
        session
    }

    /// Forgets everything that was decoded with older weights.
    fn weights_moved(&mut self) {
        self.decoder = None;
        self.sessions.clear();
        self.pending.clear();
    }

    /// Feeds, per session, what is pending and then `feed`; gives the logits after the last token.
    fn step(&mut self, feeds: Vec<(Session, &[u32])>) -> Result<Vec<Vec<f32>>, PolicyError> {
        let mut tokens: Vec<(SessionId, Vec<u32>)> = Vec::with_capacity(feeds.len());
        for (session, feed) in &feeds {
            let mut all = self.pending.get(session).cloned().unwrap_or_default();
            all.extend_from_slice(feed);
            tokens.push((self.known(*session)?, all));
        }
        let work: Vec<(SessionId, &[u32])> = tokens.iter().map(|(s, t)| (*s, &t[..])).collect();
        let logits = self.decoder().step(&work).map_err(error)?;
        for (session, _) in &feeds {
            self.pending.remove(session);
        }
        Ok(logits)
    }
}

/// Rows as the model reads them.
struct Flat {
    bounds: Vec<RowBounds>,
    temperature: Vec<f32>,
}
impl Flat {
    fn new(rows: &RowSet) -> Self {
        let bounds = rows.rows.iter().map(|r| RowBounds { tokens: r.tokens.clone(), sampled: r.trained.clone() }).collect();
        let mut temperature = vec![1.0; rows.n_trained()];
        for turn in &rows.turns {
            // What was taken greedily is scored at temperature 1.
            temperature[turn.trained.clone()].fill(if turn.temperature > 0.0 { turn.temperature } else { 1.0 });
        }
        Self { bounds, temperature }
    }
    fn view<'a>(&'a self, rows: &'a RowSet) -> ascribe_nn::Rows<'a> {
        ascribe_nn::Rows {
            tokens: &rows.tokens,
            bounds: &self.bounds,
            at: &rows.at,
            temperature: &self.temperature,
            support: &rows.support,
            supports: &rows.supports,
        }
    }
}

/// The request for some columns.
fn request(columns: &[DiffColumn]) -> Result<Request, PolicyError> {
    let mut request = Request::default();
    for column in columns {
        match column {
            DiffColumn::Logprob => {}
            DiffColumn::Entropy => request.entropy = true,
            DiffColumn::Head(name) => request.heads.push(name.clone()),
            DiffColumn::Kl(_) => return Err(PolicyError::Unsupported(format!("a transformer has no {column}"))),
        }
    }
    Ok(request)
}

/// Columns under their names.
fn named(wanted: &[DiffColumn], columns: &ascribe_nn::Columns) -> Columns {
    let mut heads = columns.heads.iter();
    Columns::new(wanted.iter().map(|column| {
        let numbers = match column {
            DiffColumn::Logprob => columns.logprob.clone(),
            DiffColumn::Entropy => columns.entropy.clone().unwrap_or_default(),
            _ => heads.next().cloned().unwrap_or_default(),
        };
        (column.clone(), numbers)
    }))
}

/// The way back: coefficients in the model's shape.
fn unnamed(wanted: &[DiffColumn], grad: &Columns, like: &ascribe_nn::Columns) -> ascribe_nn::Columns {
    let mut out = like.zeros_like();
    let mut head = 0;
    for column in wanted {
        let numbers = grad.get(column).to_vec();
        match column {
            DiffColumn::Logprob => out.logprob = numbers,
            DiffColumn::Entropy => out.entropy = Some(numbers),
            _ => {
                out.heads[head] = numbers;
                head += 1;
            }
        }
    }
    out
}

impl Policy for Live {
    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.tokenizer.clone()
    }
    fn version(&self) -> u64 {
        self.version
    }
    fn max_tokens(&self) -> usize {
        self.model.config().max_positions
    }
    fn n_parameters(&self) -> usize {
        self.model.n_parameters()
    }
    fn columns(&self) -> Vec<DiffColumn> {
        let heads = self.model.heads().iter().map(|h| DiffColumn::Head(h.name.clone()));
        [DiffColumn::Logprob, DiffColumn::Entropy].into_iter().chain(heads).collect()
    }
    fn add_head(&mut self, spec: HeadSpec) -> Result<(), PolicyError> {
        let HeadSpec { name, detach_trunk, zero_init } = spec;
        self.model.add_head(ascribe_nn::HeadSpec { name, detach_trunk, zero_init }).map_err(error)
    }
    fn open(&mut self) -> Result<Session, PolicyError> {
        let id = self.decoder().open();
        Ok(self.register(id))
    }
    fn prefill(&mut self, work: &[(Session, &[u32])]) -> Result<(), PolicyError> {
        if work.is_empty() {
            return Ok(());
        }
        self.step(work.to_vec()).map(|_| ())
    }
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
        let of = self.known(session)?;
        let id = self.decoder().fork(of).map_err(error)?;
        let fork = self.register(id);
        if let Some(pending) = self.pending.get(&session).cloned() {
            self.pending.insert(fork, pending);
        }
        Ok(fork)
    }
    fn close(&mut self, session: Session) {
        self.pending.remove(&session);
        if let (Some(id), Some(decoder)) = (self.sessions.remove(&session), &mut self.decoder) {
            decoder.close(id);
        }
    }
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        let mut samplers: Vec<Sampler<'_>> = work.iter().map(Sampler::new).collect();
        // Tokens of each action that its session has been fed already.
        let mut fed = vec![0; work.len()];
        for w in work {
            self.known(w.session)?;
            if !w.feed.is_empty() {
                self.pending.entry(w.session).or_default().extend_from_slice(w.feed);
            }
        }
        loop {
            let mut live = Vec::new();
            for (i, sampler) in samplers.iter_mut().enumerate() {
                sampler.take_forced();
                if !sampler.done() {
                    live.push(i);
                }
            }
            if live.is_empty() {
                break;
            }
            let feeds = live.iter().map(|i| (work[*i].session, &samplers[*i].tokens()[fed[*i]..])).collect();
            let logits = self.step(feeds)?;
            for (i, logits) in live.into_iter().zip(&logits) {
                fed[i] = samplers[i].tokens().len();
                samplers[i].draw(logits)?;
            }
        }
        for ((w, sampler), fed) in work.iter().zip(&samplers).zip(fed) {
            let rest = &sampler.tokens()[fed..];
            if !rest.is_empty() {
                self.pending.entry(w.session).or_default().extend_from_slice(rest);
            }
        }
        Ok(samplers.into_iter().map(Sampler::finish).collect())
    }
    fn score(&mut self, rows: &RowSet, wanted: &ScoreRequest) -> Result<Scored, PolicyError> {
        let flat = Flat::new(rows);
        let request =
            ascribe_nn::ScoreRequest { columns: request(&wanted.columns)?, ends: wanted.ends.clone(), hidden: wanted.hidden };
        let scores = self.model.score(&flat.view(rows), &request).map_err(error)?;
        let columns = named(&wanted.columns, &scores.columns);
        Ok(Scored {
            columns: wanted.columns.iter().map(|c| columns.get(c).to_vec()).collect(),
            hidden: scores.hidden,
            ends: scores.ends,
        })
    }
    fn forward_backward(&mut self, parts: &[Part<'_>], micro_batch_tokens: usize, now: &Now) -> Result<Vec<Sums>, PolicyError> {
        let model = &self.model;
        let drive = Drive::new(parts, micro_batch_tokens, now, |micro: &MicroBatch, wanted| {
            let flat = Flat::new(&micro.rows);
            let bounds: Vec<RowBounds> = micro.picked.iter().map(|r| flat.bounds[*r as usize].clone()).collect();
            let rows = ascribe_nn::Rows { bounds: &bounds, ..flat.view(&micro.rows) };
            let request = ascribe_nn::ScoreRequest { columns: request(wanted)?, ..ascribe_nn::ScoreRequest::default() };
            Ok(named(wanted, &model.score(&rows, &request).map_err(error)?.columns))
        })?;
        let n = drive.micro().len();
        let statistics: Mutex<Vec<Vec<(usize, Sums)>>> = Mutex::new(vec![Vec::new(); n]);
        let failure: Mutex<Option<(usize, PolicyError)>> = Mutex::new(None);
        let mut first = 0;
        // One pass over the model per row set and set of columns; micro-batches keep their order.
        while first < n {
            let rows = &drive.micro()[first].rows;
            let wanted = drive.columns(first);
            let same = |m: &usize| Arc::ptr_eq(&drive.micro()[*m].rows, rows) && drive.columns(*m) == wanted;
            let last = (first..n).take_while(same).last().unwrap_or(first);
            let micro: Vec<Vec<u32>> = drive.micro()[first..=last].iter().map(|m| m.picked.clone()).collect();
            let flat = Flat::new(rows);
            let coefficients = |m: usize, out: &ascribe_nn::Columns| match drive.coefficients(first + m, &named(&wanted, out)) {
                Ok((grad, sums)) => {
                    statistics.lock().expect("no worker panics")[first + m] = sums;
                    unnamed(&wanted, &grad, out)
                }
                Err(e) => {
                    let mut failure = failure.lock().expect("no worker panics");
                    // The first micro-batch speaks, whichever worker came first.
                    if failure.as_ref().is_none_or(|(earlier, _)| first + m < *earlier) {
                        *failure = Some((first + m, e));
                    }
                    out.zeros_like()
                }
            };
            self.model
                .forward_backward(&flat.view(rows), &micro, &request(&wanted)?, self.workers, &coefficients)
                .map_err(error)?;
            first = last + 1;
        }
        if let Some((_, e)) = failure.into_inner().expect("no worker panics") {
            self.model.clear_gradients();
            return Err(e);
        }
        Ok(drive.merge(statistics.into_inner().expect("no worker panics")))
    }
    fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError> {
        let OptimStep { learning_rate, beta1, beta2, epsilon, weight_decay, clip_norm } = *step;
        let report = self.model.optim_step(&AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, clip_norm });
        if !report.skipped {
            self.version += 1;
            self.weights_moved();
        }
        Ok(StepReport { gradient_norm: report.gradient_norm, skipped: report.skipped, passes: report.passes })
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        let mut copy = Self::new(Model::from(self.model.copy()), self.tokenizer.clone(), self.workers);
        copy.version = self.version;
        Ok(Box::new(copy))
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        let words = self.tokenizer.words().join("\n");
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&(words.len() as u64).to_le_bytes());
        bytes.extend_from_slice(words.as_bytes());
        bytes.extend_from_slice(&self.model.save());
        Ok(bytes)
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        let cut = || PolicyError::Load("the bytes end too early".into());
        let number = |at: usize| -> Result<u64, PolicyError> {
            let eight = bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).ok_or_else(cut)?;
            Ok(u64::from_le_bytes(eight))
        };
        let (version, length) = (number(0)?, usize::try_from(number(8)?).map_err(|_| cut())?);
        let rest = &bytes[16..];
        let (words, weights) = rest.split_at_checked(length).ok_or_else(cut)?;
        if words != self.tokenizer.words().join("\n").as_bytes() {
            return Err(PolicyError::Load("they belong to another vocabulary".into()));
        }
        self.model.load(weights).map_err(error)?;
        self.version = version;
        self.weights_moved();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::batch::NonFinite;
    use ascribe_core::environment::{Capabilities, SnapshotKind};
    use ascribe_core::log::{End, GroupLog, LeafLog, TurnLog};
    use ascribe_core::objective::Objective;
    use ascribe_core::policy::Allowed;
    use ascribe_core::rows::{Rows, Totals};
    use ascribe_core::trie::Trie;
    use ascribe_core::{Batch, Credit, Seeds};

    const WORDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "end"];

    fn build(threads: usize) -> Live {
        let about = Capabilities {
            snapshot: SnapshotKind::None,
            exact_state_key: false,
            r_max: 1.0,
            max_turns: 4,
            max_action_tokens: 4,
            stop: "end".into(),
            vocabulary: WORDS.map(String::from).to_vec(),
            provides: Vec::new(),
        };
        let config = ModelConfig {
            vocab: 10,
            d_model: 16,
            n_layers: 2,
            n_heads: 4,
            n_kv_heads: 2,
            head_dim: 4,
            d_ff: 24,
            rope_theta: 1e4,
            norm_eps: 1e-5,
            tied: true,
            max_positions: 64,
        };
        let model = Model::new(config, 5, &open_device(DeviceChoice::Cpu).unwrap()).unwrap();
        Live::new(model, Arc::new(WordTokenizer::new(&about.vocabulary)), threads)
    }

    /// Two episodes of two turns each, sampled with a shared prompt; the second turn among allowed actions.
    fn play(live: &mut Live) -> (Batch, Vec<Action>) {
        let trie = Trie::new([vec![2, 3, 9], vec![2, 4, 9], vec![3, 3, 9]]);
        let lead = live.open().unwrap();
        live.prefill(&[(lead, &[2, 5, 6])]).unwrap();
        let sessions = [lead, live.fork(lead).unwrap()];
        let mut turns: Vec<TurnLog> = Vec::new();
        let mut actions = Vec::new();
        for t in 0..2u32 {
            let work: Vec<Continuation<'_>> = sessions
                .iter()
                .zip(0u32..)
                .map(|(session, member)| Continuation {
                    session: *session,
                    feed: if t == 0 { &[] } else { &[7, 8] },
                    state_key: &[],
                    stop: 9,
                    max_tokens: 4,
                    allowed: if t == 0 { Allowed::Free } else { Allowed::OneOf(&trie) },
                    temperature: if t == 0 { 1.0 } else { 0.7 },
                    key: Seeds(1).key("test", Draw { member, turn: t, ..Draw::default() }),
                })
                .collect();
            for (member, action) in live.sample(&work).unwrap().into_iter().enumerate() {
                actions.push(action.clone());
                let read = if t == 0 { vec![2, 5, 6] } else { vec![7, 8] };
                let parent = (t > 0).then_some(member);
                turns.push(TurnLog {
                    parent,
                    agent: "actor".into(),
                    read,
                    action,
                    observation: vec![t as u8],
                    ..TurnLog::default()
                });
            }
        }
        let leaves = [2, 3].map(|t| LeafLog { turn: Some(t), end: End::Terminated { success: true }, seed: 0 }).to_vec();
        let group = GroupLog { task_name: "t".into(), turns, leaves, ..GroupLog::default() };
        (Batch::from_groups(vec![group], NonFinite::Refuse).unwrap(), actions)
    }
    fn rows(batch: &Batch) -> RowSet {
        let credit: Vec<Credit> = batch.groups().map(|g| Credit::per_turn((0..g.n_turns()).map(|t| t as f64 - 1.2))).collect();
        RowSet::from_credit(batch, &credit, None)
    }

    /// `L = −Σ A log π / tokens + 0.1 Σ H / tokens`
    #[derive(Debug, Serialize, Deserialize)]
    struct Test {}
    #[typetag::serde(name = "transformer-test")]
    impl Objective for Test {
        fn columns(&self) -> Vec<DiffColumn> {
            vec![DiffColumn::Logprob, DiffColumn::Entropy]
        }
        fn loss(&self, _: &Rows<'_>, _: &Columns, _: &Totals, _: &Now) -> f64 {
            0.0
        }
        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _: &Now, grad: &mut Columns) -> Sums {
            for (i, a) in rows.gather("advantage").unwrap().iter().enumerate() {
                grad.logprob_mut()[i] -= a / totals.tokens as f32;
                grad.get_mut(&DiffColumn::Entropy)[i] += 0.1 / totals.tokens as f32;
            }
            let mut sums = Sums::default();
            sums.add("seen", out.logprob().len() as f64, 1.0);
            sums
        }
    }

    fn train(live: &mut Live, rows: &Arc<RowSet>, micro: usize) -> (Vec<Sums>, f64) {
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let part = Part { rows: rows.clone(), picked: &picked, totals: rows.totals(&picked), objective: &Test {}, scale: 1.0 };
        let sums = live.forward_backward(&[part], micro, &Now::default()).unwrap();
        let step =
            OptimStep { learning_rate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1, clip_norm: Some(1.0) };
        (sums, live.optim_step(&step).unwrap().gradient_norm)
    }

    #[test]
    fn what_the_sampler_recorded_is_what_scoring_finds() {
        let mut live = build(1);
        let (batch, actions) = play(&mut live);
        assert!(actions[2].at.len() < actions[2].tokens.len(), "a token without an alternative is fed: {:?}", actions[2]);
        let rows = rows(&batch);
        let request = ScoreRequest { columns: vec![DiffColumn::Logprob, DiffColumn::Entropy], ..ScoreRequest::default() };
        let scored = live.score(&rows, &request).unwrap();
        let recorded = rows.columns["behavior_logprob"].all().unwrap();
        for (a, b) in scored.columns[0].iter().zip(recorded) {
            assert!((a - b).abs() < 1e-4, "{:?} {recorded:?}", scored.columns[0]);
        }
        assert!(scored.columns[1].iter().all(|h| *h > 0.0));
    }

    #[test]
    fn workers_and_micro_batches() {
        let rows = {
            let mut live = build(1);
            Arc::new(rows(&play(&mut live).0))
        };
        let after = |threads, micro| {
            let mut live = build(threads);
            let norm = train(&mut live, &rows, micro);
            (live.save().unwrap(), norm)
        };
        let (whole, (sums, norm)) = after(1, 1000);
        assert_eq!(sums[0].0[0].sum, rows.n_trained() as f64);
        assert_eq!(after(1, 1).0, after(3, 1).0, "the number of workers changes no bit");
        let (_, (cut_sums, cut_norm)) = after(2, 1);
        assert_eq!(cut_sums[0].0[0].sum, sums[0].0[0].sum);
        assert!((cut_norm - norm).abs() / norm < 1e-6, "{cut_norm} {norm}");
        assert_eq!(after(2, 1000).0, whole);
    }

    #[test]
    fn a_saved_transformer_continues_to_the_bit() {
        let mut straight = build(1);
        let rows = Arc::new(rows(&play(&mut straight).0));
        train(&mut straight, &rows, 1000);
        let saved = straight.save().unwrap();
        let mut resumed = build(1);
        resumed.load(&saved).unwrap();
        for live in [&mut straight, &mut resumed] {
            train(live, &rows, 1000);
            train(live, &rows, 1000);
        }
        assert_eq!(straight.save().unwrap(), resumed.save().unwrap());
        assert_eq!((resumed.version(), play(&mut resumed).1), (3, play(&mut straight).1));
        for cut in [0, 7, 15, 20, saved.len() / 2, saved.len() - 1] {
            assert!(matches!(resumed.load(&saved[..cut]), Err(PolicyError::Load(_))), "{cut}");
        }
        assert_eq!(straight.save().unwrap(), resumed.save().unwrap());
    }

    #[test]
    fn a_session_of_older_weights_is_refused() {
        let mut live = build(1);
        let rows = Arc::new(rows(&play(&mut live).0));
        let old = live.open().unwrap();
        live.prefill(&[(old, &[2])]).unwrap();
        train(&mut live, &rows, 1000);
        live.open().unwrap();
        assert!(live.prefill(&[(old, &[3])]).unwrap_err().to_string().contains("is not open"));
        assert!(live.fork(old).is_err());
    }

    #[test]
    fn a_context_that_does_not_fit_is_an_error() {
        let mut live = build(1);
        let session = live.open().unwrap();
        assert_eq!(live.prefill(&[(session, &[2; 65])]), Err(PolicyError::TooLong { tokens: 65, limit: 64 }));
        assert!(live.prefill(&[(session, &[2; 64])]).is_ok());
    }
}
