//! What metrics mean, and the alarms on them.

use ascribe_core::experiment::AlarmAction;
use ascribe_run::alarms::{self, WATCHES};

/// A family of metrics: a name with `NAME` for parts that vary, and what it says.
struct Family {
    name: &'static str,
    says: &'static str,
    /// Whether it comes as mean, smallest and largest.
    summarised: bool,
}

const fn one(name: &'static str, says: &'static str) -> Family {
    Family { name, says, summarised: false }
}
const fn three(name: &'static str, says: &'static str) -> Family {
    Family { name, says, summarised: true }
}

/// Metrics, grouped by the stage that they describe. Names are verl's where it has them.
const FAMILIES: &[Family] = &[
    three("critic/score", "What the environment paid over a trajectory, before any weighting."),
    three("critic/rewards", "What estimators call the reward of a trajectory: the weighted sum of reward columns, `[reward]`."),
    three(
        "critic/returns",
        "Reward from a turn to the end of its trajectory, over turns; the mean over children where they branch.",
    ),
    three("critic/advantages", "Advantages of trained sampled tokens, after all transforms."),
    three("response_length", "Tokens that a trajectory sampled."),
    three("prompt_length", "Tokens that a trajectory read before its first action."),
    three("rollout/turns", "Turns of a trajectory."),
    one("rollout/success_rate", "Share of trajectories that solved their task."),
    one("rollout/truncated_rate", "Share of trajectories that a limit cut."),
    one("rollout/failed_rate", "Share of episodes that broke. They train nothing and move no baseline."),
    one("rollout/malformed_rate", "Share of turns whose action could not be understood."),
    one("rollout/refused_rate", "Share of turns whose action was understood and not allowed."),
    one("rollout/cut_rate", "Share of turns whose action the token limit cut."),
    one("rollout/given_rate", "Share of tokens that somebody else gave (an expert), without a log-probability."),
    one("rollout/groups", "Groups of the update."),
    one("rollout/trajectories", "Trajectories of the update that did not fail."),
    one("rollout/unused_reward", "Sum of what the environment paid while `[reward]` does not name `env`."),
    one(
        "rollout/logprob_mismatch/mean",
        "Mean distance between the sampler's and the trainer's log-probabilities of the same tokens. Importance ratios start at 1 only if it is near 0.",
    ),
    one("rollout/logprob_mismatch/p95", "The distance that 95 % of the tokens stay below."),
    one("rollout/logprob_mismatch/max", "The largest distance."),
    one("rollout/logprob_mismatch/outside", "Share of tokens whose ratio starts outside 0.9..=1.1."),
    one("rollout/branch/branches", "Episodes that left another one on the way."),
    one("rollout/branch/fresh", "Episodes that began anew, because there was nothing to branch from."),
    three(
        "rollout/branch/entropy_rise",
        "Entropy of a turn's first tokens less that of its path's first turn, over ln |V| (`entropy-branch`).",
    ),
    three("rollout/branch/probability", "Probability with which a branch could leave after a turn (`entropy-branch`)."),
    three("rollout/branch/shared_turns", "Turns that a branch shares with the episode that it left (`tree`)."),
    three(
        "rollout/best_of/gain",
        "Critic's number of the action that was carried out less that of the first candidate, per turn.",
    ),
    three("rollout/best_of/gap", "Critic's number of the best candidate less that of the worst, per turn."),
    one("rollout/refill/rounds", "Times that `dynamic-sampling` asked for groups in this update."),
    one(
        "rollout/refill/dropped",
        "Groups that `dynamic-sampling` dropped in this update: of equal outcomes, or above the number.",
    ),
    one("rollout/refill/surplus", "Groups above the number, dropped or kept for the next update."),
    one("rollout/refill/short", "Groups that were missing after the last round."),
    one("rollout/replay/groups", "Stored groups in this update."),
    one("rollout/replay/stored", "Groups in the store after this update."),
    three("rollout/replay/age", "Updates since a stored group of this update was played: how far it is off-policy."),
    three("td/start_age", "Updates since a start of this update was stored (`macro-step`); new tasks have none."),
    three("td/store_age", "Updates since a state of the store was stored."),
    three(
        "td/prefix_ratio",
        "How much likelier the way to a stored start is now than when it was walked, within bounds (critic `prefix-ratio`).",
    ),
    one("td/store_size", "States in the store of `macro-step` after this update."),
    one("td/store_tasks", "Different tasks of these states: few say that the store has narrowed."),
    one("td/new_endpoints", "Boundary states that this update added to the store."),
    one("td/evicted", "States that made room for them, the oldest first."),
    one("td/evicted_unused", "Those of them that no group ever began in."),
    one("td/fresh_states", "Starts of this update that are new tasks."),
    one(
        "td/macro_index_mean",
        "Macro steps before a start of this update, mean over starts: how deep into their episodes they lie.",
    ),
    one(
        "td/restore_failures",
        "Stored states that did not come back as they were. They were dropped, and trained nothing; the group's failed path says why.",
    ),
    one("actor/segment_reward_mean", "What a path of a macro step earned, mean over paths."),
    one("actor/terminal_won_rate", "Share of paths of macro steps that ended with their task solved."),
    one("actor/macro_boundary_rate", "Share of paths that stopped at the end of a macro step."),
    one("actor/value_target_mean", "Mean over groups of what the value of their start should have been, as the estimator says."),
    one("actor/value_target_std", "Its population standard deviation over groups."),
    one(
        "actor/value_gap_zero_reward",
        "Population standard deviation of the values of a group's branches that stopped at the boundary and earned nothing, mean over groups (0 for fewer than two): what the critic alone tells apart.",
    ),
    one("group/excluded", "Groups without a trajectory left to train on."),
    one(
        "group/cancelled_rate",
        "Share of groups, of those with two members or more, whose members differ in several parts of the reward and not in its sum. Only where several columns have a weight.",
    ),
    one(
        "group/reward_std/NAME",
        "Standard deviation of a weighted reward column's sum over a trajectory, within a group, mean over groups.",
    ),
    one(
        "group/anchor_hit_rate",
        "Share of turns after the first that begin from an observation or a state, whichever the estimator compares turns at, that another turn of their group begins from, too.",
    ),
    one("group/dropped", "Groups that `drop-degenerate` took out of training."),
    one("group/dropped_by_accuracy", "Groups that `accuracy-window` took out of training."),
    one("group/dropped_by_variance", "Groups that `variance-filter` took out of training."),
    one(
        "actor/degenerate_group_rate",
        "Share of groups, of those with two members or more, whose members all have the same outcome: an estimator that compares outcomes alone learns nothing from them.",
    ),
    one("actor/entropy", "Mean entropy in nats of the distribution that a token was sampled from."),
    one("actor/pg_loss", "Policy-gradient loss, aggregated as the objective says."),
    one("actor/pg_clipfrac", "Share of tokens whose importance ratio was clipped."),
    one("actor/pg_clipfrac_lower", "Share of tokens with a negative advantage whose loss the lower (dual) clip bounded."),
    one(
        "actor/ppo_kl",
        "Mean of old minus current log-probability over trained tokens: an estimate of the KL divergence from the policy at the start of the update.",
    ),
    one("actor/ppo_kl_abs", "Mean distance between old and current log-probability over trained tokens (KL-Cov)."),
    one("actor/nll_loss", "Negative log-likelihood of given actions (cloning)."),
    one("actor/entropy_loss", "Mean entropy that the entropy bonus raises, over trained tokens."),
    one("actor/kl_loss", "Mean of the KL term from the reference, over trained tokens."),
    one("actor/dpo_loss", "Preference loss over pairs."),
    one("actor/dpo_accuracy", "Share of pairs whose chosen path has the larger implicit reward."),
    one("actor/dpo_margin", "Mean implicit reward of the chosen path less that of the rejected one."),
    one("critic/HEAD/vf_loss", "Squared error of a head's values."),
    one("critic/HEAD/vf_clipfrac", "Share of values that value clipping held back."),
    one("critic/HEAD/vpred_mean", "Mean of a head's values."),
    one("critic/HEAD/bce_loss", "Cross-entropy of a head's probabilities with their labels."),
    one("critic/HEAD/accuracy", "Share of a head's probabilities on the label's side of a half."),
    one("critic/HEAD/sum_loss", "Squared error of the sum of a head over a row."),
    one("critic/HEAD/abs_error", "Mean distance of the sum of a head over a row from its target."),
    one(
        "critic/NAME/explained_variance",
        "Share of the variance of a critic's targets that its values explain, on episodes that it has not learned from yet: 1 is perfect, 0 no better than a constant, below 0 worse.",
    ),
    one("critic/NAME/value_mean", "Mean of a critic's values, on episodes that it has not learned from yet."),
    one("critic/NAME/states", "States in the table of a critic."),
    one("critic/NAME/probed_states", "Different states that `monte-carlo` played on from."),
    one("critic/NAME/probes", "Continuations that `monte-carlo` played."),
    one("critic/NAME/failed_probes", "Continuations of `monte-carlo` that broke or took too long. They are in no mean."),
    one(
        "critic/NAME/half_width",
        "Half of a 95 % interval of a value of `monte-carlo`, mean over states with two continuations or more.",
    ),
    one("critic/NAME/explained_variance_held_out", "The same on the groups that a critic does not learn from, `held_out`."),
    one(
        "critic/NAME/explained_variance_after",
        "The same on the episodes of the update before, which it has learned from by now.",
    ),
    one("critic/NAME/age", "Updates since a reference was copied."),
    three("critic/NAME/info_gain", "What a turn added to how likely the policy finds the right answer."),
    one("critic/NAME/clipped_rate", "Share of stored starts whose ratio a bound cut."),
    one("critic/NAME/answers", "Answers that a generative critic gave in this update."),
    one(
        "critic/NAME/parse_failure_rate",
        "Share of a critic's answers in which no value could be read, cut ones apart. Each earns the worst reward, and enters no value.",
    ),
    one("critic/NAME/parse_failure_rate/missing", "Share of a critic's answers without `<value>`."),
    one("critic/NAME/parse_failure_rate/unclosed", "Share of a critic's answers whose last `<value>` is not closed."),
    one(
        "critic/NAME/parse_failure_rate/not_a_number",
        "Share of a critic's answers with something else than a number in the tag.",
    ),
    one(
        "critic/NAME/parse_failure_rate/out_of_range",
        "Share of a critic's answers with a number outside 0..=R_max, which is refused and not clamped (clamped in the official mode).",
    ),
    one(
        "critic/NAME/truncated_rate",
        "Share of a critic's answers that the limit of tokens cut: no parse failures, raise `max_tokens`.",
    ),
    one(
        "critic/NAME/prompt_too_long_rate",
        "Share of a critic's prompts that left no room for an answer and were not asked: shorten `history`.",
    ),
    one("critic/NAME/prompt_tokens_mean", "Mean length of a critic's prompts."),
    one(
        "critic/NAME/unknown_word_rate",
        "Share of a critic's prompt that its node's vocabulary of words does not know: what it cannot read, privileged text above all.",
    ),
    one("critic/NAME/value_std", "Spread of the values that a critic gave. Near 0 it says nothing."),
    one(
        "critic/NAME/states_without_value",
        "States that a critic was asked about and has no value for; `missing` says what stands there.",
    ),
    one("critic/NAME/taught_states", "States of which a critic was shown the right answer."),
    one("critic/NAME/learned_states", "States whose answers a critic learned from."),
    one(
        "critic/NAME/abs_error_mean",
        "Mean distance of a critic's answers from their targets; an answer without a number counts as R_max. Against targets that bootstrap, its fall mixes with theirs.",
    ),
    one("critic/NAME/target_mean", "Mean of the targets of the states that a critic learned from."),
    one(
        "critic/NAME/skill",
        "1 − MAE/MAE_const: distance of a critic's mean answers from their targets against that of the best constant, the targets' median, on the same states. 1 is exact, 0 no better than a constant, below 0 worse; a state without an answer errs by R_max.",
    ),
    one("critic/NAME/reward_mean", "Mean of what a critic's answers earn: minus their error over R_max, −1 at worst."),
    one(
        "critic/NAME/degenerate_state_rate",
        "Share of learned states whose answers were all equally good: nothing to learn there.",
    ),
    one("critic/NAME/value_corr", "Correlation of a critic's mean answers with their targets over states."),
    one("critic/NAME/groups_without_checklist", "Groups whose kind of task has no checklist, and no score."),
    one("critic/NAME/score_mean", "Mean score of turns against a checklist, in 0..=1."),
    one("critic/NAME/report_rate", "Share of trajectories that said whether they solved their task."),
    one("critic/NAME/report_accuracy", "Share of reports that are true."),
    one("critic/NAME/overconfidence", "Share of failures that were reported as solved."),
    one("critic/NAME/underconfidence", "Share of successes that were reported as not solved."),
    three("critic/NAME/contribution", "What turns contributed to the outcome, as a `spa-progress` critic says."),
    one("critic/NAME/grounded", "Share of turns that count as carried out, for a `spa-progress` critic."),
    three("critic/NAME/q_value", "How likely actions lead to success, as a `q-model` critic says."),
    one(
        "critic/NAME/outcome_correlation",
        "Correlation over trajectories of the mean of a `q-model` critic's numbers with the outcome: it falls where a policy pleases the model without solving tasks.",
    ),
    three("critic/NAME/process_reward", "Rewards of turns that a critic gives for how good a step is."),
    three("critic/NAME/implicit_reward", "Rewards of tokens, as an `implicit` critic says."),
    one("critic/NAME/implicit_loss", "Cross-entropy of an implicit reward with the outcome."),
    one("critic/NAME/implicit_accuracy", "Share of trajectories whose implicit reward is on the side of their outcome."),
    three("critic/NAME/shaping", "Shaping rewards of turns, as a `potential` critic says."),
    three(
        "critic/NAME/kl_reward",
        "Rewards of tokens of a `kl-reward` critic, in nats: minus their mean is how far a token is from the reference, an estimate of the KL divergence.",
    ),
    three("critic/NAME/pair_score", "How clean turns are, as a `pair` critic says."),
    one("critic/NAME/probe_accuracy", "Share of labelled turns that a probe is right about before it has seen them."),
    one("NODE/grad_norm", "Mean global gradient norm of a policy node's steps, before clipping."),
    one("NODE/lr", "Learning rate of a policy node."),
    one("NODE/steps", "Optimiser steps of a policy node in this update."),
    one(
        "NODE/backward_passes",
        "Backward passes of a policy node in this update: one for each micro-batch that somebody learns from, however many learn.",
    ),
    one("NODE/skipped_steps", "Steps left out because the gradient was not finite."),
    one("NODE/empty_update", "1 where there was nothing to train a policy node on."),
    three("signal/NAME", "A column that a critic computed."),
    one("env/NAME/mean", "A column of the environment, summed over a trajectory, mean over trajectories."),
    one("credit/trained_rate", "Share of sampled tokens that train: those whose advantage is not absent."),
    one("credit/zero_rate", "Share of trained tokens whose advantage is 0; 1 where none is trained."),
    one("credit/positive_rate", "Share of trained tokens whose advantage is positive."),
    one("credit/abs_mean", "Mean magnitude of advantages."),
    one(
        "credit/within_trajectory_std",
        "Spread of advantages between the turns of a trajectory, mean over trajectories. 0 for pure outcome credit: what finer methods add shows here.",
    ),
    one(
        "credit/degenerate_group_rate",
        "Share of groups, of those with two members or more, in which every advantage is 0: they teach nothing. Beside `actor/degenerate_group_rate` it says what values add to outcomes.",
    ),
    one("credit/clipped_rate", "Share of advantages that `clip` changed."),
    one("credit/unweighed_rate", "Share of turns without a number in the column of `weigh`: they are not trained."),
    one("credit/aem/level_groups", "Groups whose entropies span too little for `aem` to tell turns apart."),
    one("credit/empg/turns_without_entropy", "Trained turns that `empg` left as they were, because nobody sampled them."),
    one("credit/gtpo/one_sided_groups", "Groups in which all succeed or all fail, for `gtpo`."),
    one("credit/hicra/planning_rate", "Share of trained tokens that `hicra` raised."),
    one("credit/oracle/unknown_turns", "Trained turns without a true advantage, which `oracle` takes out of training."),
    one("cost/tokens", "Tokens that models processed to act or to judge since the start: the unit of `budget.tokens`."),
    one("cost/actor_tokens", "Tokens that the acting policy sampled since the start."),
    one("cost/fed_tokens", "Tokens fed to the acting policy since the start."),
    one("cost/critic_tokens", "Tokens that critics sampled or were fed since the start."),
    one(
        "cost/branch_tokens",
        "Tokens sampled in branches from stored or restored states since the start; of a critic's probes, also those that they were fed.",
    ),
    one("cost/expert_tokens", "Tokens given by an expert since the start."),
    one("cost/env_steps", "Environment steps since the start."),
    one("cost/restores", "States restored since the start."),
    one("cost/episodes", "Episodes that came to an end since the start."),
    one("cost/dropped_groups", "Groups drawn and dropped again since the start."),
    one("cost/trained_tokens", "Tokens that went through a training step since the start."),
    one("cost/eval_tokens", "Tokens spent on evaluations since the start; in no budget."),
    one("cost/eval_episodes", "Episodes of evaluations since the start; in no budget."),
    one("eval/SPLIT/MODE/success", "Share of a split's tasks that were solved; MODE is `greedy` or `sampled`."),
    one("eval/SPLIT/MODE/return", "Mean sum of the environment's rewards."),
    one("eval/SPLIT/MODE/turns", "Mean number of turns."),
    one("eval/SPLIT/MODE/failed", "Share of episodes that broke; they count as not solved."),
    one("eval/SPLIT/MODE/success/NAME", "Share solved of the tasks of a kind."),
    one("eval/SPLIT/MODE/NAME", "A column of the environment, summed over an episode, mean over episodes."),
    one("knob/KEY", "A scheduled number, as it was in this update."),
    one("alarm/NAME", "1 where an alarm went off."),
];

/// How well a family's name fits: parts that it leaves open count against it.
fn fit(family: &Family, name: &str) -> Option<usize> {
    let name = match family.summarised {
        true => ["/mean", "/min", "/max"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name),
        false => name,
    };
    let (mut wanted, mut found) = (family.name.split('/').peekable(), name.split('/').peekable());
    let mut open = 0;
    while let (Some(want), Some(have)) = (wanted.peek(), found.peek()) {
        match want.chars().all(|c| c.is_ascii_uppercase()) {
            true if have.is_empty() => return None,
            true => open += 1,
            false if want != have => return None,
            false => {}
        }
        wanted.next();
        found.next();
    }
    (wanted.next().is_none() && found.next().is_none()).then_some(open)
}

/// What a metric means.
pub(crate) fn page(name: &str) -> Option<String> {
    let (_, family) = FAMILIES.iter().filter_map(|f| Some((fit(f, name)?, f))).min_by_key(|(open, _)| *open)?;
    let mut out = format!("metric {name}\n\n  {}", family.says);
    if family.summarised {
        out += &format!("\n\n  {0}/mean, {0}/min and {0}/max", family.name);
    }
    Some(out)
}

/// What an alarm watches, and what to change where it goes off.
pub(crate) fn alarm_page(name: &str) -> Option<String> {
    let watch = alarms::watch(name)?;
    let (metric, which) = watch.family();
    let threshold = match watch.at {
        f64::MIN_POSITIVE => "above 0".to_string(),
        at if watch.floor => format!("{at} or less"),
        at => format!("{at} or more"),
    };
    let does = if watch.action == AlarmAction::Stop { "stops the run, after a checkpoint" } else { "warns, once in a phase" };
    let mut out = format!("alarm {name}\n\n  Goes off where `{metric}`{which} is {threshold}; then it {does}.");
    if watch.sampled_only {
        out += " It says nothing about actions that an expert gave.";
    }
    out += &format!("\n\nit says\n  {}", watch.says.replace("{}", "N"));
    out += &format!("\n\nit advises\n  {}", watch.advice);
    out += &format!("\n\nto change it\n  [alarm.{name}]\n  at = {:?}\n  action = \"off\"  # or \"warn\", or \"stop\"", watch.at);
    Some(out)
}

/// Names of alarms.
pub(crate) fn alarm_names() -> impl Iterator<Item = &'static str> {
    WATCHES.iter().map(|watch| watch.key)
}

/// Names of metrics that leave nothing open.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|f| f.name).filter(|name| !name.contains(|c: char| c.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    #[test]
    fn metrics_are_found_by_their_family() {
        for (name, says) in [
            ("critic/advantages/mean", "Advantages of trained"),
            ("critic/rewards", "the reward of a trajectory"),
            ("actor/grad_norm", "gradient norm"),
            ("judge/grad_norm", "gradient norm"),
            ("actor/pg_loss", "Policy-gradient"),
            ("eval/test/greedy/success", "were solved"),
            ("eval/test/greedy/success/swap", "of the tasks of a kind"),
            ("eval/test/sampled/exploit", "summed over an episode"),
            ("knob/update.learning_rate", "scheduled number"),
            ("signal/value/max", "critic computed"),
            ("critic/judge/explained_variance", "its values explain"),
            ("critic/judge/parse_failure_rate/unclosed", "is not closed"),
            ("rollout/logprob_mismatch/mean", "sampler's"),
        ] {
            assert!(page(name).is_some_and(|page| page.contains(says)), "{name}: {:?}", page(name));
        }
        for name in ["", "critic", "critic/", "actor/unknown", "knob/", "a/b/c/d/e/f"] {
            assert_eq!(page(name), None, "{name}");
        }
    }

    #[test]
    fn alarms_are_explained_by_their_name() {
        for watch in &WATCHES {
            let page = alarm_page(watch.key).unwrap();
            assert!(page.contains(watch.advice) && page.contains(&format!("[alarm.{}]", watch.key)), "{page}");
            let metric = watch.family().0.replace("NODE", "actor");
            assert!(super::page(&metric).is_some(), "`{metric}` has no page");
        }
        let page = alarm_page("anchor-misses").unwrap();
        assert!(page.contains("`group/anchor_hit_rate` is 0.05 or less; then it warns"), "{page}");
        assert!(alarm_page("all-failed").unwrap().contains("is 1 or more; then it stops the run"));
        assert_eq!(alarm_page("absent"), None);
    }

    #[test]
    fn no_two_families_have_one_name() {
        let mut names: Vec<&str> = FAMILIES.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAMILIES.len());
    }

    /// Names of metrics that a source writes down, with `NAME` for what is filled in.
    fn written(text: &str) -> Vec<String> {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let calls =
            code.split(['\n', ';']).filter(|line| [".set(", ".add(", ".summarise("].iter().any(|call| line.contains(call)));
        let of_a_family = |name: &&str| {
            ["actor/", "critic/", "credit/", "group/", "rollout/", "td/"].iter().any(|family| name.starts_with(family))
        };
        let texts = calls.filter_map(|line| line.split('"').nth(1)).filter(of_a_family);
        texts.map(|name| name.replace("{}", "NAME")).collect()
    }

    #[test]
    fn every_metric_of_a_plugin_has_a_page() {
        let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
        let mut folders =
            ["transforms", "objectives", "critics", "rollouts"].map(|folder| plugins.join(folder).join("src")).to_vec();
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                for name in written(&std::fs::read_to_string(path).unwrap()) {
                    assert!(page(&name).is_some(), "`explain {name}` has nothing to say");
                    seen += 1;
                }
            }
        }
        assert!(seen > 15, "{seen} metrics seen");
    }
}
