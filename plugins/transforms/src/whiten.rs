//! Whitens the advantages of a batch: centres them on the batch's or each group's mean, and scales them by the batch's
//! standard deviation.
//!
//! `A ← (A − mean) / √(var + ε)`, with `var = Σ (A − mean)² / (n − 1)` over the batch's trained tokens (or turns).
//!
//! verl `masked_whiten` (`var·n/(n − 1)`, ε = 1e-8), as used after GAE and REINFORCE++ (Hu et al. 2025, arXiv
//! 2501.03262); `centre = "group"` is its baseline variant, and `over = "turns"` the whitening of StepPO (arXiv
//! 2604.18401), where every turn counts once however long it is. Reductions: with one group, both centres are the same.
//! Edge cases: equal advantages, and a single trained token, become 0 (verl refuses the latter). A turn whose tokens
//! differ counts with their mean. Untrained stays untrained. With `centre = "group"` the `n − 1` is the batch's, as in
//! verl, which does not count the groups' means.

use ascribe_core::{Batch, Credit, CreditTransform, Group, Metrics, Now, Seeds, plugin};
use ascribe_math::{Deviation, Moments, moments, pooled};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{advantages, turn_means, update_advantages};

/// `[[transform]] whiten = {}`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Whiten {
    /// Whose mean is subtracted.
    #[serde(default)]
    pub centre: Centre,
    /// What counts once in mean and variance.
    #[serde(default)]
    pub over: Over,
}

/// Whose mean is subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Centre {
    /// The batch's.
    #[default]
    Batch,
    /// That of the own group.
    Group,
}

/// What counts once in a statistic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Each trained token.
    #[default]
    Tokens,
    /// Each turn with a trained token.
    Turns,
}

/// Added to the variance, as in verl.
const EPSILON: f64 = 1e-8;

impl Whiten {
    /// Moments of the numbers of a group that count.
    fn moments(&self, group: Group<'_>, credit: &Credit) -> Moments {
        match self.over {
            Over::Tokens => moments(&advantages(group, credit).present()),
            Over::Turns => moments(&turn_means(group, credit).into_iter().flatten().collect::<Vec<f64>>()),
        }
    }
}

plugin! {
    Transform "whiten" {
        summary: "Centres a batch's advantages, on its own mean or each group's, and scales them by the batch's deviation.",
        source: "verl masked_whiten; Hu et al. 2025, REINFORCE++, arXiv 2501.03262; StepPO, arXiv 2604.18401",
        when: "After an estimator without its own scale (return-to-go, GAE). After GRPO it changes little.",
        example: "",
        module: "whiten.rs",
    }
    impl CreditTransform for Whiten {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let groups: Vec<Moments> = batch.groups().zip(credit.iter()).map(|(g, c)| self.moments(g, c)).collect();
            let whole = match self.centre {
                Centre::Batch => pooled(&groups),
                // Squares are of distances from each group's own mean.
                Centre::Group => pooled(&groups.iter().map(|group| Moments { mean: 0.0, ..*group }).collect::<Vec<_>>()),
            };
            let scale = if whole.squares == 0.0 { 0.0 } else { 1.0 / (whole.variance(Deviation::Sample) + EPSILON).sqrt() };
            for (credit, group) in credit.iter_mut().zip(&groups) {
                let mean = match self.centre {
                    Centre::Batch => whole.mean,
                    Centre::Group => group.mean,
                };
                update_advantages(credit, |a| *a = ((f64::from(*a) - mean) * scale) as f32);
            }
            Metrics::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{batch, turns};
    use proptest::prelude::*;

    fn check(groups: &[&[&[(usize, f32)]]], want: &[f32]) {
        check_with(&Whiten::default(), groups, want);
    }
    fn check_with(whiten: &Whiten, groups: &[&[&[(usize, f32)]]], want: &[f32]) {
        let (batch, mut credit) = batch(groups);
        whiten.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        for (got, want) in turns(&credit).iter().zip(want) {
            assert!((got - want).abs() < 1e-5, "{credit:?}, not {want:?}");
        }
    }

    #[test]
    fn tokens_are_the_weights() {
        // tokens 1, 1, −2 (twice one, once the other): mean 0, sample variance 3
        check(&[&[&[(2, 1.0)], &[(1, -2.0)]]], &[0.57735, -1.1547]);
        // the same over two groups
        check(&[&[&[(2, 1.0)]], &[&[(1, -2.0)]]], &[0.57735, -1.1547]);
    }

    #[test]
    fn turns_may_be_the_weights() {
        // turns 1 and −2: mean −½, sample variance 4.5; (1.5, −1.5)/√4.5
        let half = std::f32::consts::FRAC_1_SQRT_2;
        check_with(&Whiten { over: Over::Turns, ..Whiten::default() }, &[&[&[(2, 1.0)], &[(1, -2.0)]]], &[half, -half]);
    }

    #[test]
    fn a_groups_own_mean_may_be_the_centre() {
        let whiten = Whiten { centre: Centre::Group, over: Over::Turns };
        // distances −1, 1 and −3, 3 from the means 1 and 13: variance 20/3
        let s = (20f32 / 3.0).sqrt();
        check_with(
            &whiten,
            &[&[&[(1, 0.0)], &[(1, 2.0)]], &[&[(1, 10.0)], &[(1, 16.0)]]],
            &[-1.0 / s, 1.0 / s, -3.0 / s, 3.0 / s],
        );
        // groups without spread, whatever lies between them
        check_with(&whiten, &[&[&[(1, 0.1)], &[(1, 0.1)]], &[&[(1, 7.3)]]], &[0.0, 0.0, 0.0]);
    }

    #[test]
    fn one_group_has_one_mean() {
        let groups: &[&[&[(usize, f32)]]] = &[&[&[(2, 1.0), (1, 3.0)], &[(4, -2.0)]]];
        for over in [Over::Tokens, Over::Turns] {
            let of = |centre| {
                let (batch, mut credit) = batch(groups);
                Whiten { centre, over }.apply(&batch, &mut credit, &Now::default(), Seeds(0));
                turns(&credit)
            };
            assert_eq!(of(Centre::Batch), of(Centre::Group));
        }
    }

    #[test]
    fn equal_advantages_become_zero() {
        check(&[&[&[(3, 0.1), (2, 0.1)]]], &[0.0, 0.0]);
        check(&[&[&[(1, 5.0)]]], &[0.0]);
    }

    #[test]
    fn untrained_stays_untrained() {
        let (batch, mut credit) = batch(&[&[&[(1, 1.0), (1, 3.0), (1, 9.0)]]]);
        credit[0].turns[2] = None;
        Whiten::default().apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(credit[0].turns[2], None);
        assert!((credit[0].turns[0].unwrap() + std::f32::consts::FRAC_1_SQRT_2).abs() < 1e-5);
    }

    proptest! {
        #[test]
        fn whitened_turns_have_mean_zero_and_deviation_one(a in prop::collection::vec((1usize..5, -9f32..9.0), 2..20)) {
            for centre in [Centre::Batch, Centre::Group] {
                let (head, tail) = a.split_at(1);
                let (batch, mut credit) = batch(&[&[head], &[tail]]);
                Whiten { centre, over: Over::Turns }.apply(&batch, &mut credit, &Now::default(), Seeds(0));
                let m = moments(&turns(&credit));
                prop_assert!(m.mean.abs() < 1e-5, "{m:?}");
                // what ε leaves of a deviation of one: all of it, but where the spread before was itself near √ε
                let before = match centre {
                    Centre::Batch => moments(&a.iter().map(|(_, a)| *a).collect::<Vec<f32>>()),
                    // the head alone lies on its own centre
                    Centre::Group => {
                        let tail = moments(&tail.iter().map(|(_, a)| *a).collect::<Vec<f32>>());
                        Moments { n: a.len(), ..tail }
                    }
                };
                let before = before.variance(Deviation::Sample);
                let want = (before / (before + EPSILON)).sqrt();
                prop_assert!((m.deviation(Deviation::Sample) - want).abs() < 1e-3, "{m:?}, not {want}");
            }
        }
    }
}
