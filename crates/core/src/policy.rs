//! Policies: what samples actions and is trained.

use std::fmt;
use std::sync::Arc;

use crate::build::{BuildContext, BuildError};
use crate::need::Need;
use crate::now::Now;
use crate::objective::{DiffColumn, Objective, Sums};
use crate::registry::slot_schema;
use crate::rows::{RowSet, Totals};
use crate::seed::RngKey;
use crate::tokenizer::Tokenizer;
use crate::trie::Trie;

/// What went wrong in a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It cannot do what was asked (a head it does not have, a session that is not open).
    #[error("{0}")]
    Unsupported(String),
    /// A sequence does not fit its context window.
    #[error("a sequence of {tokens} tokens does not fit the policy's {limit}")]
    TooLong {
        /// Tokens of the sequence.
        tokens: usize,
        /// The policy's limit.
        limit: usize,
    },
    /// A number that is not finite, and where it arose.
    #[error("{0}")]
    NonFinite(String),
    /// Saved weights cannot be taken up.
    #[error("saved weights cannot be loaded: {0}")]
    Load(String),
}

/// A decoding session: an episode's cache. Sessions of one policy have different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// What an action may be made of.
#[derive(Clone, Copy, Debug)]
pub enum Allowed<'a> {
    /// Any token, until `stop` or `max_tokens`.
    Free,
    /// One of the sequences of a trie, each of which ends with the stop token.
    OneOf(&'a Trie),
}

/// One action to be sampled: what is new since the session's last call, where to stop, whose random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Continuation<'a> {
    /// The episode's session.
    pub session: Session,
    /// Tokens to feed first: what the agent read since its last action. May be empty only right after
    /// [`Policy::prefill`].
    pub feed: &'a [u32],
    /// Exact key of the state it acts in (a tabular policy reads it, a language model does not).
    pub state_key: &'a [u8],
    /// The token that ends the action; it is sampled like any other.
    pub stop: u32,
    /// Most tokens the action may have.
    pub max_tokens: usize,
    /// What it may be made of.
    pub allowed: Allowed<'a>,
    /// Temperature; 0 is greedy (the smallest id among equals).
    pub temperature: f32,
    /// Where its random numbers come from: one per token that is sampled.
    pub key: RngKey,
}

/// A sampled action.
pub use crate::log::Action;

/// What to compute under teacher forcing.
#[derive(Clone, Debug, Default)]
pub struct ScoreRequest {
    /// Columns, `[trained tokens]`.
    pub columns: Vec<DiffColumn>,
    /// Whether to read hidden vectors at the positions that predict the trained tokens.
    pub hidden: bool,
    /// Heads to read after the last token of each row: the bootstrap of a path that was cut.
    pub ends: Vec<String>,
}

/// What teacher forcing gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scored {
    /// The columns asked for, in that order, `[trained tokens of the set]`.
    pub columns: Vec<Vec<f32>>,
    /// Hidden vectors, `[trained tokens × hidden size]`; empty if not asked for.
    pub hidden: Vec<f32>,
    /// Per head asked for, `[rows]`.
    pub ends: Vec<Vec<f32>>,
}

/// Rows with an objective: what one of those who named the node wants from it. Parts over the same `Arc` are one
/// forward and one backward.
#[derive(Clone)]
pub struct Part<'a> {
    /// The rows.
    pub rows: Arc<RowSet>,
    /// Which of them are in this minibatch, whole bundles in a row.
    pub picked: &'a [u32],
    /// The minibatch's denominators.
    pub totals: Totals,
    /// What to descend.
    pub objective: &'a dyn Objective,
    /// Factor on the part's coefficients.
    pub scale: f64,
}

/// How to descend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimStep {
    /// Learning rate.
    pub learning_rate: f64,
    /// First-moment decay of Adam.
    pub beta1: f64,
    /// Second-moment decay of Adam.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay.
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

/// A scalar head on the policy's trunk. Heads are declared by critics and created by the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadSpec {
    /// Its name.
    pub name: String,
    /// Whether its gradient stops at the head.
    pub detach_trunk: bool,
    /// Whether it starts at 0.
    pub zero_init: bool,
}

/// What samples actions and is trained. A policy node.
pub trait Policy: Send {
    /// Its tokenizer.
    fn tokenizer(&self) -> Arc<dyn Tokenizer>;

    /// Number of updates that its weights have seen.
    fn version(&self) -> u64;

    /// Most tokens of a sequence.
    fn max_tokens(&self) -> usize;

    /// Number of trainable numbers.
    fn n_parameters(&self) -> usize;

    /// Columns it can differentiate.
    fn columns(&self) -> Vec<DiffColumn>;

    /// Adds a scalar head.
    ///
    /// # Errors
    /// If it cannot have heads or the name is taken.
    fn add_head(&mut self, spec: HeadSpec) -> Result<(), PolicyError>;

    /// Opens a session.
    ///
    /// # Errors
    /// If no more sessions fit.
    fn open(&mut self) -> Result<Session, PolicyError>;

    /// Feeds tokens without sampling, as one batch: the prompt that the members of a group then share by
    /// [`Policy::fork`].
    ///
    /// # Errors
    /// If a session is not open or does not fit the context window.
    fn prefill(&mut self, work: &[(Session, &[u32])]) -> Result<(), PolicyError>;

    /// Opens a session with the same past.
    ///
    /// # Errors
    /// If the session is not open or no more fit.
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError>;

    /// Closes a session; one that is not open is ignored.
    fn close(&mut self, session: Session);

    /// Samples one action per continuation, as one batch. What it gives for one does not depend on the others beyond
    /// rounding, and not at all on the number of threads.
    ///
    /// # Errors
    /// If a session is not open, appears twice, or does not fit the context window.
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError>;

    /// Computes columns under teacher forcing, without gradient, honouring temperature and allowed support.
    ///
    /// # Errors
    /// If it does not have a column.
    fn score(&mut self, rows: &RowSet, request: &ScoreRequest) -> Result<Scored, PolicyError>;

    /// Adds the gradient of the parts' losses: forward over whole rows, `Σ coefficient · column` backward. Gradients
    /// accumulate until [`Policy::optim_step`]. Rows and bundles are never split; micro-batches of at most
    /// `micro_batch_tokens` change the result by rounding only, the number of workers by no bit.
    ///
    /// Returns the statistics of each part.
    ///
    /// # Errors
    /// If a coefficient or a column is not finite; the message names the row.
    fn forward_backward(&mut self, parts: &[Part<'_>], micro_batch_tokens: usize, now: &Now) -> Result<Vec<Sums>, PolicyError>;

    /// One optimiser step with the accumulated gradient, which is cleared.
    ///
    /// # Errors
    /// If the weights could not be updated. A gradient that is not finite is no error: the step is skipped and said so.
    fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError>;

    /// The same weights, frozen: a reference, a behaviour copy, a copied trunk.
    ///
    /// # Errors
    /// If it cannot be copied.
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError>;

    /// Weights and optimiser state: a policy that loads them continues to the bit.
    ///
    /// # Errors
    /// If they cannot be written.
    fn save(&self) -> Result<Vec<u8>, PolicyError>;

    /// Takes up what [`Policy::save`] wrote. After an error the policy is as it was.
    ///
    /// # Errors
    /// If the bytes are damaged or belong to another configuration.
    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError>;
}

/// `[policy.NAME.PLUGIN]`: what TOML says about a policy node.
#[typetag::serde]
pub trait PolicyConfig: fmt::Debug + Send + Sync {
    /// Builds it.
    ///
    /// # Errors
    /// If its configuration, files or device cannot be had.
    fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Policy>, BuildError>;

    /// Columns it can differentiate, known before it is built (heads come with the critics that add them).
    fn columns(&self) -> Vec<DiffColumn>;

    /// Whether it gives hidden vectors ([`ScoreRequest::hidden`]).
    fn hidden(&self) -> bool {
        false
    }

    /// What it needs.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }
}
slot_schema!(PolicyConfig => "policy");

/// Draws one index from unnormalised log-weights, by its cumulative probability in `f64`; greedy at temperature 0.
///
/// Returns the index into `logits`, and log-probability and entropy (nats) of the tempered distribution. At
/// temperature 0 the log-probability and entropy are those at temperature 1, for what was certain has no other.
///
/// * `logits`: `[alternatives]`, at least one.
///
/// # Errors
/// If no logit is finite or one is NaN.
pub fn draw_token(logits: &[f32], temperature: f32, uniform: f64) -> Result<(usize, f32, f32), PolicyError> {
    if logits.iter().any(|x| x.is_nan()) || !logits.iter().any(|x| x.is_finite()) {
        return Err(PolicyError::NonFinite("a logit is not a number: the weights have diverged".into()));
    }
    let greedy = temperature <= 0.0;
    let scale = if greedy { 1.0 } else { 1.0 / f64::from(temperature) };
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted = |x: f32| f64::from(x - max) * scale;
    let total: f64 = logits.iter().map(|x| shifted(*x).exp()).sum();
    let log_total = total.ln();
    let mut entropy = 0.0;
    for x in logits {
        let logprob = shifted(*x) - log_total;
        if logprob.is_finite() {
            entropy -= logprob.exp() * logprob;
        }
    }
    let picked = if greedy {
        logits.iter().position(|x| *x == max)
    } else {
        let mut left = uniform * total;
        logits.iter().position(|x| {
            left -= shifted(*x).exp();
            left < 0.0
        })
    };
    // Rounding may leave a remainder at the very end: then it is the last that is possible.
    let picked = picked.or_else(|| logits.iter().rposition(|x| x.is_finite())).unwrap_or(0);
    Ok((picked, (shifted(logits[picked]) - log_total) as f32, entropy as f32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Draw, Seeds};

    #[test]
    fn drawing_follows_the_distribution() {
        // logits ln 1, ln 2, ln 5: probabilities 1/8, 2/8, 5/8
        let logits = [1f32.ln(), 2f32.ln(), 5f32.ln()];
        let mut rng = Seeds(3).rng("draw-test", Draw::default());
        let mut count = [0.0; 3];
        for _ in 0..40_000 {
            count[draw_token(&logits, 1.0, rng.unit()).unwrap().0] += 1.0;
        }
        // χ² with 2 degrees of freedom: the 99.9 % point is 13.8
        let chi2: f64 = count.iter().zip([5e3, 1e4, 2.5e4]).map(|(c, e): (&f64, f64)| (c - e).powi(2) / e).sum();
        assert!(chi2 < 13.8, "{chi2}");
    }

    #[test]
    fn logprob_and_entropy_are_those_of_the_tempered_distribution() {
        // temperature 2 on logits 0, 2 ln 3: weights 1, 3
        let (i, logprob, entropy) = draw_token(&[0.0, 2.0 * 3f32.ln()], 2.0, 0.5).unwrap();
        assert_eq!(i, 1);
        assert!((logprob - 0.75f32.ln()).abs() < 1e-6);
        assert!((entropy - 0.562_335).abs() < 1e-5);
    }

    #[test]
    fn the_ends_of_the_interval_and_impossible_tokens() {
        let logits = [f32::NEG_INFINITY, 0.0, 0.0, f32::NEG_INFINITY];
        assert_eq!(draw_token(&logits, 1.0, 0.0).unwrap().0, 1);
        assert_eq!(draw_token(&logits, 1.0, 1.0 - f64::EPSILON / 2.0).unwrap().0, 2);
        assert_eq!(draw_token(&logits, 0.0, 0.9).unwrap().0, 1);
        assert!(draw_token(&[f32::NAN, 0.0], 1.0, 0.5).is_err());
        assert!(draw_token(&[f32::NEG_INFINITY], 1.0, 0.5).is_err());
    }
}
