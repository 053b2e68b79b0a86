//! Policies: what samples actions and is trained.

mod sampling;
mod scripted;
mod tabular;
mod transformer;

pub use scripted::Scripted;
pub use tabular::Tabular;
pub use transformer::Transformer;
