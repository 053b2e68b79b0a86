//! Schedules: a table where a number goes is lifted out of the tree.

use ascribe_core::experiment::{Experiment, Knob, SCHEDULABLE};
use ascribe_core::registry::Kind;
use ascribe_core::{Now, Schedule, Slot};
use serde::Deserialize;
use toml::Value;

use crate::judge::{Finding, What, judge};
use crate::layers::child;
use crate::path::{Path, set};
use crate::report::list;
use crate::schema::{Node, slot_schema};

/// Takes every schedule out of the tree and leaves its first number. Returns the schedules, and what is wrong with them.
pub(crate) fn lift(value: &mut Value, schema: Node<'_>) -> (Vec<Knob>, Vec<Finding>) {
    let mut lifted = (Vec::new(), Vec::new());
    walk(value, schema, &mut Vec::new(), &mut lifted);
    // Not in the order of the file: however an experiment is written, it is the same.
    lifted.0.sort_by(|a: &Knob, b: &Knob| a.path.cmp(&b.path));
    lifted
}

fn walk(value: &mut Value, node: Node<'_>, path: &mut Path, out: &mut (Vec<Knob>, Vec<Finding>)) {
    match value {
        Value::Table(_) if node.is_number() => {
            let stand_in = match schedule(value, path) {
                Ok(schedule) => {
                    let first = number(schedule.at(&Now::default(), &mut Vec::new()), node.is_whole());
                    out.0.push(Knob { path: path.clone(), integer: node.is_whole(), schedule });
                    first
                }
                Err(findings) => {
                    out.1.extend(findings);
                    node.sample().unwrap_or(Value::Integer(1))
                }
            };
            *value = stand_in;
        }
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                let Some(node) = node.child(key) else { continue };
                path.push(key.clone());
                walk(value, node, path, out);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (i, value) in items.iter_mut().enumerate() {
                let Some(node) = node.child(&i.to_string()) else { continue };
                path.push(i.to_string());
                walk(value, node, path, out);
                path.pop();
            }
        }
        _ => {}
    }
}

fn schedule(value: &Value, path: &Path) -> Result<Slot<dyn Schedule>, Vec<Finding>> {
    if !path.first().is_some_and(|top| SCHEDULABLE.contains(&top.as_str())) {
        let message = format!("cannot be scheduled: it is read once; numbers below {} can", list(&SCHEDULABLE, "and"));
        return Err(vec![Finding { path: path.clone(), what: What::Refused(message, None) }]);
    }
    let (schedule, findings) = judge::<Slot<dyn Schedule>>(&mut value.clone(), slot_schema(Kind::Schedule));
    match schedule {
        Some(schedule) if findings.is_empty() => {
            let (min, max) = schedule.bounds();
            if min <= max {
                return Ok(schedule);
            }
            let message = format!("its smallest number, {min}, is above its largest, {max}");
            let name = value.as_table().and_then(|table| table.keys().next().cloned()).unwrap_or_default();
            Err(vec![Finding { path: child(path, &name), what: What::Refused(message, None) }])
        }
        _ => {
            let placed = findings.into_iter().map(|f| Finding { path: [path.as_slice(), &f.path].concat(), ..f });
            Err(placed.collect())
        }
    }
}

/// A scheduled number as the tree holds it.
fn number(x: f64, whole: bool) -> Value {
    if whole { Value::Integer(x.round() as i64) } else { Value::Float(x) }
}

/// The experiment with one schedule at the end of its range.
pub(crate) struct AtBound {
    pub path: Path,
    pub number: Value,
    pub experiment: Experiment,
}

/// Asks serde whether the smallest and the largest number of every schedule fit where they stand. `tree` holds their
/// first numbers.
pub(crate) fn at_bounds(tree: &Value, knobs: &[Knob]) -> Result<Vec<AtBound>, Vec<Finding>> {
    let (mut fits, mut findings) = (Vec::new(), Vec::new());
    for knob in knobs {
        let (min, max) = knob.schedule.bounds();
        for x in [min, max] {
            let (mut tree, x) = (tree.clone(), number(x, knob.integer));
            if !set(&mut tree, &knob.path, x.clone()) {
                continue;
            }
            match Experiment::deserialize(tree) {
                Ok(experiment) => fits.push(AtBound { path: knob.path.clone(), number: x, experiment }),
                Err(error) => {
                    let message = error.message().lines().next().unwrap_or_default().to_string();
                    findings.push(Finding { path: knob.path.clone(), what: What::Refused(message, Some(x)) });
                    break;
                }
            }
        }
    }
    if findings.is_empty() { Ok(fits) } else { Err(findings) }
}
