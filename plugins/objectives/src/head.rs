//! Where objectives on a scalar head read it, and what it should have said there.

use ascribe_core::objective::Aggregation;
use ascribe_core::{Column, Rows, Totals};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a head is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// At every trained token: before each it says what is to come.
    #[default]
    Tokens,
    /// At the first trained token of each turn, which is the state the turn acts in.
    Turns,
}

/// One reading of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Its place in the packed columns.
    pub at: usize,
    /// Its place in the columns of the row set.
    pub token: usize,
    /// Loss weight.
    pub weight: f64,
    /// Loss weight times factor: what its loss is multiplied by.
    pub scale: f64,
    /// What the head should have said.
    pub target: f64,
}

/// The column `target/NAME` of a row set.
///
/// # Panics
/// If there is none: who makes rows for a head gives its targets.
pub(crate) fn targets<'a>(rows: &Rows<'a>, name: &str) -> &'a Column {
    rows.set().columns.get(&format!("target/{name}")).expect("rows that train a head carry its targets")
}

/// The readings that have a target. Over tokens, `aggregation` gives the factors; over turns, it is the mean over the
/// minibatch's turns.
pub(crate) fn readings(rows: &Rows<'_>, name: &str, over: Over, aggregation: Aggregation, totals: &Totals) -> Vec<Reading> {
    let targets = targets(rows, name);
    let mut readings = Vec::new();
    for row in rows.iter() {
        let (places, factor): (Vec<usize>, f64) = match over {
            Over::Tokens => (row.packed.clone().collect(), aggregation.factor(row.packed.len(), totals)),
            Over::Turns => (row.turns().map(|turn| turn.start).collect(), 1.0 / totals.turns.max(1) as f64),
        };
        let (first, weights) = (rows.set().rows[row.id as usize].trained.start, row.weight());
        for at in places {
            let k = at - row.packed.start;
            if let Some(target) = targets.get(first + k) {
                let weight = f64::from(weights[k]);
                readings.push(Reading { at, token: first + k, weight, scale: factor * weight, target: f64::from(target) });
            }
        }
    }
    readings
}
