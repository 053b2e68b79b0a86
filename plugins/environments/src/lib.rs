//! Embedded environments: native, deterministic, without data of their own.

pub mod between;
pub mod bugfix;
