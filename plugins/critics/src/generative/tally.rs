//! What a critic did in an update, for people.

use std::collections::BTreeMap;

use ascribe_core::Metrics;
use ascribe_math::{CriticSignals, Deviation, correlation, explained_variance, moments};

use super::verdict::Unread;

/// Counts of one update, over all that was asked in it.
#[derive(Default)]
pub(super) struct Tally {
    /// Answers that were sampled.
    answers: u64,
    unread: BTreeMap<Unread, u64>,
    /// States whose prompt was written, and those of them that did not fit.
    prompts: u64,
    too_long: u64,
    /// Tokens of prompts, and those that stand for words the tokenizer does not know.
    prompt_tokens: u64,
    unknown_tokens: u64,
    /// Values of states, and states that have none.
    values: Vec<f64>,
    without: u64,
    /// Errors of the answers that were learned from; those without a number count as the largest.
    errors: Vec<f64>,
    rewards: Vec<f64>,
    /// Mean estimate and target of each state that has an estimate.
    estimates: Vec<(f64, f64)>,
    /// Distance of each state's mean estimate from its target, the largest return where it has none; and the targets.
    distances: Vec<f64>,
    targets: Vec<f64>,
    /// States that were learned from, and those whose answers were all equally good.
    learned: u64,
    degenerate: u64,
    /// States that a right answer was written for.
    taught: u64,
}

impl Tally {
    pub fn prompt(&mut self, tokens: &[u32], unknown: Option<u32>, fits: bool) {
        self.prompts += 1;
        self.too_long += u64::from(!fits);
        self.prompt_tokens += tokens.len() as u64;
        self.unknown_tokens += tokens.iter().filter(|t| Some(**t) == unknown).count() as u64;
    }

    pub fn answer(&mut self, value: Result<f64, Unread>) {
        self.answers += 1;
        if let Err(reason) = value {
            *self.unread.entry(reason).or_default() += 1;
        }
    }

    pub fn value(&mut self, value: Option<f64>) {
        match value {
            Some(value) => self.values.push(value),
            None => self.without += 1,
        }
    }

    pub fn learned(&mut self, signals: &CriticSignals, target: f64, r_max: f64) {
        self.learned += 1;
        self.distances.push(signals.mean_estimate.map_or(r_max, |mean| (mean - target).abs()));
        self.targets.push(target);
        self.degenerate += u64::from(signals.degenerate);
        self.errors.extend(&signals.errors);
        self.rewards.extend(&signals.rewards);
        self.estimates.extend(signals.mean_estimate.map(|mean| (mean, target)));
    }

    pub fn taught(&mut self) {
        self.taught += 1;
    }

    /// Reports under `critic/NAME/`; what there is nothing to say of is left out.
    pub fn report(&self, name: &str, metrics: &mut Metrics) {
        let share = |part: u64, of: u64| part as f64 / of as f64;
        let failures: u64 = self.unread.iter().filter(|(why, _)| **why != Unread::Truncated).map(|(_, n)| n).sum();
        if self.answers > 0 {
            metrics.set(format!("critic/{name}/answers"), self.answers as f64);
            metrics.set(format!("critic/{name}/parse_failure_rate"), share(failures, self.answers));
            for reason in Unread::ALL.into_iter().filter(|reason| *reason != Unread::Truncated) {
                let of_reason = format!("critic/{name}/parse_failure_rate/{reason}");
                metrics.set(of_reason, share(self.unread.get(&reason).copied().unwrap_or(0), self.answers));
            }
            let cut = self.unread.get(&Unread::Truncated).copied().unwrap_or(0);
            metrics.set(format!("critic/{name}/truncated_rate"), share(cut, self.answers));
        }
        if self.prompts > 0 {
            metrics.set(format!("critic/{name}/prompt_too_long_rate"), share(self.too_long, self.prompts));
            metrics.set(format!("critic/{name}/prompt_tokens_mean"), share(self.prompt_tokens, self.prompts));
            metrics.set(format!("critic/{name}/unknown_word_rate"), share(self.unknown_tokens, self.prompt_tokens.max(1)));
        }
        if !self.values.is_empty() {
            let values = moments(&self.values);
            metrics.set(format!("critic/{name}/value_mean"), values.mean);
            metrics.set(format!("critic/{name}/value_std"), values.deviation(Deviation::Population));
        }
        if !self.values.is_empty() || self.without > 0 {
            metrics.set(format!("critic/{name}/states_without_value"), self.without as f64);
        }
        if self.taught > 0 {
            metrics.set(format!("critic/{name}/taught_states"), self.taught as f64);
        }
        if self.learned > 0 {
            metrics.set(format!("critic/{name}/learned_states"), self.learned as f64);
            metrics.set(format!("critic/{name}/abs_error_mean"), moments(&self.errors).mean);
            metrics.set(format!("critic/{name}/reward_mean"), moments(&self.rewards).mean);
            metrics.set(format!("critic/{name}/target_mean"), moments(&self.targets).mean);
            metrics.set(format!("critic/{name}/degenerate_state_rate"), share(self.degenerate, self.learned));
        }
        if let Some(skill) = skill(&self.distances, &self.targets) {
            metrics.set(format!("critic/{name}/skill"), skill);
        }
        let (estimates, targets): (Vec<f64>, Vec<f64>) = self.estimates.iter().copied().unzip();
        if let Some(correlation) = correlation(&estimates, &targets) {
            metrics.set(format!("critic/{name}/value_corr"), correlation);
        }
        if let Some(explained) = explained_variance(&estimates, &targets) {
            metrics.set(format!("critic/{name}/explained_variance"), explained);
        }
    }
}

/// `1 − MAE/MAE_const` against the constant with the smallest mean absolute error on the same states, their targets' median: 1 is
/// exact, 0 no better than a constant. `None` where all targets are equal: a constant is exact.
fn skill(distances: &[f64], targets: &[f64]) -> Option<f64> {
    let mut sorted = targets.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Any point between the two in the middle is as good.
    let median = *sorted.get(sorted.len() / 2)?;
    let of_constant: f64 = targets.iter().map(|target| (target - median).abs()).sum();
    (of_constant > 0.0).then(|| 1.0 - distances.iter().sum::<f64>() / of_constant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_answer_is_no_parse_failure_and_nothing_is_said_of_nothing() {
        let mut metrics = Metrics::default();
        Tally::default().report("judge", &mut metrics);
        assert!(metrics.0.is_empty());
        let mut tally = Tally::default();
        for value in [Ok(0.5), Err(Unread::Truncated), Err(Unread::Missing), Err(Unread::OutOfRange)] {
            tally.answer(value);
        }
        tally.report("judge", &mut metrics);
        let get = |name: &str| metrics.get(&format!("critic/judge/{name}"));
        assert_eq!((get("parse_failure_rate"), get("truncated_rate")), (Some(0.5), Some(0.25)));
        assert_eq!((get("parse_failure_rate/missing"), get("parse_failure_rate/unclosed")), (Some(0.25), Some(0.0)));
        assert_eq!(get("value_corr"), None);
    }

    #[test]
    fn a_constant_critic_explains_nothing() {
        let mut tally = Tally::default();
        for target in [0.0, 1.0] {
            tally.learned(&ascribe_math::critic_signals(&[Some(0.5)], target, 1.0), target, 1.0);
        }
        let mut metrics = Metrics::default();
        tally.report("judge", &mut metrics);
        assert_eq!(metrics.get("critic/judge/explained_variance"), Some(0.0));
        assert_eq!(metrics.get("critic/judge/abs_error_mean"), Some(0.5));
        assert_eq!(metrics.get("critic/judge/value_corr"), None);
    }

    #[test]
    fn skill_is_measured_against_the_best_constant() {
        // The median of 0, 0, 1 is 0, and errs by 1 in all.
        let targets = [0.0, 0.0, 1.0];
        assert_eq!(skill(&[0.0, 0.0, 0.0], &targets), Some(1.0));
        assert_eq!(skill(&[0.0, 0.0, 1.0], &targets), Some(0.0));
        assert_eq!(skill(&[0.5, 0.5, 0.5], &targets), Some(-0.5));
        assert_eq!(skill(&[0.5, 0.5], &[0.0, 1.0]), Some(0.0));
        assert_eq!(skill(&[0.5, 0.5], &[1.0, 1.0]), None);
        assert_eq!(skill(&[], &[]), None);
        // A state that nobody could read an answer about errs by the largest return, the mean of answers by their mean's distance.
        let mut tally = Tally::default();
        for (values, target) in [(vec![Some(1.0), Some(3.0)], 2.0), (vec![None, None], 0.0), (vec![Some(4.0), None], 4.0)] {
            tally.learned(&ascribe_math::critic_signals(&values, target, 4.0), target, 4.0);
        }
        let mut metrics = Metrics::default();
        tally.report("judge", &mut metrics);
        // distances 0, 4, 0 against |2 − 2| + |0 − 2| + |4 − 2|
        assert_eq!(metrics.get("critic/judge/skill"), Some(0.0));
        assert_eq!(metrics.get("critic/judge/target_mean"), Some(2.0));
    }
}
