use ascribe_core::batch::NonFinite;
use ascribe_core::log::{Action, End, GroupLog, LeafLog, TurnLog};
use ascribe_core::{Limit, NamedCritic};

use super::*;
use crate::testing::World;

const REPAIR: (&str, &str) = ("repair-mdp", "horizon = 6\nstep_cost = 0.05");
const ROLLOUT: &str = "groups = 40\ngroup_size = 2\ndecode = \"admissible\"";

fn judge(world: &mut World, critic: &mut NamedCritic, batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    world.metrics = ascribe_core::Metrics::default();
    world.judge(critic, &mut batch).unwrap();
    batch
}

/// Judges and takes one step; gives what was judged.
fn update(world: &mut World, critic: &mut NamedCritic, batch: &Batch) -> Batch {
    let judged = judge(world, critic, batch);
    world.learn(critic, &judged, 0.05);
    judged
}

fn metric(world: &World, name: &str) -> Option<f64> {
    world.metrics.get(&format!("critic/judge/{name}"))
}

#[test]
fn it_comes_to_explain_what_it_learns_and_the_episodes_beside() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    world.improve(10);
    let batch = world.batch("independent", ROLLOUT);
    let mut critic = world.critic_with_heads("judge", "value-head", "own_rows = true\nheld_out = 0.25");
    let first = update(&mut world, &mut critic, &batch);
    // The head begins at 0 and knows no more than the mean.
    assert!(first.signals["value"].column.iter_present().all(|v| v == 0.0));
    assert!(metric(&world, "explained_variance").is_some_and(|x| x.abs() < 1e-12));
    for _ in 0..150 {
        update(&mut world, &mut critic, &batch);
    }
    let (learned, held_out) =
        (metric(&world, "explained_variance").unwrap(), metric(&world, "explained_variance_held_out").unwrap());
    assert!(learned > 0.15 && held_out > 0.05 && learned > held_out, "{learned} {held_out}");
}

#[test]
fn what_is_held_out_is_in_no_row() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let batch = world.batch("independent", ROLLOUT);
    for (held_out, groups) in [(0.0, 40), (0.25, 30), (1.0, 0)] {
        world.nodes.clear();
        world.add_node("actor", "tabular", "");
        let body = format!("own_rows = true\nheld_out = {held_out:?}");
        let mut critic = world.critic_with_heads("judge", "value-head", &body);
        let judged = judge(&mut world, &mut critic, &batch);
        let lessons = world.lessons(&mut critic, &judged);
        let rows = lessons[0].rows.own().unwrap();
        let seen: BTreeSet<u32> = rows.rows.iter().map(|row| row.group).collect();
        assert_eq!(seen, (0..groups).collect());
        assert_eq!(metric(&world, "explained_variance").is_some(), groups > 0);
        assert_eq!(metric(&world, "explained_variance_held_out").is_some(), groups < 40);
    }
}

#[test]
fn a_shared_trunk_asks_for_no_rows_of_its_own() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    let batch = world.batch("independent", "groups = 4\ngroup_size = 2\ndecode = \"admissible\"");
    let mut critic = world.critic_with_heads("judge", "value-head", "held_out = 0.5");
    let judged = judge(&mut world, &mut critic, &batch);
    let lessons = world.lessons(&mut critic, &judged);
    let [Lesson { rows: LessonRows::Acted(targets), node, scale, .. }] = &lessons[..] else {
        panic!("one lesson on the actor's rows")
    };
    assert_eq!((node.as_str(), *scale), ("actor", 0.5));
    for (group, target) in judged.groups().zip(&targets["value"]) {
        let known = target.column.iter_present().count();
        // Every turn starts in a state; nothing starts in the last ones. The second half is held out.
        let starts: BTreeSet<Option<usize>> = (0..group.n_turns()).map(|t| group.parent(t)).collect();
        assert_eq!(known, if group.index() < 2 { starts.len() } else { 0 });
    }
}

/// A policy whose head says what it is trained to say soon: the same critic before a stop, and one that takes up its state.
#[test]
fn what_is_measured_after_an_update_survives_a_stop() {
    let mut world = World::new(REPAIR, &["actor"], Vec::new());
    world.improve(10);
    let batch = world.batch("independent", ROLLOUT);
    let body = "own_rows = true\nafter_update = true";
    let mut critic = world.critic_with_heads("judge", "value-head", body);
    judge(&mut world, &mut critic, &batch);
    assert_eq!(metric(&world, "explained_variance_after"), None, "nothing was learned yet");
    update(&mut world, &mut critic, &batch);
    let saved = critic.critic.save().unwrap();
    let mut resumed = NamedCritic { name: "judge".into(), critic: world.critic("judge", "value-head", body) };
    resumed.critic.load(&saved).unwrap();
    judge(&mut world, &mut critic, &batch);
    let (after, before) = (metric(&world, "explained_variance_after"), world.metrics.clone());
    assert!(after.unwrap() > 0.0, "{after:?}");
    judge(&mut world, &mut resumed, &batch);
    assert_eq!(world.metrics, before);
    assert_eq!(resumed.critic.save().unwrap(), critic.critic.save().unwrap());

    let told = |bytes: &[u8], critic: &mut NamedCritic| critic.critic.load(bytes).unwrap_err().to_string();
    assert!(told(b"", &mut critic).contains("damaged"));
    assert!(told(br#"{"format":7,"copied":false,"learned":null}"#, &mut critic).contains("format 7"));
}

#[test]
fn an_update_without_groups_is_learned_from_in_vain() {
    for body in ["after_update = true", "after_update = true\nown_rows = true"] {
        let mut world = World::new(REPAIR, &["actor"], Vec::new());
        let mut critic = world.critic_with_heads("judge", "value-head", body);
        let none = Batch::from_groups(Vec::new(), NonFinite::Refuse).unwrap();
        let judged = judge(&mut world, &mut critic, &none);
        world.lessons(&mut critic, &judged);
        judge(&mut world, &mut critic, &none);
        assert_eq!(metric(&world, "explained_variance_after"), None);
    }
}

#[test]
fn a_copied_trunk_begins_as_the_acting_node_is_and_moves_nothing_of_it() {
    let mut world = World::new(REPAIR, &["actor", "judge"], Vec::new());
    world.improve(10);
    let batch = world.batch("independent", ROLLOUT);
    let mut critic = world.critic_with_heads("judge", "value-head", "trunk = \"copied\"\nnode = \"judge\"");
    let actor = world.nodes["actor"].save().unwrap();
    judge(&mut world, &mut critic, &batch);
    let scores = |world: &mut World, node: &str| {
        let rows = scored::rows(&batch, "actor");
        let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
        world.nodes.get_mut(node).unwrap().score(&rows, &request).unwrap().columns
    };
    assert_eq!(scores(&mut world, "judge"), scores(&mut world, "actor"));
    update(&mut world, &mut critic, &batch);
    assert_eq!(world.nodes["actor"].save().unwrap(), actor);
    // It is copied once: what the actor learns later stays its own.
    world.improve(3);
    judge(&mut world, &mut critic, &batch);
    assert_ne!(scores(&mut world, "judge"), scores(&mut world, "actor"));
}

/// Values by hand on a forest: 1 → 2 → over, 1 → 3 → cut, and from 3 also a turn that was not tried.
#[test]
fn states_take_what_is_said_before_the_turn_that_is_made_there() {
    let turn = |parent, state: u8, after: u8| TurnLog {
        parent,
        state: vec![state],
        state_after: vec![after],
        action: Action::given(vec![5]),
        ..TurnLog::default()
    };
    let turns = vec![turn(None, 1, 2), turn(Some(0), 2, 9), turn(None, 1, 3), turn(Some(2), 3, 4), turn(Some(2), 3, 3)];
    let ends = [(1, End::Terminated { success: true }), (3, End::Truncated(Limit::Turns)), (4, End::Untried)];
    let leaves = ends.map(|(t, end)| LeafLog { turn: Some(t), end, seed: 0 }).to_vec();
    let log = GroupLog { turns, leaves, ..GroupLog::default() };
    let batch = Batch::from_groups(vec![log], NonFinite::Refuse).unwrap();
    let before = BTreeMap::from([(0, 0.1), (1, 0.2), (2, 0.1), (3, 0.3), (4, 0.3)]);
    let at_end = BTreeMap::from([((0, 0), 7.0), ((0, 1), 0.4), ((0, 2), 8.0)]);
    // The start; after each turn: 2 is left by turn 1, the end is worth 0, 3 is left by turn 3, the cut one is read at its end.
    assert_eq!(state_values(batch.group(0), &before, &at_end)[..5], [0.1, 0.2, 0.0, 0.3, 0.4]);
}

#[test]
fn tables_that_contradict_themselves_are_refused() {
    let refused = |body: &str| {
        let world = World::new(REPAIR, &["actor", "judge"], Vec::new());
        let config: ascribe_core::Slot<dyn CriticConfig> = crate::testing::plugin("value-head", body);
        world.with_context(|context| config.build("judge", context).err().expect("a mistake").to_string())
    };
    assert!(refused("node = \"judge\"").contains("leave out `node`"));
    assert!(refused("trunk = \"copied\"").contains("which node has the head?"));
    assert!(refused("trunk = \"scratch\"\nnode = \"actor\"").contains("that trunk is `shared`"));
}
