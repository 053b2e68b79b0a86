//! Keeps the groups whose outcomes differ most; the others do not train.
//!
//! Of the `n` groups that train, the `max(1, ⌊ratio · n⌋)` with the largest sample deviation of their outcomes stay,
//! whole.
//!
//! RAGEN StarPO-S, Wang et al. 2025, arXiv 2504.20073 (`ratio = 0.25`). Reductions: `ratio = 1` keeps all.
//! Edge cases: the authors' code keeps none where `⌊ratio · n⌋` is 0, this keeps one. Of equals the earlier stays. A
//! group with fewer than two outcomes has no deviation; paths that were not tried have no outcome.

use ascribe_core::range::Unit;
use ascribe_core::{Batch, Credit, CreditTransform, End, Metrics, Now, Seeds, Trajectory, plugin};
use ascribe_math::{Deviation, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{turn_means, untrain};

/// `[[transform]] variance-filter = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VarianceFilter {
    /// Share of groups that stay, in 0..=1. Paper: 0.25.
    #[serde(default = "paper_ratio")]
    pub ratio: Unit,
}

fn paper_ratio() -> Unit {
    Unit::try_from(0.25).expect("in range")
}

plugin! {
    Transform "variance-filter" {
        summary: "Keeps the share of groups whose outcomes differ most and takes the others out of training.",
        source: "RAGEN StarPO-S, Wang et al. 2025, arXiv 2504.20073",
        when: "Against collapse in long runs with many groups per update. It prefers tasks of middling difficulty, and costs rollouts.",
        example: "",
        module: "variance_filter.rs",
    }
    impl CreditTransform for VarianceFilter {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let mut deviations: Vec<(usize, f64)> = Vec::new();
            for (i, (group, credit)) in batch.groups().zip(credit.iter()).enumerate() {
                if turn_means(group, credit).iter().any(Option::is_some) {
                    let tried = |(path, outcome): (Trajectory<'_>, f64)| {
                        (path.leaf().end != End::Untried).then_some(outcome)
                    };
                    let outcomes: Vec<f64> = group.trajectories().zip(group.outcomes()).filter_map(tried).collect();
                    deviations.push((i, moments(&outcomes).deviation(Deviation::Sample)));
                }
            }
            let keep = ((*self.ratio * deviations.len() as f64).floor() as usize).max(1);
            deviations.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            let dropped = deviations.get(keep..).unwrap_or_default();
            dropped.iter().for_each(|(i, _)| untrain(&mut credit[*i]));
            let mut metrics = Metrics::default();
            metrics.set("group/dropped_by_variance", dropped.len() as f64);
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{gone, outcomes};

    fn check(ratio: f64, groups: &[&[f32]], want: &[bool]) {
        let (batch, mut credit) = outcomes(groups);
        let filter = VarianceFilter { ratio: Unit::try_from(ratio).unwrap() };
        let metrics = filter.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(gone(&credit), want);
        assert_eq!(metrics.get("group/dropped_by_variance"), Some(want.iter().filter(|g| **g).count() as f64));
    }

    #[test]
    fn the_groups_that_differ_most_stay() {
        let groups: &[&[f32]] = &[&[1.0, 1.0], &[0.0, 1.0], &[0.0, 0.5], &[0.0, 1.0]];
        check(0.5, groups, &[true, false, true, false]);
        check(0.75, groups, &[true, false, false, false]);
        check(1.0, groups, &[false; 4]);
        // the earlier of equals
        check(0.25, groups, &[true, false, true, true]);
    }

    #[test]
    fn one_stays_and_none_is_fine() {
        check(0.0, &[&[0.0, 0.0], &[0.0, 1.0]], &[true, false]);
        check(0.25, &[&[3.0]], &[false]);
        check(0.25, &[], &[]);
    }

    #[test]
    fn a_group_that_does_not_train_is_no_candidate() {
        let (batch, mut credit) = outcomes(&[&[0.0, 9.0], &[0.0, 1.0], &[0.0, 0.0]]);
        untrain(&mut credit[0]);
        VarianceFilter { ratio: Unit::try_from(0.5).unwrap() }.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(gone(&credit), [true, false, true]);
    }
}
