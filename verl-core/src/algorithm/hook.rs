//! What an algorithm does to a batch beside estimating advantages.

use crate::Result;
use crate::types::Batch;
use std::fmt;

/// Named figures to log.
pub type Figures = Vec<(String, f64)>;

/// A change to the batch: masks, weights, resampling.
pub trait BatchHook: fmt::Debug + Send + Sync {
    /// Changes the batch after log-probs and rewards are known and before
    /// advantages are estimated.
    ///
    /// # Errors
    /// When the batch lacks what the hook reads.
    fn before_advantages(&self, batch: &mut Batch) -> Result<Figures> {
        let _ = batch;
        Ok(Figures::new())
    }

    /// Changes the batch after advantages are estimated; updates see what it
    /// leaves. `seed` differs from step to step.
    ///
    /// # Errors
    /// When the batch lacks what the hook reads.
    fn before_updates(&self, batch: &mut Batch, seed: u64) -> Result<Figures> {
        let _ = (batch, seed);
        Ok(Figures::new())
    }
}

const _: fn(&dyn BatchHook) = |_| {};
