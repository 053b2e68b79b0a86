//! Critics: what judges states, turns and tokens.
//!
//! A critic reads the batch of an update and returns columns; those that train ask for rows through a policy node, which
//! the loop merges with the actor's into one step. What they report stands under `critic/NAME/`.

mod info_gain;
mod lesson;
mod monte_carlo;
mod oracle;
mod reference;
mod scored;
mod states;
mod tabular;
mod targets;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod truth;
mod value_head;

pub use info_gain::InfoGain;
pub use monte_carlo::MonteCarlo;
pub use oracle::Oracle;
pub use reference::Reference;
pub use tabular::Tabular;
pub use targets::Target;
pub use value_head::ValueHead;

fn actor() -> String {
    "actor".into()
}
