//! The critic's clipped loss (arXiv:1707.06347 and its reference code).
//!
//! ```text
//! L = max((v - R)^2, (clip(v, v_old - c, v_old + c) - R)^2) / 2
//! ```
//!
//! # Metrics
//! Means over the policy's tokens: `critic/vf_clipfrac`, 1 where the clipped
//! term is the larger, and `critic/vpred_mean`, the value.

use verl_core::Result;
use verl_core::algorithm::{LossOutput, ValueInput, ValueLoss};
use verl_core::types::Column;

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
