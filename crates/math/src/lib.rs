//! The arithmetic of credit assignment, on slices.
//!
//! Generic over `f32` and `f64`; sums are `f64` inside. Exactly equal values have exactly zero spread: official
//! implementations compute a mean in `f32` and then divide the rounding noise by ε.

pub mod baseline;
pub mod modulation;
pub mod returns;
pub mod spread;

pub use baseline::{leave_one_out, length_weighted_mean};
pub use modulation::{exponential_weights, min_max, shares};
pub use returns::{gae, n_step, returns};
pub use spread::{Deviation, Moments, Singleton, Standardise, is_constant, moments, standardise};

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
