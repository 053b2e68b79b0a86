//! What clocks and machines say of a grid's runs.
//!
//! Nothing of it is a result, and nothing of it is the same twice: it is kept apart from what is compared byte by byte.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ascribe_run::folder;

use super::GridError;
use super::folder::GridFolder;
use super::plan::{Cell, Plan};
use super::results::Results;
use crate::curves::{Axis, Curves, Point};

/// What clocks and machines say of a grid's runs.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Scores of every evaluation along [`Axis::Seconds`]: seconds of updates until then, evaluations left out. A run whose clock has
    /// gaps is one that failed here.
    pub curves: Curves,
    /// Arm and seed of each run whose clock has gaps, and where.
    pub gaps: Vec<(String, u64, String)>,
    /// Seconds of each arm, in the plan's order.
    pub arms: Vec<(String, ArmClock)>,
    /// Where the reported runs and those that tuned were run.
    pub machines: Vec<Machine>,
}

/// The clock of an arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmClock {
    /// Reported runs that finished.
    pub runs: usize,
    /// Seconds of a run, evaluations included: mean over those runs; 0 without any.
    pub seconds: f64,
    /// Seconds of all tuning runs together.
    pub tuning_seconds: f64,
}

/// A machine with a program that ran cells on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The device.
    pub device: String,
    /// Version of Ascribe.
    pub version: String,
    /// Compiler that built it.
    pub rustc: String,
    /// Commit of the repository that the experiment lies in, with `+` where files differed from it.
    pub commit: Option<String>,
    /// Threads of runs.
    pub threads: BTreeSet<usize>,
    /// How often a run was begun or taken up again.
    pub starts: usize,
    /// Date of the first start (UTC).
    pub first: String,
    /// Date of the last start.
    pub last: String,
}

impl Clock {
    /// Gathers clocks and machines.
    ///
    /// # Errors
    /// If records are damaged.
    pub fn read(plan: &Plan, folder: &GridFolder, cells: &[Cell], results: &Results) -> Result<Clock, GridError> {
        let reported: BTreeMap<(&str, u64), PathBuf> = cells
            .iter()
            .filter(|cell| cell.tries.is_none())
            .map(|cell| ((cell.arm.as_str(), cell.seed), folder.run(cell)))
            .collect();
        let mut gaps = Vec::new();
        let seconds = |arm: &str, seed: u64, points: &[Point]| {
            let run = reported.get(&(arm, seed)).ok_or("its cell is not planned any more")?;
            // The first axis of results is updates.
            seconds_until(run, points.iter().map(|point| point.spent[0]))
                .inspect_err(|why| gaps.push((arm.to_string(), seed, why.clone())))
        };
        let curves = results.curves.along(Axis::Seconds, seconds)?;
        let mut arms = Vec::new();
        let mut machines = BTreeMap::new();
        for arm in &plan.arms {
            let mut clock = ArmClock::default();
            for cell in cells.iter().filter(|cell| cell.arm == arm.name) {
                let run = folder.run(cell);
                if let Ok(provenance) = folder::provenance(&run) {
                    provenance.starts.into_iter().for_each(|start| add(&mut machines, start));
                }
                let Ok(Some(result)) = folder::result(&run) else { continue };
                let seconds: f64 = result.seconds.iter().map(|(_, seconds)| seconds).sum();
                match cell.tries {
                    Some(_) => clock.tuning_seconds += seconds,
                    None => {
                        clock.runs += 1;
                        clock.seconds += seconds;
                    }
                }
            }
            clock.seconds /= clock.runs.max(1) as f64;
            arms.push((arm.name.clone(), clock));
        }
        Ok(Clock { curves, gaps, arms, machines: machines.into_values().collect() })
    }
}

/// Seconds of a run's updates until each of these.
fn seconds_until(run: &Path, updates: impl Iterator<Item = f64>) -> Result<Vec<f64>, String> {
    let lines = folder::timing(run).map_err(|e| e.to_string())?;
    let mut until = vec![0.0];
    for (i, line) in lines.iter().enumerate() {
        if line.update as usize != i + 1 || !line.seconds.is_finite() {
            return Err(format!("its clock has a gap before update {}", i + 1));
        }
        until.push(until[i] + line.seconds);
    }
    let at = |update: f64| until.get(update as usize).copied().ok_or_else(|| format!("its clock ends before update {update}"));
    updates.map(at).collect()
}

fn add(machines: &mut BTreeMap<[String; 5], Machine>, start: folder::Start) {
    let commit = start.commit.clone().unwrap_or_default();
    let key = [&start.host, &start.device, &start.version, &start.rustc, &commit].map(String::clone);
    let machine = machines.entry(key).or_insert_with(|| Machine {
        host: start.host,
        device: start.device,
        version: start.version,
        rustc: start.rustc,
        commit: start.commit,
        first: start.date.clone(),
        last: start.date.clone(),
        ..Machine::default()
    });
    machine.threads.insert(start.threads);
    machine.starts += 1;
    // Dates of one form are in order as texts.
    machine.first = machine.first.clone().min(start.date.clone());
    machine.last = machine.last.clone().max(start.date);
}
