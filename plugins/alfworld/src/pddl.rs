//! The subset of PDDL in which the games are written: one problem, its objects, initial facts and goal.
//!
//! The text is lower-cased first, as the planner behind the original environment does, and comments run from `;`
//! to the end of the line. Reading never recurses on the input: nesting is limited to [`MAX_DEPTH`] and built with
//! an explicit stack, so hostile text costs an error and nothing else.

use std::fmt;

use thiserror::Error;

/// Deepest nesting of parentheses that is read. Real games need 9.
pub const MAX_DEPTH: usize = 48;

/// A place in a problem text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Byte offset from the start of the text.
    pub offset: usize,
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {} (byte {})", self.line, self.column, self.offset)
    }
}

/// Why a problem text cannot be read, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}, at {place}")]
pub struct PddlError {
    /// What is wrong.
    pub what: String,
    /// Where it is wrong.
    pub place: Place,
}

/// A node of the text: a word or a list. Offsets are bytes of the text it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// A word.
    Word {
        /// The word, lower-case.
        text: &'a str,
        /// Where it starts.
        at: usize,
    },
    /// A parenthesised list.
    List {
        /// What is in it, in order.
        items: Vec<Node<'a>>,
        /// Where its `(` stands.
        at: usize,
    },
}

impl<'a> Node<'a> {
    /// Where the node starts, in bytes.
    pub fn at(&self) -> usize {
        match self {
            Self::Word { at, .. } | Self::List { at, .. } => *at,
        }
    }

    /// The word, if it is one.
    pub fn word(&self) -> Option<&'a str> {
        match self {
            Self::Word { text, .. } => Some(text),
            Self::List { .. } => None,
        }
    }

    /// The members, if it is a list.
    pub fn list(&self) -> Option<&[Node<'a>]> {
        match self {
            Self::Word { .. } => None,
            Self::List { items, .. } => Some(items),
        }
    }
}

/// A name declared with a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Typed<'a> {
    /// The name.
    pub name: &'a str,
    /// Its type; `object` where none is written.
    pub kind: &'a str,
    /// Where the name stands, in bytes.
    pub at: usize,
}

/// One fact of the initial state: a predicate and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<'a> {
    /// The predicate.
    pub predicate: &'a str,
    /// Its arguments.
    pub args: Vec<&'a str>,
    /// Where the fact stands, in bytes.
    pub at: usize,
}

/// A problem, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem<'a> {
    /// Its name.
    pub name: &'a str,
    /// `(:objects …)`.
    pub objects: Vec<Typed<'a>>,
    /// `(:init …)`, without numeric facts (`(= …)`), in order and with repetitions.
    pub init: Vec<Fact<'a>>,
    /// The formula of `(:goal …)`.
    pub goal: Node<'a>,
}

/// Lower-cases a text the way the games need it. Byte offsets are kept.
pub fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// The place of a byte offset in a text.
pub fn place(text: &str, offset: usize) -> Place {
    let offset = offset.min(text.len());
    let before = &text.as_bytes()[..offset];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let column = offset - before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1) + 1;
    Place { offset, line, column }
}

/// An error at a byte offset of a text.
pub fn error(text: &str, offset: usize, what: impl Into<String>) -> PddlError {
    PddlError { what: what.into(), place: place(text, offset) }
}

/// Reads exactly one list from a lower-case text.
pub fn read(text: &str) -> Result<Node<'_>, PddlError> {
    let bytes = text.as_bytes();
    let mut open: Vec<(usize, Vec<Node<'_>>)> = Vec::new();
    let mut whole: Option<Node<'_>> = None;
    let mut i = 0;
    while i < bytes.len() {
        let c = bytes[i];
        if c.is_ascii_whitespace() || c == 0x0b {
            i += 1;
            continue;
        }
        if c == b';' {
            i = bytes[i..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| i + n);
            continue;
        }
        if whole.is_some() {
            return Err(error(text, i, "text after the end of the problem"));
        }
        match c {
            b'(' => {
                if open.len() == MAX_DEPTH {
                    return Err(error(text, i, format!("parentheses nest deeper than {MAX_DEPTH}")));
                }
                open.push((i, Vec::new()));
                i += 1;
            }
            b')' => {
                let Some((at, items)) = open.pop() else {
                    return Err(error(text, i, "a `)` that closes nothing"));
                };
                let list = Node::List { items, at };
                match open.last_mut() {
                    Some((_, outer)) => outer.push(list),
                    None => whole = Some(list),
                }
                i += 1;
            }
            _ => {
                let end = bytes[i..].iter().position(|&b| ends_word(b)).map_or(bytes.len(), |n| i + n);
                let word = &text[i..end];
                if let Some(bad) = word.bytes().position(|b| b < b'!' || b == 0x7f) {
                    return Err(error(text, i + bad, "a control character inside a word"));
                }
                let Some((_, items)) = open.last_mut() else {
                    return Err(error(text, i, format!("expected `(`, found `{}`", shorten(word))));
                };
                items.push(Node::Word { text: word, at: i });
                i = end;
            }
        }
    }
    if let Some((at, _)) = open.last() {
        return Err(error(text, *at, "a `(` that is never closed"));
    }
    whole.ok_or_else(|| error(text, text.len(), "the text is empty, expected `(define …)`"))
}

/// Reads a problem from a lower-case text (see [`lower`]).
pub fn problem(text: &str) -> Result<Problem<'_>, PddlError> {
    let Node::List { items, at } = read(text)? else {
        return Err(error(text, 0, "expected `(define …)`"));
    };
    let mut parts = items.into_iter();
    if parts.next().as_ref().and_then(Node::word) != Some("define") {
        return Err(error(text, at, "expected `(define (problem …) …)`"));
    }
    let (mut name, mut objects, mut init, mut goal) = (None, None, None, None);
    for part in parts {
        let at = part.at();
        let Node::List { items, .. } = part else {
            return Err(error(text, at, "expected a section such as `(:init …)`"));
        };
        let Some(head) = items.first().and_then(Node::word) else {
            return Err(error(text, at, "a section must start with its name, such as `:init`"));
        };
        let once = |seen: bool| match seen {
            true => Err(error(text, at, format!("the section `{}` is written twice", shorten(head)))),
            false => Ok(()),
        };
        match head {
            "problem" => {
                once(name.is_some())?;
                name = Some(items.get(1).and_then(Node::word).unwrap_or(""));
            }
            ":objects" => {
                once(objects.is_some())?;
                objects = Some(typed(text, &items[1..])?);
            }
            ":init" => {
                once(init.is_some())?;
                init = Some(facts(text, &items[1..])?);
            }
            ":goal" => {
                once(goal.is_some())?;
                if items.len() != 2 {
                    return Err(error(text, at, "`:goal` must hold one formula"));
                }
                goal = items.into_iter().nth(1);
            }
            ":domain" | ":metric" | ":requirements" => {}
            other => return Err(error(text, at, format!("unknown section `{}`", shorten(other)))),
        }
    }
    let missing = |section: &str| error(text, at, format!("the problem has no `{section}`"));
    Ok(Problem {
        name: name.ok_or_else(|| missing("(problem NAME)"))?,
        objects: objects.ok_or_else(|| missing("(:objects …)"))?,
        init: init.ok_or_else(|| missing("(:init …)"))?,
        goal: goal.ok_or_else(|| missing("(:goal …)"))?,
    })
}

/// Reads `a b - type c - type`: names with the type that follows them.
pub fn typed<'a>(text: &str, nodes: &[Node<'a>]) -> Result<Vec<Typed<'a>>, PddlError> {
    let mut names: Vec<Typed<'a>> = Vec::new();
    let mut untyped = 0;
    let mut nodes = nodes.iter();
    while let Some(node) = nodes.next() {
        let Some(word) = node.word() else {
            return Err(error(text, node.at(), "expected a name, found a list"));
        };
        if word != "-" {
            names.push(Typed { name: word, kind: "object", at: node.at() });
            continue;
        }
        if untyped == names.len() {
            return Err(error(text, node.at(), "a type without a name before it"));
        }
        let Some(kind) = nodes.next().and_then(Node::word) else {
            return Err(error(text, node.at(), "expected a type after `-`"));
        };
        for name in &mut names[untyped..] {
            name.kind = kind;
        }
        untyped = names.len();
    }
    Ok(names)
}

/// Reads a list of facts; numeric ones are left out.
fn facts<'a>(text: &str, nodes: &[Node<'a>]) -> Result<Vec<Fact<'a>>, PddlError> {
    let mut facts = Vec::with_capacity(nodes.len());
    for node in nodes {
        let at = node.at();
        let Some(items) = node.list() else {
            return Err(error(text, at, "expected a fact such as `(openable fridge)`"));
        };
        let Some(predicate) = items.first().and_then(Node::word) else {
            return Err(error(text, at, "a fact must start with its predicate"));
        };
        if predicate == "=" {
            continue;
        }
        let mut args = Vec::with_capacity(items.len() - 1);
        for item in &items[1..] {
            match item.word() {
                Some(word) => args.push(word),
                None => return Err(error(text, item.at(), "expected a name, found a list")),
            }
        }
        facts.push(Fact { predicate, args, at });
    }
    Ok(facts)
}

fn ends_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b || matches!(byte, b'(' | b')' | b';')
}

/// A word, cut to a length that fits a message.
pub fn shorten(word: &str) -> String {
    match word.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: &str = "\
; a comment (with parentheses
(define (problem P)
(:domain alfred)
(:objects agent1 - agent Mug_bar_1 Cup_bar_1 - object thing)
(:init (= (total-cost) 0) (Openable fridge_bar_1) (atLocation agent1 loc_bar_1)) ; tail
(:goal (and (exists (?o - object) (isClean ?o)))))";

    #[test]
    fn a_problem_is_read_in_lower_case() {
        let text = lower(SMALL);
        let problem = problem(&text).unwrap();
        assert_eq!(problem.name, "p");
        let objects: Vec<_> = problem.objects.iter().map(|o| (o.name, o.kind)).collect();
        assert_eq!(objects, [("agent1", "agent"), ("mug_bar_1", "object"), ("cup_bar_1", "object"), ("thing", "object")]);
        assert_eq!(problem.init.len(), 2);
        assert_eq!(problem.init[1].predicate, "atlocation");
        assert_eq!(problem.init[1].args, ["agent1", "loc_bar_1"]);
        assert_eq!(problem.goal.list().unwrap()[0].word(), Some("and"));
    }

    fn check_error(text: &str, what: &str, line: usize, column: usize) {
        let found = problem(text).unwrap_err();
        assert!(found.what.contains(what), "{found}");
        assert_eq!((found.place.line, found.place.column), (line, column), "{found}");
    }

    #[test]
    fn errors_say_what_and_where() {
        check_error("", "the text is empty", 1, 1);
        check_error("\n  x", "expected `(`", 2, 3);
        check_error("(define\n (problem p)", "never closed", 1, 1);
        check_error("(define (problem p)) )", "text after the end", 1, 22);
        check_error(")", "closes nothing", 1, 1);
        check_error("(problem)", "expected `(define", 1, 1);
        check_error("(define (problem p)\n(:init) (:init))", "`:init` is written twice", 2, 9);
        check_error("(define (problem p)\n(:objects - object))", "a type without a name", 2, 11);
        check_error("(define (problem p)\n(:objects a -))", "expected a type", 2, 13);
        check_error("(define (problem p)\n(:objects (a)))", "found a list", 2, 11);
        check_error("(define (problem p)\n(:init x))", "expected a fact", 2, 8);
        check_error("(define (problem p)\n(:init ()))", "start with its predicate", 2, 8);
        check_error("(define (problem p)\n(:init (p (q))))", "found a list", 2, 11);
        check_error("(define (problem p) (:goal))", "one formula", 1, 21);
        check_error("(define (problem p) (:wish))", "unknown section `:wish`", 1, 21);
        check_error("(define (problem p) (:objects) (:init))", "no `(:goal …)`", 1, 1);
        check_error("(define a\u{1}b)", "control character", 1, 10);
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let deep = "(".repeat(1_000_000);
        let found = problem(&deep).unwrap_err();
        assert!(found.what.contains("deeper than 48"), "{found}");
        let closed = format!("{}{}", "(".repeat(MAX_DEPTH), ")".repeat(MAX_DEPTH));
        assert!(read(&closed).is_ok());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = problem(&lower(&text));
        }

        #[test]
        fn no_shuffle_of_real_words_panics(words in proptest::collection::vec(
            proptest::sample::select(vec![
                "(", ")", "(", ")", "define", "problem", ":objects", ":init", ":goal", "-", "a", "and", ";", "\n", "=",
            ]), 0..60))
        {
            let _ = problem(&words.join(" "));
        }
    }
}
