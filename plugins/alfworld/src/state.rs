//! The changing part of a game: a few hundred words, cheap to copy, and the bytes that stand for it.

use thiserror::Error;

use crate::bits;
use crate::game::{Game, ObjectId};

/// Stands for "no object" and "no location" where an id is expected.
pub(crate) const NOTHING: u16 = u16::MAX;

/// Everything commands can change: where the agent is, what it holds, and the facts that hold or ceased to hold.
///
/// A state belongs to the [`Game`] that made it. `isOn` is left out: commands write it, nothing ever reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) location: u16,
    pub(crate) held: u16,
    /// See [`crate::game::Layout`].
    pub(crate) words: Box<[u64]>,
}

impl State {
    /// The object in the agent's hands.
    pub fn held(&self) -> Option<ObjectId> {
        (self.held != NOTHING).then_some(ObjectId(self.held))
    }

    /// Takes over another state of the same game without allocating.
    pub fn copy_from(&mut self, other: &Self) {
        if self.words.len() == other.words.len() {
            self.location = other.location;
            self.held = other.held;
            self.words.copy_from_slice(&other.words);
        } else {
            *self = other.clone();
        }
    }
}

/// Why bytes are not a snapshot of this game.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// The bytes are none of ours.
    #[error("these {0} bytes are not a snapshot of an ALFWorld game")]
    Foreign(usize),
    /// A format this version does not read.
    #[error("the snapshot has format {found}, this version reads format {VERSION}")]
    Version {
        /// Its format.
        found: u8,
    },
    /// It belongs to another game.
    #[error("the snapshot belongs to another game: its fingerprint is {found}, this game's is {wanted}")]
    Game {
        /// The fingerprint in the snapshot.
        found: String,
        /// The fingerprint of the game.
        wanted: String,
    },
    /// It is shorter or longer than it says.
    #[error("the snapshot is {found} bytes long, expected {wanted}")]
    Length {
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        wanted: usize,
    },
    /// Its checksum differs.
    #[error("the snapshot is damaged: its checksum does not match")]
    Checksum,
    /// It is whole, and describes what no sequence of commands can reach.
    #[error("the snapshot describes an impossible state: {0}")]
    Impossible(&'static str),
}

const MAGIC: [u8; 4] = *b"ALFW";
/// The format written and read.
pub const VERSION: u8 = 1;
const HEADER: usize = MAGIC.len() + 1 + 16;
const CHECKSUM: usize = 4;
/// Location, held object, number of changed words.
const FIXED: usize = 6;
/// Index and difference.
const CHANGE: usize = 10;

impl Game {
    /// The state as bytes: equal bytes mean equal states of this game, and the other way round.
    ///
    /// It holds the whole dynamic state, with the facts that ceased to hold and still show in texts.
    pub fn state_key(&self, state: &State) -> Vec<u8> {
        let mut key = Vec::with_capacity(FIXED + 8 * CHANGE);
        self.write_body(state, &mut key);
        key
    }

    /// What the agent saw, as bytes: equal bytes mean equal observations.
    ///
    /// Different states can share it; the state key tells them apart.
    pub fn observation_key(observation: &str) -> &[u8] {
        observation.as_bytes()
    }

    /// The state as bytes that can be stored and restored, with format, fingerprint of the game and checksum.
    pub fn snapshot(&self, state: &State) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + FIXED + 8 * CHANGE + CHECKSUM);
        bytes.extend_from_slice(&MAGIC);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.fingerprint);
        self.write_body(state, &mut bytes);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The state of a snapshot. Refuses everything that [`Game::snapshot`] could not have written for a state that
    /// commands can reach bit by bit.
    pub fn restore(&self, bytes: &[u8]) -> Result<State, SnapshotError> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else {
            return Err(SnapshotError::Foreign(bytes.len()));
        };
        match rest.first() {
            None => return Err(SnapshotError::Length { found: bytes.len(), wanted: HEADER + FIXED + CHECKSUM }),
            Some(&VERSION) => {}
            Some(&found) => return Err(SnapshotError::Version { found }),
        }
        if bytes.len() < HEADER + FIXED + CHECKSUM {
            return Err(SnapshotError::Length { found: bytes.len(), wanted: HEADER + FIXED + CHECKSUM });
        }
        let fingerprint = &bytes[MAGIC.len() + 1..HEADER];
        if fingerprint != self.fingerprint {
            return Err(SnapshotError::Game { found: hex(fingerprint), wanted: hex(&self.fingerprint) });
        }
        let (whole, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
        let body = &whole[HEADER..];
        let wanted = FIXED + CHANGE * usize::from(u16_at(body, 4));
        if body.len() != wanted {
            return Err(SnapshotError::Length { found: bytes.len(), wanted: HEADER + wanted + CHECKSUM });
        }
        if crc32c::crc32c(whole).to_le_bytes() != checksum {
            return Err(SnapshotError::Checksum);
        }
        self.read_body(body)
    }

    /// Location, held object and the words that differ from the start.
    fn write_body(&self, state: &State, out: &mut Vec<u8>) {
        out.extend_from_slice(&state.location.to_le_bytes());
        out.extend_from_slice(&state.held.to_le_bytes());
        let count_at = out.len();
        out.extend_from_slice(&[0; 2]);
        let mut n_changes = 0u16;
        for (idx, (&word, &first)) in state.words.iter().zip(&self.start.words).enumerate() {
            let difference = word ^ first;
            if difference != 0 {
                n_changes += 1;
                out.extend_from_slice(&(idx as u16).to_le_bytes());
                out.extend_from_slice(&difference.to_le_bytes());
            }
        }
        out[count_at..count_at + 2].copy_from_slice(&n_changes.to_le_bytes());
    }

    fn read_body(&self, body: &[u8]) -> Result<State, SnapshotError> {
        let mut state = self.start.clone();
        state.location = u16_at(body, 0);
        state.held = u16_at(body, 2);
        if usize::from(state.location) >= self.locations.len() {
            return Err(SnapshotError::Impossible("the agent is at a place that does not exist"));
        }
        if state.held != NOTHING {
            let real = usize::from(state.held) < self.objects.len();
            if !real || (state.held != self.start.held && !bits::has(&self.masks.pickupable, state.held)) {
                return Err(SnapshotError::Impossible("the agent holds what cannot be held"));
            }
        }
        let mut next = 0;
        for change in body[FIXED..].chunks_exact(CHANGE) {
            let idx = usize::from(u16_at(change, 0));
            let difference = u64_at(change, 2);
            if idx < next || idx >= state.words.len() || difference == 0 {
                return Err(SnapshotError::Impossible("the changes are out of order or range"));
            }
            next = idx + 1;
            state.words[idx] ^= difference;
            if state.words[idx] & !self.reachable[idx] != 0 {
                return Err(SnapshotError::Impossible("a fact that no command can bring about"));
            }
        }
        Ok(state)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    (0..8).fold(0, |word, i| word | u64::from(bytes[at + i]) << (8 * i))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::grammar::Variant;
    use crate::mini;
    use proptest::prelude::*;

    fn played(n: usize) -> (Game, State) {
        let game = mini::GAMES[0].compile(Variant::V042).unwrap();
        let mut state = game.start().clone();
        let mut seed = 7usize;
        for _ in 0..n {
            let commands = game.admissible(&state);
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let command = commands[(seed >> 33) % commands.len()].clone();
            game.step(&mut state, &command, &mut String::new());
        }
        (game, state)
    }

    #[test]
    fn a_snapshot_restores_the_state() {
        for n in 0..60 {
            let (game, state) = played(n);
            assert_eq!(game.restore(&game.snapshot(&state)), Ok(state));
        }
    }

    #[test]
    fn equal_keys_are_equal_states() {
        let states: Vec<_> = (0..60).map(|n| played(n).1).collect();
        let (game, _) = played(0);
        for a in &states {
            for b in &states {
                assert_eq!(game.state_key(a) == game.state_key(b), a == b);
            }
        }
    }

    #[test]
    fn whatever_is_off_is_refused() {
        let (game, state) = played(30);
        let good = game.snapshot(&state);
        assert_eq!(game.restore(b"nothing"), Err(SnapshotError::Foreign(7)));
        assert_eq!(game.restore(b"ALFW"), Err(SnapshotError::Length { found: 4, wanted: 31 }));
        let mut newer = good.clone();
        newer[4] = 2;
        assert_eq!(game.restore(&newer), Err(SnapshotError::Version { found: 2 }));
        let other = mini::GAMES[1].compile(Variant::V042).unwrap();
        assert!(matches!(other.restore(&good), Err(SnapshotError::Game { .. })));
        let variant = mini::GAMES[0].compile(Variant::V211).unwrap();
        assert!(matches!(variant.restore(&good), Err(SnapshotError::Game { .. })));
        for cut in 5..good.len() {
            assert!(matches!(game.restore(&good[..cut]), Err(SnapshotError::Length { .. })), "cut at {cut}");
        }
        for byte in HEADER..good.len() {
            let mut bad = good.clone();
            bad[byte] ^= 1;
            assert!(game.restore(&bad).is_err(), "byte {byte}");
        }
    }

    fn sealed(game: &Game, body: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.extend_from_slice(&game.fingerprint);
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (game, _) = played(0);
            prop_assert!(game.restore(&bytes).is_err());
        }

        /// Bodies with a right header and checksum: what is accepted can be played on and written again.
        #[test]
        fn no_sealed_body_panics(
            location in 0u16..12, held in 0u16..12,
            changes in proptest::collection::vec((0u16..60, 0u32..64), 0..6))
        {
            let (game, _) = played(0);
            let mut body = location.to_le_bytes().to_vec();
            body.extend_from_slice(&if held == 11 { NOTHING } else { held }.to_le_bytes());
            body.extend_from_slice(&(changes.len() as u16).to_le_bytes());
            for (idx, bit) in changes {
                body.extend_from_slice(&idx.to_le_bytes());
                body.extend_from_slice(&(1u64 << bit).to_le_bytes());
            }
            let bytes = sealed(&game, &body);
            if let Ok(mut state) = game.restore(&bytes) {
                prop_assert_eq!(game.snapshot(&state), bytes);
                for command in game.admissible(&state.clone()) {
                    game.step(&mut state, &command, &mut String::new());
                    game.won(&state);
                    game.stage(&state);
                }
            }
        }
    }
}
