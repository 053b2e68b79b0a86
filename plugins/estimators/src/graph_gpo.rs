//! Credit for coming closer to success on the merged graph of states, beside the trajectory's advantage.
//!
//! `A_t = β_G A^G_t + β_E A^E` with `A^G_t = z over the turns that leave s_t of ω^{d(s_{t+1})+1}` and `A^E` the trajectory's
//! GRPO advantage; `d(s)` is the length of the shortest way from s to a success over all steps that the group took, and one
//! more than the longest such way where there is none. `z` divides by the sample deviation plus ε; the scale of rewards
//! cancels.
//!
//! "Beyond Trajectory-Level Attribution: Graph-based Credit Assignment for Agentic Reinforcement Learning" (GraphGPO), 2026,
//! arXiv 2605.26684; a reading of the paper, as the authors' code was not to be had. It does not say ω, β_G or β_E. Reductions: `graph_weight = 0` is `grpo`.
//!
//! Edge cases: a state that is left once has `A^G = 0`. Without a success in the group every state is equally far, and
//! `A^G` is exactly 0. Success is the environment's word; a path that a limit cut ends in an ordinary state, from which
//! others may have found the way. A group of one trajectory has `A^E = 0`. What was not tried is not trained, and leads
//! nowhere.

use std::collections::BTreeMap;

use ascribe_core::key::KeyId;
use ascribe_core::range::{NonNegative, Unit};
use ascribe_core::{AdvantageEstimator, Anchor, Credit, End, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::standardise;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::{comparison, last_end, mean_over_paths, standardise_leaving, states_after};
use crate::outcome::verl_epsilon;
use crate::paths::advantages_of_tried;
use crate::values::credit_of_tried;

/// `[estimator.graph-gpo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphGpo {
    /// Weight β_G of coming closer, 0 or more.
    pub graph_weight: NonNegative,
    /// Weight β_E of the trajectory's advantage, 0 or more.
    pub episode_weight: NonNegative,
    /// Worth ω of a step less on the way, in 0..=1; at 0 and 1 all steps are worth the same. The paper does not say.
    #[serde(default = "omega")]
    pub omega: Unit,
    /// Added to a standard deviation, 0 or more. verl: 1e-6.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
}

fn omega() -> Unit {
    Unit::try_from(0.95).expect("0.95 is in 0..=1")
}

plugin! {
    Estimator "graph-gpo" {
        summary: "Credit for coming closer to success on the merged graph of states, beside the trajectory's advantage.",
        source: "Beyond Trajectory-Level Attribution: Graph-based Credit Assignment for Agentic Reinforcement Learning, 2026, arXiv 2605.26684",
        when: "Environments whose states recur exactly: a failed trajectory earns credit for the steps that brought it nearer. It needs one success in the group, and says nothing where no state is left twice.",
        example: "graph_weight = 1.0\nepisode_weight = 1.0",
        module: "graph_gpo.rs",
    }
    impl AdvantageEstimator for GraphGpo {
        fn needs(&self) -> Vec<Need> {
            vec![Need::GroupOfAtLeast(2), Need::ExactStateKey]
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Ascent]
        }

        fn anchor(&self) -> Option<Anchor> {
            Some(Anchor::State)
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let (near, episode) = (self.graph_advantages(group), self.episode_advantages(group));
            let sum = |(g, e): (Option<f64>, Option<f64>)| Some(*self.graph_weight * g? + *self.episode_weight * e?);
            Ok(credit_of_tried(near.into_iter().zip(episode).map(sum)))
        }
    }
}

impl GraphGpo {
    /// Steps of the shortest way from each state to a success, over the steps that the group tried. A step that succeeds has
    /// length 1; from where no way leads to success it is one more than the longest.
    pub fn distances(&self, group: Group<'_>) -> BTreeMap<KeyId, u32> {
        let (state, after, tried) = (group.states(), states_after(group), group.tried());
        let mut into: BTreeMap<KeyId, Vec<KeyId>> = BTreeMap::new();
        let mut distance: BTreeMap<KeyId, u32> = BTreeMap::new();
        let mut ring = Vec::new();
        for t in (0..group.n_turns()).filter(|t| tried[*t]) {
            into.entry(state[t]).or_default();
            if last_end(group, t).is_some_and(End::success) {
                if distance.insert(state[t], 1).is_none() {
                    ring.push(state[t]);
                }
            } else {
                into.entry(after[t]).or_default().push(state[t]);
            }
        }
        // Ring by ring outwards from the successes: the first visit is the shortest way.
        let mut length = 1;
        let mut longest = 0;
        while !ring.is_empty() {
            longest = length;
            length += 1;
            let mut outer = Vec::new();
            for near in ring {
                for far in &into[&near] {
                    if !distance.contains_key(far) {
                        distance.insert(*far, length);
                        outer.push(*far);
                    }
                }
            }
            ring = outer;
        }
        into.into_keys().map(|key| (key, distance.get(&key).copied().unwrap_or(longest + 1))).collect()
    }

    /// `A^G` per turn, `[turns]`; `None` where the turn was not tried.
    pub fn graph_advantages(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let (distance, after, tried) = (self.distances(group), states_after(group), group.tried());
        let steps_left = |t: usize| if last_end(group, t).is_some_and(End::success) { 0 } else { distance[&after[t]] };
        let worth = |t: usize| self.omega.powf(f64::from(steps_left(t) + 1));
        let mut worth: Vec<Option<f64>> = (0..group.n_turns()).map(|t| tried[t].then(|| worth(t))).collect();
        standardise_leaving(group, &mut worth, comparison(true, *self.epsilon));
        worth
    }

    /// `A^E` per turn, `[turns]`; `None` where no tried path goes through.
    fn episode_advantages(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let how = comparison(true, *self.epsilon);
        let per_path = advantages_of_tried(group, |outcomes| standardise(outcomes, how));
        mean_over_paths(group, &per_path, |advantage, _| advantage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch};
    use crate::graph::tests::{Step, forests, groups, is_sound, order_does_not_matter, paths, step};
    use crate::outcome::Over;
    use crate::{Grpo, Mode};
    use ascribe_core::Limit;
    use proptest::prelude::*;

    fn graph(graph_weight: f64, episode_weight: f64) -> GraphGpo {
        GraphGpo {
            graph_weight: NonNegative::try_from(graph_weight).unwrap(),
            episode_weight: NonNegative::try_from(episode_weight).unwrap(),
            omega: Unit::try_from(0.5).unwrap(),
            epsilon: NonNegative::try_from(0.0).unwrap(),
        }
    }
    fn lengths(batch: &ascribe_core::Batch) -> Vec<u32> {
        graph(1.0, 1.0).distances(batch.group(0)).into_values().collect()
    }

    #[test]
    fn the_shortest_way_may_be_pieced_together() {
        // 0 → 1 → 2 → success, and 0 → 2 → lost: from 0 it is 0 → 2 → success. States in order 0, 1, 2, 9, 8.
        let two = paths(&[(&[(0, 0, 1), (1, 0, 2), (2, 0, 9)], 1.0), (&[(0, 1, 2), (2, 1, 8)], 0.0)]);
        let distance = graph(1.0, 1.0).distances(two.group(0));
        let of = |state: u8| two.keys.find(&[state]).and_then(|key| distance.get(&key)).copied();
        assert_eq!([of(0), of(1), of(2), of(8)], [Some(2), Some(2), Some(1), Some(3)]);
        // Where state 0 is left, the step to 2 is nearer than the step to 1; where 2 is left, success is nearer.
        let got = graph(1.0, 0.0).graph_advantages(two.group(0));
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let want = [-half, 0.0, half, half, -half];
        assert!(got.iter().zip(want).all(|(g, w)| (g.unwrap() - w).abs() < 1e-12), "{got:?}");
    }

    #[test]
    fn without_success_all_states_are_equally_far() {
        let two = paths(&[(&[(0, 0, 1), (1, 0, 8)], 0.0), (&[(0, 1, 8)], 0.0)]);
        assert_eq!(lengths(&two), [1, 1, 1]);
        assert_eq!(graph(1.0, 0.0).graph_advantages(two.group(0)), [Some(0.0); 3]);
    }

    #[test]
    fn a_cut_path_ends_where_others_may_go_on() {
        let turns = vec![step(None, 0.0, (0, 0, 1)), step(None, 0.0, (0, 1, 1)), step(Some(1), 1.0, (1, 0, 9))];
        let cut = batch(turns, &[(0, End::Truncated(Limit::Turns)), (2, WON)]);
        assert_eq!(graph(1.0, 0.0).graph_advantages(cut.group(0)), [Some(0.0); 3]);
    }

    #[test]
    fn what_was_not_tried_leads_nowhere() {
        let turns = vec![step(None, 0.0, (0, 0, 1)), step(Some(0), 0.0, (1, 0, 8)), step(Some(0), 0.0, (1, 1, 2))];
        let untried = batch(turns, &[(1, LOST), (2, End::Untried)]);
        let credit = graph(1.0, 1.0).estimate(untried.group(0), &Now::default()).unwrap();
        assert_eq!(credit.turns, [Some(0.0), Some(0.0), None]);
    }

    proptest! {
        #[test]
        fn order_of_trajectories_is_order_of_credit(group in groups()) {
            order_does_not_matter(&graph(1.0, 1.0), &group);
        }

        #[test]
        fn credit_is_sound_on_any_forest(batch in forests()) {
            is_sound(&graph(1.0, 1.0), &batch);
        }

        #[test]
        fn without_the_graph_it_is_grpo_and_no_way_is_longer_than_the_states(
            group in prop::collection::vec((prop::collection::vec((0u8..4, 0u8..2, 0u8..4), 0..5), 0i8..3), 1..6)
        ) {
            let steps: Vec<Vec<Step>> =
                group.iter().map(|(s, _)| std::iter::once((0, 0, 0)).chain(s.iter().copied()).collect()).collect();
            let records: Vec<(&[Step], f32)> = steps.iter().zip(&group).map(|(s, (_, r))| (&s[..], f32::from(*r))).collect();
            let batch = paths(&records);
            let grpo = Grpo { std: true, epsilon: NonNegative::try_from(0.0).unwrap(), mode: Mode::Paper, over: Over::Trajectories };
            let now = Now::default();
            let got = graph(0.0, 1.0).estimate(batch.group(0), &now).unwrap().turns;
            prop_assert_eq!(got, grpo.estimate(batch.group(0), &now).unwrap().turns);
            prop_assert!(lengths(&batch).iter().all(|d| (1..=5).contains(d)));
        }
    }
}
