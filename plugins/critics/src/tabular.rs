//! A table of values by exact state key, learned from what the episodes show.
//!
//! `V(s) ← V(s) + step · (target − V(s))` once per update for every state that was visited, with the mean of its targets over
//! the update's visits (turns that were tried from there); without `step_size`, `V(s)` is the mean of the targets of all visits
//! so far. Targets are computed with the values that were judged, before anything is learned.
//!
//! Sutton and Barto 2018, sections 5.1 (the mean of visits), 6.1 (a constant step) and 12.1 (λ-returns).
//! Reductions: `target = "lambda"` with `lambda = 0` is TD(0), with `lambda = 1` it is `target = "return"`; `step_size = 1` is the
//! last update's mean.
//! Edge cases: a state that was never visited has `initial`, which counts as no visit; the end of a path that truly ended has 0;
//! a turn that was not tried is no visit. `target = "estimator"` needs an
//! estimator that gives targets for `value`: most give none.
//!
//! Cost: no tokens; memory and checkpoints hold a number and a count per state that was visited.

use std::collections::BTreeMap;

use ascribe_core::critic::Lesson;
use ascribe_core::key::KeyId;
use ascribe_core::policy::PolicyError;
use ascribe_core::range::{Finite, Fraction, Unit};
use ascribe_core::rollout::Acting;
use ascribe_core::{Batch, BuildContext, BuildError, Credit, Critic, CriticConfig, Need, Provide, Scope, Signal, plugin};
use ascribe_math::explained_variance;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::states::{self, VALUE};
use crate::targets::{Recipe, Target};

/// `[critic.NAME.tabular]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tabular {
    /// Share of the way to the update's target that a value goes, above 0 and at most 1; without it values are means over all
    /// visits.
    #[serde(default)]
    pub step_size: Option<Fraction>,
    /// What values learn.
    #[serde(default)]
    pub target: Target,
    /// Discount per turn, in 0..=1.
    #[serde(default = "one")]
    pub gamma: Unit,
    /// Weight of longer returns in `target = "lambda"`, in 0..=1.
    #[serde(default = "one")]
    pub lambda: Unit,
    /// Value of a state that was not visited yet.
    #[serde(default = "zero")]
    pub initial: Finite,
}

fn one() -> Unit {
    Unit::try_from(1.0).expect("in range")
}
fn zero() -> Finite {
    Finite::try_from(0.0).expect("in range")
}

plugin! {
    Critic "tabular" {
        summary: "A table of values by state, learned from the episodes.",
        source: "Sutton and Barto 2018, Reinforcement learning: an introduction, sections 5.1, 6.1, 12.1",
        when: "Environments whose states recur, with exact state keys: a critic that learns, without function approximation.",
        example: "step_size = 0.1\ntarget = \"lambda\"\nlambda = 0.9",
        module: "tabular.rs",
    }
    impl CriticConfig for Tabular {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            Ok(Box::new(Table { name: name.into(), config: self.clone(), entries: BTreeMap::new() }))
        }
        fn needs(&self) -> Vec<Need> {
            [Need::ExactStateKey].into_iter().chain(self.target.needs(VALUE)).collect()
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(VALUE.into(), Scope::State)]
        }
    }
}

/// A state's value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    value: f64,
    visits: u64,
}

/// Format of what is saved.
const FORMAT: u32 = 1;

/// What is saved.
#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    entries: Vec<(Vec<u8>, Entry)>,
}

struct Table {
    name: String,
    config: Tabular,
    /// By exact state key.
    entries: BTreeMap<Vec<u8>, Entry>,
}

impl Critic for Table {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(VALUE.into(), Scope::State)]
    }

    fn judge(&mut self, batch: &Batch, _acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let column = states::column(batch, |group, after| {
            if states::is_over(group, after) {
                return Some(0.0);
            }
            let key = batch.keys.bytes(states::key(group, after)?);
            Some(self.entries.get(key).map_or(*self.config.initial, |entry| entry.value) as f32)
        });
        Ok(vec![(VALUE.into(), Signal { scope: Scope::State, provider: self.name.clone(), column })])
    }

    fn learn(&mut self, batch: &Batch, credit: &[Credit], acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let recipe = Recipe { target: self.config.target, gamma: *self.config.gamma, lambda: *self.config.lambda };
        let (mut predicted, mut wanted) = (Vec::new(), Vec::new());
        // Sum and number of an update's targets by state.
        let mut visited: BTreeMap<KeyId, (f64, u64)> = BTreeMap::new();
        for (group, credit) in batch.groups().zip(credit).filter(|(group, _)| group.n_turns() > 0) {
            let (values, tried) = (group.state_signal(VALUE), group.tried());
            for (t, target) in recipe.before_turns(VALUE, group, credit).into_iter().enumerate().filter(|(t, _)| tried[*t]) {
                let Some(target) = target.map(f64::from) else { continue };
                predicted.push(values.before(t));
                wanted.push(target);
                let (sum, n) = visited.entry(group.states()[t]).or_default();
                *sum += target;
                *n += 1;
            }
        }
        for (key, (sum, n)) in visited {
            let new = Entry { value: *self.config.initial, visits: 0 };
            let entry = self.entries.entry(batch.keys.bytes(key).to_vec()).or_insert(new);
            entry.visits += n;
            let share = self.config.step_size.map_or(n as f64 / entry.visits as f64, |step| *step);
            entry.value += share * (sum / n as f64 - entry.value);
        }
        acting.metrics.set(format!("critic/{}/states", self.name), self.entries.len() as f64);
        if !predicted.is_empty() {
            let mean = predicted.iter().sum::<f64>() / predicted.len() as f64;
            acting.metrics.set(format!("critic/{}/value_mean", self.name), mean);
        }
        if let Some(explained) = explained_variance(&predicted, &wanted) {
            acting.metrics.set(format!("critic/{}/explained_variance", self.name), explained);
        }
        Ok(Vec::new())
    }

    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        let saved = Saved { format: FORMAT, entries: self.entries.iter().map(|(key, entry)| (key.clone(), *entry)).collect() };
        serde_json::to_vec(&saved).map_err(|e| PolicyError::NonFinite(format!("the table cannot be written: {e}")))
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        let refused = |why: String| PolicyError::Load(format!("critic `{}`: {why}", self.name));
        let saved: Saved = serde_json::from_slice(bytes).map_err(|e| refused(e.to_string()))?;
        if saved.format != FORMAT {
            return Err(refused(format!("its table has format {}, this version reads {FORMAT}", saved.format)));
        }
        self.entries = saved.entries.into_iter().collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::batch::NonFinite;
    use ascribe_core::credit;
    use ascribe_core::log::{Action, End, GroupLog, TurnLog};
    use ascribe_core::{Limit, NamedCritic};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{World, group};

    const WON: End = End::Terminated { success: true };

    fn turn(parent: Option<usize>, state: u8, after: u8, reward: f32) -> TurnLog {
        TurnLog {
            parent,
            state: vec![state],
            state_after: vec![after],
            reward,
            action: Action::given(vec![5]),
            ..TurnLog::default()
        }
    }
    /// 1 → 2 → over, paid 0 and 1.
    fn chain() -> GroupLog {
        group(vec![turn(None, 1, 2, 0.0), turn(Some(0), 2, 3, 1.0)], &[(1, WON)])
    }

    struct Run {
        world: World,
        critic: NamedCritic,
    }
    impl Run {
        fn new(body: &str) -> Self {
            let world = World::new(("repair-mdp", ""), &[], Vec::new());
            let critic = NamedCritic { name: "judge".into(), critic: world.critic("judge", "tabular", body) };
            Self { world, critic }
        }
        fn judged(&mut self, groups: Vec<GroupLog>) -> Batch {
            let mut batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
            self.world.judge(&mut self.critic, &mut batch).unwrap();
            batch
        }
        /// Judges and learns; gives the values that were judged.
        fn update(&mut self, groups: Vec<GroupLog>) -> Vec<f32> {
            let batch = self.judged(groups);
            let credit: Vec<Credit> = batch.groups().map(|g| Credit::per_turn(vec![0.0; g.n_turns()])).collect();
            self.world.metrics = ascribe_core::Metrics::default();
            let critic = &mut self.critic.critic;
            let lessons = self.world.act(|acting| critic.learn(&batch, &credit, acting)).unwrap();
            assert!(lessons.is_empty(), "it trains itself");
            values(&batch)
        }
        fn metric(&self, name: &str) -> Option<f64> {
            self.world.metrics.get(&format!("critic/judge/{name}"))
        }
    }
    fn values(batch: &Batch) -> Vec<f32> {
        batch.signals[VALUE].column.all().unwrap().to_vec()
    }

    #[test]
    fn a_constant_step_goes_its_share_of_the_way() {
        let mut run = Run::new("step_size = 0.5\ninitial = 2.0");
        assert_eq!(run.update(vec![chain()]), [2.0, 2.0, 0.0]);
        // 2 + ½ (1 − 2), for both states
        assert_eq!(run.update(vec![chain()]), [1.5, 1.5, 0.0]);
        assert_eq!(run.update(vec![chain()]), [1.25, 1.25, 0.0]);
        assert_eq!(run.metric("states"), Some(2.0));
        assert_eq!(run.metric("value_mean"), Some(1.25));
        // all targets are 1
        assert_eq!(run.metric("explained_variance"), None);
    }

    #[test]
    fn without_a_step_it_is_the_mean_of_all_visits() {
        let mut run = Run::new("initial = 7.0");
        let lost = || group(vec![turn(None, 1, 4, 0.0)], &[(0, End::Terminated { success: false })]);
        run.update(vec![chain(), lost()]);
        run.update(vec![lost()]);
        // state 1: returns 1, 0, 0
        let judged = values(&run.judged(vec![chain()]));
        assert!((judged[0] - 1.0 / 3.0).abs() < 1e-7, "{judged:?}");
        assert_eq!(judged[1..], [1.0, 0.0]);
    }

    #[test]
    fn one_step_targets_use_the_values_that_were_judged() {
        let mut run = Run::new("step_size = 1.0\ntarget = \"lambda\"\nlambda = 0.0\ngamma = 0.5");
        assert_eq!(run.update(vec![chain()]), [0.0, 0.0, 0.0]);
        // V(2) learned 1; V(1) learned 0 + ½ · 0
        assert_eq!(run.update(vec![chain()]), [0.0, 1.0, 0.0]);
        assert_eq!(run.update(vec![chain()]), [0.5, 1.0, 0.0]);
        assert_eq!(run.metric("explained_variance"), Some(1.0));
    }

    #[test]
    fn a_limit_hands_on_the_value_of_the_last_state() {
        let mut run = Run::new("step_size = 1.0\ninitial = 0.25");
        let cut = || group(vec![turn(None, 1, 2, 1.0)], &[(0, End::Truncated(Limit::Turns))]);
        run.update(vec![cut()]);
        assert_eq!(values(&run.judged(vec![cut()])), [1.25, 0.25]);
    }

    #[test]
    fn a_turn_that_was_not_tried_is_no_visit() {
        let mut run = Run::new("");
        let turns = vec![turn(None, 1, 2, 1.0), TurnLog { state_after: Vec::new(), ..turn(None, 1, 0, 0.0) }];
        run.update(vec![group(turns.clone(), &[(0, WON), (1, End::Untried)])]);
        assert_eq!(values(&run.judged(vec![group(turns, &[(0, WON), (1, End::Untried)])])), [1.0, 0.0, 0.0]);
        assert_eq!(run.critic.critic.save().unwrap(), Saved::of(&[(1, 1.0, 1)]));
    }
    impl Saved {
        fn of(entries: &[(u8, f64, u64)]) -> Vec<u8> {
            let entry = |(key, value, visits): &(u8, f64, u64)| (vec![*key], Entry { value: *value, visits: *visits });
            serde_json::to_vec(&Saved { format: FORMAT, entries: entries.iter().map(entry).collect() }).unwrap()
        }
    }

    #[test]
    fn a_saved_table_goes_on_to_the_bit_and_another_is_refused() {
        let mut run = Run::new("step_size = 0.3");
        run.update(vec![chain()]);
        let bytes = run.critic.critic.save().unwrap();
        let mut other = Run::new("step_size = 0.3");
        other.critic.critic.load(&bytes).unwrap();
        for _ in 0..3 {
            assert_eq!(run.update(vec![chain()]), other.update(vec![chain()]));
        }
        assert_eq!(run.critic.critic.save().unwrap(), other.critic.critic.save().unwrap());
        for (damaged, says) in
            [(&b"{"[..], "EOF"), (b"{\"format\":9,\"entries\":[]}", "format 9"), (&[0xff, 0xfe][..], "critic `judge`")]
        {
            let error = other.critic.critic.load(damaged).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // After an error it is as it was.
        assert_eq!(run.critic.critic.save().unwrap(), other.critic.critic.save().unwrap());
    }

    #[test]
    fn it_learns_what_the_estimator_asks_for() {
        let mut run = Run::new("target = \"estimator\"");
        let batch = run.judged(vec![chain()]);
        let none = [Credit::per_turn([0.0, 0.0])];
        let critic = &mut run.critic.critic;
        let column = [Some(0.5), Some(0.75), None].into_iter().collect();
        let target = credit::Target { scope: Scope::State, column };
        let given = vec![Credit { targets: [(VALUE.to_string(), target)].into(), ..none[0].clone() }];
        run.world.act(|acting| critic.learn(&batch, &given, acting)).unwrap();
        assert_eq!(values(&run.judged(vec![chain()])), [0.5, 0.75, 0.0]);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for (body, says) in [("step_size = 0.0", "above 0"), ("step_size = 1.5", "at most 1"), ("gamma = 2.0", "in 0..=1")] {
            let error = toml::from_str::<Tabular>(body).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn it_learns_the_values_of_the_policy_that_acts() {
        // The mean of n returns errs by at most 1/(2√n) in standard
        // deviation, as returns lie in 0..=1.
        let mut run = Run::new("");
        run.world = World::new(("repair-mdp", "horizon = 3"), &["actor"], Vec::new());
        run.world.improve(10);
        for _ in 0..10 {
            let groups = run.world.groups("independent", "groups = 200\ngroup_size = 1\ndecode = \"admissible\"");
            run.update(groups);
        }
        let mut batch = run.world.batch("independent", "groups = 200\ngroup_size = 1\ndecode = \"admissible\"");
        let mut exact = NamedCritic { name: "exact".into(), critic: run.world.critic("exact", "oracle", "") };
        run.world.judge(&mut exact, &mut batch).unwrap();
        let truth = values(&batch);
        batch.signals.clear();
        run.world.judge(&mut run.critic, &mut batch).unwrap();
        let saved: Saved = serde_json::from_slice(&run.critic.critic.save().unwrap()).unwrap();
        let visits: BTreeMap<Vec<u8>, u64> = saved.entries.into_iter().map(|(key, entry)| (key, entry.visits)).collect();
        let mut held = 0;
        for (i, (learned, truth)) in values(&batch).iter().zip(&truth).enumerate() {
            let group = batch.groups().find(|g| i <= g.rows().end + g.index()).unwrap();
            let after = i.checked_sub(group.rows().start + group.index() + 1);
            let Some(n) = visits.get(batch.keys.bytes(states::key(group, after).unwrap())) else { continue };
            assert!((learned - truth).abs() < 5.0 * 0.5 / (*n as f32).sqrt(), "{learned} {truth} {n}");
            held += usize::from(*truth > 0.05);
        }
        assert!(held > 50, "{held}");
        let fresh = run.world.groups("independent", "groups = 200\ngroup_size = 1\ndecode = \"admissible\"");
        run.update(fresh);
        assert!(run.metric("explained_variance").unwrap() > 0.1);
    }

    proptest! {
        #[test]
        fn the_order_of_groups_changes_nothing(rewards in prop::collection::vec(-4i8..4, 2..6), step in prop::option::of(1u8..=8)) {
            let body = step.map_or(String::new(), |step| format!("step_size = {}", f64::from(step) / 8.0));
            let path = |r: &i8| group(vec![turn(None, 1, 2, f32::from(*r))], &[(0, WON)]);
            let learned = |groups: Vec<GroupLog>| {
                let mut run = Run::new(&body);
                run.update(groups);
                run.critic.critic.save().unwrap()
            };
            let forward: Vec<_> = rewards.iter().map(path).collect();
            prop_assert_eq!(learned(forward.clone()), learned(forward.into_iter().rev().collect()));
        }
    }
}
