//! Estimators that claim it point uphill: on a tree whose gradient is known exactly, the mean update has a positive inner
//! product with it. The control `random` has none.

mod example;
mod token_tree;

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{Place, TRAIN, TaskId};
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::mdp::{ActionTable, Solution, softmax, solve};
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::{
    AdvantageEstimator, Batch, Column, Credit, CreditTransform, Draw, End, FiniteMdp, Law, Need, Now, Oracle, Scope, Seeds,
    Signal, Slot, credit,
};

use example::plugin;
use token_tree::tree;

// The plugin crates are linked.
use {ascribe_environments as _, ascribe_estimators as _, ascribe_transforms as _};

/// Batches of the mean update.
const BATCHES: u32 = 400;
/// Groups per batch, and paths per group.
const GROUPS: u32 = 2;
const PATHS: usize = 8;

const TREE: &str = "tasks = 1\ndepth = 3\nbranches = 3\nrewards = \"sparse\"\nstates = \"sums\"";

/// A policy on a process whose answers are known.
struct Truth<'a> {
    oracle: &'a dyn Oracle,
    policy: ActionTable,
    exact: Solution,
}

impl<'a> Truth<'a> {
    fn of(oracle: &'a dyn Oracle) -> Self {
        let process = oracle.process();
        let mut rng = Seeds(7).rng("logits", Draw::default());
        let mut row = |rewards: &Vec<f64>| rewards.iter().map(|_| 0.5 * rng.normal()).collect::<Vec<f64>>();
        let logits: ActionTable = (0..process.horizon).map(|_| process.rewards.iter().map(&mut row).collect()).collect();
        let policy = softmax(&logits);
        let exact = solve(process, &policy);
        Self { oracle, policy, exact }
    }

    fn process(&self) -> &FiniteMdp {
        self.oracle.process()
    }

    /// One batch of independent rollouts, with the exact value of every state.
    fn batch(&self, update: u32, needs: &[Need]) -> Batch {
        let groups = (0..GROUPS).map(|group| {
            let mut log = GroupLog { task_name: "tree".into(), ..GroupLog::default() };
            for member in 0..PATHS {
                self.roll(&mut log, Draw { update, group, member: member as u32, turn: 0 });
            }
            log
        });
        let mut batch = Batch::from_groups(groups.collect(), NonFinite::Refuse).expect("well formed");
        for need in needs {
            let Some((name, scope)) = need.column() else { continue };
            let column = self.column(&batch, name, scope);
            let signal = Signal { scope, provider: "oracle".into(), column: Column::full(column) };
            batch.add_signal(name, signal).expect("a column of the batch's length");
        }
        batch
    }

    fn roll(&self, log: &mut GroupLog, draw: Draw) {
        let mut rng = Seeds(11).rng("roll", draw);
        let process = self.process();
        let (mut state, mut parent, mut last_reward) = (0, None, 0.0);
        for turn in 0..process.horizon {
            if process.rewards[state].is_empty() {
                break;
            }
            let row = &self.policy[turn][state];
            let mut left = rng.unit();
            let action = row.iter().position(|p| {
                left -= p;
                left < 0.0
            });
            let action = action.unwrap_or(row.len() - 1);
            let next = process.transitions[state][action][0].0;
            last_reward = process.rewards[state][action];
            let key = self.oracle.state_key(Place { turn, state });
            let squares: f64 = row.iter().map(|p| p * p).sum();
            log.turns.push(TurnLog {
                parent,
                agent: "actor".into(),
                read: vec![99],
                action: Action {
                    logprob: Some(vec![row[action].ln() as f32]),
                    entropy: Some(vec![-row.iter().map(|p| p * p.ln()).sum::<f64>() as f32]),
                    ..Action::given(vec![action as u32])
                },
                reward: last_reward as f32,
                observation: key.clone(),
                state: key,
                state_after: self.oracle.state_key(Place { turn: turn + 1, state: next }),
                action_key: vec![action as u8],
                action_text: self.oracle.actions(state)[action].clone(),
                signals: vec![("sum_pi_squared_of_turn".into(), squares as f32)],
                ..TurnLog::default()
            });
            (state, parent) = (next, Some(log.turns.len() - 1));
        }
        log.leaves.push(LeafLog { turn: parent, end: End::Terminated { success: last_reward >= 0.5 }, seed: 0 });
    }

    fn value(&self, key: &[u8]) -> f32 {
        let place = self.oracle.place(key).expect("a state of the tree");
        self.exact.values[place.turn][place.state] as f32
    }

    fn column(&self, batch: &Batch, name: &str, scope: Scope) -> Vec<f32> {
        let rows = 0..batch.turns.parent.len();
        let before = |row: usize| self.value(batch.keys.bytes(batch.turns.state[row]));
        match (name, scope) {
            ("value", Scope::State) => {
                let mut values = Vec::new();
                for group in &batch.groups {
                    values.push(before(group.rows.range().start));
                    values.extend(group.rows.range().map(|row| self.value(batch.keys.bytes(batch.turns.state_after[row]))));
                }
                values
            }
            ("token_value", Scope::Token) => rows.map(before).collect(),
            ("sum_pi_squared", Scope::Token) => {
                let signal = &batch.signals["sum_pi_squared_of_turn"];
                rows.map(|row| signal.column.get(row).expect("given")).collect()
            }
            (name, _) => panic!("an estimator that claims to point uphill needs `{name}`, which is not made here"),
        }
    }

    /// Inner product of a batch's update, per path, with the exact gradient.
    fn along_gradient(&self, batch: &Batch, credit: &[Credit]) -> f64 {
        let mut product = 0.0;
        for (group, credit) in batch.groups().zip(credit) {
            let advantage = credit::spread(group, credit).advantage;
            for t in 0..group.n_turns() {
                let row = group.rows().start + t;
                let place = self.oracle.place(batch.keys.bytes(batch.turns.state[row])).expect("a state of the tree");
                let action = self.oracle.action(place.state, &batch.notes[row].action).expect("one of its actions");
                let Some(a) = group.sampled_of(t).next().and_then(|i| advantage.get(i)) else { continue };
                let policy = &self.policy[place.turn][place.state];
                for (b, slope) in self.exact.gradient[place.turn][place.state].iter().enumerate() {
                    let score = f64::from(u8::from(b == action)) - policy[b];
                    product += f64::from(a) * score * slope;
                }
            }
        }
        product / f64::from(GROUPS) / PATHS as f64
    }
}

/// Mean over batches, in standard errors.
fn standard_errors(x: &[f64]) -> f64 {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    mean / (variance / n).sqrt()
}

fn along(truth: &Truth<'_>, estimator: &dyn AdvantageEstimator, transform: Option<&dyn CreditTransform>) -> f64 {
    let needs = estimator.needs();
    let products: Vec<f64> = (0..BATCHES)
        .map(|update| {
            let batch = truth.batch(update, &needs);
            let now = Now { update, ..Now::default() };
            let mut credit: Vec<Credit> = batch.groups().map(|group| estimator.estimate(group, &now).expect("pure")).collect();
            if let Some(transform) = transform {
                transform.apply(&batch, &mut credit, &now, Seeds(3));
            }
            truth.along_gradient(&batch, &credit)
        })
        .collect();
    standard_errors(&products)
}

#[test]
fn the_mean_update_of_those_that_claim_it_points_uphill() {
    let tasks = tree(TREE);
    let truth = Truth::of(tasks.oracle(&TaskId { split: TRAIN.into(), index: 0 }).expect("an oracle"));
    let mut short = Vec::new();
    let mut asked = 0;
    for row in plugins(Kind::Estimator) {
        let estimator: Slot<dyn AdvantageEstimator> = plugin(row.name, row.example);
        if !estimator.laws().contains(&Law::Ascent) {
            continue;
        }
        let errors = along(&truth, &*estimator, None);
        println!("{}: {errors:.1} standard errors uphill", row.name);
        asked += 1;
        if errors <= 5.0 {
            short.push(format!("`{}`: {errors:.1} standard errors", row.name));
        }
    }
    assert!(asked > 15, "{asked} estimators claim it");
    assert!(short.is_empty(), "{}", short.join("\n"));
}

#[test]
fn the_control_does_not_point_uphill() {
    let tasks = tree(TREE);
    let truth = Truth::of(tasks.oracle(&TaskId { split: TRAIN.into(), index: 0 }).expect("an oracle"));
    let grpo: Slot<dyn AdvantageEstimator> = plugin("grpo", "");
    let random: Slot<dyn CreditTransform> = plugin("random", "");
    let errors = along(&truth, &*grpo, Some(&*random));
    assert!(errors.abs() < 4.0, "random credit: {errors:.1} standard errors uphill");
}
