//! Critics: what judges states, turns and tokens.
//!
//! A critic reads the batch of an update and returns columns; those that train ask for rows through a policy node, which
//! the loop merges with the actor's into one step. What they report stands under `critic/NAME/`.

mod info_gain;
mod lesson;
mod oracle;
mod reference;
mod scored;
mod states;
mod targets;
#[cfg(test)]
mod testing;
mod value_head;

pub use info_gain::InfoGain;
pub use oracle::Oracle;
pub use reference::Reference;
pub use targets::Target;
pub use value_head::ValueHead;

fn actor() -> String {
    "actor".into()
}
