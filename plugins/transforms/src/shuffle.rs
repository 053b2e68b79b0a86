//! A control: each trajectory's credit, dealt to its turns at random.
//!
//! `A_t ← A_{σ(t)}` with a random permutation `σ` of the trajectory's trained turns; a shared turn gets the mean over
//! its trajectories. The numbers stay, *which* turn earned them is gone: what an estimator gains over this is credit
//! assignment.
//!
//! Random numbers are keyed by (update, group, trajectory). Credit finer than a turn is first averaged over the turn's
//! trained tokens. Reductions: credit that is the same for every turn of a trajectory (GRPO) is unchanged where no turn
//! is shared. Untrained stays untrained; loss weights and targets are kept.

use ascribe_core::{Batch, Credit, CreditTransform, Draw, Metrics, Now, Seeds, plugin};
use ascribe_math::moments;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{replace_turns, turn_means};

/// `[[transform]] shuffle = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shuffle {}

plugin! {
    Transform "shuffle" {
        summary: "A control: each trajectory's credit, dealt to its turns at random.",
        source: "",
        when: "In every comparison of estimators that tell turns apart: same numbers, same scale, no credit assignment.",
        example: "",
        module: "shuffle.rs",
    }
    impl CreditTransform for Shuffle {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], now: &Now, seeds: Seeds) -> Metrics {
            for (group, credit) in batch.groups().zip(credit) {
                let own = turn_means(group, credit);
                let mut dealt: Vec<Vec<f64>> = vec![Vec::new(); group.n_turns()];
                for (member, path) in (0u32..).zip(group.trajectories()) {
                    let turns: Vec<usize> = path.turns().into_iter().filter(|t| own[*t].is_some()).collect();
                    let mut numbers: Vec<f64> = turns.iter().filter_map(|t| own[*t]).collect();
                    let draw = Draw { update: now.update, group: group.index() as u32, member, turn: 0 };
                    seeds.rng("transform/shuffle", draw).shuffle(&mut numbers);
                    turns.iter().zip(numbers).for_each(|(t, a)| dealt[*t].push(a));
                }
                replace_turns(group, credit, dealt.iter().map(|a| (!a.is_empty()).then(|| moments(a).mean)));
            }
            Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{batch, build, logs, turns};
    use proptest::prelude::*;

    fn shuffled(groups: &[&[&[(usize, f32)]]], update: u32) -> Vec<f32> {
        let (batch, mut credit) = batch(groups);
        Shuffle {}.apply(&batch, &mut credit, &Now { update, ..Now::default() }, Seeds(1));
        turns(&credit)
    }
    fn sorted(mut x: Vec<f32>) -> Vec<f32> {
        x.sort_by(f32::total_cmp);
        x
    }

    #[test]
    fn every_order_is_as_likely() {
        // three turns have six orders: 6000 draws, χ² with 5 degrees of freedom, whose 99.9 % point is 20.5
        let mut count = std::collections::BTreeMap::new();
        for update in 0..6000 {
            let order = shuffled(&[&[&[(1, 0.0), (2, 1.0), (3, 2.0)]]], update);
            *count.entry(order.iter().map(|a| *a as u8).collect::<Vec<_>>()).or_insert(0.0) += 1.0;
        }
        let chi2: f64 = count.values().map(|c: &f64| (c - 1000.0).powi(2) / 1000.0).sum();
        assert!(count.len() == 6 && chi2 < 20.5, "{count:?}");
    }

    #[test]
    fn untrained_turns_are_not_dealt_to() {
        let (batch, mut credit) = batch(&[&[&[(1, 1.0), (1, 7.0), (1, 2.0)]]]);
        credit[0].turns[1] = None;
        Shuffle {}.apply(&batch, &mut credit, &Now::default(), Seeds(1));
        assert_eq!(credit[0].turns[1], None);
        assert_eq!(sorted(credit[0].turns.iter().flatten().copied().collect()), [1.0, 2.0]);
    }

    #[test]
    fn a_shared_turn_gets_the_mean_over_its_trajectories() {
        // 0 ─ 1 and 0 ─ 2: what the two paths deal to turn 0 is averaged
        let (mut logs, credit) = logs(&[&[&[(1, 0.0), (1, 4.0)], &[(1, 8.0)]]]);
        logs[0].turns[2].parent = Some(0);
        let batch = build(logs);
        for update in 0..20 {
            let mut credit = credit.clone();
            Shuffle {}.apply(&batch, &mut credit, &Now { update, ..Now::default() }, Seeds(1));
            let got = turns(&credit);
            let (first, second) = (4.0 - got[1], 8.0 - got[2]);
            assert_eq!(got[0], (first + second) / 2.0, "{got:?}");
        }
    }

    proptest! {
        #[test]
        fn the_numbers_stay(a in prop::collection::vec(-5f32..5.0, 1..12), b in prop::collection::vec(-5f32..5.0, 1..12)) {
            let path = |x: &[f32]| x.iter().map(|a| (1, *a)).collect::<Vec<_>>();
            let got = shuffled(&[&[&path(&a), &path(&b)]], 0);
            prop_assert_eq!(sorted(got[..a.len()].to_vec()), sorted(a.clone()));
            prop_assert_eq!(sorted(got[a.len()..].to_vec()), sorted(b));
        }
    }
}
