//! The training loop and what it persists.
