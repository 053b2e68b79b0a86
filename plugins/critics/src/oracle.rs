//! Exact values of small tasks, by dynamic programming: what every other critic is measured against.
//!
//! `V(s) = Σ_a π(a|s) (r(s, a) + Σ_s' P(s'|s, a) V(s'))` per turn and state, undiscounted, for the policy that acts now, or for
//! another one on request: `uniform` (values that have gone stale) or `zero` (no values at all). For the acting policy it also
//! gives the exact advantage of each turn, `A(s, a) = Q(s, a) − V(s)`.
//!
//! Source: Bellman 1957; the tables are the environment's own (`ascribe explain repair-mdp`).
//! Reductions: with `of = "zero"` an estimator that bootstraps has no critic; with `of = "policy"` one-step TD errors are advantages in
//! the mean.
//! Edge cases: a turn whose action is none of the state's listed actions has no exact advantage; after a turn that was not tried
//! stands 0, and so it does at the start of a group of which every path failed; a state of a task without
//! tables has no value, and the environment is refused before the run. A policy that reads more than the state (a sequence
//! model) has no table: where its recorded log-probabilities differ from the table's the run stops and says so.
//! Cost: with `of = "policy"` one scoring pass over every listed action of every task in the batch, counted as the critic's tokens.

use std::collections::BTreeMap;

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{Oracle as Tables, Place, TaskId};
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Action, GroupLog, LeafLog, Origin, TurnLog};
use ascribe_core::mdp::{ActionTable, Solution, solve};
use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{PolicyError, ScoreRequest};
use ascribe_core::rollout::{Acting, node};
use ascribe_core::trie::Trie;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, End, Need, Policy, Provide, RowSet, Scope, Signal,
    plugin,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scored;
use crate::states::{self, VALUE};

/// Whose values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Of {
    /// The policy that acts, as it is now.
    #[default]
    Policy,
    /// The policy that takes each action equally often.
    Uniform,
    /// Nobody's: all are 0.
    Zero,
}

/// `[critic.NAME.oracle]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Oracle {
    /// Whose values.
    #[serde(default)]
    pub of: Of,
    /// Policy node whose values they are.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

plugin! {
    Critic "oracle" {
        summary: "Exact values and advantages of small tasks, by dynamic programming.",
        source: "Bellman 1957",
        when: "To see what an estimator does with perfect, stale or no values, on environments with tables (`repair-mdp`, `token-tree`).",
        example: "of = \"policy\"",
        module: "oracle.rs",
    }
    impl CriticConfig for Oracle {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            Ok(Box::new(Exact { name: name.into(), config: self.clone() }))
        }
        fn needs(&self) -> Vec<Need> {
            vec![Need::Oracle, Need::ExactStateKey, Need::Node(self.agent.clone())]
        }
        fn provides(&self) -> Vec<Provide> {
            columns().into_iter().map(|(name, scope)| Need::Signal(name, scope)).collect()
        }
    }
}

const ADVANTAGE: &str = "advantage_true";

fn columns() -> Vec<(String, Scope)> {
    vec![(VALUE.into(), Scope::State), (ADVANTAGE.into(), Scope::Turn)]
}

/// Turns that are checked against the recorded log-probabilities, per update, and how far both may lie apart.
const CHECKED: usize = 64;
const TOLERANCE: f64 = 1e-3;

struct Exact {
    name: String,
    config: Oracle,
}

impl Critic for Exact {
    fn provides(&self) -> Vec<(String, Scope)> {
        columns()
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let mut solved: BTreeMap<&TaskId, Solved<'_>> = BTreeMap::new();
        let stop = acting.tasks.capabilities().stop.clone();
        let temperature = batch.turns.temperature.first().copied().unwrap_or(1.0);
        let policy = &mut **node(acting.nodes, &self.config.agent)?;
        for group in &batch.groups {
            if solved.contains_key(&group.task) {
                continue;
            }
            let tables = acting.tasks.oracle(&group.task).ok_or_else(|| {
                PolicyError::Unsupported(format!("task `{}` has no tables from which exact values could follow", group.task_name))
            })?;
            let policy = match self.config.of {
                Of::Policy => probabilities(tables, policy, &stop, temperature, acting.ledger)?,
                Of::Uniform | Of::Zero => tables.policy(&|key, _| {
                    let n = tables.place(key).map_or(1, |place| tables.actions(place.state).len());
                    1.0 / n as f64
                }),
            };
            let exact = solve(tables.process(), &policy);
            solved.insert(&group.task, Solved { tables, policy, exact });
        }
        if self.config.of == Of::Policy {
            same_policy(batch, &solved)?;
        }
        let value = states::column(batch, |group, after| {
            let key = states::key(group, after)?;
            if self.config.of == Of::Zero {
                return Some(0.0);
            }
            let solved = &solved[&group.about().task];
            let Place { turn, state } = solved.tables.place(batch.keys.bytes(key))?;
            Some(solved.exact.values[turn][state] as f32)
        });
        let mut advantage = Column::absent(batch.scope_len(Scope::Turn));
        if self.config.of == Of::Policy {
            for (row, Taken { solved, turn, state, action }) in taken(batch, &solved) {
                advantage.set(row, solved.exact.advantages[turn][state][action] as f32);
            }
        }
        let signal = |scope, column| Signal { scope, provider: self.name.clone(), column };
        Ok(vec![(VALUE.into(), signal(Scope::State, value)), (ADVANTAGE.into(), signal(Scope::Turn, advantage))])
    }
}

/// A task's tables, a policy and what it is worth.
struct Solved<'a> {
    tables: &'a dyn Tables,
    policy: ActionTable,
    exact: Solution,
}

/// A recorded turn, as indices of the tables.
struct Taken<'a> {
    solved: &'a Solved<'a>,
    turn: usize,
    state: usize,
    action: usize,
}

/// The turns whose action is one of the tables', with their row in the batch.
fn taken<'a>(batch: &'a Batch, solved: &'a BTreeMap<&TaskId, Solved<'a>>) -> impl Iterator<Item = (usize, Taken<'a>)> {
    batch.groups().flat_map(|group| group.rows().map(move |row| (group, row))).filter_map(|(group, row)| {
        let solved = &solved[&group.about().task];
        let Place { turn, state } = solved.tables.place(batch.keys.bytes(batch.turns.state[row]))?;
        let action = solved.tables.action(state, &batch.notes[row].action)?;
        (turn < solved.policy.len()).then_some((row, Taken { solved, turn, state, action }))
    })
}

/// Whether the recorded turns were drawn from the tables of the policy.
fn same_policy(batch: &Batch, solved: &BTreeMap<&TaskId, Solved<'_>>) -> Result<(), PolicyError> {
    for (row, Taken { solved, turn, state, action }) in taken(batch, solved).take(CHECKED) {
        let sampled = batch.turns.sampled[row].range();
        let Some(logprobs) = batch.sampled.logprob.slice(sampled) else { continue };
        let recorded: f64 = logprobs.iter().map(|x| f64::from(*x)).sum();
        let now = solved.policy[turn][state][action].ln();
        if (recorded - now).abs() > TOLERANCE {
            let origin = batch.groups().find(|group| group.rows().contains(&row)).map(|group| group.about().origin.clone());
            if let Some(Origin::Replayed { age: age @ 1.. }) = origin {
                return Err(PolicyError::Unsupported(format!(
                    "a group was played {age} updates ago, by the policy of then, and exact values are those of the policy as it is: leave this \
                     critic out where groups come again (`replay`, `offline`, `dynamic-sampling` with `surplus = \"keep\"`)"
                )));
            }
            return Err(PolicyError::Unsupported(format!(
                "action `{}` was drawn with log-probability {recorded:.4}, but has {now:.4} by its state alone: exact values are those of a \
                 policy that reads nothing but the state (`tabular`) and plays with `decode = \"admissible\"`",
                batch.notes[row].action
            )));
        }
    }
    Ok(())
}

/// `π_t(a | s)` of a policy that reads the state alone, among the listed actions.
pub(crate) fn probabilities(
    tables: &dyn Tables,
    policy: &mut dyn Policy,
    stop: &str,
    temperature: f32,
    ledger: &mut Ledger,
) -> Result<ActionTable, PolicyError> {
    let tokenizer = policy.tokenizer();
    let unknown = |what: &str| PolicyError::Unsupported(format!("the policy's tokenizer does not know `{what}`"));
    let stop = tokenizer.token(stop).ok_or_else(|| unknown(stop))?;
    let (horizon, n_states) = (tables.process().horizon, tables.process().transitions.len());
    let mut table: ActionTable = vec![vec![Vec::new(); n_states]; horizon];
    // One group per place with a choice; its members are the actions.
    let mut places: Vec<Place> = Vec::new();
    let mut groups: Vec<GroupLog> = Vec::new();
    for (turn, of_turn) in table.iter_mut().enumerate() {
        for (state, row) in of_turn.iter_mut().enumerate() {
            *row = vec![1.0; tables.actions(state).len()];
            if row.len() < 2 {
                continue;
            }
            let place = Place { turn, state };
            let sequence = |action: &String| {
                let mut tokens = tokenizer.encode(action);
                tokens.push(stop);
                tokens
            };
            let trie = Trie::new(tables.actions(state).iter().map(sequence));
            let mut group = GroupLog::default();
            for action in tables.actions(state) {
                let said = Action::given_among(sequence(action), &trie).ok_or_else(|| unknown(action))?;
                group.leaves.push(LeafLog { turn: Some(group.turns.len()), end: End::Untried, seed: 0 });
                group.turns.push(TurnLog {
                    action: Action { temperature, ..said },
                    state: tables.state_key(place),
                    ..TurnLog::default()
                });
            }
            places.push(place);
            groups.push(group);
        }
    }
    let batch = Batch::from_groups(groups, NonFinite::Refuse).map_err(|e| PolicyError::Unsupported(e.to_string()))?;
    let credit: Vec<Credit> = batch.groups().map(|group| Credit::per_turn(vec![0.0; group.n_turns()])).collect();
    let rows = RowSet::from_credit(&batch, &credit, None);
    let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
    let logprob = policy.score(&rows, &request)?.columns.pop().unwrap_or_default();
    ledger.critic_tokens += scored::n_tokens(&rows);
    for row in &rows.rows {
        let Place { turn, state } = places[row.group as usize];
        let sum: f64 = logprob[row.trained.clone()].iter().map(|x| f64::from(*x)).sum();
        table[turn][state][row.trajectory as usize] = sum.exp();
    }
    // Storage is f32: what sums to 1 up to its rounding is made to sum to 1.
    for row in table.iter_mut().flatten() {
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|p| *p /= sum);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use ascribe_core::NamedCritic;

    use super::*;
    use crate::testing::World;

    const ROLLOUT: &str = "groups = 40\ngroup_size = 2\ndecode = \"admissible\"";

    fn judged(environment: (&str, &str), body: &str) -> Batch {
        let mut world = World::new(environment, &["actor"], Vec::new());
        let mut batch = world.batch("independent", ROLLOUT);
        let mut critic = NamedCritic { name: "exact".into(), critic: world.critic("exact", "oracle", body) };
        world.judge(&mut critic, &mut batch).unwrap();
        batch
    }

    #[test]
    fn what_nobody_met_is_worth_nothing_and_no_gap() {
        let mut world = World::new(("repair-mdp", ""), &["actor"], Vec::new());
        let mut groups = world.groups("independent", "groups = 2\ngroup_size = 2\ndecode = \"admissible\"");
        groups[0].leaves.iter_mut().for_each(|leaf| leaf.end = End::Failed("made to fail".into()));
        let other = TurnLog { parent: None, state_after: Vec::new(), ..groups[1].turns[0].clone() };
        let last = groups[1].turns.len();
        groups[1].leaves.push(LeafLog { turn: Some(last), end: End::Untried, seed: 0 });
        groups[1].turns.push(other);
        let mut batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
        let mut critic = NamedCritic { name: "exact".into(), critic: world.critic("exact", "oracle", "") };
        world.judge(&mut critic, &mut batch).unwrap();
        assert_eq!(batch.group(0).state_signal("value").start(), 0.0);
        let group = batch.group(1);
        let value = group.state_signal("value");
        assert!(value.start() > 0.0);
        assert_eq!(value.after(group.n_turns() - 1), 0.0);
        assert!(group.turn_signal("advantage_true").all(|advantage| advantage.is_some()), "what was not tried has one too");
        assert!(world.ledger.critic_tokens > 0);
    }

    #[test]
    fn values_satisfy_the_bellman_equation_along_paths() {
        // Deterministic transitions: Q(s, a) = r + V(s') holds on every turn, and an advantage is a TD error.
        let batch = judged(("token-tree", "tasks = 3\ndepth = 3\nbranches = 3\nrewards = \"dense\"\nstates = \"prefixes\""), "");
        let mut turns = 0;
        for group in batch.groups() {
            let value = group.state_signal("value");
            for (t, advantage) in group.turn_signal("advantage_true").enumerate() {
                let follows = if group.end(t).is_some() { 0.0 } else { value.after(t) };
                let td = f64::from(group.rewards()[t]) + follows - value.before(t);
                assert!((td - f64::from(advantage.unwrap())).abs() < 1e-6, "{td} {advantage:?}");
                turns += 1;
            }
        }
        assert!(turns > 100, "{turns}");
    }

    #[test]
    fn an_untrained_policy_is_the_uniform_one() {
        let own = judged(("repair-mdp", ""), "");
        let uniform = judged(("repair-mdp", ""), "of = \"uniform\"");
        let values = |batch: &Batch| batch.signals["value"].column.iter_present().collect::<Vec<_>>();
        for (a, b) in values(&own).iter().zip(values(&uniform)) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
        assert!(values(&own).iter().any(|v| v.abs() > 0.1));
        let zero = judged(("repair-mdp", ""), "of = \"zero\"");
        assert!(values(&zero).iter().all(|v| *v == 0.0));
        // Only the acting policy has exact advantages.
        assert_eq!(uniform.signals["advantage_true"].column.iter_present().count(), 0);
        assert_eq!(own.signals["advantage_true"].column.iter_present().count(), own.turns.parent.len());
    }

    #[test]
    fn a_policy_that_says_more_than_the_listed_actions_is_refused() {
        let mut world = World::new(("repair-mdp", ""), &["actor"], Vec::new());
        let mut batch = world.batch("independent", "groups = 4\ngroup_size = 2");
        let mut critic = NamedCritic { name: "exact".into(), critic: world.critic("exact", "oracle", "") };
        let error = world.judge(&mut critic, &mut batch).unwrap_err().to_string();
        assert!(error.contains("by its state alone"), "{error}");
        let mut world = World::new(("bugfix", ""), &["actor"], Vec::new());
        let mut batch = world.batch("independent", ROLLOUT);
        let mut critic = NamedCritic { name: "exact".into(), critic: world.critic("exact", "oracle", "") };
        let error = world.judge(&mut critic, &mut batch).unwrap_err().to_string();
        assert!(error.contains("no tables"), "{error}");
    }
}
