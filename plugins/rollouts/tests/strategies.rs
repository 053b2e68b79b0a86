//! Rollout strategies: without branches they are `independent`, their budgets are exact, and what they keep survives a stop.
#![allow(clippy::unwrap_used)]

mod toy;

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::SnapshotKind;
use ascribe_core::log::{End, GroupLog, Origin};
use ascribe_core::policy::PolicyError;
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::rollout::{Acting, RolloutError};
use ascribe_core::{Batch, Critic, NamedCritic, RolloutStrategy, Scope, Signal};
use proptest::prelude::*;
use toy::{Nature, World, build};

/// A critic that likes one letter; it says nothing about turns without a letter, where `silent`.
struct Likes {
    letter: char,
    silent: bool,
}

impl Critic for Likes {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![("liked".into(), Scope::Turn)]
    }
    fn judge(&mut self, batch: &Batch, _: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let number = |text: &String| {
            let n = text.chars().filter(|c| *c == self.letter).count();
            (n > 0 || !self.silent).then_some(n as f32)
        };
        let column = batch.notes.iter().map(|notes| number(&notes.action)).collect();
        Ok(vec![("liked".into(), Signal { scope: Scope::Turn, provider: "likes".into(), column })])
    }
}

fn critic(letter: char, silent: bool) -> Vec<NamedCritic> {
    vec![NamedCritic { name: "likes".into(), critic: Box::new(Likes { letter, silent }) }]
}

/// Strategies that play, with how many leaves a group has and the strategy that they are without branches.
const PLAY: [(&str, &str, usize); 9] = [
    ("entropy-branch", "groups = 3\nleaves = 16\ninitial = 8", 16),
    ("entropy-branch", "groups = 3\nleaves = 9\ninitial = 1\nmost_per_turn = 3\nbranch_probability = 1.0", 9),
    (
        "tree",
        "groups = 3\nroots = 10\nrounds = 2\nexpansions = 6\nselect = \"nll\"\nsibling_penalty = 0.05\nlast_turns = false",
        22,
    ),
    ("tree", "groups = 3\nroots = 6\nrounds = 1\nexpansions = 2\ncontinuations = 2\nper = \"tree\"\nselect = \"nll\"", 30),
    ("tree", "groups = 3\nroots = 2\nrounds = 1\nexpansions = 2\nper = \"tree\"\nselect = \"random\"", 6),
    ("tree", "groups = 3\nroots = 8\nrounds = 16\nexpansions = 1\nselect = \"nll-per-child\"", 24),
    ("tree", "groups = 3\nroots = 1\nrounds = 2\nexpansions = 40\nselect = \"entropy\"\nkeep_sessions = false", 81),
    ("best-of-n", "groups = 3\ngroup_size = 2\ncandidates = 3\ncolumn = \"liked\"", 2),
    ("independent", "groups = 3\ngroup_size = 5", 5),
];

fn tried(group: &GroupLog) -> usize {
    group.leaves.iter().filter(|leaf| leaf.end != End::Untried).count()
}

#[test]
fn the_budget_in_leaves_is_exact_and_every_record_is_sound() {
    let natures = [
        Nature::default(),
        Nature { restarts: 2, ..Nature::default() },
        Nature { turns: 1, ..Nature::default() },
        Nature { snapshot: SnapshotKind::None, ..Nature::default() },
    ];
    for nature in natures {
        for (name, body, leaves) in PLAY {
            let replay = nature.snapshot != SnapshotKind::Exact && matches!(name, "entropy-branch" | "tree");
            let body = if replay { format!("{body}\nrestore = \"replay\"") } else { body.into() };
            let mut world = World::new(nature);
            world.critics = critic('a', false);
            let groups = world.once(name, &body);
            assert_eq!(groups.len(), 3);
            for group in &groups {
                assert_eq!(tried(group), leaves, "{name}\n{body}");
                let failed = group.leaves.iter().find(|leaf| !leaf.end.trains());
                assert!(failed.is_none(), "{name}: {failed:?}");
            }
            Batch::from_groups(groups.clone(), NonFinite::Refuse).unwrap();
            assert_eq!(world.ledger.episodes as usize, 3 * leaves);
            // The same again, to the bit, whatever was played before in other updates.
            let mut again = World::new(nature);
            again.critics = critic('a', false);
            assert_eq!(again.once(name, &body), groups, "{name}");
        }
    }
}

#[test]
fn without_branches_all_are_independent_record_for_record() {
    let usual = |n: usize| {
        let mut world = World::new(Nature { restarts: 3, ..Nature::default() });
        let groups = world.once("independent", &format!("groups = 3\ngroup_size = {n}"));
        (groups, world.ledger)
    };
    let (groups, ledger) = usual(8);
    let equal = [
        ("entropy-branch", "groups = 3\nleaves = 8\ninitial = 8"),
        ("entropy-branch", "groups = 3\nleaves = 8\ninitial = 2\nmost_per_turn = 0"),
        ("entropy-branch", "groups = 3\nleaves = 8\ninitial = 3\nbranch_probability = 0.0\nentropy_weight = 0.0"),
        ("tree", "groups = 3\nroots = 8\nrounds = 0\nexpansions = 6\nselect = \"nll\""),
        ("tree", "groups = 3\nroots = 8\nrounds = 4\nexpansions = 0\nselect = \"random\""),
        ("best-of-n", "groups = 3\ngroup_size = 8\ncandidates = 1\ncolumn = \"liked\""),
        ("replay", "capacity = 8\nshare = 0.0\nmax_age = 4\nof.independent = { groups = 3, group_size = 8 }"),
        ("dynamic-sampling", "groups = 3\nmax_rounds = 1\nof.independent = { groups = 3, group_size = 8 }"),
        ("offline", "of.independent = { groups = 3, group_size = 8 }"),
    ];
    for (name, body) in equal {
        let mut world = World::new(Nature { restarts: 3, ..Nature::default() });
        let own = world.once(name, body);
        assert_eq!(own, groups, "{name}\n{body}");
        assert_eq!(world.ledger, ledger, "{name}\n{body}");
    }
    // A critic without an opinion lets the first candidate go, the one that would have been said anyway.
    let mut world = World::new(Nature { restarts: 3, ..Nature::default() });
    world.critics = critic('z', false);
    let own = world.once("best-of-n", "groups = 3\ngroup_size = 8\ncandidates = 4\ncolumn = \"liked\"");
    for (own, usual) in own.iter().zip(&groups) {
        let carried_out: Vec<_> = own
            .leaves
            .iter()
            .filter(|leaf| leaf.end != End::Untried)
            .map(|leaf| {
                std::iter::successors(leaf.turn, |t| own.turns[*t].parent).map(|t| &own.turns[t].action).collect::<Vec<_>>()
            })
            .collect();
        let usual: Vec<_> = usual
            .leaves
            .iter()
            .map(|leaf| {
                std::iter::successors(leaf.turn, |t| usual.turns[*t].parent).map(|t| &usual.turns[t].action).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(carried_out, usual);
    }
}

#[test]
fn nothing_that_is_shared_is_fed_or_sampled_twice() {
    // Of all that was read, each turn's part once; the prompt once per group.
    for (name, body, _) in PLAY {
        if body.contains("keep_sessions = false") {
            continue;
        }
        for restarts in [0, 2] {
            let mut world = World::new(Nature { restarts, ..Nature::default() });
            world.critics = critic('b', false);
            let groups = world.once(name, body);
            let mut read = 0;
            let mut sampled = 0;
            for group in &groups {
                // Turns from one state read the same: it is fed once for all of them.
                let states: std::collections::BTreeSet<(Option<usize>, &[u32])> =
                    group.turns.iter().map(|turn| (turn.parent, &turn.read[..])).collect();
                read += states.iter().map(|(_, tokens)| tokens.len() as u64).sum::<u64>();
                sampled += group.turns.iter().map(|turn| turn.action.tokens.len() as u64).sum::<u64>();
            }
            assert_eq!(world.ledger.fed_tokens, read, "{name}\n{body}");
            assert_eq!(world.ledger.actor_tokens + world.ledger.branch_tokens, sampled, "{name}");
        }
    }
}

#[test]
fn a_tree_expands_what_its_rule_names() {
    let depth_of_forks = |body: &str| {
        let mut world = World::new(Nature { turns: 6, ..Nature::default() });
        let groups = world.once("tree", body);
        (groups, world.metrics)
    };
    // Of one chain the least likely turn gets a sibling.
    for (select, last) in [("nll", true), ("nll", false), ("entropy", true)] {
        let body = format!("groups = 4\nroots = 1\nrounds = 1\nexpansions = 1\nselect = \"{select}\"\nlast_turns = {last}");
        let (groups, metrics) = depth_of_forks(&body);
        assert_eq!(metrics.get("rollout/branch/branches").unwrap() + metrics.get("rollout/branch/fresh").unwrap(), 4.0);
        for group in &groups {
            let root = group.leaves[0].turn.unwrap();
            let mean = |x: &Option<Vec<f32>>| {
                let x = x.as_ref().unwrap();
                x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64
            };
            let score = |t: usize| {
                let action = &group.turns[t].action;
                if select == "nll" { -mean(&action.logprob) } else { mean(&action.entropy) }
            };
            let can = if last { root + 1 } else { root };
            let Some(best) = (0..can).max_by(|a, b| score(*a).total_cmp(&score(*b)).then(b.cmp(a))) else { continue };
            assert_eq!(group.turns[root + 1].parent, group.turns[best].parent, "{select}");
        }
    }
    // CARL's rule: forks go where few turns are; each state gets its second turn before one gets many.
    let (groups, _) = depth_of_forks("groups = 2\nroots = 1\nrounds = 12\nexpansions = 1\nselect = \"nll-per-child\"");
    for group in &groups {
        let mut children = std::collections::BTreeMap::new();
        group.turns.iter().for_each(|turn| *children.entry(turn.parent).or_insert(0) += 1);
        assert!(children.values().filter(|n| **n > 1).count() >= 3, "{children:?}");
    }
    // A penalty for siblings spreads expansions.
    let forks = |penalty: f64| {
        let (groups, _) = depth_of_forks(&format!(
            "groups = 4\nroots = 1\nrounds = 6\nexpansions = 1\nselect = \"nll\"\nsibling_penalty = {penalty}"
        ));
        let parents = |group: &GroupLog| {
            let mut children = std::collections::BTreeMap::new();
            group.turns.iter().for_each(|turn| *children.entry(turn.parent).or_insert(0) += 1);
            children.values().filter(|n| **n > 1).count()
        };
        groups.iter().map(parents).sum::<usize>()
    };
    assert!(forks(10.0) > forks(0.0), "{} {}", forks(10.0), forks(0.0));
}

#[test]
fn certain_branches_fill_the_budget_at_once_and_wishes_beyond_it_are_drawn() {
    let mut world = World::scripted(Nature { turns: 3, ..Nature::default() }, vec!["a", "b", "c"]);
    let groups =
        world.once("entropy-branch", "groups = 8\nleaves = 3\ninitial = 2\nbranch_probability = 1.0\nentropy_weight = 0.0");
    assert_eq!((world.metrics.get("rollout/branch/branches"), world.metrics.get("rollout/branch/fresh")), (Some(8.0), Some(0.0)));
    // Both members want the one leaf that is left: each gets it in some group.
    let parents: Vec<Option<usize>> = groups.iter().map(|group| group.turns.iter().rev().nth(1).unwrap().parent).collect();
    let of_first = parents.iter().filter(|p| **p == Some(0)).count();
    assert!((1..8).contains(&of_first), "{parents:?}");
    assert!(parents.iter().all(|p| [Some(0), Some(3)].contains(p)), "{parents:?}");
    let mean = |name: &str| world.metrics.get(&format!("rollout/branch/{name}/mean")).unwrap();
    assert_eq!((mean("probability"), mean("entropy_rise")), (1.0, 0.0));
}

#[test]
fn a_rise_of_the_entropy_makes_branches_likelier() {
    let branches = |weight: f64| {
        let mut world = World::new(Nature { turns: 8, ..Nature::default() });
        world.once(
            "entropy-branch",
            &format!("groups = 6\nleaves = 400\ninitial = 20\nbranch_probability = 0.0\nentropy_weight = {weight}"),
        );
        world.metrics.get("rollout/branch/branches").unwrap()
    };
    assert!(branches(0.0) == 0.0 && branches(0.5) < branches(5.0), "{} {}", branches(0.5), branches(5.0));
}

#[test]
fn the_best_candidate_is_carried_out() {
    for silent in [false, true] {
        let mut world = World::new(Nature::default());
        world.critics = critic('c', silent);
        let groups = world.once("best-of-n", "groups = 4\ngroup_size = 3\ncandidates = 5\ncolumn = \"liked\"");
        let liked = |text: &str| text.chars().filter(|c| *c == 'c').count();
        for group in &groups {
            let untried: Vec<usize> = group.leaves.iter().filter(|l| l.end == End::Untried).map(|l| l.turn.unwrap()).collect();
            assert_eq!(untried.len() * 5, group.turns.len() * 4);
            for turn in untried.iter().map(|u| &group.turns[*u]) {
                assert!(turn.state_after.is_empty() && turn.reward == 0.0);
            }
            // Episodes share their first state; further on, who continues the same turn was its rival.
            let carried_out = (0..group.turns.len()).filter(|t| !untried.contains(t) && group.turns[*t].parent.is_some());
            for turn in carried_out.map(|t| &group.turns[t]) {
                let rivals: Vec<_> = untried.iter().map(|u| &group.turns[*u]).filter(|u| u.parent == turn.parent).collect();
                assert_eq!(rivals.len(), 4);
                assert!(rivals.iter().all(|rival| liked(&turn.action_text) >= liked(&rival.action_text)));
            }
        }
        assert!(silent || world.metrics.get("rollout/best_of/gain/mean").unwrap() > 0.0);
    }
}

#[test]
fn a_column_that_nobody_provides_is_refused() {
    let mut world = World::new(Nature::default());
    let mut strategy = world.strategy("best-of-n", "groups = 1\ngroup_size = 1\ncandidates = 2\ncolumn = \"liked\"");
    let error = strategy
        .collect(&mut Acting {
            nodes: &mut world.nodes,
            critics: &mut world.critics,
            tasks: &mut *world.tasks,
            drawn: &mut world.drawn,
            seeds: toy::SEEDS,
            round: 0,
            keep: world.keep,
            patience: None,
            ledger: &mut world.ledger,
            metrics: &mut world.metrics,
            now: &world.now,
        })
        .unwrap_err();
    assert_eq!(error, RolloutError::NoCritic { column: "liked".into() });
}

/// Updates of a strategy, stopped and taken up again after each of `stops`.
fn updates(name: &str, body: &str, n: u32, stops: bool) -> (Vec<Vec<GroupLog>>, World, Vec<ascribe_core::Metrics>) {
    let mut world = World::new(Nature { turns: 1, draws: false, ..Nature::default() });
    let mut strategy: Box<dyn RolloutStrategy> = world.strategy(name, body);
    let (mut all, mut metrics) = (Vec::new(), Vec::new());
    for _ in 0..n {
        if stops {
            let bytes = strategy.save();
            strategy = world.strategy(name, body);
            strategy.load(&bytes).unwrap();
            assert_eq!(strategy.save(), bytes);
        }
        all.push(world.collect(&mut *strategy));
        metrics.push(world.metrics.clone());
    }
    (all, world, metrics)
}

fn outcomes(group: &GroupLog) -> Vec<f32> {
    let sum = |leaf: Option<usize>| std::iter::successors(leaf, |t| group.turns[*t].parent).map(|t| group.turns[t].reward).sum();
    group.leaves.iter().map(|leaf| sum(leaf.turn)).collect()
}

#[test]
fn groups_of_equal_outcomes_are_dropped_and_refilled() {
    // One turn pays 0, ¼ or ½: two members often come to the same.
    let body = "groups = 12\nmax_rounds = 20\nof.independent = { groups = 4, group_size = 2 }";
    let (all, world, metrics) = updates("dynamic-sampling", body, 3, false);
    let mut dropped = 0.0;
    for (groups, metrics) in all.iter().zip(&metrics) {
        assert_eq!(groups.len(), 12);
        assert!(groups.iter().all(|group| outcomes(group)[0] != outcomes(group)[1]));
        assert_eq!(metrics.get("rollout/refill/short"), Some(0.0));
        dropped += metrics.get("rollout/refill/dropped").unwrap();
        assert!(metrics.get("rollout/refill/rounds").unwrap() >= 3.0);
    }
    assert_eq!(world.ledger.dropped_groups as f64, dropped);
    // All that was drawn is a group of an update or dropped.
    assert_eq!(world.drawn, 3 * 12 + world.ledger.dropped_groups);

    let (all, _, metrics) = updates("dynamic-sampling", &body.replace("20", "1"), 1, false);
    assert!(all[0].len() <= 4);
    assert_eq!(metrics[0].get("rollout/refill/short"), Some(12.0 - all[0].len() as f64));
}

#[test]
fn a_stop_in_the_middle_of_a_refill_changes_nothing() {
    for body in [
        "groups = 3\nmax_rounds = 9\nsurplus = \"keep\"\nof.independent = { groups = 7, group_size = 2 }",
        "groups = 3\nmax_rounds = 9\nsurplus = \"keep\"\nof.dynamic-sampling = { groups = 5, max_rounds = 3, surplus = \"keep\", of.independent = { groups = 4, group_size = 2 } }",
    ] {
        let (whole, a, _) = updates("dynamic-sampling", body, 5, false);
        let (stopped, b, metrics) = updates("dynamic-sampling", body, 5, true);
        assert_eq!(whole, stopped);
        assert_eq!((a.ledger, a.drawn), (b.ledger, b.drawn));
        assert!(metrics.iter().any(|m| m.get("rollout/refill/surplus").unwrap() > 0.0));
        let ages = stopped.iter().flatten().filter_map(|group| match group.origin {
            Origin::Replayed { age } => Some(age),
            _ => None,
        });
        assert!(ages.clone().count() > 0 && ages.clone().all(|age| age > 0), "{:?}", ages.collect::<Vec<_>>());
    }
}

#[test]
fn rounds_of_strategies_inside_each_other_draw_their_own_numbers() {
    let body = "groups = 6\nmax_rounds = 4\nof.dynamic-sampling = { groups = 3, max_rounds = 4, of.independent = { groups = 2, group_size = 4 } }";
    let (all, ..) = updates("dynamic-sampling", body, 1, false);
    for (i, a) in all[0].iter().enumerate() {
        assert!(all[0][..i].iter().all(|b| (a.seed, &a.task) != (b.seed, &b.task)), "two rounds shared a stream");
    }
}

#[test]
fn stored_groups_come_back_with_their_age_and_survive_a_stop() {
    let body = "capacity = 9\nshare = 0.5\nmax_age = 2\nof.entropy-branch = { groups = 3, leaves = 4, initial = 2 }";
    let (whole, a, _) = updates("replay", body, 6, false);
    let (stopped, b, metrics) = updates("replay", body, 6, true);
    assert_eq!(whole, stopped);
    assert_eq!(a.ledger, b.ledger);
    assert_eq!(whole[0].len(), 3);
    for (update, groups) in whole.iter().enumerate().skip(1) {
        let (fresh, old) = groups.split_at(3);
        assert_eq!(old.len(), 3);
        assert!(fresh.iter().all(|group| group.origin == Origin::Root));
        let mut seen: Vec<&GroupLog> = Vec::new();
        for group in old {
            let Origin::Replayed { age } = group.origin else { panic!("{:?}", group.origin) };
            assert!((1..=2).contains(&age));
            // It is the group of then, but for what it says about its origin.
            let then =
                whole[update - age as usize].iter().take(3).find(|then| then.turns == group.turns && then.task == group.task);
            assert_eq!(then.unwrap().leaves, group.leaves);
            assert!(!seen.iter().any(|other| other.turns == group.turns && other.seed == group.seed), "drawn twice");
            seen.push(group);
        }
        Batch::from_groups(groups.clone(), NonFinite::Refuse).unwrap();
    }
    let last = &metrics[5];
    assert_eq!((last.get("rollout/replay/groups"), last.get("rollout/replay/stored")), (Some(3.0), Some(9.0)));
    assert!(last.get("rollout/replay/age/max").unwrap() <= 2.0);
    assert_eq!(whole.iter().flatten().filter(|g| g.origin == Origin::Root).count() as u64 * 4, a.ledger.episodes);
}

#[test]
fn offline_groups_are_played_once_and_survive_a_stop() {
    let body = "of.entropy-branch = { groups = 3, leaves = 4, initial = 2 }";
    let (whole, a, _) = updates("offline", body, 4, false);
    let (stopped, b, _) = updates("offline", body, 4, true);
    assert_eq!(whole, stopped);
    assert_eq!(a.ledger, b.ledger);
    let (once, c, _) = updates("offline", body, 1, false);
    assert_eq!((&whole[0], a.ledger), (&once[0], c.ledger), "later updates cost nothing");
    for (update, groups) in whole.iter().enumerate().skip(1) {
        for (group, first) in groups.iter().zip(&whole[0]) {
            assert_eq!(group.origin, Origin::Replayed { age: update as u64 });
            assert_eq!(GroupLog { origin: Origin::Root, ..group.clone() }, *first);
        }
    }
    // No group comes twice in one update.
    let refill = "groups = 9\nmax_rounds = 3\nof.offline = { of.independent = { groups = 3, group_size = 8 } }";
    for groups in &updates("dynamic-sampling", refill, 2, false).0 {
        assert!(groups.len() <= 3, "{}", groups.len());
    }
    // A state from before its first update says that nothing was played yet.
    let mut world = World::new(Nature::default());
    let mut fresh = world.strategy("offline", body);
    fresh.load(&world.strategy("offline", body).save()).unwrap();
    assert_eq!(world.collect(&mut *fresh).len(), 3);
}

#[test]
fn damaged_or_foreign_states_are_refused() {
    let world = World::new(Nature::default());
    let keys_of = [
        ("replay", "capacity = 9\nshare = 0.5\nmax_age = 2"),
        ("dynamic-sampling", "groups = 1\nmax_rounds = 1"),
        ("offline", ""),
    ];
    for (name, keys) in keys_of {
        let mut strategy = world.strategy(name, &format!("{keys}\nof.independent = {{ groups = 1, group_size = 2 }}"));
        assert!(strategy.load(b"{").unwrap_err().contains("damaged"));
        assert!(strategy.load(br#"{"format":9,"groups":[],"of":[]}"#).unwrap_err().contains("format 9"));
    }
}

#[test]
fn mistakes_in_tables_name_their_key() {
    let tasks = toy::Walks::new(Nature::default());
    let of = "of.independent = { groups = 1, group_size = 2 }";
    let wrong = [
        ("entropy-branch", "groups = 1\nleaves = 4\ninitial = 5".to_string(), "`initial` is 5, more than the 4 `leaves`"),
        ("entropy-branch", "groups = 1\nleaves = 4\ninitial = 2\nbranch_probability = 1.5".into(), "must be in 0..=1, got 1.5"),
        ("entropy-branch", "groups = 0\nleaves = 4\ninitial = 2".into(), "must be in 1..=65536, got 0"),
        (
            "tree",
            "groups = 1\nroots = 1024\nrounds = 1024\nexpansions = 9\nselect = \"nll\"\nper = \"tree\"".into(),
            "`roots`, `rounds`",
        ),
        (
            "tree",
            "groups = 1\nroots = 1\nrounds = 1\nexpansions = 1\nselect = \"random\"\nsibling_penalty = 0.1".into(),
            "`sibling_penalty`",
        ),
        ("tree", "groups = 1\nroots = 1\nrounds = 1\nexpansions = 1\nselect = \"best\"".into(), "unknown variant `best`"),
        ("best-of-n", "groups = 1\ngroup_size = 1\ncandidates = 0\ncolumn = \"q\"".into(), "must be in 1..=256, got 0"),
        ("replay", format!("capacity = 1\nshare = 1.0\nmax_age = 1\n{of}"), "`share` must be in 0..=0.99"),
        ("dynamic-sampling", format!("groups = 1\nmax_rounds = 0\n{of}"), "must be in 1..=1000, got 0"),
        ("dynamic-sampling", format!("groups = 1\nmax_rounds = 2\nrounds = 2\n{of}"), "unknown field `rounds`"),
    ];
    for (name, body, says) in wrong {
        let error = build(&tasks, name, &body).err().unwrap();
        assert!(error.contains(says), "{name}: {error}");
    }
}

#[test]
fn examples_are_what_they_say() {
    let tasks = toy::Walks::new(Nature::default());
    let rows = plugins(Kind::Rollout);
    let own: Vec<_> = rows.iter().filter(|row| row.krate == "ascribe-rollouts").collect();
    assert_eq!(own.len(), 9);
    for row in own {
        build(&tasks, row.name, row.example).unwrap_or_else(|e| panic!("{}: {e}", row.name));
        assert!(matches!(row.name, "independent" | "expert") || row.doc.contains("Reductions:"), "{}", row.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the numbers: as many leaves as asked for, one forest, and what every token was said after.
    #[test]
    fn trees_of_any_shape_are_exact(
        (roots, rounds, expansions, continuations) in (1usize..4, 0usize..3, 0usize..4, 1usize..3),
        (per_tree, last_turns, keep_sessions, replay) in any::<(bool, bool, bool, bool)>(),
        select in prop::sample::select(vec!["nll", "entropy", "nll-per-child", "random"]),
        (turns, restarts) in (1usize..5, 0usize..3),
    ) {
        let snapshot = if replay { SnapshotKind::Replay } else { SnapshotKind::Exact };
        let mut world = World::new(Nature { snapshot, turns, restarts, draws: true });
        let body = format!(
            "groups = 2\nroots = {roots}\nrounds = {rounds}\nexpansions = {expansions}\ncontinuations = {continuations}\nper = \"{}\"\n\
             select = \"{select}\"\nlast_turns = {last_turns}\nkeep_sessions = {keep_sessions}\nrestore = \"{}\"",
            if per_tree { "tree" } else { "group" },
            if replay { "replay" } else { "snapshot" },
        );
        let groups = world.once("tree", &body);
        let leaves = roots + rounds * expansions * continuations * if per_tree { roots } else { 1 };
        for group in &groups {
            prop_assert_eq!(group.leaves.len(), leaves);
            prop_assert!(group.leaves.iter().all(|leaf| leaf.end.trains()));
        }
        Batch::from_groups(groups, NonFinite::Refuse).unwrap();
    }

    #[test]
    fn entropy_branches_of_any_shape_are_exact(
        (leaves, initial, most) in (1usize..9, 1usize..5, 0usize..4),
        (p, w) in (0.0..=1.0f64, 0.0..5.0f64),
        (turns, restarts) in (1usize..5, 0usize..3),
    ) {
        let mut world = World::new(Nature { turns, restarts, ..Nature::default() });
        let body = format!(
            "groups = 2\nleaves = {leaves}\ninitial = {}\nmost_per_turn = {most}\nbranch_probability = {p:?}\nentropy_weight = {w:?}",
            initial.min(leaves)
        );
        let groups = world.once("entropy-branch", &body);
        for group in &groups {
            prop_assert_eq!(group.leaves.len(), leaves);
            prop_assert!(group.leaves.iter().all(|leaf| leaf.end.trains()));
        }
        Batch::from_groups(groups, NonFinite::Refuse).unwrap();
    }
}
