//! `completions.jsonl`: what the model answered.

use super::jsonl::{self, JsonLines};
use super::{Metrics, Summary, Tracker};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// One answer, as text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The step; 0 is before training.
    pub step: u64,
    /// Where the prompt is from.
    pub split: Split,
    /// The prompt, as the model saw it.
    pub prompt: String,
    /// The answer, special tokens included.
    pub response: String,
    /// The right answer, where there is one.
    pub reference: Option<String>,
    /// The score, or none when the answer could not be scored.
    pub score: Option<f64>,
    /// Why the score is 0 or missing, where that is known.
    pub cause: Option<String>,
    /// Why the answer ended.
    pub finish: String,
    /// Tokens of the answer.
    pub tokens: usize,
}

/// Where a prompt is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Training prompts.
    Train,
    /// Validation prompts.
    Val,
}

/// Writes `completions.jsonl`.
#[derive(Debug)]
pub struct CompletionsFile(JsonLines);

impl CompletionsFile {
    /// Starts the file, or goes on after step `resumed`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: impl Into<PathBuf>, resumed: Option<u64>) -> Result<Self> {
        JsonLines::open(path.into(), resumed).map(CompletionsFile)
    }

    /// Reads a file that was written here.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Malformed`] with the line.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Completion>> {
        let path = path.as_ref();
        let completion = |(line, object)| {
            serde_json::from_value(Value::Object(object))
                .map_err(|e| Error::malformed_at(path, line, e.to_string()))
        };
        jsonl::read(path)?.into_iter().map(completion).collect()
    }
}

impl Tracker for CompletionsFile {
    fn log_step(&mut self, _: &Metrics) -> Result<()> {
        Ok(())
    }

    fn log_completions(&mut self, completions: &[Completion]) -> Result<()> {
        self.0.write(completions)
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        Ok(())
    }
}
