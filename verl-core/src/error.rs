//! The error type of the whole workspace.
//!
//! Every message says what was wrong, where, and what to do about it. Errors
//! from a plugin of a user's own crate travel in [`Error::Plugin`].

use std::fmt;
use std::path::{Path, PathBuf};

/// Result with the workspace's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Anything that can go wrong in verl.
///
/// `Debug` prints the message too, so that a `main` that returns it reads well.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },

    /// A file was read but its content is wrong.
    #[error("{path}{line}: {message}", path = path.display(), line = line.map(|l| format!(":{l}")).unwrap_or_default())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// One-based line, where the file has lines.
        line: Option<usize>,
        /// What is wrong and what to do.
        message: String,
    },

    /// A configuration key holds a value that cannot be used.
    #[error("{key}{at}: {message}", at = line.map(|l| format!(" (line {l})")).unwrap_or_default())]
    Config {
        /// Dotted path of the key, e.g. `actor.optim.lr`.
        key: String,
        /// One-based line in the configuration file, when it came from one.
        line: Option<usize>,
        /// What is wrong and what to do.
        message: String,
    },

    /// A per-token column was asked for before anything computed it.
    #[error("{requester} reads the column `{column}`, which has not been computed; {remedy}")]
    MissingColumn {
        /// The column's name.
        column: &'static str,
        /// Who asked.
        requester: &'static str,
        /// What fills the column.
        remedy: &'static str,
    },

    /// A loss that compares the answers to one prompt sees one of them alone.
    #[error(
        "{requester} compares the answers to one prompt, but group {group} has a single answer here; sample at least two and keep groups whole in micro-batches"
    )]
    MissingPartner {
        /// Id of the group.
        group: u64,
        /// Who asked.
        requester: &'static str,
    },

    /// Two things that must have the same length do not.
    #[error("{what}: expected {expected} values, got {got}")]
    Length {
        /// What was measured, with its place.
        what: String,
        /// The length it should have.
        expected: usize,
        /// The length it has.
        got: usize,
    },

    /// A NaN or an infinity where a number is needed.
    #[error("{what} is {value} at {place}")]
    NotFinite {
        /// The quantity.
        what: String,
        /// The value found.
        value: f32,
        /// Row, token or tensor.
        place: String,
    },

    /// A named sub-score that a trajectory does not have.
    #[error(
        "{requester} reads the sub-score `{part}` of {place}, which has {known}; let the reward return it with `Score::with_part`"
    )]
    MissingPart {
        /// Name of the sub-score.
        part: String,
        /// Who asked.
        requester: &'static str,
        /// The trajectory.
        place: String,
        /// The names it has, or `none`.
        known: String,
    },

    /// The reward of a greedy answer that a group does not have.
    #[error(
        "{requester} compares with a greedy answer to the prompt of group {group}, which has none; sample one at temperature 0 and store its reward with `Group::set_baseline`"
    )]
    MissingBaseline {
        /// Who asked.
        requester: &'static str,
        /// Id of the group.
        group: u64,
    },

    /// A name that no registry entry has.
    #[error("unknown {kind} `{name}`{hint}; known: {known}")]
    UnknownName {
        /// Kind of thing looked up.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// ` (did you mean ...?)`, or empty.
        hint: String,
        /// The known names, comma-separated.
        known: String,
    },

    /// A name registered twice.
    #[error("{kind} `{name}` is already registered; use `replace` to override it on purpose")]
    DuplicateName {
        /// Kind of thing registered.
        kind: &'static str,
        /// The name.
        name: String,
    },

    /// Model weights that do not fit their configuration.
    #[error("{place}: {message}")]
    Weights {
        /// Folder or file of the weights.
        place: String,
        /// Every missing, extra, misshapen or truncated tensor by name.
        message: String,
    },

    /// An optimizer's memory that another kind of optimizer wrote.
    #[error(
        "the optimizer state was written by `{found}`, and `{expected}` cannot go on from it; choose `{found}` again, or start a new run"
    )]
    ForeignState {
        /// The optimizer that was to go on.
        expected: &'static str,
        /// The one that wrote the state.
        found: String,
    },

    /// Something asked for that this build, model or algorithm cannot do.
    #[error("{0}")]
    Unsupported(String),

    /// Arguments that contradict each other or lie outside their range.
    #[error("{0}")]
    Invalid(String),

    /// A run that cannot go on (too many skipped updates, failed scorings...).
    #[error("{0}")]
    Aborted(String),

    /// Several errors found together, so that all can be put right at once.
    #[error("{place} has {count} problems:{list}", count = problems.len(), list = listed(problems))]
    Several {
        /// Where they were found.
        place: String,
        /// At least two errors.
        problems: Vec<Error>,
    },

    /// An error raised by a plugin.
    #[error("{plugin}: {source}")]
    Plugin {
        /// Name of the plugin.
        plugin: String,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// An [`Error::Io`] for `path`; made for `map_err(Error::io(path))`.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.as_ref().to_path_buf();
        move |source| Error::Io { path, source }
    }

    /// An [`Error::Malformed`] without a line.
    pub fn malformed(path: impl AsRef<Path>, message: impl Into<String>) -> Error {
        Error::Malformed {
            path: path.as_ref().to_path_buf(),
            line: None,
            message: message.into(),
        }
    }

    /// An [`Error::Malformed`] at a one-based line.
    pub fn malformed_at(path: impl AsRef<Path>, line: usize, message: impl Into<String>) -> Error {
        Error::Malformed {
            path: path.as_ref().to_path_buf(),
            line: Some(line),
            message: message.into(),
        }
    }

    /// An [`Error::Config`] without a known line.
    pub fn config(key: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Config {
            key: key.into(),
            line: None,
            message: message.into(),
        }
    }

    /// `Ok` without problems, the problem itself when there is one, otherwise
    /// an [`Error::Several`].
    pub fn several(place: impl Into<String>, mut problems: Vec<Error>) -> Result<()> {
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.remove(0)),
            _ => Err(Error::Several {
                place: place.into(),
                problems,
            }),
        }
    }

    /// An [`Error::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(message.into())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn listed(problems: &[Error]) -> String {
    problems.iter().map(|p| format!("\n  - {p}")).collect()
}
