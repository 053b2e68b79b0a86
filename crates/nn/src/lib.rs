//! Decoder-only transformer on burn: the only crate that names burn.
