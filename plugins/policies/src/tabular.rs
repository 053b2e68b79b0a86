//! A softmax table: logits per state and action prefix, with exact gradients.
//!
//! `π(a_i | s, a_<i) = softmax(θ[s, a_<i] / T)` over the allowed tokens; `∂log π(a)/∂θ_j = (1[j = a] − π_j)/T`,
//! `∂H/∂θ_j = −π_j (log π_j + H)/T`. A head is a table of its own, `h[s, a_<i]`: before the first token of an action it is a
//! value of the state, after the last one a value of the state and the action. There is no trunk that heads could share, and
//! every head starts at 0.
//!
//! The state is the environment's exact state key, which continuations and rows carry; it passes through the same calls
//! as a transformer. A row of the table exists once it was trained; before, it is uniform. AdamW (Loshchilov and Hutter
//! 2019, arXiv 1711.05101) keeps its moments per row, in `f64`.
//!
//! After the last token of a sequence a head is read as `h[s, a]`, at the last state that was acted in and the whole action: the
//! state that follows is not in the row. Only rows that train a token there (what a critic of actions does) move that number;
//! for others it stays 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascribe_core::drive::Drive;
use ascribe_core::log::Action;
use ascribe_core::objective::{Columns, DiffColumn, Sums};
use ascribe_core::policy::{Continuation, HeadSpec, OptimStep, Part, PolicyError, ScoreRequest, Scored, Session, StepReport};
use ascribe_core::rows::RowTurn;
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{BuildContext, BuildError, Now, Policy, PolicyConfig, RowSet, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sampling::Sampler;

/// `[policy.NAME.tabular]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tabular {}

plugin! {
    Policy "tabular" {
        summary: "A softmax table by state key, with exact gradients.",
        source: "",
        when: "Small environments with exact state keys: to see an estimator at work without function approximation.",
        example: "",
        module: "tabular.rs",
    }
    impl PolicyConfig for Tabular {
        fn build(&self, context: &BuildContext<'_>) -> Result<Box<dyn Policy>, BuildError> {
            crate::on_the_cpu("a tabular policy", context)?;
            let about = context.environment();
            let tokenizer = WordTokenizer::new(about.vocabulary.iter().chain([&about.stop]));
            Ok(Box::new(Table::new(tokenizer)))
        }
        fn columns(&self) -> Vec<DiffColumn> {
            vec![DiffColumn::Logprob, DiffColumn::Entropy]
        }
        fn needs(&self) -> Vec<ascribe_core::Need> {
            vec![ascribe_core::Need::ExactStateKey]
        }
    }
}

/// Numbers of one place, with the optimiser's moments.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Entry {
    numbers: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

/// Where an entry stands: the state key, then the tokens of the action so far.
type Place = (Vec<u8>, Vec<u32>);

/// As many numbers per place, those that were never trained being 0.
#[derive(Clone, Debug)]
struct Grid {
    width: usize,
    entries: BTreeMap<Place, Entry>,
    gradient: BTreeMap<Place, Vec<f64>>,
}

impl Grid {
    fn new(width: usize) -> Self {
        Self { width, entries: BTreeMap::new(), gradient: BTreeMap::new() }
    }

    /// The numbers of a place, `[width]`; `None` where nothing was trained.
    fn at(&self, place: &Place) -> Option<&[f64]> {
        self.entries.get(place).map(|entry| &entry.numbers[..])
    }

    /// The gradient at a place, to add to.
    fn gradient(&mut self, place: &Place) -> &mut [f64] {
        if !self.gradient.contains_key(place) {
            self.gradient.insert(place.clone(), vec![0.0; self.width]);
        }
        self.gradient.get_mut(place).expect("just inserted")
    }

    /// One step of AdamW, the `t`-th, with the gradient times `scale`, which is cleared.
    fn step(&mut self, step: &OptimStep, t: f64, scale: f64) {
        let gradient = std::mem::take(&mut self.gradient);
        let (bias1, bias2) = (1.0 - step.beta1.powf(t), 1.0 - step.beta2.powf(t));
        let zeros = vec![0.0; self.width];
        for place in gradient.keys().filter(|place| !self.entries.contains_key(place)).cloned().collect::<Vec<_>>() {
            self.entries.insert(place, Entry { numbers: zeros.clone(), first: zeros.clone(), second: zeros.clone() });
        }
        // Rows without a gradient still follow their momentum, as every parameter of a network does.
        for (place, entry) in &mut self.entries {
            let g = gradient.get(place).unwrap_or(&zeros);
            for j in 0..self.width {
                let g = g[j] * scale;
                entry.first[j] = step.beta1 * entry.first[j] + (1.0 - step.beta1) * g;
                entry.second[j] = step.beta2 * entry.second[j] + (1.0 - step.beta2) * g * g;
                let direction = (entry.first[j] / bias1) / ((entry.second[j] / bias2).sqrt() + step.epsilon);
                entry.numbers[j] -= step.learning_rate * (direction + step.weight_decay * entry.numbers[j]);
            }
        }
    }

    fn saved(&self) -> Vec<(Place, Entry)> {
        self.entries.iter().map(|(place, entry)| (place.clone(), entry.clone())).collect()
    }

    /// A grid of saved entries.
    fn loaded(width: usize, entries: Vec<(Place, Entry)>) -> Result<Self, PolicyError> {
        let fits = |e: &Entry| [&e.numbers, &e.first, &e.second].iter().all(|v| v.len() == width);
        if !entries.iter().all(|(_, e)| fits(e)) {
            return Err(PolicyError::Load(format!("a row of the table does not have {width} numbers")));
        }
        Ok(Self { entries: entries.into_iter().collect(), ..Self::new(width) })
    }
}

/// What is saved.
#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    vocabulary: Vec<String>,
    version: u64,
    logits: Vec<(Place, Entry)>,
    heads: Vec<(String, Vec<(Place, Entry)>)>,
}
const FORMAT: u32 = 2;

/// A live table.
#[derive(Clone)]
struct Table {
    tokenizer: Arc<WordTokenizer>,
    logits: Grid,
    heads: BTreeMap<String, Grid>,
    version: u64,
    /// Micro-batches that the gradient is the sum of.
    passes: u64,
    next: u64,
    open: std::collections::BTreeSet<Session>,
}

/// The distribution at one trained token.
struct At {
    place: Place,
    /// Token ids with their probabilities.
    probability: Vec<(usize, f64)>,
    /// Index into `probability` of the token taken.
    taken: usize,
    temperature: f64,
    entropy: f64,
}

impl Table {
    fn new(tokenizer: WordTokenizer) -> Self {
        Self {
            logits: Grid::new(tokenizer.vocab_size()),
            heads: BTreeMap::new(),
            tokenizer: Arc::new(tokenizer),
            version: 0,
            passes: 0,
            next: 0,
            open: std::collections::BTreeSet::new(),
        }
    }

    fn vocab(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    /// Logits over the vocabulary.
    fn logits(&self, place: &Place) -> Vec<f32> {
        self.logits.at(place).map_or_else(|| vec![0.0; self.vocab()], |logits| logits.iter().map(|x| *x as f32).collect())
    }

    /// The distribution that trained token `i` of row `r` was drawn from, now.
    fn at(&self, rows: &RowSet, r: usize, turn: &RowTurn, i: usize) -> Result<At, PolicyError> {
        let tokens = rows.tokens_of(r);
        let place = (rows.state_bytes(turn).to_vec(), tokens[turn.action_start..rows.at[i]].to_vec());
        let temperature = if turn.temperature > 0.0 { f64::from(turn.temperature) } else { 1.0 };
        let logits = self.logits.at(&place).unwrap_or_default();
        let scaled = |t: usize| logits.get(t).copied().unwrap_or(0.0) / temperature;
        let ids: Vec<usize> = match rows.support_of(i) {
            None => (0..self.vocab()).collect(),
            Some(allowed) => allowed.iter().map(|t| *t as usize).collect(),
        };
        let token = rows.token(r, i) as usize;
        let taken = ids
            .iter()
            .position(|t| *t == token)
            .ok_or_else(|| PolicyError::Unsupported(format!("row {r}: token {token} is not in its support or vocabulary")))?;
        let max = ids.iter().map(|t| scaled(*t)).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = ids.iter().map(|t| (scaled(*t) - max).exp()).sum();
        let probability: Vec<(usize, f64)> = ids.iter().map(|t| (*t, (scaled(*t) - max).exp() / total)).collect();
        let entropy = probability.iter().filter(|(_, p)| *p > 0.0).map(|(_, p)| -p * p.ln()).sum();
        Ok(At { place, probability, taken, temperature, entropy })
    }

    /// The distributions of some rows' trained tokens, in packed order.
    fn distributions(&self, rows: &RowSet, picked: &[u32]) -> Result<Vec<At>, PolicyError> {
        let mut out = Vec::new();
        for r in picked {
            let bounds = &rows.rows[*r as usize];
            for turn in &rows.turns[bounds.turns.clone()] {
                for i in turn.trained.clone() {
                    out.push(self.at(rows, *r as usize, turn, i)?);
                }
            }
        }
        Ok(out)
    }

    /// The grid of a head.
    fn head(&self, name: &str) -> Result<&Grid, PolicyError> {
        self.heads
            .get(name)
            .ok_or_else(|| PolicyError::Unsupported(format!("a tabular policy has no head `{name}` but those that critics add")))
    }

    /// A column over distributions.
    fn read(&self, column: &DiffColumn, at: &[At]) -> Result<Vec<f32>, PolicyError> {
        match column {
            DiffColumn::Logprob => Ok(at.iter().map(|a| a.probability[a.taken].1.ln() as f32).collect()),
            DiffColumn::Entropy => Ok(at.iter().map(|a| a.entropy as f32).collect()),
            DiffColumn::Head(name) => {
                let head = self.head(name)?;
                Ok(at.iter().map(|a| head.at(&a.place).map_or(0.0, |numbers| numbers[0] as f32)).collect())
            }
            DiffColumn::Kl(_) => Err(PolicyError::Unsupported(format!("a tabular policy has no {column}"))),
        }
    }

    fn columns_of(&self, wanted: &[DiffColumn], at: &[At]) -> Result<Columns, PolicyError> {
        let columns: Vec<_> = wanted.iter().map(|c| Ok((c.clone(), self.read(c, at)?))).collect::<Result<_, PolicyError>>()?;
        Ok(Columns::new(columns))
    }

    /// A head after the last token of each row.
    fn ends(&self, rows: &RowSet, name: &str) -> Result<Vec<f32>, PolicyError> {
        let head = self.head(name)?;
        let end = |(r, bounds): (usize, &ascribe_core::rows::RowBounds)| {
            let turn = rows.turns[bounds.turns.clone()].last();
            let turn =
                turn.ok_or_else(|| PolicyError::Unsupported(format!("row {r} has no turn, so no state to read `{name}` in")))?;
            let place = (rows.state_bytes(turn).to_vec(), rows.tokens_of(r)[turn.action_start..].to_vec());
            Ok(head.at(&place).map_or(0.0, |numbers| numbers[0] as f32))
        };
        rows.rows.iter().enumerate().map(end).collect()
    }
}

impl Policy for Table {
    fn tokenizer(&self) -> Arc<dyn Tokenizer> {
        self.tokenizer.clone()
    }
    fn version(&self) -> u64 {
        self.version
    }
    fn max_tokens(&self) -> usize {
        // It reads the state, not the sequence.
        usize::MAX / 2
    }
    fn n_parameters(&self) -> usize {
        [&self.logits].into_iter().chain(self.heads.values()).map(|grid| grid.entries.len() * grid.width).sum()
    }
    fn columns(&self) -> Vec<DiffColumn> {
        let heads = self.heads.keys().cloned().map(DiffColumn::Head);
        [DiffColumn::Logprob, DiffColumn::Entropy].into_iter().chain(heads).collect()
    }
    fn add_head(&mut self, spec: HeadSpec) -> Result<(), PolicyError> {
        if self.heads.contains_key(&spec.name) {
            return Err(PolicyError::Unsupported(format!(
                "there is a head `{}` already; give the new one another name",
                spec.name
            )));
        }
        self.heads.insert(spec.name, Grid::new(1));
        Ok(())
    }
    fn open(&mut self) -> Result<Session, PolicyError> {
        let session = Session(self.next);
        self.next += 1;
        self.open.insert(session);
        Ok(session)
    }
    fn prefill(&mut self, work: &[(Session, &[u32])]) -> Result<(), PolicyError> {
        work.iter().try_for_each(|(session, _)| self.known(*session))
    }
    fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
        self.known(session)?;
        self.open()
    }
    fn close(&mut self, session: Session) {
        self.open.remove(&session);
    }
    fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
        work.iter()
            .map(|w| {
                self.known(w.session)?;
                let mut sampler = Sampler::new(w);
                loop {
                    sampler.take_forced();
                    if sampler.done() {
                        return Ok(sampler.finish());
                    }
                    let place = (w.state_key.to_vec(), sampler.tokens().to_vec());
                    sampler.draw(&self.logits(&place))?;
                }
            })
            .collect()
    }
    fn score(&mut self, rows: &RowSet, request: &ScoreRequest) -> Result<Scored, PolicyError> {
        if request.hidden {
            return Err(PolicyError::Unsupported("a tabular policy has no hidden vectors; a transformer has".into()));
        }
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let at = self.distributions(rows, &picked)?;
        let columns = request.columns.iter().map(|c| self.read(c, &at)).collect::<Result<_, _>>()?;
        let ends = request.ends.iter().map(|name| self.ends(rows, name)).collect::<Result<_, _>>()?;
        Ok(Scored { columns, ends, ..Scored::default() })
    }
    fn forward_backward(&mut self, parts: &[Part<'_>], micro_batch_tokens: usize, now: &Now) -> Result<Vec<Sums>, PolicyError> {
        let drive = Drive::new(parts, micro_batch_tokens, now, |micro, wanted| {
            self.columns_of(wanted, &self.distributions(&micro.rows, &micro.picked)?)
        })?;
        // What fails leaves the gradient as it was.
        let (mut logits, mut heads) = (self.logits.clone(), self.heads.clone());
        let mut statistics = Vec::new();
        for (m, micro) in drive.micro().iter().enumerate() {
            let at = self.distributions(&micro.rows, &micro.picked)?;
            let (grad, sums) = drive.coefficients(m, &self.columns_of(&drive.columns(m), &at)?)?;
            statistics.push(sums);
            for (name, c) in grad.iter() {
                for (a, c) in at.iter().zip(c).filter(|(_, c)| **c != 0.0) {
                    let c = f64::from(*c);
                    if let DiffColumn::Head(name) = name {
                        heads.get_mut(name).expect("it was read above").gradient(&a.place)[0] += c;
                        continue;
                    }
                    let row = logits.gradient(&a.place);
                    for (k, (token, p)) in a.probability.iter().enumerate() {
                        row[*token] += c / a.temperature
                            * match name {
                                DiffColumn::Logprob => f64::from(u8::from(k == a.taken)) - p,
                                _ if *p > 0.0 => -p * (p.ln() + a.entropy),
                                _ => 0.0,
                            };
                    }
                }
            }
        }
        (self.logits, self.heads) = (logits, heads);
        self.passes += drive.micro().len() as u64;
        Ok(drive.merge(statistics))
    }
    fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError> {
        let mut grids: Vec<&mut Grid> = [&mut self.logits].into_iter().chain(self.heads.values_mut()).collect();
        let squares = grids.iter().flat_map(|grid| grid.gradient.values().flatten()).map(|g| g * g);
        let norm = squares.sum::<f64>().sqrt();
        if !norm.is_finite() {
            grids.iter_mut().for_each(|grid| grid.gradient.clear());
            return Ok(StepReport { gradient_norm: norm, skipped: true, passes: std::mem::take(&mut self.passes) });
        }
        let scale = step.clip_norm.filter(|max| norm > *max).map_or(1.0, |max| max / norm);
        self.version += 1;
        grids.iter_mut().for_each(|grid| grid.step(step, self.version as f64, scale));
        Ok(StepReport { gradient_norm: norm, skipped: false, passes: std::mem::take(&mut self.passes) })
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        let mut copy = self.clone();
        copy.open.clear();
        copy.passes = 0;
        [&mut copy.logits].into_iter().chain(copy.heads.values_mut()).for_each(|grid| grid.gradient.clear());
        Ok(Box::new(copy))
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        let saved = Saved {
            format: FORMAT,
            vocabulary: self.tokenizer.words().to_vec(),
            version: self.version,
            logits: self.logits.saved(),
            heads: self.heads.iter().map(|(name, grid)| (name.clone(), grid.saved())).collect(),
        };
        serde_json::to_vec(&saved).map_err(|e| PolicyError::NonFinite(format!("the table cannot be written: {e}")))
    }
    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        let saved: Saved = serde_json::from_slice(bytes).map_err(|e| PolicyError::Load(e.to_string()))?;
        if saved.format != FORMAT {
            return Err(PolicyError::Load(format!("format {}, this version reads {FORMAT}", saved.format)));
        }
        if saved.vocabulary != self.tokenizer.words() {
            return Err(PolicyError::Load("they belong to another vocabulary".into()));
        }
        let logits = Grid::loaded(self.vocab(), saved.logits)?;
        let heads = saved.heads.into_iter().map(|(name, entries)| Ok((name, Grid::loaded(1, entries)?)));
        let heads: Vec<(String, Grid)> = heads.collect::<Result<_, PolicyError>>()?;
        // Heads of the file are added, those that it lacks are kept, as a transformer does it.
        self.heads.extend(heads);
        self.heads.values_mut().for_each(|grid| grid.gradient.clear());
        self.logits = logits;
        self.version = saved.version;
        Ok(())
    }
}

impl Table {
    fn known(&self, session: Session) -> Result<(), PolicyError> {
        if self.open.contains(&session) {
            Ok(())
        } else {
            Err(PolicyError::Unsupported(format!("session {} is not open", session.0)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{End, GroupLog, LeafLog, TurnLog};
    use ascribe_core::objective::Objective;
    use ascribe_core::policy::Allowed;
    use ascribe_core::rows::{Rows, Totals};
    use ascribe_core::trie::Trie;
    use ascribe_core::{Batch, Credit, Draw, Seeds};

    /// `L = Σ advantage · (log π + H) / tokens`: both columns at once.
    #[derive(Debug, Serialize, Deserialize)]
    struct Both {}
    #[typetag::serde(name = "tabular-test-both")]
    impl Objective for Both {
        fn columns(&self) -> Vec<DiffColumn> {
            vec![DiffColumn::Logprob, DiffColumn::Entropy]
        }
        fn loss(&self, rows: &Rows<'_>, out: &Columns, totals: &Totals, _: &Now) -> f64 {
            let advantage = rows.gather("advantage").unwrap();
            let entropy = out.get(&DiffColumn::Entropy);
            let token = |i: usize| f64::from(advantage[i]) * f64::from(out.logprob()[i] + entropy[i]);
            (0..advantage.len()).map(token).sum::<f64>() / totals.tokens as f64
        }
        fn gradients(&self, rows: &Rows<'_>, _: &Columns, totals: &Totals, _: &Now, grad: &mut Columns) -> Sums {
            for (i, a) in rows.gather("advantage").unwrap().iter().enumerate() {
                grad.logprob_mut()[i] += a / totals.tokens as f32;
                grad.get_mut(&DiffColumn::Entropy)[i] += a / totals.tokens as f32;
            }
            Sums::default()
        }
    }

    fn table() -> Table {
        let mut table = Table::new(WordTokenizer::new(["a", "b", "c", "end"]));
        for (state, prefix) in [(1u8, vec![]), (1, vec![2]), (2, vec![])] {
            let logits = (0..6).map(|j| f64::from(j * j % 5) * 0.3 - f64::from(state) * 0.1).collect();
            table
                .logits
                .entries
                .insert((vec![state], prefix), Entry { numbers: logits, first: vec![0.0; 6], second: vec![0.0; 6] });
        }
        table
    }

    /// Two trajectories: free actions of two tokens, and one among allowed ones at temperature 2.
    fn rows() -> Arc<RowSet> {
        let turn = |parent, state: u8, action: Action| TurnLog {
            parent,
            agent: "actor".into(),
            read: vec![3],
            state: vec![state],
            action,
            observation: vec![9],
            ..TurnLog::default()
        };
        let among = Action {
            temperature: 2.0,
            ..Action::given_among(vec![2, 5], &Trie::new([vec![2, 5], vec![4, 5], vec![3, 5]])).unwrap()
        };
        let turns =
            vec![turn(None, 1, Action::given(vec![2, 5])), turn(Some(0), 2, among), turn(None, 1, Action::given(vec![4]))];
        let won = End::Terminated { success: true };
        let leaves = [1, 2].map(|t| LeafLog { turn: Some(t), end: won.clone(), seed: 0 }).to_vec();
        let group = GroupLog { task_name: "task".into(), turns, leaves, ..GroupLog::default() };
        let batch = Batch::from_groups(vec![group], NonFinite::Refuse).unwrap();
        Arc::new(RowSet::from_credit(&batch, &[Credit::per_turn([1.0, -2.0, 0.5])], None))
    }

    fn head(name: &str) -> HeadSpec {
        HeadSpec { name: name.into(), detach_trunk: false, zero_init: true }
    }

    /// `L = Σ ½ (h − advantage)²`.
    #[derive(Debug, Serialize, Deserialize)]
    struct Fit {}
    #[typetag::serde(name = "tabular-test-fit")]
    impl Objective for Fit {
        fn columns(&self) -> Vec<DiffColumn> {
            vec![DiffColumn::Head("v".into())]
        }
        fn loss(&self, rows: &Rows<'_>, out: &Columns, _: &Totals, _: &Now) -> f64 {
            let target = rows.gather("advantage").unwrap();
            out.get(&self.columns()[0]).iter().zip(target).map(|(h, y)| 0.5 * f64::from(h - y).powi(2)).sum()
        }
        fn gradients(&self, rows: &Rows<'_>, out: &Columns, _: &Totals, _: &Now, grad: &mut Columns) -> Sums {
            let target = rows.gather("advantage").unwrap();
            let (h, grad) = (out.get(&self.columns()[0]), grad.get_mut(&self.columns()[0]));
            (0..h.len()).for_each(|i| grad[i] += h[i] - target[i]);
            Sums::default()
        }
    }

    fn loss(table: &mut Table, rows: &RowSet) -> f64 {
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let at = table.distributions(rows, &picked).unwrap();
        let out = table.columns_of(&Both {}.columns(), &at).unwrap();
        Both {}.loss(&Rows::new(rows, &picked), &out, &rows.totals(&picked), &Now::default())
    }

    fn gradient(max_tokens: usize) -> BTreeMap<Place, Vec<f64>> {
        let rows = rows();
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let mut table = table();
        let part = Part { rows: rows.clone(), picked: &picked, totals: rows.totals(&picked), objective: &Both {}, scale: 1.0 };
        table.forward_backward(&[part], max_tokens, &Now::default()).unwrap();
        table.logits.gradient
    }

    #[test]
    fn the_gradient_is_exact() {
        let rows = rows();
        let exact = gradient(1000);
        assert_eq!(exact.len(), 3);
        for (place, row) in &exact {
            for (j, g) in row.iter().enumerate() {
                let h = 1e-3;
                let at = |x: f64| {
                    let mut moved = table();
                    moved.logits.entries.get_mut(place).unwrap().numbers[j] += x;
                    loss(&mut moved, &rows)
                };
                let numeric = (at(h) - at(-h)) / (2.0 * h);
                // columns are f32: rounding 1e-7 over 2h = 2e-3
                assert!((numeric - g).abs() < 5e-4, "{place:?} {j}: {g} is not {numeric}");
            }
        }
    }

    #[test]
    fn micro_batches_change_the_gradient_by_rounding_only() {
        let (whole, cut) = (gradient(1000), gradient(1));
        let flat = |g: &BTreeMap<Place, Vec<f64>>| g.values().flatten().copied().collect::<Vec<f64>>();
        let (whole, cut) = (flat(&whole), flat(&cut));
        let norm = whole.iter().map(|x| x * x).sum::<f64>().sqrt();
        let distance = whole.iter().zip(&cut).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        assert!(distance / norm <= 1e-6);
    }

    #[test]
    fn sampled_log_probabilities_are_those_of_scoring() {
        let mut table = table();
        let session = table.open().unwrap();
        let trie = Trie::new([vec![2, 3, 5], vec![2, 4, 5], vec![3, 5]]);
        for (n, allowed) in [(0, Allowed::Free), (1, Allowed::OneOf(&trie)), (2, Allowed::OneOf(&trie))] {
            let work = Continuation {
                session,
                feed: &[3],
                state_key: &[1],
                stop: 5,
                max_tokens: 4,
                allowed,
                temperature: 0.7,
                key: Seeds(n).key("test", Draw::default()),
            };
            let action = table.sample(&[work]).unwrap().remove(0);
            let turn =
                TurnLog { agent: "actor".into(), read: vec![3], state: vec![1], action: action.clone(), ..TurnLog::default() };
            let leaf = LeafLog { turn: Some(0), end: End::Terminated { success: true }, seed: 0 };
            let group = GroupLog { task_name: "t".into(), turns: vec![turn], leaves: vec![leaf], ..GroupLog::default() };
            let batch = Batch::from_groups(vec![group], NonFinite::Refuse).unwrap();
            let rows = RowSet::from_credit(&batch, &[Credit::per_turn([1.0])], None);
            let request = ScoreRequest { columns: vec![DiffColumn::Logprob, DiffColumn::Entropy], ..ScoreRequest::default() };
            let scored = table.score(&rows, &request).unwrap();
            let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-5);
            assert!(close(&scored.columns[0], &action.logprob.unwrap()) && close(&scored.columns[1], &action.entropy.unwrap()));
        }
    }

    #[test]
    fn a_saved_table_continues_to_the_bit() {
        let rows = rows();
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let step =
            OptimStep { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01, clip_norm: Some(0.5) };
        let train = |table: &mut Table| {
            let part =
                Part { rows: rows.clone(), picked: &picked, totals: rows.totals(&picked), objective: &Both {}, scale: 1.0 };
            table.forward_backward(&[part], 100, &Now::default()).unwrap();
            table.optim_step(&step).unwrap()
        };
        let mut straight = table();
        train(&mut straight);
        let saved = straight.save().unwrap();
        train(&mut straight);
        let mut resumed = Table::new(WordTokenizer::new(["a", "b", "c", "end"]));
        resumed.load(&saved).unwrap();
        train(&mut resumed);
        assert_eq!(resumed.save().unwrap(), straight.save().unwrap());
        assert!(resumed.load(&saved[..saved.len() / 2]).is_err());
        assert!(Table::new(WordTokenizer::new(["other"])).load(&saved).is_err());
    }

    #[test]
    fn training_moves_towards_rewarded_actions() {
        let mut table = table();
        let rows = rows();
        let before = loss(&mut table, &rows);
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let step = OptimStep { learning_rate: 0.05, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };
        for _ in 0..20 {
            let part =
                Part { rows: rows.clone(), picked: &picked, totals: rows.totals(&picked), objective: &Both {}, scale: 1.0 };
            table.forward_backward(&[part], 100, &Now::default()).unwrap();
            table.optim_step(&step).unwrap();
        }
        assert!(loss(&mut table, &rows) < before - 0.1);
    }

    const ADAM: OptimStep =
        OptimStep { learning_rate: 0.05, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };

    fn fit(table: &mut Table, rows: &Arc<RowSet>) {
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let part = Part { rows: rows.clone(), picked: &picked, totals: rows.totals(&picked), objective: &Fit {}, scale: 1.0 };
        table.forward_backward(&[part], 100, &Now::default()).unwrap();
    }

    fn values(table: &mut Table, rows: &RowSet) -> Vec<f32> {
        let request = ScoreRequest { columns: Fit {}.columns(), ..ScoreRequest::default() };
        table.score(rows, &request).unwrap().columns.remove(0)
    }

    #[test]
    fn a_head_learns_the_mean_of_its_targets_at_each_place_and_moves_no_logit() {
        let (mut table, rows) = (table(), rows());
        table.add_head(head("v")).unwrap();
        assert!(table.columns().contains(&DiffColumn::Head("v".into())));
        assert_eq!(values(&mut table, &rows), [0.0; 4]);
        // Sampled: state 1 at its start (1) and after "a" (1); state 2 at its start (−2); state 1 again (0.5).
        fit(&mut table, &rows);
        let gradient = &table.heads["v"].gradient;
        assert_eq!(gradient[&(vec![1], vec![])], [-1.5]);
        assert_eq!(gradient[&(vec![2], vec![])], [2.0]);
        let logits = table.logits.entries.clone();
        for _ in 0..400 {
            table.optim_step(&ADAM).unwrap();
            fit(&mut table, &rows);
        }
        for (h, y) in values(&mut table, &rows).iter().zip([0.75, 1.0, -2.0, 0.75]) {
            assert!((h - y).abs() < 1e-2, "{:?}", values(&mut table, &rows));
        }
        assert_eq!(table.logits.entries, logits);
    }

    #[test]
    fn after_the_end_a_head_is_read_at_the_last_state_and_the_whole_action() {
        let (mut table, rows) = (table(), rows());
        table.add_head(head("v")).unwrap();
        let entry = Entry { numbers: vec![0.25], first: vec![0.0], second: vec![0.0] };
        table.heads.get_mut("v").unwrap().entries.insert((vec![1], vec![4]), entry);
        let request = ScoreRequest { ends: vec!["v".into()], ..ScoreRequest::default() };
        assert_eq!(table.score(&rows, &request).unwrap().ends, [[0.0, 0.25]]);
    }

    #[test]
    fn heads_are_saved_added_and_kept() {
        let (mut table, rows) = (table(), rows());
        table.add_head(head("v")).unwrap();
        fit(&mut table, &rows);
        table.optim_step(&ADAM).unwrap();
        let saved = table.save().unwrap();
        let mut other = Table::new(WordTokenizer::new(["a", "b", "c", "end"]));
        other.add_head(head("w")).unwrap();
        other.load(&saved).unwrap();
        assert_eq!(values(&mut other, &rows), values(&mut table, &rows));
        assert_eq!(other.heads.keys().collect::<Vec<_>>(), ["v", "w"]);
        let mut copy = table.copy().unwrap();
        assert_eq!(copy.save().unwrap(), saved);
        fit(&mut table, &rows);
        table.optim_step(&ADAM).unwrap();
        let request = ScoreRequest { columns: Fit {}.columns(), ..ScoreRequest::default() };
        assert_ne!(copy.score(&rows, &request).unwrap().columns[0], values(&mut table, &rows));
    }

    #[test]
    fn what_it_does_not_have_is_an_error() {
        let mut table = table();
        assert!(table.fork(Session(99)).is_err());
        let columns = vec![DiffColumn::Head("v".into())];
        assert!(table.score(&rows(), &ScoreRequest { columns, ..ScoreRequest::default() }).is_err());
        assert!(table.score(&rows(), &ScoreRequest { ends: vec!["v".into()], ..ScoreRequest::default() }).is_err());
        assert!(table.score(&rows(), &ScoreRequest { hidden: true, ..ScoreRequest::default() }).is_err());
        table.add_head(head("v")).unwrap();
        assert!(table.add_head(head("v")).is_err());
    }
}
