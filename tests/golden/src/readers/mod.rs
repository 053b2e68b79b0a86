//! Readers, by family of methods.

pub mod anchors;
pub mod outcomes;
pub mod rederived;
