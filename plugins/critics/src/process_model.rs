//! How good a step is: a head on state and action, fitted to labels of steps.
//!
//! `p_t = σ(h(s_t, a_t))`, `h` being read after the last token of the turn; binary cross-entropy against the label `y_t` in 0..=1.
//! It gives a column on turns (`process_reward`): `2 p − 1`, or `p`.
//!
//! Lightman et al. 2023, "Let's Verify Step by Step" (PRM800K), arXiv 2305.20050: labels by people, here a column. Wang et al.
//! 2023, "Math-Shepherd", arXiv 2312.08935: labels by playing on from the state after the step, `N` of 8 in the paper; soft, the
//! share of continuations that succeed, or hard, whether one does. `2 p − 1` is the form of PURE (arXiv 2504.15275), which the
//! estimator `pure` takes.
//! Reductions: labels that are the outcome of the path make it an outcome model that is asked at every step.
//! Edge cases: after the last turn of a path that came to its end nothing is played on: its label is whether the task was solved.
//! A soft label is `mc_value / r_max`, cut off at 0 and 1: a share where the environment pays `r_max` for success and nothing
//! else. Turns without a label, and turns that were not tried, are judged, not learned. Sums of positive scores reward long
//! episodes: with `scale = "probability"` prefer the estimator `pure`, or a mean.
//!
//! Cost: one forward pass over the batch's paths to judge, counted as the critic's tokens, and one forward and backward pass over
//! those with labels to learn. Labels by playing on cost what `monte-carlo` does.

use std::sync::Arc;

use ascribe_core::critic::Lesson;
use ascribe_core::log::Validity;
use ascribe_core::policy::{HeadSpec, PolicyError};
use ascribe_core::range::{Finite, NonNegative};
use ascribe_core::rollout::Acting;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, End, Need, Objective, Provide, Scope, Signal, plugin,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::targets::MC_VALUE;
use crate::turn_head::{TurnHead, sigmoid};

/// `[critic.NAME.process-model]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessModel {
    /// Where labels come from.
    pub labels: Labels,
    /// What is given.
    #[serde(default)]
    pub scale: Scale,
    /// Name of the column that it gives; another one where the environment has one of that name.
    #[serde(default = "crate::process_reward")]
    pub column: String,
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

/// Where labels of steps come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Labels {
    /// Whether the environment carried the action out.
    Validity,
    /// A column on turns, of the environment or of another critic.
    Column(LabelColumn),
    /// The share of continuations that solve the task, from the column `mc_value` of a critic `monte-carlo`.
    MonteCarloSoft,
    /// Whether any continuation solves it.
    MonteCarloHard,
}

/// A column as labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelColumn {
    /// Its name.
    pub name: String,
    /// The number that is label 0, and what lies below it.
    pub bad: Finite,
    /// The number that is label 1, and what lies above it; above `bad`.
    pub good: Finite,
}

/// What is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// `2 p − 1`, in −1..=1.
    #[default]
    Signed,
    /// `p`, in 0..=1.
    Probability,
}

plugin! {
    Critic "process-model" {
        summary: "How good a step is, from a head fitted to labels of steps.",
        source: "Lightman et al. 2023, arXiv 2305.20050; Math-Shepherd, arXiv 2312.08935",
        when: "With the estimator `pure`, or as a reward per turn, where steps have labels or a critic `monte-carlo` gives them.",
        example: "labels = { column = { name = \"tool_ok\", bad = 0.0, good = 1.0 } }\nscale = \"signed\"",
        module: "process_model.rs",
    }
    impl CriticConfig for ProcessModel {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            if let Labels::Column(LabelColumn { name, bad, good }) = &self.labels {
                if **bad >= **good {
                    return Err(BuildError::Config(format!(
                        "`labels.column.bad` must be less than `good` = {}, got {}", **good, **bad
                    )));
                }
                if *name == self.column {
                    return Err(BuildError::Config(format!(
                        "`labels.column.name` is the column `{name}` that the critic gives: call that another name, `column`"
                    )));
                }
            }
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
            let mut needs = TurnHead::needs(&self.agent, &self.node);
            match &self.labels {
                Labels::Validity => {}
                Labels::Column(column) => needs.push(Need::Signal(column.name.clone(), Scope::Turn)),
                Labels::MonteCarloSoft | Labels::MonteCarloHard => needs.push(Need::Signal(MC_VALUE.into(), Scope::State)),
            }
            needs
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(self.column.clone(), Scope::Turn)]
        }
    }
}

struct Live {
    config: ProcessModel,
    head: TurnHead,
    objective: Arc<dyn Objective>,
}

impl Live {
    /// Labels in 0..=1 by turn.
    fn labels(&self, batch: &Batch, r_max: f64) -> Vec<Option<f64>> {
        let mut labels = vec![None; batch.turns.parent.len()];
        for group in batch.groups() {
            let column: Option<Vec<Option<f32>>> = match &self.config.labels {
                Labels::Column(column) => Some(group.turn_signal(&column.name).collect()),
                _ => None,
            };
            for t in group.tried().into_iter().enumerate().filter_map(|(t, tried)| tried.then_some(t)) {
                let r = group.rows().start + t;
                labels[r] = match &self.config.labels {
                    Labels::Validity => Some(f64::from(u8::from(batch.turns.validity[r] == Validity::Valid))),
                    Labels::Column(LabelColumn { bad, good, .. }) => {
                        let x = column.as_ref().and_then(|column| column[t]);
                        x.map(|x| ((f64::from(x) - **bad) / (**good - **bad)).clamp(0.0, 1.0))
                    }
                    hard_or_soft => Some(match group.end(t).filter(|_| group.n_children(t) == 0) {
                        Some(End::Terminated { success }) => f64::from(u8::from(*success)),
                        _ => {
                            let value = group.state_signal(MC_VALUE).after(t);
                            if *hard_or_soft == Labels::MonteCarloHard {
                                f64::from(u8::from(value > 0.0))
                            } else {
                                (value / r_max).clamp(0.0, 1.0)
                            }
                        }
                    }),
                };
            }
        }
        labels
    }
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(self.config.column.clone(), Scope::Turn)]
    }

    fn heads(&self) -> Vec<(String, HeadSpec)> {
        self.head.heads()
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let logit = self.head.read(batch, acting)?;
        let given = |h: f32| {
            let p = sigmoid(f64::from(h));
            match self.config.scale {
                Scale::Signed => 2.0 * p - 1.0,
                Scale::Probability => p,
            }
        };
        let column: Column = (0..logit.len()).map(|r| logit.get(r).map(|h| given(h) as f32)).collect();
        let name = &self.head.name;
        acting.metrics.summarise(&format!("critic/{name}/process_reward"), column.iter_present().map(f64::from));
        let signal = Signal { scope: Scope::Turn, provider: name.clone(), column };
        Ok(vec![(self.config.column.clone(), signal)])
    }

    fn learn(&mut self, batch: &Batch, _credit: &[Credit], acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let r_max = acting.tasks.capabilities().r_max;
        if self.config.labels == Labels::MonteCarloSoft && r_max <= 0.0 {
            return Err(PolicyError::Unsupported(format!(
                "the environment says that at most {r_max} can be earned: values are no shares of it; use `labels = \"monte-carlo-hard\"`"
            )));
        }
        let labels = self.labels(batch, r_max);
        self.head.lesson(batch, acting, &labels, &self.objective, *self.config.loss_weight)
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
    use ascribe_core::{Limit, NamedCritic};

    use super::*;
    use crate::testing::World;

    fn world() -> World {
        World::new(("repair-mdp", ""), &["actor"], Vec::new())
    }

    /// A path of two turns that comes to its end, one that is cut, and a turn that was not tried, with values of the states after.
    fn batch() -> Batch {
        let turn = |parent: Option<usize>, token: u32, validity: Validity, tool_ok: Option<f32>| TurnLog {
            parent,
            agent: "actor".into(),
            read: vec![1],
            action: Action::given(vec![token, 2]),
            validity,
            state: vec![parent.map_or(0, |p| p as u8 + 1)],
            signals: tool_ok.map(|x| ("tool_ok".into(), x)).into_iter().collect(),
            ..TurnLog::default()
        };
        let turns = vec![
            turn(None, 3, Validity::Valid, Some(-1.0)),
            turn(Some(0), 4, Validity::Refused, Some(0.5)),
            turn(None, 5, Validity::Valid, None),
            turn(None, 6, Validity::Valid, Some(7.0)),
        ];
        let ends = [(1, End::Terminated { success: true }), (2, End::Truncated(Limit::Turns)), (3, End::Untried)];
        let leaves = ends.map(|(turn, end)| LeafLog { turn: Some(turn), end, seed: 0 }).to_vec();
        let group = GroupLog { task_name: "task".into(), turns, leaves, ..GroupLog::default() };
        let mut batch = Batch::from_groups(vec![group], NonFinite::Refuse).unwrap();
        let column = Column::full(vec![9.0, 0.5, 0.0, 0.25, 9.0]);
        batch.add_signal(MC_VALUE, Signal { scope: Scope::State, provider: "test".into(), column }).unwrap();
        batch
    }

    fn targets(labels: &str) -> Vec<Option<f32>> {
        let mut world = world();
        let mut critic = world.critic_with_heads("prm", "process-model", &format!("labels = {labels}"));
        let lesson = world.lessons(&mut critic, &batch()).remove(0);
        let mut targets = vec![None; 4];
        for (i, turn) in lesson.rows.own().unwrap().turns.iter().enumerate() {
            targets[turn.turn as usize] = lesson.rows.own().unwrap().columns["target/prm"].get(i);
        }
        targets
    }

    #[test]
    fn labels_by_hand() {
        assert_eq!(targets("\"validity\""), [Some(1.0), Some(0.0), Some(1.0), None]);
        let column =
            |bad: f64, good: f64| targets(&format!("{{ column = {{ name = \"tool_ok\", bad = {bad:?}, good = {good:?} }} }}"));
        // What has no number has no label; what lies beyond the ends is cut off.
        assert_eq!(column(-1.0, 1.0), [Some(0.0), Some(0.75), None, None]);
        assert_eq!(column(0.0, 0.25), [Some(0.0), Some(1.0), None, None]);
        // The path that came to its end solved the task.
        let r_max = world().tasks.capabilities().r_max as f32;
        assert_eq!(targets("\"monte-carlo-soft\""), [Some(0.5 / r_max), Some(1.0), Some(0.25 / r_max), None]);
        assert_eq!(targets("\"monte-carlo-hard\""), [Some(1.0), Some(1.0), Some(1.0), None]);
    }

    #[test]
    fn a_configuration_that_cannot_be_is_refused() {
        let build = |body: &str| {
            let config: ProcessModel = toml::from_str(body).unwrap();
            let context = BuildContext {
                seeds: ascribe_core::Seeds(0),
                device: "cpu",
                threads: 1,
                environment: None,
                nodes: std::collections::BTreeSet::new(),
                base: std::path::PathBuf::new(),
            };
            config.build("prm", &context).map(|_| ()).unwrap_err().to_string()
        };
        let error = build("labels = { column = { name = \"x\", bad = 1.0, good = 1.0 } }");
        assert!(error.contains("less than `good`"), "{error}");
        let error = build("labels = { column = { name = \"process_reward\", bad = 0.0, good = 1.0 } }");
        assert!(error.contains("another name"), "{error}");
    }

    #[test]
    fn it_learns_which_actions_are_carried_out() {
        let mut world = world();
        let mut critics: Vec<NamedCritic> = vec![
            world.critic_with_heads("prm", "process-model", "labels = \"validity\""),
            world.critic_with_heads("p", "process-model", "labels = \"validity\"\nscale = \"probability\"\ncolumn = \"p\""),
        ];
        let mut batch = batch();
        for _ in 0..200 {
            critics.iter_mut().for_each(|critic| world.learn(critic, &batch, 0.1));
        }
        critics.iter_mut().for_each(|critic| world.judge(critic, &mut batch).unwrap());
        let signed = batch.signals[crate::PROCESS_REWARD].column.all().unwrap();
        let p = batch.signals["p"].column.all().unwrap();
        assert!(signed[0] > 0.9 && signed[1] < -0.9 && signed[3] == 0.0, "{signed:?}");
        assert!(p[0] > 0.95 && p[1] < 0.05 && p[3] == 0.5, "{p:?}");
        // An own head each: saved with the node, the critics have no state of their own.
        assert_eq!(critics[0].critic.save().unwrap(), Vec::<u8>::new());
    }
}
