//! What a turn adds to how likely the policy finds the right answer.
//!
//! Before the first turn and after every turn but the last, the policy is asked under teacher forcing how likely it finds
//! the true answer after a fixed lead-in: `v = (1/n) Σ_k log π(answer_k | what was read and said, lead-in, answer_<k)`. The
//! gain of a turn is `exp v_after − exp v_before`, or `v_after − v_before`.
//!
//! Wang et al. 2025, "Information Gain-based Policy Optimization" (IGPO), arXiv 2510.14967; GuoqingWang1/IGPO
//! `scrl/llm_agent/generation.py` at bff163b, whose arithmetic it gives ([`ascribe_math::answer_value`]).
//! Reductions: gains sum to the last value minus the first.
//! Edge cases: the last turn of a path has no gain (the estimator `igpo` gives it the outcome); a task without a true
//! answer has none anywhere. At a fork the state after the shared turn is read with what its first child read.
//! Authors' code differs: its first release knows the difference of probabilities alone, the later script takes that of
//! log-probabilities; a gain of exactly 0 becomes 1e-10 there, so that later code can tell it from none; here absence says
//! so. Of several true answers it takes the first; here the environment gives one.
//!
//! Cost: one forward pass over the whole sequence per turn, counted as the critic's tokens.

use std::collections::BTreeMap;

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{Action, Context, GroupLog, LeafLog, TurnLog};
use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{PolicyError, ScoreRequest};
use ascribe_core::rollout::Acting;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Critic, CriticConfig, End, Group, Need, Provide, Scope, Signal, plugin,
};
use ascribe_math::{AnswerScale, answer_value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scored;

const COLUMN: &str = "info_gain";

/// `[critic.NAME.info-gain]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InfoGain {
    /// Which difference is the gain.
    #[serde(default)]
    pub difference: Difference,
    /// What stands between what was read and the answer. Its words join the vocabulary.
    #[serde(default = "lead_in")]
    pub lead_in: String,
    /// Policy node that is asked.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

/// Which difference is the gain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// Of the geometric mean of the answer's probabilities: the paper's.
    #[default]
    Probability,
    /// Of the mean log-probability: the authors' later script.
    LogProbability,
}

fn lead_in() -> String {
    "now there is enough information to answer".into()
}

plugin! {
    Critic "info-gain" {
        summary: "What a turn adds to how likely the policy finds the right answer.",
        source: "Wang et al. 2025, Information Gain-based Policy Optimization, arXiv 2510.14967",
        when: "With the estimator `igpo`, on tasks with one true answer as text.",
        example: "difference = \"probability\"",
        module: "info_gain.rs",
    }
    impl CriticConfig for InfoGain {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            Ok(Box::new(Live { name: name.into(), config: self.clone() }))
        }
        fn needs(&self) -> Vec<Need> {
            vec![Need::GroundTruth, Need::Node(self.agent.clone())]
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(COLUMN.into(), Scope::Turn)]
        }
        fn words(&self) -> Vec<String> {
            self.lead_in.split_whitespace().map(String::from).collect()
        }
    }
}

struct Live {
    name: String,
    config: InfoGain,
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(COLUMN.into(), Scope::Turn)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let tokenizer = acting.node(&self.config.agent)?.tokenizer();
        let lead_in = tokenizer.encode(&self.config.lead_in);
        let (mut asked, mut questions) = (Vec::new(), Vec::new());
        for group in batch.groups().filter(|group| group.n_turns() > 0) {
            // The answer is the task's own: any episode of it knows it.
            let about = group.about();
            let opened = acting.tasks.open(&about.task, about.seed).map_err(|e| PolicyError::Unsupported(e.to_string()))?;
            let Some(answer) = opened.ground_truth().map(|text| tokenizer.encode(&text)).filter(|tokens| !tokens.is_empty())
            else {
                continue;
            };
            for (after, next) in states(group) {
                let mut read = read_before(group, next);
                read.extend(&lead_in);
                let row = group.rows().start + next;
                let turn = TurnLog {
                    agent: self.config.agent.as_str().into(),
                    read,
                    action: Action::given(answer.clone()),
                    // A policy that reads the state alone is asked about the answer there, not about its actions.
                    state: [batch.keys.bytes(batch.turns.state[row]), b"/answer"].concat(),
                    ..TurnLog::default()
                };
                let leaf = LeafLog { turn: Some(0), end: End::Untried, seed: 0 };
                asked.push((group.index(), after));
                questions.push(GroupLog { turns: vec![turn], leaves: vec![leaf], ..GroupLog::default() });
            }
        }
        let refused = |e: ascribe_core::batch::RecordError| PolicyError::Unsupported(e.to_string());
        let questions = Batch::from_groups(questions, NonFinite::Refuse).map_err(refused)?;
        let rows = scored::rows(&questions, &self.config.agent);
        let policy = acting.node(&self.config.agent)?;
        if let Some(row) = rows.rows.iter().find(|row| row.tokens.len() > policy.max_tokens()) {
            return Err(PolicyError::TooLong { tokens: row.tokens.len(), limit: policy.max_tokens() });
        }
        let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
        let logprob = policy.score(&rows, &request)?.columns.pop().unwrap_or_default();
        acting.ledger.critic_tokens += scored::n_tokens(&rows);

        let scale = match self.config.difference {
            Difference::Probability => AnswerScale::Probability,
            Difference::LogProbability => AnswerScale::LogProbability,
        };
        let values = rows.rows.iter().map(|row| answer_value(&logprob[row.trained.clone()], scale));
        // By group and the turn after which it was asked.
        let values: BTreeMap<(usize, Option<usize>), f64> = asked.into_iter().zip(values).collect();
        let value = |group: Group<'_>, after: Option<usize>| values.get(&(group.index(), after));
        let mut column = Column::absent(batch.scope_len(Scope::Turn));
        for group in batch.groups() {
            for t in 0..group.n_turns() {
                if let (Some(after), Some(before)) = (value(group, Some(t)), value(group, group.parent(t))) {
                    column.set(group.rows().start + t, (after - before) as f32);
                }
            }
        }
        let name = format!("critic/{}/info_gain", self.name);
        acting.metrics.summarise(&name, column.iter_present().map(f64::from));
        Ok(vec![(COLUMN.into(), Signal { scope: Scope::Turn, provider: self.name.clone(), column })])
    }
}

/// The states in which somebody acts, each with the first turn that was made there.
fn states(group: Group<'_>) -> Vec<(Option<usize>, usize)> {
    let mut states: Vec<(Option<usize>, usize)> = Vec::new();
    for t in 0..group.n_turns() {
        if states.iter().all(|(after, _)| *after != group.parent(t)) {
            states.push((group.parent(t), t));
        }
    }
    states
}

/// What the agent has read and said when it makes turn `t`, since its sequence last began anew.
fn read_before(group: Group<'_>, t: usize) -> Vec<u32> {
    let batch = group.batch();
    let row = |t: usize| group.rows().start + t;
    let mut path: Vec<usize> = std::iter::successors(group.parent(t), |p| group.parent(*p)).collect();
    path.reverse();
    path.push(t);
    let anew = path.iter().rposition(|t| batch.turns.context[row(*t)] == Context::Restart);
    path.pop();
    let mut tokens = if anew.is_none() { group.about().history.tokens.clone() } else { Vec::new() };
    for earlier in path.iter().skip(anew.unwrap_or(0)) {
        tokens.extend(&batch.tokens[batch.turns.tokens[row(*earlier)].range()]);
    }
    let own = batch.turns.tokens[row(t)].range();
    tokens.extend(&batch.tokens[own.start..own.start + batch.turns.action_start[row(t)] as usize]);
    tokens
}

#[cfg(test)]
mod tests {
    use ascribe_core::NamedCritic;

    use super::*;
    use crate::testing::World;

    const ROLLOUT: &str = "groups = 3\ngroup_size = 2\ndecode = \"admissible\"";

    fn judged(body: &str) -> (World, Batch) {
        let config: InfoGain = toml::from_str(body).unwrap();
        let mut world = World::new(("bugfix", ""), &["actor"], config.words());
        let mut batch = world.batch("independent", ROLLOUT);
        let mut critic = NamedCritic { name: "gain".into(), critic: world.critic("gain", "info-gain", body) };
        world.judge(&mut critic, &mut batch).unwrap();
        (world, batch)
    }

    #[test]
    fn who_learns_nothing_gains_nothing_and_the_last_turn_has_no_gain() {
        let (world, batch) = judged("");
        let mut n = 0;
        for group in batch.groups() {
            for (t, gain) in group.turn_signal(COLUMN).enumerate() {
                assert_eq!(gain, (group.n_children(t) > 0).then_some(0.0), "an untrained table finds every word equally likely");
                n += usize::from(gain.is_some());
            }
        }
        assert!(n > 0 && world.ledger.critic_tokens > 0);
        // Every turn of a path of n is asked about once, the start included: the first member of each group alone has n.
        assert_eq!(world.metrics.get("critic/gain/info_gain/max"), Some(0.0));
    }

    #[test]
    fn what_was_read_is_what_the_sequence_holds() {
        let (_, batch) = judged("");
        let group = batch.group(0);
        let path: Vec<usize> = group.trajectories().next().unwrap().turns();
        let mut want: Vec<u32> = Vec::new();
        for t in path {
            let row = group.rows().start + t;
            let tokens = batch.turns.tokens[row].range();
            want.extend(&batch.tokens[tokens.start..tokens.start + batch.turns.action_start[row] as usize]);
            assert_eq!(read_before(group, t), want);
            want.extend(&batch.tokens[tokens.start + batch.turns.action_start[row] as usize..tokens.end]);
        }
    }
}
