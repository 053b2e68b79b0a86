//! One-box Sokoban rooms of 6 × 6 cells, every state of which is solved exactly.
//!
//! The player walks `up`, `down`, `left` and `right`, pushes the box when it stands in the way and the cell behind it is free,
//! and cannot pull. The room is solved when the box stands on its target. A move that is blocked changes nothing, but it
//! counts; so does text that is no move. A box that can no longer be brought home (in a corner, say) does not end the episode:
//! it goes on until `max_turns`.
//!
//! # Rules in the papers
//!
//! The game follows gym-sokoban (Schrader 2018, github.com/mpSchrader/gym-sokoban; the rules and the generator are those of
//! Racanière and others 2017, Imagination-Augmented Agents, arXiv 1707.06203): −0.1 for a step, 1 for a box that comes to a
//! target, −1 for one that leaves it, 10 when all are there. With one box the rewards come at once and end the episode, hence
//! one key: `solved_reward = 11`. The agent papers take one box and 6 × 6 cells with these rewards and differ in the rest:
//!
//! | | turns | text that is no move |
//! |---|---|---|
//! | RAGEN (Wang and others 2025, arXiv 2504.20073) | 10 moves (`max_actions_per_traj`); several in one answer | costs 1 or 0.1, by version |
//! | verl-agent (Feng and others 2025, arXiv 2505.10978) | 15 moves, one in an answer | costs 0.1, taken from the score |
//! | here | `max_turns = 15`, one in an answer | `malformed_cost = 0` beside the step's cost, and the turn is lost |
//!
//! Rooms are drawn by [`mod@generate`], not by gym-sokoban's numbers: rooms of the same seed differ from theirs.
//!
//! # Observations
//!
//! `observation = "symbols"` shows the grid in RAGEN's symbols, a token per cell: `#` wall, `_` floor, `O` target, `X` box, `P`
//! player, `S` player on the target, `√` box on the target. `"text"` is a sentence: `player at 1 2 box at 2 2 target at 4 3
//! walls at 1 1 and 3 4`; coordinates are row and column from 0 at the top left, and the outer walls go without saying. Both
//! show all there is but the turns made. The vocabulary holds the words of both.
//!
//! # Exact answers
//!
//! A state is where player and box stand, at most 16 · 15 of them, so reverse play from the solved ones, breadth first, gives
//! the length `m` of the shortest solution of each. With `k` turns left the largest return, not discounted, is
//! `solved_reward − m · step_cost` if `m ≤ k`, else `−k · step_cost` ([`episode::Episode::optimal_return`]). Privileged text
//! says `needs 7 moves of 12 turns` or `cannot be solved in 12 turns`; ground truth is a shortest solution from the start. The
//! oracle lists the states that a task's episodes can come to, with all four moves in each. The expert takes a move of a
//! shortest solution, of several one at random; at a deadlock, and with probability `expert_noise`, any move.
//!
//! Nothing is random but the expert. The exact key is player, box and turns made.
//!
//! # Measured
//!
//! On the 100 rooms of `test` under the default configuration, 100 episodes each, by
//! `cargo test --release -p ascribe-environments sokoban::tests::baselines -- --nocapture`:
//!
//! | | solved | mean return | mean turns |
//! |---|---|---|---|
//! | moves drawn evenly | 0.051 | −0.91 | 14.72 |
//! | expert without noise | 1.000 | 10.40, the optimum | 5.99 |

pub mod episode;
pub mod generate;
pub mod room;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ascribe_core::environment::{Capabilities, Environment, EnvironmentError, Oracle, SnapshotKind, TRAIN, TaskId};
use ascribe_core::range::{NonNegative, Positive, Unit};
use ascribe_core::{BuildContext, BuildError, Need, Provide, TaskSet, TaskSetConfig, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sealed::identity;
use ascribe_core::range::Between;
use episode::{Episode, Rules, Shows, Task, symbols};
use generate::{Bounds, Rooms, generate};
use room::{Move, Room, SIDE};

/// The split of rooms to measure on.
pub const TEST: &str = "test";
/// The word that ends a move.
const STOP: &str = "<end>";

/// `[environment.sokoban]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sokoban {
    /// Seed of the generator of rooms, any whole number that is not negative. The run's seed does not change the rooms.
    pub seed: u64,
    /// Rooms to train on, in 1..=4000.
    pub train_tasks: Between<1, 4000>,
    /// Rooms of the split `test`, in 1..=1000; their walls and targets do not occur in training, turned or mirrored.
    pub test_tasks: Between<1, 1000>,
    /// Fewest moves of a room's shortest solution, in 1..=40.
    pub min_moves: Between<1, 40>,
    /// Most moves of a room's shortest solution, in 1..=40; at least `min_moves` and at most `max_turns`.
    pub max_moves: Between<1, 40>,
    /// Fewest pushes of a shortest solution, in 1..=20.
    pub min_pushes: Between<1, 20>,
    /// Turns after which an episode is cut off, in 1..=200.
    pub max_turns: Between<1, 200>,
    /// What every turn costs, 0 or more.
    pub step_cost: NonNegative,
    /// What a turn costs besides whose text is no move, 0 or more.
    pub malformed_cost: NonNegative,
    /// Reward of the push that brings the box to its target, positive.
    pub solved_reward: Positive,
    /// What an observation looks like: `symbols`, the grid, or `text`, a sentence.
    pub observation: Shows,
    /// Probability that the scripted expert, at a turn, makes any move, in 0..=1. The tasks stay the same.
    pub expert_noise: Unit,
}

impl Default for Sokoban {
    fn default() -> Self {
        const IN_RANGE: &str = "the default lies in its range";
        Self {
            seed: 0,
            train_tasks: Between::try_from(1000).expect(IN_RANGE),
            test_tasks: Between::try_from(100).expect(IN_RANGE),
            min_moves: Between::try_from(3).expect(IN_RANGE),
            max_moves: Between::try_from(10).expect(IN_RANGE),
            min_pushes: Between::try_from(2).expect(IN_RANGE),
            max_turns: Between::try_from(15).expect(IN_RANGE),
            step_cost: NonNegative::try_from(0.1).expect(IN_RANGE),
            malformed_cost: NonNegative::try_from(0.0).expect(IN_RANGE),
            solved_reward: Positive::try_from(11.0).expect(IN_RANGE),
            observation: Shows::Symbols,
            expert_noise: Unit::try_from(0.0).expect(IN_RANGE),
        }
    }
}

plugin! {
    Environment "sokoban" {
        summary: "Push a box to its target in small rooms; every state's exact value is known.",
        source: "Schrader 2018, gym-sokoban, github.com/mpSchrader/gym-sokoban; Racanière and others 2017, \
                 Imagination-Augmented Agents for Deep Reinforcement Learning, arXiv 1707.06203",
        when: "To compare credit on a puzzle of the agent papers where a single push can be fatal long before the episode \
               shows it, and where exact values tell how good the credit is. Not to compare with the papers' numbers: the \
               rooms are others.",
        example: "seed = 0\ntrain_tasks = 1000\ntest_tasks = 100\nmin_moves = 3\nmax_moves = 10\nmin_pushes = 2\nmax_turns = 15\n\
                  step_cost = 0.1\nmalformed_cost = 0.0\nsolved_reward = 11.0\nobservation = \"symbols\"\nexpert_noise = 0.0",
        module: "mod.rs",
    }
    impl TaskSetConfig for Sokoban {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            Ok(Box::new(self.open().map_err(BuildError::Config)?))
        }
        fn provides(&self) -> Vec<Provide> {
            provides()
        }
    }
}

fn provides() -> Vec<Provide> {
    vec![
        Need::Expert,
        Need::Admissible,
        Need::ExactSnapshot,
        Need::ExactStateKey,
        Need::Privileged,
        Need::GroundTruth,
        Need::Oracle,
    ]
}

/// Words of moves, of observations of either kind, and of privileged text.
fn vocabulary(max_turns: usize) -> Vec<String> {
    let words = Move::ALL.iter().map(|go| go.name()).chain([STOP]).chain(episode::WORDS.iter().copied());
    words.map(String::from).chain((0..=max_turns.max(SIDE - 1)).map(|n| n.to_string())).collect()
}

impl Sokoban {
    /// Draws the rooms.
    ///
    /// # Errors
    /// If `min_moves`, `max_moves` and `max_turns` do not go together, or there are not that many different rooms.
    pub fn open(&self) -> Result<SokobanTasks, String> {
        let (min_moves, max_moves, max_turns) = (*self.min_moves, *self.max_moves, *self.max_turns);
        if min_moves > max_moves {
            return Err(format!("`min_moves` {min_moves} must not be above `max_moves` {max_moves}"));
        }
        if max_moves > max_turns {
            return Err(format!(
                "`max_moves` {max_moves} must not be above `max_turns` {max_turns}: there would be rooms that cannot be solved"
            ));
        }
        if *self.min_pushes > max_moves {
            return Err(format!("`min_pushes` {} must not be above `max_moves` {max_moves}", *self.min_pushes));
        }
        let bounds =
            Bounds { min_moves: self.min_moves.get(), max_moves: self.max_moves.get(), min_pushes: self.min_pushes.get() };
        let Rooms { train, test } = generate(self.seed, self.train_tasks.get(), self.test_tasks.get(), bounds)?;
        let rules = Rules {
            max_turns: self.max_turns.get(),
            step_cost: *self.step_cost,
            malformed_cost: *self.malformed_cost,
            solved_reward: *self.solved_reward,
            shows: self.observation,
            noise: *self.expert_noise,
        };
        Ok(SokobanTasks::new(&train, &test, rules))
    }
}

/// The tasks of `[environment.sokoban]`.
#[derive(Debug)]
pub struct SokobanTasks {
    train: Vec<Arc<Task>>,
    test: Vec<Arc<Task>>,
    fingerprint: String,
    capabilities: Capabilities,
}

impl SokobanTasks {
    fn new(train: &[Room], test: &[Room], rules: Rules) -> Self {
        // The expert is no part of the rules: its noise may change and the tasks stay the same.
        let texts = |rooms: &[Room]| rooms.iter().map(symbols).collect::<Vec<_>>();
        let Rules { max_turns, step_cost, malformed_cost, solved_reward, shows, .. } = rules;
        let costs = (step_cost, malformed_cost, solved_reward);
        let fingerprint = format!("sokoban/1/{}", identity(&(texts(train), texts(test), max_turns, costs, shows)));
        let tasks = |rooms: &[Room], split: &str| {
            let task = |(index, room): (u32, &Room)| {
                let id = TaskId { split: split.into(), index };
                Arc::new(Task::new(*room, rules, format!("{fingerprint}/{id}")))
            };
            (0..).zip(rooms).map(task).collect()
        };
        Self {
            train: tasks(train, TRAIN),
            test: tasks(test, TEST),
            capabilities: Capabilities {
                snapshot: SnapshotKind::Exact,
                exact_state_key: true,
                r_max: solved_reward - step_cost,
                max_turns,
                max_action_tokens: 2,
                stop: STOP.into(),
                vocabulary: vocabulary(max_turns),
                provides: provides(),
            },
            fingerprint,
        }
    }

    /// A task, if there is one.
    pub fn task(&self, id: &TaskId) -> Option<&Arc<Task>> {
        self.split(&id.split).get(id.index as usize)
    }

    fn split(&self, name: &str) -> &[Arc<Task>] {
        match name {
            TRAIN => &self.train,
            TEST => &self.test,
            _ => &[],
        }
    }
}

impl TaskSet for SokobanTasks {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn splits(&self) -> Vec<String> {
        vec![TRAIN.into(), TEST.into()]
    }

    fn len(&self, split: &str) -> usize {
        self.split(split).len()
    }

    fn name(&self, task: &TaskId) -> String {
        match self.task(task) {
            Some(found) => format!("{}-moves-{:04}", found.length().moves, task.index),
            None => task.to_string(),
        }
    }

    /// The pushes of its shortest solution.
    fn category(&self, task: &TaskId) -> Option<String> {
        self.task(task).map(|task| format!("{} pushes", task.length().pushes))
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// Nothing in an episode is random but the expert, so the seed is not read.
    fn open(&self, task: &TaskId, _seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        let found = self.task(task).ok_or_else(|| {
            let (train, test) = (self.train.len(), self.test.len());
            EnvironmentError(format!("sokoban has no task `{task}`: split train has {train} tasks, test {test}"))
        })?;
        Ok(Box::new(Episode::new(Arc::clone(found))))
    }

    fn oracle(&self, task: &TaskId) -> Option<&dyn Oracle> {
        self.task(task).map(|task| &**task as &dyn Oracle)
    }
}
