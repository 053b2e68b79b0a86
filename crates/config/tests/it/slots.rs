//! Two plugins in one slot, across every pair of layer kinds.

use crate::{BASE, Given, Pages, with};

/// Where a plugin can be named, lowest layer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    ExtendedFile,
    File,
    Environment,
    CommandLine,
    Phase,
}
use Kind::{CommandLine, Environment, ExtendedFile, File, Phase};

const KINDS: [Kind; 5] = [ExtendedFile, File, Environment, CommandLine, Phase];

/// The experiment with plugins named in layers: `grpo` by the first, `gae` by the second.
fn seen(first: Kind, second: Kind) -> String {
    let rest = with(BASE, "[estimator.blend]\nweight = 0.5\na = \"grpo\"\nb.grpo.epsilon = 1e-6\n", "");
    let rest = format!("{rest}[critic.judge.generative]\nnode = \"actor\"\n");
    let (mut base, mut file, mut phase) = (rest, "extends = \"base.toml\"\n".to_string(), String::new());
    let (mut environment, mut arguments) = (Vec::new(), Vec::new());
    let names = [
        ("grpo.epsilon = 1e-6", ("ASCRIBE__ESTIMATOR__GRPO__EPSILON", "1e-6"), "estimator.grpo.epsilon=1e-6"),
        (
            "gae = { gamma = 1, lambda = 1 }",
            ("ASCRIBE__ESTIMATOR__GAE", "{ gamma = 1, lambda = 1 }"),
            "estimator.gae={gamma=1,lambda=1}",
        ),
    ];
    for (kind, (toml, variable, argument)) in [first, second].into_iter().zip(names) {
        match kind {
            ExtendedFile => base += &format!("{}{toml}\n", if base.contains("[estimator]") { "" } else { "[estimator]\n" }),
            File => file += &format!("{}{toml}\n", if file.contains("[estimator]") { "" } else { "[estimator]\n" }),
            Phase => phase += &format!("estimator.{toml}\n"),
            Environment => environment.push(variable),
            CommandLine => arguments.push(argument),
        }
    }
    // A plugin that only a phase names needs no other below it.
    file += &format!("[[phase]]\nname = \"a\"\n{phase}");
    let files = [("base.toml", base.as_str()), ("exp.toml", file.as_str())];
    Given { files: &files, environment: &environment, arguments: &arguments }.seen()
}

#[test]
fn every_pair_of_layers() {
    let mut pages = Pages::default();
    for (i, lower) in KINDS.into_iter().enumerate() {
        for upper in &KINDS[i..] {
            let text = seen(lower, *upper);
            if lower == *upper {
                assert!(
                    text.contains("takes exactly one estimator, here are `g")
                        && text.contains("another")
                        && text.contains("one\n"),
                    "{lower:?}: {text}"
                );
                assert!(text.ends_with("the experiment was not accepted: 1 problem"), "{lower:?}: {text}");
            } else {
                assert!(
                    text.starts_with("replaced: `estimator`: `gae` (") && text.contains("replaces `grpo` ("),
                    "{lower:?} {upper:?}: {text}"
                );
                assert!(text.ends_with("accepted"), "{lower:?} {upper:?}: {text}");
            }
            pages.0 += &format!("──── {lower:?}, {upper:?}\n{text}\n\n");
        }
    }
    insta::assert_snapshot!(pages.0);
}

#[test]
fn the_upper_layer_wins_whichever_names_which() {
    for (i, lower) in KINDS.into_iter().enumerate() {
        for upper in KINDS.into_iter().skip(i + 1) {
            // now the lower layer names `gae`, the upper one `grpo`
            let text = seen(upper, lower);
            assert!(
                text.starts_with("replaced: `estimator`: `grpo` (") && text.ends_with("accepted"),
                "{lower:?} {upper:?}: {text}"
            );
        }
    }
}

#[test]
fn the_same_plugin_merges_and_another_replaces() {
    let loaded = |above: &str| {
        let above = format!("extends = \"base.toml\"\n{above}\n");
        let given = Given { files: &[("base.toml", BASE), ("exp.toml", &above)], ..Given::default() };
        let loaded = given.loaded();
        (loaded.plan.phases[0].tree["estimator"].clone(), loaded.replaced.len())
    };
    let toml = |text: &str| toml::from_str::<toml::Value>(text).unwrap();
    let (merged, replaced) = loaded("estimator.blend.weight = 0.25");
    assert_eq!(merged, toml("blend = { weight = 0.25, a.grpo.epsilon = 1e-6, b.grpo.epsilon = 1e-6 }"));
    assert_eq!(replaced, 0);
    // by its name alone, too: nothing below is lost
    let (same, replaced) = loaded("estimator = \"blend\"");
    assert_eq!((same["blend"]["weight"].as_float(), replaced), (Some(0.5), 0));
    let (other, replaced) = loaded("estimator.grpo.epsilon = 0.5");
    assert_eq!((other, replaced), (toml("grpo.epsilon = 0.5"), 1));
    let (nested, replaced) = loaded("estimator.blend.b = { blend = { weight = 1.0, a = \"grpo\", b = \"grpo\" } }");
    assert_eq!((nested["blend"]["b"]["blend"]["weight"].as_float(), replaced), (Some(1.0), 1));
}

#[test]
fn slots_of_other_shapes() {
    let mut pages = Pages::default();
    pages
        .file("two in a nested slot", &with(BASE, "b.grpo.epsilon = 1e-6", "b = { grpo = {}, gae = { gamma = 1, lambda = 1 } }"));
    pages.file("two in an item", &with(BASE, "clip.max = 5", "clip.max = 5\nwhiten = {}"));
    pages.file(
        "two in a named slot",
        &format!("{BASE}[critic.judge.generative]\nnode = \"actor\"\n[critic.judge.monte-carlo]\nepisodes = 2\n"),
    );
    pages.file("a plugin and a stray key", &with(BASE, "[estimator.blend]", "[estimator]\nweigth = 1\n[estimator.blend]"));
    pages.file(
        "a plugin and a mistyped one",
        &with(BASE, "b.grpo.epsilon = 1e-6", "b = { grpo = {}, gea = { gamma = 1, lambda = 1 } }"),
    );
    pages.file("keys without a plugin", &with(BASE, "[estimator.blend]", "[estimator]"));
    pages.arguments(
        "a nested slot, from the command line",
        &["estimator.blend.b=blend", "estimator.blend.b.blend={weight=1,a=\"grpo\",b=\"grpo\"}"],
    );
    pages.arguments("two arguments", &["estimator=grpo", "estimator.gae.lambda=1"]);
    pages.arguments("an item", &["transform.0=clip", "transform.0.clip.max=3"]);
    pages.environment("two variables", &[("ASCRIBE__ESTIMATOR", "grpo"), ("ASCRIBE__ESTIMATOR__BLEND__WEIGHT", "1")]);
    let rate = with(BASE, "learning_rate = 1e-3", "learning_rate.constant.value = 1e-3");
    let files = &[("exp.toml", rate.as_str())];
    let ramp = "update.learning_rate.ramp={from=1,to=0.5,updates=3}";
    pages.case("a schedule", &Given { files, arguments: &[ramp], ..Given::default() });
    insta::assert_snapshot!(pages.0);
}
