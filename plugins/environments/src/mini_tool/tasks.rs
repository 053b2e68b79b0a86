//! The research questions: which facts they need, what is to be calculated from them, and what misleads.
//!
//! Every question there is about the knowledge base is listed, kind by kind; the seed says in which order, and which other
//! facts lie within reach. A question is left out where a plausible mistake would give the right answer.

use serde::{Deserialize, Serialize};

use ascribe_core::{Draw, Seeds};

use super::expression::{Number, evaluate, literal, spelled};
use super::knowledge::{FACTS, PI, about};

/// Facts within reach of a task's listed actions: those it needs, and others.
pub const REACH: usize = 3;
/// Choices of other facts before a question is left out.
const CHOICES: usize = 8;
/// What questions of weight take to other worlds, in kilograms.
const MASSES: [u32; 8] = [20, 30, 40, 50, 60, 70, 80, 90];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Of a circle, from its radius and π.
    Circumference,
    /// From a radius.
    Diameter,
    /// Of a mass, from the gravity.
    Weight,
    /// Of two numbers, the larger first.
    Difference,
    /// Of two numbers.
    Sum,
    /// Of two numbers.
    Mean,
    /// That the first, smaller number is of the second.
    Percent,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] =
        [Kind::Circumference, Kind::Diameter, Kind::Weight, Kind::Difference, Kind::Sum, Kind::Mean, Kind::Percent];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Circumference => "circumference",
            Kind::Diameter => "diameter",
            Kind::Weight => "weight",
            Kind::Difference => "difference",
            Kind::Sum => "sum",
            Kind::Mean => "mean",
            Kind::Percent => "percent",
        }
    }

    /// What may come to one's mind to calculate, the right thing first: `a` and `b` are facts, `m` is the mass, `p` is π.
    pub fn forms(self) -> [&'static str; 3] {
        match self {
            // The second is the error of the text's bad plan.
            Kind::Circumference => ["2 * p * a", "2 * 3 * a", "p * a"],
            Kind::Diameter => ["2 * a", "a / 2", "a * a"],
            Kind::Weight => ["m * a", "m / a", "m + a"],
            Kind::Difference => ["a - b", "a + b", "a / b"],
            Kind::Sum => ["a + b", "a - b", "( a + b ) / 2"],
            Kind::Mean => ["( a + b ) / 2", "a + b / 2", "a + b"],
            Kind::Percent => ["100 * a / b", "a / b", "a * b / 100"],
        }
    }

    /// How many facts it needs.
    pub fn n_facts(self) -> usize {
        match self {
            Kind::Circumference | Kind::Diameter | Kind::Weight => 1,
            Kind::Difference | Kind::Sum | Kind::Mean | Kind::Percent => 2,
        }
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What is asked for.
    pub kind: Kind,
    /// The facts it needs, as indices into [`FACTS`], in the order of `a` and `b`.
    pub needed: Vec<usize>,
    /// The mass that a question of weight gives.
    pub mass: Option<u32>,
    /// Facts that it does not need, within reach.
    pub others: Vec<usize>,
    /// What one could search for and not find: an attribute that the first entity has no number for.
    pub missing: String,
}

impl Task {
    /// The question.
    pub fn question(&self) -> String {
        let fact = |i: usize| &FACTS[self.needed[i]];
        let (kind, a) = (self.kind.name(), fact(0));
        let of_both = |and: &str| format!("the {} of {} {and} of {}", a.attribute, a.entity, fact(1).entity);
        match self.kind {
            Kind::Circumference => {
                format!("find the {kind} of {} from its {} with pi {}", a.entity, a.attribute, spelled(PI))
            }
            Kind::Diameter => format!("find the {kind} of {} from its {}", a.entity, a.attribute),
            Kind::Weight => {
                let mass = spelled(&self.mass.unwrap_or_default().to_string());
                format!("find the {kind} of {mass} kilograms on {} from its {}", a.entity, a.attribute)
            }
            Kind::Difference | Kind::Sum | Kind::Mean => format!("find the {kind} of {}", of_both("and")),
            Kind::Percent => format!("find the {kind} that {}", of_both("is")),
        }
    }

    /// What it is called: `circumference-earth-radius`.
    pub fn name(&self) -> String {
        let facts: Vec<&str> = self.needed.iter().map(|i| FACTS[*i].entity).collect();
        let mass = self.mass.map(|mass| format!("{mass}-")).unwrap_or_default();
        format!("{}-{mass}{}-{}", self.kind.name(), facts.join("-"), FACTS[self.needed[0]].attribute)
    }

    /// Facts within reach.
    pub fn reach(&self) -> impl Iterator<Item = usize> + '_ {
        self.needed.iter().chain(&self.others).copied()
    }

    /// An expression of a form with these facts in the places of `a` and `b`, a word per digit.
    pub fn expression(&self, form: &str, facts: &[usize]) -> String {
        let number = |symbol: &str| match symbol {
            "a" => FACTS[facts[0]].spelled(),
            "b" => FACTS[facts[1]].spelled(),
            "m" => spelled(&self.mass.unwrap_or_default().to_string()),
            "p" => spelled(PI),
            other => spelled(other),
        };
        form.split(' ').map(number).collect::<Vec<_>>().join(" ")
    }

    /// What is to be calculated.
    pub fn solution(&self) -> String {
        self.expression(self.kind.forms()[0], &self.needed)
    }

    /// The right answer: what it comes to, as a whole number.
    pub fn answer(&self) -> i128 {
        evaluate(&self.solution()).expect("facts are small numbers that are not 0").rounded()
    }

    /// Whether a number is the right answer: rounded, as it is.
    pub fn is_answer(&self, number: Number) -> bool {
        number.rounded() == self.answer()
    }

    /// All expressions of its forms with some of these facts.
    pub fn expressions(&self, facts: &[usize]) -> Vec<String> {
        let arguments: Vec<Vec<usize>> = if self.kind.n_facts() == 1 {
            facts.iter().map(|a| vec![*a]).collect()
        } else {
            facts.iter().flat_map(|a| facts.iter().filter(move |b| *b != a).map(move |b| vec![*a, *b])).collect()
        };
        let of_form = |form| arguments.iter().map(move |facts| self.expression(form, facts));
        self.kind.forms().into_iter().flat_map(of_form).collect()
    }

    /// Whether the right answer is 0, or a number within reach, or what a mistake within reach comes to; or whether another
    /// fact has the number of one that is needed, or what the calculator shows is rounded otherwise than what it holds.
    fn misjudges(&self) -> bool {
        let reach: Vec<usize> = self.reach().collect();
        let right = self.answer();
        let mut turned = self.needed.clone();
        turned.reverse();
        // A sum is right in either order.
        let solutions = [&self.needed, &turned].map(|facts| self.expression(self.kind.forms()[0], facts));
        let by_mistake = |text: &String| !solutions.contains(text) && evaluate(text).is_ok_and(|x| x.rounded() == right);
        let equal = |a: &usize| self.needed.iter().any(|b| FACTS[*a].number == FACTS[*b].number);
        let shown = evaluate(&self.solution()).ok().and_then(|x| literal(&x.decimal())).map(Number::rounded);
        right == 0
            || shown != Some(right)
            || self.others.iter().any(equal)
            || self.mass.is_some_and(|mass| i128::from(mass) == right)
            || reach.iter().any(|i| FACTS[*i].value().rounded() == right)
            || self.expressions(&reach).iter().any(by_mistake)
    }
}

/// The tasks of both splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// Tasks to train on.
    pub train: Vec<Task>,
    /// Tasks to measure on; none is in `train`.
    pub held_out: Vec<Task>,
}

/// Deals the tasks: the first go to `held_out`, the next to `train`. The kinds take turns as long as they last. Held-out
/// tasks do not depend on the number of training tasks.
///
/// # Errors
/// If there are not that many.
pub fn generate(seed: u64, n_train: usize, n_held_out: usize) -> Result<Tasks, String> {
    let mut all = all(seed);
    let (there, asked) = (all.len(), n_train + n_held_out);
    if asked > there {
        return Err(format!(
            "`train_tasks` and `held_out_tasks` ask for {asked} tasks together, and there are {there} with `seed = {seed}`; \
             ask for fewer"
        ));
    }
    all.truncate(asked);
    let train = all.split_off(n_held_out);
    Ok(Tasks { train, held_out: all })
}

/// All tasks, in the order of a seed.
fn all(seed: u64) -> Vec<Task> {
    let mut kinds: Vec<std::vec::IntoIter<Task>> = Vec::new();
    for (k, kind) in (0..).zip(Kind::ALL) {
        let drawn = (0..).zip(questions(kind)).filter_map(|(q, (needed, mass))| with_others(seed, (k, q), kind, needed, mass));
        let mut tasks: Vec<Task> = drawn.collect();
        Seeds(seed).rng("mini-tool/order", Draw { group: k, ..Draw::default() }).shuffle(&mut tasks);
        kinds.push(tasks.into_iter());
    }
    let mut dealt = Vec::new();
    loop {
        let before = dealt.len();
        dealt.extend(kinds.iter_mut().filter_map(Iterator::next));
        if dealt.len() == before {
            return dealt;
        }
    }
}

/// The facts that the questions of a kind need, and the mass they give.
fn questions(kind: Kind) -> Vec<(Vec<usize>, Option<u32>)> {
    // Of two numbers the larger first, each pair once.
    let pairs = |attribute: &str| -> Vec<(usize, usize)> {
        let facts = about(attribute);
        let larger = |a: usize, b: usize| FACTS[a].value().minus(FACTS[b].value()).is_ok_and(Number::is_positive);
        facts.iter().flat_map(|a| facts.iter().filter(|b| larger(*a, **b)).map(|b| (*a, *b))).collect()
    };
    let ones = |attribute: &str| about(attribute).into_iter().map(|a| (vec![a], None)).collect::<Vec<_>>();
    let all_pairs = |attributes: &[&str]| attributes.iter().flat_map(|attribute| pairs(attribute)).collect::<Vec<_>>();
    match kind {
        Kind::Circumference | Kind::Diameter => ones("radius"),
        Kind::Weight => about("gravity").into_iter().flat_map(|a| MASSES.map(|mass| (vec![a], Some(mass)))).collect(),
        Kind::Difference => all_pairs(&["height", "length", "release", "paper", "orbit", "radius"])
            .into_iter()
            .map(|(a, b)| (vec![a, b], None))
            .collect(),
        Kind::Sum | Kind::Mean => {
            all_pairs(&["height", "length", "orbit", "radius"]).into_iter().map(|(a, b)| (vec![a, b], None)).collect()
        }
        Kind::Percent => {
            all_pairs(&["height", "length", "orbit", "radius"]).into_iter().map(|(a, b)| (vec![b, a], None)).collect()
        }
    }
}

/// A question with other facts within reach, or `None` if there are none that leave it decided.
fn with_others(seed: u64, at: (u32, u32), kind: Kind, needed: Vec<usize>, mass: Option<u32>) -> Option<Task> {
    let mut rng = Seeds(seed).rng("mini-tool/others", Draw { group: at.0, member: at.1, ..Draw::default() });
    let same =
        |i: &usize| needed.iter().any(|n| FACTS[*i].attribute == FACTS[*n].attribute || FACTS[*i].entity == FACTS[*n].entity);
    let mut close: Vec<usize> = (0..FACTS.len()).filter(|i| !needed.contains(i)).filter(same).collect();
    let entity = FACTS[needed[0]].entity;
    let mut missing: Vec<&str> = FACTS.iter().map(|fact| fact.attribute).collect();
    missing.sort_unstable();
    missing.dedup();
    missing.retain(|attribute| !FACTS.iter().any(|fact| fact.entity == entity && fact.attribute == *attribute));
    let missing = (*rng.choose(&missing)?).to_string();
    (0..CHOICES).find_map(|_| {
        rng.shuffle(&mut close);
        let others = close.iter().take(REACH - needed.len()).copied().collect();
        let task = Task { kind, needed: needed.clone(), mass, others, missing: missing.clone() };
        (!task.misjudges()).then_some(task)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn by_hand() {
        let facts = |names: &[&str]| -> Vec<usize> {
            names.iter().map(|name| super::super::knowledge::find(&name.split(' ').collect::<Vec<_>>()).unwrap()).collect()
        };
        let check = |kind, mass, names: &[&str], question: &str, solution: &str, answer: i128| {
            let task = Task { kind, needed: facts(names), mass, others: Vec::new(), missing: String::new() };
            assert_eq!(task.question(), question);
            assert_eq!(task.solution(), solution);
            assert_eq!(task.answer(), answer);
        };
        check(
            Kind::Circumference,
            None,
            &["earth radius"],
            "find the circumference of earth from its radius with pi 3 . 1 4 1 5 9",
            "2 * 3 . 1 4 1 5 9 * 6 3 7 1",
            40_030,
        );
        check(Kind::Diameter, None, &["io radius"], "find the diameter of io from its radius", "2 * 1 8 2 2", 3_644);
        // 70 · 1.6 = 112
        check(
            Kind::Weight,
            Some(70),
            &["moon gravity"],
            "find the weight of 7 0 kilograms on moon from its gravity",
            "7 0 * 1 . 6",
            112,
        );
        check(
            Kind::Difference,
            None,
            &["gpt release", "python release"],
            "find the difference of the release of gpt and of python",
            "2 0 2 0 - 1 9 9 1",
            29,
        );
        // 8849 + 8611 = 17460
        check(
            Kind::Sum,
            None,
            &["everest height", "k2 height"],
            "find the sum of the height of everest and of k2",
            "8 8 4 9 + 8 6 1 1",
            17_460,
        );
        check(
            Kind::Mean,
            None,
            &["everest height", "k2 height"],
            "find the mean of the height of everest and of k2",
            "( 8 8 4 9 + 8 6 1 1 ) / 2",
            8_730,
        );
        // 100 · 57.9 / 149.6 = 38.7…
        check(
            Kind::Percent,
            None,
            &["mercury orbit", "earth orbit"],
            "find the percent that the orbit of mercury is of earth",
            "1 0 0 * 5 7 . 9 / 1 4 9 . 6",
            39,
        );
    }

    #[test]
    fn only_the_right_calculation_gives_the_right_answer() {
        for task in all(3) {
            let reach: Vec<usize> = task.reach().collect();
            assert_eq!(reach.iter().collect::<BTreeSet<_>>().len(), REACH, "{task:?}");
            assert_ne!(task.answer(), 0);
            for fact in &reach {
                assert!(!task.is_answer(FACTS[*fact].value()), "{task:?}");
            }
            for text in task.expressions(&reach) {
                if evaluate(&text).is_ok_and(|x| task.is_answer(x)) {
                    assert_eq!(evaluate(&text), evaluate(&task.solution()), "{task:?}: {text}");
                }
            }
            let name = [FACTS[task.needed[0]].entity, &task.missing];
            assert_eq!(super::super::knowledge::find(&name), None, "{task:?}");
        }
    }

    #[test]
    fn splits_share_no_task_and_kinds_take_turns() {
        let n = all(0).len();
        let tasks = generate(0, n - 70, 70).unwrap();
        let names: BTreeSet<String> = tasks.train.iter().chain(&tasks.held_out).map(Task::name).collect();
        assert_eq!(names.len(), n);
        let questions: BTreeSet<String> = tasks.train.iter().chain(&tasks.held_out).map(Task::question).collect();
        assert_eq!(questions.len(), n);
        let mut shares: BTreeMap<Kind, usize> = BTreeMap::new();
        tasks.held_out.iter().for_each(|task| *shares.entry(task.kind).or_default() += 1);
        assert_eq!(shares.into_iter().collect::<Vec<_>>(), Kind::ALL.map(|kind| (kind, 10)));
        println!("{n} tasks");
    }

    #[test]
    fn held_out_tasks_do_not_depend_on_the_number_of_others() {
        let few = generate(5, 1, 8).unwrap();
        let many = generate(5, 300, 8).unwrap();
        assert_eq!(few.held_out, many.held_out);
        assert_eq!(few.train, many.train[..1]);
        assert_ne!(many.held_out, generate(6, 1, 8).unwrap().held_out);
    }

    #[test]
    fn asking_for_more_tasks_than_there_are_is_an_error() {
        let n = all(0).len();
        let error = generate(0, n, 1).unwrap_err();
        let start = format!("`train_tasks` and `held_out_tasks` ask for {} tasks together, and there are {n} ", n + 1);
        assert!(error.starts_with(&start), "{error}");
    }
}
