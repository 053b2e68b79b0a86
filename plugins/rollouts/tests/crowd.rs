//! Episodes side by side: branches come back to where they left, share what they read, and meet chance of their own.
#![allow(clippy::unwrap_used)]

mod toy;

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::SnapshotKind;
use ascribe_core::log::{Action, GroupLog, History, LeafLog, Origin, TurnLog};
use ascribe_core::play::{Back, Branch, Crowd, Deed, Keep, Start, State};
use ascribe_core::{Batch, Credit, End, RowSet};
use toy::{Nature, World, play, starts};

const SNAPSHOTS: Keep = Keep { privileged: false, snapshots: true };
const NONE: Keep = Keep { privileged: false, snapshots: false };

/// Plays two groups of two, then branches from the middle of each first episode, from the branches, and from their starts.
fn forest(nature: Nature, keep: Keep, sessions: bool) -> (Vec<GroupLog>, World) {
    let mut world = World::new(nature);
    let starts = starts(2);
    let play = play(&starts, 2, keep);
    let policy = &mut **world.nodes.get_mut("actor").unwrap();
    let mut crowd = Crowd::open(&play, policy, &*world.tasks, &mut world.ledger).unwrap();
    if sessions {
        crowd.keep_sessions();
    }
    while crowd.step(policy, &mut world.ledger).unwrap() {}
    for round in 0..3 {
        let branches: Vec<Branch> = (0..crowd.len())
            .flat_map(|episode| {
                let n = crowd.path(episode).len();
                [n - 1, n / 2, round % n].map(|turns| Branch { episode, turns })
            })
            .step_by(2)
            .collect();
        crowd.branch(&branches, policy, &mut world.ledger).unwrap();
        while crowd.step(policy, &mut world.ledger).unwrap() {}
    }
    let groups = crowd.finish(policy, &mut world.ledger);
    (groups, world)
}

fn paths(group: &GroupLog) -> Vec<Vec<&TurnLog>> {
    let path = |leaf: Option<usize>| {
        let mut up: Vec<&TurnLog> = std::iter::successors(leaf, |t| group.turns[*t].parent).map(|t| &group.turns[t]).collect();
        up.reverse();
        up
    };
    group.leaves.iter().map(|leaf| path(leaf.turn)).collect()
}

#[test]
fn branches_come_back_whichever_way() {
    for restarts in [0, 2] {
        let mut seen: Vec<Vec<GroupLog>> = Vec::new();
        for (snapshot, keep) in [(SnapshotKind::Exact, SNAPSHOTS), (SnapshotKind::Exact, NONE), (SnapshotKind::None, NONE)] {
            for sessions in [true, false] {
                let (mut groups, world) = forest(Nature { snapshot, restarts, ..Nature::default() }, keep, sessions);
                world.check(&groups);
                assert_eq!(groups.iter().map(|g| g.leaves.len()).sum::<usize>() as u64, world.ledger.episodes);
                for group in &mut groups {
                    group.snapshot = None;
                    group.turns.iter_mut().for_each(|turn| turn.snapshot = None);
                    assert!(group.leaves.iter().all(|leaf| leaf.end.trains()), "{:?}", group.leaves);
                    assert!(group.turns.iter().any(|turn| turn.parent.is_some_and(|p| p + 1 < group.turns.len())));
                    // States follow each other along every path.
                    for path in paths(group) {
                        assert!(path.windows(2).all(|w| w[0].state_after == w[1].state));
                    }
                }
                seen.push(groups);
            }
        }
        // Snapshots, replay, kept sessions or none: the records are the same.
        assert!(seen.windows(2).all(|w| w[0] == w[1]));
    }
}

#[test]
fn a_branch_meets_chance_of_its_own_and_leaves_the_other_path_as_it_was() {
    let nature = Nature { turns: 8, ..Nature::default() };
    let play_all = |branches: usize| {
        let mut world = World::scripted(nature, vec!["a"; 8]);
        let starts = starts(1);
        let play = play(&starts, 1, NONE);
        let policy = &mut **world.nodes.get_mut("actor").unwrap();
        let mut crowd = Crowd::open(&play, policy, &*world.tasks, &mut world.ledger).unwrap();
        crowd.step(policy, &mut world.ledger).unwrap();
        crowd.branch(&vec![Branch { episode: 0, turns: 1 }; branches], policy, &mut world.ledger).unwrap();
        while crowd.step(policy, &mut world.ledger).unwrap() {}
        let groups = crowd.finish(policy, &mut world.ledger);
        world.check(&groups);
        groups.into_iter().next().unwrap()
    };
    let (alone, branched) = (play_all(0), play_all(3));
    let rewards = |path: &[&TurnLog]| path.iter().map(|turn| turn.reward).collect::<Vec<_>>();
    let all: Vec<Vec<f32>> = paths(&branched).iter().map(|path| rewards(path)).collect();
    assert_eq!(all[0], rewards(&paths(&alone)[0]), "what branches leaves the episode alone");
    for i in 0..4 {
        assert_eq!((all[i].len(), all[i][0]), (8, all[0][0]));
        assert!((0..i).all(|j| all[i] != all[j]), "they say the same and are paid differently: {all:?}");
    }
    assert_eq!(play_all(3), branched);
}

/// Trap C14: a root that two turns continue, one paid 1 and one paid nothing.
#[test]
fn what_a_sibling_earns_is_not_earned_here() {
    let nature = Nature { draws: false, turns: 2, ..Nature::default() };
    let mut world = World::scripted(nature, vec!["a"]);
    let starts = starts(1);
    let play = play(&starts, 1, NONE);
    let policy = &mut **world.nodes.get_mut("actor").unwrap();
    let mut crowd = Crowd::open(&play, policy, &*world.tasks, &mut world.ledger).unwrap();
    crowd.step(policy, &mut world.ledger).unwrap();
    crowd.branch(&[Branch { episode: 0, turns: 1 }; 5], policy, &mut world.ledger).unwrap();
    while crowd.step(policy, &mut world.ledger).unwrap() {}
    assert_eq!(crowd.branched_from(5), Some(Branch { episode: 0, turns: 1 }));
    let groups = crowd.finish(policy, &mut world.ledger);
    let batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
    let group = batch.group(0);
    assert_eq!((0..6).map(|t| group.parent(t)).collect::<Vec<_>>(), [None, Some(0), Some(0), Some(0), Some(0), Some(0)]);
    let rewards = group.rewards();
    for (path, outcome) in group.trajectories().zip(group.outcomes()) {
        let own = path.turns();
        assert_eq!(own.len(), 2);
        assert_eq!(outcome, f64::from(rewards[0]) + f64::from(rewards[own[1]]));
    }
    assert!(group.outcomes().iter().any(|x| *x != group.outcomes()[0]));
}

/// Trap C15: 2 tokens read, 1 said, then branches of 2 and 4.
#[test]
fn what_is_shared_is_fed_sampled_and_trained_once() {
    for restarts in [0, 1] {
        let mut world = World::scripted(Nature { turns: 2, restarts, ..Nature::default() }, vec![""]);
        let starts = starts(1);
        let play = play(&starts, 1, NONE);
        let policy = &mut **world.nodes.get_mut("actor").unwrap();
        let mut crowd = Crowd::open(&play, policy, &*world.tasks, &mut world.ledger).unwrap();
        crowd.step(policy, &mut world.ledger).unwrap();
        crowd.branch(&[Branch { episode: 0, turns: 1 }; 3], policy, &mut world.ledger).unwrap();
        while crowd.step(policy, &mut world.ledger).unwrap() {}
        let groups = crowd.finish(policy, &mut world.ledger);
        world.check(&groups);
        let said: Vec<u64> = groups[0].turns.iter().map(|turn| turn.action.tokens.len() as u64).collect();
        // `walk task 0`, then `coin N`, each read once whoever follows.
        assert_eq!(world.ledger.fed_tokens, 3 + 2);
        assert_eq!((world.ledger.actor_tokens, world.ledger.branch_tokens), (said[0] + said[1], said[2..].iter().sum::<u64>()));
        assert_eq!((world.ledger.env_steps, world.ledger.restores, world.ledger.episodes), (5, 3, 4));
        let batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
        let credit = [Credit::per_turn(vec![1.0; 5])];
        assert_eq!(RowSet::from_credit(&batch, &credit, None).n_trained() as u64, said.iter().sum::<u64>());
    }
}

#[test]
fn the_example_of_trap_c15_costs_nine() {
    // A prompt of 2 and an answer of 1, read by both branches; one says 2 tokens more, the other 4.
    let turn = |parent, read: &[u32], n: usize| TurnLog {
        parent,
        read: read.to_vec(),
        action: Action::given(vec![7; n]),
        ..TurnLog::default()
    };
    let leaf = |t| LeafLog { turn: Some(t), end: End::Terminated { success: true }, seed: 0 };
    let group = GroupLog {
        turns: vec![turn(None, &[1, 2], 1), turn(Some(0), &[], 2), turn(Some(0), &[], 4)],
        leaves: vec![leaf(1), leaf(2)],
        ..GroupLog::default()
    };
    let batch = Batch::from_groups(vec![group], NonFinite::Refuse).unwrap();
    assert_eq!(batch.tokens.len(), 9);
    let rows = RowSet::from_credit(&batch, &[Credit::per_turn(vec![1.0; 3])], None);
    assert_eq!(rows.n_trained(), 7);
}

#[test]
fn another_member_is_the_one_that_a_larger_group_would_have() {
    for nature in [Nature::default(), Nature { restarts: 1, ..Nature::default() }] {
        let grown = {
            let mut world = World::new(nature);
            let starts = starts(3);
            let play = play(&starts, 2, SNAPSHOTS);
            let policy = &mut **world.nodes.get_mut("actor").unwrap();
            let mut crowd = Crowd::open(&play, policy, &*world.tasks, &mut world.ledger).unwrap();
            crowd.keep_prompts(policy).unwrap();
            while crowd.step(policy, &mut world.ledger).unwrap() {}
            assert_eq!(crowd.add(&[2, 0, 1, 1, 0, 2], policy, &mut world.ledger).unwrap(), 6..12);
            while crowd.step(policy, &mut world.ledger).unwrap() {}
            let groups = crowd.finish(policy, &mut world.ledger);
            world.check(&groups);
            (groups, world.ledger)
        };
        let mut world = World::new(nature);
        let starts = starts(3);
        let all =
            play(&starts, 4, SNAPSHOTS).sample(&mut **world.nodes.get_mut("actor").unwrap(), &*world.tasks, &mut world.ledger);
        assert_eq!(grown, (all.unwrap(), world.ledger));
    }
}

#[test]
fn of_several_candidates_one_is_carried_out() {
    let mut world = World::new(Nature::default());
    let starts = starts(2);
    let all = play(&starts, 2, NONE);
    let policy = &mut **world.nodes.get_mut("actor").unwrap();
    let mut crowd = Crowd::open(&all, policy, &*world.tasks, &mut world.ledger).unwrap();
    let mut turn = 0;
    loop {
        let n = crowd.sample(3, policy, &mut world.ledger).unwrap().len();
        if n == 0 {
            break;
        }
        let groups = crowd.candidates();
        for group in &groups {
            assert_eq!((group.leaves.len(), group.turns.len()), (3, turn + 3));
            assert!(group.leaves.iter().all(|leaf| leaf.end == End::Untried));
        }
        Batch::from_groups(groups, NonFinite::Refuse).unwrap();
        let last = crowd.path(0).len() == 1;
        crowd.act(&vec![if last { 2 } else { 0 }; n], policy, &mut world.ledger);
        turn += 1;
    }
    let groups = crowd.finish(policy, &mut world.ledger);
    world.check(&groups);
    for group in &groups {
        let untried = group.leaves.iter().filter(|leaf| leaf.end == End::Untried).count();
        let tried: usize =
            paths(group).iter().zip(&group.leaves).filter(|(_, l)| l.end != End::Untried).map(|(p, _)| p.len()).sum();
        assert_eq!((untried, group.turns.len()), (2 * tried, 3 * tried));
    }
}

/// Traps H2 and H3: what is restored twice is twice, and what does not come back says where it differs.
#[test]
fn states_come_back_apart_and_deeds_are_verified() {
    let (groups, world) = forest(Nature::default(), SNAPSHOTS, true);
    let group = &groups[0];
    let path = paths(group).into_iter().max_by_key(|path| path.len()).unwrap();
    let snapshot = path[0].snapshot.clone().unwrap();
    let bytes = snapshot.bytes.clone();
    let back = Back { snapshot: Some(snapshot.clone()), ..Back::default() };
    let mut one = back.open(&*world.tasks, &group.task, group.seed).unwrap();
    for _ in 0..100 {
        let other = back.open(&*world.tasks, &group.task, group.seed).unwrap();
        one.step(ascribe_core::environment::ActionText { text: "b", complete: true }).unwrap();
        assert_eq!(other.state_key(), path[0].state_after);
    }
    assert_eq!(snapshot.bytes, bytes);

    let first = &paths(group)[0];
    let deeds: Vec<Deed> = first.iter().map(|turn| Deed::of(turn)).collect();
    let open = |deeds: &[Deed]| Back { deeds: deeds.to_vec(), ..Back::default() }.open(&*world.tasks, &group.task, group.seed);
    assert_eq!(open(&deeds).unwrap().state_key(), first[first.len() - 1].state_after);
    let refused = |spoil: &dyn Fn(&mut Deed)| {
        let mut deeds = deeds.clone();
        spoil(&mut deeds[1]);
        open(&deeds).err().unwrap().to_string()
    };
    assert!(refused(&|deed| deed.reward += 1.0).contains("deed 1"), "reward");
    assert!(refused(&|deed| deed.state_after.push(0)).contains("another one"), "state");
    assert!(refused(&|deed| deed.reseed = Some(99)).contains("deed 1"), "chance");
}

#[test]
fn groups_that_begin_in_a_stored_state_go_on_from_it() {
    for (snapshot, keep) in [(SnapshotKind::Exact, SNAPSHOTS), (SnapshotKind::None, NONE)] {
        let nature = Nature { snapshot, turns: 6, ..Nature::default() };
        let mut world = World::scripted(nature, vec!["a", "b"]);
        let whole = world.once("independent", "groups = 1\ngroup_size = 1");
        let (first, second) = (&whole[0].turns[0], &whole[0].turns[1]);
        let mut history = History::default();
        [first, second].into_iter().for_each(|turn| history.push(turn));
        let state = State {
            seed: whole[0].seed,
            back: Back { deeds: vec![Deed::of(first), Deed::of(second)], ..Back::default() },
            turns: 2,
            history,
            origin: Origin::Restored { age: 1 },
        };
        let starts = [Start { task: whole[0].task.clone(), state: Some(state) }];
        let play = play(&starts, 3, keep);
        let before = world.ledger;
        let policy = &mut **world.nodes.get_mut("actor").unwrap();
        let mut crowd = Crowd::open(&play, policy, &*world.tasks, &mut world.ledger).unwrap();
        crowd.keep_prompts(policy).unwrap();
        crowd.keep_sessions();
        while crowd.step(policy, &mut world.ledger).unwrap() {}
        let n = crowd.len();
        let branches: Vec<Branch> = (0..n).map(|episode| Branch { episode, turns: crowd.path(episode).len() - 1 }).collect();
        crowd.branch(&branches, policy, &mut world.ledger).unwrap();
        crowd.add(&[0], policy, &mut world.ledger).unwrap();
        while crowd.step(policy, &mut world.ledger).unwrap() {}
        let groups = crowd.finish(policy, &mut world.ledger);
        world.check(&groups);
        assert!(groups[0].leaves.len() == 7 && groups[0].leaves.iter().all(|leaf| leaf.end.trains()), "{:?}", groups[0].leaves);
        assert_eq!(groups[0].origin, Origin::Restored { age: 1 });
        assert!(groups[0].turns.iter().filter(|t| t.parent.is_none()).all(|t| t.state == second.state_after));
        assert_eq!(world.ledger.actor_tokens, before.actor_tokens, "all of it was sampled from a restored state");
        assert_eq!(world.ledger.restores - before.restores, 7);
        Batch::from_groups(groups, NonFinite::Refuse).unwrap();
    }
}
