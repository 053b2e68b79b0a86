//! Problems, and how they are shown.

use std::fmt;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str};

use crate::source::{Place, SourceKind};

/// Something wrong with an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong: one sentence that names the key.
    pub message: String,
    /// Where: the first place is the main one.
    pub marks: Vec<Mark>,
    /// What to do about it.
    pub help: Vec<String>,
}

/// A marked place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The place.
    pub place: Place,
    /// What is to be seen there; may be empty.
    pub label: String,
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), marks: Vec::new(), help: Vec::new() }
    }
    pub(crate) fn at(self, place: Option<Place>) -> Self {
        self.mark(place, "")
    }
    pub(crate) fn mark(mut self, place: Option<Place>, label: impl Into<String>) -> Self {
        self.marks.extend(place.map(|place| Mark { place, label: label.into() }));
        self
    }
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Problems are shown in the order in which their texts were read.
    fn order(&self) -> (usize, usize) {
        let place = self.marks.first().map(|mark| &mark.place);
        place.map_or((0, 0), |p| (p.source.rank, p.span.as_ref().map_or(0, |span| span.start)))
    }

    /// The problem as text, with colours for a terminal or without.
    pub fn render(&self, colours: bool) -> String {
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for line in self.rendered_by(&renderer).lines() {
            text += without_position(line).trim_end();
            text.push('\n');
        }
        text
    }

    fn rendered_by(&self, renderer: &Renderer) -> String {
        let mut group = Group::with_title(Level::ERROR.primary_title(self.message.as_str()));
        for (i, mark) in self.marks.iter().enumerate() {
            let source = &mark.place.source;
            if self.marks[..i].iter().any(|before| before.place.source == *source) {
                continue;
            }
            let path = match source.kind {
                SourceKind::File => source.name.as_str(),
                SourceKind::Environment => ENVIRONMENT,
                SourceKind::CommandLine => COMMAND_LINE,
            };
            if mark.place.span.is_none() {
                group = group.element(Origin::path(path));
                continue;
            }
            let here = self.marks[i..].iter().filter(|m| m.place.source == *source);
            let annotations = here.enumerate().filter_map(|(j, m)| {
                let kind = if i + j == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
                let label = Some(m.label.as_str()).filter(|label| !label.is_empty());
                Some(kind.span(m.place.span.clone()?).label(label))
            });
            let numbered = source.kind == SourceKind::File;
            let snippet = Snippet::source(source.text.as_str()).path(path).line_numbering(numbered).annotations(annotations);
            group = group.element(snippet);
        }
        for help in &self.help {
            let lines: Vec<String> = help.lines().map(normalize_untrusted_str).collect();
            group = group.element(Level::HELP.message(lines.join("\n")));
        }
        renderer.render(&[group])
    }
}

const COMMAND_LINE: &str = "command line";
const ENVIRONMENT: &str = "environment";

/// The header of a snippet without its line and column, which mean something in a file only.
fn without_position(line: &str) -> String {
    for name in [COMMAND_LINE, ENVIRONMENT] {
        let Some(found) = line.find(&format!("{name}:1:")) else { continue };
        let (before, after) = (&line[..found], &line[found + name.len() + 3..]);
        let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_header = (before.contains("--> ") || before.contains("::: ")) && !before.contains('|');
        if is_header && !after.contains(' ') {
            return format!("{before}{name}{after}");
        }
    }
    line.to_string()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}
impl std::error::Error for Problem {}

/// Everything that is wrong with an experiment. Shown, it says for each problem what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The problems, in the order in which their texts were read; never empty.
    pub problems: Vec<Problem>,
}

impl Report {
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(Problem::order);
        Self { problems }
    }

    /// The report as text, with colours for a terminal or without.
    pub fn render(&self, colours: bool) -> String {
        let mut text = String::new();
        for problem in &self.problems {
            text += &problem.render(colours);
            text.push('\n');
        }
        let n = self.problems.len();
        text + &format!("the experiment was not accepted: {n} problem{}", if n == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}
impl std::error::Error for Report {}

/// The candidate that was most likely meant, if one resembles the word.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |s: &str| s.to_lowercase().replace('-', "_");
    let word = plain(word);
    let candidates: Vec<(&str, String)> = candidates.into_iter().map(|c| (c, plain(c))).collect();
    let limit = |c: &str| (word.chars().count().max(c.chars().count()) / 3).max(1);
    let scored = candidates.iter().map(|(c, p)| (strsim::damerau_levenshtein(&word, p), *c, p));
    let near = scored.filter(|(distance, _, p)| *distance <= limit(p) && *distance < p.chars().count());
    if let Some((_, best, _)) = near.min_by_key(|(distance, _, _)| *distance) {
        return Some(best);
    }
    // `rate` for `learning_rate`, if only one fits
    let has = |p: &str| word.len() > 2 && p.len() > 2 && (p.contains(&word) || word.contains(p));
    let mut parts = candidates.iter().filter(|(_, p)| has(p));
    match (parts.next(), parts.next()) {
        (Some((only, _)), None) => Some(only),
        _ => None,
    }
}

/// `a`, `b` and `c`
pub(crate) fn list<S: AsRef<str>>(words: &[S], joint: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|w| format!("`{}`", w.as_ref())).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {joint} {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word() {
        let words = ["gamma", "lambda", "learning_rate", "step-po"];
        assert_eq!(nearest("lamda", words), Some("lambda"));
        assert_eq!(nearest("GAMMA", words), Some("gamma"));
        assert_eq!(nearest("step_po", words), Some("step-po"));
        assert_eq!(nearest("rate", words), Some("learning_rate"));
        assert_eq!(nearest("zzz", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest("x", ["a"]), None);
    }

    #[test]
    fn only_headers_lose_their_position() {
        assert_eq!(without_position(" --> command line:1:22"), " --> command line");
        assert_eq!(without_position(" ::: environment:1:3"), " ::: environment");
        assert_eq!(without_position("3 | --> command line:1:22"), "3 | --> command line:1:22");
        assert_eq!(without_position("error: command line:1:2"), "error: command line:1:2");
    }

    #[test]
    fn lists_read_well() {
        assert_eq!(list(&["a"], "or"), "`a`");
        assert_eq!(list(&["a", "b", "c"], "or"), "`a`, `b` or `c`");
    }
}
