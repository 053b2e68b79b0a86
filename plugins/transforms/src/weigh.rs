//! Multiplies the advantages of turns by a column, by a number, or by both.
//!
//! `A_t ← c · w_t · A_t`
//!
//! With the column of the critic `prefix-ratio` it is the importance correction of prefixes: a macro step that begins in a stored state is
//! drawn with the probability that an earlier policy gave to the way there, and weighs what that way is likelier now. With `times = M`,
//! the number of macro steps of an episode, the gradient of one macro step drawn uniformly is, in expectation, that of the whole
//! episode. Both are described, not coded, by KMnO4-zx/agentic-rl-lab `09-tempo` (the appendix of the Dots team's blog on TEMPO, 2026).
//! Reductions: a column of ones changes nothing.
//! Edge cases: a turn without a number in the column is not trained: `credit/unweighed_rate` says how many there are. Untrained stays
//! untrained. A constant factor on all advantages is a factor on the learning rate to a plain gradient step, and next to nothing to Adam, which
//! divides by the gradient's size.

use ascribe_core::range::Positive;
use ascribe_core::signal::Scope;
use ascribe_core::{Batch, Credit, CreditTransform, Group, Metrics, Need, Now, Seeds, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::map_advantages;

/// `[[transform]] weigh = { by = "prefix_ratio" }`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Weigh {
    /// Column of turns; none, where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Factor on all advantages, positive.
    #[serde(default = "one")]
    pub times: Positive,
}

fn one() -> Positive {
    Positive::try_from(1.0).expect("in range")
}

plugin! {
    Transform "weigh" {
        summary: "Multiplies advantages by a column of turns, such as a prefix ratio, and by a number.",
        source: "importance sampling; as the appendix on TEMPO (Dots team 2026) describes it for prefixes",
        when: "After an estimator, with the critic `prefix-ratio` and a rollout that begins in stored states. A transform that whitens takes a constant factor away again.",
        example: "times = 5.0",
        module: "weigh.rs",
    }
    impl CreditTransform for Weigh {
        fn needs(&self) -> Vec<Need> {
            self.by.iter().map(|by| Need::Signal(by.clone(), Scope::Turn)).collect()
        }

        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let (mut unweighed, mut turns) = (0usize, 0usize);
            for (group, credit) in batch.groups().zip(credit) {
                let weights: Vec<Option<f32>> = match &self.by {
                    Some(by) => group.turn_signal(by).collect(),
                    None => vec![Some(1.0); group.n_turns()],
                };
                turns += weights.len();
                unweighed += weights.iter().filter(|weight| weight.is_none()).count();
                map_advantages(group, credit, |t, a| weights[t].map_or(a, |weight| a * f64::from(weight) * *self.times));
                let without = (0..weights.len()).filter(|t| weights[*t].is_none());
                without.for_each(|t| untrain_turn(group, credit, t));
            }
            let mut metrics = Metrics::default();
            if self.by.is_some() {
                metrics.set("credit/unweighed_rate", unweighed as f64 / (turns as f64).max(1.0));
            }
            metrics
        }
    }
}

/// Takes a turn out of training, at every granularity.
fn untrain_turn(group: Group<'_>, credit: &mut Credit, turn: usize) {
    credit.turns[turn] = None;
    credit.spans.retain(|span| span.turn != turn);
    if !credit.tokens.is_empty() {
        group.sampled_of(turn).for_each(|i| credit.tokens.set(i, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::batch;
    use ascribe_core::credit::{SpanCredit, spread};
    use ascribe_core::{Column, Signal};

    fn weighed(weigh: &Weigh, weights: Vec<Option<f32>>, credit: Option<Credit>) -> (Vec<Option<f32>>, Option<f64>) {
        let (mut batch, mut all) = batch(&[&[&[(2, 1.0), (1, -2.0)]]]);
        let signal = Signal { scope: Scope::Turn, provider: "critic".into(), column: weights.into() };
        batch.add_signal("w", signal).unwrap();
        if let Some(credit) = credit {
            all[0] = credit;
        }
        let metrics = weigh.apply(&batch, &mut all, &Now::default(), Seeds(0));
        (spread(batch.group(0), &all[0]).advantage.into(), metrics.get("credit/unweighed_rate"))
    }

    fn weigh(by: Option<&str>, times: f64) -> Weigh {
        Weigh { by: by.map(String::from), times: Positive::try_from(times).unwrap() }
    }

    #[test]
    fn a_column_and_a_number_are_factors() {
        let weights = || vec![Some(0.5), Some(3.0)];
        assert_eq!(weighed(&weigh(Some("w"), 1.0), weights(), None), (vec![Some(0.5), Some(0.5), Some(-6.0)], Some(0.0)));
        assert_eq!(weighed(&weigh(None, 5.0), weights(), None), (vec![Some(5.0), Some(5.0), Some(-10.0)], None));
        let both = weighed(&weigh(Some("w"), 2.0), weights(), None).0;
        assert_eq!(both, [Some(1.0), Some(1.0), Some(-12.0)]);
        let ones = weighed(&weigh(Some("w"), 1.0), vec![Some(1.0); 2], None).0;
        assert_eq!(ones, [Some(1.0), Some(1.0), Some(-2.0)]);
    }

    #[test]
    fn what_has_no_weight_is_not_trained_at_any_granularity() {
        let by = weigh(Some("w"), 1.0);
        let gap = || vec![None, Some(2.0)];
        assert_eq!(weighed(&by, gap(), None), (vec![None, None, Some(-4.0)], Some(0.5)));
        let spans = vec![SpanCredit { turn: 0, start: 0, end: 1, advantage: Some(7.0) }];
        let finer = Credit { spans, ..Credit::per_turn([1.0, -2.0]) };
        assert_eq!(weighed(&by, gap(), Some(finer)).0, [None, None, Some(-4.0)]);
        let finest = Credit::of_tokens(2, Column::from(vec![Some(1.0), None, Some(3.0)]));
        assert_eq!(weighed(&by, gap(), Some(finest.clone())).0, [None, None, Some(6.0)]);
        assert_eq!(weighed(&by, vec![Some(2.0); 2], Some(finest)).0, [Some(2.0), None, Some(6.0)]);
    }

    #[test]
    fn it_needs_its_column() {
        assert_eq!(weigh(Some("w"), 1.0).needs(), [Need::Signal("w".into(), Scope::Turn)]);
        assert_eq!(weigh(None, 2.0).needs(), []);
    }
}
