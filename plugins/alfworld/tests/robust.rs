//! Games that are not quite right: compiling them never panics, and what compiles can be played.

use ascribe_alfworld::{Game, Variant, mini};
use proptest::prelude::*;

/// The words of a small game with some of them dropped, doubled or exchanged.
fn changed(game: usize, changes: &[(u8, prop::sample::Index, prop::sample::Index)]) -> String {
    let problem = mini::GAMES[game].problem.replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> =
        problem.lines().map(|line| line.split(';').next().unwrap_or("")).flat_map(str::split_whitespace).collect();
    for (kind, a, b) in changes {
        let (a, b) = (a.index(words.len()), b.index(words.len()));
        match kind % 4 {
            0 => drop(words.remove(a)),
            1 => words.insert(a, words[b]),
            2 => words.swap(a, b),
            _ => words[a] = words[b],
        }
    }
    words.join(" ")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_game_is_refused_or_played(
        game in 0usize..6,
        changes in prop::collection::vec((any::<u8>(), any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..4),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 30),
        old in any::<bool>(),
    ) {
        let variant = if old { Variant::V211 } else { Variant::V042 };
        if let Ok(game) = Game::new(&changed(game, &changes), "put a mug in desk.", variant) {
            let mut state = game.start().clone();
            let mut out = game.intro();
            for choice in choices {
                let admissible = game.admissible(&state);
                prop_assert!(admissible.is_sorted());
                prop_assert!(admissible.windows(2).all(|pair| pair[0] != pair[1]));
                let before = state.clone();
                let command = &admissible[choice.index(admissible.len())];
                prop_assert!(game.step(&mut state, command, &mut out).is_some(), "{}", command);
                prop_assert_eq!(game.state_key(&before) == game.state_key(&state), before == state);
                prop_assert_eq!(game.restore(&game.snapshot(&state)), Ok(state.clone()));
                prop_assert!(game.stage(&state).progress() <= 1.0);
                prop_assert_eq!(game.won(&state), game.stage(&state).progress() == 1.0);
            }
        }
    }
}
