//! A softmax table: logits per state and action prefix, with exact gradients.
//!
//! `π(a_i | s, a_<i) = softmax(θ[s, a_<i] / T)` over the allowed tokens; `∂log π(a)/∂θ_j = (1[j = a] − π_j)/T`,
//! `∂H/∂θ_j = −π_j (log π_j + H)/T`.
//!
//! The state is the environment's exact state key, which continuations and rows carry; it passes through the same calls
//! as a transformer. A row of the table exists once it was trained; before, it is uniform. AdamW (Loshchilov and Hutter
//! 2019, arXiv 1711.05101) keeps its moments per row, in `f64`.

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

/// Logits of one state and prefix, with the optimiser's moments.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Entry {
    logits: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

/// Where an entry stands: the state key, then the tokens of the action so far.
type Place = (Vec<u8>, Vec<u32>);

/// What is saved.
#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    vocabulary: Vec<String>,
    version: u64,
    entries: Vec<(Place, Entry)>,
}
const FORMAT: u32 = 1;

/// A live table.
#[derive(Clone)]
struct Table {
    tokenizer: Arc<WordTokenizer>,
    entries: BTreeMap<Place, Entry>,
    gradient: BTreeMap<Place, Vec<f64>>,
    version: u64,
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
            tokenizer: Arc::new(tokenizer),
            entries: BTreeMap::new(),
            gradient: BTreeMap::new(),
            version: 0,
            next: 0,
            open: std::collections::BTreeSet::new(),
        }
    }

    fn vocab(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    /// Logits over the vocabulary.
    fn logits(&self, place: &Place) -> Vec<f32> {
        self.entries.get(place).map_or_else(|| vec![0.0; self.vocab()], |e| e.logits.iter().map(|x| *x as f32).collect())
    }

    /// The distribution that trained token `i` of row `r` was drawn from, now.
    fn at(&self, rows: &RowSet, r: usize, turn: &RowTurn, i: usize) -> Result<At, PolicyError> {
        let tokens = rows.tokens_of(r);
        let place = (rows.state_bytes(turn).to_vec(), tokens[turn.action_start..rows.at[i]].to_vec());
        let temperature = if turn.temperature > 0.0 { f64::from(turn.temperature) } else { 1.0 };
        let zeros = Vec::new();
        let logits = self.entries.get(&place).map_or(&zeros, |e| &e.logits);
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
}

/// A column over distributions.
fn read(column: &DiffColumn, at: &[At]) -> Result<Vec<f32>, PolicyError> {
    match column {
        DiffColumn::Logprob => Ok(at.iter().map(|a| a.probability[a.taken].1.ln() as f32).collect()),
        DiffColumn::Entropy => Ok(at.iter().map(|a| a.entropy as f32).collect()),
        other => Err(PolicyError::Unsupported(format!("a tabular policy has no {other}"))),
    }
}

fn columns_of(wanted: &[DiffColumn], at: &[At]) -> Result<Columns, PolicyError> {
    let columns: Vec<_> = wanted.iter().map(|c| Ok((c.clone(), read(c, at)?))).collect::<Result<_, PolicyError>>()?;
    Ok(Columns::new(columns))
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
        self.entries.values().map(|e| e.logits.len()).sum()
    }
    fn columns(&self) -> Vec<DiffColumn> {
        vec![DiffColumn::Logprob, DiffColumn::Entropy]
    }
    fn add_head(&mut self, spec: HeadSpec) -> Result<(), PolicyError> {
        Err(PolicyError::Unsupported(format!("a tabular policy has no trunk for head `{}`; use a tabular critic", spec.name)))
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
        if request.hidden || !request.ends.is_empty() {
            return Err(PolicyError::Unsupported("a tabular policy has neither hidden vectors nor heads".into()));
        }
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let at = self.distributions(rows, &picked)?;
        let columns = request.columns.iter().map(|c| read(c, &at)).collect::<Result<_, _>>()?;
        Ok(Scored { columns, ..Scored::default() })
    }
    fn forward_backward(&mut self, parts: &[Part<'_>], micro_batch_tokens: usize, now: &Now) -> Result<Vec<Sums>, PolicyError> {
        let drive = Drive::new(parts, micro_batch_tokens, now, |micro, wanted| {
            columns_of(wanted, &self.distributions(&micro.rows, &micro.picked)?)
        })?;
        let mut gradient = std::mem::take(&mut self.gradient);
        let mut statistics = Vec::new();
        for (m, micro) in drive.micro().iter().enumerate() {
            let at = self.distributions(&micro.rows, &micro.picked)?;
            let (grad, sums) = drive.coefficients(m, &columns_of(&drive.columns(m), &at)?)?;
            statistics.push(sums);
            for (name, c) in grad.iter() {
                for (a, c) in at.iter().zip(c) {
                    let c = f64::from(*c) / a.temperature;
                    if c == 0.0 {
                        continue;
                    }
                    let row = gradient.entry(a.place.clone()).or_insert_with(|| vec![0.0; self.vocab()]);
                    for (k, (token, p)) in a.probability.iter().enumerate() {
                        row[*token] += c * match name {
                            DiffColumn::Logprob => f64::from(u8::from(k == a.taken)) - p,
                            _ if *p > 0.0 => -p * (p.ln() + a.entropy),
                            _ => 0.0,
                        };
                    }
                }
            }
        }
        self.gradient = gradient;
        Ok(drive.merge(statistics))
    }
    fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError> {
        let gradient = std::mem::take(&mut self.gradient);
        let norm = gradient.values().flatten().map(|g| g * g).sum::<f64>().sqrt();
        if !norm.is_finite() {
            return Ok(StepReport { gradient_norm: norm, skipped: true });
        }
        let scale = step.clip_norm.filter(|max| norm > *max).map_or(1.0, |max| max / norm);
        self.version += 1;
        let t = self.version as f64;
        let (bias1, bias2) = (1.0 - step.beta1.powf(t), 1.0 - step.beta2.powf(t));
        let vocab = self.vocab();
        for place in gradient.keys() {
            self.entries.entry(place.clone()).or_insert_with(|| Entry {
                logits: vec![0.0; vocab],
                first: vec![0.0; vocab],
                second: vec![0.0; vocab],
            });
        }
        let zeros = vec![0.0; vocab];
        // Rows without a gradient still follow their momentum, as every parameter of a network does.
        for (place, entry) in &mut self.entries {
            let g = gradient.get(place).unwrap_or(&zeros);
            for j in 0..vocab {
                let g = g[j] * scale;
                entry.first[j] = step.beta1 * entry.first[j] + (1.0 - step.beta1) * g;
                entry.second[j] = step.beta2 * entry.second[j] + (1.0 - step.beta2) * g * g;
                let direction = (entry.first[j] / bias1) / ((entry.second[j] / bias2).sqrt() + step.epsilon);
                entry.logits[j] -= step.learning_rate * (direction + step.weight_decay * entry.logits[j]);
            }
        }
        Ok(StepReport { gradient_norm: norm, skipped: false })
    }
    fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
        let mut copy = self.clone();
        copy.open.clear();
        copy.gradient.clear();
        Ok(Box::new(copy))
    }
    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        let saved = Saved {
            format: FORMAT,
            vocabulary: self.tokenizer.words().to_vec(),
            version: self.version,
            entries: self.entries.iter().map(|(p, e)| (p.clone(), e.clone())).collect(),
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
        let fits = |e: &Entry| [&e.logits, &e.first, &e.second].iter().all(|v| v.len() == self.vocab());
        if !saved.entries.iter().all(|(_, e)| fits(e)) {
            return Err(PolicyError::Load("a row of the table has another length than the vocabulary".into()));
        }
        self.version = saved.version;
        self.entries = saved.entries.into_iter().collect();
        self.gradient.clear();
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
            table.entries.insert((vec![state], prefix), Entry { logits, first: vec![0.0; 6], second: vec![0.0; 6] });
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

    fn loss(table: &mut Table, rows: &RowSet) -> f64 {
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let at = table.distributions(rows, &picked).unwrap();
        let out = columns_of(&Both {}.columns(), &at).unwrap();
        Both {}.loss(&Rows::new(rows, &picked), &out, &rows.totals(&picked), &Now::default())
    }

    fn gradient(max_tokens: usize) -> BTreeMap<Place, Vec<f64>> {
        let rows = rows();
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let mut table = table();
        let part = Part { rows: rows.clone(), picked: &picked, totals: rows.totals(&picked), objective: &Both {}, scale: 1.0 };
        table.forward_backward(&[part], max_tokens, &Now::default()).unwrap();
        table.gradient
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
                    moved.entries.get_mut(place).unwrap().logits[j] += x;
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

    #[test]
    fn what_it_does_not_have_is_an_error() {
        let mut table = table();
        assert!(table.fork(Session(99)).is_err());
        assert!(table.add_head(HeadSpec { name: "v".into(), detach_trunk: false, zero_init: true }).is_err());
        let request = ScoreRequest { columns: vec![DiffColumn::Head("v".into())], ..ScoreRequest::default() };
        assert!(table.score(&rows(), &request).is_err());
    }
}
