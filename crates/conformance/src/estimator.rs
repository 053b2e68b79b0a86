//! Checks of estimators.

use std::collections::BTreeMap;

use ascribe_core::credit::spread;
use ascribe_core::log::{GroupLog, LeafLog, TurnLog};
use ascribe_core::{AdvantageEstimator, Batch, Credit, End, EstimateError, Law, Limit, Need, Now, RowSet, Scope};

use crate::groups::{self, Case, LOST, WON, batch, chains, odd, push_path, random_chains, random_forest, turn, with_history};
use crate::{Check, Finding, Outcome, Report, caught, check};

/// Random groups per check.
const SEEDS: u64 = 24;

/// Holds an estimator to what all must keep and to what it claims.
pub fn estimator(estimator: &dyn AdvantageEstimator) -> Report {
    let (needs, claimed) = match caught(|| Ok::<_, Finding>((estimator.needs(), estimator.laws()))) {
        Ok(said) => said,
        Err(why) => return Report(vec![Check { what: "it says what it needs and claims", outcome: Outcome::Broken(why) }]),
    };
    let it = Subject { needs, estimator };
    let mut checks = vec![
        check("credit fits the group and is finite", it.all_groups(), |case| it.credit(&case).map(drop)),
        check("the same group gives the same credit", it.all_groups(), |case| it.is_pure(&case)),
        check("a turn shared by paths has one number, on rows once", it.all_groups(), |case| it.rows_are_whole(&case)),
        check("a group's credit is its own", it.all_groups(), |case| it.ignores_other_groups(&case)),
        check("it reads the columns it declares and no others", it.all_groups(), |case| it.ignores_other_columns(&case)),
        check("what was fed, and frozen history, change nothing", it.all_groups(), |case| it.ignores_what_was_fed(&case)),
        check("what failed is not seen", it.all_groups(), |case| it.ignores_what_failed(&case)),
        check("what was not tried moves nobody", 0..SEEDS, |seed| it.ignores_the_untried(seed)),
        check("paths in another order get the same credit", 0..SEEDS, |seed| it.ignores_order(seed)),
    ];
    for law in [Law::Shift, Law::Scale, Law::ScaleFree, Law::NoSpreadNoCredit, Law::SumToZero, Law::Telescoping, Law::Bootstraps]
    {
        let what = words(law);
        checks.push(if claimed.contains(&law) || law == Law::Bootstraps {
            check(what, 0..SEEDS, |seed| it.keeps(law, claimed.contains(&law), seed))
        } else {
            Check { what, outcome: Outcome::NotAsked("not claimed".into()) }
        });
    }
    Report(checks)
}

/// Whether an estimator answers at all, on a plain group: one that calls a program that is not there does not.
///
/// # Errors
/// What it says. A panic is none: the checks find it.
pub fn runs(estimator: &dyn AdvantageEstimator) -> Result<(), EstimateError> {
    let answer: Result<_, String> = caught(|| {
        let log = chains(&[(vec![(1, 0.0), (1, 1.0)], WON), (vec![(1, 0.0)], LOST)]);
        let batch = batch(vec![log], &estimator.needs(), 1.0)?;
        Ok(estimator.estimate(batch.group(0), &Now::default()).map(drop))
    });
    answer.unwrap_or(Ok(()))
}

fn words(law: Law) -> &'static str {
    match law {
        Law::Shift => "claimed: the same amount more for every outcome changes nothing",
        Law::Scale => "claimed: advantages scale with rewards and values",
        Law::ScaleFree => "claimed: the scale of rewards and values changes nothing",
        Law::NoSpreadNoCredit => "claimed: equal outcomes give exactly 0",
        Law::SumToZero => "claimed: a group's paths sum to 0",
        Law::Telescoping => "claimed: advantages along a path sum to outcome minus the start's value",
        Law::Bootstraps => "cut by a limit differs from ended where it claims to bootstrap, and nowhere else",
        Law::Ascent => "claimed: the mean update points uphill",
    }
}

/// What is checked.
struct Subject<'a> {
    estimator: &'a dyn AdvantageEstimator,
    needs: Vec<Need>,
}

/// Advantages by the turn's label: per sampled token, and the turn's own where it has no tokens.
type ByLabel = BTreeMap<String, Vec<Option<f32>>>;

impl Subject<'_> {
    fn all_groups(&self) -> Vec<Case> {
        let chains_only = self.needs.contains(&Need::Chains);
        let random = (0..SEEDS).flat_map(|seed| {
            [("chains", random_chains(seed)), ("forest", random_forest(seed))]
                .map(|(name, log)| Case { name: format!("{name} {seed}"), log })
        });
        let is_chains = |log: &GroupLog| {
            let parents: Vec<_> = log.turns.iter().filter_map(|t| t.parent).collect();
            parents
                .iter()
                .all(|p| parents.iter().filter(|q| *q == p).count() == 1 && !log.leaves.iter().any(|l| l.turn == Some(*p)))
        };
        odd().into_iter().chain(random).filter(|case| !chains_only || is_chains(&case.log)).collect()
    }

    fn batch(&self, logs: Vec<GroupLog>) -> Result<Batch, String> {
        batch(logs, &self.needs, 1.0)
    }

    /// Credit of one group of a batch, checked.
    fn estimate(&self, batch: &Batch, g: usize) -> Result<Credit, String> {
        let group = batch.group(g);
        let credit = self.estimator.estimate(group, &Now::default()).map_err(|e| e.to_string())?;
        credit.check(group)?;
        if let Some(span) = credit.spans.iter().find(|span| {
            let row = group.rows().start + span.turn;
            let action = batch.turns.tokens[row].len() as u32 - batch.turns.action_start[row];
            span.start > span.end || span.end > action
        }) {
            return Err(format!(
                "a span credit of turn {} names tokens {}..{}, which its action does not have",
                span.turn, span.start, span.end
            ));
        }
        Ok(credit)
    }

    fn credit(&self, case: &Case) -> Result<Credit, String> {
        let batch = self.batch(vec![case.log.clone()]).map_err(|e| format!("{}: {e}", case.name))?;
        self.estimate(&batch, 0).map_err(|e| format!("{}: {e}", case.name))
    }

    fn by_label(&self, batch: &Batch, g: usize) -> Result<ByLabel, String> {
        let (group, credit) = (batch.group(g), self.estimate(batch, g)?);
        let tokens = spread(group, &credit).advantage;
        let of = |t: usize| {
            let label = batch.notes[group.rows().start + t].privileged.clone().unwrap_or_default();
            let own: Vec<_> = group.sampled_of(t).map(|i| tokens.get(i)).collect();
            (label, if own.is_empty() { vec![credit.turns[t]] } else { own })
        };
        Ok((0..group.n_turns()).map(of).collect())
    }

    fn of_log(&self, log: GroupLog) -> Result<ByLabel, String> {
        self.by_label(&self.batch(vec![log])?, 0)
    }

    fn is_pure(&self, case: &Case) -> Result<(), String> {
        let (a, b) = (self.credit(case)?, self.credit(case)?);
        if a == b { Ok(()) } else { Err(format!("{}: another credit the second time", case.name)) }
    }

    fn rows_are_whole(&self, case: &Case) -> Result<(), String> {
        let batch = self.batch(vec![case.log.clone()])?;
        let credit = self.estimate(&batch, 0)?;
        let group = batch.group(0);
        let trained = spread(group, &credit).advantage.iter_present().count();
        let rows = RowSet::from_credit(&batch, &[credit], None);
        // What is not trained is on no row, and so in no denominator.
        let all: Vec<u32> = (0..rows.len() as u32).collect();
        if rows.n_trained() == trained && rows.totals(&all).tokens == trained as u64 {
            Ok(())
        } else {
            Err(format!("{}: {trained} tokens have credit, rows train {}", case.name, rows.n_trained()))
        }
    }

    fn ignores_other_groups(&self, case: &Case) -> Result<(), String> {
        let alone = self.of_log(case.log.clone())?;
        let among = self.batch(vec![random_chains(91), case.log.clone(), random_chains(92)])?;
        same(&case.name, &alone, &self.by_label(&among, 1)?, 0.0)
    }

    fn ignores_other_columns(&self, case: &Case) -> Result<(), String> {
        let declared = self.of_log(case.log.clone())?;
        let mut more = self.batch(vec![case.log.clone()])?;
        for (name, scope) in [("value", Scope::State), ("somebody_elses", Scope::Turn), ("token_value", Scope::Token)] {
            if !more.signals.contains_key(name) {
                groups::add(&mut more, name, scope, 1.0)?;
            }
        }
        same(&case.name, &declared, &self.by_label(&more, 0)?, 0.0)
    }

    fn ignores_what_was_fed(&self, case: &Case) -> Result<(), String> {
        let before = self.of_log(case.log.clone())?;
        let mut other = with_history(case.log.clone());
        for turn in &mut other.turns {
            let sampled = &turn.action.at;
            let fed = (0u32..).zip(&mut turn.action.tokens).filter(|(at, _)| !sampled.contains(at)).map(|(_, token)| token);
            turn.read.iter_mut().chain(fed).for_each(|token| *token += 100);
        }
        same(&case.name, &before, &self.of_log(other)?, 0.0)
    }

    fn ignores_what_failed(&self, case: &Case) -> Result<(), String> {
        let before = self.of_log(case.log.clone())?;
        let mut other = case.log.clone();
        other.turns.push(TurnLog { validity: ascribe_core::log::Validity::Malformed, ..like_roots(&case.log, "failed", 100.0) });
        other.leaves.push(LeafLog { turn: Some(other.turns.len() - 1), end: End::Failed("made up".into()), seed: 0 });
        same(&case.name, &before, &self.of_log(other)?, 0.0)
    }

    fn ignores_the_untried(&self, seed: u64) -> Result<(), String> {
        let log = random_chains(seed);
        let before = self.of_log(log.clone())?;
        let mut other = log.clone();
        other.turns.push(like_roots(&log, "untried", 0.0));
        other.leaves.push(LeafLog { turn: Some(other.turns.len() - 1), end: End::Untried, seed: 0 });
        let mut after = self.of_log(other)?;
        after.remove("untried");
        same(&format!("chains {seed} and one not tried"), &before, &after, 0.0)
    }

    fn ignores_order(&self, seed: u64) -> Result<(), String> {
        let log = random_chains(seed);
        let before = self.of_log(log.clone())?;
        // The same paths, last first.
        let mut other = GroupLog { turns: Vec::new(), leaves: Vec::new(), ..log.clone() };
        for leaf in log.leaves.iter().rev() {
            let mut path: Vec<usize> = std::iter::successors(leaf.turn, |t| log.turns[*t].parent).collect();
            path.reverse();
            let first = other.turns.len();
            for (i, t) in path.iter().enumerate() {
                other.turns.push(TurnLog { parent: (i > 0).then(|| first + i - 1), ..log.turns[*t].clone() });
            }
            other.leaves.push(LeafLog { turn: Some(other.turns.len() - 1), ..leaf.clone() });
        }
        same(&format!("chains {seed}"), &before, &self.of_log(other)?, 1e-5)
    }

    fn keeps(&self, law: Law, claimed: bool, seed: u64) -> Result<(), String> {
        let name = format!("chains {seed}");
        let log = random_chains(seed);
        match law {
            Law::Shift => {
                let mut more = log.clone();
                log.leaves.iter().filter_map(|leaf| leaf.turn).for_each(|t| more.turns[t].reward += 0.5);
                same(&name, &self.of_log(log)?, &self.of_log(more)?, 1e-4)
            }
            Law::Scale | Law::ScaleFree => {
                let mut four = log.clone();
                four.turns.iter_mut().for_each(|t| t.reward *= 4.0);
                let before = self.of_log(log)?;
                let after = self.by_label(&batch(vec![four], &self.needs, 4.0)?, 0)?;
                let factor = if law == Law::Scale { 4.0 } else { 1.0 };
                let wanted = before.into_iter().map(|(label, a)| (label, a.into_iter().map(|a| a.map(|a| factor * a)).collect()));
                // An ε beside a small deviation is what is left of the scale.
                let tolerance = if law == Law::Scale { 1e-4 } else { 1e-2 };
                same(&name, &wanted.collect(), &after, tolerance)
            }
            Law::NoSpreadNoCredit => {
                let lengths: Vec<usize> =
                    log.leaves.iter().map(|leaf| std::iter::successors(leaf.turn, |t| log.turns[*t].parent).count()).collect();
                // A number that f32 rounds: official code finds spread in its noise.
                let path = |n: &usize| (0..*n).map(|t| (1, if t + 1 == *n { 0.1 } else { 0.0 })).collect::<Vec<_>>();
                let equal = chains(&lengths.iter().map(|n| (path(n), WON)).collect::<Vec<_>>());
                let credit = self.of_log(equal)?;
                match credit.iter().find(|(_, a)| a.iter().flatten().any(|a| *a != 0.0)) {
                    None => Ok(()),
                    Some((label, a)) => Err(format!("{name}: outcomes of 0.1 give turn {label} {a:?}")),
                }
            }
            Law::SumToZero => {
                let credit = self.of_log(log.clone())?;
                let last = |leaf: &LeafLog| leaf.turn.and_then(|t| log.turns[t].privileged.clone()).unwrap_or_default();
                let sum: f64 =
                    log.leaves.iter().filter_map(|leaf| credit.get(&last(leaf))?.last().copied().flatten()).map(f64::from).sum();
                if sum.abs() < 1e-4 { Ok(()) } else { Err(format!("{name}: the paths sum to {sum}")) }
            }
            Law::Telescoping => {
                let batch = self.batch(vec![log])?;
                let (group, credit) = (batch.group(0), self.estimate(&batch, 0)?);
                let start = group.state_signal("value").start();
                for (path, outcome) in group.trajectories().zip(group.outcomes()) {
                    let sum: f64 = path.turns_up().filter_map(|t| credit.turns[t]).map(f64::from).sum();
                    if (sum - (outcome - start)).abs() > 1e-4 {
                        return Err(format!("{name}: a path sums to {sum}, its outcome is {outcome}, its start worth {start}"));
                    }
                }
                Ok(())
            }
            Law::Bootstraps => {
                let of = |end: End| {
                    let mut log = chains(&[(vec![(1, 0.0), (2, 0.5)], end), (vec![(1, 0.0)], LOST)]);
                    push_path(&mut log, &format!("third {seed}"), &[(2, 0.25)], WON);
                    self.of_log(log)
                };
                let differs = of(LOST)? != of(End::Truncated(Limit::Turns))?;
                match (claimed, differs) {
                    (true, false) => Err("it claims to bootstrap, and a cut path gets the credit of one that ended".into()),
                    (false, true) => Err("a cut path gets other credit than one that ended, which it does not claim".into()),
                    _ => Ok(()),
                }
            }
            // Asked of a policy whose gradient is known: not a question about one group.
            Law::Ascent => Ok(()),
        }
    }
}

/// A turn from the same start as the others.
fn like_roots(log: &GroupLog, label: &str, reward: f32) -> TurnLog {
    let own = turn(label, None, 2, reward);
    match log.turns.iter().find(|t| t.parent.is_none()) {
        Some(root) => TurnLog { observation: root.observation.clone(), state: root.state.clone(), ..own },
        None => own,
    }
}

/// Whether two credits are the same, turn by turn.
fn same(name: &str, a: &ByLabel, b: &ByLabel, tolerance: f32) -> Result<(), String> {
    let close = |x: &Option<f32>, y: &Option<f32>| match (x, y) {
        (Some(x), Some(y)) => (x - y).abs() <= tolerance * (1.0 + x.abs().max(y.abs())),
        (x, y) => x == y,
    };
    for (label, x) in a {
        let y = b.get(label).ok_or_else(|| format!("{name}: turn {label} is gone"))?;
        if x.len() != y.len() || !x.iter().zip(y).all(|(x, y)| close(x, y)) {
            return Err(format!("{name}: turn {label} gets {y:?} instead of {x:?}"));
        }
    }
    Ok(())
}
