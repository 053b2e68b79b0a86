//! What all pages have in common: one file, one stylesheet, no network, and no script but the page's own.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use ascribe_study::{visible, visible_lines};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The stylesheet of every page: colours as variables, dark and light, print.
const STYLE: &str = include_str!("page.css");

/// How every page begins, the version left out: what tells a page from the files of others.
const BEGINS: &str = r#"<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="generator" content="Ascribe "#;

/// A page.
///
/// Whatever comes from runs is data. The markup escapes it, and what would not be seen in it is shown by name; [`Page::data`] hands it
/// to the script as JSON in an element that no browser runs; and the page's policy (`Content-Security-Policy`) allows its own script
/// by hash, no other, and no request.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: Markup,
    style: String,
    data: Vec<(String, String)>,
    script: Option<&'static str>,
}

impl Page {
    /// A page of a title and a body.
    pub fn new(title: impl Into<String>, body: Markup) -> Self {
        Self { title: title.into(), body, style: String::new(), data: Vec::new(), script: None }
    }

    /// Adds to the stylesheet.
    #[must_use]
    pub fn style(mut self, css: &str) -> Self {
        self.style += css;
        self
    }

    /// Adds data as `<script type="application/json" id=…>`. Numbers that are not finite become `null`.
    ///
    /// # Panics
    /// If the value has maps whose keys are no text.
    #[must_use]
    pub fn data(mut self, id: &str, value: &impl Serialize) -> Self {
        // Inside a script element only `<` can end it or begin a comment; JSON's texts may write it as an escape.
        let json = serde_json::to_string(value).expect("plain data serialises").replace('<', "\\u003c");
        self.data.push((id.into(), json));
        self
    }

    /// The page's script; it runs after the body is there.
    #[must_use]
    pub fn script(mut self, script: &'static str) -> Self {
        self.script = Some(script);
        self
    }

    /// Whether a page may be written there without loss: nothing is there, or a page.
    ///
    /// # Errors
    /// If what is there cannot be looked at.
    pub fn may_go(path: &Path) -> io::Result<bool> {
        let of = match fs::symlink_metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
            of => of?,
        };
        if !of.is_file() {
            return Ok(false);
        }
        let mut first = Vec::new();
        fs::File::open(path)?.take(BEGINS.len() as u64).read_to_end(&mut first)?;
        Ok(first == BEGINS.as_bytes())
    }

    /// The file.
    pub fn render(self) -> String {
        let allowed = self.script.map_or_else(
            || "'none'".to_string(),
            |script| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(script.as_bytes()))),
        );
        let policy = format!(
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}; base-uri 'none'; form-action 'none'"
        );
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="generator" content=(concat!("Ascribe ", env!("CARGO_PKG_VERSION")));
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (visible(&self.title)) }
                    style { (PreEscaped(STYLE)) (PreEscaped(&self.style)) }
                }
                body {
                    (PreEscaped(visible_lines(&self.body.into_string())))
                    @for (id, json) in &self.data {
                        script type="application/json" id=(id) { (PreEscaped(json)) }
                    }
                    @if let Some(script) = self.script {
                        script { (PreEscaped(script)) }
                    }
                }
            }
        }
        .into_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_its_element() {
        let page = Page::new("</title><script>alert(1)</script>", html! { p { "<b>&" } })
            .data("d", &["</script><script>alert(2)</script>", "<!--"])
            .render();
        assert!(!page.contains("alert(1)</script><") && !page.contains("<script>alert"), "{page}");
        assert!(page.contains(r#"["\u003c/script>\u003cscript>alert(2)\u003c/script>","\u003c!--"]"#), "{page}");
        assert!(page.contains("<p>&lt;b&gt;&amp;</p>"));
    }

    #[test]
    fn nothing_is_hidden_on_a_page() {
        let hostile = "a\u{202e}b\u{1b}[2J\0";
        let page = Page::new(hostile, html! { p title=(hostile) { (hostile) } pre { "one\n\ttwo" } }).render();
        let seen = "a[U+202E]b[U+001B][2J[U+0000]";
        assert!(page.contains(&format!("<title>{seen}</title>")), "{page}");
        assert!(page.contains(&format!("<p title=\"{seen}\">{seen}</p><pre>one\n\ttwo</pre>")), "{page}");
    }

    #[test]
    fn a_page_takes_the_place_of_pages_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            Page::may_go(&path).unwrap()
        };
        let page = Page::new("t", html! {}).render();
        assert!(at("page.html", &page) && Page::may_go(&folder.path().join("new.html")).unwrap());
        for other in ["", "{}", "<!DOCTYPE html><html>", &page[..40], &page[1..]] {
            assert!(!at("other", other), "{other}");
        }
        assert!(!Page::may_go(folder.path()).unwrap());
        // Whoever follows it would find it changed, or gone.
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
            assert!(!Page::may_go(&link).unwrap());
        }
    }

    #[test]
    fn only_the_pages_own_script_may_run() {
        let page = Page::new("t", html! {}).script("let a = 1 < 2;").render();
        // printf 'let a = 1 < 2;' | openssl dgst -sha256 -binary | base64
        assert!(page.contains("script-src 'sha256-Xd/xFl+DmsVqHczJvGQWMh7nLH7H7r5iGmQKRm0JimU='"), "{page}");
        assert!(page.contains("<script>let a = 1 < 2;</script>"));
        assert!(Page::new("t", html! {}).render().contains("script-src 'none'"));
    }
}
