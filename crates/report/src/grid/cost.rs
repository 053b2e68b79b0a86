//! Sections about what runs went through: alarms, failures, clocks and machines.

use ascribe_study::grid::{Cell, State};
use ascribe_study::{Axis, Replication};
use maud::{Markup, html};

use super::GridReport;
use super::figure::{self, Legend, plain};

impl GridReport<'_> {
    /// Alarms that runs raised.
    pub(super) fn alarms(&self) -> Markup {
        let mut rows = Vec::new();
        for (arm, spent) in &self.results.spent {
            for (alarm, updates) in &spent.alarms {
                let all = spent.updates * spent.runs as f64;
                rows.push(vec![html! { (arm) }, html! { (alarm) }, html! { (updates) }, html! { (plain(all)) }]);
            }
        }
        if rows.is_empty() {
            return html! { p { "No finished run raised an alarm." } };
        }
        html! {
            (figure::table("Updates of finished runs in which an alarm was raised", &["arm", "alarm", "updates", "of"], &rows))
            p { code { "ascribe explain ALARM" } " says what each means and what to change." }
        }
    }

    /// Cells that are in no number.
    pub(super) fn failed_and_missing(&self) -> Markup {
        let of = |cell: &Cell| match &cell.tries {
            Some(tries) => format!("{}, tuning {}", cell.arm, tries.join(" ")),
            None => cell.arm.clone(),
        };
        let mut failed = Vec::new();
        let mut missing = Vec::new();
        for (cell, state) in &self.cells {
            let mut row = vec![html! { (of(cell)) }, html! { (cell.seed) }];
            match state {
                State::Done => {}
                State::Failed(failure) => {
                    row.push(html! { code { (failure.reason) } });
                    failed.push(row);
                }
                State::Waiting => {
                    row.push(html! { "waiting" });
                    missing.push(row);
                }
                State::Running { update } => {
                    row.push(html! { "running, " (update) " updates done" });
                    missing.push(row);
                }
                State::Stopped { update } => {
                    row.push(html! { "stopped after " (update) " updates" });
                    missing.push(row);
                }
            }
        }
        // A run that finished, and whose numbers are none.
        for arm in self.results.table.arms() {
            for failure in &arm.failures {
                let done = |(cell, state): &(Cell, State)| {
                    cell.tries.is_none() && cell.arm == arm.name && cell.seed == failure.seed && *state == State::Done
                };
                if self.cells.iter().any(done) {
                    failed.push(vec![
                        html! { (arm.name) },
                        html! { (failure.seed) },
                        html! { "finished without a result: " code { (failure.reason) } },
                    ]);
                }
            }
        }
        html! {
            @if failed.is_empty() { p { "No cell failed." } } @else {
                p { "They are in no number of this page, and count against their arms: an arm that breaks in two of five runs is not as good as its other three." }
                (figure::table("Failed", &["arm", "seed", "reason"], &failed))
            }
            @if missing.is_empty() { p { "No cell is missing." } } @else {
                (figure::table("Not done", &["arm", "seed", "state"], &missing))
            }
        }
    }

    /// What clocks and machines say.
    pub(super) fn clock(&self, legend: &Legend) -> Markup {
        let rows: Vec<Vec<Markup>> = self
            .clock
            .arms
            .iter()
            .map(|(arm, clock)| {
                let seconds = if clock.runs > 0 { plain(clock.seconds) } else { "—".into() };
                vec![html! { (arm) }, html! { (clock.runs) }, html! { (seconds) }, html! { (plain(clock.tuning_seconds)) }]
            })
            .collect();
        let machines: Vec<Vec<Markup>> = self
            .clock
            .machines
            .iter()
            .map(|machine| {
                let threads: Vec<String> = machine.threads.iter().map(ToString::to_string).collect();
                vec![
                    html! { (machine.host) },
                    html! { (machine.device) },
                    html! { (threads.join(", ")) },
                    html! { (machine.version) },
                    html! { (machine.rustc) },
                    match &machine.commit {
                        Some(commit) => html! { code { (commit) } },
                        None => html! { span.blank { "not recorded" } },
                    },
                    html! { (machine.starts) },
                    html! { (machine.first) " to " (machine.last) },
                ]
            })
            .collect();
        html! {
            p { "What stands here differs from one run of the same grid to the next; nothing else on this page does, but for dates." }
            (self.curve(legend, Axis::Seconds, &self.seconds))
            p.dim {
                "Seconds of updates: playing, judging, training; evaluations are left out. Runs that share a machine slow each other down. Bands need "
                (Replication::LEAST) " seeds."
            }
            @if !self.clock.gaps.is_empty() {
                p { "Runs whose clock has gaps, and that are not in these two:" }
                ul { @for (arm, seed, why) in &self.clock.gaps { li { (arm) ", seed " (seed) ": " (why) } } }
            }
            (self.at_equal(&self.equal_seconds))
            (figure::table("Seconds of wall clock, evaluations included", &["arm", "runs", "seconds, mean of a run", "seconds of tuning, all runs"], &rows))
            (figure::table(
                "Machines",
                &["host", "device", "threads", "Ascribe", "compiler", "commit (+ where files differed)", "starts", "dates (UTC)"],
                &machines,
            ))
        }
    }
}
