//! Generalised advantage estimation over turns or tokens: an exponentially weighted mean of n-step advantages.
//!
//! `A_t = δ_t + γλ A_{t+1}`, `δ_t = r_t + γ V(s_{t+1}) − V(s_t)`, one step per turn, or per sampled token (what the environment
//! says takes no time); at a branch, the mean over the children. After a true end `V = 0`; where a limit cut the path the
//! last state's value stands for the future.
//!
//! Schulman et al. 2016, arXiv 1506.02438, eq. 16. Presets: `step-po` (arXiv 2604.18401) and `turn-ppo` (arXiv 2512.17008).
//! Reductions: `λ = 0` is `td`; `λ = 1` is the return minus the value; with values of 0 it is `return-to-go` discounted by
//! `γλ`. Edge cases: a turn that was not tried is not trained and moves no mean; the reward of a turn without sampled
//! tokens falls to the token before it. Where official code differs: verl's trainer whitens over the batch afterwards (add
//! `whiten`); older forks step through the environment's tokens, so that γλ decays across them; the book's turn form
//! takes a call's value where its mask rises, so that two calls without a gap share a slot and one loses its reward; StepPO
//! takes 0 beyond the end of a truncated path too. Here turns are turns, and a truncated path bootstraps.

use ascribe_core::range::Unit;
use ascribe_core::{AdvantageEstimator, Column, Credit, Decay, EstimateError, Group, Law, Need, Now, Step, plugin, preset};
use ascribe_math::gae;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{credit_of_tried, fold_tokens, needs_over, td_errors, token_values, value_at_end};

/// `[estimator.gae]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gae {
    /// Discount per step, in 0..=1.
    pub gamma: Unit,
    /// Weight of longer estimates, in 0..=1: 0 trusts the critic, 1 the return.
    pub lambda: Unit,
    /// What one step is; tokens need a critic that gives `token_value`.
    #[serde(default)]
    pub unit: Step,
}

plugin! {
    Estimator "gae" {
        summary: "Generalised advantage estimation over turns or tokens: between the TD error and the return minus the value.",
        source: "Schulman et al. 2016, High-dimensional continuous control using GAE, arXiv 1506.02438, eq. 16",
        when: "With a critic, over many turns: the standard way to trade its bias for the return's variance.",
        example: "gamma = 1.0\nlambda = 0.95",
        module: "gae.rs",
    }
    impl AdvantageEstimator for Gae {
        fn needs(&self) -> Vec<Need> {
            needs_over(self.unit)
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Scale, Law::Bootstraps, Law::Ascent]
        }

        fn decay(&self) -> Option<Decay> {
            Some(Decay { per_step: *self.gamma * *self.lambda, step: self.unit, symbol: "γλ" })
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            if self.unit == Step::Token {
                return Ok(Credit::of_tokens(group.n_turns(), self.over_tokens(group)));
            }
            let delta = td_errors(group, *self.gamma);
            let decay = *self.gamma * *self.lambda;
            let advantage = group.fold_up(|_| 0.0, |t, future| delta[t].unwrap_or(0.0) + decay * future);
            Ok(credit_of_tried(delta.iter().zip(advantage).map(|(d, a)| d.and(Some(a)))))
        }
    }
}

impl Gae {
    fn over_tokens(&self, group: Group<'_>) -> Column {
        let value = token_values(group);
        fold_tokens(
            group,
            |t, end| value_at_end(group, t, end),
            |tokens, rewards, future, out| gae(rewards, &value[tokens], future, *self.gamma, *self.lambda, out),
        )
    }
}

preset! {
    Estimator "step-po" is "gae", Gae as StepPo { gamma: 1.0, lambda: 1.0, unit: "turn" }
    summary: "Step-level GAE of StepPO: turns are the steps; with its own settings, the return minus the value.",
    source: "2026, StepPO, arXiv 2604.18401; AgentR1/StepPO arft/core_algos.py",
    when: "With a critic of turns and `whiten` after it. Not the StepPO of preference optimisation.",
}

preset! {
    Estimator "turn-ppo" is "gae", Gae as TurnPpo { gamma: 0.99, lambda: 0.9, unit: "turn" }
    summary: "Turn-level GAE with the settings that Turn-PPO found best.",
    source: "2025, Turn-PPO, arXiv 2512.17008",
    when: "With a critic of turns, and `ppo-clip` or a ratio per turn. Not the Turn-PPO variant inside arXiv 2511.20718, which is token GAE with a turn's ratio.",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, signalled, turn, valued};
    use crate::td::Td;
    use crate::values::TOKEN_VALUE;
    use ascribe_core::{End, Limit, Scope};
    use proptest::prelude::*;

    fn unit(x: f64) -> Unit {
        Unit::try_from(x).unwrap()
    }
    fn gae(gamma: f64, lambda: f64) -> Gae {
        Gae { gamma: unit(gamma), lambda: unit(lambda), unit: Step::Turn }
    }
    fn turns(estimator: &dyn AdvantageEstimator, batch: &ascribe_core::Batch) -> Vec<Option<f32>> {
        estimator.estimate(batch.group(0), &Now::default()).unwrap().turns
    }

    #[test]
    fn hand_worked() {
        // γ = λ = ½, rewards 1, 2, values 2, 4: δ = (1 + ½·4 − 2, 2 − 4) = (1, −2) at a true end; A_0 = 1 − ¼·2
        let path = |end| valued(chains(&[(&[1.0, 2.0], end)]), &[2.0, 4.0, 6.0]);
        assert_eq!(turns(&gae(0.5, 0.5), &path(WON)), [Some(0.5), Some(-2.0)]);
        // cut by a limit: δ_1 = 2 + ½·6 − 4 = 1
        assert_eq!(turns(&gae(0.5, 0.5), &path(End::Truncated(Limit::Turns))), [Some(1.25), Some(1.0)]);
    }

    #[test]
    fn at_a_branch_the_children_that_were_tried_are_averaged() {
        let tree = |last| {
            let turns = vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0), turn(Some(0), 0.0)];
            valued(batch(turns, &[(1, WON), (2, LOST), (3, last)]), &[0.25, 0.5, 9.0, 9.0, 9.0])
        };
        // δ = ¼, ½, −½, −½; the mean of the children is −1/6
        let tried = turns(&gae(1.0, 1.0), &tree(LOST));
        assert!((tried[0].unwrap() - (0.25 - 1.0 / 6.0)).abs() < 1e-6 && tried[1..] == [Some(0.5), Some(-0.5), Some(-0.5)]);
        assert_eq!(turns(&gae(1.0, 1.0), &tree(End::Untried)), [Some(0.25), Some(0.5), Some(-0.5), None]);
    }

    /// A path of turns with so many sampled tokens, the reward of each turn, and a value before each token.
    fn tokens(paths: &[(usize, f32)], end: End, values: &[f32]) -> ascribe_core::Batch {
        let turns = paths.iter().enumerate().map(|(t, (n, reward))| ascribe_core::log::TurnLog {
            action: ascribe_core::log::Action::given(vec![0; *n]),
            ..turn(t.checked_sub(1), *reward)
        });
        let batch = batch(turns.collect(), &[(paths.len() - 1, end)]);
        let states: Vec<f32> = std::iter::repeat_n(9.0, paths.len()).chain([4.0]).collect();
        signalled(valued(batch, &states), TOKEN_VALUE, Scope::Token, values)
    }

    #[test]
    fn time_advances_on_sampled_tokens() {
        // the field's own example of tool gaps: rewards −0.1, −0.1, 0.9 at the ends of calls of 2, 2 and 1 tokens
        let values = [0.5, 0.4, 0.6, 0.7, 0.8];
        let calls = tokens(&[(2, -0.1), (2, -0.1), (1, 0.9)], WON, &values);
        let of = |lambda, gamma| {
            let gae = Gae { unit: Step::Token, ..gae(gamma, lambda) };
            gae.estimate(calls.group(0), &Now::default()).unwrap().tokens
        };
        let close = |got: Column, want: [f32; 5]| {
            assert!(got.iter().zip(want).all(|(g, w)| (g.unwrap() - w).abs() < 1e-4), "{got:?}, not {want:?}");
        };
        close(of(1.0, 1.0), [0.2, 0.3, 0.2, 0.1, 0.1]);
        close(of(0.0, 1.0), [-0.1, 0.1, 0.1, 0.0, 0.1]);
        close(of(0.95, 0.9), [-0.0804, 0.0697, 0.0347, 0.0055, 0.1]);
    }

    #[test]
    fn a_cut_path_bootstraps_and_an_empty_turn_takes_no_time() {
        let gae = Gae { unit: Step::Token, ..gae(0.5, 0.5) };
        let of = |batch: ascribe_core::Batch| gae.estimate(batch.group(0), &Now::default()).unwrap().tokens;
        // cut: 1 + ½·4 − 2 = 1
        assert_eq!(of(tokens(&[(1, 1.0)], End::Truncated(Limit::Turns), &[2.0])), [Some(1.0)]);
        // the reward 3 of the empty turn falls to the token before it: 1 + 3 − 2 = 2
        assert_eq!(of(tokens(&[(1, 1.0), (0, 3.0)], WON, &[2.0])), [Some(2.0)]);
    }

    #[test]
    fn presets_are_gae_with_their_settings() {
        let read = |text: &str| serde_json::from_str::<TurnPpo>(text);
        let preset = read("{}").unwrap();
        assert_eq!((*preset.0.gamma, *preset.0.lambda), (0.99, 0.9));
        let preset = read(r#"{"lambda": 0.5}"#).unwrap();
        assert_eq!((*preset.0.gamma, *preset.0.lambda), (0.99, 0.5));
        assert!(read(r#"{"lamda": 0.5}"#).unwrap_err().to_string().contains("unknown field `lamda`"));
        assert!(read(r#"{"lambda": 1.5}"#).is_err());
        let written = serde_json::to_value(&preset).unwrap();
        assert_eq!(written, serde_json::json!({"gamma": 0.99, "lambda": 0.5, "unit": "turn"}));
    }

    proptest! {
        #[test]
        fn on_a_path_it_is_the_slice_function(
            steps in prop::collection::vec((-4i8..4, -4i8..4), 1..12), gamma in 0.0..=1.0f64, lambda in 0.0..=1.0f64
        ) {
            let rewards: Vec<f32> = steps.iter().map(|s| f32::from(s.0)).collect();
            let mut values: Vec<f32> = steps.iter().map(|s| f32::from(s.1)).collect();
            let mut want = vec![0.0; rewards.len()];
            ascribe_math::gae(&rewards, &values, 0.0, gamma, lambda, &mut want);
            values.push(9.0);
            let path = valued(chains(&[(&rewards, WON)]), &values);
            let got: Vec<f32> = turns(&gae(gamma, lambda), &path).into_iter().map(Option::unwrap).collect();
            prop_assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-4), "{got:?} {want:?}");
            prop_assert_eq!(turns(&gae(gamma, 0.0), &path), turns(&Td { gamma: unit(gamma) }, &path));
        }
    }
}
