//! From rewards to advantages, on the host.

use super::Requirements;
use crate::Result;
use crate::types::{Batch, Column};
use std::fmt;

/// What an estimator computes: one row per trajectory in batch order, each as
/// long as the response. Entries at tokens the policy did not produce are 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Advantages {
    /// Advantage of each response token.
    pub advantages: Vec<Vec<f32>>,
    /// Return of each response token, where a critic is trained on it.
    pub returns: Option<Vec<Vec<f32>>>,
}

impl Advantages {
    /// Spreads one advantage per trajectory over its policy tokens.
    pub fn per_sequence(batch: &Batch, advantages_s: &[f32]) -> Self {
        let spread = |(t, &a): (&crate::types::Trajectory, &f32)| {
            t.response_mask()
                .iter()
                .map(|live| if *live { a } else { 0.0 })
                .collect()
        };
        Advantages {
            advantages: batch.trajectories().zip(advantages_s).map(spread).collect(),
            returns: None,
        }
    }

    /// Writes advantages (and returns) into the batch.
    ///
    /// # Errors
    /// When rows are missing, misaligned or not finite.
    pub fn store(self, batch: &mut Batch) -> Result<()> {
        batch.set_column(Column::Advantages, self.advantages)?;
        match self.returns {
            Some(returns) => batch.set_column(Column::Returns, returns),
            None => Ok(()),
        }
    }
}

/// Turns the rewards of a batch into advantages.
///
/// # Example
/// The simplest baseline, the mean of the batch:
/// ```
/// use verl_core::algorithm::{AdvantageEstimator, Advantages};
/// use verl_core::types::{Batch, Column};
///
/// #[derive(Debug)]
/// struct BatchMean;
///
/// impl AdvantageEstimator for BatchMean {
///     fn name(&self) -> &str {
///         "batch_mean"
///     }
///     fn needs(&self) -> &[Column] {
///         &[Column::TokenRewards]
///     }
///     fn estimate(&self, batch: &Batch) -> verl_core::Result<Advantages> {
///         let rewards: Vec<f32> = batch.trajectories().map(|t| t.total_reward()).collect();
///         let mean = rewards.iter().sum::<f32>() / rewards.len().max(1) as f32;
///         let centred: Vec<f32> = rewards.iter().map(|r| r - mean).collect();
///         Ok(Advantages::per_sequence(batch, &centred))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an advantage estimator",
    note = "implement `AdvantageEstimator`; see its example"
)]
pub trait AdvantageEstimator: fmt::Debug + Send + Sync {
    /// The registry key.
    fn name(&self) -> &str;

    /// Columns read, checked before the first rollout.
    fn needs(&self) -> &[Column];

    /// What else the run must have; columns speak for themselves.
    fn requirements(&self) -> Requirements {
        Requirements::default()
    }

    /// Computes the advantages of every trajectory.
    fn estimate(&self, batch: &Batch) -> Result<Advantages>;
}

const _: fn(&dyn AdvantageEstimator) = |_| {};
