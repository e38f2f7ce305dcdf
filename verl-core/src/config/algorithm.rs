//! `algorithm`: its name, and whatever else its plugin understands.
//!
//! verl's `adv_estimator` without a name stands for the algorithm of that
//! name; beside a name it replaces the algorithm's estimator.

use crate::registry::Settings;
use serde::de::{self, Deserialize, Deserializer, MapAccess};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::fmt;

const ESTIMATOR: &str = "adv_estimator";

/// The algorithm and its options.
#[derive(Debug, Clone, PartialEq)]
pub struct AlgorithmConfig {
    /// Name of a registered algorithm.
    pub name: String,
    /// Every other key of the section. The plugin reads them into its own
    /// typed config, which refuses what it does not know.
    pub settings: Settings,
}

impl Default for AlgorithmConfig {
    fn default() -> Self {
        AlgorithmConfig {
            name: "grpo".into(),
            settings: Settings::default(),
        }
    }
}

impl Serialize for AlgorithmConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.settings.0.len()))?;
        map.serialize_entry("name", &self.name)?;
        for (key, value) in &self.settings.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for AlgorithmConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = AlgorithmConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a section of keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AlgorithmConfig, A::Error> {
        let mut config = AlgorithmConfig::default();
        let mut named = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => (config.name, named) = (map.next_value()?, true),
                _ => {
                    let value: Value = map.next_value()?;
                    config.settings.0.insert(key, value);
                }
            }
        }
        if !named && let Some(estimator) = config.settings.0.remove(ESTIMATOR) {
            config.name = match estimator {
                Value::String(name) if name == "gae" => "ppo".into(),
                Value::String(name) => name,
                other => {
                    let message = format!("{ESTIMATOR}: expected a name, found {other}");
                    return Err(de::Error::custom(message));
                }
            };
        }
        Ok(config)
    }
}
