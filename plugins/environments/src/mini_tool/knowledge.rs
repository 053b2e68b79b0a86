//! The knowledge base: what `search` finds and `verify` checks.
//!
//! The figures are rounded ones of the real world; the facts that the text's example has are there as it has them, π with
//! the digits that its plan uses. Nothing depends on how exact they are: an answer is right if it follows from them.

use serde::Serialize;

use super::expression::{Number, literal, spelled};

/// A number that is known about something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about, one word.
    pub entity: &'static str,
    /// What is known about it, one word.
    pub attribute: &'static str,
    /// How much that is, a decimal number.
    pub number: &'static str,
}

impl Fact {
    /// What it is called: the words that find it.
    pub fn name(&self) -> String {
        format!("{} {}", self.entity, self.attribute)
    }

    /// Its number with a word per digit.
    pub fn spelled(&self) -> String {
        spelled(self.number)
    }

    /// Its number.
    pub fn value(&self) -> Number {
        literal(self.number).expect("the table holds decimal numbers")
    }
}

/// The fact of which a text has both words, and its index; the first, if there are several.
pub fn find(words: &[&str]) -> Option<usize> {
    FACTS.iter().position(|fact| words.contains(&fact.entity) && words.contains(&fact.attribute))
}

/// Facts about one attribute, by index.
pub fn about(attribute: &str) -> Vec<usize> {
    (0..FACTS.len()).filter(|i| FACTS[*i].attribute == attribute).collect()
}

const fn fact(entity: &'static str, attribute: &'static str, number: &'static str) -> Fact {
    Fact { entity, attribute, number }
}

/// π, as questions give it.
pub const PI: &str = "3.14159";

/// All facts.
pub const FACTS: &[Fact] = &[
    fact("circle", "pi", PI),
    fact("light", "speed", "299792458"),
    fact("china", "population", "1400000000"),
    fact("moon", "distance", "384400"),
    // Radius in kilometres.
    fact("earth", "radius", "6371"),
    fact("mercury", "radius", "2440"),
    fact("venus", "radius", "6052"),
    fact("mars", "radius", "3390"),
    fact("jupiter", "radius", "69911"),
    fact("saturn", "radius", "58232"),
    fact("uranus", "radius", "25362"),
    fact("neptune", "radius", "24622"),
    fact("pluto", "radius", "1188"),
    fact("moon", "radius", "1737"),
    fact("sun", "radius", "695700"),
    fact("io", "radius", "1822"),
    fact("europa", "radius", "1561"),
    fact("ganymede", "radius", "2634"),
    fact("callisto", "radius", "2410"),
    fact("titan", "radius", "2575"),
    // Mean distance from the sun in millions of kilometres.
    fact("earth", "orbit", "149.6"),
    fact("mercury", "orbit", "57.9"),
    fact("venus", "orbit", "108.2"),
    fact("mars", "orbit", "227.9"),
    fact("jupiter", "orbit", "778.5"),
    fact("saturn", "orbit", "1432"),
    fact("uranus", "orbit", "2867"),
    fact("neptune", "orbit", "4515"),
    // Acceleration of free fall in metres per second squared.
    fact("earth", "gravity", "9.8"),
    fact("mercury", "gravity", "3.7"),
    fact("venus", "gravity", "8.9"),
    fact("mars", "gravity", "3.7"),
    fact("jupiter", "gravity", "23.1"),
    fact("saturn", "gravity", "9"),
    fact("uranus", "gravity", "8.7"),
    fact("neptune", "gravity", "11"),
    fact("pluto", "gravity", "0.7"),
    fact("moon", "gravity", "1.6"),
    // Height in metres.
    fact("everest", "height", "8849"),
    fact("k2", "height", "8611"),
    fact("aconcagua", "height", "6961"),
    fact("denali", "height", "6190"),
    fact("kilimanjaro", "height", "5895"),
    fact("elbrus", "height", "5642"),
    fact("blanc", "height", "4806"),
    fact("matterhorn", "height", "4478"),
    fact("fuji", "height", "3776"),
    // Length in kilometres.
    fact("nile", "length", "6650"),
    fact("amazon", "length", "6400"),
    fact("yangtze", "length", "6300"),
    fact("mississippi", "length", "3766"),
    fact("congo", "length", "4700"),
    fact("mekong", "length", "4350"),
    fact("volga", "length", "3530"),
    fact("danube", "length", "2850"),
    fact("ganges", "length", "2525"),
    fact("rhine", "length", "1233"),
    // Year of release.
    fact("python", "release", "1991"),
    fact("gpt", "release", "2020"),
    fact("unix", "release", "1971"),
    fact("c", "release", "1972"),
    fact("tex", "release", "1978"),
    fact("perl", "release", "1987"),
    fact("haskell", "release", "1990"),
    fact("java", "release", "1995"),
    fact("git", "release", "2005"),
    fact("go", "release", "2009"),
    fact("julia", "release", "2012"),
    fact("swift", "release", "2014"),
    fact("rust", "release", "2015"),
    fact("pytorch", "release", "2016"),
    // Year of the paper.
    fact("transformer", "paper", "2017"),
    fact("backpropagation", "paper", "1986"),
    fact("lstm", "paper", "1997"),
    fact("alexnet", "paper", "2012"),
    fact("adam", "paper", "2014"),
    fact("resnet", "paper", "2015"),
    fact("alphago", "paper", "2016"),
    fact("bert", "paper", "2018"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_finds_the_fact_that_it_names() {
        let number = |text: &str| find(&text.split(' ').collect::<Vec<_>>()).map(|i| FACTS[i].number);
        assert_eq!(number("earth radius"), Some("6371"));
        assert_eq!(number("the radius of earth"), Some("6371"));
        // In the text's example `release` alone finds Python's, also for the one who asks about GPT.
        assert_eq!(number("gpt release"), Some("2020"));
        assert_eq!(number("release"), None);
        assert_eq!(number("everest radius"), None);
    }

    #[test]
    fn facts_are_single_words_and_no_two_have_one_name() {
        for (i, fact) in FACTS.iter().enumerate() {
            assert_eq!(fact.name().split_whitespace().count(), 2);
            assert_eq!(find(&[fact.entity, fact.attribute]), Some(i));
            assert!(fact.value().is_positive());
            assert_eq!(fact.value().decimal(), fact.number);
        }
    }
}
