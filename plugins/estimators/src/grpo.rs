//! Group-relative advantage: a trajectory's outcome against its siblings', the same for each of its turns.
//!
//! `A_i = (R_i − mean_g R) / (std_g R + ε)` for every turn of trajectory i; a shared turn gets the mean over its leaves.
//!
//! Shao et al. 2024, "DeepSeekMath", arXiv 2402.03300, §4.1.2; official numbers from verl
//! (`compute_grpo_outcome_advantage`: sample standard deviation, ε = 1e-6). Reductions: without the division it is
//! `(G − 1)/G` times leave-one-out (RLOO), and Dr. GRPO's advantage (arXiv 2503.20783).
//! Edge cases: equal outcomes give exactly 0. A group of one gives 0. Untried paths (they have no return) are not trained
//! and move no baseline.
//! Where official code differs: verl keeps the raw outcome of a group of one (`mode = "official"`), and where outcomes are
//! equal it divides the rounding noise of its `f32` mean by ε; verl-agent's fork pools one entry per environment step by
//! default, so that long trajectories weigh more (`over = "turns"`).

use ascribe_core::range::NonNegative;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin, preset};
use ascribe_math::{Deviation, Measure, Singleton, Standardise, moments, standardise};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{Mode, Over, from_outcomes, from_outcomes_of_turns, verl_epsilon, yes};

/// `[estimator.grpo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grpo {
    /// Whether to divide by the group's standard deviation; Dr. GRPO does not.
    #[serde(default = "yes")]
    pub std: bool,
    /// Added to the standard deviation, 0 or more. verl: 1e-6.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
    /// Where paper and verl differ: a group of one.
    #[serde(default)]
    pub mode: Mode,
    /// What mean and deviation are over: `trajectories`, or `turns` as in verl-agent.
    #[serde(default)]
    pub over: Over,
}

plugin! {
    Estimator "grpo" {
        summary: "A trajectory's outcome against the mean of its group, in standard deviations.",
        source: "Shao et al. 2024, DeepSeekMath, arXiv 2402.03300, §4.1.2; verl compute_grpo_outcome_advantage",
        when: "The baseline of the field: one outcome per trajectory, groups of four or more. It says nothing about which turn earned it.",
        example: "",
        module: "grpo.rs",
    }
    impl AdvantageEstimator for Grpo {
        fn needs(&self) -> Vec<Need> {
            self.mode.needs()
        }

        fn laws(&self) -> Vec<Law> {
            let scale = if self.std { Law::ScaleFree } else { Law::Scale };
            let sums = (self.over == Over::Trajectories).then_some(Law::SumToZero);
            [Law::Shift, scale, Law::NoSpreadNoCredit, Law::Ascent].into_iter().chain(sums).collect()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(match self.over {
                Over::Trajectories => from_outcomes(group, |outcomes, _| self.advantages(outcomes)),
                Over::Turns => from_outcomes_of_turns(group, |entries| self.measure(entries)),
            })
        }
    }
}

impl Grpo {
    /// Outcomes of one group become advantages in place, `[paths]`.
    pub fn advantages(&self, outcomes: &mut [f64]) {
        standardise(outcomes, self.how());
    }

    /// What outcomes are told in when the statistics are over these `entries`, `[paths]` or `[turns]`.
    pub fn measure(&self, entries: &[f64]) -> Measure {
        self.how().measure(&moments(entries))
    }

    fn how(&self) -> Standardise {
        let singleton = match self.mode {
            Mode::Paper => Singleton::Zero,
            Mode::Official => Singleton::Raw,
        };
        Standardise { scale: self.std.then_some((Deviation::Sample, *self.epsilon)), singleton }
    }
}

preset! {
    Estimator "dr-grpo" is "grpo", Grpo as DrGrpo { std: false }
    summary: "A trajectory's outcome against the mean of its group, not divided by the group's spread.",
    source: "Liu et al. 2025, Understanding R1-Zero-Like Training (Dr. GRPO), arXiv 2503.20783; verl norm_adv_by_std_in_grpo = False",
    when: "Instead of `grpo` where groups of other difficulty should not weigh alike; with the objective's `aggregation = \"seq-mean-token-sum-norm\"`, which is the other half of Dr. GRPO.",
}

preset! {
    Estimator "reinforce-plus-plus-baseline" is "grpo", Grpo as ReinforcePlusPlusBaseline { std: false, mode: "official" }
    summary: "REINFORCE++ with a baseline: outcomes centred on their group; `whiten` after it scales them over the batch.",
    source: "Hu et al. 2025, REINFORCE++, arXiv 2501.03262; verl compute_reinforce_plus_plus_baseline_outcome_advantage",
    when: "With `transform = [\"whiten\"]`, which is its second half: one scale for the batch, so that groups that nearly agree are not blown up.",
}

preset! {
    Estimator "gpg" is "grpo", Grpo as Gpg { std: false, mode: "official" }
    summary: "Group policy gradient: outcomes centred on their group; the transform `gpg` after it makes up for groups without signal.",
    source: "Chu et al. 2025, GPG, arXiv 2504.02546; verl compute_gpg_outcome_advantage",
    when: "With `transform = [\"gpg\"]`, which is its second half, and many outcomes of 0.",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, credit, turn};
    use ascribe_core::End;

    fn grpo(std: bool, mode: Mode) -> Grpo {
        Grpo { std, mode, epsilon: verl_epsilon(), over: Over::Trajectories }
    }
    fn outcomes(rewards: &[f32], estimator: &Grpo) -> Vec<f32> {
        let paths: Vec<[f32; 1]> = rewards.iter().map(|r| [*r]).collect();
        let paths: Vec<(&[f32], End)> = paths.iter().map(|r| (&r[..], WON)).collect();
        credit(estimator, &chains(&paths))
    }

    #[test]
    fn every_turn_gets_its_trajectorys_advantage() {
        let two = chains(&[(&[0.0, 1.0], WON), (&[0.0], LOST)]);
        assert_eq!(credit(&grpo(false, Mode::Paper), &two), [0.5, 0.5, -0.5]);
    }

    #[test]
    fn equal_outcomes_give_exactly_zero() {
        for reward in [0.1, 0.3, 0.7, 1.0] {
            for n in 2..9 {
                assert_eq!(outcomes(&vec![reward; n], &grpo(true, Mode::Paper)), vec![0.0; n]);
            }
        }
    }

    #[test]
    fn a_group_of_one_is_zero_or_raw() {
        assert_eq!(outcomes(&[2.0], &grpo(true, Mode::Paper)), [0.0]);
        assert_eq!(outcomes(&[2.0], &grpo(false, Mode::Official)), [2.0]);
        assert_eq!(outcomes(&[2.0], &grpo(true, Mode::Official)), [1.999_998]);
    }

    #[test]
    fn a_shared_turn_gets_the_mean_over_its_leaves() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0)], &[(1, WON), (2, LOST)]);
        assert_eq!(credit(&grpo(false, Mode::Paper), &tree), [0.0, 0.5, -0.5]);
    }

    #[test]
    fn over_turns_long_trajectories_weigh_more() {
        let two = chains(&[(&[0.0, 0.0, 3.0], WON), (&[0.0], LOST)]);
        let over_turns = Grpo { over: Over::Turns, ..grpo(false, Mode::Paper) };
        // mean of 3, 3, 3, 0
        assert_eq!(credit(&over_turns, &two), [0.75, 0.75, 0.75, -2.25]);
        // a shared turn is one entry: mean of ½, 1, 0
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0)], &[(1, WON), (2, LOST)]);
        assert_eq!(credit(&over_turns, &tree), [0.0, 0.5, -0.5]);
        // a group of one turn
        let official = Grpo { over: Over::Turns, ..grpo(false, Mode::Official) };
        assert_eq!(credit(&official, &chains(&[(&[2.0], WON)])), [2.0]);
        // what was not tried is no entry
        let untried = chains(&[(&[1.0], WON), (&[0.0], LOST), (&[9.0, 9.0], End::Untried)]);
        let credit = over_turns.estimate(untried.group(0), &Now::default()).unwrap();
        assert_eq!(credit.turns, [Some(0.5), Some(-0.5), None, None]);
    }

    #[test]
    fn what_failed_or_was_not_tried_moves_no_baseline() {
        let failed = chains(&[(&[1.0], WON), (&[0.0], LOST), (&[100.0], End::Failed("crashed".into()))]);
        assert_eq!(credit(&grpo(false, Mode::Paper), &failed), [0.5, -0.5]);
        let untried = chains(&[(&[1.0], WON), (&[0.0], LOST), (&[0.0], End::Untried)]);
        let credit = grpo(false, Mode::Paper).estimate(untried.group(0), &Now::default()).unwrap();
        assert_eq!(credit.turns, [Some(0.5), Some(-0.5), None]);
    }
}
