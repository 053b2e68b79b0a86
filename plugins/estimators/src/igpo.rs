//! Information gain per turn and the outcome at the end, made comparable within the group, then summed towards the end.
//!
//! `A_t = r̃_t + γ A_{t+1}`; at a branch, the mean over the children. A path's last turn earns its outcome `R_i` (the sum of
//! its rewards), every other turn its information gain; `r̃ = (w r − mean_g) / (√(var_g + 1e-8) + ε)` with the variance of
//! the population and the curriculum's weights `w`. `norm` says whether gains and outcomes share mean and variance.
//!
//! Wang et al. 2025, "Information Gain-based Policy Optimization", arXiv 2510.14967; GuoqingWang1/IGPO at 49a8c4ec, whose
//! numbers it gives.
//! Whether the gain is a difference of probabilities (the paper) or of log-probabilities (the authors' script) is the
//! business of the critic that provides the column `info_gain`. Rewards are normalised first and summed afterwards: the
//! first release did it the other way round. Reductions: without gains it is GRPO with the population's deviation. In
//! separate mode with `std` the curriculum's weights cancel, but for ε.
//!
//! Edge cases: equal numbers become exactly 0, and so does a number without any to compare with. A turn whose gain was not
//! computed is no step of time: it takes the advantage of the turn after it. A turn that was not tried is not trained and
//! moves no statistic. A path without an answer earns its outcome like any other.
//! Where the authors' code differs: a gain of exactly 0 counts there as not computed unless the critic writes 1e-10, here 0
//! is a gain; it takes the last token from the sum of the mask, which is another token where tools' answers lie off the mask,
//! and also gives advantages to tools' answers, here turns are turns.
//!
//! `norm = "column-mean"` is what the first release computed: returns with `γ = 1` minus the mean, over the group, of what
//! stands in the same column of the padded rows. That baseline depends on how long the siblings speak.

use ascribe_core::range::{NonNegative, Unit};
use ascribe_core::{AdvantageEstimator, Column, Credit, Decay, End, EstimateError, Group, Need, Now, Scope, plugin};
use ascribe_math::{Deviation, centre_columns, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{verl_epsilon, yes};
use crate::paths::outcome_at_end;
use crate::steps;
use crate::values::credit_of_tried;

/// The column of gains.
const INFO_GAIN: &str = "info_gain";
/// Added to a variance before the root is taken.
const VARIANCE_EPSILON: f64 = 1e-8;

/// `[estimator.igpo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Igpo {
    /// Discount per turn, in 0..=1. The paper: 1.
    pub gamma: Unit,
    /// What a reward is compared with.
    pub norm: Norm,
    /// Whether to divide by the standard deviation.
    #[serde(default = "yes")]
    pub std: bool,
    /// Added to the standard deviation, 0 or more. verl: 1e-6.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
    /// Curriculum: weight of the outcome before it is normalised, 0 or more. The authors' curriculum: 0.5 to 1.
    #[serde(default = "one")]
    pub outcome_weight: NonNegative,
    /// Curriculum: weight of the gains before they are normalised, 0 or more. The authors' curriculum: 1 to 0.5.
    #[serde(default = "one")]
    pub info_gain_weight: NonNegative,
}

fn one() -> NonNegative {
    NonNegative::try_from(1.0).expect("1 is at least 0")
}

/// What a reward is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// All gains and outcomes of the group.
    Joint,
    /// Gains with gains, outcomes with outcomes.
    Separate,
    /// The first release: returns with the group's mean in their token column. `gamma` is 1 there; `std` and `epsilon`
    /// are not read.
    ColumnMean,
}

/// What a turn earns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Earned {
    /// Nothing was computed.
    Nothing,
    /// An information gain.
    Gain(f64),
    /// The outcome of the path that ends here.
    Outcome(f64),
}

plugin! {
    Estimator "igpo" {
        summary: "Information gain per turn and the outcome at the end, normalised within the group, then summed towards the end.",
        source: "Wang et al. 2025, Information Gain-based Policy Optimization, arXiv 2510.14967; GuoqingWang1/IGPO",
        when: "Questions with a known answer, over several turns of search: how much each turn raises the answer's probability is dense credit. Not without ground truth, and not where the way matters rather than the answer.",
        example: "gamma = 1.0\nnorm = \"separate\"",
        module: "igpo.rs",
    }
    impl AdvantageEstimator for Igpo {
        fn needs(&self) -> Vec<Need> {
            let mut needs = vec![Need::Signal(INFO_GAIN.into(), Scope::Turn), Need::GroupOfAtLeast(2)];
            if self.norm == Norm::ColumnMean {
                needs.push(Need::Chains);
            }
            needs
        }

        fn decay(&self) -> Option<Decay> {
            steps::decay(self.gamma)
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let mut earned = earned(group);
            self.weigh(&mut earned);
            if self.norm == Norm::ColumnMean {
                return Ok(against_columns(group, &earned));
            }
            self.normalise(&mut earned);
            let advantage = sums(group, &earned, *self.gamma);
            Ok(credit_of_tried(advantage.into_iter().zip(group.tried()).map(|(a, tried)| tried.then_some(a))))
        }
    }
}

impl Earned {
    fn amount(&mut self) -> Option<&mut f64> {
        match self {
            Earned::Nothing => None,
            Earned::Gain(x) | Earned::Outcome(x) => Some(x),
        }
    }
}

impl Igpo {
    /// Multiplies what was earned by the curriculum's weights, `[turns]`.
    pub fn weigh(&self, earned: &mut [Earned]) {
        for earned in earned {
            match earned {
                Earned::Nothing => {}
                Earned::Gain(x) => *x *= *self.info_gain_weight,
                Earned::Outcome(x) => *x *= *self.outcome_weight,
            }
        }
    }

    /// Makes what was earned in a group comparable in place, `[turns]`; each path's outcome and each turn's gain counts
    /// once. The first release compares returns instead, so nothing changes there.
    pub fn normalise(&self, earned: &mut [Earned]) {
        match self.norm {
            Norm::Joint => self.normalise_where(earned, |_| true),
            Norm::Separate => {
                self.normalise_where(earned, |earned| matches!(earned, Earned::Gain(_)));
                self.normalise_where(earned, |earned| matches!(earned, Earned::Outcome(_)));
            }
            Norm::ColumnMean => {}
        }
    }

    fn normalise_where(&self, earned: &mut [Earned], chosen: impl Fn(&Earned) -> bool) {
        let mut slots: Vec<&mut f64> = earned.iter_mut().filter(|e| chosen(e)).filter_map(Earned::amount).collect();
        let numbers: Vec<f64> = slots.iter().map(|x| **x).collect();
        let group = moments(&numbers);
        let deviation = (group.variance(Deviation::Population) + VARIANCE_EPSILON).sqrt();
        let divisor = if self.std { deviation + *self.epsilon } else { 1.0 };
        slots.iter_mut().for_each(|x| **x = (**x - group.mean) / divisor);
    }
}

/// What each turn earns, `[turns]`.
fn earned(group: Group<'_>) -> Vec<Earned> {
    let (outcome, tried) = (outcome_at_end(group), group.tried());
    let of_turn = |(t, gain): (usize, Option<f32>)| match (outcome[t], gain) {
        (Some(outcome), _) => Earned::Outcome(outcome),
        (None, Some(gain)) if tried[t] => Earned::Gain(f64::from(gain)),
        _ => Earned::Nothing,
    };
    group.turn_signal(INFO_GAIN).enumerate().map(of_turn).collect()
}

/// `A_t = r_t + γ A_{t+1}` over the turns at which something was earned, `[turns]`.
fn sums(group: Group<'_>, earned: &[Earned], gamma: f64) -> Vec<f64> {
    group.fold_up(
        |_| 0.0,
        |t, future| match earned[t] {
            Earned::Nothing => future,
            Earned::Gain(x) | Earned::Outcome(x) => x + gamma * future,
        },
    )
}

/// The first release: every token's return minus the mean of its column over the group. Independent paths only.
fn against_columns(group: Group<'_>, earned: &[Earned]) -> Credit {
    let (turns, at) = (&group.batch().turns, &group.batch().sampled.at);
    let (first_row, first_token) = (group.rows().start, group.sampled().start);
    let returns = sums(group, earned, 1.0);
    // Column at which a turn's action begins; the first turn's is column 0, and what is read lies between actions.
    let mut begin = vec![0; group.n_turns()];
    let mut end = vec![0; group.n_turns()];
    for t in 0..group.n_turns() {
        let read = turns.action_start[first_row + t] as usize;
        begin[t] = group.parent(t).map_or(0, |p| end[p] + read);
        end[t] = begin[t] + turns.tokens[first_row + t].len() - read;
    }
    let tried = group.trajectories().filter(|path| path.leaf().end != End::Untried);
    let paths: Vec<Vec<usize>> = tried.map(|path| path.turns()).collect();
    let row = |path: &Vec<usize>| {
        let mut row = Vec::new();
        for (i, t) in path.iter().enumerate() {
            // What the tool answers belongs to the turn that asked.
            let until = path.get(i + 1).map_or(end[*t], |next| begin[*next]);
            row.resize(until, returns[*t]);
        }
        row
    };
    let mut rows: Vec<Vec<f64>> = paths.iter().map(row).collect();
    centre_columns(&mut rows);
    let mut tokens = Column::absent(group.sampled().len());
    for (path, row) in paths.iter().zip(&rows) {
        for t in path {
            for i in group.sampled_of(*t) {
                let within = (at[first_token + i] - turns.action_start[first_row + t]) as usize;
                tokens.set(i, row[begin[*t] + within] as f32);
            }
        }
    }
    Credit::of_tokens(group.n_turns(), tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn};
    use crate::graph::tests::{forests, groups, is_sound, order_does_not_matter};
    use crate::outcome::Over;
    use crate::{Grpo, Mode};
    use ascribe_core::{Batch, Signal};
    use proptest::prelude::*;

    fn igpo(gamma: f64, norm: Norm, std: bool) -> Igpo {
        let gamma = Unit::try_from(gamma).unwrap();
        Igpo { gamma, norm, std, epsilon: verl_epsilon(), outcome_weight: one(), info_gain_weight: one() }
    }
    fn gains(mut batch: Batch, gains: &[Option<f32>]) -> Batch {
        let column: Column = gains.iter().copied().collect();
        batch.add_signal(INFO_GAIN, Signal { scope: Scope::Turn, provider: "test".into(), column }).unwrap();
        batch
    }
    fn turns(estimator: &Igpo, batch: &Batch) -> Vec<Option<f32>> {
        let credit = estimator.estimate(batch.group(0), &Now::default()).unwrap();
        credit.check(batch.group(0)).unwrap();
        credit.turns
    }
    fn near(got: &[Option<f32>], want: &[f32]) -> bool {
        got.len() == want.len() && got.iter().zip(want).all(|(g, w)| g.is_some_and(|g| (g - w).abs() < 1e-4))
    }

    #[test]
    fn rewards_are_normalised_before_they_are_summed() {
        // Gains 2.5 and −1.2, outcomes 1 and 0, all together: mean 0.575, deviation √1.881875; only the sums have ±√2.
        let two = gains(chains(&[(&[0.0, 1.0], WON), (&[0.0, 0.0], LOST)]), &[Some(2.5), None, Some(-1.2), None]);
        let separate = turns(&igpo(1.0, Norm::Separate, true), &two);
        assert!(near(&separate, &[2.0, 1.0, -2.0, -1.0]), "{separate:?}");
        let joint = turns(&igpo(1.0, Norm::Joint, false), &two);
        assert!(near(&joint, &[1.925 + 0.425, 0.425, -1.775 - 0.575, -0.575]), "{joint:?}");
        let discounted = turns(&igpo(0.5, Norm::Separate, true), &two);
        assert!(near(&discounted, &[1.5, 1.0, -1.5, -1.0]), "{discounted:?}");
    }

    #[test]
    fn the_curriculum_matters_where_it_does_not_cancel() {
        let two = gains(chains(&[(&[0.0, 1.0], WON), (&[0.0, 0.0], LOST)]), &[Some(1.0), None, Some(-1.0), None]);
        let half = |norm, std| Igpo { info_gain_weight: NonNegative::try_from(0.5).unwrap(), ..igpo(1.0, norm, std) };
        assert!(near(&turns(&half(Norm::Separate, true), &two), &[2.0, 1.0, -2.0, -1.0]));
        assert!(near(&turns(&half(Norm::Separate, false), &two), &[1.0, 0.5, -1.0, -0.5]));
    }

    #[test]
    fn a_gain_that_was_not_computed_is_no_step_of_time() {
        let two = gains(chains(&[(&[0.0, 0.0, 1.0], WON), (&[0.0], LOST)]), &[None, Some(0.0), None, None]);
        // The only gain has nothing to compare with: 0, but a step.
        let got = turns(&igpo(0.5, Norm::Separate, true), &two);
        assert!(near(&got, &[0.5, 0.5, 1.0, -1.0]), "{got:?}");
    }

    #[test]
    fn siblings_never_see_each_others_reward() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0)], &[(1, WON), (2, LOST)]);
        let got = turns(&igpo(1.0, Norm::Separate, false), &gains(tree, &[Some(0.75), None, None]));
        assert_eq!(got, [Some(0.0), Some(0.5), Some(-0.5)]);
    }

    #[test]
    fn equal_rewards_and_groups_of_one_give_exactly_zero() {
        for norm in [Norm::Joint, Norm::Separate] {
            let same = gains(chains(&[(&[0.0, 0.1], WON), (&[0.0, 0.1], WON)]), &[Some(0.1), None, Some(0.1), None]);
            assert_eq!(turns(&igpo(1.0, norm, true), &same), [Some(0.0); 4]);
            let one = gains(chains(&[(&[0.7], WON)]), &[None]);
            assert_eq!(turns(&igpo(1.0, norm, true), &one), [Some(0.0)]);
        }
    }

    #[test]
    fn what_was_not_tried_moves_no_statistic() {
        let three = chains(&[(&[1.0], WON), (&[0.0], LOST), (&[9.0], End::Untried)]);
        let got = turns(&igpo(1.0, Norm::Joint, false), &gains(three, &[None, None, Some(50.0)]));
        assert_eq!(got, [Some(0.5), Some(-0.5), None]);
    }

    #[test]
    fn the_first_release_compares_columns() {
        // Returns 1.5, 1 against 0: columns (1.5, 0) and (1, ended).
        let two = gains(chains(&[(&[0.0, 1.0], WON), (&[0.0], LOST)]), &[Some(0.5), None, None]);
        let credit = igpo(1.0, Norm::ColumnMean, true).estimate(two.group(0), &Now::default()).unwrap();
        credit.check(two.group(0)).unwrap();
        assert_eq!(credit.tokens, [Some(0.75), Some(0.5), Some(-0.75)]);
    }

    proptest! {
        #[test]
        fn without_gains_it_is_grpo(rewards in prop::collection::vec(-3i8..4, 1..8), separate: bool) {
            let paths: Vec<[f32; 3]> = rewards.iter().map(|r| [1.0, 0.0, f32::from(*r)]).collect();
            let paths: Vec<(&[f32], End)> = paths.iter().map(|r| (&r[..], WON)).collect();
            let batch = gains(chains(&paths), &vec![None; 3 * rewards.len()]);
            let got = turns(&igpo(0.5, if separate { Norm::Separate } else { Norm::Joint }, false), &batch);
            let grpo = Grpo { std: false, epsilon: verl_epsilon(), mode: Mode::Paper, over: Over::Trajectories };
            prop_assert_eq!(got, grpo.estimate(batch.group(0), &Now::default()).unwrap().turns);
        }

        #[test]
        fn order_of_trajectories_is_order_of_credit(group in groups()) {
            order_does_not_matter(&igpo(0.5, Norm::Joint, true), &group);
            order_does_not_matter(&igpo(0.5, Norm::Separate, true), &group);
        }

        #[test]
        fn credit_is_sound_on_any_forest(batch in forests(), std: bool) {
            for norm in [Norm::Joint, Norm::Separate, Norm::ColumnMean] {
                is_sound(&igpo(0.5, norm, std), &batch);
            }
        }
    }
}
