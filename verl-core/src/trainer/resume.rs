//! Saving a run and going on with it.

use super::Trainer;
use super::fit::Totals;
use crate::checkpoint::Checkpoint;
use crate::data::LoaderState;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a checkpoint holds besides weights and optimizer states.
#[derive(Debug, Serialize, Deserialize)]
struct Position {
    step: u64,
    seed: u64,
    loader: LoaderState,
    /// Bits of the KL coefficient: a JSON number may lose its last one.
    kl_bits: Option<u64>,
    skipped: (u64, u64),
    totals: Totals,
}

const POSITION: &str = "trainer.json";
const CONFIG: &str = "config.yaml";

impl Trainer {
    /// Writes a checkpoint of the current step; returns its folder.
    ///
    /// # Errors
    /// When the run has no checkpoint folder or it cannot be written; older
    /// checkpoints are untouched then.
    pub fn save_checkpoint(&mut self) -> Result<PathBuf> {
        let store = self
            .store
            .as_ref()
            .ok_or_else(|| Error::invalid("this run has no checkpoint folder"))?;
        let checkpoint = store.save(self.step, |dir| {
            self.parts.policy.save_state(&subfolder(dir, "policy")?)?;
            if let Some(critic) = &self.parts.critic {
                critic.save_state(&subfolder(dir, "critic")?)?;
            }
            if let Some(model) = &self.parts.reward_model {
                model.save_state(&subfolder(dir, "reward_model")?)?;
            }
            let settings = self.settings.checkpoints.as_ref();
            if let Some(config) = settings.and_then(|c| c.config.as_ref()) {
                let path = dir.join(CONFIG);
                std::fs::write(&path, config).map_err(Error::io(&path))?;
            }
            self.write_position(&dir.join(POSITION))
        })?;
        self.saved = Some(self.step);
        Ok(checkpoint.path)
    }

    fn write_position(&self, path: &Path) -> Result<()> {
        let position = Position {
            step: self.step,
            seed: self.settings.seed,
            loader: self.loader.state(),
            kl_bits: self.kl.map(|kl| kl.coef().to_bits()),
            skipped: self.skipped,
            totals: self.totals.clone(),
        };
        let text = serde_json::to_string_pretty(&position)
            .map_err(|e| Error::malformed(path, e.to_string()))?;
        std::fs::write(path, text).map_err(Error::io(path))
    }

    /// Goes on from the newest whole checkpoint; returns its step, or `None`
    /// when there is none. Damaged ones are passed over with a warning that
    /// says why.
    ///
    /// # Errors
    /// When a checkpoint is whole but not of this run's kind.
    pub fn resume_latest(&mut self) -> Result<Option<u64>> {
        let Some(store) = &self.store else {
            return Ok(None);
        };
        let (latest, skipped) = store.latest()?;
        for s in skipped {
            tracing::warn!(checkpoint = %s.path.display(), reason = %s.reason, "checkpoint passed over");
        }
        latest
            .map(|checkpoint| self.restore(&checkpoint.path))
            .transpose()
    }

    /// Goes on from a checkpoint folder; returns its step.
    ///
    /// # Errors
    /// When it is damaged or of another run.
    pub fn resume_from(&mut self, dir: &Path) -> Result<u64> {
        let checkpoint = Checkpoint::open(dir)?;
        self.restore(&checkpoint.path)
    }

    fn restore(&mut self, dir: &Path) -> Result<u64> {
        let path = dir.join(POSITION);
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        let position: Position = serde_json::from_str(&text)
            .map_err(|e| Error::malformed_at(&path, e.line(), e.to_string()))?;
        let seed = self.settings.seed;
        if position.seed != seed {
            let message = format!(
                "the checkpoint in {} was written with seed {}, this run has {seed}",
                dir.display(),
                position.seed
            );
            return Err(Error::config("seed", message));
        }
        self.parts.policy.load_state(&dir.join("policy"))?;
        if let Some(critic) = &mut self.parts.critic {
            critic.load_state(&dir.join("critic"))?;
        }
        if let Some(model) = &mut self.parts.reward_model {
            model.load_state(&dir.join("reward_model"))?;
        }
        self.loader.restore(&position.loader)?;
        if let (Some(kl), Some(bits)) = (&mut self.kl, position.kl_bits) {
            *kl = kl.with_coef(f64::from_bits(bits));
        }
        (self.step, self.skipped, self.totals) = (position.step, position.skipped, position.totals);
        self.saved = Some(self.step);
        Ok(self.step)
    }
}

fn subfolder(dir: &Path, name: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    std::fs::create_dir_all(&path).map_err(Error::io(&path))?;
    Ok(path)
}
