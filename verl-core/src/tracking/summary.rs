//! `summary.json`: the run in a few figures.

use super::{Completion, Metrics, Tracker};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The run in a few figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Name of the algorithm.
    pub algorithm: String,
    /// Name or folder of the model.
    pub model: String,
    /// Seed of the run.
    pub seed: u64,
    /// Steps trained.
    pub steps: u64,
    /// Wall-clock seconds, those of earlier parts of a resumed run included.
    pub seconds: f64,
    /// Tokens sampled.
    pub tokens_generated: u64,
    /// Share of validation prompts answered rightly before training.
    pub accuracy_before: Option<f64>,
    /// The same after the last step.
    pub accuracy_after: Option<f64>,
    /// Updates skipped for a gradient that was not finite.
    pub skipped_updates: u64,
    /// Answers that could not be scored.
    pub unscored: u64,
    /// Why the run ended: `finished`, `interrupted` or the error.
    pub ended: String,
    /// Figures of the program's own.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Summary {
    /// Writes the summary; an older one stays whole until the new one is.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::malformed(path, e.to_string()))?;
        text.push('\n');
        replace(path, &text)
    }

    /// Reads a summary.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Malformed`] with the line.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read(path).map_err(Error::io(path))?;
        serde_json::from_slice(&text)
            .map_err(|e| Error::malformed_at(path, e.line(), e.to_string()))
    }
}

/// Writes a file under another name first, then renames it.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let partial = path.with_extension("partial");
    std::fs::write(&partial, text).map_err(Error::io(&partial))?;
    std::fs::rename(&partial, path).map_err(Error::io(path))
}

/// Writes `summary.json` at the end.
#[derive(Debug)]
pub struct SummaryFile(PathBuf);

impl SummaryFile {
    /// Will write into the folder `dir`.
    pub fn new(dir: &Path) -> Self {
        SummaryFile(dir.join("summary.json"))
    }
}

impl Tracker for SummaryFile {
    fn log_step(&mut self, _: &Metrics) -> Result<()> {
        Ok(())
    }

    fn log_completions(&mut self, _: &[Completion]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        summary.write(&self.0)
    }
}
