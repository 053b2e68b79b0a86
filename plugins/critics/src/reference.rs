//! Log-probabilities of the actions under an earlier self of a policy: what KL penalties and preference losses compare with.
//!
//! `log π_ref(a_k | s, a_<k)` of every sampled token, at the temperature and on the support that it was drawn with, from a
//! copy of a policy node's weights. The copy is taken when the critic judges for the first time, and anew every `refresh`
//! updates.
//!
//! Source: the KL-regularised objective of Ziegler et al. 2019, arXiv 1909.08593; refreshed references as in TRL
//! `sync_ref_model` (which mixes; here the copy is taken whole) and AgentPRM's previous iterate (arXiv 2502.10325).
//! Reductions: with `refresh = 1` the reference is the policy before each update, and a penalty's loss starts at 0.
//! Edge cases: an expert's tokens are scored like any other; tokens of other nodes than `agent` have no number. The copy is part of a
//! checkpoint, so a resumed run compares with the same one.
//!
//! Cost: one scoring pass over the batch's paths, counted as the critic's tokens; memory and checkpoints hold a copy of the node's weights.

use std::collections::BTreeSet;

use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{Policy, PolicyError, ScoreRequest};
use ascribe_core::range::Count;
use ascribe_core::rollout::Acting;
use ascribe_core::{Batch, BuildContext, BuildError, Critic, CriticConfig, Need, Provide, Scope, Signal, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scored;

/// The column of log-probabilities under a reference.
pub(crate) const REFERENCE_LOGPROB: &str = "reference_logprob";

/// `[critic.NAME.reference]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Policy node that is copied.
    #[serde(default = "crate::actor")]
    pub of: String,
    /// Policy node whose actions are scored.
    #[serde(default = "crate::actor")]
    pub agent: String,
    /// Updates after which it is copied anew; 0 is never.
    #[serde(default = "never")]
    pub refresh: Count,
}

fn never() -> Count {
    Count(0)
}

plugin! {
    Critic "reference" {
        summary: "Log-probabilities of the actions under a frozen copy of a policy node.",
        source: "Ziegler et al. 2019, arXiv 1909.08593",
        when: "With the objectives `kl` and `dpo`, or the critic `kl-reward`, which keep the policy near what it was.",
        example: "of = \"actor\"\nrefresh = 0",
        module: "reference.rs",
    }
    impl CriticConfig for Reference {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            Ok(Box::new(Live { name: name.into(), config: self.clone(), copy: None, stored: None }))
        }
        fn needs(&self) -> Vec<Need> {
            [&self.of, &self.agent].into_iter().collect::<BTreeSet<_>>().into_iter().cloned().map(Need::Node).collect()
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(REFERENCE_LOGPROB.into(), Scope::Token)]
        }
    }
}

struct Live {
    name: String,
    config: Reference,
    copy: Option<Copy>,
    /// A saved copy that is not taken up yet: its weights need a policy to be loaded into.
    stored: Option<Stored>,
}

struct Copy {
    policy: Box<dyn Policy>,
    /// Update in which it was taken.
    taken: u32,
}

#[derive(Clone)]
struct Stored {
    taken: u32,
    weights: Vec<u8>,
}

/// First byte of a saved copy: its format.
const FORMAT: u8 = 1;

impl Stored {
    /// Format, update, weights. JSON would need several bytes for each of the weights'.
    fn bytes(&self) -> Vec<u8> {
        [&[FORMAT][..], &self.taken.to_le_bytes(), &self.weights].concat()
    }

    /// A copy that was saved; `None` where there was none yet.
    fn read(bytes: &[u8]) -> Result<Option<Self>, PolicyError> {
        match bytes {
            [] => Ok(None),
            [FORMAT, a, b, c, d, weights @ ..] => {
                Ok(Some(Self { taken: u32::from_le_bytes([*a, *b, *c, *d]), weights: weights.to_vec() }))
            }
            [format, ..] => Err(PolicyError::Load(format!("a reference of format {format}; this version reads {FORMAT}"))),
        }
    }
}

impl Live {
    /// The copy, taken or refreshed where it is time.
    fn copy(&mut self, acting: &mut Acting<'_>) -> Result<&mut dyn Policy, PolicyError> {
        let now = acting.now.update;
        let node = acting.node(&self.config.of)?;
        if let Some(stored) = self.stored.take() {
            let mut policy = node.copy()?;
            policy.load(&stored.weights)?;
            self.copy = Some(Copy { policy, taken: stored.taken });
        }
        let due = |copy: &Copy| self.config.refresh.0 > 0 && u64::from(now - copy.taken) >= self.config.refresh.0;
        if self.copy.as_ref().is_none_or(due) {
            self.copy = Some(Copy { policy: node.copy()?, taken: now });
        }
        Ok(&mut *self.copy.as_mut().expect("just taken").policy)
    }
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(REFERENCE_LOGPROB.into(), Scope::Token)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let rows = scored::rows(batch, &self.config.agent);
        let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
        let logprob = self.copy(acting)?.score(&rows, &request)?.columns.pop().unwrap_or_default();
        acting.ledger.critic_tokens += scored::n_tokens(&rows);
        let age = acting.now.update - self.copy.as_ref().map_or(0, |copy| copy.taken);
        acting.metrics.set(format!("critic/{}/age", self.name), f64::from(age));
        let column = scored::onto_tokens(batch, &rows, &logprob);
        Ok(vec![(REFERENCE_LOGPROB.into(), Signal { scope: Scope::Token, provider: self.name.clone(), column })])
    }

    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        let stored = match &self.copy {
            Some(copy) => Some(Stored { taken: copy.taken, weights: copy.policy.save()? }),
            None => self.stored.clone(),
        };
        Ok(stored.map_or_else(Vec::new, |stored| stored.bytes()))
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        self.stored = Stored::read(bytes)?;
        self.copy = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ascribe_core::policy::{OptimStep, Part};
    use ascribe_core::{NamedCritic, RowSet};

    use super::*;
    use crate::testing::World;

    const ROLLOUT: &str = "groups = 6\ngroup_size = 2\ndecode = \"admissible\"";

    fn world() -> World {
        World::new(("repair-mdp", ""), &["actor"], Vec::new())
    }

    fn named(world: &World, body: &str) -> NamedCritic {
        NamedCritic { name: "ref".into(), critic: world.critic("ref", "reference", body) }
    }

    #[test]
    fn the_actions_of_one_node_are_scored_by_a_copy_of_another() {
        let mut world = World::new(("repair-mdp", ""), &["actor", "judge"], Vec::new());
        let mut batch = world.batch("independent", ROLLOUT);
        train(&mut world, &batch);
        let mut critic = named(&world, "of = \"judge\"");
        world.judge(&mut critic, &mut batch).unwrap();
        let column = &batch.signals[REFERENCE_LOGPROB].column;
        // The judge is as it was built: all listed actions are as likely, while the actor's are not any more.
        let behaviour = batch.sampled.logprob.clone();
        let mut n = 0;
        for (i, x) in behaviour.iter().enumerate() {
            assert!((column.get(i).unwrap() - x.unwrap()).abs() < 1e-5, "the records are of the untrained actor");
            n += 1;
        }
        assert!(n > 0);
    }

    /// Makes every action that was sampled likelier.
    fn train(world: &mut World, batch: &Batch) {
        let objective = crate::lesson::objective("nll", serde_json::json!({})).unwrap();
        let rows: Arc<RowSet> = Arc::new(scored::rows(batch, "actor"));
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let totals = rows.totals(&picked);
        let part = Part { rows, picked: &picked, totals, objective: &*objective, scale: 1.0 };
        let now = world.now.clone();
        let node = world.nodes.get_mut("actor").unwrap();
        node.forward_backward(&[part], usize::MAX, &now).unwrap();
        let step = OptimStep { learning_rate: 0.5, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };
        node.optim_step(&step).unwrap();
    }

    /// Distances of the reference's log-probabilities from those that were recorded.
    fn distance(batch: &Batch) -> f64 {
        let column = &batch.signals[REFERENCE_LOGPROB].column;
        let distance =
            (0..column.len()).map(|i| f64::from((column.get(i).unwrap() - batch.sampled.logprob.get(i).unwrap()).abs()));
        distance.fold(0.0, f64::max)
    }

    #[test]
    fn the_copy_stays_what_the_policy_was() {
        let mut world = world();
        let mut frozen = named(&world, "");
        let mut follows = named(&world, "refresh = 1");
        for update in 0..3 {
            let mut batch = world.batch("independent", ROLLOUT);
            let mut other = batch.clone();
            world.judge(&mut frozen, &mut batch).unwrap();
            world.judge(&mut follows, &mut other).unwrap();
            // What is refreshed each time is the policy that sampled.
            assert!(distance(&other) < 1e-5, "{}", distance(&other));
            assert_eq!(distance(&batch) > 1e-2, update > 0, "update {update}: {}", distance(&batch));
            assert_eq!(world.metrics.get("critic/ref/age"), Some(0.0));
            train(&mut world, &batch);
        }
        assert!(world.ledger.critic_tokens > 0);
    }

    #[test]
    fn a_resumed_copy_is_the_same_one() {
        let mut world = world();
        let mut critic = named(&world, "");
        let mut batch = world.batch("independent", ROLLOUT);
        world.judge(&mut critic, &mut batch).unwrap();
        train(&mut world, &batch);
        let mut resumed = named(&world, "");
        let saved = critic.critic.save().unwrap();
        resumed.critic.load(&saved).unwrap();
        // Saved again before it judged, it is still itself.
        assert_eq!(resumed.critic.save().unwrap(), saved);
        let mut batch = world.batch("independent", ROLLOUT);
        let mut other = batch.clone();
        world.judge(&mut critic, &mut batch).unwrap();
        world.judge(&mut resumed, &mut other).unwrap();
        assert!(distance(&batch) > 1e-2);
        assert_eq!(batch.signals[REFERENCE_LOGPROB].column, other.signals[REFERENCE_LOGPROB].column);
        let error = resumed.critic.load(b"no state").unwrap_err().to_string();
        assert!(error.contains("cannot be loaded"), "{error}");
    }
}
