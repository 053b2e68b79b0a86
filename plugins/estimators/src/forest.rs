//! What estimators on branching groups share: who continues whom, what lies below a turn, and state values with gaps.

use ascribe_core::signal::Scope;
use ascribe_core::{Group, Need};
use ascribe_math::moments;

/// The column of state values.
pub(crate) const VALUE: &str = "value";

/// What an estimator that reads state values, with or without gaps, needs.
pub(crate) fn needs_values() -> Need {
    Need::SomeStates(VALUE.into())
}

/// State values of a group as far as they were computed: of the start, then after each turn. `[turns + 1]`
pub(crate) fn known_values(group: Group<'_>) -> Vec<Option<f64>> {
    let signal = group.batch().signals.get(VALUE).filter(|s| s.scope == Scope::State);
    let signal = signal.expect("the column is present where needs() declares it");
    // Every group before this one has a row more than it has turns.
    let first = group.rows().start + group.index();
    (first..=first + group.n_turns()).map(|i| signal.column.get(i).map(f64::from)).collect()
}

/// Numbers of the paths below each turn, in order of the paths, of those that have one. `[turns]`
pub(crate) fn below(group: Group<'_>, per_path: &[Option<f64>]) -> Vec<Vec<f64>> {
    let mut below = vec![Vec::new(); group.n_turns()];
    for (path, x) in group.trajectories().zip(per_path) {
        let Some(x) = x else { continue };
        path.turns_up().for_each(|t| below[t].push(*x));
    }
    below
}

/// Which turns continue which.
pub(crate) struct Forest {
    /// Turns at the start.
    pub roots: Vec<usize>,
    /// Turns that continue each turn, `[turns]`.
    pub children: Vec<Vec<usize>>,
}

impl Forest {
    /// The turns that `keep` names, `[turns]`; with a turn it must keep what the turn continues.
    pub fn of(group: Group<'_>, keep: impl Fn(usize) -> bool) -> Self {
        let mut forest = Self { roots: Vec::new(), children: vec![Vec::new(); group.n_turns()] };
        for t in (0..group.n_turns()).filter(|t| keep(*t)) {
            match group.parent(t) {
                Some(p) => forest.children[p].push(t),
                None => forest.roots.push(t),
            }
        }
        forest
    }

    /// The turns that start where turn `t` does, itself among them.
    pub fn siblings(&self, group: Group<'_>, t: usize) -> &[usize] {
        group.parent(t).map_or(&self.roots, |p| &self.children[p])
    }
}

/// Mean of the numbers: exactly their value where they are equal; `None` of none.
pub(crate) fn mean(x: &[f64]) -> Option<f64> {
    (!x.is_empty()).then(|| moments(x).mean)
}

/// Numbers as credit stores them.
pub(crate) fn rounded(x: impl IntoIterator<Item = Option<f64>>) -> Vec<Option<f32>> {
    x.into_iter().map(|x| x.map(|x| x as f32)).collect()
}
