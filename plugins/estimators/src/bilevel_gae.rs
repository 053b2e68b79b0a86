//! Bi-level GAE: first over turns, from the values at their last tokens; then over the tokens of each turn.
//!
//! Turns: `A_t = δ_t + γ_turn λ A_{t+1}`, `δ_t = r_t + γ_turn V_{t+1} − V_t` with `V_t` the value before a turn's last sampled
//! token. Tokens: at the turn's last, `r = A_t + V_t` and nothing follows; before it, `A_i = r_i + γ V_{i+1} − V_i + γλ A_{i+1}`.
//!
//! Wang et al. 2025, RAGEN, arXiv 2504.20073 (`ragen/trainer/core_algos.py`: γ = λ = 1, γ_turn = 0.95; it whitens afterwards:
//! add `whiten`). Reductions: with one token per turn it is `gae`. Edge cases: after a true end `V = 0`; where a limit cut the
//! path the last state's value stands for the future. Where the authors' code differs: it finds a turn's end where a reward
//! is not 0, so that a turn that earned exactly 0 is lost; here turns are turns.

use ascribe_core::range::Unit;
use ascribe_core::{AdvantageEstimator, Credit, Decay, EstimateError, Group, Law, Need, Now, Step, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{needs_over, token_values, value_at_end};

/// `[estimator.bilevel-gae]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BilevelGae {
    /// Discount per token within a turn, in 0..=1. RAGEN: 1.
    pub gamma: Unit,
    /// Discount per turn, in 0..=1. RAGEN: 0.95.
    pub turn_gamma: Unit,
    /// Weight of longer estimates on both levels, in 0..=1. RAGEN: 1.
    pub lambda: Unit,
}

plugin! {
    Estimator "bilevel-gae" {
        summary: "Generalised advantage estimation over turns first, then over the tokens of each turn.",
        source: "Wang et al. 2025, RAGEN, arXiv 2504.20073; RAGEN-AI/RAGEN ragen/trainer/core_algos.py",
        when: "With a critic of tokens, where turns are long and the discount should count turns, not tokens.",
        example: "gamma = 1.0\nturn_gamma = 0.95\nlambda = 1.0",
        module: "bilevel_gae.rs",
    }
    impl AdvantageEstimator for BilevelGae {
        fn needs(&self) -> Vec<Need> {
            needs_over(Step::Token)
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Scale, Law::Bootstraps]
        }

        fn decay(&self) -> Option<Decay> {
            Some(Decay { per_step: *self.turn_gamma * *self.lambda, step: Step::Turn, symbol: "γλ of turns" })
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let tokens = self.advantages(group).into_iter().map(|a| a.map(|a| a as f32));
            Ok(Credit::of_tokens(group.n_turns(), tokens.collect()))
        }
    }
}

impl BilevelGae {
    /// Advantage per sampled token; `None` for tokens of turns that were not tried. `[sampled tokens]`.
    pub fn advantages(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let (value, tried, rewards) = (token_values(group), group.tried(), group.token_rewards());
        let mut out = vec![None; value.len()];
        let n = group.n_turns();
        // Per turn: the mean over its children of what they carry, and how many of them were tried.
        let (mut carried, mut children) = (vec![0.0; n], vec![0.0; n]);
        (0..n).filter(|t| tried[*t]).filter_map(|t| group.parent(t)).for_each(|p| children[p] += 1.0);
        for t in (0..n).rev().filter(|t| tried[*t]) {
            if let Some(end) = group.end(t).filter(|_| group.n_children(t) == 0) {
                carried[t] = *self.turn_gamma * value_at_end(group, t, end);
            }
            let tokens = group.sampled_of(t);
            let carry = match tokens.clone().last() {
                Some(last) => {
                    let own = f64::from(value[last]);
                    let of_turn = f64::from(rewards[last]) + carried[t] - own;
                    self.within(tokens, &rewards, value, of_turn, &mut out);
                    *self.turn_gamma * (own + *self.lambda * of_turn)
                }
                // No token, no step: its reward and what follows fall to the turn before it.
                None => f64::from(group.rewards()[t]) + carried[t],
            };
            if let Some(p) = group.parent(t) {
                carried[p] += carry / children[p];
            }
        }
        out
    }

    /// GAE over one turn's tokens, of which the last has the turn's advantage.
    fn within(&self, tokens: std::ops::Range<usize>, rewards: &[f32], value: &[f32], of_turn: f64, out: &mut [Option<f64>]) {
        let last = tokens.end - 1;
        let mut next = of_turn;
        out[last] = Some(of_turn);
        for i in tokens.rev().skip(1) {
            let delta = f64::from(rewards[i]) + *self.gamma * f64::from(value[i + 1]) - f64::from(value[i]);
            next = delta + *self.gamma * *self.lambda * next;
            out[i] = Some(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{WON, batch, signalled, turn, valued};
    use crate::gae::Gae;
    use crate::values::TOKEN_VALUE;
    use ascribe_core::log::{Action, TurnLog};
    use ascribe_core::{Batch, End, Limit, Scope};

    fn unit(x: f64) -> Unit {
        Unit::try_from(x).unwrap()
    }
    fn path(turns: &[(usize, f32)], end: End, values: &[f32]) -> Batch {
        let logs = turns
            .iter()
            .enumerate()
            .map(|(t, (n, reward))| TurnLog { action: Action::given(vec![0; *n]), ..turn(t.checked_sub(1), *reward) });
        let batch = batch(logs.collect(), &[(turns.len() - 1, end)]);
        let states: Vec<f32> = std::iter::repeat_n(9.0, turns.len()).chain([4.0]).collect();
        signalled(valued(batch, &states), TOKEN_VALUE, Scope::Token, values)
    }

    #[test]
    fn hand_worked() {
        // γ = λ = 1, γ_turn = ½; last values 2 and 4: A_1 = 1 − 4 = −3, A_0 = 0 + ½·4 − 2 + ½·(−3) = −1.5;
        // before them: 0 + 2 − 1 − 1.5 = −0.5, and 0 + 4 − 3 − 3 = −2
        let estimator = BilevelGae { gamma: unit(1.0), turn_gamma: unit(0.5), lambda: unit(1.0) };
        let of = |end| {
            let batch = path(&[(2, 0.0), (2, 1.0)], end, &[1.0, 2.0, 3.0, 4.0]);
            estimator.estimate(batch.group(0), &Now::default()).unwrap().tokens
        };
        assert_eq!(of(WON), [Some(-0.5), Some(-1.5), Some(-2.0), Some(-3.0)]);
        // cut by a limit: A_1 = 1 + ½·4 − 4 = −1, A_0 = −0.5
        assert_eq!(of(End::Truncated(Limit::Turns)), [Some(0.5), Some(-0.5), Some(0.0), Some(-1.0)]);
    }

    #[test]
    fn with_one_token_per_turn_it_is_gae() {
        let batch = path(&[(1, 0.5), (1, -1.0), (1, 2.0)], WON, &[1.0, 0.25, -0.5]);
        let bilevel = BilevelGae { gamma: unit(0.3), turn_gamma: unit(0.9), lambda: unit(0.7) };
        let gae = Gae { gamma: unit(0.9), lambda: unit(0.7), unit: Step::Token };
        let of = |e: &dyn AdvantageEstimator| e.estimate(batch.group(0), &Now::default()).unwrap().tokens;
        assert_eq!(of(&bilevel), of(&gae));
    }
}
