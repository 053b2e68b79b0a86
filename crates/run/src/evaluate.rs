//! Measuring a policy: the same tasks with the same seeds each time, greedily and by sampling.

use std::collections::BTreeMap;
use std::time::Duration;

use ascribe_core::environment::{TRAIN, TaskId};
use ascribe_core::experiment::Evaluate;
use ascribe_core::ledger::Ledger;
use ascribe_core::log::{End, GroupLog, LeafLog};
use ascribe_core::play::{Decode, Keep, Play, Start};
use ascribe_core::rollout::RolloutError;
use ascribe_core::{Metrics, Need, Policy, Scope, Seeds, TaskSet};
use serde::{Deserialize, Serialize};

use crate::records::{EpisodeResult, EvaluationLine};

/// Tasks that are played at once: bounds the sessions a policy has to hold.
const AT_ONCE: usize = 128;

/// Most episodes played side by side, unless a task alone has more.
const EPISODES_AT_ONCE: usize = 4096;

/// How actions are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The most probable token, once per task.
    Greedy,
    /// Sampled, as often per task as asked.
    Sampled,
}

impl Mode {
    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Greedy => "greedy",
            Mode::Sampled => "sampled",
        }
    }
}

/// Means over episodes. An episode that failed counts as not solved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Tasks.
    pub tasks: usize,
    /// Episodes.
    pub episodes: usize,
    /// Episodes that broke.
    pub failed: usize,
    /// Share that was solved.
    pub success: f64,
    /// Mean sum of the environment's rewards.
    #[serde(rename = "return")]
    pub outcome: f64,
    /// Mean number of turns.
    pub turns: f64,
    /// Mean over episodes of the sum of each of the environment's columns, e.g. `exploit`.
    pub signals: BTreeMap<String, f64>,
    /// Share solved, by kind of task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_category: BTreeMap<String, f64>,
}

/// What a policy achieved on one split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitResult {
    /// The split.
    pub split: String,
    /// How its actions were chosen.
    pub mode: Mode,
    /// What came of it.
    pub summary: Summary,
}

/// One measurement of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Updates done.
    pub update: u32,
    /// Name of the phase.
    pub phase: String,
    /// Whether the phase ended here.
    pub phase_end: bool,
    /// Results, greedy before sampled, split by split.
    pub results: Vec<SplitResult>,
}

impl Evaluation {
    /// Its numbers as metrics under `eval/SPLIT/MODE/`.
    pub fn metrics(&self) -> Metrics {
        let mut m = Metrics::default();
        for SplitResult { split, mode, summary } in &self.results {
            let at = |what: &str| format!("eval/{split}/{}/{what}", mode.as_str());
            m.set(at("success"), summary.success);
            m.set(at("return"), summary.outcome);
            m.set(at("turns"), summary.turns);
            m.set(at("failed"), summary.failed as f64 / summary.episodes.max(1) as f64);
            summary.signals.iter().for_each(|(name, x)| m.set(at(name), *x));
            summary.by_category.iter().for_each(|(name, x)| m.set(at(&format!("success/{name}")), *x));
        }
        m
    }
}

/// What to measure, and with what.
pub struct Measure<'a> {
    /// Name of the policy node.
    pub agent: &'a str,
    /// What its actions are made of.
    pub decode: Decode,
    /// Splits, tasks, samples, temperature.
    pub settings: &'a Evaluate,
    /// The run's seed.
    pub seeds: Seeds,
    /// Longest time that a step of an environment may take; `None` is no limit.
    pub patience: Option<Duration>,
    /// Updates done.
    pub update: u32,
    /// Name of the phase.
    pub phase: &'a str,
}

/// What a measurement gave.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Results by split and mode.
    pub results: Vec<SplitResult>,
    /// Results by task.
    pub lines: Vec<EvaluationLine>,
    /// What it cost: never counted as training.
    pub ledger: Ledger,
}

impl Measure<'_> {
    /// Plays. `watch(split, done, of)` hears how far it is and says whether to go on; if not, nothing comes of it.
    ///
    /// # Errors
    /// If the policy fails.
    pub fn play(
        &self,
        policy: &mut dyn Policy,
        tasks: &dyn TaskSet,
        watch: &mut dyn FnMut(&str, usize, usize) -> bool,
    ) -> Result<Option<Measured>, RolloutError> {
        let mut measured = Measured::default();
        let declared = declared_signals(tasks);
        for split in self.splits(tasks) {
            let chosen = choose(tasks, &split, self.settings.tasks.0);
            let samples = self.settings.samples.get();
            let of = chosen.len() * (1 + samples);
            let mut done = 0;
            for (mode, members, temperature) in
                [(Mode::Greedy, 1, 0.0), (Mode::Sampled, samples, *self.settings.temperature as f32)]
            {
                if members == 0 || chosen.is_empty() {
                    continue;
                }
                let first = measured.lines.len();
                // Whoever wants it to stop is heard between two chunks.
                let at_once = AT_ONCE.min((EPISODES_AT_ONCE / members).max(1));
                for (chunk, tasks_of_chunk) in (0u32..).zip(chosen.chunks(at_once)) {
                    if !watch(&split, done, of) {
                        return Ok(None);
                    }
                    let starts: Vec<Start> = tasks_of_chunk.iter().cloned().map(Start::of).collect();
                    let play = Play {
                        agent: self.agent,
                        starts: &starts,
                        members,
                        temperature,
                        decode: self.decode,
                        keep: Keep::default(),
                        patience: self.patience,
                        stream: &format!("evaluate/{split}"),
                        // Its random numbers are those of the chunk, whatever the run's update: each time the same.
                        update: chunk,
                        seeds: self.seeds,
                    };
                    let groups = play.sample(policy, tasks, &mut measured.ledger)?;
                    done += members * groups.len();
                    measured.lines.extend(groups.iter().map(|group| self.line(group, &split, mode, tasks)));
                }
                let summary = summarise(&measured.lines[first..], &declared);
                measured.results.push(SplitResult { split: split.clone(), mode, summary });
            }
        }
        Ok(Some(measured))
    }

    /// The splits asked for; by default all but the one that trains.
    fn splits(&self, tasks: &dyn TaskSet) -> Vec<String> {
        if self.settings.splits.is_empty() {
            tasks.splits().into_iter().filter(|split| split != TRAIN).collect()
        } else {
            self.settings.splits.clone()
        }
    }

    fn line(&self, group: &GroupLog, split: &str, mode: Mode, tasks: &dyn TaskSet) -> EvaluationLine {
        EvaluationLine {
            update: self.update,
            phase: self.phase.into(),
            split: split.into(),
            mode,
            task: group.task.index,
            name: group.task_name.clone(),
            category: tasks.category(&group.task),
            episodes: group.leaves.iter().map(|leaf| episode(group, leaf)).collect(),
        }
    }
}

/// At most `most` tasks of a split (0: all), evenly spaced: a split may be sorted by kind.
fn choose(tasks: &dyn TaskSet, split: &str, most: u64) -> Vec<TaskId> {
    let len = tasks.len(split) as u64;
    let n = if most == 0 { len } else { most.min(len) };
    (0..n).map(|i| TaskId { split: split.into(), index: (i * len / n) as u32 }).collect()
}

fn episode(group: &GroupLog, leaf: &LeafLog) -> EpisodeResult {
    let mut result = EpisodeResult {
        success: leaf.end.success(),
        outcome: 0.0,
        turns: 0,
        end: match &leaf.end {
            End::Terminated { .. } => "terminated",
            End::Truncated(_) => "truncated",
            End::MacroBoundary => "boundary",
            End::Untried => "untried",
            End::Failed(_) => "failed",
        }
        .into(),
        signals: Vec::new(),
    };
    let mut signals: BTreeMap<&str, f64> = BTreeMap::new();
    let mut at = leaf.turn;
    while let Some(t) = at {
        let turn = &group.turns[t];
        result.turns += 1;
        result.outcome += f64::from(turn.reward) + turn.token_rewards.iter().map(|(_, r)| f64::from(*r)).sum::<f64>();
        for (name, x) in &turn.signals {
            *signals.entry(name).or_default() += f64::from(*x);
        }
        at = turn.parent;
    }
    result.signals = signals.into_iter().map(|(name, x)| (name.to_string(), x)).collect();
    result
}

/// Columns that an environment says it fills. One that it filled nowhere is 0, not unknown: no exploit is a result.
pub(crate) fn declared_signals(tasks: &dyn TaskSet) -> Vec<String> {
    let provides = &tasks.capabilities().provides;
    let on_turns = provides.iter().filter_map(|p| match p {
        Need::Signal(name, Scope::Turn) => Some(name.clone()),
        _ => None,
    });
    on_turns.collect()
}

/// Means over the episodes of some tasks. `declared` columns are there even where no episode filled them.
pub fn summarise(lines: &[EvaluationLine], declared: &[String]) -> Summary {
    let episodes: Vec<&EpisodeResult> = lines.iter().flat_map(|line| &line.episodes).collect();
    let n = episodes.len().max(1) as f64;
    let share = |episodes: &[&EpisodeResult]| episodes.iter().filter(|e| e.success).count() as f64 / episodes.len().max(1) as f64;
    let mut signals: BTreeMap<String, f64> = declared.iter().map(|name| (name.clone(), 0.0)).collect();
    for (name, x) in episodes.iter().flat_map(|e| &e.signals) {
        *signals.entry(name.clone()).or_default() += x / n;
    }
    let mut kinds: BTreeMap<&str, Vec<&EpisodeResult>> = BTreeMap::new();
    for line in lines {
        if let Some(kind) = &line.category {
            kinds.entry(kind).or_default().extend(&line.episodes);
        }
    }
    Summary {
        tasks: lines.len(),
        episodes: episodes.len(),
        failed: episodes.iter().filter(|e| e.end == "failed").count(),
        success: share(&episodes),
        outcome: episodes.iter().map(|e| e.outcome).sum::<f64>() / n,
        turns: episodes.iter().map(|e| f64::from(e.turns)).sum::<f64>() / n,
        signals,
        by_category: kinds.into_iter().map(|(kind, episodes)| (kind.to_string(), share(&episodes))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ascribe_core::log::TurnLog;

    #[test]
    fn an_evaluation_counts_failures_and_sums_signals() {
        let turn = |parent, reward, exploit: f32| TurnLog {
            parent,
            reward,
            signals: vec![("exploit".into(), exploit)],
            ..TurnLog::default()
        };
        let leaf = |turn, end| LeafLog { turn, end, seed: 0 };
        let group = GroupLog {
            turns: vec![turn(None, 0.5, 0.0), turn(Some(0), 0.5, 1.0), turn(None, 0.0, 0.0)],
            leaves: vec![
                leaf(Some(1), End::Terminated { success: true }),
                leaf(Some(2), End::Terminated { success: false }),
                leaf(None, End::Failed("no game".into())),
            ],
            ..GroupLog::default()
        };
        let line = EvaluationLine {
            update: 1,
            phase: "rl".into(),
            split: "test".into(),
            mode: Mode::Greedy,
            task: 0,
            name: "a".into(),
            category: Some("swap".into()),
            episodes: group.leaves.iter().map(|l| episode(&group, l)).collect(),
        };
        assert_eq!(line.episodes[0].turns, 2);
        let s = summarise(&[line], &["hint".into()]);
        assert_eq!((s.tasks, s.episodes, s.failed), (1, 3, 1));
        assert_eq!((s.success, s.outcome, s.turns), (1.0 / 3.0, 1.0 / 3.0, 1.0));
        assert_eq!(s.signals, BTreeMap::from([("exploit".into(), 1.0 / 3.0), ("hint".into(), 0.0)]));
        assert_eq!(s.by_category, BTreeMap::from([("swap".into(), 1.0 / 3.0)]));
        let result = SplitResult { split: "test".into(), mode: Mode::Greedy, summary: s };
        let m = Evaluation { results: vec![result], ..Evaluation::default() }.metrics();
        assert_eq!(m.get("eval/test/greedy/exploit"), Some(1.0 / 3.0));
        assert_eq!(m.get("eval/test/greedy/success/swap"), Some(1.0 / 3.0));
        assert_eq!(summarise(&[], &[]), Summary::default());
    }
}
