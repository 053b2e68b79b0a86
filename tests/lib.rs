//! Tests that cross crates live beside this file, one file per subject. What several of them share is this library: the binary
//! under test, grids in folders of their own, and a browser.
#![allow(clippy::unwrap_used)]

pub mod browser;
pub mod grids;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder that the running test was built into, with everything that was built beside it.
pub fn built() -> PathBuf {
    let exe = std::env::current_exe().expect("a running test has a path");
    exe.ancestors().nth(2).expect("target/release/deps/test").to_path_buf()
}

/// The binary under test.
pub fn binary() -> PathBuf {
    built().join("ascribe")
}

/// Runs the binary in a folder.
pub fn ascribe(folder: &Path, words: &[&str]) -> Output {
    Command::new(binary()).args(words).current_dir(folder).output().unwrap()
}

/// All that a command said.
pub fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}
