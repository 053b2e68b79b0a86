//! What estimators with a critic share: values of states and tokens, and where a path's future comes from.

use std::ops::Range;

use ascribe_core::signal::{Column, Scope};
use ascribe_core::{Credit, End, Group, Need, Step};

/// The column of state values.
const VALUE: &str = "value";
/// The column of values before each sampled token.
pub(crate) const TOKEN_VALUE: &str = "token_value";

/// What an estimator with a critic needs. With tokens, the value of the last state stands for the future where a limit cut
/// the path.
pub(crate) fn needs_over(step: Step) -> Vec<Need> {
    match step {
        Step::Turn => needs(),
        Step::Token => [needs(), vec![Need::Signal(TOKEN_VALUE.into(), Scope::Token)]].concat(),
    }
}

/// What an estimator with a critic needs.
pub(crate) fn needs() -> Vec<Need> {
    vec![Need::Signal(VALUE.into(), Scope::State)]
}

/// The value before each sampled token, `[sampled tokens]`.
///
/// # Panics
/// If it has gaps: a provider fills the groups it judges.
pub(crate) fn token_values(group: Group<'_>) -> &[f32] {
    let signal = group.batch().signals.get(TOKEN_VALUE).filter(|s| s.scope == Scope::Token);
    let signal = signal.expect("the column is present where needs() declares it");
    signal.column.slice(group.sampled()).expect("a provider fills the groups it judges")
}

/// What the state after turn `t` is worth where a path ends there: 0 after a true end, its value where a limit cut it.
pub(crate) fn value_at_end(group: Group<'_>, t: usize, end: &End) -> f64 {
    if end.bootstraps() { group.state_signal(VALUE).after(t) } else { 0.0 }
}

/// Backward over the sampled tokens of a forest, `[sampled tokens]`; gaps for tokens of turns that were not tried.
///
/// * `leaf(turn, end)`: what is carried into a path's last token.
/// * `fold(tokens, rewards, carried, out)`: backward over the tokens of one turn, at least one; writes their advantages and
///   gives what is carried to the token before them.
///
/// At a branch the mean over the children that were tried is carried. A turn without sampled tokens takes no time: its
/// reward is added to that of the token before it.
pub(crate) fn fold_tokens(
    group: Group<'_>,
    leaf: impl Fn(usize, &End) -> f64,
    fold: impl Fn(Range<usize>, &[f32], f64, &mut [f32]) -> f64,
) -> Column {
    let (n, tried, mut rewards, of_turn) = (group.n_turns(), group.tried(), group.token_rewards(), group.rewards());
    let mut out = vec![0.0; rewards.len()];
    // Per turn: what its children carry, their rewards that wait for a token, and how many of them were tried.
    let (mut carried, mut waiting, mut children) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    (0..n).filter(|t| tried[*t]).filter_map(|t| group.parent(t)).for_each(|p| children[p] += 1.0);
    for t in (0..n).rev().filter(|t| tried[*t]) {
        if let Some(end) = group.end(t).filter(|_| group.n_children(t) == 0) {
            carried[t] = leaf(t, end);
        }
        let tokens = group.sampled_of(t);
        let (carry, late) = match rewards[tokens.clone()].last_mut() {
            Some(last) => {
                *last = (f64::from(*last) + waiting[t]) as f32;
                (fold(tokens.clone(), &rewards[tokens.clone()], carried[t], &mut out[tokens]), 0.0)
            }
            None => (carried[t], waiting[t] + f64::from(of_turn[t])),
        };
        if let Some(p) = group.parent(t) {
            carried[p] += carry / children[p];
            waiting[p] += late / children[p];
        }
    }
    let mut out = Column::full(out);
    let untried = (0..n).filter(|t| !tried[*t]).flat_map(|t| group.sampled_of(t));
    untried.for_each(|i| out.set(i, None));
    out
}

/// `δ_t = r_t + γ V(s_{t+1}) − V(s_t)` per turn, `[turns]`; `None` where the next state was not reached, because the turn
/// was not tried. After a true end the next state is worth 0.
pub(crate) fn td_errors(group: Group<'_>, gamma: f64) -> Vec<Option<f64>> {
    let (value, reward) = (group.state_signal(VALUE), group.rewards());
    let delta = |t: usize| {
        let next = match group.end(t).filter(|_| group.n_children(t) == 0) {
            Some(End::Terminated { .. }) => 0.0,
            Some(End::Untried | End::Failed(_)) => return None,
            Some(End::Truncated(_) | End::MacroBoundary) | None => value.after(t),
        };
        Some(f64::from(reward[t]) + gamma * next - value.before(t))
    };
    (0..group.n_turns()).map(delta).collect()
}

/// Credit per turn, `[turns]`; what has no number is not trained.
pub(crate) fn credit_of_tried(advantage: impl IntoIterator<Item = Option<f64>>) -> Credit {
    Credit { turns: advantage.into_iter().map(|a| a.map(|a| a as f32)).collect(), ..Credit::default() }
}
