//! What holds for every text.

use proptest::prelude::*;

use crate::{BASE, Given};

/// Loads a text and shows what comes of it; never panics.
fn survives(text: &str, arguments: &[&str], environment: &[(&str, &str)]) {
    let (loaded, _) = Given { files: &[("exp.toml", text)], arguments, environment }.load();
    match loaded {
        Ok(loaded) => {
            let again = Given { files: &[("resolved.toml", &loaded.plan.resolved)], ..Given::default() }.load().0;
            let again = again.unwrap_or_else(|report| panic!("{}\nis not accepted:\n{report}", loaded.plan.resolved));
            assert_eq!(again.plan.resolved, loaded.plan.resolved);
            assert_eq!(again.plan.identity, loaded.plan.identity);
            for key in ["update", "estimator", "transform.0", "reward.env", "phase.a.seed"] {
                drop(loaded.explain(key));
            }
        }
        Err(report) => {
            assert!(!report.problems.is_empty());
            assert!(!report.render(true).is_empty() && !report.render(false).contains('\u{1b}'));
        }
    }
}

/// Pieces that experiments are made of, and pieces that they are not.
fn piece() -> impl Strategy<Value = String> {
    let known = [
        "updates",
        "estimator",
        "update",
        "phase",
        "name",
        "transform",
        "policy",
        "critic",
        "reward",
        "alarm",
        "extends",
        "grid",
        "uses",
        "seed",
        "gae",
        "grpo",
        "blend",
        "clip",
        "whiten",
        "learning_rate",
        "ramp",
        "constant",
        "value",
        "\"a.b\"",
        "'x'",
        "warmup",
        "no-signal",
        "0",
        "1",
        "é",
    ];
    prop_oneof![
        8 => prop::sample::select(known.to_vec()).prop_map(String::from),
        1 => "[a-z_-]{1,6}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1".to_string()),
        Just("0.5".to_string()),
        Just("-3".to_string()),
        Just("nan".to_string()),
        Just("inf".to_string()),
        Just("true".to_string()),
        Just("\"grpo\"".to_string()),
        Just("\"\"".to_string()),
        Just("2026-01-01".to_string()),
        Just("99999999999999999999".to_string()),
        Just("\"20M\"".to_string()),
        "\"[ -!#-\\[\\]-~é]{0,8}\"",
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|v| format!("[{}]", v.join(", "))),
            prop::collection::vec((piece(), inner), 0..3)
                .prop_map(|v| format!("{{ {} }}", v.iter().map(|(k, v)| format!("{k} = {v}")).collect::<Vec<_>>().join(", "))),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 1..4).prop_map(|parts| parts.join("."))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        survives(&text, &[], &[]);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("exp.toml");
        std::fs::write(&file, &bytes).unwrap();
        if let Err(report) = ascribe_config::load(&ascribe_config::Request::new(&file)) {
            prop_assert!(!report.to_string().is_empty());
        }
    }

    #[test]
    fn no_change_of_a_line_panics(line in 0usize..24, new in prop_oneof![
        (key(), value()).prop_map(|(k, v)| format!("{k} = {v}")),
        key().prop_map(|k| format!("[{k}]")),
        key().prop_map(|k| format!("[[{k}]]")),
        Just(String::new()),
        "\\PC{0,20}",
    ]) {
        let mut lines: Vec<&str> = BASE.lines().collect();
        let line = line.min(lines.len() - 1);
        lines[line] = &new;
        survives(&lines.join("\n"), &[], &[]);
    }

    #[test]
    fn no_further_lines_panic(more in prop::collection::vec(prop_oneof![
        3 => (key(), value()).prop_map(|(k, v)| format!("{k} = {v}")),
        1 => key().prop_map(|k| format!("[{k}]")),
        1 => Just("[[phase]]\nname = \"a\"".to_string()),
    ], 0..4)) {
        survives(&format!("{BASE}{}", more.join("\n")), &[], &[]);
        survives(&format!("{}\n{BASE}", more.join("\n")), &[], &[]);
    }

    #[test]
    fn no_changed_byte_panics(at in 0usize..400, new in any::<char>()) {
        let mut text: Vec<char> = BASE.chars().collect();
        let at = at % text.len();
        text[at] = new;
        survives(&text.into_iter().collect::<String>(), &[], &[]);
    }

    #[test]
    fn no_setting_panics(key in key(), value in value(), junk in "\\PC{0,20}") {
        let phases = format!("{BASE}[[phase]]\nname = \"a\"\n[[phase]]\nname = \"warmup\"\n");
        let variable = format!("ASCRIBE__{}", key.replace('.', "__").to_uppercase());
        for text in [BASE, &phases] {
            survives(text, &[&format!("{key}={value}")], &[]);
            survives(text, &[&junk, &format!("{key}={junk}")], &[]);
            survives(text, &[], &[(&variable.replace('\0', ""), &value)]);
        }
    }

    #[test]
    fn what_is_accepted_is_read_again_to_the_bit(
        (weight, epsilon, seed) in (0.0..=1.0f64, prop::num::f64::POSITIVE | prop::num::f64::SUBNORMAL, 0..=i64::MAX),
        name in "[^/\\\\.\\pC][^/\\\\\\pC]{0,8}",
        transforms in prop::collection::vec(prop::sample::select(vec!["\"whiten\"", "{ clip.max = 1e-300 }", "{ band = { min = -1, max = 0.1 } }"]), 0..3),
        scheduled: bool,
        phases in prop::collection::vec(prop::sample::select(vec![
            "updates = 2", "transform = []", "objective.ppo-clip.clip = 0.1", "estimator = \"grpo\"", "train = [\"actor\"]",
            "update.clip_norm = 0.5", "rollout.independent.tasks = \"1.5k\"", "alarm.no-signal.action = \"off\"",
            "estimator.blend.weight.ramp = { from = 0, to = 1, updates = 3 }", "reward = { progress = 0.1 }",
        ]), 0..3),
    ) {
        let name = toml::Value::String(name).to_string();
        let head = format!("name = {name}\nseed = {seed}\ntransform = [{}]\n", transforms.join(", "));
        let body = BASE.split("[[transform]]").next().unwrap().replace("weight = 0.5", &format!("weight = {weight:?}"));
        let mut text = format!("{head}{}", body.replace("b.grpo.epsilon = 1e-6", &format!("b.grpo.epsilon = {epsilon:e}")));
        text += if scheduled { "[update.learning_rate.ramp]\nfrom = 1e-3\nto = 1\nupdates = 5\n" } else { "[update]\nlearning_rate = 1e-3\n" };
        for (i, says) in phases.iter().enumerate() {
            text += &format!("[[phase]]\nname = \"phase {i}\"\n{says}\n");
        }
        let load = |text: &str| Given { files: &[("exp.toml", text)], ..Given::default() }.load().0;
        let first = load(&text).unwrap_or_else(|report| panic!("{text}\n{report}")).plan;
        let again = load(&first.resolved).unwrap_or_else(|report| panic!("{}\n{report}", first.resolved)).plan;
        prop_assert_eq!(format!("{:?}", &first.phases), format!("{:?}", &again.phases));
        prop_assert_eq!((first.name, first.resolved, first.identity), (again.name, again.resolved, again.identity));
    }
}
