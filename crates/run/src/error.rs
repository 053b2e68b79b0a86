//! Why a run could not begin, go on or be measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ascribe_core::build::BuildError;
use ascribe_core::rollout::RolloutError;

use crate::disk::DiskError;
use crate::live::LiveError;
use crate::train::TrainError;

/// A run that failed, or was never begun.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// What the experiment asks for cannot be.
    #[error("{0}")]
    Config(String),
    /// The folder holds a run of another experiment.
    #[error("{0}")]
    Differs(Difference),
    /// Another process uses the folder.
    #[error("`{}` is in use by process {pid}: wait for it, stop it, or choose another folder with `run.dir`", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// The other process, as it wrote itself down.
        pid: String,
    },
    /// There is no run where one should be.
    #[error("`{}` {reason}", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
        /// Completes "`FOLDER` …".
        reason: String,
    },
    /// Something could not be written.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// A plugin could not be built, saved or restored.
    #[error("{0}")]
    Live(#[from] LiveError),
    /// An update failed.
    #[error("update {update} failed: {source}")]
    Train {
        /// The update, counted from 1.
        update: u32,
        /// Why.
        source: Box<TrainError>,
    },
    /// An evaluation failed.
    #[error("the evaluation failed: {0}")]
    Evaluate(#[from] RolloutError),
    /// An alarm that was set to `stop` went off.
    #[error("alarm `{name}` after update {update}: {text}")]
    Alarm {
        /// Which.
        name: &'static str,
        /// The update, counted from 1.
        update: u32,
        /// What was seen, and what to change.
        text: String,
    },
}

impl RunError {
    /// The command's exit code: 2 where the configuration is to blame, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Config(_) | RunError::Differs(_) | RunError::Live(LiveError::Config(_)) => 2,
            RunError::Live(LiveError::Build {
                source: BuildError::Config(_) | BuildError::Device(_) | BuildError::Data(_),
                ..
            }) => 2,
            _ => 1,
        }
    }
}

/// In what an experiment differs from the one whose run lies in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The folder.
    pub folder: PathBuf,
    /// Keys, with their value in the folder's run and the value asked for; `None` where the key is not there.
    pub keys: Vec<(String, Option<String>, Option<String>)>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "`{}` holds a run of another experiment:", self.folder.display())?;
        for (key, there, asked) in &self.keys {
            let say = |x: &Option<String>| x.clone().unwrap_or_else(|| "(not set)".into());
            writeln!(f, "  {key}: {} there, {} asked for", say(there), say(asked))?;
        }
        write!(
            f,
            "  choose another `name`, move the old run aside with `ascribe run FILE --fresh`, or leave what differs as it was"
        )
    }
}

/// A key, and its value on either side as TOML; `None` where it is not there.
pub type Differing = (String, Option<String>, Option<String>);

/// The keys in which two experiments differ. What differs alike in all phases is said once; a table that only one of them has is
/// one key, with all that is in it. Where they have other phases, these are named, and a phase that only the second has is held against the last
/// one of the first, which is what it stands in for or comes before.
pub fn differences(there: &str, asked: &str) -> Vec<Differing> {
    let (Ok(there_table), Ok(asked_table)) = (there.parse::<toml::Table>(), asked.parse::<toml::Table>()) else {
        return vec![("identity".into(), Some(there.into()), Some(asked.into()))];
    };
    let phases = |table: &toml::Table| -> Vec<(String, toml::Value)> {
        let phases = table.get(PHASE).and_then(toml::Value::as_array);
        phases.into_iter().flatten().enumerate().map(|(i, phase)| (label(phase, i), phase.clone())).collect()
    };
    let names = |phases: &[(String, toml::Value)]| -> Vec<String> { phases.iter().map(|(name, _)| name.clone()).collect() };
    let (there_phases, asked_phases) = (phases(&there_table), phases(&asked_table));
    let mut all: Vec<Differing> = Vec::new();
    if names(&there_phases) != names(&asked_phases) {
        let rest = |mut table: toml::Table| {
            table.remove(PHASE);
            toml::Value::Table(table)
        };
        differing("", Some(&rest(there_table)), Some(&rest(asked_table)), &mut all);
        let named = |phases: &[(String, toml::Value)]| (!phases.is_empty()).then(|| names(phases).join(", "));
        all.push((PHASE.into(), named(&there_phases), named(&asked_phases)));
        for (name, phase) in &asked_phases {
            let same = there_phases.iter().find(|(other, _)| other == name);
            let (mut phase, mut against) = (phase.clone(), same.or(there_phases.last()).map(|(_, against)| against.clone()));
            if let (Some(of), Some(other)) = (phase.as_table_mut(), against.as_mut().and_then(toml::Value::as_table_mut)) {
                // The name has been said.
                of.extend(other.get("name").map(|name| ("name".to_string(), name.clone())));
                // How long the last phase runs is no part of what an experiment is.
                if same.is_some() && of.contains_key(UPDATES) != other.contains_key(UPDATES) {
                    of.remove(UPDATES);
                    other.remove(UPDATES);
                }
            }
            differing(&format!("{PHASE}.{name}"), against.as_ref(), Some(&phase), &mut all);
        }
    } else {
        differing("", Some(&toml::Value::Table(there_table)), Some(&toml::Value::Table(asked_table)), &mut all);
    }
    all.sort();
    let prefixes: Vec<String> = asked_phases.iter().map(|(name, _)| format!("{PHASE}.{name}.")).collect();
    let mut said: Vec<Differing> = Vec::new();
    for (key, x, y) in &all {
        let rest = prefixes.iter().find_map(|phase| key.strip_prefix(phase));
        let everywhere =
            rest.filter(|rest| prefixes.iter().all(|of| all.contains(&(format!("{of}{rest}"), x.clone(), y.clone()))));
        let differing = (everywhere.unwrap_or(key).to_string(), x.clone(), y.clone());
        if !said.contains(&differing) {
            said.push(differing);
        }
    }
    said
}

const PHASE: &str = "phase";
const UPDATES: &str = "updates";

/// What an item of a list is called: its name, else its place.
fn label(item: &toml::Value, i: usize) -> String {
    item.get("name").and_then(toml::Value::as_str).map_or_else(|| i.to_string(), str::to_string)
}

/// What a table or a list of tables holds, by name; `None` for anything else.
fn children(value: &toml::Value) -> Option<BTreeMap<String, &toml::Value>> {
    match value {
        toml::Value::Table(table) => Some(table.iter().map(|(key, value)| (key.clone(), value)).collect()),
        toml::Value::Array(items) if items.iter().all(toml::Value::is_table) => {
            Some(items.iter().enumerate().map(|(i, item)| (label(item, i), item)).collect())
        }
        _ => None,
    }
}

fn differing(path: &str, there: Option<&toml::Value>, asked: Option<&toml::Value>, out: &mut Vec<Differing>) {
    if there == asked {
        return;
    }
    if let (Some(there), Some(asked)) = (there.and_then(children), asked.and_then(children)) {
        let keys: BTreeSet<&String> = there.keys().chain(asked.keys()).collect();
        for key in keys {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            differing(&path, there.get(key).copied(), asked.get(key).copied(), out);
        }
        return;
    }
    let text = |value: Option<&toml::Value>| value.map(ToString::to_string);
    out.push((path.into(), text(there), text(asked)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_key_and_both_values() {
        let there = "seed = 1\n[estimator.gae]\ngamma = 0.9\n[[phase]]\nname = \"a\"\nupdates = 2\n";
        let asked = "seed = 1\n[estimator.grpo]\n[[phase]]\nname = \"a\"\nupdates = 3\n";
        let keys = differences(there, asked);
        let some = |x: &str| Some(x.to_string());
        assert_eq!(
            keys,
            [
                ("estimator.gae".to_string(), some("{ gamma = 0.9 }"), None),
                ("estimator.grpo".to_string(), None, some("{}")),
                ("updates".to_string(), some("2"), some("3")),
            ]
        );
        let text = Difference { folder: "runs/x".into(), keys }.to_string();
        let two = |x: &str, y: &str| format!("[[phase]]\nname = \"a\"\nx = {x}\n[[phase]]\nname = \"b\"\nx = {y}\n");
        assert_eq!(differences(&two("1", "1"), &two("2", "2")), [("x".to_string(), some("1"), some("2"))]);
        assert_eq!(differences(&two("1", "1"), &two("1", "2")), [("phase.b.x".to_string(), some("1"), some("2"))]);
        // Other phases: what they are, and in what each differs from the one that it stands in for.
        let one = "[[phase]]\nname = \"main\"\nupdates = 9\nx = 1\n";
        assert_eq!(
            differences(one, &two("1", "2")),
            [
                ("phase".to_string(), some("main"), some("a, b")),
                ("updates".to_string(), some("9"), None),
                ("phase.b.x".to_string(), some("1"), some("2")),
            ]
        );
        assert_eq!(differences(&two("1", "1"), one)[0], ("phase".to_string(), some("a, b"), some("main")));
        // The last phase of an identity does not say how long it runs.
        let there = "[[phase]]\nname = \"a\"\nupdates = 6\n[[phase]]\nname = \"b\"\n";
        let asked = "[[phase]]\nname = \"b\"\nupdates = 6\n[[phase]]\nname = \"a\"\n";
        assert_eq!(differences(there, asked), [("phase".to_string(), some("a, b"), some("b, a"))]);
        assert!(text.contains("  updates: 2 there, 3 asked for"), "{text}");
        // A list of tables grows by its items.
        let list = |x: &str| format!("transform = [{x}]\n");
        assert_eq!(differences(&list(""), &list("{ clip = {} }")), [("transform.0".to_string(), None, some("{ clip = {} }"))]);
    }
}
