//! Puts more weight on planning: tokens in a named span get a bonus in proportion to the size of their advantage.
//!
//! `A ← A + α |A|` on planning tokens: what went well is praised more there, what went badly is blamed less.
//!
//! Wang et al. 2025, "Emergent Hierarchical Reasoning in LLMs through Reinforcement Learning" (HICRA), arXiv 2509.03646
//! (`α = 0.2`). The paper finds planning tokens by n-grams ("strategic grams"); here they are a span that the
//! environment's or policy's parser names. Reductions: `α = 0` changes nothing.
//! Edge cases: spans that overlap count once; without such a span nothing happens, and the metric is 0. Untrained stays
//! untrained.

use ascribe_core::credit::spread;
use ascribe_core::range::NonNegative;
use ascribe_core::{Batch, Column, Credit, CreditTransform, Group, Metrics, Now, Seeds, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[[transform]] hicra = {}`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hicra {
    /// Size of the bonus as a share of the advantage's, 0 or more. Paper: 0.2.
    #[serde(default = "paper_alpha")]
    pub alpha: NonNegative,
    /// Name of the span that holds planning tokens.
    #[serde(default = "plan")]
    pub span: String,
}

fn paper_alpha() -> NonNegative {
    NonNegative::try_from(0.2).expect("not negative")
}
fn plan() -> String {
    "plan".into()
}

impl Hicra {
    /// Which sampled tokens of a group lie in a planning span.
    fn planning(&self, group: Group<'_>) -> Vec<bool> {
        let batch = group.batch();
        let mut planning = vec![false; group.sampled().len()];
        for t in 0..group.n_turns() {
            let row = group.rows().start + t;
            let spans: Vec<_> = batch.notes[row].spans.iter().filter(|s| s.name == self.span).collect();
            for i in group.sampled_of(t) {
                let at = batch.sampled.at[group.sampled().start + i] - batch.turns.action_start[row];
                planning[i] = spans.iter().any(|s| (s.start..s.end).contains(&at));
            }
        }
        planning
    }
}

plugin! {
    Transform "hicra" {
        summary: "Raises the advantage of planning tokens, those in a named span, by a share of its size.",
        source: "Wang et al. 2025, HICRA, arXiv 2509.03646",
        when: "Where actions have a named planning part. It is asymmetric: planning is blamed less than it is praised.",
        example: "",
        module: "hicra.rs",
    }
    impl CreditTransform for Hicra {
        fn apply(&self, batch: &Batch, credit: &mut [Credit], _now: &Now, _seeds: Seeds) -> Metrics {
            let (mut raised, mut trained) = (0.0, 0.0);
            for (group, credit) in batch.groups().zip(credit) {
                let tokens = spread(group, credit).advantage;
                trained += tokens.iter_present().count() as f64;
                for (i, planning) in self.planning(group).into_iter().enumerate() {
                    let Some(a) = tokens.get(i).filter(|_| planning) else { continue };
                    if credit.tokens.is_empty() {
                        credit.tokens = Column::absent(tokens.len());
                    }
                    credit.tokens.set(i, (f64::from(a) + *self.alpha * f64::from(a.abs())) as f32);
                    raised += 1.0;
                }
            }
            let mut metrics = Metrics::default();
            metrics.set("credit/hicra/planning_rate", if trained == 0.0 { 0.0 } else { raised / trained });
            metrics
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{build, logs};
    use ascribe_core::credit::SpanCredit;
    use ascribe_core::log::NamedSpan;

    fn hicra() -> Hicra {
        Hicra { alpha: paper_alpha(), span: plan() }
    }
    fn span(name: &str, start: u32, end: u32) -> NamedSpan {
        NamedSpan { name: name.into(), start, end }
    }

    #[test]
    fn planning_is_praised_more_and_blamed_less() {
        let (mut logs, mut credit) = logs(&[&[&[(3, 1.0), (2, -1.0), (2, 1.0)]]]);
        logs[0].turns[0].spans = vec![span("plan", 0, 2), span("plan", 1, 2), span("call", 2, 3)];
        logs[0].turns[1].read = vec![7; 4];
        logs[0].turns[1].spans = vec![span("plan", 1, 2)];
        logs[0].turns[2].spans = vec![span("plan", 0, 2)];
        credit[0].turns[2] = None;
        let batch = build(logs);
        let metrics = hicra().apply(&batch, &mut credit, &Now::default(), Seeds(0));
        let got = spread(batch.group(0), &credit[0]).advantage;
        assert_eq!(got, [Some(1.2), Some(1.2), Some(1.0), Some(-1.0), Some(-0.8), None, None]);
        assert_eq!(metrics.get("credit/hicra/planning_rate"), Some(3.0 / 5.0));
    }

    #[test]
    fn finer_credit_is_what_is_raised() {
        let (mut logs, mut credit) = logs(&[&[&[(3, 1.0)]]]);
        logs[0].turns[0].spans = vec![span("plan", 0, 3)];
        credit[0].spans = vec![SpanCredit { turn: 0, start: 0, end: 1, advantage: None }];
        credit[0].tokens = vec![None, Some(-5.0), None].into();
        let batch = build(logs);
        hicra().apply(&batch, &mut credit, &Now::default(), Seeds(0));
        assert_eq!(spread(batch.group(0), &credit[0]).advantage, [None, Some(-4.0), Some(1.2)]);
    }

    #[test]
    fn without_the_span_nothing_happens() {
        let (logs, mut credit) = logs(&[&[&[(3, 1.0)]]]);
        let before = credit.clone();
        let metrics = hicra().apply(&build(logs), &mut credit, &Now::default(), Seeds(0));
        assert_eq!((credit, metrics.get("credit/hicra/planning_rate")), (before, Some(0.0)));
    }
}
