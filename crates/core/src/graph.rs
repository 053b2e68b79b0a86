//! Whether the plugins of an experiment fit together: every need is covered before the first rollout.

use std::collections::{BTreeMap, BTreeSet};

use crate::critic::CriticConfig;
use crate::environment::TaskSetConfig;
use crate::estimator::AdvantageEstimator;
use crate::experiment::{Experiment, Old};
use crate::need::{Need, Provide, covers};
use crate::objective::DiffColumn;
use crate::play::Keep;
use crate::registry::{Kind, plugins};
use crate::rollout::RolloutConfig;
use crate::signal::Scope;
use crate::slot::Slot;

/// A need that nothing covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The key whose plugin needs it, e.g. `estimator.gae` or `transform.0.clip`.
    pub path: Vec<String>,
    /// What is missing.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// A need of one of an experiment's plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Required {
    /// The key whose plugin needs it, e.g. `estimator.gae` or `transform.0.clip`.
    pub path: Vec<String>,
    /// What it needs.
    pub need: Need,
}

/// Everything that the plugins of one phase need, in the order of the training loop. `table` is the phase's merged
/// tree, from which the plugins' names are read.
pub fn required(experiment: &Experiment, table: &toml::Table) -> Vec<Required> {
    let mut required = Vec::new();
    let mut add = |path: Vec<String>, needs: Vec<Need>| {
        for need in needs {
            let one = Required { path: path.clone(), need };
            // Parts of a plugin may need the same.
            if !required.contains(&one) {
                required.push(one);
            }
        }
    };
    add(slot(table, &["rollout"]), experiment.rollout.needs());
    add(slot(table, &["rollout"]), vec![Need::Node(experiment.rollout.agent().into())]);
    for (name, policy) in &experiment.policy {
        add(slot(table, &["policy", name]), policy.needs());
    }
    // Critics run in the order of their needs; each sees what the others provide.
    for (name, critic) in &experiment.critic {
        add(slot(table, &["critic", name]), critic.needs());
    }
    add(slot(table, &["estimator"]), experiment.estimator.needs());
    for (i, transform) in experiment.transform.iter().enumerate() {
        add(slot(table, &["transform", &i.to_string()]), transform.needs());
    }
    add(slot(table, &["objective"]), experiment.objective.needs());
    add(slot(table, &["objective"]), experiment.objective.columns().into_iter().map(Need::Differentiable).collect());
    required
}

/// What a phase's plugins want kept of every turn.
pub fn keep(experiment: &Experiment) -> Keep {
    let required = required(experiment, &toml::Table::new());
    let needed = |need: Need| required.iter().any(|r| r.need == need);
    Keep { privileged: needed(Need::Privileged), snapshots: needed(Need::ExactSnapshot) }
}

/// The keys of those that cover a need; none if nothing does.
pub fn covered_by(required: &Required, experiment: &Experiment, table: &toml::Table) -> Vec<Vec<String>> {
    if let Need::Node(name) = &required.need {
        return experiment.policy.contains_key(name).then(|| slot(table, &["policy", name])).into_iter().collect();
    }
    let mut by: Vec<Vec<String>> = providers(experiment, table)
        .into_iter()
        .filter(|(_, provides)| covers(provides, &required.need))
        .map(|(path, _)| path)
        .collect();
    let recomputed = experiment.update.old == Old::Recomputed;
    if by.is_empty() && required.need == Need::BehaviorLogprob && required.path[0] == "objective" && recomputed {
        by.push(vec!["update".into(), "old".into()]);
    }
    by
}

/// What a rollout provides.
fn of_rollout(rollout: &dyn RolloutConfig) -> Vec<Provide> {
    let whole = rollout.whole_episodes().then_some(Need::WholeEpisodes);
    rollout.provides().into_iter().chain(whole).collect()
}

/// What is accepted, and is hardly meant: episodes in pieces, for an estimator that takes what a piece was paid for its outcome.
pub fn doubt(experiment: &Experiment) -> Option<String> {
    let of_states = |need: &Need| matches!(need, Need::Signal(_, Scope::State) | Need::SomeStates(_));
    let values = experiment.estimator.needs().iter().any(of_states);
    let trains = experiment.train.is_empty() || experiment.train.iter().any(|name| name == experiment.rollout.agent());
    (trains && !experiment.rollout.whole_episodes() && !values).then(|| {
        "the rollout stops episodes before their end, and the estimator has no value for what is still to come: what was not paid yet \
         counts as lost. Take an estimator that goes on with a value (`tempo`, `gae`, `n-step`, `td`), or a rollout of whole episodes"
            .into()
    })
}

/// What each plugin provides, by its key.
fn providers(experiment: &Experiment, table: &toml::Table) -> Vec<(Vec<String>, Vec<Provide>)> {
    let mut providers = vec![
        (slot(table, &["environment"]), experiment.environment.provides()),
        (slot(table, &["rollout"]), of_rollout(&*experiment.rollout)),
        (slot(table, &["estimator"]), experiment.estimator.targets().into_iter().map(Need::Target).collect()),
    ];
    for (name, critic) in &experiment.critic {
        providers.push((slot(table, &["critic", name]), critic.provides()));
    }
    let agent = experiment.rollout.agent();
    if let Some(policy) = experiment.policy.get(agent) {
        let columns = policy.columns().into_iter().map(Need::Differentiable);
        let hidden = policy.hidden().then_some(Need::Hidden);
        providers.push((slot(table, &["policy", agent]), columns.chain(hidden).collect()));
    }
    providers
}

/// Checks the graph of one phase. `table` is the phase's merged tree, from which the plugins' names are read.
pub fn check(experiment: &Experiment, table: &toml::Table) -> Vec<Unmet> {
    let mut unmet = Vec::new();
    let provided = provided(experiment);
    let agent = experiment.rollout.agent();
    for required in required(experiment, table) {
        // Without the acting node nothing can be differentiated: that it is missing says enough.
        let follows = matches!(required.need, Need::Differentiable(_)) && !experiment.policy.contains_key(agent);
        if !follows && covered_by(&required, experiment, table).is_empty() {
            let Required { path, need } = required;
            let (kind, name) = (&path[0], path.last().expect("a path is never empty"));
            unmet.push(Unmet {
                message: format!("{kind} `{name}` needs {need}"),
                help: remedy(&need, &path[0], experiment),
                path,
            });
        }
    }

    unmet.extend(given_twice(&providers(experiment, table)));

    for name in experiment.reward.keys().filter(|name| *name != "env") {
        let known = [Scope::Turn, Scope::Token].into_iter().any(|scope| covers(&provided, &Need::Signal(name.clone(), scope)));
        if !known {
            let mut columns: Vec<&str> = vec!["env"];
            columns.extend(provided.iter().filter_map(|p| match p {
                Need::Signal(name, Scope::Turn | Scope::Token) => Some(name.as_str()),
                _ => None,
            }));
            unmet.push(Unmet {
                path: vec!["reward".into(), name.clone()],
                message: format!("there is no reward column `{name}`"),
                help: format!("columns here: {}", columns.join(", ")),
            });
        }
    }
    for (i, name) in experiment.train.iter().enumerate() {
        if name != agent && !experiment.critic.contains_key(name) {
            let known: Vec<&str> = std::iter::once(agent).chain(experiment.critic.keys().map(String::as_str)).collect();
            unmet.push(Unmet {
                path: vec!["train".into(), i.to_string()],
                message: format!("`{name}` is neither the acting node nor a critic"),
                help: format!("those that can train: {}", known.join(", ")),
            });
        }
    }
    if let Err(circle) = critic_order(&experiment.critic) {
        unmet.push(Unmet {
            path: vec!["critic".into()],
            message: format!("critics need each other in a circle: {}", circle.join(", ")),
            help: "let one of them do without the others".into(),
        });
    }
    unmet
}

/// Critics that give a column which somebody before them gives too.
fn given_twice(providers: &[(Vec<String>, Vec<Provide>)]) -> Vec<Unmet> {
    let mut given: BTreeMap<&str, &[String]> = BTreeMap::new();
    let mut twice = Vec::new();
    for (path, provides) in providers {
        let columns: BTreeSet<&str> = provides.iter().filter_map(Need::column).map(|(name, _)| name).collect();
        for column in columns {
            match given.get(column) {
                Some(first) => twice.push(Unmet {
                    path: path.clone(),
                    message: format!("`{}` gives the column `{column}`, which `{}` gives too", path.join("."), first.join(".")),
                    help: "a column has one provider: leave one of them out, or, where it has a key for that (`column`, `as_value`), \
                           let it give another"
                        .into(),
                }),
                None => {
                    given.insert(column, path);
                }
            }
        }
    }
    twice
}

/// Critics in an order in which each comes after those whose columns it needs; names break ties.
///
/// # Errors
/// The critics that wait for each other.
pub fn critic_order(critics: &BTreeMap<String, Slot<dyn CriticConfig>>) -> Result<Vec<String>, Vec<String>> {
    let all: Vec<Provide> = critics.values().flat_map(|c| c.provides()).collect();
    let mut left: Vec<&String> = critics.keys().collect();
    let mut have: Vec<Provide> = Vec::new();
    let mut order = Vec::new();
    while !left.is_empty() {
        let ready = |name: &&String| {
            let needs = critics[*name].needs();
            // What no critic provides comes from elsewhere, or is reported as unmet.
            needs.iter().all(|need| !covers(&all, need) || covers(&have, need) || covers(&critics[*name].provides(), need))
        };
        let Some(i) = left.iter().position(ready) else { return Err(left.into_iter().cloned().collect()) };
        let name = left.remove(i);
        have.extend(critics[name].provides());
        order.push(name.clone());
    }
    Ok(order)
}

/// Everything that the experiment's plugins provide.
pub fn provided(experiment: &Experiment) -> Vec<Provide> {
    providers(experiment, &toml::Table::new()).into_iter().flat_map(|(_, provides)| provides).collect()
}

/// `prefix.NAME`, where NAME is the plugin in that slot.
fn slot(table: &toml::Table, prefix: &[&str]) -> Vec<String> {
    let mut path: Vec<String> = prefix.iter().map(|s| (*s).to_string()).collect();
    let at = prefix[1..].iter().fold(table.get(prefix[0]), |at, key| match at? {
        toml::Value::Table(t) => t.get(*key),
        toml::Value::Array(a) => key.parse::<usize>().ok().and_then(|i| a.get(i)),
        _ => None,
    });
    if let Some(name) = at.and_then(toml::Value::as_table).and_then(|t| t.keys().next()) {
        path.push(name.clone());
    }
    path
}

/// Who could cover a need: the plugins whose examples provide it, or what to change.
///
/// * `by`: top-level key of the plugin that needs it.
fn remedy(need: &Need, by: &str, experiment: &Experiment) -> String {
    match need {
        Need::GroupOfAtLeast(n) => {
            return format!("let the rollout play {n} or more episodes per task (`group_size`, `leaves` or `roots`)");
        }
        Need::BehaviorLogprob => return without_logprobs(by),
        Need::Node(name) => {
            let known: Vec<&str> = experiment.policy.keys().map(String::as_str).collect();
            return format!("add [policy.{name}.PLUGIN]; nodes here: {}", known.join(", "));
        }
        _ => {}
    }
    let mut who = Vec::new();
    for row in plugins(Kind::Critic) {
        if example::<Slot<dyn CriticConfig>>(row.name, row.example).is_some_and(|c| covers(&c.provides(), need)) {
            who.push(format!("[critic.NAME.{}]", row.name));
        }
    }
    for row in plugins(Kind::Environment) {
        if example::<Slot<dyn TaskSetConfig>>(row.name, row.example).is_some_and(|c| covers(&c.provides(), need)) {
            who.push(format!("environment `{}`", row.name));
        }
    }
    if let Need::Target(column) = need {
        let gives = |name: &str, body: &str| {
            example::<Slot<dyn AdvantageEstimator>>(name, body).is_some_and(|estimator| estimator.targets().contains(column))
        };
        let gave = plugins(Kind::Estimator).into_iter().filter(|row| gives(row.name, row.example));
        who.extend(gave.map(|row| format!("estimator `{}`", row.name)));
        return format!("another `target`, or one of: {}", who.join(", "));
    }
    for row in plugins(Kind::Rollout) {
        if example::<Slot<dyn RolloutConfig>>(row.name, row.example).is_some_and(|c| covers(&of_rollout(&*c), need)) {
            who.push(format!("rollout `{}`", row.name));
        }
    }
    for row in plugins(Kind::Policy) {
        let Some(config) = example::<Slot<dyn crate::policy::PolicyConfig>>(row.name, row.example) else { continue };
        if let Need::Differentiable(DiffColumn::Head(_)) = need {
            continue;
        }
        let has = config.columns().into_iter().any(|c| &Need::Differentiable(c) == need);
        if has || (*need == Need::Hidden && config.hidden()) {
            who.push(format!("policy `{}`", row.name));
        }
    }
    if who.is_empty() { "no plugin in this binary provides it".into() } else { format!("provided by: {}", who.join(", ")) }
}

/// What to change where a plugin needs the log-probabilities of an expert's actions. `by` is its top-level key.
fn without_logprobs(by: &str) -> String {
    let instead = match by {
        "objective" => {
            "in that phase, an objective without ratios (`phase.NAME.objective = \"nll\"`), `update.old = \"recomputed\"`"
        }
        "estimator" => "in that phase, an estimator that does not read them (`phase.NAME.estimator = …`)",
        "transform" => "in that phase, no such transform (`phase.NAME.transform = []`)",
        _ => "in that phase, do without it",
    };
    format!("an expert's actions have none: {instead}, or a rollout that samples")
}

/// A plugin built from its own example.
fn example<T: serde::de::DeserializeOwned>(name: &str, body: &str) -> Option<T> {
    let body: toml::Table = toml::from_str(body).ok()?;
    let slot = toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))]);
    T::deserialize(toml::Value::Table(slot)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_log_probabilities_is_told_what_helps_it() {
        for (by, helps) in [
            ("objective", "`phase.NAME.objective = \"nll\"`"),
            ("estimator", "`phase.NAME.estimator = …`"),
            ("transform", "`phase.NAME.transform = []`"),
        ] {
            let help = without_logprobs(by);
            assert!(help.contains(helps) && help.ends_with("or a rollout that samples"), "{help}");
            // The objective's remedies help nobody else.
            assert_eq!(help.contains("nll") || help.contains("recomputed"), by == "objective", "{help}");
        }
    }
}
