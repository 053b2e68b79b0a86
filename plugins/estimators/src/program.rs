//! A program outside that answers each line with a line, and leaves nothing behind in its process group.
//!
//! It leads its own process group, so that what it starts ends with it, unless that leaves the group (`setsid`). Three threads serve its pipes: one that writes, as
//! a program that does not read would block whoever writes; one that reads its answers, so that there can be a time limit;
//! one that keeps the end of its stderr.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Longest answer in bytes: millions of tokens fit, a program that never ends its line is stopped.
const LONGEST: u64 = 64 << 20;
/// Bytes of stderr that are kept.
const KEPT: usize = 4096;
/// Lines of stderr that are quoted.
const QUOTED: usize = 12;
/// How long a program may take to exit once its input or its output is closed.
const GRACE: Duration = Duration::from_secs(1);
/// How often it is asked whether it has exited.
const POLL: Duration = Duration::from_millis(2);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The system did not start it.
    #[error("cannot be started: {0}; `run` must name a program on PATH, or one relative to the folder the run is started in")]
    Start(io::Error),
    /// The time limit passed.
    #[error(
        "gave no answer within {} s, and was stopped; it must write one line per group and flush it, or needs a larger `timeout_seconds`",
        .0.as_secs_f64()
    )]
    Silent(Duration),
    /// It ended.
    #[error("ended ({0}) before it had answered; it must answer every line it is given, until its input ends")]
    Ended(String),
    /// A line without end.
    #[error("wrote more than {LONGEST} bytes without the end of a line, which begins with `{0}`; an answer is one line")]
    Endless(String),
    /// A line too many.
    #[error("wrote a line that nobody asked for: `{0}`; one line per group goes to stdout, everything else to stderr")]
    Unasked(String),
}

enum Said {
    Line(Vec<u8>),
    Endless(Vec<u8>),
}

/// A running program.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// How it ended, once it was reaped.
    over: Option<ExitStatus>,
    /// Lines for its stdin, which is closed when this is dropped.
    questions: Option<Sender<Vec<u8>>>,
    /// Lines of its stdout; disconnected where that ends.
    said: Receiver<Said>,
    /// The end of its stderr.
    words: Arc<Mutex<Vec<u8>>>,
    /// Disconnected where its stderr ends.
    silence: Receiver<Infallible>,
    n_answers: usize,
}

impl Program {
    /// Starts it.
    ///
    /// * `run`: the program and its arguments.
    /// * `env`: variables it gets beside those of this process.
    pub(crate) fn start(run: &[String], env: &BTreeMap<String, String>) -> Result<Self, Trouble> {
        let (program, arguments) = run.split_first().expect("refused where it is read");
        let mut command = Command::new(program);
        command.args(arguments).envs(env).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(Trouble::Start)?;

        let stdin = child.stdin.take().expect("asked for");
        let stdout = child.stdout.take().expect("asked for");
        let stderr = child.stderr.take().expect("asked for");
        let (questions, asked) = mpsc::channel();
        // A program that writes without being asked waits for its reader, instead of filling the memory.
        let (saying, said) = mpsc::sync_channel(1);
        let (speaking, silence) = mpsc::channel();
        let words = Arc::new(Mutex::new(Vec::new()));
        let kept = words.clone();
        thread::spawn(move || write(stdin, asked));
        thread::spawn(move || read(stdout, saying));
        thread::spawn(move || keep(stderr, &kept, speaking));
        Ok(Self { child, over: None, questions: Some(questions), said, words, silence, n_answers: 0 })
    }

    /// Its answer to a line, without the line's end. `question` has its end.
    pub(crate) fn ask(&mut self, question: Vec<u8>, patience: Duration) -> Result<Vec<u8>, Trouble> {
        if let Ok(Said::Line(line) | Said::Endless(line)) = self.said.try_recv() {
            return Err(Trouble::Unasked(beginning(&line)));
        }
        if let Some(questions) = &self.questions {
            // Refused only where the program has closed its input; what becomes of that, its output says.
            let _ = questions.send(question);
        }
        match self.said.recv_timeout(patience) {
            Ok(Said::Line(line)) => {
                self.n_answers += 1;
                Ok(line)
            }
            Ok(Said::Endless(line)) => Err(Trouble::Endless(beginning(&line))),
            Err(RecvTimeoutError::Timeout) => Err(Trouble::Silent(patience)),
            Err(RecvTimeoutError::Disconnected) => {
                let exited = self.exits_within(GRACE);
                let status = self.end().map_or_else(|e| e.to_string(), |status| status.to_string());
                Err(Trouble::Ended(if exited { status } else { "it closed its output, and was stopped".into() }))
            }
        }
    }

    /// Lines it has answered.
    pub(crate) fn n_answers(&self) -> usize {
        self.n_answers
    }

    /// Ends it, and gives the last lines of its stderr.
    pub(crate) fn last_words(mut self) -> String {
        // Where it cannot be reaped there is nothing more to do, and its words are wanted all the same.
        let _ = self.end();
        // Its pipe is closed with its group; a process that left the group may hold it open, and is not waited for.
        let _ = self.silence.recv_timeout(GRACE);
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&words);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(QUOTED)..].join("\n")
    }

    /// Whether it exits by itself within that time.
    fn exits_within(&mut self, grace: Duration) -> bool {
        let mut waited = Duration::ZERO;
        while !has_exited(&mut self.child) {
            if waited >= grace {
                return false;
            }
            thread::sleep(POLL);
            waited += POLL;
        }
        true
    }

    /// Kills it, if it has not exited, and its process group. Gives how it ended.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.over {
            return Ok(status);
        }
        kill(&mut self.child);
        let status = self.child.wait()?;
        self.over = Some(status);
        Ok(status)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.over.is_none() {
            // Its input ends: time to exit by itself.
            self.questions = None;
            self.exits_within(GRACE);
            // Nobody is left to tell.
            let _ = self.end();
        }
    }
}

/// Whether it has exited; does not reap it, so that its id, which is its group's, stays its own.
#[cfg(unix)]
#[allow(unsafe_code)]
fn has_exited(child: &mut Child) -> bool {
    // SAFETY: an all-zero `siginfo_t` is a valid one, `waitid` writes nothing else, and the child was not reaped, so the id
    // is its own.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let found = libc::waitid(libc::P_PID, child.id(), &mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
        found == 0 && info.si_signo != 0
    }
}
#[cfg(not(unix))]
fn has_exited(child: &mut Child) -> bool {
    child.try_wait().is_ok_and(|status| status.is_some())
}

/// Kills it and its process group. It was not reaped.
#[cfg(unix)]
#[allow(unsafe_code)]
fn kill(child: &mut Child) {
    let group = libc::pid_t::try_from(child.id()).expect("ids are of that type");
    // SAFETY: a signal to a group that the child leads; as long as it is not reaped nobody else's group has that id.
    unsafe {
        libc::kill(-group, libc::SIGKILL);
    }
}
#[cfg(not(unix))]
fn kill(child: &mut Child) {
    // Refused only where it has exited.
    let _ = child.kill();
}

fn write(mut stdin: ChildStdin, asked: Receiver<Vec<u8>>) {
    // An error means that the program no longer reads: its output ends, or its time.
    while asked.recv().is_ok_and(|line| stdin.write_all(&line).and_then(|()| stdin.flush()).is_ok()) {}
}

fn read(stdout: ChildStdout, saying: SyncSender<Said>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let read = (&mut stdout).take(LONGEST).read_until(b'\n', &mut line);
        let (said, last) = match line.pop() {
            Some(b'\n') => (Said::Line(line), false),
            Some(_) if read.is_ok_and(|n| n as u64 == LONGEST) => (Said::Endless(line), true),
            // A line that was not finished is no answer: the program died over it.
            _ => return,
        };
        if saying.send(said).is_err() || last {
            return;
        }
    }
}

fn keep(mut stderr: ChildStderr, words: &Mutex<Vec<u8>>, _speaking: Sender<Infallible>) {
    let mut chunk = [0; KEPT];
    while let Ok(n @ 1..) = stderr.read(&mut chunk) {
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(&chunk[..n]);
        let surplus = words.len().saturating_sub(KEPT);
        words.drain(..surplus);
    }
}

/// The first characters of a line.
pub(crate) fn beginning(line: &[u8]) -> String {
    const SHOWN: usize = 80;
    // Four bytes are the longest character.
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < line.len() { format!("{shown}…") } else { shown }
}
