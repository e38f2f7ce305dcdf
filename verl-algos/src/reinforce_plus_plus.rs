//! REINFORCE++: discounted token rewards, whitened over the batch.
//!
//! ```text
//! G_t = r_t + gamma G_{t+1}        A_t = (G_t - mean(G)) / std(G)
//! ```
//!
//! `t` runs over the policy's own tokens: what the environment wrote in
//! between is stepped over. Mean and deviation are those of all policy tokens
//! of the batch. There is neither a critic nor a comparison within groups, so
//! one answer per prompt is enough.
//!
//! # Paper
//! "REINFORCE++", arXiv:2501.03262. The paper subtracts KL(policy, reference) from
//! the token rewards: that is `use_kl_in_reward`.
//!
//! # Differences from verl
//! A batch with a single policy token has advantage 0 instead of failing.

use crate::options::require;
use crate::tokens::{returns, whiten};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages};
use verl_core::types::{Batch, Column};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReinforcePlusPlusConfig {
    /// Discount of future rewards.
    pub gamma: f32,
}

impl Default for ReinforcePlusPlusConfig {
    fn default() -> Self {
        ReinforcePlusPlusConfig { gamma: 1.0 }
    }
}

impl ReinforcePlusPlusConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`](verl_core::Error::Config) when `gamma` is out of range.
    pub fn build(&self) -> Result<ReinforcePlusPlusAdvantage> {
        let ok = (0.0..=1.0).contains(&self.gamma);
        require("gamma", self.gamma, ok, "in [0, 1]")?;
        Ok(ReinforcePlusPlusAdvantage(self.clone()))
    }
}

/// The estimator.
///
/// # Example
/// Two answers of one token with rewards 1 and 3 lie `sqrt(2)` deviations
/// apart:
/// ```
/// use verl_algos::reinforce_plus_plus::ReinforcePlusPlusConfig;
/// use verl_core::algorithm::AdvantageEstimator;
/// use verl_core::types::{Batch, FinishReason, Group, GroupId, Trajectory, TrajectoryParts};
///
/// let answer = |group, reward| {
///     let mut t = Trajectory::new(TrajectoryParts {
///         group: GroupId(group),
///         sample: 0,
///         prompt: vec![1].into(),
///         response: vec![7],
///         response_mask: vec![true],
///         finish: FinishReason::Stop,
///         weight_version: 0,
///     })?;
///     t.set_score(reward)?;
///     Group::new(GroupId(group), vec![t])
/// };
/// let batch = Batch::new(vec![answer(0, 1.0)?, answer(1, 3.0)?]);
/// let estimate = ReinforcePlusPlusConfig::default().build()?.estimate(&batch)?;
/// assert_eq!(estimate.returns.unwrap(), [[1.0], [3.0]]);
/// assert_eq!(estimate.advantages, [[-0.70710677], [0.70710677]]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ReinforcePlusPlusAdvantage(pub ReinforcePlusPlusConfig);

const NAME: &str = "reinforce_plus_plus";

impl AdvantageEstimator for ReinforcePlusPlusAdvantage {
    fn name(&self) -> &str {
        NAME
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let returns = returns(batch, self.0.gamma, NAME)?;
        let mut advantages = returns.clone();
        whiten(batch, &mut advantages);
        Ok(Advantages {
            advantages,
            returns: Some(returns),
        })
    }
}
