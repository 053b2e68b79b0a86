//! How much likelier the way to a stored start is now than when it was walked.
//!
//! `w = Π_k π(a_k | s, a_<k) / π_then(a_k | s, a_<k)` over every token that the agent sampled in the turns before a group's start, as far
//! as they are kept ([`History::turns`]), then bounded to `min..=max`. Every turn of the group has it, in the column `prefix_ratio`: a
//! start that the policy would hardly come to any more should hardly be learned from.
//!
//! Source: importance sampling of prefixes, which the text on TEMPO describes, `w = exp(log π(prefix) − log π_then(prefix))` times the
//! advantage; its public code does not do it. Bounded weights: Ionides 2008, "Truncated Importance Sampling", JCGS 17.
//! Reductions: 1 for a group that begins where its task begins, and wherever the policy is what it was then. Without bounds, over
//! all histories of so many turns that an earlier policy walked, its mean is 1.
//! Edge cases: log-probabilities are those at the temperature and on the support that each token was drawn with, on both sides. Turns of
//! other agents are context. A history without turns, and one in which somebody else acted for the agent (an expert), has no ratio.
//! Bounds bias what they cut: `critic/NAME/clipped_rate` says how often.
//! Cost: one scoring pass over the histories, counted as the critic's tokens.
//!
//! [`History::turns`]: ascribe_core::log::History::turns

use std::collections::BTreeMap;

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{GroupLog, LeafLog, TurnLog};
use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{PolicyError, ScoreRequest};
use ascribe_core::range::{NonNegative, Positive};
use ascribe_core::rollout::Acting;
use ascribe_core::rows::column::BEHAVIOR_LOGPROB;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Critic, CriticConfig, End, Limit, Need, Provide, Scope, Signal, plugin,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scored;

const COLUMN: &str = "prefix_ratio";

/// `[critic.NAME.prefix-ratio]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrefixRatio {
    /// Smallest ratio, 1 or less.
    #[serde(default = "zero")]
    pub min: NonNegative,
    /// Largest ratio, 1 or more.
    #[serde(default = "ten")]
    pub max: Positive,
    /// Policy node whose actions are compared.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

fn zero() -> NonNegative {
    NonNegative::try_from(0.0).expect("in range")
}
fn ten() -> Positive {
    Positive::try_from(10.0).expect("in range")
}

plugin! {
    Critic "prefix-ratio" {
        summary: "How much likelier the turns before a group's start are now than when they were sampled.",
        source: "truncated importance sampling: Ionides 2008, JCGS 17",
        when: "With rollouts that begin in stored states, whose ways there grow old: a weight on what is learned from them.",
        example: "min = 0.0\nmax = 10.0",
        module: "prefix_ratio.rs",
    }
    impl CriticConfig for PrefixRatio {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            let (min, max) = (*self.min, *self.max);
            if max < 1.0 || min > 1.0 {
                let text = format!("`min` = {min} and `max` = {max} must have 1 between them, the ratio of an unchanged policy");
                return Err(BuildError::Config(text));
            }
            Ok(Box::new(Live { name: name.into(), config: self.clone() }))
        }
        fn needs(&self) -> Vec<Need> {
            vec![Need::Node(self.agent.clone())]
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(COLUMN.into(), Scope::Turn)]
        }
    }
}

struct Live {
    name: String,
    config: PrefixRatio,
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(COLUMN.into(), Scope::Turn)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let ratios = self.log_ratios(batch, acting)?;
        let (min, max) = (*self.config.min, *self.config.max);
        let (mut told, mut clipped) = (Vec::new(), 0u32);
        let mut column = Column::absent(batch.scope_len(Scope::Turn));
        for group in batch.groups() {
            let begins_anew = group.about().before == 0 && group.about().history.tokens.is_empty();
            let Some(log_ratio) = ratios.get(&group.index()).copied().or(begins_anew.then_some(0.0)) else { continue };
            let ratio = log_ratio.exp();
            if !begins_anew {
                told.push(ratio.clamp(min, max));
                clipped += u32::from(!(min..=max).contains(&ratio));
            }
            group.rows().for_each(|row| column.set(row, ratio.clamp(min, max) as f32));
        }
        if !told.is_empty() {
            acting.metrics.set(format!("critic/{}/clipped_rate", self.name), f64::from(clipped) / told.len() as f64);
            acting.metrics.summarise("td/prefix_ratio", told);
        }
        Ok(vec![(COLUMN.into(), Signal { scope: Scope::Turn, provider: self.name.clone(), column })])
    }
}

impl Live {
    /// `log w` of each group that has one, by its index.
    fn log_ratios(&self, batch: &Batch, acting: &mut Acting<'_>) -> Result<BTreeMap<usize, f64>, PolicyError> {
        let mut histories = Vec::new();
        let mut of = Vec::new();
        for group in batch.groups() {
            let turns = &group.about().history.turns;
            let own = |turn: &&ascribe_core::log::FrozenTurn| *turn.agent == *self.config.agent;
            let sampled = turns.iter().filter(own).all(|turn| turn.action.at.is_empty() || turn.action.logprob.is_some());
            if turns.is_empty() || !sampled {
                continue;
            }
            let chain = |(t, turn)| TurnLog { parent: usize::checked_sub(t, 1), ..TurnLog::from(turn) };
            let leaf = LeafLog { turn: Some(turns.len() - 1), end: End::Truncated(Limit::Turns), seed: 0 };
            histories.push(GroupLog {
                turns: turns.iter().enumerate().map(chain).collect(),
                leaves: vec![leaf],
                ..GroupLog::default()
            });
            of.push(group.index());
        }
        if histories.is_empty() {
            return Ok(BTreeMap::new());
        }
        let told = |e: ascribe_core::batch::RecordError| PolicyError::NonFinite(format!("a frozen history: {e}"));
        let histories = Batch::from_groups(histories, NonFinite::Refuse).map_err(told)?;
        let rows = scored::rows(&histories, &self.config.agent);
        let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
        let now = acting.node(&self.config.agent)?.score(&rows, &request)?.columns.pop().unwrap_or_default();
        acting.ledger.critic_tokens += scored::n_tokens(&rows);
        let then = &rows.columns[BEHAVIOR_LOGPROB];
        let mut ratios: BTreeMap<usize, f64> = of.iter().map(|group| (*group, 0.0)).collect();
        for row in &rows.rows {
            let difference = |i: usize| f64::from(now[i]) - then.get(i).map_or(f64::from(now[i]), f64::from);
            *ratios.get_mut(&of[row.group as usize]).expect("listed above") += row.trained.clone().map(difference).sum::<f64>();
        }
        Ok(ratios)
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::NamedCritic;
    use ascribe_core::log::{History, Origin};

    use super::*;
    use crate::testing::World;

    const REPAIR: (&str, &str) = ("repair-mdp", "horizon = 6\nstep_cost = 0.05");
    const ROLLOUT: &str = "groups = 400\ngroup_size = 1\ndecode = \"admissible\"";

    /// A group behind each episode, whose history are its first `n` turns, or all where it has no more: then it begins with the
    /// last turn once more. So histories end at a time that depends on themselves alone, and the mean of their ratios is 1.
    fn cut(logs: Vec<GroupLog>, n: usize) -> Vec<GroupLog> {
        let cut = |mut log: GroupLog| {
            let last = log.turns.last().cloned().expect("an episode has turns");
            let mut rest = log.turns.split_off(n.min(log.turns.len()));
            let before = log.turns.len();
            if rest.is_empty() {
                rest.push(TurnLog { parent: None, ..last });
            }
            let mut history = History::default();
            log.turns.iter().for_each(|turn| history.push(turn));
            let n_rest = rest.len();
            let parent = |t: Option<usize>| t.and_then(|t| t.checked_sub(before));
            log.turns = rest.into_iter().map(|turn| TurnLog { parent: parent(turn.parent), ..turn }).collect();
            log.leaves.iter_mut().for_each(|leaf| leaf.turn = Some(n_rest - 1));
            GroupLog { before, history, origin: Origin::Restored { age: 1 }, ..log }
        };
        logs.into_iter().map(cut).collect()
    }

    fn ratios(world: &mut World, logs: Vec<GroupLog>, body: &str) -> Vec<Option<f32>> {
        let mut critic = NamedCritic { name: "ratio".into(), critic: world.critic("ratio", "prefix-ratio", body) };
        let mut batch = Batch::from_groups(logs, NonFinite::Refuse).unwrap();
        world.metrics = ascribe_core::Metrics::default();
        world.judge(&mut critic, &mut batch).unwrap();
        batch
            .groups()
            .map(|group| {
                let of_turns: Vec<Option<f32>> = group.turn_signal(COLUMN).collect();
                assert!(of_turns.iter().all(|x| *x == of_turns[0]), "one number per group");
                of_turns[0]
            })
            .collect()
    }

    #[test]
    fn it_is_one_until_the_policy_moves_and_one_on_average_after() {
        let mut world = World::new(REPAIR, &["actor"], Vec::new());
        world.improve(4);
        let logs = cut(world.groups("independent", ROLLOUT), 2);
        let same = ratios(&mut world, logs.clone(), "");
        assert!(same.iter().all(|w| (w.unwrap() - 1.0).abs() < 1e-5), "{same:?}");
        assert_eq!(world.metrics.get("critic/ratio/clipped_rate"), Some(0.0));
        world.improve(6);
        let moved: Vec<f64> = ratios(&mut world, logs, "max = 1e6").iter().map(|w| f64::from(w.unwrap())).collect();
        let moments = ascribe_math::moments(&moved);
        let error = moments.deviation(ascribe_math::Deviation::Sample) / (moments.n as f64).sqrt();
        // It moved, and E over what the earlier policy did of π/π_then is 1.
        assert!(error > 0.02 && (moments.mean - 1.0).abs() < 4.0 * error, "{} ± {error}", moments.mean);
    }

    #[test]
    fn it_is_the_product_over_the_tokens_of_the_history() {
        let mut world = World::new(REPAIR, &["actor"], Vec::new());
        let logs = cut(world.groups("independent", ROLLOUT), 3);
        world.improve(6);
        let whole = ratios(&mut world, logs.clone(), "max = 1e9");
        // The same histories as turns of a batch, scored by hand.
        for (log, ratio) in logs.iter().zip(whole).take(40) {
            let turns: Vec<TurnLog> = (0..)
                .zip(&log.history.turns)
                .map(|(t, turn)| TurnLog { parent: usize::checked_sub(t, 1), ..turn.into() })
                .collect();
            let leaves = vec![LeafLog { turn: Some(turns.len() - 1), end: End::Truncated(Limit::Turns), seed: 0 }];
            let then: f64 = turns.iter().flat_map(|turn| turn.action.logprob.iter().flatten()).map(|x| f64::from(*x)).sum();
            let batch = Batch::from_groups(vec![GroupLog { turns, leaves, ..GroupLog::default() }], NonFinite::Refuse).unwrap();
            let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
            let rows = scored::rows(&batch, "actor");
            let now = world.nodes.get_mut("actor").unwrap().score(&rows, &request).unwrap().columns.remove(0);
            let expected = (now.iter().map(|x| f64::from(*x)).sum::<f64>() - then).exp();
            assert!((f64::from(ratio.unwrap()) / expected - 1.0).abs() < 1e-5, "{ratio:?} {expected}");
        }
    }

    #[test]
    fn bounds_hold_and_what_has_no_history_weighs_one() {
        let mut world = World::new(REPAIR, &["actor"], Vec::new());
        let fresh = world.groups("independent", ROLLOUT);
        let logs = cut(fresh.clone(), 3);
        world.improve(12);
        let bounded = ratios(&mut world, logs.clone(), "min = 0.5\nmax = 2.0");
        assert!(bounded.iter().all(|w| (0.5..=2.0).contains(&w.unwrap())));
        assert!(bounded.contains(&Some(2.0)) && bounded.contains(&Some(0.5)));
        assert!(world.metrics.get("critic/ratio/clipped_rate").unwrap() > 0.0);
        assert!(ratios(&mut world, fresh, "").iter().all(|w| *w == Some(1.0)));
        assert_eq!(world.metrics.get("critic/ratio/clipped_rate"), None);

        // Nothing is made up where nothing is known: no turns, or an expert's.
        let mut unknown = logs[..2].to_vec();
        unknown[0].history.turns.clear();
        unknown[1].history.turns.iter_mut().for_each(|turn| turn.action.logprob = None);
        assert_eq!(ratios(&mut world, unknown, ""), [None, None]);
        // What another agent did is context.
        let mut others = logs[..1].to_vec();
        others[0].history.turns.iter_mut().for_each(|turn| turn.agent = "guide".into());
        assert_eq!(ratios(&mut world, others, ""), [Some(1.0)]);
    }

    #[test]
    fn a_sequence_that_begins_anew_is_scored_from_there() {
        let mut world = World::new(REPAIR, &["actor"], Vec::new());
        let mut logs = cut(world.groups("independent", ROLLOUT), 2);
        for log in &mut logs {
            let turns = std::mem::take(&mut log.history.turns);
            log.history = History::default();
            for turn in &turns {
                log.history.push(&TurnLog { context: ascribe_core::log::Context::Restart, ..turn.into() });
            }
            let last = turns.last().unwrap();
            assert_eq!(log.history.tokens, [&last.read[..], &last.action.tokens].concat());
            assert_eq!(log.history.turns.len(), turns.len());
        }
        // A table reads states, not sequences: cut in pieces the way is as likely.
        assert!(ratios(&mut world, logs, "").iter().all(|w| (w.unwrap() - 1.0).abs() < 1e-5));
    }

    #[test]
    fn bounds_on_one_side_of_one_are_refused() {
        let world = World::new(REPAIR, &["actor"], Vec::new());
        for body in ["max = 0.5", "min = 1.5"] {
            let config: ascribe_core::Slot<dyn CriticConfig> = crate::testing::plugin("prefix-ratio", body);
            let error = world.with_context(|context| config.build("ratio", context).err().unwrap().to_string());
            assert!(error.contains("must have 1 between them"), "{error}");
        }
    }
}
