//! Keeps the groups whose success rate lies in a window; the others do not train.
//!
//! A group stays, whole, where `low ≤ (trajectories that solved the task) / (trajectories) ≤ high`.
//!
//! Cui et al. 2025, PRIME, arXiv 2502.01456 (online prompt filtering; their script keeps 0.2..=0.8). Reductions: the
//! window 0..=1 keeps all; `drop-degenerate` asks for different outcomes instead.
//! Edge cases: paths that were not tried do not count; a group of only such paths has no rate and stays. What was cut
//! off did not succeed.

use ascribe_core::range::Unit;
use ascribe_core::{Batch, Credit, CreditTransform, End, Metrics, Now, Seeds, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::untrain;

/// `[[transform]] accuracy-window = { low = 0.2, high = 0.8 }`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, try_from = "Window")]
pub struct AccuracyWindow {
    low: f64,
    high: f64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Window {
    /// Smallest success rate that trains, in 0..=1. PRIME: 0.2.
    #[serde(default = "paper_low")]
    low: Unit,
    /// Largest success rate that trains, in 0..=1, not below `low`. PRIME: 0.8.
    #[serde(default = "paper_high")]
    high: Unit,
}
impl TryFrom<Window> for AccuracyWindow {
    type Error = String;
    fn try_from(window: Window) -> Result<Self, String> {
        let (low, high) = (*window.low, *window.high);
        if low <= high { Ok(Self { low, high }) } else { Err(format!("`low` is {low} and must not be above `high`, {high}")) }
    }
}

fn paper_low() -> Unit {
    Unit::try_from(0.2).expect("in range")
}
fn paper_high() -> Unit {
    Unit::try_from(0.8).expect("in range")
}

plugin! {
    Transform "accuracy-window" {
        summary: "Keeps groups whose success rate lies in a window and takes the others out of training.",
        source: "Cui et al. 2025, PRIME, arXiv 2502.01456",
        when: "Where success is a fact of the episode's end, and tasks are of uneven difficulty.",
        example: "",
        module: "accuracy_window.rs",
    }
    impl CreditTransform for AccuracyWindow {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let mut dropped = 0;
            for (group, credit) in batch.groups().zip(credit) {
                let ends = group.trajectories().map(|path| &path.leaf().end);
                let tried: Vec<bool> = ends.filter(|end| **end != End::Untried).map(End::success).collect();
                let rate = tried.iter().filter(|success| **success).count() as f64 / tried.len() as f64;
                if !tried.is_empty() && !(self.low..=self.high).contains(&rate) {
                    untrain(credit);
                    dropped += 1;
                }
            }
            let mut metrics = Metrics::default();
            metrics.set("group/dropped_by_accuracy", f64::from(dropped));
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{gone, outcomes};

    fn check(low: f64, high: f64, groups: &[&[f32]], want: &[bool]) {
        let (batch, mut credit) = outcomes(groups);
        let metrics = AccuracyWindow { low, high }.apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(gone(&credit), want);
        assert_eq!(metrics.get("group/dropped_by_accuracy"), Some(want.iter().filter(|g| **g).count() as f64));
    }

    #[test]
    fn the_window_includes_its_ends() {
        let groups: &[&[f32]] = &[&[0.0, 0.0], &[1.0, 0.0], &[1.0, 0.0, 0.0, 0.0], &[1.0, 1.0]];
        check(0.25, 0.5, groups, &[true, false, false, true]);
        check(0.3, 1.0, groups, &[true, false, true, false]);
        check(0.0, 1.0, groups, &[false; 4]);
        check(0.2, 0.8, &[], &[]);
    }

    #[test]
    fn a_window_has_an_inside() {
        let unit = |x| Unit::try_from(x).unwrap();
        let window = AccuracyWindow::try_from(Window { low: unit(0.9), high: unit(0.8) });
        assert_eq!(window.unwrap_err(), "`low` is 0.9 and must not be above `high`, 0.8");
    }
}
