//! What estimators on the graph of states share. A turn is an edge from the state before it to the state after it.

use std::collections::BTreeMap;

use ascribe_core::key::KeyId;
use ascribe_core::{End, Group};
use ascribe_math::{Deviation, Singleton, Standardise, standardise};

/// How numbers are compared with each other: sample deviation and ε, or only centred; alone or all equal is exactly 0.
pub(crate) fn comparison(std: bool, epsilon: f64) -> Standardise {
    Standardise { scale: std.then_some((Deviation::Sample, epsilon)), singleton: Singleton::Zero }
}

/// Standardises the numbers of all turns that have one, `[turns]`.
pub(crate) fn standardise_turns(numbers: &mut [Option<f64>], how: Standardise) {
    let turns: Vec<usize> = (0..numbers.len()).filter(|t| numbers[*t].is_some()).collect();
    standardise_some(numbers, &turns, how);
}

/// Standardises the numbers of turns with those that leave the same state, `[turns]`.
pub(crate) fn standardise_leaving(group: Group<'_>, numbers: &mut [Option<f64>], how: Standardise) {
    let mut leaving: BTreeMap<KeyId, Vec<usize>> = BTreeMap::new();
    for (t, state) in group.states().iter().enumerate() {
        if numbers[t].is_some() {
            leaving.entry(*state).or_default().push(t);
        }
    }
    leaving.values().for_each(|turns| standardise_some(numbers, turns, how));
}

fn standardise_some(numbers: &mut [Option<f64>], turns: &[usize], how: Standardise) {
    let mut chosen: Vec<f64> = turns.iter().filter_map(|t| numbers[*t]).collect();
    standardise(&mut chosen, how);
    for (t, x) in turns.iter().zip(chosen) {
        numbers[*t] = Some(x);
    }
}

/// Mean over the paths through each turn of `number(path's number, turns from here to the end)`; the path's last turn has
/// 1 turn to the end. `[turns]`; `None` where no path with a number goes through.
pub(crate) fn mean_over_paths(
    group: Group<'_>,
    per_path: &[Option<f64>],
    number: impl Fn(f64, usize) -> f64,
) -> Vec<Option<f64>> {
    let mut sum = vec![0.0; group.n_turns()];
    let mut count = vec![0u32; group.n_turns()];
    for (path, x) in group.trajectories().zip(per_path) {
        let Some(x) = x else { continue };
        for (before_end, t) in path.turns_up().enumerate() {
            sum[t] += number(*x, before_end + 1);
            count[t] += 1;
        }
    }
    sum.iter().zip(&count).map(|(s, n)| (*n > 0).then(|| s / f64::from(*n))).collect()
}

/// How the path ended at this turn, if nothing continues it.
pub(crate) fn last_end(group: Group<'_>, t: usize) -> Option<&End> {
    group.end(t).filter(|_| group.n_children(t) == 0)
}

/// Interned state after each turn, `[turns]`.
pub(crate) fn states_after(group: Group<'_>) -> &[KeyId] {
    &group.batch().turns.state_after[group.rows()]
}

#[cfg(test)]
pub(crate) mod tests {
    use ascribe_core::log::TurnLog;
    use ascribe_core::{AdvantageEstimator, Batch, Column, End, Limit, Now, Scope, Signal};
    use proptest::prelude::*;

    use crate::fixture::{LOST, WON, batch, turn};

    /// A step of a path: state, action, next state.
    pub(crate) type Step = (u8, u8, u8);

    pub(crate) fn step(parent: Option<usize>, reward: f32, (state, action, after): Step) -> TurnLog {
        TurnLog { state: vec![state], action_key: vec![action], state_after: vec![after], ..turn(parent, reward) }
    }

    /// Independent paths that end with a reward; a positive one is a success.
    pub(crate) fn paths(paths: &[(&[Step], f32)]) -> Batch {
        let mut turns = Vec::new();
        let mut leaves = Vec::new();
        for (steps, reward) in paths {
            for (t, s) in steps.iter().enumerate() {
                let last = t + 1 == steps.len();
                turns.push(step((t > 0).then(|| turns.len() - 1), if last { *reward } else { 0.0 }, *s));
            }
            leaves.push((turns.len() - 1, if *reward > 0.0 { WON } else { LOST }));
        }
        batch(turns, &leaves)
    }

    /// Any forest with turn signals that have gaps, values of states, and ends of every kind.
    pub(crate) fn forests() -> impl Strategy<Value = Batch> {
        let turns = prop::collection::vec((any::<u8>(), -3i8..4, 0u8..2, 0u8..3, 0u8..7, prop::option::of(-3i8..4)), 1..12);
        turns.prop_map(|turns| {
            let mut logs: Vec<TurnLog> = Vec::new();
            let mut leaves = Vec::new();
            let mut has_child = vec![false; turns.len()];
            for (t, (parent, reward, action, after, ..)) in turns.iter().enumerate() {
                let parent = (*parent as usize % (t + 1)).checked_sub(1);
                // All start in one state; a turn acts in the state that its parent led to.
                let state = parent.map_or(0, |p| logs[p].state_after[0]);
                logs.push(step(parent, f32::from(*reward), (state, *action, *after)));
                if let Some(p) = parent {
                    has_child[p] = true;
                }
            }
            for (t, (.., end, _)) in turns.iter().enumerate() {
                let end = match end {
                    0 | 1 => WON,
                    2 | 3 => LOST,
                    4 => End::Truncated(Limit::Turns),
                    5 => End::Untried,
                    _ => End::Failed("broken".into()),
                };
                if !has_child[t] {
                    leaves.push((t, end));
                } else if t % 4 == 3 {
                    leaves.push((t, End::MacroBoundary));
                }
            }
            let mut batch = batch(logs, &leaves);
            // Rows of failed paths lie behind the others, so gaps fall anywhere.
            let column: Column = turns.iter().map(|(.., x)| x.map(f32::from)).collect();
            for name in ["info_gain", "contribution", "grounding", "turn_reward", "process_reward"] {
                let signal = Signal { scope: Scope::Turn, provider: "test".into(), column: column.clone() };
                batch.add_signal(name, signal).unwrap();
            }
            let value = Column::full((0..=turns.len()).map(|t| t as f32).collect());
            batch.add_signal("value", Signal { scope: Scope::State, provider: "test".into(), column: value }).unwrap();
            batch
        })
    }

    /// Credit is finite; a turn on a path that was tried is trained, one that was not tried is not.
    pub(crate) fn is_sound(estimator: &dyn AdvantageEstimator, batch: &Batch) {
        let group = batch.group(0);
        let credit = estimator.estimate(group, &Now::default()).unwrap();
        credit.check(group).unwrap();
        for (t, tried) in group.tried().into_iter().enumerate() {
            let trained = group.sampled_of(t).any(|i| !credit.tokens.is_empty() && credit.tokens.get(i).is_some());
            assert!(tried || !(trained || credit.turns[t].is_some()), "turn {t} was not tried");
        }
        let outcomes: Vec<Option<f64>> =
            group.trajectories().map(|path| (path.leaf().end != End::Untried).then_some(0.0)).collect();
        for (t, on_tried) in super::mean_over_paths(group, &outcomes, |x, _| x).into_iter().enumerate() {
            let trained = group.sampled_of(t).any(|i| !credit.tokens.is_empty() && credit.tokens.get(i).is_some());
            assert!(on_tried.is_none() || trained || credit.turns[t].is_some(), "turn {t} lies on a path that was tried");
        }
    }

    /// A path: its turns (action, next state, signal), and what it earns at the end.
    pub(crate) type Path = (Vec<(u8, u8, Option<i8>)>, i8);

    /// Groups of independent paths.
    pub(crate) fn groups() -> impl Strategy<Value = Vec<Path>> {
        let turn = (0u8..2, 0u8..3, prop::option::of(-3i8..4));
        prop::collection::vec((prop::collection::vec(turn, 1..5), 0i8..3), 1..6)
    }

    /// Permuting trajectories permutes credit.
    pub(crate) fn order_does_not_matter(estimator: &dyn AdvantageEstimator, group: &[Path]) {
        let credit = |order: &[usize]| {
            let mut column = Column::default();
            let mut records: Vec<(Vec<Step>, f32)> = Vec::new();
            for (turns, reward) in order.iter().map(|i| &group[*i]) {
                let mut state = 0;
                let steps = turns.iter().map(|(action, after, _)| (std::mem::replace(&mut state, *after), *action, *after));
                records.push((steps.collect(), f32::from(*reward)));
                turns.iter().for_each(|(.., x)| column.push(x.map(f32::from)));
            }
            let records: Vec<(&[Step], f32)> = records.iter().map(|(steps, reward)| (&steps[..], *reward)).collect();
            let mut batch = paths(&records);
            for name in ["info_gain", "contribution", "grounding", "turn_reward", "process_reward"] {
                let signal = Signal { scope: Scope::Turn, provider: "test".into(), column: column.clone() };
                batch.add_signal(name, signal).unwrap();
            }
            let flat = estimator.estimate(batch.group(0), &Now::default()).unwrap().turns;
            let mut per_path = vec![Vec::new(); group.len()];
            let mut from = 0;
            for i in order {
                let until = from + group[*i].0.len();
                per_path[*i] = flat[from..until].to_vec();
                from = until;
            }
            per_path.concat()
        };
        let forward: Vec<usize> = (0..group.len()).collect();
        let backward: Vec<usize> = (0..group.len()).rev().collect();
        for (a, b) in credit(&forward).into_iter().zip(credit(&backward)) {
            assert!((a.unwrap() - b.unwrap()).abs() < 1e-4, "{a:?} {b:?}");
        }
    }
}
