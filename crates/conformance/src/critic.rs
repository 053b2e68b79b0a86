//! Checks of critics.
//!
//! A critic judges independent episodes that a policy plays in an environment, update for update as in a run: it judges, it learns,
//! the policy that acts and the nodes of its lessons take a step. Then the odd ones: records as they are when episodes fail, are
//! cut, fork, or say what means nothing.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ascribe_core::credit::Target;
use ascribe_core::critic::{Lesson, LessonRows};
use ascribe_core::environment::Capabilities;
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Context, GroupLog, History, LeafLog, Origin, TurnLog};
use ascribe_core::objective::DiffColumn;
use ascribe_core::play::{Back, Deed, Start, State};
use ascribe_core::policy::{OptimStep, Part};
use ascribe_core::rows::column::{BEHAVIOR_LOGPROB, OLD_LOGPROB};
use ascribe_core::{
    Batch, BuildContext, Column, Credit, Critic, CriticConfig, End, Group, Limit, Need, Objective, Policy, PolicyConfig, RowSet,
    Scope, Signal, TaskSet,
};

use crate::{Check, Difference, Finding, Outcome, Report, caught, check};
use world::{SEEDS, World};

/// Updates of a session.
const UPDATES: u32 = 3;
/// Least episodes per group.
const MEMBERS: usize = 4;
/// Threads of a session that is held against others.
const THREADS: usize = 3;
/// Bytes of a saved state that are damaged, one at a time.
const DAMAGED: usize = 24;
/// The critic's name while it is checked.
const NAME: &str = "checked";

/// Whom a critic is checked among. It says itself which policy nodes it needs; each is built from `policy`.
#[derive(Clone, Copy)]
pub struct Among<'a> {
    /// The tasks; they give what [`lacks`] asks for.
    pub tasks: &'a dyn TaskSet,
    /// Every policy node.
    pub policy: &'a dyn PolicyConfig,
    /// What the acting node descends between updates, so that it is another one in each.
    pub objective: &'a dyn Objective,
}

/// The first need that only an environment can cover, and this one does not.
pub fn lacks<'a>(needs: &'a [Need], provided: &[Need]) -> Option<&'a Need> {
    let environments = |need: &Need| match need {
        Need::ExactSnapshot
        | Need::ExactStateKey
        | Need::Admissible
        | Need::Expert
        | Need::Privileged
        | Need::GroundTruth
        | Need::Oracle => true,
        Need::Signal(..)
        | Need::SomeStates(_)
        | Need::GroupOfAtLeast(_)
        | Need::Chains
        | Need::WholeEpisodes
        | Need::BehaviorLogprob
        | Need::Entropy
        | Need::Differentiable(_)
        | Need::Hidden
        | Need::Target(_)
        | Need::Node(_) => false,
    };
    needs.iter().find(|need| environments(need) && !provided.contains(need))
}

/// Holds a critic to what all must keep.
pub fn critic(config: &dyn CriticConfig, world: Among<'_>) -> Report {
    let what = "it is built, and its columns are those that its table promises";
    let subject = match caught(|| Subject::new(config, world)) {
        Ok(subject) => subject,
        Err(why) => return Report(vec![Check { what, outcome: Outcome::Broken(why) }]),
    };
    let first = match caught(|| subject.stands()) {
        Ok(heads) => heads,
        Err(why) => return Report(vec![Check { what, outcome: Outcome::Broken(why) }]),
    };
    subject.report(what, first.as_deref())
}

/// What is checked.
struct Subject<'a> {
    config: &'a dyn CriticConfig,
    world: Among<'a>,
    needs: Vec<Need>,
    /// What the environment can do, with the critic's words.
    about: Capabilities,
    /// Names of the policy nodes.
    nodes: BTreeSet<String>,
    /// The node that acts.
    agent: String,
    members: usize,
}

/// What a critic made of a batch.
struct Judged {
    batch: Batch,
    columns: Vec<(String, Signal)>,
}

/// Rows of a node, what to descend on them, and the factor on it.
type Ask<'a> = (Arc<RowSet>, &'a dyn Objective, f64);

/// What a session showed, by name and as bytes.
type Seen = Vec<(String, Vec<u8>)>;

impl<'a> Subject<'a> {
    fn new(config: &'a dyn CriticConfig, world: Among<'a>) -> Result<Self, Finding> {
        let needs = config.needs();
        let mut about = world.tasks.capabilities().clone();
        if let Some(need) = lacks(&needs, &about.provides) {
            return Err(format!("it needs {need}, which this environment does not give: it is checked in another one").into());
        }
        about.vocabulary.extend(config.words());
        let mut nodes: BTreeSet<String> = BTreeSet::new();
        let mut members = MEMBERS;
        for need in &needs {
            match need {
                Need::Node(name) => drop(nodes.insert(name.clone())),
                Need::GroupOfAtLeast(n) => members = members.max(usize::try_from(*n).unwrap_or(usize::MAX)),
                _ => {}
            }
        }
        let usual = "actor".to_string();
        // Of other names none says who acts.
        let agent = if nodes.len() == 1 { nodes.first().cloned().unwrap_or(usual) } else { usual };
        nodes.insert(agent.clone());
        Ok(Self { config, world, needs, about, nodes, agent, members })
    }

    fn context(&self) -> BuildContext<'_> {
        BuildContext {
            seeds: SEEDS,
            device: "cpu",
            threads: 1,
            environment: Some(&self.about),
            nodes: self.nodes.clone(),
            base: ".".into(),
        }
    }

    fn policy(&self, name: &str) -> Result<Box<dyn Policy>, Finding> {
        let built = self.world.policy.build(&self.context());
        built.map_err(|e| format!("the policy node `{name}` that it is checked with cannot be built: {e}").into())
    }

    fn build(&self) -> Result<Box<dyn Critic>, Finding> {
        self.config.build(NAME, &self.context()).map_err(|e| format!("it cannot be built: {e}").into())
    }

    /// A world and the critic in it, with its heads.
    fn begin(&self) -> Result<(World<'_>, Box<dyn Critic>), Finding> {
        let mut world = World::new(self)?;
        let critic = self.build()?;
        for (node, head) in critic.heads() {
            let policy = world.nodes.get_mut(&node).ok_or_else(|| absent_node("a head on", &node))?;
            policy.add_head(head).map_err(|e| e.to_string())?;
        }
        Ok((world, critic))
    }

    /// Whether it can be asked at all; if not, why.
    fn stands(&self) -> Result<Option<String>, Finding> {
        let mut world = World::new(self)?;
        let critic = self.build()?;
        // A column that may have gaps is promised as one that has some states.
        let column = |need: Need| match need {
            Need::SomeStates(name) => Need::Signal(name, Scope::State),
            other => other,
        };
        let promised: BTreeSet<Need> = self.config.provides().into_iter().map(column).collect();
        let declared: BTreeSet<Need> = critic.provides().into_iter().map(|(name, scope)| Need::Signal(name, scope)).collect();
        if critic.provides().len() != declared.len() {
            return Err("it declares a column twice".to_string().into());
        }
        if let Some(column) = promised.symmetric_difference(&declared).next() {
            let remedy = "`CriticConfig::provides` and `Critic::provides` name the same columns: `check` reads the one, the loop the other";
            let why = format!("its table and the live critic do not agree on {column}");
            return Err(Finding { remedy: remedy.into(), ..Finding::from(why) });
        }
        if self.config.needs().contains(&Need::Hidden) && !self.world.policy.hidden() {
            return Ok(Some("the policy that it is checked with has no hidden vectors".into()));
        }
        for (node, head) in critic.heads() {
            let policy = world.nodes.get_mut(&node).ok_or_else(|| absent_node("a head on", &node))?;
            let name = head.name.clone();
            if let Err(e) = policy.add_head(head) {
                return Ok(Some(format!("node `{node}` cannot have the head `{name}`: {e}")));
            }
        }
        Ok(None)
    }

    fn report(&self, first: &'static str, unasked: Option<&str>) -> Report {
        let ask = |what, remedy: &'static str, run: &dyn Fn() -> Check| match unasked {
            Some(why) => Check { what, outcome: Outcome::NotAsked(why.into()) },
            None => {
                let mut done = run();
                if let Outcome::Broken(finding) = &mut done.outcome
                    && finding.remedy.is_empty()
                {
                    finding.remedy = remedy.into();
                }
                done
            }
        };
        let mut checks = vec![Check { what: first, outcome: Outcome::Held(1) }];
        let what = "it writes the columns it declares, whole and finite";
        checks.push(ask(
            what,
            "`judge` returns every declared column once, as long as `Batch::scope_len`; on states of a group's view there are no gaps",
            &|| check(what, [()], |()| self.session(false).map(drop)),
        ));
        let what = "failed paths, empty groups, forks and cuts do no harm";
        checks.push(ask(
            what,
            "walk the group's view (`Group`), which holds what trains; a group may have no turns, and a batch no groups",
            &|| check(what, self.odd(), |case| self.takes(case)),
        ));
        let what = "what cannot be parsed does no harm";
        checks.push(ask(
            what,
            "a text that is not understood leaves a gap, or the number that the documentation names; it is no error",
            &|| check(what, [()], |()| self.takes_nonsense()),
        ));
        let what = "an environment that breaks is no panic";
        checks.push(ask(what, "a step or an episode that fails is a failed leaf or an error", &|| {
            check(what, [()], |()| self.survives_breaking())
        }));
        let what = "the same seeds give the same columns, on any number of threads";
        checks.push(ask(
            what,
            "draw from `acting.seeds` by update, group, member and turn; no clock, no order of a hash map",
            &|| check(what, [None, Some(1), Some(THREADS)], |threads| self.is_deterministic(threads)),
        ));
        let what = "a resumed critic goes on like it";
        checks.push(ask(what, "`save` writes all that a later `judge` or `learn` reads, and `load` takes all of it up", &|| {
            check(what, [()], |()| self.resumes())
        }));
        let what = "a damaged state is refused";
        checks.push(match unasked {
            None => self.refuses_damage(what),
            Some(why) => Check { what, outcome: Outcome::NotAsked(why.into()) },
        });
        let what = "it leaves the policies as they are";
        checks.push(ask(what, "who wants a node trained gives a lesson; sessions that were opened are closed", &|| {
            check(what, [()], |()| self.leaves_policies())
        }));
        let what = "what it spends is counted";
        checks.push(ask(
            what,
            "add to `acting.ledger`: tokens of scoring to `critic_tokens`, of branches to `branch_tokens`, steps to `env_steps`",
            &|| check(what, [()], |()| self.counts()),
        ));
        let what = "it reports under its own name";
        checks.push(ask(what, "metrics stand under `critic/NAME/`, with the name that `build` is given", &|| {
            check(what, [()], |()| self.reports())
        }));
        let what = "its lessons fit, and train";
        checks.push(match unasked {
            None => self.teaches(what),
            Some(why) => Check { what, outcome: Outcome::NotAsked(why.into()) },
        });
        Report(checks)
    }

    // One stage at a time.

    fn judge(&self, world: &mut World<'_>, critic: &mut dyn Critic, logs: Vec<GroupLog>) -> Result<Judged, Finding> {
        let mut batch = world.batch(logs)?;
        let columns = world.act(|acting| critic.judge(&batch, acting)).map_err(|e| format!("`judge` is an error: {e}"))?;
        let declared: BTreeSet<(String, Scope)> = critic.provides().into_iter().collect();
        let written: BTreeSet<(String, Scope)> = columns.iter().map(|(name, signal)| (name.clone(), signal.scope)).collect();
        if let Some((name, scope)) = written.difference(&declared).next() {
            return Err(format!("it writes `{name}` on {}, which it does not declare", on(*scope)).into());
        }
        if let Some((name, scope)) = declared.difference(&written).next() {
            return Err(format!("it declares `{name}` on {} and does not write it", on(*scope)).into());
        }
        for (name, signal) in &columns {
            if signal.provider != NAME {
                return Err(format!("`{name}` is said to be by `{}`, and it is called `{NAME}`", signal.provider).into());
            }
            // Length, finite, not there yet.
            batch.add_signal(name, signal.clone())?;
            let may_have_gaps = self.config.provides().contains(&Need::SomeStates(name.clone()));
            if signal.scope == Scope::State && !may_have_gaps {
                batch.groups().try_for_each(|group| without_gaps(name, &signal.column, group))?;
            }
        }
        Ok(Judged { batch, columns })
    }

    fn learn(
        &self,
        world: &mut World<'_>,
        critic: &mut dyn Critic,
        batch: &Batch,
        credit: &[Credit],
    ) -> Result<Vec<Lesson>, Finding> {
        let lessons = world.act(|acting| critic.learn(batch, credit, acting));
        lessons.map_err(|e| format!("`learn` is an error: {e}").into())
    }

    /// Advantages over the group's mean, and what an estimator with a critic gives beside them: targets for its columns.
    fn credit(&self, critic: &dyn Critic, batch: &Batch) -> Vec<Credit> {
        let of_states = critic.provides().into_iter().filter(|(_, scope)| *scope == Scope::State);
        let names: Vec<String> = of_states.map(|(name, _)| name).collect();
        let credit = |group: Group<'_>| {
            let outcomes = group.outcomes();
            let mean = outcomes.iter().sum::<f64>() / outcomes.len().max(1) as f64;
            let advantages: Vec<f64> = outcomes.iter().map(|outcome| outcome - mean).collect();
            let target = || Target { scope: Scope::State, column: Column::full(vec![mean as f32; group.n_turns() + 1]) };
            let targets = names.iter().map(|name| (name.clone(), target())).collect();
            Credit { targets, ..Credit::per_turn(group.mean_over_leaves(&advantages)) }
        };
        batch.groups().map(credit).collect()
    }

    /// Has the acting node and the nodes of lessons take a step each, as the loop does.
    fn train(&self, world: &mut World<'_>, batch: &Batch, credit: &[Credit], lessons: &[Lesson]) -> Result<(), Finding> {
        let mut asks: BTreeMap<&str, Vec<Ask<'_>>> = BTreeMap::new();
        let mut credit = credit.to_vec();
        for lesson in lessons.iter().filter(|lesson| lesson.node == self.agent) {
            if let LessonRows::Acted(targets) = &lesson.rows {
                add_targets(&mut credit, targets);
            }
        }
        let acted = with_old(RowSet::from_credit(batch, &credit, Some(&self.agent)));
        asks.entry(&self.agent).or_default().push((acted.clone(), self.world.objective, 1.0));
        for lesson in lessons {
            let rows = match &lesson.rows {
                LessonRows::Own(rows) => with_old(RowSet::clone(rows)),
                LessonRows::Acted(_) if lesson.node == self.agent => acted.clone(),
                // A node that did not act has no such rows.
                LessonRows::Acted(_) => continue,
            };
            asks.entry(&lesson.node).or_default().push((rows, &*lesson.objective, lesson.scale));
        }
        let now = world.now.clone();
        for (name, asks) in asks {
            let node = world.nodes.get_mut(name).ok_or_else(|| absent_node("a lesson for", name))?;
            let picked: Vec<Vec<u32>> = asks.iter().map(|(rows, ..)| (0..rows.len() as u32).collect()).collect();
            let parts: Vec<Part<'_>> = asks
                .iter()
                .zip(&picked)
                .filter(|(_, picked)| !picked.is_empty())
                .map(|((rows, objective, scale), picked)| Part {
                    rows: rows.clone(),
                    picked,
                    totals: rows.totals(picked),
                    objective: *objective,
                    scale: *scale,
                })
                .collect();
            if parts.is_empty() {
                continue;
            }
            let wrong = |e: &dyn std::fmt::Display| format!("node `{name}` cannot learn its lesson: {e}");
            node.forward_backward(&parts, usize::MAX, &now).map_err(|e| wrong(&e))?;
            let step =
                OptimStep { learning_rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };
            if node.optim_step(&step).map_err(|e| wrong(&e))?.skipped {
                return Err(wrong(&"its gradient is not finite").into());
            }
        }
        Ok(())
    }

    /// Some updates, and all that showed; with `resumed`, the critic is saved and built anew after each.
    fn session(&self, resumed: bool) -> Result<Seen, Finding> {
        let (mut world, mut critic) = self.begin()?;
        let mut seen = Seen::new();
        for update in 0..UPDATES {
            let logs = world.play()?;
            let Judged { batch, columns } = self.judge(&mut world, &mut *critic, logs)?;
            let credit = self.credit(&*critic, &batch);
            let lessons = self.learn(&mut world, &mut *critic, &batch, &credit)?;
            let mut show = |what: &str, bytes: Vec<u8>| seen.push((format!("{what} of update {update}"), bytes));
            for (name, signal) in &columns {
                show(&format!("column `{name}`"), format!("{:?}", signal.column).into_bytes());
            }
            for lesson in &lessons {
                show(&format!("a lesson for `{}`", lesson.node), of_lesson(lesson));
            }
            show("metrics", format!("{:?}", world.metrics).into_bytes());
            show("ledger", format!("{:?}", world.ledger).into_bytes());
            self.train(&mut world, &batch, &credit, &lessons)?;
            let saved = critic.save().map_err(|e| format!("it cannot be saved: {e}"))?;
            if resumed {
                critic = self.build()?;
                critic.load(&saved).map_err(|e| format!("its own state is refused: {e}"))?;
                let again = critic.save().map_err(|e| format!("it cannot be saved right after loading: {e}"))?;
                if let Some(difference) = Difference::between("saved state", ("saved", &saved), ("saved again", &again)) {
                    let why = "a loaded state is saved otherwise".into();
                    return Err(Finding { why, difference: Some(difference), ..Finding::default() });
                }
            }
            show("saved state", saved);
            world.metrics = ascribe_core::Metrics::default();
            world.now.update += 1;
            world.now.phase_update += 1;
        }
        Ok(seen)
    }

    // The checks.

    /// Plays a session again, as it is or on so many threads.
    fn is_deterministic(&self, threads: Option<usize>) -> Result<(), Finding> {
        let first = self.session(false)?;
        let Some(n) = threads else {
            return same(&first, &self.session(false)?, ("first", "then"), "the same session is another one the second time");
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().map_err(|e| e.to_string())?;
        let again = pool.install(|| caught(|| self.session(false)))?;
        same(&first, &again, ("first", "then"), &format!("the same session is another one with a pool of size {n}"))
    }

    fn resumes(&self) -> Result<(), Finding> {
        let (went_on, resumed) = (self.session(false)?, self.session(true)?);
        same(&went_on, &resumed, ("went on", "resumed"), "a critic that was saved and loaded does something else")
    }

    /// Judges and learns from odd records.
    fn takes(&self, case: Odd) -> Result<(), Finding> {
        let run = || {
            let (mut world, mut critic) = self.begin()?;
            let logs = case.logs(&mut world)?;
            let judged = self.judge(&mut world, &mut *critic, logs)?;
            let credit = self.credit(&*critic, &judged.batch);
            let lessons = self.learn(&mut world, &mut *critic, &judged.batch, &credit)?;
            self.fits(&*critic, &judged.batch, &lessons)?;
            self.train(&mut world, &judged.batch, &credit, &lessons)?;
            // And goes on with whole ones.
            world.now.update += 1;
            let logs = world.play()?;
            self.judge(&mut world, &mut *critic, logs).map(drop)
        };
        caught(run).map_err(|e: Finding| Finding { why: format!("{}: {}", case.words(), e.why), ..e })
    }

    fn takes_nonsense(&self) -> Result<(), Finding> {
        let (mut world, mut critic) = self.begin()?;
        let logs = world.play_nonsense()?;
        let judged = self.judge(&mut world, &mut *critic, logs)?;
        let credit = self.credit(&*critic, &judged.batch);
        let lessons = self.learn(&mut world, &mut *critic, &judged.batch, &credit)?;
        self.fits(&*critic, &judged.batch, &lessons)
    }

    fn survives_breaking(&self) -> Result<(), Finding> {
        let (mut world, mut critic) = self.begin()?;
        let batch = {
            let logs = world.play()?;
            world.batch(logs)?
        };
        world.break_environments();
        // An error is an answer; a panic is not.
        let _ = world.act(|acting| critic.judge(&batch, acting));
        Ok(())
    }

    fn leaves_policies(&self) -> Result<(), Finding> {
        let (mut world, mut critic) = self.begin()?;
        // A node of its own may take over other weights before it is trained.
        let own: BTreeSet<String> = critic.heads().into_iter().map(|(node, _)| node).filter(|node| *node != self.agent).collect();
        for _ in 0..UPDATES {
            let logs = world.play()?;
            let before = (world.weights()?, world.spent.sessions.load(Ordering::Relaxed));
            let judged = self.judge(&mut world, &mut *critic, logs)?;
            let after = world.weights()?;
            let changed = before.0.iter().zip(&after).find(|(a, b)| a != b && !own.contains(&a.0));
            if let Some(((name, a), (_, b))) = changed {
                return Err(Finding {
                    why: format!("`judge` changes the weights of node `{name}`"),
                    difference: Difference::between("saved weights", ("before", a), ("after", b)),
                    ..Finding::default()
                });
            }
            let credit = self.credit(&*critic, &judged.batch);
            let lessons = self.learn(&mut world, &mut *critic, &judged.batch, &credit)?;
            let agents = |weights: &[(String, Vec<u8>)]| weights.iter().find(|(name, _)| *name == self.agent).cloned();
            if agents(&after) != agents(&world.weights()?) {
                return Err(format!("`learn` changes the weights of `{}`, which acts", self.agent).into());
            }
            let open = world.spent.sessions.load(Ordering::Relaxed) - before.1;
            if open > 0 {
                return Err(format!("it leaves {open} sessions of policies open").into());
            }
            self.train(&mut world, &judged.batch, &credit, &lessons)?;
            world.now.update += 1;
        }
        Ok(())
    }

    fn counts(&self) -> Result<(), Finding> {
        let (mut world, mut critic) = self.begin()?;
        for _ in 0..UPDATES {
            let logs = world.play()?;
            let spent = |world: &World<'_>| {
                (world.spent.tokens.load(Ordering::Relaxed), world.spent.steps.load(Ordering::Relaxed), world.ledger)
            };
            let (tokens, steps, counted) = spent(&world);
            let judged = self.judge(&mut world, &mut *critic, logs)?;
            let credit = self.credit(&*critic, &judged.batch);
            let lessons = self.learn(&mut world, &mut *critic, &judged.batch, &credit)?;
            let (tokens, steps, now) = {
                let after = spent(&world);
                (after.0 - tokens, after.1 - steps, after.2)
            };
            let critics = |ledger: &Ledger| ledger.critic_tokens + ledger.branch_tokens;
            if tokens > 0 && critics(&now) == critics(&counted) {
                return Err(format!("policies processed {tokens} tokens for it, and the ledger counts none of them").into());
            }
            if steps > 0 && now.env_steps == counted.env_steps {
                return Err(format!("environments took {steps} steps for it, and the ledger counts none of them").into());
            }
            if now.actor_tokens != counted.actor_tokens {
                return Err("it counts its own tokens as the actor's".to_string().into());
            }
            self.train(&mut world, &judged.batch, &credit, &lessons)?;
            world.now.update += 1;
        }
        Ok(())
    }

    fn reports(&self) -> Result<(), Finding> {
        let (mut world, mut critic) = self.begin()?;
        let prefix = format!("critic/{NAME}/");
        for _ in 0..UPDATES {
            let logs = world.play()?;
            let judged = self.judge(&mut world, &mut *critic, logs)?;
            let credit = self.credit(&*critic, &judged.batch);
            let lessons = self.learn(&mut world, &mut *critic, &judged.batch, &credit)?;
            if let Some(name) = world.metrics.0.keys().find(|name| !name.starts_with(&prefix)) {
                return Err(format!("called `{NAME}`, it reports `{name}`").into());
            }
            if let Some((name, x)) = world.metrics.0.iter().find(|(_, x)| !x.is_finite()) {
                return Err(format!("the metric `{name}` is {x}").into());
            }
            self.train(&mut world, &judged.batch, &credit, &lessons)?;
            world.now.update += 1;
        }
        Ok(())
    }

    /// Whether lessons are for nodes that are there, on rows that are there, towards what is its own.
    fn fits(&self, critic: &dyn Critic, batch: &Batch, lessons: &[Lesson]) -> Result<(), Finding> {
        let mut own: BTreeSet<String> = critic.provides().into_iter().map(|(name, _)| name).collect();
        own.extend(critic.heads().into_iter().map(|(_, head)| head.name));
        // Where neither has a name that fits, the target has the critic's.
        own.insert(NAME.into());
        let target = |name: &str| match own.contains(name) {
            true => Ok(()),
            false => Err(format!("a lesson has a target for `{name}`, which is neither its column, nor its head, nor itself")),
        };
        for lesson in lessons {
            if !self.nodes.contains(&lesson.node) {
                return Err(absent_node("a lesson for", &lesson.node).into());
            }
            if !lesson.scale.is_finite() {
                return Err(format!("a lesson for `{}` has the scale {}", lesson.node, lesson.scale).into());
            }
            match &lesson.rows {
                LessonRows::Own(rows) => {
                    rows.columns.keys().filter_map(|name| name.strip_prefix("target/")).try_for_each(target)?;
                }
                LessonRows::Acted(targets) => {
                    for (name, of_groups) in targets {
                        target(name)?;
                        if of_groups.len() != batch.groups.len() {
                            let n = of_groups.len();
                            return Err(format!("`{name}` has targets for {n} of {} groups", batch.groups.len()).into());
                        }
                    }
                    let mut credit: Vec<Credit> =
                        batch.groups().map(|group| Credit::per_turn(vec![0.0; group.n_turns()])).collect();
                    add_targets(&mut credit, targets);
                    batch.groups().zip(&credit).try_for_each(|(group, credit)| credit.check(group))?;
                }
            }
        }
        Ok(())
    }

    fn teaches(&self, what: &'static str) -> Check {
        let run = || {
            let (mut world, mut critic) = self.begin()?;
            let mut taught = 0;
            for _ in 0..UPDATES {
                let logs = world.play()?;
                let judged = self.judge(&mut world, &mut *critic, logs)?;
                let credit = self.credit(&*critic, &judged.batch);
                let lessons = self.learn(&mut world, &mut *critic, &judged.batch, &credit)?;
                self.fits(&*critic, &judged.batch, &lessons)?;
                for lesson in &lessons {
                    if let LessonRows::Own(rows) = &lesson.rows
                        && rows.is_empty()
                    {
                        let why = format!("a lesson for `{}` has no rows, and episodes were played", lesson.node);
                        let remedy = "give no lesson where there is nothing to learn".into();
                        return Err(Finding { remedy, ..Finding::from(why) });
                    }
                }
                taught += lessons.len();
                self.train(&mut world, &judged.batch, &credit, &lessons)?;
                world.now.update += 1;
            }
            Ok(taught)
        };
        let outcome = match caught(run) {
            Ok(0) => Outcome::NotAsked("it gives no lessons".into()),
            Ok(taught) => Outcome::Held(taught),
            Err(why) => Outcome::Broken(why),
        };
        Check { what, outcome }
    }

    fn refuses_damage(&self, what: &'static str) -> Check {
        let saved = match caught(|| self.saved()) {
            Ok(saved) => saved,
            Err(why) => return Check { what, outcome: Outcome::Broken(why) },
        };
        if saved.is_empty() {
            return Check { what, outcome: Outcome::NotAsked("it has no state".into()) };
        }
        let mut damage: Vec<(String, Vec<u8>, bool)> = vec![
            ("cut in half".into(), saved[..saved.len().div_ceil(2).min(saved.len() - 1)].to_vec(), saved.len() > 1),
            ("without its last byte".into(), saved[..saved.len() - 1].to_vec(), saved.len() > 1),
            ("with a byte more".into(), [&saved[..], b"\0"].concat(), true),
            ("text that is no state".into(), b"no state at all".to_vec(), true),
        ];
        // A number that became another number cannot be told from it.
        damage.extend((0..DAMAGED.min(saved.len())).map(|i| {
            let at = i * (saved.len() - 1) / DAMAGED.min(saved.len()).saturating_sub(1).max(1);
            let mut bytes = saved.clone();
            bytes[at] ^= 0xff;
            (format!("with byte {at} of {} turned", saved.len()), bytes, false)
        }));
        check(what, damage, |(which, bytes, refused)| {
            let taken = caught(|| self.goes_on_from(&bytes)).map_err(|e: Finding| Finding {
                why: format!("a state {which}: {}", e.why),
                remedy: "`load` is an error for bytes that are not its own".into(),
                ..e
            })?;
            if taken && refused {
                let remedy = "read all of the bytes and nothing beyond them, and say what is wrong".into();
                return Err(Finding { remedy, ..Finding::from(format!("a state {which} is taken up")) });
            }
            Ok(())
        })
    }

    /// The state after some updates.
    fn saved(&self) -> Result<Vec<u8>, Finding> {
        let seen = self.session(false)?;
        Ok(seen.into_iter().next_back().map(|(_, bytes)| bytes).unwrap_or_default())
    }

    /// Whether a state is taken up, by `load` or when it is first used.
    fn goes_on_from(&self, bytes: &[u8]) -> Result<bool, Finding> {
        let (mut world, mut critic) = self.begin()?;
        world.now.update = UPDATES;
        if critic.load(bytes).is_err() {
            return Ok(false);
        }
        let batch = {
            let logs = world.play()?;
            world.batch(logs)?
        };
        Ok(world.act(|acting| critic.judge(&batch, acting)).is_ok())
    }

    /// Odd records that concern this critic.
    fn odd(&self) -> Vec<Odd> {
        let chains = self.needs.contains(&Need::Chains);
        Odd::ALL.into_iter().filter(|case| !chains || *case != Odd::Forks).collect()
    }
}

/// Records as they are where something went otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    NoGroups,
    Ones,
    Failed,
    FailedGroup,
    AllFailed,
    Untried,
    NothingTried,
    Restarts,
    Cut,
    Restored,
    Forks,
}

impl Odd {
    const ALL: [Self; 11] = [
        Self::NoGroups,
        Self::Ones,
        Self::Failed,
        Self::FailedGroup,
        Self::AllFailed,
        Self::Untried,
        Self::NothingTried,
        Self::Restarts,
        Self::Cut,
        Self::Restored,
        Self::Forks,
    ];

    fn words(self) -> &'static str {
        match self {
            Self::NoGroups => "a batch without groups",
            Self::Ones => "groups of one",
            Self::Failed => "failed paths beside others",
            Self::FailedGroup => "a group that failed beside others",
            Self::AllFailed => "groups that all failed",
            Self::Untried => "paths that were not tried",
            Self::NothingTried => "groups of which nothing was tried",
            Self::Restarts => "contexts that restart",
            Self::Cut => "paths that were cut",
            Self::Restored => "groups that begin in a restored state",
            Self::Forks => "paths that fork",
        }
    }

    fn logs(self, world: &mut World<'_>) -> Result<Vec<GroupLog>, Finding> {
        let failed = || End::Failed("made to fail".into());
        let nothing = || LeafLog { turn: None, end: failed(), seed: 0 };
        Ok(match self {
            Self::NoGroups => Vec::new(),
            Self::Ones => each_path(world.play()?, |p, path| (p == 0).then_some(path)),
            Self::Failed => {
                let mut logs =
                    each_path(world.play()?, |p, path| Some(if p == 0 { Path { end: failed(), ..path } } else { path }));
                logs.iter_mut().for_each(|log| log.leaves.push(nothing()));
                logs
            }
            Self::FailedGroup => {
                let mut logs = world.play()?;
                logs[0].leaves.iter_mut().for_each(|leaf| leaf.end = failed());
                (logs[1].turns, logs[1].leaves) = (Vec::new(), vec![nothing(), nothing()]);
                logs
            }
            Self::AllFailed => each_path(world.play()?, |_, path| Some(Path { end: failed(), ..path })),
            Self::Untried => {
                let mut logs = world.play()?;
                for log in &mut logs {
                    // What else might have been done at the start, and what was not carried out at the end of a path.
                    if let Some(root) = log.turns.iter().find(|turn| turn.parent.is_none()).cloned() {
                        log.leaves.push(LeafLog { turn: Some(log.turns.len()), end: End::Untried, seed: log.seed });
                        log.turns.push(TurnLog { reward: 0.0, state_after: Vec::new(), snapshot: None, ..root });
                    }
                    if let Some(leaf) = log.leaves.iter_mut().find(|leaf| leaf.turn.is_some()) {
                        leaf.end = End::Untried;
                    }
                }
                logs
            }
            Self::NothingTried => each_path(world.play()?, |_, mut path| {
                path.turns.truncate(1);
                Some(Path { end: End::Untried, ..path })
            }),
            Self::Restarts => {
                let mut logs = world.play()?;
                for turn in logs.iter_mut().flat_map(|log| log.turns.iter_mut().filter(|turn| turn.parent.is_some())) {
                    turn.context = Context::Restart;
                }
                logs
            }
            Self::Cut => each_path(world.play()?, |p, mut path| {
                // What is over after its first turn cannot have been cut there.
                if path.turns.len() < 2 {
                    return Some(path);
                }
                path.turns.truncate(path.turns.len().div_ceil(2));
                let end = [End::Truncated(Limit::Turns), End::MacroBoundary, End::Truncated(Limit::Context)][p % 3].clone();
                Some(Path { end, ..path })
            }),
            Self::Restored => {
                let logs = world.play()?;
                let starts: Vec<Start> = logs.iter().filter_map(after_the_first_turn).collect();
                world.play_from(&starts)?
            }
            Self::Forks => world.play_forks()?,
        })
    }
}

/// A path of a group.
struct Path {
    turns: Vec<TurnLog>,
    end: End,
}

/// The same groups with every path as `change` leaves it, by its place in the group.
fn each_path(logs: Vec<GroupLog>, change: impl Fn(usize, Path) -> Option<Path>) -> Vec<GroupLog> {
    let changed = |log: GroupLog| {
        let mut out = GroupLog { turns: Vec::new(), leaves: Vec::new(), ..log.clone() };
        for (p, leaf) in log.leaves.iter().enumerate() {
            let mut turns: Vec<TurnLog> =
                std::iter::successors(leaf.turn, |t| log.turns[*t].parent).map(|t| log.turns[t].clone()).collect();
            turns.reverse();
            let Some(path) = change(p, Path { turns, end: leaf.end.clone() }) else { continue };
            let mut last = None;
            for turn in path.turns {
                out.turns.push(TurnLog { parent: last, ..turn });
                last = Some(out.turns.len() - 1);
            }
            let end = if last.is_none() { End::Failed("it has no turns".into()) } else { path.end };
            out.leaves.push(LeafLog { turn: last, end, ..leaf.clone() });
        }
        out
    };
    logs.into_iter().map(changed).collect()
}

/// The state after a group's first turn, of those paths that went on.
fn after_the_first_turn(log: &GroupLog) -> Option<Start> {
    let first = log.turns.iter().find_map(|turn| turn.parent).map(|t| &log.turns[t]).filter(|turn| turn.parent.is_none())?;
    let mut history = History::default();
    history.push(first);
    let back = Back { deeds: vec![Deed::of(first)], ..Back::default() };
    let state = State { seed: log.seed, back, turns: 1, history, origin: Origin::Restored { age: 1 } };
    Some(Start { task: log.task.clone(), state: Some(state) })
}

fn absent_node(what: &str, node: &str) -> String {
    format!("it wants {what} node `{node}`, which its needs do not name")
}

fn on(scope: Scope) -> &'static str {
    match scope {
        Scope::State => "states",
        Scope::Turn => "turns",
        Scope::Token => "tokens",
    }
}

/// Whether a column has a number for every state of a group's view.
fn without_gaps(name: &str, column: &Column, group: Group<'_>) -> Result<(), String> {
    let first = group.rows().start + group.index();
    match (0..=group.n_turns()).find(|state| column.get(first + state).is_none()) {
        None => Ok(()),
        Some(0) => Err(format!("`{name}` has no number for the start of group {}", group.index())),
        Some(state) => Err(format!("`{name}` has no number for the state after turn {} of group {}", state - 1, group.index())),
    }
}

fn add_targets(credit: &mut [Credit], targets: &BTreeMap<String, Vec<Target>>) {
    for (name, of_groups) in targets {
        credit.iter_mut().zip(of_groups).for_each(|(credit, target)| {
            credit.targets.insert(name.clone(), target.clone());
        });
    }
}

/// Rows whose ratios are to what was sampled.
fn with_old(mut rows: RowSet) -> Arc<RowSet> {
    if let Some(behavior) = rows.columns.get(BEHAVIOR_LOGPROB).cloned() {
        rows.columns.entry(OLD_LOGPROB.into()).or_insert(behavior);
    }
    Arc::new(rows)
}

/// A lesson as bytes.
fn of_lesson(lesson: &Lesson) -> Vec<u8> {
    let columns: Vec<DiffColumn> = lesson.objective.columns();
    let what = match &lesson.rows {
        LessonRows::Own(rows) => format!("{:?} {:?} {:?}", rows.tokens, rows.at, rows.columns),
        LessonRows::Acted(targets) => format!("{targets:?}"),
    };
    format!("{} × {:?} on {columns:?}: {what}", lesson.scale, lesson.objective).into_bytes()
}

/// Compares what two sessions showed, byte for byte.
fn same(expected: &Seen, found: &Seen, who: (&str, &str), why: &str) -> Result<(), Finding> {
    for (i, (name, a)) in expected.iter().enumerate() {
        let other = found.get(i).filter(|(other, _)| other == name);
        let Some((_, b)) = other else { return Err(format!("{why}: there is no {name}").into()) };
        if let Some(difference) = Difference::between(name, (who.0, a), (who.1, b)) {
            return Err(Finding { why: why.into(), difference: Some(difference), ..Finding::default() });
        }
    }
    if found.len() > expected.len() {
        return Err(format!("{why}: there is more than before").into());
    }
    Ok(())
}
