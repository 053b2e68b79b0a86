//! Credit on a tree of turns: what the paths below a turn came to, against what its start or its siblings came to.
//!
//! Three steps, each a key. *Leaves*: outcomes `R_i` become leaf values, as they are, standardised, or leave-one-out.
//! *Nodes*: `V(n)` is the mean over the leaves below n, or over its children, plain or weighted with
//! `softmax(NLL(child))`, `NLL = −mean_k log π(token_k)` over the turn's sampled tokens. *Advantage*: `V(n)`, or `V(n)`
//! against `V(parent)`, `V(start)`, both, or the siblings; optionally over `√(leaves below n)`.
//!
//! | preset | keys | formula |
//! |---|---|---|
//! | AT2PO, arXiv 2601.04767, zzfoutofspace/ATPO | `z-score` (population), `child-softmax`, `nothing` | `A = V(n)` |
//! | TreeRL, Hou et al. 2025, arXiv 2506.11902, THUDM/TreeRL | `leave-one-out`, `leaf-mean`, `parent-and-start`, `sqrt_leaves`, `merge_chains` | `A = ((V − V_start) + (V − V_parent)) / √leaves` |
//! | CARL, arXiv 2512.04949 | `outcome`, `child-mean`, `parent`, `forks_only` | `A = V(n) − V(parent)` |
//! | TreePO, Li et al. 2025, arXiv 2508.17445, multimodal-art-projection/TreePO | `subtrees`, `leaf-mean`, `nothing` | `A_i = mean_d (R_i − mean R of the subtree at depth d)` |
//! | Tree-GRPO, AMAP-ML/Tree-GRPO | `group-plus-tree`, `leaf-mean`, `nothing` | `A_i = z_group(R_i) + z_tree(R_i)` |
//!
//! Reductions: without branches AT2PO, TreePO and Tree-GRPO are GRPO (with a population deviation, without a division, and
//! as it stands), TreeRL is twice RLOO (start and parent are the same state), and CARL is GRPO without a division for the
//! first turns alone. `parent` telescopes along a path to `V(leaf) − V(start)`; among n children of a `child-mean`
//! `siblings` is `n/(n − 1)` times `parent`.
//!
//! What is a tree: a turn without a parent and all that continues it. A chain sampled anew from the start is a tree of its
//! own, also where authors count it to the tree whose root was expanded.
//!
//! Edge cases: a path cut by a limit counts with its outcome, there is no critic. A path that was not tried has no value
//! and moves no mean. Equal outcomes give exactly 0 wherever there is a baseline; a group of one gives 0 there too
//! (`outcome` against `nothing` has none). A path that ends at a turn which others continue counts in means over leaves,
//! not over children. A turn without sampled tokens had no alternative: its NLL is 0.
//!
//! Where the authors' code differs: AT2PO trains a shared prefix once per leaf, here once. TreeRL's divides each node's
//! value by its own √leaves before taking differences, after subtracting a token-weighted mean; this follows the paper.
//! TreePO's script takes the plain mean over depths, as here; the paper also weighs subtrees by size. Tree-GRPO adds the
//! raw outcome for a tree of one leaf; here it adds nothing.

use std::collections::BTreeMap;

use ascribe_core::range::NonNegative;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, Trajectory, plugin, preset};
use ascribe_math::{Deviation, Singleton, Standardise, leave_one_out, standardise};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forest::{Forest, below, mean, rounded};
use crate::outcome::verl_epsilon;
use crate::paths::outcomes_of_tried;

/// `[estimator.tree-value]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeValue {
    /// What the outcome of a path becomes.
    pub leaf: LeafValue,
    /// What a turn is worth, given the paths below it.
    pub node: NodeValue,
    /// What a turn's worth is compared with.
    pub against: Against,
    /// Whether to divide by the square root of the number of paths below the turn (TreeRL).
    #[serde(default)]
    pub sqrt_leaves: bool,
    /// Whether turns without a fork between them count as one: the parent is then the last fork above.
    #[serde(default)]
    pub merge_chains: bool,
    /// Whether only turns with siblings are trained (CARL).
    #[serde(default)]
    pub forks_only: bool,
    /// Standard deviation that standardised leaves divide by.
    #[serde(default)]
    pub deviation: Spread,
    /// Added to that deviation, 0 or more; 1e-6 in the code of all of them.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
}

/// What the outcome of a path becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LeafValue {
    /// The outcome itself.
    Outcome,
    /// In standard deviations from the mean of the group.
    ZScore,
    /// Against the mean of the group's other paths.
    LeaveOneOut,
    /// Standardised in the group, plus standardised in its tree.
    GroupPlusTree,
    /// Standardised in the group, then once more in its tree, which erases the first wherever a tree has spread. A tree
    /// of one path keeps the first.
    GroupThenTree,
    /// Mean over the subtrees it lies in, of more than one path, of its outcome against the subtree's mean; the whole
    /// group is one of them.
    Subtrees,
}

/// What a turn is worth, given the paths below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeValue {
    /// Mean over the paths below it: where forks were placed for a reason, biased towards where there are many.
    LeafMean,
    /// Mean over the turns that continue it.
    ChildMean,
    /// Mean over them, weighted by the softmax of their negative log-likelihoods.
    ChildSoftmax,
}

/// What a turn's worth is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Against {
    /// With nothing: the baseline is in the leaves.
    Nothing,
    /// With the state it started from.
    Parent,
    /// With the group's start.
    Start,
    /// The sum of both.
    ParentAndStart,
    /// With the mean of the others that start where it does: the parent's value without its own part in it.
    Siblings,
}

/// Which standard deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Over n − 1 (Tree-GRPO).
    #[default]
    Sample,
    /// Over n (AT2PO).
    Population,
}

plugin! {
    Estimator "tree-value" {
        summary: "What the paths below a turn came to, against what its start or its siblings came to.",
        source: "Hou et al. 2025, TreeRL, arXiv 2506.11902; AT2PO, arXiv 2601.04767; CARL, arXiv 2512.04949; Li et al. 2025, TreePO, arXiv 2508.17445; AMAP-ML/Tree-GRPO",
        when: "With rollouts that branch: forks tell which turn made the difference, without a critic. On independent rollouts it is GRPO or RLOO, and these say it plainer.",
        example: "leaf = \"outcome\"\nnode = \"child-mean\"\nagainst = \"parent\"\nforks_only = true",
        module: "tree_value.rs",
    }
    impl AdvantageEstimator for TreeValue {
        fn needs(&self) -> Vec<Need> {
            let mut needs = vec![Need::GroupOfAtLeast(2)];
            if self.node == NodeValue::ChildSoftmax {
                needs.push(Need::BehaviorLogprob);
            }
            needs
        }

        fn laws(&self) -> Vec<Law> {
            let scale = match self.leaf {
                LeafValue::Outcome | LeafValue::LeaveOneOut | LeafValue::Subtrees => Law::Scale,
                LeafValue::ZScore | LeafValue::GroupPlusTree | LeafValue::GroupThenTree => Law::ScaleFree,
            };
            let has_baseline = self.leaf != LeafValue::Outcome || self.against != Against::Nothing;
            let of_baseline = if has_baseline { vec![Law::Shift, Law::NoSpreadNoCredit] } else { Vec::new() };
            [vec![scale, Law::Ascent], of_baseline].concat()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            Ok(Credit { turns: rounded(self.advantages(group)), ..Credit::default() })
        }
    }
}

/// Values of the nodes of a group's forest; `None` where no path below was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// Of the start.
    pub start: Option<f64>,
    /// Of each turn, `[turns]`.
    pub turns: Vec<Option<f64>>,
}

impl TreeValue {
    /// Advantage per turn, `[turns]`; `None` where no path below was tried, and of only children if `forks_only`.
    pub fn advantages(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let leaves = below(group, &outcomes_of_tried(group));
        let n_leaves: Vec<usize> = leaves.iter().map(Vec::len).collect();
        let forest = Forest::of(group, |t| n_leaves[t] > 0);
        let values = self.values(group);
        let advantage = |t: usize| {
            let (own, start) = (values.turns[t]?, values.start?);
            let siblings = forest.siblings(group, t);
            if self.forks_only && siblings.len() < 2 {
                return None;
            }
            let parent = || self.parent(group, &n_leaves, t).map_or(Some(start), |p| values.turns[p]);
            let advantage = match self.against {
                Against::Nothing => own,
                Against::Parent => own - parent()?,
                Against::Start => own - start,
                Against::ParentAndStart => (own - start) + (own - parent()?),
                Against::Siblings => {
                    let others: Vec<f64> = siblings.iter().filter(|s| **s != t).filter_map(|s| values.turns[*s]).collect();
                    mean(&others).map_or(0.0, |others| own - others)
                }
            };
            Some(if self.sqrt_leaves { advantage / (n_leaves[t] as f64).sqrt() } else { advantage })
        };
        (0..group.n_turns()).map(advantage).collect()
    }

    /// Values of the nodes.
    pub fn values(&self, group: Group<'_>) -> Values {
        let per_path = self.leaf_values(group);
        let leaves = below(group, &per_path);
        if self.node == NodeValue::LeafMean {
            let all: Vec<f64> = per_path.into_iter().flatten().collect();
            return Values { start: mean(&all), turns: leaves.iter().map(|x| mean(x)).collect() };
        }
        let forest = Forest::of(group, |t| !leaves[t].is_empty());
        let mut turns = vec![None; group.n_turns()];
        for t in (0..turns.len()).rev() {
            turns[t] = match &forest.children[t][..] {
                [] => mean(&leaves[t]),
                children => Some(self.mean_of(group, children, &turns)),
            };
        }
        let start = (!forest.roots.is_empty()).then(|| self.mean_of(group, &forest.roots, &turns));
        Values { start, turns }
    }

    /// Value of each path, `[paths]`; `None` where it was not tried.
    pub fn leaf_values(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let outcomes = outcomes_of_tried(group);
        let tried: Vec<usize> = (0..outcomes.len()).filter(|i| outcomes[*i].is_some()).collect();
        let mut x: Vec<f64> = outcomes.iter().copied().flatten().collect();
        match self.leaf {
            LeafValue::Outcome => {}
            LeafValue::ZScore => self.standardise(&mut x),
            LeafValue::LeaveOneOut if x.len() == 1 => x[0] = 0.0,
            LeafValue::LeaveOneOut => leave_one_out(&mut x),
            LeafValue::GroupPlusTree => {
                let outcome = x.clone();
                self.standardise(&mut x);
                for tree in trees(group, &tried) {
                    let mut own: Vec<f64> = tree.iter().map(|at| outcome[*at]).collect();
                    self.standardise(&mut own);
                    tree.into_iter().zip(own).for_each(|(at, own)| x[at] += own);
                }
            }
            LeafValue::GroupThenTree => {
                self.standardise(&mut x);
                for tree in trees(group, &tried).into_iter().filter(|tree| tree.len() > 1) {
                    let mut own: Vec<f64> = tree.iter().map(|at| x[*at]).collect();
                    self.standardise(&mut own);
                    tree.into_iter().zip(own).for_each(|(at, own)| x[at] = own);
                }
            }
            LeafValue::Subtrees => return self.against_subtrees(group, &outcomes),
        }
        let mut values = vec![None; outcomes.len()];
        tried.iter().zip(x).for_each(|(i, x)| values[*i] = Some(x));
        values
    }

    /// The turn whose state turn `t` is compared with: its parent, or the last fork above; `None` is the start.
    fn parent(&self, group: Group<'_>, n_leaves: &[usize], mut t: usize) -> Option<usize> {
        // As many paths below both: no path left in between, and none ended there.
        while let Some(p) = group.parent(t).filter(|p| self.merge_chains && n_leaves[*p] == n_leaves[t]) {
            t = p;
        }
        group.parent(t)
    }

    /// Mean over turns that have values, plain or weighted.
    fn mean_of(&self, group: Group<'_>, turns: &[usize], values: &[Option<f64>]) -> f64 {
        let x: Vec<f64> = turns.iter().map(|t| values[*t].expect("children come before parents")).collect();
        if self.node != NodeValue::ChildSoftmax || ascribe_math::is_constant(&x) {
            return mean(&x).expect("a fork has children");
        }
        let nll: Vec<f64> = turns.iter().map(|t| negative_log_likelihood(group, *t)).collect();
        let most = nll.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = nll.iter().map(|h| (h - most).exp()).collect();
        x.iter().zip(&weights).map(|(x, w)| w * x).sum::<f64>() / weights.iter().sum::<f64>()
    }

    fn standardise(&self, x: &mut [f64]) {
        let deviation = match self.deviation {
            Spread::Sample => Deviation::Sample,
            Spread::Population => Deviation::Population,
        };
        standardise(x, Standardise { scale: Some((deviation, *self.epsilon)), singleton: Singleton::Zero });
    }

    /// Mean over the subtrees a path lies in of its outcome against the subtree's mean.
    fn against_subtrees(&self, group: Group<'_>, outcomes: &[Option<f64>]) -> Vec<Option<f64>> {
        let all: Vec<f64> = outcomes.iter().copied().flatten().collect();
        let leaves = below(group, outcomes);
        let value = |(path, outcome): (Trajectory<'_>, &Option<f64>)| {
            let outcome = (*outcome)?;
            let mut subtrees: Vec<&[f64]> = vec![&all];
            for t in path.turns() {
                let same = self.merge_chains && subtrees.last().is_some_and(|above| above.len() == leaves[t].len());
                if leaves[t].len() > 1 && !same {
                    subtrees.push(&leaves[t]);
                }
            }
            mean(&subtrees.into_iter().filter_map(mean).map(|baseline| outcome - baseline).collect::<Vec<_>>())
        };
        group.trajectories().zip(outcomes).map(value).collect()
    }
}

/// The paths `tried` by the tree they lie in, as places in `tried`.
fn trees(group: Group<'_>, tried: &[usize]) -> Vec<Vec<usize>> {
    let roots: Vec<Option<usize>> = group.trajectories().map(|path| path.turns_up().last()).collect();
    let mut trees: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (at, path) in tried.iter().enumerate() {
        trees.entry(roots[*path]).or_default().push(at);
    }
    trees.into_values().collect()
}

/// Mean of `−log π` over a turn's sampled tokens, in nats; 0 where it had no alternative.
fn negative_log_likelihood(group: Group<'_>, t: usize) -> f64 {
    let first = group.sampled().start;
    let logprob = &group.batch().sampled.logprob;
    let nll: Vec<f64> = group.sampled_of(t).filter_map(|i| logprob.get(first + i)).map(|x| -f64::from(x)).collect();
    mean(&nll).unwrap_or(0.0)
}

preset! {
    Estimator "at2po" is "tree-value", TreeValue as At2po {
        leaf: "z-score", deviation: "population", node: "child-softmax", against: "nothing"
    }
    summary: "AT2PO: standardised outcomes, passed up the tree with weight on the turns that were least likely.",
    source: "2026, AT2PO, arXiv 2601.04767; zzfoutofspace/ATPO",
    when: "With a rollout that expands uncertain turns, and a ratio per turn (`gspo`).",
}

preset! {
    Estimator "tree-rl" is "tree-value", TreeValue as TreeRl {
        leaf: "leave-one-out", node: "leaf-mean", against: "parent-and-start", sqrt_leaves: true, merge_chains: true
    }
    summary: "TreeRL: a segment's value against that of the start and of the segment before it, over the root of its leaves.",
    source: "Hou et al. 2025, TreeRL, arXiv 2506.11902; THUDM/TreeRL",
    when: "With trees that fork at uncertain turns. Counting leaves is biased where forks were placed for a reason: `carl` counts children.",
}

preset! {
    Estimator "carl" is "tree-value", TreeValue as Carl {
        leaf: "outcome", node: "child-mean", against: "parent", forks_only: true
    }
    summary: "CARL: a turn's value against its state's, trained only where there was a choice between turns.",
    source: "2025, CARL, arXiv 2512.04949v3",
    when: "With forks at critical states: turns of states with one child give no gradient and cost none.",
}

preset! {
    Estimator "tree-po" is "tree-value", TreeValue as TreePo {
        leaf: "subtrees", node: "leaf-mean", against: "nothing"
    }
    summary: "TreePO: an outcome against the mean of every subtree it lies in.",
    source: "Li et al. 2025, TreePO, arXiv 2508.17445; multimodal-art-projection/TreePO",
    when: "With trees of fixed-length segments, and `transform = [\"whiten\"]` after it, as its authors do.",
}

preset! {
    Estimator "tree-grpo" is "tree-value", TreeValue as TreeGrpo {
        leaf: "group-plus-tree", node: "leaf-mean", against: "nothing"
    }
    summary: "Tree-GRPO: an outcome standardised over all leaves of the task, plus over those of its own tree.",
    source: "2025, Tree-GRPO; AMAP-ML/Tree-GRPO",
    when: "With several trees per task. Outcomes alone: it does not say which turn of a path made the difference.",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn};
    use crate::grpo::Grpo;
    use crate::outcome::Mode;
    use crate::outcome::Over;
    use crate::rloo::Rloo;
    use ascribe_core::log::{Action, TurnLog};
    use ascribe_core::{Batch, End, Limit};
    use proptest::prelude::*;

    fn tree_value(leaf: LeafValue, node: NodeValue, against: Against) -> TreeValue {
        TreeValue {
            leaf,
            node,
            against,
            sqrt_leaves: false,
            merge_chains: false,
            forks_only: false,
            deviation: Spread::Sample,
            epsilon: verl_epsilon(),
        }
    }
    fn at2po() -> TreeValue {
        let keys = tree_value(LeafValue::ZScore, NodeValue::ChildSoftmax, Against::Nothing);
        TreeValue { deviation: Spread::Population, ..keys }
    }
    fn tree_rl() -> TreeValue {
        let keys = tree_value(LeafValue::LeaveOneOut, NodeValue::LeafMean, Against::ParentAndStart);
        TreeValue { sqrt_leaves: true, merge_chains: true, ..keys }
    }
    fn carl() -> TreeValue {
        TreeValue { forks_only: true, ..tree_value(LeafValue::Outcome, NodeValue::ChildMean, Against::Parent) }
    }
    fn tree_po() -> TreeValue {
        tree_value(LeafValue::Subtrees, NodeValue::LeafMean, Against::Nothing)
    }
    fn tree_grpo() -> TreeValue {
        tree_value(LeafValue::GroupPlusTree, NodeValue::LeafMean, Against::Nothing)
    }
    fn presets() -> [TreeValue; 5] {
        [at2po(), tree_rl(), carl(), tree_po(), tree_grpo()]
    }

    /// A turn of one token drawn with this negative log-likelihood.
    fn drawn(parent: Option<usize>, reward: f32, nll: f32) -> TurnLog {
        let action = Action { logprob: Some(vec![-nll]), ..Action::given(vec![0]) };
        TurnLog { action, ..turn(parent, reward) }
    }

    /// A forks into A1 (won) and A2; B goes on to B1. Turns A, B, A1, A2, B1.
    fn forked() -> Batch {
        let turns = vec![
            drawn(None, 0.0, 0.0),
            drawn(None, 0.0, 0.0),
            drawn(Some(0), 1.0, 2.0f32.ln()),
            drawn(Some(0), 0.0, 0.0),
            drawn(Some(1), 0.0, 0.0),
        ];
        batch(turns, &[(2, WON), (3, LOST), (4, LOST)])
    }
    fn near(got: &[Option<f64>], want: &[Option<f64>]) {
        let same = |(got, want): (&Option<f64>, &Option<f64>)| match (got, want) {
            (Some(got), Some(want)) => (got - want).abs() < 1e-9,
            (got, want) => got == want,
        };
        assert!(got.len() == want.len() && got.iter().zip(want).all(same), "{got:?}, not {want:?}");
    }

    #[test]
    fn carl_trains_only_where_there_was_a_choice() {
        // V: A ½, B 0, start ¼
        let tree = forked();
        assert_eq!(carl().advantages(tree.group(0)), [Some(0.25), Some(-0.25), Some(0.5), Some(-0.5), None]);
        let siblings = TreeValue { against: Against::Siblings, ..carl() };
        assert_eq!(siblings.advantages(tree.group(0)), [Some(0.5), Some(-0.5), Some(1.0), Some(-1.0), None]);
    }

    #[test]
    fn tree_rl_merges_chains_first() {
        // leave-one-out 1, −½, −½; V: A ¼, B −½; A: (¼ + ¼)/√2; A1: (1 + ¾); A2: (−½ − ¾); B and B1: −½ − ½
        let tree = forked();
        let merged = [Some(0.5f64.sqrt() / 2.0), Some(-1.0), Some(1.75), Some(-1.25), Some(-1.0)];
        near(&tree_rl().advantages(tree.group(0)), &merged);
        let unmerged = TreeValue { merge_chains: false, ..tree_rl() }.advantages(tree.group(0));
        near(&unmerged[3..], &[Some(-1.25), Some(-0.5)]);
    }

    #[test]
    fn at2po_weighs_surprising_children_more() {
        // population z of (1, 0, 0): (√2, −1/√2, −1/√2); A: ⅔·√2 − ⅓/√2 = 1/√2, with weights e^ln 2 : 1
        let exact = TreeValue { epsilon: NonNegative::try_from(0.0).unwrap(), ..at2po() };
        let tree = forked();
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let got = exact.advantages(tree.group(0));
        assert!((got[0].unwrap() - half).abs() < 1e-7, "{got:?}: the log-probability is an f32");
        near(&got[1..], &[Some(-half), Some(2.0 * half), Some(-half), Some(-half)]);
        assert!((exact.values(tree.group(0)).start.unwrap()).abs() < 1e-7, "A and B are equally likely: ½/√2 − ½/√2");
        assert!(exact.needs().contains(&Need::BehaviorLogprob) && !carl().needs().contains(&Need::BehaviorLogprob));
    }

    #[test]
    fn tree_po_averages_over_the_subtrees_a_path_lies_in() {
        // A1: (1 − ⅓, 1 − ½); A2: (−⅓, −½); B1: (−⅓) alone; A: mean of A1 and A2
        let tree = forked();
        let want = [Some(1.0 / 12.0), Some(-1.0 / 3.0), Some(7.0 / 12.0), Some(-5.0 / 12.0), Some(-1.0 / 3.0)];
        near(&tree_po().advantages(tree.group(0)), &want);
        // A chain above the fork is a subtree per turn, or merged one.
        let turns = vec![turn(None, 0.0), turn(Some(0), 0.0), turn(Some(1), 1.0), turn(Some(1), 0.0), turn(None, 0.0)];
        let tree = batch(turns, &[(2, WON), (3, LOST), (4, LOST)]);
        near(&tree_po().advantages(tree.group(0))[2..3], &[Some((2.0 / 3.0 + 0.5 + 0.5) / 3.0)]);
        let merged = TreeValue { merge_chains: true, ..tree_po() };
        near(&merged.advantages(tree.group(0))[2..3], &[Some(7.0 / 12.0)]);
    }

    #[test]
    fn tree_grpo_adds_the_tree_or_is_erased_by_it() {
        // outcomes 1, 0 | 0: group z (⅔, −⅓, −⅓)/√⅓, tree z ±1/√2 and nothing for the tree of one
        let exact = |leaf| TreeValue { leaf, epsilon: NonNegative::try_from(0.0).unwrap(), ..tree_grpo() };
        let (tree, third, half) = (forked(), (1.0f64 / 3.0).sqrt(), std::f64::consts::FRAC_1_SQRT_2);
        let sum = exact(LeafValue::GroupPlusTree).leaf_values(tree.group(0));
        near(&sum, &[Some(2.0 * third + half), Some(-third - half), Some(-third)]);
        let composed = exact(LeafValue::GroupThenTree).leaf_values(tree.group(0));
        near(&composed, &[Some(half), Some(-half), Some(-third)]);
    }

    #[test]
    fn what_was_not_tried_moves_no_mean_and_a_limit_is_an_end() {
        let turns = vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0), turn(Some(0), 0.0), turn(None, 0.0)];
        let ends = [(1, WON), (2, End::Truncated(Limit::Turns)), (3, End::Untried), (4, End::Untried)];
        let tree = batch(turns, &ends);
        assert_eq!(carl().advantages(tree.group(0)), [None, Some(0.5), Some(-0.5), None, None]);
        for keys in presets() {
            let advantages = keys.advantages(tree.group(0));
            assert!(advantages[3..] == [None, None] && advantages[1].is_some(), "{keys:?}: {advantages:?}");
        }
        let none = chains(&[(&[1.0], End::Untried)]);
        assert!(presets().iter().all(|keys| keys.advantages(none.group(0)) == [None]));
    }

    #[test]
    fn a_group_of_one_gives_zero() {
        let one = chains(&[(&[0.0, 0.7], WON)]);
        for keys in presets() {
            assert!(keys.advantages(one.group(0)).into_iter().flatten().all(|a| a == 0.0), "{keys:?}");
        }
    }

    #[test]
    fn a_path_may_end_where_others_go_on() {
        let turns = vec![turn(None, 1.0), turn(Some(0), 1.0)];
        let tree = batch(turns, &[(0, LOST), (1, WON)]);
        // leaves 1 and 2 lie below the first turn; its only child is worth 2
        let mean = tree_value(LeafValue::Outcome, NodeValue::LeafMean, Against::Nothing);
        assert_eq!(mean.advantages(tree.group(0)), [Some(1.5), Some(2.0)]);
        let child = TreeValue { node: NodeValue::ChildMean, ..mean };
        assert_eq!(child.advantages(tree.group(0)), [Some(2.0), Some(2.0)]);
    }

    /// A forest of up to three levels: each turn continues an earlier one or starts anew; those without children end.
    fn forests() -> impl Strategy<Value = Vec<(Option<usize>, f32)>> {
        prop::collection::vec((0usize..100, 0u8..3, any::<bool>()), 1..14).prop_map(|turns| {
            let place =
                |(t, (p, reward, root)): (usize, (usize, u8, bool))| ((t > 0 && !root).then(|| p % t), f32::from(reward) * 0.3);
            turns.into_iter().enumerate().map(place).collect()
        })
    }
    fn grown(forest: &[(Option<usize>, f32)]) -> Batch {
        let ends = (0..forest.len()).filter(|t| !forest.iter().any(|(p, _)| *p == Some(*t)));
        let leaves: Vec<(usize, End)> = ends.map(|t| (t, WON)).collect();
        batch(forest.iter().map(|(p, r)| drawn(*p, *r, r + 0.5)).collect(), &leaves)
    }

    proptest! {
        #[test]
        fn advantages_over_the_parent_telescope(forest in forests()) {
            let tree = grown(&forest);
            for node in [NodeValue::LeafMean, NodeValue::ChildMean, NodeValue::ChildSoftmax] {
                let keys = tree_value(LeafValue::Outcome, node, Against::Parent);
                let (advantages, start) = (keys.advantages(tree.group(0)), keys.values(tree.group(0)).start.unwrap());
                for (path, outcome) in tree.group(0).trajectories().zip(tree.group(0).outcomes()) {
                    let sum: f64 = path.turns_up().map(|t| advantages[t].unwrap()).sum();
                    prop_assert!((sum - (outcome - start)).abs() < 1e-9);
                }
            }
        }

        #[test]
        fn siblings_weigh_in_at_most_as_a_baseline(forest in forests(), extra in 0u8..4) {
            // A turn's own value never depends on what a sibling's paths earned.
            let keys = tree_value(LeafValue::Outcome, NodeValue::ChildMean, Against::Nothing);
            let before = grown(&forest);
            let mut other = forest.clone();
            let last = other.len() - 1;
            other[last].1 += f32::from(extra);
            let after = grown(&other);
            let above: Vec<usize> = after.group(0).trajectories().last().unwrap().turns_up().collect();
            let (before, after) = (keys.advantages(before.group(0)), keys.advantages(after.group(0)));
            for t in (0..forest.len()).filter(|t| !above.contains(t)) {
                prop_assert_eq!(before[t], after[t]);
            }
        }

        #[test]
        fn equal_outcomes_give_exactly_zero(forest in forests(), outcome in -3.0f32..3.0) {
            // All of the reward at the start of each tree, so that every path has the same outcome.
            let same: Vec<_> = forest.iter().map(|(p, _)| (*p, if p.is_none() { outcome } else { 0.0 })).collect();
            let tree = grown(&same);
            for keys in presets() {
                prop_assert!(keys.advantages(tree.group(0)).into_iter().flatten().all(|a| a == 0.0), "{:?}", keys);
            }
        }

        #[test]
        fn the_order_of_siblings_does_not_matter(forest in forests()) {
            // Turns from the last to the first, parents kept before children by sorting on depth.
            let depth = |mut t: usize| {
                let mut depth = 0;
                while let Some(p) = forest[t].0 { t = p; depth += 1; }
                depth
            };
            let mut order: Vec<usize> = (0..forest.len()).collect();
            order.sort_by_key(|t| (depth(*t), std::cmp::Reverse(*t)));
            let place = |t: usize| order.iter().position(|o| *o == t).unwrap();
            let shuffled: Vec<_> = order.iter().map(|t| (forest[*t].0.map(place), forest[*t].1)).collect();
            let (straight, shuffled) = (grown(&forest), grown(&shuffled));
            for keys in presets() {
                let (a, b) = (keys.advantages(straight.group(0)), keys.advantages(shuffled.group(0)));
                for (t, a) in a.iter().enumerate() {
                    match (a, b[place(t)]) {
                        (Some(a), Some(b)) => prop_assert!((a - b).abs() < 1e-9, "{keys:?}"),
                        (a, b) => prop_assert_eq!(*a, b),
                    }
                }
            }
        }

        #[test]
        fn without_branches_they_are_grpo_and_rloo(outcomes in prop::collection::vec(0u8..5, 2..9)) {
            let rewards: Vec<[f32; 2]> = outcomes.iter().map(|r| [0.0, f32::from(*r)]).collect();
            let paths: Vec<(&[f32], End)> = rewards.iter().map(|r| (&r[..], WON)).collect();
            let paths = chains(&paths);
            let group = paths.group(0);
            let per_turn = |estimator: &dyn AdvantageEstimator| estimator.estimate(group, &Now::default()).unwrap().turns;
            let grpo = |std| per_turn(&Grpo { std, mode: Mode::Paper, over: Over::Trajectories, epsilon: verl_epsilon() });
            let close = |a: &[Option<f32>], b: &[Option<f32>], factor: f32| {
                a.iter().zip(b).all(|(a, b)| (a.unwrap() - factor * b.unwrap()).abs() < 1e-5)
            };
            prop_assert!(close(&per_turn(&tree_grpo()), &grpo(true), 1.0));
            prop_assert!(close(&per_turn(&tree_po()), &grpo(false), 1.0));
            let rloo = per_turn(&Rloo { mode: Mode::Paper, over: Over::Trajectories });
            prop_assert!(close(&per_turn(&tree_rl()), &rloo, 2.0));
            let (carl, plain) = (per_turn(&carl()), grpo(false));
            for i in 0..outcomes.len() {
                prop_assert!((carl[2 * i].unwrap() - plain[2 * i].unwrap()).abs() < 1e-5);
                prop_assert_eq!(carl[2 * i + 1], None);
            }
        }
    }
}
