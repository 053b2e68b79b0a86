//! What the whole workspace keeps to.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Attributes of serde in a source, comments left out, without spaces.
fn attributes(text: &str) -> Vec<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code: String = code.split_whitespace().collect();
    code.match_indices("serde(").map(|(i, _)| code[i..].split(")]").next().unwrap_or_default().to_string()).collect()
}

#[test]
fn nothing_buffers_what_serde_reads() {
    // With the buffer go key path and message, and unknown keys pass.
    let banned = ["untagged", "flatten"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    ["crates", "plugins", "tests"].iter().for_each(|folder| sources(&root.join(folder), &mut files));
    assert!(files.len() > 20, "the sources are where this test looks for them");
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for attribute in attributes(&text) {
            if banned.iter().any(|word| attribute.contains(&format!("({word}")) || attribute.contains(&format!(",{word}"))) {
                found.push(format!("{}: {attribute}", file.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_test_above_finds_what_it_looks_for() {
    let word = "untagged";
    assert_eq!(
        attributes(&format!("#[serde(default)]\n#[serde(\n  {word}\n)] // x\nenum X {{}}")),
        ["serde(default", &format!("serde({word}")]
    );
    assert!(attributes(&format!("//! `#[serde({word})]`")).is_empty());
}

#[test]
fn every_example_is_one_of_its_plugin() {
    use ascribe_core::registry::{Kind, plugins};
    for row in Kind::ALL.into_iter().flat_map(plugins) {
        ascribe_config::check_example(row).unwrap_or_else(|report| panic!("{} `{}`:\n{report}", row.kind, row.name));
    }
}
