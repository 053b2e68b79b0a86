//! Checks of transforms.

use ascribe_core::credit::SpanCredit;
use ascribe_core::{Batch, Credit, CreditTransform, Draw, Now, Seeds};

use crate::groups::{batch, odd, random_chains, random_forest};
use crate::{Report, check};

/// Random batches per check.
const SEEDS: u64 = 24;

/// Holds a transform to what all must keep.
pub fn transform(transform: &dyn CreditTransform) -> Report {
    let it = Subject { transform };
    Report(vec![
        check("credit still fits and is finite, at every granularity", it.batches(), |b| it.keeps_shape(b)),
        check("what is not trained stays so", it.batches(), |b| it.trains_nothing_new(b)),
        check("the same seed gives the same credit", it.batches(), |b| it.is_deterministic(b)),
        check("a batch without trained turns, and one without groups, pass", it.batches(), |b| it.passes_nothing(b)),
    ])
}

struct Subject<'a> {
    transform: &'a dyn CreditTransform,
}

impl Subject<'_> {
    /// Batches, each with a seed.
    fn batches(&self) -> Vec<u64> {
        (0..SEEDS).collect()
    }

    fn batch(&self, seed: u64) -> Result<Batch, String> {
        let mut logs: Vec<_> = (0..3).flat_map(|g| [random_chains(seed * 3 + g), random_forest(seed * 3 + g)]).collect();
        if seed == 0 {
            logs.extend(odd().into_iter().map(|case| case.log));
        }
        batch(logs, &self.transform.needs(), 1.0)
    }

    /// Credit on turns, on spans and on tokens, with gaps.
    fn credit(&self, batch: &Batch, seed: u64) -> Vec<Credit> {
        let mut rng = Seeds(seed).rng("conformance/credit", Draw::default());
        batch
            .groups()
            .map(|group| {
                let mut some = |n: usize| (0..n).map(|_| (rng.below(4) > 0).then(|| rng.normal() as f32)).collect::<Vec<_>>();
                let turns = some(group.n_turns());
                let tokens = if seed % 3 == 1 { some(group.sampled().len()) } else { Vec::new() };
                let plans = (0..if seed % 3 == 2 { turns.len() } else { 0 }).filter(|t| group.sampled_of(*t).len() > 1);
                let spans = plans.map(|turn| SpanCredit { turn, start: 0, end: 1, advantage: Some(0.5) }).collect();
                Credit { turns, spans, tokens: tokens.into(), ..Credit::default() }
            })
            .collect()
    }

    fn apply(&self, batch: &Batch, mut credit: Vec<Credit>, seed: u64) -> Result<Vec<Credit>, String> {
        let metrics = self.transform.apply(batch, &mut credit, &Now::default(), Seeds(seed));
        if let Some((name, x)) = metrics.0.iter().find(|(_, x)| !x.is_finite()) {
            return Err(format!("batch {seed}: the metric `{name}` is {x}"));
        }
        Ok(credit)
    }

    fn keeps_shape(&self, seed: u64) -> Result<(), String> {
        let batch = self.batch(seed)?;
        let after = self.apply(&batch, self.credit(&batch, seed), seed)?;
        batch.groups().zip(&after).try_for_each(|(group, credit)| {
            credit.check(group).map_err(|e| format!("batch {seed}, group {}: {e}", group.index()))
        })
    }

    fn trains_nothing_new(&self, seed: u64) -> Result<(), String> {
        let batch = self.batch(seed)?;
        let before = self.credit(&batch, seed);
        let after = self.apply(&batch, before.clone(), seed)?;
        for (group, (before, after)) in batch.groups().zip(before.iter().zip(&after)) {
            let (x, y) =
                (ascribe_core::credit::spread(group, before).advantage, ascribe_core::credit::spread(group, after).advantage);
            if let Some(i) = (0..x.len()).find(|i| x.get(*i).is_none() && y.get(*i).is_some()) {
                return Err(format!("batch {seed}, group {}: token {i} was not trained and now is", group.index()));
            }
        }
        Ok(())
    }

    fn is_deterministic(&self, seed: u64) -> Result<(), String> {
        let batch = self.batch(seed)?;
        let credit = self.credit(&batch, seed);
        let (a, b) = (self.apply(&batch, credit.clone(), seed)?, self.apply(&batch, credit, seed)?);
        if a == b { Ok(()) } else { Err(format!("batch {seed}: another credit the second time")) }
    }

    fn passes_nothing(&self, seed: u64) -> Result<(), String> {
        let full = self.batch(seed)?;
        let untrained = full.groups().map(|g| Credit { turns: vec![None; g.n_turns()], ..Credit::default() }).collect::<Vec<_>>();
        let after = self.apply(&full, untrained.clone(), seed)?;
        if full.groups().zip(&after).any(|(g, c)| ascribe_core::credit::spread(g, c).advantage.iter().any(|a| a.is_some())) {
            return Err(format!("batch {seed}: it trains what nobody trained"));
        }
        let empty = batch(Vec::new(), &self.transform.needs(), 1.0)?;
        self.apply(&empty, Vec::new(), seed).map(drop)
    }
}
