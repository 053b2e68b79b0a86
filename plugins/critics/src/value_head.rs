//! A scalar head on a policy's trunk that says what is still to come.
//!
//! `V(s)` is read at the position that predicts a turn's first sampled token, where all that was read and said before it has
//! been seen; with `unit = "token"` also at every other sampled token. It is trained to the target `y` by `½ (V − y)²` (the
//! objective `mse`), clipped on request, times `weight`.
//!
//! Source: the value function of PPO, Schulman et al. 2017, arXiv 1707.06347; over tokens as verl and TRL have it, over turns
//! as StepPO and Turn-PPO (arXiv 2512.17008) do.
//! The trunk: `shared` with the acting node, where actor and critic have one forward and one backward pass per micro-batch;
//! `copied`, another node that takes over the acting node's weights when the critic first judges; `scratch`, another node
//! as it was built.
//! Reductions: a target of `return` with `gamma = 1` is Monte-Carlo regression; `lambda = 1` the same, `lambda = 0` TD(0).
//! Edge cases: a terminated path's last state is worth 0 by definition and is not read; a cut one's is read after its last
//! token. A state that nothing was sampled in takes the value of the state after it. A turn that was not tried trains
//! nothing. With the shared trunk the critic learns from the tokens that the actor trains on; `own_rows` gives it all of them
//! for a second pass.
//! Reported: `explained_variance` of the values against the target before they learn from the batch, which are fresh episodes
//! where the policy has just played them, and after it if `after_update` is asked for. Where the same episodes come again (the
//! rollout `offline`) it is that of the training set, and `held_out` keeps some apart.
//!
//! Cost: one forward pass over the batch's paths to judge, counted as the critic's tokens, and one more with `after_update`. With the shared
//! trunk it learns in the actor's own pass; `own_rows`, and another trunk, take a forward and backward pass of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ascribe_core::credit::Target as CreditTarget;
use ascribe_core::critic::{Lesson, LessonRows};
use ascribe_core::objective::DiffColumn;
use ascribe_core::policy::{HeadSpec, PolicyError, ScoreRequest};
use ascribe_core::range::{NonNegative, Positive, Unit};
use ascribe_core::rollout::Acting;
use ascribe_core::{
    Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, Group, Need, Objective, Provide, RowSet, Scope,
    Signal, plugin,
};
use ascribe_math::explained_variance;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::targets::{Recipe, Target};
use crate::{lesson, scored, states};

/// `[critic.NAME.value-head]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueHead {
    /// What has a value.
    #[serde(default)]
    pub unit: Of,
    /// Whose layers the head reads.
    #[serde(default)]
    pub trunk: Trunk,
    /// Policy node of the head, where the trunk is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What the head learns to say.
    #[serde(default)]
    pub target: Target,
    /// Discount per turn of the targets `return` and `lambda`, in 0..=1.
    #[serde(default = "one")]
    pub gamma: Unit,
    /// Decay of the target `lambda`, in 0..=1.
    #[serde(default = "one")]
    pub lambda: Unit,
    /// Factor on its loss beside the actor's, 0 or more. verl and TRL: 0.5 and 0.1 with a shared trunk.
    #[serde(default = "half")]
    pub weight: NonNegative,
    /// Largest move of a value in one update, in units of reward; left out, there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<Positive>,
    /// Whether its gradient stops at the head.
    #[serde(default)]
    pub detach: bool,
    /// With a shared trunk: whether it learns from rows of its own, a second pass, instead of the actor's.
    #[serde(default)]
    pub own_rows: bool,
    /// Share of each batch's groups, its last ones, that it does not learn from, in 0..=1. On them alone
    /// `explained_variance_held_out` is measured.
    #[serde(default = "none")]
    pub held_out: Unit,
    /// Whether to measure the values again on the episodes that they have learned from, at the next update: one more
    /// forward pass.
    #[serde(default)]
    pub after_update: bool,
    /// Name of the column, and of the head.
    #[serde(default = "value")]
    pub column: String,
    /// Policy node that acts.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

/// What has a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Of {
    /// States before turns.
    #[default]
    Turn,
    /// These, and every sampled token (`token_` before the column's name).
    Token,
}

/// Whose layers the head reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trunk {
    /// The acting node's.
    #[default]
    Shared,
    /// Another node's, which begins with the acting node's weights.
    Copied,
    /// Another node's, as it was built.
    Scratch,
}

fn one() -> Unit {
    Unit::try_from(1.0).expect("in range")
}
fn none() -> Unit {
    Unit::try_from(0.0).expect("in range")
}
fn half() -> NonNegative {
    NonNegative::try_from(0.5).expect("in range")
}
fn value() -> String {
    "value".into()
}

impl ValueHead {
    /// The node that the head is on.
    fn on(&self) -> &str {
        match self.trunk {
            Trunk::Shared => &self.agent,
            Trunk::Copied | Trunk::Scratch => self.node.as_deref().unwrap_or(&self.agent),
        }
    }

    fn columns(&self) -> Vec<(String, Scope)> {
        let mut columns = vec![(self.column.clone(), Scope::State)];
        if self.unit == Of::Token {
            columns.push((format!("token_{}", self.column), Scope::Token));
        }
        columns
    }

    fn recipe(&self) -> Recipe {
        Recipe { target: self.target, gamma: *self.gamma, lambda: *self.lambda }
    }
}

plugin! {
    Critic "value-head" {
        summary: "A scalar head on a policy's trunk that says what is still to come.",
        source: "Schulman et al. 2017, Proximal Policy Optimization, arXiv 1707.06347",
        when: "With `gae`, `td` and `n-step`; its `explained_variance` says whether it knows more than the mean.",
        example: "target = \"return\"",
        module: "value_head.rs",
    }
    impl CriticConfig for ValueHead {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            match (self.trunk, &self.node) {
                (Trunk::Shared, Some(_)) => {
                    return Err(BuildError::Config("a shared trunk is the acting node's: leave out `node`, or set `trunk`".into()));
                }
                (Trunk::Copied | Trunk::Scratch, None) => {
                    let text = "which node has the head? Set `node`, and add [policy.THAT_NODE.PLUGIN]";
                    return Err(BuildError::Config(text.into()));
                }
                (Trunk::Copied | Trunk::Scratch, Some(node)) if *node == self.agent => {
                    return Err(BuildError::Config(format!("`{node}` is the acting node: that trunk is `shared`")));
                }
                _ => {}
            }
            let mut table = serde_json::json!({ "head": self.column, "over": match self.unit { Of::Turn => "turns", Of::Token => "tokens" } });
            if let Some(clip) = &self.clip {
                let signal = match self.unit {
                    Of::Turn => self.column.clone(),
                    Of::Token => format!("token_{}", self.column),
                };
                table["clip"] = serde_json::json!({ "range": clip, "signal": signal });
            }
            let objective = lesson::objective("mse", table)?;
            Ok(Box::new(Live { name: name.into(), config: self.clone(), objective, copied: false, learned: None }))
        }
        fn needs(&self) -> Vec<Need> {
            let nodes = [self.on(), &self.agent].into_iter().collect::<BTreeSet<_>>().into_iter();
            nodes.map(|node| Need::Node(node.into())).chain(self.target.needs(&self.column)).collect()
        }
        fn provides(&self) -> Vec<Provide> {
            self.columns().into_iter().map(|(name, scope)| Need::Signal(name, scope)).collect()
        }
    }
}

struct Live {
    name: String,
    config: ValueHead,
    objective: Arc<dyn Objective>,
    /// Whether the node has taken over the acting node's weights.
    copied: bool,
    /// What the last update learned from, to be measured again.
    learned: Option<Learned>,
}

/// Rows that were learned from.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Learned {
    /// The rows, without their columns.
    rows: Arc<RowSet>,
    /// What the head should have said before each of their turns, `[turns]`.
    target: Vec<f32>,
}

/// A value head's own state; its weights are the node's.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    format: u32,
    copied: bool,
    learned: Option<Learned>,
}

const FORMAT: u32 = 1;

impl Live {
    fn head(&self) -> DiffColumn {
        DiffColumn::Head(self.config.column.clone())
    }

    fn take_over(&mut self, acting: &mut Acting<'_>) -> Result<(), PolicyError> {
        if self.config.trunk != Trunk::Copied || self.copied {
            return Ok(());
        }
        let weights = acting.node(&self.config.agent)?.save()?;
        acting.node(self.config.on())?.load(&weights).map_err(|e| {
            PolicyError::Load(format!("node `{}` cannot take over the weights of `{}`: {e}", self.config.on(), self.config.agent))
        })?;
        self.copied = true;
        Ok(())
    }

    /// The values now of what was learned in the last update.
    fn measure_again(&mut self, acting: &mut Acting<'_>) -> Result<(), PolicyError> {
        let Some(Learned { rows, target }) = self.learned.take() else { return Ok(()) };
        let request = ScoreRequest { columns: vec![self.head()], ..ScoreRequest::default() };
        let values = acting.node(self.config.on())?.score(&rows, &request)?.columns.pop().unwrap_or_default();
        acting.ledger.critic_tokens += scored::n_tokens(&rows);
        let now: Vec<f32> = rows.turns.iter().map(|turn| values[turn.trained.start]).collect();
        if let Some(explained) = explained_variance(&now, &target) {
            acting.metrics.set(format!("critic/{}/explained_variance_after", self.name), explained);
        }
        Ok(())
    }
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        self.config.columns()
    }

    fn heads(&self) -> Vec<(String, HeadSpec)> {
        let spec = HeadSpec { name: self.config.column.clone(), detach_trunk: self.config.detach, zero_init: true };
        vec![(self.config.on().into(), spec)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        self.take_over(acting)?;
        self.measure_again(acting)?;
        let rows = scored::rows(batch, &self.config.agent);
        let request =
            ScoreRequest { columns: vec![self.head()], ends: vec![self.config.column.clone()], ..ScoreRequest::default() };
        let mut scores = acting.node(self.config.on())?.score(&rows, &request)?;
        acting.ledger.critic_tokens += scored::n_tokens(&rows);
        let values = scores.columns.pop().unwrap_or_default();
        let ends = scores.ends.pop().unwrap_or_default();

        let before: BTreeMap<u32, f32> = rows.turns.iter().map(|turn| (turn.turn, values[turn.trained.start])).collect();
        // The last row of a path ends with its last token.
        let at_end: BTreeMap<(u32, u32), f32> =
            rows.rows.iter().zip(&ends).map(|(row, end)| ((row.group, row.trajectory), *end)).collect();
        let mut of_states: Vec<Vec<f32>> = batch.groups().map(|group| state_values(group, &before, &at_end)).collect();
        let column = states::column(batch, |group, after| Some(of_states[group.index()][after.map_or(0, |t| t + 1)]));
        of_states.clear();
        let signal = |scope, column| Signal { scope, provider: self.name.clone(), column };
        let mut out = vec![(self.config.column.clone(), signal(Scope::State, column))];
        if self.config.unit == Of::Token {
            let column = scored::onto_tokens(batch, &rows, &values);
            out.push((format!("token_{}", self.config.column), signal(Scope::Token, column)));
        }
        Ok(out)
    }

    fn learn(&mut self, batch: &Batch, credit: &[Credit], acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let column = &self.config.column;
        let recipe = self.config.recipe();
        let n_groups = batch.groups.len();
        let learned_groups = n_groups - (*self.config.held_out * n_groups as f64).round() as usize;
        let (mut learned, mut held_out) = (Measured::default(), Measured::default());
        let mut targets = Vec::with_capacity(n_groups);
        let mut own = Vec::with_capacity(n_groups);
        for (group, credit) in batch.groups().zip(credit) {
            let learns = group.index() < learned_groups;
            let measured = if learns { &mut learned } else { &mut held_out };
            let before = recipe.before_turns(column, group, credit);
            let tried = group.tried();
            let values = group.state_signal(column);
            let mut of_states = Column::absent(group.n_turns() + 1);
            let mut of_turns = vec![None; group.n_turns()];
            for (t, target) in before.iter().enumerate() {
                let Some(target) = target.filter(|_| tried[t]) else { continue };
                measured.push(values.before(t) as f32, target);
                if learns {
                    of_states.set(group.parent(t).map_or(0, |p| p + 1), target);
                    of_turns[t] = Some(0.0);
                }
            }
            own.push(Credit { turns: of_turns, ..Credit::default() });
            targets.push(CreditTarget { scope: Scope::State, column: of_states });
        }
        if let Some(explained) = learned.explained_variance() {
            acting.metrics.set(format!("critic/{}/explained_variance", self.name), explained);
        }
        if let Some(explained) = held_out.explained_variance() {
            acting.metrics.set(format!("critic/{}/explained_variance_held_out", self.name), explained);
        }
        let shared = self.config.trunk == Trunk::Shared && !self.config.own_rows;
        let of_own = |mut own: Vec<Credit>, targets: &[CreditTarget]| {
            own.iter_mut().zip(targets).for_each(|(credit, target)| {
                credit.targets.insert(column.clone(), target.clone());
            });
            Arc::new(RowSet::from_credit(batch, &own, Some(&self.config.agent)))
        };
        let mut rows = None;
        if !shared || self.config.after_update {
            rows = Some(of_own(own, &targets));
        }
        // A batch without groups has no targets.
        let targeted = |rows: &Arc<RowSet>| rows.columns.get(&format!("target/{column}")).cloned();
        if let Some((rows, column)) = rows.as_ref().filter(|_| self.config.after_update).and_then(|r| Some((r, targeted(r)?))) {
            let target = rows.turns.iter().map(|turn| column.get(turn.trained.start).unwrap_or(0.0)).collect();
            let mut bare = RowSet::clone(rows);
            bare.columns.clear();
            self.learned = Some(Learned { rows: Arc::new(bare), target });
        }
        let rows = match rows.filter(|_| !shared) {
            Some(rows) => LessonRows::Own(rows),
            None => LessonRows::Acted(BTreeMap::from([(column.clone(), targets)])),
        };
        Ok(vec![Lesson { node: self.config.on().into(), rows, objective: self.objective.clone(), scale: *self.config.weight }])
    }

    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        let saved = Saved { format: FORMAT, copied: self.copied, learned: self.learned.clone() };
        serde_json::to_vec(&saved).map_err(|e| PolicyError::Load(format!("a value head that has no text: {e}")))
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        let saved: Saved =
            serde_json::from_slice(bytes).map_err(|e| PolicyError::Load(format!("the state of a value head is damaged: {e}")))?;
        if saved.format != FORMAT {
            let text = format!("the state of a value head has format {}, this version reads {FORMAT}", saved.format);
            return Err(PolicyError::Load(text));
        }
        (self.copied, self.learned) = (saved.copied, saved.learned);
        Ok(())
    }
}

/// Values beside what they should have been, `[turns]` each.
#[derive(Default)]
struct Measured {
    value: Vec<f32>,
    target: Vec<f32>,
}

impl Measured {
    fn push(&mut self, value: f32, target: f32) {
        self.value.push(value);
        self.target.push(target);
    }

    fn explained_variance(&self) -> Option<f64> {
        explained_variance(&self.value, &self.target)
    }
}

/// Values of a group's states, `[turns + 1]`: where a path ended for good 0, where it was cut what the head says after its
/// last token, elsewhere what it says before the turn that was made there.
///
/// * `before`: by row of the turn
/// * `at_end`: by group and trajectory
fn state_values(group: Group<'_>, before: &BTreeMap<u32, f32>, at_end: &BTreeMap<(u32, u32), f32>) -> Vec<f32> {
    let mut values: Vec<Option<f32>> = vec![None; group.n_turns() + 1];
    for (trajectory, path) in group.trajectories().enumerate() {
        let Some(last) = path.turns_up().next().filter(|t| group.n_children(*t) == 0) else { continue };
        let end = &path.leaf().end;
        let after = at_end.get(&(group.index() as u32, trajectory as u32)).copied();
        values[last + 1] = if matches!(end, ascribe_core::End::Terminated { .. }) { Some(0.0) } else { after };
    }
    // Children come after their parents: what a state is worth is known when the turn that led to it is reached.
    for t in (0..group.n_turns()).rev() {
        let state = group.parent(t).map_or(0, |p| p + 1);
        // The first turn that was made there has the last word, as going backward comes to it last.
        let said = before.get(&((group.rows().start + t) as u32)).copied();
        values[state] = said.or(values[state]).or(values[t + 1]);
    }
    values.into_iter().map(|value| value.unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests;
