//! Decoder-only transformers on burn: decoding with sessions, scoring, and training from coefficients on columns.
//!
//! This is the only crate that names burn; others write `use ascribe_nn::burn;`. It speaks plain slices:
//!
//! * [`Frozen`] holds weights. Its [`Decoder`] feeds many sequences side by side and gives or draws next tokens;
//!   [`Frozen::score`] gives columns (log-probability, entropy, scalar heads) under teacher forcing.
//! * [`Model`] trains them. [`Model::forward_backward`] hands a micro-batch's [`Columns`] to a callback that returns
//!   `∂L/∂column`, and carries `Σ c · column` back; [`Model::optim_step`] is AdamW.
//!
//! On the CPU decoding and scoring run in an engine of plain Rust whose results do not depend on batching or threads to
//! the bit; training runs in burn, where the number of workers changes no bit and the cut into micro-batches only
//! rounding.

pub use burn;

mod config;
mod decode;
mod device;
mod error;
mod frozen;
mod head;
mod host;
mod model;
mod net;
mod optimizer;
mod params;
mod plan;
mod random;
mod rope;
mod rows;
mod saved;
mod score;
mod tensor_decode;
#[cfg(test)]
mod testing;
mod train;

/// What policies keep must move between threads.
const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<Model>();
    sendable::<Frozen>();
    sendable::<Decoder>();
};

pub use config::ModelConfig;
pub use decode::{Decoder, SessionId};
pub use device::{DeviceChoice, open_device, tune_allocator};
pub use error::NnError;
pub use frozen::{Frozen, HeadSpec};
pub use model::Model;
pub use optimizer::{AdamW, StepReport};
pub use rows::{Columns, Request, RowBounds, Rows, ScoreRequest, Scores};
pub use train::Coefficients;
