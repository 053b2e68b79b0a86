//! Process rewards in minimum form: a trajectory is worth about its worst turn, and the worst turn earns it.
//!
//! `r_t = p_t softmax_t(−p/T)`, so that `Σ_t r_t ≈ min_t p_t`; `A_t = Σ_{u≥t} (r_u − b_u) + w (R − mean_{j≠i} R_j)`, with `p` the
//! column `process_reward` and `b` what the siblings earn on average: per turn, `b = mean_{j≠i} (Σ_u r_{j,u} / T_j)`, or per
//! sampled token, `b_u = (tokens of u) · Σ_{j≠i} Σ_u r_{j,u} / Σ_{j≠i} tokens_j`.
//!
//! Cheng et al. 2025, "Stop Summation: Min-Form Credit Assignment Is All Process Reward Model Needs for Reasoning", arXiv
//! 2504.15275; CJReinforce/PURE at 41f9363b (`turn_process_reward_logits_to_reward`, T = 0.1, γ = 1, and its two baselines).
//! There `p = P(+) − P(−)` lies in −1..=1 and `R` is −1 or 0. Reductions: without process rewards it is `rloo` times `w`.
//!
//! Edge cases: a turn without a process reward earns nothing and has no baseline. A group of one has nobody to compare with:
//! 0. In a tree each path has a minimum of its own, and a shared turn gets the mean over its leaves. Paths that were not
//! tried are not trained and move nothing.
//! Where the authors' code differs: it takes steps' separators out of the tokens of a step, here a turn's sampled tokens
//! count; and it divides by 0 at a group of one.

use ascribe_core::range::{NonNegative, Positive};
use ascribe_core::{AdvantageEstimator, Credit, End, EstimateError, Group, Need, Now, Scope, plugin};
use ascribe_math::{leave_one_out, soft_min_rewards};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::paths::advantages_of_tried;
use crate::values::credit_of_tried;

/// The column of process rewards.
const PROCESS_REWARD: &str = "process_reward";

/// `[estimator.pure]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pure {
    /// What siblings' process rewards are spread over.
    pub baseline: Baseline,
    /// Temperature of the minimum, positive. The paper: 0.1.
    #[serde(default = "temperature")]
    pub temperature: Positive,
    /// Weight of the outcome's advantage, 0 or more. The authors' code: 1.
    #[serde(default = "outcome_weight")]
    pub outcome_weight: NonNegative,
}

fn temperature() -> Positive {
    Positive::try_from(0.1).expect("0.1 is positive")
}
fn outcome_weight() -> NonNegative {
    NonNegative::try_from(1.0).expect("1 is at least 0")
}

/// What siblings' process rewards are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Baseline {
    /// Their turns.
    Turn,
    /// Their sampled tokens: a long turn has to earn more. The authors' script.
    Token,
}

/// Process rewards of one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Reward of each turn that has one, in minimum form, `[scored turns]`.
    pub rewards: Vec<f64>,
    /// Sampled tokens of these turns, `[scored turns]`.
    pub tokens: Vec<usize>,
    /// Sampled tokens of the whole path.
    pub path_tokens: usize,
}

plugin! {
    Estimator "pure" {
        summary: "Process rewards in minimum form against the siblings', and the outcome's advantage.",
        source: "Cheng et al. 2025, Stop Summation (PURE), arXiv 2504.15275; CJReinforce/PURE",
        when: "A process reward model scores every turn and one bad turn spoils the whole. Not where turns add up, such as points collected on the way.",
        example: "baseline = \"token\"",
        module: "pure.rs",
    }
    impl AdvantageEstimator for Pure {
        fn needs(&self) -> Vec<Need> {
            vec![Need::GroupOfAtLeast(2), Need::Signal(PROCESS_REWARD.into(), Scope::Turn)]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(credit_of_tried(self.advantages(group)))
        }
    }
}

impl Pure {
    /// Subtracts from each path's process rewards what the others earn on average, in place, `[paths]`.
    pub fn compare(&self, paths: &mut [Process]) {
        if let [alone] = paths {
            alone.rewards.fill(0.0);
            return;
        }
        // What a path earns, and over how much: per turn every path's mean has one vote, per token all are pooled.
        let share = |path: &Process| {
            let total: f64 = path.rewards.iter().sum();
            match self.baseline {
                Baseline::Turn => (total / path.rewards.len().max(1) as f64, 1.0),
                Baseline::Token => (total, path.path_tokens as f64),
            }
        };
        let shares: Vec<(f64, f64)> = paths.iter().map(share).collect();
        // Equal shares stand for each other, so that nothing is rounded.
        let equal = shares.windows(2).all(|w| w[0] == w[1]);
        let (sum, over) = shares.iter().fold((0.0, 0.0), |(s, n), (x, over)| (s + x, n + over));
        for (path, own) in paths.iter_mut().zip(shares) {
            let others = if equal { own } else { (sum - own.0, over - own.1) };
            for (reward, tokens) in path.rewards.iter_mut().zip(&path.tokens) {
                let part = if self.baseline == Baseline::Token { *tokens as f64 } else { 1.0 };
                *reward -= others.0 * (part / others.1);
            }
        }
    }

    /// Advantages per turn of a group, `[turns]`; `None` where no tried path goes through.
    pub fn advantages(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let score: Vec<Option<f32>> = group.turn_signal(PROCESS_REWARD).collect();
        let tokens: Vec<usize> = (0..group.n_turns()).map(|t| group.sampled_of(t).len()).collect();
        // Turns from the leaf to the root; what is summed towards the end grows in this order.
        let tried: Vec<Vec<usize>> =
            group.trajectories().filter(|path| path.leaf().end != End::Untried).map(|path| path.turns_up().collect()).collect();
        let process = |turns: &Vec<usize>| {
            let scored: Vec<usize> = turns.iter().copied().filter(|t| score[*t].is_some()).collect();
            let scores: Vec<f64> = scored.iter().filter_map(|t| score[*t]).map(f64::from).collect();
            Process {
                rewards: soft_min_rewards(&scores, *self.temperature),
                tokens: scored.iter().map(|t| tokens[*t]).collect(),
                path_tokens: turns.iter().map(|t| tokens[*t]).sum(),
            }
        };
        let mut processes: Vec<Process> = tried.iter().map(process).collect();
        self.compare(&mut processes);
        let outcome = advantages_of_tried(group, |outcomes| match outcomes {
            [alone] => *alone = 0.0,
            outcomes => leave_one_out(outcomes),
        });
        let mut sum = vec![0.0; group.n_turns()];
        let mut count = vec![0u32; group.n_turns()];
        for ((turns, process), outcome) in tried.iter().zip(processes).zip(outcome.into_iter().flatten()) {
            let mut rewards = process.rewards.into_iter();
            let mut to_come = *self.outcome_weight * outcome;
            for t in turns {
                if score[*t].is_some() {
                    to_come += rewards.next().expect("one reward per scored turn");
                }
                sum[*t] += to_come;
                count[*t] += 1;
            }
        }
        sum.iter().zip(&count).map(|(s, n)| (*n > 0).then(|| s / f64::from(*n))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rloo;
    use crate::fixture::{LOST, WON, batch, chains, turn};
    use crate::graph::tests::{forests, groups, is_sound, order_does_not_matter};
    use ascribe_core::log::Action;
    use ascribe_core::{Batch, Column, Signal};
    use proptest::prelude::*;

    /// At T = 1/ln 2 the weight of a score p is 2^−p.
    fn pure(baseline: Baseline, outcome_weight: f64) -> Pure {
        Pure {
            baseline,
            temperature: Positive::try_from(1.0 / std::f64::consts::LN_2).unwrap(),
            outcome_weight: NonNegative::try_from(outcome_weight).unwrap(),
        }
    }
    fn scored(mut batch: Batch, numbers: &[Option<f32>]) -> Batch {
        let column: Column = numbers.iter().copied().collect();
        batch.add_signal(PROCESS_REWARD, Signal { scope: Scope::Turn, provider: "test".into(), column }).unwrap();
        batch
    }
    fn check(estimator: &Pure, batch: &Batch, want: &[Option<f64>]) {
        let got = estimator.advantages(batch.group(0));
        let near = |(g, w): (&Option<f64>, &Option<f64>)| match (g, w) {
            (Some(g), Some(w)) => (g - w).abs() < 1e-6,
            (g, w) => g == w,
        };
        assert!(got.iter().zip(want).all(near) && got.len() == want.len(), "{got:?}, not {want:?}");
    }

    #[test]
    fn the_worst_turn_earns_the_trajectorys_worth() {
        // r = (0, ⅓) and (1); per turn the others earn 1 and ⅙. Outcomes 1 and 0.
        let two = scored(chains(&[(&[0.0, 1.0], WON), (&[0.0], LOST)]), &[Some(0.0), Some(1.0), Some(1.0)]);
        let third = 1.0 / 3.0;
        check(&pure(Baseline::Turn, 0.0), &two, &[Some(third - 2.0), Some(third - 1.0), Some(1.0 - third / 2.0)]);
        check(&pure(Baseline::Turn, 1.0), &two, &[Some(third - 1.0), Some(third), Some(-third / 2.0)]);
        // One token a turn: per token the others earn 1 and ⅙.
        check(&pure(Baseline::Token, 0.0), &two, &[Some(third - 2.0), Some(third - 1.0), Some(1.0 - third / 2.0)]);
    }

    #[test]
    fn per_token_a_long_turn_has_to_earn_more() {
        let mut long = turn(None, 0.0);
        long.action = Action::given(vec![0; 4]);
        let two = scored(batch(vec![long, turn(None, 0.0)], &[(0, LOST), (1, LOST)]), &[Some(1.0), Some(1.0)]);
        check(&pure(Baseline::Token, 1.0), &two, &[Some(1.0 - 4.0), Some(1.0 - 0.25)]);
        check(&pure(Baseline::Turn, 1.0), &two, &[Some(0.0), Some(0.0)]);
    }

    #[test]
    fn a_turn_without_a_score_passes_on_what_is_to_come() {
        let two = scored(chains(&[(&[0.0, 0.0], WON), (&[0.0], LOST)]), &[None, Some(1.0), Some(0.5)]);
        check(&pure(Baseline::Turn, 1.0), &two, &[Some(0.5), Some(0.5), Some(-0.5)]);
    }

    #[test]
    fn a_group_of_one_gives_zero_and_what_was_not_tried_moves_nothing() {
        for baseline in [Baseline::Turn, Baseline::Token] {
            check(&pure(baseline, 1.0), &scored(chains(&[(&[0.0, 1.0], WON)]), &[Some(0.3), Some(0.9)]), &[Some(0.0); 2]);
            let turns = vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0), turn(Some(0), 0.0)];
            let tree = batch(turns, &[(1, WON), (2, LOST), (3, End::Untried)]);
            let tree = scored(tree, &[None, Some(1.0), Some(0.5), Some(9.0)]);
            // Minimum form leaves 1 and ½; the others earn ½ and 1 per turn, half of it per token of their two turns.
            let per = if baseline == Baseline::Turn { [0.5, 1.0] } else { [0.25, 0.5] };
            let (won, lost) = (1.0 - per[0], 0.5 - per[1]);
            check(&pure(baseline, 0.0), &tree, &[Some((won + lost) / 2.0), Some(won), Some(lost), None]);
        }
    }

    #[test]
    fn equal_trajectories_give_exactly_zero() {
        for baseline in [Baseline::Turn, Baseline::Token] {
            let rewards = [0.1];
            let paths: Vec<(&[f32], End)> = (0..7).map(|_| (&rewards[..], WON)).collect();
            assert_eq!(pure(baseline, 1.0).advantages(scored(chains(&paths), &[Some(0.3); 7]).group(0)), [Some(0.0); 7]);
        }
    }

    proptest! {
        #[test]
        fn order_of_trajectories_is_order_of_credit(group in groups()) {
            order_does_not_matter(&pure(Baseline::Turn, 1.0), &group);
            order_does_not_matter(&pure(Baseline::Token, 1.0), &group);
        }

        #[test]
        fn credit_is_sound_on_any_forest(batch in forests()) {
            for baseline in [Baseline::Turn, Baseline::Token] {
                is_sound(&pure(baseline, 1.0), &batch);
            }
        }

        #[test]
        fn without_process_rewards_it_is_rloo(rewards in prop::collection::vec(-3i8..4, 2..8), token: bool) {
            let paths: Vec<[f32; 2]> = rewards.iter().map(|r| [0.0, f32::from(*r)]).collect();
            let paths: Vec<(&[f32], End)> = paths.iter().map(|r| (&r[..], WON)).collect();
            let batch = scored(chains(&paths), &vec![None; 2 * rewards.len()]);
            let baseline = if token { Baseline::Token } else { Baseline::Turn };
            let now = Now::default();
            let got = pure(baseline, 1.0).estimate(batch.group(0), &now).unwrap().turns;
            prop_assert_eq!(got, Rloo::default().estimate(batch.group(0), &now).unwrap().turns);
        }

        #[test]
        fn equal_trajectories_earn_nothing_in_all(score in -1.0..1.0f32, n in 2usize..6, m in 1usize..4) {
            let rewards = vec![0.0; m];
            let paths: Vec<(&[f32], End)> = (0..n).map(|_| (&rewards[..], WON)).collect();
            let batch = scored(chains(&paths), &vec![Some(score); n * m]);
            for baseline in [Baseline::Turn, Baseline::Token] {
                let got = pure(baseline, 1.0).advantages(batch.group(0));
                prop_assert!(got.iter().all(|a| a.unwrap().abs() < 1e-6), "{got:?}");
            }
        }
    }
}
