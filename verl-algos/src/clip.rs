//! The clipped surrogate of PPO, with dual clip and clip-higher.
//!
//! ```text
//! r = exp(log pi - log pi_old)
//! L = max(-A r, -A clip(r, 1 - low, 1 + high))                 A >= 0
//! L = min(max(-A r, -A clip(r, 1 - low, 1 + high)), -A c)      A <  0
//! ```
//!
//! Clipping: arXiv:1707.06347, eq. 7. Dual clip: arXiv:1912.09729, eq. 5.
//! Different lower and upper ranges ("clip-higher"): arXiv:2503.14476, eq. 10.
//! As in verl the log-ratio is cut to [-20, 20] before the exponential, so
//! that neither overflows; beyond, there is no gradient.
//!
//! # Metrics
//! Means over the policy's tokens.
//!
//! ```text
//! actor/ppo_kl             -(log pi - log pi_old)
//! actor/pg_clipfrac        1 where the clipped term is the larger
//! actor/pg_clipfrac_lower  1 where A < 0 and the loss exceeds -A c
//! ```

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;
use verl_core::{Error, Result};

/// The ranges, in verl's spelling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClipConfig {
    /// Both ranges, where the next two are not set.
    pub clip_ratio: f32,
    /// How far the ratio may fall.
    pub clip_ratio_low: Option<f32>,
    /// How far it may rise.
    pub clip_ratio_high: Option<f32>,
    /// Bound of the loss at negative advantages, above 1.
    pub clip_ratio_c: f32,
}

impl Default for ClipConfig {
    fn default() -> Self {
        ClipConfig {
            clip_ratio: 0.2,
            clip_ratio_low: None,
            clip_ratio_high: None,
            clip_ratio_c: 3.0,
        }
    }
}

impl ClipConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<ClippedLoss> {
        let (low, high) = (
            self.clip_ratio_low.unwrap_or(self.clip_ratio),
            self.clip_ratio_high.unwrap_or(self.clip_ratio),
        );
        for (key, value, ok) in [
            ("clip_ratio", self.clip_ratio, self.clip_ratio >= 0.0),
            ("clip_ratio_low", low, (0.0..=1.0).contains(&low)),
            ("clip_ratio_high", high, high >= 0.0),
            ("clip_ratio_c", self.clip_ratio_c, self.clip_ratio_c > 1.0),
        ] {
            if !ok {
                let want = match key {
                    "clip_ratio_c" => "above 1",
                    "clip_ratio_low" => "in [0, 1]",
                    _ => "0 or positive",
                };
                return Err(Error::config(
                    format!("algorithm.{key}"),
                    format!("{value} is out of range; it must be {want}"),
                ));
            }
        }
        Ok(ClippedLoss {
            low,
            high,
            c: self.clip_ratio_c,
        })
    }
}

/// The clipped loss.
///
/// # Example
/// One token with advantage 1 whose probability has doubled: the ratio counts
/// up to 1.2, and there is no more gradient.
/// ```
/// use burn::tensor::{Device, Tensor};
/// use verl_algos::ClippedLoss;
/// use verl_core::algorithm::{LossInput, PolicyLoss};
/// use verl_core::types::{Column, FinishReason, GroupId, Trajectory, TrajectoryParts};
///
/// let mut t = Trajectory::new(TrajectoryParts {
///     group: GroupId(0),
///     sample: 0,
///     prompt: vec![1].into(),
///     response: vec![7],
///     response_mask: vec![true],
///     finish: FinishReason::Stop,
///     weight_version: 0,
/// })?;
/// t.set(Column::OldLogProbs, vec![0.25f32.ln()])?;
/// t.set(Column::Advantages, vec![1.0])?;
///
/// let device = Device::flex().autodiff();
/// let log_probs_n = Tensor::<1>::from_floats([0.5f32.ln()], &device).require_grad();
/// let rows = [&t];
/// let input = LossInput::new(&rows, log_probs_n.clone(), None)?;
/// let loss = ClippedLoss::default().per_token(&input)?.loss_n.sum();
/// assert_eq!(loss.clone().into_scalar::<f32>(), -1.2);
/// let gradient = log_probs_n.grad(&loss.backward()).unwrap();
/// assert_eq!(gradient.into_scalar::<f32>(), 0.0);
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClippedLoss {
    /// Lower range.
    pub low: f32,
    /// Upper range.
    pub high: f32,
    /// Bound at negative advantages.
    pub c: f32,
}

impl Default for ClippedLoss {
    fn default() -> Self {
        ClippedLoss {
            low: 0.2,
            high: 0.2,
            c: 3.0,
        }
    }
}

const NAME: &str = "clipped policy loss";

impl PolicyLoss for ClippedLoss {
    fn name(&self) -> &str {
        "clipped"
    }

    fn needs(&self) -> &[Column] {
        &[Column::OldLogProbs, Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let log_ratio = (input.log_probs_n.clone() - input.column_n(Column::OldLogProbs, NAME)?)
            .clamp(-20.0, 20.0);
        let ratio = log_ratio.clone().exp();
        let plain = (ratio.clone() * advantages.clone()).neg();
        let clipped = (ratio.clamp(1.0 - self.low, 1.0 + self.high) * advantages.clone()).neg();
        let surrogate = plain.clone().max_pair(clipped.clone());
        let bound = advantages.clone().mul_scalar(-self.c);
        let negative = advantages.lower_scalar(0.0);
        let bounded = surrogate.clone().min_pair(bound.clone());
        let loss_n = surrogate.clone().mask_where(negative.clone(), bounded);

        let share = |condition: Tensor<1, burn::tensor::Bool>| condition.float();
        let (plain, clipped, surrogate) = (plain.inner(), clipped.inner(), surrogate.inner());
        let metrics_n = vec![
            ("actor/ppo_kl", log_ratio.inner().neg()),
            ("actor/pg_clipfrac", share(clipped.greater(plain))),
            (
                "actor/pg_clipfrac_lower",
                share(surrogate.greater(bound)) * share(negative),
            ),
        ];
        Ok(LossOutput { loss_n, metrics_n })
    }
}
