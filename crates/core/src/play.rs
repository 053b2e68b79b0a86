//! Playing episodes: the one place where policies and environments meet.
//!
//! Episodes run in lock-step: one policy batch per turn over all that are live, environments in parallel. Every random
//! number is keyed by (update, group, member, turn), so results depend neither on threads nor on who ends first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rayon::prelude::*;

use crate::environment::{ActionText, Environment, EnvironmentError, Observation, Step, TaskId, TaskSet};
use crate::ledger::Ledger;
use crate::log::{Action, Context, End, GroupLog, LeafLog, Limit, Origin, Stop, TurnLog, Validity};
use crate::policy::{Allowed, Continuation, Policy, Session};
use crate::rollout::RolloutError;
use crate::seed::{Draw, Seeds};
use crate::tokenizer::Tokenizer;
use crate::trie::Trie;

/// What actions may be made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Decode {
    /// Any tokens.
    #[default]
    Free,
    /// One of the environment's admissible actions. The support is recorded with every token.
    Admissible,
}

/// What is kept of every turn beside what training needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Privileged text before each turn.
    pub privileged: bool,
    /// A snapshot after each turn.
    pub snapshots: bool,
}

/// What to play.
#[derive(Clone, Debug)]
pub struct Play<'a> {
    /// Name of the policy node that acts.
    pub agent: &'a str,
    /// The tasks, one group each.
    pub tasks: &'a [TaskId],
    /// Episodes per task, at least 1.
    pub members: usize,
    /// Temperature; 0 is greedy.
    pub temperature: f32,
    /// What actions may be made of.
    pub decode: Decode,
    /// What is kept.
    pub keep: Keep,
    /// Stream of random numbers, e.g. `rollout` or `evaluate`.
    pub stream: &'a str,
    /// Update that the random numbers are keyed by.
    pub update: u32,
    /// The run's seed.
    pub seeds: Seeds,
}

/// An episode being played.
struct Episode {
    group: usize,
    member: usize,
    seed: u64,
    environment: Option<Box<dyn Environment>>,
    session: Option<Session>,
    /// Tokens of what the agent read last.
    read: Vec<u32>,
    /// Those of them that its session was not fed yet.
    feed: Vec<u32>,
    /// Tokens in its session.
    length: usize,
    seen: Observation,
    turns: Vec<TurnLog>,
    end: Option<End>,
}

impl Play<'_> {
    /// Plays with the policy.
    ///
    /// # Errors
    /// If the policy fails. An episode that breaks is a failed leaf of its group.
    pub fn sample(
        &self,
        policy: &mut dyn Policy,
        tasks: &dyn TaskSet,
        ledger: &mut Ledger,
    ) -> Result<Vec<GroupLog>, RolloutError> {
        let tokenizer = policy.tokenizer();
        let about = tasks.capabilities();
        let stop = stop_token(&*tokenizer, &about.stop)?;
        let limit = policy.max_tokens();
        let mut episodes = self.open(tasks, &*tokenizer, limit);
        self.share_prompts(policy, &mut episodes, ledger)?;
        for turn in 0..about.max_turns {
            let live: Vec<usize> = (0..episodes.len()).filter(|e| episodes[*e].end.is_none()).collect();
            if live.is_empty() {
                break;
            }
            let states: Vec<Vec<u8>> = live.par_iter().map(|e| episodes[*e].environment().state_key()).collect();
            let tries: Vec<Option<Trie>> = live
                .par_iter()
                .map(|e| self.trie(episodes[*e].environment(), &*tokenizer, stop))
                .collect::<Result<_, EnvironmentError>>()?;
            for e in &live {
                if episodes[*e].session.is_none() {
                    episodes[*e].session = Some(policy.open()?);
                }
            }
            let work: Vec<Continuation<'_>> = live
                .iter()
                .zip(&states)
                .zip(&tries)
                .map(|((e, state_key), trie)| {
                    let episode = &episodes[*e];
                    Continuation {
                        session: episode.session.expect("every live episode has a session"),
                        feed: &episode.feed,
                        state_key,
                        stop,
                        max_tokens: about.max_action_tokens,
                        allowed: trie.as_ref().map_or(Allowed::Free, Allowed::OneOf),
                        temperature: self.temperature,
                        key: self.seeds.key(
                            self.stream,
                            Draw {
                                update: self.update,
                                group: episode.group as u32,
                                member: episode.member as u32,
                                turn: turn as u32,
                            },
                        ),
                    }
                })
                .collect();
            let actions = policy.sample(&work)?;
            let version = policy.version();
            for (e, action) in live.iter().zip(&actions) {
                let fed = episodes[*e].feed.len() + action.tokens.len() - action.at.len();
                ledger.actor_tokens += action.at.len() as u64;
                ledger.fed_tokens += fed as u64;
                ledger.env_steps += 1;
            }
            let mut acting: Vec<(&mut Episode, (Action, Vec<u8>))> =
                episodes.iter_mut().filter(|e| e.end.is_none()).zip(actions.into_iter().zip(states)).collect();
            acting.par_iter_mut().for_each(|(episode, (action, state))| {
                let (action, state) = (std::mem::take(action), std::mem::take(state));
                episode.act(self, action, state, version, &*tokenizer, stop);
                if turn + 1 == about.max_turns && episode.end.is_none() {
                    episode.end = Some(End::Truncated(Limit::Turns));
                }
                episode.go_on(&*tokenizer, about.max_action_tokens, limit);
            });
            for episode in &mut episodes {
                let restarts = episode.seen.context == Context::Restart;
                if (episode.end.is_some() || restarts)
                    && let Some(session) = episode.session.take()
                {
                    policy.close(session);
                }
            }
        }
        ledger.episodes += episodes.iter().filter(|e| !e.turns.is_empty()).count() as u64;
        Ok(self.groups(episodes, tasks))
    }

    /// Plays with each environment's scripted expert, for a policy whose sequences have at most `limit` tokens. The
    /// expert's tokens have no behaviour log-probability.
    ///
    /// # Errors
    /// If the tokenizer does not know the stop word.
    pub fn expert(
        &self,
        tokenizer: &dyn Tokenizer,
        limit: usize,
        tasks: &dyn TaskSet,
        ledger: &mut Ledger,
    ) -> Result<Vec<GroupLog>, RolloutError> {
        let about = tasks.capabilities();
        let stop = stop_token(tokenizer, &about.stop)?;
        let mut episodes = self.open(tasks, tokenizer, limit);
        episodes.par_iter_mut().for_each(|episode| {
            for turn in 0..about.max_turns {
                if episode.end.is_some() {
                    return;
                }
                let draw =
                    Draw { update: self.update, group: episode.group as u32, member: episode.member as u32, turn: turn as u32 };
                let mut rng = self.seeds.rng(self.stream, draw);
                let (state, said) = {
                    let environment = episode.environment_mut();
                    (environment.state_key(), environment.expert(&mut rng))
                };
                let Some(said) = said else {
                    episode.end = Some(End::Failed("the environment's expert does not know what to do".into()));
                    return;
                };
                let mut tokens = tokenizer.encode(&said);
                tokens.push(stop);
                let action = match self.trie(episode.environment(), tokenizer, stop) {
                    Ok(None) => Some(Action::given(tokens)),
                    Ok(Some(trie)) => Action::given_among(tokens, &trie),
                    Err(_) => None,
                };
                let Some(action) = action else {
                    episode.end = Some(End::Failed(format!("the expert's action `{said}` is not admissible")));
                    return;
                };
                episode.act(self, action, state, 0, tokenizer, stop);
                if turn + 1 == about.max_turns && episode.end.is_none() {
                    episode.end = Some(End::Truncated(Limit::Turns));
                }
                episode.go_on(tokenizer, about.max_action_tokens, limit);
            }
        });
        for episode in &episodes {
            ledger.expert_tokens += episode.turns.iter().map(|t| (t.read.len() + t.action.tokens.len()) as u64).sum::<u64>();
            ledger.env_steps += episode.turns.len() as u64;
            ledger.episodes += u64::from(!episode.turns.is_empty());
        }
        Ok(self.groups(episodes, tasks))
    }

    fn open(&self, tasks: &dyn TaskSet, tokenizer: &dyn Tokenizer, limit: usize) -> Vec<Episode> {
        let longest = tasks.capabilities().max_action_tokens;
        let places: Vec<(usize, usize)> =
            (0..self.tasks.len()).flat_map(|g| (0..self.members.max(1)).map(move |m| (g, m))).collect();
        places
            .into_par_iter()
            .map(|(group, member)| {
                // One seed per group: its members share a start.
                let seed = self.seeds.derive(
                    &format!("{}/environment", self.stream),
                    Draw { update: self.update, group: group as u32, ..Draw::default() },
                );
                let mut episode = Episode {
                    group,
                    member,
                    seed,
                    environment: None,
                    session: None,
                    read: Vec::new(),
                    feed: Vec::new(),
                    length: 0,
                    seen: Observation::default(),
                    turns: Vec::new(),
                    end: None,
                };
                match guarded(|| tasks.open(&self.tasks[group], seed)) {
                    Ok(environment) => {
                        episode.environment = Some(environment);
                        episode.read(tokenizer);
                        if episode.feed.len() + longest > limit {
                            episode.end = Some(End::Failed(format!(
                                "its first prompt has {} tokens; with an action of {longest} it does not fit the policy's {limit}",
                                episode.feed.len()
                            )));
                        }
                    }
                    Err(e) => episode.end = Some(End::Failed(e.0)),
                }
                episode
            })
            .collect()
    }

    /// Feeds each group's prompt once, and forks its members from there.
    fn share_prompts(&self, policy: &mut dyn Policy, episodes: &mut [Episode], ledger: &mut Ledger) -> Result<(), RolloutError> {
        let live = |e: &Episode| e.end.is_none() && !e.feed.is_empty();
        let leads: Vec<usize> =
            (0..self.tasks.len()).filter_map(|g| episodes.iter().position(|e| e.group == g && live(e))).collect();
        for lead in &leads {
            episodes[*lead].session = Some(policy.open()?);
        }
        let work: Vec<(Session, &[u32])> =
            leads.iter().map(|lead| (episodes[*lead].session.expect("just opened"), &episodes[*lead].feed[..])).collect();
        policy.prefill(&work)?;
        ledger.fed_tokens += work.iter().map(|(_, feed)| feed.len() as u64).sum::<u64>();
        for lead in leads {
            let prompt = std::mem::take(&mut episodes[lead].feed);
            episodes[lead].length = prompt.len();
            let session = episodes[lead].session.expect("just opened");
            let group = episodes[lead].group;
            for episode in episodes.iter_mut().filter(|e| e.group == group && live(e) && e.session.is_none()) {
                if episode.feed == prompt {
                    episode.session = Some(policy.fork(session)?);
                    episode.length = prompt.len();
                    episode.feed = Vec::new();
                }
            }
        }
        Ok(())
    }

    fn trie(
        &self,
        environment: &dyn Environment,
        tokenizer: &dyn Tokenizer,
        stop: u32,
    ) -> Result<Option<Trie>, EnvironmentError> {
        if self.decode == Decode::Free {
            return Ok(None);
        }
        let actions = environment.admissible().filter(|actions| !actions.is_empty()).ok_or_else(|| {
            EnvironmentError("`decode = \"admissible\"` needs an environment that lists admissible actions".into())
        })?;
        Ok(Some(Trie::new(actions.iter().map(|action| {
            let mut tokens = tokenizer.encode(action);
            tokens.push(stop);
            tokens
        }))))
    }

    fn groups(&self, episodes: Vec<Episode>, tasks: &dyn TaskSet) -> Vec<GroupLog> {
        let fingerprint = tasks.fingerprint();
        let mut groups: Vec<GroupLog> = self
            .tasks
            .iter()
            .map(|task| GroupLog {
                task: task.clone(),
                task_name: tasks.name(task),
                fingerprint: fingerprint.clone(),
                origin: Origin::Root,
                ..GroupLog::default()
            })
            .collect();
        for episode in episodes {
            let group = &mut groups[episode.group];
            group.seed = episode.seed;
            let first = group.turns.len();
            let n = episode.turns.len();
            group.turns.extend(episode.turns.into_iter().enumerate().map(|(t, mut turn)| {
                turn.parent = (t > 0).then(|| first + t - 1);
                turn
            }));
            let turn = (n > 0).then(|| first + n - 1);
            // An episode that ends before its first turn can only have failed.
            let end = episode.end.unwrap_or(End::Truncated(Limit::Turns));
            let end = if turn.is_none() && end.trains() { End::Failed("it ended before its first turn".into()) } else { end };
            group.leaves.push(LeafLog { turn, end, seed: episode.seed });
        }
        groups
    }
}

impl Episode {
    fn environment(&self) -> &dyn Environment {
        &**self.environment.as_ref().expect("a live episode has an environment")
    }
    fn environment_mut(&mut self) -> &mut dyn Environment {
        &mut **self.environment.as_mut().expect("a live episode has an environment")
    }

    /// Reads what the environment shows.
    fn read(&mut self, tokenizer: &dyn Tokenizer) {
        self.seen = self.environment().observe();
        self.read = tokenizer.encode(&self.seen.text);
        self.feed.clone_from(&self.read);
        if self.seen.context == Context::Restart {
            self.length = 0;
        }
    }

    /// Reads on after a turn, if it is not over and what comes still fits the policy.
    fn go_on(&mut self, tokenizer: &dyn Tokenizer, longest_action: usize, limit: usize) {
        if self.end.is_none() {
            self.read(tokenizer);
            if self.length + self.feed.len() + longest_action > limit {
                self.end = Some(End::Truncated(Limit::Context));
            }
        }
    }

    /// Carries out an action and writes the turn down.
    fn act(&mut self, play: &Play<'_>, action: Action, state: Vec<u8>, version: u64, tokenizer: &dyn Tokenizer, stop: u32) {
        let said = action.tokens.strip_suffix(&[stop]).unwrap_or(&action.tokens);
        let text = tokenizer.decode(said);
        let complete = action.stop == Stop::Complete;
        let privileged = if play.keep.privileged { self.environment().privileged() } else { None };
        let environment = self.environment_mut();
        let stepped = guarded(|| environment.step(ActionText { text: &text, complete }));
        let step = stepped.unwrap_or_else(|e| Step { end: Some(End::Failed(e.0)), ..Step::default() });
        let broken = matches!(step.end, Some(End::Failed(_)));
        let environment = self.environment();
        let (state_after, snapshot) = if broken {
            // What broke cannot be asked what state it is in.
            (Vec::new(), None)
        } else {
            (environment.state_key(), play.keep.snapshots.then(|| environment.snapshot().ok().map(Arc::new)).flatten())
        };
        self.length += self.feed.len() + action.tokens.len();
        self.turns.push(TurnLog {
            parent: None,
            agent: play.agent.into(),
            context: self.seen.context,
            read: std::mem::take(&mut self.read),
            reward: step.reward,
            validity: if complete { step.validity } else { Validity::Cut },
            observation: self.seen.key.clone(),
            state,
            state_after,
            action_key: text.clone().into_bytes(),
            observation_text: std::mem::take(&mut self.seen.text),
            action_text: text,
            signals: step.signals,
            snapshot,
            privileged,
            policy_version: version,
            action,
            ..TurnLog::default()
        });
        self.end = step.end;
    }
}

fn stop_token(tokenizer: &dyn Tokenizer, stop: &str) -> Result<u32, EnvironmentError> {
    tokenizer
        .token(stop)
        .ok_or_else(|| EnvironmentError(format!("the tokenizer has no token for the environment's stop word `{stop}`")))
}

/// Runs environment code; what panics is an error like any other, and ends one episode.
fn guarded<T>(f: impl FnOnce() -> Result<T, EnvironmentError>) -> Result<T, EnvironmentError> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().map(|s| (*s).to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
        Err(EnvironmentError(format!("the environment panicked: {}", what.unwrap_or_else(|| "no message".into()))))
    })
}
