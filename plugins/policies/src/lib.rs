//! Policies: what samples actions and is trained.

mod sampling;
mod scripted;
mod tabular;
#[cfg(feature = "transformer")]
mod transformer;

pub use scripted::Scripted;
pub use tabular::Tabular;
#[cfg(feature = "transformer")]
pub use transformer::Transformer;

use ascribe_core::{BuildContext, BuildError};

/// Refuses a device that the policy would silently not use.
fn on_the_cpu(what: &str, context: &BuildContext<'_>) -> Result<(), BuildError> {
    if context.device == "cpu" {
        return Ok(());
    }
    Err(BuildError::Device(format!("{what} runs on the CPU alone, not on `{}`; use `device = \"cpu\"`", context.device)))
}
