//! What estimators with a critic share: values of states, and where a path's future comes from.

use ascribe_core::signal::Scope;
use ascribe_core::{Credit, End, Group, Need};

/// The column of state values.
const VALUE: &str = "value";

/// What an estimator with a critic needs.
pub(crate) fn needs() -> Vec<Need> {
    vec![Need::Signal(VALUE.into(), Scope::State)]
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
