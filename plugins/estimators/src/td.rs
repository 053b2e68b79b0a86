//! The temporal-difference error of each turn.
//!
//! `A_t = r_t + γ V(s_{t+1}) − V(s_t)`, with `V = 0` after a true end and the value of the last state where a limit cut
//! the path. A turn's own number: at a branch nothing is averaged, the state after the turn is the children's start.
//!
//! Sutton 1988; Sutton and Barto 2018, eq. 6.5. Reductions: `n-step` with `n = 1`, `gae` with `λ = 0`; with values of 0 it is
//! the turn's own reward. Edge cases: a path that was not tried has no next state: its last turn is not trained.
//! No official code exists.

use ascribe_core::range::Unit;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{credit_of_tried, needs, td_errors};

/// `[estimator.td]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Td {
    /// Discount per turn, in 0..=1.
    pub gamma: Unit,
}

plugin! {
    Estimator "td" {
        summary: "The temporal-difference error of each turn: what it earned and how much better the next state is.",
        source: "Sutton 1988, Learning to predict by the methods of temporal differences",
        when: "With a critic that can be trusted turn by turn: least variance, and all of the critic's bias.",
        example: "gamma = 1.0",
        module: "td.rs",
    }
    impl AdvantageEstimator for Td {
        fn needs(&self) -> Vec<Need> {
            needs()
        }

        fn laws(&self) -> Vec<Law> {
            let telescopes = (*self.gamma == 1.0).then_some(Law::Telescoping);
            [Law::Scale, Law::Bootstraps, Law::Ascent].into_iter().chain(telescopes).collect()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(credit_of_tried(td_errors(group, *self.gamma)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, batch, chains, turn, valued};
    use ascribe_core::{End, Limit};

    fn td(gamma: f64) -> Td {
        Td { gamma: Unit::try_from(gamma).unwrap() }
    }

    #[test]
    fn the_next_state_is_worth_its_value_unless_it_is_the_end() {
        // values 1, 2, 4 of the states; rewards 1, 3
        let ends = [(LOST, 3.0 - 2.0), (End::Truncated(Limit::Turns), 3.0 + 0.5 * 4.0 - 2.0), (End::MacroBoundary, 3.0)];
        for (end, last) in ends {
            let path = valued(chains(&[(&[1.0, 3.0], end)]), &[1.0, 2.0, 4.0]);
            let credit = td(0.5).estimate(path.group(0), &Now::default()).unwrap();
            assert_eq!(credit.turns, [Some(1.0 + 0.5 * 2.0 - 1.0), Some(last)]);
        }
    }

    #[test]
    fn siblings_share_the_state_they_start_from() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0)], &[(1, LOST), (2, LOST)]);
        let tree = valued(tree, &[0.25, 0.5, 9.0, 9.0]);
        let credit = td(1.0).estimate(tree.group(0), &Now::default()).unwrap();
        assert_eq!(credit.turns, [Some(0.25), Some(0.5), Some(-0.5)]);
    }

    #[test]
    fn what_was_not_tried_is_not_trained() {
        let untried = valued(chains(&[(&[0.0, 1.0], End::Untried)]), &[1.0, 2.0, 4.0]);
        let credit = td(1.0).estimate(untried.group(0), &Now::default()).unwrap();
        assert_eq!(credit.turns, [Some(1.0), None]);
    }
}
