//! Finding and opening games on disk: the official layout, or the packed one.
//!
//! * official: `$ALFWORLD_DATA/json_2.1.1/{train,valid_seen,valid_unseen}/TASK/TRIAL/game.tw-pddl`, as
//!   `alfworld-download` leaves it. As in the original, games that were found unsolvable and tasks with slicing or
//!   movable receptacles are left out.
//! * packed: a folder with `{train,valid_seen,valid_unseen}.jsonl.xz`, one game a line with `id`, `task` and
//!   `pddl_problem`, and beside them `walkthroughs.jsonl.xz`.
//!
//! What was read once is kept in a cache (see [`crate::cache`]); games are compiled when they are asked for. A game
//! that cannot be read is a [`Fault`] with its file and place and stops no other.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use liblzma::read::XzDecoder;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cache::{self, Stamp};
use crate::game::{Game, TaskType};
use crate::grammar::{self, Variant};
use crate::mini;
use crate::pddl::PddlError;
use crate::vocabulary;

/// Environment variable with the folder of packed games.
pub const GAMES_VARIABLE: &str = "ASCRIBE_ALFWORLD_GAMES";
/// Environment variable with the folder of the official download.
pub const OFFICIAL_VARIABLE: &str = "ALFWORLD_DATA";

/// The three parts of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Games to learn from.
    Train,
    /// Unseen games in rooms of the training part.
    ValidSeen,
    /// Games in rooms never seen in training.
    ValidUnseen,
}

impl Split {
    /// All three, in order.
    pub const ALL: [Self; 3] = [Self::Train, Self::ValidSeen, Self::ValidUnseen];

    /// The name of its folder or file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::ValidSeen => "valid_seen",
            Self::ValidUnseen => "valid_unseen",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where games come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder that has the three splits as folders.
    Official(PathBuf),
    /// A folder that has them as `.jsonl.xz` files.
    Packed(PathBuf),
    /// The games that come with the crate.
    Mini,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Official(path) => write!(f, "the official games in {}", path.display()),
            Self::Packed(path) => write!(f, "the packed games in {}", path.display()),
            Self::Mini => f.write_str("the six small games that come with the crate"),
        }
    }
}

/// Why games cannot be opened.
#[derive(Debug, Error)]
pub enum DataError {
    /// There are none.
    #[error(
        "there are no ALFWorld games: {}; run `alfworld-download` and set ALFWORLD_DATA to the folder it fills, or set \
         ASCRIBE_ALFWORLD_GAMES to a folder with train.jsonl.xz, valid_seen.jsonl.xz and valid_unseen.jsonl.xz",
        .0.join("; ")
    )]
    Absent(Vec<String>),
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A game cannot be compiled.
    #[error("game `{id}`: {source}")]
    Game {
        /// Which one.
        id: String,
        /// Why, and where in its problem text.
        source: PddlError,
    },
    /// There is no game with this number.
    #[error("there is no game {idx}: the library has {len}")]
    NoGame {
        /// The number asked for.
        idx: usize,
        /// How many there are.
        len: usize,
    },
    /// A stored game cannot be unpacked.
    #[error("game `{id}` cannot be unpacked: {what}")]
    Stored {
        /// Which one.
        id: String,
        /// Why.
        what: String,
    },
}

/// A game that was left out because it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Its file.
    pub file: PathBuf,
    /// Where in the file, such as `line 17`; empty where the file holds one game.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if !self.place.is_empty() {
            write!(f, ", {}", self.place)?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What is known of a game without compiling it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// `split/task/trial`, unique.
    pub id: String,
    /// Its part of the data.
    pub split: Split,
    /// Its kind of task.
    pub task_type: TaskType,
    /// The task sentence.
    pub task: String,
    /// The variant its texts are written in; `None` where the source leaves it open.
    pub variant: Option<Variant>,
    /// Identifies its facts, goal and task sentence.
    pub fingerprint: String,
}

/// The texts of a game as they are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) problem: String,
    pub(crate) walkthrough: Vec<String>,
}

/// A compiled game with what only a teacher may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedGame {
    /// The game.
    pub game: Game,
    /// Commands that win it, in the words of its variant. Empty where the source has none.
    pub walkthrough: Vec<String>,
}

impl LoadedGame {
    /// The walkthrough, one numbered command a line. Privileged: it knows where hidden objects are.
    pub fn privileged(&self) -> String {
        Game::numbered(&self.walkthrough)
    }
}

/// All games of a source, ordered by split and id.
#[derive(Debug)]
pub struct Library {
    source: Source,
    pub(crate) index: cache::Index,
    pub(crate) store: cache::Store,
    cached: bool,
}

impl Source {
    /// Finds games: what [`GAMES_VARIABLE`] names, else what [`OFFICIAL_VARIABLE`] names, else the places where they
    /// are by default: the official download in the user's cache folder, and `../shared/alfworld/games` beside this
    /// project. A variable that is set and names no games is an error.
    pub fn discover() -> Result<Self, DataError> {
        Self::discover_with(|name| std::env::var_os(name))
    }

    /// [`Source::discover`] with the environment given.
    pub fn discover_with(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, DataError> {
        if let Some(folder) = variable(GAMES_VARIABLE).filter(|value| !value.is_empty()) {
            let folder = PathBuf::from(folder);
            return Self::at(&folder).ok_or_else(|| {
                DataError::Absent(vec![format!("{GAMES_VARIABLE} is set to `{}`, which holds none", folder.display())])
            });
        }
        if let Some(folder) = variable(OFFICIAL_VARIABLE).filter(|value| !value.is_empty()) {
            let folder = PathBuf::from(folder);
            return Self::at(&folder).ok_or_else(|| {
                DataError::Absent(vec![format!("{OFFICIAL_VARIABLE} is set to `{}`, which holds none", folder.display())])
            });
        }
        let mut looked = vec![format!("neither {GAMES_VARIABLE} nor {OFFICIAL_VARIABLE} is set")];
        let beside = Path::new("../shared/alfworld/games");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let defaults = [
            Some(beside.to_owned()),
            manifest.ancestors().nth(2).map(|workspace| workspace.join(beside)),
            dirs::cache_dir().map(|cache| cache.join("alfworld")),
        ];
        for folder in defaults.into_iter().flatten() {
            if let Some(found) = Self::at(&folder) {
                return Ok(found);
            }
            looked.push(format!("nothing in `{}`", folder.display()));
        }
        Err(DataError::Absent(looked))
    }

    /// The games in a folder, packed or official.
    pub fn at(folder: &Path) -> Option<Self> {
        let packed = |split: &Split| packed_file(folder, *split).is_file();
        if Split::ALL.iter().any(packed) {
            return Some(Self::Packed(folder.to_owned()));
        }
        let versions = ["json_2.1.1", "json_2.1.2", "json_2.1.3", "."];
        let folders = versions.iter().map(|version| folder.join(version));
        let mut official = folders.filter(|folder| Split::ALL.iter().any(|split| folder.join(split.name()).is_dir()));
        official.next().map(Self::Official)
    }
}

impl Library {
    /// Opens the games of a source, with the cache in its usual place.
    pub fn open(source: &Source) -> Result<Self, DataError> {
        Self::open_cached(source, cache::folder().as_deref())
    }

    /// Opens the games of a source with the cache in a given folder, or without one.
    ///
    /// A cache that is missing, stale or damaged is made again; one that cannot be written is done without.
    pub fn open_cached(source: &Source, cache: Option<&Path>) -> Result<Self, DataError> {
        let files = match source {
            Source::Mini => return Ok(Self::mini()),
            Source::Packed(folder) => packed_files(folder)?,
            Source::Official(folder) => official_files(folder)?,
        };
        let stamp = Stamp::of(source, &files);
        let file = cache.map(|folder| folder.join(stamp.file_name()));
        if let Some((index, store)) = file.as_deref().and_then(|file| cache::read(file, &stamp)) {
            return Ok(Self { source: source.clone(), index, store, cached: true });
        }
        let found = match source {
            Source::Packed(folder) => read_packed(folder, &files)?,
            _ => read_official(&files),
        };
        let (index, store) = found.finish();
        if let Some(file) = file {
            cache::write(&file, &stamp, &index, &store);
        }
        Ok(Self { source: source.clone(), index, store, cached: false })
    }

    /// The six small games that come with the crate, all in [`Split::Train`].
    pub fn mini() -> Self {
        let found = mini::GAMES.map(|game| {
            let walkthrough = game.walkthrough.iter().map(|&command| command.to_owned()).collect();
            let record = Record { problem: game.problem.to_owned(), walkthrough };
            check(game.id.to_owned(), Split::Train, game.task.to_owned(), None, record)
        });
        let (index, store) = Found::of(
            found.into_iter().map(|game| game.map_err(|what| Fault { file: PathBuf::from("mini"), place: String::new(), what })),
        )
        .finish();
        Self { source: Source::Mini, index, store, cached: false }
    }

    /// Where the games come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether the cache served.
    pub fn was_cached(&self) -> bool {
        self.cached
    }

    /// The games, ordered by split and id.
    pub fn entries(&self) -> &[Entry] {
        &self.index.entries
    }

    /// The games that cannot be read, each with its file and place.
    pub fn faults(&self) -> &[Fault] {
        &self.index.faults
    }

    /// Every word that occurs in a name or task of these games, ascending. See [`vocabulary::tokens`].
    pub fn words(&self) -> &[String] {
        &self.index.words
    }

    /// The place of a game among [`Library::entries`].
    pub fn find(&self, id: &str) -> Option<usize> {
        self.entries().iter().position(|entry| entry.id == id)
    }

    /// Unpacks and compiles a game, in the variant asked for, else in its own, else in the default.
    pub fn load(&self, idx: usize, variant: Option<Variant>) -> Result<LoadedGame, DataError> {
        let len = self.entries().len();
        let entry = self.entries().get(idx).ok_or(DataError::NoGame { idx, len })?;
        let record = self.store.record(&self.index, idx).map_err(|what| DataError::Stored { id: entry.id.clone(), what })?;
        let variant = variant.or(entry.variant).unwrap_or_default();
        let game = Game::new(&record.problem, &entry.task, variant)
            .map_err(|source| DataError::Game { id: entry.id.clone(), source })?;
        let translated = record.walkthrough.iter().filter_map(|command| grammar::translate(command, variant));
        Ok(LoadedGame { game, walkthrough: translated.collect() })
    }
}

/// A game that was read and found good.
struct Good {
    entry: Entry,
    /// The packed [`Record`].
    packed: Vec<u8>,
    words: Vec<String>,
}

/// Compiles a game to see that it is good, and packs it. Errors say what is wrong.
fn check(id: String, split: Split, task: String, variant: Option<Variant>, record: Record) -> Result<Good, String> {
    let game = Game::new(&record.problem, &task, variant.unwrap_or_default()).map_err(|error| format!("game `{id}`: {error}"))?;
    let words = game.names().chain(game.place_names()).chain([task.as_str()]).flat_map(vocabulary::tokens).map(str::to_owned);
    let words = words.collect::<BTreeSet<_>>().into_iter().collect();
    let packed = cache::pack(&record).map_err(|what| format!("game `{id}`: {what}"))?;
    let fingerprint = game.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Good { entry: Entry { id, split, task_type: game.task_type(), task, variant, fingerprint }, packed, words })
}

/// What reading a source has found so far.
#[derive(Default)]
struct Found {
    good: Vec<Good>,
    faults: Vec<Fault>,
}

impl Found {
    fn of(results: impl IntoIterator<Item = Result<Good, Fault>>) -> Self {
        let mut found = Self::default();
        found.extend(results);
        found
    }

    fn extend(&mut self, results: impl IntoIterator<Item = Result<Good, Fault>>) {
        for result in results {
            match result {
                Ok(good) => self.good.push(good),
                Err(fault) => self.faults.push(fault),
            }
        }
    }

    /// Orders the games, drops second ones with an id, and puts everything into its place.
    fn finish(mut self) -> (cache::Index, cache::Store) {
        self.good.sort_by(|a, b| (a.entry.split, &a.entry.id).cmp(&(b.entry.split, &b.entry.id)));
        let mut words = BTreeSet::new();
        let mut index = cache::Index { faults: self.faults, ..cache::Index::default() };
        let mut store = cache::Store::default();
        for good in self.good {
            if index.entries.last().is_some_and(|last| last.id == good.entry.id) {
                let what = format!("the id `{}` occurs twice; the first game is kept", good.entry.id);
                index.faults.push(Fault { file: PathBuf::new(), place: String::new(), what });
                continue;
            }
            words.extend(good.words);
            index.spans.push(store.push(&good.packed));
            index.entries.push(good.entry);
        }
        index.words = words.into_iter().collect();
        (index, store)
    }
}

/// A file that was found, with what tells whether it has changed.
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    pub(crate) split: Option<Split>,
    pub(crate) size: u64,
    pub(crate) modified: Option<std::time::SystemTime>,
}

impl FoundFile {
    fn new(path: PathBuf, split: Option<Split>) -> Result<Option<Self>, DataError> {
        match fs::metadata(&path) {
            Ok(meta) if meta.is_file() => Ok(Some(Self { path, split, size: meta.len(), modified: meta.modified().ok() })),
            Ok(_) => Ok(None),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DataError::Io { path, source }),
        }
    }
}

fn packed_file(folder: &Path, split: Split) -> PathBuf {
    folder.join(format!("{split}.jsonl.xz"))
}

fn packed_files(folder: &Path) -> Result<Vec<FoundFile>, DataError> {
    let mut files = Vec::new();
    for split in Split::ALL {
        files.extend(FoundFile::new(packed_file(folder, split), Some(split))?);
    }
    if files.is_empty() {
        return Err(DataError::Absent(vec![format!("nothing in `{}`", folder.display())]));
    }
    files.extend(FoundFile::new(folder.join("walkthroughs.jsonl.xz"), None)?);
    Ok(files)
}

/// Every `game.tw-pddl` two folders below a split, in the order of their names.
fn official_files(folder: &Path) -> Result<Vec<FoundFile>, DataError> {
    let mut files = Vec::new();
    for split in Split::ALL {
        let Some(tasks) = sorted_folders(&folder.join(split.name()))? else { continue };
        for task in tasks {
            let name = task.file_name().unwrap_or_default().to_string_lossy();
            // The original leaves these out: their operators are switched off in its domain.
            if name.contains("movable") || name.contains("Sliced") {
                continue;
            }
            for trial in sorted_folders(&task)?.unwrap_or_default() {
                files.extend(FoundFile::new(trial.join("game.tw-pddl"), Some(split))?);
            }
        }
    }
    if files.is_empty() {
        let what = format!("there is no {{train,valid_seen,valid_unseen}}/*/*/game.tw-pddl in `{}`", folder.display());
        return Err(DataError::Absent(vec![what]));
    }
    Ok(files)
}

/// The folders in a folder, by name; `None` where it does not exist.
fn sorted_folders(folder: &Path) -> Result<Option<Vec<PathBuf>>, DataError> {
    let io = |source| DataError::Io { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io(source)),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry.map_err(io)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(Some(folders))
}

/// A line of a packed file, as far as it is used.
#[derive(Deserialize)]
struct PackedLine {
    id: String,
    task: String,
    pddl_problem: String,
}

#[derive(Deserialize)]
struct WalkthroughLine {
    id: String,
    walkthrough: Vec<String>,
}

/// Lines that are read before they are worked on together.
const BATCH: usize = 256;

fn read_packed(folder: &Path, files: &[FoundFile]) -> Result<Found, DataError> {
    let mut found = Found::default();
    let mut walkthroughs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let file = folder.join("walkthroughs.jsonl.xz");
    if files.iter().any(|found| found.path == file) {
        each_batch(&file, &mut found.faults, |lines, faults| {
            for (number, line) in lines {
                match serde_json::from_slice::<WalkthroughLine>(line) {
                    Ok(line) => drop(walkthroughs.insert(line.id, line.walkthrough)),
                    Err(error) => faults.push(line_fault(&file, *number, error.to_string())),
                }
            }
        })?;
    }
    for FoundFile { path, split, .. } in files {
        let Some(split) = *split else { continue };
        let mut faults = Vec::new();
        each_batch(path, &mut faults, |lines, _| {
            let results: Vec<_> = lines
                .par_iter()
                .map(|(number, line)| {
                    let read = serde_json::from_slice::<PackedLine>(line).map_err(|error| error.to_string());
                    let good = read.and_then(|PackedLine { id, task, pddl_problem }| {
                        let walkthrough = walkthroughs.get(&id).cloned().unwrap_or_default();
                        check(id, split, task, None, Record { problem: pddl_problem, walkthrough })
                    });
                    good.map_err(|what| line_fault(path, *number, what))
                })
                .collect();
            found.extend(results);
        })?;
        found.faults.extend(faults);
    }
    Ok(found)
}

fn line_fault(file: &Path, number: usize, what: String) -> Fault {
    Fault { file: file.to_owned(), place: format!("line {number}"), what }
}

/// Gives the lines of a compressed file, with their numbers, in batches. Damage ends the file and is a fault.
fn each_batch(
    file: &Path,
    faults: &mut Vec<Fault>,
    mut work: impl FnMut(&[(usize, Vec<u8>)], &mut Vec<Fault>),
) -> Result<(), DataError> {
    let io = |source| DataError::Io { path: file.to_owned(), source };
    let mut reader = BufReader::with_capacity(1 << 16, XzDecoder::new_multi_decoder(File::open(file).map_err(io)?));
    let mut number = 0;
    loop {
        let mut lines = Vec::with_capacity(BATCH);
        let mut end = false;
        while lines.len() < BATCH {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => end = true,
                Ok(_) => {
                    number += 1;
                    if !line.trim_ascii().is_empty() {
                        lines.push((number, line));
                    }
                }
                Err(error) => {
                    faults.push(line_fault(file, number + 1, format!("the file is damaged from here on: {error}")));
                    end = true;
                }
            }
            if end {
                break;
            }
        }
        work(&lines, faults);
        if end {
            return Ok(());
        }
    }
}

/// An official game file, as far as it is used.
#[derive(Deserialize)]
struct OfficialFile {
    grammar: String,
    pddl_problem: String,
    walkthrough: Option<Vec<String>>,
    solvable: Option<bool>,
}

fn read_official(files: &[FoundFile]) -> Found {
    let results: Vec<Option<Result<Good, Fault>>> = files
        .par_iter()
        .map(|FoundFile { path, split, .. }| {
            let fault = |what: String| Fault { file: path.clone(), place: String::new(), what };
            read_official_file(path, (*split)?).map_err(fault).transpose()
        })
        .collect();
    Found::of(results.into_iter().flatten())
}

/// `None` for a game that is known to be unsolvable.
fn read_official_file(path: &Path, split: Split) -> Result<Option<Good>, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    let file: OfficialFile = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if file.solvable == Some(false) {
        return Ok(None);
    }
    let grammar = grammar::read(&file.grammar).map_err(|error| error.to_string())?;
    let mut folders = path.ancestors().skip(1).filter_map(Path::file_name).map(|name| name.to_string_lossy());
    let (trial, task) = (folders.next().unwrap_or_default(), folders.next().unwrap_or_default());
    let id = format!("{split}/{task}/{trial}");
    let record = Record { problem: file.pddl_problem, walkthrough: file.walkthrough.unwrap_or_default() };
    check(id, split, grammar.task, Some(grammar.variant), record).map(Some)
}
