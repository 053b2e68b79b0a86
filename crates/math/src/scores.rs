//! Scores of turns: judgements become numbers, and a trajectory's scores become rewards.

use crate::Float;

/// `r_t = p_t e^{−p_t/T} / Σ_u e^{−p_u/T}`: each turn's share of a soft minimum, so that the sum is close to `min_t p_t`.
///
/// * `scores`: `[turns]`, e.g. `P(+) − P(−)` in −1..=1
/// * `temperature`: T, positive; 0.1 in the paper. `T → ∞` gives `p_t / turns`, `T → 0` the minimum alone
///
/// Returns `[turns]`. A sum of scores pays for every further turn; a minimum does not. Cheng et al. 2025, "Stop Summation:
/// Min-Form Credit Assignment Is All Process Reward Model Needs for Reasoning" (PURE), arXiv 2504.15275;
/// CJReinforce/PURE `turn_process_reward_logits_to_reward`.
pub fn soft_min_rewards(scores: &[f64], temperature: f64) -> Vec<f64> {
    let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
    // Relative to the least score every exponent is at most 0, and one of them is 0: the sum is at least 1.
    let weights: Vec<f64> = scores.iter().map(|p| ((least - p) / temperature).exp()).collect();
    let sum: f64 = weights.iter().sum();
    scores.iter().zip(weights).map(|(p, w)| p * w / sum).collect()
}

/// Mean over a checklist of `P(yes) + ½ P(in progress)`, in 0..=1; `None` for an empty checklist.
///
/// * `items`: per item the probabilities of *yes* and *in progress* among the three labels
///
/// Chae et al. 2025, "Web-Shepherd", arXiv 2505.15277; kyle8581/Web-Shepherd `get_score`. The authors' code gives 0 for an
/// empty checklist, which cannot be told from a step that does nothing.
pub fn checklist_score(items: &[(f64, f64)]) -> Option<f64> {
    let sum: f64 = items.iter().map(|(yes, in_progress)| yes + 0.5 * in_progress).sum();
    (!items.is_empty()).then(|| sum / items.len() as f64)
}

/// How an answer's likelihood is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerScale {
    /// The geometric mean of its tokens' probabilities, in 0..=1.
    Probability,
    /// Its logarithm, in nats.
    LogProbability,
}

/// How likely an answer is, per token: `exp(mean log p)`, or `mean log p`.
///
/// * `logprobs`: of the answer's tokens under teacher forcing, at least one
///
/// A turn's information gain is the value after it minus the value before it. Wang et al. 2025 (IGPO), arXiv 2510.14967;
/// GuoqingWang1/IGPO `generation.py`.
pub fn answer_value<T: Float>(logprobs: &[T], scale: AnswerScale) -> f64 {
    let mean = logprobs.iter().map(|x| x.as_()).sum::<f64>() / logprobs.len() as f64;
    match scale {
        AnswerScale::Probability => mean.exp(),
        AnswerScale::LogProbability => mean,
    }
}

/// What a trajectory earns for saying truly whether it solved its task: `λ` if report and outcome agree, else 0.
///
/// * `report`: what it said; `None` where that could not be read, which never counts as agreeing
/// * `bonus`: λ; 0.1 for the first two thirds of training, then 0, in the paper. It must lie well below the gap between
///   outcomes: a sure failure that is honestly reported earns it too
///
/// RefGRPO, arXiv 2606.14211: the bonus is symmetric, an honest "wrong" on a wrong answer earns it as well.
pub fn self_report_bonus(solved: bool, report: Option<bool>, bonus: f64) -> f64 {
    if report == Some(solved) { bonus } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hand_worked() {
        // T = 1/ln 2: weights 1 and ½ of scores 0 and 1, so r = (0, 1·½ / 1½)
        let r = soft_min_rewards(&[0.0, 1.0], 1.0 / std::f64::consts::LN_2);
        assert!(r[0] == 0.0 && (r[1] - 1.0 / 3.0).abs() < 1e-12, "{r:?}");
        assert_eq!(soft_min_rewards(&[], 0.1), Vec::<f64>::new());
        assert_eq!(checklist_score(&[(1.0, 0.0), (0.0, 1.0)]), Some(0.75));
        assert_eq!(checklist_score(&[]), None);
    }

    #[test]
    fn only_a_true_report_that_can_be_read_earns_the_bonus() {
        let earned = |solved, report| self_report_bonus(solved, report, 0.5);
        assert_eq!((earned(true, Some(true)), earned(false, Some(false))), (0.5, 0.5));
        assert_eq!((earned(true, Some(false)), earned(false, Some(true))), (0.0, 0.0));
        assert_eq!((earned(true, None), earned(false, None)), (0.0, 0.0));
    }

    proptest! {
        #[test]
        fn soft_minimum_lies_between_minimum_and_mean(p in prop::collection::vec(-1.0..=1.0f64, 1..20), t in 1e-3..1e3f64) {
            let sum: f64 = soft_min_rewards(&p, t).iter().sum();
            let least = p.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = p.iter().sum::<f64>() / p.len() as f64;
            prop_assert!(sum >= least - 1e-9 && sum <= mean + 1e-9, "{least} {sum} {mean}");
        }
    }
}
