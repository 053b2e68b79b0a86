//! Key paths: `estimator.gae.lambda`, `transform.1.clip`, `policy."my.node"`.

use std::ops::Range;

use toml::Value;
use toml::de::DeValue;

/// A key's path from the top of an experiment; items of lists by their index.
pub(crate) type Path = Vec<String>;

/// Whether TOML needs no quotes around it.
fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The path as one would write it.
pub(crate) fn show(path: &[String]) -> String {
    let quoted = path.iter().map(|key| if is_bare(key) { key.clone() } else { Value::from(key.as_str()).to_string() });
    quoted.collect::<Vec<_>>().join(".")
}

/// A piece of text and its place: a part of a key, or what is wrong with it.
pub(crate) type Placed = (String, Range<usize>);

/// The parts of a dotted key, with the place of each in `text`.
///
/// # Errors
/// What is wrong, and where.
pub(crate) fn parse(text: &str) -> Result<Vec<Placed>, Placed> {
    let mut parts = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (key, len) = match quote {
            Some(quote) => {
                let end = closing(rest, quote).ok_or_else(|| (format!("{quote} is not closed"), at..text.len()))?;
                let literal = &rest[..=end];
                match DeValue::parse(literal).map(|value| value.into_inner()) {
                    Ok(DeValue::String(key)) => (key.into_owned(), literal.len()),
                    _ => return Err(("this is not a quoted key".into(), at..at + literal.len())),
                }
            }
            None => {
                let len = rest.find('.').unwrap_or(rest.len());
                match &rest[..len] {
                    "" => return Err(("a key is missing here".into(), at..at)),
                    key if !is_bare(key) => {
                        return Err(("a key without quotes has only letters, digits, `_` and `-`".into(), at..at + len));
                    }
                    key => (key.to_string(), len),
                }
            }
        };
        parts.push((key, at..at + len));
        at += len;
        match text[at..].chars().next() {
            None => return Ok(parts),
            Some('.') => at += 1,
            Some(other) => return Err(("here the key should end, or go on with `.`".into(), at..at + other.len_utf8())),
        }
    }
}

/// Where the quote that opens `text` closes.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().skip(1).find_map(|(i, c)| {
        let closes = c == quote && !escaped;
        escaped = quote == '"' && c == '\\' && !escaped;
        closes.then_some(i)
    })
}

/// Where a `KEY=VALUE` has its `=`: the first one outside quotes.
pub(crate) fn equals_sign(text: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '=' => return Some(at),
            '"' | '\'' => at += closing(&text[at..], c).unwrap_or(0),
            _ => {}
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
    None
}

/// The value at a path.
pub(crate) fn get<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |at, key| match at {
        Value::Table(table) => table.get(key),
        Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get(i)),
        _ => None,
    })
}

/// The value at a path, to change.
pub(crate) fn get_mut<'v>(value: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |at, key| match at {
        Value::Table(table) => table.get_mut(key),
        Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get_mut(i)),
        _ => None,
    })
}

/// Puts a value at a path whose parent exists. False if it does not.
pub(crate) fn set(value: &mut Value, path: &[String], new: Value) -> bool {
    let Some((last, parent)) = path.split_last() else {
        *value = new;
        return true;
    };
    match get_mut(value, parent) {
        Some(Value::Table(table)) => {
            table.insert(last.clone(), new);
            true
        }
        Some(Value::Array(items)) => match last.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
            Some(item) => {
                *item = new;
                true
            }
            None => false,
        },
        _ => false,
    }
}

/// Takes the value at a path out of its table. False if it is not in one.
pub(crate) fn remove(value: &mut Value, path: &[String]) -> bool {
    let Some((last, parent)) = path.split_last() else { return false };
    get_mut(value, parent).and_then(Value::as_table_mut).is_some_and(|table| table.remove(last).is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parts(text: &str) -> Result<Vec<String>, Placed> {
        parse(text).map(|parts| parts.into_iter().map(|(key, _)| key).collect())
    }

    #[test]
    fn dotted_keys() {
        assert_eq!(parts("a.b-c.1").unwrap(), ["a", "b-c", "1"]);
        assert_eq!(parts("a.\"x.y\".'z=w'").unwrap(), ["a", "x.y", "z=w"]);
        assert_eq!(parts("\"a\\\"b\"").unwrap(), ["a\"b"]);
        for (text, span) in
            [("", 0..0), ("a..b", 2..2), ("a.", 2..2), ("é", 0..2), ("a.\"x", 2..4), ("\"a\"b", 3..4), ("a b", 0..3)]
        {
            assert_eq!(parts(text).unwrap_err().1, span, "{text}");
        }
    }

    #[test]
    fn a_path_is_shown_as_it_would_be_written() {
        for text in ["a.b-c.1", "policy.\"my.node\".x"] {
            assert_eq!(show(&parts(text).unwrap()), text);
        }
    }

    #[test]
    fn the_equals_sign_is_the_first_outside_quotes() {
        assert_eq!(equals_sign("a=b=c"), Some(1));
        assert_eq!(equals_sign("\"a=b\".c=1"), Some(7));
        assert_eq!(equals_sign("é\"=1"), Some(3));
        assert_eq!(equals_sign("abc"), None);
    }
}
