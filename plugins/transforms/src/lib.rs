//! Transforms of credit.
