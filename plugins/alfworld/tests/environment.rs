//! The games as tasks of a run.

use ascribe_alfworld::environment::{Alfworld, AlfworldTasks};
use ascribe_alfworld::{Game, Library, Split, TaskType, Variant, mini};
use ascribe_core::environment::{ActionText, Environment, RestoreError, TaskId, TaskSet};
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{Context, End, Limit, Validity};
use ascribe_core::play::{Decode, Keep, Play, Start};
use ascribe_core::seed::{Draw, Seeds};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use proptest::prelude::*;

fn config(json: serde_json::Value) -> Alfworld {
    serde_json::from_value(json).expect("a good configuration")
}

fn tasks(json: serde_json::Value) -> AlfworldTasks {
    config(json).tasks(Library::mini()).expect("the small games are there")
}

fn task(index: u32) -> TaskId {
    TaskId { split: "train".into(), index }
}

fn open(json: serde_json::Value, index: u32) -> Box<dyn Environment> {
    tasks(json).open(&task(index), 0).expect("a good game")
}

fn say(environment: &mut dyn Environment, text: &str) -> (Validity, f32, Option<End>) {
    let step = environment.step(ActionText { text, complete: true }).expect("the episode is not over");
    (step.validity, step.reward, step.end)
}

const WIN: [&str; 5] =
    ["go to drawer 1", "open drawer 1", "take keychain 1 from drawer 1", "go to sidetable 1", "move keychain 1 to sidetable 1"];

#[test]
fn it_says_what_it_is() {
    let row = ascribe_core::registry::plugin(ascribe_core::registry::Kind::Environment, "alfworld").expect("registered");
    assert!(row.doc.contains("Cost:"), "`explain` shows what stands at the head of its module");
}

#[test]
fn the_winning_command_is_rewarded_and_ends_the_episode() {
    let mut environment = open(serde_json::json!({ "success_reward": 10 }), 1);
    for command in &WIN[..4] {
        assert_eq!(say(&mut *environment, command), (Validity::Valid, 0.0, None));
    }
    assert_eq!(environment.stage(), Some(1));
    assert_eq!(say(&mut *environment, WIN[4]), (Validity::Valid, 10.0, Some(End::Terminated { success: true })));
    assert_eq!(environment.stage(), Some(2));
    assert_eq!(environment.admissible(), Some(Vec::new()));
    assert!(environment.step(ActionText { text: "look", complete: true }).is_err());
}

#[test]
fn the_limit_of_turns_cuts_off() {
    let mut environment = open(serde_json::json!({ "max_turns": 2 }), 1);
    assert_eq!(say(&mut *environment, "look").2, None);
    assert_eq!(say(&mut *environment, "look").2, Some(End::Truncated(Limit::Turns)));
    // Where the last turn wins, it has the last word.
    let mut environment = open(serde_json::json!({ "max_turns": 5 }), 1);
    let ends: Vec<_> = WIN.iter().map(|command| say(&mut *environment, command).2).collect();
    assert_eq!(ends[4], Some(End::Terminated { success: true }));
}

#[test]
fn what_became_of_a_command() {
    let mut environment = open(serde_json::json!({}), 1);
    assert_eq!(say(&mut *environment, "open drawer 1").0, Validity::Refused);
    assert_eq!(say(&mut *environment, "open the drawer").0, Validity::Malformed);
    assert_eq!(say(&mut *environment, " go to drawer 1 ").0, Validity::Valid);
    assert_eq!(say(&mut *environment, "help").0, Validity::Valid);
    let key = environment.state_key();
    let cut = environment.step(ActionText { text: "open drawer 1", complete: false }).expect("not over");
    assert_eq!((cut.validity, environment.state_key()), (Validity::Cut, key));
}

#[test]
fn all_that_was_read_grows() {
    let mut environment = open(serde_json::json!({}), 1);
    let first = environment.observe();
    assert_eq!(first.context, Context::Extend);
    assert!(first.text.starts_with("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle"), "{}", first.text);
    let list = "\nCommands: go to bed 1, go to drawer 1, go to drawer 2, go to sidetable 1, inventory, look\n>";
    assert!(first.text.ends_with(list), "{}", first.text);
    say(&mut *environment, "go to bed 1");
    let second = environment.observe();
    assert_eq!(
        second.text,
        "You arrive at bed 1. On the bed 1, you see a book 1.\nCommands: examine bed 1, go to drawer 1, go to drawer 2, \
         go to sidetable 1, inventory, look, take book 1 from bed 1\n>"
    );
    assert_eq!(second.key, b"You arrive at bed 1. On the bed 1, you see a book 1.");
}

#[test]
fn the_task_is_read_again_where_that_is_wanted() {
    for memory in [serde_json::json!("all"), serde_json::json!({ "last": 1 })] {
        let plain = |repeat: bool| {
            let json = serde_json::json!({ "memory": memory, "list_commands": false, "repeat_task": repeat });
            let mut environment = open(json, 1);
            let first = environment.observe().text;
            say(&mut *environment, "go to bed 1");
            (first, environment.observe().text)
        };
        let ((first, second), (same, repeated)) = (plain(false), plain(true));
        assert_eq!(same, first, "the first observation ends with it");
        let task = "\nYour task is to: put a keychain in sidetable.\n>";
        assert!(first.ends_with(task));
        assert_eq!(repeated, format!("{}{task}", second.strip_suffix("\n>").expect("it ends with the prompt")));
    }
}

#[test]
fn the_last_turns_are_read_anew() {
    let json = serde_json::json!({ "memory": { "last": 2 }, "list_commands": false });
    let mut environment = open(json, 1);
    let first = environment.observe();
    assert_eq!(first.context, Context::Restart);
    let intro = first.text.strip_suffix("\n>").expect("it ends with the prompt").to_owned();
    for command in ["look", "go to bed 1", "inventory"] {
        say(&mut *environment, command);
    }
    assert_eq!(
        environment.observe().text,
        format!(
            "{intro}\nYou are in the middle of a room. Looking quickly around you, you see nothing.\n> go to bed 1\nYou \
             arrive at bed 1. On the bed 1, you see a book 1.\n> inventory\nYou are not carrying anything.\n>"
        )
    );
}

#[test]
fn help_is_hidden_unless_it_is_wanted() {
    let has_help = |hide: bool| {
        let environment = open(serde_json::json!({ "hide_help": hide }), 0);
        environment.admissible().expect("it lists them").contains(&"help".to_owned())
    };
    assert!(has_help(false) && !has_help(true));
}

#[test]
fn equal_states_have_equal_keys_whatever_the_way() {
    let key = |commands: &[&str]| {
        let mut environment = open(serde_json::json!({}), 1);
        commands.iter().for_each(|command| drop(say(&mut *environment, command)));
        environment.state_key()
    };
    assert_eq!(key(&["go to drawer 1", "open drawer 1"]), key(&["look", "go to bed 1", "go to drawer 2", "open drawer 1"]));
    assert_ne!(key(&["go to drawer 1", "open drawer 1"]), key(&["go to drawer 1", "open drawer 2"]));
    // Taken and put back is another state: the place has forgotten that nothing was ever taken.
    let there = ["go to drawer 1", "open drawer 1"];
    let back = [&there[..], &["take pen 2 from drawer 1", "move pen 2 to drawer 1"]].concat();
    assert_eq!(key(&there), key(&back));
    let moved = [&there[..], &["open drawer 2", "take pen 2 from drawer 1", "move pen 2 to drawer 2"]].concat();
    let moved_back = [&moved[..], &["take pen 2 from drawer 2", "move pen 2 to drawer 1"]].concat();
    assert_ne!(key(&[&there[..], &["open drawer 2"]].concat()), key(&moved_back));
}

#[test]
fn a_snapshot_brings_everything_back() {
    for json in [serde_json::json!({}), serde_json::json!({ "memory": { "last": 2 } })] {
        let mut played = open(json.clone(), 1);
        let mut rng = Seeds(0).rng("test", Draw::default());
        for command in ["go to bed 1", "dance", "take book 1 from bed 1", "go to drawer 1"] {
            say(&mut *played, command);
        }
        let _ = played.step(ActionText { text: "open drawer 1", complete: false });
        let snapshot = played.snapshot().expect("it has snapshots");
        let mut other = open(json, 1);
        other.restore(&snapshot).expect("it fits");
        assert_eq!(other.observe(), played.observe());
        assert_eq!(other.state_key(), played.state_key());
        assert_eq!(other.admissible(), played.admissible());
        assert_eq!(other.snapshot(), played.snapshot());
        for _ in 0..20 {
            let command = played.expert(&mut rng);
            assert_eq!(other.expert(&mut rng), command);
            let Some(command) = command else { break };
            assert_eq!(say(&mut *other, &command), say(&mut *played, &command));
        }
        assert_eq!(played.stage(), Some(2));
    }
}

#[test]
fn a_snapshot_that_does_not_fit_is_refused() {
    let mut environment = open(serde_json::json!({}), 1);
    say(&mut *environment, "go to bed 1");
    let good = environment.snapshot().expect("it has snapshots");
    let mut other = open(serde_json::json!({}), 2);
    assert!(matches!(other.restore(&good), Err(RestoreError::Foreign { .. })));
    let mut rules = open(serde_json::json!({ "max_turns": 7 }), 1);
    assert!(matches!(rules.restore(&good), Err(RestoreError::Foreign { .. })));

    let before = environment.observe();
    let mut newer = good.clone();
    newer.version += 1;
    assert!(matches!(environment.restore(&newer), Err(RestoreError::Version { .. })));
    let mut told = good.clone();
    told.observation.insert(3, '!');
    assert_eq!(environment.restore(&told), Err(RestoreError::Diverged { at: 3 }));
    for at in 0..good.bytes.len() {
        let mut bad = good.clone();
        bad.bytes[at] ^= 1;
        assert!(matches!(environment.restore(&bad), Err(RestoreError::Damaged(_))), "byte {at}");
        bad.bytes.truncate(at);
        assert!(matches!(environment.restore(&bad), Err(RestoreError::Damaged(_))), "cut at {at}");
    }
    assert_eq!(environment.observe(), before);
}

/// A game file that was changed after a state of it was stored.
#[test]
fn a_snapshot_of_a_game_that_was_changed_is_refused() {
    let of = |problem: &str| Game::new(problem, "put a mug in desk.", Variant::V042).expect("a game");
    let problem = mini::GAMES[0].problem;
    let game = of(problem);
    let snapshot = game.snapshot(game.start());
    assert!(game.restore(&snapshot).is_ok());
    // One fact less: the first that opens something.
    let fact = problem.find("(openable").expect("something that opens");
    let end = fact + problem[fact..].find(')').expect("it is closed") + 1;
    let changed = of(&format!("{}{}", &problem[..fact], &problem[end..]));
    let refused = changed.restore(&snapshot).expect_err("another game").to_string();
    assert!(refused.starts_with("the snapshot belongs to another game: its fingerprint is "), "{refused}");
    // Layout alone makes no other game.
    assert!(of(&problem.replace('(', " (")).restore(&snapshot).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), lengths in proptest::collection::vec(any::<u32>(), 0..4)) {
        let mut environment = open(serde_json::json!({}), 1);
        let mut snapshot = environment.snapshot().expect("it has snapshots");
        let mut parts: Vec<u8> = lengths.iter().flat_map(|len| len.to_le_bytes()).chain(bytes).collect();
        parts.extend_from_slice(&crc32c::crc32c(&parts).to_le_bytes());
        snapshot.bytes = parts;
        prop_assert!(environment.restore(&snapshot).is_err());
    }
}

#[test]
fn the_expert_solves_every_game_in_known_words() {
    let tasks = tasks(serde_json::json!({}));
    let about = tasks.capabilities();
    let tokenizer = WordTokenizer::new(about.vocabulary.iter().chain([&about.stop]));
    let all: Vec<Start> = (0..6).map(task).map(Start::of).collect();
    for decode in [Decode::Free, Decode::Admissible] {
        let play = Play {
            agent: "actor",
            starts: &all,
            members: 2,
            temperature: 1.0,
            decode,
            keep: Keep { privileged: true, snapshots: true },
            patience: None,
            stream: "test",
            update: 0,
            seeds: Seeds(0),
        };
        let groups =
            play.expert(&tokenizer, usize::MAX, &tasks, &mut Ledger::default()).expect("the tokenizer knows the stop word");
        assert_eq!(groups.len(), 6);
        for group in &groups {
            assert!(group.leaves.iter().all(|leaf| leaf.end.success()), "{}: {:?}", group.task_name, group.leaves);
            for turn in &group.turns {
                assert!(!turn.read.contains(&0), "an unknown word in {}", turn.observation_text);
                assert_eq!(turn.action_text, tokenizer.decode(&tokenizer.encode(&turn.action_text)));
                assert!(turn.action.tokens.len() <= about.max_action_tokens);
                assert!(turn.snapshot.is_some());
                assert!(turn.privileged.as_ref().is_some_and(|text| text.starts_with("1. go to ")));
            }
        }
    }
}

#[test]
fn a_noisy_expert_strays_and_finds_its_way_back() {
    let clean = tasks(serde_json::json!({}));
    let noisy = tasks(serde_json::json!({ "expert_noise": 0.2 }));
    assert_eq!(noisy.fingerprint(), clean.fingerprint(), "the tasks stay the same");
    let play = |noisy: &AlfworldTasks, member: u32| {
        let mut rng = Seeds(0).rng("test", Draw { member, ..Draw::default() });
        let mut environment = noisy.open(&task(1), 0).expect("it opens");
        let (mut commands, mut won) = (Vec::new(), false);
        while let Some(command) = environment.expert(&mut rng) {
            assert!(environment.admissible().expect("it has commands").contains(&command));
            won |= environment
                .step(ActionText { text: &command, complete: true })
                .expect("it goes on")
                .end
                .is_some_and(|end| end.success());
            commands.push(command);
        }
        (commands, won)
    };
    let shortest = play(&clean, 0);
    let strays: Vec<_> = (0..20).map(|member| play(&noisy, member)).collect();
    assert!(strays.iter().filter(|(commands, _)| *commands != shortest.0).count() >= 10);
    assert!(strays.iter().any(|(commands, _)| commands.len() >= shortest.0.len() + 4));
    assert!(strays.iter().filter(|(_, won)| *won).count() >= 18);
    assert_eq!(play(&noisy, 3), play(&noisy, 3));
    assert_ne!(strays[0], strays[1]);
}

#[test]
fn games_are_chosen_by_kind_and_number() {
    let two = tasks(serde_json::json!({ "task_types": ["pick_two_obj_and_place", "look_at_obj_in_light"] }));
    assert_eq!(two.len("train"), 2);
    assert_eq!(two.category(&task(0)), Some(TaskType::LookAtObjInLight.to_string()));
    assert_eq!(two.name(&task(1)), "mini/pick_two_obj_and_place-SoapBar-None-GarbageCan-0/mini");
    let three = tasks(serde_json::json!({ "train_games": 3 }));
    let names: Vec<_> = (0..3).map(|index| three.category(&task(index))).collect();
    // Evenly spaced: 0, 2, 4.
    assert_eq!(names, [0, 2, 4].map(|kind| Some(TaskType::ALL[kind].to_string())));
    assert!(three.open(&task(3), 0).is_err());
    assert_ne!(two.fingerprint(), three.fingerprint());
    let none = config(serde_json::json!({ "splits": ["valid_seen"] })).tasks(Library::mini());
    assert!(none.is_err_and(|what| what.contains("no game of the six small games")));
}

#[test]
fn what_is_not_a_field_is_refused() {
    let refused = |json: serde_json::Value| serde_json::from_value::<Alfworld>(json).map_err(|error| error.to_string());
    assert!(refused(serde_json::json!({ "max_turn": 50 })).is_err_and(|what| what.contains("unknown field `max_turn`")));
    assert!(refused(serde_json::json!({ "max_turns": 0 })).is_err_and(|what| what.contains("must be in 1..=1000000")));
    assert!(refused(serde_json::json!({ "success_reward": 0 })).is_err_and(|what| what.contains("positive")));
    assert!(refused(serde_json::json!({ "variant": "v1" })).is_err_and(|what| what.contains("v211")));
}

#[test]
fn the_plugin_is_registered_and_its_example_is_good() {
    let row = ascribe_core::registry::plugin(ascribe_core::registry::Kind::Environment, "alfworld").expect("it is there");
    let config: Alfworld = toml::from_str(row.example).expect("a good example");
    assert_eq!(config.max_turns.get(), 50);
}

#[test]
fn all_real_games_are_tasks() {
    let library = match ascribe_alfworld::Source::discover().and_then(|source| Library::open(&source)) {
        Ok(library) => library,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let tasks = config(serde_json::json!({ "valid_games": 20 })).tasks(library).expect("there are games");
    let sizes: Vec<usize> = Split::ALL.iter().map(|split| tasks.len(split.name())).collect();
    println!("{} training games, {:?} of the others", sizes[0], &sizes[1..]);
    assert!(sizes.iter().all(|&size| size > 0 || tasks.splits().len() < 3));
    let tokenizer = WordTokenizer::new(&tasks.capabilities().vocabulary);
    println!("{} words", tokenizer.vocab_size());
    for index in (0..sizes[0] as u32).step_by(97) {
        let environment = tasks.open(&task(index), 0).expect("a good game");
        let text = environment.observe().text;
        assert!(!tokenizer.encode(&text).contains(&0), "an unknown word in {text}");
    }
}
