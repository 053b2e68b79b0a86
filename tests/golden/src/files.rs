//! Which reader reads which file, and what is not matched.

use crate::compare::Precision::{self, F32, F64};
use crate::{Reader, readers};

/// Every golden file, and who reads it. The precision is that of `expected`; `expected_f64` beside it is compared as `f64`.
pub const FILES: &[(&str, Precision, Reader)] = &[
    ("gae_token", F64, readers::returns::gae_token),
    ("gae_turn", F64, readers::returns::gae_turn),
    ("gae_verl", F32, readers::returns::gae_verl),
    ("gigpo", F32, readers::anchors::gigpo),
    ("gigpo_similarity", F32, readers::anchors::gigpo),
    ("gpg_verl", F32, readers::outcomes::gpg),
    ("group_book", F64, readers::worked::group_book),
    ("grpo_passk_verl", F32, readers::outcomes::grpo_passk),
    ("grpo_vectorized_verl", F32, readers::outcomes::grpo_vectorized),
    ("grpo_verl", F32, readers::outcomes::grpo),
    ("hgpo", F32, readers::anchors::hgpo),
    ("hgpo_keep_zero_variant", F32, readers::anchors::hgpo_keep_zeros),
    ("igpo", F32, readers::turn_rewards::igpo),
    ("igpo_info_gain", F32, readers::turn_rewards::igpo_info_gain),
    ("igpo_release_v1", F32, readers::turn_rewards::igpo_first_release),
    ("masked_whiten_verl", F32, readers::returns::masked_whiten),
    ("methods_rederived", F32, readers::rederived::all),
    ("nstep_td", F64, readers::returns::nstep_td),
    ("openrlhf", F32, readers::libraries::openrlhf),
    ("opo_verl", F32, readers::outcomes::opo),
    ("optimal_token_baseline_verl", F32, readers::outcomes::optimal_token_baseline),
    ("outcome_rewards", F64, readers::returns::outcome_rewards),
    ("reinforce_plus_plus_baseline_verl", F32, readers::outcomes::reinforce_plus_plus_baseline),
    ("reinforce_plus_plus_verl", F32, readers::outcomes::reinforce_plus_plus),
    ("remax_verl", F32, readers::outcomes::remax),
    ("returns_to_go", F64, readers::returns::returns_to_go),
    ("rloo_vectorized_verl", F32, readers::outcomes::rloo_vectorized),
    ("rloo_verl", F32, readers::outcomes::rloo),
    ("seed004_worked", F64, readers::worked::seed004),
    ("spa_progress_estimator", F32, readers::progress::spa_progress_estimator),
    ("spa_rl_data_org", F64, readers::turn_rewards::spa_rl_data),
    ("spa_rl_ppo", F32, readers::turn_rewards::spa_rl_ppo),
    ("tempo_actor_signals", F64, readers::tempo::actor),
    ("tempo_critic_signals", F64, readers::tempo::critic),
    ("tempo_datum", F32, readers::tempo::datum),
    ("tempo_states", F64, readers::macro_step::states),
    ("tempo_value_parse", F64, readers::tempo::value_parse),
    ("tir_optimal_token_baseline_verl", F32, readers::outcomes::tir_optimal_token_baseline),
    ("trl_grpo", F32, readers::libraries::trl_grpo),
    ("trl_rloo", F32, readers::libraries::trl_rloo),
    ("verl_agent_grpo_rloo", F32, readers::anchors::grpo_rloo),
];

/// Files whose `expected_f64` is not all `f64`, with the reason; it is compared as `f32` there.
pub const NOT_ALL_F64: &[(&str, &str)] = &[
    ("gpg_verl", "α is an `f32`"),
    ("grpo_vectorized_verl", "it forces `f32`"),
    ("grpo_verl", "the deviation of a group of one is an `f32` of 1, to which ε is added in `f32`"),
];

/// Leaves that ours does not match, by file, start of the case's name and start of the pointer, with the reason. The aim
/// is an empty table.
pub const UNMATCHED: &[(&str, &str, &str, &str)] = &[
    ("tempo_states", "state_store", "/log/1/sampled", DRAWN),
    ("tempo_states", "state_store", "/log/2/sampled", DRAWN),
    ("tempo_states", "state_store", "/log/3/sampled", DRAWN),
    ("tempo_states", "state_store", "/log/4/sampled", DRAWN),
    ("tempo_states", "state_store", "/log/5/sampled", DRAWN),
    ("tempo_states", "parse_assistant", "", "tool calls of the reproduction's chat template; an action is plain text here"),
];

const DRAWN: &str = "which states are drawn is CPython's generator; how many, and that none comes twice, is asserted";
