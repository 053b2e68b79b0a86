//! Checkpoints: folders that are either whole or not there.
//!
//! `checkpoints/000010/` holds some files and `manifest.json`, which is written last and names every file with its
//! length and SHA-256, and the length that each file which only grows had at that moment. The folder is written under
//! a temporary name and renamed. What is damaged is found by its hash, and the checkpoint before it serves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk::{Disk, DiskError};

/// Version of the layout; another one is not read.
pub const FORMAT: u32 = 1;

const MANIFEST: &str = "manifest.json";

/// What a checkpoint holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Updates done.
    pub update: u32,
    /// Name of the phase.
    pub phase: String,
    /// Whether the phase ended here: such a checkpoint is kept.
    pub phase_end: bool,
    /// Its files.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Length of every file of the run that only grows.
    pub lengths: BTreeMap<String, u64>,
}

/// Why a checkpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {reason}", path.display())]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it: completes "`FILE` …".
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    content: Content,
    /// SHA-256 of `content`, so that a flipped bit here is found too.
    sha256: String,
}

#[derive(Serialize, Deserialize)]
struct Content {
    format: u32,
    update: u32,
    phase: String,
    phase_end: bool,
    files: BTreeMap<String, Listed>,
    lengths: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
struct Listed {
    bytes: u64,
    sha256: String,
}

/// Name of a checkpoint's folder.
pub fn folder_name(update: u32) -> String {
    format!("{update:06}")
}

/// Writes a checkpoint into the folder of all checkpoints. One of the same update is replaced.
///
/// # Errors
/// If a file could not be written; the other checkpoints are then as they were.
pub fn write(disk: &Disk, all: &Path, checkpoint: &Checkpoint) -> Result<PathBuf, DiskError> {
    let name = folder_name(checkpoint.update);
    let (temporary, place) = (all.join(format!(".{name}.tmp")), all.join(&name));
    disk.remove_dir(&temporary)?;
    disk.create_dir(&temporary)?;
    let mut files = BTreeMap::new();
    for (name, bytes) in &checkpoint.files {
        disk.put(&temporary.join(name), bytes)?;
        files.insert(name.clone(), Listed { bytes: bytes.len() as u64, sha256: sha256(bytes) });
    }
    let content = Content {
        format: FORMAT,
        update: checkpoint.update,
        phase: checkpoint.phase.clone(),
        phase_end: checkpoint.phase_end,
        files,
        lengths: checkpoint.lengths.clone(),
    };
    let manifest = Manifest { sha256: sha256(&json(&content)), content };
    disk.put(&temporary.join(MANIFEST), &json(&manifest))?;
    // Synced once all are written: then the first takes the others along.
    for name in checkpoint.files.keys().map(String::as_str).chain([MANIFEST]) {
        disk.sync_file(&temporary.join(name))?;
    }
    disk.sync_dir(&temporary)?;
    // A folder of that name is one that could not be used, or the run would have gone on from it.
    disk.remove_dir(&place)?;
    disk.rename(&temporary, &place)?;
    disk.sync_dir(all)?;
    Ok(place)
}

/// Removes all but the `keep` newest checkpoints and those at the end of a phase, and what a killed write left behind.
///
/// # Errors
/// If something could not be removed.
pub fn prune(disk: &Disk, all: &Path, keep: usize) -> Result<(), DiskError> {
    for (_, path) in list(all).into_iter().skip(keep) {
        if !manifest(&path).is_ok_and(|m| m.content.phase_end) {
            // Without its manifest it is no checkpoint, should the removal be cut short.
            disk.remove_file(&path.join(MANIFEST))?;
            disk.remove_dir(&path)?;
        }
    }
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with('.') {
            disk.remove_dir(&entry.path())?;
        }
    }
    Ok(())
}

/// The checkpoints in a folder, newest first, whether or not they can be used.
pub fn list(all: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(all)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    found.sort_by_key(|(update, _)| std::cmp::Reverse(*update));
    found
}

/// Reads a checkpoint and verifies every byte.
///
/// # Errors
/// The first file that is missing, cut short or changed.
pub fn read(path: &Path) -> Result<Checkpoint, Damage> {
    let Manifest { content, .. } = manifest(path)?;
    let mut files = BTreeMap::new();
    for (name, listed) in &content.files {
        let file = path.join(name);
        let damage = |reason: String| Damage { path: file.clone(), reason };
        let bytes = fs::read(&file).map_err(|e| damage(unreadable(&e)))?;
        if bytes.len() as u64 != listed.bytes {
            return Err(damage(format!("has {} bytes where {} were written", bytes.len(), listed.bytes)));
        }
        if sha256(&bytes) != listed.sha256 {
            return Err(damage("is not what was written: its hash differs".into()));
        }
        files.insert(name.clone(), bytes);
    }
    Ok(Checkpoint { update: content.update, phase: content.phase, phase_end: content.phase_end, files, lengths: content.lengths })
}

/// The newest checkpoint that can be used, and what is wrong with those that came before it in the search.
///
/// To go on from one, every file of the run named in `results` must be as long as it recorded: what it stands for is no
/// longer all there otherwise. Whoever only wants its weights asks for none.
pub fn newest(run: &Path, all: &Path, results: &[&str]) -> (Option<Checkpoint>, Vec<Damage>) {
    let mut damaged = Vec::new();
    for (_, path) in list(all) {
        match read(&path).and_then(|checkpoint| grown(run, &checkpoint, results).map(|()| checkpoint)) {
            Ok(checkpoint) => return (Some(checkpoint), damaged),
            Err(damage) => damaged.push(damage),
        }
    }
    (None, damaged)
}

/// Renames the checkpoints after the one that is used (all, if none is) to `unusable-NAME`: a run that goes on from an
/// older one must not count them among the newest.
///
/// # Errors
/// If one cannot be renamed.
pub fn set_aside(disk: &Disk, all: &Path, used: Option<u32>) -> Result<(), DiskError> {
    for (update, path) in list(all) {
        if used.is_none_or(|used| update > used) {
            let aside = all.join(format!("unusable-{}", folder_name(update)));
            disk.remove_dir(&aside)?;
            disk.rename(&path, &aside)?;
            disk.sync_dir(all)?;
        }
    }
    Ok(())
}

fn grown(run: &Path, checkpoint: &Checkpoint, results: &[&str]) -> Result<(), Damage> {
    for (name, length) in checkpoint.lengths.iter().filter(|(name, _)| results.contains(&name.as_str())) {
        let path = run.join(name);
        let found = fs::metadata(&path).map_or(0, |m| m.len());
        if found < *length {
            let reason = format!("has {found} bytes, but had {length} when update {} was saved", checkpoint.update);
            return Err(Damage { path, reason });
        }
    }
    Ok(())
}

fn manifest(checkpoint: &Path) -> Result<Manifest, Damage> {
    let path = checkpoint.join(MANIFEST);
    let damage = |reason: String| Damage { path: path.clone(), reason };
    let bytes = fs::read(&path).map_err(|e| damage(unreadable(&e)))?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|e| damage(format!("cannot be understood: {e}")))?;
    if sha256(&json(&manifest.content)) != manifest.sha256 {
        return Err(damage("is not what was written: its hash differs".into()));
    }
    if manifest.content.format != FORMAT {
        return Err(damage(format!("has format {}, this version reads {FORMAT}", manifest.content.format)));
    }
    Ok(manifest)
}

fn unreadable(e: &io::Error) -> String {
    if e.kind() == io::ErrorKind::NotFound { "is missing".into() } else { format!("cannot be read: {e}") }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data serialises")
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes what it is given");
        hex
    })
}

/// A name that is safe as a part of a file's: what is neither letter, digit, `-`, `_` nor `.` becomes `%XX`.
pub fn file_name(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes what it is given");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(update: u32) -> Checkpoint {
        Checkpoint {
            update,
            phase: "main".into(),
            phase_end: update == 2,
            files: BTreeMap::from([("state.json".into(), b"{}".to_vec()), ("node-actor.bin".into(), vec![update as u8; 64])]),
            lengths: BTreeMap::from([("metrics.jsonl".into(), 3)]),
        }
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join("metrics.jsonl"), "1234").unwrap();
        let all = run.path().join("checkpoints");
        fs::create_dir(&all).unwrap();
        (run, all)
    }

    #[test]
    fn what_was_written_is_read() {
        let (run, all) = folder();
        write(&Disk::default(), &all, &some(4)).unwrap();
        assert_eq!(newest(run.path(), &all, &["metrics.jsonl"]), (Some(some(4)), Vec::new()));
        // written again, it is replaced
        write(&Disk::default(), &all, &some(4)).unwrap();
        assert_eq!(list(&all).len(), 1);
    }

    #[test]
    fn any_damage_is_found_and_the_one_before_serves() {
        for file in ["manifest.json", "state.json", "node-actor.bin"] {
            for harm in ["flip", "cut", "remove", "empty"] {
                let (run, all) = folder();
                write(&Disk::default(), &all, &some(4)).unwrap();
                let path = write(&Disk::default(), &all, &some(5)).unwrap().join(file);
                let mut bytes = fs::read(&path).unwrap();
                match harm {
                    "flip" => {
                        let middle = bytes.len() / 2;
                        bytes[middle] ^= 1;
                        fs::write(&path, bytes).unwrap();
                    }
                    "cut" => fs::write(&path, &bytes[..bytes.len() - 1]).unwrap(),
                    "remove" => fs::remove_file(&path).unwrap(),
                    _ => fs::write(&path, "").unwrap(),
                }
                let (found, damaged) = newest(run.path(), &all, &["metrics.jsonl"]);
                assert_eq!(found.unwrap().update, 4, "{file} {harm}");
                assert_eq!(damaged[0].path, path, "{file} {harm}");
            }
        }
    }

    #[test]
    fn every_flipped_byte_of_a_manifest_is_found() {
        let (run, all) = folder();
        let path = write(&Disk::default(), &all, &some(5)).unwrap().join(MANIFEST);
        let whole = fs::read(&path).unwrap();
        for i in 0..whole.len() {
            for bit in [1, 32] {
                let mut bytes = whole.clone();
                bytes[i] ^= bit;
                fs::write(&path, &bytes).unwrap();
                if let (Some(found), _) = newest(run.path(), &all, &["metrics.jsonl"]) {
                    // Only JSON's own leeway (the case of an escape) may read the same.
                    assert_eq!(found, some(5), "byte {i}");
                }
            }
        }
    }

    #[test]
    fn a_log_that_lost_lines_spoils_the_checkpoint() {
        let (run, all) = folder();
        write(&Disk::default(), &all, &some(5)).unwrap();
        fs::write(run.path().join("metrics.jsonl"), "12").unwrap();
        let (found, damaged) = newest(run.path(), &all, &["metrics.jsonl"]);
        assert_eq!(found, None);
        assert!(damaged[0].to_string().ends_with("has 2 bytes, but had 3 when update 5 was saved"), "{}", damaged[0]);
    }

    #[test]
    fn the_newest_and_the_ends_of_phases_are_kept() {
        let (_run, all) = folder();
        for update in 1..=6 {
            write(&Disk::default(), &all, &some(update)).unwrap();
        }
        fs::create_dir(all.join(".000007.tmp")).unwrap();
        prune(&Disk::default(), &all, 2).unwrap();
        assert_eq!(list(&all).into_iter().map(|(u, _)| u).collect::<Vec<_>>(), [6, 5, 2]);
        assert!(!all.join(".000007.tmp").exists());
    }

    #[test]
    fn names_become_safe_file_names() {
        assert_eq!(file_name("critic.a b/ü"), "critic.a%20b%2F%C3%BC");
    }
}
