//! Policies: what samples actions and is trained.

mod sampling;
mod scripted;
mod tabular;

pub use scripted::Scripted;
pub use tabular::Tabular;
