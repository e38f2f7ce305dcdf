//! The plain policy gradient, of REINFORCE and GPG.
//!
//! ```text
//! L = -A log pi
//! ```
//!
//! # Paper
//! REINFORCE: Williams 1992, and for language models arXiv:2402.14740. GPG:
//! arXiv:2504.02546. The two differ in their advantages alone.
//!
//! The gradient is that of the return only at the policy that sampled the
//! answers: with several updates per rollout, wrap it into
//! [`Corrected`](crate::rollout_correction::Corrected), or take a loss with a
//! ratio.
//!
//! # Metrics
//! `actor/ppo_kl`, the mean of `-(log pi - log pi_old)` over the policy's
//! tokens, where old log-probs are known.

use crate::ratio::{log_ratio_n, ppo_kl};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss};
use verl_core::types::Column;

/// The loss; it has no options. Its example is that of
/// [`probe`](crate::probe::probe).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyGradientLoss;

const NAME: &str = "policy gradient";

impl PolicyLoss for PolicyGradientLoss {
    fn name(&self) -> &str {
        "policy_gradient"
    }

    fn needs(&self) -> &[Column] {
        &[Column::Advantages]
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let advantages = input.column_n(Column::Advantages, NAME)?;
        let known = input.trajectories.iter();
        let metrics_n = match known.clone().all(|t| t.has(Column::OldLogProbs)) {
            true => vec![ppo_kl(&log_ratio_n(input, NAME)?)],
            false => Vec::new(),
        };
        Ok(LossOutput {
            loss_n: (input.log_probs_n.clone() * advantages).neg(),
            metrics_n,
        })
    }
}
