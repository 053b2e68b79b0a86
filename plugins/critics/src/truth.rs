//! Policy gradients against the exact one, on a stochastic task of which everything is known: what a critic's error does to them, by λ; and
//! that of macro steps, from starts that the policy walked to and from stale ones.

use std::collections::BTreeMap;

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{Place, TRAIN, TaskId};
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{End, GroupLog, Origin};
use ascribe_core::mdp::{ActionTable, Solution, over_turns, solve};
use ascribe_core::play::{Crowd, Decode, Play, Start};
use ascribe_core::rollout::{Acting, node};
use ascribe_core::{AdvantageEstimator, Batch, Credit, CreditTransform, Draw, NamedCritic, Oracle, Seeds, Slot, TaskSet};
use ascribe_math::{Deviation, moments};

use crate::oracle::probabilities;
use crate::testing::{World, plugin};

const EPISODES: usize = 40_000;
/// Episodes of one batch.
const BATCH: usize = 1000;
const LAMBDAS: [f64; 5] = [0.0, 0.5, 0.8, 0.95, 1.0];
const CRITICS: [&str; 3] = ["policy", "uniform", "zero"];

/// A numeric policy on the repair process, its exact answers, and the way from records to their indices.
struct Truth<'a> {
    tables: &'a dyn Oracle,
    policy: ActionTable,
    exact: Solution,
}

const REPAIR: (&str, &str) = ("repair-mdp", "step_cost = 0.05");

impl<'a> Truth<'a> {
    /// That of a world's `actor`, as it is now.
    fn of(world: &mut World, tasks: &'a dyn TaskSet) -> Self {
        let tables = tasks.oracle(&TaskId { split: TRAIN.into(), index: 0 }).unwrap();
        let actor = &mut **world.nodes.get_mut("actor").unwrap();
        let policy = probabilities(tables, actor, &tasks.capabilities().stop, 1.0, &mut Ledger::default()).unwrap();
        Self { exact: solve(tables.process(), &policy), policy, tables }
    }

    /// The exact gradient by logits that all turns share, `[states · actions]`.
    fn exact_gradient(&self) -> Vec<f64> {
        let n_actions = self.tables.actions(0).len();
        let row = |mut row: Vec<f64>| {
            row.resize(n_actions, 0.0);
            row
        };
        over_turns(&self.exact.gradient).into_iter().flat_map(row).collect()
    }

    /// Turn, state and action of a recorded turn.
    fn place(&self, batch: &Batch, row: usize) -> (usize, usize, usize) {
        let Place { turn, state } = self.tables.place(batch.keys.bytes(batch.turns.state[row])).unwrap();
        (turn, state, self.tables.action(state, &batch.notes[row].action).unwrap())
    }

    /// `Σ_t A_t ∇ log π(a_t | s_t)` of an episode, by logits that all turns share, `[states · actions]`.
    fn gradient(&self, batch: &Batch, rows: std::ops::Range<usize>, advantages: &[Option<f32>]) -> Vec<f64> {
        let n_actions = self.tables.actions(0).len();
        let mut gradient = vec![0.0; self.policy[0].len() * n_actions];
        for (row, advantage) in rows.zip(advantages) {
            let (turn, state, action) = self.place(batch, row);
            for (b, p) in self.policy[turn][state].iter().enumerate() {
                let score = f64::from(u8::from(b == action)) - p;
                gradient[state * n_actions + b] += f64::from(advantage.unwrap()) * score;
            }
        }
        gradient
    }
}

/// Mean and covariance of the gradients of single episodes.
struct Spread {
    n: f64,
    sum: Vec<f64>,
    products: Vec<f64>,
}

/// How far a mean gradient lies from the exact one.
#[derive(Debug)]
struct Bias {
    /// In norms of the exact gradient.
    relative: f64,
    /// Sum over components of the variance of one episode's gradient.
    variance: f64,
    /// Squared distance beyond what noise gives, in standard errors of the latter.
    excess: f64,
}

impl Spread {
    fn new(n: usize) -> Self {
        Self { n: 0.0, sum: vec![0.0; n], products: vec![0.0; n * n] }
    }

    fn add(&mut self, x: &[f64]) {
        self.n += 1.0;
        for (i, a) in x.iter().enumerate().filter(|(_, a)| **a != 0.0) {
            self.sum[i] += a;
            for (j, b) in x.iter().enumerate() {
                self.products[i * x.len() + j] += a * b;
            }
        }
    }

    /// The squared distance of a mean of `n` from its expectation has the mean `tr C / n` and, as a mean is nearly normal, the
    /// variance `2 tr C² / n²`.
    fn bias(&self, exact: &[f64]) -> Bias {
        let (n, d) = (self.n, exact.len());
        let mean: Vec<f64> = self.sum.iter().map(|s| s / n).collect();
        let covariance = |i: usize, j: usize| (self.products[i * d + j] - n * mean[i] * mean[j]) / (n - 1.0);
        let trace: f64 = (0..d).map(|i| covariance(i, i)).sum();
        let of_square: f64 = (0..d * d).map(|k| covariance(k / d, k % d).powi(2)).sum();
        let squared: f64 = mean.iter().zip(exact).map(|(m, e)| (m - e).powi(2)).sum();
        let norm = exact.iter().map(|e| e * e).sum::<f64>().sqrt();
        Bias { relative: squared.sqrt() / norm, variance: trace, excess: (squared - trace / n) / ((2.0 * of_square).sqrt() / n) }
    }
}

#[test]
fn lambda_trades_a_critics_error_for_the_variance_of_returns() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    world.improve(5);
    // The process outlives the world that plays on it.
    let tasks = World::new(REPAIR, &[], Vec::new()).tasks;
    let truth = Truth::of(&mut world, &*tasks);
    let chances = truth.policy[0][0].iter();
    assert!(chances.clone().any(|p| (p - 0.25).abs() > 0.1), "the acting policy is the uniform one: {:?}", truth.policy[0][0]);
    let exact = truth.exact_gradient();

    let mut critics: Vec<NamedCritic> = CRITICS
        .iter()
        .map(|of| NamedCritic { name: (*of).into(), critic: world.critic(of, "oracle", &format!("of = \"{of}\"")) })
        .collect();
    let estimators: Vec<Slot<dyn AdvantageEstimator>> =
        LAMBDAS.iter().map(|lambda| plugin("gae", &format!("gamma = 1.0\nlambda = {lambda:?}"))).collect();
    let mut spreads: Vec<Vec<Spread>> =
        CRITICS.iter().map(|_| LAMBDAS.iter().map(|_| Spread::new(exact.len())).collect()).collect();
    // Of the exact critic: TD errors by turn, state and action, and every turn's TD error and return minus value.
    let mut td_errors: BTreeMap<(usize, usize, usize), Vec<f64>> = BTreeMap::new();
    let (mut td, mut to_go) = (Vec::new(), Vec::new());
    for _ in 0..EPISODES / BATCH {
        // Members of a group share chance: each episode is a group of its own.
        let mut batch = world.batch("independent", &format!("groups = {BATCH}\ngroup_size = 1\ndecode = \"admissible\""));
        for (c, critic) in critics.iter_mut().enumerate() {
            world.judge(critic, &mut batch).unwrap();
            for (l, estimator) in estimators.iter().enumerate() {
                for group in batch.groups() {
                    let credit = estimator.estimate(group, &world.now).unwrap().turns;
                    spreads[c][l].add(&truth.gradient(&batch, group.rows(), &credit));
                    if c > 0 {
                        continue;
                    }
                    let numbers = credit.iter().map(|x| f64::from(x.unwrap()));
                    if l == 0 {
                        for (row, x) in group.rows().zip(numbers.clone()) {
                            td_errors.entry(truth.place(&batch, row)).or_default().push(x);
                        }
                        td.extend(numbers);
                    } else if l == LAMBDAS.len() - 1 {
                        to_go.extend(numbers);
                    }
                }
            }
            batch.signals.clear();
        }
    }

    let table: Vec<Vec<Bias>> = spreads.iter().map(|of| of.iter().map(|spread| spread.bias(&exact)).collect()).collect();
    println!("lambda        exact V                       stale V                       V = 0");
    for (l, lambda) in LAMBDAS.iter().enumerate() {
        print!("{lambda:<8}");
        table.iter().for_each(|of| print!("  bias {:.3} var {:.3} ({:6.1} se)", of[l].relative, of[l].variance, of[l].excess));
        println!();
    }
    let (last, [exact_v, stale, none]) = (LAMBDAS.len() - 1, [&table[0], &table[1], &table[2]]);
    for (lambda, bias) in LAMBDAS.iter().zip(exact_v) {
        assert!(bias.excess < 5.0, "exact values are biased at λ = {lambda}: {bias:?}");
    }
    assert!(exact_v[last].variance > 3.0 * exact_v[0].variance, "{exact_v:?}");
    for of in &table {
        assert!(of[last].excess < 5.0, "biased at λ = 1: {:?}", of[last]);
    }
    assert!(stale[0].excess > 50.0 && none[0].excess > 50.0, "{:?} {:?}", stale[0], none[0]);
    assert!(none[0].relative > 2.0 * stale[0].relative, "{:?} {:?}", none[0], stale[0]);
    for of in [stale, none] {
        assert!(of[0].relative > of[2].relative && of[2].relative > of[last].relative, "{of:?}");
    }

    // The mean TD error under exact values is the advantage: Σ z² over the places is χ².
    let (mut squares, mut places) = (0.0, 0.0);
    for ((turn, state, action), errors) in td_errors.iter().filter(|(_, errors)| errors.len() >= 300) {
        let advantage = truth.exact.advantages[*turn][*state][*action];
        let found = moments(errors);
        let standard_error = found.deviation(Deviation::Sample) / (found.n as f64).sqrt();
        if standard_error < 1e-6 {
            // What follows is certain: what is left is the rounding of records.
            assert!((found.mean - advantage).abs() < 1e-5, "{turn} {state} {action}: {} {advantage}", found.mean);
        } else {
            squares += ((found.mean - advantage) / standard_error).powi(2);
            places += 1.0;
        }
    }
    println!("mean TD error - A: chi-squared {squares:.1} over {places} places");
    assert!(places >= 10.0 && (squares - places) / (2.0f64 * places).sqrt() < 5.0, "{squares} over {places}");
    let variances = [&td, &to_go].map(|x| moments(x).variance(Deviation::Sample));
    println!("Var(TD) {:.4}, Var(G - V) {:.4}", variances[0], variances[1]);
    assert!(variances[1] > 3.0 * variances[0], "{variances:?}");
}

/// Turns of a macro step.
const TURNS: usize = 2;
/// Members of a start.
const BRANCHES: usize = 4;

/// A start per task, at the beginning of a macro step that was drawn uniformly among those of a whole episode; `None` where its episode was
/// over before. All turns before it are the acting policy's.
fn walk(acting: &mut Acting<'_>, n: usize, segments: usize) -> Vec<Option<Start>> {
    let tasks = acting.draw(n).unwrap();
    let mut rng = acting.seeds.rng("segments", Draw { update: acting.now.update, ..Draw::default() });
    let drawn: Vec<usize> = tasks.iter().map(|_| rng.below(segments)).collect();
    let play = Play { decode: Decode::Admissible, ..acting.play("actor", &tasks, 1, "walk") };
    let Acting { nodes, tasks: set, ledger, .. } = acting;
    let policy = &mut **node(nodes, "actor").unwrap();
    let mut crowd = Crowd::open(&play, policy, &**set, ledger).unwrap();
    let mut starts: Vec<Option<Start>> = vec![None; n];
    for segment in 0..segments {
        for e in (0..n).filter(|e| drawn[*e] == segment) {
            if crowd.is_live(e) {
                let mut state = crowd.state(e).unwrap();
                state.origin = Origin::Restored { age: 0 };
                starts[e] = Some(Start { task: tasks[e].task.clone(), state: Some(state) });
                crowd.end_at(e, End::MacroBoundary);
            }
        }
        for _ in 0..TURNS {
            crowd.step(policy, ledger).unwrap();
        }
    }
    crowd.finish(policy, ledger);
    starts
}

/// A macro step of every member from each start.
fn branches(acting: &mut Acting<'_>, starts: &[Start]) -> Vec<GroupLog> {
    let play = Play { decode: Decode::Admissible, ..acting.play("actor", starts, BRANCHES, "branches") };
    let Acting { nodes, tasks, ledger, .. } = acting;
    let policy = &mut **node(nodes, "actor").unwrap();
    let mut crowd = Crowd::open(&play, policy, &**tasks, ledger).unwrap();
    for _ in 0..TURNS {
        crowd.step(policy, ledger).unwrap();
    }
    (0..crowd.len()).for_each(|e| crowd.end_at(e, End::MacroBoundary));
    crowd.finish(policy, ledger)
}

/// The macro steps' gradient under the acting policy, from these starts: as it comes, and with the importance correction of prefixes.
fn macro_gradients(world: &mut World, truth: &Truth<'_>, starts: &[Option<Start>], segments: usize) -> [Bias; 2] {
    let exact = truth.exact_gradient();
    let mut critics = [("exact", "oracle", ""), ("ratio", "prefix-ratio", "max = 1e6")]
        .map(|(name, plugin, body)| NamedCritic { name: name.into(), critic: world.critic(name, plugin, body) });
    let estimator: Slot<dyn AdvantageEstimator> = plugin("tempo", "");
    // M, and N/(N − 1): the mean of a group's returns holds each member's own, which takes that share of its gradient away.
    let factor = segments as f64 * BRANCHES as f64 / (BRANCHES - 1) as f64;
    let plain: Slot<dyn CreditTransform> = plugin("weigh", &format!("times = {factor:?}"));
    let corrected: Slot<dyn CreditTransform> = plugin("weigh", &format!("by = \"prefix_ratio\"\ntimes = {factor:?}"));
    let mut spreads = [Spread::new(exact.len()), Spread::new(exact.len())];
    for starts in starts.chunks(BATCH) {
        let there: Vec<Start> = starts.iter().flatten().cloned().collect();
        let groups = world.act(|acting| branches(acting, &there));
        world.now.update += 1;
        let mut batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
        critics.iter_mut().for_each(|critic| world.judge(critic, &mut batch).unwrap());
        let credit: Vec<Credit> = batch.groups().map(|group| estimator.estimate(group, &world.now).unwrap()).collect();
        for (transform, spread) in [&plain, &corrected].into_iter().zip(&mut spreads) {
            let mut credit = credit.clone();
            transform.apply(&batch, &mut credit, &world.now, Seeds(0));
            for (group, credit) in batch.groups().zip(&credit) {
                let gradient = truth.gradient(&batch, group.rows(), &credit.turns);
                spread.add(&gradient.iter().map(|x| x / BRANCHES as f64).collect::<Vec<_>>());
            }
            // An episode that was over before its macro step has no gradient there.
            (there.len()..starts.len()).for_each(|_| spread.add(&vec![0.0; exact.len()]));
        }
    }
    spreads.map(|spread| spread.bias(&exact))
}

#[test]
fn a_macro_step_drawn_uniformly_has_the_gradient_of_the_whole_episode() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let tasks = World::new(REPAIR, &[], Vec::new()).tasks;
    let segments = tasks.capabilities().max_turns.div_ceil(TURNS);
    assert!(segments >= 3, "{segments} macro steps");
    world.improve(3);
    let mut starts = Vec::new();
    for _ in 0..EPISODES / BATCH {
        starts.extend(world.act(|acting| walk(acting, BATCH, segments)));
        world.now.update += 1;
    }
    let over = starts.iter().filter(|start| start.is_none()).count();
    assert!(over > 0 && over < EPISODES, "{over} episodes were over before their macro step");

    let [plain, corrected] = {
        let truth = Truth::of(&mut world, &*tasks);
        macro_gradients(&mut world, &truth, &starts, segments)
    };
    println!("prefixes of the policy itself: {plain:?}\n  corrected: {corrected:?}");
    assert!(plain.excess < 3.0, "on-policy macro steps are biased: {plain:?}");
    // Ratios are 1 there.
    assert!((plain.relative - corrected.relative).abs() < 1e-4, "{plain:?} {corrected:?}");

    // The policy moves on, the starts stay.
    world.improve(5);
    let [stale, corrected] = {
        let truth = Truth::of(&mut world, &*tasks);
        macro_gradients(&mut world, &truth, &starts, segments)
    };
    println!("stale prefixes: {stale:?}\n  corrected: {corrected:?}");
    assert!(stale.excess >= 6.0, "the test has no power: {stale:?}");
    assert!(corrected.excess < 3.0, "the correction leaves a bias: {corrected:?}");
}
