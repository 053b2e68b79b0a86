//! The arithmetic of credit assignment, on slices.
//!
//! Generic over `f32` and `f64`; sums are `f64` inside. Exactly equal values have exactly zero spread: official
//! implementations compute a mean in `f32` and then divide the rounding noise by ε.

pub mod baseline;
pub mod branching;
pub mod cluster;
pub mod columns;
pub mod estimates;
pub mod modulation;
pub mod pair;
pub mod returns;
pub mod scores;
pub mod similarity;
pub mod spread;

pub use baseline::{leave_one_out, leave_one_out_measure, length_weighted_mean, no_spread_probability};
pub use branching::branch_probability;
pub use cluster::{clusters, moments_by};
pub use columns::{centre_columns, resetting_returns};
pub use estimates::{CriticSignals, critic_signals};
pub use modulation::{exponential_weights, min_max, shares};
pub use pair::{momentum_rewards, pair_advantages, soften};
pub use returns::{gae, n_step, returns};
pub use scores::{AnswerScale, answer_value, checklist_score, self_report_bonus, soft_min_rewards};
pub use similarity::similar_clusters;
pub use spread::{
    Deviation, Measure, Moments, Singleton, Standardise, correlation, explained_variance, is_constant, moments, pooled,
    standardise, whiten, whitening,
};

/// `f32` or `f64`.
pub trait Float: num_traits::Float + num_traits::AsPrimitive<f64> + 'static {
    /// Rounds to this type.
    fn of(x: f64) -> Self;
}
impl Float for f32 {
    fn of(x: f64) -> Self {
        x as f32
    }
}
impl Float for f64 {
    fn of(x: f64) -> Self {
        x
    }
}
