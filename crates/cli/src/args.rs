//! What can be said on the command line.

use std::path::PathBuf;

use ascribe_core::experiment::MOST_SAMPLES;
use ascribe_core::registry::Kind;
use ascribe_report::view::Updates;
use ascribe_study::Axis;
use ascribe_study::grid::check_option;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Credit assignment in agentic reinforcement learning: which turns earned the outcome.
#[derive(Debug, Parser)]
#[command(version, about, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an experiment, or go on with it where it was stopped
    Run(RunArgs),
    /// Go on with a run
    Resume(ResumeArgs),
    /// Measure what a run has learned
    Eval(EvalArgs),
    /// Run a grid of experiments, several seeds of every arm, and compare what comes of them
    Grid(GridArgs),
    /// Show a run's trajectories, turn by turn with their credit, as one HTML page
    View(ViewArgs),
    /// Check an experiment without running it: its graph, what its plugins need, what replaces what
    Check(CheckArgs),
    /// List the plugins that this binary links
    Plugins(PluginsArgs),
    /// Explain a plugin, a metric, an alarm, or a key of an experiment
    Explain(ExplainArgs),
    /// Hold estimators, transforms, environments and critics to what they must keep and to what they claim
    Verify(VerifyArgs),
    /// Begin a plugin of your own: a file that compiles, is tested and verified, to be filled in
    New(NewArgs),
    /// Print the JSON schema of experiments, for editors
    Schema(SchemaArgs),
}

/// An experiment and what is changed in it.
#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    /// The experiment
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Settings that change it, for example estimator=grpo update.learning_rate=0.001
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// `run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub experiment: ExperimentArgs,
    /// Move a run that is already there aside, and start anew
    #[arg(long)]
    pub fresh: bool,
    /// Threads; 0 is one per core. Never changes a result
    #[arg(long, value_name = "N")]
    pub threads: Option<u64>,
    /// Seed of everything random
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl RunArgs {
    /// The settings, those of options included.
    pub fn settings(&self) -> Vec<String> {
        let seed = self.seed.map(|n| format!("seed={n}"));
        let threads = self.threads.map(|n| format!("run.threads={n}"));
        self.experiment.settings.iter().cloned().chain(seed).chain(threads).collect()
    }
}

/// `resume`
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The run's folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Settings that change no result or make the run longer, for example run.threads=4, updates=200, or
    /// phase.NAME.updates=200 where phases say their own
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// `eval`
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The run's folder
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Split to measure on; all but train if left out
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    /// Most tasks; 0 is all
    #[arg(long, value_name = "N")]
    pub tasks: Option<u64>,
    /// Sampled episodes per task, beside one greedy one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MOST_SAMPLES))]
    pub samples: Option<u64>,
    /// Update whose checkpoint is measured; the last one if left out
    #[arg(long, value_name = "N")]
    pub checkpoint: Option<u32>,
}

/// `view`
#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// The run's folder, or a file of saved trajectories
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Updates to show: N, N..M (both included), N.., ..M, all or last; may be given several times. The last one that is
    /// saved, if left out
    #[arg(long = "update", value_name = "UPDATES")]
    pub updates: Vec<Updates>,
    /// An estimator whose credit is shown beside that which trained, as `estimator =` takes it: rloo, or
    /// '{ gae = { gamma = 1.0, lambda = 0.9 } }'. A name alone takes keys that must be said from the plugin's example. May be
    /// given several times
    #[arg(short = 'e', long = "estimator", value_name = "ESTIMATOR")]
    pub estimators: Vec<String>,
    /// The page; view.html in the run's folder, if left out
    #[arg(short = 'o', long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Most trajectories; groups are shown whole
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub limit: usize,
}

/// `check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub experiment: ExperimentArgs,
}

/// `plugins`
#[derive(Debug, Args)]
pub(crate) struct PluginsArgs {
    /// Only plugins of this kind
    #[arg(value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::as_str)))]
    pub kind: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A plugin, a metric, or an experiment's file
    #[arg(value_name = "NAME|METRIC|FILE")]
    pub what: String,
    /// A key of the experiment, for example update.learning_rate or phase.NAME.updates
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
    /// Settings that change the experiment
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// `verify`
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// What it is
    #[arg(value_name = "KIND")]
    pub kind: Verifiable,
    /// The plugin; all of that kind if left out
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Keys of the plugin that differ from its example, for example lambda=0.5
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// Kinds of plugins that a contract can be checked of without an experiment.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Verifiable {
    /// How a group becomes credit
    Estimator,
    /// What happens to a batch's credit before it trains
    Transform,
    /// What the agent acts in
    #[value(name = "env", alias = "environment")]
    Environment,
    /// What judges states, turns and tokens
    Critic,
}

/// `new`
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// What it is
    #[arg(value_name = "KIND", value_parser = ["estimator"])]
    pub kind: String,
    /// Its name in TOML, as in my-method
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Make a crate of its own, also within a checkout of Ascribe
    #[arg(long = "crate")]
    pub krate: bool,
    /// The checkout of Ascribe that the crate depends on; implies --crate
    #[arg(long, value_name = "FOLDER")]
    pub path: Option<PathBuf>,
}

/// `schema`
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Write it to a file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_are_settings() {
        let words = ["ascribe", "run", "x.toml", "seed=1", "--threads", "2", "--seed", "3"];
        let Command::Run(args) = Arguments::try_parse_from(words).expect("a good line").command else { panic!("run") };
        assert_eq!(args.settings(), ["seed=1", "seed=3", "run.threads=2"]);
    }
}

/// `grid`
#[derive(Debug, Args)]
pub(crate) struct GridArgs {
    #[command(subcommand)]
    pub command: GridCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GridCommand {
    /// Say what would be run, in what the arms differ, and what so many seeds can show
    Plan(GridCellsArgs),
    /// Run every cell that is not done, and write the tables
    Run(GridRunArgs),
    /// Go on with a grid
    Resume(GridResumeArgs),
    /// Say how far every cell is
    Status(FolderArgs),
    /// Write a page and tables of what is done
    Report(GridReportArgs),
    /// Run one cell
    #[command(hide = true)]
    Cell(CellArgs),
}

/// `grid plan`, and the cells of `grid run`
#[derive(Debug, Args)]
pub(crate) struct GridCellsArgs {
    #[command(flatten)]
    pub experiment: ExperimentArgs,
    /// One more axis, for example -m estimator.gae.lambda=0.9,0.95
    #[arg(short = 'm', value_name = "KEY=A,B")]
    pub axes: Vec<String>,
}

/// `grid run`
#[derive(Debug, Args)]
pub(crate) struct GridRunArgs {
    #[command(flatten)]
    pub cells: GridCellsArgs,
    #[command(flatten)]
    pub workers: Workers,
}

/// `grid resume`
#[derive(Debug, Args)]
pub(crate) struct GridResumeArgs {
    /// The grid's folder
    #[arg(value_name = "GRID")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub workers: Workers,
    /// This is the job after tuning: what is missing of it by now is not submitted again
    #[arg(long, hide = true)]
    pub after_tuning: bool,
}

/// Who works on a grid.
#[derive(Debug, Args)]
pub(crate) struct Workers {
    /// Cells at a time; if left out, one per core, or all at once with Slurm. Never changes a result
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub jobs: Option<u64>,
    /// Try cells again that failed
    #[arg(long)]
    pub retry: bool,
    /// Who runs the cells; this process, on this machine, if left out
    #[arg(long, value_name = "NAME", value_enum)]
    pub launcher: Option<Launcher>,
    /// An option of sbatch, for every job of the grid, for example --slurm=--partition=gpu; may be repeated
    #[arg(long, value_name = "OPTION", value_parser = check_option, allow_hyphen_values = true, requires = "launcher")]
    pub slurm: Vec<String>,
}

/// Who runs cells where this process does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Launcher {
    /// Slurm: a job array with a cell per task, and a job that goes on after it
    Slurm,
}

/// `grid report`
#[derive(Debug, Args)]
pub(crate) struct GridReportArgs {
    /// The grid's folder
    #[arg(value_name = "GRID")]
    pub folder: PathBuf,
    /// The budget whose curve and table the page shows first
    #[arg(long, value_name = "AXIS", default_value = Axis::AllTokens.key(), value_parser = axis())]
    pub axis: Axis,
}

/// Axes of budgets by their names.
fn axis() -> impl TypedValueParser<Value = Axis> {
    let named = |key: String| Axis::ALL.into_iter().find(|axis| axis.key() == key).unwrap_or(Axis::AllTokens);
    PossibleValuesParser::new(Axis::ALL.map(Axis::key)).map(named)
}

/// `grid status`
#[derive(Debug, Args)]
pub(crate) struct FolderArgs {
    /// The grid's folder
    #[arg(value_name = "GRID")]
    pub folder: PathBuf,
}

/// `grid cell`
#[derive(Debug, Args)]
pub(crate) struct CellArgs {
    /// The grid's folder
    #[arg(value_name = "GRID")]
    pub folder: PathBuf,
    /// The cell
    #[arg(value_name = "CELL")]
    pub cell: String,
    /// Threads; 0 is one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u64,
    /// Save and end when standard input is closed
    #[arg(long)]
    pub until_eof: bool,
    /// This is a task of an array of Slurm: requeue it when the cell was asked to stop and has saved
    #[arg(long, conflicts_with = "until_eof")]
    pub requeue: bool,
}
