//! Group-graph policy optimisation: TD errors between the mean values of merged states, and the trajectory's advantage.
//!
//! `A_t = E + w (L_t + TD_t)` with, over the group's turns,
//! `V(s) = mean over visits of γ^{T−t} R` (the last turn counts `γ¹`),
//! `L_t = z over the turns that leave s_t of V(s_{t+1}) − p·invalid_t`,
//! `TD_t = z over all turns of V(s_{t+1}) − V(s_t)`, and `E = z of the trajectory's outcome R`. After a success `V` is
//! `success_reward`, after any other end 0. `z` is `(x − mean) / (std + ε)` with the sample deviation, or `x − mean`
//! without `std`.
//!
//! "Group-Graph Policy Optimization", 2026, arXiv 2606.22995; Nala-YN/G2PO at b8ffaf56 (`g2po/core_g2po.py`). The authors
//! merge equal observations; states are merged here, which tells apart what only looks alike. Their code knows a success
//! by a reward of exactly 10; the environment's own word counts here. Like theirs, `over = "turns"` gives every turn a
//! vote in the mean of `E`, so that long trajectories weigh more. A path that a limit cut counts as a failure, as in their
//! code: its last state bootstraps nothing.
//!
//! Reductions: with `weight = 0` it is `grpo` with the same `over`, `std` and `epsilon`, on independent paths. Where no state is
//! left twice `L = 0`, and what the graph adds is the TD error along each trajectory.
//! Edge cases: a state that is left once has `L = 0`; a step that changes nothing has a TD error of 0 before it is
//! compared; one trajectory alone has `E = 0` (their TD is NaN for one turn alone; here 0). Equal numbers give exactly 0. In
//! a tree a shared turn is one visit, with the mean over its paths. What was not tried is not trained and moves nothing.

use std::collections::BTreeMap;

use ascribe_core::key::KeyId;
use ascribe_core::log::Validity;
use ascribe_core::range::{Finite, NonNegative, Unit};
use ascribe_core::{AdvantageEstimator, Anchor, Credit, Decay, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::standardise;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::{comparison, last_end, mean_over_paths, standardise_leaving, standardise_turns, states_after};
use crate::outcome::{Over, verl_epsilon, yes};
use crate::paths::{advantages_of_tried, outcomes_of_tried};
use crate::steps;
use crate::values::credit_of_tried;

/// `[estimator.g2po]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct G2po {
    /// What a success is worth: the value of the state after it. The authors' environments: 10.
    pub success_reward: Finite,
    /// Discount per turn of a state's value, in 0..=1. The authors' code fixes 0.95.
    #[serde(default = "gamma")]
    pub gamma: Unit,
    /// Weight of the graph's terms, 0 or more. The authors': 1.
    #[serde(default = "weight")]
    pub weight: NonNegative,
    /// Whether to divide by standard deviations. The authors: yes on ALFWorld, no on WebShop.
    #[serde(default = "yes")]
    pub std: bool,
    /// Added to a standard deviation, 0 or more. The authors': 1e-6.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
    /// What an action that the environment did not carry out loses against its siblings, 0 or more. The authors': 0.1.
    #[serde(default = "penalty")]
    pub invalid_penalty: NonNegative,
    /// What has a vote in the mean and deviation of outcomes. The authors': turns.
    #[serde(default = "over_turns")]
    pub over: Over,
}

fn over_turns() -> Over {
    Over::Turns
}
fn gamma() -> Unit {
    Unit::try_from(0.95).expect("0.95 is in 0..=1")
}
fn weight() -> NonNegative {
    NonNegative::try_from(1.0).expect("1 is at least 0")
}
fn penalty() -> NonNegative {
    NonNegative::try_from(0.1).expect("0.1 is at least 0")
}

plugin! {
    Estimator "g2po" {
        summary: "TD errors between mean values of merged states, compared locally and over the group, on top of the outcome.",
        source: "Group-Graph Policy Optimization, 2026, arXiv 2606.22995; Nala-YN/G2PO",
        when: "Environments whose states recur exactly within a group, over many turns, without a critic. Where no state recurs, only the TD term tells turns apart.",
        example: "success_reward = 1.0",
        module: "g2po.rs",
    }
    impl AdvantageEstimator for G2po {
        fn needs(&self) -> Vec<Need> {
            vec![Need::GroupOfAtLeast(2), Need::ExactStateKey]
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Ascent]
        }

        fn decay(&self) -> Option<Decay> {
            steps::decay(self.gamma)
        }

        fn anchor(&self) -> Option<Anchor> {
            Some(Anchor::State)
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(credit_of_tried(self.advantages(group)))
        }
    }
}

impl G2po {
    /// Value of each state that was acted in: mean over its visits of the discounted outcome.
    pub fn state_values(&self, group: Group<'_>) -> BTreeMap<KeyId, f64> {
        let discounted = |outcome: f64, to_end: usize| outcome * self.gamma.powf(to_end as f64);
        let visits = mean_over_paths(group, &outcomes_of_tried(group), discounted);
        let mut sums: BTreeMap<KeyId, (f64, u32)> = BTreeMap::new();
        for (state, visit) in group.states().iter().zip(visits) {
            if let Some(visit) = visit {
                let (sum, n) = sums.entry(*state).or_default();
                *sum += visit;
                *n += 1;
            }
        }
        sums.into_iter().map(|(state, (sum, n))| (state, sum / f64::from(n))).collect()
    }

    /// Advantages per turn of a group, `[turns]`; `None` where no tried path goes through.
    pub fn advantages(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let (value, after) = (self.state_values(group), states_after(group));
        let next = |t: usize| match last_end(group, t) {
            Some(end) if end.success() => *self.success_reward,
            Some(_) => 0.0,
            // A state in which only untried turns act has no value.
            None => value.get(&after[t]).copied().unwrap_or(0.0),
        };
        let validity = &group.batch().turns.validity[group.rows()];
        let penalty = |t: usize| if validity[t] == Validity::Valid { 0.0 } else { *self.invalid_penalty };
        let how = comparison(self.std, *self.epsilon);
        let episode = self.episode(group);
        let of_trained = |number: &dyn Fn(usize) -> f64| -> Vec<Option<f64>> {
            (0..group.n_turns()).map(|t| episode[t].map(|_| number(t))).collect()
        };
        let mut local = of_trained(&|t| next(t) - penalty(t));
        standardise_leaving(group, &mut local, how);
        let mut td = of_trained(&|t| next(t) - value.get(&group.states()[t]).copied().unwrap_or(0.0));
        standardise_turns(&mut td, how);
        let sum = |((e, l), td): ((&Option<f64>, Option<f64>), Option<f64>)| Some((*e)? + *self.weight * (l? + td?));
        episode.iter().zip(local).zip(td).map(sum).collect()
    }

    /// The outcome's advantage per turn, `[turns]`; `None` where no tried path goes through.
    fn episode(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let how = comparison(self.std, *self.epsilon);
        match self.over {
            Over::Turns => {
                let mut per_turn = mean_over_paths(group, &outcomes_of_tried(group), |outcome, _| outcome);
                standardise_turns(&mut per_turn, how);
                per_turn
            }
            Over::Trajectories => {
                let per_path = advantages_of_tried(group, |outcomes| standardise(outcomes, how));
                mean_over_paths(group, &per_path, |advantage, _| advantage)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, credit};
    use crate::graph::tests::{Step, forests, groups, is_sound, order_does_not_matter, paths, step};
    use ascribe_core::End;
    use proptest::prelude::*;

    /// γ = ½, centred only: numbers that can be worked on paper.
    fn centred(weight: f64, over: Over) -> G2po {
        G2po {
            success_reward: Finite::try_from(1.0).unwrap(),
            gamma: Unit::try_from(0.5).unwrap(),
            weight: NonNegative::try_from(weight).unwrap(),
            std: false,
            epsilon: verl_epsilon(),
            invalid_penalty: NonNegative::try_from(0.5).unwrap(),
            over,
        }
    }

    #[test]
    fn hand_worked() {
        // V(0) = (¼ + 0)/2 = ⅛, V(1) = ½, V(2) = 0; next values ½, 1 and 0, 0
        let two = paths(&[(&[(0, 0, 1), (1, 0, 9)], 1.0), (&[(0, 1, 2), (2, 0, 8)], 0.0)]);
        let values: Vec<f64> = centred(1.0, Over::Turns).state_values(two.group(0)).into_values().collect();
        assert_eq!(values, [0.125, 0.5, 0.0]);
        // E = ±½; L = ½ − ¼ and 0 − ¼ where state 0 is left, else 0; TD = ⅜, ½, −⅛, 0 with mean 3/16
        let got = centred(1.0, Over::Turns).advantages(two.group(0));
        assert_eq!(got, [0.9375, 0.8125, -1.0625, -0.6875].map(Some));
        assert_eq!(centred(0.0, Over::Turns).advantages(two.group(0)), [0.5, 0.5, -0.5, -0.5].map(Some));
    }

    #[test]
    fn long_trajectories_weigh_more_over_turns() {
        // One win of three turns, one loss of one: mean ¾ over turns, ½ over trajectories.
        let two = paths(&[(&[(0, 0, 1), (1, 0, 2), (2, 0, 9)], 1.0), (&[(0, 1, 8)], 0.0)]);
        assert_eq!(centred(0.0, Over::Turns).advantages(two.group(0)), [0.25, 0.25, 0.25, -0.75].map(Some));
        assert_eq!(centred(0.0, Over::Trajectories).advantages(two.group(0)), [0.5, 0.5, 0.5, -0.5].map(Some));
    }

    #[test]
    fn without_the_graph_it_is_grpo() {
        let three = paths(&[(&[(0, 0, 1), (1, 0, 9)], 1.0), (&[(0, 1, 2), (2, 0, 3), (3, 0, 8)], 0.25), (&[(0, 1, 7)], 0.0)]);
        for (std, over) in [(true, Over::Turns), (true, Over::Trajectories), (false, Over::Turns), (false, Over::Trajectories)] {
            let grpo = crate::grpo::Grpo { std, epsilon: verl_epsilon(), mode: Default::default(), over };
            let want = credit(&grpo, &three);
            let got = credit(&G2po { std, ..centred(0.0, over) }, &three);
            assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "{got:?} {want:?}");
        }
    }

    #[test]
    fn an_action_that_was_not_carried_out_loses_against_its_siblings() {
        let mut stays = step(None, 0.0, (0, 5, 0));
        stays.validity = Validity::Refused;
        let two =
            |stays: &ascribe_core::log::TurnLog| batch(vec![stays.clone(), step(None, 0.0, (0, 1, 8))], &[(0, LOST), (1, LOST)]);
        // All values are 0; the penalty ½ shows in L alone.
        assert_eq!(centred(1.0, Over::Turns).advantages(two(&stays).group(0)), [-0.25, 0.25].map(Some));
        stays.validity = Validity::Valid;
        assert_eq!(centred(1.0, Over::Turns).advantages(two(&stays).group(0)), [0.0, 0.0].map(Some));
    }

    #[test]
    fn one_trajectory_and_equal_ones_give_exactly_zero() {
        for std in [true, false] {
            let estimator = G2po { std, ..centred(1.0, Over::Turns) };
            assert_eq!(estimator.advantages(paths(&[(&[(0, 0, 9)], 2.0)]).group(0)), [Some(0.0)]);
            let same: &[Step] = &[(0, 0, 0), (0, 0, 9)];
            let lost = paths(&[(same, 0.0), (same, 0.0), (same, 0.0)]);
            assert_eq!(estimator.advantages(lost.group(0)), [Some(0.0); 6]);
        }
    }

    #[test]
    fn a_shared_turn_is_one_visit_and_what_was_not_tried_none() {
        let turns = || vec![step(None, 0.0, (0, 0, 1)), step(Some(0), 1.0, (1, 0, 9)), step(Some(0), 0.0, (1, 1, 8))];
        let tried = batch(turns(), &[(1, WON), (2, LOST)]);
        // V(0) = mean(¼, 0), V(1) = mean(½, 0)
        let values: Vec<f64> = centred(1.0, Over::Turns).state_values(tried.group(0)).into_values().collect();
        assert_eq!(values, [0.125, 0.25]);
        let untried = batch(turns(), &[(1, WON), (2, End::Untried)]);
        let got = centred(1.0, Over::Turns).advantages(untried.group(0));
        assert!(got[0].is_some() && got[1].is_some() && got[2].is_none(), "{got:?}");
    }

    proptest! {
        #[test]
        fn order_of_trajectories_is_order_of_credit(group in groups()) {
            order_does_not_matter(&centred(1.0, Over::Turns), &group);
            order_does_not_matter(&G2po { std: true, ..centred(1.0, Over::Trajectories) }, &group);
        }

        #[test]
        fn credit_is_sound_on_any_forest(batch in forests(), std: bool) {
            for over in [Over::Turns, Over::Trajectories] {
                is_sound(&G2po { std, ..centred(1.0, over) }, &batch);
            }
        }

        #[test]
        fn graph_terms_are_centred_and_finite(
            group in prop::collection::vec((prop::collection::vec((0u8..3, 0u8..2, 0u8..3), 0..5), 0i8..3), 1..6), std: bool
        ) {
            let steps: Vec<Vec<Step>> =
                group.iter().map(|(s, _)| std::iter::once((0, 0, 0)).chain(s.iter().copied()).collect()).collect();
            let records: Vec<(&[Step], f32)> = steps.iter().zip(&group).map(|(s, (_, r))| (&s[..], f32::from(*r))).collect();
            let got = G2po { std, ..centred(1.0, Over::Turns) }.advantages(paths(&records).group(0));
            let sum: f64 = got.iter().map(|a| a.unwrap()).sum();
            prop_assert!(sum.abs() < 1e-6, "{got:?}");
        }
    }
}
