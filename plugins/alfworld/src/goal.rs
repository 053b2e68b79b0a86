//! What wins: one of six shapes of goal, found in the goal formula whatever the names of its variables and the order
//! of its conditions.

use crate::bits;
use crate::game::{Flag, Game, Masks, TaskType};
use crate::pddl::{self, Node, PddlError, shorten};
use crate::state::{NOTHING, State};

/// What must have been done to the object before it is put down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    None,
    Clean,
    Heat,
    Cool,
}

/// A compiled goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// An object of `objects` (treated, and able to be) in one of `receptacles`.
    Place { objects: Vec<u64>, receptacles: Vec<u16>, treatment: Treatment },
    /// Two of `objects` in one of `receptacles`.
    PlaceTwo { objects: Vec<u64>, receptacles: Vec<u16> },
    /// One of `objects` in hand where one of `lights` lies that was switched on.
    Look { objects: Vec<u64>, lights: Vec<u64> },
}

impl Goal {
    pub(crate) fn task_type(&self) -> TaskType {
        match self {
            Self::Place { treatment: Treatment::None, .. } => TaskType::PickAndPlaceSimple,
            Self::Place { treatment: Treatment::Clean, .. } => TaskType::PickCleanThenPlaceInRecep,
            Self::Place { treatment: Treatment::Heat, .. } => TaskType::PickHeatThenPlaceInRecep,
            Self::Place { treatment: Treatment::Cool, .. } => TaskType::PickCoolThenPlaceInRecep,
            Self::PlaceTwo { .. } => TaskType::PickTwoObjAndPlace,
            Self::Look { .. } => TaskType::LookAtObjInLight,
        }
    }

    /// The objects the task is about.
    pub(crate) fn objects(&self) -> &[u64] {
        match self {
            Self::Place { objects, .. } | Self::PlaceTwo { objects, .. } | Self::Look { objects, .. } => objects,
        }
    }
}

/// How far a task has come, read off the state. Later stages include earlier ones only in spirit: an object that is
/// put down on the way is in no hand, so the stage falls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// 0 at the start, `names.len() - 1` when won.
    pub index: usize,
    /// What the stages of this kind of task are called.
    pub names: &'static [&'static str],
}

impl Stage {
    /// The name of the stage.
    pub fn name(&self) -> &'static str {
        self.names[self.index]
    }

    /// Share of the way, in 0..=1.
    pub fn progress(&self) -> f32 {
        self.index as f32 / (self.names.len() - 1) as f32
    }
}

impl TaskType {
    /// The stages a task of this kind goes through:
    ///
    /// * simple: `searching`, `holding` (an object of the kind asked for), `placed`;
    /// * clean, heat, cool: between them `cleaned`, `heated`, `cooled`: the object in hand is so;
    /// * two: `searching`, `holding-first`, `first-placed` (one in a receptacle of the kind asked for),
    ///   `holding-second` (and another in hand), `both-placed`;
    /// * look: `searching`, `holding`, `at-light` (and a lamp of the kind asked for is here), `lit`.
    pub fn stages(self) -> &'static [&'static str] {
        match self {
            Self::PickAndPlaceSimple => &["searching", "holding", "placed"],
            Self::PickCleanThenPlaceInRecep => &["searching", "holding", "cleaned", "placed"],
            Self::PickHeatThenPlaceInRecep => &["searching", "holding", "heated", "placed"],
            Self::PickCoolThenPlaceInRecep => &["searching", "holding", "cooled", "placed"],
            Self::PickTwoObjAndPlace => &["searching", "holding-first", "first-placed", "holding-second", "both-placed"],
            Self::LookAtObjInLight => &["searching", "holding", "at-light", "lit"],
        }
    }
}

impl Game {
    /// Whether the goal holds. It can cease to hold: a won game may be played on.
    pub fn won(&self, state: &State) -> bool {
        let layout = self.layout;
        let contents = |r: u16| &state.words[layout.contents(r)];
        match &self.goal {
            Goal::Place { objects, receptacles, treatment } => {
                let treated = match treatment {
                    Treatment::None => None,
                    Treatment::Clean => Some(&state.words[layout.flag(Flag::Clean)]),
                    Treatment::Heat => Some(&state.words[layout.flag(Flag::Hot)]),
                    Treatment::Cool => Some(&state.words[layout.flag(Flag::Cool)]),
                };
                receptacles.iter().any(|&r| {
                    let inside = contents(r).iter().zip(objects).enumerate();
                    inside.fold(0, |any, (i, (a, b))| any | (a & b & treated.map_or(u64::MAX, |t| t[i]))) != 0
                })
            }
            Goal::PlaceTwo { objects, receptacles } => receptacles.iter().any(|&r| count_in(contents(r), objects) >= 2),
            Goal::Look { objects, lights } => {
                let toggled = &state.words[layout.flag(Flag::Toggled)];
                state.held != NOTHING && bits::has(objects, state.held) && self.light_here(state, |i| lights[i] & toggled[i])
            }
        }
    }

    /// How far the task has come. See [`TaskType::stages`].
    pub fn stage(&self, state: &State) -> Stage {
        let names = self.task_type().stages();
        let last = names.len() - 1;
        if self.won(state) {
            return Stage { index: last, names };
        }
        let layout = self.layout;
        let holding = state.held != NOTHING && bits::has(self.goal.objects(), state.held);
        let index = match &self.goal {
            Goal::Place { treatment, .. } => {
                let flag = match treatment {
                    Treatment::None => None,
                    Treatment::Clean => Some(Flag::Clean),
                    Treatment::Heat => Some(Flag::Hot),
                    Treatment::Cool => Some(Flag::Cool),
                };
                let treated = flag.is_some_and(|flag| holding && bits::has(&state.words[layout.flag(flag)], state.held));
                usize::from(holding) + usize::from(treated)
            }
            Goal::PlaceTwo { objects, receptacles } => {
                let placed = receptacles.iter().any(|&r| count_in(&state.words[layout.contents(r)], objects) >= 1);
                2 * usize::from(placed) + usize::from(holding)
            }
            Goal::Look { lights, .. } => usize::from(holding) + usize::from(holding && self.light_here(state, |i| lights[i])),
        };
        Stage { index, names }
    }

    /// Whether a receptacle where the agent stands contains one of a set, given by its words.
    fn light_here(&self, state: &State, lights: impl Fn(usize) -> u64) -> bool {
        self.locations[usize::from(state.location)].here.iter().any(|&r| {
            let contents = &state.words[self.layout.contents(r)];
            contents.iter().enumerate().any(|(i, word)| word & lights(i) != 0)
        })
    }
}

fn count_in(set: &[u64], of: &[u64]) -> u32 {
    set.iter().zip(of).map(|(a, b)| (a & b).count_ones()).sum()
}

/// Gives every word of a formula, and the brackets, in order.
pub(crate) fn words(node: &Node<'_>, word: &mut impl FnMut(&str)) {
    match node {
        Node::Word { text, .. } => word(text),
        Node::List { items, .. } => {
            word("(");
            // As deep as the reader allows, no deeper.
            items.iter().for_each(|item| words(item, word));
            word(")");
        }
    }
}

/// A condition with its variables numbered; constants stay words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Condition<'a> {
    predicate: &'a str,
    args: Vec<Term<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Term<'a> {
    Variable(usize),
    Constant(&'a str),
}

/// A conjunction under `exists`, flattened.
struct Flat<'a> {
    text: &'a str,
    /// The type of each variable.
    variables: Vec<&'a str>,
    conditions: Vec<Condition<'a>>,
}

impl<'a> Flat<'a> {
    fn add(&mut self, node: &Node<'a>, scope: &[(&'a str, usize)]) -> Result<(), PddlError> {
        let items = node.list().unwrap_or_default();
        let Some(head) = items.first().and_then(Node::word) else {
            return Err(pddl::error(self.text, node.at(), "expected a condition of the goal"));
        };
        match head {
            "and" => items[1..].iter().try_for_each(|item| self.add(item, scope)),
            "exists" => {
                let [_, Node::List { items: names, .. }, body] = items else {
                    return Err(pddl::error(self.text, node.at(), "expected `(exists (variables) condition)`"));
                };
                let mut scope = scope.to_vec();
                for variable in pddl::typed(self.text, names)? {
                    scope.push((variable.name, self.variables.len()));
                    self.variables.push(variable.kind);
                }
                self.add(body, &scope)
            }
            "not" => {
                let inner = items.get(1).and_then(Node::list).unwrap_or_default();
                if items.len() != 2 || inner.first().and_then(Node::word) != Some("=") {
                    return Err(pddl::error(self.text, node.at(), "the only `not` in a goal is `(not (= ?a ?b))`"));
                }
                self.condition("/=", &inner[1..], scope)
            }
            predicate => self.condition(predicate, &items[1..], scope),
        }
    }

    fn condition(&mut self, predicate: &'a str, args: &[Node<'a>], scope: &[(&'a str, usize)]) -> Result<(), PddlError> {
        let mut terms = Vec::with_capacity(args.len());
        for arg in args {
            let Some(word) = arg.word() else {
                return Err(pddl::error(self.text, arg.at(), "expected a name, found a list"));
            };
            let bound = scope.iter().rev().find(|(name, _)| *name == word);
            terms.push(match bound {
                Some(&(_, idx)) => Term::Variable(idx),
                None if word.starts_with('?') => {
                    let what = format!("the variable `{}` is not bound", shorten(word));
                    return Err(pddl::error(self.text, arg.at(), what));
                }
                None => Term::Constant(word),
            });
        }
        self.conditions.push(Condition { predicate, args: terms });
        Ok(())
    }
}

/// Finds which of the six shapes a goal has, and which objects and receptacles it is about.
pub(crate) fn compile(
    text: &str,
    goal: &Node<'_>,
    object_types: &[&str],
    receptacle_types: &[&str],
    masks: &Masks,
) -> Result<Goal, PddlError> {
    let mut flat = Flat { text, variables: Vec::new(), conditions: Vec::new() };
    flat.add(goal, &[])?;
    let Flat { variables, mut conditions, .. } = flat;
    conditions.sort_unstable();
    conditions.dedup();

    let objects_of = |kind: &str| {
        let mut set = vec![0; bits::words(object_types.len())];
        for (o, found) in (0u16..).zip(object_types) {
            if *found == kind {
                bits::set(&mut set, o);
            }
        }
        set
    };
    let receptacles_of = |kind: &str| -> Vec<u16> {
        (0u16..).zip(receptacle_types).filter(|(_, found)| **found == kind).map(|(r, _)| r).collect()
    };
    let named = |predicate: &str| -> Vec<(usize, &str)> {
        let of = conditions.iter().filter(|condition| condition.predicate == predicate);
        of.filter_map(|condition| match condition.args[..] {
            [Term::Variable(variable), Term::Constant(kind)] => Some((variable, kind)),
            _ => None,
        })
        .collect()
    };
    // The shape is rebuilt from its parts and compared whole: what is left over or missing makes it another goal.
    let is = |kinds: &[(usize, &str)], wanted: &[(&str, &[Term<'_>])]| {
        let mut wanted: Vec<Condition<'_>> =
            wanted.iter().map(|(predicate, args)| Condition { predicate, args: args.to_vec() }).collect();
        wanted.sort_unstable();
        wanted == conditions && kinds.iter().all(|&(variable, kind)| variables[variable] == kind)
    };
    let variable_of = |predicate: &str, place: usize| -> Option<usize> {
        let condition = conditions.iter().find(|condition| condition.predicate == predicate)?;
        match condition.args.get(place) {
            Some(&Term::Variable(variable)) => Some(variable),
            _ => None,
        }
    };
    use Term::{Constant as C, Variable as V};

    let object_kinds = named("objecttype");
    match (&object_kinds[..], &named("receptacletype")[..]) {
        (&[(o, object)], &[(r, receptacle)]) => {
            let kinds = [(o, "object"), (r, "receptacle")];
            let base: [(&str, &[Term<'_>]); 3] =
                [("objecttype", &[V(o), C(object)]), ("receptacletype", &[V(r), C(receptacle)]), ("inreceptacle", &[V(o), V(r)])];
            let treatments = [
                (Treatment::Clean, "cleanable", "isclean", &masks.cleanable),
                (Treatment::Heat, "heatable", "ishot", &masks.heatable),
                (Treatment::Cool, "coolable", "iscool", &masks.coolable),
            ];
            let receptacles = receptacles_of(receptacle);
            let of_object = [V(o)];
            if is(&kinds, &base) {
                return Ok(Goal::Place { objects: objects_of(object), receptacles, treatment: Treatment::None });
            }
            for (treatment, able, done, mask) in treatments {
                let mut wanted = base.to_vec();
                wanted.push((able, &of_object));
                wanted.push((done, &of_object));
                if is(&kinds, &wanted) {
                    let mut objects = objects_of(object);
                    bits::intersect(&mut objects, mask);
                    return Ok(Goal::Place { objects, receptacles, treatment });
                }
            }
        }
        (&[(a, object), (b, other)], &[(r, receptacle)]) if object == other => {
            let kinds = [(a, "object"), (b, "object"), (r, "receptacle")];
            for (first, second) in [(a, b), (b, a)] {
                let wanted: [(&str, &[Term<'_>]); 6] = [
                    ("objecttype", &[V(a), C(object)]),
                    ("objecttype", &[V(b), C(object)]),
                    ("receptacletype", &[V(r), C(receptacle)]),
                    ("inreceptacle", &[V(a), V(r)]),
                    ("inreceptacle", &[V(b), V(r)]),
                    ("/=", &[V(first), V(second)]),
                ];
                if is(&kinds, &wanted) {
                    let (objects, receptacles) = (objects_of(object), receptacles_of(receptacle));
                    return Ok(Goal::PlaceTwo { objects, receptacles });
                }
            }
        }
        (&[first, second], []) => {
            let parts = (
                variable_of("holds", 1),
                variable_of("inreceptacle", 1),
                variable_of("atlocation", 1),
                variable_of("atlocation", 0),
                variable_of("holds", 0),
            );
            if let (Some(held), Some(r), Some(l), Some(agent), Some(holder)) = parts {
                let ((o, object), (light, lamp)) = if first.0 == held { (first, second) } else { (second, first) };
                let kinds =
                    [(o, "object"), (light, "object"), (r, "receptacle"), (l, "location"), (agent, "agent"), (holder, "agent")];
                let wanted: [(&str, &[Term<'_>]); 8] = [
                    ("objecttype", &[V(o), C(object)]),
                    ("objecttype", &[V(light), C(lamp)]),
                    ("toggleable", &[V(light)]),
                    ("istoggled", &[V(light)]),
                    ("receptacleatlocation", &[V(r), V(l)]),
                    ("atlocation", &[V(agent), V(l)]),
                    ("inreceptacle", &[V(light), V(r)]),
                    ("holds", &[V(holder), V(o)]),
                ];
                if is(&kinds, &wanted) {
                    let mut lights = objects_of(lamp);
                    bits::intersect(&mut lights, &masks.toggleable);
                    return Ok(Goal::Look { objects: objects_of(object), lights });
                }
            }
        }
        _ => {}
    }
    let what = "the goal is none of the six that are known (place one, clean, hot, cool, two, or look under a lamp)";
    Err(pddl::error(text, goal.at(), what))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(goal: &str) -> Result<Goal, PddlError> {
        let text = pddl::lower(goal);
        let node = pddl::read(&text).unwrap();
        let masks = Masks {
            pickupable: vec![0b111],
            toggleable: vec![0b100],
            cleanable: vec![0b001],
            heatable: vec![0b011],
            coolable: vec![0b010],
            sliceable: vec![0],
        };
        compile(&text, &node, &["mugtype", "mugtype", "desklamptype"], &["desktype", "bedtype"], &masks)
    }

    fn place(objects: u64, treatment: Treatment) -> Goal {
        Goal::Place { objects: vec![objects], receptacles: vec![0], treatment }
    }

    #[test]
    fn the_six_shapes_are_known_in_any_order() {
        let simple = "(and (exists (?r - receptacle) (exists (?o - object)
            (and (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r DeskType)))))";
        assert_eq!(check(simple).unwrap(), place(0b011, Treatment::None));
        for (able, done, objects, treatment) in [
            ("cleanable", "isClean", 0b001, Treatment::Clean),
            ("heatable", "isHot", 0b011, Treatment::Heat),
            ("coolable", "isCool", 0b010, Treatment::Cool),
        ] {
            let goal = format!(
                "(exists (?x - object ?y - receptacle) (and ({done} ?x) (receptacleType ?y DeskType)
                 (and (inReceptacle ?x ?y) ({able} ?x)) (objectType ?x MugType)))"
            );
            assert_eq!(check(&goal).unwrap(), place(objects, treatment));
        }
        let two = "(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 MugType)
            (receptacleType ?r DeskType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))
            (objectType ?o2 MugType) (receptacleType ?r DeskType) (inReceptacle ?o2 ?r)))))))";
        let wanted = Goal::PlaceTwo { objects: vec![0b011], receptacles: vec![0] };
        assert_eq!(check(two).unwrap(), wanted);
        assert_eq!(check(&two.replace("(= ?o1 ?o2)", "(= ?o2 ?o1)")).unwrap(), wanted);
        let look = "(and (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o)))
            (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType)
            (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))))";
        assert_eq!(check(look).unwrap(), Goal::Look { objects: vec![0b011], lights: vec![0b100] });
    }

    #[test]
    fn any_other_goal_is_refused() {
        let unknown = |goal: &str, what: &str| {
            let found = check(goal).unwrap_err();
            assert!(found.what.contains(what), "{found}");
        };
        unknown("(and)", "none of the six");
        unknown("()", "expected a condition");
        unknown("(exists (?o - object) (isClean ?o))", "none of the six");
        unknown("(exists ?o (isClean ?o))", "expected `(exists");
        unknown("(isClean ?o)", "`?o` is not bound");
        unknown("(not (isClean mug))", "the only `not`");
        unknown("(not)", "the only `not`");
        unknown("(isClean (mug))", "found a list");
        // One condition too many, and a variable of the wrong type.
        unknown(
            "(exists (?o - object ?r - receptacle) (and (inReceptacle ?o ?r) (objectType ?o MugType)
             (receptacleType ?r DeskType) (isClean ?o)))",
            "none of the six",
        );
        unknown(
            "(exists (?o - agent ?r - receptacle) (and (inReceptacle ?o ?r) (objectType ?o MugType)
             (receptacleType ?r DeskType)))",
            "none of the six",
        );
    }
}
