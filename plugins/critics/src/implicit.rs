//! A reward per token from how much likelier a scoring policy finds it than a reference does.
//!
//! `r_k = β (log π_φ(a_k | ·) − log π_ref(a_k | ·))`, in the column `implicit_reward` on tokens. The policy node `node` is `φ`; it
//! is trained so that `σ(Σ_k r_k)` says whether the path succeeded (`loss = "outcome"`), or that of two paths of a group the one
//! that succeeded has the larger sum (`loss = "pairs"`, the objective `dpo`).
//!
//! Cui et al. 2025, "Process Reinforcement through Implicit Rewards" (PRIME), arXiv 2502.01456; PRIME-RL/PRIME
//! `training/verl/workers/actor/dp_prime.py` at 18ad596f: outcome, frozen reference, β = 0.05. Liu et al. 2025, "iStar", arXiv
//! 2509.19199; Tongyi-ConvAI/Qwen-Character `istar/dp_rm.py` at 1de87a22: pairs, and `reference = "behavior"`, the policy
//! that sampled.
//! Reductions: a node that is the reference rewards nothing. As a reward column (`[reward] implicit_reward = 1.0`) a turn earns
//! the sum over its tokens.
//! Edge cases: tokens without a log-probability of the reference have no reward, and rows that hold one are not learned. A group
//! without both outcomes has no pairs; the i-th success is paired with the i-th failure, and what is left over is not learned.
//! What was cut counts as a failure; what was not tried is judged, not learned. A path whose contexts begin anew lies in
//! several rows: each learns the outcome by itself, or all of them as one side of a pair.
//! Authors' code differs: PRIME divides a batch's rewards by the largest sum to go (transforms do that to advantages here); its
//! order of updates (scorer before or after the policy) is that of the loop here, both at once.
//!
//! Cost: a second policy: one scoring pass of it over the batch's paths, counted as the critic's tokens, and one forward and backward
//! pass over those that it learns from. The reference's pass is that of `reference`; `"behavior"` has none.

use std::sync::Arc;

use ascribe_core::credit::Bundle;
use ascribe_core::critic::{Lesson, LessonRows};
use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{PolicyError, ScoreRequest};
use ascribe_core::range::{NonNegative, Positive};
use ascribe_core::rollout::Acting;
use ascribe_core::rows::column::BEHAVIOR_LOGPROB;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, End, Group, Need, Objective, Provide, RowSet, Scope,
    Signal, plugin,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::REFERENCE_LOGPROB;
use crate::scored;

const COLUMN: &str = "implicit_reward";

/// `[critic.NAME.implicit]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Implicit {
    /// Policy node that scores and is trained to; not the one that acts.
    pub node: String,
    /// How much a log-ratio counts, above 0. PRIME and iStar: 0.05.
    #[serde(default = "beta")]
    pub beta: Positive,
    /// What it is compared with.
    #[serde(default)]
    pub reference: Reference,
    /// What it learns.
    #[serde(default)]
    pub loss: Loss,
    /// Policy node whose tokens are scored.
    #[serde(default = "crate::actor")]
    pub agent: String,
    /// Factor on its loss, 0 or more.
    #[serde(default = "crate::one")]
    pub loss_weight: NonNegative,
}

fn beta() -> Positive {
    Positive::try_from(0.05).expect("in range")
}

/// What a scoring policy is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// The column `reference_logprob` of a critic `reference`.
    #[default]
    Column,
    /// The policy that sampled.
    Behavior,
}

/// What a scoring policy learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Whether a path succeeded.
    #[default]
    Outcome,
    /// Which of two paths succeeded.
    Pairs,
}

plugin! {
    Critic "implicit" {
        summary: "A reward per token from a policy that is trained to tell success from failure.",
        source: "Cui et al. 2025, PRIME, arXiv 2502.01456; iStar, arXiv 2509.19199",
        when: "A dense reward without labels of steps, where a second policy can be afforded. Beside the outcome, not in its place.",
        example: "node = \"scorer\"\nbeta = 0.05\nloss = \"outcome\"",
        module: "implicit.rs",
    }
    impl CriticConfig for Implicit {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            if self.node == self.agent {
                return Err(BuildError::Config(format!(
                    "`node` is `{}`, which acts: a scorer needs a policy node of its own, `[policy.NAME]`", self.node
                )));
            }
            let objective = match self.loss {
                Loss::Outcome => {
                    crate::lesson::objective("implicit-reward", serde_json::json!({ "beta": *self.beta, "target": name }))?
                }
                Loss::Pairs => crate::lesson::objective("dpo", serde_json::json!({ "beta": *self.beta }))?,
            };
            Ok(Box::new(Live { name: name.into(), config: self.clone(), objective }))
        }
        fn needs(&self) -> Vec<Need> {
            let reference = match self.reference {
                Reference::Column => Need::Signal(REFERENCE_LOGPROB.into(), Scope::Token),
                Reference::Behavior => Need::BehaviorLogprob,
            };
            vec![Need::Node(self.agent.clone()), Need::Node(self.node.clone()), Need::Chains, reference]
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(COLUMN.into(), Scope::Token)]
        }
    }
}

struct Live {
    name: String,
    config: Implicit,
    objective: Arc<dyn Objective>,
}

impl Live {
    /// Log-probabilities of the reference, of some rows' trained tokens.
    fn reference(&self, rows: &RowSet) -> Column {
        let name = match self.config.reference {
            Reference::Column => format!("signal/{REFERENCE_LOGPROB}"),
            Reference::Behavior => BEHAVIOR_LOGPROB.into(),
        };
        rows.columns.get(&name).cloned().unwrap_or_else(|| Column::absent(rows.n_trained()))
    }
}

/// Pairs of a group, each success with a failure; what is in none has no credit.
fn paired(group: Group<'_>) -> Credit {
    let ends: Vec<&End> = group.trajectories().map(|path| &path.leaf().end).collect();
    let of = |wanted: &dyn Fn(&End) -> bool| (0..ends.len()).filter(|i| wanted(ends[*i])).collect::<Vec<_>>();
    let (won, lost) = (of(&End::success), of(&|end: &End| !end.success() && *end != End::Untried));
    let bundles: Vec<Bundle> =
        won.iter().zip(&lost).map(|(chosen, rejected)| Bundle { chosen: *chosen, rejected: *rejected }).collect();
    let mut credit = Credit::per_turn(vec![0.0; group.n_turns()]);
    for (i, path) in group.trajectories().enumerate() {
        if !bundles.iter().any(|b| b.chosen == i || b.rejected == i) {
            path.turns_up().for_each(|t| credit.turns[t] = None);
        }
    }
    credit.bundles = bundles;
    credit
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(COLUMN.into(), Scope::Token)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let rows = scored::rows(batch, &self.config.agent);
        let mut column = Column::absent(batch.scope_len(Scope::Token));
        if !rows.is_empty() {
            let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
            let logprob = acting.node(&self.config.node)?.score(&rows, &request)?.columns.pop().unwrap_or_default();
            acting.ledger.critic_tokens += scored::n_tokens(&rows);
            let reference = self.reference(&rows);
            let reward = |i: usize| reference.get(i).map(|r| (*self.config.beta * (f64::from(logprob[i]) - f64::from(r))) as f32);
            for turn in &rows.turns {
                let sampled = batch.turns.sampled[turn.turn as usize].range();
                for (at, i) in sampled.zip(turn.trained.clone()) {
                    if let Some(reward) = reward(i) {
                        column.set(at, reward);
                    }
                }
            }
        }
        let metric = format!("critic/{}/implicit_reward", self.name);
        acting.metrics.summarise(&metric, column.iter_present().map(f64::from));
        Ok(vec![(COLUMN.into(), Signal { scope: Scope::Token, provider: self.name.clone(), column })])
    }

    fn learn(&mut self, batch: &Batch, _credit: &[Credit], _acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let mut rows = match self.config.loss {
            Loss::Outcome => scored::rows(batch, &self.config.agent),
            Loss::Pairs => {
                let credit: Vec<Credit> = batch.groups().map(paired).collect();
                RowSet::from_credit(batch, &credit, Some(&self.config.agent))
            }
        };
        let reference = self.reference(&rows);
        let end = |row: &ascribe_core::rows::RowBounds| {
            let first = batch.groups[row.group as usize].leaves.range().start;
            &batch.leaves[first + row.trajectory as usize].end
        };
        let known: Vec<u32> = (0u32..)
            .zip(&rows.rows)
            .filter(|(_, row)| reference.slice(row.trained.clone()).is_some() && *end(row) != End::Untried)
            .map(|(r, _)| r)
            .collect();
        rows.columns.insert(format!("signal/{REFERENCE_LOGPROB}"), reference);
        let mut rows = rows.subset(&known);
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        if self.config.loss == Loss::Outcome {
            let mut target = vec![0.0; rows.n_trained()];
            for row in &rows.rows {
                target[row.trained.clone()].fill(f32::from(u8::from(end(row).success())));
            }
            rows.columns.insert(format!("target/{}", self.name), Column::full(target));
        }
        Ok(vec![Lesson {
            node: self.config.node.clone(),
            rows: LessonRows::Own(Arc::new(rows)),
            objective: self.objective.clone(),
            scale: *self.config.loss_weight,
        }])
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::NamedCritic;

    use super::*;
    use crate::testing::World;

    const ROLLOUT: &str = "groups = 12\ngroup_size = 4\ndecode = \"admissible\"";

    fn named(world: &World, body: &str) -> NamedCritic {
        let body = format!("node = \"scorer\"\nreference = \"behavior\"\n{body}");
        NamedCritic { name: "imp".into(), critic: world.critic("imp", "implicit", &body) }
    }

    /// Sums over paths of the reward, of those that succeeded and of the others: means.
    fn sums(batch: &Batch) -> (f64, f64) {
        let (mut won, mut lost) = (Vec::new(), Vec::new());
        for group in batch.groups() {
            let reward: Vec<Option<f32>> = group.token_signal(COLUMN).collect();
            for path in group.trajectories() {
                let tokens = path.turns_up().flat_map(|t| group.sampled_of(t));
                let sum: f64 = tokens.map(|i| f64::from(reward[i].unwrap())).sum();
                if path.leaf().end.success() { won.push(sum) } else { lost.push(sum) }
            }
        }
        assert!(!won.is_empty() && !lost.is_empty());
        (ascribe_math::moments(&won).mean, ascribe_math::moments(&lost).mean)
    }

    #[test]
    fn a_scorer_learns_to_tell_success_from_failure() {
        for loss in ["outcome", "pairs"] {
            let mut world = World::new(("repair-mdp", ""), &["actor", "scorer"], Vec::new());
            let mut critic = named(&world, &format!("beta = 0.5\nloss = \"{loss}\""));
            let mut first = world.batch("independent", ROLLOUT);
            world.judge(&mut critic, &mut first).unwrap();
            // Both nodes are untrained tables: nothing is likelier for one of them.
            assert!(first.signals[COLUMN].column.all().unwrap().iter().all(|r| r.abs() < 1e-6));
            for _ in 0..60 {
                let batch = world.batch("independent", ROLLOUT);
                world.learn(&mut critic, &batch, 0.05);
            }
            let mut batch = world.batch("independent", ROLLOUT);
            world.judge(&mut critic, &mut batch).unwrap();
            let (won, lost) = sums(&batch);
            assert!(won > lost + 0.3, "{loss}: {won} {lost}");
        }
    }

    #[test]
    fn the_acting_node_cannot_score_itself() {
        let config: Implicit = toml::from_str("node = \"actor\"").unwrap();
        let context = BuildContext {
            seeds: ascribe_core::Seeds(0),
            device: "cpu",
            threads: 1,
            environment: None,
            nodes: std::collections::BTreeSet::new(),
            base: std::path::PathBuf::new(),
        };
        let error = config.build("imp", &context).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("of its own"), "{error}");
    }

    #[test]
    fn without_a_reference_there_is_neither_reward_nor_lesson() {
        let mut world = World::new(("repair-mdp", ""), &["actor", "scorer"], Vec::new());
        let body = "node = \"scorer\"";
        let mut critic = NamedCritic { name: "imp".into(), critic: world.critic("imp", "implicit", body) };
        let mut batch = world.batch("independent", ROLLOUT);
        let mut column = Column::absent(batch.scope_len(Scope::Token));
        let first = batch.turns.sampled[batch.group(0).trajectories().next().unwrap().turns()[0]].range();
        first.clone().for_each(|i| column.set(i, -0.25));
        batch.add_signal(REFERENCE_LOGPROB, Signal { scope: Scope::Token, provider: "test".into(), column }).unwrap();
        world.judge(&mut critic, &mut batch).unwrap();
        let column = &batch.signals[COLUMN].column;
        assert_eq!(column.iter_present().count(), first.len());
        // β (log π − log π_ref)
        let want = 0.05 * (f64::from(batch.sampled.logprob.get(first.start).unwrap()) + 0.25);
        assert!((f64::from(column.get(first.start).unwrap()) - want).abs() < 1e-6);
        let n: usize = world.lessons(&mut critic, &batch).iter().map(|lesson| lesson.rows.own().unwrap().len()).sum();
        assert_eq!(n, usize::from(batch.group(0).trajectories().next().unwrap().turns().len() == 1));
    }
}
