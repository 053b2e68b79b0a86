//! What is shown: the saved batches of a run, what credit trained on them, and the alarms of their updates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ascribe_run::folder::name;
use ascribe_run::records::{MetricsLine, read_lines};
use ascribe_run::trajectories::{self, GroupRecord};

use super::ViewError;
use super::error::REMEDY;

/// Which updates are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updates {
    /// The last one that is saved.
    Last,
    /// One.
    One(u32),
    /// Those that are saved between two, both included; a side may be open.
    Between(Option<u32>, Option<u32>),
}

impl FromStr for Updates {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no update: write N, N..M (both included), N.., ..M, all or last");
        let number = |part: &str| part.trim().parse::<u32>().map_err(|_| wrong());
        let side = |part: &str| if part.trim().is_empty() { Ok(None) } else { number(part).map(Some) };
        match text.trim() {
            "last" => Ok(Self::Last),
            "all" => Ok(Self::Between(None, None)),
            other => match other.split_once("..") {
                Some(("", "")) => Err(wrong()),
                Some((from, to)) => Ok(Self::Between(side(from)?, side(to)?)),
                None => number(other).map(Self::One),
            },
        }
    }
}

impl Updates {
    /// Those of `saved`, which is not empty and ascends.
    fn of(self, saved: &[u32]) -> Result<Vec<u32>, ViewError> {
        let none = |asked: String| Err(ViewError::NotSaved { asked, saved: listed(saved) });
        match self {
            Self::Last => Ok(saved.last().copied().into_iter().collect()),
            Self::One(update) if saved.contains(&update) => Ok(vec![update]),
            Self::One(update) => none(format!("update {update}")),
            Self::Between(from, to) => {
                let (from, to) = (from.unwrap_or(0), to.unwrap_or(u32::MAX));
                let picked: Vec<u32> = saved.iter().copied().filter(|u| (from..=to).contains(u)).collect();
                if picked.is_empty() { none(format!("an update from {from} to {to}")) } else { Ok(picked) }
            }
        }
    }
}

/// Numbers as people list them: `1 to 40, 50, 60`.
fn listed(numbers: &[u32]) -> String {
    const MOST: usize = 12;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *n => *end = *n,
            _ => runs.push((*n, *n)),
        }
    }
    let mut words: Vec<String> = runs
        .iter()
        .map(|(a, b)| match b - a {
            0 => a.to_string(),
            1 => format!("{a}, {b}"),
            _ => format!("{a} to {b}"),
        })
        .collect();
    if words.len() > MOST {
        let last = words.split_off(words.len() - 2);
        words.truncate(MOST - 2);
        words.push("…".into());
        words.extend(last);
    }
    words.join(", ")
}

/// The saved batch of an update.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The update.
    pub update: u32,
    /// Its groups.
    pub groups: Vec<GroupRecord>,
    /// Alarms that went off in it.
    pub alarms: Vec<String>,
}

/// Something that cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// What is left out.
    pub what: String,
    /// Why; names the file.
    pub why: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be read: {}", self.what, self.why)
    }
}

impl Damaged {
    /// The batch of an update.
    pub(super) fn batch(update: u32, why: String) -> Self {
        Self { what: format!("the batch of update {update}"), why }
    }

    /// All that is damaged, what became of it, and what to do.
    pub fn told(damaged: &[Damaged]) -> Option<String> {
        let all: Vec<String> = damaged.iter().map(|of| format!("{of}; it is left out")).collect();
        (!all.is_empty()).then(|| format!("{}\n  {REMEDY}", all.join("\n")))
    }
}

/// What trained in a phase, as the run's resolved experiment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trained {
    /// The estimator's name, and those of the transforms after it.
    pub name: String,
    /// The same with all keys, and the objective.
    pub settings: String,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The batches that can be read, ascending.
    pub saved: Vec<Saved>,
    /// What cannot be read.
    pub damaged: Vec<Damaged>,
    /// What trained, by phase; without those of which it is not known.
    pub trained: BTreeMap<String, Trained>,
    /// Updates that were saved and not asked for, in words.
    pub others: String,
}

/// Saved batches that were found, and not read yet.
#[derive(Clone, Debug)]
pub struct Source {
    /// As it was asked for.
    path: PathBuf,
    /// Files with their updates; of a file that is no update's, its groups say which they are.
    files: Vec<(Option<u32>, PathBuf)>,
    /// The run's folder, if it is known.
    run: Option<PathBuf>,
    /// Updates that are saved and were not asked for.
    others: Vec<u32>,
}

impl Source {
    /// Finds the saved batches of a run's folder, of which `updates` says which (the last one if empty), or takes one file.
    ///
    /// # Errors
    /// If there are none, or not those.
    pub fn open(path: &Path, updates: &[Updates]) -> Result<Self, ViewError> {
        if path.is_file() {
            if !updates.is_empty() {
                return Err(ViewError::OneBatch(path.into()));
            }
            let run = path.parent().filter(|all| all.ends_with(name::TRAJECTORIES)).and_then(Path::parent);
            return Ok(Self {
                path: path.into(),
                files: vec![(None, path.into())],
                run: run.map(Into::into),
                others: Vec::new(),
            });
        }
        let all = path.join(name::TRAJECTORIES);
        if !all.is_dir() && !path.join(name::PROVENANCE).is_file() {
            return Err(ViewError::NoRun(path.into()));
        }
        let saved = trajectories::saved(&all)?;
        if saved.is_empty() {
            return Err(ViewError::NothingSaved(path.into()));
        }
        let asked = if updates.is_empty() { &[Updates::Last] } else { updates };
        let mut picked = BTreeSet::new();
        for updates in asked {
            picked.extend(updates.of(&saved)?);
        }
        let others = saved.into_iter().filter(|update| !picked.contains(update)).collect();
        let files = picked.into_iter().map(|update| (Some(update), trajectories::path(&all, update))).collect();
        Ok(Self { path: path.into(), files, run: Some(path.into()), others })
    }

    /// Where its page goes if nothing else is said: into the run's folder, or beside the file.
    pub fn page(&self) -> PathBuf {
        if self.path.is_dir() {
            return self.path.join("view.html");
        }
        let stem = self.path.file_name().and_then(|n| n.to_str()?.split('.').next()).unwrap_or("view");
        self.path.with_file_name(format!("{stem}.html"))
    }

    /// What it is called.
    pub fn title(&self) -> String {
        self.path.display().to_string()
    }

    /// Reads what can be read.
    pub fn read(&self) -> Contents {
        let mut out = Contents { others: listed(&self.others), ..Contents::default() };
        let alarms = self.run.as_deref().map_or_else(|| Ok(BTreeMap::new()), alarms_of).unwrap_or_else(|why| {
            out.damaged.push(Damaged { what: "the record of alarms".into(), why });
            BTreeMap::new()
        });
        for (update, file) in &self.files {
            let groups = match trajectories::read(file) {
                Ok(groups) if groups.is_empty() => Err(format!("{}: holds no group", file.display())),
                Ok(groups) => Ok(groups),
                Err(e) => Err(e.to_string()),
            };
            match (groups, update) {
                (Ok(groups), _) => groups.into_iter().for_each(|group| add(&mut out.saved, group, &alarms)),
                (Err(why), Some(update)) => out.damaged.push(Damaged::batch(*update, why)),
                (Err(why), None) => out.damaged.push(Damaged { what: "the batch".into(), why }),
            }
        }
        let phases: BTreeSet<&str> = out.saved.iter().flat_map(|saved| &saved.groups).map(|group| group.phase.as_str()).collect();
        let resolved = self.run.as_ref().and_then(|run| fs::read_to_string(run.join(name::RESOLVED)).ok());
        let resolved = resolved.and_then(|text| text.parse::<toml::Table>().ok());
        let of = |phase: &str| Some((phase.to_string(), trained(resolved.as_ref()?, phase)?));
        out.trained = phases.into_iter().filter_map(of).collect();
        out
    }
}

/// Adds a group to its update's batch.
fn add(saved: &mut Vec<Saved>, group: GroupRecord, alarms: &BTreeMap<u32, Vec<String>>) {
    match saved.last_mut().filter(|saved| saved.update == group.update) {
        Some(saved) => saved.groups.push(group),
        None => {
            let alarms = alarms.get(&group.update).cloned().unwrap_or_default();
            saved.push(Saved { update: group.update, groups: vec![group], alarms });
        }
    }
}

/// What trained in a phase.
fn trained(resolved: &toml::Table, phase: &str) -> Option<Trained> {
    let phases = resolved.get("phase").and_then(toml::Value::as_array);
    let of_phase = phases.into_iter().flatten().find(|of| of.get("name").and_then(toml::Value::as_str) == Some(phase));
    let key = |key: &str| of_phase.and_then(|of| of.get(key)).or_else(|| resolved.get(key));
    let plugin = |value: &toml::Value| value.as_table().and_then(|table| table.keys().next().cloned());
    let estimator = key("estimator")?;
    let transforms = key("transform").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    let names = std::iter::once(plugin(estimator)?).chain(transforms.iter().filter_map(plugin));
    let settings =
        ["estimator", "transform", "objective"].into_iter().filter_map(|name| Some(format!("{name} = {}", key(name)?)));
    Some(Trained { name: names.collect::<Vec<_>>().join(" + "), settings: settings.collect::<Vec<_>>().join(", ") })
}

/// Alarms by update; none where the metrics were cleared away.
fn alarms_of(run: &Path) -> Result<BTreeMap<u32, Vec<String>>, String> {
    let path = run.join(name::METRICS);
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let lines: Vec<MetricsLine> = read_lines(&path).map_err(|e| match e.to_string() {
        told if told.contains(name::METRICS) => told,
        told => format!("{}: {told}", path.display()),
    })?;
    let rung = |line: MetricsLine| {
        let names = line.metrics.0.into_iter().filter(|(_, x)| *x > 0.0);
        let names: Vec<String> = names.filter_map(|(name, _)| name.strip_prefix("alarm/").map(String::from)).collect();
        (!names.is_empty()).then_some((line.update, names))
    };
    Ok(lines.into_iter().filter_map(rung).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_named_in_words_numbers_and_ranges() {
        let all = [
            ("last", Updates::Last),
            ("12", Updates::One(12)),
            ("all", Updates::Between(None, None)),
            ("3..5", Updates::Between(Some(3), Some(5))),
            ("3..", Updates::Between(Some(3), None)),
            ("..5", Updates::Between(None, Some(5))),
        ];
        for (text, want) in all {
            assert_eq!(text.parse(), Ok(want));
        }
        for text in ["", "..", "first", "3-5", "-1", "1..x"] {
            assert!(text.parse::<Updates>().unwrap_err().contains("is no update: write N, N..M"), "{text}");
        }
    }

    #[test]
    fn what_is_not_saved_is_told_with_what_is() {
        let saved = [2, 3, 4, 10, 12, 13];
        assert_eq!(Updates::Last.of(&saved).unwrap(), [13]);
        assert_eq!(Updates::Between(Some(3), Some(11)).of(&saved).unwrap(), [3, 4, 10]);
        let told = Updates::One(7).of(&saved).unwrap_err().to_string();
        assert_eq!(told, "update 7 is not saved; saved are 2 to 4, 10, 12, 13");
        let told = Updates::Between(Some(5), Some(9)).of(&saved).unwrap_err().to_string();
        assert!(told.starts_with("an update from 5 to 9 is not saved"), "{told}");
        let every: Vec<u32> = (1..100).map(|i| i * 5).collect();
        assert_eq!(listed(&every), "5, 10, 15, 20, 25, 30, 35, 40, 45, 50, …, 490, 495");
    }

    #[test]
    fn what_trained_is_what_the_phase_says() {
        let resolved: toml::Table = r#"
            objective.nll = {}
            estimator.grpo = { std = true }
            transform = [{ whiten = {} }]
            [[phase]]
            name = "clone"
            [[phase]]
            name = "rl"
            estimator.gae = { gamma = 1.0 }
            transform = []
        "#
        .parse()
        .unwrap();
        let clone = trained(&resolved, "clone").unwrap();
        assert_eq!(clone.name, "grpo + whiten");
        assert!(clone.settings.contains("std = true") && clone.settings.contains("objective = { nll = {}"), "{}", clone.settings);
        assert_eq!(trained(&resolved, "rl").unwrap().name, "gae");
        // A run without phases has one, and says all at the top.
        assert_eq!(trained(&resolved, "main").unwrap().name, "grpo + whiten");
        assert_eq!(trained(&toml::Table::new(), "main"), None);
    }
}
