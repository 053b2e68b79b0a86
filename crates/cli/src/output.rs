//! What people read: answers on standard output, problems on standard error. Names and reasons in it come from anywhere: a terminal
//! obeys none of it but colours, and nothing in it is hidden.

use std::io::{IsTerminal, Write};

use ascribe_study::{visible, visible_lines};

/// Prints an answer. That nobody reads on (a closed pipe) is no failure.
pub(crate) fn say(text: &str) {
    let text = visible_lines(text);
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}

/// Prints a problem.
pub(crate) fn complain(text: &str) {
    let text = if colours() { coloured(text) } else { visible_lines(text).into_owned() };
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.trim_end().as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}

/// Text for a terminal that shows colours: `ESC [ 91 m` and the like stay, if they are a weight or a colour of letters. Text that is
/// concealed, or in the colour of its paper, would be hidden.
fn coloured(text: &str) -> String {
    const ESCAPE: &str = "\u{1b}[";
    let mut parts = text.split(ESCAPE);
    let mut out = visible_lines(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let shown = part.split_once('m').filter(|(codes, _)| codes.split(';').all(|code| is_colour(code.parse().ok())));
        match shown {
            Some((codes, rest)) => out += &format!("{ESCAPE}{codes}m{}", visible_lines(rest)),
            None => out += &visible_lines(&format!("{ESCAPE}{part}")),
        }
    }
    out
}

/// Plain, bold, and the colours of letters but black and white.
fn is_colour(code: Option<u8>) -> bool {
    matches!(code, Some(0 | 1 | 31..=36 | 91..=96))
}

/// Whether problems are shown in colours: on a terminal, unless `NO_COLOR` says otherwise.
pub(crate) fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Columns of text that fit; `None` where it is read by a program.
pub(crate) fn width() -> Option<u16> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    std::io::stdout().is_terminal().then(|| said.unwrap_or(120).max(60))
}

/// Text with every line moved to the right.
pub(crate) fn indent(text: &str, by: usize) -> String {
    let space = " ".repeat(by);
    let lines = text.trim_end().lines().map(|line| if line.is_empty() { String::new() } else { format!("{space}{line}") });
    lines.collect::<Vec<_>>().join("\n")
}

/// A table without rules.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header(header.to_vec());
    if let Some(width) = width() {
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(width);
    }
    for row in rows {
        // Before it is laid out: what is shown by name is wider than what it stands for.
        table.add_row(row.iter().map(|cell| visible(cell)));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_colours_alone() {
        let problem = "\u{1b}[1m\u{1b}[91merror\u{1b}[0m: \u{1b}[2J\u{1b}[8mgone\u{1b}]0;title\u{7} \u{202e}turned\u{1b}[";
        let want =
            "\u{1b}[1m\u{1b}[91merror\u{1b}[0m: [U+001B][2J[U+001B][8mgone[U+001B]]0;title[U+0007] [U+202E]turned[U+001B][";
        assert_eq!(coloured(problem), want);
    }

    #[test]
    fn problems_keep_their_colours() {
        let report = ascribe_config::estimator("{ gae = { gamma = 1.0, lamda = 0.9 } }").expect_err("a key that is unknown");
        let text = report.problems[0].render(true);
        assert!(text.contains("\u{1b}[") && coloured(&text) == text, "{text:?}");
    }

    #[test]
    fn columns_stand_below_each_other_whatever_a_name_hides() {
        let rows = vec![vec!["a\u{202e}b\nc".to_string(), "1".into()], vec!["d".into(), "2".into()]];
        assert_eq!(table(&["arm", "n"], rows), "arm           n\na[U+202E]b c  1\nd             2");
    }
}
