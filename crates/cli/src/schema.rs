//! `schema`: the JSON schema of experiments.

use std::process::ExitCode;

use ascribe_study::grid::Spec;

use crate::args::SchemaArgs;
use crate::output::{complain, say};

/// Prints the schema, or writes it to a file.
pub(crate) fn command(args: &SchemaArgs) -> ExitCode {
    let schema = format!("{:#}", ascribe_config::json_schema(Spec::schema()));
    let Some(file) = &args.out else {
        say(&schema);
        return ExitCode::SUCCESS;
    };
    match std::fs::write(file, schema + "\n") {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(&format!("error: `{}` cannot be written: {e}", file.display()));
            ExitCode::FAILURE
        }
    }
}
