use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ascribe_core::environment::{ActionText, Environment, Place, RestoreError, Snapshot, Step};
use ascribe_core::log::{End, Limit, Validity};
use ascribe_core::mdp;
use ascribe_core::registry::{self, Kind};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{Draw, Rng, Seeds};
use proptest::prelude::*;

use super::generate::alike;
use super::room::{CELLS, Cell, Layout, Plan, State};
use super::*;
use crate::sealed::seal;

/// Episodes per room where a rate is measured.
const EPISODES: u32 = 100;

fn with(change: impl FnOnce(&mut Sokoban)) -> Result<SokobanTasks, String> {
    // A few rooms: most tests need no more.
    let mut config = Sokoban { train_tasks: between(30), test_tasks: between(20), ..Sokoban::default() };
    change(&mut config);
    config.open()
}

fn small() -> SokobanTasks {
    with(|_| ()).unwrap()
}

fn between<const MIN: u64, const MAX: u64>(n: u64) -> Between<MIN, MAX> {
    Between::try_from(n).unwrap()
}

fn ids(set: &SokobanTasks, split: &str) -> Vec<TaskId> {
    (0..set.len(split) as u32).map(|index| TaskId { split: split.into(), index }).collect()
}

fn rng(task: &TaskId, member: u32) -> Rng {
    Seeds(11).rng(&task.split, Draw { group: task.index, member, ..Draw::default() })
}

/// A room from its symbols.
fn room(text: &str) -> Room {
    let mut layout = Layout { floor: [false; CELLS], target: 0 };
    let mut start = State { player: 0, box_at: 0 };
    for (cell, symbol) in text.split_whitespace().enumerate() {
        layout.floor[cell] = symbol != "#";
        match symbol {
            "O" => layout.target = cell as Cell,
            "X" => start.box_at = cell as Cell,
            "P" => start.player = cell as Cell,
            "S" => (layout.target, start.player) = (cell as Cell, cell as Cell),
            _ => {}
        }
    }
    Room { layout, start }
}

/// Right of the player the box, two pushes from the target; a nook below.
const CORRIDOR: &str = "# # # # # #\n# P X _ O #\n# _ _ _ # #\n# # # # # #\n# # # # # #\n# # # # # #";

fn rules() -> Rules {
    Rules { max_turns: 6, step_cost: 0.25, malformed_cost: 0.5, solved_reward: 4.0, shows: Shows::Symbols, noise: 0.0 }
}

fn task(text: &str, rules: Rules) -> Arc<Task> {
    Arc::new(Task::new(room(text), rules, "by-hand".into()))
}

fn say(episode: &mut dyn Environment, text: &str) -> Step {
    episode.step(ActionText { text, complete: true }).unwrap()
}

/// Plays an episode to its end; returns whether it was solved, its return and its turns.
fn play(episode: &mut dyn Environment, mut next: impl FnMut(&mut dyn Environment) -> String) -> (bool, f64, usize) {
    let (mut total, mut turns) = (0.0, 0);
    loop {
        let go = next(episode);
        let step = say(episode, &go);
        total += f64::from(step.reward);
        turns += 1;
        if let Some(end) = step.end {
            return (end.success(), total, turns);
        }
    }
}

fn looks(episode: &dyn Environment) -> (String, Vec<u8>, Option<String>, Option<u32>, Snapshot) {
    let snapshot = episode.snapshot().unwrap();
    (episode.observe().text, episode.state_key(), episode.privileged(), episode.stage(), snapshot)
}

#[test]
fn an_episode_by_hand() {
    let mut episode = Episode::new(task(CORRIDOR, rules()));
    assert_eq!(episode.observe().text, CORRIDOR);
    assert_eq!(episode.observe().key, CORRIDOR.as_bytes());
    assert_eq!(episode.admissible().unwrap(), ["down", "left", "right", "up"]);
    // Two pushes of 0.25 each.
    assert_eq!((episode.privileged().unwrap().as_str(), episode.optimal_return()), ("needs 2 moves of 6 turns", 3.5));
    assert_eq!((episode.ground_truth().unwrap().as_str(), episode.stage()), ("right right", Some(0)));
    let step = say(&mut episode, "up");
    assert_eq!((step.validity, step.reward, step.end), (Validity::Refused, -0.25, None));
    assert_eq!((episode.observe().text.as_str(), episode.optimal_return()), (CORRIDOR, 3.5));
    let step = say(&mut episode, "go right");
    assert_eq!((step.validity, step.reward, step.end), (Validity::Malformed, -0.75, None));
    let cut = episode.step(ActionText { text: "right", complete: false }).unwrap();
    assert_eq!((cut.validity, cut.reward, cut.end), (Validity::Cut, -0.75, None));
    let step = say(&mut episode, " right ");
    assert_eq!((step.validity, step.reward, step.end), (Validity::Valid, -0.25, None));
    assert_eq!(episode.observe().text.lines().nth(1), Some("# _ P X O #"));
    assert_eq!((episode.privileged().unwrap().as_str(), episode.stage()), ("needs 1 moves of 2 turns", Some(2)));
    let step = say(&mut episode, "right");
    assert_eq!((step.validity, step.reward, step.end), (Validity::Valid, 3.75, Some(End::Terminated { success: true })));
    assert_eq!(episode.observe().text.lines().nth(1), Some("# _ _ P √ #"));
    assert_eq!((episode.privileged().unwrap().as_str(), episode.stage()), ("solved", Some(3)));
    assert_eq!((episode.admissible(), episode.optimal_return()), (Some(Vec::new()), 0.0));
    let over = episode.step(ActionText { text: "left", complete: true });
    assert_eq!(over.unwrap_err().0, "the episode is over: no move is possible after it");
    assert_eq!(episode.expert(&mut rng(&TaskId::default(), 0)), None);
}

#[test]
fn a_deadlock_does_not_end_the_episode() {
    // Around the box and three pushes, right, up and right, in nine moves. Pushed down, it stands in a corner.
    let trap = "# # # # # #\n# _ P _ O #\n# _ X _ _ #\n# # _ _ # #\n# # # # # #\n# # # # # #";
    let mut episode = Episode::new(task(trap, Rules { max_turns: 12, ..rules() }));
    assert_eq!((episode.privileged().unwrap().as_str(), episode.optimal_return()), ("needs 9 moves of 12 turns", 1.75));
    say(&mut episode, "down");
    assert_eq!(episode.observe().text.lines().nth(3), Some("# # X _ # #"));
    assert_eq!((episode.privileged().unwrap().as_str(), episode.stage()), ("cannot be solved in 11 turns", Some(0)));
    assert_eq!(episode.optimal_return(), -2.75);
    let mut turns = 1;
    let last = loop {
        let go = episode.expert(&mut rng(&TaskId::default(), turns)).unwrap();
        turns += 1;
        let step = say(&mut episode, &go);
        if let Some(end) = step.end {
            break end;
        }
    };
    assert_eq!((last, turns), (End::Truncated(Limit::Turns), 12));
    assert_eq!(episode.privileged().unwrap(), "cannot be solved in 0 turns");
}

#[test]
fn too_few_turns_are_told_too() {
    let task = task(CORRIDOR, Rules { max_turns: 2, ..rules() });
    let mut episode = Episode::new(Arc::clone(&task));
    assert_eq!(episode.optimal_return(), 3.5);
    say(&mut episode, "down");
    // Back up, and two pushes: three moves, one turn.
    assert_eq!((episode.privileged().unwrap().as_str(), episode.optimal_return()), ("cannot be solved in 1 turns", -0.25));
    assert_eq!(task.plan(State { player: 13, box_at: 8 }), Some(Plan { moves: 3, pushes: 2 }));
}

#[test]
fn a_sentence_tells_what_the_grid_shows() {
    let mut episode = Episode::new(task(CORRIDOR, Rules { shows: Shows::Text, ..rules() }));
    let walls = "walls at 2 4 and 3 1 and 3 2 and 3 3 and 3 4 and 4 1 and 4 2 and 4 3 and 4 4";
    assert_eq!(episode.observe().text, format!("player at 1 1 box at 1 2 target at 1 4 {walls}"));
    say(&mut episode, "right");
    assert_eq!(episode.observe().text, format!("player at 1 2 box at 1 3 target at 1 4 {walls}"));
    let open = "# # # # # #\n# _ _ _ _ #\n# _ X _ _ #\n# _ _ S _ #\n# _ _ _ _ #\n# # # # # #";
    let episode = Episode::new(task(open, Rules { shows: Shows::Text, ..rules() }));
    assert_eq!(episode.observe().text, "player at 3 3 box at 2 2 target at 3 3 no walls");
    let drawn = Episode::new(task(open, rules()));
    assert_eq!(drawn.observe().text, open);
}

/// The shortest way from a state to a solved one by playing forward, breadth first.
fn forward(layout: &Layout, start: State) -> Option<usize> {
    let mut seen = BTreeSet::from([start]);
    let mut open = VecDeque::from([(start, 0)]);
    while let Some((at, moves)) = open.pop_front() {
        if layout.solved(at) {
            return Some(moves);
        }
        for next in Move::ALL.into_iter().filter_map(|go| layout.after(at, go)) {
            if seen.insert(next) {
                open.push_back((next, moves + 1));
            }
        }
    }
    None
}

/// The fewest pushes among the solutions of a given length, by trying all moves.
fn fewest_pushes(layout: &Layout, at: State, moves: usize) -> Option<usize> {
    if layout.solved(at) || moves == 0 {
        return (layout.solved(at) && moves == 0).then_some(0);
    }
    let pushes = |go| {
        let next = layout.after(at, go)?;
        Some(fewest_pushes(layout, next, moves - 1)? + usize::from(next.box_at != at.box_at))
    };
    Move::ALL.into_iter().filter_map(pushes).min()
}

#[test]
fn reverse_play_finds_what_forward_search_finds() {
    let set = small();
    let mut deadlocks = 0;
    for id in ids(&set, TEST) {
        let task = set.task(&id).unwrap();
        let layout = &task.room().layout;
        for player in layout.floor_cells() {
            for box_at in layout.floor_cells().filter(|cell| *cell != player) {
                let at = State { player, box_at };
                let plan = task.plan(at);
                assert_eq!(plan.map(|plan| plan.moves), forward(layout, at), "{id} {at:?}");
                deadlocks += usize::from(plan.is_none());
                if let Some(plan) = plan.filter(|plan| plan.moves <= 6) {
                    assert_eq!(fewest_pushes(layout, at, plan.moves), Some(plan.pushes), "{id} {at:?}");
                }
            }
        }
    }
    println!("{deadlocks} deadlocks");
    assert!(deadlocks > 100);
}

#[test]
fn optimal_returns_are_those_of_backward_induction() {
    let set = small();
    for id in ids(&set, TRAIN).iter().take(8) {
        let task = set.task(id).unwrap();
        let process = task.process();
        assert_eq!(mdp::check(process), Ok(()));
        let n = process.transitions.len();
        let mut values = vec![0.0f64; n];
        let states = task.room().layout.reachable(task.room().start);
        for left in 1..=process.horizon {
            let best = |s: usize| {
                let actions = process.transitions[s].iter().zip(&process.rewards[s]);
                let returns =
                    actions.map(|(outcomes, pays)| pays + outcomes.iter().map(|(next, p)| p * values[*next]).sum::<f64>());
                returns.reduce(f64::max).unwrap_or(0.0)
            };
            values = (0..n).map(best).collect();
            for (at, value) in states.iter().zip(&values) {
                let optimal = task.optimal_return(*at, left);
                assert!((optimal - value).abs() < 1e-12, "{id} {at:?} {left}: {optimal} is not {value}");
            }
        }
        let start = process.start.iter().position(|p| *p == 1.0).unwrap();
        assert_eq!(states[start], task.room().start);
    }
}

#[test]
fn the_oracle_knows_the_episodes_places() {
    let set = small();
    let id = TaskId { split: TRAIN.into(), index: 3 };
    let oracle = set.oracle(&id).unwrap();
    let process = oracle.process();
    assert!(process.transitions.len() <= 240);
    let mut rng = rng(&id, 0);
    for _ in 0..20 {
        let mut episode = set.open(&id, 0).unwrap();
        let mut turn = 0;
        while let Some(action) = rng.choose(&episode.admissible().unwrap()).cloned() {
            let place = oracle.place(&episode.state_key()).unwrap();
            assert_eq!((place.turn, oracle.state_key(place)), (turn, episode.state_key()));
            assert_eq!(oracle.actions(place.state), episode.admissible().unwrap());
            let index = oracle.action(place.state, &action).unwrap();
            let step = say(&mut *episode, &action);
            turn += 1;
            assert_eq!(step.reward, process.rewards[place.state][index] as f32);
            let next = process.transitions[place.state][index][0].0;
            assert_eq!(oracle.place(&episode.state_key()), Some(Place { turn, state: next }));
            assert_eq!(oracle.actions(next).is_empty(), step.end.is_some_and(|end| end.success()));
        }
    }
    assert_eq!(oracle.place(&oracle.state_key(Place { turn: 16, state: 0 })), None);
    assert_eq!(oracle.place(&oracle.state_key(Place { turn: 0, state: process.transitions.len() })), None);
    assert_eq!((oracle.place(b"of another task\n0 0"), oracle.place(&[0xff])), (None, None));
    assert!(set.oracle(&TaskId { split: TRAIN.into(), index: 30 }).is_none());
}

#[test]
fn rooms_keep_within_the_bounds_and_differ() {
    let set = Sokoban::default().open().unwrap();
    let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
    let mut rooms = BTreeSet::new();
    for id in ids(&set, TRAIN).iter().chain(&ids(&set, TEST)) {
        let task = set.task(id).unwrap();
        let Plan { moves, pushes } = task.length();
        assert!((3..=10).contains(&moves) && pushes >= 2 && pushes <= moves, "{id}");
        let Room { layout, start } = *task.room();
        assert!(layout.floor[usize::from(layout.target)] && !layout.solved(start) && start.player != start.box_at);
        assert!(layout.floor_cells().all(|cell| [0, 5].iter().all(|edge| cell / 6 != *edge && cell % 6 != *edge)));
        assert!(rooms.insert(task.room().canonical()), "{id} is there twice");
        *lengths.entry(moves).or_default() += 1;
    }
    println!("rooms by moves: {lengths:?}");
    assert!(lengths.len() == 8 && lengths.values().all(|n| *n >= 30), "{lengths:?}");
    let layouts = |split| ids(&set, split).iter().map(|id| alike(set.task(id).unwrap().room())).collect::<BTreeSet<_>>();
    assert!(layouts(TRAIN).is_disjoint(&layouts(TEST)));
}

#[test]
fn turned_and_mirrored_rooms_are_the_same() {
    let rows = |text: &str| text.lines().map(|l| l.split(' ').map(String::from).collect::<Vec<_>>()).collect::<Vec<_>>();
    let text = |rows: Vec<Vec<String>>| rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>().join("\n");
    let grid = rows(CORRIDOR);
    let mirrored = text(grid.iter().map(|row| row.iter().rev().cloned().collect()).collect());
    let diagonal = text((0..6).map(|c| (0..6).map(|r| grid[r][c].clone()).collect()).collect());
    let turned = text((0..6).map(|c| (0..6).rev().map(|r| grid[r][c].clone()).collect()).collect());
    for other in [mirrored, diagonal, turned] {
        assert_ne!(other, CORRIDOR);
        assert_eq!(room(&other).canonical(), room(CORRIDOR).canonical());
    }
    let other = CORRIDOR.replace("P X _ O", "P _ X O");
    assert_ne!(room(&other).canonical(), room(CORRIDOR).canonical());
    assert_eq!(alike(&room(&other)), alike(&room(CORRIDOR)));
}

#[test]
fn rooms_depend_on_the_seed_and_their_index_alone() {
    let texts = |set: &SokobanTasks, split: &str| {
        ids(set, split).iter().map(|id| set.open(id, 0).unwrap().observe().text).collect::<Vec<_>>()
    };
    let few = small();
    let more = with(|config| (config.train_tasks, config.test_tasks) = (between(60), between(20))).unwrap();
    assert_eq!(texts(&few, TRAIN), texts(&more, TRAIN)[..30]);
    assert_eq!(texts(&few, TEST), texts(&more, TEST));
    assert_eq!(small().fingerprint(), few.fingerprint());
    let other = with(|config| config.seed = 1).unwrap();
    assert!(texts(&other, TEST).iter().all(|text| !texts(&few, TEST).contains(text)));
}

#[test]
fn baselines() {
    let set = Sokoban::default().open().unwrap();
    let measure = |next: &dyn Fn(&mut dyn Environment, &mut Rng) -> String| {
        let (mut wins, mut total, mut turns) = (0, 0.0, 0);
        for id in ids(&set, TEST) {
            for member in 0..EPISODES {
                let mut rng = rng(&id, member);
                let (solved, paid, n) = play(&mut *set.open(&id, 0).unwrap(), |episode| next(episode, &mut rng));
                (wins, total, turns) = (wins + usize::from(solved), total + paid, turns + n);
            }
        }
        let n = f64::from(EPISODES) * set.len(TEST) as f64;
        (wins as f64 / n, total / n, turns as f64 / n)
    };
    let random = measure(&|episode, rng| rng.choose(&episode.admissible().unwrap()).unwrap().clone());
    let expert = measure(&|episode, rng| episode.expert(rng).unwrap());
    let print = |name: &str, (solved, paid, turns): (f64, f64, f64)| {
        println!("{name}: solved {solved:.3}, return {paid:.2}, {turns:.2} turns");
    };
    print("random", random);
    print("expert", expert);
    assert!(random.0 <= 0.25 && expert.0 == 1.0);
    // The expert's return is the optimal one.
    let optimal: f64 =
        ids(&set, TEST).iter().map(|id| Episode::new(Arc::clone(set.task(id).unwrap())).optimal_return()).sum::<f64>()
            / set.len(TEST) as f64;
    assert!((expert.1 - optimal).abs() < 1e-5, "{} is not {optimal}", expert.1);
}

#[test]
fn a_noisy_expert_strays_and_finds_back() {
    let sets = [0.0, 0.5].map(|noise| with(|config| config.expert_noise = Unit::try_from(noise).unwrap()).unwrap());
    assert_eq!(sets[0].fingerprint(), sets[1].fingerprint());
    let turns = sets.each_ref().map(|set| {
        let played = ids(set, TEST).into_iter().map(|id| {
            let mut rng = rng(&id, 0);
            play(&mut *set.open(&id, 0).unwrap(), |episode| episode.expert(&mut rng).unwrap())
        });
        played.fold((0, 0), |(wins, turns), (solved, _, n)| (wins + usize::from(solved), turns + n))
    });
    assert!(turns[0].0 == 20 && turns[1].0 < 20 && turns[1].0 >= 5 && turns[1].1 > turns[0].1, "{turns:?}");
}

#[test]
fn every_word_is_known() {
    for shows in [Shows::Symbols, Shows::Text] {
        let set = with(|config| config.observation = shows).unwrap();
        let about = set.capabilities();
        let tokenizer = WordTokenizer::new(&about.vocabulary);
        assert!(tokenizer.token(&about.stop).is_some());
        let check = |text: &str| {
            let tokens = tokenizer.encode(text);
            assert!(!tokens.contains(&0), "`{text}` has an unknown word");
            assert_eq!(tokenizer.decode(&tokens), text.replace('\n', " "));
            tokens.len()
        };
        for id in ids(&set, TRAIN).iter().chain(&ids(&set, TEST)) {
            let mut rng = rng(id, 0);
            play(&mut *set.open(id, 0).unwrap(), |episode| {
                let seen = episode.observe().text;
                let n = check(&seen);
                assert!(shows == Shows::Text || n == 36);
                let privileged = episode.privileged().unwrap();
                check(&privileged);
                check(&episode.ground_truth().unwrap());
                assert!(!seen.contains(&privileged));
                let go = rng.choose(&episode.admissible().unwrap()).unwrap().clone();
                assert!(check(&go) < about.max_action_tokens);
                go
            });
        }
    }
}

#[test]
fn the_ground_truth_solves_the_room() {
    let set = small();
    for id in ids(&set, TRAIN) {
        let mut episode = set.open(&id, 0).unwrap();
        let moves = episode.ground_truth().unwrap();
        let ends: Vec<Option<End>> = moves.split(' ').map(|go| say(&mut *episode, go).end).collect();
        assert_eq!(ends.iter().position(Option::is_some), Some(ends.len() - 1), "{id}: {moves}");
        assert_eq!(ends[ends.len() - 1], Some(End::Terminated { success: true }));
        assert_eq!(ends.len(), set.task(&id).unwrap().length().moves);
    }
}

#[test]
fn snapshots_are_refused_where_they_do_not_fit() {
    let set = small();
    let [a, b] = [0, 1].map(|index| TaskId { split: TEST.into(), index });
    let mut episode = set.open(&a, 0).unwrap();
    say(&mut *episode, "up");
    let before = looks(&*episode);
    let good = before.4.clone();
    let mut refused = |snapshot: &Snapshot| {
        let error = episode.restore(snapshot).unwrap_err();
        assert_eq!(looks(&*episode), before);
        error
    };
    let foreign = set.open(&b, 0).unwrap().snapshot().unwrap();
    assert!(matches!(refused(&foreign), RestoreError::Foreign { .. }));
    assert_eq!(refused(&Snapshot { version: 2, ..good.clone() }), RestoreError::Version { found: 2, expected: 1 });
    let shows = Snapshot { observation: format!("{} #", good.observation), ..good.clone() };
    assert_eq!(refused(&shows), RestoreError::Diverged { at: good.observation.len() });
    let nowhere = |turn: usize, player: Cell, box_at: Cell| {
        let state = serde_json::json!({ "turn": turn, "state": State { player, box_at } });
        seal(&good.fingerprint, 1, &state, good.observation.clone()).unwrap()
    };
    // In a wall, outside, in one cell, and after the last turn.
    let start = set.task(&a).unwrap().room().start;
    for at in
        [nowhere(0, 0, 1), nowhere(0, 200, 255), nowhere(0, start.box_at, start.box_at), nowhere(16, start.player, start.box_at)]
    {
        assert_eq!(refused(&at), RestoreError::Damaged("no episode of this task comes to such a state".into()));
    }
    for at in 0..good.bytes.len() {
        let cut = Snapshot { bytes: good.bytes[..at].to_vec(), ..good.clone() };
        assert!(matches!(refused(&cut), RestoreError::Damaged(_)));
        let mut flipped = good.clone();
        flipped.bytes[at] ^= 1;
        assert!(matches!(refused(&flipped), RestoreError::Damaged(_)));
    }
}

proptest! {
    #[test]
    fn a_snapshot_brings_back_the_state(
        index in 0u32..20,
        words in prop::collection::vec(prop::sample::select(vec!["up", "down", "left", "right", "push it"]), 1..15),
        saved_at in 0usize..15,
    ) {
        let set = with(|config| config.train_tasks = between(1)).unwrap();
        let id = TaskId { split: TEST.into(), index };
        let mut episode = set.open(&id, 0).unwrap();
        let go = |episode: &mut dyn Environment, word: &str| {
            let step = episode.step(ActionText { text: word, complete: true });
            step.map(|step| (step.reward.to_bits(), step.end, step.validity)).ok()
        };
        let (before, after) = words.split_at(saved_at.min(words.len()));
        before.iter().for_each(|word| { go(&mut *episode, word); });
        let snapshot = episode.snapshot().unwrap();
        let here = looks(&*episode);
        let future = |episode: &mut dyn Environment| -> Vec<_> {
            after.iter().map(|word| (go(episode, word), looks(episode))).collect()
        };
        let once = future(&mut *episode);
        let mut restored = set.open(&id, 1).unwrap();
        say(&mut *restored, "left");
        for _ in 0..2 {
            let written = serde_json::to_string(&snapshot).unwrap();
            restored.restore(&serde_json::from_str(&written).unwrap()).unwrap();
            prop_assert_eq!(looks(&*restored), here.clone());
            prop_assert_eq!(future(&mut *restored), once.clone());
        }
    }

    #[test]
    fn garbage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "\\PC{0,30}", complete in any::<bool>()) {
        let mut episode = Episode::new(task(CORRIDOR, rules()));
        let before = looks(&episode);
        let damaged = episode.restore(&Snapshot { bytes, ..before.4.clone() });
        prop_assert!(matches!(damaged, Err(RestoreError::Damaged(_))));
        prop_assert_eq!(looks(&episode), before);
        let text = format!("{text}?");
        let step = episode.step(ActionText { text: &text, complete }).unwrap();
        prop_assert_eq!(step.validity, if complete { Validity::Malformed } else { Validity::Cut });
    }

    #[test]
    fn the_generator_never_panics(seed in any::<u64>(), low in 1u64..=20, more in 0u64..=5, pushes in 1u64..=6) {
        let made = with(|config| {
            (config.seed, config.train_tasks, config.test_tasks) = (seed, between(2), between(2));
            (config.min_moves, config.max_moves, config.max_turns) = (between(low), between(low + more), between(40));
            config.min_pushes = between(pushes);
        });
        if let Ok(set) = made {
            for id in ids(&set, TRAIN).iter().chain(&ids(&set, TEST)) {
                let Plan { moves, pushes: most } = set.task(id).unwrap().length();
                prop_assert!((low..=low + more).contains(&(moves as u64)) && most as u64 >= pushes);
            }
        }
    }
}

#[test]
fn tasks_are_pinned() {
    // A change here changes every result recorded with this environment.
    let set = Sokoban::default().open().unwrap();
    assert_eq!(set.fingerprint(), "sokoban/1/387743f94f0e5d13");
    let first = set.open(&TaskId { split: TEST.into(), index: 0 }, 0).unwrap();
    assert_eq!(first.observe().text, "# # # # # #\n# _ _ _ # #\n# X _ P # #\n# _ _ _ # #\n# O _ _ # #\n# # # # # #");
    let changed: [fn(&mut Sokoban); 6] = [
        |config| config.seed = 1,
        |config| config.max_turns = between(16),
        |config| config.step_cost = NonNegative::try_from(0.2).unwrap(),
        |config| config.malformed_cost = NonNegative::try_from(0.1).unwrap(),
        |config| config.solved_reward = Positive::try_from(1.0).unwrap(),
        |config| config.observation = Shows::Text,
    ];
    let all: BTreeSet<String> = changed.into_iter().map(|change| with(change).unwrap().fingerprint()).collect();
    assert!(all.len() == 6 && !all.contains(&small().fingerprint()));
}

#[test]
fn splits_and_names() {
    let set = small();
    assert_eq!(set.splits(), [TRAIN, TEST]);
    assert_eq!((set.len(TRAIN), set.len(TEST), set.len("held_out")), (30, 20, 0));
    let id = TaskId { split: TEST.into(), index: 8 };
    let Plan { moves, pushes } = set.task(&id).unwrap().length();
    assert_eq!(set.name(&id), format!("{moves}-moves-0008"));
    assert_eq!(set.category(&id), Some(format!("{pushes} pushes")));
    let error = set.open(&TaskId { split: TRAIN.into(), index: 30 }, 0).err().unwrap();
    assert_eq!(error.0, "sokoban has no task `train/30`: split train has 30 tasks, test 20");
}

#[test]
fn configuration_names_the_key_that_is_wrong() {
    let error = |json: &str| serde_json::from_str::<Sokoban>(json).unwrap_err().to_string();
    assert!(error(r#"{ "boxes": 2 }"#).contains("unknown field `boxes`"));
    assert!(error(r#"{ "train_tasks": 0 }"#).contains("must be in 1..=4000, got 0"));
    assert!(error(r#"{ "step_cost": -0.1 }"#).contains("must be 0 or more, and at most 3.4e38, got -0.1"));
    assert!(error(r#"{ "solved_reward": 0 }"#).contains("must be positive and at most 3.4e38, got 0"));
    assert!(error(r#"{ "observation": "picture" }"#).contains("unknown variant `picture`"));
    let refused = |change: fn(&mut Sokoban)| with(change).err().unwrap();
    let message = refused(|config| config.min_moves = between(11));
    assert_eq!(message, "`min_moves` 11 must not be above `max_moves` 10");
    let message = refused(|config| config.max_turns = between(9));
    assert!(message.starts_with("`max_moves` 10 must not be above `max_turns` 9"), "{message}");
    let message = refused(|config| config.min_pushes = between(11));
    assert_eq!(message, "`min_pushes` 11 must not be above `max_moves` 10");
    let message = refused(|config| (config.min_moves, config.min_pushes) = (between(10), between(10)));
    assert!(message.contains("of split `test` in 2000 draws, 20 are asked for: lower `test_tasks`"), "{message}");

    let row = registry::plugin(Kind::Environment, "sokoban").unwrap();
    assert_eq!(row.krate, "ascribe-environments");
    // The example says every key, with its default.
    let example: Sokoban = toml::from_str(row.example).unwrap();
    assert_eq!(toml::Table::try_from(&example).unwrap(), toml::from_str::<toml::Table>(row.example).unwrap());
    assert_eq!(serde_json::to_string(&example).unwrap(), serde_json::to_string(&Sokoban::default()).unwrap());
}
