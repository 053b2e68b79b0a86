//! What a critic reads: what the actor has read and done, what only critics may know, and a question.

use ascribe_core::log::Context;
use ascribe_core::tokenizer::Tokenizer;
use ascribe_core::{Batch, Group};

const TASK: &str = "You judge an episode from its last state on.";
const INITIAL: &str = "Initial situation:";
const ACTOR: &str = "Actor:";
const ENVIRONMENT: &str = "Environment:";
const KNOWN: &str = "Known to the judge alone:";
const NOTHING: &str = "(nothing)";

/// Every word that stands between what was read and done.
pub(crate) const STORY: [&str; 3] = [INITIAL, ACTOR, ENVIRONMENT];

/// Every word that the prompt itself has.
pub(super) fn fixed(largest: &str) -> String {
    [&STORY.join("\n"), TASK, KNOWN, NOTHING, &question(largest)].join("\n")
}

fn question(largest: &str) -> String {
    format!(
        "How much reward is still to come, in expectation? End with <value> NUMBER </value> , where NUMBER is from 0 to {largest} ."
    )
}

/// What of a sequence is shown.
#[derive(Clone, Debug, Default)]
pub struct Condense {
    /// Most recent actions that are shown, with what came of them; all where there is no limit. The initial situation
    /// always is.
    pub turns: Option<usize>,
    /// Observations end where this text begins, but for the initial situation.
    pub cut_at: Option<String>,
}

/// An action, if one led there, and what came of it, as far as somebody saw it.
pub type Happened<'a> = (Option<&'a str>, Option<&'a str>);

/// What happened, for a reader who was not there: the initial situation whole, then action and observation by turns.
pub fn condensed(initial: &str, happened: &[Happened<'_>], how: &Condense) -> String {
    let mut parts = vec![format!("{INITIAL}\n{}", initial.trim())];
    let first = how.turns.map_or(0, |n| happened.len().saturating_sub(n));
    for (action, observation) in &happened[first..] {
        parts.extend(action.map(|action| format!("{ACTOR} {}", action.trim())));
        parts.extend(observation.map(|text| {
            let end = how.cut_at.as_deref().and_then(|cut| text.find(cut)).unwrap_or(text.len());
            format!("{ENVIRONMENT} {}", text[..end].trim())
        }));
    }
    parts.join("\n\n")
}

/// A group's states, as somebody sees them who reads the records.
pub(crate) struct Reader<'a> {
    batch: &'a Batch,
    group: Group<'a>,
    /// A turn that starts in each state, `[turns + 1]`.
    next: Vec<Option<usize>>,
}

/// What a state shows.
struct Seen<'a> {
    observation: Option<&'a str>,
    context: Context,
    privileged: Option<&'a str>,
}

impl<'a> Reader<'a> {
    pub fn new(group: Group<'a>) -> Self {
        let mut next = vec![None; group.n_turns() + 1];
        for t in (0..group.n_turns()).rev() {
            next[group.parent(t).map_or(0, |p| p + 1)] = Some(t);
        }
        Self { batch: group.batch(), group, next }
    }

    fn note(&self, t: usize) -> &'a ascribe_core::batch::TurnNotes {
        &self.batch.notes[self.group.rows().start + t]
    }

    fn seen(&self, state: usize) -> Seen<'a> {
        if let Some(t) = self.next[state] {
            let note = self.note(t);
            let context = self.batch.turns.context[self.group.rows().start + t];
            return Seen { observation: Some(&note.observation), context, privileged: note.privileged.as_deref() };
        }
        let shown = state.checked_sub(1).and_then(|t| self.note(t).shown_after.as_deref());
        Seen {
            observation: shown.map(|shown| shown.observation.as_str()),
            context: shown.map_or(Context::Extend, |shown| shown.context),
            privileged: shown.and_then(|shown| shown.privileged.as_deref()),
        }
    }

    /// Turns from the group's start to a state.
    pub fn depth(&self, state: usize) -> usize {
        self.way(state).len() - 1
    }

    /// The states on the way to one, from the group's start on, itself included.
    fn way(&self, state: usize) -> Vec<usize> {
        let before = |state: &usize| state.checked_sub(1).map(|t| self.group.parent(t).map_or(0, |p| p + 1));
        let mut way: Vec<usize> = std::iter::successors(Some(state), before).collect();
        way.reverse();
        way
    }

    /// Exact key of a state.
    pub fn key(&self, state: usize) -> &'a [u8] {
        let turns = &self.batch.turns;
        match state.checked_sub(1) {
            Some(t) => self.batch.keys.bytes(turns.state_after[self.group.rows().start + t]),
            None => self.batch.keys.bytes(turns.state[self.group.rows().start]),
        }
    }

    /// The prompt about a state: 0 is the group's start, `t + 1` the state after its turn `t`.
    pub fn prompt(&self, state: usize, privileged: bool, how: &Condense, largest: &str, tokenizer: &dyn Tokenizer) -> String {
        let mut parts = vec![TASK.to_string(), self.story(state, true, how, tokenizer)];
        if privileged {
            let known = self.seen(state).privileged.map(str::trim).filter(|text| !text.is_empty());
            parts.push(format!("{KNOWN}\n{}", known.unwrap_or(NOTHING)));
        }
        parts.push(question(largest));
        parts.join("\n\n")
    }

    /// What led to a state, as the actor's sequence holds it: from the last observation on that began it anew, else from the
    /// task's beginning, of which the tokens before a group's start are decoded.
    ///
    /// * `outcome`: whether the state's own observation is told, beside the action that led there
    pub fn story(&self, state: usize, outcome: bool, how: &Condense, tokenizer: &dyn Tokenizer) -> String {
        let way = self.way(state);
        let mut seen: Vec<Seen<'_>> = way.iter().map(|s| self.seen(*s)).collect();
        if let (false, Some(last)) = (outcome, seen.last_mut()) {
            (last.observation, last.context) = (None, Context::Extend);
        }
        let anew = seen.iter().rposition(|seen| seen.context == Context::Restart);
        let action = |i: usize| Some(self.note(way[i] - 1).action.as_str());
        let mut happened: Vec<Happened<'_>> =
            (anew.unwrap_or(0) + 1..way.len()).map(|i| (action(i), seen[i].observation)).collect();
        let history = &self.group.about().history;
        let initial = if anew.is_none() && !history.tokens.is_empty() {
            happened.insert(0, (None, seen[0].observation));
            // Where the turns alone reach the limit, of what lies before them the beginning is left.
            let all = how.turns.is_none_or(|n| n > happened.len());
            tokenizer.decode(if all { &history.tokens } else { history.beginning() })
        } else {
            seen[anew.unwrap_or(0)].observation.unwrap_or_default().to_string()
        };
        condensed(&initial, &happened, how)
    }
}
