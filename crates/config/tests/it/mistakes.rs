//! The text of mistakes, pinned.

use crate::{BASE, Given, Pages, with};

#[test]
fn typos() {
    let mut pages = Pages::default();
    pages.file("a key", &with(BASE, "learning_rate", "lerning_rate"));
    pages.file("a key at the top", &format!("sead = 3\n{BASE}"));
    pages.file("a key that resembles nothing", &with(BASE, "learning_rate = 1e-3", "learning_rate = 1e-3\nwarp = 9"));
    pages.file("a key in the wrong table", &format!("minibatches = 3\n{BASE}"));
    pages.file("a key of a plugin, in the wrong table", &format!("group_size = 3\n{BASE}"));
    pages.file("a key of a plugin without keys", &with(BASE, "whiten = {}", "whiten = { axis = 1 }"));
    pages.file("a plugin's name", &with(BASE, "\"maze\"", "\"mase\""));
    pages.file("a plugin's name in a header", &with(BASE, "[estimator.blend]", "[estimator.belnd]"));
    pages.file("a nested plugin", &with(BASE, "a = \"grpo\"", "a = \"grop\""));
    pages.file("a plugin in a list", &with(BASE, "clip.max", "clap.max"));
    pages.file("a plugin of another kind", &with(BASE, "\"maze\"", "\"whiten\""));
    pages.file("a plugin that resembles nothing", &with(BASE, "\"maze\"", "\"warehouse\""));
    pages.file("a named slot without its plugin", &with(BASE, "[policy.actor.tabular]", "[policy.actor]"));
    pages.file("a word", &with(BASE, "[update]", "[update]\nold = \"recomputd\""));
    pages.file("a key of a map with fixed names", &format!("{BASE}[alarm.no-singal]\naction = \"off\"\n"));
    let two = format!("{BASE}[alarm.no-signal]\nat = 0.5\n[alarm.failed]\n");
    pages.file("a key below a map with fixed names", &format!("{two}threshold = 0.5\n"));
    pages.file("a value below a map with fixed names", &format!("{two}at = -0.5\n"));
    insta::assert_snapshot!(pages.0);
}

#[test]
fn values() {
    let mut pages = Pages::default();
    let rate = |value: &str| with(BASE, "1e-3", value);
    pages.file("true for a number", &rate("true"));
    pages.file("a quoted number", &rate("\"0.9\""));
    pages.file("a number out of range", &rate("-0.1"));
    pages.file("nan", &rate("nan"));
    pages.file("inf", &rate("-inf"));
    pages.file("too large for a float", &rate("1e999"));
    pages.file("too large for a whole number", &with(BASE, "states = 100", "states = 99999999999999999999"));
    pages.file("too large for its type", &with(BASE, "states = 100", "states = 5000000000"));
    pages.file("a float for a whole number", &with(BASE, "states = 100", "states = 8.0"));
    pages.file("a negative count", &with(BASE, "updates = 10", "updates = -1"));
    pages.file("half a count", &with(BASE, "updates = 10", "updates = 2.5"));
    pages.file("a count with an unknown letter", &with(BASE, "updates = 10", "updates = \"20Q\""));
    pages.file("zero where one is the least", &with(BASE, "group_size = 8", "group_size = 0"));
    pages.file("a date", &format!("name = 2026-01-01\n{BASE}"));
    pages.file("a number for text", &format!("name = 5\n{BASE}"));
    pages.file("text for a list", &format!("train = \"actor\"\n{BASE}"));
    pages.file(
        "a number for a table",
        &with(BASE, "[update]\nlearning_rate = 1e-3", "[[x]]")
            .replace("[[x]]", "")
            .replace("updates = 10", "updates = 10\nupdate = 7"),
    );
    pages.file("a number for a plugin", &with(BASE, "\"maze\"", "3"));
    pages.file("a list for a plugin", &with(BASE, "\"maze\"", "[\"maze\"]"));
    pages.file(
        "an empty slot",
        &with(BASE, "[estimator.blend]\nweight = 0.5\na = \"grpo\"\nb.grpo.epsilon = 1e-6", "[estimator]"),
    );
    pages.file("a table for a list", &with(BASE, "[[transform]]\nclip.max = 5", "").replace("[[transform]]", "[transform]"));
    pages.file("rules between numbers", &with(BASE, "clip.max = 5", "band = { min = 2, max = 1 }"));
    pages.file("a device", &format!("device = \"gpu\"\n{BASE}"));
    pages.file("a name that is no folder", &format!("name = \"a/b\"\n{BASE}"));
    insta::assert_snapshot!(pages.0);
}

#[test]
fn missing() {
    let mut pages = Pages::default();
    pages.file("a key of a table", &with(BASE, "learning_rate = 1e-3\n", ""));
    pages.file("a key of a plugin", &with(BASE, "group_size = 8\n", ""));
    pages.file("a key of a plugin named by text", &with(BASE, "a = \"grpo\"", "a = \"gae\""));
    pages.file("a plugin", &with(BASE, "objective = \"nll\"\n", ""));
    pages.file("a typo of a key that must be there is one mistake", &with(BASE, "group_size = 8", "groop_size = 8"));
    pages.file("everything", "");
    pages.arguments("a key that went with its plugin", &["estimator.gae.lambda=0.9"]);
    insta::assert_snapshot!(pages.0);
}

#[test]
fn files() {
    let mut pages = Pages::default();
    pages.case("no file", &Given::default());
    let extends = |what: &str| format!("extends = {what}\n");
    pages.file("no file below", &extends("\"absent.toml\""));
    pages.file("a folder", &extends("\".\""));
    pages.file("extends is no name", &extends("3"));
    pages.file("extends holds no names", &extends("[\"exp.toml\", 3]"));
    pages.file("itself", &extends("\"exp.toml\""));
    let (a, b) = (extends("\"b.toml\""), extends("\"a.toml\""));
    pages.case("a circle", &Given { files: &[("b.toml", &b), ("a.toml", &a)], ..Given::default() });
    pages.file("no TOML", "updates = \"ten\n");
    pages.file("no TOML: a number without digits behind its point", &with(BASE, "1e-3", "1.e-3"));
    pages.file("no TOML: a key twice", &with(BASE, "updates = 10", "updates = 10\nupdates = 11"));
    pages.case(
        "no TOML, below",
        &Given { files: &[("base.toml", "x = [1,\n"), ("exp.toml", "extends = \"base.toml\"\n")], ..Given::default() },
    );
    let typo = with(BASE, "learning_rate", "lerning_rate");
    pages.case(
        "a typo in the file below",
        &Given { files: &[("base.toml", &typo), ("exp.toml", "extends = \"base.toml\"\nupdates = 20\n")], ..Given::default() },
    );
    pages.case(
        "a typo above",
        &Given {
            files: &[("base.toml", BASE), ("exp.toml", "extends = [\"base.toml\"]\n[update]\nepoch = 2\n")],
            ..Given::default()
        },
    );
    pages.file("letters beyond ASCII", &with(BASE, "updates = 10", "question = \"Où ça?\"\n\"größe\" = 1\nupdates = 10"));
    pages.file("a crate that is not linked", &format!("uses = [\"my-plugin\"]\n{BASE}"));
    pages.file("a crate whose name is near", &format!("uses = [\"ascribe-kore\"]\n{BASE}"));
    pages.file("a grid that is none", &format!("grid = 3\n{BASE}"));
    insta::assert_snapshot!(pages.0);
}

#[test]
fn a_file_that_is_not_utf_8() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exp.toml");
    std::fs::write(&file, b"updates = 10\nname = \"caf\xe9\"\n").unwrap();
    let report = ascribe_config::load(&ascribe_config::Request::new(&file)).unwrap_err().to_string();
    insta::assert_snapshot!(report.replace(&format!("{}/", folder.path().display()), ""));
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exp.toml");
    std::fs::write(&file, BASE).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    // For the superuser every file can be read.
    if let Err(report) = ascribe_config::load(&ascribe_config::Request::new(&file)) {
        assert!(report.to_string().contains("cannot be read: permission denied"), "{report}");
    }
}

#[test]
fn command_line() {
    let mut pages = Pages::default();
    pages.arguments("a key that does not exist", &["update.lerning_rate=0.5"]);
    pages.arguments("a value out of range", &["update.beta1=1.5"]);
    pages.arguments("a value of another type", &["update.epochs=many"]);
    pages.arguments("a number as other languages write it", &["update.beta1=.5"]);
    pages.arguments("a plus", &["+update.epochs=2"]);
    pages.arguments("a tilde", &["~transform"]);
    pages.arguments("no value", &["update.epochs"]);
    pages.arguments("an empty value", &["update.epochs="]);
    pages.arguments("no key", &["=3"]);
    pages.arguments("a hole in a key", &["update..epochs=3"]);
    pages.arguments("a quote that does not close", &["policy.\"my.node=3"]);
    pages.arguments("a letter that needs quotes", &["größe=3"]);
    pages.arguments("broken TOML", &["transform=[{clip={max=3}]"]);
    pages.arguments("within a value", &["estimator={blend={weight=1.5,a=\"grpo\",b=\"gae\"}}"]);
    pages.arguments("an item that is not there", &["transform.7.clip.max=3"]);
    pages.arguments("an item by a name", &["transform.clip.max=3"]);
    pages.arguments("a plugin", &["estimator=gppo"]);
    pages.arguments("a key of the plugin below, without its name", &["estimator.weight=0.5"]);
    pages.arguments("a phase where there is none", &["phase.warmup.updates=3"]);
    pages.arguments("too deep", &[&format!("{}=1", vec!["a"; 1000].join("."))]);
    insta::assert_snapshot!(pages.0);
}

#[test]
fn environment() {
    let mut pages = Pages::default();
    pages.environment("a key that does not exist", &[("ASCRIBE__UPDATE__LERNING_RATE", "0.5"), ("ASCRIBE_OTHER", "x")]);
    pages.environment("a value of another type", &[("ASCRIBE__UPDATES", "ten")]);
    pages.environment("a value out of range", &[("ASCRIBE__UPDATE__BETA1", "1.5")]);
    pages.environment("no key", &[("ASCRIBE__", "3")]);
    pages.environment("a hole in a key", &[("ASCRIBE__UPDATE____EPOCHS", "3")]);
    pages.environment("the same key twice", &[("ASCRIBE__SEED", "1"), ("ASCRIBE__seed", "2")]);
    pages.environment("an item that is not there", &[("ASCRIBE__TRANSFORM__7__CLIP__MAX", "3")]);
    insta::assert_snapshot!(pages.0);
}

#[test]
fn phases() {
    let mut pages = Pages::default();
    let phases = |text: &str| format!("{BASE}{text}");
    let two = "[[phase]]\nname = \"warmup\"\nupdates = 2\n[[phase]]\nname = \"rest\"\n";
    pages.file("a typo in a key", &phases(&format!("{two}estimator.blend.wait = 1\n")));
    pages.file("a typo in a plugin", &phases(&format!("{two}estimator = \"grop\"\n")));
    pages.file("a typo in the experiment is shown once", &with(&phases(two), "learning_rate", "lerning_rate"));
    pages.file("no name", &phases("[[phase]]\nupdates = 3\n"));
    pages.file("a name that is none", &phases("[[phase]]\nname = 3\n"));
    pages.file("one name twice", &phases("[[phase]]\nname = \"a\"\n[[phase]]\nname = \"a\"\n"));
    pages.file("a table", &phases("[phase.warmup]\nupdates = 3\n"));
    pages.file("a list of other things", &format!("phase = [1]\n{BASE}"));
    pages.file("what holds for the whole run", &phases("[[phase]]\nname = \"a\"\nseed = 3\n"));
    pages.file("another environment", &phases("[[phase]]\nname = \"a\"\nenvironment.maze.width = 4\n"));
    pages.file("missing in one phase", &with(&phases(two), "updates = 10\n", ""));
    pages.file(
        "missing in all phases",
        &with(&phases("[[phase]]\nname = \"a\"\n[[phase]]\nname = \"b\"\n"), "updates = 10\n", ""),
    );
    pages.file("an unmet need of one phase", &phases(&format!("{two}estimator.gae = {{ gamma = 1, lambda = 1 }}\n")));
    pages.file("an unmet need of all phases", &with(&phases(two), "b.grpo.epsilon = 1e-6", "b.gae = { gamma = 1, lambda = 1 }"));
    let given = phases(two);
    let files = &[("exp.toml", given.as_str())];
    pages.case("a phase that is not there", &Given { files, arguments: &["phase.warmap.updates=3"], ..Given::default() });
    pages.case(
        "out of range, from the command line",
        &Given { files, arguments: &["phase.rest.update.beta1=2"], ..Given::default() },
    );
    pages.case(
        "a typo, from the environment",
        &Given { files, environment: &[("ASCRIBE__PHASE__REST__UPDATE", "2")], ..Given::default() },
    );
    insta::assert_snapshot!(pages.0);
}

#[test]
fn needs() {
    let mut pages = Pages::default();
    pages.file("state values", &with(BASE, "b.grpo.epsilon = 1e-6", "b.gae = { gamma = 1, lambda = 1 }"));
    pages.file("groups", &with(BASE, "group_size = 8", "group_size = 1"));
    pages.file("a node", &with(BASE, "[policy.actor.tabular]", "[policy.player.tabular]"));
    pages.file("snapshots", &format!("{BASE}[critic.judge.monte-carlo]\nepisodes = 4\n"));
    pages.file("a reward column", &format!("{BASE}[reward]\nenv = 1\nprogres = 0.5\n"));
    pages.file("who trains", &format!("train = [\"judge\"]\n{BASE}"));
    pages.arguments("log-probabilities of an expert", &["rollout=expert", "objective.ppo-clip.clip=0.2"]);
    insta::assert_snapshot!(pages.0);
}

#[test]
fn schedules() {
    let mut pages = Pages::default();
    let rate = |value: &str| with(BASE, "1e-3", value);
    pages.file("a typo in a key", &rate("{ ramp = { from = 1.0, too = 0.5, updates = 10 } }"));
    pages.file("a typo in a plugin", &rate("{ rampp = { from = 1.0, to = 0.5, updates = 10 } }"));
    pages.file("out of the number's range", &with(BASE, "weight = 0.5", "weight.ramp = { from = 0.5, to = 1.5, updates = 10 }"));
    pages.file(
        "out of the number's range at the start",
        &with(BASE, "weight = 0.5", "weight.ramp = { from = 1.5, to = 0, updates = 10 }"),
    );
    pages.file(
        "below a whole number's range",
        &with(BASE, "a = \"grpo\"", "a.grpo.window.cut-off = { value = 1, updates = 5, then = -3 }"),
    );
    pages.file(
        "the wrong way round",
        &rate("{ feedback = { metric = \"actor/entropy\", target = 1, initial = 1, gain = 1, min = 3, max = 2 } }"),
    );
    pages.file(
        "against another number",
        &with(BASE, "clip.max = 5", "band = { min = 0, max = { ramp = { from = 1, to = -1, updates = 5 } } }"),
    );
    pages.file("what is read once", &with(BASE, "states = 100", "states.constant.value = 3"));
    pages.file("of updates", &with(BASE, "updates = 10", "updates.constant.value = 3"));
    pages.file(
        "into what a plugin needs",
        &with(BASE, "group_size = 8", "group_size.cut-off = { value = 8, updates = 5, then = 1 }"),
    );
    pages.file("two", &rate("{ constant = { value = 1 }, ramp = { from = 1, to = 0, updates = 3 } }"));
    pages.file("none", &rate("{}"));
    insta::assert_snapshot!(pages.0);
}

#[test]
fn many_at_once() {
    let below = with(&with(BASE, "updates = 10", "updates = -1"), "clip.max = 5", "clip.mx = 5");
    let above =
        "extends = \"base.toml\"\nbuget = 1\n[[phase]]\nname = \"a\"\nestimator.blend.weight = true\n[[phase]]\nname = \"b\"\n";
    let mut pages = Pages::default();
    pages.case(
        "from a file, a file below, a phase, the environment and the command line",
        &Given {
            files: &[("base.toml", &below), ("exp.toml", above)],
            environment: &[("ASCRIBE__SEED", "many")],
            arguments: &["update.beta1=2", "+x=1", "rollout.independent.agnt=x"],
        },
    );
    insta::assert_snapshot!(pages.0);
}
