//! What people read: answers on standard output, problems on standard error.

use std::io::{IsTerminal, Write};

/// Prints an answer. That nobody reads on (a closed pipe) is no failure.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}

/// Prints a problem.
pub(crate) fn complain(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.trim_end().as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
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
        table.add_row(row);
    }
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
