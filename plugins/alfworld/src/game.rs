//! The unchanging part of a game: who exists, where it can be, what it is called, and what wins.
//!
//! A game is compiled once from its problem text. Objects and receptacles get small integer ids in the order of their
//! PDDL names, so a set of objects is a few machine words and lists come out in the order the original prints them.
//!
//! Only objects that can ever be seen or touched are kept: those that lie in a receptacle at the start, the one that
//! is held, and sliceable ones that stand where the agent can stand.

use std::fmt;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bits;
use crate::goal::{self, Goal};
use crate::grammar::Variant;
use crate::pddl::{self, Fact, PddlError, shorten};
use crate::state::{NOTHING, State};

/// Index of an object of a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u16);

/// Index of a receptacle of a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceptacleId(pub u16);

/// The six kinds of task, under the names of the ALFRED data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskType {
    /// Hold an object where a lamp was switched on.
    LookAtObjInLight,
    /// Put an object into a kind of receptacle.
    PickAndPlaceSimple,
    /// The same, with the object cleaned.
    PickCleanThenPlaceInRecep,
    /// The same, with the object cooled.
    PickCoolThenPlaceInRecep,
    /// The same, with the object heated.
    PickHeatThenPlaceInRecep,
    /// Put two objects of a kind into one receptacle.
    PickTwoObjAndPlace,
}

impl TaskType {
    /// All six, in the order of their names.
    pub const ALL: [Self; 6] = [
        Self::LookAtObjInLight,
        Self::PickAndPlaceSimple,
        Self::PickCleanThenPlaceInRecep,
        Self::PickCoolThenPlaceInRecep,
        Self::PickHeatThenPlaceInRecep,
        Self::PickTwoObjAndPlace,
    ];

    /// The name in the ALFRED data.
    pub fn name(self) -> &'static str {
        match self {
            Self::LookAtObjInLight => "look_at_obj_in_light",
            Self::PickAndPlaceSimple => "pick_and_place_simple",
            Self::PickCleanThenPlaceInRecep => "pick_clean_then_place_in_recep",
            Self::PickCoolThenPlaceInRecep => "pick_cool_then_place_in_recep",
            Self::PickHeatThenPlaceInRecep => "pick_heat_then_place_in_recep",
            Self::PickTwoObjAndPlace => "pick_two_obj_and_place",
        }
    }
}

impl fmt::Display for TaskType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A place where the agent can stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Shown on arrival in [`Variant::V211`].
    pub(crate) name: String,
    /// The receptacles here, by id.
    pub(crate) here: Vec<u16>,
    /// The same, by name.
    pub(crate) here_by_name: Vec<u16>,
}

/// A receptacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receptacle {
    pub(crate) name: String,
    pub(crate) location: u16,
    pub(crate) openable: bool,
    pub(crate) cleans: bool,
    pub(crate) heats: bool,
    pub(crate) cools: bool,
    /// Place among objects and receptacles in the order of names.
    pub(crate) rank: u16,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) name: String,
    pub(crate) knife: bool,
    /// What is listed inside it, for an object that is a receptacle itself.
    pub(crate) inside: Option<Vec<String>>,
    /// Place among objects and receptacles in the order of names.
    pub(crate) rank: u16,
}

/// What a name in a command means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Object(u16),
    Receptacle(u16),
}

/// Fixed sets of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Masks {
    pub(crate) pickupable: Vec<u64>,
    pub(crate) toggleable: Vec<u64>,
    pub(crate) cleanable: Vec<u64>,
    pub(crate) heatable: Vec<u64>,
    pub(crate) coolable: Vec<u64>,
    pub(crate) sliceable: Vec<u64>,
}

/// Where the parts of a state lie among its words: every part is a list of rows, a row a set of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Words in a row.
    pub(crate) row: usize,
    pub(crate) n_receptacles: usize,
    pub(crate) n_locations: usize,
}

/// One row of flags per object, in the order they lie in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    Clean,
    Hot,
    Cool,
    Sliced,
    Toggled,
}

const N_FLAGS: usize = 5;

impl Layout {
    fn row_at(&self, idx: usize) -> Range<usize> {
        idx * self.row..(idx + 1) * self.row
    }

    /// `inReceptacle(·, r)`.
    pub(crate) fn contents(&self, receptacle: u16) -> Range<usize> {
        self.row_at(usize::from(receptacle))
    }

    /// `not_inReceptacle(·, r)`.
    pub(crate) fn removed(&self, receptacle: u16) -> Range<usize> {
        self.row_at(self.n_receptacles + usize::from(receptacle))
    }

    /// `objectAtLocation(·, l)`.
    pub(crate) fn at_location(&self, location: u16) -> Range<usize> {
        self.row_at(2 * self.n_receptacles + usize::from(location))
    }

    /// A flag of every object.
    pub(crate) fn flag(&self, flag: Flag) -> Range<usize> {
        self.row_at(2 * self.n_receptacles + self.n_locations + flag as usize)
    }

    /// `opened(·)`, a set of receptacles.
    pub(crate) fn opened(&self) -> Range<usize> {
        let start = (2 * self.n_receptacles + self.n_locations + N_FLAGS) * self.row;
        start..start + bits::words(self.n_receptacles)
    }

    /// Words in a state.
    pub(crate) fn n_words(&self) -> usize {
        self.opened().end
    }
}

/// A compiled game. It never changes; what does is a [`State`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Game {
    pub(crate) variant: Variant,
    pub(crate) task: String,
    pub(crate) goal: Goal,
    pub(crate) fingerprint: [u8; 16],
    pub(crate) objects: Vec<Object>,
    pub(crate) receptacles: Vec<Receptacle>,
    pub(crate) receptacles_by_name: Vec<u16>,
    pub(crate) locations: Vec<Location>,
    /// Objects and receptacles by name.
    pub(crate) things: Vec<Thing>,
    /// Finds a thing by its name: positions in `things`, at the hash of the name or behind it.
    slots: Vec<u16>,
    pub(crate) masks: Masks,
    /// What each receptacle may hold, a row per receptacle.
    pub(crate) fits: Vec<u64>,
    pub(crate) layout: Layout,
    /// Every bit that any sequence of commands could set.
    pub(crate) reachable: Vec<u64>,
    pub(crate) start: State,
}

impl Game {
    /// Compiles a game from its problem text, its task sentence and the variant of its texts.
    ///
    /// Errors name what is wrong and the place in the problem text.
    pub fn new(problem: &str, task: &str, variant: Variant) -> Result<Self, PddlError> {
        let text = pddl::lower(problem);
        let problem = pddl::problem(&text)?;
        Compiler::new(&text, &problem)?.game(task, variant)
    }

    /// The variant of the texts.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The task sentence, such as `put a clean mug in desk.`
    pub fn task(&self) -> &str {
        &self.task
    }

    /// The kind of task, told from the goal.
    pub fn task_type(&self) -> TaskType {
        self.goal.task_type()
    }

    /// Identifies the game: equal exactly for equal facts, goal, task sentence and variant.
    pub fn fingerprint(&self) -> [u8; 16] {
        self.fingerprint
    }

    /// The state in which the game starts.
    pub fn start(&self) -> &State {
        &self.start
    }

    /// Number of objects that can be seen or touched.
    pub fn n_objects(&self) -> usize {
        self.objects.len()
    }

    /// Number of receptacles.
    pub fn n_receptacles(&self) -> usize {
        self.receptacles.len()
    }

    /// Name of an object, such as `mug 1`.
    pub fn object_name(&self, object: ObjectId) -> &str {
        &self.objects[usize::from(object.0)].name
    }

    /// Name of a receptacle, such as `desk 1`.
    pub fn receptacle_name(&self, receptacle: ReceptacleId) -> &str {
        &self.receptacles[usize::from(receptacle.0)].name
    }

    /// What lies in a receptacle, whether or not the agent could see it.
    pub fn contents<'a>(&self, state: &'a State, receptacle: ReceptacleId) -> impl Iterator<Item = ObjectId> + use<'a> {
        bits::members(&state.words[self.layout.contents(receptacle.0)]).map(ObjectId)
    }

    /// The names of all objects and receptacles, in byte order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.things.iter().map(|&thing| self.thing_name(thing))
    }

    /// The names of the places where the agent can stand, which [`Variant::V211`] shows on arrival.
    pub fn place_names(&self) -> impl Iterator<Item = &str> {
        self.locations.iter().map(|location| location.name.as_str())
    }

    pub(crate) fn thing_name(&self, thing: Thing) -> &str {
        match thing {
            Thing::Object(o) => &self.objects[usize::from(o)].name,
            Thing::Receptacle(r) => &self.receptacles[usize::from(r)].name,
        }
    }

    /// The object or receptacle of a name.
    pub(crate) fn thing(&self, name: &str) -> Option<Thing> {
        let last = self.slots.len() - 1;
        let mut slot = hash(name) & last;
        // At least half of the slots are empty.
        while self.slots[slot] != NOTHING {
            let thing = self.things[usize::from(self.slots[slot])];
            if self.thing_name(thing) == name {
                return Some(thing);
            }
            slot = (slot + 1) & last;
        }
        None
    }
}

/// The kind of symbol each place of a predicate takes, by name. Only what games contain initially, and what commands change.
const PREDICATES: [(&str, &[&str]); 24] = [
    ("atlocation", &["agent", "location"]),
    ("cancontain", &["rtype", "otype"]),
    ("cleanable", &["object"]),
    ("coolable", &["object"]),
    ("heatable", &["object"]),
    ("holds", &["agent", "object"]),
    ("holdsany", &["agent"]),
    ("inreceptacle", &["object", "receptacle"]),
    ("inreceptacleobject", &["object", "object"]),
    ("isclean", &["object"]),
    ("iscool", &["object"]),
    ("ishot", &["object"]),
    ("isreceptacleobject", &["object"]),
    ("issliced", &["object"]),
    ("istoggled", &["object"]),
    ("objectatlocation", &["object", "location"]),
    ("objecttype", &["object", "otype"]),
    ("openable", &["receptacle"]),
    ("opened", &["receptacle"]),
    ("pickupable", &["object"]),
    ("receptacleatlocation", &["receptacle", "location"]),
    ("receptacletype", &["receptacle", "rtype"]),
    ("sliceable", &["object"]),
    ("toggleable", &["object"]),
];

/// Facts with their symbols replaced by positions in the sorted list of symbols.
struct Compiler<'a> {
    text: &'a str,
    problem: &'a pddl::Problem<'a>,
    /// Every symbol that occurs in a fact, ascending.
    symbols: Vec<&'a str>,
    /// Its kind.
    kinds: Vec<&'a str>,
    /// Facts, ascending and without repetitions: predicate, symbols, place.
    facts: Vec<(&'a str, [u32; 2], usize)>,
}

const NO_SYMBOL: u32 = u32::MAX;

/// Most symbols, and most words of a state, that are read, so that every id fits into 16 bits. Real games have about 250 symbols and 200 words.
const MAX_SYMBOLS: usize = 16_384;
const MAX_WORDS: usize = 16_384;

impl<'a> Compiler<'a> {
    fn new(text: &'a str, problem: &'a pddl::Problem<'a>) -> Result<Self, PddlError> {
        let mut symbols: Vec<&str> = problem.init.iter().flat_map(|fact| fact.args.iter().copied()).collect();
        symbols.sort_unstable();
        symbols.dedup();
        let mut kinds = vec![""; symbols.len()];
        for object in &problem.objects {
            let Ok(idx) = symbols.binary_search(&object.name) else { continue };
            if !kinds[idx].is_empty() && kinds[idx] != object.kind {
                let what = format!("`{}` is declared with two types", shorten(object.name));
                return Err(pddl::error(text, object.at, what));
            }
            kinds[idx] = object.kind;
        }
        if symbols.len() > MAX_SYMBOLS {
            let what = format!("{} symbols in the initial state, at most {MAX_SYMBOLS} are read", symbols.len());
            return Err(pddl::error(text, problem.goal.at(), what));
        }
        let mut compiler = Self { text, problem, symbols, kinds, facts: Vec::with_capacity(problem.init.len()) };
        for fact in &problem.init {
            let fact = compiler.fact(fact)?;
            compiler.facts.push(fact);
        }
        compiler.facts.sort_unstable();
        compiler.facts.dedup_by(|a, b| (a.0, a.1) == (b.0, b.1));
        Ok(compiler)
    }

    fn error(&self, at: usize, what: impl Into<String>) -> PddlError {
        pddl::error(self.text, at, what)
    }

    /// Checks one fact against its predicate and replaces its symbols.
    fn fact(&self, fact: &Fact<'a>) -> Result<(&'a str, [u32; 2], usize), PddlError> {
        let kinds: &[&str] = match PREDICATES.binary_search_by(|(name, _)| name.cmp(&fact.predicate)) {
            Ok(idx) => PREDICATES[idx].1,
            Err(_) => {
                let what = format!("unknown predicate `{}` in the initial state", shorten(fact.predicate));
                return Err(self.error(fact.at, what));
            }
        };
        if fact.args.len() != kinds.len() {
            let (predicate, wanted, found) = (fact.predicate, kinds.len(), fact.args.len());
            return Err(self.error(fact.at, format!("`{predicate}` takes {wanted} names, found {found}")));
        }
        let mut args = [NO_SYMBOL; 2];
        for ((slot, &arg), &wanted) in args.iter_mut().zip(&fact.args).zip(kinds) {
            let idx = self.symbols.binary_search(&arg).expect("symbols are collected from these facts");
            let found = self.kinds[idx];
            if found.is_empty() {
                return Err(self.error(fact.at, format!("`{}` is not declared in `:objects`", shorten(arg))));
            }
            if found != wanted {
                let what = format!("`{}` is of type `{}`, expected `{wanted}`", shorten(arg), shorten(found));
                return Err(self.error(fact.at, what));
            }
            *slot = idx as u32;
        }
        Ok((fact.predicate, args, fact.at))
    }

    /// The facts of a predicate, ascending by their symbols.
    fn of(&self, predicate: &str) -> &[(&'a str, [u32; 2], usize)] {
        let start = self.facts.partition_point(|fact| fact.0 < predicate);
        let len = self.facts[start..].partition_point(|fact| fact.0 == predicate);
        &self.facts[start..start + len]
    }

    /// For each symbol its partner in a predicate that gives every symbol at most one.
    fn unique(&self, predicate: &str) -> Result<Vec<u32>, PddlError> {
        let mut partner = vec![NO_SYMBOL; self.symbols.len()];
        for &(_, [symbol, value], at) in self.of(predicate) {
            let slot = &mut partner[symbol as usize];
            if *slot != NO_SYMBOL {
                let what = format!("`{}` has two `{predicate}` facts", shorten(self.symbols[symbol as usize]));
                return Err(self.error(at, what));
            }
            *slot = value;
        }
        Ok(partner)
    }

    /// What the symbols are called. Numbers count down along the ascending ids, as in the original, which takes them
    /// from the end of a list.
    fn names(&self) -> Vec<String> {
        let bases: Vec<Option<String>> = self.symbols.iter().map(|id| base_name(id)).collect();
        let mut sorted: Vec<&str> = bases.iter().flatten().map(String::as_str).collect();
        sorted.sort_unstable();
        let mut left: Vec<(&str, usize)> = Vec::new();
        for base in sorted {
            match left.last_mut() {
                Some((last, count)) if *last == base => *count += 1,
                _ => left.push((base, 1)),
            }
        }
        let mut names = Vec::with_capacity(bases.len());
        for (id, base) in self.symbols.iter().zip(&bases) {
            names.push(match base {
                None => format!("{id} "),
                Some(base) => {
                    let idx = left.binary_search_by(|(name, _)| (*name).cmp(base.as_str())).expect("every base was counted");
                    let name = format!("{base} {}", left[idx].1);
                    left[idx].1 -= 1;
                    name
                }
            });
        }
        names
    }

    fn game(&self, task: &str, variant: Variant) -> Result<Game, PddlError> {
        let n_symbols = self.symbols.len();
        let whole = self.problem.goal.at();
        let names = self.names();
        let location_of = self.unique("receptacleatlocation")?;
        let object_type = self.unique("objecttype")?;
        let receptacle_type = self.unique("receptacletype")?;
        let type_name = |symbol: u32| self.symbols.get(symbol as usize).copied().unwrap_or("");

        // Receptacles, in the order of their ids.
        let mut receptacle_ids = vec![NOTHING; n_symbols];
        let mut receptacle_symbols = Vec::new();
        for (symbol, &kind) in self.kinds.iter().enumerate() {
            if kind != "receptacle" {
                continue;
            }
            if location_of[symbol] == NO_SYMBOL {
                let what = format!("receptacle `{}` has no location", shorten(self.symbols[symbol]));
                return Err(self.error(whole, what));
            }
            receptacle_ids[symbol] = receptacle_symbols.len() as u16;
            receptacle_symbols.push(symbol);
        }

        // Locations the agent can reach: where it starts and where a receptacle is.
        let start_location = match self.of("atlocation") {
            [(_, [_, location], _)] => *location as usize,
            [] => return Err(self.error(whole, "the agent has no `atLocation`")),
            [_, (_, _, at), ..] => return Err(self.error(*at, "there is more than one `atLocation`")),
        };
        let mut location_ids = vec![NOTHING; n_symbols];
        let mut locations: Vec<Location> = Vec::new();
        let mut reachable = vec![false; n_symbols];
        reachable[start_location] = true;
        for &symbol in &receptacle_symbols {
            reachable[location_of[symbol] as usize] = true;
        }
        for symbol in (0..n_symbols).filter(|&symbol| reachable[symbol]) {
            location_ids[symbol] = locations.len() as u16;
            locations.push(Location { name: names[symbol].clone(), here: Vec::new(), here_by_name: Vec::new() });
        }

        // Objects that can be seen or touched.
        let held = match self.of("holds") {
            [] => None,
            [(_, [_, object], _)] => Some(*object as usize),
            [_, (_, _, at), ..] => return Err(self.error(*at, "the agent holds two objects")),
        };
        if held.is_some() == self.of("holdsany").is_empty() {
            return Err(self.error(whole, "`holds` and `holdsAny` must stand together"));
        }
        let sliceable = self.flags("sliceable");
        let mut kept = vec![false; n_symbols];
        if let Some(object) = held {
            kept[object] = true;
        }
        for &(_, [object, _], _) in self.of("inreceptacle") {
            kept[object as usize] = true;
        }
        for &(_, [object, location], _) in self.of("objectatlocation") {
            kept[object as usize] |= sliceable[object as usize] && reachable[location as usize];
        }
        let mut object_ids = vec![NOTHING; n_symbols];
        let mut object_symbols = Vec::new();
        for symbol in (0..n_symbols).filter(|&symbol| kept[symbol]) {
            object_ids[symbol] = object_symbols.len() as u16;
            object_symbols.push(symbol);
        }

        let row = bits::words(object_symbols.len());
        let layout = Layout { row, n_receptacles: receptacle_symbols.len(), n_locations: locations.len() };
        if layout.n_words() > MAX_WORDS {
            return Err(self.error(whole, "the game has too many objects, receptacles and places to be played"));
        }
        let mask = |predicate: &str| {
            let mut mask = vec![0; row];
            for &(_, [symbol, _], _) in self.of(predicate) {
                let object = object_ids[symbol as usize];
                if object != NOTHING {
                    bits::set(&mut mask, object);
                }
            }
            mask
        };
        let masks = Masks {
            pickupable: mask("pickupable"),
            toggleable: mask("toggleable"),
            cleanable: mask("cleanable"),
            heatable: mask("heatable"),
            coolable: mask("coolable"),
            sliceable: mask("sliceable"),
        };

        // The start.
        let mut start = State {
            location: location_ids[start_location],
            held: held.map_or(NOTHING, |symbol| object_ids[symbol]),
            words: vec![0; layout.n_words()].into(),
        };
        for &(_, [object, receptacle], _) in self.of("inreceptacle") {
            let contents = layout.contents(receptacle_ids[receptacle as usize]);
            bits::set(&mut start.words[contents], object_ids[object as usize]);
        }
        for &(_, [object, location], _) in self.of("objectatlocation") {
            let (object, location) = (object_ids[object as usize], location_ids[location as usize]);
            if object != NOTHING && location != NOTHING {
                bits::set(&mut start.words[layout.at_location(location)], object);
            }
        }
        let flags = [
            (Flag::Clean, "isclean"),
            (Flag::Hot, "ishot"),
            (Flag::Cool, "iscool"),
            (Flag::Sliced, "issliced"),
            (Flag::Toggled, "istoggled"),
        ];
        for (flag, predicate) in flags {
            start.words[layout.flag(flag)].copy_from_slice(&mask(predicate));
        }
        let openable = self.flags("openable");
        for &(_, [receptacle, _], _) in self.of("opened") {
            bits::set(&mut start.words[layout.opened()], receptacle_ids[receptacle as usize]);
        }

        // What fits where: by type, for what can be in the agent's hands at all.
        let mut movable = bits::union_of(layout.n_receptacles, |r| &start.words[layout.contents(r)], row);
        bits::intersect(&mut movable, &masks.pickupable);
        if start.held != NOTHING {
            bits::set(&mut movable, start.held);
        }
        let mut of_type = vec![0; n_symbols * row];
        for (object, &symbol) in (0u16..).zip(&object_symbols) {
            let kind = object_type[symbol] as usize;
            if object_type[symbol] != NO_SYMBOL && bits::has(&movable, object) {
                bits::set(&mut of_type[kind * row..(kind + 1) * row], object);
            }
        }
        let mut fits_type = vec![0; n_symbols * row];
        for &(_, [receptacle, object], _) in self.of("cancontain") {
            let (receptacle, object) = (receptacle as usize, object as usize);
            bits::unite(&mut fits_type[receptacle * row..(receptacle + 1) * row], &of_type[object * row..(object + 1) * row]);
        }
        let mut fits = vec![0; layout.n_receptacles * row];
        for (to, &symbol) in fits.chunks_exact_mut(row).zip(&receptacle_symbols) {
            let kind = receptacle_type[symbol] as usize;
            if receptacle_type[symbol] != NO_SYMBOL {
                to.copy_from_slice(&fits_type[kind * row..(kind + 1) * row]);
            }
        }

        // Names, and the order of names.
        let mut objects: Vec<Object> = object_symbols
            .iter()
            .map(|&symbol| Object {
                name: names[symbol].clone(),
                knife: matches!(type_name(object_type[symbol]), "knifetype" | "butterknifetype"),
                inside: self.inside(symbol, &names),
                rank: 0,
            })
            .collect();
        let mut receptacles: Vec<Receptacle> = receptacle_symbols
            .iter()
            .map(|&symbol| {
                let kind = type_name(receptacle_type[symbol]);
                Receptacle {
                    name: names[symbol].clone(),
                    location: location_ids[location_of[symbol] as usize],
                    openable: openable[symbol],
                    cleans: kind == "sinkbasintype" || (variant == Variant::V211 && kind == "sinktype"),
                    heats: kind == "microwavetype",
                    cools: kind == "fridgetype",
                    rank: 0,
                }
            })
            .collect();
        let mut named: Vec<(String, Thing)> = Vec::with_capacity(objects.len() + receptacles.len());
        named.extend((0u16..).zip(&objects).map(|(o, object)| (object.name.clone(), Thing::Object(o))));
        named.extend((0u16..).zip(&receptacles).map(|(r, rec)| (rec.name.clone(), Thing::Receptacle(r))));
        named.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let things: Vec<Thing> = named.iter().map(|&(_, thing)| thing).collect();
        let mut receptacles_by_name = Vec::with_capacity(receptacles.len());
        for (rank, &thing) in (0u16..).zip(&things) {
            match thing {
                Thing::Object(o) => objects[usize::from(o)].rank = rank,
                Thing::Receptacle(r) => {
                    receptacles[usize::from(r)].rank = rank;
                    receptacles_by_name.push(r);
                    locations[usize::from(receptacles[usize::from(r)].location)].here_by_name.push(r);
                }
            }
        }
        for (r, receptacle) in (0u16..).zip(&receptacles) {
            locations[usize::from(receptacle.location)].here.push(r);
        }

        let object_types: Vec<&str> = object_symbols.iter().map(|&symbol| type_name(object_type[symbol])).collect();
        let receptacle_types: Vec<&str> = receptacle_symbols.iter().map(|&symbol| type_name(receptacle_type[symbol])).collect();
        let goal = goal::compile(self.text, &self.problem.goal, &object_types, &receptacle_types, &masks)?;

        let mut game = Game {
            variant,
            task: task.to_owned(),
            goal,
            fingerprint: self.fingerprint(task, variant),
            objects,
            receptacles,
            receptacles_by_name,
            locations,
            slots: slots(&named),
            things,
            masks,
            fits,
            layout,
            reachable: Vec::new(),
            start,
        };
        game.reachable = reachable_bits(&game, &movable);
        Ok(game)
    }

    fn flags(&self, predicate: &str) -> Vec<bool> {
        let mut flags = vec![false; self.symbols.len()];
        for &(_, [symbol, _], _) in self.of(predicate) {
            flags[symbol as usize] = true;
        }
        flags
    }

    /// The names inside an object that is a receptacle, `None` for any other.
    fn inside(&self, object: usize, names: &[String]) -> Option<Vec<String>> {
        self.of("isreceptacleobject").iter().find(|fact| fact.1[0] as usize == object)?;
        let within = self.of("inreceptacleobject").iter().filter(|fact| fact.1[1] as usize == object);
        Some(within.map(|fact| names[fact.1[0] as usize].clone()).collect())
    }

    /// A hash of facts, goal, task sentence and variant. Layout, comments and repetitions do not count.
    fn fingerprint(&self, task: &str, variant: Variant) -> [u8; 16] {
        let mut hash = Sha256::new();
        let mut word = |word: &str| {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word);
        };
        word("ascribe alfworld game 1");
        word(&variant.to_string());
        word(task);
        for &(predicate, args, _) in &self.facts {
            word(predicate);
            for symbol in args {
                word(self.symbols.get(symbol as usize).copied().unwrap_or(""));
            }
        }
        goal::words(&self.problem.goal, &mut word);
        let digest = hash.finalize();
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&digest[..16]);
        fingerprint
    }
}

/// FNV-1a: names are a few bytes, and the same everywhere.
fn hash(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash ^ hash >> 32) as usize
}

/// See [`Game::slots`].
fn slots(named: &[(String, Thing)]) -> Vec<u16> {
    let mut slots = vec![NOTHING; (2 * named.len()).next_power_of_two().max(2)];
    let last = slots.len() - 1;
    for (idx, (name, _)) in (0u16..).zip(named) {
        let mut slot = hash(name) & last;
        while slots[slot] != NOTHING {
            slot = (slot + 1) & last;
        }
        slots[slot] = idx;
    }
    slots
}

/// `None` for an id that is not of the form `NAME_bar_…`.
fn base_name(id: &str) -> Option<String> {
    let (base, _) = id.split_once("_bar_")?;
    Some(if id.contains("basin") { format!("{base}basin") } else { base.to_owned() })
}

/// Every bit that commands could set in a state, beside those of the start.
fn reachable_bits(game: &Game, movable: &[u64]) -> Vec<u64> {
    let layout = game.layout;
    let mut bits = game.start.words.to_vec();
    for r in (0u16..).take(layout.n_receptacles) {
        let row = &game.fits[layout.contents(r)];
        bits::unite(&mut bits[layout.contents(r)], row);
        let mut removed = bits[layout.contents(r)].to_vec();
        bits::intersect(&mut removed, &game.masks.pickupable);
        bits::unite(&mut bits[layout.removed(r)], &removed);
        if game.receptacles[usize::from(r)].openable {
            bits::set(&mut bits[layout.opened()], r);
        }
    }
    for l in (0u16..).take(layout.n_locations) {
        bits::unite(&mut bits[layout.at_location(l)], movable);
    }
    let masks = &game.masks;
    let flags = [
        (Flag::Clean, &masks.cleanable),
        (Flag::Hot, &masks.heatable),
        (Flag::Cool, &masks.coolable),
        (Flag::Sliced, &masks.sliceable),
        (Flag::Toggled, &masks.toggleable),
    ];
    for (flag, mask) in flags {
        bits::unite(&mut bits[layout.flag(flag)], mask);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mini;

    #[test]
    fn predicates_are_in_order() {
        assert!(PREDICATES.is_sorted_by_key(|(name, _)| *name));
    }

    /// The error of a small game with one text replaced by another.
    fn check_error(from: &str, to: &str, what: &str) {
        let problem = mini::GAMES[1].problem;
        assert!(problem.contains(from), "{from}");
        match Game::new(&problem.replacen(from, to, 1), "", Variant::V042) {
            Ok(_) => panic!("`{to}` was accepted"),
            Err(error) => assert!(error.what.contains(what), "{error}"),
        }
    }

    #[test]
    fn what_makes_no_game_is_refused() {
        check_error("(openable Drawer_bar_1)", "(shiny Drawer_bar_1)", "unknown predicate `shiny`");
        check_error("(openable Drawer_bar_1)", "(openable)", "`openable` takes 1 names, found 0");
        check_error("(openable Drawer_bar_1)", "(openable Pen_bar_1)", "is of type `object`, expected `receptacle`");
        check_error("(openable Drawer_bar_1)", "(openable Door_bar_1)", "`door_bar_1` is not declared");
        check_error("KeyChain_bar_1 Book_bar_1", "Bed_bar_1 KeyChain_bar_1 Book_bar_1", "declared with two types");
        check_error("(atLocation agent1 loc_bar_0)", "", "the agent has no `atLocation`");
        check_error(
            "(atLocation agent1 loc_bar_0)",
            "(atLocation agent1 loc_bar_0)(atLocation agent1 loc_bar_1)",
            "more than one",
        );
        check_error("(receptacleAtLocation Bed_bar_1 loc_bar_2)", "", "`bed_bar_1` has no location");
        check_error(
            "(receptacleAtLocation Bed_bar_1 loc_bar_2)",
            "(receptacleAtLocation Bed_bar_1 loc_bar_2)(receptacleAtLocation Bed_bar_1 loc_bar_1)",
            "two `receptacleatlocation`",
        );
        check_error("(openable Drawer_bar_1)", "(holds agent1 Pen_bar_1)", "must stand together");
        check_error("(exists (?r - receptacle)", "(exists (?r - location)", "none of the six");
    }

    #[test]
    fn the_fingerprint_is_of_the_game_not_of_its_text() {
        let print = |problem: &str, task: &str, variant| Game::new(problem, task, variant).map(|game| game.fingerprint());
        let problem = mini::GAMES[1].problem;
        let first = print(problem, "t", Variant::V042);
        assert_eq!(first, print(&problem.replace("    ", "\n ; comment\n\t").to_uppercase(), "t", Variant::V042));
        assert_ne!(first, print(problem, "u", Variant::V042));
        assert_ne!(first, print(problem, "t", Variant::V211));
        assert_ne!(first, print(&problem.replace("(canContain BedType BookType)", ""), "t", Variant::V042));
    }
}
