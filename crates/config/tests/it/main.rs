//! Experiments from text to plan, and every mistake on the way.
#![allow(clippy::unwrap_used)]

mod hygiene;
mod laws;
mod mistakes;
mod plans;
mod plugins;
mod slots;

use ascribe_config::{Loaded, Report, Request, load};

/// An experiment that is fine.
const BASE: &str = r#"updates = 10
environment = "maze"
objective = "nll"

[policy.actor.tabular]
states = 100

[rollout.independent]
tasks = 4
group_size = 8

[estimator.blend]
weight = 0.5
a = "grpo"
b.grpo.epsilon = 1e-6

[[transform]]
whiten = {}

[[transform]]
clip.max = 5

[update]
learning_rate = 1e-3
"#;

/// What a test gives to `load`.
#[derive(Default)]
struct Given<'a> {
    files: &'a [(&'a str, &'a str)],
    environment: &'a [(&'a str, &'a str)],
    arguments: &'a [&'a str],
}

impl Given<'_> {
    /// Writes the files and loads the last one. Names of files are without their folder.
    fn load(&self) -> (Result<Loaded, Report>, String) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in self.files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let main = self.files.last().map_or("absent.toml", |(name, _)| name);
        let request = Request::new(folder.path().join(main))
            .environment(self.environment.iter().copied())
            .assignments(self.arguments.iter().copied());
        (load(&request), format!("{}/", folder.path().display()))
    }

    fn loaded(&self) -> Loaded {
        self.load().0.unwrap_or_else(|report| panic!("{report}"))
    }

    /// What a user would see.
    fn seen(&self) -> String {
        let (loaded, folder) = self.load();
        let text = match loaded {
            Ok(loaded) => {
                let replaced = loaded.replaced.iter().map(|r| format!("replaced: {r}\n"));
                replaced.chain(std::iter::once("accepted".into())).collect()
            }
            Err(report) => report.to_string(),
        };
        text.replace(&folder, "")
    }
}

/// `text` with one place changed.
fn with(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "{old:?} in\n{text}");
    text.replace(old, new)
}

/// Cases one below the other, for one snapshot.
#[derive(Default)]
struct Pages(String);

impl Pages {
    fn case(&mut self, title: &str, given: &Given<'_>) {
        self.0 += &format!("──── {title}\n{}\n\n", given.seen());
    }
    /// A case with one file.
    fn file(&mut self, title: &str, text: &str) {
        self.case(title, &Given { files: &[("exp.toml", text)], ..Given::default() });
    }
    /// A case with a good file and arguments.
    fn arguments(&mut self, title: &str, arguments: &[&str]) {
        self.case(title, &Given { files: &[("exp.toml", BASE)], arguments, ..Given::default() });
    }
    /// A case with a good file and environment variables.
    fn environment(&mut self, title: &str, environment: &[(&str, &str)]) {
        self.case(title, &Given { files: &[("exp.toml", BASE)], environment, ..Given::default() });
    }
}
