//! The logistic function, finite everywhere.

/// `1 / (1 + exp(−x))`.
pub(crate) fn sigmoid(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) }
}

/// `log(1 + exp(x))`, which is `−log(1 − σ(x))`.
pub(crate) fn log_one_plus_exp(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_worked_and_extreme() {
        assert!((sigmoid(3f64.ln()) - 0.75).abs() < 1e-15 && (sigmoid(-(3f64.ln())) - 0.25).abs() < 1e-15);
        assert!((log_one_plus_exp(3f64.ln()) - 4f64.ln()).abs() < 1e-15);
        assert_eq!((sigmoid(-1e9), sigmoid(1e9)), (0.0, 1.0));
        assert_eq!((log_one_plus_exp(-1e9), log_one_plus_exp(1e9)), (0.0, 1e9));
    }
}
