//! A repair process of seven states and four actions: a stochastic task whose every value is known.
//!
//! | in | `edit` | `read` | `submit` | `test` |
//! |---|---|---|---|---|
//! | `unread` | `right` 0.1, `wrong` 0.9 | `read` | `done`, 0 | `unread` |
//! | `read` | `right` 0.5, `wrong` 0.5 | `read` | `done`, 0 | `failed` |
//! | `wrong` | `right` 0.2, `wrong` 0.8 | `read` | `done`, 0 | `failed` 0.9, `wrong` 0.1 |
//! | `right` | `right` 0.2, `wrong` 0.8 | `right` | `done`, 1 | `passed` 0.9, `right` 0.1 |
//! | `failed` | `right` 0.8, `wrong` 0.2 | `failed` | `done`, 0 | `failed` |
//! | `passed` | `right` 0.2, `wrong` 0.8 | `passed` | `done`, 1 | `passed` |
//!
//! A cell says where the action leads, with its probability where it is not 1, and what it pays where it ends the episode.
//! Every action costs `step_cost` besides. Reading and testing before the repair earn their cost; after it they earn nothing,
//! though every success runs through what was done there: that is what credit has to tell apart.
//!
//! The process follows chapter 7 of the course whose companion package is `agentrl`. There it has seven states from `unread`
//! to the absorbing `done`, four actions, a reward that depends on state and action alone, a `step_cost` that every step
//! before `done` pays (0.05 in its measurements), γ = 1, and 40 steps at most. The chapter that defines the five states
//! between, the actions and the probabilities is another one: those of the table are this module's own, after the tools of its
//! code-repair tasks, so numbers that the course prints are not met here.
//!
//! Edge cases: at the horizon an episode is cut off; what would follow is worth 0 to the exact values, as the horizon is part of the process.
//! What is none of the actions changes nothing, but the turn counts. The exact key is state and turn; the observation shows the state alone.
//!
//! Cost: next to nothing per step; exact values take one pass over `horizon` · 7 states · 4 actions.

use ascribe_core::range::{Between, Unit};
use ascribe_core::{BuildContext, BuildError, FiniteMdp, Provide, TaskSet, TaskSetConfig, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finite::{FiniteTasks, Table, provides};

/// The word that ends an action.
const STOP: &str = "<end>";
/// Steps of an episode in the course's sampler.
const HORIZON: u64 = 40;

const ACTIONS: [&str; 4] = ["edit", "read", "submit", "test"];
const STATES: [&str; 7] = ["unread", "read", "wrong", "right", "failed", "passed", "done"];
const UNREAD: usize = 0;
const READ: usize = 1;
const WRONG: usize = 2;
const RIGHT: usize = 3;
const FAILED: usize = 4;
const PASSED: usize = 5;
const DONE: usize = 6;

/// `[environment.repair-mdp]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RepairMdp {
    /// Turns after which an episode is cut off, in 1..=1000; the course takes 40.
    pub horizon: Between<1, 1000>,
    /// What every turn costs, in 0..=1; the course measures with 0.05.
    pub step_cost: Unit,
}

impl Default for RepairMdp {
    fn default() -> Self {
        Self {
            horizon: Between::try_from(HORIZON).expect("the default lies in its range"),
            step_cost: Unit::try_from(0.0).expect("the default lies in its range"),
        }
    }
}

plugin! {
    Environment "repair-mdp" {
        summary: "A stochastic repair process of seven states and four actions, whose values and gradients are exactly known.",
        source: "",
        when: "To hold an estimator against the truth: how far its advantages and its mean update are from the exact ones. \
               With the tabular policy and `decode = \"admissible\"`; not to learn anything about agents.",
        example: "horizon = 40\nstep_cost = 0.05",
        module: "repair_mdp.rs",
    }
    impl TaskSetConfig for RepairMdp {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            Ok(Box::new(self.open()))
        }
        fn provides(&self) -> Vec<Provide> {
            provides()
        }
    }
}

impl RepairMdp {
    /// The set of its one task.
    pub fn open(&self) -> FiniteTasks {
        FiniteTasks::new("repair-mdp", vec![self.table()], STOP, 1.0 - *self.step_cost)
    }

    fn table(&self) -> Table {
        let states = 0..STATES.len();
        let pays = |state, action| f64::from(u8::from(solves(state, action))) - *self.step_cost;
        let process = FiniteMdp {
            transitions: states.clone().map(|s| actions(s).iter().map(|a| outcomes(s, a)).collect()).collect(),
            rewards: states.clone().map(|s| actions(s).iter().map(|a| pays(s, a)).collect()).collect(),
            start: states.clone().map(|s| f64::from(u8::from(s == UNREAD))).collect(),
            horizon: self.horizon.get(),
        };
        Table {
            process,
            actions: ACTIONS.map(String::from).to_vec(),
            shows: STATES.map(String::from).to_vec(),
            solves: states.map(|s| actions(s).iter().map(|a| solves(s, a)).collect()).collect(),
            unknown_pays: -*self.step_cost,
        }
    }
}

fn actions(state: usize) -> &'static [&'static str] {
    if state == DONE { &[] } else { &ACTIONS }
}

fn solves(state: usize, action: &str) -> bool {
    action == "submit" && matches!(state, RIGHT | PASSED)
}

/// The module's table: next states with their probabilities.
fn outcomes(state: usize, action: &str) -> Vec<(usize, f64)> {
    match (action, state) {
        ("edit", UNREAD) => vec![(RIGHT, 0.1), (WRONG, 0.9)],
        ("edit", READ) => vec![(RIGHT, 0.5), (WRONG, 0.5)],
        ("edit", FAILED) => vec![(RIGHT, 0.8), (WRONG, 0.2)],
        ("edit", _) => vec![(RIGHT, 0.2), (WRONG, 0.8)],
        ("read", UNREAD | WRONG) => vec![(READ, 1.0)],
        ("submit", _) => vec![(DONE, 1.0)],
        ("test", READ) => vec![(FAILED, 1.0)],
        ("test", WRONG) => vec![(FAILED, 0.9), (WRONG, 0.1)],
        ("test", RIGHT) => vec![(PASSED, 0.9), (RIGHT, 0.1)],
        _ => vec![(state, 1.0)],
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::environment::{TRAIN, TaskId};
    use ascribe_core::mdp::{softmax, solve};
    use ascribe_core::registry::{self, Kind};

    use super::*;

    fn process(set: &FiniteTasks) -> &FiniteMdp {
        set.oracle(&TaskId { split: TRAIN.into(), index: 0 }).unwrap().process()
    }

    /// A policy that takes the same action in a state at every turn.
    fn always(take: [&str; 6], process: &FiniteMdp) -> Vec<Vec<Vec<f64>>> {
        let row = |s: usize| actions(s).iter().map(|a| f64::from(u8::from(*a == take[s]))).collect();
        vec![(0..STATES.len()).map(row).collect(); process.horizon]
    }

    #[test]
    fn values_by_hand() {
        // read, test, edit until right, submit: `failed` → `right` with 0.8, else `wrong`, which is tested again.
        let careful = ["read", "test", "test", "submit", "edit", "submit"];
        let set = RepairMdp { horizon: Between::try_from(4).unwrap(), step_cost: Unit::try_from(0.0).unwrap() }.open();
        let exact = solve(process(&set), &always(careful, process(&set)));
        // Four turns are enough for one edit alone.
        assert_eq!(exact.expected_return, 0.8);
        // Three turns end in `right` or `wrong`, and the fourth is always made.
        assert_eq!((exact.expected_turns, exact.visits[3][WRONG]), (4.0, 0.2));
        // Editing blindly.
        let blind = solve(process(&set), &always(["edit", "edit", "edit", "submit", "edit", "submit"], process(&set)));
        // 0.1 + 0.9·(0.2 + 0.8·0.2): the third edit is the last that a submission can follow
        assert!((blind.expected_return - 0.424).abs() < 1e-15);
    }

    #[test]
    fn the_uniform_policy_leaves_room_on_both_sides() {
        let set = RepairMdp { step_cost: Unit::try_from(0.05).unwrap(), ..RepairMdp::default() }.open();
        let process = process(&set);
        let logits = vec![process.rewards.iter().map(|row| vec![0.0; row.len()]).collect::<Vec<_>>(); process.horizon];
        let uniform = solve(process, &softmax(&logits));
        let careful = solve(process, &always(["read", "test", "test", "submit", "edit", "submit"], process));
        println!(
            "uniform {:.4} in {:.4} turns, careful {:.4}",
            uniform.expected_return, uniform.expected_turns, careful.expected_return
        );
        // One action in four submits: Σ_{t<40} 0.75^t = 4 (1 − 0.75^40)
        assert!((uniform.expected_turns - 4.0 * (1.0 - 0.75f64.powi(40))).abs() < 1e-12);
        assert!(uniform.expected_return > -0.2 && uniform.expected_return < 0.1 && careful.expected_return > 0.7);
    }

    #[test]
    fn the_task_is_pinned() {
        // A change here changes every result recorded with this environment.
        assert_eq!(RepairMdp::default().open().fingerprint(), "repair-mdp/1/3cee02f7414af637");
        let paid = RepairMdp { step_cost: Unit::try_from(0.05).unwrap(), ..RepairMdp::default() };
        assert_ne!(paid.open().fingerprint(), RepairMdp::default().open().fingerprint());
    }

    #[test]
    fn configuration_names_the_key_that_is_wrong() {
        let error = |json: &str| serde_json::from_str::<RepairMdp>(json).unwrap_err().to_string();
        assert!(error(r#"{ "cost": 0.1 }"#).contains("unknown field `cost`"));
        assert!(error(r#"{ "step_cost": 1.5 }"#).contains("must be in 0..=1, got 1.5"));
        assert!(error(r#"{ "horizon": 0 }"#).contains("must be in 1..=1000, got 0"));
        let example: RepairMdp = toml::from_str(registry::plugin(Kind::Environment, "repair-mdp").unwrap().example).unwrap();
        assert_eq!((example.horizon.get(), *example.step_cost), (40, 0.05));
    }
}
