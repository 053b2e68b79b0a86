//! Text from outside, made visible.
//!
//! Names of arms and tasks, questions, predictions and reasons of failures come from files and programs of others. A character that
//! shows nothing may hide a part of them, one that turns the text around may make them read as something else, and one that a
//! terminal obeys may rewrite what stands there already. Whatever is read by people has passed through here.

use std::borrow::Cow;

/// What is not seen, or changes how its surroundings are seen: controls, bidirectional marks, separators, fillers, tags. Both ends
/// are meant. Joiners (U+200C, U+200D) and variation selectors are not among them: scripts and emoji are written with them.
const HIDDEN: [(char, char); 17] = [
    ('\u{0}', '\u{8}'),
    ('\u{b}', '\u{1f}'),
    ('\u{7f}', '\u{9f}'),
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200b}'),
    ('\u{200e}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{e0000}', '\u{e007f}'),
];

fn is_hidden(c: char) -> bool {
    HIDDEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// One line of text in which nothing is hidden: `U+202E` stands as `[U+202E]`, and a line break or tab is a space.
pub fn visible(text: &str) -> Cow<'_, str> {
    match visible_lines(text) {
        lines if lines.contains(['\n', '\t']) => lines.replace(['\n', '\t'], " ").into(),
        line => line,
    }
}

/// The same for text whose line breaks and tabs mean something.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // How some editors end lines.
            '\r' if rest.peek() == Some(&'\n') => {}
            c if is_hidden(c) => out += &format!("[U+{:04X}]", u32::from(c)),
            c => out.push(c),
        }
    }
    out.into()
}

/// The same characters as a class of a regular expression in JavaScript, with the flag `u`: for scripts of pages, which show such text
/// themselves.
pub fn hidden_class() -> String {
    let range = |(first, last): &(char, char)| format!("\\u{{{:x}}}-\\u{{{:x}}}", u32::from(*first), u32::from(*last));
    format!("[{}]", HIDDEN.iter().map(range).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_hides_or_turns_is_named() {
        let hostile = "a\u{202e}b\u{2066}c\u{1b}[31md\0e\u{7}f\rg\u{9b}h\u{200b}i";
        let want = "a[U+202E]b[U+2066]c[U+001B][31md[U+0000]e[U+0007]f[U+000D]g[U+009B]h[U+200B]i";
        assert_eq!(visible(hostile), want);
        assert_eq!(visible_lines(hostile), want);
    }

    #[test]
    fn line_breaks_stay_where_they_mean_something() {
        assert_eq!(visible_lines("one\r\n\ttwo\nthree\r"), "one\n\ttwo\nthree[U+000D]");
        assert_eq!(visible("one\r\n\ttwo\nthree"), "one  two three");
    }

    #[test]
    fn text_of_all_scripts_is_left_alone() {
        for text in ["λ = 0.9, Größe", "信用分配", "שלום", "नमस्ते क्‍ष", "👩‍🔬 ☂\u{fe0f}"]
        {
            assert!(matches!(visible(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn scripts_are_told_the_same_characters() {
        let class = hidden_class();
        assert!(class.starts_with(r"[\u{0}-\u{8}\u{b}-\u{1f}") && class.ends_with(r"\u{e0000}-\u{e007f}]"), "{class}");
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left(text in any::<String>()) {
            let (line, lines) = (visible(&text), visible_lines(&text));
            prop_assert!(!line.contains(char::is_control) && !line.contains(is_hidden));
            prop_assert!(!lines.contains(is_hidden));
            prop_assert_eq!(visible_lines(&lines), lines.clone());
        }
    }
}
