//! Privileged text never reaches an actor, with all that the binary links.
//!
//! `plugins/critics/tests/leak.rs` listens to every critic of its crate and plays every embedded environment. Here is what that
//! crate does not link, and that nothing is forgotten between the two.

use std::collections::BTreeSet;

use ascribe_core::batch::NonFinite;
use ascribe_core::environment::{Capabilities, TRAIN, TaskId};
use ascribe_core::ledger::Ledger;
use ascribe_core::play::{Decode, Keep, Play, Start};
use ascribe_core::registry::{Kind, plugins};
use ascribe_core::{Batch, BuildContext, BuildError, Need, Policy, PolicyConfig, Seeds, Slot, TaskSet, TaskSetConfig};
use serde::Deserialize;
use serde::de::DeserializeOwned;

// Every plugin crate is linked by the binary's library.
use ascribe as _;

/// Crates whose critics and environments are all gone through elsewhere.
const ELSEWHERE: [&str; 2] = ["ascribe-critics", "ascribe-environments"];

fn slot<T: ?Sized>(name: &str, body: &str) -> Slot<T>
where
    Slot<T>: DeserializeOwned,
{
    let body: toml::Table = toml::from_str(body).expect("TOML");
    Slot::deserialize(toml::Value::Table(toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))])))
        .expect("a plugin")
}
fn context(environment: Option<&Capabilities>) -> BuildContext<'_> {
    BuildContext { seeds: Seeds(0), device: "cpu", threads: 1, environment, nodes: BTreeSet::new(), base: ".".into() }
}
fn policy(about: &Capabilities) -> Box<dyn Policy> {
    let config: Slot<dyn PolicyConfig> = slot("transformer", "d_model = 16\nlayers = 1\nheads = 2\nmax_tokens = 4096");
    config.build(&context(Some(about))).expect("a small transformer")
}

/// Plays every way there is, with privileged text kept, and gives the batches.
fn batches(tasks: &dyn TaskSet, policy: &mut dyn Policy) -> Vec<Batch> {
    let task = |index| TaskId { split: TRAIN.into(), index };
    let starts: Vec<Start> = (0..tasks.len(TRAIN).min(2) as u32).map(task).map(Start::of).collect();
    let provides = &tasks.capabilities().provides;
    let mut out = Vec::new();
    for decode in [Decode::Free, Decode::Admissible] {
        if decode == Decode::Admissible && !provides.contains(&Need::Admissible) {
            continue;
        }
        let play = Play {
            agent: "actor",
            starts: &starts,
            members: 2,
            temperature: 1.0,
            decode,
            keep: Keep { privileged: true, snapshots: false },
            patience: None,
            stream: "leak",
            update: 0,
            seeds: Seeds(0),
        };
        out.push(play.sample(policy, tasks, &mut Ledger::default()).expect("played"));
        if !provides.contains(&Need::Expert) {
            continue;
        }
        let tokenizer = policy.tokenizer();
        out.push(play.expert(&*tokenizer, policy.max_tokens(), tasks, &mut Ledger::default()).expect("played"));
    }
    out.into_iter().map(|groups| Batch::from_groups(groups, NonFinite::Refuse).expect("well formed")).collect()
}

#[test]
fn every_critic_of_the_binary_is_listened_to() {
    for row in plugins(Kind::Critic) {
        assert_eq!(row.krate, ELSEWHERE[0], "critic `{}`: no test listens to the critics of its crate", row.name);
    }
}

#[test]
fn no_line_of_privileged_text_is_shown_by_an_environment_with_data() {
    for row in plugins(Kind::Environment).into_iter().filter(|row| !ELSEWHERE.contains(&row.krate)) {
        let config: Slot<dyn TaskSetConfig> = slot(row.name, row.example);
        let tasks = match config.build(&context(None)) {
            Ok(tasks) => tasks,
            Err(BuildError::Data(why)) => {
                println!("skipped `{}`: {why}", row.name);
                continue;
            }
            Err(e) => panic!("`{}`: {e}", row.name),
        };
        let mut policy = policy(tasks.capabilities());
        let tokenizer = policy.tokenizer();
        for batch in batches(&*tasks, &mut *policy) {
            let kept: BTreeSet<&str> = batch.notes.iter().filter_map(|note| note.privileged.as_deref()).collect();
            assert_eq!(!kept.is_empty(), tasks.capabilities().provides.contains(&Need::Privileged), "`{}`", row.name);
            // Shorter lines may be shown by chance.
            let lines = kept.iter().flat_map(|text| text.lines()).map(str::trim).filter(|line| line.split(' ').count() >= 3);
            for line in lines.collect::<BTreeSet<&str>>() {
                let spelled = tokenizer.encode(line);
                for (t, note) in batch.notes.iter().enumerate() {
                    assert!(!note.observation.contains(line), "`{}` shows a line of its privileged text: {line}", row.name);
                    // What was fed; a random policy may say anything itself.
                    let tokens = &batch.tokens[batch.turns.tokens[t].range()];
                    let read = &tokens[..batch.turns.action_start[t] as usize];
                    assert!(read.windows(spelled.len()).all(|run| run != spelled), "`{}` feeds it: {line}", row.name);
                }
            }
        }
    }
}
