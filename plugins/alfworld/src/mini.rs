//! Six small games of our own, one for each kind of task, so that the engine can be tried without any data.

use crate::game::Game;
use crate::grammar::{Variant, translate};
use crate::pddl::PddlError;

/// A game that comes with the crate.
#[derive(Clone, Copy, Debug)]
pub struct MiniGame {
    /// Its id, in the form of the real ones: `split/task/trial`.
    pub id: &'static str,
    /// The task sentence.
    pub task: &'static str,
    /// The problem text.
    pub problem: &'static str,
    /// Commands that win, in the words of [`Variant::V042`].
    pub walkthrough: &'static [&'static str],
}

impl MiniGame {
    /// Compiles the game.
    pub fn compile(&self, variant: Variant) -> Result<Game, PddlError> {
        Game::new(self.problem, self.task, variant)
    }

    /// The winning commands in the words of a variant.
    pub fn walkthrough(&self, variant: Variant) -> Vec<String> {
        self.walkthrough.iter().filter_map(|command| translate(command, variant)).collect()
    }
}

/// The games, in the order of [`crate::game::TaskType::ALL`].
pub const GAMES: [MiniGame; 6] = [
    MiniGame {
        id: "mini/look_at_obj_in_light-CD-None-DeskLamp-0/mini",
        task: "examine the cd with the desklamp.",
        problem: include_str!("../mini/look.pddl"),
        walkthrough: &["go to safe 1", "open safe 1", "take cd 1 from safe 1", "go to desk 1", "use desklamp 1"],
    },
    MiniGame {
        id: "mini/pick_and_place_simple-KeyChain-None-SideTable-0/mini",
        task: "put a keychain in sidetable.",
        problem: include_str!("../mini/place.pddl"),
        walkthrough: &[
            "go to drawer 1",
            "open drawer 1",
            "take keychain 1 from drawer 1",
            "go to sidetable 1",
            "move keychain 1 to sidetable 1",
        ],
    },
    MiniGame {
        id: "mini/pick_clean_then_place_in_recep-Plate-None-Cabinet-0/mini",
        task: "put a clean plate in cabinet.",
        problem: include_str!("../mini/clean.pddl"),
        walkthrough: &[
            "go to countertop 1",
            "take plate 1 from countertop 1",
            "clean plate 1 with sinkbasin 1",
            "go to cabinet 1",
            "open cabinet 1",
            "move plate 1 to cabinet 1",
        ],
    },
    MiniGame {
        id: "mini/pick_cool_then_place_in_recep-Mug-None-CoffeeMachine-0/mini",
        task: "cool some mug and put it in coffeemachine.",
        problem: include_str!("../mini/cool.pddl"),
        walkthrough: &[
            "go to coffeemachine 1",
            "take mug 1 from coffeemachine 1",
            "go to fridge 1",
            "cool mug 1 with fridge 1",
            "go to coffeemachine 1",
            "move mug 1 to coffeemachine 1",
        ],
    },
    MiniGame {
        id: "mini/pick_heat_then_place_in_recep-Egg-None-DiningTable-0/mini",
        task: "put a hot egg in diningtable.",
        problem: include_str!("../mini/heat.pddl"),
        walkthrough: &[
            "go to microwave 1",
            "open microwave 1",
            "take egg 1 from microwave 1",
            "heat egg 1 with microwave 1",
            "go to diningtable 1",
            "move egg 1 to diningtable 1",
        ],
    },
    MiniGame {
        id: "mini/pick_two_obj_and_place-SoapBar-None-GarbageCan-0/mini",
        task: "put two soapbar in garbagecan.",
        problem: include_str!("../mini/two.pddl"),
        walkthrough: &[
            "go to toilet 1",
            "take soapbar 2 from toilet 1",
            "go to garbagecan 2",
            "move soapbar 2 to garbagecan 2",
            "open cabinet 1",
            "take soapbar 1 from cabinet 1",
            "move soapbar 1 to garbagecan 2",
        ],
    },
];
