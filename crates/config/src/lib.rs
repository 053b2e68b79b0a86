//! Layered TOML to a checked experiment, or every problem at once.
