//! The command line of Ascribe.
//!
//! [`main`] is all that a binary needs. One of your own links further plugins:
//!
//! ```ignore
//! use my_plugin as _;
//!
//! fn main() -> std::process::ExitCode {
//!     ascribe::main()
//! }
//! ```
//!
//! Exit codes: 0 it went well, 1 a run failed or a plugin broke a promise, 2 the configuration was rejected.

// A crate that is linked but never named is dropped by the linker, and its plugins with it.
use ascribe_alfworld as _;
use ascribe_critics as _;
use ascribe_environments as _;
use ascribe_estimators as _;
use ascribe_objectives as _;
use ascribe_policies as _;
use ascribe_rollouts as _;
use ascribe_transforms as _;

mod args;
mod check;
mod explain;
mod grid;
mod load;
mod metrics;
mod new;
mod output;
mod plugins;
mod run;
mod schema;
mod verify;
mod view;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};

/// A run failed, or a plugin broke a promise.
const FAILED: u8 = 1;

/// The configuration was rejected, or the command line was.
const REJECTED: u8 = 2;

/// Runs the command line.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help goes to standard output and is no failure. That nobody reads it is none either.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(REJECTED));
        }
    };
    match arguments.command {
        Command::Run(args) => run::run(&args),
        Command::Resume(args) => run::resume(&args),
        Command::Eval(args) => run::eval(&args),
        Command::Grid(args) => grid::command(&args),
        Command::View(args) => view::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Plugins(args) => plugins::command(&args),
        Command::Explain(args) => explain::command(&args),
        Command::Verify(args) => verify::command(&args),
        Command::New(args) => new::command(&args),
        Command::Schema(args) => schema::command(&args),
    }
}
