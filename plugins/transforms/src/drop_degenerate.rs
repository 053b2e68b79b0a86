//! Takes groups that cannot teach out of training: those whose trajectories all have the same outcome.
//!
//! A group-relative estimator gives such a group advantage 0 everywhere. Left in, it costs a forward pass, shrinks the
//! loss of the others through the denominator, and feeds every regulariser; taken out it does none of these.
//!
//! Yu et al. 2025, DAPO, arXiv 2503.14476, eq. 11 (dynamic sampling: `0 < |{i : correct}| < G`), without its second half,
//! which samples new groups until the batch is full. Outcomes are compared exactly: rewards that are equal have zero
//! spread. Edge cases: a group of one has nothing to be compared with and stays; paths that were not tried have no outcome;
//! where every group is dropped the update trains nothing.

use ascribe_core::{Batch, Credit, CreditTransform, End, Metrics, Now, Seeds, plugin};
use ascribe_math::is_constant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::untrain;

/// `[[transform]] drop-degenerate = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropDegenerate {}

plugin! {
    Transform "drop-degenerate" {
        summary: "Takes groups whose trajectories all have the same outcome out of training.",
        source: "Yu et al. 2025, DAPO, arXiv 2503.14476, eq. 11",
        when: "With group-relative estimators where many groups are all won or all lost: their rows cost time and teach nothing.",
        example: "",
        module: "drop_degenerate.rs",
    }
    impl CreditTransform for DropDegenerate {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let mut dropped = 0;
            for (group, credit) in batch.groups().zip(credit.iter_mut()) {
                let paths = group.trajectories().zip(group.outcomes());
                let tried = paths.filter(|(path, _)| path.leaf().end != End::Untried);
                let outcomes: Vec<f64> = tried.map(|(_, outcome)| outcome).collect();
                if outcomes.len() >= 2 && is_constant(&outcomes) {
                    untrain(credit);
                    dropped += 1;
                }
            }
            let mut metrics = Metrics::default();
            metrics.set("group/dropped", f64::from(dropped));
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::Column;
    use ascribe_core::batch::NonFinite;
    use ascribe_core::credit::{Bundle, SpanCredit};
    use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};

    /// A group of one-turn chains of two tokens with these rewards.
    fn group(rewards: &[f32]) -> GroupLog {
        let turn = |reward: &f32| TurnLog {
            agent: "actor".into(),
            action: Action::given(vec![0; 2]),
            reward: *reward,
            ..TurnLog::default()
        };
        let leaf = |i| LeafLog { turn: Some(i), end: End::Terminated { success: rewards[i] > 0.0 }, seed: 0 };
        GroupLog {
            task_name: "task".into(),
            turns: rewards.iter().map(turn).collect(),
            leaves: (0..rewards.len()).map(leaf).collect(),
            ..GroupLog::default()
        }
    }

    fn dropped(groups: &[&[f32]]) -> (Vec<bool>, f64) {
        let mut batch = Batch::from_groups(groups.iter().map(|r| group(r)).collect(), NonFinite::Refuse).unwrap();
        batch.combine_rewards(&[("env".to_string(), 1.0)].into()).unwrap();
        // Credit at every granularity, so that none is forgotten.
        let mut credit: Vec<Credit> = batch
            .groups()
            .map(|g| Credit {
                spans: vec![SpanCredit { turn: 0, start: 0, end: 1, advantage: Some(2.0) }],
                tokens: Column::full(vec![3.0; g.sampled().len()]),
                bundles: vec![Bundle { chosen: 0, rejected: g.n_trajectories() - 1 }],
                ..Credit::per_turn(vec![1.0; g.n_turns()])
            })
            .collect();
        let kept = credit.clone();
        let metrics = DropDegenerate {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        let gone = |(g, (now, before)): (ascribe_core::Group<'_>, (&Credit, &Credit))| {
            now.check(g).unwrap();
            let untrained = ascribe_core::credit::spread(g, now).advantage.iter().all(|a| a.is_none());
            assert!(now == before || (untrained && now.bundles.is_empty()));
            untrained
        };
        let gone = batch.groups().zip(credit.iter().zip(&kept)).map(gone).collect();
        (gone, metrics.get("group/dropped").unwrap())
    }

    #[test]
    fn groups_of_one_outcome_are_not_trained() {
        let got = dropped(&[&[1.0, 0.0, 0.0], &[0.0, 0.0], &[1.0, 1.0, 1.0], &[0.1, 0.1 + f32::EPSILON], &[1.0]]);
        assert_eq!(got, (vec![false, true, true, false, false], 2.0));
    }

    #[test]
    fn what_was_not_tried_has_no_outcome() {
        let untried = |rewards: &[f32]| {
            let mut log = group(rewards);
            log.leaves[0].end = End::Untried;
            log
        };
        // Without the first: 1, 1 and 1, 0 and 1 alone.
        let logs = vec![untried(&[0.0, 1.0, 1.0]), untried(&[1.0, 1.0, 0.0]), untried(&[1.0, 1.0])];
        let batch = Batch::from_groups(logs, NonFinite::Refuse).unwrap();
        let mut credit: Vec<Credit> = batch.groups().map(|g| Credit::per_turn(vec![1.0; g.n_turns()])).collect();
        DropDegenerate {}.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(crate::fixture::gone(&credit), [true, false, false]);
    }

    #[test]
    fn a_batch_may_lose_every_group() {
        assert_eq!(dropped(&[&[0.0, 0.0]]), (vec![true], 1.0));
        assert_eq!(dropped(&[]), (vec![], 0.0));
    }
}
