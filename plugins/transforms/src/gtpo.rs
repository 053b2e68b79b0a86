//! Outcomes shaped by entropy: where successes are uncertain they are praised more, where failures are certain they are
//! blamed more. It takes the place of what the estimator said.
//!
//! At the `t`-th sampled token of a trajectory, `d_t` and `h_t` being the numbers of successes and failures that have
//! one: success `r = a₁ R + a₂ d_t H_{i,t} / Σ_k H_{k,t}`, failure `r = −a₁ − a₂ h_t (1/H_{i,t}) / Σ_k (1/H_{k,t})`;
//! then `A = (r − mean) / (std + ε)` over the tokens of the group's successes, and over those of its failures.
//!
//! Tan et al. 2025, "GTPO and GRPO-S: Token and Sequence-Level Reward Shaping with Policy Entropy", arXiv 2508.04349,
//! eqs. 3, 5, 6 (`a₁ = 1`, `a₂ = 0.1`). With `level = "sequence"` it is GRPO-S: the mean entropy of a trajectory's
//! tokens, over all successes or failures. The name is also another method's (arXiv 2508.03772).
//! Reductions: without normalisation and with `a₂ = 0` successes have `a₁ R` and failures `−a₁`. The bonuses of the
//! successes that run at `t` sum to `a₂ d_t`.
//! Edge cases: success is an outcome above 0. Normalised apart, as in the paper, successes and failures each have mean
//! 0, so that equal entropies teach nothing: `normalise = "together"` keeps the outcome. ε is 1e-8, the standard
//! deviation the sample's; equal rewards, and a single one, become 0. A token without entropy (given, not sampled)
//! counts as certain. A shared token gets the mean over its trajectories. Paths that were not tried have no outcome and
//! keep their credit. Untrained stays untrained, and is in no sum.

use std::collections::BTreeMap;

use ascribe_core::credit::spread;
use ascribe_core::range::NonNegative;
use ascribe_core::{Batch, Credit, CreditTransform, End, Group, Metrics, Need, Now, Seeds, plugin};
use ascribe_math::{Deviation, Singleton, Standardise, moments, shares, standardise};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[[transform]] gtpo = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gtpo {
    /// Weight `a₁` of the outcome, 0 or more. Paper: 1.
    #[serde(default = "paper_outcome")]
    pub outcome_weight: NonNegative,
    /// Weight `a₂` of the entropy's share, 0 or more. Paper: 0.1.
    #[serde(default = "paper_entropy")]
    pub entropy_weight: NonNegative,
    /// What has an entropy of its own.
    #[serde(default)]
    pub level: Level,
    /// What is standardised together.
    #[serde(default)]
    pub normalise: Normalise,
}

fn paper_outcome() -> NonNegative {
    NonNegative::try_from(1.0).expect("not negative")
}
fn paper_entropy() -> NonNegative {
    NonNegative::try_from(0.1).expect("not negative")
}

/// What has an entropy of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Each token, compared with those at the same place in other trajectories (GTPO).
    #[default]
    Token,
    /// Each trajectory, by the mean over its tokens (GRPO-S).
    Sequence,
}

/// What is standardised together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Normalise {
    /// Successes and failures of a group, each by themselves.
    #[default]
    Apart,
    /// All tokens (or sequences) of a group.
    Together,
    /// Nothing: the shaped reward is the advantage.
    Off,
}

/// Kept off every denominator.
const EPSILON: f64 = 1e-8;

/// A number of a trajectory: its token (or -s) and their entropy.
struct Entry {
    success: bool,
    outcome: f64,
    entropy: f64,
    /// Sampled tokens of the group that get the number.
    tokens: Vec<usize>,
    /// What is compared with what: the place in the sequence, or 0.
    place: usize,
}

impl Gtpo {
    /// What the trajectories of a group that were tried have, in their order.
    fn entries(&self, group: Group<'_>, trained: &[bool]) -> Vec<Entry> {
        let first = group.sampled().start;
        let entropy = |i: &usize| f64::from(group.batch().sampled.entropy.get(first + i).unwrap_or(0.0));
        let mut entries = Vec::new();
        for (path, outcome) in group.trajectories().zip(group.outcomes()) {
            if path.leaf().end == End::Untried {
                continue;
            }
            let entry = |entropy, tokens, place| Entry { success: outcome > 0.0, outcome, entropy, tokens, place };
            let tokens = path.turns().into_iter().flat_map(|t| group.sampled_of(t)).filter(|i| trained[*i]);
            match self.level {
                Level::Token => entries.extend(tokens.enumerate().map(|(place, i)| entry(entropy(&i), vec![i], place))),
                Level::Sequence => {
                    let tokens: Vec<usize> = tokens.collect();
                    let entropies: Vec<f64> = tokens.iter().map(entropy).collect();
                    if !tokens.is_empty() {
                        entries.push(entry(moments(&entropies).mean, tokens, 0));
                    }
                }
            }
        }
        entries
    }

    /// The shaped reward of each entry.
    fn shaped(&self, entries: &[Entry]) -> Vec<f64> {
        let mut compared: BTreeMap<(bool, usize), Vec<usize>> = BTreeMap::new();
        for (e, entry) in entries.iter().enumerate() {
            compared.entry((entry.success, entry.place)).or_default().push(e);
        }
        let mut reward = vec![0.0; entries.len()];
        for ((success, _), members) in compared {
            let weight = |e: &usize| if success { entries[*e].entropy } else { 1.0 / (entries[*e].entropy + EPSILON) };
            let mut share: Vec<f64> = members.iter().map(weight).collect();
            shares(&mut share, EPSILON);
            for (e, share) in members.into_iter().zip(share) {
                let base = if success { entries[e].outcome } else { -1.0 };
                reward[e] = *self.outcome_weight * base + base.signum() * *self.entropy_weight * share;
            }
        }
        reward
    }

    /// Standardises the rewards of entries.
    fn normalised(&self, entries: &[Entry], mut reward: Vec<f64>) -> Vec<f64> {
        let how = Standardise { scale: Some((Deviation::Sample, EPSILON)), singleton: Singleton::Zero };
        match self.normalise {
            Normalise::Off => {}
            Normalise::Together => standardise(&mut reward, how),
            Normalise::Apart => {
                for success in [true, false] {
                    let own: Vec<usize> = (0..entries.len()).filter(|e| entries[*e].success == success).collect();
                    let mut numbers: Vec<f64> = own.iter().map(|e| reward[*e]).collect();
                    standardise(&mut numbers, how);
                    own.into_iter().zip(numbers).for_each(|(e, x)| reward[e] = x);
                }
            }
        }
        reward
    }
}

plugin! {
    Transform "gtpo" {
        summary: "Puts outcomes shaped by the entropy of each token (or sequence) in the place of credit.",
        source: "Tan et al. 2025, GTPO and GRPO-S, arXiv 2508.04349, eqs. 3, 5, 6",
        when: "With one outcome per trajectory and a policy that reports entropies. What the estimator said is replaced, only what it left untrained stays.",
        example: "",
        module: "gtpo.rs",
    }
    impl CreditTransform for Gtpo {
        fn needs(&self) -> Vec<Need> {
            vec![Need::Entropy]
        }

        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let mut one_sided = 0;
            for (group, credit) in batch.groups().zip(credit) {
                let before = spread(group, credit).advantage;
                let trained: Vec<bool> = before.iter().map(|a| a.is_some()).collect();
                let entries = self.entries(group, &trained);
                let advantages = self.normalised(&entries, self.shaped(&entries));
                let mut of_token: Vec<Vec<f64>> = vec![Vec::new(); before.len()];
                for (entry, a) in entries.iter().zip(advantages) {
                    entry.tokens.iter().for_each(|i| of_token[*i].push(a));
                }
                let advantage = |(a, before): (&Vec<f64>, Option<f32>)| {
                    if a.is_empty() { before } else { Some(moments(a).mean as f32) }
                };
                credit.tokens = of_token.iter().zip(before.iter()).map(advantage).collect();
                one_sided += u32::from(entries.iter().all(|e| e.success) || !entries.iter().any(|e| e.success));
            }
            let mut metrics = Metrics::default();
            metrics.set("credit/gtpo/one_sided_groups", f64::from(one_sided));
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{build, near, with_entropies};
    use ascribe_core::log::GroupLog;
    use proptest::prelude::*;

    fn gtpo(level: Level, normalise: Normalise) -> Gtpo {
        Gtpo { outcome_weight: paper_outcome(), entropy_weight: paper_entropy(), level, normalise }
    }

    /// Trajectories of one-token turns with these entropies, of which the first `n_won` earn 1.
    fn group(paths: &[&[f32]], n_won: usize) -> (Vec<GroupLog>, Vec<Credit>) {
        let paths: Vec<Vec<(f32, f32)>> = paths.iter().map(|p| p.iter().map(|h| (*h, 7.0)).collect()).collect();
        let (mut logs, credit) = with_entropies(&[&paths.iter().map(Vec::as_slice).collect::<Vec<_>>()]);
        let log = &mut logs[0];
        for leaf in &log.leaves[..n_won] {
            log.turns[leaf.turn.unwrap()].reward = 1.0;
        }
        (logs, credit)
    }

    fn advantages(gtpo: &Gtpo, logs: Vec<GroupLog>, mut credit: Vec<Credit>) -> Vec<f32> {
        let batch = build(logs);
        gtpo.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        spread(batch.group(0), &credit[0]).advantage.present().into_owned()
    }

    #[test]
    fn uncertain_successes_and_certain_failures_count_more() {
        let token = gtpo(Level::Token, Normalise::Off);
        // t = 0: 1 + 0.1·2·(3/4, 1/4); t = 1: 1 + 0.1·2·(1/4, 3/4); alone at t = 2: 1 + 0.1
        let (logs, credit) = group(&[&[3.0, 1.0], &[1.0, 3.0, 5.0]], 2);
        near(&advantages(&token, logs, credit), &[1.15, 1.05, 1.05, 1.15, 1.1]);
        // 1/H = ¼, 1 with sum 1.25: −1 − 0.1·2·(0.2, 0.8)
        let (logs, credit) = group(&[&[4.0], &[1.0]], 0);
        near(&advantages(&token, logs, credit), &[-1.04, -1.16]);
    }

    #[test]
    fn a_sequence_has_its_mean_entropy() {
        // means 3 and 1: 1 + 0.1·2·(3/4, 1/4)
        let (logs, credit) = group(&[&[4.0, 2.0], &[1.0]], 2);
        near(&advantages(&gtpo(Level::Sequence, Normalise::Off), logs, credit), &[1.15, 1.15, 1.05]);
    }

    #[test]
    fn normalised_apart_the_outcome_is_gone_and_together_it_stays() {
        let paths: &[&[f32]] = &[&[3.0], &[1.0], &[4.0], &[1.0]];
        let (logs, credit) = group(paths, 2);
        let half = std::f32::consts::FRAC_1_SQRT_2;
        near(&advantages(&gtpo(Level::Token, Normalise::Apart), logs, credit), &[half, -half, half, -half]);
        let (logs, credit) = group(paths, 2);
        let together = advantages(&gtpo(Level::Token, Normalise::Together), logs, credit);
        assert!(together[0] > together[1] && together[1] > 0.0 && 0.0 > together[2] && together[2] > together[3]);
        let (logs, credit) = group(&[&[2.0], &[2.0]], 2);
        assert_eq!(advantages(&gtpo(Level::Token, Normalise::Apart), logs, credit), [0.0, 0.0]);
    }

    #[test]
    fn a_shared_token_gets_the_mean_and_the_untrained_stay_out() {
        let (mut logs, mut credit) = group(&[&[1.0, 1.0], &[1.0], &[9.0]], 1);
        logs[0].turns[2].parent = Some(0);
        credit[0].turns[3] = None;
        let batch = build(logs);
        let metrics = gtpo(Level::Token, Normalise::Off).apply(&batch, &mut credit, &Now::default(), Seeds(0));
        // each path is alone on its side: 1.1 and −1.1
        let got: Vec<_> = spread(batch.group(0), &credit[0]).advantage.iter().collect();
        near(&got[..3].iter().map(|a| a.unwrap()).collect::<Vec<_>>(), &[0.0, 1.1, -1.1]);
        assert_eq!((got[3], metrics.get("credit/gtpo/one_sided_groups")), (None, Some(0.0)));
    }

    proptest! {
        #[test]
        fn bonuses_sum_to_their_number(h in prop::collection::vec(0.05..4.0f32, 1..12), won: bool) {
            let paths: Vec<&[f32]> = h.iter().map(std::slice::from_ref).collect();
            let (logs, credit) = group(&paths, if won { h.len() } else { 0 });
            let sum: f64 = advantages(&gtpo(Level::Token, Normalise::Off), logs, credit).iter().map(|a| f64::from(*a)).sum();
            // n·(1 + 0.1), n numbers rounded to f32
            prop_assert!((sum.abs() - 1.1 * h.len() as f64).abs() < 1e-4);
        }
    }
}
