//! Every estimator and transform of the catalogue, from its own example.

mod example;

use ascribe_conformance::{Outcome, Report};
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::{AdvantageEstimator, CreditTransform, Slot};

use example::plugin;

// The plugin crates are linked.
use {ascribe_estimators as _, ascribe_transforms as _};

fn broken(name: &str, report: &Report, out: &mut Vec<String>) {
    out.extend(report.broken().map(|(what, why)| format!("`{name}`: {what}: {why}")));
    let held = report.0.iter().filter(|check| matches!(check.outcome, Outcome::Held(n) if n > 0)).count();
    println!("{name}: {held} of {} checks asked and held", report.0.len());
}

#[test]
fn estimators_keep_what_all_must_and_what_they_claim() {
    let mut out = Vec::new();
    let rows = plugins(Kind::Estimator);
    assert!(rows.len() > 15, "the catalogue is linked");
    for row in rows {
        let estimator: Slot<dyn AdvantageEstimator> = plugin(row.name, row.example);
        broken(row.name, &ascribe_conformance::estimator(&*estimator), &mut out);
    }
    assert!(out.is_empty(), "{}", out.join("\n"));
}

#[test]
fn transforms_keep_what_all_must() {
    let mut out = Vec::new();
    for row in plugins(Kind::Transform) {
        let transform: Slot<dyn CreditTransform> = plugin(row.name, row.example);
        broken(row.name, &ascribe_conformance::transform(&*transform), &mut out);
    }
    assert!(out.is_empty(), "{}", out.join("\n"));
}
