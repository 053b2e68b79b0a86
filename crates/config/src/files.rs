//! Files and the files they extend.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use toml::Value;

use crate::layers::{Layer, parse};
use crate::report::Problem;
use crate::source::{Place, Source, SourceKind, forget};

/// Reads files, each after those it extends.
#[derive(Default)]
pub(crate) struct Files {
    /// What they say, lowest first.
    pub layers: Vec<Layer>,
    /// The files, lowest first.
    pub sources: Vec<Arc<Source>>,
    pub problems: Vec<Problem>,
    /// Files that are done, by their real path.
    done: Vec<PathBuf>,
    /// Files that wait for those they extend: real path and name.
    open: Vec<(PathBuf, String)>,
    /// Number of texts so far.
    pub ranks: usize,
}

impl Files {
    /// Reads a file and those it extends. `wanted` is where it was asked for. A file that two others extend counts once,
    /// where it comes first.
    pub fn read(&mut self, path: &FilePath, wanted: Option<Place>) {
        let name = path.display().to_string();
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if let Some(first) = self.open.iter().position(|(open, _)| *open == real) {
            let mut circle: Vec<&str> = self.open[first..].iter().map(|(_, name)| name.as_str()).collect();
            circle.push(&name);
            let problem = Problem::new(format!("`extends` goes in a circle: {}", circle.join(" → ")));
            return self.problems.push(problem.at(wanted).help("let one of them stand alone"));
        }
        if self.done.contains(&real) {
            return;
        }
        let text = match read(path) {
            Ok(text) => text,
            Err((message, span, text)) => {
                let source = self.source(name.clone(), text);
                let problem = Problem::new(format!("`{name}` {message}"));
                return self.problems.push(match (span, wanted) {
                    (None, Some(wanted)) => problem.at(Some(wanted)),
                    (span, wanted) => problem.at(Some(Place { source, span })).mark(wanted, "extended here"),
                });
            }
        };
        let source = self.source(name.clone(), text);
        let (mut layer, problems) = match parse(&source, self.sources.len()) {
            Ok(read) => read,
            Err(problem) => return self.problems.push(problem),
        };
        self.problems.extend(problems);
        self.open.push((real.clone(), name));
        for (base, place) in self.extends(&mut layer) {
            let base = path.parent().unwrap_or(FilePath::new("")).join(base);
            self.read(&base, place);
        }
        self.open.pop();
        self.done.push(real);
        // Only now is it known how many layers lie below.
        let number = self.layers.len();
        layer.at.values_mut().for_each(|origin| origin.layer = number);
        self.sources.push(source);
        self.layers.push(layer);
    }

    fn source(&mut self, name: String, text: String) -> Arc<Source> {
        self.ranks += 1;
        Arc::new(Source { kind: SourceKind::File, name, text, rank: self.ranks })
    }

    /// Takes the names of extended files off a layer, with their places.
    fn extends(&mut self, layer: &mut Layer) -> Vec<(String, Option<Place>)> {
        let Some(value) = layer.tree.remove("extends") else { return Vec::new() };
        let key = vec!["extends".to_string()];
        let place = |path: &[String]| layer.at.get(path).map(|origin| origin.value_place());
        let mut bases = Vec::new();
        match &value {
            Value::String(base) => bases.push((base.clone(), place(&key))),
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let place = place(&[key[0].clone(), i.to_string()]);
                    match item {
                        Value::String(base) => bases.push((base.clone(), place)),
                        _ => self.problems.push(Problem::new("`extends` takes names of files").at(place)),
                    }
                }
            }
            _ => self.problems.push(Problem::new("`extends` takes the name of a file, or a list of them").at(place(&key))),
        }
        forget(&mut layer.at, &key);
        bases
    }
}

type Unreadable = (String, Option<std::ops::Range<usize>>, String);

/// The text of a file; or why there is none, where it breaks off, and what there is.
fn read(path: &FilePath) -> Result<String, Unreadable> {
    if path.is_dir() {
        return Err(("is a folder; a file is wanted".into(), None, String::new()));
    }
    let bytes = std::fs::read(path).map_err(|e| {
        let why = match e.kind() {
            std::io::ErrorKind::NotFound => "does not exist".into(),
            std::io::ErrorKind::PermissionDenied => "cannot be read: permission denied".into(),
            _ => format!("cannot be read: {e}"),
        };
        (why, None, String::new())
    })?;
    String::from_utf8(bytes).map_err(|e| {
        let end = e.utf8_error().valid_up_to();
        let good = String::from_utf8_lossy(&e.as_bytes()[..end]).into_owned();
        let before = good.trim_end_matches('\n').len();
        let last = good[..before].char_indices().last().map_or(0, |(i, _)| i);
        ("is not UTF-8: it breaks off here".into(), Some(last..before), good)
    })
}
