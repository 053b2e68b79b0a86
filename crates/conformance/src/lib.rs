//! What every estimator, transform, environment and critic must keep, and what it claims beyond: each check is a row of a report.
//!
//! The checks know nothing of a plugin but its trait. For estimators and transforms groups are made up, with every column that
//! they say they need; environments are walked at random; critics judge episodes that are played.

#![forbid(unsafe_code)]

mod critic;
mod environment;
mod estimator;
mod finding;
mod groups;
mod live;
mod transform;

pub use critic::{Among, critic, lacks};
pub use environment::environment;
pub use estimator::{estimator, runs};
pub use finding::{Difference, Finding, Place, Said};
pub use transform::transform;

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds in so many cases: groups, batches or episodes.
    Held(usize),
    /// It does not concern this plugin, and why.
    NotAsked(String),
    /// It does not hold: the first case in which it did not, and what came out.
    Broken(Finding),
}

/// A check and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What must hold, in a few words.
    pub what: &'static str,
    /// Whether it does.
    pub outcome: Outcome,
}

/// All checks of one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(pub Vec<Check>);

impl Report {
    /// The checks that do not hold.
    pub fn broken(&self) -> impl Iterator<Item = (&'static str, &Finding)> {
        self.0.iter().filter_map(|check| match &check.outcome {
            Outcome::Broken(why) => Some((check.what, why)),
            Outcome::Held(_) | Outcome::NotAsked(_) => None,
        })
    }
}

/// Runs what may panic: a plugin must not, whatever it is given.
fn caught<T, E: From<String>>(run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("it panics: {}", words.unwrap_or("no message")).into())
    })
}

/// Runs one check over cases, until the first that breaks it.
fn check<C, E: Into<Finding> + From<String>>(
    what: &'static str,
    cases: impl IntoIterator<Item = C>,
    run: impl Fn(C) -> Result<(), E>,
) -> Check {
    let mut held = 0;
    for case in cases {
        match caught(|| run(case)) {
            Ok(()) => held += 1,
            Err(why) => return Check { what, outcome: Outcome::Broken(why.into()) },
        }
    }
    Check { what, outcome: Outcome::Held(held) }
}
