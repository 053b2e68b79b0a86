//! Potential-based shaping: a reward for how much further along the state after a turn is than the one before.
//!
//! `F_t = γ Φ(s_{t+1}) − Φ(s_t)`, in the column `shaping` on turns, in the unit of `Φ`; `Φ` is a column on states (`of`): a critic's values,
//! exact ones, or how many of K sub-goals are reached, over K. A task that is over has the potential 0.
//!
//! Ng, Harada and Russell 1999, "Policy Invariance under Reward Transformations", ICML. STO-RL, arXiv 2601.08107, takes the share of
//! sub-goals that a language model lists for `Φ`, and shapes episodes that were recorded before (rollout `offline`).
//!
//! Over a path of T turns `Σ_t γ^t F_t = γ^T Φ(s_T) − Φ(s_0)`: where the task came to its end, the return changes by `−Φ(s_0)`, the same for
//! all paths from one start, so no policy becomes better than another. The return from turn t on changes by `−Φ(s_t)`: to an
//! estimator that takes returns to go (`return-to-go`, with the same `gamma`) it is a baseline. One that sums a whole path does not see it.
//! Reductions: with `Φ = 0` it pays nothing. With `Φ = V^π` the mean of `r_t + F_t` is the advantage `A^π(s_t, a_t)`, so that a turn's own
//! reward is enough (`return-to-go` with `gamma = 0`).
//! Edge cases: where a limit or a macro boundary cut the path, `s_T` keeps its potential: cut paths differ by `γ^T Φ(s_T)`, which an
//! estimator sees that knows no value of that state. One that does (`gae`, `td`) must be given values of the shaped
//! reward, `V − Φ`, not those of the environment's. A critic that learns from the reward that estimators read (`tabular`, `value-head`)
//! gives just these; for the same reason it is no `Φ` of its own reward, which would settle at `Φ = V − Φ`. A turn of which either potential is absent, and one that was not tried, has no
//! reward; the sums above then miss a term. In a group that starts in a stored state, `s_0` is that state. A `Φ` that is learned
//! moves between updates: what is said here holds within one.
//!
//! Cost: none but that of `Φ`.

use ascribe_core::policy::PolicyError;
use ascribe_core::range::Unit;
use ascribe_core::rollout::Acting;
use ascribe_core::{Batch, BuildContext, BuildError, Column, Critic, CriticConfig, Need, Provide, Scope, Signal, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::states::{self, VALUE};

/// `[critic.NAME.potential]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Potential {
    /// Column on states that is the potential.
    #[serde(default = "value")]
    pub of: String,
    /// Discount per turn, in 0..=1; the estimator's.
    #[serde(default = "undiscounted")]
    pub gamma: Unit,
    /// Name of the column that it gives.
    #[serde(default = "shaping")]
    pub column: String,
}

fn value() -> String {
    VALUE.into()
}
fn undiscounted() -> Unit {
    Unit::try_from(1.0).expect("in range")
}
fn shaping() -> String {
    "shaping".into()
}

plugin! {
    Critic "potential" {
        summary: "Potential-based shaping: a reward per turn from a column on states, which prefers no policy to another.",
        source: "Ng, Harada and Russell 1999, Policy Invariance under Reward Transformations; STO-RL, arXiv 2601.08107",
        when: "With the estimator `return-to-go`, to bring a late reward nearer to the turns that earn it, where some critic gives values of states.",
        example: "of = \"value\"\ngamma = 1.0",
        module: "potential.rs",
    }
    impl CriticConfig for Potential {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            if self.of == self.column {
                return Err(BuildError::Config(format!(
                    "`of` is the column `{}` that the critic gives: call that another name, `column`", self.of
                )));
            }
            Ok(Box::new(Live { name: name.into(), config: self.clone() }))
        }
        fn needs(&self) -> Vec<Need> {
            vec![Need::SomeStates(self.of.clone())]
        }
        fn provides(&self) -> Vec<Provide> {
            vec![Need::Signal(self.column.clone(), Scope::Turn)]
        }
    }
}

struct Live {
    name: String,
    config: Potential,
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        vec![(self.config.column.clone(), Scope::Turn)]
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let of = &self.config.of;
        let states = batch.signals.get(of).filter(|signal| signal.scope == Scope::State);
        let phi = &states.ok_or_else(|| PolicyError::Unsupported(format!("there is no column `{of}` on states")))?.column;
        let mut column = Column::absent(batch.scope_len(Scope::Turn));
        for group in batch.groups() {
            // Of a column on states: the group's start, then the state after each of its turns.
            let first = group.rows().start + group.index();
            let potential = |after: Option<usize>| match after {
                Some(_) if states::is_over(group, after) => Some(0.0),
                _ => phi.get(first + after.map_or(0, |t| t + 1)).map(f64::from),
            };
            for t in group.tried().into_iter().enumerate().filter_map(|(t, tried)| tried.then_some(t)) {
                if let (Some(after), Some(before)) = (potential(Some(t)), potential(group.parent(t))) {
                    column.set(group.rows().start + t, (*self.config.gamma * after - before) as f32);
                }
            }
        }
        let metric = format!("critic/{}/shaping", self.name);
        acting.metrics.summarise(&metric, column.iter_present().map(f64::from));
        Ok(vec![(self.config.column.clone(), Signal { scope: Scope::Turn, provider: self.name.clone(), column })])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ascribe_core::batch::NonFinite;
    use ascribe_core::log::{Action, GroupLog, LeafLog, TurnLog};
    use ascribe_core::{AdvantageEstimator, End, Limit, NamedCritic, Slot};

    use super::*;
    use crate::testing::{World, plugin};

    fn named(world: &World, name: &str, plugin: &str, body: &str) -> NamedCritic {
        NamedCritic { name: name.into(), critic: world.critic(name, plugin, body) }
    }

    /// Two turns that share their first, and a third from there that was not tried; then a path of one turn.
    fn forked(ends: [End; 3]) -> GroupLog {
        let turn = |parent| TurnLog {
            parent,
            agent: "actor".into(),
            read: vec![1],
            action: Action::given(vec![3]),
            ..TurnLog::default()
        };
        let turns = vec![turn(None), turn(Some(0)), turn(Some(0)), turn(Some(0)), turn(None)];
        let [a, b, c] = ends;
        let leaves = [(1, a), (2, b), (3, End::Untried), (4, c)];
        let leaves = leaves.map(|(turn, end)| LeafLog { turn: Some(turn), end, seed: 0 }).to_vec();
        GroupLog { task_name: "task".into(), turns, leaves, ..GroupLog::default() }
    }

    /// The shaping of that group; potentials are of the start, then of the state after each turn.
    fn shaped(phi: [Option<f32>; 6], body: &str) -> Vec<Option<f32>> {
        let mut world = World::new(("repair-mdp", ""), &["actor"], Vec::new());
        let solved = End::Terminated { success: true };
        let log = forked([solved, End::Truncated(Limit::Turns), End::MacroBoundary]);
        let mut batch = Batch::from_groups(vec![log], NonFinite::Refuse).unwrap();
        let column = phi.into_iter().collect();
        batch.add_signal("phi", Signal { scope: Scope::State, provider: "test".into(), column }).unwrap();
        let mut critic = named(&world, "shape", "potential", &format!("of = \"phi\"\n{body}"));
        world.judge(&mut critic, &mut batch).unwrap();
        batch.group(0).turn_signal("shaping").collect()
    }

    #[test]
    fn a_path_adds_up_to_its_last_potential_less_its_first() {
        let phi = [Some(2.0), Some(3.0), Some(7.0), Some(5.0), Some(9.0), Some(-1.0)];
        let found = shaped(phi, "");
        // A task that is over has no potential, whatever the column says; a cut one keeps it.
        assert_eq!(found, [Some(1.0), Some(-3.0), Some(2.0), None, Some(-3.0)]);
        let sum = |turns: &[usize]| turns.iter().map(|t| found[*t].unwrap()).sum::<f32>();
        assert_eq!([sum(&[0, 1]), sum(&[0, 2]), sum(&[4])], [0.0 - 2.0, 5.0 - 2.0, -1.0 - 2.0]);

        let found: Vec<f32> = shaped(phi, "gamma = 0.5").into_iter().map(|x| x.unwrap_or(f32::NAN)).collect();
        assert_eq!(found[0] + 0.5 * found[1], -2.0);
        assert_eq!(found[0] + 0.5 * found[2], 0.25 * 5.0 - 2.0);
        assert_eq!(found[4], -0.5 - 2.0);
    }

    #[test]
    fn what_has_no_potential_is_not_shaped() {
        let gaps = shaped([Some(2.0), None, None, Some(5.0), None, Some(1.0)], "");
        assert_eq!(gaps, [None, None, None, None, Some(-1.0)]);
        let no_start = shaped([None, Some(3.0), None, Some(5.0), None, Some(1.0)], "");
        assert_eq!(no_start, [None, Some(-3.0), Some(2.0), None, None]);
        assert_eq!(shaped([None; 6], ""), [None; 5]);
    }

    #[test]
    fn it_prefers_no_policy_to_another() {
        let mut world = World::new(("repair-mdp", "horizon = 6\nstep_cost = 0.05"), &["actor"], Vec::new());
        world.improve(3);
        let mut exact = named(&world, "exact", "oracle", "");
        let mut shape = named(&world, "shape", "potential", "");
        let to_go: Slot<dyn AdvantageEstimator> = plugin("return-to-go", "gamma = 1.0");
        let tree = "groups = 20\nroots = 3\nrounds = 1\nexpansions = 2\ncontinuations = 2\nselect = \"random\"\nper = \"group\"\n\
                    decode = \"admissible\"";
        let logs =
            [world.groups("independent", "groups = 40\ngroup_size = 4\ndecode = \"admissible\""), world.groups("tree", tree)];
        for logs in logs {
            let mut batch = Batch::from_groups(logs, NonFinite::Refuse).unwrap();
            world.judge(&mut exact, &mut batch).unwrap();
            world.judge(&mut shape, &mut batch).unwrap();
            let mut plain = batch.clone();
            plain.combine_rewards(&BTreeMap::from([("env".into(), 1.0)])).unwrap();
            batch.combine_rewards(&BTreeMap::from([("env".into(), 1.0), ("shaping".into(), 1.0)])).unwrap();
            let mut moved = 0;
            for (plain, shaped) in plain.groups().zip(batch.groups()) {
                let value = shaped.state_signal("value");
                // All paths of one start by the same: what remains of the process at its horizon is worth 0.
                for (before, after) in plain.outcomes().into_iter().zip(shaped.outcomes()) {
                    assert!((after - before + value.start()).abs() < 1e-5, "{before} {after} {}", value.start());
                }
                let credit = |group| to_go.estimate(group, &world.now).unwrap().turns;
                for (t, (before, after)) in credit(plain).into_iter().zip(credit(shaped)).enumerate() {
                    let change = f64::from(after.unwrap()) - f64::from(before.unwrap());
                    assert!((change + value.before(t)).abs() < 1e-5, "a baseline: {change} {}", value.before(t));
                    moved += usize::from(change.abs() > 0.05);
                }
            }
            assert!(moved > 50, "{moved}");
        }
        assert!(world.metrics.get("critic/shape/shaping/mean").is_some());
    }

    #[test]
    fn a_column_is_not_its_own_potential() {
        let world = World::new(("repair-mdp", ""), &["actor"], Vec::new());
        let config: Slot<dyn CriticConfig> = plugin("potential", "of = \"shaping\"");
        let error = world.with_context(|context| config.build("shape", context).err().unwrap().to_string());
        assert!(error.contains("call that another name"), "{error}");
    }
}
