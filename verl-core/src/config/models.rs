//! `actor` and `critic`: the models that are trained, and how.

use super::{Dtype, Kernels, LoraSettings, OptimConfig, Quantization};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The policy and its updates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActorConfig {
    /// What is trained.
    pub model: ActorModelConfig,
    /// How its weights move.
    pub optim: OptimConfig,
    /// Limit on the global gradient norm; `None` does not clip.
    pub grad_clip: Option<f64>,
    /// Passes over each rollout batch.
    pub ppo_epochs: usize,
    /// Prompts per optimizer update; `None` takes the whole train batch.
    pub ppo_mini_batch_size: Option<usize>,
    /// Tokens per micro-batch, prompts included.
    pub ppo_max_token_len_per_gpu: usize,
    /// Most samples per micro-batch; `None` leaves it to the token budget.
    pub ppo_micro_batch_size_per_gpu: Option<usize>,
}

impl Default for ActorConfig {
    fn default() -> Self {
        ActorConfig {
            model: ActorModelConfig::default(),
            optim: OptimConfig {
                lr: 1e-6,
                ..OptimConfig::default()
            },
            grad_clip: Some(1.0),
            ppo_epochs: 1,
            ppo_mini_batch_size: None,
            ppo_max_token_len_per_gpu: 16384,
            ppo_micro_batch_size_per_gpu: None,
        }
    }
}

/// The model that becomes the policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActorModelConfig {
    /// Hugging Face folder or GGUF file; a program that brings its own model
    /// leaves it empty.
    pub path: PathBuf,
    /// Number format of the weights in memory.
    pub dtype: Dtype,
    /// What runs the layers; the critic's too.
    pub kernels: Kernels,
    /// Layers whose activations are kept at a time; 0 keeps all. The critic's
    /// too.
    pub checkpoint_every: usize,
    /// How the weights under an adapter are kept.
    pub quantization: Quantization,
    /// Trains an adapter instead of the weights; the critic's too.
    pub lora: LoraSettings,
}

/// The value model, for algorithms that use one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CriticConfig {
    /// What is trained.
    pub model: CriticModelConfig,
    /// How its weights move.
    pub optim: OptimConfig,
    /// Limit on the global gradient norm; `None` does not clip.
    pub grad_clip: Option<f64>,
    /// Passes over each rollout batch; `None` takes the actor's number.
    pub ppo_epochs: Option<usize>,
}

impl Default for CriticConfig {
    fn default() -> Self {
        CriticConfig {
            model: CriticModelConfig::default(),
            optim: OptimConfig::default(),
            grad_clip: Some(1.0),
            ppo_epochs: None,
        }
    }
}

/// The model that becomes the critic; what is not given is the actor's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CriticModelConfig {
    /// Hugging Face folder; a value head is added when it has none.
    pub path: Option<PathBuf>,
    /// Number format of the weights in memory.
    pub dtype: Option<Dtype>,
}

impl CriticConfig {
    /// Folder and number format, with the actor's where the critic has none.
    pub fn resolved_model<'a>(&'a self, actor: &'a ActorConfig) -> (&'a Path, Dtype) {
        (
            self.model.path.as_deref().unwrap_or(&actor.model.path),
            self.model.dtype.unwrap_or(actor.model.dtype),
        )
    }
}
