//! Advantage estimators: a group becomes credit.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::Group;
use crate::credit::Credit;
use crate::need::Need;
use crate::now::Now;
use crate::registry::slot_schema;

/// Why an estimator failed. Only one that calls an external command can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EstimateError(pub String);

/// What one step of time is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A turn: one decision of the agent, however long.
    #[default]
    Turn,
    /// A sampled token: what the environment says takes no time.
    Token,
}

/// How the outcome fades on its way back: with `per_step` to the power of the steps between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    /// Weight per step, in 0..=1.
    pub per_step: f64,
    /// What a step is.
    pub step: Step,
    /// What the weight is called: `γ`, `γλ`.
    pub symbol: &'static str,
}

impl Decay {
    /// Weight that is left of the outcome so many steps before it.
    pub fn weight(&self, steps: usize) -> f64 {
        self.per_step.powf(steps as f64)
    }

    /// What to say where next to nothing of an outcome reaches the first step of an episode of so many turns, each of so
    /// many tokens at most; `None` where at least a hundredth does, or where nothing beyond the step itself is meant to.
    ///
    /// An episode rarely uses all its tokens: with tokens as steps, the warning asks about 200 of them at most.
    pub fn warning(&self, turns: usize, tokens: usize) -> Option<String> {
        let (steps, units) = match self.step {
            Step::Turn => (turns.saturating_sub(1), "turns"),
            Step::Token => (turns.saturating_mul(tokens).saturating_sub(1).min(200), "tokens"),
        };
        let weight = self.weight(steps);
        (self.per_step > 0.0 && weight < 0.01).then(|| {
            let rest = match self.step {
                Step::Turn => "the first turns of long episodes learn nothing from it",
                Step::Token => "early turns learn nothing from it; a step can be a turn (`unit = \"turn\"`)",
            };
            format!(
                "at {} = {} the outcome reaches a turn {steps} {units} earlier with weight {weight:.1e}: {rest}",
                self.symbol, self.per_step
            )
        })
    }
}

/// What an estimator claims of its credit beyond what all must keep. `ascribe verify` and the conformance tests hold it to
/// that, on independent rollouts that truly ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// The same amount more for every outcome changes nothing.
    Shift,
    /// Rewards and values times a positive number give advantages times that number.
    Scale,
    /// Rewards and values times a positive number change nothing, but for what an ε does.
    ScaleFree,
    /// Equal outcomes give exactly 0.
    NoSpreadNoCredit,
    /// Each path's advantage counted once, a group's sum to 0.
    SumToZero,
    /// Along a path, advantages sum to its outcome minus the value of its start.
    Telescoping,
    /// A path that a limit cut gets other credit than one that truly ended.
    Bootstraps,
    /// In expectation its policy gradient points uphill.
    Ascent,
}

/// What turns must share to be compared with each other, beyond their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The observation before the turn.
    Observation,
    /// The state before the turn.
    State,
}

/// A group becomes credit. Pure: the same group gives the same credit.
#[typetag::serde]
pub trait AdvantageEstimator: fmt::Debug + Send + Sync {
    /// What it needs, nested estimators and its own configuration considered.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// Signals that it gives targets for.
    fn targets(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it claims, its own configuration considered.
    fn laws(&self) -> Vec<Law> {
        Vec::new()
    }

    /// What it compares turns at, if at anything: where hardly any turns meet there, it has little to say about them.
    fn anchor(&self) -> Option<Anchor> {
        None
    }

    /// How the outcome fades on its way back to earlier steps, where it does by design.
    fn decay(&self) -> Option<Decay> {
        None
    }

    /// Credit of one group.
    ///
    /// # Errors
    /// Only one that calls an external command can fail.
    fn estimate(&self, group: Group<'_>, now: &Now) -> Result<Credit, EstimateError>;
}
slot_schema!(AdvantageEstimator => "estimator");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_that_vanishes_is_told() {
        let over = |per_step, step| Decay { per_step, step, symbol: "γλ" };
        let told = over(0.95, Step::Token).warning(50, 16).unwrap_or_default();
        assert!(told.starts_with("at γλ = 0.95 the outcome reaches a turn 200 tokens earlier with weight 3.5e-5"), "{told}");
        // 0.95^49 = 0.081
        assert_eq!(over(0.95, Step::Turn).warning(50, 16), None);
        assert_eq!(over(1.0, Step::Token).warning(1000, 1000), None);
        assert_eq!(over(0.0, Step::Turn).warning(50, 16), None);
        assert!(over(0.9, Step::Turn).warning(50, 16).is_some());
        assert_eq!(over(0.9, Step::Turn).warning(0, 0), None);
    }
}
