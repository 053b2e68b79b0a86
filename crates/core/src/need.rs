//! What a plugin needs and what it provides. `check` proves coverage before the first rollout.

use std::fmt;

use crate::objective::DiffColumn;
use crate::signal::Scope;

/// Something a plugin cannot work without.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A named column; on states without gaps.
    Signal(String, Scope),
    /// A named column on states that may have gaps.
    SomeStates(String),
    /// Groups of at least so many members.
    GroupOfAtLeast(u64),
    /// Independent rollouts: no branches.
    Chains,
    /// Groups that begin where their task does.
    WholeEpisodes,
    /// Log-probabilities of what was sampled (an expert's actions have none).
    BehaviorLogprob,
    /// Entropies of what was sampled.
    Entropy,
    /// A column that the policy can differentiate.
    Differentiable(DiffColumn),
    /// Exact snapshots.
    ExactSnapshot,
    /// Exact state keys.
    ExactStateKey,
    /// Admissible actions.
    Admissible,
    /// A scripted expert.
    Expert,
    /// Privileged text.
    Privileged,
    /// Ground truth.
    GroundTruth,
    /// Exact values.
    Oracle,
    /// A policy that gives hidden vectors.
    Hidden,
    /// Targets for a column of values, from the estimator.
    Target(String),
    /// A policy node of that name.
    Node(String),
}

impl Need {
    /// The column that is asked for, and what it lies on.
    pub fn column(&self) -> Option<(&str, Scope)> {
        match self {
            Need::Signal(name, scope) => Some((name, *scope)),
            Need::SomeStates(name) => Some((name, Scope::State)),
            _ => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Signal(name, Scope::State) => write!(f, "state values in a column `{name}`"),
            Need::SomeStates(name) => write!(f, "values of some states in a column `{name}`"),
            Need::Signal(name, Scope::Turn) => write!(f, "a column `{name}` on turns"),
            Need::Signal(name, Scope::Token) => write!(f, "a column `{name}` on tokens"),
            Need::GroupOfAtLeast(n) => write!(f, "groups of at least {n}"),
            Need::Chains => f.write_str("independent rollouts (no branches)"),
            Need::WholeEpisodes => f.write_str("episodes from their task's beginning"),
            Need::BehaviorLogprob => f.write_str("log-probabilities of the actions"),
            Need::Entropy => f.write_str("entropies of the actions"),
            Need::Differentiable(column) => write!(f, "a policy that differentiates {column}"),
            Need::ExactSnapshot => f.write_str("exact snapshots"),
            Need::ExactStateKey => f.write_str("exact state keys"),
            Need::Admissible => f.write_str("admissible actions"),
            Need::Expert => f.write_str("a scripted expert"),
            Need::Privileged => f.write_str("privileged text"),
            Need::GroundTruth => f.write_str("ground truth"),
            Need::Oracle => f.write_str("an exact oracle"),
            Need::Hidden => f.write_str("a policy with hidden vectors"),
            Need::Target(name) => write!(f, "an estimator that gives targets for the column `{name}`"),
            Need::Node(name) => write!(f, "a policy node `{name}`"),
        }
    }
}

/// Something a plugin gives to others.
pub type Provide = Need;

/// Whether one of `provided` covers `need`.
pub fn covers(provided: &[Provide], need: &Need) -> bool {
    provided.iter().any(|p| match (p, need) {
        (Need::GroupOfAtLeast(have), Need::GroupOfAtLeast(want)) => have >= want,
        (Need::Signal(have, Scope::State), Need::SomeStates(want)) => have == want,
        (have, want) => have == want,
    })
}
