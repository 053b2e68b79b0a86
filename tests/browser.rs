//! A headless Chromium that is asked over the DevTools protocol: what a page shows, what went wrong in it, and whether it
//! asked the network for anything.
//!
//! Messages are JSON, each ended by a NUL byte, through the browser's file descriptors 3 and 4 (`--remote-debugging-pipe`),
//! which a shell makes of this process's pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than the slowest machine takes for one answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser of its own: its profile is new and goes with it.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    sent: u64,
    folder: tempfile::TempDir,
}

impl Browser {
    /// Starts `$ASCRIBE_CHROMIUM`, or `chromium`.
    pub fn start() -> Self {
        let program = std::env::var("ASCRIBE_CHROMIUM").unwrap_or_else(|_| "chromium".into());
        let folder = tempfile::tempdir().unwrap();
        let said = std::fs::File::create(folder.path().join("said.txt")).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >&2"#, "sh", &program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
            .args(["--window-size=1400,1000", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (send, from) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while out.read_until(0, &mut bytes).is_ok_and(|n| n > 0) {
                let message = serde_json::from_slice(bytes.strip_suffix(b"\0").unwrap_or(&bytes));
                if message.is_ok_and(|message: Value| send.send(message).is_err()) {
                    return;
                }
                bytes.clear();
            }
        });
        Self { child, to, from, sent: 0, folder }
    }

    /// Opens a file, and waits until it is loaded.
    pub fn open(&mut self, path: &Path) -> Tab<'_> {
        let mut events = Vec::new();
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }), &mut events);
        let asked = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", asked, &mut events);
        let session = attached["sessionId"].as_str().unwrap().to_string();
        let url = format!("file://{}", path.canonicalize().unwrap().display());
        let mut tab = Tab { browser: self, session, url, problems: Vec::new(), loaded: false };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.call("Page.bringToFront", json!({}));
        // What came before is of the empty page.
        tab.loaded = false;
        let answer = tab.call("Page.navigate", json!({ "url": tab.url.clone() }));
        assert!(answer["errorText"].is_null(), "{answer}");
        let since = Instant::now();
        while !tab.loaded {
            let event = tab.browser.next(since);
            tab.on(&event);
        }
        tab
    }

    fn next(&mut self, since: Instant) -> Value {
        match self.from.recv_timeout(PATIENCE.saturating_sub(since.elapsed())) {
            Ok(message) => message,
            Err(e) => {
                let said = std::fs::read_to_string(self.folder.path().join("said.txt")).unwrap_or_default();
                let what = if e == RecvTimeoutError::Timeout { "does not answer" } else { "is gone" };
                panic!("the browser {what}; it said:\n{said}");
            }
        }
    }

    /// Asks, and returns the answer; events on the way are kept.
    fn call(&mut self, session: Option<&str>, method: &str, params: Value, events: &mut Vec<Value>) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.to.write_all(&bytes).and_then(|()| self.to.flush()).unwrap();
        let since = Instant::now();
        loop {
            let mut answer = self.next(since);
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            events.push(answer);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let closing = b"{\"id\":0,\"method\":\"Browser.close\"}\0";
        let _ = self.to.write_all(closing).and_then(|()| self.to.flush());
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(5) {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page that is open.
pub struct Tab<'a> {
    browser: &'a mut Browser,
    session: String,
    url: String,
    problems: Vec<String>,
    loaded: bool,
}

impl Tab<'_> {
    /// What went wrong since it was opened: exceptions, errors and warnings, and requests for anything but the file itself.
    pub fn problems(&mut self) -> Vec<String> {
        // Whatever happened before this answer has been told.
        self.evaluate("new Promise((done) => setTimeout(done, 50))");
        self.problems.clone()
    }

    /// The value of an expression; a promise is waited for.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true });
        let mut answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}\n{}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// The value of an expression that is a number.
    pub fn number(&mut self, expression: &str) -> f64 {
        let value = self.evaluate(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    /// The value of an expression that is a text.
    pub fn text(&mut self, expression: &str) -> String {
        let value = self.evaluate(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).into()
    }

    /// Presses a key: a character, or a name such as `ArrowDown`.
    pub fn press(&mut self, key: &str) {
        let mut down = json!({ "type": "keyDown", "key": key });
        if key.chars().count() == 1 {
            down["text"] = key.into();
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    }

    /// Types into what has the focus.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Shows it dark or light, on screen or in print.
    pub fn media(&mut self, dark: bool, print: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let medium = if print { "print" } else { "screen" };
        self.call("Emulation.setEmulatedMedia", json!({ "media": medium, "features": features }));
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let mut events = Vec::new();
        let answer = self.browser.call(Some(&self.session), method, params, &mut events);
        events.iter().for_each(|event| self.on(event));
        answer
    }

    fn on(&mut self, event: &Value) {
        if event["sessionId"].as_str() != Some(&self.session) {
            return;
        }
        let of = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.loaded = true,
            "Runtime.exceptionThrown" => {
                let details = &of["exceptionDetails"];
                self.problems.push(format!("exception: {} {}", details["text"], details["exception"]["description"]));
            }
            "Runtime.consoleAPICalled" if ["error", "warning", "assert"].iter().any(|kind| of["type"] == *kind) => {
                self.problems.push(format!("console: {}", of["args"]));
            }
            "Log.entryAdded" if of["entry"]["level"] != "verbose" && of["entry"]["level"] != "info" => {
                self.problems.push(format!("{}: {}", of["entry"]["level"], of["entry"]["text"]));
            }
            "Network.requestWillBeSent" => {
                let url = of["request"]["url"].as_str().unwrap_or_default();
                if url != self.url {
                    self.problems.push(format!("request: {url}"));
                }
            }
            _ => {}
        }
    }
}
