//! A device that cannot be had is a clear refusal: exit code 2, what to do, no panic.

use std::process::Command;

#[test]
fn a_device_that_cannot_be_had_is_refused() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace");
    let experiment = root.join("experiments/quickstart.toml");
    let cases: [(&[&str], &str); 4] = [
        (&["device=cuda"], "--features cuda"),
        (&["device=cuda:1"], "--features cuda"),
        (&["device=gpu"], "cuda"),
        (&["device=cuda", "policy.actor=tabular"], "device = \"cpu\""),
    ];
    for (settings, remedy) in cases {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = Command::new(ascribe_tests::binary())
            .arg("run")
            .arg(&experiment)
            .args(settings)
            .current_dir(folder.path())
            .output()
            .expect("runs");
        let said = ascribe_tests::said(&out);
        assert_eq!(out.status.code(), Some(2), "{settings:?}: {said}");
        assert!(said.contains(remedy) && !said.contains("panicked"), "{settings:?}: {said}");
    }
}
