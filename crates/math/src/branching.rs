//! Where a tree of rollouts forks.

/// `P = clip(p₀ + w ΔH, 0, 1)`: the probability of forking after a tool's answer.
///
/// * `entropy_rise`: entropy of the turn's first tokens minus that of the rollout's first turn, in units of `ln |V|`
/// * `base`: p₀, in 0..=1; 0.5 in the authors' script
/// * `weight`: w; 0.2 in the authors' script
///
/// A fall of the entropy makes forking less likely than p₀, not impossible. Dong et al. 2025, "Agentic Reinforced Policy
/// Optimization" (ARPO), arXiv 2507.19849; the authors' code draws `u` and forks where `clip(u − w ΔH, 0, 1) ≤ p₀`,
/// which has this probability wherever it lies within 0 and 1.
pub fn branch_probability(entropy_rise: f64, base: f64, weight: f64) -> f64 {
    (base + weight * entropy_rise).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_with_entropy_and_is_a_probability() {
        assert_eq!(branch_probability(0.0, 0.5, 0.25), 0.5);
        assert_eq!(branch_probability(1.0, 0.5, 0.25), 0.75);
        assert_eq!(branch_probability(-1.0, 0.5, 0.25), 0.25);
        assert_eq!((branch_probability(9.0, 0.5, 0.25), branch_probability(-9.0, 0.5, 0.25)), (1.0, 0.0));
    }
}
