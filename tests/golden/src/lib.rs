//! Numbers that the methods' own code produced, against ours.
//!
//! `data/*.json` say which code, at which commit. A reader computes from a case's parameters and inputs what ours gives, in
//! the shape of the case's `expected`; it never sees what is expected. The runner compares: every number under `expected`
//! must have been given, and be equal.

pub mod compare;
pub mod files;
mod readers;
pub mod records;
mod track;

use serde_json::Value;

/// One case of a golden file, without what is expected.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// File and case, for messages.
    pub name: &'a str,
    /// Settings of the official code.
    pub params: &'a Value,
    /// What it was given.
    pub inputs: &'a Value,
}

/// What ours gives for a case, in the shape of `expected`.
pub type Reader = fn(Case<'_>) -> Value;
