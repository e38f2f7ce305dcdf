//! SPIN: self-play fine-tuning, in the online form of verl's recipe.
//!
//! The policy plays against an earlier self, the reference: of its answers to
//! a prompt, the best is to become more likely against the worst, by the loss
//! of [DPO](crate::dpo).
//!
//! # Paper
//! SPIN: arXiv:2401.01335, eq. 4.7; online DPO: arXiv:2402.04792. In SPIN the
//! winner is the answer of a data set. Here it is sampled like the other, and
//! a reward decides; for the paper's form give the data set's answer score 1.
//!
//! # Differences from verl
//! - Of two answers with equal scores verl takes the first as the better one;
//!   here such a group has loss 0.
//! - Groups may have more than two answers.
//! - The reference is a policy like any other; when it is replaced by the
//!   trained one is for the run to say (verl: `ref_update_freq`).

use crate::dpo::{DpoConfig, DpoLoss, DpoLossType};
use serde::{Deserialize, Serialize};
use verl_core::{Error, Result};

/// Options of the loss, in the spelling of verl's recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpinConfig {
    /// Weight of the reference policy.
    pub dpo_beta: f32,
    /// `sigmoid` or `ipo`.
    pub dpo_loss_type: DpoLossType,
    /// Share of labels that may be wrong, `sigmoid` only.
    pub dpo_label_smoothing: f32,
    /// Leave the reference policy out.
    pub reference_free: bool,
}

impl Default for SpinConfig {
    fn default() -> Self {
        SpinConfig {
            dpo_beta: 0.1,
            dpo_loss_type: DpoLossType::Sigmoid,
            dpo_label_smoothing: 0.0,
            reference_free: false,
        }
    }
}

impl SpinConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`Error::Config`] naming the option that is out of range or has no
    /// effect.
    ///
    /// # Example
    /// ```
    /// use verl_algos::spin::SpinConfig;
    /// let config = SpinConfig { dpo_beta: -1.0, ..Default::default() };
    /// let error = config.build().unwrap_err().to_string();
    /// assert_eq!(error, "algorithm.dpo_beta: -1 is out of range; it must be positive");
    /// ```
    pub fn build(&self) -> Result<DpoLoss> {
        let config = DpoConfig {
            beta: self.dpo_beta,
            loss_type: self.dpo_loss_type,
            label_smoothing: self.dpo_label_smoothing,
            reference_free: self.reference_free,
            average_log_prob: false,
        };
        let loss = config.build().map_err(|error| match error {
            Error::Config { key, line, message } => Error::Config {
                key: key.replace("algorithm.", "algorithm.dpo_"),
                line,
                message,
            },
            other => other,
        })?;
        Ok(loss.named("spin"))
    }
}
