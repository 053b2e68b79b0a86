//! `verify`: whether estimators, transforms, environments and critics keep what they must, and what they claim.

use std::collections::BTreeSet;
use std::process::ExitCode;

use ascribe_config::{from_example, plugin_keys};
use ascribe_conformance::{Among, Check, Finding, Outcome, Report, lacks, runs};
use ascribe_core::registry::{Kind, Plugin, plugin, plugins};
use ascribe_core::{
    AdvantageEstimator, BuildContext, BuildError, CreditTransform, CriticConfig, Need, Objective, PolicyConfig, Seeds, Slot,
    TaskSet, TaskSetConfig,
};

use serde::de::DeserializeOwned;

use crate::args::{Verifiable, VerifyArgs};
use crate::explain::near;
use crate::output::{colours, complain, indent, say, table};
use crate::{FAILED, REJECTED};

/// Verifies one plugin, or all of a kind.
pub(crate) fn command(args: &VerifyArgs) -> ExitCode {
    let kind = match args.kind {
        Verifiable::Estimator => Kind::Estimator,
        Verifiable::Transform => Kind::Transform,
        Verifiable::Environment => Kind::Environment,
        Verifiable::Critic => Kind::Critic,
    };
    let Some(name) = &args.name else { return all(args.kind, kind) };
    match plugin(kind, name) {
        Some(row) => one(args.kind, row, &args.settings),
        None => {
            let names: Vec<&str> = plugins(kind).iter().map(|row| row.name).collect();
            complain(&format!("error: there is no {kind} `{name}`{}", near(name, &names)));
            ExitCode::from(REJECTED)
        }
    }
}

fn one(kind: Verifiable, row: &Plugin, settings: &[String]) -> ExitCode {
    match verified(kind, row, settings) {
        Ok(Verdict::Checked(report)) => {
            say(&page(row, &report));
            ExitCode::from(if report.broken().next().is_none() { 0 } else { FAILED })
        }
        Ok(Verdict::Absent(why)) => {
            complain(&format!("error: {} `{}` was not checked: {why}", row.kind, row.name));
            ExitCode::from(REJECTED)
        }
        Ok(Verdict::Needs { keys, why }) => {
            let said: Vec<String> = keys.iter().map(|key| format!("{key}=…")).collect();
            complain(&format!(
                "error: {} `{}` was not checked: it needs {}, and with those of its example it does not run here: {why}\n\
                 help: `ascribe verify {} {} {}`",
                row.kind,
                row.name,
                ticked(&keys),
                row.kind,
                row.name,
                said.join(" ")
            ));
            ExitCode::from(REJECTED)
        }
        Err(report) => {
            let problems: Vec<String> = report.problems.iter().map(|problem| problem.render(colours())).collect();
            complain(&problems.join("\n"));
            ExitCode::from(REJECTED)
        }
    }
}

/// All plugins of a kind, a line each; what is broken follows in full.
fn all(verifiable: Verifiable, kind: Kind) -> ExitCode {
    let mut lines = Vec::new();
    let mut broken = Vec::new();
    for row in plugins(kind) {
        let report = match verified(verifiable, row, &[]) {
            Ok(Verdict::Checked(report)) => report,
            Ok(Verdict::Needs { keys, .. }) => {
                lines.push(vec![row.name.into(), String::new(), String::new(), format!("all: needs {}", ticked(&keys))]);
                continue;
            }
            Ok(Verdict::Absent(why)) => {
                lines.push(vec![row.name.into(), String::new(), String::new(), format!("all: {why}")]);
                continue;
            }
            // Its example is not one of it.
            Err(report) => {
                let why = report.problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; ");
                Report(vec![Check { what: "its example is one of it", outcome: Outcome::Broken(why.into()) }])
            }
        };
        let n = |wanted: fn(&Outcome) -> bool| report.0.iter().filter(|check| wanted(&check.outcome)).count().to_string();
        lines.push(vec![
            row.name.into(),
            n(|outcome| matches!(outcome, Outcome::Held(_))),
            n(|outcome| matches!(outcome, Outcome::Broken(_))),
            n(|outcome| matches!(outcome, Outcome::NotAsked(_))),
        ]);
        broken.extend(report.broken().map(|(what, why)| format!("`{}`: {what}\n{}", row.name, indent(&why.to_string(), 2))));
    }
    let mut out = table(&[kind.as_str(), "checks that hold", "broken", "not asked"], lines);
    if broken.is_empty() {
        say(&(out + "\n\nnothing is broken"));
        return ExitCode::SUCCESS;
    }
    out += &format!("\n\nbroken\n{}", indent(&broken.join("\n"), 2));
    say(&out);
    ExitCode::from(FAILED)
}

/// What came of verifying a plugin.
enum Verdict {
    Checked(Report),
    /// Its data are not here, and what gets them.
    Absent(String),
    /// Its example does not run here, and why; these keys are the user's to say.
    Needs {
        keys: Vec<String>,
        why: String,
    },
}

/// Builds a plugin from its example with `settings` on top, and checks it.
fn verified(kind: Verifiable, row: &Plugin, settings: &[String]) -> Result<Verdict, ascribe_config::Report> {
    match kind {
        Verifiable::Estimator => {
            let estimator: Slot<dyn AdvantageEstimator> = from_example(row, settings)?;
            Ok(silently(|| match runs(&*estimator) {
                Ok(()) => Verdict::Checked(ascribe_conformance::estimator(&*estimator)),
                Err(e) => does_not_run(row, settings, e.to_string()),
            }))
        }
        Verifiable::Transform => {
            let transform: Slot<dyn CreditTransform> = from_example(row, settings)?;
            Ok(Verdict::Checked(silently(|| ascribe_conformance::transform(&*transform))))
        }
        Verifiable::Environment => {
            let config: Slot<dyn TaskSetConfig> = from_example(row, settings)?;
            Ok(silently(|| match config.build(&context()) {
                Ok(tasks) => Verdict::Checked(ascribe_conformance::environment(&*tasks)),
                Err(BuildError::Data(why)) => Verdict::Absent(why),
                Err(e) => does_not_run(row, settings, e.to_string()),
            }))
        }
        Verifiable::Critic => {
            let config: Slot<dyn CriticConfig> = from_example(row, settings)?;
            let policy = acting(&config.needs())?;
            let objective: Slot<dyn Objective> = own_example(Kind::Objective, "nll")?;
            Ok(silently(|| match fitting(&config.needs()) {
                Ok(tasks) => {
                    let among = Among { tasks: &*tasks, policy: &*policy, objective: &*objective };
                    Verdict::Checked(ascribe_conformance::critic(&*config, among))
                }
                Err(why) => Verdict::Absent(why),
            }))
        }
    }
}

fn context() -> BuildContext<'static> {
    BuildContext { seeds: Seeds(0), device: "cpu", threads: 1, environment: None, nodes: BTreeSet::new(), base: ".".into() }
}

/// A plugin of this binary as in its example.
fn own_example<T: DeserializeOwned>(kind: Kind, name: &str) -> Result<T, ascribe_config::Report> {
    from_example(plugin(kind, name).expect("this binary links it"), &[])
}

/// The policy that a critic is checked with: a table, or where hidden vectors are asked for the first that has them.
fn acting(needs: &[Need]) -> Result<Slot<dyn PolicyConfig>, ascribe_config::Report> {
    let table = own_example(Kind::Policy, "tabular")?;
    if !needs.contains(&Need::Hidden) {
        return Ok(table);
    }
    let all = plugins(Kind::Policy).into_iter().filter_map(|row| from_example::<Slot<dyn PolicyConfig>>(row, &[]).ok());
    Ok({ all }.find(|policy| policy.hidden()).unwrap_or(table))
}

/// The environment that a critic is checked in: the first of those below, then of all others, whose examples give what it
/// needs. Their state keys are exact, so that a policy of tables can act in them.
fn fitting(needs: &[Need]) -> Result<Box<dyn TaskSet>, String> {
    const FIRST: [&str; 3] = ["bugfix", "repair-mdp", "token-tree"];
    let mut rows = plugins(Kind::Environment);
    rows.sort_by_key(|row| FIRST.iter().position(|name| *name == row.name).unwrap_or(FIRST.len()));
    let mut lacked = None;
    for row in rows {
        let Ok(config) = from_example::<Slot<dyn TaskSetConfig>>(row, &[]) else { continue };
        let provided = config.provides();
        if !provided.contains(&Need::ExactStateKey) {
            continue;
        }
        if let Some(need) = lacks(needs, &provided) {
            lacked.get_or_insert_with(|| format!("it needs {need}"));
            continue;
        }
        // Its data may be elsewhere.
        if let Ok(tasks) = config.build(&context()) {
            return Ok(tasks);
        }
    }
    Err(format!("no environment whose data are here gives all that it needs; in `bugfix`, {}", lacked.unwrap_or_default()))
}

/// An example may name what is not there, a program for one. What the user says, or nobody can say, is held against the plugin.
fn does_not_run(row: &Plugin, settings: &[String], why: String) -> Verdict {
    let keys = plugin_keys(row.kind, row.name);
    let keys: Vec<String> = keys.into_iter().filter(|key| key.required).map(|key| key.name).collect();
    if settings.is_empty() && !keys.is_empty() {
        return Verdict::Needs { keys, why };
    }
    Verdict::Checked(Report(vec![Check { what: "it runs", outcome: Outcome::Broken(why.into()) }]))
}

/// Runs the checks, which catch panics and report them, without the panics' own words on standard error.
fn silently<T>(run: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let out = run();
    std::panic::set_hook(hook);
    out
}

/// The checks of one plugin; what is found in an episode follows in full.
fn page(row: &Plugin, report: &Report) -> String {
    let lines = report.0.iter().map(|check| {
        let (result, cases, why) = match &check.outcome {
            Outcome::Held(cases) => ("holds", cases.to_string(), ""),
            Outcome::NotAsked(why) => ("not asked", String::new(), why.as_str()),
            Outcome::Broken(finding) => ("broken", String::new(), finding.why.as_str()),
        };
        vec![check.what.to_string(), result.into(), cases, why.into()]
    });
    // What a check is asked of.
    let cases = match row.kind {
        Kind::Transform => "batches",
        Kind::Environment | Kind::Critic => "cases",
        _ => "groups",
    };
    let checks = table(&["check", "result", cases, "why"], lines.collect());
    let more = |finding: &Finding| finding.place.is_some() || finding.difference.is_some() || !finding.remedy.is_empty();
    let findings = report.broken().filter(|(_, finding)| more(finding));
    let findings: String = findings.map(|(what, finding)| format!("\n\n{what}\n{}", indent(&finding.to_string(), 2))).collect();
    let end = match report.broken().count() {
        0 => "it keeps what it must and what it claims".into(),
        n => format!("broken: {n} of {} checks", report.0.len()),
    };
    format!("{} `{}`\n\n{}{findings}\n\n{end}", row.kind, row.name, indent(&checks, 2))
}

/// Names in backticks.
fn ticked(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use ascribe_conformance::{Difference, Place, Said};
    use ascribe_core::environment::TaskId;

    use super::*;

    #[test]
    fn what_is_found_in_an_episode_follows_the_table_in_full() {
        let row = plugin(Kind::Environment, "bugfix").expect("it is linked");
        let finding = Finding {
            why: "the same episode is another one the second time".into(),
            place: Some(Box::new(Place {
                task: TaskId { split: "train".into(), index: 3 },
                seed: 1,
                actions: vec![Said { text: "read".into(), complete: true }],
            })),
            difference: Some(Box::new(Difference {
                of: "observation".into(),
                at: 2,
                expected: ("first".into(), "\"abc\"".into()),
                found: ("second".into(), "\"abd\"".into()),
            })),
            remedy: "draw from the seed".into(),
        };
        let broken = |finding| Check { what: "it is one", outcome: Outcome::Broken(finding) };
        let held = Check { what: "it is there", outcome: Outcome::Held(3) };
        insta::assert_snapshot!(page(row, &Report(vec![held, broken(finding)])), @r#"
        environment `bugfix`

          check        result  cases  why
          it is there  holds   3
          it is one    broken         the same episode is another one the second time

        it is one
          the same episode is another one the second time
            where     task train/3, seed 1, after 1 turn: "read"
            differs   observation, first at byte 2
                        first   "abc"
                        second  "abd"
            remedy    draw from the seed

        broken: 1 of 2 checks
        "#);
        // One that was found on no episode stands in the table.
        let page = page(row, &Report(vec![broken(Finding::from("it is two".to_string()))]));
        assert_eq!(page.matches("it is two").count(), 1, "{page}");
    }
}
