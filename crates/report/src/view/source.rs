//! What is shown: the saved batches of a run, and the alarms of their updates.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ascribe_run::folder::name;
use ascribe_run::records::{MetricsLine, read_lines};
use ascribe_run::trajectories::{self, GroupRecord};

use super::ViewError;

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

/// Saved batches that were found, and not read yet.
#[derive(Clone, Debug)]
pub struct Source {
    /// As it was asked for.
    path: PathBuf,
    /// Files by update; of a file that is no update's, its groups say which they are.
    files: Vec<PathBuf>,
    alarms: BTreeMap<u32, Vec<String>>,
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
            let alarms = run.map(alarms_of).transpose()?.unwrap_or_default();
            return Ok(Self { path: path.into(), files: vec![path.into()], alarms });
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
        let files = picked.into_iter().map(|update| trajectories::path(&all, update)).collect();
        Ok(Self { path: path.into(), files, alarms: alarms_of(path)? })
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

    /// Reads the batches, ascending.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged or is empty.
    pub fn read(&self) -> Result<Vec<Saved>, ViewError> {
        let mut out: Vec<Saved> = Vec::new();
        for file in &self.files {
            let groups = trajectories::read(file)?;
            if groups.is_empty() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: holds no group", file.display())).into());
            }
            for group in groups {
                match out.last_mut().filter(|saved| saved.update == group.update) {
                    Some(saved) => saved.groups.push(group),
                    None => {
                        let alarms = self.alarms.get(&group.update).cloned().unwrap_or_default();
                        out.push(Saved { update: group.update, groups: vec![group], alarms });
                    }
                }
            }
        }
        Ok(out)
    }
}

/// Alarms by update; none where the metrics were cleared away.
fn alarms_of(run: &Path) -> Result<BTreeMap<u32, Vec<String>>, ViewError> {
    let path = run.join(name::METRICS);
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let lines: Vec<MetricsLine> = read_lines(&path)?;
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
}
