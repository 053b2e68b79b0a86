//! Self-contained HTML pages: one file that opens from disk, asks no network, and can be read in print, by keyboard, dark and light.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod grid;
mod page;
pub mod view;

pub use page::Page;
