//! GSPO: group sequence policy optimisation.
//!
//! The clipped surrogate with one ratio per answer instead of one per token,
//! the geometric mean of its tokens' ratios:
//!
//! ```text
//! s   = exp(mean_t(log pi_t - log pi_old_t))
//! s_t = sg(s) pi_t / sg(pi_t)
//! L_t = max(-A_t s_t, -A_t clip(s_t, 1 - low, 1 + high))
//! ```
//!
//! `sg` stops the gradient, so that each token's gradient has the weight of
//! its own advantage. Meant for `loss_agg_mode: seq-mean-token-mean`.
//!
//! # Paper
//! arXiv:2507.18071: eq. 5 to 7, and with advantages per token ("GSPO-token")
//! eq. 13 and 14; the ranges of section 5.1.
//!
//! # Differences from the paper
//! As in verl, `log s` is cut at 10 from above; beyond, there is no gradient.
//!
//! # Differences from verl
//! - The ranges are the paper's unless set. verl's `clip_ratio` of 0.2, far
//!   too wide for ratios of whole answers, is not an option here.
//! - No `actor/pg_clipfrac_lower`, which is always 0 there.
//!
//! # Metrics
//! Means over the policy's tokens.
//!
//! ```text
//! actor/ppo_kl       -(log pi - log pi_old)
//! actor/pg_clipfrac  1 where the clipped term is the larger
//! ```

use crate::options::require;
use crate::ratio::{log_ratio_n, ppo_kl};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GspoConfig {
    /// How far an answer's ratio may fall.
    pub clip_ratio_low: f32,
    /// How far it may rise.
    pub clip_ratio_high: f32,
}

impl Default for GspoConfig {
    fn default() -> Self {
        GspoConfig {
            clip_ratio_low: 3e-4,
            clip_ratio_high: 4e-4,
        }
    }
}

impl GspoConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<GspoLoss> {
        let (low, high) = (self.clip_ratio_low, self.clip_ratio_high);
        require(
            "clip_ratio_low",
            low,
            (0.0..=1.0).contains(&low),
            "in [0, 1]",
        )?;
        require("clip_ratio_high", high, high >= 0.0, "0 or positive")?;
        Ok(GspoLoss { low, high })
    }
}

/// The loss.
///
/// # Example
/// One token has become twice as likely and one half as likely: the answer's
/// ratio is 1, and nothing is clipped.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::gspo::GspoConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answer = Answer {
///     advantage: 3.0,
///     log_probs: vec![0.5f32.ln(), 0.25f32.ln()],
///     old_log_probs: vec![0.25f32.ln(), 0.5f32.ln()],
///     ..Answer::default()
/// };
/// let loss = GspoConfig::default().build()?;
/// let probed = probe(&loss, &[answer], &Device::flex().autodiff())?;
/// assert_eq!(probed.loss_n, [-3.0, -3.0]);
/// assert_eq!(probed.gradient_n, [-3.0, -3.0]);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GspoLoss {
    /// Lower range.
    pub low: f32,
    /// Upper range.
    pub high: f32,
}

const NAME: &str = "GSPO loss";
const LARGEST_LOG_RATIO: f32 = 10.0;

impl PolicyLoss for GspoLoss {
    fn name(&self) -> &str {
        "gspo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let log_ratio = log_ratio_n(input, NAME)?;
        let of_answer = input.sequence_mean_n(log_ratio.clone().inner());
        let log_probs = input.log_probs_n.clone();
        let ratio = (log_probs.clone() - log_probs.inner() + of_answer)
            .clamp_max(LARGEST_LOG_RATIO)
            .exp();
        let plain = (ratio.clone() * advantages.clone()).neg();
        let clipped = (ratio.clamp(1.0 - self.low, 1.0 + self.high) * advantages).neg();
        let loss_n = plain.clone().max_pair(clipped.clone());
        let share = clipped.inner().greater(plain.inner()).float();
        Ok(LossOutput {
            loss_n,
            metrics_n: vec![ppo_kl(&log_ratio), ("actor/pg_clipfrac", share)],
        })
    }
}
