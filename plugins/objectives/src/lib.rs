//! Objectives: rows to coefficients on differentiable columns.
