//! One action, token by token: what every policy that has logits shares.

use std::sync::Arc;

use ascribe_core::log::{Action, Stop};
use ascribe_core::policy::{Allowed, Continuation, PolicyError, draw_token};
use ascribe_core::seed::Rng;
use ascribe_core::trie::TrieNode;

/// An action being sampled.
pub(crate) struct Sampler<'a> {
    allowed: Allowed<'a>,
    node: Option<TrieNode>,
    stop: u32,
    max_tokens: usize,
    temperature: f32,
    rng: Rng,
    action: Action,
    done: bool,
}

impl<'a> Sampler<'a> {
    pub(crate) fn new(work: &Continuation<'a>) -> Self {
        let node = match work.allowed {
            Allowed::Free => None,
            Allowed::OneOf(trie) => Some(trie.root()),
        };
        Self {
            allowed: work.allowed,
            node,
            stop: work.stop,
            max_tokens: work.max_tokens,
            temperature: work.temperature,
            rng: work.key.rng(),
            action: Action {
                temperature: work.temperature,
                logprob: Some(Vec::new()),
                entropy: Some(Vec::new()),
                ..Action::default()
            },
            done: work.max_tokens == 0,
        }
    }

    /// Tokens so far.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.action.tokens
    }

    /// Whether the action is complete or cut.
    pub(crate) fn done(&self) -> bool {
        self.done
    }

    /// Takes every token that has no alternative, up to the next choice. Call before asking for logits.
    pub(crate) fn take_forced(&mut self) {
        while let (Allowed::OneOf(trie), Some(node), false) = (self.allowed, self.node, self.done) {
            let allowed = trie.allowed(node);
            match *allowed {
                [only] => self.push(only),
                _ => break,
            }
        }
    }

    /// Draws the next token from logits over the vocabulary.
    pub(crate) fn draw(&mut self, logits: &[f32]) -> Result<(), PolicyError> {
        let support: Option<Arc<[u32]>> = match (self.allowed, self.node) {
            (Allowed::OneOf(trie), Some(node)) => Some(trie.allowed(node)),
            _ => None,
        };
        let uniform = self.rng.unit();
        let (token, logprob, entropy) = match &support {
            None => {
                let (i, logprob, entropy) = draw_token(logits, self.temperature, uniform)?;
                (i as u32, logprob, entropy)
            }
            Some(allowed) => {
                if let Some(outside) = allowed.iter().find(|t| **t as usize >= logits.len()) {
                    return Err(PolicyError::Unsupported(format!(
                        "allowed token {outside} is not in a vocabulary of {}",
                        logits.len()
                    )));
                }
                let of_allowed: Vec<f32> = allowed.iter().map(|t| logits[*t as usize]).collect();
                let (i, logprob, entropy) = draw_token(&of_allowed, self.temperature, uniform)?;
                (allowed[i], logprob, entropy)
            }
        };
        self.action.at.push(self.action.tokens.len() as u32);
        self.action.support.push(support);
        self.action.logprob.as_mut().expect("a sampler records log-probabilities").push(logprob);
        self.action.entropy.as_mut().expect("a sampler records entropies").push(entropy);
        self.push(token);
        Ok(())
    }

    fn push(&mut self, token: u32) {
        self.action.tokens.push(token);
        let complete = match (self.allowed, self.node) {
            (Allowed::OneOf(trie), Some(node)) => {
                self.node = trie.step(node, token);
                self.node.is_none_or(|n| trie.allowed(n).is_empty())
            }
            _ => token == self.stop,
        };
        if complete {
            self.done = true;
        } else if self.action.tokens.len() >= self.max_tokens {
            self.action.stop = Stop::Length;
            self.done = true;
        }
    }

    pub(crate) fn finish(self) -> Action {
        self.action
    }
}
