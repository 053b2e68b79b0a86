//! Playing a game: its texts, its commands, and what they do.
//!
//! Texts and effects follow the original environment byte for byte, its oddities included: two-item lists have a
//! comma, heating works with a closed microwave, `use` always says "turn on", and a list of what lies "next to" a
//! place shows only what was once taken from a receptacle there and is back at that place through another.

use std::fmt::Write as _;

use crate::bits;
use crate::game::{Flag, Game, ObjectId, ReceptacleId, Thing};
use crate::grammar::{TASK_PREFIX, Variant};
use crate::state::{NOTHING, State};

/// Turns after which an episode is cut off unless it is configured otherwise.
pub const MAX_TURNS: usize = 50;

/// What a command that matches nothing is answered with.
pub const NOTHING_HAPPENS: &str = "Nothing happens.";

const WELCOME: &str = "-= Welcome to TextWorld, ALFRED! =-\n\n";

pub(crate) const HELP: &str = "\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
";

/// A command in the terms of one game.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `look`
    Look,
    /// `inventory`
    Inventory,
    /// `help`
    Help,
    /// `go to R`
    GoTo(ReceptacleId),
    /// `examine R`
    ExamineReceptacle(ReceptacleId),
    /// `examine O`
    ExamineObject(ObjectId),
    /// `open R`
    Open(ReceptacleId),
    /// `close R`
    Close(ReceptacleId),
    /// `take O from R`
    Take(ObjectId, ReceptacleId),
    /// `move O to R`, or `put O in/on R`
    Put(ObjectId, ReceptacleId),
    /// `clean O with R`
    Clean(ObjectId, ReceptacleId),
    /// `heat O with R`
    Heat(ObjectId, ReceptacleId),
    /// `cool O with R`
    Cool(ObjectId, ReceptacleId),
    /// `use O`
    Use(ObjectId),
    /// `slice O with KNIFE`
    Slice(ObjectId, ObjectId),
}

use Command as C;

impl Game {
    /// The first observation: welcome, surroundings, task.
    pub fn intro(&self) -> String {
        let mut out = String::with_capacity(1024);
        out.push_str(WELCOME);
        self.look(&self.start, false, &mut out);
        out.push_str("\n\n");
        out.push_str(TASK_PREFIX);
        out.push_str(&self.task);
        out
    }

    /// Carries out a command as typed and appends what is observed.
    ///
    /// White space around the command is ignored, case is not. A command that is not applicable changes nothing and
    /// is answered with [`NOTHING_HAPPENS`]; then `None` is returned.
    pub fn step(&self, state: &mut State, command: &str, out: &mut String) -> Option<Command> {
        let command = self.command(command).filter(|&command| self.applicable(state, command));
        match command {
            Some(command) => self.carry_out(state, command, out),
            None => out.push_str(NOTHING_HAPPENS),
        }
        command
    }

    /// Carries out a command and appends what is observed; false, and [`NOTHING_HAPPENS`], where it is not applicable.
    pub fn apply(&self, state: &mut State, command: Command, out: &mut String) -> bool {
        let applicable = self.applicable(state, command);
        if applicable {
            self.carry_out(state, command, out);
        } else {
            out.push_str(NOTHING_HAPPENS);
        }
        applicable
    }

    /// The command of a text, whether or not it is applicable.
    pub fn command(&self, text: &str) -> Option<Command> {
        let text = strip(text);
        let (verb, rest) = match text.split_once(' ') {
            Some((verb, rest)) => (verb, rest),
            None => (text, ""),
        };
        match verb {
            "go" => rest.strip_prefix("to ").and_then(|name| self.receptacle(name)).map(C::GoTo),
            "take" => self.two(rest, "from ").map(|(o, r)| C::Take(o, r)),
            "move" if self.variant == Variant::V042 => self.two(rest, "to ").map(|(o, r)| C::Put(o, r)),
            "put" if self.variant == Variant::V211 => self.two(rest, "in/on ").map(|(o, r)| C::Put(o, r)),
            "open" => self.receptacle(rest).map(C::Open),
            "close" => self.receptacle(rest).map(C::Close),
            "examine" => self.thing(rest).map(|thing| match thing {
                Thing::Object(o) => C::ExamineObject(ObjectId(o)),
                Thing::Receptacle(r) => C::ExamineReceptacle(ReceptacleId(r)),
            }),
            "clean" => self.two(rest, "with ").map(|(o, r)| C::Clean(o, r)),
            "heat" => self.two(rest, "with ").map(|(o, r)| C::Heat(o, r)),
            "cool" => self.two(rest, "with ").map(|(o, r)| C::Cool(o, r)),
            "use" => self.object(rest).map(C::Use),
            "slice" => {
                let (what, knife) = split_name(rest)?;
                let knife = knife.strip_prefix("with ")?;
                Some(C::Slice(self.object(what)?, self.object(knife)?))
            }
            "look" if text == "look" => Some(C::Look),
            "inventory" if text == "inventory" => Some(C::Inventory),
            "help" if text == "help" && self.variant == Variant::V042 => Some(C::Help),
            _ => None,
        }
    }

    /// Appends a command as it is typed.
    pub fn write_command(&self, command: Command, out: &mut String) {
        let mut write = |parts: &[&str]| parts.iter().for_each(|part| out.push_str(part));
        let object = |o| self.object_name(o);
        let receptacle = |r| self.receptacle_name(r);
        match command {
            C::Look => write(&["look"]),
            C::Inventory => write(&["inventory"]),
            C::Help => write(&["help"]),
            C::GoTo(r) => write(&["go to ", receptacle(r)]),
            C::ExamineReceptacle(r) => write(&["examine ", receptacle(r)]),
            C::ExamineObject(o) => write(&["examine ", object(o)]),
            C::Open(r) => write(&["open ", receptacle(r)]),
            C::Close(r) => write(&["close ", receptacle(r)]),
            C::Take(o, r) => write(&["take ", object(o), " from ", receptacle(r)]),
            C::Put(o, r) => match self.variant {
                Variant::V211 => write(&["put ", object(o), " in/on ", receptacle(r)]),
                Variant::V042 => write(&["move ", object(o), " to ", receptacle(r)]),
            },
            C::Clean(o, r) => write(&["clean ", object(o), " with ", receptacle(r)]),
            C::Heat(o, r) => write(&["heat ", object(o), " with ", receptacle(r)]),
            C::Cool(o, r) => write(&["cool ", object(o), " with ", receptacle(r)]),
            C::Use(o) => write(&["use ", object(o)]),
            C::Slice(o, knife) => write(&["slice ", object(o), " with ", object(knife)]),
        }
    }

    /// A command as it is typed.
    pub fn command_text(&self, command: Command) -> String {
        let mut text = String::with_capacity(48);
        self.write_command(command, &mut text);
        text
    }

    /// Every applicable command, each once, in the byte order of the texts.
    pub fn admissible(&self, state: &State) -> Vec<String> {
        let mut commands = Vec::with_capacity(64);
        self.admissible_commands(state, &mut commands);
        commands.iter().map(|&command| self.command_text(command)).collect()
    }

    /// The same without texts. `commands` is emptied first.
    pub fn admissible_commands(&self, state: &State, commands: &mut Vec<Command>) {
        commands.clear();
        let layout = self.layout;
        let location = &self.locations[usize::from(state.location)];
        let here = || location.here_by_name.iter().map(|&r| (ReceptacleId(r), &self.receptacles[usize::from(r)]));
        let opened = &state.words[layout.opened()];
        let held = state.held();

        // Families of commands in the byte order of their verbs; within each, in the order of names.
        if let Some(o) = held.filter(|o| bits::has(&self.masks.cleanable, o.0)) {
            commands.extend(here().filter(|(_, rec)| rec.cleans).map(|(r, _)| C::Clean(o, r)));
        }
        commands.extend(here().filter(|(r, rec)| rec.openable && bits::has(opened, r.0)).map(|(r, _)| C::Close(r)));
        if let Some(o) = held.filter(|o| bits::has(&self.masks.coolable, o.0)) {
            commands.extend(here().filter(|(_, rec)| rec.cools).map(|(r, _)| C::Cool(o, r)));
        }
        let rank = held.map_or(u16::MAX, |o| self.objects[usize::from(o.0)].rank);
        commands.extend(here().filter(|(_, rec)| rec.rank < rank).map(|(r, _)| C::ExamineReceptacle(r)));
        if let Some(o) = held {
            commands.push(C::ExamineObject(o));
            commands.extend(here().filter(|(_, rec)| rec.rank > rank).map(|(r, _)| C::ExamineReceptacle(r)));
        }
        for &r in &self.receptacles_by_name {
            if self.receptacles[usize::from(r)].location != state.location {
                commands.push(C::GoTo(ReceptacleId(r)));
            }
        }
        if let Some(o) = held.filter(|o| bits::has(&self.masks.heatable, o.0)) {
            commands.extend(here().filter(|(_, rec)| rec.heats).map(|(r, _)| C::Heat(o, r)));
        }
        if self.variant == Variant::V042 {
            commands.push(C::Help);
        }
        commands.push(C::Inventory);
        commands.push(C::Look);
        let accessible = || here().filter(|(r, rec)| !rec.openable || bits::has(opened, r.0)).map(|(r, _)| r);
        let puts = |o: ObjectId| {
            accessible().filter(move |r| bits::has(&self.fits[layout.contents(r.0)], o.0)).map(move |r| C::Put(o, r))
        };
        // `move` stands before `open`, `put` after it.
        if let (Some(o), Variant::V042) = (held, self.variant) {
            commands.extend(puts(o));
        }
        commands.extend(here().filter(|(r, rec)| rec.openable && !bits::has(opened, r.0)).map(|(r, _)| C::Open(r)));
        if let (Some(o), Variant::V211) = (held, self.variant) {
            commands.extend(puts(o));
        }
        if let Some(knife) = held.filter(|o| self.objects[usize::from(o.0)].knife) {
            let at_location = &state.words[layout.at_location(state.location)];
            let first = commands.len();
            for (i, (here, able)) in at_location.iter().zip(&self.masks.sliceable).enumerate() {
                commands.extend(bits::word_members(here & able, i).map(|o| C::Slice(ObjectId(o), knife)));
            }
            self.sort_by_object(&mut commands[first..]);
        }
        if held.is_none() {
            let first = commands.len();
            for r in accessible() {
                let contents = &state.words[layout.contents(r.0)];
                for (i, (inside, able)) in contents.iter().zip(&self.masks.pickupable).enumerate() {
                    commands.extend(bits::word_members(inside & able, i).map(|o| C::Take(ObjectId(o), r)));
                }
            }
            self.sort_by_object(&mut commands[first..]);
        }
        let first = commands.len();
        for (i, able) in self.masks.toggleable.iter().enumerate() {
            let inside = location.here.iter().fold(0, |all, &r| all | state.words[layout.contents(r)][i]);
            commands.extend(bits::word_members(inside & able, i).map(|o| C::Use(ObjectId(o))));
        }
        self.sort_by_object(&mut commands[first..]);
    }

    /// Sorts commands of one family by the name of their object; equal ones keep their order. Families are short.
    fn sort_by_object(&self, commands: &mut [Command]) {
        let rank = |command: &Command| match *command {
            C::Take(o, _) | C::Use(o) | C::Slice(o, _) => self.objects[usize::from(o.0)].rank,
            _ => 0,
        };
        for i in 1..commands.len() {
            let command = commands[i];
            let key = rank(&command);
            let mut j = i;
            while j > 0 && rank(&commands[j - 1]) > key {
                commands[j] = commands[j - 1];
                j -= 1;
            }
            commands[j] = command;
        }
    }

    /// Whether a command would do something else than nothing.
    pub fn applicable(&self, state: &State, command: Command) -> bool {
        let layout = self.layout;
        let here = |r: ReceptacleId| self.receptacles.get(usize::from(r.0)).is_some_and(|rec| rec.location == state.location);
        let open = |r: ReceptacleId| bits::has(&state.words[layout.opened()], r.0);
        let openable = |r: ReceptacleId| self.receptacles[usize::from(r.0)].openable;
        let accessible = |r: ReceptacleId| !openable(r) || open(r);
        let real = |o: ObjectId| usize::from(o.0) < self.objects.len();
        let holds = |o: ObjectId| state.held == o.0 && real(o);
        match command {
            C::Look | C::Inventory => true,
            C::Help => self.variant == Variant::V042,
            C::GoTo(r) => self.receptacles.get(usize::from(r.0)).is_some_and(|rec| rec.location != state.location),
            C::ExamineReceptacle(r) => here(r),
            C::ExamineObject(o) => holds(o),
            C::Open(r) => here(r) && openable(r) && !open(r),
            C::Close(r) => here(r) && openable(r) && open(r),
            C::Take(o, r) => {
                here(r)
                    && real(o)
                    && state.held == NOTHING
                    && accessible(r)
                    && bits::has(&self.masks.pickupable, o.0)
                    && bits::has(&state.words[layout.contents(r.0)], o.0)
            }
            C::Put(o, r) => holds(o) && here(r) && accessible(r) && bits::has(&self.fits[layout.contents(r.0)], o.0),
            C::Clean(o, r) => {
                holds(o) && here(r) && self.receptacles[usize::from(r.0)].cleans && bits::has(&self.masks.cleanable, o.0)
            }
            C::Heat(o, r) => {
                holds(o) && here(r) && self.receptacles[usize::from(r.0)].heats && bits::has(&self.masks.heatable, o.0)
            }
            C::Cool(o, r) => {
                holds(o) && here(r) && self.receptacles[usize::from(r.0)].cools && bits::has(&self.masks.coolable, o.0)
            }
            C::Use(o) => {
                real(o)
                    && bits::has(&self.masks.toggleable, o.0)
                    && self.locations[usize::from(state.location)]
                        .here
                        .iter()
                        .any(|&r| bits::has(&state.words[layout.contents(r)], o.0))
            }
            C::Slice(o, knife) => {
                holds(knife)
                    && real(o)
                    && self.objects[usize::from(knife.0)].knife
                    && bits::has(&self.masks.sliceable, o.0)
                    && bits::has(&state.words[layout.at_location(state.location)], o.0)
            }
        }
    }

    /// The effects and the text of an applicable command.
    fn carry_out(&self, state: &mut State, command: Command, out: &mut String) {
        let layout = self.layout;
        let object = |o| self.object_name(o);
        let receptacle = |r| self.receptacle_name(r);
        match command {
            C::Look => self.look(state, true, out),
            C::Inventory => match state.held() {
                Some(o) => push(out, &["You are carrying: a ", object(o), "."]),
                None => out.push_str("You are not carrying anything."),
            },
            C::Help => out.push_str(HELP),
            C::GoTo(r) => {
                state.location = self.receptacles[usize::from(r.0)].location;
                let name = match self.variant {
                    Variant::V211 => &self.locations[usize::from(state.location)].name,
                    Variant::V042 => receptacle(r),
                };
                push(out, &["You arrive at ", name, ". "]);
                self.examine_receptacle(state, r, out);
            }
            C::ExamineReceptacle(r) => self.examine_receptacle(state, r, out),
            C::ExamineObject(o) => self.examine_object(state, o, out),
            C::Open(r) => {
                bits::set(&mut state.words[layout.opened()], r.0);
                push(out, &["You open the ", receptacle(r), ". "]);
                self.examine_receptacle(state, r, out);
            }
            C::Close(r) => {
                bits::clear(&mut state.words[layout.opened()], r.0);
                push(out, &["You close the ", receptacle(r), "."]);
            }
            C::Take(o, r) => {
                state.held = o.0;
                bits::clear(&mut state.words[layout.contents(r.0)], o.0);
                bits::set(&mut state.words[layout.removed(r.0)], o.0);
                bits::clear(&mut state.words[layout.at_location(state.location)], o.0);
                push(out, &["You pick up the ", object(o), " from the ", receptacle(r), "."]);
            }
            C::Put(o, r) => {
                state.held = NOTHING;
                bits::set(&mut state.words[layout.contents(r.0)], o.0);
                bits::clear(&mut state.words[layout.removed(r.0)], o.0);
                bits::set(&mut state.words[layout.at_location(state.location)], o.0);
                match self.variant {
                    Variant::V211 => push(out, &["You put the ", object(o), " in/on the ", receptacle(r), "."]),
                    Variant::V042 => push(out, &["You move the ", object(o), " to the ", receptacle(r), "."]),
                }
            }
            C::Clean(o, r) => {
                bits::set(&mut state.words[layout.flag(Flag::Clean)], o.0);
                push(out, &["You clean the ", object(o), " using the ", receptacle(r), "."]);
            }
            C::Heat(o, r) => {
                bits::set(&mut state.words[layout.flag(Flag::Hot)], o.0);
                bits::clear(&mut state.words[layout.flag(Flag::Cool)], o.0);
                push(out, &["You heat the ", object(o), " using the ", receptacle(r), "."]);
            }
            C::Cool(o, r) => {
                bits::set(&mut state.words[layout.flag(Flag::Cool)], o.0);
                bits::clear(&mut state.words[layout.flag(Flag::Hot)], o.0);
                push(out, &["You cool the ", object(o), " using the ", receptacle(r), "."]);
            }
            C::Use(o) => {
                bits::set(&mut state.words[layout.flag(Flag::Toggled)], o.0);
                push(out, &["You turn on the ", object(o), "."]);
            }
            C::Slice(o, knife) => {
                bits::set(&mut state.words[layout.flag(Flag::Sliced)], o.0);
                push(out, &["You sliced the ", object(o), " with the ", object(knife), "."]);
            }
        }
    }

    fn examine_receptacle(&self, state: &State, r: ReceptacleId, out: &mut String) {
        let receptacle = &self.receptacles[usize::from(r.0)];
        match (receptacle.openable, bits::has(&state.words[self.layout.opened()], r.0)) {
            (true, false) => return push(out, &["The ", &receptacle.name, " is closed."]),
            (true, true) => push(out, &["The ", &receptacle.name, " is open. In it, you see "]),
            (false, _) => push(out, &["On the ", &receptacle.name, ", you see "]),
        }
        let contents = &state.words[self.layout.contents(r.0)];
        let mut list = List::new(bits::count(contents), out);
        for o in bits::members(contents) {
            list.push("a ", &self.objects[usize::from(o)].name);
        }
        out.push('.');
    }

    fn examine_object(&self, state: &State, o: ObjectId, out: &mut String) {
        let object = &self.objects[usize::from(o.0)];
        let name = &object.name;
        if let Some(inside) = &object.inside {
            push(out, &["This is a normal ", name, ". In it, you see "]);
            let mut list = List::new(inside.len() as u32, out);
            inside.iter().for_each(|name| list.push("a ", name));
            return out.push('.');
        }
        let is = |flag| bits::has(&state.words[self.layout.flag(flag)], o.0);
        let (clean, hot, cool, sliced) = (is(Flag::Clean), is(Flag::Hot), is(Flag::Cool), is(Flag::Sliced));
        // The first rule that holds, in the order of the grammar.
        let quality = match (clean, hot, cool, sliced) {
            (true, true, _, true) => "hot and clean sliced ",
            (true, _, true, true) => "cool and clean sliced ",
            (true, _, _, true) => "clean sliced ",
            (_, true, _, true) => "hot sliced ",
            (_, _, true, true) => "cool sliced ",
            (true, true, _, _) => "hot and clean ",
            (true, _, true, _) => "cool and clean ",
            (_, true, _, _) => "hot ",
            (true, _, _, _) => "clean ",
            (_, _, true, _) => "cold ",
            _ if bits::has(&self.masks.toggleable, o.0) && is(Flag::Toggled) => {
                return push(out, &["This ", name, " is on."]);
            }
            (_, _, _, true) if bits::has(&self.masks.sliceable, o.0) => "sliced ",
            _ => return push(out, &["There's nothing special about ", name, "."]),
        };
        push(out, &["This is a ", quality, name, "."]);
    }

    /// What is around. As a command the location is bound, so the middle of the room shows nothing; the intro lists
    /// every receptacle there.
    fn look(&self, state: &State, as_command: bool, out: &mut String) {
        let location = &self.locations[usize::from(state.location)];
        if location.here.is_empty() {
            out.push_str("You are in the middle of a room. Looking quickly around you, you see ");
            let shown = if as_command { &[][..] } else { &self.receptacles[..] };
            let mut list = List::new(shown.len() as u32, out);
            shown.iter().for_each(|receptacle| list.push("a ", &receptacle.name));
            return out.push('.');
        }
        out.push_str("You are facing the ");
        let mut list = List::new(location.here.len() as u32, out);
        location.here.iter().for_each(|&r| list.push("", &self.receptacles[usize::from(r)].name));
        out.push_str(". Next to it, you see ");
        let at_location = &state.words[self.layout.at_location(state.location)];
        let removed = |r: u16| &state.words[self.layout.removed(r)];
        let shared = |r: u16| at_location.iter().zip(removed(r)).map(|(a, b)| (a & b).count_ones()).sum::<u32>();
        let mut list = List::new(location.here.iter().map(|&r| shared(r)).sum(), out);
        for o in bits::members(at_location) {
            // Once for each receptacle here that it was taken from.
            for _ in location.here.iter().filter(|&&r| bits::has(removed(r), o)) {
                list.push("a ", &self.objects[usize::from(o)].name);
            }
        }
        out.push('.');
    }

    fn receptacle(&self, name: &str) -> Option<ReceptacleId> {
        match self.thing(name)? {
            Thing::Receptacle(r) => Some(ReceptacleId(r)),
            Thing::Object(_) => None,
        }
    }

    fn object(&self, name: &str) -> Option<ObjectId> {
        match self.thing(name)? {
            Thing::Object(o) => Some(ObjectId(o)),
            Thing::Receptacle(_) => None,
        }
    }

    /// `OBJECT link RECEPTACLE`.
    fn two(&self, text: &str, link: &str) -> Option<(ObjectId, ReceptacleId)> {
        let (object, rest) = split_name(text)?;
        Some((self.object(object)?, self.receptacle(rest.strip_prefix(link)?)?))
    }

    /// The steps of a walkthrough as privileged text: one numbered command a line.
    pub fn numbered(walkthrough: &[String]) -> String {
        let mut text = String::new();
        for (i, command) in walkthrough.iter().enumerate() {
            let _ = writeln!(text, "{}. {command}", i + 1);
        }
        text
    }
}

/// A name and what follows it: every name has exactly one space in it.
fn split_name(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let first = bytes.iter().position(|&b| b == b' ')?;
    let second = first + 1 + bytes[first + 1..].iter().position(|&b| b == b' ')?;
    Some((&text[..second], &text[second + 1..]))
}

/// Strips white space as Python does.
fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}

#[inline]
fn push(out: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| out.push_str(part));
}

/// Writes `nothing`, `a x`, `a x, and a y`, `a x, a y, and a z`.
struct List<'a> {
    out: &'a mut String,
    len: u32,
    next: u32,
}

impl<'a> List<'a> {
    fn new(len: u32, out: &'a mut String) -> Self {
        if len == 0 {
            out.push_str("nothing");
        }
        Self { out, len, next: 0 }
    }

    #[inline]
    fn push(&mut self, article: &str, name: &str) {
        if self.next > 0 {
            self.out.push_str(if self.next + 1 == self.len { ", and " } else { ", " });
        }
        self.next += 1;
        self.out.push_str(article);
        self.out.push_str(name);
    }
}
