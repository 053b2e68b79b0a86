//! Episodes side by side, driven turn by turn.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use crate::environment::{Environment, EnvironmentError, Snapshot, SnapshotKind, TaskSet};
use crate::ledger::Ledger;
use crate::log::{Context, End, GroupLog, History, LeafLog, Limit, Origin, TurnLog};
use crate::play::episode::{Episode, Said, guarded};
use crate::play::start::{Back, Deed, State};
use crate::play::{Play, stop_token};
use crate::policy::{Allowed, Continuation, Policy, Session};
use crate::rollout::RolloutError;
use crate::tokenizer::Tokenizer;
use crate::trie::Trie;

/// Where a new episode leaves another: after `turns` turns, counted from the group's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    /// The episode it leaves.
    pub episode: usize,
    /// Turns that both share.
    pub turns: usize,
}

/// What was sampled for one episode and is not carried out yet.
pub struct Candidates {
    episode: usize,
    /// One record per candidate, without what comes of it.
    turns: Vec<TurnLog>,
    said: Vec<Said>,
    sessions: Vec<Session>,
}

impl Candidates {
    /// The episode that acts.
    pub fn episode(&self) -> usize {
        self.episode
    }

    /// The candidates: what was read and sampled, without reward or next state.
    pub fn turns(&self) -> &[TurnLog] {
        &self.turns
    }
}

/// Episodes side by side. Sessions that are still open when it is dropped stay open: [`Crowd::finish`] closes them.
pub struct Crowd<'a> {
    play: &'a Play<'a>,
    tasks: &'a dyn TaskSet,
    tokenizer: Arc<dyn Tokenizer>,
    stop: u32,
    limit: usize,
    episodes: Vec<Episode>,
    pending: Vec<Candidates>,
    keep_sessions: bool,
    /// Per group its prompt and a session that read it, where they are kept.
    prompts: Vec<Option<(Session, Vec<u32>)>>,
}

/// A crowd that does not hold on to its tasks, so that others may use them between its turns: critics that judge candidates.
pub struct Resting<'a> {
    play: &'a Play<'a>,
    tokenizer: Arc<dyn Tokenizer>,
    stop: u32,
    limit: usize,
    episodes: Vec<Episode>,
    pending: Vec<Candidates>,
    keep_sessions: bool,
    prompts: Vec<Option<(Session, Vec<u32>)>>,
}

impl<'a> Resting<'a> {
    /// Opens the episodes, as [`Crowd::open`] does.
    ///
    /// # Errors
    /// As there.
    pub fn open(
        play: &'a Play<'a>,
        policy: &mut dyn Policy,
        tasks: &dyn TaskSet,
        ledger: &mut Ledger,
    ) -> Result<Self, RolloutError> {
        let crowd = Crowd::open(play, policy, tasks, ledger)?;
        let Crowd { tokenizer, stop, limit, episodes, pending, keep_sessions, prompts, .. } = crowd;
        Ok(Self { play, tokenizer, stop, limit, episodes, pending, keep_sessions, prompts })
    }

    /// Does something with the crowd. `tasks` are those that it was opened on.
    pub fn with<T>(&mut self, tasks: &dyn TaskSet, f: impl FnOnce(&mut Crowd<'_>) -> T) -> T {
        let mut crowd = Crowd {
            play: self.play,
            tasks,
            tokenizer: self.tokenizer.clone(),
            stop: self.stop,
            limit: self.limit,
            episodes: std::mem::take(&mut self.episodes),
            pending: std::mem::take(&mut self.pending),
            keep_sessions: self.keep_sessions,
            prompts: std::mem::take(&mut self.prompts),
        };
        let done = f(&mut crowd);
        (self.episodes, self.pending, self.keep_sessions, self.prompts) =
            (crowd.episodes, crowd.pending, crowd.keep_sessions, crowd.prompts);
        done
    }

    /// Closes all sessions and hands over the records, as [`Crowd::finish`] does.
    pub fn finish(self, policy: &mut dyn Policy, tasks: &dyn TaskSet, ledger: &mut Ledger) -> Vec<GroupLog> {
        let Self { play, tokenizer, stop, limit, episodes, pending, keep_sessions, prompts } = self;
        Crowd { play, tasks, tokenizer, stop, limit, episodes, pending, keep_sessions, prompts }.finish(policy, ledger)
    }
}

impl<'a> Crowd<'a> {
    /// Opens the episodes, and feeds each group's prompt once.
    ///
    /// # Errors
    /// If the policy fails or does not know the stop word. An episode that cannot be opened is a failed leaf.
    pub fn open(
        play: &'a Play<'a>,
        policy: &mut dyn Policy,
        tasks: &'a dyn TaskSet,
        ledger: &mut Ledger,
    ) -> Result<Self, RolloutError> {
        let tokenizer = policy.tokenizer();
        let stop = stop_token(&*tokenizer, &tasks.capabilities().stop)?;
        let limit = policy.max_tokens();
        let episodes = Self::begin(play, tasks, &*tokenizer, limit, ledger);
        let (pending, prompts) = (Vec::new(), Vec::new());
        let mut crowd = Self { play, tasks, tokenizer, stop, limit, episodes, pending, keep_sessions: false, prompts };
        crowd.share_prompts(policy, ledger)?;
        Ok(crowd)
    }

    /// Keeps a session that read each group's prompt, so that [`Crowd::add`] need not feed it again.
    ///
    /// # Errors
    /// If the policy fails.
    ///
    /// # Panics
    /// If a turn was played already.
    pub fn keep_prompts(&mut self, policy: &mut dyn Policy) -> Result<(), RolloutError> {
        assert!(self.episodes.iter().all(|e| e.turns.is_empty()), "prompts are kept before the first turn");
        for group in 0..self.play.starts.len() {
            let read = self.episodes.iter().find(|e| e.group == group && e.is_live() && e.session.is_some());
            let kept = read.and_then(|e| Some((e.session?, prompt(self.play, e))));
            let kept = kept.map(|(session, prompt)| policy.fork(session).map(|fork| (fork, prompt))).transpose()?;
            self.prompts.push(kept);
        }
        Ok(())
    }

    /// Keeps a session before each turn from now on, so that a branch need not feed again what it shares. Needs memory for
    /// them where the policy cannot share a past between sessions.
    ///
    /// # Panics
    /// If a turn was played already.
    pub fn keep_sessions(&mut self) {
        assert!(self.episodes.iter().all(|e| e.turns.is_empty()), "sessions are kept from the first turn on");
        self.keep_sessions = true;
    }

    /// Number of episodes, branches included.
    pub fn len(&self) -> usize {
        self.episodes.len()
    }

    /// Whether there are no episodes.
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty()
    }

    /// The group of an episode.
    pub fn group(&self, episode: usize) -> usize {
        self.episodes[episode].group
    }

    /// Whether it goes on.
    pub fn is_live(&self, episode: usize) -> bool {
        self.episodes[episode].is_live()
    }

    /// How it ended, if it has.
    pub fn end(&self, episode: usize) -> Option<&End> {
        self.episodes[episode].end.as_ref()
    }

    /// The episode it left, if it is a branch.
    pub fn branched_from(&self, episode: usize) -> Option<Branch> {
        self.episodes[episode].from.map(|(episode, turns)| Branch { episode, turns })
    }

    /// Its turns from the group's start on, those that it shares included.
    pub fn path(&self, episode: usize) -> Vec<&TurnLog> {
        let mut path: Vec<&TurnLog> = Vec::new();
        self.walk(episode, usize::MAX, &mut path);
        path
    }

    fn walk<'s>(&'s self, episode: usize, most: usize, path: &mut Vec<&'s TurnLog>) {
        if let Some((parent, shared)) = self.episodes[episode].from {
            self.walk(parent, shared.min(most), path);
        }
        let left = most.saturating_sub(path.len());
        path.extend(self.episodes[episode].turns.iter().take(left));
    }

    /// Ends an episode where it stands. One that has ended stays as it is.
    pub fn end_at(&mut self, episode: usize, end: End) {
        let episode = &mut self.episodes[episode];
        if episode.is_live() {
            episode.end = Some(end);
        }
    }

    /// Plays one turn of every live episode. `false` if there was none.
    ///
    /// # Errors
    /// If the policy fails.
    pub fn step(&mut self, policy: &mut dyn Policy, ledger: &mut Ledger) -> Result<bool, RolloutError> {
        let chosen = vec![0; self.sample(1, policy, ledger)?.len()];
        self.act(&chosen, policy, ledger);
        Ok(!chosen.is_empty())
    }

    /// Samples `n` actions for every live episode, to be carried out by [`Crowd::act`]. The first is the one that
    /// [`Crowd::step`] would carry out.
    ///
    /// # Errors
    /// If the policy fails.
    ///
    /// # Panics
    /// If what was sampled before is not carried out yet, or `n` is 0.
    pub fn sample(&mut self, n: usize, policy: &mut dyn Policy, ledger: &mut Ledger) -> Result<&[Candidates], RolloutError> {
        assert!(self.pending.is_empty() && n > 0, "each call of sample() with at least one candidate is followed by act()");
        let live: Vec<usize> = (0..self.episodes.len()).filter(|e| self.episodes[*e].is_live()).collect();
        if live.is_empty() {
            return Ok(&self.pending);
        }
        let (play, episodes) = (self.play, &self.episodes);
        let states: Vec<Vec<u8>> = live.par_iter().map(|e| episodes[*e].environment().state_key()).collect();
        let tries: Vec<Option<Arc<Trie>>> = live
            .par_iter()
            .map(|e| play.trie(episodes[*e].environment(), &*self.tokenizer, self.stop))
            .collect::<Result<_, EnvironmentError>>()?;
        for e in &live {
            let session = &mut self.episodes[*e].session;
            if session.is_none() {
                *session = Some(policy.open()?);
            }
        }
        if n > 1 || self.keep_sessions {
            // Who shares what was read has it fed once.
            self.feed(&live, policy, ledger)?;
        }
        if self.keep_sessions {
            for e in &live {
                let episode = &mut self.episodes[*e];
                let kept = (policy.fork(episode.session.expect("every live episode has a session"))?, episode.length);
                episode.kept.push(kept);
            }
        }
        let sessions = self.candidate_sessions(&live, n, policy)?;
        let streams: Vec<String> =
            (0..n).map(|c| if c == 0 { play.stream.to_string() } else { format!("{}/candidate-{c}", play.stream) }).collect();
        let max_tokens = self.tasks.capabilities().max_action_tokens;
        let mut work = Vec::with_capacity(live.len() * n);
        for (i, e) in live.iter().enumerate() {
            let episode = &self.episodes[*e];
            for (session, stream) in sessions[i].iter().zip(&streams) {
                work.push(Continuation {
                    session: *session,
                    feed: &episode.feed,
                    state_key: &states[i],
                    stop: self.stop,
                    max_tokens,
                    allowed: tries[i].as_deref().map_or(Allowed::Free, Allowed::OneOf),
                    temperature: play.temperature,
                    key: play.seeds.key(stream, play.draw(episode.group, episode.member, episode.turn())),
                });
            }
        }
        let mut actions = policy.sample(&work)?.into_iter();
        let version = policy.version();
        for ((e, state), sessions) in live.into_iter().zip(states).zip(sessions) {
            let episode = &self.episodes[e];
            ledger.fed_tokens += episode.feed.len() as u64;
            let mut candidates = Candidates { episode: e, turns: Vec::new(), said: Vec::new(), sessions };
            let restored = episode.from.is_some() || self.play.starts[episode.group].state.is_some();
            for action in actions.by_ref().take(n) {
                *(if restored { &mut ledger.branch_tokens } else { &mut ledger.actor_tokens }) += action.at.len() as u64;
                ledger.fed_tokens += (action.tokens.len() - action.at.len()) as u64;
                let said = Said::of(&action, &*self.tokenizer, self.stop);
                candidates.turns.push(episode.record(play, action, state.clone(), version, &said));
                candidates.said.push(said);
            }
            self.pending.push(candidates);
        }
        Ok(&self.pending)
    }

    /// Feeds what episodes have read and their sessions have not.
    fn feed(&mut self, episodes: &[usize], policy: &mut dyn Policy, ledger: &mut Ledger) -> Result<(), RolloutError> {
        let mut work: Vec<(Session, &[u32])> = Vec::new();
        for e in episodes {
            let episode = &mut self.episodes[*e];
            if !episode.feed.is_empty() && episode.session.is_none() {
                episode.session = Some(policy.open()?);
            }
        }
        for episode in episodes.iter().map(|e| &self.episodes[*e]).filter(|episode| !episode.feed.is_empty()) {
            work.push((episode.session.expect("just opened"), &episode.feed));
        }
        if !work.is_empty() {
            policy.prefill(&work)?;
        }
        for e in episodes {
            let episode = &mut self.episodes[*e];
            let fed = std::mem::take(&mut episode.feed).len();
            ledger.fed_tokens += fed as u64;
            episode.length += fed;
        }
        Ok(())
    }

    /// A session for each candidate of each live episode.
    fn candidate_sessions(&self, live: &[usize], n: usize, policy: &mut dyn Policy) -> Result<Vec<Vec<Session>>, RolloutError> {
        live.iter()
            .map(|e| {
                let own = self.episodes[*e].session.expect("every live episode has a session");
                let others = (1..n).map(|_| policy.fork(own));
                Ok(std::iter::once(Ok(own)).chain(others).collect::<Result<Vec<_>, _>>()?)
            })
            .collect()
    }

    /// The candidates as records of their own, one group per acting episode in the order of [`Crowd::sample`]: its path so
    /// far, then each candidate as an untried path. Critics judge them.
    pub fn candidates(&self) -> Vec<GroupLog> {
        self.pending
            .iter()
            .map(|candidates| {
                let mut group = self.empty_group(self.episodes[candidates.episode].group);
                group.seed = self.episodes[candidates.episode].seed;
                for (t, turn) in self.path(candidates.episode).into_iter().enumerate() {
                    group.turns.push(TurnLog { parent: t.checked_sub(1), ..turn.clone() });
                }
                let last = group.turns.len().checked_sub(1);
                for turn in &candidates.turns {
                    group.leaves.push(LeafLog { turn: Some(group.turns.len()), end: End::Untried, seed: group.seed });
                    group.turns.push(TurnLog { parent: last, ..turn.clone() });
                }
                group
            })
            .collect()
    }

    /// Carries out one candidate per acting episode, `chosen[i]` of the `i`-th. The others stay in the records as paths that
    /// were not tried.
    ///
    /// # Panics
    /// If there is not one choice per acting episode.
    pub fn act(&mut self, chosen: &[usize], policy: &mut dyn Policy, ledger: &mut Ledger) {
        assert_eq!(chosen.len(), self.pending.len(), "one choice per acting episode");
        let mut work: Vec<Option<(TurnLog, Said)>> = self.episodes.iter().map(|_| None).collect();
        for (candidates, chosen) in self.pending.drain(..).zip(chosen) {
            let episode = &mut self.episodes[candidates.episode];
            let all = candidates.turns.into_iter().zip(candidates.said).zip(candidates.sessions);
            for (c, ((turn, said), session)) in all.enumerate() {
                if c == *chosen {
                    episode.session = Some(session);
                    work[candidates.episode] = Some((turn, said));
                } else {
                    policy.close(session);
                    episode.untried.push((episode.turns.len(), turn));
                }
            }
            ledger.env_steps += 1;
        }
        let about = self.tasks.capabilities();
        let (play, limit, tokenizer) = (self.play, self.limit, &*self.tokenizer);
        self.episodes.par_iter_mut().zip(work).for_each(|(episode, work)| {
            if let Some((turn, said)) = work {
                episode.act(play, turn, &said);
                episode.go_on(tokenizer, about.max_turns, about.max_action_tokens, limit);
            }
        });
        for episode in &mut self.episodes {
            let restarts = episode.seen.context == Context::Restart;
            if (!episode.is_live() || restarts)
                && let Some(session) = episode.session.take()
            {
                policy.close(session);
            }
        }
    }

    /// Opens an episode per branch. It shares the turns before, meets chance of its own, and is the next member of its group.
    /// One that does not come back is a failed leaf.
    ///
    /// # Errors
    /// If the policy fails.
    ///
    /// # Panics
    /// If what was sampled is not carried out yet, or a path has fewer turns.
    pub fn branch(
        &mut self,
        branches: &[Branch],
        policy: &mut dyn Policy,
        ledger: &mut Ledger,
    ) -> Result<Range<usize>, RolloutError> {
        assert!(self.pending.is_empty(), "what was sampled is carried out before anything branches");
        let first = self.episodes.len();
        let at_tip: BTreeSet<usize> = branches
            .iter()
            .map(|branch| self.owner(*branch))
            .filter(|(owner, own)| self.episodes[*owner].is_live() && *own == self.episodes[*owner].turns.len())
            .map(|(owner, _)| owner)
            .collect();
        // A branch that leaves where an episode stands shares what that has just read.
        self.feed(&at_tip.into_iter().collect::<Vec<_>>(), policy, ledger)?;
        for branch in branches {
            let (owner, own) = self.owner(*branch);
            let member = self.episodes.iter().filter(|e| e.group == self.episodes[owner].group).count();
            let from = &self.episodes[owner];
            let mut episode = Episode::new(from.group, member, from.seed);
            episode.from = Some((owner, branch.turns));
            episode.before = from.before;
            let recorded = from.turns.get(own).map(|turn| turn.observation_text.as_str());
            match self.come_back(owner, branch.turns) {
                Err(e) => episode.end = Some(End::Failed(e.0)),
                Ok((mut environment, replayed)) => {
                    ledger.env_steps += replayed as u64;
                    let draw = self.play.draw(episode.group, member, episode.turn());
                    let chance = self.play.seeds.derive(&format!("{}/environment", self.play.stream), draw);
                    environment.reseed(chance);
                    episode.chance = Some(chance);
                    episode.environment = Some(environment);
                    episode.read(&*self.tokenizer);
                    if recorded.is_some_and(|text| text != episode.seen.text) {
                        episode.end = Some(End::Failed("a branch shows something else than the path that it leaves".into()));
                    }
                }
            }
            if episode.is_live() {
                let (session, feed, length) = self.before(owner, own, &episode, policy)?;
                (episode.session, episode.feed, episode.length) = (session, feed, length);
            }
            ledger.restores += 1;
            self.episodes.push(episode);
        }
        Ok(first..self.episodes.len())
    }

    /// The episode that made, or will make, the turn after the branch, and the place of that turn among its own.
    fn owner(&self, branch: Branch) -> (usize, usize) {
        let (mut owner, mut own) = (branch.episode, branch.turns);
        while let Some((parent, shared)) = self.episodes[owner].from {
            if branch.turns >= shared {
                own = branch.turns - shared;
                break;
            }
            owner = parent;
        }
        let episode = &self.episodes[owner];
        let made = own < episode.turns.len() || (own == episode.turns.len() && episode.is_live());
        assert!(made, "a branch leaves a path where it has a turn or will have one");
        (owner, own)
    }

    /// An environment in the state after `turns` turns of an episode's path, and how many turns were replayed for it.
    fn come_back(&self, owner: usize, turns: usize) -> Result<(Box<dyn Environment>, usize), EnvironmentError> {
        let episode = &self.episodes[owner];
        let start = &self.play.starts[episode.group];
        if turns == episode.depth() && self.tasks.capabilities().snapshot == SnapshotKind::Exact {
            let back = self.back_to_tip(owner)?;
            return Ok((back.open(self.tasks, &start.task, episode.seed)?, 0));
        }
        let back = self.back(owner, turns);
        Ok((back.open(self.tasks, &start.task, episode.seed)?, back.deeds.len()))
    }

    /// The way back to where an episode stands, by its exact snapshot.
    fn back_to_tip(&self, episode: usize) -> Result<Back, EnvironmentError> {
        let environment = self.episodes[episode].environment();
        let snapshot = guarded(|| environment.snapshot().map_err(|e| EnvironmentError(format!("a state was not saved: {e}"))))?;
        Ok(Back { snapshot: Some(Arc::new(snapshot)), ..Back::default() })
    }

    /// The way back to the state after `turns` turns of an episode's path, from the last state that was kept before it.
    fn back(&self, owner: usize, turns: usize) -> Back {
        let mut deeds: Vec<(Deed, Option<&Arc<Snapshot>>)> = Vec::new();
        self.deeds(owner, turns, &mut deeds);
        let mut back = match deeds.iter().rposition(|(_, snapshot)| snapshot.is_some()) {
            Some(last) => {
                let snapshot = deeds[last].1.cloned();
                deeds.drain(..=last);
                Back { snapshot, ..Back::default() }
            }
            None => match (&self.first(owner).begun, &self.play.starts[self.episodes[owner].group].state) {
                (Some(begun), _) => Back { snapshot: Some(begun.clone()), ..Back::default() },
                // What the start shows is verified by who opens the start.
                (None, Some(state)) => Back { shown: None, ..state.back.clone() },
                (None, None) => Back::default(),
            },
        };
        back.deeds.extend(deeds.into_iter().map(|(deed, _)| deed));
        back
    }

    /// Where a live episode stands, as a start of other groups: by its snapshot where the environment has exact ones, by all
    /// that was done where it has none.
    ///
    /// # Errors
    /// If the environment does not save its state.
    ///
    /// # Panics
    /// If the episode has ended.
    pub fn state(&self, episode: usize) -> Result<State, EnvironmentError> {
        let it = &self.episodes[episode];
        assert!(it.is_live(), "an episode that has ended stands nowhere");
        let back = if self.tasks.capabilities().snapshot == SnapshotKind::Exact {
            self.back_to_tip(episode)?
        } else {
            self.back(episode, it.depth())
        };
        let mut history = self.play.starts[it.group].state.as_ref().map_or_else(History::default, |state| state.history.clone());
        self.path(episode).into_iter().for_each(|turn| history.push(turn));
        Ok(State {
            seed: it.seed,
            back: Back { shown: Some(it.seen.text.clone()), ..back },
            turns: it.turn(),
            history,
            origin: Origin::default(),
        })
    }

    /// The episode at the group's start that a path begins with.
    fn first(&self, mut episode: usize) -> &Episode {
        while let Some((parent, _)) = self.episodes[episode].from {
            episode = parent;
        }
        &self.episodes[episode]
    }

    /// The deeds of the first `most` turns of a path, each with the chance that it met and the state kept after it.
    fn deeds<'s>(&'s self, episode: usize, most: usize, deeds: &mut Vec<(Deed, Option<&'s Arc<Snapshot>>)>) {
        let episode = &self.episodes[episode];
        if let Some((parent, shared)) = episode.from {
            self.deeds(parent, shared.min(most), deeds);
        }
        let left = most.saturating_sub(deeds.len());
        for (i, turn) in episode.turns.iter().take(left).enumerate() {
            let reseed = episode.chance.filter(|_| i == 0);
            deeds.push((Deed { reseed, ..Deed::of(turn) }, turn.snapshot.as_ref()));
        }
    }

    /// Session, what it was not fed yet, and its length, at a branch.
    fn before(
        &self,
        owner: usize,
        own: usize,
        branch: &Episode,
        policy: &mut dyn Policy,
    ) -> Result<(Option<Session>, Vec<u32>, usize), RolloutError> {
        let episode = &self.episodes[owner];
        if own == episode.turns.len() {
            // The branch leaves where the episode stands.
            let session = episode.session.map(|session| policy.fork(session)).transpose()?;
            return Ok((session, episode.feed.clone(), episode.length));
        }
        if let Some((session, length)) = episode.kept.get(own) {
            return Ok((Some(policy.fork(*session)?), Vec::new(), *length));
        }
        // Nothing was kept: all is fed anew that was read and said since the sequence last began anew.
        let mut feed: Vec<u32> = Vec::new();
        if branch.seen.context != Context::Restart {
            let mut path: Vec<&TurnLog> = Vec::new();
            self.walk(owner, branch.depth(), &mut path);
            let anew = path.iter().rposition(|turn| turn.context == Context::Restart);
            if anew.is_none()
                && let Some(state) = &self.play.starts[episode.group].state
            {
                feed.extend(&state.history.tokens);
            }
            for turn in &path[anew.unwrap_or(0)..] {
                feed.extend(&turn.read);
                feed.extend(&turn.action.tokens);
            }
        }
        feed.extend(&branch.read);
        Ok((None, feed, 0))
    }

    /// Closes all sessions and hands over the records: a group per start, a leaf per episode, then one per candidate of it
    /// that was not tried. An episode that still goes on ends here.
    pub fn finish(mut self, policy: &mut dyn Policy, ledger: &mut Ledger) -> Vec<GroupLog> {
        for candidates in self.pending.drain(..) {
            candidates.sessions.into_iter().for_each(|session| policy.close(session));
        }
        for episode in &mut self.episodes {
            episode.session.take().into_iter().for_each(|session| policy.close(session));
            episode.kept.drain(..).for_each(|(session, _)| policy.close(session));
        }
        self.prompts.drain(..).flatten().for_each(|(session, _)| policy.close(session));
        ledger.episodes += self.episodes.iter().filter(|e| !e.turns.is_empty()).count() as u64;
        Self::groups(self.play, self.episodes, self.tasks)
    }

    /// Opens an episode per start and member, and lets it read.
    pub(super) fn begin(
        play: &Play<'_>,
        tasks: &dyn TaskSet,
        tokenizer: &dyn Tokenizer,
        limit: usize,
        ledger: &mut Ledger,
    ) -> Vec<Episode> {
        let places: Vec<(usize, usize)> =
            (0..play.starts.len()).flat_map(|group| (0..play.members.max(1)).map(move |member| (group, member))).collect();
        Self::at_start(play, tasks, &places, tokenizer, limit, ledger)
    }

    /// Opens an episode at each group's start, for the members named as (group, member), and lets it read.
    fn at_start(
        play: &Play<'_>,
        tasks: &dyn TaskSet,
        places: &[(usize, usize)],
        tokenizer: &dyn Tokenizer,
        limit: usize,
        ledger: &mut Ledger,
    ) -> Vec<Episode> {
        let about = tasks.capabilities();
        for state in places.iter().filter_map(|(group, _)| play.starts[*group].state.as_ref()) {
            ledger.restores += 1;
            ledger.env_steps += state.back.deeds.len() as u64;
        }
        places
            .par_iter()
            .map(|&(group, member)| {
                let start = &play.starts[group];
                let stream = format!("{}/environment", play.stream);
                // One seed per group: its members share a start.
                let seed = start.state.as_ref().map_or_else(|| play.seeds.derive(&stream, play.draw(group, 0, 0)), |s| s.seed);
                let mut episode = Episode::new(group, member, seed);
                let opened = match &start.state {
                    None => guarded(|| tasks.open(&start.task, seed)),
                    Some(state) => {
                        episode.before = state.turns;
                        state.back.open(tasks, &start.task, seed).map(|mut environment| {
                            let chance = play.seeds.derive(&stream, play.draw(group, member, state.turns));
                            environment.reseed(chance);
                            episode.chance = Some(chance);
                            environment
                        })
                    }
                };
                match opened {
                    Ok(environment) => episode.environment = Some(environment),
                    Err(e) => {
                        episode.end = Some(End::Failed(e.0));
                        return episode;
                    }
                }
                if play.keep.snapshots {
                    episode.begun = episode.environment().snapshot().ok().map(Arc::new);
                }
                episode.read(tokenizer);
                episode.feed = prompt(play, &episode);
                if episode.before >= about.max_turns {
                    episode.end = Some(End::Failed(format!("it would begin at the limit of {} turns", about.max_turns)));
                } else if episode.feed.len() + about.max_action_tokens > limit {
                    episode.end = Some(End::Failed(format!(
                        "its first prompt has {} tokens; with an action of {} it does not fit the policy's {limit}",
                        episode.feed.len(),
                        about.max_action_tokens,
                    )));
                }
                episode
            })
            .collect()
    }

    /// Opens another member of each of these groups at the group's start: the one that would be there if the play had more
    /// members. Each reads the prompt that [`Crowd::keep_prompts`] kept, or feeds its own.
    ///
    /// # Errors
    /// If the policy fails. A member that cannot be opened is a failed leaf.
    ///
    /// # Panics
    /// If what was sampled is not carried out yet.
    pub fn add(&mut self, groups: &[usize], policy: &mut dyn Policy, ledger: &mut Ledger) -> Result<Range<usize>, RolloutError> {
        assert!(self.pending.is_empty(), "what was sampled is carried out before a member is added");
        let first = self.episodes.len();
        let mut places: Vec<(usize, usize)> = Vec::new();
        for group in groups {
            let there = self.episodes.iter().filter(|e| e.group == *group).count();
            let more = places.iter().filter(|(g, _)| g == group).count();
            places.push((*group, there + more));
        }
        let episodes = Self::at_start(self.play, self.tasks, &places, &*self.tokenizer, self.limit, ledger);
        for mut episode in episodes {
            if episode.is_live()
                && let Some(Some((session, prompt))) = self.prompts.get(episode.group)
                && *prompt == episode.feed
            {
                episode.session = Some(policy.fork(*session)?);
                episode.length = std::mem::take(&mut episode.feed).len();
            }
            self.episodes.push(episode);
        }
        Ok(first..self.episodes.len())
    }

    /// Feeds each group's prompt once, and forks its members from there.
    fn share_prompts(&mut self, policy: &mut dyn Policy, ledger: &mut Ledger) -> Result<(), RolloutError> {
        let episodes = &mut self.episodes;
        let live = |e: &Episode| e.is_live() && !e.feed.is_empty();
        let leads: Vec<usize> =
            (0..self.play.starts.len()).filter_map(|g| episodes.iter().position(|e| e.group == g && live(e))).collect();
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

    fn empty_group(&self, group: usize) -> GroupLog {
        empty_group(self.play, group, self.tasks)
    }

    /// The records: each episode's own turns in the order of the episodes, so that parents come before children.
    pub(super) fn groups(play: &Play<'_>, episodes: Vec<Episode>, tasks: &dyn TaskSet) -> Vec<GroupLog> {
        let mut groups: Vec<GroupLog> = (0..play.starts.len()).map(|group| empty_group(play, group, tasks)).collect();
        // Per episode, the places of all turns of its path.
        let mut places: Vec<Vec<usize>> = Vec::with_capacity(episodes.len());
        for mut episode in episodes {
            episode.show_end(play.keep.privileged);
            let group = &mut groups[episode.group];
            group.seed = episode.seed;
            if group.snapshot.is_none() {
                group.snapshot = episode.begun;
            }
            let mut path: Vec<usize> = episode.from.map_or_else(Vec::new, |(from, shared)| places[from][..shared].to_vec());
            let shared = path.len();
            for mut turn in episode.turns {
                turn.parent = path.last().copied();
                path.push(group.turns.len());
                group.turns.push(turn);
            }
            let own = path.len() > shared;
            let last = own.then(|| path[path.len() - 1]);
            // An episode that ends before its first turn can only have failed.
            let end = episode.end.unwrap_or(End::Truncated(Limit::Turns));
            let end = if !own && end.trains() { End::Failed("it ended before its first turn".into()) } else { end };
            group.leaves.push(LeafLog { turn: last, end, seed: episode.seed });
            for (before, mut turn) in episode.untried {
                turn.parent = (shared + before).checked_sub(1).map(|at| path[at]);
                group.leaves.push(LeafLog { turn: Some(group.turns.len()), end: End::Untried, seed: episode.seed });
                group.turns.push(turn);
            }
            places.push(path);
        }
        groups
    }
}

/// What an episode at its group's start has to read: what was read and said before, where that goes on, and what it sees.
fn prompt(play: &Play<'_>, episode: &Episode) -> Vec<u32> {
    let history = play.starts[episode.group].state.as_ref().map(|state| &state.history.tokens);
    let goes_on = history.filter(|_| episode.seen.context == Context::Extend);
    goes_on.into_iter().flatten().chain(&episode.read).copied().collect()
}

fn empty_group(play: &Play<'_>, group: usize, tasks: &dyn TaskSet) -> GroupLog {
    let start = &play.starts[group];
    let mut log = GroupLog {
        task: start.task.clone(),
        task_name: tasks.name(&start.task),
        fingerprint: tasks.fingerprint(),
        ..GroupLog::default()
    };
    if let Some(state) = &start.state {
        log.origin = state.origin.clone();
        log.before = state.turns;
        log.history = state.history.clone();
    }
    log
}
