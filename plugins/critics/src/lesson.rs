//! What critics ask to be trained: an objective by its name, rows with a target.

use std::sync::Arc;

use ascribe_core::{BuildError, Objective, Slot};
use serde::Deserialize;

/// The objective of that name, with its table.
///
/// # Errors
/// If it is not linked or does not take the table.
pub(crate) fn objective(name: &str, table: serde_json::Value) -> Result<Arc<dyn Objective>, BuildError> {
    let slot = Slot::<dyn Objective>::deserialize(serde_json::json!({ name: table }))
        .map_err(|e| BuildError::Config(format!("its objective `{name}` cannot be had: {e}")))?;
    Ok(Arc::from(slot.0))
}
