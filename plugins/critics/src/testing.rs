//! A small world for the tests of critics: an environment, policy nodes, a rollout, all from TOML as in an experiment.

use std::sync::Arc;

use ascribe_core::batch::NonFinite;
use ascribe_core::critic::Lesson;
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{End, GroupLog, LeafLog, TurnLog};
use ascribe_core::play::Keep;
use ascribe_core::policy::{OptimStep, Part};
use ascribe_core::rollout::{Acting, Nodes};
use ascribe_core::{
    Batch, BuildContext, Credit, Critic, CriticConfig, Metrics, NamedCritic, Now, Objective, PolicyConfig, RolloutConfig, RowSet,
    Seeds, Slot, TaskSet, TaskSetConfig,
};
use serde::de::DeserializeOwned;

// A crate that is linked but never named is dropped by the linker.
use ascribe_environments as _;
use ascribe_estimators as _;
use ascribe_objectives as _;
use ascribe_policies as _;
use ascribe_rollouts as _;
use ascribe_transforms as _;

pub(crate) struct World {
    pub nodes: Nodes,
    pub tasks: Box<dyn TaskSet>,
    pub keep: Keep,
    pub ledger: Ledger,
    pub metrics: Metrics,
    pub now: Now,
    words: Vec<String>,
    drawn: u64,
}

/// A plugin's table.
pub(crate) fn plugin<T: DeserializeOwned>(name: &str, body: &str) -> T {
    let body: toml::Table = toml::from_str(body).expect("TOML");
    let table = toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))]);
    T::deserialize(toml::Value::Table(table)).expect("a plugin of that name")
}

/// A group by hand, from its turns and the ends of its paths.
pub(crate) fn group(turns: Vec<TurnLog>, leaves: &[(usize, End)]) -> GroupLog {
    let leaves = leaves.iter().map(|(t, end)| LeafLog { turn: Some(*t), end: end.clone(), seed: 0 }).collect();
    GroupLog { task_name: "task".into(), turns, leaves, ..GroupLog::default() }
}

impl World {
    /// An environment by name and table, and tabular nodes. `words` are those that critics bring.
    pub fn new(environment: (&str, &str), nodes: &[&str], words: Vec<String>) -> Self {
        let config: Slot<dyn TaskSetConfig> = plugin(environment.0, environment.1);
        let context = context(None);
        let tasks = config.build(&context).expect("built");
        let mut world = Self {
            nodes: Nodes::new(),
            tasks,
            keep: Keep { privileged: true, snapshots: true },
            ledger: Ledger::default(),
            metrics: Metrics::default(),
            now: Now::default(),
            words,
            drawn: 0,
        };
        for node in nodes {
            world.add_node(node, "tabular", "");
        }
        world
    }

    /// A policy node from its table.
    pub fn add_node(&mut self, name: &str, plugin_name: &str, body: &str) {
        let config: Slot<dyn PolicyConfig> = plugin(plugin_name, body);
        let built = self.with_context(|context| config.build(context)).expect("built");
        self.nodes.insert(name.into(), built);
    }

    /// What plugins are built from.
    pub fn with_context<T>(&self, f: impl FnOnce(&BuildContext<'_>) -> T) -> T {
        let mut about = self.tasks.capabilities().clone();
        about.vocabulary.extend(self.words.iter().cloned());
        let mut context = context(Some(&about));
        context.nodes = self.nodes.keys().cloned().collect();
        f(&context)
    }

    /// A critic from its table.
    pub fn critic(&self, name: &str, plugin_name: &str, body: &str) -> Box<dyn Critic> {
        let config: Slot<dyn CriticConfig> = plugin(plugin_name, body);
        self.with_context(|context| config.build(name, context)).expect("built")
    }

    /// A critic from its table, with the heads that it wants.
    pub fn critic_with_heads(&mut self, name: &str, plugin_name: &str, body: &str) -> NamedCritic {
        let critic = self.critic(name, plugin_name, body);
        for (node, spec) in critic.heads() {
            self.nodes.get_mut(&node).expect("the node").add_head(spec).expect("a new head");
        }
        NamedCritic { name: name.into(), critic }
    }

    /// What a critic wants trained, with credit that is 0 everywhere.
    pub fn lessons(&mut self, critic: &mut NamedCritic, batch: &Batch) -> Vec<Lesson> {
        let credit: Vec<Credit> = batch.groups().map(|group| Credit::per_turn(vec![0.0; group.n_turns()])).collect();
        self.act(|acting| critic.critic.learn(batch, &credit, acting)).expect("lessons")
    }

    /// One step of Adam on each node that a critic has lessons for.
    pub fn learn(&mut self, critic: &mut NamedCritic, batch: &Batch, learning_rate: f64) {
        for lesson in self.lessons(critic, batch) {
            let picked: Vec<u32> = (0..lesson.rows.own().unwrap().len() as u32).collect();
            let totals = lesson.rows.own().unwrap().totals(&picked);
            let part = Part {
                rows: lesson.rows.own().unwrap().clone(),
                picked: &picked,
                totals,
                objective: &*lesson.objective,
                scale: lesson.scale,
            };
            let node = self.nodes.get_mut(&lesson.node).expect("the node");
            node.forward_backward(&[part], usize::MAX, &self.now).expect("a gradient");
            let step = OptimStep { learning_rate, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };
            node.optim_step(&step).expect("a step");
        }
    }

    /// What an acting stage sees, without critics.
    pub fn act<T>(&mut self, f: impl FnOnce(&mut Acting<'_>) -> T) -> T {
        f(&mut Acting {
            nodes: &mut self.nodes,
            critics: &mut Vec::new(),
            tasks: &mut *self.tasks,
            drawn: &mut self.drawn,
            seeds: Seeds(11),
            round: 0,
            keep: self.keep,
            patience: None,
            ledger: &mut self.ledger,
            metrics: &mut self.metrics,
            now: &self.now,
        })
    }

    /// The groups of one update.
    pub fn groups(&mut self, rollout: &str, body: &str) -> Vec<GroupLog> {
        let config: Slot<dyn RolloutConfig> = plugin(rollout, body);
        let mut rollout = self.with_context(|context| config.build(context)).expect("built");
        let groups = self.act(|acting| rollout.collect(acting)).expect("collected");
        self.now.update += 1;
        groups
    }

    /// The groups of one update as a batch.
    pub fn batch(&mut self, rollout: &str, body: &str) -> Batch {
        Batch::from_groups(self.groups(rollout, body), NonFinite::Refuse).expect("records")
    }

    /// One step of the score-function gradient.
    pub fn train(&mut self, node: &str, batch: &Batch, credit: &[Credit], learning_rate: f64) {
        let objective: Slot<dyn Objective> = plugin("reinforce", "");
        let rows = Arc::new(RowSet::from_credit(batch, credit, None));
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let totals = rows.totals(&picked);
        let part = Part { rows, picked: &picked, totals, objective: &*objective, scale: 1.0 };
        let policy = self.nodes.get_mut(node).expect("a node of that name");
        policy.forward_backward(&[part], usize::MAX, &self.now).expect("finite");
        let step = OptimStep { learning_rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };
        policy.optim_step(&step).expect("a step");
    }

    /// Some updates of a tabular `actor` along the exact advantages: it is the uniform policy no more.
    pub fn improve(&mut self, updates: usize) {
        let mut exact = NamedCritic { name: "exact".into(), critic: self.critic("exact", "oracle", "") };
        for _ in 0..updates {
            let mut batch = self.batch("independent", "groups = 200\ngroup_size = 1\ndecode = \"admissible\"");
            self.judge(&mut exact, &mut batch).expect("tables");
            let turns = |group: ascribe_core::Group<'_>| group.turn_signal("advantage_true").collect();
            let credit: Vec<Credit> = batch.groups().map(|g| Credit { turns: turns(g), ..Credit::default() }).collect();
            self.train("actor", &batch, &credit, 0.1);
        }
    }

    /// Has a batch judged, as the loop does it.
    pub fn judge(&mut self, critic: &mut NamedCritic, batch: &mut Batch) -> Result<(), ascribe_core::critic::CriticError> {
        self.act(|acting| critic.judge(batch, acting))
    }
}

fn context(environment: Option<&ascribe_core::environment::Capabilities>) -> BuildContext<'_> {
    BuildContext {
        seeds: Seeds(11),
        device: "cpu",
        threads: 1,
        environment,
        nodes: std::collections::BTreeSet::new(),
        base: std::path::PathBuf::new(),
    }
}
