//! `data`, `reward`, `training`, `device` and `tracking`: everything around
//! the models.

use super::OneOrMany;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Prompts: where they are and how they become token ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// JSONL files of training prompts.
    #[serde(deserialize_with = "OneOrMany::paths")]
    pub train_files: Vec<PathBuf>,
    /// JSONL files of validation prompts.
    #[serde(deserialize_with = "OneOrMany::paths")]
    pub val_files: Vec<PathBuf>,
    /// Field of a row that holds the prompt.
    pub prompt_key: String,
    /// Field of a row that holds the right answer.
    pub answer_key: String,
    /// The right answer is what follows this text in its field.
    pub answer_after: Option<String>,
    /// System message before each prompt.
    pub system_prompt: Option<String>,
    /// Text with `{prompt}`, or another field of the row, in braces.
    pub prompt_template: Option<String>,
    /// Most tokens of a rendered prompt.
    pub max_prompt_length: usize,
    /// What happens to a longer one.
    pub truncation: Truncation,
    /// Draw prompts in a new order each epoch.
    pub shuffle: bool,
    /// Leave out rows that cannot be read, with a count, instead of stopping.
    pub skip_bad_rows: bool,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            train_files: Vec::new(),
            val_files: Vec::new(),
            prompt_key: "prompt".into(),
            answer_key: "answer".into(),
            answer_after: None,
            system_prompt: None,
            prompt_template: None,
            max_prompt_length: 512,
            truncation: Truncation::Error,
            shuffle: true,
            skip_bad_rows: false,
        }
    }
}

/// What happens to a prompt that is longer than the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Truncation {
    /// Stop with an error that names the row.
    #[default]
    Error,
    /// Drop tokens from its beginning.
    Left,
    /// Drop tokens from its end.
    Right,
    /// Leave the row out.
    Filter,
}

/// How answers are scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RewardConfig {
    /// Name of a registered reward function.
    pub name: String,
    /// Seconds one answer may take.
    pub timeout_s: f64,
    /// Threads that score; `None` takes one per CPU core.
    pub workers: Option<usize>,
    /// The run stops when more than this share of a step's answers cannot be
    /// scored.
    pub max_failure_fraction: f64,
    /// The reward function's own options.
    pub options: Map<String, Value>,
}

impl Default for RewardConfig {
    fn default() -> Self {
        RewardConfig {
            name: "gsm8k".into(),
            timeout_s: 10.0,
            workers: None,
            max_failure_fraction: 0.2,
            options: Map::new(),
        }
    }
}

/// Course of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Prompts per step.
    pub train_batch_size: usize,
    /// Prompts per micro-batch, each with all its samples.
    pub micro_batch_size: Option<usize>,
    /// Micro-batches per optimizer update.
    pub gradient_accumulation_steps: Option<usize>,
    /// Stop after this many steps.
    pub total_steps: Option<u64>,
    /// Stop after this many passes over the training prompts.
    pub max_epochs: Option<u64>,
    /// Steps in which only the critic is trained; unset leaves it to the
    /// algorithm.
    pub critic_warmup: Option<u64>,
    /// Validate every so many steps; 0 or -1 only before and after.
    pub test_freq: i64,
    /// Validate before the first step.
    pub val_before_train: bool,
    /// Validation prompts used; `None` takes all.
    pub val_samples: Option<usize>,
    /// Save every so many steps; 0 or -1 only at the end.
    pub save_freq: i64,
    /// Checkpoints kept; `None` keeps all.
    pub keep_checkpoints: Option<usize>,
    /// Where to go on from.
    pub resume: Resume,
    /// Non-finite updates in a row after which the run stops.
    pub max_skipped_updates: u64,
    /// Answers written per step.
    pub log_completions: usize,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        TrainingConfig {
            train_batch_size: 32,
            micro_batch_size: None,
            gradient_accumulation_steps: None,
            total_steps: None,
            max_epochs: None,
            critic_warmup: None,
            test_freq: 10,
            val_before_train: true,
            val_samples: None,
            save_freq: 20,
            keep_checkpoints: Some(2),
            resume: Resume::Auto,
            max_skipped_updates: 5,
            log_completions: 4,
        }
    }
}

impl TrainingConfig {
    /// Whether step `step` (from 1) is followed by a validation; the last one
    /// always is.
    pub fn tests_after(&self, step: u64, total: u64) -> bool {
        step == total || every(self.test_freq, step)
    }

    /// Whether step `step` (from 1) is followed by a checkpoint; the last one
    /// always is.
    pub fn saves_after(&self, step: u64, total: u64) -> bool {
        step == total || every(self.save_freq, step)
    }
}

fn every(frequency: i64, step: u64) -> bool {
    u64::try_from(frequency).is_ok_and(|f| f > 0 && step.is_multiple_of(f))
}

/// Where a run goes on from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Resume {
    /// The newest whole checkpoint of the output folder, if there is one.
    #[default]
    Auto,
    /// Start anew.
    Never,
    /// This checkpoint folder.
    Path(PathBuf),
}

impl Serialize for Resume {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Resume::Auto => serializer.serialize_str("auto"),
            Resume::Never => serializer.serialize_str("never"),
            Resume::Path(path) => path.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Resume {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "auto" => Resume::Auto,
            "never" => Resume::Never,
            path => Resume::Path(path.into()),
        })
    }
}

/// What computes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceConfig {
    /// Kind of device. One that this build has no support for is an error.
    pub kind: DeviceKind,
    /// Number of the device among those of its kind.
    pub index: usize,
}

/// Kinds of device; all but the first are features of the build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The CPU, in pure Rust.
    #[default]
    Flex,
    /// An NVIDIA GPU.
    Cuda,
    /// An AMD GPU.
    Rocm,
    /// Any GPU, through wgpu's best driver.
    Wgpu,
    /// Any GPU, through Vulkan.
    Vulkan,
    /// An Apple GPU.
    Metal,
    /// A GPU in the browser.
    Webgpu,
}

/// What is written besides checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrackingConfig {
    /// Progress bar on the terminal.
    pub progress: bool,
    /// `metrics.jsonl`.
    pub metrics_jsonl: bool,
    /// TensorBoard event files.
    pub tensorboard: bool,
    /// `completions.jsonl`.
    pub completions: bool,
    /// `report.html`.
    pub report: bool,
}

impl Default for TrackingConfig {
    fn default() -> Self {
        TrackingConfig {
            progress: true,
            metrics_jsonl: true,
            tensorboard: true,
            completions: true,
            report: true,
        }
    }
}
