//! Replays recorded episodes of the original environment and compares every observation, every list of admissible
//! commands and every outcome, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use ascribe_alfworld::{Game, Library, Source, Variant, vocabulary};
use liblzma::read::XzDecoder;
use serde::Deserialize;

const TRANSCRIPTS_VARIABLE: &str = "ASCRIBE_ALFWORLD_TRANSCRIPTS";

#[derive(Deserialize)]
struct Transcript {
    game: String,
    variant: String,
    kind: String,
    seed: u64,
    init: Seen,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Seen {
    obs: String,
    adm: Option<Vec<String>>,
    won: bool,
}

#[derive(Deserialize)]
struct Step {
    cmd: String,
    obs: String,
    adm: Option<Vec<String>>,
    won: bool,
}

#[derive(Default)]
struct Compared {
    transcripts: usize,
    steps: usize,
    lists: usize,
    words: BTreeSet<String>,
    differences: Vec<String>,
}

impl Compared {
    /// Notes where a text differs; true while the same.
    fn text(&mut self, place: &str, what: &str, wanted: &str, found: &str) -> bool {
        if wanted == found {
            return true;
        }
        let byte = wanted.bytes().zip(found.bytes()).position(|(a, b)| a != b);
        let byte = byte.unwrap_or(wanted.len().min(found.len()));
        self.differences.push(format!("{place}: {what} differs from byte {byte} on\n  wanted {wanted:?}\n  found  {found:?}"));
        false
    }

    fn seen(&mut self, place: &str, wanted: &Seen, found: &str, game: &Game, state: &ascribe_alfworld::State) -> bool {
        for word in vocabulary::tokens(&wanted.obs) {
            if !self.words.contains(word) {
                self.words.insert(word.to_owned());
            }
        }
        let mut same = self.text(place, "observation", &wanted.obs, found);
        if let Some(admissible) = &wanted.adm {
            self.lists += 1;
            same &= self.text(place, "admissible list", &admissible.join("\n"), &game.admissible(state).join("\n"));
        }
        same && self.text(place, "won", &wanted.won.to_string(), &game.won(state).to_string())
    }

    fn transcript(&mut self, game: &Game, transcript: Transcript) {
        self.transcripts += 1;
        let Transcript { game: id, variant, kind, seed, init, steps } = transcript;
        let name = format!("{id} ({variant}, {kind}, seed {seed})");
        let mut state = game.start().clone();
        if !self.seen(&format!("{name}, start"), &init, &game.intro(), game, &state) {
            return;
        }
        for (idx, step) in steps.into_iter().enumerate() {
            self.steps += 1;
            let mut found = String::new();
            game.step(&mut state, &step.cmd, &mut found);
            let place = format!("{name}, step {} `{}`", idx + 1, step.cmd);
            let wanted = Seen { obs: step.obs, adm: step.adm, won: step.won };
            if !self.seen(&place, &wanted, &found, game, &state) {
                return;
            }
            let restored = game.restore(&game.snapshot(&state));
            if restored.as_ref() != Ok(&state) {
                self.differences.push(format!("{place}: the snapshot does not restore: {restored:?}"));
                return;
            }
        }
    }
}

fn files(folder: &Path) -> Option<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).ok()?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".jsonl.xz"));
    files.sort();
    (!files.is_empty()).then_some(files)
}

#[test]
fn transcripts() {
    let given = std::env::var_os(TRANSCRIPTS_VARIABLE).map(PathBuf::from);
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/alfworld/transcripts");
    let folder = given.clone().unwrap_or(default);
    let Some(files) = files(&folder) else {
        println!("skipped: there are no transcripts (*.jsonl.xz) in `{}`; set {TRANSCRIPTS_VARIABLE}", folder.display());
        return;
    };
    let library = match Source::discover().and_then(|source| Library::open(&source)) {
        Ok(library) => library,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let faults: Vec<String> = library.faults().iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{faults:#?}");

    let numbers: BTreeMap<&str, usize> =
        library.entries().iter().enumerate().map(|(idx, entry)| (entry.id.as_str(), idx)).collect();
    let mut compared = Compared::default();
    for file in &files {
        let reader = BufReader::new(XzDecoder::new_multi_decoder(File::open(file).expect("the file was listed")));
        let mut last: Option<(String, Game)> = None;
        for (idx, line) in reader.lines().enumerate() {
            let place = format!("{}:{}", file.display(), idx + 1);
            let line = line.unwrap_or_else(|error| panic!("{place}: {error}"));
            let transcript: Transcript = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{place}: {error}"));
            let variant = match transcript.variant.as_str() {
                "v211" => Variant::V211,
                "v042" => Variant::V042,
                other => panic!("{place}: unknown variant `{other}`"),
            };
            let same = last.as_ref().is_some_and(|(id, game)| *id == transcript.game && game.variant() == variant);
            if !same {
                let Some(&number) = numbers.get(transcript.game.as_str()) else {
                    panic!("{place}: there is no game `{}` in {}", transcript.game, library.source());
                };
                let loaded = library.load(number, Some(variant)).unwrap_or_else(|error| panic!("{place}: {error}"));
                last = Some((transcript.game.clone(), loaded.game));
            }
            let (_, game) = last.as_ref().expect("just loaded");
            compared.transcript(game, transcript);
        }
    }

    let Compared { transcripts, steps, lists, words, differences } = compared;
    println!("compared {transcripts} transcripts, {steps} steps, {lists} admissible lists: {} differences", differences.len());
    for difference in differences.iter().take(10) {
        println!("{difference}");
    }
    assert!(differences.is_empty(), "{} differences, the first: {}", differences.len(), differences[0]);
    let mut known: BTreeSet<&str> = vocabulary::fixed();
    known.extend(library.words().iter().map(String::as_str));
    let unknown: Vec<&String> = words.iter().filter(|word| !known.contains(word.as_str())).collect();
    assert!(unknown.is_empty(), "words that the vocabulary lacks: {unknown:?}");
    if given.is_none() {
        assert_eq!((transcripts, steps), (2_903, 64_678));
    }
}
