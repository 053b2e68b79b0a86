//! What a run has spent. Comparisons are read at equal cost.

use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;

/// Counts since the start of a run. Seconds are the run's affair: nothing here knows a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Tokens the actor sampled (a token without an alternative is fed, not sampled).
    pub actor_tokens: u64,
    /// Tokens fed to the actor.
    pub fed_tokens: u64,
    /// Tokens that critics sampled or were fed.
    pub critic_tokens: u64,
    /// Tokens sampled in branches from stored or restored states; of a critic's probes, also those that they were fed.
    pub branch_tokens: u64,
    /// Tokens given by an expert.
    pub expert_tokens: u64,
    /// Environment steps.
    pub env_steps: u64,
    /// Restored states.
    pub restores: u64,
    /// Episodes that came to an end.
    pub episodes: u64,
    /// Groups drawn and dropped again.
    pub dropped_groups: u64,
    /// Tokens that went through a training step.
    pub trained_tokens: u64,
}

impl Ledger {
    /// All tokens that a model processed to act or to judge: the budget's unit.
    pub fn tokens(&self) -> u64 {
        self.actor_tokens + self.fed_tokens + self.critic_tokens + self.branch_tokens + self.expert_tokens
    }

    /// The counts as metrics under `cost/`.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        for (name, n) in [
            ("actor_tokens", self.actor_tokens),
            ("fed_tokens", self.fed_tokens),
            ("critic_tokens", self.critic_tokens),
            ("branch_tokens", self.branch_tokens),
            ("expert_tokens", self.expert_tokens),
            ("env_steps", self.env_steps),
            ("restores", self.restores),
            ("episodes", self.episodes),
            ("dropped_groups", self.dropped_groups),
            ("trained_tokens", self.trained_tokens),
            ("tokens", self.tokens()),
        ] {
            metrics.set(format!("cost/{name}"), n as f64);
        }
        metrics
    }
}
