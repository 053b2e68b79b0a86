//! Turns judged against a checklist: how likely the judge is to say of each item that it is done, under way or not done.
//!
//! `score_t = mean_i (P_i(Yes) + ½ P_i(In Progress))`: a policy node reads what led to a turn, the turn's action and one item, and the
//! probabilities of the three labels, among themselves, are its judgement; nothing is sampled. The reward is `score_t −
//! score_{t−1}`, which telescopes to the last score, or the score itself.
//!
//! Chae et al. 2025, "Web-Shepherd: Advancing PRMs for Reinforcing Web Agents", arXiv 2505.15277; kyle8581/Web-Shepherd `get_judge_probs`, `get_score`.
//! Reductions: a checklist of one item is `P(Yes) + ½ P(In Progress)`.
//! Edge cases: a task without a checklist and a prompt that does not fit have no score, and are counted; the turn after one without
//! a score has no increment, nor has the first turn of a group that starts in a stored state. A turn that was not tried is
//! judged like any other, which is how candidates are ranked.
//! Where the authors' code differs: an empty checklist has score 0 there, which cannot be told from a step that does nothing; labels
//! are found in the first tokens that a sampled answer gives, where here each label is scored as a whole; the checklist is written by
//! a first call, where here it is given, by kind of task.
//!
//! Cost: one scoring pass over the prompt per turn, item and label (three times the items), counted as the critic's tokens.

use std::collections::BTreeMap;

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{Action, Context, End, GroupLog, LeafLog, TurnLog};
use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{Policy, PolicyError, ScoreRequest};
use ascribe_core::range::AtLeast;
use ascribe_core::rollout::{Acting, node};
use ascribe_core::trie::Trie;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, Group, Need, Provide, RowSet, Scope, Signal, plugin,
};
use ascribe_math::checklist_score;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::generative::Condense;
use crate::generative::prompt::{Reader, STORY};

/// Yes, under way, no.
const LABELS: [&str; 3] = ["Yes", "In Progress", "No"];
const ITEM: &str = "Item:";
const QUESTION: &str = "Has the actor done this? Yes, In Progress or No:";
/// The checklist of tasks whose kind has none of its own.
const EVERY: &str = "default";

/// What a turn is paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pays {
    /// What its score is above that of the turn before.
    #[default]
    Increment,
    /// Its score.
    Level,
}

/// `[critic.NAME.checklist]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checklist {
    /// What is to be done, by kind of task; `default` is for tasks whose kind is not listed.
    pub items: BTreeMap<String, Vec<String>>,
    /// Policy node that judges. It is not trained.
    #[serde(default = "crate::actor")]
    pub agent: String,
    /// The column of turns that it gives.
    #[serde(default = "column")]
    pub column: String,
    /// What a turn is paid.
    #[serde(default)]
    pub pays: Pays,
    /// Most recent turns that its prompt shows after the initial situation; all, where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<AtLeast<1>>,
}

fn column() -> String {
    "checklist".into()
}

plugin! {
    Critic "checklist" {
        summary: "Turns judged item by item against a checklist (Web-Shepherd).",
        source: "Chae et al. 2025, Web-Shepherd: Advancing PRMs for Reinforcing Web Agents, arXiv 2505.15277; kyle8581/Web-Shepherd",
        when: "Where what makes progress can be listed, and a policy node can read: as a reward per turn, or to choose among candidates. A small policy that was never taught to judge gives noise.",
        example: "items = { default = [\"the file was read\", \"the file was edited\"] }",
        module: "checklist.rs",
    }
    impl CriticConfig for Checklist {
        fn build(&self, name: &str, context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            let wrong = |what: String| BuildError::Config(format!("critic `{name}`: {what}"));
            if self.items.values().all(Vec::is_empty) {
                return Err(wrong("`items` lists nothing".into()));
            }
            let about = context.environment();
            crate::knows(about, &self.words()).map_err(wrong)?;
            Ok(Box::new(Judge { name: name.into(), stop: about.stop.clone(), config: self.clone() }))
        }
        fn needs(&self) -> Vec<Need> {
            vec![Need::Node(self.agent.clone())]
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(self.column.clone(), Scope::Turn)]
        }
        fn words(&self) -> Vec<String> {
            let own = STORY.into_iter().chain(LABELS).chain([ITEM, QUESTION]).map(String::from);
            crate::words(own.chain(self.items.values().flatten().cloned()))
        }
    }
}

struct Judge {
    name: String,
    stop: String,
    config: Checklist,
}

/// What of an update could not be judged.
#[derive(Default)]
struct Counts {
    prompts: u64,
    too_long: u64,
    without_checklist: u64,
}

impl Critic for Judge {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(self.config.column.clone(), Scope::Turn)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let mut column = Column::absent(batch.scope_len(Scope::Turn));
        let mut counts = Counts::default();
        let mut levels: Vec<f64> = Vec::new();
        for group in batch.groups() {
            let items = acting.tasks.category(&group.about().task).and_then(|kind| self.config.items.get(&kind));
            let Some(items) = items.or_else(|| self.config.items.get(EVERY)).filter(|items| !items.is_empty()) else {
                counts.without_checklist += 1;
                continue;
            };
            let policy = &mut **node(acting.nodes, &self.config.agent)?;
            let scores = self.scores(group, items, policy, &mut counts, &mut acting.ledger.critic_tokens)?;
            levels.extend(scores.iter().flatten());
            for (t, score) in scores.iter().enumerate() {
                let before = match (self.config.pays, group.parent(t)) {
                    (Pays::Level, _) => Some(0.0),
                    (Pays::Increment, Some(parent)) => scores[parent],
                    // What was done before a stored state was not judged.
                    (Pays::Increment, None) => group.about().history.tokens.is_empty().then_some(0.0),
                };
                if let Some((score, before)) = score.zip(before) {
                    column.set(group.rows().start + t, (score - before) as f32);
                }
            }
        }
        let name = &self.name;
        acting.metrics.set(format!("critic/{name}/groups_without_checklist"), counts.without_checklist as f64);
        if counts.prompts > 0 {
            acting.metrics.set(format!("critic/{name}/prompt_too_long_rate"), counts.too_long as f64 / counts.prompts as f64);
        }
        if !levels.is_empty() {
            acting.metrics.set(format!("critic/{name}/score_mean"), levels.iter().sum::<f64>() / levels.len() as f64);
        }
        Ok(vec![(self.config.column.clone(), Signal { scope: Scope::Turn, provider: self.name.clone(), column })])
    }
}

impl Judge {
    /// The score of each turn of a group, `[turns]`; `None` where its prompt does not fit.
    fn scores(
        &self,
        group: Group<'_>,
        items: &[String],
        policy: &mut dyn Policy,
        counts: &mut Counts,
        spent: &mut u64,
    ) -> Result<Vec<Option<f64>>, PolicyError> {
        let tokenizer = policy.tokenizer();
        let stop = tokenizer.token(&self.stop).ok_or_else(|| {
            PolicyError::Unsupported(format!("node `{}` has no token for the stop word `{}`", self.config.agent, self.stop))
        })?;
        let sequence = |label: &str| {
            let mut tokens = tokenizer.encode(label);
            tokens.push(stop);
            tokens
        };
        let labels = LABELS.map(sequence);
        let trie = Trie::new(labels.iter().cloned());
        let how = Condense { turns: self.config.history.map(AtLeast::get), cut_at: None };
        let longest = labels.iter().map(Vec::len).max().unwrap_or(0);
        let reader = Reader::new(group);
        // One record per turn and item, with a path per label.
        let mut logs: Vec<GroupLog> = Vec::new();
        let mut asked = vec![false; group.n_turns()];
        for (t, asked) in asked.iter_mut().enumerate() {
            let story = reader.story(t + 1, false, &how, &*tokenizer);
            let prompts: Vec<Vec<u32>> =
                items.iter().map(|item| tokenizer.encode(&format!("{story}\n\n{ITEM} {}\n\n{QUESTION}", item.trim()))).collect();
            counts.prompts += 1;
            // A score is over all items.
            if prompts.iter().any(|prompt| prompt.len() + longest > policy.max_tokens()) {
                counts.too_long += 1;
                continue;
            }
            *asked = true;
            for (i, prompt) in prompts.into_iter().enumerate() {
                let key = [b"critic\0", self.name.as_bytes(), b"\0", &(i as u64).to_le_bytes(), reader.key(t + 1)].concat();
                let mut log = GroupLog { task_name: format!("critic {}", self.name), ..GroupLog::default() };
                for label in &labels {
                    let action = Action::given_among(label.clone(), &trie).ok_or_else(|| {
                        PolicyError::Unsupported(format!(
                            "node `{}` cannot tell the labels Yes, In Progress and No apart",
                            self.config.agent
                        ))
                    })?;
                    log.leaves.push(LeafLog { turn: Some(log.turns.len()), end: End::Untried, seed: 0 });
                    log.turns.push(TurnLog {
                        agent: self.config.agent.as_str().into(),
                        context: Context::Restart,
                        read: prompt.clone(),
                        action,
                        state: key.clone(),
                        ..TurnLog::default()
                    });
                }
                logs.push(log);
            }
        }
        let n = logs.len();
        let batch = Batch::from_groups(logs, NonFinite::Refuse).map_err(|e| PolicyError::Unsupported(e.to_string()))?;
        let credit: Vec<Credit> = batch.groups().map(|group| Credit::per_turn(vec![0.0; group.n_turns()])).collect();
        let rows = RowSet::from_credit(&batch, &credit, None);
        *spent += rows.tokens.len() as u64;
        let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
        let logprob = policy.score(&rows, &request)?.columns.pop().unwrap_or_default();
        let mut probability = vec![[0.0; LABELS.len()]; n];
        for row in &rows.rows {
            let sum: f64 = logprob[row.trained.clone()].iter().map(|x| f64::from(*x)).sum();
            probability[row.group as usize][row.trajectory as usize] = sum.exp();
        }
        let mut of_turn = probability.chunks(items.len());
        let score = |of_items: &[[f64; LABELS.len()]]| {
            let pairs: Vec<(f64, f64)> = of_items.iter().map(|[yes, in_progress, _]| (*yes, *in_progress)).collect();
            checklist_score(&pairs)
        };
        Ok(asked.into_iter().map(|asked| if asked { of_turn.next().and_then(score) } else { None }).collect())
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::{NamedCritic, Slot};

    use super::*;
    use crate::testing::{World, plugin};

    const TREE: &str = "tasks = 2\ndepth = 2\nbranches = 2\nrewards = \"sparse\"\nstates = \"prefixes\"";
    const ROLLOUT: &str = "groups = 2\ngroup_size = 2\ndecode = \"admissible\"";

    fn judged(body: &str) -> (Batch, World) {
        let config: Slot<dyn CriticConfig> = plugin("checklist", body);
        let mut world = World::new(("token-tree", TREE), &["actor"], config.words());
        let mut batch = world.batch("independent", ROLLOUT);
        let mut critic = NamedCritic { name: "list".into(), critic: world.critic("list", "checklist", body) };
        world.judge(&mut critic, &mut batch).unwrap();
        (batch, world)
    }
    fn column(batch: &Batch) -> Vec<Option<f32>> {
        let column = &batch.signals["checklist"].column;
        (0..column.len()).map(|i| column.get(i)).collect()
    }

    #[test]
    fn a_judge_that_knows_nothing_gives_a_half() {
        // Three labels of a third each, whatever the vocabulary: ⅓ + ½ · ⅓
        let (batch, world) = judged("items = { default = [\"said a\", \"said b\"] }\npays = \"level\"");
        assert_eq!(column(&batch).len(), 8);
        assert!(column(&batch).iter().all(|x| (x.unwrap() - 0.5).abs() < 1e-6), "{:?}", column(&batch));
        assert_eq!(world.metrics.get("critic/list/prompt_too_long_rate"), Some(0.0));
        assert!(world.ledger.critic_tokens > 0);
        // The first increment is the first score, the others lead nowhere.
        let (batch, _) = judged("items = { default = [\"said a\"] }");
        for group in batch.groups() {
            for (t, paid) in group.turn_signal("checklist").enumerate() {
                let want = if group.parent(t).is_none() { 0.5 } else { 0.0 };
                assert!((paid.unwrap() - want).abs() < 1e-6, "{paid:?}");
            }
        }
    }

    #[test]
    fn tasks_without_a_checklist_are_counted_and_have_no_score() {
        let (batch, world) = judged("items = { swimming = [\"swam\"] }");
        assert!(column(&batch).iter().all(Option::is_none));
        assert_eq!(world.metrics.get("critic/list/groups_without_checklist"), Some(2.0));
    }

    #[test]
    fn an_empty_list_is_refused() {
        let world = World::new(("token-tree", TREE), &["actor"], Vec::new());
        let config: Slot<dyn CriticConfig> = plugin("checklist", "items = { default = [] }");
        let error = world.with_context(|context| config.build("list", context)).err().unwrap().to_string();
        assert!(error.contains("lists nothing"), "{error}");
    }
}
