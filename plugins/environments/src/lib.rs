//! Embedded environments: native, deterministic in their seeds, without data of their own.

pub mod bugfix;
pub mod curriculum;
pub mod finite;
pub mod knights;
pub mod mini_tool;
pub mod repair_mdp;
pub mod sealed;
pub mod sokoban;
pub mod token_tree;
