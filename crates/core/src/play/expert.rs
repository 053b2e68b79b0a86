//! Episodes that the environment's scripted expert plays.

use rayon::prelude::*;

use crate::environment::TaskSet;
use crate::ledger::Ledger;
use crate::log::{Action, End, GroupLog};
use crate::play::episode::{Episode, Said};
use crate::play::{Crowd, Play, stop_token};
use crate::rollout::RolloutError;
use crate::tokenizer::Tokenizer;

impl Play<'_> {
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
        let stop = stop_token(tokenizer, &tasks.capabilities().stop)?;
        let mut episodes = Crowd::begin(self, tasks, tokenizer, limit, ledger);
        episodes.par_iter_mut().for_each(|episode| {
            while episode.is_live() {
                self.expert_turn(episode, tokenizer, limit, tasks, stop);
            }
        });
        for episode in &episodes {
            ledger.expert_tokens += episode.turns.iter().map(|t| (t.read.len() + t.action.tokens.len()) as u64).sum::<u64>();
            ledger.env_steps += episode.turns.len() as u64;
            ledger.episodes += u64::from(!episode.turns.is_empty());
        }
        Ok(Crowd::groups(self, episodes, tasks))
    }

    fn expert_turn(&self, episode: &mut Episode, tokenizer: &dyn Tokenizer, limit: usize, tasks: &dyn TaskSet, stop: u32) {
        let mut rng = self.seeds.rng(self.stream, self.draw(episode.group, episode.member, episode.turn()));
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
        let said = Said::of(&action, tokenizer, stop);
        let turn = episode.record(self, action, state, 0, &said);
        episode.act(self, turn, &said);
        let about = tasks.capabilities();
        episode.go_on(tokenizer, about.max_turns, about.max_action_tokens, limit);
    }
}
