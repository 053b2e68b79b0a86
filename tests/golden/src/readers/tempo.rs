//! Macro-step TEMPO, as KMnO4-zx/agentic-rl-lab lays it out.

use ascribe_core::log::{Action, GroupLog, History, TurnLog};
use ascribe_core::rows::column::{ADVANTAGE, BEHAVIOR_LOGPROB};
use ascribe_core::{AdvantageEstimator, Credit, End, Limit, Now, RowSet, Scope};
use ascribe_critics::{Condense, Happened, Mode, Rules, condensed, mean_of_read, read};
use ascribe_estimators::{Tempo, actor_signals};
use ascribe_math::critic_signals;
use serde_json::{Value, json};

use crate::Case;
use crate::records::{add_signal, batch, config, group, number, turn, vector};

/// What both count as no advantage is a constant of ours.
fn same_epsilon(case: Case<'_>) {
    assert_eq!(number(case.params, "epsilon"), 1e-12, "{}", case.name);
}

/// `assemble_actor_group`. The plugin on records must say the same.
pub fn actor(case: Case<'_>) -> Value {
    same_epsilon(case);
    let branches = case.inputs["branches"].as_array().expect("branches");
    let rewards: Vec<f64> = branches.iter().map(|b| number(b, "segment_reward")).collect();
    let ends: Vec<End> = branches.iter().map(end).collect();
    let value = |(branch, end): (&Value, &End)| (*end == End::MacroBoundary).then(|| number(branch, "endpoint_value"));
    let endpoints: Vec<Option<f64>> = branches.iter().zip(&ends).map(value).collect();
    let signals = actor_signals(&rewards, &endpoints);

    let turns = rewards.iter().map(|r| turn(None, 1, *r)).collect();
    let mut records = group(turns, (0..rewards.len()).collect());
    records.leaves.iter_mut().zip(ends).for_each(|(leaf, end)| leaf.end = end);
    let mut batch = batch(vec![records]);
    let states = std::iter::once(0.0).chain(branches.iter().map(|b| number(b, "endpoint_value") as f32));
    add_signal(&mut batch, "value", Scope::State, states.collect());
    let plugin: Tempo = config(json!({ "mode": "official" }));
    let credit = plugin.estimate(batch.group(0), &Now::default()).expect("pure");
    for (got, want) in credit.turns.iter().zip(&signals.advantages) {
        let got = f64::from(got.unwrap_or(0.0));
        // The records hold rewards and values as f32.
        assert!((got - want).abs() <= 2e-6 * (1.0 + want.abs()), "{}: on records {got}, on slices {want}", case.name);
    }

    json!({
        "segment_rewards": rewards,
        "endpoint_values": signals.endpoint_values,
        "returns": signals.returns,
        "value_target": signals.target,
        "advantages": signals.advantages,
        "degenerate": signals.degenerate,
        "zero_reward_value_std": signals.zero_reward_value_deviation,
    })
}

fn end(branch: &Value) -> End {
    match branch["stop_reason"].as_str().expect("a stop reason") {
        "won" => End::Terminated { success: true },
        "environment_done" => End::Terminated { success: false },
        "max_steps" => End::Truncated(Limit::Turns),
        "trajectory_too_long" => End::Truncated(Limit::Tokens),
        "macro_boundary" => End::MacroBoundary,
        other => panic!("stop reason `{other}`"),
    }
}

/// `assemble_critic_group`.
pub fn critic(case: Case<'_>) -> Value {
    same_epsilon(case);
    let values: Vec<Option<f64>> = case.inputs["values"].as_array().expect("values").iter().map(Value::as_f64).collect();
    let signals = critic_signals(&values, number(case.inputs, "value_target"), number(case.params, "r_max"));
    json!({
        "rewards": signals.rewards,
        "advantages": signals.advantages,
        "errors": signals.errors,
        "degenerate": signals.degenerate,
        "parse_failures": signals.parse_failures,
        "mean_estimate": signals.mean_estimate,
    })
}

/// `build_actor_datum` and `build_critic_datum`: tokens shifted by one, with what each carries.
pub fn datum(case: Case<'_>) -> Value {
    let advantage = number(case.inputs, "advantage");
    let (prefix, steps, next, kind) = match case.inputs["steps"].as_array() {
        Some(steps) => (tokens(&case.inputs["token_prefix"]), steps.clone(), tokens(&case.inputs["next_prompt_tokens"]), "actor"),
        // A critic's prompt and answer are a sequence of one turn.
        None => (Vec::new(), vec![case.inputs.clone()], Vec::new(), "critic"),
    };
    let mut sequence = prefix.clone();
    let mut turns: Vec<TurnLog> = Vec::new();
    for step in &steps {
        let (prompt, completion) = (tokens(&step["prompt_tokens"]), tokens(&step["completion_tokens"]));
        // Where nothing was said, what was read is read on with the next turn.
        if completion.is_empty() {
            continue;
        }
        let read = prompt.strip_prefix(&sequence[..]).unwrap_or_else(|| panic!("{}: the prompt goes on", case.name)).to_vec();
        sequence = [&prompt[..], &completion].concat();
        let logprob = vector(&step["logprobs"]).into_iter().map(|x| x as f32).collect();
        let action = Action { logprob: Some(logprob), ..Action::given(completion) };
        turns.push(TurnLog { parent: turns.len().checked_sub(1), read, action, ..turn(None, 0, 0.0) });
    }
    let n = turns.len();
    let history = History { tokens: prefix, ..History::default() };
    let batch = batch(vec![GroupLog { history, ..group(turns, vec![n - 1]) }]);
    let rows = RowSet::from_credit(&batch, &[Credit::per_turn(vec![advantage; n])], None);
    assert_eq!((rows.len(), rows.tokens_of(0)), (1, &sequence[..]), "{}", case.name);
    // Our rows end with the last action; what was shown then is read by nobody, and carries nothing there either.
    let shown = next.strip_prefix(&sequence[..]).unwrap_or_default();
    let full = [&sequence[..], shown].concat();
    let carried = |column: &str| {
        let mut all = vec![0.0; full.len()];
        rows.at
            .iter()
            .enumerate()
            .for_each(|(i, at)| all[*at] = f64::from(rows.columns[column].get(i).expect("each token has it")));
        all.split_off(1)
    };
    json!({
        "input_tokens": full[..full.len() - 1],
        "target_tokens": full[1..],
        "logprobs": carried(BEHAVIOR_LOGPROB),
        "advantages": carried(ADVANTAGE),
        "num_tokens": full.len() - 1,
        "loss_tokens": rows.n_trained(),
        "kind": kind,
    })
}

fn tokens(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().map(|token| token.as_u64().expect("a token") as u32).collect()
}

/// `parse_value`, the mean of the samples of an endpoint, and the history that a critic is shown.
pub fn value_parse(case: Case<'_>) -> Value {
    if let Some(texts) = case.inputs["texts"].as_array() {
        let rules = Rules { mode: Mode::Official, r_max: 1.0, percent: false, fraction: false };
        let text = |text: &Value| read(text.as_str().expect("a text"), false, &rules).ok();
        return json!({ "values": texts.iter().map(text).collect::<Vec<_>>() });
    }
    if let Some(values) = case.inputs["values"].as_array() {
        let values: Vec<Option<f64>> = values.iter().map(Value::as_f64).collect();
        let failures = values.iter().filter(|v| v.is_none()).count();
        // What stands there officially.
        return json!({ "value": mean_of_read(values).unwrap_or(0.0), "failures": failures });
    }
    let messages = case.inputs["messages"].as_array().expect("messages");
    let task = messages.iter().find(|message| message["role"] == "user").expect("a task");
    let initial = task["content"].as_str().expect("a text");
    let mut happened: Vec<Happened<'_>> = Vec::new();
    for message in messages {
        let text = message["content"].as_str();
        match message["role"].as_str() {
            Some("assistant") => happened.push((text, None)),
            Some("tool") => happened.last_mut().expect("a tool answers an action").1 = text,
            _ => {}
        }
    }
    let how = Condense { turns: None, cut_at: Some("Available actions".into()) };
    json!({ "history": condensed(initial, &happened, &how) })
}
