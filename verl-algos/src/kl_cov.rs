//! KL-Cov: the policy gradient with a KL penalty on the few tokens that would
//! lower the entropy most.
//!
//! ```text
//! cov  = (A - mean(A)) (log pi - mean(log pi))
//! L    = -A r + ppo_kl_coef |log r|      for the tokens with the largest cov
//! L    = -A r                            for the others
//! ```
//!
//! Of `n` tokens, `max(1, kl_cov_ratio n)` are penalised.
//!
//! # Paper
//! The entropy mechanism of reinforcement learning for reasoning language
//! models, arXiv:2505.22617, section 4.2, with its ratio and coefficient.
//!
//! # Differences from verl
//! The log-ratio is cut to [-20, 20] before the exponential, so that the loss
//! stays finite; like there, nothing else bounds the ratio.
//!
//! As in verl, means and `n` are those of a micro-batch.
//!
//! # Metrics
//! `actor/ppo_kl`, here the mean of `|log pi - log pi_old|` over the policy's
//! tokens.

use crate::covariance::{count, covariances};
use crate::options::require;
use crate::ratio::{cut, log_ratio_n};
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KlCovConfig {
    /// Share of the tokens that are penalised.
    pub kl_cov_ratio: f64,
    /// Weight of the penalty.
    pub ppo_kl_coef: f32,
}

impl Default for KlCovConfig {
    fn default() -> Self {
        KlCovConfig {
            kl_cov_ratio: 0.0002,
            ppo_kl_coef: 1.0,
        }
    }
}

impl KlCovConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<KlCovLoss> {
        let (share, coef) = (self.kl_cov_ratio, self.ppo_kl_coef);
        let in_range = share > 0.0 && share <= 1.0;
        require("kl_cov_ratio", share, in_range, "above 0 and at most 1")?;
        let in_range = coef.is_finite() && coef >= 0.0;
        require("ppo_kl_coef", coef, in_range, "0 or positive")?;
        Ok(KlCovLoss { share, coef })
    }
}

/// The loss.
///
/// # Example
/// The covariances are 3, -1, -1 and -1: the first token is pulled back.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::kl_cov::KlCovConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answers = [(2.0, -1.0), (0.0, -3.0), (0.0, -3.0), (-2.0, -1.0)].map(
///     |(advantage, log_prob)| Answer {
///         advantage,
///         log_probs: vec![log_prob],
///         old_log_probs: vec![log_prob - 2f32.ln()],
///         ..Answer::default()
///     },
/// );
/// let loss = KlCovConfig::default().build()?;
/// let probed = probe(&loss, &answers, &Device::flex().autodiff())?;
/// assert!((probed.loss_n[0] - (-2.0 * 2.0 + 2f32.ln())).abs() < 1e-6);
/// assert!((probed.gradient_n[0] - (-4.0 + 1.0)).abs() < 1e-6);
/// assert!((probed.loss_n[3] - 2.0 * 2.0).abs() < 1e-6);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KlCovLoss {
    /// Share of the tokens that are penalised.
    pub share: f64,
    /// Weight of the penalty.
    pub coef: f32,
}

const NAME: &str = "KL-Cov loss";

impl PolicyLoss for KlCovLoss {
    fn name(&self) -> &str {
        "kl_cov"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let covariances = covariances(input, NAME)?;
        let mut order: Vec<usize> = (0..covariances.len()).collect();
        order.sort_by(|a, b| covariances[*b].total_cmp(&covariances[*a]));
        let mut coefs = vec![0.0; order.len()];
        let penalised = order.iter().take(count(self.share, order.len()));
        penalised.for_each(|i| coefs[*i] = self.coef);
        let data = TensorData::new(coefs, [order.len()]);
        let coefs = Tensor::<1>::from_data(data, &input.log_probs_n.device().inner());

        let log_ratio = log_ratio_n(input, NAME)?;
        let distance = log_ratio.clone().abs();
        let plain = (cut(log_ratio).exp() * advantages).neg();
        Ok(LossOutput {
            loss_n: plain + distance.clone() * coefs,
            metrics_n: vec![("actor/ppo_kl", distance.inner())],
        })
    }
}
