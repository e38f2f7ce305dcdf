//! `metrics.jsonl`, and files of JSON lines that a resumed run continues.

use super::{Completion, Metrics, Summary, Tracker};
use crate::{Error, Result};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file of JSON objects, one a line, each with a `step`. Lines are flushed
/// as they are written.
#[derive(Debug)]
pub(super) struct JsonLines {
    path: PathBuf,
    file: BufWriter<File>,
}

impl JsonLines {
    /// Opens the file anew, or after step `resumed`: later lines, and a last
    /// one that was cut off, are taken out.
    pub(super) fn open(path: PathBuf, resumed: Option<u64>) -> Result<Self> {
        let kept = match resumed {
            Some(step) if path.exists() => lines_up_to(&path, step)?,
            _ => String::new(),
        };
        // Replaced as a whole, so that a kill here loses nothing.
        let partial = path.with_extension("jsonl.partial");
        fs::write(&partial, kept).map_err(Error::io(&partial))?;
        fs::rename(&partial, &path).map_err(Error::io(&path))?;
        let file = File::options()
            .append(true)
            .open(&path)
            .map_err(Error::io(&path))?;
        Ok(JsonLines {
            path,
            file: BufWriter::new(file),
        })
    }

    pub(super) fn write<T: Serialize>(&mut self, lines: &[T]) -> Result<()> {
        for line in lines {
            let text = serde_json::to_string(line)
                .map_err(|e| Error::malformed(&self.path, e.to_string()))?;
            writeln!(self.file, "{text}").map_err(Error::io(&self.path))?;
        }
        self.file.flush().map_err(Error::io(&self.path))
    }
}

fn lines_up_to(path: &Path, step: u64) -> Result<String> {
    let text = String::from_utf8_lossy(&fs::read(path).map_err(Error::io(path))?).into_owned();
    let wanted = |line: &&str| {
        let value: Option<Value> = serde_json::from_str(line).ok();
        value
            .and_then(|v| v.get("step")?.as_u64())
            .is_some_and(|s| s <= step)
    };
    Ok(text
        .lines()
        .filter(wanted)
        .flat_map(|line| [line, "\n"])
        .collect())
}

/// Every object of a file of JSON lines with its line. A last line that was cut off, as in a
/// run that is still going on, is left out.
pub(super) fn read(path: &Path) -> Result<Vec<(usize, Map<String, Value>)>> {
    let text = fs::read_to_string(path).map_err(Error::io(path))?;
    let lines: Vec<_> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .collect();
    let mut objects = Vec::with_capacity(lines.len());
    for (i, (number, line)) in lines.iter().enumerate() {
        match serde_json::from_str(line) {
            Ok(object) => objects.push((number + 1, object)),
            Err(_) if i + 1 == lines.len() => {}
            Err(e) => return Err(Error::malformed_at(path, number + 1, e.to_string())),
        }
    }
    Ok(objects)
}

/// Writes `metrics.jsonl`: one flat object per step, `step` first.
#[derive(Debug)]
pub struct MetricsFile(JsonLines);

impl MetricsFile {
    /// Starts the file, or goes on after step `resumed`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: impl Into<PathBuf>, resumed: Option<u64>) -> Result<Self> {
        JsonLines::open(path.into(), resumed).map(MetricsFile)
    }

    /// Reads a file that was written here.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Malformed`] with the line.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Metrics>> {
        let path = path.as_ref();
        let metrics = |(line, object)| {
            let wrong = || Error::malformed_at(path, line, "expected a `step` and numbers");
            Metrics::from_json(object).ok_or_else(wrong)
        };
        read(path)?.into_iter().map(metrics).collect()
    }
}

impl Tracker for MetricsFile {
    fn log_step(&mut self, metrics: &Metrics) -> Result<()> {
        self.0.write(std::slice::from_ref(metrics))
    }

    fn log_completions(&mut self, _: &[Completion]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        Ok(())
    }
}
