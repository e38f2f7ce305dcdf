//! The reward model as the trainer takes it.

use super::{ImplicitRewardConfig, ImplicitRewardLossConfig};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::OnlineRewardModel;
use verl_core::math::LossAggregation;

/// When the reward model learns from a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateOrder {
    /// Before it judges the batch.
    Before,
    /// After it has.
    After,
}

/// Options of the reward model's training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardModelConfig {
    /// When it learns, in the spelling of verl's recipe.
    pub update: UpdateOrder,
    /// Its learning rate; the policy's unless set.
    pub reward_model_lr: Option<f64>,
}

impl Default for RewardModelConfig {
    fn default() -> Self {
        RewardModelConfig {
            update: UpdateOrder::Before,
            reward_model_lr: None,
        }
    }
}

impl RewardModelConfig {
    /// The reward model.
    ///
    /// # Errors
    /// [`Error::Config`](verl_core::Error::Config) naming the option that is
    /// out of range.
    pub fn build(&self, rewards: &ImplicitRewardConfig) -> Result<OnlineRewardModel> {
        let loss = ImplicitRewardLossConfig {
            beta_train: rewards.beta_train,
        };
        if let Some(lr) = self.reward_model_lr {
            let ok = lr.is_finite() && lr >= 0.0;
            crate::options::require("reward_model_lr", lr, ok, "0 or positive")?;
        }
        Ok(OnlineRewardModel {
            rewards: Box::new(rewards.build()?),
            loss: Box::new(loss.build()?),
            aggregation: LossAggregation::SeqMeanTokenMean,
            lr: self.reward_model_lr,
            update_first: self.update == UpdateOrder::Before,
        })
    }
}
