//! Row sets for tests, and the finite-difference check that every objective has to pass.

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
use ascribe_core::objective::{Aggregation, Columns, DiffColumn, Sums};
use ascribe_core::rows::column;
use ascribe_core::{Batch, Column, Credit, Draw, End, Now, Objective, Rng, RowSet, Rows, Seeds, Totals};

pub(crate) const AGGREGATIONS: [Aggregation; 4] =
    [Aggregation::TokenMean, Aggregation::SeqMeanTokenSum, Aggregation::SeqMeanTokenMean, Aggregation::SeqMeanTokenSumNorm];

/// Rows with what a policy's forward pass gave for them.
pub(crate) struct Case {
    set: RowSet,
    out: Vec<(DiffColumn, Vec<f32>)>,
}

impl Case {
    /// Rows of tokens (log-probability, old log-probability, advantage) of weight 1; two turns per row where it has
    /// more than one token.
    pub(crate) fn new(rows: &[&[(f32, f32, f32)]]) -> Self {
        Self::weighted(rows, |_| 1.0)
    }

    fn weighted(rows: &[&[(f32, f32, f32)]], weight: impl Fn(usize) -> f32) -> Self {
        let mut log = GroupLog { task_name: "task".into(), ..GroupLog::default() };
        let mut credit = Credit::default();
        for row in rows {
            let cut = row.len().div_ceil(2);
            for (t, part) in [&row[..cut], &row[cut..]].into_iter().enumerate().filter(|(_, p)| !p.is_empty()) {
                let parent = (t > 0).then(|| log.turns.len() - 1);
                let action = Action { logprob: Some(part.iter().map(|x| x.1).collect()), ..Action::given(vec![0; part.len()]) };
                credit.weight.push(weight(credit.weight.len()));
                credit.turns.push(Some(0.0));
                credit.tokens.extend(part.iter().map(|x| Some(x.2)));
                log.turns.push(TurnLog { parent, agent: "actor".into(), read: vec![1], action, ..TurnLog::default() });
            }
            log.leaves.push(LeafLog { turn: Some(log.turns.len() - 1), end: End::Terminated { success: true }, seed: 0 });
        }
        let batch = Batch::from_groups(vec![log], NonFinite::Refuse).unwrap();
        let mut set = RowSet::from_credit(&batch, &[credit], None);
        let old = set.columns[column::BEHAVIOR_LOGPROB].clone();
        set.columns.insert(column::OLD_LOGPROB.into(), old);
        let logprob = rows.iter().flat_map(|r| r.iter().map(|x| x.0)).collect();
        Self { set, out: vec![(DiffColumn::Logprob, logprob)] }
    }

    /// What a forward pass gave in another column.
    pub(crate) fn out(mut self, column: DiffColumn, numbers: Vec<f32>) -> Self {
        self.out.push((column, numbers));
        self
    }

    /// A column of the rows.
    pub(crate) fn column(mut self, name: &str, numbers: impl IntoIterator<Item = Option<f32>>) -> Self {
        let column: Column = numbers.into_iter().collect();
        assert_eq!(column.len(), self.set.n_trained());
        self.set.columns.insert(name.into(), column);
        self
    }

    /// Rows that belong together, two by two.
    pub(crate) fn pairs(mut self) -> Self {
        let n = self.set.len() / 2 * 2;
        for (r, row) in self.set.rows[..n].iter_mut().enumerate() {
            row.bundle = Some(r as u32 / 2);
        }
        self
    }

    /// All rows.
    fn picked(&self) -> Vec<u32> {
        (0..self.set.len() as u32).collect()
    }

    pub(crate) fn totals(&self) -> Totals {
        self.set.totals(&self.picked())
    }

    /// The columns that an objective differentiates.
    fn columns(&self, objective: &dyn Objective) -> Columns {
        let find = |name: DiffColumn| {
            let numbers = self.out.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} needs its numbers here"));
            numbers.clone()
        };
        Columns::new(objective.columns().into_iter().map(find))
    }

    pub(crate) fn loss(&self, objective: &dyn Objective) -> f64 {
        let rows = self.picked();
        objective.loss(&Rows::new(&self.set, &rows), &self.columns(objective), &self.totals(), &Now::default())
    }

    pub(crate) fn check_loss(&self, objective: &dyn Objective, want: f64) {
        let got = self.loss(objective);
        assert!((got - want).abs() < 1e-6, "{objective:?}: {got}, not {want}");
    }

    /// Coefficients and statistics.
    pub(crate) fn gradients(&self, objective: &dyn Objective) -> (Columns, Sums) {
        let (rows, out) = (self.picked(), self.columns(objective));
        let mut grad = out.zeros_like();
        let sums = objective.gradients(&Rows::new(&self.set, &rows), &out, &self.totals(), &Now::default(), &mut grad);
        (grad, sums)
    }

    /// A statistic's mean.
    pub(crate) fn statistic(&self, objective: &dyn Objective, name: &str) -> f64 {
        let sums = self.gradients(objective).1.0;
        let sum = sums.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no `{name}` in {sums:?}"));
        sum.sum / sum.count
    }
}

/// Coefficients on log-probabilities.
pub(crate) fn gradient(objective: &dyn Objective, rows: &[&[(f32, f32, f32)]]) -> Vec<f32> {
    Case::new(rows).gradients(objective).0.logprob().to_vec()
}

/// The loss of some rows.
pub(crate) fn check_loss(objective: &dyn Objective, rows: &[&[(f32, f32, f32)]], want: f64) {
    Case::new(rows).check_loss(objective, want);
}

/// Rows of uneven length, with uneven weights, ratios within and beyond clip ranges, and advantages of both signs;
/// numbers for every kind of column, targets that have gaps, and pairs.
fn random() -> Case {
    let mut rng = Seeds(11).rng("finite-difference", Draw::default());
    let rows: Vec<Vec<(f32, f32, f32)>> = [1, 4, 2, 7, 3]
        .into_iter()
        .map(|n| {
            (0..n)
                .map(|_| {
                    let logprob = -(rng.unit() as f32) * 3.0;
                    (logprob, logprob + rng.normal() as f32, rng.normal() as f32)
                })
                .collect()
        })
        .collect();
    let rows: Vec<&[(f32, f32, f32)]> = rows.iter().map(Vec::as_slice).collect();
    let n = rows.iter().map(|r| r.len()).sum();
    let numbers = |rng: &mut Rng| (0..n).map(|_| rng.normal() as f32).collect::<Vec<f32>>();
    let mut case = Case::weighted(&rows, |t| 0.5 + (t % 3) as f32).pairs();
    for column in [DiffColumn::Entropy, DiffColumn::Kl("reference".into()), DiffColumn::Head("value".into())] {
        case = case.out(column, numbers(&mut rng));
    }
    let [reference, value, target] = std::array::from_fn(|_| numbers(&mut rng));
    let reference: Vec<f32> = reference.iter().map(|x| x - 1.5).collect();
    let gaps = target.iter().enumerate().map(|(i, x)| (i % 5 != 2).then_some(*x));
    case.column("signal/reference_logprob", reference.into_iter().map(Some))
        .column("signal/value", value.into_iter().map(Some))
        .column("target/value", gaps)
}

/// Coefficients are the derivative of the documented loss: central differences in every column.
pub(crate) fn check_gradient(objective: &dyn Objective) {
    let case = random();
    let (got, _) = case.gradients(objective);
    for (name, got) in got.iter() {
        assert!(got.iter().any(|g| *g != 0.0), "{objective:?}: nothing on {name}");
        for (i, got) in got.iter().enumerate() {
            // 2^-9 is exact in f32, so the step taken is the step divided by.
            let h = 2f32.powi(-9);
            let at = |step: f32| {
                let mut moved = Case { set: case.set.clone(), out: case.out.clone() };
                let column = moved.out.iter_mut().find(|(n, _)| n == name).map(|(_, x)| &mut x[i]).unwrap();
                *column += step;
                let x = f64::from(*column);
                (moved.loss(objective), x)
            };
            let ((up, x1), (down, x0)) = (at(h), at(-h));
            let numeric = (up - down) / (x1 - x0);
            // central differences of a function with |f'''| ≲ 20: error h²·20/6 ≈ 1e-5, plus f32 rounding of the coefficient
            assert!(
                (numeric - f64::from(*got)).abs() < 1e-4 * (1.0 + numeric.abs()),
                "{objective:?}, {name}, token {i}: {got} is not {numeric}"
            );
        }
    }
}
