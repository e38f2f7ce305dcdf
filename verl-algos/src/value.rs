//! The critic's clipped loss (arXiv:1707.06347 and its reference code).
//!
//! ```text
//! L = max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2) / 2
//! ```
//!
//! # Metrics
//! Means over the policy's tokens: `critic/vf_clipfrac`, 1 where the clipped
//! term is the larger, and `critic/vpred_mean`, the value.

use crate::common::aggregation;
use serde::{Deserialize, Serialize};
use verl_core::algorithm::{LossOutput, ValueInput, ValueLoss};
use verl_core::math::LossAggregation;
use verl_core::types::Column;
use verl_core::{Error, Result};

/// Options of the critic's loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValueConfig {
    /// How far a value may move before its loss is clipped.
    pub cliprange_value: f32,
    /// How the per-token losses become one number, as `loss_agg_mode`.
    pub value_loss_agg_mode: String,
    /// The constant length of `seq-mean-token-sum-norm`.
    pub value_loss_scale_factor: Option<f32>,
}

impl Default for ValueConfig {
    fn default() -> Self {
        ValueConfig {
            cliprange_value: 0.5,
            value_loss_agg_mode: "token-mean".into(),
            value_loss_scale_factor: None,
        }
    }
}

impl ValueConfig {
    /// The loss and its aggregation.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option out of range.
    pub fn build(&self) -> Result<(ClippedValueLoss, LossAggregation)> {
        let range = self.cliprange_value;
        if range.is_nan() || range <= 0.0 {
            return Err(Error::config(
                "algorithm.cliprange_value",
                format!("{range} must be positive"),
            ));
        }
        let (mode, scale) = (&self.value_loss_agg_mode, self.value_loss_scale_factor);
        Ok((
            ClippedValueLoss { range },
            aggregation("value_", mode, scale)?,
        ))
    }
}

/// The clipped value loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClippedValueLoss {
    /// How far a value may move from the old one before its loss is clipped.
    pub range: f32,
}

const NAME: &str = "clipped value loss";

impl ValueLoss for ClippedValueLoss {
    fn needs(&self) -> &[Column] {
        &[Column::Values, Column::Returns]
    }

    fn per_token(&self, input: &ValueInput<'_>) -> Result<LossOutput> {
        let old = input.column_n(Column::Values, NAME)?;
        let returns = input.column_n(Column::Returns, NAME)?;
        let values = input.values_n.clone();
        // Not `old + clamp(v - old)`, which rounds values that nothing clips.
        let lowest = old.clone().sub_scalar(self.range);
        let near = values
            .clone()
            .max_pair(lowest)
            .min_pair(old.add_scalar(self.range));
        let plain = (values.clone() - returns.clone()).square();
        let clipped = (near - returns).square();
        let share = clipped
            .clone()
            .inner()
            .greater(plain.clone().inner())
            .float();
        Ok(LossOutput {
            loss_n: plain.max_pair(clipped).mul_scalar(0.5),
            metrics_n: vec![
                ("critic/vf_clipfrac", share),
                ("critic/vpred_mean", values.inner()),
            ],
        })
    }
}
