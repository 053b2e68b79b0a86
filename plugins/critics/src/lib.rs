//! Critics: what judges states, turns and tokens.
//!
//! A critic reads the batch of an update and returns columns; those that train ask for rows through a policy node, which
//! the loop merges with the actor's into one step. What they report stands under `critic/NAME/`.

mod lesson;
mod oracle;
mod states;
mod targets;
#[cfg(test)]
mod testing;

pub use oracle::Oracle;

fn actor() -> String {
    "actor".into()
}
