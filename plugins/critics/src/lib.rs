//! Critics: what judges states, turns and tokens.
//!
//! A critic reads the batch of an update and returns columns; those that train ask for rows through a policy node, which
//! the loop merges with the actor's into one step. What they report stands under `critic/NAME/`.

mod calibration;
mod checklist;
mod generative;
mod implicit;
mod info_gain;
mod kl_reward;
mod lesson;
mod monte_carlo;
mod oracle;
mod pair;
mod potential;
mod prefix_ratio;
mod process_model;
mod process_rules;
mod q_model;
mod reference;
mod scored;
mod spa_progress;
mod states;
mod tabular;
mod targets;
#[cfg(test)]
mod tempo;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod truth;
mod turn_head;
mod value_head;

use ascribe_core::environment::Capabilities;
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};

pub use calibration::Calibration;
pub use checklist::{Checklist, Pays};
pub use generative::{
    Condense, Generative, Happened, Missing, Mode, Rules, Teach, Unread, Values, condensed, mean_of_read, read,
};
pub use implicit::Implicit;
pub use info_gain::InfoGain;
pub use kl_reward::KlReward;
pub use monte_carlo::MonteCarlo;
pub use oracle::Oracle;
pub use pair::Pair;
pub use potential::Potential;
pub use prefix_ratio::PrefixRatio;
pub use process_model::ProcessModel;
pub use process_rules::ProcessRules;
pub use q_model::QModel;
pub use reference::Reference;
pub use spa_progress::SpaProgress;
pub use tabular::Tabular;
pub use targets::Target;
pub use value_head::ValueHead;

/// The column of rewards per turn that say how good a step is.
const PROCESS_REWARD: &str = "process_reward";

fn process_reward() -> String {
    PROCESS_REWARD.into()
}

fn one() -> ascribe_core::range::NonNegative {
    ascribe_core::range::NonNegative::try_from(1.0).expect("in range")
}
fn actor() -> String {
    "actor".into()
}

/// The words of some texts, each once.
fn words(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let special = [WordTokenizer::UNKNOWN, WordTokenizer::START];
    let all = WordTokenizer::new(texts);
    all.words().iter().filter(|word| !special.contains(&word.as_str())).cloned().collect()
}

/// Whether the vocabulary that policies are built with has a critic's words.
///
/// # Errors
/// Names the first that it has not.
fn knows(about: &Capabilities, words: &[String]) -> Result<(), String> {
    let known = WordTokenizer::new(about.vocabulary.iter().chain([&about.stop]));
    match words.iter().find(|word| known.token(word).is_none()) {
        None => Ok(()),
        Some(word) => {
            Err(format!("its word `{word}` is in no vocabulary: policies of words are built with the words of all critics"))
        }
    }
}

#[cfg(test)]
mod tests {
    use ascribe_core::registry::{Kind, plugins};

    /// `explain` shows what stands at the head of a plugin's module.
    #[test]
    fn every_critic_says_what_it_does_and_costs() {
        let rows = plugins(Kind::Critic);
        assert!(rows.len() > 15, "the catalogue is linked");
        for row in rows {
            assert!(row.doc.contains("Cost:"), "`{}`: no line `module:`, or a module without its cost", row.name);
        }
    }
}
