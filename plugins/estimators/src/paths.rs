//! What estimators with a number per path share. A path that was not tried has none, and moves no statistic.

use ascribe_core::{End, Group};

/// Advantages of the paths that were tried, `[paths]`; `None` for the others.
///
/// * `advantage(outcomes)` makes the outcomes of the tried paths advantages in place.
pub(crate) fn advantages_of_tried(group: Group<'_>, advantage: impl FnOnce(&mut [f64])) -> Vec<Option<f64>> {
    let outcomes = outcomes_of_tried(group);
    let mut numbers: Vec<f64> = outcomes.iter().copied().flatten().collect();
    advantage(&mut numbers);
    let mut numbers = numbers.into_iter();
    outcomes.iter().map(|outcome| outcome.and_then(|_| numbers.next())).collect()
}

/// Outcomes of the paths that were tried, `[paths]`; `None` for the others.
pub(crate) fn outcomes_of_tried(group: Group<'_>) -> Vec<Option<f64>> {
    let tried = group.trajectories().map(|path| path.leaf().end != End::Untried);
    group.outcomes().into_iter().zip(tried).map(|(outcome, tried)| tried.then_some(outcome)).collect()
}

/// The outcome of the tried path that ends after a turn without a continuation, `[turns]`; `None` at all other turns.
pub(crate) fn outcome_at_end(group: Group<'_>) -> Vec<Option<f64>> {
    let mut at_end = vec![None; group.n_turns()];
    for (path, outcome) in group.trajectories().zip(outcomes_of_tried(group)) {
        if let Some(last) = path.turns_up().next().filter(|t| group.n_children(*t) == 0) {
            at_end[last] = outcome;
        }
    }
    at_end
}
