//! Finding, opening, caching and surviving bad data, on small games written to a temporary folder.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use ascribe_alfworld::{DataError, Library, Source, Split, TaskType, Variant, mini};
use liblzma::write::XzEncoder;
use serde_json::json;

fn xz(path: &Path, lines: &[String]) {
    let mut encoder = XzEncoder::new(Vec::new(), 1);
    encoder.write_all(lines.join("\n").as_bytes()).expect("memory can be written");
    fs::write(path, encoder.finish().expect("memory can be written")).expect("the folder is there");
}

fn line(idx: usize, split: &str) -> String {
    let game = &mini::GAMES[idx];
    json!({ "id": format!("{split}/{idx}"), "task": game.task, "pddl_problem": game.problem }).to_string()
}

/// Six games in training, one unseen, and a walkthrough for the first.
fn packed(folder: &Path) -> PathBuf {
    let games = folder.join("games");
    fs::create_dir_all(&games).expect("the folder is there");
    xz(&games.join("train.jsonl.xz"), &(0..6).map(|idx| line(idx, "train")).collect::<Vec<_>>());
    xz(&games.join("valid_unseen.jsonl.xz"), &[line(3, "valid_unseen")]);
    xz(&games.join("walkthroughs.jsonl.xz"), &[json!({ "id": "train/1", "walkthrough": ["move a 1 to b 1"] }).to_string()]);
    games
}

fn grammar(variant: Variant, task: &str) -> String {
    let (put, arrive, help) = match variant {
        Variant::V211 => ("put {o} in/on {r}", "lend", ""),
        Variant::V042 => ("move {o} to {r}", "r", "action help { template :: \"help\"; }"),
    };
    format!(
        "grammar :: \"\"\"{{\"task\": [{{\"rhs\": \"Your task is to: {task}\"}}], \"GotoLocation.feedback\": [{{\"rhs\": \
         \"You arrive at {{{arrive}.name}}. #examineReceptacle.feedback#\"}}]}}\"\"\";\n\
         action PutObject {{ template :: \"{put}\"; }}\n{help}"
    )
}

fn write_official(folder: &Path, split: &str, task: &str, idx: usize, variant: Variant, solvable: Option<bool>) {
    let game = &mini::GAMES[idx];
    let trial = folder.join("json_2.1.1").join(split).join(task).join("trial_1");
    fs::create_dir_all(&trial).expect("the folder is there");
    let mut file = json!({
        "pddl_domain": "", "grammar": grammar(variant, game.task), "pddl_problem": game.problem,
        "walkthrough": game.walkthrough(variant),
    });
    if let Some(solvable) = solvable {
        file["solvable"] = solvable.into();
    }
    fs::write(trial.join("game.tw-pddl"), file.to_string()).expect("the folder is there");
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is room for a temporary folder")
}

fn open(source: &Source, cache: Option<&Path>) -> Library {
    Library::open_cached(source, cache).expect("the games are there")
}

#[test]
fn packed_games_are_opened_and_cached() {
    let folder = temporary();
    let source = Source::at(&packed(folder.path())).expect("it is a folder of packed games");
    let cache = folder.path().join("cache/deep");
    let first = open(&source, Some(&cache));
    assert_eq!((first.was_cached(), first.entries().len(), first.faults().len()), (false, 7, 0));
    let entry = &first.entries()[1];
    assert_eq!((entry.id.as_str(), entry.split, entry.task_type), ("train/1", Split::Train, TaskType::PickAndPlaceSimple));
    assert_eq!(first.entries()[6].split, Split::ValidUnseen);

    let second = open(&source, Some(&cache));
    assert!(second.was_cached());
    assert_eq!((second.entries(), second.words()), (first.entries(), first.words()));
    for idx in 0..7 {
        let loaded = second.load(idx, Some(Variant::V211)).expect("a good game");
        assert_eq!(loaded, first.load(idx, Some(Variant::V211)).expect("a good game"));
        let wanted: &[&str] = if idx == 1 { &["put a 1 in/on b 1"] } else { &[] };
        assert_eq!(loaded.walkthrough, wanted);
    }
    assert!(matches!(second.load(7, None), Err(DataError::NoGame { idx: 7, len: 7 })));
}

#[test]
fn a_stale_or_damaged_cache_is_made_again() {
    let folder = temporary();
    let games = packed(folder.path());
    let source = Source::Packed(games.clone());
    let cache = folder.path().join("cache");
    open(&source, Some(&cache));
    let file = fs::read_dir(&cache).expect("it was made").next().expect("with a file").expect("readable").path();
    let good = fs::read(&file).expect("readable");

    let cut = good[..good.len() / 2].to_vec();
    let flipped = good.iter().enumerate().map(|(i, b)| if i == good.len() - 9 { b ^ 1 } else { *b }).collect();
    let foreign = b"something else".to_vec();
    for bad in [cut, flipped, foreign, Vec::new()] {
        fs::write(&file, bad).expect("writable");
        assert!(!open(&source, Some(&cache)).was_cached());
        assert!(open(&source, Some(&cache)).was_cached());
    }

    xz(&games.join("valid_unseen.jsonl.xz"), &[line(3, "valid_unseen"), line(4, "other")]);
    let changed = open(&source, Some(&cache));
    assert_eq!((changed.was_cached(), changed.entries().len()), (false, 8));
    assert_eq!(fs::read_dir(&cache).expect("it is there").count(), 1, "one file per source, nothing temporary");
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let folder = temporary();
    let source = Source::Packed(packed(folder.path()));
    // A file where the folder should be.
    let blocked = folder.path().join("blocked");
    fs::write(&blocked, "").expect("writable");
    for cache in [Some(blocked.as_path()), None] {
        let library = open(&source, cache);
        assert_eq!((library.was_cached(), library.entries().len()), (false, 7));
        assert!(library.load(0, None).is_ok());
    }
}

#[test]
fn a_bad_game_names_its_place_and_stops_no_other() {
    let folder = temporary();
    let games = packed(folder.path());
    let broken = json!({ "id": "train/9", "task": "x", "pddl_problem": "(define (problem p)\n (:init" }).to_string();
    let lines = [line(0, "train"), broken, "{".into(), String::new(), line(0, "train"), line(1, "train")];
    xz(&games.join("train.jsonl.xz"), &lines);
    let library = open(&Source::Packed(games.clone()), None);
    assert_eq!(library.entries().len(), 3);
    let faults: Vec<String> = library.faults().iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 3, "{faults:?}");
    let train = games.join("train.jsonl.xz").display().to_string();
    assert!(faults[0].starts_with(&format!("{train}, line 2: game `train/9`: a `(` that is never closed, at line 2")));
    assert!(faults[1].starts_with(&format!("{train}, line 3: EOF")), "{}", faults[1]);
    assert!(faults[2].contains("`train/0` occurs twice"), "{}", faults[2]);

    // The same from the cache.
    let cache = folder.path().join("cache");
    open(&Source::Packed(games.clone()), Some(&cache));
    assert_eq!(open(&Source::Packed(games), Some(&cache)).faults(), library.faults());
}

#[test]
fn a_damaged_file_keeps_what_comes_before() {
    let folder = temporary();
    let games = packed(folder.path());
    let file = games.join("train.jsonl.xz");
    fs::write(&file, &fs::read(&file).expect("readable")[..200]).expect("writable");
    let library = open(&Source::Packed(games), None);
    assert_eq!(library.entries().last().map(|entry| entry.split), Some(Split::ValidUnseen));
    assert!(library.faults()[0].what.contains("damaged from here on"), "{}", library.faults()[0]);
}

#[test]
fn official_games_are_opened() {
    let folder = temporary();
    let name = "pick_clean_then_place_in_recep-Plate-None-Cabinet-1";
    write_official(folder.path(), "train", name, 2, Variant::V211, Some(true));
    write_official(folder.path(), "valid_seen", name, 2, Variant::V042, None);
    write_official(folder.path(), "train", "pick_and_place_simple-A-None-B-1", 1, Variant::V211, Some(false));
    write_official(folder.path(), "train", "pick_and_place_with_movable_recep-A-B-C-1", 1, Variant::V211, Some(true));
    write_official(folder.path(), "train", "pick_and_place_simple-BreadSliced-None-B-1", 1, Variant::V211, Some(true));
    let broken = folder.path().join("json_2.1.1/valid_unseen/task/trial_1");
    fs::create_dir_all(&broken).expect("the folder is there");
    fs::write(broken.join("game.tw-pddl"), "{}").expect("writable");

    let source = Source::at(folder.path()).expect("it is an official download");
    let cache = folder.path().join("cache");
    for cached in [false, true] {
        let library = open(&source, Some(&cache));
        assert_eq!(library.was_cached(), cached);
        let ids: Vec<&str> = library.entries().iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, [format!("train/{name}/trial_1"), format!("valid_seen/{name}/trial_1")]);
        assert_eq!(library.entries()[0].variant, Some(Variant::V211));
        assert_eq!(library.entries()[1].variant, Some(Variant::V042));
        let fault = library.faults()[0].to_string();
        assert!(fault.contains("valid_unseen") && fault.contains("missing field `grammar`"), "{fault}");

        let own = library.load(0, None).expect("a good game");
        assert_eq!((own.game.variant(), own.walkthrough[5].as_str()), (Variant::V211, "put plate 1 in/on cabinet 1"));
        let other = library.load(0, Some(Variant::V042)).expect("a good game");
        assert_eq!(other.walkthrough[5], "move plate 1 to cabinet 1");
        assert_eq!(other.privileged().lines().last(), Some("6. move plate 1 to cabinet 1"));
    }
}

#[test]
fn absent_data_say_what_gets_them() {
    let folder = temporary();
    let named = |name: &str| {
        let path = folder.path().as_os_str().to_owned();
        let wanted = name.to_owned();
        let error = Source::discover_with(move |asked| (asked == wanted).then(|| path.clone())).expect_err("it is empty");
        error.to_string()
    };
    for name in ["ASCRIBE_ALFWORLD_GAMES", "ALFWORLD_DATA"] {
        let message = named(name);
        assert!(message.contains(&format!("{name} is set to `")), "{message}");
        assert!(message.contains("run `alfworld-download`") && message.contains("ASCRIBE_ALFWORLD_GAMES"), "{message}");
    }
    let gone = folder.path().join("gone");
    assert!(matches!(Library::open_cached(&Source::Packed(gone.clone()), None), Err(DataError::Absent(_))));
    assert!(matches!(Library::open_cached(&Source::Official(gone), None), Err(DataError::Absent(_))));
}

#[test]
fn variables_name_the_games() {
    let folder = temporary();
    let games = packed(folder.path());
    let download = folder.path().join("download");
    write_official(&download, "train", "task", 0, Variant::V042, None);
    let games_value = games.clone().into_os_string();
    let download_value = download.clone().into_os_string();
    let both = Source::discover_with(|name| match name {
        "ASCRIBE_ALFWORLD_GAMES" => Some(games_value.clone()),
        _ => Some(download_value.clone()),
    });
    assert_eq!(both.expect("both are there"), Source::Packed(games));
    let official = Source::discover_with(|name| (name == "ALFWORLD_DATA").then(|| download_value.clone()));
    assert_eq!(official.expect("it is there"), Source::Official(download.join("json_2.1.1")));
}

#[test]
fn the_small_games_are_a_library() {
    let library = Library::mini();
    assert_eq!((library.entries().len(), library.faults().len()), (6, 0));
    let kinds: Vec<TaskType> = library.entries().iter().map(|entry| entry.task_type).collect();
    assert_eq!(kinds, TaskType::ALL);
    assert!(library.words().iter().any(|word| word == "keychain"));
}
