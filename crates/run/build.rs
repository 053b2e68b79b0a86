//! Tells the crate which compiler built it: a run's provenance names it.

use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok().and_then(|out| String::from_utf8(out.stdout).ok());
    println!("cargo::rustc-env=ASCRIBE_RUSTC={}", version.as_deref().map_or("unknown", str::trim));
    println!("cargo::rerun-if-changed=build.rs");
}
