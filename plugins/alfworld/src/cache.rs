//! What was read from a source, kept in one file of the user's cache folder.
//!
//! The file holds an index (ids, tasks, faults, words) and the texts of every game, each packed by itself. It names
//! the files it was made from with their sizes and times, carries a format version and a checksum of everything, and
//! is written under a temporary name. A file that does not fit in any of these is as good as none.

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::data::{Entry, Fault, FoundFile, Record, Source};

/// Environment variable with the folder to use instead of the user's cache folder.
pub const CACHE_VARIABLE: &str = "ASCRIBE_CACHE";

/// Changes whenever the file, or what counts as a good game, does.
const MAGIC: [u8; 8] = *b"ALFWLIB4";
const STAMP: usize = 32;
const HEADER: usize = MAGIC.len() + STAMP + 8;
const CHECKSUM: usize = 4;
const LEVEL: i32 = 3;
/// No text of a game is longer; real ones have 110 kB.
const MAX_RECORD: usize = 1 << 26;

/// The folder of the cache, if there is one.
pub fn folder() -> Option<PathBuf> {
    match std::env::var_os(CACHE_VARIABLE).filter(|value| !value.is_empty()) {
        Some(folder) => Some(PathBuf::from(folder)),
        None => dirs::cache_dir().map(|folder| folder.join("ascribe")),
    }
}

/// What a cache file was made from.
pub(crate) struct Stamp {
    /// Names the source.
    source: [u8; 32],
    /// Names the source and every file in it with size and time.
    whole: [u8; STAMP],
}

impl Stamp {
    pub(crate) fn of(source: &Source, files: &[FoundFile]) -> Self {
        let (kind, folder) = match source {
            Source::Official(folder) => ("official", folder.as_path()),
            Source::Packed(folder) => ("packed", folder.as_path()),
            Source::Mini => ("mini", Path::new("")),
        };
        // However the folder is written, it is the same source.
        let whole = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let mut hash = Sha256::new();
        hash.update(kind);
        hash.update(whole.as_os_str().as_encoded_bytes());
        let source = hash.clone().finalize().into();
        for file in files {
            let path = file.path.strip_prefix(folder).unwrap_or(&file.path).as_os_str().as_encoded_bytes();
            hash.update((path.len() as u64).to_le_bytes());
            hash.update(path);
            hash.update(file.size.to_le_bytes());
            let since = file.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            hash.update(since.map_or(0, |since| since.as_nanos()).to_le_bytes());
        }
        Self { source, whole: hash.finalize().into() }
    }

    /// One file per source: a change of the source replaces it.
    pub(crate) fn file_name(&self) -> String {
        let name: String = self.source[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("alfworld-{name}.bin")
    }
}

/// Everything about the games but their texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) entries: Vec<Entry>,
    /// Where the packed text of each entry lies in the store.
    pub(crate) spans: Vec<Range<usize>>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) words: Vec<String>,
}

/// The packed texts of all games, one behind the other.
#[derive(Default)]
pub(crate) struct Store {
    bytes: Vec<u8>,
    /// Where the texts start in `bytes`.
    offset: usize,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("bytes", &self.bytes.len()).finish()
    }
}

impl Store {
    pub(crate) fn push(&mut self, packed: &[u8]) -> Range<usize> {
        let start = self.bytes.len() - self.offset;
        self.bytes.extend_from_slice(packed);
        start..start + packed.len()
    }

    /// Unpacks the texts of a game.
    pub(crate) fn record(&self, index: &Index, idx: usize) -> Result<Record, String> {
        let texts = &self.bytes[self.offset..];
        let packed = index.spans.get(idx).and_then(|span| texts.get(span.clone())).ok_or("its text is missing")?;
        let (len, packed) = packed.split_first_chunk::<4>().ok_or("its text is cut off")?;
        let len = (u32::from_le_bytes(*len) as usize).min(MAX_RECORD);
        let json = zstd::bulk::decompress(packed, len).map_err(|error| error.to_string())?;
        serde_json::from_slice(&json).map_err(|error| error.to_string())
    }
}

/// Packs the texts of a game: their length, then their bytes.
pub(crate) fn pack(record: &Record) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(record).map_err(|error| error.to_string())?;
    if json.len() > MAX_RECORD {
        return Err(format!("its text is longer than {MAX_RECORD} bytes"));
    }
    let mut packed = (json.len() as u32).to_le_bytes().to_vec();
    packed.extend(zstd::bulk::compress(&json, LEVEL).map_err(|error| error.to_string())?);
    Ok(packed)
}

/// Reads a cache file; `None` where it is missing, stale or damaged.
pub(crate) fn read(file: &Path, stamp: &Stamp) -> Option<(Index, Store)> {
    let mut bytes = fs::read(file).ok()?;
    if bytes.len() < HEADER + CHECKSUM || bytes[..MAGIC.len()] != MAGIC {
        return None;
    }
    if bytes[MAGIC.len()..MAGIC.len() + STAMP] != stamp.whole {
        return None;
    }
    let checksum = bytes.split_off(bytes.len() - CHECKSUM);
    if crc32c::crc32c(&bytes).to_le_bytes() != checksum[..] {
        return None;
    }
    let len = u64::from_le_bytes(bytes[HEADER - 8..HEADER].try_into().ok()?);
    let offset = HEADER.checked_add(usize::try_from(len).ok()?)?;
    let index: Index = serde_json::from_slice(bytes.get(HEADER..offset)?).ok()?;
    let n_bytes = bytes.len() - offset;
    let whole = index.spans.iter().all(|span| span.start <= span.end && span.end <= n_bytes);
    (whole && index.spans.len() == index.entries.len()).then_some((index, Store { bytes, offset }))
}

/// Writes a cache file as one step. Where that is not possible the next opening is slower, and nothing else.
pub(crate) fn write(file: &Path, stamp: &Stamp, index: &Index, store: &Store) -> bool {
    let write = || -> Option<()> {
        let folder = file.parent()?;
        fs::create_dir_all(folder).ok()?;
        let index = serde_json::to_vec(index).ok()?;
        let texts = &store.bytes[store.offset..];
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&stamp.whole);
        head.extend_from_slice(&(index.len() as u64).to_le_bytes());
        let mut checksum = 0;
        let mut temporary = tempfile::NamedTempFile::new_in(folder).ok()?;
        for part in [&head[..], &index, texts] {
            checksum = crc32c::crc32c_append(checksum, part);
            temporary.write_all(part).ok()?;
        }
        temporary.write_all(&checksum.to_le_bytes()).ok()?;
        temporary.as_file().sync_data().ok()?;
        temporary.persist(file).ok()?;
        Some(())
    };
    write().is_some()
}
