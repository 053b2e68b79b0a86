//! What an official game file says through its text grammar: which of the two text variants it is written in, and
//! the task sentence.
//!
//! The variant is told from the grammar itself (the `put` command, the words on arrival, the `help` action), never
//! from the name of a folder: newer downloads keep the old folder name.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The words before the task in every game.
pub const TASK_PREFIX: &str = "Your task is to: ";

/// The two texts in which the games exist. The dynamics differ only in where objects can be cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// `put mug 1 in/on desk 1`, "You arrive at loc 24."; no `help`. The text of the earlier literature.
    V211,
    /// `move mug 1 to desk 1`, "You arrive at desk 1."; `help` is always admissible. The text of later releases.
    #[default]
    V042,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V211 => "v211",
            Self::V042 => "v042",
        })
    }
}

/// Why a grammar cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GrammarError {
    /// A part that tells the variants apart is not there.
    #[error("the grammar has no {0}")]
    Missing(&'static str),
    /// The parts disagree, or belong to a variant that is not known.
    #[error(
        "the grammar is neither of the two known texts: the put command is `{put}`, arrival says `{arrive}`, and `help` is {help}"
    )]
    Unknown {
        /// The template of the put command.
        put: String,
        /// The feedback on arrival.
        arrive: String,
        /// Whether `help` exists.
        help: &'static str,
    },
    /// The task sentence does not start as it should.
    #[error("the grammar's task is `{0}`, expected `{TASK_PREFIX}…`")]
    Task(String),
    /// The rules are not JSON.
    #[error("the grammar's rules are not valid JSON: {0}")]
    Rules(String),
}

/// What is read from a grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grammar {
    /// The text variant.
    pub variant: Variant,
    /// The task sentence, without [`TASK_PREFIX`].
    pub task: String,
}

/// Reads variant and task from the text of a grammar.
pub fn read(grammar: &str) -> Result<Grammar, GrammarError> {
    let rules = rules(grammar)?;
    let task = rhs(&rules, "task").ok_or(GrammarError::Missing("rule `task`"))?;
    let task = task.strip_prefix(TASK_PREFIX).ok_or_else(|| GrammarError::Task(task.to_owned()))?.to_owned();
    let arrive = rhs(&rules, "GotoLocation.feedback").ok_or(GrammarError::Missing("rule `GotoLocation.feedback`"))?;
    let put = template(grammar, "PutObject").ok_or(GrammarError::Missing("template of action `PutObject`"))?;
    let help = action(grammar, "help").is_some();
    let variant = match (put, arrive.split(". ").next(), help) {
        ("put {o} in/on {r}", Some("You arrive at {lend.name}"), false) => Variant::V211,
        ("move {o} to {r}", Some("You arrive at {r.name}"), true) => Variant::V042,
        _ => {
            return Err(GrammarError::Unknown {
                put: put.to_owned(),
                arrive: arrive.to_owned(),
                help: if help { "there" } else { "absent" },
            });
        }
    };
    Ok(Grammar { variant, task })
}

/// A command of one variant in the words of another; only putting things down differs.
///
/// Returns `None` for a command that has no counterpart (`help` in [`Variant::V211`]).
pub fn translate(command: &str, to: Variant) -> Option<String> {
    let put = command
        .strip_prefix("move ")
        .and_then(|rest| rest.split_once(" to "))
        .or_else(|| command.strip_prefix("put ").and_then(|rest| rest.split_once(" in/on ")));
    match (put, to) {
        (Some((object, receptacle)), Variant::V211) => Some(format!("put {object} in/on {receptacle}")),
        (Some((object, receptacle)), Variant::V042) => Some(format!("move {object} to {receptacle}")),
        (None, Variant::V211) if command == "help" => None,
        (None, _) => Some(command.to_owned()),
    }
}

/// The first block of rules: `grammar :: """ {…} """`.
fn rules(grammar: &str) -> Result<serde_json::Value, GrammarError> {
    let missing = GrammarError::Missing("block `grammar :: \"\"\" … \"\"\"`");
    let Some((_, rest)) = grammar.split_once("grammar ::") else { return Err(missing) };
    let Some((json, _)) = rest.split_once("\"\"\"").and_then(|(_, rest)| rest.split_once("\"\"\"")) else {
        return Err(missing);
    };
    serde_json::from_str(json).map_err(|error| GrammarError::Rules(error.to_string()))
}

fn rhs<'a>(rules: &'a serde_json::Value, rule: &str) -> Option<&'a str> {
    rules.get(rule)?.get(0)?.get("rhs")?.as_str()
}

/// What follows `action NAME {`.
fn action<'a>(grammar: &'a str, name: &str) -> Option<&'a str> {
    grammar
        .match_indices("action ")
        .find_map(|(at, word)| grammar[at + word.len()..].strip_prefix(name)?.trim_start().strip_prefix('{'))
}

fn template<'a>(grammar: &'a str, name: &str) -> Option<&'a str> {
    let body = action(grammar, name)?.split_once("template ::")?.1;
    Some(body.split_once('"')?.1.split_once('"')?.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grammar(put: &str, arrive: &str, task: &str, help: &str) -> String {
        format!(
            "grammar :: \"\"\"\n{{\"task\": [{{\"rhs\": \"{task}\"}}],\n\"GotoLocation.feedback\": [{{\"rhs\": \
             \"You arrive at {{{arrive}.name}}. #examineReceptacle.feedback#\"}}]}}\n\"\"\";\n\
             action PutObjectInReceptacleObject {{ template :: \"put {{o}} into {{outero}}\"; }}\n\
             action PutObject {{\n template :: \"{put}\";\n}}\n{help}"
        )
    }

    #[test]
    fn the_variant_is_told_from_the_text() {
        let old = grammar("put {o} in/on {r}", "lend", "Your task is to: put a mug in desk.", "");
        let new = grammar("move {o} to {r}", "r", "Your task is to: put a mug in desk.", "action help {}");
        let task = "put a mug in desk.".to_owned();
        assert_eq!(read(&old).unwrap(), Grammar { variant: Variant::V211, task: task.clone() });
        assert_eq!(read(&new).unwrap(), Grammar { variant: Variant::V042, task });
    }

    #[test]
    fn what_is_neither_is_an_error() {
        let mixed = grammar("put {o} in/on {r}", "r", "Your task is to: x.", "");
        assert!(matches!(read(&mixed), Err(GrammarError::Unknown { help: "absent", .. })));
        let task = grammar("put {o} in/on {r}", "lend", "do it", "");
        assert_eq!(read(&task), Err(GrammarError::Task("do it".into())));
        assert!(matches!(read(""), Err(GrammarError::Missing(_))));
        assert!(matches!(read("grammar :: \"\"\"{\"\"\""), Err(GrammarError::Rules(_))));
        assert_eq!(read("grammar :: \"\"\"{}\"\"\""), Err(GrammarError::Missing("rule `task`")));
    }

    #[test]
    fn commands_are_translated() {
        let old = "put mug 1 in/on desk 1";
        let new = "move mug 1 to desk 1";
        assert_eq!(translate(old, Variant::V042).unwrap(), new);
        assert_eq!(translate(new, Variant::V211).unwrap(), old);
        assert_eq!(translate(new, Variant::V042).unwrap(), new);
        assert_eq!(translate("look", Variant::V211).unwrap(), "look");
        assert_eq!(translate("help", Variant::V211), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = read(&text);
            let _ = translate(&text, Variant::V211);
        }
    }
}
