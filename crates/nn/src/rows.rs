//! Rows to score or train on, and the columns that come out.

use crate::{config::ModelConfig, error::NnError};
use std::{ops::Range, sync::Arc};

/// Where one row's tokens and sampled tokens lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowBounds {
    /// Range of [`Rows::tokens`].
    pub tokens: Range<usize>,
    /// Range of the per-sampled-token arrays.
    pub sampled: Range<usize>,
}

/// Token sequences with their sampled tokens. Several rows share flat arrays; nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Tokens of all rows.
    pub tokens: &'a [u32],
    /// The rows.
    pub bounds: &'a [RowBounds],
    /// `[sampled]`: offset of each sampled token within its row, ascending. At least 1: something must predict it.
    pub at: &'a [usize],
    /// `[sampled]`: positive temperature each token is scored at; empty means 1 everywhere.
    pub temperature: &'a [f32],
    /// `[sampled]`: index into `supports` plus 1, 0 where every token was allowed; empty means 0 everywhere.
    pub support: &'a [u32],
    /// Allowed token ids, without repetition.
    pub supports: &'a [Arc<[u32]>],
}

impl<'a> Rows<'a> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.bounds.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Tokens of one row.
    pub(crate) fn tokens_of(&self, row: usize) -> &'a [u32] {
        &self.tokens[self.bounds[row].tokens.clone()]
    }

    /// Temperature of one sampled token.
    pub(crate) fn temperature_of(&self, sampled: usize) -> f32 {
        self.temperature.get(sampled).copied().unwrap_or(1.0)
    }

    /// Allowed tokens of one sampled token; `None` where every token was allowed.
    pub(crate) fn support_of(&self, sampled: usize) -> Option<&'a [u32]> {
        let index = self.support.get(sampled).copied().unwrap_or(0).checked_sub(1)?;
        Some(&self.supports[index as usize])
    }

    /// The sampled token itself, of a row that holds it.
    pub(crate) fn token_of(&self, row: usize, sampled: usize) -> u32 {
        self.tokens_of(row)[self.at[sampled]]
    }

    /// Checks everything the engines rely on.
    pub(crate) fn validate(&self, config: &ModelConfig) -> Result<(), NnError> {
        let n_sampled = self.at.len();
        for (name, len) in [("temperature", self.temperature.len()), ("support", self.support.len())] {
            if len != 0 && len != n_sampled {
                return Err(NnError::Request(format!("`{name}` has {len} entries for {n_sampled} sampled tokens")));
            }
        }
        if let Some(&index) = self.support.iter().find(|&&index| index as usize > self.supports.len()) {
            return Err(NnError::Request(format!("support {index} is not among the {} supports", self.supports.len())));
        }
        for support in self.supports {
            if support.is_empty() {
                return Err(NnError::Request("an allowed support is empty".into()));
            }
            if let Some(&token) = support.iter().find(|&&token| token as usize >= config.vocab) {
                return Err(NnError::Token { token, vocab: config.vocab });
            }
        }
        for (row, bounds) in self.bounds.iter().enumerate() {
            self.validate_row(row, bounds, config)?;
        }
        Ok(())
    }

    fn validate_row(&self, row: usize, bounds: &RowBounds, config: &ModelConfig) -> Result<(), NnError> {
        let fail = |problem: String| Err(NnError::Row { row, problem });
        let Some(tokens) = self.tokens.get(bounds.tokens.clone()) else {
            return fail(format!("its tokens {:?} lie outside the {} given", bounds.tokens, self.tokens.len()));
        };
        let Some(at) = self.at.get(bounds.sampled.clone()) else {
            return fail(format!("its sampled tokens {:?} lie outside the {} given", bounds.sampled, self.at.len()));
        };
        if tokens.is_empty() {
            return fail("it has no tokens".into());
        }
        if tokens.len() > config.max_positions {
            return Err(NnError::TooLong { wanted: tokens.len(), max: config.max_positions });
        }
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= config.vocab) {
            return Err(NnError::Token { token, vocab: config.vocab });
        }
        if at.first() == Some(&0) {
            return fail("its first token is marked as sampled, but nothing precedes it; begin rows with a fed token".into());
        }
        if !at.is_sorted_by(|a, b| a < b) || at.last().is_some_and(|&last| last >= tokens.len()) {
            return fail(format!("offsets of sampled tokens must ascend and stay below {}", tokens.len()));
        }
        for sampled in bounds.sampled.clone() {
            let temperature = self.temperature_of(sampled);
            if !(temperature.is_finite() && temperature > 0.0) {
                return fail(format!("temperature must be positive, got {temperature}; score greedy tokens at 1"));
            }
            if let Some(support) = self.support_of(sampled)
                && !support.contains(&tokens[self.at[sampled]])
            {
                return fail(format!("token {} was sampled but is not in its allowed support", tokens[self.at[sampled]]));
            }
        }
        Ok(())
    }
}

/// Which columns to compute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whether to compute entropies.
    pub entropy: bool,
    /// Heads to read.
    pub heads: Vec<String>,
}

/// One number per sampled token and column: what a forward pass gave, or coefficients `∂L/∂column`.
///
/// Sampled tokens are in the order of the rows they were asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// Log-probability of the token under the tempered distribution on its support.
    pub logprob: Vec<f32>,
    /// Entropy of that distribution, if asked for.
    pub entropy: Option<Vec<f32>>,
    /// Heads at the position that predicts the token, in the order they were asked for.
    pub heads: Vec<Vec<f32>>,
}

impl Columns {
    /// The same columns, all 0.
    pub fn zeros_like(&self) -> Self {
        let zeros = |x: &Vec<f32>| vec![0.0; x.len()];
        Self {
            logprob: zeros(&self.logprob),
            entropy: self.entropy.as_ref().map(zeros),
            heads: self.heads.iter().map(zeros).collect(),
        }
    }

    /// Whether both have the same columns of the same lengths.
    pub(crate) fn same_shape(&self, other: &Self) -> bool {
        let lengths =
            |c: &Self| (c.logprob.len(), c.entropy.as_ref().map(Vec::len), c.heads.iter().map(Vec::len).collect::<Vec<_>>());
        lengths(self) == lengths(other)
    }

    /// Whether every number is zero.
    pub(crate) fn all_zero(&self) -> bool {
        let zero = |x: &Vec<f32>| x.iter().all(|&v| v == 0.0);
        zero(&self.logprob) && self.entropy.iter().all(zero) && self.heads.iter().all(zero)
    }
}

/// What teacher forcing gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// Columns of all sampled tokens, in the order of [`Rows::at`] as far as rows cover it, row by row.
    pub columns: Columns,
    /// Per head asked for, `[rows]`: its value after the row's last token.
    pub ends: Vec<Vec<f32>>,
    /// `[sampled × d_model]`: hidden vectors, after the last norm, at the positions that predict the sampled tokens.
    /// Empty unless asked for.
    pub hidden: Vec<f32>,
}

/// What to compute under teacher forcing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoreRequest {
    /// Columns per sampled token.
    pub columns: Request,
    /// Heads to read after the last token of each row.
    pub ends: Vec<String>,
    /// Whether to return hidden vectors.
    pub hidden: bool,
}
