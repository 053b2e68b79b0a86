//! Stepwise progress attribution: a turn's reward is its share of the final reward and whether its action was carried out.
//!
//! `r_t = α ĉ_t + β g_t`, then `A_t = r_t + γ A_{t+1}`, or with `lambda` generalised advantage estimation on these rewards;
//! at a branch, the mean over the children. `ĉ_t` is the column `contribution`: a progress estimator's shares, which add up
//! to the final reward and stand in its place, so the environment's reward is not added again. `g_t` is the column
//! `grounding`: 1 where the action was carried out, 0 where nothing happened. What was not computed adds nothing.
//!
//! Wang et al. 2025, "SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution", arXiv 2505.20732. Reductions:
//! `α = 0` leaves grounding alone; with `lambda` it is `gae`, without it `return-to-go`, on the fused reward.
//!
//! `mode = "official"` follows WangHanLinHenry/SPA-RL-Agent at ed200874 where it differs from the paper:
//! `r_t = (α L + β g_t) · (turns after t)`. `prm/rl_data_org.py` overwrites the estimator's shares by `L`, the outcome
//! minus the mean of the task's other outcomes (a group of one keeps its raw outcome), with α = 1, β = ½, and the last turn
//! always counts as grounded. `ppo/step_ppotrainer.py` multiplies a step's score by the number of steps after it: the first
//! step counts most, the last not at all. What their PPO does to tokens is left to the stages it belongs to: the KL penalty
//! is a reward column, whitening a transform. They run GAE over every column, tools' answers with value and reward 0
//! included, so that `γλ` decays while the tool speaks; here turns are turns. Scores of a conversation whose context was cut
//! are matched from its end ([`SpaRl::step_rewards`]); here every turn is recorded.
//!
//! Edge cases: a turn that was not tried is not trained and moves no mean. Without `lambda` there is no baseline.

use ascribe_core::range::{Finite, Unit};
use ascribe_core::{AdvantageEstimator, Credit, Decay, EstimateError, Group, Law, Need, Now, Scope, Step, plugin};
use ascribe_math::leave_one_out;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::mean_over_paths;
use crate::paths::advantages_of_tried;
use crate::values::{self, credit_of_tried, td_errors};

/// The column of shares of the final reward.
const CONTRIBUTION: &str = "contribution";
/// The column that says whether an action was carried out.
const GROUNDING: &str = "grounding";

/// `[estimator.spa-rl]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpaRl {
    /// Weight α of a turn's share of the final reward. The authors' code: 1.
    pub alpha: Finite,
    /// Weight β of grounding. The authors' code: 0.5.
    pub beta: Finite,
    /// Discount per turn, in 0..=1.
    pub gamma: Unit,
    /// Weight of longer estimates of GAE, in 0..=1; it needs a critic. Absent: the return, without a critic.
    #[serde(default)]
    pub lambda: Option<Unit>,
    /// What stands for a turn's share of the final reward.
    #[serde(default)]
    pub mode: Shares,
}

/// What stands for a turn's share of the final reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// The column `contribution`.
    #[default]
    Paper,
    /// The outcome against its siblings', the same for each turn, and all rewards times the number of turns after them.
    Official,
}

plugin! {
    Estimator "spa-rl" {
        summary: "A progress estimator's share of the final reward per turn, and whether the action was carried out.",
        source: "Wang et al. 2025, SPA-RL, arXiv 2505.20732; WangHanLinHenry/SPA-RL-Agent",
        when: "Long tasks with one reward at the end and actions that can fail, once a progress estimator is trained. Only as good as the estimator; grounding alone can be earned by harmless actions.",
        example: "alpha = 1.0\nbeta = 0.5\ngamma = 1.0",
        module: "spa_rl.rs",
    }
    impl AdvantageEstimator for SpaRl {
        fn needs(&self) -> Vec<Need> {
            let mut needs = vec![Need::Signal(GROUNDING.into(), Scope::Turn)];
            if self.mode == Shares::Paper {
                needs.push(Need::Signal(CONTRIBUTION.into(), Scope::Turn));
            }
            if self.lambda.is_some() {
                needs.extend(values::needs());
            }
            needs
        }

        fn laws(&self) -> Vec<Law> {
            let bootstraps = (self.mode == Shares::Paper && self.lambda.is_some()).then_some(Law::Bootstraps);
            bootstraps.into_iter().collect()
        }

        fn decay(&self) -> Option<Decay> {
            let (lambda, symbol) = self.lambda.map_or((1.0, "γ"), |lambda| (*lambda, "γλ"));
            Some(Decay { per_step: *self.gamma * lambda, step: Step::Turn, symbol })
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let reward = match self.mode {
                Shares::Paper => self.paper_rewards(group),
                Shares::Official => self.official_rewards(group),
            };
            let gamma = *self.gamma;
            let Some(lambda) = self.lambda else {
                let returns = group.fold_up(|_| 0.0, |t, future| reward[t] + gamma * future);
                return Ok(credit_of_tried(returns.into_iter().zip(group.tried()).map(|(g, tried)| tried.then_some(g))));
            };
            // The fused reward stands in the place of the environment's.
            let environment = group.rewards();
            let fused = |(t, delta): (usize, Option<f64>)| Some(delta? + reward[t] - f64::from(environment[t]));
            let delta: Vec<Option<f64>> = td_errors(group, gamma).into_iter().enumerate().map(fused).collect();
            let advantage = group.fold_up(|_| 0.0, |t, future| delta[t].unwrap_or(0.0) + gamma * *lambda * future);
            Ok(credit_of_tried(delta.iter().zip(advantage).map(|(d, a)| d.and(Some(a)))))
        }
    }
}

impl SpaRl {
    /// `α c + β g` of one turn.
    pub fn fused(&self, contribution: f64, grounding: f64) -> f64 {
        *self.alpha * contribution + *self.beta * grounding
    }

    /// What the last `n_steps` of a trajectory earn in official code: a step's score times the number of steps after it.
    ///
    /// * `scores`: `[all steps]`; the earliest are those whose tokens were cut off
    ///
    /// Returns `[n_steps]`.
    pub fn step_rewards(scores: &[f64], n_steps: usize) -> Vec<f64> {
        let from_end = |after: usize| scores.iter().rev().nth(after).map_or(0.0, |score| score * after as f64);
        (0..n_steps).rev().map(from_end).collect()
    }

    fn paper_rewards(&self, group: Group<'_>) -> Vec<f64> {
        let number = |x: Option<f32>| x.map_or(0.0, f64::from);
        let both = group.turn_signal(CONTRIBUTION).zip(group.turn_signal(GROUNDING));
        both.map(|(c, g)| self.fused(number(c), number(g))).collect()
    }

    fn official_rewards(&self, group: Group<'_>) -> Vec<f64> {
        let per_path = advantages_of_tried(group, leave_one_out);
        let outcome = mean_over_paths(group, &per_path, |advantage, _| advantage);
        // Mean over the children of the number of turns that follow.
        let turns_from = group.fold_up(|_| 0.0, |_, after| after + 1.0);
        let of_turn = |(t, grounding): (usize, Option<f32>)| {
            let grounding = if group.n_children(t) == 0 { 1.0 } else { grounding.map_or(0.0, f64::from) };
            self.fused(outcome[t].unwrap_or(0.0), grounding) * (turns_from[t] - 1.0)
        };
        group.turn_signal(GROUNDING).enumerate().map(of_turn).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, credit, signalled, turn, valued};
    use crate::graph::tests::{forests, groups, is_sound, order_does_not_matter};
    use crate::{Gae, ReturnToGo};
    use ascribe_core::{Batch, End};
    use proptest::prelude::*;

    fn spa(alpha: f64, beta: f64, lambda: Option<f64>, mode: Shares) -> SpaRl {
        SpaRl {
            alpha: Finite::try_from(alpha).unwrap(),
            beta: Finite::try_from(beta).unwrap(),
            gamma: Unit::try_from(1.0).unwrap(),
            lambda: lambda.map(|x| Unit::try_from(x).unwrap()),
            mode,
        }
    }
    fn scored(batch: Batch, contribution: &[f32], grounding: &[f32]) -> Batch {
        signalled(signalled(batch, CONTRIBUTION, Scope::Turn, contribution), GROUNDING, Scope::Turn, grounding)
    }

    #[test]
    fn shares_stand_in_the_place_of_the_final_reward() {
        // r = (¾ + ½, ¼ + 0), whatever the environment paid
        let path = || scored(chains(&[(&[0.0, 1.0], WON)]), &[0.75, 0.25], &[1.0, 0.0]);
        assert_eq!(credit(&spa(1.0, 0.5, None, Shares::Paper), &path()), [1.5, 0.25]);
        // λ = 0, values ½, ¼: δ = (1¼ + ¼ − ½, ¼ − ¼)
        let path = valued(path(), &[0.5, 0.25, 9.0]);
        assert_eq!(credit(&spa(1.0, 0.5, Some(0.0), Shares::Paper), &path), [1.0, 0.0]);
        assert_eq!(credit(&spa(1.0, 0.5, Some(1.0), Shares::Paper), &path), [1.0, 0.0]);
    }

    #[test]
    fn official_code_weighs_a_turn_by_what_follows() {
        // Leave-one-out 1 and −1. r = (1 + ½)·1, (1 + ½)·0 and (−1 + 0)·2, (−1 + ½)·1, (−1 + ½)·0
        let two = scored(chains(&[(&[0.0, 1.0], WON), (&[0.0, 0.0, 0.0], LOST)]), &[9.0; 5], &[1.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(credit(&spa(1.0, 0.5, None, Shares::Official), &two), [1.5, 0.0, -2.5, -0.5, 0.0]);
        assert_eq!(SpaRl::step_rewards(&[-1.0, -0.5, -0.5], 3), [-2.0, -0.5, 0.0]);
        assert_eq!(SpaRl::step_rewards(&[-1.0, -0.5, -0.5], 2), [-0.5, 0.0]);
        assert_eq!(SpaRl::step_rewards(&[2.0], 2), [0.0, 0.0]);
    }

    #[test]
    fn a_group_of_one_keeps_its_raw_outcome_in_official_code() {
        let one = scored(chains(&[(&[0.0, 2.0], WON)]), &[0.0; 2], &[0.0; 2]);
        assert_eq!(credit(&spa(1.0, 0.5, None, Shares::Official), &one), [2.0, 0.0]);
    }

    #[test]
    fn siblings_never_see_each_others_share_and_what_was_not_tried_is_not_trained() {
        let tree = |last| {
            let turns = vec![turn(None, 0.0), turn(Some(0), 0.0), turn(Some(0), 0.0)];
            scored(batch(turns, &[(1, WON), (2, last)]), &[0.0, 1.0, 0.5], &[0.0; 3])
        };
        let turns = |batch: Batch| {
            let credit = spa(1.0, 1.0, None, Shares::Paper).estimate(batch.group(0), &Now::default()).unwrap();
            credit.turns
        };
        assert_eq!(turns(tree(LOST)), [Some(0.75), Some(1.0), Some(0.5)]);
        assert_eq!(turns(tree(End::Untried)), [Some(1.0), Some(1.0), None]);
    }

    proptest! {
        #[test]
        fn order_of_trajectories_is_order_of_credit(group in groups()) {
            order_does_not_matter(&spa(1.0, 0.5, None, Shares::Paper), &group);
            order_does_not_matter(&spa(1.0, 0.5, None, Shares::Official), &group);
        }

        #[test]
        fn credit_is_sound_on_any_forest(batch in forests()) {
            for mode in [Shares::Paper, Shares::Official] {
                is_sound(&spa(1.0, 0.5, None, mode), &batch);
                is_sound(&spa(1.0, 0.5, Some(0.5), mode), &batch);
            }
        }

        #[test]
        fn it_is_gae_or_the_return_on_the_fused_reward(
            steps in prop::collection::vec((-4i8..4, 0u8..2, -4i8..4), 1..8), lambda in 0.0..=1.0f64
        ) {
            let number = |x: i8| f32::from(x);
            let share: Vec<f32> = steps.iter().map(|s| number(s.0)).collect();
            let ground: Vec<f32> = steps.iter().map(|s| f32::from(s.1)).collect();
            let value: Vec<f32> = steps.iter().map(|s| number(s.2)).chain([7.0]).collect();
            let fused: Vec<f32> = share.iter().zip(&ground).map(|(c, g)| c + 0.5 * g).collect();
            let gamma = Unit::try_from(1.0).unwrap();
            let spa_path = valued(scored(chains(&[(&vec![3.0; share.len()], WON)]), &share, &ground), &value);
            let path = valued(chains(&[(&fused, WON)]), &value);
            let gae = Gae { gamma, lambda: Unit::try_from(lambda).unwrap(), unit: Step::Turn };
            let got = credit(&spa(1.0, 0.5, Some(lambda), Shares::Paper), &spa_path);
            prop_assert!(got.iter().zip(credit(&gae, &path)).all(|(a, b)| (a - b).abs() < 1e-4));
            prop_assert_eq!(credit(&spa(1.0, 0.5, None, Shares::Paper), &spa_path), credit(&ReturnToGo { gamma, unit: Step::Turn }, &path));
        }
    }
}
