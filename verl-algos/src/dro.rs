//! DRO: direct reward optimisation.
//!
//! ```text
//! L = -A log pi + beta / 2 (log pi - log pi_old)^2
//! ```
//!
//! # Paper
//! Offline regularised reinforcement learning, arXiv:2405.19107: the gradient
//! of the quadratic loss whose minimum is the KL-regularised policy.
//!
//! # Differences from the paper
//! As in verl, the baseline is that of the advantages and not a learned value
//! function, the squared term is taken token by token, and it pulls towards
//! the policy before the update and not a fixed reference.
//!
//! # Differences from verl
//! `dro_beta` is 1 unless set, the paper's best value; verl has no default.
//!
//! # Metrics
//! `actor/ppo_kl`, the mean of `-(log pi - log pi_old)` over the policy's
//! tokens.

use crate::options::require;
use crate::ratio::{log_ratio_n, ppo_kl};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DroConfig {
    /// Weight of the squared log-ratio.
    pub dro_beta: f32,
}

impl Default for DroConfig {
    fn default() -> Self {
        DroConfig { dro_beta: 1.0 }
    }
}

impl DroConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] when the weight is not positive.
    pub fn build(&self) -> Result<DroLoss> {
        let beta = self.dro_beta;
        require("dro_beta", beta, beta.is_finite() && beta > 0.0, "positive")?;
        Ok(DroLoss { beta })
    }
}

/// The loss.
///
/// # Example
/// `-2 * -1 + 1/2 * 1^2`:
/// ```
/// use burn::tensor::Device;
/// use verl_algos::dro::DroConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answer = Answer {
///     advantage: 2.0,
///     log_probs: vec![-1.0],
///     old_log_probs: vec![-2.0],
///     ..Answer::default()
/// };
/// let loss = DroConfig::default().build()?;
/// let probed = probe(&loss, &[answer], &Device::flex().autodiff())?;
/// assert_eq!((probed.loss_n, probed.gradient_n), (vec![2.5], vec![-1.0]));
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DroLoss {
    /// Weight of the squared log-ratio.
    pub beta: f32,
}

const NAME: &str = "DRO loss";

impl PolicyLoss for DroLoss {
    fn name(&self) -> &str {
        "dro"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let log_ratio = log_ratio_n(input, NAME)?;
        let pull = log_ratio.clone().square().mul_scalar(0.5 * self.beta);
        Ok(LossOutput {
            loss_n: pull - input.log_probs_n.clone() * advantages,
            metrics_n: vec![ppo_kl(&log_ratio)],
        })
    }
}
