//! GRPO for pass@k: only the best answer of a group counts.
//!
//! With pass@k as the objective the reward of a group is that of its best
//! answer, and leaving one out changes it only if that one was the best:
//!
//! ```text
//! A_i = max(r) - max(r_j, j != i)
//! ```
//!
//! which is the lead over the second best for the best answer, and 0 for all
//! others. A tie at the top is no lead: the whole group gets 0.
//!
//! # Paper
//! "Optimizing Language Models for Inference Time Objectives using
//! Reinforcement Learning", arXiv:2503.19595.
//!
//! # Differences from the paper
//! The lead is divided by `std(r) + epsilon`, as in GRPO, unless
//! `norm_adv_by_std` is false.
//!
//! # Differences from verl
//! - An answer alone in its group has no second best and gets 0; verl fails.
//! - Rewards at tokens the policy did not produce are not counted.

use crate::group::by_rewards;
use crate::options::require;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages, Requirements};
use verl_core::math::mean_and_std;
use verl_core::types::{Batch, Column};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrpoPasskConfig {
    /// Divide by the group's standard deviation.
    /// Also known as `norm_adv_by_std_in_grpo`.
    pub norm_adv_by_std: bool,
    /// Added to the deviation.
    pub epsilon: f64,
}

impl Default for GrpoPasskConfig {
    fn default() -> Self {
        GrpoPasskConfig {
            norm_adv_by_std: true,
            epsilon: 1e-6,
        }
    }
}

impl GrpoPasskConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`](verl_core::Error::Config) when `epsilon` is out of
    /// range.
    pub fn build(&self) -> Result<GrpoPasskAdvantage> {
        let ok = self.epsilon.is_finite() && self.epsilon >= 0.0;
        require("epsilon", self.epsilon, ok, "0 or positive")?;
        Ok(GrpoPasskAdvantage(self.clone()))
    }
}

/// The estimator.
///
/// # Example
/// The best answer leads by 1.5:
/// ```
/// use verl_algos::grpo_passk::GrpoPasskConfig;
/// let config = GrpoPasskConfig { norm_adv_by_std: false, ..Default::default() };
/// let estimator = config.build()?;
/// assert_eq!(estimator.group(&[0.5, 2.0, 0.25]), [0.0, 1.5, 0.0]);
/// assert_eq!(estimator.group(&[1.0, 1.0, 0.0]), [0.0, 0.0, 0.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GrpoPasskAdvantage(pub GrpoPasskConfig);

impl GrpoPasskAdvantage {
    /// Advantages of one group, given its rewards.
    pub fn group(&self, rewards: &[f32]) -> Vec<f32> {
        let mut advantages = vec![0.0; rewards.len()];
        let mut ranked: Vec<usize> = (0..rewards.len()).collect();
        ranked.sort_by(|i, j| rewards[*j].total_cmp(&rewards[*i]));
        if let [best, second, ..] = ranked[..]
            && rewards[best] > rewards[second]
        {
            let lead = f64::from(rewards[best]) - f64::from(rewards[second]);
            let scale = match self.0.norm_adv_by_std {
                true => mean_and_std(rewards.iter().copied()).1 + self.0.epsilon,
                false => 1.0,
            };
            advantages[best] = (lead / scale) as f32;
        }
        advantages
    }
}

impl AdvantageEstimator for GrpoPasskAdvantage {
    fn name(&self) -> &str {
        "grpo_passk"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        Requirements::default().min_group_size(2)
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let advantages_s = by_rewards(batch, |rewards| self.group(rewards));
        Ok(Advantages::per_sequence(batch, &advantages_s))
    }
}
