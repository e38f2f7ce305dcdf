//! From text to a typed configuration.

use super::source::{self, Entry, Origin};
use super::{RunConfig, Sources, alias, de, keys, unsupported};
use crate::{Error, Result};
use serde_json::Value;
use std::path::Path;

impl RunConfig {
    /// Reads a YAML text, puts `key.path=value` overrides on top and checks
    /// the result.
    ///
    /// # Errors
    /// [`Error::Config`], or [`Error::Several`] with every mistake found.
    pub fn from_yaml(text: &str, overrides: &[String]) -> Result<Self> {
        let mut entries = canonical(source::parse_yaml(text)?)?;
        let mut given = Vec::new();
        for text in overrides {
            // A later override replaces an earlier one, as later arguments do.
            source::apply(&mut given, canonical(source::parse_override(text)?)?);
        }
        source::apply(&mut entries, given);
        alias::settle_truncation(&mut entries)?;
        alias::settle_estimator(&mut entries);

        let mut problems = unsupported::check(&mut entries);
        problems.extend(keys::check(&mut entries));
        problems.extend(entries.iter().filter_map(mistyped));
        Error::several("the configuration", problems)?;

        // Laid over the defaults as a whole: `actor.optim` and `critic.optim`
        // are one type with different defaults.
        let mut values = serde_json::to_value(RunConfig::default())
            .map_err(|e| Error::invalid(format!("the default configuration: {e}")))?;
        overlay(&mut values, source::nest(&entries)?);
        let mut config: RunConfig = de::from_value("", &values)?;
        for entry in entries {
            config.sources.insert(&entry.key, entry.origin);
        }
        config.validate()?;
        Ok(config)
    }

    /// Reads a YAML file; see [`RunConfig::from_yaml`].
    ///
    /// # Errors
    /// Also [`Error::Io`] when the file cannot be read, and
    /// [`Error::Malformed`] when it is not UTF-8 text.
    pub fn from_file(path: impl AsRef<Path>, overrides: &[String]) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(Error::io(path))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let line = 1 + e.as_bytes()[..e.utf8_error().valid_up_to()]
                .iter()
                .filter(|&&b| b == b'\n')
                .count();
            Error::malformed_at(path, line, "an invalid byte; save the file as UTF-8 text")
        })?;
        RunConfig::from_yaml(&text, overrides)
    }

    /// The configuration with every default filled in, as YAML that
    /// [`RunConfig::from_yaml`] reads back to the same configuration.
    ///
    /// # Errors
    /// When a path is not valid Unicode.
    pub fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self).map_err(|e| {
            Error::invalid(format!("the configuration cannot be written as YAML: {e}"))
        })
    }

    /// Refuses the key `section`, or every key inside it, if it was given: for
    /// what the chosen algorithm, engine or device would not use.
    ///
    /// # Errors
    /// [`Error::Config`], or [`Error::Several`], with `why` for each key.
    pub fn refuse(&self, section: &str, why: &str) -> Result<()> {
        let given = self.sources.given(section);
        let problems = given.map(|(key, origin)| origin.error(key, why)).collect();
        Error::several("the configuration", problems)
    }

    /// Adds the line at which its key was given to an error that names only
    /// the key, such as one of a plugin about its options.
    pub fn locate(&self, error: Error) -> Error {
        self.sources.locate(error)
    }
}

/// Entries under their canonical keys. One key given twice, under whatever
/// spellings, is an error.
fn canonical(entries: Vec<Entry>) -> Result<Vec<Entry>> {
    let mut out: Vec<(String, Entry)> = Vec::new();
    let mut problems = Vec::new();
    for entry in entries {
        let spelling = entry.key.clone();
        match alias::rename(entry) {
            Ok(Some(entry)) => match out.iter().find(|(_, e)| e.key == entry.key) {
                Some((first, earlier)) => {
                    let what = match spelling == entry.key {
                        true => "this key".to_string(),
                        false => format!("`{}`", entry.key),
                    };
                    let message = format!(
                        "sets {what}, as {} does; keep one",
                        place(first, &earlier.origin)
                    );
                    problems.push(entry.origin.error(&spelling, message));
                }
                None => out.push((spelling, entry)),
            },
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    Error::several("the configuration", problems)?;
    Ok(out.into_iter().map(|(_, entry)| entry).collect())
}

fn place(spelling: &str, origin: &Origin) -> String {
    match origin {
        Origin::Line(line) => format!("`{spelling}` (line {line})"),
        Origin::Override(text) => format!("the override `{text}`"),
    }
}

/// Puts the values of `above` in the place of those of `base`.
fn overlay(base: &mut Value, above: Value) {
    match (base, above) {
        (Value::Object(base), Value::Object(above)) => {
            for (key, value) in above {
                overlay(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, above) => *base = above,
    }
}

/// What is wrong with the value of one entry taken alone, so that every
/// mistyped value is reported and not only the first.
fn mistyped(entry: &Entry) -> Option<Error> {
    if let Value::String(text) = &entry.value
        && text.starts_with("${")
    {
        let message = format!(
            "`{text}` refers to another key, which is not supported; write the value itself"
        );
        return Some(entry.origin.error(&entry.key, message));
    }
    let alone = source::nest(std::slice::from_ref(entry)).ok()?;
    let mut sources = Sources::default();
    sources.insert(&entry.key, entry.origin.clone());
    de::from_value::<RunConfig>("", &alone)
        .err()
        .map(|e| sources.locate(e))
}
