//! States that groups may begin in.

use std::collections::{BTreeSet, VecDeque};

use ascribe_core::environment::TaskId;
use ascribe_core::log::Origin;
use ascribe_core::play::{Start, State};
use ascribe_core::seed::Rng;
use serde::{Deserialize, Serialize};

/// A state at the end of a macro step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredState {
    /// Its place in the order in which states were stored, from 0 on: no other state has it.
    pub number: u64,
    /// The task.
    pub task: TaskId,
    /// The state: the way back, and what the policy read and said before it.
    pub state: State,
    /// Macro steps before it, at least 1.
    pub macro_index: u32,
    /// Updates that were done when it was stored.
    pub update: u32,
    /// Groups that began in it.
    pub uses: u32,
}

impl StoredState {
    /// Updates since it was stored.
    pub fn age(&self, update: u32) -> u64 {
        u64::from(update.saturating_sub(self.update))
    }

    /// A group's start, which says how old it is.
    pub fn start(&self, update: u32) -> Start {
        let state = State { origin: Origin::Restored { age: self.age(update) }, ..self.state.clone() };
        Start { task: self.task.clone(), state: Some(state) }
    }

    /// Whether every number of its history is finite: no text holds others, and they are refused where they are used.
    fn is_finite(&self) -> bool {
        let logprobs = self.state.history.turns.iter().flat_map(|turn| [&turn.action.logprob, &turn.action.entropy]);
        logprobs.flatten().flatten().all(|x| x.is_finite()) && self.state.back.deeds.iter().all(|deed| deed.reward.is_finite())
    }
}

/// States, the oldest first. A new one above `capacity` takes the place of the oldest.
#[derive(Clone, Debug, PartialEq)]
pub struct StateStore {
    capacity: usize,
    states: VecDeque<StoredState>,
    /// States stored so far.
    next: u64,
}

/// What left a store to make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// States.
    pub states: usize,
    /// Those of them in which no group began.
    pub unused: usize,
}

/// What is saved of a store.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved<S> {
    format: u32,
    next: u64,
    states: S,
}

const FORMAT: u32 = 1;

impl StateStore {
    /// An empty store for so many states, at least 1.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), states: VecDeque::new(), next: 0 }
    }

    /// The states, the oldest first.
    pub fn states(&self) -> impl ExactSizeIterator<Item = &StoredState> {
        self.states.iter()
    }

    /// Stores states that were reached in the update after `update`, in order: each as task, state and macro steps before it. One whose
    /// history holds a number that is not finite is left out.
    pub fn add(&mut self, update: u32, states: impl IntoIterator<Item = (TaskId, State, u32)>) -> Evicted {
        let mut evicted = Evicted::default();
        for (task, state, macro_index) in states {
            let stored = StoredState { number: self.next, task, state, macro_index, update, uses: 0 };
            if !stored.is_finite() {
                continue;
            }
            self.next += 1;
            self.states.push_back(stored);
            if self.states.len() > self.capacity
                && let Some(oldest) = self.states.pop_front()
            {
                evicted.states += 1;
                evicted.unused += usize::from(oldest.uses == 0);
            }
        }
        evicted
    }

    /// Draws `n` states uniformly, no state twice, or all where there are fewer; in the order in which they were stored. They
    /// stay in the store unless they are to be removed.
    pub fn sample(&mut self, n: usize, remove: bool, rng: &mut Rng) -> Vec<StoredState> {
        let mut places: Vec<usize> = (0..self.states.len()).collect();
        rng.shuffle(&mut places);
        places.truncate(n);
        places.sort_unstable();
        let drawn = places.iter().map(|place| {
            let state = &mut self.states[*place];
            state.uses += 1;
            state.clone()
        });
        let drawn: Vec<StoredState> = drawn.collect();
        if remove {
            places.iter().rev().for_each(|place| drop(self.states.remove(*place)));
        }
        drawn
    }

    /// Takes a state out, if it is there.
    pub fn drop_state(&mut self, number: u64) {
        self.states.retain(|state| state.number != number);
    }

    /// Number of different tasks of its states.
    pub fn n_tasks(&self) -> usize {
        self.states.iter().map(|state| &state.task).collect::<BTreeSet<_>>().len()
    }

    /// Its bytes.
    pub fn save(&self) -> Vec<u8> {
        let saved = Saved { format: FORMAT, next: self.next, states: &self.states };
        serde_json::to_vec(&saved).expect("finite numbers and text have a form")
    }

    /// Takes up saved states; where fewer fit by now, the oldest are left out.
    ///
    /// # Errors
    /// If the bytes are damaged or of another format.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        let saved: Saved<VecDeque<StoredState>> =
            serde_json::from_slice(bytes).map_err(|e| format!("the stored states are damaged: {e}"))?;
        if saved.format != FORMAT {
            return Err(format!("the stored states have format {}, this version reads {FORMAT}", saved.format));
        }
        (self.next, self.states) = (saved.next, saved.states);
        self.states.drain(..self.states.len().saturating_sub(self.capacity));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::log::{History, TurnLog};
    use ascribe_core::play::Back;
    use ascribe_core::{Draw, Seeds};

    fn state(seed: u64) -> State {
        State { seed, back: Back::default(), turns: 10, history: History::default(), origin: Origin::default() }
    }

    fn filled(capacity: usize, n: u64) -> StateStore {
        let mut store = StateStore::new(capacity);
        store.add(0, (0..n).map(|seed| (TaskId { index: (seed % 3) as u32, ..TaskId::default() }, state(seed), 1)));
        store
    }

    fn seeds(store: &StateStore) -> Vec<u64> {
        store.states().map(|stored| stored.state.seed).collect()
    }

    #[test]
    fn the_oldest_make_room() {
        let mut store = filled(4, 3);
        assert_eq!((seeds(&store), store.n_tasks()), (vec![0, 1, 2], 3));
        store.sample(1, false, &mut Seeds(0).rng("t", Draw::default()));
        let used = store.states().position(|stored| stored.uses == 1).unwrap();
        let evicted = store.add(7, [3, 4, 5].map(|seed| (TaskId::default(), state(seed), 2)));
        assert_eq!(seeds(&store), [2, 3, 4, 5]);
        assert_eq!(evicted, Evicted { states: 2, unused: if used < 2 { 1 } else { 2 } });
        assert_eq!(store.states().map(|stored| stored.number).collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert_eq!(store.states().map(|stored| stored.age(9)).collect::<Vec<_>>(), [9, 2, 2, 2]);
    }

    #[test]
    fn draws_are_uniform_and_without_repetition() {
        let mut store = filled(5, 5);
        let mut counts = [0u32; 5];
        for update in 0..6000 {
            let drawn = store.sample(2, false, &mut Seeds(1).rng("t", Draw { update, ..Draw::default() }));
            assert!(drawn.len() == 2 && drawn[0].number < drawn[1].number);
            drawn.iter().for_each(|stored| counts[stored.state.seed as usize] += 1);
        }
        // 2/5 of 6000 each, deviation √(6000·0.4·0.6) = 38
        assert!(counts.iter().all(|n| n.abs_diff(2400) < 190), "{counts:?}");
        assert_eq!(store.states().map(|stored| stored.uses).sum::<u32>(), 12_000);
    }

    #[test]
    fn what_is_removed_comes_once() {
        let mut store = filled(5, 5);
        let rng = |update| Seeds(1).rng("t", Draw { update, ..Draw::default() });
        let mut all: Vec<u64> = (0..4).flat_map(|u| store.sample(2, true, &mut rng(u))).map(|stored| stored.number).collect();
        all.sort_unstable();
        assert_eq!((all, store.states().len()), (vec![0, 1, 2, 3, 4], 0));
        let mut kept = filled(5, 5);
        kept.drop_state(3);
        kept.drop_state(9);
        assert_eq!(seeds(&kept), [0, 1, 2, 4]);
    }

    #[test]
    fn it_goes_on_from_its_bytes() {
        let mut store = filled(4, 6);
        store.sample(1, false, &mut Seeds(0).rng("t", Draw::default()));
        let mut again = StateStore::new(4);
        again.load(&store.save()).unwrap();
        assert_eq!(again, store);
        let mut small = StateStore::new(2);
        small.load(&store.save()).unwrap();
        assert_eq!(seeds(&small), [4, 5]);
        // Numbers go on, so that none comes twice.
        small.add(1, [(TaskId::default(), state(9), 1)]);
        assert_eq!(small.states().last().unwrap().number, 6);
        assert!(again.load(b"{").unwrap_err().contains("damaged"));
        let newer = String::from_utf8(store.save()).unwrap().replacen("\"format\":1", "\"format\":2", 1);
        assert_eq!(again.load(newer.as_bytes()).unwrap_err(), "the stored states have format 2, this version reads 1");
    }

    #[test]
    fn what_no_text_holds_is_not_stored() {
        let mut history = History::default();
        let mut turn = TurnLog::default();
        turn.action.logprob = Some(vec![f32::NAN]);
        history.push(&turn);
        let mut store = StateStore::new(4);
        store.add(0, [(TaskId::default(), State { history, ..state(0) }, 1)]);
        assert_eq!(store.states().len(), 0);
    }
}
