//! Methods on trees: AT2PO, CARL, TreeRL, Tree-GRPO, and VinePPO's differences of values.

use ascribe_core::log::{Action, TurnLog};
use ascribe_core::{Batch, Scope};
use ascribe_estimators::{TreeValue, ValueDifference};
use serde_json::{Map, Value, json};

use crate::records::{add_signal, batch, config, group, turn};

/// The keys of this part.
pub fn keys() -> Map<String, Value> {
    let keys = json!({
        "tree": tree(),
        "at2po_child_softmax": at2po(),
        "carl": carl(),
        "treerl_sqrt": tree_rl(),
        "tree_grpo": tree_grpo("group-plus-tree"),
        "tree_grpo_2norm": tree_grpo("group-then-tree"),
        "vine": vine(),
    });
    keys.as_object().expect("a map").clone()
}

/// The script's `TREE`: children in order, `H` the negative log-likelihood of a turn, `R` the outcome of a leaf.
fn tree() -> Value {
    json!({ "id": "root", "H": 0.0, "ch": [
        { "id": "A", "H": 0.2, "ch": [{ "id": "A1", "H": 0.5, "R": 1.0 }, { "id": "A2", "H": 1.5, "R": 0.0 }] },
        { "id": "B", "H": 1.0, "ch": [{ "id": "B1", "H": 0.3, "R": 0.0 }] },
    ] })
}

/// The tree as records, with the names of its turns and leaves. Its root is the start, which is no turn.
struct Grown {
    batch: Batch,
    turns: Vec<String>,
    leaves: Vec<usize>,
}

impl Grown {
    fn new() -> Self {
        let (mut turns, mut names, mut leaves) = (Vec::new(), Vec::new(), Vec::new());
        grow(&tree(), None, &mut turns, &mut names, &mut leaves);
        Self { batch: batch(vec![group(turns, leaves.clone())]), turns: names, leaves }
    }

    /// Numbers per turn under the turns' names.
    fn named(&self, numbers: &[Option<f64>]) -> Map<String, Value> {
        self.turns.iter().cloned().zip(numbers.iter().map(|x| json!(x))).collect()
    }

    /// Values of the turns and, as the root's, of the start.
    fn values(&self, estimator: &TreeValue) -> Map<String, Value> {
        let values = estimator.values(self.batch.group(0));
        let mut named = self.named(&values.turns);
        named.insert("root".into(), json!(values.start));
        named
    }
}

fn grow(node: &Value, at: Option<usize>, turns: &mut Vec<TurnLog>, names: &mut Vec<String>, leaves: &mut Vec<usize>) {
    for child in node["ch"].as_array().into_iter().flatten() {
        let reward = child["R"].as_f64();
        let nll = child["H"].as_f64().expect("a number") as f32;
        let action = Action { logprob: Some(vec![-nll]), ..Action::given(vec![1]) };
        let t = turns.len();
        turns.push(TurnLog { action, ..turn(at, 1, reward.unwrap_or(0.0)) });
        names.push(child["id"].as_str().expect("a name").into());
        if reward.is_some() {
            leaves.push(t);
        }
        grow(child, Some(t), turns, names, leaves);
    }
}

fn at2po() -> Value {
    let at2po: TreeValue =
        config(json!({ "leaf": "z-score", "deviation": "population", "node": "child-softmax", "against": "nothing" }));
    Value::Object(Grown::new().values(&at2po))
}

fn carl() -> Value {
    let keys = json!({ "leaf": "outcome", "node": "child-mean", "against": "parent" });
    let all: TreeValue = config(keys.clone());
    let trained = TreeValue { forks_only: true, ..config(keys) };
    let tree = Grown::new();
    let in_update = trained.advantages(tree.batch.group(0)).into_iter().map(|a| json!(a.is_some()));
    json!({
        "V": tree.values(&all),
        "A": tree.named(&all.advantages(tree.batch.group(0))),
        "in_update": tree.turns.iter().cloned().zip(in_update).collect::<Map<_, _>>(),
    })
}

fn tree_rl() -> Value {
    // The script does not merge chains.
    let tree_rl: TreeValue =
        config(json!({ "leaf": "leave-one-out", "node": "leaf-mean", "against": "parent-and-start", "sqrt_leaves": true }));
    let tree = Grown::new();
    let leaves = tree_rl.leaf_values(tree.batch.group(0)).into_iter().map(|x| json!(x));
    json!({
        "loo": tree.leaves.iter().map(|t| tree.turns[*t].clone()).zip(leaves).collect::<Map<_, _>>(),
        "V": tree.values(&tree_rl),
        "step_adv": tree.named(&tree_rl.advantages(tree.batch.group(0))),
    })
}

/// Two trees of three leaves each: a root, and a turn per leaf.
fn tree_grpo(leaf: &str) -> Value {
    let outcomes = [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]];
    let mut turns = Vec::new();
    let mut leaves = Vec::new();
    for tree in outcomes {
        let root = turns.len();
        turns.push(turn(None, 1, 0.0));
        for outcome in tree {
            leaves.push(turns.len());
            turns.push(turn(Some(root), 1, outcome));
        }
    }
    let batch = batch(vec![group(turns, leaves.clone())]);
    let tree_grpo: TreeValue = config(json!({ "leaf": leaf, "node": "leaf-mean", "against": "nothing" }));
    let advantages = tree_grpo.advantages(batch.group(0));
    json!(leaves.chunks(3).map(|tree| tree.iter().map(|t| advantages[*t]).collect()).collect::<Vec<Vec<_>>>())
}

fn vine() -> Value {
    let turns = vec![turn(None, 1, 0.0), turn(Some(0), 1, 0.0), turn(Some(1), 1, 1.0)];
    let mut batch = batch(vec![group(turns, vec![2])]);
    // After the end there is nothing to estimate, and the number there is not read.
    add_signal(&mut batch, "value", Scope::State, vec![0.25, 0.75, 0.5, 9.0]);
    json!(ValueDifference {}.advantages(batch.group(0)))
}
