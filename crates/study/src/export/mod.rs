//! Results as others read them.

mod npz;
mod sheet;
mod text;
mod visible;

pub use npz::write_npz;
pub use sheet::{Cell, Column, Kind, Sheet};
pub use visible::{hidden_class, visible, visible_lines};
