//! A turn's advantage is the mean over all trajectories that took the same step: shared steps are neutral, distinct ones
//! decide.
//!
//! `A_{i,t} = mean{ A_j : trajectory j takes the edge of (i, t) }`, with `A_j` the trajectory's advantage from the base
//! estimator and one vote per trajectory, so that loops do not weigh more.
//!
//! Li et al. 2025, "SALT: Step-level Advantage Assignment for Long-horizon Agents via Trajectory Graph", arXiv 2510.20022.
//! No official code is published: this is a reading of the paper's abstract. An edge is a state, an action and the next
//! state; `history` also asks for so many equal edges before it, and `key = "position-action"` takes the action and its place
//! in the trajectory alone. Reductions: an edge of one trajectory keeps that trajectory's advantage, an edge of all has the
//! mean advantage, 0; where no edge is shared it is the base, and with a long history turns merge where their prefixes are
//! equal. Free text never merges.
//!
//! Edge cases: equal outcomes give exactly 0. A group of one gives 0; with `mode = "official"` it keeps its raw outcome,
//! as in verl. Turns on no path that was tried are not trained, and such paths have no vote.

use std::collections::BTreeMap;

use ascribe_core::{AdvantageEstimator, Anchor, Credit, EstimateError, Group, Law, Need, Now, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::states_after;
use crate::outcome::{Mode, Over, verl_epsilon};
use crate::paths::advantages_of_tried;
use crate::values::credit_of_tried;
use crate::{Grpo, Rloo};

/// `[estimator.salt]`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Salt {
    /// What gives a trajectory its advantage.
    #[serde(default)]
    pub base: Base,
    /// What makes two steps the same one.
    #[serde(default)]
    pub key: EdgeKey,
    /// How many edges before it must be the same too, 0 or more.
    #[serde(default)]
    pub history: u32,
    /// Where paper and verl differ: a group of one.
    #[serde(default)]
    pub mode: Mode,
}

/// What gives a trajectory its advantage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// `grpo` with its defaults.
    #[default]
    Grpo,
    /// `rloo`.
    Rloo,
}

/// What makes two steps the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeKey {
    /// State, action and next state.
    #[default]
    Edge,
    /// The turn's place in its trajectory, and its action.
    PositionAction,
}

plugin! {
    Estimator "salt" {
        summary: "The mean advantage of all trajectories that took the same step from the same state.",
        source: "Li et al. 2025, SALT: Step-level Advantage Assignment for Long-horizon Agents via Trajectory Graph, arXiv 2510.20022",
        when: "Environments whose states recur exactly and whose actions come from a list: it takes the noise out of steps that winners and losers share. With free text it is its base.",
        example: "",
        module: "salt.rs",
    }
    impl AdvantageEstimator for Salt {
        fn needs(&self) -> Vec<Need> {
            let mut needs = self.mode.needs();
            if self.key == EdgeKey::Edge {
                needs.push(Need::ExactStateKey);
            }
            needs
        }

        fn laws(&self) -> Vec<Law> {
            let scale = match self.base {
                Base::Grpo => Law::ScaleFree,
                Base::Rloo => Law::Scale,
            };
            vec![Law::Shift, scale, Law::NoSpreadNoCredit, Law::Ascent]
        }

        fn anchor(&self) -> Option<Anchor> {
            (self.key == EdgeKey::Edge).then_some(Anchor::State)
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(credit_of_tried(self.advantages(group)))
        }
    }
}

impl Salt {
    /// Advantages per turn of a group, `[turns]`; `None` where no tried path goes through.
    pub fn advantages(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let edges = self.edges(group);
        let n_edges = edges.iter().max().map_or(0, |last| *last as usize + 1);
        let mut sum = vec![0.0; n_edges];
        let mut votes = vec![0u32; n_edges];
        let per_path = advantages_of_tried(group, |outcomes| self.base(outcomes));
        let mut trained = vec![false; group.n_turns()];
        for (path, advantage) in group.trajectories().zip(per_path) {
            let Some(advantage) = advantage else { continue };
            path.turns_up().for_each(|t| trained[t] = true);
            let mut taken: Vec<u32> = path.turns_up().map(|t| edges[t]).collect();
            taken.sort_unstable();
            taken.dedup();
            for edge in taken {
                sum[edge as usize] += advantage;
                votes[edge as usize] += 1;
            }
        }
        let mean = |edge: u32| sum[edge as usize] / f64::from(votes[edge as usize]);
        edges.iter().zip(trained).map(|(edge, trained)| trained.then(|| mean(*edge))).collect()
    }

    fn base(&self, outcomes: &mut [f64]) {
        match self.base {
            Base::Grpo => {
                Grpo { std: true, epsilon: verl_epsilon(), mode: self.mode, over: Over::Trajectories }.advantages(outcomes)
            }
            Base::Rloo => Rloo { mode: self.mode, over: Over::Trajectories }.advantages(outcomes),
        }
    }

    /// The edge of each turn, numbered by first appearance, `[turns]`.
    fn edges(&self, group: Group<'_>) -> Vec<u32> {
        let mut depth = vec![0; group.n_turns()];
        for t in 0..depth.len() {
            depth[t] = group.parent(t).map_or(0, |p| depth[p] + 1);
        }
        let (state, action, after) = (group.states(), group.actions(), states_after(group));
        let own = numbered((0..group.n_turns()).map(|t| match self.key {
            EdgeKey::Edge => (state[t], action[t], after[t]),
            EdgeKey::PositionAction => (depth[t], action[t], 0),
        }));
        let longest = depth.iter().copied().max().unwrap_or(0);
        let mut edges = own.clone();
        for _ in 0..self.history.min(longest) {
            edges = numbered((0..edges.len()).map(|t| (group.parent(t).map(|p| edges[p]), own[t])));
        }
        edges
    }
}

/// Equal keys get equal numbers, in order of first appearance.
fn numbered<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<u32> {
    let mut known = BTreeMap::new();
    keys.map(|key| {
        let next = known.len() as u32;
        *known.entry(key).or_insert(next)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains};
    use crate::graph::tests::{Step, forests, groups, is_sound, order_does_not_matter, paths, step};
    use ascribe_core::End;
    use proptest::prelude::*;

    fn rloo() -> Salt {
        Salt { base: Base::Rloo, ..Salt::default() }
    }

    #[test]
    fn shared_steps_are_neutral_and_distinct_ones_decide() {
        // Advantages 1 and −1; the first step is shared, the second is not.
        let two = paths(&[(&[(0, 0, 1), (1, 0, 2)], 1.0), (&[(0, 0, 1), (1, 1, 3)], 0.0)]);
        assert_eq!(rloo().advantages(two.group(0)), [Some(0.0), Some(1.0), Some(0.0), Some(-1.0)]);
        // The same action in the same place is one step, whatever the state.
        let seed = Salt { key: EdgeKey::PositionAction, ..rloo() };
        let two = paths(&[(&[(0, 0, 1), (1, 5, 2)], 1.0), (&[(0, 0, 3), (3, 6, 2)], 0.0)]);
        assert_eq!(seed.advantages(two.group(0)), [Some(0.0), Some(1.0), Some(0.0), Some(-1.0)]);
    }

    #[test]
    fn a_loop_has_one_vote() {
        // Three paths, advantages 1, −½, −½; the first takes the edge (0, 0, 0) twice, the second once.
        let three = paths(&[(&[(0, 0, 0), (0, 0, 0)], 1.0), (&[(0, 0, 0)], 0.0), (&[(0, 1, 4)], 0.0)]);
        assert_eq!(rloo().advantages(three.group(0)), [Some(0.25), Some(0.25), Some(0.25), Some(-0.5)]);
    }

    #[test]
    fn history_tells_equal_steps_apart() {
        let two = paths(&[(&[(0, 0, 1), (1, 0, 2)], 1.0), (&[(0, 1, 1), (1, 0, 2)], 0.0)]);
        assert_eq!(rloo().advantages(two.group(0)), [Some(1.0), Some(0.0), Some(-1.0), Some(0.0)]);
        for history in [1, 2, u32::MAX] {
            let got = Salt { history, ..rloo() }.advantages(two.group(0));
            assert_eq!(got, [Some(1.0), Some(1.0), Some(-1.0), Some(-1.0)]);
        }
    }

    #[test]
    fn a_tree_votes_once_per_path_and_what_was_not_tried_has_no_vote() {
        let tree = |last| {
            let turns = vec![
                step(None, 0.0, (0, 0, 1)),
                step(Some(0), 1.0, (1, 0, 2)),
                step(Some(0), 0.0, (1, 1, 3)),
                step(Some(0), 0.0, (1, 1, 3)),
            ];
            batch(turns, &[(1, WON), (2, LOST), (3, last)])
        };
        assert_eq!(rloo().advantages(tree(LOST).group(0)), [Some(0.0), Some(1.0), Some(-0.5), Some(-0.5)]);
        assert_eq!(rloo().advantages(tree(End::Untried).group(0)), [Some(0.0), Some(1.0), Some(-1.0), None]);
    }

    #[test]
    fn a_group_of_one_is_zero_or_raw() {
        let one = chains(&[(&[2.0], WON)]);
        assert_eq!(Salt::default().advantages(one.group(0)), [Some(0.0)]);
        assert_eq!(Salt { mode: Mode::Official, ..rloo() }.advantages(one.group(0)), [Some(2.0)]);
    }

    proptest! {
        #[test]
        fn order_of_trajectories_is_order_of_credit(group in groups()) {
            order_does_not_matter(&Salt { history: 1, ..rloo() }, &group);
            order_does_not_matter(&Salt { key: EdgeKey::PositionAction, ..Salt::default() }, &group);
        }

        #[test]
        fn credit_is_sound_on_any_forest(batch in forests(), history in 0u32..3) {
            for key in [EdgeKey::Edge, EdgeKey::PositionAction] {
                is_sound(&Salt { key, history, ..Salt::default() }, &batch);
                is_sound(&Salt { key, history, mode: Mode::Official, ..rloo() }, &batch);
            }
        }

        #[test]
        fn an_edge_of_all_is_neutral_and_an_edge_of_one_keeps_its_advantage(
            rewards in prop::collection::vec(-3i8..4, 2..8)
        ) {
            // Path i: the shared edge, then an edge of its own.
            let steps: Vec<[Step; 2]> = (0..rewards.len()).map(|i| [(0, 0, 1), (1, i as u8, 2)]).collect();
            let records: Vec<(&[Step], f32)> = steps.iter().zip(&rewards).map(|(s, r)| (&s[..], f32::from(*r))).collect();
            let estimator = Salt::default();
            let got = estimator.advantages(paths(&records).group(0));
            let mut base: Vec<f64> = rewards.iter().map(|r| f64::from(*r)).collect();
            estimator.base(&mut base);
            for (i, a) in base.iter().enumerate() {
                prop_assert!(got[2 * i].unwrap().abs() < 1e-12);
                prop_assert_eq!(got[2 * i + 1], Some(*a));
            }
        }
    }
}
