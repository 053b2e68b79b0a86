//! The host engine: the forward pass of small models in plain Rust, without gradient.
//!
//! Decoding calls the model once per token with a handful of rows. A tensor library spends that time on allocation and
//! dispatch; this engine spends it on arithmetic. Its results are the same to the bit however tokens are batched, fed or
//! spread over threads, so a session that is rebuilt from its tokens continues exactly where the old one stood.

mod dispatch;
mod distribution;
mod kernel;
mod layers;
mod weights;

pub(crate) use dispatch::{hidden, logits};
pub(crate) use distribution::Distribution;
pub(crate) use layers::{Cache, Feed, Scratch};
pub(crate) use weights::{HostLayer, HostWeights, Packed};
