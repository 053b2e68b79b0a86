//! Decoding sessions: an episode's key/value cache, fed turn by turn.

use crate::{
    error::NnError,
    frozen::Frozen,
    host::{self, Cache, Feed, HostWeights, Scratch},
    tensor_decode::TensorCaches,
};
use rayon::prelude::*;
use std::{collections::BTreeMap, sync::Arc};

/// A decoding session. Numbers are never used twice by one decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Decodes many sequences side by side with frozen weights.
///
/// Each session is one sequence. [`step`](Self::step) feeds only what is new; [`fork`](Self::fork) shares the past
/// between sessions, so that a group pays for its prompt once. On the CPU, what a session gives is the same to the bit
/// whatever it shares the batch with, however its tokens are split into steps, and whatever the number of threads; on
/// other devices it is the same up to rounding.
#[derive(Debug)]
pub struct Decoder {
    engine: Engine,
    sessions: BTreeMap<SessionId, Session>,
    next: u64,
    vocab: usize,
    max_positions: usize,
}

#[derive(Debug)]
enum Engine {
    Host { weights: Arc<HostWeights>, scratch: Vec<Scratch>, parameters: usize },
    Tensor(Box<TensorCaches>),
}

#[derive(Clone, Debug, Default)]
struct Session {
    len: usize,
    /// Last hidden vector, after the last norm; empty before the first token.
    last: Vec<f32>,
    /// Used by the host engine.
    cache: Cache,
}

/// Multiply-adds below which starting a thread costs more than it saves.
const TASK_WORK: usize = 1 << 20;

impl Decoder {
    pub(crate) fn new(frozen: &Frozen) -> Self {
        let engine = if frozen.on_host() {
            Engine::Host { weights: frozen.packed().clone(), scratch: Vec::new(), parameters: frozen.n_parameters() }
        } else {
            Engine::Tensor(Box::new(TensorCaches::new(frozen)))
        };
        Self::with_engine(frozen, engine)
    }

    /// A decoder that uses tensors on the CPU too, for tests.
    #[cfg(test)]
    pub(crate) fn on_tensors(frozen: &Frozen) -> Self {
        Self::with_engine(frozen, Engine::Tensor(Box::new(TensorCaches::new(frozen))))
    }

    fn with_engine(frozen: &Frozen, engine: Engine) -> Self {
        Self {
            engine,
            sessions: BTreeMap::new(),
            next: 0,
            vocab: frozen.config.vocab,
            max_positions: frozen.config.max_positions,
        }
    }

    /// Opens an empty session.
    pub fn open(&mut self) -> SessionId {
        self.insert(Session::default())
    }

    fn insert(&mut self, session: Session) -> SessionId {
        let id = SessionId(self.next);
        self.next += 1;
        if let Engine::Tensor(caches) = &mut self.engine {
            caches.open(id);
        }
        self.sessions.insert(id, session);
        id
    }

    /// Opens a session with the same past. The past is shared, not copied, as far as the engine can.
    ///
    /// # Errors
    /// [`NnError::UnknownSession`] if the session is not open.
    pub fn fork(&mut self, session: SessionId) -> Result<SessionId, NnError> {
        let copy = self.session(session)?.clone();
        let len = copy.len;
        let id = self.insert(copy);
        if let Engine::Tensor(caches) = &mut self.engine {
            caches.copy(session, id, len);
        }
        Ok(id)
    }

    /// Closes a session and says whether it was open.
    pub fn close(&mut self, session: SessionId) -> bool {
        if let Engine::Tensor(caches) = &mut self.engine {
            caches.close(session);
        }
        self.sessions.remove(&session).is_some()
    }

    /// Number of open sessions.
    pub fn n_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Number of tokens fed to a session.
    ///
    /// # Errors
    /// [`NnError::UnknownSession`] if the session is not open.
    pub fn len_of(&self, session: SessionId) -> Result<usize, NnError> {
        Ok(self.session(session)?.len)
    }

    fn session(&self, session: SessionId) -> Result<&Session, NnError> {
        self.sessions.get(&session).ok_or(NnError::UnknownSession(session.0))
    }

    fn validate(&self, feeds: &[(SessionId, &[u32])]) -> Result<(), NnError> {
        let mut ids: Vec<_> = feeds.iter().map(|&(id, _)| id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(NnError::Request(format!("decoding session {} appears twice in one step", pair[0].0)));
        }
        for &(id, tokens) in feeds {
            let session = self.session(id)?;
            let len = session.len + tokens.len();
            if len == 0 {
                return Err(NnError::Request(format!("decoding session {} is empty; feed it a token first", id.0)));
            }
            if len > self.max_positions {
                return Err(NnError::TooLong { wanted: len, max: self.max_positions });
            }
            if let Some(&token) = tokens.iter().find(|&&token| token as usize >= self.vocab) {
                return Err(NnError::Token { token, vocab: self.vocab });
            }
        }
        Ok(())
    }

    /// Feeds new tokens to sessions and returns, per session, the logits `[vocab]` of the token after its last.
    ///
    /// A session that is fed nothing gives the logits of its last step again.
    ///
    /// # Errors
    /// If a session is not open, appears twice, is empty after the step, or outgrows the model's positions. Nothing is
    /// fed to any session then.
    pub fn step(&mut self, feeds: &[(SessionId, &[u32])]) -> Result<Vec<Vec<f32>>, NnError> {
        self.validate(feeds)?;
        let mut taken: Vec<Session> = feeds.iter().map(|(id, _)| self.sessions.remove(id).expect("validated")).collect();
        let out = match &mut self.engine {
            Engine::Host { weights, scratch, parameters } => run_on_host(weights, scratch, *parameters, feeds, &mut taken),
            Engine::Tensor(caches) => {
                let starts: Vec<usize> = taken.iter().map(|session| session.len).collect();
                let hidden = caches.feed(feeds, &starts);
                taken.iter_mut().zip(hidden).for_each(|(session, hidden)| {
                    if let Some(hidden) = hidden {
                        session.last = hidden;
                    }
                });
                let logits = caches.logits(taken.iter().map(|session| session.last.as_slice()));
                logits.chunks_exact(self.vocab).map(<[f32]>::to_vec).collect()
            }
        };
        for (&(id, tokens), mut session) in feeds.iter().zip(taken) {
            session.len += tokens.len();
            self.sessions.insert(id, session);
        }
        Ok(out)
    }
}

/// One thread's part of a step.
struct Shard<'a> {
    feeds: &'a [(SessionId, &'a [u32])],
    sessions: &'a mut [Session],
    scratch: &'a mut Scratch,
    /// Logits per session.
    out: Vec<Vec<f32>>,
}

impl Shard<'_> {
    fn run(&mut self, weights: &HostWeights) {
        let last: Vec<usize> = self.feeds.iter().map(|(_, tokens)| tokens.len().wrapping_sub(1)).collect();
        let mut feeds: Vec<_> = self
            .feeds
            .iter()
            .zip(self.sessions.iter_mut())
            .zip(&last)
            .map(|(((_, tokens), session), last)| Feed { cache: &mut session.cache, tokens, wanted: std::slice::from_ref(last) })
            .collect();
        let mut hidden = Vec::new();
        host::hidden(weights, &mut feeds, &mut hidden, self.scratch);
        let mut new = hidden.chunks_exact(weights.config.d_model);
        for ((_, tokens), session) in self.feeds.iter().zip(self.sessions.iter_mut()) {
            if !tokens.is_empty() {
                session.last.clear();
                session.last.extend_from_slice(new.next().expect("one hidden vector per fed session"));
            }
        }
        let all: Vec<f32> = self.sessions.iter().flat_map(|session| session.last.iter().copied()).collect();
        let logits = host::logits(weights, &all, self.scratch);
        self.out = logits.chunks_exact(weights.config.vocab).map(<[f32]>::to_vec).collect();
    }
}

/// Spreads sessions over threads in contiguous shares of about equal work.
fn run_on_host(
    weights: &HostWeights,
    scratch: &mut Vec<Scratch>,
    parameters: usize,
    feeds: &[(SessionId, &[u32])],
    sessions: &mut [Session],
) -> Vec<Vec<f32>> {
    let cost = |i: usize| feeds[i].1.len().max(1);
    let total: usize = (0..feeds.len()).map(cost).sum();
    let n_tasks = (total * parameters / TASK_WORK).clamp(1, rayon::current_num_threads()).min(feeds.len().max(1));
    scratch.resize_with(n_tasks.max(scratch.len()), Default::default);
    let mut shards = Vec::with_capacity(n_tasks);
    let (mut feeds_left, mut sessions_left) = (feeds, sessions);
    let (mut first, mut spent) = (0, 0);
    for (task, scratch) in scratch.iter_mut().take(n_tasks).enumerate() {
        let mut n = 0;
        while n < feeds_left.len() && (task + 1 == n_tasks || spent < total * (task + 1) / n_tasks) {
            spent += cost(first + n);
            n += 1;
        }
        let (feeds, sessions);
        (feeds, feeds_left) = feeds_left.split_at(n);
        (sessions, sessions_left) = sessions_left.split_at_mut(n);
        shards.push(Shard { feeds, sessions, scratch, out: Vec::new() });
        first += n;
    }
    if let [shard] = shards.as_mut_slice() {
        shard.run(weights);
    } else {
        shards.par_iter_mut().for_each(|shard| shard.run(weights));
    }
    shards.into_iter().flat_map(|shard| shard.out).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        net::host as read,
        plan::Plan,
        rows::{RowBounds, Rows},
        testing::{numbers, tiny_model},
    };

    /// Next-token logits after every prefix, by one full forward pass of the tensor engine.
    fn full_forward(frozen: &Frozen, tokens: &[u32]) -> Vec<Vec<f32>> {
        let bounds = [RowBounds { tokens: 0..tokens.len(), sampled: 0..0 }];
        let rows = Rows { tokens, bounds: &bounds, at: &[], temperature: &[], support: &[], supports: &[] };
        let plan = Plan::new(&rows, &[0]);
        let hidden = frozen.net.hidden(&frozen.config, &frozen.rope, &plan, (0..tokens.len() as i64).collect());
        read(frozen.net.logits(hidden)).chunks_exact(frozen.config.vocab).map(<[f32]>::to_vec).collect()
    }

    fn assert_close(got: &[f32], expected: &[f32], what: &str) {
        let worst = got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let size = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        assert!(size > 0.1, "{what}: logits of size {size} test nothing");
        assert!(worst <= 1e-4 && got.len() == expected.len(), "{what}: off by {worst}");
    }

    fn both_engines(frozen: &Frozen) -> [(&'static str, Decoder); 2] {
        [("host", Decoder::new(frozen)), ("tensor", Decoder::on_tensors(frozen))]
    }

    fn tokens(seed: u64, vocab: usize, n: usize) -> Vec<u32> {
        let mut next = numbers(seed);
        (0..n).map(|_| next(vocab) as u32).collect()
    }

    #[test]
    fn ragged_turns_give_the_logits_of_a_full_forward() {
        for tied in [true, false] {
            let model = tiny_model(tied);
            let vocab = model.config().vocab;
            for (name, mut decoder) in both_engines(&model) {
                // Sessions of different lengths join and leave; each turn feeds 1 to 19 tokens, ten turns and more.
                let mut next = numbers(11);
                let sequences: Vec<Vec<u32>> = (0..11).map(|i| tokens(i, vocab, 20 + 23 * i as usize)).collect();
                let expected: Vec<_> = sequences.iter().map(|s| full_forward(&model, s)).collect();
                let mut open: Vec<(usize, SessionId, usize)> = Vec::new();
                let mut waiting: Vec<usize> = (0..sequences.len()).rev().collect();
                while !open.is_empty() || !waiting.is_empty() {
                    while open.len() < 9
                        && let Some(i) = waiting.pop()
                    {
                        open.push((i, decoder.open(), 0));
                    }
                    let feeds: Vec<(SessionId, &[u32])> = open
                        .iter()
                        .map(|&(i, id, at)| {
                            let n = (1 + next(19)).min(sequences[i].len() - at);
                            (id, &sequences[i][at..at + n])
                        })
                        .collect();
                    let logits = decoder.step(&feeds).expect("valid");
                    let fed: Vec<usize> = feeds.iter().map(|(_, tokens)| tokens.len()).collect();
                    for (((i, _, at), n), logits) in open.iter_mut().zip(fed).zip(logits) {
                        *at += n;
                        assert_close(&logits, &expected[*i][*at - 1], name);
                    }
                    open.retain(|&(i, id, at)| {
                        let more = at < sequences[i].len();
                        assert!(more || decoder.close(id));
                        more
                    });
                }
                assert_eq!(decoder.n_sessions(), 0);
            }
        }
    }

    #[test]
    fn forks_share_the_past_and_nothing_else() {
        let model = tiny_model(true);
        let vocab = model.config().vocab;
        // The prompt ends inside a block, so both sides write the block they share.
        let prompt = tokens(1, vocab, 39);
        let continuations: Vec<Vec<u32>> = (0..12).map(|i| tokens(20 + i, vocab, 30)).collect();
        for (name, mut decoder) in both_engines(&model) {
            let root = decoder.open();
            let at_prompt = decoder.step(&[(root, &prompt)]).expect("valid");
            let forks: Vec<SessionId> = continuations.iter().map(|_| decoder.fork(root).expect("open")).collect();
            // A fork that is fed nothing knows the logits of its past.
            assert_eq!(decoder.step(&[(forks[3], &[])]).expect("valid"), at_prompt);
            for (start, end) in [(0, 7), (7, 8), (8, 23), (23, 30)] {
                let feeds: Vec<(SessionId, &[u32])> =
                    forks.iter().zip(&continuations).map(|(&id, c)| (id, &c[start..end])).collect();
                let logits = decoder.step(&feeds).expect("valid");
                for (c, logits) in continuations.iter().zip(logits) {
                    let whole = [prompt.as_slice(), &c[..end]].concat();
                    assert_close(&logits, full_forward(&model, &whole).last().expect("tokens"), name);
                }
            }
            assert_eq!(decoder.len_of(root), Ok(39));
            assert_eq!(decoder.step(&[(root, &[])]).expect("valid"), at_prompt, "{name}: the root is as it was");
        }
    }

    #[test]
    fn company_cuts_and_threads_change_no_bit_on_the_host() {
        let model = tiny_model(true);
        let vocab = model.config().vocab;
        let sequences: Vec<Vec<u32>> = (0..40).map(|i| tokens(i, vocab, 30 + 5 * i as usize)).collect();
        let alone: Vec<Vec<f32>> = sequences
            .iter()
            .map(|sequence| {
                let mut decoder = model.decoder();
                let id = decoder.open();
                decoder.step(&[(id, sequence)]).expect("valid").remove(0)
            })
            .collect();
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let mut decoder = model.decoder();
                let ids: Vec<_> = sequences.iter().map(|_| decoder.open()).collect();
                let mut logits = Vec::new();
                // Fed in three pieces, which end at these shares of each sequence.
                for (from, to) in [(0.0, 0.3), (0.3, 0.35), (0.35, 1.0)] {
                    let feeds: Vec<(SessionId, &[u32])> = ids
                        .iter()
                        .zip(&sequences)
                        .map(|(&id, s)| {
                            let place = |share: f64| (share * s.len() as f64) as usize;
                            (id, &s[place(from)..place(to)])
                        })
                        .collect();
                    logits = decoder.step(&feeds).expect("valid");
                }
                assert_eq!(logits, alone, "{threads} threads");
            });
        }
    }

    #[test]
    fn mistakes_are_named_and_change_nothing() {
        let model = tiny_model(true);
        for (_, mut decoder) in both_engines(&model) {
            let (a, b) = (decoder.open(), decoder.open());
            decoder.step(&[(a, &[1, 2])]).expect("valid");
            let long = vec![0; 399];
            for (feeds, message) in [
                (vec![(b, [].as_slice())], "decoding session 1 is empty; feed it a token first"),
                (vec![(a, &[3]), (a, &[4])], "decoding session 0 appears twice in one step"),
                (vec![(a, &[3]), (SessionId(7), &[4])], "decoding session 7 is not open"),
                (vec![(a, &[3]), (b, &[37])], "token 37 is not in the vocabulary of 37"),
                (
                    vec![(b, &[3]), (a, &long)],
                    "a sequence of 401 tokens exceeds the model's 400 positions; raise `max_positions` or shorten the context",
                ),
            ] {
                assert_eq!(decoder.step(&feeds).expect_err(message).to_string(), message);
            }
            assert_eq!((decoder.len_of(a), decoder.len_of(b)), (Ok(2), Ok(0)));
            assert!(decoder.close(b) && !decoder.close(b));
            assert_eq!(decoder.fork(b), Err(NnError::UnknownSession(1)));
        }
    }

    #[test]
    fn a_decoder_keeps_the_weights_it_was_made_from() {
        let mut model = tiny_model(true);
        let mut decoder = model.decoder();
        let id = decoder.open();
        let before = decoder.step(&[(id, &[5])]).expect("valid");
        model.frozen.replace(|_, value| value.mul_scalar(2.0));
        assert_eq!(decoder.step(&[(id, &[])]).expect("valid"), before);
        let mut fresh = model.decoder();
        let id = fresh.open();
        assert_ne!(fresh.step(&[(id, &[5])]).expect("valid"), before);
    }
}
