//! The figures of one step.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// Named figures of one step, in the order in which they were set.
///
/// # Example
/// ```
/// use verl_core::tracking::Metrics;
///
/// let mut metrics = Metrics::new(3);
/// metrics.set("actor/lr", 1e-6);
/// metrics.set("critic/score/mean", 0.5);
/// assert_eq!(metrics.get("critic/score/mean"), Some(0.5));
/// let line = serde_json::to_string(&metrics).unwrap();
/// assert_eq!(line, r#"{"step":3,"actor/lr":1e-6,"critic/score/mean":0.5}"#);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// The step; 0 is before training.
    pub step: u64,
    values: Vec<(String, f64)>,
}

impl Metrics {
    /// No figures yet.
    pub fn new(step: u64) -> Self {
        Metrics {
            step,
            values: Vec::new(),
        }
    }

    /// Sets a figure, in the place of an earlier one of that name.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        let name = name.into();
        match self.values.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.values.push((name, value)),
        }
    }

    /// The figure of that name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| *value)
    }

    /// Every name and figure.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
    }

    /// Reads a line of `metrics.jsonl`. A figure that was not finite is
    /// `null` there and NaN here.
    pub(super) fn from_json(mut line: Map<String, Value>) -> Option<Self> {
        let step = line.remove("step")?.as_u64()?;
        let number = |value: Value| match value {
            Value::Null => Some(f64::NAN),
            other => other.as_f64(),
        };
        let values = line
            .into_iter()
            .map(|(name, value)| Some((name, number(value)?)))
            .collect::<Option<_>>()?;
        Some(Metrics { step, values })
    }
}

impl<S: Into<String>> Extend<(S, f64)> for Metrics {
    fn extend<T: IntoIterator<Item = (S, f64)>>(&mut self, figures: T) {
        figures
            .into_iter()
            .for_each(|(name, value)| self.set(name, value));
    }
}

/// One flat object with `step` first; JSON has no NaN, so that becomes `null`.
impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.values.len()))?;
        map.serialize_entry("step", &self.step)?;
        for (name, value) in &self.values {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
