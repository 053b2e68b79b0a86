use std::collections::{BTreeMap, BTreeSet};

use ascribe_core::environment::{ActionText, RestoreError, Snapshot, Step};
use ascribe_core::log::{End, Limit, Validity};
use ascribe_core::registry::{self, Kind as PluginKind};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{Draw, Rng, Seeds};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::knowledge::find;
use super::*;

/// Episodes per task where a rate is measured.
const EPISODES: u32 = 100;

fn standard() -> MiniToolTasks {
    MiniTool::default().open().unwrap()
}

fn with(change: impl FnOnce(&mut MiniTool)) -> MiniToolTasks {
    let mut config = MiniTool::default();
    change(&mut config);
    config.open().unwrap()
}

fn unit(x: f64) -> Unit {
    Unit::try_from(x).unwrap()
}

fn ids(set: &MiniToolTasks, split: &str) -> Vec<TaskId> {
    (0..set.len(split) as u32).map(|index| TaskId { split: split.into(), index }).collect()
}

fn rng(task: &TaskId, member: u32) -> Rng {
    Seeds(11).rng(&task.split, Draw { group: task.index, member, ..Draw::default() })
}

fn say(episode: &mut dyn Environment, text: &str) -> Step {
    episode.step(ActionText { text, complete: true }).unwrap()
}

fn signal(step: &Step, name: &str) -> Option<f32> {
    step.signals.iter().find(|(n, _)| n == name).map(|(_, x)| *x)
}

/// Plays an episode to its end; returns how it ended, its return and its turns.
fn play(episode: &mut dyn Environment, mut next: impl FnMut(&mut dyn Environment) -> String) -> (End, f32, usize) {
    let (mut total, mut turns) = (0.0, 0);
    loop {
        let call = next(episode);
        let step = say(episode, &call);
        total += step.reward;
        turns += 1;
        if let Some(end) = step.end {
            return (end, total, turns);
        }
    }
}

fn rules() -> Rules {
    Rules { max_calls: 8, failure_cost: 0.0, process: Process::Carried, verification: Verification::Optional, self_report: true }
}

/// The text's example.
fn circumference(rules: Rules) -> Episode {
    let fact = |entity, attribute| find(&[entity, attribute]).unwrap();
    let task = Task {
        kind: Kind::Circumference,
        needed: vec![fact("earth", "radius")],
        mass: None,
        others: vec![fact("mars", "radius"), fact("earth", "gravity")],
        missing: "height".into(),
    };
    Episode::new(Arc::new(task), rules, 0.0, "by-hand".into())
}

/// A task of two facts.
fn difference(rules: Rules) -> Episode {
    let fact = |entity, attribute| find(&[entity, attribute]).unwrap();
    let task = Task {
        kind: Kind::Difference,
        needed: vec![fact("gpt", "release"), fact("python", "release")],
        mass: None,
        others: vec![fact("unix", "release")],
        missing: "height".into(),
    };
    Episode::new(Arc::new(task), rules, 0.0, "by-hand".into())
}

/// Both plans of the text, word for word; what pi is taken for and what is answered differ.
fn plan(pi: &str, answer: &str) -> [String; 4] {
    [
        "search earth_radius".into(),
        format!("calculate 2 * {pi} * 6371"),
        "verify earth_radius is 6371".into(),
        format!("answer {answer}"),
    ]
}

#[test]
fn the_good_plan_of_the_text() {
    let mut episode = circumference(rules());
    assert_eq!(episode.observe().text, "find the circumference of earth from its radius with pi 3 . 1 4 1 5 9");
    let shows = ["found earth radius 6 3 7 1", "result 4 0 0 3 0 . 1 3 9 7 8", "verified", "the answer is right"];
    let rewards = [0.0, 0.0, 0.0, 1.0];
    let processes = [0.3, 0.3, 0.3, 1.0];
    for (t, call) in plan("3.14159", "40030").iter().enumerate() {
        let step = say(&mut episode, call);
        assert_eq!((step.reward, step.end.clone(), step.validity), (rewards[t], None, Validity::Valid), "{call}");
        assert_eq!(signal(&step, PROCESS), Some(processes[t]));
        assert_eq!(episode.observe().text, shows[t]);
        assert_eq!(episode.observe().key, shows[t].as_bytes());
        assert_eq!(episode.stage(), Some(t as u32 + 1));
    }
    let step = say(&mut episode, "report right");
    assert_eq!((step.reward, step.end.clone()), (0.0, Some(End::Terminated { success: true })));
    assert_eq!([PROCESS, AGREES, OVERCONFIDENT, UNDERCONFIDENT].map(|name| signal(&step, name).unwrap()), [0.0, 1.0, 0.0, 0.0]);
    let over = episode.step(ActionText { text: "search earth radius", complete: true });
    assert_eq!(over.unwrap_err().0, "the episode is over: no call is possible after it");
    assert_eq!(episode.admissible(), Some(Vec::new()));
    assert_eq!(episode.expert(&mut rng(&TaskId::default(), 0)), None);
}

#[test]
fn the_bad_plan_of_the_text() {
    // π is taken for 3. The tools do what they are told, so nothing but the answer fails.
    let of = |process, failure_cost| {
        let mut episode = circumference(Rules { process, failure_cost, ..rules() });
        let steps = plan("3", "38226").map(|call| say(&mut episode, &call));
        assert_eq!(episode.observe().text, "the answer is wrong");
        assert_eq!(episode.stage(), Some(1));
        let end = say(&mut episode, "report wrong");
        assert_eq!(end.end, Some(End::Terminated { success: false }));
        assert_eq!(signal(&end, AGREES), Some(1.0));
        steps.map(|step| (step.reward, signal(&step, PROCESS).unwrap()))
    };
    assert_eq!(of(Process::Carried, 0.0), [(0.0, 0.3), (0.0, 0.3), (0.0, 0.3), (0.0, -0.5)]);
    assert_eq!(of(Process::Carried, 1.0), [(0.0, 0.3), (0.0, 0.3), (0.0, 0.3), (-1.0, -0.5)]);
    assert_eq!(of(Process::Useful, 0.0), [(0.0, 0.3), (0.0, -0.3), (0.0, 0.3), (0.0, -0.5)]);
}

#[test]
fn what_does_not_help_is_useless_and_still_carried_out() {
    let process = |rules: Rules, calls: &[&str]| -> Vec<f32> {
        let mut episode = difference(rules);
        calls.iter().map(|call| signal(&say(&mut episode, call), PROCESS).unwrap()).collect()
    };
    let calls = [
        "search unix release",              // not needed
        "search gpt release",               // needed
        "search gpt release",               // again
        "calculate 2 0 2 0 - 1 9 9 1",      // right, though Python's is not found
        "calculate 1991 - 2020",            // the other way round
        "verify gpt release is 2 0 2 0",    // needed
        "verify python release is 1 9 9 1", // one is enough
    ];
    let useful = Rules { process: Process::Useful, ..rules() };
    assert_eq!(process(useful, &calls), [-0.3, 0.3, -0.3, 0.3, -0.3, 0.3, -0.3]);
    assert_eq!(process(rules(), &calls), [0.3; 7]);
    // What fails: nothing found, no value, a false statement, a report on nothing, no call.
    let calls = ["search gpt height", "calculate 1 / 0", "verify gpt release is 1 9 9 1", "report right", "hm"];
    assert_eq!(process(rules(), &calls), [-0.3; 5]);
    assert_eq!(process(useful, &calls), [-0.3; 5]);
}

#[test]
fn tools_by_hand() {
    let check = |call: &str, shows: &str, validity: Validity| {
        let mut episode = circumference(rules());
        let step = say(&mut episode, call);
        assert_eq!((episode.observe().text.as_str(), step.validity, step.reward), (shows, validity, 0.0), "{call}");
    };
    check("search mars gravity", "found mars gravity 3 . 7", Validity::Valid);
    check("search the weather", "found nothing", Validity::Valid);
    check("calculate ( 1 + 2 ) * - 4", "result - 1 2", Validity::Valid);
    check("calculate 1 / 0", "error division by zero", Validity::Refused);
    check("calculate 1 +", "error no expression", Validity::Refused);
    check("calculate 9999999 * 999999999", "error overflow", Validity::Refused);
    check(&format!("calculate {}1", "-".repeat(40)), "error too deep", Validity::Refused);
    check("verify mars gravity is 3.7", "verified", Validity::Valid);
    check("verify mars gravity is 3.8", "not verified", Validity::Valid);
    check("verify mars gravity", "not verified", Validity::Valid);
    check("verify mars height is 3.7", "not verified", Validity::Valid);
    check("answer 4 0 0 3 1", "the answer is wrong", Validity::Valid);
    check("answer 2 * 3 . 1 4 1 5 9 * 6 3 7 1", "the answer is wrong", Validity::Valid);
    check("answer unknown", "the answer is wrong", Validity::Valid);
    check("report right", "no answer given yet", Validity::Refused);
    check("browse earth", "unknown call", Validity::Malformed);
    check("", "unknown call", Validity::Malformed);
    // What is shown may be answered as it is.
    let mut episode = circumference(rules());
    assert_eq!(say(&mut episode, "answer 4 0 0 3 0 . 1 3 9 7 8").reward, 1.0);
}

#[test]
fn reports_by_hand() {
    let check = |answer: &str, report: &str, columns: [f32; 3], shows: &str, validity: Validity| {
        let mut episode = circumference(rules());
        let before = say(&mut episode, answer);
        assert_eq!([AGREES, OVERCONFIDENT, UNDERCONFIDENT].map(|name| signal(&before, name)), [Some(0.0); 3]);
        assert_eq!(episode.admissible().unwrap(), ["report right", "report wrong"]);
        let success = before.reward == 1.0;
        let step = say(&mut episode, report);
        assert_eq!([AGREES, OVERCONFIDENT, UNDERCONFIDENT].map(|name| signal(&step, name).unwrap()), columns);
        let said = [("report right", 1.0), ("report wrong", 0.0)].iter().find(|(text, _)| *text == report).map(|(_, x)| *x);
        assert_eq!((signal(&before, REPORT), signal(&step, REPORT)), (None, said));
        assert_eq!((step.end, step.reward, step.validity), (Some(End::Terminated { success }), 0.0, validity));
        assert_eq!(episode.observe().text, shows);
    };
    check("answer 40030", "report right", [1.0, 0.0, 0.0], "reported", Validity::Valid);
    check("answer 40030", "report wrong", [0.0, 0.0, 1.0], "reported", Validity::Valid);
    check("answer 38226", "report right", [0.0, 1.0, 0.0], "reported", Validity::Valid);
    check("answer 38226", "report wrong", [1.0, 0.0, 0.0], "reported", Validity::Valid);
    check("answer 40030", "report perhaps", [0.0; 3], "no report", Validity::Malformed);
    check("answer 38226", "search earth radius", [0.0; 3], "no report", Validity::Refused);
}

#[test]
fn without_reports_the_answer_is_the_end() {
    let mut episode = circumference(Rules { self_report: false, failure_cost: 0.5, ..rules() });
    let step = say(&mut episode, "answer 7");
    assert_eq!((step.reward, step.end), (-0.5, Some(End::Terminated { success: false })));
    assert_eq!(step.signals, [(PROCESS.to_string(), -0.5)]);
    let set = with(|config| config.self_report = false);
    assert_eq!(set.capabilities().max_turns, 8);
    assert_eq!(set.capabilities().provides.iter().filter(|p| matches!(p, Need::Signal(..))).count(), 1);
}

#[test]
fn an_answer_may_have_to_be_backed() {
    let required = Rules { verification: Verification::Required, ..rules() };
    let answered = |calls: &[&str]| {
        let mut episode = circumference(required);
        calls.iter().for_each(|call| drop(say(&mut episode, call)));
        say(&mut episode, "answer 40030").reward
    };
    assert_eq!(answered(&[]), 0.0);
    assert_eq!(answered(&["verify mars radius is 3390"]), 0.0);
    assert_eq!(answered(&["verify earth radius is 3390"]), 0.0);
    assert_eq!(answered(&["verify earth radius is 6371"]), 1.0);
}

#[test]
fn the_last_call_may_be_the_answer() {
    let mut episode = circumference(rules());
    for _ in 0..7 {
        assert_eq!(say(&mut episode, "hm").end, None);
    }
    let mut cut = episode.clone();
    let step = cut.step(ActionText { text: "answer 40030", complete: false }).unwrap();
    assert_eq!((step.validity, step.end), (Validity::Cut, Some(End::Truncated(Limit::Turns))));
    assert_eq!(say(&mut episode, "answer 40030").end, None);
    assert_eq!(say(&mut episode, "report right").end, Some(End::Terminated { success: true }));
}

#[test]
fn stages_may_be_skipped_and_are_not_lost() {
    let mut episode = difference(rules());
    let mut stage = |call: &str| {
        say(&mut episode, call);
        episode.stage().unwrap()
    };
    assert_eq!(stage("search gpt release"), 0);
    assert_eq!(stage("verify gpt release is 2 0 2 0"), 0);
    assert_eq!(stage("search python release"), 1);
    assert_eq!(stage("calculate 2 0 2 0 - 1 9 9 1"), 3);
    assert_eq!(stage("calculate 1 / 0"), 3);
    assert_eq!(stage("answer 3 0"), 3);
    let mut guessed = difference(rules());
    say(&mut guessed, "answer 2 9");
    assert_eq!(guessed.stage(), Some(4));
}

#[test]
fn listed_actions_by_hand() {
    let mut episode = circumference(rules());
    let start = ["answer unknown", "search earth gravity", "search earth height", "search earth radius", "search mars radius"];
    assert_eq!(episode.admissible().unwrap(), start);
    say(&mut episode, "search earth radius");
    let found = [
        "answer 6 3 7 1",
        "answer unknown",
        "calculate 2 * 3 * 6 3 7 1",
        "calculate 2 * 3 . 1 4 1 5 9 * 6 3 7 1",
        "calculate 3 . 1 4 1 5 9 * 6 3 7 1",
    ];
    assert_eq!(episode.admissible().unwrap()[..5], found);
    assert_eq!(episode.admissible().unwrap().last().unwrap(), "verify earth radius is 6 3 7 1");
    say(&mut episode, "calculate 2 * 3 * 6 3 7 1");
    assert!(episode.admissible().unwrap().contains(&"answer 3 8 2 2 6".to_string()));
    // What lies out of reach is not listed, wherever it was found.
    let before = episode.admissible();
    say(&mut episode, "search titan radius");
    assert_eq!(episode.admissible(), before);
}

#[test]
fn what_is_left_to_do() {
    let mut episode = difference(rules());
    assert_eq!(
        episode.privileged().unwrap(),
        "plan : search gpt release ; search python release ; calculate 2 0 2 0 - 1 9 9 1 ; verify gpt release is 2 0 2 0 ; answer 2 9"
    );
    assert_eq!(episode.ground_truth().unwrap(), "2 9");
    say(&mut episode, "search gpt release");
    say(&mut episode, "calculate 2020 - 1991");
    say(&mut episode, "verify gpt release is 2020");
    assert_eq!(episode.privileged().unwrap(), "plan : search python release ; answer 2 9");
    say(&mut episode, "answer 7");
    assert_eq!(episode.privileged().unwrap(), "plan : report wrong");
    say(&mut episode, "report wrong");
    assert_eq!(episode.privileged().unwrap(), "plan : nothing left");
}

/// Share of solved episodes over the held-out tasks, and mean turns.
fn solved(set: &MiniToolTasks, mut next: impl FnMut(&mut dyn Environment, &mut Rng) -> String) -> (f64, f64) {
    let tasks = ids(set, HELD_OUT);
    let n = tasks.len() as f64 * f64::from(EPISODES);
    let (mut wins, mut made) = (0, 0);
    for (task, member) in tasks.iter().flat_map(|task| (0..EPISODES).map(move |member| (task, member))) {
        let mut rng = rng(task, member);
        let (end, _, turns) = play(&mut *set.open(task, 0).unwrap(), |episode| next(episode, &mut rng));
        wins += usize::from(end.success());
        made += turns;
    }
    (wins as f64 / n, made as f64 / n)
}

#[test]
fn baselines_of_mini_tool() {
    let set = standard();
    let random = solved(&set, |episode, rng| rng.choose(&episode.admissible().unwrap()).unwrap().clone());
    let noisy = solved(&set, |episode, rng| episode.expert(rng).unwrap());
    let exact = with(|config| config.expert_noise = unit(0.0));
    let exact = solved(&exact, |episode, rng| episode.expert(rng).unwrap());
    println!("{} held-out tasks, {EPISODES} episodes each:", set.len(HELD_OUT));
    for (who, (rate, turns)) in [("random", random), ("expert", noisy), ("expert without noise", exact)] {
        println!("  {who} solves {rate:.3} in {turns:.2} turns");
    }
    assert!(random.0 <= 0.02);
    assert!((0.6..0.75).contains(&noisy.0));
    assert_eq!(exact.0, 1.0);
}

#[test]
fn the_expert_without_noise_takes_no_call_too_many() {
    for verification in [Verification::Optional, Verification::Required] {
        let set = with(|config| {
            config.expert_noise = unit(0.0);
            config.verification = verification;
            config.process = Process::Useful;
        });
        for task in set.splits().iter().flat_map(|split| ids(&set, split)) {
            let mut rng = rng(&task, 0);
            let mut episode = set.open(&task, 0).unwrap();
            let mut turns = 0;
            while let Some(call) = episode.expert(&mut rng) {
                assert!(episode.admissible().unwrap().contains(&call), "{task}: {call}");
                let step = say(&mut *episode, &call);
                turns += 1;
                assert!(signal(&step, PROCESS).unwrap() > 0.0 || call.starts_with("report"), "{task}: {call}");
                assert!(step.end.is_none_or(|end| end.success()));
            }
            // It searches its facts, calculates, verifies, answers and reports.
            assert_eq!(turns, set.task(&task).unwrap().needed.len() + 4, "{task}");
        }
    }
}

#[test]
fn every_text_is_made_of_known_words_and_short() {
    let set = standard();
    let tokenizer = WordTokenizer::new(&set.capabilities().vocabulary);
    let (mut longest_action, mut longest_observation, mut most_listed, mut longest_episode) = (0, 0, 0, 0);
    let known = |text: &str| {
        let tokens = tokenizer.encode(text);
        assert!(!tokens.contains(&0), "`{text}` has an unknown word");
        assert_eq!(tokenizer.encode(&tokenizer.decode(&tokens)), tokens);
        tokens.len()
    };
    for (task, member) in ids(&set, TRAIN).iter().flat_map(|task| (0..4).map(move |member| (task, member))) {
        let mut rng = rng(task, member);
        let mut episode = set.open(task, 0).unwrap();
        known(&episode.ground_truth().unwrap());
        let mut length = 0;
        play(&mut *episode, |episode| {
            let shown = episode.observe().text;
            let privileged = episode.privileged().unwrap();
            known(&privileged);
            assert!(!shown.contains(&privileged));
            longest_observation = longest_observation.max(known(&shown));
            let listed = episode.admissible().unwrap();
            most_listed = most_listed.max(listed.len());
            for action in &listed {
                longest_action = longest_action.max(known(action) + 1);
            }
            let said = if rng.below(2) == 0 { episode.expert(&mut rng) } else { rng.choose(&listed).cloned() }.unwrap();
            length += known(&shown) + known(&said) + 1;
            said
        });
        longest_episode = longest_episode.max(length);
    }
    println!(
        "{} words; at most {most_listed} listed actions of {longest_action} tokens, observations of {longest_observation}, \
         episodes of {longest_episode}",
        tokenizer.vocab_size()
    );
    assert!(longest_action <= 18 && MAX_ACTION_TOKENS > 18);
    assert!(longest_observation <= 32 && most_listed <= 40 && longest_episode <= 200);
    assert!(tokenizer.vocab_size() <= 200);
}

#[test]
fn listed_actions_are_sorted_and_understood() {
    let set = standard();
    for task in ids(&set, HELD_OUT) {
        for member in 0..4 {
            let episode = somewhere(&set, &task, member);
            let listed = episode.admissible().unwrap();
            assert!(listed.is_sorted() && listed.iter().collect::<BTreeSet<_>>().len() == listed.len());
            for action in listed {
                let mut ahead = set.open(&task, 0).unwrap();
                ahead.restore(&episode.snapshot().unwrap()).unwrap();
                assert_eq!(say(&mut *ahead, &action).validity, Validity::Valid, "{task}: {action}");
            }
        }
    }
}

#[test]
fn held_out_questions_use_words_of_the_others() {
    let set = standard();
    let words = |split: &str| -> BTreeSet<String> {
        ids(&set, split)
            .iter()
            .flat_map(|id| set.task(id).unwrap().question().split(' ').map(String::from).collect::<Vec<_>>())
            .collect()
    };
    assert!(words(HELD_OUT).is_subset(&words(TRAIN)));
}

/// An episode after some of its listed actions at random, the last of them perhaps an answer.
fn somewhere(set: &MiniToolTasks, task: &TaskId, member: u32) -> Box<dyn Environment> {
    let mut rng = rng(task, member);
    let mut episode = set.open(task, 0).unwrap();
    for _ in 0..rng.below(7) {
        let listed = episode.admissible().unwrap();
        let action = rng.choose(&listed).unwrap().clone();
        say(&mut *episode, &action);
        if action.starts_with("answer") {
            break;
        }
    }
    episode
}

fn looks(episode: &dyn Environment) -> (String, Vec<u8>, Option<Vec<String>>, Option<u32>, Snapshot) {
    let observation = episode.observe();
    (observation.text, episode.state_key(), episode.admissible(), episode.stage(), episode.snapshot().unwrap())
}

#[test]
fn snapshots_obey_their_laws() {
    let set = standard();
    for task in ids(&set, HELD_OUT) {
        for member in 0..8 {
            let mut original = somewhere(&set, &task, member);
            let saved = looks(&*original);
            // Restore twice, step one: the other and the snapshot are as before.
            let mut one = set.open(&task, 1).unwrap();
            let mut other = set.open(&task, 2).unwrap();
            for _ in 0..10 {
                one.restore(&saved.4).unwrap();
                assert_eq!(looks(&*one), saved);
                other.restore(&saved.4).unwrap();
                say(&mut *one, "hm");
                assert_ne!(one.state_key(), saved.1);
                assert_eq!(looks(&*other), saved);
            }
            // It goes on as it would have, to the end.
            one.restore(&saved.4).unwrap();
            let mut expert = [rng(&task, 9), rng(&task, 9)];
            while let Some(action) = original.expert(&mut expert[0]) {
                assert_eq!(one.expert(&mut expert[1]), Some(action.clone()));
                let [a, b] = [&mut original, &mut one].map(|episode| {
                    let step = say(&mut **episode, &action);
                    (step.reward, step.end, step.signals)
                });
                assert_eq!(a, b);
                assert_eq!(looks(&*one), looks(&*original));
            }
            // It survives serialisation, and an ended episode is restored as ended.
            let text = serde_json::to_string(&original.snapshot().unwrap()).unwrap();
            other.restore(&serde_json::from_str(&text).unwrap()).unwrap();
            assert!(other.step(ActionText { text: "search earth radius", complete: true }).is_err());
            assert_eq!(looks(&*other), looks(&*original));
        }
    }
}

#[test]
fn snapshots_of_others_are_refused_and_change_nothing() {
    let set = standard();
    let [a, b] = [0, 1].map(|index| TaskId { split: HELD_OUT.into(), index });
    let mut episode = set.open(&a, 0).unwrap();
    say(&mut *episode, &format!("search {}", FACTS[set.task(&a).unwrap().needed[0]].name()));
    say(&mut *episode, "calculate 1 / 3");
    let before = looks(&*episode);
    let good = before.4.clone();
    let refused = |episode: &mut dyn Environment, snapshot: Snapshot| {
        let error = episode.restore(&snapshot).unwrap_err();
        assert_eq!(looks(episode), before);
        error
    };
    let foreign = set.open(&b, 0).unwrap().snapshot().unwrap();
    assert!(matches!(refused(&mut *episode, foreign), RestoreError::Foreign { .. }));
    let elsewhere = with(|config| config.failure_cost = unit(1.0)).open(&a, 0).unwrap().snapshot().unwrap();
    assert!(matches!(refused(&mut *episode, elsewhere), RestoreError::Foreign { .. }));
    let newer = Snapshot { version: 2, ..good.clone() };
    assert_eq!(refused(&mut *episode, newer), RestoreError::Version { found: 2, expected: 1 });
    let shows = Snapshot { observation: format!("{} and more", good.observation), ..good.clone() };
    assert_eq!(refused(&mut *episode, shows), RestoreError::Diverged { at: good.observation.len() });
    for at in 0..good.bytes.len() {
        let cut = Snapshot { bytes: good.bytes[..at].to_vec(), ..good.clone() };
        assert!(matches!(refused(&mut *episode, cut), RestoreError::Damaged(_)));
        let mut flipped = good.clone();
        flipped.bytes[at] ^= 1;
        assert!(matches!(refused(&mut *episode, flipped), RestoreError::Damaged(_)));
    }
    // The checksum fits, and still no episode of this task comes there.
    let forged = |from: &str, to: &str| {
        let json = String::from_utf8(good.bytes[..good.bytes.len() - 8].to_vec()).unwrap();
        assert!(json.contains(from), "{json}");
        let mut bytes = json.replace(from, to).into_bytes();
        let sum = Sha256::digest(&bytes);
        bytes.extend(&sum[..8]);
        Snapshot { bytes, ..good.clone() }
    };
    for (from, to) in [
        ("\"calls\":2", "\"calls\":9"),
        ("\"calls\":2", "\"calls\":1"),
        ("\"found\":[", "\"found\":[999,"),
        ("[\"0.333333\"]", "[\"one\"]"),
        ("\"answered\":null", "\"answered\":true"),
    ] {
        let error = refused(&mut *episode, forged(from, to));
        assert_eq!(error, RestoreError::Damaged("no episode of this task comes to such a state".into()), "{to}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_an_episode(
        texts in prop::collection::vec(
            "(search|calculate|verify|answer|report|) ?[-+*/(). 0-9a-z_]{0,30}|\\PC{0,40}",
            1..10,
        ),
        complete in any::<bool>(),
    ) {
        let mut episode = difference(rules());
        for text in &texts {
            let calls = episode.snapshot().unwrap();
            match episode.step(ActionText { text, complete }) {
                Ok(step) => {
                    prop_assert!(step.reward == 0.0 || step.reward == 1.0);
                    prop_assert_eq!(step.signals.len(), 4);
                    if !complete {
                        prop_assert_eq!(step.validity, Validity::Cut);
                    }
                }
                Err(_) => break,
            }
            let _ = (episode.privileged(), episode.admissible(), episode.stage());
            let now = episode.snapshot().unwrap();
            let mut again = difference(rules());
            again.restore(&now).unwrap();
            prop_assert_eq!(again.state_key(), episode.state_key());
            prop_assert_ne!(now, calls);
        }
    }

    #[test]
    fn garbage_is_no_snapshot(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut episode = difference(rules());
        let before = episode.snapshot().unwrap();
        let damaged = episode.restore(&Snapshot { bytes, ..before.clone() });
        prop_assert!(matches!(damaged, Err(RestoreError::Damaged(_))));
        prop_assert_eq!(episode.snapshot().unwrap(), before);
    }
}

#[test]
fn equal_keys_mean_equal_futures() {
    // States that are reached by different calls in as many turns, gathered by key; from each the same calls.
    let set = standard();
    let mut met = 0;
    for task in ids(&set, HELD_OUT).iter().take(10) {
        let mut by_key: BTreeMap<Vec<u8>, Vec<Snapshot>> = BTreeMap::new();
        for member in 0..200 {
            let episode = somewhere(&set, task, member);
            by_key.entry(episode.state_key()).or_default().push(episode.snapshot().unwrap());
        }
        for (key, snapshots) in by_key {
            let mut futures = BTreeSet::new();
            for snapshot in &snapshots {
                let mut rng = rng(task, 7);
                let mut episode = set.open(task, 0).unwrap();
                episode.restore(snapshot).unwrap();
                assert_eq!(episode.state_key(), key);
                let mut future = Vec::new();
                while let Some(call) = rng.choose(&episode.admissible().unwrap()).cloned() {
                    let step = say(&mut *episode, &call);
                    let shows = episode.observe().text;
                    let privileged = episode.privileged();
                    let paid = format!("{:?} {:?} {:?} {:?}", step.end, step.signals, episode.stage(), step.validity);
                    future.push((call, shows, step.reward.to_bits(), paid, privileged));
                }
                futures.insert(future);
            }
            assert_eq!(futures.len(), 1, "{task}");
            let different: BTreeSet<&[u8]> = snapshots.iter().map(|s| &s.bytes[..]).collect();
            met += usize::from(different.len() > 1);
        }
    }
    println!("{met} states were reached in more than one way");
    assert!(met > 20);
}

#[test]
fn tasks_are_pinned() {
    // A change here changes every result recorded with this environment.
    assert_eq!(standard().fingerprint(), PINNED);
    let question = |index| standard().task(&TaskId { split: HELD_OUT.into(), index }).unwrap().question();
    assert_eq!(question(0), FIRST);
    // The expert is no part of the tasks, their rules are.
    assert_eq!(with(|config| config.expert_noise = unit(0.5)).fingerprint(), PINNED);
    let others = [
        with(|config| config.seed = 1),
        with(|config| config.failure_cost = unit(1.0)),
        with(|config| config.process = Process::Useful),
        with(|config| config.verification = Verification::Required),
        with(|config| config.self_report = false),
        with(|config| config.max_calls = Between::try_from(9).unwrap()),
    ];
    let fingerprints: BTreeSet<String> = others.iter().map(TaskSet::fingerprint).chain([PINNED.into()]).collect();
    assert_eq!(fingerprints.len(), 7);
}
const PINNED: &str = "mini-tool/1/01321646f2cb26a8";
const FIRST: &str = "find the circumference of sun from its radius with pi 3 . 1 4 1 5 9";

#[test]
fn splits_and_names() {
    let set = standard();
    assert_eq!(set.splits(), [TRAIN, HELD_OUT]);
    assert_eq!((set.len(TRAIN), set.len(HELD_OUT), set.len("test")), (600, 42, 0));
    assert_eq!(set.capabilities().max_turns, 9);
    let names: BTreeSet<String> = set.splits().iter().flat_map(|split| ids(&set, split)).map(|id| set.name(&id)).collect();
    assert_eq!(names.len(), 642);
    assert!(names.contains("circumference-earth-radius"));
    assert_eq!(set.category(&TaskId { split: HELD_OUT.into(), index: 8 }).unwrap(), "diameter");
    let error = set.open(&TaskId { split: TRAIN.into(), index: 600 }, 0).err().unwrap();
    assert_eq!(error.0, "mini-tool has no task `train/600`: split train has 600 tasks, held_out 42");
}

#[test]
fn configuration_names_the_key_that_is_wrong() {
    let context = BuildContext {
        seeds: Seeds(0),
        device: "cpu",
        threads: 1,
        environment: None,
        nodes: BTreeSet::new(),
        base: std::path::PathBuf::new(),
    };
    let config: Box<dyn TaskSetConfig> = serde_json::from_str(r#"{ "mini-tool": {} }"#).unwrap();
    let set = config.build(&context).unwrap();
    assert_eq!(set.fingerprint(), standard().fingerprint());
    assert_eq!(set.capabilities().provides, config.provides());
    let error = |json: &str| serde_json::from_str::<MiniTool>(json).unwrap_err().to_string();
    assert!(error(r#"{ "max_call": 8 }"#).contains("unknown field `max_call`"));
    assert!(error(r#"{ "max_calls": 3 }"#).contains("must be in 4..=16, got 3"));
    assert!(error(r#"{ "train_tasks": 5000 }"#).contains("must be in 1..=1200, got 5000"));
    assert!(error(r#"{ "failure_cost": -1 }"#).contains("must be in 0..=1, got -1"));
    assert!(error(r#"{ "process": "tools" }"#).contains("unknown variant `tools`"));
    let many: Box<dyn TaskSetConfig> =
        serde_json::from_str(r#"{ "mini-tool": { "train_tasks": 1200, "held_out_tasks": 200 } }"#).unwrap();
    let error = many.build(&context).err().unwrap().to_string();
    assert!(error.contains("`train_tasks` and `held_out_tasks` ask for 1400 tasks together"), "{error}");
    let row = registry::plugin(PluginKind::Environment, "mini-tool").unwrap();
    assert_eq!(row.krate, "ascribe-environments");
    // The example says every key, with its default.
    let example: MiniTool = toml::from_str(row.example).unwrap();
    assert_eq!(toml::Table::try_from(&example).unwrap(), toml::from_str::<toml::Table>(row.example).unwrap());
    assert_eq!(serde_json::to_string(&example).unwrap(), serde_json::to_string(&MiniTool::default()).unwrap());
}
