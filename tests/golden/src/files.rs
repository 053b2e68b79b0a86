//! Which reader reads which file, and what is not matched.

use crate::compare::Precision::{self, F32, F64};
use crate::{Reader, readers};

/// What is done with a golden file.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// A reader compares it. The precision is that of `expected`; `expected_f64` beside it is compared as `f64`.
    Read(Precision, Reader),
    /// It belongs to a part that is not built yet.
    Pending(&'static str),
}
use Entry::{Pending, Read};

/// Every golden file that is known.
pub const FILES: &[(&str, Entry)] = &[
    ("gae_token", Read(F64, readers::returns::gae_token)),
    ("gae_turn", Read(F64, readers::returns::gae_turn)),
    ("gae_verl", Read(F32, readers::returns::gae_verl)),
    ("gigpo", Read(F32, readers::anchors::gigpo)),
    ("gigpo_similarity", Read(F32, readers::anchors::gigpo)),
    ("gpg_verl", Read(F32, readers::outcomes::gpg)),
    ("group_book", Read(F64, readers::worked::group_book)),
    ("grpo_passk_verl", Read(F32, readers::outcomes::grpo_passk)),
    ("grpo_vectorized_verl", Read(F32, readers::outcomes::grpo_vectorized)),
    ("grpo_verl", Read(F32, readers::outcomes::grpo)),
    ("hgpo", Read(F32, readers::anchors::hgpo)),
    ("hgpo_keep_zero_variant", Read(F32, readers::anchors::hgpo_keep_zeros)),
    ("igpo", Read(F32, readers::turn_rewards::igpo)),
    ("igpo_info_gain", Read(F32, readers::turn_rewards::igpo_info_gain)),
    ("igpo_release_v1", Read(F32, readers::turn_rewards::igpo_first_release)),
    ("masked_whiten_verl", Read(F32, readers::returns::masked_whiten)),
    ("methods_rederived", Read(F32, readers::rederived::all)),
    ("nstep_td", Read(F64, readers::returns::nstep_td)),
    ("openrlhf", Read(F32, readers::libraries::openrlhf)),
    ("opo_verl", Read(F32, readers::outcomes::opo)),
    ("optimal_token_baseline_verl", Read(F32, readers::outcomes::optimal_token_baseline)),
    ("outcome_rewards", Read(F64, readers::returns::outcome_rewards)),
    ("reinforce_plus_plus_baseline_verl", Read(F32, readers::outcomes::reinforce_plus_plus_baseline)),
    ("reinforce_plus_plus_verl", Read(F32, readers::outcomes::reinforce_plus_plus)),
    ("remax_verl", Read(F32, readers::outcomes::remax)),
    ("returns_to_go", Read(F64, readers::returns::returns_to_go)),
    ("rloo_vectorized_verl", Read(F32, readers::outcomes::rloo_vectorized)),
    ("rloo_verl", Read(F32, readers::outcomes::rloo)),
    ("seed004_worked", Read(F64, readers::worked::seed004)),
    ("spa_progress_estimator", Read(F32, readers::progress::spa_progress_estimator)),
    ("spa_rl_data_org", Read(F64, readers::turn_rewards::spa_rl_data)),
    ("spa_rl_ppo", Read(F32, readers::turn_rewards::spa_rl_ppo)),
    ("tempo_actor_signals", Read(F64, readers::tempo::actor)),
    ("tempo_critic_signals", Read(F64, readers::tempo::critic)),
    ("tempo_datum", Pending("rows of macro steps")),
    ("tempo_states", Pending("the state store")),
    ("tempo_value_parse", Read(F64, readers::tempo::value_parse)),
    ("tir_optimal_token_baseline_verl", Read(F32, readers::outcomes::tir_optimal_token_baseline)),
    ("trl_grpo", Read(F32, readers::libraries::trl_grpo)),
    ("trl_rloo", Read(F32, readers::libraries::trl_rloo)),
    ("verl_agent_grpo_rloo", Read(F32, readers::anchors::grpo_rloo)),
];

/// Files whose `expected_f64` is not all `f64`, with the reason; it is compared as `f32` there.
pub const NOT_ALL_F64: &[(&str, &str)] = &[
    ("gpg_verl", "α is an `f32`"),
    ("grpo_vectorized_verl", "it forces `f32`"),
    ("grpo_verl", "the deviation of a group of one is an `f32` of 1, to which ε is added in `f32`"),
];

/// Leaves that ours does not match, by file, start of the case's name and start of the pointer, with the reason. The aim
/// is an empty table.
pub const UNMATCHED: &[(&str, &str, &str, &str)] = &[];
