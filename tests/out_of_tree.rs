//! A plugin outside the repository: it builds without burn, is listed, and runs; and touching an estimator recompiles
//! that crate and the binary alone. One test, because each step builds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace").to_path_buf()
}

/// The target folder that this test was built into: burn's build in it is shared.
fn target() -> PathBuf {
    ascribe_tests::built().parent().expect("target/release").to_path_buf()
}

fn cargo(folder: &Path, args: &[&str]) -> Output {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args(args)
        .arg("--offline")
        .env("CARGO_TARGET_DIR", target())
        .current_dir(folder)
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "cargo {args:?}:\n{}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Names of the packages that a build compiled, from cargo's JSON messages.
fn compiled(out: &Output) -> BTreeSet<String> {
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|m| m["reason"] == "compiler-artifact" && m["fresh"] == false)
        .map(|m| m["target"]["name"].as_str().unwrap_or_default().to_string())
        .collect()
}

#[test]
fn a_plugin_outside_the_repository() {
    let folder = root().join("tests/out-of-tree");
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("the lock file is copied");

    let built = cargo(&folder, &["build", "--release", "--message-format", "json"]);
    let compiled_now = compiled(&built);
    assert!(!compiled_now.iter().any(|name| name.starts_with("burn")), "burn was built again: {compiled_now:?}");
    let tree = cargo(&folder, &["tree", "-p", "half-outcome", "--prefix", "none"]);
    assert!(!String::from_utf8_lossy(&tree.stdout).lines().any(|line| line.starts_with("burn")));

    let runner = target().join("release/runner");
    let work = tempfile::tempdir().expect("a temporary folder");
    let run = |args: &[&str]| Command::new(&runner).args(args).current_dir(work.path()).output().expect("the runner runs");
    let plugins = run(&["plugins", "estimator"]);
    let listed = String::from_utf8_lossy(&plugins.stdout).into_owned();
    assert!(listed.contains("half-outcome") && listed.contains("grpo"), "{listed}");

    let experiment = folder.join("experiment.toml");
    let experiment = experiment.to_str().expect("a path in UTF-8");
    let ran = run(&["run", experiment]);
    assert!(ran.status.success(), "{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(work.path().join("runs/experiment/main/seed-0/metrics.jsonl").is_file());

    // The repository's own binary does not link the plugin, and says what to do.
    let ours = target().join("release/ascribe");
    let refused = Command::new(ours).args(["check", experiment]).current_dir(work.path()).output().expect("the binary runs");
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("half-outcome") && message.contains("ascribe::main()"), "{message}");

    // Touch one estimator.
    cargo(&root(), &["build", "--release", "-p", "ascribe", "--message-format", "json"]);
    let source = root().join("plugins/estimators/src/grpo.rs");
    let file = std::fs::File::options().append(true).open(source).expect("the source is there");
    file.set_modified(std::time::SystemTime::now()).expect("its time can be set");
    let rebuilt = compiled(&cargo(&root(), &["build", "--release", "-p", "ascribe", "--message-format", "json"]));
    assert_eq!(rebuilt, BTreeSet::from(["ascribe".to_string(), "ascribe_estimators".to_string()]));
}
