//! The dependency table of docs/architecture.md, held against what cargo says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace").to_path_buf()
}

/// Ordinary dependencies by package, as cargo reads the manifests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&out.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("a list");
            let ordinary =
                dependencies.iter().filter(|d| d["kind"].is_null()).map(|d| d["name"].as_str().expect("a name").to_string());
            (package["name"].as_str().expect("a name").to_string(), ordinary.collect())
        })
        .collect()
}

#[test]
fn dependencies_run_one_way() {
    const PLUGINS: [&str; 8] = [
        "ascribe-alfworld",
        "ascribe-critics",
        "ascribe-environments",
        "ascribe-estimators",
        "ascribe-objectives",
        "ascribe-policies",
        "ascribe-rollouts",
        "ascribe-transforms",
    ];
    let mut allowed: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
        ("ascribe-math", vec![]),
        ("ascribe-core", vec![]),
        ("ascribe-pins", vec![]),
        ("ascribe-config", vec!["ascribe-core"]),
        ("ascribe-conformance", vec!["ascribe-core"]),
        ("ascribe-nn", vec!["ascribe-core", "ascribe-math", "ascribe-pins"]),
        ("ascribe-run", vec!["ascribe-core", "ascribe-math"]),
        ("ascribe-study", vec!["ascribe-config", "ascribe-core", "ascribe-math", "ascribe-run"]),
        ("ascribe-report", vec!["ascribe-core", "ascribe-run", "ascribe-study"]),
        ("ascribe-tests", vec![]),
        (
            "ascribe-golden",
            vec![
                "ascribe-core",
                "ascribe-critics",
                "ascribe-math",
                "ascribe-estimators",
                "ascribe-objectives",
                "ascribe-rollouts",
                "ascribe-transforms",
            ],
        ),
    ]);
    for plugin in PLUGINS {
        allowed.insert(plugin, vec!["ascribe-core", "ascribe-math"]);
    }
    allowed.get_mut("ascribe-policies").expect("listed").push("ascribe-nn");
    let mut of_binary =
        vec!["ascribe-core", "ascribe-config", "ascribe-conformance", "ascribe-report", "ascribe-run", "ascribe-study"];
    of_binary.extend(PLUGINS);
    allowed.insert("ascribe", of_binary);

    for (package, dependencies) in dependencies() {
        let allowed = allowed
            .get(package.as_str())
            .unwrap_or_else(|| panic!("`{package}` is not in the table: add it, and its row in docs/architecture.md"));
        for ours in dependencies.iter().filter(|d| d.starts_with("ascribe")) {
            assert!(allowed.contains(&ours.as_str()), "`{package}` must not depend on `{ours}`");
        }
        let names_burn = dependencies.iter().any(|d| d == "burn" || d.starts_with("burn-"));
        assert_eq!(names_burn, package == "ascribe-nn", "only ascribe-nn names burn, and `{package}` says otherwise");
    }
}

#[test]
fn estimators_know_no_tensors() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    for package in ["ascribe-critics", "ascribe-estimators", "ascribe-transforms", "ascribe-objectives", "ascribe-core"] {
        let out = Command::new(&cargo)
            .args(["tree", "-p", package, "--edges", "normal", "--prefix", "none", "--offline"])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let tree = String::from_utf8_lossy(&out.stdout);
        assert!(!tree.lines().any(|line| line.starts_with("burn")), "`{package}` reaches burn:\n{tree}");
    }
}

/// `untagged` and `flatten` buffer, and with the buffer go the key path and the message of a mistake.
#[test]
fn no_untagged_and_no_flatten() {
    let mut files = Vec::new();
    for folder in ["crates", "plugins"] {
        walk(&root().join(folder), &mut files);
    }
    assert!(files.len() > 50);
    for file in files {
        let text = std::fs::read_to_string(&file).expect("source is text");
        for line in text.lines().map(str::trim).filter(|l| l.starts_with("#[serde(")) {
            assert!(!line.contains("untagged") && !line.contains("flatten"), "{}: {line}", file.display());
        }
    }
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder of sources");
    for path in entries.map(|e| e.expect("readable").path()) {
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}
