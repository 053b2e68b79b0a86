//! `view`: the trajectories of a run as a page.

use std::path::Path;
use std::process::ExitCode;

use ascribe_core::registry::{Kind, Plugin, plugin};
use ascribe_report::view::{Damaged, Lane, Source, View, ViewError, view};

use crate::args::ViewArgs;
use crate::output::{colours, complain, say};
use crate::{FAILED, REJECTED};

/// Writes the page, and says where.
pub(crate) fn command(args: &ViewArgs) -> ExitCode {
    let lanes = match lanes(&args.estimators) {
        Ok(lanes) => lanes,
        Err(report) => {
            let problems: Vec<String> = report.problems.iter().map(|problem| problem.render(colours())).collect();
            complain(&problems.join("\n"));
            return ExitCode::from(REJECTED);
        }
    };
    match made(args, &lanes) {
        Ok((out, view)) => {
            told(&out, &view);
            ExitCode::SUCCESS
        }
        Err(e) => {
            complain(&format!("error: {e}"));
            let asked =
                matches!(e, ViewError::NotSaved { .. } | ViewError::OneBatch(_) | ViewError::Lacks { .. } | ViewError::Taken(_));
            ExitCode::from(if asked { REJECTED } else { FAILED })
        }
    }
}

fn lanes(asked: &[String]) -> Result<Vec<Lane>, ascribe_config::Report> {
    let lane = |value: &String| {
        let value = completed(value);
        Ok(Lane { name: name(&value).into(), estimator: ascribe_config::estimator(&value)? })
    };
    asked.iter().map(lane).collect()
}

/// What was asked for; a name alone whose plugin has keys that must be said, with its example. The heading then shows them.
fn completed(value: &str) -> String {
    let example = |row: &Plugin| {
        let required = ascribe_config::plugin_keys(row.kind, row.name).iter().any(|key| key.required);
        let keys: toml::Table = toml::from_str(row.example).ok().filter(|_| required)?;
        Some(format!("{{ {} = {} }}", row.name, toml::Value::Table(keys)))
    };
    plugin(Kind::Estimator, name(value)).and_then(example).unwrap_or_else(|| value.into())
}

/// An estimator as a column is headed: an inline table without its braces, a name without its quotes.
fn name(value: &str) -> &str {
    let value = value.trim();
    let inner = [('{', '}'), ('"', '"'), ('\'', '\'')]
        .into_iter()
        .find_map(|(open, close)| value.strip_prefix(open)?.strip_suffix(close));
    inner.unwrap_or(value).trim()
}

fn made(args: &ViewArgs, lanes: &[Lane]) -> Result<(std::path::PathBuf, View), ViewError> {
    let source = Source::open(&args.run, &args.updates)?;
    let view = view(&source.title(), source.read(), lanes, args.limit)?;
    let out = args.out.clone().unwrap_or_else(|| source.page());
    view.write(&out)?;
    Ok((out, view))
}

/// Says what was written.
fn told(out: &Path, view: &View) {
    if let Some(damaged) = Damaged::told(&view.damaged) {
        complain(&format!("warning: {damaged}"));
    }
    let updates = match view.updates[..] {
        [one] => format!("update {one}"),
        _ => format!("{} updates", view.updates.len()),
    };
    let left_out = match view.left_out {
        0 => String::new(),
        n => format!("; {n} more were left out: --limit {} shows them", view.trajectories + n),
    };
    say(&format!("{}: {} of {updates}{left_out}", out.display(), counted(view.trajectories)));
}

fn counted(trajectories: usize) -> String {
    if trajectories == 1 { "1 trajectory".into() } else { format!("{trajectories} trajectories") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_headed_by_what_was_asked_for() {
        for (asked, headed) in [
            ("gigpo", "gigpo"),
            ("\"gigpo\"", "gigpo"),
            ("{ gae = { lambda = 0.9 } }", "gae = { lambda = 0.9 }"),
            ("{gae={}}", "gae={}"),
        ] {
            assert_eq!(name(asked), headed);
        }
    }

    #[test]
    fn estimators_are_read_as_an_experiment_reads_them() {
        let good = ["grpo".to_string(), "{ gae = { gamma = 1.0, lambda = 0.25 } }".into(), "gigpo".into()];
        let lanes = lanes(&good).expect("good estimators");
        assert_eq!((lanes[0].name.as_str(), lanes[1].name.as_str()), ("grpo", "gae = { gamma = 1.0, lambda = 0.25 }"));
        assert!(format!("{:?}", lanes[1].estimator).contains("0.25"), "{lanes:?}");
        // What it needs and was not told comes from its example, and is shown.
        assert!(lanes[2].name.starts_with("gigpo = {") && lanes[2].name.contains("gamma = "), "{}", lanes[2].name);
        for (bad, told) in [
            ("gigp", "did you mean `gigpo`"),
            ("{ gae = { gamma = 1.0, lamda = 0.9 } }", "did you mean `lambda`"),
            ("{ gae = { gamma = 1.0, lambda = 7.0 } }", "0..=1"),
            ("{ rloo = {}, grpo = {} }", "takes exactly one estimator"),
            ("7", "estimator"),
        ] {
            let report = super::lanes(&[bad.to_string()]).expect_err(bad).render(false);
            assert!(report.contains(told), "{bad}: {told:?} in\n{report}");
        }
    }
}
