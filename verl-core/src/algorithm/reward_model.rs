//! A reward model that is trained beside the policy.

use super::PolicyLoss;
use crate::Result;
use crate::math::LossAggregation;
use crate::types::Batch;
use std::fmt;

/// Turns a reward model's log-probs into rewards of tokens.
pub trait ProcessRewards: fmt::Debug + Send + Sync {
    /// Writes [`Column::ImplicitRewards`](crate::types::Column), given the
    /// log-probs of each response token under the reward model, in batch
    /// order. The reference log-probs are there.
    ///
    /// # Errors
    /// When rows do not fit the batch.
    fn score(&self, batch: &mut Batch, log_probs: &[Vec<f32>]) -> Result<()>;
}

/// A language model that serves as reward model and learns from each batch
/// (PRIME, arXiv:2502.01456, section 3). It starts as a copy of the policy.
#[derive(Debug)]
pub struct OnlineRewardModel {
    /// From its log-probs to rewards.
    pub rewards: Box<dyn ProcessRewards>,
    /// Its loss; the log-probs it sees are the reward model's.
    pub loss: Box<dyn PolicyLoss>,
    /// How the per-token losses become one number.
    pub aggregation: LossAggregation,
    /// Learning rate of its optimizer; `None` takes the policy's.
    pub lr: Option<f64>,
    /// Whether the model takes its step before it scores the batch.
    pub update_first: bool,
}

const _: fn(&dyn ProcessRewards) = |_| {};
