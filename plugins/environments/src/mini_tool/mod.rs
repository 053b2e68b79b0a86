//! A research assistant with tools: it searches, calculates, verifies, answers, and says whether it was right.
//!
//! A task is a question about a small knowledge base ([`knowledge`]): it needs one fact or two, one calculation, and an
//! answer. The agent calls tools, at most `max_calls` of them; numbers are written with a word per digit:
//!
//! | call | what it does | what is read next |
//! |---|---|---|
//! | `search ENTITY ATTRIBUTE` | looks a fact up | `found earth radius 6 3 7 1`, or `found nothing` |
//! | `calculate EXPRESSION` | evaluates it, exactly ([`expression`]) | `result 4 0 0 3 0 . 1 3 9 7 8`, or `error division by zero` |
//! | `verify ENTITY ATTRIBUTE is NUMBER` | checks it | `verified`, or `not verified` |
//! | `answer NUMBER` | gives the answer, as a whole number | `the answer is right`, or `wrong` |
//! | `report right`, `report wrong` | after the answer, says which it was | the episode is over |
//! | anything else | nothing, but it counts | `unknown call` |
//!
//! The answer is right if it is the right number, rounded; it pays 1, and a wrong one −`failure_cost`. The report is no call to
//! a tool and pays nothing by itself. Where it cannot be read it agrees with nothing, and the episode is over all the same.
//!
//! Columns on every turn, each for `[reward]` to weigh:
//!
//! * `process_reward`, the rule-based process reward: 0.3 for a call that succeeds and −0.3 for one that fails, 1 for the right answer
//!   and −0.5 for a wrong one, 0 for the report. It contains the outcome: `[reward] env = 0, process_reward = 1`.
//! * `self_report_match`: 1 for a report that agrees with the outcome (RefGRPO's bonus, arXiv 2606.14211); `overconfident` and
//!   `underconfident`: 1 for a wrong answer reported as right, and for the right one reported as wrong. `self_report`, on turns that
//!   report: 1 for "right", 0 for "wrong", which the critic `calibration` reads. They are not there with `self_report = false`.
//!
//! # Where it comes from, and where it differs
//!
//! The section on trajectory credit assignment that ends in a "mini tool environment": nine facts, the tools `search`,
//! `calculate` and `verify`, the process reward, and two plans for the circumference of the earth, of which the bad one takes π
//! for 3. Both plans can be said here word for word (`search earth_radius`, `calculate 2 * 3.14159 * 6371`). Returns to go of
//! the bad one, γ = 0.95, turn by turn:
//!
//! | reward | search | calculate | verify | answer |
//! |---|---|---|---|---|
//! | outcome, failure 0 | 0 | 0 | 0 | 0 |
//! | outcome, failure −1 (`failure_cost = 1`) | −0.857 | −0.903 | −0.95 | −1 |
//! | `process = "carried"` | 0.427 | 0.134 | −0.175 | −0.5 |
//! | `process = "useful"` | −0.143 | −0.466 | −0.175 | −0.5 |
//!
//! The third row is what the section's code computes; the 0.656, 0.376, 0.170 printed beside it do not follow from it. Its
//! process reward asks only whether a tool did what it was told, so the calculation with the wrong π is praised, and so is
//! every search made twice: a sum of it pays for long episodes. What its prose says of process rewards, that they tell the right
//! steps from the wrong ones, is `"useful"`.
//!
//! Its `search` takes any fact that shares a word with the query, so that who asks for `gpt_release` is told Python's;
//! here a query needs both words of the fact. Its calculator drops letters and evaluates the rest; here `2 x` is an error. The
//! report and the stages are additions. In the section the verification decides nothing, and by default it does not here; with
//! `verification = "required"` an answer counts only after one.
//!
//! # How hard it is
//!
//! Nothing is random but the expert, who strays to a listed action with probability `expert_noise`, a wrong answer included. An
//! episode's state is what was found, calculated and verified, and the number of calls: that is its exact key. The listed
//! actions are searches for three facts and one that there is not, calculations by the right and by two wrong forms with the
//! numbers found, statements true and false, and as answers the numbers seen.
//!
//! On the held-out tasks of the default (`cargo test --release -p ascribe-environments -- --nocapture mini_tool`): listed actions
//! drawn at random solve 0.007 in 4.7 turns, the expert as it is 0.683 in 5.8, the expert without noise 1.000 in 5.6. An episode has
//! at most some 160 tokens, and at most 39 actions are listed.

pub mod call;
pub mod episode;
pub mod expression;
pub mod knowledge;
pub mod tasks;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ascribe_core::environment::{Capabilities, Environment, EnvironmentError, SnapshotKind, TRAIN, TaskId};
use ascribe_core::range::Unit;
use ascribe_core::{BuildContext, BuildError, Need, Provide, Scope, TaskSet, TaskSetConfig, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sealed::identity;
use ascribe_core::range::Between;
use episode::{AGREES, Episode, OVERCONFIDENT, PROCESS, Process, REPORT, Rules, UNDERCONFIDENT, Verification, WORDS};
use knowledge::FACTS;
use tasks::{Kind, Task, Tasks};

/// The split of tasks to measure on.
pub const HELD_OUT: &str = "held_out";
/// The word that ends a call.
pub const STOP: &str = "<end>";
/// Tokens that a call may have, the stop word included; the longest that is listed has 18.
const MAX_ACTION_TOKENS: usize = 32;

/// `[environment.mini-tool]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MiniTool {
    /// Seed of the order of tasks and of what misleads in them, any whole number that is not negative. The run's seed does not
    /// change the tasks.
    pub seed: u64,
    /// Tasks to train on, in 1..=1200; there are about 1100 in all.
    pub train_tasks: Between<1, 1200>,
    /// Tasks of the split `held_out`, in 1..=200.
    pub held_out_tasks: Between<1, 200>,
    /// Calls after which an episode is cut off, in 4..=16; without errors it takes 4, or 5 with two facts. The report is not
    /// one of them.
    pub max_calls: Between<4, 16>,
    /// What a wrong answer costs, in 0..=1: its reward is the negative of this. An episode that is cut before it answers pays 0, so
    /// above 0 not to answer pays more than to guess.
    pub failure_cost: Unit,
    /// Which calls the column `process_reward` takes for a success: `carried` out, or `useful`.
    pub process: Process,
    /// Whether the right answer counts without a verified fact: `optional` or `required`.
    pub verification: Verification,
    /// Whether the answer is followed by a report on it.
    pub self_report: bool,
    /// Probability that the expert strays, at every turn, in 0..=1.
    pub expert_noise: Unit,
}

impl Default for MiniTool {
    fn default() -> Self {
        let count = "the default lies in its range";
        let unit = |x: f64| Unit::try_from(x).expect("the default lies in 0..=1");
        Self {
            seed: 0,
            train_tasks: Between::try_from(600).expect(count),
            held_out_tasks: Between::try_from(42).expect(count),
            max_calls: Between::try_from(8).expect(count),
            failure_cost: unit(0.0),
            process: Process::Carried,
            verification: Verification::Optional,
            self_report: true,
            expert_noise: unit(0.3),
        }
    }
}

plugin! {
    Environment "mini-tool" {
        summary: "A research assistant: search, calculate, verify, answer, and report on the answer; with a process reward.",
        source: "",
        when: "To compare outcome and process rewards on several turns, or to reward honest self-reports, within minutes on a \
               CPU. Not to learn anything about real research.",
        example: "seed = 0\ntrain_tasks = 600\nheld_out_tasks = 42\nmax_calls = 8\nfailure_cost = 0.0\nprocess = \"carried\"\n\
                  verification = \"optional\"\nself_report = true\nexpert_noise = 0.3",
        module: "mod.rs",
    }
    impl TaskSetConfig for MiniTool {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            Ok(Box::new(self.open().map_err(BuildError::Config)?))
        }
        fn provides(&self) -> Vec<Provide> {
            self.columns()
        }
    }
}

/// Words of observations, calls and privileged text.
pub fn vocabulary() -> Vec<String> {
    let digits = (0..10).map(|digit: u32| digit.to_string());
    let symbols = [STOP, ".", "+", "-", "*", "/", "(", ")"];
    let questions = ["find", "of", "from", "its", "with", "kilograms", "on", "and", "that"];
    let kinds = Kind::ALL.map(Kind::name);
    let words = symbols.iter().chain(WORDS).chain(&questions).chain(&kinds).copied();
    let facts = FACTS.iter().flat_map(|fact| [fact.entity, fact.attribute]);
    let mut all: Vec<String> = digits.chain(words.chain(facts).map(String::from)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl MiniTool {
    /// Deals the tasks.
    ///
    /// # Errors
    /// If there are not that many.
    pub fn open(&self) -> Result<MiniToolTasks, String> {
        let Tasks { train, held_out } = tasks::generate(self.seed, self.train_tasks.get(), self.held_out_tasks.get())?;
        let rules = Rules {
            max_calls: self.max_calls.get(),
            failure_cost: *self.failure_cost,
            process: self.process,
            verification: self.verification,
            self_report: self.self_report,
        };
        // The expert is no part of the rules: its noise may change and the tasks stay the same.
        let hash = identity(&(FACTS, &train, &held_out, rules));
        let shared = |tasks: Vec<Task>| tasks.into_iter().map(Arc::new).collect();
        Ok(MiniToolTasks {
            train: shared(train),
            held_out: shared(held_out),
            rules,
            noise: *self.expert_noise,
            fingerprint: format!("mini-tool/1/{hash}"),
            capabilities: Capabilities {
                snapshot: SnapshotKind::Exact,
                exact_state_key: true,
                r_max: 1.0,
                max_turns: rules.max_calls + usize::from(rules.self_report),
                max_action_tokens: MAX_ACTION_TOKENS,
                stop: STOP.into(),
                vocabulary: vocabulary(),
                provides: self.columns(),
            },
        })
    }

    /// What it provides: the columns about the report only where there is one.
    fn columns(&self) -> Vec<Provide> {
        let mut columns = vec![PROCESS];
        if self.self_report {
            columns.extend([AGREES, OVERCONFIDENT, UNDERCONFIDENT, REPORT]);
        }
        let others =
            [Need::Expert, Need::Admissible, Need::ExactSnapshot, Need::ExactStateKey, Need::Privileged, Need::GroundTruth];
        others.into_iter().chain(columns.into_iter().map(|name| Need::Signal(name.into(), Scope::Turn))).collect()
    }
}

/// The tasks of `[environment.mini-tool]`.
#[derive(Debug)]
pub struct MiniToolTasks {
    train: Vec<Arc<Task>>,
    held_out: Vec<Arc<Task>>,
    rules: Rules,
    noise: f64,
    fingerprint: String,
    capabilities: Capabilities,
}

impl MiniToolTasks {
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

impl TaskSet for MiniToolTasks {
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
        self.task(task).map_or_else(|| task.to_string(), |found| found.name())
    }

    /// What is asked for.
    fn category(&self, task: &TaskId) -> Option<String> {
        self.task(task).map(|task| task.kind.name().into())
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// Nothing in an episode is random but the expert, so the seed is not read.
    fn open(&self, task: &TaskId, _seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        let found = self.task(task).ok_or_else(|| {
            let (train, held_out) = (self.train.len(), self.held_out.len());
            EnvironmentError(format!("mini-tool has no task `{task}`: split train has {train} tasks, held_out {held_out}"))
        })?;
        let fingerprint = format!("{}/{task}", self.fingerprint).into();
        Ok(Box::new(Episode::new(Arc::clone(found), self.rules, self.noise, fingerprint)))
    }
}
