//! SAPO: soft adaptive policy optimisation.
//!
//! A sigmoid gate around ratio 1 takes the place of the hard clip:
//!
//! ```text
//! L = -A (4 / tau) sigmoid(tau (r - 1))       r = exp(log pi - log pi_old)
//! tau = tau_pos where A > 0, else tau_neg
//! ```
//!
//! At ratio 1 its gradient is that of `-A r`, and it fades on both sides.
//! Meant for `loss_agg_mode: seq-mean-token-mean`.
//!
//! # Paper
//! arXiv:2511.20347, with its `tau_pos` 1.0 and `tau_neg` 1.05. As in verl the
//! log-ratio is cut to [-20, 20].
//!
//! # Differences from verl
//! - The aggregation is an option like any other; verl ignores
//!   `loss_agg_mode` and takes `seq-mean-token-mean`.
//! - No `actor/pg_clipfrac`, which is always 0 there.
//!
//! # Metrics
//! `actor/ppo_kl`, the mean of `-(log pi - log pi_old)` over the policy's
//! tokens.

use crate::options::require;
use crate::ratio::{cut, log_ratio_n, ppo_kl};
use burn::tensor::activation::sigmoid;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SapoConfig {
    /// Steepness of the gate at positive advantages.
    pub tau_pos: f32,
    /// Steepness at the others; a steeper gate takes more gradient away.
    pub tau_neg: f32,
}

impl Default for SapoConfig {
    fn default() -> Self {
        SapoConfig {
            tau_pos: 1.0,
            tau_neg: 1.05,
        }
    }
}

impl SapoConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<SapoLoss> {
        for (key, tau) in [("tau_pos", self.tau_pos), ("tau_neg", self.tau_neg)] {
            require(key, tau, tau.is_finite() && tau > 0.0, "positive")?;
        }
        Ok(SapoLoss {
            tau_pos: self.tau_pos,
            tau_neg: self.tau_neg,
        })
    }
}

/// The loss.
///
/// # Example
/// At ratio 1 the gate is half open, `4 / tau * 1/2`, with slope 1:
/// ```
/// use burn::tensor::Device;
/// use verl_algos::probe::{Answer, probe};
/// use verl_algos::sapo::SapoConfig;
///
/// let answer = Answer {
///     advantage: 3.0,
///     log_probs: vec![-1.0],
///     old_log_probs: vec![-1.0],
///     ..Answer::default()
/// };
/// let loss = SapoConfig::default().build()?;
/// let probed = probe(&loss, &[answer], &Device::flex().autodiff())?;
/// assert_eq!((probed.loss_n, probed.gradient_n), (vec![-6.0], vec![-3.0]));
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SapoLoss {
    /// Steepness at positive advantages.
    pub tau_pos: f32,
    /// Steepness at the others.
    pub tau_neg: f32,
}

const NAME: &str = "SAPO loss";

impl PolicyLoss for SapoLoss {
    fn name(&self) -> &str {
        "sapo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let log_ratio = cut(log_ratio_n(input, NAME)?);
        let tau = advantages
            .full_like(self.tau_neg)
            .mask_fill(advantages.clone().greater_scalar(0.0), self.tau_pos);
        let gate = sigmoid(log_ratio.clone().exp().sub_scalar(1.0) * tau.clone());
        let weight = advantages.mul_scalar(-4.0) / tau;
        Ok(LossOutput {
            loss_n: gate * weight,
            metrics_n: vec![ppo_kl(&log_ratio)],
        })
    }
}
