//! From `[grid]` to cells.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ascribe_config::{Grid, Loaded, Report, Request, load};
use ascribe_core::build::BuildError;
use ascribe_core::experiment::{Budget, Experiment, KnobMemory, Phase};
use ascribe_core::{BuildContext, Now};
use ascribe_run::checkpoint::sha256;
use ascribe_run::{differences, folder};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::GridError;
use super::folder::RUNS;
use super::spec::{Choice, FIRST_TUNING_SEED, MOST_CELLS, Spec, combinations, setting};

/// Letters of an arm that the folders of its runs show.
const MOST_LETTERS: usize = 48;

/// A grid that was read: its arms are checked, nothing was run.
#[derive(Debug)]
pub struct Plan {
    /// What it is called.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// What the experiment asks.
    pub question: String,
    /// What `[grid]` says.
    pub spec: Spec,
    /// Arms, with every value of the axes, and their controls, in the order in which they are shown.
    pub arms: Vec<ArmPlan>,
    /// The baseline with the first value of every axis, where that is excluded: the others are compared with the next one.
    pub baseline_left_out: Option<String>,
    request: Request,
    grid: Grid,
}

/// One way to train.
#[derive(Clone, Debug)]
pub struct ArmPlan {
    /// What it is called.
    pub name: String,
    /// The arm of `[grid.arm]` whose layer it has; `None` for an experiment without arms.
    layer: Option<String>,
    /// Settings on top: the axes', the control's.
    settings: Vec<String>,
    /// The arm whose choice it takes over: a control's. Others choose for themselves.
    pub chosen_by: Option<String>,
    /// What makes it this experiment, but for the seed.
    identity: String,
    /// What ends a run of it.
    pub budget: Budget,
    /// Updates of a run.
    pub updates: u64,
    /// Whether its last phase is measured at its end alone.
    pub measured_seldom: bool,
    /// The plugin in each slot of its last phase.
    plugins: BTreeMap<String, String>,
}

/// One run of a grid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// Hash of its resolved configuration.
    pub id: String,
    /// Name of its arm.
    pub arm: String,
    /// The seed.
    pub seed: u64,
    /// The settings that are tried, if it is a tuning run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<Vec<String>>,
    /// Layer of `[grid.arm]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Settings, the seed's included.
    pub settings: Vec<String>,
}

impl Cell {
    /// Its run's folder, seen from the grid's.
    pub fn run(&self) -> PathBuf {
        // Axes may have long values, and a folder's name has an end; the hash tells arms apart.
        let shown: String = self.arm.chars().take(MOST_LETTERS).collect();
        let arm = format!("{shown}-{}", &self.id[..8]);
        folder::default_path("", RUNS, &arm, self.seed)
    }
}

impl Plan {
    /// Reads a grid, and checks every arm.
    ///
    /// * `request`: the experiment, without an arm and a seed.
    ///
    /// # Errors
    /// What is wrong with the grid, or with an experiment of one of its arms.
    pub fn read(request: Request) -> Result<Plan, GridError> {
        let grid = ascribe_config::grid(&request)?;
        let spec = Spec::read(&grid)?;
        let mut arms = Vec::new();
        let mut dir = None;
        let mut question = String::new();
        let mut baseline_left_out = None;
        // Axes that no arm has taken yet.
        let mut nobodys: Vec<String> = spec.axes().into_iter().map(|axis| axis.key).collect();
        for arm in spec.arms() {
            let layer = (!spec.arm.is_empty()).then(|| arm.clone());
            let plain = load_arm(&request, layer.as_deref(), &[], &[], 0)?;
            // An axis below a plugin that an arm does not have leaves it as it is.
            let (own, others): (Vec<Choice>, Vec<Choice>) =
                spec.axes().into_iter().partition(|axis| plugin_of(&axis.key).is_none_or(|plugin| has(&plain, &plugin)));
            nobodys.retain(|key| others.iter().any(|axis| axis.key == *key));
            for (i, axes) in combinations(&own).into_iter().enumerate() {
                let settings: Vec<String> = axes.iter().map(|(key, value)| setting(key, value)).collect();
                let name = std::iter::once(arm.clone()).chain(settings.iter().cloned()).collect::<Vec<_>>().join(", ");
                if spec.excludes(&arm, &axes) {
                    if i == 0 && arm == spec.baseline() {
                        baseline_left_out = Some(name);
                    }
                    continue;
                }
                let loaded = load_arm(&request, layer.as_deref(), &settings, &[], 0).map_err(|e| told(e, &grid, &spec, &name))?;
                let last = experiment(&loaded)?;
                dir.get_or_insert_with(|| last.run.dir.clone());
                question = last.question.clone().unwrap_or_default();
                let plan = arm_plan(name, layer.clone(), settings, None, &loaded)?;
                arms.extend(controls(&grid, &spec, &request, &arm, &plan, &loaded)?);
                arms.insert(
                    arms.iter().position(|a: &ArmPlan| a.chosen_by.as_ref() == Some(&plan.name)).unwrap_or(arms.len()),
                    plan,
                );
            }
        }
        if let Some(key) = nobodys.first() {
            let plugin = plugin_of(key).unwrap_or_default().join(".");
            let text = format!("no arm has `{plugin}`: the axis would put it there, in the place of another");
            return Err(grid.report(&["axis", key], text).into());
        }
        if arms.is_empty() {
            return Err(grid.report(&["exclude"], "nothing is left: every arm is excluded").into());
        }
        let name = spec.baseline();
        if arms.iter().all(|arm| arm.layer.as_ref().is_some_and(|layer| *layer != name)) {
            let text = format!("nothing is left of `{name}`, which the others are compared with: say another `grid.baseline`");
            return Err(grid.report(&["exclude"], text).into());
        }
        for (i, arm) in arms.iter().enumerate() {
            if arms[..i].iter().any(|twin| twin.name == arm.name) {
                let text = format!("two arms are called `{}`, a control or an axis among them: give one another name", arm.name);
                return Err(grid.report(&["arm"], text).into());
            }
            if let Some(twin) = arms[..i].iter().find(|twin| twin.identity == arm.identity) {
                let text = format!("`{}` and `{}` are the same experiment", twin.name, arm.name);
                return Err(grid.report(&["arm"], text).into());
            }
        }
        let dir = dir.unwrap_or_else(|| "runs".into());
        let folder = folder::default_path(&dir, &grid.name, "", 0).parent().and_then(Path::parent).map(Path::to_path_buf);
        let folder = folder.unwrap_or_default();
        let plan = Plan { name: grid.name.clone(), folder, question, spec, arms, baseline_left_out, request, grid: grid.clone() };
        let n = plan.n_cells();
        if n.0 + n.1 > MOST_CELLS {
            let text = format!("{} cells, and at most {MOST_CELLS} fit a grid", n.0 + n.1);
            return Err(grid.report::<&str>(&[], text).into());
        }
        let mut tried = BTreeMap::new();
        for cell in plan.tuning()? {
            let tries = cell.tries.unwrap_or_default().join(" ");
            if let Some(twin) = tried.insert((cell.arm.clone(), cell.id), tries.clone()) {
                let text = format!(
                    "`{twin}` and `{tries}` are the same experiment for arm `{}`: a value stands there twice, or the command line sets \
                     what is tuned",
                    cell.arm
                );
                return Err(grid.report(&["tune"], text).into());
            }
        }
        Ok(plan)
    }

    /// Whether the runs of every arm will measure what counts as their score, as far as that shows before they run: where the
    /// environment's data are not here, it does not say which splits it has.
    ///
    /// * `base`: folder that paths in the experiment are seen from.
    ///
    /// # Errors
    /// If an arm does not measure its score, or its environment refuses its settings.
    pub fn check_score(&self, base: &Path) -> Result<(), GridError> {
        // Arms mostly share one environment, and to build it may take a while.
        let mut built: Vec<(Option<Value>, Option<Vec<String>>)> = Vec::new();
        for arm in self.arms.iter().filter(|arm| arm.chosen_by.is_none()) {
            let loaded = load_arm(&self.request, arm.layer.as_deref(), &arm.settings, &[], 0)?;
            let table = loaded.plan.phases.first().and_then(|phase| phase.tree.get("environment")).cloned();
            let known = match built.iter().position(|(of, _)| *of == table) {
                Some(i) => i,
                None => {
                    built.push((
                        table,
                        splits_with_tasks(&loaded, base).map_err(|report| GridError::Arm { arm: arm.name.clone(), report })?,
                    ));
                    built.len() - 1
                }
            };
            let evaluations = phases(&loaded)?.into_iter().map(|experiment| experiment.evaluate).collect::<Vec<_>>();
            self.spec.score.measured_by(&evaluations, built[known].1.as_deref()).map_err(|(key, why)| {
                let text = format!("arm `{}` does not measure its score: {why}", arm.name);
                GridError::from(self.grid.report(&["score", key], text))
            })?;
        }
        Ok(())
    }

    /// Numbers of tuning runs and of runs that are reported.
    pub fn n_cells(&self) -> (usize, usize) {
        let tuned = combinations(&self.spec.tuned()).len();
        let choosing = self.arms.iter().filter(|arm| arm.chosen_by.is_none()).count();
        let tuning = if tuned > 1 { choosing * tuned * self.spec.tune_seeds as usize } else { 0 };
        (tuning, self.arms.len() * self.spec.seeds.all().len())
    }

    /// Tuning runs of every arm that chooses for itself.
    ///
    /// # Errors
    /// If an arm cannot be run with a setting.
    pub fn tuning(&self) -> Result<Vec<Cell>, GridError> {
        let tried = combinations(&self.spec.tuned());
        if tried.len() < 2 {
            return Ok(Vec::new());
        }
        let mut cells = Vec::new();
        for arm in self.arms.iter().filter(|arm| arm.chosen_by.is_none()) {
            for choice in &tried {
                let tries: Vec<String> = choice.iter().map(|(key, value)| setting(key, value)).collect();
                cells.extend(self.cells_of(
                    arm,
                    &tries,
                    Some(&tries),
                    FIRST_TUNING_SEED..FIRST_TUNING_SEED + self.spec.tune_seeds,
                )?);
            }
        }
        Ok(cells)
    }

    /// Runs that are reported.
    ///
    /// * `chosen`: what tuning chose, by arm.
    ///
    /// # Errors
    /// If an arm cannot be run with what it chose.
    pub fn reported(&self, chosen: &BTreeMap<String, Vec<String>>) -> Result<Vec<Cell>, GridError> {
        let single = combinations(&self.spec.tuned()).swap_remove(0);
        let single: Vec<String> = single.iter().map(|(key, value)| setting(key, value)).collect();
        let mut cells = Vec::new();
        for arm in &self.arms {
            let by = arm.chosen_by.as_ref().unwrap_or(&arm.name);
            cells.extend(self.cells_of(arm, chosen.get(by).unwrap_or(&single), None, self.spec.seeds.all())?);
        }
        // Seeds of all arms take turns, so that what is there early can be compared.
        cells.sort_by_key(|cell| self.spec.seeds.all().iter().position(|seed| *seed == cell.seed));
        Ok(cells)
    }

    fn cells_of(
        &self,
        arm: &ArmPlan,
        chosen: &[String],
        tries: Option<&Vec<String>>,
        seeds: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<Cell>, GridError> {
        let loaded = load_arm(&self.request, arm.layer.as_deref(), &arm.settings, chosen, 0);
        let name = || std::iter::once(arm.name.clone()).chain(chosen.iter().cloned()).collect::<Vec<_>>().join(", ");
        let identity = identity(&loaded.map_err(|e| told(e, &self.grid, &self.spec, &name()))?)?;
        let cell = |seed: u64| Cell {
            id: id(&identity, seed),
            arm: arm.name.clone(),
            seed,
            tries: tries.cloned(),
            layer: arm.layer.clone(),
            settings: arm.settings.iter().chain(chosen).cloned().chain([format!("seed={seed}")]).collect(),
        };
        Ok(seeds.into_iter().map(cell).collect())
    }

    /// The arm that the others are compared with: the baseline, with the first value of every axis that it is not excluded from.
    pub fn baseline(&self) -> &ArmPlan {
        let name = self.spec.baseline();
        let of_baseline = |arm: &&ArmPlan| arm.chosen_by.is_none() && arm.layer.as_ref().is_none_or(|layer| *layer == name);
        self.arms.iter().find(of_baseline).unwrap_or(&self.arms[0])
    }

    /// Keys in which an arm differs from another one, with the values of both.
    pub fn differs(&self, arm: &ArmPlan, from: &ArmPlan) -> Vec<(String, Option<String>, Option<String>)> {
        differences(&from.identity, &arm.identity)
    }

    /// What two arms differ in beside the thing that is compared: estimator and critics with their policy nodes, what an axis or
    /// tuning sets, and a control's transform. How long and how fast they learn, from what, and towards what, is all the rest.
    pub fn confounds(&self, arm: &ArmPlan, baseline: &ArmPlan) -> Vec<String> {
        fn plain(key: &str) -> &str {
            key.strip_prefix("phase.").and_then(|rest| rest.split_once('.')).map_or(key, |(_, rest)| rest)
        }
        let set: Vec<String> = self.spec.axes().into_iter().chain(self.spec.tuned()).map(|choice| choice.key).collect();
        let compared = |key: &str| {
            let under = |of: &str| key == of || key.strip_prefix(of).is_some_and(|rest| rest.starts_with('.'));
            under("estimator")
                || under("critic")
                || under("policy") && !under("policy.actor")
                || arm.chosen_by.is_some() && under("transform")
                || set.iter().any(|of| under(plain(of)))
        };
        let differs = self.differs(arm, baseline).into_iter().map(|(key, ..)| key);
        let mut keys: Vec<String> = differs.filter(|key| !compared(plain(key))).collect();
        if arm.budget != baseline.budget {
            keys.push("budget".into());
        }
        if arm.updates != baseline.updates {
            keys.push("updates".into());
        }
        keys
    }
}

/// Loads what a cell is.
///
/// # Errors
/// If the experiment is refused, or is another one than the cell's by now.
pub fn load_cell(request: &Request, cell: &Cell) -> Result<Loaded, GridError> {
    let seed = format!("seed={}", cell.seed);
    let settings: Vec<String> = cell.settings.iter().filter(|setting| **setting != seed).cloned().collect();
    let identity = identity(&load_arm(request, cell.layer.as_deref(), &settings, &[], 0)?)?;
    if id(&identity, cell.seed) != cell.id {
        let text = format!(
            "cell {} of arm `{}` is another experiment by now: the experiment's file or the environment's settings changed since it was \
             planned; run the grid again",
            cell.id, cell.arm
        );
        return Err(GridError::Changed(text));
    }
    load_arm(request, cell.layer.as_deref(), &settings, &[], cell.seed)
}

fn id(identity: &str, seed: u64) -> String {
    sha256(format!("{identity}\nseed {seed}").as_bytes())[..16].to_string()
}

/// Loads an arm; what the command line says lies on top of all.
fn load_arm(
    request: &Request,
    layer: Option<&str>,
    settings: &[String],
    chosen: &[String],
    seed: u64,
) -> Result<Loaded, GridError> {
    let mut own = Request { arm: layer.map(str::to_string), assignments: Vec::new(), ..request.clone() };
    own = own.assignments(settings.iter().chain(chosen).cloned());
    own = own.assignments(request.assignments.iter().cloned()).assignments([format!("seed={seed}")]);
    load(&own).map_err(|report| GridError::Arm { arm: layer.unwrap_or("main").into(), report })
}

/// What is wrong with an arm, with its whole name, and what an axis or tuning sets shown where the grid says it.
fn told(e: GridError, grid: &Grid, spec: &Spec, name: &str) -> GridError {
    match e {
        GridError::Arm { report, .. } => {
            GridError::Arm { arm: name.into(), report: grid.placed(report, |setting| spec.said(setting)) }
        }
        other => other,
    }
}

/// What makes an arm this experiment, but for the seed: the runs' identity, and how long they last.
fn identity(loaded: &Loaded) -> Result<String, GridError> {
    let last = experiment(loaded)?;
    Ok(format!("{}\n# {} updates, {:?}", loaded.plan.identity, *last.updates, last.budget))
}

/// Splits of an arm's environment that have tasks; `None` where its data are not here.
fn splits_with_tasks(loaded: &Loaded, base: &Path) -> Result<Option<Vec<String>>, Report> {
    let path = ["environment".to_string()];
    let refused = |why: String| loaded.report(0, &path, why);
    let first = loaded.plan.phases.first().ok_or_else(|| refused("the experiment has no phases".into()))?;
    let (experiment, _) = first.at(&Now::default(), &mut KnobMemory::default()).map_err(refused)?;
    let context = BuildContext::without_run(&experiment, base);
    match experiment.environment.build(&context) {
        Ok(tasks) => Ok(Some(tasks.splits().into_iter().filter(|split| tasks.len(split) > 0).collect())),
        Err(BuildError::Data(_) | BuildError::Device(_)) => Ok(None),
        Err(e) => Err(refused(e.to_string())),
    }
}

/// Every phase, as it begins.
fn phases(loaded: &Loaded) -> Result<Vec<Experiment>, GridError> {
    let at = |phase: &Phase| phase.at(&Now::default(), &mut KnobMemory::default()).map(|(experiment, _)| experiment);
    loaded.plan.phases.iter().map(at).collect::<Result<_, _>>().map_err(GridError::Changed)
}

/// The last phase, as it begins.
fn experiment(loaded: &Loaded) -> Result<Experiment, GridError> {
    phases(loaded)?.pop().ok_or_else(|| GridError::Changed("the experiment has no phases".into()))
}

fn arm_plan(
    name: String,
    layer: Option<String>,
    settings: Vec<String>,
    chosen_by: Option<String>,
    loaded: &Loaded,
) -> Result<ArmPlan, GridError> {
    let last = experiment(loaded)?;
    let updates = phases(loaded)?.iter().map(|experiment| *experiment.updates).sum();
    let plugins = ["environment", "rollout", "estimator", "objective"].into_iter().filter_map(|slot| {
        let tree = &loaded.plan.phases.last()?.tree;
        Some((slot.to_string(), tree.get(slot)?.as_table()?.keys().next()?.clone()))
    });
    Ok(ArmPlan {
        name,
        layer,
        settings,
        chosen_by,
        identity: identity(loaded)?,
        measured_seldom: last.evaluate.every.0 == 0,
        budget: last.budget,
        updates,
        plugins: plugins.collect(),
    })
}

impl ArmPlan {
    /// The plugin in a slot of its last phase.
    pub fn plugin(&self, slot: &str) -> &str {
        self.plugins.get(slot).map_or("", String::as_str)
    }
}

/// Path of the plugin that a key lies below, if it lies below one.
fn plugin_of(key: &str) -> Option<Vec<String>> {
    let path: Vec<&str> = key.split('.').collect();
    let of_slot = match path[0] {
        "environment" | "rollout" | "estimator" | "objective" => 1,
        "policy" | "critic" => 2,
        _ => return None,
    };
    let plugin = path.get(..=of_slot).filter(|_| path.len() > of_slot + 1)?;
    Some(plugin.iter().map(ToString::to_string).collect())
}

/// Whether an arm has a plugin in one of its phases.
fn has(plain: &Loaded, plugin: &[String]) -> bool {
    let there = |tree: &Table| {
        let first = tree.get(&plugin[0]);
        plugin[1..].iter().fold(first, |at, key| at.and_then(|value| value.get(key))).is_some()
    };
    plain.plan.phases.iter().any(|phase| there(&phase.tree))
}

/// The controls of an arm: the arm, with one more transform at the end.
fn controls(
    grid: &Grid,
    spec: &Spec,
    request: &Request,
    arm: &str,
    plan: &ArmPlan,
    loaded: &Loaded,
) -> Result<Vec<ArmPlan>, GridError> {
    let mut all = Vec::new();
    for (transform, of) in &spec.controls {
        if !of.as_array().is_some_and(|names| names.iter().any(|name| name.as_str() == Some(arm))) {
            continue;
        }
        let resolved: Table =
            loaded.plan.resolved.parse().map_err(|e| GridError::Changed(format!("the resolved experiment: {e}")))?;
        let with_control = |table: &Table| {
            let mut items = table.get("transform").and_then(Value::as_array).cloned().unwrap_or_default();
            items.push(Value::Table(Table::from_iter([(transform.clone(), Value::Table(Table::new()))])));
            Value::Array(items)
        };
        let mut settings = plan.settings.clone();
        match resolved.get("phase").and_then(Value::as_array) {
            Some(phases) => {
                for phase in phases.iter().filter_map(Value::as_table) {
                    let name = phase.get("name").cloned().unwrap_or_else(|| Value::from(""));
                    settings.push(setting(&format!("phase.{name}.transform"), &with_control(phase)));
                }
            }
            None => settings.push(setting("transform", &with_control(&resolved))),
        }
        let name = format!("{} + {transform}", plan.name);
        let own = &settings[plan.settings.len()..];
        let of_control = |text: &str| own.iter().any(|own| own == text).then(|| vec!["controls".to_string(), transform.clone()]);
        let loaded = load_arm(request, plan.layer.as_deref(), &settings, &[], 0).map_err(|e| match e {
            GridError::Arm { report, .. } => GridError::Arm {
                arm: name.clone(),
                report: grid.placed(report, |text| of_control(text).or_else(|| spec.said(text))),
            },
            other => other,
        })?;
        all.push(arm_plan(name, plan.layer.clone(), settings, Some(plan.name.clone()), &loaded)?);
    }
    Ok(all)
}
