//! What samples of a critic that answers in words are told about their error.

use crate::spread::moments;

/// Advantages up to here count as none.
pub const NOTHING: f64 = 1e-12;

/// What the target says to the samples of a generative critic.
#[derive(Clone, Debug, PartialEq)]
pub struct CriticSignals {
    /// `−|V̂ − G| / R_max`; −1 for a sample that gave no number. `[samples]`
    pub rewards: Vec<f64>,
    /// Rewards minus their mean, `[samples]`.
    pub advantages: Vec<f64>,
    /// Distance from the target; `R_max` where there is no number. `[samples]`
    pub errors: Vec<f64>,
    /// Whether no sample differs from the mean, also without samples.
    pub degenerate: bool,
    /// Samples without a number.
    pub parse_failures: usize,
    /// Mean of the numbers given; `None` if there is none.
    pub mean_estimate: Option<f64>,
}

/// Signals for a generative critic.
///
/// * `values`: `[samples]`, estimates of one state; `None` where no number could be read
/// * `target`: what they should have been; not clamped, it may exceed `r_max`
/// * `r_max`: largest return possible from there, positive
///
/// A failure costs as much as an error of `r_max`; with a target beyond it a number that is worse still can lose to it.
/// Dots team 2026, "TEMPO" (blog); KMnO4-zx/agentic-rl-lab `09-tempo/tempo.py`.
pub fn critic_signals(values: &[Option<f64>], target: f64, r_max: f64) -> CriticSignals {
    let errors: Vec<f64> = values.iter().map(|v| v.map_or(r_max, |v| (v - target).abs())).collect();
    let rewards: Vec<f64> = errors.iter().map(|error| -error / r_max).collect();
    let mean = moments(&rewards).mean;
    let advantages: Vec<f64> = rewards.iter().map(|r| r - mean).collect();
    let parsed: Vec<f64> = values.iter().copied().flatten().collect();
    CriticSignals {
        degenerate: advantages.iter().all(|a| a.abs() <= NOTHING),
        parse_failures: values.len() - parsed.len(),
        mean_estimate: (!parsed.is_empty()).then(|| moments(&parsed).mean),
        rewards,
        advantages,
        errors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_costs_as_much_as_the_largest_error() {
        let signals = critic_signals(&[Some(1.0), None], 2.0, 4.0);
        assert_eq!((signals.rewards, signals.advantages), (vec![-0.25, -1.0], vec![0.375, -0.375]));
        assert_eq!((signals.errors, signals.parse_failures, signals.mean_estimate), (vec![1.0, 4.0], 1, Some(1.0)));
        let none = critic_signals(&[], 0.5, 1.0);
        assert!(none.degenerate && none.mean_estimate.is_none());
    }

    #[test]
    fn traps_e5_by_hand() {
        // V = ½, 0.4, nothing, 0.9 and G = 0.485: rewards −0.015, −0.085, −1, −0.415, whose mean is −0.37875
        let signals = critic_signals(&[Some(0.5), Some(0.4), None, Some(0.9)], 0.485, 1.0);
        let near = |got: &[f64], want: [f64; 4]| got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-12);
        assert!(near(&signals.rewards, [-0.015, -0.085, -1.0, -0.415]), "{:?}", signals.rewards);
        assert!(near(&signals.advantages, [0.36375, 0.29375, -0.62125, -0.03625]), "{:?}", signals.advantages);
    }
}
