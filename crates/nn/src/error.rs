//! What can go wrong, in words that say what to do.

use thiserror::Error;

/// Error of this crate.
#[derive(Debug, Error, PartialEq)]
pub enum NnError {
    /// A model configuration that no model can have.
    #[error("`{key}` {problem}")]
    Config {
        /// Name of the field.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A device that cannot be used.
    #[error("{0}")]
    Device(String),
    /// Rows that do not fit the model or contradict themselves.
    #[error("row {row}: {problem}")]
    Row {
        /// Index of the row.
        row: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A request whose parts do not fit together.
    #[error("{0}")]
    Request(String),
    /// A head that the model does not have.
    #[error("the model has no head `{name}`; add it first (it has: {known})")]
    UnknownHead {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A head that exists already.
    #[error("the model has a head `{0}` already; give the new one another name")]
    DuplicateHead(String),
    /// A decoding session that was closed or never opened.
    #[error("decoding session {0} is not open")]
    UnknownSession(u64),
    /// More tokens than the model has positions for.
    #[error("a sequence of {wanted} tokens exceeds the model's {max} positions; raise `max_positions` or shorten the context")]
    TooLong {
        /// Length asked for.
        wanted: usize,
        /// Positions of the model.
        max: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token {token} is not in the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// Saved bytes that cannot be read back.
    #[error("saved weights: {0}")]
    Saved(String),
}
