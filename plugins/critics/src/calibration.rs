//! A bonus for agents that say truly whether they solved their task.
//!
//! `λ(u) · 1[report = (R = 1)]` on a trajectory's last turn: a reward column for `[reward]` to weigh. `λ` is `bonus`, which a
//! schedule may change over updates u: 0.1 for the first two thirds of training, then 0, in the paper.
//!
//! RefGRPO, arXiv 2606.14211; no public code. Reductions: with `bonus = 0` it measures and pays nothing.
//! Edge cases: the bonus is symmetric, an honest "wrong" on a wrong answer earns it too. A sure failure that is honestly reported
//! therefore earns λ: it must lie below half of the largest return. A trajectory whose report cannot be read earns nothing. The
//! last turn of the path that reports counts. Paths that were not tried have no outcome, and no bonus.
//!
//! Cost: none; it reads what is recorded.

use ascribe_core::policy::PolicyError;
use ascribe_core::range::{Finite, NonNegative};
use ascribe_core::rollout::Acting;
use ascribe_core::{Batch, BuildContext, BuildError, Column, Critic, CriticConfig, End, Need, Provide, Scope, Signal, plugin};
use ascribe_math::self_report_bonus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[critic.NAME.calibration]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The column of turns that holds the agent's report: 1 for "solved", 0 for "not solved", nothing where there is none.
    #[serde(default = "report")]
    pub report: String,
    /// The column of turns that it gives.
    #[serde(default = "column")]
    pub column: String,
    /// λ, what a true report earns: below half of the largest return.
    #[serde(default = "tenth")]
    pub bonus: NonNegative,
    /// Return from which on a task counts as solved; where it is absent the environment says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solved_at: Option<Finite>,
}

fn report() -> String {
    "self_report".into()
}
fn column() -> String {
    "calibration".into()
}
fn tenth() -> NonNegative {
    NonNegative::try_from(0.1).expect("not negative")
}

plugin! {
    Critic "calibration" {
        summary: "A bonus for agents that say truly whether they solved their task (RefGRPO).",
        source: "RefGRPO, arXiv 2606.14211",
        when: "With an environment whose agents report (`mini-tool`), as `[reward] env = 1, calibration = 1`; with a schedule that ends the bonus before results are read.",
        example: "bonus = 0.1",
        module: "calibration.rs",
    }
    impl CriticConfig for Calibration {
        fn build(&self, name: &str, context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            let half = 0.5 * context.environment().r_max;
            if *self.bonus >= half {
                return Err(BuildError::Config(format!(
                    "critic `{name}`: `bonus` is {}, and the largest return {}: it must lie below half of that, or a failure that is \
                     honestly reported pays like a success",
                    *self.bonus,
                    2.0 * half
                )));
            }
            Ok(Box::new(Reports { name: name.into(), config: self.clone() }))
        }
        fn needs(&self) -> Vec<Need> {
            vec![Need::Signal(self.report.clone(), Scope::Turn)]
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(self.column.clone(), Scope::Turn)]
        }
    }
}

struct Reports {
    name: String,
    config: Calibration,
}

impl Critic for Reports {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(self.config.column.clone(), Scope::Turn)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let mut column = Column::absent(batch.scope_len(Scope::Turn));
        // [solved][reported as solved], and those without a report.
        let (mut count, mut silent) = ([[0u64; 2]; 2], 0u64);
        for group in batch.groups() {
            let reports: Vec<Option<f32>> = match batch.signals.contains_key(&self.config.report) {
                true => group.turn_signal(&self.config.report).collect(),
                // An environment writes a column only where somebody reports.
                false => vec![None; group.n_turns()],
            };
            // What the environment paid: rewards are combined after critics have judged.
            let paid = &batch.turns.env_reward[group.rows()];
            for path in group.trajectories().filter(|path| path.leaf().end != End::Untried) {
                let solved = match &self.config.solved_at {
                    Some(least) => path.turns_up().map(|t| f64::from(paid[t])).sum::<f64>() >= **least,
                    None => path.leaf().end.success(),
                };
                let report = path.turns_up().find_map(|t| reports[t]).and_then(|said| match said {
                    1.0 => Some(true),
                    0.0 => Some(false),
                    _ => None,
                });
                match report {
                    Some(report) => count[usize::from(solved)][usize::from(report)] += 1,
                    None => silent += 1,
                }
                if let Some(last) = path.turns_up().next() {
                    column.set(group.rows().start + last, self_report_bonus(solved, report, *self.config.bonus) as f32);
                }
            }
        }
        self.report(count, silent, acting);
        Ok(vec![(self.config.column.clone(), Signal { scope: Scope::Turn, provider: self.name.clone(), column })])
    }
}

impl Reports {
    fn report(&self, [[honest, over], [under, right]]: [[u64; 2]; 2], silent: u64, acting: &mut Acting<'_>) {
        let name = &self.name;
        let (reported, metrics) = (honest + over + under + right, &mut *acting.metrics);
        if reported + silent > 0 {
            metrics.set(format!("critic/{name}/report_rate"), reported as f64 / (reported + silent) as f64);
        }
        if reported > 0 {
            metrics.set(format!("critic/{name}/report_accuracy"), (honest + right) as f64 / reported as f64);
        }
        if honest + over > 0 {
            metrics.set(format!("critic/{name}/overconfidence"), over as f64 / (honest + over) as f64);
        }
        if under + right > 0 {
            metrics.set(format!("critic/{name}/underconfidence"), under as f64 / (under + right) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
    use ascribe_core::{NamedCritic, Slot};

    use super::*;
    use crate::testing::{World, plugin};

    /// One-turn paths, each with what was reported, what was paid, and how it ended.
    fn batch(paths: &[(Option<f32>, f32, End)]) -> Batch {
        let mut group = GroupLog { task_name: "task".into(), ..GroupLog::default() };
        for (report, reward, end) in paths {
            group.leaves.push(LeafLog { turn: Some(group.turns.len()), end: end.clone(), seed: 0 });
            group.turns.push(TurnLog {
                action: Action::given(vec![5]),
                reward: *reward,
                signals: report.iter().map(|r| ("self_report".into(), *r)).collect(),
                ..TurnLog::default()
            });
        }
        Batch::from_groups(vec![group], NonFinite::Refuse).unwrap()
    }

    fn judged(body: &str, batch: &mut Batch) -> (Vec<Option<f32>>, World) {
        let mut world = World::new(("token-tree", TREE), &["actor"], Vec::new());
        let mut critic = NamedCritic { name: "reports".into(), critic: world.critic("reports", "calibration", body) };
        world.judge(&mut critic, batch).unwrap();
        let column = &batch.signals["calibration"].column;
        ((0..column.len()).map(|i| column.get(i)).collect(), world)
    }

    const TREE: &str = "tasks = 1\ndepth = 1\nbranches = 2\nrewards = \"sparse\"\nstates = \"prefixes\"";
    const WON: End = End::Terminated { success: true };
    const LOST: End = End::Terminated { success: false };

    #[test]
    fn a_true_report_earns_the_bonus_whatever_it_reports() {
        let mut paths = batch(&[
            (Some(1.0), 1.0, WON),
            (Some(0.0), 1.0, WON),
            (Some(1.0), 0.0, LOST),
            (Some(0.0), 0.0, LOST),
            (None, 1.0, WON),
            (Some(0.5), 0.0, LOST),
            (Some(0.0), 0.0, End::Untried),
        ]);
        let (bonus, world) = judged("bonus = 0.25", &mut paths);
        let [yes, no] = [Some(0.25), Some(0.0)];
        assert_eq!(bonus, [yes, no, no, yes, no, no, None]);
        let get = |name: &str| world.metrics.get(&format!("critic/reports/{name}")).unwrap();
        assert_eq!((get("report_accuracy"), get("overconfidence"), get("underconfidence")), (0.5, 0.5, 0.5));
        assert_eq!(get("report_rate"), 4.0 / 6.0);
    }

    #[test]
    fn a_return_may_say_what_is_solved() {
        let mut paths = batch(&[(Some(1.0), 0.75, LOST), (Some(1.0), 0.5, WON)]);
        assert_eq!(judged("solved_at = 0.6", &mut paths).0, [Some(0.1), Some(0.0)]);
    }

    #[test]
    fn nobody_reports_and_nothing_is_paid() {
        let (bonus, world) = judged("", &mut batch(&[(None, 1.0, WON)]));
        assert_eq!(bonus, [Some(0.0)]);
        assert_eq!(world.metrics.get("critic/reports/report_rate"), Some(0.0));
        assert_eq!(world.metrics.get("critic/reports/report_accuracy"), None);
    }

    #[test]
    fn a_bonus_that_pays_for_failing_is_refused() {
        let world = World::new(("token-tree", TREE), &["actor"], Vec::new());
        let config: Slot<dyn CriticConfig> = plugin("calibration", "bonus = 0.5");
        let error = world.with_context(|context| config.build("reports", context)).err().unwrap().to_string();
        assert!(error.contains("below half"), "{error}");
    }
}
