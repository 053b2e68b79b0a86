//! Scores of an arm, and what is drawn from them.

use ascribe_core::seed::Rng;

use crate::table::Training;

/// Scores of the runs of one arm, `[runs × tasks]`, at least one of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    n_tasks: usize,
    values: Vec<f64>,
}

impl Scores {
    /// Scores from one row per run.
    ///
    /// # Panics
    /// If there is no run or no task, or rows differ in length. [`Table`](crate::Table) refuses such input with its place.
    pub fn of_rows<R: AsRef<[f64]>>(runs: &[R]) -> Scores {
        let n_tasks = runs.first().map_or(0, |run| run.as_ref().len());
        assert!(n_tasks > 0, "scores need a run and a task");
        assert!(runs.iter().all(|run| run.as_ref().len() == n_tasks), "every run has a score for every task");
        Scores { n_tasks, values: runs.iter().flat_map(|run| run.as_ref()).copied().collect() }
    }

    /// Number of runs.
    pub fn n_runs(&self) -> usize {
        self.values.len() / self.n_tasks
    }

    /// Number of tasks.
    pub fn n_tasks(&self) -> usize {
        self.n_tasks
    }

    /// All scores, runs one after the other, `[runs · tasks]`.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Scores of each run, `[runs]` of `[tasks]`.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.n_tasks)
    }

    /// Scores of one task, `[runs]`.
    pub fn task(&self, task: usize) -> impl Iterator<Item = f64> {
        self.values[task..].iter().step_by(self.n_tasks).copied()
    }

    /// Overwrites these with the drawn scores of `of`.
    pub(crate) fn fill(&mut self, of: &Scores, drawn: &[u32]) {
        for (i, (score, run)) in self.values.iter_mut().zip(drawn).enumerate() {
            *score = of.values[*run as usize * self.n_tasks + i % self.n_tasks];
        }
    }

    /// Draws a run for each score, `[runs · tasks]`, with replacement.
    pub(crate) fn draw(&self, training: Training, rng: &mut Rng, drawn: &mut [u32]) {
        let n = self.n_runs();
        match training {
            Training::PerTask => drawn.iter_mut().for_each(|run| *run = rng.below(n) as u32),
            Training::ForAllTasks => drawn.chunks_exact_mut(self.n_tasks).for_each(|row| row.fill(rng.below(n) as u32)),
        }
    }
}

/// Arithmetic mean.
pub(crate) fn mean(x: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = x.len() as f64;
    x.sum::<f64>() / n
}
