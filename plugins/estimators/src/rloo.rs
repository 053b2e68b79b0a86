//! Leave-one-out: a trajectory's outcome against the mean of its siblings, the same for each of its turns.
//!
//! `A_i = R_i − Σ_{j≠i} R_j / (G − 1)` for every turn of trajectory i; a shared turn gets the mean over its leaves.
//!
//! Ahmadian et al. 2024, "Back to Basics", arXiv 2402.14740, eq. 7; Kool et al. 2019. Official numbers from verl
//! (`compute_rloo_outcome_advantage` and its vectorised form). Reductions: `G/(G − 1)` times GRPO without its division.
//! Edge cases: equal outcomes give exactly 0. A group of one gives 0. Untried paths are not trained and move no baseline.
//! Where official code differs: verl's loop keeps the raw outcome of a group of one (`mode = "official"`; its own vectorised
//! form gives 0), and verl-agent's fork counts environment steps as members by default, so that a turn's baseline holds its
//! own trajectory's other turns (`over = "turns"`).

use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::{Measure, leave_one_out, leave_one_out_measure, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{Mode, Over, from_outcomes, from_outcomes_of_turns};

/// `[estimator.rloo]`
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rloo {
    /// Where paper and verl differ: a group of one.
    #[serde(default)]
    pub mode: Mode,
    /// What the baseline is over: `trajectories`, or `turns` as in verl-agent.
    #[serde(default)]
    pub over: Over,
}

plugin! {
    Estimator "rloo" {
        summary: "A trajectory's outcome against the mean of the others in its group.",
        source: "Ahmadian et al. 2024, Back to Basics, arXiv 2402.14740, eq. 7; verl compute_rloo_outcome_advantage",
        when: "An unbiased group baseline, also for groups of two. Unlike GRPO it does not weigh easy and hard tasks alike.",
        example: "",
        module: "rloo.rs",
    }
    impl AdvantageEstimator for Rloo {
        fn needs(&self) -> Vec<Need> {
            self.mode.needs()
        }

        fn laws(&self) -> Vec<Law> {
            let sums = (self.over == Over::Trajectories).then_some(Law::SumToZero);
            [Law::Shift, Law::Scale, Law::NoSpreadNoCredit, Law::Ascent].into_iter().chain(sums).collect()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(match self.over {
                Over::Trajectories => from_outcomes(group, |outcomes, _| self.advantages(outcomes)),
                Over::Turns => from_outcomes_of_turns(group, |entries| self.measure(entries)),
            })
        }
    }
}

impl Rloo {
    /// Outcomes of one group become advantages in place, `[paths]`.
    pub fn advantages(&self, outcomes: &mut [f64]) {
        match (outcomes, self.mode) {
            ([alone], Mode::Paper) => *alone = 0.0,
            (group, _) => leave_one_out(group),
        }
    }

    /// What outcomes are told in when the baseline is over these `entries`, `[paths]` or `[turns]`.
    pub fn measure(&self, entries: &[f64]) -> Measure {
        match (entries, self.mode) {
            ([alone], Mode::Paper) => Measure { origin: *alone, unit: f64::INFINITY },
            (group, _) => leave_one_out_measure(&moments(group)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, credit, turn};
    use ascribe_core::End;

    const PAPER: Rloo = Rloo { mode: Mode::Paper, over: Over::Trajectories };

    #[test]
    fn each_is_compared_with_the_others() {
        let three = chains(&[(&[0.0, 1.0], WON), (&[0.0], LOST), (&[0.5], LOST)]);
        assert_eq!(credit(&PAPER, &three), [0.75, 0.75, -0.75, 0.0]);
    }

    #[test]
    fn equal_outcomes_give_exactly_zero() {
        let same = chains(&[(&[0.1], LOST), (&[0.1], LOST), (&[0.1], LOST)]);
        assert_eq!(credit(&PAPER, &same), [0.0; 3]);
    }

    #[test]
    fn a_group_of_one_is_zero_or_raw() {
        assert_eq!(credit(&PAPER, &chains(&[(&[2.0], WON)])), [0.0]);
        assert_eq!(credit(&Rloo { mode: Mode::Official, ..PAPER }, &chains(&[(&[2.0], WON)])), [2.0]);
    }

    #[test]
    fn a_shared_turn_gets_the_mean_over_its_leaves() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0)], &[(1, WON), (2, LOST)]);
        assert_eq!(credit(&PAPER, &tree), [0.0, 1.0, -1.0]);
    }

    #[test]
    fn over_turns_the_others_are_turns() {
        let two = chains(&[(&[0.0, 0.0, 3.0], WON), (&[0.0], LOST)]);
        // each 3 against 3, 3, 0; the 0 against three 3
        assert_eq!(credit(&Rloo { over: Over::Turns, ..PAPER }, &two), [1.0, 1.0, 1.0, -3.0]);
    }

    #[test]
    fn what_was_not_tried_moves_no_baseline() {
        let untried = chains(&[(&[1.0], WON), (&[0.0], LOST), (&[0.0], End::Untried)]);
        let credit = PAPER.estimate(untried.group(0), &Now::default()).unwrap();
        assert_eq!(credit.turns, [Some(1.0), Some(-1.0), None]);
    }
}
