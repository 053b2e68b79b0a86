//! Lines of the files that only grow: one JSON object each.

use std::fs;
use std::io;
use std::path::Path;

use ascribe_core::Metrics;
use serde::de::{DeserializeOwned, Error};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::evaluate::Mode;

/// A line of `metrics.jsonl`: one update. Flat, so that any tool reads it as a table. No clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsLine {
    /// Updates done, this one included.
    pub update: u32,
    /// Name of the phase.
    pub phase: String,
    /// Its metrics.
    pub metrics: Metrics,
}

impl Serialize for MetricsLine {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("update", &self.update)?;
        map.serialize_entry("phase", &self.phase)?;
        for (name, x) in &self.metrics.0 {
            if x.is_finite() {
                map.serialize_entry(name, x)?;
            } else {
                map.serialize_entry(name, &x.to_string())?;
            }
        }
        map.end()
    }
}
impl<'de> Deserialize<'de> for MetricsLine {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let mut map = serde_json::Map::deserialize(d)?;
        let mut take = |name: &'static str| map.remove(name).ok_or_else(|| D::Error::missing_field(name));
        let (update, phase) = (take("update")?, take("phase")?);
        Ok(Self {
            update: serde_json::from_value(update).map_err(D::Error::custom)?,
            phase: serde_json::from_value(phase).map_err(D::Error::custom)?,
            metrics: serde_json::from_value(map.into()).map_err(D::Error::custom)?,
        })
    }
}

/// A line of `timing.jsonl`: where an update's time went, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimingLine {
    /// Updates done, this one included.
    pub update: u32,
    /// Name of the phase.
    pub phase: String,
    /// The whole update, without its evaluation.
    pub seconds: f64,
    /// Playing episodes.
    pub rollout: f64,
    /// Critics judging.
    pub judge: f64,
    /// Estimator and transforms.
    pub credit: f64,
    /// Training.
    pub train: f64,
    /// Evaluation after the update.
    pub evaluate: f64,
    /// Tokens that models processed per second of the update.
    pub tokens_per_second: f64,
}

/// A line of `evaluations.jsonl`: what became of one task in one evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationLine {
    /// Updates done.
    pub update: u32,
    /// Name of the phase.
    pub phase: String,
    /// The split.
    pub split: String,
    /// How its actions were chosen.
    pub mode: Mode,
    /// Index of the task in its split.
    pub task: u32,
    /// What the task is called.
    pub name: String,
    /// The kind of task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Its episodes.
    pub episodes: Vec<EpisodeResult>,
}

/// One episode of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpisodeResult {
    /// Whether the environment declared the task solved.
    pub success: bool,
    /// Sum of the environment's rewards.
    #[serde(rename = "return")]
    pub outcome: f64,
    /// Turns.
    pub turns: u32,
    /// How it ended: `terminated`, `truncated`, `failed`, …
    pub end: String,
    /// The environment's columns, summed over the episode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<(String, f64)>,
}

/// A value as a line.
pub(crate) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("plain data serialises");
    bytes.push(b'\n');
    bytes
}

/// Reads a file of lines. A last line that was cut short is left out: its run was killed while it was written.
///
/// # Errors
/// If the file cannot be read, or a whole line is not what it should be; the message names the line.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .split('\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(i, line)| {
            serde_json::from_str(line)
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("{}:{}: {e}", path.display(), i + 1)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_metrics_line_survives_to_the_bit(bits in prop::collection::vec(any::<u64>(), 0..5)) {
            let mut at = MetricsLine { update: 7, phase: "rl \"x\"".into(), metrics: Metrics::default() };
            for (i, bits) in bits.iter().enumerate() {
                at.metrics.set(format!("m/{i}"), f64::from_bits(*bits));
            }
            let back: MetricsLine = serde_json::from_slice(&line(&at)).unwrap();
            prop_assert_eq!((back.update, &back.phase), (at.update, &at.phase));
            for (name, x) in &at.metrics.0 {
                let y = back.metrics.get(name).unwrap();
                prop_assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
            }
        }
    }

    #[test]
    fn a_line_cut_short_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut bytes = line(&MetricsLine { update: 1, ..MetricsLine::default() });
        bytes.extend_from_slice(b"{\"update\":2,\"pha");
        fs::write(&path, &bytes).unwrap();
        assert_eq!(read_lines::<MetricsLine>(&path).unwrap().len(), 1);
        fs::write(&path, "{\"update\":1}\n").unwrap();
        assert!(read_lines::<MetricsLine>(&path).unwrap_err().to_string().contains("metrics.jsonl:1: missing field `phase`"));
    }
}
