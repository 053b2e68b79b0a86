//! Results: arm × seed × task → score.

use std::collections::BTreeSet;

use crate::error::StudyError;
use crate::scores::{Scores, mean};

/// The numbers that a score can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    low: f64,
    high: f64,
}

impl Range {
    /// Success rates.
    pub const UNIT: Range = Range { low: 0.0, high: 1.0 };
    /// Amounts: norms, tokens, seconds.
    pub const FROM_ZERO: Range = Range { low: 0.0, high: f64::INFINITY };

    /// Scores from `low` to `high`, both included; an end that is infinite bounds nothing.
    ///
    /// # Errors
    /// If `low` is not below `high`.
    pub fn new(low: f64, high: f64) -> Result<Range, StudyError> {
        if low < high {
            Ok(Range { low, high })
        } else {
            Err(StudyError::Setting { what: "the upper end of the range of scores", must: "above the lower one", got: high })
        }
    }

    /// Lower end.
    pub fn low(self) -> f64 {
        self.low
    }

    /// Upper end.
    pub fn high(self) -> f64 {
        self.high
    }

    /// What a score must be, if this is none: `NaN` and infinities are none of any range.
    fn refuses(self, score: f64) -> Option<String> {
        let fits = score.is_finite() && (self.low..=self.high).contains(&score);
        (!fits).then(|| match (self.low.is_finite(), self.high.is_finite()) {
            (false, false) => "finite".into(),
            (true, false) => format!("finite and at least {}", self.low),
            (false, true) => format!("finite and at most {}", self.high),
            (true, true) => format!("in {}..={}", self.low, self.high),
        })
    }
}

/// How training runs and tasks belong together: what is drawn as one when runs are drawn anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Training {
    /// A run was trained once and measured on every task. Its scores rise and fall together and are drawn together.
    ForAllTasks,
    /// Every task had training runs of its own, as in Atari: runs are drawn for each task apart. This is rliable's stratified
    /// bootstrap; where runs were trained for all tasks, its intervals are too narrow.
    PerTask,
}

/// What one seed of an arm came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Run<T> {
    /// The seed. Runs of different arms with the same seed are a pair.
    pub seed: u64,
    /// Its result, or why there is none. A run that failed is given, not left out: it counts against the arm in every table.
    pub result: Result<T, String>,
}

/// One way to train, and its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm<T> {
    /// Its name.
    pub name: String,
    /// Its runs, in any order.
    pub runs: Vec<Run<T>>,
}

/// A run without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What broke.
    pub reason: String,
}

/// An arm of a [`Table`].
#[derive(Clone, Debug, PartialEq)]
pub struct ArmScores {
    /// Its name.
    pub name: String,
    /// Seeds of the runs that finished, ascending, `[runs]`.
    pub seeds: Vec<u64>,
    /// Their scores, `[runs × tasks]`; `None` if no run finished.
    pub scores: Option<Scores>,
    /// Runs that did not finish, by seed.
    pub failures: Vec<Failure>,
}

/// Scores of arms on the same tasks: shapes agree, names differ, numbers are finite and in range.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    tasks: Vec<String>,
    range: Range,
    training: Training,
    arms: Vec<ArmScores>,
}

impl Table {
    /// A table of results.
    ///
    /// * `tasks`: names, `[tasks]`.
    /// * `arms`: each run with its scores, `[tasks]`, or the reason why it failed.
    ///
    /// Runs are put in order of their seeds, so that the order in which they finished cannot show.
    ///
    /// # Errors
    /// The first name that is missing or given twice, seed that is given twice, row of another length, and score that is not
    /// finite or out of range; no task, no arm, an arm without a run.
    pub fn new(tasks: Vec<String>, range: Range, training: Training, arms: Vec<Arm<Vec<f64>>>) -> Result<Table, StudyError> {
        check_names("task", tasks.iter())?;
        check_arms(&arms)?;
        let arms = arms.into_iter().map(|arm| arm_scores(arm, &tasks, range)).collect::<Result<_, _>>()?;
        Ok(Table { tasks, range, training, arms })
    }

    /// Names of the tasks.
    pub fn tasks(&self) -> &[String] {
        &self.tasks
    }

    /// Range of the scores.
    pub fn range(&self) -> Range {
        self.range
    }

    /// How runs and tasks belong together.
    pub fn training(&self) -> Training {
        self.training
    }

    /// The arms, in the order in which they were given.
    pub fn arms(&self) -> &[ArmScores] {
        &self.arms
    }

    /// The arm of this name.
    ///
    /// # Errors
    /// If there is none; the message names those that exist.
    pub fn arm(&self, name: &str) -> Result<&ArmScores, StudyError> {
        self.arms.iter().find(|arm| arm.name == name).ok_or_else(|| StudyError::Unknown {
            what: "arm",
            name: name.to_string(),
            known: self.arms.iter().map(|arm| arm.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The table in which every run that failed has this score on every task: what remains of a result if failures are not
    /// forgiven.
    ///
    /// # Errors
    /// If the score is out of range.
    pub fn counting_failures_as(&self, score: f64) -> Result<Table, StudyError> {
        let arm = |arm: &ArmScores| Arm {
            name: arm.name.clone(),
            runs: arm
                .finished()
                .map(|(seed, scores)| Run { seed, result: Ok(scores.to_vec()) })
                .chain(arm.failures.iter().map(|f| Run { seed: f.seed, result: Ok(vec![score; self.tasks.len()]) }))
                .collect(),
        };
        Table::new(self.tasks.clone(), self.range, self.training, self.arms.iter().map(arm).collect())
    }
}

impl ArmScores {
    /// Seed and scores of each run that finished.
    pub fn finished(&self) -> impl Iterator<Item = (u64, &[f64])> {
        self.seeds.iter().copied().zip(self.scores.iter().flat_map(Scores::runs))
    }

    /// Mean over tasks of each run that finished, with its seed.
    pub(crate) fn run_means(&self) -> impl Iterator<Item = (u64, f64)> {
        self.finished().map(|(seed, scores)| (seed, mean(scores.iter().copied())))
    }
}

fn arm_scores(arm: Arm<Vec<f64>>, tasks: &[String], range: Range) -> Result<ArmScores, StudyError> {
    let Arm { name, mut runs } = arm;
    runs.sort_by_key(|run| run.seed);
    let (mut seeds, mut rows, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for Run { seed, result } in runs {
        match result {
            Ok(scores) => {
                check_scores(&scores, tasks, range, &name, seed)?;
                seeds.push(seed);
                rows.push(scores);
            }
            Err(reason) => failures.push(Failure { seed, reason }),
        }
    }
    let scores = (!rows.is_empty()).then(|| Scores::of_rows(&rows));
    Ok(ArmScores { name, seeds, scores, failures })
}

/// Whether these are scores of one run.
pub(crate) fn check_scores(scores: &[f64], tasks: &[String], range: Range, arm: &str, seed: u64) -> Result<(), StudyError> {
    if scores.len() != tasks.len() {
        let (got, want) = (scores.len(), tasks.len());
        return Err(StudyError::Ragged { arm: arm.to_string(), seed, what: "scores", got, want, of: "tasks" });
    }
    let check = |(task, score): (&String, &f64)| check_number(range, *score, arm, seed, || format!("the score on task `{task}`"));
    tasks.iter().zip(scores).try_for_each(check)
}

/// Whether this is a number of the range.
pub(crate) fn check_number(
    range: Range,
    got: f64,
    arm: &str,
    seed: u64,
    what: impl FnOnce() -> String,
) -> Result<(), StudyError> {
    match range.refuses(got) {
        None => Ok(()),
        Some(must) => Err(StudyError::Number { arm: arm.to_string(), seed, what: what(), got, must }),
    }
}

/// Whether there are names, each once.
pub(crate) fn check_names<'a>(what: &'static str, names: impl ExactSizeIterator<Item = &'a String>) -> Result<(), StudyError> {
    if names.len() == 0 {
        return Err(StudyError::Empty { what: format!("{what}s") });
    }
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        if name.trim().is_empty() {
            return Err(StudyError::Nameless { what, place: i + 1 });
        }
        if !seen.insert(name) {
            return Err(StudyError::Twice { what: format!("{what} `{name}`") });
        }
    }
    Ok(())
}

/// Whether arms have names, and runs of different seeds.
pub(crate) fn check_arms<T>(arms: &[Arm<T>]) -> Result<(), StudyError> {
    check_names("arm", arms.iter().map(|arm| &arm.name))?;
    for arm in arms {
        if arm.runs.is_empty() {
            return Err(StudyError::Empty { what: format!("runs of arm `{}`", arm.name) });
        }
        let mut seen = BTreeSet::new();
        if let Some(run) = arm.runs.iter().find(|run| !seen.insert(run.seed)) {
            return Err(StudyError::Twice { what: format!("seed {} of arm `{}`", run.seed, arm.name) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bootstrap, Metric, summarise};
    use ascribe_core::seed::Seeds;

    fn arm(name: &str, runs: &[(u64, &[f64])]) -> Arm<Vec<f64>> {
        Arm {
            name: name.into(),
            runs: runs.iter().map(|(seed, scores)| Run { seed: *seed, result: Ok(scores.to_vec()) }).collect(),
        }
    }

    fn table(tasks: &[&str], arms: Vec<Arm<Vec<f64>>>) -> Result<Table, StudyError> {
        Table::new(tasks.iter().map(|t| t.to_string()).collect(), Range::UNIT, Training::ForAllTasks, arms)
    }

    #[test]
    fn the_order_in_which_runs_finished_does_not_show() {
        let one = table(&["a", "b"], vec![arm("x", &[(1, &[0.1, 0.2]), (2, &[0.3, 0.4]), (7, &[0.5, 0.6])])]).unwrap();
        let other = table(&["a", "b"], vec![arm("x", &[(7, &[0.5, 0.6]), (1, &[0.1, 0.2]), (2, &[0.3, 0.4])])]).unwrap();
        assert_eq!(one, other);
        let scores = one.arms()[0].scores.as_ref().unwrap();
        assert_eq!((scores.n_runs(), scores.n_tasks(), scores.task(1).collect::<Vec<_>>()), (3, 2, vec![0.2, 0.4, 0.6]));
    }

    #[test]
    fn odd_tables_are_refused_with_their_place() {
        let refused = |tasks: &[&str], arms| table(tasks, arms).unwrap_err().to_string();
        let good = || arm("x", &[(1, &[0.5])]);
        assert_eq!(refused(&[], vec![good()]), "tasks: at least one is needed");
        assert_eq!(refused(&["a"], vec![]), "arms: at least one is needed");
        assert_eq!(refused(&["a"], vec![arm("x", &[])]), "runs of arm `x`: at least one is needed");
        assert_eq!(refused(&["a", " "], vec![good()]), "task number 2 has no name");
        assert_eq!(refused(&["a"], vec![arm("", &[(1, &[0.5])])]), "arm number 1 has no name");
        let twice = "is given twice: one of the two would be counted as the other";
        assert_eq!(refused(&["a", "a"], vec![good()]), format!("task `a` {twice}"));
        assert_eq!(refused(&["a"], vec![good(), good()]), format!("arm `x` {twice}"));
        assert_eq!(refused(&["a"], vec![arm("x", &[(3, &[0.5]), (3, &[0.6])])]), format!("seed 3 of arm `x` {twice}"));
        assert_eq!(refused(&["a", "b"], vec![good()]), "arm `x`, seed 1: 1 scores where there are 2 tasks");
        let number = refused(&["a"], vec![arm("x", &[(1, &[1.5])])]);
        assert!(number.starts_with("arm `x`, seed 1: the score on task `a` is 1.5, and must be in 0..=1"), "{number}");
        for broken in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let unbounded = Range::new(f64::NEG_INFINITY, f64::INFINITY).unwrap();
            let refused = Table::new(vec!["a".into()], unbounded, Training::PerTask, vec![arm("x", &[(1, &[broken])])]);
            assert!(refused.unwrap_err().to_string().contains("must be finite; a run that broke is given as failed"));
        }
        assert!(Range::new(1.0, 1.0).is_err() && Range::new(f64::NAN, 1.0).is_err());
    }

    #[test]
    fn an_arm_of_failures_stays_in_the_table() {
        let broken = Arm { name: "x".into(), runs: vec![Run { seed: 1, result: Err("killed".into()) }] };
        let table = table(&["a"], vec![broken]).unwrap();
        let summary = summarise(&table, &[Metric::Iqm], &Bootstrap::of_curves(Seeds(0))).remove(0);
        assert_eq!((summary.n_runs, summary.n_failed, summary.estimates), (0, 1, vec![(Metric::Iqm, None)]));
        let counted = table.counting_failures_as(0.0).unwrap();
        assert_eq!(counted.arms()[0].scores, Some(Scores::of_rows(&[[0.0]])));
        assert!(table.counting_failures_as(-1.0).is_err());
    }
}
