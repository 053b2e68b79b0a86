//! What all pages have in common: one file, one stylesheet, no network, and no script but the page's own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The stylesheet of every page: colours as variables, dark and light, print.
const STYLE: &str = include_str!("page.css");

/// A page.
///
/// Whatever comes from runs is data. The markup escapes it; [`Page::data`] hands it to the script as JSON in an element that no
/// browser runs; and the page's policy (`Content-Security-Policy`) allows its own script by hash, no other, and no request.
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
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) (PreEscaped(&self.style)) }
                }
                body {
                    (self.body)
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
    fn only_the_pages_own_script_may_run() {
        let page = Page::new("t", html! {}).script("let a = 1 < 2;").render();
        // printf 'let a = 1 < 2;' | openssl dgst -sha256 -binary | base64
        assert!(page.contains("script-src 'sha256-Xd/xFl+DmsVqHczJvGQWMh7nLH7H7r5iGmQKRm0JimU='"), "{page}");
        assert!(page.contains("<script>let a = 1 < 2;</script>"));
        assert!(Page::new("t", html! {}).render().contains("script-src 'none'"));
    }
}
