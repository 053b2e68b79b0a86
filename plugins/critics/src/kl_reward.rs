//! A reward per token for staying near a reference: minus how much likelier the acting policy found it.
//!
//! `r_k = −(log π(a_k | s, a_<k) − log π_ref(a_k | s, a_<k))`, in nats, in the column `kl_reward` on sampled tokens: `π` is the policy that
//! sampled, by the log-probabilities recorded then, `π_ref` the column `reference_logprob` of a critic `reference`. The coefficient β is
//! the weight in `[reward]`: `kl_reward = 0.05`. The mean over what the policy samples is minus the KL divergence, `−KL(π ‖ π_ref)`; single
//! numbers have any sign.
//!
//! Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", arXiv 1909.08593; InstructGPT, Ouyang et al. 2022, arXiv
//! 2203.02155 (β = 0.02); verl `apply_kl_penalty` with `kl_penalty = "kl"`, the estimator k1.
//! Reductions: while the policy is its reference it is 0; with `refresh = 1` of `reference` it stays 0 on fresh episodes. A turn earns
//! the sum over its tokens; estimators whose steps are tokens take each where it lies.
//! Edge cases: an expert's tokens have no log-probability and no reward, nor have tokens without one of the reference (other agents'). A token
//! without an alternative is fed, not sampled, and would earn 0. Group-relative estimators that sum a path penalise the divergence of
//! the whole path, so long paths more than short ones. The objective `kl` is the other way to keep near: a loss on each token by
//! itself, which does not see that a token leads to others far from the reference.
//! Where official code differs: verl recomputes `log π` before the update; here it is the sampler's, at the temperature and on the support that
//! the token was drawn with, as the reference's is. Ziegler's and verl's controllers that steer β by the divergence are not here.
//!
//! Cost: none of its own; the scoring pass is that of `reference`.

use ascribe_core::policy::PolicyError;
use ascribe_core::rollout::Acting;
use ascribe_core::{Batch, BuildContext, BuildError, Column, Critic, CriticConfig, Need, Provide, Scope, Signal, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::REFERENCE_LOGPROB;

const COLUMN: &str = "kl_reward";

/// `[critic.NAME.kl-reward]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KlReward {}

plugin! {
    Critic "kl-reward" {
        summary: "A reward per token for staying near a reference: PPO's KL penalty.",
        source: "Ziegler et al. 2019, arXiv 1909.08593; InstructGPT, arXiv 2203.02155; verl apply_kl_penalty",
        when: "With a critic `reference`, a small weight in `[reward]` and an estimator of returns to go (`gae`, `return-to-go`). With group-relative estimators the objective `kl` is usual.",
        example: "",
        module: "kl_reward.rs",
    }
    impl CriticConfig for KlReward {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            Ok(Box::new(Live { name: name.into() }))
        }
        fn needs(&self) -> Vec<Need> {
            vec![Need::Signal(REFERENCE_LOGPROB.into(), Scope::Token), Need::BehaviorLogprob]
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(COLUMN.into(), Scope::Token)]
        }
    }
}

struct Live {
    name: String,
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(COLUMN.into(), Scope::Token)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let absent = || PolicyError::Unsupported(format!("there is no column `{REFERENCE_LOGPROB}`"));
        let reference = &batch.signals.get(REFERENCE_LOGPROB).ok_or_else(absent)?.column;
        let behavior = &batch.sampled.logprob;
        let reward = |i| Some(-(behavior.get(i)? - reference.get(i)?));
        let column: Column = (0..batch.scope_len(Scope::Token)).map(reward).collect();
        acting.metrics.summarise(&format!("critic/{}/kl_reward", self.name), column.iter_present().map(f64::from));
        Ok(vec![(COLUMN.into(), Signal { scope: Scope::Token, provider: self.name.clone(), column })])
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::NamedCritic;
    use ascribe_core::environment::{TRAIN, TaskId};
    use ascribe_core::ledger::Ledger;
    use ascribe_core::mdp::solve;
    use ascribe_math::{Deviation, moments};

    use super::*;
    use crate::oracle::probabilities;
    use crate::testing::World;

    const REPAIR: (&str, &str) = ("repair-mdp", "horizon = 10\nstep_cost = 0.05");

    fn critics(world: &World) -> [NamedCritic; 2] {
        [("ref", "reference"), ("near", "kl-reward")]
            .map(|(name, plugin)| NamedCritic { name: name.into(), critic: world.critic(name, plugin, "") })
    }

    #[test]
    fn it_is_minus_the_divergence_from_the_reference() {
        let mut world = World::new(REPAIR, &["actor"], Vec::new());
        let mut critics = critics(&world);
        // The process outlives the world that plays on it.
        let tasks = World::new(REPAIR, &[], Vec::new()).tasks;
        let tables = tasks.oracle(&TaskId { split: TRAIN.into(), index: 0 }).unwrap();
        let stop = tasks.capabilities().stop.clone();
        let policy = |world: &mut World| {
            let actor = &mut **world.nodes.get_mut("actor").unwrap();
            probabilities(tables, actor, &stop, 1.0, &mut Ledger::default()).unwrap()
        };

        let before = policy(&mut world);
        let mut batch = world.batch("independent", "groups = 20\ngroup_size = 2\ndecode = \"admissible\"");
        critics.iter_mut().for_each(|critic| world.judge(critic, &mut batch).unwrap());
        let column = &batch.signals[COLUMN].column;
        assert!((0..column.len()).all(|i| column.get(i).unwrap().abs() < 1e-5), "the policy is its reference");

        world.improve(5);
        let now = policy(&mut world);
        let exact = solve(tables.process(), &now);
        let mut divergence = 0.0;
        for ((visits, now), before) in exact.visits.iter().zip(&now).zip(&before) {
            for ((visit, now), before) in visits.iter().zip(now).zip(before) {
                divergence += visit * now.iter().zip(before).map(|(p, q)| p * (p / q).ln()).sum::<f64>();
            }
        }
        let mut batch = world.batch("independent", "groups = 4000\ngroup_size = 1\ndecode = \"admissible\"");
        critics.iter_mut().for_each(|critic| world.judge(critic, &mut batch).unwrap());
        let paths: Vec<f64> =
            batch.groups().map(|group| group.token_signal(COLUMN).map(|x| f64::from(x.unwrap())).sum::<f64>()).collect();
        let found = moments(&paths);
        let error = found.deviation(Deviation::Sample) / (found.n as f64).sqrt();
        assert!(divergence > 10.0 * error, "it moved: {divergence} ± {error}");
        assert!((found.mean + divergence).abs() < 4.0 * error, "{} ± {error}, exact −{divergence}", found.mean);
        // As a reward a turn earns the sum over its tokens.
        let earned = batch.reward_column(COLUMN).unwrap().iter().sum::<f64>();
        assert!((earned - paths.iter().sum::<f64>()).abs() < 1e-3);
        assert!(world.metrics.get("critic/near/kl_reward/mean").unwrap() < 0.0);
    }

    #[test]
    fn what_nobody_sampled_has_no_reward() {
        let mut world = World::new(("bugfix", ""), &["actor"], Vec::new());
        let mut critics = critics(&world);
        let mut batch = world.batch("expert", "groups = 3\ngroup_size = 1");
        critics.iter_mut().for_each(|critic| world.judge(critic, &mut batch).unwrap());
        assert!(batch.signals[REFERENCE_LOGPROB].column.iter_present().count() > 0);
        assert!(!batch.signals[COLUMN].column.is_empty());
        assert_eq!(batch.signals[COLUMN].column.iter_present().count(), 0);
    }
}
