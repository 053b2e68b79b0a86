//! Saved batches: everything that estimators, viewers and audits need to look at an update again.
//!
//! `trajectories/000012.jsonl.zst` is the batch of update 12, one JSON object per group: its turns with their tokens
//! (parents before children), its ends, the columns that critics computed, and its credit.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ascribe_core::batch::{NonFinite, ROOT, RecordError};
use ascribe_core::credit::spread;
use ascribe_core::environment::TaskId;
use ascribe_core::log::{Action, Context, GroupLog, History, LeafLog, NamedSpan, Origin, Stop, TurnLog, Validity};
use ascribe_core::{Batch, Column, Credit, Group, Scope, Signal};
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
    /// Columns on tokens: per sampled token of the turns that train.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, Vec<Option<f32>>>,
    /// The part of what estimators called reward that lay on single tokens, per sampled token of the turns that train;
    /// absent where none did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub token_rewards: Vec<f32>,
    /// Credit that is finer than a turn, as it was spread onto the sampled tokens of the turns that train.
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
    /// The group as a rollout recorded it (rewards on single tokens are part of their turn's). [`restore`] gives back what
    /// critics and estimators made of it too.
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
            let column = |c: &Column| sampled.clone().map(|i| c.get(i)).collect::<Option<Vec<f32>>>();
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
    let of_scope = |scope, rows: std::ops::Range<usize>| {
        let named = batch.signals.iter().filter(move |(_, s)| s.scope == scope);
        named.map(move |(name, s)| (name.clone(), rows.clone().map(|i| s.column.get(i)).collect())).collect()
    };
    let at = first + group.index();
    let token_rewards = &batch.sampled.reward[group.sampled()];
    let finer = !(credit.tokens.is_empty() && credit.spans.is_empty());
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
                let turn = (leaf.turn != ROOT).then(|| leaf.turn as usize - first);
                LeafLog { turn, end: leaf.end.clone(), seed: leaf.seed }
            })
            .collect(),
        states: of_scope(Scope::State, at..at + n_training + 1),
        tokens: of_scope(Scope::Token, group.sampled()),
        token_rewards: if token_rewards.iter().any(|r| *r != 0.0) { token_rewards.to_vec() } else { Vec::new() },
        token_credit: if finer { spread(group, credit).advantage.iter().collect() } else { Vec::new() },
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
    let records: Vec<GroupRecord> = batch.groups().zip(credit).map(|(g, c)| record(batch, g, c, update, phase)).collect();
    write_records(disk, &path(all, update), &records)
}

/// Saves groups as a batch. It is the caller's to sync it.
///
/// # Errors
/// If it cannot be written.
pub fn write_records(disk: &Disk, path: &Path, records: &[GroupRecord]) -> Result<(), DiskError> {
    let text: Vec<u8> = records.iter().flat_map(line).collect();
    let packed = zstd::encode_all(&text[..], 3).expect("packing into memory cannot fail");
    disk.write_unsynced(path, &packed)
}

/// The updates whose batches lie in the folder of all, ascending; none where there is no such folder.
///
/// # Errors
/// If the folder cannot be read.
pub fn saved(all: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(all) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut updates = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        updates.extend(name.to_str().and_then(|n| n.strip_suffix(".jsonl.zst")).and_then(|n| n.parse::<u32>().ok()));
    }
    updates.sort_unstable();
    Ok(updates)
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
/// If it cannot be read or is not one; the message names the file, and the line where one is at fault.
pub fn read(path: &Path) -> io::Result<Vec<GroupRecord>> {
    let packed = fs::File::open(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}{what}", path.display()));
    let text = zstd::decode_all(packed).map_err(|e| damaged(format!(": it cannot be unpacked: {e}")))?;
    text.split(|b| *b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(i, line)| serde_json::from_slice(line).map_err(|e| damaged(format!(":{}: {e}", i + 1))))
        .collect()
}

/// A saved batch as the estimators of its update saw it, and the credit that trained.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The batch, with rewards as they were weighted and the columns of critics. Snapshots and privileged texts are not
    /// saved; of credit, neither weights of the loss nor targets are.
    pub batch: Batch,
    /// Credit of each group, after all transforms.
    pub credit: Vec<Credit>,
}

/// Why a saved batch cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Its groups are none.
    #[error("{0}")]
    Record(#[from] RecordError),
    /// A column does not fit its group.
    #[error("group {group}: {what}")]
    Column {
        /// The group's place in the batch.
        group: usize,
        /// What does not fit.
        what: String,
    },
}

/// Gives back a batch from its groups.
///
/// # Errors
/// If they are not as [`write()`] saved them.
pub fn restore(records: &[GroupRecord]) -> Result<Restored, RestoreError> {
    let logs = records.iter().cloned().map(GroupRecord::into_log).collect();
    let mut batch = Batch::from_groups(logs, NonFinite::Refuse)?;
    let mut credit = Vec::with_capacity(records.len());
    let (mut states, mut tokens) = (BTreeMap::new(), BTreeMap::new());
    for (g, record) in records.iter().enumerate() {
        let misfit = |what: String| RestoreError::Column { group: record.group, what };
        let fits = |what: &str, n: usize, want: usize| match n == want {
            true => Ok(()),
            false => Err(misfit(format!("{n} numbers of {what} for {want}"))),
        };
        let group = batch.group(g);
        let (rows, sampled) = (group.rows(), group.sampled());
        if !begins_with(record, rows.len()) {
            return Err(misfit("its turns are not in order: those on paths that train come first".into()));
        }
        for (name, column) in &record.states {
            fits(&format!("`{name}`"), column.len(), rows.len() + 1)?;
            put(&mut states, name, batch.scope_len(Scope::State), rows.start + g, column);
        }
        for (name, column) in &record.tokens {
            fits(&format!("`{name}`"), column.len(), sampled.len())?;
            put(&mut tokens, name, batch.scope_len(Scope::Token), sampled.start, column);
        }
        if !record.token_credit.is_empty() {
            fits("token credit", record.token_credit.len(), sampled.len())?;
        }
        credit.push(Credit {
            turns: record.turns[..rows.len()].iter().map(|turn| turn.advantage).collect(),
            tokens: record.token_credit.clone().into(),
            ..Credit::default()
        });
        if !record.token_rewards.is_empty() {
            fits("token rewards", record.token_rewards.len(), sampled.len())?;
            batch.sampled.reward[sampled].copy_from_slice(&record.token_rewards);
        }
        let first = rows.start;
        record.turns.iter().enumerate().for_each(|(t, turn)| batch.turns.reward[first + t] = turn.reward);
    }
    for (scope, columns) in [(Scope::State, states), (Scope::Token, tokens)] {
        for (name, column) in columns {
            let signal = Signal { scope, provider: "the saved batch".into(), column };
            batch.add_signal(&name, signal).map_err(|what| RestoreError::Column { group: 0, what })?;
        }
    }
    Ok(Restored { batch, credit })
}

/// Whether the first `n` turns are those on paths that train, and no others are.
fn begins_with(record: &GroupRecord, n: usize) -> bool {
    let mut trains = vec![false; record.turns.len()];
    for leaf in record.leaves.iter().filter(|leaf| leaf.end.trains()) {
        let mut at = leaf.turn;
        while let Some(t) = at.filter(|t| !trains[*t]) {
            trains[t] = true;
            at = record.turns[t].parent;
        }
    }
    trains.iter().enumerate().all(|(t, trains)| *trains == (t < n))
}

/// Puts a group's part into a column of the whole batch.
fn put(columns: &mut BTreeMap<String, Column>, name: &str, n: usize, at: usize, part: &[Option<f32>]) {
    let column = columns.entry(name.to_string()).or_insert_with(|| Column::absent(n));
    part.iter().enumerate().filter(|(_, x)| x.is_some()).for_each(|(i, x)| column.set(at + i, *x));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::credit::SpanCredit;
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
        let mut batch = Batch::from_groups(vec![group.clone(), group], NonFinite::Refuse).unwrap();
        // Columns of critics, with a gap, and rewards that are not the environment's.
        let column: Column = (0..batch.scope_len(Scope::State)).map(|i| (i != 1).then_some(i as f32)).collect();
        batch.add_signal("value", Signal { scope: Scope::State, provider: "critic".into(), column }).unwrap();
        let column = Column::full((0..batch.scope_len(Scope::Token)).map(|i| i as f32 / 8.0).collect());
        batch.add_signal("kl", Signal { scope: Scope::Token, provider: "reference".into(), column }).unwrap();
        batch.combine_rewards(&BTreeMap::from([("env".into(), 2.0), ("kl".into(), -1.0)])).unwrap();
        let credit: Vec<Credit> = batch.groups().map(|g| Credit::per_turn(vec![0.25; g.n_turns()])).collect();
        let folder = tempfile::tempdir().unwrap();
        write(&Disk::default(), folder.path(), 12, "rl", &batch, &credit).unwrap();
        let saved = read(&path(folder.path(), 12)).unwrap();
        assert_eq!(saved[1].turns[0].advantage, Some(0.25));
        // failed turns come last: 1 and 2 train, 0 and 3 do not; 3 still continues 1
        assert_eq!(saved[1].turns.iter().map(|t| t.parent).collect::<Vec<_>>(), [None, Some(0), None, Some(0)]);

        let again = restore(&saved).unwrap();
        let records = |batch: &Batch, credit: &[Credit]| -> Vec<GroupRecord> {
            batch.groups().zip(credit).map(|(g, c)| record(batch, g, c, 12, "rl")).collect()
        };
        assert_eq!(records(&again.batch, &again.credit), saved);
        assert_eq!(again.credit, credit);
        for (a, b) in batch.groups().zip(again.batch.groups()) {
            assert_eq!((a.rewards(), a.token_rewards()), (b.rewards(), b.token_rewards()));
        }

        // Credit of spans and tokens is saved as it was spread.
        let span = SpanCredit { turn: 1, start: 0, end: 1, advantage: Some(-1.0) };
        let finer: Vec<Credit> = credit.iter().map(|c| Credit { spans: vec![span.clone()], ..c.clone() }).collect();
        let saved_finer = records(&batch, &finer);
        assert_eq!(saved_finer[1].token_credit, [Some(0.25), Some(-1.0)]);
        let again = restore(&saved_finer).unwrap();
        assert_eq!(spread(again.batch.group(1), &again.credit[1]), spread(batch.group(1), &finer[1]));

        let mut other = saved.clone();
        other[1].states.get_mut("value").unwrap().pop();
        assert_eq!(restore(&other).unwrap_err().to_string(), "group 1: 2 numbers of `value` for 3");
        let mut other = saved.clone();
        let ends = [other[0].leaves[1].end.clone(), other[0].leaves[0].end.clone()];
        other[0].leaves.iter_mut().zip(ends).for_each(|(leaf, end)| leaf.end = end);
        assert_eq!(
            restore(&other).unwrap_err().to_string(),
            "group 0: its turns are not in order: those on paths that train come first"
        );

        let at = path(folder.path(), 12);
        assert_eq!(super::saved(folder.path()).unwrap(), [12]);
        fs::write(&at, zstd::encode_all(&b"\n{\"update\": 12}\n"[..], 3).unwrap()).unwrap();
        let told = read(&at).unwrap_err().to_string();
        assert!(told.contains("000012.jsonl.zst:2: missing field `phase`"), "{told}");
        fs::write(&at, "no archive").unwrap();
        assert!(read(&at).unwrap_err().to_string().contains("000012.jsonl.zst: it cannot be unpacked"));

        write(&Disk::default(), folder.path(), 13, "rl", &batch, &credit).unwrap();
        cut(&Disk::default(), folder.path(), 12).unwrap();
        assert!(path(folder.path(), 12).exists() && !path(folder.path(), 13).exists());
    }
}
