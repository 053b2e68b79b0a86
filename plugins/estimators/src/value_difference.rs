//! What a turn changed in the estimated value: Monte-Carlo values of the states before and after it, which may have gaps.
//!
//! `A_t = r_t + V(s_{t+1}) − V(s_t)`, undiscounted; `V = 0` after a true end. Where a state was not estimated its value is
//! filled from below, `V(s) = mean over the turns that continue it of r + V(next)`, so that a turn into the unknown gets
//! 0 on a path, and its difference to its siblings at a branch.
//!
//! Kazemnejad et al. 2024, "VinePPO", arXiv 2410.01679; McGill-NLP/VinePPO estimates each state by the mean return of 9
//! continuations (a critic's work here) and fills backwards behind its cap of 20 or 25 steps. Reductions: without gaps it
//! is `td` with `γ = 1`, which refuses gaps; with no value known at all it is `tree-value` with child means against the
//! parent (CARL), and 0 where there was no choice.
//! The sum along a path is `R − V(s_0)`, plus the last state's value where a limit cut it.
//! Edge cases: a cut path whose last state was not estimated counts as ended. A path that was not tried has no next state:
//! its last turn is not trained and fills nothing. Where the authors' code differs: a response cut by the token limit is
//! ended, with a reward for being unfinished; here the value of its last state stands for the future, if it was estimated.
//! Their batch-wide whitening is the transform `whiten`.

use ascribe_core::End;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin, preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forest::{known_values, mean, needs_values, rounded};

/// `[estimator.value-difference]`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueDifference {}

plugin! {
    Estimator "value-difference" {
        summary: "What a turn changed in the estimated value of the state; values may have gaps.",
        source: "Kazemnejad et al. 2024, VinePPO, arXiv 2410.01679; McGill-NLP/VinePPO",
        when: "With values from continuations played out, also of some states only. With a trained value head `gae` is better: it averages the head's bias out.",
        example: "",
        module: "value_difference.rs",
    }
    impl AdvantageEstimator for ValueDifference {
        fn needs(&self) -> Vec<Need> {
            vec![needs_values()]
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Scale, Law::Telescoping, Law::Bootstraps, Law::Ascent]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(Credit { turns: rounded(self.advantages(group)), ..Credit::default() })
        }
    }
}

impl ValueDifference {
    /// Advantage per turn, `[turns]`; `None` where the next state was not reached.
    pub fn advantages(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let (known, tried, reward) = (known_values(group), group.tried(), group.rewards());
        let n = group.n_turns();
        let mut after: Vec<Option<f64>> = vec![None; n];
        // What the turns that continue a state made of it; the start's stands last.
        let mut futures: Vec<Vec<f64>> = vec![Vec::new(); n + 1];
        for t in (0..n).rev().filter(|t| tried[*t]) {
            after[t] = match group.end(t).filter(|_| group.n_children(t) == 0) {
                Some(End::Terminated { .. }) => Some(0.0),
                Some(End::Truncated(_) | End::MacroBoundary) => Some(known[t + 1].unwrap_or(0.0)),
                Some(End::Untried | End::Failed(_)) | None => known[t + 1].or_else(|| mean(&futures[t])),
            };
            if let Some(next) = after[t] {
                futures[group.parent(t).unwrap_or(n)].push(f64::from(reward[t]) + next);
            }
        }
        let start = known[0].or_else(|| mean(&futures[n]));
        let advantage = |t: usize| {
            let before = group.parent(t).map_or(start, |p| after[p])?;
            Some(f64::from(reward[t]) + after[t]? - before)
        };
        (0..n).map(advantage).collect()
    }
}

preset! {
    Estimator "vine" is "value-difference", ValueDifference as Vine {}
    summary: "VinePPO's estimator: what a turn changed in the value that continuations found.",
    source: "Kazemnejad et al. 2024, VinePPO, arXiv 2410.01679; McGill-NLP/VinePPO",
    when: "With values from continuations played out. It is `value-difference` by its best-known name.",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn, valued};
    use crate::td::Td;
    use ascribe_core::range::Unit;
    use ascribe_core::signal::{Column, Scope, Signal};
    use ascribe_core::{Batch, Limit};
    use proptest::prelude::*;

    fn gappy(mut batch: Batch, values: &[Option<f32>]) -> Batch {
        let column: Column = values.iter().copied().collect();
        batch.add_signal("value", Signal { scope: Scope::State, provider: "test".into(), column }).unwrap();
        batch
    }
    fn differences(batch: &Batch) -> Vec<Option<f64>> {
        ValueDifference {}.advantages(batch.group(0))
    }

    #[test]
    fn gaps_are_filled_backwards() {
        // ½ − ¼; then nothing is known: V = 0 + 0 + 1, so 1 − ½, 0, 0
        let path = gappy(chains(&[(&[0.0, 0.0, 0.0, 1.0], WON)]), &[Some(0.25), Some(0.5), None, None, None]);
        assert_eq!(differences(&path), [Some(0.25), Some(0.5), Some(0.0), Some(0.0)]);
    }

    #[test]
    fn at_a_branch_the_unknown_is_the_mean_of_what_came_of_it() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0)], &[(1, WON), (2, LOST)]);
        let tree = gappy(tree, &[Some(0.25), None, None, None]);
        assert_eq!(differences(&tree), [Some(0.25), Some(0.5), Some(-0.5)]);
    }

    #[test]
    fn a_limit_hands_on_what_was_estimated() {
        let cut = |last| gappy(chains(&[(&[1.0], End::Truncated(Limit::Turns))]), &[Some(0.5), last]);
        assert_eq!(differences(&cut(Some(2.0))), [Some(2.5)]);
        assert_eq!(differences(&cut(None)), [Some(0.5)]);
    }

    #[test]
    fn what_was_not_tried_is_not_trained_and_fills_nothing() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 9.0)], &[(1, WON), (2, End::Untried)]);
        assert_eq!(differences(&gappy(tree, &[Some(0.25), None, None, None])), [Some(0.75), Some(0.0), None]);
        let alone = gappy(chains(&[(&[0.0, 1.0], End::Untried)]), &[Some(0.25), None, None]);
        assert_eq!(differences(&alone), [None, None]);
    }

    #[test]
    fn every_group_reads_its_own_rows() {
        use ascribe_core::batch::NonFinite;
        use ascribe_core::log::{GroupLog, LeafLog};
        let group = || GroupLog {
            task_name: "task".into(),
            turns: vec![turn(None, 1.0)],
            leaves: vec![LeafLog { turn: Some(0), end: WON, seed: 0 }],
            ..GroupLog::default()
        };
        let two = Batch::from_groups(vec![group(), group()], NonFinite::Refuse).unwrap();
        let two = valued(two, &[0.25, 9.0, 0.5, 9.0]);
        assert_eq!(ValueDifference {}.advantages(two.group(0)), [Some(0.75)]);
        assert_eq!(ValueDifference {}.advantages(two.group(1)), [Some(0.5)]);
    }

    proptest! {
        #[test]
        fn the_sum_is_the_return_minus_the_value(
            steps in prop::collection::vec((-4i8..4, prop::option::of(-4i8..4)), 1..12), cut in any::<bool>()
        ) {
            let rewards: Vec<f32> = steps.iter().map(|s| f32::from(s.0)).collect();
            let mut values = vec![Some(0.5)];
            values.extend(steps.iter().map(|s| s.1.map(f32::from)));
            let end = if cut { End::Truncated(Limit::Turns) } else { WON };
            let path = gappy(chains(&[(&rewards, end)]), &values);
            let last = values[steps.len()].filter(|_| cut).unwrap_or(0.0);
            let sum: f64 = differences(&path).into_iter().map(Option::unwrap).sum();
            prop_assert_eq!(sum, f64::from(rewards.iter().sum::<f32>() + last - 0.5));
        }

        #[test]
        fn without_values_it_is_the_difference_of_child_means(parents in prop::collection::vec((0usize..9, 0u8..3), 1..12)) {
            let place = |(t, (p, reward)): (usize, &(usize, u8))| turn(t.checked_sub(1 + p), f32::from(*reward));
            let turns: Vec<_> = parents.iter().enumerate().map(place).collect();
            let leaves: Vec<(usize, End)> =
                (0..turns.len()).filter(|t| !turns.iter().any(|c| c.parent == Some(*t))).map(|t| (t, WON)).collect();
            let tree = gappy(batch(turns, &leaves), &vec![None; parents.len() + 1]);
            let keys = serde_json::json!({ "leaf": "outcome", "node": "child-mean", "against": "parent" });
            let carl: crate::tree_value::TreeValue = serde_json::from_value(keys).unwrap();
            for (a, b) in differences(&tree).into_iter().zip(carl.advantages(tree.group(0))) {
                prop_assert!((a.unwrap() - b.unwrap()).abs() < 1e-9);
            }
        }

        #[test]
        fn without_gaps_it_is_the_undiscounted_td_error(steps in prop::collection::vec((-4i8..4, -4i8..4), 1..12)) {
            let rewards: Vec<f32> = steps.iter().map(|s| f32::from(s.0)).collect();
            let mut values: Vec<f32> = steps.iter().map(|s| f32::from(s.1)).collect();
            values.push(9.0);
            let path = valued(chains(&[(&rewards, WON)]), &values);
            let td = Td { gamma: Unit::try_from(1.0).unwrap() };
            let td = td.estimate(path.group(0), &Now::default()).unwrap();
            prop_assert_eq!(ValueDifference {}.estimate(path.group(0), &Now::default()).unwrap(), td);
        }
    }
}
