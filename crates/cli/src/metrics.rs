//! What metrics mean.

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
    one("rollout/unused_reward", "Sum of what the environment paid while no weight in `[reward]` reads it."),
    one(
        "rollout/logprob_mismatch/mean",
        "Mean distance between the sampler's and the trainer's log-probabilities of the same tokens. Importance ratios start at 1 only if it is near 0.",
    ),
    one("rollout/logprob_mismatch/p95", "The distance that 95 % of the tokens stay below."),
    one("rollout/logprob_mismatch/max", "The largest distance."),
    one("rollout/logprob_mismatch/outside", "Share of tokens whose ratio starts outside 0.9..=1.1."),
    one("group/excluded", "Groups without a trajectory left to train on."),
    one("group/dropped", "Groups that `drop-degenerate` took out of training."),
    one("group/dropped_by_accuracy", "Groups that `accuracy-window` took out of training."),
    one("group/dropped_by_variance", "Groups that `variance-filter` took out of training."),
    one(
        "actor/degenerate_group_rate",
        "Share of groups, of those with two members or more, whose members all have the same outcome: a group-relative estimator learns nothing from them.",
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
    three("critic/NAME/pair_score", "How clean turns are, as a `pair` critic says."),
    one("critic/NAME/probe_accuracy", "Share of labelled turns that a probe is right about before it has seen them."),
    one("NODE/grad_norm", "Mean global gradient norm of a policy node's steps, before clipping."),
    one("NODE/lr", "Learning rate of a policy node."),
    one("NODE/steps", "Optimiser steps of a policy node in this update."),
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
    one("credit/clipped_rate", "Share of advantages that `clip` changed."),
    one("credit/aem/level_groups", "Groups whose entropies span too little for `aem` to tell turns apart."),
    one("credit/empg/turns_without_entropy", "Trained turns that `empg` left as they were, because nobody sampled them."),
    one("credit/gtpo/one_sided_groups", "Groups in which all succeed or all fail, for `gtpo`."),
    one("credit/hicra/planning_rate", "Share of trained tokens that `hicra` raised."),
    one("credit/oracle/unknown_turns", "Trained turns without a true advantage, which `oracle` takes out of training."),
    one("cost/tokens", "Tokens that models processed to act or to judge since the start: the unit of `budget.tokens`."),
    one("cost/actor_tokens", "Tokens that the acting policy sampled since the start."),
    one("cost/fed_tokens", "Tokens fed to the acting policy since the start."),
    one("cost/critic_tokens", "Tokens that critics sampled or were fed since the start."),
    one("cost/branch_tokens", "Tokens sampled in branches from stored or restored states since the start."),
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
            ("rollout/logprob_mismatch/mean", "sampler's"),
        ] {
            assert!(page(name).is_some_and(|page| page.contains(says)), "{name}: {:?}", page(name));
        }
        for name in ["", "critic", "critic/", "actor/unknown", "knob/", "a/b/c/d/e/f"] {
            assert_eq!(page(name), None, "{name}");
        }
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
        let calls = code.split(['\n', ';']).filter(|line| line.contains(".set(") || line.contains(".add("));
        let of_a_family = |name: &&str| ["actor/", "critic/", "credit/", "group/"].iter().any(|family| name.starts_with(family));
        let texts = calls.filter_map(|line| line.split('"').nth(1)).filter(of_a_family);
        texts.map(|name| name.replace("{}", "NAME")).collect()
    }

    #[test]
    fn every_metric_of_a_transform_or_objective_has_a_page() {
        let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
        let mut seen = 0;
        for folder in ["transforms", "objectives"] {
            for file in std::fs::read_dir(plugins.join(folder).join("src")).unwrap() {
                for name in written(&std::fs::read_to_string(file.unwrap().path()).unwrap()) {
                    assert!(page(&name).is_some(), "`explain {name}` has nothing to say");
                    seen += 1;
                }
            }
        }
        assert!(seen > 15, "{seen} metrics seen");
    }
}
