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
    use ascribe_core::Batch;
    use ascribe_core::log::TurnLog;

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
}
