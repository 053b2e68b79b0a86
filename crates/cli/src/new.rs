//! `new`: the beginning of a plugin, which compiles, is tested and keeps what it must.
//!
//! In a checkout of Ascribe it is one file and its `mod` line; elsewhere a crate of its own, with a binary that links it.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ascribe_core::registry::{Kind, plugin};

use crate::args::NewArgs;
use crate::output::{complain, say};
use crate::{FAILED, REJECTED};

const ESTIMATOR: &str = include_str!("new/estimator.rs.template");

/// Files of a crate, and what is in them beside the estimator's.
const CRATE: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("new/Cargo.toml.template")),
    ("README.md", include_str!("new/README.md.template")),
    ("experiment.toml", include_str!("new/experiment.toml.template")),
    (".gitignore", include_str!("new/gitignore.template")),
    ("rustfmt.toml", include_str!("new/rustfmt.toml.template")),
    ("src/main.rs", include_str!("new/main.rs.template")),
    ("src/lib.rs", include_str!("new/lib.rs.template")),
    ("src/fixture.rs", include_str!("new/fixture.rs.template")),
];

/// Where the estimators of a checkout are listed.
const LIST: &str = "plugins/estimators/src/lib.rs";

/// Why nothing was written: what is wrong, and the exit code.
type Refusal = (String, u8);

/// Writes the beginning of a plugin.
pub(crate) fn command(args: &NewArgs) -> ExitCode {
    match write(args) {
        Ok(done) => {
            say(&done);
            ExitCode::SUCCESS
        }
        Err((message, code)) => {
            complain(&format!("error: {message}"));
            ExitCode::from(code)
        }
    }
}

fn write(args: &NewArgs) -> Result<String, Refusal> {
    let name = Name::new(&args.name).map_err(rejected)?;
    let here = std::env::current_dir().map_err(|e| (format!("the current folder cannot be read: {e}"), FAILED))?;
    let around = here.ancestors().find(|folder| is_checkout(folder));
    match around {
        Some(checkout) if !args.krate && args.path.is_none() => in_checkout(checkout, &name),
        _ => as_crate(&here, &name, &checkout(args.path.as_deref(), around)?),
    }
}

fn rejected(message: String) -> Refusal {
    (message, REJECTED)
}

fn is_checkout(folder: &Path) -> bool {
    folder.join(LIST).is_file()
}

/// The checkout that a crate depends on: the one that was named, the one around, the one this binary was built from.
fn checkout(named: Option<&Path>, around: Option<&Path>) -> Result<PathBuf, Refusal> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).filter(|folder| is_checkout(folder));
    let found = match named {
        Some(named) if !is_checkout(named) => {
            return Err(rejected(format!("`{}` is no checkout of Ascribe: it has no {LIST}", named.display())));
        }
        Some(named) => Some(named),
        None => around.or(built_from),
    };
    let Some(found) = found else {
        return Err(rejected("the crate needs a checkout of Ascribe to depend on: say where it is with `--path FOLDER`".into()));
    };
    found.canonicalize().map_err(|e| (format!("`{}` cannot be read: {e}", found.display()), FAILED))
}

/// One new file, and its line in the list.
fn in_checkout(checkout: &Path, name: &Name) -> Result<String, Refusal> {
    let list = checkout.join(LIST);
    let text = fs::read_to_string(&list).map_err(|e| (format!("`{}` cannot be read: {e}", list.display()), FAILED))?;
    let file = list.with_file_name(format!("{}.rs", name.module));
    create(&file, &name.fill(ESTIMATOR))?;
    fs::write(&list, with_module(&text, &name.module))
        .map_err(|e| (format!("`{}` cannot be written: {e}", list.display()), FAILED))?;
    let Name { plain, module, .. } = name;
    Ok(format!(
        "wrote {}\nadded `mod {module};` to {}\n\nnext, in {}:\n  \
         replace what is marked FILL IN: formula, citation, reductions, edge cases, and the code that goes with them\n  \
         cargo fmt --all\n  \
         cargo test --release -p ascribe-estimators {module}\n  \
         cargo run --release -p ascribe -- verify estimator {plain}\n  \
         cargo run --release -p ascribe -- run experiments/quickstart.toml estimator.{plain}.share=0.5 name={plain}\n  \
         a line in CHANGELOG.md",
        file.display(),
        list.display(),
        checkout.display(),
    ))
}

/// The list of modules with one more, in its place.
fn with_module(list: &str, module: &str) -> String {
    let mut lines: Vec<&str> = list.lines().collect();
    let name_of = |line: &str| line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')).map(str::to_string);
    let after = lines.iter().position(|line| name_of(line).is_some_and(|name| *name > *module));
    let mut at = match after {
        Some(i) => i,
        None => lines.iter().rposition(|line| name_of(line).is_some()).map_or(lines.len(), |i| i + 1),
    };
    // An attribute belongs to the module below it.
    while after.is_some() && at > 0 && lines[at - 1].starts_with("#[") {
        at -= 1;
    }
    let line = format!("mod {module};");
    lines.insert(at, &line);
    lines.join("\n") + "\n"
}

/// A crate of its own in a new folder.
fn as_crate(here: &Path, name: &Name, checkout: &Path) -> Result<String, Refusal> {
    let Name { plain, module, .. } = name;
    if NO_CRATE.contains(&plain.as_str()) {
        return Err(rejected(format!("a crate cannot be called `{plain}`: cargo, Rust or Ascribe have one of that name")));
    }
    let path = |inside: &str| match checkout.join(inside).to_str() {
        // A string of TOML, with its quotes.
        Some(path) => Ok(toml::Value::from(path).to_string()),
        None => Err(rejected(format!("`{}` is not UTF-8: no Cargo.toml can name it", checkout.display()))),
    };
    let (cli, core) = (path("crates/cli")?, path("crates/core")?);
    let folder = here.join(plain);
    match fs::create_dir(&folder) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            return Err(rejected(format!("`{}` is already there", folder.display())));
        }
        Err(e) => return Err((format!("`{}` cannot be made: {e}", folder.display()), FAILED)),
    }
    fs::create_dir(folder.join("src")).map_err(|e| (format!("`{}/src` cannot be made: {e}", folder.display()), FAILED))?;
    for (file, template) in CRATE {
        create(&folder.join(file), &name.fill(template).replace("{cli}", &cli).replace("{core}", &core))?;
    }
    create(&folder.join(format!("src/{module}.rs")), &name.fill(ESTIMATOR))?;
    // The versions that Ascribe is tested with: others may do, and may not.
    let lock = checkout.join("Cargo.lock");
    fs::copy(&lock, folder.join("Cargo.lock")).map_err(|e| (format!("`{}` cannot be copied: {e}", lock.display()), FAILED))?;
    Ok(format!(
        "wrote the crate {}, which depends on {}\n\nnext:\n  cd {plain}\n  \
         replace what is marked FILL IN in src/{module}.rs: formula, citation, reductions, edge cases, and the code that goes with them\n  \
         cargo test --release\n  \
         cargo run --release -- verify estimator {plain}\n  \
         cargo run --release -- run experiment.toml",
        folder.display(),
        checkout.display(),
    ))
}

/// Writes a file that is not there yet.
fn create(file: &Path, text: &str) -> Result<(), Refusal> {
    let written = fs::File::create_new(file).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => rejected(format!("`{}` is already there; choose another name", file.display())),
        _ => (format!("`{}` cannot be written: {e}", file.display()), FAILED),
    })
}

/// What a plugin is called: in TOML, as a module, as a type.
#[derive(Debug)]
struct Name {
    plain: String,
    module: String,
    camel: String,
}

impl Name {
    fn new(plain: &str) -> Result<Self, String> {
        let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if !plain.starts_with(|c: char| c.is_ascii_lowercase()) || !plain.split('-').all(word) {
            return Err(format!(
                "`{plain}` is no name of a plugin: lower-case letters and digits, joined by single hyphens, as in `my-method`"
            ));
        }
        let module = plain.replace('-', "_");
        let capital = |part: &str| part[..1].to_uppercase() + &part[1..];
        let camel: String = plain.split('-').map(capital).collect();
        if KEYWORDS.contains(&module.as_str()) {
            return Err(format!("`{plain}` is a keyword of Rust; choose another name, for example `{plain}-credit`"));
        }
        // `credit` would be the type `Credit`, beside the one that is imported.
        if ["lib", "main", "fixture"].contains(&plain)
            || ESTIMATOR.split(|c: char| !c.is_alphanumeric()).any(|used| used == camel)
        {
            return Err(format!(
                "`{plain}` stands for something else in the file; choose another name, for example `my-{plain}`"
            ));
        }
        if let Some(row) = plugin(Kind::Estimator, plain) {
            return Err(format!("there is an estimator `{plain}` already, from the crate {}; choose another name", row.krate));
        }
        Ok(Self { plain: plain.into(), module, camel })
    }

    /// A template with the name filled in.
    fn fill(&self, template: &str) -> String {
        template.replace("{name}", &self.plain).replace("{module}", &self.module).replace("{type}", &self.camel)
    }
}

/// Words that are no module: keywords of Rust, used and reserved.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else", "enum",
    "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut",
    "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Names that cargo refuses, that Rust's own crates have, or that the new crate's dependencies have.
const NO_CRATE: [&str; 13] = [
    "alloc",
    "ascribe",
    "ascribe-core",
    "build",
    "core",
    "deps",
    "examples",
    "incremental",
    "schemars",
    "serde",
    "std",
    "test",
    "typetag",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_its_three_forms() {
        let name = Name::new("step-2-credit").expect("a good name");
        assert_eq!((name.module.as_str(), name.camel.as_str()), ("step_2_credit", "Step2Credit"));
    }

    #[test]
    fn bad_names_are_refused() {
        for (name, why) in [
            ("", "is no name"),
            ("MyMethod", "is no name"),
            ("my_method", "is no name"),
            ("-x", "is no name"),
            ("x-", "is no name"),
            ("x--y", "is no name"),
            ("2x", "is no name"),
            ("größe", "is no name"),
            ("../x", "is no name"),
            ("match", "keyword"),
            ("credit", "something else"),
            ("fixture", "something else"),
            ("grpo", "there is an estimator `grpo` already, from the crate ascribe-estimators"),
        ] {
            let message = Name::new(name).expect_err(name);
            assert!(message.contains(why), "{name}: {message}");
        }
    }

    #[test]
    fn the_list_stays_sorted() {
        let list = "//! Doc.\n\nmod b;\n#[cfg(test)]\nmod d;\nmod f;\n\npub use b::B;\n";
        for (module, want) in [
            ("a", "mod a;\nmod b;\n"),
            ("c", "mod b;\nmod c;\n#[cfg(test)]\nmod d;\n"),
            ("e", "mod d;\nmod e;\nmod f;\n"),
            ("g", "mod f;\nmod g;\n\npub use b::B;\n"),
        ] {
            let with = with_module(list, module);
            assert!(with.contains(want), "{with}");
            assert_eq!(with.lines().count(), list.lines().count() + 1);
        }
    }
}
