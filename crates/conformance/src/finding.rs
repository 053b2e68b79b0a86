//! What came out where a check did not hold.

use std::fmt;

use ascribe_core::environment::TaskId;

/// Characters that are shown on either side of the first byte that differs.
const AROUND: usize = 30;
/// Actions that are shown of those that led there; what came before is counted.
const LAST: usize = 6;
/// Characters that are shown of an action.
const LONGEST: usize = 40;

/// What came out where a check did not hold: for people as [`fmt::Display`] writes it, and in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong, in a sentence.
    pub why: String,
    /// The episode in which it showed; none where no episode was played.
    pub place: Option<Box<Place>>,
    /// Where two that must be equal differ.
    pub difference: Option<Box<Difference>>,
    /// What mends it; empty where the check does not know.
    pub remedy: String,
}

/// A point of an episode: what reproduces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The task.
    pub task: TaskId,
    /// The seed that the episode was opened with.
    pub seed: u64,
    /// The turns that were made, as what was said.
    pub actions: Vec<Said>,
}

/// What was said at a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The text.
    pub text: String,
    /// Whether it came to its stop word.
    pub complete: bool,
}

/// The first byte in which two differ, with what stands around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What they are, e.g. `observation`.
    pub of: String,
    /// The first byte that differs.
    pub at: usize,
    /// What is expected: who says so, and what stands around the byte.
    pub expected: (String, String),
    /// What came instead.
    pub found: (String, String),
}

impl Difference {
    /// Compares byte for byte; `None` where they are equal.
    pub(crate) fn between(of: &str, expected: (&str, &[u8]), found: (&str, &[u8])) -> Option<Box<Self>> {
        let (a, b) = (expected.1, found.1);
        let at = a.iter().zip(b).position(|(x, y)| x != y).or((a.len() != b.len()).then_some(a.len().min(b.len())))?;
        Some(Box::new(Self {
            of: of.into(),
            at,
            expected: (expected.0.into(), around(a, at)),
            found: (found.0.into(), around(b, at)),
        }))
    }
}

/// What stands around a byte, quoted; `…` where more stands before or after.
fn around(bytes: &[u8], at: usize) -> String {
    let (from, to) = (at.saturating_sub(AROUND), (at + AROUND).min(bytes.len()));
    let more = |is: bool| if is { "…" } else { "" };
    let shown = String::from_utf8_lossy(&bytes[from..to]);
    format!("{}\"{}\"{}", more(from > 0), shown.escape_debug(), more(to < bytes.len()))
}

impl From<String> for Finding {
    fn from(why: String) -> Self {
        Self { why, ..Self::default() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, seed, actions } = self;
        write!(f, "task {task}, seed {seed}, ")?;
        match actions.len() {
            0 => return f.write_str("at the start"),
            1 => f.write_str("after 1 turn: ")?,
            n => write!(f, "after {n} turns: ")?,
        }
        let first = actions.len().saturating_sub(LAST);
        let last = actions[first..].iter().map(Said::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "{}{last}", if first > 0 { "…, " } else { "" })
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start: String = self.text.chars().take(LONGEST).collect();
        let more = if start.len() < self.text.len() { "…" } else { "" };
        write!(f, "\"{}\"{more}{}", start.escape_debug(), if self.complete { "" } else { " (cut)" })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        if let Some(place) = &self.place {
            write!(f, "\n  where     {place}")?;
        }
        if let Some(Difference { of, at, expected, found }) = self.difference.as_deref() {
            let width = expected.0.chars().count().max(found.0.chars().count());
            write!(f, "\n  differs   {of}, first at byte {at}")?;
            for (who, what) in [expected, found] {
                write!(f, "\n              {who:<width$}  {what}")?;
            }
        }
        if !self.remedy.is_empty() {
            write!(f, "\n  remedy    {}", self.remedy)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_byte_is_found() {
        let at = |a: &str, b: &str| Difference::between("x", ("a", a.as_bytes()), ("b", b.as_bytes())).map(|d| d.at);
        assert_eq!(at("abc", "abc"), None);
        assert_eq!(at("", ""), None);
        assert_eq!(at("abc", "abd"), Some(2));
        assert_eq!(at("abc", "ab"), Some(2));
        assert_eq!(at("", "a"), Some(0));
    }

    #[test]
    fn what_stands_around_is_cut_and_quoted() {
        let long = format!("{}\nend{}", "a".repeat(100), "b".repeat(100));
        let shown = around(long.as_bytes(), 100);
        assert_eq!(shown, format!("…\"{}\\nend{}\"…", "a".repeat(30), "b".repeat(26)));
        // A character that is cut in the middle, and bytes that are no text.
        assert!(around("é".repeat(60).as_bytes(), 41).starts_with("…\"\u{fffd}"));
        assert_eq!(around(&[0xff, 0], 0), "\"\u{fffd}\\0\"");
    }

    #[test]
    fn it_reads_well() {
        let said = |text: &str, complete| Said { text: text.into(), complete };
        let actions = vec![said("read", true), said(&"x".repeat(50), false)];
        let finding = Finding {
            why: "the restored state is another one".into(),
            place: Some(Box::new(Place { task: TaskId { split: "train".into(), index: 3 }, seed: 1, actions })),
            difference: Difference::between("observation", ("saved", b"at 1"), ("restored", b"at 2")),
            remedy: "save all of it".into(),
        };
        let shown = format!(
            "the restored state is another one\n  \
               where     task train/3, seed 1, after 2 turns: \"read\", \"{}\"… (cut)\n  \
               differs   observation, first at byte 3\n              \
                           saved     \"at 1\"\n              \
                           restored  \"at 2\"\n  \
               remedy    save all of it",
            "x".repeat(40)
        );
        assert_eq!(finding.to_string(), shown);
    }
}
