//! Between text and tokens. Sampled tokens are decoded to be read, never encoded again.

use std::collections::BTreeMap;

/// Turns text into tokens and back.
pub trait Tokenizer: Send + Sync {
    /// Tokens of a text.
    fn encode(&self, text: &str) -> Vec<u32>;
    /// A text for tokens; unknown ids become the unknown word, never an error.
    fn decode(&self, tokens: &[u32]) -> String;
    /// The id of a token given by its text.
    fn token(&self, text: &str) -> Option<u32>;
    /// Number of token ids.
    fn vocab_size(&self) -> usize;
}

/// One token per word: for embedded environments, whose vocabulary is known and small.
///
/// Text is split at white space, and the marks `. , : ; ! ? ( ) " \`` at a word's edges are tokens of their own.
/// Decoding joins with single spaces.
#[derive(Clone, Debug)]
pub struct WordTokenizer {
    words: Vec<String>,
    ids: BTreeMap<String, u32>,
}

impl WordTokenizer {
    /// Stands for every word that is not in the vocabulary.
    pub const UNKNOWN: &'static str = "<unk>";
    /// Stands where a sequence has to begin with something.
    pub const START: &'static str = "<s>";

    /// A vocabulary of `words`, in the order given; what is given twice counts once. Ids 0 and 1 are
    /// [`Self::UNKNOWN`] and [`Self::START`].
    pub fn new(words: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut tokenizer = Self { words: Vec::new(), ids: BTreeMap::new() };
        tokenizer.add(Self::UNKNOWN);
        tokenizer.add(Self::START);
        for word in words {
            for part in split(word.as_ref()) {
                tokenizer.add(part);
            }
        }
        tokenizer
    }

    fn add(&mut self, word: &str) {
        if !self.ids.contains_key(word) {
            self.ids.insert(word.into(), self.words.len() as u32);
            self.words.push(word.into());
        }
    }

    /// The vocabulary, by id.
    pub fn words(&self) -> &[String] {
        &self.words
    }
}

impl Tokenizer for WordTokenizer {
    fn encode(&self, text: &str) -> Vec<u32> {
        split(text).map(|word| self.ids.get(word).copied().unwrap_or(0)).collect()
    }
    fn decode(&self, tokens: &[u32]) -> String {
        let word = |id: &u32| self.words.get(*id as usize).map_or(Self::UNKNOWN, String::as_str);
        tokens.iter().map(word).collect::<Vec<_>>().join(" ")
    }
    fn token(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }
    fn vocab_size(&self) -> usize {
        self.words.len()
    }
}

/// Words and edge marks of a text.
fn split(text: &str) -> impl Iterator<Item = &str> {
    const MARKS: &[char] = &['.', ',', ':', ';', '!', '?', '(', ')', '"', '`'];
    text.split_whitespace().flat_map(|chunk| {
        let mut parts = Vec::new();
        let mut rest = chunk;
        while let Some(mark) = rest.chars().next().filter(|c| MARKS.contains(c)) {
            let (head, tail) = rest.split_at(mark.len_utf8());
            parts.push(head);
            rest = tail;
        }
        let core = rest.trim_end_matches(MARKS);
        if !core.is_empty() {
            parts.push(core);
        }
        parts.extend(rest[core.len()..].split_inclusive(MARKS));
        parts
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_at_the_edges_are_words() {
        let parts: Vec<_> = split("You see (a mug 1), and \"x\".. ... don't <call>").collect();
        assert_eq!(
            parts,
            ["You", "see", "(", "a", "mug", "1", ")", ",", "and", "\"", "x", "\"", ".", ".", ".", ".", ".", "don't", "<call>"]
        );
    }

    #[test]
    fn unknown_words_have_a_token() {
        let t = WordTokenizer::new(["go to", "desk"]);
        assert_eq!(t.encode("go to 🍎 desk"), [2, 3, 0, 4]);
        assert_eq!(t.decode(&[2, 3, 4, 99]), "go to desk <unk>");
        assert_eq!((t.vocab_size(), t.token("desk"), t.token("🍎")), (5, Some(4), None));
    }

    proptest! {
        #[test]
        fn any_text_encodes_and_known_text_round_trips(text in "\\PC{0,40}") {
            let t = WordTokenizer::new([&text]);
            let ids = t.encode(&text);
            prop_assert_eq!(t.encode(&t.decode(&ids)), ids.clone());
            prop_assert!(ids.iter().all(|id| *id != 0 || text.contains("<unk>")));
        }
    }
}
