//! ORPO: odds-ratio preference optimisation, without a reference policy.
//!
//! The better of two answers is imitated, and its odds are raised over those
//! of the worse one. With `c` and `r` their mean log-probs,
//!
//! ```text
//! odds(x) = e^x / (1 - e^x)
//! L       = -c - beta log s(log(odds(c) / odds(r)))      s: the sigmoid
//! ```
//!
//! Meant for `loss_agg_mode: seq-mean-token-mean`, with whole groups in a
//! micro-batch, like [DPO](crate::dpo); groups of equal scores have loss 0.
//!
//! # Paper
//! arXiv:2403.07691, eq. 6 and 7, with its weight of 0.1. Not in verl.
//!
//! # Metrics
//! `actor/orpo_log_odds`, the mean over the policy's tokens of the log of the
//! odds' ratio, 0 at answers that are not compared.

use crate::options::require;
use crate::pairs::{Pairs, nothing};
use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;
use serde::{Deserialize, Serialize};
use verl_core::Result;
use verl_core::algorithm::{LossInput, LossOutput, PolicyLoss, Requirements};
use verl_core::types::Column;

/// Options of the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OrpoConfig {
    /// Weight of the odds' ratio.
    pub beta: f32,
}

impl Default for OrpoConfig {
    fn default() -> Self {
        OrpoConfig { beta: 0.1 }
    }
}

impl OrpoConfig {
    /// The loss.
    ///
    /// # Errors
    /// [`verl_core::Error::Config`] when the weight is not positive.
    pub fn build(&self) -> Result<OrpoLoss> {
        let beta = self.beta;
        require("beta", beta, beta.is_finite() && beta > 0.0, "positive")?;
        Ok(OrpoLoss { beta })
    }
}

/// The loss.
///
/// # Example
/// Odds of 3 against 1/3, a ratio of 9, whose sigmoid of the log is 9 / 10.
/// ```
/// use burn::tensor::Device;
/// use verl_algos::orpo::OrpoConfig;
/// use verl_algos::probe::{Answer, probe};
///
/// let answers = [(1.0, 0.75f32), (0.0, 0.25)].map(|(score, p)| Answer {
///     score,
///     log_probs: vec![p.ln()],
///     ..Answer::default()
/// });
/// let loss = OrpoConfig::default().build()?;
/// let probed = probe(&loss, &answers, &Device::flex().autodiff())?;
/// let want = -(0.75f32.ln()) - 0.1 * 0.9f32.ln();
/// assert!(probed.loss_n.iter().all(|l| (l - want).abs() < 1e-6));
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OrpoLoss {
    /// Weight of the odds' ratio.
    pub beta: f32,
}

const NAME: &str = "ORPO loss";

impl PolicyLoss for OrpoLoss {
    fn name(&self) -> &str {
        "orpo"
    }

    fn needs(&self) -> &[Column] {
        &[Column::TokenRewards]
    }

    fn requirements(&self) -> Requirements {
        crate::pairs::requirements()
    }

    fn per_token(&self, input: &LossInput<'_>) -> Result<LossOutput> {
        let pairs = Pairs::find(input, NAME)?;
        if pairs.is_empty() {
            let loss_n = nothing(input);
            let metrics_n = vec![("actor/orpo_log_odds", loss_n.clone().inner())];
            return Ok(LossOutput { loss_n, metrics_n });
        }
        let means = input.sequence_sum_s(input.log_probs_n.clone()) / input.lengths_s();
        let (chosen, rejected) = pairs.split(means);
        let log_odds = log_odds(chosen.clone()) - log_odds(rejected);
        let losses = log_sigmoid(log_odds.clone()).mul_scalar(-self.beta) - chosen;
        let metrics_n = vec![("actor/orpo_log_odds", pairs.both(input, log_odds.inner()))];
        Ok(LossOutput {
            loss_n: pairs.spread(input, losses),
            metrics_n,
        })
    }
}

/// `x - log(1 - e^x)` for `x < 0`. With `t = tanh(-x / 2)`, `1 - e^x` is
/// `2t / (1 + t)`, which loses no digits where `e^x` is near 1. A log-prob of
/// 0 counts as just below.
fn log_odds(x: Tensor<1>) -> Tensor<1> {
    let t = x.clone().clamp_max(-1e-6).mul_scalar(-0.5).tanh();
    x - (t.clone().log() - t.log1p()).add_scalar(std::f32::consts::LN_2)
}
