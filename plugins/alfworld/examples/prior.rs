//! Counts where objects lie in the training games and prints the table the expert uses (`src/prior.tsv`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use ascribe_alfworld::expert::Task;
use ascribe_alfworld::{DataError, Library, ReceptacleId, Source, Split, TaskType};

fn kind(name: &str) -> String {
    name.split(' ').next().unwrap_or(name).to_owned()
}

/// By kind of object and kind of receptacle: receptacles that contained it, and all.
type Counts = BTreeMap<String, BTreeMap<String, (usize, usize)>>;

fn count() -> Result<Counts, DataError> {
    let library = Library::open(&Source::discover()?)?;
    let mut counts: Counts = BTreeMap::new();
    for (idx, entry) in library.entries().iter().enumerate() {
        let (Split::Train, Some(task)) = (entry.split, Task::read(&entry.task)) else { continue };
        let game = library.load(idx, None)?.game;
        let mut wanted = BTreeSet::from([task.object]);
        if task.kind == TaskType::LookAtObjInLight {
            wanted.insert(task.target);
        }
        for r in (0u16..).take(game.n_receptacles()).map(ReceptacleId) {
            let found: BTreeSet<String> = game.contents(game.start(), r).map(|object| kind(game.object_name(object))).collect();
            for object in &wanted {
                let count = counts.entry(object.clone()).or_default().entry(kind(game.receptacle_name(r))).or_default();
                count.0 += usize::from(found.contains(object));
                count.1 += 1;
            }
        }
    }
    Ok(counts)
}

fn main() -> ExitCode {
    let counts = match count() {
        Ok(counts) => counts,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for (object, places) in counts {
        let mut shares: Vec<(String, f64)> = places
            .into_iter()
            .map(|(place, (with, all))| (place, with as f64 / all as f64))
            .filter(|(_, share)| *share >= 0.0005)
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let cells: Vec<String> = shares.iter().map(|(place, share)| format!("\t{place}={share:.3}")).collect();
        println!("{object}{}", cells.concat());
    }
    ExitCode::SUCCESS
}
