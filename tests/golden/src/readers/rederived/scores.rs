//! Scores of turns and what is made of them.

use ascribe_core::range::{Count, Finite};
use ascribe_core::schedule::CutOff;
use ascribe_core::{Now, Schedule};
use ascribe_estimators::MtGrpo;
use ascribe_math::{
    branch_probability, checklist_score, momentum_rewards, pair_advantages, self_report_bonus, soft_min_rewards, soften,
};
use serde_json::{Map, Value, json};

use crate::records::config;

/// The outcome with the bonus for a true report, at an update of 100; the bonus ends after two thirds of them.
fn refgrpo(solved: bool, report: bool, update: u32) -> f64 {
    let number = |x: f64| Finite::try_from(x).expect("finite");
    let schedule = CutOff { value: number(0.1), updates: Count(67), then: number(0.0) };
    let now = Now { phase_update: update, phase_updates: 100, ..Now::default() };
    f64::from(u8::from(solved)) + self_report_bonus(solved, Some(report), schedule.at(&now, &mut Vec::new()))
}

/// The keys of this part.
pub fn part() -> Map<String, Value> {
    let branch = |rise: f64| branch_probability(rise, 0.5, 0.2);
    let soft = soften(&[0.5, 0.99, 0.2]);
    let mt_grpo: MtGrpo = config(json!({ "form": "first-result" }));
    let mt_grpo = mt_grpo.first_result(&[0.2, 0.0, 0.2, 0.0], &[1.0, 0.0, 0.0, 0.0]);
    let all = json!({
        "arpo_branch_prob": { "dH=-1": branch(-1.0), "dH=0": branch(0.0), "dH=+1": branch(1.0), "dH=+5": branch(5.0) },
        "pure": soft_min_rewards(&[0.9, -0.2, 0.5], 0.1),
        "refgrpo": {
            "correct,says correct,early": refgrpo(true, true, 10),
            "correct,says wrong,early": refgrpo(true, false, 10),
            "wrong,says wrong,early": refgrpo(false, false, 10),
            "wrong,says wrong,late": refgrpo(false, false, 70),
        },
        "web_shepherd": checklist_score(&[(1.0, 0.0), (0.2, 0.6), (0.0, 0.1)]),
        "pair_momentum": { "r": momentum_rewards(&soft, 5.0), "soft": soft },
        "pair_adv": pair_advantages(&[vec![0.4, 0.8], vec![0.2, 0.2]]),
        "mt_grpo": { "before_first_result": mt_grpo.before, "after": mt_grpo.after },
    });
    all.as_object().cloned().unwrap_or_default()
}
