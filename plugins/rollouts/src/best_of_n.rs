//! In every turn several actions are sampled, a critic judges them, and the best is carried out.
//!
//! `a_t = argmax_{i ≤ n} c(s_t, a_t^i)`, `a_t^i ~ π(· | s_t)`, where `c` is a column that a critic provides on turns. The others stay in the
//! records as paths that were not tried: they have no outcome and move no mean, but preferences (`pairs` with the same `column`) train
//! on them.
//!
//! Choudhury 2025, "Process Reward Models for LLM Agents" (AgentPRM), arXiv 2502.10325, acts so at inference, and makes its
//! preferences from candidates that the same critic compares.
//!
//! Reductions: with `candidates = 1` it is `independent`. With a constant column it is `independent` beside which actions
//! were drawn and not made.
//!
//! Edge cases: of equal candidates the first is carried out, the one that `independent` would have made. A candidate without
//! a number loses against all that have one. What is carried out is no sample of the policy alone: estimators that average
//! outcomes see the better policy of both, and ratios start from what the policy itself said of each token.
//!
//! Cost: `n` times the sampled tokens, what is read once per turn, and the critic's judgement of `n` paths per turn.

use ascribe_core::Batch;
use ascribe_core::batch::GroupRow;
use ascribe_core::log::GroupLog;
use ascribe_core::play::{Candidates, Decode, Play, Resting};
use ascribe_core::range::{Between, Positive};
use ascribe_core::rollout::{Acting, RolloutError, node};
use ascribe_core::{BuildContext, BuildError, Need, Provide, RolloutConfig, RolloutStrategy, Scope, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[rollout.best-of-n]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BestOfN {
    /// Tasks per update, in 1..=65536.
    pub groups: Between<1, 65_536>,
    /// Episodes per task, in 1..=1024.
    pub group_size: Between<1, 1024>,
    /// Actions that are sampled in each turn, in 1..=256.
    pub candidates: Between<1, 256>,
    /// The critic's column on turns that decides: the largest number wins.
    pub column: String,
    /// Sampling temperature, positive.
    #[serde(default = "crate::one")]
    pub temperature: Positive,
    /// What actions may be made of.
    #[serde(default)]
    pub decode: Decode,
    /// Policy node that acts.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

plugin! {
    Rollout "best-of-n" {
        summary: "Each turn the best of several sampled actions by a critic's column; the others are kept for preferences.",
        source: "Choudhury 2025, AgentPRM, arXiv 2502.10325",
        when: "With `pairs` (`of = \"siblings\"`, the same `column`) and `dpo`: preferences between actions from one state. A critic that knows nothing makes it a dear `independent`.",
        example: "groups = 8\ngroup_size = 2\ncandidates = 4\ncolumn = \"advantage_true\"",
        module: "best_of_n.rs",
    }
    impl RolloutConfig for BestOfN {
        fn build(&self, _context: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            Ok(Box::new(self.clone()))
        }
        fn needs(&self) -> Vec<Need> {
            [vec![Need::Signal(self.column.clone(), Scope::Turn)], crate::needs_of(self.decode)].concat()
        }
        fn provides(&self) -> Vec<Provide> {
            crate::branch::provides(*self.group_size, *self.candidates > 1)
        }
        fn agent(&self) -> &str {
            &self.agent
        }
        fn decode(&self) -> Decode {
            self.decode
        }
    }
}

/// What a column says of the candidates of each group of a batch, which come after `before[group]` turns of its path.
fn judged(batch: &Batch, column: &str, before: &[usize], n: usize) -> Vec<Vec<Option<f32>>> {
    let column = &batch.signals[column].column;
    let of_group = |(group, before): (&GroupRow, &usize)| {
        // Candidates all have a choice of token, or none has: they keep their order behind their path.
        let first = group.rows.start.min(group.aside_rows.start) as usize + before;
        (first..first + n).map(|row| column.get(row)).collect()
    };
    batch.groups.iter().zip(before).map(of_group).collect()
}

/// The largest number's place, the first of equals; what has no number loses.
fn best(numbers: &[Option<f32>]) -> usize {
    let number = |i: usize| numbers[i].map_or(f32::NEG_INFINITY, |x| x);
    (0..numbers.len()).fold(0, |best, i| if number(i) > number(best) { i } else { best })
}

impl RolloutStrategy for BestOfN {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        let starts = acting.draw(self.groups.get())?;
        let stream = acting.stream("rollout");
        let play = Play {
            temperature: *self.temperature as f32,
            decode: self.decode,
            ..acting.play(&self.agent, &starts, self.group_size.get(), &stream)
        };
        let n = self.candidates.get();
        let (mut gains, mut gaps) = (Vec::new(), Vec::new());
        let mut crowd = {
            let Acting { nodes, tasks, ledger, .. } = &mut *acting;
            Resting::open(&play, &mut **node(nodes, &self.agent)?, &**tasks, ledger)?
        };
        loop {
            // Turns on the path of each acting episode, and its candidates as a group.
            let (before, groups) = {
                let Acting { nodes, tasks, ledger, .. } = &mut *acting;
                let policy = &mut **node(nodes, &self.agent)?;
                crowd.with(&**tasks, |crowd| {
                    let acting: Vec<usize> = crowd.sample(n, policy, ledger)?.iter().map(Candidates::episode).collect();
                    let before = acting.into_iter().map(|episode| crowd.path(episode).len()).collect::<Vec<usize>>();
                    let groups = if n > 1 { crowd.candidates() } else { Vec::new() };
                    Ok::<_, RolloutError>((before, groups))
                })?
            };
            if before.is_empty() {
                break;
            }
            let mut chosen = vec![0; before.len()];
            if n > 1 {
                let batch = acting.judge(groups, &self.column)?;
                for (chosen, numbers) in chosen.iter_mut().zip(judged(&batch, &self.column, &before, n)) {
                    *chosen = best(&numbers);
                    if let Some(numbers) = numbers.into_iter().map(|x| x.map(f64::from)).collect::<Option<Vec<f64>>>() {
                        gains.push(numbers[*chosen] - numbers[0]);
                        gaps.push(numbers[*chosen] - numbers.iter().copied().fold(f64::INFINITY, f64::min));
                    }
                }
            }
            let Acting { nodes, tasks, ledger, .. } = &mut *acting;
            let policy = &mut **node(nodes, &self.agent)?;
            crowd.with(&**tasks, |crowd| crowd.act(&chosen, policy, ledger));
        }
        acting.metrics.summarise("rollout/best_of/gain", gains);
        acting.metrics.summarise("rollout/best_of/gap", gaps);
        let Acting { nodes, tasks, ledger, .. } = acting;
        Ok(crowd.finish(&mut **node(nodes, &self.agent)?, &**tasks, ledger))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_wins_and_what_has_no_number_loses() {
        assert_eq!(best(&[Some(0.0), Some(2.0), Some(2.0)]), 1);
        assert_eq!(best(&[None, Some(-9.0), None]), 1);
        assert_eq!(best(&[None, None]), 0);
        assert_eq!(best(&[Some(-0.0), Some(0.0)]), 0);
    }
}
