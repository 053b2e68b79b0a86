//! Arithmetic of credit assignment on slices.
