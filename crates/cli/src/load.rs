//! Loading an experiment for a command.

use std::path::Path;
use std::process::ExitCode;

use ascribe_config::{Loaded, Request, load};

use crate::REJECTED;
use crate::output::{colours, complain};

/// An experiment with the environment's settings and those of the command line.
pub(crate) fn request(file: &Path, settings: &[String]) -> Request {
    Request::new(file).environment(std::env::vars_os()).assignments(settings.iter().cloned())
}

/// Loads an experiment with the environment's settings and those of the command line. What is wrong is printed.
///
/// # Errors
/// The exit code, if it was rejected.
pub(crate) fn experiment(file: &Path, settings: &[String]) -> Result<Loaded, ExitCode> {
    requested(&request(file, settings))
}

/// Loads what was requested. What is wrong is printed.
///
/// # Errors
/// The exit code, if it was rejected.
pub(crate) fn requested(request: &Request) -> Result<Loaded, ExitCode> {
    load(request).map_err(|report| {
        complain(&report.render(colours()));
        ExitCode::from(REJECTED)
    })
}
