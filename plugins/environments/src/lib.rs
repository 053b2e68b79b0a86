//! Embedded environments: native, deterministic in their seeds, without data of their own.

pub mod bugfix;
pub mod finite;
pub mod repair_mdp;
pub mod token_tree;
