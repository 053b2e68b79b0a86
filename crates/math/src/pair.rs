//! Prefix-aware internal rewards: a score per turn becomes a reward per turn, and a group's rewards become advantages.
//!
//! Kim et al. 2026, "PAIR: Prefix-Aware Internal Reward Model for Multi-Turn Agent Optimization", arXiv 2605.17877;
//! constants from the authors' code (wonjoong-kim/PAIR).

use crate::{Deviation, moments};

/// Log-odds are taken of probabilities that keep this distance from 0 and 1.
const ODDS_MARGIN: f64 = 1e-6;
/// Scores are softened by halving their log-odds, …
const SOFTENING: f64 = 2.0;
/// … and keep this distance from 0 and 1, so that a group keeps a spread.
const SOFT_MARGIN: f64 = 0.05;
/// Totals that spread less are only centred.
const LEAST_DEVIATION: f64 = 1e-8;

fn log_odds(p: f64) -> f64 {
    let p = p.clamp(ODDS_MARGIN, 1.0 - ODDS_MARGIN);
    (p / (1.0 - p)).ln()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `soft(s) = clip(σ(logit(s)/2), 0.05, 0.95)` per turn.
///
/// * `scores`: `[turns]`, probabilities that a turn is clean
///
/// Returns `[turns]`, in 0.05..=0.95.
pub fn soften(scores: &[f64]) -> Vec<f64> {
    scores.iter().map(|s| sigmoid(log_odds(*s) / SOFTENING).clamp(SOFT_MARGIN, 1.0 - SOFT_MARGIN)).collect()
}

/// `r_t = σ(logit(s_t) + α (s_t − mean_{u<t} s_u))`, `r_0 = s_0`: a turn that is better than those before it earns more.
///
/// * `scores`: `[turns]`, softened, in 0..=1
/// * `alpha`: weight of the momentum; 5 in the paper, 0 gives the scores themselves
///
/// Returns `[turns]`, in 0..=1.
pub fn momentum_rewards(scores: &[f64], alpha: f64) -> Vec<f64> {
    let mut before = 0.0;
    let reward = |(t, s): (usize, &f64)| {
        let reward = if t == 0 { *s } else { sigmoid(log_odds(*s) + alpha * (s - before / t as f64)) };
        before += s;
        reward
    };
    scores.iter().enumerate().map(reward).collect()
}

/// `A_{i,t} = r_{i,t} − mean_t r_{i,·} + z_i`, with `z_i` the standardised total of trajectory i in its group.
///
/// * `rewards`: `[trajectories][turns]`
///
/// Returns `[trajectories][turns]`. The deviation is that of the population, without ε; totals that spread by 1e-8 or less
/// are only centred. The outcome takes no part. Totals favour long trajectories.
pub fn pair_advantages(rewards: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let totals: Vec<f64> = rewards.iter().map(|r| r.iter().sum()).collect();
    let group = moments(&totals);
    let deviation = group.deviation(Deviation::Population);
    let divisor = if deviation > LEAST_DEVIATION { deviation } else { 1.0 };
    let of_path = |(rewards, total): (&Vec<f64>, &f64)| {
        let (own, z) = (moments(rewards).mean, (total - group.mean) / divisor);
        rewards.iter().map(|r| r - own + z).collect()
    };
    rewards.iter().zip(&totals).map(of_path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hand_worked() {
        // logit(0.9) / 2 = ln 3, σ(ln 3) = 3/4; certain scores end at the margin
        let soft = soften(&[0.5, 0.9, 1.0, 0.0]);
        assert!((soft[1] - 0.75).abs() < 1e-12 && soft[0] == 0.5 && soft[2..] == [0.95, 0.05], "{soft:?}");
        // logit(¾) + ln 3·(¾ − ½)·4 = 2 ln 3, σ = 9/10
        let r = momentum_rewards(&[0.5, 0.75], 4.0 * 3f64.ln());
        assert!(r[0] == 0.5 && (r[1] - 0.9).abs() < 1e-12, "{r:?}");
        // totals 1 and 0: mean ½, deviation ½
        let a = pair_advantages(&[vec![0.75, 0.25], vec![0.0]]);
        assert_eq!(a, [vec![1.25, 0.75], vec![-1.0]]);
    }

    #[test]
    fn equal_totals_and_no_turns_are_harmless() {
        assert_eq!(pair_advantages(&[vec![0.5], vec![0.5]]), [vec![0.0], vec![0.0]]);
        assert_eq!(pair_advantages(&[vec![0.5]]), [vec![0.0]]);
        assert_eq!(pair_advantages(&[vec![], vec![1.0]])[0], Vec::<f64>::new());
        assert_eq!(momentum_rewards(&[], 5.0), Vec::<f64>::new());
    }

    proptest! {
        #[test]
        fn rewards_are_probabilities(s in prop::collection::vec(0.0..=1.0f64, 1..12), alpha in 0.0..9.0f64) {
            let soft = soften(&s);
            let r = momentum_rewards(&soft, alpha);
            prop_assert!(r.iter().all(|r| (0.0..=1.0).contains(r)), "{r:?}");
            let none = momentum_rewards(&soft, 0.0);
            prop_assert!(none.iter().zip(&soft).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
