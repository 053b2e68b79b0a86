//! A native multi-turn tool environment: repairing short functions.
//!
//! The agent is given a broken function. It calls tools, at most `max_calls` of them:
//!
//! | call | what it does | what is read next |
//! |---|---|---|
//! | `<call> read </call>` | nothing | the function, a line per step: `big > 2`, `top min`, `more +1`, `gain id` |
//! | `<call> edit OP </call>` | changes the function | `changed`, or `nothing to change` (refused) |
//! | `<call> test </call>` | runs the visible test | `fail 4 -5 3 gives -4 wants 5` |
//! | `<call> submit </call>` | hands it in: hidden tests decide, 1 or 0 | the episode is over |
//! | anything else | nothing, but it counts | `unknown call` |
//!
//! A step's first word says what is meant, the rest what happens ([`program`]); the bug is the step whose two sides
//! disagree. `edit hardcode` replaces the function by the visible test's answer: the visible test passes, a hidden test
//! fails, and nothing can be repaired any more. Submitting that is an exploit; the column `exploit` on the turn of a
//! submission is 1 there, else 0, and it is absent from other turns. An edit that is wrong breaks a step that was right,
//! until its inverse mends it.
//!
//! Nothing is random but the expert. An episode's state is the function and the number of calls made: that is its exact
//! key. Snapshots hold, beside it, what was shown last and what the expert remembers. The observation's key is its text.
//!
//! # Why it is worth learning, and why it can be learned
//!
//! The tests of this module measure and bound it on the held-out tasks, whose functions do not occur in training:
//!
//! * Which edit is right stands only in what `read` shows. There are nine kinds of bug in equal shares, so an edit that is
//!   always the same solves a ninth; stacking edits solves more tasks only where a step that another edit would break is
//!   absent. Calls drawn at random seldom make the right edit and submit before they spoil it.
//! * It carries over: the words of held-out functions occur in training, and a label stands next to its step.
//!
//! The expert is noisy, such that a policy that clones it is mediocre in a way that a 0/1 reward can mend:
//!
//! * Mostly it makes the right edit (`expert_wrong`), so cloning shows which one it is, at little cost in tokens.
//! * Having made it, in three of four cases it hard-codes the test, to be sure that it passes, and submits that
//!   (`expert_exploit`). This is one temptation at one place, far from even odds: the likeliest action there is fatal, so
//!   greedy decoding of a faithful clone solves next to nothing, and random credit does not tip it over. Sampling solves
//!   about one task in five, evenly over tasks: of eight members seldom all fail.
//! * A group therefore has members that differ just there, and the reward says which is better. The exploit has to be
//!   unlearned while the edit before it, on the same failed trajectories, is kept: what credit assignment is about.
//!
//! All probabilities are keys, so calibration needs no code. More `expert_exploit` lowers sampled success of the clone
//! and raises the share of groups where all fail; more `expert_wrong` makes the mapping slower to learn and the gap
//! between cloning and its best smaller; `expert_noise = 0` gives a clone that has nothing left to learn.
//!
//! Cost: a call takes next to nothing, so an episode costs the policy's tokens alone, over at most `max_calls` turns: five
//! tokens at most for a call, and what it is answered.

pub mod episode;
pub mod expert;
pub mod program;
pub mod tasks;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ascribe_core::environment::{Capabilities, Environment, EnvironmentError, SnapshotKind, TRAIN, TaskId};
use ascribe_core::range::{Between, Unit};
use ascribe_core::{BuildContext, BuildError, Need, Provide, Scope, TaskSet, TaskSetConfig, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sealed::identity;
use episode::{Episode, Rules};
use expert::Noise;
use program::Op;
use tasks::{Task, Tasks};

/// The split of tasks to measure on.
pub const HELD_OUT: &str = "held_out";
/// The word that ends a call.
pub const STOP: &str = "</call>";
/// Largest number that an observation shows, by absolute value: a sum of elements, less another, and the constant.
const MAX_SHOWN: i64 = tasks::MAX_ELEMENT * (tasks::LIST_LEN as i64 + 1) + program::MAX_SHIFT;

/// `[environment.bugfix]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bugfix {
    /// Seed of the generator of tasks, any whole number that is not negative. The run's seed does not change the tasks.
    pub seed: u64,
    /// Tasks to train on, in 1..=4000.
    pub train_tasks: Between<1, 4000>,
    /// Tasks of the split `held_out`, in 1..=200.
    pub held_out_tasks: Between<1, 200>,
    /// Calls after which an episode is cut off, in 4..=16; without errors it takes 4.
    pub max_calls: Between<4, 16>,
    /// What each call costs, in 0..=1.
    pub call_cost: Unit,
    /// Reward of a submission that fails, in 0..=1, times the share of hidden tests that it passes.
    pub partial_score: Unit,
    /// Factor on the four probabilities below, in 0..=1; 0 is an expert without errors.
    pub expert_noise: Unit,
    /// Probability of reading or testing for no reason, at every turn, in 0..=1.
    pub expert_idle: Unit,
    /// Probability of an edit at random where a repair is due, in 0..=1.
    pub expert_wrong: Unit,
    /// Probability of hard-coding the visible test once nothing is left to repair, before having tested, in 0..=1.
    pub expert_exploit: Unit,
    /// Probability of submitting without a test or in the middle of the repair, in 0..=1.
    pub expert_hasty: Unit,
}

impl Default for Bugfix {
    fn default() -> Self {
        let count = "the default lies in its range";
        let unit = |x: f64| Unit::try_from(x).expect("the default lies in 0..=1");
        Self {
            seed: 0,
            train_tasks: Between::try_from(1000).expect(count),
            held_out_tasks: Between::try_from(40).expect(count),
            max_calls: Between::try_from(8).expect(count),
            call_cost: unit(0.0),
            partial_score: unit(0.0),
            expert_noise: unit(1.0),
            expert_idle: unit(0.08),
            expert_wrong: unit(0.15),
            expert_exploit: unit(0.75),
            expert_hasty: unit(0.4),
        }
    }
}

plugin! {
    Environment "bugfix" {
        summary: "Repair a short broken function with the tools read, edit, test and submit; hidden tests decide.",
        source: "",
        when: "To try a method within a minute on a CPU: several turns, a reward at the end, a tempting exploit. Not to \
               learn anything about real code.",
        example: "seed = 0\ntrain_tasks = 1000\nheld_out_tasks = 40\nmax_calls = 8\ncall_cost = 0.0\npartial_score = 0.0\n\
                  expert_noise = 1.0\nexpert_idle = 0.08\nexpert_wrong = 0.15\nexpert_exploit = 0.75\nexpert_hasty = 0.4",
        module: "mod.rs",
    }
    impl TaskSetConfig for Bugfix {
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
        Need::Signal("exploit".into(), Scope::Turn),
    ]
}

/// Words of observations and calls.
pub fn vocabulary() -> Vec<String> {
    let calls = ["<call>", STOP, "read", "edit", "test", "submit"];
    let words = calls.iter().chain(episode::WORDS).chain(program::WORDS).copied();
    let ops = Op::ALL.into_iter().map(Op::name);
    let numbers = (-MAX_SHOWN..=MAX_SHOWN).map(|n| n.to_string()).chain((0..=program::MAX_SHIFT).map(|n| format!("+{n}")));
    words.chain(ops).map(String::from).chain(numbers).collect()
}

impl Bugfix {
    /// Draws the tasks.
    ///
    /// # Errors
    /// If there are not that many different ones.
    pub fn open(&self) -> Result<BugfixTasks, String> {
        let Tasks { train, held_out } = tasks::generate(self.seed, self.train_tasks.get(), self.held_out_tasks.get())?;
        let rules = Rules {
            max_calls: self.max_calls.get(),
            call_cost: *self.call_cost,
            partial_score: *self.partial_score,
            noise: self.noise(),
        };
        // The expert is no part of the rules: its noise may change and the tasks stay the same.
        let hash = identity(&(&train, &held_out, rules.max_calls, rules.call_cost, rules.partial_score));
        let shared = |tasks: Vec<Task>| tasks.into_iter().map(Arc::new).collect();
        Ok(BugfixTasks {
            train: shared(train),
            held_out: shared(held_out),
            rules,
            fingerprint: format!("bugfix/1/{hash}"),
            capabilities: Capabilities {
                snapshot: SnapshotKind::Exact,
                exact_state_key: true,
                r_max: 1.0,
                max_turns: rules.max_calls,
                max_action_tokens: 5,
                stop: STOP.into(),
                vocabulary: vocabulary(),
                provides: provides(),
            },
        })
    }

    fn noise(&self) -> Noise {
        let scaled = |p: Unit| *p * *self.expert_noise;
        Noise {
            idle: scaled(self.expert_idle),
            wrong: scaled(self.expert_wrong),
            exploit: scaled(self.expert_exploit),
            hasty: scaled(self.expert_hasty),
        }
    }
}

/// The tasks of `[environment.bugfix]`.
#[derive(Debug)]
pub struct BugfixTasks {
    train: Vec<Arc<Task>>,
    held_out: Vec<Arc<Task>>,
    rules: Rules,
    fingerprint: String,
    capabilities: Capabilities,
}

impl BugfixTasks {
    /// A task, if there is one.
    pub fn task(&self, id: &TaskId) -> Option<&Arc<Task>> {
        self.split(&id.split).get(id.index as usize)
    }

    fn split(&self, name: &str) -> &[Arc<Task>] {
        match name {
            TRAIN => &self.train,
            HELD_OUT => &self.held_out,
            _ => &[],
        }
    }
}

impl TaskSet for BugfixTasks {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn splits(&self) -> Vec<String> {
        vec![TRAIN.into(), HELD_OUT.into()]
    }

    fn len(&self, split: &str) -> usize {
        self.split(split).len()
    }

    fn name(&self, task: &TaskId) -> String {
        match self.task(task) {
            Some(found) => format!("{}-{:04}", found.fix.name(), task.index),
            None => task.to_string(),
        }
    }

    /// The edit that repairs it.
    fn category(&self, task: &TaskId) -> Option<String> {
        self.task(task).map(|task| task.fix.name().into())
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// Nothing in an episode is random but the expert, so the seed is not read.
    fn open(&self, task: &TaskId, _seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        let found = self.task(task).ok_or_else(|| {
            let (train, held_out) = (self.train.len(), self.held_out.len());
            EnvironmentError(format!("bugfix has no task `{task}`: split train has {train} tasks, held_out {held_out}"))
        })?;
        let fingerprint = format!("{}/{task}", self.fingerprint).into();
        Ok(Box::new(Episode::new(Arc::clone(found), self.rules, fingerprint)))
    }
}
