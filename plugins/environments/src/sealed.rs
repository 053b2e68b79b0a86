//! Snapshots of the embedded environments: a state as JSON, with a checksum, a version and the owner's fingerprint.

use ascribe_core::environment::{RestoreError, Snapshot};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// Bytes of a snapshot's checksum.
const CHECKSUM: usize = 8;

/// Saves a state.
///
/// * `fingerprint`: of the set and the task
/// * `version`: format of the state
/// * `observation`: what is read at that state
///
/// # Errors
/// If the state cannot be written as JSON.
pub fn seal(fingerprint: &str, version: u32, state: &impl Serialize, observation: String) -> Result<Snapshot, RestoreError> {
    let mut bytes = serde_json::to_vec(state).map_err(|e| RestoreError::Damaged(e.to_string()))?;
    bytes.extend(checksum(&bytes));
    Ok(Snapshot { fingerprint: fingerprint.into(), version, bytes, observation })
}

/// The state that a snapshot holds. Whether the episode can be in it, and what is read there, is the caller's to verify.
///
/// # Errors
/// If the snapshot is foreign, of another format or damaged.
pub fn unseal<T: DeserializeOwned>(snapshot: &Snapshot, fingerprint: &str, version: u32) -> Result<T, RestoreError> {
    if snapshot.fingerprint != fingerprint {
        return Err(RestoreError::Foreign { found: snapshot.fingerprint.clone(), expected: fingerprint.into() });
    }
    if snapshot.version != version {
        return Err(RestoreError::Version { found: snapshot.version, expected: version });
    }
    let damaged = |what: &str| RestoreError::Damaged(what.into());
    let at = snapshot.bytes.len().checked_sub(CHECKSUM).ok_or_else(|| damaged("it is too short"))?;
    let (bytes, sum) = snapshot.bytes.split_at(at);
    if sum != checksum(bytes) {
        return Err(damaged("its checksum does not fit"));
    }
    serde_json::from_slice(bytes).map_err(|e| RestoreError::Damaged(e.to_string()))
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&Sha256::digest(bytes)[..CHECKSUM]);
    sum
}

/// What identifies tasks and their rules in a fingerprint: 16 hexadecimal digits.
///
/// # Panics
/// If `what` cannot be written as JSON.
pub fn identity(what: &impl Serialize) -> String {
    let bytes = serde_json::to_vec(what).expect("tasks are plain data");
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
