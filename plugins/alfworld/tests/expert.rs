//! The expert wins, and sees nothing that the agent could not.

use ascribe_alfworld::expert::{Expert, Task};
use ascribe_alfworld::{Game, Library, MAX_TURNS, Source, Split, State, TaskType, Variant};
use rayon::prelude::*;

/// Turns the expert needs from a state, with what it has seen so far.
fn finish(game: &Game, mut state: State, mut expert: Expert) -> Option<usize> {
    let mut admissible = game.admissible(&state);
    for turn in 0..MAX_TURNS {
        if game.won(&state) {
            return Some(turn);
        }
        let command = expert.act(&admissible)?;
        assert!(admissible.contains(&command), "{command} is not admissible");
        let mut observation = String::new();
        game.step(&mut state, &command, &mut observation);
        admissible = game.admissible(&state);
        expert.observe(&observation, &admissible);
    }
    game.won(&state).then_some(MAX_TURNS)
}

/// The same after some turns of someone else, who chooses at random.
fn finish_after(game: &Game, mut seed: u64, turns: usize) -> Option<usize> {
    let mut state = game.start().clone();
    let mut expert = Expert::new(&game.intro());
    let mut admissible = game.admissible(&state);
    for _ in 0..turns {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let command = admissible[(seed >> 33) as usize % admissible.len()].clone();
        let mut observation = String::new();
        game.step(&mut state, &command, &mut observation);
        admissible = game.admissible(&state);
        expert.observe(&observation, &admissible);
    }
    finish(game, state, expert)
}

#[test]
fn tasks_are_read() {
    let check = |sentence: &str, kind: TaskType, object: &str, target: &str| {
        let wanted = Task { kind, object: object.into(), target: target.into() };
        assert_eq!(Task::read(sentence), Some(wanted), "{sentence}");
    };
    check("look at cd under the desklamp.", TaskType::LookAtObjInLight, "cd", "desklamp");
    check("examine the cd with the desklamp.", TaskType::LookAtObjInLight, "cd", "desklamp");
    check("put a mug in desk.", TaskType::PickAndPlaceSimple, "mug", "desk");
    check("put some mug on desk.", TaskType::PickAndPlaceSimple, "mug", "desk");
    check("put a clean mug in desk.", TaskType::PickCleanThenPlaceInRecep, "mug", "desk");
    check("cool some mug and put it in desk.", TaskType::PickCoolThenPlaceInRecep, "mug", "desk");
    check("put a hot mug in desk.", TaskType::PickHeatThenPlaceInRecep, "mug", "desk");
    check("find two mug and put them in desk.", TaskType::PickTwoObjAndPlace, "mug", "desk");
    check("put two mug in desk.", TaskType::PickTwoObjAndPlace, "mug", "desk");
    assert_eq!(Task::read("make tea."), None);
}

#[test]
fn small_games_are_won_from_anywhere() {
    let library = Library::mini();
    for (idx, entry) in library.entries().iter().enumerate() {
        for variant in [Variant::V211, Variant::V042] {
            let game = library.load(idx, Some(variant)).expect("the small games are good").game;
            for seed in 0..40 {
                for turns in [0, 3, 30] {
                    assert!(finish_after(&game, seed, turns).is_some(), "{} ({variant}) after {turns}", entry.id);
                }
            }
        }
    }
}

#[test]
fn nothing_makes_it_fail() {
    for text in ["", "Your task is to: ", "you see a , and .\nYour task is to: put two  in ."] {
        let mut expert = Expert::new(text);
        expert.observe("You pick up the  from the . On the , you see ", &["take  from ".into(), "use ".into()]);
        assert_eq!(expert.act(&[]), None);
        assert_eq!(expert.act(&["inventory".into()]), Some("inventory".into()));
    }
}

#[test]
fn its_memory_is_the_turns_so_far() {
    let library = Library::mini();
    let game = library.load(5, None).expect("the small games are good").game;
    let mut state = game.start().clone();
    let mut expert = Expert::new(&game.intro());
    let mut turns: Vec<(String, Vec<String>)> = Vec::new();
    let mut admissible = game.admissible(&state);
    while !game.won(&state) {
        let refolded = turns.iter().map(|(seen, list)| (seen.as_str(), list.as_slice()));
        let command = expert.act(&admissible);
        assert_eq!(Expert::next_action(&game.intro(), refolded, &admissible), command);
        let command = command.expect("something is admissible");
        let json = serde_json::to_string(&expert).expect("it is plain data");
        assert_eq!(serde_json::from_str::<Expert>(&json).expect("just written"), expert);
        let mut observation = String::new();
        game.step(&mut state, &command, &mut observation);
        admissible = game.admissible(&state);
        expert.observe(&observation, &admissible);
        turns.push((observation, admissible.clone()));
    }
}

#[test]
fn real_games_are_won() {
    let library = match Source::discover().and_then(|source| Library::open(&source)) {
        Ok(library) => library,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    for split in Split::ALL {
        let games: Vec<usize> = (0..library.entries().len()).filter(|&idx| library.entries()[idx].split == split).collect();
        // Every game once; the older texts, and taking over from someone else, on a tenth of the training games.
        let some: Vec<usize> = games.iter().copied().step_by(if split == Split::Train { 10 } else { 1 }).collect();
        for (games, variant, random) in [(&games, Variant::V042, 0), (&some, Variant::V211, 0), (&some, Variant::V042, 15)] {
            let won = games
                .par_iter()
                .filter(|&&idx| {
                    let game = library.load(idx, Some(variant)).expect("no game is faulty").game;
                    finish_after(&game, idx as u64, random).is_some()
                })
                .count();
            let share = won as f64 / games.len().max(1) as f64;
            println!("{split}, {variant}, after {random} random turns: {won} of {} won within {MAX_TURNS}", games.len());
            assert!(share >= 0.95 || games.is_empty(), "{split}: {share}");
        }
    }
}
