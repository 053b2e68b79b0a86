//! A weighted sum of other estimators' credit.
//!
//! `A = Σ_p weight_p · A_p` over the parts p that train the turn; what no part trains is not trained.
//!
//! The sums of methods (GiGPO's episode and step terms, IGPO's outcome and gain) without their own normalisation in between.
//! Reductions: one part of weight 1 is that part; credit that is linear in the reward blends as the rewards do.
//!
//! Rules. *Granularity*: if any part gives credit for spans or tokens, all parts are spread onto tokens and summed there.
//! *None*: a part that does not train a turn or token adds nothing to it; it does not take it out. *Loss weights*: a part's
//! weight per turn counts as a factor of its advantages, and the sum has weight 1. *Targets*: the parts' together; of two
//! parts with a target for the same signal the first listed gives it, since a target is a number to reach, not one to add.
//! *Bundles*: those of all parts, in order; two parts that pair the same path do not go together, as it has one row.

use ascribe_core::credit::spread;
use ascribe_core::range::Finite;
use ascribe_core::{AdvantageEstimator, Anchor, Credit, Decay, EstimateError, Group, Law, Need, Now, Slot, Step, plugin};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::forest::rounded;

/// `[estimator.blend]`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Blend {
    /// The parts, at least one.
    #[serde(deserialize_with = "at_least_one")]
    #[schemars(length(min = 1))]
    pub of: Vec<Part>,
}

/// One term of the sum.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The estimator.
    pub estimator: Slot<dyn AdvantageEstimator>,
    /// What its advantages are multiplied with; finite.
    pub weight: Finite,
}

fn at_least_one<'de, D: Deserializer<'de>>(parts: D) -> Result<Vec<Part>, D::Error> {
    let parts = Vec::deserialize(parts)?;
    if parts.is_empty() { Err(D::Error::custom("must name at least one estimator")) } else { Ok(parts) }
}

plugin! {
    Estimator "blend" {
        summary: "A weighted sum of other estimators.",
        source: "",
        when: "To add a turn-level signal to an outcome, or to move from one estimator to another. Parts of different size drown each other: standardise, or choose the weights by their spread.",
        example: "of = [{ estimator = \"grpo\", weight = 0.5 }, { estimator = \"rloo\", weight = 0.5 }]",
        module: "blend.rs",
    }
    impl AdvantageEstimator for Blend {
        fn needs(&self) -> Vec<Need> {
            let mut needs: Vec<Need> = self.of.iter().flat_map(|part| part.estimator.needs()).collect();
            needs.sort();
            needs.dedup();
            needs
        }

        fn targets(&self) -> Vec<String> {
            let mut targets: Vec<String> = self.of.iter().flat_map(|part| part.estimator.targets()).collect();
            targets.sort();
            targets.dedup();
            targets
        }

        fn laws(&self) -> Vec<Law> {
            // What a sum keeps where every term does; and one term that bootstraps makes the sum do so.
            let by_part: Vec<Vec<Law>> = self.of.iter().map(|part| part.estimator.laws()).collect();
            let all = |law: &Law| by_part.iter().all(|laws| laws.contains(law));
            let some = by_part.iter().any(|laws| laws.contains(&Law::Bootstraps)).then_some(Law::Bootstraps);
            let linear = [Law::Shift, Law::Scale, Law::ScaleFree, Law::NoSpreadNoCredit, Law::SumToZero];
            linear.into_iter().filter(all).chain(some).collect()
        }

        fn decay(&self) -> Option<Decay> {
            // The part whose outcome reaches furthest.
            let parts = self.of.iter().map(|part| part.estimator.decay()).collect::<Option<Vec<Decay>>>()?;
            parts.into_iter().max_by(|a, b| (a.step == Step::Turn, a.per_step).partial_cmp(&(b.step == Step::Turn, b.per_step)).unwrap_or(std::cmp::Ordering::Equal))
        }

        fn anchor(&self) -> Option<Anchor> {
            self.of.iter().find_map(|part| part.estimator.anchor())
        }

        fn estimate(&self, group: Group<'_>, now: &Now) -> Result<Credit, EstimateError> {
            let parts: Vec<(f64, Credit)> = self
                .of
                .iter()
                .map(|part| Ok((*part.weight, part.estimator.estimate(group, now)?)))
                .collect::<Result<_, EstimateError>>()?;
            let finer = parts.iter().any(|(_, credit)| !credit.spans.is_empty() || !credit.tokens.is_empty());
            let mut blend = if finer { on_tokens(group, &parts) } else { on_turns(group, &parts) };
            for (_, credit) in parts {
                blend.bundles.extend(credit.bundles);
                for (name, target) in credit.targets {
                    blend.targets.entry(name).or_insert(target);
                }
            }
            Ok(blend)
        }
    }
}

fn on_turns(group: Group<'_>, parts: &[(f64, Credit)]) -> Credit {
    let term = |t: usize, weight: f64, credit: &Credit| {
        let loss_weight = credit.weight.get(t).map_or(1.0, |w| f64::from(*w));
        credit.turns[t].map(|a| weight * loss_weight * f64::from(a))
    };
    let turns = (0..group.n_turns()).map(|t| sum(parts.iter().map(|(weight, credit)| term(t, *weight, credit))));
    Credit { turns: rounded(turns), ..Credit::default() }
}

fn on_tokens(group: Group<'_>, parts: &[(f64, Credit)]) -> Credit {
    let spread: Vec<_> = parts.iter().map(|(weight, credit)| (*weight, spread(group, credit))).collect();
    let tokens = (0..group.sampled().len()).map(|i| {
        sum(spread.iter().map(|(weight, part)| part.advantage.get(i).map(|a| weight * f64::from(part.weight[i]) * f64::from(a))))
    });
    Credit::of_tokens(group.n_turns(), rounded(tokens).into())
}

/// Sum of the terms there are; `None` of none.
fn sum(terms: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    terms.flatten().reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn, valued};
    use crate::tree_value::TreeValue;
    use ascribe_core::credit::{Bundle, SpanCredit, Target};
    use ascribe_core::log::{Action, TurnLog};
    use ascribe_core::signal::{Column, Scope};
    use ascribe_core::{Batch, End};

    /// Gives what it was told.
    #[derive(Debug, Serialize, Deserialize)]
    struct Given {
        #[serde(skip)]
        credit: Credit,
    }
    #[typetag::serde(name = "given-to-blend")]
    impl AdvantageEstimator for Given {
        fn estimate(&self, _: Group<'_>, _: &Now) -> Result<Credit, EstimateError> {
            Ok(self.credit.clone())
        }
    }
    fn given(parts: Vec<(f64, Credit)>) -> Blend {
        let part = |(weight, credit)| Part {
            estimator: Slot(Box::new(Given { credit }) as Box<dyn AdvantageEstimator>),
            weight: Finite::try_from(weight).unwrap(),
        };
        Blend { of: parts.into_iter().map(part).collect() }
    }
    fn estimate(blend: &Blend, batch: &Batch) -> Credit {
        let credit = blend.estimate(batch.group(0), &Now::default()).unwrap();
        credit.check(batch.group(0)).unwrap();
        credit
    }
    fn per_turn(turns: &[Option<f32>]) -> Credit {
        Credit { turns: turns.to_vec(), ..Credit::default() }
    }
    /// Two turns of two tokens.
    fn path() -> Batch {
        let two = |parent| TurnLog { action: Action::given(vec![0, 1]), ..turn(parent, 0.0) };
        batch(vec![two(None), two(Some(0))], &[(1, WON)])
    }

    #[test]
    fn untrained_in_one_part_is_ignored_and_in_all_is_untrained() {
        let three = chains(&[(&[0.0, 0.0, 0.0], WON)]);
        let blend = given(vec![(0.5, per_turn(&[Some(1.0), None, None])), (2.0, per_turn(&[Some(3.0), Some(1.0), None]))]);
        assert_eq!(estimate(&blend, &three).turns, [Some(6.5), Some(2.0), None]);
    }

    #[test]
    fn the_finest_part_sets_the_granularity() {
        let spans = vec![
            SpanCredit { turn: 0, start: 1, end: 2, advantage: Some(5.0) },
            SpanCredit { turn: 1, start: 0, end: 1, advantage: None },
        ];
        let fine = Credit { spans, ..per_turn(&[Some(1.0), Some(1.0)]) };
        let blend = given(vec![(1.0, fine), (10.0, per_turn(&[Some(1.0), None]))]);
        let credit = estimate(&blend, &path());
        assert_eq!(spread(path().group(0), &credit).advantage, [Some(11.0), Some(15.0), None, Some(1.0)]);
        let tokens = Credit { tokens: vec![None, Some(2.0), None, None].into(), ..per_turn(&[None, Some(4.0)]) };
        let blend = given(vec![(1.0, tokens), (1.0, per_turn(&[None, Some(1.0)]))]);
        let credit = estimate(&blend, &path());
        assert_eq!(spread(path().group(0), &credit).advantage, [None, Some(2.0), Some(5.0), Some(5.0)]);
    }

    #[test]
    fn a_parts_loss_weight_is_a_factor_of_its_own_share() {
        let weighted = Credit { weight: vec![0.5, 0.0], ..per_turn(&[Some(4.0), Some(4.0)]) };
        let blend = given(vec![(1.0, weighted.clone()), (1.0, per_turn(&[Some(1.0), Some(1.0)]))]);
        let credit = estimate(&blend, &path());
        assert_eq!((credit.turns, credit.weight), (vec![Some(3.0), Some(1.0)], vec![]));
        let fine = Credit { tokens: vec![Some(1.0); 4].into(), ..per_turn(&[None, None]) };
        let credit = estimate(&given(vec![(1.0, weighted), (1.0, fine)]), &path());
        assert_eq!(credit.tokens, [Some(3.0), Some(3.0), Some(1.0), Some(1.0)]);
    }

    #[test]
    fn the_first_part_with_a_target_gives_it_and_bundles_are_joined() {
        let target = |x: f32| Target { scope: Scope::Turn, column: Column::full(vec![x]) };
        let part = |targets: &[(&str, f32)], chosen, rejected| Credit {
            targets: targets.iter().map(|(name, x)| (name.to_string(), target(*x))).collect(),
            bundles: vec![Bundle { chosen, rejected }],
            ..per_turn(&[None, None])
        };
        let blend = given(vec![(1.0, part(&[("value", 1.0)], 0, 1)), (1.0, part(&[("value", 2.0), ("gain", 3.0)], 1, 0))]);
        let two = chains(&[(&[0.0], WON), (&[0.0], LOST)]);
        let credit = blend.estimate(two.group(0), &Now::default()).unwrap();
        assert_eq!((credit.targets["value"].clone(), credit.targets["gain"].clone()), (target(1.0), target(3.0)));
        assert_eq!(credit.bundles, [Bundle { chosen: 0, rejected: 1 }, Bundle { chosen: 1, rejected: 0 }]);
    }

    #[test]
    fn it_needs_and_gives_what_its_parts_do() {
        let blend: Blend = serde_json::from_value(serde_json::json!({ "of": [
            { "estimator": { "tempo": {} }, "weight": 0.5 },
            { "estimator": { "value-difference": {} }, "weight": 1.0 },
            { "estimator": "grpo", "weight": 1.0 },
        ] }))
        .unwrap();
        assert_eq!(blend.needs(), [Need::SomeStates("value".into()), Need::GroupOfAtLeast(2)]);
        assert_eq!(blend.targets(), ["value"]);
        let none = serde_json::from_value::<Blend>(serde_json::json!({ "of": [] })).unwrap_err();
        assert_eq!(none.to_string(), "must name at least one estimator");
    }

    #[test]
    fn one_part_of_weight_one_is_that_part() {
        let tree = batch(vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.1)], &[(1, WON), (2, End::Untried)]);
        let tree = valued(tree, &[0.25; 4]);
        let keys = serde_json::json!({ "leaf": "outcome", "node": "child-mean", "against": "parent" });
        let alone: TreeValue = serde_json::from_value(keys.clone()).unwrap();
        let part = serde_json::json!({ "of": [{ "estimator": { "tree-value": keys }, "weight": 1.0 }] });
        let blend: Blend = serde_json::from_value(part).unwrap();
        assert_eq!(estimate(&blend, &tree), alone.estimate(tree.group(0), &Now::default()).unwrap());
        let tempo: Blend =
            serde_json::from_value(serde_json::json!({ "of": [{ "estimator": "tempo", "weight": 1.0 }] })).unwrap();
        assert_eq!(estimate(&tempo, &tree), crate::tempo::Tempo::default().estimate(tree.group(0), &Now::default()).unwrap());
    }
}
