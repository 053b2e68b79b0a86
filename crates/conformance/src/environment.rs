//! Checks of environments.
//!
//! Tasks of every split are walked at random, several times each: among admissible actions, with the expert, with words of the
//! vocabulary, with text that means nothing, and with actions that were cut. A walk is a task, a seed and what was said, so
//! every finding can be played again.

use std::collections::{BTreeMap, BTreeSet};

use ascribe_core::environment::{Capabilities, RestoreError, Snapshot, SnapshotKind, TRAIN, TaskId};
use ascribe_core::log::{End, Validity};
use ascribe_core::tokenizer::{Tokenizer, WordTokenizer};
use ascribe_core::{Draw, Need, Rng, Seeds, TaskSet};

use crate::finding::{Difference, Finding, Said};
use crate::live::{Comparison, Live, Seen, is_limit, of_snapshot};
use crate::{Check, Outcome, Report, caught, check};

/// Tasks per split, spread over it.
const TASKS: usize = 3;
/// Longest walk, in turns.
const TURNS: usize = 48;
/// States of a walk from which something is tried.
const STATES: usize = 5;
/// Turns that are gone on from there.
const AHEAD: usize = 8;
/// Longest limit of turns that is waited for.
const PATIENCE: usize = 4096;
/// Bytes of a snapshot that are damaged, one at a time.
const DAMAGED: usize = 48;
/// State keys per task whose futures are compared.
const KEYS: usize = 24;
/// Admissible actions of a state that are carried out.
const ACTIONS: usize = 64;
/// Seeds under which chance is looked for.
const CHANCES: u64 = 256;
/// Lines of privileged text that are shorter, in bytes, may stand in an observation by accident.
const CANARY: usize = 8;

/// What a walk is made of.
#[derive(Clone, Copy)]
struct Style {
    /// Whether text that means nothing is said.
    odd: bool,
    /// Whether the expert acts, most of the time.
    expert: bool,
    /// Whether actions are cut now and then, and words said that are no action.
    clumsy: bool,
}

/// The walks of a task; the index is also the seed that the episode is opened with.
const WALKS: [Style; 6] = [
    Style { odd: false, expert: false, clumsy: false },
    Style { odd: true, expert: false, clumsy: true },
    Style { odd: false, expert: true, clumsy: false },
    Style { odd: false, expert: false, clumsy: true },
    Style { odd: true, expert: true, clumsy: true },
    Style { odd: false, expert: false, clumsy: false },
];

/// What is said, from where.
#[derive(Clone)]
struct Walk {
    task: TaskId,
    seed: u64,
    acts: Vec<Said>,
    odd: bool,
}

/// Holds a set of tasks to what all environments must keep, and to what its capabilities claim.
pub fn environment(tasks: &dyn TaskSet) -> Report {
    let what = "its tasks are there, those that are not are refused, and its claims fit";
    let about = match caught(|| standing(tasks)) {
        Ok(about) => about,
        Err(why) => return Report(vec![Check { what, outcome: Outcome::Broken(why) }]),
    };
    let words = WordTokenizer::new(about.vocabulary.iter().chain([&about.stop]));
    let mut it = Subject { tasks, about, words, walks: Vec::new() };
    it.walks = match caught(|| Ok::<_, Finding>(it.plan())) {
        Ok(walks) => walks,
        Err(why) => return Report(vec![Check { what, outcome: Outcome::Broken(why) }]),
    };
    it.report(what)
}

/// What it claims, if that can be so.
fn standing(tasks: &dyn TaskSet) -> Result<Capabilities, Finding> {
    let wrong = |why: String, remedy: &str| Err(Finding { remedy: remedy.into(), ..Finding::from(why) });
    let about = tasks.capabilities().clone();
    let splits = tasks.splits();
    if splits.first().map(String::as_str) != Some(TRAIN) {
        return wrong(format!("its splits are {splits:?}"), "`splits` names `train` first");
    }
    // What is measured only has nothing to train on.
    if let Some(split) = splits.iter().find(|split| *split != TRAIN && tasks.is_empty(split)) {
        return wrong(format!("its split `{split}` has no tasks"), "`splits` leaves out what is empty, beside `train`");
    }
    if splits.iter().all(|split| tasks.is_empty(split)) {
        return wrong("it has no tasks".into(), "an environment without tasks is refused when it is built");
    }
    if tasks.len("no such split") != 0 {
        return wrong("a split that does not exist has tasks".into(), "`len` is 0 for a split that does not exist");
    }
    let (print, again) = (tasks.fingerprint(), tasks.fingerprint());
    if let Some(difference) = Difference::between("fingerprint", ("first", print.as_bytes()), ("then", again.as_bytes())) {
        let remedy = "make it of the tasks and their rules, once, when the set is built".into();
        let why = "the fingerprint changes".into();
        return Err(Finding { why, difference: Some(difference), remedy, ..Finding::default() });
    }
    if print.is_empty() {
        return wrong("the fingerprint is empty".into(), "make it of the tasks and their rules: runs and snapshots carry it");
    }
    let beyond = |split: &str| TaskId { split: split.into(), index: u32::try_from(tasks.len(split)).unwrap_or(u32::MAX) };
    let absent = splits
        .iter()
        .map(|split| beyond(split))
        .chain([TaskId { split: "no such split".into(), index: 0 }, TaskId { split: TRAIN.into(), index: u32::MAX }]);
    for task in absent.filter(|task| task.index as usize >= tasks.len(&task.split)) {
        if tasks.open(&task, 0).is_ok() {
            return wrong(format!("the task {task} does not exist, and opens"), "`open` gives an error that names the task");
        }
    }
    if about.max_turns == 0 || about.max_action_tokens == 0 || !about.r_max.is_finite() {
        let Capabilities { max_turns, max_action_tokens, r_max, .. } = about;
        let why = format!("`max_turns` is {max_turns}, `max_action_tokens` {max_action_tokens}, `r_max` {r_max}");
        return wrong(why, "an episode has at least one turn, an action at least its stop word, and returns are finite");
    }
    let claims = [
        (Need::ExactSnapshot, about.snapshot == SnapshotKind::Exact, "snapshot"),
        (Need::ExactStateKey, about.exact_state_key, "exact_state_key"),
    ];
    for (need, has, field) in claims {
        if about.provides.contains(&need) != has {
            return wrong(
                format!("`provides` and `{field}` do not agree on {need}"),
                "both say it, or neither: plugins that need it are let through by `provides`",
            );
        }
    }
    for split in &splits {
        for task in some_of(tasks, split) {
            let mut live = Live::open(tasks, &task, 0)?;
            let provided = [
                (Need::Admissible, live.admissible()?.is_some()),
                (Need::Expert, live.expert()?.is_some()),
                (Need::Privileged, live.privileged()?.is_some()),
                (Need::GroundTruth, live.ground_truth()?.is_some()),
                (Need::Oracle, tasks.oracle(&task).is_some()),
            ];
            if let Some((need, _)) = provided.iter().find(|(need, has)| about.provides.contains(need) && !has) {
                let remedy = "give it in every task, or leave it out of `provides`".into();
                return Err(Finding { remedy, ..live.finding(format!("it claims {need}, and has none")) });
            }
        }
    }
    Ok(about)
}

/// Tasks of a split, spread over it.
fn some_of(tasks: &dyn TaskSet, split: &str) -> Vec<TaskId> {
    let len = tasks.len(split).min(u32::MAX as usize);
    spread(len, TASKS).map(|index| TaskId { split: split.into(), index: index as u32 }).collect()
}

/// At most `n` of the indices below `len`, first and last among them.
fn spread(len: usize, n: usize) -> impl Iterator<Item = usize> {
    let n = n.min(len);
    (0..n).map(move |i| if n == 1 { 0 } else { i * (len - 1) / (n - 1) })
}

/// Text that means nothing, or should not: empty, blank, long, of other scripts, invisible, and what breaks out of quotes.
fn odd_text(rng: &mut Rng) -> String {
    const TEXTS: [&str; 14] = [
        "",
        " ",
        "\n\n",
        "\0",
        "\u{1F34E}\u{200D}\u{1F34F} ???",
        "去 冰箱 1",
        "ｌｏｏｋ",
        "e\u{301}\u{202E}kool\u{202C}",
        "<unk> <s> </s>",
        "\"}], \"x\": [{\" \\ ' ` $(:)",
        "{} {0} %s %n",
        "../../etc/passwd",
        "-99999999999999999999 1e999 NaN",
        "İıſ ß ﬁ \u{FEFF}",
    ];
    match rng.below(TEXTS.len() + 2) {
        i if i < TEXTS.len() => TEXTS[i].into(),
        i if i == TEXTS.len() => "word ".repeat(3000),
        _ => "\u{10FFFF}".repeat(2000),
    }
}

/// What is checked.
struct Subject<'a> {
    tasks: &'a dyn TaskSet,
    about: Capabilities,
    words: WordTokenizer,
    walks: Vec<Walk>,
}

impl Subject<'_> {
    fn report(&self, first: &'static str) -> Report {
        let walks = || self.walks.iter();
        let no_snapshots = (self.about.snapshot == SnapshotKind::None).then_some("it claims no snapshots");
        let no_keys = (!self.about.exact_state_key).then_some("it claims no exact state keys");
        let no_admissible = (!self.about.provides.contains(&Need::Admissible)).then_some("it lists no admissible actions");
        let no_privileged = (!self.about.provides.contains(&Need::Privileged)).then_some("it has no privileged text");
        let no_words = self.about.vocabulary.is_empty().then_some("it names no vocabulary");
        Report(vec![
            Check { what: first, outcome: Outcome::Held(self.tasks.splits().len()) },
            held(
                "whatever is said is a turn, not an error",
                None,
                "an action that is not understood is a `Step` whose validity is `Malformed`",
                walks(),
                |walk| self.takes_anything(walk),
            ),
            held(
                "the same seed and actions give the same episode",
                None,
                "draw from the seed that `open` is given alone; no clock, no global state, no order of a hash map",
                walks(),
                |walk| self.is_deterministic(walk),
            ),
            held(
                "asking changes nothing",
                None,
                "what is asked for is computed from the state and leaves it alone; `expert` may change what the expert remembers",
                walks(),
                |walk| self.may_be_asked(walk),
            ),
            held(
                "episodes of one set do not touch each other",
                None,
                "an episode owns all that changes; what episodes share is never written",
                self.walks.chunks(4),
                |walks| self.keeps_apart(walks),
            ),
            held(
                "a restored state is the saved one, and goes on like it",
                no_snapshots,
                "`snapshot` saves all that changes, and `restore` sets all of it, whatever the episode was before",
                walks(),
                |walk| self.restores(walk),
            ),
            held(
                "copies restored from one snapshot do not touch each other",
                no_snapshots,
                "`snapshot` and `restore` copy the state; they share no cell, lock or pointer to what changes",
                walks(),
                |walk| self.copies(walk),
            ),
            held(
                "chance is part of the snapshot",
                no_snapshots,
                "save the seed and how much was drawn from it, and draw from nothing else",
                walks(),
                |walk| self.saves_chance(walk),
            ),
            held(
                "`reseed` decides what follows, and leaves the state as it is",
                no_snapshots,
                "`reseed` replaces the seed that snapshots hold, starts drawing from it anew, and touches nothing else",
                walks(),
                |walk| self.reseeds(walk),
            ),
            held(
                "`reseed` gives what follows chance of its own",
                no_snapshots.or(no_keys),
                "draw what comes after the start from the seed that `reseed` replaces",
                [()],
                |()| self.reseeding_matters(),
            ),
            held(
                "what is no snapshot of the task is refused, and changes nothing",
                no_snapshots,
                "compare fingerprint and version, hold the bytes against a checksum, and replace the state only when all is well",
                walks(),
                |walk| self.refuses(walk),
            ),
            held(
                "admissible actions are sorted, different, and understood",
                no_admissible,
                "sort the list and take out what stands twice; it lists what `step` understands at that state",
                walks(),
                |walk| self.lists_actions(walk),
            ),
            held(
                "what is read and said is made of the vocabulary's words",
                no_words,
                "add the words to the vocabulary; actions are words with single spaces between them",
                self.walks.iter().filter(|walk| !walk.odd),
                |walk| self.is_encoded(walk),
            ),
            held(
                "it ends when it says, once, and pays within its bounds",
                None,
                "end with `Truncated(Turns)` at `max_turns` at the latest; after an end, `step` is an error",
                walks(),
                |walk| self.ends(walk),
            ),
            held(
                "equal state keys have equal futures",
                no_keys,
                "the key holds all of the state on which what follows depends, or `exact_state_key` is false",
                self.walks.chunk_by(|a, b| a.task == b.task),
                |walks| self.keys_decide(walks),
            ),
            held(
                "what is privileged is not read by the agent",
                no_privileged,
                "leave it out of observations; `privileged` is for critics",
                self.walks.iter().filter(|walk| !walk.odd),
                |walk| self.keeps_secrets(walk),
            ),
        ])
    }

    /// Walks of every chosen task, by doing them. Where one breaks, it ends with what broke it.
    fn plan(&self) -> Vec<Walk> {
        let tasks = self.tasks.splits().into_iter().flat_map(|split| some_of(self.tasks, &split));
        let walks = (0u32..).zip(tasks).flat_map(|(group, task)| {
            (0u64..).zip(WALKS).map(move |(seed, style)| {
                let rng = Seeds(seed).rng("conformance/walk", Draw { group, ..Draw::default() });
                (task.clone(), seed, style, rng)
            })
        });
        walks
            .map(|(task, seed, style, mut rng)| {
                let acts = match Live::open(self.tasks, &task, seed) {
                    Ok(mut live) => {
                        while live.place.actions.len() < TURNS.min(self.about.max_turns) && !live.over {
                            let act = self.say(&mut live, style, &mut rng);
                            if live.act(&act).is_err() {
                                break;
                            }
                        }
                        live.place.actions
                    }
                    Err(_) => Vec::new(),
                };
                Walk { task, seed, acts, odd: style.odd }
            })
            .collect()
    }

    /// What is said next.
    fn say(&self, live: &mut Live, style: Style, rng: &mut Rng) -> Said {
        let complete = !style.clumsy || rng.below(10) > 0;
        if style.odd && rng.below(4) == 0 {
            return Said { text: odd_text(rng), complete };
        }
        let expert = if style.expert && rng.below(8) > 0 { live.expert().ok().flatten() } else { None };
        let listed = live.admissible().ok().flatten().unwrap_or_default();
        let text = match expert {
            Some(said) => said,
            None if listed.is_empty() || style.clumsy && rng.below(5) == 0 => self.babble(rng),
            None => listed[rng.below(listed.len())].clone(),
        };
        Said { text, complete }
    }

    /// Words of the vocabulary.
    fn babble(&self, rng: &mut Rng) -> String {
        let said: Vec<&String> = self.words.words().iter().skip(2).filter(|word| **word != self.about.stop).collect();
        let n = rng.below(self.about.max_action_tokens.min(8)) + 1;
        (0..n).filter_map(|_| rng.choose(&said).map(|word| word.as_str())).collect::<Vec<_>>().join(" ")
    }

    fn open(&self, walk: &Walk) -> Result<Live, Finding> {
        Live::open(self.tasks, &walk.task, walk.seed)
    }

    /// The episode of a walk after `turns` turns.
    fn at(&self, walk: &Walk, turns: usize) -> Result<Live, Finding> {
        let mut live = self.open(walk)?;
        live.wind(&walk.acts[..turns])?;
        Ok(live)
    }

    /// An episode of the same task that was opened with another seed.
    fn elsewhere(&self, walk: &Walk) -> Result<Live, Finding> {
        Live::open(self.tasks, &walk.task, walk.seed + 1000)
    }

    /// What comes at a state of a walk.
    fn ahead(walk: &Walk, turns: usize) -> &[Said] {
        &walk.acts[turns..(turns + AHEAD).min(walk.acts.len())]
    }

    fn takes_anything(&self, walk: &Walk) -> Result<(), Finding> {
        let mut live = self.open(walk)?;
        live.shown_and_expert()?;
        for act in &walk.acts {
            let turn = live.act(act)?;
            live.shown_and_expert()?;
            match turn.step.end {
                Some(End::Failed(why)) => return Err(live.finding(format!("the episode fails: {why}"))),
                Some(end @ (End::Untried | End::MacroBoundary)) => {
                    let remedy = "an environment ends with `Terminated` or `Truncated`".into();
                    return Err(Finding { remedy, ..live.finding(format!("it ends with {end:?}, which only rollouts say")) });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_deterministic(&self, walk: &Walk) -> Result<(), Finding> {
        let first = self.open(walk)?.follow(&walk.acts)?;
        let of = Comparison { why: "the same episode is another one the second time", expected: "first", found: "second" };
        self.open(walk)?.follows(&walk.acts, &first, &of)
    }

    fn may_be_asked(&self, walk: &Walk) -> Result<(), Finding> {
        // One episode that is only told what to do, and then one that is asked all there is before each turn.
        let mut told = self.open(walk)?;
        let mut turns = Vec::new();
        for act in &walk.acts {
            turns.push(told.act(act)?.seen);
        }
        let last = told.shown()?;
        let mut asked = self.open(walk)?;
        let twice = Comparison { why: "asked twice, it says two things", expected: "first", found: "second" };
        let both =
            Comparison { why: "it goes on otherwise when it was asked what it shows", expected: "not asked", found: "asked" };
        for (act, expected) in walk.acts.iter().zip(&turns) {
            let before = asked.shown()?;
            asked.same(&before, &asked.shown()?, &twice)?;
            if let (Ok(a), Ok(b)) = (asked.try_snapshot()?, asked.try_snapshot()?) {
                asked.same(&of_snapshot(&a), &of_snapshot(&b), &twice)?;
            }
            asked.expert()?;
            let why = "what it shows is other than before it was asked for the expert and for a snapshot";
            asked.same(&before, &asked.shown()?, &Comparison { why, expected: "before", found: "after" })?;
            let seen = asked.act(act)?.seen;
            asked.same(expected, &seen, &both)?;
        }
        asked.same(&last, &asked.shown()?, &both)
    }

    fn keeps_apart(&self, walks: &[Walk]) -> Result<(), Finding> {
        let mut alone = Vec::new();
        for walk in walks {
            alone.push(self.open(walk)?.follow(&walk.acts)?);
        }
        // In turns.
        let of = Comparison { why: "an episode goes on otherwise beside others", expected: "alone", found: "beside others" };
        let mut together = walks.iter().map(|walk| self.open(walk)).collect::<Result<Vec<_>, _>>()?;
        for turn in 0..=TURNS {
            for ((live, walk), alone) in together.iter_mut().zip(walks).zip(&alone) {
                let Some(expected) = alone.get(turn) else { continue };
                let mut seen = Vec::new();
                if turn > 0 {
                    seen = live.act(&walk.acts[turn - 1])?.seen;
                }
                seen.extend(live.shown_and_expert()?);
                live.same(expected, &seen, &of)?;
            }
        }
        // On threads.
        let of = Comparison { found: "on threads", ..of };
        let on_threads: Vec<Result<(), Finding>> = std::thread::scope(|scope| {
            let threads: Vec<_> = walks
                .iter()
                .zip(&alone)
                .map(|(walk, alone)| scope.spawn(|| caught(|| self.open(walk)?.follows(&walk.acts, alone, &of))))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(String::from("a thread died").into())))
                .collect()
        });
        on_threads.into_iter().collect::<Result<(), _>>()?;
        // Opened again.
        let of = Comparison { why: "the task opened again begins otherwise", expected: "first", found: "again" };
        walks.iter().zip(&alone).try_for_each(|(walk, alone)| self.open(walk)?.follows(&[], &alone[..1], &of))
    }

    /// Each snapshot is restored once, so that copies are none. What follows must be the same with the chance as it is, or with
    /// the same new chance: whether chance is saved, and what `reseed` does, have checks of their own.
    fn restores(&self, walk: &Walk) -> Result<(), Finding> {
        for turns in spread(walk.acts.len() + 1, STATES) {
            self.restores_at(walk, turns, None).or_else(|_| self.restores_at(walk, turns, Some(77)))?;
        }
        Ok(())
    }

    fn restores_at(&self, walk: &Walk, turns: usize, chance: Option<u64>) -> Result<(), Finding> {
        let acts = Self::ahead(walk, turns);
        let given = |live: &mut Live| chance.map_or(Ok(()), |seed| live.reseed(seed));
        let mut original = self.at(walk, turns)?;
        let saved = original.snapshot()?;
        let mut restored = self.elsewhere(walk)?;
        restored.restore(&saved, &original)?;
        self.is_saved(&restored, &saved)?;
        given(&mut original)?;
        let expected = original.follow(acts)?;
        given(&mut restored)?;
        let of = Comparison { why: "a restored state is not the saved one", expected: "saved", found: "restored" };
        restored.follows(acts, &expected, &of)?;

        let mut same = self.at(walk, turns)?;
        let (saved, place, over) = (same.snapshot()?, same.place.clone(), same.over);
        same.wind(&walk.acts[turns..])?;
        same.go_back(&saved, place, over)?;
        self.is_saved(&same, &saved)?;
        given(&mut same)?;
        let why = "an episode that goes back to a saved state is not in it";
        same.follows(acts, &expected, &Comparison { why, ..of })
    }

    /// Saves a restored state again.
    fn is_saved(&self, restored: &Live, saved: &Snapshot) -> Result<(), Finding> {
        let of = Comparison { why: "a restored state is saved otherwise", expected: "saved", found: "saved again" };
        restored.same(&of_snapshot(saved), &of_snapshot(&restored.snapshot()?), &of)
    }

    fn copies(&self, walk: &Walk) -> Result<(), Finding> {
        for turns in spread(walk.acts.len() + 1, STATES) {
            let original = self.at(walk, turns)?;
            let saved = original.snapshot()?;
            let expected = original.shown()?;
            let (mut a, mut b) = (self.elsewhere(walk)?, self.elsewhere(walk)?);
            a.restore(&saved, &original)?;
            b.restore(&saved, &original)?;
            a.wind(&walk.acts[turns..])?;
            let why = "one copy goes on, and the other is another one";
            b.same(&expected, &b.shown()?, &Comparison { why, expected: "before", found: "after" })?;
            let why = "the episode that was saved is another one when a copy goes on";
            original.same(&expected, &original.shown()?, &Comparison { why, expected: "before", found: "after" })?;
            let mut c = self.elsewhere(walk)?;
            c.restore(&saved, &original)?;
            let of = Comparison { why: "a snapshot restored again gives another state", expected: "saved", found: "later" };
            c.same(&expected, &c.shown()?, &of)?;
            self.is_saved(&c, &saved)?;
        }
        Ok(())
    }

    fn saves_chance(&self, walk: &Walk) -> Result<(), Finding> {
        for turns in spread(walk.acts.len() + 1, STATES) {
            let acts = Self::ahead(walk, turns);
            let mut original = self.at(walk, turns)?;
            let saved = original.snapshot()?;
            let mut restored = self.elsewhere(walk)?;
            restored.restore(&saved, &original)?;
            let expected = original.follow(acts)?;
            let why = "what follows a restored state is not what followed the saved one";
            restored.follows(acts, &expected, &Comparison { why, expected: "saved", found: "restored" })?;
        }
        Ok(())
    }

    fn reseeds(&self, walk: &Walk) -> Result<(), Finding> {
        for turns in spread(walk.acts.len() + 1, STATES) {
            let acts = Self::ahead(walk, turns);
            let mut original = self.at(walk, turns)?;
            let saved = original.snapshot()?;
            let before = original.shown()?;
            original.reseed(5)?;
            let why = "`reseed` changes what it shows";
            original.same(&before, &original.shown()?, &Comparison { why, expected: "before", found: "after" })?;
            let reseeded = original.snapshot()?;
            let expected = original.follow(acts)?;

            // Another copy has drawn other numbers before.
            let mut other = self.at(walk, turns)?;
            other.wind(acts)?;
            other.restore(&saved, &self.at(walk, turns)?)?;
            other.reseed(5)?;
            let why = "reseeded alike, one state goes on in two ways";
            other.follows(acts, &expected, &Comparison { why, expected: "first", found: "second" })?;

            let mut other = self.elsewhere(walk)?;
            other.restore(&reseeded, &self.at(walk, turns)?)?;
            let why = "a snapshot taken after `reseed` does not go on with that chance";
            other.follows(acts, &expected, &Comparison { why, expected: "reseeded", found: "restored" })?;

            let mut other = self.at(walk, turns)?;
            let untouched = self.at(walk, turns)?.follow(acts)?;
            other.reseed(5)?;
            other.restore(&saved, &self.at(walk, turns)?)?;
            let why = "a snapshot taken before `reseed` does not go on with the chance it was taken with";
            other.follows(acts, &untouched, &Comparison { why, expected: "saved", found: "restored" })?;
        }
        Ok(())
    }

    /// Where episodes of different seeds part though they were in one state, chance came in; there `reseed` must be able to
    /// bring in other chance.
    fn reseeding_matters(&self) -> Result<(), Finding> {
        let mut parted = None;
        for walk in &self.walks {
            for seed in 1..4 {
                let Some(turns) = self.parts(walk, walk.seed + 100 * seed)? else { continue };
                let mut there = self.at(walk, turns)?;
                let saved = there.snapshot()?;
                let act = &walk.acts[turns];
                let expected = self.next(&mut there, act)?;
                for chance in 0..CHANCES {
                    let mut other = self.at(walk, turns)?;
                    other.restore(&saved, &self.at(walk, turns)?)?;
                    other.reseed(chance)?;
                    if self.next(&mut other, act)? != expected {
                        return Ok(());
                    }
                }
                parted.get_or_insert(there);
            }
        }
        match parted {
            None => Ok(()),
            Some(live) => Err(live.finding(format!(
                "here episodes opened with other seeds go on otherwise, but none of {CHANCES} seeds of `reseed` changes anything"
            ))),
        }
    }

    /// The first turn at which an episode of another seed goes on otherwise from the same state.
    fn parts(&self, walk: &Walk, seed: u64) -> Result<Option<usize>, Finding> {
        let (mut a, mut b) = (self.open(walk)?, Live::open(self.tasks, &walk.task, seed)?);
        for (turns, act) in walk.acts.iter().enumerate() {
            if a.over || b.over || a.state_key()? != b.state_key()? {
                return Ok(None);
            }
            if self.next(&mut a, act)? != self.next(&mut b, act)? {
                return Ok(Some(turns));
            }
        }
        Ok(None)
    }

    /// What an action gives, and the key of the state it leads to.
    fn next(&self, live: &mut Live, act: &Said) -> Result<Seen, Finding> {
        let mut seen = live.act(act)?.seen;
        seen.push(("state key", live.state_key()?));
        Ok(seen)
    }

    fn refuses(&self, walk: &Walk) -> Result<(), Finding> {
        let source = self.at(walk, walk.acts.len() / 2)?;
        let saved = source.snapshot()?;
        let mut victim = self.at(walk, walk.acts.len() / 4)?;
        let mut attempts = vec![
            Attempt::must(
                "another environment's snapshot",
                Wanted::Foreign,
                Snapshot { fingerprint: format!("{}/another", saved.fingerprint), ..saved.clone() },
            ),
            Attempt::must(
                "a snapshot without a fingerprint",
                Wanted::Foreign,
                Snapshot { fingerprint: String::new(), ..saved.clone() },
            ),
            Attempt::must(
                "a snapshot of another format",
                Wanted::Version,
                Snapshot { version: saved.version.wrapping_add(1), ..saved.clone() },
            ),
        ];
        for (observation, at) in other_texts(&saved.observation) {
            attempts.push(Attempt::must(
                "a snapshot that shows something else",
                Wanted::Diverged(at),
                Snapshot { observation, ..saved.clone() },
            ));
        }
        let mut rng = Seeds(walk.seed).rng("conformance/damage", Draw::default());
        let n = saved.bytes.len();
        for at in spread(n, DAMAGED) {
            let mut bytes = saved.bytes.clone();
            bytes[at] ^= 1 << rng.below(8);
            attempts.push(Attempt::may(format!("a snapshot whose byte {at} of {n} has one bit flipped"), bytes, &saved));
        }
        for len in [0, n / 2, n.saturating_sub(1)].into_iter().filter(|len| *len < n) {
            let bytes = saved.bytes[..len].to_vec();
            attempts.push(Attempt::may(format!("a snapshot of which {len} of {n} bytes are left"), bytes, &saved));
        }
        let longer = saved.bytes.iter().copied().chain([0]).collect();
        attempts.push(Attempt::may("a snapshot with a byte too many".into(), longer, &saved));
        for attempt in attempts {
            self.tries(walk, &mut victim, attempt, &source, &saved)?;
        }
        // Other tasks of the set.
        let others: BTreeSet<&TaskId> = self.walks.iter().map(|walk| &walk.task).filter(|task| **task != walk.task).collect();
        for task in others {
            let source = Live::open(self.tasks, task, walk.seed)?;
            let saved = source.snapshot()?;
            let attempt =
                Attempt { what: format!("a snapshot of task {task}"), wanted: Wanted::RefusedOrSame, snapshot: saved.clone() };
            self.tries(walk, &mut victim, attempt, &source, &saved)?;
        }
        Ok(())
    }

    /// Restores what is no snapshot of the episode.
    fn tries(&self, walk: &Walk, victim: &mut Live, attempt: Attempt, source: &Live, saved: &Snapshot) -> Result<(), Finding> {
        let Attempt { what, wanted, snapshot } = attempt;
        let before: Seen = victim.shown()?.into_iter().chain(of_snapshot(&victim.snapshot()?)).collect();
        let restored = victim.try_restore(&snapshot)?;
        let fits = match (&restored, &wanted) {
            (Err(RestoreError::Foreign { .. }), Wanted::Foreign)
            | (Err(RestoreError::Version { .. }), Wanted::Version)
            | (_, Wanted::RefusedOrSame) => true,
            (Err(RestoreError::Diverged { at }), Wanted::Diverged(first)) => at == first,
            _ => false,
        };
        if !fits {
            let got = restored.map_or_else(|e| format!("refused with {e:?}"), |()| "taken".into());
            return Err(victim.finding(format!("{what} is {got}; it must be refused with {wanted:?}")));
        }
        if restored.is_err() {
            let why = format!("{what} is refused, but the episode is another one than before");
            let after = victim.shown()?.into_iter().chain(of_snapshot(&victim.snapshot()?)).collect();
            return victim.same(&before, &after, &Comparison { why: &why, expected: "before", found: "after" });
        }
        let why = format!("{what} is taken, and gives another state");
        let of = Comparison { why: &why, expected: "saved", found: "restored" };
        victim.same(&source.shown()?, &victim.shown()?, &of)?;
        victim.same(&of_snapshot(saved), &of_snapshot(&victim.snapshot()?), &of)?;
        *victim = self.at(walk, walk.acts.len() / 4)?;
        Ok(())
    }

    fn lists_actions(&self, walk: &Walk) -> Result<(), Finding> {
        let mut live = self.open(walk)?;
        for act in &walk.acts {
            let Some(actions) = live.admissible()? else {
                return Err(live.finding("it lists no admissible actions here"));
            };
            if actions.is_empty() {
                let remedy = "list at least one action while the episode goes on, or end it".into();
                return Err(Finding { remedy, ..live.finding("it goes on, and no action is admissible") });
            }
            if let Some(pair) = actions.windows(2).find(|pair| pair[0] >= pair[1]) {
                let why = if pair[0] == pair[1] { "stands twice in" } else { "stands before a smaller one in" };
                return Err(live.finding(format!("\"{}\" {why} the admissible actions", pair[0].escape_debug())));
            }
            live.act(act)?;
        }
        for turns in spread(walk.acts.len(), STATES) {
            let actions = self.at(walk, turns)?.admissible()?.unwrap_or_default();
            for i in spread(actions.len(), ACTIONS) {
                let mut there = self.at(walk, turns)?;
                let turn = there.act(&Said { text: actions[i].clone(), complete: true })?;
                if matches!(turn.step.validity, Validity::Malformed | Validity::Cut) {
                    return Err(there.finding(format!("an admissible action is {:?}", turn.step.validity)));
                }
            }
        }
        Ok(())
    }

    fn is_encoded(&self, walk: &Walk) -> Result<(), Finding> {
        let mut live = self.open(walk)?;
        if self.words.encode(&self.about.stop).len() != 1 {
            let remedy = "take a stop word that a tokenizer keeps whole, like `</call>`".into();
            return Err(Finding { remedy, ..Finding::from(format!("the stop word `{}` is not one word", self.about.stop)) });
        }
        for turns in 0..=walk.acts.len() {
            if live.over {
                break;
            }
            self.knows(&live, "an observation", &live.text()?)?;
            let actions = live.admissible()?.unwrap_or_default();
            let mut tokens: BTreeMap<Vec<u32>, &str> = BTreeMap::new();
            for action in &actions {
                self.knows(&live, "an admissible action", action)?;
                let encoded = self.words.encode(action);
                if encoded.iter().any(|id| self.words.words()[*id as usize] == self.about.stop) {
                    let remedy = "take a stop word that no action contains".into();
                    return Err(Finding { remedy, ..live.finding(format!("the action \"{action}\" contains the stop word")) });
                }
                if encoded.len() >= self.about.max_action_tokens {
                    let (n, most) = (encoded.len() + 1, self.about.max_action_tokens);
                    let remedy = "raise `max_action_tokens`: an action that does not fit can never be said".into();
                    let why = format!("the action \"{action}\" has {n} tokens with its stop word, of {most} that it may have");
                    return Err(Finding { remedy, ..live.finding(why) });
                }
                if let Some(other) = tokens.insert(encoded, action).filter(|other| *other != action.as_str()) {
                    return Err(live.finding(format!("the actions \"{other}\" and \"{action}\" are the same words")));
                }
            }
            if let Some(act) = walk.acts.get(turns) {
                live.act(act)?;
            }
        }
        // What a policy says is decoded before it is carried out.
        for turns in spread(walk.acts.len(), STATES) {
            let mut there = self.at(walk, turns)?;
            let listed = there.admissible()?.unwrap_or_default();
            let said: BTreeSet<String> = listed.into_iter().chain(there.expert()?).collect();
            for action in said {
                let decoded = self.words.decode(&self.words.encode(&action));
                if decoded == action {
                    continue;
                }
                let [mut a, mut b] = [self.at(walk, turns)?, self.at(walk, turns)?];
                let expected = self.next(&mut a, &Said { text: action.clone(), complete: true })?;
                let found = self.next(&mut b, &Said { text: decoded, complete: true })?;
                let why = format!("the action \"{action}\" does something else as a policy says it, word for word");
                b.same(&expected, &found, &Comparison { why: &why, expected: "as listed", found: "as said" })?;
            }
        }
        Ok(())
    }

    /// Whether a text has only words of the vocabulary.
    fn knows(&self, live: &Live, what: &str, text: &str) -> Result<(), Finding> {
        // Where the text itself says so, an unknown word is a known one.
        let unknown = WordTokenizer::new([text]);
        let strange = unknown.words().iter().skip(2).find(|word| self.words.token(word).is_none());
        match strange {
            None => Ok(()),
            Some(word) => {
                let at = text.find(word.as_str()).unwrap_or(0);
                let start: String = text[at..].chars().take(60).collect();
                Err(live.finding(format!(
                    "{what} has the word \"{}\", which is not in the vocabulary, at byte {at}: \"{}\"",
                    word.escape_debug(),
                    start.escape_debug()
                )))
            }
        }
    }

    fn ends(&self, walk: &Walk) -> Result<(), Finding> {
        let mut live = self.open(walk)?;
        self.plays_out(&mut live, &walk.acts)?;
        // To the end, with nothing that could bring it about.
        if self.about.max_turns <= PATIENCE {
            let mut idle = self.open(walk)?;
            let nothing = vec![Said { text: String::new(), complete: false }; self.about.max_turns];
            self.plays_out(&mut idle, &nothing)?;
            if !idle.over {
                let why = format!("`max_turns` is {}, and the episode goes on after them", self.about.max_turns);
                // The turns say nothing: all are alike.
                return Err(Finding {
                    place: Some(Box::new(crate::Place { actions: Vec::new(), ..idle.place.clone() })),
                    ..idle.finding(why)
                });
            }
        }
        Ok(())
    }

    fn plays_out(&self, live: &mut Live, acts: &[Said]) -> Result<(), Finding> {
        let mut sum = 0.0;
        for act in acts {
            if live.over {
                break;
            }
            let step = live.act(act)?.step;
            let numbers = step.signals.iter().map(|(name, x)| (name.as_str(), *x)).chain([("reward", step.reward)]);
            if let Some((name, x)) = numbers.into_iter().find(|(_, x)| !x.is_finite()) {
                let remedy = "rewards and signals are finite numbers".into();
                return Err(Finding { remedy, ..live.finding(format!("`{name}` is {x}")) });
            }
            let known = |name: &str| self.about.provides.iter().any(|p| matches!(p, Need::Signal(known, _) if known == name));
            if let Some((name, _)) = step.signals.iter().find(|(name, _)| !known(name)) {
                let remedy =
                    "list `Need::Signal` with its name in `provides`: `check` lets estimators read what is listed".into();
                return Err(Finding { remedy, ..live.finding(format!("it gives a signal `{name}` that it does not claim")) });
            }
            sum += f64::from(step.reward);
            // Rewards are in single precision.
            if step.end.is_some() && sum > self.about.r_max + 1e-5 * (1.0 + self.about.r_max.abs()) {
                let remedy = "`r_max` is the largest possible return".into();
                return Err(Finding {
                    remedy,
                    ..live.finding(format!("it returned {sum}, and `r_max` is {}", self.about.r_max))
                });
            }
        }
        if live.over {
            let before = live.shown()?;
            if live.step_after_end()? {
                let remedy = "remember that it is over, and give an error".into();
                return Err(Finding { remedy, ..live.finding("it is over, and goes on when told to") });
            }
            let why = "a step after the end, which is refused, changes it";
            live.same(&before, &live.shown()?, &Comparison { why, expected: "before", found: "after" })?;
        }
        Ok(())
    }

    /// States of one task that were met twice.
    fn keys_decide(&self, walks: &[Walk]) -> Result<(), Finding> {
        let mut met: BTreeMap<Vec<u8>, Vec<(usize, usize)>> = BTreeMap::new();
        for (w, walk) in walks.iter().enumerate() {
            let mut live = self.open(walk)?;
            for (turns, act) in walk.acts.iter().enumerate() {
                met.entry(live.state_key()?).or_default().push((w, turns));
                live.act(act)?;
            }
        }
        // The same words from the same seed are one visit.
        let came = |(w, turns): &(usize, usize)| (walks[*w].seed, &walks[*w].acts[..*turns]);
        let twice: Vec<Vec<(usize, usize)>> = met
            .into_values()
            .filter_map(|mut visits| {
                let mut known = BTreeSet::new();
                visits.retain(|visit| {
                    let (seed, acts) = came(visit);
                    known.insert((seed, acts.iter().map(|act| (act.text.clone(), act.complete)).collect::<Vec<_>>()))
                });
                (visits.len() > 1).then_some(visits)
            })
            .collect();
        for k in spread(twice.len(), KEYS) {
            let visits = &twice[k];
            let (first, others) = (visits[0], &visits[1..]);
            for i in spread(others.len(), 4) {
                for chance in 0..4 {
                    self.same_future(walks, first, others[i], chance)?;
                }
            }
        }
        Ok(())
    }

    /// Compares what follows one visit of a state with what follows another.
    fn same_future(&self, walks: &[Walk], one: (usize, usize), other: (usize, usize), chance: u64) -> Result<(), Finding> {
        let there = |(w, turns): (usize, usize), seed: u64| -> Result<Live, Finding> {
            let mut live = self.at(&walks[w], turns)?;
            live.reseed(seed)?;
            Ok(live)
        };
        let mut rng = Seeds(chance).rng("conformance/future", Draw::default());
        let mut leader = there(one, chance)?;
        let from = leader.place.actions.len();
        while leader.place.actions.len() < from + AHEAD && !leader.over {
            let act = self.say(&mut leader, WALKS[3], &mut rng);
            leader.act(&act)?;
        }
        let acts = leader.place.actions[from..].to_vec();
        let expected = Future::of(&mut there(one, chance)?, &acts)?;
        let found = Future::of(&mut there(other, chance)?, &acts)?;
        let Some(mut finding) = expected.parts_from(&found, &there(one, chance)?.place, &there(other, chance)?.place) else {
            return Ok(());
        };
        // Chance may be counted by turns, or not be given anew: then what can follow is compared.
        let draws_its_own = one.1 != other.1 || self.about.snapshot == SnapshotKind::None;
        if draws_its_own {
            let mut possible = Vec::new();
            for seed in 0..CHANCES / 4 {
                possible.push(Future::of(&mut there(one, seed)?, &acts)?);
            }
            for seed in 0..CHANCES / 4 {
                let found = Future::of(&mut there(other, seed)?, &acts)?;
                if possible.iter().any(|future| future.is(&found)) {
                    return Ok(());
                }
            }
            if self.about.snapshot == SnapshotKind::None {
                for (w, turns) in [one, other] {
                    let all = [&walks[w].acts[..turns], &acts].concat();
                    if !self.is_without_chance(&walks[w], &all)? {
                        return Ok(());
                    }
                }
            }
        }
        finding.place = Some(Box::new(found.place));
        Err(finding)
    }

    /// Whether other seeds give the same episode.
    fn is_without_chance(&self, walk: &Walk, acts: &[Said]) -> Result<bool, Finding> {
        let expected = self.open(walk)?.follow(acts)?;
        for seed in 1..4 {
            let mut other = Live::open(self.tasks, &walk.task, walk.seed + 100 * seed)?;
            if other.follow(acts)? != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn keeps_secrets(&self, walk: &Walk) -> Result<(), Finding> {
        let mut live = self.open(walk)?;
        for turns in 0..=walk.acts.len() {
            if live.over {
                break;
            }
            let (text, privileged) = (live.text()?, live.privileged()?.unwrap_or_default());
            let lines = privileged.lines().map(str::trim).filter(|line| line.len() >= CANARY);
            for line in lines {
                if let Some(at) = text.find(line) {
                    let line = line.escape_debug();
                    return Err(live.finding(format!("the privileged \"{line}\" stands in the observation, at byte {at}")));
                }
            }
            if let Some(act) = walk.acts.get(turns) {
                live.act(act)?;
            }
        }
        Ok(())
    }
}

/// Something that may be no snapshot of the episode, and what must come of restoring it.
struct Attempt {
    what: String,
    wanted: Wanted,
    snapshot: Snapshot,
}

impl Attempt {
    fn must(what: &str, wanted: Wanted, snapshot: Snapshot) -> Self {
        Self { what: what.into(), wanted, snapshot }
    }

    fn may(what: String, bytes: Vec<u8>, saved: &Snapshot) -> Self {
        Self { what, wanted: Wanted::RefusedOrSame, snapshot: Snapshot { bytes, ..saved.clone() } }
    }
}

#[derive(Debug)]
enum Wanted {
    Foreign,
    Version,
    /// The first byte that differs.
    Diverged(usize),
    /// Bytes that say the same may be taken.
    RefusedOrSame,
}

/// Texts that differ from one, and the first byte in which they do.
fn other_texts(text: &str) -> Vec<(String, usize)> {
    let mut out = vec![(format!("{text}x"), text.len())];
    for i in spread(text.chars().count(), 3) {
        let Some((at, c)) = text.char_indices().nth(i) else { continue };
        // Replaced by what differs in its first byte.
        let with = if c == '#' { '~' } else { '#' };
        out.push((format!("{}{with}{}", &text[..at], &text[at + c.len_utf8()..]), at));
    }
    if let Some((at, _)) = text.char_indices().last() {
        out.push((text[..at].into(), at));
    }
    out
}

/// What follows a state: what the future consists of, without the text, which may hold history, and without what a limit of
/// turns decides, which stands outside of the state.
#[derive(PartialEq)]
struct Future {
    turns: Vec<Ahead>,
    place: crate::Place,
}

#[derive(PartialEq)]
struct Ahead {
    /// What is compared in any case.
    pays: Seen,
    /// What is compared where no limit cut it off.
    leads: Seen,
    cut: bool,
}

impl Future {
    fn of(live: &mut Live, acts: &[Said]) -> Result<Self, Finding> {
        let mut turns = vec![Ahead { pays: Vec::new(), leads: Self::leads(live)?, cut: false }];
        for act in acts {
            if live.over {
                break;
            }
            let turn = live.act(act)?;
            let (end, pays) = turn.seen.into_iter().partition::<Seen, _>(|(name, _)| *name == "end");
            let mut leads = end;
            leads.push(("observation key", live.observation_key()?));
            leads.extend(Self::leads(live)?);
            turns.push(Ahead { pays, leads, cut: is_limit(&turn.step.end) });
        }
        Ok(Self { turns, place: live.place.clone() })
    }

    fn leads(live: &Live) -> Result<Seen, Finding> {
        let admissible = live.admissible()?.map_or_else(|| "(none)".into(), |actions| actions.join("\n"));
        Ok(vec![("state key", live.state_key()?), ("admissible actions", admissible.into_bytes())])
    }

    /// Whether nothing tells them apart.
    fn is(&self, other: &Self) -> bool {
        self.parts_from(other, &self.place, &other.place).is_none()
    }

    /// The first difference.
    fn parts_from(&self, other: &Self, one: &crate::Place, another: &crate::Place) -> Option<Finding> {
        for (ahead, (a, b)) in self.turns.iter().zip(&other.turns).enumerate() {
            let cut = a.cut || b.cut;
            let pairs = a.pays.iter().zip(&b.pays).chain(a.leads.iter().zip(&b.leads).filter(|_| !cut));
            for ((name, x), (_, y)) in pairs {
                if let Some(difference) = Difference::between(name, ("one", x), ("the other", y)) {
                    let when = match ahead {
                        0 => "differ at once".into(),
                        1 => "differ after one more turn".into(),
                        n => format!("differ after {n} more turns"),
                    };
                    let why = format!("two states have one key, and {when}; one is of {one}, the other of {another}");
                    return Some(Finding { difference: Some(difference), ..Finding::from(why) });
                }
            }
            if cut {
                return None;
            }
        }
        None
    }
}

/// Runs one check, or says why not. Findings that know no remedy get that of the check.
fn held<C>(
    what: &'static str,
    not_asked: Option<&str>,
    remedy: &str,
    cases: impl IntoIterator<Item = C>,
    run: impl Fn(C) -> Result<(), Finding>,
) -> Check {
    if let Some(why) = not_asked {
        return Check { what, outcome: Outcome::NotAsked(why.into()) };
    }
    check(what, cases, |case| {
        run(case).map_err(|mut finding| {
            if finding.remedy.is_empty() {
                finding.remedy = remedy.into();
            }
            finding
        })
    })
}
