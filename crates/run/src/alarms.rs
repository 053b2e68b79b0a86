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

/// The metric of alarms on episodes that broke.
const FAILED_RATE: &str = "rollout/failed_rate";

/// What is watched.
#[derive(Debug)]
pub struct Watch {
    name: AlarmName,
    /// Its name.
    pub key: &'static str,
    /// The metric; of one whose name begins with `/` there may be several.
    pub metric: &'static str,
    /// What of several counts.
    several: Several,
    /// Updates of a phase in which it is not looked at, from its beginning on.
    grace: u32,
    /// Threshold, unless `[alarm.NAME] at` says otherwise.
    pub at: f64,
    /// Whether it goes off at or below the threshold, and not at or above it.
    pub floor: bool,
    /// What it does, unless `[alarm.NAME] action` says otherwise.
    pub action: AlarmAction,
    /// Whether it says nothing about actions that an expert gave.
    pub sampled_only: bool,
    /// What was seen; `{}` stands for the number.
    pub says: &'static str,
    /// What to change.
    pub advice: &'static str,
    /// What else the update's metrics tell: why, and what to change then.
    reason: fn(&Metrics) -> Option<(String, &'static str)>,
}

/// What of several numbers counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Several {
    /// Their sum.
    Sum,
    /// The distance from 0 of the one that is nearest to it.
    NearestToZero,
}

impl Watch {
    /// Name of the metric as documentation has it, and what of several counts, in words.
    pub fn family(&self) -> (String, &'static str) {
        match (self.metric.strip_prefix('/'), self.several) {
            (None, _) => (self.metric.into(), ""),
            (Some(of_node), Several::Sum) => (format!("NODE/{of_node}"), ", added up over the policy nodes,"),
            (Some(of_critic), Several::NearestToZero) => {
                (format!("critic/NAME/{of_critic}"), " of any critic, its sign left out,")
            }
        }
    }

    /// The number it watches.
    fn seen(&self, metrics: &Metrics) -> Option<f64> {
        if !self.metric.starts_with('/') {
            return metrics.get(self.metric);
        }
        let all = metrics.0.iter().filter(|(name, _)| name.ends_with(self.metric)).map(|(_, x)| *x);
        match self.several {
            Several::Sum => all.reduce(|a, b| a + b),
            Several::NearestToZero => all.map(f64::abs).reduce(f64::min),
        }
    }
}

/// What is watched.
pub const WATCHES: [Watch; 14] = [
    Watch {
        name: AlarmName::DegenerateGroups,
        key: "degenerate-groups",
        metric: "credit/degenerate_group_rate",
        several: Several::Sum,
        grace: 0,
        at: 0.9,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: true,
        says: "in {} of the groups every advantage is 0: they teach nothing. To a group-relative estimator, members of equal outcome do not differ",
        advice: "a larger `group_size`, tasks of another difficulty, a higher temperature or a partial reward",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::NoSignal,
        key: "no-signal",
        metric: "credit/zero_rate",
        several: Several::Sum,
        grace: 0,
        at: 1.0,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: true,
        says: "no advantage of the update differs from 0 (share of zeros: {}), so that it trains nothing",
        advice: "see that rewards differ within a group (`critic/score/min` and `/max`), that `group_size` is at least 2, and that `reward` reads the column the environment fills",
        reason: why_no_signal,
    },
    Watch {
        name: AlarmName::Malformed,
        key: "malformed",
        metric: "rollout/malformed_rate",
        several: Several::Sum,
        grace: 0,
        at: 0.5,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: true,
        says: "{} of the actions could not be understood",
        advice: "clone an expert for longer, lower the temperature, or decode admissible actions only",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::Truncated,
        key: "truncated",
        metric: "rollout/truncated_rate",
        several: Several::Sum,
        grace: 0,
        at: 0.95,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: false,
        says: "{} of the episodes were cut by a limit before they were over",
        advice: "more turns or a larger context window, easier tasks first, or a cost per turn",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::Failed,
        key: "failed",
        metric: FAILED_RATE,
        several: Several::Sum,
        grace: 0,
        at: 0.1,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: false,
        says: "{} of the episodes broke; they train nothing",
        advice: "the saved trajectories say why, under `end.failed`",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::LogprobMismatch,
        key: "logprob-mismatch",
        metric: "rollout/logprob_mismatch/mean",
        several: Several::Sum,
        grace: 0,
        at: 0.02,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: true,
        says: "the sampler's log-probabilities differ from the trainer's by {} on average: importance ratios measure that, not learning",
        advice: "`update.old = \"recomputed\"`, and see that both use the same temperature, support and precision",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::EntropyCollapse,
        key: "entropy-collapse",
        metric: "actor/entropy",
        several: Several::Sum,
        grace: 0,
        at: 0.005,
        floor: true,
        action: AlarmAction::Warn,
        sampled_only: true,
        says: "the entropy is down to {} nats per token: the policy has stopped exploring",
        advice: "a lower learning rate, an entropy bonus, a wider upper clip, or fewer updates",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::NonFinite,
        key: "non-finite",
        metric: "/skipped_steps",
        several: Several::Sum,
        grace: 0,
        at: 1.0,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: false,
        says: "optimiser steps were left out because their gradient was not finite ({})",
        advice: "a lower learning rate, and `update.clip_norm`",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::UnusedReward,
        key: "unused-reward",
        metric: "rollout/unused_reward",
        several: Several::Sum,
        grace: 0,
        at: f64::MIN_POSITIVE,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: false,
        says: "the environment paid rewards (in all {}) that no weight reads",
        advice: "`reward.env = 1`, or nothing if that is meant",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::AllFailed,
        key: "all-failed",
        metric: FAILED_RATE,
        several: Several::Sum,
        grace: 0,
        at: 1.0,
        floor: false,
        action: AlarmAction::Stop,
        sampled_only: false,
        says: "{} of the episodes broke: nothing was trained, and nothing would be in the next update either",
        advice: "mend what the reason names; a prompt that does not fit needs a policy with a larger `max_tokens`, or an environment that shows less",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::RewardsCancel,
        key: "rewards-cancel",
        metric: "group/cancelled_rate",
        several: Several::Sum,
        grace: 0,
        at: 0.5,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: true,
        says: "in {} of the groups the members differ in several parts of the reward, and these cancel in its sum",
        advice: "other weights in `reward`, so that the parts pull in one direction or one of them decides",
        reason: which_parts,
    },
    Watch {
        name: AlarmName::AnchorMisses,
        key: "anchor-misses",
        metric: "group/anchor_hit_rate",
        several: Several::Sum,
        grace: 0,
        at: 0.05,
        floor: true,
        action: AlarmAction::Warn,
        sampled_only: true,
        says: "only {} of the turns after the first begin where another turn of their group does: the estimator compares turns that meet, and has next to nothing to compare",
        advice: "observations and state keys without step counters, times or shuffled lists; a larger `group_size`; for `gigpo`, `similarity`; or an estimator without anchors",
        reason: nothing_more,
    },
    Watch {
        name: AlarmName::ConstantCritic,
        key: "constant-critic",
        metric: "/explained_variance",
        several: Several::NearestToZero,
        // A head that has learned nothing yet says 0 of every state.
        grace: 1,
        at: 0.0,
        floor: true,
        action: AlarmAction::Warn,
        sampled_only: false,
        says: "a critic says the same number of every state (explained variance: {}): what reads it learns nothing from it",
        advice: "a higher learning rate or `weight` of its loss, a phase of its own before (`train`), a target that varies, or an estimator without it",
        reason: which_critics,
    },
    Watch {
        name: AlarmName::EmptyUpdate,
        key: "empty-update",
        metric: "/empty_update",
        several: Several::Sum,
        grace: 0,
        at: 1.0,
        floor: false,
        action: AlarmAction::Warn,
        sampled_only: false,
        says: "there was nothing to train on (policy nodes without a row: {})",
        advice: "see whether groups were drawn and thrown away again (`rollout/refill/dropped`: easier tasks, a larger `group_size`), or a transform dropped them all",
        reason: nothing_more,
    },
];

fn nothing_more(_: &Metrics) -> Option<(String, &'static str)> {
    None
}

/// Why no advantage differs from 0, as far as metrics tell.
fn why_no_signal(m: &Metrics) -> Option<(String, &'static str)> {
    let is = |name: &str, x: f64| m.get(name) == Some(x);
    let (why, advice) = if is("credit/trained_rate", 0.0) {
        (
            "credit and transforms left no token in training",
            "see which transform drops them (`group/dropped` and its kin) and whether its bounds fit these tasks, or whether the critic that the estimator reads gave no values",
        )
    } else if m.get("rollout/unused_reward").is_some_and(|x| x > 0.0) {
        ("the environment pays, and no weight in `reward` reads it", "`reward.env = 1`")
    } else if m.get("group/cancelled_rate").is_some_and(|x| x > 0.0) {
        ("parts of the reward differ between members and cancel in its sum", "other weights in `reward`")
    } else if m.get("actor/degenerate_group_rate").is_none() {
        ("no group has two members that were tried, so that none has another to be compared with", "a `group_size` of at least 2")
    } else if is("actor/degenerate_group_rate", 1.0) && is("critic/rewards/min", 0.0) && is("critic/rewards/max", 0.0) {
        ("no episode earned anything", "easier tasks, a partial reward, or an expert to clone first")
    } else if is("actor/degenerate_group_rate", 1.0) {
        (
            "all members of each group have the same outcome",
            "a larger `group_size`, tasks of another difficulty, a higher temperature or a partial reward",
        )
    } else {
        (
            "outcomes differ within groups, and the estimator or a transform gives 0 all the same",
            "see that the estimator compares different trajectories and reads the columns that differ, and that no transform has a weight or a bound of 0",
        )
    };
    Some((why.into(), advice))
}

/// The parts of the reward and how far they spread within groups.
fn which_parts(m: &Metrics) -> Option<(String, &'static str)> {
    let parts: Vec<String> =
        m.0.iter().filter_map(|(name, x)| Some(format!("`{}` {x:.3e}", name.strip_prefix("group/reward_std/")?))).collect();
    Some((format!("mean standard deviations within a group, weighted: {}", parts.join(", ")), ""))
}

/// The critics whose values explain nothing, to the last digit.
fn which_critics(m: &Metrics) -> Option<(String, &'static str)> {
    let silent = m.0.iter().filter(|(_, x)| **x == 0.0).filter_map(|(name, _)| name.strip_suffix("/explained_variance"));
    let names: Vec<String> = silent.map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| (names.join(", "), ""))
}

/// What is watched under a name.
pub fn watch(name: &str) -> Option<&'static Watch> {
    WATCHES.iter().find(|watch| watch.key == name)
}

/// The alarms that an update sets off, the `nth` of its phase, from 1 on. `broken` says why the first episode broke, if one did.
pub fn ring(metrics: &Metrics, nth: u32, settings: &BTreeMap<AlarmName, AlarmSetting>, broken: Option<&str>) -> Vec<Alarm> {
    let given = metrics.get("rollout/given_rate").is_some_and(|x| x >= 1.0);
    WATCHES
        .iter()
        .filter(|watch| nth > watch.grace)
        .filter_map(|watch| {
            let setting = settings.get(&watch.name);
            let action = setting.and_then(|s| s.action).unwrap_or(watch.action);
            let at = setting.and_then(|s| s.at).map_or(watch.at, |at| *at);
            let x = watch.seen(metrics)?;
            // A number that is not finite is past every threshold.
            let off = !x.is_finite() || if watch.floor { x <= at } else { x >= at };
            if !off || action == AlarmAction::Off || given && watch.sampled_only {
                return None;
            }
            let number = if watch.metric.ends_with("_rate") { format!("{:.0} %", 100.0 * x) } else { format!("{x:.3e}") };
            let mut seen = watch.says.replace("{}", &number);
            if let Some(broken) = broken.filter(|_| watch.metric == FAILED_RATE) {
                seen += &format!("; {broken}");
            }
            let text = match (watch.reason)(metrics) {
                None => format!("{seen}. Try: {}", watch.advice),
                Some((why, "")) => format!("{seen} ({why}). Try: {}", watch.advice),
                Some((why, advice)) => format!("{seen}: {why}. Try: {advice}"),
            };
            Some(Alarm { name: watch.key, stops: action == AlarmAction::Stop, text })
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
                (*name, AlarmSetting { at: at.map(|x| NonNegative::try_from(x).unwrap()), action: Some(*action) })
            })
            .collect();
        ring(&metrics, 2, &settings, None).into_iter().map(|a| (a.name, a.stops)).collect()
    }

    #[test]
    fn alarms_go_off_at_their_threshold() {
        assert_eq!(names(&[("credit/degenerate_group_rate", 0.89), ("actor/entropy", 0.5)], &[]), []);
        assert_eq!(names(&[("credit/degenerate_group_rate", 0.9)], &[]), [("degenerate-groups", false)]);
        assert_eq!(names(&[("actor/entropy", 0.0)], &[]), [("entropy-collapse", false)]);
        assert_eq!(names(&[("rollout/logprob_mismatch/mean", f64::NAN)], &[]), [("logprob-mismatch", false)]);
        assert_eq!(names(&[("a/skipped_steps", 0.0), ("b/skipped_steps", 1.0)], &[]), [("non-finite", false)]);
        assert_eq!(names(&[("a/skipped_steps", 0.0)], &[]), []);
        assert_eq!(names(&[("rollout/unused_reward", 0.0)], &[]), []);
        assert_eq!(names(&[("rollout/unused_reward", 1e-30)], &[]), [("unused-reward", false)]);
    }

    #[test]
    fn a_critic_that_says_one_number_is_told_once_it_has_learned() {
        let metrics = |numbers: &[(&str, f64)]| {
            let mut metrics = Metrics::default();
            numbers.iter().for_each(|(name, x)| metrics.set(*name, *x));
            metrics
        };
        let (good, silent) = (("critic/a/explained_variance", -0.2), ("critic/b/explained_variance", 0.0));
        let rung = |numbers: &[(&str, f64)], nth| ring(&metrics(numbers), nth, &BTreeMap::new(), None);
        assert_eq!(rung(&[good], 2), []);
        assert_eq!(rung(&[good, silent], 1), [], "nobody has learned anything before the first update");
        let alarms = rung(&[good, silent], 2);
        assert!(alarms.len() == 1 && alarms[0].text.contains("(`critic/b`)"), "{alarms:?}");
    }

    #[test]
    fn settings_move_silence_or_sharpen_them() {
        let degenerate = [("credit/degenerate_group_rate", 0.5)];
        let set = |at, action| [(AlarmName::DegenerateGroups, at, action)];
        assert_eq!(names(&degenerate, &set(Some(0.5), AlarmAction::Stop)), [("degenerate-groups", true)]);
        assert_eq!(names(&degenerate, &set(Some(0.1), AlarmAction::Off)), []);
    }

    fn text(numbers: &[(&str, f64)]) -> String {
        let mut metrics = Metrics::default();
        numbers.iter().for_each(|(name, x)| metrics.set(*name, *x));
        ring(&metrics, 2, &BTreeMap::new(), None).into_iter().map(|a| a.text).collect()
    }

    #[test]
    fn no_signal_has_a_reason() {
        let differ = ("actor/degenerate_group_rate", 0.5);
        let paid = [("critic/rewards/min", 0.0), ("critic/rewards/max", 1.0)];
        for (numbers, why) in [
            (vec![("credit/trained_rate", 0.0)], "left no token in training"),
            (vec![("group/cancelled_rate", 0.25), differ], "cancel in its sum"),
            (vec![paid[0], paid[1]], "no group has two members"),
            (vec![differ, paid[0], paid[1]], "the estimator or a transform gives 0 all the same"),
        ] {
            let numbers: Vec<(&str, f64)> = numbers.into_iter().chain([("credit/zero_rate", 1.0)]).collect();
            let text = text(&numbers);
            assert!(text.starts_with("no advantage of the update differs from 0") && text.contains(why), "{text}");
        }
        // Here other alarms go off, too.
        let all = [("credit/zero_rate", 1.0), ("actor/degenerate_group_rate", 1.0), paid[0]];
        assert!(text(&[all[0], all[1], all[2], ("critic/rewards/max", 0.0)]).contains("no episode earned anything"));
        assert!(text(&[all[0], all[1], all[2], paid[1]]).contains("all members of each group have the same outcome"));
        assert!(
            text(&[all[0], ("rollout/unused_reward", 2.0)]).contains("no weight in `reward` reads it. Try: `reward.env = 1`")
        );
    }

    #[test]
    fn rewards_that_cancel_are_named() {
        let numbers = [("group/cancelled_rate", 0.5), ("group/reward_std/env", 5.08), ("group/reward_std/format", 5.08)];
        assert_eq!(names(&numbers, &[]), [("rewards-cancel", false)]);
        let want = "in 50 % of the groups the members differ in several parts of the reward, and these cancel in its sum (mean standard \
                    deviations within a group, weighted: `env` 5.080e0, `format` 5.080e0). Try: other weights";
        assert!(text(&numbers).starts_with(want), "{}", text(&numbers));
    }

    #[test]
    fn anchors_that_hardly_meet_are_told() {
        assert_eq!(names(&[("group/anchor_hit_rate", 0.06)], &[]), []);
        assert_eq!(names(&[("group/anchor_hit_rate", 0.05)], &[]), [("anchor-misses", false)]);
    }

    #[test]
    fn an_update_without_an_episode_left_stops_unless_told_otherwise() {
        let broke = [("rollout/failed_rate", 1.0)];
        assert_eq!(names(&broke, &[]), [("failed", false), ("all-failed", true)]);
        assert_eq!(names(&broke, &[(AlarmName::AllFailed, None, AlarmAction::Warn)]), [("failed", false), ("all-failed", false)]);
        let silent = AlarmSetting { at: None, action: None };
        let mut metrics = Metrics::default();
        metrics.set("rollout/failed_rate", 1.0);
        // A table that says nothing about it leaves it as it is.
        let rung = ring(&metrics, 2, &BTreeMap::from([(AlarmName::AllFailed, silent)]), Some("the first on task `x`: too long"));
        let stops = rung.iter().find(|alarm| alarm.stops).unwrap();
        assert!(
            stops.text.starts_with("100 % of the episodes broke")
                && stops.text.contains("; the first on task `x`: too long. Try:")
        );
    }

    #[test]
    fn every_alarm_is_watched_once_under_its_name() {
        let keys: Vec<&str> = WATCHES.iter().map(|watch| watch.key).collect();
        for watch in &WATCHES {
            assert_eq!(serde_json::to_value(watch.name).unwrap(), watch.key);
            assert_eq!(keys.iter().filter(|key| **key == watch.key).count(), 1);
        }
        let named = ascribe_core::schemars::schema_for!(AlarmName).to_value();
        assert_eq!(named["oneOf"].as_array().map(Vec::len), Some(WATCHES.len()));
    }

    #[test]
    fn an_experts_actions_have_no_exploration_to_lose() {
        let expert = [("rollout/given_rate", 1.0), ("credit/zero_rate", 1.0), ("credit/degenerate_group_rate", 1.0)];
        assert_eq!(names(&expert, &[]), []);
        // That a limit cuts all its episodes is as wrong as with any others.
        assert_eq!(names(&[expert[0], ("rollout/truncated_rate", 1.0)], &[]), [("truncated", false)]);
        assert_eq!(names(&expert[1..], &[]), [("degenerate-groups", false), ("no-signal", false)]);
    }
}
