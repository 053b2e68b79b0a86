//! Transforms of credit: whitening, clipping, modulation by entropy, filters of groups, and the controls every
//! comparison needs.
//!
//! Their order is the experiment's: modulation comes after a group's own normalisation, whitening once and last.

mod accuracy_window;
mod aem;
mod clip;
mod drop_degenerate;
mod empg;
mod gpg;
mod gtpo;
mod hicra;
mod oracle;
mod random;
mod shuffle;
mod uniform;
mod variance_filter;
mod weigh;
mod whiten;

pub use accuracy_window::AccuracyWindow;
pub use aem::Aem;
pub use clip::Clip;
pub use drop_degenerate::DropDegenerate;
pub use empg::Empg;
pub use gpg::{Gpg, gpg_scale};
pub use gtpo::{Gtpo, Level, Normalise};
pub use hicra::Hicra;
pub use oracle::Oracle;
pub use random::Random;
pub use shuffle::Shuffle;
pub use uniform::Uniform;
pub use variance_filter::VarianceFilter;
pub use weigh::Weigh;
pub use whiten::{Centre, Over, Whiten};

use std::borrow::Cow;

use ascribe_core::credit::spread;
use ascribe_core::{Column, Credit, Group};
use ascribe_math::moments;

/// Changes every advantage that credit holds, at every granularity.
fn update_advantages(credit: &mut Credit, mut change: impl FnMut(&mut f32)) {
    credit.turns.iter_mut().flatten().for_each(&mut change);
    credit.spans.iter_mut().filter_map(|s| s.advantage.as_mut()).for_each(&mut change);
    credit.tokens.update(0..credit.tokens.len(), change);
}

/// Maps every advantage that credit holds, at every granularity, given the turn it belongs to.
fn map_advantages(group: Group<'_>, credit: &mut Credit, map: impl Fn(usize, f64) -> f64) {
    let apply = |t: usize, a: &mut f32| *a = map(t, f64::from(*a)) as f32;
    for (t, a) in credit.turns.iter_mut().enumerate() {
        a.iter_mut().for_each(|a| apply(t, a));
    }
    for span in &mut credit.spans {
        span.advantage.iter_mut().for_each(|a| apply(span.turn, a));
    }
    if !credit.tokens.is_empty() {
        for t in 0..group.n_turns() {
            credit.tokens.update(group.sampled_of(t), |a| apply(t, a));
        }
    }
}

/// The advantage of each sampled token; a gap is not trained. Credit that speaks of tokens alone is not copied.
fn advantages<'a>(group: Group<'_>, credit: &'a Credit) -> Cow<'a, Column> {
    let of_tokens_alone = !credit.tokens.is_empty() && credit.spans.is_empty() && credit.turns.iter().all(Option::is_none);
    if of_tokens_alone { Cow::Borrowed(&credit.tokens) } else { Cow::Owned(spread(group, credit).advantage) }
}

/// Mean advantage over each turn's trained tokens; `None` where none is trained. `[turns]`.
fn turn_means(group: Group<'_>, credit: &Credit) -> Vec<Option<f64>> {
    let tokens = advantages(group, credit);
    let mean = |t: usize| {
        let trained: Vec<f32> = group.sampled_of(t).filter_map(|i| tokens.get(i)).collect();
        (!trained.is_empty()).then(|| moments(&trained).mean)
    };
    (0..group.n_turns()).map(mean).collect()
}

/// Mean entropy in nats over each trained turn's sampled tokens; `None` for a turn that is not trained, or whose tokens
/// were not drawn by a policy. `[turns]`.
fn turn_entropies(group: Group<'_>, credit: &Credit) -> Vec<Option<f64>> {
    let first = group.sampled().start;
    let mean = |(t, trained): (usize, Option<f64>)| {
        trained?;
        let of_turn = group.sampled_of(t).filter_map(|i| group.batch().sampled.entropy.get(first + i));
        let entropies: Vec<f32> = of_turn.collect();
        (!entropies.is_empty()).then(|| moments(&entropies).mean)
    };
    turn_means(group, credit).into_iter().enumerate().map(mean).collect()
}

/// Puts numbers per turn in place of all that credit said; loss weights, targets and bundles are kept.
///
/// Tokens that were not trained stay so: a turn that trained in part gets its number on the tokens that did.
fn replace_turns(group: Group<'_>, credit: &mut Credit, numbers: impl IntoIterator<Item = Option<f64>>) {
    let before = spread(group, credit).advantage;
    credit.spans.clear();
    credit.tokens.clear();
    for (t, number) in numbers.into_iter().enumerate() {
        let number = number.map(|a| a as f32);
        let in_part = group.sampled_of(t).any(|i| before.get(i).is_none());
        credit.turns[t] = number.filter(|_| !in_part);
        if in_part && number.is_some() {
            if credit.tokens.is_empty() {
                credit.tokens = Column::absent(before.len());
            }
            group.sampled_of(t).for_each(|i| credit.tokens.set(i, before.get(i).and(number)));
        }
    }
}

/// Takes a group out of training.
fn untrain(credit: &mut Credit) {
    credit.turns.fill(None);
    credit.spans.clear();
    credit.tokens.clear();
    credit.bundles.clear();
}

#[cfg(test)]
mod fixture {
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
    use ascribe_core::{Batch, Credit, End};

    /// Logs of groups of chains, given by tokens per turn and advantage per turn, and their credit.
    pub(crate) fn logs(groups: &[&[&[(usize, f32)]]]) -> (Vec<GroupLog>, Vec<Credit>) {
        let mut logs = Vec::new();
        let mut credit = Vec::new();
        for paths in groups {
            let mut log = GroupLog { task_name: "task".into(), ..GroupLog::default() };
            let mut advantages = Vec::new();
            for path in *paths {
                for (t, (tokens, advantage)) in path.iter().enumerate() {
                    let parent = (t > 0).then(|| log.turns.len() - 1);
                    log.turns.push(TurnLog {
                        parent,
                        agent: "actor".into(),
                        action: Action::given(vec![0; *tokens]),
                        ..TurnLog::default()
                    });
                    advantages.push(f64::from(*advantage));
                }
                log.leaves.push(LeafLog { turn: Some(log.turns.len() - 1), end: End::Terminated { success: true }, seed: 0 });
            }
            logs.push(log);
            credit.push(Credit::per_turn(advantages));
        }
        (logs, credit)
    }

    /// A batch whose reward is the environment's.
    pub(crate) fn build(logs: Vec<GroupLog>) -> Batch {
        Batch::from_groups(logs, NonFinite::Refuse).unwrap()
    }

    /// A batch of groups of chains, given by tokens per turn and advantage per turn.
    pub(crate) fn batch(groups: &[&[&[(usize, f32)]]]) -> (Batch, Vec<Credit>) {
        let (logs, credit) = logs(groups);
        (build(logs), credit)
    }

    /// Chains whose turns have one token each, given by (entropy, advantage).
    pub(crate) fn with_entropies(groups: &[&[&[(f32, f32)]]]) -> (Vec<GroupLog>, Vec<Credit>) {
        let shape: Vec<Vec<Vec<(usize, f32)>>> =
            groups.iter().map(|g| g.iter().map(|p| p.iter().map(|(_, a)| (1, *a)).collect()).collect()).collect();
        let paths: Vec<Vec<&[(usize, f32)]>> = shape.iter().map(|g| g.iter().map(Vec::as_slice).collect()).collect();
        let (mut logs, credit) = logs(&paths.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for (log, group) in logs.iter_mut().zip(groups) {
            for (turn, (entropy, _)) in log.turns.iter_mut().zip(group.iter().copied().flatten()) {
                turn.action.entropy = Some(vec![*entropy]);
            }
        }
        (logs, credit)
    }

    /// Groups of one-turn chains of one token with these rewards and advantage 1, won where the reward is positive.
    pub(crate) fn outcomes(groups: &[&[f32]]) -> (Batch, Vec<Credit>) {
        let shape: Vec<Vec<&[(usize, f32)]>> = groups.iter().map(|g| g.iter().map(|_| &[(1, 1.0)][..]).collect()).collect();
        let (mut logs, credit) = logs(&shape.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for (log, rewards) in logs.iter_mut().zip(groups) {
            for (i, reward) in rewards.iter().enumerate() {
                log.turns[i].reward = *reward;
                log.leaves[i].end = End::Terminated { success: *reward > 0.0 };
            }
        }
        (build(logs), credit)
    }

    /// Which groups train nothing.
    pub(crate) fn gone(credit: &[Credit]) -> Vec<bool> {
        credit.iter().map(|c| c.turns.iter().all(Option::is_none)).collect()
    }

    pub(crate) fn near(got: &[f32], want: &[f32]) {
        assert_eq!(got.len(), want.len());
        assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-5), "{got:?}, not {want:?}");
    }

    pub(crate) fn turns(credit: &[Credit]) -> Vec<f32> {
        credit.iter().flat_map(|c| c.turns.iter().map(|a| a.unwrap())).collect()
    }
}
