//! Prefix-tree TEMPO: GRPO, corrected where the group's paths part by how the mean outcome of the prefix changes there.
//!
//! `A_{i,k} = (R_i − mean_g R + V(s_{k+1}) − V(s_k)) / (std_g R + ε)`, `s_k` the prefix before token k and `V(s)` the mean
//! outcome of the group's paths that begin with s (P2T, "prefix to tree"). Where no path leaves, `V` does not change and
//! GRPO is left.
//!
//! Tran, Yao and Yu 2025, "Exploiting Tree Structure for Credit Assignment in RL Training of LLMs", arXiv 2509.18314;
//! formula and conventions from fatebreaker/tempo `verl/trainer/ppo/core_algos.py` (`compute_tempo_outcome_advantage`: sample
//! standard deviation, ε = 1e-6, no discount). It is not the macro-step TEMPO of the Dots team, which is `tempo`.
//! Reductions: with paths that share no first token the correction of the first token is the GRPO advantage once more, and
//! all others are GRPO; along a path without twins the corrections sum to its GRPO advantage.
//!
//! Readings of ours: their paths are single responses, ours alternate what was read and what was sampled. A prefix is all of
//! both, so what an environment answered differently parts paths too, and no action is credited for it; only sampled tokens
//! are. With `prefix = "actions"` a prefix is the observations and action keys, which puts differently worded equal
//! actions together, and a turn's credit is one number. Turns that branches share are one prefix in both.
//! Edge cases: equal outcomes give exactly 0, and so does a group of one. A path that has ended shares no further prefix.
//! Paths that were not tried are not trained and are in no prefix.
//! Where the authors' code differs: at a group of one it divides by the deviation of one number, which is NaN; and where a
//! response is longer than its siblings it compares padding with tokens.

use std::collections::BTreeMap;

use ascribe_core::range::NonNegative;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin};
use ascribe_math::{Deviation, moments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forest::{below, mean, rounded};
use crate::outcome::{verl_epsilon, yes};
use crate::paths::outcomes_of_tried;

/// `[estimator.tempo-p2t]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TempoP2t {
    /// What a prefix is made of.
    #[serde(default)]
    pub prefix: Prefix,
    /// Whether to divide by the group's standard deviation.
    #[serde(default = "yes")]
    pub std: bool,
    /// Added to the standard deviation, 0 or more. verl: 1e-6.
    #[serde(default = "verl_epsilon")]
    pub epsilon: NonNegative,
}

/// What a prefix is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Prefix {
    /// Tokens read and sampled; credit per token.
    #[default]
    Tokens,
    /// Keys of observations and actions; credit per turn. It needs an environment that names its actions.
    Actions,
}

plugin! {
    Estimator "tempo-p2t" {
        summary: "Prefix-tree TEMPO (arXiv 2509.18314): GRPO, corrected at the tokens where the group's responses part.",
        source: "Tran et al. 2025, Exploiting Tree Structure for Credit Assignment in RL Training of LLMs, arXiv 2509.18314; fatebreaker/tempo. Not the macro-step TEMPO of the Dots team (that is `tempo`)",
        when: "Groups whose responses share beginnings: short actions, low temperature, rollouts that branch. Where they part at the first token it adds nothing but weight there.",
        example: "",
        module: "tempo_p2t.rs",
    }
    impl AdvantageEstimator for TempoP2t {
        fn needs(&self) -> Vec<Need> {
            vec![Need::GroupOfAtLeast(2)]
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Shift, Law::ScaleFree, Law::NoSpreadNoCredit]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let Advantages { turns, tokens } = self.advantages(group);
            Ok(Credit { turns: rounded(turns), tokens: rounded(tokens).into(), ..Credit::default() })
        }
    }
}

/// Advantages of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Advantages {
    /// Per turn, `[turns]`; `None` where no path below was tried.
    pub turns: Vec<Option<f64>>,
    /// Of the sampled tokens where paths part; `None` where the turn's holds. `[sampled tokens]`, or empty for actions.
    pub tokens: Vec<Option<f64>>,
}

/// How many paths begin with a prefix, and the sum of their outcomes.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    n: usize,
    sum: f64,
}

impl TempoP2t {
    /// Advantages per turn, and per token where paths part.
    pub fn advantages(&self, group: Group<'_>) -> Advantages {
        let outcomes = outcomes_of_tried(group);
        let all: Vec<f64> = outcomes.iter().copied().flatten().collect();
        let spread = moments(&all);
        let divisor = if self.std { spread.deviation(Deviation::Sample) + *self.epsilon } else { 1.0 };
        // Without spread there is nothing to divide, rounding noise least of all.
        let scale = if spread.squares == 0.0 { 0.0 } else { 1.0 / divisor };

        let leaves = below(group, &outcomes);
        let relative: Vec<Option<f64>> = leaves.iter().map(|x| mean(x).map(|m| (m - spread.mean) * scale)).collect();
        let (nodes, visits) = self.prefixes(group, &leaves, Node { n: all.len(), sum: all.iter().sum() });
        // What step `k` of turn `t` adds where paths part; nothing where all go on together.
        let correction = |t: usize, k: usize| {
            let (before, after) = (nodes[*visits[t].get(k)?], nodes[*visits[t].get(k + 1)?]);
            let parts = after.n < before.n;
            parts.then(|| (after.sum / after.n as f64 - before.sum / before.n as f64) * scale)
        };
        match self.prefix {
            Prefix::Actions => {
                let turn = |t: usize| relative[t].map(|a| a + correction(t, ACTION).unwrap_or(0.0));
                Advantages { turns: (0..group.n_turns()).map(turn).collect(), tokens: Vec::new() }
            }
            Prefix::Tokens => {
                let at = &group.batch().sampled.at[group.sampled()];
                let token = |t: usize, i: usize| Some(relative[t]? + correction(t, at[i] as usize)?);
                let tokens = (0..group.n_turns()).flat_map(|t| group.sampled_of(t).map(move |i| (t, i)));
                Advantages { tokens: tokens.map(|(t, i)| token(t, i)).collect(), turns: relative }
            }
        }
    }

    /// The tree of prefixes, and which of its nodes each turn runs through: before its first step, then after each.
    fn prefixes(&self, group: Group<'_>, leaves: &[Vec<f64>], root: Node) -> (Vec<Node>, Vec<Vec<usize>>) {
        let mut nodes = vec![root];
        let mut next: BTreeMap<(usize, u32), usize> = BTreeMap::new();
        let mut visits: Vec<Vec<usize>> = vec![Vec::new(); group.n_turns()];
        for t in (0..group.n_turns()).filter(|t| !leaves[*t].is_empty()) {
            let mut at = group.parent(t).map_or(0, |p| *visits[p].last().expect("a parent's paths are its children's"));
            let mut visited = vec![at];
            for step in self.steps(group, t) {
                at = *next.entry((at, step)).or_insert(nodes.len());
                if at == nodes.len() {
                    nodes.push(Node::default());
                }
                nodes[at].n += leaves[t].len();
                nodes[at].sum += leaves[t].iter().sum::<f64>();
                visited.push(at);
            }
            visits[t] = visited;
        }
        (nodes, visits)
    }

    /// What turn `t` adds to its prefix, step by step.
    fn steps(&self, group: Group<'_>, t: usize) -> Vec<u32> {
        let batch = group.batch();
        match self.prefix {
            Prefix::Tokens => batch.tokens[batch.turns.tokens[group.rows().start + t].range()].to_vec(),
            Prefix::Actions => vec![group.observations()[t], group.actions()[t]],
        }
    }
}

/// Place of the action among a turn's steps.
const ACTION: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, turn};
    use crate::grpo::Grpo;
    use crate::outcome::Mode;
    use crate::outcome::Over;
    use ascribe_core::credit::spread;
    use ascribe_core::log::{Action, TurnLog};
    use ascribe_core::{Batch, End};
    use proptest::prelude::*;

    const PLAIN: fn(Prefix) -> TempoP2t = |prefix| TempoP2t { prefix, std: false, epsilon: verl_epsilon() };

    /// A turn that read and sampled these tokens; its keys are the tokens.
    fn said(parent: Option<usize>, read: &[u32], action: &[u32], reward: f32) -> TurnLog {
        let bytes = |tokens: &[u32]| tokens.iter().map(|t| *t as u8).collect::<Vec<u8>>();
        TurnLog {
            read: read.to_vec(),
            action: Action::given(action.to_vec()),
            observation: bytes(read),
            action_key: bytes(action),
            ..turn(parent, reward)
        }
    }
    fn responses(responses: &[(&[u32], f32)]) -> Batch {
        let turns = responses.iter().map(|(tokens, reward)| said(None, &[9], tokens, *reward)).collect();
        let leaves: Vec<(usize, End)> = (0..responses.len()).map(|t| (t, WON)).collect();
        batch(turns, &leaves)
    }
    fn per_token(estimator: &TempoP2t, batch: &Batch) -> Vec<Option<f32>> {
        let credit = estimator.estimate(batch.group(0), &Now::default()).unwrap();
        credit.check(batch.group(0)).unwrap();
        spread(batch.group(0), &credit).advantage.iter().collect()
    }

    #[test]
    fn tokens_where_paths_part_are_corrected() {
        // "1 2" won, "1 3" lost, "4" lost, "1 2" lost; mean ¼, V(1) = ⅓, V(1 2) = ½, V(1 3) = V(4) = 0
        let group = responses(&[(&[1, 2], 1.0), (&[1, 3], 0.0), (&[4], 0.0), (&[1, 2], 0.0)]);
        let (third, part) = (1.0 / 3.0 - 0.25, 0.5 - 1.0 / 3.0);
        let want = [0.75 + third, 0.75 + part, -0.25 + third, -0.25 - 1.0 / 3.0, -0.5, -0.25 + third, -0.25 + part];
        let got = per_token(&PLAIN(Prefix::Tokens), &group);
        assert!(got.iter().zip(want).all(|(g, w)| (f64::from(g.unwrap()) - w).abs() < 1e-6), "{got:?}, not {want:?}");
    }

    #[test]
    fn the_deviation_divides_the_correction_too() {
        // outcomes 1, 0: deviation 1/√2; (½ + ½)/std at the first token, then ½/std
        let group = responses(&[(&[1, 5], 1.0), (&[2], 0.0)]);
        let got = per_token(&TempoP2t { std: true, ..PLAIN(Prefix::Tokens) }, &group);
        let root = std::f32::consts::SQRT_2;
        assert!(got.iter().zip([root, root / 2.0, -root]).all(|(g, w)| (g.unwrap() - w).abs() < 1e-5), "{got:?}");
    }

    #[test]
    fn what_the_environment_answered_is_nobodys_credit() {
        // the same first action; the answers 7 and 8 part the paths before the second, equal action
        let turns = vec![
            said(None, &[9], &[1], 0.0),
            said(Some(0), &[7], &[2], 1.0),
            said(None, &[9], &[1], 0.0),
            said(Some(2), &[8], &[2], 0.0),
        ];
        let group = batch(turns, &[(1, WON), (3, LOST)]);
        let grpo = [Some(0.5), Some(0.5), Some(-0.5), Some(-0.5)];
        assert_eq!(per_token(&PLAIN(Prefix::Tokens), &group), grpo);
        assert_eq!(per_token(&PLAIN(Prefix::Actions), &group), grpo);
    }

    #[test]
    fn branches_and_equal_beginnings_are_one_prefix() {
        // one forest with a shared turn, one of chains that say the same; the shared turn gets the mean of its leaves
        let tree = vec![said(None, &[9], &[1], 0.0), said(Some(0), &[7], &[2], 1.0), said(Some(0), &[7], &[3], 0.0)];
        let tree = batch(tree, &[(1, WON), (2, LOST)]);
        for prefix in [Prefix::Tokens, Prefix::Actions] {
            assert_eq!(per_token(&PLAIN(prefix), &tree), [Some(0.0), Some(1.0), Some(-1.0)], "{prefix:?}");
        }
    }

    #[test]
    fn what_was_not_tried_is_in_no_prefix() {
        let turns = vec![said(None, &[9], &[1], 1.0), said(None, &[9], &[2], 0.0), said(None, &[9], &[1], 5.0)];
        let group = batch(turns, &[(0, WON), (1, LOST), (2, End::Untried)]);
        assert_eq!(per_token(&PLAIN(Prefix::Tokens), &group), [Some(1.0), Some(-1.0), None]);
    }

    #[test]
    fn a_group_of_one_and_equal_outcomes_give_zero() {
        for n in 1..6 {
            let equal: Vec<(&[u32], f32)> =
                [&[1, 2][..], &[1, 3], &[4], &[1, 2, 5], &[6]][..n].iter().map(|t| (*t, 0.1)).collect();
            for std in [true, false] {
                let estimator = TempoP2t { std, ..PLAIN(Prefix::Tokens) };
                assert!(per_token(&estimator, &responses(&equal)).iter().all(|a| *a == Some(0.0)));
            }
        }
    }

    fn groups() -> impl Strategy<Value = Vec<(Vec<u32>, u8)>> {
        // The last token differs in all, so that no path has a twin.
        let response = (prop::collection::vec(0u32..3, 1..5), 0u8..3);
        prop::collection::vec(response, 2..8).prop_map(|group| {
            let unique = |(i, (mut tokens, r)): (usize, (Vec<u32>, u8))| {
                tokens.push(10 + i as u32);
                (tokens, r)
            };
            group.into_iter().enumerate().map(unique).collect()
        })
    }

    proptest! {
        #[test]
        fn corrections_along_a_path_sum_to_its_grpo_advantage(group in groups()) {
            let rows: Vec<(&[u32], f32)> = group.iter().map(|(t, r)| (&t[..], f32::from(*r))).collect();
            let group = responses(&rows);
            let group = group.group(0);
            let Advantages { turns, tokens } = TempoP2t { std: true, ..PLAIN(Prefix::Tokens) }.advantages(group);
            for (t, base) in turns.into_iter().map(Option::unwrap).enumerate() {
                let sum: f64 = group.sampled_of(t).filter_map(|i| tokens[i]).map(|a| a - base).sum();
                prop_assert!((sum - base).abs() < 1e-9);
            }
        }

        #[test]
        fn where_nothing_parts_it_is_grpo_in_any_order(group in groups()) {
            let rows: Vec<(&[u32], f32)> = group.iter().map(|(t, r)| (&t[..], f32::from(*r))).collect();
            let reversed: Vec<(&[u32], f32)> = rows.iter().rev().copied().collect();
            let (straight, back) = (responses(&rows), responses(&reversed));
            let estimator = TempoP2t { std: true, ..PLAIN(Prefix::Tokens) };
            let grpo = Grpo { std: true, epsilon: verl_epsilon(), mode: Mode::Paper, over: Over::Trajectories };
            let grpo = grpo.estimate(straight.group(0), &Now::default()).unwrap().turns;
            let turns = estimator.estimate(straight.group(0), &Now::default()).unwrap().turns;
            prop_assert!(turns.iter().zip(&grpo).all(|(a, b)| (a.unwrap() - b.unwrap()).abs() < 1e-5));
            let (a, b) = (per_token(&estimator, &straight), per_token(&estimator, &back));
            let n = rows.len();
            for t in 0..n {
                let mine = straight.group(0).sampled_of(t).map(|i| a[i].unwrap());
                let theirs = back.group(0).sampled_of(n - 1 - t).map(|i| b[i].unwrap());
                prop_assert!(mine.zip(theirs).all(|(x, y)| (x - y).abs() < 1e-5));
            }
        }
    }
}
