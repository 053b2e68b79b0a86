//! A reward per turn by rule: whether the action was carried out, and at the end whether the task was solved.
//!
//! `r_t = carried_out` or `refused` by what the environment made of the action, and on the last turn of a path that came to its end
//! `solved` or `failed` on top. It gives a column on turns (`process_reward`).
//!
//! Rule-based process rewards as in tutorials on process supervision: 0.3 and −0.3 for tools that answer or fail, 1 and −0.5
//! for answers that are right or wrong (the defaults).
//! Reductions: with `carried_out = refused = 0` and `failed = 0` it is the outcome.
//! Edge cases: a path that was cut has no answer. What was not tried has no number. It earns by harmless actions: more of
//! them earn more, unless `carried_out` is 0.
//!
//! Cost: none; it reads what is recorded.

use ascribe_core::log::Validity;
use ascribe_core::policy::PolicyError;
use ascribe_core::range::Finite;
use ascribe_core::rollout::Acting;
use ascribe_core::{Batch, BuildContext, BuildError, Column, Critic, CriticConfig, End, Need, Provide, Scope, Signal, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[critic.NAME.process-rules]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessRules {
    /// For an action that the environment carried out, any finite number.
    #[serde(default = "carried_out")]
    pub carried_out: Finite,
    /// For one that it refused, did not understand, or that was cut; any finite number.
    #[serde(default = "refused")]
    pub refused: Finite,
    /// For the last turn of a path that solved the task, any finite number.
    #[serde(default = "solved")]
    pub solved: Finite,
    /// For the last turn of one that came to its end without solving it, any finite number.
    #[serde(default = "failed")]
    pub failed: Finite,
    /// Name of the column that it gives; another one where the environment has one of that name, as `mini-tool` has.
    #[serde(default = "crate::process_reward")]
    pub column: String,
}

fn finite(x: f64) -> Finite {
    Finite::try_from(x).expect("in range")
}
fn carried_out() -> Finite {
    finite(0.3)
}
fn refused() -> Finite {
    finite(-0.3)
}
fn solved() -> Finite {
    finite(1.0)
}
fn failed() -> Finite {
    finite(-0.5)
}

plugin! {
    Critic "process-rules" {
        summary: "A reward per turn by rule: carried out or not, solved or not.",
        source: "",
        when: "A process reward for environments that have none; to see what an estimator makes of dense rewards that anybody can earn.",
        example: "carried_out = 0.3\nrefused = -0.3\nsolved = 1.0\nfailed = -0.5",
        module: "process_rules.rs",
    }
    impl CriticConfig for ProcessRules {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            Ok(Box::new(Live { name: name.into(), rules: self.clone() }))
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(self.column.clone(), Scope::Turn)]
        }
    }
}

struct Live {
    name: String,
    rules: ProcessRules,
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(self.rules.column.clone(), Scope::Turn)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let mut column = Column::absent(batch.scope_len(Scope::Turn));
        for group in batch.groups() {
            for t in group.tried().into_iter().enumerate().filter_map(|(t, tried)| tried.then_some(t)) {
                let r = group.rows().start + t;
                let valid = batch.turns.validity[r] == Validity::Valid;
                let step = if valid { self.rules.carried_out } else { self.rules.refused };
                let answer = match group.end(t).filter(|_| group.n_children(t) == 0) {
                    Some(End::Terminated { success: true }) => *self.rules.solved,
                    Some(End::Terminated { success: false }) => *self.rules.failed,
                    _ => 0.0,
                };
                column.set(r, (*step + answer) as f32);
            }
        }
        let metric = format!("critic/{}/process_reward", self.name);
        acting.metrics.summarise(&metric, column.iter_present().map(f64::from));
        Ok(vec![(self.rules.column.clone(), Signal { scope: Scope::Turn, provider: self.name.clone(), column })])
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
    use ascribe_core::{Limit, NamedCritic};

    use super::*;
    use crate::testing::World;

    #[test]
    fn each_turn_by_what_became_of_it() {
        let turn = |parent: Option<usize>, validity: Validity| TurnLog {
            parent,
            agent: "actor".into(),
            read: vec![1],
            action: Action::given(vec![3]),
            validity,
            state: vec![parent.map_or(0, |p| p as u8 + 1)],
            ..TurnLog::default()
        };
        let turns = vec![
            turn(None, Validity::Valid),
            turn(Some(0), Validity::Valid),
            turn(Some(0), Validity::Refused),
            turn(Some(0), Validity::Malformed),
            turn(Some(0), Validity::Cut),
        ];
        let ends = [
            (1, End::Terminated { success: true }),
            (2, End::Terminated { success: false }),
            (3, End::Truncated(Limit::Turns)),
            (4, End::Untried),
        ];
        let leaves = ends.map(|(turn, end)| LeafLog { turn: Some(turn), end, seed: 0 }).to_vec();
        let group = GroupLog { task_name: "task".into(), turns, leaves, ..GroupLog::default() };
        let judged = |body: &str| {
            let mut world = World::new(("repair-mdp", ""), &["actor"], Vec::new());
            let mut critic = NamedCritic { name: "rules".into(), critic: world.critic("rules", "process-rules", body) };
            let mut batch = Batch::from_groups(vec![group.clone()], NonFinite::Refuse).unwrap();
            world.judge(&mut critic, &mut batch).unwrap();
            let column = batch.signals[crate::PROCESS_REWARD].column.clone();
            (0..5).map(|r| column.get(r)).collect::<Vec<_>>()
        };
        // 0.3 + 1, −0.3 − 0.5
        assert_eq!(judged(""), [Some(0.3), Some(1.3), Some(-0.8), Some(-0.3), None]);
        let outcome = judged("carried_out = 0.0\nrefused = 0.0\nfailed = 0.0\nsolved = 2.0");
        assert_eq!(outcome, [Some(0.0), Some(2.0), Some(0.0), Some(0.0), None]);
    }

    #[test]
    fn it_stands_beside_a_column_of_the_environment() {
        let mut world = World::new(("mini-tool", ""), &["actor"], Vec::new());
        let mut batch = world.batch("independent", "groups = 3\ngroup_size = 2\ndecode = \"admissible\"");
        let of_environment = batch.signals[crate::PROCESS_REWARD].clone();
        let mut critic =
            NamedCritic { name: "rules".into(), critic: world.critic("rules", "process-rules", "column = \"by_rule\"") };
        world.judge(&mut critic, &mut batch).unwrap();
        assert_eq!(batch.signals[crate::PROCESS_REWARD], of_environment);
        assert_eq!(batch.signals["by_rule"].provider, "rules");
        let mut same = NamedCritic { name: "same".into(), critic: world.critic("same", "process-rules", "") };
        let error = world.judge(&mut same, &mut batch).unwrap_err().to_string();
        assert!(error.contains("already given"), "{error}");
    }
}
