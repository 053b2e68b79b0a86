//! `ascribe new`: what it writes compiles without a warning, is formatted, passes its own tests and keeps what it must; in
//! a checkout and as a crate of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ascribe_tests::said;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lie in the workspace").to_path_buf()
}

/// The target folder that this test was built into: what is built in it is shared.
fn built() -> PathBuf {
    ascribe_tests::built().parent().expect("target/release").to_path_buf()
}

/// The target folder of a copied checkout. Cargo tells packages of one workspace from those of its copy by nothing but their place
/// within it, so that what is built from the copy would be taken for ours.
fn of_copies() -> PathBuf {
    built().join("scaffold")
}

/// An empty folder. Always the same one, so that cargo does not keep a build for each time this test was run.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scaffold").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("what an earlier test left is removed");
    }
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs cargo, which must succeed without a warning.
fn cargo(folder: &Path, target: &Path, args: &[&str]) -> String {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).env("CARGO_TARGET_DIR", target).env("CARGO_NET_OFFLINE", "true").current_dir(folder);
    let said = match command.output().expect("cargo runs") {
        out if out.status.success() => said(&out),
        out => panic!("cargo {args:?}:\n{}", said(&out)),
    };
    assert!(!said.contains("warning"), "cargo {args:?}:\n{said}");
    said
}

fn run(binary: &str, folder: &Path, args: &[&str]) -> Output {
    Command::new(built().join("release").join(binary)).args(args).current_dir(folder).output().expect("the binary runs")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

fn edit(file: &Path, change: impl FnOnce(String) -> String) {
    fs::write(file, change(read(file))).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

fn edit_toml(file: &Path, change: impl FnOnce(&mut toml::Table)) {
    edit(file, |text| {
        let mut table = text.parse().expect("a manifest is TOML");
        change(&mut table);
        table.to_string()
    });
}

/// The crates that an estimator needs, without what only their own tests need, as a workspace: nothing with tensors.
fn copy_of_light_crates(to: &Path) {
    let members = ["crates/math", "crates/core", "crates/conformance", "plugins/estimators"];
    for file in ["Cargo.toml", "Cargo.lock", "rustfmt.toml"] {
        fs::copy(root().join(file), to.join(file)).expect(file);
    }
    edit_toml(&to.join("Cargo.toml"), |manifest| {
        let workspace = manifest["workspace"].as_table_mut().expect("a table");
        workspace.insert("members".into(), members.to_vec().into());
        workspace.remove("exclude");
    });
    for member in members {
        copy(&root().join(member).join("src"), &to.join(member).join("src"));
        fs::copy(root().join(member).join("Cargo.toml"), to.join(member).join("Cargo.toml")).expect(member);
    }
    edit_toml(&to.join("crates/conformance/Cargo.toml"), |manifest| drop(manifest.remove("dev-dependencies")));
    edit_toml(&to.join("plugins/estimators/Cargo.toml"), |manifest| {
        // The bench alone needs it.
        let ours = manifest["dev-dependencies"].as_table_mut().expect("a table");
        ours.remove("ascribe-transforms");
    });
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder of sources") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("an entry has a name");
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).expect("a source is copied");
        }
    }
}

/// Holds the estimator `my-method` to what all must keep, in the crate that has it.
const KEPT: &str = r#"//! What is new keeps what it must.

use ascribe_core::registry::{Kind, plugin};
use ascribe_core::{AdvantageEstimator, Slot};
use ascribe_estimators as _;

#[test]
fn my_method_keeps_what_it_must() {
    let row = plugin(Kind::Estimator, "my-method").expect("it is registered");
    assert!(row.doc.contains("FILL IN"), "its documentation is there");
    let estimator: Slot<dyn AdvantageEstimator> = toml::from_str(&format!("[my-method]\n{}", row.example)).expect("its example");
    let report = ascribe_conformance::estimator(&*estimator);
    assert_eq!(report.broken().collect::<Vec<_>>(), []);
}
"#;

/// The list of estimators with the new one alone.
const ALONE: &str = "//! Advantage estimators, one file per method.

#[cfg(test)]
#[allow(dead_code)]
mod fixture;
mod my_method;
";

#[test]
fn in_a_checkout_it_is_one_file_and_its_line() {
    let checkout = folder("checkout");
    copy_of_light_crates(&checkout);
    let estimators = checkout.join("plugins/estimators");
    let list = estimators.join("src/lib.rs");
    let before = read(&list);

    let new = ["new", "estimator", "my-method"];
    let made = run("ascribe", &estimators, &new);
    assert!(made.status.success(), "{}", said(&made));
    assert!(said(&made).contains("cargo test --release -p ascribe-estimators my_method"), "{}", said(&made));
    let after = read(&list);
    assert_eq!(after.replacen("mod my_method;\n", "", 1), before);
    assert_ne!(after, before);

    // Again, and under the name of a file that is no estimator: nothing is overwritten.
    for name in ["my-method", "outcome"] {
        let again = run("ascribe", &estimators, &["new", "estimator", name]);
        assert_eq!(again.status.code(), Some(2), "{}", said(&again));
        assert!(said(&again).contains("is already there; choose another name"), "{}", said(&again));
        assert_eq!(read(&list), after);
    }

    cargo(&checkout, &of_copies(), &["fmt", "--all", "--check"]);
    // The others compile for minutes; the new one needs none of them.
    fs::write(&list, ALONE).expect("a list is written");
    edit_toml(&estimators.join("Cargo.toml"), |manifest| {
        let workspace = toml::Value::from(toml::Table::from_iter([("workspace".to_string(), true.into())]));
        let ours = manifest["dev-dependencies"].as_table_mut().expect("a table");
        ours.insert("ascribe-conformance".into(), workspace.clone());
        ours.insert("toml".into(), workspace);
    });
    fs::create_dir(estimators.join("tests")).expect("a folder");
    fs::write(estimators.join("tests/kept.rs"), KEPT).expect("a test is written");
    let tested = cargo(
        &checkout,
        &of_copies(),
        &["test", "--release", "-p", "ascribe-estimators", "--lib", "--test", "kept", "--", "my_method"],
    );
    for test in ["my_method::tests::each_is_compared_with_the_others ... ok", "my_method_keeps_what_it_must ... ok"] {
        assert!(tested.contains(test), "{tested}");
    }
}

#[test]
fn elsewhere_it_is_a_crate_with_a_binary() {
    let work = folder("elsewhere");
    let checkout = root();
    let new = ["new", "estimator", "scaffolded-method", "--path", checkout.to_str().expect("a path in UTF-8")];
    let made = run("ascribe", &work, &new);
    assert!(made.status.success(), "{}", said(&made));
    let again = run("ascribe", &work, &new);
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    let nowhere = run("ascribe", &work, &["new", "estimator", "another", "--path", "."]);
    assert_eq!(nowhere.status.code(), Some(2), "{}", said(&nowhere));
    assert!(said(&nowhere).contains("no checkout of Ascribe") && !work.join("another").exists(), "{}", said(&nowhere));

    let made = work.join("scaffolded-method");
    cargo(&made, &built(), &["fmt", "--check"]);
    let tested = cargo(&made, &built(), &["test", "--release", "--lib"]);
    assert!(tested.contains("3 passed") && !tested.contains("Compiling burn"), "{tested}");
    cargo(&made, &built(), &["build", "--release"]);
    let verify = || run("scaffolded-method", &made, &["verify", "estimator", "scaffolded-method"]);
    let verified = verify();
    assert!(verified.status.success(), "{}", said(&verified));
    let ran = run("scaffolded-method", &made, &["run", "experiment.toml", "updates=2", "evaluate.tasks=4"]);
    assert!(ran.status.success(), "{}", said(&ran));

    // A formula that is not what it claims, and a panic, which is reported and not shown.
    edit(&made.join("src/scaffolded_method.rs"), |source| {
        let half = "*difference *= *self.share";
        assert!(source.contains(half));
        source.replace(half, "{ *difference += *self.share; assert!(group.n_turns() < 100, \"too long for me\") }")
    });
    cargo(&made, &built(), &["build", "--release"]);
    let broken = verify();
    assert_eq!((broken.status.code(), broken.stderr.as_slice()), (Some(1), &b""[..]), "{}", said(&broken));
    for part in ["it panics: too long for me", "claimed: equal outcomes give exactly 0", "broken:"] {
        assert!(said(&broken).contains(part), "{part:?} in\n{}", said(&broken));
    }
}
