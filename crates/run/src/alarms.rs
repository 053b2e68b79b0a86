//! Alarms: what usually goes wrong, seen in an update's metrics, and what to change.

use std::collections::BTreeMap;

use ascribe_core::Metrics;
use ascribe_core::experiment::{AlarmAction, AlarmName, AlarmSetting};

/// An alarm that went off.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// Which.
    pub name: &'static str,
    /// Whether it ends the run.
    pub stops: bool,
    /// What was seen, and what to change.
    pub text: String,
}

struct Watch {
    name: AlarmName,
    key: &'static str,
    metric: &'static str,
    /// Goes off at or above (or, for a floor, at or below) this.
    at: f64,
    floor: bool,
    /// Says nothing about actions that an expert gave.
    sampled_only: bool,
    says: &'static str,
    advice: &'static str,
}

impl Watch {
    /// The number it watches; one whose name begins with `/` is added up over the policy nodes.
    fn seen(&self, metrics: &Metrics) -> Option<f64> {
        match self.metric.strip_prefix('/') {
            None => metrics.get(self.metric),
            Some(_) => metrics.0.iter().filter(|(name, _)| name.ends_with(self.metric)).map(|(_, x)| *x).reduce(|a, b| a + b),
        }
    }
}

/// What is watched. `{}` stands for the number seen.
const WATCHES: [Watch; 9] = [
    Watch {
        name: AlarmName::DegenerateGroups,
        key: "degenerate-groups",
        metric: "actor/degenerate_group_rate",
        at: 0.9,
        floor: false,
        sampled_only: true,
        says: "in {} of the groups all members have the same outcome, which teaches a group-relative estimator nothing",
        advice: "a larger `group_size`, tasks of another difficulty, a higher temperature or a partial reward",
    },
    Watch {
        name: AlarmName::NoSignal,
        key: "no-signal",
        metric: "credit/zero_rate",
        at: 1.0,
        floor: false,
        sampled_only: true,
        says: "no advantage of the update differs from 0 (share of zeros: {}): it trains nothing",
        advice: "see that rewards differ within a group (`critic/score/min` and `/max`), that `group_size` is at least 2, and that `reward` reads the column the environment fills",
    },
    Watch {
        name: AlarmName::Malformed,
        key: "malformed",
        metric: "rollout/malformed_rate",
        at: 0.5,
        floor: false,
        sampled_only: true,
        says: "{} of the actions could not be understood",
        advice: "clone an expert for longer, lower the temperature, or decode admissible actions only",
    },
    Watch {
        name: AlarmName::Truncated,
        key: "truncated",
        metric: "rollout/truncated_rate",
        at: 0.95,
        floor: false,
        sampled_only: true,
        says: "{} of the episodes were cut by a limit before they were over",
        advice: "more turns or a larger context window, easier tasks first, or a cost per turn",
    },
    Watch {
        name: AlarmName::Failed,
        key: "failed",
        metric: "rollout/failed_rate",
        at: 0.1,
        floor: false,
        sampled_only: false,
        says: "{} of the episodes broke; they train nothing",
        advice: "the saved trajectories say why, under `end.failed`",
    },
    Watch {
        name: AlarmName::LogprobMismatch,
        key: "logprob-mismatch",
        metric: "rollout/logprob_mismatch/mean",
        at: 0.02,
        floor: false,
        sampled_only: true,
        says: "the sampler's log-probabilities differ from the trainer's by {} on average: importance ratios measure that, not learning",
        advice: "`update.old = \"recomputed\"`, and see that both use the same temperature, support and precision",
    },
    Watch {
        name: AlarmName::EntropyCollapse,
        key: "entropy-collapse",
        metric: "actor/entropy",
        at: 0.005,
        floor: true,
        sampled_only: true,
        says: "the entropy is down to {} nats per token: the policy has stopped exploring",
        advice: "a lower learning rate, an entropy bonus, a wider upper clip, or fewer updates",
    },
    Watch {
        name: AlarmName::NonFinite,
        key: "non-finite",
        metric: "/skipped_steps",
        at: 1.0,
        floor: false,
        sampled_only: false,
        says: "optimiser steps were left out because their gradient was not finite ({})",
        advice: "a lower learning rate, and `update.clip_norm`",
    },
    Watch {
        name: AlarmName::UnusedReward,
        key: "unused-reward",
        metric: "rollout/unused_reward",
        at: f64::MIN_POSITIVE,
        floor: false,
        sampled_only: false,
        says: "the environment paid rewards (in all {}) that no weight reads",
        advice: "`reward.env = 1`, or nothing if that is meant",
    },
];

/// The alarms that an update sets off.
pub fn ring(metrics: &Metrics, settings: &BTreeMap<AlarmName, AlarmSetting>) -> Vec<Alarm> {
    let given = metrics.get("rollout/given_rate").is_some_and(|x| x >= 1.0);
    WATCHES
        .iter()
        .filter_map(|watch| {
            let setting = settings.get(&watch.name);
            let action = setting.map_or(AlarmAction::Warn, |s| s.action);
            let at = setting.and_then(|s| s.at).map_or(watch.at, |at| *at);
            let x = watch.seen(metrics)?;
            // A number that is not finite is past every threshold.
            let off = !x.is_finite() || if watch.floor { x <= at } else { x >= at };
            if !off || action == AlarmAction::Off || given && watch.sampled_only {
                return None;
            }
            let number = if watch.metric.ends_with("_rate") { format!("{:.0} %", 100.0 * x) } else { format!("{x:.3e}") };
            Some(Alarm {
                name: watch.key,
                stops: action == AlarmAction::Stop,
                text: format!("{}. Try: {}", watch.says.replace("{}", &number), watch.advice),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::range::NonNegative;

    fn names(numbers: &[(&str, f64)], settings: &[(AlarmName, Option<f64>, AlarmAction)]) -> Vec<(&'static str, bool)> {
        let mut metrics = Metrics::default();
        numbers.iter().for_each(|(name, x)| metrics.set(*name, *x));
        let settings = settings
            .iter()
            .map(|(name, at, action)| {
                (*name, AlarmSetting { at: at.map(|x| NonNegative::try_from(x).unwrap()), action: *action })
            })
            .collect();
        ring(&metrics, &settings).into_iter().map(|a| (a.name, a.stops)).collect()
    }

    #[test]
    fn alarms_go_off_at_their_threshold() {
        assert_eq!(names(&[("actor/degenerate_group_rate", 0.89), ("actor/entropy", 0.5)], &[]), []);
        assert_eq!(names(&[("actor/degenerate_group_rate", 0.9)], &[]), [("degenerate-groups", false)]);
        assert_eq!(names(&[("actor/entropy", 0.0)], &[]), [("entropy-collapse", false)]);
        assert_eq!(names(&[("rollout/logprob_mismatch/mean", f64::NAN)], &[]), [("logprob-mismatch", false)]);
        assert_eq!(names(&[("a/skipped_steps", 0.0), ("b/skipped_steps", 1.0)], &[]), [("non-finite", false)]);
        assert_eq!(names(&[("a/skipped_steps", 0.0)], &[]), []);
        assert_eq!(names(&[("rollout/unused_reward", 0.0)], &[]), []);
        assert_eq!(names(&[("rollout/unused_reward", 1e-30)], &[]), [("unused-reward", false)]);
    }

    #[test]
    fn settings_move_silence_or_sharpen_them() {
        let degenerate = [("actor/degenerate_group_rate", 0.5)];
        let set = |at, action| [(AlarmName::DegenerateGroups, at, action)];
        assert_eq!(names(&degenerate, &set(Some(0.5), AlarmAction::Stop)), [("degenerate-groups", true)]);
        assert_eq!(names(&degenerate, &set(Some(0.1), AlarmAction::Off)), []);
    }

    #[test]
    fn an_experts_actions_have_no_exploration_to_lose() {
        let expert = [("rollout/given_rate", 1.0), ("credit/zero_rate", 1.0), ("actor/degenerate_group_rate", 1.0)];
        assert_eq!(names(&expert, &[]), []);
        assert_eq!(names(&expert[1..], &[]), [("degenerate-groups", false), ("no-signal", false)]);
    }
}
