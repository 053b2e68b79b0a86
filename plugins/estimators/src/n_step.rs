//! n-step advantages: the rewards of n turns and the value of where they lead, against the value before them.
//!
//! `A_t = Σ_{k<n} γ^k r_{t+k} + γ^n V(s_{t+n}) − V(s_t) = Σ_{k<n} γ^k δ_{t+k}`, `δ` as in `td`; at a branch, the mean over the
//! children. Beyond a true end there is nothing more; where a limit cut the path the last state's value stands for it.
//!
//! Sutton and Barto 2018, eq. 7.1. Reductions: `n = 1` is `td`; `n` at least the number of turns is the return minus the
//! value, `gae` with `λ = 1`. Edge cases: a path that was not tried gives its turns no future beyond the last one that was.
//! No official code exists.

use ascribe_core::range::{AtLeast, Unit};
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{credit_of_tried, needs, td_errors};

/// `[estimator.n-step]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NStep {
    /// Turns whose rewards count, at least 1.
    pub n: AtLeast<1>,
    /// Discount per turn, in 0..=1.
    pub gamma: Unit,
}

plugin! {
    Estimator "n-step" {
        summary: "The rewards of n turns and the value of where they lead, against the value before them.",
        source: "Sutton and Barto 2018, Reinforcement Learning, 2nd ed., eq. 7.1",
        when: "Between `td` (the critic's bias) and the return (its variance), where one knows how far an effect reaches.",
        example: "n = 3\ngamma = 1.0",
        module: "n_step.rs",
    }
    impl AdvantageEstimator for NStep {
        fn needs(&self) -> Vec<Need> {
            needs()
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Scale, Law::Bootstraps, Law::Ascent]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let delta = td_errors(group, *self.gamma);
            let mut advantage: Vec<f64> = delta.iter().map(|d| d.unwrap_or(0.0)).collect();
            // Each pass lets the sum reach one turn further; no path is longer than the group has turns.
            for _ in 1..self.n.get().min(group.n_turns().max(1)) {
                let mut longer = vec![0.0; advantage.len()];
                group.fold_up(
                    |_| 0.0,
                    |t, children| {
                        longer[t] = delta[t].unwrap_or(0.0) + *self.gamma * children;
                        advantage[t]
                    },
                );
                advantage = longer;
            }
            Ok(credit_of_tried(delta.iter().zip(advantage).map(|(d, a)| d.and(Some(a)))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn, valued};
    use crate::td::Td;
    use proptest::prelude::*;

    fn n_step(n: u64, gamma: f64) -> NStep {
        NStep { n: AtLeast::try_from(n).unwrap(), gamma: Unit::try_from(gamma).unwrap() }
    }
    fn turns(estimator: &dyn AdvantageEstimator, batch: &ascribe_core::Batch) -> Vec<f32> {
        estimator.estimate(batch.group(0), &Now::default()).unwrap().turns.into_iter().map(Option::unwrap).collect()
    }

    #[test]
    fn hand_worked() {
        // γ = ½, values 1, 2, 4 and a true end; A_0 = 1 + ½·2 + ¼·4 − 1, A_1 = 2 + ½·8 − 2, A_2 = 8 − 4
        let path = valued(chains(&[(&[1.0, 2.0, 8.0], WON)]), &[1.0, 2.0, 4.0, 9.0]);
        assert_eq!(turns(&n_step(2, 0.5), &path), [2.0, 4.0, 4.0]);
    }

    #[test]
    fn at_a_branch_the_children_are_averaged() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0)], &[(1, WON), (2, LOST)]);
        let tree = valued(tree, &[0.25, 0.75, 9.0, 9.0]);
        // (1 + 0) / 2 − 0.25
        assert_eq!(turns(&n_step(2, 1.0), &tree), [0.25, 0.25, -0.75]);
    }

    proptest! {
        #[test]
        fn one_step_is_td_and_a_slice_gives_the_same(
            steps in prop::collection::vec((-4i8..4, -4i8..4), 1..12), n in 1u64..15, gamma in 0.0..=1.0f64
        ) {
            let rewards: Vec<f32> = steps.iter().map(|s| f32::from(s.0)).collect();
            let mut values: Vec<f32> = steps.iter().map(|s| f32::from(s.1)).collect();
            let mut want = vec![0.0; rewards.len()];
            ascribe_math::n_step(&rewards, &values, 0.0, gamma, n as usize, &mut want);
            values.push(9.0);
            let path = valued(chains(&[(&rewards, WON)]), &values);
            let got = turns(&n_step(n, gamma), &path);
            prop_assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-4), "{got:?} {want:?}");
            prop_assert_eq!(turns(&n_step(1, gamma), &path), turns(&Td { gamma: Unit::try_from(gamma).unwrap() }, &path));
        }
    }
}
