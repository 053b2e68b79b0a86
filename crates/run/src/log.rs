//! `log.txt`: where tracing's lines go while a run is open.
//!
//! The command line installs a subscriber once, with [`writer`] as one of its outputs; a run points it at its folder.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::disk::{Append, Disk, DiskError};

static SINK: Mutex<Option<Sink>> = Mutex::new(None);

/// What was said while no run was open, up to a bound.
static EARLY: Mutex<Vec<u8>> = Mutex::new(Vec::new());
const MOST_EARLY: usize = 1 << 20;

struct Sink {
    run: u64,
    file: Append,
    error: Option<DiskError>,
}

fn sink() -> MutexGuard<'static, Option<Sink>> {
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to the open run's `log.txt`. What is said before it is open, while environments and policies are built, waits
/// for it. Suits `tracing_subscriber`'s `with_writer`.
pub fn writer() -> impl io::Write {
    Writer
}

struct Writer;
impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *sink() {
            Some(sink) if sink.error.is_none() => {
                // Kept for the loop, which ends the run: a logger's own errors go unheard.
                sink.error = sink.file.write(bytes).err();
            }
            Some(_) => {}
            None => {
                let mut early = EARLY.lock().unwrap_or_else(PoisonError::into_inner);
                if early.len() + bytes.len() <= MOST_EARLY {
                    early.extend_from_slice(bytes);
                }
            }
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Holds the log open. Dropping it closes the log.
#[derive(Debug)]
pub(crate) struct Log {
    run: u64,
}

impl Log {
    /// Points the log at a file, which it appends to: a log keeps what happened before a crash.
    pub(crate) fn open(disk: &Disk, path: &Path) -> Result<Self, DiskError> {
        let length = path.metadata().map_or(0, |m| m.len());
        let mut file = disk.append(path, length)?;
        let mut sink = sink();
        let early = std::mem::take(&mut *EARLY.lock().unwrap_or_else(PoisonError::into_inner));
        if !early.is_empty() {
            file.write(&early)?;
        }
        let run = sink.as_ref().map_or(0, |s| s.run) + 1;
        *sink = Some(Sink { run, file, error: None });
        Ok(Self { run })
    }

    /// The first line that could not be written.
    pub(crate) fn check(&self) -> Result<(), DiskError> {
        match sink().as_mut().filter(|s| s.run == self.run).and_then(|s| s.error.take()) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut sink = sink();
        if sink.as_ref().is_some_and(|s| s.run == self.run) {
            *sink = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;

    #[test]
    fn lines_go_to_the_open_run_and_an_error_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.txt");
        writer().write_all(b"before\n").unwrap();
        let log = Log::open(&Disk::default(), &path).unwrap();
        writer().write_all(b"one\n").unwrap();
        assert!(log.check().is_ok());
        drop(log);
        writer().write_all(b"between\n").unwrap();
        // opened again, it appends
        let log = Log::open(&Disk::default(), &path).unwrap();
        writer().write_all(b"two\n").unwrap();
        drop(log);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\none\nbetween\ntwo\n");

        struct Full;
        impl crate::disk::Gate for Full {
            fn pass(&self, operation: crate::disk::Operation, _: &Path) -> crate::disk::Pass {
                use crate::disk::{Operation, Pass};
                if operation == Operation::Write { Pass::Nothing } else { Pass::Whole }
            }
        }
        let log = Log::open(&Disk::gated(std::sync::Arc::new(Full)), &path).unwrap();
        writer().write_all(b"three\n").unwrap();
        assert!(log.check().unwrap_err().to_string().contains("log.txt"));
    }
}
