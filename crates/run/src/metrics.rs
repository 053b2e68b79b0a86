//! Numbers about an update's batch and its credit.
//!
//! Names are verl's where they exist. A trajectory that failed is in none of them but `rollout/failed_rate`; one that was
//! not executed has no score.

use std::collections::BTreeMap;

use ascribe_core::credit::spread;
use ascribe_core::environment::Outcome;
use ascribe_core::log::{Origin, Validity};
use ascribe_core::{Anchor, Batch, Column, Credit, End, Group, Metrics, Scope, Trajectory};
use ascribe_math::spread::{Deviation, is_constant, moments};
use rayon::prelude::*;

/// What estimators call reward, what the environment paid, and what became of the episodes.
///
/// * `declared`: columns that the environment says it fills; 0 where it filled none.
pub(crate) fn of_rollout(batch: &Batch, weights: &BTreeMap<String, f64>, declared: &[String]) -> Metrics {
    let mut m = Metrics::default();
    let paths: Vec<Path> = batch.groups().flat_map(|g| paths(batch, g)).collect();
    if !paths.is_empty() {
        declared.iter().for_each(|name| m.set(format!("env/{name}/mean"), 0.0));
    }
    let scored = || paths.iter().filter(|p| p.scored);
    m.summarise("critic/score", scored().map(|p| p.score));
    m.summarise("critic/rewards", scored().map(|p| p.reward));
    m.summarise("response_length", paths.iter().map(|p| p.sampled as f64));
    m.summarise("prompt_length", paths.iter().map(|p| p.prompt as f64));
    m.summarise("rollout/turns", paths.iter().map(|p| p.turns.len() as f64));
    mean(&mut m, "rollout/success_rate", scored().map(|p| f64::from(u8::from(p.success))));
    mean(&mut m, "rollout/truncated_rate", scored().map(|p| f64::from(u8::from(p.truncated))));
    m.set("rollout/groups", batch.groups.len() as f64);
    m.set("rollout/trajectories", paths.len() as f64);
    let n_failed = batch.groups().map(Group::n_failed).sum::<usize>() as f64;
    m.set("rollout/failed_rate", n_failed / (n_failed + paths.len() as f64).max(1.0));
    m.set("group/excluded", batch.groups().filter(|g| g.n_trajectories() == 0).count() as f64);

    let turns = || batch.groups().flat_map(Group::rows);
    for (name, validity) in [("malformed", Validity::Malformed), ("refused", Validity::Refused), ("cut", Validity::Cut)] {
        let is = |r: usize| f64::from(u8::from(batch.turns.validity[r] == validity));
        mean(&mut m, &format!("rollout/{name}_rate"), turns().map(is));
    }
    let sampled = || batch.groups().flat_map(Group::sampled);
    mean(&mut m, "actor/entropy", sampled().filter_map(|i| batch.sampled.entropy.get(i)).map(f64::from));
    let given = |i: usize| f64::from(u8::from(batch.sampled.logprob.get(i).is_none()));
    mean(&mut m, "rollout/given_rate", sampled().map(given));
    let comparable = batch.groups().map(tried_outcomes).filter(|outcomes| outcomes.len() >= 2);
    mean(&mut m, "actor/degenerate_group_rate", comparable.map(|outcomes| f64::from(u8::from(is_constant(&outcomes)))));

    let returns = batch.groups().flat_map(|g| {
        let reward = g.rewards();
        let returns = g.fold_up(|_| 0.0, |t, future| f64::from(reward[t]) + future);
        returns.into_iter().zip(g.tried()).filter_map(|(g, tried)| tried.then_some(g))
    });
    m.summarise("critic/returns", returns);
    for (name, signal) in &batch.signals {
        if signal.provider == "environment" && signal.scope == Scope::Turn {
            let sum = |p: &Path| p.turns.iter().filter_map(|r| signal.column.get(*r)).map(f64::from).sum::<f64>();
            mean(&mut m, &format!("env/{name}/mean"), paths.iter().map(sum));
        } else {
            m.summarise(&format!("signal/{name}"), signal.column.iter_present().map(f64::from));
        }
    }
    of_parts(&mut m, batch, weights);
    // Who writes `env = 0` means it.
    if !weights.contains_key("env") {
        let unread: f64 = turns().map(|r| f64::from(batch.turns.env_reward[r]).abs()).sum();
        m.set("rollout/unused_reward", unread);
    }
    m
}

/// How the parts of a reward that has several spread within groups, and whether they cancel: members who differ in several
/// parts and not in their sum teach a group-relative estimator nothing, and nothing shows it.
fn of_parts(m: &mut Metrics, batch: &Batch, weights: &BTreeMap<String, f64>) {
    let parts: Vec<(&String, f64, Vec<f64>)> = weights
        .iter()
        .filter(|(_, weight)| **weight != 0.0)
        // Whoever combined the rewards has refused a column that is not there.
        .filter_map(|(name, weight)| Some((name, *weight, batch.reward_column(name).ok()?)))
        .collect();
    if parts.len() < 2 {
        return;
    }
    let mut spreads: Vec<Vec<f64>> = vec![Vec::new(); parts.len()];
    let mut cancelled = Vec::new();
    for group in batch.groups() {
        let outcomes = tried_outcomes(group);
        if outcomes.len() < 2 {
            continue;
        }
        let mut n_differing = 0;
        for ((_, weight, column), spreads) in parts.iter().zip(&mut spreads) {
            let of_turn = |t: usize| weight * column[group.rows().start + t];
            let of_path: Vec<f64> = tried(group).map(|path| path.turns_up().map(of_turn).sum()).collect();
            n_differing += usize::from(!is_constant(&of_path));
            spreads.push(moments(&of_path).deviation(Deviation::Population));
        }
        cancelled.push(f64::from(u8::from(n_differing > 1 && is_constant(&outcomes))));
    }
    mean(m, "group/cancelled_rate", cancelled.into_iter());
    for ((name, ..), spreads) in parts.iter().zip(spreads) {
        mean(m, &format!("group/reward_std/{name}"), spreads.into_iter());
    }
}

/// How many turns an estimator with anchors can compare: the share of those after the first that begin where another turn
/// of their group does. First turns meet by construction, and would hide that no others do.
pub(crate) fn of_anchors(batch: &Batch, anchor: Anchor) -> Metrics {
    let mut m = Metrics::default();
    let hits = batch.groups().flat_map(|group| {
        let keys = match anchor {
            Anchor::Observation => group.observations(),
            Anchor::State => group.states(),
        };
        let tried = group.tried();
        let turns: Vec<usize> = (0..group.n_turns()).filter(|t| tried[*t]).collect();
        let mut visits: BTreeMap<u32, usize> = BTreeMap::new();
        turns.iter().for_each(|t| *visits.entry(keys[*t]).or_default() += 1);
        let later = turns.into_iter().filter(move |t| group.parent(*t).is_some());
        later.map(|t| f64::from(u8::from(visits[&keys[t]] > 1))).collect::<Vec<_>>()
    });
    mean(&mut m, "group/anchor_hit_rate", hits);
    m
}

/// What the credit looks like on sampled tokens.
pub(crate) fn of_credit(batch: &Batch, credit: &[Credit]) -> Metrics {
    let mut m = Metrics::default();
    let groups: Vec<(Group<'_>, &Credit)> = batch.groups().zip(credit).collect();
    let spread: Vec<Column> = groups.par_iter().map(|(g, c)| spread(*g, c).advantage).collect();
    let trained = || spread.iter().flat_map(Column::iter_present).map(f64::from);
    m.summarise("critic/advantages", trained());
    mean(&mut m, "credit/trained_rate", spread.iter().flat_map(Column::iter).map(|a| f64::from(u8::from(a.is_some()))));
    // Where nothing is trained, no advantage says anything.
    if batch.groups().any(|g| g.n_turns() > 0) {
        m.set("credit/zero_rate", 1.0);
    }
    mean(&mut m, "credit/zero_rate", trained().map(|a| f64::from(u8::from(a == 0.0))));
    mean(&mut m, "credit/positive_rate", trained().map(|a| f64::from(u8::from(a > 0.0))));
    mean(&mut m, "credit/abs_mean", trained().map(f64::abs));
    // 0 where every turn of a trajectory gets the same: outcome credit. What finer methods add shows here.
    let within = groups.iter().zip(&spread).flat_map(|((g, _), advantage)| {
        g.trajectories().filter_map(|path| {
            let turns: Vec<f64> =
                path.turns_up().filter_map(|t| mean_of(g.sampled_of(t).filter_map(|i| advantage.get(i)))).collect();
            (turns.len() >= 2).then(|| moments(&turns).deviation(Deviation::Population))
        })
    });
    mean(&mut m, "credit/within_trajectory_std", within);
    let comparable = groups.iter().zip(&spread).filter(|((g, _), _)| tried(*g).count() >= 2);
    let degenerate = comparable.map(|((_, credit), advantage)| {
        let nothing = credit.bundles.is_empty() && advantage.iter_present().all(|a| a == 0.0);
        f64::from(u8::from(nothing))
    });
    mean(&mut m, "credit/degenerate_group_rate", degenerate);
    m
}

/// What pieces of episodes came to, where a batch holds any: groups that begin in a stored state, or paths that stopped at the end of a
/// macro step. Names are those of the reproduction of TEMPO (KMnO4-zx/agentic-rl-lab `09-tempo`).
pub(crate) fn of_macro_steps(batch: &Batch, credit: &[Credit]) -> Metrics {
    let mut m = Metrics::default();
    let at_boundary = |path: &Trajectory<'_>| path.leaf().end == End::MacroBoundary;
    let restored = |g: Group<'_>| matches!(g.about().origin, Origin::Restored { .. });
    if !batch.groups().any(|g| restored(g) || g.trajectories().any(|path| at_boundary(&path))) {
        return m;
    }
    let paths = || batch.groups().flat_map(tried);
    let share = |holds: bool| f64::from(u8::from(holds));
    mean(&mut m, "actor/segment_reward_mean", batch.groups().flat_map(tried_outcomes));
    mean(&mut m, "actor/terminal_won_rate", paths().map(|path| share(path.leaf().end.success())));
    mean(&mut m, "actor/macro_boundary_rate", paths().map(|path| share(at_boundary(&path))));
    let mut targets = Vec::new();
    let mut gaps = Vec::new();
    for (g, credit) in batch.groups().zip(credit) {
        let of_states = |target: &&String| credit.targets[*target].scope == Scope::State;
        let Some(name) = credit.targets.keys().find(of_states) else { continue };
        targets.extend(credit.targets[name].column.get(0).map(f64::from));
        let Some(values) = batch.signals.get(name).filter(|signal| signal.scope == Scope::State) else { continue };
        // What a critic alone tells apart: branches that stopped at the boundary and earned nothing.
        let unpaid = tried(g).zip(tried_outcomes(g)).filter(|(path, outcome)| at_boundary(path) && *outcome == 0.0);
        let value = |path: Trajectory<'_>| values.column.get(g.rows().start + g.index() + path.turns_up().next()? + 1);
        let values: Vec<f64> = unpaid.filter_map(|(path, _)| value(path)).map(f64::from).collect();
        gaps.push(moments(&values).deviation(Deviation::Population));
    }
    if !targets.is_empty() {
        let targets = moments(&targets);
        m.set("actor/value_target_mean", targets.mean);
        m.set("actor/value_target_std", targets.deviation(Deviation::Population));
    }
    mean(&mut m, "actor/value_gap_zero_reward", gaps.into_iter());
    m
}

/// What a curriculum is told: paths that were not tried have no outcome, and pieces of an episode are none.
pub(crate) fn outcomes(batch: &Batch) -> Vec<Outcome> {
    let whole = |g: &Group<'_>| g.about().before == 0 && g.trajectories().all(|path| path.leaf().end != End::MacroBoundary);
    batch
        .groups()
        .filter(whole)
        .map(|g| Outcome {
            task: g.about().task.clone(),
            returns: tried_outcomes(g),
            solved: g.trajectories().filter(|path| path.leaf().end.success()).count(),
        })
        .collect()
}

struct Path {
    /// Rows of its turns in the batch, from the root.
    turns: Vec<usize>,
    scored: bool,
    success: bool,
    truncated: bool,
    score: f64,
    reward: f64,
    /// Tokens it sampled: a sum, never the span between first and last.
    sampled: usize,
    /// Tokens it read before its first action.
    prompt: usize,
}

fn paths<'a>(batch: &'a Batch, group: Group<'a>) -> impl Iterator<Item = Path> + 'a {
    group.trajectories().map(move |trajectory| {
        let turns: Vec<usize> = trajectory.turns().into_iter().map(|t| group.rows().start + t).collect();
        let end = &trajectory.leaf().end;
        let sum = |column: &[f32]| turns.iter().map(|r| f64::from(column[*r])).sum();
        Path {
            scored: *end != End::Untried,
            success: end.success(),
            truncated: matches!(end, End::Truncated(_)),
            score: sum(&batch.turns.env_reward),
            reward: sum(&batch.turns.reward),
            sampled: turns.iter().map(|r| batch.turns.sampled[*r].len()).sum(),
            prompt: turns.first().map_or(0, |r| batch.turns.action_start[*r] as usize),
            turns,
        }
    })
}

/// The paths that were tried.
fn tried(group: Group<'_>) -> impl Iterator<Item = Trajectory<'_>> {
    group.trajectories().filter(|path| path.leaf().end != End::Untried)
}

/// Outcomes of the paths that were tried.
fn tried_outcomes(group: Group<'_>) -> Vec<f64> {
    let tried = group.trajectories().zip(group.outcomes()).filter(|(path, _)| path.leaf().end != End::Untried);
    tried.map(|(_, outcome)| outcome).collect()
}

/// Sets the mean of some numbers; nothing for no numbers.
fn mean(m: &mut Metrics, name: &str, numbers: impl Iterator<Item = f64>) {
    let (n, sum) = numbers.fold((0u64, 0.0), |(n, sum), x| (n + 1, sum + x));
    if n > 0 {
        m.set(name, sum / n as f64);
    }
}

fn mean_of(advantages: impl Iterator<Item = f32>) -> Option<f64> {
    let present: Vec<f64> = advantages.map(f64::from).collect();
    (!present.is_empty()).then(|| present.iter().sum::<f64>() / present.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::Signal;
    use ascribe_core::batch::NonFinite;
    use ascribe_core::credit::{Bundle, Target};
    use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};

    #[test]
    fn macro_steps_are_told_apart_by_their_values() {
        let leaf = |t: usize, end: End| LeafLog { turn: Some(t), end, seed: 0 };
        let won = || End::Terminated { success: true };
        // Four branches of one turn: two stop unpaid, worth 0.25 and 0.75; one stops paid; one wins.
        let turns = vec![turn(None, 0.0, 1, 1), turn(None, 0.0, 1, 1), turn(None, 0.5, 1, 1), turn(None, 1.0, 1, 1)];
        let leaves = vec![leaf(0, End::MacroBoundary), leaf(1, End::MacroBoundary), leaf(2, End::MacroBoundary), leaf(3, won())];
        let group = GroupLog { turns, leaves, origin: Origin::Restored { age: 1 }, before: 10, ..GroupLog::default() };
        let whole = GroupLog { turns: vec![turn(None, 1.0, 1, 1)], leaves: vec![leaf(0, won())], ..GroupLog::default() };
        let mut batch = Batch::from_groups(vec![group, whole.clone()], NonFinite::Refuse).unwrap();
        let values: Column = [None, Some(0.25), Some(0.75), Some(0.9), None, None, None].into_iter().collect();
        batch.add_signal("value", Signal { scope: Scope::State, provider: "judge".into(), column: values }).unwrap();
        let credit = |n: usize, target: f32| {
            let column = std::iter::once(Some(target)).chain(std::iter::repeat_n(None, n)).collect();
            let targets = [("value".to_string(), Target { scope: Scope::State, column })].into();
            Credit { targets, ..Credit::per_turn(vec![0.0; n]) }
        };
        let m = of_macro_steps(&batch, &[credit(4, 0.875), credit(1, 0.375)]);
        let got = |name: &str| m.get(&format!("actor/{name}")).unwrap();
        assert_eq!((got("segment_reward_mean"), got("terminal_won_rate"), got("macro_boundary_rate")), (0.5, 0.4, 0.6));
        // 0.25 and 0.75 lie 0.25 from their mean; the other group has nothing to tell apart.
        assert_eq!((got("value_target_mean"), got("value_target_std"), got("value_gap_zero_reward")), (0.625, 0.25, 0.125));
        // A curriculum hears of whole episodes alone.
        assert_eq!(outcomes(&batch).len(), 1);
        let plain = Batch::from_groups(vec![whole], NonFinite::Refuse).unwrap();
        assert!(of_macro_steps(&plain, &[credit(1, 0.5)]).0.is_empty());
    }

    #[test]
    fn a_group_without_an_advantage_teaches_nothing_whatever_its_outcomes() {
        let leaf = |t: usize| LeafLog { turn: Some(t), end: End::Terminated { success: true }, seed: 0 };
        let group = |n: usize| GroupLog {
            turns: (0..n).map(|_| turn(None, 1.0, 1, 1)).collect(),
            leaves: (0..n).map(leaf).collect(),
            ..GroupLog::default()
        };
        let batch = Batch::from_groups(vec![group(2), group(2), group(2), group(1)], NonFinite::Refuse).unwrap();
        let bundles = vec![Bundle { chosen: 0, rejected: 1 }];
        let pair = Credit { turns: vec![None, None], bundles, ..Credit::default() };
        let credit = [Credit::per_turn([0.0, 0.0]), Credit::per_turn([0.5, -0.5]), pair, Credit::per_turn([0.0])];
        // Outcomes are equal everywhere; a group of one is compared with nobody.
        assert_eq!(of_credit(&batch, &credit).get("credit/degenerate_group_rate"), Some(1.0 / 3.0));
        assert_eq!(of_rollout(&batch, &BTreeMap::new(), &[]).get("actor/degenerate_group_rate"), Some(1.0));
    }

    fn turn(parent: Option<usize>, reward: f32, read: usize, n: usize) -> TurnLog {
        TurnLog {
            parent,
            agent: "actor".into(),
            read: vec![1; read],
            action: Action { logprob: Some(vec![-1.0; n]), entropy: Some(vec![0.5; n]), ..Action::given(vec![5; n]) },
            reward,
            ..TurnLog::default()
        }
    }

    fn batch() -> Batch {
        let mut turns = vec![turn(None, 0.0, 3, 4), turn(Some(0), 1.0, 2, 5), turn(None, 0.0, 3, 1), turn(None, 9.0, 3, 1)];
        turns[1].signals = vec![("exploit".into(), 1.0)];
        turns[2].validity = Validity::Malformed;
        let end = |turn, end| LeafLog { turn: Some(turn), end, seed: 0 };
        let leaves = vec![
            end(1, End::Terminated { success: true }),
            end(2, End::Truncated(ascribe_core::Limit::Turns)),
            end(3, End::Failed("crashed".into())),
        ];
        Batch::from_groups(vec![GroupLog { turns, leaves, ..GroupLog::default() }], NonFinite::Refuse).unwrap()
    }

    #[test]
    fn a_rollout_is_described_without_its_failures() {
        let m = of_rollout(&batch(), &BTreeMap::from([("env".into(), 1.0)]), &["hint".into()]);
        for (name, want) in [
            ("critic/score/mean", 0.5),
            // sampled tokens: 4 + 5 in the first trajectory, never the span 4 + 2 + 5
            ("response_length/max", 9.0),
            ("prompt_length/mean", 3.0),
            ("rollout/turns/mean", 1.5),
            ("rollout/success_rate", 0.5),
            ("rollout/truncated_rate", 0.5),
            ("rollout/failed_rate", 1.0 / 3.0),
            ("rollout/malformed_rate", 1.0 / 3.0),
            ("actor/degenerate_group_rate", 0.0),
            ("actor/entropy", 0.5),
            ("env/exploit/mean", 0.5),
            ("env/hint/mean", 0.0),
            ("rollout/given_rate", 0.0),
            // returns to go: 1, 1 and 0
            ("critic/returns/mean", 2.0 / 3.0),
        ] {
            assert_eq!(m.get(name), Some(want), "{name}");
        }
        assert_eq!(m.get("rollout/unused_reward"), None);
        assert_eq!(of_rollout(&batch(), &BTreeMap::new(), &[]).get("rollout/unused_reward"), Some(1.0));
    }

    /// A group of single turns with those rewards, of which the first were not tried.
    fn group(rewards: &[f32], untried: usize) -> GroupLog {
        let end = |i| if i < untried { End::Untried } else { End::Terminated { success: true } };
        GroupLog {
            turns: rewards.iter().map(|r| turn(None, *r, 1, 1)).collect(),
            leaves: (0..rewards.len()).map(|i| LeafLog { turn: Some(i), end: end(i), seed: 0 }).collect(),
            ..GroupLog::default()
        }
    }

    #[test]
    fn a_curriculum_is_told_what_was_tried() {
        let batch = Batch::from_groups(vec![group(&[5.0, 1.0, 0.0], 1)], NonFinite::Refuse).unwrap();
        let told = outcomes(&batch);
        assert_eq!((told.len(), &told[0].returns, told[0].solved), (1, &vec![1.0, 0.0], 2));
    }

    #[test]
    fn rewards_that_cancel_within_groups_are_counted() {
        let numbers = |a: [f32; 2], b: [f32; 2]| {
            let mut log = group(&a, 0);
            log.turns.iter_mut().zip(b).for_each(|(turn, b)| turn.signals = vec![("format".into(), b)]);
            log
        };
        let weights = BTreeMap::from([("env".to_string(), 1.0), ("format".to_string(), 0.5)]);
        let rate = |groups: Vec<GroupLog>| {
            let mut batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
            batch.combine_rewards(&weights).unwrap();
            of_rollout(&batch, &weights, &[])
        };
        let m = rate(vec![numbers([2.0, 0.0], [0.0, 4.0]), numbers([1.0, 0.0], [0.0, 0.0])]);
        assert_eq!(m.get("group/cancelled_rate"), Some(0.5));
        // of 2, 0 and of 1, 0; of 0, 2 and of 0, 0
        assert_eq!((m.get("group/reward_std/env"), m.get("group/reward_std/format")), (Some(0.75), Some(0.5)));
        // Nothing that differs cannot cancel.
        assert_eq!(rate(vec![numbers([1.0, 1.0], [2.0, 2.0])]).get("group/cancelled_rate"), Some(0.0));
        let one = of_rollout(&batch(), &BTreeMap::from([("env".into(), 1.0), ("exploit".into(), 0.0)]), &[]);
        assert_eq!(one.get("group/cancelled_rate"), None);
    }

    #[test]
    fn turns_that_meet_are_counted_after_the_first() {
        let at =
            |parent, key: &str| TurnLog { state: key.into(), observation: format!("{key}!").into(), ..turn(parent, 0.0, 1, 1) };
        // Two paths: s, a, b and s, a, c.
        let turns = vec![at(None, "s"), at(Some(0), "a"), at(Some(1), "b"), at(None, "s"), at(Some(3), "a"), at(Some(4), "c")];
        let leaf = |t| LeafLog { turn: Some(t), end: End::Terminated { success: true }, seed: 0 };
        let log = GroupLog { turns, leaves: vec![leaf(2), leaf(5)], ..GroupLog::default() };
        let batch = Batch::from_groups(vec![log], NonFinite::Refuse).unwrap();
        for anchor in [Anchor::State, Anchor::Observation] {
            assert_eq!(of_anchors(&batch, anchor).get("group/anchor_hit_rate"), Some(0.5), "{anchor:?}");
        }
        let single = Batch::from_groups(vec![group(&[1.0, 0.0], 0)], NonFinite::Refuse).unwrap();
        assert_eq!(of_anchors(&single, Anchor::State), Metrics::default());
    }

    #[test]
    fn groups_whose_tried_paths_agree_are_counted() {
        let rate = |groups: Vec<GroupLog>| {
            let batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
            of_rollout(&batch, &BTreeMap::new(), &[]).get("actor/degenerate_group_rate")
        };
        assert_eq!(rate(vec![group(&[1.0; 4], 0)]), Some(1.0));
        assert_eq!(rate(vec![group(&[1.0; 4], 0), group(&[1.0, 0.0, 0.0, 0.0], 0)]), Some(0.5));
        assert_eq!(rate(vec![group(&[0.0, 1.0, 1.0], 1)]), Some(1.0));
        // With one path that was tried there is nothing to compare.
        assert_eq!(rate(vec![group(&[0.0, 1.0], 1)]), None);
    }

    #[test]
    fn credit_is_described_over_trained_tokens() {
        let credit = Credit { turns: vec![Some(1.0), Some(3.0), None], ..Credit::default() };
        let m = of_credit(&batch(), &[credit]);
        for (name, want) in [
            // (4·1 + 5·3) / 9
            ("critic/advantages/mean", 19.0 / 9.0),
            ("credit/trained_rate", 0.9),
            ("credit/within_trajectory_std", 1.0),
            ("credit/zero_rate", 0.0),
        ] {
            assert_eq!(m.get(name), Some(want), "{name}");
        }
    }

    #[test]
    fn an_empty_batch_has_no_means() {
        let m = of_rollout(&Batch::default(), &BTreeMap::new(), &["hint".into()]);
        assert!(m.0.values().all(|x| x.is_finite()));
        assert_eq!(m.get("rollout/success_rate"), None);
        assert_eq!(of_credit(&Batch::default(), &[]), Metrics::default());
    }
}
