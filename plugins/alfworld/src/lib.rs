//! A native engine for the ALFWorld text games.

mod bits;
pub mod engine;
pub mod game;
mod goal;
pub mod grammar;
pub mod mini;
pub mod pddl;
pub mod state;

pub use engine::{Command, MAX_TURNS, NOTHING_HAPPENS};
pub use game::{Game, ObjectId, ReceptacleId, TaskType};
pub use goal::Stage;
pub use grammar::{Grammar, GrammarError, Variant};
pub use pddl::PddlError;
pub use state::{SnapshotError, State};
