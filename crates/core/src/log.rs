//! What a rollout writes down: owned records, one group at a time, before they become columns of a batch.
//!
//! Episodes are recorded in parallel and in any order; a [`crate::Batch`] is built from the finished logs once per
//! update, in group order.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::environment::{Snapshot, TaskId};
use crate::trie::Trie;

/// How what the agent read joins its token sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// Appended to all it has seen.
    #[default]
    Extend,
    /// The sequence begins anew with it: memory windows, compaction, rewritten templates.
    Restart,
}

/// Why sampling of an action stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The stop token was sampled, or the one allowed action was complete.
    #[default]
    Complete,
    /// The token limit came first: cut, which is not a parse error.
    Length,
}

/// What the environment made of an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    /// Understood and carried out.
    #[default]
    Valid,
    /// Understood, but not possible there.
    Refused,
    /// Not understood.
    Malformed,
    /// Cut by the token limit before it was complete.
    Cut,
}

/// Which limit ended an episode that was not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Turns of the episode.
    Turns,
    /// Tokens of the episode.
    Tokens,
    /// The policy's context window.
    Context,
    /// Time of a step.
    Time,
}

/// How a path ended. Decides, once, what the future is worth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The environment says it is over: the future is worth 0.
    Terminated {
        /// Whether the task was solved.
        success: bool,
    },
    /// Cut off: the future is worth the value of the last state.
    Truncated(Limit),
    /// The end of a macro step: bootstraps like a truncation, and can be continued.
    MacroBoundary,
    /// Sampled, not executed (best-of-N, preference, replay): it has no return.
    Untried,
    /// Something broke. Never trains and never moves a baseline.
    Failed(String),
}

impl End {
    /// Whether the path may train.
    pub fn trains(&self) -> bool {
        !matches!(self, End::Failed(_))
    }

    /// Whether the value of the last state stands for the future.
    pub fn bootstraps(&self) -> bool {
        matches!(self, End::Truncated(_) | End::MacroBoundary)
    }

    /// Whether the environment declared the task solved.
    pub fn success(&self) -> bool {
        matches!(self, End::Terminated { success: true })
    }
}

/// Tokens an agent acted with.
///
/// A token that had no alternative (the rest of the only allowed action) is *fed*: it stands in `tokens` but not in
/// `at`, so no coefficient can reach it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// All tokens of the action, sampled and fed, in order.
    pub tokens: Vec<u32>,
    /// Offsets into `tokens` of the sampled ones, ascending.
    pub at: Vec<u32>,
    /// Log-probability of each sampled token under the distribution drawn from (tempered, on its support), `[at]`.
    /// Absent where the policy did not draw it: an expert's tokens have no behaviour log-probability.
    pub logprob: Option<Vec<f32>>,
    /// Entropy in nats of the distribution drawn from, `[at]`.
    pub entropy: Option<Vec<f32>>,
    /// Token ids that were allowed at each sampled token, ascending; `None` where all were, `[at]`.
    pub support: Vec<Option<Arc<[u32]>>>,
    /// Temperature of the distribution drawn from; 0 is greedy.
    pub temperature: f32,
    /// Why it ended.
    pub stop: Stop,
}

impl Action {
    /// Tokens that somebody else chose (an expert, a script), all of which had alternatives.
    pub fn given(tokens: Vec<u32>) -> Self {
        let n = tokens.len();
        Self { at: (0..n as u32).collect(), support: vec![None; n], tokens, temperature: 1.0, ..Self::default() }
    }

    /// Tokens that somebody else chose among the sequences of `allowed`: a token without an alternative is fed, the
    /// others carry their support. `None` if the tokens are not one of the sequences.
    pub fn given_among(tokens: Vec<u32>, allowed: &Trie) -> Option<Self> {
        let mut action = Self { temperature: 1.0, ..Self::default() };
        let mut node = allowed.root();
        for (i, token) in (0u32..).zip(&tokens) {
            let support = allowed.allowed(node);
            node = allowed.step(node, *token)?;
            if support.len() > 1 {
                action.at.push(i);
                action.support.push(Some(support));
            }
        }
        action.tokens = tokens;
        allowed.allowed(node).is_empty().then_some(action)
    }
}

/// A named part of an action, e.g. `thought` or `call`: a range of offsets into its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSpan {
    /// What the part is called.
    pub name: String,
    /// First token.
    pub start: u32,
    /// One past the last token.
    pub end: u32,
}

/// What a state shows in which nobody acted. It is for critics alone and enters no sequence of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The observation, as text.
    pub observation: String,
    /// How it would have joined the sequence.
    pub context: Context,
    /// Privileged text, where asked for.
    pub privileged: Option<String>,
}

/// One turn: what an agent read, what it did, what came back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnLog {
    /// The turn it continues, an index into the group's turns; `None` at the start.
    pub parent: Option<usize>,
    /// The agent that acted (its policy node).
    pub agent: Arc<str>,
    /// How `read` joins the sequence.
    pub context: Context,
    /// What it read since its last action.
    pub read: Vec<u32>,
    /// What it did.
    pub action: Action,
    /// What the environment paid for it.
    pub reward: f32,
    /// Rewards that belong to single tokens, as (offset into the action's tokens, amount). They count as reward of
    /// the turn too. A reward on a token that was not sampled is refused.
    pub token_rewards: Vec<(u32, f32)>,
    /// What the environment made of it.
    pub validity: Validity,
    /// Key of what it saw before acting.
    pub observation: Vec<u8>,
    /// Exact key of the state before acting.
    pub state: Vec<u8>,
    /// Exact key of the state after acting.
    pub state_after: Vec<u8>,
    /// Key of the action: equal actions in equal states are equal transitions.
    pub action_key: Vec<u8>,
    /// What it read, as text (for critics, parsers and viewers; it never re-enters a sequence).
    pub observation_text: String,
    /// What it did, as text.
    pub action_text: String,
    /// Named parts of the action.
    pub spans: Vec<NamedSpan>,
    /// Columns that the environment filled for this turn, e.g. `exploit`.
    pub signals: Vec<(String, f32)>,
    /// The state after acting, where asked for.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Privileged text about the state before acting, where asked for. Only critics may read it.
    pub privileged: Option<String>,
    /// What the state after acting shows, where a path was cut there: nobody acted in it, so no turn has read it.
    pub shown_after: Option<Box<Shown>>,
    /// Version of the policy that acted.
    pub policy_version: u64,
}

/// How a path ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeafLog {
    /// Its last turn; `None` only if it failed before its first.
    pub turn: Option<usize>,
    /// How it ended.
    pub end: End,
    /// Seed of the episode.
    pub seed: u64,
}

/// Where a group's start came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The start of a task.
    #[default]
    Root,
    /// A stored state, restored.
    Restored {
        /// Updates since it was stored.
        age: u64,
    },
    /// A stored group, played again.
    Replayed {
        /// Updates since it was played.
        age: u64,
    },
}

/// Turns before the group's start: context, never trained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The sequence that the group's first turns go on from: all tokens, fed and sampled, since it last began anew.
    pub tokens: Vec<u32>,
    /// The turns themselves from the task's beginning on, kept for prefix ratios; none where nobody asks for those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<FrozenTurn>,
}

impl History {
    /// What was read in the sequence before its first action; all of it, where the turns are not kept.
    pub fn beginning(&self) -> &[u32] {
        let anew = self.turns.iter().rposition(|turn| turn.context == Context::Restart).unwrap_or(0);
        self.turns.get(anew).map_or(&self.tokens[..], |first| &self.tokens[..first.read.len()])
    }

    /// The history after one more turn.
    pub fn push(&mut self, turn: &TurnLog) {
        if turn.context == Context::Restart {
            self.tokens.clear();
        }
        self.tokens.extend_from_slice(&turn.read);
        self.tokens.extend_from_slice(&turn.action.tokens);
        self.turns.push(FrozenTurn {
            agent: turn.agent.clone(),
            context: turn.context,
            read: turn.read.clone(),
            action: turn.action.clone(),
            state: turn.state.clone(),
        });
    }
}

/// What a policy needs to score an action again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FrozenTurn {
    /// The agent that acted (its policy node).
    pub agent: Arc<str>,
    /// How `read` joins the sequence.
    pub context: Context,
    /// What it read since its last action.
    pub read: Vec<u32>,
    /// What it did, with the log-probabilities of then.
    pub action: Action,
    /// Exact key of the state before acting.
    pub state: Vec<u8>,
}

impl From<&FrozenTurn> for TurnLog {
    fn from(turn: &FrozenTurn) -> Self {
        let FrozenTurn { agent, context, read, action, state } = turn.clone();
        Self { agent, context, read, action, state, ..Self::default() }
    }
}

/// Paths that share a task and a start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupLog {
    /// The task.
    pub task: TaskId,
    /// What the task is called.
    pub task_name: String,
    /// Seed of the start.
    pub seed: u64,
    /// Fingerprint of the environment: equal for all members, or the group is refused.
    pub fingerprint: String,
    /// Where the start came from.
    pub origin: Origin,
    /// The start, where it was kept.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Number of turns between the task's beginning and the start: limits count them.
    pub before: usize,
    /// Turns before the start.
    pub history: History,
    /// The forest of turns, parents before children.
    pub turns: Vec<TurnLog>,
    /// How each path ended.
    pub leaves: Vec<LeafLog>,
}
