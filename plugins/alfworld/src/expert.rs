//! An expert that explores: it searches for what the task asks for where such things usually lie, takes it, treats it
//! and puts it where it belongs.
//!
//! It looks only where the agent could: at the observations, at the task sentence in the first of them, and at the
//! commands that are admissible. Where things usually lie it knows from a table counted over the training games
//! (`prior.tsv`, made by `examples/prior.rs`); the state of the game it never sees.
//!
//! All it remembers is folded from the turns so far, whoever chose the commands, so it can be asked in any state, and
//! asked again after a snapshot is restored.

use serde::{Deserialize, Serialize};

use crate::game::TaskType;
use crate::grammar::TASK_PREFIX;

/// What the task sentence asks for. Names are kinds: `mug`, not `mug 1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The kind of task.
    pub kind: TaskType,
    /// The kind of object.
    pub object: String,
    /// The kind of receptacle it goes to; for [`TaskType::LookAtObjInLight`] the kind of lamp.
    pub target: String,
}

impl Task {
    /// Reads a task sentence, such as `clean some mug and put it in desk.`
    pub fn read(sentence: &str) -> Option<Self> {
        use TaskType::{
            LookAtObjInLight as Look, PickAndPlaceSimple as Simple, PickCleanThenPlaceInRecep as Clean,
            PickCoolThenPlaceInRecep as Cool, PickHeatThenPlaceInRecep as Heat, PickTwoObjAndPlace as Two,
        };
        let words: Vec<&str> = sentence.trim().trim_end_matches('.').split(' ').collect();
        let (kind, object, target) = match words[..] {
            ["look", "at", object, "under", "the", lamp] => (Look, object, lamp),
            ["examine", "the", object, "with", "the", lamp] => (Look, object, lamp),
            ["put", "a" | "some", object, "in" | "on", target] => (Simple, object, target),
            ["put", "a", "clean", object, "in" | "on", target] => (Clean, object, target),
            ["put", "a", "hot", object, "in" | "on", target] => (Heat, object, target),
            ["put", "a", "cool", object, "in" | "on", target] => (Cool, object, target),
            ["clean", "some", object, "and", "put", "it", "in" | "on", target] => (Clean, object, target),
            ["heat", "some", object, "and", "put", "it", "in" | "on", target] => (Heat, object, target),
            ["cool", "some", object, "and", "put", "it", "in" | "on", target] => (Cool, object, target),
            ["put", "two", object, "in" | "on", target] => (Two, object, target),
            ["find", "two", object, "and", "put", "them", "in" | "on", target] => (Two, object, target),
            _ => return None,
        };
        Some(Self { kind, object: object.to_owned(), target: target.to_owned() })
    }

    /// Verb and kind of receptacle of the treatment the object needs.
    fn treatment(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            TaskType::PickCleanThenPlaceInRecep => Some(("clean", "sinkbasin")),
            TaskType::PickHeatThenPlaceInRecep => Some(("heat", "microwave")),
            TaskType::PickCoolThenPlaceInRecep => Some(("cool", "fridge")),
            _ => None,
        }
    }
}

/// What is known of a receptacle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    name: String,
    /// Whether it was seen closed; `None` as long as it was not seen.
    closed: Option<bool>,
    /// Whether everything in it that can be taken was seen.
    searched: bool,
    /// Whether a lamp in it would have been noticed.
    lit: bool,
    /// What was seen in it and not taken since.
    contents: Vec<String>,
}

/// What the expert has seen so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expert {
    task: Option<Task>,
    places: Vec<Place>,
    held: Option<String>,
    /// Where the held object cannot be put.
    refused: Vec<usize>,
    /// Objects that were treated the way the task asks.
    treated: Vec<String>,
    /// The places where the agent stands.
    here: Vec<usize>,
    /// A place where the lamp can be used.
    lamp: Option<usize>,
}

impl Expert {
    /// Starts from the first observation, which lists the receptacles and tells the task.
    pub fn new(intro: &str) -> Self {
        let (room, task) = intro.split_once(TASK_PREFIX).unwrap_or((intro, ""));
        let listed = room.split_once("you see ").map_or("", |(_, listed)| listed);
        let places = names(listed.trim_end().trim_end_matches('.'))
            .map(|name| Place { name: name.to_owned(), closed: None, searched: false, lit: false, contents: Vec::new() })
            .collect();
        Self {
            task: Task::read(task),
            places,
            held: None,
            refused: Vec::new(),
            treated: Vec::new(),
            here: Vec::new(),
            lamp: None,
        }
    }

    /// The next command after a whole episode so far: the first observation, then for each turn what was observed and
    /// what was admissible after it, and what is admissible now.
    pub fn next_action<'a>(
        intro: &str,
        turns: impl IntoIterator<Item = (&'a str, &'a [String])>,
        admissible: &[String],
    ) -> Option<String> {
        let mut expert = Self::new(intro);
        for (observation, admissible) in turns {
            expert.observe(observation, admissible);
        }
        expert.act(admissible)
    }

    /// The task it understood.
    pub fn task(&self) -> Option<&Task> {
        self.task.as_ref()
    }

    /// Takes in a turn: what was observed, which tells the command where it did anything, and what is admissible after
    /// it.
    pub fn observe(&mut self, observation: &str, admissible: &[String]) {
        let mut last = None;
        for sentence in observation.trim_end().trim_end_matches('.').split(". ") {
            self.sentence(sentence, &mut last);
        }
        let holding = self.held.is_some();
        self.here.clear();
        for name in admissible.iter().filter_map(|command| command.strip_prefix("examine ")) {
            self.here.extend(self.place(name));
        }
        for command in admissible {
            if let Some(name) = command.strip_prefix("open ") {
                self.with(name, |place| place.closed = Some(true));
            } else if let Some(name) = command.strip_prefix("close ") {
                self.with(name, |place| place.closed = Some(false));
            } else if let Some((object, name)) = command.strip_prefix("take ").and_then(|rest| rest.split_once(" from ")) {
                self.with(name, |place| place.add(object));
            } else if let Some(object) = command.strip_prefix("use ")
                && self.task.as_ref().is_some_and(|task| kind(object) == task.target)
            {
                self.lamp = self.here.first().copied();
            }
        }
        for &idx in &self.here {
            let place = &mut self.places[idx];
            if let Some(object) = &self.held
                && place.closed != Some(true)
                && Menu(admissible).put(object, &place.name).is_none()
                && !self.refused.contains(&idx)
            {
                self.refused.push(idx);
            }
            place.lit = true;
            // With empty hands everything within reach is offered for taking.
            place.searched |= !holding && place.closed != Some(true);
        }
    }

    fn sentence<'a>(&mut self, sentence: &'a str, last: &mut Option<&'a str>) {
        if let Some((name, listed)) = sentence.strip_prefix("On the ").and_then(|rest| rest.split_once(", you see ")) {
            self.with(name, |place| place.see(listed));
        } else if let Some(listed) = sentence.strip_prefix("In it, you see ") {
            if let Some(name) = *last {
                self.with(name, |place| place.see(listed));
            }
        } else if let Some(name) = sentence.strip_prefix("The ").and_then(|rest| rest.strip_suffix(" is open")) {
            *last = Some(name);
            self.with(name, |place| place.closed = Some(false));
        } else if let Some(name) = sentence.strip_prefix("The ").and_then(|rest| rest.strip_suffix(" is closed")) {
            self.with(name, |place| place.closed = Some(true));
        } else if let Some(name) = sentence.strip_prefix("You close the ") {
            self.with(name, |place| place.closed = Some(true));
        } else if let Some((object, name)) = between(sentence, "You pick up the ", " from the ") {
            self.with(name, |place| place.contents.retain(|found| found != object));
            self.held = Some(object.to_owned());
            self.refused.clear();
        } else if let Some((object, name)) =
            between(sentence, "You move the ", " to the ").or_else(|| between(sentence, "You put the ", " in/on the "))
        {
            self.with(name, |place| place.add(object));
            self.held = None;
        } else if let Some((verb, _)) = self.task.as_ref().and_then(Task::treatment) {
            if let Some((object, _)) = between(sentence, &format!("You {verb} the "), " using the ") {
                self.treated.push(object.to_owned());
            } else if let Some((object, _)) = between(sentence, &format!("You {} the ", opposite(verb)), " using the ") {
                self.treated.retain(|found| found != object);
            }
        }
    }

    /// What it does next: always one of the admissible commands, which must be in byte order; `None` only where there
    /// are none.
    pub fn act(&self, admissible: &[String]) -> Option<String> {
        let menu = Menu(admissible);
        let chosen = self.task.as_ref().and_then(|task| match &self.held {
            Some(object) if kind(object) == task.object => self.deliver(task, object, menu),
            Some(object) => self.put_away(object, menu),
            None => self.fetch(task, menu),
        });
        chosen.or_else(|| menu.find(&["look"])).or_else(|| admissible.first().cloned())
    }

    /// With the right object in hand: treat it, then put it where it belongs or use the lamp.
    fn deliver(&self, task: &Task, object: &str, menu: Menu<'_>) -> Option<String> {
        if task.kind == TaskType::LookAtObjInLight {
            if let Some(command) = menu.0.iter().find(|command| is_use_of(command, &task.target)) {
                return Some(command.clone());
            }
            if let Some(command) = self.lamp.and_then(|idx| menu.go_to(&self.places[idx].name)) {
                return Some(command);
            }
            return self.search(menu, &task.target, |place| !place.lit);
        }
        if let Some((verb, at)) = task.treatment().filter(|_| !self.treated.iter().any(|found| found == object)) {
            let treat = format!("{verb} {object} with ");
            if let Some(command) = menu.0.iter().find(|command| command.starts_with(&treat)) {
                return Some(command.clone());
            }
            return self.places.iter().filter(|place| kind(&place.name) == at).find_map(|place| menu.go_to(&place.name));
        }
        let target = self.target(task)?;
        menu.put(object, &target.name).or_else(|| menu.open(&target.name)).or_else(|| menu.go_to(&target.name))
    }

    /// With the wrong object in hand: put it down, here if possible, else where such things usually lie. Some games have
    /// objects that can be taken and fit nowhere; then there is nothing left to do.
    fn put_away(&self, object: &str, menu: Menu<'_>) -> Option<String> {
        let fits = |place: &&Place| menu.put(object, &place.name).is_some();
        if let Some(place) = self.places.iter().find(fits) {
            return menu.put(object, &place.name);
        }
        let prior = Prior::of(kind(object));
        let untried = self.places.iter().enumerate().filter(|(idx, _)| !self.refused.contains(idx));
        let reach = untried.filter_map(|(_, place)| {
            let (cost, command) = match menu.open(&place.name) {
                Some(command) => (1.0, command),
                None => (if opens(place) { 2.0 } else { 1.0 }, menu.go_to(&place.name)?),
            };
            Some((prior.share(kind(&place.name)) / cost, command))
        });
        // The first of the best.
        reach.rev().max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, command)| command)
    }

    /// With empty hands: take the object if it is in reach, go where it was seen, or search on.
    fn fetch(&self, task: &Task, menu: Menu<'_>) -> Option<String> {
        // Of two objects, one that already lies where both shall go stays there.
        let stays = if task.kind == TaskType::PickTwoObjAndPlace { self.target(task) } else { None };
        let elsewhere = self.places.iter().filter(|place| stays.is_none_or(|stays| stays.name != place.name));
        let wanted = |object: &&String| kind(object) == task.object && stays.is_none_or(|stays| !stays.contents.contains(object));
        let mut known: Vec<(&Place, &String)> =
            elsewhere.filter_map(|place| Some((place, place.contents.iter().find(wanted)?))).collect();
        if let Some(command) = known.iter().find_map(|(place, object)| menu.find(&["take ", object, " from ", &place.name])) {
            return Some(command);
        }
        known.sort_by_key(|(place, _)| place.closed == Some(true));
        let reach = |place: &Place| menu.open(&place.name).or_else(|| menu.go_to(&place.name));
        if let Some(command) = known.iter().find_map(|(place, _)| reach(place)) {
            return Some(command);
        }
        self.search(menu, &task.object, |place| !place.searched)
    }

    /// The place among those not searched yet with the best chance per command spent.
    fn search(&self, menu: Menu<'_>, for_what: &str, left: impl Fn(&Place) -> bool) -> Option<String> {
        let prior = Prior::of(for_what);
        let mut best: Option<(f64, String)> = None;
        for place in self.places.iter().filter(|place| left(place)) {
            let (cost, command) = if let Some(command) = menu.open(&place.name) {
                (1.0, command)
            } else if let Some(command) = menu.go_to(&place.name) {
                (if opens(place) { 2.0 } else { 1.0 }, command)
            } else if let Some(command) = menu.find(&["examine ", &place.name]) {
                (1.0, command)
            } else {
                continue;
            };
            let value = prior.share(kind(&place.name)) / cost;
            if best.as_ref().is_none_or(|(most, _)| value > *most) {
                best = Some((value, command));
            }
        }
        best.map(|(_, command)| command)
    }

    /// Where the object goes: the receptacle of the right kind that already has most of its kind, then one that is
    /// here, then one that needs no opening.
    fn target(&self, task: &Task) -> Option<&Place> {
        let of_kind = self.places.iter().enumerate().filter(|(_, place)| kind(&place.name) == task.target);
        let rank = |(idx, place): &(usize, &Place)| {
            let same = place.contents.iter().filter(|object| kind(object) == task.object).count();
            (same, self.here.contains(idx), !opens(place))
        };
        // The first of the best.
        of_kind.rev().max_by_key(rank).map(|(_, place)| place)
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.places.iter().position(|place| place.name == name)
    }

    fn with(&mut self, name: &str, change: impl FnOnce(&mut Place)) {
        if let Some(idx) = self.place(name) {
            change(&mut self.places[idx]);
        }
    }
}

impl Place {
    fn see(&mut self, listed: &str) {
        self.contents = names(listed).map(str::to_owned).collect();
        self.searched = true;
        self.lit = true;
    }

    fn add(&mut self, object: &str) {
        if !self.contents.iter().any(|found| found == object) {
            self.contents.push(object.to_owned());
        }
    }
}

/// The admissible commands, in byte order, for choosing.
#[derive(Clone, Copy)]
struct Menu<'a>(&'a [String]);

impl Menu<'_> {
    /// The command made of these parts.
    fn find(self, parts: &[&str]) -> Option<String> {
        let order = |found: &String| found.bytes().cmp(parts.iter().flat_map(|part| part.bytes()));
        self.0.binary_search_by(order).ok().map(|idx| self.0[idx].clone())
    }

    fn go_to(self, name: &str) -> Option<String> {
        self.find(&["go to ", name])
    }

    fn open(self, name: &str) -> Option<String> {
        self.find(&["open ", name])
    }

    fn put(self, object: &str, name: &str) -> Option<String> {
        self.find(&["move ", object, " to ", name]).or_else(|| self.find(&["put ", object, " in/on ", name]))
    }
}

/// `mug` for `mug 1`.
fn kind(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(kind, _)| kind)
}

fn is_use_of(command: &str, lamp: &str) -> bool {
    command.strip_prefix("use ").is_some_and(|object| kind(object) == lamp)
}

/// Whether a place has to be opened, or probably has to be.
fn opens(place: &Place) -> bool {
    let usually = matches!(kind(&place.name), "cabinet" | "drawer" | "fridge" | "microwave" | "safe");
    place.closed.unwrap_or(usually)
}

fn opposite(verb: &str) -> &str {
    match verb {
        "heat" => "cool",
        "cool" => "heat",
        _ => "dirty",
    }
}

/// The names in `a x, a y, and a z`.
fn names(listed: &str) -> impl Iterator<Item = &str> {
    listed.split(", ").filter_map(|item| item.strip_prefix("and ").unwrap_or(item).strip_prefix("a "))
}

fn between<'a>(sentence: &'a str, before: &str, link: &str) -> Option<(&'a str, &'a str)> {
    sentence.strip_prefix(before)?.split_once(link)
}

/// Where things of a kind lie: a line of `prior.tsv`, `object`, then `receptacle=share` for each kind of receptacle:
/// the share of such receptacles that contained such an object, over the training games whose task asks for it.
#[derive(Clone, Copy)]
struct Prior(&'static str);

impl Prior {
    const NEVER_SEEN: f64 = 0.001;

    fn of(object: &str) -> Self {
        let mut lines = include_str!("prior.tsv").lines();
        Self(lines.find_map(|line| line.strip_prefix(object)?.strip_prefix('\t')).unwrap_or(""))
    }

    /// How often a kind of receptacle contains it; a little for what was never seen.
    fn share(self, receptacle: &str) -> f64 {
        let mut cells = self.0.split('\t');
        let share = cells.find_map(|cell| cell.strip_prefix(receptacle)?.strip_prefix('=')?.parse().ok());
        share.unwrap_or(Self::NEVER_SEEN)
    }
}
