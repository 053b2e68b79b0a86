//! Log-probabilities of a reference policy, which some objectives compare with.

use ascribe_core::rows::Row;
use ascribe_core::{Need, Scope};

/// The token signal that holds them.
const SIGNAL: &str = "reference_logprob";

/// What an objective that reads them needs.
pub(crate) fn need() -> Need {
    Need::Signal(SIGNAL.into(), Scope::Token)
}

/// The reference's log-probabilities of a row's trained tokens.
///
/// # Panics
/// If the objective did not declare [`need`].
pub(crate) fn logprob<'a>(row: &Row<'a>) -> &'a [f32] {
    row.column("signal/reference_logprob").expect("a declared signal is present on every trained token")
}
