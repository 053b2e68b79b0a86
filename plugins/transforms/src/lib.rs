//! Transforms of credit: whitening, and the controls every comparison needs.

mod drop_degenerate;
mod gpg;
mod random;
mod uniform;
mod whiten;

pub use drop_degenerate::DropDegenerate;
pub use gpg::{Gpg, gpg_scale};
pub use random::Random;
pub use uniform::Uniform;
pub use whiten::Whiten;

use ascribe_core::Credit;

/// Every advantage that credit holds, at every granularity, with the turn it belongs to (tokens: `None`).
fn advantages_mut(credit: &mut Credit) -> impl Iterator<Item = &mut f32> {
    let turns = credit.turns.iter_mut().flatten();
    let spans = credit.spans.iter_mut().filter_map(|s| s.advantage.as_mut());
    turns.chain(spans).chain(credit.tokens.iter_mut().flatten())
}

#[cfg(test)]
mod fixture {
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
    use ascribe_core::{Batch, Credit, End};

    /// A batch of groups of chains, given by tokens per turn and advantage per turn.
    pub(crate) fn batch(groups: &[&[&[(usize, f32)]]]) -> (Batch, Vec<Credit>) {
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
        (Batch::from_groups(logs, NonFinite::Refuse).unwrap(), credit)
    }

    pub(crate) fn turns(credit: &[Credit]) -> Vec<f32> {
        credit.iter().flat_map(|c| c.turns.iter().map(|a| a.unwrap())).collect()
    }
}
