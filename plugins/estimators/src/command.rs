//! An estimator in any language: a program that reads a group as a line of JSON and answers with a line of credit.
//!
//! `A = program(group)`; the program promises that the same group gives the same credit.
//!
//! It is started once, in the folder the run is started in, and is asked for one group at a time, whatever the number of
//! threads. **A group** (one line on its stdin):
//!
//! ```json
//! {"version": 1, "index": 0, "task": "fix-3",
//!  "turns": [{"parent": null, "agent": "actor", "reward": 0.5, "tokens": 7, "validity": "valid",
//!             "observation": 0, "state": 1, "action": 2, "observation_text": "…", "action_text": "…", "end": "terminated"}],
//!  "paths": [{"turns": [0], "end": "terminated", "success": true, "outcome": 0.5}],
//!  "signals": {"value": {"on": "state", "values": [0.25, 0.75]}}}
//! ```
//!
//! * `index`: place of the group in its batch.
//! * `turns`: parents before children; `parent` is an index into `turns`, `null` at the start. `reward` is what estimators
//!   call reward. `tokens` counts the sampled ones. `validity`: `valid`, `refused`, `malformed`, `cut`. `observation`,
//!   `state` (both before acting) and `action` are ids of keys: equal ids mean equal keys, within a batch. `end`: how a path
//!   ended after this turn, or `null`.
//! * `paths`: from the start to a leaf. `end`: `terminated`, `truncated`, `macro_boundary`, `untried`; `outcome` is the sum of
//!   the rewards. Paths that failed are not there.
//! * `signals`: those that `needs` names. On states: of the start, then after each turn, `[turns + 1]`; on turns `[turns]`; on
//!   tokens `[sampled tokens]`, in the order of the turns. `null` where a number was not computed.
//!
//! **Credit** (one line on its stdout, flushed): `{"turns": [0.5, null]}`, an advantage per turn, `null` where it is not
//! trained. It may have, too: `tokens` (finer, per sampled token), `weight` (loss weight per turn), `targets`
//! (`{"value": {"on": "state", "values": […]}}`, those that the key `targets` names), and `index`, which must then be the group's:
//! with it an answer too many cannot be taken for that to the next group.
//!
//! Numbers are `f32` and written as the shortest that reads back as the same `f32`; they come back exact. Edge cases: its stderr is
//! kept, and its end quoted where something goes wrong. Any mistake ends the program, with all that it started in its process
//! group, and the estimator with it: later groups are refused at once, instead of waiting for the same mistake again. When the estimator
//! is dropped, the program's input ends; what has not exited a second later is killed, with its process group. What leaves
//! the group (`setsid`, a daemon) is beyond reach and goes on.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ascribe_core::credit::Target;
use ascribe_core::log::Validity;
use ascribe_core::range::Positive;
use ascribe_core::{AdvantageEstimator, Credit, End, EstimateError, Group, Need, Now, Scope, plugin};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::program::{Program, beginning};

/// Version of the JSON; counts up when a field changes its meaning or goes.
const VERSION: u32 = 1;

/// `[estimator.command]`
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments. No shell reads them.
    #[serde(deserialize_with = "program_first")]
    #[schemars(length(min = 1))]
    pub run: Vec<String>,
    /// Seconds it may take for one group, the first time with its start; positive. Default: 60.
    #[serde(default = "a_minute")]
    pub timeout_seconds: Positive,
    /// Signals it is to be given.
    #[serde(default)]
    pub needs: Vec<Wanted>,
    /// Signals it gives targets for.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Variables of its environment, beside those of the run. A name is not empty and has no `=`.
    #[serde(default, deserialize_with = "variables")]
    pub env: BTreeMap<String, String>,
    #[serde(skip)]
    running: Mutex<Running>,
}

/// A signal that the program is to be given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its name.
    pub signal: String,
    /// What it has one number for.
    pub on: On,
}

/// What a column has one number for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum On {
    /// The start and the state after each turn, `[turns + 1]`.
    State,
    /// Turns, `[turns]`.
    Turn,
    /// Sampled tokens, `[sampled tokens]`.
    Token,
}

impl From<On> for Scope {
    fn from(on: On) -> Self {
        match on {
            On::State => Scope::State,
            On::Turn => Scope::Turn,
            On::Token => Scope::Token,
        }
    }
}

/// What becomes of the program.
#[derive(Debug, Default)]
struct Running {
    /// From the first group to the first mistake.
    program: Option<Program>,
    /// From the first mistake on.
    mistake: Option<String>,
}

fn program_first<'de, D: Deserializer<'de>>(run: D) -> Result<Vec<String>, D::Error> {
    let run: Vec<String> = Vec::deserialize(run)?;
    match run.first() {
        Some(program) if !program.is_empty() => Ok(run),
        _ => Err(D::Error::custom("must begin with a program, as in [\"python3\", \"my_estimator.py\"]")),
    }
}

/// What the system would refuse, or take for another variable.
fn variables<'de, D: Deserializer<'de>>(env: D) -> Result<BTreeMap<String, String>, D::Error> {
    let env: BTreeMap<String, String> = BTreeMap::deserialize(env)?;
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(D::Error::custom(format!(
            "must have names of variables that are not empty and hold no `=`, as in {{ SEED = \"1\" }}, got {name:?}"
        )));
    }
    if let Some((name, _)) = env.iter().find(|(_, value)| value.contains('\0')) {
        return Err(D::Error::custom(format!("must have values without the character NUL, got one in {name:?}")));
    }
    Ok(env)
}

fn a_minute() -> Positive {
    Positive::try_from(60.0).expect("60 is positive")
}

plugin! {
    Estimator "command" {
        summary: "An estimator in any language: a program that reads groups and writes credit, as lines of JSON.",
        source: "",
        when: "To try an idea without writing Rust. One group at a time passes through a pipe: what is to stay is better a plugin.",
        // The reward of each turn, with what every Unix has; docs/guide/estimator-in-any-language.md has it in Python.
        example: "run = [\"sh\", \"-c\", '''while read -r group; do printf '{\"turns\":[%s]}\\n' \"$(printf '%s' \"$group\" | grep -o '\"reward\":[^,]*' | cut -d: -f2 | paste -sd, -)\"; done''']",
        module: "command.rs",
    }
    impl AdvantageEstimator for Command {
        fn needs(&self) -> Vec<Need> {
            self.needs.iter().map(|wanted| Need::Signal(wanted.signal.clone(), wanted.on.into())).collect()
        }

        fn targets(&self) -> Vec<String> {
            self.targets.clone()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(mistake) = &running.mistake {
                return Err(EstimateError(format!("group {} was not asked for, after this: {mistake}", group.index())));
            }
            self.ask(&mut running, group).map_err(|what| {
                let words = running.program.take().map(Program::last_words).unwrap_or_default();
                let mistake = self.mistake(group, &what, &words);
                running.mistake = Some(mistake.clone());
                EstimateError(mistake)
            })
        }
    }
}

impl Command {
    fn ask(&self, running: &mut Running, group: Group<'_>) -> Result<Credit, String> {
        let program = match &mut running.program {
            Some(program) => program,
            None => running.program.insert(Program::start(&self.run, &self.env).map_err(|trouble| trouble.to_string())?),
        };
        let patience = Duration::try_from_secs_f64(*self.timeout_seconds).unwrap_or(Duration::MAX);
        let answer = program.ask(self.question(group), patience).map_err(|trouble| trouble.to_string())?;
        self.credit(&answer, group)
            .map_err(|what| format!("line {} of its output, `{}`, is no credit: {what}", program.n_answers(), beginning(&answer)))
    }

    /// Names the program, the group and what went wrong, and quotes the end of its stderr.
    fn mistake(&self, group: Group<'_>, what: &str, words: &str) -> String {
        let quoted = if words.is_empty() { String::new() } else { format!("; the end of its stderr:\n{words}") };
        format!("`{}`, at group {}: {what}{quoted}", self.run.join(" "), group.index())
    }

    /// The group as a line of JSON.
    fn question(&self, group: Group<'_>) -> Vec<u8> {
        let turns = (0..group.n_turns()).map(|t| TurnLine::of(group, t)).collect();
        let paths = group.trajectories().zip(group.outcomes()).map(|(path, outcome)| PathLine {
            turns: path.turns(),
            end: end(&path.leaf().end),
            success: path.leaf().end.success(),
            outcome,
        });
        let line = GroupLine {
            version: VERSION,
            index: group.index(),
            task: &group.about().task_name,
            turns,
            paths: paths.collect(),
            signals: self.needs.iter().map(|wanted| (&*wanted.signal, signal(group, wanted))).collect(),
        };
        let mut bytes = serde_json::to_vec(&line).expect("it has no keys but strings, and a Vec takes all bytes");
        bytes.push(b'\n');
        bytes
    }

    /// What a line of JSON says about the group.
    fn credit(&self, line: &[u8], group: Group<'_>) -> Result<Credit, String> {
        let answer: CreditLine = serde_json::from_slice(line).map_err(|e| {
            // "at line 1" is of the line itself, and would be taken for that of the output.
            let what = e.to_string();
            let what = what.split(" at line ").next().unwrap_or_default();
            format!(
                "{what} at column {}; it must be one object, as {{\"turns\": [0.5, null]}}, in which NaN and Infinity do not count as numbers",
                e.column()
            )
        })?;
        if let Some(index) = answer.index.filter(|index| *index != group.index()) {
            return Err(format!("it is for group {index}; the program must write one line per group, in their order"));
        }
        if let Some(name) = answer.targets.keys().find(|name| !self.targets.contains(name)) {
            return Err(format!("it has a target for `{name}`; name it in `targets`, or leave it out"));
        }
        let targets = answer
            .targets
            .into_iter()
            .map(|(name, target)| (name, Target { scope: target.on.into(), column: target.values.into_iter().collect() }));
        let credit = Credit {
            turns: answer.turns,
            tokens: answer.tokens.into(),
            weight: answer.weight,
            targets: targets.collect(),
            ..Credit::default()
        };
        credit
            .check(group)
            .map_err(|what| format!("{what}; give each turn or token of the group its number or null, in order"))?;
        Ok(credit)
    }
}

#[derive(Serialize)]
struct GroupLine<'a> {
    version: u32,
    index: usize,
    task: &'a str,
    turns: Vec<TurnLine<'a>>,
    paths: Vec<PathLine>,
    signals: BTreeMap<&'a str, Values>,
}

#[derive(Serialize)]
struct TurnLine<'a> {
    parent: Option<usize>,
    agent: &'a str,
    reward: f32,
    tokens: usize,
    validity: Validity,
    observation: u32,
    state: u32,
    action: u32,
    observation_text: &'a str,
    action_text: &'a str,
    end: Option<&'static str>,
}

impl<'a> TurnLine<'a> {
    fn of(group: Group<'a>, t: usize) -> Self {
        let (batch, row) = (group.batch(), group.rows().start + t);
        Self {
            parent: group.parent(t),
            agent: &batch.agents[batch.turns.agent[row] as usize],
            reward: group.rewards()[t],
            tokens: group.sampled_of(t).len(),
            validity: batch.turns.validity[row],
            observation: group.observations()[t],
            state: group.states()[t],
            action: group.actions()[t],
            observation_text: &batch.notes[row].observation,
            action_text: &batch.notes[row].action,
            end: group.end(t).map(end),
        }
    }
}

#[derive(Serialize)]
struct PathLine {
    turns: Vec<usize>,
    end: &'static str,
    success: bool,
    outcome: f64,
}

/// A column of one group.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    on: On,
    values: Vec<Option<f32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreditLine {
    index: Option<usize>,
    turns: Vec<Option<f32>>,
    #[serde(default)]
    tokens: Vec<Option<f32>>,
    #[serde(default)]
    weight: Vec<f32>,
    #[serde(default)]
    targets: BTreeMap<String, Values>,
}

fn end(end: &End) -> &'static str {
    match end {
        End::Terminated { .. } => "terminated",
        End::Truncated(_) => "truncated",
        End::MacroBoundary => "macro_boundary",
        End::Untried => "untried",
        End::Failed(_) => "failed",
    }
}

fn signal(group: Group<'_>, wanted: &Wanted) -> Values {
    let values = match wanted.on {
        On::State => {
            let states = group.state_signal(&wanted.signal);
            let after = (0..group.n_turns()).map(|t| states.after(t));
            // They are stored as `f32`.
            std::iter::once(states.start()).chain(after).map(|value| Some(value as f32)).collect()
        }
        On::Turn => group.turn_signal(&wanted.signal).collect(),
        On::Token => group.token_signal(&wanted.signal).collect(),
    };
    Values { on: wanted.on, values }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, signalled, turn, valued};
    use ascribe_core::log::{Action, TurnLog};
    use ascribe_core::registry::{Kind, plugin};
    use ascribe_core::{Batch, Limit};
    use std::path::Path;
    use std::process::Stdio;

    fn command(run: &[&str]) -> Command {
        serde_json::from_value(serde_json::json!({ "run": run })).unwrap()
    }
    fn sh(script: &str) -> Command {
        command(&["sh", "-c", script])
    }
    /// Answers every group with this line.
    fn says(line: &str) -> Command {
        sh(&format!("while read -r group; do echo '{line}'; done"))
    }
    fn ask(command: &Command, batch: &Batch) -> Result<Credit, String> {
        command.estimate(batch.group(0), &Now::default()).map_err(|e| e.0)
    }
    fn two_turns() -> Batch {
        chains(&[(&[0.5, 1.0], WON)])
    }
    fn refused(command: &Command) -> String {
        let message = ask(command, &two_turns()).unwrap_err();
        assert!(message.starts_with(&format!("`{}`, at group 0: ", command.run.join(" "))), "{message}");
        assert!(command.running.lock().unwrap().program.is_none(), "it is stopped");
        message
    }
    #[track_caller]
    fn check(command: &Command, says: &[&str]) {
        let message = refused(command);
        for what in says {
            assert!(message.contains(what), "no {what:?} in {message:?}");
        }
    }
    /// `None`, said aloud, where there is no Python.
    fn python() -> Option<&'static str> {
        let works =
            std::process::Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
        if !works {
            println!("skipped: there is no python3");
        }
        works.then_some("python3")
    }
    /// Whether a process of that id runs, or is a zombie.
    fn lives(id: &str) -> bool {
        let found = std::process::Command::new("sh").args(["-c", &format!("kill -0 {id} 2>/dev/null")]).status();
        found.unwrap().success()
    }
    /// Whether it is dead, and to be reaped by somebody else: an orphan is by whoever adopts it, in its own time.
    fn is_anothers_zombie(id: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.next() == Some("Z") && fields.next() != Some(&std::process::id().to_string())
    }
    fn assert_gone(id: &str) {
        let gone = |_| {
            std::thread::sleep(Duration::from_millis(5));
            !lives(id) || is_anothers_zombie(id)
        };
        assert!((0..1000).any(gone), "{id} is still there");
    }

    #[test]
    fn credit_at_every_granularity() {
        let mut all = says(
            r#"{"turns": [0.5, null], "tokens": [null, -1e-3], "weight": [1, 0.25], "index": 0, "targets": {"value": {"on": "turn", "values": [null, 2]}}}"#,
        );
        all.targets.push("value".into());
        let credit = ask(&all, &two_turns()).unwrap();
        assert_eq!((credit.turns, credit.tokens), (vec![Some(0.5), None], vec![None, Some(-0.001)].into()));
        assert_eq!((credit.weight, credit.bundles), (vec![1.0, 0.25], vec![]));
        let want = Target { scope: Scope::Turn, column: [None, Some(2.0)].into_iter().collect() };
        assert_eq!(credit.targets, [("value".to_string(), want)].into());
        assert_eq!(all.targets(), ["value"]);
    }

    #[test]
    fn the_group_is_told_as_documented() {
        let first = TurnLog {
            observation_text: "A \"door\".\n".into(),
            action_text: "öffne".into(),
            validity: Validity::Refused,
            state_after: vec![1],
            action: Action::given(vec![0, 0]),
            ..turn(None, 0.5)
        };
        let second = |reward| TurnLog { observation: vec![1], state: vec![1], ..turn(Some(0), reward) };
        let cut = End::Truncated(Limit::Turns);
        let group = batch(vec![first, second(1.0), second(0.25)], &[(1, WON), (2, cut)]);
        let group = valued(group, &[0.25, 0.1, 0.0, 1.0]);
        let mut command = command(&["sh"]);
        command.needs = vec![Wanted { signal: "value".into(), on: On::State }];
        assert_eq!(command.needs(), [Need::Signal("value".into(), Scope::State)]);
        let line = String::from_utf8(command.question(group.group(0))).unwrap();
        assert_eq!(line.matches('\n').count(), 1, "one line");
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        let (documented, answer) = guides_json();
        assert_eq!(told, serde_json::from_str::<serde_json::Value>(documented).unwrap());
        assert_eq!(command.credit(answer.as_bytes(), group.group(0)).unwrap().turns, [Some(0.375), Some(0.375), None]);
    }

    #[test]
    fn signals_on_turns_and_tokens() {
        let two = two_turns();
        let two = signalled(two, "gain", Scope::Turn, &[1.0, 0.1]);
        let two = signalled(two, "surprise", Scope::Token, &[2.0, 3.0]);
        let mut wants = command(&["sh"]);
        let wanted = |signal: &str, on| Wanted { signal: signal.into(), on };
        wants.needs = vec![wanted("gain", On::Turn), wanted("surprise", On::Token)];
        let needs = [Need::Signal("gain".into(), Scope::Turn), Need::Signal("surprise".into(), Scope::Token)];
        assert_eq!(wants.needs(), needs);
        let line: serde_json::Value = serde_json::from_slice(&wants.question(two.group(0))).unwrap();
        let want = serde_json::json!({
            "gain": { "on": "turn", "values": [1.0, 0.1] }, "surprise": { "on": "token", "values": [2.0, 3.0] },
        });
        assert_eq!(line["signals"], want);
    }

    /// The plugin's example gives every turn its reward.
    fn rewards() -> Command {
        let example = plugin(Kind::Estimator, "command").unwrap().example;
        let script = example.split("'''").nth(1).unwrap();
        assert!(example.starts_with("run = [\"sh\", \"-c\", "));
        sh(script)
    }

    #[test]
    fn numbers_come_back_exact() {
        let rewards = rewards();
        let subnormal = f32::from_bits(1);
        let numbers = [0.1, -1.0 / 3.0, f32::MAX, f32::MIN_POSITIVE, subnormal, 16_777_217.0, -0.0, 7e-45, 8.5e37];
        let credit = ask(&rewards, &chains(&[(&numbers, WON)])).unwrap();
        let bits = |x: &f32| x.to_bits();
        let got: Vec<u32> = credit.turns.iter().map(|a| bits(&a.unwrap())).collect();
        assert_eq!(got, numbers.iter().map(bits).collect::<Vec<_>>());
    }

    #[test]
    fn no_program() {
        check(&command(&["/no/such/program"]), &["cannot be started: ", "PATH"]);
        let empty = serde_json::from_value::<Command>(serde_json::json!({ "run": [] })).unwrap_err();
        assert!(empty.to_string().starts_with("must begin with a program"), "{empty}");
    }

    #[test]
    fn a_program_that_ends() {
        check(&sh("exit 3"), &["ended (exit status: 3) before it had answered"]);
        check(&sh("read -r group; kill -TERM $$"), &["ended (signal: 15"]);
        check(&sh("read -r group; printf '{\"turns\": ['; echo boom >&2; exit 1"), &["exit status: 1", "stderr:\nboom"]);
        check(&sh("exec >&-; sleep 100"), &["it closed its output, and was stopped"]);
        let many = refused(&sh("i=0; while [ $i -lt 5000 ]; do i=$((i+1)); echo \"line $i\" >&2; done; exit 1"));
        assert!(many.ends_with("line 4999\nline 5000") && !many.contains("line 4988"), "{many}");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_started() {
        let mut hangs = sh("sleep 1000 & echo $$ $! >&2; wait");
        hangs.timeout_seconds = Positive::try_from(1.0).unwrap();
        let message = refused(&hangs);
        assert!(message.contains("gave no answer within 1 s"), "{message}");
        let ids = message.lines().last().unwrap().split(' ');
        assert_eq!(ids.clone().count(), 2);
        ids.for_each(assert_gone);
        // nobody waits for the same mistake again
        let again = ask(&hangs, &two_turns()).unwrap_err();
        assert_eq!(again, format!("group 0 was not asked for, after this: {message}"));
    }

    #[test]
    fn a_program_that_does_not_read_is_no_trap() {
        let text = "x".repeat(1 << 20);
        let long = batch(vec![TurnLog { observation_text: text, ..turn(None, 0.0) }], &[(0, WON)]);
        let mut deaf = sh("sleep 1000");
        deaf.timeout_seconds = Positive::try_from(0.2).unwrap();
        assert!(ask(&deaf, &long).unwrap_err().contains("gave no answer within 0.2 s"));
        assert_eq!(ask(&says(r#"{"turns": [1]}"#), &long).unwrap().turns, [Some(1.0)]);
    }

    #[test]
    fn what_is_no_credit() {
        check(
            &says("hello"),
            &["line 1 of its output, `hello`, is no credit: expected value at column 1; it must be one object"],
        );
        check(&says(""), &["line 1 of its output, ``, is no credit: EOF"]);
        check(&says(r#"{"turns": [0, NaN]}"#), &["expected value at column 15", "NaN and Infinity"]);
        check(&says(r#"{"turns": [0, 1e39]}"#), &["number out of range"]);
        check(&says(r#"{"turns": [0, 1]} {}"#), &["trailing characters at column 19"]);
        check(&says(r#"{"turn": [0, 1]}"#), &["unknown field `turn`, expected one of"]);
        check(&says("{}"), &["missing field `turns`"]);
        check(&says(r#"{"turns": [0]}"#), &["1 turn credits for 2 of them; give each turn"]);
        check(&says(r#"{"turns": [0, 0], "tokens": [1]}"#), &["1 token credits for 2 of them"]);
        check(&says(r#"{"turns": [0, 0], "weight": [1]}"#), &["1 turn weight credits for 2 of them"]);
        check(
            &says(r#"{"turns": [0, 0], "weight": [1, -1]}"#),
            &["the loss weight of turn 1 is -1; it must be finite and 0 or more"],
        );
        check(&says(r#"{"turns": [0, 0], "index": 7}"#), &["it is for group 7; the program must write one line per group"]);
        let mut target = says(r#"{"turns": [0, 0], "targets": {"value": {"on": "state", "values": [0]}}}"#);
        check(&target, &["it has a target for `value`; name it in `targets`"]);
        target.targets.push("value".into());
        target.running = Mutex::default();
        check(&target, &["target `value` credits for 3 of them"]);
    }

    #[test]
    fn the_line_is_named_and_long_ones_are_cut() {
        let long = format!("x{}", "é".repeat(100));
        let second = sh(&format!("read -r group; echo '{{\"turns\": [0, 0]}}'; read -r group; echo '{long}'; read -r group"));
        ask(&second, &two_turns()).unwrap();
        let message = refused(&second);
        assert!(message.contains(&format!("line 2 of its output, `x{}…`, is no credit", "é".repeat(79))), "{message}");
    }

    #[test]
    fn output_that_nobody_asked_for() {
        let twice = sh("while read -r group; do echo '{\"turns\": [0, 0]}'; echo done; done");
        ask(&twice, &two_turns()).unwrap();
        // Asked again before the second line is there, it would be taken for the answer, and is no credit either.
        std::thread::sleep(Duration::from_secs(1));
        check(&twice, &["wrote a line that nobody asked for: `done`; one line per group goes to stdout"]);
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        check(&sh("read -r group; yes | tr -d '\\n'"), &["bytes without the end of a line, which begins with `yyyy"]);
    }

    #[test]
    fn nothing_stays_when_it_is_dropped() {
        let started = sh("sleep 1000 & echo \"$$ $!\" > \"$NOTE\"; while read -r group; do echo '{\"turns\": [0, 0]}'; done");
        let deaf = sh("echo $$ > \"$NOTE\"; read -r group; echo '{\"turns\": [0, 0]}'; sleep 1000");
        let folder = tempfile::tempdir().unwrap();
        for mut command in [started, deaf] {
            let note = folder.path().join("note");
            command.env.insert("NOTE".into(), note.to_str().unwrap().into());
            ask(&command, &two_turns()).unwrap();
            let ids = std::fs::read_to_string(&note).unwrap();
            ids.split_whitespace().for_each(|id| assert!(lives(id)));
            drop(command);
            ids.split_whitespace().for_each(assert_gone);
        }
    }

    #[test]
    fn a_program_may_finish_when_its_input_ends() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        let mut command = sh("while read -r group; do echo '{\"turns\": [0, 0]}'; done; echo finished > \"$NOTE\"");
        command.env.insert("NOTE".into(), note.to_str().unwrap().into());
        ask(&command, &two_turns()).unwrap();
        drop(command);
        assert_eq!(std::fs::read_to_string(note).unwrap(), "finished\n");
    }

    #[test]
    fn a_group_whose_paths_all_failed_is_asked_for_too() {
        let failed = batch(vec![turn(None, 1.0)], &[(0, End::Failed("crashed".into()))]);
        let programs = [Some(rewards()), guide()];
        for program in programs.into_iter().flatten() {
            assert_eq!(ask(&program, &failed), Ok(Credit::default()));
        }
    }

    #[test]
    fn many_threads_ask_one_program() {
        let rewards = rewards();
        let groups: Vec<Batch> = (0..8u8).map(|i| chains(&[(&[f32::from(i), 0.5], WON), (&[-1.0], LOST)])).collect();
        std::thread::scope(|scope| {
            for (i, batch) in groups.iter().enumerate() {
                let rewards = &rewards;
                scope.spawn(move || {
                    for _ in 0..10 {
                        assert_eq!(ask(rewards, batch).unwrap().turns, [Some(i as f32), Some(0.5), Some(-1.0)]);
                    }
                });
            }
        });
        assert_eq!(rewards.running.lock().unwrap().program.as_ref().unwrap().n_answers(), 80, "started once");
    }

    #[test]
    fn names_of_variables_are_names() {
        let with = |name: &str, value: &str| {
            let keys = serde_json::json!({ "run": ["sh"], "env": { name: value } });
            serde_json::from_value::<Command>(keys).map(drop).map_err(|e| e.to_string())
        };
        for name in ["", "A=B", "=", "A\0"] {
            let refused = with(name, "1").unwrap_err();
            assert!(refused.contains("are not empty and hold no `=`") && refused.contains(&format!("got {name:?}")), "{refused}");
        }
        assert!(with("A", "a\0b").unwrap_err().contains("without the character NUL"));
        assert_eq!(with("A", "B=C"), Ok(()));
    }

    /// The guide and the plugin's page say what is not promised; this shows it.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_leaves_the_process_group_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        // Not for long: nobody ends it.
        let leaves = "setsid sh -c 'echo $$ > \"$NOTE\"; sleep 3' >&- 2>&- <&- & \
                      while [ ! -s \"$NOTE\" ]; do :; done; while read -r group; do echo '{\"turns\": [0, 0]}'; done";
        let mut command = sh(leaves);
        command.env.insert("NOTE".into(), note.to_str().unwrap().into());
        ask(&command, &two_turns()).unwrap();
        drop(command);
        let id = std::fs::read_to_string(&note).unwrap();
        assert!(lives(id.trim()));
    }

    #[test]
    fn what_runs_is_no_configuration() {
        let keys = serde_json::json!({
            "run": ["sh"], "timeout_seconds": 2.0, "needs": [{ "signal": "value", "on": "state" }], "targets": ["value"],
            "env": { "SEED": "1" },
        });
        let command: Command = serde_json::from_value(keys.clone()).unwrap();
        assert_eq!(serde_json::to_value(&command).unwrap(), keys);
        let unknown = serde_json::from_value::<Command>(serde_json::json!({ "run": ["sh"], "running": {} })).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `running`"), "{unknown}");
    }

    const GUIDE: &str = include_str!("../../../docs/guide/estimator-in-any-language.md");

    /// A group and its credit, as the guide shows them.
    fn guides_json() -> (&'static str, &'static str) {
        let mut blocks = GUIDE.split("```json\n").skip(1).map(|block| block.split("```").next().unwrap());
        (blocks.next().unwrap(), blocks.next().unwrap())
    }

    /// The guide's example.
    fn guide() -> Option<Command> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/estimator_in_python/my_estimator.py");
        python().map(|python| command(&[python, file.to_str().unwrap()]))
    }

    #[test]
    fn the_guides_example_is_grpo_without_the_division() {
        let Some(guide) = guide() else { return };
        let tree = vec![turn(None, 0.5), turn(Some(0), 1.0), turn(Some(0), 0.0), turn(None, 0.25), turn(None, 9.0)];
        let tree = batch(tree, &[(1, WON), (2, LOST), (3, LOST), (4, End::Untried)]);
        let grpo: crate::grpo::DrGrpo = serde_json::from_value(serde_json::json!({})).unwrap();
        let want = grpo.estimate(tree.group(0), &Now::default()).unwrap();
        assert_eq!(ask(&guide, &tree).unwrap(), want);
    }

    #[test]
    fn the_guide_shows_its_example() {
        let shown = GUIDE.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
        assert!(include_str!("../../../docs/guide/estimator_in_python/my_estimator.py").ends_with(shown));
    }

    #[test]
    fn python_keeps_the_bits() {
        let Some(python) = python() else { return };
        let echo = "import json, sys\nfor line in sys.stdin: print(json.dumps({'turns': [t['reward'] for t in json.loads(line)['turns']]}), flush=True)";
        // Steps of the golden ratio visit all signs, exponents and fractions evenly.
        let bits = (0..4000u32).map(|i| i.wrapping_mul(0x9E37_79B9));
        let numbers: Vec<f32> = bits.map(f32::from_bits).filter(|x| x.is_finite()).collect();
        let credit = ask(&command(&[python, "-c", echo]), &chains(&[(&numbers, WON)])).unwrap();
        let got: Vec<u32> = credit.turns.iter().map(|a| a.unwrap().to_bits()).collect();
        assert_eq!(got, numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    }
}
