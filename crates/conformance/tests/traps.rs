//! Faults that this field has made in public, each as a small case with its right outcome.

mod example;
mod token_tree;

use std::collections::BTreeMap;

use ascribe_core::batch::NonFinite;
use ascribe_core::credit::spread;
use ascribe_core::environment::{TRAIN, TaskId};
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::registry::{Kind, Plugin, plugins};
use ascribe_core::rows::column::{ADVANTAGE, BEHAVIOR_LOGPROB};
use ascribe_core::{
    AdvantageEstimator, Batch, Column, Credit, CreditTransform, Draw, End, EstimateError, Group, Need, Now, RowSet, Scope, Seeds,
    Signal, Slot,
};
use serde::{Deserialize, Serialize};

use example::plugin;
use token_tree::tree;

// The plugin crates are linked.
use {ascribe_environments as _, ascribe_estimators as _, ascribe_transforms as _};

const WON: End = End::Terminated { success: true };
const LOST: End = End::Terminated { success: false };

type Estimator = Slot<dyn AdvantageEstimator>;

/// Estimators that read nothing but what every batch has, from their examples.
fn estimators_without_signals() -> Vec<(&'static Plugin, Estimator)> {
    let all = plugins(Kind::Estimator).into_iter().map(|row| (row, plugin::<Estimator>(row.name, row.example)));
    let some: Vec<_> = all.filter(|(_, e)| !e.needs().iter().any(|need| need.column().is_some())).collect();
    assert!(some.len() > 15, "the catalogue is linked");
    some
}

/// An action of these tokens, of which those `at` these offsets were sampled and the others fed.
fn action(tokens: &[u32], at: &[u32]) -> Action {
    let n = at.len();
    Action {
        at: at.to_vec(),
        support: vec![None; n],
        logprob: Some(vec![-1.0; n]),
        entropy: Some(vec![0.5; n]),
        ..Action::given(tokens.to_vec())
    }
}

/// A turn of so many sampled tokens.
fn turn(parent: Option<usize>, tokens: u32, reward: f32) -> TurnLog {
    let all: Vec<u32> = (0..tokens).collect();
    TurnLog { parent, agent: "actor".into(), read: vec![9], action: action(&all, &all), reward, ..TurnLog::default() }
}

fn group(turns: Vec<TurnLog>, leaves: &[(usize, End)]) -> GroupLog {
    let leaves = leaves.iter().map(|(t, end)| LeafLog { turn: Some(*t), end: end.clone(), seed: 0 }).collect();
    GroupLog { task_name: "task".into(), turns, leaves, ..GroupLog::default() }
}

/// Paths of one turn of one token with these rewards.
fn outcomes(rewards: &[f32]) -> GroupLog {
    let ends: Vec<(usize, End)> = (0..rewards.len()).map(|t| (t, if rewards[t] > 0.0 { WON } else { LOST })).collect();
    group(rewards.iter().map(|r| turn(None, 1, *r)).collect(), &ends)
}

fn build(groups: Vec<GroupLog>) -> Batch {
    Batch::from_groups(groups, NonFinite::Refuse).unwrap_or_else(|e| panic!("{e}"))
}

fn add(batch: &mut Batch, name: &str, scope: Scope, numbers: &[f32]) -> Result<(), String> {
    batch.add_signal(name, Signal { scope, provider: "test".into(), column: Column::full(numbers.to_vec()) })
}

fn credit(estimator: &Estimator, batch: &Batch, g: usize) -> Credit {
    let credit = estimator.estimate(batch.group(g), &Now::default()).unwrap_or_else(|e| panic!("{e}"));
    credit.check(batch.group(g)).unwrap_or_else(|e| panic!("{e}"));
    credit
}

/// What an estimator says about the sampled tokens of group `g`.
fn on_tokens(estimator: &Estimator, batch: &Batch, g: usize) -> Vec<Option<f32>> {
    spread(batch.group(g), &credit(estimator, batch, g)).advantage.iter().collect()
}

fn near(got: &[Option<f32>], want: &[f32]) {
    let close = |(g, w): (&Option<f32>, &f32)| g.is_some_and(|g| (g - w).abs() <= 1e-4);
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}, not {want:?}");
}

// Masks, tokens of tools, recursion.

/// Rewards and values at the ten places of `1100011001`; the other five places are a tool's.
fn calls_with_gaps() -> [Batch; 2] {
    // One action in which the tool's tokens were fed, and three turns that read them.
    let fed = TurnLog {
        action: action(&[0; 10], &[0, 1, 5, 6, 9]),
        token_rewards: vec![(1, -0.1), (6, -0.1), (9, 0.9)],
        ..turn(None, 0, 0.0)
    };
    let read = |tokens: usize, of: TurnLog| TurnLog { read: vec![9; tokens], ..of };
    let turns = vec![turn(None, 2, -0.1), read(3, turn(Some(0), 2, -0.1)), read(2, turn(Some(1), 1, 0.9))];
    [build(vec![group(vec![fed], &[(0, WON)])]), build(vec![group(turns, &[(2, WON)])])]
}

#[test]
fn time_passes_on_sampled_tokens_alone() {
    for mut batch in calls_with_gaps() {
        let states = batch.scope_len(Scope::State);
        add(&mut batch, "value", Scope::State, &vec![9.0; states]).unwrap();
        // A value on a tool's token cannot be said: the column has a place for each sampled one, and none for NaN.
        let nan = f32::NAN;
        let all = [0.5, 0.4, nan, nan, nan, 0.6, 0.7, nan, nan, 0.8];
        let error = add(&mut batch, "token_value", Scope::Token, &all).unwrap_err();
        assert_eq!(error, "signal `token_value` of `test` has 10 numbers, the batch has 5 of that scope");
        let error = add(&mut batch, "token_value", Scope::Token, &[0.5, 0.4, nan, 0.6, 0.7]).unwrap_err();
        assert_eq!(error, "signal `token_value` of `test` holds NaN: a critic must leave out what it cannot compute");
        add(&mut batch, "token_value", Scope::Token, &[0.5, 0.4, 0.6, 0.7, 0.8]).unwrap();
        let gae = |gamma: f64, lambda: f64| {
            let body = format!("gamma = {gamma:?}\nlambda = {lambda:?}\nunit = \"token\"");
            on_tokens(&plugin("gae", &body), &batch, 0)
        };
        near(&gae(1.0, 1.0), &[0.2, 0.3, 0.2, 0.1, 0.1]);
        near(&gae(1.0, 0.0), &[-0.1, 0.1, 0.1, 0.0, 0.1]);
        near(&gae(0.9, 0.95), &[-0.0804, 0.0697, 0.0347, 0.0055, 0.1]);
    }
}

#[test]
fn a_value_behind_the_end_reaches_no_token() {
    // mask 1, 1, 0 with a value of 100 at the end
    let path = TurnLog { action: action(&[0; 3], &[0, 1]), ..turn(None, 0, 1.0) };
    let mut batch = build(vec![group(vec![path], &[(0, WON)])]);
    add(&mut batch, "value", Scope::State, &[0.0, 100.0]).unwrap();
    add(&mut batch, "token_value", Scope::Token, &[0.0, 0.0]).unwrap();
    near(&on_tokens(&plugin("gae", "gamma = 1.0\nlambda = 0.95\nunit = \"token\""), &batch, 0), &[0.95, 1.0]);
}

#[test]
fn no_reward_is_lost_between_sampled_tokens() {
    // mask 1, 1, 0, 1 with the reward at the 0
    let between = TurnLog { action: action(&[0; 4], &[0, 1, 3]), token_rewards: vec![(2, 1.0)], ..turn(None, 0, 0.0) };
    let error = Batch::from_groups(vec![group(vec![between], &[(0, WON)])], NonFinite::Refuse).unwrap_err();
    assert!(
        error.to_string().starts_with("task `task`, turn 0: a reward lies on token 2 of the action, which was not sampled"),
        "{error}"
    );
    // Given to the turn that led to it, it falls to that turn's last sampled token.
    let returns: Estimator = plugin("return-to-go", "gamma = 1.0\nunit = \"token\"");
    let given = build(vec![group(vec![turn(None, 2, 1.0), turn(Some(0), 1, 0.0)], &[(1, WON)])]);
    assert_eq!(on_tokens(&returns, &given, 0), [Some(1.0), Some(1.0), Some(0.0)]);
    // Rewards of every kind: of turns, of tokens, of turns without a token. All reach the first token.
    let both = TurnLog { token_rewards: vec![(0, 0.125)], ..turn(Some(1), 2, 0.0625) };
    let turns = vec![turn(None, 1, 0.25), turn(Some(0), 0, 0.5), both, turn(Some(2), 0, 1.0)];
    let mixed = build(vec![group(turns, &[(3, WON)])]);
    assert_eq!(on_tokens(&returns, &mixed, 0), [Some(1.9375), Some(1.1875), Some(1.0625)]);
    assert_eq!(mixed.group(0).outcomes(), [1.9375]);
}

#[test]
fn a_turns_reward_lies_on_its_last_sampled_token() {
    // The last token is the tool's: it prints the answer.
    let called = TurnLog { action: action(&[1, 2, 42], &[0, 1]), ..turn(None, 0, 1.0) };
    assert_eq!(build(vec![group(vec![called], &[(0, WON)])]).group(0).token_rewards(), [0.0, 1.0]);
}

#[test]
fn a_length_is_a_sum_and_not_a_span() {
    // 1111 000 11111 has 9 sampled tokens over a span of 12: the baseline of 1 and 0 is 9/12 beside a path of 3.
    let long = TurnLog { action: action(&[0; 12], &[0, 1, 2, 3, 7, 8, 9, 10, 11]), ..turn(None, 0, 1.0) };
    let batch = build(vec![group(vec![long, turn(None, 3, 0.0)], &[(0, WON), (1, LOST)])]);
    assert_eq!(credit(&plugin("opo", ""), &batch, 0).turns, [Some(0.25), Some(-0.75)]);
}

#[test]
fn a_penalty_per_token_is_paid_for_sampled_tokens_alone() {
    for mut batch in calls_with_gaps() {
        let error = add(&mut batch, "kl", Scope::Token, &[0.1; 10]).unwrap_err();
        assert_eq!(error, "signal `kl` of `test` has 10 numbers, the batch has 5 of that scope");
        add(&mut batch, "kl", Scope::Token, &[0.1; 5]).unwrap();
        batch.combine_rewards(&BTreeMap::from([("kl".to_string(), -1.0)])).unwrap();
        near(&on_tokens(&plugin("reinforce-plus-plus", ""), &batch, 0), &[-0.5, -0.4, -0.3, -0.2, -0.1]);
    }
}

#[test]
fn log_probability_and_advantage_lie_on_their_own_token() {
    let sampled = TurnLog {
        action: Action { logprob: Some(vec![-1.0, -2.0, -3.0]), ..action(&[11, 99, 12, 13, 99], &[0, 2, 3]) },
        ..turn(None, 0, 0.0)
    };
    let batch = build(vec![group(vec![sampled], &[(0, WON)])]);
    let rows = RowSet::from_credit(&batch, &[Credit::per_token(1, [1.0, 2.0, 3.0])], None);
    let triple =
        |i: usize| (rows.token(0, i), rows.columns[BEHAVIOR_LOGPROB].get(i).unwrap(), rows.columns[ADVANTAGE].get(i).unwrap());
    assert_eq!((0..rows.n_trained()).map(triple).collect::<Vec<_>>(), [(11, -1.0, 1.0), (12, -2.0, 2.0), (13, -3.0, 3.0)]);
}

#[test]
fn a_path_without_sampled_tokens_moves_no_baseline() {
    let turns = vec![turn(None, 0, 100.0), turn(None, 1, 1.0), turn(None, 1, 0.0)];
    let batch = build(vec![group(turns, &[(0, WON), (1, WON), (2, LOST)])]);
    assert_eq!(credit(&plugin("dr-grpo", ""), &batch, 0).turns, [Some(0.5), Some(-0.5)]);
    assert_eq!(batch.group(0).failures().collect::<Vec<_>>(), ["no sampled token on the path"]);
}

#[test]
fn nothing_to_train_on_is_no_error_and_no_number() {
    let nothing = RowSet::from_credit(&build(Vec::new()), &[], None);
    assert_eq!((nothing.len(), nothing.totals(&[]).tokens), (0, 0));
    // A group of which every path is excluded.
    let batch = build(vec![group(vec![turn(None, 0, 1.0), turn(None, 0, 0.0)], &[(0, WON), (1, LOST)])]);
    for (row, estimator) in estimators_without_signals() {
        assert!(credit(&estimator, &batch, 0).turns.is_empty(), "{}", row.name);
    }
    for row in plugins(Kind::Transform) {
        let transform: Slot<dyn CreditTransform> = plugin(row.name, row.example);
        let mut batch = batch.clone();
        for need in transform.needs() {
            let Some((name, scope)) = need.column() else { continue };
            let column = Column::absent(batch.scope_len(scope));
            batch.add_signal(name, Signal { scope, provider: "test".into(), column }).unwrap();
        }
        let mut credit = vec![Credit::default()];
        let metrics = transform.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert!(metrics.0.values().all(|x| x.is_finite()), "{}: {metrics:?}", row.name);
        assert!(RowSet::from_credit(&batch, &credit, None).is_empty(), "{}", row.name);
    }
}

// Groups and what their numbers are divided by.

#[test]
fn a_group_without_spread_is_zero_or_gone() {
    let batch = build(vec![outcomes(&[1.0, 1.0, 1.0, 1.0]), outcomes(&[1.0, 0.0, 0.0, 0.0])]);
    let grpo: Estimator = plugin("grpo", "");
    let mut of_both = vec![credit(&grpo, &batch, 0), credit(&grpo, &batch, 1)];
    assert_eq!(of_both[0].turns, [Some(0.0); 4]);
    assert_eq!(RowSet::from_credit(&batch, &of_both, None).len(), 8);
    let drop: Slot<dyn CreditTransform> = plugin("drop-degenerate", "");
    let metrics = drop.apply(&batch, &mut of_both, &Now::default(), Seeds(0));
    let rows = RowSet::from_credit(&batch, &of_both, None);
    assert_eq!((rows.len(), metrics.get("group/dropped")), (4, Some(1.0)));
    assert!(rows.rows.iter().all(|row| row.group == 1));
    // Where every group goes, there is nothing left to train on.
    let same = build(vec![outcomes(&[1.0, 1.0])]);
    let mut none = vec![credit(&grpo, &same, 0)];
    drop.apply(&same, &mut none, &Now::default(), Seeds(0));
    let rows = RowSet::from_credit(&same, &none, None);
    assert!(rows.is_empty() && rows.totals(&[]).tokens == 0);
}

#[test]
fn deviation_and_epsilon_are_what_the_keys_say() {
    let of = |name: &str, body: &str, rewards: &[f32]| on_tokens(&plugin(name, body), &build(vec![outcomes(rewards)]), 0);
    let one_in_eight = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let all = |first: f32, rest: f32| [&[first][..], &[rest; 7]].concat();
    near(&of("grpo", "", &one_in_eight), &all(2.4749, -0.3536));
    let population = "leaf = \"z-score\"\nnode = \"leaf-mean\"\nagainst = \"nothing\"\ndeviation = \"population\"";
    near(&of("tree-value", population, &one_in_eight), &all(2.6458, -0.378));
    near(&of("grpo", "epsilon = 1e-6", &[1.0, 1.00001]), &[-0.6196, 0.6196]);
    near(&of("grpo", "epsilon = 1e-4", &[1.0, 1.00001]), &[-0.0467, 0.0467]);
}

#[test]
fn nothing_explodes_where_the_others_agree() {
    let third = -1.0 / 3.0;
    let four = build(vec![outcomes(&[1.0, 0.0, 0.0, 0.0])]);
    near(&on_tokens(&plugin("rloo", ""), &four, 0), &[1.0, third, third, third]);
    let eight = build(vec![outcomes(&[0.0, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95])]);
    for (row, estimator) in estimators_without_signals() {
        for batch in [&four, &eight] {
            let advantages = on_tokens(&estimator, batch, 0);
            assert!(advantages.iter().flatten().all(|a| a.abs() <= 10.0), "{}: {advantages:?}", row.name);
        }
    }
}

#[test]
fn groups_are_what_they_hold_and_not_where_they_stand() {
    // Means ¼ and ¾; read by place as p1, p2, p1, p2 … they would be ¾ and ¼.
    let batch = build(vec![outcomes(&[1.0, 0.0, 0.0, 0.0]), outcomes(&[1.0, 1.0, 1.0, 0.0])]);
    let centred: Estimator = plugin("dr-grpo", "");
    assert_eq!(credit(&centred, &batch, 0).turns, [Some(0.75), Some(-0.25), Some(-0.25), Some(-0.25)]);
    assert_eq!(credit(&centred, &batch, 1).turns, [Some(0.25), Some(0.25), Some(0.25), Some(-0.75)]);
}

#[test]
fn a_task_drawn_twice_is_two_groups() {
    let task = TaskId { split: TRAIN.into(), index: 0 };
    let of_task = |rewards: &[f32]| GroupLog { task: task.clone(), ..outcomes(rewards) };
    let batch = build(vec![of_task(&[1.0, 0.0, 0.0, 0.0]), of_task(&[5.0, 5.0, 5.0, 1.0])]);
    assert_eq!(batch.groups().map(Group::n_trajectories).collect::<Vec<_>>(), [4, 4]);
    let centred: Estimator = plugin("dr-grpo", "");
    assert_eq!(credit(&centred, &batch, 0).turns, [Some(0.75), Some(-0.25), Some(-0.25), Some(-0.25)]);
    assert_eq!(credit(&centred, &batch, 1).turns, [Some(1.0), Some(1.0), Some(1.0), Some(-3.0)]);
}

#[test]
fn gains_are_normalised_before_they_are_summed() {
    // Gains 2.5 and −1.2, outcomes 1 and 0. IGPO divides by the population's deviation: √2 times what the sample's gives,
    // (1.4142, 0.7071) and (−1.4142, −0.7071). Summed first, 3.5, 1, −1.2 and 0 would be compared.
    let turns = vec![turn(None, 1, 0.0), turn(Some(0), 1, 1.0), turn(None, 1, 0.0), turn(Some(2), 1, 0.0)];
    let mut batch = build(vec![group(turns, &[(1, WON), (3, LOST)])]);
    let column = [Some(2.5), None, Some(-1.2), None].into_iter().collect();
    batch.add_signal("info_gain", Signal { scope: Scope::Turn, provider: "test".into(), column }).unwrap();
    let got = on_tokens(&plugin("igpo", "gamma = 1.0\nnorm = \"separate\""), &batch, 0);
    let of_samples: Vec<Option<f32>> = got.iter().map(|a| a.map(|a| a * std::f32::consts::FRAC_1_SQRT_2)).collect();
    let (both, one) = (std::f32::consts::SQRT_2, std::f32::consts::FRAC_1_SQRT_2);
    near(&of_samples, &[both, one, -both, -one]);
}

/// Takes from every reward the mean reward of the others' turns of that index: a baseline that depends on the action.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PerTurnIndex {}

#[typetag::serde(name = "per-turn-index")]
impl AdvantageEstimator for PerTurnIndex {
    fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
        let paths: Vec<Vec<usize>> = group.trajectories().map(|path| path.turns()).collect();
        let reward = |t: usize| f64::from(group.rewards()[t]);
        let mut advantage = vec![0.0; group.n_turns()];
        for (p, path) in paths.iter().enumerate() {
            let mut after = 0.0;
            for (index, t) in path.iter().enumerate().rev() {
                let others = paths.iter().enumerate().filter(|(other, _)| *other != p);
                let of_index: Vec<f64> = others.filter_map(|(_, other)| other.get(index)).map(|t| reward(*t)).collect();
                // Without others there is nothing to compare with.
                let centred =
                    if of_index.is_empty() { 0.0 } else { reward(*t) - of_index.iter().sum::<f64>() / of_index.len() as f64 };
                after += centred;
                advantage[*t] = after;
            }
        }
        Ok(Credit::per_turn(advantage))
    }
}

/// Mean update on the logit of going on at the start, and its standard error, over 400 groups of eight at even odds, in
/// the tree where stopping and going on are worth the same.
fn update_of_going_on(estimator: &dyn AdvantageEstimator) -> (f64, f64) {
    const STOPS: usize = 0;
    let body = "tasks = 1\ndepth = 2\nbranches = 2\nrewards = \"stop-or-continue\"\nstates = \"prefixes\"";
    let tasks = tree(body);
    let process = tasks.oracle(&TaskId { split: TRAIN.into(), index: 0 }).expect("an oracle").process();
    let mut updates = Vec::new();
    for update in 0..400 {
        let (mut turns, mut leaves): (Vec<TurnLog>, Vec<(usize, End)>) = (Vec::new(), Vec::new());
        for member in 0..8 {
            let mut rng = Seeds(5).rng("even odds", Draw { update, member, ..Draw::default() });
            let (mut state, mut parent) = (0, None);
            while !process.rewards[state].is_empty() {
                let letter = rng.below(2);
                let said = action(&[letter as u32], &[0]);
                turns.push(TurnLog { action: said, ..turn(parent, 0, process.rewards[state][letter] as f32) });
                parent = Some(turns.len() - 1);
                state = process.transitions[state][letter][0].0;
            }
            leaves.push((turns.len() - 1, WON));
        }
        let went_on: Vec<f64> = turns.iter().map(|t| f64::from(u8::from(t.action.tokens[0] != STOPS as u32))).collect();
        let batch = build(vec![group(turns, &leaves)]);
        let credit = estimator.estimate(batch.group(0), &Now::default()).unwrap_or_else(|e| panic!("{e}"));
        let starts = (0..went_on.len()).filter(|t| batch.group(0).parent(*t).is_none());
        // The gradient of the log-probability by the logit is the action minus ½.
        let sum: f64 = starts.map(|t| f64::from(credit.turns[t].expect("trained")) * (went_on[t] - 0.5)).sum();
        updates.push(sum / 8.0);
    }
    let n = updates.len() as f64;
    let mean = updates.iter().sum::<f64>() / n;
    let variance = updates.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

#[test]
fn a_baseline_by_turn_index_is_biased() {
    // b = ½·1 + ½·½ = ¾ at the first turn: stopping gets ¼, going on −¼ and then 0. ½·¼·(−½) + ½·(−¼)·½ = −0.125
    let (mean, error) = update_of_going_on(&PerTurnIndex {});
    assert!((mean + 0.125).abs() < 4.0 * error && error < 0.01, "{mean} ± {error}");
    // The exact gradient is 0: every path earns 1.
    let (mean, error) = update_of_going_on(&*plugin::<Estimator>("return-to-go", "gamma = 1.0"));
    assert!(mean.abs() < 4.0 * error && error < 0.02, "{mean} ± {error}");
    assert_eq!(update_of_going_on(&*plugin::<Estimator>("rloo", "")), (0.0, 0.0));
}

#[test]
fn rewards_may_cancel_and_then_nothing_is_learned() {
    // [2, 0] and [0, 2] sum to [2, 2], whose deviation is 0; each alone has one of √2.
    let paid = |first: f32, second: f32| TurnLog {
        signals: vec![("first".into(), first), ("second".into(), second)],
        ..turn(None, 1, 0.0)
    };
    let mut batch = build(vec![group(vec![paid(2.0, 0.0), paid(0.0, 2.0)], &[(0, WON), (1, WON)])]);
    let half = std::f32::consts::FRAC_1_SQRT_2;
    for (weights, want) in [((1.0, 1.0), [0.0, 0.0]), ((1.0, 0.0), [half, -half]), ((0.0, 1.0), [-half, half])] {
        batch.combine_rewards(&BTreeMap::from([("first".to_string(), weights.0), ("second".to_string(), weights.1)])).unwrap();
        near(&on_tokens(&plugin("grpo", ""), &batch, 0), &want);
    }
}

#[test]
fn a_branch_does_not_earn_its_siblings_reward() {
    let tree = || group(vec![turn(None, 1, 0.0), turn(Some(0), 1, 1.0), turn(Some(0), 1, 0.0)], &[(1, WON), (2, LOST)]);
    let mut batch = build(vec![tree()]);
    add(&mut batch, "value", Scope::State, &[0.0; 4]).unwrap();
    add(&mut batch, "token_value", Scope::Token, &[0.0; 3]).unwrap();
    let g = batch.group(0);
    assert_eq!((0..3).map(|t| g.parent(t)).collect::<Vec<_>>(), [None, Some(0), Some(0)]);
    for (name, body, root) in [
        ("return-to-go", "gamma = 1.0", 0.5),
        ("return-to-go", "gamma = 1.0\nunit = \"token\"", 0.5),
        ("gae", "gamma = 1.0\nlambda = 1.0", 0.5),
        ("gae", "gamma = 1.0\nlambda = 1.0\nunit = \"token\"", 0.5),
        ("n-step", "gamma = 1.0\nn = 2", 0.5),
        ("td", "gamma = 1.0", 0.0),
    ] {
        assert_eq!(on_tokens(&plugin(name, body), &batch, 0), [Some(root), Some(1.0), Some(0.0)], "{name}, {body}");
    }
}

#[test]
fn who_learns_nothing_from_a_group_of_one_asks_for_more() {
    let alone = build(vec![group(vec![turn(None, 1, 0.0), turn(Some(0), 1, 1.0)], &[(1, WON)])]);
    let mut some_ask = 0;
    for (row, estimator) in estimators_without_signals() {
        let learns = on_tokens(&estimator, &alone, 0).iter().flatten().any(|a| *a != 0.0);
        let asks = estimator.needs().iter().any(|need| matches!(need, Need::GroupOfAtLeast(n) if *n >= 2));
        assert!(learns || asks, "`{}` gives a group of one nothing and does not say that it needs more", row.name);
        some_ask += u32::from(asks);
    }
    assert!(some_ask > 5, "{some_ask}");
}

#[test]
fn an_outcome_is_the_sum_of_a_paths_rewards() {
    // 0.5 + 0.5 against 0: rewards on the way are not lost on an estimator of outcomes.
    let turns = vec![turn(None, 1, 0.5), turn(Some(0), 1, 0.5), turn(None, 1, 0.0)];
    let batch = build(vec![group(turns, &[(1, WON), (2, LOST)])]);
    assert_eq!(credit(&plugin("dr-grpo", ""), &batch, 0).turns, [Some(0.5), Some(0.5), Some(-0.5)]);
}

// Anchors.

/// A turn that shows a text, and is known by its key.
fn seen(parent: Option<usize>, text: &str, key: &str, reward: f32) -> TurnLog {
    TurnLog { observation: key.into(), observation_text: text.into(), ..turn(parent, 1, reward) }
}

#[test]
fn anchors_are_keys_and_not_texts() {
    // Each second turn is worth ±½ as an outcome, and ±½ more where both share an anchor.
    let batch = |key: [&str; 2]| {
        let turns = vec![
            seen(None, "start", "start", 0.0),
            seen(Some(0), "Step 3/50. You see b, a", key[0], 1.0),
            seen(None, "start", "start", 0.0),
            seen(Some(2), "Step 7/50. You see a, b", key[1], 0.0),
        ];
        build(vec![group(turns, &[(1, WON), (3, LOST)])])
    };
    let gigpo: Estimator = plugin("gigpo", "gamma = 1.0\nstd = false");
    let texts = batch(["Step 3/50. You see b, a", "Step 7/50. You see a, b"]);
    assert_eq!(credit(&gigpo, &texts, 0).turns, [Some(1.0), Some(0.5), Some(-1.0), Some(-0.5)]);
    let keys = batch(["You see a, b", "You see a, b"]);
    assert_eq!(credit(&gigpo, &keys, 0).turns, [Some(1.0), Some(1.0), Some(-1.0), Some(-1.0)]);
}

#[test]
fn tasks_that_show_the_same_text_are_compared_apart() {
    let room = |rewards: [f32; 2]| {
        let acts = |r| TurnLog { action_key: vec![r as u8], ..seen(None, "You are in a room", "You are in a room", r) };
        let turns = rewards.map(acts);
        group(turns.into(), &[(0, WON), (1, LOST)])
    };
    for (name, body) in
        [("gigpo", "gamma = 1.0"), ("hgpo", "gamma = 1.0\nlevels = 2"), ("g2po", "success_reward = 1.0"), ("salt", "")]
    {
        let estimator: Estimator = plugin(name, body);
        let alone = credit(&estimator, &build(vec![room([1.0, 0.0])]), 0);
        let beside = credit(&estimator, &build(vec![room([1.0, 0.0]), room([8.0, 4.0])]), 0);
        assert_eq!(alone, beside, "{name}");
        assert!(alone.turns[0] > Some(0.0), "{name}: {alone:?}");
    }
}

#[test]
fn the_order_of_rows_is_not_the_order_of_time() {
    // Two paths of three turns, recorded one after the other and in turns.
    let at = |parent, key: &str, reward| seen(parent, key, key, reward);
    let apart = vec![
        at(None, "start", 0.0),
        at(Some(0), "hall", 0.25),
        at(Some(1), "room", 1.0),
        at(None, "start", 0.0),
        at(Some(3), "hall", 0.0),
        at(Some(4), "cell", 0.5),
    ];
    let mixed = vec![
        at(None, "start", 0.0),
        at(None, "start", 0.0),
        at(Some(0), "hall", 0.0),
        at(Some(1), "hall", 0.25),
        at(Some(2), "cell", 0.5),
        at(Some(3), "room", 1.0),
    ];
    // Where each turn of `apart` stands in `mixed`.
    let place = [1, 3, 5, 0, 2, 4];
    let (apart, mixed) = (build(vec![group(apart, &[(2, WON), (5, LOST)])]), build(vec![group(mixed, &[(5, WON), (4, LOST)])]));
    for (row, estimator) in estimators_without_signals() {
        let (want, got) = (on_tokens(&estimator, &apart, 0), on_tokens(&estimator, &mixed, 0));
        for (t, place) in place.into_iter().enumerate() {
            let same = match (want[t], got[place]) {
                (Some(x), Some(y)) => (x - y).abs() <= 1e-5,
                (x, y) => x == y,
            };
            assert!(same, "`{}`: {want:?} one after the other, {got:?} in turns", row.name);
        }
    }
}
