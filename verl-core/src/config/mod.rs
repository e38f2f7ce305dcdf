//! The configuration of a run: typed YAML in which every key is used or
//! refused.
//!
//! A file goes through four stages: YAML with line numbers, command-line
//! overrides, other tools' spellings made canonical, typed structs. Mistakes
//! are reported together, each with its key, its line and what to do.
//!
//! `docs/configuration.md` is generated from [`KEYS`] by [`render_docs`].
//!
//! # Example
//! ```
//! use verl_core::config::RunConfig;
//!
//! let yaml = "actor:\n  optim:\n    lr: 2e-5\nrollout:\n  n: 4\n";
//! let config = RunConfig::from_yaml(yaml, &["rollout.n=8".to_string()])?;
//! assert_eq!((config.actor.optim.lr, config.rollout.n), (2e-5, 8));
//!
//! let err = RunConfig::from_yaml("actor:\n  optin:\n    lr: 1", &[]).unwrap_err();
//! assert_eq!(err.to_string(), "actor.optin.lr (line 3): unknown key; did you mean `actor.optim.lr`?");
//! # Ok::<(), verl_core::Error>(())
//! ```

mod algorithm;
mod alias;
mod de;
mod key_table;
mod keys;
mod load;
mod lora;
mod models;
mod optim;
mod plan;
mod run;
mod sampling;
mod source;
mod unsupported;
mod validate;

pub use algorithm::AlgorithmConfig;
pub use de::from_value;
pub use key_table::{KEYS, KeyDoc};
pub use keys::render_docs;
pub use lora::{LoraSettings, TargetModules};
pub use models::{ActorConfig, ActorModelConfig, CriticConfig, CriticModelConfig};
pub use optim::{AdafactorOptions, LionOptions, MuonOptions, OptimConfig, OptimizerKind};
pub use plan::Plan;
pub use run::{
    DataConfig, DeviceConfig, DeviceKind, Resume, RewardConfig, TrackingConfig, TrainingConfig,
    Truncation,
};
pub use sampling::{RolloutConfig, ValSamplingConfig};
pub use source::{Origin, Sources};

use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// Everything about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Seed of everything random.
    pub seed: u64,
    /// Folder of everything the run writes.
    pub output_dir: PathBuf,
    /// The policy.
    pub actor: ActorConfig,
    /// The value model.
    pub critic: CriticConfig,
    /// The algorithm and its own options.
    pub algorithm: AlgorithmConfig,
    /// Sampling.
    pub rollout: RolloutConfig,
    /// Prompts.
    pub data: DataConfig,
    /// Scoring.
    pub reward: RewardConfig,
    /// Course of the run.
    pub training: TrainingConfig,
    /// What computes.
    pub device: DeviceConfig,
    /// What is written.
    pub tracking: TrackingConfig,
    /// Where the keys were given; see [`RunConfig::locate`].
    #[serde(skip)]
    pub sources: Sources,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            seed: 1,
            output_dir: "runs/default".into(),
            actor: ActorConfig::default(),
            critic: CriticConfig::default(),
            algorithm: AlgorithmConfig::default(),
            rollout: RolloutConfig::default(),
            data: DataConfig::default(),
            reward: RewardConfig::default(),
            training: TrainingConfig::default(),
            device: DeviceConfig::default(),
            tracking: TrackingConfig::default(),
            sources: Sources::default(),
        }
    }
}

/// Number format of weights in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32 bits.
    #[default]
    Float32,
    /// 16 bits with the range of `float32`.
    Bfloat16,
    /// 16 bits with a small range.
    Float16,
}

/// How frozen projections are kept in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantization {
    /// As they are.
    #[default]
    None,
    /// 4-bit normal floats in blocks of 64.
    Nf4,
    /// The same with quantised scales.
    Nf4Double,
    /// 8-bit integers with a scale per output.
    Int8,
}

/// Which code runs a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernels {
    /// The library's own kernels where they can serve (dense f32 layers on the
    /// CPU device), burn's operations elsewhere.
    #[default]
    Fused,
    /// burn's operations everywhere: the reference that the kernels are tested
    /// against.
    Plain,
}

/// A list that may be written as its only item.
struct OneOrMany(Vec<PathBuf>);

impl OneOrMany {
    fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        OneOrMany::deserialize(deserializer).map(|list| list.0)
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Paths;

        impl<'de> serde::de::Visitor<'de> for Paths {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a path or a list of paths")
            }

            fn visit_str<E>(self, path: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![path.into()]))
            }

            fn visit_unit<E>(self) -> Result<OneOrMany, E> {
                Ok(OneOrMany(Vec::new()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> Result<OneOrMany, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = seq.next_element()? {
                    paths.push(path);
                }
                Ok(OneOrMany(paths))
            }
        }

        deserializer.deserialize_any(Paths)
    }
}

#[cfg(test)]
mod tests;
