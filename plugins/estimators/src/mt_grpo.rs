//! Outcome and turn rewards, each standardised within the group: a turn gets the outcome's advantage and those of the turn
//! rewards still to come.
//!
//! `A_t = A^O + c Σ_{u≥t} A^T_u`, with `A^O = z_g(R)` of the outcomes and `A^T_u = z_g` of the numbers of the column
//! `turn_reward` at turn u of every trajectory that has one; `z(x) = (x − mean) / (std + ε)` with the sample deviation.
//! `form = "first-result"` is the paper's: one turn reward per trajectory, that of the first turn. The first turn, which ends
//! at the first tool result, gets `A^O + c A^T`, every later one `A^O`; a trajectory of one turn, which never saw a result,
//! gets `z_g(R + turn reward)`.
//!
//! Zeng et al. 2025, "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Credit Assignment", arXiv 2505.11821;
//! SiliangZeng/Multi-Turn-RL-Agent at 7dbdd08b (`mt_grpo_env_trainer.py`, ε = 1e-4). Reductions: `c = 0` is `grpo`; where only
//! first turns have a turn reward, both forms agree on trajectories of two turns or more.
//!
//! Edge cases: equal rewards give exactly 0, and so does a reward without any to compare with. A turn reward that was not
//! computed counts 0 in the paper's form, and nothing in the general one. The mean of the rewards of turn u depends on who
//! still plays: where going on is a choice, the general form rewards or punishes going on. In a tree a shared turn's reward
//! counts once, and the turn gets the mean over its leaves. Paths that were not tried are not trained and move nothing.
//! Where the authors' code differs: a reward without any to compare with gives NaN there.

use ascribe_core::range::NonNegative;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Need, Now, Scope, plugin};
use ascribe_math::{Deviation, Singleton, Standardise, standardise};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::mean_over_paths;
use crate::paths::outcomes_of_tried;
use crate::values::credit_of_tried;

/// The column of turn rewards.
const TURN_REWARD: &str = "turn_reward";

/// `[estimator.mt-grpo]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MtGrpo {
    /// Which turns a turn reward reaches.
    pub form: Form,
    /// Weight c of turn rewards, 0 or more. The paper: 1.
    #[serde(default = "coefficient")]
    pub coefficient: NonNegative,
    /// Added to the standard deviation, 0 or more. The authors' code: 1e-4.
    #[serde(default = "epsilon")]
    pub epsilon: NonNegative,
}

fn coefficient() -> NonNegative {
    NonNegative::try_from(1.0).expect("1 is at least 0")
}
fn epsilon() -> NonNegative {
    NonNegative::try_from(1e-4).expect("1e-4 is at least 0")
}

/// Which turns a turn reward reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The paper's: the first turn has one, and it reaches no other turn.
    FirstResult,
    /// Every turn has one, and it reaches all turns before it.
    Suffix,
}

/// Advantages of trajectories, `[trajectories]` each.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstResult {
    /// Of the turn that ends at the first tool result.
    pub before: Vec<f64>,
    /// Of all later turns.
    pub after: Vec<f64>,
    /// Of a trajectory without a tool result.
    pub without: Vec<f64>,
}

plugin! {
    Estimator "mt-grpo" {
        summary: "Outcome and turn rewards, each standardised within the group and added where they apply.",
        source: "Zeng et al. 2025, Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Credit Assignment, arXiv 2505.11821",
        when: "A checkable reward per turn (a tool that ran, a result that holds the answer) beside the outcome, in a few turns. Not where the number of turns is a choice: the per-turn means then reward it.",
        example: "form = \"first-result\"",
        module: "mt_grpo.rs",
    }
    impl AdvantageEstimator for MtGrpo {
        fn needs(&self) -> Vec<Need> {
            vec![Need::GroupOfAtLeast(2), Need::Signal(TURN_REWARD.into(), Scope::Turn)]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(credit_of_tried(match self.form {
                Form::FirstResult => self.of_first_result(group),
                Form::Suffix => self.of_suffix(group),
            }))
        }
    }
}

impl MtGrpo {
    /// The paper's advantages of a group.
    ///
    /// * `turn_rewards`, `outcomes`: `[trajectories]`
    pub fn first_result(&self, turn_rewards: &[f64], outcomes: &[f64]) -> FirstResult {
        assert_eq!(turn_rewards.len(), outcomes.len(), "one turn reward per outcome");
        let turn = self.standardised(turn_rewards.to_vec());
        let after = self.standardised(outcomes.to_vec());
        let without = self.standardised(turn_rewards.iter().zip(outcomes).map(|(t, o)| t + o).collect());
        let before = after.iter().zip(turn).map(|(o, t)| o + *self.coefficient * t).collect();
        FirstResult { before, after, without }
    }

    fn standardised(&self, mut rewards: Vec<f64>) -> Vec<f64> {
        let scale = Some((Deviation::Sample, *self.epsilon));
        standardise(&mut rewards, Standardise { scale, singleton: Singleton::Zero });
        rewards
    }

    fn of_first_result(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let turn_reward: Vec<Option<f32>> = group.turn_signal(TURN_REWARD).collect();
        let outcomes = outcomes_of_tried(group);
        let first = group.trajectories().map(|path| path.turns_up().last().and_then(|root| turn_reward[root]));
        let first: Vec<f64> =
            first.zip(&outcomes).filter(|(_, o)| o.is_some()).map(|(first, _)| first.map_or(0.0, f64::from)).collect();
        let tried: Vec<f64> = outcomes.iter().copied().flatten().collect();
        let numbers = self.first_result(&first, &tried);
        let of_paths = |numbers: Vec<f64>| {
            let mut numbers = numbers.into_iter();
            let per_path: Vec<Option<f64>> = outcomes.iter().map(|o| o.and_then(|_| numbers.next())).collect();
            mean_over_paths(group, &per_path, |x, _| x)
        };
        let (before, after, without) = (of_paths(numbers.before), of_paths(numbers.after), of_paths(numbers.without));
        let of_turn = |t: usize| match (group.parent(t), group.n_children(t)) {
            (Some(_), _) => after[t],
            (None, 0) => without[t],
            (None, _) => before[t],
        };
        (0..group.n_turns()).map(of_turn).collect()
    }

    fn of_suffix(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let outcomes = outcomes_of_tried(group);
        let mut standard = self.standardised(outcomes.iter().copied().flatten().collect()).into_iter();
        let per_path: Vec<Option<f64>> = outcomes.iter().map(|o| o.and_then(|_| standard.next())).collect();
        let outcome = mean_over_paths(group, &per_path, |x, _| x);
        // Turns by their place in the trajectory; those with a reward are compared with each other.
        let mut places: Vec<Vec<usize>> = Vec::new();
        let mut place = vec![0; group.n_turns()];
        let mut reward = vec![0.0; group.n_turns()];
        for (t, x) in group.turn_signal(TURN_REWARD).enumerate() {
            place[t] = group.parent(t).map_or(0, |p| place[p] + 1);
            if let Some(x) = x.filter(|_| outcome[t].is_some()) {
                reward[t] = f64::from(x);
                places.resize_with(places.len().max(place[t] + 1), Vec::new);
                places[place[t]].push(t);
            }
        }
        for turns in &places {
            let standard = self.standardised(turns.iter().map(|t| reward[*t]).collect());
            turns.iter().zip(standard).for_each(|(t, x)| reward[*t] = x);
        }
        let to_come = group.fold_up(|_| 0.0, |t, future| reward[t] + future);
        outcome.iter().zip(to_come).map(|(o, sum)| o.map(|o| o + *self.coefficient * sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn};
    use crate::graph::tests::{forests, groups, is_sound, order_does_not_matter};
    use crate::outcome::Over;
    use crate::{Grpo, Mode};
    use ascribe_core::{Batch, Column, End, Signal};
    use proptest::prelude::*;

    fn mt(form: Form, coefficient: f64) -> MtGrpo {
        let coefficient = NonNegative::try_from(coefficient).unwrap();
        MtGrpo { form, coefficient, epsilon: NonNegative::try_from(1e-12).unwrap() }
    }
    fn rewarded(mut batch: Batch, numbers: &[Option<f32>]) -> Batch {
        let column: Column = numbers.iter().copied().collect();
        batch.add_signal(TURN_REWARD, Signal { scope: Scope::Turn, provider: "test".into(), column }).unwrap();
        batch
    }
    fn check(estimator: &MtGrpo, batch: &Batch, want: &[Option<f64>]) {
        let credit = estimator.estimate(batch.group(0), &Now::default()).unwrap();
        credit.check(batch.group(0)).unwrap();
        let near = |(got, want): (&Option<f32>, &Option<f64>)| match (got, want) {
            (Some(got), Some(want)) => (f64::from(*got) - want).abs() < 1e-6,
            (got, want) => got.is_none() && want.is_none(),
        };
        assert!(credit.turns.iter().zip(want).all(near) && credit.turns.len() == want.len(), "{:?}, not {want:?}", credit.turns);
    }
    const H: f64 = std::f64::consts::FRAC_1_SQRT_2;

    #[test]
    fn the_first_turn_gets_both_and_later_ones_the_outcome() {
        let paths = chains(&[(&[0.0, 1.0], WON), (&[0.0, 0.0], LOST)]);
        let two = rewarded(paths, &[Some(0.0), None, Some(0.5), None]);
        check(&mt(Form::FirstResult, 2.0), &two, &[Some(H - 2.0 * H), Some(H), Some(-H + 2.0 * H), Some(-H)]);
    }

    #[test]
    fn without_a_tool_result_the_sum_of_rewards_is_compared() {
        // Sums 1½ and 0
        let two = rewarded(chains(&[(&[0.0, 1.0], WON), (&[0.0], LOST)]), &[Some(0.5), None, None]);
        check(&mt(Form::FirstResult, 1.0), &two, &[Some(2.0 * H), Some(H), Some(-H)]);
    }

    #[test]
    fn a_turn_reward_reaches_all_turns_before_it() {
        let paths = chains(&[(&[0.0, 1.0], WON), (&[0.0, 0.0], LOST)]);
        let two = rewarded(paths, &[Some(1.0), Some(0.0), Some(0.0), Some(3.0)]);
        check(&mt(Form::Suffix, 1.0), &two, &[Some(H), Some(0.0), Some(-H), Some(0.0)]);
        // Nobody to compare the second turn's reward with
        let alone = rewarded(chains(&[(&[0.0, 1.0], WON), (&[0.0], LOST)]), &[Some(1.0), Some(5.0), Some(1.0)]);
        check(&mt(Form::Suffix, 1.0), &alone, &[Some(H), Some(H), Some(-H)]);
    }

    #[test]
    fn siblings_never_see_each_others_reward_and_what_was_not_tried_moves_nothing() {
        let tree = |last| {
            let turns = vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0), turn(Some(0), 50.0)];
            let numbers = [Some(9.0), Some(1.0), Some(0.0), Some(70.0)];
            rewarded(batch(turns, &[(1, WON), (2, LOST), (3, last)]), &numbers)
        };
        check(&mt(Form::Suffix, 1.0), &tree(End::Untried), &[Some(0.0), Some(2.0 * H), Some(-2.0 * H), None]);
        check(&mt(Form::FirstResult, 1.0), &tree(End::Untried), &[Some(0.0), Some(H), Some(-H), None]);
    }

    #[test]
    fn equal_rewards_and_groups_of_one_give_exactly_zero() {
        for form in [Form::FirstResult, Form::Suffix] {
            let one = rewarded(chains(&[(&[0.0, 0.7], WON)]), &[Some(0.3), Some(0.1)]);
            check(&mt(form, 1.0), &one, &[Some(0.0); 2]);
        }
    }

    proptest! {
        #[test]
        fn order_of_trajectories_is_order_of_credit(group in groups()) {
            order_does_not_matter(&mt(Form::FirstResult, 1.0), &group);
            order_does_not_matter(&mt(Form::Suffix, 1.0), &group);
        }

        #[test]
        fn credit_is_sound_on_any_forest(batch in forests()) {
            for form in [Form::FirstResult, Form::Suffix] {
                is_sound(&mt(form, 1.0), &batch);
            }
        }

        #[test]
        fn without_turn_rewards_it_is_grpo(rewards in prop::collection::vec(-3i8..4, 1..8), suffix: bool) {
            let paths: Vec<[f32; 2]> = rewards.iter().map(|r| [0.0, f32::from(*r)]).collect();
            let paths: Vec<(&[f32], End)> = paths.iter().map(|r| (&r[..], WON)).collect();
            let column: Vec<Option<f32>> = (0..2 * rewards.len()).map(|t| Some(t as f32)).collect();
            let batch = rewarded(chains(&paths), &column);
            let estimator = mt(if suffix { Form::Suffix } else { Form::FirstResult }, 0.0);
            let epsilon = NonNegative::try_from(1e-12).unwrap();
            let now = Now::default();
            let got = estimator.estimate(batch.group(0), &now).unwrap().turns;
            let want = Grpo { std: true, epsilon, mode: Mode::Paper, over: Over::Trajectories }.estimate(batch.group(0), &now).unwrap().turns;
            prop_assert!(got.iter().zip(&want).all(|(g, w)| (g.unwrap() - w.unwrap()).abs() < 1e-6));
        }
    }
}
