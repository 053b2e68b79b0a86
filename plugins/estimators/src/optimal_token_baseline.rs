//! Optimal token baseline: the return from each token on, against a mean over the group at the same place in which paths
//! count by the size of their gradient so far.
//!
//! `A_{i,k} = G_{i,k} − Σ_j W_{j,k} G_{j,k} / (Σ_j W_{j,k} + ε)`, `W_{i,k} = Σ_{l ≤ k} (1 − 2π_{i,l} + Σ_a π_{i,l}(a)²)`: the squared norm of the
//! gradient of `log π` with respect to the logits, summed over the path so far. Sums over `j` are over the paths that reach
//! place k.
//!
//! verl `compute_optimal_token_baseline_advantage` and `compute_multi_turn_optimal_token_baseline_advantage` (ε = 1e-8).
//! Two places are told apart. `place = "sampled"`: the k-th sampled token, verl's multi-turn form. `place = "sequence"`: the
//! k-th token of the sequence, whatever was fed before it, verl's other form.
//! Reductions: with equal weights it is the return minus the group's mean at that place. Edge cases: a group of one gives
//! 0; with `mode = "official"` its return, as in verl. A place that one path alone reaches has that path as its own
//! baseline: 0 up to ε. Rollouts must not branch.

use ascribe_core::{AdvantageEstimator, Column, Credit, EstimateError, Group, Law, Need, Now, Scope, plugin};
use ascribe_math::returns;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::Mode;

/// Tokens of a group that are compared with one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The k-th sampled token of each path.
    #[default]
    Sampled,
    /// The k-th token of each path's sequence, fed tokens counted.
    Sequence,
}

/// `[estimator.optimal-token-baseline]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OptimalTokenBaseline {
    /// Tokens that are compared with one another.
    #[serde(default)]
    pub place: Place,
    /// Where paper and verl differ: a group of one.
    #[serde(default)]
    pub mode: Mode,
}

/// Added to the sum of weights, as in verl.
const EPSILON: f64 = 1e-8;
/// The sum of squared probabilities at each sampled token.
const SUM_PI_SQUARED: &str = "sum_pi_squared";

plugin! {
    Estimator "optimal-token-baseline" {
        summary: "The return from each token on, against the baseline of least variance at the same place in the group.",
        source: "verl compute_optimal_token_baseline_advantage, compute_multi_turn_optimal_token_baseline_advantage",
        when: "With large groups and token-level noise: the baseline that minimises the gradient's variance, where tokens at one place mean alike.",
        example: "",
        module: "optimal_token_baseline.rs",
    }
    impl AdvantageEstimator for OptimalTokenBaseline {
        fn needs(&self) -> Vec<Need> {
            let columns = vec![Need::Chains, Need::BehaviorLogprob, Need::Signal(SUM_PI_SQUARED.into(), Scope::Token)];
            [columns, self.mode.needs()].concat()
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Shift, Law::Scale, Law::Ascent]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let (rewards, sampled, tried) = (group.token_rewards(), group.sampled(), group.tried());
            let squares: Vec<Option<f32>> = group.token_signal(SUM_PI_SQUARED).collect();
            let paths: Vec<Vec<usize>> = group.trajectories().map(|path| path.turns()).collect();
            let paths = paths.into_iter().map(|turns| turns.into_iter().filter(|t| tried[*t]).collect::<Vec<_>>());
            let mut tokens = Vec::new();
            let mut rows = Vec::new();
            for turns in paths {
                let of_path: Vec<usize> = turns.iter().flat_map(|t| group.sampled_of(*t)).collect();
                let weight = |i: &usize| {
                    let logprob = group.batch().sampled.logprob.get(sampled.start + i).expect("declared: actions have log-probabilities");
                    squared_gradient_norm(logprob.into(), squares[*i].expect("declared: the policy gives it").into())
                };
                rows.push(Path {
                    rewards: of_path.iter().map(|i| f64::from(rewards[*i])).collect(),
                    weights: of_path.iter().map(weight).collect(),
                    places: self.places(group, &turns),
                });
                tokens.push(of_path);
            }
            let mut out = Column::absent(rewards.len());
            for (tokens, advantages) in tokens.iter().zip(self.advantages(&rows)) {
                tokens.iter().zip(advantages).for_each(|(i, a)| out.set(*i, a as f32));
            }
            Ok(Credit::of_tokens(group.n_turns(), out))
        }
    }
}

/// `1 − 2π + Σ_a π(a)²`: the squared norm of the gradient of one token's `log π` with respect to the logits.
pub fn squared_gradient_norm(logprob: f64, sum_pi_squared: f64) -> f64 {
    1.0 - 2.0 * logprob.exp() + sum_pi_squared
}

/// The sampled tokens of one path, `[tokens]` each.
#[derive(Clone, Debug)]
pub struct Path {
    /// Reward on each token.
    pub rewards: Vec<f64>,
    /// [`squared_gradient_norm`] of each token.
    pub weights: Vec<f64>,
    /// With which tokens of other paths each is compared.
    pub places: Vec<usize>,
}

impl OptimalTokenBaseline {
    /// Advantages of the paths of one group, `[paths][tokens]`.
    pub fn advantages(&self, paths: &[Path]) -> Vec<Vec<f64>> {
        let with_returns = |path: &Path| {
            let mut out = vec![0.0; path.rewards.len()];
            returns(&path.rewards, 0.0, 1.0, &mut out);
            out
        };
        let returns: Vec<Vec<f64>> = paths.iter().map(with_returns).collect();
        if paths.len() == 1 {
            return match self.mode {
                Mode::Paper => vec![vec![0.0; returns[0].len()]],
                Mode::Official => returns,
            };
        }
        let n = paths.iter().flat_map(|p| p.places.iter().map(|k| k + 1)).max().unwrap_or(0);
        let (mut sum, mut total) = (vec![0.0; n], vec![0.0; n]);
        for (path, returns) in paths.iter().zip(&returns) {
            let mut so_far = 0.0;
            for ((place, weight), g) in path.places.iter().zip(&path.weights).zip(returns) {
                so_far += weight;
                sum[*place] += so_far * g;
                total[*place] += so_far;
            }
        }
        let against = |(path, returns): (&Path, Vec<f64>)| {
            path.places.iter().zip(returns).map(|(k, g)| g - sum[*k] / (total[*k] + EPSILON)).collect()
        };
        paths.iter().zip(returns).map(against).collect()
    }

    /// Places of the sampled tokens of these turns of one path.
    fn places(&self, group: Group<'_>, turns: &[usize]) -> Vec<usize> {
        let (batch, rows, sampled) = (group.batch(), group.rows(), group.sampled());
        let mut places = Vec::new();
        let mut before = 0;
        for t in turns {
            for i in group.sampled_of(*t) {
                places.push(match self.place {
                    Place::Sampled => places.len(),
                    Place::Sequence => before + batch.sampled.at[sampled.start + i] as usize,
                });
            }
            before += batch.turns.tokens[rows.start + t].len();
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, signalled, turn};
    use ascribe_core::log::{Action, TurnLog};

    fn path(rewards: &[f64], weights: &[f64], places: &[usize]) -> Path {
        Path { rewards: rewards.to_vec(), weights: weights.to_vec(), places: places.to_vec() }
    }
    fn estimator(place: Place) -> OptimalTokenBaseline {
        OptimalTokenBaseline { place, mode: Mode::Paper }
    }

    #[test]
    fn paths_count_by_their_gradients_so_far() {
        // first place: weights 1 and 3, returns 2 and 0: baseline ½. second: weights 1 + 1 and 3 + 0, returns 2 and 0: 0.8
        let paths = [path(&[0.0, 2.0], &[1.0, 1.0], &[0, 1]), path(&[0.0, 0.0], &[3.0, 0.0], &[0, 1])];
        let got = estimator(Place::Sampled).advantages(&paths);
        for (got, want) in got.iter().flatten().zip([1.5, 1.2, -0.5, -0.8]) {
            assert!((got - want).abs() < 1e-7, "{got}, not {want}");
        }
        assert_eq!(estimator(Place::Sampled).advantages(&paths[..1]), [[0.0, 0.0]]);
    }

    #[test]
    fn places_count_what_was_fed_or_do_not() {
        let of = |read: usize, reward: f32| TurnLog {
            read: vec![1; read],
            action: Action { logprob: Some(vec![0.5f32.ln()]), ..Action::given(vec![0]) },
            ..turn(None, reward)
        };
        let group = batch(vec![of(1, 1.0), of(1, 0.0)], &[(0, WON), (1, LOST)]);
        let group = signalled(group, SUM_PI_SQUARED, Scope::Token, &[0.5, 0.5]);
        let of = |place| estimator(place).estimate(group.group(0), &Now::default()).unwrap().tokens;
        let close = |got: Column| {
            got.get(0).is_some_and(|a| (a - 0.5).abs() < 1e-6) && got.get(1).is_some_and(|a| (a + 0.5).abs() < 1e-6)
        };
        assert!(close(of(Place::Sampled)) && close(of(Place::Sequence)));
    }
}
