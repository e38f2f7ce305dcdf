//! A reward model that is a language model: its log-ratio to the reference is
//! the reward of each token.

use super::PolicyLoss;
use crate::Result;
use crate::math::LossAggregation;
use crate::types::{Batch, Column};

/// An implicit process reward model, trained online beside the policy (PRIME,
/// arXiv:2502.01456, section 3): token `t` earns
/// `beta * (log pi_rm(t) - log pi_ref(t))`.
///
/// It starts as a copy of the policy. The trainer scores each batch with it,
/// stores [`Column::ImplicitRewards`], and takes one step on `loss`.
#[derive(Debug)]
pub struct ImplicitReward {
    /// Scale of the log-ratio.
    pub beta: f32,
    /// Its loss; the log-probs it sees are the reward model's.
    pub loss: Box<dyn PolicyLoss>,
    /// How the per-token losses become one number.
    pub aggregation: LossAggregation,
    /// Learning rate of its optimizer; `None` takes the policy's.
    pub lr: Option<f64>,
    /// Whether the model takes its step before it scores the batch.
    pub update_first: bool,
}

impl ImplicitReward {
    /// Stores the rewards that the model's log-probs amount to.
    ///
    /// # Errors
    /// Without reference log-probs, or when rows do not fit the batch.
    pub fn store(&self, batch: &mut Batch, log_probs: Vec<Vec<f32>>) -> Result<()> {
        let rewards = batch
            .trajectories()
            .zip(log_probs)
            .map(|(t, row)| {
                let reference = t.get(Column::RefLogProbs, "the implicit reward")?;
                let reward = |(a, b): (f32, &f32)| self.beta * (a - b);
                Ok(row.into_iter().zip(reference).map(reward).collect())
            })
            .collect::<Result<_>>()?;
        batch.set_column(Column::ImplicitRewards, rewards)
    }
}
