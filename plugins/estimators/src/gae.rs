//! Generalised advantage estimation over turns: an exponentially weighted mean of n-step advantages.
//!
//! `A_t = δ_t + γλ A_{t+1}`, `δ_t = r_t + γ V(s_{t+1}) − V(s_t)`, one step per turn; at a branch, the mean over the children.
//! After a true end `V = 0`; where a limit cut the path the last state's value stands for the future.
//!
//! Schulman et al. 2016, arXiv 1506.02438, eq. 16; on turns instead of tokens, as in turn-level PPO for agents. Reductions: `λ = 0` is `td`; `λ = 1` is the return minus the value; with values of
//! 0 it is `return-to-go` discounted by `γλ`. Edge cases: a turn that was not tried is not trained and moves no mean.
//! Where the authors' code of turn-level methods takes the value at a call's first token from a change of the mask, two
//! calls without a gap between them share a slot and one loses its reward; here turns are turns.

use ascribe_core::range::Unit;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Need, Now, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{credit_of_tried, needs, td_errors};

/// `[estimator.gae]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gae {
    /// Discount per turn, in 0..=1.
    pub gamma: Unit,
    /// Weight of longer estimates, in 0..=1: 0 trusts the critic, 1 the return.
    pub lambda: Unit,
}

plugin! {
    Estimator "gae" {
        summary: "Generalised advantage estimation over turns: between the TD error and the return minus the value.",
        source: "Schulman et al. 2016, High-dimensional continuous control using GAE, arXiv 1506.02438, eq. 16",
        when: "With a critic, over many turns: the standard way to trade its bias for the return's variance.",
        example: "gamma = 1.0\nlambda = 0.95",
    }
    impl AdvantageEstimator for Gae {
        fn needs(&self) -> Vec<Need> {
            needs()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let delta = td_errors(group, *self.gamma);
            let decay = *self.gamma * *self.lambda;
            let advantage = group.fold_up(|_| 0.0, |t, future| delta[t].unwrap_or(0.0) + decay * future);
            Ok(credit_of_tried(delta.iter().zip(advantage).map(|(d, a)| d.and(Some(a)))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn, valued};
    use crate::td::Td;
    use ascribe_core::{End, Limit};
    use proptest::prelude::*;

    fn unit(x: f64) -> Unit {
        Unit::try_from(x).unwrap()
    }
    fn gae(gamma: f64, lambda: f64) -> Gae {
        Gae { gamma: unit(gamma), lambda: unit(lambda) }
    }
    fn turns(estimator: &dyn AdvantageEstimator, batch: &ascribe_core::Batch) -> Vec<Option<f32>> {
        estimator.estimate(batch.group(0), &Now::default()).unwrap().turns
    }

    #[test]
    fn hand_worked() {
        // γ = λ = ½, rewards 1, 2, values 2, 4: δ = (1 + ½·4 − 2, 2 − 4) = (1, −2) at a true end; A_0 = 1 − ¼·2
        let path = |end| valued(chains(&[(&[1.0, 2.0], end)]), &[2.0, 4.0, 6.0]);
        assert_eq!(turns(&gae(0.5, 0.5), &path(WON)), [Some(0.5), Some(-2.0)]);
        // cut by a limit: δ_1 = 2 + ½·6 − 4 = 1
        assert_eq!(turns(&gae(0.5, 0.5), &path(End::Truncated(Limit::Turns))), [Some(1.25), Some(1.0)]);
    }

    #[test]
    fn at_a_branch_the_children_that_were_tried_are_averaged() {
        let tree = |last| {
            let turns = vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0), turn(Some(0), 0.0)];
            valued(batch(turns, &[(1, WON), (2, LOST), (3, last)]), &[0.25, 0.5, 9.0, 9.0, 9.0])
        };
        // δ = ¼, ½, −½, −½; the mean of the children is −1/6
        let tried = turns(&gae(1.0, 1.0), &tree(LOST));
        assert!((tried[0].unwrap() - (0.25 - 1.0 / 6.0)).abs() < 1e-6 && tried[1..] == [Some(0.5), Some(-0.5), Some(-0.5)]);
        assert_eq!(turns(&gae(1.0, 1.0), &tree(End::Untried)), [Some(0.25), Some(0.5), Some(-0.5), None]);
    }

    proptest! {
        #[test]
        fn on_a_path_it_is_the_slice_function(
            steps in prop::collection::vec((-4i8..4, -4i8..4), 1..12), gamma in 0.0..=1.0f64, lambda in 0.0..=1.0f64
        ) {
            let rewards: Vec<f32> = steps.iter().map(|s| f32::from(s.0)).collect();
            let mut values: Vec<f32> = steps.iter().map(|s| f32::from(s.1)).collect();
            let mut want = vec![0.0; rewards.len()];
            ascribe_math::gae(&rewards, &values, 0.0, gamma, lambda, &mut want);
            values.push(9.0);
            let path = valued(chains(&[(&rewards, WON)]), &values);
            let got: Vec<f32> = turns(&gae(gamma, lambda), &path).into_iter().map(Option::unwrap).collect();
            prop_assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-4), "{got:?} {want:?}");
            prop_assert_eq!(turns(&gae(gamma, 0.0), &path), turns(&Td { gamma: unit(gamma) }, &path));
        }
    }
}
