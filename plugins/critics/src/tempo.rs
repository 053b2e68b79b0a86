//! One update of TEMPO, followed step by step: store, restore, branches, values, returns, advantages, rows, store.

use std::collections::BTreeMap;
use std::sync::Arc;

use ascribe_core::batch::NonFinite;
use ascribe_core::log::{End, GroupLog, Origin};
use ascribe_core::objective::Sums;
use ascribe_core::policy::{OptimStep, Part};
use ascribe_core::rows::column::{ADVANTAGE, BEHAVIOR_LOGPROB, OLD_LOGPROB};
use ascribe_core::{
    AdvantageEstimator, Batch, Credit, CriticConfig, Metrics, NamedCritic, Objective, RolloutConfig, RolloutStrategy, RowSet,
    Slot,
};
use ascribe_rollouts::StateStore;

use crate::generative::{Mode, Rules, read};
use crate::testing::{World, plugin};

const TREE: (&str, &str) = ("token-tree", "tasks = 6\ndepth = 4\nbranches = 2\nrewards = \"sparse\"\nstates = \"prefixes\"");
const MACRO_STEP: &str = "turns = 2\nstarts = 3\nbranches = 4\nfresh_share = 0.0\ndecode = \"admissible\"";
const CRITIC: &str = "values = \"ends\"\nvalue_samples = 2\nsamples = 5\nsteps = 10\nmax_tokens = 6";

/// The states that a strategy holds.
fn stored(walking: &dyn RolloutStrategy) -> StateStore {
    let mut store = StateStore::new(256);
    store.load(&walking.save()).expect("its own bytes");
    store
}

/// A world whose critic answers in the right form: shown random numbers as right answers for a while.
fn taught() -> World {
    let config: Slot<dyn CriticConfig> = plugin("generative", CRITIC);
    let mut world = World::new(TREE, &["actor"], config.words());
    let body = "teach = \"format\"\nvalues = \"none\"\nsteps = 10\nmax_tokens = 6\ntarget = \"return\"\nstates = 256";
    let mut teacher = NamedCritic { name: "judge".into(), critic: world.critic("judge", "generative", body) };
    for update in 0..25 {
        let mut batch = world.batch("independent", "groups = 6\ngroup_size = 8\ndecode = \"admissible\"");
        let mut rng = ascribe_core::Seeds(3).rng("returns", ascribe_core::Draw { update, ..ascribe_core::Draw::default() });
        batch.turns.reward.iter_mut().for_each(|reward| *reward = (0.25 * rng.unit()) as f32);
        world.learn(&mut teacher, &batch, 0.3);
    }
    world
}

fn collect(world: &mut World, walking: &mut dyn RolloutStrategy) -> Vec<GroupLog> {
    // Counts are an update's.
    world.metrics = Metrics::default();
    let groups = world.act(|acting| walking.collect(acting)).expect("collected");
    world.now.update += 1;
    groups
}

#[test]
fn one_update_from_store_to_store() {
    let mut world = taught();
    let config: Slot<dyn RolloutConfig> = plugin("macro-step", MACRO_STEP);
    let mut walking = world.with_context(|context| config.build(context)).unwrap();

    // The store is filled: three new tasks, four branches each, all cut after two of four turns.
    let fresh = collect(&mut world, &mut *walking);
    assert!(fresh.iter().all(|group| group.origin == Origin::Root && group.leaves.len() == 4));
    let before = stored(&*walking);
    assert_eq!(before.states().len(), 12);
    let by_key: BTreeMap<Vec<u8>, &ascribe_rollouts::StoredState> = before
        .states()
        .map(|state| {
            let group = fresh.iter().find(|group| group.task == state.task).unwrap();
            let end = group.turns.iter().find(|turn| turn.shown_after.is_some() && ends_in(group, turn, state));
            (end.unwrap().state_after.clone(), state)
        })
        .collect();

    // Restore: each group begins in a stored state, behind its frozen history.
    let groups = collect(&mut world, &mut *walking);
    assert_eq!((groups.len(), world.metrics.get("td/fresh_states")), (3, Some(0.0)));
    for group in &groups {
        let state = by_key[&group.turns[0].state];
        assert_eq!((&group.history, group.before), (&state.state.history, 2));
        assert_eq!((&group.origin, &group.task), (&Origin::Restored { age: 1 }, &state.task));
        // Branches: four members, each to the end of the task, two turns further.
        assert_eq!((group.leaves.len(), group.turns.len()), (4, 8));
        assert!(group.leaves.iter().all(|leaf| matches!(leaf.end, End::Terminated { .. })));
    }
    // A macro step of one turn stops short of the ends, and is judged there.
    let config: Slot<dyn RolloutConfig> = plugin("macro-step", &MACRO_STEP.replace("turns = 2", "turns = 1"));
    let mut short = world.with_context(|context| config.build(context)).unwrap();
    short.load(&before.save()).unwrap();
    let groups = collect(&mut world, &mut *short);
    assert!(groups.iter().all(|group| group.before == 2 && group.turns.len() == 4));
    assert!(groups.iter().flat_map(|group| &group.leaves).all(|leaf| leaf.end == End::MacroBoundary));

    // Values: of the ends alone, each the mean of two answers.
    let mut batch = Batch::from_groups(groups, NonFinite::Refuse).unwrap();
    let mut judge = NamedCritic {
        name: "judge".into(),
        critic: world.critic("judge", "generative", &format!("{CRITIC}\ntarget = \"estimator\"")),
    };
    let spent = world.ledger.critic_tokens;
    world.judge(&mut judge, &mut batch).unwrap();
    assert_eq!(world.metrics.get("critic/judge/answers"), Some(24.0));
    assert!(world.ledger.critic_tokens > spent);
    let values: Vec<Vec<Option<f64>>> = batch
        .groups()
        .map(|group| {
            let column = &batch.signals["value"].column;
            let of = |t: usize| column.get(group.rows().start + group.index() + t + 1).map(f64::from);
            assert_eq!(column.get(group.rows().start + group.index()), None, "nobody asks about the start");
            (0..4).map(of).collect()
        })
        .collect();
    let read_values: Vec<f64> = values.iter().flatten().copied().flatten().collect();
    // Tenths, and means of two of them.
    assert!(read_values.iter().all(|value| (value * 20.0 - (value * 20.0).round()).abs() < 1e-5), "{read_values:?}");
    assert!(read_values.len() > 8 && read_values.iter().any(|value| *value != read_values[0]), "{read_values:?}");

    // Returns and advantages, by hand: R = r + V̂, G their mean, A = R − G.
    let estimator: Slot<dyn AdvantageEstimator> = plugin("tempo", "");
    let credit: Vec<Credit> = batch.groups().map(|group| estimator.estimate(group, &world.now).unwrap()).collect();
    let mut targets = Vec::new();
    for ((group, credit), values) in batch.groups().zip(&credit).zip(&values) {
        let rewards: Vec<f64> = group.outcomes();
        let returns: Vec<Option<f64>> = values.iter().zip(rewards).map(|(v, r)| v.map(|v| r + v)).collect();
        let known: Vec<f64> = returns.iter().copied().flatten().collect();
        let target = known.iter().sum::<f64>() / known.len() as f64;
        for (a, r) in credit.turns.iter().zip(&returns) {
            assert_eq!(a.is_some(), r.is_some(), "what has no return is not trained");
            assert!(a.zip(*r).is_none_or(|(a, r)| (f64::from(a) - (r - target)).abs() < 1e-6));
        }
        assert!((f64::from(credit.targets["value"].column.get(0).unwrap()) - target).abs() < 1e-6);
        targets.push(target);
    }

    // Rows of the actor: the frozen history in front, no coefficient on it, the branch's advantage on every token that was sampled.
    let rows = RowSet::from_credit(&batch, &credit, Some("actor"));
    assert_eq!(rows.len(), read_values.len());
    for (r, row) in rows.rows.iter().enumerate() {
        let group = batch.group(row.group as usize);
        let history = &group.about().history;
        assert_eq!(rows.tokens_of(r)[..history.tokens.len()], history.tokens[..]);
        assert!(history.turns.len() == 2 && history.turns.iter().all(|turn| turn.action.logprob.is_some()));
        assert!(row.trained.clone().all(|i| rows.at[i] >= history.tokens.len()));
        let want = credit[row.group as usize].turns[row.trajectory as usize].unwrap();
        assert!(row.trained.clone().all(|i| rows.columns[ADVANTAGE].get(i) == Some(want)));
    }

    // Rows of the critic: five answers about each start, the prompt without a coefficient, −|V̂ − G|/R_max centred over the answers.
    let lessons = world.act(|acting| judge.critic.learn(&batch, &credit, acting)).unwrap();
    let [lesson] = &lessons[..] else { panic!("one lesson") };
    assert_eq!((lesson.node.as_str(), world.metrics.get("critic/judge/learned_states")), ("actor", Some(3.0)));
    let taught = lesson.rows.own().unwrap();
    assert_eq!(taught.len(), 15);
    let tokenizer = world.nodes["actor"].tokenizer();
    let rules = Rules { mode: Mode::Strict, r_max: 1.0, percent: false, fraction: false };
    for (of_state, target) in (0..taught.len()).collect::<Vec<_>>().chunks(5).zip(&targets) {
        let errors: Vec<f64> = of_state
            .iter()
            .map(|r| {
                let row = &taught.rows[*r];
                let said: Vec<u32> = row.trained.clone().map(|i| taught.token(*r, i)).collect();
                let said = said.strip_suffix(&[tokenizer.token("<end>").unwrap()]).map(<[u32]>::to_vec);
                let cut = said.is_none();
                read(&tokenizer.decode(&said.unwrap_or_default()), cut, &rules).map_or(1.0, |value| (value - target).abs())
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / 5.0;
        for (r, error) in of_state.iter().zip(&errors) {
            let row = taught.rows[*r].trained.clone();
            let want = (mean - error) as f32;
            assert!(row.clone().all(|i| (taught.columns[ADVANTAGE].get(i).unwrap() - want).abs() < 1e-6), "{errors:?}");
        }
    }

    // Both in one step of one set of weights: the gradient is the sum of the two.
    let norm = |world: &mut World, with: [bool; 2]| {
        let objective: Slot<dyn Objective> = plugin("importance-sampling", "");
        let with_old = |rows: &RowSet| {
            let mut rows = rows.clone();
            rows.columns.insert(OLD_LOGPROB.into(), rows.columns[BEHAVIOR_LOGPROB].clone());
            Arc::new(rows)
        };
        let (actor, critic) = (with_old(&rows), with_old(taught));
        let picked = [&actor, &critic].map(|rows| (0..rows.len() as u32).collect::<Vec<_>>());
        let part = |rows: &Arc<RowSet>, picked: &'static [u32]| Part {
            rows: rows.clone(),
            picked,
            totals: rows.totals(picked),
            objective: &*objective,
            scale: 1.0,
        };
        let picked = picked.map(|picked| &*picked.leak());
        let parts = [part(&actor, picked[0]), part(&critic, picked[1])];
        let parts: Vec<Part<'_>> = parts.into_iter().zip(with).filter(|(_, with)| *with).map(|(part, _)| part).collect();
        let mut node = world.nodes["actor"].copy().unwrap();
        let sums: Vec<Sums> = node.forward_backward(&parts, 1 << 20, &world.now).unwrap();
        assert!(!sums.is_empty());
        let how = OptimStep { learning_rate: 0.01, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0, clip_norm: None };
        node.optim_step(&how).unwrap().gradient_norm
    };
    let (both, actor, critic) =
        (norm(&mut world, [true, true]), norm(&mut world, [true, false]), norm(&mut world, [false, true]));
    // A table has rows of its own for the critic's states: the two gradients stand at right angles.
    assert!(actor > 0.0 && critic > 0.0 && (both - actor.hypot(critic)).abs() < 1e-6 * both, "{both} {actor} {critic}");

    // Store: what was reached lies behind what is left of before, a macro step deeper.
    let after = stored(&*short);
    assert_eq!(after.states().len(), 12 - 3 + 12);
    let (old, new): (Vec<_>, Vec<_>) = after.states().partition(|state| state.number < 12);
    assert!(old.iter().all(|state| state.macro_index == 1 && state.state.turns == 2));
    assert!(new.len() == 12 && new.iter().all(|state| state.macro_index == 2 && state.state.turns == 3));
    assert!(new.iter().all(|state| state.state.history.turns.len() == 3));
}

/// Whether a turn is the last one before a stored state: all that was read and said on its path is that state's history.
fn ends_in(group: &GroupLog, turn: &ascribe_core::log::TurnLog, state: &ascribe_rollouts::StoredState) -> bool {
    let mut history = group.history.clone();
    let first = turn.parent.map(|parent| &group.turns[parent]);
    first.into_iter().chain([turn]).for_each(|turn| history.push(turn));
    history == state.state.history
}
