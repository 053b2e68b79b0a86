//! Bytes of snapshots: a state as JSON with a checksum, so that damage is an error and never another state.

use ascribe_core::environment::{RestoreError, Snapshot};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// Bytes of the checksum, which ends a snapshot.
const CHECKSUM: usize = 8;

/// Whose snapshots they are, and their format.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Fingerprint of the environment and task.
    pub fingerprint: &'a str,
    /// Version of the bytes' format.
    pub version: u32,
}

impl Owner<'_> {
    /// Writes a state, and what is observed there.
    ///
    /// # Errors
    /// If the state cannot be written as JSON.
    pub fn seal(self, state: &impl Serialize, observation: String) -> Result<Snapshot, RestoreError> {
        let mut bytes = serde_json::to_vec(state).map_err(|e| RestoreError::Damaged(e.to_string()))?;
        bytes.extend(checksum(&bytes));
        Ok(Snapshot { fingerprint: self.fingerprint.into(), version: self.version, bytes, observation })
    }

    /// Reads a state back. Whether it can be a state of the task, and whether it shows the saved observation, is left to
    /// the reader.
    ///
    /// # Errors
    /// If the snapshot is foreign, damaged or of another format.
    pub fn unseal<S: DeserializeOwned>(self, snapshot: &Snapshot) -> Result<S, RestoreError> {
        if snapshot.fingerprint != self.fingerprint {
            return Err(RestoreError::Foreign { found: snapshot.fingerprint.clone(), expected: self.fingerprint.into() });
        }
        if snapshot.version != self.version {
            return Err(RestoreError::Version { found: snapshot.version, expected: self.version });
        }
        let damaged = |what: &str| RestoreError::Damaged(what.into());
        let cut = snapshot.bytes.len().checked_sub(CHECKSUM).ok_or_else(|| damaged("it is too short"))?;
        let (bytes, sum) = snapshot.bytes.split_at(cut);
        if sum != checksum(bytes) {
            return Err(damaged("its checksum does not fit"));
        }
        serde_json::from_slice(bytes).map_err(|e| RestoreError::Damaged(e.to_string()))
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&Sha256::digest(bytes)[..CHECKSUM]);
    sum
}
