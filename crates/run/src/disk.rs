//! Writing. Every byte of a run folder goes through here, so that errors name path and remedy, and tests can cut the
//! power before any single operation.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that changes what lies on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A folder is made.
    CreateDir,
    /// A file is made or opened for writing.
    Open,
    /// Bytes are written.
    Write,
    /// Bytes or a folder's entries are forced to the disk.
    Sync,
    /// A file or folder gets another name.
    Rename,
    /// A file or folder is removed.
    Remove,
    /// A file is cut to a length.
    Truncate,
}

/// What a [`Gate`] lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The operation.
    Whole,
    /// Half of a write, or nothing of any other operation; then it fails.
    Torn,
    /// Nothing: it fails.
    Nothing,
}

/// Decides over each operation: how a test takes a run's power away.
pub trait Gate: Send + Sync {
    /// What is let through.
    fn pass(&self, operation: Operation, path: &Path) -> Pass;
}

/// A write that failed.
#[derive(Debug)]
pub struct DiskError {
    /// The file or folder.
    pub path: PathBuf,
    /// What was being done: completes "cannot …".
    pub doing: &'static str,
    /// Why it failed.
    pub source: io::Error,
}

impl DiskError {
    fn new(path: &Path, doing: &'static str, source: io::Error) -> Self {
        Self { path: path.into(), doing, source }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self.source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge | ErrorKind::WriteZero => {
                "free some space or raise the limit; the same command then continues from the last checkpoint"
            }
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                "a file stands where a folder has to be: move it away, or choose another folder with `run.dir`"
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "this folder cannot be written to: choose another one with `run.dir`"
            }
            _ => "put that right; the same command then continues from the last checkpoint",
        }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} `{}`: {}\n  {}", self.doing, self.path.display(), self.source, self.remedy())
    }
}
impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Writes files so that a reader sees the old content or the new one, never a part.
#[derive(Clone, Default)]
pub struct Disk {
    gate: Option<Arc<dyn Gate>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("gated", &self.gate.is_some()).finish()
    }
}

impl Disk {
    /// A disk whose operations go through a gate. Nothing is forced to the real disk: what a test cuts is the order of
    /// operations.
    pub fn gated(gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate) }
    }

    fn pass(&self, operation: Operation, path: &Path) -> io::Result<()> {
        match self.gate.as_ref().map_or(Pass::Whole, |gate| gate.pass(operation, path)) {
            Pass::Whole => Ok(()),
            Pass::Torn | Pass::Nothing => Err(power_cut()),
        }
    }

    /// Makes a folder and those above it.
    ///
    /// # Errors
    /// Names the first folder that could not be made.
    pub fn create_dir(&self, path: &Path) -> Result<(), DiskError> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            self.create_dir(above)?;
        }
        let made = self.pass(Operation::CreateDir, path).and_then(|()| fs::create_dir(path));
        // Another run may have made it in the meantime: runs of several seeds share the folders above theirs.
        let made = made.or_else(|e| if path.is_dir() { Ok(()) } else { Err(e) });
        made.map_err(|e| DiskError::new(path, "make the folder", e))
    }

    /// Writes a whole file: temporary name, sync, rename, sync of the folder.
    ///
    /// # Errors
    /// If it could not be written; the old content is then still there.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let temporary = self.put_aside(path, bytes)?;
        self.sync_file(&temporary)?;
        self.rename(&temporary, path)?;
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }

    /// Writes a whole file under a temporary name and renames it, for who syncs file and folder later: until then it
    /// survives the end of the process, not that of the machine.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn write_unsynced(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let temporary = self.put_aside(path, bytes)?;
        self.rename(&temporary, path)
    }

    fn put_aside(&self, path: &Path, bytes: &[u8]) -> Result<PathBuf, DiskError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        self.put(&temporary, bytes).map_err(|e| DiskError { path: path.into(), ..e })?;
        Ok(temporary)
    }

    /// Writes a file under its own name, for who syncs it and renames its folder afterwards.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let write = || {
            self.pass(Operation::Open, path)?;
            self.write_to(&mut File::create(path)?, path, bytes)
        };
        write().map_err(|e| DiskError::new(path, "write", e))
    }

    /// Forces a file's bytes to the disk.
    ///
    /// # Errors
    /// If the system says so.
    pub fn sync_file(&self, path: &Path) -> Result<(), DiskError> {
        let sync = || {
            self.pass(Operation::Sync, path)?;
            if self.gate.is_some() { Ok(()) } else { OpenOptions::new().write(true).open(path)?.sync_all() }
        };
        sync().map_err(|e| DiskError::new(path, "sync", e))
    }

    /// Renames a file or folder, in the same folder or another.
    ///
    /// # Errors
    /// If it could not be renamed.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.pass(Operation::Rename, to).and_then(|()| fs::rename(from, to)).map_err(|e| DiskError::new(to, "write", e))
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// If it is there and could not be removed.
    pub fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        let remove = self.pass(Operation::Remove, path).and_then(|()| fs::remove_file(path));
        absent_is_fine(remove).map_err(|e| DiskError::new(path, "remove", e))
    }

    /// Removes a folder with all that is in it, if it is there.
    ///
    /// # Errors
    /// If it is there and could not be removed.
    pub fn remove_dir(&self, path: &Path) -> Result<(), DiskError> {
        let remove = self.pass(Operation::Remove, path).and_then(|()| fs::remove_dir_all(path));
        absent_is_fine(remove).map_err(|e| DiskError::new(path, "remove", e))
    }

    /// Forces a folder's entries to the disk.
    ///
    /// # Errors
    /// If the system says so.
    pub fn sync_dir(&self, path: &Path) -> Result<(), DiskError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let sync = || {
            self.pass(Operation::Sync, path)?;
            // Elsewhere than on Unix a folder is no file that could be synced.
            if self.gate.is_some() || !cfg!(unix) { Ok(()) } else { File::open(path)?.sync_all() }
        };
        sync().map_err(|e| DiskError::new(path, "sync", e))
    }

    /// Opens a file to append to, cut to its first `keep` bytes; makes it if `keep` is 0.
    ///
    /// # Errors
    /// If it has fewer bytes or cannot be opened.
    pub fn append(&self, path: &Path, keep: u64) -> Result<Append, DiskError> {
        let open = || {
            self.pass(Operation::Open, path)?;
            let mut file = OpenOptions::new().create(keep == 0).write(true).truncate(false).open(path)?;
            let length = file.metadata()?.len();
            if length < keep {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, format!("it has {length} bytes, not {keep}")));
            }
            if length > keep {
                self.pass(Operation::Truncate, path)?;
                file.set_len(keep)?;
            }
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(|e| DiskError::new(path, "append to", e))?;
        Ok(Append { disk: self.clone(), file, path: path.into(), length: keep })
    }

    fn write_to(&self, file: &mut File, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match self.gate.as_ref().map_or(Pass::Whole, |gate| gate.pass(Operation::Write, path)) {
            Pass::Whole => return file.write_all(bytes),
            Pass::Torn => file.write_all(&bytes[..bytes.len() / 2])?,
            Pass::Nothing => {}
        }
        Err(power_cut())
    }

    fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        self.pass(Operation::Sync, path)?;
        if self.gate.is_some() { Ok(()) } else { file.sync_all() }
    }
}

fn power_cut() -> io::Error {
    io::Error::other("the power was cut")
}

fn absent_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A file that only grows. Its length is recorded by checkpoints, and what came after is cut off on resume.
#[derive(Debug)]
pub struct Append {
    disk: Disk,
    file: File,
    path: PathBuf,
    length: u64,
}

impl Append {
    /// Appends bytes.
    ///
    /// # Errors
    /// If they could not all be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        let written = self.disk.clone().write_to(&mut self.file, &self.path, bytes);
        written.map_err(|e| DiskError::new(&self.path, "append to", e))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Forces what was appended to the disk.
    ///
    /// # Errors
    /// If the system says so.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.disk.sync(&self.file, &self.path).map_err(|e| DiskError::new(&self.path, "sync", e))
    }

    /// Bytes it holds.
    pub fn length(&self) -> u64 {
        self.length
    }
}
