//! How likely an action leads to success: a head on state and action, fitted to discounted outcomes.
//!
//! `Q(s, a) = σ(h(s, a))`, `h` being read after the last token of the turn. The target of a turn is the mean over the visits
//! of its pair of state and action in the batch of `(γ^e o + 1)/2`: `o = 2 R / r_max − 1` is what the environment paid on the
//! path, scaled to −1..=1, and `e` the number of turns that follow (`discount = "remaining"`). Loss: binary cross-entropy
//! against that soft label. It gives the column `q_value`, in 0..=1, also of turns that were sampled and not tried.
//!
//! Choudhury 2025, "Process Reward Models for LLM Agents: Practical Framework and Directions" (AgentPRM), arXiv 2502.10325;
//! sanjibanc/agent_prm `scripts/dataproc/compute_prm_target.py` at e471471.
//! Reductions: with `γ = 1` the label of a pair is its share of success, where outcomes are 0 or `r_max`.
//! Edge cases: a pair that was visited once has one path's outcome as its label. A path that was cut counts with what it was
//! paid until then. A path whose end was not tried is judged, not learned. What was paid beyond 0..=`r_max` is cut off at
//! the ends. Equal keys are equal pairs within a task only.
//! Authors' code differs: `e` is the index of the turn from the start, so that late turns are discounted most (`discount =
//! "step-index"`; counted from where the group starts); their state key holds the whole history, here it is the environment's.
//!
//! `critic/NAME/outcome_correlation` is the correlation over paths of the mean of `Q` with the outcome: a policy that learns to
//! please the model without solving tasks drives it down.
//!
//! Cost: one forward pass over the batch's paths to judge, counted as the critic's tokens, and one forward and backward pass over
//! those with labels to learn.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascribe_core::critic::Lesson;
use ascribe_core::environment::TaskId;
use ascribe_core::key::KeyId;
use ascribe_core::policy::{HeadSpec, PolicyError};
use ascribe_core::range::{NonNegative, Unit};
use ascribe_core::rollout::Acting;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, Need, Objective, Provide, Scope, Signal, plugin,
};
use ascribe_math::correlation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::turn_head::{TurnHead, paid, sigmoid};

const COLUMN: &str = "q_value";

/// `[critic.NAME.q-model]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QModel {
    /// Discount per turn, in 0..=1. The authors' code: 0.95.
    pub gamma: Unit,
    /// Which turns it counts.
    #[serde(default)]
    pub discount: Discount,
    /// Policy node whose turns are judged.
    #[serde(default = "crate::actor")]
    pub agent: String,
    /// Policy node that has the head; it learns with the settings of `[update]`.
    #[serde(default = "crate::actor")]
    pub node: String,
    /// Whether the head's gradient stops at the head, so that it moves nothing else of the node.
    #[serde(default)]
    pub detach_trunk: bool,
    /// Factor on its loss, 0 or more.
    #[serde(default = "crate::one")]
    pub loss_weight: NonNegative,
}

/// Which turns a discount counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Discount {
    /// Those that follow (the paper).
    #[default]
    Remaining,
    /// Those that came before (the authors' code).
    StepIndex,
}

plugin! {
    Critic "q-model" {
        summary: "How likely an action leads to success, from a head fitted to discounted outcomes.",
        source: "Choudhury 2025, AgentPRM, arXiv 2502.10325; sanjibanc/agent_prm",
        when: "To choose among sampled actions (`best-of-n`), or as a reward per turn. Only as good as its last fit: watch `outcome_correlation`.",
        example: "gamma = 0.95\ndiscount = \"remaining\"",
        module: "q_model.rs",
    }
    impl CriticConfig for QModel {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            let head = TurnHead {
                name: name.into(),
                agent: self.agent.clone(),
                node: self.node.clone(),
                detach_trunk: self.detach_trunk,
            };
            let objective = crate::lesson::objective("bce", serde_json::json!({ "head": name, "over": "turns" }))?;
            Ok(Box::new(Live { config: self.clone(), head, objective }))
        }
        fn needs(&self) -> Vec<Need> {
            [TurnHead::needs(&self.agent, &self.node), vec![Need::ExactStateKey]].concat()
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(COLUMN.into(), Scope::Turn)]
        }
    }
}

struct Live {
    config: QModel,
    head: TurnHead,
    objective: Arc<dyn Objective>,
}

/// Outcomes on −1..=1 of each group's paths; `None` where the end was not tried.
fn outcomes(batch: &Batch, r_max: f64) -> Result<Vec<Vec<Option<f64>>>, PolicyError> {
    if r_max <= 0.0 {
        return Err(PolicyError::Unsupported(format!(
            "the environment says that at most {r_max} can be earned: outcomes cannot be scaled by it"
        )));
    }
    let scaled = |paid: f64| 2.0 * (paid / r_max).clamp(0.0, 1.0) - 1.0;
    Ok(batch.groups().map(|group| paid(group).into_iter().map(|x| x.map(scaled)).collect()).collect())
}

/// Labels in 0..=1 by turn; `None` for what was not tried.
fn labels(batch: &Batch, outcomes: &[Vec<Option<f64>>], gamma: f64, discount: Discount) -> Vec<Option<f64>> {
    let mut visits: BTreeMap<(&TaskId, KeyId, KeyId), (f64, u32)> = BTreeMap::new();
    for (group, outcomes) in batch.groups().zip(outcomes) {
        for (path, outcome) in group.trajectories().zip(outcomes) {
            let Some(outcome) = outcome else { continue };
            let turns = path.turns();
            for (index, t) in turns.iter().enumerate() {
                let counted = match discount {
                    Discount::Remaining => turns.len() - 1 - index,
                    Discount::StepIndex => index,
                };
                let pair = (&group.about().task, group.states()[*t], group.actions()[*t]);
                let (sum, n) = visits.entry(pair).or_default();
                *sum += gamma.powf(counted as f64) * outcome;
                *n += 1;
            }
        }
    }
    let mut labels = vec![None; batch.turns.parent.len()];
    for group in batch.groups() {
        for t in group.tried().into_iter().enumerate().filter_map(|(t, tried)| tried.then_some(t)) {
            let visits = visits.get(&(&group.about().task, group.states()[t], group.actions()[t]));
            labels[group.rows().start + t] = visits.map(|(sum, n)| (sum / f64::from(*n) + 1.0) / 2.0);
        }
    }
    labels
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(COLUMN.into(), Scope::Turn)]
    }

    fn heads(&self) -> Vec<(String, HeadSpec)> {
        self.head.heads()
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let logit = self.head.read(batch, acting)?;
        let column: Column = (0..logit.len()).map(|r| logit.get(r).map(|h| sigmoid(f64::from(h)) as f32)).collect();
        let name = &self.head.name;
        acting.metrics.summarise(&format!("critic/{name}/q_value"), column.iter_present().map(f64::from));
        let (mut said, mut earned) = (Vec::new(), Vec::new());
        let outcomes = outcomes(batch, acting.tasks.capabilities().r_max)?;
        for (group, outcomes) in batch.groups().zip(outcomes) {
            for (path, outcome) in group.trajectories().zip(outcomes) {
                let q = path.turns_up().filter_map(|t| column.get(group.rows().start + t)).map(f64::from);
                let q: Vec<f64> = q.collect();
                if let (Some(outcome), false) = (outcome, q.is_empty()) {
                    said.push(q.iter().sum::<f64>() / q.len() as f64);
                    earned.push(outcome);
                }
            }
        }
        if let Some(correlation) = correlation(&said, &earned) {
            acting.metrics.set(format!("critic/{name}/outcome_correlation"), correlation);
        }
        Ok(vec![(COLUMN.into(), Signal { scope: Scope::Turn, provider: name.clone(), column })])
    }

    fn learn(&mut self, batch: &Batch, _credit: &[Credit], acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let outcomes = outcomes(batch, acting.tasks.capabilities().r_max)?;
        let labels = labels(batch, &outcomes, *self.config.gamma, self.config.discount);
        self.head.lesson(batch, acting, &labels, &self.objective, *self.config.loss_weight)
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, TurnLog};
    use ascribe_core::{End, Limit};

    use super::*;
    use crate::testing::{World, group};

    const ROLLOUT: &str = "groups = 12\ngroup_size = 4\ndecode = \"admissible\"";
    const TREE: &str = "seed = 0\ntasks = 2\ndepth = 3\nbranches = 2\nrewards = \"sparse\"\nstates = \"prefixes\"";

    /// Turns (parent, state, action, reward) and ends.
    fn forest(turns: &[(Option<usize>, u8, u8, f32)], leaves: &[(usize, End)]) -> Batch {
        let turn = |(parent, state, action, reward): &(Option<usize>, u8, u8, f32)| TurnLog {
            parent: *parent,
            agent: "actor".into(),
            read: vec![1],
            action: Action::given(vec![u32::from(*action), 2]),
            reward: *reward,
            state: vec![*state],
            action_key: vec![*action],
            ..TurnLog::default()
        };
        let group = group(turns.iter().map(turn).collect(), leaves);
        Batch::from_groups(vec![group], NonFinite::Refuse).unwrap()
    }

    const WON: End = End::Terminated { success: true };

    #[test]
    fn labels_are_discounted_outcomes_averaged_over_visits() {
        // Two paths begin with the same action: one wins in two turns, one loses after three; a third action was not tried.
        let turns = [
            (None, 0, 3, 0.0),
            (Some(0), 1, 3, 1.0),
            (None, 0, 3, 0.0),
            (Some(2), 1, 4, 0.0),
            (Some(3), 2, 3, 0.0),
            (None, 0, 4, 0.0),
        ];
        let batch = forest(&turns, &[(1, WON), (4, End::Truncated(Limit::Turns)), (5, End::Untried)]);
        let outcomes = outcomes(&batch, 1.0).unwrap();
        assert_eq!(outcomes, [[Some(1.0), Some(-1.0), None]]);
        let label = |x: f64| Some((x + 1.0) / 2.0);
        // γ = ½. Shared pair: (½ − ¼)/2; then 1; −½; −1.
        let shared = label(0.125);
        let want = [shared, label(1.0), shared, label(-0.5), label(-1.0), None];
        assert_eq!(labels(&batch, &outcomes, 0.5, Discount::Remaining), want);
        // From the start: (1 − 1)/2; then ½; −½; −¼.
        let want = [label(0.0), label(0.5), label(0.0), label(-0.5), label(-0.25), None];
        assert_eq!(labels(&batch, &outcomes, 0.5, Discount::StepIndex), want);
    }

    #[test]
    fn outcomes_are_scaled_by_what_can_be_earned() {
        let batch = forest(&[(None, 0, 3, 2.5), (None, 0, 4, 20.0), (None, 0, 5, -1.0)], &[(0, WON), (1, WON), (2, WON)]);
        assert_eq!(outcomes(&batch, 10.0).unwrap(), [[Some(-0.5), Some(1.0), Some(-1.0)]]);
        assert!(outcomes(&batch, 0.0).unwrap_err().to_string().contains("cannot be scaled"));
    }

    #[test]
    fn it_learns_its_labels_and_judges_what_was_not_tried() {
        let mut world = World::new(("token-tree", TREE), &["actor"], Vec::new());
        let mut critic = world.critic_with_heads("q", "q-model", "gamma = 1.0");
        let batch = world.batch("independent", ROLLOUT);
        let outcomes = outcomes(&batch, 1.0).unwrap();
        let labels = labels(&batch, &outcomes, 1.0, Discount::Remaining);
        let mut errors = Vec::new();
        for _ in 0..100 {
            let mut judged = batch.clone();
            world.judge(&mut critic, &mut judged).unwrap();
            let said = judged.signals[COLUMN].column.all().unwrap();
            let error = said.iter().zip(&labels).map(|(q, y)| (f64::from(*q) - y.unwrap()).abs());
            errors.push(error.sum::<f64>() / said.len() as f64);
            world.learn(&mut critic, &batch, 0.1);
        }
        assert!(errors[0] > 0.1 && errors[99] < 0.02, "{} {}", errors[0], errors[99]);
        let correlation = world.metrics.get("critic/q/outcome_correlation").unwrap();
        assert!(correlation > 0.5, "{correlation}");
        // The same actions, not carried out: they have numbers, and nothing is learned from them.
        let turns = [(None, 0, 3, 0.0), (None, 0, 4, 0.0)];
        let mut candidates = forest(&turns, &[(0, End::Untried), (1, End::Untried)]);
        world.judge(&mut critic, &mut candidates).unwrap();
        assert_eq!(candidates.signals[COLUMN].column.all().unwrap(), [0.5, 0.5]);
        assert!(world.lessons(&mut critic, &candidates).is_empty());
    }
}
