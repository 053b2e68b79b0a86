//! Schedules: any number of an experiment may change over updates.
//!
//! Where TOML has a table in place of a number, `config` lifts it out and the plugin is rebuilt with the schedule's
//! number each update. So a plugin's field stays a plain number, and every number can be scheduled.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::now::Now;
use crate::plugin;
use crate::range::{Count, Finite};
use crate::registry::slot_schema;

/// A number over updates.
#[typetag::serde]
pub trait Schedule: fmt::Debug + Send + Sync {
    /// The number for the update that `now` is about to make. `memory` starts empty, is the loop's, and is saved with
    /// the run.
    fn at(&self, now: &Now, memory: &mut Vec<f64>) -> f64;

    /// Smallest and largest number it can give: `check` holds them against the range of the number it stands for.
    fn bounds(&self) -> (f64, f64);
}
slot_schema!(Schedule => "schedule");

/// The same number throughout.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The number.
    pub value: Finite,
}
plugin! {
    Schedule "constant" {
        summary: "The same number throughout.",
        source: "",
        when: "To take a schedule back without changing the shape of a file.",
        example: "value = 1.0",
    }
    impl Schedule for Constant {
        fn at(&self, _now: &Now, _memory: &mut Vec<f64>) -> f64 {
            *self.value
        }
        fn bounds(&self) -> (f64, f64) {
            (*self.value, *self.value)
        }
    }
}

/// A straight line from one number to another, then constant. Counts updates of the phase.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ramp {
    /// The number at the start.
    pub from: Finite,
    /// The number at the end.
    pub to: Finite,
    /// Updates from start to end.
    pub updates: Count,
    /// Updates before it starts.
    #[serde(default = "no_updates")]
    pub after: Count,
}
fn no_updates() -> Count {
    Count(0)
}
plugin! {
    Schedule "ramp" {
        summary: "A straight line from one number to another, then constant.",
        source: "",
        when: "Warm-up and decay of a learning rate, a curriculum's weights.",
        example: "from = 0.0\nto = 1.0\nupdates = 100",
    }
    impl Schedule for Ramp {
        fn at(&self, now: &Now, _memory: &mut Vec<f64>) -> f64 {
            let done = u64::from(now.phase_update).saturating_sub(self.after.0) as f64;
            let share = (done / self.updates.0.max(1) as f64).min(1.0);
            *self.from + (*self.to - *self.from) * share
        }
        fn bounds(&self) -> (f64, f64) {
            (self.from.min(*self.to), self.from.max(*self.to))
        }
    }
}

/// One number for some updates of the phase, then another.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CutOff {
    /// The number before.
    pub value: Finite,
    /// Updates it holds for.
    pub updates: Count,
    /// The number afterwards.
    pub then: Finite,
}
plugin! {
    Schedule "cut-off" {
        summary: "One number for some updates, then another.",
        source: "",
        when: "A bonus that must be gone before results are read.",
        example: "value = 1.0\nupdates = 100\nthen = 0.0",
    }
    impl Schedule for CutOff {
        fn at(&self, now: &Now, _memory: &mut Vec<f64>) -> f64 {
            if u64::from(now.phase_update) < self.updates.0 { *self.value } else { *self.then }
        }
        fn bounds(&self) -> (f64, f64) {
            (self.value.min(*self.then), self.value.max(*self.then))
        }
    }
}

/// Follows a metric: `x ← clamp(x · exp(gain · (metric − target)))`, once an update.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    /// The metric, e.g. `actor/entropy`.
    pub metric: String,
    /// The value it should have.
    pub target: Finite,
    /// The number at the start, not 0.
    pub initial: Finite,
    /// How fast it follows. Positive: a metric above its target raises the number (a KL coefficient); negative: it
    /// lowers it (an entropy bonus).
    pub gain: Finite,
    /// Smallest number.
    pub min: Finite,
    /// Largest number.
    pub max: Finite,
}
plugin! {
    Schedule "feedback" {
        summary: "Follows a metric of the last update, multiplicatively.",
        source: "Ziegler et al. 2019, arXiv 1909.08593, §2.2 (adaptive KL coefficient)",
        when: "KL coefficients and entropy bonuses that should hold a metric at a target.",
        example: "metric = \"actor/entropy\"\ntarget = 0.5\ninitial = 0.01\ngain = -0.1\nmin = 0.0001\nmax = 1.0",
    }
    impl Schedule for Feedback {
        fn at(&self, now: &Now, memory: &mut Vec<f64>) -> f64 {
            let last = memory.first().copied().unwrap_or(*self.initial);
            // Without the metric (the first update, or one that did not train) it stays where it is.
            let error = now.metrics.get(&self.metric).filter(|x| x.is_finite()).map_or(0.0, |x| x - *self.target);
            let next = (last * (*self.gain * error).exp()).max(*self.min).min(*self.max);
            memory.clear();
            memory.push(next);
            next
        }
        fn bounds(&self) -> (f64, f64) {
            (*self.min, *self.max)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(toml: &str, updates: u32) -> Vec<f64> {
        let schedule: crate::slot::Slot<dyn Schedule> = toml::from_str(toml).unwrap();
        let mut memory = Vec::new();
        (0..updates).map(|phase_update| schedule.at(&Now { phase_update, ..Now::default() }, &mut memory)).collect()
    }

    #[test]
    fn schedules_give_the_numbers_they_say() {
        assert_eq!(numbers("constant.value = 2", 2), [2.0, 2.0]);
        assert_eq!(numbers("ramp = { from = 1, to = 0, updates = 2, after = 1 }", 5), [1.0, 1.0, 0.5, 0.0, 0.0]);
        assert_eq!(numbers("cut-off = { value = 1, updates = 2, then = 0 }", 3), [1.0, 1.0, 0.0]);
    }

    #[test]
    fn feedback_follows_its_metric_and_stays_in_bounds() {
        let f = Feedback {
            metric: "kl".into(),
            target: Finite::try_from(0.0).unwrap(),
            initial: Finite::try_from(1.0).unwrap(),
            gain: Finite::try_from(1.0).unwrap(),
            min: Finite::try_from(0.5).unwrap(),
            max: Finite::try_from(2.0).unwrap(),
        };
        let mut now = Now::default();
        let mut memory = Vec::new();
        assert_eq!(f.at(&now, &mut memory), 1.0);
        now.metrics.set("kl", 2f64.ln() / 2.0);
        assert!((f.at(&now, &mut memory) - 2f64.sqrt()).abs() < 1e-12);
        now.metrics.set("kl", 9.0);
        assert_eq!(f.at(&now, &mut memory), 2.0);
        now.metrics.set("kl", f64::NAN);
        assert_eq!(f.at(&now, &mut memory), 2.0);
        now.metrics.set("kl", -9.0);
        assert_eq!(f.at(&now, &mut memory), 0.5);
    }
}
