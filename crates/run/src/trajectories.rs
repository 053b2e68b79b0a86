//! Saved batches: everything that estimators, viewers and audits need to look at an update again.
//!
//! `trajectories/000012.jsonl.zst` is the batch of update 12, one JSON object per group: its turns with their tokens
//! (parents before children), its ends, the columns that critics computed, and its credit.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascribe_core::environment::TaskId;
use ascribe_core::log::{Action, Context, GroupLog, History, LeafLog, NamedSpan, Origin, Stop, TurnLog, Validity};
use ascribe_core::{Batch, Credit, Group, Scope};
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskError};
use crate::records::line;

/// A group as it is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Updates done, this one included.
    pub update: u32,
    /// Name of the phase.
    pub phase: String,
    /// Its place in the batch.
    pub group: usize,
    /// The task.
    pub task: TaskId,
    /// What the task is called.
    pub name: String,
    /// Seed of the start.
    pub seed: u64,
    /// Where the start came from.
    pub origin: Origin,
    /// Environment fingerprint.
    pub fingerprint: String,
    /// Number of turns between the task's beginning and the start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: usize,
    /// Turns before the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// Allowed supports that its tokens refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supports: Vec<Arc<[u32]>>,
    /// Its turns, those of failed paths last.
    pub turns: Vec<TurnRecord>,
    /// How its paths ended, those that failed last.
    pub leaves: Vec<LeafLog>,
    /// Columns on states, `[turns that train + 1]`: the start, then after each turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<String, Vec<Option<f32>>>,
    /// Credit that is finer than a turn: per sampled token of the turns that train.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub token_credit: Vec<Option<f32>>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// A turn as it is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// The turn it continues.
    pub parent: Option<usize>,
    /// The policy node that acted.
    pub agent: String,
    /// How what it read joins the sequence.
    pub context: Context,
    /// Tokens it read.
    pub read: Vec<u32>,
    /// Tokens it acted with.
    pub tokens: Vec<u32>,
    /// Offsets of the sampled ones.
    pub at: Vec<u32>,
    /// Their log-probabilities under the distribution drawn from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprob: Option<Vec<f32>>,
    /// Their entropies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy: Option<Vec<f32>>,
    /// Their allowed supports: places in [`GroupRecord::supports`] plus 1; 0 where all were allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub support: Vec<usize>,
    /// Temperature.
    pub temperature: f32,
    /// Why sampling stopped.
    pub stop: Stop,
    /// What the environment paid.
    pub env_reward: f32,
    /// What estimators called reward.
    pub reward: f32,
    /// What the environment made of the action.
    pub validity: Validity,
    /// Key of what it saw.
    pub observation: Key,
    /// Exact key of the state before.
    pub state: Key,
    /// Exact key of the state after.
    pub state_after: Key,
    /// Key of the action.
    pub action_key: Key,
    /// What it read, as text.
    pub observation_text: String,
    /// What it did, as text.
    pub action_text: String,
    /// Named parts of the action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<NamedSpan>,
    /// Columns on turns, the environment's and the critics'.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub signals: BTreeMap<String, f32>,
    /// Version of the policy that acted.
    pub policy_version: u64,
    /// Its advantage; absent where it was not trained or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advantage: Option<f32>,
}

/// A key: text where it is text, else its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub Vec<u8>);

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => s.serialize_str(text),
            Err(_) => s.collect_seq(&self.0),
        }
    }
}
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> serde::de::Visitor<'de> for V {
            type Value = Key;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text or a list of bytes")
            }
            fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<Key, E> {
                Ok(Key(s.as_bytes().to_vec()))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Key, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(Key(bytes))
            }
        }
        d.deserialize_any(V)
    }
}

impl GroupRecord {
    /// The group as a rollout recorded it (rewards on single tokens are part of their turn's).
    pub fn into_log(self) -> GroupLog {
        let support = |s: usize| s.checked_sub(1).and_then(|i| self.supports.get(i).cloned());
        let turns = self
            .turns
            .iter()
            .map(|t| TurnLog {
                parent: t.parent,
                agent: t.agent.as_str().into(),
                context: t.context,
                read: t.read.clone(),
                action: Action {
                    tokens: t.tokens.clone(),
                    at: t.at.clone(),
                    logprob: t.logprob.clone(),
                    entropy: t.entropy.clone(),
                    support: (0..t.at.len()).map(|i| support(t.support.get(i).copied().unwrap_or(0))).collect(),
                    temperature: t.temperature,
                    stop: t.stop,
                },
                reward: t.env_reward,
                validity: t.validity,
                observation: t.observation.0.clone(),
                state: t.state.0.clone(),
                state_after: t.state_after.0.clone(),
                action_key: t.action_key.0.clone(),
                observation_text: t.observation_text.clone(),
                action_text: t.action_text.clone(),
                spans: t.spans.clone(),
                signals: t.signals.iter().map(|(name, x)| (name.clone(), *x)).collect(),
                policy_version: t.policy_version,
                ..TurnLog::default()
            })
            .collect();
        GroupLog {
            task: self.task,
            task_name: self.name,
            seed: self.seed,
            fingerprint: self.fingerprint,
            origin: self.origin,
            snapshot: None,
            before: self.before,
            history: self.history.unwrap_or_default(),
            turns,
            leaves: self.leaves,
        }
    }
}

/// A group of a batch, with its credit, as it is saved.
pub fn record(batch: &Batch, group: Group<'_>, credit: &Credit, update: u32, phase: &str) -> GroupRecord {
    let about = group.about();
    let (first, n_training) = (about.rows.start as usize, about.rows.len());
    let mut supports: Vec<Arc<[u32]>> = Vec::new();
    let mut place: BTreeMap<u32, usize> = BTreeMap::new();
    let turns = about
        .rows
        .range()
        .chain(about.aside_rows.range())
        .map(|r| {
            let columns = &batch.turns;
            let (read, action) = batch.tokens[columns.tokens[r].range()].split_at(columns.action_start[r] as usize);
            let sampled = columns.sampled[r].range();
            let support: Vec<usize> = sampled
                .clone()
                .map(|i| match batch.sampled.support[i] {
                    0 => 0,
                    s => *place.entry(s).or_insert_with(|| {
                        supports.push(batch.supports[s as usize - 1].clone());
                        supports.len()
                    }),
                })
                .collect();
            let column = |c: &ascribe_core::Column| sampled.clone().map(|i| c.get(i)).collect::<Option<Vec<f32>>>();
            let key = |id| Key(batch.keys.bytes(id).to_vec());
            let notes = &batch.notes[r];
            TurnRecord {
                parent: (columns.parent[r] as usize).checked_sub(first).filter(|p| first + p < batch.turns.parent.len()),
                agent: batch.agents[columns.agent[r] as usize].clone(),
                context: columns.context[r],
                read: read.to_vec(),
                tokens: action.to_vec(),
                at: sampled.clone().map(|i| batch.sampled.at[i] - columns.action_start[r]).collect(),
                logprob: column(&batch.sampled.logprob),
                entropy: column(&batch.sampled.entropy),
                support: if support.iter().any(|s| *s > 0) { support } else { Vec::new() },
                temperature: columns.temperature[r],
                stop: columns.stop[r],
                env_reward: columns.env_reward[r],
                reward: columns.reward[r],
                validity: columns.validity[r],
                observation: key(columns.observation[r]),
                state: key(columns.state[r]),
                state_after: key(columns.state_after[r]),
                action_key: key(columns.action_key[r]),
                observation_text: notes.observation.clone(),
                action_text: notes.action.clone(),
                spans: notes.spans.clone(),
                signals: batch
                    .signals
                    .iter()
                    .filter(|(_, s)| s.scope == Scope::Turn)
                    .filter_map(|(name, s)| Some((name.clone(), s.column.get(r)?)))
                    .collect(),
                policy_version: columns.policy_version[r],
                advantage: credit.turns.get(r - first).copied().flatten(),
            }
        })
        .collect();
    let states = batch.signals.iter().filter(|(_, s)| s.scope == Scope::State).map(|(name, s)| {
        let at = first + group.index();
        (name.clone(), (at..=at + n_training).map(|i| s.column.get(i)).collect())
    });
    GroupRecord {
        update,
        phase: phase.into(),
        group: group.index(),
        task: about.task.clone(),
        name: about.task_name.clone(),
        seed: about.seed,
        origin: about.origin.clone(),
        fingerprint: about.fingerprint.clone(),
        before: about.before,
        history: (!about.history.tokens.is_empty()).then(|| about.history.clone()),
        turns,
        supports,
        leaves: about
            .leaves
            .range()
            .chain(about.aside_leaves.range())
            .map(|l| {
                let leaf = &batch.leaves[l];
                let turn = (leaf.turn != ascribe_core::batch::ROOT).then(|| leaf.turn as usize - first);
                LeafLog { turn, end: leaf.end.clone(), seed: leaf.seed }
            })
            .collect(),
        states: states.collect(),
        token_credit: credit.tokens.iter().collect(),
    }
}

/// Where the batch of an update lies in the folder of all.
pub fn path(all: &Path, update: u32) -> PathBuf {
    all.join(format!("{update:06}.jsonl.zst"))
}

/// Saves the batch of an update. It is the caller's to sync it, together with others.
///
/// # Errors
/// If it cannot be written.
pub fn write(disk: &Disk, all: &Path, update: u32, phase: &str, batch: &Batch, credit: &[Credit]) -> Result<(), DiskError> {
    let text: Vec<u8> = batch.groups().zip(credit).flat_map(|(g, c)| line(&record(batch, g, c, update, phase))).collect();
    let packed = zstd::encode_all(&text[..], 3).expect("packing into memory cannot fail");
    disk.write_unsynced(&path(all, update), &packed)
}

/// Removes the batches of updates after `update`: a run that goes on from there makes them again.
///
/// # Errors
/// If one cannot be removed.
pub fn cut(disk: &Disk, all: &Path, update: u32) -> Result<(), DiskError> {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|n| n.split('.').next()).and_then(|n| n.parse::<u32>().ok());
        if number.is_none_or(|n| n > update) {
            disk.remove_file(&entry.path())?;
        }
    }
    Ok(())
}

/// Reads a saved batch.
///
/// # Errors
/// If it cannot be read or is not one.
pub fn read(path: &Path) -> io::Result<Vec<GroupRecord>> {
    let text = zstd::decode_all(fs::File::open(path)?)?;
    text.split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::End;

    #[test]
    fn a_saved_batch_gives_the_same_batch_again() {
        let turn = |parent, token: u32| TurnLog {
            parent,
            agent: "actor".into(),
            read: vec![1, 2],
            action: Action {
                tokens: vec![token, 9],
                at: vec![0],
                logprob: Some(vec![-0.1]),
                entropy: Some(vec![0.7]),
                support: vec![Some(Arc::from([3, token]))],
                temperature: 0.7,
                stop: Stop::Complete,
            },
            reward: 0.1,
            observation: vec![0xff, 0],
            state: b"s".to_vec(),
            action_text: "把🍎\u{1b}[0m\u{0}".into(),
            signals: vec![("exploit".into(), 1.0)],
            ..TurnLog::default()
        };
        let leaf = |turn, end| LeafLog { turn, end, seed: 3 };
        let group = GroupLog {
            task: TaskId { split: "train".into(), index: 4 },
            task_name: "four".into(),
            seed: u64::MAX,
            turns: vec![turn(None, 5), turn(None, 6), turn(Some(1), 7), turn(Some(1), 8)],
            leaves: vec![
                leaf(Some(0), End::Failed("crashed".into())),
                leaf(Some(2), End::Terminated { success: true }),
                leaf(Some(3), End::Failed("too".into())),
            ],
            ..GroupLog::default()
        };
        let batch = Batch::from_groups(vec![group.clone(), group], NonFinite::Refuse).unwrap();
        let credit: Vec<Credit> = batch.groups().map(|g| Credit::per_turn(vec![0.25; g.n_turns()])).collect();
        let folder = tempfile::tempdir().unwrap();
        write(&Disk::default(), folder.path(), 12, "rl", &batch, &credit).unwrap();
        let saved = read(&path(folder.path(), 12)).unwrap();
        assert_eq!(saved[1].turns[0].advantage, Some(0.25));
        // failed turns come last: 1 and 2 train, 0 and 3 do not; 3 still continues 1
        assert_eq!(saved[1].turns.iter().map(|t| t.parent).collect::<Vec<_>>(), [None, Some(0), None, Some(0)]);

        let again = Batch::from_groups(saved.iter().cloned().map(GroupRecord::into_log).collect(), NonFinite::Refuse).unwrap();
        let twice: Vec<GroupRecord> = again.groups().zip(&credit).map(|(g, c)| record(&again, g, c, 12, "rl")).collect();
        assert_eq!(twice, saved);

        write(&Disk::default(), folder.path(), 13, "rl", &batch, &credit).unwrap();
        cut(&Disk::default(), folder.path(), 12).unwrap();
        assert!(path(folder.path(), 12).exists() && !path(folder.path(), 13).exists());
    }
}
