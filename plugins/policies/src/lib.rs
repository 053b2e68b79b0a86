//! Policies: tabular, transformer, scripted.
