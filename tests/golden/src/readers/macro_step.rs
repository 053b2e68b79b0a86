//! Where macro steps of TEMPO stop and what is stored, as KMnO4-zx/agentic-rl-lab lays it out.

use std::sync::Arc;

use ascribe_core::environment::TaskId;
use ascribe_core::log::{History, Origin};
use ascribe_core::play::{Back, State};
use ascribe_core::{Draw, End, Limit, Seeds};
use ascribe_math::{Deviation, correlation, moments};
use ascribe_rollouts::{MacroStep, StateStore};
use serde_json::{Value, json};

use crate::Case;
use crate::records::{config, number, vector};
use crate::track::Track;

/// `StateStore`, `finish`, `endpoint_state`, `boundary_states` and `pearson`, by what a case gives.
pub fn states(case: Case<'_>) -> Value {
    let inputs = case.inputs;
    if inputs["ops"].is_array() {
        return store(case);
    }
    if inputs["xs"].is_array() {
        let (x, y) = (vector(&inputs["xs"]), vector(&inputs["ys"]));
        let of_x = moments(&x);
        return json!({
            "pearson": correlation(&x, &y),
            "population_std_xs": of_x.deviation(Deviation::Population),
            "mean": of_x.mean,
        });
    }
    let Some(rows) = inputs["rows"].as_array() else { return Value::Null };
    let row = |row: &Value| match case.params["macro_rounds"].as_u64() {
        Some(turns) => finish(case.params, turns, row),
        None if row["start_macro"].is_u64() => endpoint(case.params, row),
        None => boundaries(row),
    };
    json!({ "out": rows.iter().map(row).collect::<Vec<_>>() })
}

fn count(row: &Value, key: &str) -> usize {
    row[key].as_u64().unwrap_or_else(|| panic!("`{key}` in {row}")) as usize
}

/// One member, from the one state that is stored, with the reproduction's own ways.
fn macro_step(turns: u64) -> MacroStep {
    config(json!({ "turns": turns, "starts": 1, "branches": 1, "mode": "official" }))
}

fn store(case: Case<'_>) -> Value {
    let mut store = StateStore::new(number(case.params, "capacity") as usize);
    let mut rng = Seeds(number(case.params, "seed") as u64).rng("store", Draw::default());
    let state = |seed| State { seed, back: Back::default(), turns: 10, history: History::default(), origin: Origin::default() };
    let ops = case.inputs["ops"].as_array().expect("operations").iter().map(|op| {
        let added = vector(&op["add"]).into_iter().map(|seed| (TaskId::default(), state(seed as u64), 1));
        store.add(0, added);
        let there: Vec<u64> = store.states().map(|stored| stored.state.seed).collect();
        let n = count(op, "sample_count");
        let sampled: Vec<u64> = store.sample(n, false, &mut rng).into_iter().map(|stored| stored.state.seed).collect();
        assert_eq!(sampled.len(), n.min(there.len()), "{}", case.name);
        assert!(sampled.iter().enumerate().all(|(i, seed)| there.contains(seed) && !sampled[..i].contains(seed)), "{sampled:?}");
        json!({ "add": op["add"], "sample_count": n, "store_after_add": there, "sampled": sampled })
    });
    json!({ "log": ops.collect::<Vec<_>>() })
}

/// Whether and how a macro step is over after so many rounds. What is won counts where the environment is done.
fn finish(params: &Value, turns: u64, row: &Value) -> Value {
    let (start, rounds) = (count(row, "start_round"), count(row, "segment_rounds"));
    let at = start + rounds;
    let fits = row["prompt_fits"].as_bool().expect("whether the prompt fits");
    let won = row["env_won"].as_bool().expect("whether it is won");
    let track = Track {
        done: (row["env_done"] == true).then_some((at, won)),
        max_turns: number(params, "max_episode_steps") as usize,
        max_tokens: 100,
        prompt: Arc::new(move |turns| if turns == at && !fits { 1000 } else { 1 }),
    };
    let walked = track.walk(&macro_step(turns), start, 0);
    let (done, truncated, reason) = match walked.end {
        _ if walked.turns > rounds => (false, false, ""),
        End::Terminated { success: true } => (true, false, "won"),
        End::Terminated { success: false } => (true, true, "environment_done"),
        // What is won without being over is cut, and not called so.
        End::Truncated(Limit::Turns) => (true, !won, "max_steps"),
        End::Truncated(Limit::Context) => (true, true, "trajectory_too_long"),
        End::MacroBoundary => (true, false, "macro_boundary"),
        other => panic!("{other:?}"),
    };
    json!({ "done": done, "truncated": truncated, "stop_reason": reason })
}

/// The state that is stored at the end of a macro step, if one is. A prompt that is not there is one that does not fit.
fn endpoint(params: &Value, row: &Value) -> Value {
    let (start, steps) = (count(row, "start_round"), count(row, "steps"));
    let max_tokens = number(params, "max_trajectory_tokens") as usize;
    let next = row["next_prompt_len"].as_u64().map_or(max_tokens, |n| n as usize);
    let reason = row["stop_reason"].as_str().expect("a reason");
    let track = Track {
        done: (reason == "won").then_some((start + steps, true)),
        max_turns: if reason == "max_steps" { start + steps } else { number(params, "max_episode_steps") as usize },
        max_tokens,
        prompt: Arc::new(move |turns| if turns == start + steps { next } else { 1 }),
    };
    let stored = track.walk(&macro_step(steps.max(10) as u64), start, count(row, "start_macro") as u32).stored.pop();
    stored.map_or(Value::Null, |stored| {
        json!({
            "round_index": stored.state.turns,
            "macro_index": stored.macro_index,
            "n_actions": stored.state.history.turns.len(),
            "seed": stored.state.seed,
        })
    })
}

/// The boundaries of a whole trajectory. A message is what was said or shown; a system's and a task's come first.
fn boundaries(row: &Value) -> Value {
    let steps = count(row, "steps");
    let max_tokens = count(row, "max_trajectory_tokens");
    let reason = row["stop_reason"].as_str().expect("a reason");
    let next = row["next_prompt_len"].as_u64().map(|n| n as usize);
    let track = Track {
        done: (reason == "won").then_some((steps, true)),
        max_turns: if reason == "max_steps" { steps } else { 1000 },
        max_tokens,
        prompt: Arc::new(move |turns| if turns == steps { next.unwrap_or(max_tokens) } else { turns + 2 }),
    };
    let mut all = track.boundaries(&macro_step(count(row, "macro_rounds") as u64));
    // What goes on is the end of what was given.
    all.retain(|stored| stored.state.turns <= steps);
    let told = all.iter().map(|stored| {
        let shown = stored.state.back.shown.as_deref().unwrap_or_default();
        json!({
            "round_index": stored.state.turns,
            "macro_index": stored.macro_index,
            "prefix_len": shown.split(' ').count(),
            "observation": shown.split(' ').next(),
            "n_messages": 2 + 2 * stored.state.turns,
        })
    });
    told.collect()
}
