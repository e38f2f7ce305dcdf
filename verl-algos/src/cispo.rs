//! CISPO: clipped importance-sampling policy optimisation.
//!
//! The ratio weighs the plain policy gradient and is clipped as a weight, so
//! that no token loses its gradient:
//!
//! ```text
//! L = -sg(clip(r, 1 - low, 1 + high)) A log pi        r = exp(log pi - log pi_old)
//! ```
//!
//! # Paper
//! MiniMax-M1, arXiv:2506.13585, section 3.1, eq. 4 and 5. There is no lower
//! bound (`clip_ratio_low: 1`); the upper one is tuned and not published.
//! As in verl the log-ratio is cut to [-20, 20].
//!
//! # Differences from verl
//! - Without options there is no lower bound, as in the paper (verl: 0.2).
//!   `clip_ratio`, which sets both, is not an option here.
//! - No `actor/pg_clipfrac_lower`, which is always 0 there.
//!
//! # Metrics
//! Means over the policy's tokens.
//!
//! ```text
//! actor/ppo_kl       -(log pi - log pi_old)
//! actor/pg_clipfrac  1 where the weight is clipped
//! ```

use crate::options::require;
use crate::ratio::{cut, log_ratio_n, ppo_kl};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CispoConfig {
    /// How far below 1 the weight may fall; 1 or more is no bound.
    pub clip_ratio_low: f32,
    /// How far above 1 it may rise.
    pub clip_ratio_high: f32,
}

impl Default for CispoConfig {
    fn default() -> Self {
        CispoConfig {
            clip_ratio_low: 1.0,
            clip_ratio_high: 0.2,
        }
    }
}

impl CispoConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<CispoLoss> {
        let (low, high) = (self.clip_ratio_low, self.clip_ratio_high);
        require("clip_ratio_low", low, low >= 0.0, "0 or positive")?;
        require("clip_ratio_high", high, high >= 0.0, "0 or positive")?;
        Ok(CispoLoss { low, high })
    }
}

/// The loss.
///
/// # Example
/// A token has become twice as likely: it counts 1.2 times, where PPO's loss
/// would give it no gradient.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::cispo::CispoConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answer = Answer {
///     advantage: 1.0,
///     log_probs: vec![0.5f32.ln()],
///     old_log_probs: vec![0.25f32.ln()],
///     ..Answer::default()
/// };
/// let loss = CispoConfig::default().build()?;
/// let probed = probe(&loss, &[answer], &Device::flex().autodiff())?;
/// assert_eq!(probed.gradient_n, [-1.2]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CispoLoss {
    /// Lower range.
    pub low: f32,
    /// Upper range.
    pub high: f32,
}

const NAME: &str = "CISPO loss";

impl PolicyLoss for CispoLoss {
    fn name(&self) -> &str {
        "cispo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let log_ratio = cut(log_ratio_n(input, NAME)?);
        let ratio = log_ratio.clone().inner().exp();
        let weight = ratio.clone().clamp(1.0 - self.low, 1.0 + self.high);
        let clipped = ratio.not_equal(weight.clone()).float();
        Ok(LossOutput {
            loss_n: (input.log_probs_n.clone() * (weight * advantages)).neg(),
            metrics_n: vec![ppo_kl(&log_ratio), ("actor/pg_clipfrac", clipped)],
        })
    }
}
