//! What was predicted, and whether it still says so.

use std::fs;

use ascribe_run::checkpoint::sha256;
use ascribe_study::grid::Prediction;

/// A prediction that was recorded, and its file as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// What was recorded.
    pub recorded: Prediction,
    /// The file.
    pub now: PredictionFile,
}

/// The file of a prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredictionFile {
    /// It is the one that was recorded; its text.
    Unchanged(String),
    /// It was changed; the hash of its bytes.
    Changed(String),
    /// It cannot be read; why.
    Unreadable(String),
}

impl Predicted {
    /// Looks at the file of a prediction.
    pub fn read(recorded: Prediction) -> Predicted {
        let now = match fs::read(&recorded.file) {
            Err(e) => PredictionFile::Unreadable(e.to_string()),
            Ok(bytes) => match sha256(&bytes) {
                hash if hash == recorded.sha256 => PredictionFile::Unchanged(String::from_utf8_lossy(&bytes).into_owned()),
                hash => PredictionFile::Changed(hash),
            },
        };
        Predicted { recorded, now }
    }
}
