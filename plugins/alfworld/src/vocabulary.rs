//! The words of the games, for tokenizers that read one word at a time.

use std::collections::BTreeSet;

/// Marks that are tokens of their own at the edges of a word, as in the word-level tokenizer.
const MARKS: [char; 10] = ['.', ',', ':', ';', '!', '?', '(', ')', '"', '`'];

/// Cuts a text into tokens: white space separates, and marks at the edges of a word are tokens of their own.
pub fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().flat_map(|chunk| {
        let core = chunk.trim_matches(MARKS);
        let start = chunk.len() - chunk.trim_start_matches(MARKS).len();
        let (before, after) = if core.is_empty() { (chunk, "") } else { (&chunk[..start], &chunk[start + core.len()..]) };
        let word = (!core.is_empty()).then_some(core);
        before.split_inclusive(MARKS).chain(word).chain(after.split_inclusive(MARKS))
    })
}

/// Every token of the texts that all games share, in either variant.
pub fn fixed() -> BTreeSet<&'static str> {
    SHARED.iter().copied().chain([crate::engine::HELP]).flat_map(tokens).collect()
}

/// The sentences of the games without the names in them, and every command.
const SHARED: [&str; 32] = [
    "-= Welcome to TextWorld, ALFRED! =-",
    "You are in the middle of a room. Looking quickly around you, you see a, and nothing.",
    "You are facing the. Next to it, you see.",
    "Your task is to:",
    "You arrive at loc.",
    "On the, you see. The is open. In it, you see. The is closed.",
    "You open the. You close the.",
    "You pick up the from the.",
    "You put the in/on the. You move the to the.",
    "You clean the using the. You heat the using the. You cool the using the.",
    "You turn on the. You sliced the with the.",
    "You are carrying: a. You are not carrying anything.",
    "This is a normal. This is a hot and clean sliced. This is a cool and clean sliced. This is a cold.",
    "This is on. There's nothing special about.",
    "Nothing happens.",
    "look",
    "inventory",
    "help",
    "go to",
    "examine",
    "open",
    "close",
    "take from",
    "move to",
    "put in/on",
    "clean with",
    "heat with",
    "cool with",
    "use",
    "slice with",
    "0 1 2 3 4 5 6 7 8 9",
    "look at examine the under with put a some two clean hot cool find heat and them it in on",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_at_the_edges_are_tokens() {
        let found: Vec<_> = tokens("You see a mug 1, and (nothing).\n put in/on ... a.b").collect();
        let wanted = ["You", "see", "a", "mug", "1", ",", "and", "(", "nothing", ")", ".", "put", "in/on", ".", ".", ".", "a.b"];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_words_of_a_small_game_are_known() {
        let library = crate::data::Library::mini();
        let mut known: BTreeSet<String> = fixed().into_iter().map(str::to_owned).collect();
        known.extend(library.words().iter().cloned());
        for idx in 0..library.entries().len() {
            for variant in [crate::Variant::V211, crate::Variant::V042] {
                let Ok(loaded) = library.load(idx, Some(variant)) else { panic!("game {idx} is good") };
                let mut state = loaded.game.start().clone();
                let mut text = loaded.game.intro();
                for command in &loaded.walkthrough {
                    text.push_str(&format!("\n{}\n", loaded.game.admissible(&state).join("\n")));
                    loaded.game.step(&mut state, command, &mut text);
                }
                for token in tokens(&text) {
                    assert!(known.contains(token), "`{token}` of {}", library.entries()[idx].id);
                }
            }
        }
    }
}
