//! How a run shows itself: bars on a terminal, lines otherwise. All of it goes to standard error.

use std::time::{Duration, Instant};

use ascribe_core::Metrics;
use ascribe_run::{Event, Progress};
use ascribe_study::visible;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::complain;

/// Shows a run, and takes its bars away in the end.
pub(crate) trait Watcher: Progress {
    /// Nothing more will happen.
    fn finish(&mut self);
}

/// Share of solved tasks, tokens per second. What an expert played is the expert's.
fn numbers(metrics: &Metrics, tokens_per_second: f64) -> String {
    let who = if metrics.get("rollout/given_rate") == Some(1.0) { "expert solves" } else { "success" };
    let success = metrics.get("rollout/success_rate").map_or_else(|| "-".into(), |x| format!("{:.0} %", 100.0 * x));
    let speed =
        if tokens_per_second >= 1e4 { format!("{:.0}k", tokens_per_second / 1e3) } else { format!("{tokens_per_second:.0}") };
    format!("{who} {success}, {speed} tokens/s")
}

fn started(event: &Event<'_>) -> Option<String> {
    let Event::Started { folder, resumed, parameters } = event else { return None };
    let nodes: Vec<String> = parameters.iter().map(|(name, n)| format!("{name}: {n} parameters")).collect();
    let from = resumed.map_or_else(String::new, |update| format!(", resumed after update {update}"));
    Some(format!("{} ({}{from})", folder.display(), nodes.join(", ")))
}

fn measured(event: &Event<'_>) -> Option<String> {
    let Event::Evaluated(evaluation) = event else { return None };
    let parts = evaluation.results.iter().map(|r| format!("{} {} {:.3}", r.split, r.mode.as_str(), r.summary.success));
    Some(format!("after update {}: success {}", evaluation.update, parts.collect::<Vec<_>>().join(", ")))
}

/// A bar per phase.
#[derive(Default)]
pub(crate) struct Bars {
    bar: Option<ProgressBar>,
}

impl Bars {
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| complain(text)),
            None => complain(text),
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Progress for Bars {
    fn on(&mut self, event: Event<'_>) {
        if let Some(text) = started(&event) {
            return complain(&text);
        }
        if let Some(text) = measured(&event) {
            return self.line(&text);
        }
        match event {
            Event::Phase { name, done, updates, .. } => {
                self.finish();
                let bar = ProgressBar::new(u64::from(updates)).with_position(u64::from(done));
                bar.set_style(style("{prefix:10} {bar:30} {pos}/{len} {elapsed} (left {eta})  {msg}"));
                bar.set_prefix(visible(name).into_owned());
                bar.enable_steady_tick(Duration::from_millis(250));
                self.bar = Some(bar);
            }
            Event::Update { phase_update, metrics, tokens_per_second, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(u64::from(phase_update));
                    bar.set_message(numbers(metrics, tokens_per_second));
                }
            }
            Event::Evaluating { split, done, of } => {
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("measuring on `{}`: {done} of {of} episodes", visible(split)));
                }
            }
            Event::Warning(text) => self.line(&format!("warning: {text}")),
            Event::Note(text) => self.line(text),
            Event::Started { .. } | Event::Evaluated(_) | Event::Saved { .. } => {}
        }
    }
}

impl Watcher for Bars {
    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.abandon();
        }
    }
}

/// A line now and then.
#[derive(Default)]
pub(crate) struct Lines {
    phase: String,
    said: Option<Instant>,
}

/// Seconds between two lines about updates.
const EVERY: Duration = Duration::from_secs(5);

impl Progress for Lines {
    fn on(&mut self, event: Event<'_>) {
        if let Some(text) = started(&event).or_else(|| measured(&event)) {
            return complain(&text);
        }
        match event {
            Event::Phase { name, index, phases, done, updates } => {
                self.phase = name.into();
                self.said = None;
                complain(&format!("phase `{name}` ({} of {phases}): {done} of {updates} updates done", index + 1));
            }
            Event::Update { phase_update, phase_updates, metrics, tokens_per_second, .. } => {
                let last = phase_update == phase_updates;
                if last || self.said.is_none_or(|said| said.elapsed() >= EVERY) {
                    self.said = Some(Instant::now());
                    let numbers = numbers(metrics, tokens_per_second);
                    complain(&format!("{} {phase_update}/{phase_updates}: {numbers}", self.phase));
                }
            }
            Event::Warning(text) => complain(&format!("warning: {text}")),
            Event::Note(text) => complain(text),
            _ => {}
        }
    }
}

impl Watcher for Lines {
    fn finish(&mut self) {}
}
