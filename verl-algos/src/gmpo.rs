//! GMPO: geometric-mean policy optimisation (verl: `geo_mean`).
//!
//! The objective of an answer is its advantage times the geometric mean of
//! its tokens' ratios, each clipped in log space on the side its advantage
//! pushes it to:
//!
//! ```text
//! d_t = log pi_t - log pi_old_t
//! c_t = min(d_t, high)      A_t > 0        c_t = max(d_t, -low)      A_t < 0
//! L   = -mean_t(A_t) exp(mean_t(c_t))
//! ```
//!
//! Every token of the answer carries `L`: meant for `loss_agg_mode:
//! seq-mean-token-mean`, which makes of it the mean over answers.
//!
//! # Paper
//! arXiv:2507.20673, with its range (e^-0.4, e^0.4).
//!
//! # Differences from verl
//! - The mean runs over the answers of the mini-batch that have a token,
//!   whatever the micro-batches; verl averages over the rows of a micro-batch,
//!   empty ones included.
//! - The mean log-ratio is cut to [-20, 20], so that it cannot overflow.
//! - Importance weights of the rollout correction multiply the loss token by
//!   token, so that an answer counts by their mean (verl: geometric mean).
//! - `clip_ratio` is not an option; set both ranges.
//!
//! # Metrics
//! Means over the policy's tokens.
//!
//! ```text
//! actor/ppo_kl             -d_t
//! actor/pg_clipfrac        1 where A_t > 0 and d_t lies outside [-low, high]
//! actor/pg_clipfrac_lower  1 where A_t < 0 and d_t lies outside
//! ```

use crate::options::require;
use crate::ratio::{cut, log_ratio_n, ppo_kl};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GmpoConfig {
    /// How far a token's log-ratio may fall.
    pub clip_ratio_low: f32,
    /// How far it may rise.
    pub clip_ratio_high: f32,
}

impl Default for GmpoConfig {
    fn default() -> Self {
        GmpoConfig {
            clip_ratio_low: 0.4,
            clip_ratio_high: 0.4,
        }
    }
}

impl GmpoConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<GmpoLoss> {
        let (low, high) = (self.clip_ratio_low, self.clip_ratio_high);
        require("clip_ratio_low", low, low >= 0.0, "0 or positive")?;
        require("clip_ratio_high", high, high >= 0.0, "0 or positive")?;
        Ok(GmpoLoss { low, high })
    }
}

/// The loss.
///
/// # Example
/// Of two tokens with ratios 4 and 1, the first counts `e^0.4`, and has no
/// more gradient; their geometric mean is `e^0.2`.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::gmpo::GmpoConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answer = Answer {
///     advantage: 1.0,
///     log_probs: vec![0.5f32.ln(), -1.0],
///     old_log_probs: vec![0.125f32.ln(), -1.0],
///     ..Answer::default()
/// };
/// let loss = GmpoConfig::default().build()?;
/// let probed = probe(&loss, &[answer], &Device::flex().autodiff())?;
/// let want = -0.2f32.exp();
/// assert!(probed.loss_n.iter().all(|l| (l - want).abs() < 1e-6));
/// assert_eq!(probed.gradient_n[0], 0.0);
/// // Half of the exponent, in the loss of both tokens.
/// assert!((probed.gradient_n[1] - want).abs() < 1e-6);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GmpoLoss {
    /// Lower range of a token's log-ratio.
    pub low: f32,
    /// Upper range.
    pub high: f32,
}

const NAME: &str = "GMPO loss";

impl PolicyLoss for GmpoLoss {
    fn name(&self) -> &str {
        "gmpo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let log_ratio = log_ratio_n(input, NAME)?;
        let near = log_ratio.clone().clamp(-self.low, self.high);
        let sign = advantages.clone().sign();
        let clipped =
            (log_ratio.clone() * sign.clone()).min_pair(near.clone() * sign.clone()) * sign.clone();
        let ratio = cut(input.sequence_mean_n(clipped)).exp();
        let of_answer = input.sequence_mean_n(advantages);
        let outside = log_ratio.clone().inner().not_equal(near.inner()).float();
        Ok(LossOutput {
            loss_n: (ratio * of_answer).neg(),
            metrics_n: vec![
                ppo_kl(&log_ratio),
                (
                    "actor/pg_clipfrac",
                    outside.clone() * sign.clone().clamp_min(0.0),
                ),
                (
                    "actor/pg_clipfrac_lower",
                    outside * sign.neg().clamp_min(0.0),
                ),
            ],
        })
    }
}
