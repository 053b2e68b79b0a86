//! A check that cannot fail is none: an estimator for each way of going wrong, and the check that says so.

use ascribe_core::{AdvantageEstimator, Credit, EstimateError, Group, Law, Need, Now, Scope};
use serde::{Deserialize, Serialize};

/// A way of going wrong.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Fault {
    Length,
    NotFinite,
    Panics,
    PanicsWhenAsked,
    SeesOtherGroups,
    SeesUndeclaredColumns,
    SeesWhatWasFed,
    SeesWhatFailed,
    CountsTheUntried,
    DependsOnOrder,
    NoiseWithoutSpread,
    FalseShift,
    FalseScale,
    FalseSum,
    FalseTelescoping,
    SecretBootstrap,
    FalseBootstrap,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Faulty {
    fault: Fault,
}

#[typetag::serde(name = "faulty")]
impl AdvantageEstimator for Faulty {
    fn needs(&self) -> Vec<Need> {
        match self.fault {
            Fault::FalseTelescoping | Fault::SecretBootstrap | Fault::FalseBootstrap => {
                vec![Need::Signal("value".into(), Scope::State)]
            }
            Fault::PanicsWhenAsked => panic!("ask somebody else"),
            _ => Vec::new(),
        }
    }

    fn laws(&self) -> Vec<Law> {
        match self.fault {
            Fault::NoiseWithoutSpread => vec![Law::NoSpreadNoCredit],
            Fault::FalseShift => vec![Law::Shift],
            Fault::FalseScale => vec![Law::Scale],
            Fault::FalseSum => vec![Law::SumToZero],
            Fault::FalseTelescoping => vec![Law::Telescoping],
            Fault::FalseBootstrap => vec![Law::Bootstraps],
            _ => Vec::new(),
        }
    }

    fn estimate(&self, group: Group<'_>, _now: &Now) -> Result<Credit, EstimateError> {
        let (n, batch) = (group.n_turns(), group.batch());
        let outcomes = group.outcomes();
        let tried: Vec<bool> = group.trajectories().map(|path| path.leaf().end != ascribe_core::End::Untried).collect();
        let of_tried: Vec<f64> = outcomes.iter().zip(&tried).filter(|(_, tried)| **tried).map(|(r, _)| *r).collect();
        let mean = |x: &[f64]| if x.is_empty() { 0.0 } else { x.iter().sum::<f64>() / x.len() as f64 };
        let sound = |baseline: f64| -> Vec<f64> { outcomes.iter().map(|r| r - baseline).collect() };
        let of_paths = |x: Vec<f64>| group.mean_over_leaves(&x);
        let advantages: Vec<f64> = match self.fault {
            Fault::Length => vec![0.0; n + 1],
            Fault::NotFinite => outcomes.iter().fold(vec![0.0; n], |a, r| a.into_iter().map(|x| (x + r).ln()).collect()),
            Fault::Panics => {
                assert!(n < 1000, "too long for me");
                vec![0.0; n]
            }
            Fault::PanicsWhenAsked => Vec::new(),
            Fault::SeesOtherGroups => vec![batch.groups.len() as f64; n],
            Fault::SeesUndeclaredColumns => vec![batch.signals.len() as f64; n],
            Fault::SeesWhatWasFed => vec![f64::from(batch.tokens.iter().copied().max().unwrap_or(0)); n],
            Fault::SeesWhatFailed => vec![group.n_failed() as f64; n],
            Fault::CountsTheUntried => of_paths(sound(mean(&outcomes))),
            Fault::DependsOnOrder => of_paths((0..outcomes.len()).map(|i| i as f64).collect()),
            Fault::NoiseWithoutSpread => {
                of_paths(of_tried.iter().map(|_| 1e-7).chain(outcomes.iter().map(|_| 0.0)).take(outcomes.len()).collect())
            }
            Fault::FalseShift | Fault::FalseSum => of_paths(outcomes.clone()),
            Fault::FalseScale => of_paths(outcomes.iter().map(|r| r.abs().sqrt()).collect()),
            Fault::FalseTelescoping => vec![0.0; n],
            Fault::SecretBootstrap => {
                let bootstraps = |t: usize| group.end(t).is_some_and(ascribe_core::End::bootstraps);
                (0..n).map(|t| f64::from(u8::from(bootstraps(t)))).collect()
            }
            Fault::FalseBootstrap => vec![0.0; n],
        };
        Ok(Credit::per_turn(advantages))
    }
}

/// The first check that a fault breaks.
fn caught(fault: Fault) -> &'static str {
    let report = ascribe_conformance::estimator(&Faulty { fault });
    report.broken().map(|(what, _)| what).next().unwrap_or("nothing")
}

#[test]
fn every_fault_is_caught() {
    let all = [
        (Fault::Length, "credit fits the group and is finite"),
        (Fault::NotFinite, "credit fits the group and is finite"),
        (Fault::Panics, "credit fits the group and is finite"),
        (Fault::PanicsWhenAsked, "it says what it needs and claims"),
        (Fault::SeesOtherGroups, "a group's credit is its own"),
        (Fault::SeesUndeclaredColumns, "it reads the columns it declares and no others"),
        (Fault::SeesWhatWasFed, "what was fed, and frozen history, change nothing"),
        (Fault::SeesWhatFailed, "what failed is not seen"),
        (Fault::CountsTheUntried, "what was not tried moves nobody"),
        (Fault::DependsOnOrder, "paths in another order get the same credit"),
        (Fault::NoiseWithoutSpread, "claimed: equal outcomes give exactly 0"),
        (Fault::FalseShift, "claimed: the same amount more for every outcome changes nothing"),
        (Fault::FalseScale, "claimed: advantages scale with rewards and values"),
        (Fault::FalseSum, "claimed: a group's paths sum to 0"),
        (Fault::FalseTelescoping, "claimed: advantages along a path sum to outcome minus the start's value"),
        (Fault::SecretBootstrap, "cut by a limit differs from ended where it claims to bootstrap, and nowhere else"),
        (Fault::FalseBootstrap, "cut by a limit differs from ended where it claims to bootstrap, and nowhere else"),
    ];
    for (fault, check) in all {
        assert_eq!(caught(fault), check, "{fault:?}");
    }
}
