use ascribe_core::log::{FrozenTurn, Shown};
use ascribe_core::need::covers;
use ascribe_core::policy::{OptimStep, Part};
use ascribe_core::rows::column::{BEHAVIOR_LOGPROB, OLD_LOGPROB};
use ascribe_core::tokenizer::Tokenizer;
use ascribe_core::{Limit, NamedCritic};

use super::*;
use crate::testing::{World, plugin};

const TREE: (&str, &str) = ("token-tree", "tasks = 2\ndepth = 2\nbranches = 2\nrewards = \"sparse\"\nstates = \"prefixes\"");
const ROLLOUT: &str = "groups = 4\ngroup_size = 4\ndecode = \"admissible\"";
const CUT: End = End::Truncated(Limit::Turns);

fn config(body: &str) -> Slot<dyn CriticConfig> {
    plugin("generative", body)
}

/// A world whose nodes know the critic's words.
fn world(environment: (&str, &str), body: &str) -> World {
    World::new(environment, &["actor"], config(body).words())
}

fn critic(world: &World, body: &str) -> NamedCritic {
    NamedCritic { name: "judge".into(), critic: world.critic("judge", "generative", body) }
}

fn learn(world: &mut World, critic: &mut NamedCritic, batch: &Batch) -> Vec<Lesson> {
    let credit: Vec<Credit> = batch.groups().map(|group| Credit::per_turn(vec![0.0; group.n_turns()])).collect();
    world.act(|acting| critic.critic.learn(batch, &credit, acting)).unwrap()
}

fn get(world: &World, name: &str) -> f64 {
    let name = format!("critic/judge/{name}");
    world.metrics.get(&name).unwrap_or_else(|| panic!("no {name} in {:?}", world.metrics))
}

/// One step on what was asked for.
fn step(world: &mut World, lessons: &[Lesson], learning_rate: f64) {
    for lesson in lessons {
        let mut rows = RowSet::clone(lesson.rows.own().unwrap());
        rows.columns.insert(OLD_LOGPROB.into(), rows.columns[BEHAVIOR_LOGPROB].clone());
        let picked: Vec<u32> = (0..rows.len() as u32).collect();
        let totals = rows.totals(&picked);
        let rows = Arc::new(rows);
        let part = Part { rows, picked: &picked, totals, objective: &*lesson.objective, scale: lesson.scale };
        let node = world.nodes.get_mut(&lesson.node).unwrap();
        node.forward_backward(&[part], 1 << 20, &world.now).unwrap();
        let how = OptimStep { learning_rate, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };
        node.optim_step(&how).unwrap();
    }
}

/// A path of two turns, cut, from a start that tokens lead to, of which these were the first action.
fn cut_path(history: Vec<u32>, action: std::ops::Range<usize>) -> Batch {
    let turn = |parent, observation: &str, action: &str, state: u8| TurnLog {
        parent,
        agent: "actor".into(),
        action: Action::given(vec![5]),
        state: vec![state],
        state_after: vec![state + 1],
        observation_text: observation.into(),
        action_text: action.into(),
        privileged: Some(format!("secret {state}")),
        ..TurnLog::default()
    };
    let mut last = turn(Some(0), "a hall. Actions: go", "go", 1);
    let shown =
        Shown { observation: "a den. Actions: sit".into(), context: Context::Extend, privileged: Some("secret 2".into()) };
    last.shown_after = Some(Box::new(shown));
    let mut group = GroupLog {
        task_name: "task".into(),
        turns: vec![turn(None, " find it. Actions: look ", " look ", 0), last],
        leaves: vec![LeafLog { turn: Some(1), end: CUT, seed: 0 }],
        ..GroupLog::default()
    };
    if !history.is_empty() {
        let (read, action) = (history[..action.start].to_vec(), Action::given(history[action].to_vec()));
        group.history.turns = vec![FrozenTurn { agent: "actor".into(), read, action, ..FrozenTurn::default() }];
    }
    group.history.tokens = history;
    Batch::from_groups(vec![group], NonFinite::Refuse).unwrap()
}

#[test]
fn a_prompt_tells_what_the_actor_saw_and_did() {
    let batch = cut_path(Vec::new(), 0..0);
    let words = WordTokenizer::new(["a"]);
    let reader = Reader::new(batch.group(0));
    let all = Condense { turns: None, cut_at: Some("Actions".into()) };
    let story = |state, how: &Condense| reader.story(state, true, how, &words);
    assert_eq!(story(0, &all), "Initial situation:\nfind it. Actions: look");
    assert_eq!(
        story(2, &all),
        "Initial situation:\nfind it. Actions: look\n\nActor: look\n\nEnvironment: a hall.\n\nActor: go\n\nEnvironment: a den."
    );
    let one = Condense { turns: Some(1), cut_at: None };
    assert_eq!(story(2, &one), "Initial situation:\nfind it. Actions: look\n\nActor: go\n\nEnvironment: a den. Actions: sit");
    assert_eq!(reader.story(1, false, &all, &words), "Initial situation:\nfind it. Actions: look\n\nActor: look");
    // Each state has its own secret, and a critic without them has none.
    for state in 0..3 {
        let secret = format!("Known to the judge alone:\nsecret {state}");
        assert!(reader.prompt(state, true, &all, "1", &words).contains(&secret));
        assert!(!reader.prompt(state, false, &all, "1", &words).contains("secret"));
        assert_eq!(reader.depth(state), state);
    }
}

#[test]
fn what_lies_before_a_stored_start_is_told() {
    let words = WordTokenizer::new(["task", "go", "on", "hall"]);
    // what was read first, an action, what was read then
    let batch = cut_path(words.encode("task go on hall"), 1..3);
    let reader = Reader::new(batch.group(0));
    let told = |turns| reader.story(1, true, &Condense { turns, cut_at: Some(" Actions".into()) }, &words);
    let rest = "Environment: find it.\n\nActor: look\n\nEnvironment: a hall.";
    assert_eq!(told(None), format!("Initial situation:\ntask go on hall\n\n{rest}"));
    assert_eq!(told(Some(1)), "Initial situation:\ntask\n\nActor: look\n\nEnvironment: a hall.");
}

#[test]
fn a_sequence_that_began_anew_is_told_from_there() {
    let mut batch = cut_path(Vec::new(), 0..0);
    batch.turns.context[1] = Context::Restart;
    let story = Reader::new(batch.group(0)).story(2, true, &Condense::default(), &WordTokenizer::new(["a"]));
    assert_eq!(story, "Initial situation:\na hall. Actions: go\n\nActor: go\n\nEnvironment: a den. Actions: sit");
}

#[test]
fn the_state_in_which_a_path_was_cut_is_kept() {
    let mut world = world(("bugfix", ""), "");
    let batch = world.batch("independent", "groups = 4\ngroup_size = 2");
    let mut cut = 0;
    for group in batch.groups() {
        for t in 0..group.n_turns() {
            let shown = &batch.notes[group.rows().start + t].shown_after;
            assert_eq!(shown.is_some(), group.end(t).is_some_and(End::bootstraps));
            cut += usize::from(shown.as_ref().is_some_and(|s| !s.observation.is_empty() && s.privileged.is_some()));
        }
    }
    assert!(cut > 0);
}

#[test]
fn values_are_read_from_what_is_said_and_ends_are_not_asked() {
    let body = "agent = \"critic\"\nvalue_samples = 3\nmissing = \"zero\"";
    let mut world = world(TREE, body);
    world.add_node("critic", "scripted", "plan = [\"so <value> 0.25 </value>\"]");
    let mut batch = world.batch("independent", ROLLOUT);
    let spent = world.ledger.critic_tokens;
    let mut critic = critic(&world, body);
    world.judge(&mut critic, &mut batch).unwrap();
    for group in batch.groups() {
        let value = group.state_signal("value");
        assert_eq!(value.start(), 0.25);
        for t in 0..group.n_turns() {
            assert_eq!(value.after(t), if group.end(t).is_some() { 0.0 } else { 0.25 });
        }
    }
    // 4 groups: a start and four states after a first turn each, three answers of five tokens, prompts fed once
    assert_eq!(get(&world, "answers"), 60.0);
    assert_eq!((get(&world, "parse_failure_rate"), get(&world, "truncated_rate")), (0.0, 0.0));
    assert_eq!((get(&world, "value_mean"), get(&world, "value_std"), get(&world, "states_without_value")), (0.25, 0.0, 0.0));
    assert_eq!(get(&world, "unknown_word_rate"), 0.0);
    let prompts = get(&world, "prompt_tokens_mean") * 20.0;
    assert!((((world.ledger.critic_tokens - spent) as f64) - (prompts + 60.0 * 5.0)).abs() < 1e-6);
}

#[test]
fn what_cannot_be_read_is_counted_and_never_guessed() {
    let judged = |plan: &str, body: &str| {
        let body = format!("agent = \"critic\"\n{body}");
        let mut world = world(TREE, &body);
        world.add_node("critic", "scripted", &format!("plan = [\"{plan}\"]"));
        let mut batch = world.batch("independent", ROLLOUT);
        let mut critic = critic(&world, &body);
        world.judge(&mut critic, &mut batch).unwrap();
        let column = &batch.signals["value"].column;
        let start = column.get(0);
        (start, world)
    };
    let (start, world) = judged("<value> 7 </value>", "");
    assert_eq!((start, get(&world, "parse_failure_rate/out_of_range"), get(&world, "states_without_value")), (None, 1.0, 20.0));
    let (start, world) = judged("<value> 7 </value>", "mode = \"official\"");
    assert_eq!((start, get(&world, "parse_failure_rate")), (Some(1.0), 0.0));
    let (start, world) = judged("7", "mode = \"official\"");
    assert_eq!((start, get(&world, "parse_failure_rate/missing")), (Some(0.0), 1.0));
    // Cut before the stop word: read officially alone.
    let cut = "<value> 0.5 </value> and so on";
    let (start, world) = judged(cut, "max_tokens = 5");
    assert_eq!((start, get(&world, "truncated_rate"), get(&world, "parse_failure_rate")), (None, 1.0, 0.0));
    let (start, _) = judged(cut, "max_tokens = 5\nmode = \"official\"");
    assert_eq!(start, Some(0.5));
    // A prompt that leaves no room is not asked.
    let (start, world) = judged(cut, "max_tokens = 9223372036854775807");
    assert_eq!((start, get(&world, "prompt_too_long_rate"), world.ledger.critic_tokens), (None, 1.0, 0));
    let (start, _) = judged(cut, "max_tokens = 9223372036854775807\nmode = \"official\"");
    assert_eq!(start, Some(0.0));
}

#[test]
fn the_closing_tag_may_be_the_stop_word() {
    let body = "agent = \"critic\"\nstop = \"</value>\"";
    let mut world = world(TREE, body);
    world.add_node("critic", "scripted", "plan = [\"<value> 0.5\"]");
    let mut batch = world.batch("independent", ROLLOUT);
    let mut critic = critic(&world, body);
    world.judge(&mut critic, &mut batch).unwrap();
    assert_eq!(batch.signals["value"].column.get(0), Some(0.5));
}

#[test]
fn only_ends_that_were_cut_are_asked_about() {
    let kinds = |mode: &str, end: End| {
        let body = format!("agent = \"critic\"\nvalues = \"ends\"\n{mode}");
        let mut world = world(TREE, &body);
        world.add_node("critic", "scripted", "plan = [\"<value> 0.5 </value>\"]");
        let mut batch = cut_path(Vec::new(), 0..0);
        batch.leaves[0].end = end;
        let mut critic = critic(&world, &body);
        world.judge(&mut critic, &mut batch).unwrap();
        let column = &batch.signals["value"].column;
        (0..column.len()).map(|i| column.get(i)).collect::<Vec<_>>()
    };
    let official = "mode = \"official\"";
    assert_eq!(kinds("", CUT), [None, None, Some(0.5)]);
    assert_eq!(kinds("", End::MacroBoundary), [None, None, Some(0.5)]);
    assert_eq!(kinds(official, End::MacroBoundary), [None, None, Some(0.5)]);
    assert_eq!(kinds(official, CUT), [None, None, Some(0.0)]);
    assert_eq!(kinds("", End::Terminated { success: true }), [None, None, Some(0.0)]);
}

#[test]
fn who_needs_a_value_everywhere_is_told_where_there_is_none() {
    let everywhere = Need::Signal("value".into(), Scope::State);
    let somewhere = Need::SomeStates("value".into());
    for (body, all, some) in [
        ("", false, true),
        ("missing = \"mean\"", true, true),
        ("mode = \"official\"", true, true),
        ("mode = \"official\"\nvalues = \"ends\"", false, true),
        ("values = \"none\"", false, false),
        ("column = \"worth\"\nmissing = \"zero\"", false, false),
    ] {
        let provides = config(body).provides();
        assert_eq!((covers(&provides, &everywhere), covers(&provides, &somewhere)), (all, some), "{body}");
    }
    let needs = config("privileged = true\ntarget = \"monte-carlo\"").needs();
    assert!(needs.contains(&Need::Privileged) && needs.contains(&Need::Signal("mc_value".into(), Scope::State)));
    assert!(!config("").needs().contains(&Need::Privileged));
}

#[test]
fn what_cannot_work_is_refused_with_the_remedy() {
    let refused = |world: &World, body: &str| {
        let config = config(body);
        world.with_context(|context| config.build("judge", context)).err().expect("refused").to_string()
    };
    let tree = world(TREE, "");
    assert!(refused(&tree, "r_max = 2.0").contains("set `r_max = 1`"));
    assert!(refused(&World::new(TREE, &["actor"], Vec::new()), "").contains("is in no vocabulary"));
    let kl = "objective = { kl = { estimator = \"k3\" } }";
    assert!(refused(&tree, kl).contains("reference_logprob"), "{}", refused(&tree, kl));
}

/// Advantages of the rows of a lesson, by group, with what was said.
fn told(world: &World, lesson: &Lesson) -> Vec<Vec<(String, f32)>> {
    let tokenizer = world.nodes[&lesson.node].tokenizer();
    let rows = lesson.rows.own().unwrap();
    let mut groups: Vec<Vec<(String, f32)>> = Vec::new();
    for (r, row) in rows.rows.iter().enumerate() {
        let said: Vec<u32> = rows.at[row.trained.clone()].iter().map(|i| rows.tokens_of(r)[*i]).collect();
        let advantage = rows.columns["advantage"].slice(row.trained.clone()).unwrap();
        assert!(advantage.windows(2).all(|w| w[0] == w[1]));
        groups.resize(row.group as usize + 1, Vec::new());
        groups[row.group as usize].push((tokenizer.decode(&said), advantage[0]));
    }
    groups
}

/// Shows the node answers of the right form whose numbers mean nothing, so that any of them may be said.
fn teach_form(world: &mut World, body: &str, batches: u32) {
    let body = format!("{body}\nteach = \"format\"");
    let mut teacher = NamedCritic { name: "judge".into(), critic: world.critic("judge", "generative", &body) };
    for update in 0..batches {
        let mut batch = world.batch("independent", ROLLOUT);
        let mut rng = ascribe_core::Seeds(3).rng("returns", Draw { update, ..Draw::default() });
        batch.turns.reward.iter_mut().for_each(|reward| *reward = (0.5 * rng.unit()) as f32);
        let lessons = learn(world, &mut teacher, &batch);
        step(world, &lessons, 0.3);
    }
}

#[test]
fn right_answers_are_the_target_in_words_and_cost_what_they_take() {
    let body = "teach = \"format\"\nvalues = \"none\"\nsteps = 4\nmax_tokens = 6";
    let mut world = world(TREE, body);
    let mut critic = critic(&world, body);
    let batch = world.batch("independent", ROLLOUT);
    let lessons = learn(&mut world, &mut critic, &batch);
    let [lesson] = &lessons[..] else { panic!("one lesson") };
    // Returns of the tree are multiples of 1/64; the nearest quarter is said.
    let said = ["0", "0.25", "0.5", "0.75", "1"].map(|x| format!("<value> {x} </value> <end>"));
    for group in told(&world, lesson) {
        assert_eq!(group.len(), 1);
        assert!(said.contains(&group[0].0), "{group:?}");
    }
    assert_eq!(get(&world, "taught_states"), 20.0);
    let rows = lesson.rows.own().unwrap().tokens.len() as u64;
    assert_eq!(world.ledger.critic_tokens, rows);
    assert!(lesson.rows.own().unwrap().columns[BEHAVIOR_LOGPROB].iter_present().next().is_none());
}

#[test]
fn answers_earn_what_their_error_says() {
    let body = "samples = 5\nvalues = \"none\"\nsteps = 10\nmax_tokens = 6";
    let mut world = world(TREE, body);
    teach_form(&mut world, body, 30);
    let mut critic = critic(&world, body);
    let batch = world.batch("independent", ROLLOUT);
    let rules = Rules { mode: Mode::Strict, r_max: 1.0, percent: false, fraction: false };
    let before = world.ledger.critic_tokens;
    let lessons = learn(&mut world, &mut critic, &batch);
    let [lesson] = &lessons[..] else { panic!("one lesson") };
    let groups = told(&world, lesson);
    assert_eq!((groups.len(), get(&world, "answers"), get(&world, "learned_states")), (20, 100.0, 20.0));
    assert!(world.ledger.critic_tokens > before + 500);
    let mut unequal = 0;
    for group in &groups {
        assert_eq!(group.len(), 5);
        let sum: f32 = group.iter().map(|(_, a)| a).sum();
        assert!(sum.abs() < 1e-5);
        // Differences of advantages are those of the errors: that fixes the target, which lies between 0 and 1.
        let values: Vec<Option<f64>> = group.iter().map(|(said, _)| read(said, !said.ends_with("<end>"), &rules).ok()).collect();
        let near = |target: f64| {
            let want = critic_signals(&values, target, 1.0).advantages;
            group.iter().zip(want).all(|((_, got), want)| (f64::from(*got) - want).abs() < 1e-5)
        };
        assert!((0..=64 * 4 * 3).any(|i| near(f64::from(i) / (64.0 * 12.0))), "{group:?}");
        unequal += usize::from(group.iter().any(|(_, a)| a.abs() > 1e-3));
    }
    assert!(unequal > 5, "{unequal}");
}

#[test]
fn states_whose_answers_are_equally_good_are_not_trained_officially() {
    let body = "agent = \"critic\"\nvalues = \"none\"";
    for (mode, rows) in [("", true), ("\nmode = \"official\"", false)] {
        let body = format!("{body}{mode}");
        let mut world = world(TREE, &body);
        world.add_node("critic", "scripted", "plan = [\"<value> 0.5 </value>\"]");
        let batch = world.batch("independent", ROLLOUT);
        let mut critic = critic(&world, &body);
        assert_eq!(!learn(&mut world, &mut critic, &batch).is_empty(), rows);
        assert_eq!(get(&world, "degenerate_state_rate"), 1.0);
        // Officially nothing is learned about starts.
        assert_eq!(get(&world, "learned_states"), if rows { 20.0 } else { 16.0 });
    }
}

#[test]
fn starts_are_learned_from_as_one_says() {
    for (starts, learned) in [("starts = true\nmode = \"official\"", 20.0), ("starts = false", 16.0), ("starts = true", 20.0)] {
        let body = format!("agent = \"critic\"\nvalues = \"none\"\n{starts}");
        let mut world = world(TREE, &body);
        world.add_node("critic", "scripted", "plan = [\"<value> 0.5 </value>\"]");
        let batch = world.batch("independent", ROLLOUT);
        let mut critic = critic(&world, &body);
        learn(&mut world, &mut critic, &batch);
        assert_eq!(get(&world, "learned_states"), learned, "{starts}");
    }
}

#[test]
fn a_small_policy_learns_the_form_and_then_to_err_less() {
    let body = "samples = 8\nvalues = \"none\"\nsteps = 10\nmax_tokens = 6";
    let mut world = world(TREE, body);
    let mut critic = critic(&world, body);
    let measured = |world: &mut World, critic: &mut NamedCritic| {
        let batch = world.batch("independent", ROLLOUT);
        let lessons = learn(world, critic, &batch);
        (lessons, get(world, "parse_failure_rate") + get(world, "truncated_rate"), get(world, "abs_error_mean"))
    };
    let (_, unread, _) = measured(&mut world, &mut critic);
    assert!(unread > 0.9, "{unread}");
    teach_form(&mut world, body, 25);
    let (_, unread, error) = measured(&mut world, &mut critic);
    assert!(unread < 0.1, "{unread}");
    let mut last = Vec::new();
    for _ in 0..60 {
        let (lessons, _, error) = measured(&mut world, &mut critic);
        step(&mut world, &lessons, 0.1);
        last.push(error);
    }
    let late = last[50..].iter().sum::<f64>() / 10.0;
    assert!(late < 0.8 * error, "{error} then {late}: {last:?}");
}

#[test]
fn shuffled_targets_are_taught_and_the_right_ones_measured() {
    // An oracle of a critic: it says what its prompt's state is worth, and is told something else.
    let body = "agent = \"critic\"\nvalues = \"none\"\nsamples = 2\nsteps = 4";
    let mut world = world(TREE, body);
    world.add_node("critic", "scripted", "plan = [\"<value> 0.25 </value>\"]");
    let batch = world.batch("independent", ROLLOUT);
    let errors = |world: &mut World, more: &str| {
        let mut critic = critic(world, &format!("{body}{more}"));
        let lessons = learn(world, &mut critic, &batch);
        let rows = lessons[0].rows.own().unwrap().clone();
        ((get(world, "abs_error_mean"), get(world, "skill"), get(world, "target_mean")), rows)
    };
    let (right, plain) = errors(&mut world, "");
    let (measured, dealt) = errors(&mut world, "\nshuffle_targets = true");
    assert_eq!(measured, right);
    assert_eq!(plain.tokens, dealt.tokens, "the same is asked");
    // Right answers in words show who was dealt what.
    let told_format = |world: &mut World, more: &str| {
        let mut critic = critic(world, &format!("{body}\nteach = \"format\"{more}"));
        let lessons = learn(world, &mut critic, &batch);
        let rows = lessons[0].rows.own().unwrap().clone();
        (0..rows.len()).map(|r| rows.rows[r].trained.clone().map(|i| rows.token(r, i)).collect()).collect::<Vec<Vec<u32>>>()
    };
    let (mut right, mut shuffled) = (told_format(&mut world, ""), told_format(&mut world, "\nshuffle_targets = true"));
    assert_ne!(right, shuffled);
    right.sort();
    shuffled.sort();
    assert_eq!(right, shuffled, "the same answers, of other states");
}

#[test]
fn the_same_seed_asks_the_same_and_another_call_another() {
    let body = "value_samples = 4\nmax_tokens = 6\nmissing = \"zero\"\nsteps = 10";
    let run = || {
        let mut world = world(TREE, body);
        teach_form(&mut world, body, 20);
        let mut critic = critic(&world, body);
        let batch = world.batch("independent", ROLLOUT);
        let mut columns = Vec::new();
        for _ in 0..2 {
            let mut batch = batch.clone();
            world.judge(&mut critic, &mut batch).unwrap();
            columns.push(batch.signals["value"].column.clone());
        }
        let lessons = learn(&mut world, &mut critic, &batch);
        (columns, lessons[0].rows.own().unwrap().tokens.clone(), world.metrics)
    };
    let (a, b) = (run(), run());
    assert_eq!(a, b);
    assert_ne!(a.0[0], a.0[1]);
}

#[test]
fn fewer_states_may_be_learned_from() {
    let learned = |body: &str| {
        let body = format!("agent = \"critic\"\nvalues = \"none\"\n{body}");
        let mut world = world(TREE, &body);
        world.add_node("critic", "scripted", "plan = [\"<value> 0.5 </value>\"]");
        let batch = world.batch("independent", ROLLOUT);
        let mut critic = critic(&world, &body);
        learn(&mut world, &mut critic, &batch);
        get(&world, "learned_states")
    };
    // Four groups of four paths of two turns.
    assert_eq!((learned(""), learned("every = 2"), learned("states = 7")), (20.0, 4.0, 7.0));
}

#[test]
fn privileged_text_is_in_the_critics_rows_and_in_no_actors() {
    let body = "privileged = true\nteach = \"format\"\nvalues = \"none\"";
    let words = [config(body).words(), vec!["edits".into(), "needed".into()]].concat();
    let mut world = World::new(("bugfix", ""), &["actor"], words);
    let batch = world.batch("independent", "groups = 4\ngroup_size = 2\ndecode = \"admissible\"");
    let mut critic = critic(&world, body);
    let lessons = learn(&mut world, &mut critic, &batch);
    let canary = world.nodes["actor"].tokenizer().token("needed").unwrap();
    let of_critic = lessons[0].rows.own().unwrap();
    assert!((0..of_critic.len()).all(|r| of_critic.tokens_of(r).contains(&canary)));
    let credit: Vec<Credit> = batch.groups().map(|group| Credit::per_turn(vec![1.0; group.n_turns()])).collect();
    assert!(!batch.tokens.contains(&canary) && !RowSet::from_credit(&batch, &credit, None).tokens.contains(&canary));
    // And not even the critic's, where it does not ask for it.
    let body = "teach = \"format\"\nvalues = \"none\"";
    let mut blind = NamedCritic { name: "judge".into(), critic: world.critic("judge", "generative", body) };
    let lessons = learn(&mut world, &mut blind, &batch);
    assert!(!lessons[0].rows.own().unwrap().tokens.contains(&canary));
}
