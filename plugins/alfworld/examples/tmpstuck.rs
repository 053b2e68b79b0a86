//! x
use ascribe_alfworld::*;
fn main() {
    let library = Library::open(&Source::discover().unwrap()).unwrap();
    let (mut lost, mut stuck) = (0, 0);
    for idx in 0..library.entries().len() {
        let game = library.load(idx, None).unwrap().game;
        let mut seed = idx as u64;
        let mut state = game.start().clone();
        let mut expert = Expert::new(&game.intro());
        let mut admissible = game.admissible(&state);
        let mut won = false;
        for t in 0..65 {
            let command = if t < 15 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                admissible[(seed >> 33) as usize % admissible.len()].clone()
            } else { if game.won(&state) { won = true; break; } expert.act(&admissible).unwrap() };
            let mut o = String::new();
            game.step(&mut state, &command, &mut o);
            admissible = game.admissible(&state);
            expert.observe(&o, &admissible);
        }
        if !won && !game.won(&state) {
            lost += 1;
            let held = state.held().map(|o| {
                (0..game.n_receptacles() as u16).map(ReceptacleId).any(|r| {
                    let mut s = state.clone(); let mut o2 = String::new();
                    game.apply(&mut s, Command::GoTo(r), &mut o2); game.apply(&mut s, Command::Open(r), &mut o2);
                    game.applicable(&s, Command::Put(o, r))
                })
            });
            println!("{} held {:?} fits somewhere {:?}", library.entries()[idx].id, state.held().map(|o| game.object_name(o)), held);
            if held == Some(false) { stuck += 1 }
        }
    }
    println!("{lost} {stuck}");
}
