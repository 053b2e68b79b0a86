//! Small trees of one-token actions: every trajectory can be listed, nothing is random.
//!
//! In each of `depth` turns the agent says one of the first `branches` letters. What it is paid is drawn once per task, state
//! and letter, in sixty-fourths, so that sums of rewards are exact:
//!
//! | `rewards` | pays | solved by |
//! |---|---|---|
//! | `sparse` | the last turn, 0..=1 | a last turn that pays at least ½ |
//! | `dense` | every turn, 0..=1; the last one as in `sparse` | a last turn that pays at least ½ |
//! | `stop-or-continue` | `1/depth` per turn; the letter `a` ends the episode and pays all that is left | every trajectory |
//!
//! Under `stop-or-continue` every trajectory returns 1, so the gradient is 0, and so are the advantages wherever one comes. An estimator that takes from
//! every reward the mean reward of that turn index, over the trajectories that came so far, sees more than is there: with two
//! turns, two branches and even odds its mean update is −0.125 on the logit of going on.
//!
//! With `states = "prefixes"` a state is all that was said: `task 0 a c`. With `states = "sums"` different prefixes meet: a
//! state is the turn and the sum of the letters (`a` is 0) modulo `branches`: `task 0 turn 2 sum 2`. An observation shows the
//! state, no more and no less.
//!
//! Edge cases: what is no letter of the first `branches` changes nothing, but the turn counts; an episode that wasted turns so is cut off after `depth`.
//!
//! Cost: next to nothing per step; exact values take one pass over the states, of which a task has at most 5000.

use std::collections::BTreeMap;

use ascribe_core::range::Between;
use ascribe_core::{BuildContext, BuildError, Draw, FiniteMdp, Provide, Seeds, TaskSet, TaskSetConfig, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finite::{FiniteTasks, Table, provides};

/// The word that ends an action.
const STOP: &str = "<end>";
const LETTERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Index of the letter that stops, under [`Rewards::StopOrContinue`].
const STOPS: usize = 0;
/// Random rewards are multiples of 1/64, whose sums single precision holds exactly.
const STEPS: usize = 64;
/// States of a task: more would make exact tables slow, and help nobody.
const MAX_STATES: usize = 5_000;

/// What turns pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rewards {
    /// The last turn alone.
    Sparse,
    /// Every turn.
    Dense,
    /// The same in all, whether the agent stops early or not.
    StopOrContinue,
}

/// What a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum States {
    /// All that was said.
    Prefixes,
    /// The turn, and the sum of what was said modulo `branches`.
    Sums,
}

/// `[environment.token-tree]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenTree {
    /// Seed of the rewards, any whole number that is not negative. The run's seed does not change the tasks.
    #[serde(default)]
    pub seed: u64,
    /// Number of trees, in 1..=64; they differ in their rewards.
    pub tasks: Between<1, 64>,
    /// Turns of an episode, in 1..=12.
    pub depth: Between<1, 12>,
    /// Actions at every turn, in 2..=8. A task has at most 5000 states.
    pub branches: Between<2, 8>,
    /// What turns pay: `sparse`, `dense` or `stop-or-continue`.
    pub rewards: Rewards,
    /// What a state is: `prefixes` or `sums`.
    pub states: States,
}

plugin! {
    Environment "token-tree" {
        summary: "Trees of one-token actions with drawn rewards, small enough to list every trajectory.",
        source: "",
        when: "To hold an estimator against the truth without chance in the environment; `stop-or-continue` shows baselines \
               that depend on the action. With the tabular policy and `decode = \"admissible\"`; not to learn anything about agents.",
        example: "seed = 0\ntasks = 1\ndepth = 3\nbranches = 3\nrewards = \"sparse\"\nstates = \"prefixes\"",
        module: "token_tree.rs",
    }
    impl TaskSetConfig for TokenTree {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            Ok(Box::new(self.open().map_err(BuildError::Config)?))
        }
        fn provides(&self) -> Vec<Provide> {
            provides()
        }
    }
}

/// What was said, or what matters of it: letters under [`States::Prefixes`], turn and sum under [`States::Sums`].
type Node = Vec<usize>;

/// What saying a letter does.
struct Edge {
    pays: f64,
    solves: bool,
    /// The node it leads to; `None` is the end.
    next: Option<Node>,
}

impl TokenTree {
    /// Draws the trees.
    ///
    /// # Errors
    /// If a tree has too many states.
    pub fn open(&self) -> Result<FiniteTasks, String> {
        let tables = (0..self.tasks.get()).map(|task| self.table(task as u32)).collect::<Result<_, _>>()?;
        let r_max = if self.rewards == Rewards::Dense { self.depth.get() as f64 } else { 1.0 };
        Ok(FiniteTasks::new("token-tree", tables, STOP, r_max))
    }

    /// Numbers the nodes as they are met, breadth first; the end comes last.
    fn table(&self, task: u32) -> Result<Table, String> {
        let root = match self.states {
            States::Prefixes => Vec::new(),
            States::Sums => vec![0, 0],
        };
        let mut nodes = vec![root.clone()];
        let mut index = BTreeMap::from([(root, 0)]);
        let mut edges: Vec<Vec<Edge>> = Vec::new();
        while edges.len() < nodes.len() {
            let state = edges.len();
            let from: Vec<Edge> = (0..self.branches.get()).map(|letter| self.edge(task, state, &nodes[state], letter)).collect();
            for next in from.iter().filter_map(|edge| edge.next.as_ref()) {
                if !index.contains_key(next) {
                    index.insert(next.clone(), nodes.len());
                    nodes.push(next.clone());
                }
            }
            if nodes.len() >= MAX_STATES {
                return Err(format!(
                    "`depth` {} with `branches` {} has too many states: at most {MAX_STATES}",
                    *self.depth, *self.branches
                ));
            }
            edges.push(from);
        }
        let end = nodes.len();
        let leads = |edge: &Edge| vec![(edge.next.as_ref().map_or(end, |next| index[next]), 1.0)];
        let process = FiniteMdp {
            transitions: edges.iter().map(|from| from.iter().map(leads).collect()).chain([vec![]]).collect(),
            rewards: edges.iter().map(|from| from.iter().map(|edge| edge.pays).collect()).chain([vec![]]).collect(),
            start: (0..=end).map(|state| f64::from(u8::from(state == 0))).collect(),
            horizon: self.depth.get(),
        };
        Ok(Table {
            process,
            actions: LETTERS[..self.branches.get()].iter().copied().map(String::from).collect(),
            shows: nodes.iter().map(|node| self.shows(task, node)).chain(["end".into()]).collect(),
            solves: edges.iter().map(|from| from.iter().map(|edge| edge.solves).collect()).chain([vec![]]).collect(),
            unknown_pays: 0.0,
        })
    }

    /// Turns made at a node.
    fn turn(&self, node: &Node) -> usize {
        match self.states {
            States::Prefixes => node.len(),
            States::Sums => node[0],
        }
    }

    fn edge(&self, task: u32, state: usize, node: &Node, letter: usize) -> Edge {
        let (turn, depth) = (self.turn(node), self.depth.get());
        let is_last = turn + 1 == depth;
        if self.rewards == Rewards::StopOrContinue {
            let stops = letter == STOPS;
            let turns = if stops { depth - turn } else { 1 };
            let next = (!stops && !is_last).then(|| self.after(node, letter));
            return Edge { pays: turns as f64 / depth as f64, solves: true, next };
        }
        // Keyed by where it stands: `sparse` and `dense` agree on what the last turn pays.
        let draw = Draw { group: task, member: state as u32, turn: letter as u32, ..Draw::default() };
        let drawn = Seeds(self.seed).rng("token-tree", draw).below(STEPS + 1) as f64 / STEPS as f64;
        let pays = if is_last || self.rewards == Rewards::Dense { drawn } else { 0.0 };
        Edge { pays, solves: is_last && pays >= 0.5, next: (!is_last).then(|| self.after(node, letter)) }
    }

    /// The node after saying a letter.
    fn after(&self, node: &Node, letter: usize) -> Node {
        match self.states {
            States::Prefixes => [&node[..], &[letter]].concat(),
            States::Sums => vec![node[0] + 1, (node[1] + letter) % self.branches.get()],
        }
    }

    fn shows(&self, task: u32, node: &Node) -> String {
        match self.states {
            States::Prefixes => node.iter().fold(format!("task {task}"), |text, letter| format!("{text} {}", LETTERS[*letter])),
            States::Sums => format!("task {task} turn {} sum {}", node[0], node[1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::Oracle;
    use ascribe_core::environment::{TRAIN, TaskId};
    use ascribe_core::mdp::{paths, softmax, solve};
    use ascribe_core::registry::{self, Kind};
    use proptest::prelude::*;

    use super::*;

    fn config(depth: u64, branches: u64, rewards: Rewards, states: States) -> TokenTree {
        let (depth, branches) = (Between::try_from(depth).unwrap(), Between::try_from(branches).unwrap());
        TokenTree { seed: 0, tasks: Between::try_from(1).unwrap(), depth, branches, rewards, states }
    }

    fn oracle(set: &FiniteTasks) -> &dyn Oracle {
        set.oracle(&TaskId { split: TRAIN.into(), index: 0 }).unwrap()
    }

    #[test]
    fn states_are_counted() {
        let count = |states| oracle(&config(3, 3, Rewards::Sparse, states).open().unwrap()).process().transitions.len();
        // 1 + 3 + 9 prefixes, or 1 + 3 + 3 sums; and the end
        assert_eq!((count(States::Prefixes), count(States::Sums)), (14, 8));
        let error = config(12, 8, Rewards::Sparse, States::Prefixes).open().err().unwrap();
        assert_eq!(error, "`depth` 12 with `branches` 8 has too many states: at most 5000");
        assert!(config(12, 8, Rewards::Sparse, States::Sums).open().is_ok());
    }

    #[test]
    fn sums_meet_and_prefixes_do_not() {
        let meets = |states| {
            let table = config(3, 3, Rewards::Sparse, states).table(0).unwrap();
            let follow = |word: [usize; 2]| word.iter().fold(0, |s, letter| table.process.transitions[s][*letter][0].0);
            let (one, other) = (follow([0, 2]), follow([1, 1]));
            (one == other, table.shows[one].clone())
        };
        assert_eq!(meets(States::Prefixes), (false, "task 0 a c".into()));
        assert_eq!(meets(States::Sums), (true, "task 0 turn 2 sum 2".into()));
    }

    #[test]
    fn sparse_and_dense_agree_on_the_last_turn() {
        let rewards = |rewards| config(3, 2, rewards, States::Prefixes).table(0).unwrap().process.rewards;
        let (sparse, dense) = (rewards(Rewards::Sparse), rewards(Rewards::Dense));
        // Breadth first: states 0 to 2 are before the last turn.
        assert!(sparse[..3].iter().flatten().all(|r| *r == 0.0) && dense[..3].iter().flatten().any(|r| *r > 0.0));
        assert_eq!(sparse[3..], dense[3..]);
    }

    #[test]
    fn a_baseline_by_turn_index_is_biased_where_stopping_and_going_on_are_worth_the_same() {
        let set = config(2, 2, Rewards::StopOrContinue, States::Prefixes).open().unwrap();
        let process = oracle(&set).process();
        let uniform = vec![process.rewards.iter().map(|row| vec![0.5; row.len()]).collect::<Vec<_>>(); 2];
        let exact = solve(process, &uniform);
        assert_eq!(exact.expected_return, 1.0);
        assert!(exact.gradient.iter().flatten().flatten().all(|g| *g == 0.0));
        // The baseline: stopping pays 1, going on ½ and ½. b_0 = ½·1 + ½·½ = 0.75, b_1 = 0.5 among those that went on.
        let baseline = [0.75, 0.5];
        let update: f64 = paths(process, &uniform)
            .iter()
            .map(|path| {
                let centred = |(t, (s, a)): (usize, &(usize, usize))| process.rewards[*s][*a] - baseline[t];
                let advantage: f64 = path.turns.iter().enumerate().map(centred).sum();
                let goes_on = f64::from(u8::from(path.turns[0].1 != STOPS));
                path.probability * advantage * (goes_on - 0.5)
            })
            .sum();
        // ½·0.25·(−½) + ½·(−0.25)·½
        assert_eq!(update, -0.125);
    }

    #[test]
    fn the_tasks_are_pinned() {
        // A change here changes every result recorded with this environment.
        let base = config(3, 3, Rewards::Sparse, States::Prefixes);
        assert_eq!(base.open().unwrap().fingerprint(), "token-tree/1/a4c63820662ef168");
        assert_ne!(TokenTree { seed: 1, ..base.clone() }.open().unwrap().fingerprint(), base.open().unwrap().fingerprint());
    }

    #[test]
    fn configuration_names_the_key_that_is_wrong() {
        let row = registry::plugin(Kind::Environment, "token-tree").unwrap();
        let error = |line: &str| {
            let mut table: toml::Table = toml::from_str(row.example).unwrap();
            table.extend(toml::from_str::<toml::Table>(line).unwrap());
            table.try_into::<TokenTree>().unwrap_err().to_string()
        };
        assert!(error("depth = 13").contains("must be in 1..=12, got 13"));
        assert!(error("branches = 1").contains("must be in 2..=8, got 1"));
        assert!(error("rewards = \"some\"").contains("unknown variant `some`"));
        assert!(error("width = 3").contains("unknown field `width`"));
        assert!(toml::from_str::<TokenTree>("depth = 3").unwrap_err().to_string().contains("missing field"));
    }

    proptest! {
        #[test]
        fn stopping_is_worth_what_going_on_is(
            depth in 1u64..6,
            branches in 2u64..4,
            logits in prop::collection::vec(-3.0..3.0f64, 3),
            states in prop::sample::select(vec![States::Prefixes, States::Sums]),
        ) {
            let set = config(depth, branches, Rewards::StopOrContinue, states).open().unwrap();
            let process = oracle(&set).process();
            let row = |rewards: &Vec<f64>| logits[..rewards.len()].to_vec();
            let policy = softmax(&vec![process.rewards.iter().map(row).collect::<Vec<_>>(); process.horizon]);
            let exact = solve(process, &policy);
            prop_assert!((exact.expected_return - 1.0).abs() < 1e-12);
            // Where a state is met too late for its turn, the horizon cuts what it would have been paid: no visit is one.
            prop_assert!(exact.gradient.iter().flatten().flatten().all(|g| g.abs() < 1e-12));
        }
    }
}
