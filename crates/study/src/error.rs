//! Results that make no table, and questions that have no answer.

/// Why results were refused, or a question about them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StudyError {
    /// There is nothing to count.
    #[error("{what}: at least one is needed")]
    Empty {
        /// What there is none of.
        what: String,
    },
    /// A name that tables and files could not carry.
    #[error("{what} number {place} has no name")]
    Nameless {
        /// `task` or `arm`.
        what: &'static str,
        /// Which, counted from 1.
        place: usize,
    },
    /// The same name or seed twice.
    #[error("{what} is given twice: one of the two would be counted as the other")]
    Twice {
        /// What, with its name.
        what: String,
    },
    /// A list that is longer or shorter than what it is about.
    #[error("arm `{arm}`, seed {seed}: {got} {what} where there are {want} {of}")]
    Ragged {
        /// The arm.
        arm: String,
        /// The run.
        seed: u64,
        /// What the list holds.
        what: &'static str,
        /// How many it holds.
        got: usize,
        /// How many it should hold.
        want: usize,
        /// Of what.
        of: &'static str,
    },
    /// A number that is not finite, or out of the stated range.
    #[error(
        "arm `{arm}`, seed {seed}: {what} is {got}, and must be {must}; a run that broke is given as failed, with its reason"
    )]
    Number {
        /// The arm.
        arm: String,
        /// The run.
        seed: u64,
        /// Which number.
        what: String,
        /// What it is.
        got: f64,
        /// What it must be.
        must: String,
    },
    /// Budget that was spent is not given back.
    #[error("arm `{arm}`, seed {seed}: {axis} fall from {before} to {after} at point {point}")]
    Backwards {
        /// The arm.
        arm: String,
        /// The run.
        seed: u64,
        /// The axis.
        axis: &'static str,
        /// Which point, counted from 1.
        point: usize,
        /// Position of the point before.
        before: f64,
        /// Position of this one.
        after: f64,
    },
    /// There is no such arm, task or axis.
    #[error("there is no {what} `{name}`; there are: {known}")]
    Unknown {
        /// `arm` or `axis`.
        what: &'static str,
        /// The name.
        name: String,
        /// Those that exist.
        known: String,
    },
    /// A curve was asked for where it was not measured; it is not extrapolated.
    #[error(
        "arm `{arm}`, seed {seed} was measured from {from} to {to} {axis}, not at {position}; choose a position that all reached, \
         or train on"
    )]
    NotMeasured {
        /// The arm.
        arm: String,
        /// The run.
        seed: u64,
        /// The axis.
        axis: &'static str,
        /// First position.
        from: f64,
        /// Last position.
        to: f64,
        /// Where it was asked for.
        position: f64,
    },
    /// A setting out of its range.
    #[error("{what} must be {must}, got {got}")]
    Setting {
        /// Which.
        what: &'static str,
        /// What it must be.
        must: &'static str,
        /// What it is.
        got: f64,
    },
    /// A file could not be written.
    #[error("the arrays could not be written: {0}")]
    Write(String),
}
