//! Chooses the instruction set at run time.

use super::distribution::{self, Totals};
use super::kernel::Portable;
#[cfg(target_arch = "x86_64")]
use super::kernel::{Avx2, Avx512};
use super::layers::{self, Feed, Scratch};
use super::weights::HostWeights;

/// Compiles a function once per instruction set and calls the best one this processor has.
macro_rules! dispatch {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $module:ident) => {
        $(#[$doc])*
        #[allow(unsafe_code)]
        pub(crate) fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? { $module::$name::<Avx512>($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? { $module::$name::<Avx2>($($arg),*) }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                {
                    // SAFETY: the processor has every feature the function was compiled for.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has every feature the function was compiled for.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $module::$name::<Portable>($($arg),*)
        }
    };
}

dispatch! {
    /// Feeds tokens to their caches and appends the wanted hidden vectors, after the last norm, to `out`.
    fn hidden(weights: &HostWeights, feeds: &mut [Feed<'_>], out: &mut Vec<f32>, scratch: &mut Scratch) = layers
}

dispatch! {
    /// Logits of hidden vectors: `[n, vocab]`.
    fn logits(weights: &HostWeights, hidden: &[f32], scratch: &mut Scratch) -> Vec<f32> = layers
}

dispatch! {
    /// Subtracts the maximum from `shifted` and writes the exponentials to `weights`.
    fn softmax(shifted: &mut [f32], weights: &mut [f32]) -> Totals = distribution
}
