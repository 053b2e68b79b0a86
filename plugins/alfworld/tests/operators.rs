//! What every command does, worked out by hand on the small games.

use ascribe_alfworld::{Game, State, TaskType, Variant, mini};

fn game(kind: TaskType, variant: Variant) -> Game {
    let idx = TaskType::ALL.iter().position(|&other| other == kind).expect("all kinds are listed");
    mini::GAMES[idx].compile(variant).expect("the small games are good")
}

/// Plays commands from the start; the state and the last observation.
fn play(game: &Game, commands: &[&str]) -> (State, String) {
    let mut state = game.start().clone();
    let mut observation = String::new();
    for command in commands {
        observation.clear();
        game.step(&mut state, command, &mut observation);
    }
    (state, observation)
}

/// The last observation after commands.
fn check(kind: TaskType, commands: &[&str], wanted: &str) {
    assert_eq!(play(&game(kind, Variant::V042), commands).1, wanted, "{commands:?}");
}

/// The last observation after commands in the older texts.
fn check_v211(kind: TaskType, commands: &[&str], wanted: &str) {
    assert_eq!(play(&game(kind, Variant::V211), commands).1, wanted, "{commands:?}");
}

const LOOK: TaskType = TaskType::LookAtObjInLight;
const PLACE: TaskType = TaskType::PickAndPlaceSimple;
const CLEAN: TaskType = TaskType::PickCleanThenPlaceInRecep;
const COOL: TaskType = TaskType::PickCoolThenPlaceInRecep;
const HEAT: TaskType = TaskType::PickHeatThenPlaceInRecep;
const TWO: TaskType = TaskType::PickTwoObjAndPlace;

#[test]
fn the_intro_lists_receptacles_by_id_and_tells_the_task() {
    // Ids ascend, numbers descend: drawer_bar_1 is "drawer 2".
    assert_eq!(
        game(PLACE, Variant::V042).intro(),
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a \
         bed 1, a drawer 2, a drawer 1, and a sidetable 1.\n\nYour task is to: put a keychain in sidetable."
    );
}

#[test]
fn the_goal_tells_the_kind_of_task() {
    for kind in TaskType::ALL {
        assert_eq!(game(kind, Variant::V042).task_type(), kind);
    }
}

#[test]
fn look() {
    let middle = "You are in the middle of a room. Looking quickly around you, you see nothing.";
    check(PLACE, &["look"], middle);
    check(PLACE, &["go to bed 1", "look"], "You are facing the bed 1. Next to it, you see nothing.");
    let both = "You are facing the drawer 2, and drawer 1. Next to it, you see nothing.";
    check(PLACE, &["go to drawer 1", "look"], both);
}

#[test]
fn look_shows_what_came_back_through_another_receptacle() {
    // Taken from drawer 1, put into drawer 2 at the same place: it is there, and no longer in drawer 1.
    let moved = [
        "go to drawer 1",
        "open drawer 1",
        "open drawer 2",
        "take keychain 1 from drawer 1",
        "move keychain 1 to drawer 2",
        "look",
    ];
    check(PLACE, &moved, "You are facing the drawer 2, and drawer 1. Next to it, you see a keychain 1.");
    let back = [&moved[..5], &["take keychain 1 from drawer 2", "move keychain 1 to drawer 1", "look"]].concat();
    // Now it is back in drawer 1, and was taken from drawer 2.
    check(PLACE, &back, "You are facing the drawer 2, and drawer 1. Next to it, you see a keychain 1.");
}

#[test]
fn inventory() {
    check(PLACE, &["inventory"], "You are not carrying anything.");
    let taken = ["go to bed 1", "take book 1 from bed 1", "inventory"];
    check(PLACE, &taken, "You are carrying: a book 1.");
}

#[test]
fn help() {
    let (_, text) = play(&game(PLACE, Variant::V042), &["help"]);
    assert!(text.starts_with("Available commands:\n  look:  ") && text.ends_with("sharp object\n"), "{text:?}");
    check_v211(PLACE, &["help"], "Nothing happens.");
}

#[test]
fn go_to() {
    check(PLACE, &["go to bed 1"], "You arrive at bed 1. On the bed 1, you see a book 1.");
    check(PLACE, &["go to drawer 2"], "You arrive at drawer 2. The drawer 2 is closed.");
    // Both drawers are at one place: none can be gone to from there.
    check(PLACE, &["go to drawer 2", "go to drawer 1"], "Nothing happens.");
    check(PLACE, &["go to bed 1", "go to bed 1"], "Nothing happens.");
    // loc_bar_0 … loc_bar_3 count down: loc_bar_2 is "loc 2".
    check_v211(PLACE, &["go to bed 1"], "You arrive at loc 2. On the bed 1, you see a book 1.");
}

#[test]
fn open_and_close() {
    let open = "You open the drawer 1. The drawer 1 is open. In it, you see a keychain 1, and a pen 2.";
    check(PLACE, &["go to drawer 1", "open drawer 1"], open);
    check(PLACE, &["go to drawer 1", "open drawer 1", "open drawer 1"], "Nothing happens.");
    check(PLACE, &["go to drawer 1", "close drawer 1"], "Nothing happens.");
    check(PLACE, &["go to drawer 1", "open drawer 1", "close drawer 1"], "You close the drawer 1.");
    check(PLACE, &["go to bed 1", "open bed 1"], "Nothing happens.");
    check(PLACE, &["open drawer 1"], "Nothing happens.");
}

#[test]
fn examine_a_receptacle() {
    check(PLACE, &["go to bed 1", "examine bed 1"], "On the bed 1, you see a book 1.");
    check(PLACE, &["go to drawer 1", "examine drawer 2"], "The drawer 2 is closed.");
    let empty = ["go to drawer 1", "open drawer 2", "examine drawer 2"];
    check(PLACE, &empty, "The drawer 2 is open. In it, you see nothing.");
    check(PLACE, &["examine bed 1"], "Nothing happens.");
}

#[test]
fn examine_an_object() {
    let held = ["go to bed 1", "take book 1 from bed 1", "examine book 1"];
    check(PLACE, &held, "There's nothing special about book 1.");
    // Only what is held can be examined.
    check(PLACE, &["go to bed 1", "examine book 1"], "Nothing happens.");
    let plate = ["go to countertop 1", "take plate 1 from countertop 1", "examine plate 1"];
    check(CLEAN, &plate, "This is a normal plate 1. In it, you see a bread 1.");
    let candle = ["go to toilet 1", "use candle 1", "take candle 1 from toilet 1", "examine candle 1"];
    check(TWO, &candle, "This candle 1 is on.");
}

#[test]
fn take() {
    let text = "You pick up the keychain 1 from the drawer 1.";
    let open = ["go to drawer 1", "open drawer 1", "take keychain 1 from drawer 1"];
    check(PLACE, &open, text);
    check(PLACE, &["go to drawer 1", "take keychain 1 from drawer 1"], "Nothing happens.");
    check(PLACE, &[&open[..], &["take pen 2 from drawer 1"]].concat(), "Nothing happens.");
    check(PLACE, &["take book 1 from bed 1"], "Nothing happens.");
    check(LOOK, &["go to desk 1", "take desklamp 1 from desk 1"], "Nothing happens.");
}

#[test]
fn taking_from_one_of_two_receptacles_leaves_it_in_the_other() {
    let taken = ["go to countertop 1", "take mug 1 from countertop 1"];
    let there = [&taken[..], &["examine coffeemachine 1"]].concat();
    check(COOL, &there, "On the coffeemachine 1, you see a mug 1.");
    check(COOL, &[&taken[..], &["examine countertop 1"]].concat(), "On the countertop 1, you see nothing.");
}

#[test]
fn put() {
    let taken = ["go to bed 1", "take book 1 from bed 1", "go to sidetable 1"];
    let put = [&taken[..], &["move book 1 to sidetable 1"]].concat();
    check(PLACE, &put, "You move the book 1 to the sidetable 1.");
    check(PLACE, &[&put[..], &["examine sidetable 1"]].concat(), "On the sidetable 1, you see a book 1, and a pen 1.");
    check(PLACE, &[&taken[..], &["put book 1 in/on sidetable 1"]].concat(), "Nothing happens.");
    let old = [&taken[..], &["put book 1 in/on sidetable 1"]].concat();
    check_v211(PLACE, &old, "You put the book 1 in/on the sidetable 1.");
    check_v211(PLACE, &put, "Nothing happens.");
    // A closed drawer takes nothing, and a bed takes no pen.
    check(PLACE, &["go to bed 1", "take book 1 from bed 1", "go to drawer 1", "move book 1 to drawer 1"], "Nothing happens.");
    let pen = ["go to sidetable 1", "take pen 1 from sidetable 1", "go to bed 1", "move pen 1 to bed 1"];
    check(PLACE, &pen, "Nothing happens.");
}

#[test]
fn clean() {
    let taken = ["go to countertop 1", "take knife 1 from countertop 1"];
    let clean = [&taken[..], &["clean knife 1 with sinkbasin 1"]].concat();
    check(CLEAN, &clean, "You clean the knife 1 using the sinkbasin 1.");
    // Again, and again.
    check(CLEAN, &[&clean[..], &["clean knife 1 with sinkbasin 1"]].concat(), "You clean the knife 1 using the sinkbasin 1.");
    check(CLEAN, &[&clean[..], &["examine knife 1"]].concat(), "This is a clean knife 1.");
    check(CLEAN, &[&taken[..], &["clean knife 1 with countertop 1"]].concat(), "Nothing happens.");
    check(CLEAN, &["go to countertop 1", "clean knife 1 with sinkbasin 1"], "Nothing happens.");
    let bread = ["go to countertop 1", "take bread 1 from countertop 1", "clean bread 1 with sinkbasin 1"];
    check(CLEAN, &bread, "Nothing happens.");
}

#[test]
fn heat_and_cool() {
    let cold = ["go to fridge 1", "open fridge 1", "take egg 2 from fridge 1"];
    check(HEAT, &[&cold[..], &["examine egg 2"]].concat(), "This is a cold egg 2.");
    // The microwave stays closed.
    let hot = [&cold[..], &["go to microwave 1", "heat egg 2 with microwave 1"]].concat();
    check(HEAT, &hot, "You heat the egg 2 using the microwave 1.");
    check(HEAT, &[&hot[..], &["examine egg 2"]].concat(), "This is a hot egg 2.");
    let again = [&hot[..], &["go to fridge 1", "cool egg 2 with fridge 1"]].concat();
    check(HEAT, &again, "You cool the egg 2 using the fridge 1.");
    check(HEAT, &[&again[..], &["examine egg 2"]].concat(), "This is a cold egg 2.");
    check(HEAT, &[&cold[..], &["heat egg 2 with fridge 1"]].concat(), "Nothing happens.");
}

#[test]
fn use_an_object() {
    check(LOOK, &["go to desk 1", "use desklamp 1"], "You turn on the desklamp 1.");
    // It says so every time.
    check(LOOK, &["go to desk 1", "use desklamp 1", "use desklamp 1"], "You turn on the desklamp 1.");
    check(LOOK, &["use desklamp 1"], "Nothing happens.");
    // What is held lies in no receptacle.
    check(TWO, &["go to toilet 1", "take candle 1 from toilet 1", "use candle 1"], "Nothing happens.");
}

#[test]
fn slice() {
    let taken = ["go to countertop 1", "take knife 1 from countertop 1"];
    let sliced = [&taken[..], &["slice bread 1 with knife 1"]].concat();
    check(CLEAN, &sliced, "You sliced the bread 1 with the knife 1.");
    let seen = ["move knife 1 to countertop 1", "take bread 1 from countertop 1", "examine bread 1"];
    check(CLEAN, &[&sliced[..], &seen].concat(), "This is a sliced bread 1.");
    check(CLEAN, &[&taken[..], &["slice plate 1 with knife 1"]].concat(), "Nothing happens.");
    check(CLEAN, &["go to countertop 1", "slice bread 1 with knife 1"], "Nothing happens.");
    // Not from another place.
    check(CLEAN, &[&taken[..], &["go to cabinet 1", "slice bread 1 with knife 1"]].concat(), "Nothing happens.");
}

#[test]
fn commands_match_exactly_but_for_space_around_them() {
    check(PLACE, &[" \tgo to bed 1\n"], "You arrive at bed 1. On the bed 1, you see a book 1.");
    for command in ["Go to bed 1", "go to  bed 1", "go to bed", "go to bed 11", "go to book 1", "", "look around", "go"] {
        check(PLACE, &[command], "Nothing happens.");
    }
}

#[test]
fn what_does_not_apply_changes_nothing() {
    let game = game(PLACE, Variant::V042);
    let (state, _) = play(&game, &["go to drawer 1", "take keychain 1 from drawer 1", "close drawer 1", "dance"]);
    assert_eq!(state, play(&game, &["go to drawer 1"]).0);
}

#[test]
fn admissible_commands_are_sorted_and_complete() {
    let game = game(CLEAN, Variant::V042);
    let (state, _) = play(&game, &["go to countertop 1", "take knife 1 from countertop 1"]);
    let wanted = [
        "clean knife 1 with sinkbasin 1",
        "examine countertop 1",
        "examine knife 1",
        "examine sinkbasin 1",
        "go to cabinet 1",
        "help",
        "inventory",
        "look",
        "move knife 1 to countertop 1",
        "move knife 1 to sinkbasin 1",
        "slice bread 1 with knife 1",
    ];
    assert_eq!(game.admissible(&state), wanted);
}

#[test]
fn admissible_is_what_applies() {
    // Along every walkthrough: an admissible command is never answered with nothing, and reads as it is written.
    for variant in [Variant::V211, Variant::V042] {
        for mini in &mini::GAMES {
            let game = mini.compile(variant).expect("the small games are good");
            let mut state = game.start().clone();
            for command in mini.walkthrough(variant) {
                let admissible = game.admissible(&state);
                assert!(admissible.is_sorted() && admissible.contains(&command), "{}: {command}", mini.id);
                for text in &admissible {
                    let command = game.command(text).expect("an admissible command is a command");
                    assert_eq!(game.command_text(command), *text);
                    let mut out = String::new();
                    assert!(game.apply(&mut state.clone(), command, &mut out), "{text}");
                }
                game.step(&mut state, &command, &mut String::new());
            }
            assert!(game.won(&state), "{}", mini.id);
        }
    }
}

#[test]
fn a_won_game_can_be_lost_again() {
    let game = game(HEAT, Variant::V042);
    let win: Vec<&str> = mini::GAMES[4].walkthrough.to_vec();
    let (mut state, _) = play(&game, &win);
    assert!(game.won(&state));
    game.step(&mut state, "take egg 1 from diningtable 1", &mut String::new());
    assert!(!game.won(&state));
}

#[test]
fn two_objects_must_share_a_receptacle() {
    let game = game(TWO, Variant::V042);
    let apart = [
        "go to toilet 1",
        "take soapbar 2 from toilet 1",
        "go to garbagecan 1",
        "move soapbar 2 to garbagecan 1",
        "go to cabinet 1",
        "open cabinet 1",
        "take soapbar 1 from cabinet 1",
        "move soapbar 1 to garbagecan 2",
    ];
    let (state, _) = play(&game, &apart);
    assert!(!game.won(&state));
    assert_eq!(game.stage(&state).name(), "first-placed");
}

#[test]
fn the_order_of_lamp_and_object_is_free() {
    let game = game(LOOK, Variant::V042);
    let lamp_first = ["go to desk 1", "use desklamp 1", "go to safe 1", "open safe 1", "take cd 1 from safe 1"];
    let (state, _) = play(&game, &lamp_first);
    assert!(!game.won(&state));
    let (state, _) = play(&game, &[&lamp_first[..], &["go to desk 1"]].concat());
    assert!(game.won(&state));
}

/// The names of the stages along a walkthrough, each once.
fn check_stages(kind: TaskType, wanted: &[&str]) {
    let game = game(kind, Variant::V042);
    let idx = TaskType::ALL.iter().position(|&other| other == kind).expect("all kinds are listed");
    let mut state = game.start().clone();
    let mut seen = vec![game.stage(&state).name()];
    for command in mini::GAMES[idx].walkthrough {
        game.step(&mut state, command, &mut String::new());
        seen.push(game.stage(&state).name());
    }
    seen.dedup();
    assert_eq!(seen, wanted);
    assert_eq!(game.stage(&state).progress(), 1.0);
}

#[test]
fn stages() {
    check_stages(PLACE, &["searching", "holding", "placed"]);
    check_stages(CLEAN, &["searching", "holding", "cleaned", "placed"]);
    check_stages(HEAT, &["searching", "holding", "heated", "placed"]);
    check_stages(COOL, &["searching", "holding", "cooled", "placed"]);
    check_stages(TWO, &["searching", "holding-first", "first-placed", "holding-second", "both-placed"]);
    check_stages(LOOK, &["searching", "holding", "at-light", "lit"]);
}
