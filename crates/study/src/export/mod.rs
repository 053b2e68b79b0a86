//! Results as others read them.

mod npz;
mod sheet;
mod text;

pub use npz::write_npz;
pub use sheet::{Cell, Column, Kind, Sheet};
