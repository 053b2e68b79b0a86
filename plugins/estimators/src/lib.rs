//! Advantage estimators, one file per method.

#[cfg(test)]
mod fixture;
mod grpo;
mod return_to_go;

pub use grpo::{Grpo, Mode};
pub use return_to_go::ReturnToGo;
