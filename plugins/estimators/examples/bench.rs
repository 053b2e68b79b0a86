//! Processor time of estimators on the arrays that `benches/compare.py` writes, on one thread.
//!
//! `bench CASE FOLDER STEPS` reads raw little-endian arrays from FOLDER, `[trajectories][STEPS]` each unless said otherwise,
//! builds the batch, writes what came out beside them as `ours.*`, and prints seconds per call as JSON: `build` for the
//! batch from the records of rollouts, `estimate` for the estimator on the batch, and what else a case has. Groups are of
//! eight. Figures are medians; processor time is what the system tells (Linux), else the time that passed.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ascribe_core::batch::NonFinite;
use ascribe_core::credit::{TokenCredit, spread};
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::{AdvantageEstimator, Batch, Column, Credit, CreditTransform, End, Now, Scope, Seeds, Signal};
use ascribe_estimators::{Gae, Gigpo, Hgpo, Igpo, Tempo, actor_signals};
use ascribe_math::{critic_signals, moments, pooled, whitening};
use ascribe_transforms::Whiten;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const GROUP: usize = 8;
const RUNS: usize = 9;
/// A run repeats its work for about so long: much longer than the system's clock tick.
const RUN_SECONDS: f64 = 0.15;
/// Turns of a trajectory of tokens.
const TURNS: usize = 8;

type Figures = BTreeMap<&'static str, f64>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, folder, steps] = &arguments[..] else { return Err("bench CASE FOLDER STEPS".into()) };
    let case_of: fn(&Arrays) -> Result<Figures, Box<dyn Error>> = match case.as_str() {
        "gigpo" => gigpo,
        "hgpo" => hgpo,
        "igpo" => igpo,
        "gae" => gae,
        "tempo" => tempo,
        other => return Err(format!("no case {other}").into()),
    };
    println!("{}", serde_json::to_string(&case_of(&Arrays { folder: folder.into(), steps: steps.parse()? })?)?);
    Ok(())
}

/// The arrays of a case.
struct Arrays {
    folder: PathBuf,
    steps: usize,
}

impl Arrays {
    fn words<T>(&self, name: &str, of: fn([u8; 4]) -> T) -> Result<Vec<T>, Box<dyn Error>> {
        let bytes = std::fs::read(self.folder.join(name))?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| of(*word)).collect())
    }
    fn numbers(&self, name: &str) -> Result<Vec<f32>, Box<dyn Error>> {
        self.words(name, f32::from_le_bytes)
    }
    fn ids(&self, name: &str) -> Result<Vec<u32>, Box<dyn Error>> {
        self.words(name, u32::from_le_bytes)
    }
    fn write(&self, name: &str, numbers: impl IntoIterator<Item = f32>) -> Result<(), Box<dyn Error>> {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        Ok(std::fs::write(Path::new(&self.folder).join(name), bytes)?)
    }
}

/// Seconds of processor time this thread has had (Linux), else seconds since the start.
fn processor_seconds(start: Instant) -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Seconds that a call takes, the median of the runs.
fn seconds<T>(mut work: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    // The first calls are slower than the rest.
    let once = |_| {
        let before = start.elapsed();
        black_box(work());
        (start.elapsed() - before).as_secs_f64()
    };
    let calls = (RUN_SECONDS / (0..4).map(once).fold(f64::INFINITY, f64::min)).ceil().max(1.0) as usize;
    let run = |_| {
        let before = processor_seconds(start);
        for _ in 0..calls {
            black_box(work());
        }
        (processor_seconds(start) - before) / calls as f64
    };
    median((0..RUNS).map(run).collect())
}

/// The batch of these records, and the seconds that it takes to build.
fn built(groups: &[GroupLog]) -> (Batch, f64) {
    let start = Instant::now();
    let build = |groups: Vec<GroupLog>| Batch::from_groups(groups, NonFinite::Refuse).expect("records of one shape");
    let run = |_| {
        let copy = groups.to_vec();
        let before = processor_seconds(start);
        black_box(build(copy));
        processor_seconds(start) - before
    };
    let figures: Vec<f64> = (0..RUNS).map(run).collect();
    // A short one lasts no longer than the clock's tick, so that only the sum tells.
    (build(groups.to_vec()), figures.iter().sum::<f64>() / RUNS as f64)
}

fn config<T: DeserializeOwned>(settings: Value) -> Result<T, Box<dyn Error>> {
    Ok(serde_json::from_value(settings)?)
}

/// What an estimator says about each group.
fn credits(estimator: &dyn AdvantageEstimator, batch: &Batch) -> Vec<Credit> {
    let now = Now::default();
    batch.groups().map(|group| estimator.estimate(group, &now).expect("the batch has what it needs")).collect()
}

/// Advantages per turn, all trained.
fn of_turns(credits: &[Credit]) -> impl Iterator<Item = f32> {
    credits.iter().flat_map(|credit| &credit.turns).map(|a| a.expect("trained"))
}

fn turn(parent: Option<usize>, reward: f32, n_tokens: usize) -> TurnLog {
    TurnLog { parent, agent: "actor".into(), action: Action::given(vec![0; n_tokens]), reward, ..TurnLog::default() }
}

/// Groups of chains of `n_turns`: `turn(i, parent)` is the i-th turn of the batch, `end(p)` says how the p-th path ended.
fn chains(
    n_paths: usize,
    n_turns: usize,
    turn: impl Fn(usize, Option<usize>) -> TurnLog,
    end: impl Fn(usize) -> End,
) -> Vec<GroupLog> {
    let group = |g: usize| {
        let of_group = g * GROUP * n_turns;
        let parent = |t: usize| if t.is_multiple_of(n_turns) { None } else { Some(t - 1) };
        let leaf = |p: usize| LeafLog { turn: Some((p + 1) * n_turns - 1), end: end(g * GROUP + p), seed: 0 };
        GroupLog {
            task_name: "task".into(),
            turns: (0..GROUP * n_turns).map(|t| turn(of_group + t, parent(t))).collect(),
            leaves: (0..GROUP).map(leaf).collect(),
            ..GroupLog::default()
        }
    };
    (0..n_paths / GROUP).map(group).collect()
}

fn won(_: usize) -> End {
    End::Terminated { success: true }
}

fn add(batch: &mut Batch, name: &str, scope: Scope, column: Column) -> Result<(), Box<dyn Error>> {
    Ok(batch.add_signal(name, Signal { scope, provider: "bench".into(), column })?)
}

/// Chains of turns with a `reward` and an `anchor` each.
fn walks(arrays: &Arrays) -> Result<(Batch, f64), Box<dyn Error>> {
    let (rewards, anchors) = (arrays.numbers("reward")?, arrays.ids("anchor")?);
    let step = |i: usize, parent| TurnLog { observation: anchors[i].to_le_bytes().into(), ..turn(parent, rewards[i], 1) };
    Ok(built(&chains(rewards.len() / arrays.steps, arrays.steps, step, won)))
}

fn gigpo(arrays: &Arrays) -> Result<Figures, Box<dyn Error>> {
    let (batch, build) = walks(arrays)?;
    let gigpo: Gigpo = config(json!({ "gamma": 0.95, "over": "turns", "mode": "official" }))?;
    let returns: Vec<f64> = batch.groups().flat_map(|group| gigpo.steps(group).returns).collect();
    arrays.write("ours.returns", returns.into_iter().map(|x| x as f32))?;
    arrays.write("ours.advantages", of_turns(&credits(&gigpo, &batch)))?;
    Ok([("build", build), ("estimate", seconds(|| credits(&gigpo, &batch)))].into())
}

fn hgpo(arrays: &Arrays) -> Result<Figures, Box<dyn Error>> {
    let (batch, build) = walks(arrays)?;
    let hgpo: Hgpo = config(json!({ "gamma": 0.95, "levels": 2, "mode": "official" }))?;
    arrays.write("ours.advantages", of_turns(&credits(&hgpo, &batch)))?;
    Ok([("build", build), ("estimate", seconds(|| credits(&hgpo, &batch)))].into())
}

/// A `gain` for every turn but the last, which earns the `outcome`; `length` is its number of tokens.
fn igpo(arrays: &Arrays) -> Result<Figures, Box<dyn Error>> {
    let (gains, outcomes, lengths) = (arrays.numbers("gain")?, arrays.numbers("outcome")?, arrays.ids("length")?);
    let is_last = |i: usize| (i + 1).is_multiple_of(arrays.steps);
    let step = |i: usize, parent| {
        let reward = if is_last(i) { outcomes[i / arrays.steps] } else { 0.0 };
        turn(parent, reward, lengths[i] as usize)
    };
    let (mut batch, build) = built(&chains(outcomes.len(), arrays.steps, step, won));
    let gains = gains.iter().enumerate().map(|(i, gain)| (!is_last(i)).then_some(*gain)).collect();
    add(&mut batch, "info_gain", Scope::Turn, gains)?;
    let igpo: Igpo = config(json!({ "gamma": 1.0, "norm": "separate" }))?;
    let on_tokens = || -> Vec<TokenCredit> {
        batch.groups().zip(credits(&igpo, &batch)).map(|(group, credit)| spread(group, &credit)).collect()
    };
    arrays.write("ours.advantages", of_turns(&credits(&igpo, &batch)))?;
    let of_tokens = on_tokens();
    let of_tokens = of_tokens.iter().flat_map(|credit| credit.advantage.iter()).map(|a| a.expect("trained"));
    arrays.write("ours.on_tokens", of_tokens)?;
    Ok([("build", build), ("estimate", seconds(|| credits(&igpo, &batch))), ("spread", seconds(on_tokens))].into())
}

/// A `reward` and a `value` for every token, in turns of equal lengths.
fn gae(arrays: &Arrays) -> Result<Figures, Box<dyn Error>> {
    let (rewards, values) = (arrays.numbers("reward")?, arrays.numbers("value")?);
    let (n_paths, n_tokens) = (rewards.len() / arrays.steps, arrays.steps / TURNS);
    let (mut batch, build) = built(&chains(n_paths, TURNS, |_, parent| turn(parent, 0.0, n_tokens), won));
    add(&mut batch, "token_reward", Scope::Token, Column::full(rewards.clone()))?;
    batch.combine_rewards(&[("token_reward".to_string(), 1.0)].into())?;
    add(&mut batch, "token_value", Scope::Token, Column::full(values.clone()))?;
    let n_states = batch.scope_len(Scope::State);
    add(&mut batch, "value", Scope::State, Column::full(vec![0.0; n_states]))?;
    let (gamma, lambda) = (1.0, 0.95);
    let estimator: Gae = config(json!({ "gamma": gamma, "lambda": lambda, "unit": "token" }))?;
    let whitened = || {
        let mut credits = credits(&estimator, &batch);
        Whiten::default().apply(&batch, &mut credits, &Now::default(), Seeds(0));
        credits
    };
    // The buffer is the caller's: an update has one and keeps it.
    let mut out = vec![0.0; rewards.len()];
    let mut on_slices = || {
        let rows = rewards.chunks(arrays.steps).zip(values.chunks(arrays.steps)).zip(out.chunks_mut(arrays.steps));
        let of_row = |((rewards, values), out): ((&[f32], &[f32]), &mut [f32])| {
            ascribe_math::gae(rewards, values, 0.0, gamma, lambda, out);
            moments(out)
        };
        let of_rows: Vec<_> = rows.map(of_row).collect();
        whitening(&pooled(&of_rows), 1e-8).apply(&mut out);
    };
    arrays.write("ours.advantages", whitened().iter().flat_map(|credit| credit.tokens.iter()).map(|a| a.expect("trained")))?;
    let slices = seconds(&mut on_slices);
    arrays.write("ours.on_slices", out)?;
    let alone = seconds(|| credits(&estimator, &batch));
    Ok([("build", build), ("estimate", seconds(whitened)), ("alone", alone), ("slices", slices)].into())
}

/// Branches of one turn: a `reward`, and the value of its `endpoint`, NaN after a true end. A critic's `estimate`s of each
/// start are as many, NaN where it gave none.
fn tempo(arrays: &Arrays) -> Result<Figures, Box<dyn Error>> {
    let (rewards, endpoints, estimates) = (arrays.numbers("reward")?, arrays.numbers("endpoint")?, arrays.numbers("estimate")?);
    let end = |p: usize| if endpoints[p].is_nan() { won(p) } else { End::MacroBoundary };
    let (mut batch, build) = built(&chains(rewards.len(), 1, |i, parent| turn(parent, rewards[i], 1), end));
    let known = |x: &f32| (!x.is_nan()).then_some(*x);
    let states = endpoints.chunks(GROUP).flat_map(|group| std::iter::once(None).chain(group.iter().map(known)));
    add(&mut batch, "value", Scope::State, states.collect())?;
    let tempo = Tempo::default();
    let rewards: Vec<f64> = rewards.into_iter().map(f64::from).collect();
    let doubles = |x: &[f32]| -> Vec<Option<f64>> { x.iter().map(|x| known(x).map(f64::from)).collect() };
    let (endpoints, estimates) = (doubles(&endpoints), doubles(&estimates));
    let signals = || -> Vec<_> {
        let groups = rewards.chunks(GROUP).zip(endpoints.chunks(GROUP)).zip(estimates.chunks(GROUP));
        let of_group = |((rewards, endpoints), estimates)| {
            let actor = actor_signals(rewards, endpoints);
            let critic = critic_signals(estimates, actor.target, 1.0);
            (actor, critic)
        };
        groups.map(of_group).collect()
    };
    arrays.write("ours.advantages", of_turns(&credits(&tempo, &batch)))?;
    arrays.write("ours.actor", signals().iter().flat_map(|(actor, _)| &actor.advantages).map(|a| *a as f32))?;
    arrays.write("ours.critic", signals().iter().flat_map(|(_, critic)| &critic.advantages).map(|a| *a as f32))?;
    Ok([("build", build), ("estimate", seconds(|| credits(&tempo, &batch))), ("slices", seconds(signals))].into())
}
