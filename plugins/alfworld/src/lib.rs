//! A native engine for the ALFWorld text games, and the games as an environment.
//!
//! * [`Game`] is compiled once from a problem text; [`State`] is what commands change, a few hundred words that copy in
//!   well under a microsecond. Texts, admissible commands and outcomes are those of the original, byte for byte, in
//!   both of its text variants; the test `transcripts` replays recorded episodes.
//! * [`Library`] finds and opens the games on disk; [`mini`] holds six small ones that need none.
//! * [`expert::Expert`] explores and wins while it looks only where the agent could.
//! * [`environment`] is the plugin `alfworld`.
//!
//! ```
//! use ascribe_alfworld::{Library, NOTHING_HAPPENS};
//!
//! let loaded = Library::mini().load(1, None)?;
//! let game = &loaded.game;
//! let mut state = game.start().clone();
//! assert!(game.intro().ends_with("Your task is to: put a keychain in sidetable."));
//!
//! let mut seen = String::new();
//! game.step(&mut state, "go to bed 1", &mut seen);
//! assert_eq!(seen, "You arrive at bed 1. On the bed 1, you see a book 1.");
//! assert!(game.admissible(&state).contains(&"take book 1 from bed 1".to_owned()));
//! # Ok::<(), ascribe_alfworld::DataError>(())
//! ```

mod bits;
pub mod cache;
pub mod data;
pub mod engine;
pub mod environment;
pub mod expert;
pub mod game;
mod goal;
pub mod grammar;
pub mod mini;
pub mod pddl;
pub mod state;
pub mod vocabulary;

pub use data::{DataError, Entry, Fault, Library, LoadedGame, Source, Split};
pub use engine::{Command, MAX_TURNS, NOTHING_HAPPENS};
pub use environment::{Alfworld, AlfworldTasks};
pub use expert::Expert;
pub use game::{Game, ObjectId, ReceptacleId, TaskType};
pub use goal::Stage;
pub use grammar::{Grammar, GrammarError, Variant};
pub use pddl::PddlError;
pub use state::{SnapshotError, State};
