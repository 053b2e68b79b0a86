//! A sheet in words. Names come from users, and reasons of failures from anywhere: each form escapes what it would read as its
//! own, and shows what would not be seen.

use std::borrow::Cow;

use crate::bootstrap::{Estimate, Interval};
use crate::export::sheet::{Cell, Column, Kind, Sheet};
use crate::export::visible::{visible, visible_lines};

impl Sheet {
    /// Comma-separated values (RFC 4180) with all digits: numbers read back are the same. A column of estimates is three:
    /// `x`, `x low` and `x high`. What is missing is empty. Texts keep their line breaks.
    pub fn to_csv(&self) -> String {
        let name = |column: &Column| match column.kind {
            Kind::Text | Kind::Number => vec![visible_lines(&column.name).into_owned()],
            Kind::Estimate => ["", " low", " high"].map(|end| format!("{}{end}", column.name)).to_vec(),
        };
        let header = csv_line(self.columns.iter().flat_map(name));
        let row =
            |row: &Vec<Cell>| csv_line(row.iter().zip(&self.columns).flat_map(|(cell, column)| csv_cells(cell, column.kind)));
        std::iter::once(header).chain(self.rows.iter().map(row)).collect()
    }

    /// A Markdown table, and below it the notes.
    ///
    /// * `digits`: after the decimal point.
    pub fn to_markdown(&self, digits: usize) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mark = |column: &Column| if column.kind == Kind::Text { "---" } else { "---:" };
        let mut out = line(self.columns.iter().map(|column| markdown_text(&column.name)).collect());
        out.push_str(&line(self.columns.iter().map(|column| mark(column).to_string()).collect()));
        for row in &self.rows {
            let shown = |cell: &Cell| match cell {
                Cell::Text(text) => markdown_text(text),
                other => other.read(digits, "—"),
            };
            out.push_str(&line(row.iter().map(shown).collect()));
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        out.extend(self.notes.iter().map(|note| format!("* {}\n", markdown_text(note))));
        out
    }

    /// A LaTeX `tabular`, and below it the notes; needs the package `booktabs`.
    ///
    /// * `digits`: after the decimal point.
    pub fn to_latex(&self, digits: usize) -> String {
        let side = |column: &Column| if column.kind == Kind::Text { 'l' } else { 'r' };
        let line = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
        let mut out = format!("\\begin{{tabular}}{{{}}}\n\\toprule\n", self.columns.iter().map(side).collect::<String>());
        out.push_str(&line(self.columns.iter().map(|column| latex_text(&column.name)).collect()));
        out.push_str("\\midrule\n");
        for row in &self.rows {
            let shown = |cell: &Cell| match cell {
                Cell::Text(text) => latex_text(text),
                Cell::Missing => "--".to_string(),
                // In mathematics a minus is a minus.
                number => format!("${}$", number.read(digits, "").replace(" [", r"\ [")),
            };
            out.push_str(&line(row.iter().map(shown).collect()));
        }
        out.push_str("\\bottomrule\n\\end{tabular}\n");
        out.extend(self.notes.iter().map(|note| format!("\n{{\\footnotesize {}\\par}}\n", latex_text(note))));
        out
    }
}

impl Cell {
    /// The cell as people read it: `0.43 [0.30, 0.57]`.
    ///
    /// * `digits`: after the decimal point.
    /// * `missing`: what stands where there is nothing.
    pub fn read(&self, digits: usize, missing: &str) -> String {
        let number = |x: f64| rounded(x, digits);
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(n) => n.to_string(),
            Cell::Number(x) => number(*x),
            Cell::Estimate(Estimate { point, interval: None }) => number(*point),
            Cell::Estimate(Estimate { point, interval: Some(Interval { low, high }) }) => {
                format!("{} [{}, {}]", number(*point), number(*low), number(*high))
            }
            Cell::Missing => missing.to_string(),
        }
    }
}

/// A number with so many digits; what rounds to 0 has no sign.
fn rounded(x: f64, digits: usize) -> String {
    let text = format!("{x:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|b| matches!(b, b'0' | b'.')) => zero.to_string(),
        _ => text,
    }
}

fn csv_cells(cell: &Cell, kind: Kind) -> Vec<String> {
    let mut cells = match cell {
        Cell::Text(text) => vec![visible_lines(text).into_owned()],
        Cell::Count(n) => vec![n.to_string()],
        Cell::Number(x) => vec![x.to_string()],
        Cell::Estimate(Estimate { point, interval }) => {
            let ends = interval.map(|i| [i.low.to_string(), i.high.to_string()]);
            std::iter::once(point.to_string()).chain(ends.into_iter().flatten()).collect()
        }
        Cell::Missing => Vec::new(),
    };
    cells.resize(if kind == Kind::Estimate { 3 } else { 1 }, String::new());
    cells
}

fn csv_line(cells: impl Iterator<Item = String>) -> String {
    let quoted = |cell: String| {
        let special = cell.contains(['"', ',', '\n']) || cell.starts_with(' ') || cell.ends_with(' ');
        if special { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
    };
    // RFC 4180 ends lines in this way.
    format!("{}\r\n", cells.map(quoted).collect::<Vec<_>>().join(","))
}

fn markdown_text(text: &str) -> String {
    let escape = |c: char| -> Cow<'static, str> {
        match c {
            '<' => "&lt;".into(),
            '>' => "&gt;".into(),
            '&' => "&amp;".into(),
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '~' | '#' | '$' => format!("\\{c}").into(),
            c => c.to_string().into(),
        }
    };
    visible(text).chars().map(escape).collect()
}

fn latex_text(text: &str) -> String {
    let escape = |c: char| -> Cow<'static, str> {
        match c {
            '\\' => r"\textbackslash{}".into(),
            '~' => r"\textasciitilde{}".into(),
            '^' => r"\textasciicircum{}".into(),
            '<' => r"\textless{}".into(),
            '>' => r"\textgreater{}".into(),
            '|' => r"\textbar{}".into(),
            '"' => r"\textquotedbl{}".into(),
            '{' | '}' | '$' | '&' | '#' | '%' | '_' => format!("\\{c}").into(),
            // After a `\\` both would be read as its arguments.
            '[' | ']' | '*' => format!("{{{c}}}").into(),
            c => c.to_string().into(),
        }
    };
    visible(text).chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sheet(name: &str) -> Sheet {
        let column = |name: &str, kind| Column { name: name.into(), kind };
        let estimate = |point, interval| Cell::Estimate(Estimate { point, interval });
        Sheet {
            columns: vec![column("arm", Kind::Text), column("runs", Kind::Number), column("IQM", Kind::Estimate)],
            rows: vec![
                vec![Cell::Text(name.into()), Cell::Count(5), estimate(0.1 + 0.2, Some(Interval { low: -0.125, high: 1e-9 }))],
                vec![Cell::Text("b".into()), Cell::Missing, estimate(-0.0001, None)],
                vec![Cell::Text("c".into()), Cell::Number(2.5), Cell::Missing],
            ],
            notes: Vec::new(),
        }
    }

    #[test]
    fn csv_keeps_all_digits_and_splits_intervals() {
        let want = "arm,runs,IQM,IQM low,IQM high\r\n\
                    \"say \"\"a\"\", b\",5,0.30000000000000004,-0.125,0.000000001\r\n\
                    b,,-0.0001,,\r\n\
                    c,2.5,,,\r\n";
        assert_eq!(sheet("say \"a\", b").to_csv(), want);
    }

    #[test]
    fn markdown_rounds_and_escapes() {
        let want = "| arm | runs | IQM |\n\
                    | --- | ---: | ---: |\n\
                    | a\\|b &lt;script&gt; \\_x\\_ | 5 | 0.300 [-0.125, 0.000] |\n\
                    | b | — | 0.000 |\n\
                    | c | 2.500 | — |\n";
        assert_eq!(sheet("a|b <script>\n_x_").to_markdown(3), want);
    }

    #[test]
    fn latex_rounds_and_escapes() {
        let want = r"\begin{tabular}{lrr}
\toprule
arm & runs & IQM \\
\midrule
{[}50\% of \$\alpha\textbackslash{}input\{x\}\_\^{}\{2\}\#\&{]} & $5$ & $0.30\ [-0.12, 0.00]$ \\
b & -- & $0.00$ \\
c & $2.50$ & -- \\
\bottomrule
\end{tabular}
";
        let want = want.replace(r"\$\alpha\textbackslash", r"\$α\textbackslash").replace(r"\^{}", r"\textasciicircum{}");
        assert_eq!(sheet("[50% of $α\\input{x}_^{2}#&]").to_latex(2), want);
    }

    #[test]
    fn what_a_name_hides_is_seen_in_every_form() {
        let sheet = sheet("a\u{202e}b\0\u{1b}[2J\nc");
        for (form, want) in [
            (sheet.to_csv(), "\"a[U+202E]b[U+0000][U+001B][2J\nc\",5,"),
            (sheet.to_markdown(2), r"| a\[U+202E\]b\[U+0000\]\[U+001B\]\[2J c |"),
            (sheet.to_latex(2), "a{[}U+202E{]}b{[}U+0000{]}{[}U+001B{]}{[}2J c &"),
        ] {
            assert!(form.contains(want), "{want:?} in\n{form}");
        }
    }

    /// Fields of one line of CSV, read as RFC 4180 says.
    fn fields(line: &str) -> Vec<String> {
        let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(std::mem::take(&mut field)),
                c => field.push(c),
            }
        }
        fields.push(field);
        fields
    }

    proptest! {
        #[test]
        fn any_text_comes_back_from_csv(text in any::<String>(), x in any::<f64>().prop_filter("finite", |x| x.is_finite())) {
            let column = |kind| Column { name: "x".into(), kind };
            let row = vec![Cell::Text(text.clone()), Cell::Number(x)];
            let columns = vec![column(Kind::Text), column(Kind::Number)];
            let csv = Sheet { columns, rows: vec![row], notes: Vec::new() }.to_csv();
            let got = fields(csv.strip_prefix("x,x\r\n").unwrap().strip_suffix("\r\n").unwrap());
            prop_assert_eq!(got[0].as_str(), visible_lines(&text));
            prop_assert_eq!(got[1].parse::<f64>().unwrap().to_bits(), x.to_bits());
        }

        #[test]
        fn any_text_stays_in_its_cell(text in any::<String>()) {
            let column = Column { name: "x".into(), kind: Kind::Text };
            let sheet = Sheet { columns: vec![column], rows: vec![vec![Cell::Text(text)]], notes: Vec::new() };
            let (markdown, latex) = (sheet.to_markdown(2), sheet.to_latex(2));
            prop_assert_eq!(markdown.lines().count(), 3);
            prop_assert!(!markdown.contains('<'));
            let unescaped_bars = |line: &str| line.replace(r"\\", "").replace(r"\|", "").matches('|').count();
            prop_assert_eq!(unescaped_bars(markdown.lines().last().unwrap()), 2);
            prop_assert_eq!(latex.lines().count(), 7);
            let unescaped = |c: &str| latex.lines().nth(4).unwrap().replace(&format!("\\{c}"), "").contains(c);
            prop_assert!(!["%", "&", "#", "$", "_"].into_iter().any(unescaped));
        }
    }
}
