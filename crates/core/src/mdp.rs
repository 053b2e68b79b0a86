//! Finite decision processes, solved exactly: what estimators are measured against.
//!
//! An episode has at most `horizon` turns `t`. Under a policy `π_t(a | s)`, values go backward in time and visits forward:
//!
//! * `Q_t(s, a) = r(s, a) + Σ_s' P(s' | s, a) V_{t+1}(s')`, `V_t(s) = Σ_a π_t(a | s) Q_t(s, a)`, `V_horizon = 0`
//! * `d_0 = start`, `d_{t+1}(s') = Σ_{s, a} d_t(s) π_t(a | s) P(s' | s, a)`
//! * `A_t = Q_t − V_t`, `J = Σ_s d_0(s) V_0(s)`
//! * `∂J/∂θ_t(s, a) = d_t(s) π_t(a | s) A_t(s, a)` for a policy that is the softmax of one logit per turn, state and action
//!
//! Nothing is discounted; values, returns and gradients are in units of reward. A finite horizon makes value and best action
//! depend on the turn, which is why everything is a table by turn; logits that several turns share have the sum of their
//! gradients ([`over_turns`]). Sutton and Barto 2018, sections 3.5, 4.1 and 13.2.

use serde::{Deserialize, Serialize};

/// How far a sum of probabilities may be from 1.
const TOLERANCE: f64 = 1e-9;

/// A number per turn, state and action: `[horizon][states][actions]`. An end has no actions: its row is empty.
pub type ActionTable = Vec<Vec<Vec<f64>>>;

/// A finite decision process. A state without actions is an end: an episode that came there is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FiniteMdp {
    /// What follows an action: states with their probabilities, `[states][actions][outcomes]`.
    pub transitions: Vec<Vec<Vec<(usize, f64)>>>,
    /// What an action pays, whatever follows it, `[states][actions]`.
    pub rewards: Vec<Vec<f64>>,
    /// Probability that an episode begins in a state, `[states]`.
    pub start: Vec<f64>,
    /// Turns after which an episode is cut off; what would have followed is worth 0.
    pub horizon: usize,
}

/// What a policy is worth, exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// `V_t(s)`: expected reward from turn `t` on, `[horizon + 1][states]`; 0 at ends and at the horizon.
    pub values: Vec<Vec<f64>>,
    /// `Q_t(s, a)`.
    pub action_values: ActionTable,
    /// `A_t(s, a) = Q_t(s, a) − V_t(s)`.
    pub advantages: ActionTable,
    /// `d_t(s)`: probability of standing in `s` before turn `t`, `[horizon + 1][states]`. What came to an end stays there.
    pub visits: Vec<Vec<f64>>,
    /// `∂J/∂θ_t(s, a)`, for logits `θ` at temperature 1.
    pub gradient: ActionTable,
    /// `J`.
    pub expected_return: f64,
    /// Expected number of turns of an episode, in `0..=horizon`.
    pub expected_turns: f64,
}

/// Checks that a process is one.
///
/// # Errors
/// If shapes differ, a state does not exist, probabilities do not sum to 1, or a reward is not finite; the message names the
/// state.
pub fn check(mdp: &FiniteMdp) -> Result<(), String> {
    let n = mdp.transitions.len();
    if mdp.rewards.len() != n || mdp.start.len() != n {
        return Err(format!("{n} states, but rewards of {} and a start over {}", mdp.rewards.len(), mdp.start.len()));
    }
    check_distribution(&mdp.start).map_err(|e| format!("start: {e}"))?;
    for (s, (actions, rewards)) in mdp.transitions.iter().zip(&mdp.rewards).enumerate() {
        if actions.len() != rewards.len() {
            return Err(format!("state {s}: {} actions, but {} rewards", actions.len(), rewards.len()));
        }
        if let Some(r) = rewards.iter().find(|r| !r.is_finite()) {
            return Err(format!("state {s}: a reward is {r}"));
        }
        for (a, outcomes) in actions.iter().enumerate() {
            if let Some((next, _)) = outcomes.iter().find(|(next, _)| *next >= n) {
                return Err(format!("state {s}, action {a}: leads to state {next} of {n}"));
            }
            let probabilities: Vec<f64> = outcomes.iter().map(|(_, p)| *p).collect();
            check_distribution(&probabilities).map_err(|e| format!("state {s}, action {a}: {e}"))?;
        }
    }
    Ok(())
}

fn check_distribution(probabilities: &[f64]) -> Result<(), String> {
    if let Some(p) = probabilities.iter().find(|p| !(0.0..=1.0).contains(*p)) {
        return Err(format!("{p} is not a probability"));
    }
    let sum: f64 = probabilities.iter().sum();
    if (sum - 1.0).abs() <= TOLERANCE { Ok(()) } else { Err(format!("probabilities sum to {sum}")) }
}

/// Values, visits and gradient of a policy, by dynamic programming.
///
/// * `policy`: `π_t(a | s)`; rows sum to 1, those of ends are empty
///
/// # Panics
/// If the process fails its [`check`], or the policy has another shape or is none.
pub fn solve(mdp: &FiniteMdp, policy: &[Vec<Vec<f64>>]) -> Solution {
    check(mdp).unwrap_or_else(|e| panic!("not a decision process: {e}"));
    check_policy(mdp, policy).unwrap_or_else(|e| panic!("not a policy: {e}"));
    let n = mdp.transitions.len();

    let mut values = vec![vec![0.0; n]; mdp.horizon + 1];
    let mut action_values = vec![Vec::new(); mdp.horizon];
    for t in (0..mdp.horizon).rev() {
        action_values[t] = (0..n).map(|s| backed_up(mdp, s, &values[t + 1])).collect();
        values[t] = policy[t].iter().zip(&action_values[t]).map(|(pi, q): (_, &Vec<f64>)| dot(pi, q)).collect();
    }

    let mut visits = vec![mdp.start.clone()];
    for t in 0..mdp.horizon {
        visits.push(moved_on(mdp, &visits[t], &policy[t]));
    }

    let mut advantages = action_values.clone();
    let mut gradient = action_values.clone();
    for t in 0..mdp.horizon {
        for s in 0..n {
            for a in 0..mdp.rewards[s].len() {
                advantages[t][s][a] -= values[t][s];
                gradient[t][s][a] = visits[t][s] * policy[t][s][a] * advantages[t][s][a];
            }
        }
    }
    let acting = |visits: &Vec<f64>| (0..n).filter(|s| !mdp.rewards[*s].is_empty()).map(|s| visits[s]).sum::<f64>();
    Solution {
        expected_return: dot(&mdp.start, &values[0]),
        expected_turns: visits[..mdp.horizon].iter().map(acting).sum(),
        values,
        action_values,
        advantages,
        visits,
        gradient,
    }
}

fn check_policy(mdp: &FiniteMdp, policy: &[Vec<Vec<f64>>]) -> Result<(), String> {
    if policy.len() != mdp.horizon {
        return Err(format!("it has {} turns, the horizon is {}", policy.len(), mdp.horizon));
    }
    for (t, states) in policy.iter().enumerate() {
        if states.len() != mdp.rewards.len() {
            return Err(format!("turn {t}: {} states of {}", states.len(), mdp.rewards.len()));
        }
        for (s, (row, rewards)) in states.iter().zip(&mdp.rewards).enumerate() {
            if row.len() != rewards.len() {
                return Err(format!("turn {t}, state {s}: {} actions of {}", row.len(), rewards.len()));
            }
            if !row.is_empty() {
                check_distribution(row).map_err(|e| format!("turn {t}, state {s}: {e}"))?;
            }
        }
    }
    Ok(())
}

/// `Q(s, ·)` from the values of the turn after, `[actions]`.
fn backed_up(mdp: &FiniteMdp, s: usize, after: &[f64]) -> Vec<f64> {
    let expected = |outcomes: &Vec<(usize, f64)>| outcomes.iter().map(|(next, p)| p * after[*next]).sum::<f64>();
    mdp.rewards[s].iter().zip(&mdp.transitions[s]).map(|(r, outcomes)| r + expected(outcomes)).collect()
}

/// Where one turn under `policy` takes a distribution over states, `[states]`.
fn moved_on(mdp: &FiniteMdp, visits: &[f64], policy: &[Vec<f64>]) -> Vec<f64> {
    let mut after = vec![0.0; visits.len()];
    for (s, actions) in mdp.transitions.iter().enumerate() {
        if actions.is_empty() {
            after[s] += visits[s];
        }
        for (outcomes, pi) in actions.iter().zip(&policy[s]) {
            for (next, p) in outcomes {
                after[*next] += visits[s] * pi * p;
            }
        }
    }
    after
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// A way an episode can go.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// How likely it is, with all that chance did.
    pub probability: f64,
    /// State and action of every turn, `[turns]`.
    pub turns: Vec<(usize, usize)>,
    /// Sum of its rewards.
    pub total: f64,
}

/// Every path that can be, one by one: brute force, to hold sums over trajectories against. Paths that differ only in where
/// the last turn led are listed apart. Their number grows exponentially with the horizon.
///
/// * `policy`: as in [`solve`]
pub fn paths(mdp: &FiniteMdp, policy: &[Vec<Vec<f64>>]) -> Vec<Path> {
    let begin = mdp.start.iter().enumerate().filter(|(_, p)| **p > 0.0);
    let mut open: Vec<(usize, Path)> =
        begin.map(|(state, p)| (state, Path { probability: *p, turns: Vec::new(), total: 0.0 })).collect();
    let mut done = Vec::new();
    for states in policy {
        for (state, path) in std::mem::take(&mut open) {
            if mdp.transitions[state].is_empty() {
                done.push(path);
                continue;
            }
            for (a, outcomes) in mdp.transitions[state].iter().enumerate() {
                for (next, p) in outcomes {
                    let probability = path.probability * states[state][a] * p;
                    if probability > 0.0 {
                        let turns = [&path.turns[..], &[(state, a)]].concat();
                        open.push((*next, Path { probability, turns, total: path.total + mdp.rewards[state][a] }));
                    }
                }
            }
        }
    }
    done.extend(open.into_iter().map(|(_, path)| path));
    done
}

/// The policy whose rows are the softmax of rows of logits: of the same shape, at temperature 1.
pub fn softmax(logits: &[Vec<Vec<f64>>]) -> ActionTable {
    let row = |logits: &Vec<f64>| {
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = logits.iter().map(|x| (x - max).exp()).sum();
        logits.iter().map(|x| (x - max).exp() / total).collect()
    };
    logits.iter().map(|states| states.iter().map(row).collect()).collect()
}

/// Sum over turns, `[states][actions]`: the gradient of logits that all turns share. No turns give an empty table.
pub fn over_turns(table: &[Vec<Vec<f64>>]) -> Vec<Vec<f64>> {
    let Some((first, rest)) = table.split_first() else { return Vec::new() };
    let mut sum = first.clone();
    for states in rest {
        for (sum, row) in sum.iter_mut().zip(states) {
            sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sums of a few dozen numbers of order 1 agree to rounding.
    const EXACT: f64 = 1e-12;

    /// State 0: action 0 stays with probability ½ and pays 1, action 1 ends and pays 4. State 1 is the end.
    fn by_hand() -> FiniteMdp {
        FiniteMdp {
            transitions: vec![vec![vec![(0, 0.5), (1, 0.5)], vec![(1, 1.0)]], vec![]],
            rewards: vec![vec![1.0, 4.0], vec![]],
            start: vec![1.0, 0.0],
            horizon: 2,
        }
    }

    #[test]
    fn hand_worked() {
        let solution = solve(&by_hand(), &vec![vec![vec![0.75, 0.25], vec![]]; 2]);
        // V_1 = ¾·1 + ¼·4 = 1.75; Q_0 = (1 + ½·1.75, 4); V_0 = ¾·1.875 + ¼·4 = 2.40625
        assert_eq!(solution.values, [[2.40625, 0.0], [1.75, 0.0], [0.0, 0.0]]);
        assert_eq!(solution.action_values, [[vec![1.875, 4.0], vec![]], [vec![1.0, 4.0], vec![]]]);
        assert_eq!(solution.expected_return, 2.40625);
        // d_1(0) = ¾·½ = 0.375, d_2(0) = 0.375² = 0.140625
        assert_eq!(solution.visits, [[1.0, 0.0], [0.375, 0.625], [0.140625, 0.859375]]);
        assert_eq!(solution.expected_turns, 1.375);
        // A_0 = (−0.53125, 1.59375), A_1 = (−0.75, 2.25); times π, and d_1 = 0.375
        assert_eq!(solution.gradient, [[vec![-0.3984375, 0.3984375], vec![]], [vec![-0.2109375, 0.2109375], vec![]]]);
        assert_eq!(over_turns(&solution.gradient), [vec![-0.609375, 0.609375], vec![]]);
    }

    #[test]
    fn what_is_no_process_is_refused() {
        let broken = |change: fn(&mut FiniteMdp)| {
            let mut mdp = by_hand();
            change(&mut mdp);
            check(&mdp).unwrap_err()
        };
        assert_eq!(check(&by_hand()), Ok(()));
        assert_eq!(broken(|mdp| mdp.start[0] = 0.5), "start: probabilities sum to 0.5");
        assert_eq!(broken(|mdp| mdp.transitions[0][0][0].1 = 0.25), "state 0, action 0: probabilities sum to 0.75");
        assert_eq!(broken(|mdp| mdp.transitions[0][0][0].1 = f64::NAN), "state 0, action 0: NaN is not a probability");
        assert_eq!(broken(|mdp| mdp.transitions[0][1][0].0 = 2), "state 0, action 1: leads to state 2 of 2");
        assert_eq!(broken(|mdp| mdp.rewards[0][1] = f64::INFINITY), "state 0: a reward is inf");
        assert_eq!(broken(|mdp| mdp.rewards[0].truncate(1)), "state 0: 2 actions, but 1 rewards");
        assert_eq!(broken(|mdp| mdp.start.truncate(1)), "2 states, but rewards of 2 and a start over 1");
    }

    #[test]
    #[should_panic(expected = "not a policy: turn 1, state 0: probabilities sum to 0.5")]
    fn what_is_no_policy_is_refused() {
        solve(&by_hand(), &[vec![vec![0.75, 0.25], vec![]], vec![vec![0.25, 0.25], vec![]]]);
    }

    /// A process of 4 states, the last an end, 2 actions with 2 outcomes each, with logits for 3 turns.
    fn process() -> impl Strategy<Value = (FiniteMdp, ActionTable)> {
        let outcome = (0usize..4, 0usize..4, 0.0..=1.0f64);
        let outcomes = prop::collection::vec(outcome, 6);
        let rewards = prop::collection::vec(-2.0..2.0f64, 6);
        let logits = prop::collection::vec(-2.0..2.0f64, 18);
        (outcomes, rewards, 0.0..=1.0f64, logits).prop_map(|(outcomes, rewards, first, logits)| {
            let rows = |x: &[f64]| x.chunks(2).map(<[f64]>::to_vec).chain([vec![]]).collect::<Vec<_>>();
            let outcomes: Vec<Vec<(usize, f64)>> = outcomes.iter().map(|(x, y, p)| vec![(*x, *p), (*y, 1.0 - p)]).collect();
            let mdp = FiniteMdp {
                transitions: outcomes.chunks(2).map(<[_]>::to_vec).chain([vec![]]).collect(),
                rewards: rows(&rewards),
                start: vec![first, 1.0 - first, 0.0, 0.0],
                horizon: 3,
            };
            (mdp, logits.chunks(6).map(rows).collect())
        })
    }

    proptest! {
        #[test]
        fn summing_over_paths_gives_the_same((mdp, logits) in process()) {
            let policy = softmax(&logits);
            let solution = solve(&mdp, &policy);
            let (mut mass, mut expected, mut turns) = (0.0, 0.0, 0.0);
            let mut score: ActionTable = logits.iter().map(|s| s.iter().map(|row| vec![0.0; row.len()]).collect()).collect();
            for Path { probability, turns: path, total } in paths(&mdp, &policy) {
                mass += probability;
                expected += probability * total;
                turns += probability * path.len() as f64;
                // ∇J = Σ_τ p(τ) R(τ) Σ_t ∇ log π(a_t | s_t), the gradient that uses no value.
                for (t, (s, a)) in path.into_iter().enumerate() {
                    for (b, g) in score[t][s].iter_mut().enumerate() {
                        *g += probability * total * (f64::from(u8::from(b == a)) - policy[t][s][b]);
                    }
                }
            }
            prop_assert!((mass - 1.0).abs() < EXACT);
            prop_assert!((expected - solution.expected_return).abs() < EXACT);
            prop_assert!((turns - solution.expected_turns).abs() < EXACT);
            let pairs = score.iter().flatten().flatten().zip(solution.gradient.iter().flatten().flatten());
            for (by_paths, exact) in pairs {
                prop_assert!((by_paths - exact).abs() < EXACT, "{} {}", by_paths, exact);
            }
        }

        #[test]
        fn the_gradient_is_that_of_the_return((mdp, logits) in process(), t in 0usize..3, s in 0usize..3, a in 0usize..2) {
            let solution = solve(&mdp, &softmax(&logits));
            let at = |shift: f64| {
                let mut moved = logits.clone();
                moved[t][s][a] += shift;
                solve(&mdp, &softmax(&moved)).expected_return
            };
            // Central differences: h²/6 · J''' ≈ 2e-9 · J''', rounding 1e-16 / h.
            let h = 1e-4;
            prop_assert!(((at(h) - at(-h)) / (2.0 * h) - solution.gradient[t][s][a]).abs() < 1e-6);
        }

        #[test]
        fn laws((mdp, logits) in process(), shift in -3.0..3.0f64) {
            let policy = softmax(&logits);
            let solution = solve(&mdp, &policy);
            for visits in &solution.visits {
                prop_assert!((visits.iter().sum::<f64>() - 1.0).abs() < EXACT);
            }
            for (t, states) in policy.iter().enumerate() {
                for (s, pi) in states.iter().enumerate() {
                    prop_assert!(dot(pi, &solution.advantages[t][s]).abs() < EXACT);
                    prop_assert!(solution.gradient[t][s].iter().sum::<f64>().abs() < EXACT);
                }
                prop_assert!(solution.visits[t + 1][3] >= solution.visits[t][3] - EXACT, "nothing leaves an end");
            }
            // Equal logits are the uniform policy, whatever their size.
            let flat = vec![vec![vec![shift; 2], vec![shift; 2], vec![shift; 2], vec![]]; 3];
            prop_assert_eq!(softmax(&flat), vec![vec![vec![0.5; 2], vec![0.5; 2], vec![0.5; 2], vec![]]; 3]);
            // Paying more per turn is worth that much per turn played, and moves nothing else.
            let mut paid = mdp.clone();
            paid.rewards.iter_mut().flatten().for_each(|r| *r += shift);
            let paid = solve(&paid, &policy);
            let want = solution.expected_return + shift * solution.expected_turns;
            prop_assert!((paid.expected_return - want).abs() < EXACT);
            prop_assert_eq!(paid.visits, solution.visits);
        }
    }
}
