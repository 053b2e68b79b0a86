//! The checklist of the survey of credit assignment, arXiv 2604.09459: what most of the papers that it read left out.

use ascribe_study::grid::Spent;
use ascribe_study::{Bootstrap, Replication, Verdict};
use maud::{Markup, html};

use super::GridReport;
use super::figure::{draws, plain, score};
use super::sheets::family;

/// Arms are at equal budget if the dearest spends no more than so much beyond the cheapest.
const EQUAL: f64 = 0.05;

/// What stands in a line.
enum Answer {
    /// What is known.
    Known(Markup),
    /// Nothing is known, and why.
    Blank(&'static str),
}
use Answer::{Blank, Known};

impl GridReport<'_> {
    /// The checklist, filled in where the data allow it.
    pub(super) fn checklist(&self) -> Markup {
        let parts =
            [("Compute", self.compute()), ("Variance", self.variance()), ("Budget-matched baseline", self.budget_matched())];
        let lines: usize = parts.iter().map(|(_, lines)| lines.len()).sum();
        let blank = parts.iter().flat_map(|(_, lines)| lines).filter(|(_, answer)| matches!(answer, Blank(_))).count();
        html! {
            p {
                "What the survey of credit assignment (arXiv 2604.09459) misses in most papers: compute, variance, a baseline at the same budget. "
                (lines - blank) " of " (lines) " lines are filled in from this grid, " strong { (blank) " are blank" } "."
            }
            div.wide tabindex="0" role="region" aria-label="Checklist" {
                table {
                    caption { "Checklist" }
                    thead { tr { th scope="col" { "part" } th scope="col" { "line" } th scope="col" { "answer" } } }
                    @for (part, lines) in &parts {
                        tbody {
                            @for (i, (line, answer)) in lines.iter().enumerate() {
                                tr {
                                    @if i == 0 { th scope="rowgroup" rowspan=(lines.len()) { (part) } }
                                    th scope="row" { (line) }
                                    @match answer {
                                        Known(known) => td { (known) },
                                        Blank(why) => td { span.blank { (why) } },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// A number of each arm, for arms with runs that finished.
    fn of_arms(&self, of: impl Fn(&Spent) -> Option<f64>) -> Answer {
        let numbers: Vec<(&str, Option<f64>)> =
            self.results.spent.iter().filter(|(_, spent)| spent.runs > 0).map(|(arm, spent)| (arm.as_str(), of(spent))).collect();
        if numbers.iter().all(|(_, number)| number.is_none()) {
            return Blank("not recorded");
        }
        Known(html! {
            @for (i, (arm, number)) in numbers.iter().enumerate() {
                @if i > 0 { "; " }
                (arm) ": "
                @match number { Some(x) => (plain(*x)), None => span.blank { "not recorded" } }
            }
        })
    }

    fn cost(&self, name: &str) -> Answer {
        self.of_arms(|spent| spent.mean.get(name).copied())
    }

    fn compute(&self) -> Vec<(&'static str, Answer)> {
        let clocks: usize = self.clock.arms.iter().map(|(_, clock)| clock.runs).sum();
        let tuned = self.plan.spec.tuned();
        let tuning = if tuned.is_empty() {
            Known(html! { "nothing was tuned" })
        } else if self.tuning.is_empty() {
            Blank("its runs are not all done")
        } else {
            let cost =
                |arm: &str| self.results.spent.iter().find(|(of, _)| of == arm).map_or(0, |(_, spent)| spent.tuning_tokens);
            Known(html! {
                @for (i, arm) in self.tuning.keys().enumerate() {
                    @if i > 0 { "; " }
                    (arm) ": " (plain(cost(arm) as f64))
                }
            })
        };
        vec![
            ("tokens sampled by the actor, a run", self.cost("actor_tokens")),
            ("tokens of critics, a run", self.cost("critic_tokens")),
            ("tokens of branches, a run", self.cost("branch_tokens")),
            ("all tokens, a run", self.cost("tokens")),
            ("tokens that were trained on, a run", self.cost("trained_tokens")),
            ("environment steps, a run", self.cost("env_steps")),
            ("updates, a run", self.of_arms(|spent| Some(spent.updates))),
            ("tokens of evaluations, a run", self.of_arms(|spent| Some(spent.eval_tokens))),
            ("tokens of tuning, all runs of an arm", tuning),
            (
                "seconds, host, device",
                if clocks == 0 {
                    Blank("not recorded")
                } else {
                    Known(html! { "recorded for " (clocks) " runs: " a href="#clock" { "Clock and machine" } })
                },
            ),
            (
                "parameters of the models",
                Blank("not in the records of runs; what each cell said begins with them: logs/ in the grid's folder"),
            ),
            ("price or energy", Blank("not recorded")),
        ]
    }

    fn variance(&self) -> Vec<(&'static str, Answer)> {
        let table = &self.results.table;
        let seeds = html! {
            @for (i, arm) in table.arms().iter().enumerate() {
                @if i > 0 { "; " }
                (arm.name) ": " (arm.seeds.len())
                @if arm.seeds.len() < Replication::ADVISED { " (fewer than " (Replication::ADVISED) ")" }
            }
        };
        let failed: usize = table.arms().iter().map(|arm| arm.failures.len()).sum();
        let which: Vec<String> = self.plan.spec.seeds.all().iter().map(u64::to_string).collect();
        let most = table.arms().iter().map(|arm| arm.seeds.len()).max().unwrap_or(0);
        let detectable: Vec<(&str, f64)> =
            self.comparisons.iter().filter_map(|c| Some((c.arm.as_str(), c.smallest_detectable?))).collect();
        vec![
            ("what is counted", Known(html! { "runs with seeds of their own, not episodes" })),
            ("runs that finished", Known(seeds)),
            ("seeds", Known(html! { (which.join(", ")) })),
            ("runs that failed", Known(html! { (failed) ", in no number; " (self.results.missing) " not done" })),
            (
                "intervals",
                if most < Replication::LEAST {
                    Blank("none: fewer than 3 seeds")
                } else {
                    Known(html! {
                        "95 %, percentiles of " (draws(Bootstrap::of_tables)) " draws of whole runs with replacement; of " (draws(Bootstrap::of_curves))
                        " for probabilities of improvement, curves, profiles and tables at equal budget; t intervals for differences"
                    })
                },
            ),
            (
                "tests",
                if self.comparisons.iter().all(|c| c.tests.is_none()) {
                    Blank("none: nothing to compare, or fewer than 3 pairs of seeds")
                } else {
                    Known(
                        html! { "paired t by seed, two-sided, α = 0.05; " (family(&self.comparisons, &self.against_baseline())) },
                    )
                },
            ),
            (
                "smallest difference found in four of five cases",
                if detectable.is_empty() {
                    Blank("not known: too few seeds, or no spread")
                } else {
                    Known(html! {
                        @for (i, (arm, smallest)) in detectable.iter().enumerate() { @if i > 0 { "; " } (arm) ": " (score(*smallest)) }
                    })
                },
            ),
            (
                "what was predicted",
                match &self.prediction {
                    None => Blank("no prediction was recorded"),
                    Some(of) if of.recorded.cells_done > 0 => Blank("recorded after runs were done"),
                    Some(of) => Known(
                        html! { a href="#question" { (of.recorded.file.display()) } ", recorded before any reported run was done" },
                    ),
                },
            ),
        ]
    }

    fn budget_matched(&self) -> Vec<(&'static str, Answer)> {
        let budgets: Vec<Option<u64>> = self.plan.arms.iter().map(|arm| arm.budget.tokens.as_ref().map(|n| n.0)).collect();
        let budget = match budgets[..] {
            [Some(first), ..] if budgets.iter().all(|budget| *budget == Some(first)) => {
                Known(html! { "every run ends at " (plain(first as f64)) " tokens at the latest" })
            }
            _ => Blank("no budget of tokens that all arms share: budget.tokens"),
        };
        let at_equal: Vec<&str> =
            self.equal_budget.iter().filter(|budget| budget.position.is_some()).map(|budget| budget.axis.name()).collect();
        let same_verdicts = self.equal_budget.iter().filter(|budget| budget.position.is_some()).all(|budget| {
            budget.comparisons.iter().zip(&self.comparisons).all(|(at, last)| word(at.verdict) == word(last.verdict))
        });
        let tuned = self.tuning.values().map(|choice| choice.tried.len()).collect::<std::collections::BTreeSet<usize>>();
        let confounded: Vec<&str> = self
            .plan
            .arms
            .iter()
            .filter(|arm| !self.plan.confounds(arm, self.plan.baseline()).is_empty())
            .map(|arm| arm.name.as_str())
            .collect();
        let mut lines = vec![
            ("rule that ends a run", budget),
            ("all tokens of arms", self.spread_of(|spent| spent.mean.get("tokens").copied())),
            ("environment steps of arms", self.spread_of(|spent| spent.mean.get("env_steps").copied())),
            (
                "scores at equal budget",
                if at_equal.is_empty() || self.comparisons.is_empty() {
                    Blank("none")
                } else {
                    Known(html! {
                        a href="#equal-budget" { "along " (at_equal.join(", ")) }
                        @if same_verdicts { "; verdicts are those of the last scores" } @else { "; " strong { "some verdict is another one than that of the last scores" } }
                    })
                },
            ),
            (
                "settings tried per arm while tuning",
                match (self.plan.spec.tuned().is_empty(), tuned.len()) {
                    (true, _) => Known(html! { "none for any arm" }),
                    (false, 0) => Blank("tuning is not over"),
                    (false, 1) => Known(html! { "equally many: " (tuned.iter().next().copied().unwrap_or(0)) }),
                    (false, _) => Known(html! { strong { "not equally many" } }),
                },
            ),
            (
                "arms that differ in more than their method",
                Known(
                    html! { @if confounded.is_empty() { "none" } @else { strong { (confounded.join("; ")) } ": " a href="#arms" { "in what" } } },
                ),
            ),
        ];
        for (line, transform) in [
            ("control: credit shuffled", "shuffle"),
            ("control: credit drawn at random", "random"),
            ("control: credit uniform", "uniform"),
        ] {
            let of: Vec<&str> = self
                .plan
                .arms
                .iter()
                .filter(|arm| arm.chosen_by.as_ref().is_some_and(|by| arm.name == format!("{by} + {transform}")))
                .filter_map(|arm| arm.chosen_by.as_deref())
                .collect();
            lines.push((line, if of.is_empty() { Blank("none") } else { Known(html! { "of " (of.join("; ")) }) }));
        }
        lines
    }

    /// How far arms lie apart in what they spent.
    fn spread_of(&self, of: impl Fn(&Spent) -> Option<f64>) -> Answer {
        let spent = self.results.spent.iter().filter(|(_, spent)| spent.runs > 0);
        let mut numbers: Vec<(f64, &str)> = spent.filter_map(|(arm, spent)| Some((of(spent)?, arm.as_str()))).collect();
        numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (Some((least, cheap)), Some((most, dear))) = (numbers.first(), numbers.last()) else { return Blank("not recorded") };
        if numbers.len() < 2 {
            return Blank("one arm: nothing to match");
        }
        if most - least <= EQUAL * least {
            return Known(html! { "within 5 %: " (plain(*least)) " to " (plain(*most)) });
        }
        Known(html! {
            strong { "not matched" } ": " (plain(*least)) " (" (cheap) ") to " (plain(*most)) " (" (dear) ")"
            @if *least > 0.0 { ", " (score(most / least)) " times as many" }
            "; read them at equal budget"
        })
    }
}

/// A verdict without its reason.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Undecided(_) => "undecided",
    }
}
