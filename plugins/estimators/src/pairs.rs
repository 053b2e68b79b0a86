//! Preference pairs: which of two paths, or of two turns from one state, came to more.
//!
//! `(chosen, rejected)` with `score(chosen) − score(rejected) ≥ max(minimum_gap, 0⁺)`; a path's score is its outcome, a
//! turn's the mean outcome of the paths below it. With `column` a turn's score is its number in that column, which a critic gave, and a
//! path's their sum. The chosen one's turns get advantage 1, the rejected one's −1, what is in no pair is not trained.
//!
//! Rafailov et al. 2023, "Direct Preference Optimization", arXiv 2305.18290, for the pairs' use; on-line pairs of siblings as
//! in Choudhury 2025, "AgentPRM", arXiv 2502.10325 (sanjibanc/agent_prm: ties are dropped). Reductions: an objective that is
//! no preference loss sees the sign of a comparison: two paths give GRPO's sign. Edge cases: ties make no pair, nor does a
//! group of one. Paths that were not tried have no outcome and are in no pair, but for their last turn where a column says what it
//! is worth: with rollout `best-of-n` the candidates of a turn are compared. A turn without a number is in no pair, nor is a
//! path with one.
//!
//! A path is in at most one pair, because it makes one row, and a row goes with one other: pairs are taken from the
//! greatest gap down. What both paths of a pair, or several paths in pairs, have in common is not trained: a pair is about
//! what differs. A turn of a pair that an earlier path shares stands in that path's row, and is not trained either.

use ascribe_core::credit::Bundle;
use ascribe_core::range::NonNegative;
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, Scope, Trajectory, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forest::{Forest, below, mean};
use crate::paths::outcomes_of_tried;

/// `[estimator.pairs]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pairs {
    /// What is compared.
    pub of: Of,
    /// Which of them make pairs.
    pub pairs: Which,
    /// Least difference of scores, 0 or more; equal scores make no pair in any case.
    pub minimum_gap: NonNegative,
    /// A column on turns that they are compared by; without it by outcomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Of {
    /// Turns that start from the same state of the tree; only these turns are trained.
    Siblings,
    /// Paths of the group.
    Trajectories,
}

/// Which members of a comparison make pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// The best with the worst.
    BestWorst,
    /// The best with the worst, the second best with the second worst, and so on.
    Matched,
}

plugin! {
    Estimator "pairs" {
        summary: "Preference pairs of paths, or of turns from one state: the better outcome is chosen.",
        source: "Rafailov et al. 2023, DPO, arXiv 2305.18290; Choudhury 2025, AgentPRM, arXiv 2502.10325",
        when: "Before a preference loss on what the policy itself sampled. Of siblings with rollouts that branch, else of trajectories; with a policy-gradient loss `rloo` uses the sizes too.",
        example: "of = \"trajectories\"\npairs = \"best-worst\"\nminimum_gap = 0.0",
        module: "pairs.rs",
    }
    impl AdvantageEstimator for Pairs {
        fn needs(&self) -> Vec<Need> {
            let column = self.column.as_ref().map(|column| Need::Signal(column.clone(), Scope::Turn));
            // Candidates of a turn are siblings even in a group of one.
            let two = (self.of == Of::Trajectories || column.is_none()).then_some(Need::GroupOfAtLeast(2));
            column.into_iter().chain(two).collect()
        }

        fn laws(&self) -> Vec<Law> {
            if self.column.is_some() {
                // Outcomes are not read.
                return Vec::new();
            }
            let scale = (*self.minimum_gap == 0.0).then_some(Law::ScaleFree);
            [Law::Shift, Law::NoSpreadNoCredit].into_iter().chain(scale).collect()
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let first = first_paths(group);
            let comparisons = match self.of {
                Of::Trajectories => vec![paths(&self.scores_of_paths(group))],
                Of::Siblings => siblings(group, &self.scores_of_turns(group), &first),
            };
            let pairs = disjoint(comparisons.into_iter().flat_map(|members| self.pairs_among(members)).collect());
            let turns = match self.of {
                Of::Trajectories => turns_apart(group, &pairs, &first),
                Of::Siblings => turns_chosen(group, &pairs),
            };
            let bundles = pairs.iter().map(|pair| Bundle { chosen: pair.chosen.path, rejected: pair.rejected.path });
            Ok(Credit { bundles: bundles.collect(), turns, ..Credit::default() })
        }
    }
}

/// One of those compared.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// The path whose row it trains in.
    path: usize,
    /// The turn, where turns are compared.
    turn: Option<usize>,
    score: f64,
}

/// Two members.
#[derive(Clone, Copy, Debug)]
struct Pair {
    chosen: Member,
    rejected: Member,
}
impl Pair {
    fn gap(&self) -> f64 {
        self.chosen.score - self.rejected.score
    }
}

impl Pairs {
    /// What each path came to; `None` where it was not tried, or a turn of it has no number. `[paths]`
    fn scores_of_paths(&self, group: Group<'_>) -> Vec<Option<f64>> {
        let outcomes = outcomes_of_tried(group);
        let Some(column) = &self.column else { return outcomes };
        let turns: Vec<Option<f64>> = group.turn_signal(column).map(|x| x.map(f64::from)).collect();
        let sum = |path: Trajectory<'_>| path.turns().into_iter().map(|t| turns[t]).sum::<Option<f64>>();
        group.trajectories().zip(outcomes).map(|(path, outcome)| outcome.and_then(|_| sum(path))).collect()
    }

    /// What each turn came to; `None` where nothing below it was tried, or it has no number. `[turns]`
    fn scores_of_turns(&self, group: Group<'_>) -> Vec<Option<f64>> {
        match &self.column {
            Some(column) => group.turn_signal(column).map(|x| x.map(f64::from)).collect(),
            None => below(group, &outcomes_of_tried(group)).iter().map(|leaves| mean(leaves)).collect(),
        }
    }

    /// Pairs among members that are comparable. Equal scores keep their order.
    fn pairs_among(&self, mut members: Vec<Member>) -> Vec<Pair> {
        members.sort_by(|a, b| b.score.total_cmp(&a.score));
        let most = match self.pairs {
            Which::BestWorst => 1,
            Which::Matched => members.len() / 2,
        };
        let pairs = members.iter().zip(members.iter().rev()).take(most);
        pairs
            .map(|(chosen, rejected)| Pair { chosen: *chosen, rejected: *rejected })
            .filter(|pair| pair.gap() > 0.0 && pair.gap() >= *self.minimum_gap)
            .collect()
    }
}

/// The first path through each turn: the one whose row trains it. `[turns]`
fn first_paths(group: Group<'_>) -> Vec<usize> {
    let mut first = vec![0; group.n_turns()];
    let paths: Vec<_> = group.trajectories().enumerate().collect();
    for (i, path) in paths.into_iter().rev() {
        path.turns_up().for_each(|t| first[t] = i);
    }
    first
}

/// All paths that were tried.
fn paths(outcomes: &[Option<f64>]) -> Vec<Member> {
    let member = |(path, score): (usize, &Option<f64>)| score.map(|score| Member { path, turn: None, score });
    outcomes.iter().enumerate().filter_map(member).collect()
}

/// The turns that start from each state.
fn siblings(group: Group<'_>, scores: &[Option<f64>], first: &[usize]) -> Vec<Vec<Member>> {
    let forest = Forest::of(group, |_| true);
    let member = |t: &usize| scores[*t].map(|score| Member { path: first[*t], turn: Some(*t), score });
    std::iter::once(&forest.roots).chain(&forest.children).map(|turns| turns.iter().filter_map(member).collect()).collect()
}

/// Pairs from the greatest gap down, each path in at most one.
fn disjoint(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.sort_by(|a, b| b.gap().total_cmp(&a.gap()));
    let mut taken = Vec::new();
    pairs.retain(|pair| {
        let free = ![pair.chosen.path, pair.rejected.path].iter().any(|path| taken.contains(path));
        if free {
            taken.extend([pair.chosen.path, pair.rejected.path]);
        }
        free
    });
    pairs
}

/// 1 and −1 for the turns that are compared.
fn turns_chosen(group: Group<'_>, pairs: &[Pair]) -> Vec<Option<f32>> {
    let mut turns = vec![None; group.n_turns()];
    for pair in pairs {
        for (member, advantage) in [(pair.chosen, 1.0), (pair.rejected, -1.0)] {
            turns[member.turn.expect("siblings are turns")] = Some(advantage);
        }
    }
    turns
}

/// 1 and −1 for the turns of paths in pairs that no other path in a pair, and no earlier path, has too.
fn turns_apart(group: Group<'_>, pairs: &[Pair], first: &[usize]) -> Vec<Option<f32>> {
    let mut sign = vec![None; group.n_trajectories()];
    for pair in pairs {
        sign[pair.chosen.path] = Some(1.0);
        sign[pair.rejected.path] = Some(-1.0);
    }
    let mut n_members = vec![0; group.n_turns()];
    for (path, _) in group.trajectories().zip(&sign).filter(|(_, sign)| sign.is_some()) {
        path.turns_up().for_each(|t| n_members[t] += 1);
    }
    (0..group.n_turns()).map(|t| sign[first[t]].filter(|_| n_members[t] == 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, chains, turn};
    use ascribe_core::{Batch, End};
    use proptest::prelude::*;

    fn pairs(of: Of, pairs: Which, gap: f64) -> Pairs {
        Pairs { of, pairs, minimum_gap: NonNegative::try_from(gap).unwrap(), column: None }
    }
    fn estimate(estimator: &Pairs, batch: &Batch) -> (Vec<(usize, usize)>, Vec<Option<f32>>) {
        let credit = estimator.estimate(batch.group(0), &Now::default()).unwrap();
        credit.check(batch.group(0)).unwrap();
        (credit.bundles.iter().map(|b| (b.chosen, b.rejected)).collect(), credit.turns)
    }
    fn outcomes(rewards: &[f32]) -> Batch {
        let rewards: Vec<[f32; 1]> = rewards.iter().map(|r| [*r]).collect();
        let paths: Vec<(&[f32], End)> = rewards.iter().map(|r| (&r[..], WON)).collect();
        chains(&paths)
    }

    #[test]
    fn best_and_worst_or_inwards_from_them() {
        let group = outcomes(&[0.25, 1.0, 0.0, 0.75, 0.5]);
        let best = pairs(Of::Trajectories, Which::BestWorst, 0.0);
        assert_eq!(estimate(&best, &group), (vec![(1, 2)], vec![None, Some(1.0), Some(-1.0), None, None]));
        let matched = pairs(Of::Trajectories, Which::Matched, 0.0);
        let signs = vec![Some(-1.0), Some(1.0), Some(-1.0), Some(1.0), None];
        assert_eq!(estimate(&matched, &group), (vec![(1, 2), (3, 0)], signs));
        let far = pairs(Of::Trajectories, Which::Matched, 0.75);
        assert_eq!(estimate(&far, &group).0, [(1, 2)]);
    }

    #[test]
    fn ties_and_groups_of_one_make_no_pair() {
        for which in [Which::BestWorst, Which::Matched] {
            for rewards in [&[0.5f32, 0.5, 0.5][..], &[0.5]] {
                let none = (Vec::new(), vec![None; rewards.len()]);
                assert_eq!(estimate(&pairs(Of::Trajectories, which, 0.0), &outcomes(rewards)), none);
                assert_eq!(estimate(&pairs(Of::Siblings, which, 0.0), &outcomes(rewards)), none);
            }
        }
    }

    #[test]
    fn what_was_not_tried_is_in_no_pair() {
        let group = chains(&[(&[1.0], WON), (&[9.0], End::Untried), (&[0.0], LOST)]);
        for of in [Of::Trajectories, Of::Siblings] {
            let both = (vec![(0, 2)], vec![Some(1.0), None, Some(-1.0)]);
            assert_eq!(estimate(&pairs(of, Which::Matched, 0.0), &group), both);
        }
    }

    /// Turn 0 forks into 1 (won) and 2 (lost); 3 is another start (a half).
    fn tree() -> Batch {
        let turns = vec![turn(None, 0.0), turn(Some(0), 1.0), turn(Some(0), 0.0), turn(None, 0.25)];
        batch(turns, &[(1, WON), (2, LOST), (3, LOST)])
    }

    #[test]
    fn a_column_compares_what_was_not_tried_too() {
        // A path of two turns, each with two candidates that were not made; the second turn's last one has no number.
        let turns =
            vec![turn(None, 0.0), turn(Some(0), 1.0), turn(None, 0.0), turn(None, 0.0), turn(Some(0), 0.0), turn(Some(0), 0.0)];
        let untried = |t| (t, End::Untried);
        let mut group = batch(turns, &[(1, WON), untried(2), untried(3), untried(4), untried(5)]);
        let column = [Some(3.0), Some(4.0), Some(-1.0), Some(2.0), Some(1.0), None].into_iter().collect();
        let signal = ascribe_core::Signal { scope: Scope::Turn, provider: "test".into(), column };
        group.add_signal("q", signal).unwrap();
        let by_column = |of, which| Pairs { column: Some("q".into()), ..pairs(of, which, 0.0) };
        // The first turn's gap is 4, the second's 3; both are won by path 0, which is in one pair.
        let best = estimate(&by_column(Of::Siblings, Which::BestWorst), &group);
        assert_eq!(best, (vec![(0, 1)], vec![Some(1.0), None, Some(-1.0), None, None, None]));
        assert_eq!(estimate(&by_column(Of::Trajectories, Which::Matched), &group).0, []);
        assert_eq!(estimate(&pairs(Of::Siblings, Which::Matched, 0.0), &group).0, []);
        assert_eq!(by_column(Of::Siblings, Which::Matched).needs(), [Need::Signal("q".into(), Scope::Turn)]);
    }

    #[test]
    fn a_path_is_compared_by_the_sum_of_its_column() {
        let mut group = chains(&[(&[1.0, 0.0], WON), (&[0.0, 0.0], LOST), (&[5.0, 0.0], LOST)]);
        let column = [Some(0.5), Some(0.5), Some(2.0), Some(0.0), Some(9.0), None].into_iter().collect();
        let signal = ascribe_core::Signal { scope: Scope::Turn, provider: "test".into(), column };
        group.add_signal("q", signal).unwrap();
        let by_column = Pairs { column: Some("q".into()), ..pairs(Of::Trajectories, Which::BestWorst, 0.0) };
        assert_eq!(estimate(&by_column, &group).0, [(1, 0)]);
    }

    #[test]
    fn what_a_pair_has_in_common_is_not_trained() {
        let got = estimate(&pairs(Of::Trajectories, Which::BestWorst, 0.0), &tree());
        assert_eq!(got, (vec![(0, 1)], vec![None, Some(1.0), Some(-1.0), None]));
    }

    #[test]
    fn siblings_are_compared_where_they_part() {
        // The fork's gap is 1, that of the starts ½ − ¼; path 0 stands for turn 0 as for turn 1, and is in one pair.
        let got = estimate(&pairs(Of::Siblings, Which::Matched, 0.0), &tree());
        assert_eq!(got, (vec![(0, 1)], vec![None, Some(1.0), Some(-1.0), None]));
    }

    #[test]
    fn a_turn_in_another_paths_row_is_not_trained() {
        // Path 0 (a half) shares turn 0 with path 1 (won) and comes first; the pair is path 1 with path 2.
        let turns = vec![turn(None, 0.0), turn(Some(0), 0.5), turn(Some(0), 1.0), turn(None, 0.0)];
        let tree = batch(turns, &[(1, LOST), (2, WON), (3, LOST)]);
        let got = estimate(&pairs(Of::Trajectories, Which::BestWorst, 0.0), &tree);
        assert_eq!(got, (vec![(1, 2)], vec![None, None, Some(1.0), Some(-1.0)]));
    }

    proptest! {
        #[test]
        fn pairs_are_disjoint_and_the_chosen_came_to_more(rewards in prop::collection::vec(0u8..6, 1..12), gap in 0u8..3) {
            let rewards: Vec<f32> = rewards.into_iter().map(f32::from).collect();
            let group = outcomes(&rewards);
            let best = estimate(&pairs(Of::Trajectories, Which::BestWorst, f64::from(gap)), &group).0;
            let (bundles, turns) = estimate(&pairs(Of::Trajectories, Which::Matched, f64::from(gap)), &group);
            let mut members: Vec<usize> = bundles.iter().flat_map(|(a, b)| [*a, *b]).collect();
            members.sort_unstable();
            prop_assert!(members.windows(2).all(|w| w[0] < w[1]));
            for (chosen, rejected) in &bundles {
                prop_assert!(rewards[*chosen] > rewards[*rejected]);
                prop_assert!(rewards[*chosen] - rewards[*rejected] >= f32::from(gap));
                prop_assert_eq!((turns[*chosen], turns[*rejected]), (Some(1.0), Some(-1.0)));
            }
            prop_assert_eq!(turns.iter().flatten().count(), members.len());
            prop_assert_eq!(best.first(), bundles.first());
        }

        #[test]
        fn the_scores_of_pairs_do_not_depend_on_the_order(rewards in prop::collection::vec(0u8..6, 1..12)) {
            let rewards: Vec<f32> = rewards.into_iter().map(f32::from).collect();
            let reversed: Vec<f32> = rewards.iter().rev().copied().collect();
            let scores = |rewards: &[f32]| {
                let bundles = estimate(&pairs(Of::Siblings, Which::Matched, 0.0), &outcomes(rewards)).0;
                bundles.into_iter().map(|(a, b)| (rewards[a], rewards[b])).collect::<Vec<_>>()
            };
            let (mut a, mut b) = (scores(&rewards), scores(&reversed));
            a.sort_by(|x, y| x.partial_cmp(y).unwrap());
            b.sort_by(|x, y| x.partial_cmp(y).unwrap());
            prop_assert_eq!(a, b);
        }
    }
}
