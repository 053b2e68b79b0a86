//! What a critic of values learns: the same four targets for each of them.

use ascribe_core::{Credit, End, Group, Need, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The column of values that continuations found.
pub(crate) const MC_VALUE: &str = "mc_value";

/// What a value should have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The estimator's own target for the column, as `tempo` gives one.
    Estimator,
    /// The return from there on, discounted by `gamma`; where a path was cut, the column's own value of its last state.
    #[default]
    Return,
    /// What the environment paid from there on, discounted by `gamma`: a limit of turns, tokens or context is an end. Where the limit is part of the
    /// task, and to reach it is to lose, this is what a value should have been; elsewhere it is too low.
    Outcome,
    /// The λ-return of the column's own values.
    Lambda,
    /// The column `mc_value` of a `monte-carlo` critic.
    MonteCarlo,
}

impl Target {
    /// What it takes, for the column that learns.
    pub fn needs(self, column: &str) -> Option<Need> {
        match self {
            Target::Estimator => Some(Need::Target(column.into())),
            Target::MonteCarlo => Some(Need::Signal(MC_VALUE.into(), Scope::State)),
            Target::Return | Target::Outcome | Target::Lambda => None,
        }
    }
}

/// How a target is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// Which.
    pub target: Target,
    /// Discount per turn, in 0..=1.
    pub gamma: f64,
    /// Decay of λ-returns, in 0..=1.
    pub lambda: f64,
}

impl Recipe {
    /// Targets of one group for the state before each turn, `[turns]`; `None` where there is nothing to learn.
    ///
    /// * `column`: the critic's own column of states
    ///
    /// The λ-return is `G_t = r_t + γ((1 − λ) V(s_{t+1}) + λ G_{t+1})` (Sutton and Barto 2018, eq. 12.2 in recursive form), with the mean
    /// over children where paths fork; the value of a state where a path was cut stands for what follows.
    pub fn before_turns(self, column: &str, group: Group<'_>, credit: &Credit) -> Vec<Option<f32>> {
        match self.target {
            Target::Estimator => {
                let target = credit.targets.get(column);
                let before = |t: usize| group.parent(t).map_or(0, |p| p + 1);
                (0..group.n_turns()).map(|t| target.and_then(|target| target.column.get(before(t)))).collect()
            }
            Target::MonteCarlo => {
                let values = group.state_signal(MC_VALUE);
                (0..group.n_turns()).map(|t| Some(values.before(t) as f32)).collect()
            }
            Target::Return | Target::Outcome => self.returns(group, 1.0, &known(column, group)),
            Target::Lambda => self.returns(group, self.lambda, &known(column, group)),
        }
    }

    /// `G_t = r_t + γ((1 − λ) V(s_{t+1}) + λ G_{t+1})`, per state before a turn: the mean over the turns that start there; `None`
    /// where a value is wanted that nobody has.
    fn returns(self, group: Group<'_>, lambda: f64, values: &[f64]) -> Vec<Option<f32>> {
        let reward = group.rewards();
        let tried = group.tried();
        let of_turn = group.fold_up(
            |_| 0.0,
            |t, future| {
                // Where a path ends, nothing follows or the value of its last state does.
                let follows = match group.end(t).filter(|_| group.n_children(t) == 0) {
                    Some(End::Truncated(_)) if self.target == Target::Outcome => 0.0,
                    Some(end) if end.bootstraps() => values[t + 1],
                    Some(_) => 0.0,
                    None if lambda == 1.0 => future,
                    None => (1.0 - lambda) * values[t + 1] + lambda * future,
                };
                f64::from(reward[t]) + self.gamma * follows
            },
        );
        // Siblings start in the same state: what it is worth is the mean over those that were tried.
        let mut sums = vec![(0.0, 0u32); group.n_turns() + 1];
        for t in (0..group.n_turns()).filter(|t| tried[*t]) {
            let (sum, n) = &mut sums[group.parent(t).map_or(0, |p| p + 1)];
            *sum += of_turn[t];
            *n += 1;
        }
        (0..group.n_turns())
            .map(|t| {
                let (sum, n) = sums[group.parent(t).map_or(0, |p| p + 1)];
                (n > 0).then(|| (sum / f64::from(n)) as f32).filter(|target| target.is_finite())
            })
            .collect()
    }
}

/// A column on the states of a group: its start, then after each turn. NaN stands where there is none, so that what would
/// follow from it is no target.
fn known(column: &str, group: Group<'_>) -> Vec<f64> {
    let signal = group.batch().signals.get(column).filter(|signal| signal.scope == Scope::State);
    // Every group before this one has a row more than it has turns.
    let first = group.rows().start + group.index();
    let number = |i| signal.and_then(|signal| signal.column.get(i)).map_or(f64::NAN, f64::from);
    (first..=first + group.n_turns()).map(number).collect()
}

#[cfg(test)]
mod tests {
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, TurnLog};
    use ascribe_core::{Batch, Limit};

    use super::*;
    use crate::testing::group;

    #[test]
    fn a_limit_that_is_part_of_the_task_is_an_end() {
        let turn = |parent: Option<usize>, reward: f32| {
            let action = Action { logprob: Some(vec![-1.0]), ..Action::given(vec![1]) };
            TurnLog { parent, agent: "actor".into(), action, reward, ..TurnLog::default() }
        };
        // Two turns each: won, lost at the limit, stopped at the end of a macro step.
        let turns =
            vec![turn(None, 0.0), turn(Some(0), 1.0), turn(None, 0.25), turn(Some(2), 0.0), turn(None, 0.0), turn(Some(4), 0.0)];
        let ends = [(1, End::Terminated { success: true }), (3, End::Truncated(Limit::Turns)), (5, End::MacroBoundary)];
        let batch = Batch::from_groups(vec![group(turns, &ends)], NonFinite::Refuse).unwrap();
        let of = |target| {
            let recipe = Recipe { target, gamma: 0.5, lambda: 1.0 };
            recipe.before_turns("value", batch.group(0), &Credit::default())
        };
        // Nobody has values: what was cut says nothing, and the start, from which all begin, nothing either.
        assert_eq!(of(Target::Return), [None, Some(1.0), None, None, None, None]);
        // The limit is an end; what goes on after a macro step is still unknown.
        assert_eq!(of(Target::Outcome), [None, Some(1.0), None, Some(0.0), None, None]);
    }
}
