//! Embedded environments.
