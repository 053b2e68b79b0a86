//! Whether a turn is clean, read off the policy's own hidden state by a linear probe.
//!
//! `s_t = soft(σ(w · x_t + b))`, `x_t` being the standardised hidden vector after the last token of the turn, and `soft` a softening
//! that keeps a group's spread ([`ascribe_math::soften`]). A turn's reward is its momentum, `r_t = σ(logit s_t + α (s_t − mean_{u<t} s_u))`
//! ([`ascribe_math::momentum_rewards`]). It gives the columns `pair_score` (`s_t`) and `process_reward` (`r_t`; `column`) on turns.
//!
//! Kim et al. 2026, "PAIR: Prefix-Aware Internal Reward Model for Multi-Turn Agent Optimization", arXiv 2605.17877;
//! wonjoong-kim/PAIR `probing/train_pair.py`, `grpo/rewards/pair.py` at 03e41ad6. The estimator that takes these rewards as the
//! authors do is not this critic's matter.
//! The probe is a logistic regression, `min Σ_i c_i log(1 + exp(−y_i (w · x_i + b))) + |w|²/(2C)`, both labels weighing the same
//! (`c_i`), fitted anew in every update on the last `memory` turns that the column `labels` has a number for: above 0 is clean.
//! Reductions: `alpha = 0` rewards the scores themselves.
//! Edge cases: before the first fit, and as long as all labels are alike, no turn has a number. A phase that does not train the critic
//! leaves its probe as it is. Turns of other agents have no score and no part in a momentum. The outcome takes no part.
//! Authors' code differs: a second probe reads four attention statistics beside the first one's score, which policies here
//! do not give: this is its first stage alone. Their probes are fitted once, on a set of their own, and frozen.
//!
//! A policy without hidden vectors (`tabular`) is refused when it is asked for them.
//!
//! Cost: one forward pass to judge, and one over the labelled paths to learn, both counted as the critic's tokens; the fit takes
//! up to 2000 passes over `memory` hidden vectors, and checkpoints hold them.

use std::collections::VecDeque;

use ascribe_core::critic::Lesson;
use ascribe_core::policy::{PolicyError, ScoreRequest};
use ascribe_core::range::{AtLeast, NonNegative, Positive};
use ascribe_core::rollout::Acting;
use ascribe_core::{Batch, BuildContext, BuildError, Column, Credit, Critic, CriticConfig, Need, Provide, Scope, Signal, plugin};
use ascribe_math::{momentum_rewards, soften};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scored;
use crate::turn_head::{Shared, TurnHead, sigmoid};

const SCORE: &str = "pair_score";

/// `[critic.NAME.pair]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Column on turns that says which are clean: above 0.
    pub labels: String,
    /// Weight of momentum, 0 or more. The paper: 5.
    #[serde(default = "alpha")]
    pub alpha: NonNegative,
    /// Inverse weight of the penalty on the probe's weights, above 0. The authors' code: 0.01.
    #[serde(default = "c")]
    pub c: Positive,
    /// Labelled turns that are remembered, at least 2.
    #[serde(default = "memory")]
    pub memory: AtLeast<2>,
    /// Name of the column of rewards; another one where the environment has one of that name.
    #[serde(default = "crate::process_reward")]
    pub column: String,
    /// Policy node whose turns are judged, by its own hidden vectors.
    #[serde(default = "crate::actor")]
    pub agent: String,
}

fn alpha() -> NonNegative {
    NonNegative::try_from(5.0).expect("in range")
}
fn c() -> Positive {
    Positive::try_from(0.01).expect("in range")
}
fn memory() -> AtLeast<2> {
    AtLeast::try_from(2000).expect("in range")
}

plugin! {
    Critic "pair" {
        summary: "Whether a turn is clean, by a linear probe of the policy's hidden state.",
        source: "Kim et al. 2026, PAIR, arXiv 2605.17877; wonjoong-kim/PAIR",
        when: "With a transformer, where turns have labels for a while: a reward per turn that needs no second model.",
        example: "labels = \"clean\"\nalpha = 5.0",
        module: "pair.rs",
    }
    impl CriticConfig for Pair {
        fn build(&self, name: &str, _context: &BuildContext<'_>) -> Result<Box<dyn Critic>, BuildError> {
            if self.column == SCORE {
                return Err(BuildError::Config(format!("`column` is `{SCORE}`, which the critic gives too: call it another name")));
            }
            if self.labels == self.column || self.labels == SCORE {
                return Err(BuildError::Config(format!("`labels` is the column `{}` that the critic gives itself", self.labels)));
            }
            Ok(Box::new(Live { name: name.into(), config: self.clone(), state: State::default() }))
        }
        fn needs(&self) -> Vec<Need> {
            vec![Need::Hidden, Need::Node(self.agent.clone()), Need::Signal(self.labels.clone(), Scope::Turn)]
        }
        fn provides(&self) -> Vec<Provide> {
            self.columns().into_iter().map(|(name, scope)| Need::Signal(name, scope)).collect()
        }
    }
}

impl Pair {
    fn columns(&self) -> Vec<(String, Scope)> {
        vec![(SCORE.into(), Scope::Turn), (self.column.clone(), Scope::Turn)]
    }
}

struct Live {
    name: String,
    config: Pair,
    state: State,
}

/// What is saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct State {
    probe: Option<Probe>,
    examples: VecDeque<Example>,
}

/// A turn's hidden vector, and whether it is clean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Example {
    hidden: Vec<f32>,
    clean: bool,
}

/// A logistic regression on standardised features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Probe {
    mean: Vec<f64>,
    deviation: Vec<f64>,
    weight: Vec<f64>,
    bias: f64,
}

/// Steps of descent; the penalty makes the problem strongly convex, so that few are enough.
const STEPS: usize = 2000;
/// Largest slope at which descent has arrived.
const FLAT: f64 = 1e-8;

impl Probe {
    /// Fits a probe; `None` where all labels are alike.
    fn fit(examples: &VecDeque<Example>, c: f64) -> Option<Self> {
        let n = examples.len();
        let n_clean = examples.iter().filter(|e| e.clean).count();
        if n_clean == 0 || n_clean == n {
            return None;
        }
        let d = examples[0].hidden.len();
        let column = |j: usize| -> Vec<f64> { examples.iter().map(|e| f64::from(e.hidden[j])).collect() };
        let moments: Vec<_> = (0..d).map(|j| ascribe_math::moments(&column(j))).collect();
        let mean: Vec<f64> = moments.iter().map(|m| m.mean).collect();
        let deviation: Vec<f64> = moments
            .iter()
            .map(|m| m.deviation(ascribe_math::Deviation::Population))
            .map(|deviation| if deviation > 0.0 { deviation } else { 1.0 })
            .collect();
        let mut probe = Self { mean, deviation, weight: vec![0.0; d], bias: 0.0 };
        let features: Vec<Vec<f64>> = examples.iter().map(|e| probe.standardised(&e.hidden)).collect();
        // Both labels weigh the same.
        let of_label = |clean: bool| n as f64 / (2.0 * if clean { n_clean } else { n - n_clean } as f64);
        let balance: Vec<f64> = examples.iter().map(|e| of_label(e.clean)).collect();
        // The slope's own largest slope: ¼ Σ c (|x|² + 1) + 1/C, divided by n like the loss.
        let penalty = 1.0 / (c * n as f64);
        let squares: f64 =
            features.iter().zip(&balance).map(|(x, b)| b * (1.0 + x.iter().map(|x| x * x).sum::<f64>())).sum::<f64>();
        let rate = 1.0 / (0.25 * squares / n as f64 + penalty);
        // Nesterov's momentum, started anew where the loss would rise.
        let (mut ahead, mut speed) = ((probe.weight.clone(), probe.bias), 1.0f64);
        for _ in 0..STEPS {
            let mut slope = (ahead.0.iter().map(|w| penalty * w).collect::<Vec<f64>>(), 0.0);
            for ((x, example), balance) in features.iter().zip(examples).zip(&balance) {
                let logit = ahead.1 + x.iter().zip(&ahead.0).map(|(x, w)| x * w).sum::<f64>();
                let error = balance * (sigmoid(logit) - f64::from(u8::from(example.clean))) / n as f64;
                slope.0.iter_mut().zip(x).for_each(|(slope, x)| *slope += error * x);
                slope.1 += error;
            }
            let largest = slope.0.iter().chain([&slope.1]).fold(0.0f64, |max, s| max.max(s.abs()));
            let weight: Vec<f64> = ahead.0.iter().zip(&slope.0).map(|(w, s)| w - rate * s).collect();
            let bias = ahead.1 - rate * slope.1;
            let moved: f64 = slope.0.iter().zip(weight.iter().zip(&probe.weight)).map(|(s, (new, old))| s * (new - old)).sum();
            if moved + slope.1 * (bias - probe.bias) > 0.0 {
                speed = 1.0;
            }
            let next = (1.0 + (1.0 + 4.0 * speed * speed).sqrt()) / 2.0;
            let pull = (speed - 1.0) / next;
            speed = next;
            ahead.0 = weight.iter().zip(&probe.weight).map(|(new, old)| new + pull * (new - old)).collect();
            ahead.1 = bias + pull * (bias - probe.bias);
            (probe.weight, probe.bias) = (weight, bias);
            if largest < FLAT {
                break;
            }
        }
        Some(probe)
    }

    fn standardised(&self, hidden: &[f32]) -> Vec<f64> {
        hidden.iter().zip(self.mean.iter().zip(&self.deviation)).map(|(x, (mean, sd))| (f64::from(*x) - mean) / sd).collect()
    }

    /// Probability that a turn is clean.
    fn clean(&self, hidden: &[f32]) -> f64 {
        let x = self.standardised(hidden);
        sigmoid(self.bias + x.iter().zip(&self.weight).map(|(x, w)| x * w).sum::<f64>())
    }
}

impl Live {
    /// Hidden vectors after the turns of the agent, with the turn's row in the batch.
    fn hidden(
        &self,
        batch: &Batch,
        acting: &mut Acting<'_>,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Vec<(usize, Vec<f32>)>, PolicyError> {
        let agent = &self.config.agent;
        let head = TurnHead { name: self.name.clone(), agent: agent.clone(), node: agent.clone(), detach_trunk: true };
        let rows = head.rows(batch, acting, Shared::Once, wanted)?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let request = ScoreRequest { hidden: true, ..ScoreRequest::default() };
        let hidden = acting.node(agent)?.score(&rows, &request)?.hidden;
        acting.ledger.critic_tokens += scored::n_tokens(&rows);
        let size = hidden.len() / rows.n_trained();
        if size == 0 {
            return Err(PolicyError::Unsupported(format!("policy node `{agent}` gave no hidden vectors; a transformer does")));
        }
        Ok(rows.turns.iter().map(|turn| turn.turn as usize).zip(hidden.chunks_exact(size).map(<[f32]>::to_vec)).collect())
    }
}

impl Critic for Live {
    fn provides(&self) -> Vec<(String, Scope)> {
        self.config.columns()
    }

    fn judge(&mut self, batch: &Batch, acting: &mut Acting<'_>) -> Result<Vec<(String, Signal)>, PolicyError> {
        let n = batch.scope_len(Scope::Turn);
        let mut score = vec![None; n];
        if let Some(probe) = &self.state.probe {
            for (turn, hidden) in self.hidden(batch, acting, |_| true)? {
                if hidden.len() != probe.weight.len() {
                    return Err(PolicyError::Unsupported(format!(
                        "the probe was fitted to hidden vectors of {}, the policy's have {}",
                        probe.weight.len(),
                        hidden.len()
                    )));
                }
                score[turn] = Some(soften(&[probe.clean(&hidden)])[0]);
            }
        }
        let mut reward = Column::absent(n);
        for group in batch.groups() {
            for path in group.trajectories() {
                let turns = path.turns().into_iter().map(|t| group.rows().start + t);
                let (turns, scores): (Vec<usize>, Vec<f64>) = turns.filter_map(|r| Some((r, score[r]?))).unzip();
                let rewards = momentum_rewards(&scores, *self.config.alpha);
                turns.iter().zip(rewards).for_each(|(r, x)| reward.set(*r, x as f32));
            }
        }
        let score: Column = score.into_iter().map(|s| s.map(|s| s as f32)).collect();
        acting.metrics.summarise(&format!("critic/{}/pair_score", self.name), score.iter_present().map(f64::from));
        let signal = |column| Signal { scope: Scope::Turn, provider: self.name.clone(), column };
        Ok(vec![(SCORE.into(), signal(score)), (self.config.column.clone(), signal(reward))])
    }

    fn learn(&mut self, batch: &Batch, _credit: &[Credit], acting: &mut Acting<'_>) -> Result<Vec<Lesson>, PolicyError> {
        let Some(labels) = batch.signals.get(&self.config.labels).map(|signal| &signal.column) else { return Ok(Vec::new()) };
        let new = self.hidden(batch, acting, |r| labels.get(r).is_some())?;
        let new = new.into_iter().filter_map(|(r, hidden)| Some(Example { hidden, clean: labels.get(r)? > 0.0 }));
        let new: Vec<Example> = new.collect();
        if let (Some(probe), false) = (&self.state.probe, new.is_empty()) {
            // Before it has seen them: what it is worth on turns that it does not know.
            let right = new.iter().filter(|e| (probe.clean(&e.hidden) > 0.5) == e.clean).count();
            acting.metrics.set(format!("critic/{}/probe_accuracy", self.name), right as f64 / new.len() as f64);
        }
        self.state.examples.extend(new);
        let surplus = self.state.examples.len().saturating_sub(self.config.memory.get());
        self.state.examples.drain(..surplus);
        if let Some(probe) = Probe::fit(&self.state.examples, *self.config.c) {
            self.state.probe = Some(probe);
        }
        Ok(Vec::new())
    }

    fn save(&self) -> Result<Vec<u8>, PolicyError> {
        serde_json::to_vec(&self.state).map_err(|e| PolicyError::NonFinite(format!("the probe cannot be written: {e}")))
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        self.state = serde_json::from_slice(bytes).map_err(|e| PolicyError::Load(format!("the probe: {e}")))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::log::Action;
    use ascribe_core::objective::{DiffColumn, Sums};
    use ascribe_core::policy::{Continuation, HeadSpec, OptimStep, Part, Policy, Scored, Session, StepReport};
    use ascribe_core::tokenizer::Tokenizer;
    use ascribe_core::{NamedCritic, Now, RowSet};

    use super::*;
    use crate::testing::World;

    const ROLLOUT: &str = "groups = 8\ngroup_size = 4\ndecode = \"admissible\"";

    /// A table with hidden vectors: one number for each of the last two tokens that were read, and a third that is always the same.
    struct Seeing(Box<dyn Policy>);
    impl Policy for Seeing {
        fn tokenizer(&self) -> std::sync::Arc<dyn Tokenizer> {
            self.0.tokenizer()
        }
        fn version(&self) -> u64 {
            self.0.version()
        }
        fn max_tokens(&self) -> usize {
            self.0.max_tokens()
        }
        fn n_parameters(&self) -> usize {
            self.0.n_parameters()
        }
        fn columns(&self) -> Vec<DiffColumn> {
            self.0.columns()
        }
        fn add_head(&mut self, spec: HeadSpec) -> Result<(), PolicyError> {
            self.0.add_head(spec)
        }
        fn open(&mut self) -> Result<Session, PolicyError> {
            self.0.open()
        }
        fn prefill(&mut self, work: &[(Session, &[u32])]) -> Result<(), PolicyError> {
            self.0.prefill(work)
        }
        fn fork(&mut self, session: Session) -> Result<Session, PolicyError> {
            self.0.fork(session)
        }
        fn close(&mut self, session: Session) {
            self.0.close(session);
        }
        fn sample(&mut self, work: &[Continuation<'_>]) -> Result<Vec<Action>, PolicyError> {
            self.0.sample(work)
        }
        fn score(&mut self, rows: &RowSet, request: &ScoreRequest) -> Result<Scored, PolicyError> {
            let own = ScoreRequest { hidden: false, ..request.clone() };
            let mut scored = self.0.score(rows, &own)?;
            if request.hidden {
                for (r, row) in rows.rows.iter().enumerate() {
                    for i in row.trained.clone() {
                        let read = &rows.tokens_of(r)[..rows.at[i]];
                        let from_end = |k: usize| read.len().checked_sub(k).map_or(0.0, |at| read[at] as f32);
                        scored.hidden.extend([from_end(1), from_end(2), 7.0]);
                    }
                }
            }
            Ok(scored)
        }
        fn forward_backward(&mut self, parts: &[Part<'_>], tokens: usize, now: &Now) -> Result<Vec<Sums>, PolicyError> {
            self.0.forward_backward(parts, tokens, now)
        }
        fn optim_step(&mut self, step: &OptimStep) -> Result<StepReport, PolicyError> {
            self.0.optim_step(step)
        }
        fn copy(&self) -> Result<Box<dyn Policy>, PolicyError> {
            self.0.copy()
        }
        fn save(&self) -> Result<Vec<u8>, PolicyError> {
            self.0.save()
        }
        fn load(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
            self.0.load(bytes)
        }
    }

    fn world() -> World {
        let mut world = World::new(("repair-mdp", ""), &["actor"], Vec::new());
        let table = world.nodes.remove("actor").unwrap();
        world.nodes.insert("actor".into(), Box::new(Seeing(table)));
        world
    }

    fn named(world: &World, body: &str) -> NamedCritic {
        let body = format!("labels = \"clean\"\nc = 10.0\n{body}");
        NamedCritic { name: "pair".into(), critic: world.critic("pair", "pair", &body) }
    }

    /// A batch whose turns are clean where the last token before the end of the action is at most the middle one.
    fn labelled(world: &mut World) -> Batch {
        let mut batch = world.batch("independent", ROLLOUT);
        let said: Vec<u32> = batch.turns.tokens.iter().map(|span| batch.tokens[span.range().end - 2]).collect();
        let mut sorted = said.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let middle = sorted[(sorted.len() - 1) / 2];
        let column = said.iter().map(|token| Some(if *token <= middle { 1.0 } else { -1.0 })).collect();
        batch.add_signal("clean", Signal { scope: Scope::Turn, provider: "test".into(), column }).unwrap();
        batch
    }

    #[test]
    fn the_probe_is_where_its_loss_is_flat() {
        let example = |x: f32, clean: bool| Example { hidden: vec![x, 3.0], clean };
        let examples: VecDeque<Example> =
            [example(0.0, false), example(2.0, true), example(0.0, false), example(2.0, true)].into();
        let probe = Probe::fit(&examples, 0.5).unwrap();
        // Standardised to ∓1, the constant to 0: σ(−w) = w / (C n), and no bias.
        let w = probe.weight[0];
        assert!((sigmoid(-w) - w / (0.5 * 4.0)).abs() < 1e-6, "{w}");
        assert!(probe.weight[1] == 0.0 && probe.bias.abs() < 1e-6, "{probe:?}");
        // One clean turn weighs as much as three others: at the same place the odds are even.
        let same: VecDeque<Example> = [example(1.0, true), example(1.0, false), example(1.0, false), example(1.0, false)].into();
        assert!((Probe::fit(&same, 1.0).unwrap().clean(&[1.0, 3.0]) - 0.5).abs() < 1e-6);
        assert!(Probe::fit(&[example(1.0, true)].into(), 1.0).is_none());
        assert!(Probe::fit(&VecDeque::new(), 1.0).is_none());
    }

    #[test]
    fn it_learns_what_the_hidden_state_tells_and_rewards_momentum() {
        let mut world = world();
        let mut critic = named(&world, "alpha = 2.0");
        let mut first = labelled(&mut world);
        world.judge(&mut critic, &mut first).unwrap();
        assert_eq!(first.signals[SCORE].column.iter_present().count(), 0);
        for _ in 0..3 {
            let batch = labelled(&mut world);
            assert!(world.lessons(&mut critic, &batch).is_empty());
        }
        assert!(world.metrics.get("critic/pair/probe_accuracy").unwrap() > 0.9);
        let mut batch = labelled(&mut world);
        world.judge(&mut critic, &mut batch).unwrap();
        let right = |group: ascribe_core::Group<'_>| {
            let clean: Vec<_> = group.turn_signal("clean").collect();
            let score: Vec<_> = group.turn_signal(SCORE).collect();
            clean.iter().zip(&score).filter(|(c, s)| (c.unwrap() > 0.0) == (s.unwrap() > 0.5)).count()
        };
        let n_right: usize = batch.groups().map(right).sum();
        assert!(n_right as f64 > 0.9 * batch.turns.parent.len() as f64, "{n_right} of {}", batch.turns.parent.len());
        for group in batch.groups() {
            let score: Vec<f64> = group.turn_signal(SCORE).map(|s| f64::from(s.unwrap())).collect();
            let reward: Vec<f64> = group.turn_signal(crate::PROCESS_REWARD).map(|r| f64::from(r.unwrap())).collect();
            for path in group.trajectories() {
                let of_path: Vec<f64> = path.turns().into_iter().map(|t| score[t]).collect();
                for (t, want) in path.turns().into_iter().zip(momentum_rewards(&of_path, 2.0)) {
                    assert!((reward[t] - want).abs() < 1e-6);
                }
            }
        }
        // What is saved is all of it.
        let mut resumed = named(&world, "alpha = 2.0");
        resumed.critic.load(&critic.critic.save().unwrap()).unwrap();
        assert_eq!(resumed.critic.save().unwrap(), critic.critic.save().unwrap());
        assert!(resumed.critic.load(b"no state").is_err());
    }

    #[test]
    fn it_remembers_so_many_turns_and_needs_hidden_vectors() {
        let mut world = world();
        let mut critic = Live {
            name: "pair".into(),
            config: toml::from_str("labels = \"clean\"\nmemory = 5").unwrap(),
            state: State::default(),
        };
        let batch = labelled(&mut world);
        world.act(|acting| critic.learn(&batch, &[], acting)).unwrap();
        assert_eq!(critic.state.examples.len(), 5);
        let mut blind = World::new(("repair-mdp", ""), &["actor"], Vec::new());
        let error = blind.act(|acting| critic.learn(&batch, &[], acting)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("hidden vectors"), "{error}");
    }

    #[test]
    fn its_rewards_go_by_another_name_where_one_is_taken() {
        let mut world = world();
        let mut critic = named(&world, "column = \"momentum\"");
        let mut batch = labelled(&mut world);
        let taken = Column::absent(batch.scope_len(Scope::Turn));
        let taken = Signal { scope: Scope::Turn, provider: "env".into(), column: taken };
        batch.add_signal(crate::PROCESS_REWARD, taken).unwrap();
        world.judge(&mut critic, &mut batch).unwrap();
        assert_eq!(batch.signals["momentum"].provider, "pair");
        for (body, told) in [
            ("labels = \"clean\"\ncolumn = \"pair_score\"", "call it another name"),
            ("labels = \"process_reward\"", "gives itself"),
            ("labels = \"pair_score\"", "gives itself"),
        ] {
            let config: ascribe_core::Slot<dyn CriticConfig> = crate::testing::plugin("pair", body);
            let error = world.with_context(|context| config.build("pair", context).err().unwrap().to_string());
            assert!(error.contains(told), "{body}: {error}");
        }
    }
}
