//! What the trainer itself must remember, besides models and optimizers.

use crate::config::RunConfig;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;

const FILE_NAME: &str = "trainer.json";

/// State of a run between two steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState {
    /// Steps trained.
    pub step: u64,
    /// Seed of the run. Random numbers are drawn anew from it, the step and
    /// the place of their use, so that nothing else is to be remembered.
    pub seed: u64,
    /// Optimizer updates of the actor, where its learning-rate schedule is.
    pub actor_updates: u64,
    /// Optimizer updates of the critic.
    pub critic_updates: u64,
    /// Non-finite updates skipped since the last that was applied.
    pub skipped_in_a_row: u64,
    /// Non-finite updates skipped in the whole run.
    pub skipped_total: u64,
    /// Tokens sampled.
    pub tokens_generated: u64,
    /// Wall-clock seconds of training, those of earlier parts included.
    pub seconds: f64,
    /// Bits of the KL coefficient, of an adaptive controller; see
    /// [`TrainerState::kl_coef`].
    pub kl_coef_bits: Option<u64>,
    /// Position of the data loader, in its own form.
    pub loader: Value,
    /// Whatever else must survive, by name.
    #[serde(default)]
    pub extra: serde_json::Map<String, Value>,
    /// The resolved configuration.
    pub config: RunConfig,
}

impl TrainerState {
    /// The KL coefficient.
    pub fn kl_coef(&self) -> Option<f64> {
        self.kl_coef_bits.map(f64::from_bits)
    }

    /// Remembers the KL coefficient exactly: JSON numbers may be off by their
    /// last bit when read.
    pub fn set_kl_coef(&mut self, coef: Option<f64>) {
        self.kl_coef_bits = coef.map(f64::to_bits);
    }

    /// Writes the state into a checkpoint folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(FILE_NAME);
        let text =
            serde_json::to_vec_pretty(self).map_err(|e| Error::malformed(&path, e.to_string()))?;
        std::fs::write(&path, text).map_err(Error::io(&path))
    }

    /// Reads the state from a checkpoint folder.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Malformed`] naming what does not fit.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        let text = std::fs::read(&path).map_err(Error::io(&path))?;
        serde_json::from_slice(&text)
            .map_err(|e| Error::malformed_at(&path, e.line(), e.to_string()))
    }
}
