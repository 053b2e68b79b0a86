//! A game whose rule has to be found out: placing knights that do not attack each other, without being told that.
//!
//! Two knights stand on the board; six more are to be placed so that no two attack each other. The agent reads of stones. It
//! makes at most `max_probes` probes:
//!
//! | action | what it does | what is read next |
//! |---|---|---|
//! | `place c3`, where no knight attacks it | places a knight, for good | `accepted`, and the board |
//! | `place c3`, where one does, or one stands | nothing, but it counts | `rejected`, and the board |
//! | anything else | nothing, but it counts | `unknown`, and the board |
//!
//! The game is over when six knights were placed (success) or the probes are used up (no success, and no cut either: its score
//! is paid). The score is the number of knights placed, 0 to 6, paid with the last probe; until then every reward is 0. There
//! is no word to stop: a probe costs nothing but itself. The largest return, and with it the span of what is left to gain, is
//! 6.
//!
//! Branches of one state that were paid the same, nothing, differ in what is left: a knight in the wrong place shuts squares
//! that others need, sometimes all ways to place six, and a rejected probe is one less. Knights attack from one colour of
//! squares to the other, so those on one colour never stand in each other's way; the first two need not have one.
//!
//! Only critics read the rule ([`Environment::privileged`]), and with `completions = true` exact numbers too: the ways to
//! place all knights that are missing (order aside; 0 where the probes do not suffice), and the best score that is left to
//! one who knows the rule. Numbers are said digit by digit: `completions left: 1 0 4`. Of the words of these texts, none but the
//! digits stands in observations or actions.
//!
//! A task is where the first two knights stand. All such starts that can be completed are tasks. Starts
//! that a reflection or rotation of the board turns into each other belong to one split: no start of `held_out` is one of
//! `train` in a mirror. `seed` says which go where.
//!
//! Nothing is random but the expert. A state's exact key is the board and the number of probes made; an observation's key is
//! the board, and whether the game is over. Snapshots hold the probes.
//!
//! # How well it goes
//!
//! Measured on the held-out tasks of the default configuration before anything was trained on it, 200 episodes per task
//! (`cargo test --release -p ascribe-environments -- --nocapture baselines`):
//!
//! | policy | mean score, of 6 | solved |
//! |---|---|---|
//! | any empty square | 3.97 | 0.089 |
//! | the expert, half of its probes at random (`expert_noise = 0.5`) | 5.22 | 0.593 |
//! | the expert, which has to find out the rule in every episode anew | 5.31 | 0.702 |
//! | any square that will be accepted: the rule is known, but nothing is planned | 5.83 | 0.894 |
//! | the best there is: every task can be solved | 6 | 1 |
//!
//! Cost: a probe takes next to nothing; with `completions = true` an observation counts all ways to go on, exactly, which grows with the board.
//! An episode is 6 to `max_probes` turns.

pub mod board;
pub mod episode;
pub mod expert;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use ascribe_core::environment::{Capabilities, Environment, EnvironmentError, SnapshotKind, TRAIN, TaskId};
use ascribe_core::range::Unit;
use ascribe_core::{BuildContext, BuildError, Draw, Need, Provide, Seeds, TaskSet, TaskSetConfig, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sealed::identity;
use ascribe_core::range::Between;
use board::{Board, Squares};
use episode::{Episode, Game, TO_PLACE};

/// The split of tasks to measure on.
pub const HELD_OUT: &str = "held_out";
/// The word that ends an action.
const STOP: &str = "<end>";

/// `[environment.knights]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Knights {
    /// Decides which starts are held out, any whole number that is not negative. The run's seed does not change the tasks.
    pub seed: u64,
    /// Rows of the board, in 3..=6.
    pub rows: Between<3, 6>,
    /// Columns of the board, in 3..=6. A board of 3 by 3 or 3 by 4 squares is too small for eight knights.
    pub columns: Between<3, 6>,
    /// Probes after which an episode is over, in 6..=36; without a rejected one it takes 6.
    pub max_probes: Between<6, 36>,
    /// Share of the starts, symmetric ones counted as one, that make up the split `held_out`, in 0..=1; at least one start
    /// has to be left to train on.
    pub held_out_share: Unit,
    /// Whether privileged text says, beside the rule, how many completions are left and which score is still possible.
    pub completions: bool,
    /// Probability that the expert probes an empty square at random, at every turn, in 0..=1.
    pub expert_noise: Unit,
}

impl Default for Knights {
    fn default() -> Self {
        let range = "the default lies in its range";
        Self {
            seed: 0,
            rows: Between::try_from(4).expect(range),
            columns: Between::try_from(5).expect(range),
            max_probes: Between::try_from(10).expect(range),
            held_out_share: Unit::try_from(0.25).expect(range),
            completions: false,
            expert_noise: Unit::try_from(0.0).expect(range),
        }
    }
}

plugin! {
    Environment "knights" {
        summary: "Place six more knights so that no two attack each other, without being told the rule: each probe is \
                  accepted or rejected, and the score comes at the end.",
        source: "",
        when: "To try methods that value unfinished episodes: equal rewards, very different prospects, and a critic may read \
               the rule and how many completions are left. Not to learn anything about real agents.",
        example: "seed = 0\nrows = 4\ncolumns = 5\nmax_probes = 10\nheld_out_share = 0.25\ncompletions = false\nexpert_noise = 0.0",
        module: "mod.rs",
    }
    impl TaskSetConfig for Knights {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            Ok(Box::new(self.open().map_err(BuildError::Config)?))
        }
        fn provides(&self) -> Vec<Provide> {
            provides()
        }
    }
}

fn provides() -> Vec<Provide> {
    vec![Need::Expert, Need::Admissible, Need::ExactSnapshot, Need::ExactStateKey, Need::Privileged, Need::GroundTruth]
}

impl Knights {
    /// Lists the tasks.
    ///
    /// # Errors
    /// If there is none to train on.
    pub fn open(&self) -> Result<KnightsTasks, String> {
        let board = Board::new(self.rows.get(), self.columns.get());
        let mut classes = classes(&board);
        if classes.is_empty() {
            return Err(format!(
                "`rows` {} by `columns` {} squares have no room for {} knights: choose a larger board",
                *self.rows,
                *self.columns,
                TO_PLACE + 2
            ));
        }
        Seeds(self.seed).rng("knights", Draw::default()).shuffle(&mut classes);
        let n_held_out = (*self.held_out_share * classes.len() as f64).round() as usize;
        if n_held_out == classes.len() {
            return Err(format!("`held_out_share` {} leaves no start to train on", *self.held_out_share));
        }
        let split = |classes: &[Vec<Squares>]| {
            let mut starts = classes.concat();
            starts.sort_unstable();
            starts
        };
        let (held_out, train) = (split(&classes[..n_held_out]), split(&classes[n_held_out..]));
        let rules = identity(&(*self.rows, *self.columns, *self.max_probes, &train, &held_out));
        let mut vocabulary = episode::words();
        vocabulary.extend((0..board.len()).map(|square| board.name(square)).chain([STOP.into()]));
        let game =
            Game { board, max_probes: self.max_probes.get(), completions: self.completions, expert_noise: *self.expert_noise };
        Ok(KnightsTasks {
            train,
            held_out,
            fingerprint: format!("knights/{}/{rules}", episode::VERSION),
            capabilities: Capabilities {
                snapshot: SnapshotKind::Exact,
                exact_state_key: true,
                r_max: TO_PLACE as f64,
                max_turns: game.max_probes,
                max_action_tokens: 3,
                stop: STOP.into(),
                vocabulary,
                provides: provides(),
            },
            game: Arc::new(game),
        })
    }
}

/// All pairs of knights that can be completed, those that are symmetric to each other together.
fn classes(board: &Board) -> Vec<Vec<Squares>> {
    let pairs = (0..board.len()).flat_map(|a| (a + 1..board.len()).map(move |b| (a, b)));
    let mut met: BTreeSet<Squares> = BTreeSet::new();
    let mut classes = Vec::new();
    for (a, b) in pairs.filter(|(a, b)| board.accepts(1 << a, *b)) {
        let pair = 1 << a | 1 << b;
        if met.contains(&pair) || board.ways(pair, TO_PLACE)[TO_PLACE] == 0 {
            continue;
        }
        let class: BTreeSet<Squares> = board.symmetric(pair).into_iter().collect();
        met.extend(&class);
        classes.push(class.into_iter().collect());
    }
    classes
}

/// The tasks of `[environment.knights]`.
#[derive(Debug)]
pub struct KnightsTasks {
    train: Vec<Squares>,
    held_out: Vec<Squares>,
    game: Arc<Game>,
    fingerprint: String,
    capabilities: Capabilities,
}

impl KnightsTasks {
    /// Where a task's first knights stand, if there is such a task.
    pub fn given(&self, id: &TaskId) -> Option<Squares> {
        self.split(&id.split).get(id.index as usize).copied()
    }

    fn split(&self, name: &str) -> &[Squares] {
        match name {
            TRAIN => &self.train,
            HELD_OUT => &self.held_out,
            _ => &[],
        }
    }

    fn episode(&self, task: &TaskId) -> Result<Episode, EnvironmentError> {
        let given = self.given(task).ok_or_else(|| {
            let (train, held_out) = (self.train.len(), self.held_out.len());
            EnvironmentError(format!("knights has no task `{task}`: split train has {train} tasks, held_out {held_out}"))
        })?;
        Ok(Episode::new(Arc::clone(&self.game), given, format!("{}/{task}", self.fingerprint).into()))
    }
}

impl TaskSet for KnightsTasks {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn splits(&self) -> Vec<String> {
        vec![TRAIN.into(), HELD_OUT.into()]
    }

    fn len(&self, split: &str) -> usize {
        self.split(split).len()
    }

    /// The first knights' squares: `a2-d4`.
    fn name(&self, task: &TaskId) -> String {
        self.given(task).map_or_else(|| task.to_string(), |given| self.game.board.names(given).replace(' ', "-"))
    }

    /// Whether the first knights stand on squares of one colour or two.
    fn category(&self, task: &TaskId) -> Option<String> {
        let given = self.given(task)?;
        Some(if self.game.board.one_colour(given) { "one-colour" } else { "two-colours" }.into())
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// Nothing in an episode is random but the expert, so the seed is not read.
    fn open(&self, task: &TaskId, _seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        Ok(Box::new(self.episode(task)?))
    }
}
