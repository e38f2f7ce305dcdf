//! DPPO: PPO whose trust region is measured by a divergence, not by the ratio.
//!
//! A token loses its gradient where its probability has moved too far in the
//! direction its advantage pushes it to; the others have the plain policy
//! gradient with a truncated ratio as weight:
//!
//! ```text
//! L = -A sg(min(r, c)) log pi      where D(p, p_old) <= high   or p <= p_old   (A > 0)
//!                                  or    D(p, p_old) <= low    or p >= p_old   (A <= 0)
//! L = 0                            elsewhere
//!
//! tv: D = |p - p_old|              p = pi(token), r = p / p_old
//! kl: D = KL of the two-way choice between the token and any other
//! ```
//!
//! # Paper
//! arXiv:2602.04879: the binary approximations of total variation and KL; the
//! truncation of section 5.4. As in verl, where they are named `dppo_tv` and
//! `dppo_kl`, the log-ratio is cut to [-20, 20].
//!
//! # Differences from verl
//! - `clip_ratio_c` is 20 unless set, as in the paper. verl means the same,
//!   but its actor section always hands over 3.
//! - `clip_ratio`, which sets both ranges, is not an option here.
//!
//! # Metrics
//! Means over the policy's tokens.
//!
//! ```text
//! actor/ppo_kl             -(log pi - log pi_old)
//! actor/pg_clipfrac        1 where L = 0
//! actor/pg_clipfrac_lower  1 elsewhere, where r > c
//! ```

use crate::options::require;
use crate::ratio::{cut, log_ratio_n, ppo_kl};
use burn::tensor::{Bool, Tensor};
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;

/// How far apart two probabilities of a token are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divergence {
    /// Total variation.
    Tv,
    /// Kullback-Leibler, from the old policy to the new.
    Kl,
}

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DppoConfig {
    /// Largest divergence where the advantage is not positive.
    pub clip_ratio_low: f32,
    /// Largest divergence where it is positive.
    pub clip_ratio_high: f32,
    /// Where the ratio is truncated.
    pub clip_ratio_c: f32,
}

impl DppoConfig {
    /// Ranges of 0.15 and 0.2 for total variation, of 0.05 for KL.
    pub fn new(divergence: Divergence) -> Self {
        let (clip_ratio_low, clip_ratio_high) = match divergence {
            Divergence::Tv => (0.15, 0.2),
            Divergence::Kl => (0.05, 0.05),
        };
        DppoConfig {
            clip_ratio_low,
            clip_ratio_high,
            clip_ratio_c: 20.0,
        }
    }

    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] naming the option out of range.
    pub fn build(&self, divergence: Divergence) -> Result<DppoLoss> {
        let (low, high, c) = (self.clip_ratio_low, self.clip_ratio_high, self.clip_ratio_c);
        require("clip_ratio_low", low, low >= 0.0, "0 or positive")?;
        require("clip_ratio_high", high, high >= 0.0, "0 or positive")?;
        require("clip_ratio_c", c, c >= 1.0, "1 or more")?;
        Ok(DppoLoss {
            divergence,
            low,
            high,
            c,
        })
    }
}

/// The loss.
///
/// # Example
/// A rare token may multiply its probability by 8 (PPO would stop at 1.2); a
/// common one may not rise by more than 0.2.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::dppo::{Divergence, DppoConfig};
/// use verl_algos::probe::{Answer, probe};
///
/// let answer = Answer {
///     advantage: 1.0,
///     log_probs: vec![0.125f32.ln(), 0.75f32.ln()],
///     old_log_probs: vec![0.015625f32.ln(), 0.5f32.ln()],
///     ..Answer::default()
/// };
/// let loss = DppoConfig::new(Divergence::Tv).build(Divergence::Tv)?;
/// let probed = probe(&loss, &[answer], &Device::flex().autodiff())?;
/// assert!((probed.gradient_n[0] + 8.0).abs() < 1e-5);
/// assert_eq!(probed.gradient_n[1], 0.0);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DppoLoss {
    /// What the ranges bound.
    pub divergence: Divergence,
    /// Range where the advantage is not positive.
    pub low: f32,
    /// Range where it is positive.
    pub high: f32,
    /// Where the ratio is truncated.
    pub c: f32,
}

const NAME: &str = "DPPO loss";

impl DppoLoss {
    /// Where a token has left the trust region; constants all.
    fn outside(
        &self,
        log_probs: Tensor<1>,
        old_log_probs: Tensor<1>,
        advantages: Tensor<1>,
    ) -> Tensor<1, Bool> {
        let (p, old) = (log_probs.clone().exp(), old_log_probs.clone().exp());
        let (rise, fall) = (p.clone().greater(old.clone()), p.clone().lower(old.clone()));
        let distance = match self.divergence {
            Divergence::Tv => (p - old).abs(),
            Divergence::Kl => {
                // Keeps the logarithms finite where a probability is 1.
                let other = |p: Tensor<1>| p.neg().add_scalar(1.0).add_scalar(1e-8);
                let rest = (other(old.clone()) / other(p)).log();
                old.clone() * (old_log_probs - log_probs) + old.neg().add_scalar(1.0) * rest
            }
        };
        let too_high = distance.clone().greater_scalar(self.high).bool_and(rise);
        let too_low = distance.greater_scalar(self.low).bool_and(fall);
        let positive = advantages.greater_scalar(0.0);
        let down = positive.clone().bool_not().bool_and(too_low);
        positive.bool_and(too_high).bool_or(down)
    }
}

impl PolicyLoss for DppoLoss {
    fn name(&self) -> &str {
        match self.divergence {
            Divergence::Tv => "dppo_tv",
            Divergence::Kl => "dppo_kl",
        }
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let old = input.column_n(Column::OldLogProbs, NAME)?;
        let outside = self.outside(input.log_probs_n.clone().inner(), old, advantages.clone());
        let log_ratio = cut(log_ratio_n(input, NAME)?);
        let ratio = log_ratio.clone().inner().exp();
        let weight = ratio.clone().clamp_max(self.c) * advantages;
        let truncated = ratio.greater_scalar(self.c).float();
        Ok(LossOutput {
            loss_n: (input.log_probs_n.clone() * weight)
                .neg()
                .mask_fill(outside.clone(), 0.0),
            metrics_n: vec![
                ppo_kl(&log_ratio),
                ("actor/pg_clipfrac", outside.clone().float()),
                ("actor/pg_clipfrac_lower", truncated.mask_fill(outside, 0.0)),
            ],
        })
    }
}
