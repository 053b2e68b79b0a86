//! How alike two texts are, as Python's `difflib.SequenceMatcher` counts it (Ratcliff and Obershelp, "gestalt pattern
//! matching", 1988), and greedy groups of texts that are alike.
//!
//! Texts are compared by Unicode scalar values. As in CPython, a character that occurs more than `n/100 + 1` times in a
//! second text of `n ≥ 200` characters starts no match (`autojunk`), but extends one.

use std::collections::BTreeMap;
use std::ops::Range;

/// From so many characters on, frequent ones start no match.
const AUTOJUNK_FROM: usize = 200;

/// `SequenceMatcher(None, a, b).ratio()`: `2·M / (|a| + |b|)` with M characters in matching blocks; 1 for two empty texts.
///
/// Not symmetric: which blocks are found depends on the order, and `autojunk` looks at `b` alone.
pub fn ratio(a: &str, b: &str) -> f64 {
    let a: Vec<char> = a.chars().collect();
    Matcher::new(b).ratio(&a)
}

/// Groups texts greedily, in order: each joins the first group to whose first member it has a ratio of at least
/// `threshold`, or begins a group.
///
/// * `texts`: `[members]`; a text is the first argument of the ratio, a group's first member the second
///
/// Returns the number of each text's group, `[members]`, in order of first appearance. Being alike is not transitive: in
/// another order the groups can be others.
pub fn similar_clusters(texts: &[&str], threshold: f64) -> Vec<u32> {
    let mut groups: Vec<Matcher> = Vec::new();
    // Groups are only ever appended, so an equal text finds the same first one.
    let mut known: BTreeMap<&str, u32> = BTreeMap::new();
    let mut group_of = |text: &str| {
        let a: Vec<char> = text.chars().collect();
        let found = groups.iter().position(|group| group.ratio_at_most(&a) >= threshold && group.ratio(&a) >= threshold);
        let group = found.unwrap_or_else(|| {
            groups.push(Matcher::new(text));
            groups.len() - 1
        });
        u32::try_from(group).expect("fewer than 2^32 groups fit in memory")
    };
    texts.iter().map(|text| *known.entry(text).or_insert_with(|| group_of(text))).collect()
}

/// The second text of comparisons.
struct Matcher {
    b: Vec<char>,
    /// Positions in `b`, by character and ascending.
    positions: Vec<u32>,
    /// Its characters, ascending, with their part of `positions`.
    places: Vec<(char, Range<usize>)>,
}

impl Matcher {
    fn new(b: &str) -> Self {
        let b: Vec<char> = b.chars().collect();
        let mut positions: Vec<u32> = (0..).take(b.len()).collect();
        positions.sort_by_key(|j| b[*j as usize]);
        let mut places = Vec::new();
        let mut start = 0;
        for same in positions.chunk_by(|i, j| b[*i as usize] == b[*j as usize]) {
            places.push((b[same[0] as usize], start..start + same.len()));
            start += same.len();
        }
        Self { b, positions, places }
    }

    /// Part of `positions` that belongs to `c`; empty if `b` lacks it.
    fn places_of(&self, c: char) -> Range<usize> {
        self.places.binary_search_by_key(&c, |(c, _)| *c).map_or(0..0, |at| self.places[at].1.clone())
    }

    /// An upper bound of the ratio: every character that both have matches.
    fn ratio_at_most(&self, a: &[char]) -> f64 {
        let mut free: BTreeMap<char, usize> = self.places.iter().map(|(c, places)| (*c, places.len())).collect();
        let both = a.iter().filter(|c| match free.get_mut(c) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        });
        self.of_total(both.count(), a.len())
    }

    fn ratio(&self, a: &[char]) -> f64 {
        let popular = if self.b.len() >= AUTOJUNK_FROM { self.b.len() / 100 + 1 } else { usize::MAX };
        let starts: Vec<&[u32]> = a
            .iter()
            .map(|c| self.places_of(*c))
            .map(|places| if places.len() > popular { &[] } else { &self.positions[places] })
            .collect();
        // Run lengths that end at each position of `b`, at one of `a` and the one before it; 0 between calls.
        let (mut runs, mut before) = (vec![0; self.b.len()], vec![0; self.b.len()]);
        let mut matched = 0;
        let mut open = vec![(0..a.len(), 0..self.b.len())];
        while let Some((in_a, in_b)) = open.pop() {
            let (i, j, n) = self.longest_match(a, &starts, in_a.clone(), in_b.clone(), &mut runs, &mut before);
            if n > 0 {
                matched += n;
                open.push((in_a.start..i, in_b.start..j));
                open.push((i + n..in_a.end, j + n..in_b.end));
            }
        }
        self.of_total(matched, a.len())
    }

    fn of_total(&self, matched: usize, len_a: usize) -> f64 {
        let total = len_a + self.b.len();
        if total == 0 { 1.0 } else { 2.0 * matched as f64 / total as f64 }
    }

    /// The longest block `a[i..i + n] == b[j..j + n]` in these ranges, with the least i and then the least j, begun by a
    /// character that may start a match and extended by any.
    fn longest_match(
        &self,
        a: &[char],
        starts: &[&[u32]],
        in_a: Range<usize>,
        in_b: Range<usize>,
        runs: &mut Vec<u32>,
        before: &mut Vec<u32>,
    ) -> (usize, usize, usize) {
        let inside = |places: &'_ [u32]| {
            let low = places.partition_point(|j| (*j as usize) < in_b.start);
            low..places.partition_point(|j| (*j as usize) < in_b.end)
        };
        let (mut i, mut j, mut n) = (in_a.start, in_b.start, 0);
        for end_a in in_a.clone() {
            for end_b in &starts[end_a][inside(starts[end_a])] {
                let end_b = *end_b as usize;
                let run = if end_b > 0 { before[end_b - 1] + 1 } else { 1 };
                runs[end_b] = run;
                if run as usize > n {
                    n = run as usize;
                    (i, j) = (end_a + 1 - n, end_b + 1 - n);
                }
            }
            if end_a > in_a.start {
                starts[end_a - 1].iter().for_each(|end_b| before[*end_b as usize] = 0);
            }
            std::mem::swap(runs, before);
        }
        if let Some(last) = in_a.clone().last() {
            starts[last].iter().for_each(|end_b| before[*end_b as usize] = 0);
        }
        while i > in_a.start && j > in_b.start && a[i - 1] == self.b[j - 1] {
            (i, j, n) = (i - 1, j - 1, n + 1);
        }
        while i + n < in_a.end && j + n < in_b.end && a[i + n] == self.b[j + n] {
            n += 1;
        }
        (i, j, n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hand_worked() {
        // "bcd" of 4 + 4 characters
        assert_eq!(ratio("abcd", "bcde"), 0.75);
        assert_eq!((ratio("", ""), ratio("a", ""), ratio("", "a")), (1.0, 0.0, 0.0));
        // "itt", then "n" behind it: 4 of 13
        assert_eq!(ratio("kitten", "sitting"), 8.0 / 13.0);
        assert_eq!(ratio("你好世界", "你好,世界"), 8.0 / 9.0);
    }

    #[test]
    fn the_order_of_the_texts_matters() {
        // From "tide", the longest block with the least start is "t"; from "diet" it is "di" … "e".
        assert_eq!((ratio("tide", "diet"), ratio("diet", "tide")), (0.25, 0.5));
    }

    #[test]
    fn frequent_characters_of_a_long_text_start_no_match() {
        let (short, long) = ("ab".repeat(99), "ab".repeat(100));
        assert_eq!(ratio(&long, &short), 2.0 * 198.0 / 398.0);
        // Both characters occur 100 times in 200, more than 3: nothing starts, but equal starts are extended.
        assert_eq!(ratio(&short, &long), 2.0 * 198.0 / 398.0);
        assert_eq!(ratio(&format!("x{short}"), &long), 0.0);
    }

    #[test]
    fn a_text_joins_the_first_group_that_is_alike() {
        // "abcdefgh" and "abcdefXY" have 0.75; the third is as near to both.
        assert_eq!(similar_clusters(&["abcdefgh", "abcdefXY", "abcdefgh"], 0.8), [0, 1, 0]);
        assert_eq!(similar_clusters(&["abcdefgh", "abcdefXY", "zz"], 0.75), [0, 0, 1]);
    }

    #[test]
    fn being_alike_is_not_transitive_so_the_order_decides() {
        // Neighbours have 3 of 4 letters in common, the ends 2.
        let (left, middle, right) = ("abcd", "bcde", "cdef");
        assert_eq!((ratio(left, middle), ratio(middle, right), ratio(left, right)), (0.75, 0.75, 0.5));
        assert_eq!(similar_clusters(&[left, middle, right], 0.75), [0, 0, 1]);
        assert_eq!(similar_clusters(&[middle, left, right], 0.75), [0, 0, 0]);
    }

    /// The definition, slowly: the longest block anywhere, then left and right of it. Without `autojunk`.
    fn matched(a: &[char], b: &[char]) -> usize {
        let mut best = (0, 0, 0);
        for i in 0..a.len() {
            for j in 0..b.len() {
                let n = a[i..].iter().zip(&b[j..]).take_while(|(x, y)| x == y).count();
                if n > best.2 {
                    best = (i, j, n);
                }
            }
        }
        let (i, j, n) = best;
        if n == 0 { 0 } else { n + matched(&a[..i], &b[..j]) + matched(&a[i + n..], &b[j + n..]) }
    }

    proptest! {
        #[test]
        fn it_is_the_definition(a in "[a-d]{0,30}", b in "[a-d]{0,30}") {
            let (x, y): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            let total = (x.len() + y.len()).max(1);
            let want = if x.is_empty() && y.is_empty() { 1.0 } else { 2.0 * matched(&x, &y) as f64 / total as f64 };
            prop_assert_eq!(ratio(&a, &b), want);
            prop_assert!(Matcher::new(&b).ratio_at_most(&x) >= want);
        }

        #[test]
        fn equal_texts_are_wholly_alike(a in "[ab]{0,300}") {
            prop_assert_eq!(ratio(&a, &a), 1.0);
        }

        #[test]
        fn groups_are_those_of_the_plain_loop(texts in prop::collection::vec("[ab]{0,6}", 0..12), threshold in 0.1..0.9f64) {
            let mut first: Vec<&str> = Vec::new();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let want: Vec<u32> = texts.iter().map(|text| {
                let found = first.iter().position(|f| ratio(text, f) >= threshold);
                found.unwrap_or_else(|| { first.push(text); first.len() - 1 }) as u32
            }).collect();
            prop_assert_eq!(similar_clusters(&texts, threshold), want);
        }
    }
}
