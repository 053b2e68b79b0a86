//! Another environment's tasks, drawn by how often they were solved of late.
//!
//! Each training task has a running pass rate `p`, an exponential average that begins at `prior`. When an update has trained on
//! a group of the task,
//!
//! `p ← p + step_size · (solved / members − p)`
//!
//! and a group whose members all failed to run changes nothing, nor does one that holds pieces of episodes alone (`macro-step`). Every draw takes task `i` with probability
//!
//! `q_i = floor / n + (1 − floor) · s_i / Σ_j s_j`
//!
//! over the `n` training tasks, or `1 / n` if all scores `s` are 0. `favour` says what the score is:
//!
//! * `"learnability"`: `s = p (1 − p)`, the variance of the outcome, largest for a task that is solved every other time: the
//!   score of Rutherford and others 2024 (No Regrets: Investigating and Improving Regret Approximations for Curriculum
//!   Discovery, arXiv 2408.15099), and of ProCuRL (Tzannetos and others 2023, Proximal Curriculum for Reinforcement Learning
//!   Agents, arXiv 2304.12877) where every task can be solved. Rutherford and others measure `p` by rollouts of their own and
//!   draw from a buffer of the tasks that score best; here it comes from the training rollouts, and the score is a weight.
//! * `{ band = [low, high] }`: `s = 1` where `low ≤ p ≤ high`, else 0: the goals of intermediate difficulty of Florensa and
//!   others 2018 (Automatic Goal Generation for Reinforcement Learning Agents, arXiv 1705.06366).
//!
//! A task that was never drawn has the pass rate `prior`: at 0.5, the default, it is drawn like the best ones. In a band that
//! does not hold `prior` it is drawn by `floor` alone. Reductions: `floor = 1` and `step_size = 0` draw all tasks alike.
//!
//! Draws are independent: a task can come twice in an update, and there are no epochs. Draw `d` of a run depends on the run's
//! seed, `d` and the pass rates, on nothing else. Tasks, episodes and fingerprint are those of the environment below, whose own
//! way of drawing is not asked. The state is the pass rates, saved to the bit, and the state of the environment below.

use std::collections::BTreeMap;

use ascribe_core::environment::{Capabilities, EnvironmentError, Oracle, Outcome, TRAIN, TaskId};
use ascribe_core::range::Unit;
use ascribe_core::{BuildContext, BuildError, Draw, Environment, Provide, Seeds, Slot, TaskSet, TaskSetConfig, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Format of the state.
const VERSION: u32 = 1;

/// Which tasks are drawn more often than others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Favour {
    /// Those that are neither always solved nor never.
    #[default]
    Learnability,
    /// Those whose pass rate lies between two numbers in 0..=1, the first not above the second.
    Band(Band),
}

/// Pass rates from a lower to an upper end, both included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "[Unit; 2]", into = "[Unit; 2]")]
#[schemars(with = "[Unit; 2]")]
pub struct Band {
    low: Unit,
    high: Unit,
}
impl TryFrom<[Unit; 2]> for Band {
    type Error = String;
    fn try_from([low, high]: [Unit; 2]) -> Result<Self, String> {
        if low <= high {
            Ok(Self { low, high })
        } else {
            Err(format!("a band's lower end must not be above its upper one, got [{}, {}]", *low, *high))
        }
    }
}
impl From<Band> for [Unit; 2] {
    fn from(Band { low, high }: Band) -> Self {
        [low, high]
    }
}

impl Favour {
    /// The score of a pass rate.
    fn score(self, p: f64) -> f64 {
        match self {
            Favour::Learnability => p * (1.0 - p),
            Favour::Band(Band { low, high }) => f64::from(u8::from((*low..=*high).contains(&p))),
        }
    }
}

fn half() -> Unit {
    Unit::try_from(0.5).expect("0.5 is in 0..=1")
}
fn a_fifth() -> Unit {
    Unit::try_from(0.2).expect("0.2 is in 0..=1")
}

/// `[environment.curriculum]`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Curriculum {
    /// The environment whose tasks are drawn.
    pub of: Slot<dyn TaskSetConfig>,
    /// Which tasks are drawn more often: `"learnability"`, or `{ band = [0.2, 0.8] }`.
    #[serde(default)]
    pub favour: Favour,
    /// How far a pass rate moves towards the newest one, in 0..=1; 1 forgets all before.
    #[serde(default = "half")]
    pub step_size: Unit,
    /// Pass rate of a task that was not drawn yet, in 0..=1.
    #[serde(default = "half")]
    pub prior: Unit,
    /// Share of the draws that takes all tasks alike, in 0..=1. With 0, a task whose score is 0 never comes again.
    #[serde(default = "a_fifth")]
    pub floor: Unit,
}

plugin! {
    Environment "curriculum" {
        summary: "Another environment's tasks, drawn by their running pass rates.",
        source: "Rutherford and others 2024, No Regrets: Investigating and Improving Regret Approximations for Curriculum \
                 Discovery, arXiv 2408.15099; Florensa and others 2018, Automatic Goal Generation for Reinforcement Learning \
                 Agents, arXiv 1705.06366",
        when: "Where many groups are all solved or all failed, from which estimators that compare members learn nothing. Not \
               to compare methods: each would be trained on other tasks. Pass rates need several visits of each task.",
        example: "of = \"bugfix\"\nfavour = \"learnability\"\nstep_size = 0.5\nprior = 0.5\nfloor = 0.2",
        module: "curriculum.rs",
    }
    impl TaskSetConfig for Curriculum {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            Ok(Box::new(self.over(self.of.build(context)?)))
        }
        fn provides(&self) -> Vec<Provide> {
            self.of.provides()
        }
    }
}

impl Curriculum {
    fn over(&self, of: Box<dyn TaskSet>) -> CurriculumTasks {
        let Curriculum { favour, step_size, prior, floor, .. } = *self;
        let rules = Rules { favour, step_size: *step_size, prior: *prior, floor: *floor };
        CurriculumTasks { of, rules, rates: BTreeMap::new() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    favour: Favour,
    step_size: f64,
    prior: f64,
    floor: f64,
}

/// The tasks of `[environment.curriculum]`.
struct CurriculumTasks {
    of: Box<dyn TaskSet>,
    rules: Rules,
    /// Running pass rates of the training tasks that were played.
    rates: BTreeMap<u32, f64>,
}

/// What is saved.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    /// Training tasks there are.
    tasks: usize,
    /// Pass rates by task, as bits: decimal text need not come back as the same number.
    rates: BTreeMap<u32, u64>,
    /// State of the environment below.
    of: Vec<u8>,
}

impl CurriculumTasks {
    /// `q`: the probability of each training task, in their order.
    fn probabilities(&self) -> Vec<f64> {
        let Rules { favour, prior, floor, .. } = self.rules;
        let n = self.of.len(TRAIN);
        let score = |i: usize| favour.score(self.rates.get(&(i as u32)).copied().unwrap_or(prior));
        let scores: Vec<f64> = (0..n).map(score).collect();
        let sum: f64 = scores.iter().sum();
        let alike = 1.0 / n as f64;
        scores.iter().map(|s| if sum > 0.0 { floor * alike + (1.0 - floor) * s / sum } else { alike }).collect()
    }
}

impl TaskSet for CurriculumTasks {
    fn capabilities(&self) -> &Capabilities {
        self.of.capabilities()
    }

    fn splits(&self) -> Vec<String> {
        self.of.splits()
    }

    fn len(&self, split: &str) -> usize {
        self.of.len(split)
    }

    fn name(&self, task: &TaskId) -> String {
        self.of.name(task)
    }

    fn category(&self, task: &TaskId) -> Option<String> {
        self.of.category(task)
    }

    /// The tasks are the same: runs with and without a curriculum can be measured on one another's.
    fn fingerprint(&self) -> String {
        self.of.fingerprint()
    }

    fn draw(&mut self, n: usize, drawn: u64, seeds: Seeds) -> Vec<TaskId> {
        let mut below = 0.0;
        let ends: Vec<f64> = self
            .probabilities()
            .into_iter()
            .map(|q| {
                below += q;
                below
            })
            .collect();
        let Some(last) = ends.len().checked_sub(1) else { return Vec::new() };
        let task = |d: u64| {
            let draw = Draw { update: (d >> 32) as u32, group: d as u32, ..Draw::default() };
            let chance = seeds.rng("curriculum", draw).unit() * ends[last];
            // The first whose share ends beyond `chance`. Rounding may leave `chance` at the very end: then it is the last.
            let index = ends.partition_point(|end| *end <= chance).min(last);
            TaskId { split: TRAIN.into(), index: index as u32 }
        };
        (drawn..drawn + n as u64).map(task).collect()
    }

    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        self.of.open(task, seed)
    }

    fn learn(&mut self, outcomes: &[Outcome]) {
        let n = self.of.len(TRAIN);
        for Outcome { task, returns, solved } in outcomes {
            if task.split != TRAIN || task.index as usize >= n || returns.is_empty() {
                continue;
            }
            let newest = (*solved as f64 / returns.len() as f64).min(1.0);
            let p = self.rates.entry(task.index).or_insert(self.rules.prior);
            *p += self.rules.step_size * (newest - *p);
        }
        self.of.learn(outcomes);
    }

    fn oracle(&self, task: &TaskId) -> Option<&dyn Oracle> {
        self.of.oracle(task)
    }

    fn save(&self) -> Vec<u8> {
        let rates = self.rates.iter().map(|(task, p)| (*task, p.to_bits())).collect();
        let saved = Saved { version: VERSION, tasks: self.of.len(TRAIN), rates, of: self.of.save() };
        serde_json::to_vec(&saved).expect("a state is plain data")
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let foreign =
            |e: serde_json::Error| format!("this is no state of a curriculum ({e}): the run had none when it was saved");
        let Version { version } = serde_json::from_slice(bytes).map_err(foreign)?;
        if version != VERSION {
            return Err(format!("the curriculum's state has format {version}, this version reads {VERSION}"));
        }
        let saved: Saved = serde_json::from_slice(bytes).map_err(|e| format!("the curriculum's state is damaged: {e}"))?;
        let n = self.of.len(TRAIN);
        if saved.tasks != n {
            return Err(format!("the curriculum's state is of {} training tasks, there are {n}", saved.tasks));
        }
        let rates: BTreeMap<u32, f64> = saved.rates.into_iter().map(|(task, bits)| (task, f64::from_bits(bits))).collect();
        if let Some((task, p)) = rates.iter().find(|(task, p)| **task as usize >= n || !(0.0..=1.0).contains(*p)) {
            return Err(format!("the curriculum's state is damaged: task {task} of {n} has pass rate {p}"));
        }
        self.of.load(&saved.of)?;
        self.rates = rates;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ascribe_core::registry::{self, Kind};
    use proptest::prelude::*;

    use super::*;

    const SEEDS: Seeds = Seeds(3);

    fn context() -> BuildContext<'static> {
        BuildContext { seeds: SEEDS, device: "cpu", threads: 1, environment: None, nodes: BTreeSet::new(), base: ".".into() }
    }

    /// Over `tasks` small trees, with more keys.
    fn over_trees(tasks: usize, keys: serde_json::Value) -> CurriculumTasks {
        let tree = serde_json::json!({ "tasks": tasks, "depth": 1, "branches": 2, "rewards": "sparse", "states": "sums" });
        let mut config = serde_json::json!({ "of": { "token-tree": tree } });
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let config: Curriculum = serde_json::from_value(config).unwrap();
        config.over(config.of.build(&context()).unwrap())
    }

    fn outcome(index: u32, solved: usize, members: usize) -> Outcome {
        Outcome { task: TaskId { split: TRAIN.into(), index }, returns: vec![0.0; members], solved }
    }

    fn indices(tasks: Vec<TaskId>) -> Vec<u32> {
        tasks.into_iter().map(|task| task.index).collect()
    }

    #[test]
    fn probabilities_by_hand() {
        let mut tasks = over_trees(4, serde_json::json!({ "step_size": 0.5, "floor": 0.25 }));
        assert_eq!(tasks.probabilities(), [0.25; 4]);
        // ½ → ½ + ½ (1 − ½) = ¾, and ½ + ½ (¼ − ½) = ⅜; twice unsolved: ¼, ⅛. The fourth stays at ½.
        tasks.learn(&[outcome(0, 4, 4), outcome(1, 1, 4), outcome(2, 0, 4), outcome(2, 0, 2)]);
        assert_eq!(tasks.rates, BTreeMap::from([(0, 0.75), (1, 0.375), (2, 0.125)]));
        // Scores in 64ths: 12, 15, 7 and 16; their sum is 50.
        let want = [12.0, 15.0, 7.0, 16.0].map(|score| 0.0625 + 0.75 * score / 50.0);
        for (q, want) in tasks.probabilities().iter().zip(want) {
            assert!((q - want).abs() < 1e-15, "{q} is not {want}");
        }
        // In a band from ⅛ to ½ all but the first, its ends included.
        tasks.rules.favour = serde_json::from_value(serde_json::json!({ "band": [0.125, 0.5] })).unwrap();
        assert_eq!(tasks.probabilities(), [0.0625, 0.3125, 0.3125, 0.3125]);
        // Where no task has a score, all are alike.
        tasks.rules.favour = serde_json::from_value(serde_json::json!({ "band": [0.9, 1.0] })).unwrap();
        assert_eq!(tasks.probabilities(), [0.25; 4]);
    }

    #[test]
    fn what_did_not_run_or_is_not_trained_on_teaches_nothing() {
        let mut tasks = over_trees(2, serde_json::json!({}));
        let elsewhere = Outcome { task: TaskId { split: "test".into(), index: 0 }, ..outcome(0, 1, 1) };
        tasks.learn(&[outcome(0, 0, 0), outcome(2, 1, 1), elsewhere]);
        assert!(tasks.rates.is_empty());
    }

    #[test]
    fn tasks_are_drawn_as_often_as_the_probabilities_say() {
        let mut tasks = over_trees(4, serde_json::json!({ "step_size": 0.5, "floor": 0.25 }));
        for _ in 0..60 {
            tasks.learn(&[outcome(0, 8, 8), outcome(1, 0, 8)]);
        }
        // Always or never solved: what the floor gives, a sixteenth; the others share the rest.
        let q = tasks.probabilities();
        let n = 20_000;
        let mut count = [0.0; 4];
        indices(tasks.draw(n, 5_000_000_000, SEEDS)).iter().for_each(|i| count[*i as usize] += 1.0);
        for (count, q) in count.iter().zip(&q) {
            let error = (n as f64 * q * (1.0 - q)).sqrt();
            assert!((count - n as f64 * q).abs() < 4.0 * error, "{count} of {n} for {q}");
        }
        assert!((q[0] - 0.0625).abs() < 1e-9 && (q[3] - 0.4375).abs() < 1e-9);
        // Without a floor they do not come any more.
        let mut strict = over_trees(4, serde_json::json!({ "step_size": 1.0, "floor": 0.0 }));
        strict.learn(&[outcome(0, 8, 8), outcome(3, 0, 8)]);
        assert_eq!(indices(strict.draw(1000, 0, SEEDS)).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
    }

    #[test]
    fn a_draw_depends_on_its_number_and_not_on_the_call() {
        let mut tasks = over_trees(8, serde_json::json!({}));
        tasks.learn(&[outcome(0, 8, 8), outcome(1, 1, 8)]);
        let whole = tasks.draw(12, 100, SEEDS);
        let parts = [tasks.draw(5, 100, SEEDS), tasks.draw(0, 105, SEEDS), tasks.draw(7, 105, SEEDS)].concat();
        assert_eq!(whole, parts);
        assert_ne!(tasks.draw(12, 100, Seeds(4)), whole);
        assert_ne!(tasks.draw(12, 100 + (1 << 32), SEEDS), whole);
    }

    #[test]
    fn a_resumed_run_goes_the_same_way() {
        let made = || over_trees(16, serde_json::json!({ "step_size": 0.3 }));
        // Updates of four tasks, solved as often as their number says.
        let update = |tasks: &mut CurriculumTasks, drawn: u64| {
            let ids = tasks.draw(4, drawn, SEEDS);
            tasks.learn(&ids.iter().map(|id| outcome(id.index, id.index as usize % 8, 7)).collect::<Vec<_>>());
            ids
        };
        let mut whole = made();
        let all: Vec<_> = (0..20).map(|i| update(&mut whole, 4 * i)).collect();
        let mut first = made();
        let mut parts: Vec<_> = (0..9).map(|i| update(&mut first, 4 * i)).collect();
        let saved = first.save();
        let mut resumed = made();
        resumed.load(&saved).unwrap();
        assert_eq!((resumed.save(), &resumed.rates), (saved, &first.rates));
        parts.extend((9..20).map(|i| update(&mut resumed, 4 * i)));
        assert_eq!(all, parts);
        assert_eq!(whole.save(), resumed.save());
    }

    #[test]
    fn states_that_do_not_fit_are_refused_and_change_nothing() {
        let mut tasks = over_trees(3, serde_json::json!({}));
        tasks.learn(&[outcome(1, 1, 3)]);
        let saved = String::from_utf8(tasks.save()).unwrap();
        let mut refused = |text: &str| {
            let error = tasks.load(text.as_bytes()).unwrap_err();
            assert_eq!(tasks.save(), saved.as_bytes());
            error
        };
        assert!(refused("").starts_with("this is no state of a curriculum ("));
        let newer = saved.replace("\"version\":1", "\"version\":2");
        assert_eq!(refused(&newer), "the curriculum's state has format 2, this version reads 1");
        let fewer = saved.replace("\"tasks\":3", "\"tasks\":4");
        assert_eq!(refused(&fewer), "the curriculum's state is of 4 training tasks, there are 3");
        let nowhere = saved.replace("\"1\":", "\"7\":");
        assert!(refused(&nowhere).starts_with("the curriculum's state is damaged: task 7 of 3 has pass rate 0."));
        let bits = tasks.rates[&1].to_bits().to_string();
        let mut refused = |text: &str| tasks.load(text.as_bytes()).unwrap_err();
        let large = saved.replace(&bits, &2.0f64.to_bits().to_string());
        assert_eq!(refused(&large), "the curriculum's state is damaged: task 1 of 3 has pass rate 2");
        let nan = saved.replace(&bits, &f64::NAN.to_bits().to_string());
        assert_eq!(refused(&nan), "the curriculum's state is damaged: task 1 of 3 has pass rate NaN");
        let more = saved.replace("\"version\":1", "\"version\":1,\"more\":0");
        assert!(refused(&more).contains("damaged: unknown field `more`"));
    }

    #[test]
    fn everything_else_is_that_of_the_environment_below() {
        let config = |json: &str| serde_json::from_str::<Box<dyn TaskSetConfig>>(json).unwrap();
        let few = r#"{ "sokoban": { "train_tasks": 5, "test_tasks": 3 } }"#;
        let below = config(few);
        // Curricula nest: the state below is saved with the one above.
        let above = config(&format!(r#"{{ "curriculum": {{ "of": {{ "curriculum": {{ "of": {few} }} }} }} }}"#));
        assert_eq!(above.provides(), below.provides());
        let (mut above, below) = (above.build(&context()).unwrap(), below.build(&context()).unwrap());
        assert_eq!(above.fingerprint(), below.fingerprint());
        assert_eq!((above.splits(), above.len("test")), (below.splits(), 3));
        assert_eq!(above.capabilities().vocabulary, below.capabilities().vocabulary);
        let id = TaskId { split: "test".into(), index: 2 };
        assert_eq!((above.name(&id), above.category(&id)), (below.name(&id), below.category(&id)));
        assert_eq!(above.open(&id, 0).unwrap().observe(), below.open(&id, 0).unwrap().observe());
        assert_eq!(above.oracle(&id).unwrap().process(), below.oracle(&id).unwrap().process());
        above.learn(&[outcome(0, 1, 1)]);
        let saved: Saved = serde_json::from_slice(&above.save()).unwrap();
        let inner: Saved = serde_json::from_slice(&saved.of).unwrap();
        assert_eq!((inner.rates.len(), inner.of), (1, vec![]));
    }

    #[test]
    fn configuration_names_the_key_that_is_wrong() {
        let error = |json: &str| serde_json::from_str::<Curriculum>(json).unwrap_err().to_string();
        assert!(error("{}").contains("missing field `of`"));
        assert!(error(r#"{ "of": "bugfix", "rate": 1 }"#).contains("unknown field `rate`"));
        assert!(error(r#"{ "of": "no-such" }"#).contains("unknown variant `no-such`"));
        assert!(error(r#"{ "of": "bugfix", "floor": 2 }"#).contains("must be in 0..=1, got 2"));
        let band = |band: &str| error(&format!(r#"{{ "of": "bugfix", "favour": {{ "band": {band} }} }}"#));
        assert!(band("[0.8, 0.2]").contains("a band's lower end must not be above its upper one, got [0.8, 0.2]"));
        assert!(band("[0.5, 1.5]").contains("must be in 0..=1, got 1.5"));
        // What stands below is asked when it is built.
        let config: Curriculum = serde_json::from_str(r#"{ "of": { "sokoban": { "max_turns": 3 } } }"#).unwrap();
        let built = config.build(&context()).err().unwrap();
        assert!(matches!(built, BuildError::Config(why) if why.contains("must not be above `max_turns` 3")));
        let row = registry::plugin(Kind::Environment, "curriculum").unwrap();
        let example: Curriculum = toml::from_str(row.example).unwrap();
        let bare: Curriculum = serde_json::from_str(r#"{ "of": "bugfix" }"#).unwrap();
        assert_eq!(serde_json::to_string(&example).unwrap(), serde_json::to_string(&bare).unwrap());
        let keys: toml::Table = toml::from_str(row.example).unwrap();
        assert_eq!(keys.len(), 5, "the example says every key");
        let other: Curriculum = toml::from_str("of = \"bugfix\"\nfavour = { band = [0.2, 0.8] }").unwrap();
        assert_eq!(serde_json::to_value(&other).unwrap()["favour"], serde_json::json!({ "band": [0.2, 0.8] }));
    }

    proptest! {
        #[test]
        fn probabilities_sum_to_one_and_keep_to_the_floor(
            played in prop::collection::vec((0u32..6, 0usize..=4, 1usize..=4), 0..40),
            (step_size, prior, floor) in (0.0..=1.0f64, 0.0..=1.0f64, 0.0..=1.0f64),
            band in prop::option::of((0.0..=1.0f64, 0.0..=1.0f64)),
        ) {
            let favour = match band {
                Some((a, b)) => serde_json::json!({ "band": [a.min(b), a.max(b)] }),
                None => serde_json::json!("learnability"),
            };
            let keys = serde_json::json!({ "favour": favour, "step_size": step_size, "prior": prior, "floor": floor });
            let mut tasks = over_trees(6, keys);
            tasks.learn(&played.iter().map(|(i, solved, n)| outcome(*i, *solved, *n)).collect::<Vec<_>>());
            prop_assert!(tasks.rates.values().all(|p| (0.0..=1.0).contains(p)));
            let q = tasks.probabilities();
            prop_assert!((q.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            prop_assert!(q.iter().all(|q| *q >= floor / 6.0 * (1.0 - 1e-12) && *q <= 1.0 + 1e-12));
            let saved = tasks.save();
            let mut other = over_trees(6, serde_json::json!({}));
            other.load(&saved).unwrap();
            prop_assert_eq!(&other.rates, &tasks.rates);
        }

        #[test]
        fn a_task_that_is_solved_again_is_drawn_less(times in 1usize..50, step_size in 0.01..=1.0f64) {
            let mut tasks = over_trees(5, serde_json::json!({ "step_size": step_size }));
            let mut before = tasks.probabilities()[2];
            for _ in 0..times {
                tasks.learn(&[outcome(2, 4, 4)]);
                let now = tasks.probabilities()[2];
                // Once the pass rate is 1 to rounding it stays where it is.
                prop_assert!(now < before || tasks.rates[&2] > 1.0 - 1e-9);
                before = now;
            }
        }
    }
}
