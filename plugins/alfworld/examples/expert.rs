//! Plays every game with the exploring expert and prints how many it wins within the turn limit.
//!
//! `--lost` lists the games it loses; `--show ID` prints one episode.

use std::collections::BTreeMap;
use std::process::ExitCode;

use ascribe_alfworld::expert::Expert;
use ascribe_alfworld::{DataError, Entry, Library, LoadedGame, MAX_TURNS, Source, Split};
use rayon::prelude::*;

/// Turns to win, `None` if the limit came first, and what was said.
fn play(loaded: &LoadedGame) -> (Option<usize>, String) {
    let game = &loaded.game;
    let mut state = game.start().clone();
    let mut said = game.intro();
    let mut expert = Expert::new(&said);
    let mut admissible = game.admissible(&state);
    for turn in 1..=MAX_TURNS {
        let Some(command) = expert.act(&admissible) else { break };
        let mut observation = String::new();
        game.step(&mut state, &command, &mut observation);
        said.push_str(&format!("\n\n> {command}\n{observation}"));
        if game.won(&state) {
            return (Some(turn), said);
        }
        admissible = game.admissible(&state);
        expert.observe(&observation, &admissible);
    }
    (None, said)
}

fn run() -> Result<(), DataError> {
    let library = Library::open(&Source::discover()?)?;
    let args: Vec<String> = std::env::args().collect();
    if let Some(id) = args.iter().skip_while(|arg| *arg != "--show").nth(1) {
        match library.find(id) {
            Some(idx) => println!("{}", play(&library.load(idx, None)?).1),
            None => println!("there is no game `{id}`"),
        }
        return Ok(());
    }
    let results: Vec<Result<(&Entry, Option<usize>), DataError>> = (0..library.entries().len())
        .into_par_iter()
        .map(|idx| {
            let entry = &library.entries()[idx];
            let (turns, _) = play(&library.load(idx, None)?);
            Ok((entry, turns))
        })
        .collect();
    let mut table: BTreeMap<(Split, String), Vec<Option<usize>>> = BTreeMap::new();
    for result in results {
        let (entry, turns) = result?;
        if turns.is_none() && args.iter().any(|arg| arg == "--lost") {
            println!("lost: {}", entry.id);
        }
        table.entry((entry.split, "all".into())).or_default().push(turns);
        table.entry((entry.split, entry.task_type.to_string())).or_default().push(turns);
    }
    println!("{:<14}{:<32}{:>7}{:>8}{:>9}{:>12}", "split", "task", "games", "won", "share", "mean turns");
    for ((split, name), turns) in table {
        let won: Vec<usize> = turns.iter().copied().flatten().collect();
        let share = 100.0 * won.len() as f64 / turns.len() as f64;
        let mean = won.iter().sum::<usize>() as f64 / won.len().max(1) as f64;
        println!("{:<14}{name:<32}{:>7}{:>8}{share:>8.2}%{mean:>12.2}", split.name(), turns.len(), won.len());
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
