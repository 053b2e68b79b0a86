//! Where text came from, and places in it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::path::Path;

/// What kind of text a setting was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    /// A file.
    File,
    /// An environment variable.
    Environment,
    /// An argument of the command line.
    CommandLine,
}

/// A text that settings were read from: a file, or the single line of a variable or an argument.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub kind: SourceKind,
    /// The file's path, the variable's name, or the argument.
    pub name: String,
    pub text: String,
    /// Position in the order in which texts were read.
    pub rank: usize,
}

/// A place in a file, an environment variable or an argument of the command line.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    pub(crate) source: Arc<Source>,
    /// Bytes of the text; `None` for the whole of it.
    pub(crate) span: Option<Range<usize>>,
}

impl Place {
    /// What kind of text it is in.
    pub fn kind(&self) -> SourceKind {
        self.source.kind
    }

    /// Line and column, counted from 1 in characters; `None` for a whole text.
    pub fn line_column(&self) -> Option<(usize, usize)> {
        let span = self.span.as_ref()?;
        let text = &self.source.text;
        let before = text.get(..span.start.min(text.len())).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        Some((before.matches('\n').count() + 1, line.trim_start_matches('\u{feff}').chars().count() + 1))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.source.name;
        match (self.source.kind, self.line_column()) {
            (SourceKind::File, Some((line, column))) => write!(f, "{name}:{line}:{column}"),
            (SourceKind::File, None) => f.write_str(name),
            (SourceKind::Environment, _) => write!(f, "environment `{name}`"),
            (SourceKind::CommandLine, _) => write!(f, "command line `{name}`"),
        }
    }
}
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a key was said, and where its value.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub source: Arc<Source>,
    /// Which layer said it. The environment is one layer, and so is the command line.
    pub layer: usize,
    pub key: Range<usize>,
    pub value: Range<usize>,
}

impl Origin {
    pub fn key_place(&self) -> Place {
        Place { source: self.source.clone(), span: Some(self.key.clone()) }
    }
    pub fn value_place(&self) -> Place {
        Place { source: self.source.clone(), span: Some(self.value.clone()) }
    }
}

/// Where each key was said last.
pub(crate) type Origins = BTreeMap<Path, Origin>;

/// Drops what was said at a path and below it.
pub(crate) fn forget(at: &mut Origins, path: &[String]) {
    at.retain(|p, _| !p.starts_with(path));
}

/// What was said below `prefix`, seen from there, as said by `layer`.
pub(crate) fn below(at: &Origins, prefix: &[String], layer: usize) -> Origins {
    let inside = at.iter().filter(|(p, _)| p.len() > prefix.len() && p.starts_with(prefix));
    inside.map(|(p, origin)| (p[prefix.len()..].to_vec(), Origin { layer, ..origin.clone() })).collect()
}
