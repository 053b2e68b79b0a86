//! A complete set of tiny plugins: enough to run the loop, with state in every place that a checkpoint has to keep.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascribe_core::build::{BuildContext, BuildError};
use ascribe_core::credit::{Bundle, Credit};
use ascribe_core::critic::{Critic, CriticConfig, Lesson, LessonRows};
use ascribe_core::drive::Drive;
use ascribe_core::environment::{
    ActionText, Capabilities, Environment, EnvironmentError, Observation, Outcome, SnapshotKind, Step, TaskId, TaskSet,
    TaskSetConfig,
};
use ascribe_core::estimator::{AdvantageEstimator, EstimateError};
use ascribe_core::experiment::{Knob, Phase, Plan};
use ascribe_core::log::{Context, End, GroupLog, Stop, Validity};
use ascribe_core::need::{Need, Provide};
use ascribe_core::objective::{Columns, DiffColumn, Objective, Sums};
use ascribe_core::play::Play;
use ascribe_core::policy::{
    Action, Allowed, Continuation, HeadSpec, OptimStep, Part, Policy, PolicyConfig, PolicyError, ScoreRequest, Scored, Session,
    StepReport, draw_token,
};
use ascribe_core::rollout::{Acting, RolloutConfig, RolloutError, RolloutStrategy};
use ascribe_core::rows::{RowSet, Rows, Totals};
use ascribe_core::seed::Rng;
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::transform::CreditTransform;
use ascribe_core::{Batch, Column, Group, Metrics, Now, Scope, Seeds, Signal, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Two turns; each wants the word that the task's parity and the turn ask for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Doors {
    #[serde(default)]
    broken: Option<u32>,
    #[serde(default)]
    hangs: Option<u32>,
    #[serde(default)]
    nan: bool,
    #[serde(default)]
    edition: u32,
}
plugin! {
    Environment "doors" {
        summary: "Two doors.", source: "", when: "In tests.", example: "",
    }
    impl TaskSetConfig for Doors {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn TaskSet>, BuildError> {
            let words = ["left", "right", "door", "one", "two", "."];
            // Another edition speaks of itself.
            let edition = (self.edition > 0).then(|| "edition".to_string());
            let about = Capabilities {
                snapshot: SnapshotKind::None,
                exact_state_key: true,
                r_max: 1.0,
                max_turns: 4,
                max_action_tokens: 3,
                stop: ".".into(),
                vocabulary: words.iter().map(|w| (*w).to_string()).chain(edition).collect(),
                provides: Vec::new(),
            };
            Ok(Box::new(DoorTasks { about, broken: self.broken, hangs: self.hangs, nan: self.nan, edition: self.edition, solved: 0 }))
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Expert]
        }
    }
}
struct DoorTasks {
    about: Capabilities,
    broken: Option<u32>,
    hangs: Option<u32>,
    nan: bool,
    edition: u32,
    /// A curriculum's memory: it must survive a resume, for it shifts which tasks are drawn.
    solved: u64,
}
impl TaskSet for DoorTasks {
    fn capabilities(&self) -> &Capabilities {
        &self.about
    }
    fn splits(&self) -> Vec<String> {
        vec!["train".into(), "test".into()]
    }
    fn len(&self, split: &str) -> usize {
        match split {
            "train" => 6,
            "test" => 4,
            _ => 0,
        }
    }
    fn category(&self, task: &TaskId) -> Option<String> {
        Some(if task.index.is_multiple_of(2) { "even" } else { "odd" }.into())
    }
    fn fingerprint(&self) -> String {
        format!("doors-{}", self.edition)
    }
    fn draw(&mut self, n: usize, drawn: u64, _: Seeds) -> Vec<TaskId> {
        (0..n as u64).map(|i| TaskId { split: "train".into(), index: ((drawn + i + self.solved) % 6) as u32 }).collect()
    }
    fn open(&self, task: &TaskId, seed: u64) -> Result<Box<dyn Environment>, EnvironmentError> {
        if self.broken == Some(task.index) {
            return Err(EnvironmentError("this door is bricked up".into()));
        }
        Ok(Box::new(Door {
            task: task.index,
            turn: 0,
            right: 0,
            variant: seed % 2,
            nan: self.nan,
            hangs: self.hangs == Some(task.index),
        }))
    }
    fn learn(&mut self, outcomes: &[Outcome]) {
        self.solved += outcomes.iter().map(|o| o.solved as u64).sum::<u64>();
    }
    fn save(&self) -> Vec<u8> {
        self.solved.to_le_bytes().to_vec()
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.solved = u64::from_le_bytes(bytes.try_into().map_err(|_| "not a count".to_string())?);
        Ok(())
    }
}
struct Door {
    task: u32,
    turn: u32,
    right: u32,
    variant: u64,
    nan: bool,
    hangs: bool,
}
impl Door {
    fn wanted(&self) -> &'static str {
        if (self.task + self.turn).is_multiple_of(2) { "left" } else { "right" }
    }
}
impl Environment for Door {
    fn observe(&self) -> Observation {
        let text = format!("door {}", if self.turn == 0 { "one" } else { "two" });
        Observation { key: text.clone().into_bytes(), text, context: Context::Extend }
    }
    fn step(&mut self, action: ActionText<'_>) -> Result<Step, EnvironmentError> {
        if self.hangs && self.turn == 1 {
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        let right = action.text == self.wanted();
        let known = matches!(action.text, "left" | "right");
        self.right += u32::from(right);
        self.turn += 1;
        let over = self.turn == 2;
        let success = over && self.right == 2;
        let reward = if self.nan && over { f32::NAN } else { f32::from(u8::from(success)) + 0.25 * f32::from(u8::from(right)) };
        Ok(Step {
            reward,
            end: over.then_some(End::Terminated { success }),
            validity: if known { Validity::Valid } else { Validity::Malformed },
            signals: vec![("exploit".into(), f32::from(u8::from(action.text == "left" && !right)))],
        })
    }
    fn state_key(&self) -> Vec<u8> {
        format!("{}/{}/{}", self.task % 2, self.turn, self.variant).into_bytes()
    }
    fn expert(&mut self, rng: &mut Rng) -> Option<String> {
        let wrong = rng.unit() < 0.2;
        Some(if wrong { "left" } else { self.wanted() }.into())
    }
}

/// A softmax table by state and what was said of the action so far, with momentum as optimiser state.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableConfig {}
plugin! {
    Policy "table" {
        summary: "A table.", source: "", when: "In tests.", example: "",
    }
    impl PolicyConfig for TableConfig {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Policy>, BuildError> {
            if context.device != "cpu" {
                return Err(BuildError::Device(format!("a table has no use for `{}`", context.device)));
            }
            let tokenizer = Arc::new(WordTokenizer::new(&context.environment().vocabulary));
            Ok(Box::new(Table { tokenizer, data: TableData::default(), grad: BTreeMap::new(), passes: 0, sessions: 0, heads: Vec::new() }))
        }
        fn columns(&self) -> Vec<DiffColumn> {
            vec![DiffColumn::Logprob, DiffColumn::Entropy]
        }
    }
}
type Place = (Vec<u8>, Vec<u32>);
#[derive(Clone, Default, Serialize, Deserialize)]
struct TableData {
    logits: Vec<(Place, Vec<f32>)>,
    momentum: Vec<(Place, Vec<f32>)>,
    version: u64,
}
#[derive(Clone)]
struct Table {
    tokenizer: Arc<WordTokenizer>,
    data: TableData,
    grad: BTreeMap<Place, Vec<f64>>,
    passes: u64,
    sessions: u64,
    heads: Vec<String>,
}
fn at<'a>(of: &'a mut Vec<(Place, Vec<f32>)>, place: &Place, n: usize) -> &'a mut Vec<f32> {
    let i = of.binary_search_by(|(p, _)| p.cmp(place)).unwrap_or_else(|i| {
        of.insert(i, (place.clone(), vec![0.0; n]));
        i
    });
    &mut of[i].1
}
impl Table {
    fn logits(&self, place: &Place) -> Vec<f32> {
        let found = self.data.logits.binary_search_by(|(p, _)| p.cmp(place));
        found.map_or_else(|_| vec![0.0; self.tokenizer.vocab_size()], |i| self.data.logits[i].1.clone())
    }
    /// Where each trained token of a row stands, the token, its temperature.
    fn places(rows: &RowSet, r: u32) -> Vec<(Place, u32, f32)> {
        let row = &rows.rows[r as usize];
        let tokens = rows.tokens_of(r as usize);
        let mut out = Vec::new();
        for turn in &rows.turns[row.turns.clone()] {
            for i in turn.trained.clone() {
                let place = (rows.state_bytes(turn).to_vec(), tokens[turn.action_start..rows.at[i]].to_vec());
                out.push((place, tokens[rows.at[i]], turn.temperature));
            }
        }
        out
    }
    /// Probabilities, log-probability of the token, entropy.
    fn look(&self, place: &Place, token: u32, temperature: f32) -> (Vec<f64>, f32, f32) {
        let scale = if temperature > 0.0 { 1.0 / f64::from(temperature) } else { 1.0 };
        let logits: Vec<f64> = self.logits(place).iter().map(|x| f64::from(*x) * scale).collect();
        let max = logits.iter().copied().fold(f64::MIN, f64::max);
        let total: f64 = logits.iter().map(|x| (x - max).exp()).sum();
        let p: Vec<f64> = logits.iter().map(|x| (x - max).exp() / total).collect();
        let entropy = -p.iter().map(|p| p * p.ln()).sum::<f64>();
        let logprob = p[token as usize].ln() as f32;
        (p, logprob, entropy as f32)
    }
    fn columns_of(&self, rows: &RowSet, picked: &[u32], wanted: &[DiffColumn]) -> Columns {
        let all: Vec<_> = picked.iter().flat_map(|r| Self::places(rows, *r)).map(|(p, t, temp)| self.look(&p, t, temp)).collect();
        Columns::new(wanted.iter().map(|c| {
            let numbers = all.iter().map(|(_, logprob, entropy)| match c {
                DiffColumn::Entropy => *entropy,
                _ => *logprob,
            });
            (c.clone(), numbers.collect())
        }))
    }
}
impl Policy for Table {
    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.tokenizer.clone()
    }
    fn version(&self) -> u64 {
        self.data.version
    }
    fn max_tokens(&self) -> usize {
        1000
    }
    fn n_parameters(&self) -> usize {
        self.data.logits.len() * self.tokenizer.vocab_size()
    }
    fn columns(&self) -> Vec<DiffColumn> {
        vec![DiffColumn::Logprob, DiffColumn::Entropy]
    }
    fn add_head(&mut self, spec: HeadSpec) -> Result<(), PolicyError> {
        if self.heads.contains(&spec.name) {
            return Err(PolicyError::Unsupported(format!("head `{}` is taken", spec.name)));
        }
        self.heads.push(spec.name);
        Ok(())
    }
    fn open(&mut self) -> Result<Session, PolicyError> {
        self.sessions += 1;
        Ok(Session(self.sessions))
    }
    fn prefill(&mut self, _: &[(Session, &[u32])]) -> Result<(), PolicyError> {
        Ok(())
    }
    fn fork(&mut self, _: Session) -> Result<Session, PolicyError> {
        self.open()
    }
    fn close(&mut self, _: Session) {}
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        work.iter()
            .map(|w| {
                assert!(matches!(w.allowed, Allowed::Free));
                let mut rng = w.key.rng();
                let mut action = Action { temperature: w.temperature, stop: Stop::Length, ..Action::default() };
                let (mut logprobs, mut entropies) = (Vec::new(), Vec::new());
                while action.tokens.len() < w.max_tokens {
                    let place = (w.state_key.to_vec(), action.tokens.clone());
                    let (token, logprob, entropy) = draw_token(&self.logits(&place), w.temperature, rng.unit())?;
                    action.at.push(action.tokens.len() as u32);
                    action.tokens.push(token as u32);
                    action.support.push(None);
                    logprobs.push(logprob);
                    entropies.push(entropy);
                    if token as u32 == w.stop {
                        action.stop = Stop::Complete;
                        break;
                    }
                }
                action.logprob = Some(logprobs);
                action.entropy = Some(entropies);
                Ok(action)
            })
            .collect()
    }
    fn score(&mut self, rows: &RowSet, request: &ScoreRequest) -> Result<Scored, PolicyError> {
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let columns = self.columns_of(rows, &picked, &request.columns);
        Ok(Scored { columns: columns.iter().map(|(_, x)| x.to_vec()).collect(), ..Scored::default() })
    }
    fn forward_backward(&mut self, parts: &[Part<'_>], max: usize, now: &Now) -> Result<Vec<Sums>, PolicyError> {
        let drive = Drive::new(parts, max, now, |m, wanted| Ok(self.columns_of(&m.rows, &m.picked, wanted)))?;
        let mut sums = Vec::new();
        let mut grad: BTreeMap<Place, Vec<f64>> = BTreeMap::new();
        for (m, micro) in drive.micro().iter().enumerate() {
            let out = self.columns_of(&micro.rows, &micro.picked, &drive.columns(m));
            let (coefficients, s) = drive.coefficients(m, &out)?;
            sums.push(s);
            let places = micro.picked.iter().flat_map(|r| Self::places(&micro.rows, *r));
            let n = self.tokenizer.vocab_size();
            for ((place, token, temperature), c) in places.zip(coefficients.logprob()) {
                let (p, ..) = self.look(&place, token, temperature);
                for (k, g) in grad.entry(place).or_insert_with(|| vec![0.0; n]).iter_mut().enumerate() {
                    *g += f64::from(*c) * (f64::from(u8::from(k == token as usize)) - p[k]) / f64::from(temperature.max(1e-3));
                }
            }
        }
        self.passes += drive.micro().len() as u64;
        let merged = drive.merge(sums);
        for (place, more) in grad {
            let own = self.grad.entry(place).or_insert_with(|| vec![0.0; more.len()]);
            own.iter_mut().zip(more).for_each(|(a, b)| *a += b);
        }
        Ok(merged)
    }
    fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError> {
        let grad = std::mem::take(&mut self.grad);
        let norm = grad.values().flatten().map(|g| g * g).sum::<f64>().sqrt();
        for (place, g) in grad {
            let momentum = at(&mut self.data.momentum, &place, g.len());
            momentum.iter_mut().zip(&g).for_each(|(m, g)| *m = (step.beta1 * f64::from(*m) + g) as f32);
            let momentum = momentum.clone();
            let logits = at(&mut self.data.logits, &place, g.len());
            logits.iter_mut().zip(momentum).for_each(|(x, m)| *x -= (step.learning_rate * f64::from(m)) as f32);
        }
        self.data.version += 1;
        Ok(StepReport { gradient_norm: norm, skipped: false, passes: std::mem::take(&mut self.passes) })
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        Ok(Box::new(self.clone()))
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        serde_json::to_vec(&(&self.data, &self.heads, self.tokenizer.vocab_size()))
            .map_err(|e| PolicyError::Unsupported(e.to_string()))
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        let (data, heads, words): (TableData, Vec<String>, usize) =
            serde_json::from_slice(bytes).map_err(|e| PolicyError::Load(e.to_string()))?;
        if words != self.tokenizer.vocab_size() {
            return Err(PolicyError::Load(format!("it has {words} words, here there are {}", self.tokenizer.vocab_size())));
        }
        if heads != self.heads {
            return Err(PolicyError::Load(format!("its heads are {heads:?}, here they are {:?}", self.heads)));
        }
        self.data = data;
        Ok(())
    }
}

/// Groups by lock-step play; collects one task more every other time, which it has to remember.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Together {
    #[serde(default = "some")]
    tasks: usize,
    #[serde(default = "some")]
    group_size: usize,
    #[serde(default = "one")]
    temperature: f64,
    #[serde(default)]
    expert: bool,
    #[serde(default)]
    fail_at: Option<u32>,
}
fn some() -> usize {
    4
}
fn one() -> f64 {
    1.0
}
plugin! {
    Rollout "together" {
        summary: "Plays.", source: "", when: "In tests.", example: "",
    }
    impl RolloutConfig for Together {
        fn build(&self, _: &BuildContext<'_>) -> Result<Box<dyn RolloutStrategy>, BuildError> {
            if self.tasks == 0 {
                return Err(BuildError::Config("`tasks` must be at least 1".into()));
            }
            Ok(Box::new(Playing {
                tasks: self.tasks,
                members: self.group_size,
                temperature: self.temperature as f32,
                expert: self.expert,
                fail_at: self.fail_at,
                collected: 0,
            }))
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::GroupOfAtLeast(self.group_size as u64), Need::BehaviorLogprob]
        }
        fn agent(&self) -> &str {
            "actor"
        }
    }
}
struct Playing {
    tasks: usize,
    members: usize,
    temperature: f32,
    expert: bool,
    fail_at: Option<u32>,
    collected: u8,
}
impl RolloutStrategy for Playing {
    fn collect(&mut self, acting: &mut Acting<'_>) -> Result<Vec<GroupLog>, RolloutError> {
        if self.fail_at == Some(acting.now.update + 1) {
            return Err(RolloutError::NoTasks("out of memory".into()));
        }
        let n = self.tasks + usize::from(self.collected % 2);
        self.collected = self.collected.wrapping_add(1);
        let starts = acting.draw(n)?;
        let play = Play { temperature: self.temperature, ..acting.play("actor", &starts, self.members, "rollout") };
        let node = acting.nodes.get_mut("actor").expect("there is an actor");
        if self.expert {
            play.expert(&*node.tokenizer(), node.max_tokens(), acting.tasks, acting.ledger)
        } else {
            play.sample(&mut **node, acting.tasks, acting.ledger)
        }
    }
    fn save(&self) -> Vec<u8> {
        vec![self.collected]
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.collected = *bytes.first().ok_or("empty")?;
        Ok(())
    }
}

/// Says how many batches it has seen, as the value of every state; wants a head; asks for the batch's rows to be cloned.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountingConfig {
    #[serde(default = "one")]
    scale: f64,
}
plugin! {
    Critic "counting" {
        summary: "Counts.", source: "", when: "In tests.", example: "",
    }
    impl CriticConfig for CountingConfig {
        fn build(&self, name: &str, _: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            Ok(Box::new(Counting { name: name.into(), seen: 0, scale: self.scale }))
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal("value".into(), Scope::State)]
        }
    }
}
struct Counting {
    name: String,
    seen: u8,
    scale: f64,
}
impl Critic for Counting {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![("value".into(), Scope::State)]
    }
    fn heads(&self) -> Vec<(String, HeadSpec)> {
        vec![("actor".into(), HeadSpec { name: self.name.clone(), detach_trunk: true, zero_init: true })]
    }
    fn judge(&mut self, batch: &Batch, _: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        self.seen += 1;
        let column = Column::full(vec![f32::from(self.seen); batch.scope_len(Scope::State)]);
        Ok(vec![("value".into(), Signal { scope: Scope::State, provider: self.name.clone(), column })])
    }
    fn learn(&mut self, batch: &Batch, credit: &[Credit], _: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let rows = Arc::new(RowSet::from_credit(batch, credit, None));
        let objective = Arc::new(Gradient { clone: true });
        Ok(vec![Lesson { node: "actor".into(), rows: LessonRows::Own(rows), objective, scale: 0.01 * self.scale }])
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(vec![self.seen])
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        self.seen = *bytes.first().ok_or(PolicyError::Load("empty".into()))?;
        Ok(())
    }
}

/// Says nothing, and wants a head of another name.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quiet {}
plugin! {
    Critic "quiet" {
        summary: "Says nothing.", source: "", when: "In tests.", example: "",
    }
    impl CriticConfig for Quiet {
        fn build(&self, _: &str, _: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            Ok(Box::new(Quiet {}))
        }
        fn provides(&self) -> Vec<Provide> {
            Vec::new()
        }
    }
}
impl Critic for Quiet {
    fn provides(&self) -> Vec<(String, Scope)> {
        Vec::new()
    }
    fn heads(&self) -> Vec<(String, HeadSpec)> {
        vec![("actor".into(), HeadSpec { name: "quiet".into(), detach_trunk: true, zero_init: true })]
    }
    fn judge(&mut self, _: &Batch, _: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        Ok(Vec::new())
    }
}

/// Outcome minus the group's mean.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Centred {
    #[serde(default)]
    bundles: bool,
    #[serde(default)]
    poison: Option<u32>,
    #[serde(default)]
    untrained: bool,
}
plugin! {
    Estimator "centred" {
        summary: "Outcome minus mean.", source: "", when: "In tests.", example: "",
    }
    impl AdvantageEstimator for Centred {
        fn estimate(&self, group: Group<'_>, now: &Now) -> Result<Credit, EstimateError> {
            if self.untrained {
                return Ok(Credit { turns: vec![None; group.n_turns()], ..Credit::default() });
            }
            let outcomes = group.outcomes();
            let mean = outcomes.iter().sum::<f64>() / outcomes.len().max(1) as f64;
            let advantages = group.mean_over_leaves(&outcomes.iter().map(|x| x - mean).collect::<Vec<_>>());
            let mut credit = Credit::per_turn(advantages);
            if self.bundles && outcomes.len() >= 2 {
                credit.bundles = vec![Bundle { chosen: 0, rejected: 1 }];
            }
            if self.poison == Some(now.update + 1) && group.index() == 1 {
                credit.turns[0] = Some(f32::NAN);
            }
            Ok(credit)
        }
    }
}

/// Times a factor.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Times {
    factor: f64,
}
plugin! {
    Transform "times" {
        summary: "Times a factor.", source: "", when: "In tests.", example: "factor = 1.0",
    }
    impl CreditTransform for Times {
        fn apply(&self, _: &Batch, credit: &mut [Credit], _: &Now, _: Seeds) -> Metrics {
            for a in credit.iter_mut().flat_map(|c| &mut c.turns).flatten() {
                *a *= self.factor as f32;
            }
            Metrics::default()
        }
    }
}

/// `−A·logprob`, or `−logprob`, over the trained tokens.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gradient {
    #[serde(default)]
    clone: bool,
}
plugin! {
    Objective "gradient" {
        summary: "Policy gradient.", source: "", when: "In tests.", example: "",
    }
    impl Objective for Gradient {
        fn loss(&self, _: &Rows<'_>, _: &Columns, _: &Totals, _: &Now) -> f64 {
            0.0
        }
        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _: &Now, grad: &mut Columns) -> Sums {
            let mut sums = Sums::default();
            for row in rows.iter() {
                for (i, a) in row.packed.clone().zip(row.advantage()) {
                    let a = if self.clone { 1.0 } else { *a };
                    grad.logprob_mut()[i] -= a / totals.tokens as f32;
                    sums.add("actor/pg_loss", f64::from(-a * out.logprob()[i]), 1.0);
                }
            }
            sums
        }
    }
}

/// `−A·ratio`: needs old log-probabilities.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ratio {}
plugin! {
    Objective "ratio" {
        summary: "Importance ratios.", source: "", when: "In tests.", example: "",
    }
    impl Objective for Ratio {
        fn needs(&self) -> Vec<Need> {
            vec![Need::BehaviorLogprob]
        }
        fn loss(&self, _: &Rows<'_>, _: &Columns, _: &Totals, _: &Now) -> f64 {
            0.0
        }
        fn gradients(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _: &Now, grad: &mut Columns) -> Sums {
            let mut sums = Sums::default();
            for row in rows.iter() {
                for ((i, a), old) in row.packed.clone().zip(row.advantage()).zip(row.old_logprob()) {
                    let ratio = (out.logprob()[i] - old).exp();
                    grad.logprob_mut()[i] -= a * ratio / totals.tokens as f32;
                    sums.add("actor/ratio", f64::from(ratio), 1.0);
                }
            }
            sums
        }
    }
}

/// An experiment of these plugins. `text` replaces tables; `[[phase]]` and `[knob]` (schedules by path) are taken out.
pub fn plan(text: &str) -> Plan {
    let base = "
        name = \"doors\"
        updates = 10
        environment.doors = {}
        policy.actor.table = {}
        rollout.together = {}
        estimator.centred = {}
        objective.gradient = {}
        update = { learning_rate = 0.5 }
        checkpoint = { every = 2 }
    ";
    let mut all: toml::Table = base.parse().expect("TOML");
    all.extend(text.parse::<toml::Table>().expect("TOML"));
    let phases = all.remove("phase");
    let knobs = all.remove("knob");
    let knobs = || -> Vec<Knob> {
        let knob = |(path, schedule): (&String, &toml::Value)| Knob {
            path: path.split('.').map(str::to_string).collect(),
            integer: false,
            schedule: schedule.clone().try_into().expect("a schedule"),
        };
        knobs.iter().filter_map(toml::Value::as_table).flatten().map(knob).collect()
    };
    let named: Vec<(String, toml::Table)> = match phases.as_ref().and_then(toml::Value::as_array) {
        None => vec![("main".into(), all.clone())],
        Some(phases) => phases
            .iter()
            .map(|phase| {
                let mut tree = all.clone();
                tree.extend(phase.as_table().expect("a table").clone());
                let name = tree.insert("name".into(), "doors".into()).and_then(|n| n.as_str().map(str::to_string));
                (name.expect("a name"), tree)
            })
            .collect(),
    };
    let last = named.len() - 1;
    let identity = named.iter().enumerate().map(|(i, (name, tree))| {
        let mut tree = tree.clone();
        for key in ["run", "budget"].into_iter().chain((i == last).then_some("updates")) {
            tree.remove(key);
        }
        (name.clone(), tree.into())
    });
    let identity: toml::Table = identity.collect();
    Plan {
        name: "doors".into(),
        given: text.into(),
        resolved: all.to_string(),
        identity: identity.to_string(),
        phases: named.into_iter().map(|(name, tree)| Phase { name, tree, knobs: knobs() }).collect(),
    }
}
