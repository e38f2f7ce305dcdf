//! VAPO: value-based PPO for long chains of thought.
//!
//! GAE twice, decoupled: once for the policy's advantages with a lambda that
//! grows with the length `l` of the answer, so that the reward at the end of a
//! long answer still reaches its beginning, and once for the critic's targets
//! with a lambda of its own, 1 by default, which leaves them without bias.
//!
//! ```text
//! lambda_policy = clip(1 - 1 / (alpha l), 0, 1)
//! A_t = GAE(gamma, lambda_policy)_t             whitened over the batch
//! R_t = GAE(gamma, lambda_critic)_t + V_t
//! ```
//!
//! # Paper
//! Length-adaptive GAE: "VAPO", arXiv:2504.05118. Decoupled GAE: "What's Behind
//! PPO's Collapse in Long-CoT?", arXiv:2503.01491.
//!
//! # Differences from the paper
//! - Answers shorter than `1 / alpha` would get a negative lambda; it is 0.
//! - Advantages are whitened unless `whiten_advantages` is false.

use crate::gae;
use crate::options::require;
use crate::tokens::whiten;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{AdvantageEstimator, Advantages};
use verl_core::types::{Batch, Column, Trajectory};

/// Options of the estimator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VapoConfig {
    /// Discount of future rewards.
    pub gamma: f32,
    /// How soon the policy's lambda approaches 1.
    pub alpha: f32,
    /// Weight of longer looks ahead in the critic's targets.
    pub lambda_critic: f32,
    /// Whether advantages are whitened over the batch.
    pub whiten_advantages: bool,
}

impl Default for VapoConfig {
    fn default() -> Self {
        VapoConfig {
            gamma: 1.0,
            alpha: 0.05,
            lambda_critic: 1.0,
            whiten_advantages: true,
        }
    }
}

impl VapoConfig {
    /// The estimator.
    ///
    /// # Errors
    /// [`Error::Config`](verl_core::Error::Config) naming the option out of
    /// range.
    pub fn build(&self) -> Result<VapoAdvantage> {
        for (key, value) in [("gamma", self.gamma), ("lambda_critic", self.lambda_critic)] {
            require(key, value, (0.0..=1.0).contains(&value), "in [0, 1]")?;
        }
        let ok = self.alpha.is_finite() && self.alpha > 0.0;
        require("alpha", self.alpha, ok, "positive")?;
        Ok(VapoAdvantage(self.clone()))
    }
}

/// The estimator.
///
/// # Example
/// At the paper's alpha, an answer of 80 tokens has lambda `1 - 1 / 4`:
/// ```
/// use verl_algos::vapo::VapoConfig;
/// let estimator = VapoConfig::default().build()?;
/// assert_eq!(estimator.lambda_policy(80), 0.75);
/// assert_eq!(estimator.lambda_policy(10), 0.0);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct VapoAdvantage(pub VapoConfig);

const NAME: &str = "vapo";

impl VapoAdvantage {
    /// The policy's lambda for an answer of so many tokens.
    pub fn lambda_policy(&self, tokens: usize) -> f32 {
        let lambda = 1.0 - 1.0 / (f64::from(self.0.alpha) * tokens.max(1) as f64);
        lambda.clamp(0.0, 1.0) as f32
    }

    fn row(&self, t: &Trajectory) -> Result<(Vec<f32>, Vec<f32>)> {
        let policy = self.lambda_policy(t.policy_tokens());
        gae::trajectory(t, self.0.gamma, [policy, self.0.lambda_critic], NAME)
    }
}

impl AdvantageEstimator for VapoAdvantage {
    fn name(&self) -> &str {
        NAME
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards, Column::Values]
    }

    fn estimate(&self, batch: &Batch) -> Result<Advantages> {
        let rows = batch.trajectories().map(|t| self.row(t));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let (mut advantages, returns): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        if self.0.whiten_advantages {
            whiten(batch, &mut advantages);
        }
        Ok(Advantages {
            advantages,
            returns: Some(returns),
        })
    }
}
