//! Credit: what an estimator says about one group, and the one function that spreads it onto sampled tokens.

use std::collections::BTreeMap;

use crate::batch::Group;
use crate::signal::{Column, Scope};

/// Credit for a named span of one turn's action.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanCredit {
    /// Turn within the group.
    pub turn: usize,
    /// Offset of the first token within the action.
    pub start: u32,
    /// One past the last token.
    pub end: u32,
    /// The advantage; `None` takes the span out of training.
    pub advantage: Option<f32>,
}

/// Rows that must share a minibatch, e.g. a preference pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Trajectory preferred, an index into the group's trajectories.
    pub chosen: usize,
    /// Trajectory rejected.
    pub rejected: usize,
}

/// What a signal should have been: a training target for whoever provides it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What the target has one number for.
    pub scope: Scope,
    /// The numbers of this group: `[turns + 1]`, `[turns]` or `[sampled tokens]`.
    pub column: Column,
}

/// What an estimator says about one group, at its own granularity.
///
/// `None` is *not trained*: in no denominator, KL or entropy term. 0 is trained with advantage 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Credit {
    /// Advantage per turn, `[turns]`.
    pub turns: Vec<Option<f32>>,
    /// Finer, per span: overrides the turn's.
    pub spans: Vec<SpanCredit>,
    /// Finest, per sampled token: overrides span and turn. `[sampled tokens]` or empty.
    pub tokens: Column,
    /// Loss weight per turn, 0 or more; empty is 1 everywhere.
    pub weight: Vec<f32>,
    /// Named targets for signals.
    pub targets: BTreeMap<String, Target>,
    /// Rows that belong together.
    pub bundles: Vec<Bundle>,
}

impl Credit {
    /// One advantage per turn, all trained.
    pub fn per_turn(advantages: impl IntoIterator<Item = f64>) -> Self {
        Self { turns: advantages.into_iter().map(|a| Some(a as f32)).collect(), ..Self::default() }
    }

    /// One advantage per sampled token, all trained.
    pub fn per_token(n_turns: usize, advantages: impl IntoIterator<Item = f64>) -> Self {
        Self::of_tokens(n_turns, Column::full(advantages.into_iter().map(|a| a as f32).collect()))
    }

    /// Advantages of sampled tokens, `[sampled tokens]`; a gap is not trained.
    pub fn of_tokens(n_turns: usize, tokens: Column) -> Self {
        Self { turns: vec![None; n_turns], tokens, ..Self::default() }
    }

    /// Checks that the lengths fit the group, that every number is finite, and that no loss weight is negative.
    ///
    /// # Errors
    /// Names the turn or token.
    pub fn check(&self, group: Group<'_>) -> Result<(), String> {
        let (turns, tokens) = (group.n_turns(), group.sampled().len());
        let fits = |what: &str, n: usize, want: usize| {
            if n == want { Ok(()) } else { Err(format!("{n} {what} credits for {want} of them")) }
        };
        fits("turn", self.turns.len(), turns)?;
        if !self.tokens.is_empty() {
            fits("token", self.tokens.len(), tokens)?;
        }
        if !self.weight.is_empty() {
            fits("turn weight", self.weight.len(), turns)?;
        }
        let finite = |what: &str, i: usize, x: Option<f32>| match x {
            Some(x) if !x.is_finite() => Err(format!("the advantage of {what} {i} is {x}")),
            _ => Ok(()),
        };
        self.turns.iter().enumerate().try_for_each(|(i, x)| finite("turn", i, *x))?;
        self.tokens.iter().enumerate().try_for_each(|(i, x)| finite("token", i, x))?;
        self.spans.iter().try_for_each(|s| finite("a span of turn", s.turn, s.advantage))?;
        if let Some((t, x)) = self.weight.iter().enumerate().find(|(_, x)| !(x.is_finite() && **x >= 0.0)) {
            return Err(format!("the loss weight of turn {t} is {x}; it must be finite and 0 or more"));
        }
        if let Some(s) = self.spans.iter().find(|s| s.turn >= turns) {
            return Err(format!("a span credit names turn {} of {turns}", s.turn));
        }
        if let Some(b) = self.bundles.iter().find(|b| b.chosen.max(b.rejected) >= group.n_trajectories()) {
            return Err(format!("a bundle names trajectory {} of {}", b.chosen.max(b.rejected), group.n_trajectories()));
        }
        for (name, target) in &self.targets {
            let want = match target.scope {
                Scope::State => turns + 1,
                Scope::Turn => turns,
                Scope::Token => tokens,
            };
            fits(&format!("target `{name}`"), target.column.len(), want)?;
            if let Some(x) = target.column.iter_present().find(|x| !x.is_finite()) {
                return Err(format!("target `{name}` holds {x}"));
            }
        }
        Ok(())
    }
}

/// Credit spread onto the group's sampled tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenCredit {
    /// Advantage; `None` is not trained. `[sampled tokens]`.
    pub advantage: Column,
    /// Loss weight, `[sampled tokens]`.
    pub weight: Vec<f32>,
}

/// Spreads credit onto sampled tokens: the finest that speaks wins; a turn's number is broadcast, never divided.
pub fn spread(group: Group<'_>, credit: &Credit) -> TokenCredit {
    let n = group.sampled().len();
    let (mut advantage, mut weight) = (Column::default(), Vec::with_capacity(n));
    // Turns have their tokens in order and without gaps.
    for t in 0..group.n_turns() {
        let end = group.sampled_of(t).end;
        advantage.push_n(credit.turns[t], end - advantage.len());
        weight.resize(end, credit.weight.get(t).copied().unwrap_or(1.0));
    }
    for span in &credit.spans {
        let turn = group.rows().start + span.turn;
        let action_start = group.batch().turns.action_start[turn];
        for i in group.sampled_of(span.turn) {
            let at = group.batch().sampled.at[group.sampled().start + i] - action_start;
            if (span.start..span.end).contains(&at) {
                advantage.set(i, span.advantage);
            }
        }
    }
    for (i, finest) in credit.tokens.iter().enumerate() {
        if finest.is_some() {
            advantage.set(i, finest);
        }
    }
    TokenCredit { advantage, weight }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::{WON, group, turn};
    use crate::batch::{Batch, NonFinite};

    #[test]
    fn the_finest_credit_wins_and_is_broadcast() {
        let turns = vec![turn(None, 0.0, 0, 3), turn(Some(0), 1.0, 1, 2)];
        let batch = Batch::from_groups(vec![group(turns, &[(1, WON)])], NonFinite::Refuse).unwrap();
        let g = batch.group(0);
        let mut credit = Credit { turns: vec![Some(2.0), None], ..Credit::default() };
        assert_eq!(spread(g, &credit).advantage, [Some(2.0), Some(2.0), Some(2.0), None, None]);
        credit.spans = vec![SpanCredit { turn: 0, start: 1, end: 2, advantage: Some(7.0) }];
        assert_eq!(spread(g, &credit).advantage, [Some(2.0), Some(7.0), Some(2.0), None, None]);
        credit.tokens = vec![None, Some(9.0), None, None, Some(1.0)].into();
        credit.weight = vec![1.0, 0.5];
        let spread = spread(g, &credit);
        assert_eq!(spread.advantage, [Some(2.0), Some(9.0), Some(2.0), None, Some(1.0)]);
        assert_eq!(spread.weight, [1.0, 1.0, 1.0, 0.5, 0.5]);
        assert_eq!(credit.check(g), Ok(()));
        credit.turns[0] = Some(f32::INFINITY);
        assert_eq!(credit.check(g), Err("the advantage of turn 0 is inf".into()));
        credit.turns[0] = None;
        for bad in [-1.0, f32::NAN] {
            credit.weight[1] = bad;
            assert_eq!(credit.check(g), Err(format!("the loss weight of turn 1 is {bad}; it must be finite and 0 or more")));
        }
    }
}
