//! Macro-step TEMPO: branches of a few turns from one stored state, each continued by a critic's value of where it stopped.
//!
//! `R_n = r_n + V̂(s_n)`, `V̂ = 0` after a true end; `G = mean_n R_n`; `A_n = R_n − G` for every turn of branch n, without a
//! division. `G` is also the target of `value` at the start: a TD target over one macro step. Samples of a generative
//! critic are scored with [`ascribe_math::critic_signals`]: `−|V̂_k − G| / R_max`, centred over the samples.
//!
//! Dots team 2026, "TEMPO: Test-Time-Scaled Value Estimation with Macro-Step Policy Optimization" (blog,
//! studio.dots.ai/dots/tempo-blog.html; no paper and no code of the authors); numbers from the reproduction
//! KMnO4-zx/agentic-rl-lab `09-tempo/tempo.py`. It is not the TEMPO of arXiv 2509.18314, which is `tempo-p2t`, nor that of
//! arXiv 2604.19295. Reductions: with true ends alone it is GRPO without its division; with a macro step of one turn it
//! is the TD error with the group's mean in place of the value.
//!
//! Edge cases: equal returns give exactly 0 and are [`ActorSignals::degenerate`]; so does a group of one. A shared turn
//! gets the mean over its branches. Paths that were not tried move no mean.
//! Where the reproduction differs (`mode = "official"`): every stop but the end of the macro step is a true end, limits
//! of turns and tokens among them; a boundary without an estimate is worth 0, where the default takes the branch out of
//! training and out of G; branches with `|A| ≤ 1e-12` are not trained, where the default trains them with 0.

use ascribe_core::credit::Target;
use ascribe_core::signal::Scope;
use ascribe_core::{AdvantageEstimator, Credit, End, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::{Deviation, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forest::{VALUE, known_values, needs_values, rounded};

/// Advantages up to here count as none.
const NOTHING: f64 = 1e-12;

/// `[estimator.tempo]`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tempo {
    /// Where description and reproduction differ: limits, missing estimates, and branches without an advantage.
    #[serde(default)]
    pub mode: TempoMode,
}

/// Where description and reproduction of TEMPO differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TempoMode {
    /// Limits bootstrap as boundaries do; a branch that stopped where nothing was estimated has no return.
    #[default]
    Paper,
    /// Limits are ends; what was not estimated is worth 0; branches without an advantage are not trained.
    Official,
}

plugin! {
    Estimator "tempo" {
        summary: "Macro-step TEMPO (Dots blog): reward of a few turns plus the critic's value of where they stopped, against the branches' mean.",
        source: "Dots team 2026, TEMPO: Test-Time-Scaled Value Estimation with Macro-Step Policy Optimization (blog); KMnO4-zx/agentic-rl-lab 09-tempo. Not arXiv 2509.18314 (that is `tempo-p2t`)",
        when: "Episodes of hundreds of turns, with a rollout of macro steps and a critic for their ends. Where episodes can be played out, `grpo` has no critic to be wrong.",
        example: "",
        module: "tempo.rs",
    }
    impl AdvantageEstimator for Tempo {
        fn needs(&self) -> Vec<Need> {
            vec![needs_values(), Need::GroupOfAtLeast(2)]
        }

        fn targets(&self) -> Vec<String> {
            vec![VALUE.into()]
        }

        fn laws(&self) -> Vec<Law> {
            let bootstraps = (self.mode == TempoMode::Paper).then_some(Law::Bootstraps);
            let always = [Law::Shift, Law::Scale, Law::NoSpreadNoCredit, Law::SumToZero, Law::Ascent];
            always.into_iter().chain(bootstraps).collect()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let branches = self.branches(group);
            let (rewards, endpoints): (Vec<f64>, Vec<Option<f64>>) = branches.iter().copied().flatten().unzip();
            if rewards.is_empty() {
                return Ok(Credit { turns: vec![None; group.n_turns()], ..Credit::default() });
            }
            let signals = actor_signals(&rewards, &endpoints);
            let mut advantages = signals.advantages.into_iter();
            let trained = |a: &f64| self.mode == TempoMode::Paper || a.abs() > NOTHING;
            let per_path: Vec<Option<f64>> =
                branches.iter().map(|b| b.and_then(|_| advantages.next()).filter(trained)).collect();
            let target = std::iter::once(Some(signals.target)).chain(std::iter::repeat_n(None, group.n_turns()));
            let target = Target { scope: Scope::State, column: rounded(target).into_iter().collect() };
            let targets = [(VALUE.to_string(), target)].into();
            Ok(Credit { turns: group.mean_over_some_leaves(&per_path), targets, ..Credit::default() })
        }
    }
}

impl Tempo {
    /// Reward of each path, and the value of where it stopped unless it truly ended; `None` where it has no return.
    fn branches(&self, group: Group<'_>) -> Vec<Option<(f64, Option<f64>)>> {
        let known = known_values(group);
        let official = self.mode == TempoMode::Official;
        let branch = |(path, reward): (ascribe_core::Trajectory<'_>, f64)| {
            let value = path.turns_up().next().and_then(|last| known[last + 1]);
            match path.leaf().end {
                End::Terminated { .. } => Some((reward, None)),
                End::Truncated(_) if official => Some((reward, None)),
                End::MacroBoundary if official => Some((reward, Some(value.unwrap_or(0.0)))),
                End::Truncated(_) | End::MacroBoundary => value.map(|value| (reward, Some(value))),
                End::Untried | End::Failed(_) => None,
            }
        };
        group.trajectories().zip(group.outcomes()).map(branch).collect()
    }
}

/// What the branches of one start say to the actor.
#[derive(Clone, Debug, PartialEq)]
pub struct ActorSignals {
    /// Value each return was continued with; 0 after a true end. `[branches]`
    pub endpoint_values: Vec<f64>,
    /// Reward plus endpoint value, `[branches]`.
    pub returns: Vec<f64>,
    /// Mean of the returns: the target of the start's value; 0 without branches.
    pub target: f64,
    /// Returns minus their mean, `[branches]`.
    pub advantages: Vec<f64>,
    /// Whether no branch differs from the mean: there is nothing to learn.
    pub degenerate: bool,
    /// Population deviation of the endpoint values of branches that stopped short of an end and earned nothing: what the
    /// critic alone tells apart. 0 for fewer than two of them.
    pub zero_reward_value_deviation: f64,
}

/// Signals for the actor.
///
/// * `rewards`: `[branches]`, earned within the macro step
/// * `endpoints`: `[branches]`, value of where a branch stopped; `None` after a true end
pub fn actor_signals(rewards: &[f64], endpoints: &[Option<f64>]) -> ActorSignals {
    let endpoint_values: Vec<f64> = endpoints.iter().map(|v| v.unwrap_or(0.0)).collect();
    let returns: Vec<f64> = rewards.iter().zip(&endpoint_values).map(|(r, v)| r + v).collect();
    let target = moments(&returns).mean;
    let advantages: Vec<f64> = returns.iter().map(|r| r - target).collect();
    let unpaid = rewards.iter().zip(endpoints).filter(|(r, _)| r.abs() <= NOTHING).filter_map(|(_, v)| *v);
    ActorSignals {
        degenerate: is_nothing(&advantages),
        zero_reward_value_deviation: moments(&unpaid.collect::<Vec<_>>()).deviation(Deviation::Population),
        endpoint_values,
        returns,
        target,
        advantages,
    }
}

fn is_nothing(advantages: &[f64]) -> bool {
    advantages.iter().all(|a| a.abs() <= NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn, valued};
    use ascribe_core::signal::{Column, Signal};
    use ascribe_core::{Batch, Limit};
    use proptest::prelude::*;

    const CUT: End = End::Truncated(Limit::Turns);

    fn estimate(mode: TempoMode, batch: &Batch) -> Credit {
        let credit = Tempo { mode }.estimate(batch.group(0), &Now::default()).unwrap();
        credit.check(batch.group(0)).unwrap();
        credit
    }
    fn target(credit: &Credit) -> Vec<Option<f32>> {
        let column = &credit.targets["value"].column;
        (0..column.len()).map(|i| column.get(i)).collect()
    }

    #[test]
    fn boundaries_bootstrap_and_ends_do_not() {
        // returns 1, 0 + ½, 0 + ¾ at a limit (or 0); value of the end is not read
        let paths = [(&[1.0f32][..], WON), (&[0.0][..], End::MacroBoundary), (&[0.0][..], CUT)];
        let branches = valued(chains(&paths), &[9.0, 9.0, 0.5, 0.75]);
        let paper = estimate(TempoMode::Paper, &branches);
        assert_eq!(paper.turns, [Some(0.25), Some(-0.25), Some(0.0)]);
        assert_eq!(target(&paper), [Some(0.75), None, None, None]);
        let official = estimate(TempoMode::Official, &branches);
        assert_eq!(official.turns, [Some(0.5), None, Some(-0.5)]);
        assert_eq!(target(&official)[0], Some(0.5));
    }

    #[test]
    fn a_boundary_that_was_not_estimated_has_no_return() {
        let mut branches = chains(&[(&[1.0], WON), (&[0.0], LOST), (&[0.0], End::MacroBoundary)]);
        let signal = Signal { scope: Scope::State, provider: "test".into(), column: Column::absent(4) };
        branches.add_signal("value", signal).unwrap();
        assert_eq!(estimate(TempoMode::Paper, &branches).turns, [Some(0.5), Some(-0.5), None]);
        let third = estimate(TempoMode::Official, &branches).turns[2].unwrap();
        assert!((third + 1.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn a_shared_turn_gets_the_mean_over_its_branches() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0)], &[(1, WON), (2, LOST)]);
        assert_eq!(estimate(TempoMode::Paper, &valued(tree, &[0.0; 4])).turns, [Some(0.0), Some(0.5), Some(-0.5)]);
    }

    #[test]
    fn nothing_tried_gives_neither_credit_nor_target() {
        let none = valued(chains(&[(&[1.0], End::Untried)]), &[0.0; 2]);
        let credit = estimate(TempoMode::Paper, &none);
        assert_eq!((credit.turns, credit.targets.len()), (vec![None], 0));
    }

    proptest! {
        #[test]
        fn equal_returns_are_degenerate_and_exactly_zero(value in -9.0..9.0f64, n in 1usize..9) {
            let signals = actor_signals(&vec![0.0; n], &vec![Some(value); n]);
            prop_assert!(signals.degenerate && signals.advantages.iter().all(|a| *a == 0.0));
            prop_assert_eq!(signals.zero_reward_value_deviation, 0.0);
            prop_assert_eq!(signals.target, value);
        }

        #[test]
        fn advantages_sum_to_zero_in_any_order(branches in prop::collection::vec((-2.0..2.0f64, prop::option::of(-2.0..2.0f64)), 1..9)) {
            let (rewards, endpoints): (Vec<f64>, Vec<Option<f64>>) = branches.iter().copied().unzip();
            let signals = actor_signals(&rewards, &endpoints);
            prop_assert!(signals.advantages.iter().sum::<f64>().abs() < 1e-9);
            let (rewards, endpoints): (Vec<f64>, Vec<Option<f64>>) = branches.into_iter().rev().unzip();
            let reversed = actor_signals(&rewards, &endpoints).advantages;
            prop_assert!(signals.advantages.iter().rev().zip(reversed).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
