//! Hierarchical advantage estimation (HiPER): one advantage for a subgoal, one for each action under it, one for each decision
//! to keep or switch it.
//!
//! A turn at which `switch` is not 0, and a path's first, begins a segment. Of the segment from turn `b` to `b′ − 1`, `d = b′ − b`:
//! action `A_t = δ_t + γλ A_{t+1}`, `δ_t = r_t + γ V_low(s_{t+1}) − V_low(s_t)`, at its last turn `A_t = r_t + γ V_high(s_b′) − V_low(s_t)`;
//! subgoal `A_b = R_b + γ^d V_high(s_b′) − V_high(s_b) + γ^d λ_segment A_b′`, `R_b = Σ_{j<d} γ^j r_{b+j}`;
//! switch `A_t = Σ_{j<b′−t} γ^j r_{t+j} + γ^{b′−t} V_high(s_b′) − V_switch(s_t)`. At a branch, means over the children.
//!
//! Peng et al. 2026, HiPER, arXiv 2602.16165; `hiper_hae/core_hae.py` of JonP07/HiPER-agent, which the formulas follow. They go to
//! the spans `action`, `subgoal` (where a segment begins; elsewhere a repeated subgoal is not trained) and `switch` of a turn.
//! What lies in none is not trained, but a turn without an `action` span counts as action but for its other spans. The
//! sums before a value is taken off are the targets of `value_low`, `value_high` (where a segment begins) and `value_switch`.
//!
//! Reductions: without a switch the action's is `gae` with `V_low` and the subgoal's the return minus `V_high`; with one at every
//! turn the subgoal's is `gae` with `V_high` and `λ_segment`, and the action's a TD error. Edge cases: after a true end `V = 0`. A
//! path cut by a limit goes on from the state after it: `V_low` for the action, `V_high` else. A turn that was not tried is
//! not trained and moves no mean; `switch` absent is 0.
//!
//! Where the authors' code differs: it has no value after the last turn, and takes the current one for a cut path, if told to
//! (`cut = "official"`); it reads values at tokens, `V_low` after the subgoal was written, where here columns lie on states, so
//! that `V_low` knows a new subgoal only from the turn after. It holds a simpler form of the switch's advantage too,
//! `V_high − V_low`, and says in a comment that the exact one is `(switched − P(switch))` times that; what it runs with a third head
//! is the one above. It may whiten each level by itself. Its penalties, for keeping and for a changed subgoal on
//! keeping, are rewards: columns of `[reward]`.

use std::collections::BTreeMap;

use ascribe_core::credit::{SpanCredit, Target};
use ascribe_core::range::Unit;
use ascribe_core::signal::{Column, Scope};
use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, plugin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The column that is not 0 where a new subgoal begins.
const SWITCH: &str = "switch";
/// The value of a state under the subgoal in force.
const LOW: &str = "value_low";
/// The value of a state before a subgoal is chosen.
const HIGH: &str = "value_high";
/// The value of a state before it is decided whether to keep the subgoal.
const BEFORE_SWITCH: &str = "value_switch";

/// `[estimator.hae]`
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hae {
    /// Discount per turn, in 0..=1.
    pub gamma: Unit,
    /// Weight of longer estimates among the turns of a segment, in 0..=1.
    pub lambda: Unit,
    /// Weight of longer estimates among segments, in 0..=1.
    pub segment_lambda: Unit,
    /// What the future of a path is worth that a limit cut.
    #[serde(default)]
    pub cut: Cut,
}

/// What the future of a path is worth that a limit cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// The value of the state after its last turn.
    #[default]
    StateAfter,
    /// The current value, as the authors' code has it: `V_low` before its last turn, `V_high` before its last segment.
    Official,
}

plugin! {
    Estimator "hae" {
        summary: "Hierarchical advantage estimation: separate advantages for subgoals, the actions under them, and the decisions to switch.",
        source: "Peng et al. 2026, HiPER, arXiv 2602.16165; JonP07/HiPER-agent hiper_hae/core_hae.py",
        when: "With an agent that writes `switch`, `subgoal` and `action` spans, and three critics (or one with three heads) for them.",
        example: "gamma = 0.95\nlambda = 0.95\nsegment_lambda = 0.95",
        module: "hae.rs",
    }
    impl AdvantageEstimator for Hae {
        fn needs(&self) -> Vec<Need> {
            let values = [LOW, HIGH, BEFORE_SWITCH].map(|name| Need::Signal(name.into(), Scope::State));
            values.into_iter().chain([Need::Signal(SWITCH.into(), Scope::Turn)]).collect()
        }

        fn targets(&self) -> Vec<String> {
            [LOW, HIGH, BEFORE_SWITCH].map(String::from).into()
        }

        fn laws(&self) -> Vec<Law> {
            vec![Law::Scale, Law::Bootstraps]
        }

        fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
            let begins = begins(group);
            let returns = self.returns(group, &begins);
            let (turns, spans) = on_spans(group, &begins, &returns);
            Ok(Credit { turns, spans, targets: targets(group, &begins, &returns), ..Credit::default() })
        }
    }
}

/// What the values of the states before the turns are compared with, `[turns]` each. That of a subgoal means something only
/// where a segment begins.
struct Returns {
    action: Vec<f64>,
    subgoal: Vec<f64>,
    switch: Vec<f64>,
}

impl Hae {
    fn returns(&self, group: Group<'_>, begins: &[bool]) -> Returns {
        let (low, high) = (group.state_signal(LOW), group.state_signal(HIGH));
        let start = starts(group, begins);
        let low_at_cut = |t| match self.cut {
            Cut::StateAfter => low.after(t),
            Cut::Official => low.before(t),
        };
        let high_at_cut = |t| match self.cut {
            Cut::StateAfter => high.after(t),
            Cut::Official => high.before(start[t]),
        };
        let mixed = |lambda: Unit, value: f64, longer: f64| value + *lambda * (longer - value);
        Returns {
            action: self.fold(group, low_at_cut, |t, longer| {
                if begins[t] { high.before(t) } else { mixed(self.lambda, low.before(t), longer) }
            }),
            subgoal: self.fold(group, high_at_cut, |t, longer| {
                if begins[t] { mixed(self.segment_lambda, high.before(t), longer) } else { longer }
            }),
            switch: self.fold(group, high_at_cut, |t, longer| if begins[t] { high.before(t) } else { longer }),
        }
    }

    /// `r_t + γ` times what the next turn carries, `[turns]`; at a branch the mean over the children that were tried.
    ///
    /// * `at_cut(turn)`: what follows a turn at which a limit cut the path.
    /// * `carries(turn, return)`: what a turn carries to the one before it.
    fn fold(&self, group: Group<'_>, at_cut: impl Fn(usize) -> f64, carries: impl Fn(usize, f64) -> f64) -> Vec<f64> {
        let mut returns = vec![0.0; group.n_turns()];
        group.fold_up(
            |_| 0.0,
            |t, future| {
                let cut = group.n_children(t) == 0 && group.end(t).is_some_and(|end| end.bootstraps());
                let future = if cut { at_cut(t) } else { future };
                returns[t] = f64::from(group.rewards()[t]) + *self.gamma * future;
                carries(t, returns[t])
            },
        );
        returns
    }
}

/// Whether a segment begins at each turn, `[turns]`.
fn begins(group: Group<'_>) -> Vec<bool> {
    let switch = group.turn_signal(SWITCH).enumerate();
    switch.map(|(t, switch)| group.parent(t).is_none() || switch.is_some_and(|s| s != 0.0)).collect()
}

/// The first turn of each turn's segment, `[turns]`.
fn starts(group: Group<'_>, begins: &[bool]) -> Vec<usize> {
    let mut starts: Vec<usize> = (0..begins.len()).collect();
    for t in 0..begins.len() {
        if let Some(parent) = group.parent(t).filter(|_| !begins[t]) {
            starts[t] = starts[parent];
        }
    }
    starts
}

/// Advantages of the turns and of their spans.
fn on_spans(group: Group<'_>, begins: &[bool], returns: &Returns) -> (Vec<Option<f32>>, Vec<SpanCredit>) {
    let [low, high, before] = [LOW, HIGH, BEFORE_SWITCH].map(|name| group.state_signal(name));
    let mut turns = vec![None; group.n_turns()];
    let mut credits = Vec::new();
    let tried = group.tried();
    for t in (0..group.n_turns()).filter(|t| tried[*t]) {
        let action = Some((returns.action[t] - low.before(t)) as f32);
        let subgoal = begins[t].then_some((returns.subgoal[t] - high.before(t)) as f32);
        let switch = Some((returns.switch[t] - before.before(t)) as f32);
        let spans = &group.batch().notes[group.rows().start + t].spans;
        turns[t] = action.filter(|_| spans.iter().all(|span| span.name != "action"));
        for span in spans {
            let advantage = match &*span.name {
                "action" => action,
                "subgoal" => subgoal,
                "switch" => switch,
                _ => continue,
            };
            credits.push(SpanCredit { turn: t, start: span.start, end: span.end, advantage });
        }
    }
    (turns, credits)
}

/// What the three columns should have been before the turns that were tried; absent elsewhere.
fn targets(group: Group<'_>, begins: &[bool], returns: &Returns) -> BTreeMap<String, Target> {
    let tried = group.tried();
    let target = |returns: &[f64], counts: &dyn Fn(usize) -> bool| {
        // Siblings share the state before them.
        let (mut sum, mut count) = (vec![0.0; returns.len() + 1], vec![0u32; returns.len() + 1]);
        for t in (0..returns.len()).filter(|t| tried[*t] && counts(*t)) {
            let state = group.parent(t).map_or(0, |parent| parent + 1);
            sum[state] += returns[t];
            count[state] += 1;
        }
        let mean = |(sum, count): (&f64, &u32)| (*count > 0).then(|| (sum / f64::from(*count)) as f32);
        Target { scope: Scope::State, column: sum.iter().zip(&count).map(mean).collect::<Column>() }
    };
    BTreeMap::from([
        (LOW.into(), target(&returns.action, &|_| true)),
        (HIGH.into(), target(&returns.subgoal, &|t| begins[t])),
        (BEFORE_SWITCH.into(), target(&returns.switch, &|_| true)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{LOST, WON, batch, signalled, turn, valued};
    use crate::gae::Gae;
    use crate::td::Td;
    use ascribe_core::Step;
    use ascribe_core::credit::spread;
    use ascribe_core::log::{Action, NamedSpan, TurnLog};
    use ascribe_core::{Batch, End, Limit};
    use proptest::prelude::*;

    const CUT: End = End::Truncated(Limit::Turns);

    fn unit(x: f64) -> Unit {
        Unit::try_from(x).unwrap()
    }
    fn hae(gamma: f64, lambda: f64, segment_lambda: f64) -> Hae {
        Hae { gamma: unit(gamma), lambda: unit(lambda), segment_lambda: unit(segment_lambda), cut: Cut::StateAfter }
    }
    fn halves(cut: Cut) -> Hae {
        Hae { cut, ..hae(0.5, 0.5, 0.5) }
    }
    /// A turn of a token outside all spans, one of each span, and a span of another name.
    fn spoken(parent: Option<usize>, reward: f32) -> TurnLog {
        let span = |(i, name): (usize, &str)| NamedSpan { name: name.into(), start: i as u32, end: i as u32 + 1 };
        let spans = ["thought", "switch", "subgoal", "action"].into_iter().enumerate().map(span).collect();
        TurnLog { action: Action::given(vec![0; 4]), spans, ..turn(parent, reward) }
    }
    /// With `[turns]` switches, and values of the start and after each turn.
    fn with(batch: Batch, switch: &[f32], low: &[f32], high: &[f32], before_switch: &[f32]) -> Batch {
        let batch = signalled(batch, SWITCH, Scope::Turn, switch);
        let batch = signalled(signalled(batch, LOW, Scope::State, low), HIGH, Scope::State, high);
        signalled(batch, BEFORE_SWITCH, Scope::State, before_switch)
    }
    fn path(turn: fn(Option<usize>, f32) -> TurnLog, rewards: &[f32], end: End) -> Batch {
        let turns = rewards.iter().enumerate().map(|(t, reward)| turn(t.checked_sub(1), *reward)).collect();
        batch(turns, &[(rewards.len() - 1, end)])
    }
    fn estimate(hae: &Hae, batch: &Batch) -> Credit {
        let credit = hae.estimate(batch.group(0), &Now::default()).unwrap();
        credit.check(batch.group(0)).unwrap();
        credit
    }
    /// Per turn of [`spoken`]: the advantages of switch, subgoal and action.
    fn levels(hae: &Hae, batch: &Batch) -> Vec<[Option<f32>; 3]> {
        let tokens: Vec<_> = spread(batch.group(0), &estimate(hae, batch)).advantage.iter().collect();
        tokens
            .chunks(4)
            .map(|turn| match turn {
                [None, switch, subgoal, action] => [*switch, *subgoal, *action],
                other => panic!("a thought is not trained: {other:?}"),
            })
            .collect()
    }
    fn three(end: End) -> Batch {
        with(
            path(spoken, &[1.0, 2.0, 4.0], end),
            &[0.0, 0.0, 1.0],
            &[2.0, 4.0, 6.0, 8.0],
            &[1.0, 3.0, 5.0, 7.0],
            &[0.5, 1.5, 2.5, 3.5],
        )
    }

    #[test]
    fn hand_worked() {
        // γ = λ = λ_segment = ½; segments of turns 0–1 and 2, V_high(s_2) = 5, a true end.
        // action: A_2 = 4 − 6, A_1 = 2 + ½·5 − 4 = ½, A_0 = (1 + ½·4 − 2) + ¼·½
        // subgoal: A_2 = 4 − 5, A_0 = (1 + ½·2) + ¼·5 − 1 + ¼·½·(−1)
        // switch: 4 − 2.5; 2 + ½·5 − 1.5; 1 + ½·4.5 − ½
        let want = [[Some(2.75), Some(2.125), Some(1.125)], [Some(3.0), None, Some(0.5)], [Some(1.5), Some(-1.0), Some(-2.0)]];
        assert_eq!(levels(&halves(Cut::StateAfter), &three(WON)), want);
        assert_eq!(levels(&halves(Cut::Official), &three(WON)), want);
    }

    #[test]
    fn a_cut_path_bootstraps() {
        // after the last turn V_low = 8, V_high = 7: A = 4 + ½·8 − 6, 4 + ½·7 − 5, and 4 + ½·7 − 2.5 of the switch;
        // the first subgoal: 2.25 + ⅛·2.5
        let after = levels(&halves(Cut::StateAfter), &three(CUT));
        assert_eq!(after[2], [Some(5.0), Some(2.5), Some(2.0)]);
        assert_eq!(after[0], [Some(2.75), Some(2.5625), Some(1.125)]);
        assert_eq!(levels(&halves(Cut::StateAfter), &three(End::MacroBoundary)), after);
    }

    #[test]
    fn the_official_cut_takes_the_current_values() {
        // one segment: V_low before the last turn is 4, V_high before the segment 1.
        let one = with(path(spoken, &[1.0, 2.0], CUT), &[1.0, 0.0], &[2.0, 4.0, 9.0], &[1.0, 3.0, 9.0], &[0.0; 3]);
        // action: A_1 = 2 + ½·4 − 4 = 0, A_0 = 1 + ½·4 − 2; subgoal: 1 + ½·2 + ¼·1 − 1; switch: 2 + ½·1, 1 + ½·2.5
        let want = [[Some(2.25), Some(1.25), Some(1.0)], [Some(2.5), None, Some(0.0)]];
        assert_eq!(levels(&halves(Cut::Official), &one), want);
    }

    #[test]
    fn at_a_branch_the_children_that_were_tried_are_averaged() {
        // after turn 0 V_low = 4, V_high = 2; turn 1 keeps the subgoal and earns 8, turn 2 switches, turn 3 was not tried
        let turns = vec![spoken(None, 1.0), spoken(Some(0), 8.0), spoken(Some(0), 3.0), spoken(Some(0), 9.0)];
        let tree = batch(turns, &[(1, WON), (2, LOST), (3, End::Untried)]);
        let tree = with(tree, &[1.0, 0.0, 1.0, 0.0], &[0.0, 4.0, 9.0, 9.0, 9.0], &[0.0, 2.0, 9.0, 9.0, 9.0], &[0.0; 5]);
        // γ = λ = λ_segment = 1. action: 1 + mean(8, 2); subgoal: 1 + mean(8, 3); switch: 1 + mean(8, 2)
        let want = [
            [Some(6.0), Some(6.5), Some(6.0)],
            [Some(8.0), None, Some(4.0)],
            [Some(3.0), Some(1.0), Some(-1.0)],
            [None, None, None],
        ];
        assert_eq!(levels(&hae(1.0, 1.0, 1.0), &tree), want);
        let targets = estimate(&hae(1.0, 1.0, 1.0), &tree).targets;
        let of = |name: &str| (0..5).map(|state| targets[name].column.get(state)).collect::<Vec<_>>();
        assert_eq!(of(LOW), [Some(6.0), Some(5.5), None, None, None]);
        assert_eq!(of(HIGH), [Some(6.5), Some(3.0), None, None, None]);
        assert_eq!(of(BEFORE_SWITCH), [Some(6.0), Some(5.5), None, None, None]);
    }

    #[test]
    fn a_turn_without_an_action_span_is_action_but_for_its_other_spans() {
        let mut silent = spoken(None, 1.0);
        silent.spans.retain(|span| span.name == "switch");
        let path = with(batch(vec![silent], &[(0, WON)]), &[0.0], &[0.25, 9.0], &[0.5, 9.0], &[0.75, 9.0]);
        let tokens = spread(path.group(0), &estimate(&hae(1.0, 1.0, 1.0), &path)).advantage;
        assert_eq!(tokens, [Some(0.75), Some(0.25), Some(0.75), Some(0.75)]);
    }

    #[test]
    fn it_says_what_it_needs() {
        let needs: Vec<String> = halves(Cut::StateAfter).needs().iter().map(ToString::to_string).collect();
        assert_eq!(
            needs[1..],
            ["state values in a column `value_high`", "state values in a column `value_switch`", "a column `switch` on turns"]
        );
        let read: Hae =
            serde_json::from_str(r#"{"gamma": 1.0, "lambda": 0.5, "segment_lambda": 0.25, "cut": "official"}"#).unwrap();
        assert_eq!((*read.segment_lambda, read.cut), (0.25, Cut::Official));
    }

    fn close(got: &[Option<f32>], want: &[Option<f32>]) -> bool {
        // Values and rewards are whole numbers up to 4, twelve turns: sums below 100, six digits of `f32`.
        got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (g.unwrap() - w.unwrap()).abs() < 1e-4)
    }

    proptest! {
        #[test]
        fn the_laws(
            steps in prop::collection::vec((-4i8..4, -4i8..4, -4i8..4), 1..12), last in -4i8..4, end in 0..2usize,
            gamma in 0.0..=1.0f64, lambda in 0.0..=1.0f64, segment_lambda in 0.0..=1.0f64
        ) {
            let rewards: Vec<f32> = steps.iter().map(|s| f32::from(s.0)).collect();
            let end = [WON, CUT][end].clone();
            let states = |of: fn(&(i8, i8, i8)) -> i8| -> Vec<f32> { steps.iter().map(of).chain([last]).map(f32::from).collect() };
            let (low, high) = (states(|s| s.1), states(|s| s.2));
            let gae = |values: &[f32], lambda| {
                let gae = Gae { gamma: unit(gamma), lambda: unit(lambda), unit: Step::Turn };
                gae.estimate(valued(path(turn, &rewards, end.clone()), values).group(0), &Now::default()).unwrap().turns
            };
            let hae = hae(gamma, lambda, segment_lambda);
            let of = |switch: f32, low: &[f32]| {
                levels(&hae, &with(path(spoken, &rewards, end.clone()), &vec![switch; rewards.len()], low, &high, &high))
            };
            let column = |levels: &[[Option<f32>; 3]], level: usize| levels.iter().map(|l| l[level]).collect::<Vec<_>>();

            // One segment: gae of the low values. Its subgoal and its first switch: the return minus the high value.
            let kept = of(0.0, &low);
            prop_assert!(close(&column(&kept, 2), &gae(&low, lambda)));
            let whole = gae(&high, 1.0)[0];
            prop_assert!(close(&[kept[0][0], kept[0][1]], &[whole, whole]));
            prop_assert!(kept[1..].iter().all(|l| l[1].is_none()), "no subgoal is chosen");

            // One turn per segment: gae of the high values; with one value for all, action and switch are TD errors.
            let switched = of(1.0, &high);
            prop_assert!(close(&column(&switched, 1), &gae(&high, segment_lambda)));
            let td = Td { gamma: unit(gamma) };
            let td = td.estimate(valued(path(turn, &rewards, end.clone()), &high).group(0), &Now::default()).unwrap().turns;
            prop_assert!(close(&column(&switched, 2), &td) && close(&column(&switched, 0), &td));
        }
    }
}
