//! Credit on the graph of states: one group of four trajectories.

use ascribe_core::log::{GroupLog, LeafLog, TurnLog};
use ascribe_core::{Batch, End, Group};
use ascribe_estimators::{G2po, GraphGpo, Grpo, Salt};
use serde_json::{Map, Value, json};

use crate::records::{batch, config, turn};

/// Outcomes, and per trajectory its steps as state, action, next state. `OK` and `KO` are the states after the end.
const REWARDS: [f64; 4] = [1.0, 0.0, 1.0, 0.0];
const STEPS: [[[&str; 3]; 3]; 4] = [
    [["s0", "a", "s1"], ["s1", "c", "s3"], ["s3", "g", "OK"]],
    [["s0", "a", "s1"], ["s1", "d", "s4"], ["s4", "h", "KO"]],
    [["s0", "b", "s2"], ["s2", "e", "s3"], ["s3", "g", "OK"]],
    [["s0", "b", "s2"], ["s2", "f", "s4"], ["s4", "h", "KO"]],
];

fn records() -> Batch {
    let mut turns: Vec<TurnLog> = Vec::new();
    let mut leaves = Vec::new();
    for (reward, steps) in REWARDS.iter().zip(STEPS) {
        for (t, [state, action, after]) in steps.into_iter().enumerate() {
            let parent = (t > 0).then(|| turns.len() - 1);
            turns.push(TurnLog {
                state: state.into(),
                action_key: action.into(),
                state_after: after.into(),
                ..turn(parent, 1, if t + 1 == steps.len() { *reward } else { 0.0 })
            });
        }
        let end = End::Terminated { success: *reward == 1.0 };
        leaves.push(LeafLog { turn: Some(turns.len() - 1), end, seed: 0 });
    }
    batch(vec![GroupLog { task_name: "F1".into(), turns, leaves, ..GroupLog::default() }])
}

/// Numbers per turn, as one list per trajectory.
fn per_trajectory(group: Group<'_>, numbers: &[Option<f64>]) -> Vec<Vec<f64>> {
    group.trajectories().map(|path| path.turns().into_iter().map(|t| numbers[t].expect("tried")).collect()).collect()
}

fn named(batch: &Batch, numbers: impl IntoIterator<Item = (u32, f64)>) -> Map<String, Value> {
    let name = |key: u32| String::from_utf8_lossy(batch.keys.bytes(key)).into_owned();
    numbers.into_iter().map(|(key, x)| (name(key), x.into())).collect()
}

fn g2po(batch: &Batch, std: bool) -> Value {
    let g2po: G2po = config(json!({ "success_reward": 1.0, "std": std }));
    let mut values = named(batch, g2po.state_values(batch.group(0)));
    values.insert("OK".into(), (*g2po.success_reward).into());
    values.insert("KO".into(), 0.0.into());
    json!({ "V": values, "adv": per_trajectory(batch.group(0), &g2po.advantages(batch.group(0))) })
}

/// The keys of this part.
pub fn part() -> Map<String, Value> {
    let batch = records();
    let group = batch.group(0);
    let mut grpo = REWARDS;
    config::<Grpo>(json!({ "mode": "official" })).advantages(&mut grpo);
    let salt = |settings: Value| per_trajectory(group, &config::<Salt>(settings).advantages(group));
    let graph: GraphGpo = config(json!({ "graph_weight": 1.0, "episode_weight": 1.0 }));
    let distances = graph.distances(group).into_iter().map(|(key, d)| (key, f64::from(d)));
    let mut distances = named(&batch, distances);
    distances.insert("OK".into(), 0.0.into());
    let all = json!({
        "F1": { "rewards": REWARDS, "steps": STEPS },
        "grpo": grpo,
        "salt_edge_key": salt(json!({})),
        "salt_seed_key(position,action)": salt(json!({ "key": "position-action" })),
        "g2po_mean_std": g2po(&batch, true),
        "g2po_mean": g2po(&batch, false),
        "graphgpo_omega0.95": {
            "dist": distances,
            "adv_graph": per_trajectory(group, &graph.graph_advantages(group)),
        },
    });
    all.as_object().cloned().unwrap_or_default()
}
