//! Every number that rliable 1.2.0 gives for five tables of scores, against ours.
//!
//! Points are the same to 1e-12. Intervals cannot be: rliable draws its own 2,000 resamples. An end of its interval is the 2.5th
//! or 97.5th percentile of them, and lies, but for chance, between nearby percentiles of our 50,000: see [`ENDS`].

#![allow(clippy::unwrap_used)]

use ascribe_core::seed::Seeds;
use ascribe_study::{
    Arm, Bootstrap, Estimate, Level, Metric, Range, Run, Scores, Table, Training, fraction_above, improvement,
    probability_of_improvement, profile, summarise,
};
use serde_json::Value;

const EXACT: f64 = 1e-12;

/// Levels of our intervals between whose ends an end of rliable's must lie. Among 2,000 draws the share below the true 2.5th
/// percentile has a standard error of √(0.025·0.975/2000) = 0.35 %, ours among 50,000 of 0.07 %: together 0.356 %. With 140 ends,
/// four errors leave a chance of one in a hundred for any to lie outside: 2.5 % ± 1.42 %, and twice that off the level.
const ENDS: (f64, f64) = (0.95 - 2.0 * 0.0142, 0.95 + 2.0 * 0.0142);

fn cases() -> Vec<Value> {
    let golden: Value = serde_json::from_str(include_str!("data/rliable.json")).unwrap();
    golden["cases"].as_array().unwrap().clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap_or_else(|| panic!("a list: {value}")).iter().map(|x| x.as_f64().unwrap()).collect()
}

fn scores(value: &Value) -> Scores {
    Scores::of_rows(&value.as_array().unwrap().iter().map(numbers).collect::<Vec<_>>())
}

fn table(case: &Value) -> Table {
    let arm = |name: &str| {
        let runs = scores(&case[name]).runs().zip(0..).map(|(run, seed)| Run { seed, result: Ok(run.to_vec()) }).collect();
        Arm { name: name.into(), runs }
    };
    let tasks = (0..scores(&case["x"]).n_tasks()).map(|task| format!("task {task}")).collect();
    let unbounded = Range::new(f64::NEG_INFINITY, f64::INFINITY).unwrap();
    Table::new(tasks, unbounded, Training::PerTask, vec![arm("x"), arm("y")]).unwrap()
}

fn metrics() -> [Metric; 4] {
    [Metric::Median, Metric::Iqm, Metric::Mean, Metric::OptimalityGap { target: 1.0 }]
}

/// Counts and compares points.
fn exact(what: &str, case: &Value, got: &[f64], want: &Value) -> usize {
    let want = match want {
        Value::Array(_) => numbers(want),
        number => vec![number.as_f64().unwrap()],
    };
    assert_eq!(got.len(), want.len(), "{} {what}", case["name"]);
    for (got, want) in got.iter().zip(&want) {
        assert!((got - want).abs() <= EXACT, "{} {what}: {got}, rliable gives {want}", case["name"]);
    }
    want.len()
}

/// Counts and compares both ends of intervals, `ends` of `[2][numbers]`.
fn within(what: &str, case: &Value, ends: &Value, ours: impl Fn(&Bootstrap) -> Vec<Estimate>) -> usize {
    let at = |level| {
        let bootstrap = Bootstrap { confidence: Level::new(level).unwrap(), ..Bootstrap::of_tables(Seeds(0)) };
        ours(&bootstrap).into_iter().map(|estimate| estimate.interval.unwrap()).collect::<Vec<_>>()
    };
    let (narrow, wide) = (at(ENDS.0), at(ENDS.1));
    let (lows, highs) = (numbers(&ends[0]), numbers(&ends[1]));
    assert_eq!((lows.len(), highs.len()), (narrow.len(), narrow.len()), "{} {what}", case["name"]);
    for i in 0..narrow.len() {
        let (narrow, wide) = (narrow[i], wide[i]);
        let low = (wide.low - EXACT..=narrow.low + EXACT).contains(&lows[i]);
        let high = (narrow.high - EXACT..=wide.high + EXACT).contains(&highs[i]);
        let name = &case["name"];
        assert!(low, "{name} {what} {i}: rliable's lower end {} is not in {}..={}", lows[i], wide.low, narrow.low);
        assert!(high, "{name} {what} {i}: rliable's upper end {} is not in {}..={}", highs[i], narrow.high, wide.high);
    }
    lows.len() + highs.len()
}

#[test]
fn points_are_those_of_rliable() {
    let mut compared = 0;
    for case in &cases() {
        let (x, y) = (scores(&case["x"]), scores(&case["y"]));
        let aggregates = metrics().map(|metric| metric.of(&x));
        compared += exact("aggregates", case, &aggregates, &case["median_iqm_mean_gap"]);
        let improves = probability_of_improvement(&x, &y);
        compared += exact("improvement", case, &[improves], &case["prob_improvement_x_over_y"]);
        let shares: Vec<f64> = numbers(&case["taus"]).iter().map(|tau| fraction_above(&x, *tau)).collect();
        compared += exact("profile", case, &shares, &case["profile"]);
    }
    // five cases of four aggregates, one probability, nine shares
    assert_eq!(compared, 70);
}

#[test]
fn intervals_are_those_of_rliable_but_for_chance() {
    let mut compared = 0;
    for case in &cases() {
        let table = table(case);
        let (x, y) = (scores(&case["x"]), scores(&case["y"]));
        let aggregates = |bootstrap: &Bootstrap| {
            let summary = summarise(&table, &metrics(), bootstrap).remove(0);
            summary.estimates.into_iter().map(|(_, estimate)| estimate.unwrap()).collect()
        };
        compared += within("aggregates", case, &case["ci95_percentile_2000_mc"], aggregates);
        let improves = |bootstrap: &Bootstrap| vec![improvement(&x, &y, Training::PerTask, bootstrap)];
        compared += within("improvement", case, &case["pi_ci95_mc"], improves);
        let taus = numbers(&case["taus"]);
        let shares = |bootstrap: &Bootstrap| profile(&table, &taus, bootstrap).remove(0).shares;
        compared += within("profile", case, &case["profile_ci95_mc"], shares);
    }
    // five cases of two ends of four aggregates, one probability, nine shares
    assert_eq!(compared, 140);
}
