//! Live objects: what a phase's tables become. They are built once, and rebuilt only where a phase or a schedule changes
//! their table; what they remember stays with their name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use ascribe_core::build::{BuildContext, BuildError};
use ascribe_core::critic::CriticError;
use ascribe_core::environment::Capabilities;
use ascribe_core::experiment::{KnobMemory, Phase, Plan};
use ascribe_core::graph;
use ascribe_core::ledger::Ledger;
use ascribe_core::play::Keep;
use ascribe_core::policy::HeadSpec;
use ascribe_core::range::Seconds;
use ascribe_core::rollout::{Acting, Nodes};
use ascribe_core::{Critic, CriticConfig, Experiment, Metrics, NamedCritic, Now, RolloutStrategy, Seeds, Slot, TaskSet};
use serde::{Deserialize, Serialize};

use crate::checkpoint::file_name;

/// Why live objects could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// A plugin could not be built.
    #[error("phase `{phase}`, `{}`: {source}", path.join("."))]
    Build {
        /// The phase's name.
        phase: String,
        /// The key of its table.
        path: Vec<String>,
        /// Why.
        source: BuildError,
    },
    /// Phases do not fit together, or a number cannot be scheduled.
    #[error("{0}")]
    Config(String),
    /// A saved state was not taken up.
    #[error("the saved state of `{key}` cannot be taken up: {reason}")]
    Restore {
        /// Whose state.
        key: String,
        /// Why.
        reason: String,
    },
    /// A state could not be saved.
    #[error("the state of `{key}` cannot be saved: {reason}")]
    Save {
        /// Whose state.
        key: String,
        /// Why.
        reason: String,
    },
}

/// What acting stages share.
pub struct World {
    /// Policy nodes.
    pub nodes: Nodes,
    /// The tasks.
    pub tasks: Box<dyn TaskSet>,
    /// Training tasks drawn so far.
    pub drawn: u64,
    /// What was spent on training.
    pub ledger: Ledger,
    /// The run's seed.
    pub seeds: Seeds,
    /// Longest time that a step of an environment may take; `None` is no limit.
    pub patience: Option<Duration>,
}

impl World {
    /// As an acting stage of an update sees it.
    pub fn acting<'a>(&'a mut self, stage: &'a mut Stage<'_>) -> Acting<'a> {
        Acting {
            nodes: &mut self.nodes,
            critics: stage.critics,
            tasks: &mut *self.tasks,
            drawn: &mut self.drawn,
            seeds: self.seeds,
            round: 0,
            keep: stage.keep,
            patience: self.patience,
            ledger: &mut self.ledger,
            metrics: stage.metrics,
            now: stage.now,
        }
    }
}

/// What acting stages share for one update.
pub struct Stage<'a> {
    /// Where the run stands.
    pub now: &'a Now,
    /// What is kept of every turn.
    pub keep: Keep,
    /// Critics, in the order in which they judge.
    pub critics: &'a mut Vec<NamedCritic>,
    /// What there is to report.
    pub metrics: &'a mut Metrics,
}

impl Stage<'_> {
    /// Lets one critic after the other act. They do not see each other at work.
    ///
    /// # Errors
    /// The first that fails.
    pub fn each_critic(
        &mut self,
        world: &mut World,
        mut act: impl FnMut(&mut NamedCritic, &mut Acting<'_>) -> Result<(), CriticError>,
    ) -> Result<(), CriticError> {
        let mut critics = std::mem::take(self.critics);
        let acted = critics.iter_mut().try_for_each(|critic| act(critic, &mut world.acting(self)));
        *self.critics = critics;
        acted
    }
}

/// A head that a critic added to a node; nodes are given theirs before their weights are loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    node: String,
    name: String,
    detach_trunk: bool,
    zero_init: bool,
}

impl Head {
    fn spec(&self) -> HeadSpec {
        HeadSpec { name: self.name.clone(), detach_trunk: self.detach_trunk, zero_init: self.zero_init }
    }
}

/// From what a live object was built: its table and the scheduled numbers in it.
#[derive(Clone, Debug, PartialEq)]
struct Recipe {
    /// Where its state is kept: kind, name, plugin.
    key: String,
    table: Option<toml::Value>,
    numbers: Vec<(String, f64)>,
}

impl Recipe {
    fn of(tree: &toml::Table, numbers: &BTreeMap<String, f64>, path: &[&str]) -> Self {
        let table = path[1..].iter().try_fold(tree.get(path[0]), |at, key| Some(at?.get(key)));
        let table = table.flatten().cloned();
        let mut key = path.join(".");
        // Another plugin under the same name starts without the memory of the one before it.
        if let Some(plugin) = table.as_ref().and_then(|t| t.as_table()).and_then(|t| t.keys().next()) {
            key = format!("{key}.{plugin}");
        }
        let prefix = format!("{}.", path.join("."));
        let numbers = numbers.iter().filter(|(p, _)| p.starts_with(&prefix)).map(|(p, x)| (p.clone(), *x)).collect();
        Self { key, table, numbers }
    }
}

/// Everything that lives as long as a run.
pub struct Live {
    /// What acting stages share.
    pub world: World,
    /// What the environment can do, with the words of all critics.
    about: Capabilities,
    /// Critics, in the order in which they judge.
    pub critics: Vec<NamedCritic>,
    rollout: Option<(Recipe, Box<dyn RolloutStrategy>)>,
    recipes: BTreeMap<String, Recipe>,
    heads: Vec<Head>,
    /// States of what is not live at the moment, by [`Recipe::key`].
    shelf: BTreeMap<String, Vec<u8>>,
    device: String,
    base: PathBuf,
}

/// What a checkpoint keeps of live objects: some files, and what is needed to make sense of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    drawn: u64,
    ledger: Ledger,
    heads: Vec<Head>,
    /// File of each state, by whose it is.
    shelf: BTreeMap<String, String>,
}

impl Live {
    /// Builds environment and policy nodes, and tries the rollouts and critics of every phase, so that a phase that
    /// cannot begin is found before the first one runs.
    ///
    /// # Errors
    /// If a plugin cannot be built, or a phase wants another environment or other policies.
    pub fn build(plan: &Plan, base: PathBuf) -> Result<Self, LiveError> {
        let experiments = experiments(plan)?;
        let (first, experiment) = &experiments[0];
        let seeds = Seeds(experiment.seed);
        let mut context = context(experiment, base.clone());
        let tasks = experiment.environment.build(&context).map_err(not_built(&first.name, &["environment"]))?;
        let about = with_words(tasks.capabilities(), experiments.iter().flat_map(|(_, e)| e.critic.values()));
        context.environment = Some(&about);
        let mut built = Nodes::new();
        for (name, config) in &experiment.policy {
            built.insert(name.clone(), config.build(&context).map_err(not_built(&first.name, &["policy", name]))?);
        }
        try_stages(&experiments, &context)?;
        let patience = experiment.run.patience.map(Seconds::duration);
        let world = World { nodes: built, tasks, drawn: 0, ledger: Ledger::default(), seeds, patience };
        Ok(Self {
            world,
            about,
            critics: Vec::new(),
            rollout: None,
            recipes: BTreeMap::new(),
            heads: Vec::new(),
            shelf: BTreeMap::new(),
            device: experiment.device.clone(),
            base,
        })
    }

    /// Makes rollout and critics those of `experiment`. What stays the same is not touched; what changes keeps its state
    /// as long as it is the same plugin under the same name.
    ///
    /// # Errors
    /// If one cannot be built, or does not take up its state.
    pub fn fit(&mut self, experiment: &Experiment, phase: &Phase, numbers: &BTreeMap<String, f64>) -> Result<(), LiveError> {
        let tree = &phase.tree;
        let recipe = Recipe::of(tree, numbers, &["rollout"]);
        let wanted: BTreeMap<String, Recipe> =
            experiment.critic.keys().map(|name| (name.clone(), Recipe::of(tree, numbers, &["critic", name]))).collect();
        let same_rollout = self.rollout.as_ref().is_some_and(|(built, _)| *built == recipe);
        if same_rollout && wanted == self.recipes {
            return Ok(());
        }
        let context = BuildContext {
            seeds: self.world.seeds,
            device: &self.device,
            threads: rayon::current_num_threads(),
            environment: Some(&self.about),
            nodes: self.world.nodes.keys().cloned().collect(),
            base: self.base.clone(),
        };
        if !same_rollout {
            if let Some((old, rollout)) = self.rollout.take() {
                self.shelf.insert(old.key, rollout.save());
            }
            let mut rollout = experiment.rollout.build(&context).map_err(not_built(&phase.name, &["rollout"]))?;
            if let Some(bytes) = self.shelf.remove(&recipe.key) {
                rollout.load(&bytes).map_err(|reason| LiveError::Restore { key: recipe.key.clone(), reason })?;
            }
            self.rollout = Some((recipe, rollout));
        }

        let order = graph::critic_order(&experiment.critic)
            .map_err(|circle| LiveError::Config(format!("critics need each other in a circle: {}", circle.join(", "))))?;
        let mut old: BTreeMap<String, Box<dyn Critic>> =
            std::mem::take(&mut self.critics).into_iter().map(|c| (c.name, c.critic)).collect();
        let recipes = std::mem::replace(&mut self.recipes, wanted);
        for (name, recipe) in &recipes {
            if self.recipes.get(name) != Some(recipe)
                && let Some(critic) = old.remove(name)
            {
                self.shelf.insert(recipe.key.clone(), save_critic(&recipe.key, &*critic)?);
            }
        }
        for name in order {
            let critic = match old.remove(&name) {
                Some(critic) => critic,
                None => {
                    let key = &self.recipes[&name].key;
                    let built = experiment.critic[&name].build(&name, &context);
                    let mut critic = built.map_err(not_built(&phase.name, &["critic", &name]))?;
                    for (node, spec) in critic.heads() {
                        add_head(&mut self.world.nodes, &mut self.heads, &name, node, spec)?;
                    }
                    if let Some(bytes) = self.shelf.remove(key) {
                        critic.load(&bytes).map_err(|e| LiveError::Restore { key: key.clone(), reason: e.to_string() })?;
                    }
                    critic
                }
            };
            self.critics.push(NamedCritic { name, critic });
        }
        Ok(())
    }

    /// Its parts, to be borrowed apart.
    ///
    /// # Panics
    /// Before the first [`Live::fit`].
    pub fn parts(&mut self) -> (&mut dyn RolloutStrategy, &mut Vec<NamedCritic>, &mut World) {
        let (_, rollout) = self.rollout.as_mut().expect("fit() builds the rollout before an update");
        (&mut **rollout, &mut self.critics, &mut self.world)
    }

    /// Everything that is needed to go on, as files of a checkpoint.
    ///
    /// # Errors
    /// If a policy or critic cannot be saved.
    pub fn save(&self, files: &mut BTreeMap<String, Vec<u8>>) -> Result<Saved, LiveError> {
        let mut saved =
            Saved { drawn: self.world.drawn, ledger: self.world.ledger, heads: self.heads.clone(), shelf: BTreeMap::new() };
        for (name, policy) in &self.world.nodes {
            let bytes = policy.save().map_err(|e| LiveError::Save { key: format!("policy.{name}"), reason: e.to_string() })?;
            files.insert(node_file(name), bytes);
        }
        files.insert("tasks.bin".into(), self.world.tasks.save());
        let mut states = self.shelf.clone();
        if let Some((recipe, rollout)) = &self.rollout {
            states.insert(recipe.key.clone(), rollout.save());
        }
        for NamedCritic { name, critic } in &self.critics {
            let key = &self.recipes[name].key;
            states.insert(key.clone(), save_critic(key, &**critic)?);
        }
        for (key, bytes) in states {
            let file = format!("{}.bin", file_name(&key));
            files.insert(file.clone(), bytes);
            saved.shelf.insert(key, file);
        }
        Ok(saved)
    }

    /// Takes up what was saved. Rollout and critics take theirs when they are built.
    ///
    /// # Errors
    /// If something does not take up its state.
    pub fn load(&mut self, saved: Saved, files: &BTreeMap<String, Vec<u8>>) -> Result<(), LiveError> {
        let file = |name: &str| files.get(name).ok_or_else(|| not_restored(name, &"the checkpoint does not hold it"));
        for name in self.world.nodes.keys() {
            file(&node_file(name))?;
        }
        if let Some(head) = saved.heads.iter().find(|head| !self.world.nodes.contains_key(&head.node)) {
            let reason = format!("there is no policy node `{}`", head.node);
            return Err(not_restored(&format!("head {} of policy.{}", head.name, head.node), &reason));
        }
        self.load_nodes(&saved, files)?;
        self.world.tasks.load(file("tasks.bin")?).map_err(|e| not_restored("environment", &e))?;
        for (key, name) in &saved.shelf {
            self.shelf.insert(key.clone(), file(name)?.clone());
        }
        self.world.drawn = saved.drawn;
        self.world.ledger = saved.ledger;
        Ok(())
    }

    /// Takes up the policy nodes that a checkpoint holds, with the heads that they had; the others stay as they are.
    /// Returns the names of those it took.
    ///
    /// # Errors
    /// If a node does not take up its state.
    pub fn load_nodes(&mut self, saved: &Saved, files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<String>, LiveError> {
        for head in &saved.heads {
            let Some(node) = self.world.nodes.get_mut(&head.node) else { continue };
            node.add_head(head.spec()).map_err(|e| not_restored(&format!("head {} of policy.{}", head.name, head.node), &e))?;
            self.heads.push(head.clone());
        }
        let mut taken = Vec::new();
        for (name, policy) in &mut self.world.nodes {
            if let Some(bytes) = files.get(&node_file(name)) {
                policy.load(bytes).map_err(|e| not_restored(&format!("policy.{name}"), &e))?;
                taken.push(name.clone());
            }
        }
        Ok(taken)
    }
}

/// What an environment can do, with the words that critics bring: after its own, sorted, so that without critics nothing
/// changes.
fn with_words<'a>(about: &Capabilities, critics: impl Iterator<Item = &'a Slot<dyn CriticConfig>>) -> Capabilities {
    let known: BTreeSet<&String> = about.vocabulary.iter().collect();
    let words: BTreeSet<String> = critics.flat_map(|critic| critic.words()).filter(|word| !known.contains(word)).collect();
    let vocabulary = about.vocabulary.iter().cloned().chain(words).collect();
    Capabilities { vocabulary, ..about.clone() }
}

fn not_restored(key: &str, reason: &dyn std::fmt::Display) -> LiveError {
    LiveError::Restore { key: key.into(), reason: reason.to_string() }
}

/// Builds what a run builds at its beginning and lets it go, but for policies, whose weights may be large: mistakes that no
/// table shows are told without a run. Where the environment's data are not here, nothing more can be told.
///
/// # Errors
/// If a plugin refuses its settings, or a phase wants another environment or other policies.
pub fn rehearse(plan: &Plan, base: PathBuf) -> Result<(), LiveError> {
    let elsewhere = |e: &BuildError| matches!(e, BuildError::Data(_) | BuildError::Device(_));
    let experiments = experiments(plan)?;
    let (first, experiment) = &experiments[0];
    let mut context = context(experiment, base);
    let tasks = match experiment.environment.build(&context) {
        Err(e) if elsewhere(&e) => return Ok(()),
        built => built.map_err(not_built(&first.name, &["environment"]))?,
    };
    let about = with_words(tasks.capabilities(), experiments.iter().flat_map(|(_, e)| e.critic.values()));
    context.environment = Some(&about);
    match try_stages(&experiments, &context) {
        Err(LiveError::Build { source, .. }) if elsewhere(&source) => Ok(()),
        tried => tried,
    }
}

/// Every phase at its beginning; there is at least one, and they fit together.
fn experiments(plan: &Plan) -> Result<Vec<(&Phase, Experiment)>, LiveError> {
    if plan.phases.is_empty() {
        return Err(LiveError::Config("the experiment has no phases".into()));
    }
    one_world(plan)?;
    let at = |phase: &'_ Phase| phase.at(&Now::default(), &mut KnobMemory::default()).map(|(experiment, _)| experiment);
    let named = |phase| at(phase).map_err(|e| LiveError::Config(format!("phase `{}`: {e}", phase.name)));
    plan.phases.iter().map(|phase| Ok((phase, named(phase)?))).collect()
}

fn context(experiment: &Experiment, base: PathBuf) -> BuildContext<'_> {
    BuildContext {
        seeds: Seeds(experiment.seed),
        device: &experiment.device,
        threads: rayon::current_num_threads(),
        environment: None,
        nodes: experiment.policy.keys().cloned().collect(),
        base,
    }
}

/// Builds rollout and critics of each phase, and lets them go.
fn try_stages(experiments: &[(&Phase, Experiment)], context: &BuildContext<'_>) -> Result<(), LiveError> {
    for (phase, experiment) in experiments {
        experiment.rollout.build(context).map_err(not_built(&phase.name, &["rollout"]))?;
        for (name, config) in &experiment.critic {
            config.build(name, context).map_err(not_built(&phase.name, &["critic", name]))?;
        }
    }
    Ok(())
}

fn not_built(phase: &str, path: &[&str]) -> impl FnOnce(BuildError) -> LiveError {
    let (phase, path) = (phase.to_string(), path.iter().map(|key| (*key).to_string()).collect());
    move |source| LiveError::Build { phase, path, source }
}

/// A node's file in a checkpoint.
pub fn node_file(name: &str) -> String {
    format!("node-{}.bin", file_name(name))
}

/// The node whose file in a checkpoint this is; what [`file_name`] could not keep of its name is as it is there.
pub(crate) fn node_of_file(file: &str) -> Option<&str> {
    file.strip_prefix("node-")?.strip_suffix(".bin")
}

fn save_critic(key: &str, critic: &dyn Critic) -> Result<Vec<u8>, LiveError> {
    critic.save().map_err(|e| LiveError::Save { key: key.into(), reason: e.to_string() })
}

/// Adds a head unless the node has it: a critic that was rebuilt asks for the same one again.
fn add_head(nodes: &mut Nodes, heads: &mut Vec<Head>, critic: &str, node: String, spec: HeadSpec) -> Result<(), LiveError> {
    let head = Head { node, name: spec.name.clone(), detach_trunk: spec.detach_trunk, zero_init: spec.zero_init };
    if heads.contains(&head) {
        return Ok(());
    }
    let policy = nodes.get_mut(&head.node).ok_or_else(|| {
        LiveError::Config(format!("`critic.{critic}` wants a head on a policy node `{}`, which is not there", head.node))
    })?;
    policy.add_head(spec).map_err(|e| LiveError::Config(format!("`critic.{critic}`: {e}")))?;
    heads.push(head);
    Ok(())
}

/// Environment, policies, seed, device and start belong to the run, not to a phase; and what is built once cannot be scheduled.
fn one_world(plan: &Plan) -> Result<(), LiveError> {
    const OF_THE_RUN: [&str; 5] = ["environment", "policy", "seed", "device", "start_from"];
    let first = &plan.phases[0];
    for phase in &plan.phases {
        for key in OF_THE_RUN {
            if phase.tree.get(key) != first.tree.get(key) {
                return Err(LiveError::Config(format!(
                    "phase `{}` changes `{key}`: environment, policies, seed, device and start are the same in all phases; begin another experiment for another one",
                    phase.name
                )));
            }
        }
        for knob in &phase.knobs {
            if OF_THE_RUN.contains(&knob.path[0].as_str()) {
                return Err(LiveError::Config(format!(
                    "`{}` cannot be scheduled: the `{}` is built once, before the first update",
                    knob.path.join("."),
                    knob.path[0]
                )));
            }
        }
    }
    Ok(())
}
