//! What each turn contributed: numbers that are trained to add up to what a path was paid.
//!
//! `ĉ_t = h(s_t, a_t)`, a head read after the last token of the turn; `L = mean over paths of (Σ_t ĉ_t − R)²`, `R` being what
//! the environment paid on the path. It gives the columns `contribution` (`ĉ_t`) and `grounding`: 1 where the environment
//! carried the action out, else 0.
//!
//! Wang et al. 2025, "SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution", arXiv 2505.20732;
//! WangHanLinHenry/SPA-RL-Agent `prm/train_our_progress_model.py`, `prm/rl_data_org.py` at ed200874. Estimator: `spa-rl`.
//! Reductions: on paths of one turn it regresses on the outcome.
//! Edge cases: on a branch each path is learned, so that a shared turn counts in each. Where contexts begin anew, a
//! path lies in several rows; each learns what its path was paid less what the head says of the other rows. Turns of
//! other agents contribute nothing. A path whose end was not tried is judged, not learned. Nothing fixes how a sum is
//! divided but what turns of different paths have in common.
//! Authors' code differs: it reads a linear map of the language model's logits, `Linear(vocabulary → 1)`, at the last token of
//! each answer; here a head reads the hidden vector at that position, as the paper has it. A path without an answer predicts
//! 0 and stays in the mean; here it has no row. Grounding is there whether the next observation does not say "Nothing
//! happens", and the last turn always counts (`last_turn_grounded`).
//!
//! Cost: one forward pass over the batch's paths to judge, counted as the critic's tokens, and one forward and backward pass over
//! each path to learn; a shared turn is learned once per path.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascribe_core::critic::{Lesson, LessonRows};
use ascribe_core::log::Validity;
use ascribe_core::policy::{HeadSpec, PolicyError};
use ascribe_core::range::NonNegative;
use ascribe_core::rollout::Acting;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, Need, Objective, Provide, Scope, Signal, plugin,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::turn_head::{Shared, TurnHead, paid};

const CONTRIBUTION: &str = "contribution";
const GROUNDING: &str = "grounding";

/// `[critic.NAME.spa-progress]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpaProgress {
    /// Whether the last turn of a path counts as grounded, whatever the environment made of it. The authors' code: true.
    #[serde(default)]
    pub last_turn_grounded: bool,
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

plugin! {
    Critic "spa-progress" {
        summary: "What each turn contributed to the outcome, from a head whose numbers add up to it.",
        source: "Wang et al. 2025, SPA-RL, arXiv 2505.20732; WangHanLinHenry/SPA-RL-Agent",
        when: "With the estimator `spa-rl`, on long tasks that pay once at the end.",
        example: "node = \"actor\"\nlast_turn_grounded = true",
        module: "spa_progress.rs",
    }
    impl CriticConfig for SpaProgress {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            let head = TurnHead {
                name: name.into(),
                agent: self.agent.clone(),
                node: self.node.clone(),
                detach_trunk: self.detach_trunk,
            };
            let objective = crate::lesson::objective("sum-mse", serde_json::json!({ "head": name }))?;
            Ok(Box::new(Live { config: self.clone(), head, objective }))
        }
        fn needs(&self) -> Vec<Need> {
            TurnHead::needs(&self.agent, &self.node)
        }
        fn provides(&self) -> Vec<Provide> {
            columns().into_iter().map(|(name, scope)| Need::Signal(name, scope)).collect()
        }
    }
}

fn columns() -> Vec<(String, Scope)> {
    vec![(CONTRIBUTION.into(), Scope::Turn), (GROUNDING.into(), Scope::Turn)]
}

struct Live {
    config: SpaProgress,
    head: TurnHead,
    objective: Arc<dyn Objective>,
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        columns()
    }

    fn heads(&self) -> Vec<(String, HeadSpec)> {
        self.head.heads()
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let contribution = self.head.read(batch, acting)?;
        let name = &self.head.name;
        acting.metrics.summarise(&format!("critic/{name}/contribution"), contribution.iter_present().map(f64::from));
        let mut grounding = Column::absent(batch.scope_len(Scope::Turn));
        for group in batch.groups() {
            for t in 0..group.n_turns() {
                let r = group.rows().start + t;
                let last = self.config.last_turn_grounded && group.n_children(t) == 0;
                let grounded = last || batch.turns.validity[r] == Validity::Valid;
                grounding.set(r, f32::from(u8::from(grounded)));
            }
        }
        let grounded: Vec<f64> = grounding.iter_present().map(f64::from).collect();
        if !grounded.is_empty() {
            acting.metrics.set(format!("critic/{name}/grounded"), ascribe_math::moments(&grounded).mean);
        }
        let signal = |column| Signal { scope: Scope::Turn, provider: name.clone(), column };
        Ok(vec![(CONTRIBUTION.into(), signal(contribution)), (GROUNDING.into(), signal(grounding))])
    }

    fn learn(&mut self, batch: &Batch, _credit: &[Credit], acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let outcomes: Vec<Vec<Option<f64>>> = batch.groups().map(paid).collect();
        let mut rows = self.head.rows(batch, acting, Shared::EachPath, |_| true)?;
        let learned: Vec<u32> = (0u32..)
            .zip(&rows.rows)
            .filter(|(_, row)| outcomes[row.group as usize][row.trajectory as usize].is_some())
            .map(|(r, _)| r)
            .collect();
        if learned.len() < rows.len() {
            rows = rows.subset(&learned);
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows_of: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (r, row) in rows.rows.iter().enumerate() {
            rows_of.entry((row.group, row.trajectory)).or_default().push(r);
        }
        let mut target: Vec<f64> = vec![0.0; rows.len()];
        for ((group, trajectory), own) in &rows_of {
            let outcome = outcomes[*group as usize][*trajectory as usize].expect("paths without an outcome are left out");
            own.iter().for_each(|r| target[*r] = outcome);
        }
        if rows_of.values().any(|own| own.len() > 1) {
            let said = self.head.read(batch, acting)?;
            let sum = |r: usize| -> f64 {
                let turns = &rows.turns[rows.rows[r].turns.clone()];
                turns.iter().filter_map(|turn| said.get(turn.turn as usize)).map(f64::from).sum()
            };
            for own in rows_of.values().filter(|own| own.len() > 1) {
                let sums: Vec<f64> = own.iter().map(|r| sum(*r)).collect();
                let all: f64 = sums.iter().sum();
                own.iter().zip(sums).for_each(|(r, own)| target[*r] -= all - own);
            }
        }
        let mut of_token = vec![0.0; rows.n_trained()];
        rows.rows.iter().zip(&target).for_each(|(row, y)| of_token[row.trained.clone()].fill(*y as f32));
        self.head.set_targets(&mut rows, |i| Some(of_token[i]));
        Ok(vec![Lesson {
            node: self.head.node.clone(),
            rows: LessonRows::Own(Arc::new(rows)),
            objective: self.objective.clone(),
            scale: *self.config.loss_weight,
        }])
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::End;
    use ascribe_core::NamedCritic;
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, Context, TurnLog};

    use super::*;
    use crate::testing::{World, group};

    const ROLLOUT: &str = "groups = 12\ngroup_size = 4\ndecode = \"admissible\"";

    const TREE: &str = "seed = 0\ntasks = 2\ndepth = 3\nbranches = 2\nrewards = \"sparse\"\nstates = \"prefixes\"";

    fn world() -> (World, NamedCritic) {
        let mut world = World::new(("token-tree", TREE), &["actor"], Vec::new());
        let critic = world.critic_with_heads("progress", "spa-progress", "");
        (world, critic)
    }

    #[test]
    fn contributions_learn_to_add_up_to_the_outcome() {
        let (mut world, mut critic) = world();
        let error = |batch: &Batch| {
            let squares = batch.groups().flat_map(|group| {
                let said: Vec<Option<f32>> = group.turn_signal(CONTRIBUTION).collect();
                let outcomes = paid(group);
                let sums =
                    group.trajectories().map(move |path| path.turns_up().map(|t| f64::from(said[t].unwrap())).sum::<f64>());
                sums.zip(outcomes).map(|(sum, outcome)| (sum - outcome.unwrap()).powi(2)).collect::<Vec<_>>()
            });
            let squares: Vec<f64> = squares.collect();
            squares.iter().sum::<f64>() / squares.len() as f64
        };
        let mut errors = Vec::new();
        for _ in 0..60 {
            let mut batch = world.batch("independent", ROLLOUT);
            world.judge(&mut critic, &mut batch).unwrap();
            errors.push(error(&batch));
            world.learn(&mut critic, &batch, 0.05);
        }
        let paid: f64 = errors[0];
        assert!(paid > 0.05, "something is paid: {paid}");
        assert!(errors[59] < 0.05 * paid, "{} of {paid}", errors[59]);
        // On the way there the loss fell in the whole.
        assert!(errors[20] < 0.7 * paid && errors[40] < errors[20], "{errors:?}");
    }

    /// A forest of turns (parent, context, action token, validity), and what each was paid.
    fn forest(turns: &[(Option<usize>, Context, u32, Validity, f32)], leaves: &[(usize, End)]) -> Batch {
        let turn = |(parent, context, token, validity, reward): &(Option<usize>, Context, u32, Validity, f32)| TurnLog {
            parent: *parent,
            context: *context,
            agent: "actor".into(),
            read: vec![1],
            action: Action::given(vec![*token, 2]),
            validity: *validity,
            reward: *reward,
            state: vec![parent.map_or(0, |p| p as u8 + 1)],
            ..TurnLog::default()
        };
        let group = group(turns.iter().map(turn).collect(), leaves);
        Batch::from_groups(vec![group], NonFinite::Refuse).unwrap()
    }

    const WON: End = End::Terminated { success: true };

    #[test]
    fn a_shared_turn_is_learned_on_each_path_and_what_was_not_tried_on_none() {
        let (mut world, mut critic) = world();
        let extend = Context::Extend;
        let turns = [
            (None, extend, 3, Validity::Valid, 0.5),
            (Some(0), extend, 4, Validity::Refused, 0.25),
            (Some(0), extend, 5, Validity::Valid, 0.0),
            (Some(0), extend, 6, Validity::Valid, 0.0),
        ];
        let mut batch = forest(&turns, &[(1, WON), (2, End::Truncated(ascribe_core::Limit::Turns)), (3, End::Untried)]);
        world.judge(&mut critic, &mut batch).unwrap();
        assert_eq!(batch.signals[CONTRIBUTION].column.all().unwrap(), [0.0; 4]);
        assert_eq!(batch.signals[GROUNDING].column.all().unwrap(), [1.0, 0.0, 1.0, 1.0]);
        let lesson = world.lessons(&mut critic, &batch).remove(0);
        let turns: Vec<Vec<u32>> = lesson
            .rows
            .own()
            .unwrap()
            .rows
            .iter()
            .map(|row| lesson.rows.own().unwrap().turns[row.turns.clone()].iter().map(|t| t.turn).collect())
            .collect();
        assert_eq!(turns, [[0, 1], [0, 2]]);
        assert_eq!(lesson.rows.own().unwrap().columns["target/progress"].all().unwrap(), [0.75, 0.75, 0.5, 0.5]);
        // What follows each action: the next word that was read, and at the end the action's last token once more.
        assert_eq!(lesson.rows.own().unwrap().tokens_of(0), [1, 3, 2, 1, 4, 2, 2]);
        assert_eq!(lesson.rows.own().unwrap().at, [3, 6, 3, 6]);
    }

    #[test]
    fn a_path_in_several_rows_is_learned_as_a_whole() {
        let (mut world, mut critic) = world();
        let turns = [(None, Context::Extend, 3, Validity::Valid, 0.0), (Some(0), Context::Restart, 4, Validity::Valid, 1.0)];
        let batch = forest(&turns, &[(1, WON)]);
        let targets = |world: &mut World, critic: &mut NamedCritic| {
            let lesson = world.lessons(critic, &batch).remove(0);
            lesson.rows.own().unwrap().columns["target/progress"].all().unwrap().to_vec()
        };
        assert_eq!(targets(&mut world, &mut critic), [1.0, 1.0]);
        for _ in 0..200 {
            world.learn(&mut critic, &batch, 0.05);
        }
        let mut judged = batch.clone();
        world.judge(&mut critic, &mut judged).unwrap();
        let said = judged.signals[CONTRIBUTION].column.all().unwrap();
        assert!((said[0] + said[1] - 1.0).abs() < 1e-2, "{said:?}");
        // Each learns the rest that the other leaves.
        let rest = targets(&mut world, &mut critic);
        assert!((rest[0] - (1.0 - said[1])).abs() < 1e-6 && (rest[1] - (1.0 - said[0])).abs() < 1e-6, "{rest:?} {said:?}");
    }

    #[test]
    fn the_last_turn_counts_as_grounded_on_request() {
        let (mut world, _) = world();
        let mut critic = world.critic_with_heads("other", "spa-progress", "last_turn_grounded = true");
        let turns = [(None, Context::Extend, 3, Validity::Malformed, 0.0), (Some(0), Context::Extend, 4, Validity::Cut, 0.0)];
        let mut batch = forest(&turns, &[(1, WON)]);
        world.judge(&mut critic, &mut batch).unwrap();
        assert_eq!(batch.signals[GROUNDING].column.all().unwrap(), [0.0, 1.0]);
        assert_eq!(world.metrics.get("critic/other/grounded"), Some(0.5));
    }

    #[test]
    fn an_action_is_told_from_its_sibling_though_its_last_choice_is_not_its_end() {
        // Admissible actions of a tree differ in their first word; the stop word has no alternative.
        let (mut world, mut critic) = world();
        let mut last = None;
        for _ in 0..80 {
            let mut batch = world.batch("independent", ROLLOUT);
            world.judge(&mut critic, &mut batch).unwrap();
            world.learn(&mut critic, &batch, 0.05);
            last = Some(batch);
        }
        let batch = last.unwrap();
        let mut by_state: BTreeMap<_, BTreeMap<_, f32>> = BTreeMap::new();
        for group in batch.groups() {
            for (t, said) in group.turn_signal(CONTRIBUTION).enumerate() {
                let key = (group.about().task.clone(), group.states()[t]);
                by_state.entry(key).or_default().insert(group.actions()[t], said.unwrap());
            }
        }
        let spread = |said: &BTreeMap<_, f32>| {
            said.values().copied().fold(f32::NEG_INFINITY, f32::max) - said.values().copied().fold(f32::INFINITY, f32::min)
        };
        assert!(by_state.values().any(|said| spread(said) > 0.1), "{by_state:?}");
    }
}
