//! Speed of the engine on the recorded episodes, on one thread.
//!
//! The commands of the transcripts are replayed; all output is hashed, so nothing can be left out. Figures are medians
//! of five runs. Steps are counted per second of processor time where the system tells it, so that a busy machine
//! changes little. `--json` prints the figures for `compare.py`.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use ascribe_alfworld::{Game, Library, Source, State, Variant};
use liblzma::read::XzDecoder;
use serde::Deserialize;

const RUNS: usize = 5;

#[derive(Deserialize)]
struct Transcript {
    game: String,
    variant: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    cmd: String,
}

struct Episode {
    game: usize,
    commands: Vec<String>,
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Seconds that the work takes, the median of a few runs.
fn seconds(mut work: impl FnMut()) -> f64 {
    let run = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    median((0..RUNS).map(run).collect())
}

/// Replays in a run, so that it lasts much longer than the system's clock tick.
const REPLAYS: usize = 10;

/// Seconds of processor time this thread has had (Linux), else seconds since the start.
fn processor_seconds(start: Instant) -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

/// Steps per second of processor time, the median of a few runs.
fn steps_per_second(n_steps: usize, mut replay: impl FnMut() -> u64) -> Result<f64, String> {
    let start = Instant::now();
    let wanted = replay();
    let mut figures = Vec::new();
    for _ in 0..RUNS {
        let before = processor_seconds(start);
        for _ in 0..REPLAYS {
            if replay() != wanted {
                return Err("two replays differ".into());
            }
        }
        figures.push((REPLAYS * n_steps) as f64 / (processor_seconds(start) - before));
    }
    Ok(median(figures))
}

fn folder() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/alfworld/transcripts");
    std::env::var_os("ASCRIBE_ALFWORLD_TRANSCRIPTS").map_or_else(default, PathBuf::from)
}

fn read(library: &Library) -> Result<(Vec<Game>, Vec<Episode>), String> {
    let folder = folder();
    let listed = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".jsonl.xz"));
    files.sort();
    let mut numbers: BTreeMap<(String, String), usize> = BTreeMap::new();
    let (mut games, mut episodes) = (Vec::new(), Vec::new());
    for file in files {
        let open = File::open(&file).map_err(|error| error.to_string())?;
        for line in BufReader::new(XzDecoder::new_multi_decoder(open)).lines() {
            let line = line.map_err(|error| error.to_string())?;
            let Transcript { game, variant, steps } = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            let known = numbers.get(&(game.clone(), variant.clone())).copied();
            let game = match known {
                Some(game) => game,
                None => {
                    let idx = library.find(&game).ok_or_else(|| format!("there is no game `{game}`"))?;
                    let text = if variant == "v211" { Variant::V211 } else { Variant::V042 };
                    games.push(library.load(idx, Some(text)).map_err(|error| error.to_string())?.game);
                    numbers.insert((game, variant), games.len() - 1);
                    games.len() - 1
                }
            };
            episodes.push(Episode { game, commands: steps.into_iter().map(|step| step.cmd).collect() });
        }
    }
    Ok((games, episodes))
}

/// Replays every episode; `list` says whether the admissible commands are written out after every step.
fn replay(games: &[Game], episodes: &[Episode], list: bool) -> u64 {
    let mut hash = DefaultHasher::new();
    let mut text = String::new();
    for episode in episodes {
        let game = &games[episode.game];
        let mut state = game.start().clone();
        for command in &episode.commands {
            text.clear();
            game.step(&mut state, command, &mut text);
            hash.write(text.as_bytes());
            hash.write_u8(game.won(&state).into());
            if list {
                let admissible: Vec<String> = game.admissible(&state);
                for command in &admissible {
                    hash.write(command.as_bytes());
                }
            }
        }
    }
    hash.finish()
}

/// States along the episodes, each with its game.
fn states(games: &[Game], episodes: &[Episode]) -> Vec<(usize, State)> {
    let mut states = Vec::new();
    for episode in episodes.iter().step_by(7) {
        let game = &games[episode.game];
        let mut state = game.start().clone();
        for (idx, command) in episode.commands.iter().enumerate() {
            game.step(&mut state, command, &mut String::new());
            if idx % 5 == 0 {
                states.push((episode.game, state.clone()));
            }
        }
    }
    states
}

fn measure() -> Result<Vec<(&'static str, f64)>, String> {
    let source = Source::discover().map_err(|error| error.to_string())?;
    let mut library = Library::open(&source).map_err(|error| error.to_string())?;
    let open = seconds(|| library = Library::open(&source).expect("it opened before"));
    if !library.was_cached() {
        eprintln!("the cache cannot be written: opening is not what a warm cache gives");
    }

    let n_games = library.entries().len();
    let mut load = Vec::with_capacity(n_games);
    for idx in 0..n_games {
        library.load(idx, None).map_err(|error| error.to_string())?;
        // The best of the runs: the slowest game is sought, not the slowest moment of the machine.
        let run = || {
            let start = Instant::now();
            drop(std::hint::black_box(library.load(idx, None)));
            1e3 * start.elapsed().as_secs_f64()
        };
        load.push((0..RUNS).map(|_| run()).fold(f64::INFINITY, f64::min));
    }
    let slowest_load = load.iter().copied().fold(0.0, f64::max);

    let (games, episodes) = read(&library)?;
    let n_steps: usize = episodes.iter().map(|episode| episode.commands.len()).sum();
    let with_list = steps_per_second(n_steps, || replay(&games, &episodes, true))?;
    let without_list = steps_per_second(n_steps, || replay(&games, &episodes, false))?;

    let states = states(&games, &episodes);
    let copy = seconds(|| states.iter().for_each(|(_, state)| drop(std::hint::black_box(state.clone()))));
    let snapshots: Vec<(usize, Vec<u8>)> = states.iter().map(|(game, state)| (*game, games[*game].snapshot(state))).collect();
    let restore = seconds(|| {
        for (game, bytes) in &snapshots {
            std::hint::black_box(games[*game].restore(bytes)).expect("just written");
        }
    });
    let per_state = 1e9 / states.len() as f64;
    Ok(vec![
        ("games", games.len() as f64),
        ("episodes", episodes.len() as f64),
        ("steps", n_steps as f64),
        ("steps_per_second_with_list", with_list),
        ("steps_per_second_without_list", without_list),
        ("state_copy_ns", copy * per_state),
        ("verified_restore_ns", restore * per_state),
        ("snapshot_bytes", snapshots.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() as f64 / states.len() as f64),
        ("load_game_ms_median", median(load)),
        ("load_game_ms_slowest", slowest_load),
        ("index_open_warm_ms", 1e3 * open),
    ])
}

fn main() -> ExitCode {
    let figures = match measure() {
        Ok(figures) => figures,
        Err(what) => {
            println!("skipped: {what}");
            return ExitCode::SUCCESS;
        }
    };
    if std::env::args().any(|arg| arg == "--json") {
        let figures: BTreeMap<&str, f64> = figures.into_iter().collect();
        println!("{}", serde_json::to_string(&figures).expect("numbers are JSON"));
    } else {
        for (name, figure) in figures {
            println!("{name:<32}{figure:>16.2}");
        }
    }
    ExitCode::SUCCESS
}
