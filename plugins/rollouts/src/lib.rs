//! Rollout strategies.
