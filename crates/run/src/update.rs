//! One update of one policy node: the `old` column, epochs of minibatches, a step each.

use std::sync::Arc;

use ascribe_core::experiment::{Old, Update};
use ascribe_core::ledger::Ledger;
use ascribe_core::need::Need;
use ascribe_core::objective::{DiffColumn, Sums};
use ascribe_core::policy::{Part, PolicyError, ScoreRequest};
use ascribe_core::rows::column::{BEHAVIOR_LOGPROB, OLD_LOGPROB};
use ascribe_core::{Column, Draw, Metrics, Now, Objective, Policy, RowSet, Seeds};

/// Updates between two comparisons of the sampler's log-probabilities with the trainer's, and the rows compared.
const COMPARE_EVERY: u32 = 10;
const COMPARE_ROWS: usize = 16;

/// A policy node that is trained.
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// The policy.
    pub policy: &'a mut dyn Policy,
    /// Whether it sampled actions of the batch: then its log-probabilities are compared with the sampler's.
    pub acted: bool,
}

/// What somebody wants trained on a policy node.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The rows.
    pub rows: Arc<RowSet>,
    /// What to descend.
    pub objective: &'a dyn Objective,
    /// Factor on its coefficients.
    pub scale: f64,
}

/// Why an update failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// The policy failed.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// Somebody asked for a node that does not exist.
    #[error("there is no policy node of that name")]
    NoNode,
    /// Ratios were asked of tokens that nobody sampled.
    #[error(
        "an objective forms ratios with the log-probabilities of the actions, but {missing} of {tokens} trained tokens have none (an \
         expert's actions have no behaviour log-probability): in that phase, use one without ratios (`phase.NAME.objective = \"nll\"`; if it is \
         a critic's, leave the critic out of `train`), `update.old = \"recomputed\"`, or a rollout that samples"
    )]
    NoLogprob {
        /// Tokens without one.
        missing: usize,
        /// Trained tokens.
        tokens: usize,
    },
}

/// Trains a policy node. Everyone who asked shares each step; rows that several ask about are one forward pass. With
/// nothing to train on it does nothing, and says so in the metrics.
///
/// # Errors
/// If the policy fails, or an objective that forms ratios gets tokens without log-probabilities.
pub fn update(
    node: Node<'_>,
    asks: Vec<Ask<'_>>,
    settings: &Update,
    now: &Now,
    seeds: Seeds,
    ledger: &mut Ledger,
) -> Result<Metrics, UpdateError> {
    let Node { name, policy, acted } = node;
    let mut metrics = Metrics::default();
    let (sets, asks) = with_old(policy, acted, asks, settings.old, now, &mut metrics)?;
    let (mut sums, mut norms, mut skipped, mut passes) = (Sums::default(), Vec::new(), 0u32, 0);
    for epoch in 0..settings.epochs.get() {
        let cuts: Vec<Vec<Vec<u32>>> = (0u32..)
            .zip(&sets)
            .map(|(i, rows)| {
                let draw = Draw { update: now.update, group: epoch as u32, member: i, ..Draw::default() };
                minibatches(rows, settings.minibatches.get(), &format!("minibatch/{name}"), draw, seeds)
            })
            .collect();
        for step in 0..settings.minibatches.get() {
            let parts: Vec<Part<'_>> = asks
                .iter()
                .map(|(set, ask)| (ask, &cuts[*set][step][..]))
                .filter(|(_, picked)| !picked.is_empty())
                .map(|(ask, picked)| Part {
                    rows: ask.rows.clone(),
                    picked,
                    totals: ask.rows.totals(picked),
                    objective: ask.objective,
                    scale: ask.scale,
                })
                .collect();
            if parts.is_empty() {
                continue;
            }
            policy.forward_backward(&parts, settings.micro_batch_tokens.get(), now)?.into_iter().for_each(|s| sums.merge(s));
            let report = policy.optim_step(&settings.step())?;
            passes += report.passes;
            if report.skipped {
                skipped += 1;
            } else {
                norms.push(report.gradient_norm);
            }
            for (rows, cut) in sets.iter().zip(&cuts) {
                ledger.trained_tokens += cut[step].iter().map(|r| rows.rows[*r as usize].tokens.len() as u64).sum::<u64>();
            }
        }
    }
    for s in sums.0.into_iter().filter(|s| s.count != 0.0) {
        // Objectives call what they train `actor`; here it has its name.
        let of_node = s.name.strip_prefix("actor/").map(|rest| format!("{name}/{rest}"));
        metrics.set(of_node.unwrap_or(s.name), s.sum / s.count);
    }
    metrics.set(format!("{name}/steps"), norms.len() as f64 + f64::from(skipped));
    metrics.set(format!("{name}/skipped_steps"), f64::from(skipped));
    metrics.set(format!("{name}/backward_passes"), passes as f64);
    metrics.set(format!("{name}/lr"), *settings.learning_rate);
    if !norms.is_empty() {
        metrics.set(format!("{name}/grad_norm"), norms.iter().sum::<f64>() / norms.len() as f64);
    }
    if sets.is_empty() {
        metrics.set(format!("{name}/empty_update"), 1.0);
        tracing::warn!("nothing to train on in update {}: node `{name}` stays as it is", now.update + 1);
    }
    Ok(metrics)
}

/// Cuts a set into `n` minibatches of whole units, of nearly equal number. The order is another one each epoch; with one
/// minibatch it has no meaning and stays as it is.
fn minibatches(rows: &RowSet, n: usize, stream: &str, draw: Draw, seeds: Seeds) -> Vec<Vec<u32>> {
    let mut units = rows.units();
    if n > 1 {
        seeds.rng(stream, draw).shuffle(&mut units);
    }
    (0..n).map(|i| units[i * units.len() / n..(i + 1) * units.len() / n].concat()).collect()
}

/// The different sets of rows that are asked about, and each ask with the place of its set.
type Asked<'a> = (Vec<Arc<RowSet>>, Vec<(usize, Ask<'a>)>);

/// Gives the sets that need one their `old` column, fixed for the whole update.
fn with_old<'a>(
    policy: &mut dyn Policy,
    acted: bool,
    asks: Vec<Ask<'a>>,
    old: Old,
    now: &Now,
    metrics: &mut Metrics,
) -> Result<Asked<'a>, UpdateError> {
    let mut sets: Vec<Arc<RowSet>> = Vec::new();
    let mut asks: Vec<(usize, Ask<'a>)> = asks
        .into_iter()
        .filter(|ask| !ask.rows.is_empty())
        .map(|ask| {
            let set = sets.iter().position(|known| Arc::ptr_eq(known, &ask.rows)).unwrap_or_else(|| {
                sets.push(ask.rows.clone());
                sets.len() - 1
            });
            (set, ask)
        })
        .collect();
    for (i, rows) in sets.iter_mut().enumerate() {
        let needed = asks.iter().any(|(set, ask)| *set == i && ask.objective.needs().contains(&Need::BehaviorLogprob));
        let behavior = rows.columns.get(BEHAVIOR_LOGPROB).cloned().unwrap_or_else(|| Column::absent(rows.n_trained()));
        let column = if needed && old == Old::Recomputed {
            let recomputed = logprobs(policy, rows)?;
            compare(&behavior, &recomputed, metrics);
            Column::full(recomputed)
        } else {
            if acted && now.update.is_multiple_of(COMPARE_EVERY) && behavior.iter_present().next().is_some() {
                let n = rows.len().min(COMPARE_ROWS);
                let some: Vec<u32> = (0..n).map(|r| (r * rows.len() / n) as u32).collect();
                let sample = rows.subset(&some);
                match logprobs(policy, &sample) {
                    Ok(recomputed) => compare(&sample.columns[BEHAVIOR_LOGPROB], &recomputed, metrics),
                    // A policy that cannot score has nothing to be compared with.
                    Err(PolicyError::Unsupported(_)) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            behavior
        };
        if !needed || rows.columns.contains_key(OLD_LOGPROB) {
            continue;
        }
        let missing = column.len() - column.iter_present().count();
        if missing > 0 {
            return Err(UpdateError::NoLogprob { missing, tokens: column.len() });
        }
        let mut own = RowSet::clone(rows);
        own.columns.insert(OLD_LOGPROB.into(), column);
        *rows = Arc::new(own);
    }
    for (set, ask) in &mut asks {
        ask.rows = sets[*set].clone();
    }
    Ok((sets, asks))
}

fn logprobs(policy: &mut dyn Policy, rows: &RowSet) -> Result<Vec<f32>, PolicyError> {
    let request = ScoreRequest { columns: vec![DiffColumn::Logprob], ..ScoreRequest::default() };
    policy
        .score(rows, &request)?
        .columns
        .pop()
        .ok_or_else(|| PolicyError::Unsupported("`score` gave no log-probabilities".into()))
}

/// How far the sampler's log-probabilities lie from the trainer's. Ratios should start at 1.
fn compare(behavior: &Column, recomputed: &[f32], metrics: &mut Metrics) {
    let difference = |i: usize| behavior.get(i).map(|b| f64::from(recomputed[i]) - f64::from(b));
    let mut distance: Vec<f64> = (0..behavior.len()).filter_map(difference).map(f64::abs).collect();
    if distance.is_empty() {
        return;
    }
    distance.sort_by(f64::total_cmp);
    let n = distance.len();
    let outside = (0..behavior.len()).filter_map(difference).filter(|d| !(0.9..=1.1).contains(&d.exp())).count();
    metrics.set("rollout/logprob_mismatch/mean", distance.iter().sum::<f64>() / n as f64);
    metrics.set("rollout/logprob_mismatch/p95", distance[(0.95 * n as f64).ceil() as usize - 1]);
    metrics.set("rollout/logprob_mismatch/max", distance[n - 1]);
    metrics.set("rollout/logprob_mismatch/outside", outside as f64 / n as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::batch::{Batch, NonFinite};
    use ascribe_core::credit::{Bundle, Credit};
    use ascribe_core::log::{Action, End, GroupLog, LeafLog, TurnLog};

    fn rows(chains: usize, bundles: Vec<Bundle>) -> RowSet {
        let turn = |_| TurnLog {
            agent: "actor".into(),
            action: Action { logprob: Some(vec![-1.0]), ..Action::given(vec![5]) },
            ..TurnLog::default()
        };
        let leaf = |t| LeafLog { turn: Some(t), end: End::Terminated { success: true }, seed: 0 };
        let group =
            GroupLog { turns: (0..chains).map(turn).collect(), leaves: (0..chains).map(leaf).collect(), ..GroupLog::default() };
        let batch = Batch::from_groups(vec![group], NonFinite::Refuse).unwrap();
        let credit = Credit { bundles, ..Credit::per_turn(vec![1.0; chains]) };
        RowSet::from_credit(&batch, &[credit], None)
    }

    #[test]
    fn minibatches_hold_each_row_once_and_keep_bundles_whole() {
        let rows = rows(11, vec![Bundle { chosen: 3, rejected: 9 }, Bundle { chosen: 0, rejected: 1 }]);
        for n in [1, 2, 3, 20] {
            let cut = minibatches(&rows, n, "t", Draw::default(), Seeds(0));
            assert_eq!(cut.len(), n);
            let mut all: Vec<u32> = cut.concat();
            all.sort_unstable();
            assert_eq!(all, (0..11).collect::<Vec<u32>>());
            for pair in [[3, 9], [0, 1]] {
                let holding = cut.iter().filter(|m| m.contains(&pair[0])).all(|m| m.contains(&pair[1]));
                assert!(holding, "{n}: {cut:?}");
            }
        }
        let epoch = |group| minibatches(&rows, 3, "t", Draw { group, ..Draw::default() }, Seeds(0));
        assert_ne!(epoch(0), epoch(1));
        assert_eq!(epoch(1), epoch(1));
        assert_eq!(minibatches(&rows, 1, "t", Draw::default(), Seeds(0))[0], rows.units().concat());
    }

    #[test]
    fn mismatch_is_measured_where_there_is_a_behaviour() {
        let behavior: Column = [Some(-1.0), None, Some(-2.0), Some(-0.5)].into_iter().collect();
        let mut m = Metrics::default();
        // |Δ| = 0.5, 0, 0.05
        compare(&behavior, &[-1.5, -9.0, -2.0, -0.55], &mut m);
        assert!((m.get("rollout/logprob_mismatch/mean").unwrap() - 0.55 / 3.0).abs() < 1e-7);
        assert_eq!(m.get("rollout/logprob_mismatch/max"), Some(0.5));
        assert_eq!(m.get("rollout/logprob_mismatch/p95"), Some(0.5));
        assert_eq!(m.get("rollout/logprob_mismatch/outside"), Some(1.0 / 3.0));
    }
}
