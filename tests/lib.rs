//! Tests that cross crates live beside this file, one file per subject.
