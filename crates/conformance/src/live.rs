//! A live episode under watch: what it shows as bytes, where it stands, and its panics as findings.

use ascribe_core::environment::{ActionText, RestoreError, Snapshot, Step, TaskId};
use ascribe_core::log::{End, Validity};
use ascribe_core::{Draw, Environment, Seeds, TaskSet};

use crate::caught;
use crate::finding::{Difference, Finding, Place, Said};

/// What was seen, by name and as bytes.
pub(crate) type Seen = Vec<(&'static str, Vec<u8>)>;

/// A turn that was made.
pub(crate) struct Turn {
    /// What became of the action.
    pub step: Step,
    /// The same as bytes.
    pub seen: Seen,
}

/// A live episode under watch.
pub(crate) struct Live {
    environment: Box<dyn Environment>,
    /// Where it stands.
    pub place: Place,
    /// Whether it has ended.
    pub over: bool,
}

impl Live {
    pub fn open(tasks: &dyn TaskSet, task: &TaskId, seed: u64) -> Result<Self, Finding> {
        let place = Place { task: task.clone(), seed, actions: Vec::new() };
        let opened = caught(|| Ok::<_, Finding>(tasks.open(task, seed))).map_err(|panic| Finding {
            why: format!("opening the task: {}", panic.why),
            place: Some(Box::new(place.clone())),
            ..Finding::default()
        })?;
        match opened {
            Ok(environment) => Ok(Self { environment, place, over: false }),
            Err(e) => {
                Err(Finding { why: format!("the task does not open: {e}"), place: Some(Box::new(place)), ..Finding::default() })
            }
        }
    }

    /// Something wrong at this point.
    pub fn finding(&self, why: impl Into<String>) -> Finding {
        Finding { why: why.into(), place: Some(Box::new(self.place.clone())), ..Finding::default() }
    }

    fn panicked(&self, call: &str, panic: &Finding) -> Finding {
        Finding {
            remedy: "return what is wrong instead of panicking; an action that is not understood is a `Step` whose validity is \
                     `Malformed`"
                .into(),
            ..self.finding(format!("`{call}`: {}", panic.why))
        }
    }

    fn ask<T>(&self, call: &str, ask: impl FnOnce(&dyn Environment) -> T) -> Result<T, Finding> {
        caught(|| Ok(ask(&*self.environment))).map_err(|panic: Finding| self.panicked(call, &panic))
    }

    fn tell<T>(&mut self, call: &str, tell: impl FnOnce(&mut dyn Environment) -> T) -> Result<T, Finding> {
        let environment = &mut *self.environment;
        caught(|| Ok(tell(environment))).map_err(|panic: Finding| self.panicked(call, &panic))
    }

    pub fn text(&self) -> Result<String, Finding> {
        self.ask("observe", |e| e.observe().text)
    }

    pub fn observation_key(&self) -> Result<Vec<u8>, Finding> {
        self.ask("observe", |e| e.observe().key)
    }

    pub fn state_key(&self) -> Result<Vec<u8>, Finding> {
        self.ask("state_key", |e| e.state_key())
    }

    pub fn admissible(&self) -> Result<Option<Vec<String>>, Finding> {
        self.ask("admissible", |e| e.admissible())
    }

    pub fn privileged(&self) -> Result<Option<String>, Finding> {
        self.ask("privileged", |e| e.privileged())
    }

    pub fn ground_truth(&self) -> Result<Option<String>, Finding> {
        self.ask("ground_truth", |e| e.ground_truth())
    }

    /// What the expert does here; its draws are the same whoever asks at this turn.
    pub fn expert(&mut self) -> Result<Option<String>, Finding> {
        let turn = self.place.actions.len() as u32;
        let mut rng = Seeds(0).rng("conformance/expert", Draw { turn, ..Draw::default() });
        self.tell("expert", |e| e.expert(&mut rng))
    }

    /// All that it shows without being asked to act.
    pub fn shown(&self) -> Result<Seen, Finding> {
        let observation = self.ask("observe", |e| e.observe())?;
        let admissible = self.admissible()?.map(|actions| actions.join("\n"));
        let said = |text: Option<String>| text.map_or_else(|| b"(none)".to_vec(), String::into_bytes);
        Ok(vec![
            ("observation", observation.text.into_bytes()),
            ("context", format!("{:?}", observation.context).into_bytes()),
            ("observation key", observation.key),
            ("state key", self.state_key()?),
            ("admissible actions", said(admissible)),
            ("privileged text", said(self.privileged()?)),
            ("ground truth", said(self.ground_truth()?)),
            ("stage", format!("{:?}", self.ask("stage", |e| e.stage())?).into_bytes()),
        ])
    }

    /// All that it shows, and what the expert says.
    pub fn shown_and_expert(&mut self) -> Result<Seen, Finding> {
        let mut seen = self.shown()?;
        if !self.over {
            seen.push(("expert", self.expert()?.map_or_else(|| b"(none)".to_vec(), String::into_bytes)));
        }
        Ok(seen)
    }

    /// Carries out an action of an episode that goes on.
    pub fn act(&mut self, act: &Said) -> Result<Turn, Finding> {
        let action = ActionText { text: &act.text, complete: act.complete };
        let stepped = self.tell("step", |e| e.step(action));
        self.place.actions.push(act.clone());
        let step = match stepped {
            Ok(Ok(step)) => step,
            Ok(Err(e)) => {
                return Err(Finding {
                    remedy: "an action that cannot be understood is a `Step` whose validity is `Malformed`".into(),
                    ..self.finding(format!("the last action is an error: {e}"))
                });
            }
            // Where it panics is said with the action that did it.
            Err(panic) => return Err(Finding { place: Some(Box::new(self.place.clone())), ..panic }),
        };
        self.over = step.end.is_some();
        let seen = vec![
            ("reward", format!("{:?}", step.reward).into_bytes()),
            ("end", step.end.as_ref().map_or_else(|| "(goes on)".into(), |end| format!("{end:?}")).into_bytes()),
            // A cut action is recorded as cut, whatever the environment says of it.
            ("validity", format!("{:?}", if act.complete { step.validity } else { Validity::Cut }).into_bytes()),
            ("signals", step.signals.iter().map(|(name, x)| format!("{name} = {x:?}\n")).collect::<String>().into_bytes()),
        ];
        Ok(Turn { step, seen })
    }

    /// Carries out actions until they or the episode end.
    pub fn wind(&mut self, acts: &[Said]) -> Result<(), Finding> {
        for act in acts {
            if self.over {
                break;
            }
            self.act(act)?;
        }
        Ok(())
    }

    /// Carries out actions until they or the episode end: what was seen before the first, and after each.
    pub fn follow(&mut self, acts: &[Said]) -> Result<Vec<Seen>, Finding> {
        let mut all = vec![self.shown_and_expert()?];
        for act in acts {
            if self.over {
                break;
            }
            let mut seen = self.act(act)?.seen;
            seen.extend(self.shown_and_expert()?);
            all.push(seen);
        }
        Ok(all)
    }

    /// Follows `acts`, and compares with what another saw who did.
    pub fn follows(&mut self, acts: &[Said], others: &[Seen], of: &Comparison<'_>) -> Result<(), Finding> {
        let mut acts = acts.iter();
        for (i, expected) in others.iter().enumerate() {
            let mut seen = Vec::new();
            if i > 0 {
                match acts.next().filter(|_| !self.over) {
                    Some(act) => seen = self.act(act)?.seen,
                    // An end is part of what was seen: it was found to differ before.
                    None => return Ok(()),
                }
            }
            seen.extend(self.shown_and_expert()?);
            self.same(expected, &seen, of)?;
        }
        Ok(())
    }

    /// Compares field for field and byte for byte.
    pub fn same(&self, expected: &Seen, found: &Seen, of: &Comparison<'_>) -> Result<(), Finding> {
        for ((name, a), (_, b)) in expected.iter().zip(found) {
            if let Some(difference) = Difference::between(name, (of.expected, a), (of.found, b)) {
                return Err(Finding { difference: Some(difference), ..self.finding(of.why) });
            }
        }
        Ok(())
    }

    pub fn step_after_end(&mut self) -> Result<bool, Finding> {
        Ok(self.tell("step", |e| e.step(ActionText { text: "", complete: true }))?.is_ok())
    }

    pub fn try_snapshot(&self) -> Result<Result<Snapshot, RestoreError>, Finding> {
        self.ask("snapshot", |e| e.snapshot())
    }

    pub fn snapshot(&self) -> Result<Snapshot, Finding> {
        self.try_snapshot()?.map_err(|e| self.finding(format!("it gives no snapshot: {e}")))
    }

    pub fn try_restore(&mut self, snapshot: &Snapshot) -> Result<Result<(), RestoreError>, Finding> {
        self.tell("restore", |e| e.restore(snapshot))
    }

    /// Goes back, or over, to a state that was saved at `place`.
    pub fn restore(&mut self, snapshot: &Snapshot, from: &Self) -> Result<(), Finding> {
        let (place, over) = (from.place.clone(), from.over);
        self.go_back(snapshot, place, over)
    }

    pub fn go_back(&mut self, snapshot: &Snapshot, place: Place, over: bool) -> Result<(), Finding> {
        let restored = self.try_restore(snapshot)?;
        (self.place, self.over) = (place, over);
        restored.map_err(|e| self.finding(format!("its own snapshot is refused: {e}")))
    }

    pub fn reseed(&mut self, seed: u64) -> Result<(), Finding> {
        self.tell("reseed", |e| e.reseed(seed))
    }
}

/// What is compared, for findings.
pub(crate) struct Comparison<'a> {
    /// What is wrong where they differ.
    pub why: &'a str,
    /// Who says what is expected, in a word.
    pub expected: &'a str,
    /// Who is held against it, in a word.
    pub found: &'a str,
}

/// A snapshot as bytes.
pub(crate) fn of_snapshot(snapshot: &Snapshot) -> Seen {
    vec![
        ("observation of the snapshot", snapshot.observation.clone().into_bytes()),
        ("fingerprint of the snapshot", snapshot.fingerprint.clone().into_bytes()),
        ("version of the snapshot", snapshot.version.to_string().into_bytes()),
        ("bytes of the snapshot", snapshot.bytes.clone()),
    ]
}

/// Whether an end is a limit's, which stands outside of the state.
pub(crate) fn is_limit(end: &Option<End>) -> bool {
    matches!(end, Some(End::Truncated(_)))
}
